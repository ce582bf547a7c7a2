/* chat.h - a model's own Jinja chat template: messages (JSON) to prompt text, equal to jinja2 as transformers configures it.
 * Not a Jinja for web pages: the subset that templates use, bounded in steps, depth and output; no per-model heuristics.
 * Ownership: chat_tmpl owns its parse tree; a render result is the caller's.
 * Threads: a compiled template is immutable; any thread may render.
 * Failure: ERR_INPUT "chat template, line N: ..." on a template that does not parse, on raise_exception (its message), on a step, depth, memory or
 * output bound; ERR_UNSUPPORTED naming a construct that jinja2 has and we do not; ERR_INPUT with err.param on messages, tools or extra of a wrong
 * shape. */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H
#include "base/buf.h"
#include "base/err.h"
#include <jansson.h>

typedef struct chat_tmpl chat_tmpl;
bool chat_compile(str source, chat_tmpl **ret, err *e);
void chat_free(chat_tmpl *t);

/* A value among the messages that was read from JSON text, and the text. A plain tojson prints it as it was written: a past call is shown to the
 * model as the model itself wrote it. A string stands for text that was no JSON. */
typedef struct chat_written {
  const json_t *value;
  str text;
} chat_written;

typedef struct chat_vars {
  /* Array of objects; borrowed. As in transformers, a key whose value is null is dropped, and reasoning given as reasoning_content, thinking or
   * reasoning is seen under the first two. */
  json_t *messages;
  const chat_written *written; /* [n_written], in the order of the messages */
  int n_written;
  json_t *tools;         /* array or NULL (rendered as none) */
  json_t *extra;         /* object: chat_template_kwargs and other top-level variables (not messages, not tools); wins over the rest; may be NULL */
  const char *bos, *eos; /* texts of the special tokens; "" or NULL when none: bos_token is then undefined, as the reference has it */
  bool add_generation_prompt;
  int64_t now; /* Unix seconds for strftime_now (local time zone of the process); part of the request */
} chat_vars;

typedef struct chat_text {
  buf text;       /* rendered prompt */
  uint8_t *trust; /* [text.n] 1: came from the template's own literals (or bos/eos), 0: came from messages, tools, extra */
} chat_text;
bool chat_render(const chat_tmpl *t, const chat_vars *v, chat_text *ret, err *e);
void chat_text_fini(chat_text *c);
#endif
