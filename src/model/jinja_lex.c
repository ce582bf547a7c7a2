/* Template text to tokens: jinja2's lexer with trim_blocks and lstrip_blocks on, no line statements.
 * Three states: data between tags, inside a tag, and the two bodies that are skipped over whole (comment, raw). */
#include "model/jinja_ast.h"
#include <stdlib.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct lexer {
  jj_src *s;
  const char *p, *end;
  int line;
  bool fresh; /* the last token ended with a newline (or nothing came yet): what follows starts a line */
  char open[JJ_MAX_AST];
  int n_open;
} lexer;

static bool src_error(jj_src *s, err_code code, int line, const char *fmt, va_list ap) {
  char msg[480];
  vsnprintf(msg, sizeof msg, fmt, ap);
  jj_clean(msg);
  return err_set(s->e, code, "chat template, line %d: %s", line, msg);
}

bool jj_src_fail(jj_src *s, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  src_error(s, ERR_INPUT, line, fmt, ap);
  va_end(ap);
  return false;
}

bool jj_src_refuse(jj_src *s, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  src_error(s, ERR_UNSUPPORTED, line, fmt, ap);
  va_end(ap);
  return false;
}

void *jj_src_alloc(jj_src *s, size_t count, size_t size) {
  void *p = arena_try_array(s->mem, count ? count : 1, size);
  if (!p && s->mem->starved) err_set(s->e, ERR_NOMEM, "out of memory compiling a chat template");
  else if (!p) err_set(s->e, ERR_INPUT, "chat template is too large to compile");
  return p;
}

static jj_tok *push(lexer *x, jj_tk kind, int line, str text) {
  jj_src *s = x->s;
  if (s->n_tok == s->cap_tok) {
    int cap = s->cap_tok ? s->cap_tok * 2 : 256;
    jj_tok *t = jj_src_alloc(s, (size_t)cap, sizeof *t);
    if (!t) return NULL;
    if (s->n_tok) memcpy(t, s->tok, (size_t)s->n_tok * sizeof *t);
    s->tok = t;
    s->cap_tok = cap;
  }
  s->tok[s->n_tok] = (jj_tok){.kind = kind, .line = line, .s = text};
  return &s->tok[s->n_tok++];
}

static void count_lines(lexer *x, const char *from, const char *to) {
  for (; from < to; from++) x->line += *from == '\n';
}

/* Moves to `to`, keeping line number and `fresh`. */
static void advance(lexer *x, const char *to) {
  count_lines(x, x->p, to);
  if (to > x->p) x->fresh = to[-1] == '\n';
  x->p = to;
}

static const char *skip_space(const char *p, const char *end) {
  while (p < end) {
    int n;
    if (!jj_is_space(jj_cp(p, end, &n))) break;
    p += n;
  }
  return p;
}

static const char *skip_space_back(const char *start, const char *p) {
  while (p > start) {
    int n;
    if (!jj_is_space(jj_cp_back(start, p, &n))) break;
    p -= n;
  }
  return p;
}

static bool at(const char *p, const char *end, const char *lit) {
  size_t n = strlen(lit);
  return (size_t)(end - p) >= n && memcmp(p, lit, n) == 0;
}

/* The end of a tag that closes with `close` ("%}", "#}"): "+close", "-close" and the space behind it, or close and one newline. NULL: not here. */
static const char *tag_end(const char *p, const char *end, const char *close) {
  if (p < end && *p == '+' && at(p + 1, end, close)) return p + 3;
  if (p < end && *p == '-' && at(p + 1, end, close)) return skip_space(p + 3, end);
  if (!at(p, end, close)) return NULL;
  p += 2;
  return p < end && *p == '\n' ? p + 1 : p;
}

/* Data before a tag loses white space: all of it for "{%-", the indentation of the tag's own line for "{%" and "{#" unless "+" is written. */
static bool push_data(lexer *x, const char *from, const char *to, char sign, bool variable) {
  const char *cut = to;
  if (sign == '-') cut = skip_space_back(from, to);
  else if (sign != '+' && !variable) {
    const char *nl = to;
    while (nl > from && nl[-1] != '\n') nl--;
    if ((nl > from || x->fresh) && skip_space_back(nl, to) == nl) cut = nl;
  }
  return cut == from || push(x, T_DATA, x->line, (str){from, (size_t)(cut - from)});
}

/* "{%[-+]? raw %}" at p: the start of the raw text, with the sign; NULL: an ordinary block. */
static const char *raw_begin(const char *p, const char *end, char *sign) {
  p += 2;
  *sign = 0;
  if (p < end && (*p == '-' || *p == '+')) *sign = *p++;
  p = skip_space(p, end);
  if (!at(p, end, "raw")) return NULL;
  p = skip_space(p + 3, end);
  if (at(p, end, "-%}")) return skip_space(p + 3, end);
  return at(p, end, "%}") ? p + 2 : NULL;
}

