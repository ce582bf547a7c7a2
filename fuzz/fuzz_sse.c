/* A stream of server-sent events. Holds: in any pieces the same events come out, or the same error; no event or line passes the bound. The last byte
 * of the input chooses the bound, those before it the pieces. */
#include "base/buf.h"
#include "fuzz.h"
#include "net/sse.h"
#include <stdlib.h>

typedef struct run {
  buf log;
  size_t max;
} run;

static bool on_event(str event, str data, void *ctx) {
  run *r = ctx;
  FUZZ_CHECK(event.n <= r->max && data.n <= r->max, "an event of %zu + %zu bytes, bound %zu", event.n, data.n, r->max);
  buf_printf(&r->log, "%zu,%zu:", event.n, data.n);
  buf_str(&r->log, event);
  buf_str(&r->log, data);
  return !str_is(event, "halt");
}

/* steer NULL: in one piece. */
static bool feed(run *r, fuzz_bytes in, fuzz_bytes *steer, err *e) {
  sse s;
  bool ok = true;
  buf_init(&r->log, SIZE_MAX / 2);
  sse_init(&s, r->max, on_event, r);
  for (size_t at = 0; ok && at < in.n;) {
    size_t k = steer ? fuzz_piece(steer, in.n - at) : in.n;
    char *piece = fuzz_copy(in.p + at, k);
    ok = sse_feed(&s, (str){piece, k}, e);
    free(piece);
    at += k;
  }
  if (!ok) {
    err again = {0};
    FUZZ_CHECK(!sse_feed(&s, STR("data: x\n\n"), &again), "a stopped reader takes more");
    fuzz_refused(&again);
  }
  sse_fini(&s);
  return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  fuzz_bytes in = {p, n};
  size_t max = (size_t)fuzz_last(&in) * 4 + 1;
  fuzz_bytes steer = in;
  run a = {.max = max}, b = {.max = max};
  err e = {0}, f = {0};
  bool ok = feed(&a, in, NULL, &e), ok2 = feed(&b, in, &steer, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  FUZZ_CHECK(str_eq(buf_view(&a.log), buf_view(&b.log)), "in pieces other events came out");
  if (!ok) fuzz_refused(&e);
  buf_fini(&a.log);
  buf_fini(&b.log);
  return 0;
}
