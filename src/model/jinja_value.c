/* Values: strings that know which of their bytes are trusted, sequences, insertion-ordered dicts; truth, equality, order, hashing as Python has them.
 */
#include "model/jinja.h"
#include "base/hash.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- failure, budget, memory ---- */

static bool fail(jj_rt *rt, err_code code, const char *fmt, va_list ap) {
  char msg[500];
  vsnprintf(msg, sizeof msg, fmt, ap);
  jj_clean(msg);
  return err_set(rt->e, code, "chat template, line %d: %s", rt->line, msg);
}

bool jj_fail(jj_rt *rt, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fail(rt, ERR_INPUT, fmt, ap);
  va_end(ap);
  return false;
}

bool jj_refuse(jj_rt *rt, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fail(rt, ERR_UNSUPPORTED, fmt, ap);
  va_end(ap);
  return false;
}

bool jj_spend(jj_rt *rt, size_t n) {
  if ((uint64_t)rt->steps < n) {
    rt->steps = 0;
    return jj_fail(rt, "takes more than %lld steps to render", (long long)JJ_MAX_STEPS);
  }
  rt->steps -= (int64_t)n;
  return true;
}

void *jj_alloc(jj_rt *rt, size_t count, size_t size) {
  void *p = arena_try_array(&rt->mem, count ? count : 1, size);
  if (!p && rt->mem.starved) err_set(rt->e, ERR_NOMEM, "out of memory rendering a chat template");
  else if (!p) jj_fail(rt, "needs more than %zu MiB of working memory to render", JJ_MAX_MEMORY >> 20);
  return p;
}

const char *jj_type_name(jj_val v) {
  static const char *const names[] = {[J_MISSING] = "Undefined",
      [J_UNDEF] = "Undefined",
      [J_NONE] = "NoneType",
      [J_BOOL] = "bool",
      [J_INT] = "int",
      [J_FLOAT] = "float",
      [J_STR] = "str",
      [J_LIST] = "list",
      [J_TUPLE] = "tuple",
      [J_DICT] = "dict",
      [J_RANGE] = "range",
      [J_VIEW] = "dict view",
      [J_ITER] = "generator",
      [J_NS] = "Namespace",
      [J_MACRO] = "Macro",
      [J_FUNC] = "function",
      [J_METHOD] = "method",
      [J_LOOP] = "LoopContext",
      [J_CYCLER] = "Cycler",
      [J_JOINER] = "Joiner"};
  return v.tag <= J_JOINER ? names[v.tag] : "?";
}

bool jj_undef_fail(jj_rt *rt, jj_val v) {
  if (v.sub == JU_TEXT) return jj_fail(rt, "%s", v.text ? v.text : "the value is undefined");
  int n = (int)(v.name->n < 100 ? v.name->n : 100);
  if (v.sub == JU_NAME) return jj_fail(rt, "'%.*s' is undefined", n, v.name->p);
  const char *owner = jj_type_name((jj_val){.tag = v.owner});
  if (v.sub == JU_UNSAFE) return jj_fail(rt, "access to attribute '%.*s' of a %s is refused: templates may not change values", n, v.name->p, owner);
  return jj_fail(rt, "'%s' has no attribute '%.*s'", owner, n, v.name->p);
}

/* ---- strings ---- */

static jj_str *str_make(jj_rt *rt, const char *p, size_t n, jj_val *ret) {
  jj_str *s = jj_alloc(rt, 1, sizeof *s);
  if (!s) return NULL;
  s->p = p;
  s->n = n;
  s->len = n ? JJ_LEN_UNKNOWN : 0;
  *ret = (jj_val){.tag = J_STR, .s = s};
  return s;
}

bool jj_str_new(jj_rt *rt, str text, uint8_t trust, jj_val *ret) {
  jj_str *s = str_make(rt, text.p, text.n, ret);
  if (s) s->trust = trust;
  return s != NULL;
}

