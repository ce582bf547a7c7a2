/* The real scheduler and page pool under a fake model: thousands of random loads, each step checked. The fake model writes into every position of a
 * page what a real one would have made of the whole text before it, so a page that is lost, overwritten or found by the wrong prefix shows at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/rng.h"
#include "engine/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, PAGES_MAX = 64, SEQS = 14, CTX_MAX = 400, STEPS_MAX = 20000 };

static rng dice;
static int below(int n) { return (int)rng_below(&dice, (uint64_t)n); }

typedef struct world {
  kv_pool kv;
  sched sc;
  int ctx;
  uint64_t memory[PAGES_MAX][PAGE];
  seq *live[SEQS];
  int n_live;
  char salt[SEQS]; /* by arrival */
  uint64_t longest_wait[SEQS];
  long steps, finished;
} world;

/* What a model would make of tok[0..p], as one number. */
static uint64_t made_of(uint64_t before, int32_t token) {
  uint64_t x = (before ^ (uint64_t)token) * 0x9E3779B97F4A7C15ull;
  return x ^ x >> 29;
}
static uint64_t at_start(const world *w, const seq *s) { return (uint64_t)w->salt[s->order] + 1; }

static void on_event(void *ctx, const eng_event *ev) { (void)ctx, (void)ev; }

static world *world_new(int n_pages, int max_seqs, int chunk) {
  static const uint8_t root[32] = {1};
  static const kern_kv shape = {.type = KERN_KV_F16, .n_layer = 1, .n_kv = 1, .head_dim = 2, .page = PAGE};
  world *w = calloc(1, sizeof *w);
  err e;
  if (!kv_init(&w->kv, &shape, (uint64_t)n_pages * kern_kv_page_bytes(&shape), root, below(8) == 0, &e)) fail_msg("%s", e.msg);
  assert_true(sched_init(&w->sc, &w->kv, max_seqs, chunk));
  w->ctx = n_pages * PAGE < CTX_MAX ? n_pages * PAGE : CTX_MAX; /* as the engine does: one sequence fits alone */
  return w;
}

static void world_free(world *w) {
  sched_fini(&w->sc);
  kv_fini(&w->kv);
  free(w);
}

/* Texts of few letters, so that prefixes are often the same. */
static void arrive(world *w, int number, bool prompts_only) {
  static const model fake = {.arch.vocab = 1000};
  static float logits[1];
  int32_t v[CTX_MAX];
  int n = 1 + below(below(3) ? w->ctx / 4 : w->ctx - 1), kind = below(3);
  for (int i = 0; i < n; i++) v[i] = kind == 2 ? below(1000) : kind;
  for (int i = n - below(20); i < n; i++)
    if (i >= 0) v[i] = below(2);
  w->salt[number] = (char)(below(4) == 0);
  eng_req r = {.tokens = v,
      .n_tokens = n,
      .max_tokens = prompts_only ? 0 : below(60) - 1,
      .top_logprobs = -1,
      .prompt_logprobs = below(6) ? -1 : 0,
      .salt = w->salt[number] ? "tenant" : NULL,
      .on_event = on_event};
  eng_sampling_default(&r.s, NULL);
  seq *s;
  err e;
  if (!seq_new(&r, &fake, &w->kv, w->ctx, &s, &e)) fail_msg("%s", e.msg);
  s->order = (uint64_t)number;
  if (below(8) == 0) s->chunk = 1 + below(20);
  if (below(8) == 0) s->logits = logits, s->logits_from = below(s->n_prompt);
  w->live[w->n_live++] = s;
  sched_add(&w->sc, s);
}

static void leave(world *w, seq *s) {
  sched_drop(&w->sc, s);
  assert_int_equal(s->kv.n, 0); /* pages go back at once */
  for (int i = 0; i < w->n_live; i++)
    if (w->live[i] == s) w->live[i] = w->live[--w->n_live];
  eng_ticket_free(s->ticket); /* the submitter's */
  seq_free(s);
  w->finished++;
}

static bool in_run(const world *w, const seq *s) {
  for (int i = 0; i < w->sc.n_run; i++)
    if (w->sc.run[i] == s) return true;
  return false;
}

