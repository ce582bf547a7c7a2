/* What a model writes, searched for tool calls. The last byte of the input chooses the form and whether functions are named, those before it the
 * pieces. Holds: in any pieces the same text and the same calls come out; a call has a name before arguments and calls are numbered from 0 in order;
 * without a call the text comes out unchanged; valid UTF-8 in gives valid UTF-8 out. */
#include "base/buf.h"
#include "fuzz.h"
#include "model/toolcall.h"
#include <stdlib.h>

typedef struct seen {
  buf text, calls; /* all text; all calls, each with its place in the text */
  int n_calls;
} seen;

static void on_piece(void *ctx, const tool_piece *p) {
  seen *s = ctx;
  switch (p->kind) {
  case TOOL_PIECE_TEXT: buf_str(&s->text, p->text); break;
  case TOOL_PIECE_CALL:
    FUZZ_CHECK(p->call == s->n_calls, "call %d follows call %d", p->call, s->n_calls - 1);
    FUZZ_CHECK(p->text.n && p->text.n <= TOOL_NAME, "a name of %zu bytes", p->text.n);
    s->n_calls++;
    buf_printf(&s->calls, "\n%zu:%d:", s->text.n, p->loose);
    buf_str(&s->calls, p->text);
    buf_putc(&s->calls, '(');
    break;
  case TOOL_PIECE_ARGS:
    FUZZ_CHECK(s->n_calls && p->call == s->n_calls - 1, "arguments of call %d, after %d calls", p->call, s->n_calls);
    buf_str(&s->calls, p->text);
    break;
  }
}

/* Pieces are whole code points where the text is UTF-8, as the engine gives them. */
static size_t whole(const uint8_t *p, size_t k, size_t left) {
  while (k < left && (p[k] & 0xc0) == 0x80) k++;
  return k;
}

static void parse(seen *s, fuzz_bytes in, fuzz_bytes *steer, uint8_t how) {
  static const str names[] = {{"f", 1}, {"get_weather", 11}};
  tool_parser *t = NULL;
  err e = {0};
  *s = (seen){0};
  buf_init(&s->text, SIZE_MAX / 2);
  buf_init(&s->calls, SIZE_MAX / 2);
  FUZZ_CHECK(tool_parser_new((tool_form)(how % 5), on_piece, s, &t, &e), "%s", e.msg);
  if (how & 0x80) tool_parser_names(t, names, 2);
  for (size_t at = 0; at < in.n;) {
    size_t k = whole(in.p + at, steer ? fuzz_piece(steer, in.n - at) : in.n - at, in.n - at);
    char *piece = fuzz_copy(in.p + at, k);
    FUZZ_CHECK(tool_parser_push(t, (str){piece, k}), "out of memory");
    free(piece);
    at += k;
  }
  FUZZ_CHECK(how & 0x40 ? tool_parser_cut(t) : tool_parser_end(t), "out of memory");
  FUZZ_CHECK(tool_parser_calls(t) == s->n_calls, "%d calls, %d seen", tool_parser_calls(t), s->n_calls);
  tool_parser_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  fuzz_bytes in = {p, n};
  uint8_t how = fuzz_last(&in);
  fuzz_bytes steer = in;
  seen a, b;
  parse(&a, in, NULL, how);
  parse(&b, in, &steer, how);
  FUZZ_CHECK(str_eq(buf_view(&a.text), buf_view(&b.text)), "whole \"%.*s\", in pieces \"%.*s\"", (int)a.text.n, a.text.p, (int)b.text.n, b.text.p);
  FUZZ_CHECK(str_eq(buf_view(&a.calls), buf_view(&b.calls)), "whole:%.*s\nin pieces:%.*s", (int)a.calls.n, a.calls.p, (int)b.calls.n, b.calls.p);
  str text = {(const char *)in.p, in.n};
  if (!a.n_calls && !(how & 0x40)) FUZZ_CHECK(str_eq(text, buf_view(&a.text)), "no call, and the text is another");
  if (utf8_valid(text)) FUZZ_CHECK(utf8_valid(buf_view(&a.text)) && utf8_valid(buf_view(&a.calls)), "half a code point");
  buf_fini(&a.text);
  buf_fini(&a.calls);
  buf_fini(&b.text);
  buf_fini(&b.calls);
  return 0;
}
