/* gemm_neon.c - matrix products with NEON and its dot product (Armv8.2 with FEAT_DotProd): the 16 rows of a panel are four registers of 4.
 *
 * sdot multiplies signed bytes, so quants are made signed on unpacking (their zero point is taken away, or the table holds signed values) and no
 * sum of activations is needed to correct for it: sum((u - zero) q) is the same integer. It also broadcasts a quad of activations out of a
 * register, so two loads of 16 bytes serve a block. A block is unpacked for four rows at a time, whose eight registers stay put while the columns
 * go by. The arithmetic is gemm_ref.c's, bit for bit. */
#include "kern/kern_gemm.h"
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { QUARTER = 4 }; /* rows in a register */

/* ---- activations ------------------------------------------------------------------------------------------------------------------ */

INLINE void act_block(const float *x, int8_t *q, float *d, float *s, int32_t *z) {
  uint32x4_t top = vdupq_n_u32(0);
  for (int i = 0; i < 8; i++) top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + 4 * i)), vdupq_n_u32(0x7fffffff)));
  uint32_t bits = vmaxvq_u32(top);
  float absmax;
  memcpy(&absmax, &bits, 4);
  if (!(absmax >= ACT_TINY && bits < 0x7f800000u)) {
    memset(q, 0, KERN_BLOCK);
    z[0] = z[1] = 0;
    *d = *s = bits < 0x7f800000u ? 0.0f : NAN;
    return;
  }
  float32x4_t inverse = vdupq_n_f32(127.0f / absmax);
  for (int h = 0; h < 2; h++) {
    int32x4_t v[4];
    for (int i = 0; i < 4; i++) v[i] = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 16 * h + 4 * i), inverse));
    z[h] = vaddvq_s32(vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3])));
    int16x8_t lo = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1])), hi = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    vst1q_s8(q + 16 * h, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
  }
  *d = absmax / 127.0f;
  *s = *d * (float)(z[0] + z[1]);
}

/* ---- one packed block of 32 along K, four of its rows ----------------------------------------------------------------------------------- */

typedef struct block {
  int8x16_t w[8]; /* w[g]: k = 4g .. 4g+3 of each row, signed */
  float32x4_t d, m;
  int32x4_t sc[2], mn[2]; /* gemm_halves: the scale of each half; SCALE_2K: its minimum */
} block;

/* Bytes right (s > 0) or left; only bits that stay in the byte are kept. */
INLINE uint8x16_t shift(uint8x16_t v, int s) { return vshlq_u8(v, vdupq_n_s8((int8_t)-s)); }

/* Quants of the quarter whose first vector's 16 bytes q points at: planes as README.md draws them. */
INLINE void load_planes(int bits, const uint8_t *q, uint8x16_t u[8]) {
  const uint8x16_t nibble = vdupq_n_u8(15);
#pragma GCC unroll 4
  for (int g = 0; g < 4; g++) {
    uint8x16_t v = bits & 4 ? vld1q_u8(q + 64 * g) : vdupq_n_u8(0);
    u[g] = vandq_u8(v, nibble);
    u[g + 4] = vshrq_n_u8(v, 4);
  }
  q += 64 * (bits & 4);
  if (bits & 2) {
    const uint8x16_t mask = vdupq_n_u8((uint8_t)(3 << (bits & 4)));
    uint8x16_t h[2] = {vld1q_u8(q), vld1q_u8(q + 64)};
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) u[g] = vorrq_u8(u[g], vandq_u8(shift(h[g & 1], 2 * (g >> 1) - (bits & 4)), mask));
  }
  if (bits & 1) {
    const uint8x16_t mask = vdupq_n_u8((uint8_t)(1 << (bits & 6)));
    uint8x16_t h = vld1q_u8(q + 64 * (bits & 2));
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) u[g] = vorrq_u8(u[g], vandq_u8(shift(h, g - (bits & 6)), mask));
  }
}

