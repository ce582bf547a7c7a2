/* v16_avx512.h - the 16-lane virtual vector as one zmm register (AVX-512 F, DQ, BW, VL).
 * Not chosen by detection: only files compiled for this instruction set include it.
 * Ownership, threads, failure: as v16_ref.h, whose meaning of every operation this keeps bit for bit. */
#ifndef KERN_V16_AVX512_H
#define KERN_V16_AVX512_H
#include <immintrin.h>
#include <stdint.h>

enum { V16_ACC = 24, V16_ROWS = 6 };

typedef __m512 v16;
typedef __m512i v16i;
typedef __mmask16 v16m;

static inline v16m v16_from_to(int lo, int hi) {
  uint32_t below_hi = hi >= 16 ? 0xffffu : hi > 0 ? (1u << hi) - 1u : 0u, below_lo = lo >= 16 ? 0xffffu : lo > 0 ? (1u << lo) - 1u : 0u;
  return (v16m)(below_hi & ~below_lo);
}
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline v16 v16_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(v16_from_to(0, n), p); }
static inline void v16_store_n(float *p, v16 a, int n) { _mm512_mask_storeu_ps(p, v16_from_to(0, n), a); }
static inline v16 v16_set1(float x) { return _mm512_set1_ps(x); }
static inline v16 v16_zero(void) { return _mm512_setzero_ps(); }

static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v16_fnma(v16 a, v16 b, v16 c) { return _mm512_fnmadd_ps(a, b, c); }
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }

static inline v16m v16_lt(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline v16m v16_nan(v16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline v16 v16_select(v16m m, v16 yes, v16 no) { return _mm512_mask_blend_ps(m, no, yes); }

static inline v16i v16_bits(v16 a) { return _mm512_castps_si512(a); }
static inline v16 v16_of_bits(v16i a) { return _mm512_castsi512_ps(a); }
static inline v16i v16i_add(v16i a, v16i b) { return _mm512_add_epi32(a, b); }
static inline v16i v16i_shl23(v16i a) { return _mm512_slli_epi32(a, 23); }

static inline v16 v16_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void v16_store_f16(uint16_t *p, v16 a) {
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline void v16_load_pairs(const float *p, v16 *a, v16 *b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  v16 lo = v16_load(p), hi = v16_load(p + 16);
  *a = _mm512_permutex2var_ps(lo, even, hi);
  *b = _mm512_permutex2var_ps(lo, _mm512_add_epi32(even, _mm512_set1_epi32(1)), hi);
}
static inline void v16_store_pairs(float *p, v16 a, v16 b) {
  const __m512i lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  v16_store(p, _mm512_permutex2var_ps(a, lo, b));
  v16_store(p + 16, _mm512_permutex2var_ps(a, _mm512_add_epi32(lo, _mm512_set1_epi32(8)), b));
}

static inline float v16_sum(v16 a) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline float v16_hmax(v16 a) {
  __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
#endif
