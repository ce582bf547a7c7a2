#include "load/driver.h"
#include "api/openai_reply.h"
#include "base/clock.h"
#include "base/json.h"
#include "load/words.h"
#include "net/http_client.h"
#include "net/sse.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_BODY = 1 << 24, PROBE_A = 8, PROBE_B = 136, SPARE_FDS = 64 };

typedef struct run run;
typedef struct user {
  run *r;
  http_call *call;
  buf body, reply; /* reply: whole answer when not streamed, or an error's body */
  sse sse;
  bool counted;      /* part of the measurement, not of a probe or the warm-up */
  bool ended;        /* the stream said so: finish_reason or [DONE] */
  bool output;       /* some text, reasoning or tool call came */
  const char *fault; /* what is wrong with an answer of status 200, or NULL */
  int status;
  int64_t sent, first, last, usage_in, usage_cached, usage_out;
  int chunks;
  stats icl; /* of this request; joined to the run's when it ends well */
} user;

struct run {
  const load_opts *o;
  load_result *res;
  loop *loop;
  http_client *client;
  openai_target to;
  char endpoint[TARGET_URL + 32];
  user *users;
  words_fit fit;
  int started, finished, target, active;
  uint64_t number;     /* of prompts made, so that none comes twice */
  bool counting, stop; /* stop: no request is started any more */
  bool interrupted;
  err failure; /* of the first probe or warm-up request that failed */
  int64_t first_sent, last_done, shown;
  int forced_words; /* > 0: probe */
};

static bool streamed(const run *r) { return !r->o->no_stream && !r->forced_words; }

/* ---- request bodies ---- */

