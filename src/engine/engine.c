#include "engine/engine.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/ring.h"
#include "engine/forward.h"
#include "engine/sample.h"
#include "engine/schedule.h"
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEF_PAGE = 16, DEF_SEQS = 16, DEF_CHUNK = 256, DEF_QUEUE = 256, DEF_CTX = 8192, MIXED_MS = 60 };

/* A row of the step whose logits are needed: of a prompt (its log-probability, or raw logits for tests), or the last one, from which a token is
 * drawn. */
typedef struct out_row {
  seq *s;
  int pos;
  bool last;
  int32_t token; /* drawn */
  bool damaged;  /* no logit to go by */
  out_lp lp;
} out_row;

struct engine {
  const model *m;
  eng_opts o;
  const kern_ops *ops;
  pool *pool;
  weights w;
  kv_pool kv;
  forward *fwd;
  sched sched;
  int ctx;
  bool far; /* sequences may be longer than the model's RoPE was first made for; settled before the KV budget can cut ctx */
  char fingerprint[17];
  pthread_t thread;
  bool started;
  ring *inbox;
  atomic_int n_waiting; /* submitted, not yet in a batch for the first time */
  atomic_bool closing;
  atomic_ullong order;
  /* the step (engine thread) */
  fwd_seg *segs;
  int *out_idx;
  out_row *outs;
  int n_out;
  int slice0, slice_n;
  const float *slice_logits;
  sampler_work *work; /* [threads] */
  eng_lp *tops;       /* [FWD_HEAD_ROWS][TOP_MAX] */
  double row_ns;      /* smoothed time of a prompt row */
  pthread_mutex_t mu; /* gauges */
  eng_gauges g;
};

enum { TOP_MAX = 128 };

void eng_sampling_default(eng_sampling *s, const model *m) {
  *s = (eng_sampling){.temperature = 1, .top_p = 1, .typical_p = 1, .repetition = 1, .dry_base = 1.75f, .dry_allowed_length = 2, .dry_last_n = -1};
  if (!m) return;
  if (!isnan(m->temperature)) s->temperature = m->temperature;
  if (!isnan(m->top_p)) s->top_p = m->top_p;
  if (!isnan(m->min_p)) s->min_p = m->min_p;
  if (m->top_k >= 0) s->top_k = m->top_k;
  if (!isnan(m->repetition)) s->repetition = m->repetition;
}

/* ---- one step ---- */

static void collect_outs(engine *en) {
  en->n_out = 0;
  int row = 0;
  for (int i = 0; i < en->sched.n_plan; i++) {
    seq *s = en->sched.plan[i].s;
    int n = en->sched.plan[i].n;
    for (int r = 0; r < n; r++, row++) {
      int pos = s->n_comp + r;
      bool last = pos == s->n_tok - 1;
      bool prompt = seq_wants_all_rows(s) && pos + 1 < s->n_prompt, raw = s->logits && pos >= s->logits_from;
      if (!last && !prompt && !raw) continue;
      en->out_idx[en->n_out] = row;
      en->outs[en->n_out++] = (out_row){.s = s, .pos = pos, .last = last};
    }
  }
}

static void draw(engine *en, int tid, out_row *o, const float *logits, eng_lp *top) {
  seq *s = o->s;
  const eng_req *q = &s->req;
  int n_ends;
  const int32_t *ends = tok_ends(en->m->tok, &n_ends);
  bool ban = s->n_tok - s->n_prompt < q->min_tokens && !q->ignore_eos; /* an end that ends nothing is a token like any other */
  sample_in in = {.logits = logits,
      .vocab = en->m->arch.vocab,
      .s = &q->s,
      .history = s->tok,
      .n_history = s->n_tok,
      .n_prompt = s->n_prompt,
      .breaker = s->breaker,
      .ban = ends,
      .n_ban = ban ? n_ends : 0,
      .choice = q->choice,
      .position = s->n_tok};
  o->token = sample_token(en->ops, &en->work[tid], &in);
  o->damaged = !isfinite(logits[o->token]); /* nothing finite to choose, or an infinity above all: the weights say nothing */
  if (q->top_logprobs >= 0) {
    int n = q->top_logprobs;
    o->lp = (out_lp){sample_logprobs(en->ops, &en->work[tid], logits, en->m->arch.vocab, o->token, top, n), top, n};
  }
}

