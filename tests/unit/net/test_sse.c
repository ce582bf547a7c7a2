/* The event reader: every stream of the table is fed whole, at every single split, and byte by byte, and must give the same events. */
#include "net/sse.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>

typedef struct row {
  const char *in, *out;
} row; /* out: each event as "type|data;" */

static const row rows[] = {
    {"data: a\n\n", "|a;"},
    {"data: a\r\n\r\n", "|a;"},
    {"data: a\r\r", "|a;"},
    {"data:a\n\ndata:  b\n\n", "|a;| b;"},
    {"data: a\ndata: b\ndata\ndata:\n\n", "|a\nb\n\n;"},
    {": comment\n\ndata: x\n:another\n\n", "|x;"},
    {"event: ping\ndata: {\"a\": 1}\n\ndata: [DONE]\n\n", "ping|{\"a\": 1};|[DONE];"},
    {"event: lost\n\ndata: x\n\n", "|x;"},
    {"id: 7\nretry: 10\nfoo: bar\ndata: x\n\n", "|x;"},
    {"data\n\n", "|;"},
    {"\n\n\r\n\r\rdata: x\r\n\n", "|x;"},
    {"data: x\n", ""},
    {"data: x", ""},
    {"\xef\xbb\xbf"
     "data: x\n\n",
        "|x;"},
    {"\xef\xbb"
     "data: x\n\ndata: y\n\n",
        "|y;"},
    {"data: \xc3\xa9\xf0\x9f\x98\x80\r\ndata: :\r\n\r\n", "|\xc3\xa9\xf0\x9f\x98\x80\n:;"},
    {" data: x\n\nDATA: y\n\ndata : z\n\n", ""},
};

static bool collect(str event, str data, void *ctx) {
  buf *b = ctx;
  buf_str(b, event);
  buf_putc(b, '|');
  buf_str(b, data);
  buf_putc(b, ';');
  return true;
}

/* Pieces end at a, at b and at the end; step > 0 instead cuts every `step` bytes. Each piece lies in a block of its own exact size. */
static void run(const row *r, size_t a, size_t b, size_t step) {
  buf out;
  buf_init(&out, 65536);
  sse s;
  sse_init(&s, 0, collect, &out);
  size_t n = strlen(r->in), i = 0;
  while (i < n) {
    size_t end = step ? i + step : i < a ? a : i < b ? b : n;
    if (end > n) end = n;
    char *piece = malloc(end - i);
    memcpy(piece, r->in + i, end - i);
    assert_true(sse_feed(&s, (str){piece, end - i}, NULL));
    free(piece);
    i = end;
  }
  if (!str_is(buf_view(&out), r->out))
    fail_msg("'%s' cut at %zu, %zu / every %zu: want '%s', got '%s'", r->in, a, b, step, r->out, out.n ? out.p : "");
  sse_fini(&s);
  buf_fini(&out);
}

static void test_splits(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t n = strlen(rows[i].in);
    for (size_t a = 0; a <= n; a++)
      for (size_t b = a; b <= n; b++) run(&rows[i], a, b, 0);
    run(&rows[i], 0, 0, 1);
    run(&rows[i], 0, 0, 2);
  }
}

static bool refuse(str event, str data, void *ctx) {
  (void)event;
  (void)data;
  ++*(int *)ctx;
  return false;
}

static void test_bounds(void **state) {
  (void)state;
  buf out;
  buf_init(&out, 65536);
  sse s;
  err e = {0};
  sse_init(&s, 16, collect, &out);
  assert_true(sse_feed(&s, STR("data: 0123456789\n\n"), &e)); /* exactly 16 */
  assert_string_equal(out.p, "|0123456789;");
  assert_true(sse_feed(&s, STR("data: 01234"), &e));
  assert_false(sse_feed(&s, STR("567890"), &e));
  assert_int_equal(e.code, ERR_TOO_LARGE);
  assert_string_equal(e.msg, "a line of the event stream is too long (bound: 16 bytes)");
  assert_false(sse_feed(&s, STR("\n"), &e)); /* it stays stopped */
  sse_fini(&s);
  sse_init(&s, 16, collect, &out);
  err_clear(&e);
  assert_false(sse_feed(&s, STR("data: 01234567\ndata: 01234567\n"), &e));
  assert_string_equal(e.msg, "an event of the stream is too large (bound: 16 bytes)");
  sse_fini(&s);
  int calls = 0;
  sse_init(&s, 0, refuse, &calls);
  assert_false(sse_feed(&s, STR("data: a\n\ndata: b\n\n"), &e));
  assert_int_equal(e.code, ERR_CANCELLED);
  assert_int_equal(calls, 1);
  sse_fini(&s);
  buf_fini(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_splits), cmocka_unit_test(test_bounds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
