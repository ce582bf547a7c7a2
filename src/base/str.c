#include "base/str.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

str str_trim(str s) {
  while (s.n && is_space(s.p[0])) s.p++, s.n--;
  while (s.n && is_space(s.p[s.n - 1])) s.n--;
  return s;
}

bool str_cut(str s, char sep, str *head, str *tail) {
  const char *q = s.n ? memchr(s.p, sep, s.n) : NULL;
  if (!q) return false;
  *head = (str){s.p, (size_t)(q - s.p)};
  *tail = (str){q + 1, s.n - head->n - 1};
  return true;
}

ptrdiff_t str_find(str hay, str needle) {
  if (needle.n == 0) return 0;
  if (hay.n < needle.n) return -1;
  const char *q = memmem(hay.p, hay.n, needle.p, needle.n);
  return q ? q - hay.p : -1;
}

bool str_i64(str s, int64_t *ret) {
  char b[32], *end;
  if (s.n == 0 || s.n >= sizeof b || is_space(s.p[0])) return false;
  memcpy(b, s.p, s.n);
  b[s.n] = 0;
  errno = 0;
  long long v = strtoll(b, &end, 10);
  if (errno || *end) return false;
  *ret = v;
  return true;
}

bool str_f64(str s, double *ret) {
  char b[64], *end;
  if (s.n == 0 || s.n >= sizeof b || is_space(s.p[0])) return false;
  memcpy(b, s.p, s.n);
  b[s.n] = 0;
  errno = 0;
  double v = strtod(b, &end);
  if (*end || !isfinite(v)) return false;
  *ret = v;
  return true;
}

bool str_bytes(str s, uint64_t *ret) {
  size_t k = s.n;
  while (k && isalpha((unsigned char)s.p[k - 1])) k--;
  str unit = {s.p + k, s.n - k};
  double v;
  if (!str_f64((str){s.p, k}, &v) || v < 0) return false;
  int shift = 0;
  if (unit.n) {
    switch (tolower((unsigned char)unit.p[0])) {
    case 'b': shift = 0; break;
    case 'k': shift = 10; break;
    case 'm': shift = 20; break;
    case 'g': shift = 30; break;
    case 't': shift = 40; break;
    default: return false;
    }
    str rest = {unit.p + 1, unit.n - 1};
    if (rest.n && !(shift && (str_is(rest, "B") || str_is(rest, "b") || str_is(rest, "iB") || str_is(rest, "ib")))) return false;
  }
  v = ldexp(v, shift);
  if (v >= 0x1p63) return false;
  *ret = (uint64_t)v;
  return true;
}

int utf8_decode(const char *p, size_t n, uint32_t *ret_cp) {
  const unsigned char *u = (const unsigned char *)p;
  if (n == 0) return 0;
  if (u[0] < 0x80) {
    *ret_cp = u[0];
    return 1;
  }
  int len = u[0] >= 0xf0 && u[0] <= 0xf4 ? 4 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3 : u[0] >= 0xc2 && u[0] < 0xe0 ? 2 : 0;
  if (!len || (size_t)len > n) return 0;
  uint32_t cp = u[0] & (0x7fu >> len);
  for (int i = 1; i < len; i++) {
    if ((u[i] & 0xc0) != 0x80) return 0;
    cp = cp << 6 | (u[i] & 0x3f);
  }
  if ((len == 3 && (cp < 0x800 || (cp >= 0xd800 && cp < 0xe000))) || (len == 4 && (cp < 0x10000 || cp > 0x10ffff))) return 0;
  *ret_cp = cp;
  return len;
}

/* Bytes still wanted by the cut-off sequence at p, or 0 when no valid code point starts with these bytes. */
static int utf8_missing(const unsigned char *u, size_t n) {
  int len = u[0] >= 0xf0 && u[0] <= 0xf4 ? 4 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3 : u[0] >= 0xc2 && u[0] < 0xe0 ? 2 : 0;
  if (!len || n >= (size_t)len) return 0;
  for (size_t i = 1; i < n; i++)
    if ((u[i] & 0xc0) != 0x80) return 0;
  if (n >= 2) {
    if (u[0] == 0xe0 && u[1] < 0xa0) return 0;
    if (u[0] == 0xed && u[1] >= 0xa0) return 0;
    if (u[0] == 0xf0 && u[1] < 0x90) return 0;
    if (u[0] == 0xf4 && u[1] >= 0x90) return 0;
  }
  return len - (int)n;
}

size_t utf8_valid_prefix(str s, int *ret_need) {
  size_t i = 0;
  uint32_t cp;
  if (ret_need) *ret_need = 0;
  while (i < s.n) {
    if (i + 8 <= s.n) {
      uint64_t w;
      memcpy(&w, s.p + i, 8);
      if (!(w & 0x8080808080808080u)) {
        i += 8;
        continue;
      }
    }
    int l = utf8_decode(s.p + i, s.n - i, &cp);
    if (!l) {
      if (ret_need) *ret_need = utf8_missing((const unsigned char *)s.p + i, s.n - i);
      break;
    }
    i += (size_t)l;
  }
  return i;
}

bool utf8_valid(str s) { return utf8_valid_prefix(s, NULL) == s.n; }

int utf8_encode(uint32_t cp, char out[4]) {
  if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) cp = 0xfffd;
  if (cp < 0x80) {
    out[0] = (char)cp;
    return 1;
  }
  if (cp < 0x800) {
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 63));
    return 2;
  }
  if (cp < 0x10000) {
    out[0] = (char)(0xe0 | cp >> 12);
    out[1] = (char)(0x80 | (cp >> 6 & 63));
    out[2] = (char)(0x80 | (cp & 63));
    return 3;
  }
  out[0] = (char)(0xf0 | cp >> 18);
  out[1] = (char)(0x80 | (cp >> 12 & 63));
  out[2] = (char)(0x80 | (cp >> 6 & 63));
  out[3] = (char)(0x80 | (cp & 63));
  return 4;
}
