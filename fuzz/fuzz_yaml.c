/* YAML text as a JSON document. Holds: two parses agree; the document can be written as JSON; a refusal names its place. */
#include "base/yaml.h"
#include "fuzz.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  char *copy = fuzz_copy(p, n);
  json_t *a = NULL, *b = NULL;
  err e = {0}, f = {0};
  bool ok = yaml_parse((str){copy, n}, "input", &a, &e), ok2 = yaml_parse((str){copy, n}, "input", &b, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (ok) {
    FUZZ_CHECK(json_equal(a, b), "two parses of one text differ");
    char *out = json_dumps(a, JSON_ENCODE_ANY);
    FUZZ_CHECK(out, "the document cannot be written");
    free(out);
  } else {
    fuzz_refused(&e);
    FUZZ_CHECK(strncmp(e.msg, "input:", 6) == 0, "no place: %s", e.msg);
  }
  json_decref(a);
  json_decref(b);
  free(copy);
  return 0;
}
