/* Iteration: one small state machine a kind of value; lazy ones (map, select, ...) are made by the filters. */
#include "model/jinja.h"

static int next_seq(jj_rt *rt, jj_iter *it, jj_val *ret) {
  (void)rt;
  if (it->i >= it->src.q->n) return 0;
  *ret = it->src.q->v[it->i++];
  return 1;
}

static int next_str(jj_rt *rt, jj_iter *it, jj_val *ret) {
  jj_str *s = it->src.s;
  if (it->i >= s->n) return 0;
  int l;
  jj_cp(s->p + it->i, s->p + s->n, &l);
  if (!jj_str_sub(rt, s, it->i, (size_t)l, ret)) return -1;
  ret->s->html = false; /* iterating Markup gives plain characters */
  it->i += (size_t)l;
  return 1;
}

static bool dict_item(jj_rt *rt, jj_val src, size_t i, jj_val *ret) {
  const jj_pair *p = &src.d->v[i];
  if (src.tag == J_VIEW && src.sub == 2) return jj_pair_new(rt, p->k, p->v, ret);
  *ret = src.tag == J_VIEW && src.sub == 1 ? p->v : p->k;
  return true;
}

static int next_dict(jj_rt *rt, jj_iter *it, jj_val *ret) {
  if (it->i >= it->src.d->n) return 0;
  return dict_item(rt, it->src, it->i++, ret) ? 1 : -1;
}

static int next_range(jj_rt *rt, jj_iter *it, jj_val *ret) {
  (void)rt;
  if ((int64_t)it->i >= it->src.r->n) return 0;
  *ret = jj_int(jj_range_at(it->src.r, (int64_t)it->i++));
  return 1;
}

static int next_none(jj_rt *rt, jj_iter *it, jj_val *ret) {
  (void)rt;
  (void)it;
  (void)ret;
  return 0;
}

/* Backwards; i counts what is left. */
static int next_rev(jj_rt *rt, jj_iter *it, jj_val *ret) {
  if (!it->i) return 0;
  size_t i = --it->i;
  switch (it->src.tag) {
  case J_LIST:
  case J_TUPLE: *ret = it->src.q->v[i]; return 1;
  case J_RANGE: *ret = jj_int(jj_range_at(it->src.r, (int64_t)i)); return 1;
  case J_STR: {
    int l;
    jj_cp_back(it->src.s->p, it->src.s->p + i + 1, &l);
    it->i = i + 1 - (size_t)l;
    return jj_str_sub(rt, it->src.s, it->i, (size_t)l, ret) ? 1 : -1;
  }
  default: return dict_item(rt, it->src, i, ret) ? 1 : -1;
  }
}

jj_iter *jj_iter_new(jj_rt *rt, int (*next)(jj_rt *, jj_iter *, jj_val *), void *st) {
  jj_iter *it = jj_alloc(rt, 1, sizeof *it);
  if (it) {
    it->next = next;
    it->st = st;
  }
  return it;
}

jj_iter *jj_iter_of(jj_rt *rt, jj_val v) {
  int (*next)(jj_rt *, jj_iter *, jj_val *);
  switch (v.tag) {
  case J_ITER: return v.it;
  case J_UNDEF: next = next_none; break;
  case J_LIST:
  case J_TUPLE: next = next_seq; break;
  case J_STR: next = next_str; break;
  case J_DICT:
  case J_VIEW: next = next_dict; break;
  case J_RANGE: next = next_range; break;
  default: jj_fail(rt, "a value of type %s cannot be iterated", jj_type_name(v)); return NULL;
  }
  jj_iter *it = jj_iter_new(rt, next, NULL);
  if (it) it->src = v;
  return it;
}

jj_iter *jj_iter_rev(jj_rt *rt, jj_val v) {
  size_t n = 0;
  switch (v.tag) {
  case J_LIST:
  case J_TUPLE: n = v.q->n; break;
  case J_STR: n = v.s->n; break;
  case J_DICT:
  case J_VIEW: n = v.d->n; break;
  case J_RANGE: n = (size_t)v.r->n; break;
  case J_UNDEF: break;
  case J_ITER: return NULL;
  default: jj_fail(rt, "a value of type %s cannot be reversed", jj_type_name(v)); return NULL;
  }
  jj_iter *it = jj_iter_new(rt, next_rev, NULL);
  if (it) {
    it->src = v;
    it->i = n;
  }
  return it;
}

int jj_next(jj_rt *rt, jj_iter *it, jj_val *ret) {
  if (++rt->depth > JJ_MAX_DEPTH) {
    jj_fail(rt, "generators are nested deeper than %d levels", JJ_MAX_DEPTH);
    return -1;
  }
  int r = it->next(rt, it, ret);
  rt->depth--;
  return r < 0 || jj_spend(rt, 1) ? r : -1;
}

bool jj_to_list(jj_rt *rt, jj_val v, jj_val *ret) {
  jj_iter *it = jj_iter_of(rt, v);
  jj_val list, x;
  int r = -1;
  if (!it || !jj_seq_new(rt, J_LIST, 0, &list)) return false;
  while ((r = jj_next(rt, it, &x)) > 0)
    if (!jj_seq_add(rt, list.q, x)) return false;
  if (r == 0) *ret = list;
  return r == 0;
}
