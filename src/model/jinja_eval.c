/* Walks the tree: expressions to values, statements to output, calls to macros and built-ins.
 * Each function of the template (the whole, a macro, the body of a call) has an activation: its slots, and the activation it stands in. */
#include "model/jinja_ast.h"

/* How a statement ended. */
typedef enum flow { GO_ON, BREAK, CONTINUE, FAILED } flow;

typedef struct env {
  jj_rt *rt;
  jj_act *act;
  jj_val block; /* what a filter block captured */
} env;

static bool eval(env *x, const jj_node *n, jj_val *ret);
static flow exec_list(env *x, const jj_list *l);

static bool enter(jj_rt *rt, int line) {
  rt->line = line;
  if (++rt->depth > JJ_MAX_DEPTH) return jj_fail(rt, "macros and expressions are nested deeper than %d levels", JJ_MAX_DEPTH);
  return jj_spend(rt, 1);
}

/* ---- variables ---- */

static jj_val *slot(jj_act *a, jj_ref r) {
  while (r.up-- > 0) a = a->up;
  return &a->v[r.slot];
}

static void enter_frame(env *x, const jj_frame *f) {
  for (int i = 0; i < f->n; i++) {
    const jj_load *l = &f->v[i];
    jj_val *v = &x->act->v[l->slot];
    if (l->how == LOAD_UNSET) *v = (jj_val){0};
    else if (l->how == LOAD_ALIAS) *v = *slot(x->act, l->from);
    else if (l->how == LOAD_RESOLVE && !jj_dict_gets(x->rt, x->rt->vars, l->name, v)) *v = (jj_val){0};
  }
}

static void leave_frame(env *x, const jj_frame *f) {
  for (int i = 0; i < f->n; i++) x->act->v[f->v[i].slot] = (jj_val){0};
}

static bool ns_set(jj_rt *rt, jj_val ns, str attr, jj_val v) {
  if (ns.tag != J_NS) return jj_fail(rt, "cannot assign attribute '%.*s': the object is not a namespace", (int)attr.n, attr.p);
  if (attr.n && attr.p[0] == '_') return jj_fail(rt, "namespace attributes cannot begin with an underscore: '%.*s'", (int)attr.n, attr.p);
  jj_val k;
  return jj_str_new(rt, attr, JT_YES, &k) && jj_dict_set(rt, ns.d, k, v);
}

static bool assign(env *x, const jj_node *t, jj_val v) {
  if (t->kind == N_NAME) {
    *slot(x->act, t->name.ref) = v;
    return true;
  }
  if (t->kind == N_NSREF) return ns_set(x->rt, *slot(x->act, t->name.ref), t->name.attr, v);
  jj_iter *it = jj_iter_of(x->rt, v);
  jj_val e;
  int r = it ? 1 : -1, n = t->seq.n, got = 0;
  for (; r > 0 && got <= n; got++) {
    if ((r = jj_next(x->rt, it, &e)) <= 0) break;
    if (got < n && !assign(x, t->seq.v[got], e)) return false;
  }
  if (r < 0) return false;
  return got == n || jj_fail(x->rt, "%s values to unpack: expected %d", got < n ? "not enough" : "too many", n);
}

/* ---- arguments ---- */

static bool star_kw(jj_rt *rt, jj_val d, jj_argv *a, size_t cap) {
  if (d.tag != J_DICT) return jj_fail(rt, "what stands behind ** must be a dict, not a %s", jj_type_name(d));
  for (size_t i = 0; i < d.d->n; i++) {
    jj_val k = d.d->v[i].k;
    if (k.tag != J_STR) return jj_fail(rt, "keyword names must be strings, not a %s", jj_type_name(k));
    for (size_t j = 0; j < a->n_kw; j++)
      if (str_eq(a->kw[j].name, jj_view(k.s))) return jj_fail(rt, "keyword argument '%.*s' is given twice", (int)k.s->n, k.s->p);
    if (a->n_kw == cap) return jj_fail(rt, "more than %zu keyword arguments in one call", cap);
    a->kw[a->n_kw++] = (jj_kwarg){jj_view(k.s), d.d->v[i].v};
  }
  return true;
}

