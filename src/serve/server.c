#include "serve/server.h"
#include "api/openai_common.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "dash/page.h"
#include "serve/exchange.h"
#include "serve/stored.h"
#include "serve/tokens.h"
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 2, WORK_QUEUE = 1024, PAGE_MAX = 1 << 20 };

typedef enum server_state { LOADING, READY, DRAINING } server_state;

struct server {
  loop *loop;
  http_server *http;
  work *work;
  metrics *metrics;
  store *store;
  server_opts opts;
  server_parts parts;
  server_state state;
  int64_t started;    /* Unix seconds: "created" of the model */
  char id[SERVER_ID]; /* of the request being handled, and whose it is */
  uint64_t tenant;
};

/* ---- paths ---- */

typedef struct server_route {
  const char *method, *path; /* path: also the label in metrics and logs */
  void (*handle)(server *s, http_req *r, const struct server_route *t, str rest);
  bool both;                  /* under /v1 as well */
  bool open;                  /* needs no key */
  bool early;                 /* answers while the model is loading */
  bool prefix;                /* the path goes on: /v1/models/{id} */
  const api_dialect *dialect; /* of its answers, errors and those of paths below it; NULL: OpenAI's */
} server_route;

static void on_page(server *s, http_req *r, const server_route *t, str rest);
static void on_health(server *s, http_req *r, const server_route *t, str rest);
static void on_ready(server *s, http_req *r, const server_route *t, str rest);
static void on_metrics(server *s, http_req *r, const server_route *t, str rest);
static void on_models(server *s, http_req *r, const server_route *t, str rest);
static void on_model(server *s, http_req *r, const server_route *t, str rest);

static void on_text(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  exchange_start(s, r, t->path, t->dialect);
}
static void on_tokenize(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  tokens_start(s, r, t->path, TOKENS_ENCODE);
}
static void on_detokenize(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  tokens_start(s, r, t->path, TOKENS_DECODE);
}
static void on_template(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  tokens_start(s, r, t->path, TOKENS_TEMPLATE);
}

static void on_count(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  tokens_start(s, r, t->path, TOKENS_COUNT);
}
static void on_stored(server *s, http_req *r, const server_route *t, str rest) { stored_get(s, r, t->path, rest); }
static void on_delete(server *s, http_req *r, const server_route *t, str rest) { stored_delete(s, r, t->path, rest); }

static const server_route routes[] = {
    {"GET", "/", on_page, .open = true, .early = true},
    {"POST", "/v1/chat/completions", on_text, .dialect = &api_openai_chat},
    {"POST", "/v1/completions", on_text, .dialect = &api_openai_completions},
    {"POST", "/v1/responses", on_text, .dialect = &api_openai_responses},
    {"GET", "/v1/responses/", on_stored, .prefix = true},
    {"DELETE", "/v1/responses/", on_delete, .prefix = true},
    {"POST", "/v1/messages", on_text, .dialect = &api_anthropic_messages},
    {"POST", "/v1/messages/count_tokens", on_count, .dialect = &api_anthropic_messages},
    {"GET", "/v1/models", on_models},
    {"GET", "/v1/models/", on_model, .prefix = true},
    {"POST", "/tokenize", on_tokenize, .both = true},
    {"POST", "/detokenize", on_detokenize, .both = true},
    {"POST", "/apply-template", on_template, .both = true},
    {"GET", "/health", on_health, .open = true, .early = true},
    {"GET", "/ready", on_ready, .open = true, .early = true},
    {"GET", "/metrics", on_metrics, .early = true},
};

static bool method_fits(const server_route *t, str method) {
  return str_is(method, t->method) || (!strcmp(t->method, "GET") && str_is(method, "HEAD"));
}

/* Which dialect an answer of our own is given in: that of the route the path is or continues. */
static const api_dialect *dialect_of(str path) {
  for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
    str p = str_c(routes[i].path);
    if (routes[i].dialect && str_starts(path, p) && (path.n == p.n || path.p[p.n] == '/')) return routes[i].dialect;
  }
  return &api_openai_chat;
}

static void refusal(str path, const err *e, buf *out) { dialect_of(path)->error(e, out); }

