#include "engine/kv.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void list_remove(kv_pool *k, int32_t id) {
  kv_page *p = &k->pages[id];
  if (p->prev >= 0) k->pages[p->prev].next = p->next;
  else k->head = p->next;
  if (p->next >= 0) k->pages[p->next].prev = p->prev;
  else k->tail = p->prev;
  k->n_free--;
}

static void list_append(kv_pool *k, int32_t id) {
  kv_page *p = &k->pages[id];
  p->prev = k->tail;
  p->next = -1;
  if (k->tail >= 0) k->pages[k->tail].next = id;
  else k->head = id;
  k->tail = id;
  k->n_free++;
}

static void list_prepend(kv_pool *k, int32_t id) {
  kv_page *p = &k->pages[id];
  p->next = k->head;
  p->prev = -1;
  if (k->head >= 0) k->pages[k->head].prev = id;
  else k->tail = id;
  k->head = id;
  k->n_free++;
}

static uint32_t slot_of(const kv_pool *k, const uint8_t h[32]) {
  uint32_t v;
  memcpy(&v, h, 4);
  return v & k->mask;
}

static int32_t index_find(const kv_pool *k, const uint8_t h[32]) {
  for (uint32_t s = slot_of(k, h);; s = (s + 1) & k->mask) {
    int32_t id = k->index[s];
    if (id < 0) return -1;
    if (memcmp(k->pages[id].hash, h, 32) == 0) return id;
  }
}

static void index_add(kv_pool *k, int32_t id) {
  uint32_t s = slot_of(k, k->pages[id].hash);
  while (k->index[s] >= 0) s = (s + 1) & k->mask;
  k->index[s] = id;
  k->pages[id].hashed = true;
}

/* Removal closes the gap (no tombstones), so probes stay short for ever. */
static void index_remove(kv_pool *k, int32_t id) {
  uint32_t s = slot_of(k, k->pages[id].hash);
  while (k->index[s] != id) s = (s + 1) & k->mask;
  for (uint32_t j = s;;) {
    k->index[s] = -1;
    for (;;) {
      j = (j + 1) & k->mask;
      if (k->index[j] < 0) {
        k->pages[id].hashed = false;
        return;
      }
      uint32_t home = slot_of(k, k->pages[k->index[j]].hash);
      if (((j - home) & k->mask) >= ((j - s) & k->mask)) break;
    }
    k->index[s] = k->index[j];
    s = j;
  }
}

bool kv_init(kv_pool *k, const kern_kv *shape, uint64_t budget, const uint8_t root[32], bool no_index, err *e) {
  memset(k, 0, sizeof *k);
  k->kern = *shape;
  k->page_bytes = kern_kv_page_bytes(shape);
  if (!k->page_bytes)
    return err_param(e, ERR_UNSUPPORTED, "",
        "heads of %d in pages of %d tokens: the kernels take even heads up to %d and pages that are multiples of 16", shape->head_dim, shape->page,
        KERN_HEAD_MAX);
  uint64_t n = budget / k->page_bytes;
  if (n < 1)
    return err_param(e, ERR_INPUT, "kv-budget", "the KV budget of %llu bytes holds no page: one page of %d tokens takes %zu bytes; raise --kv-budget",
        (unsigned long long)budget, shape->page, k->page_bytes);
  if (n > 1 << 24) n = 1 << 24;
  k->n_pages = (int)n;
  k->no_index = no_index;
  memcpy(k->root, root, 32);
  uint32_t cap = 16;
  while (cap < 2 * n) cap *= 2;
  k->mask = cap - 1;
  k->pages = calloc(n, sizeof *k->pages);
  k->index = malloc(cap * sizeof *k->index);
  k->sha = sha256_new();
  void *mem = mmap(NULL, n * k->page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mem != MAP_FAILED) {
    k->kern.pool = mem;
    madvise(mem, n * k->page_bytes, MADV_HUGEPAGE); /* attention walks it page by page: fewer TLB misses */
  }
  if (!k->pages || !k->index || !k->sha || !k->kern.pool) {
    kv_fini(k);
    return err_set(e, ERR_NOMEM, "cannot reserve %llu bytes for the KV cache: lower --kv-budget", (unsigned long long)(n * k->page_bytes));
  }
  memset(k->index, 0xff, cap * sizeof *k->index);
  k->head = k->tail = -1;
  for (int i = 0; i < k->n_pages; i++) list_append(k, i);
  return true;
}

