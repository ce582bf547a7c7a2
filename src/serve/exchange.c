#include "serve/exchange.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include <stdio.h>
#include <stdlib.h>

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
  loop_timer *tick;
  int64_t spoke; /* clock_now() of the last bytes written */
  char id[SERVER_ID];
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
  log_info("request", kv_s("id", x->id), kv_s("route", x->route), kv_i("status", left ? 499 : a->status), kv_i("stream", x->req->stream),
      kv_i("prompt", a->usage.prompt), kv_i("cached", a->usage.cached), kv_i("output", a->usage.output), kv_f("ttft_ms", ttft),
      kv_f("e2e_ms", clock_ms(clock_now() - x->info.accepted)),
      kv_s("error", left            ? "client left"
                    : a->error.code ? a->error.msg
                                    : ""));
}

static void end(exchange *x, bool left) {
  note_metrics(x, left);
  note_log(x, left);
  loop_timer_cancel(x->tick);
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
      .info = {.id = x->id, .created = clock_unix(), .model = p->name, .fingerprint = p->fingerprint, .accepted = http_accepted_ns(r)}};
  snprintf(x->id, sizeof x->id, "%s", id);
  if (answer_init(&x->answer, req, &x->info, &x->out, e)) return x;
  free(x);
  return NULL;
}

void exchange_start(server *s, http_req *r, const char *route, const api_dialect *d) {
  api_backend *b = server_serving(s)->backend;
  api_request *req = NULL;
  exchange *x = NULL;
  const char *id = server_request_id(s);
  err e = {0};
  if (server_hold(r, &e) && api_request_parse(d, http_body(r), &req, &e) && check(s, req, &e)) x = exchange_new(s, r, route, req, id, &e);
  if (!x) {
    api_request_unref(req);
    server_refuse(s, r, route, id, &e);
    return;
  }
  req->accepted = x->info.accepted;
  req->now = x->info.created;
  if (!req->has_seed) req->seed = rng_seed() & ((UINT64_C(1) << 53) - 1); /* a number every JSON reader keeps whole */
  headers(x);
  if (!b->start(b, req, &x->sink, &x->call, &e)) {
    answer_fail(&x->answer, &e);
    end(x, false);
    return;
  }
  http_on_close(r, on_leave, x);
  if (req->stream) arm(x, server_options(s)->keep_alive_ns);
}
