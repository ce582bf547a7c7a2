/* The vocabulary: flat tables from plain arrays.
 *
 * Start-up is part of the time to the first token, so the tables are open addressing without an allocation per token. */
#include "model/tok_impl.h"
#include "base/hash.h"
#include <stdlib.h>

enum { MAX_SPECIAL = 1024 }; /* bytes of a control token: bounds the work per byte of text when they are looked for */
static const size_t MAX_TEXT = (size_t)1 << 30;

/* --- text -> id --- */

int32_t tok_lookup(const tok *t, str text, int classes) {
  uint64_t h = hash64(text.p, text.n, 0);
  for (uint64_t i = h;; i++) {
    tok_slot s = t->slot[i & t->slot_mask];
    if (s.id < 0) return -1;
    if (s.tag == (uint32_t)(h >> 32) && str_eq(tok_text(t, s.id), text) && (tok_class(t, s.id) & classes)) return s.id;
  }
}

uint32_t tok_table_mask(uint64_t n) {
  uint64_t cap = 1024;
  while (cap < n + n / 2) cap *= 2;
  return (uint32_t)(cap - 1);
}

/* --- forms --- */

/* GPT-2's alphabet writes a printable byte of Latin-1 as that character, the other 68 as U+0100, U+0101, ... */
static int alphabet_byte(unsigned c) {
  if (c < 256) return (c >= 33 && c <= 126) || (c >= 161 && c != 173) ? (int)c : -1;
  c -= 256;
  return c < 33 ? (int)c : c < 67 ? (int)c + 127 - 33 : c == 67 ? 173 : -1;
}

/* A string with a character outside the alphabet stands for itself. */
static size_t alphabet_bytes(str s, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < s.n; n++) {
    unsigned c = (uint8_t)s.p[i++];
    if (c >= 0x80) {
      if (c < 0xc2 || c > 0xc5 || i == s.n || ((uint8_t)s.p[i] & 0xc0) != 0x80) goto literal;
      c = (c & 0x1f) << 6 | ((uint8_t)s.p[i++] & 0x3f);
    }
    int byte = alphabet_byte(c);
    if (byte < 0) goto literal;
    out[n] = (char)byte;
  }
  return n;
literal:
  memcpy(out, s.p, s.n);
  return s.n;
}

static size_t meta_bytes(str s, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < s.n;) {
    bool meta = s.p[i] == TOK_META_CHAR[0] && s.n - i >= 3 && !memcmp(s.p + i, TOK_META_CHAR, 3);
    out[n++] = meta ? ' ' : s.p[i];
    i += meta ? 3 : 1;
  }
  return n;
}

size_t tok_form_bytes(tok_form f, str s, char *out) {
  if (f == TOK_FORM_BYTES) return alphabet_bytes(s, out);
  if (f == TOK_FORM_META) return meta_bytes(s, out);
  bool mark = str_starts(s, f == TOK_FORM_LEAD ? STR(TOK_META_CHAR) : STR("##"));
  size_t skip = mark ? (f == TOK_FORM_LEAD ? 3 : 2) : 0, lead = mark == (f == TOK_FORM_LEAD);
  if (lead) out[0] = ' ';
  memcpy(out + lead, s.p + skip, s.n - skip);
  return lead + s.n - skip;
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static size_t token_bytes(const tok *t, str s, int type, char *out) {
  if (type == TOK_BYTE && s.n == 6 && str_starts(s, STR("<0x")) && s.p[5] == '>' && hex(s.p[3]) >= 0 && hex(s.p[4]) >= 0) {
    out[0] = (char)(hex(s.p[3]) << 4 | hex(s.p[4]));
    return 1;
  }
  /* User-defined words are looked for in text that is in this form already. */
  if (type == TOK_NORMAL || type == TOK_UNUSED || (type == TOK_USER && t->words)) return tok_form_bytes(t->form, s, out);
  memcpy(out, s.p, s.n);
  return s.n;
}

/* --- building --- */

static bool check_src(const tok_src *s, err *e) {
  if (s->n_tokens <= 0 || !s->tokens) return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "the vocabulary has no tokens");
  if (s->n_tokens > 1 << 24)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "a vocabulary of %d tokens is over the bound of %d", s->n_tokens, 1 << 24);
  const struct {
    const char *key;
    int id;
  } ids[] = {{"tokenizer.ggml.bos_token_id", s->bos}, {"tokenizer.ggml.eos_token_id", s->eos}, {"tokenizer.ggml.eot_token_id", s->eot},
      {"tokenizer.ggml.unknown_token_id", s->unk}, {"tokenizer.ggml.padding_token_id", s->pad}};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    if (ids[i].id < -1 || ids[i].id >= s->n_tokens)
      return err_param(e, ERR_INPUT, ids[i].key, "token id %d is outside the vocabulary of %d tokens", ids[i].id, s->n_tokens);
  return true;
}

