/* The tokenizer's metadata of a model file: what is read, what a missing key means, and that a wrong one is named. */
#include "test_tok_util.h"
#include "base/buf.h"

/* A GGUF v3 file in memory, without tensors. */
typedef struct file {
  buf b;
  uint64_t n;
} file;

static void put64(buf *b, uint64_t v) { buf_put(b, &v, 8); }
static void put32(buf *b, uint32_t v) { buf_put(b, &v, 4); }
static void put_text(buf *b, str s) {
  put64(b, s.n);
  buf_str(b, s);
}
static void key(file *f, const char *name, mf_kind kind) {
  put_text(&f->b, str_c(name));
  put32(&f->b, kind);
  f->n++;
}
static void kv_text(file *f, const char *name, const char *v) {
  key(f, name, MF_STR);
  put_text(&f->b, str_c(v));
}
static void kv_u32(file *f, const char *name, uint32_t v) {
  key(f, name, MF_U32);
  put32(&f->b, v);
}
static void kv_flag(file *f, const char *name, bool v) {
  key(f, name, MF_BOOL);
  buf_putc(&f->b, (char)v);
}
static void kv_texts(file *f, const char *name, const str *v, int n) {
  key(f, name, MF_ARR);
  put32(&f->b, MF_STR);
  put64(&f->b, (uint64_t)n);
  for (int i = 0; i < n; i++) put_text(&f->b, v[i]);
}
static void kv_types(file *f, const uint8_t *v, int n) {
  key(f, "tokenizer.ggml.token_type", MF_ARR);
  put32(&f->b, MF_I32);
  put64(&f->b, (uint64_t)n);
  for (int i = 0; i < n; i++) put32(&f->b, v[i]);
}

enum { NO_MODEL = 1, NO_TOKENS = 2, NO_MERGES = 4, NO_TYPES = 8 };

static file file_new(const vocab *v, const char *pre, int without) {
  file f = {0};
  buf_init(&f.b, 1 << 24);
  buf_puts(&f.b, "GGUF");
  put32(&f.b, 3);
  put64(&f.b, 0);
  put64(&f.b, 0); /* number of keys: written by open_file */
  if (!(without & NO_MODEL)) kv_text(&f, "tokenizer.ggml.model", "gpt2");
  if (pre) kv_text(&f, "tokenizer.ggml.pre", pre);
  if (!(without & NO_TOKENS)) kv_texts(&f, "tokenizer.ggml.tokens", v->tokens, v->src.n_tokens);
  if (!(without & NO_MERGES)) kv_texts(&f, "tokenizer.ggml.merges", v->merges, v->src.n_merges);
  if (!(without & NO_TYPES)) kv_types(&f, v->types, v->src.n_tokens);
  return f;
}

static bool open_file(file *f, tok **t, err *e) {
  mfile *g = NULL;
  memcpy(f->b.p + 16, &f->n, 8);
  if (!gguf_open_mem(f->b.p, f->b.n, &g, e)) fail_msg("the test's own file: %s", e->msg);
  bool ok = tok_from_gguf(g, t, e);
  mf_close(g); /* before the tokenizer is used: it keeps nothing of the file */
  return ok;
}

static void expect_refused(file f, const char *param, const char *says) {
  tok *t = NULL;
  err e = {0};
  assert_false(open_file(&f, &t, &e));
  assert_string_equal(e.param, param);
  if (!strstr(e.msg, says)) fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
  buf_fini(&f.b);
}

