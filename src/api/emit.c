#include "api/emit.h"
#include <math.h>

void emit_str(str s, buf *out) {
  buf_putc(out, '"');
  buf_json(out, s);
  buf_putc(out, '"');
}

static int append(const char *p, size_t n, void *ctx) { return buf_put(ctx, p, n) ? 0 : -1; }

void emit_json(const json_t *v, buf *out) {
  if (!v) buf_puts(out, "null");
  else if (json_dump_callback(v, append, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
    if (!out->failed) out->starved = true; /* the writer's own memory; the buffer was fine */
    out->failed = true;
  }
}

void emit_num(double v, buf *out) {
  if (isnan(v)) buf_puts(out, "null");
  else buf_printf(out, "%.17g", v);
}
