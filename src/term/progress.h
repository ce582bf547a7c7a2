/* progress.h - how far something is, on stderr: a bar that redraws itself on a terminal, a line now and then elsewhere.
 * Not a log and not for stdout: the result of a command never mixes with it.
 * Ownership: a plain struct of the caller's; `what` is borrowed for the call.
 * Threads: one owner.
 * Failure: none; a stderr that cannot be written to stops nothing. */
#ifndef TERM_PROGRESS_H
#define TERM_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
  bool tty, drawn; /* drawn: a bar stands on the last line */
  int width;
  int64_t start_ns, last_ns; /* last_ns: when something was printed */
  uint64_t start, last_pct;
  char what[128];
} progress;

void progress_init(progress *p);
/* part/parts: "3 of 6", 0 when not in parts. total 0: not known. Bytes per second are those of this run, not of what was resumed. */
void progress_show(progress *p, const char *what, uint64_t done, uint64_t total, int part, int parts, bool finished);
void progress_line(progress *p, const char *text); /* a line of text above the bar */
void progress_end(progress *p);                    /* leaves the cursor on a fresh line */
void progress_bytes(uint64_t n, char out[16]);     /* "98.4 MB" */
#endif
