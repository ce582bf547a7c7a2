/* The engine as a backend, on a tiny model: order of events, many lanes, and calls cancelled at every stage of their life. */
#include "base/clock.h"
#include "base/json.h"
#include "api/dialect.h"
#include "engine/weights.h"
#include "serve/local.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define TINY TEST_SRC "/tests/golden/tiny/tiny-llama-q.gguf"

typedef struct rig {
  loop *loop;
  work *work;
  metrics *metrics;
  model *model;
  engine *engine;
  local *local;
} rig;

/* A sink that checks the order of event.h and writes down what it saw. */
typedef struct watch {
  api_sink sink;
  rig *rig;
  api_call *call;
  int begun, finished, ended, texts, n_choices;
  int cancel_at; /* cancel from within this event, counted from 1; 0: never */
  int events;
  int *left; /* calls under way; the last to end stops the loop */
  api_usage usage;
  api_times times;
  err error;
} watch;

static void on_event(api_sink *s, const api_event *ev) {
  watch *w = (watch *)s;
  assert_int_equal(w->ended, 0); /* nothing follows the end, or a cancel */
  w->events++;
  switch (ev->kind) {
  case API_BEGIN: assert_int_equal(w->begun++, 0); break;
  case API_TEXT:
    assert_int_equal(w->begun, 1);
    w->texts++;
    break;
  case API_FINISH:
    assert_int_equal(w->begun, 1);
    w->finished++;
    break;
  case API_USAGE: assert_int_equal(w->finished, w->n_choices); break;
  default: w->error = *ev->error;
  }
  w->usage = ev->usage;
  w->times = ev->times;
  bool last = ev->kind == API_USAGE || ev->kind == API_ERROR;
  if (!last && w->events == w->cancel_at) {
    api_backend *b = local_backend(w->rig->local);
    b->cancel(b, w->call);
    last = true;
  }
  if (!last) return;
  w->ended = 1;
  if (--*w->left == 0) loop_stop(w->rig->loop);
}

static void rig_open(rig *g, int queue) {
  err e = {0};
  eng_opts o = {.threads = 2, .queue = queue, .max_seqs = 4};
  *g = (rig){.loop = loop_new(), .metrics = metrics_new()};
  if (!model_open(TINY, weights_type_ok, &g->model, &e) || !engine_open(g->model, &o, &g->engine, &e)) fail_msg("%s", e.msg);
  g->work = work_new(g->loop, 2, 1024);
  g->local = local_new(g->engine, g->model, g->loop, g->work, g->metrics, queue);
}

static void rig_close(rig *g) {
  work_free(g->work);
  engine_close(g->engine);
  loop_free(g->loop);
  local_free(g->local);
  model_close(g->model);
  metrics_free(g->metrics);
}

static void start(rig *g, watch *w, const char *body, int *left) {
  err e = {0};
  api_request *r;
  api_backend *b = local_backend(g->local);
  if (!api_request_parse(&api_openai_completions, str_c(body), &r, &e)) fail_msg("%s", e.msg);
  *w = (watch){.sink = {on_event}, .rig = g, .left = left, .n_choices = api_n_choices(r)};
  r->accepted = clock_now();
  if (!b->start(b, r, &w->sink, &w->call, &e)) fail_msg("%s", e.msg);
  api_request_unref(r); /* the call keeps its own reference */
}

static void test_order(void **s) {
  (void)s;
  rig g;
  watch w;
  int left = 1;
  rig_open(&g, 0);
  start(&g, &w, "{\"prompt\":\"Hello\",\"max_tokens\":5,\"ignore_eos\":true,\"n\":2}", &left);
  assert_int_equal(w.events, 0); /* never from within start */
  loop_run(g.loop);
  assert_int_equal(w.finished, 2);
  assert_int_equal(w.usage.output, 10);
  assert_true(w.times.accepted && w.times.accepted <= w.times.scheduled && w.times.scheduled <= w.times.first && w.times.first <= w.times.last);
  assert_int_equal(metrics_count(g.metrics, HIST_E2E), 2);
  assert_int_equal(metrics_count(g.metrics, HIST_ITL), 8);
  rig_close(&g);
}

