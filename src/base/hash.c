#include "base/hash.h"
/* The low-level functions, which OpenSSL 3 calls deprecated: its EVP takes memory for every digest, and one is made within a step of the engine. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct sha256 {
  SHA256_CTX c;
};

sha256 *sha256_new(void) {
  sha256 *h = malloc(sizeof *h);
  if (h) SHA256_Init(&h->c);
  return h;
}

void sha256_add(sha256 *h, const void *p, size_t n) { SHA256_Update(&h->c, p, n); }

void sha256_next(sha256 *h, uint8_t out[32]) {
  SHA256_Final(out, &h->c);
  SHA256_Init(&h->c);
}

void sha256_done(sha256 *h, uint8_t out[32]) {
  SHA256_Final(out, &h->c);
  free(h);
}

void sha256_free(sha256 *h) { free(h); }

void sha256_hex(const uint8_t d[32], char out[65]) {
  for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", d[i]);
}

void sha256_once(const void *p, size_t n, uint8_t out[32]) {
  SHA256_CTX c;
  SHA256_Init(&c);
  SHA256_Update(&c, p, n);
  SHA256_Final(out, &c);
}

uint64_t hash64(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }
