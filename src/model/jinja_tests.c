/* The tests behind `is`, and those that select and reject name as strings. */
#include "model/jinja.h"

static bool yes(jj_val *ret, bool b) {
  *ret = jj_bool(b);
  return true;
}

static bool t_defined(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag != J_UNDEF);
}
static bool t_undefined(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_UNDEF);
}
static bool t_none(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_NONE);
}
static bool t_boolean(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_BOOL);
}
static bool t_true(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_BOOL && c->self.b);
}
static bool t_false(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_BOOL && !c->self.b);
}
static bool t_integer(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_INT);
}
static bool t_float(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_FLOAT);
}
static bool t_number(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, jj_is_intlike(c->self) || c->self.tag == J_FLOAT);
}
static bool t_string(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_STR);
}
static bool t_mapping(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_DICT);
}
static bool t_escaped(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_STR && c->self.s->html);
}

/* Has a length and can be subscripted: a dict counts, a generator or a dict view does not. */
static bool t_sequence(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  jj_tag t = c->self.tag;
  return yes(ret, t == J_STR || t == J_LIST || t == J_TUPLE || t == J_DICT || t == J_RANGE || t == J_UNDEF);
}

static bool t_iterable(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  jj_tag t = c->self.tag;
  return yes(ret, (t >= J_STR && t <= J_ITER) || t == J_UNDEF || t == J_LOOP);
}

static bool t_callable(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  jj_tag t = c->self.tag; /* an undefined value has __call__, which then fails */
  return yes(ret, t == J_MACRO || t == J_FUNC || t == J_METHOD || t == J_JOINER || t == J_LOOP || t == J_UNDEF);
}

static bool t_mod(jj_rt *rt, jj_call *c, jj_val by, int64_t want, jj_val *ret) {
  jj_val m;
  bool eq;
  return jj_binary(rt, OP_MOD, c->self, by, &m) && jj_equal(rt, m, jj_int(want), &eq) && yes(ret, eq);
}
static bool t_odd(jj_rt *rt, jj_call *c, jj_val *ret) { return t_mod(rt, c, jj_int(2), 1, ret); }
static bool t_even(jj_rt *rt, jj_call *c, jj_val *ret) { return t_mod(rt, c, jj_int(2), 0, ret); }
static bool t_divisibleby(jj_rt *rt, jj_call *c, jj_val *ret) { return t_mod(rt, c, c->a[0], 0, ret); }

static bool t_sameas(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  jj_val a = c->self, b = c->a[0];
  if (a.tag != b.tag) return yes(ret, false);
  switch (a.tag) {
  case J_NONE: return yes(ret, true);
  case J_BOOL: return yes(ret, a.b == b.b);
  case J_INT: return yes(ret, a.i == b.i && a.i >= -5 && a.i <= 256); /* the integers that CPython keeps one object each of */
  case J_FLOAT:
  case J_UNDEF: return yes(ret, false);
  default: return yes(ret, a.p == b.p);
  }
}

/* Cased letters, and all of one case. */
static bool all_case(jj_rt *rt, jj_val v, bool upper, jj_val *ret) {
  jj_str *s;
  bool any = false;
  if (!jj_to_str(rt, v, &s) || !jj_spend(rt, s->n / 16)) return false;
  for (size_t i = 0; i < s->n;) {
    int l;
    uint32_t cp = jj_cp(s->p + i, s->p + s->n, &l);
    if (jj_is_cased(cp)) {
      if (upper ? !jj_is_upper(cp) : !jj_is_lower(cp)) return yes(ret, false);
      any = true;
    }
    i += (size_t)l;
  }
  return yes(ret, any);
}
static bool t_lower(jj_rt *rt, jj_call *c, jj_val *ret) { return all_case(rt, c->self, false, ret); }
static bool t_upper(jj_rt *rt, jj_call *c, jj_val *ret) { return all_case(rt, c->self, true, ret); }

