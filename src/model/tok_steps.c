/* Normal forms other than Unicode's own: case, accents, white space, replacements, and what BERT's normalizer does. Text is valid UTF-8 here. */
#include "model/tok_impl.h"
#include <utf8proc.h>

bool tok_is_white(uint32_t cp) {
  return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
         cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static void put(buf *b, uint32_t cp) {
  char c[4];
  int n = utf8_encode(cp, c);
  buf_put(b, c, (size_t)n);
}

/* One function a code point. What begins a text and is dropped takes the beginning along: the next word is not the first any more (Metaspace asks).
 */
static bool map(tok_work *w, str in, buf *out, str *ret, void (*fn)(buf *out, uint32_t cp)) {
  buf_clear(out);
  buf_reserve(out, in.n);
  uint32_t cp = 0;
  for (size_t i = 0; i < in.n;) {
    int n = utf8_decode(in.p + i, in.n - i, &cp);
    i += n ? (size_t)n : 1;
    fn(out, cp);
    if (!out->n) w->opening = false;
  }
  *ret = buf_view(out);
  return !out->failed;
}

static void lower(buf *out, uint32_t cp) {
  put(out, cp == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
  if (cp == 0x130) put(out, 0x307); /* the only letter whose small form is two */
}
bool tok_step_lower(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  (void)s;
  return map(w, in, out, ret, lower);
}

static void no_mark(buf *out, uint32_t cp) {
  if (utf8proc_category((utf8proc_int32_t)cp) != UTF8PROC_CATEGORY_MN) put(out, cp);
}
bool tok_step_accents(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  (void)s;
  return map(w, in, out, ret, no_mark);
}

/* Unassigned code points stay, as in the reference. */
static void clean(buf *out, uint32_t cp) {
  if (cp == '\t' || cp == '\n' || cp == '\r') return put(out, ' ');
  if (cp == 0xfffd) return;
  switch (utf8proc_category((utf8proc_int32_t)cp)) {
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_CS: return;
  default: put(out, tok_is_white(cp) ? ' ' : cp);
  }
}
bool tok_step_clean(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  (void)s;
  return map(w, in, out, ret, clean);
}

/* The blocks that BERT's authors listed. The fifth begins at 2B920 in the reference implementation instead of 2B820. */
static bool is_han(uint32_t cp) {
  static const uint32_t blocks[][2] = {{0x4e00, 0x9fff}, {0x3400, 0x4dbf}, {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
      {0x2b920, 0x2ceaf}, {0xf900, 0xfaff}, {0x2f800, 0x2fa1f}};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if (cp >= blocks[i][0] && cp <= blocks[i][1]) return true;
  return false;
}
static void han(buf *out, uint32_t cp) {
  bool alone = is_han(cp);
  if (alone) put(out, ' ');
  put(out, cp);
  if (alone) put(out, ' ');
}
bool tok_step_han(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  (void)s;
  return map(w, in, out, ret, han);
}

bool tok_step_strip(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  (void)out;
  uint32_t cp;
  if (s->flags & TOK_STRIP_LEFT)
    for (int n; in.n && (n = utf8_decode(in.p, in.n, &cp)) && tok_is_white(cp); w->opening = false) in = (str){in.p + n, in.n - (size_t)n};
  while (s->flags & TOK_STRIP_RIGHT && in.n) {
    size_t k = in.n - 1;
    while (k && ((uint8_t)in.p[k] & 0xc0) == 0x80) k--;
    if (!utf8_decode(in.p + k, in.n - k, &cp) || !tok_is_white(cp)) break;
    in.n = k;
  }
  *ret = in;
  return true;
}

bool tok_step_replace(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  ptrdiff_t at = s->a.n ? str_find(in, s->a) : -1;
  *ret = in;
  if (at < 0) return true;
  if (!at) w->opening = false; /* as with what is dropped */
  buf_clear(out);
  for (; at >= 0; at = str_find(in, s->a)) {
    buf_put(out, in.p, (size_t)at);
    buf_str(out, s->b);
    in = (str){in.p + at + s->a.n, in.n - (size_t)at - s->a.n};
  }
  buf_str(out, in);
  *ret = buf_view(out);
  return !out->failed;
}

bool tok_step_prepend(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  *ret = in;
  if (!w->lead || !in.n) return true;
  buf_clear(out);
  buf_str(out, s->a);
  buf_str(out, in);
  *ret = buf_view(out);
  return !out->failed;
}
