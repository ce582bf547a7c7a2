/* The sections of a tokenizer.json as steps: normalizer, pre-tokenizer, decoder, post-processor. Each kind is a row with a function that reads its
 * fields; a kind without a row is refused by its name. */
#include "model/tok_impl.h"
#include <stdio.h>

typedef struct reader {
  tok *t;
  const char *section;
  err *e;
  bool byte_level, closed; /* pre-tokenizer: bytes are written as characters from here on; nothing may follow */
  tok_form form;           /* decoder */
} reader;

typedef struct row {
  const char *type;
  bool (*read)(reader *r, json_t *v);
} row;

static bool refuse(reader *r, const char *what, const char *why) {
  return err_param(r->e, ERR_UNSUPPORTED, "tokenizer.json", "%s: %.80s %s", r->section, what, why);
}

static bool nomem(reader *r) { return err_set(r->e, ERR_NOMEM, "out of memory for the tokenizer's %s", r->section); }

static bool read_one(reader *r, const row *rows, json_t *v) {
  str type = {"", 0};
  if (!json_is_object(v)) return err_param(r->e, ERR_INPUT, "tokenizer.json", "%s: expected an object, got %s", r->section, json_type_name(v));
  if (!json_get_str(v, r->section, "type", &type, r->e)) return false;
  for (; rows->type; rows++)
    if (str_is(type, rows->type)) return rows->read(r, v);
  char name[60];
  snprintf(name, sizeof name, "\"%.*s\"", (int)(type.n < 50 ? type.n : 50), type.p);
  return refuse(r, name, "is not read; docs/tokenizers.md lists what is");
}

static bool read_list(reader *r, const row *rows, json_t *v, const char *key) {
  json_t *list = NULL, *x;
  size_t i;
  if (!json_get_array(v, r->section, key, &list, r->e)) return false;
  json_array_foreach(list, i, x) if (!read_one(r, rows, x)) return false;
  return true;
}

static bool flag(reader *r, json_t *v, const char *key, bool missing, bool *ret) {
  *ret = missing;
  return json_get_bool(v, r->section, key, ret, r->e);
}

static bool keep(reader *r, str s, str *ret) {
  char *p = arena_str(&r->t->own, s);
  *ret = (str){p, s.n};
  return p || nomem(r);
}

/* {"String": "x"} or {"Regex": "x"}. */
static bool read_pattern(reader *r, json_t *v, str *ret, bool *ret_regex) {
  json_t *p = NULL;
  *ret = (str){NULL, 0};
  if (!json_get_object(v, r->section, "pattern", &p, r->e)) return false;
  *ret_regex = json_object_get(p, "Regex") != NULL;
  if (!json_get_str(p, r->section, *ret_regex ? "Regex" : "String", ret, r->e)) return false;
  return ret->p ? true : refuse(r, "a pattern", "that is neither a string nor a regular expression is not read");
}

static bool compile(reader *r, str pattern, bool regex, tok_re **ret) {
  buf b;
  buf_init(&b, 1 << 16);
  bool ok = regex ? tok_regex(pattern, &b, r->e) : tok_regex_quote(pattern, &b, r->e);
  ok = ok && tok_re_new(b.n ? b.p : "(?!)", true, ret, r->e);
  if (!ok && r->e && !r->e->param[0]) err_prefix(r->e, "%s", r->section);
  buf_fini(&b);
  return ok;
}

/* --- normalizer --- */

static tok_step *add_step(reader *r, bool (*run)(tok_work *, const tok_step *, str, buf *, str *), int flags) {
  if (r->t->n_norm == TOK_MAX_STEPS) {
    refuse(r, "a list", "of more than 16 steps is not read");
    return NULL;
  }
  tok_step *s = &r->t->norm[r->t->n_norm++];
  *s = (tok_step){.run = run, .flags = flags};
  return s;
}

