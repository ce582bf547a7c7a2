/* One connection, from bytes to requests and from answers to bytes.
 *
 * Events are edge-triggered and registered once: no system call is spent on switching interest, and reading goes on while a handler works,
 * which is how a client that leaves is seen. Reading then is bounded by the spare room behind the request (SPARE): the buffer must not move
 * while a handler holds pointers into it.
 *
 * Gone or half-closed? Both arrive as the same FIN, and a client that only shut down its sending side is owed its answer. So on a FIN the next
 * byte that any answer must begin with is sent at once: 'H' of the status line, or a leading zero of the next chunk size (RFC 9112 section
 * 7.1: chunk-size = 1*HEXDIG). A half-closed client gets it as part of its answer; a closed one replies with a reset, and that is the notice.
 *
 * Nothing in here frees a connection on the way: what is over is put on the server's todo list, which runs once the stack is empty. */
#include "net/http_conn.h"
#include "base/clock.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_MIN = 4096, READ_MAX = 256 * 1024, READ_TURNS = 16, SPARE = 2048, KEEP_BUF = 64 * 1024 };
enum { LINGER_MS = 2000, FLOOR_BYTES_S = 16 * 1024, STALL_MIN = 4096, REFUSAL_MAX = 8192 };
#define MS INT64_C(1000000)

static void close_now(conn *c);
static void conn_process(conn *c);
static void conn_read(conn *c);

static void set_deadline(conn *c, int64_t at) {
  c->deadline = at;
  server_deadline(c->s, at);
}

/* ---- writing ---- */

static size_t out_pending(const conn *c) { return c->out.n - c->out_off; }

/* The stall clock: a reader gets body_ms for every STALL_MIN bytes, so taking one byte a minute does not hold a connection for ever. */
static void note_progress(conn *c, size_t k) {
  bool none = out_pending(c) == 0;
  c->sent_mark += k;
  if (c->state != CONN_STREAM && c->state != CONN_FLUSH && c->state != CONN_WORK) return;
  if (none) {
    c->deadline = INT64_MAX;
    c->sent_mark = 0;
  } else if (c->deadline == INT64_MAX || c->sent_mark >= STALL_MIN) {
    c->sent_mark = 0;
    set_deadline(c, clock_now() + c->s->o.body_ms * MS);
  }
}

/* Sends what is pending and then the parts; keeps what the kernel does not take. False: the connection is dead. */
static bool out_send(conn *c, const struct iovec *part, int n_part) {
  if (c->state == CONN_DEAD) return false;
  struct iovec v[5];
  int n = 0;
  size_t pending = out_pending(c), total = pending;
  if (pending) v[n++] = (struct iovec){c->out.p + c->out_off, pending};
  for (int i = 0; i < n_part; i++) {
    total += part[i].iov_len;
    if (part[i].iov_len) v[n++] = part[i];
  }
  size_t k = 0;
  if (!c->blocked && total) {
    ssize_t rc;
    do rc = sendmsg(c->fd, &(struct msghdr){.msg_iov = v, .msg_iovlen = (size_t)n}, MSG_NOSIGNAL);
    while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      close_now(c);
      return false;
    }
    k = rc < 0 ? 0 : (size_t)rc;
    c->blocked = k < total;
  }
  size_t taken = k;
  if (k >= pending) {
    k -= pending;
    c->out_off = 0;
    buf_clear(&c->out);
    if (c->out.cap > KEEP_BUF) buf_fini(&c->out);
  } else {
    c->out_off += k;
    k = 0;
  }
  for (int i = 0; i < n_part; i++) {
    size_t skip = k < part[i].iov_len ? k : part[i].iov_len;
    k -= skip;
    if (part[i].iov_len == skip) continue;
    if (c->out_off > c->out.n / 2) { /* the front has been sent: make room before growing */
      buf_drop(&c->out, c->out_off);
      c->out_off = 0;
    }
    if (!buf_put(&c->out, (const char *)part[i].iov_base + skip, part[i].iov_len - skip)) {
      close_now(c); /* out of memory: an answer with a hole in it must not be sent */
      return false;
    }
  }
  note_progress(c, taken);
  return true;
}