/* Rows of a slice are shared out over the threads: one row's sampling does not wait for another's. */
static void slice_run(void *arg, int tid, int nt) {
  engine *en = arg;
  int vocab = en->m->arch.vocab;
  for (int i = tid; i < en->slice_n; i += nt) {
    out_row *o = &en->outs[en->slice0 + i];
    seq *s = o->s;
    const float *l = en->slice_logits + (size_t)i * (size_t)vocab;
    if (s->logits && o->pos >= s->logits_from) memcpy(s->logits + (size_t)o->pos * (size_t)vocab, l, (size_t)vocab * sizeof *l);
    if (seq_wants_all_rows(s) && o->pos + 1 < s->n_prompt) {
      int n = s->req.prompt_logprobs;
      eng_token *t = &s->prompt_lp[o->pos + 1];
      eng_lp *top = n ? s->prompt_top + (size_t)(o->pos + 1) * (size_t)n : NULL;
      *t = (eng_token){.token = s->tok[o->pos + 1], .top = top, .n_top = n};
      t->logprob = sample_logprobs(en->ops, &en->work[tid], l, vocab, t->token, top, n);
    }
    o->damaged = false;
    if (!o->last) continue;
    if (s->max_tok > s->n_prompt) draw(en, tid, o, l, en->tops + (size_t)i * TOP_MAX);
    else if (seq_wants_all_rows(s)) {
      float max;
      int at;
      en->ops->max_at(l, vocab, &max, &at);
      o->damaged = !isfinite(max);
    }
  }
}

static void finish(engine *en, seq *s, eng_finish f, const err *e) {
  sched_drop(&en->sched, s);
  if (!s->counted) atomic_fetch_sub(&en->n_waiting, 1);
  s->st.t_done = clock_now();
  out_done(s, f, e);
}

static void accept_token(engine *en, out_row *o, int64_t now) {
  seq *s = o->s;
  eng_finish f;
  s->tok[s->n_tok++] = o->token;
  s->st.output_tokens++;
  if (!s->st.t_first) s->st.t_first = now;
  s->st.t_last = now;
  if (s->breaker) {
    char scratch[16];
    str p = tok_piece(en->m->tok, o->token, true, scratch);
    s->breaker[s->n_tok - 1] = memchr(p.p, '\n', p.n) || memchr(p.p, ':', p.n) || memchr(p.p, '"', p.n) || memchr(p.p, '*', p.n);
  }
  if (out_token(s, en->m, o->token, s->req.top_logprobs >= 0 ? &o->lp : NULL, &f)) finish(en, s, f, NULL);
}

static void finish_damaged(engine *en, seq *s) {
  err e;
  err_set(&e, ERR_INTERNAL,
      "model '%s' gives no numbers for the token at position %d (its logits are NaN or infinite): the file is damaged; fetch it again or use another",
      en->m->name, s->n_tok);
  finish(en, s, ENG_ERROR, &e);
}

static void slice_events(engine *en) {
  int64_t now = clock_now();
  for (int i = 0; i < en->slice_n; i++) {
    out_row *o = &en->outs[en->slice0 + i];
    seq *s = o->s;
    if (!o->last) continue;
    if (o->damaged) {
      finish_damaged(en, s);
      continue;
    }
    if (seq_wants_all_rows(s)) out_prompt(s);
    if (s->max_tok > s->n_prompt) accept_token(en, o, now);
    else {
      if (!s->st.t_first) s->st.t_first = s->st.t_last = now;
      finish(en, s, ENG_LENGTH, NULL);
    }
  }
}

/* How many prompt rows fit MIXED_MS on this machine, from steps that were mostly prompt. */
static void fit_mixed_chunk(engine *en, int rows, int64_t ns) {
  if (rows < 16) return;
  double per = (double)ns / rows;
  en->row_ns = en->row_ns > 0 ? en->row_ns * 0.8 + per * 0.2 : per;
  double fit = MIXED_MS * 1e6 / en->row_ns;
  en->sched.mixed_chunk = fit < 16 ? 16 : fit > en->sched.chunk ? en->sched.chunk : (int)fit;
}

/* Index into eng_gauges.step_sizes. */
static int step_size(int rows) {
  int i = 0;
  for (int most = 1; rows > most && i < ENG_STEP_SIZES - 1; i++) most = most == 1 ? 8 : most * 2;
  return i;
}

