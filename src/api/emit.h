/* emit.h - pieces of JSON as every dialect writes them.
 * Not a document builder: bytes are appended where they belong, braces and commas are the caller's.
 * Ownership: appends to the caller's buffer; values are borrowed.
 * Threads: pure functions over their arguments.
 * Failure: only through the buffer's bound. */
#ifndef API_EMIT_H
#define API_EMIT_H
#include "base/buf.h"
#include <jansson.h>

void emit_str(str s, buf *out);            /* with its quotes */
void emit_json(const json_t *v, buf *out); /* compact; NULL: null */
void emit_num(double v, buf *out);         /* null where it is NAN */
#endif
