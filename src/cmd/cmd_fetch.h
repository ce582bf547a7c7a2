/* cmd_fetch.h - fetch_model with a progress bar on stderr and Ctrl-C as its stop.
 * Not fetching itself (fetch/).
 * Ownership, failure: as fetch_model. `o`'s progress, note, arg and stop are ours.
 * Threads: the main thread (signal handlers are set for the length of the call).
 * Failure: as fetch_model. */
#ifndef CMD_CMD_FETCH_H
#define CMD_CMD_FETCH_H
#include "fetch/fetch.h"

bool cmd_fetch(const char *what, const fetch_opts *o, bool quiet, char path[OS_PATH], char name[FETCH_NAME], err *e);
#endif
