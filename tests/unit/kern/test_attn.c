/* test_attn.c - paged attention: right against double precision; the same bits from every table, page size, number of rows and way of calling;
 * blind to what lies behind the last position. */
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

/* One sequence: keys and values of `len` positions, queries for the last `rows` of them. */
typedef struct scene {
  int d, n_kv, n_head, len, rows;
  kern_kv_type type;
  float *k, *v; /* [len][n_kv * d] */
  float *q;     /* [rows][n_head * d] */
} scene;

static void scene_init(scene *s, uint64_t seed, float range) {
  rng r = rng_new(seed);
  size_t kv = (size_t)s->len * (size_t)(s->n_kv * s->d), q = (size_t)s->rows * (size_t)(s->n_head * s->d);
  s->k = malloc(sizeof(float) * kv), s->v = malloc(sizeof(float) * kv), s->q = malloc(sizeof(float) * q);
  fill_random(&r, s->k, (int)kv, range), fill_random(&r, s->v, (int)kv, range), fill_random(&r, s->q, (int)q, range);
}
static void scene_fini(scene *s) { free(s->k), free(s->v), free(s->q); }

/* The scene's keys and values in pages that lie in a scattered order; all other memory of the pool holds NaN. */
typedef struct cache {
  kern_kv kv;
  int32_t *pages;
  int n_pages;
} cache;

static void cache_init(cache *c, const scene *s, const kern_ops *o, int page, int layer) {
  c->kv = (kern_kv){.type = s->type, .n_layer = layer + 1, .n_kv = s->n_kv, .head_dim = s->d, .page = page};
  c->n_pages = (s->len + page - 1) / page;
  size_t bytes = kern_kv_page_bytes(&c->kv);
  assert_true(bytes > 0);
  c->kv.pool = aligned_alloc(64, (bytes * (size_t)(c->n_pages + 1) + 63) / 64 * 64);
  memset(c->kv.pool, 0xff, bytes * (size_t)(c->n_pages + 1)); /* NaN in F16 and F32 */
  c->pages = malloc(sizeof *c->pages * (size_t)c->n_pages);
  for (int i = 0; i < c->n_pages; i++) c->pages[i] = (int32_t)(c->n_pages - i);
  for (int p = 0; p < s->len; p++)
    o->kv_store(&c->kv, layer, c->pages[p / page], p % page, s->k + (size_t)p * (size_t)(s->n_kv * s->d), s->v + (size_t)p * (size_t)(s->n_kv * s->d),
        0, s->n_kv);
}
static void cache_fini(cache *c) { free(c->kv.pool), free(c->pages); }

typedef struct call {
  int page, split, window, step;
  bool parts;
} call; /* step: rows a call, 0: all at once */

static void run_parts(const kern_ops *o, const kern_attn *a, int h, int r0, int r1) {
  int g = a->n_head / a->kv->n_kv, d = a->kv->head_dim, splits = (a->pos0 + r1 - 1) / a->split + 1;
  size_t one = (size_t)(r1 - r0) * (size_t)g * (size_t)(d + 2);
  float *part = malloc(sizeof(float) * one * (size_t)splits);
  for (int i = 0; i < splits; i++) o->attn_part(a, h, r0, r1, i, part + one * (size_t)i);
  for (int r = r0; r < r1; r++)
    for (int j = 0; j < g; j++)
      o->attn_merge(part + ((size_t)(r - r0) * (size_t)g + (size_t)j) * (size_t)(d + 2), splits, one, d,
          a->out + (size_t)r * (size_t)a->ldo + (size_t)(h * g + j) * (size_t)d);
  free(part);
}

