/* What drawing one token costs, on the logits of a real model and on flat ones, for each kind of setting; beside a decode step of the same model in
 * the same run, of which sampling should be a small part. bench_sample MODEL.gguf [-t THREADS] [-r REPETITIONS] [--ids N,N,...]: logits are those
 * after the given ids (a text that the model knows how to go on gives peaked ones). */
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/sample.h"
#include "engine/weights.h"
#include <math.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 4096, STEPS = 48 };

typedef struct setting {
  const char *name;
  float temperature, top_p, min_p, typical;
  int top_k, top_logprobs;
  float repetition;
} setting;

static const setting settings[] = {
    {"greedy", 0, 1, 0, 1, 0, -1, 1},
    {"temperature 1", 1, 1, 0, 1, 0, -1, 1},
    {"temperature 0.7", 0.7f, 1, 0, 1, 0, -1, 1},
    {"temperature 1.5", 1.5f, 1, 0, 1, 0, -1, 1},
    {"top_p 0.95", 1, 0.95f, 0, 1, 0, -1, 1},
    {"top_p 0.9, temperature 0.7", 0.7f, 0.9f, 0, 1, 0, -1, 1},
    {"top_k 64", 1, 1, 0, 1, 64, -1, 1},
    {"top_k 64, top_p 0.95", 1, 0.95f, 0, 1, 64, -1, 1},
    {"min_p 0.05", 1, 1, 0.05f, 1, 0, -1, 1},
    {"typical 0.9", 1, 1, 0, 0.9f, 0, -1, 1},
    {"repetition 1.1, top_p 0.95", 1, 0.95f, 0, 1, 0, -1, 1.1f},
    {"greedy, logprobs 0", 0, 1, 0, 1, 0, 0, 1},
    {"greedy, logprobs 20", 0, 1, 0, 1, 0, 20, 1},
};

static int cmp(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Best of the repetitions, in microseconds: other work on the machine only adds. */
static double time_one(const kern_ops *ops, sampler_work *w, const float *logits, int vocab, const int32_t *ids, int n, const setting *t, int reps) {
  eng_sampling s;
  double v[1000];
  static eng_lp top[20];
  eng_sampling_default(&s, NULL);
  s.temperature = t->temperature, s.top_p = t->top_p, s.min_p = t->min_p, s.typical_p = t->typical, s.top_k = t->top_k, s.repetition = t->repetition;
  volatile int32_t sink = 0;
  for (int i = 0; i < reps; i++) {
    sample_in in = {.logits = logits, .vocab = vocab, .s = &s, .history = ids, .n_history = n, .n_prompt = n, .position = n + i};
    int64_t t0 = clock_now();
    int32_t token = sample_token(ops, w, &in);
    if (t->top_logprobs >= 0) sample_logprobs(ops, w, logits, vocab, token, top, t->top_logprobs);
    v[i] = clock_ms(clock_now() - t0) * 1e3;
    sink = sink + token;
  }
  qsort(v, (size_t)reps, sizeof *v, cmp);
  return v[reps / 4];
}

typedef struct waiter {
  sem_t sem;
  eng_stats st;
} waiter;

static void on_event(void *ctx, const eng_event *ev) {
  waiter *w = ctx;
  if (ev->kind != ENG_DONE) return;
  w->st = *ev->stats;
  sem_post(&w->sem);
}

/* A greedy decode step, in microseconds; it contains a greedy draw. */
static double step_time(engine *en, const int32_t *ids, int n) {
  double best = INFINITY;
  for (int r = 0; r < 4; r++) {
    waiter w;
    err e;
    eng_ticket *t;
    eng_req q = {.tokens = ids,
        .n_tokens = n,
        .max_tokens = STEPS + 1,
        .top_logprobs = -1,
        .prompt_logprobs = -1,
        .ignore_eos = true,
        .on_event = on_event,
        .ctx = &w};
    eng_sampling_default(&q.s, NULL);
    q.s.temperature = 0;
    sem_init(&w.sem, 0, 0);
    if (!engine_submit(en, &q, &t, &e)) {
      fprintf(stderr, "%s\n", e.msg);
      exit(1);
    }
    while (sem_wait(&w.sem)) {}
    eng_ticket_free(t);
    sem_destroy(&w.sem);
    best = fmin(best, clock_ms(w.st.t_last - w.st.t_first) * 1e3 / STEPS);
  }
  return best;
}

static int read_ids(const char *s, int32_t *ids) {
  int n = 0;
  for (char *end; *s && n < IDS_MAX; s = *end ? end + 1 : end) ids[n++] = (int32_t)strtol(s, &end, 10);
  return n;
}

int main(int argc, char **argv) {
  static int32_t ids[IDS_MAX] = {2, 818, 5279, 529, 7001, 563};
  int threads = 0, reps = 60, n = 6;
  const char *path = NULL;
  for (int i = 1; i < argc; i++) {
    const char *v = i + 1 < argc ? argv[i + 1] : "0";
    if (strcmp(argv[i], "-t") == 0) threads = atoi(v), i++;
    else if (strcmp(argv[i], "-r") == 0) reps = atoi(v), i++;
    else if (strcmp(argv[i], "--ids") == 0) n = read_ids(v, ids), i++;
    else path = argv[i];
  }
  if (!path || reps < 4 || reps > 1000 || n < 1) {
    fprintf(stderr, "usage: bench_sample MODEL.gguf [-t THREADS] [-r REPETITIONS] [--ids N,N,...]\n");
    return 2;
  }
  model *m;
  engine *en;
  err e;
  eng_opts o = {.threads = threads};
  if (!model_open(path, weights_type_ok, &m, &e) || !engine_open(m, &o, &en, &e)) {
    fprintf(stderr, "%s\n", e.msg);
    return 1;
  }
  int vocab = m->arch.vocab;
  float *all = malloc((size_t)n * (size_t)vocab * sizeof *all), *real = all + (size_t)(n - 1) * (size_t)vocab,
        *flat = malloc((size_t)vocab * sizeof *flat);
  sampler_work w;
  for (int i = 0; i < n; i++) ids[i] %= vocab;
  if (!all || !flat || !sampler_work_init(&w, vocab, IDS_MAX) || !engine_logits(en, ids, n, 0, all, &e)) return 1;
  for (int i = 0; i < vocab; i++) flat[i] = (float)((uint32_t)i * 2654435761u >> 8) / (1 << 24);
  double step = step_time(en, ids, n);
  printf("%s, %d tokens, %s: a greedy decode step takes %.0f us\n", m->name, vocab, engine_ops(en)->units, step);
  printf("%-30s %10s %8s %10s\n", "", "real, us", "of step", "flat, us");
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    double a = time_one(engine_ops(en), &w, real, vocab, ids, n, &settings[i], reps);
    double b = time_one(engine_ops(en), &w, flat, vocab, ids, n, &settings[i], reps < 12 ? reps : 12);
    printf("%-30s %10.0f %7.1f%% %10.0f\n", settings[i].name, a, 100 * a / step, b);
  }
  engine_close(en);
  model_close(m);
  return 0;
}
