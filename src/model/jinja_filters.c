/* The filters, and select/map with their laziness. Text filters keep each byte's trust: they copy, slice or recase what they were given. */
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

/* ---- attribute paths: "a.b.0" ---- */

/* One step a dot; digits are indices. path: a string, an integer or none. */
static bool get_path(jj_rt *rt, jj_val v, jj_val path, jj_val dflt, jj_val *ret) {
  *ret = v;
  if (jj_is_none(path)) return true;
  if (path.tag != J_STR) {
    if (!jj_item(rt, v, path, ret)) return false;
  } else {
    str rest = jj_view(path.s), part;
    bool more = true;
    while (more) {
      more = str_cut(rest, '.', &part, &rest);
      if (!more) part = rest;
      int64_t i;
      bool digits = part.n > 0;
      for (size_t k = 0; k < part.n; k++) digits &= part.p[k] >= '0' && part.p[k] <= '9';
      jj_val key;
      if (digits && str_i64(part, &i)) key = jj_int(i);
      else if (!jj_str_new(rt, part, JT_NO, &key)) return false;
      if (!jj_item(rt, *ret, key, ret)) return false;
      if (ret->tag == J_UNDEF && !jj_is_none(dflt)) *ret = dflt;
    }
    return true;
  }
  if (ret->tag == J_UNDEF && !jj_is_none(dflt)) *ret = dflt;
  return true;
}

static bool fold(jj_rt *rt, jj_val v, bool case_sensitive, jj_val *ret) {
  *ret = v;
  return case_sensitive || v.tag != J_STR || jj_recase(rt, v.s, CASE_LOWER, ret);
}