static float *run(const scene *s, const kern_ops *o, call how) {
  cache c;
  int ld = s->n_head * s->d, layer = 1;
  cache_init(&c, s, o, how.page, layer);
  float *out = calloc((size_t)s->rows * (size_t)ld, sizeof *out);
  kern_attn a = {.kv = &c.kv,
      .layer = layer,
      .n_head = s->n_head,
      .scale = 1.0f / sqrtf((float)s->d),
      .window = how.window,
      .split = how.split,
      .pages = c.pages,
      .pos0 = s->len - s->rows,
      .n_row = s->rows,
      .q = s->q,
      .out = out,
      .ldq = ld,
      .ldo = ld};
  int step = how.step ? how.step : s->rows;
  for (int h = 0; h < s->n_kv; h++)
    for (int r = 0; r < s->rows; r += step) {
      int end = r + step < s->rows ? r + step : s->rows;
      if (how.parts) run_parts(o, &a, h, r, end);
      else o->attn(&a, h, r, end);
    }
  cache_fini(&c);
  return out;
}

static int compare(const scene *s, const float *a, const float *b) { return first_difference(a, b, s->rows * s->n_head * s->d); }

static const call usual = {.page = 64, .split = KERN_SPLIT};

/* Soft-max of rounded keys in double precision, one query at a time. */
static void naive(const scene *s, int window, int row, int head, double *out) {
  int pos = s->len - s->rows + row, h = head / (s->n_head / s->n_kv), lo = window && pos - window + 1 > 0 ? pos - window + 1 : 0;
  double *p = malloc(sizeof(double) * (size_t)(pos + 1)), top = -INFINITY, sum = 0.0;
  for (int k = lo; k <= pos; k++) {
    double dot = 0.0;
    for (int i = 0; i < s->d; i++) {
      float key = s->k[((size_t)k * (size_t)s->n_kv + (size_t)h) * (size_t)s->d + (size_t)i];
      if (s->type == KERN_KV_F16) key = f32_of_f16(f16_of_f32(key));
      dot += (double)s->q[((size_t)row * (size_t)s->n_head + (size_t)head) * (size_t)s->d + (size_t)i] * (double)key;
    }
    p[k] = dot / sqrt((double)s->d);
    if (p[k] > top) top = p[k];
  }
  for (int i = 0; i < s->d; i++) out[i] = 0.0;
  for (int k = lo; k <= pos; k++) {
    double w = exp(p[k] - top);
    sum += w;
    for (int i = 0; i < s->d; i++) {
      float val = s->v[((size_t)k * (size_t)s->n_kv + (size_t)h) * (size_t)s->d + (size_t)i];
      out[i] += w * (double)(s->type == KERN_KV_F16 ? f32_of_f16(f16_of_f32(val)) : val);
    }
  }
  for (int i = 0; i < s->d; i++) out[i] /= sum;
  free(p);
}

