#include "base/json.h"
#include "base/rng.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DEPTH = 128, RESERVE_MIN = 1024 };
/* What jansson takes for each, allocator's rounding included, on 64 bits: measured, then rounded up. */
enum { COST_VALUE = 48, COST_STRING = 64, COST_PAIR = 32, COST_CONTAINER = 208 };

/* ---- when memory runs out ----
 * jansson 2.14 is careful with its values but not with its lexer's text: an append that finds no memory is lost without a word, so a string comes out
 * shorter, or, when its closing quote was lost, is read past its end. Hence: while a text is parsed, one block is kept in reserve that any growth of
 * that text fits; the first allocation that fails gets it, and from then on no further byte is fed, so the parse ends before anything else is saved.
 */
typedef struct spare {
  char *p;
  size_t n;
  bool starved;
} spare;
static _Thread_local spare reserve;

static void *json_malloc(size_t n) {
  void *p = malloc(n);
  if (p || !reserve.p || reserve.starved) return p;
  reserve.starved = true;
  return n <= reserve.n ? reserve.p : NULL;
}

static void json_free(void *p) {
  if (p != reserve.p) free(p);
}

typedef struct feed {
  const char *p;
  size_t n;
} feed;

/* One byte a call: what has been handed out cannot be taken back. */
static size_t feed_byte(void *to, size_t room, void *arg) {
  feed *f = arg;
  if (reserve.starved || !room) return (size_t)-1;
  if (!f->n) return 0;
  *(char *)to = *f->p++;
  f->n--;
  return 1;
}

void json_setup(void) {
  json_set_alloc_funcs(json_malloc, json_free);
  json_object_seed((size_t)(rng_seed() & 0x7fffffff) | 1);
}

const char *json_type_name(const json_t *v) {
  switch (v ? json_typeof(v) : JSON_NULL) {
  case JSON_OBJECT: return "an object";
  case JSON_ARRAY: return "an array";
  case JSON_STRING: return "a string";
  case JSON_INTEGER: return "an integer";
  case JSON_REAL: return "a number";
  case JSON_TRUE:
  case JSON_FALSE: return "a boolean";
  default: return "null";
  }
}

/* Looked at before any document is built: how deep it is (jansson's own bound is 2048), and what it will take. 16 MB of "[]," would take over 1 GB.
 */
static void survey(str t, int *ret_depth, uint64_t *ret_cost, size_t *ret_longest) {
  int d = 0, most = 0;
  size_t begin = 0, longest = 0; /* of a token, or of what stands between two */
  uint64_t cost = COST_VALUE + t.n;
  bool in = false;
  *ret_longest = t.n; /* a string that does not end */
  for (size_t i = 0; i < t.n; i++) {
    char c = t.p[i];
    if (in) {
      if (c == '\\') i++;
      else if (c == '"') {
        in = false;
        if (i - begin > longest) longest = i - begin;
        begin = i;
      }
      continue;
    }
    switch (c) {
    case '"':
      if (i - begin > longest) longest = i - begin;
      begin = i;
      in = true;
      cost += COST_STRING;
      break;
    case ',': cost += COST_VALUE; break;
    case ':': cost += COST_PAIR; break;
    case '[':
    case '{':
      cost += COST_CONTAINER + COST_VALUE;
      if (++d > most) most = d;
      break;
    case ']':
    case '}': d--; break;
    default: break;
    }
  }
  if (!in) *ret_longest = t.n - begin > longest ? t.n - begin : longest;
  *ret_depth = most;
  *ret_cost = cost;
}

uint64_t json_cost(str text) {
  int depth;
  uint64_t cost;
  size_t longest;
  survey(text, &depth, &cost, &longest);
  return cost;
}

