/* gemm_avx2.c - matrix products with AVX2 and FMA, for machines without VNNI: the 16 rows of a panel are two registers of 8.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds pairs into 16 bits with saturation, so the sums must be kept small enough:
 *   4 bits: 2 * 15 * 127 = 3,810 a pair, 8 pairs fit; 5 bits: 7,874, 4 fit; 6 bits: 16,002, 2 fit;
 *   8 bits: 2 * 255 * 127 would not fit. The weight is taken as signed (u - 128), its magnitude (<= 128) goes in as the unsigned operand and its
 *   sign onto the activation: 2 * 128 * 127 = 32,512 fits. Activations are -127 .. 127, so changing their sign is safe.
 * The integers are therefore exact, and the F32 sequence is gemm_ref.c's, bit for bit. */
#include "kern/kern_gemm.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { HALF = 8 }; /* rows in a register */

/* ---- activations ------------------------------------------------------------------------------------------------------------------ */

INLINE int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
INLINE int32_t max_lanes(__m256i v) {
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

INLINE void act_block(const float *x, int8_t *q, float *d, float *s, int32_t *z) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256(), v[4];
  for (int i = 0; i < 4; i++) top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), magnitude));
  int bits = max_lanes(top);
  float absmax;
  memcpy(&absmax, &bits, 4);
  if (!(absmax >= ACT_TINY && bits < 0x7f800000)) {
    memset(q, 0, KERN_BLOCK);
    z[0] = z[1] = 0;
    *d = *s = bits < 0x7f800000 ? 0.0f : NAN;
    return;
  }
  __m256 inverse = _mm256_set1_ps(127.0f / absmax);
  for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
  z[0] = sum_lanes(_mm256_add_epi32(v[0], v[1]));
  z[1] = sum_lanes(_mm256_add_epi32(v[2], v[3]));
  __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3])); /* lanes mixed in fours */
  bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256((__m256i *)(void *)q, bytes);
  *d = absmax / 127.0f;
  *s = *d * (float)(z[0] + z[1]);
}

/* ---- one packed block of 32 along K, eight of its rows -------------------------------------------------------------------------------- */

typedef struct block {
  __m256i w[8];    /* w[g]: k = 4g .. 4g+3 of each row; unsigned, for 8 bits signed */
  __m256i size[8]; /* 8 bits: magnitudes of w */
  __m256 d, m;
  __m256i sc[2]; /* SCALE_6K */
} block;

INLINE __m256i load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
INLINE __m256 load_half(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
INLINE __m128i load_bytes(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)(const void *)p); }

/* Shifts dwords left (s > 0) or right; only bits of the same byte are used afterwards. */
INLINE __m256i shift(__m256i v, int s) { return s > 0 ? _mm256_slli_epi32(v, s) : s < 0 ? _mm256_srli_epi32(v, -s) : v; }
INLINE __m256i join(__m256i low, __m256i high, __m256i mask) { return _mm256_or_si256(low, _mm256_and_si256(high, mask)); }

/* q points at the half's 32 bytes of the first vector. */
INLINE void load_quants(int bits, const uint8_t *q, block *o) {
  if (bits == 8) {
    for (int g = 0; g < 8; g++) {
      o->w[g] = _mm256_xor_si256(load(q + 64 * g), _mm256_set1_epi8(-128));
      o->size[g] = _mm256_abs_epi8(o->w[g]);
    }
    return;
  }
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int g = 0; g < 4; g++) {
    __m256i v = load(q + 64 * g);
    o->w[g] = _mm256_and_si256(v, nibble);
    o->w[g + 4] = _mm256_and_si256(_mm256_srli_epi32(v, 4), nibble);
  }
  if (bits == 5) {
    const __m256i mask = _mm256_set1_epi8(0x10);
    __m256i h = load(q + 256);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) o->w[g] = join(o->w[g], shift(h, 4 - g), mask);
  }
  if (bits == 6) {
    const __m256i mask = _mm256_set1_epi8(0x30);
    __m256i h[2] = {load(q + 256), load(q + 320)};
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) o->w[g] = join(o->w[g], shift(h[g & 1], 4 - 2 * (g >> 1)), mask);
  }
}

