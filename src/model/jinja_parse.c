/* Tokens to the parse tree: jinja2's grammar and precedences, one function a level.
 * Precedence, loosest first: if-else, or, and, not, comparison (chained), + -, ~, * / // %, **, unary, postfix, filters and tests. */
#include "model/jinja_ast.h"

typedef struct parser {
  jj_src *s;
  int i, depth;
} parser;

static jj_node *expression(parser *p);
static jj_node *or_expr(parser *p);
static jj_node *unary(parser *p, bool with_filter);
static bool statements(parser *p, const char *const *ends, jj_list *ret);

static jj_tok *cur(parser *p) { return &p->s->tok[p->i]; }
static jj_tok *look(parser *p) { return &p->s->tok[p->i + (cur(p)->kind != T_EOF)]; }
static jj_tok *next(parser *p) {
  jj_tok *t = cur(p);
  if (t->kind != T_EOF) p->i++;
  return t;
}
static bool is(parser *p, jj_tk k) { return cur(p)->kind == k; }
static bool is_word(const jj_tok *t, const char *w) { return t->kind == T_NAME && str_is(t->s, w); }
static bool word(parser *p, const char *w) { return is_word(cur(p), w); }
static bool skip(parser *p, jj_tk k) { return is(p, k) && next(p); }
static bool skip_word(parser *p, const char *w) { return word(p, w) && next(p); }

static const char *const kind_names[] = {"end of template", "text", "{{", "}}", "{%", "%}", "a name", "a string", "a number", "a number", "+", "-",
    "/", "//", "*", "%", "**", "~", "[", "]", "(", ")", "{", "}", "==", "!=", ">", ">=", "<", "<=", "=", ".", ":", "|", ",", ";"};

static void *unexpected(parser *p, const char *expected) {
  jj_tok *t = cur(p);
  if (t->kind == T_NAME) jj_src_fail(p->s, t->line, "expected %s, got '%.*s'", expected, (int)(t->s.n < 60 ? t->s.n : 60), t->s.p);
  else jj_src_fail(p->s, t->line, "expected %s, got %s", expected, kind_names[t->kind]);
  return NULL;
}

static bool expect(parser *p, jj_tk k) {
  if (skip(p, k)) return true;
  unexpected(p, kind_names[k]);
  return false;
}

static bool enter(parser *p) {
  if (++p->depth <= JJ_MAX_AST) return true;
  return jj_src_fail(p->s, cur(p)->line, "nested deeper than %d levels", JJ_MAX_AST);
}

static jj_node *mk(parser *p, jj_kind kind, int line) {
  jj_node *n = jj_src_alloc(p->s, 1, sizeof *n);
  if (n) {
    n->kind = (uint8_t)kind;
    n->line = line;
  }
  return n;
}

/* Lists grow by doubling inside the arena. */
static bool add(parser *p, jj_list *l, jj_node *n) {
  if (!n) return false;
  if ((l->n & (l->n - 1)) == 0) {
    jj_node **v = jj_src_alloc(p->s, l->n ? (size_t)l->n * 2 : 1, sizeof *v);
    if (!v) return false;
    if (l->n) memcpy(v, l->v, (size_t)l->n * sizeof *v);
    l->v = v;
  }
  l->v[l->n++] = n;
  return true;
}

static jj_node *mk_str(parser *p, jj_kind kind, int line, str text) {
  jj_node *n = mk(p, kind, line);
  jj_str *s = jj_src_alloc(p->s, 1, sizeof *s);
  if (!n || !s) return NULL;
  *s = (jj_str){.p = text.p, .n = text.n, .len = JJ_LEN_UNKNOWN, .trust = JT_YES};
  jj_str_len(s); /* now, so that a shared constant is never written while rendering */
  n->val = (jj_val){.tag = J_STR, .s = s};
  return n;
}

static jj_node *mk_op(parser *p, jj_kind kind, jj_op op, int line, jj_node *a, jj_node *b) {
  if (!a || !b) return NULL;
  jj_node *n = mk(p, kind, line);
  if (n) {
    n->op = (uint8_t)op;
    n->sub.a = a;
    n->sub.b = b;
  }
  return n;
}

