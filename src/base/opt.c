#include "base/opt.h"
#include "base/os.h"
#include "base/yaml.h"
#include <stdlib.h>
#include <unistd.h>

/* One value takes one way in, whoever wrote it: set_text for text (defaults, argv), set_json for the config file. Both end in the same
 * range checks, and both name the option as its writer would: "--threads" or "engine.threads". */

enum { CONFIG_MAX = 1 << 20 };

struct opt_set {
  json_t *doc;
  char path[OS_PATH];
  const char ***lists; /* every list array handed out */
  int n_lists;
};

static const opt_cmd *const *known_cmds;
static int n_known_cmds;

void opt_commands(const opt_cmd *const *cmds, int n) {
  known_cmds = cmds;
  n_known_cmds = n;
}

static bool row_end(const opt_row *r) { return !r->flag && !r->key; }

/* ---- the nearest name ---- */

static size_t edit_distance(const char *a, const char *b) {
  enum { MAX = 64 };
  size_t na = strlen(a), nb = strlen(b), d[MAX + 1];
  if (na > MAX || nb > MAX) return MAX;
  for (size_t j = 0; j <= nb; j++) d[j] = j;
  for (size_t i = 1; i <= na; i++) {
    size_t diag = d[0];
    d[0] = i;
    for (size_t j = 1; j <= nb; j++) {
      size_t keep = d[j], best = diag + (a[i - 1] != b[j - 1]);
      if (d[j] + 1 < best) best = d[j] + 1;
      if (d[j - 1] + 1 < best) best = d[j - 1] + 1;
      d[j] = best;
      diag = keep;
    }
  }
  return d[nb];
}

const char *opt_nearest(const char *word, const char *const *names, int n) {
  const char *best = NULL;
  size_t len = strlen(word), best_d = len < 4 ? 2 : len < 8 ? 3 : 4; /* exclusive bound: a third of the word may differ */
  for (int i = 0; i < n; i++) {
    size_t d = edit_distance(word, names[i]);
    if (len >= 3 && strncmp(word, names[i], len) == 0) d = d > 0; /* a beginning of the name is as good as one wrong letter */
    if (d < best_d) {
      best_d = d;
      best = names[i];
    }
  }
  return best;
}

static const char *nearest_flag(const opt_cmd *c, const char *word) {
  const char *names[256];
  int n = 0;
  for (const opt_row *r = c->rows; !row_end(r) && n < 255; r++)
    if (r->flag) names[n++] = r->flag;
  names[n++] = "help";
  return opt_nearest(word, names, n);
}

/* ---- one value ---- */

static void *slot(const opt_row *r, void *dst) { return (char *)dst + r->off; }
static bool bounded(const opt_row *r) { return r->lo != r->hi; }

static bool out_of_range(const opt_row *r, const char *who, const char *text, err *e) {
  if (r->type == OPT_BYTES) return err_param(e, ERR_USAGE, who, "%s: %s is out of range: %.0f to %.0f bytes", who, text, r->lo, r->hi);
  return err_param(e, ERR_USAGE, who, "%s: %s is out of range: %.15g to %.15g", who, text, r->lo, r->hi);
}

static bool set_number(const opt_row *r, double v, int64_t i, const char *who, const char *text, void *dst, err *e) {
  if (bounded(r) && !(v >= r->lo && v <= r->hi)) return out_of_range(r, who, text, e);
  if (r->type == OPT_INT) *(int64_t *)slot(r, dst) = i;
  else if (r->type == OPT_BYTES) *(uint64_t *)slot(r, dst) = (uint64_t)i;
  else *(double *)slot(r, dst) = v;
  return true;
}

static bool set_enum(const opt_row *r, str v, const char *who, void *dst, err *e) {
  str rest = str_c(r->choices), head;
  for (int i = 0;; i++) {
    bool more = str_cut(rest, ',', &head, &rest);
    if (!more) head = rest;
    if (str_eq(head, v)) {
      *(int *)slot(r, dst) = i;
      return true;
    }
    if (!more) break;
  }
  return err_param(e, ERR_USAGE, who, "%s: '%.*s' is not one of %s", who, (int)(v.n < 60 ? v.n : 60), v.p, r->choices);
}

