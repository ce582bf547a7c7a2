/* Names to slots, with jinja2's scoping rules, which are static: a scope's variables are known before any code runs.
 *
 * A name belongs to the innermost scope that stores it, or reads it when no outer scope knows it. On entering a scope each of its variables is
 * loaded: a parameter by whoever enters; a name that is only read (or stored in just some branches of an if) from the render's variables; a name
 * that an outer scope knows as a copy of it (so a set inside a loop is gone after the iteration); any other unset. A consequence that templates rely
 * on: a loop body sees a name of the template's top level wherever it is set there, and never the render's variable of that name.
 *
 * Macros, call blocks and generation blocks are functions: they have slots of their own and reach outward through the function they stand in. */
#include "model/jinja_ast.h"

enum { MAX_VARS = 4096 };

typedef struct func {
  struct func *parent;
  int n_slots;
} func;
typedef struct var {
  str name;
  int slot;
  uint8_t how;
  jj_ref from;
  bool stored;
} var;
typedef struct scope {
  struct scope *parent;
  func *fn;
  var *v;
  int n, cap;
} scope;

typedef struct pass {
  jj_src *s;
  scope *sc;  /* the scope being analysed or resolved */
  int n_vars; /* in all scopes */
  int depth;
  bool branch;  /* analysing the branches of an if: what they store may not happen */
  bool soft;    /* resolving inside an if or a conditional: an unknown filter fails only when it is reached */
  bool in_loop; /* of this function: break and continue are allowed */
  bool ok;
} pass;

static void analyze_list(pass *ps, const jj_list *l);
static bool resolve_list(pass *ps, const jj_list *l);
static bool resolve(jj_node *n, void *arg);

/* ---- children, depth ---- */

static bool each(const jj_list *l, bool (*fn)(jj_node *, void *), void *arg) {
  for (int i = 0; i < l->n; i++)
    if (!fn(l->v[i], arg)) return false;
  return true;
}

static bool one(jj_node *n, bool (*fn)(jj_node *, void *), void *arg) { return !n || fn(n, arg); }

static bool each_arg(const jj_args *a, bool (*fn)(jj_node *, void *), void *arg) {
  if (!a) return true;
  if (!each(&a->pos, fn, arg)) return false;
  for (int i = 0; i < a->n_kw; i++)
    if (!fn(a->kw[i].val, arg)) return false;
  return one(a->star, fn, arg) && one(a->star2, fn, arg);
}

bool jj_children(const jj_node *n, bool (*fn)(jj_node *, void *), void *arg) {
  switch ((jj_kind)n->kind) {
  case N_CONST:
  case N_NAME:
  case N_NSREF:
  case N_DATA:
  case N_BREAK:
  case N_CONTINUE: return true;
  case N_LIST:
  case N_TUPLE:
  case N_DICT:
  case N_CONCAT:
  case N_PRINT: return each(&n->seq, fn, arg);
  case N_UNARY:
  case N_BINARY:
  case N_AND:
  case N_OR:
  case N_COND:
  case N_ITEM:
  case N_SLICE: return one(n->sub.a, fn, arg) && one(n->sub.b, fn, arg) && one(n->sub.c, fn, arg);
  case N_COMPARE: return fn(n->cmp.first, arg) && each(&(jj_list){n->cmp.rhs, n->cmp.n}, fn, arg);
  case N_ATTR: return fn(n->attr.base, arg);
  case N_CALL:
  case N_FILTER:
  case N_TEST: return one(n->call.base, fn, arg) && each_arg(n->call.args, fn, arg);
  case N_IF:
    for (int i = 0; i < n->cond.n; i++)
      if (!fn(n->cond.test[i], arg) || !each(&n->cond.body[i], fn, arg)) return false;
    return each(&n->cond.other, fn, arg);
  case N_FOR:
    return fn(n->loop->target, arg) && fn(n->loop->iter, arg) && each(&n->loop->body, fn, arg) && each(&n->loop->other, fn, arg) &&
           one(n->loop->test, fn, arg);
  case N_SET:
  case N_SETBLOCK:
  case N_FILTERBLOCK: return one(n->set.target, fn, arg) && one(n->set.value, fn, arg) && each(&n->set.body, fn, arg);
  case N_MACRO:
  case N_CALLBLOCK:
  case N_GENERATION:
    return one(n->fn.call, fn, arg) && each(&n->fn.fn->params, fn, arg) && each(&n->fn.fn->defaults, fn, arg) && each(&n->fn.fn->body, fn, arg);
  case N_WITH: return each(&n->with.targets, fn, arg) && each(&n->with.values, fn, arg) && each(&n->with.body, fn, arg);
  }
  return true;
}

