#include "serve/local.h"
#include "base/clock.h"
#include "base/hash.h"
#include "model/reason.h"
#include "serve/prompt.h"
#include "serve/split.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  RETRY_NS = 20000000, /* how soon a lane that found the queue full is tried again */
  LOCAL_QUEUE = 256,   /* the engine's own default */
  MAX_SHOW = 10
};

/* One event of the engine, copied on its thread. A lane's last event lies in the lane itself, so that it cannot be lost for want of memory. */
typedef struct note {
  struct note *next;
  struct lane *lane;
  eng_event_kind kind;
  int64_t at;
  size_t text; /* bytes, behind the tokens */
  int n_tokens;
  eng_finish finish;
  eng_stats stats;
  err error;
  eng_token *tokens; /* [n_tokens] and their alternatives */
  char *bytes;
} note;

typedef struct lane {
  struct api_call *call;
  eng_ticket *ticket;
  int index;    /* choice number in the request */
  int prompt;   /* which prompt */
  bool echoed;  /* the prompt's text has been shown */
  int64_t last; /* moment of the last token event */
  int output;   /* tokens reported so far */
  split *split; /* a chat's, where there is something to part; or NULL */
  bool marked;  /* the mark's token was drawn for the call that comes next */
  bool full;    /* all that is wanted of it has come: what the engine still sends is not told */
  /* tokens of the engine's event under way: the first event that comes of it carries them */
  const api_token *carry;
  int n_carry;
  note end;
} lane;

typedef struct prompt {
  tok_ids ids;
  char *text;
  size_t n_text;
  bool thinks; /* it ends inside a thought */
} prompt;      /* text: only for echo */

struct api_call {
  api_call *prev, *next;
  struct local *local;
  api_request *req;
  api_sink *sink;
  prompt *prompts;
  lane *lanes;
  int n_lanes, next_lane; /* next_lane: not submitted yet */
  int live, ended;        /* with the engine; ended in all */
  bool preparing, cancelled, over, begun;
  bool busy; /* one of our functions is on the stack and looks after freeing it */
  err error; /* of preparation */
  loop_timer *retry;
  api_usage usage;
  api_times times;
  /* crossing from the engine thread */
  pthread_mutex_t mu;
  note *head, **tail;
  bool posted, lost; /* lost: an event could not be copied */
};

struct local {
  api_backend api;
  engine *engine;
  const model *model;
  loop *loop;
  work *work;
  metrics *metrics;
  int window;
  api_call *calls;
  /* what is looked for in the text of chats, and the control tokens among it: those of thoughts first */
  bool think;
  tool_form form;
  int32_t show[MAX_SHOW];
  int n_show, n_show_think;
  int mark; /* the token that begins a call; -1: the vocabulary has none */
};

/* ---- life of a call ---- */

static void call_free(api_call *c) {
  if (c->prev) c->prev->next = c->next;
  else c->local->calls = c->next;
  if (c->next) c->next->prev = c->prev;
  for (note *n = c->head, *nx; n; n = nx) {
    nx = n->next;
    if (n != &n->lane->end) free(n);
  }
  for (int i = 0; c->prompts && i < c->req->n_prompts; i++) {
    free(c->prompts[i].ids.v);
    free(c->prompts[i].text);
  }
  for (int i = 0; c->lanes && i < c->n_lanes; i++) {
    if (c->lanes[i].ticket) eng_ticket_free(c->lanes[i].ticket);
    split_free(c->lanes[i].split);
  }
  loop_timer_cancel(c->retry);
  api_request_unref(c->req);
  pthread_mutex_destroy(&c->mu);
  free(c->prompts);
  free(c->lanes);
  free(c);
}

/* With no lane at the engine no drain is under way either: a lane's last event is the last thing its drain sees. */
static void free_when_idle(api_call *c) {
  if (!c->busy && !c->preparing && !c->live && (c->over || c->cancelled)) call_free(c);
}

