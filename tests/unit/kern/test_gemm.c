/* Matrix products: the tables agree bit for bit, a row's result depends on nothing but the row (law 1), the values are those of dequant_row within
 * what quantising the activations may cost, and extremes of weights and activations neither saturate nor overflow. */
#include "gemm_check.h"

/* rows x K, with tails in both; K that is not a multiple of 256 or of 64 is for the types that allow it. */
static const int shapes[][2] = {{576, 64}, {9, 576}, {16, 896}, {17, 1536}, {35, 256}, {16, 32}, {64, 512}, {19, 37}, {1, 96}, {18, 640}};
static const int counts[] = {1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 32, 33};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_COUNTS = sizeof counts / sizeof *counts, MAX_N = 33 };

typedef void case_fn(gemm_case *c, kern_act_mode mode);

/* Runs fn for every type, every shape it allows and both kinds of activations. */
static void each_case(uint64_t seed, case_fn *fn) {
  rng r = rng_new(seed);
  for (int t = 0; t < N_ALL; t++)
    for (int s = 0; s < N_SHAPES; s++) {
      if (shapes[s][1] % wtype_lookup((uint32_t)all_types[t])->block) continue;
      gemm_case c;
      case_init(&c, &r, all_types[t], shapes[s][0], shapes[s][1], MAX_N, FILL_RANDOM);
      fn(&c, KERN_ACT_Q8);
      if (kern_wants(all_types[t]) == KERN_ACT_Q8) fn(&c, KERN_ACT_F32);
      case_fini(&c);
    }
}

/* ---- activations ----------------------------------------------------------------------------------------------------------------------- */

/* Rows that go wrong easily: ties of the rounding, tiny, huge and subnormal numbers, one outlier, NaN and infinities in one block. */
static void hostile_row(rng *r, float *x, int k, int kind) {
  for (int i = 0; i < k; i++) {
    float v = (float)(2 * rng_f64(r) - 1);
    switch (kind) {
    case 0: x[i] = v; break;
    case 1: x[i] = (float)((int)rng_below(r, 255) - 127) * 0.5f + (i % 2 ? 0.25f : 0.0f); break;
    case 2: x[i] = v * 0x1p-99f; break;
    case 3: x[i] = v * 0x1p-130f; break;
    case 4: x[i] = v * 0x1p127f; break;
    case 5: x[i] = i % 32 == 5 ? 1e6f : v; break;
    case 6: x[i] = i == 40 ? NAN : i == 70 ? INFINITY : v; break;
    case 7: x[i] = i % 64 < 32 ? 0.0f : -127.0f; break;
    default: x[i] = i % 2 ? 127.0f : -127.0f; break;
    }
  }
}
enum { N_HOSTILE = 9 };

static void test_act_quant(void **state) {
  (void)state;
  enum { K = 576 };
  rng r = rng_new(3);
  float x[K];
  kern_act want, got;
  size_t bytes = kern_act_bytes(K, N_HOSTILE);
  void *a = aligned(bytes), *b = aligned(bytes);
  kern_act_bind(&want, a, K, N_HOSTILE);
  kern_act_bind(&got, b, K, N_HOSTILE);
  for (const kern_ops *const *ops = kern_tables(); *ops; ops++) {
    if (!(*ops)->usable()) continue;
    memset(a, 0, bytes), memset(b, 0, bytes);
    for (int i = 0; i < N_HOSTILE; i++) {
      hostile_row(&r, x, K, i);
      table_ref()->act_quant(&want, i, x);
      (*ops)->act_quant(&got, i, x);
    }
    assert_memory_equal(a, b, bytes);
  }
  /* What the contract says of each block, from the last table's numbers. */
  for (int i = 0; i < N_HOSTILE; i++)
    for (int blk = 0; blk < K / 32; blk++) {
      const int8_t *q = got.q + (size_t)i * kern_act_ldq(K) + 32 * blk;
      float d = got.d[i * (K / 32) + blk], s = got.s[i * (K / 32) + blk];
      const int32_t *z = got.z + i * (K / 16) + 2 * blk;
      int sum[2] = {0, 0};
      for (int k = 0; k < 32; k++) sum[k / 16] += q[k], assert_true(q[k] >= -127);
      assert_int_equal(z[0], sum[0]);
      assert_int_equal(z[1], sum[1]);
      if (i == 6 && (blk == 1 || blk == 2)) assert_true(isnan(d) && isnan(s) && !z[0] && !z[1]);
      else assert_true(s == d * (float)(z[0] + z[1]));
      if (i == 3 || (i == 7 && blk % 2 == 0)) assert_true(d == 0.0f && !z[0] && !z[1]);
    }
  free(a), free(b);
}

