/* The filters over text and numbers, and the look-up of all of them by name. Text filters keep each byte's trust: they copy, slice or recase what
 * they were given. */
#include "model/jinja.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool to_s(jj_rt *rt, jj_val v, jj_str **ret) { return jj_to_str(rt, v, ret); }

static bool want_int(jj_rt *rt, jj_call *c, int i, int64_t dflt, int64_t *ret) {
  *ret = dflt;
  if (c->a[i].tag == J_MISSING) return true;
  if (!jj_is_intlike(c->a[i])) return jj_fail(rt, "filter '%s' needs an integer, not a %s", c->fn->name, jj_type_name(c->a[i]));
  *ret = jj_as_int(c->a[i]);
  return true;
}

/* ---- text ---- */

static bool recase(jj_rt *rt, jj_call *c, jj_case how, jj_val *ret) {
  jj_str *s;
  return to_s(rt, c->self, &s) && jj_recase(rt, s, how, ret);
}
static bool f_upper(jj_rt *rt, jj_call *c, jj_val *ret) { return recase(rt, c, CASE_UPPER, ret); }
static bool f_lower(jj_rt *rt, jj_call *c, jj_val *ret) { return recase(rt, c, CASE_LOWER, ret); }
static bool f_title(jj_rt *rt, jj_call *c, jj_val *ret) { return recase(rt, c, CASE_WORDS, ret); }
static bool f_capitalize(jj_rt *rt, jj_call *c, jj_val *ret) { return recase(rt, c, CASE_CAPITALIZE, ret); }

static bool f_trim(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *s, *chars = NULL;
  if (!to_s(rt, c->self, &s)) return false;
  if (!jj_is_none(c->a[0])) {
    if (c->a[0].tag != J_STR) return jj_fail(rt, "trim: characters must be a string, not a %s", jj_type_name(c->a[0]));
    chars = c->a[0].s;
  }
  return jj_strip(rt, s, chars, true, true, ret);
}

static bool f_string(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *s;
  if (!to_s(rt, c->self, &s)) return false;
  *ret = (jj_val){.tag = J_STR, .s = s};
  return true;
}

static bool mark(jj_rt *rt, jj_val v, jj_val *ret) {
  jj_str *s;
  if (!to_s(rt, v, &s) || !jj_str_sub(rt, s, 0, s->n, ret)) return false;
  ret->s->html = true;
  return true;
}
static bool f_safe(jj_rt *rt, jj_call *c, jj_val *ret) { return mark(rt, c->self, ret); }

static bool escape(jj_rt *rt, jj_val v, bool force, jj_val *ret) {
  jj_str *s;
  jj_out o = {0};
  if (!to_s(rt, v, &s)) return false;
  if (s->html && !force) {
    *ret = v;
    return true;
  }
  bool ok = true;
  size_t run = 0;
  for (size_t i = 0; ok && i < s->n; i++) {
    char ch = s->p[i];
    const char *e = ch == '&' ? "&amp;" : ch == '<' ? "&lt;" : ch == '>' ? "&gt;" : ch == '"' ? "&#34;" : ch == '\'' ? "&#39;" : NULL;
    if (!e) continue;
    ok = jj_put_part(rt, &o, s, run, i - run) && jj_puts(rt, &o, e);
    run = i + 1;
  }
  ok = ok && jj_put_part(rt, &o, s, run, s->n - run) && jj_take(rt, &o, ret);
  if (ok) ret->s->html = true;
  jj_out_fini(&o);
  return ok;
}
static bool f_escape(jj_rt *rt, jj_call *c, jj_val *ret) { return escape(rt, c->self, false, ret); }
static bool f_forceescape(jj_rt *rt, jj_call *c, jj_val *ret) { return escape(rt, c->self, true, ret); }

static bool f_replace(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_val args[3];
  jj_str *s, *old, *new;
  if (!to_s(rt, c->self, &s) || !to_s(rt, c->a[0], &old) || !to_s(rt, c->a[1], &new)) return false;
  args[0] = (jj_val){.tag = J_STR, .s = old};
  args[1] = (jj_val){.tag = J_STR, .s = new};
  args[2] = jj_is_none(c->a[2]) ? jj_int(-1) : c->a[2];
  jj_val plain = {.tag = J_STR, .s = s};
  if (s->html) { /* the filter takes str() of what it is given */
    if (!jj_str_sub(rt, s, 0, s->n, &plain)) return false;
    plain.s->html = false;
  }
  return jj_func_call(rt, jj_method_find(plain, STR("replace")), "filter", plain, &(jj_argv){.v = args, .n = 3}, ret);
}

