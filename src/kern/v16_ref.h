/* v16_ref.h - the 16-lane virtual vector in plain C: what every other v16_*.h must equal, lane for lane and bit for bit.
 * Not a general vector library: exactly the operations the kernels need, each with one defined result.
 * Ownership: plain values.
 * Threads: any.
 * Failure: none. A port to another instruction set (NEON: four float32x4_t) is one more header of this shape and one vec_*.c.
 *
 * Meaning that a port must keep where machines differ:
 *  - v16_max(a, b) is a > b ? a : b and v16_min(a, b) is a < b ? a : b: b when either is NaN, b when the two are zeros of different sign.
 *  - v16_fma rounds once. v16_fnma(a, b, c) is fma(-a, b, c).
 *  - v16_sum and v16_hmax fold lanes as a tree: lane j with lane j+8, then +4, +2, +1, lower lane as the first operand.
 *  - F16 rounds to nearest even, keeps subnormals, and makes NaN quiet.
 *  - no flush to zero anywhere. */
#ifndef KERN_V16_REF_H
#define KERN_V16_REF_H
#include "base/half.h"
#include <math.h>
#include <string.h>

enum {
  V16_ACC = 1, /* accumulators a register tile may hold, in v16 */
  V16_ROWS = 1 /* rows of a full tile */
};

typedef struct v16 {
  float v[16];
} v16;
typedef struct v16i {
  uint32_t v[16];
} v16i;
typedef uint32_t v16m; /* one bit a lane */

#define V16_EACH(T, expr)                                                                                                                            \
  T r_;                                                                                                                                              \
  for (int i = 0; i < 16; i++) r_.v[i] = (expr);                                                                                                     \
  return r_

static inline v16 v16_load(const float *p) {
  v16 r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
static inline void v16_store(float *p, v16 a) { memcpy(p, a.v, sizeof a.v); }
static inline v16 v16_load_n(const float *p, int n) { V16_EACH(v16, i < n ? p[i] : 0.0f); } /* lanes from n on are 0 and not read */
static inline void v16_store_n(float *p, v16 a, int n) { memcpy(p, a.v, sizeof(float) * (size_t)(n < 16 ? n : 16)); }
static inline v16 v16_set1(float x) { V16_EACH(v16, x); }
static inline v16 v16_zero(void) { return v16_set1(0.0f); }

static inline v16 v16_add(v16 a, v16 b) { V16_EACH(v16, a.v[i] + b.v[i]); }
static inline v16 v16_sub(v16 a, v16 b) { V16_EACH(v16, a.v[i] - b.v[i]); }
static inline v16 v16_mul(v16 a, v16 b) { V16_EACH(v16, a.v[i] * b.v[i]); }
static inline v16 v16_div(v16 a, v16 b) { V16_EACH(v16, a.v[i] / b.v[i]); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { V16_EACH(v16, fmaf(a.v[i], b.v[i], c.v[i])); }
static inline v16 v16_fnma(v16 a, v16 b, v16 c) { V16_EACH(v16, fmaf(-a.v[i], b.v[i], c.v[i])); }
static inline v16 v16_max(v16 a, v16 b) { V16_EACH(v16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
static inline v16 v16_min(v16 a, v16 b) { V16_EACH(v16, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }

static inline v16m v16_lt(v16 a, v16 b) {
  v16m m = 0;
  for (int i = 0; i < 16; i++) m |= (v16m)(a.v[i] < b.v[i]) << i;
  return m;
}
static inline v16m v16_nan(v16 a) {
  v16m m = 0;
  for (int i = 0; i < 16; i++) m |= (v16m)(a.v[i] != a.v[i]) << i;
  return m;
}
static inline v16m v16_from_to(int lo, int hi) { /* lanes lo <= i < hi */
  v16m m = 0;
  for (int i = 0; i < 16; i++) m |= (v16m)(i >= lo && i < hi) << i;
  return m;
}
static inline v16 v16_select(v16m m, v16 yes, v16 no) { V16_EACH(v16, m >> i & 1 ? yes.v[i] : no.v[i]); }

static inline v16i v16_bits(v16 a) {
  v16i r;
  memcpy(&r, &a, sizeof r);
  return r;
}
static inline v16 v16_of_bits(v16i a) {
  v16 r;
  memcpy(&r, &a, sizeof r);
  return r;
}
static inline v16i v16i_add(v16i a, v16i b) { V16_EACH(v16i, a.v[i] + b.v[i]); }
static inline v16i v16i_shl23(v16i a) { V16_EACH(v16i, a.v[i] << 23); }

static inline v16 v16_load_f16(const uint16_t *p) { V16_EACH(v16, f32_of_f16(p[i])); }
static inline void v16_store_f16(uint16_t *p, v16 a) {
  for (int i = 0; i < 16; i++) p[i] = f16_of_f32(a.v[i]);
}

/* 32 floats as 16 pairs: first and second members apart, and together again. */
static inline void v16_load_pairs(const float *p, v16 *a, v16 *b) {
  for (int i = 0; i < 16; i++) a->v[i] = p[2 * i], b->v[i] = p[2 * i + 1];
}
static inline void v16_store_pairs(float *p, v16 a, v16 b) {
  for (int i = 0; i < 16; i++) p[2 * i] = a.v[i], p[2 * i + 1] = b.v[i];
}

static inline float v16_sum(v16 a) {
  for (int k = 8; k; k >>= 1)
    for (int i = 0; i < k; i++) a.v[i] = a.v[i] + a.v[i + k];
  return a.v[0];
}
static inline float v16_hmax(v16 a) {
  for (int k = 8; k; k >>= 1)
    for (int i = 0; i < k; i++) a.v[i] = a.v[i] > a.v[i + k] ? a.v[i] : a.v[i + k];
  return a.v[0];
}
#undef V16_EACH
#endif
