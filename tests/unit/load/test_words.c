#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "load/words.h"
#include <stdlib.h>
#include <string.h>

enum { MAX = 1 << 20 };

static char *prompt(uint64_t seed, uint64_t number, int n) {
  buf b;
  buf_init(&b, MAX);
  words_prompt(&b, seed, number, n);
  assert_false(b.failed);
  return buf_take(&b, NULL);
}

static int count_words(const char *s) {
  int n = *s != 0;
  for (; *s; s++) {
    assert_true(*s == ' ' || (*s >= 'a' && *s <= 'z')); /* nothing that JSON would have to escape */
    n += *s == ' ';
  }
  return n;
}

static void test_length_and_seed(void **state) {
  (void)state;
  static const int lengths[] = {1, 2, 40, 1000};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    char *a = prompt(7, i, lengths[i]), *b = prompt(7, i, lengths[i]), *c = prompt(8, i, lengths[i]);
    assert_int_equal(count_words(a), lengths[i]);
    assert_string_equal(a, b);
    if (lengths[i] >= 40) assert_string_not_equal(a, c);
    free(a), free(b), free(c);
  }
}

static size_t shared_prefix(const char *a, const char *b) {
  size_t n = 0;
  while (a[n] && a[n] == b[n]) n++;
  return n;
}

/* A prefix cache must find nothing in a run of its own prompts but what chance puts there: of 300 prompts no pair shares six words (p < 1e-8 a run).
 */
static void test_no_shared_prefix(void **state) {
  (void)state;
  enum { N = 300 };
  char *p[N];
  for (int i = 0; i < N; i++) p[i] = prompt(42, (uint64_t)i, 60);
  for (int i = 0; i < N; i++)
    for (int j = i + 1; j < N; j++) {
      size_t same = shared_prefix(p[i], p[j]);
      int words = 0;
      for (size_t k = 0; k < same; k++) words += p[i][k] == ' ';
      assert_true(words < 6);
    }
  for (int i = 0; i < N; i++) free(p[i]);
}

static void test_calibration(void **state) {
  (void)state;
  /* A server that adds 30 tokens of template and makes 1.25 tokens of a word. */
  words_fit f = words_calibrate(8, 40, 136, 200);
  assert_true(f.fixed == 30 && f.per_word == 1.25);
  assert_int_equal(words_for(f, 155), 100);
  assert_int_equal(words_for(f, 31), 1);
  assert_int_equal(words_for(f, 3), 1); /* shorter than the template: one word is the least */
  assert_int_equal(words_for(f, INT64_MAX), 10000000);
  /* Counts that cannot be: the same number whatever is sent, or fewer for more. A word is then a token. */
  assert_true(words_calibrate(8, 10, 136, 10).per_word == 1);
  assert_true(words_calibrate(8, 100, 136, 10).per_word == 1);
  assert_true(words_calibrate(8, 10, 8, 10).per_word == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_length_and_seed), cmocka_unit_test(test_no_shared_prefix), cmocka_unit_test(test_calibration)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
