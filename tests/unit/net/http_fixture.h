/* http_fixture.h - a server with a small fixed handler on a thread of its own, and a blocking raw client, for the tests of net/.
 * Not a test itself.
 * Ownership: one fixture at a time (static state); fixture_stop ends the thread and frees everything.
 * Threads: the handler's state belongs to the loop's thread; the counters are atomic.
 * Failure: asserts. */
#ifndef TEST_HTTP_FIXTURE_H
#define TEST_HTTP_FIXTURE_H
#include "base/clock.h"
#include "net/http.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct {
  loop *l;
  http_server *s;
  pthread_t thread;
  int port;
  _Atomic int handled, closed, drained, too_slow;
  _Atomic int64_t closed_at;
  http_req *held; /* the request of /hang or /stall */
} fx;

static void fx_on_close(http_req *r, void *arg) {
  (void)r;
  (void)arg;
  fx.held = NULL;
  atomic_store(&fx.closed_at, clock_now());
  atomic_fetch_add(&fx.closed, 1);
}

static void fx_late(void *arg) {
  http_req *r = arg;
  http_respond(r, 200, "text/plain", STR("late"));
}

static void fx_pump(void *arg) {
  http_req *r = arg;
  if (fx.held != r) return;
  static char block[16384];
  memset(block, 'x', sizeof block);
  if (!http_stream_write(r, (str){block, sizeof block})) atomic_fetch_add(&fx.too_slow, 1);
  else loop_post(fx.l, fx_pump, r);
}

enum { HTTP_ECHO_HEAD = 16384 }; /* a whole request line fits */
static void fx_echo(http_req *r) {
  char head[HTTP_ECHO_HEAD];
  str m = http_method(r), p = http_path(r), q = http_query(r), b = http_body(r), x = http_header(r, "x-test");
  int n = snprintf(head, sizeof head, "%.*s %.*s ?%.*s x=%.*s ", (int)m.n, m.p, (int)p.n, p.p, (int)q.n, q.p, (int)x.n, x.p ? x.p : "");
  char *all = malloc((size_t)n + b.n);
  memcpy(all, head, (size_t)n);
  memcpy(all + n, b.p, b.n);
  http_respond(r, 200, "text/plain", (str){all, (size_t)n + b.n});
  free(all);
}

static void fx_handler(http_req *r, void *ctx) {
  (void)ctx;
  atomic_fetch_add(&fx.handled, 1);
  str p = http_path(r);
  if (str_is(p, "/stream")) {
    http_add(r, "x-kind", "stream");
    http_stream_begin(r, 200, "text/event-stream");
    http_stream_write(r, STR("hello "));
    http_stream_write(r, STR("world, here are more than sixteen"));
    http_stream_end(r);
  } else if (str_is(p, "/hold")) { /* half of what there is */
    if (!http_hold(r, 1 << 20)) http_respond(r, 503, NULL, STR(""));
    else if (str_is(http_query(r), "now")) http_respond(r, 200, NULL, STR(""));
    else {
      fx.held = r;
      http_on_close(r, fx_on_close, NULL);
    }
  } else if (str_is(p, "/hang")) {
    fx.held = r;
    http_on_close(r, fx_on_close, NULL);
  } else if (str_is(p, "/stall")) { /* begins, says one thing, falls silent */
    fx.held = r;
    http_on_close(r, fx_on_close, NULL);
    http_stream_begin(r, 200, "text/plain");
    http_stream_write(r, STR("one"));
  } else if (str_is(p, "/late")) {
    loop_after(fx.l, 100 * 1000000, fx_late, r);
  } else if (str_is(p, "/flood")) {
    fx.held = r;
    http_on_close(r, fx_on_close, NULL);
    http_stream_begin(r, 200, "text/plain");
    fx_pump(r);
  } else if (str_is(p, "/big")) {
    size_t n = 8u << 20;
    char *b = malloc(n);
    for (size_t i = 0; i < n; i++) b[i] = (char)('a' + i % 23);
    http_respond(r, 200, "text/plain", (str){b, n});
    free(b);
  } else if (str_is(p, "/hdr")) {
    http_add(r, "x-good", "%d", 7);
    http_add(r, "x-bad", "a\r\nx-evil: 1");
    http_respond(r, 204, NULL, STR(""));
  } else {
    fx_echo(r);
  }
}

