/* Text of values: the output builder with one trust mark a byte, str() and repr() as Python prints, tojson as json.dumps writes.
 * Bytes copied from a string keep its marks; bytes invented here (brackets, digits, escapes) are untrusted, as data decides about them. */
#include "model/jinja_ast.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the builder ---- */

void jj_out_fini(jj_out *o) {
  free(o->p);
  free(o->t);
  *o = (jj_out){0};
}

static bool reserve(jj_rt *rt, jj_out *o, size_t n) {
  if (n > JJ_MAX_OUTPUT || o->n > JJ_MAX_OUTPUT - n) return jj_fail(rt, "makes a text of more than %zu MiB", JJ_MAX_OUTPUT >> 20);
  if (o->n + n <= o->cap) return true;
  size_t cap = o->cap ? o->cap : 256;
  while (cap < o->n + n) cap *= 2;
  char *p = realloc(o->p, cap);
  if (p) o->p = p;
  uint8_t *t = p ? realloc(o->t, cap) : NULL;
  if (t) o->t = t;
  if (!p || !t) return err_set(rt->e, ERR_NOMEM, "out of memory rendering a chat template");
  o->cap = cap;
  return true;
}

bool jj_put(jj_rt *rt, jj_out *o, const void *p, size_t n, uint8_t trust) {
  if (!n) return true;
  if (!reserve(rt, o, n) || !jj_spend(rt, n / 64 + 1)) return false;
  memcpy(o->p + o->n, p, n);
  memset(o->t + o->n, trust, n);
  o->seen[trust] = true;
  o->n += n;
  return true;
}

bool jj_puts(jj_rt *rt, jj_out *o, const char *s) { return jj_put(rt, o, s, strlen(s), JT_NO); }

bool jj_put_part(jj_rt *rt, jj_out *o, const jj_str *s, size_t off, size_t n) {
  if (s->trust != JT_MIX) return jj_put(rt, o, s->p + off, n, s->trust);
  if (!jj_put(rt, o, s->p + off, n, JT_NO)) return false;
  if (n) memcpy(o->t + o->n - n, s->t + off, n);
  o->seen[JT_YES] = true;
  return true;
}

bool jj_put_cp(jj_rt *rt, jj_out *o, uint32_t cp, uint8_t trust) {
  char b[4];
  return jj_put(rt, o, b, (size_t)utf8_encode(cp, b), trust);
}

bool jj_take(jj_rt *rt, jj_out *o, jj_val *ret) {
  jj_str *s = jj_alloc(rt, 1, sizeof *s);
  char *p = jj_alloc(rt, o->n, 1);
  if (!s || !p) return false;
  if (o->n) memcpy(p, o->p, o->n);
  bool mixed = o->seen[JT_NO] && o->seen[JT_YES];
  uint8_t *t = NULL;
  if (mixed) {
    if (!(t = jj_alloc(rt, o->n, 1))) return false;
    memcpy(t, o->t, o->n);
  }
  *s = (jj_str){.p = p, .t = t, .n = o->n, .len = JJ_LEN_UNKNOWN, .trust = mixed ? JT_MIX : o->seen[JT_YES] ? JT_YES : JT_NO};
  *ret = (jj_val){.tag = J_STR, .s = s};
  jj_out_fini(o);
  return true;
}

/* ---- numbers ---- */

/* The shortest digits that read back as the same number, in Python's layout: exponents below -4 and from 16 on. */
int jj_float_repr(double f, char out[40]) {
  if (isnan(f)) return sprintf(out, "nan");
  if (isinf(f)) return sprintf(out, f < 0 ? "-inf" : "inf");
  char d[40];
  int prec = 0;
  do snprintf(d, sizeof d, "%.*e", prec, f);
  while (strtod(d, NULL) != f && ++prec < 17);
  char *ep = strchr(d, 'e');
  int exp = atoi(ep + 1);
  if (exp >= -4 && exp < 16) {
    int after = prec > exp ? prec - exp : 0;
    int n = sprintf(out, "%.*f", after, f);
    if (!after) n += sprintf(out + n, ".0");
    return n;
  }
  return sprintf(out, "%.*se%c%02d", (int)(ep - d), d, exp < 0 ? '-' : '+', abs(exp));
}

