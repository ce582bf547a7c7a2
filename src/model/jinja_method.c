/* Methods of strings, dicts, lists and tuples. Those that would change a list or dict are refused, as the immutable sandbox does. */
#include "model/jinja.h"
#include <math.h>

static jj_str *self(jj_call *c) { return c->self.s; }

static bool want_str(jj_rt *rt, jj_call *c, int i, jj_str **ret) {
  bool ok = c->a[i].tag == J_STR;
  *ret = ok ? c->a[i].s : NULL;
  if (!ok) jj_fail(rt, "method '%s' needs a string, not a %s", c->fn->name, jj_type_name(c->a[i]));
  return ok;
}

static bool want_int(jj_rt *rt, jj_call *c, int i, int64_t dflt, int64_t *ret) {
  *ret = dflt;
  if (c->a[i].tag == J_MISSING) return true;
  if (!jj_is_intlike(c->a[i])) return jj_fail(rt, "method '%s' needs an integer, not a %s", c->fn->name, jj_type_name(c->a[i]));
  *ret = jj_as_int(c->a[i]);
  return true;
}

static bool yes(jj_val *ret, bool b) {
  *ret = jj_bool(b);
  return true;
}

/* ---- case, strip ---- */

static bool m_upper(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_recase(rt, self(c), CASE_UPPER, ret); }
static bool m_lower(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_recase(rt, self(c), CASE_LOWER, ret); }
static bool m_title(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_recase(rt, self(c), CASE_TITLE, ret); }
static bool m_capitalize(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_recase(rt, self(c), CASE_CAPITALIZE, ret); }
static bool m_swapcase(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_recase(rt, self(c), CASE_SWAP, ret); }
static bool m_casefold(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_recase(rt, self(c), CASE_FOLD, ret); }

static bool strip(jj_rt *rt, jj_call *c, bool left, bool right, jj_val *ret) {
  jj_str *chars = NULL;
  if (!jj_is_none(c->a[0]) && !want_str(rt, c, 0, &chars)) return false;
  return jj_strip(rt, self(c), chars, left, right, ret);
}
static bool m_strip(jj_rt *rt, jj_call *c, jj_val *ret) { return strip(rt, c, true, true, ret); }
static bool m_lstrip(jj_rt *rt, jj_call *c, jj_val *ret) { return strip(rt, c, true, false, ret); }
static bool m_rstrip(jj_rt *rt, jj_call *c, jj_val *ret) { return strip(rt, c, false, true, ret); }

static bool m_removeprefix(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *p, *s = self(c);
  if (!want_str(rt, c, 0, &p)) return false;
  size_t cut = str_starts(jj_view(s), jj_view(p)) ? p->n : 0;
  return jj_str_sub(rt, s, cut, s->n - cut, ret);
}

static bool m_removesuffix(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *p, *s = self(c);
  if (!want_str(rt, c, 0, &p)) return false;
  size_t cut = str_ends(jj_view(s), jj_view(p)) ? p->n : 0;
  return jj_str_sub(rt, s, 0, s->n - cut, ret);
}

/* ---- searching ---- */

/* start and end of the searched part, in bytes, from code point arguments a[first], a[first + 1]; false in *ret_in: the part is empty and out of
 * range. */
static bool part(jj_rt *rt, jj_call *c, int first, size_t *ret_a, size_t *ret_b, bool *ret_in) {
  jj_str *s = self(c);
  int64_t n = (int64_t)jj_str_len(s), lo = 0, hi = n;
  if ((c->a[first].tag != J_NONE && !want_int(rt, c, first, 0, &lo)) || (c->a[first + 1].tag != J_NONE && !want_int(rt, c, first + 1, n, &hi)))
    return false;
  if (lo < 0) lo = lo < -n ? 0 : lo + n;
  if (hi < 0) hi = hi < -n ? 0 : hi + n;
  if (hi > n) hi = n;
  *ret_in = lo <= hi;
  *ret_a = jj_str_at(s, (size_t)(lo < n ? lo : n));
  *ret_b = *ret_in ? jj_str_at(s, (size_t)hi) : *ret_a;
  return jj_spend(rt, s->n / 64 + 1);
}

