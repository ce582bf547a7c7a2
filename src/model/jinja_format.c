/* "..." % args and "...".format(...): Python's two formatting languages over the value types that templates have.
 * The format's own bytes keep its trust, inserted strings keep theirs, digits and padding are untrusted. */
#include "model/jinja.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A field as either language writes it. */
typedef struct spec {
  uint32_t fill;
  char align, sign, type; /* 0: not given; sign: '+', ' ' */
  bool alt, zero, comma, under;
  int64_t width, prec; /* prec -1: not given */
} spec;

enum { MAX_WIDTH = 1 << 20, MAX_PREC = 400 };

static bool fills(jj_rt *rt, jj_out *o, uint32_t fill, int64_t n) {
  for (; n > 0; n--)
    if (!jj_put_cp(rt, o, fill, JT_NO)) return false;
  return true;
}

/* Pads `body` (with its sign and prefix in front: `head` bytes) to the width. */
static bool put_padded(jj_rt *rt, jj_out *o, const spec *sp, jj_str *body, size_t head, char dflt_align) {
  char align = sp->align ? sp->align : dflt_align;
  int64_t room = sp->width - (int64_t)jj_str_len(body);
  if (room < 0) room = 0;
  int64_t left = align == '>' || align == '=' ? room : align == '^' ? room / 2 : 0;
  uint32_t fill = sp->fill ? sp->fill : ' ';
  if (align != '=') head = 0;
  return jj_put_part(rt, o, body, 0, head) && fills(rt, o, fill, left) && jj_put_part(rt, o, body, head, body->n - head) &&
         fills(rt, o, fill, room - left);
}

/* Thousands separators into the integer digits of d. */
static void group(char *d, size_t cap, char sep, int every) {
  size_t n = strlen(d), whole = 0;
  while ((d[whole] >= '0' && d[whole] <= '9') || (every == 4 && ((d[whole] | 32) >= 'a' && (d[whole] | 32) <= 'f'))) whole++;
  size_t add = whole ? (whole - 1) / (size_t)every : 0;
  if (!add || n + add + 1 > cap) return;
  memmove(d + whole + add, d + whole, n - whole + 1);
  for (size_t i = whole, j = whole + add, k = 0; i-- > 0;) {
    d[--j] = d[i];
    if (++k % (size_t)every == 0 && i) d[--j] = sep;
  }
}

static bool put_number(jj_rt *rt, jj_out *o, const spec *sp, bool neg, const char *prefix, char *digits, size_t cap) {
  if (sp->comma || sp->under)
    group(digits, cap, sp->comma ? ',' : '_', *prefix || sp->type == 'x' || sp->type == 'X' || sp->type == 'b' || sp->type == 'o' ? 4 : 3);
  char text[MAX_PREC + 900];
  const char *sign = neg ? "-" : sp->sign == '+' ? "+" : sp->sign == ' ' ? " " : "";
  int n = snprintf(text, sizeof text, "%s%s%s", sign, prefix, digits);
  jj_str body = {.p = text, .n = (size_t)n, .len = (size_t)n, .trust = JT_NO};
  spec s = *sp;
  if (s.zero && !s.align) {
    s.align = '=';
    if (!s.fill) s.fill = '0';
  }
  return put_padded(rt, o, &s, &body, strlen(sign) + strlen(prefix), '>');
}

static bool put_int(jj_rt *rt, jj_out *o, const spec *sp, int64_t v) {
  char d[160];
  uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  const char *prefix = "";
  if (sp->type == 'x' || sp->type == 'X') {
    snprintf(d, 70, sp->type == 'x' ? "%llx" : "%llX", (unsigned long long)u);
    prefix = sp->type == 'x' ? "0x" : "0X";
  } else if (sp->type == 'o') {
    snprintf(d, 70, "%llo", (unsigned long long)u);
    prefix = "0o";
  } else if (sp->type == 'b') {
    size_t n = 0, k = u ? 64 - (size_t)__builtin_clzll(u) : 1;
    while (k-- > 0) d[n++] = (char)('0' + (u >> k & 1));
    d[n] = 0;
    prefix = "0b";
  } else snprintf(d, 70, "%llu", (unsigned long long)u);
  return put_number(rt, o, sp, v < 0, sp->alt ? prefix : "", d, sizeof d);
}