/* ---- str and repr ---- */

static bool put_int(jj_rt *rt, jj_out *o, int64_t i) {
  char b[24];
  return jj_put(rt, o, b, (size_t)snprintf(b, sizeof b, "%lld", (long long)i), JT_NO);
}

static bool put_float(jj_rt *rt, jj_out *o, double f) {
  char b[40];
  return jj_put(rt, o, b, (size_t)jj_float_repr(f, b), JT_NO);
}

static bool put_repr_cp(jj_rt *rt, jj_out *o, const jj_str *s, size_t off, int n, uint32_t cp, char quote) {
  char b[16];
  if (cp == (uint32_t)quote || cp == '\\') {
    b[0] = '\\';
    b[1] = (char)cp;
    b[2] = 0;
  } else if (cp == '\n' || cp == '\r' || cp == '\t') snprintf(b, sizeof b, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
  else if (jj_is_printable(cp)) return jj_put_part(rt, o, s, off, (size_t)n);
  else snprintf(b, sizeof b, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
  return jj_puts(rt, o, b);
}

static bool put_str_repr(jj_rt *rt, jj_out *o, const jj_str *s) {
  bool one = memchr(s->p, '\'', s->n) != NULL, two = memchr(s->p, '"', s->n) != NULL;
  char quote = one && !two ? '"' : '\'', q[2] = {quote, 0};
  if (!jj_spend(rt, s->n / 16) || !jj_puts(rt, o, s->html ? "Markup(" : "") || !jj_puts(rt, o, q)) return false;
  size_t run = 0; /* start of plain text not yet copied */
  for (size_t i = 0; i < s->n;) {
    int n;
    uint32_t cp = jj_cp(s->p + i, s->p + s->n, &n);
    if (cp < 0x20 || cp >= 0x7F || cp == '\\' || cp == (uint32_t)quote) {
      if (!jj_put_part(rt, o, s, run, i - run) || !put_repr_cp(rt, o, s, i, n, cp, quote)) return false;
      run = i + (size_t)n;
    }
    i += (size_t)n;
  }
  return jj_put_part(rt, o, s, run, s->n - run) && jj_puts(rt, o, q) && jj_puts(rt, o, s->html ? ")" : "");
}

static bool put_deep(jj_rt *rt, jj_out *o, jj_val v, bool repr, int depth);

static bool put_seq(jj_rt *rt, jj_out *o, jj_val v, int depth) {
  bool list = v.tag == J_LIST;
  if (!jj_puts(rt, o, list ? "[" : "(")) return false;
  for (size_t i = 0; i < v.q->n; i++)
    if ((i && !jj_puts(rt, o, ", ")) || !put_deep(rt, o, v.q->v[i], true, depth + 1)) return false;
  return jj_puts(rt, o, list ? "]" : v.q->n == 1 ? ",)" : ")");
}

static bool put_dict(jj_rt *rt, jj_out *o, const jj_dict *d, int depth) {
  if (!jj_puts(rt, o, "{")) return false;
  for (size_t i = 0; i < d->n; i++)
    if ((i && !jj_puts(rt, o, ", ")) || !put_deep(rt, o, d->v[i].k, true, depth + 1) || !jj_puts(rt, o, ": ") ||
        !put_deep(rt, o, d->v[i].v, true, depth + 1))
      return false;
  return jj_puts(rt, o, "}");
}

static bool put_view(jj_rt *rt, jj_out *o, jj_val v, int depth) {
  static const char *const head[] = {"dict_keys([", "dict_values([", "dict_items(["};
  if (!jj_puts(rt, o, head[v.sub])) return false;
  for (size_t i = 0; i < v.d->n; i++) {
    const jj_pair *p = &v.d->v[i];
    if (i && !jj_puts(rt, o, ", ")) return false;
    if (v.sub == 2 && !jj_puts(rt, o, "(")) return false;
    if (v.sub != 1 && !put_deep(rt, o, p->k, true, depth + 1)) return false;
    if (v.sub == 2 && !jj_puts(rt, o, ", ")) return false;
    if (v.sub != 0 && !put_deep(rt, o, p->v, true, depth + 1)) return false;
    if (v.sub == 2 && !jj_puts(rt, o, ")")) return false;
  }
  return jj_puts(rt, o, "])");
}

static bool put_deep(jj_rt *rt, jj_out *o, jj_val v, bool repr, int depth) {
  char b[128];
  if (depth > JJ_MAX_DATA_DEPTH) return jj_fail(rt, "a value is nested deeper than %d levels", JJ_MAX_DATA_DEPTH);
  switch (v.tag) {
  case J_MISSING:
  case J_UNDEF: return !repr || jj_puts(rt, o, "Undefined");
  case J_NONE: return jj_puts(rt, o, "None");
  case J_BOOL: return jj_puts(rt, o, v.b ? "True" : "False");
  case J_INT: return put_int(rt, o, v.i);
  case J_FLOAT: return put_float(rt, o, v.f);
  case J_STR: return repr ? put_str_repr(rt, o, v.s) : jj_put_part(rt, o, v.s, 0, v.s->n);
  case J_LIST:
  case J_TUPLE: return put_seq(rt, o, v, depth);
  case J_DICT: return put_dict(rt, o, v.d, depth);
  case J_NS: return jj_puts(rt, o, "<Namespace ") && put_dict(rt, o, v.d, depth) && jj_puts(rt, o, ">");
  case J_VIEW: return put_view(rt, o, v, depth);
  case J_RANGE:
    snprintf(b, sizeof b, "range(%lld, %lld", (long long)v.r->start, (long long)v.r->stop);
    if (!jj_puts(rt, o, b)) return false;
    if (v.r->step != 1) {
      snprintf(b, sizeof b, ", %lld", (long long)v.r->step);
      if (!jj_puts(rt, o, b)) return false;
    }
    return jj_puts(rt, o, ")");
  case J_MACRO: {
    str n = jj_macro_name(v.m);
    return jj_puts(rt, o, "<Macro '") && jj_put(rt, o, n.p, n.n, JT_NO) && jj_puts(rt, o, "'>");
  }
  case J_ITER: return jj_refuse(rt, "printing a generator is not supported; put |list behind it");
  default: return jj_refuse(rt, "printing a %s is not supported", jj_type_name(v));
  }
}

bool jj_put_val(jj_rt *rt, jj_out *o, jj_val v) { return put_deep(rt, o, v, false, 0); }
bool jj_put_repr(jj_rt *rt, jj_out *o, jj_val v) { return put_deep(rt, o, v, true, 0); }

bool jj_to_str(jj_rt *rt, jj_val v, jj_str **ret) {
  if (v.tag == J_STR) {
    *ret = v.s;
    return true;
  }
  jj_out o = {0};
  jj_val s;
  bool ok = jj_put_val(rt, &o, v) && jj_take(rt, &o, &s);
  jj_out_fini(&o);
  if (ok) *ret = s.s;
  return ok;
}

/* ---- JSON ---- */

typedef struct json_style {
  bool ascii, sort, lines;
  const jj_str *indent;     /* with lines */
  const jj_str *item, *key; /* separators; NULL: ", " or "," before a line end, and ": " */
} json_style;

static bool json_string(jj_rt *rt, jj_out *o, const jj_str *s, bool ascii) {
  static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
  if (!jj_puts(rt, o, "\"")) return false;
  size_t run = 0;
  for (size_t i = 0; i < s->n;) {
    unsigned char c = (unsigned char)s->p[i];
    char b[16];
    int n = 1;
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) snprintf(b, sizeof b, "\\%c", to[hit - from]);
    else if (c < 0x20) snprintf(b, sizeof b, "\\u%04x", c);
    else if (c >= 0x80 && ascii) {
      uint32_t cp = jj_cp(s->p + i, s->p + s->n, &n);
      if (cp < 0x10000) snprintf(b, sizeof b, "\\u%04x", cp);
      else snprintf(b, sizeof b, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + ((cp - 0x10000) & 0x3FF));
    } else if (c == 0x7F && ascii) snprintf(b, sizeof b, "\x7f");
    else {
      i++;
      continue;
    }
    if (!jj_put_part(rt, o, s, run, i - run) || !jj_puts(rt, o, b)) return false;
    i += (size_t)n;
    run = i;
  }
  return jj_put_part(rt, o, s, run, s->n - run) && jj_puts(rt, o, "\"");
}

static bool json_float(jj_rt *rt, jj_out *o, double f) {
  if (isnan(f)) return jj_puts(rt, o, "NaN");
  if (isinf(f)) return jj_puts(rt, o, f < 0 ? "-Infinity" : "Infinity");
  return put_float(rt, o, f);
}

static bool json_scalar(jj_rt *rt, jj_out *o, jj_val v, bool *ret_is) {
  *ret_is = true;
  switch (v.tag) {
  case J_NONE: return jj_puts(rt, o, "null");
  case J_BOOL: return jj_puts(rt, o, v.b ? "true" : "false");
  case J_INT: return put_int(rt, o, v.i);
  case J_FLOAT: return json_float(rt, o, v.f);
  default: *ret_is = false; return true;
  }
}

static bool json_break(jj_rt *rt, jj_out *o, const json_style *st, int depth) {
  if (!st->lines) return true;
  if (!jj_puts(rt, o, "\n")) return false;
  for (int i = 0; i < depth; i++)
    if (!jj_put_part(rt, o, st->indent, 0, st->indent->n)) return false;
  return true;
}

static bool json_sep(jj_rt *rt, jj_out *o, const json_style *st) {
  if (st->item) return jj_put_part(rt, o, st->item, 0, st->item->n);
  return jj_puts(rt, o, st->lines ? "," : ", ");
}

static bool json_value(jj_rt *rt, jj_out *o, jj_val v, const json_style *st, int depth);

static bool json_dict(jj_rt *rt, jj_out *o, jj_val v, const json_style *st, int depth) {
  const jj_pair *p = v.d->v;
  size_t n = v.d->n;
  if (!n) return jj_puts(rt, o, "{}");
  jj_val *order = NULL;
  if (st->sort) {
    jj_val *keys = jj_alloc(rt, n, sizeof *keys);
    if (!keys || !(order = jj_alloc(rt, n, sizeof *order))) return false;
    for (size_t i = 0; i < n; i++) {
      keys[i] = p[i].k;
      order[i] = jj_int((int64_t)i);
    }
    if (!jj_sort(rt, order, keys, n, false)) return false;
  }
  if (!jj_puts(rt, o, "{")) return false;
  for (size_t i = 0; i < n; i++) {
    const jj_pair *e = &p[order ? (size_t)order[i].i : i];
    bool scalar = false;
    if ((i && !json_sep(rt, o, st)) || !json_break(rt, o, st, depth + 1)) return false;
    if (e->k.tag == J_STR) {
      if (!json_string(rt, o, e->k.s, st->ascii)) return false;
    } else if (!jj_puts(rt, o, "\"") || !json_scalar(rt, o, e->k, &scalar) || !jj_puts(rt, o, "\"")) return false;
    else if (!scalar) return jj_fail(rt, "tojson: a dict key must be a string or a number, not a %s", jj_type_name(e->k));
    if (!(st->key ? jj_put_part(rt, o, st->key, 0, st->key->n) : jj_puts(rt, o, ": ")) || !json_value(rt, o, e->v, st, depth + 1)) return false;
  }
  return json_break(rt, o, st, depth) && jj_puts(rt, o, "}");
}

/* Text that was JSON before, printed again in no style of its own. */
static bool json_written(jj_rt *rt, jj_out *o, jj_val v, const json_style *st, bool *ret_is) {
  bool plain = !st->ascii && !st->sort && !st->lines && !st->item && !st->key;
  *ret_is = plain && ((v.tag == J_DICT && v.d->written.n) || (v.tag == J_STR && v.s->json));
  if (!*ret_is) return true;
  return v.tag == J_DICT ? jj_put(rt, o, v.d->written.p, v.d->written.n, JT_NO) : jj_put_part(rt, o, v.s, 0, v.s->n);
}

static bool json_value(jj_rt *rt, jj_out *o, jj_val v, const json_style *st, int depth) {
  bool scalar;
  if (depth > JJ_MAX_DATA_DEPTH) return jj_fail(rt, "tojson: a value is nested deeper than %d levels", JJ_MAX_DATA_DEPTH);
  if (!json_scalar(rt, o, v, &scalar)) return false;
  if (scalar) return true;
  if (!json_written(rt, o, v, st, &scalar)) return false;
  if (scalar) return true;
  if (v.tag == J_STR) return json_string(rt, o, v.s, st->ascii);
  if (v.tag == J_DICT) return json_dict(rt, o, v, st, depth);
  if (v.tag != J_LIST && v.tag != J_TUPLE) return jj_fail(rt, "tojson: a value of type %s cannot be written as JSON", jj_type_name(v));
  if (!v.q->n) return jj_puts(rt, o, "[]");
  if (!jj_puts(rt, o, "[")) return false;
  for (size_t i = 0; i < v.q->n; i++)
    if ((i && !json_sep(rt, o, st)) || !json_break(rt, o, st, depth + 1) || !json_value(rt, o, v.q->v[i], st, depth + 1)) return false;
  return json_break(rt, o, st, depth) && jj_puts(rt, o, "]");
}

static bool json_indent(jj_rt *rt, jj_val v, json_style *st, jj_str *spaces) {
  static const char blank[] = "                                                                ";
  if (jj_is_none(v)) return true;
  st->lines = true;
  st->indent = spaces;
  *spaces = (jj_str){.p = blank, .trust = JT_NO};
  if (v.tag == J_STR) {
    st->indent = v.s;
    return true;
  }
  if (!jj_is_intlike(v)) return jj_fail(rt, "tojson: indent must be a number or a string, not a %s", jj_type_name(v));
  int64_t n = jj_as_int(v);
  if (n > (int64_t)sizeof blank - 1) return jj_fail(rt, "tojson: indent is at most %zu, not %lld", sizeof blank - 1, (long long)n);
  spaces->n = n > 0 ? (size_t)n : 0;
  return true;
}

/* tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false): transformers replaces jinja's own filter by json.dumps. */
bool jj_to_json(jj_rt *rt, jj_call *c, jj_val *ret) {
  json_style st = {.ascii = jj_truth(c->a[0]), .sort = jj_truth(c->a[3])};
  jj_str spaces;
  if (!json_indent(rt, c->a[1], &st, &spaces)) return false;
  if (!jj_is_none(c->a[2])) {
    jj_val s = c->a[2];
    if ((s.tag != J_LIST && s.tag != J_TUPLE) || s.q->n != 2 || s.q->v[0].tag != J_STR || s.q->v[1].tag != J_STR)
      return jj_fail(rt, "tojson: separators must be a pair of strings");
    st.item = s.q->v[0].s;
    st.key = s.q->v[1].s;
  }
  jj_out o = {0};
  bool ok = json_value(rt, &o, c->self, &st, 0) && jj_take(rt, &o, ret);
  jj_out_fini(&o);
  return ok;
}
