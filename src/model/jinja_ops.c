/* Operators, attribute and element lookup, slices, membership: what Python does, with 64-bit integers that refuse to overflow. */
#include "model/jinja.h"
#include <math.h>
#include <stdio.h>

static bool is_num(jj_val v) { return v.tag == J_BOOL || v.tag == J_INT || v.tag == J_FLOAT; }
static double as_float(jj_val v) { return v.tag == J_FLOAT ? v.f : (double)jj_as_int(v); }

static const char *const op_names[] = {"+", "-", "*", "/", "//", "%", "**", "not", "-", "+", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

static bool overflow(jj_rt *rt) { return jj_fail(rt, "an integer result does not fit 64 bits"); }
static bool by_zero(jj_rt *rt) { return jj_fail(rt, "division by zero"); }

static bool unsupported(jj_rt *rt, jj_op op, jj_val a, jj_val b) {
  if (a.tag == J_UNDEF || b.tag == J_UNDEF) return jj_undef_fail(rt, a.tag == J_UNDEF ? a : b);
  return jj_fail(rt, "'%s' is not supported between a %s and a %s", op_names[op], jj_type_name(a), jj_type_name(b));
}

/* ---- arithmetic ---- */

static bool int_pow(jj_rt *rt, int64_t a, int64_t b, jj_val *ret) {
  if (b < 0) {
    if (!a) return by_zero(rt);
    *ret = jj_float(pow((double)a, (double)b));
    return true;
  }
  int64_t r = 1;
  while (b) {
    if ((b & 1) && __builtin_mul_overflow(r, a, &r)) return overflow(rt);
    b >>= 1;
    if (b && __builtin_mul_overflow(a, a, &a)) return overflow(rt);
  }
  *ret = jj_int(r);
  return true;
}

static bool int_op(jj_rt *rt, jj_op op, int64_t a, int64_t b, jj_val *ret) {
  int64_t r = 0;
  switch (op) {
  case OP_ADD:
    if (__builtin_add_overflow(a, b, &r)) return overflow(rt);
    break;
  case OP_SUB:
    if (__builtin_sub_overflow(a, b, &r)) return overflow(rt);
    break;
  case OP_MUL:
    if (__builtin_mul_overflow(a, b, &r)) return overflow(rt);
    break;
  case OP_DIV:
    if (!b) return by_zero(rt);
    *ret = jj_float((double)((long double)a / (long double)b));
    return true;
  case OP_FLOORDIV:
  case OP_MOD: /* rounds down: the remainder has the divisor's sign */
    if (!b) return by_zero(rt);
    if (b == -1) {
      if (op == OP_FLOORDIV && a == INT64_MIN) return overflow(rt);
      r = op == OP_MOD ? 0 : -a;
      break;
    }
    r = op == OP_MOD ? a % b : a / b;
    if (a % b && (a < 0) != (b < 0)) r += op == OP_MOD ? b : -1;
    break;
  default: return int_pow(rt, a, b, ret);
  }
  *ret = jj_int(r);
  return true;
}

static bool float_op(jj_rt *rt, jj_op op, double a, double b, jj_val *ret) {
  double r;
  switch (op) {
  case OP_ADD: r = a + b; break;
  case OP_SUB: r = a - b; break;
  case OP_MUL: r = a * b; break;
  case OP_DIV:
    if (b == 0) return by_zero(rt);
    r = a / b;
    break;
  case OP_FLOORDIV:
  case OP_MOD: {
    if (b == 0) return by_zero(rt);
    double m = fmod(a, b), d = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) {
      m += b;
      d -= 1;
    } else if (m == 0) m = copysign(0.0, b);
    if (d != 0) {
      double f = floor(d);
      r = d - f > 0.5 ? f + 1 : f;
    } else r = copysign(0.0, a / b);
    if (op == OP_MOD) r = m;
    break;
  }
  default:
    if (a == 0 && b < 0) return by_zero(rt);
    if (a < 0 && floor(b) != b && isfinite(b)) return jj_refuse(rt, "a power that is a complex number is not supported");
    r = pow(a, b);
    if (isinf(r) && isfinite(a) && isfinite(b)) return jj_fail(rt, "the result of ** is too large");
  }
  *ret = jj_float(r);
  return true;
}