static bool list_add(opt_set *s, opt_list *l, const char *v, err *e) {
  const char **old = l->v, **grown = realloc((void *)old, (size_t)(l->n + 1) * sizeof *grown);
  if (!grown) return err_set(e, ERR_NOMEM, "out of memory");
  int i = 0;
  while (old && i < s->n_lists && s->lists[i] != old) i++;
  if (!old) {
    const char ***ls = realloc((void *)s->lists, (size_t)(s->n_lists + 1) * sizeof *ls);
    if (!ls) {
      free((void *)grown);
      return err_set(e, ERR_NOMEM, "out of memory");
    }
    s->lists = ls;
    i = s->n_lists++;
  }
  s->lists[i] = grown;
  l->v = grown;
  l->v[l->n++] = v;
  return true;
}

static bool set_text(const opt_row *r, const char *v, const char *who, opt_set *s, void *dst, err *e) {
  str t = str_c(v);
  int64_t i;
  uint64_t u;
  double f;
  switch (r->type) {
  case OPT_FLAG:
    if (!str_is(t, "true") && !str_is(t, "false")) return err_param(e, ERR_USAGE, who, "%s: '%.60s' is neither true nor false", who, v);
    *(bool *)slot(r, dst) = str_is(t, "true");
    return true;
  case OPT_INT:
    if (!str_i64(t, &i)) return err_param(e, ERR_USAGE, who, "%s: '%.60s' is not a whole number", who, v);
    return set_number(r, (double)i, i, who, v, dst, e);
  case OPT_FLOAT:
    if (!str_f64(t, &f)) return err_param(e, ERR_USAGE, who, "%s: '%.60s' is not a number", who, v);
    return set_number(r, f, 0, who, v, dst, e);
  case OPT_BYTES:
    if (!str_bytes(t, &u)) return err_param(e, ERR_USAGE, who, "%s: '%.60s' is not a size, such as 64M or 1.5G", who, v);
    return set_number(r, (double)u, (int64_t)u, who, v, dst, e);
  case OPT_ENUM: return set_enum(r, t, who, dst, e);
  case OPT_STR: *(const char **)slot(r, dst) = v; return true;
  case OPT_LIST: return list_add(s, slot(r, dst), v, e);
  }
  return err_set(e, ERR_INTERNAL, "option %s has no type", who);
}

/* ---- the config file ---- */

static bool wrong_type(const char *who, const char *want, const json_t *v, err *e) {
  return err_param(e, ERR_INPUT, who, "%s: expected %s, found %s", who, want, json_type_name(v));
}

static bool set_list(const opt_row *r, json_t *v, const char *who, opt_set *s, void *dst, err *e) {
  if (json_is_string(v)) return list_add(s, slot(r, dst), json_string_value(v), e);
  if (!json_is_array(v)) return wrong_type(who, "a list of strings", v, e);
  size_t i;
  json_t *x;
  json_array_foreach(v, i, x) {
    if (!json_is_string(x)) return wrong_type(who, "a list of strings", x, e);
    if (!list_add(s, slot(r, dst), json_string_value(x), e)) return false;
  }
  return true;
}

