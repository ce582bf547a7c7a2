/* work.h - a few threads for what would hold up the event loop: rendering templates, tokenizing, anything that takes more than a moment.
 * Not for waiting on sockets and not for the model.
 * Ownership: an item's argument is the caller's; it is handed back in done.
 * Threads: work_add and done on the loop's thread, run on one of ours.
 * Failure: work_add returns false when the queue is full; every accepted item's done runs, at the latest in loop_free. */
#ifndef SERVE_WORK_H
#define SERVE_WORK_H
#include "net/loop.h"
#include <stddef.h>

typedef struct work work;
work *work_new(loop *l, int threads, size_t cap); /* NULL: out of memory or threads */
bool work_add(work *w, void (*run)(void *arg), void (*done)(void *arg), void *arg);
void work_free(work *w); /* runs what is queued, joins */
#endif
