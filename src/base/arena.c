#include "base/arena.h"
#include <stdlib.h>

struct arena_block {
  arena_block *next;
  size_t cap, used;
  _Alignas(16) char data[];
};

void arena_init(arena *a, size_t max) { *a = (arena){.max = max}; }

void arena_fini(arena *a) {
  for (arena_block *b = a->head, *n; b; b = n) {
    n = b->next;
    free(b);
  }
  a->head = NULL;
  a->used = 0;
}

void *arena_try(arena *a, size_t n) {
  if (n > SIZE_MAX - 64) return NULL;
  n = (n + 15) & ~(size_t)15;
  if (n > a->max || a->used > a->max - n) return NULL;
  arena_block *b = a->head;
  if (!b || b->cap - b->used < n) {
    size_t cap = b ? b->cap * 2 : 4096;
    if (cap > 1u << 20) cap = 1u << 20;
    if (cap < n) cap = n;
    arena_block *nb = malloc(sizeof *nb + cap);
    if (!nb) {
      a->starved = true;
      return NULL;
    }
    nb->cap = cap;
    nb->used = 0;
    if (b && n > 1u << 19) {
      nb->next = b->next;
      b->next = nb;
    } /* a big one goes behind, so the current block stays in use */
    else {
      nb->next = b;
      a->head = nb;
    }
    b = nb;
  }
  void *p = b->data + b->used;
  b->used += n;
  a->used += n;
  memset(p, 0, n);
  return p;
}

void *arena_try_array(arena *a, size_t count, size_t size) {
  size_t n;
  if (__builtin_mul_overflow(count, size, &n)) return NULL;
  return arena_try(a, n);
}

char *arena_str(arena *a, str s) {
  char *p = s.n < SIZE_MAX ? arena_try(a, s.n + 1) : NULL;
  if (p && s.n) memcpy(p, s.p, s.n);
  return p;
}