static bool affix(jj_rt *rt, jj_call *c, bool suffix, jj_val *ret) {
  size_t a, b;
  bool in;
  jj_val v = c->a[0];
  if (!part(rt, c, 1, &a, &b, &in)) return false;
  str t = {self(c)->p + a, b - a};
  jj_val *list = v.tag == J_TUPLE ? v.q->v : &v;
  size_t n = v.tag == J_TUPLE ? v.q->n : 1;
  for (size_t i = 0; i < n; i++) {
    if (list[i].tag != J_STR) return jj_fail(rt, "method '%s' needs a string or a tuple of strings, not a %s", c->fn->name, jj_type_name(list[i]));
    str x = jj_view(list[i].s);
    if (in && (suffix ? str_ends(t, x) : str_starts(t, x))) return yes(ret, true);
  }
  return yes(ret, false);
}
static bool m_startswith(jj_rt *rt, jj_call *c, jj_val *ret) { return affix(rt, c, false, ret); }
static bool m_endswith(jj_rt *rt, jj_call *c, jj_val *ret) { return affix(rt, c, true, ret); }

static ptrdiff_t rfind(str hay, str needle) {
  if (needle.n > hay.n) return -1;
  for (size_t i = hay.n - needle.n + 1; i-- > 0;)
    if (memcmp(hay.p + i, needle.p, needle.n) == 0) return (ptrdiff_t)i;
  return -1;
}

static bool search(jj_rt *rt, jj_call *c, bool back, bool must, jj_val *ret) {
  jj_str *x, *s = self(c);
  size_t a, b;
  bool in;
  if (!want_str(rt, c, 0, &x) || !part(rt, c, 1, &a, &b, &in)) return false;
  str t = {s->p + a, b - a};
  if (back && !jj_spend(rt, t.n / 16 * (x->n / 16 + 1))) return false;
  ptrdiff_t at = !in ? -1 : back ? rfind(t, jj_view(x)) : x->n ? str_find(t, jj_view(x)) : 0;
  if (at < 0) {
    if (must) return jj_fail(rt, "method '%s': the string does not contain it", c->fn->name);
    *ret = jj_int(-1);
    return true;
  }
  jj_str head = {.p = s->p, .n = a + (size_t)at, .len = JJ_LEN_UNKNOWN};
  *ret = jj_int((int64_t)jj_str_len(&head));
  return true;
}
static bool m_find(jj_rt *rt, jj_call *c, jj_val *ret) { return search(rt, c, false, false, ret); }
static bool m_rfind(jj_rt *rt, jj_call *c, jj_val *ret) { return search(rt, c, true, false, ret); }
static bool m_index(jj_rt *rt, jj_call *c, jj_val *ret) { return search(rt, c, false, true, ret); }
static bool m_rindex(jj_rt *rt, jj_call *c, jj_val *ret) { return search(rt, c, true, true, ret); }

static bool m_count(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *x;
  size_t a, b;
  bool in;
  if (!want_str(rt, c, 0, &x) || !part(rt, c, 1, &a, &b, &in)) return false;
  str t = {self(c)->p + a, b - a};
  int64_t n = 0;
  if (!in) {
    *ret = jj_int(0);
    return true;
  }
  if (!x->n) {
    jj_str v = {.p = t.p, .n = t.n, .len = JJ_LEN_UNKNOWN};
    *ret = jj_int((int64_t)jj_str_len(&v) + 1);
    return true;
  }
  for (ptrdiff_t at; (at = str_find(t, jj_view(x))) >= 0; n++) t = (str){t.p + at + x->n, t.n - (size_t)at - x->n};
  *ret = jj_int(n);
  return true;
}

/* ---- replacing, splitting, joining ---- */