static void step(engine *en, int rows) {
  sched *sc = &en->sched;
  int64_t t0 = clock_now();
  for (int i = 0; i < sc->n_plan; i++) {
    seq *s = sc->plan[i].s;
    en->segs[i] = (fwd_seg){s->tok + s->n_comp, s->kv.pages, s->n_comp, sc->plan[i].n};
  }
  collect_outs(en);
  forward_step(en->fwd, en->segs, sc->n_plan, en->out_idx, en->n_out);
  uint64_t prompt = 0;
  int n_plan = sc->n_plan;
  for (int i = 0; i < n_plan; i++) {
    seq *s = sc->plan[i].s;
    int before = s->n_comp;
    s->n_comp += sc->plan[i].n;
    if (before < s->n_prompt) prompt += (uint64_t)((s->n_comp < s->n_prompt ? s->n_comp : s->n_prompt) - before);
    kv_publish(&en->kv, &s->kv, s->tok, s->n_comp);
  }
  uint64_t drawn = 0;
  for (int i = 0; i < en->n_out; i++) drawn += en->outs[i].last && en->outs[i].s->max_tok > en->outs[i].s->n_prompt;
  /* Device time is added before events: the last event carries it. */
  int64_t t1 = clock_now();
  for (int i = 0; i < n_plan; i++) sc->plan[i].s->st.t_device += t1 - t0;
  for (en->slice0 = 0; en->slice0 < en->n_out; en->slice0 += FWD_HEAD_ROWS) {
    en->slice_n = en->n_out - en->slice0 < FWD_HEAD_ROWS ? en->n_out - en->slice0 : FWD_HEAD_ROWS;
    en->slice_logits = forward_logits(en->fwd, en->slice0, en->slice_n);
    pool_run(en->pool, slice_run, en);
    int64_t t2 = clock_now();
    for (int i = 0; i < en->slice_n; i++)
      en->outs[en->slice0 + i].s->st.t_device += (t2 - t1) / en->slice_n; /* the head's time: those whose rows it computed */
    t1 = t2;
    slice_events(en);
  }
  fit_mixed_chunk(en, rows, t1 - t0);
  pthread_mutex_lock(&en->mu);
  en->g.steps++;
  en->g.step_tokens += (uint64_t)rows;
  en->g.step_sizes[step_size(rows)]++;
  en->g.prompt_tokens += prompt;
  en->g.output_tokens += drawn;
  pthread_mutex_unlock(&en->mu);
}

/* ---- the engine thread ---- */

static void take_in(engine *en, seq *s) { sched_add(&en->sched, s); }

static void sweep_list(engine *en, bool all) {
  for (seq *s = en->sched.wait_head, *n; s; s = n) {
    n = s->next;
    if (all || atomic_load_explicit(&s->ticket->cancel, memory_order_relaxed)) {
      finish(en, s, ENG_CANCELLED, NULL);
      seq_free(s);
    }
  }
  for (int i = 0; i < en->sched.n_run;) {
    seq *s = en->sched.run[i];
    if (all || atomic_load_explicit(&s->ticket->cancel, memory_order_relaxed)) {
      finish(en, s, ENG_CANCELLED, NULL);
      seq_free(s);
    } else i++;
  }
}

static void publish_gauges(engine *en) {
  pthread_mutex_lock(&en->mu);
  en->g.running = en->sched.n_run;
  en->g.pages_used = en->kv.n_pages - en->kv.n_free;
  en->g.cached_queries = en->sched.queries;
  en->g.cached_hits = en->sched.hits;
  en->g.preemptions = en->sched.preemptions;
  pthread_mutex_unlock(&en->mu);
}

static void count_admitted(engine *en) {
  for (int i = 0; i < en->sched.n_run; i++)
    if (!en->sched.run[i]->counted) {
      en->sched.run[i]->counted = true;
      atomic_fetch_sub(&en->n_waiting, 1);
    }
}

/* An empty step with a queue cannot happen while submit checks sizes; should it, the head is told rather than waited for. */
static void refuse_head(engine *en) {
  seq *s = en->sched.wait_head;
  if (!s || en->sched.n_run) return;
  err e;
  err_set(&e, ERR_INTERNAL, "the request at the head of the queue fits no step");
  finish(en, s, ENG_ERROR, &e);
  seq_free(s);
}

