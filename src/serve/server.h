/* server.h - one model server's face: listens, knows paths, keys and states, hands requests to dialects and the backend.
 * Not the process (signals, loading: run.h), not a request's life (exchange.h), not the engine (local.h is one backend of any).
 * Ownership: owns the HTTP server, the worker threads, the metrics and the kept answers; borrows loop, keys and the parts.
 * Threads: the loop's thread.
 * Failure: server_new: ERR_USAGE or ERR_IO when it cannot listen. A request's failure is answered to that request alone.
 * States: loading (only /health, /ready and /metrics answer, the rest 503), ready, draining (ready turns 503, new connections are refused). */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H
#include "api/backend.h"
#include "model/model.h"
#include "net/http.h"
#include "serve/keys.h"
#include "serve/metrics.h"
#include "serve/store.h"
#include "serve/work.h"

typedef struct server server;

typedef struct server_opts {
  const char *host;
  int port;
  const keys *keys;  /* NULL: open to all who can connect */
  uint64_t max_body; /* 0: http.h's default */
  int max_conns;
  int max_n;             /* bound on n and best_of; 0: API_MAX_CHOICES */
  int64_t keep_alive_ns; /* silence after which a stream gets a ping or a comment; 0: 10 s */
  int store_count;       /* bounds of the kept answers, as store.h; 0: its defaults */
  uint64_t store_bytes;
} server_opts;

/* What serving needs, once it is loaded. */
typedef struct server_parts {
  api_backend *backend;
  const char *name;        /* the model's name, as clients ask for it */
  const char *fingerprint; /* system_fingerprint */
  const model *model;      /* for /tokenize and its like; NULL: those are not offered */
  int ctx;
  void (*gauges)(void *ctx, eng_gauges *g); /* may be NULL */
  void *gauges_ctx;
} server_parts;

bool server_new(loop *l, const server_opts *o, server **ret, err *e);
void server_ready(server *s, const server_parts *p);   /* from loading to ready; *p is copied, what it points to is borrowed */
void server_drain(server *s, loop_fn done, void *arg); /* done once the last request has ended */
void server_stop(server *s); /* closes connections and cancels their work; stops the worker threads; their last closures run in loop_free */
void server_free(server *s); /* after loop_free */
int server_port(const server *s);
metrics *server_metrics(server *s);
work *server_work(server *s);
loop *server_loop(server *s);
const server_parts *server_serving(const server *s); /* NULL unless ready or draining */
const server_opts *server_options(const server *s);

/* For handlers: an error in the dialect of the path, counted and logged. r is gone afterwards. */
void server_refuse(server *s, http_req *r, const char *route, const char *id, const err *e);
/* A whole good answer, counted. */
void server_answer(server *s, http_req *r, const char *route, const char *type, str body);
/* Counts what parsing the request's body will take against the server's bound, before it is parsed. */
bool server_hold(http_req *r, err *e);
/* Refuses another model's name, listing what there is. "" and NULL are fine: there is only one. */
bool server_knows(const server *s, str model, err *e);
/* The name of the request being handled, already on its answer: the client's own X-Request-Id when it is sane, else one of ours. Valid until the
 * handler returns. */
enum { SERVER_ID = 129 };
const char *server_request_id(const server *s);
/* Whose request it is: a number for the key it came with, 0 where none is asked for. */
uint64_t server_tenant(const server *s);
store *server_store(server *s);
#endif
