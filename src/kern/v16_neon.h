/* v16_neon.h - the 16-lane virtual vector as four registers of NEON (any 64-bit Arm CPU).
 * Not chosen by detection: only files compiled for this instruction set include it.
 * Ownership, threads, failure: as v16_ref.h, whose meaning of every operation this keeps bit for bit. Arm's own maximum prefers a NaN, hence the
 * comparisons and selections. */
#ifndef KERN_V16_NEON_H
#define KERN_V16_NEON_H
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

enum { V16_ACC = 6, V16_ROWS = 6 }; /* 6 x 4 registers of accumulators, 4 of B, 1 broadcast: 29 of 32 */

typedef float32x4x4_t v16;
typedef uint32x4x4_t v16i;
typedef uint32x4x4_t v16m; /* all ones or zeros a lane */

#define V16_EACH(T, expr)                                                                                                                            \
  T r_;                                                                                                                                              \
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) r_.val[i] = (expr);                                                                            \
  return r_

static inline v16m v16_from_to(int lo, int hi) {
  static const int32_t count[4] = {0, 1, 2, 3};
  int32x4_t at = vld1q_s32(count), l = vdupq_n_s32(lo), h = vdupq_n_s32(hi);
  V16_EACH(v16m, vandq_u32(vcgeq_s32(vaddq_s32(at, vdupq_n_s32(4 * i)), l), vcltq_s32(vaddq_s32(at, vdupq_n_s32(4 * i)), h)));
}
static inline v16 v16_load(const float *p) { V16_EACH(v16, vld1q_f32(p + 4 * i)); }
static inline void v16_store(float *p, v16 x) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.val[i]);
}
/* There are no masked loads: a tail goes through memory of our own. */
static inline v16 v16_load_n(const float *p, int n) {
  if (n >= 16) return v16_load(p);
  float t[16] = {0};
  if (n > 0) memcpy(t, p, sizeof(float) * (size_t)n);
  return v16_load(t);
}
static inline void v16_store_n(float *p, v16 x, int n) {
  if (n >= 16) {
    v16_store(p, x);
    return;
  }
  float t[16];
  v16_store(t, x);
  if (n > 0) memcpy(p, t, sizeof(float) * (size_t)n);
}
static inline v16 v16_set1(float x) { V16_EACH(v16, vdupq_n_f32(x)); }
static inline v16 v16_zero(void) { return v16_set1(0.0f); }

static inline v16 v16_add(v16 x, v16 y) { V16_EACH(v16, vaddq_f32(x.val[i], y.val[i])); }
static inline v16 v16_sub(v16 x, v16 y) { V16_EACH(v16, vsubq_f32(x.val[i], y.val[i])); }
static inline v16 v16_mul(v16 x, v16 y) { V16_EACH(v16, vmulq_f32(x.val[i], y.val[i])); }
static inline v16 v16_div(v16 x, v16 y) { V16_EACH(v16, vdivq_f32(x.val[i], y.val[i])); }
static inline v16 v16_fma(v16 x, v16 y, v16 z) { V16_EACH(v16, vfmaq_f32(z.val[i], x.val[i], y.val[i])); }
static inline v16 v16_fnma(v16 x, v16 y, v16 z) { V16_EACH(v16, vfmsq_f32(z.val[i], x.val[i], y.val[i])); }
static inline v16 v16_max(v16 x, v16 y) { V16_EACH(v16, vbslq_f32(vcgtq_f32(x.val[i], y.val[i]), x.val[i], y.val[i])); }
static inline v16 v16_min(v16 x, v16 y) { V16_EACH(v16, vbslq_f32(vcltq_f32(x.val[i], y.val[i]), x.val[i], y.val[i])); }

static inline v16m v16_lt(v16 x, v16 y) { V16_EACH(v16m, vcltq_f32(x.val[i], y.val[i])); }
static inline v16m v16_nan(v16 x) { V16_EACH(v16m, vmvnq_u32(vceqq_f32(x.val[i], x.val[i]))); }
static inline v16 v16_select(v16m m, v16 yes, v16 no) { V16_EACH(v16, vbslq_f32(m.val[i], yes.val[i], no.val[i])); }

static inline v16i v16_bits(v16 x) { V16_EACH(v16i, vreinterpretq_u32_f32(x.val[i])); }
static inline v16 v16_of_bits(v16i x) { V16_EACH(v16, vreinterpretq_f32_u32(x.val[i])); }
static inline v16i v16i_add(v16i x, v16i y) { V16_EACH(v16i, vaddq_u32(x.val[i], y.val[i])); }
static inline v16i v16i_shl23(v16i x) { V16_EACH(v16i, vshlq_n_u32(x.val[i], 23)); }

static inline v16 v16_load_f16(const uint16_t *p) { V16_EACH(v16, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)))); }
static inline void v16_store_f16(uint16_t *p, v16 x) {
  for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.val[i])));
}

static inline void v16_load_pairs(const float *p, v16 *a, v16 *b) {
  for (int i = 0; i < 4; i++) {
    float32x4x2_t t = vld2q_f32(p + 8 * i);
    a->val[i] = t.val[0], b->val[i] = t.val[1];
  }
}
static inline void v16_store_pairs(float *p, v16 x, v16 y) {
  for (int i = 0; i < 4; i++) vst2q_f32(p + 8 * i, (float32x4x2_t){{x.val[i], y.val[i]}});
}

/* Lane j with j+8, then +4, +2, +1. */
static inline float v16_sum(v16 x) {
  float32x4_t q = vaddq_f32(vaddq_f32(x.val[0], x.val[2]), vaddq_f32(x.val[1], x.val[3]));
  float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
  return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
static inline float32x4_t v16_max4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
static inline float v16_hmax(v16 x) {
  float32x4_t q = v16_max4(v16_max4(x.val[0], x.val[2]), v16_max4(x.val[1], x.val[3]));
  float32x2_t l = vget_low_f32(q), h = vget_high_f32(q), m = vbsl_f32(vcgt_f32(l, h), l, h);
  float a = vget_lane_f32(m, 0), b = vget_lane_f32(m, 1);
  return a > b ? a : b;
}
#undef V16_EACH
#endif