static void *engine_main(void *arg) {
  engine *en = arg;
  for (;;) {
    seq *s;
    bool idle = !en->sched.n_run && !en->sched.wait_head;
    if (idle) publish_gauges(en);
    if (idle && (s = ring_wait(en->inbox, -1))) take_in(en, s);
    while ((s = ring_pop(en->inbox))) take_in(en, s);
    if (atomic_load(&en->closing)) {
      while ((s = ring_pop(en->inbox))) take_in(en, s); /* what came between the look before and the closing */
      sweep_list(en, true);
      break;
    }
    sweep_list(en, false);
    int rows = sched_plan(&en->sched);
    count_admitted(en);
    if (!rows) {
      refuse_head(en);
      continue;
    }
    step(en, rows);
    for (int i = 0; i < en->sched.n_plan; i++)
      if (en->sched.plan[i].s->done) seq_free(en->sched.plan[i].s);
    publish_gauges(en);
  }
  return NULL;
}

/* ---- opening and closing ---- */

static void fingerprints(engine *en, uint8_t root[32]) {
  struct {
    uint8_t weights[32];
    char table[16];
    int32_t arith, kv_type, page, act_f32, far;
  } k = {0};
  memcpy(k.weights, en->m->fingerprint, 32);
  snprintf(k.table, sizeof k.table, "%s", en->ops->name);
  k.arith = en->ops->arith;
  k.kv_type = en->o.kv_f32;
  k.act_f32 = en->o.act_f32;
  k.far = en->far;
  uint8_t h[32];
  sha256_once(&k, sizeof k, h);
  snprintf(en->fingerprint, sizeof en->fingerprint, "%02x%02x%02x%02x%02x%02x%02x%02x", h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]);
  k.page = en->o.page;
  sha256_once(&k, sizeof k, root);
}

static bool open_kv(engine *en, err *e) {
  const arch *a = &en->m->arch;
  kern_kv shape = {
      .type = en->o.kv_f32 ? KERN_KV_F32 : KERN_KV_F16, .n_layer = a->n_layer, .n_kv = a->n_kv, .head_dim = a->head_dim, .page = en->o.page};
  uint64_t page = kern_kv_page_bytes(&shape), budget = en->o.kv_budget;
  if (!budget && page) {
    uint64_t four = 4 * (((uint64_t)en->ctx + (uint64_t)en->o.page - 1) / (uint64_t)en->o.page) * page, quarter = os_memory() / 4;
    budget = four < quarter ? four : quarter;
  }
  uint8_t root[32];
  fingerprints(en, root);
  if (!kv_init(&en->kv, &shape, budget, root, en->o.no_prefix_cache, e)) return false;
  int64_t fits = (int64_t)en->kv.n_pages * en->o.page;
  if (fits < en->ctx) {
    log_warn("context is cut to what the KV budget holds", kv_i("ctx", en->ctx), kv_i("holds", fits), kv_i("kv_budget", (int64_t)budget));
    en->ctx = (int)fits;
  }
  return true;
}

static void defaults(eng_opts *o) {
  if (o->threads <= 0) o->threads = os_cores() < FWD_MAX_THREADS ? os_cores() : FWD_MAX_THREADS;
  if (o->page <= 0) o->page = DEF_PAGE;
  if (o->max_seqs <= 0) o->max_seqs = DEF_SEQS;
  if (o->chunk <= 0) o->chunk = DEF_CHUNK;
  if (o->queue <= 0) o->queue = DEF_QUEUE;
  if (o->chunk < o->max_seqs) o->chunk = o->max_seqs;
}

static bool open_step(engine *en, err *e) {
  const eng_opts *o = &en->o;
  int nt = pool_threads(en->pool);
  en->segs = calloc((size_t)o->max_seqs, sizeof *en->segs);
  en->out_idx = calloc((size_t)o->chunk, sizeof *en->out_idx);
  en->outs = calloc((size_t)o->chunk, sizeof *en->outs);
  en->work = calloc((size_t)nt, sizeof *en->work);
  en->tops = malloc((size_t)FWD_HEAD_ROWS * TOP_MAX * sizeof *en->tops);
  en->inbox = ring_new((size_t)o->queue + (size_t)o->max_seqs + 16);
  bool ok = en->segs && en->out_idx && en->outs && en->work && en->tops && en->inbox && sched_init(&en->sched, &en->kv, o->max_seqs, o->chunk);
  for (int t = 0; ok && t < nt; t++) ok = sampler_work_init(&en->work[t], en->m->arch.vocab, en->ctx);
  return ok ? true : err_set(e, ERR_NOMEM, "out of memory for the engine's step");
}