INLINE __m256 load_u8(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_bytes(p))); }

/* half: 0 for rows 0 .. 7, 1 for rows 8 .. 15. */
INLINE void load_scales(gemm_scale kind, const uint8_t *scales, int b, int half, block *o) {
  const uint8_t *p;
  switch (kind) {
  case SCALE_D: o->d = load_half(scales + b % 2 * 32 + 16 * half); break;
  case SCALE_DM:
    p = scales + 16 * half;
    o->d = load_half(p);
    o->m = load_half(p + 32);
    break;
  case SCALE_K:
    p = scales;
    o->d = _mm256_mul_ps(load_half(p + 16 * half), load_u8(p + 64 + b % 8 * 32 + 8 * half));
    o->m = _mm256_mul_ps(load_half(p + 32 + 16 * half), load_u8(p + 80 + b % 8 * 32 + 8 * half));
    break;
  case SCALE_6K:
    p = scales;
    o->d = load_half(p + 16 * half);
    o->sc[0] = _mm256_cvtepi8_epi32(load_bytes(p + 32 + b % 8 * 32 + 8 * half));
    o->sc[1] = _mm256_cvtepi8_epi32(load_bytes(p + 48 + b % 8 * 32 + 8 * half));
    break;
  case SCALE_NONE: break;
  }
}

/* ---- int8 activations ------------------------------------------------------------------------------------------------------------------- */

/* Pair sums of quad g, 16 bits. */
INLINE __m256i pairs(int bits, const block *o, int g, const int8_t *q) {
  int32_t v;
  memcpy(&v, q + 4 * g, 4);
  __m256i a = _mm256_set1_epi32(v);
  return bits == 8 ? _mm256_maddubs_epi16(o->size[g], _mm256_sign_epi8(a, o->w[g])) : _mm256_maddubs_epi16(o->w[g], a);
}

/* Sum over quads [g0, g0 + 4 or 8), 32 bits, widened as often as the saturation bounds above ask for. */
INLINE __m256i dot(int bits, const block *o, int g0, int n, const int8_t *q) {
  const __m256i ones = _mm256_set1_epi16(1);
  int run = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = g0; g < g0 + n; g += run) {
    __m256i v = pairs(bits, o, g, q);
#pragma GCC unroll 8
    for (int i = 1; i < run; i++) v = _mm256_add_epi16(v, pairs(bits, o, g + i, q));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(v, ones));
  }
  return sum;
}

/* acc of one column after this block. q, d, s, z are the column's values of the block. */
INLINE __m256 block_column(int bits, int zero, gemm_scale kind, const block *o, const int8_t *q, float d, float s, const int32_t *z, __m256 acc) {
  __m256i v;
  if (kind == SCALE_6K) {
    __m256i lo = _mm256_sub_epi32(dot(bits, o, 0, 4, q), _mm256_set1_epi32(zero * z[0]));
    __m256i hi = _mm256_sub_epi32(dot(bits, o, 4, 4, q), _mm256_set1_epi32(zero * z[1]));
    v = _mm256_add_epi32(_mm256_mullo_epi32(lo, o->sc[0]), _mm256_mullo_epi32(hi, o->sc[1]));
  } else {
    v = dot(bits, o, 0, 8, q);
    if (zero && bits != 8) v = _mm256_sub_epi32(v, _mm256_set1_epi32(zero * (z[0] + z[1])));
  }
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(v), _mm256_mul_ps(o->d, _mm256_set1_ps(d)), acc);
  if (kind == SCALE_DM) acc = _mm256_fmadd_ps(o->m, _mm256_set1_ps(s), acc);
  if (kind == SCALE_K) acc = _mm256_fnmadd_ps(o->m, _mm256_set1_ps(s), acc);
  return acc;
}