/* 'g' without a type behaves like repr in format(), and trims zeros. */
static bool put_float(jj_rt *rt, jj_out *o, const spec *sp, double f) {
  char d[MAX_PREC + 800], fmt[16];
  char type = sp->type;
  double a = fabs(f);
  bool neg = signbit(f) && !isnan(f), percent = type == '%';
  if (percent) {
    a *= 100;
    type = 'f';
  }
  if (!isfinite(a))
    snprintf(d, sizeof d, "%s",
        isnan(a)                                    ? type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan"
        : type == 'F' || type == 'E' || type == 'G' ? "INF"
                                                    : "inf");
  else if (!type && sp->prec < 0) jj_float_repr(a, d);
  else {
    snprintf(fmt, sizeof fmt, "%%%s.*%c", sp->alt ? "#" : "", type ? type : 'g');
    snprintf(d, sizeof d, fmt, (int)(sp->prec < 0 ? 6 : sp->prec), a);
    if (!type && !strpbrk(d, ".en") && strlen(d) + 3 < sizeof d) strcat(d, ".0");
  }
  if (percent) strcat(d, "%");
  return put_number(rt, o, sp, neg, "", d, sizeof d);
}

static bool put_text(jj_rt *rt, jj_out *o, const spec *sp, jj_str *s, char dflt_align) {
  jj_val cut = {.tag = J_STR, .s = s};
  if (sp->prec >= 0 && (size_t)sp->prec < jj_str_len(s) && !jj_str_sub(rt, s, 0, jj_str_at(s, (size_t)sp->prec), &cut)) return false;
  return put_padded(rt, o, sp, cut.s, 0, dflt_align);
}

static bool repr(jj_rt *rt, jj_val v, jj_str **ret) {
  jj_out o = {0};
  jj_val s;
  bool ok = jj_put_repr(rt, &o, v) && jj_take(rt, &o, &s);
  jj_out_fini(&o);
  if (ok) *ret = s.s;
  return ok;
}

/* ---- % ---- */

typedef struct percent {
  jj_rt *rt;
  jj_out *o;
  jj_val args;
  size_t at;
  bool keyed;
  const char *p, *end;
} percent;

static bool next_arg(percent *x, jj_val *ret) {
  jj_val a = x->args;
  if (a.tag == J_TUPLE ? x->at >= a.q->n : x->at >= 1) return jj_fail(x->rt, "not enough arguments for the format string");
  *ret = a.tag == J_TUPLE ? a.q->v[x->at] : a;
  x->at++;
  return true;
}

static bool number(percent *x, int64_t max, int64_t *ret, bool *ret_star) {
  jj_val v;
  *ret_star = x->p < x->end && *x->p == '*';
  if (*ret_star) {
    x->p++;
    if (!next_arg(x, &v)) return false;
    if (!jj_is_intlike(v)) return jj_fail(x->rt, "'*' in a format needs an integer, not a %s", jj_type_name(v));
    *ret = jj_as_int(v);
  } else
    for (*ret = 0; x->p < x->end && *x->p >= '0' && *x->p <= '9' && *ret <= max; x->p++) *ret = *ret * 10 + (*x->p - '0');
  if (*ret > max || *ret < -max) return jj_fail(x->rt, "a width or precision in a format is more than %lld", (long long)max);
  return true;
}

