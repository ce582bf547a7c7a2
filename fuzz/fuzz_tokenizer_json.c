/* tokenizer.json, a NUL, tokenizer_config.json, a NUL, text. Holds: two readings agree; a tokenizer that was accepted encodes any text and turns ids
 * back (fuzz_tok.h says what holds there); every refusal is a sentence. */
#include "base/json.h"
#include "fuzz.h"
#include "fuzz_tok.h"
#include <stdlib.h>

static str take(str *rest) {
  str head = *rest;
  if (!str_cut(*rest, 0, &head, rest)) *rest = (str){"", 0};
  return head;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  static const int32_t ends[] = {0, 2};
  char *copy = fuzz_copy(p, n);
  str rest = {copy, n}, file = take(&rest), config = take(&rest);
  tok *a = NULL, *b = NULL;
  err e = {0}, f = {0};
  json_setup();
  bool ok = tok_from_hf(file, config, ends, 2, -1, &a, &e), ok2 = tok_from_hf(file, config, ends, 2, -1, &b, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (ok) {
    FUZZ_CHECK(tok_count(a) == tok_count(b) && tok_count(a) > 0, "%d and %d tokens", tok_count(a), tok_count(b));
    use_tok(a, rest);
  } else fuzz_refused(&e);
  tok_free(a);
  tok_free(b);
  free(copy);
  return 0;
}
