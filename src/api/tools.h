/* tools.h - the functions a client offers to the model, checked, and the ids of the calls that answer them.
 * Not the model's side: how tools are shown and calls are written is the chat template's and model/toolcall.h's.
 * Ownership: tools_take puts a reference on the list into the request; the list is not changed.
 * Threads: pure functions over their arguments.
 * Failure: ERR_INPUT or ERR_UNSUPPORTED naming the field, as path[3].function.name. */
#ifndef API_TOOLS_H
#define API_TOOLS_H
#include "api/request.h"

enum { TOOLS_BYTES = 4 << 20, TOOLS_NAME = 64, TOOLS_ID = 32 };

/* Checks a list in OpenAI's chat form (NULL or empty: no tools) and makes it r->tools. path: what the client calls it. */
bool tools_take(api_request *r, json_t *list, const char *path, err *e);
/* "auto", "none", null; what forces a call is refused by name. */
bool tools_choice(api_request *r, json_t *choice, const char *path, err *e);
bool tools_name_ok(str name); /* ^[a-zA-Z0-9_-]{1,64}$ */

/* The id of a call. plain: nine letters and digits, all that Mistral's templates allow. It tells where the call comes
 * from: one that comes back under an id of ours was written by a model here, in its own form, with exactly these arguments. */
typedef enum tools_origin {
  TOOLS_FOREIGN, /* not from here, or not in the form of the template: what came of it is not known */
  TOOLS_OWN,     /* written here, its marks the vocabulary's own tokens */
  TOOLS_SPELT    /* written here, its marks spelt out in ordinary tokens */
} tools_origin;
void tools_new_id(char out[TOOLS_ID], uint64_t random, bool plain, tools_origin o);
tools_origin tools_id_origin(str id);
#endif
