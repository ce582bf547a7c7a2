/* tokenizer.json that is not read: everything refused is named, a broken file never gets a tokenizer, and no lack of memory is left unsaid. */
#include "test_tok_kinds.h"
#include "base/buf.h"
#include "base/rng.h"

/* A small file with one place to change: {model}, {normalizer}, {pre}, {post}, {decoder}, {added}. */
typedef struct parts {
  const char *model, *normalizer, *pre, *post, *decoder, *added;
} parts;
#define BPE "\"type\":\"BPE\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3,\"\xe2\x96\x81\":4},\"merges\":[[\"a\",\"b\"]]"
#define META "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"never\",\"split\":true}"

static buf file_of(parts p) {
  buf b;
  buf_init(&b, 1 << 16);
  buf_printf(&b,
      "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,"
      "\"post_processor\":%s,\"decoder\":%s,\"model\":{%s}}",
      p.added ? p.added : "", p.normalizer ? p.normalizer : "null", p.pre ? p.pre : META, p.post ? p.post : "null", p.decoder ? p.decoder : META,
      p.model ? p.model : BPE);
  return b;
}

static void expect_ok(parts p) {
  buf b = file_of(p);
  tok *t = NULL;
  err e = {0};
  if (!tok_from_hf(buf_view(&b), STR(""), NULL, 0, -1, &t, &e)) fail_msg("%s", e.msg);
  tok_free(t);
  buf_fini(&b);
}

static void expect_refused(parts p, err_code code, const char *says) {
  buf b = file_of(p);
  tok *t = NULL;
  err e = {0};
  if (tok_from_hf(buf_view(&b), STR(""), NULL, 0, -1, &t, &e)) fail_msg("not refused: %s", b.p);
  if (e.code != code || !strstr(e.msg, says)) fail_msg("code %d, \"%s\": should be %d and say \"%s\"", e.code, e.msg, code, says);
  assert_null(t);
  assert_string_equal(e.param, strstr(e.msg, "base64") || !strcmp(e.param, "precompiled_charsmap") ? e.param : "tokenizer.json");
  buf_fini(&b);
}

static void test_named(void **state) {
  (void)state;
  expect_ok((parts){0}); /* else the rest would prove nothing */
  expect_ok((parts){.normalizer = "{\"type\":\"NFC\"}"});
  const struct {
    parts p;
    const char *says;
  } cases[] = {
      {{.normalizer = "{\"type\":\"Nmt\"}"}, "\"Nmt\""},
      {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Martian\"}]}"}, "\"Martian\""},
      {{.pre = "{\"type\":\"UnicodeScripts\"}"}, "\"UnicodeScripts\""},
      {{.pre = "{\"type\":\"Metaspace\",\"replacement\":\"_\"}"}, "Metaspace"},
      {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" META ",{\"type\":\"Whitespace\"}]}"}, "behind ByteLevel or Metaspace"},
      {{.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\X\"},\"behavior\":\"Isolated\"}"}, "\\X"},
      {{.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}"}, "&&"},
      {{.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a{2}+\"},\"behavior\":\"Isolated\"}"}, "}+"},
      {{.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\\\S]\"},\"behavior\":\"Isolated\"}"}, "\\S"},
      {{.pre = "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}"}, "behavior"},
      {{.decoder = "null"}, "decoder"},
      {{.decoder = "{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}"}, "\"BPEDecoder\""},
      {{.decoder = "{\"type\":\"ByteLevel\"}"}, "does not undo"},
      {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}]}"}, "blanks"},
      {{.post = "{\"type\":\"Martian\"}"}, "\"Martian\""},
      {{.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\"}},{\"SpecialToken\":{\"id\":\"a\"}},{\"Sequence\":{"
                "\"id\":\"A\"}}],"
                "\"special_tokens\":{\"a\":{\"ids\":[1]}}}"},
          "two tokens"},
      {{.added = "{\"id\":5,\"content\":\"<x>\",\"single_word\":true}"}, "single_word"},
      {{.added = "{\"id\":5,\"content\":\"<x>\",\"normalized\":true}", .normalizer = "{\"type\":\"Lowercase\"}"}, "normalized"},
      {{.model = "\"type\":\"WordLevel\",\"vocab\":{\"a\":0}"}, "\"WordLevel\""},
      {{.model = BPE ",\"dropout\":0.1"}, "dropout"},
      {{.model = BPE ",\"end_of_word_suffix\":\"</w>\""}, "end_of_word_suffix"},
      {{.model = BPE ",\"continuing_subword_prefix\":\"##\""}, "continuing_subword_prefix"},
      {{.model = BPE ",\"colour\":1"}, "\"colour\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_refused(cases[i].p, ERR_UNSUPPORTED, cases[i].says);
}

