#include "load/driver.h"
#include "api/openai_reply.h"
#include "base/clock.h"
#include "base/json.h"
#include "load/words.h"
#include "net/http_client.h"
#include "net/sse.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BODY = 1 << 24, PROBE_A = 8, PROBE_B = 40 };

typedef struct run run;
typedef struct user {
  run *r;
  http_call *call;
  buf body, reply;          /* reply: whole answer when not streamed, or an error's body */
  sse sse;
  bool busy, counted, bad_json;   /* counted: part of the measurement, not of the warm-up */
  int status;
  int64_t sent, first, last, usage_in, usage_cached, usage_out;
  int chunks;
  stats icl;                /* of this request; joined to the run's when it ends well */
} user;

struct run {
  const load_opts *o;
  load_result *res;
  loop *loop;
  http_client *client;
  char *endpoint;
  char auth[600];
  user *users;
  words_fit fit;
  int started, finished, target, active;
  uint64_t number;          /* of prompts made, so that none comes twice */
  bool counting, stop;
  int64_t first_sent, last_done, shown;
  int forced_words;         /* > 0: probe */
};

/* ---- request bodies ---- */

static void write_body(run *r, user *u) {
  const load_opts *o = r->o;
  int words = r->forced_words ? r->forced_words : words_for(r->fit, o->input_tokens), out = r->forced_words ? 1 : o->output_tokens;
  buf *b = &u->body;
  buf_clear(b);
  buf_puts(b, "{\"model\":\"");
  buf_json(b, str_c(r->res->model));
  buf_puts(b, o->completions ? "\",\"prompt\":\"" : "\",\"messages\":[{\"role\":\"user\",\"content\":\"");
  words_prompt(b, o->seed, r->number++, words);
  buf_puts(b, o->completions ? "\"" : "\"}]");
  buf_printf(b, ",\"max_tokens\":%d,\"temperature\":%.6g", out, o->temperature);
  if (o->ignore_eos) buf_puts(b, ",\"ignore_eos\":true");
  if (!o->no_stream && !r->forced_words) buf_puts(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  buf_putc(b, '}');
}

/* ---- answers ---- */

static void read_usage(user *u, const openai_reply *p) {
  if (!p->has_usage) return;
  u->usage_in = p->tokens_in;
  u->usage_out = p->tokens_out;
  u->usage_cached = p->tokens_cached;
}

static bool on_event(str event, str data, void *ctx) {
  user *u = ctx;
  int64_t now = clock_now();
  (void)event;
  if (str_is(data, "[DONE]")) return true;
  openai_reply p;
  if (!openai_reply_parse(data, &p)) { u->bad_json = true; return true; }
  if (p.error) {
    buf_clear(&u->reply);
    buf_str(&u->reply, data);
    u->bad_json = true;
  } else if (p.output) {
    if (!u->first) u->first = now;
    else stats_add(&u->icl, clock_ms(now - u->last));
    u->last = now;
    u->chunks++;
  }
  read_usage(u, &p);
  openai_reply_fini(&p);
  return true;
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
  if (u->status == 200 && !u->r->o->no_stream && !u->r->forced_words) return sse_feed(&u->sse, data, &e);
  return buf_str(&u->reply, data);
}

static void count_error(load_result *res, const char *what) {
  res->failed++;
  for (int i = 0; i < res->n_errors; i++)
    if (strcmp(res->errors[i].what, what) == 0 || i == LOAD_ERR_KINDS - 1) { res->errors[i].n++; return; }
  load_error *le = &res->errors[res->n_errors++];
  snprintf(le->what, sizeof le->what, "%.150s", res->n_errors == LOAD_ERR_KINDS ? "other" : what);
  le->n = 1;
}

/* "HTTP 404: The model 'x' does not exist" from whatever body came. */
static void describe(const user *u, const err *e, char out[160]) {
  openai_reply p = {0};
  if (e) { snprintf(out, 160, "%.150s", e->msg); return; }
  if (u->reply.n && openai_reply_parse(buf_view(&u->reply), &p) && p.error) snprintf(out, 160, "HTTP %d: %.140s", u->status, p.error);
  else if (u->bad_json) snprintf(out, 160, "HTTP %d: the stream holds a chunk that is not JSON", u->status);
  else snprintf(out, 160, "HTTP %d: %s", u->status, u->status == 200 ? "the answer has no output" : "no error message");
  openai_reply_fini(&p);
}

static void count_good(run *r, user *u, int64_t done) {
  load_result *res = r->res;
  int64_t out = u->usage_out > 0 ? u->usage_out : u->chunks;
  res->completed++;
  res->input_tokens += u->usage_in;
  res->cached_tokens += u->usage_cached;
  res->output_tokens += out;
  if (u->usage_out <= 0) res->counted_by_chunks++;
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
  fprintf(stderr, "\r%s %d/%d done, %d failed, %d running \x1b[K%s", r->counting ? "measuring" : "warming up", r->finished, r->target, r->res->failed, r->active,
    end ? "\n" : "");
}

static void on_done(http_call *c, const err *e, void *ctx) {
  user *u = ctx;
  run *r = u->r;
  http_moments m = http_call_moments(c);
  int64_t done = m.done ? m.done : clock_now();
  bool streamed = !r->o->no_stream && !r->forced_words, good = !e && u->status == 200 && !u->bad_json;
  u->call = NULL;
  u->busy = false;
  r->active--;
  r->finished++;
  if (good && !streamed) {
    openai_reply p;
    good = openai_reply_parse(buf_view(&u->reply), &p);
    if (good) { read_usage(u, &p); openai_reply_fini(&p); }
  } else if (good) good = u->first > 0;
  if (u->counted) {
    if (done > r->last_done) r->last_done = done;
    if (good) count_good(r, u, done);
    else {
      char what[160];
      describe(u, e, what);
      count_error(r->res, what);
    }
  } else if (!good) {   /* a probe or warm-up that fails ends the run: nothing would be measured after it */
    char what[160];
    describe(u, e, what);
    if (!r->res->n_errors) snprintf(r->res->errors[r->res->n_errors++].what, sizeof r->res->errors[0].what, "%s", what);
    r->stop = true;
  }
  show(r, false);
  if (!r->stop && r->started < r->target) start(u);
  else if (!r->active) loop_stop(r->loop);
}

static void start(user *u) {
  run *r = u->r;
  err e;
  write_body(r, u);
  buf_clear(&u->reply);
  sse_fini(&u->sse);
  sse_init(&u->sse, 0, on_event, u);
  u->icl.n = 0;
  u->status = u->chunks = 0;
  u->first = u->last = u->usage_in = u->usage_out = u->usage_cached = 0;
  u->bad_json = false;
  u->busy = true;
  u->counted = r->counting;
  const char *headers[] = {"Content-Type: application/json", r->auth[0] ? r->auth : NULL, NULL};
  http_call_opts co = {.url = r->endpoint, .headers = headers, .body = buf_view(&u->body), .on_head = on_head, .on_data = on_data, .on_done = on_done, .ctx = u};
  r->started++;
  r->active++;
  u->sent = clock_now();
  if (u->counted) {
    r->res->sent++;
    if (!r->first_sent) r->first_sent = u->sent;
  }
  if (http_call_start(r->client, &co, &u->call, &e)) return;
  r->active--;
  r->finished++;
  u->busy = false;
  count_error(r->res, e.msg);
  r->stop = true;
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
  r->stop = true;
  r->res->interrupted = r->active;
  for (int i = 0; i < r->o->concurrency; i++)
    if (r->users[i].busy) {
      http_call_cancel(r->users[i].call);
      r->users[i].busy = false;
    }
  loop_stop(r->loop);
}

/* ---- finding the model ---- */

typedef struct lookup { run *r; buf body; int status; err e; bool ok; } lookup;
static bool lookup_head(http_call *c, int status, void *ctx) { (void)c; ((lookup *)ctx)->status = status; return true; }
static bool lookup_data(http_call *c, str d, void *ctx) { (void)c; return buf_str(&((lookup *)ctx)->body, d); }
static void lookup_done(http_call *c, const err *e, void *ctx) {
  lookup *l = ctx;
  (void)c;
  if (e) l->e = *e;
  else l->ok = true;
  loop_stop(l->r->loop);
}

static bool find_model(run *r, const char *base, err *e) {
  char url[2048];
  lookup l = {.r = r};
  buf_init(&l.body, MAX_BODY);
  snprintf(url, sizeof url, "%s/models", base);
  const char *headers[] = {r->auth[0] ? r->auth : NULL, NULL};
  http_call_opts co = {.url = url, .headers = headers, .on_head = lookup_head, .on_data = lookup_data, .on_done = lookup_done, .ctx = &l};
  http_call *c;
  json_t *doc = NULL;
  bool ok = http_call_start(r->client, &co, &c, e);
  if (ok) {
    loop_run(r->loop);
    const char *id = NULL;
    if (l.ok && l.status == 200 && json_parse(buf_view(&l.body), &doc, NULL))
      id = json_string_value(json_object_get(json_array_get(json_object_get(doc, "data"), 0), "id"));
    if (id) snprintf(r->res->model, sizeof r->res->model, "%s", id);
    else if (!l.ok) ok = err_set(e, l.e.code, "%s", l.e.msg);
    else ok = err_set(e, ERR_INPUT, "%s answers %d and names no model: give one with --model", url, l.status);
  }
  json_decref(doc);
  buf_fini(&l.body);
  return ok;
}

/* Two probes of known word counts tell how the server's tokenizer and template turn words into tokens. */
static bool calibrate(run *r, err *e) {
  int64_t tokens[2];
  const int words[2] = {PROBE_A, PROBE_B};
  for (int i = 0; i < 2; i++) {
    r->forced_words = words[i];
    if (!phase(r, 1, 1, false)) break;
    tokens[i] = r->users[0].usage_in;
  }
  r->forced_words = 0;
  if (r->stop) return err_set(e, ERR_NET, "the probe request failed: %s", r->res->n_errors ? r->res->errors[0].what : "interrupted");
  r->fit = tokens[0] > 0 ? words_calibrate(words[0], tokens[0], words[1], tokens[1]) : (words_fit){0, 1};
  return true;
}

static bool base_url(const char *url, char *out, size_t n, err *e) {
  size_t len = strlen(url);
  if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
    return err_param(e, ERR_USAGE, "url", "--url must begin with http:// or https://, not '%.100s'", url);
  while (len && url[len - 1] == '/') len--;
  bool v1 = len > 3 && memcmp(url + len - 3, "/v1", 3) == 0;
  if ((size_t)snprintf(out, n, "%.*s%s", (int)len, url, v1 ? "" : "/v1") >= n) return err_param(e, ERR_USAGE, "url", "--url is too long");
  return true;
}

bool load_run(const load_opts *o, load_result *ret, err *e) {
  char base[1024], endpoint[1200];
  run r = {.o = o, .res = ret};
  bool ok = false;
  *ret = (load_result){0};
  if (!base_url(o->url, base, sizeof base, e)) return false;
  snprintf(endpoint, sizeof endpoint, "%s/%s", base, o->completions ? "completions" : "chat/completions");
  r.endpoint = endpoint;
  if (o->key) snprintf(r.auth, sizeof r.auth, "Authorization: Bearer %s", o->key);
  r.loop = loop_new();
  r.client = r.loop ? http_client_new(r.loop, o->concurrency + 1) : NULL;
  r.users = calloc((size_t)o->concurrency, sizeof *r.users);
  if (!r.client || !r.users) { err_set(e, ERR_NOMEM, "out of memory for %d users", o->concurrency); goto out; }
  for (int i = 0; i < o->concurrency; i++) {
    user *u = &r.users[i];
    u->r = &r;
    buf_init(&u->body, MAX_BODY);
    buf_init(&u->reply, MAX_BODY);
    sse_init(&u->sse, 0, on_event, u);
  }
  loop_on_signal(r.loop, SIGINT, on_int, &r);
  if (o->model) snprintf(ret->model, sizeof ret->model, "%s", o->model);
  else if (!find_model(&r, base, e)) goto out;
  if (!calibrate(&r, e)) goto out;
  if (o->warmup > 0 && !phase(&r, o->concurrency, o->warmup, false)) {
    err_set(e, ERR_NET, "the warm-up failed: %s", ret->n_errors ? ret->errors[0].what : "interrupted");
    goto out;
  }
  phase(&r, o->concurrency, o->requests, true);
  show(&r, true);
  ret->span_s = r.last_done > r.first_sent ? (double)(r.last_done - r.first_sent) / 1e9 : 0;
  ok = ret->completed > 0 ? true : err_set(e, ERR_NET, "no request was answered: %s", ret->n_errors ? ret->errors[0].what : "interrupted");
out:
  for (int i = 0; r.users && i < o->concurrency; i++) {
    buf_fini(&r.users[i].body);
    buf_fini(&r.users[i].reply);
    sse_fini(&r.users[i].sse);
    stats_fini(&r.users[i].icl);
  }
  free(r.users);
  if (r.client) http_client_free(r.client);
  if (r.loop) loop_free(r.loop);
  return ok;
}

void load_result_fini(load_result *r) {
  stats_fini(&r->ttft);
  stats_fini(&r->itl);
  stats_fini(&r->icl);
  stats_fini(&r->tpot);
  stats_fini(&r->e2e);
}
