#include "base/notify.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool notify_manager(const char *state) {
  const char *path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  size_t n = path ? strlen(path) : 0;
  if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) return false;
  memcpy(to.sun_path, path, n);
  if (path[0] == '@') to.sun_path[0] = 0; /* a name, not a file */
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool ok = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) >= 0;
  close(fd);
  return ok;
}
