/* SHA-256 against FIPS 180-2's examples, in one piece, in many, and again with the same context. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

static const char *const long_text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

static void expect(const uint8_t d[32], const char *hex) {
  char got[65];
  sha256_hex(d, got);
  assert_string_equal(got, hex);
}

static void test_known(void **st) {
  (void)st;
  uint8_t d[32];
  sha256_once("abc", 3, d);
  expect(d, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  sha256_once("", 0, d);
  expect(d, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  sha256_once(long_text, strlen(long_text), d);
  expect(d, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void test_pieces(void **st) {
  (void)st;
  uint8_t d[32];
  char *a = malloc(1000);
  memset(a, 'a', 1000);
  sha256 *h = sha256_new();
  assert_non_null(h);
  for (int i = 0; i < 1000; i++) sha256_add(h, a, 1000);
  sha256_next(h, d);
  expect(d, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (size_t i = 0; long_text[i]; i++) sha256_add(h, long_text + i, 1);
  sha256_next(h, d);
  expect(d, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  sha256_done(h, d); /* nothing was added */
  expect(d, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  sha256_free(sha256_new());
  sha256_free(NULL);
  free(a);
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_pieces)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