INLINE void tile_q8(int bits, int zero, gemm_scale kind, const uint8_t *panel, int k, const gemm_cols *c, float *out) {
  memset(out, 0, (size_t)c->n * KERN_PANEL * sizeof *out);
  for (int b = 0; b < k / KERN_BLOCK; b++) {
    const uint8_t *quants = panel + gemm_quants_at(bits, kind, b);
    gemm_prefetch(bits, kind, panel, b);
    for (int half = 0; half < 2; half++) {
      block o;
      load_quants(bits, quants + 32 * half, &o);
      load_scales(kind, panel + gemm_scales_at(bits, kind, b), b, half, &o);
      const int8_t *q = c->q + 32 * (size_t)b;
      const float *d = c->d + b, *s = c->s + b;
      const int32_t *z = c->z + 2 * (size_t)b;
      float *to = out + HALF * half;
      for (int i = 0; i < c->n; i++, to += KERN_PANEL, q += c->ldq, d += c->ldd, s += c->ldd, z += c->ldz)
        _mm256_store_ps(to, block_column(bits, zero, kind, &o, q, *d, *s, z, _mm256_load_ps(to)));
    }
  }
}

/* ---- F32 activations: a piece of 32 along K becomes F32 in L1, then one FMA per weight, column and k ---------------------------------------- */

/* w[k][row] exactly as dequant_row gives it: two roundings where a minimum is added. */
INLINE void piece_quants(int bits, int zero, gemm_scale kind, const uint8_t *panel, int b, float *w) {
  for (int half = 0; half < 2; half++) {
    block o;
    load_quants(bits, panel + gemm_quants_at(bits, kind, b) + 32 * half, &o);
    load_scales(kind, panel + gemm_scales_at(bits, kind, b), b, half, &o);
    for (int i = 0; i < KERN_BLOCK; i++) {
      __m256i u = _mm256_srlv_epi32(o.w[i / 4], _mm256_set1_epi32(8 * (i % 4)));
      if (bits == 8) u = _mm256_srai_epi32(_mm256_slli_epi32(u, 24), 24);
      else u = _mm256_sub_epi32(_mm256_and_si256(u, _mm256_set1_epi32(255)), _mm256_set1_epi32(zero));
      __m256 d = kind == SCALE_6K ? _mm256_mul_ps(o.d, _mm256_cvtepi32_ps(o.sc[i / 16])) : o.d;
      __m256 v = _mm256_mul_ps(d, _mm256_cvtepi32_ps(u));
      if (kind == SCALE_DM) v = _mm256_add_ps(v, o.m);
      if (kind == SCALE_K) v = _mm256_sub_ps(v, o.m);
      _mm256_store_ps(w + i * KERN_PANEL + HALF * half, v);
    }
  }
}

INLINE void piece_halves(bool brain, const uint8_t *p, int n_k, float *w) {
  for (int i = 0; i < 2 * n_k; i++) {
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
    __m256 v = brain ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)) : _mm256_cvtph_ps(h);
    _mm256_store_ps(w + i * HALF, v);
  }
}

/* out[j] += w[j] . x for n <= 4 chains of 16 rows that run side by side: n columns of one panel (w_step 0) or one column of n panels (x_step 0). */
INLINE void piece_fma(const float *w, size_t w_step, const float *x, size_t x_step, int n_k, const int n, float *out) {
  __m256 acc[4][2];
  for (int j = 0; j < n; j++)
    for (int h = 0; h < 2; h++) acc[j][h] = _mm256_load_ps(out + KERN_PANEL * j + HALF * h);
  for (int i = 0; i < n_k; i++)
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
      __m256 v = _mm256_set1_ps(x[(size_t)j * x_step + (size_t)i]);
      const float *row = w + (size_t)j * w_step + KERN_PANEL * i;
      acc[j][0] = _mm256_fmadd_ps(_mm256_loadu_ps(row), v, acc[j][0]);
      acc[j][1] = _mm256_fmadd_ps(_mm256_loadu_ps(row + HALF), v, acc[j][1]);
    }
  for (int j = 0; j < n; j++)
    for (int h = 0; h < 2; h++) _mm256_store_ps(out + KERN_PANEL * j + HALF * h, acc[j][h]);
}

#define GEMM_ISA avx2
#define GEMM_CHAINS 4
#include "kern/gemm_body.inc"