/* An empty `old` stands before every character and at the end. */
static bool m_replace(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *old, *new, *s = self(c);
  int64_t left;
  if (!want_str(rt, c, 0, &old) || !want_str(rt, c, 1, &new) || !want_int(rt, c, 2, -1, &left) || !jj_spend(rt, s->n / 64)) return false;
  jj_out o = {0};
  size_t i = 0;
  bool ok = true, any = false;
  while (ok && left != 0) {
    ptrdiff_t at = old->n ? str_find((str){s->p + i, s->n - i}, jj_view(old)) : 0;
    if (at < 0) break;
    any = true;
    left -= left > 0;
    ok = jj_put_part(rt, &o, s, i, (size_t)at) && jj_put_part(rt, &o, new, 0, new->n) && jj_spend(rt, 1);
    i += (size_t)at + old->n;
    if (old->n) continue;
    if (i >= s->n) break;
    int l;
    jj_cp(s->p + i, s->p + s->n, &l);
    ok = ok && jj_put_part(rt, &o, s, i, (size_t)l);
    i += (size_t)l;
  }
  if (ok && !any) ok = jj_str_sub(rt, s, 0, s->n, ret);
  else ok = ok && jj_put_part(rt, &o, s, i, s->n - i) && jj_take(rt, &o, ret);
  if (ok) ret->s->html = s->html;
  jj_out_fini(&o);
  return ok;
}

static bool add_sub(jj_rt *rt, jj_val list, const jj_str *s, size_t off, size_t n) {
  jj_val v;
  return jj_str_sub(rt, s, off, n, &v) && jj_seq_add(rt, list.q, v);
}

/* On white space: runs count as one, none at the ends. */
static bool split_space(jj_rt *rt, jj_str *s, int64_t left, jj_val list) {
  const char *p = s->p, *end = s->p + s->n;
  int l = 0;
  for (;;) {
    while (p < end && jj_is_space(jj_cp(p, end, &l))) p += l;
    if (p == end) return true;
    const char *q = p;
    if (left == 0) return add_sub(rt, list, s, (size_t)(p - s->p), (size_t)(end - p));
    while (q < end && !jj_is_space(jj_cp(q, end, &l))) q += l;
    if (!add_sub(rt, list, s, (size_t)(p - s->p), (size_t)(q - p))) return false;
    left -= left > 0;
    p = q;
  }
}

/* From the right: the parts come out last first, the caller turns them round. */
static bool rsplit_parts(jj_rt *rt, jj_str *s, const jj_str *sep, int64_t left, jj_val list) {
  const char *q = s->p + s->n;
  int l = 0;
  for (;;) {
    if (!sep) {
      while (q > s->p && jj_is_space(jj_cp_back(s->p, q, &l))) q -= l;
      if (q == s->p) return true;
    }
    const char *p = q;
    if (left == 0) return add_sub(rt, list, s, 0, (size_t)(q - s->p));
    if (sep) {
      ptrdiff_t at = rfind((str){s->p, (size_t)(q - s->p)}, jj_view(sep));
      if (at < 0) return add_sub(rt, list, s, 0, (size_t)(q - s->p));
      p = s->p + at + sep->n;
      if (!add_sub(rt, list, s, (size_t)(p - s->p), (size_t)(q - p)) || !jj_spend(rt, (size_t)(q - p) / 16 * (sep->n / 16 + 1))) return false;
      q = s->p + at;
    } else {
      while (p > s->p && !jj_is_space(jj_cp_back(s->p, p, &l))) p -= l;
      if (!add_sub(rt, list, s, (size_t)(p - s->p), (size_t)(q - p))) return false;
      q = p;
    }
    left -= left > 0;
  }
}