static void write_body(run *r, user *u) {
  const load_opts *o = r->o;
  int words = r->forced_words ? r->forced_words : words_for(r->fit, o->input_tokens);
  buf *b = &u->body;
  buf_clear(b);
  buf_puts(b, "{\"model\":\"");
  buf_json(b, str_c(r->res->model));
  buf_puts(b, o->completions ? "\",\"prompt\":\"" : "\",\"messages\":[{\"role\":\"user\",\"content\":\"");
  words_prompt(b, o->seed, r->number++, words);
  buf_puts(b, o->completions ? "\"" : "\"}]");
  buf_printf(b, ",\"max_tokens\":%d,\"temperature\":%.6g", r->forced_words ? 1 : o->output_tokens, o->temperature);
  if (o->ignore_eos) buf_puts(b, ",\"ignore_eos\":true");
  if (streamed(r)) buf_puts(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  buf_putc(b, '}');
}

/* ---- answers ---- */

static void read_usage(user *u, const openai_reply *p) {
  if (!p->has_usage) return;
  u->usage_in = p->tokens_in;
  u->usage_out = p->tokens_out;
  u->usage_cached = p->tokens_cached;
}

static void take_error(user *u, str json) {
  buf_clear(&u->reply);
  buf_str(&u->reply, json);
  u->fault = "the server reports an error";
}

static bool on_event(str event, str data, void *ctx) {
  user *u = ctx;
  int64_t now = clock_now();
  (void)event;
  if (str_is(data, "[DONE]")) return u->ended = true;
  openai_reply p;
  if (!openai_reply_parse(data, &p)) {
    u->fault = "the stream holds a chunk that is not JSON";
    return true;
  }
  if (p.error) take_error(u, data);
  else if (p.output) {
    if (!u->output) u->first = now;
    else stats_add(&u->icl, clock_ms(now - u->last));
    u->output = true;
    u->last = now;
    u->chunks++;
  }
  if (p.finish) u->ended = true;
  read_usage(u, &p);
  openai_reply_fini(&p);
  return true;
}

static void read_whole(user *u) {
  openai_reply p;
  if (!openai_reply_parse(buf_view(&u->reply), &p)) {
    u->fault = "the answer is not JSON";
    return;
  }
  if (p.error) u->fault = "the server reports an error";
  u->output = p.output;
  read_usage(u, &p);
  openai_reply_fini(&p);
}

static bool on_head(http_call *c, int status, void *ctx) {
  (void)c;
  ((user *)ctx)->status = status;
  return true;
}

static bool on_data(http_call *c, str data, void *ctx) {
  user *u = ctx;
  err e;
  (void)c;
  if (u->status != 200 || !streamed(u->r)) {
    if (buf_str(&u->reply, data)) return true;
    u->fault = "the answer is larger than 16 MiB";
    return false;
  }
  if (sse_feed(&u->sse, data, &e)) return true;
  u->fault = "the stream holds a line of more than 1 MiB";
  return false;
}

static void count_error(load_result *res, const char *msg) {
  char what[sizeof res->errors[0].what];
  int i = 0;
  snprintf(what, sizeof what, "%s", msg);
  what[utf8_valid_prefix(str_c(what), NULL)] = 0; /* the cut may have gone through a letter */
  res->failed++;
  while (i < res->n_errors && strcmp(res->errors[i].what, what) != 0) i++;
  if (i >= LOAD_ERR_KINDS - 1) {
    i = LOAD_ERR_KINDS - 1;
    snprintf(what, sizeof what, "other reasons");
  }
  if (i >= res->n_errors) {
    res->n_errors = i + 1;
    memcpy(res->errors[i].what, what, sizeof what);
  }
  res->errors[i].n++;
}

/* Whether the call ended with a whole answer. Else why not: the server's words where it gave some. */
static bool judge(user *u, const err *e, err *why) {
  openai_reply p = {0};
  if (!e && u->status == 200 && !streamed(u->r)) read_whole(u);
  if (!e && u->status == 200 && !u->fault) {
    if (streamed(u->r) && !u->ended) u->fault = "the stream ended before it was complete (no finish_reason, no [DONE])";
    else if (!u->output && !u->r->forced_words) u->fault = "the answer has no output"; /* a probe's one token may be the end */
    else return true;
  }
  if (u->reply.n && openai_reply_parse(buf_view(&u->reply), &p) && p.error)
    err_set(why, openai_status_code(u->status), "HTTP %d: %.200s", u->status, p.error);
  else if (u->fault) err_set(why, ERR_NET, "HTTP %d: %s", u->status, u->fault);
  else if (e) *why = *e;
  else err_set(why, openai_status_code(u->status), "HTTP %d without a message", u->status);
  openai_reply_fini(&p);
  openai_target_scrub(&u->r->to, why->msg);
  return false;
}

static void count_good(run *r, user *u, int64_t done) {
  load_result *res = r->res;
  int64_t out = u->usage_out > 0 ? u->usage_out : u->chunks; /* chunks are the best there is; none when not streamed */
  res->completed++;
  res->input_tokens += u->usage_in;
  res->cached_tokens += u->usage_cached;
  res->output_tokens += out;
  if (u->usage_out <= 0) res->without_usage++;
  stats_add(&res->e2e, clock_ms(done - u->sent));
  if (out > 0) stats_add(&res->tpot, clock_ms(done - u->sent) / (double)out);
  if (!r->o->no_stream) {
    stats_add(&res->ttft, clock_ms(u->first - u->sent));
    if (out >= 2) stats_add(&res->itl, clock_ms(u->last - u->first) / (double)(out - 1));
    for (size_t i = 0; i < u->icl.n; i++) stats_add(&res->icl, u->icl.v[i]);
  }
}

static void start(user *u);

static void show(run *r, bool end) {
  int64_t now = clock_now();
  if (r->o->quiet || !isatty(2) || (!end && now - r->shown < 200000000)) return;
  r->shown = now;
  fprintf(stderr, "\r%s %d/%d done, %d failed, %d running \x1b[K%s", r->counting ? "measuring" : "warming up", r->finished, r->target, r->res->failed,
      r->active, end ? "\n" : "");
}

static void on_done(http_call *c, const err *e, void *ctx) {
  user *u = ctx;
  run *r = u->r;
  int64_t done = http_call_moments(c).done;
  err why;
  bool good = judge(u, e, &why);
  u->call = NULL;
  r->active--;
  r->finished++;
  if (u->counted) {
    r->last_done = done;
    if (good) count_good(r, u, done);
    else count_error(r->res, why.msg);
  } else if (!good && !r->stop) { /* a probe or warm-up that fails ends the run: what came after it would mean nothing */
    r->failure = why;
    r->stop = true;
  }
  show(r, false);
  if (!r->stop && r->started < r->target) start(u);
  else if (!r->active) loop_stop(r->loop);
}

static void reset(user *u) {
  buf_clear(&u->reply);
  sse_fini(&u->sse);
  sse_init(&u->sse, 0, on_event, u);
  u->icl.n = 0;
  u->status = u->chunks = 0;
  u->first = u->last = u->usage_in = u->usage_out = u->usage_cached = 0;
  u->ended = u->output = false;
  u->fault = NULL;
}

static void start(user *u) {
  run *r = u->r;
  err e;
  write_body(r, u);
  reset(u);
  u->counted = r->counting;
  const char *headers[] = {"Content-Type: application/json", r->to.auth[0] ? r->to.auth : NULL, NULL};
  http_call_opts co = {
      .url = r->endpoint, .headers = headers, .body = buf_view(&u->body), .on_head = on_head, .on_data = on_data, .on_done = on_done, .ctx = u};
  r->started++;
  r->active++;
  u->sent = clock_now();
  if (u->counted) {
    r->res->sent++;
    if (!r->first_sent) r->first_sent = u->sent;
  }
  if (!u->body.failed ? http_call_start(r->client, &co, &u->call, &e) : err_set(&e, ERR_TOO_LARGE, "a prompt is larger than %d bytes", MAX_BODY))
    return;
  /* Nothing went out, and nothing would the next time. */
  r->active--;
  r->finished++;
  r->stop = true;
  if (u->counted) count_error(r->res, e.msg);
  else r->failure = e;
  if (!r->active) loop_stop(r->loop);
}

static bool phase(run *r, int users, int requests, bool counting) {
  r->started = r->finished = r->active = 0;
  r->target = requests;
  r->counting = counting;
  for (int i = 0; i < users && r->started < requests && !r->stop; i++) start(&r->users[i]);
  if (r->active) loop_run(r->loop);
  return !r->stop;
}

static void on_int(void *arg) {
  run *r = arg;
  if (r->interrupted) return;
  r->stop = r->interrupted = true;
  for (int i = 0; i < r->o->concurrency; i++)
    if (r->users[i].call) http_call_cancel(r->users[i].call);
  if (r->counting) r->res->interrupted = r->active;
  loop_stop(r->loop);
}

/* ---- finding the model ---- */

typedef struct lookup {
  run *r;
  buf body;
  int status;
  err e;
  bool ended;
} lookup;
static bool lookup_head(http_call *c, int status, void *ctx) {
  (void)c;
  ((lookup *)ctx)->status = status;
  return true;
}
static bool lookup_data(http_call *c, str d, void *ctx) {
  (void)c;
  return buf_str(&((lookup *)ctx)->body, d);
}
static void lookup_done(http_call *c, const err *e, void *ctx) {
  lookup *l = ctx;
  (void)c;
  if (e) l->e = *e;
  l->ended = true;
  loop_stop(l->r->loop);
}

static bool find_model(run *r, err *e) {
  char url[TARGET_URL + 16];
  lookup l = {.r = r};
  snprintf(url, sizeof url, "%s/models", r->to.base);
  const char *headers[] = {r->to.auth[0] ? r->to.auth : NULL, NULL};
  http_call_opts co = {.url = url, .headers = headers, .on_head = lookup_head, .on_data = lookup_data, .on_done = lookup_done, .ctx = &l};
  http_call *c;
  openai_reply p = {0};
  if (!http_call_start(r->client, &co, &c, e)) return false;
  buf_init(&l.body, MAX_BODY);
  loop_run(r->loop);
  if (!l.ended) http_call_cancel(c); /* interrupted, and l is about to go */
  bool json = openai_reply_parse(buf_view(&l.body), &p), ok = false;
  const char *id = json ? json_string_value(json_object_get(json_array_get(json_object_get(p.doc, "data"), 0), "id")) : NULL;
  if (r->interrupted) ok = true;
  else if (l.e.code) *e = l.e;
  else if (l.status == 200 && id) ok = snprintf(r->res->model, sizeof r->res->model, "%s", id) >= 0;
  else if (l.status == 401 || l.status == 403)
    err_set(e, ERR_AUTH, "%s/models: HTTP %d: %.200s", r->to.shown, l.status, p.error ? p.error : "a key is wanted");
  else err_set(e, ERR_INPUT, "%s/models names no model (HTTP %d): is this the base URL? If so, give --model", r->to.shown, l.status);
  openai_target_scrub(&r->to, e->msg);
  openai_reply_fini(&p);
  buf_fini(&l.body);
  return ok;
}

/* ---- the run ---- */

/* Two probes of known word counts tell how the server's tokenizer and template turn words into tokens. The second is no longer than what is asked
 * for, so that it fits where the load fits. */
static void calibrate(run *r) {
  int64_t tokens[2] = {0};
  const int words[2] = {PROBE_A, r->o->input_tokens < 2 * PROBE_A ? 2 * PROBE_A : r->o->input_tokens < PROBE_B ? r->o->input_tokens : PROBE_B};
  for (int i = 0; i < 2 && !r->stop; i++) {
    r->forced_words = words[i];
    if (phase(r, 1, 1, false)) tokens[i] = r->users[0].usage_in;
  }
  r->forced_words = 0;
  r->res->uncalibrated = tokens[0] <= 0 || tokens[1] <= 0;
  r->fit = r->res->uncalibrated ? (words_fit){0, 1} : words_calibrate(words[0], tokens[0], words[1], tokens[1]);
}

/* Each user holds a connection, and so a file. */
static bool want_files(int users, err *e) {
  struct rlimit l;
  rlim_t want = (rlim_t)users + SPARE_FDS;
  if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= want) return true;
  l.rlim_cur = l.rlim_max < want ? l.rlim_max : want;
  if (l.rlim_cur >= want && setrlimit(RLIMIT_NOFILE, &l) == 0) return true;
  return err_param(e, ERR_USAGE, "concurrency",
      "%d users need %llu open files, and this process may have %llu: lower --concurrency or raise `ulimit -n`", users, (unsigned long long)want,
      (unsigned long long)l.rlim_max);
}