/* Every page is free or referred to, as often as it says; who waits holds none; nobody overtakes. */
static void check_pages(const world *w) {
  int refs[PAGES_MAX] = {0}, held = 0, waiting = 0;
  for (int i = 0; i < w->n_live; i++) {
    const seq *s = w->live[i];
    if (!in_run(w, s)) assert_int_equal(s->kv.n, 0);
    for (int p = 0; p < s->kv.n; p++) refs[s->kv.pages[p]]++;
    for (int p = 0; p < s->kv.n; p++)
      for (int q = 0; q < p; q++) assert_true(s->kv.pages[p] != s->kv.pages[q]);
  }
  for (int i = 0; i < w->kv.n_pages; i++) {
    assert_int_equal(w->kv.pages[i].refs, refs[i]);
    held += refs[i] > 0;
  }
  assert_int_equal(held + w->kv.n_free, w->kv.n_pages);
  for (int i = 1; i < w->sc.n_run; i++) assert_true(w->sc.run[i - 1]->order < w->sc.run[i]->order);
  uint64_t last = w->sc.n_run ? w->sc.run[w->sc.n_run - 1]->order : 0;
  for (const seq *s = w->sc.wait_head; s; s = s->next, waiting++) {
    assert_true(!(w->sc.n_run || waiting) || s->order > last);
    last = s->order;
  }
  assert_int_equal(waiting, w->sc.n_wait);
  assert_int_equal(waiting + w->sc.n_run, w->n_live);
}

static bool decodes(const seq *s) { return s->n_tok > s->n_prompt && s->n_comp == s->n_tok - 1; }

/* One token budget, decode rows first, each sequence once, every running decode served. */
static void check_plan(const world *w, int rows) {
  const sched *sc = &w->sc;
  int sum = 0, prompt = 0, n_decode = 0, waiting_prompts = 0;
  bool prompts_began = false;
  for (int i = 0; i < sc->n_plan; i++) {
    const seq *s = sc->plan[i].s;
    int n = sc->plan[i].n;
    assert_true(n >= 1 && s->n_comp + n <= s->n_tok && s->kv.n * PAGE >= s->n_comp + n);
    assert_true(in_run(w, s));
    for (int j = 0; j < i; j++) assert_ptr_not_equal(sc->plan[j].s, s);
    if (decodes(s)) {
      assert_false(prompts_began);
      n_decode++;
    } else {
      prompts_began = true;
      prompt += n;
      if (s->chunk) assert_true(n <= s->chunk);
    }
    sum += n;
  }
  assert_int_equal(sum, rows);
  assert_true(rows <= sc->chunk && sc->n_plan <= sc->max_seqs && sc->n_run <= sc->max_seqs);
  if (n_decode) assert_true(prompt <= sc->mixed_chunk);
  for (int i = 0; i < sc->n_run; i++) {
    if (decodes(sc->run[i])) n_decode--;
    else waiting_prompts++;
  }
  assert_int_equal(n_decode, 0);
  if (waiting_prompts) assert_true(prompt > 0); /* a prompt gets on beside decodes */
  if (w->n_live) assert_true(rows > 0);
}

/* The fake model: reads all that came before, writes the new rows. */
static void compute(world *w, seq *s, int n) {
  uint64_t h = at_start(w, s);
  for (int p = 0; p < s->n_comp + n; p++) {
    int32_t page = s->kv.pages[p / PAGE];
    uint64_t *cell = &w->memory[page][p % PAGE];
    h = made_of(h, s->tok[p]);
    if (p >= s->n_comp) {
      assert_int_equal(w->kv.pages[page].refs, 1); /* nobody else reads what is being written */
      *cell = h;
    }
    assert_true(*cell == h);
  }
  if (seq_wants_all_rows(s) || s->logits) assert_true(s->st.cached_tokens <= (s->logits ? s->logits_from : 0));
  s->n_comp += n;
  kv_publish(&w->kv, &s->kv, s->tok, s->n_comp);
  if (s->n_comp < s->n_tok) return;
  s->prompt_given = true;
  if (s->n_tok < s->max_tok) s->tok[s->n_tok++] = (int32_t)(h % 3);
  else s->done = true;
}

