#include "fetch/catalog.h"
#include "base/arena.h"
#include "base/opt.h"
#include "base/os.h"
#include "base/yaml.h"
#include "fetch/models_yaml.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CATALOG_MAX = 4 << 20, MAX_MODELS = 4096, MAX_PARTS = 999 };

struct catalog {
  arena a;
  cat_model *models;
  int n;
  const char *def;
};

/* Where in a catalogue file we are, for messages. */
typedef struct reader {
  catalog *c;
  const char *origin, *model;
  err *e;
} reader;

static bool bad(reader *r, const char *field, const char *want) {
  return err_param(r->e, ERR_INPUT, field, "%s: model %s: %s: %s", r->origin, r->model ? r->model : "?", field, want);
}

static const char *keep(reader *r, const char *s) { return arena_str(&r->c->a, str_c(s)); }

static bool text(reader *r, json_t *o, const char *field, bool required, const char **ret) {
  json_t *v = json_object_get(o, field);
  if (!v || json_is_null(v)) return required ? bad(r, field, "is missing") : true;
  if (!json_is_string(v) || !json_string_length(v) || json_string_length(v) > 1024)
    return bad(r, field, "expected a string of 1 to 1024 bytes (put it in quotes)");
  *ret = keep(r, json_string_value(v));
  return *ret ? true : err_set(r->e, ERR_NOMEM, "%s: out of memory", r->origin);
}

static bool known_fields(reader *r, json_t *o, const char *const *names) {
  const char *k;
  json_t *v;
  json_object_foreach(o, k, v) {
    int n = 0;
    bool ok = false;
    for (; names[n]; n++) ok |= strcmp(names[n], k) == 0;
    const char *near = ok ? NULL : opt_nearest(k, names, n);
    char what[128];
    snprintf(what, sizeof what, "is not a field of the catalogue%s%s%s", near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
    if (!ok) return bad(r, k, what);
  }
  return true;
}

bool catalog_safe_path(const char *s) {
  if (!*s) return false;
  while (1) {
    size_t n = strcspn(s, "/");
    if (n == 0 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.')) return false;
    for (size_t i = 0; i < n; i++)
      if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f || s[i] == '\\') return false;
    if (!s[n]) return true;
    s += n + 1;
  }
}

static bool sha_ok(const char *s) { return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64; }

static bool source(reader *r, json_t *o, cat_source *s) {
  static const char *const fields[] = {"hf", "https", "pypi", "member", "parts", NULL};
  if (!json_is_object(o)) return bad(r, "sources", "each is a mapping such as {hf: owner/repo/file}");
  if (!known_fields(r, o, fields)) return false;
  int kinds = 0;
  static const cat_kind order[] = {CAT_HF, CAT_HTTPS, CAT_PYPI};
  for (int i = 0; i < 3; i++)
    if (json_object_get(o, fields[i])) {
      kinds++;
      s->kind = order[i];
      if (!text(r, o, fields[i], true, &s->at)) return false;
    }
  if (kinds != 1) return bad(r, "sources", "each names exactly one of hf, https, pypi");
  int64_t parts = 1;
  if (!json_get_i64(o, "sources", "parts", 1, MAX_PARTS, &parts, r->e)) return err_prefix(r->e, "%s: model %s", r->origin, r->model);
  s->parts = (int)parts;
  if (s->kind != CAT_PYPI) return true;
  if (!strstr(s->at, "==") || s->at[0] == '-') return bad(r, "pypi", "expected NAME==VERSION");
  return text(r, o, "member", true, &s->member);
}

static bool sources(reader *r, json_t *list, const cat_source **ret, int *ret_n) {
  if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > 16) return bad(r, "sources", "expected a list of 1 to 16");
  int n = (int)json_array_size(list);
  cat_source *s = ARENA_ARRAY(&r->c->a, cat_source, (size_t)n);
  if (!s) return err_set(r->e, ERR_NOMEM, "%s: out of memory", r->origin);
  for (int i = 0; i < n; i++)
    if (!source(r, json_array_get(list, (size_t)i), &s[i])) return false;
  *ret = s;
  *ret_n = n;
  return true;
}

static bool file(reader *r, json_t *o, const cat_source *common, int n_common, cat_file *f) {
  static const char *const fields[] = {"name", "bytes", "sha256", "sources", NULL};
  if (!json_is_object(o)) return bad(r, "files", "each is a mapping with a name");
  if (!known_fields(r, o, fields)) return false;
  f->sha256 = "";
  if (!text(r, o, "name", true, &f->name) || !text(r, o, "sha256", false, &f->sha256)) return false;
  if (!catalog_safe_path(f->name)) return bad(r, "name", "expected a relative path without '..'");
  if (*f->sha256 && !sha_ok(f->sha256)) return bad(r, "sha256", "expected 64 lower-case hexadecimal digits");
  int64_t bytes = 0;
  if (!json_get_i64(o, "files", "bytes", 1, (int64_t)1 << 50, &bytes, r->e)) return err_prefix(r->e, "%s: model %s", r->origin, r->model);
  f->bytes = (uint64_t)bytes;
  f->src = common;
  f->n_src = n_common;
  json_t *own = json_object_get(o, "sources");
  if (own && !sources(r, own, &f->src, &f->n_src)) return false;
  return f->n_src ? true : bad(r, "sources", "is missing");
}