/* The route for a path; *ret_rest is what follows a prefix. NULL with ERR_NOT_FOUND, or ERR_METHOD when only the method is wrong. */
static const server_route *find_route(http_req *r, str *ret_rest, err *e) {
  str path = http_path(r), method = http_method(r), bare = path;
  char allow[64] = "";
  if (str_starts(path, STR("/v1/"))) bare = (str){path.p + 3, path.n - 3};
  for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
    const server_route *t = &routes[i];
    str p = t->both ? bare : path, want = str_c(t->path);
    if (!(t->prefix ? str_starts(p, want) && p.n > want.n : str_eq(p, want))) continue;
    if (!method_fits(t, method)) {
      size_t n = strlen(allow);
      snprintf(allow + n, sizeof allow - n, "%s%s", n ? ", " : "", t->method);
      continue;
    }
    *ret_rest = (str){p.p + want.n, p.n - want.n};
    return t;
  }
  if (*allow) {
    http_add(r, "Allow", "%s", allow);
    err_set(e, ERR_METHOD, "%.*s does not go with %.*s: use %s", (int)(method.n < 20 ? method.n : 20), method.p, (int)(path.n < 100 ? path.n : 100),
        path.p, allow);
  } else
    err_set(e, ERR_NOT_FOUND, "there is no %.*s here: the API is under /v1, for example POST /v1/chat/completions",
        (int)(path.n < 100 ? path.n : 100), path.p);
  return NULL;
}

static bool allowed(server *s, http_req *r, const server_route *t, err *e) {
  if (s->opts.keys && !t->open && !keys_check(s->opts.keys, http_header(r, "authorization"), http_header(r, "x-api-key"), e)) {
    http_add(r, "WWW-Authenticate", "Bearer");
    return false;
  }
  if (s->state != LOADING || t->early) return true;
  return err_set(e, ERR_BUSY, "the model is loading: try again in a moment, or wait for /ready");
}

