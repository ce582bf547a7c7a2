/* Law 1: output is a function of (model, request, seed). Raw logits bit for bit, and drawn tokens, under everything that must not matter; and for
 * each kind of equality a planted fault (a kernel table with one wrong function) under which the same comparison must turn red. */
#include "eng_fixture.h"
#include "base/half.h"
#include <math.h>
#include <pthread.h>

enum { N = 300 }; /* crosses the attention split at 256 */

/* F32 weights (a K-order fault can be planted), quantised weights; then of the families that go other ways: windows and a RoPE of their own over one
 * K/V head, the same with windows longer than a split, QK-norm by head, QK-norm of whole rows with norms behind. */
static model *fmodel, *qmodel, *windowed, *wide, *by_head, *by_row;

static float *logits_of(engine *en, const int32_t *ids, int n, int chunk) {
  err e = {0};
  float *l = calloc((size_t)n * (size_t)fmodel->arch.vocab, sizeof *l); /* all tiny models have the same vocabulary */
  if (!engine_logits(en, ids, n, chunk, l, &e)) fail_msg("%s", e.msg);
  return l;
}

/* Do the logits of m agree bit for bit with `want` under these options and chunk? */
static bool agree(const model *m, eng_opts o, int chunk, const int32_t *ids, const float *want) {
  engine *en = fix_engine(m, o);
  float *got = logits_of(en, ids, N, chunk);
  bool same = memcmp(got, want, (size_t)N * (size_t)m->arch.vocab * sizeof *got) == 0;
  free(got);
  engine_close(en);
  return same;
}

static float *baseline(const model *m, eng_opts o, const int32_t *ids) {
  o.threads = 1;
  engine *en = fix_engine(m, o);
  float *l = logits_of(en, ids, N, 0);
  engine_close(en);
  return l;
}

/* The first two on every table; the others on the best one, for what they add is not in the tables. */
static void each_model(void (*f)(const model *m, const kern_ops *ops, const int32_t *ids, const float *want)) {
  const model *ms[] = {fmodel, qmodel, windowed, wide, by_head, by_row};
  for (int i = 0; i < 6; i++)
    for (const kern_ops *const *t = kern_tables(); *t; t++) {
      if (!(*t)->usable()) continue;
      int32_t ids[N];
      fix_tokens(ms[i], ids, N, i);
      float *want = baseline(ms[i], (eng_opts){.ops = *t}, ids);
      f(ms[i], *t, ids, want);
      free(want);
      if (FIX_SANITIZED || i >= 2) break; /* the tables are the kernel tests' affair there */
    }
}

static void check_threads(const model *m, const kern_ops *ops, const int32_t *ids, const float *want) {
  for (int th = 2; th <= 3; th++) assert_true(agree(m, (eng_opts){.ops = ops, .threads = th}, 0, ids, want));
}
static void test_threads(void **st) {
  (void)st;
  each_model(check_threads);
}

static void check_chunks(const model *m, const kern_ops *ops, const int32_t *ids, const float *want) {
  static const int chunks[] = {1, 3, 7, 64, 255};
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) assert_true(agree(m, (eng_opts){.ops = ops, .threads = 2}, chunks[i], ids, want));
}
static void test_chunks(void **st) {
  (void)st;
  each_model(check_chunks);
}

static void check_pages(const model *m, const kern_ops *ops, const int32_t *ids, const float *want) {
  static const int pages[] = {32, 48, 512};
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
    assert_true(agree(m, (eng_opts){.ops = ops, .threads = 2, .page = pages[i], .ctx = 512}, 64, ids, want));
}
static void test_pages(void **st) {
  (void)st;
  each_model(check_pages);
}