static bool conversion(percent *x, spec *sp, jj_val v) {
  jj_rt *rt = x->rt;
  jj_str *s;
  char t = sp->type;
  char dflt = sp->align == '<' ? '<' : '>';
  sp->align = 0;
  if (t == 's' || t == 'r' || t == 'a') {
    if (t == 'a') return jj_refuse(rt, "conversion %%a in a format is not supported");
    if (!(t == 's' ? jj_to_str(rt, v, &s) : repr(rt, v, &s))) return false;
    sp->align = dflt;
    sp->zero = false;
    return put_text(rt, x->o, sp, s, dflt);
  }
  if (t == 'c') {
    if (v.tag == J_STR && jj_str_len(v.s) == 1) return sp->align = dflt, put_text(rt, x->o, sp, v.s, dflt);
    if (!jj_is_intlike(v) || jj_as_int(v) < 0 || jj_as_int(v) > 0x10FFFF) return jj_fail(rt, "%%c needs a character or its number");
    jj_val ch;
    char b[4];
    int n = utf8_encode((uint32_t)jj_as_int(v), b);
    if (!jj_str_new(rt, (str){b, (size_t)n}, JT_NO, &ch)) return false;
    return sp->align = dflt, put_text(rt, x->o, sp, ch.s, dflt);
  }
  if (!jj_is_intlike(v) && v.tag != J_FLOAT)
    return v.tag == J_UNDEF ? jj_undef_fail(rt, v) : jj_fail(rt, "%%%c needs a number, not a %s", t, jj_type_name(v));
  if (dflt == '<') {
    sp->align = '<';
    sp->zero = false;
  }
  if (strchr("diu", t)) {
    if (v.tag == J_FLOAT && (!isfinite(v.f) || fabs(v.f) >= 0x1p63)) return jj_fail(rt, "%g does not fit an integer format", v.f);
    sp->type = 'd';
    int64_t i = v.tag == J_FLOAT ? (int64_t)v.f : jj_as_int(v);
    if (sp->prec > 0) { /* a precision is a least number of digits */
      char d[MAX_PREC + 8];
      snprintf(d, sizeof d, "%0*llu", (int)sp->prec, (unsigned long long)(i < 0 ? 0 - (uint64_t)i : (uint64_t)i));
      return put_number(rt, x->o, sp, i < 0, "", d, sizeof d);
    }
    return put_int(rt, x->o, sp, i);
  }
  if (strchr("xXo", t)) {
    if (v.tag == J_FLOAT) return jj_fail(rt, "%%%c needs an integer, not a float", t);
    return put_int(rt, x->o, sp, jj_as_int(v));
  }
  return put_float(rt, x->o, sp, v.tag == J_FLOAT ? v.f : (double)jj_as_int(v));
}

static bool percent_field(percent *x) {
  spec sp = {.prec = -1};
  jj_val v;
  bool star, have = false;
  if (x->p < x->end && *x->p == '(') {
    const char *q = ++x->p;
    int open = 1;
    for (; q < x->end; q++) {
      open += (*q == '(') - (*q == ')');
      if (!open) break;
    }
    if (q == x->end) return jj_fail(x->rt, "a format key is never closed");
    if (x->args.tag == J_UNDEF) return jj_undef_fail(x->rt, x->args);
    if (x->args.tag != J_DICT) return jj_fail(x->rt, "a format with keys needs a mapping");
    str k = {x->p, (size_t)(q - x->p)};
    if (!jj_dict_gets(x->rt, x->args.d, k, &v)) return jj_fail(x->rt, "the format's key '%.*s' is not in the mapping", (int)k.n, k.p);
    x->p = q + 1;
    x->keyed = have = true;
  }
  for (; x->p < x->end && strchr("-+ #0", *x->p); x->p++) {
    if (*x->p == '-') sp.align = '<';
    else if (*x->p == '+') sp.sign = '+';
    else if (*x->p == ' ' && !sp.sign) sp.sign = ' ';
    else if (*x->p == '#') sp.alt = true;
    else if (*x->p == '0') sp.zero = true;
  }
  if (!number(x, MAX_WIDTH, &sp.width, &star)) return false;
  if (sp.width < 0) {
    sp.align = '<';
    sp.width = -sp.width;
  }
  if (x->p < x->end && *x->p == '.') {
    x->p++;
    if (!number(x, MAX_PREC, &sp.prec, &star)) return false;
    if (sp.prec < 0) sp.prec = 0;
  }
  while (x->p < x->end && strchr("hlL", *x->p)) x->p++;
  if (x->p == x->end) return jj_fail(x->rt, "a format ends in the middle of a conversion");
  sp.type = *x->p++;
  if (sp.type == '%') return jj_put(x->rt, x->o, "%", 1, JT_NO);
  if (!sp.type || !strchr("sracdiuxXoeEfFgG", sp.type)) return jj_fail(x->rt, "unknown conversion '%%%c' in a format", sp.type);
  return (have || next_arg(x, &v)) && conversion(x, &sp, v);
}