static bool pad(jj_rt *rt, jj_out *o, int64_t n) {
  if (n > (int64_t)JJ_MAX_OUTPUT) return jj_fail(rt, "makes a text of more than %zu MiB", JJ_MAX_OUTPUT >> 20);
  for (; n > 0; n -= 32)
    if (!jj_put(rt, o, "                                ", n < 32 ? (size_t)n : 32, JT_NO)) return false;
  return true;
}

static bool f_indent(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (c->self.tag != J_STR)
    return c->self.tag == J_UNDEF ? jj_undef_fail(rt, c->self) : jj_fail(rt, "indent needs a string, not a %s", jj_type_name(c->self));
  const jj_str *s = c->self.s, *by = c->a[0].tag == J_STR ? c->a[0].s : NULL;
  int64_t width = 0;
  if (!by && !want_int(rt, c, 0, 4, &width)) return false;
  bool first = jj_truth(c->a[1]), blank = jj_truth(c->a[2]), ok = true;
  jj_out o = {0};
  size_t i = 0;
  /* The reference appends a newline and splits into lines, so a final line end stays, as an empty last line. */
  for (bool at_first = true; ok; at_first = false) {
    size_t end = i;
    int l = 1;
    while (end < s->n && !jj_is_line_end(jj_cp(s->p + end, s->p + s->n, &l))) end += (size_t)l;
    bool indent = at_first ? first : blank || end > i;
    ok = (at_first || jj_puts(rt, &o, "\n")) && (!indent || (by ? jj_put_part(rt, &o, by, 0, by->n) : pad(rt, &o, width))) &&
         jj_put_part(rt, &o, s, i, end - i);
    if (end >= s->n || (s->p[end] == '\r' && end + 1 == s->n)) break;
    i = end + (size_t)l + (s->p[end] == '\r' && end + 1 < s->n && s->p[end + 1] == '\n');
  }
  ok = ok && jj_take(rt, &o, ret);
  if (ok) ret->s->html = s->html;
  jj_out_fini(&o);
  return ok;
}

static bool f_center(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *s;
  int64_t width;
  if (!to_s(rt, c->self, &s) || !want_int(rt, c, 0, 80, &width)) return false;
  int64_t room = width - (int64_t)jj_str_len(s);
  if (room < 0) room = 0;
  int64_t left = room / 2 + (room & width & 1);
  jj_out o = {0};
  bool ok = pad(rt, &o, left) && jj_put_part(rt, &o, s, 0, s->n) && pad(rt, &o, room - left) && jj_take(rt, &o, ret);
  jj_out_fini(&o);
  return ok;
}

static bool f_truncate(jj_rt *rt, jj_call *c, jj_val *ret) {
  static jj_str dots = {.p = "...", .n = 3, .len = 3, .trust = JT_NO};
  int64_t length, leeway;
  size_t len;
  if (!jj_len(rt, c->self, &len)) return false;
  if (!want_int(rt, c, 0, 255, &length) || (!jj_is_none(c->a[3]) && !want_int(rt, c, 3, 5, &leeway))) return false;
  if (jj_is_none(c->a[3])) leeway = 5;
  if (c->a[2].tag != J_MISSING && c->a[2].tag != J_STR) return jj_fail(rt, "truncate: the end must be a string, not a %s", jj_type_name(c->a[2]));
  jj_str *s = c->self.tag == J_STR ? c->self.s : NULL, *end = c->a[2].tag == J_STR ? c->a[2].s : &dots;
  int64_t keep = length - (int64_t)jj_str_len(end);
  if (keep < 0 || leeway < 0) return jj_fail(rt, "truncate: the length must be at least that of the end text, and the leeway not negative");
  if (leeway > INT64_MAX - length || (int64_t)len <= length + leeway) {
    *ret = c->self;
    return true;
  }
  if (c->self.tag != J_STR) return jj_fail(rt, "truncate needs a string, not a %s", jj_type_name(c->self));
  size_t n = jj_str_at(s, (size_t)keep);
  if (!jj_truth(c->a[1])) { /* drop the word that was cut */
    size_t cut = n;
    while (cut > 0 && s->p[cut - 1] != ' ') cut--;
    if (cut) n = cut - 1;
  }
  jj_val head;
  return jj_str_sub(rt, s, 0, n, &head) && jj_concat(rt, head.s, end, ret);
}