/* ---- calls, filters, tests ---- */

static bool add_kw(parser *p, jj_args *a, str name, jj_node *val) {
  if (!val) return false;
  for (int i = 0; i < a->n_kw; i++)
    if (str_eq(a->kw[i].name, name)) return jj_src_fail(p->s, val->line, "keyword argument '%.*s' is given twice", (int)name.n, name.p);
  if ((a->n_kw & (a->n_kw - 1)) == 0) {
    jj_kw *v = jj_src_alloc(p->s, a->n_kw ? (size_t)a->n_kw * 2 : 1, sizeof *v);
    if (!v) return false;
    if (a->n_kw) memcpy(v, a->kw, (size_t)a->n_kw * sizeof *v);
    a->kw = v;
  }
  if (a->n_kw >= 64) return jj_src_fail(p->s, val->line, "more than 64 keyword arguments in one call");
  a->kw[a->n_kw++] = (jj_kw){name, val};
  return true;
}

static bool one_arg(parser *p, jj_args *a) {
  int line = cur(p)->line;
  if (skip(p, T_MUL)) {
    if (a->star || a->star2) goto order;
    return (a->star = expression(p)) != NULL;
  }
  if (skip(p, T_POW)) {
    if (a->star2) goto order;
    return (a->star2 = expression(p)) != NULL;
  }
  if (is(p, T_NAME) && look(p)->kind == T_ASSIGN) {
    if (a->star2) goto order;
    str name = next(p)->s;
    next(p);
    return add_kw(p, a, name, expression(p));
  }
  if (a->star || a->star2 || a->n_kw) goto order;
  return add(p, &a->pos, expression(p));
order:
  return jj_src_fail(p->s, line, "arguments of a call are out of order: positional ones come first, then *args, keywords and **kwargs");
}

static jj_args *call_args(parser *p) {
  jj_args *a = jj_src_alloc(p->s, 1, sizeof *a);
  if (!a || !expect(p, T_LPAREN)) return NULL;
  for (bool first = true; !is(p, T_RPAREN); first = false) {
    if (!first) {
      if (!expect(p, T_COMMA)) return NULL;
      if (is(p, T_RPAREN)) break;
    }
    if (!one_arg(p, a)) return NULL;
  }
  return expect(p, T_RPAREN) ? a : NULL;
}

static jj_node *call(parser *p, jj_node *base) {
  int line = cur(p)->line;
  jj_args *a = call_args(p);
  jj_node *n = a ? mk(p, N_CALL, line) : NULL;
  if (n) {
    n->call.base = base;
    n->call.args = a;
  }
  return n;
}

/* A name of a filter or test; dotted names are one name. */
static bool dotted(parser *p, str *ret) {
  if (!is(p, T_NAME)) {
    unexpected(p, "a name");
    return false;
  }
  *ret = next(p)->s;
  while (skip(p, T_DOT)) {
    if (!is(p, T_NAME)) {
      unexpected(p, "a name");
      return false;
    }
    str part = next(p)->s;
    char *s = jj_src_alloc(p->s, ret->n + part.n + 1, 1);
    if (!s) return false;
    memcpy(s, ret->p, ret->n);
    s[ret->n] = '.';
    memcpy(s + ret->n + 1, part.p, part.n);
    *ret = (str){s, ret->n + part.n + 1};
  }
  return true;
}

/* "|name(args)|name2 ..."; `inline_first`: the first bar is not written ({% filter name %}). base may be NULL. */
static bool filters(parser *p, jj_node *base, bool inline_first, jj_node **ret) {
  while (inline_first || is(p, T_PIPE)) {
    if (!inline_first) next(p);
    inline_first = false;
    int line = cur(p)->line;
    str name;
    if (!dotted(p, &name)) return false;
    jj_args *a = NULL;
    if (is(p, T_LPAREN) && !(a = call_args(p))) return false;
    jj_node *n = mk(p, N_FILTER, line);
    if (!n) return false;
    n->call.base = base;
    n->call.id = name;
    n->call.args = a;
    base = n;
  }
  *ret = base;
  return true;
}

