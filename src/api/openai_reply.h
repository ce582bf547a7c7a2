/* openai_reply.h - what a client reads of an OpenAI-shaped answer: one stream chunk, or one whole body.
 * Not a face (openai_chat.h writes answers) and not a transport.
 * Ownership: the reply owns its document; text and message are borrowed from it until openai_reply_fini.
 * Threads: a plain value.
 * Failure: false when the bytes are not JSON; fields that are absent are zero. */
#ifndef API_OPENAI_REPLY_H
#define API_OPENAI_REPLY_H
#include "base/json.h"

typedef struct openai_reply {
  json_t *doc;
  str text; /* delta content, message content or completion text; "" when none */
  str reasoning;
  bool output;        /* carries text, reasoning or a tool call: what TTFT counts */
  const char *finish; /* finish_reason or NULL */
  const char *error;  /* the error's message, or NULL */
  bool has_usage;
  int64_t tokens_in, tokens_cached, tokens_out;
} openai_reply;

bool openai_reply_parse(str json, openai_reply *ret);
void openai_reply_fini(openai_reply *r);
#endif
