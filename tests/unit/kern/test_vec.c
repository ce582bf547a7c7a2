/* test_vec.c - the element-wise kernels: every usable table equals ref bit for bit, and ref equals double precision within a few roundings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kern/kern.h"
#include "vec_check.h"

enum { N_MAX = 9000 };
static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33,
    34, 35, 36, 37, 38, 39, 40, 576, 896, 1000, 1536, 4864, 4097, 8960};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static const kern_ops *ref_table(void) {
  const kern_ops *const *t = kern_tables();
  while (t[1]) t++;
  return *t;
}

/* Calls check(table, ref) for each usable table but ref. */
static void each_table(void (*check)(const kern_ops *o, const kern_ops *ref)) {
  const kern_ops *ref = ref_table();
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (*t == ref) continue;
    if ((*t)->usable()) check(*t, ref);
    else printf("skipped: table %s is not usable on this machine\n", (*t)->name);
  }
}

static float x[N_MAX], w[N_MAX], want[N_MAX + 64], got[N_MAX + 64];

/* Buffers of outputs are painted, so that a write behind the end shows. */
static void paint(void) {
  for (int i = 0; i < N_MAX + 64; i++) want[i] = got[i] = 12345.0f;
}
static void expect_same(const kern_ops *o, const char *what, int n, int hostile) {
  int at = first_difference(want, got, N_MAX + 64);
  if (at >= 0) fail_msg("%s %s n=%d hostile=%d: [%d] ref %a, %s %a", o->name, what, n, hostile, at, (double)want[at], o->name, (double)got[at]);
  for (int i = n; i < n + 48 && i < N_MAX + 64; i++) assert_true(got[i] == 12345.0f);
}

static void check_elementwise(const kern_ops *o, const kern_ops *ref) {
  rng r = rng_new(7);
  for (int hostile = 0; hostile < 2; hostile++)
    for (int k = 0; k < N_SIZES; k++) {
      int n = sizes[k];
      if (hostile) fill_hostile(&r, x, n), fill_hostile(&r, w, n);
      else fill_random(&r, x, n, 8.0f), fill_random(&r, w, n, 2.0f);
      paint(), ref->rmsnorm(x, w, 1e-5f, n, want), o->rmsnorm(x, w, 1e-5f, n, got), expect_same(o, "rmsnorm", n, hostile);
      paint(), ref->silu_mul(x, w, n, want), o->silu_mul(x, w, n, got), expect_same(o, "silu_mul", n, hostile);
      paint(), ref->gelu_mul(x, w, n, want), o->gelu_mul(x, w, n, got), expect_same(o, "gelu_mul", n, hostile);
      paint();
      memcpy(want, w, sizeof(float) * (size_t)n), memcpy(got, w, sizeof(float) * (size_t)n);
      ref->add(want, x, n), o->add(got, x, n), expect_same(o, "add", n, hostile);
      paint();
      memcpy(want, w, sizeof(float) * (size_t)n), memcpy(got, w, sizeof(float) * (size_t)n);
      ref->add_scaled(want, x, 0.22f, n), o->add_scaled(got, x, 0.22f, n), expect_same(o, "add_scaled", n, hostile);
      paint(); /* in place, as the forward pass uses it */
      memcpy(want, x, sizeof(float) * (size_t)n), memcpy(got, x, sizeof(float) * (size_t)n);
      ref->silu_mul(want, w, n, want), o->silu_mul(got, w, n, got), expect_same(o, "silu_mul in place", n, hostile);
    }
}
static void tables_agree_elementwise(void **s) { (void)s, each_table(check_elementwise); }

static void check_rope(const kern_ops *o, const kern_ops *ref) {
  static const int rots[] = {2, 4, 20, 32, 34, 64, 66, 80, 96, 128, 256};
  rng r = rng_new(9);
  for (size_t k = 0; k < sizeof rots / sizeof *rots; k++)
    for (int neox = 0; neox < 2; neox++) {
      int n = rots[k];
      fill_random(&r, x, n, 4.0f);
      for (int i = 0; i < n / 2; i++) w[2 * i] = cosf((float)i * 0.37f), w[2 * i + 1] = sinf((float)i * 0.37f);
      paint();
      memcpy(want, x, sizeof(float) * (size_t)n), memcpy(got, x, sizeof(float) * (size_t)n);
      ref->rope(want, n, neox, w), o->rope(got, n, neox, w), expect_same(o, neox ? "rope neox" : "rope", n, 0);
    }
}
static void tables_agree_on_rope(void **s) { (void)s, each_table(check_rope); }