static bool norm_nfc(reader *r, json_t *v) { return (void)v, add_step(r, tok_step_form, TOK_NF_COMPOSE); }
static bool norm_nfd(reader *r, json_t *v) { return (void)v, add_step(r, tok_step_form, 0); }
static bool norm_nfkc(reader *r, json_t *v) { return (void)v, add_step(r, tok_step_form, TOK_NF_COMPOSE | TOK_NF_COMPAT); }
static bool norm_nfkd(reader *r, json_t *v) { return (void)v, add_step(r, tok_step_form, TOK_NF_COMPAT); }
static bool norm_lower(reader *r, json_t *v) { return (void)v, add_step(r, tok_step_lower, 0); }
static bool norm_accents(reader *r, json_t *v) { return (void)v, add_step(r, tok_step_accents, 0); }

static bool norm_strip(reader *r, json_t *v) {
  bool left, right;
  return flag(r, v, "strip_left", true, &left) && flag(r, v, "strip_right", true, &right) &&
         add_step(r, tok_step_strip, (left ? TOK_STRIP_LEFT : 0) | (right ? TOK_STRIP_RIGHT : 0));
}

static bool norm_replace(reader *r, json_t *v) {
  str pattern, content = {"", 0};
  bool regex;
  if (!read_pattern(r, v, &pattern, &regex) || !json_get_str(v, r->section, "content", &content, r->e)) return false;
  tok_step *s = add_step(r, regex ? tok_step_replace_re : tok_step_replace, 0);
  return s && keep(r, pattern, &s->a) && keep(r, content, &s->b) && (!regex || compile(r, pattern, true, &s->re));
}

static bool norm_prepend(reader *r, json_t *v) {
  str x = {"", 0};
  if (!json_get_str(v, r->section, "prepend", &x, r->e)) return false;
  tok_step *s = add_step(r, tok_step_prepend, 0);
  return s && keep(r, x, &s->a);
}

static bool norm_bert(reader *r, json_t *v) {
  bool clean, han, lower, accents;
  if (!flag(r, v, "clean_text", true, &clean) || !flag(r, v, "handle_chinese_chars", true, &han) || !flag(r, v, "lowercase", true, &lower) ||
      !flag(r, v, "strip_accents", lower, &accents)) /* null: as lowercase is */
    return false;
  return (!clean || add_step(r, tok_step_clean, 0)) && (!han || add_step(r, tok_step_han, 0)) &&
         (!accents || (add_step(r, tok_step_form, 0) && add_step(r, tok_step_accents, 0))) && (!lower || add_step(r, tok_step_lower, 0));
}

static int base64_digit(char c) {
  return c >= 'A' && c <= 'Z'   ? c - 'A'
         : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+'             ? 62
         : c == '/'             ? 63
                                : -1;
}

static bool norm_charsmap(reader *r, json_t *v) {
  str x = {"", 0};
  if (!json_get_str(v, r->section, "precompiled_charsmap", &x, r->e)) return false;
  tok_step *s = add_step(r, tok_step_charsmap, 0);
  char *p = s ? arena_try(&r->t->own, x.n / 4 * 3 + 4) : NULL;
  if (!p) return s ? nomem(r) : false;
  size_t n = 0;
  uint32_t bits = 0;
  int have = 0;
  for (size_t i = 0; i < x.n && x.p[i] != '='; i++) {
    int d = base64_digit(x.p[i]);
    if (d < 0) return err_param(r->e, ERR_INPUT, "tokenizer.json", "%s: precompiled_charsmap is no base64 at byte %zu", r->section, i);
    bits = bits << 6 | (uint32_t)d;
    if ((have += 6) >= 8) p[n++] = (char)(bits >> (have -= 8));
  }
  s->a = (str){p, n};
  return tok_charsmap_check(s->a, "precompiled_charsmap", r->e);
}

static bool norm_list(reader *r, json_t *v);
static const row normalizers[] = {{"Sequence", norm_list}, {"NFC", norm_nfc}, {"NFD", norm_nfd}, {"NFKC", norm_nfkc}, {"NFKD", norm_nfkd},
    {"Lowercase", norm_lower}, {"StripAccents", norm_accents}, {"Strip", norm_strip}, {"Replace", norm_replace}, {"Prepend", norm_prepend},
    {"BertNormalizer", norm_bert}, {"Precompiled", norm_charsmap}, {0}};
static bool norm_list(reader *r, json_t *v) { return read_list(r, normalizers, v, "normalizers"); }