static bool set_json(const opt_row *r, json_t *v, const char *who, opt_set *s, void *dst, err *e) {
  char text[64];
  bool ok = true;
  if (json_is_null(v)) return true;
  if (json_is_integer(v)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
  else if (json_is_real(v)) snprintf(text, sizeof text, "%.15g", json_real_value(v));
  switch (r->type) {
  case OPT_FLAG:
    if (!json_is_boolean(v)) return wrong_type(who, "true or false", v, e);
    *(bool *)slot(r, dst) = json_is_true(v);
    return true;
  case OPT_INT:
    if (!json_is_integer(v)) return wrong_type(who, "a whole number", v, e);
    ok = set_number(r, (double)json_integer_value(v), json_integer_value(v), who, text, dst, e);
    break;
  case OPT_FLOAT:
    if (!json_is_number(v)) return wrong_type(who, "a number", v, e);
    ok = set_number(r, json_number_value(v), 0, who, text, dst, e);
    break;
  case OPT_BYTES:
    if (json_is_integer(v) && json_integer_value(v) >= 0) ok = set_number(r, (double)json_integer_value(v), json_integer_value(v), who, text, dst, e);
    else if (json_is_string(v)) ok = set_text(r, json_string_value(v), who, s, dst, e);
    else return wrong_type(who, "a size, such as 64M", v, e);
    break;
  case OPT_ENUM:
    if (!json_is_string(v)) return wrong_type(who, "a word (put it in quotes)", v, e);
    ok = set_enum(r, str_c(json_string_value(v)), who, dst, e);
    break;
  case OPT_STR:
    if (!json_is_string(v)) return wrong_type(who, "a string (put it in quotes)", v, e);
    *(const char **)slot(r, dst) = json_string_value(v);
    return true;
  case OPT_LIST: return set_list(r, v, who, s, dst, e);
  }
  if (!ok && e && e->code == ERR_USAGE) e->code = ERR_INPUT; /* a file was refused, not a command line */
  return ok;
}

/* The value at "engine.threads", or NULL. */
static json_t *doc_at(json_t *doc, const char *key) {
  char part[128];
  for (const char *p = key;;) {
    size_t n = strcspn(p, ".");
    if (n >= sizeof part || !json_is_object(doc)) return NULL;
    memcpy(part, p, n);
    part[n] = 0;
    doc = json_object_get(doc, part);
    if (!doc || !p[n]) return doc;
    p += n + 1;
  }
}

static const opt_row *row_of_key(const opt_cmd *const *cmds, int n, const char *key, bool *ret_section) {
  size_t len = strlen(key);
  *ret_section = false;
  for (int c = 0; c < n; c++)
    for (const opt_row *r = cmds[c]->rows; !row_end(r); r++) {
      if (!r->key) continue;
      if (strcmp(r->key, key) == 0) return r;
      if (strncmp(r->key, key, len) == 0 && r->key[len] == '.') *ret_section = true;
    }
  return NULL;
}

static const char *nearest_key(const opt_cmd *const *cmds, int n, const char *word) {
  const char *names[512];
  int k = 0;
  for (int c = 0; c < n; c++)
    for (const opt_row *r = cmds[c]->rows; !row_end(r); r++)
      if (r->key && k < 512) names[k++] = r->key;
  return opt_nearest(word, names, k);
}

typedef struct checker {
  const opt_cmd *const *cmds;
  int n;
  opt_set *set;
  void *scratch; /* as large as the largest option struct, so that a row's offset fits */
  size_t scratch_n;
  void (*report)(void *arg, const err *e);
  void *arg;
  err *first;
  int faults;
} checker;

static void fault(checker *k, const char *file, err *e) {
  err_prefix(e, "%s", file);
  if (k->report) k->report(k->arg, e);
  if (k->faults++ == 0 && k->first) *k->first = *e;
}

static void check_value(checker *k, const char *file, const char *key, const opt_row *r, json_t *v) {
  err e = {0};
  memset(k->scratch, 0, k->scratch_n);
  if (!set_json(r, v, key, k->set, k->scratch, &e)) fault(k, file, &e);
}

static void check_object(checker *k, const char *file, const char *prefix, json_t *obj) {
  const char *name;
  json_t *v;
  json_object_foreach(obj, name, v) {
    char key[256];
    bool section;
    err e = {0};
    snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", name);
    const opt_row *r = row_of_key(k->cmds, k->n, key, &section);
    if (r) {
      check_value(k, file, key, r, v);
      continue;
    }
    if (section && json_is_object(v)) {
      check_object(k, file, key, v);
      continue;
    }
    if (section && json_is_null(v)) continue;
    if (section) {
      wrong_type(key, "a mapping", v, &e);
    } else {
      const char *near = nearest_key(k->cmds, k->n, key);
      err_param(&e, ERR_INPUT, key, "unknown key %s%s%s%s", key, near ? ": did you mean " : "; `weir config sample` lists them all", near ? near : "",
          near ? "?" : "");
    }
    fault(k, file, &e);
  }
}

static bool check_doc(const opt_cmd *const *cmds, int n, json_t *doc, const char *file, void (*report)(void *, const err *), void *arg, err *e) {
  opt_set set = {0};
  checker k = {cmds, n, &set, NULL, 0, report, arg, e, 0};
  for (int i = 0; i < n; i++)
    if (cmds[i]->size > k.scratch_n) k.scratch_n = cmds[i]->size;
  k.scratch = malloc(k.scratch_n + 1);
  if (!k.scratch) return err_set(e, ERR_NOMEM, "out of memory");
  check_object(&k, file, "", doc);
  free(k.scratch);
  for (int i = 0; i < set.n_lists; i++) free((void *)set.lists[i]);
  free((void *)set.lists);
  return k.faults == 0;
}

static bool load_doc(const char *path, json_t **ret, err *e) {
  json_t *doc = NULL;
  if (!yaml_load_path(path, CONFIG_MAX, &doc, e)) return false;
  if (json_is_null(doc)) {
    json_decref(doc);
    doc = json_object();
  } /* only comments */
  if (!json_is_object(doc)) {
    err_set(e, ERR_INPUT, "%s: expected a mapping at the top, found %s", path, json_type_name(doc));
    json_decref(doc);
    return false;
  }
  *ret = doc;
  return true;
}

bool opt_check(const opt_cmd *const *cmds, int n, const char *path, void (*report)(void *arg, const err *e), void *arg, err *e) {
  json_t *doc = NULL;
  if (!load_doc(path, &doc, e)) {
    if (report && e) report(arg, e);
    return false;
  }
  bool ok = check_doc(cmds, n, doc, path, report, arg, e);
  json_decref(doc);
  return ok;
}

/* Which file, if any: true with an empty path when there is none. */
static bool find_config(const char *explicit_path, char out[OS_PATH], err *e) {
  out[0] = 0;
  if (explicit_path) {
    if ((size_t)snprintf(out, OS_PATH, "%s", explicit_path) >= OS_PATH) return err_param(e, ERR_USAGE, "--config", "--config: the path is too long");
    return true;
  }
  if (access("weir.yaml", F_OK) == 0) {
    snprintf(out, OS_PATH, "weir.yaml");
    return true;
  }
  char dir[OS_PATH];
  if (!os_dir_config(dir, NULL)) return true; /* no HOME: then there is no file there either */
  if ((size_t)snprintf(out, OS_PATH, "%s/weir.yaml", dir) >= OS_PATH || access(out, F_OK) != 0) out[0] = 0;
  return true;
}

static bool apply_config(const opt_cmd *c, const char *explicit_path, opt_set *s, void *dst, err *e) {
  if (!find_config(explicit_path, s->path, e)) return false;
  if (!s->path[0]) return true;
  if (!load_doc(s->path, &s->doc, e)) return false;
  if (n_known_cmds && !check_doc(known_cmds, n_known_cmds, s->doc, s->path, NULL, NULL, e)) return false;
  for (const opt_row *r = c->rows; !row_end(r); r++) {
    json_t *v = r->key ? doc_at(s->doc, r->key) : NULL;
    if (v && !set_json(r, v, r->key, s, dst, e)) return err_prefix(e, "%s", s->path);
  }
  return true;
}

const char *opt_config_path(const opt_set *s) { return s && s->path[0] ? s->path : NULL; }

/* ---- the command line ---- */

typedef struct scan {
  const opt_cmd *c;
  int argc, at;
  char **argv;
  opt_set *set;
  void *dst; /* NULL in the first pass, which looks for --help and --config only */
  const char *config;
  bool help;
  uint64_t *reset; /* rows (bit i) whose list still holds what the config gave: the command line replaces, it does not append */
} scan;

static const opt_row *row_of_flag(const opt_cmd *c, const char *name, size_t n) {
  for (const opt_row *r = c->rows; !row_end(r); r++)
    if (r->flag && strlen(r->flag) == n && strncmp(r->flag, name, n) == 0) return r;
  return NULL;
}

static const opt_row *row_of_letter(const opt_cmd *c, char l) {
  for (const opt_row *r = c->rows; !row_end(r); r++)
    if (r->letter == l) return r;
  return NULL;
}

static bool give(scan *s, const opt_row *r, const char *who, const char *v, err *e) {
  if (!s->dst) {
    if (r->flag && strcmp(r->flag, "config") == 0) s->config = v;
    return true;
  }
  if (r->type == OPT_LIST) {
    size_t i = (size_t)(r - s->c->rows);
    if (i < 256 && s->reset[i / 64] >> (i % 64) & 1) {
      ((opt_list *)slot(r, s->dst))->n = 0;
      s->reset[i / 64] &= ~((uint64_t)1 << (i % 64));
    }
  }
  return set_text(r, v, who, s->set, s->dst, e);
}

static bool wants_value(scan *s, const opt_row *r, const char *who, const char **ret, err *e) {
  if (s->at + 1 >= s->argc)
    return err_param(e, ERR_USAGE, who, "%s needs a value: %s", who, r->type == OPT_ENUM ? r->choices : r->arg ? r->arg : "VALUE");
  *ret = s->argv[++s->at];
  return true;
}

static bool unknown_option(const opt_cmd *c, const char *arg, size_t n, err *e) {
  char word[64];
  snprintf(word, sizeof word, "%.*s", (int)(n < 60 ? n : 60), arg + 2);
  const char *near = nearest_flag(c, strncmp(word, "no-", 3) == 0 ? word + 3 : word);
  return err_param(e, ERR_USAGE, word, "unknown option --%s%s%s%s", word, near ? ": did you mean --" : "", near ? near : "", near ? "?" : "");
}

static bool scan_long(scan *s, const char *arg, err *e) {
  const char *eq = strchr(arg, '='), *v = eq ? eq + 1 : NULL;
  size_t n = eq ? (size_t)(eq - arg) - 2 : strlen(arg) - 2;
  char who[80];
  if (n == 4 && strncmp(arg + 2, "help", 4) == 0 && !eq) {
    s->help = true;
    return true;
  }
  const opt_row *r = row_of_flag(s->c, arg + 2, n);
  if (!r && n > 3 && strncmp(arg + 2, "no-", 3) == 0) {
    r = row_of_flag(s->c, arg + 5, n - 3);
    if (r && r->type == OPT_FLAG && !eq) return give(s, r, r->flag, "false", e);
    r = NULL;
  }
  if (!r) return unknown_option(s->c, arg, n, e);
  snprintf(who, sizeof who, "--%s", r->flag);
  if (r->type == OPT_FLAG) return give(s, r, who, v ? v : "true", e);
  if (!v && !wants_value(s, r, who, &v, e)) return false;
  return give(s, r, who, v, e);
}

static bool scan_letters(scan *s, const char *arg, err *e) {
  for (const char *p = arg + 1; *p; p++) {
    const opt_row *r = row_of_letter(s->c, *p);
    char who[80];
    if (!r && *p == 'h') {
      s->help = true;
      return true;
    }
    if (!r) return err_param(e, ERR_USAGE, "-", "unknown option -%c: weir %s --help lists them", *p, s->c->name);
    snprintf(who, sizeof who, "-%c (--%s)", *p, r->flag ? r->flag : r->key);
    if (r->type == OPT_FLAG) {
      if (!give(s, r, who, "true", e)) return false;
      continue;
    }
    const char *v = p[1] ? p + 1 : NULL;
    if (!v && !wants_value(s, r, who, &v, e)) return false;
    return give(s, r, who, v, e);
  }
  return true;
}

/* One pass over argv. In the second (dst set) argv is permuted: options first, positionals last. *ret_pos: index of the first positional. */
static bool scan_args(scan *s, int *ret_pos, err *e) {
  char **order = calloc((size_t)s->argc + 1, sizeof *order);
  if (!order) return err_set(e, ERR_NOMEM, "out of memory");
  int n_opt = 0, n_pos = 0;
  bool ok = true, only_pos = false;
  for (s->at = 1; ok && s->at < s->argc; s->at++) {
    char *a = s->argv[s->at];
    int from = s->at;
    if (only_pos || a[0] != '-' || !a[1]) {
      order[s->argc - 1 - n_pos++] = a;
      continue;
    }
    if (strcmp(a, "--") == 0) only_pos = true;
    else ok = a[1] == '-' ? scan_long(s, a, e) : scan_letters(s, a, e);
    for (int i = from; ok && i <= s->at; i++) order[n_opt++] = s->argv[i];
  }
  if (ok && s->dst) {
    memcpy(s->argv + 1, order, (size_t)n_opt * sizeof *order);
    for (int i = 0; i < n_pos; i++) s->argv[1 + n_opt + i] = order[s->argc - 1 - i];
  }
  if (ok) *ret_pos = 1 + n_opt;
  free(order);
  return ok;
}

static bool has_rows(const opt_cmd *c, bool *ret_key) {
  bool list = false;
  *ret_key = false;
  for (const opt_row *r = c->rows; !row_end(r); r++) {
    if (r->key) *ret_key = true;
    if (r->type == OPT_LIST) list = true;
  }
  return list || *ret_key;
}

static bool count_ok(const opt_cmd *c, int n, const char *extra, err *e) {
  const char *args = c->synopsis ? c->synopsis : "", *gap = *args ? " " : "";
  if (n < c->min_pos)
    return err_set(e, ERR_USAGE, "%s: usage: weir %s [options]%s%s", n ? "an argument is missing" : "nothing was named", c->name, gap, args);
  if (c->max_pos >= 0 && n > c->max_pos)
    return err_set(e, ERR_USAGE, "%s '%.80s': usage: weir %s [options]%s%s",
        c->max_pos ? "one argument too many," : "takes no argument, but was given", extra, c->name, gap, args);
  return true;
}

static bool fill(const opt_cmd *c, scan *s, bool has_key, int *ret_pos, err *e) {
  for (const opt_row *r = c->rows; !row_end(r); r++)
    if (r->def && !set_text(r, r->def, r->flag ? r->flag : r->key, s->set, s->dst, e)) return false;
  if (has_key && !apply_config(c, s->config, s->set, s->dst, e)) return false;
  uint64_t reset[4];
  memset(reset, 0xff, sizeof reset);
  s->reset = reset;
  bool ok = scan_args(s, ret_pos, e);
  s->reset = NULL;
  return ok;
}

bool opt_parse(const opt_cmd *cmd, int argc, char **argv, void *dst, opt_set **ret_set, char ***ret_pos, int *ret_n_pos, bool *ret_help, err *e) {
  bool has_key, needs_set = has_rows(cmd, &has_key);
  scan s = {.c = cmd, .argc = argc, .argv = argv};
  int pos;
  *ret_help = false;
  bool ok = scan_args(&s, &pos, e);
  for (int i = s.at; !ok && i < argc && strcmp(argv[i], "--") != 0; i++) s.help |= strcmp(argv[i], "--help") == 0;
  if (s.help) { /* before faults: who asks for help gets it */
    opt_help(cmd, stdout);
    *ret_help = true;
    if (ret_set) *ret_set = NULL;
    return true;
  }
  if (!ok) return false;
  if (needs_set && !ret_set) return err_set(e, ERR_INTERNAL, "%s has keys or lists and keeps no opt_set", cmd->name);
  s.set = calloc(1, sizeof *s.set);
  if (!s.set) return err_set(e, ERR_NOMEM, "out of memory");
  memset(dst, 0, cmd->size);
  s.dst = dst;
  if (!fill(cmd, &s, has_key, &pos, e) ||
      !count_ok(cmd, argc - pos, cmd->max_pos >= 0 && argc - pos > cmd->max_pos ? argv[pos + cmd->max_pos] : "", e)) {
    opt_set_free(s.set);
    return false;
  }
  *ret_pos = argv + pos;
  *ret_n_pos = argc - pos;
  if (ret_set) *ret_set = s.set;
  else opt_set_free(s.set);
  return true;
}

void opt_set_free(opt_set *s) {
  if (!s) return;
  json_decref(s->doc);
  for (int i = 0; i < s->n_lists; i++) free((void *)s->lists[i]);
  free((void *)s->lists);
  free(s);
}
