#include "cmd/input.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool input_read(const char *path, buf *b, err *e) {
  bool from_stdin = strcmp(path, "-") == 0, ok = false;
  const char *what = from_stdin ? "stdin" : path;
  int fd = from_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return err_errno(e, errno, "cannot open %s", path);
  for (;;) {
    char chunk[1 << 16];
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) err_errno(e, errno, "cannot read %s", what);
    else if (n > 0 && !buf_put(b, chunk, (size_t)n)) err_set(e, ERR_TOO_LARGE, "%s holds more than the %d MiB that are read", what, INPUT_MAX >> 20);
    else if (n > 0) continue;
    else ok = true;
    break;
  }
  if (!from_stdin) close(fd);
  return ok;
}