bool tok_pipe_normalizer(tok *t, json_t *v, err *e) {
  reader r = {.t = t, .section = "normalizer", .e = e};
  return !v || json_is_null(v) || read_one(&r, normalizers, v);
}

/* --- pre-tokenizer --- */

static bool add_cut(reader *r, tok_cut_step step) {
  if (r->closed) {
    tok_re_free(step.re);
    return refuse(r, "a step", "behind ByteLevel or Metaspace is not read");
  }
  if (r->t->n_cut >= TOK_MAX_STEPS - 1) { /* one is kept for what a vocabulary needs */
    tok_re_free(step.re);
    return refuse(r, "a list", "of more than 15 steps is not read");
  }
  r->t->cut[r->t->n_cut++] = step;
  return true;
}

static bool add_regex(reader *r, str pattern, bool regex, tok_cut_how how, bool invert) {
  tok_cut_step step = {.how = how, .invert = invert};
  return compile(r, pattern, regex, &step.re) && add_cut(r, step);
}

static bool read_how(reader *r, json_t *v, tok_cut_how missing, tok_cut_how *ret) {
  static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  str s = {NULL, 0};
  *ret = missing;
  if (!json_get_str(v, r->section, "behavior", &s, r->e)) return false;
  for (int i = 0; s.p && i < 5; i++)
    if (str_is(s, names[i])) return *ret = (tok_cut_how)i, true;
  return s.p ? refuse(r, "a behavior", "that is none of the library's is not read") : true;
}

static bool pre_split(reader *r, json_t *v) {
  str pattern;
  bool regex, invert;
  tok_cut_how how;
  return read_pattern(r, v, &pattern, &regex) && read_how(r, v, TOK_CUT_REMOVED, &how) && flag(r, v, "invert", false, &invert) &&
         add_regex(r, pattern, regex, how, invert);
}

static bool pre_byte_level(reader *r, json_t *v) {
  bool prefix, regex;
  if (!flag(r, v, "add_prefix_space", false, &prefix) || !flag(r, v, "use_regex", true, &regex)) return false;
  if (prefix && !add_cut(r, (tok_cut_step){.meta = TOK_META_BLANK})) return false;
  const tok_pre *gpt2 = tok_pre_find(STR("gpt2"));
  tok_cut_step step = {.how = TOK_CUT_ISOLATED};
  if (regex && (!tok_re_new(gpt2->regex, true, &step.re, r->e) || !add_cut(r, step))) return false;
  if (r->closed) return refuse(r, "a second ByteLevel", "is not read");
  r->byte_level = r->closed = true;
  return true;
}

static bool pre_meta(reader *r, json_t *v) {
  str mark = STR(TOK_META_CHAR), scheme = STR("always");
  bool split, prefix;
  if (!json_get_str(v, r->section, "replacement", &mark, r->e) || !json_get_str(v, r->section, "prepend_scheme", &scheme, r->e) ||
      !flag(r, v, "split", true, &split) || !flag(r, v, "add_prefix_space", true, &prefix))
    return false;
  if (!str_is(mark, TOK_META_CHAR)) return refuse(r, "Metaspace", "with another replacement than U+2581 is not read");
  tok_cut_step step = {.how = TOK_CUT_WITH_NEXT, .meta = TOK_META_ALWAYS};
  if (str_is(scheme, "never") || !prefix) step.meta = TOK_META_NEVER;
  else if (str_is(scheme, "first")) step.meta = TOK_META_FIRST;
  else if (!str_is(scheme, "always")) return refuse(r, "Metaspace", "with a prepend_scheme that is none of the library's is not read");
  if (split && !compile(r, STR(" "), false, &step.re)) return false;
  bool ok = add_cut(r, step);
  r->closed = true;
  return ok;
}

