/* The functions a template can call by name: range, dict, namespace, cycler, joiner, raise_exception, strftime_now. */
#include "model/jinja.h"
#include <time.h>

static bool no_kw(jj_rt *rt, jj_call *c) { return !c->raw->n_kw || jj_fail(rt, "function '%s' takes no keyword arguments", c->fn->name); }

static bool g_range(jj_rt *rt, jj_call *c, jj_val *ret) {
  const jj_argv *a = c->raw;
  int64_t v[3] = {0, 0, 1};
  if (!no_kw(rt, c)) return false;
  if (a->n < 1 || a->n > 3) return jj_fail(rt, "range takes 1 to 3 integers, %zu given", a->n);
  for (size_t i = 0; i < a->n; i++) {
    if (a->v[i].tag == J_UNDEF) return jj_undef_fail(rt, a->v[i]);
    if (!jj_is_intlike(a->v[i])) return jj_fail(rt, "range needs integers, not a %s", jj_type_name(a->v[i]));
    v[i] = jj_as_int(a->v[i]);
  }
  if (a->n == 1) {
    v[1] = v[0];
    v[0] = 0;
  }
  if (!v[2]) return jj_fail(rt, "the step of a range cannot be 0");
  /* in unsigned arithmetic: the distance of two 64-bit integers always fits */
  bool some = v[2] > 0 ? v[0] < v[1] : v[0] > v[1];
  uint64_t dist = v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
  uint64_t step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2], n = some ? (dist - 1) / step + 1 : 0;
  if (n > JJ_MAX_RANGE) return jj_fail(rt, "range is too big: %llu items, at most %d are allowed", (unsigned long long)n, JJ_MAX_RANGE);
  jj_range *r = jj_alloc(rt, 1, sizeof *r);
  if (!r) return false;
  *r = (jj_range){v[0], v[1], v[2], (int64_t)n};
  *ret = (jj_val){.tag = J_RANGE, .r = r};
  return true;
}

/* dict(mapping or pairs, **kwargs), into d. */
static bool fill_dict(jj_rt *rt, jj_call *c, jj_dict *d) {
  const jj_argv *a = c->raw;
  if (a->n > 1) return jj_fail(rt, "function '%s' takes at most 1 positional argument, %zu given", c->fn->name, a->n);
  if (a->n && a->v[0].tag == J_DICT) {
    for (size_t i = 0; i < a->v[0].d->n; i++)
      if (!jj_dict_set(rt, d, a->v[0].d->v[i].k, a->v[0].d->v[i].v)) return false;
  } else if (a->n) {
    jj_iter *it = jj_iter_of(rt, a->v[0]);
    jj_val e, pair;
    int r = it ? 1 : -1;
    while (r > 0 && (r = jj_next(rt, it, &e)) > 0) {
      if (!jj_to_list(rt, e, &pair)) return false;
      if (pair.q->n != 2) return jj_fail(rt, "function '%s' needs pairs, and one has %zu elements", c->fn->name, pair.q->n);
      if (!jj_dict_set(rt, d, pair.q->v[0], pair.q->v[1])) return false;
    }
    if (r < 0) return false;
  }
  for (size_t i = 0; i < a->n_kw; i++) {
    jj_val k;
    if (!jj_str_new(rt, a->kw[i].name, JT_YES, &k) || !jj_dict_set(rt, d, k, a->kw[i].val)) return false;
  }
  return true;
}

static bool g_dict(jj_rt *rt, jj_call *c, jj_val *ret) { return jj_dict_new(rt, J_DICT, ret) && fill_dict(rt, c, ret->d); }

static bool g_namespace(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (!jj_dict_new(rt, J_NS, ret) || !fill_dict(rt, c, ret->d)) return false;
  for (size_t i = 0; i < ret->d->n; i++) {
    jj_val k = ret->d->v[i].k;
    if (k.tag == J_STR && k.s->n && k.s->p[0] == '_')
      return jj_fail(rt, "namespace attributes cannot begin with an underscore: '%.*s'", (int)(k.s->n < 100 ? k.s->n : 100), k.s->p);
  }
  return true;
}