/* extra: an argument `caller` to add, or J_MISSING. */
static bool eval_args(env *x, const jj_args *a, jj_val extra, jj_argv *ret) {
  *ret = (jj_argv){0};
  jj_val pos, star, star2 = {0};
  if (!a && extra.tag == J_MISSING) return true;
  size_t n_kw = a ? (size_t)a->n_kw : 0;
  if (!jj_seq_new(x->rt, J_LIST, a ? (size_t)a->pos.n : 0, &pos)) return false;
  for (int i = 0; a && i < a->pos.n; i++) {
    jj_val v;
    if (!eval(x, a->pos.v[i], &v) || !jj_seq_add(x->rt, pos.q, v)) return false;
  }
  if (a && a->star) {
    jj_iter *it;
    jj_val v;
    int r;
    if (!eval(x, a->star, &star) || !(it = jj_iter_of(x->rt, star))) return false;
    while ((r = jj_next(x->rt, it, &v)) > 0)
      if (!jj_seq_add(x->rt, pos.q, v)) return false;
    if (r < 0) return false;
  }
  ret->v = pos.q->v;
  ret->n = pos.q->n;
  size_t cap = n_kw + 1 + (a && a->star2 ? 64 : 0);
  if (!(ret->kw = jj_alloc(x->rt, cap, sizeof *ret->kw))) return false;
  for (size_t i = 0; i < n_kw; i++) {
    if (!eval(x, a->kw[i].val, &ret->kw[i].val)) return false;
    ret->kw[i].name = a->kw[i].name;
    ret->n_kw++;
  }
  if (a && a->star2 && (!eval(x, a->star2, &star2) || !star_kw(x->rt, star2, ret, cap - 1))) return false;
  if (extra.tag != J_MISSING) ret->kw[ret->n_kw++] = (jj_kwarg){STR("caller"), extra};
  return true;
}

/* ---- calls ---- */

str jj_macro_name(const struct jj_macro *m) { return m->fn->name; }

static bool take_kw(jj_argv *a, str name, jj_val *ret) {
  for (size_t i = 0; i < a->n_kw; i++)
    if (str_eq(a->kw[i].name, name)) {
      *ret = a->kw[i].val;
      memmove(&a->kw[i], &a->kw[i + 1], (a->n_kw - i - 1) * sizeof *a->kw);
      a->n_kw--;
      return true;
    }
  return false;
}

/* Positional arguments first, then keywords, then what the body asks for by the names caller, kwargs and varargs. `left` is used up. */
static bool bind_macro(jj_rt *rt, const jj_fn *fn, jj_act *act, jj_argv *left) {
  size_t np = (size_t)fn->params.n, given = left->n < np ? left->n : np;
  for (size_t i = 0; i < np; i++) {
    jj_val *v = &act->v[fn->params.v[i]->name.ref.slot];
    if (i < given) *v = left->v[i];
    else take_kw(left, fn->params.v[i]->name.id, v);
  }
  if (fn->caller_slot >= 0) {
    jj_val *v = &act->v[fn->caller_slot];
    if (!take_kw(left, STR("caller"), v)) *v = jj_undef("no caller is defined");
  }
  if (fn->kwargs_slot >= 0) {
    jj_val d, k;
    if (!jj_dict_new(rt, J_DICT, &d)) return false;
    for (size_t i = 0; i < left->n_kw; i++)
      if (!jj_str_new(rt, left->kw[i].name, JT_YES, &k) || !jj_dict_set(rt, d.d, k, left->kw[i].val)) return false;
    act->v[fn->kwargs_slot] = d;
  } else if (left->n_kw) {
    str k = left->kw[0].name;
    return jj_fail(rt, "macro '%.*s' takes no keyword argument '%.*s'", (int)fn->name.n, fn->name.p, (int)k.n, k.p);
  }
  if (fn->varargs_slot >= 0) {
    jj_val t;
    if (!jj_seq_new(rt, J_TUPLE, left->n - given, &t)) return false;
    for (size_t i = given; i < left->n; i++)
      if (!jj_seq_add(rt, t.q, left->v[i])) return false;
    act->v[fn->varargs_slot] = t;
  } else if (left->n > np)
    return jj_fail(rt, "macro '%.*s' takes not more than %zu argument(s), %zu given", (int)fn->name.n, fn->name.p, np, left->n);
  return true;
}