void kv_fini(kv_pool *k) {
  if (k->kern.pool) munmap(k->kern.pool, (size_t)k->n_pages * k->page_bytes);
  free(k->pages);
  free(k->index);
  sha256_free(k->sha);
  memset(k, 0, sizeof *k);
}

bool kv_table_init(kv_table *t, int max_tokens, const kv_pool *k, const char *salt) {
  memset(t, 0, sizeof *t);
  t->cap = (max_tokens + k->kern.page - 1) / k->kern.page;
  t->pages = malloc((size_t)(t->cap ? t->cap : 1) * sizeof *t->pages);
  sha256 *h = sha256_new();
  if (!t->pages || !h) {
    sha256_free(h);
    return false; /* kv_table_fini frees the rest */
  }
  sha256_add(h, k->root, 32);
  if (salt) sha256_add(h, salt, strlen(salt));
  sha256_done(h, t->start);
  memcpy(t->chain, t->start, 32);
  return true;
}

void kv_table_fini(kv_table *t) {
  free(t->pages);
  memset(t, 0, sizeof *t);
}

static void chain_next(kv_pool *k, const uint8_t prev[32], const int32_t *tokens, uint8_t out[32]) {
  sha256_add(k->sha, prev, 32);
  sha256_add(k->sha, tokens, (size_t)k->kern.page * sizeof *tokens);
  sha256_next(k->sha, out);
}

int kv_match(kv_pool *k, kv_table *t, const int32_t *tokens, int n) {
  if (k->no_index) return 0;
  int page = k->kern.page;
  while ((t->n + 1) * page <= n - 1) {
    uint8_t h[32];
    chain_next(k, t->chain, tokens + t->n * page, h);
    int32_t id = index_find(k, h);
    if (id < 0) break;
    if (k->pages[id].refs++ == 0) list_remove(k, id);
    t->pages[t->n++] = id;
    t->n_hashed = t->n;
    memcpy(t->chain, h, 32);
  }
  return t->n * page;
}

bool kv_grow(kv_pool *k, kv_table *t, int n_tokens) {
  int want = (n_tokens + k->kern.page - 1) / k->kern.page;
  while (t->n < want) {
    int32_t id = k->head;
    if (id < 0 || t->n == t->cap) return false;
    list_remove(k, id);
    if (k->pages[id].hashed) {
      index_remove(k, id);
      k->evictions++;
    }
    k->pages[id].refs = 1;
    t->pages[t->n++] = id;
  }
  return true;
}

void kv_publish(kv_pool *k, kv_table *t, const int32_t *tokens, int n_computed) {
  if (k->no_index) return;
  int page = k->kern.page;
  while ((t->n_hashed + 1) * page <= n_computed) {
    chain_next(k, t->chain, tokens + t->n_hashed * page, t->chain);
    int32_t id = t->pages[t->n_hashed++];
    kv_page *p = &k->pages[id];
    if (p->hashed) continue;
    int32_t twin = index_find(k, t->chain);
    if (twin >= 0 && k->pages[twin].refs > 0) continue; /* computed twice at once: the first one stays */
    if (twin >= 0) {                                    /* an idle copy gives its place to the one in use, and is the next to be taken */
      index_remove(k, twin);
      list_remove(k, twin);
      list_prepend(k, twin);
    }
    memcpy(p->hash, t->chain, 32);
    index_add(k, id);
  }
}

void kv_release(kv_pool *k, kv_table *t) {
  while (t->n) {
    int32_t id = t->pages[--t->n];
    if (--k->pages[id].refs == 0) list_append(k, id);
  }
  memcpy(t->chain, t->start, 32);
  t->n_hashed = 0;
}
