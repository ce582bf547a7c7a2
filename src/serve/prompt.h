/* prompt.h - a request's messages or text into the token ids a model reads: the chat template, then the tokenizer.
 * Not the engine: /tokenize and /apply-template use the same functions, so that they tell exactly what a chat would run on.
 * Ownership: results are the caller's (free(ids.v), chat_text_fini); everything else is borrowed.
 * Threads: any; they may take long on long input, so not on the loop's thread.
 * Failure: ERR_INPUT (template's own refusal, an id outside the vocabulary), ERR_UNSUPPORTED (a model without a chat template,
 *   or with none for tools). */
#ifndef SERVE_PROMPT_H
#define SERVE_PROMPT_H
#include "api/request.h"
#include "model/model.h"

typedef struct prompt_chat {
  json_t *messages, *tools, *kwargs; /* borrowed; tools and kwargs may be NULL */
  bool add_generation_prompt;
  int64_t now;
  const api_written *written; /* [n_written], as in the request */
  int n_written;
  const uint8_t *origins; /* [n_origins] of past calls, as in the request */
  int n_origins;
  bool calls; /* calls of the tools are expected: a model that has no known way to write them is refused */
} prompt_chat;
prompt_chat prompt_chat_of(const api_request *r);

bool prompt_render(const model *m, const prompt_chat *c, chat_text *ret, err *e);
/* The rendered chat's ids: control tokens only where the template wrote them, BOS not doubled. */
bool prompt_chat_ids(const model *m, const prompt_chat *c, tok_ids *ret, err *e);
/* Prompt i of a request, or its chat. thinks: the template has opened a thought that the answer goes on with. */
bool prompt_ids(const model *m, const api_request *r, int i, tok_ids *ret, bool *ret_thinks, err *e);
/* Ids outside the vocabulary are refused by their place: "prompt[3]". */
bool prompt_check_ids(const model *m, const int32_t *ids, int n, const char *path, err *e);
#endif
