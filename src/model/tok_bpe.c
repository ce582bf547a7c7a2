/* Merging one piece. The rule: among all adjacent pairs that have a merge, apply the one of lowest rank, the leftmost of equals, until none is left.
 *
 * Three ways, one result:
 *   a piece that is a token which its own merges make (memoised per token) is one table look-up: three in four pieces of English;
 *   a short piece is an array that shrinks, searched for the lowest rank each time;
 *   a long one is a list with a heap of pairs, O(n log n), for whoever sends a megabyte of one letter.
 * Bytes the vocabulary has no token for are left out before merging, as the reference does (SmolLM2 lacks 21 of the 256). */
#include "model/tok_impl.h"
#include <stdlib.h>

enum { SHORT = 64 };
#define NO_RANK UINT32_MAX

static inline uint32_t pair_rank(const tok *t, int32_t a, int32_t b, int32_t *ret_id) {
  const tok_merge *m = tok_merge_find(t, a, b);
  *ret_id = m ? m->id : -1;
  return m ? m->rank : NO_RANK;
}

/* Merges sym[0..n) in place; returns how many are left. */
static int merge_short(const tok *t, int32_t *sym, int n) {
  uint32_t rank[SHORT];
  int32_t to[SHORT]; /* what the pair (i, i + 1) becomes */
  for (int i = 0; i + 1 < n; i++) rank[i] = pair_rank(t, sym[i], sym[i + 1], &to[i]);
  while (n > 1) {
    int at = 0;
    for (int i = 1; i + 1 < n; i++)
      if (rank[i] < rank[at]) at = i;
    if (rank[at] == NO_RANK) break;
    sym[at] = to[at];
    n--;
    for (int i = at + 1; i < n; i++) {
      sym[i] = sym[i + 1];
      rank[i] = rank[i + 1]; /* rank[n] is never read: it belongs to a last symbol */
      to[i] = to[i + 1];
    }
    if (at + 1 < n) rank[at] = pair_rank(t, sym[at], sym[at + 1], &to[at]);
    if (at > 0) rank[at - 1] = pair_rank(t, sym[at - 1], sym[at], &to[at - 1]);
  }
  return n;
}

static bool grow(tok_work *w, void **p, size_t count, size_t size) {
  void *q = count <= SIZE_MAX / size ? realloc(*p, count * size) : NULL;
  if (!q) return err_set(w->e, ERR_NOMEM, "out of memory while tokenizing one piece of %zu symbols", count);
  *p = q;
  return true;
}

/* Heap of rank << 32 | position, smallest first. Four children a node: half the levels of a binary heap, and the four lie in one cache line. */
static bool heap_push(tok_work *w, uint64_t key) {
  if (w->heap_n == w->heap_cap) {
    size_t cap = w->heap_cap + w->heap_cap / 2 + 1024;
    if (!grow(w, (void **)&w->heap, cap, sizeof *w->heap)) return false;
    w->heap_cap = cap;
  }
  size_t i = w->heap_n++;
  for (; i && w->heap[(i - 1) / 4] > key; i = (i - 1) / 4) w->heap[i] = w->heap[(i - 1) / 4];
  w->heap[i] = key;
  return true;
}

static void heap_sink(tok_work *w, size_t i, uint64_t key) {
  for (size_t c; (c = 4 * i + 1) < w->heap_n; i = c) {
    size_t end = c + 4 < w->heap_n ? c + 4 : w->heap_n;
    for (size_t k = c + 1; k < end; k++)
      if (w->heap[k] < w->heap[c]) c = k;
    if (w->heap[c] >= key) break;
    w->heap[i] = w->heap[c];
  }
  w->heap[i] = key;
}

static uint64_t heap_pop(tok_work *w) {
  uint64_t top = w->heap[0], last = w->heap[--w->heap_n];
  if (w->heap_n) heap_sink(w, 0, last);
  return top;
}

/* A symbol that covers places i..j of the piece keeps its id at i and the two ends at each other: link[i] = j, link[j] = i. So the next symbol begins
 * at link[i] + 1, the one before begins at link[i - 1], and a merge writes three words. An id of -1 marks a place where no symbol begins. */
