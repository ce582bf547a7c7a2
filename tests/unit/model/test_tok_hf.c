/* tokenizer.json as the library saves it: ids equal to the library's on every string, a planted fault in each file seen, round trips, BOS and EOS,
 * and everything that is not read refused by its name. */
#include "test_tok_kinds.h"
#include "base/buf.h"
#include "base/json.h"

/* The first of each pair is replaced by the second in the file's text, or the first merge left out; the vectors must notice. */
#define FIRST_MERGE "\"merges\":["
typedef struct kind {
  const char *name;
  bool exact;               /* texts come back as they were, but for U+2581 and unknowns */
  const char *first, *last; /* what add_special puts around a text */
  const char *pre;          /* tokenizer.ggml.pre of the same cuts in a GGUF file; NULL: there is none */
  const char *plant[3][2];
} kind;
static const kind kinds[] = {
    {"hf-bert", false, "[CLS]", "[SEP]", NULL,
        {{"\"lowercase\":true", "\"lowercase\":false"}, {"\"handle_chinese_chars\":true", "\"handle_chinese_chars\":false"},
            {"\"[CLS]\",\"single_word\"", "\"[CLX]\",\"single_word\""}}},
    {"hf-bertcased", false, "[CLS]", "[SEP]", NULL, {{"\"clean_text\":true", "\"clean_text\":false"}, {"\"lowercase\":false", "\"lowercase\":true"}}},
    {"hf-llama2", true, "<s>", NULL, NULL,
        {{"{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},", ""},
            {"\"fuse_unk\":true,\"byte_fallback\":true", "\"fuse_unk\":true,\"byte_fallback\":false"}, {FIRST_MERGE, ""}}},
    {"hf-gemma", true, "<s>", NULL, NULL,
        {{"\"type\":\"Replace\",\"pattern\":{\"String\":\" \"}", "\"type\":\"Replace\",\"pattern\":{\"String\":\"~\"}"}}},
    {"hf-qwen", false, NULL, NULL, "qwen2",
        {{"\"type\":\"NFC\"", "\"type\":\"NFD\""}, {"?\\\\p{L}+|", "?\\\\p{L}|"},
            {"\"<|im_end|>\",\"single_word\"", "\"<|im_emd|>\",\"single_word\""}}},
    {"hf-llama3", true, "<s>", NULL, "llama-bpe",
        {{"\"ignore_merges\":true", "\"ignore_merges\":false"}, {"\"rstrip\":true", "\"rstrip\":false"}, {"\"lstrip\":true", "\"lstrip\":false"}}},
    {"hf-gpt2", false, NULL, NULL, NULL, {{"\"add_prefix_space\":true", "\"add_prefix_space\":false"}}},
    {"hf-smol", true, NULL, NULL, "refact", {{"\"use_regex\":true", "\"use_regex\":false"}}},
    {"hf-dbrx", true, NULL, NULL, "dbrx", {{"{1,3}", "{1,2}"}, {FIRST_MERGE, ""}}},
    {"hf-tekken", true, NULL, NULL, "tekken", {{"\"ignore_merges\":true", "\"ignore_merges\":false"}, {"\\\\p{Ll}", ""}}},
    {"hf-gpt4o", true, NULL, NULL, "gpt-4o", {{"'s|'t|'re|", ""}, {"{1,3}", "{1,2}"}, {"\\\\p{Ll}", ""}}},
    {"hf-xlmr", false, NULL, "</s>", NULL, {{"\"always\"", "\"never\""}, {"\"type\":\"Precompiled\"", "\"type\":\"NFC\""}}},
    {"hf-albert", false, NULL, "</s>", NULL,
        {{"\"prepend_scheme\":\"first\"", "\"prepend_scheme\":\"always\""}, {"{\"type\":\"StripAccents\"},", ""}}},
    {"hf-pieces", false, NULL, NULL, NULL,
        {{"\"Contiguous\"", "\"Isolated\""}, {"\"MergedWithNext\"", "\"MergedWithPrevious\""},
            {"\"individual_digits\":false", "\"individual_digits\":true"}}},
    {"hf-words", false, NULL, NULL, NULL, {{FIRST_MERGE, ""}, {"\"type\":\"NFD\"", "\"type\":\"NFC\""}}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_TESTS = 3 };

typedef struct vocab_arrays {
  tok_src src;
  str *tokens, *merges;
  uint8_t *types;
  char **joined;
} vocab_arrays;

static void arrays_alloc(vocab_arrays *v, int n, size_t n_merges) {
  v->tokens = calloc((size_t)n, sizeof *v->tokens);
  v->types = malloc((size_t)n);
  v->merges = calloc(n_merges, sizeof *v->merges);
  v->joined = calloc(n_merges, sizeof *v->joined);
  assert_true(v->tokens && v->types && v->merges && v->joined);
  memset(v->types, TOK_NORMAL, (size_t)n);
  v->src = (tok_src){.model = "gpt2",
      .tokens = v->tokens,
      .types = v->types,
      .n_tokens = n,
      .merges = v->merges,
      .n_merges = (int)n_merges,
      .bos = -1,
      .eos = -1,
      .eot = -1,
      .unk = -1,
      .pad = -1};
}

static void arrays_free(vocab_arrays *v) {
  for (int i = 0; i < v->src.n_merges; i++) free(v->joined[i]);
  free(v->tokens);
  free(v->types);
  free(v->merges);
  free(v->joined);
}

static bytes load_json(const char *name) {
  char path[4096];
  golden_path(path, sizeof path, name, "json");
  return load_gz(path);
}

static tok *open_tok(str json, str config) {
  tok *t = NULL;
  err e = {0};
  if (!tok_from_hf(json, config, NULL, 0, -1, &t, &e)) fail_msg("%s: %s", e.param, e.msg);
  return t;
}

/* The same vocabulary as a GGUF file has it: the row of tok_pre.c cuts as the file's own expression does. Control tokens that eat blanks are not
 * GGUF's to state, so those two files are compared where control tokens are text. */
static void compare_row(const kind *k, str json) {
  json_t *doc = NULL, *x;
  err e = {0};
  const char *key;
  size_t i;
  assert_true(json_parse(json, &doc, &e));
  json_t *model = json_object_get(doc, "model"), *words = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
  json_t *added = json_object_get(doc, "added_tokens");
  vocab_arrays v = {0};
  int n = (int)json_object_size(words);
  json_array_foreach(added, i, x) n = json_integer_value(json_object_get(x, "id")) >= n ? (int)json_integer_value(json_object_get(x, "id")) + 1 : n;
  arrays_alloc(&v, n, json_array_size(merges));
  json_object_foreach(words, key, x) v.tokens[json_integer_value(x)] = str_c(key);
  bool eats = false;
  json_array_foreach(added, i, x) {
    json_int_t id = json_integer_value(json_object_get(x, "id"));
    v.tokens[id] = str_c(json_string_value(json_object_get(x, "content")));
    v.types[id] = json_is_true(json_object_get(x, "special")) ? TOK_CONTROL : TOK_USER;
    eats |= json_is_true(json_object_get(x, "lstrip")) || json_is_true(json_object_get(x, "rstrip"));
  }
  json_array_foreach(merges, i, x) {
    int len = asprintf(&v.joined[i], "%s %s", json_string_value(json_array_get(x, 0)), json_string_value(json_array_get(x, 1)));
    assert_true(len > 0);
    v.merges[i] = (str){v.joined[i], (size_t)len};
  }
  v.src.pre = k->pre;
  tok *t = tok_must(&v.src);
  score sc = compare_mode(t, k->name, true, !eats);
  printf("%s as GGUF with \"%s\": %d differ\n", k->name, k->pre, sc.wrong);
  assert_int_equal(sc.wrong, 0);
  tok_free(t);
  arrays_free(&v);
  json_decref(doc);
}

static void test_equal(void **state) {
  const kind *k = *state;
  bytes b = load_json(k->name);
  tok *t = open_tok((str){(char *)b.p, b.n}, STR(""));
  for (int pass = 0; pass < 2; pass++) {
    score sc = compare(t, k->name, true);
    if (!pass) printf("%s: %d strings (%d left out), control tokens parsed and not, %d differ\n", k->name, sc.strings, sc.left_out, sc.wrong);
    assert_true(sc.strings - sc.left_out >= 6000);
    assert_int_equal(sc.wrong, 0);
  }
  if (k->pre) compare_row(k, (str){(char *)b.p, b.n});
  tok_ids ids = {0};
  err e = {0};
  assert_true(tok_encode(t, STR("abc"), NULL, true, true, &ids, &e));
  if (k->first) assert_int_equal(ids.v[0], tok_find(t, str_c(k->first)));
  if (k->last) assert_int_equal(ids.v[ids.n - 1], tok_find(t, str_c(k->last)));
  assert_int_equal(tok_adds_bos(t), k->first != NULL);
  free(ids.v);
  tok_free(t);
  free(b.p);
}

static void test_round_trip(void **state) {
  const kind *k = *state;
  bytes b = load_json(k->name), text = open_golden("kinds", "text", "WTXT1\n");
  tok *t = open_tok((str){(char *)b.p, b.n}, STR(""));
  tok_ids ids = {0};
  err e = {0};
  int same = 0, n = (int)get_varint(&text);
  for (int i = 0; i < n; i++) {
    str s = get_blob(&text);
    buf out;
    tok_stream st;
    buf_init(&out, 1 << 20);
    ids.n = 0;
    assert_true(tok_encode(t, s, NULL, false, false, &ids, &e));
    tok_stream_init_whole(&st, true);
    for (int j = 0; j < ids.n; j++) {
      assert_true(tok_stream_push(t, &st, ids.v[j], &out));
      assert_true(utf8_valid(buf_view(&out)));
    }
    assert_true(tok_stream_end(&st, &out));
    same += str_eq(buf_view(&out), s);
    bool meta = str_find(s, STR("\xe2\x96\x81")) >= 0;
    if (k->exact && !meta && !str_eq(buf_view(&out), s)) fail_msg("string %d: \"%.*s\" came back as \"%s\"", i, (int)s.n, s.p, out.p ? out.p : "");
    buf_fini(&out);
  }
  printf("%s: %d of %d texts come back as they were\n", k->name, same, n);
  assert_true(same > 100);
  free(ids.v);
  free(text.p);
  free(b.p);
  tok_free(t);
}

static buf replaced(str json, const char *from, const char *to) {
  ptrdiff_t at = str_find(json, str_c(from));
  if (at < 0) fail_msg("the file has no %s", from);
  buf b;
  buf_init(&b, 1 << 28);
  size_t end = (size_t)at + strlen(from);
  buf_put(&b, json.p, (size_t)at);
  if (!strcmp(from, FIRST_MERGE)) {
    buf_puts(&b, from);
    end += (size_t)str_find((str){json.p + end, json.n - end}, STR("],")) + 2;
  }
  buf_puts(&b, to);
  buf_put(&b, json.p + end, json.n - end);
  return b;
}

static void test_can_fail(void **state) {
  const kind *k = *state;
  bytes b = load_json(k->name);
  for (int i = 0; i < 3 && k->plant[i][0]; i++) {
    buf j = replaced((str){(char *)b.p, b.n}, k->plant[i][0], k->plant[i][1]);
    tok *t = NULL;
    err e = {0};
    /* a fault that is refused is seen too */
    int wrong = tok_from_hf(buf_view(&j), STR(""), NULL, 0, -1, &t, &e) ? compare(t, k->name, false).wrong : -1;
    printf("%s, planted %s: %d differ\n", k->name, k->plant[i][1][0] ? k->plant[i][1] : "nothing", wrong);
    assert_true(wrong != 0);
    tok_free(t);
    buf_fini(&j);
  }
  free(b.p);
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
  return cmocka_run_group_tests_name("test_tok_hf", tests, NULL, NULL);
}
