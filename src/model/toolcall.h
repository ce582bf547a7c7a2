/* toolcall.h - finds tool calls in what a model writes: text in pieces in, plain text and pieces of calls out.
 * Not a JSON validator: arguments are passed on as the model wrote them; and not a template: how calls are shown to the model is the template's.
 * Ownership: a tool_parser owns what it holds back; what the callback gets is borrowed for its length.
 * Threads: a plain struct, one thread at a time.
 * Failure: memory only. Text that began like a call and turned out not to be one comes out as text, in order and unchanged.
 *
 * What comes out depends on the whole text alone, not on how it was cut into pushes (only the pieces' sizes do). A call counts from the moment its
 * name is known: the name is told at once, arguments byte by byte; until then it is held back, at most TOOL_HELD bytes of it. White space between
 * two calls and after the last, and the one newline that a template puts in front of a call, belong to the calls and are not text. */
#ifndef MODEL_TOOLCALL_H
#define MODEL_TOOLCALL_H
#include "base/err.h"
#include "base/str.h"

enum { TOOL_HELD = 64 << 10, TOOL_NAME = 256 };

/* How a family writes a call; found from the chat template's own literals, never from a model's name. */
typedef enum tool_form { TOOL_FORM_NONE, TOOL_FORM_HERMES, TOOL_FORM_LLAMA3, TOOL_FORM_MISTRAL, TOOL_FORM_GEMMA } tool_form;
tool_form tool_form_of(str chat_template);
const char *tool_form_name(tool_form f); /* "hermes" ... */
/* The texts by which a call of this form is found, NULL-terminated: where a vocabulary has them as control tokens, the parser must still see them. */
const char *const *tool_form_marks(tool_form f);

typedef struct tool_piece {
  enum { TOOL_PIECE_TEXT, TOOL_PIECE_CALL, TOOL_PIECE_ARGS } kind;
  int call;   /* CALL, ARGS: numbered from 0 */
  bool loose; /* CALL: not written in the family's own form, so no replay can give the same text */
  str text;   /* TEXT: plain text; CALL: the function's name; ARGS: the next bytes of its arguments */
} tool_piece;
typedef void (*tool_piece_fn)(void *ctx, const tool_piece *p);

typedef struct tool_parser tool_parser;
bool tool_parser_new(tool_form f, tool_piece_fn fn, void *ctx, tool_parser **ret, err *e);
/* The functions that were offered: an object without marks around it is a call only if it names one of them. Borrowed; none: any name will do. */
void tool_parser_names(tool_parser *p, const str *names, int n);
bool tool_parser_push(tool_parser *p, str text); /* whole code points; control tokens with their text. false: out of memory */
bool tool_parser_end(tool_parser *p);            /* what was held back comes out */
bool tool_parser_cut(tool_parser *p);            /* a limit cut the text: the head of a call that has begun with a mark does not come out */
int tool_parser_calls(const tool_parser *p);     /* calls that were begun */
void tool_parser_free(tool_parser *p);
#endif