INLINE void load_quants(gemm_code code, int zero, const uint8_t *q, block *o) {
  static const int8_t iq4[16] = {GEMM_IQ4(0)}, e2m1[16] = {GEMM_E2M1(0)};
  const int bits = gemm_bits(code);
  uint8x16_t u[8];
  if (bits == 8)
    for (int g = 0; g < 8; g++) u[g] = vld1q_u8(q + 64 * g);
  else load_planes(bits, q, u);
  if (code == CODE_IQ4 || code == CODE_E2M1) {
    int8x16_t table = vld1q_s8(code == CODE_IQ4 ? iq4 : e2m1);
    for (int g = 0; g < 8; g++) o->w[g] = vqtbl1q_s8(table, u[g]);
    return;
  }
  for (int g = 0; g < 8; g++) o->w[g] = vreinterpretq_s8_u8(vsubq_u8(u[g], vdupq_n_u8((uint8_t)zero)));
}

INLINE float32x4_t load_half(const uint8_t *p) {
  uint16_t h[4];
  memcpy(h, p, sizeof h);
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}
INLINE uint32x4_t load_u8(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(v)))));
}
INLINE int32x4_t load_s8(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(v)))));
}

/* 2^(e - 128), the two least of them subnormal. */
INLINE float32x4_t load_e8(const uint8_t *p) {
  uint32x4_t e = load_u8(p), least = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
  uint32x4_t v = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
  return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), least, v));
}

/* SCALE_3K: low nibbles of block b's two scales in one byte, their upper bits in a quarter of another. */
INLINE void load_3k(const uint8_t *p, int b, block *o) {
  const uint32x4_t mask = vdupq_n_u32(0x30);
  const int32x4_t zero = vdupq_n_s32(32);
  uint32x4_t lo = load_u8(p + 16 * b), hi = vshlq_u32(load_u8(p + 128 + 16 * (b / 2)), vdupq_n_s32(-4 * (b & 1)));
  uint32x4_t even = vorrq_u32(vandq_u32(lo, vdupq_n_u32(15)), vandq_u32(vshlq_n_u32(hi, 4), mask));
  uint32x4_t odd = vorrq_u32(vshrq_n_u32(lo, 4), vandq_u32(vshlq_n_u32(hi, 2), mask));
  o->sc[0] = vsubq_s32(vreinterpretq_s32_u32(even), zero);
  o->sc[1] = vsubq_s32(vreinterpretq_s32_u32(odd), zero);
}

/* p: the scales of block b's group. quarter: rows 4 quarter .. 4 quarter + 3. */
INLINE void load_scales(gemm_scale kind, const uint8_t *p, int b, int quarter, block *o) {
  const uint8_t *f16 = p + 8 * quarter, *bytes = p + 4 * quarter; /* of these rows */
  switch (kind) {
  case SCALE_D: o->d = load_half(f16 + b % 2 * 32); break;
  case SCALE_DM:
    o->d = load_half(f16);
    o->m = load_half(f16 + 32);
    break;
  case SCALE_E8: o->d = load_e8(bytes + b % 4 * 16); break;
  case SCALE_XS: o->d = vmulq_f32(load_half(f16), vcvtq_f32_s32(load_s8(bytes + 32 + b % 8 * 16))); break;
  case SCALE_K:
    o->d = vmulq_f32(load_half(f16), vcvtq_f32_u32(load_u8(bytes + 64 + b % 8 * 32)));
    o->m = vmulq_f32(load_half(f16 + 32), vcvtq_f32_u32(load_u8(bytes + 80 + b % 8 * 32)));
    break;
  case SCALE_2K:
    o->d = load_half(f16);
    o->m = load_half(f16 + 32);
    for (int h = 0; h < 2; h++) {
      uint32x4_t v = load_u8(bytes + 64 + b % 8 * 32 + 16 * h);
      o->sc[h] = vreinterpretq_s32_u32(vandq_u32(v, vdupq_n_u32(15)));
      o->mn[h] = vreinterpretq_s32_u32(vshrq_n_u32(v, 4));
    }
    break;
  case SCALE_3K:
    o->d = load_half(f16);
    load_3k(bytes + 32, b % 8, o);
    break;
  case SCALE_6K:
    o->d = load_half(f16);
    o->sc[0] = load_s8(bytes + 32 + b % 8 * 32);
    o->sc[1] = load_s8(bytes + 48 + b % 8 * 32);
    break;
  case SCALE_NONE: break;
  }
}

