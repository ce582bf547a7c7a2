/* The step path takes no memory: malloc and its kin are replaced here and counted, on every thread but the test's own, while sequences decode and
 * prompts are computed. Shared libraries call these too. What a callback does is its owner's affair and is not counted. */
#include "eng_fixture.h"
#include <stdatomic.h>

#ifdef __GLIBC__
#define CAN_COUNT !FIX_SANITIZED
#else
#define CAN_COUNT 0
#endif

static atomic_bool counting;
static atomic_long taken, last_size;
static _Thread_local bool exempt;

#if CAN_COUNT
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static void count(size_t n) {
  if (!atomic_load_explicit(&counting, memory_order_relaxed) || exempt) return;
  atomic_fetch_add(&taken, 1);
  atomic_store(&last_size, (long)n);
}

__attribute__((visibility("default"))) void *malloc(size_t n) {
  count(n);
  return __libc_malloc(n);
}
__attribute__((visibility("default"))) void *calloc(size_t n, size_t size) {
  count(n * size);
  return __libc_calloc(n, size);
}
__attribute__((visibility("default"))) void *realloc(void *p, size_t n) {
  count(n);
  return __libc_realloc(p, n);
}
__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t n) {
  count(n);
  return __libc_memalign(align, n);
}
__attribute__((visibility("default"))) int posix_memalign(void **ret, size_t align, size_t n) {
  count(n);
  *ret = __libc_memalign(align, n);
  return *ret ? 0 : 12;
}
#endif

enum { SEQS = 12, NEW = 150 };

typedef struct run {
  atomic_int began, n_done;
  bool leak; /* the callback takes memory and says so to nobody */
  sem_t done;
} run;

/* Counting begins with the event that brings the last sequence's second token, and ends just before the first sequence does. */
static void on_event(void *ctx, const eng_event *ev) {
  run *r = ctx;
  exempt = !r->leak;
  if (r->leak && atomic_load(&counting)) {
    void *volatile p = malloc(10);
    free(p);
  }
  if (ev->kind == ENG_TEXT) {
    int before = ev->stats->output_tokens - ev->n_tokens;
    if (before < 2 && ev->stats->output_tokens >= 2 && atomic_fetch_add(&r->began, 1) == SEQS - 1) atomic_store(&counting, true);
    if (ev->stats->output_tokens >= NEW - 1) atomic_store(&counting, false);
  } else if (ev->kind == ENG_DONE) {
    atomic_store(&counting, false);
    atomic_fetch_add(&r->n_done, 1);
    sem_post(&r->done);
  }
  exempt = false;
}

static const eng_bias biases[] = {{3, 2}, {9, -4}};
static const str stops[] = {{"never said, but it begins like a", 32}};

static eng_req request(int i, const int32_t *ids, int n) {
  eng_req q = fix_req(ids, n, NEW, (uint64_t)i);
  eng_sampling *s = &q.s;
  q.top_logprobs = -1;
  switch (i) {
  case 1: s->temperature = 0; break;
  case 2: s->top_p = 0.9f; break;
  case 3: s->top_k = 40; break;
  case 4: s->typical_p = 0.8f, s->top_p = 0.95f; break;
  case 5: s->min_p = 0.05f, s->temperature = 1.5f; break;
  case 6: s->repetition = 1.2f, s->presence = 0.5f, s->frequency = 0.1f, s->bias = biases, s->n_bias = 2; break;
  case 7: s->dry_multiplier = 0.8f; break;
  case 8: q.top_logprobs = 20; break;
  case 9: q.stop = stops, q.n_stop = 1, q.top_logprobs = 3; break;
  case 10: q.ignore_eos = false, q.min_tokens = NEW; break;
  case 11: s->top_p = 0.8f, s->top_k = 100, s->typical_p = 0.9f, s->min_p = 0.01f, s->temperature = 0.6f, q.keep_special = false; break;
  default: break;
  }
  return q;
}

/* Runs SEQS sequences with an option each; returns how often memory was taken meanwhile. */
static long taken_by(const model *m, eng_opts o, bool leak) {
  static int32_t ids[SEQS][600];
  run r = {.leak = leak};
  sem_init(&r.done, 0, 0);
  engine *en = fix_engine(m, o);
  eng_ticket *t[SEQS];
  atomic_store(&taken, 0);
  exempt = true; /* this thread */
  for (int i = 0; i < SEQS; i++) {
    int n = i == 2 || i == 8 ? 600 : 20 + 7 * i; /* two are past the length from which attention is split over threads */
    fix_tokens(m, ids[i], n, i);
    eng_req q = request(i, ids[i], n);
    err e;
    q.on_event = on_event, q.ctx = &r;
    if (!engine_submit(en, &q, &t[i], &e)) fail_msg("%s", e.msg);
  }
  for (int i = 0; i < SEQS; i++) {
    while (sem_wait(&r.done)) {}
    eng_ticket_free(t[i]);
  }
  assert_int_equal(r.began, SEQS);
  engine_close(en);
  sem_destroy(&r.done);
  return atomic_load(&taken);
}

static void expect_none(const model *m, eng_opts o) {
  long n = taken_by(m, o, false);
  if (n) fail_msg("memory was taken %ld times, last %ld bytes", n, atomic_load(&last_size));
}

static model *llama, *qwen;

static void test_decode(void **st) {
  (void)st;
#if !(CAN_COUNT)
  skip();
#endif
  for (const kern_ops *const *k = kern_tables(); *k; k++)
    if ((*k)->usable()) expect_none(llama, (eng_opts){.ops = *k, .threads = 2});
  expect_none(qwen, (eng_opts){.threads = 2, .no_prefix_cache = true});
}

/* So few pages that sequences are thrown out, wait, are looked up in the index and computed again, all within what is counted. */
static void test_preempted(void **st) {
  (void)st;
#if !(CAN_COUNT)
  skip();
#endif
  kern_kv shape = {.type = KERN_KV_F16, .n_layer = llama->arch.n_layer, .n_kv = llama->arch.n_kv, .head_dim = llama->arch.head_dim, .page = 16};
  expect_none(llama, (eng_opts){.threads = 2, .chunk = 64, .ctx = 800, .kv_budget = 150 * kern_kv_page_bytes(&shape)});
}

/* The count does count: on the engine's thread, where a callback takes memory. */
static void test_control(void **st) {
  (void)st;
#if !(CAN_COUNT)
  skip();
#endif
  assert_true(taken_by(llama, (eng_opts){.threads = 2}, true) > 100);
}

static int setup(void **st) {
  (void)st;
  llama = fix_model(TINY("tiny-llama-f32"));
  qwen = fix_model(TINY("tiny-qwen2-k"));
  qwen->arch.ctx = 1024; /* it was made for 512; its numbers do not matter here */
  return 0;
}
static int teardown(void **st) {
  (void)st;
  model_close(llama);
  model_close(qwen);
  return 0;
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_decode), cmocka_unit_test(test_preempted), cmocka_unit_test(test_control)};
  return cmocka_run_group_tests(t, setup, teardown);
}
