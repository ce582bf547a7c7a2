#include "fetch/store.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NOTE_MAX = 64 << 10, COPY = 1 << 20, POLL_NS = 50000000 };

/* DIR/.NAME<suffix> beside DIR/NAME; "" when it does not fit, which every user of it then fails to open. */
static void beside(const char *path, const char *suffix, char out[OS_PATH]) {
  const char *slash = strrchr(path, '/');
  int dir = slash ? (int)(slash - path) + 1 : 0;
  if (snprintf(out, OS_PATH, "%.*s.%s%s", dir, path, path + dir, suffix) >= OS_PATH) out[0] = 0;
}

void store_sidecar_path(const char *path, char out[OS_PATH]) { beside(path, ".json", out); }

static int64_t mtime_ns(const struct stat *st) { return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec; }

/* A note or sidecar is ours, but a half-written or edited one must not stop anything: then it counts as absent. */
static json_t *read_note(const char *path) {
  json_t *o = NULL;
  if (!json_load_path(path, NOTE_MAX, &o, NULL)) return NULL;
  if (json_is_object(o)) return o;
  json_decref(o);
  return NULL;
}

static bool write_note(const char *path, const json_t *o, err *e) {
  char tmp[OS_PATH];
  if (snprintf(tmp, sizeof tmp, "%s.new", path) >= OS_PATH) return err_set(e, ERR_IO, "path too long: %.80s...", path);
  if (json_dump_file(o, tmp, JSON_COMPACT) == 0 && rename(tmp, path) == 0) return true;
  int why = errno;
  unlink(tmp);
  return err_errno(e, why, "cannot write %s", path);
}

static bool sidecar_fits(const char *path, const struct stat *st, const char *sha) {
  char side[OS_PATH];
  store_sidecar_path(path, side);
  json_t *o = read_note(side);
  if (!o) return false;
  str have = {0};
  int64_t size = -1, mtime = -1;
  bool ok = json_get_i64(o, "", "bytes", 0, INT64_MAX, &size, NULL) && json_get_i64(o, "", "mtime_ns", INT64_MIN, INT64_MAX, &mtime, NULL) &&
            json_get_str(o, "", "sha256", &have, NULL) && size == (int64_t)st->st_size && mtime == mtime_ns(st) && have.n == 64 &&
            (!*sha || str_is(have, sha));
  json_decref(o);
  return ok;
}

store_state store_look(const char *path, uint64_t bytes, const char *sha, uint64_t *ret_bytes) {
  struct stat st;
  char tmp[OS_PATH];
  *ret_bytes = 0;
  if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
    *ret_bytes = (uint64_t)st.st_size;
    return (!bytes || bytes == *ret_bytes) && sidecar_fits(path, &st, sha) ? STORE_VERIFIED : STORE_UNVERIFIED;
  }
  if (snprintf(tmp, sizeof tmp, "%s.part", path) >= OS_PATH || stat(tmp, &st) != 0 || st.st_size == 0) return STORE_ABSENT;
  *ret_bytes = (uint64_t)st.st_size;
  return STORE_PARTIAL;
}

static bool write_sidecar(const char *path, const char hex[65], const char *source, err *e) {
  struct stat st;
  char side[OS_PATH];
  if (stat(path, &st) != 0) return err_errno(e, errno, "cannot look at %s", path);
  store_sidecar_path(path, side);
  json_t *o = json_pack("{s:s, s:I, s:I, s:s, s:I}", "sha256", hex, "bytes", (json_int_t)st.st_size, "mtime_ns", (json_int_t)mtime_ns(&st), "source",
      source, "fetched", (json_int_t)clock_unix());
  bool ok = o ? write_note(side, o, e) : err_set(e, ERR_NOMEM, "out of memory");
  json_decref(o);
  return ok;
}

/* Feeds the next n bytes of fd to h. False with errno set; a file that ended earlier gives EIO. */
static bool hash_fd(int fd, uint64_t n, sha256 *h) {
  char *b = malloc(COPY);
  if (!b) {
    errno = ENOMEM;
    return false;
  }
  bool ok = true;
  for (uint64_t got = 0; ok && got < n;) {
    ssize_t r = pread(fd, b, n - got < COPY ? (size_t)(n - got) : COPY, (off_t)got);
    if (r < 0 && errno == EINTR) continue;
    if (r == 0) errno = EIO;
    ok = r > 0;
    if (ok) {
      sha256_add(h, b, (size_t)r);
      got += (uint64_t)r;
    }
  }
  free(b);
  return ok;
}

