/* A zip archive: looked up by name and read. The input lies in a memory file, for the reader wants a path. Holds: two readings give the same bytes or
 * the same refusal; a member is exactly as long as it says. */
#include "base/buf.h"
#include "base/hash.h"
#include "fetch/zip.h"
#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OUT_MAX = 1 << 20 };

static bool sink(void *arg, const void *p, size_t n, err *e) {
  buf *b = arg;
  if (b->n + n > OUT_MAX) return err_set(e, ERR_TOO_LARGE, "the target wants no more");
  buf_put(b, p, n);
  return true;
}

/* All that is asked of one archive, as a log. */
static void read_all(const char *path, buf *log) {
  static const char *const names[] = {"a", "b", "m.gguf", "dir/x.txt", ""};
  zip *z = NULL;
  err e = {0};
  if (!zip_open(path, &z, &e)) {
    fuzz_refused(&e);
    buf_puts(log, e.msg);
    return;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    zip_member m = {0};
    buf out;
    buf_init(&out, OUT_MAX * 2);
    if (!zip_find(z, names[i], &m, &e) || !zip_read(z, &m, sink, &out, &e)) {
      fuzz_refused(&e);
      buf_puts(log, e.msg);
    } else {
      FUZZ_CHECK(out.n == m.size, "member %s says %llu bytes and has %zu", names[i], (unsigned long long)m.size, out.n);
      fuzz_touch(m.name.p, m.name.n);
      buf_printf(log, "%zu bytes", out.n);
    }
    buf_fini(&out);
  }
  zip_close(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  static int fd = -1;
  char path[64];
  if (fd < 0) fd = memfd_create("zip", MFD_CLOEXEC);
  FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, p, n, 0) == (ssize_t)n, "no memory file");
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  buf a, b;
  buf_init(&a, 1 << 20);
  buf_init(&b, 1 << 20);
  read_all(path, &a);
  read_all(path, &b);
  FUZZ_CHECK(str_eq(buf_view(&a), buf_view(&b)), "two readings of one archive differ");
  buf_fini(&a);
  buf_fini(&b);
  return 0;
}