/* Long chains of operators are deep trees although the parser never recursed; later passes and evaluation do. */
static bool check_depth(jj_node *n, void *arg) {
  pass *ps = arg;
  if (++ps->depth > JJ_MAX_AST) return jj_src_fail(ps->s, n->line, "nested deeper than %d levels", JJ_MAX_AST);
  bool ok = jj_children(n, check_depth, arg);
  ps->depth--;
  return ok;
}

/* ---- which of a few special names does a body read before storing them? ---- */

typedef struct special {
  const char *name[3];
  bool gone[3], read[3];
} special;

static bool find_special(jj_node *n, void *arg) {
  special *w = arg;
  if (n->kind == N_NAME) {
    for (int i = 0; i < 3; i++)
      if (w->name[i] && !w->gone[i] && str_is(n->name.id, w->name[i])) *(n->store ? &w->gone[i] : &w->read[i]) = true;
    return true;
  }
  return jj_children(n, find_special, arg);
}

static special find_specials(const jj_list *body, const char *a, const char *b, const char *c) {
  special w = {.name = {a, b, c}};
  each(body, find_special, &w);
  return w;
}

/* Assigning to `loop` anywhere inside a for is refused. */
static bool stores_loop(jj_node *n, void *arg) {
  if (n->kind == N_NAME && n->store && str_is(n->name.id, "loop"))
    return jj_src_fail(((pass *)arg)->s, n->line, "'loop' is a special variable inside a for loop and cannot be assigned to");
  return jj_children(n, stores_loop, arg);
}

/* ---- scopes ---- */

static var *find_here(scope *sc, str name) {
  for (int i = 0; i < sc->n; i++)
    if (str_eq(sc->v[i].name, name)) return &sc->v[i];
  return NULL;
}

/* The variable a name means in sc, with how many functions lie between. */
static bool find(scope *sc, str name, jj_ref *ret) {
  int up = 0;
  for (; sc; sc = sc->parent) {
    var *v = find_here(sc, name);
    if (v) {
      *ret = (jj_ref){up, v->slot};
      return true;
    }
    if (sc->parent && sc->parent->fn != sc->fn) up++;
  }
  return false;
}

static var *define(pass *ps, str name, uint8_t how) {
  scope *sc = ps->sc;
  if (sc->n == sc->cap) {
    int cap = sc->cap ? sc->cap * 2 : 8;
    var *v = jj_src_alloc(ps->s, (size_t)cap, sizeof *v);
    if (!v) {
      ps->ok = false;
      return NULL;
    }
    if (sc->n) memcpy(v, sc->v, (size_t)sc->n * sizeof *v);
    sc->v = v;
    sc->cap = cap;
  }
  if (++ps->n_vars > MAX_VARS) {
    ps->ok = err_set(ps->s->e, ERR_INPUT, "chat template uses more than %d variables", MAX_VARS);
    return NULL;
  }
  var *v = &sc->v[sc->n++];
  *v = (var){.name = name, .slot = sc->fn->n_slots++, .how = how};
  return v;
}

static int declare_param(pass *ps, str name) {
  var *v = find_here(ps->sc, name);
  if (v) v->how = LOAD_PARAM;
  else v = define(ps, name, LOAD_PARAM);
  if (!v) return -1;
  v->stored = true;
  return v->slot;
}

static void load_name(pass *ps, str name) {
  jj_ref r;
  if (!find(ps->sc, name, &r)) define(ps, name, LOAD_RESOLVE);
}

static void store_name(pass *ps, str name) {
  var *v = find_here(ps->sc, name);
  if (!v) {
    jj_ref from = {0};
    bool outer = ps->sc->parent && find(ps->sc->parent, name, &from);
    if (outer && ps->sc->parent->fn != ps->sc->fn) from.up++;
    v = define(ps, name, outer ? LOAD_ALIAS : ps->branch ? LOAD_RESOLVE : LOAD_UNSET);
    if (!v) return;
    v->from = from;
  }
  v->stored = true;
}

/* ---- analysis: the names that one scope loads and stores ---- */

static bool analyze(jj_node *n, void *arg) {
  pass *ps = arg;
  switch ((jj_kind)n->kind) {
  case N_NAME:
    if (n->store) store_name(ps, n->name.id);
    else load_name(ps, n->name.id);
    break;
  case N_NSREF: load_name(ps, n->name.id); break;
  case N_IF: {
    bool was = ps->branch;
    for (int i = 0; i < n->cond.n; i++) {
      analyze(n->cond.test[i], ps);
      ps->branch = true;
      analyze_list(ps, &n->cond.body[i]);
    }
    ps->branch = true;
    analyze_list(ps, &n->cond.other);
    ps->branch = was;
    break;
  }
  case N_FOR: analyze(n->loop->iter, ps); break; /* its body is a scope of its own, and so on below */
  case N_SET:
    analyze(n->set.value, ps);
    analyze(n->set.target, ps);
    break;
  case N_SETBLOCK: analyze(n->set.target, ps); break;
  case N_FILTERBLOCK: break;
  case N_MACRO: store_name(ps, n->fn.fn->name); break;
  case N_CALLBLOCK: analyze(n->fn.call, ps); break;
  case N_GENERATION: break;
  case N_WITH: each(&n->with.values, analyze, ps); break;
  default: return jj_children(n, analyze, ps) && ps->ok;
  }
  return ps->ok;
}

