#include "net/listen.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int bound_port(int fd) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
  return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
}

static void set_port(struct sockaddr *a, int port) {
  if (a->sa_family == AF_INET6) ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
  else ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
}

static bool is_any6(const struct sockaddr *a) {
  return a->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* One address. 0 with *ret_fd, or an errno. */
static int open_one(const struct addrinfo *ai, int *ret_fd) {
  int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  int on = 1, only6 = !is_any6(ai->ai_addr); /* "::" means every address of both families */
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (ai->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof only6);
  if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, 1024) != 0) {
    int en = errno;
    close(fd);
    return en;
  }
  *ret_fd = fd;
  return 0;
}

static bool say_why(int en, const char *host, int port, err *e) {
  switch (en) {
  case EADDRINUSE: return err_set(e, ERR_IO, "port %d on %s is in use: stop what listens there or choose another with --port", port, host);
  case EACCES: return err_set(e, ERR_IO, "port %d on %s needs privileges this process does not have: choose one above 1023 with --port", port, host);
  case EADDRNOTAVAIL:
    return err_param(e, ERR_USAGE, "host", "%s is not an address of this machine: give one that is, 127.0.0.1 or 0.0.0.0 with --host", host);
  default: return err_errno(e, en, "cannot listen on %s port %d", host, port);
  }
}

bool listen_open(const char *host, int *port, int ret_fd[LISTEN_MAX], int *ret_n, err *e) {
  if (!host || !*host) host = "127.0.0.1";
  if (*port < 0 || *port > 65535) return err_param(e, ERR_USAGE, "port", "port %d is not between 0 and 65535", *port);
  char bare[256];
  size_t n = strlen(host);
  if (n >= sizeof bare) return err_param(e, ERR_USAGE, "host", "the host to listen on is longer than 255 bytes");
  bool bracket = n > 2 && host[0] == '[' && host[n - 1] == ']';
  snprintf(bare, sizeof bare, "%.*s", (int)(bracket ? n - 2 : n), host + bracket);

  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
  int rc = getaddrinfo(bare, NULL, &hints, &list);
  if (rc != 0) return err_param(e, ERR_USAGE, "host", "cannot listen on '%s': %s", host, gai_strerror(rc));
  int fd[LISTEN_MAX], n_fd = 0, p = *port, failed = 0, absent = EADDRNOTAVAIL;
  for (struct addrinfo *ai = list; ai && n_fd < LISTEN_MAX; ai = ai->ai_next) {
    set_port(ai->ai_addr, p);
    int en = open_one(ai, &fd[n_fd]);
    if (en == 0) {
      if (!p) p = bound_port(fd[n_fd]);
      n_fd++;
    } else if (en == EADDRNOTAVAIL || en == EAFNOSUPPORT) {
      absent = en; /* "localhost" may name an address family this machine does not have: fine as long as another opens */
    } else {
      failed = en;
      break;
    }
  }
  freeaddrinfo(list);
  if (failed || !n_fd) {
    for (int i = 0; i < n_fd; i++) close(fd[i]);
    return say_why(failed ? failed : absent, host, p, e);
  }
  memcpy(ret_fd, fd, (size_t)n_fd * sizeof *fd);
  *ret_n = n_fd;
  *port = p;
  return true;
}
