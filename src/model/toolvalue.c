#include "model/toolvalue.h"
#include <string.h>

enum { AT_OPEN, AT_KEY, AT_COLON, AT_VALUE, AT_NEXT, AT_QUOTED, AT_MARK, AT_MARKED, AT_WORD };

/* FunctionGemma's and Gemma 4's quotes: control tokens, so that the text between them needs no escapes. */
static const char *const marks[] = {"<escape>", "<|\"|>"};

void toolvalue_init(toolvalue *v) { *v = (toolvalue){.at = AT_OPEN}; }

static bool space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static bool holds_keys(const toolvalue *v) { return v->close[v->depth - 1] != ']'; }

static toolvalue_ret open(toolvalue *v, char c, buf *out) {
  if (v->depth == TOOLVALUE_DEPTH) return TOOLVALUE_BAD;
  v->close[v->depth++] = c == '[' ? ']' : c == '{' ? '}' : ')';
  buf_putc(out, c == '[' ? '[' : '{');
  v->at = c == '[' ? AT_VALUE : AT_KEY;
  return TOOLVALUE_MORE;
}

static toolvalue_ret close(toolvalue *v, buf *out) {
  buf_putc(out, v->close[--v->depth] == ']' ? ']' : '}');
  v->at = AT_NEXT;
  return v->depth ? TOOLVALUE_MORE : TOOLVALUE_DONE;
}

/* One byte inside a JSON string. */
static void put_char(char c, buf *out) {
  if (c == '"' || c == '\\') buf_putc(out, '\\'), buf_putc(out, c);
  else if (c == '\n') buf_puts(out, "\\n");
  else if ((unsigned char)c < 0x20) buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
  else buf_putc(out, c);
}

static void begin_string(toolvalue *v, bool key, buf *out) {
  v->key = key;
  v->escaped = false;
  buf_putc(out, '"');
}

static void end_string(toolvalue *v, buf *out) {
  buf_puts(out, v->key ? "\": " : "\"");
  v->at = v->key ? AT_COLON : AT_NEXT;
}

/* Begins a key or a value with its first byte. */
static toolvalue_ret begin(toolvalue *v, char c, bool key, buf *out) {
  if (c == '"' || c == '\'') {
    begin_string(v, key, out);
    v->quote = c;
    v->at = AT_QUOTED;
  } else if (c == '<') {
    v->key = key;
    v->matched = 1;
    v->at = AT_MARK;
  } else if (!key && (c == '{' || c == '[')) {
    return open(v, c, out);
  } else {
    v->key = key;
    v->word[0] = c;
    v->n_word = 1;
    v->at = AT_WORD;
  }
  return TOOLVALUE_MORE;
}

/* The two marks differ in their second byte. */
static toolvalue_ret on_mark(toolvalue *v, char c, buf *out) {
  const char *m = v->matched == 1 ? marks[c == marks[1][1]] : v->end;
  if (m[v->matched] != c) return TOOLVALUE_BAD;
  v->end = m;
  if (m[++v->matched]) return TOOLVALUE_MORE;
  begin_string(v, v->key, out);
  v->matched = 0;
  v->at = AT_MARKED;
  return TOOLVALUE_MORE;
}

static toolvalue_ret on_marked(toolvalue *v, char c, buf *out) {
  if (c != v->end[v->matched]) {
    for (int i = 0; i < v->matched; i++) put_char(v->end[i], out);
    v->matched = 0; /* a mark begins with '<' and has no other */
    if (c != '<') {
      put_char(c, out);
      return TOOLVALUE_MORE;
    }
  }
  if (v->end[++v->matched]) return TOOLVALUE_MORE;
  end_string(v, out);
  return TOOLVALUE_MORE;
}

static toolvalue_ret on_quoted(toolvalue *v, char c, buf *out) {
  if (v->escaped) {
    v->escaped = false;
    if (c != '\'') buf_putc(out, '\\'); /* Python's other escapes are JSON's, but for a few that nobody writes */
    buf_putc(out, c);
  } else if (c == '\\') v->escaped = true;
  else if (c == v->quote) end_string(v, out);
  else put_char(c, out);
  return TOOLVALUE_MORE;
}

static bool is_number(str s) {
  size_t i = s.n && s.p[0] == '-', digits = i;
  while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') i++;
  if (i == digits || (s.p[digits] == '0' && i - digits > 1)) return false;
  if (i < s.n && s.p[i] == '.') {
    digits = ++i;
    while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') i++;
    if (i == digits) return false;
  }
  if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
    i++;
    if (i < s.n && (s.p[i] == '-' || s.p[i] == '+')) i++;
    digits = i;
    while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') i++;
    if (i == digits) return false;
  }
  return i == s.n;
}

static void put_word(const toolvalue *v, buf *out) {
  static const char *const names[][2] = {
      {"true", "true"}, {"false", "false"}, {"null", "null"}, {"True", "true"}, {"False", "false"}, {"None", "null"}};
  str w = str_trim((str){v->word, (size_t)v->n_word});
  for (size_t i = 0; !v->key && i < sizeof names / sizeof *names; i++)
    if (str_is(w, names[i][0])) {
      buf_puts(out, names[i][1]);
      return;
    }
  if (!v->key && is_number(w)) {
    buf_str(out, w);
    return;
  }
  buf_putc(out, '"');
  for (size_t i = 0; i < w.n; i++) put_char(w.p[i], out);
  buf_puts(out, v->key ? "\": " : "\"");
}

/* A word without quotes ends where its place in the arguments ends: a key at its colon, a value at a comma or bracket. */
static toolvalue_ret on_word(toolvalue *v, char c, buf *out) {
  bool ends = v->key ? c == ':' || c == '=' : c == ',' || c == v->close[v->depth - 1];
  if (v->key && (c == ',' || c == v->close[v->depth - 1])) return TOOLVALUE_BAD; /* a value without a key */
  if (!ends) {
    if (v->n_word == TOOLVALUE_WORD) return TOOLVALUE_BAD;
    v->word[v->n_word++] = c;
    return TOOLVALUE_MORE;
  }
  put_word(v, out);
  v->at = v->key ? AT_VALUE : AT_NEXT;
  return v->key ? TOOLVALUE_MORE : toolvalue_push(v, c, out);
}

toolvalue_ret toolvalue_push(toolvalue *v, char c, buf *out) {
  switch (v->at) {
  case AT_OPEN: return c == '{' || c == '(' ? open(v, c, out) : TOOLVALUE_BAD;
  case AT_QUOTED: return on_quoted(v, c, out);
  case AT_MARK: return on_mark(v, c, out);
  case AT_MARKED: return on_marked(v, c, out);
  case AT_WORD: return on_word(v, c, out);
  default: break;
  }
  if (space(c)) return TOOLVALUE_MORE;
  bool closes = c == v->close[v->depth - 1];
  switch (v->at) {
  case AT_KEY: return closes ? close(v, out) : begin(v, c, true, out);
  case AT_COLON:
    if (c != ':' && c != '=') return TOOLVALUE_BAD;
    v->at = AT_VALUE;
    return TOOLVALUE_MORE;
  case AT_VALUE: return closes && !holds_keys(v) ? close(v, out) : begin(v, c, false, out);
  default: break;
  }
  if (closes) return close(v, out);
  if (c != ',') return TOOLVALUE_BAD;
  buf_puts(out, ", ");
  v->at = holds_keys(v) ? AT_KEY : AT_VALUE;
  return TOOLVALUE_MORE;
}
