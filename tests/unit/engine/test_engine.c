/* The engine as its callers see it: what is refused, how a request ends, what is told about it, and that pages always come back. Three tools make it
 * exact: a kernel table that says which token is drawn next, one that holds the engine still inside each step, and the raw logits of engine_logits.
 */
#include "eng_fixture.h"
#include "base/rng.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static model *m;            /* F32 */
static const kern_ops *ops; /* the best there is */

/* ---- a table that draws what a script says: greedy picks with max_at, once a token ---- */

static int32_t script[512];
static atomic_int script_at;

static void max_at_script(const float *x, int n, float *ret_max, int *ret_at) {
  (void)n;
  *ret_at = script[atomic_fetch_add(&script_at, 1)];
  *ret_max = x[*ret_at];
}

static int32_t one_byte(char c) {
  char s[2] = {c, 0};
  int32_t t = tok_find(m->tok, str_c(s));
  assert_true(t >= 0);
  return t;
}

/* Runs q with `text` as what the model says, a byte a token, then `last` (an id, or -1). */
static fix_reply *run_script(const char *text, int32_t last, eng_req q) {
  kern_ops t = *ops;
  t.max_at = max_at_script;
  int n = 0;
  for (const char *p = text; *p; p++) script[n++] = *p == ' ' ? tok_find(m->tok, STR(" ")) : one_byte(*p);
  if (last >= 0) script[n++] = last;
  while (n < 512) script[n++] = one_byte('~');
  atomic_store(&script_at, 0);
  engine *en = fix_engine(m, (eng_opts){.ops = &t, .threads = 1});
  q.s.temperature = 0;
  fix_reply *r = fix_run(en, q);
  engine_close(en);
  return r;
}

static const int32_t three[] = {5, 6, 7};

static eng_req scripted(int max_tokens) {
  eng_req q = fix_req(three, 3, max_tokens, 1);
  q.top_logprobs = -1;
  return q;
}

static void expect_text(fix_reply *r, const char *text, eng_finish f, int output_tokens) {
  assert_string_equal(r->text.p ? r->text.p : "", text);
  assert_int_equal(r->finish, f);
  assert_int_equal(r->st.output_tokens, output_tokens);
  assert_int_equal(r->n_done, 1);
  fix_reply_free(r);
}

static void test_stop_strings(void **st) {
  (void)st;
  eng_req q = scripted(40);
  q.stop = (str[]){STR("END"), STR("zz")}, q.n_stop = 2;
  expect_text(run_script("one END two", -1, q), "one ", ENG_STOP, 7);
  q.include_stop = true;
  expect_text(run_script("one END two", -1, q), "one END", ENG_STOP, 7);
  q.include_stop = false;
  q.stop = (str[]){STR("bcd"), STR("abc")};
  expect_text(run_script("xabcd", -1, q), "x", ENG_STOP, 4);
  q.max_tokens = 4, q.stop = (str[]){STR("abxxx")}, q.n_stop = 1;
  expect_text(run_script("xxab", -1, q), "xxab", ENG_LENGTH, 4); /* held back, then given: it was none */
  q.max_tokens = 9, q.min_tokens = 4, q.stop = (str[]){STR("ab")};
  expect_text(run_script("abcdab", -1, q), "abcd", ENG_STOP, 6);
}

static void test_stop_ids(void **st) {
  (void)st;
  eng_req q = scripted(20);
  int32_t ids[] = {one_byte('Q'), one_byte('R')};
  q.stop_ids = ids, q.n_stop_ids = 2;
  fix_reply *r = run_script("abRcd", -1, q);
  assert_int_equal(r->n_tok, 3); /* the stop itself is reported, without text */
  assert_int_equal(r->tok[2], ids[1]);
  expect_text(r, "ab", ENG_STOP, 3);
  q.min_tokens = 4;
  expect_text(run_script("aRbcQd", -1, q), "aRbc", ENG_STOP, 5);
}

static void test_end_tokens(void **st) {
  (void)st;
  int32_t end = tok_eos(m->tok);
  eng_req q = scripted(6);
  q.ignore_eos = false;
  expect_text(run_script("ab", end, q), "ab", ENG_STOP, 3);
  q.ignore_eos = true;
  expect_text(run_script("ab", end, q), "ab<|im_end|>~~~", ENG_LENGTH, 6);
  q.keep_special = false;
  expect_text(run_script("ab", end, q), "ab~~~", ENG_LENGTH, 6);
}

