/* The client against our own server (on a thread of its own) and against sockets that misbehave. */
#include "http_fixture.h"
#include "base/buf.h"
#include "net/http_client.h"

typedef struct seen {
  int heads, datas, dones, status;
  buf body;
  err e;
  bool failed;
  http_moments at;
  bool stop_head, stop_data, cancel_in_data;
  char type[64];
} seen;

static loop *l;
static http_client *cl;
static int running;

static void stop_loop(void *arg) {
  (void)arg;
  loop_stop(l);
}

static void done_one(void) {
  if (--running == 0) loop_stop(l);
}

static bool on_head(http_call *c, int status, void *ctx) {
  seen *s = ctx;
  s->heads++;
  s->status = status;
  str t = http_call_header(c, "CONTENT-TYPE");
  snprintf(s->type, sizeof s->type, "%.*s", (int)t.n, t.p ? t.p : "-");
  assert_null(http_call_header(c, "x-none").p);
  return !s->stop_head;
}

static bool on_data(http_call *c, str data, void *ctx) {
  seen *s = ctx;
  s->datas++;
  buf_str(&s->body, data);
  if (s->cancel_in_data) {
    http_call_cancel(c);
    done_one();
  }
  return !s->stop_data;
}

static void on_done(http_call *c, const err *e, void *ctx) {
  seen *s = ctx;
  s->dones++;
  s->failed = e != NULL;
  if (e) s->e = *e;
  s->at = http_call_moments(c);
  done_one();
}

static void url_of(char out[128], const char *path) { snprintf(out, 128, "http://127.0.0.1:%d%s", fx.port, path); }

static http_call *start(seen *s, http_call_opts o, const char *path) {
  char url[128];
  url_of(url, path);
  if (!o.url) o.url = url;
  buf_init(&s->body, 64 << 20);
  o.on_head = on_head;
  o.on_data = on_data;
  o.on_done = on_done;
  o.ctx = s;
  http_call *c = NULL;
  err e = {0};
  running++;
  if (!http_call_start(cl, &o, &c, &e)) fail_msg("%s", e.msg);
  return c;
}

/* One call, run to its end. */
static void once(seen *s, http_call_opts o, const char *path) {
  start(s, o, path);
  assert_true(loop_run(l));
}

static void test_simple(void **state) {
  (void)state;
  seen s = {0};
  once(&s, (http_call_opts){0}, "/a%20b?q=1");
  assert_false(s.failed);
  assert_int_equal(s.status, 200);
  assert_string_equal(s.type, "text/plain");
  assert_string_equal(s.body.p, "GET /a b ?q=1 x= ");
  buf_fini(&s.body);
  s = (seen){0};
  once(&s, (http_call_opts){.body = STR("{\"a\":1}"), .headers = (const char *const[]){"x-test: yes", NULL}}, "/p");
  assert_string_equal(s.body.p, "POST /p ? x=yes {\"a\":1}");
  buf_fini(&s.body);
  s = (seen){0};
  once(&s, (http_call_opts){.method = "DELETE"}, "/p");
  assert_string_equal(s.body.p, "DELETE /p ? x= ");
  buf_fini(&s.body);
  s = (seen){0};
  once(&s, (http_call_opts){.method = "HEAD"}, "/p");
  assert_int_equal(s.status, 200);
  assert_int_equal(s.body.n, 0);
  s = (seen){0};
  once(&s, (http_call_opts){0}, "/stream");
  assert_string_equal(s.body.p, "hello world, here are more than sixteen");
  assert_true(s.at.reused);
  buf_fini(&s.body);
}

static void test_error_status_is_an_answer(void **state) {
  (void)state;
  size_t n = (1 << 20) + 1;
  char *big = calloc(1, n);
  seen s = {0};
  once(&s, (http_call_opts){.body = {big, n}}, "/p");
  assert_false(s.failed);
  assert_int_equal(s.status, 413);
  assert_non_null(strstr(s.body.p, "larger than this server accepts"));
  buf_fini(&s.body);
  free(big);
}

static void test_moments(void **state) {
  (void)state;
  http_client *kept = cl;
  cl = http_client_new(l, 0);
  seen s = {0};
  int64_t before = clock_now();
  once(&s, (http_call_opts){0}, "/late");
  int64_t after = clock_now();
  http_moments m = s.at;
  assert_false(m.reused);
  assert_true(before <= m.start && m.start < m.connected && m.connected < m.head && m.head <= m.first && m.first <= m.last && m.last <= m.done &&
              m.done <= after);
  assert_true(m.head - m.start >= 99 * 1000000);
  assert_int_equal(m.tls, 0);
  buf_fini(&s.body);
  s = (seen){0};
  once(&s, (http_call_opts){0}, "/a");
  assert_true(s.at.reused);
  assert_int_equal(s.at.connected, 0);
  buf_fini(&s.body);
  http_client_free(cl);
  cl = kept;
}

