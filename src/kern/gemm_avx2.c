/* gemm_avx2.c - matrix products with AVX2 and FMA, for machines without VNNI: the 16 rows of a panel are two registers of 8.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds pairs into 16 bits with saturation, so the sums must be kept small enough:
 *   up to 4 bits: 2 * 15 * 127 = 3,810 a pair, 8 pairs fit; E2M1 (0 .. 24): 6,096, 4 fit; 5 bits: 7,874, 4 fit; 6 bits: 16,002, 2 fit; 2-bit
 *   quants times their scales (0 .. 45): 11,430, 2 fit;
 *   8 bits and IQ4: 2 * 255 * 127 would not fit. The weight is taken as signed (u - 128), its magnitude (<= 128) goes in as the unsigned operand
 *   and its sign onto the activation: 2 * 128 * 127 = 32,512 fits. Activations are -127 .. 127, so changing their sign is safe.
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
  __m256i w[8];    /* w[g]: k = 4g .. 4g+3 of each row; unsigned, or signed where is_signed() */
  __m256i size[8]; /* is_signed: magnitudes of w */
  __m256 d, m;
  __m256i sc[2]; /* gemm_halves: the scale of each half, */
  __m256i mn;    /* SCALE_2K: and their minima, 16 bits each */
} block;

INLINE bool is_signed(gemm_code code) { return code == CODE_8 || code == CODE_IQ4; }

INLINE __m256i load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
INLINE __m256 load_half(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
INLINE __m128i load_bytes(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)(const void *)p); }

/* Shifts dwords left (s > 0) or right; only bits of the same byte are used afterwards. */
INLINE __m256i shift(__m256i v, int s) { return s > 0 ? _mm256_slli_epi32(v, s) : s < 0 ? _mm256_srli_epi32(v, -s) : v; }
INLINE __m256i join(__m256i low, __m256i high, __m256i mask) { return _mm256_or_si256(low, _mm256_and_si256(high, mask)); }

/* Vectors of 2-bit fields: quad g's are in vector g mod 2, bits 2(g div 2). */
INLINE void join_pairs(const uint8_t *q, int at, block *o) {
  const __m256i mask = _mm256_set1_epi8((char)(3 << at));
  __m256i h[2] = {load(q), load(q + 64)};
#pragma GCC unroll 8
  for (int g = 0; g < 8; g++) o->w[g] = join(o->w[g], shift(h[g & 1], at - 2 * (g >> 1)), mask);
}
/* A vector of bits: quad g's is bit g. */
INLINE void join_bits(const uint8_t *q, int at, block *o) {
  const __m256i mask = _mm256_set1_epi8((char)(1 << at));
  __m256i h = load(q);
#pragma GCC unroll 8
  for (int g = 0; g < 8; g++) o->w[g] = join(o->w[g], shift(h, at - g), mask);
}
INLINE void look_up(const int8_t table[16], block *o) {
  __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
  for (int g = 0; g < 8; g++) o->w[g] = _mm256_shuffle_epi8(t, o->w[g]);
}

/* q points at the half's 32 bytes of the first vector. */
INLINE void load_quants(gemm_code code, const uint8_t *q, block *o) {
  static const int8_t iq4[16] = {GEMM_IQ4(0)}, e2m1[16] = {GEMM_E2M1(12)};
  const int bits = gemm_bits(code);
  const __m256i nibble = _mm256_set1_epi8(15);
  if (bits == 8)
    for (int g = 0; g < 8; g++) o->w[g] = _mm256_xor_si256(load(q + 64 * g), _mm256_set1_epi8(-128));
  else
    for (int g = 0; g < 4; g++) {
      __m256i v = bits & 4 ? load(q + 64 * g) : _mm256_setzero_si256();
      o->w[g] = _mm256_and_si256(v, nibble);
      o->w[g + 4] = _mm256_and_si256(_mm256_srli_epi32(v, 4), nibble);
    }
  q += 64 * (bits & 4);
  if (bits & 2) join_pairs(q, bits & 4, o);
  if (bits & 1) join_bits(q + 64 * (bits & 2), bits & 6, o);
  if (code == CODE_IQ4) look_up(iq4, o);
  if (code == CODE_E2M1) look_up(e2m1, o);
  if (is_signed(code))
    for (int g = 0; g < 8; g++) o->size[g] = _mm256_abs_epi8(o->w[g]);
}

INLINE __m256i load_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(load_bytes(p)); }
INLINE __m256i load_s8(const uint8_t *p) { return _mm256_cvtepi8_epi32(load_bytes(p)); }

