/* gemm_avx512.c - matrix products with AVX-512 VNNI: one 512-bit register is the 16 rows of a panel.
 *
 * A block of 32 along K is unpacked once into eight registers (4 k of 16 rows each) and then serves every column of the tile: eight vpdpbusd
 * with the activation broadcast from memory, one scaling, one or two FMAs. Few columns keep their sums in registers; many keep them in the
 * tile's own lines of L1, which costs nothing beside eight dot products and lets one unpacking serve 32 columns (measured equal to a 16-column
 * register tile, with a twelfth of the code). The arithmetic is gemm_ref.c's, bit for bit. */
#include "kern/kern_gemm.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- activations ------------------------------------------------------------------------------------------------------------------ */

INLINE void act_block(const float *x, int8_t *q, float *d, float *s, int32_t *z) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512 lo = _mm512_loadu_ps(x), hi = _mm512_loadu_ps(x + 16);
  __m512i top = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(lo), magnitude), _mm512_and_si512(_mm512_castps_si512(hi), magnitude));
  int bits = _mm512_reduce_max_epi32(top);
  float absmax;
  memcpy(&absmax, &bits, 4);
  if (!(absmax >= ACT_TINY && bits < 0x7f800000)) {
    memset(q, 0, KERN_BLOCK);
    z[0] = z[1] = 0;
    *d = *s = bits < 0x7f800000 ? 0.0f : NAN;
    return;
  }
  __m512 inverse = _mm512_set1_ps(127.0f / absmax);
  __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(lo, inverse)), b = _mm512_cvtps_epi32(_mm512_mul_ps(hi, inverse));
  _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(a));
  _mm_storeu_si128((__m128i *)(void *)(q + 16), _mm512_cvtepi32_epi8(b));
  z[0] = _mm512_reduce_add_epi32(a);
  z[1] = _mm512_reduce_add_epi32(b);
  *d = absmax / 127.0f;
  *s = *d * (float)(z[0] + z[1]);
}

/* ---- one packed block of 32 along K --------------------------------------------------------------------------------------------------- */

typedef struct block {
  __m512i w[8]; /* w[g]: k = 4g .. 4g+3 of each row, unsigned */
  __m512 d, m;
  __m512i sc[2]; /* gemm_halves: the scale of each half, */
  __m512i mn;    /* SCALE_2K: and their minima, 16 bits each */
} block;

INLINE __m512i load(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE __m512 load_half(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
INLINE __m128i load_bytes(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }

/* Shifts dwords left (s > 0) or right; only bits of the same byte are used afterwards. */
INLINE __m512i shift(__m512i v, int s) { return s > 0 ? _mm512_slli_epi32(v, s) : s < 0 ? _mm512_srli_epi32(v, -s) : v; }
/* low | (high & mask) in one instruction. */
INLINE __m512i join(__m512i low, __m512i high, __m512i mask) { return _mm512_ternarylogic_epi32(low, high, mask, 0xf8); }

/* Vectors of 2-bit fields: quad g's are in vector g mod 2, bits 2(g div 2). */
INLINE void join_pairs(const uint8_t *q, int at, block *o) {
  const __m512i mask = _mm512_set1_epi8((char)(3 << at));
  __m512i h[2] = {load(q), load(q + 64)};
#pragma GCC unroll 8
  for (int g = 0; g < 8; g++) o->w[g] = join(o->w[g], shift(h[g & 1], at - 2 * (g >> 1)), mask);
}
/* A vector of bits: quad g's is bit g. */
INLINE void join_bits(const uint8_t *q, int at, block *o) {
  const __m512i mask = _mm512_set1_epi8((char)(1 << at));
  __m512i h = load(q);
#pragma GCC unroll 8
  for (int g = 0; g < 8; g++) o->w[g] = join(o->w[g], shift(h, at - g), mask);
}
INLINE void look_up(const uint8_t table[16], block *o) {
  __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
  for (int g = 0; g < 8; g++) o->w[g] = _mm512_shuffle_epi8(t, o->w[g]);
}

INLINE void load_quants(gemm_code code, const uint8_t *q, block *o) {
  static const uint8_t iq4[16] = {GEMM_IQ4(128)}, e2m1[16] = {GEMM_E2M1(12)};
  const int bits = gemm_bits(code);
  const __m512i nibble = _mm512_set1_epi8(15);
  if (bits == 8)
    for (int g = 0; g < 8; g++) o->w[g] = load(q + 64 * g);
  else
    for (int g = 0; g < 4; g++) {
      __m512i v = bits & 4 ? load(q + 64 * g) : _mm512_setzero_si512();
      o->w[g] = _mm512_and_si512(v, nibble);
      o->w[g + 4] = _mm512_and_si512(_mm512_srli_epi32(v, 4), nibble);
    }
  q += 64 * (bits & 4);
  if (bits & 2) join_pairs(q, bits & 4, o);
  if (bits & 1) join_bits(q + 64 * (bits & 2), bits & 6, o);
  if (code == CODE_IQ4) look_up(iq4, o);
  if (code == CODE_E2M1) look_up(e2m1, o);
}

INLINE __m512i load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(load_bytes(p)); }
INLINE __m512i load_s8(const uint8_t *p) { return _mm512_cvtepi8_epi32(load_bytes(p)); }

/* 2^(e - 128), the two least of them subnormal. */
INLINE __m512 load_e8(const uint8_t *p) {
  __m512i e = load_u8(p), least = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
  __m512i v = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(v, _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)), least));
}