static bool split(jj_rt *rt, jj_call *c, bool right, jj_val *ret) {
  jj_str *sep = NULL, *s = self(c);
  int64_t left;
  if ((!jj_is_none(c->a[0]) && !want_str(rt, c, 0, &sep)) || !want_int(rt, c, 1, -1, &left)) return false;
  if (sep && !sep->n) return jj_fail(rt, "split: the separator is empty");
  if (!jj_spend(rt, s->n / 32) || !jj_seq_new(rt, J_LIST, 0, ret)) return false;
  if (right) {
    jj_val rev = *ret;
    return rsplit_parts(rt, s, sep, left, rev) && jj_slice(rt, rev, (jj_val){0}, (jj_val){0}, jj_int(-1), ret);
  }
  if (!sep) return split_space(rt, s, left, *ret);
  size_t i = 0;
  for (ptrdiff_t at; left != 0 && (at = str_find((str){s->p + i, s->n - i}, jj_view(sep))) >= 0; left -= left > 0) {
    if (!add_sub(rt, *ret, s, i, (size_t)at)) return false;
    i += (size_t)at + sep->n;
  }
  return add_sub(rt, *ret, s, i, s->n - i);
}
static bool m_split(jj_rt *rt, jj_call *c, jj_val *ret) { return split(rt, c, false, ret); }
static bool m_rsplit(jj_rt *rt, jj_call *c, jj_val *ret) { return split(rt, c, true, ret); }

static bool m_splitlines(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_str *s = self(c);
  bool keep = jj_truth(c->a[0]);
  if (!jj_seq_new(rt, J_LIST, 0, ret)) return false;
  for (size_t i = 0; i < s->n;) {
    size_t end = i;
    int l = 0;
    while (end < s->n && !jj_is_line_end(jj_cp(s->p + end, s->p + s->n, &l))) end += (size_t)l;
    size_t next = end;
    if (end < s->n) next += (size_t)l + (s->p[end] == '\r' && end + 1 < s->n && s->p[end + 1] == '\n');
    if (!add_sub(rt, *ret, s, i, (keep ? next : end) - i)) return false;
    i = next;
  }
  return true;
}

static bool partition(jj_rt *rt, jj_call *c, bool right, jj_val *ret) {
  jj_str *sep, *s = self(c);
  if (!want_str(rt, c, 0, &sep)) return false;
  if (!sep->n) return jj_fail(rt, "partition: the separator is empty");
  if (!jj_spend(rt, s->n / 16 * (right ? sep->n / 16 + 1 : 1)) || !jj_seq_new(rt, J_TUPLE, 3, ret)) return false;
  ptrdiff_t at = right ? rfind(jj_view(s), jj_view(sep)) : str_find(jj_view(s), jj_view(sep));
  size_t head = at >= 0 ? (size_t)at : right ? 0 : s->n, mid = at >= 0 ? sep->n : 0;
  return add_sub(rt, *ret, s, 0, head) && add_sub(rt, *ret, s, head, mid) && add_sub(rt, *ret, s, head + mid, s->n - head - mid);
}
static bool m_partition(jj_rt *rt, jj_call *c, jj_val *ret) { return partition(rt, c, false, ret); }
static bool m_rpartition(jj_rt *rt, jj_call *c, jj_val *ret) { return partition(rt, c, true, ret); }

static bool m_join(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_iter *it = jj_iter_of(rt, c->a[0]);
  jj_out o = {0};
  jj_val v;
  int r = -1;
  if (!it) return false;
  for (bool first = true; (r = jj_next(rt, it, &v)) > 0; first = false) {
    if (v.tag != J_STR) {
      jj_fail(rt, "join: a %s is not a string", jj_type_name(v));
      r = -1;
      break;
    }
    if ((!first && !jj_put_part(rt, &o, self(c), 0, self(c)->n)) || !jj_put_part(rt, &o, v.s, 0, v.s->n)) {
      r = -1;
      break;
    }
  }
  bool ok = r == 0 && jj_take(rt, &o, ret);
  jj_out_fini(&o);
  return ok;
}

static bool m_format(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_str_format(rt, self(c), c->raw, ret); }

/* ---- padding ---- */