static jj_node *subscript(parser *p, jj_node *base);
static jj_node *primary(parser *p, bool with_ns);

static jj_node *postfix(parser *p, jj_node *n) {
  while (n) {
    if (is(p, T_DOT) || is(p, T_LBRACKET)) n = subscript(p, n);
    else if (is(p, T_LPAREN)) n = call(p, n);
    else break;
  }
  return n;
}

static jj_node *test(parser *p, jj_node *base) {
  int line = next(p)->line;
  bool negated = skip_word(p, "not");
  str name;
  if (!dotted(p, &name)) return NULL;
  jj_args *a = NULL;
  jj_tk k = cur(p)->kind;
  if (k == T_LPAREN) {
    if (!(a = call_args(p))) return NULL;
  } else if ((k == T_NAME || k == T_STR || k == T_INT || k == T_FLOAT || k == T_LBRACKET || k == T_LBRACE) && !word(p, "else") && !word(p, "or") &&
             !word(p, "and")) {
    if (word(p, "is")) return jj_src_fail(p->s, cur(p)->line, "tests cannot be chained with 'is'"), NULL;
    if (!(a = jj_src_alloc(p->s, 1, sizeof *a)) || !add(p, &a->pos, postfix(p, primary(p, false)))) return NULL;
  }
  jj_node *n = mk(p, N_TEST, line);
  if (!n) return NULL;
  n->call.base = base;
  n->call.id = name;
  n->call.args = a;
  if (!negated) return n;
  jj_node *not = mk(p, N_UNARY, line);
  if (not ) {
    not ->op = OP_NOT;
    not ->sub.a = n;
  }
  return not ;
}

static jj_node *filter_expr(parser *p, jj_node *n) {
  while (n) {
    if (is(p, T_PIPE)) {
      if (!filters(p, n, false, &n)) return NULL;
    } else if (word(p, "is")) n = test(p, n);
    else if (is(p, T_LPAREN)) n = call(p, n);
    else break;
  }
  return n;
}

/* ---- primary expressions ---- */

/* One part of a subscript: an expression or start:stop:step. */
static jj_node *subscribed(parser *p) {
  int line = cur(p)->line;
  jj_node *part[3] = {NULL, NULL, NULL};
  if (!is(p, T_COLON)) {
    if (!(part[0] = expression(p))) return NULL;
    if (!is(p, T_COLON)) return part[0];
  }
  next(p);
  if (!is(p, T_COLON) && !is(p, T_RBRACKET) && !is(p, T_COMMA) && !(part[1] = expression(p))) return NULL;
  if (skip(p, T_COLON) && !is(p, T_RBRACKET) && !is(p, T_COMMA) && !(part[2] = expression(p))) return NULL;
  jj_node *n = mk(p, N_SLICE, line);
  if (n) {
    n->sub.a = part[0];
    n->sub.b = part[1];
    n->sub.c = part[2];
  }
  return n;
}

static jj_node *subscript(parser *p, jj_node *base) {
  jj_tok *t = next(p), *a = cur(p);
  jj_node *n;
  if (t->kind == T_DOT) {
    if (a->kind == T_NAME) {
      next(p);
      if ((n = mk(p, N_ATTR, t->line))) {
        n->attr.base = base;
        n->attr.id = a->s;
      }
      return n;
    }
    if (a->kind != T_INT) return unexpected(p, "a name or a number behind '.'");
    next(p);
    jj_node *key = mk(p, N_CONST, a->line);
    if (key) key->val = jj_int(a->i);
    return mk_op(p, N_ITEM, 0, t->line, base, key);
  }
  jj_list parts = {0};
  while (!is(p, T_RBRACKET)) {
    if (parts.n && !expect(p, T_COMMA)) return NULL;
    if (!add(p, &parts, subscribed(p))) return NULL;
  }
  next(p);
  if (parts.n == 1) return mk_op(p, N_ITEM, 0, t->line, base, parts.v[0]);
  for (int i = 0; i < parts.n; i++)
    if (parts.v[i]->kind == N_SLICE) return jj_src_refuse(p->s, t->line, "a subscript of several slices is not supported"), NULL;
  if ((n = mk(p, N_TUPLE, t->line))) n->seq = parts;
  return mk_op(p, N_ITEM, 0, t->line, base, n);
}