static bool f_wordcount(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *s;
  if (!to_s(rt, c->self, &s) || !jj_spend(rt, s->n / 8)) return false;
  int64_t n = 0;
  bool in = false;
  for (size_t i = 0; i < s->n;) {
    int l;
    bool w = jj_is_word(jj_cp(s->p + i, s->p + s->n, &l));
    n += w && !in;
    in = w;
    i += (size_t)l;
  }
  *ret = jj_int(n);
  return true;
}

static bool f_format(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *s;
  jj_val args, k;
  const jj_argv *a = c->raw;
  if (a->n && a->n_kw) return jj_fail(rt, "format takes either positional or keyword arguments, not both");
  if (!to_s(rt, c->self, &s)) return false;
  if (a->n_kw) {
    if (!jj_dict_new(rt, J_DICT, &args)) return false;
    for (size_t i = 0; i < a->n_kw; i++)
      if (!jj_str_new(rt, a->kw[i].name, JT_YES, &k) || !jj_dict_set(rt, args.d, k, a->kw[i].val)) return false;
  } else {
    if (!jj_seq_new(rt, J_TUPLE, a->n, &args)) return false;
    for (size_t i = 0; i < a->n; i++)
      if (!jj_seq_add(rt, args.q, a->v[i])) return false;
  }
  return jj_percent(rt, s, args, ret);
}

/* ---- numbers ---- */

/* Python's int(text, base): sign, prefix of the base, single underscores between digits. 1 a number, 0 not one, -1 too large. */
static int parse_int(str t, int64_t base, int64_t *ret) {
  char buf[80];
  size_t n = 0;
  bool neg = false;
  if (t.n && (*t.p == '+' || *t.p == '-')) {
    neg = *t.p == '-';
    t.p++;
    t.n--;
  }
  if (t.n > 1 && *t.p == '0') {
    int b = (t.p[1] | 32) == 'x' ? 16 : (t.p[1] | 32) == 'o' ? 8 : (t.p[1] | 32) == 'b' ? 2 : 0;
    if (b && (base == b || base == 0)) {
      base = b;
      t.p += 2;
      t.n -= 2;
      if (t.n && *t.p == '_') {
        t.p++;
        t.n--;
      }
    } else if (base == 0) {
      for (size_t i = 0; i < t.n; i++)
        if (t.p[i] != '0' && t.p[i] != '_') return 0;
    }
  }
  if (base == 0) base = 10;
  if (!t.n || *t.p == '_' || t.p[t.n - 1] == '_') return 0;
  bool big = false;
  for (size_t i = 0; i < t.n; i++) {
    char ch = t.p[i];
    if (ch == '_') {
      if (t.p[i + 1] == '_') return 0;
      continue;
    }
    int d = ch >= '0' && ch <= '9' ? ch - '0' : (ch | 32) >= 'a' && (ch | 32) <= 'z' ? (ch | 32) - 'a' + 10 : 99;
    if (d >= base) return 0;
    if (n == 0 && ch == '0') continue;
    if (n + 1 < sizeof buf) buf[n++] = ch;
    else big = true;
  }
  buf[n] = 0;
  unsigned long long v = n ? strtoull(buf, NULL, (int)base) : 0;
  if (big || v > (unsigned long long)INT64_MAX + neg) return -1;
  *ret = neg ? (int64_t)(0 - v) : (int64_t)v;
  return 1;
}

/* Python's float(text): decimal, inf, infinity, nan; underscores between digits. */
static bool parse_float(str t, double *ret) {
  char buf[512];
  size_t n = 0;
  if (!t.n || t.n >= sizeof buf) return false;
  for (size_t i = 0; i < t.n; i++) {
    if (t.p[i] == '_') {
      bool between = i && i + 1 < t.n && t.p[i - 1] >= '0' && t.p[i - 1] <= '9' && t.p[i + 1] >= '0' && t.p[i + 1] <= '9';
      if (!between) return false;
      continue;
    }
    if (t.p[i] == 'x' || t.p[i] == 'X' || t.p[i] == '(' || jj_is_space((unsigned char)t.p[i]) || !t.p[i]) return false;
    buf[n++] = t.p[i];
  }
  buf[n] = 0;
  char *end;
  *ret = strtod(buf, &end);
  return *end == 0;
}

