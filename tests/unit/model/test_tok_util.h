/* test_tok_util.h - what the tokenizer's tests share: stored vocabularies, model files, building a tok_src that can be changed.
 * Not a library: each test includes it and uses what it needs.
 * Ownership: a vocab owns its copies until vocab_fini; its tok_src borrows from it.
 * Threads: one. Failure: a broken fixture fails the test; a missing model file is told apart so that the test can be skipped. */
#ifndef TEST_TOK_UTIL_H
#define TEST_TOK_UTIL_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include <zlib.h>
#include "model/gguf.h"
#include "model/tok.h"

typedef struct bytes {
  uint8_t *p;
  size_t n, at;
} bytes;

static inline void golden_path(char *out, size_t cap, const char *family, const char *what) {
  const char *src = getenv("WEIR_SRC");
  snprintf(out, cap, "%s/tests/golden/tok/%s.%s.gz", src ? src : TEST_SRC, family, what);
}

static inline bytes load_gz(const char *path) {
  bytes b = {0};
  gzFile f = gzopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  size_t cap = 1 << 20;
  b.p = malloc(cap);
  for (int k; b.p && (k = gzread(f, b.p + b.n, (unsigned)(cap - b.n))) > 0;) {
    b.n += (size_t)k;
    if (b.n == cap) b.p = realloc(b.p, cap *= 2);
  }
  gzclose(f);
  assert_non_null(b.p);
  return b;
}

static inline void expect_magic(bytes *b, const char *magic) {
  size_t n = strlen(magic);
  assert_true(b->n > n && memcmp(b->p, magic, n) == 0);
  b->at = n;
}

static inline uint64_t get_varint(bytes *b) {
  uint64_t v = 0;
  for (int shift = 0;; shift += 7) {
    if (b->at >= b->n || shift > 56) fail_msg("golden file: number cut off at byte %zu of %zu", b->at, b->n);
    uint8_t c = b->p[b->at++];
    v |= (uint64_t)(c & 0x7f) << shift;
    if (c < 0x80) return v;
  }
}

static inline str get_blob(bytes *b) {
  uint64_t n = get_varint(b);
  if (n > b->n - b->at) fail_msg("golden file: string cut off at byte %zu", b->at);
  str s = {(const char *)b->p + b->at, n};
  b->at += n;
  return s;
}

typedef struct vocab {
  tok_src src;
  str *tokens, *merges;
  uint8_t *types;
  bytes raw; /* or */
  mfile *file;
} vocab;

static inline void vocab_alloc(vocab *v, size_t n_tokens, size_t n_merges) {
  v->tokens = calloc(n_tokens + 1, sizeof(str));
  v->merges = calloc(n_merges + 1, sizeof(str));
  v->types = calloc(n_tokens + 1, 1);
  assert_true(v->tokens && v->merges && v->types);
  v->src = (tok_src){.model = "gpt2",
      .tokens = v->tokens,
      .n_tokens = (int)n_tokens,
      .types = v->types,
      .merges = v->merges,
      .n_merges = (int)n_merges,
      .bos = -1,
      .eos = -1,
      .eot = -1,
      .unk = -1,
      .pad = -1};
}

static inline vocab vocab_stored(const char *family) {
  char path[4096];
  vocab v = {0};
  golden_path(path, sizeof path, family, "vocab");
  v.raw = load_gz(path);
  expect_magic(&v.raw, "WVOC1\n");
  size_t start = v.raw.at, n = get_varint(&v.raw);
  for (size_t i = 0; i < n; i++) {
    v.raw.at++;
    get_blob(&v.raw);
  }
  size_t m = get_varint(&v.raw);
  vocab_alloc(&v, n, m);
  v.raw.at = start;
  get_varint(&v.raw);
  for (size_t i = 0; i < n; i++) {
    v.types[i] = v.raw.p[v.raw.at++];
    v.tokens[i] = get_blob(&v.raw);
  }
  get_varint(&v.raw);
  for (size_t i = 0; i < m; i++) v.merges[i] = get_blob(&v.raw);
  v.src.pre = family;
  return v;
}

/* The folder of real files: $WEIR_TEST_MODELS, else where weir pull puts them. False: the file is not there. */
static inline bool model_file(char *out, size_t cap, const char *name) {
  const char *dirs[3] = {getenv("WEIR_TEST_MODELS"), getenv("XDG_CACHE_HOME"), getenv("HOME")};
  const char *below[3] = {"", "/weir/models", "/.cache/weir/models"};
  for (int i = 0; i < 3; i++) {
    if (!dirs[i] || !dirs[i][0]) continue;
    snprintf(out, cap, "%s%s/%s", dirs[i], below[i], name);
    if (access(out, R_OK) == 0) return true;
  }
  return false;
}

static inline vocab vocab_of_file(const char *family, const char *path) {
  vocab v = {0};
  err e = {0};
  if (!gguf_open(path, &v.file, &e)) fail_msg("%s", e.msg);
  const mf_val *t = mf_get(v.file, "tokenizer.ggml.tokens"), *k = mf_get(v.file, "tokenizer.ggml.token_type"),
               *m = mf_get(v.file, "tokenizer.ggml.merges");
  assert_true(t && k && m && t->strs && m->strs && k->count == t->count);
  vocab_alloc(&v, t->count, m->count);
  memcpy(v.tokens, t->strs, t->count * sizeof(str));
  memcpy(v.merges, m->strs, m->count * sizeof(str));
  for (size_t i = 0; i < k->count; i++) v.types[i] = (uint8_t)mf_elem_i64(k, i);
  v.src.pre = family;
  return v;
}

static inline void vocab_fini(vocab *v) {
  free(v->tokens);
  free(v->merges);
  free(v->types);
  free(v->raw.p);
  mf_close(v->file);
}

static inline tok *tok_must(const tok_src *s) {
  err e = {0};
  tok *t = NULL;
  if (!tok_new(s, &t, &e)) fail_msg("%s", e.msg);
  return t;
}
#endif