/* is_end: what may follow the last element without a further comma. */
static jj_node *tuple(parser *p, bool simple, bool cond, const char *end_word, bool parens, bool with_ns) {
  int line = cur(p)->line;
  jj_list l = {0};
  bool is_tuple = false;
  for (;;) {
    if (l.n && !expect(p, T_COMMA)) return NULL;
    if (is(p, T_VAR_END) || is(p, T_BLOCK_END) || is(p, T_RPAREN) || (end_word && word(p, end_word))) break;
    if (!add(p, &l, simple ? primary(p, with_ns) : cond ? expression(p) : or_expr(p))) return NULL;
    if (!is(p, T_COMMA)) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (l.n) return l.v[0];
    if (!parens) return unexpected(p, "an expression");
  }
  jj_node *n = mk(p, N_TUPLE, line);
  if (n) n->seq = l;
  return n;
}

static jj_node *list_or_dict(parser *p) {
  int line = cur(p)->line;
  bool dict = next(p)->kind == T_LBRACE;
  jj_tk close = dict ? T_RBRACE : T_RBRACKET;
  jj_list l = {0};
  while (!is(p, close)) {
    if (l.n && !expect(p, T_COMMA)) return NULL;
    if (is(p, close)) break;
    if (!add(p, &l, expression(p))) return NULL;
    if (dict && (!expect(p, T_COLON) || !add(p, &l, expression(p)))) return NULL;
  }
  next(p);
  jj_node *n = mk(p, dict ? N_DICT : N_LIST, line);
  if (n) n->seq = l;
  return n;
}

/* Adjacent strings are one. */
static jj_node *strings(parser *p) {
  int line = cur(p)->line, n = 0;
  size_t total = 0;
  for (; p->s->tok[p->i + n].kind == T_STR; n++) total += p->s->tok[p->i + n].s.n;
  str text = cur(p)->s;
  if (n > 1) {
    char *out = jj_src_alloc(p->s, total + 1, 1);
    if (!out) return NULL;
    size_t at = 0;
    for (int k = 0; k < n; k++) {
      str part = p->s->tok[p->i + k].s;
      memcpy(out + at, part.p, part.n);
      at += part.n;
    }
    text = (str){out, total};
  }
  p->i += n;
  return mk_str(p, N_CONST, line, text);
}

static bool is_const_name(str s, jj_val *ret) {
  if (str_is(s, "true") || str_is(s, "True")) *ret = jj_bool(true);
  else if (str_is(s, "false") || str_is(s, "False")) *ret = jj_bool(false);
  else if (str_is(s, "none") || str_is(s, "None")) *ret = jj_none();
  else return false;
  return true;
}

static jj_node *name(parser *p, bool with_ns) {
  jj_tok *t = next(p);
  jj_val c;
  jj_node *n;
  if (is_const_name(t->s, &c)) {
    if ((n = mk(p, N_CONST, t->line))) n->val = c;
    return n;
  }
  bool ns = with_ns && skip(p, T_DOT);
  if (ns && !is(p, T_NAME)) return unexpected(p, "a name behind '.'");
  if ((n = mk(p, ns ? N_NSREF : N_NAME, t->line))) {
    n->name.id = t->s;
    if (ns) n->name.attr = next(p)->s;
  }
  return n;
}

static jj_node *primary(parser *p, bool with_ns) {
  jj_tok *t = cur(p);
  jj_node *n;
  if (!enter(p)) return NULL;
  switch (t->kind) {
  case T_NAME: n = name(p, with_ns); break;
  case T_STR: n = strings(p); break;
  case T_INT:
  case T_FLOAT:
    next(p);
    if ((n = mk(p, N_CONST, t->line))) n->val = t->kind == T_INT ? jj_int(t->i) : jj_float(t->f);
    break;
  case T_LPAREN:
    next(p);
    n = tuple(p, false, true, NULL, true, false);
    if (n && !expect(p, T_RPAREN)) n = NULL;
    break;
  case T_LBRACKET:
  case T_LBRACE: n = list_or_dict(p); break;
  default: n = unexpected(p, "an expression");
  }
  p->depth--;
  return n;
}