/* ---- tables agree ------------------------------------------------------------------------------------------------------------------------ */

static void check_tables(gemm_case *c, kern_act_mode mode) {
  float *want = case_product(c, table_ref(), mode);
  for (const kern_ops *const *ops = kern_tables(); *ops; ops++) {
    if (!(*ops)->usable()) continue;
    float *y = case_product(c, *ops, mode);
    if (!same_floats(y, want, (size_t)c->n * (size_t)c->w.rows))
      fail_msg("table %s differs from ref: %s %d x %d, mode %d", (*ops)->name, wtype_lookup(c->w.type)->name, c->w.rows, c->w.cols, (int)mode);
    free(y);
  }
  free(want);
}
static void test_tables_agree(void **state) {
  (void)state;
  each_case(5, check_tables);
}

/* Activations whose quants are +-127 or 0, in patterns that add up or cancel within a pair, a quad or a half block. */
static float extreme_at(int kind, int k) {
  static const int period[] = {0, 1, 2, 4, 16};
  if (kind == 0) return 0.0f;
  return kind == 1 || k / period[kind - 1] % 2 ? 127.0f : -127.0f;
}
enum { N_EXTREME = 6 };

/* +-127 and 0 are quantised exactly, so only F32 rounding may stand between the product and the sum in double precision. */
static void check_exact(gemm_case *c) {
  float *y = case_product(c, table_ref(), KERN_ACT_Q8), *w = malloc((size_t)c->w.cols * sizeof *w);
  assert_non_null(w);
  for (int o = 0; o < c->w.rows; o++) {
    double sum = 0, size = 0;
    assert_true(dequant_row(c->w.type, c->src + (size_t)o * c->row_bytes, c->w.cols, w));
    for (int k = 0; k < c->w.cols; k++) sum += (double)w[k] * (double)c->x[k], size += fabs((double)w[k] * (double)c->x[k]);
    assert_true(fabs(sum - (double)y[o]) <= 1e-5 * size);
  }
  free(y), free(w);
}

/* The least and the largest quants and scales: where 16-bit sums would saturate and 24-bit integers end. */
static void test_extremes(void **state) {
  (void)state;
  rng r = rng_new(7);
  for (int t = 3; t < N_ALL; t++)
    for (int how = FILL_ZERO; how <= FILL_ONES; how++) {
      gemm_case c;
      case_init(&c, &r, all_types[t], 17, 512, 6, (fill)how);
      if (all_types[t] == WT_Q6_K) { /* scales of -128 beside quants of -32 or 31 */
        for (size_t i = 0; i < c.src_bytes; i += 210) memset(c.src + i + 192, 0x80, 16);
        kern_pack(&c.w, c.src, 0, kern_panels(17));
      }
      for (int kind = 0; kind < N_EXTREME; kind++) {
        for (int i = 0; i < c.n * c.w.cols; i++) c.x[i] = extreme_at(kind, i);
        check_tables(&c, KERN_ACT_Q8);
        check_exact(&c);
      }
      case_fini(&c);
    }
}

/* ---- law 1 ----------------------------------------------------------------------------------------------------------------------------------- */