static const char *reason(int status) {
  switch (status) {
  case 200: return "200 OK";
  case 201: return "201 Created";
  case 202: return "202 Accepted";
  case 204: return "204 No Content";
  case 304: return "304 Not Modified";
  case 400: return "400 Bad Request";
  case 401: return "401 Unauthorized";
  case 403: return "403 Forbidden";
  case 404: return "404 Not Found";
  case 405: return "405 Method Not Allowed";
  case 408: return "408 Request Timeout";
  case 409: return "409 Conflict";
  case 413: return "413 Content Too Large";
  case 414: return "414 URI Too Long";
  case 415: return "415 Unsupported Media Type";
  case 417: return "417 Expectation Failed";
  case 422: return "422 Unprocessable Content";
  case 429: return "429 Too Many Requests";
  case 431: return "431 Request Header Fields Too Large";
  case 500: return "500 Internal Server Error";
  case 501: return "501 Not Implemented";
  case 502: return "502 Bad Gateway";
  case 503: return "503 Service Unavailable";
  case 504: return "504 Gateway Timeout";
  case 505: return "505 HTTP Version Not Supported";
  default: return NULL;
  }
}

static bool bodyless(int status) { return status == 204 || status == 304; }

static void put_number(buf *b, uint64_t x) {
  char d[24];
  int i = sizeof d;
  do d[--i] = (char)('0' + x % 10);
  while (x /= 10);
  buf_put(b, d + i, sizeof d - (size_t)i);
}

/* The head of an answer in the server's scratch buffer, less what a probe has sent of it. body_n < 0: a stream. */
static struct iovec make_head(conn *c, int status, const char *type, int64_t body_n) {
  buf *b = &c->s->head;
  const char *text = reason(status);
  buf_clear(b);
  buf_puts(b, "HTTP/1.1 ");
  if (text) buf_puts(b, text);
  else {
    put_number(b, (uint64_t)status);
    buf_putc(b, ' ');
  }
  buf_puts(b, "\r\nDate: ");
  buf_puts(b, server_date(c->s));
  if (type) {
    buf_puts(b, "\r\nContent-Type: ");
    buf_puts(b, type);
  }
  if (body_n >= 0 && !bodyless(status)) {
    buf_puts(b, "\r\nContent-Length: ");
    put_number(b, (uint64_t)body_n);
  } else if (c->chunked) {
    buf_puts(b, "\r\nTransfer-Encoding: chunked");
  }
  if (!c->keep) buf_puts(b, "\r\nConnection: close");
  else if (c->h.http10) buf_puts(b, "\r\nConnection: keep-alive");
  buf_puts(b, "\r\n");
  buf_str(b, buf_view(&c->extra));
  buf_puts(b, "\r\n");
  size_t skip = c->early;
  c->early = false;
  return (struct iovec){b->p + skip, b->n - skip};
}

/* ---- the end of things ---- */

/* Closes the socket and leaves the rest to conn_todo. */
static void close_now(conn *c) {
  if (c->state == CONN_DEAD) return;
  event_del(&c->ev);
  close(c->fd);
  c->fd = -1;
  c->state = CONN_DEAD;
  c->deadline = INT64_MAX;
  server_todo(c->s, c);
}

static void begin_linger(conn *c) {
  if (c->eof) {
    close_now(c);
    return;
  }
  shutdown(c->fd, SHUT_WR);
  c->state = CONN_LINGER;
  set_deadline(c, clock_now() + LINGER_MS * MS);
  server_todo(c->s, c);
}