/* Shapes: SmolLM2 (9 heads over 3), Qwen2.5 0.5B (14 over 2) and 1.5B (12 over 2), plain multi-head, one kv head, odd head sizes. */
static const scene shapes[] = {
    {.d = 64, .n_kv = 3, .n_head = 9, .len = 300, .rows = 120},
    {.d = 64, .n_kv = 2, .n_head = 14, .len = 290, .rows = 35},
    {.d = 128, .n_kv = 2, .n_head = 12, .len = 530, .rows = 40},
    {.d = 128, .n_kv = 2, .n_head = 12, .len = 777, .rows = 1},
    {.d = 64, .n_kv = 2, .n_head = 14, .len = 1025, .rows = 1},
    {.d = 20, .n_kv = 1, .n_head = 2, .len = 270, .rows = 9},
    {.d = 80, .n_kv = 2, .n_head = 2, .len = 261, .rows = 7},
    {.d = 256, .n_kv = 1, .n_head = 4, .len = 280, .rows = 30},
    {.d = 80, .n_kv = 1, .n_head = 8, .len = 513, .rows = 1},
    {.d = 6, .n_kv = 1, .n_head = 3, .len = 40, .rows = 40},
    {.d = 512, .n_kv = 1, .n_head = 2, .len = 270, .rows = 17},
    {.d = 64, .n_kv = 3, .n_head = 9, .len = 1, .rows = 1},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
static scene shape(int i, kern_kv_type type, float range) {
  scene s = shapes[i];
  s.type = type;
  scene_init(&s, (uint64_t)(100 + i), range);
  return s;
}

static const kern_ops *ref_table(void) {
  const kern_ops *const *t = kern_tables();
  while (t[1]) t++;
  return *t;
}
static void ref_is_right(void **st) {
  (void)st;
  for (int i = 0; i < N_SHAPES; i++)
    for (int type = 0; type < 2; type++)
      for (int window = 0; window < 101; window += 100) {
        scene s = shape(i, type ? KERN_KV_F32 : KERN_KV_F16, 2.0f);
        call how = usual;
        how.window = window;
        float *out = run(&s, ref_table(), how);
        double want[512], worst = 0.0;
        for (int row = 0; row<s.rows; row += s.rows> 20 ? 17 : 1)
          for (int head = 0; head < s.n_head; head++) {
            naive(&s, window, row, head, want);
            for (int k = 0; k < s.d; k++)
              worst = fmax(worst, fabs((double)out[((size_t)row * (size_t)s.n_head + (size_t)head) * (size_t)s.d + (size_t)k] - want[k]) / 2.0);
          }
        if (!(worst < 1e-5)) fail_msg("shape %d type %d window %d: off by %g of the values' range", i, type, window, worst);
        free(out), scene_fini(&s);
      }
}

static void tables_agree(void **st) {
  (void)st;
  for (int i = 0; i < N_SHAPES; i++)
    for (int k = 0; k < 4; k++) {
      scene s = shape(i, k & 1 ? KERN_KV_F32 : KERN_KV_F16, k & 2 ? 40.0f : 1.0f);
      call how = usual;
      how.window = i % 3 == 1 ? 70 : 0;
      float *want = run(&s, ref_table(), how);
      for (int j = 0; j < s.rows * s.n_head * s.d; j++)
        if (!isfinite(want[j])) fail_msg("shape %d: [%d] is not finite: something behind the last position was read", i, j);
      for (const kern_ops *const *t = kern_tables(); t[1]; t++) {
        if (!(*t)->usable()) {
          if (!i && !k) printf("skipped: table %s is not usable on this machine\n", (*t)->name);
          continue;
        }
        float *got = run(&s, *t, how);
        int at = compare(&s, want, got);
        if (at >= 0) fail_msg("%s shape %d kind %d: [%d] ref %a, got %a", (*t)->name, i, k, at, (double)want[at], (double)got[at]);
        free(got);
      }
      free(want), scene_fini(&s);
    }
}

/* Law 1: how the work was cut up must not show. */
static void cutting_does_not_show(void **st) {
  (void)st;
  static const call ways[] = {
      {.page = 16, .split = KERN_SPLIT},
      {.page = 48, .split = KERN_SPLIT},
      {.page = 256, .split = KERN_SPLIT},
      {.page = 1024, .split = KERN_SPLIT},
      {.page = 64, .split = KERN_SPLIT, .step = 1},
      {.page = 64, .split = KERN_SPLIT, .step = 2},
      {.page = 32, .split = KERN_SPLIT, .step = 3},
      {.page = 64, .split = KERN_SPLIT, .step = 5},
      {.page = 64, .split = KERN_SPLIT, .step = 31},
      {.page = 64, .split = KERN_SPLIT, .parts = true},
      {.page = 16, .split = KERN_SPLIT, .step = 1, .parts = true},
      {.page = 64, .split = KERN_SPLIT, .step = 7, .parts = true},
  };
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    bool slow = !t[1]; /* plain C: the body is the same, a few ways will do */
    for (int i = slow ? 3 : 0; i < N_SHAPES; i++) {
      scene s = shape(i, i & 1 ? KERN_KV_F32 : KERN_KV_F16, 3.0f);
      for (int window = 0; window < 151; window += slow ? 150 : 75) {
        call how = usual;
        how.window = window;
        float *want = run(&s, *t, how);
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k += slow ? 5 : 1) {
          how = ways[k], how.window = window;
          float *got = run(&s, *t, how);
          int at = compare(&s, want, got);
          if (at >= 0) fail_msg("%s shape %d window %d way %zu: [%d] %a, %a", (*t)->name, i, window, k, at, (double)want[at], (double)got[at]);
          free(got);
        }
        free(want);
      }
      scene_fini(&s);
    }
  }
}

