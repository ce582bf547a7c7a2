#include "base/hash.h"
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

sha256 *sha256_new(void) {
  EVP_MD_CTX *c = EVP_MD_CTX_new();
  if (c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) != 1) {
    EVP_MD_CTX_free(c);
    c = NULL;
  }
  return (sha256 *)c;
}

void sha256_add(sha256 *h, const void *p, size_t n) { EVP_DigestUpdate((EVP_MD_CTX *)h, p, n); }

void sha256_done(sha256 *h, uint8_t out[32]) {
  unsigned n = 32;
  EVP_DigestFinal_ex((EVP_MD_CTX *)h, out, &n);
  EVP_MD_CTX_free((EVP_MD_CTX *)h);
}

void sha256_next(sha256 *h, uint8_t out[32]) {
  unsigned n = 32;
  EVP_DigestFinal_ex((EVP_MD_CTX *)h, out, &n);
  EVP_DigestInit_ex((EVP_MD_CTX *)h, NULL, NULL); /* the same digest again */
}

void sha256_free(sha256 *h) { EVP_MD_CTX_free((EVP_MD_CTX *)h); }

void sha256_hex(const uint8_t d[32], char out[65]) {
  for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", d[i]);
}

void sha256_once(const void *p, size_t n, uint8_t out[32]) { SHA256(p, n, out); }

uint64_t hash64(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }
