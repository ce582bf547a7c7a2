/* The HTTP/1.1 parser, as a connection uses it: requests one behind the other in a buffer that grows at its end. Holds: in any pieces the same
 * requests come out and the same refusal; offsets lie inside the buffer; a refusal has a status of http.h's list and a sentence. The last byte of the
 * input chooses the bound on bodies, those before it the pieces. */
#include "base/buf.h"
#include "fuzz.h"
#include "net/http_parse.h"
#include <stdlib.h>

typedef struct reader {
  http_parse h;
  char *p; /* of exactly n bytes */
  size_t n;
  buf log;
  uint64_t max_body;
} reader;

static void put(buf *log, const char *p, size_t n) {
  buf_printf(log, "%zu:", n);
  buf_put(log, p, n);
}

static void span(const reader *r, size_t at, size_t n) { FUZZ_CHECK(at <= r->n && n <= r->n - at, "%zu bytes at %zu of %zu", n, at, r->n); }

static void note_request(reader *r) {
  const http_parse *h = &r->h;
  span(r, h->method, h->method_n);
  span(r, h->path, h->path_n);
  span(r, h->query, h->query_n);
  span(r, h->body, h->body_n);
  FUZZ_CHECK(h->body_n <= r->max_body, "a body of %zu bytes, bound %llu", h->body_n, (unsigned long long)r->max_body);
  FUZZ_CHECK(h->n_field <= HTTP_MAX_FIELDS, "%d fields", h->n_field);
  buf_printf(&r->log, "%d%d%d%d ", h->http10, h->keep_alive, h->expect_100, h->chunked);
  put(&r->log, r->p + h->method, h->method_n);
  put(&r->log, r->p + h->path, h->path_n);
  put(&r->log, r->p + h->query, h->query_n);
  for (int i = 0; i < h->n_field; i++) {
    span(r, h->field[i].name, h->field[i].name_n);
    span(r, h->field[i].value, h->field[i].value_n);
    put(&r->log, r->p + h->field[i].name, h->field[i].name_n);
    put(&r->log, r->p + h->field[i].value, h->field[i].value_n);
    for (size_t k = 0; k < h->field[i].value_n; k++) {
      char c = r->p[h->field[i].value + k];
      FUZZ_CHECK(c != '\r' && c != '\n' && c, "byte 0x%02x in a field's value", (uint8_t)c);
    }
  }
  http_parse_field(h, r->p, "host");
  put(&r->log, r->p + h->body, h->body_n);
}

/* Takes k more bytes and everything that is whole. False: refused. */
static bool take(reader *r, const uint8_t *p, size_t k) {
  char *bigger = malloc(r->n + k + 1);
  FUZZ_CHECK(bigger, "no memory");
  if (r->n) memcpy(bigger, r->p, r->n);
  memcpy(bigger + r->n, p, k);
  free(r->p);
  r->p = bigger; /* another place: offsets must be all that is kept */
  r->n += k;
  for (;;) {
    http_parse_state st = http_parse_run(&r->h, r->p, &r->n);
    FUZZ_CHECK(r->h.pos <= r->n, "position %zu of %zu", r->h.pos, r->n);
    if (st == HTTP_PARSE_BAD) return false;
    if (st == HTTP_PARSE_MORE) return true;
    note_request(r);
    r->n -= r->h.pos;
    memmove(r->p, r->p + r->h.pos, r->n);
    http_parse_init(&r->h, r->max_body);
  }
}

static bool read_all(reader *r, fuzz_bytes in, fuzz_bytes *steer) {
  bool ok = true;
  buf_init(&r->log, SIZE_MAX / 2);
  http_parse_init(&r->h, r->max_body);
  for (size_t at = 0; ok && at < in.n;) {
    size_t k = steer ? fuzz_piece(steer, in.n - at) : in.n;
    ok = take(r, in.p + at, k);
    at += k;
  }
  if (!ok) {
    int s = r->h.status;
    FUZZ_CHECK(s == 400 || s == 413 || s == 414 || s == 417 || s == 431 || s == 501 || s == 505, "refused with status %d", s);
    FUZZ_CHECK(r->h.why && *r->h.why && r->h.code > ERR_NONE && r->h.code < ERR_COUNT, "refused without a reason");
  }
  return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  static const uint64_t bounds[] = {16 << 20, 0, 1, 100, UINT64_C(1) << 40};
  fuzz_bytes in = {p, n};
  uint64_t max_body = bounds[fuzz_last(&in) % 5];
  fuzz_bytes steer = in;
  reader *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
  FUZZ_CHECK(a && b, "no memory");
  a->max_body = b->max_body = max_body;
  bool ok = read_all(a, in, NULL), ok2 = read_all(b, in, &steer);
  FUZZ_CHECK(ok == ok2, "whole: %s, in pieces: %s", ok ? "accepted" : a->h.why, ok2 ? "accepted" : b->h.why);
  FUZZ_CHECK(str_eq(buf_view(&a->log), buf_view(&b->log)), "in pieces other requests came out");
  if (!ok) FUZZ_CHECK(a->h.status == b->h.status, "%d %s; in pieces %d %s", a->h.status, a->h.why, b->h.status, b->h.why);
  for (int i = 0; i < 2; i++) {
    reader *r = i ? b : a;
    buf_fini(&r->log);
    free(r->p);
    free(r);
  }
  return 0;
}
