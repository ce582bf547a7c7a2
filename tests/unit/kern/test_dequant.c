/* Blocks of every type as F32, bit for bit what the gguf Python package computes (tests/golden/dequant.bin, made by tools/make_dequant_golden.py). */
#include "gemm_check.h"
#include <stdio.h>

typedef struct golden {
  uint8_t *bytes;
  size_t size, at;
} golden;

static uint32_t take32(golden *g) {
  uint32_t v;
  assert_true(g->at + 4 <= g->size);
  memcpy(&v, g->bytes + g->at, 4);
  g->at += 4;
  return v;
}

static int golden_open(void **state) {
  static golden g;
  FILE *f = fopen(TEST_SRC "/tests/golden/dequant.bin", "rb");
  if (!f) return -1;
  g.bytes = malloc(1 << 20);
  if (!g.bytes) return -1;
  g.size = fread(g.bytes, 1, 1 << 20, f);
  fclose(f);
  *state = &g;
  return 0;
}
static int golden_close(void **state) {
  free(((golden *)*state)->bytes);
  return 0;
}

/* Calls `visit` for each type of the file. */
static void each_type(golden *g, void (*visit)(wtype t, const uint8_t *raw, const uint8_t *want, uint32_t n)) {
  g->at = 0;
  assert_int_equal(take32(g), 0x51454457); /* "WDEQ" */
  assert_int_equal(take32(g), 1);
  uint32_t n_types = take32(g);
  assert_int_equal(n_types, N_ALL);
  for (uint32_t i = 0; i < n_types; i++) {
    wtype t = (wtype)take32(g);
    uint32_t n = take32(g), n_bytes = take32(g);
    assert_true(g->at + n_bytes + 4 * (size_t)n <= g->size);
    visit(t, g->bytes + g->at, g->bytes + g->at + n_bytes, n);
    g->at += n_bytes + 4 * (size_t)n;
  }
  assert_int_equal(g->at, g->size);
}

static void visit_equal(wtype t, const uint8_t *raw, const uint8_t *want, uint32_t n) {
  float *y = malloc(n * sizeof *y);
  assert_non_null(y);
  assert_true(dequant_row(t, raw, n, y));
  assert_memory_equal(y, want, n * sizeof *y);
  free(y);
}
static void test_equal(void **state) { each_type(*state, visit_equal); }

/* The comparison can fail: with a scale of one, at most a tenth of a block's bits may be changed without changing its values (a small scale of 0
 * hides its quants, E2M1 has two zeros). */
static void visit_bits(wtype t, const uint8_t *raw, const uint8_t *want, uint32_t n) {
  const wtype_info *info = wtype_lookup((uint32_t)t);
  size_t block = (size_t)info->bytes, changed = 0;
  float y[256], base[256];
  uint8_t copy[256];
  int at[2], n_half = info->block > 1 ? half_places(t, at) : 0;
  (void)want, (void)n;
  memcpy(copy, raw + 4 * block, block);
  for (int j = 0; j < n_half; j++) copy[at[j]] = 0, copy[at[j] + 1] = 0x3c;
  if (t == WT_MXFP4) copy[0] = 127;
  assert_true(dequant_row(t, copy, info->block, base));
  for (size_t bit = 0; bit < 8 * block; bit++) {
    copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    assert_true(dequant_row(t, copy, info->block, y));
    changed += memcmp(y, base, sizeof *y * (size_t)info->block) != 0;
    copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  assert_true(10 * changed >= 9 * 8 * block);
}
static void test_bits_matter(void **state) { each_type(*state, visit_bits); }

static void test_refuses(void **state) {
  (void)state;
  uint8_t raw[512] = {0};
  float y[256];
  static const wtype others[] = {WT_Q8_K, WT_Q8_1, WT_IQ2_XXS, WT_IQ3_S, WT_TQ1_0, WT_I32, WT_F64, (wtype)99};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(dequant_row(others[i], raw, 256, y));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal), cmocka_unit_test(test_bits_matter), cmocka_unit_test(test_refuses)};
  return cmocka_run_group_tests(tests, golden_open, golden_close);
}