/* SCALE_2K: quants times their scale are 0 .. 45 and stay bytes, so that a product needs one sum for both halves. */
INLINE void scale_quants(block *o) {
  for (int g = 0; g < 8; g++) {
    int32x4_t four = vmulq_n_s32(o->sc[g / 4], 0x01010101);
    o->w[g] = vmulq_s8(o->w[g], vreinterpretq_s8_s32(four));
  }
}

/* ---- int8 activations ------------------------------------------------------------------------------------------------------------------- */

INLINE int32x4_t dot_half(const int8x16_t w[4], int8x16_t q, int32x4_t v) {
  v = vdotq_laneq_s32(v, w[0], q, 0);
  v = vdotq_laneq_s32(v, w[1], q, 1);
  v = vdotq_laneq_s32(v, w[2], q, 2);
  return vdotq_laneq_s32(v, w[3], q, 3);
}

/* acc of one column after this block. q, d, s, z are the column's values of the block. */
INLINE float32x4_t block_column(gemm_scale kind, const block *o, const int8_t *q, float d, float s, const int32_t *z, float32x4_t acc) {
  int8x16_t q0 = vld1q_s8(q), q1 = vld1q_s8(q + 16);
  int32x4_t v = dot_half(o->w, q0, vdupq_n_s32(0));
  if (kind == SCALE_6K || kind == SCALE_3K) v = vmlaq_s32(vmulq_s32(v, o->sc[0]), dot_half(o->w + 4, q1, vdupq_n_s32(0)), o->sc[1]);
  else v = dot_half(o->w + 4, q1, v);
  acc = vfmaq_f32(acc, vcvtq_f32_s32(v), vmulq_n_f32(o->d, d));
  if (kind == SCALE_DM) acc = vfmaq_n_f32(acc, o->m, s);
  if (kind == SCALE_K) acc = vfmsq_n_f32(acc, o->m, s);
  if (kind == SCALE_2K) acc = vfmsq_f32(acc, vcvtq_f32_s32(vmlaq_n_s32(vmulq_n_s32(o->mn[0], z[0]), o->mn[1], z[1])), vmulq_n_f32(o->m, d));
  return acc;
}

INLINE void tile_q8(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int k, const gemm_cols *c, float *out) {
  memset(out, 0, (size_t)c->n * KERN_PANEL * sizeof *out);
  for (int b = 0; b < k / KERN_BLOCK; b++) {
    const uint8_t *quants = panel + gemm_quants_at(code, kind, b), *scales = panel + gemm_scales_at(code, kind, b);
    gemm_prefetch(code, kind, panel, b);
    for (int quarter = 0; quarter < 4; quarter++) {
      block o;
      load_quants(code, zero, quants + 16 * quarter, &o);
      load_scales(kind, scales, b, quarter, &o);
      if (kind == SCALE_2K) scale_quants(&o);
      const int8_t *q = c->q + 32 * (size_t)b;
      const float *d = c->d + b, *s = c->s + b;
      const int32_t *z = c->z + 2 * (size_t)b;
      float *to = out + QUARTER * quarter;
      for (int i = 0; i < c->n; i++, to += KERN_PANEL, q += c->ldq, d += c->ldd, s += c->ldd, z += c->ldz)
        vst1q_f32(to, block_column(kind, &o, q, *d, *s, z, vld1q_f32(to)));
    }
  }
}