static void test_many(void **state) {
  (void)state;
  enum { N = 200 };
  static seen s[N];
  memset(s, 0, sizeof s);
  for (int i = 0; i < N; i++) start(&s[i], (http_call_opts){0}, i % 3 ? "/a" : "/late");
  assert_true(loop_run(l));
  for (int i = 0; i < N; i++) {
    assert_int_equal(s[i].dones, 1);
    assert_string_equal(s[i].body.p, i % 3 ? "GET /a ? x= " : "late");
    buf_fini(&s[i].body);
  }
}

static void test_stops(void **state) {
  (void)state;
  seen s = {.stop_head = true};
  once(&s, (http_call_opts){0}, "/a");
  assert_int_equal(s.e.code, ERR_CANCELLED);
  assert_int_equal(s.datas, 0);
  s = (seen){.stop_data = true};
  once(&s, (http_call_opts){0}, "/big");
  assert_int_equal(s.e.code, ERR_CANCELLED);
  assert_int_equal(s.datas, 1);
  buf_fini(&s.body);
  s = (seen){.cancel_in_data = true};
  once(&s, (http_call_opts){0}, "/big");
  assert_int_equal(s.dones, 0);
  assert_int_equal(s.datas, 1);
  buf_fini(&s.body);
}

static void cancel_it(void *arg) {
  http_call_cancel(arg);
  loop_after(l, 50 * 1000000, stop_loop, NULL);
}

/* The server must hear of it: the connection is closed, not left. */
static void test_cancel_waiting(void **state) {
  (void)state;
  seen s = {0};
  int closed = atomic_load(&fx.closed);
  http_call *c = start(&s, (http_call_opts){0}, "/hang");
  loop_after(l, 50 * 1000000, cancel_it, c);
  assert_true(loop_run(l));
  running = 0;
  assert_int_equal(s.dones, 0);
  assert_true(wait_for(&fx.closed, closed + 1, 100));
}

static void test_timeouts(void **state) {
  (void)state;
  seen s = {0};
  int64_t t = clock_now();
  once(&s, (http_call_opts){.total_ms = 150}, "/hang");
  assert_int_equal(s.e.code, ERR_TIMEOUT);
  assert_true(clock_now() - t < 1000 * INT64_C(1000000));
  assert_non_null(strstr(s.e.msg, "no answer from http://127.0.0.1:"));
}

static seen paused_seen;
static int datas_while_paused;

static void unpause(void *arg) {
  datas_while_paused = paused_seen.datas - 1;
  http_call_pause(arg, false);
}

static bool pause_data(http_call *c, str data, void *ctx) {
  seen *s = ctx;
  buf_str(&s->body, data);
  if (++s->datas > 1) return true;
  http_call_pause(c, true);
  loop_after(l, 50 * 1000000, unpause, c);
  return true;
}

static void test_pause(void **state) {
  (void)state;
  char url[128];
  url_of(url, "/big");
  paused_seen = (seen){0};
  buf_init(&paused_seen.body, 64 << 20);
  running++;
  assert_true(http_call_start(cl, &(http_call_opts){.url = url, .on_data = pause_data, .on_done = on_done, .ctx = &paused_seen}, NULL, NULL));
  assert_true(loop_run(l));
  assert_false(paused_seen.failed);
  assert_int_equal(datas_while_paused, 0);
  assert_int_equal(paused_seen.body.n, 8u << 20);
  buf_fini(&paused_seen.body);
}

static seen chained;
static void start_next(http_call *c, const err *e, void *ctx) {
  on_done(c, e, ctx);
  if (!running) start(&chained, (http_call_opts){0}, "/b");
}
static bool start_from_data(http_call *c, str data, void *ctx) {
  (void)c;
  (void)data;
  if (!((seen *)ctx)->datas++) start(&chained, (http_call_opts){0}, "/c");
  return true;
}

static void test_start_within(void **state) {
  (void)state;
  char url[128];
  url_of(url, "/a");
  seen s = {0};
  chained = (seen){0};
  running = 2; /* keeps the loop running over on_done */
  assert_true(http_call_start(cl, &(http_call_opts){.url = url, .on_done = start_next, .ctx = &s}, NULL, NULL));
  running = 1;
  loop_run(l); /* on_done stopped it, and has started the next */
  loop_run(l);
  assert_string_equal(chained.body.p, "GET /b ? x= ");
  buf_fini(&chained.body);
  chained = (seen){0};
  s = (seen){0};
  running = 1;
  assert_true(http_call_start(cl, &(http_call_opts){.url = url, .on_data = start_from_data, .on_done = on_done, .ctx = &s}, NULL, NULL));
  loop_run(l);
  assert_int_equal(s.dones, 1);
  assert_int_equal(chained.dones, 1);
  assert_string_equal(chained.body.p, "GET /c ? x= ");
  buf_fini(&chained.body);
}

/* ---- what is wrong ---- */

static void expect_refused(http_call_opts o, err_code code, const char *msg) {
  err e = {0};
  http_call *c = NULL;
  assert_false(http_call_start(cl, &o, &c, &e));
  assert_int_equal(e.code, code);
  assert_string_equal(e.msg, msg);
  assert_null(c);
}

