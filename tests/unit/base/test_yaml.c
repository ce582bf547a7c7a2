#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/yaml.h"
#include <stdio.h>

/* Each row: a text and the JSON it must become, or (starting with '!') what the message must contain. */
static const struct {
  const char *yaml, *want;
} rows[] = {
    {"a: 1\nb: [x, 'y', 2.5]\nc:\n  d: true\n", "{\"a\":1,\"b\":[\"x\",\"y\",2.5],\"c\":{\"d\":true}}"},
    {"", "null"},
    {"# only a comment\n", "null"},
    {"a:\nb: ~\nc: null\n", "{\"a\":null,\"b\":null,\"c\":null}"},
    {"a: 'true'\nb: \"12\"\nc: yes\nd: off\n", "{\"a\":\"true\",\"b\":\"12\",\"c\":\"yes\",\"d\":\"off\"}"},
    {"a: 0x1F\nb: 0o17\nc: -5\nd: +7\ne: 010\n", "{\"a\":31,\"b\":15,\"c\":-5,\"d\":7,\"e\":10}"},
    {"a: 1e3\nb: .5\nc: 1.\nd: -2.5E-1\n", "{\"a\":1000.0,\"b\":0.5,\"c\":1.0,\"d\":-0.25}"},
    {"a: 1.2.3\nb: 1_000\nc: -x\nd: 64M\ne: .\n", "{\"a\":\"1.2.3\",\"b\":\"1_000\",\"c\":\"-x\",\"d\":\"64M\",\"e\":\".\"}"},
    {"a: |\n  x\n  y\n", "{\"a\":\"x\\ny\\n\"}"},
    {"- 1\n- - 2\n  - {k: v}\n", "[1,[2,{\"k\":\"v\"}]]"},
    {"a: &x 1\nb: *x\n", "!t.yaml:2:4: aliases"},
    {"a: !!str 1\n", "!t.yaml:1:4: tags"},
    {"a: 1\na: 2\n", "!t.yaml:2:1: the key 'a' is here twice"},
    {"a: 1\n---\nb: 2\n", "!second document"},
    {"a: .inf\n", "!infinity"},
    {"a: .NaN\n", "!infinity and NaN"},
    {"a: 99999999999999999999\n", "!does not fit"},
    {"a: 1e999\n", "!does not fit"},
    {"[a]: 1\n", "!a key is"},
    {"a: [1, 2\n", "!t.yaml:"},
    {"a:\n\t- 1\n", "!t.yaml:2:"},
    {"a: \xff\xfe\n", "!t.yaml:"},
    {"a: \"x\\0y\"\n", "{\"a\":\"x\\u0000y\"}"},
};

static void test_rows(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_t *doc = NULL;
    err e = {0};
    bool ok = yaml_parse(str_c(rows[i].yaml), "t.yaml", &doc, &e);
    if (rows[i].want[0] == '!') {
      if (ok || !strstr(e.msg, rows[i].want + 1)) print_error("row %zu: %s\n", i, ok ? "accepted" : e.msg);
      assert_false(ok);
      assert_non_null(strstr(e.msg, rows[i].want + 1));
      assert_int_equal(e.code, ERR_INPUT);
      continue;
    }
    if (!ok) print_error("row %zu: %s\n", i, e.msg);
    assert_true(ok);
    char *text = json_dumps(doc, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, rows[i].want);
    free(text);
    json_decref(doc);
  }
}

static void nested(char *b, int depth) {
  memset(b, '[', (size_t)depth);
  memset(b + depth, ']', (size_t)depth);
  b[2 * depth] = 0;
}

static void test_depth(void **state) {
  (void)state;
  char b[256];
  json_t *doc = NULL;
  err e = {0};
  nested(b, 64);
  assert_true(yaml_parse(str_c(b), "t", &doc, &e));
  json_decref(doc);
  nested(b, 65);
  assert_false(yaml_parse(str_c(b), "t", &doc, &e));
  assert_non_null(strstr(e.msg, "64 levels"));
}

static void test_file(void **state) {
  (void)state;
  char path[] = "/tmp/weir-yaml-XXXXXX";
  json_t *doc = NULL;
  err e = {0};
  FILE *f = fdopen(mkstemp(path), "w");
  fputs("abc: 1\n", f);
  fclose(f);
  assert_false(yaml_load_path(path, 6, &doc, &e));
  assert_int_equal(e.code, ERR_TOO_LARGE);
  assert_true(yaml_load_path(path, 7, &doc, &e));
  assert_int_equal(json_integer_value(json_object_get(doc, "abc")), 1);
  json_decref(doc);
  remove(path);
  assert_false(yaml_load_path(path, 7, &doc, &e));
  assert_int_equal(e.code, ERR_NOT_FOUND);
  assert_non_null(strstr(e.msg, path));
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_depth), cmocka_unit_test(test_file)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
