#include "base/rng.h"
#include "base/clock.h"
#include <sys/random.h>

void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
  for (int r = 0; r < 10; r++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

uint64_t rng_seed(void) {
  uint64_t s;
  if (getrandom(&s, sizeof s, 0) != (ssize_t)sizeof s) s = (uint64_t)clock_now() * 0x9E3779B97F4A7C15u;
  return s;
}

uint64_t rng_u64(rng *r) {
  uint32_t c[4] = {(uint32_t)r->n, (uint32_t)(r->n >> 32), 0, 0}, k[2] = {(uint32_t)r->seed, (uint32_t)(r->seed >> 32)}, o[4];
  r->n++;
  philox4x32(c, k, o);
  return (uint64_t)o[0] << 32 | o[1];
}

double rng_f64(rng *r) { return ((double)(rng_u64(r) >> 11) + 0.5) * 0x1p-53; }

uint64_t rng_below(rng *r, uint64_t n) {
  uint64_t lim = UINT64_MAX - UINT64_MAX % n, v;
  do v = rng_u64(r);
  while (v >= lim);
  return v % n;
}