/* More lanes than the queue holds, from two requests at once: all are answered, none is lost, neither keeps the other out. */
static void test_many_lanes(void **s) {
  (void)s;
  rig g;
  watch w[2];
  int left = 2;
  char body[4096];
  size_t n = (size_t)snprintf(body, sizeof body, "{\"max_tokens\":2,\"ignore_eos\":true,\"prompt\":[");
  for (int i = 0; i < 80; i++) n += (size_t)snprintf(body + n, sizeof body - n, "%s\"p%d\"", i ? "," : "", i);
  snprintf(body + n, sizeof body - n, "]}");
  rig_open(&g, 8);
  for (int i = 0; i < 2; i++) start(&g, &w[i], body, &left);
  loop_run(g.loop);
  for (int i = 0; i < 2; i++) {
    if (w[i].error.code) fail_msg("%s", w[i].error.msg);
    assert_int_equal(w[i].finished, 80);
    assert_int_equal(w[i].usage.output, 160);
  }
  rig_close(&g);
}

static void test_refusals(void **s) {
  (void)s;
  static const struct {
    const char *body;
    err_code code;
    const char *param;
  } bad[] = {{"{\"prompt\":\"\"}", ERR_INPUT, "prompt"}, {"{\"prompt\":[1,99999999]}", ERR_INPUT, "prompt[1]"},
      {"{\"prompt\":\"a\",\"stop_token_ids\":[99999999]}", ERR_INPUT, "stop_token_ids[0]"},
      {"{\"prompt\":\"a\",\"logit_bias\":{\"99999999\":1}}", ERR_INPUT, "logit_bias"}};
  rig g;
  rig_open(&g, 0);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    watch w;
    int left = 1;
    start(&g, &w, bad[i].body, &left);
    loop_run(g.loop);
    assert_int_equal(w.error.code, bad[i].code);
    assert_string_equal(w.error.param, bad[i].param);
    assert_int_equal(w.begun, 0);
  }
  rig_close(&g);
}

/* ---- cancelling ---- */

static void cancel_now(void *arg) {
  watch *w = arg;
  if (w->ended) return;
  api_backend *b = local_backend(w->rig->local);
  b->cancel(b, w->call);
  w->ended = 1;
  if (--*w->left == 0) loop_stop(w->rig->loop);
}

/* From outside, at times spread over preparing, waiting, prefill and decoding; from inside, in each of the first events. Some are let run. */
static void test_cancelling_at_every_stage(void **s) {
  (void)s;
  enum { N = 120 };
  rig g;
  watch *w = calloc(N, sizeof *w);
  int left = N, whole = 0;
  rig_open(&g, 512);
  for (int i = 0; i < N; i++) {
    start(&g, &w[i],
        i % 3 ? "{\"prompt\":\"Once upon a time there was\",\"max_tokens\":40,\"ignore_eos\":true}"
              : "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":3,\"max_tokens\":6,\"ignore_eos\":true,\"echo\":true,\"logprobs\":2}",
        &left);
    if (i % 4 == 0) w[i].cancel_at = 1 + i / 4 % 6;
    else if (i % 4 == 1) cancel_now(&w[i]);
    else if (i % 4 == 2) assert_non_null(loop_after(g.loop, (int64_t)i * 200000, cancel_now, &w[i]));
  }
  loop_run(g.loop);
  for (int i = 0; i < N; i++) {
    assert_int_equal(w[i].ended, 1);
    if (i % 4 == 3) assert_int_equal(w[i].finished, w[i].n_choices);
    whole += i % 4 == 3;
  }
  assert_int_equal(whole, N / 4);
  rig_close(&g);
  free(w);
}

/* Closing the engine under running calls ends each with one error, or with silence when the loop has already stopped; nothing leaks. */
static void test_closing_under_load(void **s) {
  (void)s;
  rig g;
  watch w[20];
  int left = 1; /* the first to end stops the loop */
  rig_open(&g, 64);
  for (int i = 0; i < 20; i++) start(&g, &w[i], "{\"prompt\":\"x\",\"max_tokens\":400,\"ignore_eos\":true}", &left);
  w[0].cancel_at = 3;
  loop_run(g.loop);
  left = 1000;
  rig_close(&g);
}

int main(void) {
  json_setup();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_many_lanes), cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_cancelling_at_every_stage), cmocka_unit_test(test_closing_under_load)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
