#include "fetch/zip.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* PKWARE APPNOTE 6.3: sections 4.3.7 (local header), 4.3.12 (directory), 4.3.14-16 (ends), 4.5.3 (zip64 extra). */
enum {
  END_SIG = 0x06054b50,
  END64_LOC_SIG = 0x07064b50,
  END64_SIG = 0x06064b50,
  DIR_SIG = 0x02014b50,
  LOCAL_SIG = 0x04034b50,
  END_N = 22,
  END64_LOC_N = 20,
  END64_N = 56,
  DIR_N = 46,
  LOCAL_N = 30,
  DIR_MAX = 64 << 20, /* bytes of directory we are willing to hold */
  CHUNK = 256 << 10
};

struct zip {
  int fd;
  uint64_t size;
  unsigned char *dir;
  size_t dir_n;
  uint64_t count;
  char path[256];
};

static uint16_t u16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t u32(const unsigned char *p) { return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16; }
static uint64_t u64(const unsigned char *p) { return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32; }

static bool lie(const zip *z, const char *what, err *e) { return err_set(e, ERR_INPUT, "%s is not a sound zip archive: %s", z->path, what); }

static bool read_at(const zip *z, uint64_t at, void *p, size_t n, const char *what, err *e) {
  if (at > z->size || n > z->size - at) return lie(z, what, e);
  for (size_t got = 0; got < n;) {
    ssize_t r = pread(z->fd, (char *)p + got, n - got, (off_t)(at + got));
    if (r < 0 && errno == EINTR) continue;
    if (r < 0) return err_errno(e, errno, "cannot read %s", z->path);
    if (r == 0) return lie(z, "it became shorter while it was read", e);
    got += (size_t)r;
  }
  return true;
}

typedef struct ending {
  uint64_t count, dir_n, dir_at;
} ending;

static bool end64(const zip *z, uint64_t end_at, ending *d, err *e) {
  unsigned char b[END64_N];
  if (end_at < END64_LOC_N) return lie(z, "its zip64 locator is missing", e);
  if (!read_at(z, end_at - END64_LOC_N, b, END64_LOC_N, "its zip64 locator is cut off", e)) return false;
  if (u32(b) != END64_LOC_SIG) return lie(z, "its zip64 locator is missing", e);
  uint64_t at = u64(b + 8);
  if (!read_at(z, at, b, END64_N, "its zip64 end lies outside the file", e)) return false;
  if (u32(b) != END64_SIG) return lie(z, "its zip64 end has another signature", e);
  *d = (ending){u64(b + 32), u64(b + 40), u64(b + 48)};
  return true;
}

/* The end record is the last thing in the file but for a comment of at most 65,535 bytes. */
static bool find_end(const zip *z, ending *d, err *e) {
  size_t n = z->size < END_N + 65535 ? (size_t)z->size : END_N + 65535;
  unsigned char *b = malloc(n + 1);
  if (!b) return err_set(e, ERR_NOMEM, "out of memory");
  uint64_t base = z->size - n;
  bool ok = read_at(z, base, b, n, "it is cut off", e);
  ptrdiff_t at = -1;
  for (ptrdiff_t i = (ptrdiff_t)n - END_N; ok && i >= 0 && at < 0; i--)
    if (u32(b + i) == END_SIG && u16(b + i + 20) == (uint16_t)(n - (size_t)i - END_N)) at = i;
  if (ok && at < 0) ok = lie(z, "it has no end record (cut off, or not a zip at all)", e);
  if (ok) {
    const unsigned char *p = b + at;
    *d = (ending){u16(p + 10), u32(p + 12), u32(p + 16)};
    if (u16(p + 4) != 0 || u16(p + 6) != 0) ok = lie(z, "it is one of several volumes", e);
    else if (d->count == 0xffff || d->dir_n == 0xffffffffu || d->dir_at == 0xffffffffu) ok = end64(z, base + (uint64_t)at, d, e);
  }
  free(b);
  return ok;
}