static void *fx_thread(void *arg) {
  (void)arg;
  loop_run(fx.l);
  return NULL;
}

static void fixture_start(http_opts o) {
  memset(&fx, 0, sizeof fx);
  err e = {0};
  fx.l = loop_new();
  assert_non_null(fx.l);
  o.handler = fx_handler;
  if (!http_server_new(fx.l, &o, &fx.s, &e)) fail_msg("%s", e.msg);
  fx.port = http_server_port(fx.s);
  assert_int_equal(pthread_create(&fx.thread, NULL, fx_thread, NULL), 0);
}

static void fixture_stop(void) {
  loop_stop(fx.l);
  pthread_join(fx.thread, NULL);
  http_server_free(fx.s);
  loop_free(fx.l);
}

/* ---- raw client ---- */

static inline int dial_buf(int rcvbuf) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fx.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (rcvbuf) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}
static inline int dial(void) { return dial_buf(0); }

/* Step 0: in one write. Otherwise that many bytes a write. A server that has closed already is no failure here: what it said is what counts. */
static inline void say_n(int fd, const char *p, size_t n, size_t step) {
  for (size_t i = 0; i < n;) {
    size_t k = step && step < n - i ? step : n - i;
    ssize_t w = send(fd, p + i, k, MSG_NOSIGNAL);
    if (w <= 0) return;
    i += (size_t)w;
  }
}
static inline void say(int fd, const char *s) { say_n(fd, s, strlen(s), 0); }

/* Reads until the end, or until nothing has come for wait_ms. Returns length; *ret_end tells which. */
static inline size_t hear(int fd, char *buf, size_t cap, int wait_ms, bool *ret_end) {
  size_t n = 0;
  if (ret_end) *ret_end = false;
  while (n < cap - 1) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0) break;
    ssize_t k = recv(fd, buf + n, cap - 1 - n, 0);
    if (k <= 0) {
      if (ret_end) *ret_end = true;
      break;
    }
    n += (size_t)k;
  }
  buf[n] = 0;
  return n;
}

/* Waits for an answer that ends in `tail`. */
static inline size_t hear_until(int fd, char *buf, size_t cap, const char *tail, int limit_ms) {
  size_t n = 0, t = strlen(tail);
  int64_t end = clock_now() + limit_ms * INT64_C(1000000);
  while (n < cap - 1 && !(n >= t && memcmp(buf + n - t, tail, t) == 0)) {
    int64_t left = (end - clock_now()) / 1000000;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (left <= 0 || poll(&p, 1, (int)left) <= 0) break;
    ssize_t k = recv(fd, buf + n, cap - 1 - n, 0);
    if (k <= 0) break;
    n += (size_t)k;
  }
  buf[n] = 0;
  return n;
}

/* Takes out the one header that differs from run to run; fails when it is not there as often as there are answers. */
static inline void drop_dates(char *s) {
  char *d;
  while ((d = strstr(s, "Date: "))) {
    char *end = strstr(d, "\r\n");
    assert_non_null(end);
    assert_int_equal(end - d, (ptrdiff_t)strlen("Date: Sun, 06 Nov 1994 08:49:37 GMT"));
    memmove(d, end + 2, strlen(end + 2) + 1);
  }
}

static inline bool wait_for(_Atomic int *v, int want, int limit_ms) {
  for (int i = 0; i < limit_ms * 2; i++) {
    if (atomic_load(v) >= want) return true;
    usleep(500);
  }
  return atomic_load(v) >= want;
}
#endif
