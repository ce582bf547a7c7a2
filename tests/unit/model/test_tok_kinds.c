/* Ids equal to the reference for every kind of vocabulary beyond byte-level BPE, on the strings they all share; round trips; and proof that the
 * comparison can fail. Compiled twice, as test_tok_golden.c is: (GOLDEN_MODELS) for the kinds whose vocabulary is in a model file. */
#include "test_tok_kinds.h"
#include "base/buf.h"

typedef struct kind {
  const char *name;
  const char *model;   /* tokenizer.ggml.model of a stored vocabulary; NULL: FILE or a tokenizer.json */
  const char *file;    /* a model file */
  bool exact;          /* texts come back as they were, but for unknowns */
  int min_round_trips; /* strings that come back as they were, blanks for U+2581: at least */
} kind;
#ifdef GOLDEN_MODELS
static const kind kinds[] = {{"gemma", "llama", "gemma-3-270m-q4_k_m.gguf", true, 6700}};
#else
static const kind kinds[] = {
    {"llama2", "llama", NULL, true, 6700},
    {"llama2bare", "llama", NULL, true, 2000},
    {"t5", "t5", NULL, false, 500},
    {"t5bytes", "t5", NULL, true, 6700},
    {"bert", "bert", NULL, false, 300},
};
#endif
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_TESTS = 3 };
static int n_skipped;

/* --- vocabularies --- */

typedef struct stored {
  tok_src src;
  str *tokens;
  uint8_t *types;
  float *scores;
  bytes raw;
  mfile *file;
} stored;

static void stored_alloc(stored *v, size_t n) {
  v->tokens = calloc(n, sizeof *v->tokens);
  v->types = calloc(n, 1);
  v->scores = calloc(n, sizeof *v->scores);
  assert_true(v->tokens && v->types && v->scores);
  v->src.tokens = v->tokens;
  v->src.types = v->types;
  v->src.scores = v->scores;
  v->src.n_tokens = (int)n;
}

static stored stored_load(const kind *k) {
  char path[4096];
  stored v = {.src = {.model = k->model, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1}};
  golden_path(path, sizeof path, k->name, "vocab");
  v.raw = load_gz(path);
  expect_magic(&v.raw, "WVOC2\n");
  uint64_t flags = get_varint(&v.raw);
  v.src.add_space_prefix = flags & 1;
  v.src.remove_extra_whitespaces = flags & 2;
  v.src.unk = (int)get_varint(&v.raw) - 1;
  v.src.charsmap = get_blob(&v.raw);
  stored_alloc(&v, get_varint(&v.raw));
  for (int i = 0; i < v.src.n_tokens; i++) {
    v.types[i] = v.raw.p[v.raw.at++];
    memcpy(&v.scores[i], v.raw.p + v.raw.at, 4);
    v.raw.at += 4;
    v.tokens[i] = get_blob(&v.raw);
  }
  return v;
}

static stored stored_of_file(const kind *k, const char *path) {
  stored v = {.src = {.model = k->model, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1}};
  err e = {0};
  if (!gguf_open(path, &v.file, &e)) fail_msg("%s", e.msg);
  const mf_val *t = mf_get(v.file, "tokenizer.ggml.tokens"), *y = mf_get(v.file, "tokenizer.ggml.token_type"),
               *s = mf_get(v.file, "tokenizer.ggml.scores");
  assert_true(t && y && s && t->strs);
  stored_alloc(&v, t->count);
  memcpy(v.tokens, t->strs, t->count * sizeof(str));
  for (size_t i = 0; i < t->count; i++) {
    v.types[i] = (uint8_t)mf_elem_i64(y, i);
    v.scores[i] = (float)mf_elem_f64(s, i);
  }
  int64_t unk = -1;
  assert_true(mf_i64(v.file, "tokenizer.ggml.unknown_token_id", &unk, &e));
  assert_true(mf_bool(v.file, "tokenizer.ggml.add_space_prefix", &v.src.add_space_prefix, &e));
  v.src.unk = (int)unk;
  return v;
}

static stored kind_vocab(const kind *k) {
  char path[4096];
  if (!k->file) return stored_load(k);
  if (!model_file(path, sizeof path, k->file)) {
    printf("skip %s: %s is neither in $WEIR_TEST_MODELS nor in the models' cache folder\n", k->name, k->file);
    n_skipped++;
    skip();
  }
  return stored_of_file(k, path);
}

static void stored_fini(stored *v) {
  free(v->tokens);
  free(v->types);
  free(v->scores);
  free(v->raw.p);
  mf_close(v->file);
}

static void test_equal(void **state) {
  const kind *k = *state;
  stored v = kind_vocab(k);
  tok *t = tok_must(&v.src);
  for (int pass = 0; pass < 2; pass++) { /* the second time with the memo filled */
    score sc = compare(t, k->name, true);
    if (!pass) printf("%s: %d strings (%d left out), control tokens parsed and not, %d differ\n", k->name, sc.strings, sc.left_out, sc.wrong);
    assert_true(sc.strings - sc.left_out >= 6000);
    assert_int_equal(sc.wrong, 0);
  }
  tok_free(t);
  stored_fini(&v);
}

/* U+2581 in a text is a blank afterwards. */
static buf blanks(str s) {
  buf b;
  buf_init(&b, 1 << 20);
  for (size_t i = 0; i < s.n;) {
    bool meta = s.n - i >= 3 && !memcmp(s.p + i, "\xe2\x96\x81", 3);
    buf_putc(&b, meta ? ' ' : s.p[i]);
    i += meta ? 3 : 1;
  }
  return b;
}

