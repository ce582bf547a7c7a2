/* vec_check.h - for the tests of kern/: bit comparison that counts every NaN as one value, and numbers that make arithmetic go wrong.
 * Not a test by itself.
 * Ownership: none. Threads: a test's own. Failure: returns the place of the first difference. */
#ifndef TEST_VEC_CHECK_H
#define TEST_VEC_CHECK_H
#include "base/half.h"
#include "base/rng.h"
#include <math.h>

static inline int same_bits(float a, float b) { return (a != a && b != b) || bits_of_f32(a) == bits_of_f32(b); }

/* Index of the first difference, or -1. */
static inline int first_difference(const float *a, const float *b, int n) {
  for (int i = 0; i < n; i++)
    if (!same_bits(a[i], b[i])) return i;
  return -1;
}

/* Uniform in (-r, r). */
static inline float random_float(rng *r, float range) { return (float)(2.0 * rng_f64(r) - 1.0) * range; }

static inline void fill_random(rng *r, float *x, int n, float range) {
  for (int i = 0; i < n; i++) x[i] = random_float(r, range);
}

/* One in three is hostile: zeros of both signs, subnormals, the largest numbers, infinities, NaN. */
static inline void fill_hostile(rng *r, float *x, int n) {
  static const float bad[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-140f, 0x1p-126f, 0x1.fffffep+127f, -0x1.fffffep+127f, 88.8f, -87.3f, -103.9f, 1e20f};
  for (int i = 0; i < n; i++) {
    uint64_t k = rng_below(r, 40);
    x[i] = k < 11 ? bad[k] : k == 11 ? INFINITY : k == 12 ? -INFINITY : k == 13 ? NAN : random_float(r, 10.0f);
  }
}
#endif