static bool param_defaults(env *x, const jj_fn *fn) {
  int first = fn->params.n - fn->defaults.n;
  for (int i = 0; i < fn->params.n; i++) {
    const jj_node *p = fn->params.v[i];
    jj_val *v = &x->act->v[p->name.ref.slot];
    if (v->tag != J_MISSING) continue;
    if (i < first) *v = (jj_val){.tag = J_UNDEF, .sub = JU_NAME, .name = &p->name.id};
    else if (!eval(x, fn->defaults.v[i - first], v)) return false;
  }
  return true;
}

/* Runs fn with its output captured. */
static bool run_captured(env *x, const jj_list *body, jj_val *ret) {
  jj_out own = {0}, *was = x->rt->out;
  x->rt->out = &own;
  flow f = exec_list(x, body);
  x->rt->out = was;
  bool ok = f == GO_ON && jj_take(x->rt, &own, ret);
  jj_out_fini(&own);
  return ok;
}

static bool call_macro(jj_rt *rt, const struct jj_macro *m, const jj_argv *args, jj_val *ret) {
  const jj_fn *fn = m->fn;
  int line = rt->line;
  jj_act *act = jj_alloc(rt, 1, sizeof *act);
  if (!act || !(act->v = jj_alloc(rt, (size_t)fn->n_slots, sizeof *act->v))) return false;
  act->up = m->up;
  env x = {.rt = rt, .act = act};
  jj_argv left = *args;
  if (left.n_kw) { /* binding removes from the list */
    if (!(left.kw = jj_alloc(rt, left.n_kw, sizeof *left.kw))) return false;
    memcpy(left.kw, args->kw, left.n_kw * sizeof *left.kw);
  }
  if (!enter(rt, line)) return false;
  if (!bind_macro(rt, fn, act, &left)) return false;
  enter_frame(&x, &fn->frame);
  if (!param_defaults(&x, fn) || !run_captured(&x, &fn->body, ret)) return false;
  rt->depth--;
  rt->line = line;
  return true;
}

bool jj_func_call(jj_rt *rt, const jj_func *f, const char *kind, jj_val self, const jj_argv *args, jj_val *ret) {
  jj_call c = {.self = self, .raw = args, .fn = f};
  if (!f->params) return f->fn(rt, &c, ret);
  const char *p = f->params;
  bool pos_only = *p == '/';
  p += pos_only;
  int n = 0;
  size_t used_kw = 0;
  for (; *p; n++) {
    const char *comma = strchrnul(p, ',');
    str name = {p, (size_t)(comma - p)};
    p = *comma ? comma + 1 : comma;
    if ((size_t)n < args->n) c.a[n] = args->v[n];
    for (size_t i = 0; !pos_only && i < args->n_kw; i++) {
      if (!str_eq(args->kw[i].name, name)) continue;
      if ((size_t)n < args->n) return jj_fail(rt, "%s '%s' has its argument '%.*s' twice", kind, f->name, (int)name.n, name.p);
      c.a[n] = args->kw[i].val;
      used_kw++;
    }
    if (n < f->need && c.a[n].tag == J_MISSING) return jj_fail(rt, "%s '%s' needs its argument '%.*s'", kind, f->name, (int)name.n, name.p);
  }
  if (args->n > (size_t)n) return jj_fail(rt, "%s '%s' takes at most %d argument(s), %zu given", kind, f->name, n, args->n);
  if (used_kw < args->n_kw) return jj_fail(rt, "%s '%s' has a keyword argument that it does not take", kind, f->name);
  return f->fn(rt, &c, ret);
}