static bool open_run(run *r, err *e) {
  const load_opts *o = r->o;
  if (!openai_target_set(&r->to, o->url, o->key, e) || !want_files(o->concurrency, e)) return false;
  snprintf(r->endpoint, sizeof r->endpoint, "%s/%s", r->to.base, o->completions ? "completions" : "chat/completions");
  snprintf(r->res->url, sizeof r->res->url, "%s", r->to.shown);
  r->loop = loop_new();
  r->client = r->loop ? http_client_new(r->loop, o->concurrency + 1) : NULL;
  r->users = calloc((size_t)o->concurrency, sizeof *r->users);
  if (!r->client || !r->users) return err_set(e, ERR_NOMEM, "out of memory for %d users", o->concurrency);
  for (int i = 0; i < o->concurrency; i++) {
    user *u = &r->users[i];
    u->r = r;
    buf_init(&u->body, MAX_BODY);
    buf_init(&u->reply, MAX_BODY);
    sse_init(&u->sse, 0, on_event, u);
  }
  return loop_on_signal(r->loop, SIGINT, on_int, r) ? true : err_set(e, ERR_IO, "cannot wait for signals");
}

static void close_run(run *r) {
  if (r->client) http_client_free(r->client);
  if (r->loop) loop_free(r->loop);
  for (int i = 0; r->users && i < r->o->concurrency; i++) {
    buf_fini(&r->users[i].body);
    buf_fini(&r->users[i].reply);
    sse_fini(&r->users[i].sse);
    stats_fini(&r->users[i].icl);
  }
  free(r->users);
}

