/* local.h - the built-in engine as a backend: requests become token ids and engine tickets, engine events become api events.
 * Not a server: no sockets, no JSON of answers.
 * Ownership: borrows engine, model, worker threads, metrics; owns its calls.
 * Threads: as backend.h (the loop's); engine events cross from the engine thread through a queue per call.
 * Failure: as backend.h. A full queue is ERR_BUSY, a prompt over the context ERR_CONTEXT with both numbers.
 *
 * A request is prompts x choices, each a lane with a ticket of its own. At most LOCAL_WINDOW lanes of one request are with the engine
 * at a time, so that a list of prompts neither fills the queue nor starves others; the next is submitted as one ends. */
#ifndef SERVE_LOCAL_H
#define SERVE_LOCAL_H
#include "api/backend.h"
#include "engine/engine.h"
#include "serve/metrics.h"
#include "serve/work.h"

enum { LOCAL_WINDOW = 32 };

typedef struct local local;
local *local_new(engine *en, const model *m, loop *l, work *w, metrics *mt);   /* NULL: out of memory */
void local_free(local *l);              /* after engine_close and loop_free: no event can come any more */
api_backend *local_backend(local *l);
#endif
