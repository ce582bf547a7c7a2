/* listen.h - opens listening TCP sockets for a host name and port.
 * Not an acceptor. SO_REUSEPORT is deliberately not set: two servers on one port must be an error, not a coin toss.
 * Ownership: the caller closes the descriptors.
 * Threads: any; blocks while a name is looked up.
 * Failure: ERR_IO naming port and address and what to do ("port 8080 on 127.0.0.1 is in use: ..."), ERR_USAGE for a host that is not ours. */
#ifndef NET_LISTEN_H
#define NET_LISTEN_H
#include "base/err.h"

enum { LISTEN_MAX = 4 }; /* "localhost" is two addresses */

/* host NULL or "": 127.0.0.1. *port 0 picks a free one, the same on every address, and is written back. Non-blocking, close-on-exec. */
bool listen_open(const char *host, int *port, int ret_fd[LISTEN_MAX], int *ret_n, err *e);
#endif