static void rope_turns_the_right_pairs(void **s) {
  (void)s;
  const kern_ops *ref = ref_table();
  float a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, cs[4] = {0, 1, 0, 1}; /* a quarter turn of 4 dims; the other 4 stay */
  float b[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  ref->rope(a, 4, true, cs);
  float neox[8] = {-3, -4, 1, 2, 5, 6, 7, 8};
  assert_int_equal(first_difference(a, neox, 8), -1);
  ref->rope(b, 4, false, cs);
  float plain[8] = {-2, 1, -4, 3, 5, 6, 7, 8};
  assert_int_equal(first_difference(b, plain, 8), -1);
}

static void check_reductions(const kern_ops *o, const kern_ops *ref) {
  rng r = rng_new(11);
  for (int hostile = 0; hostile < 2; hostile++)
    for (int k = 0; k < N_SIZES; k++) {
      int n = sizes[k], at0 = -1, at1 = -1;
      float m0, m1;
      if (hostile) fill_hostile(&r, x, n);
      else fill_random(&r, x, n, 20.0f);
      ref->max_at(x, n, &m0, &at0), o->max_at(x, n, &m1, &at1);
      assert_int_equal(at0, at1);
      assert_true(same_bits(m0, m1));
      double s0 = ref->sum_exp(x, n, 1, m0, NULL), s1 = o->sum_exp(x, n, 1, m1, NULL);
      assert_true(s0 == s1 || (s0 != s0 && s1 != s1));
      double t0, t1;
      s0 = ref->sum_exp(x, n, 0.7f, 0.7f * m0, &t0), s1 = o->sum_exp(x, n, 0.7f, 0.7f * m1, &t1);
      assert_true((s0 == s1 && t0 == t1) || (s0 != s0 && s1 != s1));
      paint(), ref->peaks(x, n, want), o->peaks(x, n, got);
      for (int i = 0; i < n; i += KERN_PEAK) { /* of each run, as max_at has it */
        ref->max_at(x + i, n - i < KERN_PEAK ? n - i : KERN_PEAK, &m0, &at0);
        assert_true(same_bits(want[i / KERN_PEAK], got[i / KERN_PEAK]) && want[i / KERN_PEAK] == m0);
      }
    }
}

/* Against the one-counter function that every other draw uses, counters that wrap included. */
static void check_noise(const kern_ops *o, const kern_ops *ref) {
  (void)ref;
  rng r = rng_new(31);
  for (int round = 0; round < 200; round++) {
    uint32_t key[2] = {(uint32_t)rng_u64(&r), (uint32_t)rng_u64(&r)}, at[3] = {(uint32_t)rng_u64(&r), (uint32_t)rng_u64(&r), (uint32_t)round};
    uint32_t group = round == 0 ? UINT32_MAX - 5 : (uint32_t)rng_u64(&r), u[KERN_PEAK], top = 0;
    uint32_t most = o->noise(key, at, group, u);
    for (uint32_t g = 0; g < 16; g++) {
      uint32_t c[4] = {group + g, at[0], at[1], at[2]}, one[4];
      philox4x32(c, key, one);
      for (int k = 0; k < 4; k++) {
        assert_int_equal(u[16 * k + (int)g], one[k]);
        top = one[k] > top ? one[k] : top;
      }
    }
    assert_int_equal(most, top);
  }
}
static void noise_is_philox(void **s) { (void)s, each_table(check_noise); }
static void tables_agree_on_reductions(void **s) { (void)s, each_table(check_reductions); }

static void max_at_takes_the_lowest_index(void **s) {
  (void)s;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    float m;
    int at;
    for (int i = 0; i < 5000; i++) x[i] = -3.0f;
    x[4999] = x[1500] = x[1501] = 2.0f, x[3] = NAN, x[1400] = NAN;
    (*t)->max_at(x, 5000, &m, &at);
    assert_int_equal(at, 1500);
    assert_true(m == 2.0f);
    for (int i = 0; i < 40; i++) x[i] = -INFINITY;
    x[0] = NAN;
    (*t)->max_at(x, 40, &m, &at);
    assert_int_equal(at, 1);
    for (int i = 0; i < 40; i++) x[i] = NAN;
    (*t)->max_at(x, 40, &m, &at);
    assert_int_equal(at, 0);
    assert_true(m == -INFINITY);
  }
}

