/* hash.h - SHA-256 (files, cache chains) through OpenSSL and xxHash64 (tables inside a process).
 * Not for passwords.
 * Ownership: sha256 is an opaque context the caller frees.
 * Threads: one owner per context.
 * Failure: sha256_new returns NULL when out of memory; nothing else takes any. */
#ifndef BASE_HASH_H
#define BASE_HASH_H
#include "base/str.h"

typedef struct sha256 sha256;
sha256 *sha256_new(void);
void sha256_add(sha256 *h, const void *p, size_t n);
void sha256_done(sha256 *h, uint8_t out[32]); /* finishes and frees */
void sha256_next(sha256 *h, uint8_t out[32]); /* finishes and begins anew */
void sha256_free(sha256 *h);                  /* abandons; NULL is allowed */
void sha256_hex(const uint8_t d[32], char out[65]);
void sha256_once(const void *p, size_t n, uint8_t out[32]);
uint64_t hash64(const void *p, size_t n, uint64_t seed);
#endif