static bool repeat(jj_rt *rt, jj_val v, int64_t times, jj_val *ret) {
  if (times < 0) times = 0;
  if (v.tag == J_STR) {
    jj_out o = {0};
    bool ok = true;
    size_t n;
    if (__builtin_mul_overflow(v.s->n, (size_t)times, &n) || n > JJ_MAX_OUTPUT)
      ok = jj_fail(rt, "makes a text of more than %zu MiB", JJ_MAX_OUTPUT >> 20);
    if (v.s->n)
      for (int64_t i = 0; ok && i < times; i++) ok = jj_put_part(rt, &o, v.s, 0, v.s->n);
    ok = ok && jj_take(rt, &o, ret);
    jj_out_fini(&o);
    if (ok) ret->s->html = v.s->html;
    return ok;
  }
  size_t n;
  if (__builtin_mul_overflow(v.q->n, (size_t)times, &n)) return overflow(rt);
  if (!jj_spend(rt, n) || !jj_seq_new(rt, v.tag, n, ret)) return false;
  for (size_t i = 0; i < n; i++) ret->q->v[i] = v.q->v[i % v.q->n];
  ret->q->n = n;
  return true;
}

/* Markup + text escapes the text, whichever side it is on. */
static bool add_strings(jj_rt *rt, jj_val a, jj_val b, jj_val *ret) {
  if (a.s->html != b.s->html) {
    jj_val *plain = a.s->html ? &b : &a;
    jj_val name = {.tag = J_STR, .s = &(jj_str){.p = "e", .n = 1, .len = 1}};
    if (!jj_filter_apply(rt, name, *plain, &(jj_argv){0}, plain)) return false;
  }
  if (!jj_concat(rt, a.s, b.s, ret)) return false;
  ret->s->html = a.s->html;
  return true;
}

static bool add_seqs(jj_rt *rt, jj_val a, jj_val b, jj_val *ret) {
  size_t n = a.q->n + b.q->n;
  if (!jj_spend(rt, n) || !jj_seq_new(rt, a.tag, n, ret)) return false;
  if (a.q->n) memcpy(ret->q->v, a.q->v, a.q->n * sizeof *a.q->v);
  if (b.q->n) memcpy(ret->q->v + a.q->n, b.q->v, b.q->n * sizeof *b.q->v);
  ret->q->n = n;
  return true;
}

bool jj_binary(jj_rt *rt, jj_op op, jj_val a, jj_val b, jj_val *ret) {
  if (is_num(a) && is_num(b)) {
    if (a.tag == J_FLOAT || b.tag == J_FLOAT) return float_op(rt, op, as_float(a), as_float(b), ret);
    return int_op(rt, op, jj_as_int(a), jj_as_int(b), ret);
  }
  if (op == OP_ADD) {
    if (a.tag == J_STR && b.tag == J_STR) return add_strings(rt, a, b, ret);
    if (a.tag == b.tag && (a.tag == J_LIST || a.tag == J_TUPLE)) return add_seqs(rt, a, b, ret);
  }
  if (op == OP_MUL) {
    bool sa = a.tag == J_STR || a.tag == J_LIST || a.tag == J_TUPLE, sb = b.tag == J_STR || b.tag == J_LIST || b.tag == J_TUPLE;
    if (sa && jj_is_intlike(b)) return repeat(rt, a, jj_as_int(b), ret);
    if (sb && jj_is_intlike(a)) return repeat(rt, b, jj_as_int(a), ret);
  }
  if (op == OP_MOD && a.tag == J_STR) return jj_percent(rt, a.s, b, ret);
  if (op == OP_SUB && (a.tag == J_VIEW || b.tag == J_VIEW)) return jj_refuse(rt, "set operations on dict views are not supported");
  return unsupported(rt, op, a, b);
}