/* ---- operators ---- */

static jj_node *unary(parser *p, bool with_filter) {
  int line = cur(p)->line;
  jj_node *n;
  if (is(p, T_SUB) || is(p, T_ADD)) {
    jj_op op = next(p)->kind == T_SUB ? OP_NEG : OP_POS;
    if (!enter(p)) return NULL;
    jj_node *a = unary(p, false);
    p->depth--;
    if (!a || !(n = mk(p, N_UNARY, line))) return NULL;
    n->op = (uint8_t)op;
    n->sub.a = a;
  } else n = primary(p, false);
  n = postfix(p, n);
  return with_filter ? filter_expr(p, n) : n;
}

static jj_node *pow_expr(parser *p) {
  int line = cur(p)->line;
  jj_node *n = unary(p, true);
  while (n && skip(p, T_POW)) {
    n = mk_op(p, N_BINARY, OP_POW, line, n, unary(p, true));
    line = cur(p)->line;
  }
  return n;
}

static jj_node *mul_expr(parser *p) {
  int line = cur(p)->line;
  jj_node *n = pow_expr(p);
  while (n && (is(p, T_MUL) || is(p, T_DIV) || is(p, T_FLOORDIV) || is(p, T_MOD))) {
    jj_tk k = next(p)->kind;
    n = mk_op(p, N_BINARY, k == T_MUL ? OP_MUL : k == T_DIV ? OP_DIV : k == T_MOD ? OP_MOD : OP_FLOORDIV, line, n, pow_expr(p));
    line = cur(p)->line;
  }
  return n;
}

static jj_node *concat_expr(parser *p) {
  int line = cur(p)->line;
  jj_node *n = mul_expr(p);
  if (!n || !is(p, T_TILDE)) return n;
  jj_list l = {0};
  if (!add(p, &l, n)) return NULL;
  while (skip(p, T_TILDE))
    if (!add(p, &l, mul_expr(p))) return NULL;
  if ((n = mk(p, N_CONCAT, line))) n->seq = l;
  return n;
}

static jj_node *add_expr(parser *p) {
  int line = cur(p)->line;
  jj_node *n = concat_expr(p);
  while (n && (is(p, T_ADD) || is(p, T_SUB))) {
    jj_op op = next(p)->kind == T_ADD ? OP_ADD : OP_SUB;
    n = mk_op(p, N_BINARY, op, line, n, concat_expr(p));
    line = cur(p)->line;
  }
  return n;
}

static bool compare_op(parser *p, uint8_t *ret) {
  static const uint8_t ops[] = {OP_EQ, OP_NE, OP_GT, OP_GE, OP_LT, OP_LE};
  if (cur(p)->kind >= T_EQ && cur(p)->kind <= T_LE) *ret = ops[next(p)->kind - T_EQ];
  else if (skip_word(p, "in")) *ret = OP_IN;
  else if (word(p, "not") && is_word(look(p), "in")) {
    next(p);
    next(p);
    *ret = OP_NOTIN;
  } else return false;
  return true;
}

static jj_node *compare(parser *p) {
  int line = cur(p)->line;
  jj_node *first = add_expr(p);
  uint8_t op, *ops = NULL;
  jj_list rhs = {0};
  while (first && compare_op(p, &op)) {
    if (!(rhs.n & (rhs.n - 1))) {
      uint8_t *v = jj_src_alloc(p->s, rhs.n ? (size_t)rhs.n * 2 : 1, 1);
      if (!v) return NULL;
      if (rhs.n) memcpy(v, ops, (size_t)rhs.n);
      ops = v;
    }
    ops[rhs.n] = op;
    if (!add(p, &rhs, add_expr(p))) return NULL;
  }
  if (!first || !rhs.n) return first;
  jj_node *n = mk(p, N_COMPARE, line);
  if (n) {
    n->cmp.first = first;
    n->cmp.rhs = rhs.v;
    n->cmp.ops = ops;
    n->cmp.n = rhs.n;
  }
  return n;
}

