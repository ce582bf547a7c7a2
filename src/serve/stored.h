/* stored.h - GET and DELETE /v1/responses/{id}, and GET /v1/responses/{id}/input_items: what the store holds, shown and forgotten.
 * Not the store (store.h) and not what fills it (exchange.h).
 * Ownership: nothing outlives the call.
 * Threads: the loop's thread.
 * Failure: answered to the client; an id that is not kept (any more), or is another key's, is 404. */
#ifndef SERVE_STORED_H
#define SERVE_STORED_H
#include "serve/server.h"

void stored_get(server *s, http_req *r, const char *route, str rest); /* rest: the id, or the id and /input_items */
void stored_delete(server *s, http_req *r, const char *route, str rest);
/* The error that says so. */
bool stored_unknown(str id, const char *param, err *e);
#endif
