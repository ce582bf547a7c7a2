#include "serve/exchange.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "serve/stored.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  PARSE_HERE = 256 << 10, /* bytes of a body that the loop parses itself */
  HISTORY_MAX = 4 << 20   /* of the turns before: they are parsed there too */
};

typedef struct exchange {
  api_sink sink; /* first: events come back to it */
  server *server;
  http_req *http; /* NULL once the answer was given or the client has gone */
  const char *route;
  api_request *req;
  api_answer answer;
  api_info info;
  api_out out;
  api_call *call;
  uint64_t tenant;
  store_entry *before; /* the kept answer it goes on from; or NULL */
  loop_timer *tick;
  int64_t spoke; /* clock_now() of the last bytes written */
  char id[SERVER_ID], unique[32];
} exchange;

/* ---- api_out over http_req ---- */

static void out_header(void *ctx, const char *name, const char *value) { http_add(((exchange *)ctx)->http, name, "%s", value); }

static void out_whole(void *ctx, int status, const char *type, str body) {
  exchange *x = ctx;
  http_respond(x->http, status, type, body);
  x->http = NULL;
}

static void out_open(void *ctx, int status, const char *type) { http_stream_begin(((exchange *)ctx)->http, status, type); }

/* A reader too slow for the stream's bound is closed by the connection, which tells us through on_close. */
static void out_write(void *ctx, str bytes) {
  exchange *x = ctx;
  http_stream_write(x->http, bytes);
  x->spoke = clock_now();
}

static void out_close(void *ctx) {
  exchange *x = ctx;
  http_stream_end(x->http);
  x->http = NULL;
}

/* ---- the end ---- */

static void note_metrics(const exchange *x, bool left) {
  metrics *m = server_metrics(x->server);
  const api_answer *a = &x->answer;
  metrics_request(m, x->route, server_serving(x->server)->backend->name, left ? 499 : a->status);
  if (!a->times.done || !a->times.accepted) return;
  int64_t inside = a->times.done - a->times.accepted;
  metrics_observe(m, HIST_OVERHEAD, (double)(clock_now() - x->info.accepted - inside) / 1e9);
}

static void note_log(const exchange *x, bool left) {
  const api_answer *a = &x->answer;
  const api_times *t = &a->times;
  double ttft = t->first ? clock_ms(t->first - x->info.accepted) : 0;
  const char *why = left ? "client left" : a->error.code ? a->error.msg : NULL;
  log_info("request", kv_s("id", x->id), kv_s("route", x->route), kv_i("status", left ? 499 : a->status), kv_i("stream", x->req->stream),
      kv_i("prompt", a->usage.prompt), kv_i("cached", a->usage.cached), kv_i("output", a->usage.output), kv_f("ttft_ms", ttft),
      kv_f("e2e_ms", clock_ms(clock_now() - x->info.accepted)), why ? kv_s("error", why) : (log_kv){0});
}

/* Keeps a good answer, where the request allows it and its dialect can go on from one. One that is over the store's bound is not kept. */
static void keep(const exchange *x) {
  const api_dialect *d = x->req->dialect;
  char id[STORE_ID];
  buf body, in, out;
  if (!d->resume || !x->req->store || x->answer.error.code) return;
  snprintf(id, sizeof id, "%s%s", d->prefix, x->unique);
  buf_init(&body, STORE_BYTES);
  buf_init(&in, STORE_BYTES);
  buf_init(&out, STORE_BYTES);
  d->whole(&x->answer, &body);
  d->input(&x->answer, &in);
  d->output(&x->answer, &out);
  store_turn t = {str_c(id), buf_view(&body), buf_view(&in), buf_view(&out)};
  bool kept = !body.failed && !in.failed && !out.failed && store_put(server_store(x->server), x->tenant, &t, x->before);
  if (!kept) log_warn("not kept", kv_s("id", x->id), kv_i("bytes", (int64_t)(body.n + in.n + out.n)));
  buf_fini(&body);
  buf_fini(&in);
  buf_fini(&out);
}

