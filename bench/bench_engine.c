/* Prefill and decode of one sequence through the engine, as llama-bench counts them: tokens of a prompt (pp) and tokens generated after an empty one
 * (tg), per second, each repetition on its own with no prefix cached. Prints every repetition's figure, so that a noisy machine shows. bench_engine
 * MODEL.gguf [-t THREADS] [-p PROMPT] [-n GENERATE] [-r REPETITIONS] [--isa NAME] */
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/weights.h"
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct wait {
  sem_t sem;
  eng_stats st;
} wait;

static void on_event(void *ctx, const eng_event *ev) {
  wait *w = ctx;
  if (ev->kind != ENG_DONE) return;
  w->st = *ev->stats;
  sem_post(&w->sem);
}

static bool one(engine *en, const model *m, int n_prompt, int n_gen, eng_stats *st) {
  int32_t *ids = malloc((size_t)n_prompt * sizeof *ids);
  wait w;
  err e;
  eng_ticket *t;
  if (!ids) return false;
  for (int i = 0; i < n_prompt; i++) ids[i] = (int32_t)((uint32_t)(i * 2654435761u + 12345u) >> 8) % m->arch.vocab;
  eng_req r = {.tokens = ids,
      .n_tokens = n_prompt,
      .max_tokens = n_gen,
      .top_logprobs = -1,
      .prompt_logprobs = -1,
      .ignore_eos = true,
      .on_event = on_event,
      .ctx = &w};
  eng_sampling_default(&r.s, NULL);
  r.s.temperature = 0;
  sem_init(&w.sem, 0, 0);
  bool ok = engine_submit(en, &r, &t, &e);
  if (ok) {
    while (sem_wait(&w.sem)) {}
    eng_ticket_free(t);
    *st = w.st;
  } else fprintf(stderr, "%s\n", e.msg);
  free(ids);
  sem_destroy(&w.sem);
  return ok;
}

static int cmp(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void report(const char *what, int n, double *v, int reps) {
  printf("%s%d", what, n);
  for (int i = 0; i < reps; i++) printf(" %.2f", v[i]);
  qsort(v, (size_t)reps, sizeof *v, cmp);
  printf("  median %.2f tok/s\n", v[reps / 2]);
}

int main(int argc, char **argv) {
  int threads = 0, pp = 512, tg = 128, reps = 3;
  const char *path = NULL, *isa = NULL;
  for (int i = 1; i < argc; i++) {
    const char *v = i + 1 < argc ? argv[i + 1] : "0";
    if (strcmp(argv[i], "-t") == 0) threads = atoi(v), i++;
    else if (strcmp(argv[i], "-p") == 0) pp = atoi(v), i++;
    else if (strcmp(argv[i], "-n") == 0) tg = atoi(v), i++;
    else if (strcmp(argv[i], "-r") == 0) reps = atoi(v), i++;
    else if (strcmp(argv[i], "--isa") == 0) isa = v, i++;
    else path = argv[i];
  }
  if (!path || reps < 1 || reps > 100) {
    fprintf(stderr, "usage: bench_engine MODEL.gguf [-t THREADS] [-p PROMPT] [-n GENERATE] [-r REPETITIONS] [--isa NAME]\n");
    return 2;
  }
  model *m;
  engine *en;
  err e;
  int64_t t0 = clock_now();
  if (!model_open(path, weights_type_ok, &m, &e)) {
    fprintf(stderr, "%s\n", e.msg);
    return 1;
  }
  int64_t t1 = clock_now();
  eng_opts o = {.threads = threads, .isa = isa, .no_prefix_cache = true};
  if (!engine_open(m, &o, &en, &e)) {
    fprintf(stderr, "%s\n", e.msg);
    return 1;
  }
  printf("%s, %s, open %.0f ms, pack %.0f ms\n", m->name, engine_ops(en)->units, clock_ms(t1 - t0), clock_ms(clock_now() - t1));
  double v[100];
  eng_stats st;
  if (pp > 0) {
    one(en, m, pp, 1, &st); /* warm-up */
    for (int i = 0; i < reps; i++) {
      if (!one(en, m, pp, 1, &st)) return 1;
      v[i] = pp / ((double)(st.t_first - st.t_scheduled) / 1e9);
    }
    report("pp", pp, v, reps);
  }
  if (tg > 0) {
    one(en, m, 1, 16, &st);
    for (int i = 0; i < reps; i++) {
      if (!one(en, m, 1, tg + 1, &st)) return 1;
      v[i] = tg / ((double)(st.t_last - st.t_first) / 1e9);
    }
    report("tg", tg, v, reps);
  }
  engine_close(en);
  model_close(m);
  return 0;
}
