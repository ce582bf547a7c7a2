/* split.h - what a model writes in a chat, parted into what a client sees: thinking, text and calls of tools.
 * Not the parsers (model/reason.h, model/toolcall.h): this puts one behind the other and gives calls their ids.
 * Ownership: a split owns its parsers; an event is borrowed for the length of the callback.
 * Threads: the loop's, one at a time.
 * Failure: memory only; what was told until then stands. */
#ifndef SERVE_SPLIT_H
#define SERVE_SPLIT_H
#include "api/event.h"
#include "model/toolcall.h"

typedef struct split_plan {
  bool think, opened; /* the family thinks aloud; this prompt has already begun a thought */
  tool_form form;     /* NONE: calls are text */
  const str *names;   /* [n_names] the functions that were offered; borrowed */
  int n_names;
  bool parallel;   /* more than one call is wanted */
  uint64_t random; /* ids follow from it */
} split_plan;

typedef struct split split;
/* Kind and what belongs to it are set (TEXT, REASONING, TOOL); the rest is the caller's. */
typedef void (*split_fn)(void *ctx, api_event *ev);

bool split_new(const split_plan *p, split_fn fn, void *ctx, split **ret, err *e);
void split_spelt(split *s, bool spelt); /* of the call that comes next: its mark was ordinary text though the vocabulary has a token for it */
bool split_push(split *s, str text);
bool split_end(split *s, bool cut); /* cut: by a limit */
bool split_thinks(const split *s);  /* inside a thought */
int split_calls(const split *s);    /* calls told */
bool split_full(const split *s);    /* a call more than wanted has begun: nothing comes out any more */
void split_free(split *s);
#endif
