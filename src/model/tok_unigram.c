/* Unigram: of all ways to spell a piece in tokens, the one with the largest sum of scores (Viterbi), as SentencePiece's optimised search does it:
 * places from left to right, at each the tokens that begin there from short to long, and a way that is only equal does not replace one that was found
 * before.
 *
 * A code point that no token spells alone costs ten less than the worst token. SentencePiece adds in 32 bits, the tokenizers library in 64: where two
 * ways differ by rounding alone, each has its own answer. */
#include "model/tok_impl.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef struct edge {
  uint32_t key; /* node << 8 | byte */
  uint32_t to;  /* 0: empty, as nothing leads to the root */
} edge;

struct tok_trie {
  edge *edge; /* open addressing, [mask + 1] */
  uint32_t mask;
  int32_t *id; /* [n_nodes] token that ends here, or -1 */
  uint32_t n_nodes;
  double *score; /* [n tokens] */
  double unk;    /* score of an unknown code point */
};

void tok_trie_free(struct tok_trie *trie) {
  if (!trie) return;
  free(trie->edge);
  free(trie->id);
  free(trie->score);
  free(trie);
}

static inline uint32_t edge_hash(uint32_t key) {
  key *= 0x9e3779b1u;
  return key ^ key >> 15;
}

static inline uint32_t trie_step(const struct tok_trie *tr, uint32_t node, uint8_t byte) {
  uint32_t key = node << 8 | byte;
  for (uint32_t i = edge_hash(key);; i++) {
    const edge *x = &tr->edge[i & tr->mask];
    if (!x->to || x->key == key) return x->to;
  }
}

static uint32_t trie_add(struct tok_trie *tr, uint32_t node, uint8_t byte) {
  uint32_t key = node << 8 | byte, i = edge_hash(key);
  edge *x;
  for (; (x = &tr->edge[i & tr->mask])->to; i++)
    if (x->key == key) return x->to;
  tr->id[tr->n_nodes] = -1;
  *x = (edge){key, tr->n_nodes++};
  return x->to;
}

/* Control, unknown and byte tokens are never what a text becomes; nor are unused ones. */
static bool in_trie(const tok *t, int32_t id) { return t->types[id] == TOK_NORMAL || (t->types[id] == TOK_USER && t->late_user); }

static bool trie_alloc(tok *t, struct tok_trie *tr, err *e) {
  size_t bytes = 1;
  for (int i = 0; i < t->n; i++)
    if (in_trie(t, i)) bytes += t->off[i + 1] - t->off[i];
  if (bytes >= (size_t)1 << 24) /* a node is 24 bits of an edge's key */
    return err_param(
        e, ERR_UNSUPPORTED, "tokenizer.ggml.tokens", "a unigram vocabulary with %zu bytes of text is over the bound of %d", bytes, 1 << 24);
  tr->mask = tok_table_mask(bytes);
  tr->edge = calloc((size_t)tr->mask + 1, sizeof *tr->edge);
  tr->id = malloc(bytes * sizeof *tr->id);
  tr->score = malloc((size_t)t->n * sizeof *tr->score);
  return (tr->edge && tr->id && tr->score) || err_set(e, ERR_NOMEM, "out of memory for a vocabulary of %d tokens", t->n);
}

static size_t written_len(str s) { /* with blanks as U+2581 */
  size_t n = s.n;
  for (size_t i = 0; i < s.n; i++) n += s.p[i] == ' ' ? 2 : 0;
  return n;
}

static bool read_scores(tok *t, const tok_src *s, struct tok_trie *tr, err *e) {
  double low = DBL_MAX, high = FLT_MIN; /* sic: no score is above 0, and SentencePiece starts from the smallest positive number */
  for (int i = 0; i < t->n; i++) {
    double x = tr->score[i] = t->wide ? t->scores64[i] : (double)s->scores[i];
    if (!isfinite(x)) return err_param(e, ERR_INPUT, "tokenizer.ggml.scores", "the score of token %d is no number", i);
    if (!t->wide && t->types[i] != TOK_NORMAL) continue; /* there the others' scores mean nothing; in tokenizer.json there are no types */
    if (x < low) low = x;
    if (x > high) high = x;
  }
  tr->unk = t->wide ? low - 10.0 : (double)((float)low - 10.0f);
  for (int i = 0; i < t->n; i++) /* a user-defined word wins over all ways to spell it */
    if (t->types[i] == TOK_USER && t->late_user) tr->score[i] = (double)((float)written_len(tok_text(t, i)) * (float)high - 0.1f);
  return true;
}