/* 2^(e - 128), the two least of them subnormal. */
INLINE __m256 load_e8(const uint8_t *p) {
  __m256i e = load_u8(p), least = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  __m256i v = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(v, least, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

/* SCALE_3K: low nibbles of block b's two scales in one byte, their upper bits in a quarter of another. */
INLINE void load_3k(const uint8_t *p, int b, block *o) {
  const __m256i mask = _mm256_set1_epi32(0x30), zero = _mm256_set1_epi32(32);
  __m256i lo = load_u8(p + 16 * b), hi = _mm256_srl_epi32(load_u8(p + 128 + 16 * (b / 2)), _mm_cvtsi32_si128(4 * (b & 1)));
  o->sc[0] = _mm256_sub_epi32(join(_mm256_and_si256(lo, _mm256_set1_epi32(15)), _mm256_slli_epi32(hi, 4), mask), zero);
  o->sc[1] = _mm256_sub_epi32(join(_mm256_srli_epi32(lo, 4), _mm256_slli_epi32(hi, 2), mask), zero);
}

/* SCALE_2K: a scale and a minimum in each byte. */
INLINE void load_2k(const uint8_t *p, block *o) {
  const __m256i nibble = _mm256_set1_epi32(15);
  __m256i v0 = load_u8(p), v1 = load_u8(p + 16);
  o->sc[0] = _mm256_and_si256(v0, nibble);
  o->sc[1] = _mm256_and_si256(v1, nibble);
  o->mn = join(_mm256_srli_epi32(v0, 4), _mm256_slli_epi32(v1, 12), _mm256_set1_epi32(15 << 16));
}

/* p: the scales of block b's group. half: 0 for rows 0 .. 7, 1 for rows 8 .. 15. */
INLINE void load_scales(gemm_scale kind, const uint8_t *p, int b, int half, block *o) {
  const uint8_t *f16 = p + 16 * half, *bytes = p + 8 * half; /* of these rows */
  switch (kind) {
  case SCALE_D: o->d = load_half(f16 + b % 2 * 32); break;
  case SCALE_DM:
    o->d = load_half(f16);
    o->m = load_half(f16 + 32);
    break;
  case SCALE_E8: o->d = load_e8(bytes + b % 4 * 16); break;
  case SCALE_XS: o->d = _mm256_mul_ps(load_half(f16), _mm256_cvtepi32_ps(load_s8(bytes + 32 + b % 8 * 16))); break;
  case SCALE_K:
    o->d = _mm256_mul_ps(load_half(f16), _mm256_cvtepi32_ps(load_u8(bytes + 64 + b % 8 * 32)));
    o->m = _mm256_mul_ps(load_half(f16 + 32), _mm256_cvtepi32_ps(load_u8(bytes + 80 + b % 8 * 32)));
    break;
  case SCALE_2K:
    o->d = load_half(f16);
    o->m = load_half(f16 + 32);
    load_2k(bytes + 64 + b % 8 * 32, o);
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

/* SCALE_2K: quants times their scale are 0 .. 45 and stay bytes, so that a product needs one sum for both halves. A 16-bit product of two such
 * bytes with one scale does not carry from the lower into the upper. */
INLINE void scale_quants(block *o) {
  for (int g = 0; g < 8; g++) o->w[g] = _mm256_mullo_epi16(o->w[g], _mm256_or_si256(o->sc[g / 4], _mm256_slli_epi32(o->sc[g / 4], 16)));
}

/* ---- int8 activations ------------------------------------------------------------------------------------------------------------------- */

/* Pair sums of quad g, 16 bits. */
INLINE __m256i pairs(gemm_code code, const block *o, int g, const int8_t *q) {
  int32_t v;
  memcpy(&v, q + 4 * g, 4);
  __m256i a = _mm256_set1_epi32(v);
  return is_signed(code) ? _mm256_maddubs_epi16(o->size[g], _mm256_sign_epi8(a, o->w[g])) : _mm256_maddubs_epi16(o->w[g], a);
}

/* How many pair sums may be added before they are widened: the saturation bounds above. */
INLINE int run_of(gemm_code code) {
  if (is_signed(code)) return 1;
  return code == CODE_6 || code == CODE_2 ? 2 : code == CODE_5 || code == CODE_E2M1 || code == CODE_3 ? 4 : 8;
}

/* Sum over quads [g0, g0 + n), 32 bits. */
INLINE __m256i dot(gemm_code code, const block *o, int g0, int n, const int8_t *q) {
  const __m256i ones = _mm256_set1_epi16(1);
  const int run = run_of(code);
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = g0; g < g0 + n; g += run) {
    __m256i v = pairs(code, o, g, q);
#pragma GCC unroll 8
    for (int i = 1; i < run; i++) v = _mm256_add_epi16(v, pairs(code, o, g + i, q));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(v, ones));
  }
  return sum;
}

/* acc of one column after this block. q, d, s, z are the column's values of the block. */
INLINE __m256 block_column(
    gemm_code code, int zero, gemm_scale kind, const block *o, const int8_t *q, float d, float s, const int32_t *z, __m256 acc) {
  __m256i v;
  if (kind == SCALE_6K || kind == SCALE_3K) {
    __m256i lo = _mm256_sub_epi32(dot(code, o, 0, 4, q), _mm256_set1_epi32(zero * z[0]));
    __m256i hi = _mm256_sub_epi32(dot(code, o, 4, 4, q), _mm256_set1_epi32(zero * z[1]));
    v = _mm256_add_epi32(_mm256_mullo_epi32(lo, o->sc[0]), _mm256_mullo_epi32(hi, o->sc[1]));
  } else {
    v = dot(code, o, 0, 8, q);
    if (zero && !is_signed(code)) v = _mm256_sub_epi32(v, _mm256_set1_epi32(zero * (z[0] + z[1])));
  }
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(v), _mm256_mul_ps(o->d, _mm256_set1_ps(d)), acc);
  if (kind == SCALE_DM) acc = _mm256_fmadd_ps(o->m, _mm256_set1_ps(s), acc);
  if (kind == SCALE_K) acc = _mm256_fnmadd_ps(o->m, _mm256_set1_ps(s), acc);
  if (kind == SCALE_2K) {
    __m256i sums = _mm256_set1_epi32((int32_t)(((uint32_t)z[0] & 0xffffu) | (uint32_t)z[1] << 16)); /* of 16 quants: 12 bits */
    acc = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(o->mn, sums)), _mm256_mul_ps(o->m, _mm256_set1_ps(d)), acc);
  }
  return acc;
}

