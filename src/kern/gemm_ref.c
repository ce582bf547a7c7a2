/* gemm_ref.c - the matrix products in plain C: the definition of their arithmetic, and what runs where nothing faster is allowed.
 *
 * Read this file to know what a product is; README.md states the same in formulas. The other instruction sets must give the same bits. Nothing
 * here depends on how the compiler vectorises: dot products are integers, and every F32 step is one fmaf or one rounded product. */
#include "kern/kern_gemm.h"
#include "base/half.h"
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

static float f16_lane(const uint8_t *p, int r) {
  uint16_t h;
  memcpy(&h, p + 2 * r, 2);
  return f32_of_f16(h);
}

/* ---- activations ------------------------------------------------------------------------------------------------------------------ */

static void act_block(const float *x, int8_t *q, float *d, float *s, int32_t *z) {
  uint32_t top = 0; /* as bits, so that NaN and infinity come out on top */
  for (int i = 0; i < KERN_BLOCK; i++) {
    uint32_t u = bits_of_f32(x[i]) & 0x7fffffffu;
    if (u > top) top = u;
  }
  float absmax = f32_of_bits(top);
  z[0] = z[1] = 0;
  if (!(absmax >= ACT_TINY && top < 0x7f800000u)) {
    memset(q, 0, KERN_BLOCK);
    *d = *s = top < 0x7f800000u ? 0.0f : NAN;
    return;
  }
  float inverse = 127.0f / absmax;
  *d = absmax / 127.0f;
  for (int i = 0; i < KERN_BLOCK; i++) {
    q[i] = (int8_t)lrintf(x[i] * inverse);
    z[i / 16] += q[i];
  }
  *s = *d * (float)(z[0] + z[1]);
}

/* ---- one packed block of 32 along K --------------------------------------------------------------------------------------------------- */

/* Its quants, unsigned: u[k][row]. */
INLINE void block_quants(gemm_code code, const uint8_t *q, uint8_t u[KERN_BLOCK][KERN_PANEL]) {
  static const uint8_t iq4[16] = {GEMM_IQ4(128)}, e2m1[16] = {GEMM_E2M1(12)};
  const int bits = gemm_bits(code);
  const uint8_t *high = q + 64 * (bits & 4); /* behind four vectors of nibbles, if there are any */
  for (int k = 0; k < KERN_BLOCK; k++) {
    int g = k / 4, b = k % 4;
    for (int r = 0; r < KERN_PANEL; r++) {
      int at = 4 * r + b, v = 0;
      if (bits == 8) v = q[64 * g + at];
      if (bits & 4) v = g < 4 ? q[64 * g + at] & 15 : q[64 * (g - 4) + at] >> 4;
      if (bits & 2) v |= (high[64 * (g & 1) + at] >> 2 * (g >> 1) & 3) << (bits & 4);
      if (bits & 1) v |= (high[64 * (bits & 2) + at] >> g & 1) << (bits & 6);
      if (code == CODE_IQ4) v = iq4[v];
      if (code == CODE_E2M1) v = e2m1[v];
      u[k][r] = (uint8_t)v;
    }
  }
}

/* Its scales. value = d * (u - zero) + m; with two integer scales, sc and mn of each half: value = d * sc * (u - zero) + m * mn. */
typedef struct block_scales {
  float d[KERN_PANEL], m[KERN_PANEL];
  int32_t sc[2][KERN_PANEL], mn[2][KERN_PANEL];
} block_scales;

/* 2^(e - 128), halved for the doubled table; the two least are subnormal, and 255 is a number like the others (as in ggml). */
static float e8_scale(int e) { return f32_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23); }

/* Scales [16 halves] of half a byte or 6 bits, for block b of its group: p as SCALE_2K and SCALE_3K lay them out behind their f16. */
static void half_scales(gemm_scale kind, const uint8_t *p, int b, int r, block_scales *o) {
  for (int h = 0; h < 2; h++) {
    if (kind == SCALE_2K) {
      int v = p[32 * b + 16 * h + r];
      o->sc[h][r] = v & 15, o->mn[h][r] = v >> 4;
    } else if (kind == SCALE_3K) {
      int low = p[16 * b + r] >> 4 * h & 15, high = p[128 + 16 * (b / 2) + r] >> (4 * (b & 1) + 2 * h) & 3;
      o->sc[h][r] = (low | high << 4) - 32;
    } else {
      o->sc[h][r] = (int8_t)p[32 * b + 16 * h + r];
    }
  }
}

