/* A whole connection of the server over a socket pair: bytes in pieces, the loop in between, answers whole, streamed and late, a client that shuts
 * down or leaves. Holds: in any pieces the handler sees the same requests and the client the same answers (interim ones and the date apart), whole
 * and well formed; a handler whose client left is told; after the connection has ended the server counts no bytes and no connections. The last byte
 * of the input chooses how the client ends, those before it the pieces. */
#include "base/buf.h"
#include "base/log.h"
#include "fuzz.h"
#include "net/http_conn.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { END_SHUT, END_CLOSE, END_EARLY };

static struct {
  loop *l;
  http_server *s;
  buf log;        /* what the handler saw */
  http_req *late; /* a request that is answered later, or NULL */
  int told;       /* on_close calls */
  int owed;       /* requests under way */
} fx;

static void on_close(http_req *r, void *arg) {
  (void)arg;
  FUZZ_CHECK(fx.late == r, "another request's client is said to have left");
  fx.late = NULL;
  fx.told++;
  fx.owed--;
}

static void note(http_req *r) {
  str part[] = {http_method(r), http_path(r), http_query(r), http_header(r, "x-test"), http_body(r)};
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    buf_printf(&fx.log, "%zu:", part[i].n);
    buf_str(&fx.log, part[i]);
  }
}

static void handler(http_req *r, void *ctx) {
  (void)ctx;
  note(r);
  str p = http_path(r);
  http_add(r, "x-echo", "%.*s", (int)http_query(r).n, http_query(r).p);
  if (str_starts(p, STR("/s"))) {
    http_stream_begin(r, 200, "text/event-stream");
    http_stream_write(r, http_body(r));
    http_stream_write(r, p);
    http_stream_end(r);
  } else if (str_starts(p, STR("/l"))) {
    FUZZ_CHECK(!fx.late, "a second request on one connection before the first was answered");
    fx.late = r;
    fx.owed++;
    http_on_close(r, on_close, NULL);
  } else http_respond(r, str_starts(p, STR("/n")) ? 204 : 200, "text/plain", p);
}

static void turn(void) {
  for (int i = 0; i < 3; i++) event_base_loop(loop_base(fx.l), EVLOOP_NONBLOCK);
}

static void answer_late(void) {
  http_req *r = fx.late;
  if (!r) return;
  fx.late = NULL;
  fx.owed--;
  http_respond(r, 200, "text/plain", STR("late"));
  turn();
}

static void setup(void) {
  err e = {0};
  http_opts o = {.handler = handler, .max_body = 1 << 16};
  log_setup(LOG_OFF, false);
  fx.l = loop_new();
  FUZZ_CHECK(fx.l && http_server_new(fx.l, &o, &fx.s, &e), "%s", e.msg);
}

static void drink(int fd, buf *out) {
  char b[16384];
  for (ssize_t k; (k = recv(fd, b, sizeof b, MSG_DONTWAIT)) > 0;) buf_put(out, b, (size_t)k);
}

/* Sends one piece, letting the server run whenever its buffer is full. */
static bool send_all(int fd, const uint8_t *p, size_t n, buf *out) {
  for (int tries = 0; n && tries < 10000;) {
    ssize_t k = send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k < 0 && errno != EAGAIN) return false; /* the server has closed it */
    if (k > 0) p += k, n -= (size_t)k;
    else tries++;
    turn();
    drink(fd, out);
  }
  return !n;
}

/* The answers without what may differ: 100-continue, the date. */
static void tidy(buf *b) {
  static const char cont[] = "HTTP/1.1 100 Continue\r\n\r\n", date[] = "Date: ";
  for (ptrdiff_t at; (at = str_find(buf_view(b), (str){cont, sizeof cont - 1})) >= 0;) {
    memmove(b->p + at, b->p + at + sizeof cont - 1, b->n - (size_t)at - (sizeof cont - 1));
    b->n -= sizeof cont - 1;
  }
  for (size_t i = 0; i + 35 <= b->n; i++)
    if (memcmp(b->p + i, date, 6) == 0) memset(b->p + i + 6, '-', 29);
}

static void converse(fuzz_bytes in, fuzz_bytes *steer, int ending, buf *out) {
  int fd[2], told = fx.told;
  buf_init(&fx.log, SIZE_MAX / 2);
  buf_init(out, SIZE_MAX / 2);
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0, "no socket pair: %d", errno);
  conn *c = conn_new(fx.s, fd[0]);
  FUZZ_CHECK(c, "no connection");
  c->next = fx.s->conns; /* as the acceptor links it */
  if (c->next) c->next->prev = c;
  fx.s->conns = c;
  fx.s->n_conns++;
  bool open = true;
  for (size_t at = 0; open && at < in.n;) {
    size_t k = steer ? fuzz_piece(steer, in.n - at) : in.n - at;
    open = send_all(fd[1], in.p + at, k, out);
    at += k;
    if (fx.late && ending != END_EARLY) answer_late();
  }
  if (ending == END_SHUT) shutdown(fd[1], SHUT_WR);
  for (int i = 0; i < 4; i++) {
    turn();
    if (ending != END_EARLY) answer_late();
    drink(fd[1], out);
  }
  close(fd[1]);
  turn();
  if (fx.late) answer_late(); /* a half-closed socket pair tells of the end only when it is written to */
  turn();
  FUZZ_CHECK(fx.owed == 0 && !fx.late, "a request was neither answered nor given up");
  FUZZ_CHECK(fx.told - told <= 1, "told %d times that the client left", fx.told - told);
  FUZZ_CHECK(fx.s->n_conns == 0, "%d connections are left", fx.s->n_conns);
  FUZZ_CHECK(fx.s->mem == 0, "%llu bytes are still counted", (unsigned long long)fx.s->mem);
  tidy(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  fuzz_bytes in = {p, n};
  int ending = fuzz_last(&in) % 3;
  fuzz_bytes steer = in;
  if (!fx.l) setup();
  buf a, b, log;
  converse(in, NULL, ending, &a);
  log = fx.log;
  converse(in, &steer, ending, &b);
  if (ending != END_EARLY) {
    FUZZ_CHECK(str_eq(buf_view(&log), buf_view(&fx.log)), "in pieces the handler saw other requests: %.*s | %.*s", (int)log.n, log.p, (int)fx.log.n,
        fx.log.p);
    FUZZ_CHECK(str_eq(buf_view(&a), buf_view(&b)), "in pieces the client got other answers:\n%.*s\n---\n%.*s", (int)a.n, a.p, (int)b.n, b.p);
  }
  FUZZ_CHECK(a.n == 0 || (a.n >= 5 && memcmp(a.p, "HTTP/", 5) == 0) || a.p[0] == 'H', "the answer begins with something else");
  buf_fini(&log);
  buf_fini(&fx.log);
  buf_fini(&a);
  buf_fini(&b);
  return 0;
}
