/* toolvalue.h - arguments that a model writes in another notation than JSON, turned into JSON as they come: Gemma's key:<escape>text<escape> and
 * Python's key='text'.
 * Not a checker of either: whatever can be told apart is passed on; what cannot ends the translation.
 * Ownership: a plain value; writes into the caller's buffer.
 * Threads: one at a time.
 * Failure: TOOLVALUE_BAD on what cannot be read (a value without a key, nesting over TOOLVALUE_DEPTH); what was written until then stays. */
#ifndef MODEL_TOOLVALUE_H
#define MODEL_TOOLVALUE_H
#include "base/buf.h"

enum { TOOLVALUE_DEPTH = 64, TOOLVALUE_WORD = 256 };
typedef enum toolvalue_ret { TOOLVALUE_MORE, TOOLVALUE_DONE, TOOLVALUE_BAD } toolvalue_ret;

typedef struct toolvalue {
  char close[TOOLVALUE_DEPTH]; /* [depth] the bracket that ends each level */
  int depth;
  uint8_t at;      /* what is expected next: toolvalue.c's */
  bool key;        /* the string or word under way is a key */
  bool escaped;    /* after a backslash */
  char quote;      /* ' or "; 0: a marked string */
  const char *end; /* marked string: the text that ends it */
  int matched;     /* of `end`, or of the texts that begin a marked string */
  char word[TOOLVALUE_WORD];
  int n_word;
} toolvalue;

void toolvalue_init(toolvalue *v);
/* The next byte; the first must be the bracket, { or (, that holds the arguments. DONE: this byte closed it. */
toolvalue_ret toolvalue_push(toolvalue *v, char c, buf *out);
#endif