/* Each entry of a large table is a cache miss. Entries are therefore put in AHEAD later than they are known, when their place has been fetched. */
enum { AHEAD = 16 };

static void slot_add(tok *t, int32_t id, uint64_t h) {
  str text = tok_text(t, id);
  uint64_t i = h;
  for (; t->slot[i & t->slot_mask].id >= 0; i++) {
    tok_slot s = t->slot[i & t->slot_mask];
    if (s.tag != (uint32_t)(h >> 32) || !str_eq(tok_text(t, s.id), text) || tok_class(t, s.id) != tok_class(t, id)) continue;
    /* Of equals the last counts, as in the reference. Keeping both would let a file of a million equal tokens make this loop quadratic. */
    t->twins = true;
    break;
  }
  t->slot[i & t->slot_mask] = (tok_slot){(uint32_t)(h >> 32), id};
}

/* Byte tokens of a vocabulary of characters are not words: "<0x41>" is never what an A becomes while the vocabulary has an A. */
static bool has_slot(const tok *t, int32_t id) { return t->off[id + 1] > t->off[id] && !(t->types[id] == TOK_BYTE && t->form != TOK_FORM_BYTES); }

static bool alloc_text(tok *t, const tok_src *s, err *e) {
  size_t total = (size_t)t->n + 1;
  for (int i = 0; i < t->n; i++) {
    if (s->tokens[i].n > MAX_TEXT || (total += s->tokens[i].n) > MAX_TEXT)
      return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "the tokens' text is over the bound of %zu bytes (at token %d)", MAX_TEXT, i);
    if (s->types && (s->types[i] < TOK_NORMAL || s->types[i] > TOK_BYTE))
      return err_param(e, ERR_INPUT, "tokenizer.ggml.token_type", "token %d has type %d; known types are 1 to 6", i, s->types[i]);
  }
  t->slot_mask = tok_table_mask((uint64_t)t->n);
  t->types = malloc((size_t)t->n);
  t->off = malloc(((size_t)t->n + 1) * sizeof *t->off);
  t->text = malloc(total);
  t->slot = malloc(((size_t)t->slot_mask + 1) * sizeof *t->slot);
  t->whole = calloc((size_t)t->n, sizeof *t->whole);
  return (t->types && t->off && t->text && t->slot && t->whole) || err_set(e, ERR_NOMEM, "out of memory for a vocabulary of %d tokens", t->n);
}

