/* The filters over sequences and mappings; select, map and their kin are generators: they read their source when they are read. */
#include "model/jinja.h"

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

/* ---- at once ---- */

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
  jj_val path, dflt, name; /* map(attribute=path, default=dflt), map(name, ...), select(name, ...) */
  jj_argv args;
  bool by_attr, reject, has_test, case_sensitive, started, grouped;
  jj_dict *seen; /* unique */
  jj_val fill;   /* batch, slice */
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

static int next_items(jj_rt *rt, jj_iter *it, jj_val *ret) {
  lazy *st = it->st;
  if (!st->started) {
    if (it->src.tag == J_UNDEF) return 0;
    if (it->src.tag != J_DICT) {
      jj_fail(rt, "items needs a mapping, not a %s", jj_type_name(it->src));
      return -1;
    }
    it->src = (jj_val){.tag = J_VIEW, .sub = 2, .d = it->src.d};
  }
  int r = open_lazy(rt, it, st, false);
  st->started = true;
  return r <= 0 ? r : jj_next(rt, it->in, ret);
}

static bool f_items(jj_rt *rt, jj_call *c, jj_val *ret) {
  lazy *st;
  return make_lazy(rt, c, next_items, &st, ret);
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
    if (!st->n) {
      jj_fail(rt, "division by zero");
      return -1;
    }
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

const jj_func jj_seq_filters[] = {
    {"attr", f_attr, "name", 1},
    {"batch", f_batch, "linecount,fill_with", 1},
    {"count", f_length, "", 0},
    {"d", f_default, "default_value,boolean", 0},
    {"default", f_default, "default_value,boolean", 0},
    {"dictsort", f_dictsort, "case_sensitive,by,reverse", 0},
    {"first", f_first, "", 0},
    {"groupby", f_groupby, "attribute,default,case_sensitive", 1},
    {"items", f_items, "", 0},
    {"join", f_join, "d,attribute", 0},
    {"last", f_last, "", 0},
    {"length", f_length, "", 0},
    {"list", f_list, "", 0},
    {"map", f_map, NULL, 0},
    {"max", f_max, "case_sensitive,attribute", 0},
    {"min", f_min, "case_sensitive,attribute", 0},
    {"reject", f_reject, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
    {"reverse", f_reverse, "", 0},
    {"select", f_select, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {"slice", f_slice, "slices,fill_with", 1},
    {"sort", f_sort, "reverse,case_sensitive,attribute", 0},
    {"sum", f_sum, "attribute,start", 0},
    {"unique", f_unique, "case_sensitive,attribute", 0},
    {0},
};