INLINE void tile_q8(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int k, const gemm_cols *c, float *out) {
  memset(out, 0, (size_t)c->n * KERN_PANEL * sizeof *out);
  for (int b = 0; b < k / KERN_BLOCK; b++) {
    const uint8_t *quants = panel + gemm_quants_at(code, kind, b);
    gemm_prefetch(code, kind, panel, b);
    for (int half = 0; half < 2; half++) {
      block o;
      load_quants(code, quants + 32 * half, &o);
      load_scales(kind, panel + gemm_scales_at(code, kind, b), b, half, &o);
      if (kind == SCALE_2K) scale_quants(&o);
      const int8_t *q = c->q + 32 * (size_t)b;
      const float *d = c->d + b, *s = c->s + b;
      const int32_t *z = c->z + 2 * (size_t)b;
      float *to = out + HALF * half;
      for (int i = 0; i < c->n; i++, to += KERN_PANEL, q += c->ldq, d += c->ldd, s += c->ldd, z += c->ldz)
        _mm256_store_ps(to, block_column(code, zero, kind, &o, q, *d, *s, z, _mm256_load_ps(to)));
    }
  }
}

/* ---- F32 activations: a piece of 32 along K becomes F32 in L1, then one FMA per weight, column and k ---------------------------------------- */

/* w[k][row] exactly as dequant_row gives it: two roundings where a minimum is added. */
INLINE void piece_quants(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int b, float *w) {
  for (int half = 0; half < 2; half++) {
    block o;
    load_quants(code, panel + gemm_quants_at(code, kind, b) + 32 * half, &o);
    load_scales(kind, panel + gemm_scales_at(code, kind, b), b, half, &o);
    for (int i = 0; i < KERN_BLOCK; i++) {
      __m256i u = _mm256_srlv_epi32(o.w[i / 4], _mm256_set1_epi32(8 * (i % 4)));
      if (is_signed(code)) u = _mm256_srai_epi32(_mm256_slli_epi32(u, 24), 24);
      else u = _mm256_sub_epi32(_mm256_and_si256(u, _mm256_set1_epi32(255)), _mm256_set1_epi32(zero));
      __m256 d = gemm_halves(kind) ? _mm256_mul_ps(o.d, _mm256_cvtepi32_ps(o.sc[i / 16])) : o.d;
      __m256 v = _mm256_mul_ps(d, _mm256_cvtepi32_ps(u));
      if (kind == SCALE_DM) v = _mm256_add_ps(v, o.m);
      if (kind == SCALE_K) v = _mm256_sub_ps(v, o.m);
      if (kind == SCALE_2K) {
        __m256i mn = i < 16 ? _mm256_and_si256(o.mn, _mm256_set1_epi32(15)) : _mm256_srli_epi32(o.mn, 16);
        v = _mm256_sub_ps(v, _mm256_mul_ps(o.m, _mm256_cvtepi32_ps(mn)));
      }
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
