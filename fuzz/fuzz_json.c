/* JSON text. Holds: two parses agree; what was accepted is written out and read again to an equal document; the bound on what it may take
 * (json_cost) is at least what the values need. */
#include "base/json.h"
#include "fuzz.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  char *copy = fuzz_copy(p, n);
  str text = {copy, n};
  json_t *a = NULL, *b = NULL, *again = NULL;
  err e = {0}, f = {0};
  json_setup();
  json_cost(text);
  bool ok = json_parse(text, &a, &e), ok2 = json_parse(text, &b, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (ok) {
    FUZZ_CHECK(json_equal(a, b), "two parses of one text differ");
    FUZZ_CHECK(*json_type_name(a), "a type without a name");
    size_t m = json_dumpb(a, NULL, 0, JSON_ENCODE_ANY);
    char *out = malloc(m + 1);
    FUZZ_CHECK(out && json_dumpb(a, out, m, JSON_ENCODE_ANY) == m, "the document cannot be written");
    FUZZ_CHECK(json_parse((str){out, m}, &again, &e), "what was written cannot be read: %s", e.msg);
    FUZZ_CHECK(json_equal(a, again), "what was written is read as another document");
    free(out);
  } else fuzz_refused(&e);
  json_decref(a);
  json_decref(b);
  json_decref(again);
  free(copy);
  return 0;
}
