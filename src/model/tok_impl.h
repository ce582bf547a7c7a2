/* tok_impl.h - what the files of the tokenizer share: its tables, the steps a text goes through, and the calls between them.
 * Not for other rooms: they see tok.h only.
 * Ownership: tok owns everything below it, strings of its steps in `own`; a tok_work belongs to one tok_encode call and dies with it.
 * Threads: a tok is read-only after tok_new except `whole`, a memo of pure facts written with relaxed atomics.
 * Failure: memory (ERR_NOMEM) and a regular expression that gives up (ERR_INTERNAL); never the content of the text.
 *
 * A text is cut at control tokens; each stretch between them goes through the normal forms (tok_step), then the cuts (tok_cut_step), and every piece
 * to the model (tok_model). A GGUF file names a row that says which; a tokenizer.json lists them. */
#ifndef MODEL_TOK_IMPL_H
#define MODEL_TOK_IMPL_H
#include "model/tok.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include <stdatomic.h>

typedef struct tok_work tok_work;

/* How a vocabulary writes its tokens. In a tok they stand as they appear in text; text brought to the same form is looked up there. */
typedef enum tok_form {
  TOK_FORM_BYTES,  /* GPT-2's alphabet of 256 printable characters, one a byte */
  TOK_FORM_META,   /* U+2581 for a blank; text has it replaced likewise, so that one in a text is a blank too, as in SentencePiece */
  TOK_FORM_LEAD,   /* WordPiece in GGUF: U+2581 before what begins a word */
  TOK_FORM_HASHES, /* WordPiece elsewhere: ## before what does not */
} tok_form;

/* One row a kind of vocabulary. */
typedef struct tok_model {
  const char *name; /* tokenizer.ggml.model */
  tok_form form;
  const char *key, *lacks;                       /* what a file of this kind must have, and what to say when it has not; NULL: nothing */
  bool bos_default, eos_default, prefix_default; /* what a missing add_bos_token, add_eos_token, add_space_prefix means */
  bool (*build)(tok *t, const tok_src *s, err *e);
  bool (*piece)(tok_work *w, str piece);
} tok_model;
const tok_model *tok_model_find(const char *name); /* NULL: unknown */

/* One row a pre-tokenizer of byte-level BPE: a new family is a new row. */
typedef struct tok_pre {
  const char *names; /* space separated values of tokenizer.ggml.pre; the first is the family's own */
  const char *regex; /* PCRE2; pieces are its matches and whatever lies between them */
  bool nfc;          /* text is brought to normal form C first */
  bool whole_first;  /* a piece that is a token is that token, merges or not ("ignore_merges") */
  bool bos_default;  /* what a missing add_bos_token means */
} tok_pre;
const tok_pre *tok_pre_find(str name);     /* NULL: unknown */
void tok_pre_names(char *out, size_t cap); /* the known names, for messages */

/* A normal form: text in, text out; *ret is `in` itself or lies in `out`. */
typedef struct tok_step tok_step;
struct tok_step {
  bool (*run)(tok_work *w, const tok_step *s, str in, buf *out, str *ret);
  int flags;
  str a, b; /* what the step needs: pattern and content, a table */
  struct tok_re *re;
};

#define TOK_WS "\\t-\\r\\x{85}\\p{Z}" /* White_Space, inside a class; U+180E, which PCRE2's \s takes, is none since Unicode 6.3 */
#define TOK_RE_WHITE "[" TOK_WS "]+"
#define TOK_RE_PUNCT "[!-/:-@\\[-`{-~\\p{P}]" /* ASCII's symbols are punctuation too */

typedef struct tok_re tok_re; /* a compiled regular expression */
/* bounded: the expression comes from a file, and a text that would make it search for ever is refused instead. */
bool tok_re_new(const char *regex, bool bounded, tok_re **ret, err *e);
void tok_re_free(tok_re *re);

typedef enum tok_cut_how { TOK_CUT_ISOLATED, TOK_CUT_REMOVED, TOK_CUT_WITH_PREVIOUS, TOK_CUT_WITH_NEXT, TOK_CUT_CONTIGUOUS } tok_cut_how;
/* U+2581 to blank, and whether one is put in front; BLANK: only that (a byte-level piece that does not begin with one). */
typedef enum tok_meta { TOK_META_NO, TOK_META_NEVER, TOK_META_FIRST, TOK_META_ALWAYS, TOK_META_BLANK } tok_meta;
typedef struct tok_cut_step {
  tok_re *re; /* NULL: no cut */
  tok_cut_how how;
  bool invert; /* what does not match is what `how` is about */
  tok_meta meta;
} tok_cut_step;

enum { TOK_MAX_STEPS = 16 };

typedef struct tok_slot {
  uint32_t tag;
  int32_t id;
} tok_slot; /* id -1: empty */
typedef struct tok_merge {
  int32_t left, right, id;
  uint32_t rank;
} tok_merge; /* id -1: empty */

