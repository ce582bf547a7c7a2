/* vec_ref.c - the reference table's element-wise kernels and attention: the shared bodies over the plain C vector, and the scalar exp. */
#include "kern/kern_vec.h"
#include "kern/v16_ref.h"

#define VEC(name) name##_ref
#include "kern/vec_body.inc"
#include "kern/attn_body.inc"

/* The definition of exp, one operation a line; v16_exp is this on 16 lanes. */
float kern_expf(float x) {
  if (x != x) return x;
  if (x < EXP_LO) return 0.0f;
  if (x > EXP_HI) return INFINITY;
  float t = fmaf(x, EXP_LOG2E, EXP_MAGIC);
  float n = t - EXP_MAGIC;
  float r = fmaf(-n, EXP_LN2_HI, x);
  r = fmaf(-n, EXP_LN2_LO, r);
  float p = fmaf(EXP_E6, r, EXP_E5);
  p = fmaf(p, r, EXP_E4);
  p = fmaf(p, r, EXP_E3);
  p = fmaf(p, r, EXP_E2);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  return f32_of_bits(bits_of_f32(p) + (bits_of_f32(t) << 23));
}

size_t kern_kv_page_bytes(const kern_kv *kv) {
  if (kv->head_dim < 2 || kv->head_dim > KERN_HEAD_MAX || kv->head_dim % 2 || kv->page < 16 || kv->page % 16) return 0;
  return (size_t)kv->n_layer * 2 * (size_t)kv->n_kv * (size_t)kv->page * (size_t)kv->head_dim * kv_elt(kv);
}
