/* run.h - one model server as a process: listens at once, loads in the background, serves, drains on a signal.
 * Not the options' spelling (serve_opts.h) and not request handling (server.h).
 * Ownership: everything it opens it closes, except when a second signal ends the process during loading.
 * Threads: called on the main thread, which becomes the loop's; loading runs on one of its own.
 * Failure: false with the reason: cannot listen, key file, model not found or refused.
 * Signals: SIGTERM and SIGINT drain (running requests end, new ones are refused), the second of either stops at once. */
#ifndef SERVE_RUN_H
#define SERVE_RUN_H
#include "serve/serve_opts.h"

/* Returns when the server has ended. *ret_status: 0 after a drain, 130 when a second signal cut it short. Prints the server's URL on stdout when
 * ready. */
bool serve_run(const serve_opts *o, int *ret_status, err *e);
#endif
