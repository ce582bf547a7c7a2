/* child.h - `weir serve MODEL` as a process of our own, on a port of its choice, for as long as we live.
 * Not a supervisor: it is started once and stopped once.
 * Ownership: child_stop ends and reaps it; should we die first, the kernel tells it (PR_SET_PDEATHSIG).
 * Threads: one owner.
 * Failure: what the child said last on stderr, when it ends before it is ready. */
#ifndef CHAT_CHILD_H
#define CHAT_CHILD_H
#include "base/err.h"
#include <sys/types.h>

typedef struct child {
  pid_t pid;
  char url[128];
} child;
/* args: further options for `weir serve`, NULL at the end. Blocks until its URL is known. */
bool child_start(const char *model, const char *const *args, child *ret, err *e);
void child_stop(child *c);
#endif
