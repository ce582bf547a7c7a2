/* http_client.h - outgoing HTTP on a loop (libcurl multi): requests whose answers stream in, connections that are kept, and the moments of each.
 * Not a retrier, not a redirect follower (an API that redirects is misconfigured, and a key must not travel) and not for files: fetch/ is.
 * Ownership: the client owns its calls. A call is gone after on_done or http_call_cancel. What http_call_start is given is copied.
 * Threads: the loop's. Every function may be called from within a callback, except http_client_free.
 * Failure: http_call_start fails at once on what it can see (a bad URL); everything later comes through on_done, exactly once. */
#ifndef NET_HTTP_CLIENT_H
#define NET_HTTP_CLIENT_H
#include "base/err.h"
#include "base/str.h"
#include "net/loop.h"

typedef struct http_client http_client;
typedef struct http_call http_call;

/* clock_now() of what happened to one call; 0: did not happen. On a kept connection `connected` and `tls` are 0 and `reused` is set. */
typedef struct http_moments {
  int64_t start, connected, tls, head, first, last, done;
  bool reused;
} http_moments;

typedef struct http_call_opts {
  const char *method;         /* NULL: POST when there is a body, else GET */
  const char *url;            /* http or https */
  const char *const *headers; /* "Name: value" lines, NULL at the end; may be NULL */
  str body;
  int connect_ms;  /* 0: 5 s, name lookup and TLS included */
  int idle_ms;     /* longest time without a byte, in whole seconds; 0: none (a model may think for long) */
  int total_ms;    /* 0: none */
  size_t max_head; /* bytes of the answer's header; 0: 64 KiB */
  /* Any of the three may be NULL. on_head: the final status is known, http_call_header works. on_data: as it comes. Returning false ends the call
   * with ERR_CANCELLED. on_done: e is NULL when the whole answer came, whatever its status; the call is gone when it returns. */
  bool (*on_head)(http_call *c, int status, void *ctx);
  bool (*on_data)(http_call *c, str data, void *ctx);
  void (*on_done)(http_call *c, const err *e, void *ctx);
  void *ctx;
} http_call_opts;

http_client *http_client_new(loop *l, int max_idle); /* connections kept for reuse; 0: 256. NULL: out of memory */
void http_client_free(http_client *cl);              /* cancels what runs, without on_done */

bool http_call_start(http_client *cl, const http_call_opts *o, http_call **ret, err *e);
void http_call_cancel(http_call *c);                        /* no callback comes any more; the connection is closed */
void http_call_pause(http_call *c, bool paused);            /* stops reading: back-pressure */
int http_call_status(const http_call *c);                   /* 0 before the head */
str http_call_header(const http_call *c, const char *name); /* any case; {NULL, 0} when absent; from on_head on */
http_moments http_call_moments(const http_call *c);         /* whole in on_done */
#endif
