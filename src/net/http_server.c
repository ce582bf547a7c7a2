/* The server around its connections: listening, accepting, the one timer that serves all deadlines, draining. */
#include "base/clock.h"
#include "base/log.h"
#include "net/http_conn.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPT_TURNS = 64, OVER_CONNS = 64, ACCEPT_PAUSE_MS = 100, TICK_MIN_MS = 5 };

static void link_conn(http_server *s, conn *c) {
  c->next = s->conns;
  if (c->next) c->next->prev = c;
  s->conns = c;
  s->n_conns++;
}

void server_forget(http_server *s, conn *c) {
  if (c->prev) c->prev->next = c->next;
  else s->conns = c->next;
  if (c->next) c->next->prev = c->prev;
  s->n_conns--;
  free(c);
}

/* ---- the todo list ---- */

void server_todo(http_server *s, conn *c) {
  if (c->todo) return;
  c->todo = true;
  c->todo_next = s->todo;
  s->todo = c;
  event_active(s->todo_ev, EV_TIMEOUT, 0);
}

static bool is_drained(const http_server *s) {
  for (const conn *c = s->conns; c; c = c->next)
    if (c->active || c->state == CONN_FLUSH || c->state == CONN_READ) return false;
  return true;
}

static void on_todo(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  http_server *s = arg;
  while (s->todo) {
    conn *c = s->todo;
    s->todo = c->todo_next;
    c->todo = false;
    conn_todo(c);
  }
  if (s->drained && is_drained(s)) {
    loop_fn fn = s->drained;
    s->drained = NULL;
    fn(s->drained_arg); /* may free s */
  }
}

/* ---- deadlines ---- */

void server_deadline(http_server *s, int64_t at) {
  if (at >= s->next_tick) return;
  int64_t now = clock_now(), wait = at - now;
  if (wait < TICK_MIN_MS * 1000000) wait = TICK_MIN_MS * 1000000;
  s->next_tick = now + wait;
  event_add(s->tick_ev, &(struct timeval){wait / 1000000000, wait % 1000000000 / 1000});
}

/* All connections are looked at, for they are few and this is rare: an idle server with idle connections wakes once per idle_ms. */
static void on_tick(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  http_server *s = arg;
  int64_t now = clock_now(), next = INT64_MAX;
  s->next_tick = INT64_MAX;
  for (conn *c = s->conns; c; c = c->next) { /* none is freed meanwhile: that is on_todo's */
    if (c->deadline <= now) conn_timeout(c);
    if (c->deadline < next) next = c->deadline;
  }
  server_deadline(s, next);
}

