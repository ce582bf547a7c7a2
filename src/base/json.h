/* json.h - jansson documents read with errors that name the field: typed getters over json_t, strict parsing of untrusted text.
 * Not a parser of our own and not the pass-through path (bytes that are only forwarded are never parsed into a document).
 * Ownership: json_parse gives a new reference; getters borrow.
 * Threads: a document has one owner; jansson's global state is set up once by json_setup.
 * Failure: false with ERR_INPUT, the field's path in err.param and what was expected in the message. */
#ifndef BASE_JSON_H
#define BASE_JSON_H
#include "base/err.h"
#include "base/str.h"
#include <jansson.h>

enum { JSON_COST_MAX = 256 << 20 };

void json_setup(void); /* hash seed from the kernel, an allocator that knows when memory ran out; call once at start, before any document */
/* One JSON value and nothing behind it. Refused: nesting over 128 levels, values that would take more than JSON_COST_MAX bytes (ERR_TOO_LARGE),
 * invalid UTF-8, duplicate keys are allowed (last wins), lone surrogates, NaN and infinities, numbers out of range. Embedded NUL (\u0000) in strings
 * is allowed. */
bool json_parse(str text, json_t **ret, err *e);
bool json_parse_once(str text, json_t **ret, err *e); /* the same, but a key that is there twice is refused */
/* The same, but all numbers are reals, so that whole ones may be of any size: other programs write 10^30 for "no bound". */
bool json_parse_wide(str text, json_t **ret, err *e);
uint64_t json_cost(str text); /* bytes that the document of this text takes, at most, roughly; any text */
bool json_load_path(const char *path, size_t max_bytes, json_t **ret, err *e);

/* Getters: absent or null leaves *ret as it is and returns true; another type fails. `path` prefixes err.param ("messages[3]"); may be "". */
bool json_get_str(json_t *obj, const char *path, const char *key, str *ret, err *e);
bool json_get_i64(json_t *obj, const char *path, const char *key, int64_t lo, int64_t hi, int64_t *ret, err *e); /* 5.0 is accepted as 5 */
bool json_get_f64(json_t *obj, const char *path, const char *key, double lo, double hi, double *ret, err *e);    /* integers too */
bool json_get_bool(json_t *obj, const char *path, const char *key, bool *ret, err *e);
bool json_get_array(json_t *obj, const char *path, const char *key, json_t **ret, err *e);
bool json_get_object(json_t *obj, const char *path, const char *key, json_t **ret, err *e);
const char *json_type_name(const json_t *v); /* "a string", "an array", ... for messages */
#endif
