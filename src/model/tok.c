/* The vocabulary: tables from plain arrays, special tokens, and the walk of a text from special token to special token.
 *
 * Start-up is part of the time to the first token, so the tables are flat (open addressing, no allocation per token) and a merge's result is guessed
 * before it is looked up: vocabularies number their tokens in the order of their merges, so it is nearly always the id after the last one. */
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

/* --- the byte alphabet --- */

/* Byte-level vocabularies write each byte as a printable character: those of Latin-1 as themselves, the other 68 as U+0100, U+0101, ... (GPT-2). */
enum { ALPHABET = 256 + 68 };
static void alphabet_init(int16_t byte_of[ALPHABET]) {
  int next = 256;
  for (int i = 0; i < ALPHABET; i++) byte_of[i] = -1;
  for (int b = 0; b < 256; b++) {
    bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    byte_of[self ? b : next++] = (int16_t)b;
  }
}

/* Writes the bytes that s stands for (never more than s.n); a string with a character outside the alphabet stands for itself. */
static size_t bytes_of(const int16_t byte_of[ALPHABET], str s, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < s.n; n++) {
    unsigned c = (uint8_t)s.p[i++];
    if (c >= 0x80) {
      if (c < 0xc2 || c > 0xc5 || i == s.n || ((uint8_t)s.p[i] & 0xc0) != 0x80) goto literal;
      c = (c & 0x1f) << 6 | ((uint8_t)s.p[i++] & 0x3f);
    }
    if (c >= ALPHABET || byte_of[c] < 0) goto literal;
    out[n] = (char)byte_of[c];
  }
  return n;
literal:
  memcpy(out, s.p, s.n);
  return s.n;
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static size_t token_bytes(const int16_t byte_of[ALPHABET], str s, int type, char *out) {
  if (type == TOK_BYTE && s.n == 6 && str_starts(s, STR("<0x")) && s.p[5] == '>' && hex(s.p[3]) >= 0 && hex(s.p[4]) >= 0) {
    out[0] = (char)(hex(s.p[3]) << 4 | hex(s.p[4]));
    return 1;
  }
  if (type == TOK_NORMAL || type == TOK_UNUSED) return bytes_of(byte_of, s, out);
  memcpy(out, s.p, s.n);
  return s.n;
}

/* --- building --- */

static uint32_t table_mask(int n) {
  uint32_t cap = 1024;
  while (cap < (uint64_t)n + (uint64_t)n / 2) cap *= 2;
  return cap - 1;
}

static bool check_src(const tok_src *s, err *e) {
  if (!s->model || strcmp(s->model, "gpt2") != 0)
    return err_param(e, ERR_UNSUPPORTED, "tokenizer.ggml.model", "tokenizer model \"%.60s\" is not supported: supported is \"gpt2\" (byte-level BPE)",
        s->model ? s->model : "");
  if (s->n_tokens <= 0 || !s->tokens) return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "the vocabulary has no tokens");
  if (s->n_tokens > 1 << 24)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "a vocabulary of %d tokens is over the bound of %d", s->n_tokens, 1 << 24);
  if (s->n_merges <= 0 || !s->merges)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.merges",
        "byte-level BPE needs merges and the vocabulary has none; the file is incomplete, get it again or convert it again");
  if (s->n_merges > 1 << 24) return err_param(e, ERR_INPUT, "tokenizer.ggml.merges", "%d merges are over the bound of %d", s->n_merges, 1 << 24);
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