static void check_row_alone(gemm_case *c, kern_act_mode mode) {
  for (const kern_ops *const *ops = kern_tables(); *ops; ops++) {
    if (!(*ops)->usable() || !strcmp((*ops)->name, "ref")) continue; /* equal to the others, and slow */
    int panels = kern_panels(c->w.rows), ld = c->w.rows + 3;
    float *want = case_product(c, *ops, mode), *y = aligned(sizeof(float) * (size_t)MAX_N * (size_t)ld);
    for (int i = 0; i < N_COUNTS; i++)
      for (int split = 0; split < 2; split++) {
        for (int j = 0; j < MAX_N * ld; j++) y[j] = -7.0f;
        int cut = split ? (panels + 1) / 3 : 0;
        (*ops)->gemm(&c->w, &c->act, counts[i], cut, panels, y, ld);
        (*ops)->gemm(&c->w, &c->act, counts[i], 0, cut, y, ld);
        for (int n = 0; n < counts[i]; n++) {
          if (!same_floats(y + n * ld, want + n * c->w.rows, (size_t)c->w.rows))
            fail_msg("%s: row %d differs with %d rows in the call, split %d: %s %d x %d", (*ops)->name, n, counts[i], split,
                wtype_lookup(c->w.type)->name, c->w.rows, c->w.cols);
          for (int j = c->w.rows; j < ld; j++) assert_true(y[n * ld + j] == -7.0f); /* nothing beyond the row is touched */
        }
        for (int j = counts[i] * ld; j < MAX_N * ld; j++) assert_true(y[j] == -7.0f);
      }
    free(want), free(y);
  }
}
static void test_row_alone(void **state) {
  (void)state;
  each_case(9, check_row_alone);
}

/* Hundreds of columns: several cache blocks. */
static void test_many_columns(void **state) {
  (void)state;
  rng r = rng_new(11);
  static const wtype types[] = {WT_Q4_1, WT_Q6_K, WT_F16, WT_Q2_K, WT_MXFP4};
  for (int t = 0; t < 5; t++) {
    gemm_case c;
    case_init(&c, &r, types[t], 33, 2560, 301, FILL_RANDOM);
    for (const kern_ops *const *ops = kern_tables(); *ops; ops++) {
      if (!(*ops)->usable() || !strcmp((*ops)->name, "ref")) continue;
      float *want = case_product(&c, *ops, KERN_ACT_Q8), one[33];
      for (int i = 0; i < c.n; i += 43) {
        gemm_case row = c;
        row.n = 1;
        row.x = c.x + (size_t)i * 2560;
        row.act_mem = aligned(kern_act_bytes(2560, 1));
        kern_act_bind(&row.act, row.act_mem, 2560, 1);
        row.act.x = row.x;
        row.act.ldx = 2560;
        case_quantise(&row, *ops);
        (*ops)->gemm(&row.w, &row.act, 1, 0, kern_panels(33), one, 33);
        assert_true(same_floats(one, want + i * 33, 33));
        free(row.act_mem);
      }
      free(want);
    }
    case_fini(&c);
  }
}

/* The same sum in another order must not pass for equal: blocks of 32 along K reversed, in weights and activations alike. */
static void test_order_matters(void **state) {
  (void)state;
  rng r = rng_new(13);
  for (int t = 3; t < 8; t++) { /* types whose file block is 32 */
    gemm_case a, b;
    case_init(&a, &r, all_types[t], 64, 1536, 4, FILL_RANDOM);
    case_init(&b, &r, all_types[t], 64, 1536, 4, FILL_RANDOM);
    size_t size = (size_t)wtype_lookup((uint32_t)all_types[t])->bytes;
    for (size_t row = 0; row < 64; row++)
      for (size_t k = 0; k < 48; k++) memcpy(b.src + row * b.row_bytes + (47 - k) * size, a.src + row * a.row_bytes + k * size, size);
    for (size_t i = 0; i < 4; i++)
      for (size_t k = 0; k < 48; k++) memcpy(b.x + i * 1536 + (47 - k) * 32, a.x + i * 1536 + k * 32, 32 * sizeof(float));
    kern_pack(&b.w, b.src, 0, 4);
    float *ya = case_product(&a, table_ref(), KERN_ACT_Q8), *yb = case_product(&b, table_ref(), KERN_ACT_Q8);
    int differ = 0;
    for (int i = 0; i < 4 * 64; i++) {
      differ += ya[i] != yb[i];
      assert_true(fabsf(ya[i] - yb[i]) <= 1e-3f * (1 + fabsf(ya[i])));
    }
    assert_true(differ > 64);
    free(ya), free(yb);
    case_fini(&a), case_fini(&b);
  }
}

/* ---- the values -------------------------------------------------------------------------------------------------------------------------------- */

