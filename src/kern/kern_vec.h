/* kern_vec.h - what the element-wise and attention kernels of one instruction set are called, and how a KV page is addressed.
 * Not public: kern.h is. Only vec_*.c, *_body.inc and select.c include it.
 * Ownership: none.
 * Threads: any.
 * Failure: none. */
#ifndef KERN_VEC_H
#define KERN_VEC_H
#include "kern/kern.h"

/* Prototypes of one instruction set's kernels: VEC_DECLARE(avx2) declares rmsnorm_avx2 and so on. Meanings: kern_ops in kern.h. */
#define VEC_DECLARE(isa)                                                                                                                             \
  void rmsnorm_##isa(const float *x, const float *w, float eps, int n, float *y);                                                                    \
  void add_##isa(float *y, const float *x, int n);                                                                                                   \
  void add_scaled_##isa(float *y, const float *x, float s, int n);                                                                                   \
  void silu_mul_##isa(const float *g, const float *u, int n, float *y);                                                                              \
  void gelu_mul_##isa(const float *g, const float *u, int n, float *y);                                                                              \
  void rope_##isa(float *x, int n_rot, bool neox, const float *cs);                                                                                  \
  void kv_store_##isa(const kern_kv *kv, int layer, int32_t page, int slot, const float *k, const float *v, int h0, int h1);                         \
  void attn_##isa(const kern_attn *a, int h, int r0, int r1);                                                                                        \
  void attn_part_##isa(const kern_attn *a, int h, int r0, int r1, int split_index, float *part);                                                     \
  void attn_merge_##isa(const float *part, int n_split, size_t stride, int head_dim, float *out);                                                    \
  void max_at_##isa(const float *x, int n, float *ret_max, int *ret_at);                                                                             \
  void peaks_##isa(const float *x, int n, float *m);                                                                                                 \
  double sum_exp_##isa(const float *x, int n, float scale, float max, double *ret_moment);                                                           \
  uint32_t noise_##isa(const uint32_t key[2], const uint32_t at[3], uint32_t group, uint32_t u[KERN_PEAK])

/* The same as members of a kern_ops initialiser. */
#define VEC_OPS(isa)                                                                                                                                 \
  .rmsnorm = rmsnorm_##isa, .add = add_##isa, .add_scaled = add_scaled_##isa, .silu_mul = silu_mul_##isa, .gelu_mul = gelu_mul_##isa,                \
  .rope = rope_##isa, .kv_store = kv_store_##isa, .attn = attn_##isa, .attn_part = attn_part_##isa, .attn_merge = attn_merge_##isa,                  \
  .max_at = max_at_##isa, .peaks = peaks_##isa, .sum_exp = sum_exp_##isa, .noise = noise_##isa

VEC_DECLARE(ref);
VEC_DECLARE(avx2);
VEC_DECLARE(avx512);
VEC_DECLARE(neon);

/* exp: x = n ln 2 + r, exp(x) = 2^n p(r). n comes out of the low bits of x log2(e) + 1.5 2^23. ln 2 in two parts, the first with trailing zeros
 * so that n times it is exact. p: 1 + r + r^2 (E2 + E3 r + .. + E6 r^4), a minimax fit of relative error on |r| <= ln(2)/2. Below EXP_LO the
 * result is 0, which keeps subnormals (slow, and worth nothing here) out of every sum; above EXP_HI it is infinity. */
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_MAGIC 0x1.8p+23f
#define EXP_LN2_HI 0x1.62e4p-1f
#define EXP_LN2_LO 0x1.7f7d1cp-20f
#define EXP_LO (-0x1.5d589ep+6f) /* exp of it is just above the least normal number */
#define EXP_HI 0x1.62e42ep+6f    /* the largest x whose exp is finite */
#define EXP_E2 0x1.fffffcp-2f
#define EXP_E3 0x1.555492p-3f
#define EXP_E4 0x1.5558f2p-5f
#define EXP_E5 0x1.123a2p-7f
#define EXP_E6 0x1.6a23dp-10f

/* Start of layer `layer`'s K (values = false) or V of kv head h in a page; the layout is in kern.h. */
static inline size_t kv_elt(const kern_kv *kv) { return kv->type == KERN_KV_F16 ? 2 : 4; }
static inline uint8_t *kv_at(const kern_kv *kv, int layer, int32_t page, int h, bool values) {
  size_t head = (size_t)kv->page * (size_t)kv->head_dim * kv_elt(kv), heads = 2 * (size_t)kv->n_kv;
  size_t index = ((size_t)page * (size_t)kv->n_layer + (size_t)layer) * heads + (values ? (size_t)kv->n_kv : 0) + (size_t)h;
  return kv->pool + index * head;
}
#endif