static void leave(api_call *c) {
  c->busy = false;
  free_when_idle(c);
}

/* Nothing more is told; what runs is stopped. */
static void stop_lanes(api_call *c) {
  c->next_lane = c->n_lanes;
  for (int i = 0; c->lanes && i < c->n_lanes; i++)
    if (c->lanes[i].ticket) engine_cancel(c->lanes[i].ticket);
}

/* Gives an event to the sink, which may cancel the call from within. False: it did. */
static bool emit(api_call *c, api_event *ev) {
  ev->usage = c->usage;
  ev->times = c->times;
  c->sink->event(c->sink, ev);
  return !c->cancelled;
}

static void fail(api_call *c, const err *e) {
  if (c->over || c->cancelled) return;
  c->over = true;
  stop_lanes(c);
  api_event ev = {.kind = API_ERROR, .error = e};
  emit(c, &ev);
}

/* ---- from the engine thread ---- */

static void post_drain(api_call *c);

static note *copy_event(lane *l, const eng_event *ev) {
  size_t tops = 0;
  for (int i = 0; i < ev->n_tokens; i++) tops += (size_t)ev->tokens[i].n_top;
  size_t n_tok = sizeof(eng_token) * (size_t)ev->n_tokens, n_top = sizeof(eng_lp) * tops;
  note *n = malloc(sizeof *n + n_tok + n_top + ev->text.n);
  if (!n) return NULL;
  *n = (note){.lane = l, .kind = ev->kind, .text = ev->text.n, .n_tokens = ev->n_tokens, .tokens = (eng_token *)(n + 1)};
  eng_lp *lp = (eng_lp *)(n->tokens + ev->n_tokens);
  n->bytes = (char *)(lp + tops);
  if (ev->stats) n->stats = *ev->stats;
  if (ev->text.n) memcpy(n->bytes, ev->text.p, ev->text.n);
  for (int i = 0; i < ev->n_tokens; i++) {
    n->tokens[i] = ev->tokens[i];
    n->tokens[i].top = lp;
    if (ev->tokens[i].n_top) memcpy(lp, ev->tokens[i].top, sizeof *lp * (size_t)ev->tokens[i].n_top);
    lp += ev->tokens[i].n_top;
  }
  return n;
}

/* After the lane's last event has been queued and the lock is free again, the loop may free the call at any moment: nothing here touches it then,
 * except to post a drain that only this post can start. */
static void on_engine(void *ctx, const eng_event *ev) {
  lane *l = ctx;
  api_call *c = l->call;
  note *n = &l->end;
  if (ev->kind == ENG_DONE) {
    *n = (note){.lane = l, .kind = ENG_DONE, .finish = ev->finish};
    if (ev->stats) n->stats = *ev->stats;
    if (ev->error) n->error = *ev->error;
  } else n = copy_event(l, ev);
  if (n) n->at = clock_now();
  pthread_mutex_lock(&c->mu);
  if (n) {
    n->next = NULL;
    *c->tail = n;
    c->tail = &n->next;
  } else c->lost = true;
  bool post = n && !c->posted;
  if (post) c->posted = true;
  pthread_mutex_unlock(&c->mu);
  if (post) post_drain(c);
}

/* ---- submitting ---- */

static void sampling(const api_call *c, eng_sampling *s) {
  const api_request *r = c->req;
  eng_sampling_default(s, c->local->model);
  if (api_given(r->temperature)) s->temperature = (float)r->temperature;
  if (api_given(r->top_p)) s->top_p = (float)r->top_p;
  if (api_given(r->min_p)) s->min_p = (float)r->min_p;
  if (api_given(r->typical_p)) s->typical_p = (float)r->typical_p;
  if (api_given(r->presence)) s->presence = (float)r->presence;
  if (api_given(r->frequency)) s->frequency = (float)r->frequency;
  if (api_given(r->repetition)) s->repetition = (float)r->repetition;
  if (r->top_k != API_UNSET) s->top_k = (int)r->top_k;
  s->dry_multiplier = (float)r->dry_multiplier;
  s->dry_base = (float)r->dry_base;
  s->dry_allowed_length = (int)r->dry_allowed_length;
  s->dry_last_n = (int)r->dry_last_n;
  s->seed = r->seed;
}