static bool stripped(jj_rt *rt, jj_str *s, str *ret) {
  jj_val v;
  if (!jj_strip(rt, s, NULL, true, true, &v)) return false;
  *ret = jj_view(v.s);
  return true;
}

static bool int_of_float(jj_rt *rt, double f, jj_val dflt, jj_val *ret) {
  if (!isfinite(f)) {
    *ret = dflt;
    return true;
  }
  if (!(f >= -0x1p63 && f < 0x1p63)) return jj_fail(rt, "int: %g does not fit 64 bits", f);
  *ret = jj_int((int64_t)f);
  return true;
}

static bool f_int(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_val dflt = c->a[0].tag == J_MISSING ? jj_int(0) : c->a[0];
  int64_t base, i = 0;
  str t;
  double f;
  if (!want_int(rt, c, 1, 10, &base)) return false;
  switch (c->self.tag) {
  case J_UNDEF: return jj_undef_fail(rt, c->self);
  case J_BOOL:
  case J_INT: *ret = jj_int(jj_as_int(c->self)); return true;
  case J_FLOAT: return int_of_float(rt, c->self.f, dflt, ret);
  case J_STR:
    if (!stripped(rt, c->self.s, &t)) return false;
    int r = base == 0 || (base >= 2 && base <= 36) ? parse_int(t, base, &i) : 0;
    if (r < 0) return jj_fail(rt, "int: '%.40s...' does not fit 64 bits", t.p);
    if (r) *ret = jj_int(i);
    else if (parse_float(t, &f)) return int_of_float(rt, f, dflt, ret);
    else *ret = dflt;
    return true;
  default: *ret = dflt; return true;
  }
}

static bool f_float(jj_rt *rt, jj_call *c, jj_val *ret) {
  str t;
  double f;
  *ret = c->a[0].tag == J_MISSING ? jj_float(0) : c->a[0];
  if (c->self.tag == J_UNDEF) return jj_undef_fail(rt, c->self);
  if (c->self.tag == J_FLOAT) *ret = c->self;
  else if (jj_is_intlike(c->self)) *ret = jj_float((double)jj_as_int(c->self));
  else if (c->self.tag == J_STR) {
    if (!stripped(rt, c->self.s, &t)) return false;
    if (parse_float(t, &f)) *ret = jj_float(f);
  }
  return true;
}

static bool f_abs(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (c->self.tag == J_FLOAT) {
    *ret = jj_float(fabs(c->self.f));
    return true;
  }
  if (!jj_is_intlike(c->self)) return jj_fail(rt, "abs is not supported on a %s", jj_type_name(c->self));
  int64_t i = jj_as_int(c->self);
  return i < 0 ? jj_unary(rt, OP_NEG, c->self, ret) : (*ret = jj_int(i), true);
}

/* To `digits` decimals, halves to even on the exact decimal value: printf rounds so. */
static double round_float(double f, int64_t digits) {
  char buf[700];
  if (!isfinite(f) || digits > 320) return f;
  if (digits < -310) return copysign(0.0, f);
  if (digits >= 0) {
    snprintf(buf, sizeof buf, "%.*f", (int)digits, f);
    return strtod(buf, NULL);
  }
  double p = pow(10, (double)-digits);
  return nearbyint(f / p) * p;
}

static bool round_int(jj_rt *rt, int64_t v, int64_t digits, jj_val *ret) {
  int64_t p = 1;
  *ret = jj_int(digits < -18 ? 0 : v);
  if (digits >= 0 || digits < -18) return true;
  for (; digits < 0; digits++) p *= 10;
  int64_t rest = v % p, low = v - rest; /* towards zero */
  int64_t twice = (rest < 0 ? -rest : rest), half = p / 2, r = low;
  if (twice > half || (twice == half && (low / p) % 2)) {
    if (__builtin_add_overflow(low, v < 0 ? -p : p, &r)) return jj_fail(rt, "an integer result does not fit 64 bits");
  }
  *ret = jj_int(r);
  return true;
}

