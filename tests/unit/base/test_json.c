#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/json.h"
#include <malloc.h>
#include <stdio.h>

static json_t *parse(const char *text) {
  json_t *v = NULL;
  err e = {0};
  if (!json_parse(str_c(text), &v, &e)) fail_msg("%s: %s", text, e.msg);
  return v;
}

static void test_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"", "{", "{} x", "[1,]", "nul", "NaN", "[Infinity]", "1e999", "\"\xff\"", "\"\\ud800\"", "\"\\udc00\\ud800\"",
      "{'a':1}", "99999999999999999999"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    json_t *v = NULL;
    err e = {0};
    if (json_parse(str_c(bad[i]), &v, &e)) fail_msg("accepted: %s", bad[i]);
    assert_int_equal(e.code, ERR_INPUT);
    assert_null(v);
  }
  json_decref(parse("\"\\ud83d\\ude00 \\u0000\""));
  json_decref(parse("{\"a\":1,\"a\":2}"));
}

static void test_depth(void **state) {
  (void)state;
  char b[600];
  json_t *v = NULL;
  err e = {0};
  for (int d = 128; d <= 129; d++) {
    memset(b, '[', (size_t)d);
    memset(b + d, ']', (size_t)d);
    b[2 * d] = 0;
    assert_int_equal(json_parse(str_c(b), &v, &e), d == 128);
    if (d == 128) json_decref(v);
  }
  assert_non_null(strstr(e.msg, "128 levels"));
  memset(b, '[', 200); /* brackets inside a string do not nest */
  b[0] = '"';
  b[199] = '"';
  b[200] = 0;
  json_decref(parse(b));
}

static void test_getters(void **state) {
  (void)state;
  json_t *o = parse("{\"s\":\"x\\u0000y\",\"i\":5,\"f\":2.5,\"whole\":5.0,\"b\":true,\"a\":[1],\"o\":{},\"null\":null,\"big\":1e18}");
  str s = STR("before");
  int64_t i = -1;
  double f = -1;
  bool b = false;
  json_t *v = NULL;
  err e = {0};
  assert_true(json_get_str(o, "", "s", &s, &e) && s.n == 3 && s.p[1] == 0);
  assert_true(json_get_i64(o, "", "i", 0, 9, &i, &e) && i == 5);
  assert_true(json_get_i64(o, "", "whole", 0, 9, &i, &e) && i == 5);
  assert_true(json_get_f64(o, "", "f", 0, 9, &f, &e) && f == 2.5);
  assert_true(json_get_f64(o, "", "i", 0, 9, &f, &e) && f == 5);
  assert_true(json_get_bool(o, "", "b", &b, &e) && b);
  assert_true(json_get_array(o, "", "a", &v, &e) && json_is_array(v));
  assert_true(json_get_object(o, "", "o", &v, &e) && json_is_object(v));
  i = 42;
  assert_true(json_get_i64(o, "", "null", 0, 9, &i, &e) && i == 42);
  assert_true(json_get_i64(o, "", "absent", 0, 9, &i, &e) && i == 42);
  assert_false(json_get_i64(o, "m[2]", "f", 0, 9, &i, &e));
  assert_string_equal(e.param, "m[2].f");
  assert_false(json_get_i64(o, "", "big", 0, 9, &i, &e));
  assert_non_null(strstr(e.msg, "big"));
  assert_false(json_get_str(o, "", "i", &s, &e));
  assert_non_null(strstr(e.msg, "an integer"));
  assert_int_equal(i, 42);
  json_decref(o);
}

static size_t taken(void) {
  struct mallinfo2 m = mallinfo2(); /* zeros under a sanitizer */
  return m.uordblks + m.hblkhd;
}

/* What the estimate says is what the document takes at most: it is what keeps a small body from becoming a large process. */
static void test_cost(void **state) {
  (void)state;
  static const char *const unit[] = {"[],", "{},", "\"\",", "1,", "1.5,", "true,", "{\"\":{}},", "[1],",
      "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6},", "[[[[1]]]],", "\"abcdefghijklmnopqrstuvwxyz\","};
  for (size_t u = 0; u <= sizeof unit / sizeof *unit; u++) {
    size_t n = 200000, cap = n * 80, len = 0;
    char *b = malloc(cap);
    bool keys = u == sizeof unit / sizeof *unit; /* one object of many names */
    b[len++] = keys ? '{' : '[';
    for (size_t i = 0; i < n; i++) len += (size_t)(keys ? snprintf(b + len, 80, "\"%zx\":1,", i) : snprintf(b + len, 80, "%s", unit[u]));
    b[len - 1] = keys ? '}' : ']';
    size_t before = taken();
    json_t *v = NULL;
    err e = {0};
    if (json_parse((str){b, len}, &v, &e)) {
      size_t now = taken(), cost = json_cost((str){b, len});
      if (now - before > cost) fail_msg("%s: takes %zu, estimated %zu", keys ? "names" : unit[u], now - before, cost);
      json_decref(v);
    } else assert_int_equal(e.code, ERR_TOO_LARGE);
    free(b);
  }
  size_t n = 4 << 20;
  char *b = malloc(n);
  for (size_t i = 0; i < n; i++) b[i] = "[],"[i % 3];
  b[0] = '[', b[n - 1] = ']';
  json_t *v = NULL;
  err e = {0};
  assert_false(json_parse((str){b, n}, &v, &e));
  assert_int_equal(e.code, ERR_TOO_LARGE);
  assert_non_null(strstr(e.msg, "256 MiB"));
  b[0] = b[n - 1] = '"'; /* the same bytes as text are no trouble */
  assert_true(json_parse((str){b, n}, &v, &e));
  json_decref(v);
  free(b);
}

int main(void) {
  const struct CMUnitTest t[] = {
      cmocka_unit_test(test_refused), cmocka_unit_test(test_depth), cmocka_unit_test(test_cost), cmocka_unit_test(test_getters)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