bool tok_unigram_build(tok *t, const tok_src *s, err *e) {
  struct tok_trie *tr = t->trie = calloc(1, sizeof *tr);
  if (!tr) return err_set(e, ERR_NOMEM, "out of memory for a vocabulary of %d tokens", t->n);
  if (!trie_alloc(t, tr, e) || !read_scores(t, s, tr, e)) return false;
  tr->id[0] = -1;
  tr->n_nodes = 1;
  for (int i = 0; i < t->n; i++) {
    str x = tok_text(t, i);
    if (!x.n || !in_trie(t, i)) continue;
    uint32_t node = 0;
    for (size_t k = 0; k < x.n; k++) node = trie_add(tr, node, (uint8_t)x.p[k]);
    tr->id[node] = i;
  }
  return true;
}

/* Where a way ends: how good the best one is, where its last token begins, and which that is. */
typedef struct tok_node {
  double sum;
  uint32_t from; /* == its own place: no way ends here */
  int32_t id;    /* UNKNOWN: a code point that is none */
} tok_node;
enum { UNKNOWN = -2 };

static inline void offer(const tok *t, tok_node *to, size_t from, size_t end, double sum, int32_t id) {
  if (!t->wide) sum = (double)(float)sum;
  if (to->from == end || sum > to->sum) *to = (tok_node){sum, (uint32_t)from, id};
}

static void search(const tok *t, tok_node *node, str s) {
  const struct tok_trie *tr = t->trie;
  for (size_t i = 0, len; i < s.n; i += len) {
    uint32_t cp, at = 0;
    bool alone = false;
    int k = utf8_decode(s.p + i, s.n - i, &cp);
    len = k ? (size_t)k : 1;
    for (size_t end = i; end < s.n && (at = trie_step(tr, at, (uint8_t)s.p[end]));) {
      int32_t id = tr->id[at];
      if (++end - i == len && id >= 0) alone = true;
      if (id >= 0) offer(t, &node[end], i, end, tr->score[id] + node[i].sum, id);
    }
    if (!alone) offer(t, &node[i + len], i, i + len, tr->unk + node[i].sum, UNKNOWN);
  }
}

/* The best way is read from its end; the links are turned round on the way, so that it is told from its beginning. */
static bool tell(tok_work *w, tok_node *node, str s) {
  uint32_t end = (uint32_t)s.n, next = end;
  for (uint32_t at = end; at;) {
    uint32_t from = node[at].from;
    node[at].from = next;
    next = at;
    at = from;
  }
  for (uint32_t from = 0, at = next; from < end;) {
    uint32_t after = node[at].from;
    if (!(node[at].id == UNKNOWN ? tok_put_unknown(w, (str){s.p + from, at - from}) : tok_put(w, node[at].id))) return false;
    from = at;
    at = after;
  }
  return true;
}

static bool unigram_words(tok_work *w, str s) {
  if (w->node_cap < s.n + 1) {
    size_t cap = s.n + s.n / 2 + 64;
    if (!tok_grow(w, (void **)&w->node, cap, sizeof *w->node)) return false;
    w->node_cap = cap;
  }
  for (size_t i = 0; i <= s.n; i++) w->node[i] = (tok_node){0, (uint32_t)i, UNKNOWN};
  w->node[0].sum = w->carry;
  search(w->t, w->node, s);
  w->carry = w->node[s.n].sum;
  return tell(w, w->node, s);
}

/* Where no token can lie across a place, all ways meet there: the search may stop, and goes on with the sum it has. */
bool tok_unigram(tok_work *w, str piece) {
  size_t from = 0;
  w->carry = 0;
  for (size_t i = 1; i < piece.n; i++) {
    if (piece.p[i] != ' ' || piece.p[i - 1] == ' ' || !w->t->splits[(uint8_t)piece.p[i - 1]]) continue;
    if (!unigram_words(w, (str){piece.p + from, i - from})) return false;
    from = i;
  }
  return from == piece.n || unigram_words(w, (str){piece.p + from, piece.n - from});
}
