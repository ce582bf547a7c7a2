/* answer.h - an answer on its way out: takes a backend's events, keeps what a whole answer needs, writes a stream as it comes.
 * Not a socket and not a dialect: bytes leave through api_out, their form comes from the request's dialect.
 * Ownership: owns what it collected; borrows request, info and out until answer_free.
 * Threads: the loop's.
 * Failure: an error before anything was sent becomes a status and an error document; later it becomes the stream's last message.
 *   Text or log-probabilities over the bounds (ANSWER_TEXT, ANSWER_MEM) end the answer with ERR_TOO_LARGE.
 *
 * Nothing is committed before the first good event: a stream's status line leaves with BEGIN, not earlier, unless the model stays
 * silent so long that answer_keep_alive is called; from then on an error can only be told inside the stream. */
#ifndef API_ANSWER_H
#define API_ANSWER_H
#include "api/event.h"
#include "api/request.h"
#include "base/buf.h"

enum { ANSWER_TEXT = 16 << 20, ANSWER_MEM = 256 << 20 };

/* Where the bytes go. The server binds it to an http_req, a test to a buffer. */
typedef struct api_out {
  void *ctx;
  void (*header)(void *ctx, const char *name, const char *value);   /* before whole or open */
  void (*whole)(void *ctx, int status, const char *type, str body); /* the answer, at once */
  void (*open)(void *ctx, int status, const char *type);            /* or: a stream begins, */
  void (*write)(void *ctx, str bytes);
  void (*close)(void *ctx); /* and ends */
} api_out;

typedef struct api_info {
  const char *id;          /* the request's name: "chatcmpl-..." without the prefix */
  int64_t created;         /* Unix seconds */
  const char *model;       /* as served */
  const char *fingerprint; /* "fp_..." */
  int64_t accepted;        /* clock_now() when the request had been read */
  const char *unique;      /* of this answer alone, and not to be guessed: "resp_..." without the prefix */
} api_info;

/* A whole call of a tool, where the answer is whole. */
typedef struct api_call_text {
  str id, name; /* in mem */
  buf args;
} api_call_text;

/* What an answer is made of, in the order it came: a run of text, a thought, a call. */
typedef struct api_part {
  api_event_kind kind; /* TEXT, REASONING, TOOL */
  size_t from, to;     /* TEXT, REASONING: bytes of the choice's text or reasoning */
  int call;            /* TOOL: which */
} api_part;

typedef struct api_choice {
  int index;   /* as shown; -1: dropped by best_of */
  bool opened; /* a stream has shown something of it */
  bool finished;
  api_finish finish;
  int stop; /* 1 + number of the stop string that ended it; 0: none did */
  buf text, reasoning;
  api_call_text *calls; /* [n_calls], in mem */
  int n_calls, cap_calls;
  api_part *parts; /* [n_parts], in mem */
  int n_parts, cap_parts;
  api_token *tokens; /* [n_tokens], in mem; only where log-probabilities were asked for */
  int n_tokens, cap_tokens;
  double lp_sum; /* over produced tokens, for best_of */
  int lp_n;
  int64_t chars; /* code points in tokens already shown: text_offset of the next */
} api_choice;

typedef struct api_answer {
  const api_request *req;
  const api_info *info;
  const api_out *out;
  arena mem;
  api_choice *choices; /* [n_choices] */
  int n_choices;
  void *state; /* the dialect's own, in mem: what a stream has opened and numbered; zeroed at first, NULL where it has none */
  bool begun;  /* status line sent (stream) */
  bool done;   /* nothing more will be written */
  int status;  /* as sent; 0: none yet */
  err error;   /* why it failed; code NONE: it did not */
  api_usage usage;
  api_times times;
  buf scratch;
} api_answer;

bool answer_init(api_answer *a, const api_request *r, const api_info *i, const api_out *o, err *e);
void answer_fini(api_answer *a);
void answer_event(api_answer *a, const api_event *ev);
void answer_fail(api_answer *a, const err *e); /* as an ERROR event */
void answer_keep_alive(api_answer *a);         /* a stream only: a ping in its dialect, so that nobody in between thinks it dead */
#endif
