/* dialect.h - a dialect: how one API spells a request and an answer. One file each; the loop over events is answer.c's alone.
 * Not routing: which path speaks which dialect is the server's table.
 * Ownership: constant tables; writers append to the caller's buffer.
 * Threads: pure functions over their arguments.
 * Failure: parse as request.h says; writers fail only through the buffer's bound. */
#ifndef API_DIALECT_H
#define API_DIALECT_H
#include "api/answer.h"
#include "base/buf.h"

typedef struct api_dialect {
  const char *name;      /* "openai-chat" */
  const char *prefix;    /* of an answer's id, where it is made of info.unique: "resp_" */
  const char *id_header; /* what names a request in its answers besides X-Request-Id; NULL: nothing */
  bool keeps;            /* its streams repeat at their end what they have shown: it is kept as for a whole answer */
  size_t state;          /* bytes of an answer's state */
  /* Reads r->doc (a JSON object) into *r, whose fields hold their defaults. */
  bool (*parse)(api_request *r, err *e);
  /* Where answers can be gone on from: called between parse and start when r->previous is set. past: the items of the earlier turns, oldest first. */
  bool (*resume)(api_request *r, json_t *past, err *e);
  /* What is kept to go on from an answer: a JSON array of the items that went in, and one of those that came out. */
  void (*input)(const api_answer *a, buf *out);
  void (*output)(const api_answer *a, buf *out);
  /* The bytes an event becomes in a stream; nothing for an event that this dialect does not show. */
  void (*chunk)(const api_answer *a, const api_event *ev, buf *out);
  /* The bytes that end a good stream (after USAGE). */
  void (*stream_end)(const api_answer *a, buf *out);
  /* The whole answer as one document. */
  void (*whole)(const api_answer *a, buf *out);
  /* An error as a document, and as the last bytes of a stream that had begun. */
  void (*error)(const err *e, buf *out);
  void (*stream_error)(const api_answer *a, const err *e, buf *out);
  /* Something to say in a silence; NULL: an SSE comment. */
  void (*ping)(const api_answer *a, buf *out);
} api_dialect;

extern const api_dialect api_openai_chat, api_openai_completions, api_openai_responses, api_anthropic_messages;
extern const api_dialect api_anthropic_count; /* messages that are only counted: parse and error alone */
#endif