/* The answer is out: on to the next request on this connection, or to its end. */
static void next_request(conn *c) {
  if (!c->keep || c->s->draining) {
    begin_linger(c);
    return;
  }
  size_t used = c->h.pos;
  c->in.n -= used;
  if (c->in.n) memmove(c->in.p, c->in.p + used, c->in.n);
  else if (c->in.cap > KEEP_BUF) {
    c->s->mem -= c->in.cap;
    buf_fini(&c->in);
  }
  http_parse_init(&c->h, c->s->o.max_body);
  c->state = CONN_READ;
  c->phase = PHASE_IDLE;
  c->fresh = false;
  set_deadline(c, clock_now() + c->s->o.idle_ms * MS);
  if (c->in.n || c->eof || c->paused) server_todo(c->s, c);
}

static void let_go(conn *c) {
  c->s->mem -= c->held;
  c->held = 0;
}

static void end_answer(conn *c) {
  let_go(c);
  c->active = false;
  c->on_close = NULL;
  if (c->state == CONN_DEAD) server_todo(c->s, c);
  else if (out_pending(c)) c->state = CONN_FLUSH;
  else next_request(c);
}

void conn_refuse(conn *c, int status, err_code code, const char *why) {
  const err_info *info = err_lookup(code);
  char body[512];
  err e;
  buf b;
  /* `why` is one of our own sentences: nothing of the request is in it, so nothing needs escaping. */
  int n = snprintf(body, sizeof body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%s%s%s}}", why, info->openai,
      info->openai_code ? "\"" : "", info->openai_code ? info->openai_code : "null", info->openai_code ? "\"" : "");
  buf_init(&b, REFUSAL_MAX);
  err_set(&e, code, "%s", why);
  if (c->s->o.refusal) c->s->o.refusal(c->h.path_n ? http_path(c) : STR(""), &e, &b);
  str doc = b.n && !b.failed ? buf_view(&b) : (str){body, (size_t)n};
  c->keep = false;
  c->chunked = false;
  buf_clear(&c->extra);
  struct iovec v[2] = {make_head(c, status, "application/json", (int)doc.n), {(char *)doc.p, doc.n}};
  c->state = CONN_FLUSH;
  c->deadline = INT64_MAX;
  bool sent = out_send(c, v, 2);
  buf_fini(&b);
  if (sent && !out_pending(c)) next_request(c);
}

/* ---- reading ---- */

/* Makes room behind what has been read and returns how much there is. While a handler holds the request the buffer stays where it is. */
static size_t in_room(conn *c) {
  size_t room = c->in.cap > c->in.n ? c->in.cap - c->in.n - 1 : 0;
  if (c->state != CONN_READ || room >= READ_MIN / 2) return room;
  uint64_t left = c->h.head_done && !c->h.chunked ? c->h.body_want - c->h.body_n : c->in.n / 2;
  size_t want = left > READ_MAX ? READ_MAX : left < READ_MIN ? READ_MIN : (size_t)left + SPARE, cap = c->in.cap;
  if (c->s->mem + want > c->s->o.max_mem || !buf_reserve(&c->in, want)) {
    conn_refuse(c, 503, ERR_BUSY, "the server holds as many request bytes as it may: try again later");
    return 0;
  }
  c->s->mem += c->in.cap - cap;
  return c->in.cap - c->in.n - 1;
}

static void begin_request(conn *c) {
  size_t cap = c->in.cap;
  if (!buf_reserve(&c->in, SPARE)) {
    conn_refuse(c, 503, ERR_NOMEM, "the server is out of memory: try again later");
    return;
  }
  c->s->mem += c->in.cap - cap;
  c->state = CONN_WORK;
  c->active = true;
  c->deadline = INT64_MAX;
  c->keep = c->h.keep_alive && !c->s->draining;
  c->head_only = str_is(http_method(c), "HEAD");
  c->chunked = c->early = false;
  c->sent_mark = 0;
  buf_clear(&c->extra);
  c->accepted = clock_now();
  c->s->o.handler(c, c->s->o.ctx);
}