/* Before min_tokens no end can come, however likely the model holds it. */
static void test_min_tokens(void **st) {
  (void)st;
  int n;
  const int32_t *ends = tok_ends(m->tok, &n);
  eng_bias b[16];
  for (int i = 0; i < n; i++) b[i] = (eng_bias){ends[i], 1000};
  engine *en = fix_engine(m, (eng_opts){.threads = 1});
  eng_req q = fix_req(three, 3, 9, 1);
  q.ignore_eos = false, q.s.bias = b, q.s.n_bias = n;
  for (int least = 0; least < 6; least++) {
    q.min_tokens = least;
    fix_reply *r = fix_run(en, q);
    assert_int_equal(r->finish, ENG_STOP);
    assert_int_equal(r->st.output_tokens, least + 1);
    assert_int_equal(r->n_tok, least + 1);
    for (int i = 0; i <= least; i++) assert_int_equal(tok_is_end(m->tok, r->tok[i]), i == least);
    fix_reply_free(r);
  }
  q.ignore_eos = true; /* then an end is a token like any other: min_tokens does not touch it */
  fix_reply *r = fix_run(en, q);
  assert_int_equal(r->st.output_tokens, 9);
  for (int i = 0; i < 9; i++) assert_true(tok_is_end(m->tok, r->tok[i]));
  fix_reply_free(r);
  engine_close(en);
}

static void test_max_tokens(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 2, .ctx = 100});
  int32_t ids[100];
  fix_tokens(m, ids, 100, 3);
  static const struct {
    int n, max, out;
  } t[] = {{30, 0, 0}, {30, 1, 1}, {30, 2, 2}, {30, -1, 70}, {30, 70, 70}, {30, 71, 70}, {30, 1 << 30, 70}, {99, -1, 1}, {100, 0, 0}, {1, -1, 99}};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    fix_reply *r = fix_run(en, fix_req(ids, t[i].n, t[i].max, i));
    assert_int_equal(r->finish, ENG_LENGTH);
    assert_int_equal(r->st.output_tokens, t[i].out);
    assert_int_equal(r->n_tok, t[i].out);
    assert_int_equal(r->st.prompt_tokens, t[i].n);
    fix_reply_free(r);
  }
  engine_close(en);
}

/* ---- refusals ---- */

static void refused(engine *en, eng_req q, err_code code, const char *param, const char *const *says) {
  err e = {0};
  eng_ticket *t = NULL;
  q.on_event = fix_event;
  assert_false(engine_submit(en, &q, &t, &e));
  assert_null(t);
  assert_int_equal(e.code, code);
  assert_string_equal(e.param, param);
  for (; *says; says++)
    if (!strstr(e.msg, *says)) fail_msg("'%s' does not say '%s'", e.msg, *says);
}

static void test_refused(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 1, .ctx = 64});
  int32_t ids[80];
  fix_tokens(m, ids, 80, 3);
  refused(en, fix_req(ids, 64, 1, 0), ERR_CONTEXT, "prompt", (const char *[]){"64 tokens", "holds 64", NULL});
  refused(en, fix_req(ids, 65, 0, 0), ERR_CONTEXT, "prompt", (const char *[]){"65 tokens", "holds 64", NULL});
  refused(en, fix_req(ids, 80, -1, 0), ERR_CONTEXT, "prompt", (const char *[]){"80 tokens", "holds 64", NULL});
  refused(en, fix_req(ids, 0, 1, 0), ERR_INPUT, "prompt", (const char *[]){"empty", NULL});
  const int32_t bad[] = {-1, m->arch.vocab, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 4; i++) {
    char number[16];
    snprintf(number, sizeof number, "is %d", bad[i]);
    ids[7] = bad[i];
    refused(en, fix_req(ids, 20, 1, 0), ERR_INPUT, "prompt", (const char *[]){"token 7", number, "vocabulary", NULL});
  }
  ids[7] = 0;
  eng_req q = fix_req(ids, 5, 1, 0);
  q.top_logprobs = 129;
  refused(en, q, ERR_INPUT, "logprobs", (const char *[]){"128", NULL});
  q.top_logprobs = 0, q.stop = (str[]){STR("a"), STR("")}, q.n_stop = 2;
  refused(en, q, ERR_INPUT, "stop", (const char *[]){"stop string 1", NULL});
  fix_reply_free(fix_run(en, fix_req(ids, 63, 1, 0))); /* it still works */
  engine_close(en);
}

static void test_open_refused(void **st) {
  (void)st;
  engine *en = NULL;
  err e = {0};
  assert_false(engine_open(m, &(eng_opts){.page = 24}, &en, &e));
  assert_string_equal(e.param, "page");
  assert_false(engine_open(m, &(eng_opts){.ctx = 1 << 20}, &en, &e));
  assert_string_equal(e.param, "ctx");
  assert_false(engine_open(m, &(eng_opts){.kv_budget = 10}, &en, &e));
  assert_string_equal(e.param, "kv-budget");
  assert_false(engine_open(m, &(eng_opts){.kv_budget = UINT64_C(1) << 50}, &en, &e));
  assert_string_equal(e.param, "kv-budget");
  assert_false(engine_open(m, &(eng_opts){.threads = 257}, &en, &e));
  assert_string_equal(e.param, "threads");
  assert_false(engine_open(m, &(eng_opts){.isa = "sse9"}, &en, &e));
  assert_int_equal(e.code, ERR_USAGE);
  assert_null(en);
}

