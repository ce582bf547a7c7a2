#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/arena.h"
#include "base/buf.h"
#include <stdio.h>

static void test_numbers(void **state) {
  (void)state;
  int64_t i = 7;
  double f = 7;
  uint64_t u = 7;
  static const char *const not_int[] = {"", " 1", "1 ", "1.0", "0x1", "9223372036854775808", "--1", "1e3"};
  static const char *const not_float[] = {"", " 1", "1x", "nan", "inf", "1e999", "-inf"};
  static const char *const not_bytes[] = {"", "-1", "M", "1Q", "1MM", "1e30", "nan", "1 M", "9E30"};
  for (size_t k = 0; k < 8; k++) assert_false(str_i64(str_c(not_int[k]), &i));
  for (size_t k = 0; k < 7; k++) assert_false(str_f64(str_c(not_float[k]), &f));
  for (size_t k = 0; k < 9; k++) assert_false(str_bytes(str_c(not_bytes[k]), &u));
  assert_true(i == 7 && f == 7 && u == 7); /* untouched by failures */
  assert_true(str_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
  assert_true(str_f64(STR("-1.5e3"), &f) && f == -1500);
  assert_true(str_bytes(STR("1.5GiB"), &u) && u == 3ull << 29);
  assert_true(str_bytes(STR("64k"), &u) && u == 65536);
  assert_true(str_bytes(STR("10B"), &u) && u == 10);
}

static void test_parts(void **state) {
  (void)state;
  str h, t;
  assert_true(str_cut(STR("a=b=c"), '=', &h, &t));
  assert_true(str_is(h, "a") && str_is(t, "b=c"));
  assert_false(str_cut(STR("abc"), '=', &h, &t));
  assert_true(str_is(h, "a"));
  assert_int_equal(str_find(STR("hello"), STR("ll")), 2);
  assert_int_equal(str_find(STR("hello"), STR("")), 0);
  assert_int_equal(str_find(STR("he"), STR("hello")), -1);
  assert_true(str_is(str_trim(STR(" \t a b \r\n")), "a b"));
  assert_int_equal(str_trim(STR("  ")).n, 0);
  assert_true(str_starts(STR("abc"), STR("ab")) && str_ends(STR("abc"), STR("bc")) && !str_ends(STR("c"), STR("bc")));
}

/* Every code point there and back; every two- and three-byte sequence judged as its decoding says. */
static void test_utf8(void **state) {
  (void)state;
  char b[4];
  uint32_t cp;
  for (uint32_t c = 0; c <= 0x10ffff; c++) {
    int n = utf8_encode(c, b);
    if (c >= 0xd800 && c < 0xe000) {
      assert_memory_equal(b, "\xef\xbf\xbd", 3);
      continue;
    }
    if (utf8_decode(b, (size_t)n, &cp) != n || cp != c) fail_msg("U+%04X", c);
    if (n > 1 && utf8_decode(b, (size_t)n - 1, &cp) != 0) fail_msg("U+%04X cut off", c);
  }
  static const char *const bad[] = {
      "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\x80", "\xff", "\xf0\x80\x80\x80"};
  for (size_t i = 0; i < 8; i++) assert_false(utf8_valid(str_c(bad[i])));
  assert_true(utf8_valid(STR("long enough for the fast way, with \xe2\x82\xac and \xf0\x9f\x98\x80 inside")));
  int need;
  assert_int_equal(utf8_valid_prefix(STR("ab\xe2\x82"), &need), 2);
  assert_int_equal(need, 1);
  assert_int_equal(utf8_valid_prefix(STR("ab\xed\xa0"), &need), 2); /* a surrogate: no more bytes can help */
  assert_int_equal(need, 0);
  assert_int_equal(utf8_valid_prefix(STR("ab\xf0"), &need), 2);
  assert_int_equal(need, 3);
}

static void test_buf(void **state) {
  (void)state;
  buf b;
  buf_init(&b, 10);
  assert_true(buf_puts(&b, "12345"));
  assert_true(buf_printf(&b, "%d", 678));
  assert_false(buf_puts(&b, "9ab")); /* over the bound: what was there stays, and the buffer says so from now on */
  assert_true(b.failed);
  assert_string_equal(b.p, "12345678");
  assert_false(buf_putc(&b, '9'));
  assert_null(buf_take(&b, NULL));
  buf_clear(&b);
  assert_true(buf_puts(&b, "0123456789"));
  buf_drop(&b, 4);
  assert_string_equal(b.p, "456789");
  buf_drop(&b, 99);
  assert_int_equal(b.n, 0);
  size_t n;
  char *p = buf_take(&b, &n);
  assert_non_null(p);
  assert_true(n == 0 && p[0] == 0);
  free(p);
  buf_fini(&b);
}

static void test_buf_json(void **state) {
  (void)state;
  buf b;
  buf_init(&b, 1000);
  buf_json(&b, STR("a\"\\\n\t\x01\x7f\xe2\x82\xac\xff\xed\xa0\x80z"));
  assert_string_equal(b.p, "a\\\"\\\\\\n\\t\\u0001\x7f\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz");
  buf_fini(&b);
}

static void test_arena(void **state) {
  (void)state;
  arena a;
  arena_init(&a, 1 << 20);
  char *last = NULL;
  for (size_t i = 1; i < 200; i++) {
    char *p = arena_try(&a, i);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 16, 0);
    for (size_t k = 0; k < i; k++) assert_int_equal(p[k], 0);
    memset(p, 0xaa, i);
    if (last) assert_int_equal((unsigned char)last[0], 0xaa);
    last = p;
  }
  assert_null(arena_try(&a, 1 << 20));
  assert_null(arena_try(&a, SIZE_MAX - 3));
  assert_null(arena_try_array(&a, SIZE_MAX / 2, 3));
  assert_string_equal(arena_str(&a, STR("hello")), "hello");
  arena_fini(&a);
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_parts), cmocka_unit_test(test_utf8),
      cmocka_unit_test(test_buf), cmocka_unit_test(test_buf_json), cmocka_unit_test(test_arena)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