static void test_refused(void **state) {
  (void)state;
  expect_refused((http_call_opts){.url = "no url"}, ERR_INPUT, "'no url' is not a URL: give http://HOST[:PORT]/PATH or https://...");
  expect_refused((http_call_opts){.url = "file:///etc/passwd"}, ERR_UNSUPPORTED, "the URL begins with file://: only http and https are spoken");
  expect_refused((http_call_opts){.url = "http://127.0.0.1/", .headers = (const char *const[]){"a: b\r\nc: d", NULL}}, ERR_INPUT,
      "a request header holds a line break, or memory is out");
}

static void test_nobody_listens(void **state) {
  (void)state;
  int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound and not listening: surely refused */
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t n = sizeof a;
  assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
  getsockname(fd, (struct sockaddr *)&a, &n);
  char url[128], head[160];
  snprintf(url, sizeof url, "http://user:secret@127.0.0.1:%d/v1?key=secret", ntohs(a.sin_port));
  snprintf(head, sizeof head, "cannot connect to http://127.0.0.1:%d/v1: ", ntohs(a.sin_port));
  seen s = {0};
  once(&s, (http_call_opts){.url = url}, NULL);
  assert_int_equal(s.e.code, ERR_NET);
  assert_int_equal(strncmp(s.e.msg, head, strlen(head)), 0);
  assert_null(strstr(s.e.msg, "secret"));
  close(fd);
}

typedef struct rogue {
  int fd, port;
  const char *answer;
  pthread_t th;
} rogue;

static void *rogue_thread(void *arg) {
  rogue *r = arg;
  int fd = accept(r->fd, NULL, NULL);
  char request[4096];
  if (recv(fd, request, sizeof request, 0) > 0) say(fd, r->answer);
  close(fd);
  return NULL;
}

static void against(const char *answer, seen *s) {
  rogue r = {.answer = answer};
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t n = sizeof a;
  r.fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(r.fd, (struct sockaddr *)&a, sizeof a), 0);
  listen(r.fd, 1);
  getsockname(r.fd, (struct sockaddr *)&a, &n);
  pthread_create(&r.th, NULL, rogue_thread, &r);
  char url[128];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(a.sin_port));
  *s = (seen){0};
  once(s, (http_call_opts){.url = url, .max_head = 200}, NULL);
  pthread_join(r.th, NULL);
  close(r.fd);
}

static void test_rogues(void **state) {
  (void)state;
  seen s;
  against("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", &s); /* the negative control */
  assert_false(s.failed);
  assert_string_equal(s.body.p, "hello");
  buf_fini(&s.body);
  against("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 404 No\r\nContent-Type: t\r\nContent-Length: 0\r\n\r\n", &s);
  assert_false(s.failed);
  assert_int_equal(s.heads, 1);
  assert_int_equal(s.status, 404);
  assert_string_equal(s.type, "t");
  against("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", &s);
  assert_int_equal(s.e.code, ERR_NET);
  assert_non_null(strstr(s.e.msg, "broke before the answer was complete"));
  buf_fini(&s.body);
  against("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", &s);
  assert_int_equal(s.e.code, ERR_NET);
  buf_fini(&s.body);
  against("", &s);
  assert_int_equal(s.e.code, ERR_NET);
  against("SSH-2.0-OpenSSH\r\n", &s);
  assert_int_equal(s.e.code, ERR_NET);
  buf_fini(&s.body);
  against("HTTP/1.1 200 OK\r\nX: "
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"
          "Y: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
      &s);
  assert_int_equal(s.e.code, ERR_TOO_LARGE);
}

static void test_free_running(void **state) {
  (void)state;
  http_client *kept = cl;
  cl = http_client_new(l, 0);
  seen s[3] = {0};
  for (int i = 0; i < 3; i++) start(&s[i], (http_call_opts){0}, "/hang");
  loop_after(l, 30 * 1000000, stop_loop, NULL);
  loop_run(l);
  http_client_free(cl);
  running = 0;
  cl = kept;
  for (int i = 0; i < 3; i++) assert_int_equal(s[i].dones, 0);
}

static int up(void **state) {
  (void)state;
  fixture_start((http_opts){.max_body = 1 << 20});
  l = loop_new();
  cl = http_client_new(l, 0);
  return l && cl ? 0 : -1;
}
static int down(void **state) {
  (void)state;
  http_client_free(cl);
  loop_free(l);
  fixture_stop();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_simple),
      cmocka_unit_test(test_error_status_is_an_answer),
      cmocka_unit_test(test_moments),
      cmocka_unit_test(test_many),
      cmocka_unit_test(test_stops),
      cmocka_unit_test(test_cancel_waiting),
      cmocka_unit_test(test_timeouts),
      cmocka_unit_test(test_pause),
      cmocka_unit_test(test_start_within),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_nobody_listens),
      cmocka_unit_test(test_rogues),
      cmocka_unit_test(test_free_running),
  };
  return cmocka_run_group_tests(tests, up, down);
}
