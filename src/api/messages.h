/* messages.h - a conversation in the one form that backends read: OpenAI's chat messages, checked and brought to order.
 * Not a dialect: a dialect whose messages look otherwise turns them into this form first (new JSON objects) and then hands them here.
 * Ownership: messages_take puts a reference on the list into the request; the list is changed in place (parts joined, developer -> system, arguments
 *   opened).
 * Threads: pure functions over their arguments.
 * Failure: ERR_INPUT or ERR_UNSUPPORTED naming the message and field, as path[3].content[0].type. */
#ifndef API_MESSAGES_H
#define API_MESSAGES_H
#include "api/request.h"

/* Checks the list (NULL: missing) and makes it r->messages. path: what the client calls it. */
bool messages_take(api_request *r, json_t *list, const char *path, err *e);
#endif
