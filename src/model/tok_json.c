/* A pull reader of JSON for what a tokenizer.json has hundreds of thousands of: a document of such an array would take half a gigabyte, and its
 * sections are few. Strings are slices of the text unless something in them is escaped. */
#include "model/tok_impl.h"
#include <stdio.h>

enum { MAX_DEPTH = 64 };

static bool broken(tok_json *j, const char *what) {
  return err_param(j->e, ERR_INPUT, "tokenizer.json", "%s: expected %s at byte %zu", j->where, what, j->at);
}

char tok_json_peek(tok_json *j) {
  while (j->at < j->in.n && (j->in.p[j->at] == ' ' || (j->in.p[j->at] >= '\t' && j->in.p[j->at] <= '\r'))) j->at++;
  return j->at < j->in.n ? j->in.p[j->at] : 0;
}

static bool take(tok_json *j, char c) {
  if (tok_json_peek(j) != c) return false;
  j->at++;
  return true;
}

static bool hex4(tok_json *j, uint32_t *ret) {
  uint32_t v = 0;
  if (j->in.n - j->at < 4) return false;
  for (int i = 0; i < 4; i++) {
    char c = j->in.p[j->at++];
    int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (d < 0) return false;
    v = v << 4 | (uint32_t)d;
  }
  *ret = v;
  return true;
}

/* Behind the backslash. */
static bool escape(tok_json *j, char **out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  char c = j->at < j->in.n ? j->in.p[j->at++] : 0;
  const char *k = c ? strchr(from, c) : NULL;
  if (k) return (*(*out)++ = to[k - from]), true;
  uint32_t cp, low;
  if (c != 'u' || !hex4(j, &cp)) return broken(j, "an escape sequence");
  if (cp >= 0xd800 && cp < 0xdc00) {
    if (j->in.n - j->at < 6 || j->in.p[j->at] != '\\' || j->in.p[j->at + 1] != 'u') return broken(j, "the second half of a surrogate pair");
    j->at += 2;
    if (!hex4(j, &low) || low < 0xdc00 || low > 0xdfff) return broken(j, "the second half of a surrogate pair");
    cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
  } else if (cp >= 0xdc00 && cp < 0xe000) return broken(j, "no second half of a surrogate pair alone");
  *out += utf8_encode(cp, *out);
  return true;
}

bool tok_json_str(tok_json *j, str *ret) {
  if (!take(j, '"')) return broken(j, "a string");
  size_t from = j->at, end = from;
  while (end < j->in.n && j->in.p[end] != '"' && j->in.p[end] != '\\' && (uint8_t)j->in.p[end] >= ' ') end++;
  if (end < j->in.n && j->in.p[end] == '"') {
    *ret = (str){j->in.p + from, end - from};
    j->at = end + 1;
    return true;
  }
  for (; end < j->in.n && j->in.p[end] != '"'; end++)
    if (j->in.p[end] == '\\') end++;
  if (end >= j->in.n) return broken(j, "the end of a string");
  char *p = arena_try(j->own, end - from + 4), *out = p; /* an escape is never longer than what stands for it */
  if (!p) return err_set(j->e, ERR_NOMEM, "out of memory for a string of %zu bytes", end - from);
  while (j->at < end) {
    char c = j->in.p[j->at++];
    if ((uint8_t)c < ' ') return broken(j, "no control character in a string");
    if (c != '\\') *out++ = c;
    else if (!escape(j, &out)) return false;
  }
  j->at = end + 1;
  *ret = (str){p, (size_t)(out - p)};
  return true;
}

static bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' || c == 'E'; }

static str word(tok_json *j) {
  tok_json_peek(j);
  size_t from = j->at;
  while (j->at < j->in.n && is_word(j->in.p[j->at])) j->at++;
  return (str){j->in.p + from, j->at - from};
}

/* As the tokenizers library reads a number: its digits as one integer, then one division or multiplication by a power of ten. Above 2^53 that rounds
 * twice and is not always the nearest double; sums of scores that tie are told apart by such last bits, so they have to be the same. */
bool tok_json_f64(tok_json *j, double *ret) {
  str w = word(j);
  double nearest;
  if (!str_f64(w, &nearest)) return broken(j, "a number");
  uint64_t digits = 0;
  int exponent = 0;
  size_t i = w.p[0] == '-';
  bool point = false, full = false;
  for (; i < w.n && w.p[i] != 'e' && w.p[i] != 'E'; i++) {
    if (w.p[i] == '.') {
      point = true;
      continue;
    }
    full = full || digits > (UINT64_MAX - 9) / 10;
    if (!full) digits = digits * 10 + (uint64_t)(w.p[i] - '0');
    exponent += (full && !point) - (!full && point);
  }
  int64_t written = 0;
  if (i < w.n && !str_i64((str){w.p + i + 1 + (w.p[i + 1] == '+'), w.n - i - 1 - (w.p[i + 1] == '+')}, &written)) return broken(j, "a number");
  exponent += (int)(written > 400 ? 400 : written < -400 ? -400 : written);
  *ret = nearest;
  if (exponent >= -22 && exponent <= 22) {
    double power = 1;
    for (int k = exponent < 0 ? -exponent : exponent; k > 0; k--) power *= 10; /* exact to 10^22 */
    *ret = exponent < 0 ? (double)digits / power : (double)digits * power;
    if (w.p[0] == '-') *ret = -*ret;
  }
  return true;
}

/* Any value, without recursion. */
bool tok_json_raw(tok_json *j, str *ret) {
  int depth = 0;
  tok_json_peek(j);
  size_t from = j->at;
  do {
    char c = tok_json_peek(j);
    if (c == '"') {
      for (j->at++; j->at < j->in.n && j->in.p[j->at] != '"'; j->at++)
        if (j->in.p[j->at] == '\\') j->at++;
      if (j->at++ >= j->in.n) return broken(j, "the end of a string");
    } else if (c == '{' || c == '[') {
      if (++depth > MAX_DEPTH) return broken(j, "no deeper nesting");
      j->at++;
    } else if (c == '}' || c == ']') {
      if (!depth--) return broken(j, "a value");
      j->at++;
    } else if (c == ',' || c == ':') {
      if (!depth) return broken(j, "a value");
      j->at++;
    } else if (!word(j).n) return broken(j, "a value");
  } while (depth);
  *ret = (str){j->in.p + from, j->at - from};
  return true;
}

bool tok_json_object(tok_json *j, tok_json_fn *fn, void *ctx) {
  if (!take(j, '{')) return broken(j, "an object");
  if (take(j, '}')) return true;
  do {
    str key;
    if (!tok_json_str(j, &key)) return false;
    if (!take(j, ':')) return broken(j, "a colon");
    if (!fn(j, key, ctx)) return false;
  } while (take(j, ','));
  return take(j, '}') || broken(j, "a comma or the end of an object");
}

bool tok_json_array(tok_json *j, tok_json_fn *fn, void *ctx) {
  if (!take(j, '[')) return broken(j, "an array");
  if (take(j, ']')) return true;
  do
    if (!fn(j, (str){"", 0}, ctx)) return false;
  while (take(j, ','));
  return take(j, ']') || broken(j, "a comma or the end of an array");
}