static bool files(reader *r, json_t *o, cat_model *m) {
  json_t *list = json_object_get(o, "files"), *common = json_object_get(o, "sources");
  const cat_source *src = NULL;
  int n_src = 0;
  if (common && !sources(r, common, &src, &n_src)) return false;
  if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > 256) return bad(r, "files", "expected a list of 1 to 256");
  m->n_files = (int)json_array_size(list);
  cat_file *f = ARENA_ARRAY(&r->c->a, cat_file, (size_t)m->n_files);
  if (!f) return err_set(r->e, ERR_NOMEM, "%s: out of memory", r->origin);
  for (int i = 0; i < m->n_files; i++)
    if (!file(r, json_array_get(list, (size_t)i), src, n_src, &f[i])) return false;
  m->files = f;
  return true;
}

static bool sampling(reader *r, json_t *o, cat_sampling *s) {
  static const char *const fields[] = {"temperature", "top_p", "top_k", "min_p", "repetition", NULL};
  *s = (cat_sampling){NAN, NAN, NAN, NAN, -1};
  if (!o || json_is_null(o)) return true;
  if (!json_is_object(o)) return bad(r, "sampling", "expected a mapping such as {temperature: 0.7}");
  if (!known_fields(r, o, fields)) return false;
  bool ok = json_get_f64(o, "sampling", "temperature", 0, 100, &s->temperature, r->e) &&
            json_get_f64(o, "sampling", "top_p", 0, 1, &s->top_p, r->e) && json_get_i64(o, "sampling", "top_k", 0, INT32_MAX, &s->top_k, r->e) &&
            json_get_f64(o, "sampling", "min_p", 0, 1, &s->min_p, r->e) && json_get_f64(o, "sampling", "repetition", 0.01, 100, &s->repetition, r->e);
  return ok ? true : err_prefix(r->e, "%s: model %s", r->origin, r->model);
}

static bool model(reader *r, json_t *o, cat_model *m) {
  static const char *const fields[] = {
      "title", "what", "architecture", "weights", "context", "licence", "terms", "sampling", "files", "sources", NULL};
  if (!json_is_object(o)) return bad(r, "models", "expected a mapping with files and sources");
  if (!known_fields(r, o, fields)) return false;
  m->title = m->what = m->architecture = m->weights = m->licence = "";
  if (strchr(m->name, '/') || strchr(m->name, ':') || !catalog_safe_path(m->name) || strlen(m->name) > 100)
    return bad(r, "name", "at most 100 characters, without '/' or ':'");
  if (!json_get_i64(o, "models", "context", 1, 1 << 30, &m->context, r->e)) return err_prefix(r->e, "%s: model %s", r->origin, r->model);
  return text(r, o, "title", false, &m->title) && text(r, o, "what", false, &m->what) && text(r, o, "architecture", false, &m->architecture) &&
         text(r, o, "weights", false, &m->weights) && text(r, o, "licence", false, &m->licence) && text(r, o, "terms", false, &m->terms) &&
         sampling(r, json_object_get(o, "sampling"), &m->sampling) && files(r, o, m);
}

static int index_of(const catalog *c, const char *name) {
  for (int i = 0; i < c->n; i++)
    if (strcmp(c->models[i].name, name) == 0) return i;
  return -1;
}

static bool put(reader *r, const cat_model *m) {
  catalog *c = r->c;
  int i = index_of(c, m->name);
  if (i < 0) {
    if (c->n >= MAX_MODELS) return err_set(r->e, ERR_TOO_LARGE, "%s: more than %d models", r->origin, MAX_MODELS);
    cat_model *grown = realloc(c->models, (size_t)(c->n + 1) * sizeof *grown);
    if (!grown) return err_set(r->e, ERR_NOMEM, "%s: out of memory", r->origin);
    c->models = grown;
    i = c->n++;
  }
  c->models[i] = *m;
  return true;
}

/* Single files of all models lie side by side in one folder: two of one name would overwrite each other. */
static bool no_clash(reader *r) {
  const catalog *c = r->c;
  for (int i = 0; i < c->n; i++)
    for (int k = 0; k < i; k++) {
      const cat_model *a = &c->models[i], *b = &c->models[k];
      if (a->n_files != 1 || b->n_files != 1 || strcmp(a->files->name, b->files->name) != 0 || strcmp(a->files->sha256, b->files->sha256) == 0)
        continue;
      return err_set(r->e, ERR_INPUT, "%s: models %s and %s both call their file %s, with different contents: rename one", r->origin, b->name,
          a->name, a->files->name);
    }
  return true;
}

