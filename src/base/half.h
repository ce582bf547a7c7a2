/* half.h - IEEE binary16 and bfloat16 to and from binary32, in plain C, round to nearest even.
 * Not the fast path: kernels use the machine's own conversions, and these are what they are tested against.
 * Ownership: none. Threads: any. Failure: none; NaN stays NaN, overflow becomes infinity. */
#ifndef BASE_HALF_H
#define BASE_HALF_H
#include <stdint.h>
#include <string.h>

static inline float f32_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline uint32_t bits_of_f32(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

static inline float f32_of_f16(uint16_t h) {
  uint32_t s = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 0x3ffu;
  if (e == 31) return f32_of_bits(s | 0x7f800000u | m << 13);
  if (e) return f32_of_bits(s | (e + 112) << 23 | m << 13);
  if (!m) return f32_of_bits(s);
  int k = __builtin_clz(m) - 21; /* shift that brings the leading bit to position 10 */
  return f32_of_bits(s | (uint32_t)(113 - k) << 23 | (m << k & 0x3ffu) << 13);
}

static inline uint16_t f16_of_f32(float f) {
  uint32_t u = bits_of_f32(f), s = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint16_t)(s | 0x7e00u | (a >> 13 & 0x3ffu));
  if (a >= 0x477ff000u) return (uint16_t)(s | 0x7c00u);
  if (a < 0x38800000u) { /* subnormal or zero: let the adder round */
    uint32_t r = bits_of_f32(f32_of_bits(a) + 0.5f) - 0x3f000000u;
    return (uint16_t)(s | r);
  }
  uint32_t r = a + 0xfffu + (a >> 13 & 1u);
  return (uint16_t)(s | (r - 0x38000000u) >> 13);
}

static inline float f32_of_bf16(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }
static inline uint16_t bf16_of_f32(float f) {
  uint32_t u = bits_of_f32(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
#endif