/* Every table's exp, seen through sum_exp of one element, is kern_expf; and kern_expf is exp within two units in the last place. */
static void exp_is_one_function(void **s) {
  (void)s;
  double worst = 0.0;
  for (double v = -90.0; v < 90.0; v += 0.000731) {
    float f = (float)v, ours = kern_expf(f);
    double exact = exp((double)f);
    if (exact < 1.2e-38) assert_true(ours == 0.0f || fabs((double)ours - exact) < exact * 1e-6);
    else if (exact > 0x1.fffffep+127) assert_true(isinf(ours));
    else {
      int e;
      (void)frexp(exact, &e);
      double ulp = fabs((double)ours - exact) / ldexp(1.0, e - 24);
      if (ulp > worst) worst = ulp;
    }
  }
  printf("kern_expf: at most %.3f units in the last place\n", worst);
  assert_true(worst < 1.0);
  assert_true(
      kern_expf(-INFINITY) == 0.0f && isinf(kern_expf(INFINITY)) && isnan(kern_expf(NAN)) && kern_expf(0.0f) == 1.0f && kern_expf(-0.0f) == 1.0f);
  assert_true(kern_expf(-87.34f) == 0.0f && kern_expf(88.73f) == INFINITY && kern_expf(88.722f) < INFINITY);
  rng r = rng_new(13);
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    for (int i = 0; i < 20000; i++) {
      float v = i % 2 ? random_float(&r, 95.0f) : f32_of_bits((uint32_t)rng_u64(&r));
      double one = (*t)->sum_exp(&v, 1, 1, 0, NULL);
      if (!same_bits((float)one, kern_expf(v - 0.0f))) fail_msg("%s exp(%a): %a, kern_expf %a", (*t)->name, (double)v, one, (double)kern_expf(v));
    }
  }
}

static double close_to(double a, double b, double scale) { return fabs(a - b) / (scale > 0 ? scale : 1.0); }

static void ref_is_right(void **s) {
  (void)s;
  const kern_ops *ref = ref_table();
  rng r = rng_new(17);
  int n = 576;
  fill_random(&r, x, n, 5.0f), fill_random(&r, w, n, 1.0f);
  double ss = 0.0, sum = 0.0;
  for (int i = 0; i < n; i++) ss += (double)x[i] * (double)x[i];
  ref->rmsnorm(x, w, 1e-5f, n, want);
  for (int i = 0; i < n; i++) assert_true(close_to((double)want[i], (double)x[i] / sqrt(ss / n + 1e-5) * (double)w[i], 1.0) < 2e-6);
  ref->silu_mul(x, w, n, want);
  for (int i = 0; i < n; i++) assert_true(close_to((double)want[i], (double)x[i] / (1.0 + exp(-(double)x[i])) * (double)w[i], 1.0) < 2e-6);
  ref->gelu_mul(x, w, n, want);
  for (int i = 0; i < n; i++) {
    double v = (double)x[i], z = sqrt(2.0 / 3.14159265358979323846) * (v + 0.044715 * v * v * v);
    assert_true(close_to((double)want[i], 0.5 * v * (1.0 + tanh(z)) * (double)w[i], 1.0) < 3e-6);
  }
  float m;
  int at;
  ref->max_at(x, n, &m, &at);
  for (int i = 0; i < n; i++) sum += exp((double)x[i] - (double)m);
  assert_true(close_to(ref->sum_exp(x, n, 1, m, NULL), sum, sum) < 1e-6);
  double moment, exact = 0;
  for (int i = 0; i < n; i++) exact += (0.5 * (double)x[i] - 1) * exp(0.5 * (double)x[i] - 1);
  ref->sum_exp(x, n, 0.5f, 1.0f, &moment);
  assert_true(fabs(moment - exact) < 1e-5 * fabs(exact));
  x[n / 2] = -INFINITY; /* a logit that was banned has no moment */
  ref->sum_exp(x, n, 0.5f, 1.0f, &moment);
  assert_true(isfinite(moment));
}

