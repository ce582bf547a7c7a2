/* tokenizer.json, the form in which the tokenizers library writes a whole pipeline: added tokens, normalizer, pre-tokenizer, model, post-processor,
 * decoder. The small sections are documents (tok_pipe.c), vocabulary and merges are pulled from the text (tok_json.c).
 *
 * What is not read is refused by name and never guessed: a model behind a tokenizer that is almost right is worse than none. */
#include "model/tok_impl.h"
#include <stdio.h>
#include <stdlib.h>

/* The pipeline says how text is written, the model how it is spelled: rows for what both together make. */
static const tok_model kinds[] = {
    {.name = "BPE", .form = TOK_FORM_BYTES, .build = tok_bpe_build, .piece = tok_bpe},
    {.name = "BPE", .form = TOK_FORM_META, .build = tok_bpe_build, .piece = tok_spm},
    {.name = "Unigram", .form = TOK_FORM_META, .build = tok_unigram_build, .piece = tok_unigram},
    {.name = "WordPiece", .form = TOK_FORM_HASHES, .build = tok_wordpiece_build, .piece = tok_wordpiece},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

typedef struct named {
  str text;
  double score;
  int32_t id;
} named;

typedef struct hf {
  tok *t;
  err *e;
  arena tmp;
  str added, normalizer, pre, post, decoder, model; /* sections, as they stand */
  str type, vocab, merges;                          /* of the model */
  str unk_token, prefix, suffix;
  int64_t unk_id, max_chars;
  bool byte_fallback, fuse_unk, ignore_merges, dropout;
  named *list; /* the vocabulary in the order of the file */
  int n_list, cap;
  str *left, *right;
  int n_merges, cap_merges;
  str *tokens;
  uint8_t *types;
  double *scores;
  int n;
} hf;

static bool refuse(hf *h, const char *what, const char *why) { return err_param(h->e, ERR_UNSUPPORTED, "tokenizer.json", "%s %s", what, why); }

static tok_json open_json(hf *h, str in, const char *where) { return (tok_json){.in = in, .own = &h->tmp, .e = h->e, .where = where}; }

/* --- sections --- */

static bool top_field(tok_json *j, str key, void *ctx) {
  hf *h = ctx;
  str skipped;
  const struct {
    const char *key;
    str *to;
  } fields[] = {{"added_tokens", &h->added}, {"normalizer", &h->normalizer}, {"pre_tokenizer", &h->pre}, {"post_processor", &h->post},
      {"decoder", &h->decoder}, {"model", &h->model}, {"version", &skipped}, {"truncation", &skipped}, {"padding", &skipped}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (str_is(key, fields[i].key)) return tok_json_raw(j, fields[i].to);
  return err_param(h->e, ERR_UNSUPPORTED, "tokenizer.json", "the section \"%.*s\" is not known", (int)(key.n < 60 ? key.n : 60), key.p);
}

static bool json_is_nothing(tok_json *j) {
  str raw;
  return tok_json_peek(j) == 'n' && tok_json_raw(j, &raw);
}

static bool json_flag(tok_json *j, bool *ret) {
  str raw;
  if (!tok_json_raw(j, &raw)) return false;
  if (!str_is(raw, "true") && !str_is(raw, "false") && !str_is(raw, "null"))
    return err_param(j->e, ERR_INPUT, "tokenizer.json", "%s: expected true or false, got %.*s", j->where, (int)(raw.n < 40 ? raw.n : 40), raw.p);
  *ret = str_is(raw, "true");
  return true;
}

static bool json_int(tok_json *j, int64_t *ret) {
  double x;
  if (!tok_json_f64(j, &x)) return false;
  if (!(x >= 0 && x <= INT32_MAX && x == (double)(int64_t)x))
    return err_param(j->e, ERR_INPUT, "tokenizer.json", "%s: %g is no such number", j->where, x);
  *ret = (int64_t)x;
  return true;
}

static bool model_field(tok_json *j, str key, void *ctx) {
  hf *h = ctx;
  double x = 0;
  if (str_is(key, "vocab")) return tok_json_raw(j, &h->vocab);
  if (str_is(key, "merges")) return tok_json_raw(j, &h->merges);
  if (json_is_nothing(j)) return true;
  if (str_is(key, "type")) return tok_json_str(j, &h->type);
  if (str_is(key, "unk_token")) return tok_json_str(j, &h->unk_token);
  if (str_is(key, "continuing_subword_prefix")) return tok_json_str(j, &h->prefix);
  if (str_is(key, "end_of_word_suffix")) return tok_json_str(j, &h->suffix);
  if (str_is(key, "unk_id")) return json_int(j, &h->unk_id);
  if (str_is(key, "max_input_chars_per_word")) return json_int(j, &h->max_chars);
  if (str_is(key, "byte_fallback")) return json_flag(j, &h->byte_fallback);
  if (str_is(key, "fuse_unk")) return json_flag(j, &h->fuse_unk);
  if (str_is(key, "ignore_merges")) return json_flag(j, &h->ignore_merges);
  if (str_is(key, "dropout")) return tok_json_f64(j, &x) && (x == 0 || refuse(h, "model: dropout", "makes the ids of a text a matter of chance"));
  return err_param(h->e, ERR_UNSUPPORTED, "tokenizer.json", "model: the field \"%.*s\" is not known", (int)(key.n < 60 ? key.n : 60), key.p);
}

/* --- vocabulary and merges --- */

static bool grow(hf *h, void **p, int *cap, int n, size_t size) {
  if (n < *cap) return true;
  int more = *cap ? *cap * 2 : 4096;
  if (n >= 1 << 24) return err_param(h->e, ERR_INPUT, "tokenizer.json", "model: more than %d entries", 1 << 24);
  void *q = realloc(*p, (size_t)more * size);
  if (!q) return err_set(h->e, ERR_NOMEM, "out of memory for a vocabulary of %d tokens", more);
  *p = q;
  *cap = more;
  return true;
}

static bool vocab_entry(tok_json *j, str key, void *ctx) {
  hf *h = ctx;
  int64_t id = -1;
  if (!json_int(j, &id) || !grow(h, (void **)&h->list, &h->cap, h->n_list, sizeof *h->list)) return false;
  h->list[h->n_list++] = (named){key, 0, (int32_t)id};
  return true;
}

typedef struct pair {
  hf *h;
  str text[2];
  double score;
  int n;
} pair;

static bool score_half(tok_json *j, str key, void *ctx) {
  pair *p = ctx;
  (void)key;
  if (p->n++ == 0) return tok_json_str(j, &p->text[0]);
  if (p->n == 2) return tok_json_f64(j, &p->score);
  return err_param(j->e, ERR_INPUT, "tokenizer.json", "model: a token with more than a text and a score");
}

static bool vocab_scored(tok_json *j, str key, void *ctx) {
  hf *h = ctx;
  pair p = {0};
  (void)key;
  if (!tok_json_array(j, score_half, &p)) return false;
  if (p.n != 2) return err_param(h->e, ERR_INPUT, "tokenizer.json", "model: token %d is no pair of text and score", h->n_list);
  if (!grow(h, (void **)&h->list, &h->cap, h->n_list, sizeof *h->list)) return false;
  h->list[h->n_list] = (named){p.text[0], p.score, h->n_list};
  h->n_list++;
  return true;
}

static bool merge_half(tok_json *j, str key, void *ctx) {
  pair *p = ctx;
  (void)key;
  if (p->n == 2) return err_param(j->e, ERR_INPUT, "tokenizer.json", "model: a merge of more than two tokens");
  return tok_json_str(j, &p->text[p->n++]);
}

/* "a b" in older files, ["a", "b"] in newer ones. */
static bool merge_entry(tok_json *j, str key, void *ctx) {
  hf *h = ctx;
  pair p = {0};
  int cap = h->cap_merges;
  (void)key;
  if (tok_json_peek(j) == '[') {
    if (!tok_json_array(j, merge_half, &p)) return false;
  } else if (!tok_json_str(j, &p.text[1])) return false;
  else if (str_cut(p.text[1], ' ', &p.text[0], &p.text[1])) p.n = 2;
  if (p.n != 2) return err_param(h->e, ERR_INPUT, "tokenizer.json", "model: merge %d is not two tokens", h->n_merges);
  if (!grow(h, (void **)&h->left, &cap, h->n_merges, sizeof *h->left) || !grow(h, (void **)&h->right, &h->cap_merges, h->n_merges, sizeof *h->right))
    return false;
  h->left[h->n_merges] = p.text[0];
  h->right[h->n_merges++] = p.text[1];
  return true;
}

static bool read_vocab(hf *h) {
  tok_json v = open_json(h, h->vocab, "model.vocab"), m = open_json(h, h->merges, "model.merges");
  bool scored = h->vocab.n && h->vocab.p[0] == '[';
  if (!h->vocab.n) return err_param(h->e, ERR_INPUT, "tokenizer.json", "the model has no vocabulary");
  if (scored != str_is(h->type, "Unigram"))
    return err_param(h->e, ERR_INPUT, "tokenizer.json", "model.vocab: a vocabulary of another kind than %.*s has", (int)h->type.n, h->type.p);
  if (!(scored ? tok_json_array(&v, vocab_scored, h) : tok_json_object(&v, vocab_entry, h))) return false;
  return !h->merges.n || tok_json_array(&m, merge_entry, h);
}

static int find(const hf *h, str text) { /* few are looked for */
  for (int i = 0; i < h->n; i++)
    if (h->tokens[i].p && str_eq(h->tokens[i], text)) return i;
  return -1;
}

static bool alloc_tokens(hf *h, int64_t most) {
  for (int i = 0; i < h->n_list; i++)
    if (h->list[i].id > most) most = h->list[i].id;
  if (most >= (int64_t)h->n_list * 2 + 100000)
    return err_param(h->e, ERR_INPUT, "tokenizer.json", "token id %lld is far beyond the vocabulary of %d tokens", (long long)most, h->n_list);
  h->n = (int)most + 1;
  h->tokens = calloc((size_t)h->n, sizeof *h->tokens);
  h->types = calloc((size_t)h->n, 1);
  h->scores = calloc((size_t)h->n, sizeof *h->scores);
  if (!h->tokens || !h->types || !h->scores) return err_set(h->e, ERR_NOMEM, "out of memory for a vocabulary of %d tokens", h->n);
  memset(h->types, TOK_UNUSED, (size_t)h->n); /* ids that nobody has */
  return true;
}

static bool is_byte(str s) { return s.n == 6 && str_starts(s, STR("<0x")) && s.p[5] == '>'; }

static void place_tokens(hf *h) {
  for (int i = 0; i < h->n_list; i++) {
    named *x = &h->list[i];
    h->tokens[x->id] = x->text;
    h->scores[x->id] = x->score;
    h->types[x->id] = h->byte_fallback && is_byte(x->text) ? TOK_BYTE : TOK_NORMAL;
  }
}

/* --- added tokens --- */

/* They are looked for in the text as it comes. One that asks to be looked for behind the normalizer finds the same where that is the same. */
static bool found_as_written(const tok *t, str text) {
  for (int i = 0; i < t->n_norm; i++)
    if (t->norm[i].run != tok_step_form) return false;
  for (size_t i = 0; t->n_norm && i < text.n; i++)
    if ((uint8_t)text.p[i] >= 0x80) return false;
  return true;
}

static bool add_token(hf *h, json_t *v) {
  int64_t id = -1;
  str text = {"", 0};
  bool single = false, left = false, right = false, normalized = false, special = false;
  char name[80];
  if (!json_get_i64(v, "added_tokens", "id", 0, h->n - 1, &id, h->e) || !json_get_str(v, "added_tokens", "content", &text, h->e) ||
      !json_get_bool(v, "added_tokens", "single_word", &single, h->e) || !json_get_bool(v, "added_tokens", "lstrip", &left, h->e) ||
      !json_get_bool(v, "added_tokens", "rstrip", &right, h->e) || !json_get_bool(v, "added_tokens", "normalized", &normalized, h->e) ||
      !json_get_bool(v, "added_tokens", "special", &special, h->e))
    return false;
  snprintf(name, sizeof name, "added token \"%.*s\":", (int)(text.n < 50 ? text.n : 50), text.p);
  if (id < 0 || !text.n) return err_param(h->e, ERR_INPUT, "tokenizer.json", "%s it has no id or no text", name);
  if (single) return refuse(h, name, "single_word is not read");
  if (normalized && !found_as_written(h->t, text)) return refuse(h, name, "normalized behind this normalizer is not read");
  char *copy = arena_str(&h->t->own, text);
  if (!copy) return err_set(h->e, ERR_NOMEM, "out of memory for the added tokens");
  h->tokens[id] = (str){copy, text.n};
  if (left || right) {
    if (!h->t->eats && !(h->t->eats = calloc((size_t)h->n, 1))) return err_set(h->e, ERR_NOMEM, "out of memory for the added tokens");
    h->t->eats[id] = (uint8_t)((left ? TOK_EATS_LEFT : 0) | (right ? TOK_EATS_RIGHT : 0));
  }
  /* U+2581 is found in text only where somebody writes that character; what blanks become is the model's affair, so there it stays a word. */
  bool word = !special && h->t->form == TOK_FORM_META && str_find(text, STR(TOK_META_CHAR)) >= 0;
  h->types[id] = special ? TOK_CONTROL : word ? TOK_NORMAL : TOK_USER;
  if (word) h->t->alias[h->t->n_alias++] = (tok_word){h->tokens[id], (int32_t)id};
  return true;
}

static bool read_added(hf *h, json_t *list) {
  json_t *x;
  size_t i;
  int64_t most = -1;
  if (list && !json_is_array(list)) return err_param(h->e, ERR_INPUT, "tokenizer.json", "added_tokens: expected an array");
  json_array_foreach(list, i, x) {
    int64_t id = json_integer_value(json_object_get(x, "id"));
    if (id > most) most = id;
  }
  h->t->alias = ARENA_ARRAY(&h->t->own, tok_word, json_array_size(list) + 1);
  if (!h->t->alias) return err_set(h->e, ERR_NOMEM, "out of memory for the added tokens");
  if (!alloc_tokens(h, most)) return false;
  place_tokens(h);
  json_array_foreach(list, i, x) if (!add_token(h, x)) return false;
  return true;
}

/* --- all of it --- */

static bool section(hf *h, str raw, json_t **ret) { return !raw.n || json_parse(raw, ret, h->e); }

static bool read_pipe(hf *h, json_t *doc[5]) {
  tok *t = h->t;
  bool byte_level = false;
  const str raw[5] = {h->added, h->normalizer, h->pre, h->post, h->decoder};
  for (int i = 0; i < 5; i++)
    if (!section(h, raw[i], &doc[i])) return err_prefix(h->e, "tokenizer.json");
  if (!tok_pipe_normalizer(t, doc[1], h->e) || !tok_pipe_pre(t, doc[2], &byte_level, h->e) || !tok_pipe_post(t, doc[3], h->e) ||
      !tok_pipe_decoder(t, doc[4], &t->form, h->e))
    return false;
  if (byte_level != (t->form == TOK_FORM_BYTES)) return refuse(h, "decoder:", "it does not undo what the pre_tokenizer does");
  for (int i = 0; i < N_KINDS && !t->model; i++)
    if (str_is(h->type, kinds[i].name) && kinds[i].form == t->form) t->model = &kinds[i];
  if (!t->model) {
    char name[60];
    snprintf(name, sizeof name, "model \"%.*s\" with this decoder", (int)(h->type.n < 30 ? h->type.n : 30), h->type.p);
    return refuse(h, name, "is not read; docs/tokenizers.md lists what is");
  }
  return true;
}

/* What the library does by kind of model, and how the vocabulary is looked up. */
static bool set_rules(hf *h) {
  tok *t = h->t;
  bool meta = t->form == TOK_FORM_META, wordpiece = t->form == TOK_FORM_HASHES;
  if (h->suffix.n) return refuse(h, "model: end_of_word_suffix", "is not read");
  if (h->prefix.n && !(wordpiece && str_is(h->prefix, "##")))
    return refuse(h, "model: continuing_subword_prefix", "other than WordPiece's ## is not read");
  if (wordpiece && h->max_chars > 100) return refuse(h, "model: max_input_chars_per_word", "over 100 is not read");
  t->chars = t->words = meta;
  t->wide = str_is(h->type, "Unigram");
  t->fuse_unk = h->fuse_unk || t->wide;
  t->whole_first = h->ignore_merges;
  t->max_chars = (int)h->max_chars;
  /* U+2581 becomes a blank behind everything that could look at it. */
  if (meta && (!t->n_cut || !t->cut[t->n_cut - 1].meta)) t->cut[t->n_cut++] = (tok_cut_step){.meta = TOK_META_NEVER};
  return true;
}

/* tokenizer_config.json: names of special tokens, "x" or {"content": "x"}. */
static int config_token(hf *h, json_t *config, const char *key) {
  json_t *v = json_object_get(config, key);
  if (json_is_object(v)) v = json_object_get(v, "content");
  return json_is_string(v) ? find(h, (str){json_string_value(v), json_string_length(v)}) : -1;
}

static bool find_special(hf *h, json_t *config, int bos, tok_src *s) {
  tok *t = h->t;
  s->bos = bos >= 0 ? bos : config_token(h, config, "bos_token");
  s->eos = config_token(h, config, "eos_token");
  s->unk = h->unk_id >= 0 ? (int)h->unk_id : h->unk_token.p ? find(h, h->unk_token) : -1;
  /* Where the pipeline itself adds nothing, transformers adds what the configuration asks for. */
  if (t->first < 0 && json_is_true(json_object_get(config, "add_bos_token"))) t->first = s->bos;
  if (t->last < 0 && json_is_true(json_object_get(config, "add_eos_token"))) t->last = s->eos;
  if (t->first >= 0) s->bos = t->first;
  if (t->first >= h->n || t->last >= h->n || s->bos >= h->n || s->unk >= h->n)
    return err_param(h->e, ERR_INPUT, "tokenizer.json", "a special token's id is outside the vocabulary of %d tokens", h->n);
  if (s->unk >= 0 && h->types[s->unk] == TOK_NORMAL) h->types[s->unk] = TOK_UNKNOWN;
  return true;
}

static bool read_model(hf *h) {
  tok_json j = open_json(h, h->model, "model");
  if (!h->model.n) return err_param(h->e, ERR_INPUT, "tokenizer.json", "it has no model");
  if (!tok_json_object(&j, model_field, h)) return false;
  if (!h->type.p) h->type = h->merges.n ? STR("BPE") : STR(""); /* old files leave it out */
  bool known = false;
  for (int i = 0; i < N_KINDS; i++) known |= str_is(h->type, kinds[i].name);
  if (known) return true;
  return err_param(h->e, ERR_UNSUPPORTED, "tokenizer.json", "model \"%.*s\" is not read: BPE, Unigram and WordPiece are",
      (int)(h->type.n < 40 ? h->type.n : 40), h->type.p);
}

static bool read_all(hf *h, str json, str config_text, const int32_t *ends, int n_ends, int bos, json_t *doc[6], tok **ret) {
  tok_json j = open_json(h, json, "the file");
  if (!utf8_valid(json)) return err_param(h->e, ERR_INPUT, "tokenizer.json", "the file is not UTF-8");
  if (!tok_json_object(&j, top_field, h)) return false;
  if (tok_json_peek(&j)) return err_param(h->e, ERR_INPUT, "tokenizer.json", "there is something behind the document at byte %zu", j.at);
  tok_src s = {.bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1};
  if (!read_model(h) || !read_pipe(h, doc) || (config_text.n && !json_parse_wide(config_text, &doc[5], h->e)) || !read_vocab(h) || !set_rules(h) ||
      !read_added(h, doc[0]) || !find_special(h, doc[5], bos, &s))
    return false;
  s.tokens = h->tokens;
  s.n_tokens = h->n;
  s.types = h->types;
  s.merges = h->left;
  s.n_merges = h->n_merges;
  tok *t = h->t;
  t->scores64 = h->scores;
  t->merge_right = h->right;
  h->t = NULL; /* tok_finish takes it */
  if (!tok_finish(t, &s, ends, n_ends, ret, h->e)) return false;
  (*ret)->scores64 = NULL;
  (*ret)->merge_right = NULL;
  return true;
}

bool tok_from_hf(str tokenizer_json, str tokenizer_config, const int32_t *ends, int n_ends, int bos, tok **ret, err *e) {
  hf h = {.e = e, .unk_id = -1, .max_chars = 100};
  json_t *doc[6] = {0};
  arena_init(&h.tmp, (size_t)1 << 30);
  h.t = tok_begin(e);
  bool ok = h.t && read_all(&h, tokenizer_json, tokenizer_config, ends, n_ends, bos, doc, ret);
  for (int i = 0; i < 6; i++) json_decref(doc[i]);
  if (!ok && e && (!e->param[0] || str_starts(str_c(e->param), STR("tokenizer.ggml."))) && e->code != ERR_NOMEM)
    snprintf(e->param, sizeof e->param, "tokenizer.json");
  tok_free(h.t);
  arena_fini(&h.tmp);
  free(h.list);
  free(h.left);
  free(h.right);
  free(h.tokens);
  free(h.types);
  free(h.scores);
  return ok;
}