/* ---- what is told ---- */

static double lse(const float *l) {
  double max = -INFINITY, sum = 0;
  for (int i = 0; i < m->arch.vocab; i++) max = fmax(max, (double)l[i]);
  for (int i = 0; i < m->arch.vocab; i++) sum += exp((double)l[i] - max);
  return max + log(sum);
}

/* The n_top best by value, lowest id first, and the token's own, from raw logits. */
static void same_logprobs(const eng_token *t, const float *l, int n_top) {
  double z = lse(l);
  assert_true(fabs((double)t->logprob - ((double)l[t->token] - z)) < 2e-6 * (1 + fabs((double)t->logprob)));
  assert_int_equal(t->n_top, n_top);
  bool taken[1024] = {false};
  for (int k = 0; k < n_top; k++) {
    int best = -1;
    for (int i = 0; i < m->arch.vocab; i++)
      if (!taken[i] && (best < 0 || l[i] > l[best])) best = i;
    taken[best] = true;
    assert_int_equal(t->top[k].token, best);
    assert_true(fabs((double)t->top[k].logprob - ((double)l[best] - z)) < 2e-6 * (1 + fabs((double)t->top[k].logprob)));
  }
}

enum { PROMPT = 40, OUT = 25 };
typedef struct kept {
  sem_t sem;
  eng_token out[OUT], prompt[PROMPT];
  eng_lp tops[PROMPT + OUT][8];
  int n_out, n_prompt, prompt_events;
  bool text_before_prompt;
} kept;

static void keep(eng_token *to, eng_lp *tops, const eng_token *t) {
  *to = *t;
  for (int k = 0; k < t->n_top; k++) tops[k] = t->top[k];
  to->top = tops;
}

static void keep_event(void *ctx, const eng_event *ev) {
  kept *k = ctx;
  if (ev->kind == ENG_PROMPT) {
    k->prompt_events++;
    k->text_before_prompt |= k->n_out > 0;
    for (int i = 0; i < ev->n_tokens; i++) keep(&k->prompt[i], k->tops[i], &ev->tokens[i]);
    k->n_prompt = ev->n_tokens;
  } else if (ev->kind == ENG_TEXT) {
    for (int i = 0; i < ev->n_tokens; i++, k->n_out++) keep(&k->out[k->n_out], k->tops[PROMPT + k->n_out], &ev->tokens[i]);
  } else sem_post(&k->sem);
}

/* Log-probabilities are those of the raw distribution whatever the sampling options are; of output and of prompt, with 0, 1 and more alternatives,
 * with a stop string that holds text back, and with the prefix already in the cache. */
static void test_logprobs(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 2, .chunk = 16});
  int32_t ids[PROMPT + OUT];
  fix_tokens(m, ids, PROMPT, 11);
  static float l[(PROMPT + OUT) * 512];
  int vocab = m->arch.vocab;
  for (int n_top = 0; n_top <= 8; n_top += 1 + n_top) {
    static kept k;
    memset(&k, 0, sizeof k);
    sem_init(&k.sem, 0, 0);
    eng_req q = fix_req(ids, PROMPT, OUT, 7);
    q.top_logprobs = n_top, q.prompt_logprobs = n_top, q.on_event = keep_event, q.ctx = &k;
    q.s.temperature = 1.7f, q.s.top_p = 0.9f, q.s.repetition = 1.3f;
    q.stop = (str[]){STR("never in this text, but long enough")}, q.n_stop = 1;
    err e;
    eng_ticket *t;
    assert_true(engine_submit(en, &q, &t, &e));
    while (sem_wait(&k.sem)) {}
    eng_ticket_free(t);
    assert_int_equal(k.n_out, OUT);
    assert_int_equal(k.n_prompt, PROMPT);
    assert_int_equal(k.prompt_events, 1);
    assert_false(k.text_before_prompt);
    for (int i = 0; i < OUT; i++) ids[PROMPT + i] = k.out[i].token;
    if (!engine_logits(en, ids, PROMPT + OUT, 0, l, &e)) fail_msg("%s", e.msg);
    assert_true(isnan(k.prompt[0].logprob));
    assert_int_equal(k.prompt[0].token, ids[0]);
    for (int i = 1; i < PROMPT; i++) {
      assert_int_equal(k.prompt[i].token, ids[i]);
      same_logprobs(&k.prompt[i], l + (i - 1) * vocab, n_top);
    }
    for (int i = 0; i < OUT; i++) same_logprobs(&k.out[i], l + (PROMPT + i - 1) * vocab, n_top);
    sem_destroy(&k.sem);
  }
  engine_close(en);
}