bool jj_unary(jj_rt *rt, jj_op op, jj_val a, jj_val *ret) {
  if (op == OP_NOT) {
    *ret = jj_bool(!jj_truth(a));
    return true;
  }
  if (a.tag == J_FLOAT) {
    *ret = jj_float(op == OP_NEG ? -a.f : a.f);
    return true;
  }
  if (jj_is_intlike(a)) {
    int64_t i = jj_as_int(a);
    if (op == OP_NEG && i == INT64_MIN) return overflow(rt);
    *ret = jj_int(op == OP_NEG ? -i : i);
    return true;
  }
  if (a.tag == J_UNDEF) return jj_undef_fail(rt, a);
  return jj_fail(rt, "unary '%s' is not supported on a %s", op_names[op], jj_type_name(a));
}

/* ---- comparison, membership ---- */

bool jj_compare(jj_rt *rt, jj_op op, jj_val a, jj_val b, bool *ret) {
  int c;
  switch (op) {
  case OP_EQ: return jj_equal(rt, a, b, ret);
  case OP_NE:
    if (!jj_equal(rt, a, b, ret)) return false;
    *ret = !*ret;
    return true;
  case OP_IN: return jj_contains(rt, b, a, ret);
  case OP_NOTIN:
    if (!jj_contains(rt, b, a, ret)) return false;
    *ret = !*ret;
    return true;
  default: break;
  }
  if (!jj_order(rt, a, b, op_names[op], &c)) return false;
  *ret = c != 2 && (op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0);
  return true;
}

bool jj_contains(jj_rt *rt, jj_val box, jj_val x, bool *ret) {
  *ret = false;
  if (box.tag == J_STR) {
    if (x.tag == J_UNDEF) return jj_undef_fail(rt, x);
    if (x.tag != J_STR) return jj_fail(rt, "'in' on a string needs a string on the left, not a %s", jj_type_name(x));
    *ret = str_find(jj_view(box.s), jj_view(x.s)) >= 0;
    return jj_spend(rt, box.s->n / 64 + 1);
  }
  if (box.tag == J_DICT || (box.tag == J_VIEW && box.sub == 0)) {
    uint64_t h;
    jj_val v;
    if (!jj_hash(rt, x, &h)) return jj_fail(rt, "a %s cannot be a dict key", jj_type_name(x));
    *ret = jj_dict_get(rt, box.d, x, &v);
    return true;
  }
  if (box.tag < J_STR && box.tag != J_UNDEF) return jj_fail(rt, "'in' is not supported on a %s", jj_type_name(box));
  jj_iter *it = jj_iter_of(rt, box);
  jj_val v;
  int r;
  if (!it) return false;
  while ((r = jj_next(rt, it, &v)) > 0) {
    if (!jj_equal(rt, v, x, ret)) return false;
    if (*ret) return true;
  }
  return r == 0;
}

bool jj_len(jj_rt *rt, jj_val v, size_t *ret) {
  int64_t n;
  switch (v.tag) {
  case J_UNDEF: *ret = 0; return true;
  case J_STR: *ret = jj_str_len(v.s); return true;
  case J_LIST:
  case J_TUPLE: *ret = v.q->n; return true;
  case J_DICT:
  case J_VIEW: *ret = v.d->n; return true;
  case J_RANGE: *ret = (size_t)v.r->n; return true;
  case J_LOOP:
    if (!jj_loop_length(rt, v.lo, &n)) return false;
    *ret = (size_t)n;
    return true;
  case J_ITER: return jj_fail(rt, "a generator has no length; put |list before it");
  default: return jj_fail(rt, "a value of type %s has no length", jj_type_name(v));
  }
}

/* ---- lookup ---- */

/* Wraps instead of overflowing: i may be one past the end. */
int64_t jj_range_at(const jj_range *r, int64_t i) { return (int64_t)((uint64_t)r->start + (uint64_t)r->step * (uint64_t)i); }

static jj_val undef_attr(jj_val o, const str *name, uint8_t why) { return (jj_val){.tag = J_UNDEF, .sub = why, .owner = o.tag, .name = name}; }