bool jj_call_value(jj_rt *rt, jj_val f, const jj_argv *args, jj_val *ret) {
  switch (f.tag) {
  case J_UNDEF: return jj_undef_fail(rt, f);
  case J_MACRO: return call_macro(rt, f.m, args, ret);
  case J_METHOD: return jj_func_call(rt, f.me->fn, "method", f.me->self, args, ret);
  case J_FUNC: return jj_global_call(rt, f.fn, args, ret);
  case J_JOINER:
    if (args->n || args->n_kw) return jj_fail(rt, "a joiner takes no arguments");
    if (f.cy->used) {
      *ret = f.cy->v[0];
      return true;
    }
    f.cy->used = true;
    return jj_str_new(rt, STR(""), JT_YES, ret);
  case J_LOOP: return jj_refuse(rt, "recursive loops are not supported");
  default: return jj_fail(rt, "a value of type %s cannot be called", jj_type_name(f));
  }
}

/* ---- expressions ---- */

static bool eval_seq(env *x, const jj_node *n, jj_val *ret) {
  if (!jj_seq_new(x->rt, n->kind == N_LIST ? J_LIST : J_TUPLE, (size_t)n->seq.n, ret)) return false;
  for (int i = 0; i < n->seq.n; i++) {
    jj_val v;
    if (!eval(x, n->seq.v[i], &v) || !jj_seq_add(x->rt, ret->q, v)) return false;
  }
  return true;
}

static bool eval_dict(env *x, const jj_node *n, jj_val *ret) {
  if (!jj_dict_new(x->rt, J_DICT, ret)) return false;
  for (int i = 0; i < n->seq.n; i += 2) {
    jj_val k, v;
    if (!eval(x, n->seq.v[i], &k) || !eval(x, n->seq.v[i + 1], &v) || !jj_dict_set(x->rt, ret->d, k, v)) return false;
  }
  return true;
}

static bool eval_concat(env *x, const jj_node *n, jj_val *ret) {
  jj_str *acc = NULL, *s;
  for (int i = 0; i < n->seq.n; i++) {
    jj_val v;
    if (!eval(x, n->seq.v[i], &v) || !jj_to_str(x->rt, v, &s)) return false;
    if (!acc) acc = s;
    else if (!jj_concat(x->rt, acc, s, &v)) return false;
    else acc = v.s;
  }
  *ret = (jj_val){.tag = J_STR, .s = acc};
  return true;
}

static bool eval_compare(env *x, const jj_node *n, jj_val *ret) {
  jj_val a, b;
  if (!eval(x, n->cmp.first, &a)) return false;
  for (int i = 0; i < n->cmp.n; i++) {
    bool ok;
    if (!eval(x, n->cmp.rhs[i], &b)) return false;
    x->rt->line = n->line;
    if (!jj_compare(x->rt, (jj_op)n->cmp.ops[i], a, b, &ok)) return false;
    *ret = jj_bool(ok);
    if (!ok) return true;
    a = b;
  }
  return true;
}

static bool eval_item(env *x, const jj_node *n, jj_val *ret) {
  jj_val o, k[3] = {{0}};
  if (!eval(x, n->sub.a, &o)) return false;
  const jj_node *b = n->sub.b;
  if (b->kind != N_SLICE) return eval(x, b, &k[0]) && (x->rt->line = n->line, jj_item(x->rt, o, k[0], ret));
  if ((b->sub.a && !eval(x, b->sub.a, &k[0])) || (b->sub.b && !eval(x, b->sub.b, &k[1])) || (b->sub.c && !eval(x, b->sub.c, &k[2]))) return false;
  x->rt->line = n->line;
  return jj_slice(x->rt, o, k[0], k[1], k[2], ret);
}