/* SCALE_3K: low nibbles of block b's two scales in one byte, their upper bits in a quarter of another. */
INLINE void load_3k(const uint8_t *p, int b, block *o) {
  const __m512i mask = _mm512_set1_epi32(0x30), zero = _mm512_set1_epi32(32);
  __m512i lo = load_u8(p + 16 * b), hi = _mm512_srl_epi32(load_u8(p + 128 + 16 * (b / 2)), _mm_cvtsi32_si128(4 * (b & 1)));
  o->sc[0] = _mm512_sub_epi32(join(_mm512_and_si512(lo, _mm512_set1_epi32(15)), _mm512_slli_epi32(hi, 4), mask), zero);
  o->sc[1] = _mm512_sub_epi32(join(_mm512_srli_epi32(lo, 4), _mm512_slli_epi32(hi, 2), mask), zero);
}

/* SCALE_2K: a scale and a minimum in each byte. */
INLINE void load_2k(const uint8_t *p, block *o) {
  const __m512i nibble = _mm512_set1_epi32(15);
  __m512i v0 = load_u8(p), v1 = load_u8(p + 16);
  o->sc[0] = _mm512_and_si512(v0, nibble);
  o->sc[1] = _mm512_and_si512(v1, nibble);
  o->mn = join(_mm512_srli_epi32(v0, 4), _mm512_slli_epi32(v1, 12), _mm512_set1_epi32(15 << 16));
}

/* p: the scales of block b's group. */
INLINE void load_scales(gemm_scale kind, const uint8_t *p, int b, block *o) {
  switch (kind) {
  case SCALE_D: o->d = load_half(p + b % 2 * 32); break;
  case SCALE_DM:
    o->d = load_half(p);
    o->m = load_half(p + 32);
    break;
  case SCALE_E8: o->d = load_e8(p + b % 4 * 16); break;
  case SCALE_XS: o->d = _mm512_mul_ps(load_half(p), _mm512_cvtepi32_ps(load_s8(p + 32 + b % 8 * 16))); break;
  case SCALE_K:
    o->d = _mm512_mul_ps(load_half(p), _mm512_cvtepi32_ps(load_u8(p + 64 + b % 8 * 32)));
    o->m = _mm512_mul_ps(load_half(p + 32), _mm512_cvtepi32_ps(load_u8(p + 80 + b % 8 * 32)));
    break;
  case SCALE_2K:
    o->d = load_half(p);
    o->m = load_half(p + 32);
    load_2k(p + 64 + b % 8 * 32, o);
    break;
  case SCALE_3K:
    o->d = load_half(p);
    load_3k(p + 32, b % 8, o);
    break;
  case SCALE_6K:
    o->d = load_half(p);
    o->sc[0] = load_s8(p + 32 + b % 8 * 32);
    o->sc[1] = load_s8(p + 48 + b % 8 * 32);
    break;
  case SCALE_NONE: break;
  }
}

/* SCALE_2K: quants times their scale are 0 .. 45 and stay bytes, so that a product needs one sum for both halves. A 16-bit product of two such
 * bytes with one scale does not carry from the lower into the upper. */
