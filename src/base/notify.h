/* notify.h - one line of state to the service manager that started us, in systemd's way: a datagram to the socket NOTIFY_SOCKET names.
 * Not libsystemd: the protocol is a line of text, and a library for it would be the largest thing linked.
 * Ownership: none.
 * Threads: any.
 * Failure: false; nobody asked (no NOTIFY_SOCKET) is false too. A service manager that cannot be told is no reason to fail. */
#ifndef BASE_NOTIFY_H
#define BASE_NOTIFY_H
#include <stdbool.h>

bool notify_manager(const char *state); /* "READY=1", "STOPPING=1", "STATUS=..." */
#endif
