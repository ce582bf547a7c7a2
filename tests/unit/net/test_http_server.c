/* The server from the wire: raw request bytes, and the exact bytes that must come back. Every row is sent whole, one byte at a time and in
 * three-byte pieces, and must give the same answer each time. */
#include "http_fixture.h"

#define OK(len) "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " #len "\r\n"
#define H "Host: a\r\n"
#define CLOSE "Connection: close\r\n"

typedef struct row {
  const char *name, *in, *out;
  size_t in_n;
} row;
#define ROW(name, in, out)                                                                                                                           \
  { name, in, out, sizeof(in) - 1 }

static const row good_rows[] = {
    ROW("get", "GET /a HTTP/1.1\r\n" H CLOSE "\r\n", OK(12) CLOSE "\r\nGET /a ? x= "),
    ROW("query and percent", "GET /a%20%2Fb?c=%20d&?e HTTP/1.1\r\n" H CLOSE "\r\n", OK(24) CLOSE "\r\nGET /a /b ?c=%20d&?e x= "),
    ROW("absolute form", "GET http://b:80/p?q HTTP/1.1\r\n" H CLOSE "\r\n", OK(13) CLOSE "\r\nGET /p ?q x= "),
    ROW("absolute form without a path", "GET http://b HTTP/1.1\r\n" H CLOSE "\r\n", OK(11) CLOSE "\r\nGET / ? x= "),
    ROW("absolute form, query only", "GET http://b?q HTTP/1.1\r\n" H CLOSE "\r\n", OK(12) CLOSE "\r\nGET / ?q x= "),
    ROW("asterisk", "OPTIONS * HTTP/1.1\r\n" H CLOSE "\r\n", OK(15) CLOSE "\r\nOPTIONS * ? x= "),
    ROW("header case and white space", "GET /a HTTP/1.1\r\nhOsT:a\r\nX-TEST: \t v w\t \r\n" CLOSE "\r\n", OK(15) CLOSE "\r\nGET /a ? x=v w "),
    ROW("post", "POST /a HTTP/1.1\r\n" H "Content-Length: 5\r\n" CLOSE "\r\nhello", OK(18) CLOSE "\r\nPOST /a ? x= hello"),
    ROW("post of nothing", "POST /a HTTP/1.1\r\n" H "Content-Length: 0\r\n" CLOSE "\r\n", OK(13) CLOSE "\r\nPOST /a ? x= "),
    ROW("body with NUL and CRLF", "POST /a HTTP/1.1\r\n" H "Content-Length: 5\r\n" CLOSE "\r\n\r\n\r\n\t",
        OK(18) CLOSE "\r\nPOST /a ? x= \r\n\r\n\t"),
    ROW("chunked",
        "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n" CLOSE "\r\n3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n000\r\nx-trailer: t\r\n\r\n",
        OK(26) CLOSE "\r\nPOST /a ? x= abc0123456789"),
    ROW("head", "HEAD /a HTTP/1.1\r\n" H CLOSE "\r\n", OK(13) CLOSE "\r\n"),
    ROW("head of a stream", "HEAD /stream HTTP/1.1\r\n" H CLOSE "\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n" CLOSE "x-kind: stream\r\n\r\n"),
    ROW("stream", "GET /stream HTTP/1.1\r\n" H CLOSE "\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n" CLOSE
        "x-kind: stream\r\n\r\n6\r\nhello \r\n21\r\nworld, here are more than sixteen\r\n0\r\n\r\n"),
    ROW("stream to 1.0", "GET /stream HTTP/1.0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" CLOSE "x-kind: stream\r\n\r\nhello world, here are more than sixteen"),
    ROW("1.0", "GET /a HTTP/1.0\r\n\r\n", OK(12) CLOSE "\r\nGET /a ? x= "),
    ROW("1.0 keep-alive, then close", "GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
        OK(12) "Connection: keep-alive\r\n\r\nGET /a ? x= " OK(12) CLOSE "\r\nGET /b ? x= "),
    ROW("pipelined",
        "GET /a HTTP/1.1\r\n" H "\r\nPOST /b HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nhiGET /stream HTTP/1.1\r\n" H "\r\nGET /c HTTP/1.1\r\n" H CLOSE
        "\r\n",
        OK(12) "\r\nGET /a ? x= " OK(15) "\r\nPOST /b ? x= hi"
                                         "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nx-kind: "
                                         "stream\r\n\r\n6\r\nhello \r\n21\r\nworld, here are more than sixteen\r\n0\r\n\r\n" OK(12) CLOSE
        "\r\nGET /c ? x= "),
    ROW("pipelined behind a late answer",
        "GET /late HTTP/1.1\r\n" H "\r\nPOST /b HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n" CLOSE "\r\n2\r\nhi\r\n0\r\n\r\n",
        OK(4) "\r\nlate" OK(15) CLOSE "\r\nPOST /b ? x= hi"),
    ROW("nothing is read behind close", "GET /a HTTP/1.1\r\n" H CLOSE "\r\nGET /b HTTP/1.1\r\n" H "\r\n", OK(12) CLOSE "\r\nGET /a ? x= "),
    ROW("blank lines before a request", "\r\n\r\nGET /a HTTP/1.1\r\n" H CLOSE "\r\n", OK(12) CLOSE "\r\nGET /a ? x= "),
    ROW("204 has no body", "GET /hdr HTTP/1.1\r\n" H CLOSE "\r\n", "HTTP/1.1 204 No Content\r\n" CLOSE "x-good: 7\r\n\r\n"),
};

