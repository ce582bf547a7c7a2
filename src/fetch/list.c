#include "fetch/job.h"
#include "model/arch.h"
#include "model/gguf.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* What `weir models` shows: the catalogue and, behind it, files that came from the hub or a URL. */

static const char *const state_names[] = {"absent", "partial", "unverified", "verified"};

/* A model of several files is as far as its least complete file. */
static store_state model_state(const cat_model *m, const char *path, uint64_t *ret_have) {
  store_state worst = STORE_VERIFIED;
  bool some = false;
  *ret_have = 0;
  for (int i = 0; i < m->n_files; i++) {
    char file[OS_PATH];
    uint64_t bytes = 0;
    if (snprintf(file, sizeof file, m->n_files > 1 ? "%s/%s" : "%s", path, m->files[i].name) >= (int)sizeof file) continue;
    store_state s = store_look(file, m->files[i].bytes, m->files[i].sha256, &bytes);
    *ret_have += bytes;
    some |= s != STORE_ABSENT;
    if (s < worst) worst = s;
  }
  return worst == STORE_ABSENT && some ? STORE_PARTIAL : worst;
}

/* What is recommended of the five; NULL when nothing is. */
static json_t *sampling_json(const cat_sampling *s) {
  const struct {
    const char *name;
    double v;
  } row[] = {{"temperature", s->temperature}, {"top_p", s->top_p}, {"min_p", s->min_p}, {"repetition", s->repetition}};
  json_t *o = json_object();
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (!isnan(row[i].v)) json_object_set_new(o, row[i].name, json_real(row[i].v));
  if (s->top_k >= 0) json_object_set_new(o, "top_k", json_integer(s->top_k));
  if (json_object_size(o)) return o;
  json_decref(o);
  return NULL;
}

static bool add_named(json_t *list, const cat_model *m, const char *dir) {
  char path[OS_PATH];
  uint64_t have, total = 0;
  if (snprintf(path, sizeof path, "%s/%s", dir, m->n_files > 1 ? m->name : m->files->name) >= (int)sizeof path) return true;
  store_state s = model_state(m, path, &have);
  for (int i = 0; i < m->n_files; i++) total += m->files[i].bytes;
  json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:s}", "name", m->name, "title", m->title, "what", m->what,
      "file", m->files->name, "path", path, "bytes", (json_int_t)total, "sha256", m->files->sha256, "architecture", m->architecture, "weights",
      m->weights, "licence", m->licence, "state", state_names[s], "have_bytes", (json_int_t)have, "catalogue", m->user ? "user" : "built-in");
  if (o && *m->architecture) json_object_set_new(o, "runs", json_boolean(arch_known(str_c(m->architecture))));
  if (o && m->context) json_object_set_new(o, "context", json_integer(m->context));
  json_t *sampling = o ? sampling_json(&m->sampling) : NULL;
  if (sampling) json_object_set_new(o, "sampling", sampling);
  return o && json_array_append_new(list, o) == 0;
}

static bool add_row(json_t *list, const char *name, const char *file, const char *path, store_state s, uint64_t bytes) {
  json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:s}", "name", name, "file", file, "path", path, "bytes", (json_int_t)bytes, "state",
      state_names[s], "have_bytes", (json_int_t)bytes, "catalogue", "none");
  return o && json_array_append_new(list, o) == 0;
}

/* A GGUF file, or the first part of one with the others' bytes; those are no rows of their own. */
static bool add_gguf(json_t *list, const char *name, const char *file, const char *path) {
  char other[OS_PATH];
  int count = 1, at = gguf_part_of(str_c(file), &count);
  uint64_t have, all = 0;
  store_state worst = STORE_VERIFIED;
  if (at > 1) return true;
  for (int no = 1; no <= count; no++) {
    bool named = at && gguf_part_path(path, no, other, sizeof other);
    store_state s = store_look(named ? other : path, 0, "", &have);
    if (s < worst) worst = s;
    all += have;
  }
  return add_row(list, name, file, path, worst == STORE_ABSENT ? STORE_PARTIAL : worst, all);
}

/* A folder of safetensors is as far as its least complete file; one that did not come at all is not seen here but by who opens the folder. */
static bool add_folder(json_t *list, const char *name, const char *dir) {
  DIR *d = opendir(dir);
  uint64_t have, all = 0;
  store_state worst = STORE_VERIFIED;
  if (!d) return true;
  for (struct dirent *de; (de = readdir(d));) {
    char path[OS_PATH];
    str file = str_c(de->d_name);
    bool half = str_ends(file, STR(".part"));
    if (de->d_name[0] == '.' || !(half || str_ends(file, STR(".safetensors")) || str_ends(file, STR(".json")))) continue;
    if (half) file.n -= 5;
    if (snprintf(path, sizeof path, "%s/%.*s", dir, (int)file.n, file.p) >= (int)sizeof path) continue;
    store_state s = store_look(path, 0, "", &have);
    if (s < worst) worst = s;
    all += have;
  }
  closedir(d);
  const char *slash = strrchr(dir, '/');
  return add_row(list, name, slash ? slash + 1 : dir, dir, worst, all);
}

/* What lies below `dir`: `spec` + relative path is the name to ask for it by. */
static bool add_found(json_t *list, const char *dir, const char *spec, int depth) {
  char config[OS_PATH];
  DIR *d = depth < 8 ? opendir(dir) : NULL;
  bool ok = true;
  if (!d) return true;
  if (snprintf(config, sizeof config, "%s/config.json", dir) < (int)sizeof config && access(config, F_OK) == 0) ok = add_folder(list, spec, dir);
  for (struct dirent *de; ok && (de = readdir(d));) {
    char path[OS_PATH], name[OS_PATH];
    struct stat st;
    size_t n = strlen(de->d_name);
    if (de->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", dir, de->d_name) >= (int)sizeof path || lstat(path, &st) != 0) continue;
    if (snprintf(name, sizeof name, "%s%s%s", spec, spec[strlen(spec) - 1] == ':' ? "" : "/", de->d_name) >= (int)sizeof name) continue;
    if (S_ISDIR(st.st_mode)) ok = add_found(list, path, name, depth + 1);
    else if (n >= 6 && strcmp(de->d_name + n - 5, ".gguf") == 0) ok = add_gguf(list, name, de->d_name, path);
  }
  closedir(d);
  return ok;
}

bool fetch_list(json_t **ret, err *e) {
  catalog *c = NULL;
  char dir[OS_PATH], sub[OS_PATH];
  if (!os_dir_models(dir, e) || !catalog_load(&c, e)) return false;
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int i = 0; ok && i < catalog_count(c); i++) ok = add_named(list, catalog_at(c, i), dir);
  if (ok && snprintf(sub, sizeof sub, "%.4000s/hf", dir) > 0) ok = add_found(list, sub, "hf:", 0);
  if (ok && snprintf(sub, sizeof sub, "%.4000s/url", dir) > 0) ok = add_found(list, sub, "url:", 0);
  catalog_free(c);
  if (!ok) {
    json_decref(list);
    return err_set(e, ERR_NOMEM, "out of memory");
  }
  *ret = list;
  return true;
}