static void test_reads(void **state) {
  vocab *v = *state;
  tok *t = NULL;
  err e = {0};
  file f = file_new(v, "llama-bpe", 0);
  int bos = -1;
  for (int i = 0; i < v->src.n_tokens; i++)
    if (str_is(v->tokens[i], "<|begin_of_text|>")) bos = i;
  kv_u32(&f, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
  kv_u32(&f, "tokenizer.ggml.eos_token_id", (uint32_t)bos + 1);
  kv_u32(&f, "tokenizer.ggml.padding_token_id", UINT32_MAX);
  if (!open_file(&f, &t, &e)) fail_msg("%s", e.msg);
  assert_int_equal(tok_count(t), v->src.n_tokens);
  assert_int_equal(tok_bos(t), bos);
  assert_int_equal(tok_type(t, bos), TOK_CONTROL);
  assert_true(tok_adds_bos(t)); /* llama3's default where the file is silent */
  tok_ids a = {0}, b = {0};
  tok *same = tok_must(&v->src);
  str text = STR("<|eot_id|>It's 12345 caf\xc3\xa9s.\n\n  ok");
  assert_true(tok_encode(t, text, NULL, true, true, &a, &e) && tok_encode(same, text, NULL, true, false, &b, &e));
  assert_true(a.v[0] == bos && a.n == b.n + 1 && !memcmp(a.v + 1, b.v, (size_t)b.n * sizeof *b.v));
  int n_ends = 0;
  tok_ends(t, &n_ends);
  assert_int_equal(n_ends, 3); /* eos, <|eot_id|>, <|eom_id|> */
  free(a.v);
  free(b.v);
  tok_free(same);
  tok_free(t);
  kv_flag(&f, "tokenizer.ggml.add_bos_token", false);
  if (!open_file(&f, &t, &e)) fail_msg("%s", e.msg);
  assert_false(tok_adds_bos(t));
  tok_free(t);
  buf_fini(&f.b);
  f = file_new(v, NULL, NO_TYPES); /* neither pre-tokenizer nor types: gpt2, all normal */
  if (!open_file(&f, &t, &e)) fail_msg("%s", e.msg);
  assert_false(tok_adds_bos(t));
  assert_int_equal(tok_type(t, bos), TOK_NORMAL);
  tok_free(t);
  buf_fini(&f.b);
}

static void test_names_the_key(void **state) {
  vocab *v = *state;
  expect_refused(file_new(v, "gpt2", NO_MODEL), "tokenizer.ggml.model", "no tokenizer");
  expect_refused(file_new(v, "gpt2", NO_TOKENS | NO_TYPES), "tokenizer.ggml.tokens", "no tokens");
  expect_refused(file_new(v, "gpt2", NO_MERGES), "tokenizer.ggml.merges", "needs merges");
  expect_refused(file_new(v, "martian", 0), "tokenizer.ggml.pre", "\"martian\" is not known");
  expect_refused(
      file_new(v, "a name that is longer than any name of a pre-tokenizer could reasonably be", 0), "tokenizer.ggml.pre", "no name that is known");
  file f = file_new(v, "gpt2", NO_TOKENS);
  kv_u32(&f, "tokenizer.ggml.tokens", 7);
  expect_refused(f, "tokenizer.ggml.tokens", "expected an array of strings");
  f = file_new(v, "gpt2", NO_TYPES);
  kv_types(&f, v->types, v->src.n_tokens - 1);
  expect_refused(f, "tokenizer.ggml.token_type", "elements but there are");
  f = file_new(v, "gpt2", NO_TYPES);
  kv_texts(&f, "tokenizer.ggml.token_type", v->tokens, 3);
  expect_refused(f, "tokenizer.ggml.token_type", "expected an array of integers");
  f = file_new(v, "gpt2", 0);
  kv_u32(&f, "tokenizer.ggml.bos_token_id", (uint32_t)v->src.n_tokens);
  expect_refused(f, "tokenizer.ggml.bos_token_id", "outside the vocabulary");
  f = file_new(v, "gpt2", 0);
  kv_text(&f, "tokenizer.ggml.eos_token_id", "two");
  expect_refused(f, "tokenizer.ggml.eos_token_id", "");
}

int main(void) {
  vocab v = vocab_stored("llama3");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(test_reads, &v),
      cmocka_unit_test_prestate(test_names_the_key, &v),
  };
  int rc = cmocka_run_group_tests_name("test_tok_gguf", tests, NULL, NULL);
  vocab_fini(&v);
  return rc;
}