/* Refused: status, err table columns, message. */
typedef struct bad_row {
  const char *name, *in;
  size_t in_n;
  const char *status, *type, *code, *msg;
} bad_row;
#define BAD(name, in, msg)                                                                                                                           \
  { name, in, sizeof(in) - 1, "400 Bad Request", "invalid_request_error", "null", msg }
#define BAD_AS(name, in, status, code, msg)                                                                                                          \
  { name, in, sizeof(in) - 1, status, "invalid_request_error", code, msg }
#define GET "GET /a HTTP/1.1\r\n" H
#define POST "POST /a HTTP/1.1\r\n" H
#define LF_MSG "a line ends in a bare line feed: end each line with CR LF"
#define LINE_MSG "the request line is not METHOD TARGET HTTP/1.1"
#define NAME_MSG "a header name holds white space or another character that is not allowed in one"
#define CTL_MSG "a header value holds a control character"
#define TOO_LARGE(name, in)                                                                                                                          \
  BAD_AS(name, in, "413 Content Too Large", "\"too_large\"",                                                                                         \
      "the request body is larger than this server accepts: send less, or raise the server's --max-body")

static const bad_row bad_rows[] = {
    BAD("bare LF after the request line", "GET /a HTTP/1.1\n" H "\r\n", LF_MSG),
    BAD("bare LF in the fields", "GET /a HTTP/1.1\r\nHost: a\n\r\n", LF_MSG),
    BAD("bare LF as the blank line", GET "\n", LF_MSG),
    BAD("bare CR in a value", GET "X: a\rY: b\r\n\r\n", CTL_MSG),
    BAD("slash in the host", "GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n", "Host holds a character that is not allowed in a host name"),
    BAD("garbage", "\x01\x02\x03\r\n\r\n", LINE_MSG),
    BAD("no target", "GET\r\n\r\n", LINE_MSG),
    BAD("no version", "GET /a\r\n\r\n", LINE_MSG),
    BAD("two spaces", "GET  /a HTTP/1.1\r\n" H "\r\n", LINE_MSG),
    BAD("space in the target", "GET /a b HTTP/1.1\r\n" H "\r\n", "the request line does not end in HTTP/1.1"),
    BAD("lower-case version", "GET /a http/1.1\r\n" H "\r\n", "the request line does not end in HTTP/1.1"),
    BAD("TLS on a plain port", "\x16\x03\x01\x02", "this looks like TLS: this port speaks plain HTTP, use http://"),
    BAD("space in the method", "G@T /a HTTP/1.1\r\n" H "\r\n", "the method holds a character that is not allowed in one"),
    BAD("control character in the target", "GET /a\x01 HTTP/1.1\r\n" H "\r\n", "the request target holds a character that must be percent-encoded"),
    BAD("high byte in the target", "GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n", "the request target holds a character that must be percent-encoded"),
    BAD("authority form", "CONNECT a:80 HTTP/1.1\r\n" H "\r\n", "the request target is neither a path nor an http URL"),
    BAD("half a percent", "GET /%4 HTTP/1.1\r\n" H "\r\n", "the path has a % that two hexadecimal digits do not follow"),
    BAD("percent NUL", "GET /%00 HTTP/1.1\r\n" H "\r\n", "the path holds %00"),
    BAD("no host", "GET /a HTTP/1.1\r\n\r\n", "there is no Host field"),
    BAD("two hosts", GET "Host: b\r\n\r\n", "there are two Host fields"),
    BAD("space before the colon", GET "Content-Length : 5\r\n\r\nhello", NAME_MSG),
    BAD("tab before the colon", GET "Transfer-Encoding\t: chunked\r\n\r\n", NAME_MSG),
    BAD("no colon", GET "what\r\n\r\n", "a header line has no name before a colon"),
    BAD("empty name", GET ": v\r\n\r\n", "a header line has no name before a colon"),
    BAD("folded line", GET "X: a\r\n b\r\n\r\n", "a header line begins with white space (line folding is not allowed)"),
    BAD("NUL in a value", GET "X: a\0b\r\n\r\n", CTL_MSG),
    BAD("NUL in a name", GET "X\0: b\r\n\r\n", NAME_MSG),
    BAD("length and chunked", POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "there are both Content-Length and Transfer-Encoding"),
    BAD("chunked and length", POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "there are both Content-Length and Transfer-Encoding"),
    BAD("two lengths", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "there are two Content-Length fields"),
    BAD("length list", POST "Content-Length: 5, 5\r\n\r\nhello", "Content-Length is not a decimal number"),
    BAD("length with a sign", POST "Content-Length: +5\r\n\r\nhello", "Content-Length is not a decimal number"),
    BAD("negative length", POST "Content-Length: -5\r\n\r\nhello", "Content-Length is not a decimal number"),
    BAD("hexadecimal length", POST "Content-Length: 0x5\r\n\r\nhello", "Content-Length is not a decimal number"),
    BAD("empty length", POST "Content-Length: \r\n\r\n", "Content-Length is empty"),
    BAD("chunked in 1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.0 has no Transfer-Encoding"),
    BAD("two encodings", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "there are two Transfer-Encoding fields"),
    BAD("chunk size not hexadecimal", POST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "a chunk does not begin with its size in hexadecimal"),
    BAD("chunk size with 0x", POST "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n",
        "a chunk size is followed by something other than an extension"),
    BAD("chunk size with a sign", POST "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n", "a chunk does not begin with its size in hexadecimal"),
    BAD("chunk size with a space", POST "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n", "a chunk size is followed by white space"),
    BAD("chunk line with a bare LF", POST "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n", LF_MSG),
    BAD("chunk longer than it says", POST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", "a chunk is longer than its size says"),
    BAD("chunk ends in CR X", POST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\rX", "a chunk is longer than its size says"),
    BAD("bad trailer", POST "Transfer-Encoding: chunked\r\n\r\n0\r\na b: c\r\n\r\n", NAME_MSG),
    BAD_AS("coding other than chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n", "501 Not Implemented", "\"unsupported_value\"",
        "the only Transfer-Encoding understood is: chunked"),
    BAD("vertical tab before chunked", POST "Transfer-Encoding: \vchunked\r\n\r\n", CTL_MSG),
    BAD_AS("coding that only looks like it", POST "Transfer-Encoding: xchunked\r\n\r\n", "501 Not Implemented", "\"unsupported_value\"",
        "the only Transfer-Encoding understood is: chunked"),
    BAD_AS("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported", "\"unsupported_value\"",
        "only HTTP/1.1 and HTTP/1.0 are spoken here"),
    BAD_AS("HTTP/1.2", "GET /a HTTP/1.2\r\n\r\n", "505 HTTP Version Not Supported", "\"unsupported_value\"",
        "only HTTP/1.1 and HTTP/1.0 are spoken here"),
    BAD_AS("other expectation", POST "Expect: the-spanish-inquisition\r\n\r\n", "417 Expectation Failed", "\"unsupported_value\"",
        "the only Expect understood is: 100-continue"),
    TOO_LARGE("body over the bound", POST "Content-Length: 1048577\r\n\r\n"),
    TOO_LARGE("length over 64 bits", POST "Content-Length: 99999999999999999999999\r\n\r\n"),
    TOO_LARGE("length that wraps to 5", POST "Content-Length: 18446744073709551621\r\n\r\n"),
    TOO_LARGE("over the bound with 100-continue", POST "Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n"),
    TOO_LARGE("chunk over the bound", POST "Transfer-Encoding: chunked\r\n\r\n100001\r\n"),
    TOO_LARGE("chunk size over 64 bits", POST "Transfer-Encoding: chunked\r\n\r\n10000000000000003\r\nabc\r\n"),
};

static void expect_exchange(const char *name, const char *in, size_t in_n, const char *want) {
  static const size_t steps[] = {0, 1, 3};
  for (size_t i = 0; i < 3; i++) {
    char got[16384];
    bool end;
    int fd = dial();
    say_n(fd, in, in_n, steps[i]);
    hear(fd, got, sizeof got, 3000, &end);
    close(fd);
    drop_dates(got);
    if (strcmp(got, want) != 0) fail_msg("%s (step %zu):\nwant <<%s>>\ngot  <<%s>>", name, steps[i], want, got);
    if (!end) fail_msg("%s (step %zu): the connection was not closed", name, steps[i]);
  }
}

static void test_good(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof good_rows / sizeof *good_rows; i++)
    expect_exchange(good_rows[i].name, good_rows[i].in, good_rows[i].in_n, good_rows[i].out);
}

static void error_answer(char *out, size_t cap, const char *status, const char *type, const char *code, const char *msg) {
  char body[512];
  int n = snprintf(body, sizeof body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%s}}", msg, type, code);
  snprintf(out, cap, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, n, body);
}