static bool lex_raw(lexer *x, const char *body) {
  int line = x->line;
  advance(x, body);
  for (const char *q = x->p; q + 1 < x->end; q++) {
    if (q[0] != '{' || q[1] != '%') continue;
    const char *r = q + 2;
    char sign = 0;
    if (r < x->end && (*r == '-' || *r == '+')) sign = *r++;
    r = skip_space(r, x->end);
    if (!at(r, x->end, "endraw")) continue;
    r = tag_end(skip_space(r + 6, x->end), x->end, "%}");
    if (!r) continue;
    if (!push_data(x, x->p, q, sign, false)) return false;
    advance(x, r);
    return true;
  }
  return jj_src_fail(x->s, line, "raw block is never closed, expected {%% endraw %%}");
}

static bool lex_comment(lexer *x) {
  int line = x->line;
  for (const char *q = x->p; q < x->end; q++) {
    const char *r = tag_end(q, x->end, "#}");
    if (r) {
      advance(x, r);
      return true;
    }
  }
  return jj_src_fail(x->s, line, "comment is never closed, expected #}");
}

/* Data up to the next tag, and the tag's opening. */
static bool lex_data(lexer *x, jj_tk *ret_state) {
  const char *q = x->p;
  while (q < x->end && !(q[0] == '{' && q + 1 < x->end && (q[1] == '%' || q[1] == '{' || q[1] == '#'))) q++;
  if (q == x->end) {
    *ret_state = T_EOF;
    bool ok = q == x->p || push(x, T_DATA, x->line, (str){x->p, (size_t)(q - x->p)});
    advance(x, q);
    return ok;
  }
  char sign = 0;
  const char *raw = q[1] == '%' ? raw_begin(q, x->end, &sign) : NULL;
  if (!raw) sign = q + 2 < x->end && (q[2] == '-' || q[2] == '+') ? q[2] : 0;
  if (!push_data(x, x->p, q, sign, q[1] == '{')) return false;
  advance(x, q);
  *ret_state = T_DATA;
  if (raw) return lex_raw(x, raw);
  char which = q[1];
  advance(x, q + 2 + (sign != 0));
  if (which == '#') return lex_comment(x);
  *ret_state = which == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN;
  return push(x, *ret_state, x->line, STR("")) != NULL;
}

/* Digits of `base` with single underscores between; appends them to out. Returns the end, or p when there is none. */
static const char *digits(const char *p, const char *end, int base, char *out, size_t cap, size_t *n) {
  const char *q = p;
  for (;;) {
    const char *d = q > p && q < end && *q == '_' ? q + 1 : q;
    if (d >= end) break;
    int v = *d >= '0' && *d <= '9' ? *d - '0' : (*d | 32) >= 'a' && (*d | 32) <= 'f' ? (*d | 32) - 'a' + 10 : 99;
    if (v >= base) break;
    if (*n + 1 < cap) out[(*n)++] = *d;
    q = d + 1;
  }
  return q;
}

enum { NUM_CAP = 512 };

static bool lex_float(lexer *x, const char **ret_end, double *ret) {
  char buf[NUM_CAP];
  size_t n = 0;
  if (x->p > x->s->text.p && x->p[-1] == '.') return false;
  const char *q = digits(x->p, x->end, 10, buf, sizeof buf, &n), *r;
  if (q == x->p) return false;
  bool is = false;
  if (q + 1 < x->end && *q == '.' && q[1] >= '0' && q[1] <= '9') {
    buf[n++] = '.';
    q = digits(q + 1, x->end, 10, buf, sizeof buf - 4, &n);
    is = true;
  }
  if (q < x->end && (*q | 32) == 'e') {
    r = q + 1;
    char sign = r < x->end && (*r == '+' || *r == '-') ? *r++ : '+';
    if (r < x->end && *r >= '0' && *r <= '9') {
      if (n > sizeof buf - 16) n = sizeof buf - 16;
      buf[n++] = 'e';
      buf[n++] = sign;
      q = digits(r, x->end, 10, buf, sizeof buf, &n);
      is = true;
    }
  }
  if (!is) return false;
  buf[n] = 0;
  *ret = strtod(buf, NULL);
  *ret_end = q;
  return true;
}

