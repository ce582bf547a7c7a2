/* Merging one piece. The rule: among all adjacent pairs that have a merge, apply the one of lowest rank, the leftmost of equals, until none is left.
 * Merges are listed (byte-level BPE, tokenizer.json) or, in SentencePiece's files, meant: two symbols merge when their text together is a token, of
 * better scores first. Symbols begin as bytes or as code points.
 *
 * Three ways, one result:
 *   a piece that is a token which its own merges make (memoised per token) is one table look-up: three in four pieces of English;
 *   a short piece is an array that shrinks, searched for the lowest rank each time;
 *   a long one is a list with a heap of pairs, O(n log n), for whoever sends a megabyte of one letter.
 * Bytes a byte-level vocabulary has no token for are left out before merging, as the reference does (SmolLM2 lacks 21 of the 256).
 *
 * A merge's result is guessed before it is looked up: vocabularies number their tokens in the order of their merges, so it is nearly always the id
 * after the last one. */
#include "model/tok_impl.h"
#include <stdlib.h>

enum { SHORT = 64, AHEAD = 16 /* a merge is put in AHEAD later than it is known, when its place has been fetched */ };
enum { NONE = -1, UNKNOWN = -2 }; /* no symbol begins here; a code point that is no token */
#define NO_RANK UINT32_MAX
static const size_t MAX_TEXT = (size_t)1 << 30;

/* --- the table of merges --- */

static void merge_add(tok *t, const tok_merge *new) {
  uint64_t i = tok_pair_hash(new->left, new->right);
  tok_merge *m;
  for (; (m = &t->merge[i & t->merge_mask])->id >= 0; i++)
    if (m->left == new->left && m->right == new->right) break; /* stated twice: the later one counts, as in the reference */
  *m = *new;
}

static int32_t operand(const tok *t, str text) {
  int32_t id = tok_lookup(t, text, TOK_CLASS_NORMAL);
  return id >= 0 ? id : tok_lookup(t, text, TOK_CLASS_SPECIAL);
}

/* Merge i's halves: both in one string with a blank between them, or one here and one there. */
static bool halves(const tok_src *s, const str *right, int i, str *a, str *b) {
  *a = s->merges[i];
  if (right) *b = right[i];
  else if (!str_cut(s->merges[i], ' ', a, b)) return false;
  return a->n && b->n;
}

/* `both` holds the bytes of the two halves side by side, so their join needs no copy. */
static bool resolve_merge(const tok *t, const tok_src *s, int i, char *both, int32_t guess, tok_merge *ret, err *e) {
  str a, b;
  if (!halves(s, t->merge_right, i, &a, &b))
    return err_param(e, ERR_INPUT, "tokenizer.ggml.merges", "merge %d is not two tokens with a blank between them", i);
  size_t na = tok_form_bytes(t->form, a, both), nb = tok_form_bytes(t->form, b, both + na);
  str whole = {both, na + nb};
  int32_t left = operand(t, (str){both, na}), right = operand(t, (str){both + na, nb});
  bool guessed = !t->twins && guess < t->n && str_eq(tok_text(t, guess), whole) && tok_class(t, guess) == TOK_CLASS_NORMAL;
  int32_t id = guessed ? guess : operand(t, whole);
  if (left < 0 || right < 0 || id < 0)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.merges", "merge %d: its %s is not in the vocabulary; tokens and merges do not belong together", i,
        left < 0    ? "first half"
        : right < 0 ? "second half"
                    : "result");
  *ret = (tok_merge){left, right, id, (uint32_t)i};
  return true;
}

static bool build_merges(tok *t, const tok_src *s, err *e) {
  size_t longest = 0;
  for (int i = 0; i < s->n_merges; i++) {
    size_t n = s->merges[i].n + (t->merge_right ? t->merge_right[i].n : 0);
    if (n > longest) longest = n;
  }
  if (longest > MAX_TEXT) return err_param(e, ERR_INPUT, "tokenizer.ggml.merges", "a merge of %zu bytes is over the bound of %zu", longest, MAX_TEXT);
  t->merge_mask = tok_table_mask((uint64_t)s->n_merges);
  t->merge = malloc(((size_t)t->merge_mask + 1) * sizeof *t->merge);
  char *both = malloc(longest + 3);
  bool ok = t->merge && both;
  if (!ok) err_set(e, ERR_NOMEM, "out of memory for %d merges", s->n_merges);
  else memset(t->merge, 0xff, ((size_t)t->merge_mask + 1) * sizeof *t->merge);
  tok_merge wait[AHEAD];
  for (int i = 0; ok && i < s->n_merges + AHEAD; i++) {
    tok_merge *m = &wait[i % AHEAD];
    int32_t guess = i ? wait[(i - 1) % AHEAD].id + 1 : 0;
    if (i >= AHEAD) merge_add(t, m);
    if (i >= s->n_merges) continue;
    ok = resolve_merge(t, s, i, both, guess, m, e);
    if (ok) __builtin_prefetch(&t->merge[tok_pair_hash(m->left, m->right) & t->merge_mask], 1);
  }
  free(both);
  return ok;
}