static void test_no_logprobs(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 1});
  eng_req q = fix_req(three, 3, 5, 1);
  q.top_logprobs = -1;
  fix_reply *r = fix_run(en, q);
  for (int i = 0; i < 5; i++) assert_true(isnan(r->lp[i]));
  assert_int_equal(r->n_prompt, 0);
  fix_reply_free(r);
  engine_close(en);
}

/* Scoring a prompt: max_tokens 0 with its log-probabilities. */
static void test_score_only(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 2, .chunk = 8});
  int32_t ids[30];
  fix_tokens(m, ids, 30, 5);
  for (int n = 1; n <= 30; n += 29) {
    eng_req q = fix_req(ids, n, 0, 1);
    q.prompt_logprobs = 0;
    fix_reply *r = fix_run(en, q);
    assert_int_equal(r->n_prompt, n);
    assert_int_equal(r->n_tok, 0);
    assert_int_equal(r->finish, ENG_LENGTH);
    assert_true(isnan(r->prompt[0].logprob));
    for (int i = 1; i < n; i++) assert_true(r->prompt[i].logprob < 0);
    fix_reply_free(r);
  }
  engine_close(en);
}

static void test_cached_tokens(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 1});
  int32_t ids[100];
  fix_tokens(m, ids, 100, 21);
  static const struct {
    int n;
    const char *salt;
    bool scored;
    int cached;
  } t[] = {{100, NULL, false, 0}, {100, NULL, false, 96}, {97, NULL, false, 96}, {96, NULL, false, 80}, {17, NULL, false, 16}, {16, NULL, false, 0},
      {100, "b", false, 0}, {100, "b", false, 96}, {100, NULL, true, 0}, {100, NULL, false, 96}};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    eng_req q = fix_req(ids, t[i].n, 3, 1);
    q.salt = t[i].salt;
    if (t[i].scored) q.prompt_logprobs = 0;
    fix_reply *r = fix_run(en, q);
    if (r->st.cached_tokens != t[i].cached) fail_msg("request %zu: %d cached tokens, %d expected", i, r->st.cached_tokens, t[i].cached);
    fix_reply_free(r);
  }
  engine_close(en);
}

static void test_stats(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 2, .chunk = 16});
  int32_t ids[50];
  fix_tokens(m, ids, 50, 1);
  fix_reply *r = fix_run(en, fix_req(ids, 50, 8, 1));
  const eng_stats *s = &r->st;
  assert_true(
      s->t_accepted > 0 && s->t_accepted <= s->t_scheduled && s->t_scheduled < s->t_first && s->t_first < s->t_last && s->t_last <= s->t_done);
  assert_true(s->t_device > 0 && s->t_device <= s->t_done - s->t_scheduled);
  eng_gauges g;
  for (int i = 0; i < 5000; i++) { /* the last step is told after the last event */
    engine_gauges(en, &g);
    if (g.output_tokens == 8 && !g.running) break;
    usleep(1000);
  }
  assert_int_equal(g.prompt_tokens, 50);
  assert_int_equal(g.output_tokens, 8);
  assert_int_equal(g.steps, 4 + 7); /* 50 rows by 16, then one token a step */
  assert_int_equal(g.step_tokens, 50 + 7);
  uint64_t sum = 0;
  for (int i = 0; i < ENG_STEP_SIZES; i++) sum += g.step_sizes[i];
  assert_int_equal(sum, g.steps);
  assert_int_equal(g.step_sizes[2], 3); /* 9 to 16 rows */
  fix_reply_free(r);
  engine_close(en);
}

/* n choices of one seed: each its own text, each the same alone and beside the others. */
static void test_choices(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 2});
  fix_reply *alone[4], *r[4];
  eng_ticket *t[4];
  for (int i = 0; i < 4; i++) {
    eng_req q = fix_req(three, 3, 30, 5);
    q.choice = i;
    alone[i] = fix_run(en, q);
  }
  for (int i = 0; i < 4; i++) {
    eng_req q = fix_req(three, 3, 30, 5);
    q.choice = i;
    r[i] = fix_reply_new();
    t[i] = fix_submit(en, q, r[i]);
  }
  for (int i = 0; i < 4; i++) {
    while (sem_wait(&r[i]->sem)) {}
    eng_ticket_free(t[i]);
    assert_memory_equal(r[i]->tok, alone[i]->tok, 30 * sizeof(int32_t));
    for (int j = 0; j < i; j++) assert_memory_not_equal(alone[i]->tok, alone[j]->tok, 30 * sizeof(int32_t));
  }
  for (int i = 0; i < 4; i++) fix_reply_free(r[i]), fix_reply_free(alone[i]);
  engine_close(en);
}

/* ---- a table that holds the engine still inside every step until it is let go ---- */

static atomic_bool gate_shut;
static sem_t held, go;
static const kern_mat *first_mat; /* the first product of a step; one call a step, for there is one thread */