static bool g_cycler(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (!no_kw(rt, c)) return false;
  if (!c->raw->n) return jj_fail(rt, "cycler needs at least one item");
  jj_cycler *cy = jj_alloc(rt, 1, sizeof *cy);
  if (!cy) return false;
  *cy = (jj_cycler){.v = c->raw->v, .n = c->raw->n};
  *ret = (jj_val){.tag = J_CYCLER, .cy = cy};
  return true;
}

static bool g_joiner(jj_rt *rt, jj_call *c, jj_val *ret) {
  jj_cycler *cy = jj_alloc(rt, 1, sizeof *cy);
  jj_val *sep = jj_alloc(rt, 1, sizeof *sep);
  if (!cy || !sep) return false;
  *sep = c->a[0];
  if (sep->tag == J_MISSING && !jj_str_new(rt, STR(", "), JT_YES, sep)) return false;
  *cy = (jj_cycler){.v = sep, .n = 1};
  *ret = (jj_val){.tag = J_JOINER, .cy = cy};
  return true;
}

static bool g_raise(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)ret;
  jj_str *s;
  if (!jj_to_str(rt, c->a[0], &s)) return false;
  return jj_fail(rt, "%.*s", (int)(s->n < 400 ? s->n : 400), s->p);
}

/* Local time, as datetime.now() has it. The result is untrusted: it is made, not written. */
static bool g_strftime(jj_rt *rt, jj_call *c, jj_val *ret) {
  if (c->a[0].tag != J_STR) return jj_fail(rt, "strftime_now needs a format string, not a %s", jj_type_name(c->a[0]));
  jj_str *f = c->a[0].s;
  time_t now = (time_t)rt->now;
  struct tm tm;
  if (f->n > 512 || memchr(f->p, 0, f->n)) return jj_fail(rt, "strftime_now: the format is longer than 512 bytes or holds a NUL");
  if (!localtime_r(&now, &tm)) return jj_fail(rt, "strftime_now: %lld is not a time", (long long)rt->now);
  /* %f is Python's own: microseconds, which a clock of seconds does not have. %z and %Z are empty for a time without a zone. */
  char fmt[4096];
  size_t n = 0;
  for (size_t i = 0; i < f->n; i++) {
    if (f->p[i] != '%' || i + 1 == f->n) {
      fmt[n++] = f->p[i];
      continue;
    }
    i++;
    if (f->p[i] == 'f') {
      memcpy(fmt + n, "000000", 6);
      n += 6;
    } else if (f->p[i] != 'z' && f->p[i] != 'Z') {
      fmt[n++] = '%';
      fmt[n++] = f->p[i];
    }
  }
  fmt[n] = 0;
  char *out = jj_alloc(rt, 16384, 1);
  if (!out) return false;
  size_t got = n ? strftime(out, 16384, fmt, &tm) : 0;
  if (!utf8_valid((str){out, got})) return jj_fail(rt, "strftime_now: the locale's text is not UTF-8");
  return jj_spend(rt, 256) && jj_str_new(rt, (str){out, got}, JT_NO, ret);
}

static bool g_lipsum(jj_rt *rt, jj_call *c, jj_val *ret) {
  (void)c;
  (void)ret;
  return jj_refuse(rt, "function 'lipsum' is not supported");
}

static const jj_func globals[] = {{"range", g_range, NULL, 0}, {"dict", g_dict, NULL, 0}, {"namespace", g_namespace, NULL, 0},
    {"cycler", g_cycler, NULL, 0}, {"joiner", g_joiner, "sep", 0}, {"raise_exception", g_raise, "message", 1},
    {"strftime_now", g_strftime, "format", 1}, {"lipsum", g_lipsum, NULL, 0}};

const jj_func *jj_global_find(int i) { return i >= 0 && (size_t)i < sizeof globals / sizeof *globals ? &globals[i] : NULL; }

bool jj_global_call(jj_rt *rt, const jj_func *f, const jj_argv *args, jj_val *ret) { return jj_func_call(rt, f, "function", (jj_val){0}, args, ret); }