/* Rows behind a prefix that was computed before, at every page boundary (fewer under a sanitizer). */
static void check_prefix(const model *m, const kern_ops *ops, const int32_t *ids, const float *want) {
  engine *en = fix_engine(m, (eng_opts){.ops = ops, .threads = 2});
  size_t vocab = (size_t)m->arch.vocab;
  free(logits_of(en, ids, N, 0));
  float *got = calloc(N * vocab, sizeof *got);
  err e = {0};
  for (int from = 16; from < N; from += FIX_SANITIZED ? 80 : 16) {
    int cached = 0;
    if (!engine_logits_from(en, ids, N, 5, from, got, &cached, &e)) fail_msg("%s", e.msg);
    assert_int_equal(cached, from);
    assert_memory_equal(got + (size_t)from * vocab, want + (size_t)from * vocab, ((size_t)N - (size_t)from) * vocab * sizeof *got);
  }
  free(got);
  engine_close(en);
}
static void test_prefix(void **st) {
  (void)st;
  each_model(check_prefix);
}

/* Beside others: logits are asked for while seven sequences decode and prefill in the same batches. */
static void check_company(const model *m, const kern_ops *ops, const int32_t *ids, const float *want) {
  engine *en = fix_engine(m, (eng_opts){.ops = ops, .threads = 2, .chunk = 40});
  fix_reply *r[7];
  eng_ticket *t[7];
  int32_t other[7][200];
  for (int i = 0; i < 7; i++) {
    fix_tokens(m, other[i], 200, 50 + i);
    r[i] = fix_reply_new();
    t[i] = fix_submit(en, fix_req(other[i], 3 + 25 * i, 300, (uint64_t)i), r[i]);
  }
  float *got = logits_of(en, ids, N, 0);
  eng_gauges g;
  engine_gauges(en, &g);
  assert_true(g.running >= 2); /* it did have company */
  assert_memory_equal(got, want, (size_t)N * (size_t)m->arch.vocab * sizeof *got);
  for (int i = 0; i < 7; i++) {
    engine_cancel(t[i]);
    while (sem_wait(&r[i]->sem)) {}
    eng_ticket_free(t[i]);
    fix_reply_free(r[i]);
  }
  free(got);
  engine_close(en);
}
static void test_company(void **st) {
  (void)st;
  each_model(check_company);
}

/* Drawn tokens and their log-probabilities: alone, in a batch of eight, and with so few pages that sequences are preempted and computed again. */
static void test_sampled(void **st) {
  (void)st;
  enum { SEQS = 8, OUT = 120 };
  int32_t ids[SEQS][64];
  fix_reply *alone[SEQS];
  engine *en = fix_engine(qmodel, (eng_opts){.threads = 1, .no_prefix_cache = true});
  for (int i = 0; i < SEQS; i++) {
    fix_tokens(qmodel, ids[i], 64, 900 + i);
    eng_req q = fix_req(ids[i], 10 + 6 * i, OUT, (uint64_t)i * 77 + 5);
    q.s.temperature = 0.3f + 0.2f * (float)i;
    if (i % 3 == 1) q.s.top_p = 0.8f;
    if (i % 3 == 2) q.s.top_k = 20, q.s.repetition = 1.2f;
    alone[i] = fix_run(en, q);
    assert_int_equal(alone[i]->n_tok, OUT);
  }
  engine_close(en);
  kern_kv shape = {.type = KERN_KV_F16, .n_layer = qmodel->arch.n_layer, .n_kv = qmodel->arch.n_kv, .head_dim = qmodel->arch.head_dim, .page = 16};
  for (int tight = 0; tight < 2; tight++) {
    en = fix_engine(qmodel, (eng_opts){.threads = 2, .chunk = 33, .kv_budget = tight ? 30 * kern_kv_page_bytes(&shape) : 0});
    fix_reply *r[SEQS];
    eng_ticket *t[SEQS];
    for (int i = 0; i < SEQS; i++) {
      eng_req q = fix_req(ids[i], 10 + 6 * i, OUT, (uint64_t)i * 77 + 5);
      q.s.temperature = 0.3f + 0.2f * (float)i;
      if (i % 3 == 1) q.s.top_p = 0.8f;
      if (i % 3 == 2) q.s.top_k = 20, q.s.repetition = 1.2f;
      r[i] = fix_reply_new();
      t[i] = fix_submit(en, q, r[i]);
    }
    for (int i = 0; i < SEQS; i++) {
      while (sem_wait(&r[i]->sem)) {}
      eng_ticket_free(t[i]);
    }
    eng_gauges g;
    engine_gauges(en, &g);
    if (tight) assert_true(g.preemptions > 0);
    for (int i = 0; i < SEQS; i++) {
      assert_int_equal(r[i]->n_tok, OUT);
      assert_memory_equal(r[i]->tok, alone[i]->tok, OUT * sizeof(int32_t));
      assert_memory_equal(r[i]->lp, alone[i]->lp, OUT * sizeof(float));
      assert_int_equal(r[i]->text.n, alone[i]->text.n);
      assert_memory_equal(r[i]->text.p, alone[i]->text.p, r[i]->text.n);
      fix_reply_free(r[i]);
    }
    engine_close(en);
  }
  for (int i = 0; i < SEQS; i++) fix_reply_free(alone[i]);
}