/* 1 a number, 0 none here, -1 too large. */
static int lex_int(lexer *x, const char **ret_end, int64_t *ret) {
  char buf[NUM_CAP];
  size_t n = 0;
  const char *p = x->p, *q;
  int base = 10;
  if (*p < '0' || *p > '9') return 0;
  if (*p == '0' && p + 1 < x->end) {
    int c = p[1] | 32;
    int b = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 0;
    if (b) {
      const char *d = p + 2;
      if (d < x->end && *d == '_') d++;
      q = digits(d, x->end, b, buf, sizeof buf, &n);
      if (q > d) {
        base = b;
        goto number;
      }
    }
  }
  if (*p == '0') { /* a decimal zero: only zeros */
    for (q = p + 1; q < x->end && (*q == '0' || (*q == '_' && q + 1 < x->end && q[1] == '0')); q++) {}
    buf[n++] = '0';
  } else q = digits(p, x->end, 10, buf, sizeof buf, &n);
number:
  buf[n] = 0;
  *ret_end = q;
  unsigned long long v = strtoull(buf, NULL, base);
  if (n > 200 || v > INT64_MAX) return -1;
  *ret = (int64_t)v;
  return 1;
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; }

/* One escape behind a backslash at p (not consumed). Appends its text to out; returns the end, or NULL with the error set. */
static const char *escape(lexer *x, const char *p, const char *end, char *out, size_t *n) {
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  char c = *p;
  const char *hit = c ? strchr(from, c) : NULL;
  if (c == '\n') return p + 1;
  if (hit) {
    out[(*n)++] = to[hit - from];
    return p + 1;
  }
  uint32_t cp = 0;
  if (c >= '0' && c <= '7') {
    int k = 0;
    for (; k < 3 && p < end && *p >= '0' && *p <= '7'; k++) cp = cp * 8 + (uint32_t)(*p++ - '0');
    *n += (size_t)utf8_encode(cp, out + *n);
    return p;
  }
  int want = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (want) {
    p++;
    for (int k = 0; k < want; k++, p++) {
      int d = p < end ? hex_digit(*p) : -1;
      if (d < 0) {
        jj_src_fail(x->s, x->line, "escape \\%c in a string needs %d hexadecimal digits", c, want);
        return NULL;
      }
      cp = cp * 16 + (uint32_t)d;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
      jj_src_fail(x->s, x->line, "escape \\%c in a string names U+%X, which is not a character", c, cp);
      return NULL;
    }
    *n += (size_t)utf8_encode(cp, out + *n);
    return p;
  }
  if (c == 'N') {
    jj_src_refuse(x->s, x->line, "character names (\\N{...}) in strings are not supported");
    return NULL;
  }
  out[(*n)++] = '\\';
  if ((unsigned char)c < 0x80) {
    out[(*n)++] = c;
    return p + 1;
  }
  /* The reference first spells non-ASCII characters as escapes, and the backslash before then escapes that backslash. */
  int l;
  cp = jj_cp(p, end, &l);
  *n += (size_t)sprintf(out + *n, cp < 0x100 ? "x%02x" : cp < 0x10000 ? "u%04x" : "U%08x", cp);
  return p + l;
}

static bool lex_string(lexer *x) {
  char quote = *x->p;
  const char *body = x->p + 1, *q = body;
  bool plain = true;
  while (q < x->end && *q != quote) {
    if (*q == '\\') {
      plain = false;
      q++;
    }
    q++;
  }
  if (q >= x->end) return jj_src_fail(x->s, x->line, "string is never closed");
  str text = {body, (size_t)(q - body)};
  if (!plain) {
    char *out = jj_src_alloc(x->s, text.n * 3 + 16, 1); /* the longest growth: 4 bytes become 10 behind a backslash */
    if (!out) return false;
    size_t n = 0;
    for (const char *p = body; p < q;) {
      if (*p != '\\') {
        out[n++] = *p++;
        continue;
      }
      if (!(p = escape(x, p + 1, q, out, &n))) return false;
    }
    text = (str){out, n};
  }
  int line = x->line;
  advance(x, q + 1);
  return push(x, T_STR, line, text) != NULL;
}