bool zip_open(const char *path, zip **ret, err *e) {
  zip *z = calloc(1, sizeof *z);
  if (!z) return err_set(e, ERR_NOMEM, "out of memory");
  snprintf(z->path, sizeof z->path, "%s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
  z->fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  ending d = {0};
  bool ok = false;
  if (z->fd < 0 || fstat(z->fd, &st) != 0) {
    err_errno(e, errno, "cannot open %s", path);
    goto out;
  }
  z->size = (uint64_t)st.st_size;
  if (!S_ISREG(st.st_mode) || z->size < END_N) {
    lie(z, "it is too short", e);
    goto out;
  }
  if (!find_end(z, &d, e)) goto out;
  if (d.dir_n > DIR_MAX) {
    lie(z, "its directory is said to be larger than 64 MiB", e);
    goto out;
  }
  if (d.count > d.dir_n / DIR_N) {
    lie(z, "it claims more members than its directory can hold", e);
    goto out;
  }
  z->dir = malloc((size_t)d.dir_n + 1);
  if (!z->dir) {
    err_set(e, ERR_NOMEM, "out of memory");
    goto out;
  }
  z->dir_n = (size_t)d.dir_n;
  z->count = d.count;
  ok = read_at(z, d.dir_at, z->dir, z->dir_n, "its directory lies outside the file", e);
out:
  if (!ok) zip_close(z);
  else *ret = z;
  return ok;
}

void zip_close(zip *z) {
  if (!z) return;
  if (z->fd >= 0) close(z->fd);
  free(z->dir);
  free(z);
}

/* Sizes of 4 GiB and more stand in the zip64 extra field, in this order, each only when its 32-bit place is all ones. */
static bool extra64(const zip *z, const unsigned char *x, size_t n, zip_member *m, err *e) {
  uint64_t *const want[] = {&m->size, &m->packed, &m->at};
  for (size_t i = 0; i + 4 <= n;) {
    size_t len = u16(x + i + 2);
    if (len > n - i - 4) return lie(z, "an extra field runs over its end", e);
    if (u16(x + i) == 1) {
      const unsigned char *p = x + i + 4, *end = p + len;
      for (int k = 0; k < 3; k++) {
        if (*want[k] != 0xffffffffu) continue;
        if (end - p < 8) return lie(z, "its zip64 sizes are missing", e);
        *want[k] = u64(p);
        p += 8;
      }
      return true;
    }
    i += 4 + len;
  }
  return true; /* exactly 0xffffffff bytes, without zip64: allowed */
}

static bool sound(const zip *z, const zip_member *m, int flags, err *e) {
  if (flags & 1) return err_set(e, ERR_UNSUPPORTED, "%s: member %.*s is encrypted", z->path, (int)m->name.n, m->name.p);
  if (m->method != 0 && m->method != 8)
    return err_set(e, ERR_UNSUPPORTED, "%s: member %.*s is compressed by method %d: stored (0) and deflate (8) are read", z->path, (int)m->name.n,
        m->name.p, m->method);
  if (m->packed > z->size || m->at > z->size - m->packed) return lie(z, "a member lies outside the file", e);
  if (m->method == 0 && m->packed != m->size) return lie(z, "a stored member has two sizes", e);
  /* Deflate cannot do better than 1 to 1032 (zlib's technical notes): more is a lie, and a cheap way to fill a disk. */
  if (m->method == 8 && m->size / 1032 > m->packed + 1) return lie(z, "a member claims more bytes than its data can hold", e);
  return true;
}

bool zip_find(const zip *z, const char *name, zip_member *ret, err *e) {
  size_t i = 0;
  for (uint64_t k = 0; k < z->count; k++) {
    const unsigned char *p = z->dir + i;
    if (z->dir_n - i < DIR_N || u32(p) != DIR_SIG) return lie(z, "its directory is damaged", e);
    size_t n_name = u16(p + 28), n_extra = u16(p + 30), n_comment = u16(p + 32);
    if (n_name + n_extra + n_comment > z->dir_n - i - DIR_N) return lie(z, "a directory entry runs over its end", e);
    zip_member m = {{(const char *)p + DIR_N, n_name}, u32(p + 24), u32(p + 20), u32(p + 42), u32(p + 16), u16(p + 10)};
    i += DIR_N + n_name + n_extra + n_comment;
    if (!str_is(m.name, name)) continue;
    if (!extra64(z, p + DIR_N + n_name, n_extra, &m, e) || !sound(z, &m, u16(p + 8), e)) return false;
    *ret = m;
    return true;
  }
  return err_set(e, ERR_NOT_FOUND, "%s has no member %s", z->path, name);
}

/* Sizes in the local header may be zero (a data descriptor follows), so only its lengths are used. */
static bool data_start(const zip *z, const zip_member *m, uint64_t *ret, err *e) {
  unsigned char b[LOCAL_N];
  if (!read_at(z, m->at, b, LOCAL_N, "a local header lies outside the file", e)) return false;
  if (u32(b) != LOCAL_SIG) return lie(z, "a local header has another signature", e);
  uint64_t at = m->at + LOCAL_N + u16(b + 26) + u16(b + 28);
  if (u16(b + 8) != m->method) return lie(z, "directory and local header disagree on the compression", e);
  if (at > z->size || m->packed > z->size - at) return lie(z, "a member runs over the end of the file", e);
  *ret = at;
  return true;
}

typedef struct pump {
  zip *z;
  const zip_member *m;
  zip_sink sink;
  void *arg;
  uint64_t out;
  uint32_t crc;
} pump;

static bool give(pump *p, const unsigned char *b, size_t n, err *e) {
  if (n > p->m->size - p->out) return lie(p->z, "a member holds more bytes than it claims", e);
  p->out += n;
  p->crc = (uint32_t)crc32(p->crc, b, (uInt)n);
  return n == 0 || p->sink(p->arg, b, n, e);
}

static bool inflate_chunk(pump *p, z_stream *s, unsigned char *out, int *rc, err *e) {
  do {
    s->next_out = out;
    s->avail_out = CHUNK;
    *rc = inflate(s, Z_NO_FLUSH);
    if (*rc != Z_OK && *rc != Z_STREAM_END && *rc != Z_BUF_ERROR) return lie(p->z, s->msg ? s->msg : "compressed data is damaged", e);
    if (!give(p, out, CHUNK - s->avail_out, e)) return false;
  } while (*rc != Z_STREAM_END && s->avail_out == 0);
  return true;
}

static bool pump_all(pump *p, uint64_t at, unsigned char *in, unsigned char *out, err *e) {
  z_stream s = {0};
  bool deflated = p->m->method == 8, ok = true;
  int rc = Z_OK;
  if (deflated && inflateInit2(&s, -MAX_WBITS) != Z_OK) return err_set(e, ERR_NOMEM, "out of memory");
  for (uint64_t left = p->m->packed; ok && left && rc != Z_STREAM_END;) {
    size_t n = left < CHUNK ? (size_t)left : CHUNK;
    ok = read_at(p->z, at, in, n, "a member is cut off", e);
    at += n;
    left -= n;
    if (!ok) break;
    if (!deflated) {
      ok = give(p, in, n, e);
      continue;
    }
    s.next_in = in;
    s.avail_in = (uInt)n;
    ok = inflate_chunk(p, &s, out, &rc, e);
  }
  if (deflated) inflateEnd(&s);
  if (ok && deflated && rc != Z_STREAM_END) ok = lie(p->z, "compressed data ends too early", e);
  return ok;
}

bool zip_read(zip *z, const zip_member *m, zip_sink sink, void *arg, err *e) {
  uint64_t at = 0;
  if (!data_start(z, m, &at, e)) return false;
  unsigned char *b = malloc((size_t)CHUNK * 2);
  if (!b) return err_set(e, ERR_NOMEM, "out of memory");
  pump p = {z, m, sink, arg, 0, (uint32_t)crc32(0, NULL, 0)};
  bool ok = pump_all(&p, at, b, b + CHUNK, e);
  if (ok && p.out != m->size) ok = lie(z, "a member holds fewer bytes than it claims", e);
  if (ok && p.crc != m->crc) ok = lie(z, "a member's checksum differs", e);
  free(b);
  return ok;
}