bool store_verify(const char *path, uint64_t bytes, const char *sha, err *e) {
  uint64_t have;
  store_state s = store_look(path, bytes, sha, &have);
  if (s == STORE_VERIFIED) return true;
  if (s != STORE_UNVERIFIED) return err_set(e, ERR_NOT_FOUND, "%s is not here", path);
  if (!*sha) return err_set(e, ERR_INPUT, "%s was not fetched by weir, or was changed since", path);
  if (bytes && have != bytes)
    return err_set(e, ERR_INPUT, "%s has %llu bytes where %llu are expected", path, (unsigned long long)have, (unsigned long long)bytes);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return err_errno(e, errno, "cannot open %s", path);
  sha256 *h = sha256_new();
  uint8_t d[32];
  char hex[65];
  bool ok = h ? hash_fd(fd, have, h) || err_errno(e, errno, "cannot read %s", path) : err_set(e, ERR_INTERNAL, "OpenSSL has no SHA-256");
  close(fd);
  if (!ok) {
    if (h) sha256_free(h);
    return false;
  }
  sha256_done(h, d);
  sha256_hex(d, hex);
  if (strcmp(hex, sha) != 0) return err_set(e, ERR_INPUT, "%s has SHA-256 %s where %s is expected", path, hex, sha);
  return write_sidecar(path, hex, "found here", NULL) || true; /* a folder that cannot be written to costs a hash each time, nothing more */
}

/* ---- the lock ---- */