static bool build_text(tok *t, const tok_src *s, const int16_t byte_of[ALPHABET], err *e) {
  size_t total = 0;
  for (int i = 0; i < t->n; i++) {
    if (s->tokens[i].n > MAX_TEXT || (total += s->tokens[i].n) > MAX_TEXT)
      return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "the tokens' text is over the bound of %zu bytes (at token %d)", MAX_TEXT, i);
    if (s->types && (s->types[i] < TOK_NORMAL || s->types[i] > TOK_BYTE))
      return err_param(e, ERR_INPUT, "tokenizer.ggml.token_type", "token %d has type %d; known types are 1 to 6", i, s->types[i]);
  }
  t->slot_mask = table_mask(t->n);
  t->types = malloc((size_t)t->n);
  t->off = malloc(((size_t)t->n + 1) * sizeof *t->off);
  t->text = malloc(total + 1);
  t->slot = malloc(((size_t)t->slot_mask + 1) * sizeof *t->slot);
  t->whole = calloc((size_t)t->n, sizeof *t->whole);
  if (!t->types || !t->off || !t->text || !t->slot || !t->whole) return err_set(e, ERR_NOMEM, "out of memory for a vocabulary of %d tokens", t->n);
  memset(t->slot, 0xff, ((size_t)t->slot_mask + 1) * sizeof *t->slot);
  uint32_t at = 0;
  uint64_t hash[AHEAD];
  for (int i = 0; i < t->n + AHEAD; i++) {
    int32_t late = i - AHEAD;
    if (late >= 0 && t->off[late + 1] > t->off[late]) slot_add(t, late, hash[late % AHEAD]);
    if (i >= t->n) continue;
    t->types[i] = s->types ? s->types[i] : TOK_NORMAL;
    t->off[i] = at;
    if (s->tokens[i].n) at += (uint32_t)token_bytes(byte_of, s->tokens[i], t->types[i], t->text + at);
    t->off[i + 1] = at;
    hash[i % AHEAD] = hash64(t->text + t->off[i], at - t->off[i], 0);
    __builtin_prefetch(&t->slot[hash[i % AHEAD] & t->slot_mask], 1);
  }
  return true;
}

static bool build_bytes(tok *t, err *e) {
  for (int b = 0; b < 256; b++) {
    char c = (char)b;
    t->byte_id[b] = tok_lookup(t, (str){&c, 1}, TOK_CLASS_NORMAL);
    /* Rare bytes may be missing (SmolLM2 lacks 21 that its training text never had); without plain letters this is no byte-level vocabulary. */
    if (t->byte_id[b] < 0 && b >= ' ' && b <= '~')
      return err_param(
          e, ERR_INPUT, "tokenizer.ggml.tokens", "the vocabulary has no token for the byte 0x%02x ('%c'); byte-level BPE needs one", b, b);
  }
  return true;
}

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