/* left and right: code points of fill on each side. */
static bool padded(jj_rt *rt, jj_call *c, int64_t left, int64_t right, const jj_str *fill, jj_val *ret) {
  jj_out o = {0};
  bool ok = true;
  if (left > (int64_t)JJ_MAX_OUTPUT || right > (int64_t)JJ_MAX_OUTPUT) ok = jj_fail(rt, "makes a text of more than %zu MiB", JJ_MAX_OUTPUT >> 20);
  for (int64_t i = 0; ok && i < left; i++) ok = jj_put_part(rt, &o, fill, 0, fill->n);
  ok = ok && jj_put_part(rt, &o, self(c), 0, self(c)->n);
  for (int64_t i = 0; ok && i < right; i++) ok = jj_put_part(rt, &o, fill, 0, fill->n);
  ok = ok && jj_take(rt, &o, ret);
  if (ok) ret->s->html = self(c)->html;
  jj_out_fini(&o);
  return ok;
}

static bool justify(jj_rt *rt, jj_call *c, char side, jj_val *ret) {
  static jj_str blank = {.p = " ", .n = 1, .len = 1};
  jj_str *fill = &blank;
  int64_t width;
  if (!want_int(rt, c, 0, 0, &width) || (c->a[1].tag != J_MISSING && !want_str(rt, c, 1, &fill))) return false;
  if (jj_str_len(fill) != 1) return jj_fail(rt, "method '%s': the fill must be exactly one character", c->fn->name);
  int64_t room = width - (int64_t)jj_str_len(self(c));
  if (room < 0) room = 0;
  int64_t left = side == 'r' ? room : side == 'l' ? 0 : room / 2 + (room & width & 1);
  return padded(rt, c, left, room - left, fill, ret);
}
static bool m_ljust(jj_rt *rt, jj_call *c, jj_val *ret) { return justify(rt, c, 'l', ret); }
static bool m_rjust(jj_rt *rt, jj_call *c, jj_val *ret) { return justify(rt, c, 'r', ret); }
static bool m_center(jj_rt *rt, jj_call *c, jj_val *ret) { return justify(rt, c, 'c', ret); }

static bool m_zfill(jj_rt *rt, jj_call *c, jj_val *ret) {
  static const jj_str zero = {.p = "0", .n = 1, .len = 1};
  jj_str *s = self(c);
  int64_t width;
  if (!want_int(rt, c, 0, 0, &width)) return false;
  int64_t room = width - (int64_t)jj_str_len(s);
  if (room <= 0) return jj_str_sub(rt, s, 0, s->n, ret);
  if (!s->n || (s->p[0] != '+' && s->p[0] != '-')) return padded(rt, c, room, 0, &zero, ret);
  jj_val sign, rest, tail; /* the sign stays in front */
  if (!jj_str_sub(rt, s, 0, 1, &sign) || !jj_str_sub(rt, s, 1, s->n - 1, &rest)) return false;
  jj_call inner = {.self = rest, .fn = c->fn};
  return padded(rt, &inner, room, 0, &zero, &tail) && jj_concat(rt, sign.s, tail.s, ret);
}

/* ---- classes ---- */

static bool every(jj_rt *rt, jj_call *c, bool (*is)(uint32_t), bool empty, jj_val *ret) {
  str s = jj_view(self(c));
  if (!jj_spend(rt, s.n / 16)) return false;
  for (size_t i = 0; i < s.n;) {
    int l;
    if (!is(jj_cp(s.p + i, s.p + s.n, &l))) return yes(ret, false);
    i += (size_t)l;
  }
  return yes(ret, s.n || empty);
}
static bool is_alnum(uint32_t cp) { return jj_is_alpha(cp) || jj_is_digit(cp); }
static bool is_ascii(uint32_t cp) { return cp < 0x80; }
static bool m_isalpha(jj_rt *rt, jj_call *c, jj_val *ret) { return every(rt, c, jj_is_alpha, false, ret); }
static bool m_isalnum(jj_rt *rt, jj_call *c, jj_val *ret) { return every(rt, c, is_alnum, false, ret); }
static bool m_isdigit(jj_rt *rt, jj_call *c, jj_val *ret) { return every(rt, c, jj_is_digit, false, ret); }
static bool m_isdecimal(jj_rt *rt, jj_call *c, jj_val *ret) { return every(rt, c, jj_is_decimal, false, ret); }
static bool m_isspace(jj_rt *rt, jj_call *c, jj_val *ret) { return every(rt, c, jj_is_space, false, ret); }
static bool m_isprintable(jj_rt *rt, jj_call *c, jj_val *ret) { return every(rt, c, jj_is_printable, true, ret); }
static bool m_isascii(jj_rt *rt, jj_call *c, jj_val *ret) { return every(rt, c, is_ascii, true, ret); }
static bool m_islower(jj_rt *rt, jj_call *c, jj_val *ret) {
  return jj_func_call(rt, jj_test_find(STR("lower")), "method", c->self, &(jj_argv){0}, ret);
}
static bool m_isupper(jj_rt *rt, jj_call *c, jj_val *ret) {
  return jj_func_call(rt, jj_test_find(STR("upper")), "method", c->self, &(jj_argv){0}, ret);
}