static bool add_doc(catalog *c, json_t *doc, const char *origin, bool user, err *e) {
  static const char *const fields[] = {"default", "models", NULL};
  reader r = {c, origin, "(top)", e};
  if (json_is_null(doc)) return true;
  if (!json_is_object(doc)) return err_set(e, ERR_INPUT, "%s: expected a mapping with `models`", origin);
  if (!known_fields(&r, doc, fields) || !text(&r, doc, "default", false, &c->def)) return false;
  json_t *models = json_object_get(doc, "models"), *o;
  const char *name;
  if (models && !json_is_object(models) && !json_is_null(models))
    return err_param(e, ERR_INPUT, "models", "%s: models: expected a mapping of names", origin);
  json_object_foreach(models, name, o) {
    cat_model m = {.user = user};
    r.model = name;
    m.name = keep(&r, name);
    if (!m.name) return err_set(e, ERR_NOMEM, "%s: out of memory", origin);
    if (!model(&r, o, &m) || !put(&r, &m)) return false;
  }
  if (c->def && index_of(c, c->def) < 0) return err_param(e, ERR_INPUT, "default", "%s: default: there is no model '%s'", origin, c->def);
  return no_clash(&r);
}

catalog *catalog_new(void) {
  catalog *c = calloc(1, sizeof *c);
  if (c) arena_init(&c->a, 16 << 20);
  return c;
}

void catalog_free(catalog *c) {
  if (!c) return;
  arena_fini(&c->a);
  free(c->models);
  free(c);
}

bool catalog_add(catalog *c, str yaml, const char *origin, bool user, err *e) {
  json_t *doc = NULL;
  if (!yaml_parse(yaml, origin, &doc, e)) return false;
  bool ok = add_doc(c, doc, origin, user, e);
  json_decref(doc);
  return ok;
}

static bool add_user(catalog *c, err *e) {
  char dir[OS_PATH], path[OS_PATH];
  json_t *doc = NULL;
  if (!os_dir_config(dir, NULL) || (size_t)snprintf(path, sizeof path, "%s/models.yaml", dir) >= sizeof path || access(path, F_OK) != 0) return true;
  if (!yaml_load_path(path, CATALOG_MAX, &doc, e)) return false;
  bool ok = add_doc(c, doc, path, true, e);
  json_decref(doc);
  return ok;
}

bool catalog_load(catalog **ret, err *e) {
  catalog *c = catalog_new();
  if (!c) return err_set(e, ERR_NOMEM, "out of memory");
  if (!catalog_add(c, (str){(const char *)models_yaml, sizeof models_yaml}, "built-in models.yaml", false, e) || !add_user(c, e)) {
    catalog_free(c);
    return false;
  }
  *ret = c;
  return true;
}

int catalog_count(const catalog *c) { return c->n; }
const cat_model *catalog_at(const catalog *c, int i) { return &c->models[i]; }
const char *catalog_default(const catalog *c) { return c->def ? c->def : ""; }

const cat_model *catalog_find(const catalog *c, const char *name) {
  int i = index_of(c, name);
  return i < 0 ? NULL : &c->models[i];
}

const cat_model *catalog_of_file(const catalog *c, const char *path) {
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  for (int i = 0; i < c->n; i++) {
    const cat_model *m = &c->models[i];
    char file[OS_PATH];
    struct stat st;
    bool folder = m->n_files > 1;
    if (strcmp(base, folder ? m->name : m->files->name) != 0) continue;
    if (snprintf(file, sizeof file, "%s%s%s", path, folder ? "/" : "", folder ? m->files->name : "") >= (int)sizeof file) continue;
    if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && (!m->files->bytes || (uint64_t)st.st_size == m->files->bytes)) return m;
  }
  return NULL;
}

const char *catalog_nearest(const catalog *c, const char *name) {
  const char **names = calloc((size_t)c->n + 1, sizeof *names);
  if (!names) return NULL;
  for (int i = 0; i < c->n; i++) names[i] = c->models[i].name;
  const char *near = opt_nearest(name, names, c->n);
  free((void *)names);
  return near;
}

bool catalog_expand(const char *tmpl, const char *file, int part, char *out, size_t n) {
  static const char *const keys[] = {"{FILE}", "{NN}", "{N-1}", "{N}"};
  size_t k = 0;
  while (*tmpl) {
    char num[16] = "";
    const char *with = NULL;
    int i = 0;
    while (i < 4 && strncmp(tmpl, keys[i], strlen(keys[i])) != 0) i++;
    if (i == 0) with = file;
    else if (i < 4) {
      snprintf(num, sizeof num, i == 1 ? "%02d" : "%d", i == 2 ? part - 1 : part);
      with = num;
    }
    size_t len = with ? strlen(with) : 1;
    if (k + len >= n) return false;
    memcpy(out + k, with ? with : tmpl, len);
    k += len;
    tmpl += with ? strlen(keys[i]) : 1;
  }
  out[k] = 0;
  return true;
}