/* Another seed must give other tokens, or the comparison above would prove nothing. */
static void test_seed_matters(void **st) {
  (void)st;
  engine *en = fix_engine(qmodel, (eng_opts){.threads = 1});
  int32_t ids[20];
  fix_tokens(qmodel, ids, 20, 1);
  fix_reply *a = fix_run(en, fix_req(ids, 20, 50, 1)), *b = fix_run(en, fix_req(ids, 20, 50, 2)), *c = fix_run(en, fix_req(ids, 20, 50, 1));
  eng_req q = fix_req(ids, 20, 50, 1);
  q.choice = 1;
  fix_reply *d = fix_run(en, q);
  assert_memory_not_equal(a->tok, b->tok, 50 * sizeof(int32_t));
  assert_memory_not_equal(a->tok, d->tok, 50 * sizeof(int32_t));
  assert_memory_equal(a->tok, c->tok, 50 * sizeof(int32_t));
  assert_int_equal(c->st.cached_tokens, 16);
  fix_reply_free(a), fix_reply_free(b), fix_reply_free(c), fix_reply_free(d);
  engine_close(en);
}

/* ---- negative controls ---- */

static const kern_ops *real;

/* Fault 1: the order along K depends on how many rows there are. */
static void gemm_k_order(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy) {
  if (n == 1 || w->type != WT_F32) {
    real->gemm(w, a, n, p0, p1, y, ldy);
    return;
  }
  const float *d = w->data;
  for (int r = p0 * KERN_PANEL; r < p1 * KERN_PANEL && r < w->rows; r++)
    for (int i = 0; i < n; i++) {
      float acc = 0;
      for (int k = w->cols - 1; k >= 0; k--)
        acc = __builtin_fmaf(d[((size_t)(r / KERN_PANEL) * (size_t)w->cols + (size_t)k) * KERN_PANEL + (size_t)(r % KERN_PANEL)],
            a->x[(size_t)i * (size_t)a->ldx + (size_t)k], acc);
      y[(size_t)i * (size_t)ldy + (size_t)r] = acc;
    }
}

/* Fault 2: attention is split by the pages in use, not at absolute positions. */
static void attn_by_pages(const kern_attn *a, int h, int r0, int r1) {
  kern_attn b = *a;
  int pages = (a->pos0 + a->n_row + 15) / 16;
  b.split = 16 * ((pages + 1) / 2);
  real->attn(&b, h, r0, r1);
}

/* Fault 3: rows of one chunk see each other's K before it was rounded. The raw values are kept aside (one thread, one sequence), and attention runs
 * over a second pool of F32 pages that holds rounded K for earlier positions and raw K for the chunk's own. */
static float raw_k[8][512][512], raw_v[8][512][512];
static int raw_n;
static void store_raw(const kern_kv *kv, int layer, int32_t page, int slot, const float *k, const float *v, int h0, int h1) {
  real->kv_store(kv, layer, page, slot, k, v, h0, h1);
  int pos = page * kv->page + slot; /* pages of a fresh pool are handed out in order */
  for (int i = h0 * kv->head_dim; i < h1 * kv->head_dim; i++) raw_k[layer][pos][i] = k[i], raw_v[layer][pos][i] = v[i];
  if (pos + 1 > raw_n) raw_n = pos + 1;
}
static void attn_unrounded(const kern_attn *a, int h, int r0, int r1) {
  static uint8_t copy[512 * 512 * 2 * 4];
  kern_kv kv = *a->kv;
  kv.type = KERN_KV_F32, kv.n_layer = 1, kv.pool = copy;
  for (int p = 0; p < a->pos0 + a->n_row; p++) {
    float k[512];
    for (int i = 0; i < kv.n_kv * kv.head_dim; i++) {
      float f = raw_k[a->layer][p][i];
      k[i] = p < a->pos0 ? f32_of_f16(f16_of_f32(f)) : f;
    }
    real->kv_store(&kv, 0, a->pages[p / kv.page], p % kv.page, k, raw_v[a->layer][p], 0, kv.n_kv);
  }
  kern_attn b = *a;
  b.kv = &kv, b.layer = 0;
  real->attn(&b, h, r0, r1);
}