/* ---- dicts, sequences ---- */

static bool view(jj_call *c, uint8_t which, jj_val *ret) {
  *ret = (jj_val){.tag = J_VIEW, .sub = which, .d = c->self.d};
  return true;
}
static bool m_keys(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return view(c, 0, ret);
}
static bool m_values(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return view(c, 1, ret);
}
static bool m_items(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return view(c, 2, ret);
}

static bool m_get(jj_rt *rt, jj_call *c, jj_val *ret) {
  uint64_t h;
  if (!jj_hash(rt, c->a[0], &h)) return jj_fail(rt, "a %s cannot be a dict key", jj_type_name(c->a[0]));
  if (!jj_dict_get(rt, c->self.d, c->a[0], ret)) *ret = c->a[1].tag == J_MISSING ? jj_none() : c->a[1];
  return true;
}

static bool m_copy(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  *ret = c->self;
  return true;
} /* nothing changes them, so one is as good as two */

static bool m_seq_count(jj_rt *rt, jj_call *c, jj_val *ret) {
  int64_t n = 0;
  for (size_t i = 0; i < c->self.q->n; i++) {
    bool eq;
    if (!jj_equal(rt, c->self.q->v[i], c->a[0], &eq)) return false;
    n += eq;
  }
  *ret = jj_int(n);
  return true;
}

static bool m_seq_index(jj_rt *rt, jj_call *c, jj_val *ret) {
  int64_t n = (int64_t)c->self.q->n, lo, hi;
  if (!want_int(rt, c, 1, 0, &lo) || !want_int(rt, c, 2, n, &hi)) return false;
  if (lo < 0) lo = lo < -n ? 0 : lo + n;
  if (hi < 0) hi = hi < -n ? 0 : hi + n;
  for (int64_t i = lo; i < hi && i < n; i++) {
    bool eq;
    if (!jj_equal(rt, c->self.q->v[i], c->a[0], &eq)) return false;
    if (eq) {
      *ret = jj_int(i);
      return true;
    }
  }
  return jj_fail(rt, "index: the value is not in the %s", jj_type_name(c->self));
}

static bool m_next(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  jj_cycler *cy = c->self.cy;
  *ret = cy->v[cy->pos];
  cy->pos = (cy->pos + 1) % cy->n;
  return true;
}
static bool m_reset(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  c->self.cy->pos = 0;
  *ret = jj_none();
  return true;
}

static bool m_is_integer(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, isfinite(c->self.f) && floor(c->self.f) == c->self.f);
}

/* ---- tables ---- */

