/* v16_avx2.h - the 16-lane virtual vector as two ymm registers (AVX2, FMA, F16C).
 * Not chosen by detection: only files compiled for this instruction set include it.
 * Ownership, threads, failure: as v16_ref.h, whose meaning of every operation this keeps bit for bit. */
#ifndef KERN_V16_AVX2_H
#define KERN_V16_AVX2_H
#include <immintrin.h>
#include <stdint.h>

enum { V16_ACC = 6, V16_ROWS = 6 }; /* 6 x 2 ymm of accumulators, 2 of B, 1 broadcast: 15 of 16 */

typedef struct v16 {
  __m256 a, b;
} v16;
typedef struct v16i {
  __m256i a, b;
} v16i;
typedef struct v16m {
  __m256 a, b; /* all ones or zeros a lane */
} v16m;

static inline v16m v16_from_to(int lo, int hi) {
  const __m256i ia = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), ib = _mm256_add_epi32(ia, _mm256_set1_epi32(8));
  const __m256i l = _mm256_set1_epi32(lo), h = _mm256_set1_epi32(hi);
  return (v16m){_mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(l, ia), _mm256_cmpgt_epi32(h, ia))),
      _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(l, ib), _mm256_cmpgt_epi32(h, ib)))};
}
static inline v16 v16_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void v16_store(float *p, v16 x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
static inline v16 v16_load_n(const float *p, int n) {
  v16m m = v16_from_to(0, n);
  return (v16){_mm256_maskload_ps(p, _mm256_castps_si256(m.a)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
static inline void v16_store_n(float *p, v16 x, int n) {
  v16m m = v16_from_to(0, n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}
static inline v16 v16_set1(float x) {
  __m256 r = _mm256_set1_ps(x);
  return (v16){r, r};
}
static inline v16 v16_zero(void) { return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()}; }

static inline v16 v16_add(v16 x, v16 y) { return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline v16 v16_sub(v16 x, v16 y) { return (v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline v16 v16_mul(v16 x, v16 y) { return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline v16 v16_div(v16 x, v16 y) { return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline v16 v16_fma(v16 x, v16 y, v16 z) { return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
static inline v16 v16_fnma(v16 x, v16 y, v16 z) { return (v16){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
static inline v16 v16_max(v16 x, v16 y) { return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline v16 v16_min(v16 x, v16 y) { return (v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }

static inline v16m v16_lt(v16 x, v16 y) { return (v16m){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)}; }
static inline v16m v16_nan(v16 x) { return (v16m){_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)}; }
static inline v16 v16_select(v16m m, v16 yes, v16 no) { return (v16){_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)}; }

static inline v16i v16_bits(v16 x) { return (v16i){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
static inline v16 v16_of_bits(v16i x) { return (v16){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
static inline v16i v16i_add(v16i x, v16i y) { return (v16i){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
static inline v16i v16i_shl23(v16i x) { return (v16i){_mm256_slli_epi32(x.a, 23), _mm256_slli_epi32(x.b, 23)}; }

static inline v16 v16_load_f16(const uint16_t *p) {
  return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline void v16_store_f16(uint16_t *p, v16 x) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* In-lane shuffles give 0 2 8 10 | 4 6 12 14 of 16 floats; a permute of 64-bit quarters puts them in order. */
static inline __m256 v16_quarters_0213(__m256 x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8)); }
static inline void v16_load_pairs(const float *p, v16 *a, v16 *b) {
  v16 lo = v16_load(p), hi = v16_load(p + 16);
  a->a = v16_quarters_0213(_mm256_shuffle_ps(lo.a, lo.b, 0x88)), a->b = v16_quarters_0213(_mm256_shuffle_ps(hi.a, hi.b, 0x88));
  b->a = v16_quarters_0213(_mm256_shuffle_ps(lo.a, lo.b, 0xdd)), b->b = v16_quarters_0213(_mm256_shuffle_ps(hi.a, hi.b, 0xdd));
}
static inline void v16_store_pairs(float *p, v16 x, v16 y) {
  __m256 l0 = _mm256_unpacklo_ps(x.a, y.a), h0 = _mm256_unpackhi_ps(x.a, y.a), l1 = _mm256_unpacklo_ps(x.b, y.b), h1 = _mm256_unpackhi_ps(x.b, y.b);
  _mm256_storeu_ps(p, _mm256_permute2f128_ps(l0, h0, 0x20)), _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(l0, h0, 0x31));
  _mm256_storeu_ps(p + 16, _mm256_permute2f128_ps(l1, h1, 0x20)), _mm256_storeu_ps(p + 24, _mm256_permute2f128_ps(l1, h1, 0x31));
}

static inline float v16_sum(v16 x) {
  __m256 h = _mm256_add_ps(x.a, x.b);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
static inline float v16_hmax(v16 x) {
  __m256 h = _mm256_max_ps(x.a, x.b);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
#endif