/* A row's bits may not depend on what later rows hold, even when that is infinite. */
static void later_keys_do_not_leak(void **st) {
  (void)st;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    for (int i = t[1] ? 0 : 1; i < (t[1] ? 3 : 2); i++) {
      scene s = shape(i, KERN_KV_F16, 2.0f);
      float *want = run(&s, *t, usual);
      int last = s.len - 1, width = s.n_kv * s.d;
      for (int k = 0; k < width; k++)
        s.k[(size_t)last * (size_t)width + (size_t)k] = k % 2 ? NAN : 1e30f, s.v[(size_t)last * (size_t)width + (size_t)k] = k % 3 ? INFINITY : NAN;
      float *got = run(&s, *t, usual);
      assert_int_equal(first_difference(want, got, (s.rows - 1) * s.n_head * s.d), -1);
      assert_true(compare(&s, want, got) >= 0); /* the last row itself must see it */
      free(want), free(got), scene_fini(&s);
    }
  }
}

/* Huge and tiny scores: soft-max of one dominating key is that key's value; a key at -inf counts for nothing. */
static void extreme_scores(void **st) {
  (void)st;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    scene s = {.d = 64, .n_kv = 1, .n_head = 2, .len = 600, .rows = 1, .type = KERN_KV_F32};
    scene_init(&s, 5, 1.0f);
    for (int k = 0; k < s.len * s.d; k++) s.k[k] = 0.0f;
    for (int i = 0; i < s.d; i++) s.k[123 * s.d + i] = 1e18f, s.q[i] = 1e18f, s.q[s.d + i] = -1e18f, s.k[400 * s.d + i] = 1e38f;
    float *out = run(&s, *t, usual);
    for (int i = 0; i < s.d; i++) {
      assert_true(!isfinite(out[i]) || out[i] == s.v[400 * s.d + i]); /* +inf - +inf is NaN: that row's own harm */
      assert_true(isfinite(out[s.d + i]));
    }
    free(out), scene_fini(&s);
  }
}

/* Negative control: were the splits not at fixed absolute positions, these comparisons would see it. */
static void another_split_shows(void **st) {
  (void)st;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    scene s = shape(t[1] ? 2 : 4, KERN_KV_F16, 3.0f);
    float *want = run(&s, *t, usual);
    for (int split = 16; split <= KERN_SPLIT_MAX; split *= 2) {
      call how = usual;
      how.split = split;
      float *got = run(&s, *t, how);
      if (split == KERN_SPLIT) assert_int_equal(compare(&s, want, got), -1);
      else assert_true(compare(&s, want, got) >= 0);
      for (int k = 0; k < s.rows * s.n_head * s.d; k++) assert_true(fabsf(want[k] - got[k]) < 1e-4f);
      free(got);
    }
    free(want), scene_fini(&s);
  }
}

static void impossible_pages_are_refused(void **st) {
  (void)st;
  kern_kv kv = {.n_layer = 1, .n_kv = 1, .head_dim = 64, .page = 64};
  assert_int_equal(kern_kv_page_bytes(&kv), 2 * 64 * 64 * 2);
  kv.page = 40, assert_int_equal(kern_kv_page_bytes(&kv), 0);
  kv.page = 0, assert_int_equal(kern_kv_page_bytes(&kv), 0);
  kv.page = 16, kv.head_dim = 65, assert_int_equal(kern_kv_page_bytes(&kv), 0);
  kv.head_dim = KERN_HEAD_MAX + 2, assert_int_equal(kern_kv_page_bytes(&kv), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ref_is_right),
      cmocka_unit_test(tables_agree),
      cmocka_unit_test(cutting_does_not_show),
      cmocka_unit_test(later_keys_do_not_leak),
      cmocka_unit_test(extreme_scores),
      cmocka_unit_test(another_split_shows),
      cmocka_unit_test(impossible_pages_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