/* As a whole text and as the continuation of one; the second keeps the blank that encoding put in front. */
static void test_round_trip(void **state) {
  const kind *k = *state;
  stored v = kind_vocab(k);
  tok *t = tok_must(&v.src);
  bytes text = open_golden("kinds", "text", "WTXT1\n");
  err e = {0};
  tok_ids ids = {0};
  int same = 0;
  for (int i = (int)get_varint(&text); i > 0; i--) {
    str s = get_blob(&text);
    buf want = blanks(s), whole, more;
    tok_stream a, b;
    char scratch[8];
    ids.n = 0;
    buf_init(&whole, 1 << 20);
    buf_init(&more, 1 << 20);
    assert_true(tok_encode(t, s, NULL, false, false, &ids, &e));
    tok_stream_init_whole(&a, true);
    tok_stream_init(&b, true);
    bool lossy = false;
    for (int j = 0; j < ids.n; j++) {
      lossy |= tok_type(t, ids.v[j]) == TOK_UNKNOWN;
      assert_true(tok_stream_push(t, &a, ids.v[j], &whole) && tok_stream_push(t, &b, ids.v[j], &more));
      assert_true(utf8_valid(buf_view(&whole)) && utf8_valid(buf_view(&more)));
      (void)tok_piece(t, ids.v[j], true, scratch);
    }
    assert_true(tok_stream_end(&a, &whole) && tok_stream_end(&b, &more));
    if (v.src.charsmap.n == 0 && !lossy && k->exact) {
      bool prefix = v.src.add_space_prefix && s.n;
      assert_true(str_eq(buf_view(&whole), buf_view(&want)));
      assert_true(more.n == want.n + prefix && (!prefix || more.p[0] == ' ') && (!want.n || !memcmp(more.p + prefix, want.p, want.n)));
    }
    same += str_eq(buf_view(&whole), buf_view(&want));
    buf_fini(&want);
    buf_fini(&whole);
    buf_fini(&more);
  }
  printf("%s: %d texts come back as they were\n", k->name, same);
  assert_true(same >= k->min_round_trips);
  free(text.p);
  free(ids.v);
  tok_free(t);
  stored_fini(&v);
}

static int wrong_with(const tok_src *s, const kind *k, const char *what) {
  tok *t = tok_must(s);
  int wrong = compare(t, k->name, false).wrong;
  printf("%s, planted: %s: %d differ\n", k->name, what, wrong);
  tok_free(t);
  return wrong;
}

static int find_token(const stored *v, const char *text) {
  for (int i = 0; i < v->src.n_tokens; i++)
    if (str_is(v->tokens[i], text) && (v->types[i] == TOK_CONTROL || v->types[i] == TOK_USER)) return i;
  return -1;
}

/* Negative controls: the vectors must notice a score that is another, a prefix that is not put (or is), a control or user-defined token that has
 * become ordinary, blanks that are kept (or are not). */
static void test_can_fail(void **state) {
  const kind *k = *state;
  stored v = kind_vocab(k);
  bool spm = strcmp(k->model, "bert") != 0;
  if (spm) {
    tok_src s = v.src;
    s.add_space_prefix = !s.add_space_prefix;
    assert_true(wrong_with(&s, k, "the other prefix") > 0);
    s = v.src;
    s.remove_extra_whitespaces = !s.remove_extra_whitespaces;
    assert_true(wrong_with(&s, k, "the other rule of blanks") > 0);
  }
  int word = -1; /* an early word of several letters */
  for (int i = 0; i < v.src.n_tokens && word < 0; i++)
    if (v.types[i] == TOK_NORMAL && v.tokens[i].n == 2 && v.tokens[i].p[0] > ' ' && v.tokens[i].p[0] < 127) word = i;
  assert_true(word >= 0);
  v.scores[word] -= 1000000;
  v.types[word] = spm ? TOK_NORMAL : TOK_CONTROL;
  assert_true(wrong_with(&v.src, k, spm ? "one worse score" : "one word less") > 0);
  v.types[word] = TOK_NORMAL;
  v.scores[word] += 1000000;
  static const char *const names[] = {"<bos>", "<s>", "<table>", "[[ref]]", "[CLS]"};
  for (int i = 0; i < 5; i++) {
    int id = find_token(&v, names[i]);
    if (id < 0) continue;
    uint8_t type = v.types[id];
    v.types[id] = TOK_UNUSED;
    assert_true(wrong_with(&v.src, k, names[i]) > 0);
    v.types[id] = type;
  }
  stored_fini(&v);
}

int main(void) {
  struct CMUnitTest tests[N_TESTS * N_KINDS];
  char names[N_TESTS * N_KINDS][64];
  const CMUnitTestFunction fns[N_TESTS] = {test_equal, test_round_trip, test_can_fail};
  const char *const what[N_TESTS] = {"equal", "round_trip", "can_fail"};
  for (int i = 0; i < N_TESTS * N_KINDS; i++) {
    snprintf(names[i], sizeof names[i], "tok_%s_%s", kinds[i / N_TESTS].name, what[i % N_TESTS]);
    tests[i] = (struct CMUnitTest){names[i], fns[i % N_TESTS], NULL, NULL, (void *)(uintptr_t)&kinds[i / N_TESTS]};
  }
  int failed = cmocka_run_group_tests_name(
#ifdef GOLDEN_MODELS
      "model_tok_kinds",
#else
      "test_tok_kinds",
#endif
      tests, NULL, NULL);
  return failed ? failed : n_skipped == N_TESTS * N_KINDS ? 77 : 0;
}
