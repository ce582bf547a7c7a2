/* rng.h - counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11).
 * Not a stream with state: the output is a pure function of (key, counter), which is what law 1 needs.
 * Ownership: none. Threads: any. Failure: none (rng_seed falls back to the clock when the kernel gives no entropy). */
#ifndef BASE_RNG_H
#define BASE_RNG_H
#include <stdint.h>

void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);
/* Uniform in (0, 1): (x + 0.5) / 2^32 as a double, never 0 or 1. */
static inline double rng_unit(uint32_t x) { return ((double)x + 0.5) * 0x1p-32; }
uint64_t rng_seed(void); /* from the kernel */
/* A small stateful generator over the same function, for load generation and tests. */
typedef struct rng {
  uint64_t seed, n;
} rng;
static inline rng rng_new(uint64_t seed) { return (rng){seed, 0}; }
uint64_t rng_u64(rng *r);
double rng_f64(rng *r);                 /* (0, 1) */
uint64_t rng_below(rng *r, uint64_t n); /* [0, n), n > 0, without bias */
#endif