static bool build_text(tok *t, const tok_src *s, err *e) {
  if (!alloc_text(t, s, e)) return false;
  memset(t->slot, 0xff, ((size_t)t->slot_mask + 1) * sizeof *t->slot);
  memset(t->splits, 1, sizeof t->splits);
  uint32_t at = 0;
  uint64_t hash[AHEAD];
  for (int i = 0; i < t->n + AHEAD; i++) {
    int32_t late = i - AHEAD;
    if (late >= 0 && has_slot(t, late)) slot_add(t, late, hash[late % AHEAD]);
    if (i >= t->n) continue;
    t->types[i] = s->types ? s->types[i] : TOK_NORMAL;
    t->off[i] = at;
    if (s->tokens[i].n) at += (uint32_t)token_bytes(t, s->tokens[i], t->types[i], t->text + at);
    t->off[i + 1] = at;
    for (uint32_t k = t->off[i] + 1; t->form == TOK_FORM_META && k < at; k++)
      if (t->text[k] == ' ') t->splits[(uint8_t)t->text[k - 1]] = t->types[i] != TOK_NORMAL && t->splits[(uint8_t)t->text[k - 1]];
    hash[i % AHEAD] = hash64(t->text + t->off[i], at - t->off[i], 0);
    __builtin_prefetch(&t->slot[hash[i % AHEAD] & t->slot_mask], 1);
  }
  return true;
}

static void build_bytes(tok *t) {
  for (int i = 0; i < 256; i++) t->byte_id[i] = -1;
  for (int i = 0; i < t->n; i++)
    if (t->types[i] == TOK_BYTE && t->off[i + 1] == t->off[i] + 1) t->byte_id[(uint8_t)t->text[t->off[i]]] = i;
  for (int i = 0; i < 256; i++) {
    char c = (char)i;
    int32_t id = tok_lookup(t, (str){&c, 1}, TOK_CLASS_NORMAL);
    if (t->form == TOK_FORM_BYTES) t->byte_id[i] = id;
    if (i < 128) t->ascii_id[i] = id;
  }
}

/* --- tokens that are looked for in text --- */

static int by_text(const void *pa, const void *pb) {
  const tok_word *a = pa, *b = pb;
  int c = memcmp(a->text.p, b->text.p, a->text.n < b->text.n ? a->text.n : b->text.n);
  return c ? c : a->text.n != b->text.n ? (a->text.n < b->text.n ? -1 : 1) : a->id < b->id ? -1 : 1;
}

static bool in_special(const tok *t, int32_t id) { return t->types[id] == TOK_CONTROL || (t->types[id] == TOK_USER && !t->late_user); }
static bool in_user(const tok *t, int32_t id) { return t->types[id] == TOK_USER && !in_special(t, id); }

static bool set_add(tok_set *set, tok_word x, err *e) {
  if (!x.text.n) return true;
  if (x.text.n > MAX_SPECIAL)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "token %d, a control or user-defined one, has %zu bytes; the bound is %d", x.id, x.text.n,
        MAX_SPECIAL);
  set->v[set->n++] = x;
  set->first[(uint8_t)x.text.p[0]] = true;
  return true;
}

static bool build_set(tok *t, tok_set *set, bool (*in)(const tok *, int32_t), int n_alias, err *e) {
  size_t n = (size_t)n_alias + 1;
  for (int i = 0; i < t->n; i++) n += in(t, i);
  if (!(set->v = malloc(n * sizeof *set->v))) return err_set(e, ERR_NOMEM, "out of memory for %zu special tokens", n);
  for (int i = 0; i < t->n; i++)
    if (in(t, i) && !set_add(set, (tok_word){tok_text(t, i), i}, e)) return false;
  for (int i = 0; i < n_alias; i++)
    if (!set_add(set, t->alias[i], e)) return false;
  qsort(set->v, (size_t)set->n, sizeof *set->v, by_text);
  return true;
}

/* Byte d of token k of the set, or -1 behind its end: sorts a token before those it is a prefix of. */
static inline int set_byte(const tok_set *set, int k, size_t d) {
  str x = set->v[k].text;
  return d < x.n ? (uint8_t)x.p[d] : -1;
}

