#include "fuzz_tok.h"
#include "base/buf.h"
#include "base/json.h"
#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

/* A gzip of "WVOC1\n", the tokens (type, bytes) and the merges (bytes); numbers are LEB128. tools/ has what writes them. */
enum { VOCAB_MAX = 32 << 20 };
typedef struct cur {
  const uint8_t *p, *end;
} cur;

static size_t number(cur *c) {
  size_t v = 0;
  for (int shift = 0;; shift += 7) {
    FUZZ_CHECK(c->p < c->end && shift < 56, "a stored vocabulary is cut off");
    v |= (size_t)(*c->p & 0x7f) << shift;
    if (*c->p++ < 0x80) return v;
  }
}

static str blob(cur *c) {
  size_t n = number(c);
  FUZZ_CHECK(n <= (size_t)(c->end - c->p), "a stored vocabulary is cut off");
  c->p += n;
  return (str){(const char *)c->p - n, n};
}

static uint8_t *load_file(const char *name, const char *what, int *ret_n) {
  char path[4096];
  const char *src = getenv("WEIR_SRC");
  snprintf(path, sizeof path, "%s/tests/golden/tok/%s.%s.gz", src ? src : FUZZ_SRC, name, what);
  gzFile f = gzopen(path, "rb");
  uint8_t *p = malloc(VOCAB_MAX);
  FUZZ_CHECK(f && p, "cannot open %s", path);
  *ret_n = gzread(f, p, VOCAB_MAX);
  gzclose(f);
  return p;
}

static uint8_t *load(const char *name, cur *ret) {
  int n;
  uint8_t *p = load_file(name, "vocab", &n);
  FUZZ_CHECK(n > 6 && memcmp(p, "WVOC1\n", 6) == 0, "%s is no stored vocabulary", name);
  *ret = (cur){p + 6, p + n};
  return p;
}

tok *json_tok(const char *name) {
  int n;
  err e = {0};
  tok *t = NULL;
  uint8_t *p = load_file(name, "json", &n);
  json_setup();
  FUZZ_CHECK(tok_from_hf((str){(const char *)p, (size_t)n}, (str){"", 0}, NULL, 0, -1, &t, &e), "%s: %s", name, e.msg);
  free(p);
  return t;
}

tok *vocab_tok(const char *name, const char *pre) {
  cur c;
  err e = {0};
  tok *t = NULL;
  uint8_t *raw = load(name, &c);
  size_t n = number(&c);
  str *tokens = calloc(n + 1, sizeof *tokens);
  uint8_t *types = calloc(n + 1, 1);
  FUZZ_CHECK(tokens && types, "no memory");
  for (size_t i = 0; i < n; i++) {
    types[i] = *c.p++;
    tokens[i] = blob(&c);
  }
  size_t m = number(&c);
  str *merges = calloc(m + 1, sizeof *merges);
  FUZZ_CHECK(merges, "no memory");
  for (size_t i = 0; i < m; i++) merges[i] = blob(&c);
  tok_src s = {.model = "gpt2",
      .pre = pre,
      .tokens = tokens,
      .n_tokens = (int)n,
      .types = types,
      .merges = merges,
      .n_merges = (int)m,
      .bos = -1,
      .eos = -1,
      .eot = -1,
      .unk = -1,
      .pad = -1};
  FUZZ_CHECK(tok_new(&s, &t, &e), "%s", e.msg);
  free(tokens);
  free(types);
  free(merges);
  free(raw);
  return t;
}

static void back_to_text(const tok *t, const tok_ids *ids) {
  tok_stream s;
  buf out;
  char scratch[8];
  buf_init(&out, 1 << 26);
  for (int special = 0; special < 2; special++) {
    buf_clear(&out);
    tok_stream_init(&s, special);
    for (int i = 0; i < ids->n; i++) {
      str p = tok_piece(t, ids->v[i], special, scratch);
      fuzz_touch(p.p, p.n);
      tok_stream_push(t, &s, ids->v[i], &out);
    }
    tok_stream_end(&s, &out);
    FUZZ_CHECK(utf8_valid(buf_view(&out)), "the stream is not valid UTF-8");
  }
  buf_fini(&out);
}

int32_t tok_unknown(const tok *t) {
  static const char *const rare[] = {
      "\xf4\x8f\xbf\xbd", "\xf0\x9f\xab\xa0", "\xf0\xaa\x9b\x96", "\xe1\x9a\xa0"}; /* some normalizers take the first away */
  int32_t id = -1;
  for (size_t i = 0; i < sizeof rare / sizeof *rare && id < 0; i++) {
    tok_ids a = {0};
    err e = {0};
    uint8_t trust[4] = {0};
    if (tok_encode(t, str_c(rare[i]), trust, true, false, &a, &e) && a.n && tok_type(t, a.v[a.n - 1]) == TOK_CONTROL) id = a.v[a.n - 1];
    free(a.v);
  }
  return id;
}

static void use_once(const tok *t, str text, bool trusted) {
  int32_t unk = tok_unknown(t);
  tok_ids a = {0}, b = {0};
  err e = {0}, f = {0};
  uint8_t *trust = calloc(text.n + 1, 1);
  FUZZ_CHECK(trust, "no memory");
  bool ok = tok_encode(t, text, trusted ? NULL : trust, true, trusted, &a, &e),
       ok2 = tok_encode(t, text, trusted ? NULL : trust, true, trusted, &b, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (!ok) fuzz_refused(&e);
  FUZZ_CHECK(a.n == b.n && (!a.n || memcmp(a.v, b.v, sizeof *a.v * (size_t)a.n) == 0), "two encodings differ");
  for (int i = 0; i < a.n; i++) {
    FUZZ_CHECK(a.v[i] >= 0 && a.v[i] < tok_count(t), "id %d of %d", a.v[i], tok_count(t));
    FUZZ_CHECK(trusted || a.v[i] == unk || tok_type(t, a.v[i]) != TOK_CONTROL, "a control token, %d, out of untrusted text", a.v[i]);
  }
  back_to_text(t, &a);
  free(a.v);
  free(b.v);
  free(trust);
}

void use_tok(const tok *t, str text) {
  static const char own[] = "Hello  world, abab 123\n\t\xc3\xa9 \xe4\xbd\xa0\xff <s>a</s><unk>";
  for (int trusted = 0; trusted < 2; trusted++) {
    use_once(t, (str){own, sizeof own - 1}, trusted);
    use_once(t, text, trusted);
  }
  int n = 0;
  const int32_t *ends = tok_ends(t, &n);
  for (int i = 0; i < n; i++)
    FUZZ_CHECK(ends[i] >= 0 && ends[i] < tok_count(t) && tok_is_end(t, ends[i]), "end token %d of %d", ends[i], tok_count(t));
  tok_find(t, text);
}
