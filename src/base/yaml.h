/* yaml.h - a YAML file as a jansson document: mappings, sequences, scalars of the core schema.
 * Not a YAML editor: comments and anchors do not survive; aliases, tags and several documents are refused.
 * Ownership: the caller owns the reference.
 * Threads: any.
 * Failure: ERR_INPUT with file, line and column; nesting is bounded at 64, size at max_bytes. */
#ifndef BASE_YAML_H
#define BASE_YAML_H
#include "base/json.h"

bool yaml_parse(str text, const char *name, json_t **ret, err *e);
bool yaml_load_path(const char *path, size_t max_bytes, json_t **ret, err *e);
#endif
