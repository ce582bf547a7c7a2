#include "serve/run.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "engine/weights.h"
#include "fetch/fetch.h"
#include "serve/defaults.h"
#include "serve/local.h"
#include "serve/server.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct run {
  const serve_opts *opts;
  loop *loop;
  keys *keys;
  server *server;
  /* made by the loading thread, used by the loop's once on_loaded has run */
  pthread_t loader;
  bool loading;
  model *model;
  engine *engine;
  local *local;
  char path[OS_PATH], name[FETCH_NAME], fingerprint[24];
  char sampling[DEFAULTS_TEXT]; /* what holds where a request does not say */
  err error;                    /* of loading */
  int64_t began;
  int signals;
  volatile sig_atomic_t stop_fetch;
} run;

/* ---- may we listen there? ---- */

static bool is_loopback(const char *host) {
  struct in_addr a4;
  struct in6_addr a6;
  if (!strcmp(host, "localhost")) return true;
  if (inet_pton(AF_INET, host, &a4) == 1) return (ntohl(a4.s_addr) >> 24) == 127;
  if (inet_pton(AF_INET6, host, &a6) == 1) return IN6_IS_ADDR_LOOPBACK(&a6);
  return false;
}

static bool check_exposure(const serve_opts *o, err *e) {
  if (o->key_file || o->insecure || is_loopback(o->host)) return true;
  return err_param(e, ERR_USAGE, "host",
      "listening on %s would let anyone who can reach it use the model: give --api-key-file FILE, or --insecure if that is meant", o->host);
}

/* ---- a model file cut short under us ---- */

static struct {
  char text[OS_PATH + 200];
  size_t n;
} bus_message;

/* Weights and tokens are read where the file is mapped, and a page past a new, shorter end cannot be read: there is no going on, but there is saying
 * why. */
static void on_bus(int signo, siginfo_t *info, void *context) {
  (void)context;
  if (info->si_code == BUS_ADRERR) {
    ssize_t k = write(STDERR_FILENO, bus_message.text, bus_message.n);
    (void)k;
    _exit(1);
  }
  signal(signo, SIG_DFL); /* anything else is a fault of ours: it comes again at once and leaves a core */
}

static void watch_file(const char *path) {
  int n = snprintf(bus_message.text, sizeof bus_message.text,
      "weir: %s can no longer be read to its end: it was cut short or its disk failed while it was in use; fetch it again and restart\n", path);
  bus_message.n = (size_t)n < sizeof bus_message.text ? (size_t)n : sizeof bus_message.text - 1;
  struct sigaction a = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
  sigaction(SIGBUS, &a, NULL);
}

/* ---- loading: on its own thread ---- */

static void on_fetch_note(void *arg, const char *line) {
  (void)arg;
  log_info("fetch", kv_s("note", line));
}

static void on_fetch_progress(void *arg, const fetch_progress *p) {
  (void)arg;
  if (p->finished) log_info("fetched", kv_s("file", p->what), kv_i("bytes", (int64_t)p->done));
}

static bool load(run *r) {
  const serve_opts *o = r->opts;
  err *e = &r->error;
  fetch_opts f = {.to_run = true,
      .offline = o->offline,
      .accept_licence = o->accept_licence,
      .progress = on_fetch_progress,
      .note = on_fetch_note,
      .stop = &r->stop_fetch};
  if (!fetch_model(o->model ? o->model : fetch_default(), &f, r->path, r->name, e)) return false;
  watch_file(r->path);
  if (!model_open(r->path, weights_type_ok, &r->model, e)) return false;
  defaults_apply(r->model, r->path, r->sampling);
  eng_opts g = {.threads = (int)o->threads,
      .isa = o->isa,
      .ctx = (int)o->ctx,
      .kv_budget = o->kv_budget,
      .page = (int)o->page,
      .max_seqs = (int)o->max_seqs,
      .chunk = (int)o->chunk,
      .queue = (int)o->queue,
      .act_f32 = o->act == 1,
      .kv_f32 = o->kv_type == 1,
      .no_prefix_cache = !o->prefix_cache};
  return engine_open(r->model, &g, &r->engine, e);
}

static void on_loaded(void *arg);

static void *load_thread(void *arg) {
  run *r = arg;
  if (!load(r) && !r->error.code) err_set(&r->error, ERR_INTERNAL, "the model could not be loaded");
  loop_post(r->loop, on_loaded, r);
  return NULL;
}

/* ---- on the loop ---- */

