/* What the engine's tests share: a tiny model opened once, an engine with given options, and one blocking request. */
#ifndef ENG_FIXTURE_H
#define ENG_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "engine/engine.h"
#include "engine/weights.h"
#include "base/buf.h"
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Built with a sanitizer: many times slower, and it counts and intercepts memory itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FIX_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define FIX_SANITIZED 1
#endif
#endif
#ifndef FIX_SANITIZED
#define FIX_SANITIZED 0
#endif

#define TINY(name) TEST_SRC "/tests/golden/tiny/" name ".gguf"

static inline model *fix_model(const char *path) {
  model *m = NULL;
  err e = {0};
  if (!model_open(path, weights_type_ok, &m, &e)) fail_msg("%s", e.msg);
  return m;
}

static inline engine *fix_engine(const model *m, eng_opts o) {
  engine *en = NULL;
  err e = {0};
  if (!engine_open(m, &o, &en, &e)) fail_msg("%s", e.msg);
  return en;
}

/* Tokens that a tiny model can take: any ids; chosen by a fixed rule. */
static inline void fix_tokens(const model *m, int32_t *v, int n, int salt) {
  for (int i = 0; i < n; i++) v[i] = (int32_t)(((uint32_t)(i * 7919 + salt * 104729 + 13) * 2654435761u >> 8) % (uint32_t)m->arch.vocab);
}

typedef struct fix_reply {
  sem_t sem;
  buf text;
  int32_t tok[4096];
  float lp[4096];
  int n_tok;
  eng_token *prompt;
  int n_prompt; /* copies, tops dropped */
  eng_finish finish;
  eng_stats st;
  err error; /* of ENG_ERROR */
  int n_done;
} fix_reply;

static inline void fix_event(void *ctx, const eng_event *ev) {
  fix_reply *r = ctx;
  if (ev->kind == ENG_TEXT) {
    buf_str(&r->text, ev->text);
    for (int i = 0; i < ev->n_tokens && r->n_tok < 4096; i++) {
      r->tok[r->n_tok] = ev->tokens[i].token;
      r->lp[r->n_tok++] = ev->tokens[i].logprob;
    }
  } else if (ev->kind == ENG_PROMPT) {
    r->n_prompt = ev->n_tokens;
    r->prompt = malloc((size_t)ev->n_tokens * sizeof *r->prompt);
    memcpy(r->prompt, ev->tokens, (size_t)ev->n_tokens * sizeof *r->prompt);
  } else {
    r->finish = ev->finish;
    r->st = *ev->stats;
    if (ev->error) r->error = *ev->error;
    r->n_done++;
    sem_post(&r->sem);
  }
}

static inline fix_reply *fix_reply_new(void) {
  fix_reply *r = calloc(1, sizeof *r);
  sem_init(&r->sem, 0, 0);
  buf_init(&r->text, 1 << 20);
  return r;
}
static inline void fix_reply_free(fix_reply *r) {
  sem_destroy(&r->sem);
  buf_fini(&r->text);
  free(r->prompt);
  free(r);
}

static inline eng_req fix_req(const int32_t *ids, int n, int max_tokens, uint64_t seed) {
  eng_req q = {
      .tokens = ids, .n_tokens = n, .max_tokens = max_tokens, .top_logprobs = 0, .prompt_logprobs = -1, .ignore_eos = true, .keep_special = true};
  eng_sampling_default(&q.s, NULL);
  q.s.seed = seed;
  return q;
}

static inline eng_ticket *fix_submit(engine *en, eng_req q, fix_reply *r) {
  err e = {0};
  eng_ticket *t = NULL;
  q.on_event = fix_event;
  q.ctx = r;
  if (!engine_submit(en, &q, &t, &e)) fail_msg("%s", e.msg);
  return t;
}

static inline fix_reply *fix_run(engine *en, eng_req q) {
  fix_reply *r = fix_reply_new();
  eng_ticket *t = fix_submit(en, q, r);
  while (sem_wait(&r->sem)) {}
  eng_ticket_free(t);
  return r;
}
#endif