static bool eval_named(env *x, const jj_node *n, jj_val *ret) {
  jj_val self = x->block;
  jj_argv args;
  bool filter = n->kind == N_FILTER;
  if (n->call.base && !eval(x, n->call.base, &self)) return false;
  if (!eval_args(x, n->call.args, (jj_val){0}, &args)) return false;
  x->rt->line = n->line;
  if (!n->call.def) {
    bool known = filter && jj_filter_known(n->call.id);
    return known ? jj_refuse(x->rt, "filter '%.*s' is not supported", (int)n->call.id.n, n->call.id.p)
                 : jj_fail(x->rt, "no %s named '%.*s'", filter ? "filter" : "test", (int)n->call.id.n, n->call.id.p);
  }
  return jj_func_call(x->rt, n->call.def, filter ? "filter" : "test", self, &args, ret);
}

/* caller: what a call block hands over, or J_MISSING. */
static bool eval_call(env *x, const jj_node *n, jj_val caller, jj_val *ret) {
  jj_val f;
  jj_argv args;
  if (!eval(x, n->call.base, &f) || !eval_args(x, n->call.args, caller, &args)) return false;
  x->rt->line = n->line;
  return jj_call_value(x->rt, f, &args, ret);
}

static bool eval_kind(env *x, const jj_node *n, jj_val *ret) {
  jj_val a, b;
  switch ((jj_kind)n->kind) {
  case N_CONST: *ret = n->val; return true;
  case N_NAME:
    *ret = *slot(x->act, n->name.ref);
    if (ret->tag == J_MISSING) *ret = (jj_val){.tag = J_UNDEF, .sub = JU_NAME, .name = &n->name.id};
    return true;
  case N_LIST:
  case N_TUPLE: return eval_seq(x, n, ret);
  case N_DICT: return eval_dict(x, n, ret);
  case N_CONCAT: return eval_concat(x, n, ret);
  case N_UNARY:
    if (!eval(x, n->sub.a, &a)) return false;
    x->rt->line = n->line;
    return jj_unary(x->rt, (jj_op)n->op, a, ret);
  case N_BINARY:
    if (!eval(x, n->sub.a, &a) || !eval(x, n->sub.b, &b)) return false;
    x->rt->line = n->line;
    return jj_binary(x->rt, (jj_op)n->op, a, b, ret);
  case N_AND:
  case N_OR: /* the deciding operand is the value */
    if (!eval(x, n->sub.a, ret)) return false;
    return jj_truth(*ret) == (n->kind == N_OR) || eval(x, n->sub.b, ret);
  case N_COMPARE: return eval_compare(x, n, ret);
  case N_COND:
    if (!eval(x, n->sub.a, &a)) return false;
    if (jj_truth(a)) return eval(x, n->sub.b, ret);
    if (n->sub.c) return eval(x, n->sub.c, ret);
    *ret = jj_undef("an inline if was false and has no else");
    return true;
  case N_ATTR:
    if (!eval(x, n->attr.base, &a)) return false;
    x->rt->line = n->line;
    return jj_attr(x->rt, a, &n->attr.id, ret);
  case N_ITEM: return eval_item(x, n, ret);
  case N_CALL: return eval_call(x, n, (jj_val){0}, ret);
  case N_FILTER:
  case N_TEST: return eval_named(x, n, ret);
  default: return jj_fail(x->rt, "a slice stands where a value is expected");
  }
}

static bool eval(env *x, const jj_node *n, jj_val *ret) {
  if (!enter(x->rt, n->line) || !eval_kind(x, n, ret)) return false;
  x->rt->depth--;
  return true;
}

/* ---- loops ---- */