static bool pre_whitespace(reader *r, json_t *v) { return (void)v, add_regex(r, STR("\\w+|[^\\w\\s]+"), true, TOK_CUT_REMOVED, true); }
static bool pre_blanks(reader *r, json_t *v) { return (void)v, add_regex(r, STR("\\s"), true, TOK_CUT_REMOVED, false); }
static bool pre_digits(reader *r, json_t *v) {
  bool single;
  return flag(r, v, "individual_digits", false, &single) && add_regex(r, STR("\\p{N}"), true, single ? TOK_CUT_ISOLATED : TOK_CUT_CONTIGUOUS, false);
}
static bool pre_punct(reader *r, json_t *v) {
  tok_cut_how how;
  return read_how(r, v, TOK_CUT_ISOLATED, &how) && add_regex(r, STR(TOK_RE_PUNCT), true, how, false);
}
static bool pre_bert(reader *r, json_t *v) {
  return (void)v, add_regex(r, STR("\\s"), true, TOK_CUT_REMOVED, false) && add_regex(r, STR(TOK_RE_PUNCT), true, TOK_CUT_ISOLATED, false);
}
static bool pre_delimiter(reader *r, json_t *v) {
  str s = {"", 0};
  return json_get_str(v, r->section, "delimiter", &s, r->e) && add_regex(r, s, false, TOK_CUT_REMOVED, false);
}

static bool pre_list(reader *r, json_t *v);
static const row pre_tokenizers[] = {{"Sequence", pre_list}, {"Split", pre_split}, {"ByteLevel", pre_byte_level}, {"Metaspace", pre_meta},
    {"Whitespace", pre_whitespace}, {"WhitespaceSplit", pre_blanks}, {"Digits", pre_digits}, {"Punctuation", pre_punct},
    {"BertPreTokenizer", pre_bert}, {"CharDelimiterSplit", pre_delimiter}, {0}};
static bool pre_list(reader *r, json_t *v) { return read_list(r, pre_tokenizers, v, "pretokenizers"); }

bool tok_pipe_pre(tok *t, json_t *v, bool *ret_byte_level, err *e) {
  reader r = {.t = t, .section = "pre_tokenizer", .e = e};
  if (v && !json_is_null(v) && !read_one(&r, pre_tokenizers, v)) return false;
  *ret_byte_level = r.byte_level;
  return true;
}

/* --- decoder: only how tokens are written is taken from it, and whether a whole text loses its first blank --- */

static bool dec_bytes(reader *r, json_t *v) { return (void)v, r->form = TOK_FORM_BYTES, true; }
static bool dec_nothing(reader *r, json_t *v) { return (void)r, (void)v, true; }

static bool dec_meta(reader *r, json_t *v) {
  str mark = STR(TOK_META_CHAR), scheme = STR("always");
  bool prefix;
  if (!json_get_str(v, r->section, "replacement", &mark, r->e) || !json_get_str(v, r->section, "prepend_scheme", &scheme, r->e) ||
      !flag(r, v, "add_prefix_space", true, &prefix))
    return false;
  if (!str_is(mark, TOK_META_CHAR)) return refuse(r, "Metaspace", "with another replacement than U+2581 is not read");
  r->form = TOK_FORM_META;
  r->t->strip = prefix && !str_is(scheme, "never");
  return true;
}

static bool dec_wordpiece(reader *r, json_t *v) {
  str prefix = STR("##");
  if (!json_get_str(v, r->section, "prefix", &prefix, r->e)) return false;
  if (!str_is(prefix, "##")) return refuse(r, "WordPiece", "with another prefix than ## is not read");
  r->form = TOK_FORM_HASHES;
  r->t->strip = true;
  return true;
}

static bool dec_replace(reader *r, json_t *v) {
  str pattern, content = {"", 0};
  bool regex;
  if (!read_pattern(r, v, &pattern, &regex) || !json_get_str(v, r->section, "content", &content, r->e)) return false;
  if (regex || !str_is(pattern, TOK_META_CHAR) || !str_is(content, " "))
    return refuse(r, "Replace", "of other things than U+2581 by a blank is not read");
  r->form = TOK_FORM_META;
  return true;
}

static bool dec_strip(reader *r, json_t *v) {
  str content = {"", 0};
  int64_t start = 0, stop = 0;
  if (!json_get_str(v, r->section, "content", &content, r->e) || !json_get_i64(v, r->section, "start", 0, 1 << 20, &start, r->e) ||
      !json_get_i64(v, r->section, "stop", 0, 1 << 20, &stop, r->e))
    return false;
  if (!str_is(content, " ") || start > 1 || stop) return refuse(r, "Strip", "of other things than one blank in front is not read");
  r->t->strip = start;
  return true;
}

