#include "base/yaml.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

/* libyaml's events become a jansson document. What JSON cannot say, or what lets a short text stand for a long one (aliases), is refused
 * with its place, so that a config file means the same to every reader. */

enum { YAML_DEPTH = 64 };

typedef struct reader {
  yaml_parser_t p;
  const char *name;
  err *e;
} reader;

static bool starved(reader *r) { return err_set(r->e, ERR_NOMEM, "%s: out of memory", r->name); }

static bool refuse(reader *r, yaml_mark_t at, const char *what) {
  return err_set(r->e, ERR_INPUT, "%s:%zu:%zu: %s", r->name, at.line + 1, at.column + 1, what);
}

static bool next(reader *r, yaml_event_t *ev) {
  if (yaml_parser_parse(&r->p, ev)) return true;
  yaml_mark_t at = r->p.error == YAML_READER_ERROR ? r->p.mark : r->p.problem_mark;
  if (r->p.error == YAML_MEMORY_ERROR) return starved(r);
  return refuse(r, at, r->p.problem ? r->p.problem : "not YAML");
}

static bool one_of(const char *s, const char *const *names) {
  for (; *names; names++)
    if (strcmp(s, *names) == 0) return true;
  return false;
}

/* [-+]?[0-9]+ | 0x[0-9a-fA-F]+ | 0o[0-7]+ (YAML 1.2 core schema, 10.3.2) */
static bool is_int(const char *s, int *ret_base, const char **ret_digits) {
  const char *d = s + (*s == '-' || *s == '+');
  if (s[0] == '0' && (s[1] == 'x' || s[1] == 'o')) {
    *ret_base = s[1] == 'x' ? 16 : 8;
    *ret_digits = s + 2;
    return s[2] && strspn(s + 2, s[1] == 'x' ? "0123456789abcdefABCDEF" : "01234567") == strlen(s + 2);
  }
  *ret_base = 10;
  *ret_digits = s;
  return *d && strspn(d, "0123456789") == strlen(d);
}

static bool is_float(const char *s) {
  s += *s == '-' || *s == '+';
  size_t whole = strspn(s, "0123456789"), frac = 0;
  s += whole;
  if (*s == '.') {
    s++;
    frac = strspn(s, "0123456789");
    s += frac;
  }
  if (!whole && !frac) return false;
  if (*s == 'e' || *s == 'E') {
    s++;
    s += *s == '-' || *s == '+';
    size_t n = strspn(s, "0123456789");
    if (!n) return false;
    s += n;
  }
  return !*s;
}

static bool plain_scalar(reader *r, const yaml_event_t *ev, json_t **ret) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
  static const char *const yes[] = {"true", "True", "TRUE", NULL}, *const no[] = {"false", "False", "FALSE", NULL};
  static const char *const odd[] = {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF", ".nan", ".NaN", ".NAN", NULL};
  const char *s = (const char *)ev->data.scalar.value, *digits;
  int base;
  if (strlen(s) != ev->data.scalar.length) return refuse(r, ev->start_mark, "a NUL byte in a plain scalar");
  if (one_of(s, nulls)) *ret = json_null();
  else if (one_of(s, yes)) *ret = json_true();
  else if (one_of(s, no)) *ret = json_false();
  else if (one_of(s, odd)) return refuse(r, ev->start_mark, "infinity and NaN are not accepted");
  else if (is_int(s, &base, &digits)) {
    errno = 0;
    long long v = strtoll(digits, NULL, base);
    if (errno) return refuse(r, ev->start_mark, "the number does not fit 64 bits");
    *ret = json_integer(v);
  } else if (is_float(s)) {
    double v = strtod(s, NULL);
    if (!isfinite(v)) return refuse(r, ev->start_mark, "the number does not fit a double");
    *ret = json_real(v);
  } else *ret = json_string(s);
  return *ret ? true : starved(r);
}

static bool scalar(reader *r, const yaml_event_t *ev, json_t **ret) {
  if (ev->data.scalar.tag) return refuse(r, ev->start_mark, "tags are not accepted");
  if (ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) return plain_scalar(r, ev, ret);
  *ret = json_stringn((const char *)ev->data.scalar.value, ev->data.scalar.length);
  if (*ret) return true;
  /* libyaml has looked at the encoding, but an escape can name a surrogate. */
  bool text = utf8_valid((str){(const char *)ev->data.scalar.value, ev->data.scalar.length});
  return text ? starved(r) : refuse(r, ev->start_mark, "the string is not valid UTF-8");
}

static bool node(reader *r, const yaml_event_t *ev, int depth, json_t **ret);

static bool sequence(reader *r, int depth, json_t **ret) {
  json_t *a = json_array();
  bool ok = a || starved(r);
  while (ok) {
    yaml_event_t ev;
    json_t *v = NULL;
    if (!next(r, &ev)) {
      ok = false;
      break;
    }
    bool end = ev.type == YAML_SEQUENCE_END_EVENT;
    ok = end || (node(r, &ev, depth, &v) && (json_array_append_new(a, v) == 0 || starved(r)));
    yaml_event_delete(&ev);
    if (end) break;
  }
  if (!ok) json_decref(a);
  else *ret = a;
  return ok;
}