bool jj_percent(jj_rt *rt, const jj_str *fmt, jj_val args, jj_val *ret) {
  if (fmt->html) return jj_refuse(rt, "formatting a Markup string is not supported");
  jj_out o = {0};
  percent x = {.rt = rt, .o = &o, .args = args, .p = fmt->p, .end = fmt->p + fmt->n};
  bool ok = true;
  while (ok && x.p < x.end) {
    const char *q = memchr(x.p, '%', (size_t)(x.end - x.p));
    if (!q) q = x.end;
    ok = jj_put_part(rt, &o, fmt, (size_t)(x.p - fmt->p), (size_t)(q - x.p));
    x.p = q;
    if (ok && q < x.end) {
      x.p++;
      ok = percent_field(&x);
    }
  }
  /* What can be subscripted passes for a mapping and may go unused; an undefined value does too. */
  bool mapping = args.tag == J_DICT || args.tag == J_LIST || args.tag == J_RANGE || args.tag == J_UNDEF;
  if (ok && !mapping && !x.keyed && (args.tag == J_TUPLE ? x.at < args.q->n : x.at < 1))
    ok = jj_fail(rt, "not all arguments were used by the format string");
  ok = ok && jj_take(rt, &o, ret);
  jj_out_fini(&o);
  return ok;
}

/* ---- format() ---- */

typedef struct braces {
  jj_rt *rt;
  const jj_str *fmt;
  const jj_argv *args;
  int64_t next;
  bool numbered;
} braces;

static bool digits_only(str s) {
  for (size_t i = 0; i < s.n; i++)
    if (s.p[i] < '0' || s.p[i] > '9') return false;
  return s.n > 0;
}

/* "name.attr[key]" or "0.attr" or "". */
static bool field_value(braces *b, str f, jj_val *ret) {
  jj_rt *rt = b->rt;
  size_t n = 0;
  while (n < f.n && f.p[n] != '.' && f.p[n] != '[') n++;
  str first = {f.p, n};
  int64_t i = 0;
  if (!first.n || digits_only(first)) {
    bool numbered = first.n > 0;
    if (numbered ? b->next > 0 : b->numbered) return jj_fail(rt, "format: numbered and automatic fields cannot be mixed");
    b->numbered |= numbered;
    if (!numbered) i = b->next++;
    else if (!str_i64(first, &i)) i = INT64_MAX;
    if ((uint64_t)i >= b->args->n) return jj_fail(rt, "format: there is no argument %lld", (long long)i);
    *ret = b->args->v[i];
  } else {
    size_t k = 0;
    while (k < b->args->n_kw && !str_eq(b->args->kw[k].name, first)) k++;
    if (k == b->args->n_kw) return jj_fail(rt, "format: there is no argument '%.*s'", (int)first.n, first.p);
    *ret = b->args->kw[k].val;
  }
  for (f.p += n, f.n -= n; f.n;) {
    bool item = *f.p == '[';
    f.p++;
    f.n--;
    for (n = 0; n < f.n && (item ? f.p[n] != ']' : f.p[n] != '.' && f.p[n] != '[');) n++;
    if (!n || (item && n == f.n)) return jj_fail(rt, "format: an empty or open part in a field name");
    str *name = jj_alloc(rt, 1, sizeof *name);
    jj_val key;
    if (!name) return false;
    *name = (str){f.p, n};
    if (!item) {
      if (!jj_attr(rt, *ret, name, ret)) return false;
    } else if (digits_only(*name) && str_i64(*name, &i)) {
      if (!jj_item(rt, *ret, jj_int(i), ret)) return false;
    } else if (!jj_str_new(rt, *name, JT_YES, &key) || !jj_item(rt, *ret, key, ret)) return false;
    f.p += n + item;
    f.n -= n + item;
    if (f.n && *f.p != '.' && *f.p != '[') return jj_fail(rt, "format: unexpected text behind ']'");
  }
  return true;
}