/* ---- F32 activations: a piece of 32 along K becomes F32 in L1, then one FMA per weight, column and k ---------------------------------------- */

/* Four rows of w[k] exactly as dequant_row gives it: two roundings where a minimum is added. half: of the block, for the scales. */
INLINE float32x4_t weight(gemm_scale kind, const block *o, int half, int32x4_t u) {
  float32x4_t v = vmulq_f32(gemm_halves(kind) ? vmulq_f32(o->d, vcvtq_f32_s32(o->sc[half])) : o->d, vcvtq_f32_s32(u));
  if (kind == SCALE_DM) v = vaddq_f32(v, o->m);
  if (kind == SCALE_K) v = vsubq_f32(v, o->m);
  if (kind == SCALE_2K) v = vsubq_f32(v, vmulq_f32(o->m, vcvtq_f32_s32(o->mn[half])));
  return v;
}

INLINE void piece_quants(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int b, float *w) {
  for (int quarter = 0; quarter < 4; quarter++, w += QUARTER) {
    block o;
    load_quants(code, zero, panel + gemm_quants_at(code, kind, b) + 16 * quarter, &o);
    load_scales(kind, panel + gemm_scales_at(code, kind, b), b, quarter, &o);
    for (int g = 0; g < 8; g++) {
      int32x4_t u = vreinterpretq_s32_s8(o.w[g]);
      vst1q_f32(w + (4 * g + 0) * KERN_PANEL, weight(kind, &o, g / 4, vshrq_n_s32(vshlq_n_s32(u, 24), 24)));
      vst1q_f32(w + (4 * g + 1) * KERN_PANEL, weight(kind, &o, g / 4, vshrq_n_s32(vshlq_n_s32(u, 16), 24)));
      vst1q_f32(w + (4 * g + 2) * KERN_PANEL, weight(kind, &o, g / 4, vshrq_n_s32(vshlq_n_s32(u, 8), 24)));
      vst1q_f32(w + (4 * g + 3) * KERN_PANEL, weight(kind, &o, g / 4, vshrq_n_s32(u, 24)));
    }
  }
}

INLINE void piece_halves(bool brain, const uint8_t *p, int n_k, float *w) {
  for (int i = 0; i < 4 * n_k; i++) {
    uint16_t t[4];
    memcpy(t, p + 8 * i, sizeof t);
    uint16x4_t h = vld1_u16(t);
    vst1q_f32(w + 4 * i, brain ? vreinterpretq_f32_u32(vshll_n_u16(h, 16)) : vcvt_f32_f16(vreinterpret_f16_u16(h)));
  }
}

/* out[j] += w[j] . x for n <= 4 chains of 16 rows that run side by side: n columns of one panel (w_step 0) or one column of n panels (x_step 0). */
INLINE void piece_fma(const float *w, size_t w_step, const float *x, size_t x_step, int n_k, const int n, float *out) {
  float32x4_t acc[4][4];
  for (int j = 0; j < n; j++)
    for (int h = 0; h < 4; h++) acc[j][h] = vld1q_f32(out + KERN_PANEL * j + QUARTER * h);
  for (int i = 0; i < n_k; i++)
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
      float v = x[(size_t)j * x_step + (size_t)i];
      const float *row = w + (size_t)j * w_step + KERN_PANEL * i;
#pragma GCC unroll 4
      for (int h = 0; h < 4; h++) acc[j][h] = vfmaq_n_f32(acc[j][h], vld1q_f32(row + QUARTER * h), v);
    }
  for (int j = 0; j < n; j++)
    for (int h = 0; h < 4; h++) vst1q_f32(out + KERN_PANEL * j + QUARTER * h, acc[j][h]);
}

#define GEMM_ISA neon
#define GEMM_CHAINS 4
#include "kern/gemm_body.inc"
