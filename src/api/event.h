/* event.h - what a backend tells about an answer while it comes into being.
 * Not a wire format: the dialects turn events into theirs, so a new dialect or a new backend is written once each.
 * Ownership: everything an event points to is borrowed for the length of the call.
 * Threads: events are delivered on the loop's thread.
 * Failure: ERROR is an event like the others, and the last one.
 *
 * Order: BEGIN, then for every choice any number of TEXT (REASONING, TOOL) and one FINISH, then one USAGE, the last event of a
 * good answer. ERROR may come at any time (before BEGIN: nothing was produced) and ends it. */
#ifndef API_EVENT_H
#define API_EVENT_H
#include "base/err.h"
#include "base/str.h"

typedef enum api_event_kind { API_BEGIN, API_TEXT, API_REASONING, API_TOOL, API_FINISH, API_USAGE, API_ERROR } api_event_kind;
typedef enum api_finish { API_STOP, API_LENGTH, API_TOOL_CALLS, API_FILTER } api_finish;

typedef struct api_top {
  int32_t id;
  str bytes;
  float logprob;
} api_top;
typedef struct api_token {
  int32_t id;
  str bytes;          /* as they lie in the text; may be part of a code point */
  float logprob;      /* NAN: not known (the first token of a prompt) */
  const api_top *top; /* [n_top], best first */
  int n_top;
} api_token;

typedef struct api_usage {
  int64_t prompt, cached, output, reasoning;
} api_usage;

/* A piece of a tool call. Calls of a choice are numbered from 0 and come one after the other: the first piece of a call carries id and name (args may
 * be empty), the later ones only args, the raw text of the arguments as the model writes them. */
typedef struct api_tool {
  int index;
  str id, name; /* the first piece only; else empty */
  str args;
} api_tool;

/* Moments of the backend's own clock (clock_now); 0: did not happen or is not told. */
typedef struct api_times {
  int64_t accepted, scheduled, first, last, done;
} api_times;

typedef struct api_event {
  api_event_kind kind;
  int choice;
  bool prompt;             /* TEXT: this is the echoed prompt */
  str text;                /* TEXT, REASONING: whole code points; may be empty */
  api_tool tool;           /* TOOL */
  const api_token *tokens; /* [n_tokens], only where log-probabilities were asked for */
  int n_tokens;
  api_finish finish; /* FINISH */
  int stop;          /* FINISH: 1 + number of the stop string that ended it; 0: none did */
  api_usage usage;   /* TEXT and later: so far; USAGE: final, over all choices */
  api_times times;   /* BEGIN: what is known; USAGE: all */
  const err *error;  /* ERROR */
} api_event;

typedef struct api_sink {
  void (*event)(struct api_sink *s, const api_event *ev);
} api_sink;
#endif