/* `for x in xs if test`: what the loop sees of xs. Lazy, as the test may read what the body changes. */
typedef struct tested {
  env x;
  const jj_for *f;
} tested;

static int next_tested(jj_rt *rt, jj_iter *it, jj_val *ret) {
  tested *t = it->st;
  jj_val ok;
  int r;
  while ((r = jj_next(rt, it->in, ret)) > 0) {
    if (!assign(&t->x, t->f->test_target, *ret) || !eval(&t->x, t->f->test, &ok)) return -1;
    if (jj_truth(ok)) return 1;
  }
  return r;
}

static jj_iter *loop_iter(env *x, const jj_for *f, jj_val over) {
  jj_iter *in = jj_iter_of(x->rt, over);
  if (!in || !f->test) return in;
  tested *t = jj_alloc(x->rt, 1, sizeof *t);
  jj_iter *it = t ? jj_iter_new(x->rt, next_tested, t) : NULL;
  if (!it) return NULL;
  *t = (tested){*x, f};
  it->in = in;
  enter_frame(x, &f->test_frame);
  return it;
}

static int loop_peek(jj_rt *rt, jj_loop *lo) {
  jj_val v;
  if (lo->after.tag != J_MISSING) return 1;
  int r = jj_next(rt, lo->it, &v);
  if (r > 0) lo->after = v;
  return r;
}

static int loop_next(jj_rt *rt, jj_loop *lo) {
  jj_val v = lo->after;
  int r = v.tag != J_MISSING ? 1 : jj_next(rt, lo->it, &v);
  if (r <= 0) return r;
  lo->after = (jj_val){0};
  lo->index0++;
  lo->prev = lo->cur;
  lo->cur = v;
  return 1;
}

bool jj_loop_length(jj_rt *rt, jj_loop *lo, int64_t *ret) {
  size_t n;
  if (lo->length < 0) {
    if (lo->over.tag != J_ITER) {
      if (!jj_len(rt, lo->over, &n)) return false;
      lo->length = (int64_t)n;
    } else { /* reads the rest ahead */
      jj_val rest;
      if (!jj_to_list(rt, (jj_val){.tag = J_ITER, .it = lo->it}, &rest)) return false;
      if (!(lo->it = jj_iter_of(rt, rest))) return false;
      lo->length = (int64_t)rest.q->n + lo->index0 + 1 + (lo->after.tag != J_MISSING);
    }
  }
  *ret = lo->length;
  return true;
}

static bool loop_cycle(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (!c->raw->n) return jj_fail(rt, "loop.cycle needs something to cycle through");
  *ret = c->raw->v[(size_t)c->self.lo->index0 % c->raw->n];
  return true;
}

static bool loop_changed(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_val now;
  bool eq = false;
  if (!jj_seq_new(rt, J_TUPLE, c->raw->n, &now)) return false;
  for (size_t i = 0; i < c->raw->n; i++)
    if (!jj_seq_add(rt, now.q, c->raw->v[i])) return false;
  if (c->self.lo->changed.tag != J_MISSING && !jj_equal(rt, c->self.lo->changed, now, &eq)) return false;
  if (!eq) c->self.lo->changed = now;
  *ret = jj_bool(!eq);
  return true;
}