bool tok_bpe_build(tok *t, const tok_src *s, err *e) {
  if (s->n_merges > 1 << 24) return err_param(e, ERR_INPUT, "tokenizer.ggml.merges", "%d merges are over the bound of %d", s->n_merges, 1 << 24);
  /* Rare bytes may be missing (SmolLM2 lacks 21 that its training text never had); without plain letters this is no byte-level vocabulary. */
  for (int b = ' '; b <= '~' && !t->chars; b++)
    if (t->byte_id[b] < 0)
      return err_param(
          e, ERR_INPUT, "tokenizer.ggml.tokens", "the vocabulary has no token for the byte 0x%02x ('%c'); byte-level BPE needs one", b, b);
  return build_merges(t, s, e);
}

/* --- pairs --- */

/* The rank of merging two neighbours, and what becomes of them. text: of both together, looked at only where merges are meant by scores. */
static inline uint32_t pair_rank(const tok *t, int32_t a, int32_t b, str text, int32_t *ret_id) {
  if (t->order) {
    int32_t id = tok_lookup(t, text, TOK_CLASS_NORMAL);
    *ret_id = id;
    return id >= 0 ? t->order[id] : NO_RANK;
  }
  const tok_merge *m = tok_merge_find(t, a, b);
  *ret_id = m ? m->id : -1;
  return m ? m->rank : NO_RANK;
}

/* The symbols of a piece that is cut into code points: the id of each at the byte where it begins. */
static inline int32_t char_symbol(const tok *t, str rest, size_t *ret_len) {
  uint8_t c = (uint8_t)rest.p[0];
  if (c < 128) {
    *ret_len = 1;
    return t->ascii_id[c] >= 0 ? t->ascii_id[c] : UNKNOWN;
  }
  uint32_t cp;
  int len = utf8_decode(rest.p, rest.n, &cp);
  *ret_len = len ? (size_t)len : 1;
  int32_t id = tok_lookup(t, (str){rest.p, *ret_len}, TOK_CLASS_NORMAL);
  return id >= 0 ? id : UNKNOWN;
}

/* --- short pieces --- */

typedef struct syms {
  int32_t id[SHORT + 1];
  uint8_t at[SHORT + 1]; /* where each begins; at[n] is the end. Only where symbols are code points */
  int n;
} syms;

/* Written once, compiled twice: byte-level merges do not carry places around. */
static inline __attribute__((always_inline)) void merge_short(const tok *t, const char *p, syms *s, const bool chars) {
  uint32_t rank[SHORT];
  int32_t to[SHORT]; /* what the pair (i, i + 1) becomes */
  int32_t *sym = s->id;
  int n = s->n;
#define PAIR(i) pair_rank(t, sym[i], sym[(i) + 1], chars ? (str){p + s->at[i], (size_t)(s->at[(i) + 2] - s->at[i])} : (str){p, 0}, &to[i])
  for (int i = 0; i + 1 < n; i++) rank[i] = PAIR(i);
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
    if (chars) memmove(s->at + at + 1, s->at + at + 2, (size_t)(n - at));
    if (at + 1 < n) rank[at] = PAIR(at);
    if (at > 0) rank[at - 1] = PAIR(at - 1);
  }
#undef PAIR
  s->n = n;
}

static void short_bytes(const tok *t, str piece, syms *s) {
  s->n = 0;
  for (size_t i = 0; i < piece.n; i++) {
    int32_t id = t->byte_id[(uint8_t)piece.p[i]];
    if (id >= 0) s->id[s->n++] = id;
  }
  merge_short(t, piece.p, s, false);
}

static void short_chars(const tok *t, str piece, syms *s) {
  size_t len;
  s->n = 0;
  for (size_t i = 0; i < piece.n; i += len) {
    s->at[s->n] = (uint8_t)i;
    s->id[s->n++] = char_symbol(t, (str){piece.p + i, piece.n - i}, &len);
  }
  s->at[s->n] = (uint8_t)piece.n;
  merge_short(t, piece.p, s, true);
}

/* --- long pieces --- */