/* Between two reads of one request: 100-continue, and how long the client may take. */
static void need_more(conn *c) {
  http_server *s = c->s;
  if (c->eof) {
    if (http_parse_idle(&c->h, c->in.n)) close_now(c);
    else conn_refuse(c, 400, ERR_INPUT, "the connection was shut down before the request was complete");
    return;
  }
  if (http_parse_idle(&c->h, c->in.n)) return;
  int64_t now = clock_now();
  if (c->phase == PHASE_IDLE) {
    c->phase = PHASE_HEAD;
    if (!c->fresh) set_deadline(c, now + s->o.header_ms * MS); /* a fresh connection has had its time since it was accepted */
  }
  if (!c->h.head_done) return;
  if (c->phase == PHASE_HEAD) {
    c->phase = PHASE_BODY;
    c->body_start = now;
    c->wire = 0;
    if (c->h.expect_100 && !c->h.http10 && !c->h.body_n && !out_send(c, &(struct iovec){(char *)"HTTP/1.1 100 Continue\r\n\r\n", 25}, 1)) return;
  }
  /* body_ms without a byte ends it, and so does an average below the floor once the first body_ms are over. */
  int64_t floor_at = c->body_start + s->o.body_ms * MS + (int64_t)(c->wire * 1000 / FLOOR_BYTES_S) * MS, progress_at = now + s->o.body_ms * MS;
  int64_t until = floor_at < progress_at ? floor_at : progress_at;
  set_deadline(c, s->draining && s->drain_until < until ? s->drain_until : until);
}

/* Parses and hands over every request that is whole. */
static void conn_process(conn *c) {
  if (c->processing) return;
  c->processing = true;
  while (c->state == CONN_READ) {
    http_parse_state st = http_parse_run(&c->h, c->in.p, &c->in.n);
    if (st == HTTP_PARSE_DONE) begin_request(c);
    else if (st == HTTP_PARSE_BAD) conn_refuse(c, c->h.status, c->h.code, c->h.why);
    else {
      need_more(c);
      break;
    }
  }
  c->processing = false;
}

static void probe(conn *c) {
  if (c->early || out_pending(c)) return; /* what is under way already serves as one */
  const char *b = c->state == CONN_WORK ? "H" : c->state == CONN_STREAM && c->chunked && !c->head_only ? "0" : NULL;
  if (!b) return;
  if (send(c->fd, b, 1, MSG_NOSIGNAL) == 1) c->early = true;
  else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) close_now(c);
}

/* True once the peer has answered with a reset. A plain recv would go on reporting the end of file. */
static bool peer_reset(conn *c) {
  int en = 0;
  socklen_t n = sizeof en;
  if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &en, &n) != 0 || en) return true;
  struct tcp_info ti;
  n = sizeof ti;
  return getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &ti, &n) == 0 && ti.tcpi_state == TCP_CLOSE;
}

static void on_eof(conn *c) {
  c->eof = true;
  if (c->state == CONN_READ) conn_process(c);
  else if (c->state == CONN_LINGER) close_now(c);
  else probe(c);
}

/* Asks for a new edge in the next turn of the loop, after the other connections. */
static void rearm(conn *c) {
  event_del(&c->ev);
  if (event_add(&c->ev, NULL) != 0) close_now(c);
}

/* Reads until the kernel has no more, the spare room is full, or it is others' turn. */
static void conn_read(conn *c) {
  static _Thread_local char sink[16 * 1024];
  for (int turn = 0; turn < READ_TURNS; turn++) {
    if (c->state == CONN_DEAD || c->eof) return;
    bool drop = c->state == CONN_LINGER || (c->state == CONN_FLUSH && !c->keep);
    size_t room = drop ? sizeof sink : in_room(c);
    if (!room) {
      if (c->state != CONN_LINGER && c->state != CONN_DEAD) c->paused = true;
      return;
    }
    ssize_t k = recv(c->fd, drop ? sink : c->in.p + c->in.n, room, 0);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) close_now(c);
      return;
    }
    if (k == 0) {
      on_eof(c);
      return;
    }
    if (!drop) {
      c->in.n += (size_t)k;
      c->wire += (uint64_t)k;
      if (c->state == CONN_READ) conn_process(c);
    }
    if ((size_t)k < room && !c->fin) return; /* drained: anything that comes now makes a new edge */
  }
  if (c->state != CONN_DEAD) rearm(c);
}