static jj_node *not_expr(parser *p) {
  if (!word(p, "not")) return compare(p);
  int line = next(p)->line;
  if (!enter(p)) return NULL;
  jj_node *a = not_expr(p), *n = a ? mk(p, N_UNARY, line) : NULL;
  p->depth--;
  if (n) {
    n->op = OP_NOT;
    n->sub.a = a;
  }
  return n;
}

static jj_node *and_expr(parser *p) {
  int line = cur(p)->line;
  jj_node *n = not_expr(p);
  while (n && skip_word(p, "and")) n = mk_op(p, N_AND, 0, line, n, not_expr(p));
  return n;
}

static jj_node *or_expr(parser *p) {
  int line = cur(p)->line;
  jj_node *n = and_expr(p);
  while (n && skip_word(p, "or")) n = mk_op(p, N_OR, 0, line, n, and_expr(p));
  return n;
}

static jj_node *expression(parser *p) {
  if (!enter(p)) return NULL;
  int line = cur(p)->line;
  jj_node *n = or_expr(p);
  while (n && skip_word(p, "if")) {
    jj_node *test_ = or_expr(p), *other = NULL;
    if (!test_ || (skip_word(p, "else") && !(other = expression(p)))) return NULL;
    n = mk_op(p, N_COND, 0, line, test_, n);
    if (n) n->sub.c = other;
    line = cur(p)->line;
  }
  p->depth--;
  return n;
}

/* ---- statements ---- */

static bool assignable(parser *p, jj_node *n) {
  if (n->kind == N_NAME || n->kind == N_NSREF) {
    n->store = true;
    return true;
  }
  if (n->kind == N_TUPLE) {
    for (int i = 0; i < n->seq.n; i++)
      if (!assignable(p, n->seq.v[i])) return false;
    return true;
  }
  return jj_src_fail(p->s, n->line, "only a name, a namespace attribute or a tuple of them can be assigned to");
}

static jj_node *target(parser *p, const char *end_word, bool with_ns) {
  jj_node *n = tuple(p, true, true, end_word, false, with_ns);
  return n && assignable(p, n) ? n : NULL;
}

static jj_node *target_name(parser *p) {
  jj_val c;
  if (!is(p, T_NAME)) return unexpected(p, "a name");
  if (is_const_name(cur(p)->s, &c)) return jj_src_fail(p->s, cur(p)->line, "'%.*s' cannot be assigned to", (int)cur(p)->s.n, cur(p)->s.p), NULL;
  jj_node *n = mk(p, N_NAME, cur(p)->line);
  if (n) {
    n->name.id = next(p)->s;
    n->store = true;
  }
  return n;
}

static bool body_until(parser *p, const char *const *ends, jj_list *ret) {
  skip(p, T_COLON);
  return expect(p, T_BLOCK_END) && statements(p, ends, ret);
}

static jj_node *parse_set(parser *p, int line) {
  jj_node *t = target(p, NULL, true), *n;
  if (!t) return NULL;
  if (skip(p, T_ASSIGN)) {
    jj_node *v = tuple(p, false, true, NULL, false, false);
    if (!v || !(n = mk(p, N_SET, line))) return NULL;
    n->set.target = t;
    n->set.value = v;
    return n;
  }
  if (!(n = mk(p, N_SETBLOCK, line))) return NULL;
  n->set.target = t;
  if (!filters(p, NULL, false, &n->set.value) || !body_until(p, (const char *[]){"endset", NULL}, &n->set.body)) return NULL;
  next(p);
  return n;
}