/* Would these tests see a wrong order? The same sum in plain ascending order must differ from the 16-lane one. */
static void another_order_shows(void **s) {
  (void)s;
  rng r = rng_new(19);
  int n = 4096, differ = 0;
  for (int round = 0; round < 8; round++) {
    fill_random(&r, x, n, 3.0f);
    float plain = 0.0f;
    for (int i = 0; i < n; i++) plain += kern_expf(x[i] - 3.0f);
    differ += (double)plain != ref_table()->sum_exp(x, n, 1, 3.0f, NULL);
  }
  assert_true(differ > 0);
}

static void check_kv_store(const kern_ops *o, const kern_ops *ref) {
  static const int dims[] = {4, 20, 64, 80, 128};
  rng r = rng_new(23);
  for (size_t k = 0; k < sizeof dims / sizeof *dims; k++)
    for (int type = 0; type < 2; type++) {
      kern_kv kv = {.type = type ? KERN_KV_F32 : KERN_KV_F16, .n_layer = 2, .n_kv = 3, .head_dim = dims[k], .page = 32};
      size_t bytes = kern_kv_page_bytes(&kv), elt = type ? 4 : 2, d = (size_t)dims[k];
      uint8_t *a = malloc(2 * bytes), *b = malloc(2 * bytes);
      memset(a, 0x55, 2 * bytes), memset(b, 0x55, 2 * bytes);
      fill_hostile(&r, x, 3 * dims[k]), fill_hostile(&r, w, 3 * dims[k]);
      kv.pool = a, ref->kv_store(&kv, 1, 1, 21, x, w, 1, 3);
      kv.pool = b, o->kv_store(&kv, 1, 1, 21, x, w, 1, 3);
      assert_memory_equal(a, b, 2 * bytes);
      /* the layout as kern.h states it, spelled out for one element: layer 1, head 2, dimension 3 */
      uint8_t *layer = a + bytes + (size_t)2 * 3 * 32 * d * elt, *kp = layer + ((size_t)2 * 32 * d + (21 / 16) * d * 16 + 3 * 16 + 21 % 16) * elt;
      uint8_t *vp = layer + ((size_t)3 * 32 * d + (size_t)2 * 32 * d + 21 * d + 3) * elt;
      if (type) assert_memory_equal(kp, &x[2 * dims[k] + 3], 4), assert_memory_equal(vp, &w[2 * dims[k] + 3], 4);
      else {
        uint16_t want_k = f16_of_f32(x[2 * dims[k] + 3]), want_v = f16_of_f32(w[2 * dims[k] + 3]);
        assert_memory_equal(kp, &want_k, 2), assert_memory_equal(vp, &want_v, 2);
      }
      size_t touched = 0;
      for (size_t i = 0; i < 2 * bytes; i++) touched += a[i] != 0x55;
      assert_true(touched <= 2 * 2 * d * elt); /* heads 1 and 2 only */
      free(a), free(b);
    }
}
static void tables_agree_on_kv_store(void **s) { (void)s, each_table(check_kv_store); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_agree_elementwise),
      cmocka_unit_test(tables_agree_on_rope),
      cmocka_unit_test(rope_turns_the_right_pairs),
      cmocka_unit_test(tables_agree_on_reductions),
      cmocka_unit_test(max_at_takes_the_lowest_index),
      cmocka_unit_test(noise_is_philox),
      cmocka_unit_test(exp_is_one_function),
      cmocka_unit_test(ref_is_right),
      cmocka_unit_test(another_order_shows),
      cmocka_unit_test(tables_agree_on_kv_store),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