static bool check_opts(const engine *en, err *e) {
  const eng_opts *o = &en->o;
  uint64_t memory = os_memory();
  if (o->page % 16) return err_param(e, ERR_INPUT, "page", "--page must be a multiple of 16, not %d", o->page);
  if (o->threads > FWD_MAX_THREADS)
    return err_param(e, ERR_INPUT, "threads", "--threads %d is over the %d that are supported", o->threads, FWD_MAX_THREADS);
  if (en->ctx > en->m->arch.ctx) return err_param(e, ERR_INPUT, "ctx", "--ctx %d is over the model's context of %d", en->ctx, en->m->arch.ctx);
  /* Pages are touched as they are first used: a budget that cannot be kept would otherwise end the process hours later. */
  if (o->kv_budget > memory)
    return err_param(e, ERR_INPUT, "kv-budget", "--kv-budget of %llu bytes is over the %llu bytes of memory that this process may use: lower it",
        (unsigned long long)o->kv_budget, (unsigned long long)memory);
  return true;
}

bool engine_open(const model *m, const eng_opts *o, engine **ret, err *e) {
  engine *en = calloc(1, sizeof *en);
  if (!en) return err_set(e, ERR_NOMEM, "out of memory");
  en->m = m;
  en->o = *o;
  defaults(&en->o);
  pthread_mutex_init(&en->mu, NULL);
  en->ctx = o->ctx > 0 ? o->ctx : m->arch.ctx < DEF_CTX ? m->arch.ctx : DEF_CTX;
  if (!check_opts(en, e)) goto fail;
  en->far = (m->arch.has & ARCH_HAS(R_ROPE_LONG)) && en->ctx > m->arch.turn_ctx;
  en->ops = o->ops;
  if (!en->ops && !kern_select(o->isa, &en->ops, e)) goto fail;
  en->pool = pool_new(en->o.threads);
  if (!en->pool) {
    err_set(e, ERR_NOMEM, "cannot start %d kernel threads", en->o.threads);
    goto fail;
  }
  if (!weights_load(m, en->pool, &en->w, e) || !open_kv(en, e)) goto fail;
  if (!forward_new(m, &en->w, en->ops, en->pool, &en->kv, en->o.chunk, en->o.max_seqs, en->ctx, en->o.act_f32, en->far, &en->fwd, e) ||
      !open_step(en, e))
    goto fail;
  en->g = (eng_gauges){.pages_total = en->kv.n_pages,
      .weight_bytes = en->w.bytes,
      .kv_bytes = (uint64_t)en->kv.n_pages * en->kv.page_bytes,
      .scratch_bytes = forward_bytes(en->fwd)};
  if (pthread_create(&en->thread, NULL, engine_main, en)) {
    err_set(e, ERR_NOMEM, "cannot start the engine thread");
    goto fail;
  }
  en->started = true;
  *ret = en;
  return true;
fail:
  engine_close(en);
  return false;
}

void engine_close(engine *en) {
  if (!en) return;
  if (en->started) {
    ring_close(en->inbox); /* first: once the engine sees `closing`, nothing can come in any more */
    atomic_store(&en->closing, true);
    pthread_join(en->thread, NULL);
  }
  if (en->work)
    for (int t = 0; t < pool_threads(en->pool); t++) sampler_work_fini(&en->work[t]);
  sched_fini(&en->sched);
  ring_free(en->inbox);
  free(en->segs);
  free(en->out_idx);
  free(en->outs);
  free(en->work);
  free(en->tops);
  forward_free(en->fwd);
  kv_fini(&en->kv);
  weights_free(&en->w);
  if (en->pool) pool_free(en->pool);
  pthread_mutex_destroy(&en->mu);
  free(en);
}

/* ---- submission ---- */