static void end(exchange *x, bool left) {
  note_metrics(x, left);
  note_log(x, left);
  loop_timer_cancel(x->tick);
  store_release(server_store(x->server), x->before);
  answer_fini(&x->answer);
  api_request_unref(x->req);
  free(x);
}

static void on_event(api_sink *s, const api_event *ev) {
  exchange *x = (exchange *)s;
  answer_event(&x->answer, ev);
  if (!x->answer.done) return;
  bool last = ev->kind == API_USAGE || ev->kind == API_ERROR;
  if (!last) { /* our own bound ended it: the backend does not know yet */
    api_backend *b = server_serving(x->server)->backend;
    b->cancel(b, x->call);
  }
  if (ev->kind == API_USAGE) keep(x);
  end(x, false);
}

static void on_leave(http_req *r, void *arg) {
  (void)r;
  exchange *x = arg;
  api_backend *b = server_serving(x->server)->backend;
  x->http = NULL;
  b->cancel(b, x->call);
  end(x, true);
}

/* ---- silence ---- */

static void on_tick(void *arg);

static void arm(exchange *x, int64_t ns) { x->tick = loop_after(server_loop(x->server), ns, on_tick, x); }

static void on_tick(void *arg) {
  exchange *x = arg;
  int64_t limit = server_options(x->server)->keep_alive_ns, quiet = clock_now() - x->spoke;
  x->tick = NULL;
  if (quiet >= limit) {
    answer_keep_alive(&x->answer);
    quiet = 0;
  }
  arm(x, limit - quiet);
}

/* ---- the beginning ---- */

static bool check(server *s, const api_request *r, err *e) {
  int max = server_options(s)->max_n;
  if (!server_knows(s, r->model, e)) return false;
  if (r->n > max) return err_param(e, ERR_INPUT, "n", "'n' is %d: this server allows at most %d", r->n, max);
  if (r->best_of > max) return err_param(e, ERR_INPUT, "best_of", "'best_of' is %d: this server allows at most %d", r->best_of, max);
  return true;
}

static void headers(const exchange *x) {
  http_add(x->http, "x-weir-model", "%s", x->info.model);
  http_add(x->http, "x-weir-seed", "%lld", (long long)x->req->seed);
  if (*x->req->ignored) http_add(x->http, "x-weir-ignored", "%s", x->req->ignored);
}

static exchange *exchange_new(server *s, http_req *r, const char *route, api_request *req, const char *id, err *e) {
  const server_parts *p = server_serving(s);
  exchange *x = calloc(1, sizeof *x);
  if (!x) {
    err_set(e, ERR_NOMEM, "out of memory for a request");
    return NULL;
  }
  *x = (exchange){.sink = {on_event},
      .server = s,
      .http = r,
      .route = route,
      .req = req,
      .spoke = clock_now(),
      .out = {x, out_header, out_whole, out_open, out_write, out_close},
      .info = {x->id, clock_unix(), p->name, p->fingerprint, http_accepted_ns(r), x->unique}};
  snprintf(x->id, sizeof x->id, "%s", id);
  snprintf(x->unique, sizeof x->unique, "%016llx%08llx", (unsigned long long)rng_seed(), (unsigned long long)rng_seed() & 0xffffffff);
  if (answer_init(&x->answer, req, &x->info, &x->out, e)) return x;
  free(x);
  return NULL;
}

/* Puts the turns of the kept answer it goes on from before a request's own. */
static bool go_on(server *s, http_req *r, api_request *req, uint64_t tenant, store_entry **ret, err *e) {
  json_t *past = NULL;
  if (!req->previous.n) return true;
  store_entry *x = store_find(server_store(s), tenant, req->previous);
  if (!x) return stored_unknown(req->previous, "previous_response_id", e);
  buf text;
  buf_init(&text, HISTORY_MAX);
  bool ok = store_history(x, &text, e) || err_prefix(e, "'previous_response_id'");
  if (ok && !http_hold(r, json_cost(buf_view(&text))))
    ok = err_set(e, ERR_BUSY, "the requests at hand take as much memory as they may: try again in a moment");
  ok = ok && json_parse(buf_view(&text), &past, e) && req->dialect->resume(req, past, e);
  json_decref(past);
  buf_fini(&text);
  if (ok) *ret = x;
  else store_release(server_store(s), x);
  return ok;
}

