/* backend.h - what any backend is: something that starts a request, tells events about it, and can be told to stop.
 * Not a particular one: the local engine is serve/local.c, providers and other servers come through the same table.
 * Ownership: start takes a reference on the request of its own; a call belongs to the backend and is gone after its last event or cancel.
 * Threads: start and cancel on the loop's thread; events arrive there too, never from inside start or cancel.
 * Failure: start returns false with the reason and no event follows. After a true return the events of event.h follow, whose
 *   last is USAGE or ERROR, unless cancel came first: after cancel no event is delivered. */
#ifndef API_BACKEND_H
#define API_BACKEND_H
#include "api/event.h"
#include "api/request.h"

typedef struct api_backend api_backend;
typedef struct api_call api_call;

struct api_backend {
  const char *name; /* "local": the label in metrics and logs */
  bool (*start)(api_backend *b, api_request *r, api_sink *sink, api_call **ret, err *e);
  void (*cancel)(api_backend *b, api_call *c);
};
#endif