static bool check_req(const engine *en, const eng_req *r, err *e) {
  int vocab = en->m->arch.vocab;
  if (r->n_tokens < 1) return err_param(e, ERR_INPUT, "prompt", "the prompt is empty: at least one token is needed");
  for (int i = 0; i < r->n_tokens; i++)
    if (r->tokens[i] < 0 || r->tokens[i] >= vocab)
      return err_param(e, ERR_INPUT, "prompt", "token %d of the prompt is %d, outside the vocabulary of %d", i, r->tokens[i], vocab);
  int most = r->max_tokens == 0 ? en->ctx : en->ctx - 1;
  if (r->n_tokens > most)
    return err_param(e, ERR_CONTEXT, "prompt",
        "the prompt has %d tokens, but the context holds %d and the answer needs room: shorten it or raise --ctx", r->n_tokens, en->ctx);
  int tops = vocab < TOP_MAX ? vocab : TOP_MAX;
  if (r->top_logprobs > tops || r->prompt_logprobs > tops) return err_param(e, ERR_INPUT, "logprobs", "at most %d alternatives can be listed", tops);
  for (int i = 0; i < r->n_stop; i++)
    if (!r->stop[i].n) return err_param(e, ERR_INPUT, "stop", "stop string %d is empty: it must have at least one character", i);
  return true;
}

static bool submit(engine *en, seq *s, eng_ticket **ret, err *e) {
  s->st.t_accepted = clock_now();
  s->order = atomic_fetch_add(&en->order, 1);
  if (atomic_fetch_add(&en->n_waiting, 1) >= en->o.queue) {
    atomic_fetch_sub(&en->n_waiting, 1);
    return err_set(e, ERR_BUSY, "the queue of %d waiting requests is full: try again later", en->o.queue);
  }
  *ret = s->ticket;
  if (ring_push(en->inbox, s)) return true;
  atomic_fetch_sub(&en->n_waiting, 1);
  *ret = NULL;
  return atomic_load(&en->closing) ? err_set(e, ERR_BUSY, "the engine is closing") : err_set(e, ERR_BUSY, "the queue is full: try again later");
}

bool engine_submit(engine *en, const eng_req *r, eng_ticket **ret, err *e) {
  seq *s;
  eng_ticket *t;
  if (!check_req(en, r, e) || !seq_new(r, en->m, &en->kv, en->ctx, &s, e)) return false;
  if (!submit(en, s, &t, e)) {
    eng_ticket_free(s->ticket);
    seq_free(s);
    return false;
  }
  *ret = t;
  return true;
}

typedef struct logits_wait {
  sem_t sem;
  eng_finish f;
  int cached;
} logits_wait;

static void logits_event(void *ctx, const eng_event *ev) {
  logits_wait *w = ctx;
  if (ev->kind != ENG_DONE) return;
  w->f = ev->finish;
  w->cached = ev->stats->cached_tokens;
  sem_post(&w->sem);
}

bool engine_logits_from(engine *en, const int32_t *tokens, int n, int chunk, int from, float *logits, int *ret_cached, err *e) {
  logits_wait w;
  seq *s;
  eng_ticket *t;
  eng_req r = {.tokens = tokens, .n_tokens = n, .max_tokens = 0, .top_logprobs = -1, .prompt_logprobs = -1, .on_event = logits_event, .ctx = &w};
  eng_sampling_default(&r.s, NULL);
  if (!check_req(en, &r, e) || !seq_new(&r, en->m, &en->kv, en->ctx, &s, e)) return false;
  s->logits = logits;
  s->logits_from = from;
  s->chunk = chunk;
  sem_init(&w.sem, 0, 0);
  bool ok = submit(en, s, &t, e);
  if (ok) {
    while (sem_wait(&w.sem)) {}
    eng_ticket_free(t);
    ok = w.f == ENG_LENGTH ? true : err_set(e, ERR_CANCELLED, "the engine closed while logits were computed");
    if (ret_cached) *ret_cached = w.cached;
  } else {
    eng_ticket_free(s->ticket);
    seq_free(s);
  }
  sem_destroy(&w.sem);
  return ok;
}

bool engine_logits(engine *en, const int32_t *tokens, int n, int chunk, float *logits, err *e) {
  return engine_logits_from(en, tokens, n, chunk, 0, logits, NULL, e);
}

void engine_gauges(engine *en, eng_gauges *g) {
  pthread_mutex_lock(&en->mu);
  *g = en->g;
  pthread_mutex_unlock(&en->mu);
  g->waiting = atomic_load(&en->n_waiting);
}

int engine_ctx(const engine *en) { return en->ctx; }
const kern_ops *engine_ops(const engine *en) { return en->ops; }
void engine_fingerprint(const engine *en, char out[17]) { memcpy(out, en->fingerprint, sizeof en->fingerprint); }