static void on_event(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  conn *c = arg;
  if (what & EV_CLOSED) c->fin = true;
  if (!c->eof && !c->paused && what & (EV_READ | EV_CLOSED)) conn_read(c);
  if ((c->eof || c->paused) && c->state != CONN_DEAD) {
    if (peer_reset(c)) close_now(c);
    else if (c->paused && c->fin) probe(c); /* the end of file cannot be read, but it is there */
  }
  if (!(what & EV_WRITE) || !c->blocked || c->state == CONN_DEAD) return;
  c->blocked = false;
  if (out_send(c, NULL, 0) && c->state == CONN_FLUSH && !out_pending(c)) next_request(c);
}

/* ---- called by the server ---- */

conn *conn_new(http_server *s, int fd) {
  conn *c = calloc(1, sizeof *c);
  if (!c || event_assign(&c->ev, loop_base(s->l), fd, EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, on_event, c) != 0 ||
      event_add(&c->ev, NULL) != 0) {
    free(c);
    close(fd);
    return NULL;
  }
  c->s = s;
  c->fd = fd;
  c->fresh = true;
  c->keep = true;
  buf_init(&c->in, HTTP_MAX_HEAD + s->o.max_body + READ_MAX + KEEP_BUF);
  buf_init(&c->out, SIZE_MAX / 4);
  buf_init(&c->extra, 16 * 1024);
  http_parse_init(&c->h, s->o.max_body);
  int on = 1, idle_s = 30, user_ms = s->o.body_ms > 20000 ? s->o.body_ms : 20000;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  /* A machine that vanished without a FIN: probes find it while a request runs in silence, and unacknowledged bytes give it up. */
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof user_ms);
  set_deadline(c, clock_now() + s->o.header_ms * MS);
  return c;
}

static void tell_closed(conn *c) {
  void (*fn)(http_req *, void *) = c->on_close;
  c->active = false; /* so that whatever fn calls on the request does nothing */
  c->on_close = NULL;
  if (fn) fn(c, c->on_close_arg);
}

static void conn_free(conn *c) {
  let_go(c);
  c->s->mem -= c->in.cap;
  buf_fini(&c->in);
  buf_fini(&c->out);
  buf_fini(&c->extra);
  server_forget(c->s, c);
}

void conn_todo(conn *c) {
  switch ((conn_state)c->state) {
  case CONN_DEAD:
    if (c->active && !c->on_close) return; /* its handler does not know yet */
    if (c->active) tell_closed(c);
    conn_free(c);
    return;
  case CONN_READ:
    conn_process(c);
    if (c->paused && c->state == CONN_READ) {
      c->paused = false;
      rearm(c);
    }
    return;
  case CONN_STREAM:
    if (!c->blocked) out_send(c, NULL, 0); /* the head, when no event came along with it */
    return;
  case CONN_LINGER:
    c->paused = false;
    conn_read(c);
    return;
  case CONN_WORK:
  case CONN_FLUSH: return;
  }
}

void conn_timeout(conn *c) {
  c->deadline = INT64_MAX;
  if (c->state != CONN_READ || http_parse_idle(&c->h, c->in.n)) close_now(c);
  else conn_refuse(c, 408, ERR_TIMEOUT, c->h.head_done ? "the request body came too slowly" : "the request header came too slowly");
}

void conn_close_idle(conn *c) {
  if (c->state == CONN_READ && !c->paused) conn_read(c); /* a request that is here already is answered */
  if (c->state == CONN_READ && !c->paused && http_parse_idle(&c->h, c->in.n)) begin_linger(c);
  if (c->state == CONN_READ && c->deadline > c->s->drain_until) set_deadline(c, c->s->drain_until);
}

void conn_abandon(conn *c) {
  if (c->state != CONN_DEAD) {
    event_del(&c->ev);
    close(c->fd);
    c->state = CONN_DEAD;
  }
  if (c->active) tell_closed(c);
  conn_free(c);
}