/* Fault 4: the window is that of the chunk's first row, so a row sees more the later it stands in its chunk. */
static void attn_chunk_window(const kern_attn *a, int h, int r0, int r1) {
  for (int r = r0; r < r1; r++) {
    kern_attn b = *a;
    if (b.window) b.window += r;
    real->attn(&b, h, r, r + 1);
  }
}

/* Fault 5: a head's norm adds its squares in another order when the step has one row (one thread, so the row count can be kept aside). */
static int step_rows;
static void gemm_noting(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy) {
  step_rows = n;
  real->gemm(w, a, n, p0, p1, y, ldy);
}
static void norm_by_rows(const float *x, const float *w, float eps, int n, float *y) {
  if (step_rows != 1) {
    real->rmsnorm(x, w, eps, n, y);
    return;
  }
  float sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  for (int i = 0; i < n; i++) y[i] = x[i] * (1.0f / sqrtf(sum / (float)n + eps)) * w[i];
}

static bool fault_seen(const model *m, kern_ops faulty, int chunk) {
  int32_t ids[N];
  fix_tokens(m, ids, N, 0);
  float *want = baseline(m, (eng_opts){.ops = &faulty}, ids);
  bool same = agree(m, (eng_opts){.ops = &faulty, .threads = 1}, chunk, ids, want);
  free(want);
  return !same;
}

static void test_controls(void **st) {
  (void)st;
  err e;
  assert_true(kern_select("ref", &real, &e));
  kern_ops ok = *real, k = *real, s = *real, u = *real, w = *real, q = *real;
  k.gemm = gemm_k_order;
  s.attn = attn_by_pages;
  u.kv_store = store_raw, u.attn = attn_unrounded;
  w.attn = attn_chunk_window;
  q.gemm = gemm_noting, q.rmsnorm = norm_by_rows;
  /* The same comparison without a fault is green, and so is a fault where it can do nothing. */
  assert_false(fault_seen(fmodel, ok, 64));
  assert_false(fault_seen(windowed, ok, 64));
  assert_false(fault_seen(fmodel, w, 64));
  assert_true(fault_seen(fmodel, k, 1));
  assert_true(fault_seen(fmodel, s, 64));
  raw_n = 0;
  assert_true(fault_seen(fmodel, u, 64));
  assert_true(fault_seen(windowed, w, 64));
  assert_true(fault_seen(by_head, q, 1));
}

static int setup(void **st) {
  (void)st;
  fmodel = fix_model(TINY("tiny-llama-f32"));
  qmodel = fix_model(TINY("tiny-qwen2-k"));
  windowed = fix_model(TINY("tiny-gemma3-f16"));
  wide = fix_model(TINY("tiny-gemma3-f16"));
  by_head = fix_model(TINY("tiny-qwen3-f16"));
  by_row = fix_model(TINY("tiny-olmo2-f16"));
  for (int i = 0; i < wide->arch.n_layer; i++) wide->arch.layer[i].window = KERN_SPLIT + 14;
  return 0;
}
static int teardown(void **st) {
  (void)st;
  model_close(fmodel);
  model_close(qmodel);
  model_close(windowed);
  model_close(wide);
  model_close(by_head);
  model_close(by_row);
  return 0;
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_chunks), cmocka_unit_test(test_pages),
      cmocka_unit_test(test_prefix), cmocka_unit_test(test_company), cmocka_unit_test(test_sampled), cmocka_unit_test(test_seed_matters),
      cmocka_unit_test(test_controls)};
  return cmocka_run_group_tests(t, setup, teardown);
}