static void analyze_list(pass *ps, const jj_list *l) { each(l, analyze, ps); }

static bool params(jj_node *n, void *arg) {
  if (n->kind == N_NAME) return declare_param(arg, n->name.id) >= 0;
  return jj_children(n, params, arg);
}

/* What is saved while another scope is worked on. */
typedef struct saved {
  scope *sc;
  bool soft, in_loop, branch;
} saved;

static saved push_scope(pass *ps, scope *sc, func *fn) {
  saved old = {ps->sc, ps->soft, ps->in_loop, ps->branch};
  *sc = (scope){.parent = ps->sc, .fn = fn};
  ps->sc = sc;
  ps->soft = ps->branch = false;
  return old;
}

/* Freezes the scope's loads into the tree. */
static bool pop_scope(pass *ps, saved old, jj_frame *ret) {
  scope *sc = ps->sc;
  ps->sc = old.sc;
  ps->soft = old.soft;
  ps->in_loop = old.in_loop;
  ps->branch = old.branch;
  jj_load *v = jj_src_alloc(ps->s, (size_t)sc->n, sizeof *v);
  if (!v || !ps->ok) return false;
  for (int i = 0; i < sc->n; i++) v[i] = (jj_load){sc->v[i].how, sc->v[i].slot, sc->v[i].from, sc->v[i].name};
  *ret = (jj_frame){v, sc->n};
  return true;
}

/* ---- resolution ---- */

static bool resolve_body(pass *ps, const jj_list *body, bool in_loop) {
  ps->in_loop = in_loop;
  return resolve_list(ps, body);
}

/* The target is resolved twice: in the body's scope and in the scope of the loop's condition, which is another. */
static jj_node *copy_target(pass *ps, const jj_node *n) {
  jj_node *c = jj_src_alloc(ps->s, 1, sizeof *c);
  if (!c) return NULL;
  *c = *n;
  if (n->kind == N_TUPLE) {
    if (!(c->seq.v = jj_src_alloc(ps->s, (size_t)n->seq.n, sizeof *c->seq.v))) return NULL;
    for (int i = 0; i < n->seq.n; i++)
      if (!(c->seq.v[i] = copy_target(ps, n->seq.v[i]))) return NULL;
  }
  return c;
}

static bool resolve_for(pass *ps, jj_node *n) {
  jj_for *f = n->loop;
  scope sc;
  if (!stores_loop(n, ps) || !resolve(f->iter, ps)) return false;
  special w = find_specials(&f->body, "loop", NULL, NULL);

  saved old = push_scope(ps, &sc, ps->sc->fn);
  f->loop_slot = w.read[0] ? declare_param(ps, STR("loop")) : -1;
  params(f->target, ps);
  analyze_list(ps, &f->body);
  if (!ps->ok || !resolve(f->target, ps) || !resolve_body(ps, &f->body, true) || !pop_scope(ps, old, &f->frame)) return false;

  old = push_scope(ps, &sc, ps->sc->fn);
  analyze_list(ps, &f->other);
  if (!ps->ok || !resolve_body(ps, &f->other, old.in_loop) || !pop_scope(ps, old, &f->other_frame)) return false;
  if (!f->test) return true;

  if (!(f->test_target = copy_target(ps, f->target))) return false;
  old = push_scope(ps, &sc, ps->sc->fn);
  params(f->test_target, ps);
  analyze(f->test, ps);
  return ps->ok && resolve(f->test_target, ps) && resolve(f->test, ps) && pop_scope(ps, old, &f->test_frame);
}