/* A request as it was parsed (or not: *e) goes to the backend. Takes req. */
static void proceed(server *s, http_req *r, const char *route, api_request *req, const char *id, uint64_t tenant, err *e) {
  api_backend *b = server_serving(s)->backend;
  exchange *x = NULL;
  store_entry *before = NULL;
  if (req && check(s, req, e) && go_on(s, r, req, tenant, &before, e)) x = exchange_new(s, r, route, req, id, e);
  if (!x) {
    store_release(server_store(s), before);
    api_request_unref(req);
    server_refuse(s, r, route, id, e);
    return;
  }
  x->tenant = tenant;
  x->before = before;
  req->accepted = x->info.accepted;
  req->now = x->info.created;
  if (!req->has_seed) req->seed = rng_seed() & ((UINT64_C(1) << 53) - 1); /* a number every JSON reader keeps whole */
  headers(x);
  if (!b->start(b, req, &x->sink, &x->call, e)) {
    answer_fail(&x->answer, e);
    end(x, false);
    return;
  }
  http_on_close(r, on_leave, x);
  if (req->stream) arm(x, server_options(s)->keep_alive_ns);
}

/* ---- reading: a body that takes a while is parsed on a worker, from a copy that outlives its client ---- */

typedef struct reading {
  server *server;
  http_req *http; /* NULL: the client has gone */
  atomic_bool left;
  const char *route;
  const api_dialect *dialect;
  uint64_t tenant;
  buf body;
  api_request *req;
  err error;
  char id[SERVER_ID];
} reading;

static void read_run(void *arg) {
  reading *d = arg;
  if (!atomic_load(&d->left)) api_request_parse(d->dialect, buf_view(&d->body), &d->req, &d->error);
}

static void read_done(void *arg) {
  reading *d = arg;
  if (d->http) proceed(d->server, d->http, d->route, d->req, d->id, d->tenant, &d->error);
  else api_request_unref(d->req);
  buf_fini(&d->body);
  free(d);
}

static void read_leave(http_req *r, void *arg) {
  reading *d = arg;
  (void)r;
  d->http = NULL;
  atomic_store(&d->left, true);
  metrics_request(server_metrics(d->server), d->route, server_serving(d->server)->backend->name, 499);
}

static bool read_later(server *s, http_req *r, const char *route, const api_dialect *dialect, err *e) {
  str body = http_body(r);
  if (!http_hold(r, body.n)) return err_set(e, ERR_BUSY, "the requests at hand take as much memory as they may: try again in a moment");
  reading *d = calloc(1, sizeof *d);
  if (!d) return err_set(e, ERR_NOMEM, "out of memory for a request");
  *d = (reading){.server = s, .http = r, .route = route, .dialect = dialect, .tenant = server_tenant(s)};
  snprintf(d->id, sizeof d->id, "%s", server_request_id(s));
  buf_init(&d->body, SIZE_MAX / 4);
  bool ok = buf_str(&d->body, body) || err_set(e, ERR_NOMEM, "out of memory for a request of %zu bytes", body.n);
  if (ok && !work_add(server_work(s), read_run, read_done, d)) ok = err_set(e, ERR_BUSY, "too many requests are waiting: try again in a moment");
  if (ok) {
    http_on_close(r, read_leave, d);
    return true;
  }
  buf_fini(&d->body);
  free(d);
  return false;
}

void exchange_start(server *s, http_req *r, const char *route, const api_dialect *d) {
  api_request *req = NULL;
  const char *id = server_request_id(s);
  err e = {0};
  bool held = server_hold(r, &e), big = http_body(r).n > PARSE_HERE;
  if (held && big && read_later(s, r, route, d, &e)) return;
  if (held && !big) api_request_parse(d, http_body(r), &req, &e);
  proceed(s, r, route, req, id, server_tenant(s), &e);
}
