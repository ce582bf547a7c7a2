/* Kept answers: found, gone on from, replaced, evicted by number and by bytes, kept apart by tenant; what later turns refer to stays until they go.
 */
#include "serve/store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static bool put(store *s, uint64_t tenant, const char *id, const char *in, const char *out, store_entry *before) {
  store_turn t = {str_c(id), STR("{body}"), str_c(in), str_c(out)};
  return store_put(s, tenant, &t, before);
}

static bool has(store *s, uint64_t tenant, const char *id) {
  store_entry *e = store_find(s, tenant, str_c(id));
  store_release(s, e);
  return e != NULL;
}

static void history(store *s, const char *id, const char *want) {
  store_entry *e = store_find(s, 0, str_c(id));
  buf b;
  err er = {0};
  buf_init(&b, 1 << 20);
  assert_non_null(e);
  assert_true(store_history(e, &b, &er));
  assert_string_equal(b.p, want);
  buf_fini(&b);
  store_release(s, e);
}

static void test_turns(void **st) {
  (void)st;
  store *s = store_new(10, 1 << 20);
  assert_true(put(s, 0, "a", "[1]", "[2,3]", NULL));
  store_entry *a = store_find(s, 0, STR("a"));
  assert_true(put(s, 0, "b", "[4]", "[]", a));
  store_release(s, a);
  store_entry *b = store_find(s, 0, STR("b"));
  assert_true(put(s, 0, "c", "[5]", "[6]", b));
  store_release(s, b);
  history(s, "c", "[1,2,3,4,5,6]");
  history(s, "a", "[1,2,3]");
  assert_true(store_delete(s, 0, STR("a")));
  assert_false(store_delete(s, 0, STR("a")));
  assert_false(has(s, 0, "a"));
  history(s, "c", "[1,2,3,4,5,6]"); /* what it goes on from is still there */
  uint64_t all = store_bytes(s);
  assert_true(store_delete(s, 0, STR("b")));
  assert_int_equal(store_bytes(s), all);
  assert_true(store_delete(s, 0, STR("c")));
  assert_int_equal(store_bytes(s), 0); /* the last of them takes all with it */
  assert_int_equal(store_count(s), 0);
  store_free(s);
}

static void test_tenants(void **st) {
  (void)st;
  store *s = store_new(10, 1 << 20);
  put(s, 1, "a", "[1]", "[]", NULL);
  assert_true(has(s, 1, "a"));
  assert_false(has(s, 2, "a"));
  assert_false(store_delete(s, 2, STR("a")));
  put(s, 2, "a", "[2]", "[]", NULL);
  assert_int_equal(store_count(s), 2);
  put(s, 1, "a", "[3]", "[]", NULL); /* the same id again */
  assert_int_equal(store_count(s), 2);
  store_entry *e = store_find(s, 1, STR("a"));
  assert_memory_equal(store_input(e).p, "[3]", 3);
  store_release(s, e);
  store_free(s);
}

static void test_count(void **st) {
  (void)st;
  store *s = store_new(3, 1 << 20);
  put(s, 0, "a", "[]", "[]", NULL);
  put(s, 0, "b", "[]", "[]", NULL);
  put(s, 0, "c", "[]", "[]", NULL);
  assert_true(has(s, 0, "a")); /* used: b is now the one used longest ago */
  put(s, 0, "d", "[]", "[]", NULL);
  assert_false(has(s, 0, "b"));
  assert_true(has(s, 0, "a") && has(s, 0, "c") && has(s, 0, "d"));
  assert_int_equal(store_count(s), 3);
  store_free(s);
}

/* One long conversation pins its turns: at the bound it goes as a whole, and memory never stays above it. */
static void test_bytes(void **st) {
  (void)st;
  enum { MAX = 8000 };
  store *s = store_new(1000, MAX);
  char in[1001], id[20], last[20] = "";
  memset(in, 'x', sizeof in - 1);
  in[1000] = 0;
  bool refused = false;
  for (int i = 0; i < 30; i++) {
    store_entry *before = *last ? store_find(s, 0, str_c(last)) : NULL;
    snprintf(id, sizeof id, "t%d", i);
    bool kept = put(s, 0, id, in, "[]", before);
    store_release(s, before);
    refused |= !kept;
    assert_true(store_bytes(s) <= MAX);
    snprintf(last, sizeof last, "%s", kept ? id : "");
  }
  assert_true(refused); /* control: the bound was met */
  char big[MAX + 1];
  memset(big, 'y', MAX);
  big[MAX] = 0;
  assert_true(put(s, 0, "small", "[]", "[]", NULL));
  assert_false(put(s, 0, "big", big, "[]", NULL));
  assert_true(has(s, 0, "small")); /* one that can never fit drives nobody out */
  store_free(s);
}

static void test_long_history(void **st) {
  (void)st;
  store *s = store_new(10, 1 << 20);
  buf b;
  err er = {0};
  buf_init(&b, 8);
  put(s, 0, "a", "[1,2,3,4,5,6,7]", "[]", NULL);
  store_entry *e = store_find(s, 0, STR("a"));
  assert_false(store_history(e, &b, &er));
  assert_int_equal(er.code, ERR_TOO_LARGE);
  store_release(s, e);
  buf_fini(&b);
  store_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns), cmocka_unit_test(test_tenants), cmocka_unit_test(test_count),
      cmocka_unit_test(test_bytes), cmocka_unit_test(test_long_history)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