static const jj_func str_methods[] = {{"capitalize", m_capitalize, "", 0}, {"casefold", m_casefold, "", 0}, {"center", m_center, "/width,fill", 1},
    {"count", m_count, "/sub,start,end", 1}, {"endswith", m_endswith, "/suffix,start,end", 1}, {"find", m_find, "/sub,start,end", 1},
    {"format", m_format, NULL, 0}, {"index", m_index, "/sub,start,end", 1}, {"isalnum", m_isalnum, "", 0}, {"isalpha", m_isalpha, "", 0},
    {"isascii", m_isascii, "", 0}, {"isdecimal", m_isdecimal, "", 0}, {"isdigit", m_isdigit, "", 0}, {"islower", m_islower, "", 0},
    {"isprintable", m_isprintable, "", 0}, {"isspace", m_isspace, "", 0}, {"isupper", m_isupper, "", 0}, {"join", m_join, "/iterable", 1},
    {"ljust", m_ljust, "/width,fill", 1}, {"lower", m_lower, "", 0}, {"lstrip", m_lstrip, "/chars", 0}, {"partition", m_partition, "/sep", 1},
    {"removeprefix", m_removeprefix, "/prefix", 1}, {"removesuffix", m_removesuffix, "/suffix", 1}, {"replace", m_replace, "/old,new,count", 2},
    {"rfind", m_rfind, "/sub,start,end", 1}, {"rindex", m_rindex, "/sub,start,end", 1}, {"rjust", m_rjust, "/width,fill", 1},
    {"rpartition", m_rpartition, "/sep", 1}, {"rsplit", m_rsplit, "sep,maxsplit", 0}, {"rstrip", m_rstrip, "/chars", 0},
    {"split", m_split, "sep,maxsplit", 0}, {"splitlines", m_splitlines, "keepends", 0}, {"startswith", m_startswith, "/prefix,start,end", 1},
    {"strip", m_strip, "/chars", 0}, {"swapcase", m_swapcase, "", 0}, {"title", m_title, "", 0}, {"upper", m_upper, "", 0},
    {"zfill", m_zfill, "/width", 1}, {0}};
static const jj_func dict_methods[] = {
    {"copy", m_copy, "", 0}, {"get", m_get, "/key,default", 1}, {"items", m_items, "", 0}, {"keys", m_keys, "", 0}, {"values", m_values, "", 0}, {0}};
static const jj_func list_methods[] = {
    {"copy", m_copy, "", 0}, {"count", m_seq_count, "/value", 1}, {"index", m_seq_index, "/value,start,stop", 1}, {0}};
static const jj_func cycler_methods[] = {{"next", m_next, "", 0}, {"reset", m_reset, "", 0}, {0}};
static const jj_func float_methods[] = {{"is_integer", m_is_integer, "", 0}, {0}};

static const jj_func *methods(jj_val v) {
  switch (v.tag) {
  case J_STR: return str_methods;
  case J_DICT: return dict_methods;
  case J_LIST: return list_methods;
  case J_TUPLE: return list_methods + 1; /* a tuple has no copy */
  case J_CYCLER: return cycler_methods;
  case J_FLOAT: return float_methods;
  default: return NULL;
  }
}

const jj_func *jj_method_find(jj_val v, str name) {
  for (const jj_func *m = methods(v); m && m->name; m++)
    if (str_is(name, m->name)) return m;
  return NULL;
}

static bool listed(const char *const *names, str name) {
  for (; *names; names++)
    if (str_is(name, *names)) return true;
  return false;
}

bool jj_method_known(jj_val v, str name) {
  static const char *const of_str[] = {"encode", "expandtabs", "format_map", "isidentifier", "isnumeric", "istitle", "maketrans", "translate", NULL};
  static const char *const of_num[] = {"real", "imag", "numerator", "denominator", "conjugate", "bit_length", "bit_count", "to_bytes", "from_bytes",
      "as_integer_ratio", "hex", "fromhex", NULL};
  static const char *const of_dict[] = {"fromkeys", NULL}, *const of_range[] = {"start", "stop", "step", "count", "index", NULL};
  switch (v.tag) {
  case J_STR: return listed(of_str, name);
  case J_BOOL:
  case J_INT:
  case J_FLOAT: return listed(of_num, name);
  case J_DICT: return listed(of_dict, name);
  case J_RANGE: return listed(of_range, name);
  default: return false;
  }
}

bool jj_method_unsafe(jj_val v, str name) {
  static const char *const of_list[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL};
  static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
  if (v.tag == J_LIST && listed(of_list, name)) return true;
  if (v.tag == J_DICT && listed(of_dict, name)) return true;
  return name.n > 4 && str_starts(name, STR("__")) && str_ends(name, STR("__")); /* Python's own attributes */
}