static void on_part(void *ctx, api_event *ev);

/* Sets up what parts a lane's text, where this model and request ask for it, and shows the engine's text the control tokens it needs. */
static bool begin_split(api_call *c, lane *l, eng_req *q, err *e) {
  const local *x = c->local;
  const api_request *r = c->req;
  bool calls = r->tools && r->tool_choice == API_TOOLS_AUTO && x->form != TOOL_FORM_NONE;
  if (!r->messages || (!x->think && !calls)) return true;
  q->show = x->show;
  q->n_show = calls ? x->n_show : x->n_show_think;
  if (l->split) return true;
  const uint64_t key[] = {r->seed, (uint64_t)r->accepted, (uint64_t)l->index};
  split_plan p = {.think = x->think,
      .opened = c->prompts[l->prompt].thinks,
      .form = calls ? x->form : TOOL_FORM_NONE,
      .names = r->tool_names,
      .n_names = (int)json_array_size(r->tools),
      .parallel = r->parallel_tools,
      .random = hash64(key, sizeof key, 0)};
  return split_new(&p, on_part, l, &l->split, e);
}

static bool submit(api_call *c, lane *l, err *e) {
  const api_request *r = c->req;
  const prompt *p = &c->prompts[l->prompt];
  bool score = r->echo && r->logprobs >= 0, rank = r->best_of > r->n;
  eng_req q = {.tokens = p->ids.v,
      .n_tokens = p->ids.n,
      .max_tokens = (int)r->max_tokens,
      .min_tokens = (int)r->min_tokens,
      .choice = l->index % r->best_of,
      .stop = r->stop,
      .n_stop = r->n_stop,
      .include_stop = r->include_stop,
      .stop_ids = r->stop_ids,
      .n_stop_ids = r->n_stop_ids,
      .ignore_eos = r->ignore_eos,
      .top_logprobs = r->logprobs >= 0 ? r->logprobs
                      : rank           ? 0
                                       : -1,
      .prompt_logprobs = score ? r->logprobs : -1,
      .keep_special = r->keep_special,
      .on_event = on_engine,
      .ctx = l};
  if (!begin_split(c, l, &q, e)) return false;
  sampling(c, &q.s);
  eng_bias *bias = NULL;
  if (r->n_bias) {
    if (!(bias = malloc(sizeof *bias * (size_t)r->n_bias))) return err_set(e, ERR_NOMEM, "out of memory for logit_bias");
    for (int i = 0; i < r->n_bias; i++) bias[i] = (eng_bias){r->bias[i].token, r->bias[i].bias};
    q.s.bias = bias;
    q.s.n_bias = r->n_bias;
  }
  bool ok = engine_submit(c->local->engine, &q, &l->ticket, e);
  free(bias);
  if (ok) c->live++;
  return ok;
}

static void pump(api_call *c);

static void on_retry(void *arg) {
  api_call *c = arg;
  c->retry = NULL;
  c->busy = true;
  pump(c);
  leave(c);
}

/* Submits what the window allows. A full queue refuses a request that has not begun; one that has waits for room. */
static void pump(api_call *c) {
  err e = {0};
  while (c->next_lane < c->n_lanes && c->live < c->local->window) {
    if (submit(c, &c->lanes[c->next_lane], &e)) {
      c->next_lane++;
      continue;
    }
    if (e.code != ERR_BUSY || !c->next_lane) {
      fail(c, &e);
      return;
    }
    if (!c->retry) c->retry = loop_after(c->local->loop, RETRY_NS, on_retry, c);
    if (!c->retry && !c->live) fail(c, &e);
    return;
  }
}

/* ---- preparing: on a worker ---- */