typedef struct tok_word {
  str text; /* as it is looked for, which need not be as it is written back */
  int32_t id;
} tok_word;
/* Tokens that are looked for in text, in byte order of their text. */
typedef struct tok_set {
  tok_word *v;
  int n;
  bool first[256]; /* some token begins with this byte */
} tok_set;

struct tok {
  const tok_model *model;
  tok_form form;
  arena own;
  tok_step norm[TOK_MAX_STEPS];
  tok_cut_step cut[TOK_MAX_STEPS];
  int n_norm, n_cut;
  bool whole_first, chars; /* BPE: see tok_pre; symbols are code points, not bytes */
  bool fuse_unk;           /* unknowns side by side are one */
  bool words;              /* user-defined tokens are ordinary text (see tok_encode) */
  bool late_user;          /* they are looked for behind the normal forms, by the model */
  bool strip;              /* a whole text loses its first blank when it is decoded */
  bool wide;               /* unigram: sums in 64 bits, as in tokenizer.json; else in 32, as in SentencePiece */
  int max_chars;           /* WordPiece: a longer word is unknown */

  int n;
  uint8_t *types; /* [n] TOK_* */
  uint32_t *off;  /* [n + 1] into text */
  char *text;     /* bytes of all tokens as they appear in text */
  tok_slot *slot; /* text -> id, open addressing, [slot_mask + 1] */
  uint32_t slot_mask;
  bool twins;             /* two tokens have the same text */
  int32_t byte_id[256];   /* -1: the vocabulary has no token for this byte */
  int32_t ascii_id[128];  /* -1: none for this character */
  bool splits[256];       /* [b]: no token has a blank behind this byte: text may be cut there, and nothing changes */
  _Atomic uint8_t *whole; /* [n] memo: do the merges make exactly this token of its own text? TOK_MEMO_* */

  tok_merge *merge; /* BPE: (left, right) -> (rank, id), open addressing, [merge_mask + 1] */
  uint32_t merge_mask;
  const str *merge_right; /* while building: second halves of the merges, where they stand apart */
  uint32_t *order;        /* SentencePiece BPE: [n] rank of the merge that makes a token, from its score; NULL: merges are listed */
  struct tok_trie *trie;  /* unigram */
  const double *scores64; /* while building: its scores, where they have 64 bits */

  tok_set special; /* control tokens, and user-defined ones where they need trust */
  tok_set user;    /* user-defined tokens that are looked for in text after its normal form */
  tok_word *alias; /* [n_alias] in `own`: user-defined tokens whose text is looked for as it stands, while they are words of the model */
  int n_alias;
  uint8_t *eats; /* [n] TOK_EATS_*: NULL: none does */
  int32_t *ends; /* [n_ends] ascending */
  int n_ends;
  int bos, eos, unk;
  int first, last; /* what add_special puts around a text; -1: nothing */
};

enum { TOK_MEMO_UNKNOWN = 0, TOK_MEMO_YES = 1, TOK_MEMO_NO = 2 };
enum { TOK_CLASS_NORMAL = 1, TOK_CLASS_SPECIAL = 2 };
enum { TOK_EATS_LEFT = 1, TOK_EATS_RIGHT = 2 }; /* white space beside the token goes with it */

static inline str tok_text(const tok *t, int32_t id) { return (str){t->text + t->off[id], t->off[id + 1] - t->off[id]}; }
static inline int tok_class(const tok *t, int32_t id) {
  return t->types[id] == TOK_CONTROL || t->types[id] == TOK_USER || t->types[id] == TOK_UNKNOWN ? TOK_CLASS_SPECIAL : TOK_CLASS_NORMAL;
}

/* --- tok_vocab.c: tokens from arrays --- */
tok *tok_begin(err *e);
/* Fills the tables from src by the rules set in t (model, form and the flags); more: ends beside those of src. On failure t is freed. */
bool tok_finish(tok *t, const tok_src *src, const int32_t *more, int n_more, tok **ret, err *e);
/* The token of one of these classes whose text this is, or -1. */
int32_t tok_lookup(const tok *t, str text, int classes);
size_t tok_form_bytes(tok_form f, str s, char *out); /* a normal token's text; out: s.n + 1 bytes */
uint32_t tok_table_mask(uint64_t n);
/* The longest token of the set that begins at `at`, or -1. Bytes that are not trusted (trust: NULL all are; control false: none is) are only for
 * user-defined tokens, and only where those are words. */
int32_t tok_set_at(const tok *t, const tok_set *set, str text, size_t at, const uint8_t *trust, bool control, size_t *ret_len);

