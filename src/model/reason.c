#include "model/reason.h"

const char *const reason_marks[] = {"<think>", "</think>", NULL};

bool reason_in_template(str t) { return str_find(t, STR("</think>")) >= 0; }

void reason_init(reason *r, bool opened, reason_fn fn, void *ctx) { *r = (reason){.fn = fn, .ctx = ctx, .at = opened ? REASON_SKIP : REASON_HEAD}; }

static void give(reason *r, bool thought, const char *p, size_t n) {
  if (n) r->fn(r->ctx, thought, (str){p, n});
}

/* What was held back and is not a mark after all. */
static void release(reason *r, bool thought) {
  static const char line[] = "\n\n\n\n\n\n\n\n";
  for (int n = r->newlines; n > 0; n -= 8) give(r, thought, line, (size_t)(n < 8 ? n : 8));
  give(r, thought, reason_marks[thought], (size_t)r->matched);
  r->newlines = r->matched = 0;
}

/* One byte; false: it is plain (a run of plain bytes is given out at once). */
static bool special(reason *r, char c) {
  switch (r->at) {
  case REASON_OVER: return false;
  case REASON_SKIP:
    if (c == '\n') return true;
    r->at = REASON_INSIDE;
    break;
  case REASON_GAP:
    if (c == '\n') return true;
    r->at = REASON_OVER;
    return false;
  default: break;
  }
  const char *mark = reason_marks[r->at == REASON_INSIDE];
  if (c == mark[r->matched]) {
    if (mark[++r->matched]) return true;
    r->matched = r->newlines = 0;
    r->at = r->at == REASON_INSIDE ? REASON_GAP : REASON_SKIP;
    return true;
  }
  if (c == '\n' && !r->matched) {
    r->newlines++;
    return true;
  }
  release(r, r->at == REASON_INSIDE);
  if (r->at == REASON_HEAD) {
    r->at = REASON_OVER;
    return false;
  }
  return c == '<' || c == '\n' ? special(r, c) : false;
}

void reason_push(reason *r, str text) {
  size_t from = 0;
  for (size_t i = 0; i < text.n; i++) {
    char c = text.p[i];
    bool plain = r->at == REASON_OVER || (r->at == REASON_INSIDE && c != '<' && c != '\n' && !r->matched && !r->newlines);
    if (plain) continue;
    give(r, reason_thinks(r), text.p + from, i - from);
    from = special(r, c) ? i + 1 : i;
  }
  give(r, reason_thinks(r), text.p + from, text.n - from);
}

void reason_end(reason *r) {
  release(r, r->at == REASON_INSIDE);
  r->at = REASON_OVER;
}