static bool check_ids(const api_call *c, err *e) {
  const api_request *r = c->req;
  if (!prompt_check_ids(c->local->model, r->stop_ids, r->n_stop_ids, "stop_token_ids", e)) return false;
  int vocab = tok_count(c->local->model->tok);
  for (int i = 0; i < r->n_bias; i++)
    if (r->bias[i].token >= vocab)
      return err_param(e, ERR_INPUT, "logit_bias", "'logit_bias' names token %d: this model's token ids end at %d", r->bias[i].token, vocab - 1);
  return true;
}

/* The context holds the prompt and at least one token of an answer, unless none is wanted. */
static bool check_context(const api_call *c, int i, err *e) {
  int ctx = engine_ctx(c->local->engine), n = c->prompts[i].ids.n, room = c->req->max_tokens == 0 ? 0 : 1;
  if (n + room <= ctx) return true;
  const char *field = c->req->messages ? "messages" : "prompt";
  return err_param(e, ERR_CONTEXT, field,
      "this model's context is %d tokens and the %s %d: shorten it, or start the server with a larger --ctx where the model allows", ctx,
      c->req->messages ? "messages take" : "prompt takes", n);
}

static bool echo_text(api_call *c, int i, err *e) {
  const api_prompt *src = &c->req->prompts[i];
  prompt *p = &c->prompts[i];
  buf b;
  buf_init(&b, SIZE_MAX / 4);
  if (!src->ids) buf_str(&b, src->text);
  else {
    tok_stream s;
    tok_stream_init(&s, c->req->keep_special);
    for (int t = 0; t < src->n_ids; t++) tok_stream_push(c->local->model->tok, &s, src->ids[t], &b);
    tok_stream_end(&s, &b);
  }
  p->text = buf_take(&b, &p->n_text);
  return p->text || err_set(e, ERR_NOMEM, "out of memory for the echoed prompt");
}

static bool prepare(api_call *c, err *e) {
  const api_request *r = c->req;
  if (!check_ids(c, e)) return false;
  for (int i = 0; i < r->n_prompts; i++) {
    if (!prompt_ids(c->local->model, r, i, &c->prompts[i].ids, &c->prompts[i].thinks, e) || !check_context(c, i, e)) return false;
    if (r->echo && !echo_text(c, i, e)) return false;
  }
  return true;
}

static void prepare_run(void *arg) {
  api_call *c = arg;
  if (!prepare(c, &c->error) && !c->error.code) c->error.code = ERR_INTERNAL;
}

static void prepare_done(void *arg) {
  api_call *c = arg;
  c->preparing = false;
  c->busy = true;
  if (!c->cancelled) {
    for (int i = 0; i < c->req->n_prompts; i++) c->usage.prompt += c->prompts[i].ids.n;
    if (c->error.code) fail(c, &c->error);
    else pump(c);
  }
  leave(c);
}

/* ---- events on the loop ---- */

static bool begin(api_call *c, const note *n) {
  if (c->begun) return true;
  c->begun = true;
  c->times.accepted = n->stats.t_accepted;
  c->times.scheduled = n->stats.t_scheduled;
  c->times.first = n->kind == ENG_TEXT ? n->at : 0;
  api_event ev = {.kind = API_BEGIN};
  return emit(c, &ev);
}

/* The engine's tokens as the api's: with their bytes. One block, freed by the caller; NULL also when there is nothing to tell. */
static api_token *tokens_of(const api_call *c, const note *n) {
  const tok *t = c->local->model->tok;
  size_t tops = 0, i = 0;
  for (int k = 0; k < n->n_tokens; k++) tops += (size_t)n->tokens[k].n_top;
  size_t all = (size_t)n->n_tokens + tops;
  if (!n->n_tokens || (c->req->logprobs < 0 && c->req->best_of == c->req->n)) return NULL;
  api_token *v = malloc(sizeof *v * (size_t)n->n_tokens + sizeof(api_top) * tops + 8 * all);
  if (!v) return NULL;
  api_top *top = (api_top *)(v + n->n_tokens);
  char *scratch = (char *)(top + tops);
  for (int k = 0; k < n->n_tokens; k++) {
    const eng_token *s = &n->tokens[k];
    v[k] = (api_token){s->token, tok_piece(t, s->token, true, scratch + 8 * i++), s->logprob, top, s->n_top};
    for (int j = 0; j < s->n_top; j++) *top++ = (api_top){s->top[j].token, tok_piece(t, s->top[j].token, true, scratch + 8 * i++), s->top[j].logprob};
  }
  return v;
}