static bool resolve_fn(pass *ps, jj_node *n) {
  jj_fn *fn = n->fn.fn;
  func own = {.parent = ps->sc->fn};
  scope sc;
  special w = find_specials(&fn->body, "caller", "kwargs", "varargs");
  saved old = push_scope(ps, &sc, &own);
  bool has_kwargs = false, has_varargs = false;
  for (int i = 0; i < fn->params.n; i++) {
    str id = fn->params.v[i]->name.id;
    if (str_is(id, "caller")) {
      fn->caller_is_param = true;
      if (w.read[0] && i < fn->params.n - fn->defaults.n) return jj_src_fail(ps->s, n->line, "parameter 'caller' needs a default");
    }
    has_kwargs |= str_is(id, "kwargs");
    has_varargs |= str_is(id, "varargs");
    for (int k = 0; k < i; k++)
      if (str_eq(fn->params.v[k]->name.id, id)) return jj_src_fail(ps->s, n->line, "parameter '%.*s' is named twice", (int)id.n, id.p);
    declare_param(ps, id);
  }
  fn->caller_slot = w.read[0] && !fn->caller_is_param ? declare_param(ps, STR("caller")) : -1;
  fn->kwargs_slot = w.read[1] && !has_kwargs ? declare_param(ps, STR("kwargs")) : -1;
  fn->varargs_slot = w.read[2] && !has_varargs ? declare_param(ps, STR("varargs")) : -1;
  each(&fn->defaults, analyze, ps);
  analyze_list(ps, &fn->body);
  bool ok = ps->ok && each(&fn->params, resolve, ps) && each(&fn->defaults, resolve, ps) && resolve_body(ps, &fn->body, false) &&
            pop_scope(ps, old, &fn->frame);
  fn->n_slots = own.n_slots;
  return ok;
}

/* set and filter blocks: the body is a scope; the target belongs outside, the filter inside. */
static bool resolve_capture(pass *ps, jj_node *n) {
  scope sc;
  if (n->set.target && !resolve(n->set.target, ps)) return false;
  saved old = push_scope(ps, &sc, ps->sc->fn);
  analyze_list(ps, &n->set.body);
  if (n->set.value) analyze(n->set.value, ps);
  return ps->ok && resolve_body(ps, &n->set.body, old.in_loop) && (!n->set.value || resolve(n->set.value, ps)) && pop_scope(ps, old, &n->set.frame);
}

static bool resolve_with(pass *ps, jj_node *n) {
  scope sc;
  if (!each(&n->with.values, resolve, ps)) return false;
  saved old = push_scope(ps, &sc, ps->sc->fn);
  each(&n->with.targets, params, ps);
  analyze_list(ps, &n->with.body);
  return ps->ok && each(&n->with.targets, resolve, ps) && resolve_body(ps, &n->with.body, old.in_loop) && pop_scope(ps, old, &n->with.frame);
}

static bool resolve_named(pass *ps, jj_node *n) {
  bool filter = n->kind == N_FILTER;
  str id = n->call.id;
  n->call.def = filter ? jj_filter_find(id) : jj_test_find(id);
  if (!n->call.def && !ps->soft) {
    int len = (int)(id.n < 60 ? id.n : 60);
    if (filter && jj_filter_known(id)) return jj_src_refuse(ps->s, n->line, "filter '%.*s' is not supported", len, id.p);
    return jj_src_fail(ps->s, n->line, "no %s named '%.*s'", filter ? "filter" : "test", len, id.p);
  }
  return jj_children(n, resolve, ps);
}

static bool resolve_soft(pass *ps, jj_node *n) {
  bool was = ps->soft;
  ps->soft = true;
  bool ok = jj_children(n, resolve, ps);
  ps->soft = was;
  return ok;
}

static bool resolve(jj_node *n, void *arg) {
  pass *ps = arg;
  switch ((jj_kind)n->kind) {
  case N_NAME:
  case N_NSREF:
    return find(ps->sc, n->name.id, &n->name.ref) || err_set(ps->s->e, ERR_INTERNAL, "chat template, line %d: a name was not analysed", n->line);
  case N_FILTER:
  case N_TEST: return resolve_named(ps, n);
  case N_IF:
  case N_COND: return resolve_soft(ps, n);
  case N_FOR: return resolve_for(ps, n);
  case N_SETBLOCK:
  case N_FILTERBLOCK: return resolve_capture(ps, n);
  case N_MACRO: return find(ps->sc, n->fn.fn->name, &n->fn.ref) && resolve_fn(ps, n);
  case N_CALLBLOCK: return resolve_fn(ps, n) && resolve(n->fn.call, ps);
  case N_GENERATION: return resolve_fn(ps, n);
  case N_WITH: return resolve_with(ps, n);
  case N_BREAK:
  case N_CONTINUE: return ps->in_loop || jj_src_fail(ps->s, n->line, "'%s' outside of a loop", n->kind == N_BREAK ? "break" : "continue");
  default: return jj_children(n, resolve, ps);
  }
}

static bool resolve_list(pass *ps, const jj_list *l) { return each(l, resolve, ps); }

bool jj_scope(jj_src *s) {
  pass ps = {.s = s, .ok = true};
  if (!each(&s->body, check_depth, &ps)) return false;
  func root = {0};
  scope sc;
  saved old = push_scope(&ps, &sc, &root);
  analyze_list(&ps, &s->body);
  bool ok = ps.ok && resolve_body(&ps, &s->body, false) && pop_scope(&ps, old, &s->frame);
  s->n_slots = root.n_slots;
  return ok;
}