INLINE void scale_quants(block *o) {
  for (int g = 0; g < 8; g++) o->w[g] = _mm512_mullo_epi16(o->w[g], _mm512_or_si512(o->sc[g / 4], _mm512_slli_epi32(o->sc[g / 4], 16)));
}

INLINE void load_block(gemm_code code, gemm_scale kind, const uint8_t *panel, int b, block *o) {
  gemm_prefetch(code, kind, panel, b);
  load_quants(code, panel + gemm_quants_at(code, kind, b), o);
  load_scales(kind, panel + gemm_scales_at(code, kind, b), b, o);
  if (kind == SCALE_2K) scale_quants(o);
}

/* ---- int8 activations ------------------------------------------------------------------------------------------------------------------- */

INLINE __m512i quad(const int8_t *q) {
  int32_t v;
  memcpy(&v, q, 4);
  return _mm512_set1_epi32(v);
}

/* acc of one column after this block. q, d, s, z are the column's values of the block. */
INLINE __m512 block_column(int zero, gemm_scale kind, const block *o, const int8_t *q, float d, float s, const int32_t *z, __m512 acc) {
  __m512i v;
  if (kind == SCALE_6K || kind == SCALE_3K) {
    __m512i lo = _mm512_set1_epi32(-zero * z[0]), hi = _mm512_set1_epi32(-zero * z[1]);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) lo = _mm512_dpbusd_epi32(lo, o->w[g], quad(q + 4 * g));
#pragma GCC unroll 4
    for (int g = 4; g < 8; g++) hi = _mm512_dpbusd_epi32(hi, o->w[g], quad(q + 4 * g));
    v = _mm512_add_epi32(_mm512_mullo_epi32(lo, o->sc[0]), _mm512_mullo_epi32(hi, o->sc[1]));
  } else {
    v = zero ? _mm512_set1_epi32(-zero * (z[0] + z[1])) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) v = _mm512_dpbusd_epi32(v, o->w[g], quad(q + 4 * g));
  }
  acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_mul_ps(o->d, _mm512_set1_ps(d)), acc);
  if (kind == SCALE_DM) acc = _mm512_fmadd_ps(o->m, _mm512_set1_ps(s), acc);
  if (kind == SCALE_K) acc = _mm512_fnmadd_ps(o->m, _mm512_set1_ps(s), acc);
  if (kind == SCALE_2K) {
    __m512i sums = _mm512_set1_epi32((int32_t)(((uint32_t)z[0] & 0xffffu) | (uint32_t)z[1] << 16)); /* of 16 quants: 12 bits */
    acc = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(o->mn, sums)), _mm512_mul_ps(o->m, _mm512_set1_ps(d)), acc);
  }
  return acc;
}

/* n <= 4 columns, a constant at every call: sums in registers. */
INLINE void few_columns(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int k, const gemm_cols *c, const int n, float *out) {
  __m512 acc[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int b = 0; b < k / KERN_BLOCK; b++) {
    block o;
    load_block(code, kind, panel, b, &o);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
      size_t j = (size_t)i, at = j * c->ldd + (size_t)b;
      acc[i] = block_column(zero, kind, &o, c->q + j * c->ldq + 32 * (size_t)b, c->d[at], c->s[at], c->z + j * c->ldz + 2 * (size_t)b, acc[i]);
    }
  }
  for (int i = 0; i < n; i++) _mm512_store_ps(out + KERN_PANEL * i, acc[i]);
}

/* n columns from column i of the tile, n a constant at every call: sums in `out`. */
INLINE void block_columns(int zero, gemm_scale kind, const block *o, int b, const gemm_cols *c, int i, const int n, float *out) {
  size_t at = (size_t)i;
  const int8_t *q = c->q + at * c->ldq + 32 * (size_t)b;
  const float *d = c->d + at * c->ldd + b, *s = c->s + at * c->ldd + b;
  const int32_t *z = c->z + at * c->ldz + 2 * (size_t)b;
  out += KERN_PANEL * i;
#pragma GCC unroll 4
  for (int j = 0; j < n; j++) {
    size_t u = (size_t)j;
    __m512 acc = _mm512_load_ps(out + KERN_PANEL * j);
    _mm512_store_ps(out + KERN_PANEL * j, block_column(zero, kind, o, q + u * c->ldq, d[u * c->ldd], s[u * c->ldd], z + u * c->ldz, acc));
  }
}