/* What a split finds in an answer; the sink may cancel at any of its events. */
static void on_part(void *ctx, api_event *ev) {
  lane *l = ctx;
  if (l->call->cancelled) return;
  ev->choice = l->index;
  ev->tokens = l->carry;
  ev->n_tokens = l->n_carry;
  l->carry = NULL;
  l->n_carry = 0;
  emit(l->call, ev);
}

static bool no_memory(api_call *c) {
  err e;
  err_set(&e, ERR_NOMEM, "out of memory while answering");
  fail(c, &e);
  return false;
}

/* Text of an answer through its split. Tokens are told even where no text comes of them yet. */
static bool tell_parts(api_call *c, lane *l, const note *n, str text) {
  bool thought = split_thinks(l->split);
  if (thought) c->usage.reasoning += n->n_tokens;
  int calls = split_calls(l->split);
  for (int i = 0; i < n->n_tokens; i++) l->marked |= n->tokens[i].token == c->local->mark;
  split_spelt(l->split, c->local->mark >= 0 && !l->marked);
  if (!split_push(l->split, text)) return no_memory(c);
  if (split_calls(l->split) > calls) l->marked = false;
  if (!thought && split_thinks(l->split)) c->usage.reasoning += n->n_tokens;
  if (l->n_carry) on_part(l, &(api_event){.kind = API_TEXT});
  if (split_full(l->split) && !c->cancelled) {
    l->full = true;
    engine_cancel(l->ticket);
  }
  return !c->cancelled;
}

static bool tell(api_call *c, lane *l, const note *n, bool is_prompt, str text) {
  api_token *v = n && n->n_tokens ? tokens_of(c, n) : NULL;
  bool go;
  if (l->split && !is_prompt) {
    l->carry = v;
    l->n_carry = v ? n->n_tokens : 0;
    go = tell_parts(c, l, n, text);
    l->carry = NULL;
    l->n_carry = 0;
  } else {
    api_event ev = {.kind = API_TEXT, .choice = l->index, .prompt = is_prompt, .text = text, .tokens = v, .n_tokens = v ? n->n_tokens : 0};
    go = emit(c, &ev);
  }
  free(v);
  return go;
}

/* The echo of a prompt comes before anything else of its lane: with its log-probabilities when those were asked for. */
static bool echo(api_call *c, lane *l, const note *n) {
  if (!c->req->echo || l->echoed) return true;
  l->echoed = true;
  const prompt *p = &c->prompts[l->prompt];
  return tell(c, l, n && n->kind == ENG_PROMPT ? n : NULL, true, (str){p->text, p->n_text});
}

static void observe_gap(api_call *c, lane *l, const note *n) {
  if (!n->n_tokens) return;
  if (l->last && n->at > l->last)
    for (int i = 0; i < n->n_tokens; i++) metrics_observe(c->local->metrics, HIST_ITL, (double)(n->at - l->last) / 1e9 / n->n_tokens);
  l->last = n->at;
}

static bool on_text(api_call *c, lane *l, const note *n) {
  if (l->full) return true;
  if (n->kind == ENG_TEXT) {
    observe_gap(c, l, n);
    l->output += n->n_tokens;
    c->usage.output += n->n_tokens;
  }
  if (!begin(c, n) || !echo(c, l, n)) return false;
  return n->kind == ENG_PROMPT || tell(c, l, n, false, (str){n->bytes, n->text});
}