/* Attributes that are not elements: methods, loop variables, namespace members. *ret_found false: there is none. */
static bool own_attr(jj_rt *rt, jj_val o, const str *name, jj_val *ret, bool *ret_found) {
  *ret_found = true;
  if (o.tag == J_NS) {
    *ret_found = jj_dict_gets(rt, o.d, *name, ret);
    return true;
  }
  if (o.tag == J_LOOP) return jj_loop_attr(rt, o.lo, *name, ret, ret_found);
  if (o.tag == J_MACRO && str_is(*name, "name")) return jj_str_new(rt, jj_macro_name(o.m), JT_YES, ret);
  if (o.tag == J_CYCLER && str_is(*name, "current")) {
    *ret = o.cy->v[o.cy->pos];
    return true;
  }
  if (o.tag == J_TUPLE && o.sub == J_GROUP && (str_is(*name, "grouper") || str_is(*name, "list"))) {
    *ret = o.q->v[str_is(*name, "list")];
    return true;
  }
  const jj_func *f = jj_method_find(o, *name);
  if (f) {
    jj_method *m = jj_alloc(rt, 1, sizeof *m);
    if (!m) return false;
    *m = (jj_method){o, f};
    *ret = (jj_val){.tag = J_METHOD, .me = m};
    return true;
  }
  if (jj_method_unsafe(o, *name)) {
    *ret = undef_attr(o, name, JU_UNSAFE);
    return true;
  }
  if (jj_method_known(o, *name)) return jj_refuse(rt, "method '%.*s' of a %s is not supported", (int)name->n, name->p, jj_type_name(o));
  *ret_found = false;
  return true;
}

bool jj_attr(jj_rt *rt, jj_val o, const str *name, jj_val *ret) {
  bool found;
  if (o.tag == J_UNDEF) return jj_undef_fail(rt, o);
  if (!own_attr(rt, o, name, ret, &found)) return false;
  if (found || (o.tag == J_DICT && jj_dict_gets(rt, o.d, *name, ret))) return true;
  *ret = undef_attr(o, name, JU_ATTR);
  return true;
}

static bool at_index(jj_rt *rt, jj_val o, int64_t i, jj_val *ret, bool *ret_found) {
  size_t n;
  if (!jj_len(rt, o, &n)) return false;
  if (i < 0) i += (int64_t)n;
  *ret_found = i >= 0 && (uint64_t)i < n;
  if (!*ret_found) return true;
  if (o.tag == J_RANGE) *ret = jj_int(jj_range_at(o.r, i));
  else if (o.tag != J_STR) *ret = o.q->v[i];
  else {
    int l;
    size_t off = jj_str_at(o.s, (size_t)i);
    jj_cp(o.s->p + off, o.s->p + o.s->n, &l);
    return jj_str_sub(rt, o.s, off, (size_t)l, ret) && jj_spend(rt, o.s->len == o.s->n ? 0 : off / 64);
  }
  return true;
}

bool jj_item(jj_rt *rt, jj_val o, jj_val key, jj_val *ret) {
  bool found = false;
  if (o.tag == J_UNDEF) return jj_undef_fail(rt, o);
  if (o.tag == J_DICT) {
    if (jj_dict_get(rt, o.d, key, ret)) return true;
  } else if (jj_is_intlike(key) && (o.tag == J_LIST || o.tag == J_TUPLE || o.tag == J_STR || o.tag == J_RANGE)) {
    if (!at_index(rt, o, jj_as_int(key), ret, &found)) return false;
    if (found) return true;
  }
  if (key.tag != J_STR) {
    *ret = jj_undef("the value has no such element");
    return true;
  }
  str *name = jj_alloc(rt, 1, sizeof *name);
  if (!name) return false;
  *name = jj_view(key.s);
  if (!own_attr(rt, o, name, ret, &found)) return false;
  if (!found) *ret = undef_attr(o, name, JU_ATTR);
  return true;
}

/* ---- slices ---- */

