/* local.h - the built-in engine as a backend: requests become token ids and engine tickets, engine events become api events.
 * Not a server: no sockets, no JSON of answers.
 * Ownership: borrows engine, model, worker threads, metrics; owns its calls.
 * Threads: as backend.h (the loop's); engine events cross from the engine thread through a queue per call.
 * Failure: as backend.h. A full queue is ERR_BUSY, a prompt over the context ERR_CONTEXT with both numbers.
 *
 * A request is prompts x choices, each a lane with a ticket of its own. At most a window of them are with the engine at a time: a quarter
 * of its queue, LOCAL_WINDOW at most, so that one list of prompts neither fills the queue nor starves others; the next is submitted as one ends. */
#ifndef SERVE_LOCAL_H
#define SERVE_LOCAL_H
#include "api/backend.h"
#include "engine/engine.h"
#include "serve/metrics.h"
#include "serve/work.h"

enum { LOCAL_WINDOW = 32 };

typedef struct local local;
/* queue: as the engine's option. NULL: out of memory. */
local *local_new(engine *en, const model *m, loop *l, work *w, metrics *mt, int queue);
void local_free(local *l); /* after engine_close and loop_free: no event can come any more */
api_backend *local_backend(local *l);
#endif