static void gemm_gate(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy) {
  if (!first_mat) first_mat = w;
  if (w == first_mat && atomic_load(&gate_shut)) {
    sem_post(&held);
    while (sem_wait(&go)) {}
  }
  ops->gemm(w, a, n, p0, p1, y, ldy);
}

/* An engine that stops in its first step. */
static engine *gated(eng_opts o) {
  static kern_ops t;
  t = *ops;
  t.gemm = gemm_gate;
  sem_init(&held, 0, 0);
  sem_init(&go, 0, 0);
  first_mat = NULL;
  atomic_store(&gate_shut, true);
  o.ops = &t, o.threads = 1;
  return fix_engine(m, o);
}
static void wait_held(void) {
  while (sem_wait(&held)) {}
}
static void one_step(void) { /* on into the next step */
  sem_post(&go);
  wait_held();
}
static void let_go(void) {
  atomic_store(&gate_shut, false);
  sem_post(&go);
}

static void join(eng_ticket *t, fix_reply *r) {
  while (sem_wait(&r->sem)) {}
  eng_ticket_free(t);
  assert_int_equal(r->n_done, 1);
}

static void all_pages_back(engine *en) {
  eng_gauges g;
  for (int i = 0; i < 10000; i++) {
    engine_gauges(en, &g);
    if (!g.pages_used && !g.running && !g.waiting) return;
    usleep(1000);
  }
  fail_msg("%d pages are still used, %d requests run, %d wait", g.pages_used, g.running, g.waiting);
}

static uint64_t steps_of(engine *en) {
  eng_gauges g;
  engine_gauges(en, &g);
  return g.steps;
}

static void test_cancel_prefill(void **st) {
  (void)st;
  engine *en = gated((eng_opts){.chunk = 16});
  int32_t ids[900];
  fix_tokens(m, ids, 900, 1);
  fix_reply *r = fix_reply_new();
  eng_ticket *t = fix_submit(en, fix_req(ids, 900, 10, 1), r);
  wait_held();
  one_step();
  one_step();
  assert_int_equal(steps_of(en), 2);
  engine_cancel(t);
  engine_cancel(t); /* any number of times */
  let_go();
  join(t, r);
  assert_int_equal(r->finish, ENG_CANCELLED);
  assert_int_equal(r->st.output_tokens, 0);
  all_pages_back(en);
  assert_int_equal(steps_of(en), 3); /* the step it was in, and no more */
  fix_reply_free(r);
  engine_close(en);
}

/* ---- a damaged model: a table whose products with the head leave what damaged weights would ---- */

static float head_value;           /* written over logits */
static int head_first, head_calls; /* from this one on, after so many calls */
static atomic_int head_seen;

static void gemm_damaged(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy) {
  ops->gemm(w, a, n, p0, p1, y, ldy);
  if (w->rows != m->arch.vocab || atomic_fetch_add(&head_seen, 1) < head_calls) return;
  for (int i = 0; i < n; i++)
    for (int r = head_first; r < w->rows; r++) y[(size_t)i * (size_t)ldy + (size_t)r] = head_value;
}

static fix_reply *run_damaged(float value, int first, int calls, eng_req q) {
  kern_ops t = *ops;
  t.gemm = gemm_damaged;
  head_value = value, head_first = first, head_calls = calls;
  atomic_store(&head_seen, 0);
  engine *en = fix_engine(m, (eng_opts){.ops = &t, .threads = 1});
  fix_reply *r = fix_run(en, q);
  all_pages_back(en);
  engine_close(en);
  return r;
}

static void expect_damaged(fix_reply *r, int n_tok) {
  assert_int_equal(r->finish, ENG_ERROR);
  assert_int_equal(r->n_done, 1);
  assert_int_equal(r->n_tok, n_tok);
  assert_int_equal(r->error.code, ERR_INTERNAL);
  assert_non_null(strstr(r->error.msg, m->name));
  assert_non_null(strstr(r->error.msg, "damaged"));
  fix_reply_free(r);
}

static void test_damaged_model(void **st) {
  (void)st;
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  eng_req greedy = fix_req(three, 3, 9, 1), echo = fix_req(three, 3, 0, 1);
  greedy.s.temperature = 0;
  echo.prompt_logprobs = 0;
  for (int i = 0; i < 3; i++) {
    expect_damaged(run_damaged(bad[i], 0, 0, fix_req(three, 3, 9, 1)), 0);
    expect_damaged(run_damaged(bad[i], 0, 0, greedy), 0);
    expect_damaged(run_damaged(bad[i], 0, 4, greedy), 4); /* what was good is given before */
    expect_damaged(run_damaged(bad[i], 0, 0, echo), 0);
  }
  /* One NaN row of the head is a token that never comes; the others still mean something. */
  fix_reply *r = run_damaged(NAN, m->arch.vocab - 1, 0, greedy);
  assert_int_equal(r->finish, ENG_LENGTH);
  assert_int_equal(r->n_tok, 9);
  fix_reply_free(r);
}