static void engine_snapshot(void *ctx, eng_gauges *g) { engine_gauges(ctx, g); }

static void print_url(const run *r) {
  bool v6 = strchr(r->opts->host, ':') != NULL;
  printf("http://%s%s%s:%d\n", v6 ? "[" : "", r->opts->host, v6 ? "]" : "", server_port(r->server));
  fflush(stdout);
}

static void on_loaded(void *arg) {
  run *r = arg;
  char hex[17];
  pthread_join(r->loader, NULL);
  r->loading = false;
  if (r->error.code || r->signals) {
    loop_stop(r->loop);
    return;
  }
  r->local = local_new(r->engine, r->model, r->loop, server_work(r->server), server_metrics(r->server), (int)r->opts->queue);
  if (!r->local) {
    err_set(&r->error, ERR_NOMEM, "out of memory for the server");
    loop_stop(r->loop);
    return;
  }
  engine_fingerprint(r->engine, hex);
  snprintf(r->fingerprint, sizeof r->fingerprint, "fp_%s", hex);
  server_parts p = {.backend = local_backend(r->local),
      .name = r->opts->served_name ? r->opts->served_name : r->name,
      .fingerprint = r->fingerprint,
      .model = r->model,
      .ctx = engine_ctx(r->engine),
      .gauges = engine_snapshot,
      .gauges_ctx = r->engine};
  server_ready(r->server, &p);
  log_info("ready", kv_s("model", p.name), kv_s("file", r->path), kv_i("ctx", p.ctx), kv_s("isa", engine_ops(r->engine)->name),
      kv_s("sampling", r->sampling), kv_i("port", server_port(r->server)), kv_f("load_ms", clock_ms(clock_now() - r->began)));
  notify_manager("READY=1");
  print_url(r);
}

static void on_drained(void *arg) {
  run *r = arg;
  if (!r->loading) loop_stop(r->loop); /* else on_loaded does */
}

static void on_signal(void *arg) {
  run *r = arg;
  r->stop_fetch = 1;
  if (++r->signals == 1) {
    notify_manager("STOPPING=1");
    log_info("draining", kv_s("how", "running requests end, new ones are refused; a second signal stops at once"));
    server_drain(r->server, on_drained, r);
    return;
  }
  log_warn("stopping");
  if (r->loading) _exit(130); /* a model in the middle of loading cannot be asked to stop */
  loop_stop(r->loop);
}

/* ---- the process ---- */

static bool open_all(run *r, err *e) {
  const serve_opts *o = r->opts;
  if (!check_exposure(o, e)) return false;
  if (o->key_file && !keys_load(o->key_file, &r->keys, e)) return false;
  if (!(r->loop = loop_new())) return err_set(e, ERR_NOMEM, "cannot make an event loop");
  server_opts s = {
      .host = o->host, .port = (int)o->port, .keys = r->keys, .max_body = o->max_body, .max_conns = (int)o->max_conns, .max_n = (int)o->max_n};
  if (!server_new(r->loop, &s, &r->server, e)) return false;
  if (!loop_on_signal(r->loop, SIGTERM, on_signal, r) || !loop_on_signal(r->loop, SIGINT, on_signal, r))
    return err_set(e, ERR_IO, "cannot wait for signals");
  signal(SIGPIPE, SIG_IGN);
  if (pthread_create(&r->loader, NULL, load_thread, r)) return err_set(e, ERR_NOMEM, "cannot start a thread to load the model");
  r->loading = true;
  return true;
}

/* Order matters: connections first (their work is cancelled), then the workers, then the engine; loop_free runs the closures these left behind, after
 * which no event can come and the calls may go. */
static void close_all(run *r) {
  if (r->server) server_stop(r->server);
  if (r->engine) engine_close(r->engine);
  if (r->loop) loop_free(r->loop);
  local_free(r->local);
  server_free(r->server);
  if (r->model) model_close(r->model);
  keys_free(r->keys);
}

bool serve_run(const serve_opts *o, int *ret_status, err *e) {
  run r = {.opts = o, .began = clock_now()};
  log_setup((log_level)o->log_level, o->log_format == 1);
  json_setup();
  bool ok = open_all(&r, e) && (loop_run(r.loop) || err_set(e, ERR_IO, "the event loop broke"));
  if (r.error.code && !r.signals) {
    *e = r.error;
    ok = false;
  }
  close_all(&r);
  *ret_status = r.signals > 1 ? 130 : 0;
  return ok;
}
