#include "net/sse.h"

void sse_init(sse *s, size_t max, sse_fn fn, void *ctx) {
  *s = (sse){.max = max ? max : 1u << 20, .fn = fn, .ctx = ctx};
  buf_init(&s->line, s->max);
  buf_init(&s->data, s->max);
  buf_init(&s->event, s->max);
}

void sse_fini(sse *s) {
  buf_fini(&s->line);
  buf_fini(&s->data);
  buf_fini(&s->event);
}

static bool stop(sse *s, err *e, err_code code, const char *why) {
  s->stopped = true;
  return err_set(e, code, "%s (bound: %zu bytes)", why, s->max);
}

static bool dispatch(sse *s, err *e) {
  bool go = !s->have_data || s->fn(buf_view(&s->event), buf_view(&s->data), s->ctx);
  buf_clear(&s->data);
  buf_clear(&s->event);
  s->have_data = false;
  if (go) return true;
  s->stopped = true;
  return err_set(e, ERR_CANCELLED, "the reader of the event stream stopped it");
}

static bool take_line(sse *s, str line, err *e) {
  if (!line.n) return dispatch(s, e);
  str name = line, value = {"", 0};
  if (str_cut(line, ':', &name, &value) && value.n && *value.p == ' ') value = (str){value.p + 1, value.n - 1};
  if (str_is(name, "data")) {
    if (s->have_data) buf_putc(&s->data, '\n');
    s->have_data = true;
    buf_str(&s->data, value);
  } else if (str_is(name, "event")) {
    buf_clear(&s->event);
    buf_str(&s->event, value);
  } /* else: a comment (empty name), or a field that says nothing here */
  if (s->data.failed || s->event.failed) return stop(s, e, ERR_TOO_LARGE, "an event of the stream is too large");
  return true;
}

/* A byte order mark may lead the stream, in any number of pieces. Bytes that turn out to be no mark belong to the first line. */
static str skip_bom(sse *s, str b) {
  static const char mark[] = "\xef\xbb\xbf";
  while (s->bom >= 0 && b.n) {
    if (*b.p != mark[s->bom]) {
      buf_put(&s->line, mark, (size_t)s->bom);
      s->bom = -1;
      break;
    }
    b.p++;
    b.n--;
    if (++s->bom == 3) s->bom = -1;
  }
  return b;
}

bool sse_feed(sse *s, str b, err *e) {
  if (s->stopped) return err_set(e, ERR_CANCELLED, "the event stream has been stopped");
  b = skip_bom(s, b);
  while (b.n) {
    if (s->after_cr) { /* CR LF is one end of line, also when it comes in two pieces */
      s->after_cr = false;
      if (*b.p == '\n') {
        b.p++;
        b.n--;
        continue;
      }
    }
    size_t i = 0;
    while (i < b.n && b.p[i] != '\n' && b.p[i] != '\r') i++;
    str line = {b.p, i};
    bool whole = i < b.n;
    if (!whole || s->line.n) { /* a line that came in one piece is not copied */
      buf_put(&s->line, b.p, i);
      line = buf_view(&s->line);
    }
    if (s->line.failed || i > s->max) return stop(s, e, ERR_TOO_LARGE, "a line of the event stream is too long");
    if (!whole) return true;
    s->after_cr = b.p[i] == '\r';
    b.p += i + 1;
    b.n -= i + 1;
    bool ok = take_line(s, line, e);
    buf_clear(&s->line);
    if (!ok) return false;
  }
  return true;
}
