/* The request parser alone: what it finds must not depend on how the bytes were cut, for good requests, for broken ones and for thousands of
 * mutations of both. Buffers are allocated to the byte, so that an address sanitizer sees every step outside. */
#include "base/buf.h"
#include "base/rng.h"
#include "net/http_parse.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const seeds[] = {
    "GET /a%20b?x=%41 HTTP/1.1\r\nHost: a\r\nX-Test: v\r\n\r\nrest",
    "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"a\":\"b c d\"}GET "
    "/",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\nC\r\n\r\n0123456789\r\n0\r\nT: v\r\nU: "
    "w\r\n\r\nPOST",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close, x\r\n\r\n0\r\n\r\n",
    "GET http://h:1/p HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "\r\n\r\nOPTIONS * HTTP/1.1\r\nhost:\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\nx",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF0\r\n",
};
enum { N_SEED = sizeof seeds / sizeof *seeds, MAX_BODY = 64 };

/* Everything that was found, as text. What is left in the buffer behind the request is part of it. */
static void describe(const http_parse *h, http_parse_state st, const char *p, size_t n, buf *out) {
  buf_clear(out);
  if (st == HTTP_PARSE_BAD) {
    buf_printf(out, "bad %d %s", h->status, h->why);
    return;
  }
  if (st == HTTP_PARSE_MORE) {
    buf_printf(out, "more");
    return;
  }
  buf_printf(out, "done %.*s|%.*s|%.*s|%d%d%d%d|", (int)h->method_n, p + h->method, (int)h->path_n, p + h->path, (int)h->query_n, p + h->query,
      h->http10, h->keep_alive, h->expect_100, h->chunked);
  for (int i = 0; i < h->n_field; i++) {
    buf_put(out, p + h->field[i].name, h->field[i].name_n);
    buf_putc(out, '=');
    buf_put(out, p + h->field[i].value, h->field[i].value_n);
    buf_putc(out, '|');
  }
  buf_put(out, p + h->body, h->body_n);
  buf_putc(out, '|');
  buf_put(out, p + h->pos, n - h->pos);
}

/* Feeds in[0..n) in pieces that end at `cut` (0: whole) or, with step, every step bytes. The buffer is a new one for every piece. */
static void parse(const char *in, size_t n, size_t cut, size_t step, buf *out) {
  http_parse h;
  http_parse_init(&h, MAX_BODY);
  h.n_field = 0;
  char *p = NULL;
  size_t have = 0, fed = 0;
  http_parse_state st = HTTP_PARSE_MORE;
  while (fed < n && st == HTTP_PARSE_MORE) {
    size_t end = step ? fed + step : cut > fed ? cut : n;
    if (end > n) end = n;
    char *q = malloc(have + end - fed);
    if (have) memcpy(q, p, have);
    memcpy(q + have, in + fed, end - fed);
    free(p);
    p = q;
    have += end - fed;
    fed = end;
    st = http_parse_run(&h, p, &have);
    if (h.pos > have) fail_msg("the position has run past the end");
  }
  /* Bytes not fed because the request had ended are the rest all the same. */
  if (st == HTTP_PARSE_DONE && fed < n) {
    p = realloc(p, have + n - fed);
    memcpy(p + have, in + fed, n - fed);
    have += n - fed;
  }
  describe(&h, st, p, have, out);
  free(p);
}

static void expect_same(const char *in, size_t n, buf *whole, buf *cut, size_t a, size_t step) {
  parse(in, n, a, step, cut);
  if (str_eq(buf_view(whole), buf_view(cut))) return;
  print_error("request <<%.*s>>\n", (int)n, in);
  fail_msg("cut at %zu / every %zu: whole gives '%s', pieces give '%s'", a, step, whole->p, cut->p);
}

static void test_cuts(void **state) {
  (void)state;
  buf whole, cut;
  buf_init(&whole, 1 << 20);
  buf_init(&cut, 1 << 20);
  static const char *const want[N_SEED] = {"done GET|/a b|x=%41|0100|Host=a|X-Test=v||rest",
      "done POST|/v1/chat/completions||0100|Host=localhost:8080|Content-Type=application/json|Content-Length=13|{\"a\":\"b c d\"}|GET /",
      "done POST|/||0101|Host=a|Transfer-Encoding=chunked|hello!\r\n0123456789|POST",
      "done POST|/||0011|Host=a|Transfer-Encoding=chunked|Expect=100-continue|Connection=close, x||", "done GET|/p||1100|Connection=keep-alive||",
      "done OPTIONS|*||0100|host=||", "bad 400 there are both Content-Length and Transfer-Encoding",
      "bad 400 a header line begins with white space (line folding is not allowed)",
      "bad 413 the request body is larger than this server accepts: send less, or raise the server's --max-body",
      "bad 413 the request body is larger than this server accepts: send less, or raise the server's --max-body"};
  for (int i = 0; i < N_SEED; i++) {
    size_t n = strlen(seeds[i]);
    parse(seeds[i], n, 0, 0, &whole);
    assert_string_equal(whole.p, want[i]);
    for (size_t a = 1; a < n; a++) expect_same(seeds[i], n, &whole, &cut, a, 0);
    for (size_t step = 1; step < 8; step++) expect_same(seeds[i], n, &whole, &cut, 0, step);
  }
  buf_fini(&whole);
  buf_fini(&cut);
}

/* Bytes that mean something to a parser, more often than chance would bring them. */
static char some_byte(rng *r) {
  static const char odd[] = "\r\n\t :;,%?/0123456789aAfFgG-+\0\x7f\xff\x80\"";
  return rng_below(r, 4) ? odd[rng_below(r, sizeof odd - 1)] : (char)rng_u64(r);
}

static void test_mutations(void **state) {
  (void)state;
  rng r = rng_new(3);
  buf whole, cut;
  buf_init(&whole, 1 << 20);
  buf_init(&cut, 1 << 20);
  int done = 0, bad = 0;
  for (int i = 0; i < 20000; i++) {
    char in[512];
    const char *seed = seeds[rng_below(&r, N_SEED)];
    size_t n = strlen(seed);
    memcpy(in, seed, n);
    for (uint64_t k = rng_below(&r, 4) + 1; k && n > 8; k--) {
      size_t at = rng_below(&r, n);
      switch (rng_below(&r, 4)) {
      case 0: in[at] = some_byte(&r); break;
      case 1: memmove(in + at, in + at + 1, n - at - 1), n--; break;
      case 2: memmove(in + at + 1, in + at, n - at), in[at] = some_byte(&r), n++; break;
      default: n = at + 1; break;
      }
    }
    parse(in, n, 0, 0, &whole);
    done += str_starts(buf_view(&whole), STR("done"));
    bad += str_starts(buf_view(&whole), STR("bad"));
    expect_same(in, n, &whole, &cut, 0, 1);
    expect_same(in, n, &whole, &cut, rng_below(&r, n) + 1, 0);
  }
  if (done < 500 || bad < 2000) fail_msg("the mutations are too tame or too wild to mean anything: %d done, %d bad", done, bad);
  buf_fini(&whole);
  buf_fini(&cut);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_mutations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
