#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/err.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/wtype.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>

/* binary16 from its definition (IEEE 754-2008, 3.4), by arithmetic instead of bits. */
static double f16_value(unsigned h) {
  int e = h >> 10 & 31, m = h & 1023;
  double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}

static void test_f16(void **state) {
  (void)state;
  for (unsigned h = 0; h < 65536; h++) {
    float f = f32_of_f16((uint16_t)h);
    if (isnan(f16_value(h))) {
      assert_true(isnan(f));
      assert_true(isnan(f32_of_f16(f16_of_f32(f))));
      continue;
    }
    assert_true((double)f == f16_value(h));
    assert_int_equal(f16_of_f32(f), h);
  }
  /* Half way between neighbours: to the even one. Just off it: to the nearer. */
  for (unsigned h = 0; h < 0x7bff; h++) {
    double mid = (f16_value(h) + f16_value(h + 1)) / 2;
    assert_int_equal(f16_of_f32((float)mid), h & 1 ? h + 1 : h);
    assert_int_equal(f16_of_f32(nextafterf((float)mid, INFINITY)), h + 1);
    assert_int_equal(f16_of_f32(nextafterf((float)mid, 0)), h);
  }
  assert_int_equal(f16_of_f32(65519.996f), 0x7bff);
  assert_int_equal(f16_of_f32(65520.f), 0x7c00);
  assert_int_equal(f16_of_f32(-1e30f), 0xfc00);
}

static void test_bf16(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 65536; h++) {
    float f = f32_of_bf16((uint16_t)h);
    if (isnan(f)) {
      assert_true(isnan(f32_of_bf16(bf16_of_f32(f))));
      continue;
    }
    assert_int_equal(bf16_of_f32(f), h);
    if ((h & 0x7fff) >= 0x7f7f) continue;
    assert_int_equal(bf16_of_f32(f32_of_bits(h << 16 | 0x8000)), h & 1 ? h + 1 : h);
    assert_int_equal(bf16_of_f32(f32_of_bits(h << 16 | 0x8001)), h + 1);
  }
}

/* Known answers published with Random123 (philox4x32, 10 rounds). */
static void test_philox(void **state) {
  (void)state;
  static const struct {
    uint32_t c[4], k[2], want[4];
  } kat[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < 3; i++) {
    uint32_t out[4];
    philox4x32(kat[i].c, kat[i].k, out);
    assert_memory_equal(out, kat[i].want, sizeof out);
  }
  assert_true(rng_unit(0) > 0 && rng_unit(UINT32_MAX) < 1);
}

static void test_rng(void **state) {
  (void)state;
  rng a = rng_new(1), b = rng_new(1), c = rng_new(2);
  int seen[7] = {0}, differ = 0;
  for (int i = 0; i < 7000; i++) {
    uint64_t v = rng_u64(&a);
    assert_int_equal(v, rng_u64(&b));
    differ += v != rng_u64(&c);
  }
  assert_int_equal(differ, 7000);
  for (int i = 0; i < 7000; i++) {
    uint64_t v = rng_below(&a, 7);
    assert_true(v < 7);
    seen[v]++;
  }
  for (int i = 0; i < 7; i++) assert_in_range(seen[i], 850, 1150); /* five standard deviations are 146 */
  assert_true(rng_seed() != rng_seed());
}

static void test_sha256(void **state) {
  (void)state;
  uint8_t d[32];
  char hex[65];
  sha256_once("abc", 3, d); /* FIPS 180-2, B.1 */
  sha256_hex(d, hex);
  assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  sha256 *h = sha256_new();
  sha256_add(h, "a", 1);
  sha256_add(h, "bc", 2);
  uint8_t d2[32];
  sha256_done(h, d2);
  assert_memory_equal(d, d2, 32);
  sha256_free(sha256_new());
  assert_int_not_equal(hash64("abc", 3, 0), hash64("abc", 3, 1));
  assert_int_equal(hash64("abc", 3, 5), hash64("abc", 3, 5));
}

static void test_err(void **state) {
  (void)state;
  err e = {0};
  assert_false(err_set(&e, ERR_INPUT, "bad\n\x1b[31m %s", "thing"));
  assert_string_equal(e.msg, "bad ?[31m thing");
  assert_false(err_prefix(&e, "file %d", 7));
  assert_string_equal(e.msg, "file 7: bad ?[31m thing");
  assert_int_equal(e.code, ERR_INPUT);
  assert_false(err_errno(&e, ENOENT, "cannot open x"));
  assert_int_equal(e.code, ERR_NOT_FOUND);
  assert_false(err_set(NULL, ERR_INPUT, "ignored"));
  for (int c = 0; c < ERR_COUNT; c++) {
    const err_info *i = err_lookup((err_code)c);
    assert_non_null(i->name);
    if (c) assert_true(i->exit > 0 && i->http >= 400 && i->openai && i->anthropic);
  }
  assert_int_equal(err_lookup((err_code)999)->http, 500);
  char big[2000];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = 0;
  err_set(&e, ERR_INPUT, "%s", big);
  err_prefix(&e, "%s", big);
  assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
}

static void test_wtype(void **state) {
  (void)state;
  assert_string_equal(wtype_lookup(WT_Q4_K)->name, "Q4_K");
  assert_int_equal(wtype_lookup(WT_Q6_K)->bytes, 210);
  assert_null(wtype_lookup(4)); /* withdrawn */
  assert_null(wtype_lookup(UINT32_MAX));
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_f16), cmocka_unit_test(test_bf16), cmocka_unit_test(test_philox), cmocka_unit_test(test_rng),
      cmocka_unit_test(test_sha256), cmocka_unit_test(test_err), cmocka_unit_test(test_wtype)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