static double seconds(int64_t from, int64_t to) { return from && to >= from ? (double)(to - from) / 1e9 : NAN; }

static void observe_end(api_call *c, const note *n) {
  metrics *m = c->local->metrics;
  const eng_stats *s = &n->stats;
  static const metrics_reason reasons[] = {
      [ENG_STOP] = REASON_STOP, [ENG_LENGTH] = REASON_LENGTH, [ENG_CANCELLED] = REASON_ABORT, [ENG_ERROR] = REASON_ERROR};
  metrics_finish(m, reasons[n->finish]);
  if (n->finish != ENG_STOP && n->finish != ENG_LENGTH) return;
  metrics_observe(m, HIST_TTFT, seconds(c->req->accepted, s->t_first));
  metrics_observe(m, HIST_E2E, seconds(c->req->accepted, s->t_done));
  metrics_observe(m, HIST_QUEUE, seconds(s->t_accepted, s->t_scheduled));
  metrics_observe(m, HIST_PREFILL, seconds(s->t_scheduled, s->t_first));
  metrics_observe(m, HIST_DECODE, seconds(s->t_first, s->t_last));
  metrics_observe(m, HIST_INFERENCE, seconds(s->t_scheduled, s->t_last));
  metrics_observe(m, HIST_PROMPT, s->prompt_tokens);
  metrics_observe(m, HIST_GENERATION, s->output_tokens);
  if (s->output_tokens >= 2) metrics_observe(m, HIST_TPOT, seconds(s->t_first, s->t_last) / (s->output_tokens - 1));
}

static int64_t earlier(int64_t a, int64_t b) { return !a || (b && b < a) ? b : a; }
static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* The request's totals: a prompt counts once however many choices it has; moments are the first lane's first and the last one's last. */
static void add_stats(api_call *c, const lane *l, const eng_stats *s) {
  api_times *t = &c->times;
  if (l->index % c->req->best_of == 0) c->usage.cached += s->cached_tokens;
  if (!l->full) c->usage.output += s->output_tokens - l->output;
  t->accepted = earlier(t->accepted, s->t_accepted);
  t->scheduled = earlier(t->scheduled, s->t_scheduled);
  t->first = c->ended ? earlier(t->first, s->t_first) : s->t_first ? s->t_first : t->first;
  t->last = later(t->last, s->t_last);
  t->done = later(t->done, s->t_done);
}

/* What the split still holds, and why the choice ended. */
static bool finish(api_call *c, lane *l, eng_finish f, api_finish *ret) {
  *ret = f == ENG_STOP ? API_STOP : API_LENGTH;
  if (!l->split) return true;
  if (!split_end(l->split, f == ENG_LENGTH)) return no_memory(c);
  if (*ret == API_STOP && split_calls(l->split)) *ret = API_TOOL_CALLS;
  return !c->cancelled;
}

static bool on_end(api_call *c, lane *l, const note *n) {
  c->live--;
  if (l->full) l->end.finish = ENG_STOP; /* cancelled by ourselves, or ended before that was seen */
  observe_end(c, n);
  add_stats(c, l, &n->stats);
  c->ended++;
  if (c->over || c->cancelled) return false;
  if (n->finish == ENG_ERROR || n->finish == ENG_CANCELLED) {
    err e = n->error;
    if (!e.code) err_set(&e, ERR_BUSY, "the server is stopping");
    fail(c, &e);
    return false;
  }
  if (!begin(c, n) || !echo(c, l, NULL)) return false;
  api_event ev = {.kind = API_FINISH, .choice = l->index, .stop = n->stats.stop};
  if (!finish(c, l, n->finish, &ev.finish) || !emit(c, &ev)) return false;
  if (c->ended < c->n_lanes) {
    pump(c);
    return !c->over;
  }
  c->over = true;
  ev = (api_event){.kind = API_USAGE};
  emit(c, &ev);
  return false;
}

