#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "api/openai_target.h"
#include <stdlib.h>
#include <string.h>

static void test_base(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"http://h:8080", "http://h:8080/v1"}, {"http://h:8080/", "http://h:8080/v1"},
      {"http://h/v1", "http://h/v1"}, {"http://h/v1//", "http://h/v1"}, {" https://h/v1beta/openai/ ", "https://h/v1beta/openai"},
      {"http://h/v1/chat/completions", "http://h/v1"}, {"http://h/v1/completions/", "http://h/v1"}, {"http://[::1]:9", "http://[::1]:9/v1"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    openai_target t;
    err e;
    assert_true(openai_target_set(&t, cases[i][0], NULL, &e));
    assert_string_equal(t.base, cases[i][1]);
    assert_string_equal(t.shown, cases[i][1]);
    assert_string_equal(t.auth, "");
  }
}

static void test_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"", "h:8080", "ftp://h", "http://", "http://h/v1?x=1", "http://h/#a", "http://h/a b", "http://h/a\nb"};
  openai_target t = {.base = "untouched"};
  err e;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    err_clear(&e);
    assert_false(openai_target_set(&t, bad[i], NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_string_equal(e.param, "url");
  }
  char long_url[2 * TARGET_URL] = "http://h/";
  memset(long_url + 9, 'a', TARGET_URL);
  assert_false(openai_target_set(&t, long_url, NULL, &e));
  assert_string_equal(t.base, "untouched");
}

static void test_secrets(void **state) {
  (void)state;
  openai_target t;
  err e;
  assert_true(openai_target_set(&t, "http://me:pa@ss@h:1/v1", " sk-secret\r\n", &e));
  assert_string_equal(t.base, "http://me:pa@ss@h:1/v1");
  assert_string_equal(t.shown, "http://h:1/v1");
  assert_string_equal(t.auth, "Authorization: Bearer sk-secret");
  char msg[64] = "keys sk-secret and sk-secret are wrong", clean[] = "nothing here";
  openai_target_scrub(&t, msg);
  assert_string_equal(msg, "keys *** and *** are wrong");
  openai_target_scrub(&t, clean);
  assert_string_equal(clean, "nothing here");
  assert_true(openai_target_set(&t, "http://h", NULL, &e));
  openai_target_scrub(&t, msg);
  assert_string_equal(msg, "keys *** and *** are wrong");

  assert_false(openai_target_set(&t, "http://h", "two\nlines", &e));
  assert_null(strstr(e.msg, "two"));
  char *long_key = calloc(1, TARGET_KEY + 2);
  memset(long_key, 'k', TARGET_KEY);
  assert_true(openai_target_set(&t, "http://h", long_key, &e));
  assert_int_equal(strlen(t.auth), strlen("Authorization: Bearer ") + TARGET_KEY);
  long_key[TARGET_KEY] = 'k';
  assert_false(openai_target_set(&t, "http://h", long_key, &e));
  assert_null(strstr(e.msg, "kkk"));
  free(long_key);
}

static void test_key_from_environment(void **state) {
  (void)state;
  const char *key = "";
  err e;
  unsetenv("OPENAI_API_KEY");
  assert_true(openai_target_key(NULL, &key, &e));
  assert_null(key);
  setenv("OPENAI_API_KEY", "a", 1);
  assert_true(openai_target_key(NULL, &key, &e));
  assert_string_equal(key, "a");
  assert_false(openai_target_key("WEIR_NO_SUCH_KEY", &key, &e)); /* asked for by name and not there: going on without would only be a 401 later */
  assert_int_equal(e.code, ERR_USAGE);
  assert_non_null(strstr(e.msg, "WEIR_NO_SUCH_KEY"));
}

static void test_status(void **state) {
  (void)state;
  static const struct {
    int http;
    err_code code;
  } cases[] = {{400, ERR_INPUT}, {401, ERR_AUTH}, {403, ERR_AUTH}, {404, ERR_NOT_FOUND}, {422, ERR_INPUT}, {429, ERR_LIMIT}, {500, ERR_NET},
      {503, ERR_BUSY}, {200, ERR_NET}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_int_equal(openai_status_code(cases[i].http), cases[i].code);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_base), cmocka_unit_test(test_refused), cmocka_unit_test(test_secrets),
      cmocka_unit_test(test_key_from_environment), cmocka_unit_test(test_status)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
