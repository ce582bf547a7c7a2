#include "base/buf.h"
#include <stdio.h>
#include <stdlib.h>

void buf_init(buf *b, size_t max) { *b = (buf){.max = max}; }

void buf_fini(buf *b) {
  free(b->p);
  *b = (buf){.max = b->max};
}

void buf_clear(buf *b) {
  b->n = 0;
  b->failed = b->starved = false;
  if (b->p) b->p[0] = 0;
}

bool buf_reserve(buf *b, size_t extra) {
  if (b->failed) return false;
  if (extra > b->max || b->n > b->max - extra) {
    b->failed = true;
    return false;
  }
  size_t want = b->n + extra + 1;
  if (want <= b->cap) return true;
  size_t cap = b->cap ? b->cap : 64;
  while (cap < want) cap += cap / 2 + 16;
  char *p = realloc(b->p, cap);
  if (!p) {
    b->failed = b->starved = true;
    return false;
  }
  b->p = p;
  b->cap = cap;
  return true;
}

bool buf_put(buf *b, const void *p, size_t n) {
  if (!buf_reserve(b, n)) return false;
  if (n) memcpy(b->p + b->n, p, n);
  b->n += n;
  b->p[b->n] = 0;
  return true;
}

bool buf_puts(buf *b, const char *s) { return buf_put(b, s, strlen(s)); }
bool buf_putc(buf *b, char c) { return buf_put(b, &c, 1); }
bool buf_str(buf *b, str s) { return buf_put(b, s.p, s.n); }

bool buf_vprintf(buf *b, const char *fmt, va_list ap) {
  va_list ap2;
  va_copy(ap2, ap);
  int n = vsnprintf(NULL, 0, fmt, ap2);
  va_end(ap2);
  if (n < 0) {
    b->failed = true;
    return false;
  }
  if (!buf_reserve(b, (size_t)n)) return false;
  vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
  b->n += (size_t)n;
  return true;
}

bool buf_printf(buf *b, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  bool ok = buf_vprintf(b, fmt, ap);
  va_end(ap);
  return ok;
}

void buf_drop(buf *b, size_t n) {
  if (n > b->n) n = b->n;
  b->n -= n;
  if (b->n) memmove(b->p, b->p + n, b->n);
  if (b->p) b->p[b->n] = 0;
}

bool buf_json(buf *b, str s) {
  size_t i = 0;
  while (i < s.n) {
    size_t j = i;
    while (j < s.n && (unsigned char)s.p[j] >= 0x20 && (unsigned char)s.p[j] < 0x80 && s.p[j] != '"' && s.p[j] != '\\') j++;
    if (j > i) buf_put(b, s.p + i, j - i);
    i = j;
    if (i == s.n) break;
    unsigned char c = (unsigned char)s.p[i];
    uint32_t cp;
    int l;
    if (c == '"' || c == '\\') {
      buf_putc(b, '\\');
      buf_putc(b, (char)c);
      i++;
    } else if (c == '\n') {
      buf_puts(b, "\\n");
      i++;
    } else if (c == '\r') {
      buf_puts(b, "\\r");
      i++;
    } else if (c == '\t') {
      buf_puts(b, "\\t");
      i++;
    } else if (c < 0x20) {
      buf_printf(b, "\\u%04x", c);
      i++;
    } else if ((l = utf8_decode(s.p + i, s.n - i, &cp)) > 0) {
      buf_put(b, s.p + i, (size_t)l);
      i += (size_t)l;
    } else {
      buf_puts(b, "\xef\xbf\xbd");
      i++;
    }
  }
  return !b->failed;
}

char *buf_take(buf *b, size_t *ret_n) {
  if (b->failed || !buf_reserve(b, 0)) return NULL;
  b->p[b->n] = 0;
  char *p = b->p;
  if (ret_n) *ret_n = b->n;
  *b = (buf){.max = b->max};
  return p;
}