static void test_cancel_decode(void **st) {
  (void)st;
  engine *en = gated((eng_opts){0});
  fix_reply *r = fix_reply_new(), *other = fix_reply_new();
  eng_ticket *t = fix_submit(en, fix_req(three, 3, 500, 1), r), *t2 = fix_submit(en, fix_req(three + 1, 2, 60, 2), other);
  wait_held();
  for (int i = 0; i < 9; i++) one_step();
  assert_int_equal(r->n_tok, 9);
  engine_cancel(t);
  let_go();
  join(t, r);
  assert_int_equal(r->finish, ENG_CANCELLED);
  assert_int_equal(r->st.output_tokens, 10); /* the step it was in, and no more */
  join(t2, other);                           /* its neighbour does not notice */
  assert_int_equal(other->finish, ENG_LENGTH);
  assert_int_equal(other->n_tok, 60);
  all_pages_back(en);
  fix_reply *alone = fix_run(en, fix_req(three + 1, 2, 60, 2));
  assert_memory_equal(other->tok, alone->tok, 60 * sizeof(int32_t));
  fix_reply_free(r), fix_reply_free(other), fix_reply_free(alone);
  engine_close(en);
}

static void test_cancel_queued(void **st) {
  (void)st;
  engine *en = gated((eng_opts){.max_seqs = 1});
  fix_reply *r[3];
  eng_ticket *t[3];
  for (int i = 0; i < 3; i++) r[i] = fix_reply_new();
  t[0] = fix_submit(en, fix_req(three, 3, 40, 1), r[0]);
  wait_held();
  for (int i = 1; i < 3; i++) t[i] = fix_submit(en, fix_req(three, 3, 5, 2), r[i]);
  one_step();
  engine_cancel(t[1]);
  one_step();
  join(t[1], r[1]); /* told while the first still runs */
  assert_int_equal(r[1]->finish, ENG_CANCELLED);
  assert_int_equal(r[1]->st.t_scheduled, 0);
  assert_int_equal(r[1]->st.output_tokens, 0);
  assert_int_equal(r[0]->n_done, 0);
  let_go();
  join(t[0], r[0]);
  join(t[2], r[2]);
  assert_int_equal(r[0]->finish, ENG_LENGTH);
  assert_int_equal(r[0]->n_tok, 40);
  assert_int_equal(r[2]->n_tok, 5);
  all_pages_back(en);
  for (int i = 0; i < 3; i++) fix_reply_free(r[i]);
  engine_close(en);
}

static eng_ticket *_Atomic own_ticket;
static void cancel_itself(void *ctx, const eng_event *ev) {
  if (ev->kind == ENG_TEXT && ev->stats->output_tokens == 3) {
    while (!atomic_load(&own_ticket)) usleep(100);
    engine_cancel(atomic_load(&own_ticket));
  }
  fix_event(ctx, ev);
}

static void test_cancel_from_event(void **st) {
  (void)st;
  engine *en = fix_engine(m, (eng_opts){.threads = 2});
  fix_reply *r = fix_reply_new();
  eng_req q = fix_req(three, 3, 500, 1);
  q.on_event = cancel_itself, q.ctx = r;
  eng_ticket *t;
  err e;
  assert_true(engine_submit(en, &q, &t, &e));
  atomic_store(&own_ticket, t);
  join(t, r);
  assert_int_equal(r->finish, ENG_CANCELLED);
  assert_int_equal(r->st.output_tokens, 3); /* not one more */
  all_pages_back(en);
  fix_reply_free(r);
  engine_close(en);
}

static void test_queue_full(void **st) {
  (void)st;
  engine *en = gated((eng_opts){.max_seqs = 1, .queue = 2});
  fix_reply *r[3];
  eng_ticket *t[3], *none = NULL;
  for (int i = 0; i < 3; i++) r[i] = fix_reply_new();
  t[0] = fix_submit(en, fix_req(three, 3, 4, 1), r[0]);
  wait_held();
  t[1] = fix_submit(en, fix_req(three, 3, 4, 1), r[1]);
  t[2] = fix_submit(en, fix_req(three, 3, 4, 1), r[2]);
  eng_req q = fix_req(three, 3, 4, 1);
  err e = {0};
  q.on_event = fix_event;
  assert_false(engine_submit(en, &q, &none, &e));
  assert_int_equal(e.code, ERR_BUSY);
  assert_non_null(strstr(e.msg, "2 waiting requests"));
  eng_gauges g;
  engine_gauges(en, &g);
  assert_int_equal(g.waiting, 2);
  let_go();
  for (int i = 0; i < 3; i++) {
    join(t[i], r[i]);
    assert_int_equal(r[i]->n_tok, 4);
    fix_reply_free(r[i]);
  }
  all_pages_back(en);
  fix_reply_free(fix_run(en, q)); /* and there is room again */
  engine_close(en);
}

