/* turns.h - a conversation put together piece by piece, for dialects that tell it in blocks or items: the result is what messages.h takes.
 * Not a check of what clients send: a dialect names what is wrong in its own terms before it adds a piece.
 * Ownership: owns the list under way until turns_end or turns_fini; what is given in is copied or referenced.
 * Threads: one owner.
 * Failure: memory only, told by turns_end.
 *
 * Pieces of an assistant's turn that follow each other make one message: what it thought, said (set end to end, as a chat's answer has it) and
 * called. Texts of another role that follow each other stay apart or are joined by newlines, as the dialect wants it. */
#ifndef API_TURNS_H
#define API_TURNS_H
#include "base/buf.h"
#include "base/err.h"
#include <jansson.h>

typedef struct turns {
  json_t *list, *open; /* open: the message under way */
  const char *role;
  buf text, thought;
  bool said, called, failed;
} turns;

void turns_init(turns *t);
void turns_fini(turns *t);
void turns_say(turns *t, const char *role, str text);  /* a text of its own; an assistant's goes on with its turn */
void turns_more(turns *t, const char *role, str text); /* the same, but goes on with the message before where that has the same role */
void turns_think(turns *t, str text);
/* args: a string of JSON as the model wrote it, or an object. */
void turns_call(turns *t, str id, str name, json_t *args);
void turns_result(turns *t, str id, str text);
/* The list, the caller's; NULL with ERR_NOMEM. */
json_t *turns_end(turns *t, err *e);
#endif
