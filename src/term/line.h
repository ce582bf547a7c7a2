/* line.h - reading a line from a person: editing and history on a terminal (libedit), plain lines elsewhere.
 * Not a parser of commands.
 * Ownership: line_read's text is owned by the reader and valid until the next call.
 * Threads: one owner, the main thread.
 * Failure: line_new returns NULL when memory is out; a history file that cannot be read or written is no failure. */
#ifndef TERM_LINE_H
#define TERM_LINE_H
#include "base/str.h"

typedef struct line_reader line_reader;
line_reader *line_new(const char *history_path); /* NULL: no history on disk */
void line_free(line_reader *l);                  /* writes the history */
typedef enum line_got { LINE_TEXT, LINE_INTERRUPT, LINE_END } line_got;
line_got line_read(line_reader *l, const char *prompt, str *ret); /* without the newline */
void line_remember(line_reader *l, const char *text);
#endif