/* Heap of rank << 32 | position, smallest first. Four children a node: half the levels of a binary heap, and the four lie in one cache line. */
static bool heap_push(tok_work *w, uint64_t key) {
  if (w->heap_n == w->heap_cap) {
    size_t cap = w->heap_cap + w->heap_cap / 2 + 1024;
    if (!tok_grow(w, (void **)&w->heap, cap, sizeof *w->heap)) return false;
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
 * at link[i] + 1, the one before begins at link[i - 1], and a merge writes three words. An id of NONE marks a place where no symbol begins. Places
 * are bytes of the piece where symbols are code points, else the bytes that have a token. */
static uint32_t rank_at(const tok_work *w, const char *p, size_t i, size_t j, int32_t *ret_id) {
  return pair_rank(w->t, w->sym[i], w->sym[j], (str){p + i, w->link[j] + 1 - i}, ret_id);
}

static bool pair_push(tok_work *w, const char *p, size_t i, size_t n) {
  size_t j = (size_t)w->link[i] + 1;
  int32_t id;
  if (j >= n) return true;
  uint32_t rank = rank_at(w, p, i, j, &id);
  return rank == NO_RANK || heap_push(w, (uint64_t)rank << 32 | i);
}

static bool merge_long(tok_work *w, const char *p, size_t n) {
  int32_t id;
  w->heap_n = 0;
  if (w->heap_cap < n) {
    if (!tok_grow(w, (void **)&w->heap, n, sizeof *w->heap)) return false;
    w->heap_cap = n;
  }
  for (size_t i = 0, j; i < n && (j = (size_t)w->link[i] + 1) < n; i = j) {
    uint32_t rank = rank_at(w, p, i, j, &id);
    if (rank != NO_RANK) w->heap[w->heap_n++] = (uint64_t)rank << 32 | i;
  }
  for (size_t i = w->heap_n / 4 + 1; i-- > 0;)
    if (i < w->heap_n) heap_sink(w, i, w->heap[i]);
  while (w->heap_n) {
    uint64_t key = heap_pop(w);
    size_t i = (uint32_t)key, j = (size_t)w->link[i] + 1;
    /* Pairs are not taken out when a neighbour changes; what no longer stands as it was pushed is passed over. */
    if (w->sym[i] == NONE || j >= n || rank_at(w, p, i, j, &id) != key >> 32) continue;
    uint32_t end = w->link[j];
    w->sym[i] = id;
    w->sym[j] = NONE;
    w->link[i] = end;
    w->link[end] = (uint32_t)i;
    if (!pair_push(w, p, i, n)) return false;
    if (i && !pair_push(w, p, w->link[i - 1], n)) return false;
  }
  return true;
}

static bool long_room(tok_work *w, size_t n) {
  if (w->sym_cap >= n) return true;
  if (!tok_grow(w, (void **)&w->sym, n, sizeof *w->sym) || !tok_grow(w, (void **)&w->link, n, sizeof *w->link)) return false;
  w->sym_cap = n;
  return true;
}

static bool bpe_long(tok_work *w, str piece) {
  const tok *t = w->t;
  size_t n = 0, len = 1;
  if (!long_room(w, piece.n)) return false;
  for (size_t i = 0; i < piece.n; i += len) {
    int32_t id = t->chars ? char_symbol(t, (str){piece.p + i, piece.n - i}, &len) : t->byte_id[(uint8_t)piece.p[i]];
    if (id == NONE) continue;
    w->sym[n] = id;
    w->link[n] = (uint32_t)(n + len - 1);
    w->link[n + len - 1] = (uint32_t)n;
    for (size_t k = 1; k < len; k++) w->sym[n + k] = NONE;
    n += len;
  }
  if (!merge_long(w, piece.p, n)) return false;
  for (size_t i = 0; i < n; i = (size_t)w->link[i] + 1)
    if (!(w->sym[i] == UNKNOWN ? tok_put_unknown(w, (str){piece.p + i, w->link[i] + 1 - i}) : tok_put(w, w->sym[i]))) return false;
  return true;
}

/* --- one piece --- */

bool tok_bpe(tok_work *w, str piece) {
  const tok *t = w->t;
  if (piece.n == 1 && !t->chars) {
    int32_t id = t->byte_id[(uint8_t)piece.p[0]];
    return id < 0 || tok_put(w, id);
  }
  if (piece.n > SHORT) {
    int32_t id = t->whole_first ? tok_lookup(t, piece, TOK_CLASS_NORMAL) : -1;
    return id >= 0 ? tok_put(w, id) : bpe_long(w, piece);
  }
  int32_t whole = tok_lookup(t, piece, TOK_CLASS_NORMAL);
  if (whole >= 0 && (t->whole_first || atomic_load_explicit(&t->whole[whole], memory_order_relaxed) == TOK_MEMO_YES)) return tok_put(w, whole);
  syms s;
  if (t->chars) short_chars(t, piece, &s);
  else short_bytes(t, piece, &s);
  /* The memo is a function of the vocabulary alone: two threads that race write the same value. */
  if (whole >= 0) atomic_store_explicit(&t->whole[whole], s.n == 1 && s.id[0] == whole ? TOK_MEMO_YES : TOK_MEMO_NO, memory_order_relaxed);
  for (int i = 0; i < s.n; i++)
    if (!(s.id[i] == UNKNOWN ? tok_put_unknown(w, (str){piece.p + s.at[i], (size_t)(s.at[i + 1] - s.at[i])}) : tok_put(w, s.id[i]))) return false;
  return true;
}