static void step(world *w) {
  w->sc.mixed_chunk = 1 + below(w->sc.chunk);
  int rows = sched_plan(&w->sc);
  check_plan(w, rows);
  check_pages(w);
  for (int i = 0; i < w->sc.n_plan; i++) compute(w, w->sc.plan[i].s, w->sc.plan[i].n);
  for (int i = 0; i < w->sc.n_plan; i++) {
    seq *s = w->sc.plan[i].s;
    if (s->n_tok >= s->max_tok && s->n_comp >= s->max_tok - (s->max_tok > s->n_prompt)) leave(w, s);
  }
  if (++w->steps > STEPS_MAX) fail_msg("%d sequences still live after %ld steps", w->n_live, w->steps);
}

typedef struct load {
  uint64_t preemptions, hits;
} load;

static void run_load(bool cancels, bool prompts_only, load *sum) {
  int max_seqs = 1 + below(6);
  world *w = world_new(1 + below(PAGES_MAX), max_seqs, max_seqs + below(60));
  int arrived = 0, total = 2 + below(SEQS - 1);
  while (arrived < total || w->n_live) {
    while (arrived < total && (!w->n_live || below(3) == 0)) arrive(w, arrived++, prompts_only);
    if (cancels && w->n_live && below(10) == 0) leave(w, w->live[below(w->n_live)]);
    check_pages(w);
    step(w);
  }
  assert_int_equal(w->finished, total);
  assert_int_equal(w->kv.n_free, w->kv.n_pages);
  sum->preemptions += w->sc.preemptions;
  sum->hits += w->sc.hits;
  assert_true(w->sc.hits <= w->sc.queries);
  world_free(w);
}

static void test_random(void **st) {
  (void)st;
  load sum = {0};
  for (int i = 0; i < 3000; i++) run_load(false, false, &sum);
  assert_true(sum.preemptions > 1000 && sum.hits > 10000); /* both were exercised */
}

static void test_cancels(void **st) {
  (void)st;
  load sum = {0};
  for (int i = 0; i < 2000; i++) run_load(true, false, &sum);
  assert_true(sum.preemptions > 100);
}

/* Who is admitted has the pages for its prompt: prompts alone never push each other out. */
static void test_prompts(void **st) {
  (void)st;
  load sum = {0};
  for (int i = 0; i < 1000; i++) run_load(false, true, &sum);
  assert_int_equal(sum.preemptions, 0);
}

static seq *add_plain(world *w, int n_prompt, int max_tokens) {
  static const model fake = {.arch.vocab = 10};
  int32_t v[CTX_MAX] = {w->n_live}; /* no shared prefix */
  seq *s;
  err e;
  eng_req r = {.tokens = v, .n_tokens = n_prompt, .max_tokens = max_tokens, .top_logprobs = -1, .prompt_logprobs = -1, .on_event = on_event};
  eng_sampling_default(&r.s, NULL);
  assert_true(seq_new(&r, &fake, &w->kv, w->ctx, &s, &e));
  s->order = (uint64_t)w->n_live;
  w->live[w->n_live++] = s;
  sched_add(&w->sc, s);
  return s;
}

/* A long prompt beside decodes takes mixed_chunk rows a step, and each decode goes on in every step. */
static void test_long_prompt(void **st) {
  (void)st;
  world *w = world_new(60, 4, 64);
  seq *a = add_plain(w, 5, 100), *b = add_plain(w, 6, 100);
  for (int i = 0; i < 3; i++) step(w);
  assert_true(decodes(a) && decodes(b));
  seq *longest = add_plain(w, 300, 1);
  int steps = 0;
  for (; longest->n_comp < 300; steps++) {
    int a_before = a->n_tok, b_before = b->n_tok;
    w->sc.mixed_chunk = 20;
    int rows = sched_plan(&w->sc);
    assert_int_equal(rows, 22);
    check_plan(w, rows);
    for (int i = 0; i < w->sc.n_plan; i++) compute(w, w->sc.plan[i].s, w->sc.plan[i].n);
    assert_int_equal(a->n_tok, a_before + 1);
    assert_int_equal(b->n_tok, b_before + 1);
  }
  assert_int_equal(steps, 15);
  leave(w, a), leave(w, b), leave(w, longest);
  world_free(w);
}

static int setup(void **st) {
  (void)st;
  dice = rng_new(99);
  return 0;
}

int main(void) {
  const struct CMUnitTest t[] = {
      cmocka_unit_test(test_random), cmocka_unit_test(test_cancels), cmocka_unit_test(test_prompts), cmocka_unit_test(test_long_prompt)};
  return cmocka_run_group_tests(t, setup, NULL);
}