static bool parse(str text, size_t flags, json_t **ret, err *e) {
  int depth;
  uint64_t cost;
  size_t longest;
  survey(text, &depth, &cost, &longest);
  if (depth > MAX_DEPTH) return err_set(e, ERR_INPUT, "JSON is nested deeper than %d levels", MAX_DEPTH);
  if (cost > JSON_COST_MAX)
    return err_set(e, ERR_TOO_LARGE, "JSON holds so many values that it would take more than %d MiB of memory: send less", JSON_COST_MAX >> 20);
  json_error_t je;
  reserve = (spare){.p = malloc(2 * longest + RESERVE_MIN), .n = 2 * longest + RESERVE_MIN};
  if (!reserve.p) return err_set(e, ERR_NOMEM, "out of memory while parsing JSON");
  json_t *v = json_load_callback(feed_byte, &(feed){text.p, text.n}, flags | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
  bool starved = reserve.starved;
  if (starved) json_decref(v); /* it may lie in the reserve */
  free(reserve.p);
  reserve = (spare){0};
  if (!v || starved) {
    if (starved || json_error_code(&je) == json_error_out_of_memory) return err_set(e, ERR_NOMEM, "out of memory while parsing JSON");
    if (json_error_code(&je) == json_error_invalid_utf8) return err_set(e, ERR_INPUT, "JSON is not valid UTF-8 at byte %d", je.position);
    return err_set(e, ERR_INPUT, "JSON cannot be parsed: %s (line %d, column %d)", je.text, je.line, je.column);
  }
  *ret = v;
  return true;
}

bool json_parse(str text, json_t **ret, err *e) { return parse(text, 0, ret, e); }
bool json_parse_wide(str text, json_t **ret, err *e) { return parse(text, JSON_DECODE_INT_AS_REAL, ret, e); }
bool json_parse_once(str text, json_t **ret, err *e) { return parse(text, JSON_REJECT_DUPLICATES, ret, e); }

bool json_load_path(const char *path, size_t max_bytes, json_t **ret, err *e) {
  FILE *f = fopen(path, "rb");
  if (!f) return err_errno(e, errno, "cannot open %s", path);
  char *p = malloc(max_bytes + 1);
  bool ok = false;
  if (!p) {
    err_set(e, ERR_NOMEM, "out of memory reading %s", path);
    goto out;
  }
  size_t n = fread(p, 1, max_bytes + 1, f);
  if (ferror(f)) err_errno(e, errno, "cannot read %s", path);
  else if (n > max_bytes) err_set(e, ERR_TOO_LARGE, "%s is larger than %zu bytes", path, max_bytes);
  else ok = json_parse((str){p, n}, ret, e) || err_prefix(e, "%s", path);
out:
  free(p);
  fclose(f);
  return ok;
}

static bool wrong(err *e, const char *path, const char *key, const char *want, const json_t *v) {
  char full[96];
  snprintf(full, sizeof full, "%s%s%s", path, *path ? "." : "", key);
  return err_param(e, ERR_INPUT, full, "'%s' must be %s, not %s", full, want, json_type_name(v));
}

static json_t *present(json_t *obj, const char *key) {
  json_t *v = json_object_get(obj, key);
  return json_is_null(v) ? NULL : v;
}

bool json_get_str(json_t *obj, const char *path, const char *key, str *ret, err *e) {
  json_t *v = present(obj, key);
  if (!v) return true;
  if (!json_is_string(v)) return wrong(e, path, key, "a string", v);
  *ret = (str){json_string_value(v), json_string_length(v)};
  return true;
}

static bool range(err *e, const char *path, const char *key, double lo, double hi, double got) {
  char full[96];
  snprintf(full, sizeof full, "%s%s%s", path, *path ? "." : "", key);
  return err_param(e, ERR_INPUT, full, "'%s' must be between %.10g and %.10g, not %.10g", full, lo, hi, got);
}

bool json_get_i64(json_t *obj, const char *path, const char *key, int64_t lo, int64_t hi, int64_t *ret, err *e) {
  json_t *v = present(obj, key);
  if (!v) return true;
  if (!json_is_number(v) || (json_is_real(v) && floor(json_real_value(v)) != json_real_value(v))) return wrong(e, path, key, "an integer", v);
  double d = json_number_value(v);
  int64_t i = json_is_integer(v) ? json_integer_value(v) : d >= -0x1p62 && d <= 0x1p62 ? (int64_t)d : d < 0 ? INT64_MIN : INT64_MAX;
  if (i < lo || i > hi) return range(e, path, key, (double)lo, (double)hi, d);
  *ret = i;
  return true;
}

bool json_get_f64(json_t *obj, const char *path, const char *key, double lo, double hi, double *ret, err *e) {
  json_t *v = present(obj, key);
  if (!v) return true;
  if (!json_is_number(v)) return wrong(e, path, key, "a number", v);
  double d = json_number_value(v);
  if (!(d >= lo && d <= hi)) return range(e, path, key, lo, hi, d);
  *ret = d;
  return true;
}

bool json_get_bool(json_t *obj, const char *path, const char *key, bool *ret, err *e) {
  json_t *v = present(obj, key);
  if (!v) return true;
  if (!json_is_boolean(v)) return wrong(e, path, key, "a boolean", v);
  *ret = json_is_true(v);
  return true;
}

bool json_get_array(json_t *obj, const char *path, const char *key, json_t **ret, err *e) {
  json_t *v = present(obj, key);
  if (!v) return true;
  if (!json_is_array(v)) return wrong(e, path, key, "an array", v);
  *ret = v;
  return true;
}

bool json_get_object(json_t *obj, const char *path, const char *key, json_t **ret, err *e) {
  json_t *v = present(obj, key);
  if (!v) return true;
  if (!json_is_object(v)) return wrong(e, path, key, "an object", v);
  *ret = v;
  return true;
}