static bool f_round(jj_rt *rt, jj_call *c, jj_val *ret) {
  int64_t digits;
  str how = STR("common");
  if (c->a[1].tag == J_STR) how = jj_view(c->a[1].s);
  if ((c->a[1].tag != J_MISSING && c->a[1].tag != J_STR) || (!str_is(how, "common") && !str_is(how, "ceil") && !str_is(how, "floor")))
    return jj_fail(rt, "round: the method must be 'common', 'ceil' or 'floor'");
  jj_val v = c->self;
  if (!jj_is_intlike(v) && v.tag != J_FLOAT) return jj_fail(rt, "round is not supported on a %s", jj_type_name(v));
  if (str_is(how, "common") && c->a[0].tag == J_NONE) { /* round(x, None) gives an integer */
    if (v.tag != J_FLOAT) {
      *ret = jj_int(jj_as_int(v));
      return true;
    }
    if (!isfinite(v.f)) return jj_fail(rt, "round: %g has no integer value", v.f);
    return int_of_float(rt, nearbyint(v.f), jj_int(0), ret);
  }
  if (!want_int(rt, c, 0, 0, &digits)) return false;
  if (str_is(how, "common")) {
    if (v.tag != J_FLOAT) return round_int(rt, jj_as_int(v), digits, ret);
    *ret = jj_float(round_float(v.f, digits));
    return true;
  }
  jj_val p, scaled, whole;
  if (!jj_binary(rt, OP_POW, jj_int(10), jj_int(digits), &p) || !jj_binary(rt, OP_MUL, v, p, &scaled)) return false;
  if (scaled.tag == J_FLOAT) {
    if (!isfinite(scaled.f)) return jj_fail(rt, "round: %g cannot be rounded to an integer", scaled.f);
    if (!int_of_float(rt, str_is(how, "ceil") ? ceil(scaled.f) : floor(scaled.f), jj_int(0), &whole)) return false;
  } else whole = scaled;
  return jj_binary(rt, OP_DIV, whole, p, ret);
}

/* ---- the table ---- */

static const jj_func filters[] = {
    {"abs", f_abs, "", 0},
    {"capitalize", f_capitalize, "", 0},
    {"center", f_center, "width", 0},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"float", f_float, "default", 0},
    {"forceescape", f_forceescape, "", 0},
    {"format", f_format, NULL, 0},
    {"indent", f_indent, "width,first,blank", 0},
    {"int", f_int, "default,base", 0},
    {"lower", f_lower, "", 0},
    {"replace", f_replace, "old,new,count", 2},
    {"round", f_round, "precision,method", 0},
    {"safe", f_safe, "", 0},
    {"string", f_string, "", 0},
    {"title", f_title, "", 0},
    {"tojson", jj_to_json, "ensure_ascii,indent,separators,sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"truncate", f_truncate, "length,killwords,end,leeway", 0},
    {"upper", f_upper, "", 0},
    {"wordcount", f_wordcount, "", 0},
    {0},
};
/* Filters of the reference for web pages, debugging and chance. */
static const char *const refused[] = {"filesizeformat", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"};

static const jj_func *find(const jj_func *rows, str name) {
  for (; rows->name; rows++)
    if (str_is(name, rows->name)) return rows;
  return NULL;
}

const jj_func *jj_filter_find(str name) {
  const jj_func *f = find(filters, name);
  return f ? f : find(jj_seq_filters, name);
}

bool jj_filter_known(str name) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (str_is(name, refused[i])) return true;
  return false;
}

bool jj_filter_apply(jj_rt *rt, jj_val name, jj_val v, const jj_argv *args, jj_val *ret) {
  if (name.tag != J_STR) return jj_fail(rt, "the name of a filter must be a string, not a %s", jj_type_name(name));
  const jj_func *f = jj_filter_find(jj_view(name.s));
  int n = (int)(name.s->n < 60 ? name.s->n : 60);
  if (f) return jj_func_call(rt, f, "filter", v, args, ret);
  if (jj_filter_known(jj_view(name.s))) return jj_refuse(rt, "filter '%.*s' is not supported", n, name.s->p);
  return jj_fail(rt, "no filter named '%.*s'", n, name.s->p);
}