/* Everything before the first measured request. */
static bool prepare(run *r, err *e) {
  const load_opts *o = r->o;
  if (o->model) snprintf(r->res->model, sizeof r->res->model, "%s", o->model);
  else if (!find_model(r, e)) return false;
  const char *what = "probe";
  if (!r->stop) calibrate(r);
  if (!r->stop && o->warmup > 0) {
    what = "warm-up";
    phase(r, o->concurrency, o->warmup, false);
  }
  if (!r->stop) return true;
  if (r->interrupted) return err_set(e, ERR_CANCELLED, "interrupted before the first measured request");
  *e = r->failure;
  return err_prefix(e, "the first %s request to %s failed", what, r->to.shown);
}

bool load_run(const load_opts *o, load_result *ret, err *e) {
  run r = {.o = o, .res = ret};
  *ret = (load_result){0};
  bool ok = open_run(&r, e) && prepare(&r, e);
  if (ok) {
    phase(&r, o->concurrency, o->requests, true);
    ret->span_s = r.last_done > r.first_sent ? (double)(r.last_done - r.first_sent) / 1e9 : 0;
  }
  show(&r, true);
  close_run(&r);
  return ok;
}

void load_result_fini(load_result *r) {
  stats_fini(&r->ttft);
  stats_fini(&r->itl);
  stats_fini(&r->icl);
  stats_fini(&r->tpot);
  stats_fini(&r->e2e);
}
