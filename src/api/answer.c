#include "api/answer.h"
#include "api/dialect.h"
#include <stdio.h>
#include <stdlib.h>

bool answer_init(api_answer *a, const api_request *r, const api_info *i, const api_out *o, err *e) {
  *a = (api_answer){.req = r, .info = i, .out = o, .n_choices = api_n_choices(r)};
  arena_init(&a->mem, ANSWER_MEM);
  buf_init(&a->scratch, ANSWER_TEXT + ANSWER_MEM);
  a->choices = ARENA_ARRAY(&a->mem, api_choice, (size_t)a->n_choices);
  if (r->dialect->state) a->state = arena_try(&a->mem, r->dialect->state);
  if (!a->choices || (r->dialect->state && !a->state)) {
    answer_fini(a);
    return err_set(e, ERR_NOMEM, "out of memory for an answer of %d choices", api_n_choices(r));
  }
  for (int c = 0; c < a->n_choices; c++) {
    a->choices[c].index = c;
    buf_init(&a->choices[c].text, ANSWER_TEXT);
    buf_init(&a->choices[c].reasoning, ANSWER_TEXT);
  }
  return true;
}

void answer_fini(api_answer *a) {
  for (int c = 0; a->choices && c < a->n_choices; c++) {
    api_choice *ch = &a->choices[c];
    buf_fini(&ch->text);
    buf_fini(&ch->reasoning);
    for (int i = 0; i < ch->n_calls; i++) buf_fini(&ch->calls[i].args);
  }
  buf_fini(&a->scratch);
  arena_fini(&a->mem);
  a->choices = NULL;
}

static double ms_between(int64_t from, int64_t to) { return from && to > from ? (double)(to - from) / 1e6 : 0; }

/* Server-Timing: what is known by now. Overhead is what the server spent besides waiting and computing. */
static void timing_header(api_answer *a) {
  const api_times *t = &a->times;
  if (!t->scheduled) return;
  char v[160];
  int n = snprintf(v, sizeof v, "queue;dur=%.3f", ms_between(t->accepted, t->scheduled));
  if (t->first) n += snprintf(v + n, sizeof v - (size_t)n, ", prefill;dur=%.3f", ms_between(t->scheduled, t->first));
  if (t->done) {
    double all = ms_between(a->info->accepted, t->done), engine = ms_between(t->accepted, t->done);
    n += snprintf(v + n, sizeof v - (size_t)n, ", decode;dur=%.3f", ms_between(t->first, t->last));
    snprintf(v + n, sizeof v - (size_t)n, ", overhead;dur=%.3f", all > engine ? all - engine : 0);
  }
  a->out->header(a->out->ctx, "Server-Timing", v);
}

/* A chunk that did not fit is not sent with a hole in it: the stream ends here, and says so where there is room for that. False: it did. */
static bool flush(api_answer *a) {
  bool whole = !a->scratch.failed;
  if (!whole) {
    err_set(&a->error, a->scratch.starved ? ERR_NOMEM : ERR_TOO_LARGE, "the server has no memory for the rest of this answer");
    a->done = true;
    buf_clear(&a->scratch);
    a->req->dialect->stream_error(a, &a->error, &a->scratch);
  }
  if (a->scratch.n && !a->scratch.failed) a->out->write(a->out->ctx, buf_view(&a->scratch));
  buf_clear(&a->scratch);
  if (!whole) a->out->close(a->out->ctx);
  return whole;
}

static void begin_stream(api_answer *a) {
  if (a->begun) return;
  a->begun = true;
  a->status = 200;
  timing_header(a);
  a->out->header(a->out->ctx, "Cache-Control", "no-cache");
  a->out->header(a->out->ctx, "X-Accel-Buffering", "no"); /* nginx in between must not collect a stream */
  a->out->open(a->out->ctx, 200, "text/event-stream; charset=utf-8");
}

void answer_fail(api_answer *a, const err *e) {
  if (a->done) return;
  a->done = true;
  a->error = *e;
  buf_clear(&a->scratch);
  if (a->begun) {
    a->req->dialect->stream_error(a, e, &a->scratch);
    if (flush(a)) a->out->close(a->out->ctx);
    a->error = *e; /* what went wrong first */
    return;
  }
  a->status = err_lookup(e->code)->http;
  if (e->code == ERR_BUSY || e->code == ERR_LIMIT) a->out->header(a->out->ctx, "Retry-After", "1");
  a->req->dialect->error(e, &a->scratch);
  a->out->whole(a->out->ctx, a->status, "application/json", buf_view(&a->scratch));
}