static bool sane_id(str s) {
  if (!s.n || s.n >= SERVER_ID) return false;
  for (size_t i = 0; i < s.n; i++) {
    char c = s.p[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' || c == ':')) return false;
  }
  return true;
}

static void name_request(server *s, http_req *r) {
  str own = http_header(r, "x-request-id");
  if (sane_id(own)) {
    memcpy(s->id, own.p, own.n);
    s->id[own.n] = 0;
  } else snprintf(s->id, SERVER_ID, "%016llx%08llx", (unsigned long long)rng_seed(), (unsigned long long)rng_seed() & 0xffffffff);
  http_add(r, "X-Request-Id", "%s", s->id);
}

const char *server_request_id(const server *s) { return s->id; }
uint64_t server_tenant(const server *s) { return s->tenant; }
store *server_store(server *s) { return s->store; }

static void handle(http_req *r, void *ctx) {
  server *s = ctx;
  err e = {0};
  str rest = {NULL, 0};
  const api_dialect *d = dialect_of(http_path(r));
  name_request(s, r);
  if (d->id_header) http_add(r, d->id_header, "%s", s->id);
  s->tenant = s->opts.keys ? keys_tenant(http_header(r, "authorization"), http_header(r, "x-api-key")) : 0;
  const server_route *t = find_route(r, &rest, &e);
  if (t && allowed(s, r, t, &e)) t->handle(s, r, t, rest);
  else server_refuse(s, r, t ? t->path : "none", s->id, &e);
}

/* ---- answers ---- */

static const char *backend_name(const server *s) { return s->state == LOADING ? "none" : s->parts.backend->name; }

void server_refuse(server *s, http_req *r, const char *route, const char *id, const err *e) {
  buf b;
  int status = err_lookup(e->code)->http;
  buf_init(&b, PAGE_MAX);
  metrics_request(s->metrics, route, backend_name(s), status);
  log_info("refused", kv_s("id", id), kv_s("route", route), kv_i("status", status), kv_s("param", e->param), kv_s("error", e->msg));
  if (e->code == ERR_BUSY) http_add(r, "Retry-After", "1");
  dialect_of(http_path(r))->error(e, &b);
  http_respond(r, status, "application/json", buf_view(&b));
  buf_fini(&b);
}

void server_answer(server *s, http_req *r, const char *route, const char *type, str body) {
  metrics_request(s->metrics, route, backend_name(s), 200);
  http_respond(r, 200, type, body);
}

/* What parsing refuses anyway is not counted: its refusal says more. */
bool server_hold(http_req *r, err *e) {
  uint64_t cost = json_cost(http_body(r));
  if (cost > JSON_COST_MAX || http_hold(r, cost)) return true;
  return err_set(e, ERR_BUSY, "the requests at hand take as much memory as they may: try again in a moment");
}

bool server_knows(const server *s, str name, err *e) {
  if (!name.n || str_is(name, s->parts.name)) return true;
  return err_param(e, ERR_NOT_FOUND, "model", "the model '%.100s' is not served here: this server has '%s'", name.p, s->parts.name);
}

/* ---- small pages ---- */

/* The page itself is no secret: what it asks for wants the key. */
static void on_page(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  const page *p = page_chat();
  bool fresh = page_fresh(p, http_header(r, "if-none-match"));
  http_add(r, "ETag", "%s", p->etag);
  http_add(r, "Cache-Control", "no-cache"); /* kept, but asked after: another version of the program may stand here tomorrow */
  http_add(r, "Content-Security-Policy", "%s", p->policy);
  http_add(r, "X-Content-Type-Options", "nosniff");
  http_add(r, "Referrer-Policy", "no-referrer");
  metrics_request(s->metrics, t->path, backend_name(s), fresh ? 304 : 200);
  http_respond(r, fresh ? 304 : 200, p->type, fresh ? STR("") : p->body);
}

static void on_health(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  server_answer(s, r, t->path, "application/json", STR("{\"status\":\"ok\"}"));
}

static void on_ready(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  if (s->state == READY) {
    server_answer(s, r, t->path, "application/json", STR("{\"status\":\"ready\"}"));
    return;
  }
  metrics_request(s->metrics, t->path, backend_name(s), 503);
  http_add(r, "Retry-After", "1");
  http_respond(r, 503, "application/json", s->state == LOADING ? STR("{\"status\":\"loading\"}") : STR("{\"status\":\"draining\"}"));
}

static void on_metrics(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  metrics_state st = {.model = s->parts.name ? s->parts.name : "", .ctx = s->parts.ctx, .ready = s->state == READY};
  if (s->parts.gauges) s->parts.gauges(s->parts.gauges_ctx, &st.g);
  buf b;
  buf_init(&b, PAGE_MAX);
  metrics_write(s->metrics, &st, &b);
  server_answer(s, r, t->path, "text/plain; version=0.0.4; charset=utf-8", buf_view(&b));
  buf_fini(&b);
}

static void write_model(const server *s, buf *b) {
  buf_puts(b, "{\"id\":\"");
  buf_json(b, str_c(s->parts.name));
  buf_printf(b, "\",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"weir\",\"max_model_len\":%d}", (long long)s->started, s->parts.ctx);
}

static void on_models(server *s, http_req *r, const server_route *t, str rest) {
  (void)rest;
  buf b;
  buf_init(&b, PAGE_MAX);
  buf_puts(&b, "{\"object\":\"list\",\"data\":[");
  write_model(s, &b);
  buf_puts(&b, "]}");
  server_answer(s, r, t->path, "application/json", buf_view(&b));
  buf_fini(&b);
}

static void on_model(server *s, http_req *r, const server_route *t, str rest) {
  err e = {0};
  char name[256];
  snprintf(name, sizeof name, "%.*s", (int)(rest.n < 255 ? rest.n : 255), rest.p);
  if (!server_knows(s, str_c(name), &e)) {
    server_refuse(s, r, t->path, s->id, &e);
    return;
  }
  buf b;
  buf_init(&b, PAGE_MAX);
  write_model(s, &b);
  server_answer(s, r, t->path, "application/json", buf_view(&b));
  buf_fini(&b);
}

/* ---- life ---- */

bool server_new(loop *l, const server_opts *o, server **ret, err *e) {
  server *s = calloc(1, sizeof *s);
  if (!s) return err_set(e, ERR_NOMEM, "out of memory for the server");
  *s = (server){.loop = l, .opts = *o, .started = clock_unix()};
  if (!s->opts.max_n) s->opts.max_n = API_MAX_CHOICES;
  if (!s->opts.keep_alive_ns) s->opts.keep_alive_ns = INT64_C(10000000000);
  http_opts h = {
      .host = o->host, .port = o->port, .max_body = o->max_body, .max_conns = o->max_conns, .handler = handle, .ctx = s, .refusal = refusal};
  s->metrics = metrics_new();
  s->work = work_new(l, WORKERS, WORK_QUEUE);
  s->store = store_new(o->store_count, o->store_bytes);
  bool ok = s->metrics && s->work && s->store ? http_server_new(l, &h, &s->http, e) : err_set(e, ERR_NOMEM, "out of memory for the server");
  if (!ok) {
    work_free(s->work);
    metrics_free(s->metrics);
    store_free(s->store);
    free(s);
    return false;
  }
  *ret = s;
  return true;
}

void server_ready(server *s, const server_parts *p) {
  s->parts = *p;
  if (s->state == LOADING) s->state = READY;
}

void server_drain(server *s, loop_fn done, void *arg) {
  if (s->state == READY) s->state = DRAINING;
  http_server_drain(s->http, done, arg);
}

void server_stop(server *s) {
  http_server_free(s->http);
  s->http = NULL;
  work_free(s->work);
  s->work = NULL;
}

void server_free(server *s) {
  if (!s) return;
  metrics_free(s->metrics);
  store_free(s->store);
  free(s);
}

int server_port(const server *s) { return http_server_port(s->http); }
metrics *server_metrics(server *s) { return s->metrics; }
work *server_work(server *s) { return s->work; }
loop *server_loop(server *s) { return s->loop; }
const server_parts *server_serving(const server *s) { return s->state == LOADING ? NULL : &s->parts; }
const server_opts *server_options(const server *s) { return &s->opts; }