/* [[fill]align][sign][#][0][width][,_][.precision][type] */
static bool parse_spec(jj_rt *rt, str s, spec *ret) {
  spec sp = {.prec = -1};
  const char *p = s.p, *end = s.p + s.n;
  int l = 0;
  uint32_t cp = p < end ? jj_cp(p, end, &l) : 0;
  if (p < end && p + l < end && strchr("<>=^", p[l])) {
    sp.fill = cp;
    sp.align = p[l];
    p += l + 1;
  } else if (p < end && *p && strchr("<>=^", *p)) sp.align = *p++;
  if (p < end && (*p == '+' || *p == '-' || *p == ' ')) sp.sign = *p++;
  if (p < end && *p == '#') {
    sp.alt = true;
    p++;
  }
  if (p < end && *p == '0') {
    sp.zero = true;
    p++;
  }
  for (; p < end && *p >= '0' && *p <= '9' && sp.width <= MAX_WIDTH; p++) sp.width = sp.width * 10 + (*p - '0');
  if (p < end && (*p == ',' || *p == '_')) {
    *(*p == ',' ? &sp.comma : &sp.under) = true;
    p++;
  }
  if (p < end && *p == '.') {
    p++;
    if (p == end || *p < '0' || *p > '9') return jj_fail(rt, "format: a precision has no digits");
    for (sp.prec = 0; p < end && *p >= '0' && *p <= '9' && sp.prec <= MAX_PREC; p++) sp.prec = sp.prec * 10 + (*p - '0');
  }
  if (sp.width > MAX_WIDTH || sp.prec > MAX_PREC)
    return jj_fail(rt, "format: the width is at most %d and the precision at most %d", MAX_WIDTH, MAX_PREC);
  if (p < end) sp.type = *p++;
  if (p < end || (sp.type && !strchr("sdxXobeEfFgG%c", sp.type))) return jj_fail(rt, "format: '%.*s' is not a format", (int)s.n, s.p);
  *ret = sp;
  return true;
}

static bool put_field(braces *b, jj_out *o, jj_val v, char conv, str text) {
  jj_rt *rt = b->rt;
  spec sp;
  jj_str *s;
  if (!parse_spec(rt, text, &sp)) return false;
  if (conv == 'r') {
    if (!repr(rt, v, &s)) return false;
    v = (jj_val){.tag = J_STR, .s = s};
  } else if (conv == 's') {
    if (!jj_to_str(rt, v, &s)) return false;
    v = (jj_val){.tag = J_STR, .s = s};
  }
  bool num = v.tag == J_INT || v.tag == J_FLOAT || (v.tag == J_BOOL && text.n);
  if (!num) {
    if (v.tag != J_STR && text.n) return jj_fail(rt, "format: a %s takes no format", jj_type_name(v));
    if ((sp.type && sp.type != 's') || sp.sign || sp.alt || sp.comma || sp.under || sp.align == '=')
      return jj_fail(rt, "format: '%.*s' is not a format for a string", (int)text.n, text.p);
    if (sp.zero && !sp.fill) sp.fill = '0'; /* of no align: zeros go behind */
    return jj_to_str(rt, v, &s) && put_text(rt, o, &sp, s, '<');
  }
  if (sp.type == 's') return jj_fail(rt, "format: 's' is not a format for a number");
  bool integral = v.tag != J_FLOAT && (!sp.type || strchr("dxXobc", sp.type));
  if (!integral) {
    if (sp.type && strchr("dxXobc", sp.type)) return jj_fail(rt, "format: '%c' is not a format for a float", sp.type);
    return put_float(rt, o, &sp, v.tag == J_FLOAT ? v.f : (double)jj_as_int(v));
  }
  if (sp.prec >= 0) return jj_fail(rt, "format: an integer format takes no precision");
  if (sp.type == 'c') return jj_refuse(rt, "format: 'c' is not supported");
  return put_int(rt, o, &sp, jj_as_int(v));
}