static void test_bad(void **state) {
  (void)state;
  int before = atomic_load(&fx.handled);
  for (size_t i = 0; i < sizeof bad_rows / sizeof *bad_rows; i++) {
    const bad_row *b = &bad_rows[i];
    char want[1024];
    error_answer(want, sizeof want, b->status, b->type, b->code, b->msg);
    expect_exchange(b->name, b->in, b->in_n, want);
  }
  assert_int_equal(atomic_load(&fx.handled), before); /* none of them may reach the handler */
}

/* Sends `head`, then n times `unit`, then `tail`; the answer's status must be `want`. */
static void expect_status(const char *head, const char *unit, int n, const char *tail, const char *want) {
  size_t u = strlen(unit);
  char *all = malloc(strlen(head) + u * (size_t)n + strlen(tail) + 1), *p = stpcpy(all, head), got[4096];
  for (int i = 0; i < n; i++) p = stpcpy(p, unit);
  strcpy(p, tail);
  int fd = dial();
  say(fd, all);
  hear_until(fd, got, sizeof "HTTP/1.1 200", "\r\n", 3000); /* the status and no more */
  if (strncmp(got + 9, want, 3) != 0) fail_msg("%d x '%.20s': want %s, got %s", n, unit, want, got);
  close(fd);
  free(all);
}