static jj_node *parse_for(parser *p, int line) {
  jj_node *n = mk(p, N_FOR, line);
  jj_for *f = jj_src_alloc(p->s, 1, sizeof *f);
  if (!n || !f) return NULL;
  n->loop = f;
  if (!(f->target = target(p, "in", false))) return NULL;
  if (!skip_word(p, "in")) return unexpected(p, "'in'");
  if (!(f->iter = tuple(p, false, false, "recursive", false, false))) return NULL;
  if (skip_word(p, "if") && !(f->test = expression(p))) return NULL;
  if (word(p, "recursive")) return jj_src_refuse(p->s, cur(p)->line, "recursive loops are not supported"), NULL;
  if (!body_until(p, (const char *[]){"endfor", "else", NULL}, &f->body)) return NULL;
  if (str_is(next(p)->s, "else")) {
    if (!body_until(p, (const char *[]){"endfor", NULL}, &f->other)) return NULL;
    next(p);
  }
  return n;
}

static jj_node *parse_if(parser *p, int line) {
  jj_node *n = mk(p, N_IF, line);
  jj_list tests = {0};
  if (!n) return NULL;
  for (;;) {
    if (!(tests.n & (tests.n - 1))) { /* grow the bodies with the tests */
      jj_list *b = jj_src_alloc(p->s, tests.n ? (size_t)tests.n * 2 : 1, sizeof *b);
      if (!b) return NULL;
      if (tests.n) memcpy(b, n->cond.body, (size_t)tests.n * sizeof *b);
      n->cond.body = b;
    }
    if (!add(p, &tests, tuple(p, false, false, NULL, false, false))) return NULL;
    if (!body_until(p, (const char *[]){"endif", "elif", "else", NULL}, &n->cond.body[tests.n - 1])) return NULL;
    str end = next(p)->s;
    if (str_is(end, "elif")) continue;
    if (str_is(end, "else")) {
      if (!body_until(p, (const char *[]){"endif", NULL}, &n->cond.other)) return NULL;
      next(p);
    }
    break;
  }
  n->cond.test = tests.v;
  n->cond.n = tests.n;
  return n;
}

static bool signature(parser *p, jj_fn *fn) {
  if (!expect(p, T_LPAREN)) return false;
  while (!is(p, T_RPAREN)) {
    if (fn->params.n && !expect(p, T_COMMA)) return false;
    if (!add(p, &fn->params, target_name(p))) return false;
    if (skip(p, T_ASSIGN)) {
      if (!add(p, &fn->defaults, expression(p))) return false;
    } else if (fn->defaults.n) return jj_src_fail(p->s, cur(p)->line, "a parameter without a default follows one with a default");
  }
  return expect(p, T_RPAREN);
}

static jj_node *mk_fn(parser *p, jj_kind kind, int line) {
  jj_node *n = mk(p, kind, line);
  if (n && !(n->fn.fn = jj_src_alloc(p->s, 1, sizeof *n->fn.fn))) return NULL;
  return n;
}

static jj_node *parse_macro(parser *p, int line) {
  jj_node *n = mk_fn(p, N_MACRO, line), *id;
  if (!n || !(id = target_name(p))) return NULL;
  n->fn.fn->name = id->name.id;
  if (!signature(p, n->fn.fn) || !body_until(p, (const char *[]){"endmacro", NULL}, &n->fn.fn->body)) return NULL;
  next(p);
  return n;
}

static jj_node *parse_call(parser *p, int line) {
  jj_node *n = mk_fn(p, N_CALLBLOCK, line);
  if (!n || (is(p, T_LPAREN) && !signature(p, n->fn.fn))) return NULL;
  if (!(n->fn.call = expression(p))) return NULL;
  if (n->fn.call->kind != N_CALL) return jj_src_fail(p->s, line, "a call block needs a call"), NULL;
  n->fn.fn->name = STR("caller");
  if (!body_until(p, (const char *[]){"endcall", NULL}, &n->fn.fn->body)) return NULL;
  next(p);
  return n;
}

/* {% generation %} marks the assistant's part for training; here it only opens a scope of its own, as a call block does. */
static jj_node *parse_generation(parser *p, int line) {
  jj_node *n = mk_fn(p, N_GENERATION, line);
  if (!n) return NULL;
  n->fn.fn->name = STR("generation");
  if (!body_until(p, (const char *[]){"endgeneration", NULL}, &n->fn.fn->body)) return NULL;
  next(p);
  return n;
}

