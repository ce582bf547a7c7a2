/* request.h - one request for text, whatever dialect it came in: prompt or messages, sampling, limits, what the answer must carry.
 * Not HTTP (headers, keys, ids are the server's) and not tokens: a backend turns messages and text into what it runs on.
 * Ownership: shared by reference (server, answer, backend); owns its JSON document and an arena, into which every str and array below points.
 * Threads: references are taken and dropped on the loop's thread; immutable once started, so a backend may read it from any thread.
 * Failure: parsing is all or nothing; an error names the field in err.param and is ERR_INPUT (wrong) or ERR_UNSUPPORTED (understood, not offered). */
#ifndef API_REQUEST_H
#define API_REQUEST_H
#include "base/arena.h"
#include "base/json.h"
#include <math.h>

enum {
  API_MAX_CHOICES = 16,   /* n and best_of */
  API_MAX_PROMPTS = 2048, /* entries of a list prompt */
  API_MAX_STOPS = 16,
  API_MAX_STOP = 4096, /* bytes of one; every choice keeps a copy */
  API_MAX_LOGPROBS = 20,
  API_MAX_BIAS = 4096,
  API_MAX_TOOLS = 512, /* and 4 MiB of them */
};

/* "Not given": the backend then uses the model's own default. NAN for numbers, this for integers. */
#define API_UNSET INT64_MIN
static inline bool api_given(double v) { return !isnan(v); }

struct api_dialect;

typedef struct api_prompt {
  str text;           /* when ids is NULL */
  const int32_t *ids; /* [n_ids] */
  int n_ids;
} api_prompt;

typedef struct api_bias {
  int32_t token;
  float bias;
} api_bias;

/* A value in r->messages that was opened from text, and the text: a past call's arguments exactly as the model wrote them. */
typedef struct api_written {
  const json_t *value;
  str text;
} api_written;

typedef enum api_tool_choice { API_TOOLS_AUTO, API_TOOLS_NONE } api_tool_choice; /* none: the tools are shown, calls are plain text */

typedef struct api_request {
  int refs;
  arena mem;
  json_t *doc;
  const struct api_dialect *dialect;
  str model; /* "" when the client named none */

  /* Chat: messages is set. Completions: prompts is set. Never both. */
  json_t *messages;        /* array of objects; content is a string (text parts are joined) or null */
  json_t *template_kwargs; /* object or NULL */
  /* Tools in OpenAI's chat form, whatever dialect they came in: [{"type": "function", "function": {"name", "description", "parameters"}}]; NULL:
   * none. So are past calls (messages[i].tool_calls, arguments opened to an object where they are JSON) and results (role "tool", tool_call_id). */
  json_t *tools;
  str *tool_names;      /* [size of tools] */
  api_written *written; /* [n_written], in the order of the messages */
  int n_written;
  uint8_t *calls; /* [n_calls] tools.h: where each past call comes from, in the order of the messages */
  int n_calls;
  api_tool_choice tool_choice;
  bool parallel_tools; /* more than one call in an answer is wanted */
  bool add_generation_prompt;
  api_prompt *prompts; /* [n_prompts] */
  int n_prompts;       /* 1 for chat */
  bool parse_special;  /* prompts: control tokens in the text are read as such */
  bool add_special;    /* prompts: BOS where the model wants one */

  double temperature, top_p, min_p, typical_p, presence, frequency, repetition; /* NAN: not given */
  int64_t top_k;                                                                /* API_UNSET: not given; <= 0: off */
  double dry_multiplier, dry_base;                                              /* multiplier 0: off */
  int64_t dry_allowed_length, dry_last_n;
  bool has_seed;
  uint64_t seed;  /* the server draws one when the client gave none */
  api_bias *bias; /* [n_bias] */
  int n_bias;

  int n, best_of; /* best_of >= n; the n with the best mean log-probability are returned */
  str *stop;      /* [n_stop], none empty */
  int n_stop;
  int32_t *stop_ids; /* [n_stop_ids] */
  int n_stop_ids;
  bool include_stop, ignore_eos, keep_special;
  int64_t max_tokens; /* -1: to the context's end */
  int64_t min_tokens;

  int logprobs; /* -1: none; k: the chosen token's and the k best */
  bool echo;    /* the prompt's text (and log-probabilities) come first */
  bool stream, include_usage, continuous_usage;

  int64_t accepted; /* clock_now() when the whole request had been read; the server's */
  int64_t now;      /* wall clock, Unix seconds: what a template's strftime_now sees; the server's */
  str user;
  bool store;         /* the answer is kept to be gone on from */
  str previous;       /* id of the answer this one goes on from; empty: none */
  char ignored[1024]; /* names of fields that were accepted and have no effect, comma separated */
} api_request;

/* Number of choices a backend produces: prompts times best_of. Choice i belongs to prompt i / best_of. */
static inline int api_n_choices(const api_request *r) { return r->n_prompts * r->best_of; }

/* Parses `body` in the given dialect; the caller holds the one reference. */
bool api_request_parse(const struct api_dialect *d, str body, api_request **ret, err *e);
/* Notes a field that was accepted and has no effect. */
void api_request_ignored(api_request *r, const char *name);
api_request *api_request_ref(api_request *r);
void api_request_unref(api_request *r); /* NULL is allowed */
#endif