/* Reads merge i, "left right". `both` holds the bytes of the two halves on return from bytes_of, so their join needs no copy. */
static bool resolve_merge(const tok *t, const tok_src *s, int i, const int16_t byte_of[ALPHABET], char *both, int32_t guess, tok_merge *ret, err *e) {
  str a, b;
  if (!str_cut(s->merges[i], ' ', &a, &b) || !a.n || !b.n)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.merges", "merge %d is not two tokens with a blank between them", i);
  size_t na = bytes_of(byte_of, a, both), nb = bytes_of(byte_of, b, both + na);
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

static bool build_merges(tok *t, const tok_src *s, const int16_t byte_of[ALPHABET], err *e) {
  size_t longest = 0;
  for (int i = 0; i < s->n_merges; i++)
    if (s->merges[i].n > longest) longest = s->merges[i].n;
  if (longest > MAX_TEXT) return err_param(e, ERR_INPUT, "tokenizer.ggml.merges", "a merge of %zu bytes is over the bound of %zu", longest, MAX_TEXT);
  t->merge_mask = table_mask(s->n_merges);
  t->merge = malloc(((size_t)t->merge_mask + 1) * sizeof *t->merge);
  char *both = malloc(longest + 1);
  bool ok = t->merge && both;
  if (!ok) err_set(e, ERR_NOMEM, "out of memory for %d merges", s->n_merges);
  else memset(t->merge, 0xff, ((size_t)t->merge_mask + 1) * sizeof *t->merge);
  tok_merge wait[AHEAD];
  for (int i = 0; ok && i < s->n_merges + AHEAD; i++) {
    tok_merge *m = &wait[i % AHEAD];
    int32_t guess = i ? wait[(i - 1) % AHEAD].id + 1 : 0;
    if (i >= AHEAD) merge_add(t, m);
    if (i >= s->n_merges) continue;
    ok = resolve_merge(t, s, i, byte_of, both, guess, m, e);
    if (ok) __builtin_prefetch(&t->merge[tok_pair_hash(m->left, m->right) & t->merge_mask], 1);
  }
  free(both);
  return ok;
}

static int by_text(const void *pa, const void *pb, void *ctx) {
  const tok *t = ctx;
  int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
  str x = tok_text(t, a), y = tok_text(t, b);
  int c = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
  return c ? c : x.n != y.n ? (x.n < y.n ? -1 : 1) : a < b ? -1 : 1;
}

static bool is_special(const tok *t, int32_t id) { return (t->types[id] == TOK_CONTROL || t->types[id] == TOK_USER) && t->off[id + 1] > t->off[id]; }

static bool build_special(tok *t, err *e) {
  int n = 0;
  for (int i = 0; i < t->n; i++) n += is_special(t, i);
  if (!(t->special = malloc(((size_t)n + 1) * sizeof *t->special))) return err_set(e, ERR_NOMEM, "out of memory for %d special tokens", n);
  for (int i = 0; i < t->n; i++) {
    if (!is_special(t, i)) continue;
    str x = tok_text(t, i);
    if (x.n > MAX_SPECIAL)
      return err_param(
          e, ERR_INPUT, "tokenizer.ggml.tokens", "token %d, a control or user-defined one, has %zu bytes; the bound is %d", i, x.n, MAX_SPECIAL);
    t->special[t->n_special++] = i;
    t->special_first[(uint8_t)x.p[0]] = true;
  }
  qsort_r(t->special, (size_t)n, sizeof *t->special, by_text, t);
  return true;
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

static bool build_ends(tok *t, const tok_src *s, err *e) {
  if (!(t->ends = malloc((N_END_NAMES + 2) * sizeof *t->ends))) return err_set(e, ERR_NOMEM, "out of memory for the end tokens");
  end_add(t, s->eos);
  end_add(t, s->eot);
  for (int i = 0; i < N_END_NAMES; i++) {
    int32_t id = tok_lookup(t, str_c(end_names[i]), TOK_CLASS_SPECIAL);
    if (id >= 0 && t->types[id] == TOK_CONTROL) end_add(t, id);
  }
  return true;
}

bool tok_new(const tok_src *src, tok **ret, err *e) {
  char known[400];
  str name = src->pre ? str_c(src->pre) : STR("gpt2");
  if (!check_src(src, e)) return false;
  const tok_pre *pre = tok_pre_find(name);
  if (!pre) {
    tok_pre_names(known, sizeof known);
    return err_param(e, ERR_UNSUPPORTED, "tokenizer.ggml.pre", "pre-tokenizer \"%.60s\" is not known; known are: %s", src->pre, known);
  }
  int16_t byte_of[ALPHABET];
  alphabet_init(byte_of);
  tok *t = calloc(1, sizeof *t);
  if (!t) return err_set(e, ERR_NOMEM, "out of memory for a tokenizer");
  *t = (tok){.pre = pre, .n = src->n_tokens, .bos = src->bos, .eos = src->eos, .add_bos = src->add_bos, .add_eos = src->add_eos};
  if (!tok_re_new(pre, &t->re, e) || !build_text(t, src, byte_of, e) || !build_bytes(t, e) || !build_merges(t, src, byte_of, e) ||
      !build_special(t, e) || !build_ends(t, src, e)) {
    tok_free(t);
    return false;
  }
  *ret = t;
  return true;
}

void tok_free(tok *t) {
  if (!t) return;
  tok_re_free(t->re);
  free(t->types);
  free(t->off);
  free(t->text);
  free(t->slot);
  free(t->merge);
  free((void *)t->whole);
  free(t->special);
  free(t->ends);
  free(t);
}

/* --- asking --- */

int tok_count(const tok *t) { return t->n; }
int tok_type(const tok *t, int32_t id) { return id >= 0 && id < t->n ? t->types[id] : 0; }
int tok_bos(const tok *t) { return t->bos; }
int tok_eos(const tok *t) { return t->eos; }
bool tok_adds_bos(const tok *t) { return t->add_bos && t->bos >= 0; }

int tok_find(const tok *t, str text) {
  int32_t id = tok_lookup(t, text, TOK_CLASS_SPECIAL);
  return id >= 0 ? id : tok_lookup(t, text, TOK_CLASS_NORMAL);
}

bool tok_is_end(const tok *t, int32_t id) {
  for (int i = 0; i < t->n_ends; i++)
    if (t->ends[i] == id) return true;
  return false;
}

const int32_t *tok_ends(const tok *t, int *ret_n) {
  *ret_n = t->n_ends;
  return t->ends;
}

/* --- encoding --- */

bool tok_put(tok_work *w, int32_t id) {
  tok_ids *o = w->out;
  if (o->n == o->cap) {
    int cap = o->cap < 1 << 29 ? o->cap * 2 + 64 : INT32_MAX;
    int32_t *v = o->n < cap ? realloc(o->v, (size_t)cap * sizeof *v) : NULL;
    if (!v) return err_set(w->e, ERR_NOMEM, "out of memory for %d token ids", cap);
    o->v = v;
    o->cap = cap;
  }
  o->v[o->n++] = id;
  return true;
}

/* Byte d of special token k, or -1 behind its end: sorts a token before those it is a prefix of. */
static inline int special_byte(const tok *t, int k, size_t d) {
  str x = tok_text(t, t->special[k]);
  return d < x.n ? (uint8_t)x.p[d] : -1;
}

static int special_bound(const tok *t, int lo, int hi, size_t d, int c) { /* first k in [lo, hi) whose byte d is >= c */
  while (lo < hi) {
    int mid = lo + (hi - lo) / 2;
    if (special_byte(t, mid, d) < c) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/* The longest special token that begins at `at` and lies wholly in trusted bytes, or -1. The sorted list is narrowed byte by byte: at most as many
 * steps as the longest special token has bytes, whatever the text holds. */
static int32_t special_at(const tok *t, str text, size_t at, const uint8_t *trust, size_t *ret_len) {
  int lo = 0, hi = t->n_special;
  int32_t best = -1;
  for (size_t d = 0; at + d < text.n && (!trust || trust[at + d]); d++) {
    int c = (uint8_t)text.p[at + d];
    lo = special_bound(t, lo, hi, d, c);
    hi = special_bound(t, lo, hi, d, c + 1);
    if (lo == hi) break;
    if (special_byte(t, lo, d + 1) < 0) {
      best = t->special[lo];
      *ret_len = d + 1;
    }
  }
  return best;
}

/* Text without special tokens. The pre-tokenizer is shown valid UTF-8 only: a stretch of other bytes ends what stands before it and is a piece
 * itself. */
static bool encode_plain(tok_work *w, str s) {
  while (s.n) {
    uint32_t cp;
    size_t n = utf8_valid_prefix(s, NULL);
    if (n && !tok_cut(w, (str){s.p, n})) return false;
    size_t bad = n;
    while (bad < s.n && !utf8_decode(s.p + bad, s.n - bad, &cp)) bad++;
    if (bad > n && !tok_bpe(w, (str){s.p + n, bad - n})) return false;
    s = (str){s.p + bad, s.n - bad};
  }
  return true;
}

static bool encode_all(tok_work *w, str text, const uint8_t *trust, bool parse_special) {
  const tok *t = w->t;
  size_t from = 0, len = 0;
  for (size_t i = 0; parse_special && i < text.n;) {
    int32_t id = t->special_first[(uint8_t)text.p[i]] ? special_at(t, text, i, trust, &len) : -1;
    if (id < 0) {
      i++;
      continue;
    }
    if (!encode_plain(w, (str){text.p + from, i - from}) || !tok_put(w, id)) return false;
    from = i += len;
  }
  return encode_plain(w, (str){text.p + from, text.n - from});
}

/* BOS goes to the very front, unless it stands there already: a template that writes it itself must not double it. */
static bool put_bos(tok_work *w) {
  tok_ids *o = w->out;
  if (!tok_adds_bos(w->t) || (o->n && o->v[0] == w->t->bos)) return true;
  if (!tok_put(w, 0)) return false;
  memmove(o->v + 1, o->v, (size_t)(o->n - 1) * sizeof *o->v);
  o->v[0] = w->t->bos;
  return true;
}

bool tok_encode(const tok *t, str text, const uint8_t *trust, bool parse_special, bool add_special, tok_ids *ids, err *e) {
  if (text.n > MAX_TEXT) return err_set(e, ERR_TOO_LARGE, "a text of %zu bytes is over the tokenizer's bound of %zu", text.n, MAX_TEXT);
  tok_work w;
  int before = ids->n;
  bool ok = tok_work_init(&w, t, ids, e) && encode_all(&w, text, trust, parse_special);
  if (ok && add_special && before == 0) ok = put_bos(&w);
  if (ok && add_special && t->add_eos && t->eos >= 0 && (!ids->n || ids->v[ids->n - 1] != t->eos)) ok = tok_put(&w, t->eos);
  if (!ok) ids->n = before;
  tok_work_fini(&w);
  return ok;
}