/* Closing tells everyone who runs, waits, or was never looked at. */
static void test_close(void **st) {
  (void)st;
  for (int round = 0; round < 20; round++) {
    engine *en = fix_engine(m, (eng_opts){.threads = 2, .max_seqs = 3});
    enum { N = 12 };
    fix_reply *r[N];
    eng_ticket *t[N];
    for (int i = 0; i < N; i++) {
      r[i] = fix_reply_new();
      t[i] = fix_submit(en, fix_req(three, 3, 500, (uint64_t)i), r[i]);
    }
    usleep((unsigned)round * 300);
    engine_close(en);
    for (int i = 0; i < N; i++) {
      join(t[i], r[i]);
      assert_int_equal(r[i]->finish, ENG_CANCELLED);
      fix_reply_free(r[i]);
    }
  }
}

/* ---- many at once ---- */

typedef struct client {
  engine *en;
  int number;
} client;
enum { CLIENTS = 4, EACH = 25 };

static void *client_main(void *arg) {
  client *c = arg;
  rng dice = rng_new((uint64_t)c->number);
  for (int i = 0; i < EACH; i++) {
    int32_t ids[200];
    fix_tokens(m, ids, 200, (int)rng_below(&dice, 4));
    eng_req q = fix_req(ids, 1 + (int)rng_below(&dice, 200), (int)rng_below(&dice, 30) - 1, rng_u64(&dice));
    if (q.max_tokens < 0) q.max_tokens = 200;
    if (rng_below(&dice, 4) == 0) q.prompt_logprobs = 2;
    fix_reply *r = fix_reply_new();
    eng_ticket *t = fix_submit(c->en, q, r);
    bool cancel = rng_below(&dice, 2);
    if (cancel) {
      usleep((unsigned)rng_below(&dice, 3000));
      engine_cancel(t);
    }
    join(t, r);
    if (r->finish != ENG_CANCELLED) assert_int_equal(r->n_tok, q.max_tokens);
    else assert_true(cancel);
    fix_reply_free(r);
  }
  return NULL;
}

static void test_many(void **st) {
  (void)st;
  kern_kv shape = {.type = KERN_KV_F16, .n_layer = m->arch.n_layer, .n_kv = m->arch.n_kv, .head_dim = m->arch.head_dim, .page = 16};
  engine *en = fix_engine(m, (eng_opts){.threads = 2, .max_seqs = 3, .chunk = 32, .ctx = 400, .kv_budget = 34 * kern_kv_page_bytes(&shape)});
  pthread_t th[CLIENTS];
  client c[CLIENTS];
  for (int i = 0; i < CLIENTS; i++) {
    c[i] = (client){en, i};
    assert_int_equal(pthread_create(&th[i], NULL, client_main, &c[i]), 0);
  }
  for (int i = 0; i < CLIENTS; i++) pthread_join(th[i], NULL);
  all_pages_back(en);
  engine_close(en);
}

/* Prompt log-probabilities through preemption: told once, and the same. */
static void test_preempted_prompt_logprobs(void **st) {
  (void)st;
  enum { SEQS = 5, LEN = 70, NEW = 90 };
  kern_kv shape = {.type = KERN_KV_F16, .n_layer = m->arch.n_layer, .n_kv = m->arch.n_kv, .head_dim = m->arch.head_dim, .page = 16};
  int32_t ids[SEQS][LEN];
  fix_reply *alone[SEQS];
  for (int tight = 0; tight < 2; tight++) {
    engine *en = fix_engine(m, (eng_opts){.threads = 2, .chunk = 24, .ctx = 256, .kv_budget = tight ? 24 * kern_kv_page_bytes(&shape) : 0});
    fix_reply *r[SEQS];
    eng_ticket *t[SEQS];
    for (int i = 0; i < SEQS; i++) {
      fix_tokens(m, ids[i], LEN, 70 + i);
      eng_req q = fix_req(ids[i], LEN - i, NEW, (uint64_t)i);
      q.prompt_logprobs = 0;
      r[i] = fix_reply_new();
      t[i] = fix_submit(en, q, r[i]);
    }
    for (int i = 0; i < SEQS; i++) join(t[i], r[i]);
    eng_gauges g;
    engine_gauges(en, &g);
    if (tight) assert_true(g.preemptions > 0);
    for (int i = 0; i < SEQS; i++) {
      if (!tight) {
        alone[i] = r[i];
        continue;
      }
      assert_int_equal(r[i]->n_prompt, LEN - i);
      assert_int_equal(r[i]->n_tok, NEW);
      for (int p = 1; p < LEN - i; p++) assert_true(r[i]->prompt[p].logprob == alone[i]->prompt[p].logprob);
      assert_memory_equal(r[i]->tok, alone[i]->tok, NEW * sizeof(int32_t));
      assert_memory_equal(r[i]->lp, alone[i]->lp, NEW * sizeof(float));
      fix_reply_free(r[i]), fix_reply_free(alone[i]);
    }
    all_pages_back(en);
    engine_close(en);
  }
}