static jj_node *parse_filter_block(parser *p, int line) {
  jj_node *n = mk(p, N_FILTERBLOCK, line);
  if (!n || !filters(p, NULL, true, &n->set.value)) return NULL;
  if (!body_until(p, (const char *[]){"endfilter", NULL}, &n->set.body)) return NULL;
  next(p);
  return n;
}

static jj_node *parse_with(parser *p, int line) {
  jj_node *n = mk(p, N_WITH, line);
  while (n && !is(p, T_BLOCK_END)) {
    if (n->with.targets.n && !expect(p, T_COMMA)) return NULL;
    if (!add(p, &n->with.targets, target(p, NULL, false))) return NULL;
    if (!expect(p, T_ASSIGN) || !add(p, &n->with.values, expression(p))) return NULL;
  }
  if (!n || !body_until(p, (const char *[]){"endwith", NULL}, &n->with.body)) return NULL;
  next(p);
  return n;
}

static jj_node *parse_print(parser *p, int line) {
  jj_node *n = mk(p, N_PRINT, line);
  while (n && !is(p, T_BLOCK_END)) {
    if (n->seq.n && !expect(p, T_COMMA)) return NULL;
    if (!add(p, &n->seq, expression(p))) return NULL;
  }
  return n;
}

static jj_node *parse_break(parser *p, int line) { return mk(p, N_BREAK, line); }
static jj_node *parse_continue(parser *p, int line) { return mk(p, N_CONTINUE, line); }

static const struct {
  const char *tag;
  jj_node *(*parse)(parser *, int line);
} tags[] = {
    {"for", parse_for},
    {"if", parse_if},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"break", parse_break},
    {"continue", parse_continue},
    {"generation", parse_generation},
};
/* Tags of the reference that chat templates have no use for: they name other templates, blocks of a base template or HTML escaping. */
static const char *const refused[] = {"block", "extends", "include", "import", "from", "autoescape", NULL};

static jj_node *statement(parser *p, const char *const *ends) {
  jj_tok *t = cur(p);
  if (t->kind != T_NAME) return unexpected(p, "the name of a tag");
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
    if (str_is(t->s, tags[i].tag)) {
      next(p);
      return tags[i].parse(p, t->line);
    }
  for (int i = 0; refused[i]; i++)
    if (str_is(t->s, refused[i])) return jj_src_refuse(p->s, t->line, "tag '%s' is not supported in chat templates", refused[i]), NULL;
  int n = (int)(t->s.n < 60 ? t->s.n : 60);
  if (ends) jj_src_fail(p->s, t->line, "unknown tag '%.*s'; the open block ends with '%s'", n, t->s.p, ends[0]);
  else jj_src_fail(p->s, t->line, "unknown tag '%.*s'", n, t->s.p);
  return NULL;
}

/* Statements until a tag named in `ends` (left as the current token) or, with ends NULL, the end of the template. */
static bool statements(parser *p, const char *const *ends, jj_list *ret) {
  if (!enter(p)) return false;
  for (;;) {
    jj_tok *t = next(p);
    jj_node *n;
    if (t->kind == T_EOF) {
      p->depth--;
      return !ends || jj_src_fail(p->s, t->line, "unexpected end of template, expected {%% %s %%}", ends[0]);
    }
    if (t->kind == T_DATA) {
      if (!add(p, ret, mk_str(p, N_DATA, t->line, t->s))) return false;
    } else if (t->kind == T_VAR_BEGIN) {
      jj_node *v = tuple(p, false, true, NULL, false, false);
      if (!v || !expect(p, T_VAR_END) || !(n = mk(p, N_PRINT, t->line)) || !add(p, &n->seq, v) || !add(p, ret, n)) return false;
    } else {
      for (int i = 0; ends && ends[i]; i++)
        if (word(p, ends[i])) {
          p->depth--;
          return true;
        }
      if (!add(p, ret, statement(p, ends)) || !expect(p, T_BLOCK_END)) return false;
    }
  }
}

bool jj_parse(jj_src *s) {
  parser p = {.s = s};
  return statements(&p, NULL, &s->body);
}