static void drain(void *arg) {
  api_call *c = arg;
  pthread_mutex_lock(&c->mu);
  note *n = c->head, *next;
  bool lost = c->lost;
  c->head = NULL;
  c->tail = &c->head;
  c->posted = false;
  pthread_mutex_unlock(&c->mu);
  c->busy = true;
  if (lost) no_memory(c);
  for (; n; n = next) {
    next = n->next; /* read before a lane's own note may be reused, and n freed */
    if (n->kind == ENG_DONE) {
      on_end(c, n->lane, n);
      continue;
    }
    if (!c->over && !c->cancelled) on_text(c, n->lane, n);
    free(n);
  }
  leave(c);
}

static void post_drain(api_call *c) { loop_post(c->local->loop, drain, c); }

/* ---- backend.h ---- */

static bool start(api_backend *b, api_request *r, api_sink *sink, api_call **ret, err *e) {
  local *l = (local *)b;
  int n = api_n_choices(r);
  api_call *c = calloc(1, sizeof *c);
  if (!c) return err_set(e, ERR_NOMEM, "out of memory for a request");
  *c = (api_call){.local = l, .req = api_request_ref(r), .sink = sink, .n_lanes = n, .next = l->calls, .preparing = true};
  c->tail = &c->head;
  pthread_mutex_init(&c->mu, NULL);
  if (l->calls) l->calls->prev = c;
  l->calls = c;
  c->prompts = calloc((size_t)r->n_prompts, sizeof *c->prompts);
  c->lanes = calloc((size_t)n, sizeof *c->lanes);
  bool ok = c->prompts && c->lanes ? true : err_set(e, ERR_NOMEM, "out of memory for a request of %d choices", n);
  for (int i = 0; ok && i < n; i++) c->lanes[i] = (lane){.call = c, .index = i, .prompt = i / r->best_of};
  if (ok && !work_add(l->work, prepare_run, prepare_done, c)) ok = err_set(e, ERR_BUSY, "too many requests are waiting: try again in a moment");
  if (ok) *ret = c;
  else call_free(c);
  return ok;
}

static void cancel(api_backend *b, api_call *c) {
  (void)b;
  if (c->cancelled || c->over) return;
  c->cancelled = true;
  loop_timer_cancel(c->retry);
  c->retry = NULL;
  stop_lanes(c);
  free_when_idle(c); /* otherwise when its lanes have ended, or where the caller up the stack is done with it */
}

/* The marks that this vocabulary has as control tokens. */
static void show_marks(local *x, const char *const *marks) {
  for (; *marks; marks++) {
    int id = tok_find(x->model->tok, str_c(*marks));
    if (id >= 0 && tok_type(x->model->tok, id) == TOK_CONTROL && x->n_show < MAX_SHOW) x->show[x->n_show++] = id;
  }
}

/* What there is to look for is told by the chat template alone. */
static void find_marks(local *x) {
  x->think = reason_in_template(x->model->chat_source);
  x->form = tool_form_of(x->model->chat_source);
  if (x->think) show_marks(x, reason_marks);
  x->n_show_think = x->n_show;
  const char *mark = tool_form_marks(x->form)[0];
  x->mark = mark ? tok_find(x->model->tok, str_c(mark)) : -1;
  show_marks(x, tool_form_marks(x->form));
}

local *local_new(engine *en, const model *m, loop *l, work *w, metrics *mt, int queue) {
  local *x = calloc(1, sizeof *x);
  int part = (queue > 0 ? queue : LOCAL_QUEUE) / 4, window = part < 1 ? 1 : part < LOCAL_WINDOW ? part : LOCAL_WINDOW;
  if (x) *x = (local){.api = {"local", start, cancel}, .engine = en, .model = m, .loop = l, .work = w, .metrics = mt, .window = window};
  if (x) find_marks(x);
  return x;
}

void local_free(local *l) {
  if (!l) return;
  while (l->calls) call_free(l->calls);
  free(l);
}

api_backend *local_backend(local *l) { return &l->api; }