/* The key by which sort, unique, min and max see an item. */
static bool sort_key(jj_rt *rt, jj_val item, jj_val path, bool case_sensitive, jj_val *ret) {
  jj_val v;
  return get_path(rt, item, path, (jj_val){0}, &v) && fold(rt, v, case_sensitive, ret);
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
  if (s->html && !force) { *ret = v; return true; }
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

static bool f_join(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *sep = NULL, *s;
  jj_iter *it = jj_iter_of(rt, c->self);
  jj_out o = {0};
  jj_val v;
  int r = -1;
  if (!it || (c->a[0].tag != J_MISSING && !to_s(rt, c->a[0], &sep))) return false;
  for (bool first = true, ok = true; ok && (r = jj_next(rt, it, &v)) > 0; first = false) {
    ok = get_path(rt, v, c->a[1], (jj_val){0}, &v) && to_s(rt, v, &s) && (first || !sep || jj_put_part(rt, &o, sep, 0, sep->n)) &&
         jj_put_part(rt, &o, s, 0, s->n);
    if (!ok) r = -1;
  }
  bool ok = r == 0 && jj_take(rt, &o, ret);
  jj_out_fini(&o);
  return ok;
}

static bool pad(jj_rt *rt, jj_out *o, int64_t n) {
  if (n > (int64_t)JJ_MAX_OUTPUT) return jj_fail(rt, "makes a text of more than %zu MiB", JJ_MAX_OUTPUT >> 20);
  for (; n > 0; n -= 32)
    if (!jj_put(rt, o, "                                ", n < 32 ? (size_t)n : 32, JT_NO)) return false;
  return true;
}

static bool f_indent(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (c->self.tag != J_STR) return c->self.tag == J_UNDEF ? jj_undef_fail(rt, c->self) : jj_fail(rt, "indent needs a string, not a %s", jj_type_name(c->self));
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
  if (leeway > INT64_MAX - length || (int64_t)len <= length + leeway) { *ret = c->self; return true; }
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
  if (t.n && (*t.p == '+' || *t.p == '-')) { neg = *t.p == '-'; t.p++; t.n--; }
  if (t.n > 1 && *t.p == '0') {
    int b = (t.p[1] | 32) == 'x' ? 16 : (t.p[1] | 32) == 'o' ? 8 : (t.p[1] | 32) == 'b' ? 2 : 0;
    if (b && (base == b || base == 0)) {
      base = b;
      t.p += 2;
      t.n -= 2;
      if (t.n && *t.p == '_') { t.p++; t.n--; }
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
    if (ch == '_') { if (t.p[i + 1] == '_') return 0; continue; }
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
  if (!isfinite(f)) { *ret = dflt; return true; }
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
  case J_BOOL: case J_INT: *ret = jj_int(jj_as_int(c->self)); return true;
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
  if (c->self.tag == J_FLOAT) { *ret = jj_float(fabs(c->self.f)); return true; }
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
    if (v.tag != J_FLOAT) { *ret = jj_int(jj_as_int(v)); return true; }
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

/* ---- sequences ---- */

static bool f_length(jj_rt *rt, jj_call *c, jj_val *ret) {
  size_t n;
  if (!jj_len(rt, c->self, &n)) return false;
  *ret = jj_int((int64_t)n);
  return true;
}

static bool f_default(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  *ret = c->self;
  if (c->self.tag != J_UNDEF && !(jj_truth(c->a[1]) && !jj_truth(c->self))) return true;
  if (c->a[0].tag == J_MISSING) return jj_str_new(rt, STR(""), JT_YES, ret);
  *ret = c->a[0];
  return true;
}

static bool f_first(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_iter *it = jj_iter_of(rt, c->self);
  int r = it ? jj_next(rt, it, ret) : -1;
  if (r == 0) *ret = jj_undef("no first item: the sequence was empty");
  return r >= 0;
}

static bool f_last(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (c->self.tag == J_ITER) return jj_fail(rt, "last needs a sequence, not a generator; put |list before it");
  jj_iter *it = jj_iter_rev(rt, c->self);
  int r = it ? jj_next(rt, it, ret) : -1;
  if (r == 0) *ret = jj_undef("no last item: the sequence was empty");
  return r >= 0;
}

static bool f_list(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_to_list(rt, c->self, ret); }

static bool f_reverse(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (c->self.tag == J_STR) return jj_slice(rt, c->self, (jj_val){0}, (jj_val){0}, jj_int(-1), ret);
  jj_val v = c->self;
  if (v.tag == J_ITER) { /* a generator is read, and comes back as a list */
    jj_val list;
    if (!jj_to_list(rt, v, &list)) return false;
    return jj_slice(rt, list, (jj_val){0}, (jj_val){0}, jj_int(-1), ret);
  }
  jj_iter *it = jj_iter_rev(rt, v);
  *ret = (jj_val){.tag = J_ITER, .it = it};
  return it != NULL;
}

static bool f_items(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_val v = c->self;
  if (v.tag != J_UNDEF && v.tag != J_DICT) return jj_fail(rt, "items needs a mapping, not a %s", jj_type_name(v));
  if (v.tag == J_DICT) v = (jj_val){.tag = J_VIEW, .sub = 2, .d = v.d};
  jj_iter *it = jj_iter_of(rt, v);
  *ret = (jj_val){.tag = J_ITER, .it = it};
  return it != NULL;
}

static bool f_dictsort(jj_rt *rt, jj_call *c, jj_val *ret) {
  bool by_value = false;
  if (c->self.tag == J_UNDEF) return jj_undef_fail(rt, c->self);
  if (c->self.tag != J_DICT) return jj_fail(rt, "dictsort needs a mapping, not a %s", jj_type_name(c->self));
  if (c->a[1].tag != J_MISSING) {
    if (c->a[1].tag != J_STR || (!str_is(jj_view(c->a[1].s), "key") && !str_is(jj_view(c->a[1].s), "value")))
      return jj_fail(rt, "dictsort: 'by' must be 'key' or 'value'");
    by_value = str_is(jj_view(c->a[1].s), "value");
  }
  jj_val view = {.tag = J_VIEW, .sub = 2, .d = c->self.d};
  if (!jj_to_list(rt, view, ret)) return false;
  size_t n = ret->q->n;
  jj_val *keys = jj_alloc(rt, n, sizeof *keys);
  if (!keys) return false;
  for (size_t i = 0; i < n; i++)
    if (!fold(rt, ret->q->v[i].q->v[by_value], jj_truth(c->a[0]), &keys[i])) return false;
  return jj_sort(rt, ret->q->v, keys, n, jj_truth(c->a[2]));
}

/* sort(attribute="a,b.c"): the key is the list of the values. */
static bool multi_key(jj_rt *rt, jj_val item, jj_val paths, bool case_sensitive, jj_val *ret) {
  jj_val list, key, path = paths;
  if (!jj_seq_new(rt, J_LIST, 1, &list)) return false;
  bool more = true;
  str rest = paths.tag == J_STR ? jj_view(paths.s) : STR(""), part;
  while (more) {
    more = paths.tag == J_STR && str_cut(rest, ',', &part, &rest);
    if (paths.tag == J_STR && !jj_str_new(rt, more ? part : rest, JT_NO, &path)) return false;
    if (!sort_key(rt, item, path, case_sensitive, &key) || !jj_seq_add(rt, list.q, key)) return false;
  }
  *ret = list;
  return true;
}

static bool f_sort(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (!jj_to_list(rt, c->self, ret)) return false;
  size_t n = ret->q->n;
  jj_val *keys = jj_alloc(rt, n, sizeof *keys);
  if (!keys) return false;
  for (size_t i = 0; i < n; i++)
    if (!multi_key(rt, ret->q->v[i], c->a[2], jj_truth(c->a[1]), &keys[i])) return false;
  return jj_sort(rt, ret->q->v, keys, n, jj_truth(c->a[0]));
}

static bool extreme(jj_rt *rt, jj_call *c, bool max, jj_val *ret) {
  jj_iter *it = jj_iter_of(rt, c->self);
  jj_val v, key, best = {0};
  int r = -1, o;
  bool any = false;
  if (!it) return false;
  while ((r = jj_next(rt, it, &v)) > 0) {
    if (!sort_key(rt, v, c->a[1], jj_truth(c->a[0]), &key)) return false;
    if (any && !jj_order(rt, max ? best : key, max ? key : best, max ? ">" : "<", &o)) return false;
    if (any && o >= 0) continue;
    any = true;
    best = key;
    *ret = v;
  }
  if (!any) *ret = jj_undef("no aggregated item: the sequence was empty");
  return r == 0;
}
static bool f_min(jj_rt *rt, jj_call *c, jj_val *ret) { return extreme(rt, c, false, ret); }
static bool f_max(jj_rt *rt, jj_call *c, jj_val *ret) { return extreme(rt, c, true, ret); }

static bool f_sum(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_iter *it = jj_iter_of(rt, c->self);
  jj_val acc = c->a[1].tag == J_MISSING ? jj_int(0) : c->a[1], v;
  int r = -1;
  if (!it) return false;
  if (acc.tag == J_STR) return jj_fail(rt, "sum cannot start from a string; use join");
  while ((r = jj_next(rt, it, &v)) > 0)
    if (!get_path(rt, v, c->a[0], (jj_val){0}, &v) || !jj_binary(rt, OP_ADD, acc, v, &acc)) return false;
  *ret = acc;
  return r == 0;
}

static bool f_attr(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (c->a[0].tag != J_STR) return jj_fail(rt, "attr needs the name of an attribute");
  str *name = jj_alloc(rt, 1, sizeof *name);
  if (!name) return false;
  *name = jj_view(c->a[0].s);
  if (c->self.tag != J_DICT || jj_method_find(c->self, *name) || jj_method_unsafe(c->self, *name)) return jj_attr(rt, c->self, name, ret);
  *ret = jj_undef("the dict has no such attribute"); /* its keys are not attributes here */
  return true;
}

static bool f_groupby(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_val list, out, group = {0}, pair, real;
  bool cs = jj_truth(c->a[2]), eq = false;
  if (!jj_to_list(rt, c->self, &list) || !jj_seq_new(rt, J_LIST, 0, &out)) return false;
  size_t n = list.q->n;
  jj_val *keys = jj_alloc(rt, n, sizeof *keys), *order = jj_alloc(rt, n, sizeof *order);
  if (!keys || !order) return false;
  for (size_t i = 0; i < n; i++) {
    order[i] = jj_int((int64_t)i);
    if (!get_path(rt, list.q->v[i], c->a[0], c->a[1], &real) || !fold(rt, real, cs, &keys[i])) return false;
  }
  if (!jj_sort(rt, order, keys, n, false)) return false;
  for (size_t k = 0; k < n; k++) {
    size_t i = (size_t)order[k].i;
    if (k && !jj_equal(rt, keys[order[k - 1].i], keys[i], &eq)) return false;
    if (!k || !eq) { /* the group is named as its first member spells it */
      if (!get_path(rt, list.q->v[i], c->a[0], c->a[1], &real) || !jj_seq_new(rt, J_LIST, 0, &group) || !jj_pair_new(rt, real, group, &pair))
        return false;
      pair.sub = J_GROUP;
      if (!jj_seq_add(rt, out.q, pair)) return false;
    }
    if (!jj_seq_add(rt, group.q, list.q->v[i])) return false;
  }
  *ret = out;
  return true;
}

/* ---- lazy ones ---- */

typedef struct lazy {
  jj_val path, dflt, name;   /* map(attribute=path, default=dflt), map(name, ...), select(name, ...) */
  jj_argv args;
  bool by_attr, reject, has_test, case_sensitive, started, grouped;
  jj_dict *seen;             /* unique */
  jj_val fill;               /* batch, slice */
  int64_t n, k;
  jj_val list;
} lazy;

static bool make_lazy(jj_rt *rt, jj_call *c, int (*next)(jj_rt *, jj_iter *, jj_val *), lazy **ret_st, jj_val *ret) {
  lazy *st = jj_alloc(rt, 1, sizeof *st);
  jj_iter *it = st ? jj_iter_new(rt, next, st) : NULL;
  if (!it) return false;
  it->src = c->self;
  st->args = *c->raw;
  *ret_st = st;
  *ret = (jj_val){.tag = J_ITER, .it = it};
  return true;
}

/* Opens the source on the first read; 0: nothing to read (a false value gives an empty result whatever it is). */
static int open_lazy(jj_rt *rt, jj_iter *it, lazy *st, bool if_true) {
  if (!st->started) {
    if (if_true && !jj_truth(it->src)) return 0;
    if (!(it->in = jj_iter_of(rt, it->src))) return -1;
  }
  return it->in ? 1 : 0;
}

static bool start_map(jj_rt *rt, lazy *st) {
  if (!st->args.n) {
    bool attr = false;
    for (size_t i = 0; i < st->args.n_kw; i++) attr |= str_is(st->args.kw[i].name, "attribute");
    if (!attr) return jj_fail(rt, "map needs the name of a filter, or attribute=");
    for (size_t i = 0; i < st->args.n_kw; i++) {
      str k = st->args.kw[i].name;
      if (str_is(k, "attribute")) st->path = st->args.kw[i].val;
      else if (str_is(k, "default")) st->dflt = st->args.kw[i].val;
      else return jj_fail(rt, "map has a keyword argument '%.*s' that it does not take", (int)k.n, k.p);
    }
    st->by_attr = true;
    return true;
  }
  st->name = st->args.v[0];
  st->args.v++;
  st->args.n--;
  return true;
}

static int next_map(jj_rt *rt, jj_iter *it, jj_val *ret) {
  lazy *st = it->st;
  int r = open_lazy(rt, it, st, true);
  if (r <= 0) return r;
  if (!st->started && !start_map(rt, st)) return -1;
  st->started = true;
  if ((r = jj_next(rt, it->in, ret)) <= 0) return r;
  if (st->by_attr) return get_path(rt, *ret, st->path, st->dflt, ret) ? 1 : -1;
  return jj_filter_apply(rt, st->name, *ret, &st->args, ret) ? 1 : -1;
}

static bool f_map(jj_rt *rt, jj_call *c, jj_val *ret) {
  lazy *st;
  return make_lazy(rt, c, next_map, &st, ret);
}

static bool start_select(jj_rt *rt, lazy *st) {
  if (st->by_attr) {
    if (!st->args.n) return jj_fail(rt, "selectattr and rejectattr need the name of an attribute");
    st->path = st->args.v[0];
    st->args.v++;
    st->args.n--;
  }
  if (st->args.n) {
    st->has_test = true;
    st->name = st->args.v[0];
    st->args.v++;
    st->args.n--;
  }
  return true;
}

static int next_select(jj_rt *rt, jj_iter *it, jj_val *ret) {
  lazy *st = it->st;
  int r = open_lazy(rt, it, st, true);
  if (r <= 0) return r;
  if (!st->started && !start_select(rt, st)) return -1;
  st->started = true;
  while ((r = jj_next(rt, it->in, ret)) > 0) {
    jj_val v = *ret;
    bool yes;
    if (st->by_attr && !get_path(rt, v, st->path, (jj_val){0}, &v)) return -1;
    if (!st->has_test) yes = jj_truth(v);
    else if (!jj_test_apply(rt, st->name, v, &st->args, &yes)) return -1;
    if (yes != st->reject) return 1;
  }
  return r;
}

static bool select_(jj_rt *rt, jj_call *c, bool by_attr, bool reject, jj_val *ret) {
  lazy *st;
  if (!make_lazy(rt, c, next_select, &st, ret)) return false;
  st->by_attr = by_attr;
  st->reject = reject;
  return true;
}
static bool f_select(jj_rt *rt, jj_call *c, jj_val *ret) { return select_(rt, c, false, false, ret); }
static bool f_reject(jj_rt *rt, jj_call *c, jj_val *ret) { return select_(rt, c, false, true, ret); }
static bool f_selectattr(jj_rt *rt, jj_call *c, jj_val *ret) { return select_(rt, c, true, false, ret); }
static bool f_rejectattr(jj_rt *rt, jj_call *c, jj_val *ret) { return select_(rt, c, true, true, ret); }

static int next_unique(jj_rt *rt, jj_iter *it, jj_val *ret) {
  lazy *st = it->st;
  jj_val key, had;
  int r = open_lazy(rt, it, st, false);
  st->started = true;
  if (r <= 0) return r;
  while ((r = jj_next(rt, it->in, ret)) > 0) {
    if (!sort_key(rt, *ret, st->path, st->case_sensitive, &key)) return -1;
    if (jj_dict_get(rt, st->seen, key, &had)) continue;
    return jj_dict_set(rt, st->seen, key, jj_none()) ? 1 : -1;
  }
  return r;
}

static bool f_unique(jj_rt *rt, jj_call *c, jj_val *ret) {
  lazy *st;
  jj_val d;
  if (!jj_dict_new(rt, J_DICT, &d) || !make_lazy(rt, c, next_unique, &st, ret)) return false;
  st->seen = d.d;
  st->case_sensitive = jj_truth(c->a[0]);
  st->path = c->a[1];
  return true;
}

static int next_batch(jj_rt *rt, jj_iter *it, jj_val *ret) {
  lazy *st = it->st;
  jj_val v;
  int r = open_lazy(rt, it, st, false);
  st->started = true;
  if (r <= 0) return r;
  if (!jj_seq_new(rt, J_LIST, 0, ret)) return -1;
  /* An item read past a full batch starts the next one; with a count below 1 a batch is never full. */
  if (st->list.tag != J_MISSING && !jj_seq_add(rt, ret->q, st->list)) return -1;
  st->list = (jj_val){0};
  while ((r = jj_next(rt, it->in, &v)) > 0) {
    if ((int64_t)ret->q->n == st->n) {
      st->list = v;
      return 1;
    }
    if (!jj_seq_add(rt, ret->q, v)) return -1;
  }
  if (r < 0 || !ret->q->n) return r;
  it->in = NULL;
  while (!jj_is_none(st->fill) && (int64_t)ret->q->n < st->n)
    if (!jj_seq_add(rt, ret->q, st->fill)) return -1;
  return 1;
}

static int next_slice(jj_rt *rt, jj_iter *it, jj_val *ret) {
  lazy *st = it->st;
  if (!st->started) {
    if (!jj_to_list(rt, it->src, &st->list)) return -1;
    if (!st->n) { jj_fail(rt, "division by zero"); return -1; }
    st->started = true;
  }
  if (st->k >= st->n) return 0;
  int64_t len = (int64_t)st->list.q->n, per = len / st->n, extra = len % st->n, k = st->k++;
  int64_t from = k * per + (k < extra ? k : extra), to = from + per + (k < extra);
  if (!jj_seq_new(rt, J_LIST, (size_t)(to - from + 1), ret)) return -1;
  for (int64_t i = from; i < to; i++)
    if (!jj_seq_add(rt, ret->q, st->list.q->v[i])) return -1;
  return jj_is_none(st->fill) || k < extra || jj_seq_add(rt, ret->q, st->fill) ? 1 : -1;
}

static bool chunks(jj_rt *rt, jj_call *c, int (*next)(jj_rt *, jj_iter *, jj_val *), jj_val *ret) {
  lazy *st;
  if (!make_lazy(rt, c, next, &st, ret) || !want_int(rt, c, 0, 0, &st->n)) return false;
  st->fill = c->a[1];
  return true;
}
static bool f_batch(jj_rt *rt, jj_call *c, jj_val *ret) { return chunks(rt, c, next_batch, ret); }
static bool f_slice(jj_rt *rt, jj_call *c, jj_val *ret) { return chunks(rt, c, next_slice, ret); }

/* ---- the table ---- */

static const jj_func filters[] = {
  {"abs", f_abs, "", 0}, {"attr", f_attr, "name", 1}, {"batch", f_batch, "linecount,fill_with", 1}, {"capitalize", f_capitalize, "", 0},
  {"center", f_center, "width", 0}, {"count", f_length, "", 0}, {"d", f_default, "default_value,boolean", 0},
  {"default", f_default, "default_value,boolean", 0}, {"dictsort", f_dictsort, "case_sensitive,by,reverse", 0}, {"e", f_escape, "", 0},
  {"escape", f_escape, "", 0}, {"first", f_first, "", 0}, {"float", f_float, "default", 0}, {"forceescape", f_forceescape, "", 0},
  {"format", f_format, NULL, 0}, {"groupby", f_groupby, "attribute,default,case_sensitive", 1}, {"indent", f_indent, "width,first,blank", 0},
  {"int", f_int, "default,base", 0}, {"items", f_items, "", 0}, {"join", f_join, "d,attribute", 0}, {"last", f_last, "", 0},
  {"length", f_length, "", 0}, {"list", f_list, "", 0}, {"lower", f_lower, "", 0}, {"map", f_map, NULL, 0},
  {"max", f_max, "case_sensitive,attribute", 0}, {"min", f_min, "case_sensitive,attribute", 0}, {"reject", f_reject, NULL, 0},
  {"rejectattr", f_rejectattr, NULL, 0}, {"replace", f_replace, "old,new,count", 2}, {"reverse", f_reverse, "", 0},
  {"round", f_round, "precision,method", 0}, {"safe", f_safe, "", 0}, {"select", f_select, NULL, 0}, {"selectattr", f_selectattr, NULL, 0},
  {"slice", f_slice, "slices,fill_with", 1}, {"sort", f_sort, "reverse,case_sensitive,attribute", 0}, {"string", f_string, "", 0},
  {"sum", f_sum, "attribute,start", 0}, {"title", f_title, "", 0}, {"tojson", jj_to_json, "ensure_ascii,indent,separators,sort_keys", 0},
  {"trim", f_trim, "chars", 0}, {"truncate", f_truncate, "length,killwords,end,leeway", 0}, {"unique", f_unique, "case_sensitive,attribute", 0},
  {"upper", f_upper, "", 0}, {"wordcount", f_wordcount, "", 0},
};
/* Filters of the reference for web pages, debugging and chance. */
static const char *const refused[] = {"filesizeformat", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"};

const jj_func *jj_filter_find(str name) {
  for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
    if (str_is(name, filters[i].name)) return &filters[i];
  return NULL;
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