static bool map_key(reader *r, const yaml_event_t *ev, json_t *o, char **ret) {
  if (ev->type != YAML_SCALAR_EVENT || ev->data.scalar.tag) return refuse(r, ev->start_mark, "a key is a plain or quoted string");
  const char *k = (const char *)ev->data.scalar.value;
  if (strlen(k) != ev->data.scalar.length) return refuse(r, ev->start_mark, "a NUL byte in a key");
  if (json_object_get(o, k)) {
    char what[128];
    snprintf(what, sizeof what, "the key '%.80s' is here twice", k);
    return refuse(r, ev->start_mark, what);
  }
  *ret = strdup(k);
  return *ret ? true : starved(r);
}

static bool mapping(reader *r, int depth, json_t **ret) {
  json_t *o = json_object();
  bool ok = o || starved(r);
  while (ok) {
    yaml_event_t k, v;
    char *key = NULL;
    json_t *val = NULL;
    if (!next(r, &k)) {
      ok = false;
      break;
    }
    bool end = k.type == YAML_MAPPING_END_EVENT;
    ok = end || map_key(r, &k, o, &key);
    yaml_event_delete(&k);
    if (ok && !end) {
      ok = next(r, &v);
      if (ok) {
        ok = node(r, &v, depth, &val) &&
             (json_object_set_new(o, key, val) == 0 || (utf8_valid(str_c(key)) ? starved(r) : refuse(r, v.start_mark, "the key is not valid UTF-8")));
        yaml_event_delete(&v);
      }
    }
    free(key);
    if (end) break;
  }
  if (!ok) json_decref(o);
  else *ret = o;
  return ok;
}

static bool node(reader *r, const yaml_event_t *ev, int depth, json_t **ret) {
  switch (ev->type) {
  case YAML_SCALAR_EVENT: return scalar(r, ev, ret);
  case YAML_ALIAS_EVENT: return refuse(r, ev->start_mark, "aliases are not accepted: write the value out");
  case YAML_SEQUENCE_START_EVENT:
    if (ev->data.sequence_start.tag) return refuse(r, ev->start_mark, "tags are not accepted");
    if (depth >= YAML_DEPTH) return refuse(r, ev->start_mark, "nested deeper than 64 levels");
    return sequence(r, depth + 1, ret);
  case YAML_MAPPING_START_EVENT:
    if (ev->data.mapping_start.tag) return refuse(r, ev->start_mark, "tags are not accepted");
    if (depth >= YAML_DEPTH) return refuse(r, ev->start_mark, "nested deeper than 64 levels");
    return mapping(r, depth + 1, ret);
  default: return refuse(r, ev->start_mark, "a value was expected");
  }
}

/* stream start, document start, one node, document end, stream end; an empty stream is null. */
static bool document(reader *r, json_t **ret) {
  json_t *doc = NULL;
  bool ok = true, done = false;
  while (ok && !done) {
    yaml_event_t ev;
    if (!next(r, &ev)) {
      ok = false;
      break;
    }
    switch (ev.type) {
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT: break;
    case YAML_STREAM_END_EVENT: done = true; break;
    case YAML_DOCUMENT_START_EVENT:
      if (doc) ok = refuse(r, ev.start_mark, "a second document: one per file");
      break;
    default: ok = node(r, &ev, 0, &doc);
    }
    yaml_event_delete(&ev);
  }
  if (!ok) {
    json_decref(doc);
    return false;
  }
  *ret = doc ? doc : json_null();
  return true;
}

bool yaml_parse(str text, const char *name, json_t **ret, err *e) {
  reader r = {.name = name, .e = e};
  if (!yaml_parser_initialize(&r.p)) return err_set(e, ERR_NOMEM, "%s: out of memory", name);
  yaml_parser_set_encoding(&r.p, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&r.p, (const unsigned char *)text.p, text.n);
  bool ok = document(&r, ret);
  yaml_parser_delete(&r.p);
  return ok;
}

bool yaml_load_path(const char *path, size_t max_bytes, json_t **ret, err *e) {
  FILE *f = fopen(path, "rb");
  if (!f) return err_errno(e, errno, "cannot open %s", path);
  char *p = malloc(max_bytes + 1);
  size_t n = p ? fread(p, 1, max_bytes + 1, f) : 0;
  int bad = ferror(f) ? errno : 0;
  fclose(f);
  bool ok = false;
  if (!p) err_set(e, ERR_NOMEM, "%s: out of memory", path);
  else if (bad) err_errno(e, bad, "cannot read %s", path);
  else if (n > max_bytes) err_set(e, ERR_TOO_LARGE, "%s is larger than %zu bytes", path, max_bytes);
  else ok = yaml_parse((str){p, n}, path, ret, e);
  free(p);
  return ok;
}