static void check_values(gemm_case *c, kern_act_mode mode) {
  int cols = c->w.cols;
  bool rounded = mode == KERN_ACT_Q8 && kern_wants(c->w.type) == KERN_ACT_Q8;
  const kern_ops *ops;
  assert_true(kern_select(NULL, &ops, NULL));
  float *y = case_product(c, ops, mode), *w = malloc((size_t)cols * sizeof *w);
  assert_non_null(w);
  for (int o = 0; o < c->w.rows; o++) {
    assert_true(dequant_row(c->w.type, c->src + (size_t)o * c->row_bytes, cols, w));
    for (int i = 0; i < c->n; i += 8) {
      const float *x = c->x + (size_t)i * (size_t)cols;
      double sum = 0, size = 0, step = 0; /* step: half a quantisation step of every activation, times its weight */
      float acc = 0;
      for (int k = 0; k < cols; k++) {
        sum += (double)w[k] * (double)x[k];
        size += fabs((double)w[k] * (double)x[k]);
        acc = fmaf(w[k], x[k], acc);
        if (rounded) step += 0.5001 * fabs((double)w[k]) * (double)c->act.d[(size_t)i * (size_t)(cols / 32) + (size_t)(k / 32)];
      }
      double error = fabs((double)y[(size_t)i * (size_t)c->w.rows + (size_t)o] - sum);
      assert_true(error <= step + 1e-5 * size + 1e-30);
      if (!rounded) assert_true(y[(size_t)i * (size_t)c->w.rows + (size_t)o] == acc);
    }
  }
  free(y), free(w);
}
static void test_values(void **state) {
  (void)state;
  each_case(15, check_values);
}

/* A NaN among the activations reaches every output of its row and no other row. */
static void test_nan_spreads(void **state) {
  (void)state;
  rng r = rng_new(17);
  for (int t = 0; t < N_ALL; t++)
    for (const kern_ops *const *ops = kern_tables(); *ops; ops++) {
      if (!(*ops)->usable()) continue;
      gemm_case c;
      case_init(&c, &r, all_types[t], 20, 256, 3, FILL_RANDOM);
      c.x[256 + 77] = NAN;
      float *y = case_product(&c, *ops, KERN_ACT_Q8);
      for (int i = 0; i < 60; i++) assert_true(isnan(y[i]) == (i / 20 == 1));
      free(y);
      case_fini(&c);
    }
}

/* Scales that are infinite or NaN, as a damaged file has them: every table ends, and says NaN or infinity where ref does. E2M1's exponents have no
 * such values: 255 is the largest power of two. */
static void test_hostile_scales(void **state) {
  (void)state;
  static const uint16_t bad[] = {0x7e00, 0xfe01, 0x7c00, 0xfc00};
  rng r = rng_new(19);
  for (int t = 3; t < N_ALL; t++)
    for (int i = 0; i < 4; i++) {
      gemm_case c;
      int at[2], n_half = half_places(all_types[t], at), wild = 0;
      size_t size = (size_t)wtype_lookup((uint32_t)all_types[t])->bytes;
      case_init(&c, &r, all_types[t], 18, 512, 3, FILL_RANDOM);
      for (size_t b = 0; b < c.src_bytes; b += 3 * size) {
        for (int j = 0; j < n_half; j++) memcpy(c.src + b + at[j], &bad[(i + j) % 4], 2);
        if (all_types[t] == WT_MXFP4) c.src[b] = (uint8_t)(i < 2 ? 255 : 0);
      }
      kern_pack(&c.w, c.src, 0, kern_panels(18));
      for (int mode = 0; mode < 2; mode++) {
        float *want = case_product(&c, table_ref(), (kern_act_mode)mode);
        for (const kern_ops *const *ops = kern_tables(); *ops; ops++) {
          if (!(*ops)->usable()) continue;
          float *y = case_product(&c, *ops, (kern_act_mode)mode);
          for (int k = 0; k < 3 * 18; k++) {
            assert_true((isnan(y[k]) && isnan(want[k])) || y[k] == want[k]);
            wild += !isfinite(y[k]);
          }
          free(y);
        }
        free(want);
      }
      assert_true(wild > 0 || (all_types[t] == WT_MXFP4 && i >= 2));
      case_fini(&c);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_act_quant),
      cmocka_unit_test(test_tables_agree),
      cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_row_alone),
      cmocka_unit_test(test_many_columns),
      cmocka_unit_test(test_order_matters),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_nan_spreads),
      cmocka_unit_test(test_hostile_scales),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