bool jj_loop_attr(jj_rt *rt, jj_loop *lo, str name, jj_val *ret, bool *ret_found) {
  static const jj_func cycle = {"cycle", loop_cycle, NULL, 0}, changed = {"changed", loop_changed, NULL, 0};
  int64_t len;
  *ret_found = true;
  if (str_is(name, "index")) *ret = jj_int(lo->index0 + 1);
  else if (str_is(name, "index0")) *ret = jj_int(lo->index0);
  else if (str_is(name, "first")) *ret = jj_bool(lo->index0 == 0);
  else if (str_is(name, "depth")) *ret = jj_int(1);
  else if (str_is(name, "depth0")) *ret = jj_int(0);
  else if (str_is(name, "last") || str_is(name, "nextitem")) {
    int r = loop_peek(rt, lo);
    if (r < 0) return false;
    *ret = str_is(name, "last") ? jj_bool(r == 0) : r ? lo->after : jj_undef("there is no next item");
  } else if (str_is(name, "previtem")) *ret = lo->index0 ? lo->prev : jj_undef("there is no previous item");
  else if (str_is(name, "length") || str_is(name, "revindex") || str_is(name, "revindex0")) {
    if (!jj_loop_length(rt, lo, &len)) return false;
    *ret = jj_int(str_is(name, "length") ? len : len - lo->index0 - str_is(name, "revindex0"));
  } else if (str_is(name, "cycle") || str_is(name, "changed")) {
    jj_method *m = jj_alloc(rt, 1, sizeof *m);
    if (!m) return false;
    *m = (jj_method){{.tag = J_LOOP, .lo = lo}, str_is(name, "cycle") ? &cycle : &changed};
    *ret = (jj_val){.tag = J_METHOD, .me = m};
  } else *ret_found = false;
  return true;
}

static flow exec_for(env *x, const jj_node *n) {
  const jj_for *f = n->loop;
  jj_rt *rt = x->rt;
  jj_val over;
  jj_loop *lo = jj_alloc(rt, 1, sizeof *lo);
  if (!lo || !eval(x, f->iter, &over)) return FAILED;
  *lo = (jj_loop){.index0 = -1, .length = -1};
  if (!(lo->it = loop_iter(x, f, over))) return FAILED;
  lo->over = f->test ? (jj_val){.tag = J_ITER, .it = lo->it} : over;
  bool untouched = true; /* no body ran to its end: what decides about else, `continue` included, as in the reference */
  int r;
  while ((r = loop_next(rt, lo)) > 0) {
    if (!jj_spend(rt, 1) || !assign(x, f->target, lo->cur)) return FAILED;
    if (f->loop_slot >= 0) x->act->v[f->loop_slot] = (jj_val){.tag = J_LOOP, .lo = lo};
    enter_frame(x, &f->frame);
    flow fl = exec_list(x, &f->body);
    if (fl == FAILED) return FAILED;
    if (fl == BREAK) break;
    if (fl == GO_ON) untouched = false;
    rt->line = n->line;
  }
  if (r < 0) return FAILED;
  leave_frame(x, &f->frame);
  if (!untouched || !f->other.n) return GO_ON;
  enter_frame(x, &f->other_frame);
  flow fl = exec_list(x, &f->other);
  leave_frame(x, &f->other_frame);
  return fl;
}

/* ---- statements ---- */

static flow exec_if(env *x, const jj_node *n) {
  for (int i = 0; i < n->cond.n; i++) {
    jj_val v;
    if (!eval(x, n->cond.test[i], &v)) return FAILED;
    if (jj_truth(v)) return exec_list(x, &n->cond.body[i]);
  }
  return exec_list(x, &n->cond.other);
}

/* Filter and call blocks must come to text: the reference joins what they give without turning it into a string first. */
static bool put_text(jj_rt *rt, jj_val v) {
  if (v.tag != J_STR) return jj_fail(rt, "a filter or call block gives a %s where text is needed", jj_type_name(v));
  return jj_put_part(rt, rt->out, v.s, 0, v.s->n);
}

/* {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}. A break inside leaves the loop and drops what was captured. */
static flow exec_capture(env *x, const jj_node *n) {
  jj_rt *rt = x->rt;
  jj_out own = {0}, *was = rt->out;
  jj_val v, block = x->block;
  enter_frame(x, &n->set.frame);
  rt->out = &own;
  flow f = exec_list(x, &n->set.body);
  rt->out = was;
  if (f == GO_ON) {
    bool ok = jj_take(rt, &own, &v);
    if (ok && n->set.value) {
      x->block = v;
      ok = eval(x, n->set.value, &v);
      x->block = block;
    }
    ok = ok && (n->set.target ? assign(x, n->set.target, v) : put_text(rt, v));
    if (!ok) f = FAILED;
  }
  jj_out_fini(&own);
  leave_frame(x, &n->set.frame);
  return f;
}