static bool expand(braces *b, jj_out *o, str t, int depth);

/* The inside of {...}. */
static bool replacement(braces *b, jj_out *o, str in, int depth) {
  jj_rt *rt = b->rt;
  size_t n = 0;
  for (bool brackets = false; n < in.n && (brackets || (in.p[n] != '!' && in.p[n] != ':')); n++)
    brackets = in.p[n] == '[' || (brackets && in.p[n] != ']');
  str name = {in.p, n};
  char conv = 0;
  if (n < in.n && in.p[n] == '!') {
    if (n + 1 >= in.n || !strchr("rs", in.p[n + 1]) || (n + 2 < in.n && in.p[n + 2] != ':'))
      return jj_fail(rt, "format: unknown conversion behind '!'");
    conv = in.p[n + 1];
    n += 2;
  }
  str sp = {in.p + n, in.n - n};
  if (sp.n) {
    sp.p++;
    sp.n--;
  }
  jj_val v, text;
  if (!field_value(b, name, &v)) return false;
  if (!memchr(sp.p, '{', sp.n)) return put_field(b, o, v, conv, sp);
  if (depth) return jj_fail(rt, "format: fields are nested too deep");
  jj_out inner = {0};
  bool ok = expand(b, &inner, sp, depth + 1) && jj_take(rt, &inner, &text) && put_field(b, o, v, conv, jj_view(text.s));
  jj_out_fini(&inner);
  return ok;
}

static bool expand(braces *b, jj_out *o, str t, int depth) {
  jj_rt *rt = b->rt;
  for (size_t i = 0; i < t.n;) {
    size_t q = i;
    while (q < t.n && t.p[q] != '{' && t.p[q] != '}') q++;
    bool twice = q + 1 < t.n && t.p[q] == t.p[q + 1];
    size_t keep = q - i + (twice ? 1 : 0);
    bool ours = t.p >= b->fmt->p && t.p + t.n <= b->fmt->p + b->fmt->n;
    if (ours ? !jj_put_part(rt, o, b->fmt, (size_t)(t.p - b->fmt->p) + i, keep) : !jj_put(rt, o, t.p + i, keep, JT_NO)) return false;
    if (q == t.n) return true;
    if (twice) {
      i = q + 2;
      continue;
    }
    if (t.p[q] == '}') return jj_fail(rt, "format: a single '}' stands in the format string");
    size_t end = q + 1;
    for (int open = 1; end < t.n; end++) {
      open += (t.p[end] == '{') - (t.p[end] == '}');
      if (!open) break;
    }
    if (end >= t.n) return jj_fail(rt, "format: a '{' is never closed");
    if (!replacement(b, o, (str){t.p + q + 1, end - q - 1}, depth)) return false;
    i = end + 1;
  }
  return true;
}

bool jj_str_format(jj_rt *rt, const jj_str *fmt, const jj_argv *args, jj_val *ret) {
  if (fmt->html) return jj_refuse(rt, "formatting a Markup string is not supported");
  braces b = {.rt = rt, .fmt = fmt, .args = args};
  jj_out o = {0};
  bool ok = expand(&b, &o, jj_view(fmt), 0) && jj_take(rt, &o, ret);
  jj_out_fini(&o);
  return ok;
}