static bool dec_list(reader *r, json_t *v);
static const row decoders[] = {{"Sequence", dec_list}, {"ByteLevel", dec_bytes}, {"Metaspace", dec_meta}, {"WordPiece", dec_wordpiece},
    {"Replace", dec_replace}, {"Strip", dec_strip}, {"ByteFallback", dec_nothing}, {"Fuse", dec_nothing}, {0}};
static bool dec_list(reader *r, json_t *v) { return read_list(r, decoders, v, "decoders"); }

bool tok_pipe_decoder(tok *t, json_t *v, tok_form *ret, err *e) {
  reader r = {.t = t, .section = "decoder", .e = e, .form = TOK_FORM_LEAD};
  if (!v || json_is_null(v)) return refuse(&r, "null", "is not read: it does not say how tokens become text");
  if (!read_one(&r, decoders, v)) return false;
  if (r.form == TOK_FORM_LEAD) return refuse(&r, "a list", "that does not say how blanks are written is not read");
  *ret = r.form;
  return true;
}

/* --- post-processor: at most one token before a text and one behind it --- */

static bool post_token(reader *r, int *place, int64_t id) {
  if (*place >= 0) return refuse(r, "a template", "with two tokens on one side of a text is not read");
  if (id < 0 || id > INT32_MAX) return err_param(r->e, ERR_INPUT, "tokenizer.json", "%s: a token id is out of range", r->section);
  *place = (int)id;
  return true;
}

static bool template_token(reader *r, json_t *special, json_t *item, int *place) {
  str name = {"", 0};
  if (!json_get_str(item, r->section, "id", &name, r->e)) return false;
  json_t *entry = json_object_getn(special, name.p, name.n), *ids = NULL, *x;
  size_t i;
  if (!json_get_array(entry, r->section, "ids", &ids, r->e)) return false;
  if (!ids)
    return err_param(r->e, ERR_INPUT, "tokenizer.json", "%s: special token %.*s has no ids", r->section, (int)(name.n < 60 ? name.n : 60), name.p);
  json_array_foreach(ids, i, x) if (!post_token(r, place, json_is_integer(x) ? json_integer_value(x) : -1)) return false;
  return true;
}

static bool post_template(reader *r, json_t *v) {
  json_t *single = NULL, *special = NULL, *x;
  size_t i;
  bool behind = false;
  if (!json_get_array(v, r->section, "single", &single, r->e) || !json_get_object(v, r->section, "special_tokens", &special, r->e)) return false;
  json_array_foreach(single, i, x) {
    json_t *item = json_object_get(x, "SpecialToken");
    if (item ? !template_token(r, special, item, behind ? &r->t->last : &r->t->first) : behind)
      return item ? false : refuse(r, "a template", "with two texts for one is not read");
    behind |= !item;
  }
  return true;
}

/* "sep": ["[SEP]", 102] */
static bool post_pair(reader *r, json_t *v) {
  json_t *cls = json_array_get(json_object_get(v, "cls"), 1), *sep = json_array_get(json_object_get(v, "sep"), 1);
  if (!json_is_integer(cls) || !json_is_integer(sep)) return err_param(r->e, ERR_INPUT, "tokenizer.json", "%s: cls and sep are no pairs", r->section);
  return post_token(r, &r->t->first, json_integer_value(cls)) && post_token(r, &r->t->last, json_integer_value(sep));
}

static bool post_nothing(reader *r, json_t *v) { return (void)r, (void)v, true; } /* ByteLevel: offsets only */
static bool post_list(reader *r, json_t *v);
static const row posts[] = {{"Sequence", post_list}, {"TemplateProcessing", post_template}, {"BertProcessing", post_pair},
    {"RobertaProcessing", post_pair}, {"ByteLevel", post_nothing}, {0}};
static bool post_list(reader *r, json_t *v) { return read_list(r, posts, v, "processors"); }

bool tok_pipe_post(tok *t, json_t *v, err *e) {
  reader r = {.t = t, .section = "post_processor", .e = e};
  return !v || json_is_null(v) || read_one(&r, posts, v);
}
