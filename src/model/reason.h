/* reason.h - parts a model's thinking, <think>...</think> at the head of its answer, from the answer itself: text in pieces in, the two kinds out.
 * Not a judge of templates: whether a prompt has already opened the thinking is told by the caller.
 * Ownership: a plain value with a few bytes held back; what the callback gets is borrowed for its length.
 * Threads: one at a time.
 * Failure: none. The newlines next to the two marks belong to them; all other text comes out in order and unchanged. */
#ifndef MODEL_REASON_H
#define MODEL_REASON_H
#include "base/str.h"

typedef void (*reason_fn)(void *ctx, bool thought, str text);

typedef struct reason {
  reason_fn fn;
  void *ctx;
  uint8_t at;   /* reason.c's */
  int matched;  /* bytes of the mark that is looked for */
  int newlines; /* held back: before <think>, or at the end of what was thought */
} reason;

bool reason_in_template(str chat_template); /* does this family think aloud in these marks? */
extern const char *const reason_marks[];    /* NULL-terminated */
/* opened: the prompt ends inside <think>. */
void reason_init(reason *r, bool opened, reason_fn fn, void *ctx);
void reason_push(reason *r, str text);
void reason_end(reason *r); /* what was held back comes out */
static inline bool reason_thinks(const reason *r);

enum { REASON_HEAD, REASON_SKIP, REASON_INSIDE, REASON_GAP, REASON_OVER };
static inline bool reason_thinks(const reason *r) { return r->at == REASON_SKIP || r->at == REASON_INSIDE; }
#endif
