/* gemm_check.h - for the tests of matrix products: random weights in the file's format, activations, one product with one table.
 * Not a test by itself.
 * Ownership: a gemm_case owns its memory until case_fini.
 * Threads: a test's own.
 * Failure: cmocka assertions. */
#ifndef TEST_GEMM_CHECK_H
#define TEST_GEMM_CHECK_H
#include "base/half.h"
#include "base/rng.h"
#include "base/wtype.h"
#include "kern/kern.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const wtype all_types[] = {WT_F32, WT_F16, WT_BF16, WT_Q4_0, WT_Q4_1, WT_Q5_0, WT_Q5_1, WT_Q8_0, WT_Q4_K, WT_Q5_K, WT_Q6_K, WT_Q2_K, WT_Q3_K,
    WT_IQ4_NL, WT_IQ4_XS, WT_MXFP4};
enum { N_ALL = sizeof all_types / sizeof *all_types };

/* Where a block's half-precision numbers lie: none, one or two. */
static inline int half_places(wtype t, int at[2]) {
  at[0] = t == WT_Q6_K ? 208 : t == WT_Q3_K ? 108 : t == WT_Q2_K ? 80 : 0;
  at[1] = at[0] + 2;
  return t == WT_MXFP4 ? 0 : t == WT_Q4_1 || t == WT_Q5_1 || t == WT_Q4_K || t == WT_Q5_K || t == WT_Q2_K ? 2 : 1;
}

typedef enum fill { FILL_RANDOM, FILL_ZERO, FILL_ONES } fill; /* of the quants' and small scales' bits */

/* n bytes of blocks of type t. Half-precision scales are of a size real files have. */
static inline void fill_blocks(rng *r, wtype t, fill how, uint8_t *p, size_t n) {
  const wtype_info *info = wtype_lookup((uint32_t)t);
  int at[2], n_half = half_places(t, at);
  for (size_t i = 0; i < n; i += (size_t)info->bytes) {
    if (info->block == 1) {
      float f = (float)(2 * rng_f64(r) - 1);
      uint16_t h = t == WT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
      memcpy(p + i, t == WT_F32 ? (void *)&f : (void *)&h, (size_t)info->bytes);
      continue;
    }
    for (int j = 0; j < info->bytes; j++) p[i + (size_t)j] = how == FILL_RANDOM ? (uint8_t)rng_u64(r) : how == FILL_ZERO ? 0 : 255;
    for (int j = 0; j < n_half; j++) {
      uint16_t h = f16_of_f32((float)(rng_f64(r) * 0.05 - (j ? 0.025 : 0.0)));
      memcpy(p + i + at[j], &h, 2);
    }
    if (t == WT_MXFP4) p[i] = (uint8_t)(118 + rng_below(r, 6));
  }
}

typedef struct gemm_case {
  kern_mat w;
  size_t row_bytes, src_bytes;
  uint8_t *src;
  int n;
  float *x; /* [n, cols] */
  kern_act act;
  void *act_mem;
} gemm_case;

static inline void *aligned(size_t n) {
  void *p = aligned_alloc(64, (n + 63) / 64 * 64);
  assert_non_null(p);
  return p;
}

static inline void case_init(gemm_case *c, rng *r, wtype t, int rows, int cols, int n, fill how) {
  const wtype_info *info = wtype_lookup((uint32_t)t);
  *c = (gemm_case){.w = {.type = t, .rows = rows, .cols = cols}, .n = n};
  c->row_bytes = (size_t)(cols / info->block) * (size_t)info->bytes;
  c->src_bytes = c->row_bytes * (size_t)rows;
  c->src = malloc(c->src_bytes);
  assert_non_null(c->src);
  fill_blocks(r, t, how, c->src, c->src_bytes);
  size_t bytes = kern_packed_bytes(t, rows, cols);
  assert_true(bytes > 0);
  c->w.data = aligned(bytes);
  kern_pack(&c->w, c->src, 0, kern_panels(rows));
  c->x = aligned(sizeof(float) * (size_t)n * (size_t)cols);
  for (int i = 0; i < n * cols; i++) c->x[i] = (float)(2 * rng_f64(r) - 1) * (i % 97 ? 1.0f : 8.0f);
  c->act_mem = aligned(kern_act_bytes(cols, n));
  kern_act_bind(&c->act, c->act_mem, cols, n);
  c->act.x = c->x;
  c->act.ldx = cols;
}

static inline void case_fini(gemm_case *c) { free(c->src), free(c->w.data), free(c->x), free(c->act_mem); }

static inline void case_quantise(gemm_case *c, const kern_ops *ops) {
  if (kern_wants(c->w.type) == KERN_ACT_Q8)
    for (int i = 0; i < c->n; i++) ops->act_quant(&c->act, i, c->x + (size_t)i * (size_t)c->w.cols);
}

/* The whole product into y [n, rows], which the caller frees. */
static inline float *case_product(gemm_case *c, const kern_ops *ops, kern_act_mode mode) {
  float *y = aligned(sizeof(float) * (size_t)c->n * (size_t)c->w.rows);
  case_quantise(c, ops);
  c->act.mode = mode;
  ops->gemm(&c->w, &c->act, c->n, 0, kern_panels(c->w.rows), y, c->w.rows);
  return y;
}

static inline bool same_floats(const float *a, const float *b, size_t n) { return memcmp(a, b, n * sizeof *a) == 0; }

static inline const kern_ops *table_ref(void) {
  const kern_ops *ops = NULL;
  assert_true(kern_select("ref", &ops, NULL));
  return ops;
}
#endif