static void test_bounds(void **state) {
  (void)state;
  expect_status(GET, "X: y\r\n", 127, "\r\n", "200"); /* with Host: 128 */
  expect_status(GET, "X: y\r\n", 128, "\r\n", "431");
  expect_status(GET "X: ", "y", 60000, "\r\n\r\n", "200");
  expect_status(GET "X: ", "y", 65536, "\r\n\r\n", "431");
  expect_status(GET "X: ", "y", 70000, "", "431"); /* the line has not even ended */
  expect_status("GET /", "a", 8000, " HTTP/1.1\r\n" H "\r\n", "200");
  expect_status("GET /", "a", 8192, " HTTP/1.1\r\n" H "\r\n", "414");
  expect_status("GET /", "a", 9000, "", "414");
  expect_status(POST "Transfer-Encoding: chunked\r\n\r\n1;", "x", 300, "\r\na\r\n", "400");
  expect_status(
      POST "Transfer-Encoding: chunked\r\n\r\n", "1;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\na\r\n", 400, "", "400");
  expect_status(POST "Transfer-Encoding: chunked\r\n\r\n0\r\n", "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", 2000, "", "431");
  expect_status(POST "Transfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", 100000, "0\r\n\r\n", "200");
}

static void test_large_body(void **state) {
  (void)state;
  size_t n = 1 << 20;
  char *body = malloc(n), head[128], *got = malloc(n + 4096);
  for (size_t i = 0; i < n; i++) body[i] = (char)('a' + i % 19);
  int fd = dial();
  snprintf(head, sizeof head, POST CLOSE "Content-Length: %zu\r\n\r\n", n);
  say(fd, head);
  say_n(fd, body, n, 7777);
  size_t k = hear(fd, got, n + 4096, 3000, NULL);
  assert_true(k > n);
  assert_memory_equal(got + k - n, body, n);
  close(fd);
  fd = dial(); /* the same in chunks */
  say(fd, POST CLOSE "Transfer-Encoding: chunked\r\n\r\n");
  for (size_t i = 0; i < n; i += 32768) {
    say(fd, "8000\r\n");
    say_n(fd, body + i, 32768, 0);
    say(fd, "\r\n");
  }
  say(fd, "0\r\n\r\n");
  k = hear(fd, got, n + 4096, 3000, NULL);
  assert_true(k > n);
  assert_memory_equal(got + k - n, body, n);
  close(fd);
  free(body);
  free(got);
}

/* 413 must come while the client is still sending, and survive it. */
static void test_413_before_body(void **state) {
  (void)state;
  char got[4096], block[65536] = {0};
  bool end;
  int fd = dial();
  say(fd, POST "Content-Length: 900000000\r\n\r\n");
  hear_until(fd, got, sizeof got, "}}", 1000);
  assert_int_equal(strncmp(got, "HTTP/1.1 413", 12), 0);
  close(fd);
  fd = dial();
  say(fd, POST "Content-Length: 900000000\r\n\r\n");
  for (int i = 0; i < 40; i++) say_n(fd, block, sizeof block, 0);
  hear(fd, got, sizeof got, 1000, &end);
  assert_int_equal(strncmp(got, "HTTP/1.1 413", 12), 0);
  close(fd);
}