/* What is kept of it does not fit: the bound, or the machine. */
static bool no_room(api_answer *a) {
  err e;
  bool starved = a->mem.starved || a->scratch.starved;
  for (int i = 0; i < a->n_choices; i++) {
    const api_choice *c = &a->choices[i];
    starved |= c->text.starved || c->reasoning.starved || (c->n_calls && c->calls[c->n_calls - 1].args.starved);
  }
  if (starved) err_set(&e, ERR_NOMEM, "the server has no memory for this answer: try again later");
  else err_set(&e, ERR_TOO_LARGE, "the answer does not fit the server's memory for one answer: ask for fewer choices, tokens or log-probabilities");
  answer_fail(a, &e);
  return false;
}

static bool copy_bytes(arena *m, str *s) {
  char *p = arena_str(m, *s);
  s->p = p;
  return p != NULL;
}

static bool keep_tokens(api_answer *a, api_choice *c, const api_token *t, int n) {
  if (c->n_tokens + n > c->cap_tokens) {
    int cap = c->cap_tokens * 2 > c->n_tokens + n ? c->cap_tokens * 2 : c->n_tokens + n + 16;
    api_token *v = ARENA_ARRAY(&a->mem, api_token, (size_t)cap);
    if (!v) return false;
    if (c->n_tokens) memcpy(v, c->tokens, sizeof *v * (size_t)c->n_tokens);
    c->tokens = v;
    c->cap_tokens = cap;
  }
  for (int i = 0; i < n; i++) {
    api_token k = t[i];
    if (!copy_bytes(&a->mem, &k.bytes)) return false;
    if (k.n_top) {
      api_top *top = ARENA_ARRAY(&a->mem, api_top, (size_t)k.n_top);
      if (!top) return false;
      for (int j = 0; j < k.n_top; j++) {
        top[j] = k.top[j];
        if (!copy_bytes(&a->mem, &top[j].bytes)) return false;
      }
      k.top = top;
    }
    c->tokens[c->n_tokens++] = k;
  }
  return true;
}

/* The calls of a whole answer, piece by piece. */
static bool keep_call(api_answer *a, api_choice *c, const api_tool *t) {
  if (t->index == c->n_calls) {
    if (c->n_calls == c->cap_calls) {
      int cap = c->cap_calls * 2 + 4;
      api_call_text *v = ARENA_ARRAY(&a->mem, api_call_text, (size_t)cap);
      if (!v) return false;
      if (c->n_calls) memcpy(v, c->calls, sizeof *v * (size_t)c->n_calls);
      c->calls = v;
      c->cap_calls = cap;
    }
    api_call_text *k = &c->calls[c->n_calls];
    *k = (api_call_text){.id = t->id, .name = t->name};
    if (!copy_bytes(&a->mem, &k->id) || !copy_bytes(&a->mem, &k->name)) return false;
    buf_init(&k->args, ANSWER_TEXT);
    c->n_calls++;
  }
  return buf_str(&c->calls[t->index].args, t->args);
}

/* The part an event belongs to: the last one, or a new one. */
static api_part *part_of(api_answer *a, api_choice *c, const api_event *ev, size_t from) {
  api_part *last = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;
  if (last && last->kind == ev->kind && (ev->kind != API_TOOL || last->call == ev->tool.index)) return last;
  if (c->n_parts == c->cap_parts) {
    int cap = c->cap_parts * 2 + 4;
    api_part *v = ARENA_ARRAY(&a->mem, api_part, (size_t)cap);
    if (!v) return NULL;
    if (c->n_parts) memcpy(v, c->parts, sizeof *v * (size_t)c->n_parts);
    c->parts = v;
    c->cap_parts = cap;
  }
  c->parts[c->n_parts] = (api_part){.kind = ev->kind, .from = from, .call = ev->tool.index};
  return &c->parts[c->n_parts++];
}

static bool keep_text(api_answer *a, api_choice *c, const api_event *ev, buf *to) {
  if (!ev->text.n) return true;
  api_part *p = part_of(a, c, ev, to->n);
  if (!p || !buf_str(to, ev->text)) return false;
  p->to = to->n;
  return true;
}

