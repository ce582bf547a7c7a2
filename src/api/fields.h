/* fields.h - the names a dialect knows, as a table: read, part of the API without effect here, or refused.
 * Not their values: whoever reads a field checks it.
 * Ownership: tables are constant; notes go into the request.
 * Threads: pure functions over their arguments.
 * Failure: ERR_UNSUPPORTED naming the field. Names that are in no row are accepted and named in r->ignored. */
#ifndef API_FIELDS_H
#define API_FIELDS_H
#include "api/request.h"

typedef enum field_use { FIELD_READ, FIELD_SILENT, FIELD_REFUSED } field_use;

typedef struct field_row {
  const char *name;
  field_use use;
  const char *harmless; /* REFUSED: words and numbers that change nothing, comma separated; null, false, 0 and empty values never do */
  const char *hint;     /* REFUSED: what to do instead; may be NULL */
} field_row;

bool fields_check(api_request *r, const field_row *rows, err *e); /* rows end with a NULL name */

/* "'PATH.KEY' is missing..." where a string must be there and not be empty. */
bool fields_need(json_t *obj, const char *path, const char *key, str *ret, err *e);
/* Tells the template not to think, in the way of those that can be told; a setting of the client's own stands. After template_kwargs was read. */
bool fields_thinking_off(api_request *r, err *e);
#endif
