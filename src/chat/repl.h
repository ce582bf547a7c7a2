/* repl.h - the conversation on a terminal, or with a pipe: prompt, commands, answers, a line of timings after each.
 * Not the conversation (session.h).
 * Ownership: borrows the session.
 * Threads: the main thread.
 * Failure: an answer that fails is reported and the conversation goes on; piped, it is the exit status.
 * stdout carries answers only when piped; prompts, timings and complaints go to stderr there. */
#ifndef CHAT_REPL_H
#define CHAT_REPL_H
#include "chat/session.h"

/* One message from stdin (all of it), one answer on stdout. */
bool repl_piped(chat_session *s, bool stats, err *e);
/* Until /quit or Ctrl-D. stats: a line of timings after each answer. */
bool repl_run(chat_session *s, const char *history_path, bool stats, err *e);
#endif