bool jj_str_sub(jj_rt *rt, const jj_str *of, size_t off, size_t n, jj_val *ret) {
  jj_str *s = str_make(rt, of->p + off, n, ret);
  if (!s) return false;
  s->trust = of->trust;
  s->html = of->html;
  if (of->t) s->t = of->t + off;
  if (of->len == of->n) s->len = n; /* ASCII stays ASCII */
  return true;
}

size_t jj_str_len(jj_str *s) {
  if (s->len == JJ_LEN_UNKNOWN) {
    size_t len = 0;
    for (size_t i = 0; i < s->n; i++) len += ((unsigned char)s->p[i] & 0xC0) != 0x80;
    s->len = len;
  }
  return s->len;
}

size_t jj_str_at(jj_str *s, size_t cp) {
  if (jj_str_len(s) == s->n) return cp;
  size_t i = 0;
  for (; i < s->n; i++)
    if (((unsigned char)s->p[i] & 0xC0) != 0x80 && cp-- == 0) break;
  return i;
}

static void copy_trust(uint8_t *to, const jj_str *s) {
  if (!s->n) return;
  if (s->trust == JT_MIX) memcpy(to, s->t, s->n);
  else memset(to, s->trust, s->n);
}

/* A template that builds its text by `x = x + part` would copy quadratically; instead the left side, when it still ends its block, grows in place. */
bool jj_concat(jj_rt *rt, const jj_str *a, const jj_str *b, jj_val *ret) {
  if (!jj_spend(rt, b->n / 64 + 1)) return false;
  size_t n = a->n + b->n;
  bool mixed = a->trust == JT_MIX || b->trust == JT_MIX || (a->n && b->n && a->trust != b->trust);
  jj_grow *g = a->grow;
  bool room = g && a->p + a->n == g->p + g->used && g->cap - g->used >= b->n && (!mixed || g->t);
  if (!room) {
    if (!jj_spend(rt, a->n / 64)) return false;
    size_t cap = n < 64 ? n : n * 2;
    g = jj_alloc(rt, 1, sizeof *g);
    if (!g || !(g->p = jj_alloc(rt, cap, 1)) || (mixed && !(g->t = jj_alloc(rt, cap, 1)))) return false;
    g->cap = cap;
    if (a->n) memcpy(g->p, a->p, a->n);
    if (mixed) copy_trust(g->t, a);
    g->used = a->n;
  }
  char *start = g->p + g->used - a->n;
  if (b->n) memcpy(g->p + g->used, b->p, b->n);
  if (g->t) copy_trust(g->t + g->used, b);
  jj_str *s = str_make(rt, start, n, ret);
  if (!s) return false;
  g->used += b->n;
  s->grow = g;
  s->trust = mixed ? JT_MIX : a->n ? a->trust : b->trust;
  if (mixed) s->t = g->t + (start - g->p);
  if (a->len != JJ_LEN_UNKNOWN && b->len != JJ_LEN_UNKNOWN) s->len = a->len + b->len;
  return true;
}

/* ---- sequences and dicts ---- */

bool jj_seq_new(jj_rt *rt, jj_tag tag, size_t cap, jj_val *ret) {
  jj_seq *q = jj_alloc(rt, 1, sizeof *q);
  if (!q || (cap && !(q->v = jj_alloc(rt, cap, sizeof *q->v)))) return false;
  q->cap = cap;
  *ret = (jj_val){.tag = (uint8_t)tag, .q = q};
  return true;
}

bool jj_seq_add(jj_rt *rt, jj_seq *q, jj_val v) {
  if (q->n == q->cap) {
    size_t cap = q->cap ? q->cap * 2 : 4;
    jj_val *p = jj_alloc(rt, cap, sizeof *p);
    if (!p) return false;
    if (q->n) memcpy(p, q->v, q->n * sizeof *p);
    q->v = p;
    q->cap = cap;
  }
  q->v[q->n++] = v;
  return jj_spend(rt, 1);
}

bool jj_pair_new(jj_rt *rt, jj_val a, jj_val b, jj_val *ret) {
  if (!jj_seq_new(rt, J_TUPLE, 2, ret)) return false;
  ret->q->v[0] = a;
  ret->q->v[1] = b;
  ret->q->n = 2;
  return true;
}