INLINE void block_scale(gemm_scale kind, const uint8_t *p, int b, block_scales *o) {
  for (int r = 0; r < KERN_PANEL; r++) {
    switch (kind) {
    case SCALE_D: o->d[r] = f16_lane(p + b % 2 * 32, r); break;
    case SCALE_DM:
      o->d[r] = f16_lane(p, r);
      o->m[r] = f16_lane(p + 32, r);
      break;
    case SCALE_E8: o->d[r] = e8_scale(p[b % 4 * 16 + r]); break;
    case SCALE_XS: o->d[r] = f16_lane(p, r) * (float)(int8_t)p[32 + b % 8 * 16 + r]; break; /* exact: 11 bits times 6 */
    case SCALE_K:                                                                           /* both products are exact too */
      o->d[r] = f16_lane(p, r) * (float)p[64 + b % 8 * 32 + r];
      o->m[r] = -(f16_lane(p + 32, r) * (float)p[64 + b % 8 * 32 + 16 + r]);
      break;
    case SCALE_2K:
      o->d[r] = f16_lane(p, r);
      o->m[r] = -f16_lane(p + 32, r);
      half_scales(kind, p + 64, b % 8, r, o);
      break;
    case SCALE_3K:
    case SCALE_6K:
      o->d[r] = f16_lane(p, r);
      half_scales(kind, p + 32, b % 8, r, o);
      break;
    case SCALE_NONE: break;
    }
  }
}

/* ---- int8 activations ------------------------------------------------------------------------------------------------------------------- */

INLINE void block_column(
    int zero, gemm_scale kind, const uint8_t u[KERN_BLOCK][KERN_PANEL], const block_scales *s, const gemm_cols *c, int i, int b, float *acc) {
  const int8_t *q = c->q + (size_t)i * c->ldq + 32 * (size_t)b;
  const int32_t *z = c->z + (size_t)i * c->ldz + 2 * (size_t)b;
  float d = c->d[(size_t)i * c->ldd + (size_t)b], sum = c->s[(size_t)i * c->ldd + (size_t)b];
  int32_t dot[2][KERN_PANEL] = {{0}};
  for (int k = 0; k < KERN_BLOCK; k++)
    for (int r = 0; r < KERN_PANEL; r++) dot[k / 16][r] += u[k][r] * q[k];
  for (int r = 0; r < KERN_PANEL; r++) {
    int32_t lo = dot[0][r] - zero * z[0], hi = dot[1][r] - zero * z[1];
    int32_t v = gemm_halves(kind) ? lo * s->sc[0][r] + hi * s->sc[1][r] : lo + hi; /* |v| < 2^24: its conversion is exact */
    acc[r] = fmaf((float)v, s->d[r] * d, acc[r]);
    if (kind == SCALE_DM || kind == SCALE_K) acc[r] = fmaf(s->m[r], sum, acc[r]);
    if (kind == SCALE_2K) acc[r] = fmaf((float)(s->mn[0][r] * z[0] + s->mn[1][r] * z[1]), s->m[r] * d, acc[r]);
  }
}

INLINE void tile_q8(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int k, const gemm_cols *c, float *out) {
  memset(out, 0, (size_t)c->n * KERN_PANEL * sizeof *out);
  for (int b = 0; b < k / KERN_BLOCK; b++) {
    uint8_t u[KERN_BLOCK][KERN_PANEL];
    block_scales s;
    block_quants(code, panel + gemm_quants_at(code, kind, b), u);
    block_scale(kind, panel + gemm_scales_at(code, kind, b), b, &s);
    for (int i = 0; i < c->n; i++) block_column(zero, kind, u, &s, c, i, b, out + i * KERN_PANEL);
  }
}

/* ---- F32 activations: w[k] as dequant_row gives it, one accumulator per output, k ascending ---------------------------------------------- */

INLINE void piece_quants(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int b, float *w) {
  uint8_t u[KERN_BLOCK][KERN_PANEL];
  block_scales s;
  block_quants(code, panel + gemm_quants_at(code, kind, b), u);
  block_scale(kind, panel + gemm_scales_at(code, kind, b), b, &s);
  for (int k = 0; k < KERN_BLOCK; k++)
    for (int r = 0; r < KERN_PANEL; r++) {
      int h = k / 16;
      float v = (gemm_halves(kind) ? s.d[r] * (float)s.sc[h][r] : s.d[r]) * (float)(u[k][r] - zero);
      if (kind == SCALE_DM || kind == SCALE_K) v += s.m[r];
      if (kind == SCALE_2K) v += s.m[r] * (float)s.mn[h][r];
      w[k * KERN_PANEL + r] = v;
    }
}

INLINE void piece_halves(bool brain, const uint8_t *p, int n_k, float *w) {
  for (int i = 0; i < n_k * KERN_PANEL; i++) {
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    w[i] = brain ? f32_of_bf16(h) : f32_of_f16(h);
  }
}

INLINE void piece_fma(const float *w, size_t w_step, const float *x, size_t x_step, int n_k, int n, float *out) {
  for (int j = 0; j < n; j++, w += w_step, x += x_step, out += KERN_PANEL)
    for (int k = 0; k < n_k; k++)
      for (int r = 0; r < KERN_PANEL; r++) out[r] = fmaf(w[k * KERN_PANEL + r], x[k], out[r]);
}

#define GEMM_ISA ref
#define GEMM_CHAINS 4
#include "kern/gemm_body.inc"