/* ---- long contexts: the paths for few and for many rows, and splits dealt out over threads ---- */

enum { LONG = 800, LONG_FROM = 512 };

static void test_long_rows(void **st) {
  (void)st;
  int32_t ids[LONG];
  fix_tokens(m, ids, LONG, 2);
  size_t vocab = (size_t)m->arch.vocab;
  float *want = calloc(LONG * vocab, sizeof *want), *got = calloc(LONG * vocab, sizeof *got);
  err e;
  engine *en = fix_engine(m, (eng_opts){.threads = 1});
  if (!engine_logits(en, ids, LONG, 0, want, &e)) fail_msg("%s", e.msg);
  engine_close(en);
  for (int threads = 1; threads <= 3; threads++) {
    en = fix_engine(m, (eng_opts){.threads = threads});
    for (int rows = 1; rows <= 5; rows++) {
      int cached, from = LONG_FROM - 16 + 64 * (rows - 1);
      memset(got, 0, LONG * vocab * sizeof *got);
      if (!engine_logits_from(en, ids, LONG, rows, rows == 1 ? 0 : from, got, &cached, &e)) fail_msg("%s", e.msg);
      size_t at = rows == 1 ? 0 : (size_t)from;
      assert_int_equal(cached, at);
      assert_memory_equal(got + at * vocab, want + at * vocab, (LONG - at) * vocab * sizeof *got);
    }
    engine_close(en);
  }
  free(want), free(got);
}

/* One to five sequences decode together, short and long ones in one batch. */
static void test_long_company(void **st) {
  (void)st;
  enum { SEQS = 5, NEW = 24 };
  static const int len[SEQS] = {700, 20, 505, 600, 255};
  int32_t ids[LONG];
  fix_tokens(m, ids, LONG, 4);
  fix_reply *alone[SEQS];
  engine *en = fix_engine(m, (eng_opts){.threads = 1, .no_prefix_cache = true});
  for (int i = 0; i < SEQS; i++) alone[i] = fix_run(en, fix_req(ids + i, len[i], NEW, (uint64_t)i));
  engine_close(en);
  for (int threads = 2; threads <= 3; threads++)
    for (int n = 2; n <= SEQS; n++) {
      en = fix_engine(m, (eng_opts){.threads = threads});
      fix_reply *r[SEQS];
      eng_ticket *t[SEQS];
      for (int i = 0; i < n; i++) {
        r[i] = fix_reply_new();
        t[i] = fix_submit(en, fix_req(ids + i, len[i], NEW, (uint64_t)i), r[i]);
      }
      for (int i = 0; i < n; i++) {
        join(t[i], r[i]);
        assert_memory_equal(r[i]->tok, alone[i]->tok, NEW * sizeof(int32_t));
        assert_memory_equal(r[i]->lp, alone[i]->lp, NEW * sizeof(float));
        fix_reply_free(r[i]);
      }
      engine_close(en);
    }
  for (int i = 0; i < SEQS; i++) fix_reply_free(alone[i]);
}

static int setup(void **st) {
  (void)st;
  err e;
  m = fix_model(TINY("tiny-llama-f32"));
  return kern_select(NULL, &ops, &e) ? 0 : -1;
}
static int teardown(void **st) {
  (void)st;
  model_close(m);
  return 0;
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_stop_strings), cmocka_unit_test(test_stop_ids), cmocka_unit_test(test_end_tokens),
      cmocka_unit_test(test_min_tokens), cmocka_unit_test(test_max_tokens), cmocka_unit_test(test_refused), cmocka_unit_test(test_open_refused),
      cmocka_unit_test(test_logprobs), cmocka_unit_test(test_no_logprobs), cmocka_unit_test(test_score_only), cmocka_unit_test(test_cached_tokens),
      cmocka_unit_test(test_stats), cmocka_unit_test(test_choices), cmocka_unit_test(test_cancel_prefill), cmocka_unit_test(test_damaged_model),
      cmocka_unit_test(test_cancel_decode), cmocka_unit_test(test_cancel_queued), cmocka_unit_test(test_cancel_from_event),
      cmocka_unit_test(test_queue_full), cmocka_unit_test(test_close), cmocka_unit_test(test_many), cmocka_unit_test(test_preempted_prompt_logprobs),
      cmocka_unit_test(test_long_rows), cmocka_unit_test(test_long_company)};
  return cmocka_run_group_tests(t, setup, teardown);
}
