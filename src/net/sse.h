/* sse.h - an incremental reader of server-sent events (WHATWG HTML, section 9.2): bytes in, one call an event out.
 * Not a connection: no reconnecting, no Last-Event-ID; a `retry` field is passed over.
 * Ownership: owns one line and one event in progress; the strs given to the callback are valid during the call.
 * Threads: one owner.
 * Failure: sse_feed returns false with ERR_TOO_LARGE when a line or an event passes the bound, or when the callback returned false
 *   (ERR_CANCELLED); the reader then takes nothing more. */
#ifndef NET_SSE_H
#define NET_SSE_H
#include "base/buf.h"
#include "base/err.h"

/* One event: `event` is its type ("" when none was given, which means "message"). False stops. */
typedef bool (*sse_fn)(str event, str data, void *ctx);

typedef struct sse {
  buf line, data, event;
  size_t max;
  bool have_data, after_cr, stopped;
  int bom; /* bytes of a leading byte order mark matched; -1: past it */
  sse_fn fn;
  void *ctx;
} sse;

void sse_init(sse *s, size_t max, sse_fn fn, void *ctx); /* max: bytes a line and an event may have; 0: 1 MiB */
void sse_fini(sse *s);
bool sse_feed(sse *s, str bytes, err *e);
#endif