static bool slice_index(jj_rt *rt, jj_val v, int64_t dflt, int64_t n, bool back, int64_t *ret) {
  if (jj_is_none(v)) {
    *ret = dflt;
    return true;
  }
  if (v.tag == J_UNDEF) return jj_fail(rt, "a slice bound is undefined; it must be an integer or none");
  if (!jj_is_intlike(v)) return jj_fail(rt, "a slice bound must be an integer or none, not a %s", jj_type_name(v));
  int64_t i = jj_as_int(v);
  if (i < 0) i = i < -n ? (back ? -1 : 0) : i + n;
  else if (i > n - back) i = n - back;
  *ret = i;
  return true;
}

static bool slice_str(jj_rt *rt, jj_str *s, int64_t a, int64_t count, int64_t step, jj_val *ret) {
  if (!jj_spend(rt, s->n / 64)) return false;
  if (step == 1) {
    size_t off = jj_str_at(s, (size_t)a), end = jj_str_at(s, (size_t)(a + count));
    return jj_str_sub(rt, s, off, end - off, ret);
  }
  size_t n = jj_str_len(s), *offs = NULL;
  if (n != s->n) { /* offsets of all code points, so that any step is one look-up */
    if (!(offs = jj_alloc(rt, n + 1, sizeof *offs))) return false;
    for (size_t i = 0, k = 0; i < s->n; i++)
      if (((unsigned char)s->p[i] & 0xC0) != 0x80) offs[k++] = i;
    offs[n] = s->n;
  }
  jj_out o = {0};
  bool ok = true;
  for (int64_t k = 0; ok && k < count; k++) {
    size_t i = (size_t)(a + k * step), off = offs ? offs[i] : i;
    ok = jj_put_part(rt, &o, s, off, (offs ? offs[i + 1] : i + 1) - off);
  }
  ok = ok && jj_take(rt, &o, ret);
  if (ok) ret->s->html = s->html;
  jj_out_fini(&o);
  return ok;
}

bool jj_slice(jj_rt *rt, jj_val o, jj_val start, jj_val stop, jj_val step, jj_val *ret) {
  if (o.tag == J_UNDEF) return jj_undef_fail(rt, o);
  if (o.tag != J_STR && o.tag != J_LIST && o.tag != J_TUPLE && o.tag != J_RANGE) return jj_fail(rt, "a %s cannot be sliced", jj_type_name(o));
  size_t len;
  if (!jj_len(rt, o, &len)) return false;
  int64_t n = (int64_t)len, by = 1, a, b;
  if (!jj_is_none(step)) {
    if (!jj_is_intlike(step)) return jj_fail(rt, "the step of a slice must be an integer, not a %s", jj_type_name(step));
    by = jj_as_int(step);
    if (!by) return jj_fail(rt, "the step of a slice cannot be 0");
    if (by > n + 1) by = n + 1; /* beyond the length all steps are alike */
    if (by < -n - 1) by = -n - 1;
  }
  bool back = by < 0;
  if (!slice_index(rt, start, back ? n - 1 : 0, n, back, &a) || !slice_index(rt, stop, back ? -1 : n, n, back, &b)) return false;
  int64_t count = back ? (a > b ? (a - b - by - 1) / -by : 0) : a < b ? (b - a + by - 1) / by : 0;
  if (o.tag == J_STR) return slice_str(rt, o.s, count ? a : 0, count, by, ret);
  if (o.tag == J_RANGE) {
    jj_range *r = jj_alloc(rt, 1, sizeof *r);
    if (!r) return false;
    *r = (jj_range){jj_range_at(o.r, a), jj_range_at(o.r, b), (int64_t)((uint64_t)o.r->step * (uint64_t)by), count};
    *ret = (jj_val){.tag = J_RANGE, .r = r};
    return true;
  }
  if (!jj_spend(rt, (size_t)count) || !jj_seq_new(rt, o.tag, (size_t)count, ret)) return false;
  for (int64_t k = 0; k < count; k++) ret->q->v[k] = o.q->v[a + k * by];
  ret->q->n = (size_t)count;
  return true;
}