/* Takes from the budget without failing: for look-ups, which have no error of their own. The next jj_spend notices. */
static void spend_softly(jj_rt *rt, size_t n) { rt->steps = (uint64_t)rt->steps < n ? 0 : rt->steps - (int64_t)n; }

static bool hash_deep(jj_rt *rt, jj_val v, int depth, uint64_t *ret) {
  switch (v.tag) {
  case J_LIST:
  case J_DICT:
  case J_VIEW: return false;
  case J_NONE:
  case J_UNDEF: *ret = 0x9e3779b97f4a7c15u * (v.tag + 1u); return true;
  case J_BOOL:
  case J_INT: {
    int64_t i = jj_as_int(v);
    *ret = hash64(&i, sizeof i, 1);
    return true;
  }
  case J_FLOAT: { /* equal numbers hash alike whatever their type */
    if (v.f >= -0x1p63 && v.f < 0x1p63 && floor(v.f) == v.f) {
      int64_t i = (int64_t)v.f;
      *ret = hash64(&i, sizeof i, 1);
    } else *ret = hash64(&v.f, sizeof v.f, 2);
    return true;
  }
  case J_STR:
    spend_softly(rt, v.s->n / 64);
    *ret = hash64(v.s->p, v.s->n, 3);
    return true;
  case J_TUPLE: {
    uint64_t h = 0x51ed270b, one;
    if (depth > JJ_MAX_DATA_DEPTH) return false;
    for (size_t i = 0; i < v.q->n; i++) {
      if (!hash_deep(rt, v.q->v[i], depth + 1, &one)) return false;
      h = (h ^ one) * 0x100000001b3u;
    }
    *ret = h;
    return true;
  }
  default: *ret = hash64(&v.p, sizeof v.p, 4); return true;
  }
}

bool jj_hash(jj_rt *rt, jj_val v, uint64_t *ret) { return hash_deep(rt, v, 0, ret); }

bool jj_dict_new(jj_rt *rt, jj_tag tag, jj_val *ret) {
  jj_dict *d = jj_alloc(rt, 1, sizeof *d);
  *ret = (jj_val){.tag = (uint8_t)tag, .d = d};
  return d != NULL;
}

static bool key_equal(jj_rt *rt, jj_val a, jj_val b) {
  bool eq;
  return jj_equal(rt, a, b, &eq) && eq;
}

static jj_pair *dict_find(jj_rt *rt, const jj_dict *d, jj_val k, uint64_t h) {
  if (!d->idx) {
    for (size_t i = 0; i < d->n; i++)
      if (d->v[i].h == h && key_equal(rt, d->v[i].k, k)) return &d->v[i];
    return NULL;
  }
  for (size_t i = h & (d->idx_cap - 1); d->idx[i]; i = (i + 1) & (d->idx_cap - 1)) {
    jj_pair *p = &d->v[d->idx[i] - 1];
    if (p->h == h && key_equal(rt, p->k, k)) return p;
  }
  return NULL;
}

static bool dict_index(jj_rt *rt, jj_dict *d) {
  size_t cap = d->cap * 2;
  uint32_t *idx = jj_alloc(rt, cap, sizeof *idx);
  if (!idx) return false;
  for (size_t k = 0; k < d->n; k++) {
    size_t i = d->v[k].h & (cap - 1);
    while (idx[i]) i = (i + 1) & (cap - 1);
    idx[i] = (uint32_t)k + 1;
  }
  d->idx = idx;
  d->idx_cap = cap;
  return true;
}