static bool compare(jj_rt *rt, jj_call *c, jj_op op, jj_val *ret) {
  bool b;
  return jj_compare(rt, op, c->self, c->a[0], &b) && yes(ret, b);
}
static bool t_eq(jj_rt *rt, jj_call *c, jj_val *ret) { return compare(rt, c, OP_EQ, ret); }
static bool t_ne(jj_rt *rt, jj_call *c, jj_val *ret) { return compare(rt, c, OP_NE, ret); }
static bool t_lt(jj_rt *rt, jj_call *c, jj_val *ret) { return compare(rt, c, OP_LT, ret); }
static bool t_le(jj_rt *rt, jj_call *c, jj_val *ret) { return compare(rt, c, OP_LE, ret); }
static bool t_gt(jj_rt *rt, jj_call *c, jj_val *ret) { return compare(rt, c, OP_GT, ret); }
static bool t_ge(jj_rt *rt, jj_call *c, jj_val *ret) { return compare(rt, c, OP_GE, ret); }
static bool t_in(jj_rt *rt, jj_call *c, jj_val *ret) { return compare(rt, c, OP_IN, ret); }

static bool t_filter(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_STR && (jj_filter_find(jj_view(c->self.s)) || jj_filter_known(jj_view(c->self.s))));
}
static bool t_test(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)rt;
  return yes(ret, c->self.tag == J_STR && jj_test_find(jj_view(c->self.s)));
}

static const jj_func tests[] = {
    {"odd", t_odd, "", 0},
    {"even", t_even, "", 0},
    {"divisibleby", t_divisibleby, "num", 1},
    {"defined", t_defined, "", 0},
    {"undefined", t_undefined, "", 0},
    {"filter", t_filter, "", 0},
    {"test", t_test, "", 0},
    {"none", t_none, "", 0},
    {"boolean", t_boolean, "", 0},
    {"false", t_false, "", 0},
    {"true", t_true, "", 0},
    {"integer", t_integer, "", 0},
    {"float", t_float, "", 0},
    {"lower", t_lower, "", 0},
    {"upper", t_upper, "", 0},
    {"string", t_string, "", 0},
    {"mapping", t_mapping, "", 0},
    {"number", t_number, "", 0},
    {"sequence", t_sequence, "", 0},
    {"iterable", t_iterable, "", 0},
    {"callable", t_callable, "", 0},
    {"sameas", t_sameas, "other", 1},
    {"escaped", t_escaped, "", 0},
    {"in", t_in, "seq", 1},
    {"==", t_eq, "/b", 1},
    {"eq", t_eq, "/b", 1},
    {"equalto", t_eq, "/b", 1},
    {"!=", t_ne, "/b", 1},
    {"ne", t_ne, "/b", 1},
    {">", t_gt, "/b", 1},
    {"gt", t_gt, "/b", 1},
    {"greaterthan", t_gt, "/b", 1},
    {"ge", t_ge, "/b", 1},
    {">=", t_ge, "/b", 1},
    {"<", t_lt, "/b", 1},
    {"lt", t_lt, "/b", 1},
    {"lessthan", t_lt, "/b", 1},
    {"<=", t_le, "/b", 1},
    {"le", t_le, "/b", 1},
};

const jj_func *jj_test_find(str name) {
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    if (str_is(name, tests[i].name)) return &tests[i];
  return NULL;
}

bool jj_test_apply(jj_rt *rt, jj_val name, jj_val v, const jj_argv *args, bool *ret) {
  if (name.tag != J_STR) return jj_fail(rt, "the name of a test must be a string, not a %s", jj_type_name(name));
  const jj_func *f = jj_test_find(jj_view(name.s));
  jj_val r;
  if (!f) return jj_fail(rt, "no test named '%.*s'", (int)(name.s->n < 60 ? name.s->n : 60), name.s->p);
  if (!jj_func_call(rt, f, "test", v, args, &r)) return false;
  *ret = jj_truth(r);
  return true;
}