static bool make_macro(env *x, const jj_fn *fn, jj_val *ret) {
  struct jj_macro *m = jj_alloc(x->rt, 1, sizeof *m);
  if (!m) return false;
  *m = (struct jj_macro){fn, x->act};
  *ret = (jj_val){.tag = J_MACRO, .m = m};
  return true;
}

static bool exec_call_block(env *x, const jj_node *n) {
  jj_val caller, v;
  if (!make_macro(x, n->fn.fn, &caller)) return false;
  if (n->kind == N_GENERATION) return call_macro(x->rt, caller.m, &(jj_argv){0}, &v) && jj_put_val(x->rt, x->rt->out, v);
  return eval_call(x, n->fn.call, caller, &v) && put_text(x->rt, v);
}

static flow exec_with(env *x, const jj_node *n) {
  jj_val *v = jj_alloc(x->rt, (size_t)n->with.values.n, sizeof *v);
  if (!v) return FAILED;
  enter_frame(x, &n->with.frame);
  for (int i = 0; i < n->with.values.n; i++)
    if (!eval(x, n->with.values.v[i], &v[i]) || !assign(x, n->with.targets.v[i], v[i])) return FAILED;
  flow f = exec_list(x, &n->with.body);
  leave_frame(x, &n->with.frame);
  return f;
}

static bool exec_print(env *x, const jj_node *n) {
  for (int i = 0; i < n->seq.n; i++) {
    jj_val v;
    if (!eval(x, n->seq.v[i], &v)) return false;
    x->rt->line = n->line;
    if (!jj_put_val(x->rt, x->rt->out, v)) return false;
  }
  return true;
}

static flow exec(env *x, const jj_node *n) {
  jj_rt *rt = x->rt;
  jj_val v;
  bool ok;
  switch ((jj_kind)n->kind) {
  case N_DATA: ok = jj_put(rt, rt->out, n->val.s->p, n->val.s->n, JT_YES); break;
  case N_PRINT: ok = exec_print(x, n); break;
  case N_IF: return exec_if(x, n);
  case N_FOR: return exec_for(x, n);
  case N_SET:
    ok = eval(x, n->set.value, &v);
    rt->line = n->line;
    ok = ok && assign(x, n->set.target, v);
    break;
  case N_SETBLOCK:
  case N_FILTERBLOCK: return exec_capture(x, n);
  case N_MACRO: ok = make_macro(x, n->fn.fn, slot(x->act, n->fn.ref)); break;
  case N_CALLBLOCK:
  case N_GENERATION: ok = exec_call_block(x, n); break;
  case N_WITH: return exec_with(x, n);
  case N_BREAK: return BREAK;
  case N_CONTINUE: return CONTINUE;
  default: ok = jj_fail(rt, "an expression stands where a statement is expected");
  }
  return ok ? GO_ON : FAILED;
}

static flow exec_list(env *x, const jj_list *l) {
  for (int i = 0; i < l->n; i++) {
    if (!enter(x->rt, l->v[i]->line)) return FAILED;
    flow f = exec(x, l->v[i]);
    x->rt->depth--;
    if (f != GO_ON) return f;
  }
  return GO_ON;
}

bool jj_run(jj_rt *rt, const jj_list *body, const jj_frame *frame, int n_slots) {
  jj_act act = {.v = jj_alloc(rt, (size_t)n_slots, sizeof *act.v)};
  if (!act.v) return false;
  env x = {.rt = rt, .act = &act};
  enter_frame(&x, frame);
  return exec_list(&x, body) == GO_ON;
}