INLINE void many_columns(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int k, const gemm_cols *c, float *out) {
  memset(out, 0, (size_t)c->n * KERN_PANEL * sizeof *out);
  for (int b = 0; b < k / KERN_BLOCK; b++) {
    block o;
    load_block(code, kind, panel, b, &o);
    int i = 0;
    for (; i + 4 <= c->n; i += 4) block_columns(zero, kind, &o, b, c, i, 4, out);
    for (; i < c->n; i++) block_columns(zero, kind, &o, b, c, i, 1, out);
  }
}

INLINE void tile_q8(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int k, const gemm_cols *c, float *out) {
  switch (c->n) {
  case 1: few_columns(code, zero, kind, panel, k, c, 1, out); break;
  case 2: few_columns(code, zero, kind, panel, k, c, 2, out); break;
  case 3: few_columns(code, zero, kind, panel, k, c, 3, out); break;
  case 4: few_columns(code, zero, kind, panel, k, c, 4, out); break;
  default: many_columns(code, zero, kind, panel, k, c, out); break;
  }
}

/* ---- F32 activations: a piece of 32 along K becomes F32 in L1, then one FMA per weight, column and k ---------------------------------------- */

/* w[k][row] exactly as dequant_row gives it: two roundings where a minimum is added. */
INLINE void piece_quants(gemm_code code, int zero, gemm_scale kind, const uint8_t *panel, int b, float *w) {
  block o;
  load_quants(code, panel + gemm_quants_at(code, kind, b), &o);
  load_scales(kind, panel + gemm_scales_at(code, kind, b), b, &o);
  for (int g = 0; g < 8; g++)
    for (int j = 0; j < 4; j++) {
      __m512i u = _mm512_and_si512(_mm512_srlv_epi32(o.w[g], _mm512_set1_epi32(8 * j)), _mm512_set1_epi32(255));
      __m512 v = _mm512_cvtepi32_ps(_mm512_sub_epi32(u, _mm512_set1_epi32(zero)));
      __m512 d = gemm_halves(kind) ? _mm512_mul_ps(o.d, _mm512_cvtepi32_ps(o.sc[g / 4])) : o.d;
      v = _mm512_mul_ps(d, v);
      if (kind == SCALE_DM) v = _mm512_add_ps(v, o.m);
      if (kind == SCALE_K) v = _mm512_sub_ps(v, o.m);
      if (kind == SCALE_2K) {
        __m512i mn = g < 4 ? _mm512_and_si512(o.mn, _mm512_set1_epi32(15)) : _mm512_srli_epi32(o.mn, 16);
        v = _mm512_sub_ps(v, _mm512_mul_ps(o.m, _mm512_cvtepi32_ps(mn)));
      }
      _mm512_store_ps(w + (4 * g + j) * KERN_PANEL, v);
    }
}

INLINE void piece_halves(bool brain, const uint8_t *p, int n_k, float *w) {
  for (int i = 0; i < n_k; i++) {
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * i));
    __m512 v = brain ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)) : _mm512_cvtph_ps(h);
    _mm512_store_ps(w + i * KERN_PANEL, v);
  }
}

/* out[j] += w[j] . x for n chains that run side by side: n columns of one panel (w_step 0) or one column of n panels (x_step 0). */
INLINE void piece_fma(const float *w, size_t w_step, const float *x, size_t x_step, int n_k, const int n, float *out) {
  __m512 acc[8];
  for (int j = 0; j < n; j++) acc[j] = _mm512_load_ps(out + KERN_PANEL * j);
  for (int i = 0; i < n_k; i++)
#pragma GCC unroll 8
    for (int j = 0; j < n; j++)
      acc[j] = _mm512_fmadd_ps(_mm512_loadu_ps(w + (size_t)j * w_step + KERN_PANEL * i), _mm512_set1_ps(x[(size_t)j * x_step + (size_t)i]), acc[j]);
  for (int j = 0; j < n; j++) _mm512_store_ps(out + KERN_PANEL * j, acc[j]);
}

#define GEMM_ISA avx512
#define GEMM_CHAINS 8
#include "kern/gemm_body.inc"