/* The file is unlinked by its holder, so a lock only counts when the name still leads to what was locked. */
static bool still_named(const char *lock, int fd) {
  struct stat a, b;
  return fstat(fd, &a) == 0 && stat(lock, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

bool store_lock(const char *path, const store_wait *w, int *ret_fd, err *e) {
  char lock[OS_PATH];
  bool told = false;
  beside(path, ".lock", lock);
  for (;;) {
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return err_errno(e, errno, "cannot open the lock file %s", lock);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        int why = errno;
        close(fd);
        return err_errno(e, why, "cannot lock %s", lock);
      }
      if (!told && w && w->busy) {
        told = true;
        w->busy(w->arg);
      }
      if (w && w->stop && w->stop(w->arg)) {
        close(fd);
        return err_set(e, ERR_CANCELLED, "interrupted while waiting for another pull of %s", path);
      }
      nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
    if (still_named(lock, fd)) {
      *ret_fd = fd;
      return true;
    }
    close(fd);
  }
}

void store_unlock(const char *path, int fd) {
  char lock[OS_PATH];
  beside(path, ".lock", lock);
  unlink(lock);
  close(fd);
}

/* ---- a file that grows ---- */

static bool disk(const part *p, int why, const char *doing, err *e) {
  if (why != ENOSPC && why != EDQUOT && why != EFBIG) return err_errno(e, why, "cannot %s %s", doing, p->tmp);
  const char *what = why == ENOSPC   ? "the disk is full"
                     : why == EDQUOT ? "the disk quota is used up"
                                     : "the file may not grow further (file size limit)";
  err_set(e, ERR_IO, "%s: cannot %s %s after %llu bytes", what, doing, p->tmp, (unsigned long long)p->n);
  if (!e) return false;
  size_t n = strlen(e->msg);
  if (p->expect > p->n) snprintf(e->msg + n, sizeof e->msg - n, ", %llu are still missing", (unsigned long long)(p->expect - p->n));
  n = strlen(e->msg);
  snprintf(e->msg + n, sizeof e->msg - n, ": make room and pull again, it goes on from there");
  return false;
}

static bool rehash(part *p, err *e) {
  sha256_free(p->hash);
  p->hash = sha256_new();
  if (!p->hash) return err_set(e, ERR_INTERNAL, "OpenSSL has no SHA-256");
  return hash_fd(p->fd, p->n, p->hash) || err_errno(e, errno, "cannot read %s", p->tmp);
}

bool part_cut(part *p, uint64_t n, err *e) {
  if (n > p->n) return err_set(e, ERR_INTERNAL, "cannot cut %s to more than it holds", p->tmp);
  if (n == p->n) return true;
  if (ftruncate(p->fd, (off_t)n) != 0) return err_errno(e, errno, "cannot shorten %s", p->tmp);
  p->n = n;
  if (n == 0) p->resumed = false;
  return rehash(p, e);
}

static bool part_adopt(part *p, const char *key, err *e) {
  struct stat st;
  if (fstat(p->fd, &st) != 0) return err_errno(e, errno, "cannot look at %s", p->tmp);
  p->note = read_note(p->note_path);
  str was = {0};
  bool same = p->note && json_get_str(p->note, "", "key", &was, NULL) && str_is(was, key) && (!p->expect || (uint64_t)st.st_size <= p->expect);
  if (same) p->n = (uint64_t)st.st_size;
  else if (st.st_size && ftruncate(p->fd, 0) != 0) return err_errno(e, errno, "cannot empty %s", p->tmp);
  p->resumed = p->n > 0;
  if (!same) {
    json_decref(p->note);
    p->note = json_object();
    if (!p->note) return err_set(e, ERR_NOMEM, "out of memory");
    if (!part_note(p, "key", json_string(key), e)) return false;
  }
  return rehash(p, e);
}

bool part_open(part *p, const char *path, uint64_t expect, const char *sha, const char *key, err *e) {
  memset(p, 0, sizeof *p);
  p->fd = -1;
  p->expect = expect;
  snprintf(p->sha256, sizeof p->sha256, "%s", sha);
  if (snprintf(p->path, OS_PATH, "%s", path) >= OS_PATH || snprintf(p->tmp, OS_PATH, "%s.part", path) >= OS_PATH)
    return err_set(e, ERR_IO, "path too long: %.80s...", path);
  beside(path, ".part.json", p->note_path);
  p->fd = open(p->tmp, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (p->fd < 0) return disk(p, errno, "create", e);
  if (part_adopt(p, key, e)) return true;
  part_close(p);
  return false;
}

bool part_note(part *p, const char *name, json_t *value, err *e) {
  if (!value || json_object_set_new(p->note, name, value) != 0) return err_set(e, ERR_NOMEM, "out of memory");
  return write_note(p->note_path, p->note, e);
}

bool part_write(part *p, const void *data, size_t n, err *e) {
  const char *b = data;
  if (p->expect && n > p->expect - p->n) return err_set(e, ERR_INPUT, "it is longer than the %llu bytes expected", (unsigned long long)p->expect);
  while (n) {
    ssize_t r = pwrite(p->fd, b, n, (off_t)p->n);
    if (r < 0 && errno == EINTR) continue;
    if (r <= 0) return disk(p, r < 0 ? errno : ENOSPC, "write", e);
    sha256_add(p->hash, b, (size_t)r);
    p->n += (uint64_t)r;
    b += r;
    n -= (size_t)r;
  }
  return true;
}

static bool sync_parent(const char *path) {
  char dir[OS_PATH];
  snprintf(dir, sizeof dir, "%s", path);
  char *slash = strrchr(dir, '/');
  if (!slash) return true;
  *slash = 0;
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  bool ok = fsync(fd) == 0;
  close(fd);
  return ok;
}

bool part_commit(part *p, const char *source, err *e) {
  uint8_t d[32];
  char hex[65];
  if (p->expect && p->n != p->expect)
    return err_set(e, ERR_INPUT, "it has %llu bytes where %llu are expected", (unsigned long long)p->n, (unsigned long long)p->expect);
  sha256_done(p->hash, d);
  p->hash = NULL;
  sha256_hex(d, hex);
  if (p->sha256[0] && strcmp(hex, p->sha256) != 0) {
    err_set(e, ERR_INPUT, "its SHA-256 is %s where %s is expected", hex, p->sha256);
    p->hash = sha256_new();
    if (ftruncate(p->fd, 0) == 0) p->n = 0; /* no later source can use these bytes */
    return false;
  }
  if (fsync(p->fd) != 0) return disk(p, errno, "write", e);
  if (rename(p->tmp, p->path) != 0) return err_errno(e, errno, "cannot rename %s to %s", p->tmp, p->path);
  unlink(p->note_path);
  sync_parent(p->path);
  part_close(p);
  return write_sidecar(p->path, hex, source, e);
}

void part_close(part *p) {
  if (p->fd >= 0) close(p->fd);
  p->fd = -1;
  if (p->hash) sha256_free(p->hash);
  p->hash = NULL;
  json_decref(p->note);
  p->note = NULL;
}

bool part_room(const part *p, err *e) {
  char dir[OS_PATH];
  struct statvfs v;
  snprintf(dir, sizeof dir, "%s", p->path);
  char *slash = strrchr(dir, '/');
  if (slash) *slash = 0;
  if (!p->expect || statvfs(slash ? dir : ".", &v) != 0) return true;
  uint64_t room = (uint64_t)v.f_bavail * v.f_frsize, need = p->expect - p->n;
  if (room >= need) return true;
  return err_set(e, ERR_IO, "the disk is full: %s needs %llu more bytes and %s has %llu free: make room or set XDG_CACHE_HOME to a larger disk",
      p->path, (unsigned long long)need, slash ? dir : ".", (unsigned long long)room);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
  (void)st;
  (void)type;
  (void)at;
  remove(path);
  return 0;
}

void store_remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