bool jj_dict_set(jj_rt *rt, jj_dict *d, jj_val k, jj_val v) {
  uint64_t h;
  d->written = (str){NULL, 0};
  if (!jj_hash(rt, k, &h)) return jj_fail(rt, "a %s cannot be a dict key", jj_type_name(k));
  jj_pair *old = dict_find(rt, d, k, h);
  if (old) {
    old->v = v;
    return true;
  }
  if (d->n == d->cap) {
    size_t cap = d->cap ? d->cap * 2 : 4;
    jj_pair *p = jj_alloc(rt, cap, sizeof *p);
    if (!p) return false;
    if (d->n) memcpy(p, d->v, d->n * sizeof *p);
    d->v = p;
    d->cap = cap;
    if (cap > 8 && !dict_index(rt, d)) return false;
  }
  d->v[d->n++] = (jj_pair){k, v, h};
  if (d->idx) {
    size_t i = h & (d->idx_cap - 1);
    while (d->idx[i]) i = (i + 1) & (d->idx_cap - 1);
    d->idx[i] = (uint32_t)d->n;
  }
  return jj_spend(rt, 1);
}

bool jj_dict_get(jj_rt *rt, const jj_dict *d, jj_val k, jj_val *ret) {
  uint64_t h;
  if (!jj_hash(rt, k, &h)) return false;
  jj_pair *p = dict_find(rt, d, k, h);
  if (p) *ret = p->v;
  return p != NULL;
}

bool jj_dict_gets(jj_rt *rt, const jj_dict *d, str k, jj_val *ret) {
  jj_str s = {.p = k.p, .n = k.n};
  return jj_dict_get(rt, d, (jj_val){.tag = J_STR, .s = &s}, ret);
}

/* ---- truth, equality, order ---- */

bool jj_truth(jj_val v) {
  switch (v.tag) {
  case J_MISSING:
  case J_UNDEF:
  case J_NONE: return false;
  case J_BOOL: return v.b;
  case J_INT: return v.i != 0;
  case J_FLOAT: return v.f != 0;
  case J_STR: return v.s->n != 0;
  case J_LIST:
  case J_TUPLE: return v.q->n != 0;
  case J_DICT:
  case J_VIEW: return v.d->n != 0;
  case J_RANGE: return v.r->n != 0;
  default: return true;
  }
}

static bool is_num(jj_val v) { return v.tag == J_BOOL || v.tag == J_INT || v.tag == J_FLOAT; }

/* A 64-bit integer and a double compared exactly: long double holds both. 2: not a number. */
static int num_cmp(jj_val a, jj_val b) {
  if (a.tag != J_FLOAT && b.tag != J_FLOAT) {
    int64_t x = jj_as_int(a), y = jj_as_int(b);
    return (x > y) - (x < y);
  }
  long double x = a.tag == J_FLOAT ? (long double)a.f : (long double)jj_as_int(a),
              y = b.tag == J_FLOAT ? (long double)b.f : (long double)jj_as_int(b);
  if (isnan(x) || isnan(y)) return 2;
  return (x > y) - (x < y);
}

static int str_cmp(const jj_str *a, const jj_str *b) { /* UTF-8 sorts as code points do */
  size_t n = a->n < b->n ? a->n : b->n;
  int c = n ? memcmp(a->p, b->p, n) : 0;
  return c ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
}

static bool equal_deep(jj_rt *rt, jj_val a, jj_val b, int depth, bool *ret) {
  if (depth > JJ_MAX_DATA_DEPTH) return jj_fail(rt, "values are nested too deep to compare");
  if (!jj_spend(rt, 1)) return false;
  *ret = false;
  if (is_num(a) && is_num(b)) {
    *ret = num_cmp(a, b) == 0;
    return true;
  }
  if (a.tag != b.tag) return true;
  switch (a.tag) {
  case J_UNDEF:
  case J_NONE: *ret = true; return true;
  case J_STR:
    if (a.s->n != b.s->n) return true;
    *ret = a.s->p == b.s->p || a.s->n == 0 || memcmp(a.s->p, b.s->p, a.s->n) == 0;
    return jj_spend(rt, a.s->n / 64);
  case J_LIST:
  case J_TUPLE:
    if (a.q->n != b.q->n) return true;
    for (size_t i = 0; i < a.q->n; i++)
      if (!equal_deep(rt, a.q->v[i], b.q->v[i], depth + 1, ret)) return false;
      else if (!*ret) return true;
    *ret = true;
    return true;
  case J_DICT:
    if (a.d->n != b.d->n) return true;
    for (size_t i = 0; i < a.d->n; i++) {
      jj_val other;
      if (!jj_dict_get(rt, b.d, a.d->v[i].k, &other)) return true;
      if (!equal_deep(rt, a.d->v[i].v, other, depth + 1, ret)) return false;
      if (!*ret) return true;
    }
    *ret = true;
    return true;
  case J_RANGE: *ret = a.r->n == b.r->n && (a.r->n == 0 || (a.r->start == b.r->start && (a.r->n == 1 || a.r->step == b.r->step))); return true;
  case J_VIEW: *ret = a.d == b.d && a.sub == b.sub; return true;
  default: *ret = a.p == b.p; return true;
  }
}