/* What a whole answer is put together from. */
static bool keep(api_answer *a, api_choice *c, const api_event *ev) {
  if (ev->kind == API_TOOL && (!part_of(a, c, ev, 0) || !keep_call(a, c, &ev->tool))) return false;
  if (ev->kind == API_TEXT && !keep_text(a, c, ev, &c->text)) return false;
  if (ev->kind == API_REASONING && !keep_text(a, c, ev, &c->reasoning)) return false;
  return a->req->logprobs < 0 || keep_tokens(a, c, ev->tokens, ev->n_tokens);
}

static int64_t code_points(str s) {
  int64_t n = 0;
  for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
  return n;
}

static void on_begin(api_answer *a, const api_event *ev) {
  a->times = ev->times;
  if (!a->req->stream) return;
  begin_stream(a);
  a->req->dialect->chunk(a, ev, &a->scratch);
  flush(a);
}

static void on_text(api_answer *a, const api_event *ev) {
  api_choice *c = &a->choices[ev->choice];
  if (!ev->prompt)
    for (int i = 0; i < ev->n_tokens; i++)
      if (!isnan(ev->tokens[i].logprob)) {
        c->lp_sum += (double)ev->tokens[i].logprob;
        c->lp_n++;
      }
  if ((!a->req->stream || a->req->dialect->keeps) && !keep(a, c, ev)) {
    no_room(a);
    return;
  }
  if (!a->req->stream) return;
  begin_stream(a);
  a->req->dialect->chunk(a, ev, &a->scratch);
  c->opened = true;
  for (int i = 0; i < ev->n_tokens; i++) c->chars += code_points(ev->tokens[i].bytes);
  flush(a);
}

static void on_finish(api_answer *a, const api_event *ev) {
  api_choice *c = &a->choices[ev->choice];
  c->finished = true;
  c->finish = ev->finish;
  c->stop = ev->stop;
  if (!a->req->stream) return;
  begin_stream(a);
  a->req->dialect->chunk(a, ev, &a->scratch);
  c->opened = true;
  flush(a);
}

static double mean_lp(const api_choice *c) { return c->lp_n ? c->lp_sum / c->lp_n : -INFINITY; }

/* best_of: of every prompt's choices the n with the best mean log-probability stay, best first; ties keep the lower number. */
static void pick_best(api_answer *a) {
  int k = a->req->best_of, n = a->req->n;
  if (k == n) return;
  for (int p = 0; p < a->req->n_prompts; p++) {
    api_choice *c = a->choices + (ptrdiff_t)p * k;
    for (int i = 1; i < k; i++) {
      api_choice x = c[i];
      int j = i;
      for (; j > 0 && mean_lp(&c[j - 1]) < mean_lp(&x); j--) c[j] = c[j - 1];
      c[j] = x;
    }
    for (int i = 0; i < k; i++) c[i].index = i < n ? p * n + i : -1;
  }
}

static void on_usage(api_answer *a, const api_event *ev) {
  a->done = true;
  a->times = ev->times;
  a->status = 200;
  if (a->req->stream) {
    begin_stream(a);
    a->req->dialect->chunk(a, ev, &a->scratch);
    a->req->dialect->stream_end(a, &a->scratch);
    if (flush(a)) a->out->close(a->out->ctx);
    return;
  }
  pick_best(a);
  timing_header(a);
  a->req->dialect->whole(a, &a->scratch);
  if (a->scratch.failed) {
    a->done = false;
    no_room(a);
    return;
  }
  a->out->whole(a->out->ctx, 200, "application/json", buf_view(&a->scratch));
}

void answer_event(api_answer *a, const api_event *ev) {
  if (a->done) return;
  if (ev->kind != API_ERROR) a->usage = ev->usage;
  switch (ev->kind) {
  case API_BEGIN: on_begin(a, ev); break;
  case API_TEXT:
  case API_REASONING:
  case API_TOOL: on_text(a, ev); break;
  case API_FINISH: on_finish(a, ev); break;
  case API_USAGE: on_usage(a, ev); break;
  case API_ERROR: answer_fail(a, ev->error); break;
  }
}

void answer_keep_alive(api_answer *a) {
  if (a->done || !a->req->stream) return;
  begin_stream(a);
  if (a->req->dialect->ping) a->req->dialect->ping(a, &a->scratch);
  else buf_puts(&a->scratch, ": keep-alive\n\n");
  if (!a->scratch.failed) a->out->write(a->out->ctx, buf_view(&a->scratch));
  buf_clear(&a->scratch);
}
