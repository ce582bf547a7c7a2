/* session.h - a conversation with an OpenAI-compatible server: its messages, one answer at a time, and each answer's timings.
 * Not the terminal (repl.h) and not the server.
 * Ownership: owns messages and connection; strings given in are copied.
 * Threads: one owner; chat_send blocks and runs a loop of its own meanwhile.
 * Failure: chat_send returns false with the server's own words; the question is then taken back, so that it can be asked again. An answer that
 * breaks off, or holds what is not JSON, is a failure even when some of it has been shown. */
#ifndef CHAT_SESSION_H
#define CHAT_SESSION_H
#include "base/err.h"
#include "base/str.h"
#include <stdint.h>

typedef struct chat_session chat_session;

typedef struct chat_opts {
  const char *url;           /* base URL, as openai_target.h reads it */
  const char *model;         /* NULL: the first the server lists */
  const char *key;           /* or NULL */
  double temperature, top_p; /* < 0: the server's default */
  int64_t max_tokens, seed;  /* < 0: not sent */
} chat_opts;

typedef struct chat_stats {
  double ttft_ms, tps; /* tps: tokens after the first / (last - first); 0: fewer than two */
  int64_t in, cached, out;
  bool interrupted;   /* by SIGINT: what came so far is kept; when nothing did, the question is taken back */
  const char *finish; /* finish_reason, or "" */
} chat_stats;

bool chat_session_new(const chat_opts *o, chat_session **ret, err *e);
void chat_session_free(chat_session *s);
const char *chat_session_model(const chat_session *s);
/* Sends text as the next user message; on_text gets the answer as it comes. SIGINT ends the answer; between answers it is what it was before. */
bool chat_send(chat_session *s, str text, void (*on_text)(void *ctx, str text), void *ctx, chat_stats *ret, err *e);
void chat_system(chat_session *s, str text); /* sets or (empty) removes the system message */
void chat_reset(chat_session *s);            /* keeps the system message */
int chat_turns(const chat_session *s);
void chat_totals(const chat_session *s, chat_stats *sum, int *ret_answers); /* sum->ttft_ms is the mean of the answers that had one */
bool chat_save(const chat_session *s, const char *path, err *e);            /* JSON: {"messages": [...]} */
bool chat_load(chat_session *s, const char *path, err *e);
#endif