/* ---- the face of http.h ---- */

static str at(const http_req *r, uint32_t off, uint32_t n) { return (str){r->in.p + off, n}; }

str http_method(const http_req *r) { return at(r, r->h.method, r->h.method_n); }
str http_path(const http_req *r) { return at(r, r->h.path, r->h.path_n); }
str http_query(const http_req *r) { return at(r, r->h.query, r->h.query_n); }
str http_header(const http_req *r, const char *name) { return http_parse_field(&r->h, r->in.p, name); }
str http_body(const http_req *r) { return (str){r->in.p + r->h.body, r->h.body_n}; }
int64_t http_accepted_ns(const http_req *r) { return r->accepted; }
size_t http_stream_pending(const http_req *r) { return out_pending(r); }

bool http_hold(http_req *r, uint64_t bytes) {
  http_server *s = r->s;
  if (!r->active || s->mem > s->o.max_mem || bytes > s->o.max_mem - s->mem) return false;
  s->mem += bytes;
  r->held += bytes;
  return true;
}

void http_add(http_req *r, const char *name, const char *fmt, ...) {
  if (!r->active || r->state != CONN_WORK) return;
  buf *b = &r->extra;
  size_t from = b->n;
  va_list ap;
  va_start(ap, fmt);
  bool ok = buf_puts(b, name) && buf_puts(b, ": ") && buf_vprintf(b, fmt, ap);
  va_end(ap);
  for (size_t i = from; ok && i < b->n; i++) ok = (uint8_t)b->p[i] >= 0x20 && b->p[i] != 0x7f;
  if (ok && buf_puts(b, "\r\n")) return;
  b->n = from;
  b->failed = false;
}

void http_respond(http_req *r, int status, const char *content_type, str body) {
  if (!r->active) return;
  if (r->state == CONN_STREAM) {
    http_stream_end(r); /* it has begun: there is no taking it back */
    return;
  }
  if (r->state == CONN_WORK) {
    struct iovec v[2] = {make_head(r, status, content_type, (int64_t)body.n), {(char *)body.p, body.n}};
    out_send(r, v, r->head_only || bodyless(status) ? 1 : 2);
  }
  end_answer(r);
}

void http_stream_begin(http_req *r, int status, const char *content_type) {
  if (!r->active || r->state != CONN_WORK) return;
  r->chunked = !r->h.http10;
  if (r->h.http10) r->keep = false; /* the end of such an answer is the end of the connection */
  struct iovec head = make_head(r, status, content_type, -1);
  r->state = CONN_STREAM;
  /* It waits for the first event to share a packet with it, at most until this turn of the loop is over. */
  if (!buf_put(&r->out, head.iov_base, head.iov_len)) close_now(r);
  else server_todo(r->s, r);
}

bool http_stream_write(http_req *r, str data) {
  if (!r->active || r->state != CONN_STREAM) return false;
  if (r->head_only || !data.n) return true;
  char size[24];
  struct iovec v[3] = {{size, 0}, {(char *)data.p, data.n}, {(char *)"\r\n", 2}};
  bool sent;
  size_t behind = out_pending(r);
  if (r->chunked) {
    v[0].iov_len = (size_t)snprintf(size, sizeof size, "%zx\r\n", data.n);
    sent = out_send(r, v, 3);
  } else {
    sent = out_send(r, v + 1, 1);
  }
  r->early = false;
  if (sent && behind > r->s->o.max_out) {
    close_now(r);
    return false;
  }
  return sent;
}

void http_stream_end(http_req *r) {
  if (!r->active) return;
  if (r->state == CONN_STREAM) out_send(r, &(struct iovec){(char *)"0\r\n\r\n", 5}, r->chunked && !r->head_only);
  r->early = false;
  end_answer(r);
}

void http_on_close(http_req *r, void (*fn)(http_req *r, void *arg), void *arg) {
  if (!r->active) return;
  r->on_close = fn;
  r->on_close_arg = arg;
  if (r->state == CONN_DEAD) server_todo(r->s, r);
}
