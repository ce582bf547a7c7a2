/* Ids equal to the reference on every string of tests/golden/tok, special tokens parsed and not; the round trip; and proof that the comparison can
 * fail. Compiled twice: for the families with a stored vocabulary, and (GOLDEN_MODELS) for those whose vocabulary is in a model file. */
#include "test_tok_util.h"
#include "base/buf.h"
#include <utf8proc.h>

typedef struct family {
  const char *name, *file;
  const char *others[3];
  bool nfc;
} family;
#ifdef GOLDEN_MODELS
static const family families[] = {
    {"smollm", "SmolLM2-135M-Instruct.Q4_1.gguf", {"gpt2", "qwen2", "llama3"}, false},
    {"qwen2", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", {"gpt2", "smollm", "llama3"}, true},
};
#else
static const family families[] = {
    {"gpt2", NULL, {"smollm", "qwen2", "llama3"}, false},
    {"llama3", NULL, {"smollm", "qwen2", "gpt2"}, false},
};
#endif
enum { N_FAMILIES = sizeof families / sizeof *families };
static int n_skipped;

static vocab family_vocab(const family *f) {
  char path[4096];
  if (!f->file) return vocab_stored(f->name);
  if (!model_file(path, sizeof path, f->file)) {
    printf("skip %s: %s is neither in $WEIR_TEST_MODELS nor in the models' cache folder\n", f->name, f->file);
    n_skipped++;
    skip();
  }
  return vocab_of_file(f->name, path);
}

typedef struct score {
  int strings, wrong;
} score;

static int get_ids(bytes *b, size_t n, int32_t *ids, size_t cap) {
  assert_true(n <= cap);
  for (size_t i = 0; i < n; i++) ids[i] = (int32_t)get_varint(b);
  return (int)n;
}

static bool same(const tok_ids *a, const int32_t *ids, int n) { return a->n == n && (n == 0 || memcmp(a->v, ids, (size_t)n * sizeof *ids) == 0); }

static void show(const char *what, int i, str s, const tok_ids *got, const int32_t *want, int n) {
  printf("  string %d, %s: \"", i, what);
  for (size_t k = 0; k < s.n && k < 120; k++) printf((uint8_t)s.p[k] < 32 || (uint8_t)s.p[k] > 126 ? "\\x%02x" : "%c", (uint8_t)s.p[k]);
  printf("\"\n   got");
  for (int k = 0; k < got->n && k < 24; k++) printf(" %d", got->v[k]);
  printf("\n  want");
  for (int k = 0; k < n && k < 24; k++) printf(" %d", want[k]);
  printf("\n");
}

/* All strings of a family through one tokenizer; prints the first differences when `loud`. */
static score compare(const tok *t, const char *name, bool loud) {
  enum { CAP = 1 << 16 };
  char path[4096];
  score sc = {0};
  err e = {0};
  tok_ids got = {0};
  int32_t *want = malloc(CAP * sizeof *want);
  golden_path(path, sizeof path, name, "gold");
  bytes b = load_gz(path);
  expect_magic(&b, "WTOK1\n");
  sc.strings = (int)get_varint(&b);
  for (int i = 0; i < sc.strings; i++) {
    str s = get_blob(&b);
    int n = get_ids(&b, get_varint(&b), want, CAP);
    for (int parse = 1; parse >= 0; parse--) {
      uint64_t m = parse ? 0 : get_varint(&b);
      if (m) n = get_ids(&b, m - 1, want, CAP);
      got.n = 0;
      if (!tok_encode(t, s, NULL, parse, false, &got, &e)) fail_msg("%s", e.msg);
      if (same(&got, want, n)) continue;
      if (loud && sc.wrong < 10) show(parse ? "special tokens parsed" : "not parsed", i, s, &got, want, n);
      sc.wrong++;
    }
  }
  assert_int_equal(b.at, b.n);
  free(b.p);
  free(want);
  free(got.v);
  return sc;
}

static void test_equal(void **state) {
  const family *f = *state;
  vocab v = family_vocab(f);
  tok *t = tok_must(&v.src);
  for (int pass = 0; pass < 2; pass++) { /* the second time with the memo filled */
    score sc = compare(t, f->name, true);
    if (!pass) printf("%s: %d strings, special tokens parsed and not, %d differ\n", f->name, sc.strings, sc.wrong);
    assert_true(sc.strings >= 5000);
    assert_int_equal(sc.wrong, 0);
  }
  tok_free(t);
  vocab_fini(&v);
}

/* What the reference's normal form is, by utf8proc's own whole-string path: another one than ours takes. */
static str normal_form(str s, bool nfc, char **ret_free) {
  *ret_free = NULL;
  if (!nfc) return s;
  utf8proc_uint8_t *out = NULL;
  utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &out, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  assert_true(n >= 0);
  *ret_free = (char *)out;
  return (str){(const char *)out, (size_t)n};
}

/* Joined pieces and the stream both give the text back, but for bytes the vocabulary has no token for. */
static void test_round_trip(void **state) {
  const family *f = *state;
  vocab v = family_vocab(f);
  tok *t = tok_must(&v.src);
  char path[4096], scratch[8], *tmp;
  err e = {0};
  int checked = 0;
  golden_path(path, sizeof path, f->name, "gold");
  bytes b = load_gz(path);
  expect_magic(&b, "WTOK1\n");
  for (int i = (int)get_varint(&b); i > 0; i--) {
    tok_ids ids = {0};
    buf joined, streamed;
    tok_stream st;
    str s = get_blob(&b), want = normal_form(s, f->nfc, &tmp);
    for (uint64_t k = get_varint(&b); k > 0; k--) get_varint(&b);
    for (uint64_t k = get_varint(&b); k > 1; k--) get_varint(&b);
    bool lossy = false;
    for (size_t k = 0; k < s.n; k++) lossy |= tok_find(t, (str){s.p + k, 1}) < 0;
    buf_init(&joined, 1 << 20);
    buf_init(&streamed, 1 << 20);
    assert_true(tok_encode(t, s, NULL, true, false, &ids, &e));
    tok_stream_init(&st, true);
    for (int k = 0; k < ids.n; k++) {
      buf_str(&joined, tok_piece(t, ids.v[k], true, scratch));
      assert_true(tok_stream_push(t, &st, ids.v[k], &streamed));
      assert_true(utf8_valid(buf_view(&streamed)));
    }
    assert_true(tok_stream_end(&st, &streamed));
    if (!lossy) {
      assert_true(str_eq(buf_view(&joined), want));
      assert_true(str_eq(buf_view(&streamed), want));
      checked++;
    }
    buf_fini(&joined);
    buf_fini(&streamed);
    free(ids.v);
    free(tmp);
  }
  assert_true(checked > 4500);
  free(b.p);
  tok_free(t);
  vocab_fini(&v);
}

/* Negative controls: the vectors must notice one merge less, another family's pre-tokenizer and a control token that has become ordinary. */
static void test_can_fail(void **state) {
  const family *f = *state;
  vocab v = family_vocab(f);
  for (int i = 0; i < 3; i++) {
    tok_src s = v.src;
    s.pre = f->others[i];
    tok *t = tok_must(&s);
    int wrong = compare(t, f->name, false).wrong;
    printf("%s with the pre-tokenizer of %s: %d differ\n", f->name, s.pre, wrong);
    assert_true(wrong > 0);
    tok_free(t);
  }
  const int drop[] = {3, v.src.n_merges / 4};
  for (int i = 0; i < 2; i++) {
    str kept = v.merges[drop[i]];
    v.merges[drop[i]] = v.merges[drop[i] - 1];
    tok *t = tok_must(&v.src);
    int wrong = compare(t, f->name, false).wrong;
    printf("%s without merge %d: %d differ\n", f->name, drop[i], wrong);
    if (i == 0) assert_true(wrong > 0); /* an early merge is in every text; a late one may not be in ours */
    tok_free(t);
    v.merges[drop[i]] = kept;
  }
  for (int i = 0; i < v.src.n_tokens; i++)
    if (v.types[i] == TOK_CONTROL) {
      v.types[i] = TOK_UNUSED;
      break;
    }
  tok *t = tok_must(&v.src);
  assert_true(compare(t, f->name, false).wrong > 0);
  tok_free(t);
  vocab_fini(&v);
}

int main(void) {
  struct CMUnitTest tests[3 * N_FAMILIES];
  char names[3 * N_FAMILIES][64];
  const CMUnitTestFunction fns[3] = {test_equal, test_round_trip, test_can_fail};
  const char *const what[3] = {"equal", "round_trip", "can_fail"};
  for (int i = 0; i < 3 * N_FAMILIES; i++) {
    snprintf(names[i], sizeof names[i], "tok_%s_%s", families[i / 3].name, what[i % 3]);
    tests[i] = (struct CMUnitTest){names[i], fns[i % 3], NULL, NULL, (void *)(uintptr_t)&families[i / 3]};
  }
  int failed = cmocka_run_group_tests_name(
#ifdef GOLDEN_MODELS
      "model_tok_golden",
#else
      "test_tok_golden",
#endif
      tests, NULL, NULL);
  return failed ? failed : n_skipped == 3 * N_FAMILIES ? 77 : 0;
}
