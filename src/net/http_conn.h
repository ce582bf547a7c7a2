/* http_conn.h - inside of net/http: one accepted connection and the one request it carries at a time.
 * Not for other rooms: they see http.h.
 * Ownership: the server owns its connections; a connection is freed only from conn_todo, so none vanishes under a running function.
 * Threads: the loop's.
 * Failure: a connection that fails is closed; what was active on it is told through on_close. */
#ifndef NET_HTTP_CONN_H
#define NET_HTTP_CONN_H
#include "base/buf.h"
#include "net/http.h"
#include "net/http_parse.h"
#include "net/listen.h"
#include <event2/event.h>
#include <event2/event_struct.h>

typedef enum conn_state {
  CONN_READ,   /* waiting for a request or in the middle of one */
  CONN_WORK,   /* the handler has it, nothing of the answer has been written */
  CONN_STREAM, /* the answer has begun */
  CONN_FLUSH,  /* the answer has ended, bytes of it wait for the kernel */
  CONN_LINGER, /* our side is shut down; what still comes is read and dropped, so that the answer is not lost to a reset */
  CONN_DEAD    /* closed; waits for conn_todo, or for a handler without on_close to end its answer */
} conn_state;

typedef enum conn_phase { PHASE_IDLE, PHASE_HEAD, PHASE_BODY } conn_phase;

/* http_req and the connection are one object: HTTP/1.1 answers in order, so there is never a second request beside it. */
typedef struct http_req conn;
struct http_req {
  http_server *s;
  conn *prev, *next, *todo_next;
  struct event ev;
  int fd;
  uint8_t state, phase;
  bool todo;       /* in the server's list of connections to look at again */
  bool active;     /* a handler has been called and has not ended its answer */
  bool fresh;      /* no request yet on this connection */
  bool fin, eof;   /* the peer has shut down its side: announced; read */
  bool blocked;    /* the kernel takes no more; an edge will tell */
  bool paused;     /* reading stopped because `in` is full: bytes may wait in the kernel */
  bool processing; /* conn_process is on the stack */
  bool keep, head_only, chunked, early;
  int64_t deadline, body_start, accepted;
  uint64_t held;            /* by http_hold */
  uint64_t wire, sent_mark; /* body bytes as they came; bytes taken by the kernel since the stall deadline was set */
  http_parse h;
  buf in, out, extra;
  size_t out_off;
  void (*on_close)(http_req *r, void *arg);
  void *on_close_arg;
};

struct http_server {
  loop *l;
  http_opts o;
  struct event *accept_ev[LISTEN_MAX], *todo_ev, *tick_ev, *resume_ev;
  int listen_fd[LISTEN_MAX], n_listen, port, n_conns;
  conn *conns, *todo;
  int64_t next_tick, drain_until;
  uint64_t mem;
  buf head; /* scratch for the head of an answer */
  char date[40];
  int64_t date_at;
  bool draining;
  loop_fn drained;
  void *drained_arg;
};

conn *conn_new(http_server *s, int fd);                                /* NULL: out of memory (fd is closed) */
void conn_todo(conn *c);                                               /* the look again; may free c */
void conn_timeout(conn *c);                                            /* its deadline has passed */
void conn_refuse(conn *c, int status, err_code code, const char *why); /* an answer of our own, then close */
void conn_close_idle(conn *c);                                         /* for draining: closes when nothing is going on */
void conn_abandon(conn *c);                                            /* server_free: tells the handler, frees c */

/* The server's side of it. */
void server_todo(http_server *s, conn *c);        /* asks for conn_todo(c) in this turn of the loop */
void server_deadline(http_server *s, int64_t at); /* a deadline earlier than the next tick is known */
void server_forget(http_server *s, conn *c);      /* unlinks and frees */
const char *server_date(http_server *s);
#endif
