/* kv.h - the pool of KV pages, fixed at start from a byte budget, and the index that finds a prefix computed before.
 * Not the kernels' view of a page (kern.h) and not the schedule: it hands pages out and takes them back.
 * Ownership: the pool owns pages and index; a kv_table owns one reference on each page it lists.
 * Threads: the engine thread only; kv_table_init, which reads only what never changes, any.
 * Failure: kv_grow returns false when no page is free; the caller preempts or waits. A budget smaller than one page fails at kv_init, and so does a
 *   shape that no kernel takes (ERR_UNSUPPORTED). Past kv_init and kv_table_init nothing takes memory.
 *
 * A page is free when nobody refers to it; free pages form a list in least-recently-used order, and taking its head IS eviction: a page keeps its
 * contents and its place in the index until then, so a hit takes it out of the list in O(1). Only full pages are published. Their key is a hash
 * chain, H_i = SHA-256(H_(i-1) | tokens_i), H_(-1) = SHA-256(root | salt): root covers weights, kernel table, KV type and page size, salt the tenant.
 */
#ifndef ENGINE_KV_H
#define ENGINE_KV_H
#include "base/hash.h"
#include "kern/kern.h"

typedef struct kv_page {
  int32_t prev, next; /* free list, -1: end */
  int32_t refs;
  bool hashed; /* in the index */
  uint8_t hash[32];
} kv_page;

typedef struct kv_pool {
  kern_kv kern; /* kern.pool is the memory */
  size_t page_bytes;
  int n_pages, n_free, head, tail;
  kv_page *pages;
  int32_t *index;
  uint32_t mask; /* open addressing by the hash's first 4 bytes; -1: empty */
  uint8_t root[32];
  sha256 *sha; /* the engine thread's, for links of a chain */
  uint64_t evictions;
  bool no_index;
} kv_pool;

typedef struct kv_table {
  int32_t *pages;
  int n, cap;
  int n_hashed;      /* leading pages whose chain hash is known */
  uint8_t start[32]; /* H_(-1) */
  uint8_t chain[32]; /* hash of page n_hashed - 1, or the start */
} kv_table;

bool kv_init(kv_pool *k, const kern_kv *shape, uint64_t budget, const uint8_t root[32], bool no_index, err *e);
void kv_fini(kv_pool *k);
bool kv_table_init(kv_table *t, int max_tokens, const kv_pool *k, const char *salt); /* any thread; false: no memory */
void kv_table_fini(kv_table *t);                                                     /* pages must have been released */

/* Takes pages from the index for the longest prefix of tokens[0..n) that is there; returns the tokens they hold (a multiple of the page). At most n -
 * 1 tokens hit, so that something is left to compute. The table must be empty. */
int kv_match(kv_pool *k, kv_table *t, const int32_t *tokens, int n);
bool kv_grow(kv_pool *k, kv_table *t, int n_tokens); /* pages for n_tokens positions; false: not enough free (what was added stays) */
void kv_publish(kv_pool *k, kv_table *t, const int32_t *tokens, int n_computed); /* indexes pages that became full */
void kv_release(kv_pool *k, kv_table *t);                                        /* gives all pages back, last first, and resets the chain */
#endif