const char *server_date(http_server *s) {
  int64_t now = clock_unix();
  if (now != s->date_at) {
    static const char *const day[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const mon[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm t;
    gmtime_r(&(time_t){now}, &t);
    /* Not strftime: its names follow the locale. */
    snprintf(s->date, sizeof s->date, "%s, %02u %s %04u %02u:%02u:%02u GMT", day[t.tm_wday % 7], (unsigned)t.tm_mday % 100, mon[t.tm_mon % 12],
        (unsigned)(t.tm_year + 1900) % 10000, (unsigned)t.tm_hour % 100, (unsigned)t.tm_min % 100, (unsigned)t.tm_sec % 100);
    s->date_at = now;
  }
  return s->date;
}

/* ---- accepting ---- */

/* Out of descriptors: the pending connection would wake the loop for ever, so the listener rests a moment. */
static void pause_accept(http_server *s, int en) {
  log_warn("cannot accept connections", kv_s("error", strerror(en)), kv_i("connections", s->n_conns));
  for (int i = 0; i < s->n_listen; i++) event_del(s->accept_ev[i]);
  event_add(s->resume_ev, &(struct timeval){0, ACCEPT_PAUSE_MS * 1000});
}

static void on_resume(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  http_server *s = arg;
  for (int i = 0; i < s->n_listen; i++) event_add(s->accept_ev[i], NULL);
}

static void on_accept(evutil_socket_t fd, short what, void *arg) {
  (void)what;
  http_server *s = arg;
  for (int turn = 0; turn < ACCEPT_TURNS; turn++) {
    int k = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (k < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accept(s, errno);
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    /* A few more than the bound are let in to be told so; beyond that a closed connection has to do. */
    if (s->n_conns >= s->o.max_conns + OVER_CONNS) {
      close(k);
      continue;
    }
    bool over = s->n_conns >= s->o.max_conns;
    conn *c = conn_new(s, k);
    if (!c) continue;
    link_conn(s, c);
    if (over) conn_refuse(c, 503, ERR_BUSY, "the server has as many connections as it may: try again later");
  }
}

/* ---- life ---- */

static void stop_listening(http_server *s) {
  for (int i = 0; i < s->n_listen; i++) {
    if (s->accept_ev[i]) event_free(s->accept_ev[i]);
    close(s->listen_fd[i]);
    s->accept_ev[i] = NULL;
  }
  s->n_listen = 0;
  if (s->resume_ev) event_del(s->resume_ev);
}

static void set_defaults(http_opts *o) {
  if (!o->max_body) o->max_body = 16u << 20;
  if (o->max_body > UINT64_C(1) << 40) o->max_body = UINT64_C(1) << 40; /* sums and products of it must not wrap */
  if (!o->max_out) o->max_out = 1u << 20;
  if (!o->max_mem) o->max_mem = 1u << 30;
  if (o->max_conns <= 0) o->max_conns = 4096;
  if (o->header_ms <= 0) o->header_ms = 10000;
  if (o->body_ms <= 0) o->body_ms = 60000;
  if (o->idle_ms <= 0) o->idle_ms = 120000;
  if (o->drain_ms <= 0) o->drain_ms = 5000;
}

bool http_server_new(loop *l, const http_opts *o, http_server **ret, err *e) {
  http_server *s = calloc(1, sizeof *s);
  if (!s) return err_set(e, ERR_NOMEM, "out of memory for the HTTP server");
  s->l = l;
  s->o = *o;
  s->next_tick = INT64_MAX;
  s->date_at = -1;
  buf_init(&s->head, 64 * 1024);
  set_defaults(&s->o);
  s->port = o->port;
  if (!listen_open(o->host, &s->port, s->listen_fd, &s->n_listen, e)) {
    http_server_free(s);
    return false;
  }
  struct event_base *b = loop_base(l);
  bool ok = (s->todo_ev = event_new(b, -1, 0, on_todo, s)) && (s->tick_ev = event_new(b, -1, 0, on_tick, s)) &&
            (s->resume_ev = event_new(b, -1, 0, on_resume, s));
  for (int i = 0; ok && i < s->n_listen; i++)
    ok = (s->accept_ev[i] = event_new(b, s->listen_fd[i], EV_READ | EV_PERSIST, on_accept, s)) && event_add(s->accept_ev[i], NULL) == 0;
  if (!ok) {
    http_server_free(s);
    return err_set(e, ERR_NOMEM, "out of memory for the HTTP server");
  }
  s->o.host = NULL; /* was only borrowed */
  *ret = s;
  return true;
}

int http_server_port(const http_server *s) { return s->port; }

void http_server_drain(http_server *s, loop_fn done, void *arg) {
  if (!s->draining) {
    /* Connections the kernel has completed already are owed an answer: closing the listener would reset them. */
    for (int i = 0; i < s->n_listen; i++) on_accept(s->listen_fd[i], EV_READ, s);
    stop_listening(s);
    s->drain_until = clock_now() + s->o.drain_ms * INT64_C(1000000);
  }
  s->draining = true;
  s->drained = done;
  s->drained_arg = arg;
  for (conn *c = s->conns; c; c = c->next) conn_close_idle(c);
  event_active(s->todo_ev, EV_TIMEOUT, 0);
}

void http_server_free(http_server *s) {
  if (!s) return;
  stop_listening(s);
  while (s->conns) conn_abandon(s->conns);
  if (s->todo_ev) event_free(s->todo_ev);
  if (s->tick_ev) event_free(s->tick_ev);
  if (s->resume_ev) event_free(s->resume_ev);
  buf_fini(&s->head);
  free(s);
}
