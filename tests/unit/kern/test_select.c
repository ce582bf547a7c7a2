/* test_select.c - the choice of a kernel table: best first, ref last and always usable, errors that say what may be asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "kern/kern.h"

static void tables_are_complete(void **s) {
  (void)s;
  const kern_ops *last = NULL;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    const kern_ops *o = last = *t;
    assert_true(o->name && *o->name && o->units && *o->units && o->arith > 0);
    assert_true(o->usable && o->act_quant && o->gemm && o->rmsnorm && o->add && o->silu_mul && o->gelu_mul && o->rope && o->kv_store);
    assert_true(o->attn && o->attn_part && o->attn_merge && o->max_at && o->peaks && o->sum_exp && o->noise && o->add_scaled);
    for (const kern_ops *const *u = kern_tables(); u < t; u++) assert_string_not_equal((*u)->name, o->name);
  }
  assert_non_null(last);
  assert_string_equal(last->name, "ref");
  assert_true(last->usable());
}

static void automatic_is_the_first_usable(void **s) {
  (void)s;
  const kern_ops *o = NULL, *p = NULL;
  assert_true(kern_select(NULL, &o, NULL) && kern_select("auto", &p, NULL));
  assert_ptr_equal(o, p);
  const kern_ops *const *t = kern_tables();
  while (!(*t)->usable()) t++;
  assert_ptr_equal(o, *t);
}

static void every_name_is_found_or_refused_by_name(void **s) {
  (void)s;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    const kern_ops *o = NULL;
    err e = {0};
    if (kern_select((*t)->name, &o, &e)) {
      assert_ptr_equal(o, *t);
    } else {
      assert_null(o);
      assert_int_equal(e.code, ERR_USAGE);
      assert_non_null(strstr(e.msg, "does not offer"));
    }
  }
}

static void unknown_names_are_refused(void **s) {
  (void)s;
  static const char *const names[] = {"", "AVX2", "avx1024", "re", "reference"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const kern_ops *o = NULL;
    err e = {0};
    assert_false(kern_select(names[i], &o, &e));
    assert_null(o);
    assert_int_equal(e.code, ERR_USAGE);
    assert_string_equal(e.param, "isa");
    assert_non_null(strstr(e.msg, "auto"));
    assert_non_null(strstr(e.msg, "ref"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_are_complete),
      cmocka_unit_test(automatic_is_the_first_usable),
      cmocka_unit_test(every_name_is_found_or_refused_by_name),
      cmocka_unit_test(unknown_names_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
