/* http.h - the HTTP/1.1 server side: requests come whole, answers go out whole or as a stream, a client that leaves is noticed at once.
 * Not a router and not a dialect: paths and bodies are bytes here.
 * Ownership: an http_req lives from the handler's call until http_respond / http_stream_end returned or on_close ran; nobody keeps it longer.
 * Threads: all on the loop's thread.
 * Failure: what cannot be parsed is answered here (400, 408, 413, 414, 417, 431, 501, 505), as `refusal` writes it, and never reaches the handler.
 *
 * Bounds: headers 64 KiB, 128 of them; body max_body (413, sent without reading the rest), all bodies together max_mem (503); header and body
 * time-outs against slow clients; connections max_conns (503 and close); idle keep-alive time-out; output buffered per stream max_out, then the
 * request is closed; a reader that takes nothing for body_ms is closed too.
 * A client that has shut down only its sending side is owed its answer and gets it; one that is gone is told from it by a probe (http_conn.c). */
#ifndef NET_HTTP_H
#define NET_HTTP_H
#include "base/err.h"
#include "base/str.h"
#include "net/loop.h"

typedef struct http_server http_server;
typedef struct http_req http_req;
struct buf;

typedef struct http_opts {
  const char *host;
  int port;                                /* port 0: any; http_server_port tells */
  uint64_t max_body;                       /* 0: 16 MiB */
  int max_conns;                           /* 0: 4096 */
  int header_ms, body_ms, idle_ms;         /* 0: 10 s, 60 s without progress (and a floor rate against drip-feeding), 120 s */
  int drain_ms;                            /* what a request under way may still take to arrive once draining began; 0: 5 s */
  uint64_t max_out;                        /* bytes buffered for one slow reader of a stream, before one more write; 0: 1 MiB */
  uint64_t max_mem;                        /* bytes of requests, and what http_hold adds, at once, all connections together; 0: 1 GiB */
  void (*handler)(http_req *r, void *ctx); /* the whole request has been read */
  /* Writes the document of an answer that is given here, in the form its path asks for ("": not known); NULL: OpenAI's form. */
  void (*refusal)(str path, const err *e, struct buf *out);
  void *ctx;
} http_opts;

bool http_server_new(loop *l, const http_opts *o, http_server **ret, err *e); /* listens; "port 8080 is in use: ..." */
int http_server_port(const http_server *s);
/* Stops accepting, closes idle connections, calls done when the last request has ended and its answer is out. */
void http_server_drain(http_server *s, loop_fn done, void *arg);
void http_server_free(http_server *s); /* closes everything now, on_close is called; not from within a handler or on_close */

str http_method(const http_req *r);
str http_path(const http_req *r);                     /* decoded, without the query */
str http_query(const http_req *r);                    /* raw, "" when none */
str http_header(const http_req *r, const char *name); /* case-insensitive; {NULL, 0} when absent */
str http_body(const http_req *r);
int64_t http_accepted_ns(const http_req *r); /* clock_now() when the last byte of the request was read */

/* Counts memory that the handler takes for this request beside its bytes against max_mem, until the answer ends. False: there is no room, nothing was
 * counted. */
bool http_hold(http_req *r, uint64_t bytes);
/* Adds a header to the answer (before it begins), 16 KiB together. One with a control character in it is dropped whole. */
void http_add(http_req *r, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void http_respond(http_req *r, int status, const char *content_type, str body); /* whole; r is gone afterwards */
void http_stream_begin(http_req *r, int status, const char *content_type);      /* chunked */
bool http_stream_write(http_req *r, str data); /* false: the reader is too slow (max_out): on_close has been or will be called */
void http_stream_end(http_req *r);             /* r is gone afterwards */
size_t http_stream_pending(const http_req *r); /* bytes not yet given to the kernel */
/* Called once when the client goes away before the answer ended (also while the handler's work is queued), from the loop, never from within one of
 * these functions; r is gone when it returns. A handler that answers later must set it: without it, r stays until the answer is ended. */
void http_on_close(http_req *r, void (*fn)(http_req *r, void *arg), void *arg);
#endif