static void test_wrong(void **state) {
  (void)state;
  const struct {
    parts p;
    const char *says;
  } cases[] = {
      {{.model = "\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\"]]"}, "second half is not in the vocabulary"},
      {{.model = "\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]"}, "is not two tokens"},
      {{.model = "\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]"}, "no such number"},
      {{.model = "\"type\":\"BPE\",\"vocab\":{\"a\":1000000000},\"merges\":[]"}, "far beyond"},
      {{.model = "\"type\":\"BPE\",\"vocab\":[[\"a\",0]],\"merges\":[]"}, "another kind"},
      {{.model = "\"type\":\"Unigram\",\"unk_id\":7,\"vocab\":[[\"a\",-1.0]]"}, "outside the vocabulary"},
      {{.model = "\"type\":\"BPE\""}, "no vocabulary"},
      {{.added = "{\"id\":900000,\"content\":\"<x>\"}"}, "far beyond"},
      {{.added = "{\"content\":\"<x>\"}"}, "no id"},
      {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}"}, "no table"},
      {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}"}, "base64"},
      {{.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"}, "does not compile"},
      {{.post = "{\"type\":\"BertProcessing\",\"sep\":[\"a\",99],\"cls\":[\"a\",1]}"}, "outside the vocabulary"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_refused(cases[i].p, ERR_INPUT, cases[i].says);
}

/* Every prefix of a file, and files with bytes changed: an error or a tokenizer that works, never anything else (the sanitizers look on). */
static void test_broken(void **state) {
  (void)state;
  rng r = rng_new(5);
  buf b = file_of((parts){.added = "{\"id\":5,\"content\":\"<\\u00e9\\ud83d\\ude00>\",\"special\":true}", .normalizer = "{\"type\":\"NFKC\"}"});
  int opened = 0;
  for (size_t n = 0; n <= b.n; n++) {
    tok *t = NULL;
    bool ok = tok_from_hf((str){b.p, n}, STR(""), NULL, 0, -1, &t, NULL);
    assert_int_equal(ok, n == b.n);
    tok_free(t);
  }
  for (int i = 0; i < 20000; i++) {
    char *copy = malloc(b.n); /* its end is the end of what may be read */
    assert_non_null(copy);
    memcpy(copy, b.p, b.n);
    for (int k = (int)rng_below(&r, 3); k >= 0; k--) copy[rng_below(&r, b.n)] = "{}[]\",:\\u0159eax\xff\n"[rng_below(&r, 19)];
    tok *t = NULL;
    tok_ids ids = {0};
    if (tok_from_hf((str){copy, b.n}, STR(""), NULL, 0, -1, &t, NULL)) {
      opened++;
      assert_true(tok_encode(t, STR("ab ba <x> \xe2\x96\x81 \xff"), NULL, true, true, &ids, NULL));
      for (int k = 0; k < ids.n; k++) assert_true(ids.v[k] >= 0 && ids.v[k] < tok_count(t));
    }
    free(ids.v);
    tok_free(t);
    free(copy);
  }
  assert_true(opened > 100); /* some changes do no harm */
  buf_fini(&b);
}

/* An expression that searches for ever on some text: that text is refused, in bounded time. */
static void test_patience(void **state) {
  (void)state;
  buf b = file_of((parts){.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|a)*(a|a)*(a|a)*[cd]\"},"
                                 "\"behavior\":\"Isolated\"}," META "]}"});
  tok *t = NULL;
  tok_ids ids = {0};
  err e = {0};
  char text[3000];
  memset(text, 'a', sizeof text);
  assert_true(tok_from_hf(buf_view(&b), STR(""), NULL, 0, -1, &t, &e));
  assert_false(tok_encode(t, (str){text, sizeof text}, NULL, true, false, &ids, &e));
  assert_true(strstr(e.msg, "pre-tokenizer failed") != NULL && ids.n == 0);
  tok_free(t);
  free(ids.v);
  buf_fini(&b);
}

/* tokenizer_config.json, ends and BOS from outside. */
static void test_config(void **state) {
  (void)state;
  buf b = file_of((parts){.added = "{\"id\":5,\"content\":\"<s>\",\"special\":true},{\"id\":6,\"content\":\"</s>\",\"special\":true}"});
  tok *t = NULL;
  err e = {0};
  int n = 0;
  const int32_t more[] = {2, 6, 99, -4};
  assert_true(
      tok_from_hf(buf_view(&b), STR("{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"add_bos_token\":true}"), more, 4, -1, &t, &e));
  assert_true(tok_bos(t) == 5 && tok_eos(t) == 6 && tok_adds_bos(t));
  const int32_t *ends = tok_ends(t, &n);
  assert_true(n == 2 && ends[0] == 2 && ends[1] == 6);
  tok_free(t);
  t = NULL;
  assert_true(tok_from_hf(buf_view(&b), STR(""), NULL, 0, 5, &t, &e));
  assert_true(tok_bos(t) == 5 && !tok_adds_bos(t));
  tok_free(t);
  t = NULL;
  assert_false(tok_from_hf(buf_view(&b), STR(""), NULL, 0, 4000, &t, &e));
  assert_false(tok_from_hf(buf_view(&b), STR("{\"bos_token\""), NULL, 0, -1, &t, &e));
  buf_fini(&b);
}

/* Text that lies outside trusted bytes is never a control token, in any kind of file. */
static void test_trust(void **state) {
  (void)state;
  static const char *const names[] = {"hf-bert", "hf-llama2", "hf-qwen", "hf-xlmr"};
  static const char *const control[] = {"[CLS]", "</s>", "<|im_end|>", "</s>"};
  for (int i = 0; i < 4; i++) {
    char path[4096];
    golden_path(path, sizeof path, names[i], "json");
    bytes b = load_gz(path);
    tok *t = NULL;
    err e = {0};
    assert_true(tok_from_hf((str){(char *)b.p, b.n}, STR(""), NULL, 0, -1, &t, &e));
    str s = str_c(control[i]);
    int32_t id = tok_find(t, s);
    assert_true(id >= 0 && tok_type(t, id) == TOK_CONTROL);
    for (size_t bad = 0; bad <= s.n; bad++) { /* bad == n: all trusted */
      uint8_t trust[32];
      tok_ids ids = {0};
      memset(trust, 1, sizeof trust);
      if (bad < s.n) trust[bad] = 0;
      assert_true(tok_encode(t, s, trust, true, false, &ids, &e));
      bool found = false;
      for (int k = 0; k < ids.n; k++) found |= ids.v[k] == id;
      assert_int_equal(found, bad == s.n);
      free(ids.v);
    }
    tok_free(t);
    free(b.p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_named), cmocka_unit_test(test_wrong), cmocka_unit_test(test_broken),
      cmocka_unit_test(test_patience), cmocka_unit_test(test_config), cmocka_unit_test(test_trust)};
  return cmocka_run_group_tests_name("test_tok_hf_bad", tests, NULL, NULL);
}