static int set_bound(const tok_set *set, int lo, int hi, size_t d, int c) { /* first k in [lo, hi) whose byte d is >= c */
  while (lo < hi) {
    int mid = lo + (hi - lo) / 2;
    if (set_byte(set, mid, d) < c) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/* The sorted list is narrowed byte by byte: at most as many steps as the longest token has bytes, whatever the text holds. */
int32_t tok_set_at(const tok *t, const tok_set *set, str text, size_t at, const uint8_t *trust, bool control, size_t *ret_len) {
  int lo = 0, hi = set->n;
  int32_t best = -1;
  bool trusted = control;
  for (size_t d = 0; at + d < text.n; d++) {
    trusted = trusted && (!trust || trust[at + d]);
    if (!trusted && !t->words) break;
    int c = (uint8_t)text.p[at + d];
    lo = set_bound(set, lo, hi, d, c);
    hi = set_bound(set, lo, hi, d, c + 1);
    if (lo == hi) break;
    if (set_byte(set, lo, d + 1) < 0 && (trusted || t->types[set->v[lo].id] != TOK_CONTROL)) {
      best = set->v[lo].id;
      *ret_len = d + 1;
    }
  }
  return best;
}

/* Names that end a turn or a text in the vocabularies met so far. A file names one of them; a chat model often stops with another. */
static const char *const end_names[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>",
    "<|call|>", "<end_of_turn>", "<eos>", "</s>", "<|END_OF_TURN_TOKEN|>"};
enum { N_END_NAMES = sizeof end_names / sizeof *end_names };

static void end_add(tok *t, int32_t id) {
  int i = t->n_ends;
  if (id < 0 || tok_is_end(t, id)) return;
  for (; i > 0 && t->ends[i - 1] > id; i--) t->ends[i] = t->ends[i - 1];
  t->ends[i] = id;
  t->n_ends++;
}

static bool build_ends(tok *t, const tok_src *s, const int32_t *more, int n_more, err *e) {
  if (!(t->ends = malloc((N_END_NAMES + 2 + (size_t)n_more) * sizeof *t->ends))) return err_set(e, ERR_NOMEM, "out of memory for the end tokens");
  end_add(t, s->eos);
  end_add(t, s->eot);
  for (int i = 0; i < n_more; i++)
    if (more[i] < t->n) end_add(t, more[i]);
  for (int i = 0; i < N_END_NAMES; i++) {
    int32_t id = tok_lookup(t, str_c(end_names[i]), TOK_CLASS_SPECIAL);
    if (id >= 0 && t->types[id] == TOK_CONTROL) end_add(t, id);
  }
  return true;
}

tok *tok_begin(err *e) {
  tok *t = calloc(1, sizeof *t);
  if (!t) {
    err_set(e, ERR_NOMEM, "out of memory for a tokenizer");
    return NULL;
  }
  arena_init(&t->own, (size_t)256 << 20);
  t->bos = t->eos = t->unk = t->first = t->last = -1;
  return t;
}

bool tok_finish(tok *t, const tok_src *s, const int32_t *more, int n_more, tok **ret, err *e) {
  bool ok = check_src(s, e);
  t->n = s->n_tokens;
  t->bos = s->bos;
  t->eos = s->eos;
  t->unk = s->unk;
  ok = ok && build_text(t, s, e);
  if (ok) build_bytes(t);
  ok = ok && t->model->build(t, s, e) && build_set(t, &t->special, in_special, t->n_alias, e) && build_set(t, &t->user, in_user, 0, e) &&
       build_ends(t, s, more, n_more, e);
  if (ok) *ret = t;
  else tok_free(t);
  return ok;
}

void tok_free(tok *t) {
  if (!t) return;
  for (int i = 0; i < t->n_cut; i++) tok_re_free(t->cut[i].re);
  for (int i = 0; i < t->n_norm; i++) tok_re_free(t->norm[i].re);
  tok_trie_free(t->trie);
  free(t->types);
  free(t->off);
  free(t->text);
  free(t->slot);
  free(t->merge);
  free(t->order);
  free((void *)t->whole);
  free(t->special.v);
  free(t->user.v);
  free(t->eats);
  free(t->ends);
  arena_fini(&t->own);
  free(t);
}