static void test_continue(void **state) {
  (void)state;
  char got[4096];
  int fd = dial();
  say(fd, POST CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  hear_until(fd, got, sizeof got, "\r\n\r\n", 1000);
  assert_string_equal(got, "HTTP/1.1 100 Continue\r\n\r\n");
  say(fd, "hi");
  hear(fd, got, sizeof got, 1000, NULL);
  drop_dates(got);
  assert_string_equal(got, OK(15) CLOSE "\r\nPOST /a ? x= hi");
  close(fd);
  fd = dial(); /* the body came along: no interim answer */
  say(fd, POST CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi");
  hear(fd, got, sizeof got, 1000, NULL);
  drop_dates(got);
  assert_string_equal(got, OK(15) CLOSE "\r\nPOST /a ? x= hi");
  close(fd);
}

static void test_keep_alive(void **state) {
  (void)state;
  char got[4096];
  int fd = dial();
  for (int i = 0; i < 200; i++) {
    say(fd, i % 2 ? GET "\r\n" : POST "Content-Length: 3\r\n\r\nabc");
    size_t n = hear_until(fd, got, sizeof got, i % 2 ? "x= " : "abc", 2000);
    assert_true(n > 0 && strncmp(got, "HTTP/1.1 200", 12) == 0);
  }
  close(fd);
}

/* ---- clients that leave ---- */

static int64_t leave(const char *path, const char *first) {
  char got[1024];
  int fd = dial(), before = atomic_load(&fx.closed), handled = atomic_load(&fx.handled);
  char req[256];
  snprintf(req, sizeof req, "GET %s HTTP/1.1\r\n" H "\r\n", path);
  say(fd, req);
  assert_true(wait_for(&fx.handled, handled + 1, 2000));
  if (first) hear_until(fd, got, sizeof got, first, 2000);
  int64_t t = clock_now();
  close(fd);
  assert_true(wait_for(&fx.closed, before + 1, 2000));
  return atomic_load(&fx.closed_at) - t;
}

/* The notice takes well under a millisecond; a busy machine may hold up one try, not five. */
static void leave_in_time(const char *path, const char *first) {
  int64_t took = 0;
  for (int i = 0; i < 5; i++)
    if ((took = leave(path, first)) < 50 * 1000000) return;
  fail_msg("%s: the server took %.1f ms to notice that its client had left", path, clock_ms(took));
}

static void test_leaves(void **state) {
  (void)state;
  leave_in_time("/hang", NULL);                      /* before the answer began */
  leave_in_time("/stall", "one\r\n");                /* a stream that has fallen silent */
  int before = atomic_load(&fx.closed), fd = dial(); /* request and FIN arrive together */
  say(fd, "GET /hang HTTP/1.1\r\n" H "\r\n");
  close(fd);
  assert_true(wait_for(&fx.closed, before + 1, 1000));
}

/* More pipelined bytes than are read ahead: the FIN stands behind bytes nobody has read. */
static void test_leaves_behind_pipelined(void **state) {
  (void)state;
  int before = atomic_load(&fx.closed), handled = atomic_load(&fx.handled), fd = dial();
  say(fd, "GET /hang HTTP/1.1\r\n" H "\r\n");
  assert_true(wait_for(&fx.handled, handled + 1, 2000));
  char junk[20000];
  memset(junk, 'A', sizeof junk);
  say_n(fd, junk, sizeof junk, 0);
  usleep(20000);
  int64_t t = clock_now();
  close(fd);
  assert_true(wait_for(&fx.closed, before + 1, 2000));
  assert_true(atomic_load(&fx.closed_at) - t < 50 * 1000000);
}

/* Sends the request, shuts down its side, and is still owed the answer. */
static void half_close(const char *request, const char *want) {
  char got[4096];
  bool end;
  int closed = atomic_load(&fx.closed), fd = dial();
  say(fd, request);
  shutdown(fd, SHUT_WR);
  hear(fd, got, sizeof got, 2000, &end);
  drop_dates(got);
  assert_string_equal(got, want);
  assert_true(end);
  close(fd);
  assert_int_equal(atomic_load(&fx.closed), closed);
}

static void finish_stall(void *arg) {
  (void)arg;
  http_stream_write(fx.held, STR("two"));
  http_stream_end(fx.held);
  fx.held = NULL;
}

static void test_half_closed(void **state) {
  (void)state;
  half_close(GET "\r\n", OK(12) "\r\nGET /a ? x= ");
  half_close("GET /late HTTP/1.1\r\n" H "\r\n", OK(4) "\r\nlate");
  half_close("GET /late HTTP/1.1\r\n" H "\r\n" GET "\r\n", OK(4) "\r\nlate" OK(12) "\r\nGET /a ? x= ");
  half_close("GET /late HTTP/1.0\r\n\r\n", OK(4) CLOSE "\r\nlate");
  char want[1024];
  error_answer(want, sizeof want, "400 Bad Request", "invalid_request_error", "null", "the connection was shut down before the request was complete");
  half_close(POST "Content-Length: 5\r\n\r\nhel", want);
  /* A silent stream: the probe is a leading zero of the next chunk size. */
  char got[1024];
  int fd = dial();
  say(fd, "GET /stall HTTP/1.1\r\n" H "\r\n");
  hear_until(fd, got, sizeof got, "one\r\n", 2000);
  shutdown(fd, SHUT_WR);
  hear_until(fd, got, sizeof got, "0", 1000);
  assert_string_equal(got, "0");
  loop_post(fx.l, finish_stall, NULL);
  hear(fd, got, sizeof got, 2000, NULL);
  assert_string_equal(got, "3\r\ntwo\r\n0\r\n\r\n");
  close(fd);
}

/* ---- slow clients ---- */

static void test_slow(void **state) {
  (void)state;
  char got[2048], want[1024];
  bool end;
  int64_t t = clock_now();
  int fd = dial(); /* says nothing: closed without a word */
  assert_int_equal(hear(fd, got, sizeof got, 2000, &end), 0);
  assert_true(end && clock_now() - t < 1500 * INT64_C(1000000));
  close(fd);

  fd = dial(); /* drips header bytes: the time for the header does not start again with each */
  t = clock_now();
  const char *drip = "GET /a HTTP/1.1\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";
  struct pollfd p = {.fd = fd, .events = POLLIN};
  for (size_t i = 0; drip[i] && poll(&p, 1, 20) == 0; i++) say_n(fd, drip + i, 1, 0);
  hear(fd, got, sizeof got, 2000, &end);
  assert_true(end && clock_now() - t < 1500 * INT64_C(1000000));
  drop_dates(got);
  error_answer(want, sizeof want, "408 Request Timeout", "timeout_error", "\"timeout\"", "the request header came too slowly");
  assert_string_equal(got, want);
  close(fd);

  fd = dial(); /* a body that stops */
  say(fd, POST "Content-Length: 5\r\n\r\nhel");
  hear(fd, got, sizeof got, 2000, &end);
  drop_dates(got);
  error_answer(want, sizeof want, "408 Request Timeout", "timeout_error", "\"timeout\"", "the request body came too slowly");
  assert_true(end);
  assert_string_equal(got, want);
  close(fd);

  fd = dial(); /* a body that drips: always some progress, never enough */
  say(fd, POST "Content-Length: 5000\r\n\r\n");
  t = clock_now();
  p.fd = fd;
  for (int i = 0; i < 300 && poll(&p, 1, 20) == 0; i++) say(fd, "x");
  hear(fd, got, sizeof got, 2000, &end);
  drop_dates(got);
  assert_string_equal(got, want);
  assert_true(clock_now() - t < 2000 * INT64_C(1000000));
  close(fd);

  fd = dial(); /* idle after an answer */
  say(fd, GET "\r\n");
  size_t n = hear(fd, got, sizeof got, 3000, &end);
  assert_true(n > 0 && end);
  close(fd);
}

static void test_slow_reader(void **state) {
  (void)state;
  int closed = atomic_load(&fx.closed), slow = atomic_load(&fx.too_slow), fd = dial_buf(4096);
  say(fd, "GET /flood HTTP/1.1\r\n" H "\r\n");
  assert_true(wait_for(&fx.too_slow, slow + 1, 5000)); /* nobody reads: the bound is hit */
  assert_true(wait_for(&fx.closed, closed + 1, 1000));
  close(fd);

  fd = dial_buf(4096); /* a slow but steady reader of a whole answer gets all of it */
  say(fd, "GET /big HTTP/1.1\r\n" H CLOSE "\r\n");
  char buf[65536];
  size_t n = 0, body = 0;
  bool in_body = false;
  ssize_t k;
  while ((k = recv(fd, buf, sizeof buf - 1, 0)) > 0) {
    n += (size_t)k;
    if (!in_body) {
      buf[k] = 0;
      char *b = strstr(buf, "\r\n\r\n");
      assert_non_null(b);
      body = (size_t)k - (size_t)(b + 4 - buf);
      in_body = true;
    } else {
      for (ssize_t i = 0; i < k; i++)
        if (buf[i] != (char)('a' + (body + (size_t)i) % 23)) fail_msg("byte %zu of the body is wrong", body + (size_t)i);
      body += (size_t)k;
    }
  }
  assert_int_equal(body, 8u << 20);
  close(fd);

  fd = dial_buf(4096); /* one that stops for good is closed after body_ms; its answer had ended, so nobody is told */
  say(fd, "GET /big HTTP/1.1\r\n" H CLOSE "\r\n");
  usleep(1500000);
  n = 0;
  while ((k = recv(fd, buf, sizeof buf, 0)) > 0) n += (size_t)k;
  assert_true(n < 8u << 20);
  close(fd);
}

static void test_many(void **state) {
  (void)state;
  int fd[60];
  char got[2048], want[1024];
  bool end;
  for (int i = 0; i < 50; i++) fd[i] = dial();
  say(fd[49], GET "\r\n");
  assert_true(hear_until(fd[49], got, sizeof got, "x= ", 2000) > 0);
  int over = dial();
  hear(over, got, sizeof got, 1000, &end);
  drop_dates(got);
  error_answer(want, sizeof want, "503 Service Unavailable", "server_error", "\"overloaded\"",
      "the server has as many connections as it may: try again later");
  assert_string_equal(got, want);
  close(over);
  for (int i = 0; i < 50; i++) close(fd[i]);
}

/* ---- draining ---- */

static void on_drained(void *arg) {
  (void)arg;
  atomic_store(&fx.drained, 1);
}
static void start_drain(void *arg) {
  (void)arg;
  http_server_drain(fx.s, on_drained, NULL);
}

static void test_drain(void **state) {
  (void)state;
  char got[2048];
  bool end;
  int idle = dial(), busy = dial();
  say(idle, GET "\r\n");
  hear_until(idle, got, sizeof got, "x= ", 2000);
  int handled = atomic_load(&fx.handled);
  say(busy, "GET /late HTTP/1.1\r\n" H "\r\n");
  assert_true(wait_for(&fx.handled, handled + 1, 2000));
  loop_post(fx.l, start_drain, NULL);
  assert_int_equal(hear(idle, got, sizeof got, 1000, &end), 0);
  assert_true(end);
  assert_int_equal(atomic_load(&fx.drained), 0); /* not while one is running */
  hear(busy, got, sizeof got, 2000, &end);
  assert_non_null(strstr(got, "late"));
  assert_true(end);
  assert_true(wait_for(&fx.drained, 1, 1000));
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fx.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_not_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  close(fd);
  close(idle);
  close(busy);
}

static void test_free_while_busy(void **state) {
  (void)state;
  fixture_start((http_opts){0});
  int fd = dial();
  say(fd, "GET /hang HTTP/1.1\r\n" H "\r\n");
  assert_true(wait_for(&fx.handled, 1, 2000));
  fixture_stop();
  assert_int_equal(atomic_load(&fx.closed), 1);
  close(fd);
}

/* A client that never finishes its request must not hold a server that wants to end; one that does finish is answered. */
static void test_drain_half_sent(void **state) {
  (void)state;
  char got[2048], want[1024];
  bool end;
  fixture_start((http_opts){.drain_ms = 300});
  int body = dial(), head = dial(), late = dial();
  say(body, POST "Content-Length: 9\r\n\r\n12");
  say(head, "GET /a HT");
  say(late, POST "Content-Length: 4\r\n\r\n12");
  int done = dial();
  say(done, GET "\r\n");
  hear_until(done, got, sizeof got, "x= ", 2000); /* the loop has seen all three */
  loop_post(fx.l, start_drain, NULL);
  hear(done, got, sizeof got, 1000, &end); /* closed: draining has begun */
  assert_true(end);
  say(late, "34");
  hear(late, got, sizeof got, 1000, &end);
  assert_non_null(strstr(got, "200 OK"));
  assert_int_equal(atomic_load(&fx.drained), 0);
  static const char *const part[] = {"body", "header"};
  const int fd[] = {body, head};
  for (int i = 0; i < 2; i++) {
    char msg[100];
    snprintf(msg, sizeof msg, "the request %s came too slowly", part[i]);
    hear(fd[i], got, sizeof got, 2000, &end);
    drop_dates(got);
    error_answer(want, sizeof want, "408 Request Timeout", "timeout_error", "\"timeout\"", msg);
    assert_string_equal(got, want);
    close(fd[i]);
  }
  assert_true(wait_for(&fx.drained, 1, 3000));
  close(late);
  close(done);
  fixture_stop();
}

/* What handlers take counts until their answer has ended, however it ended. */
static void test_hold(void **state) {
  (void)state;
  char got[2048];
  fixture_start((http_opts){.max_mem = (2 << 20) + (1 << 19)});
  int a = dial(), b = dial();
  for (int i = 0; i < 5; i++) { /* given back each time */
    say(a, "GET /hold?now HTTP/1.1\r\n" H "\r\n");
    hear_until(a, got, sizeof got, "\r\n\r\n", 2000);
    assert_non_null(strstr(got, "200 OK"));
  }
  int handled = atomic_load(&fx.handled);
  say(a, "GET /hold HTTP/1.1\r\n" H "\r\n");
  assert_true(wait_for(&fx.handled, handled + 1, 2000));
  say(b, "GET /hold?now HTTP/1.1\r\n" H "\r\n");
  hear_until(b, got, sizeof got, "\r\n\r\n", 2000);
  assert_non_null(strstr(got, "200 OK"));
  int c = dial();
  say(c, "GET /hold HTTP/1.1\r\n" H "\r\n");
  assert_true(wait_for(&fx.handled, handled + 3, 2000));
  say(b, "GET /hold?now HTTP/1.1\r\n" H "\r\n");
  hear_until(b, got, sizeof got, "\r\n\r\n", 2000);
  assert_non_null(strstr(got, "503 "));
  close(a);
  assert_true(wait_for(&fx.closed, 1, 2000));
  say(b, "GET /hold?now HTTP/1.1\r\n" H "\r\n");
  hear_until(b, got, sizeof got, "\r\n\r\n", 2000);
  assert_non_null(strstr(got, "200 OK"));
  close(b);
  close(c);
  fixture_stop();
}

static void test_addresses(void **state) {
  (void)state;
  loop *l = loop_new();
  http_server *a = NULL, *b = NULL;
  err e = {0};
  http_opts o = {.handler = fx_handler, .host = "localhost"};
  assert_true(http_server_new(l, &o, &a, &e));
  int port = http_server_port(a);
  assert_true(port > 0);
  http_opts again = {.handler = fx_handler, .host = "127.0.0.1", .port = port};
  assert_false(http_server_new(l, &again, &b, &e));
  char want[200];
  snprintf(want, sizeof want, "port %d on 127.0.0.1 is in use: stop what listens there or choose another with --port", port);
  assert_string_equal(e.msg, want);
  assert_int_equal(e.code, ERR_IO);
  assert_null(b);
  http_server_free(a);
  static const char *const hosts[] = {"0.0.0.0", "::", "::1", "[::1]"};
  for (size_t i = 0; i < 4; i++) {
    o.host = hosts[i];
    if (http_server_new(l, &o, &a, &e)) http_server_free(a);
    else if (!strchr(hosts[i], ':')) fail_msg("%s: %s", hosts[i], e.msg); /* a machine without IPv6 refuses the others, with a message */
  }
  o.host = "192.0.2.1";
  assert_false(http_server_new(l, &o, &a, &e));
  assert_string_equal(e.msg, "192.0.2.1 is not an address of this machine: give one that is, 127.0.0.1 or 0.0.0.0 with --host");
  o.host = "127.0.0.1";
  o.port = 70000;
  assert_false(http_server_new(l, &o, &a, &e));
  assert_int_equal(e.code, ERR_USAGE);
  loop_free(l);
}

static int start_plain(void **state) {
  (void)state;
  fixture_start((http_opts){.max_body = 1 << 20});
  return 0;
}
static int start_short(void **state) {
  (void)state;
  fixture_start((http_opts){.header_ms = 500, .body_ms = 500, .idle_ms = 700, .max_out = 200000, .max_conns = 50});
  return 0;
}
static int stop(void **state) {
  (void)state;
  fixture_stop();
  return 0;
}

int main(void) {
  const struct CMUnitTest plain[] = {
      cmocka_unit_test(test_good),
      cmocka_unit_test(test_bad),
      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_large_body),
      cmocka_unit_test(test_413_before_body),
      cmocka_unit_test(test_continue),
      cmocka_unit_test(test_keep_alive),
      cmocka_unit_test(test_leaves),
      cmocka_unit_test(test_leaves_behind_pipelined),
      cmocka_unit_test(test_half_closed),
      cmocka_unit_test(test_drain),
  };
  const struct CMUnitTest hurried[] = {cmocka_unit_test(test_slow), cmocka_unit_test(test_slow_reader), cmocka_unit_test(test_many)};
  const struct CMUnitTest alone[] = {
      cmocka_unit_test(test_free_while_busy), cmocka_unit_test(test_drain_half_sent), cmocka_unit_test(test_hold), cmocka_unit_test(test_addresses)};
  return cmocka_run_group_tests_name("server", plain, start_plain, stop) +
         cmocka_run_group_tests_name("server, short limits", hurried, start_short, stop) +
         cmocka_run_group_tests_name("server, alone", alone, NULL, NULL);
}
