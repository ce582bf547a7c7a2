#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/rng.h"
#include "load/stats.h"
#include <math.h>

/* Expected values: numpy 2.4.6, numpy.percentile (linear), numpy.mean, numpy.std. */
static const double few[] = {3.5, 1.25, 9, 2, 2, 7.75, 0.5, 100, 4, 4.25, 6};
static const struct {
  double p, few, many;
} gold[] = {
    {1, 0.575, 7.8536}, {25, 2.0, 99.9}, {50, 4.0, 192.4}, {90, 9.0, 341.778}, {95, 54.5, 360.322}, {99, 90.9, 375.6084}, {99.9, 99.09, 384.88704}};

static void close_to(double seen, double want) {
  if (!(fabs(seen - want) <= 1e-12 * fmax(1, fabs(want)))) fail_msg("expected %.17g, saw %.17g", want, seen);
}

static void test_numpy(void **state) {
  (void)state;
  stats a = {0}, b = {0};
  for (size_t i = 0; i < sizeof few / sizeof *few; i++) assert_true(stats_add(&a, few[i]));
  for (int i = 0; i < 1009; i++) assert_true(stats_add(&b, i * 7919 % 1009 * 0.37 + i % 5 * (i % 5)));
  for (size_t i = 0; i < sizeof gold / sizeof *gold; i++) {
    close_to(stats_pct(&a, gold[i].p), gold[i].few);
    close_to(stats_pct(&b, gold[i].p), gold[i].many);
  }
  close_to(stats_mean(&a), 12.75);
  close_to(stats_std(&a), 27.707891885296377);
  close_to(stats_mean(&b), 192.47008919722498);
  close_to(stats_std(&b), 107.91074986058022);
  /* A percentile sorts; what is added later must still find its place. */
  stats_add(&a, -5);
  close_to(stats_pct(&a, 1e-15), -5);
  stats_fini(&a);
  stats_fini(&b);
}

static void test_empty_and_one(void **state) {
  (void)state;
  stats s = {0};
  double lo = 1, hi = 2;
  assert_true(isnan(stats_mean(&s)) && isnan(stats_std(&s)) && isnan(stats_pct(&s, 50)));
  assert_false(stats_pct_ok(&s, 50));
  assert_false(stats_pct_interval(&s, 50, &lo, &hi));
  stats_add(&s, 7);
  assert_true(stats_mean(&s) == 7 && stats_std(&s) == 0 && stats_pct(&s, 99) == 7);
  assert_false(stats_pct_interval(&s, 50, &lo, &hi));
  assert_true(lo == 1 && hi == 2);
  stats_fini(&s);
}

/* n/a below 1 / (1 - p) samples, and not one sample earlier. */
static void test_enough(void **state) {
  (void)state;
  static const struct {
    double p;
    size_t n;
  } need[] = {{50, 2}, {90, 10}, {95, 20}, {99, 100}, {99.9, 1000}};
  for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
    stats s = {0};
    while (s.n < need[i].n - 1) stats_add(&s, (double)s.n);
    assert_false(stats_pct_ok(&s, need[i].p));
    stats_add(&s, 0);
    assert_true(stats_pct_ok(&s, need[i].p));
    stats_fini(&s);
  }
}

/* Ranks summed with exact arithmetic elsewhere; samples 1..n are their own ranks. 0: none. */
static void test_ranks(void **state) {
  (void)state;
  static const struct {
    size_t n;
    double p;
    int lo, hi;
  } gold_ranks[] = {
      {5, 50, 0, 0}, {6, 50, 1, 6}, {20, 50, 6, 15}, {100, 50, 40, 61}, {35, 90, 0, 0}, {36, 90, 29, 36}, {100, 90, 84, 96}, {100, 95, 90, 100}};
  for (size_t i = 0; i < sizeof gold_ranks / sizeof *gold_ranks; i++) {
    stats s = {0};
    double lo = 0, hi = 0;
    for (size_t k = gold_ranks[i].n; k > 0; k--) stats_add(&s, (double)k);
    assert_int_equal(stats_pct_interval(&s, gold_ranks[i].p, &lo, &hi), gold_ranks[i].lo > 0);
    assert_int_equal((int)lo, gold_ranks[i].lo);
    assert_int_equal((int)hi, gold_ranks[i].hi);
    stats_fini(&s);
  }
}

/* How often the interval holds the percentile of the distribution the samples were drawn from (exponential: skewed, as latencies are). */
static double coverage(size_t n, double p, int rounds, double *ret_width) {
  double truth = -log1p(-p / 100), lo, hi, width = 0;
  int hit = 0;
  rng r = rng_new(n * 1000 + (uint64_t)p);
  for (int i = 0; i < rounds; i++) {
    stats s = {0};
    while (s.n < n) stats_add(&s, -log(rng_f64(&r)));
    assert_true(stats_pct_interval(&s, p, &lo, &hi));
    hit += lo <= truth && truth <= hi;
    width += hi - lo;
    stats_fini(&s);
  }
  *ret_width = width / rounds;
  return (double)hit / rounds;
}

static void test_coverage(void **state) {
  (void)state;
  static const struct {
    size_t n;
    double p;
    int rounds;
    double top;
  } cases[] = {{20, 50, 4000, 0.985}, {100, 50, 4000, 0.98}, {50, 90, 4000, 0.99}, {200, 90, 3000, 0.98}, {200, 95, 3000, 0.985},
      {1000, 99, 1000, 0.99}, {30000, 50, 60, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double width, c = coverage(cases[i].n, cases[i].p, cases[i].rounds, &width), slack = 4 * sqrt(0.95 * 0.05 / cases[i].rounds);
    if (c < 0.95 - slack || c > cases[i].top + slack) fail_msg("n %zu, P%g: covered %.4f of the time", cases[i].n, cases[i].p, c);
  }
  /* More samples, a narrower interval: the test above would pass with one that spans all. */
  double w20, w2000;
  coverage(20, 50, 200, &w20);
  coverage(2000, 50, 20, &w2000);
  assert_true(w2000 < w20 / 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_numpy), cmocka_unit_test(test_empty_and_one), cmocka_unit_test(test_enough),
      cmocka_unit_test(test_ranks), cmocka_unit_test(test_coverage)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