/* --- models: build their tables, turn one piece into ids --- */
bool tok_bpe_build(tok *t, const tok_src *s, err *e);
bool tok_bpe(tok_work *w, str piece);
bool tok_spm_build(tok *t, const tok_src *s, err *e);
bool tok_spm(tok_work *w, str piece);
bool tok_unigram_build(tok *t, const tok_src *s, err *e);
bool tok_unigram(tok_work *w, str piece);
void tok_trie_free(struct tok_trie *trie);
bool tok_wordpiece_build(tok *t, const tok_src *s, err *e);
bool tok_wordpiece(tok_work *w, str piece);

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
struct tok_work {
  const tok *t;
  tok_ids *out;
  err *e;
  void *match;         /* the regular expression's match block */
  bool opening, lead;  /* the stretch at hand begins the text; begins behind a control token or the text's beginning */
  const char *lead_at; /* where the first piece of such a stretch begins */
  int unk_end;         /* out->n right after an unknown token was put; -1 */
  buf norm[2], meta;   /* normal forms of the stretch at hand, by turns; of a piece of it */
  int32_t *sym;
  uint32_t *link;
  uint64_t *heap; /* long pieces: see tok_bpe.c */
  size_t sym_cap, heap_n, heap_cap;
  struct tok_node *node; /* unigram */
  size_t node_cap;
  double carry; /* unigram: the best path's sum up to the piece */
};

bool tok_work_init(tok_work *w, const tok *t, tok_ids *out, err *e);
void tok_work_fini(tok_work *w);
bool tok_put(tok_work *w, int32_t id);       /* appends one id */
bool tok_put_unknown(tok_work *w, str text); /* what the vocabulary cannot spell: byte tokens, else the unknown token, else nothing */
bool tok_grow(tok_work *w, void **p, size_t count, size_t size); /* realloc that says what was too much */

bool tok_cut(tok_work *w, str text); /* tok_pre.c: valid UTF-8 -> normal forms -> pieces -> model */

/* --- normal forms --- */
/* tok_norm.c */
enum { TOK_NF_COMPOSE = 1, TOK_NF_COMPAT = 2 };
bool tok_step_form(tok_work *w, const tok_step *s, str in, buf *out, str *ret); /* flags: TOK_NF_*; 0 is form D */
/* tok_steps.c */
enum { TOK_STRIP_LEFT = 1, TOK_STRIP_RIGHT = 2 };
bool tok_step_lower(tok_work *w, const tok_step *s, str in, buf *out, str *ret);
bool tok_step_strip(tok_work *w, const tok_step *s, str in, buf *out, str *ret);   /* flags: TOK_STRIP_* */
bool tok_step_accents(tok_work *w, const tok_step *s, str in, buf *out, str *ret); /* nonspacing marks go */
bool tok_step_replace(tok_work *w, const tok_step *s, str in, buf *out, str *ret); /* a by b */
bool tok_step_prepend(tok_work *w, const tok_step *s, str in, buf *out, str *ret); /* a, where a stretch begins */
bool tok_step_clean(tok_work *w, const tok_step *s, str in, buf *out, str *ret);   /* BERT: control characters go, white space is a blank */
bool tok_step_han(tok_work *w, const tok_step *s, str in, buf *out, str *ret);     /* BERT: blanks around Chinese characters */
/* tok_spm.c: SentencePiece's normalizer, and its table alone as the tokenizers library applies it (a: the table) */
enum { TOK_SPM_PREFIX = 1, TOK_SPM_SQUEEZE = 2 };
bool tok_step_spm(tok_work *w, const tok_step *s, str in, buf *out, str *ret); /* flags: TOK_SPM_* */
bool tok_step_charsmap(tok_work *w, const tok_step *s, str in, buf *out, str *ret);
bool tok_charsmap_check(str table, const char *where, err *e);
bool tok_is_white(uint32_t cp); /* Unicode's White_Space */
#define TOK_META_CHAR "\xe2\x96\x81"

bool tok_step_replace_re(tok_work *w, const tok_step *s, str in, buf *out, str *ret); /* matches of re by b; in tok_pre.c */

/* --- tok_regex.c: a foreign regular expression or a plain string as one of PCRE2 --- */
bool tok_regex(str in, buf *out, err *e);
bool tok_regex_quote(str in, buf *out, err *e);

/* --- tok_pipe.c: the sections of a tokenizer.json but for its model; each may be NULL --- */
bool tok_pipe_normalizer(tok *t, json_t *v, err *e);
bool tok_pipe_pre(tok *t, json_t *v, bool *ret_byte_level, err *e);
bool tok_pipe_decoder(tok *t, json_t *v, tok_form *ret, err *e); /* also t->strip */
bool tok_pipe_post(tok *t, json_t *v, err *e);                   /* t->first, t->last */

/* --- tok_json.c: a pull reader for the large arrays of a tokenizer.json; text handed out lies in the text or in `own` --- */
typedef struct tok_json {
  str in;
  size_t at;
  arena *own;
  err *e;
  const char *where; /* for messages */
} tok_json;
typedef bool tok_json_fn(tok_json *j, str key, void *ctx); /* must consume the value */
bool tok_json_object(tok_json *j, tok_json_fn *fn, void *ctx);
bool tok_json_array(tok_json *j, tok_json_fn *fn, void *ctx); /* key is empty */
bool tok_json_str(tok_json *j, str *ret);
bool tok_json_f64(tok_json *j, double *ret);
bool tok_json_raw(tok_json *j, str *ret); /* any value, as it stands */
char tok_json_peek(tok_json *j);          /* first byte of the value that comes; 0: none */
#endif
