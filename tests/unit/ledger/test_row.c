#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "ledger/row.h"

static void fill(led_row *r, uint64_t seed) {
  int n;
  const led_col *c = led_cols(&n);
  led_row_init(r);
  for (int i = 0; i < n; i++) {
    void *at = (char *)r + c[i].off;
    if ((seed + (uint64_t)i) % 5 == 0) continue; /* absent */
    if (c[i].type == LED_INT) *(int64_t *)at = (int64_t)((seed * 977 + (uint64_t)i) * 1234577) * (i % 2 ? -1 : 1);
    else if (c[i].type == LED_REAL) *(double *)at = 0.1 * i;
    else *(str *)at = (str){c[i].name, strlen(c[i].name)};
  }
}

static bool same(const led_row *a, const led_row *b) {
  int n;
  const led_col *c = led_cols(&n);
  for (int i = 0; i < n; i++) {
    const void *x = led_at(a, &c[i]), *y = led_at(b, &c[i]);
    if (c[i].type == LED_INT && *(const int64_t *)x != *(const int64_t *)y) return false;
    if (c[i].type == LED_REAL && memcmp(x, y, 8) != 0) return false;
    if (c[i].type > LED_TEXT) continue;
    if (!((const str *)x)->p != !((const str *)y)->p || !str_eq(*(const str *)x, *(const str *)y)) return false;
  }
  return true;
}

static void test_round_trip(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 50; seed++) {
    led_row a, b;
    buf p;
    err e = {0};
    buf_init(&p, LED_PACK_MAX);
    fill(&a, seed);
    led_pack(&a, &p);
    assert_false(p.failed);
    assert_true(led_unpack(buf_view(&p), &b, &e));
    assert_true(same(&a, &b));
    b.output = led_given(b.output) ? LED_NULL : 1; /* the comparison sees a difference */
    assert_false(same(&a, &b));
    buf_fini(&p);
  }
}

static void test_bounds(void **state) {
  (void)state;
  static char big[200000];
  led_row a, b;
  buf p;
  err e = {0};
  int n;
  const led_col *c = led_cols(&n);
  memset(big, 'x', sizeof big);
  memcpy(big + LED_TEXT_MAX - 1, "\xc3\xa4", 2); /* the bound falls into a code point */
  led_row_init(&a);
  for (int i = 0; i < n; i++) {
    void *at = (char *)&a + c[i].off;
    if (c[i].type == LED_INT) *(int64_t *)at = INT64_MAX;
    else if (c[i].type != LED_REAL) *(str *)at = (str){big, sizeof big};
  }
  buf_init(&p, SIZE_MAX / 2);
  led_pack(&a, &p);
  assert_false(p.failed);
  assert_true(p.n <= LED_PACK_MAX);
  assert_true(led_unpack(buf_view(&p), &b, &e));
  assert_int_equal(b.id.n, LED_TEXT_MAX - 1);
  assert_true(utf8_valid(b.id));
  for (int i = 0; i < n; i++) /* texts give way, numbers never */
    if (c[i].type == LED_INT) assert_int_equal(*(const int64_t *)led_at(&b, &c[i]), INT64_MAX);
  buf_fini(&p);
}

static void test_cut_off(void **state) {
  (void)state;
  led_row a, b;
  buf p;
  err e = {0};
  int refused = 0;
  buf_init(&p, LED_PACK_MAX);
  fill(&a, 1);
  led_pack(&a, &p);
  for (size_t k = 0; k < p.n; k++)
    if (!led_unpack((str){p.p, k}, &b, &e)) refused += e.code == ERR_INPUT;
  assert_true(refused > (int)p.n / 2); /* a cut between two columns is a shorter row */
  p.p[0] = (char)0xff;
  assert_false(led_unpack(buf_view(&p), &b, &e));
  assert_non_null(strstr(e.msg, "newer"));
  buf_fini(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bounds), cmocka_unit_test(test_cut_off)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
