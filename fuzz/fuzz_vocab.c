#include "fuzz_vocab.h"
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

static uint8_t *load(const char *name, cur *ret) {
  char path[4096];
  const char *src = getenv("WEIR_SRC");
  snprintf(path, sizeof path, "%s/tests/golden/tok/%s.vocab.gz", src ? src : FUZZ_SRC, name);
  gzFile f = gzopen(path, "rb");
  uint8_t *p = malloc(VOCAB_MAX);
  FUZZ_CHECK(f && p, "cannot open %s", path);
  int n = gzread(f, p, VOCAB_MAX);
  gzclose(f);
  FUZZ_CHECK(n > 6 && memcmp(p, "WVOC1\n", 6) == 0, "%s is no stored vocabulary", path);
  *ret = (cur){p + 6, p + n};
  return p;
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
  tok_src s = {.model = "gpt2", .pre = pre, .tokens = tokens, .n_tokens = (int)n, .types = types, .merges = merges, .n_merges = (int)m,
      .bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1};
  FUZZ_CHECK(tok_new(&s, &t, &e), "%s", e.msg);
  free(tokens);
  free(types);
  free(merges);
  free(raw);
  return t;
}