static bool lex_operator(lexer *x) {
  static const struct {
    char text[3];
    jj_tk kind;
  } ops[] = {{"//", T_FLOORDIV}, {"**", T_POW}, {"==", T_EQ}, {"!=", T_NE}, {">=", T_GE}, {"<=", T_LE}, {"+", T_ADD}, {"-", T_SUB}, {"/", T_DIV},
      {"*", T_MUL}, {"%", T_MOD}, {"~", T_TILDE}, {"[", T_LBRACKET}, {"]", T_RBRACKET}, {"(", T_LPAREN}, {")", T_RPAREN}, {"{", T_LBRACE},
      {"}", T_RBRACE}, {">", T_GT}, {"<", T_LT}, {"=", T_ASSIGN}, {".", T_DOT}, {":", T_COLON}, {"|", T_PIPE}, {",", T_COMMA}, {";", T_SEMICOLON}};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    if (!at(x->p, x->end, ops[i].text)) continue;
    char c = *x->p;
    if (c == '(' || c == '[' || c == '{') {
      if (x->n_open == JJ_MAX_AST) return jj_src_fail(x->s, x->line, "more than %d brackets are open", JJ_MAX_AST);
      x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (!x->n_open) return jj_src_fail(x->s, x->line, "unexpected '%c'", c);
      if (x->open[--x->n_open] != c) return jj_src_fail(x->s, x->line, "unexpected '%c', expected '%c'", c, x->open[x->n_open]);
    }
    str text = {x->p, strlen(ops[i].text)};
    int line = x->line;
    advance(x, x->p + text.n);
    return push(x, ops[i].kind, line, text) != NULL;
  }
  int n;
  uint32_t cp = jj_cp(x->p, x->end, &n);
  return jj_src_fail(x->s, x->line, "unexpected character '%.*s' (U+%04X)", n, x->p, cp);
}

/* One token inside a tag, or its end. */
static bool lex_tag(lexer *x, jj_tk state, bool *ret_done) {
  const char *q;
  int n;
  *ret_done = false;
  if (!x->n_open) { /* inside brackets "}}" and "%}" are operators */
    if (state == T_BLOCK_BEGIN) q = tag_end(x->p, x->end, "%}");
    else q = at(x->p, x->end, "-}}") ? skip_space(x->p + 3, x->end) : at(x->p, x->end, "}}") ? x->p + 2 : NULL;
    if (q) {
      int line = x->line;
      advance(x, q);
      *ret_done = true;
      return push(x, state == T_BLOCK_BEGIN ? T_BLOCK_END : T_VAR_END, line, STR("")) != NULL;
    }
  }
  uint32_t cp = jj_cp(x->p, x->end, &n);
  if (jj_is_space(cp)) {
    advance(x, skip_space(x->p, x->end));
    return true;
  }
  jj_tok *t;
  double f;
  int64_t i = 0;
  if (cp >= '0' && cp <= '9') {
    if (lex_float(x, &q, &f)) {
      if (!(t = push(x, T_FLOAT, x->line, (str){x->p, (size_t)(q - x->p)}))) return false;
      t->f = f;
    } else {
      if (lex_int(x, &q, &i) < 0) return jj_src_fail(x->s, x->line, "number %.40s does not fit 64 bits", x->p);
      if (!(t = push(x, T_INT, x->line, (str){x->p, (size_t)(q - x->p)}))) return false;
      t->i = i;
    }
    advance(x, q);
    return true;
  }
  if (jj_is_word(cp)) {
    for (q = x->p; q < x->end; q += n)
      if (!jj_is_word(jj_cp(q, x->end, &n))) break;
    if (!push(x, T_NAME, x->line, (str){x->p, (size_t)(q - x->p)})) return false;
    advance(x, q);
    return true;
  }
  return cp == '\'' || cp == '"' ? lex_string(x) : lex_operator(x);
}

/* Line ends become "\n"; one newline at the very end is dropped. */
static bool normalize(jj_src *s) {
  char *out = jj_src_alloc(s, s->text.n + 1, 1);
  if (!out) return false;
  size_t n = 0;
  for (size_t i = 0; i < s->text.n; i++) {
    char c = s->text.p[i];
    if (c == '\r') {
      if (i + 1 < s->text.n && s->text.p[i + 1] == '\n') i++;
      c = '\n';
    }
    out[n++] = c;
  }
  if (n && out[n - 1] == '\n') n--;
  s->text = (str){out, n};
  return true;
}

bool jj_lex(jj_src *s) {
  if (s->text.n > JJ_MAX_SOURCE) return err_set(s->e, ERR_INPUT, "chat template is %zu bytes long; at most %zu are read", s->text.n, JJ_MAX_SOURCE);
  if (!utf8_valid(s->text)) return err_set(s->e, ERR_INPUT, "chat template is not valid UTF-8");
  if (!normalize(s)) return false;
  lexer x = {.s = s, .p = s->text.p, .end = s->text.p + s->text.n, .line = 1, .fresh = true};
  while (x.p < x.end) {
    jj_tk state;
    bool done = false;
    if (!lex_data(&x, &state)) return false;
    if (state != T_VAR_BEGIN && state != T_BLOCK_BEGIN) continue;
    int line = x.line;
    while (!done) {
      if (x.p >= x.end)
        return jj_src_fail(s, line, "tag is never closed, expected %s", x.n_open ? "a closing bracket" : state == T_VAR_BEGIN ? "}}" : "%}");
      if (!lex_tag(&x, state, &done)) return false;
    }
  }
  return push(&x, T_EOF, x.line, STR("")) != NULL;
}
