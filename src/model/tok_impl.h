/* tok_impl.h - what the files of the tokenizer share: its tables, and the calls between vocabulary, pre-tokenizer, normal form and merges.
 * Not for other rooms: they see tok.h only.
 * Ownership: tok owns everything below it; a tok_work belongs to one tok_encode call and dies with it.
 * Threads: a tok is read-only after tok_new except `whole`, a memo of pure facts written with relaxed atomics.
 * Failure: memory (ERR_NOMEM) and a regular expression that gives up (ERR_INTERNAL); never the content of the text. */
#ifndef MODEL_TOK_IMPL_H
#define MODEL_TOK_IMPL_H
#include "model/tok.h"
#include "base/buf.h"
#include <stdatomic.h>

/* One row a pre-tokenizer: a new family is a new row. */
typedef struct tok_pre {
  const char *names; /* space separated values of tokenizer.ggml.pre; the first is the family's own */
  const char *regex; /* PCRE2; pieces are its matches and whatever lies between them */
  bool nfc;          /* text is brought to normal form C first */
  bool whole_first;  /* a piece that is a token is that token, merges or not ("ignore_merges") */
  bool bos_default;  /* what a missing add_bos_token means */
} tok_pre;

const tok_pre *tok_pre_find(str name);     /* NULL: unknown */
void tok_pre_names(char *out, size_t cap); /* the known names, for messages */

typedef struct tok_re tok_re; /* a compiled row */
bool tok_re_new(const tok_pre *row, tok_re **ret, err *e);
void tok_re_free(tok_re *re);

typedef struct tok_slot {
  uint32_t tag;
  int32_t id;
} tok_slot; /* id -1: empty */
typedef struct tok_merge {
  int32_t left, right, id;
  uint32_t rank;
} tok_merge; /* id -1: empty */

struct tok {
  const tok_pre *pre;
  tok_re *re;
  int n;
  uint8_t *types; /* [n] TOK_* */
  uint32_t *off;  /* [n + 1] into text */
  char *text;     /* bytes of all tokens as they appear in text */
  tok_slot *slot; /* text -> id, open addressing, [slot_mask + 1] */
  uint32_t slot_mask;
  bool twins;       /* two tokens have the same text */
  tok_merge *merge; /* (left, right) -> (rank, id), open addressing, [merge_mask + 1] */
  uint32_t merge_mask;
  int32_t byte_id[256];   /* -1: the vocabulary has no token for this byte */
  _Atomic uint8_t *whole; /* [n] memo: do the merges make exactly this token of its own text? TOK_MEMO_* */
  int32_t *special;       /* control and user-defined tokens in byte order of their text */
  int n_special;
  bool special_first[256]; /* some special token begins with this byte */
  int32_t *ends;           /* [n_ends] ascending */
  int n_ends;
  int bos, eos;
  bool add_bos, add_eos;
};

enum { TOK_MEMO_UNKNOWN = 0, TOK_MEMO_YES = 1, TOK_MEMO_NO = 2 };
enum { TOK_CLASS_NORMAL = 1, TOK_CLASS_SPECIAL = 2 };

static inline str tok_text(const tok *t, int32_t id) { return (str){t->text + t->off[id], t->off[id + 1] - t->off[id]}; }
static inline int tok_class(const tok *t, int32_t id) {
  return t->types[id] == TOK_CONTROL || t->types[id] == TOK_USER || t->types[id] == TOK_UNKNOWN ? TOK_CLASS_SPECIAL : TOK_CLASS_NORMAL;
}
/* The token of one of these classes whose text this is, or -1. */
int32_t tok_lookup(const tok *t, str text, int classes);

static inline uint64_t tok_pair_hash(int32_t left, int32_t right) {
  uint64_t k = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  k *= 0x9e3779b97f4a7c15u;
  return k ^ k >> 32;
}
static inline const tok_merge *tok_merge_find(const tok *t, int32_t left, int32_t right) {
  for (uint64_t i = tok_pair_hash(left, right);; i++) {
    const tok_merge *m = &t->merge[i & t->merge_mask];
    if (m->id < 0) return NULL;
    if (m->left == left && m->right == right) return m;
  }
}

/* Scratch of one tok_encode. */
typedef struct tok_work {
  const tok *t;
  tok_ids *out;
  err *e;
  void *match; /* the regular expression's match block */
  buf norm;    /* normal form of the stretch at hand */
  int32_t *sym;
  uint32_t *link;
  uint64_t *heap; /* long pieces: see tok_bpe.c */
  size_t sym_cap, heap_n, heap_cap;
} tok_work;

bool tok_work_init(tok_work *w, const tok *t, tok_ids *out, err *e);
void tok_work_fini(tok_work *w);
bool tok_put(tok_work *w, int32_t id); /* appends one id */

bool tok_cut(tok_work *w, str text);  /* tok_pre.c: valid UTF-8 -> pieces -> tok_bpe */
bool tok_bpe(tok_work *w, str piece); /* tok_bpe.c: one piece -> ids */
/* tok_norm.c: normal form C of valid UTF-8. *ret is text itself when it is in that form already for a cheap reason, else lies in tmp. */
bool tok_nfc(str text, buf *tmp, str *ret);
#endif