bool jj_equal(jj_rt *rt, jj_val a, jj_val b, bool *ret) { return equal_deep(rt, a, b, 0, ret); }

static bool order_deep(jj_rt *rt, jj_val a, jj_val b, const char *op, int depth, int *ret) {
  if (depth > JJ_MAX_DATA_DEPTH) return jj_fail(rt, "values are nested too deep to compare");
  if (!jj_spend(rt, 1)) return false;
  if (is_num(a) && is_num(b)) {
    *ret = num_cmp(a, b);
    return true;
  }
  if (a.tag == J_UNDEF || b.tag == J_UNDEF) return jj_undef_fail(rt, a.tag == J_UNDEF ? a : b);
  if (a.tag == J_STR && b.tag == J_STR) {
    *ret = str_cmp(a.s, b.s);
    return jj_spend(rt, a.s->n / 64);
  }
  if (a.tag == b.tag && (a.tag == J_LIST || a.tag == J_TUPLE)) {
    size_t n = a.q->n < b.q->n ? a.q->n : b.q->n;
    for (size_t i = 0; i < n; i++) {
      bool eq;
      if (!equal_deep(rt, a.q->v[i], b.q->v[i], depth + 1, &eq)) return false;
      if (!eq) return order_deep(rt, a.q->v[i], b.q->v[i], op, depth + 1, ret);
    }
    *ret = (a.q->n > b.q->n) - (a.q->n < b.q->n);
    return true;
  }
  return jj_fail(rt, "'%s' is not supported between a %s and a %s", op, jj_type_name(a), jj_type_name(b));
}

bool jj_order(jj_rt *rt, jj_val a, jj_val b, const char *op, int *ret) { return order_deep(rt, a, b, op, 0, ret); }

/* Merge sort: stable, and a comparison that fails stops it. Works on positions, as keys and values are apart. */
static bool merge(jj_rt *rt, const jj_val *keys, uint32_t *a, uint32_t *tmp, size_t n, bool reverse) {
  if (n < 2) return true;
  size_t h = n / 2, i = 0, j = h, k = 0;
  if (!merge(rt, keys, a, tmp, h, reverse) || !merge(rt, keys, a + h, tmp, n - h, reverse)) return false;
  while (i < h && j < n) {
    int c;
    /* the right one goes first only when it is strictly before the left one; reverse keeps the order of equals too */
    jj_val l = keys[a[i]], r = keys[a[j]];
    if (!jj_order(rt, reverse ? l : r, reverse ? r : l, "<", &c)) return false;
    tmp[k++] = c < 0 ? a[j++] : a[i++];
  }
  while (i < h) tmp[k++] = a[i++];
  while (j < n) tmp[k++] = a[j++];
  memcpy(a, tmp, n * sizeof *a);
  return true;
}

bool jj_sort(jj_rt *rt, jj_val *v, const jj_val *keys, size_t n, bool reverse) {
  uint32_t *a = jj_alloc(rt, n, sizeof *a), *tmp = jj_alloc(rt, n, sizeof *tmp);
  jj_val *out = jj_alloc(rt, n, sizeof *out);
  if (!a || !tmp || !out) return false;
  for (size_t i = 0; i < n; i++) a[i] = (uint32_t)i;
  if (!merge(rt, keys, a, tmp, n, reverse)) return false;
  for (size_t i = 0; i < n; i++) out[i] = v[a[i]];
  if (n) memcpy(v, out, n * sizeof *v);
  return true;
}
