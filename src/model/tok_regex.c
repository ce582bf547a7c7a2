/* Regular expressions of tokenizer.json files. They are written for Oniguruma; what it and PCRE2 read alike passes, what they read differently is
 * rewritten (classes of white space and of word characters) or refused by name. */
#include "model/tok_impl.h"

#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Pc}" /* Oniguruma's; PCRE2's leaves marks out */

static bool refuse(str in, err *e, const char *what, int n) {
  return err_param(e, ERR_UNSUPPORTED, "tokenizer.json", "the regular expression %.*s uses %.*s, which is not read", (int)(in.n < 200 ? in.n : 200),
      in.p, n, what);
}

/* A class by letter: what stands inside of brackets. */
static const char *class_of(char c) { return c == 's' || c == 'S' ? TOK_WS : c == 'w' || c == 'W' ? WORD : c == 'd' || c == 'D' ? "\\p{Nd}" : NULL; }

static bool escape(str in, size_t *i, bool in_class, buf *out, err *e) {
  size_t at = *i;
  if (at + 1 >= in.n) return refuse(in, e, "a backslash at its end", 22);
  char c = in.p[at + 1];
  *i = at + 2;
  const char *cls = class_of(c);
  bool inverse = c == 'S' || c == 'W' || c == 'D';
  if (cls && in_class && inverse) return refuse(in, e, in.p + at, 2);
  if (cls) return in_class ? buf_puts(out, cls) : buf_printf(out, inverse ? "[^%s]" : "[%s]", cls);
  bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  if (letter && !strchr("pPxrntfv", c)) return refuse(in, e, in.p + at, 2);
  if (c == 'v') return buf_puts(out, "\\x0b"); /* PCRE2's is a class */
  size_t end = at + 2;
  if (strchr("pPx", c) && end < in.n && in.p[end] == '{') /* its braces are no quantifier's */
    while (end < in.n && in.p[end++] != '}') {}
  *i = end;
  return buf_put(out, in.p + at, end - at);
}

bool tok_regex(str in, buf *out, err *e) {
  bool in_class = false;
  size_t class_at = 0;
  for (size_t i = 0; i < in.n;) {
    char c = in.p[i];
    if (!c) return refuse(in, e, "a NUL", 5);
    if (c == '\\') {
      if (!escape(in, &i, in_class, out, e)) return out->failed ? err_set(e, ERR_NOMEM, "out of memory for a regular expression") : false;
      continue;
    }
    if (in_class && c == '&' && i + 1 < in.n && in.p[i + 1] == '&') return refuse(in, e, "&&", 2);
    if (in_class && c == '[') return refuse(in, e, "a class in a class", 18);
    if (c == '[' && !in_class) {
      in_class = true;
      class_at = i + (i + 1 < in.n && in.p[i + 1] == '^');
    } else if (c == ']' && in_class && i > class_at + 1) in_class = false;
    if (!in_class && c == '}' && i + 1 < in.n && in.p[i + 1] == '+') return refuse(in, e, "}+", 2); /* possessive there, repeated here */
    buf_putc(out, c);
    i++;
  }
  return !out->failed || err_set(e, ERR_NOMEM, "out of memory for a regular expression");
}

bool tok_regex_quote(str in, buf *out, err *e) {
  for (size_t i = 0; i < in.n; i++) {
    char c = in.p[i];
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (uint8_t)c >= 0x80 || c == ' ';
    if (!c) return refuse(in, e, "a NUL", 5);
    if (!plain) buf_putc(out, '\\');
    buf_putc(out, c);
  }
  return !out->failed || err_set(e, ERR_NOMEM, "out of memory for a pattern");
}