static bool pair_push(tok_work *w, size_t i, size_t n) {
  size_t j = (size_t)w->link[i] + 1;
  int32_t id;
  if (j >= n) return true;
  uint32_t rank = pair_rank(w->t, w->sym[i], w->sym[j], &id);
  return rank == NO_RANK || heap_push(w, (uint64_t)rank << 32 | i);
}

static bool merge_long(tok_work *w, size_t n) {
  int32_t id;
  w->heap_n = 0;
  if (w->heap_cap < n) {
    if (!grow(w, (void **)&w->heap, n, sizeof *w->heap)) return false;
    w->heap_cap = n;
  }
  for (size_t i = 0; i < n; i++) w->link[i] = (uint32_t)i;
  for (size_t i = 0; i + 1 < n; i++) {
    uint32_t rank = pair_rank(w->t, w->sym[i], w->sym[i + 1], &id);
    if (rank != NO_RANK) w->heap[w->heap_n++] = (uint64_t)rank << 32 | i;
  }
  for (size_t i = w->heap_n / 4 + 1; i-- > 0;)
    if (i < w->heap_n) heap_sink(w, i, w->heap[i]);
  while (w->heap_n) {
    uint64_t key = heap_pop(w);
    size_t i = (uint32_t)key, j = (size_t)w->link[i] + 1;
    /* Pairs are not taken out when a neighbour changes; what no longer stands as it was pushed is passed over. */
    if (w->sym[i] < 0 || j >= n || pair_rank(w->t, w->sym[i], w->sym[j], &id) != key >> 32) continue;
    uint32_t end = w->link[j];
    w->sym[i] = id;
    w->sym[j] = -1;
    w->link[i] = end;
    w->link[end] = (uint32_t)i;
    if (!pair_push(w, i, n)) return false;
    if (i && !pair_push(w, w->link[i - 1], n)) return false;
  }
  for (size_t i = 0; i < n; i = (size_t)w->link[i] + 1)
    if (!tok_put(w, w->sym[i])) return false;
  return true;
}

static bool bpe_long(tok_work *w, str piece) {
  if (w->sym_cap < piece.n) {
    if (!grow(w, (void **)&w->sym, piece.n, sizeof *w->sym) || !grow(w, (void **)&w->link, piece.n, sizeof *w->link)) return false;
    w->sym_cap = piece.n;
  }
  size_t n = 0;
  for (size_t i = 0; i < piece.n; i++) {
    int32_t id = w->t->byte_id[(uint8_t)piece.p[i]];
    if (id >= 0) w->sym[n++] = id;
  }
  return merge_long(w, n);
}

bool tok_bpe(tok_work *w, str piece) {
  const tok *t = w->t;
  if (piece.n == 1) {
    int32_t id = t->byte_id[(uint8_t)piece.p[0]];
    return id < 0 || tok_put(w, id);
  }
  if (piece.n > SHORT) {
    int32_t id = t->pre->whole_first ? tok_lookup(t, piece, TOK_CLASS_NORMAL) : -1;
    return id >= 0 ? tok_put(w, id) : bpe_long(w, piece);
  }
  int32_t whole = tok_lookup(t, piece, TOK_CLASS_NORMAL);
  if (whole >= 0 && (t->pre->whole_first || atomic_load_explicit(&t->whole[whole], memory_order_relaxed) == TOK_MEMO_YES)) return tok_put(w, whole);
  int32_t sym[SHORT];
  int n = 0;
  for (size_t i = 0; i < piece.n; i++) {
    int32_t id = t->byte_id[(uint8_t)piece.p[i]];
    if (id >= 0) sym[n++] = id;
  }
  n = merge_short(t, sym, n);
  /* The memo is a function of the vocabulary alone: two threads that race write the same value. */
  if (whole >= 0) atomic_store_explicit(&t->whole[whole], n == 1 && sym[0] == whole ? TOK_MEMO_YES : TOK_MEMO_NO, memory_order_relaxed);
  for (int i = 0; i < n; i++)
    if (!tok_put(w, sym[i])) return false;
  return true;
}
