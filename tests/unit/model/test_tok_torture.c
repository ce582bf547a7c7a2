/* Every allocation in turn fails while a tokenizer of each kind is built and a text is encoded: a refusal that says so or the right result, nothing
 * left. */
#include "../../lib/torture.h"
#include "test_tok_kinds.h"
#include "base/json.h"

static const char text[] = "A caf\xc3\xa9's 12 words,\n\n  \xe4\xb8\xad\xe6\x96\x87 <s>[CLS] e\xcc\x81\xcc\xa3 \xef\xac\x81 "
                           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \xff \xf0\x9f\x98\x80";

typedef struct job {
  str json;
  const tok *t;  /* encode with this one */
  uint32_t want; /* hash of the ids */
} job;

static bool open_one(void *ctx, err *e) {
  const job *j = ctx;
  tok *t = NULL;
  if (!tok_from_hf(j->json, STR("{\"eos_token\":\"</s>\"}"), NULL, 0, -1, &t, e)) return false;
  assert_true(tok_count(t) > 1000);
  tok_free(t);
  return true;
}

static bool encode_one(void *ctx, err *e) {
  const job *j = ctx;
  tok_ids ids = {0};
  bool ok = tok_encode(j->t, str_c(text), NULL, true, true, &ids, e);
  if (ok) assert_int_equal(ids_hash(&ids), j->want);
  free(ids.v);
  return ok;
}

static void test_hf(void **state) {
  (void)state;
  static const char *const names[] = {"hf-bert", "hf-gemma", "hf-qwen", "hf-xlmr", "hf-albert", "hf-pieces"};
  if (!TORTURE_CAN) skip();
  json_setup();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[4096];
    golden_path(path, sizeof path, names[i], "json");
    bytes b = load_gz(path);
    job j = {.json = {(char *)b.p, b.n}};
    tok *t = NULL;
    tok_ids ids = {0};
    torture_sum s = torture_all(names[i], open_one, &j, 1);
    assert_true(s.injected > 10 && s.refused > 10);
    assert_true(tok_from_hf(j.json, STR(""), NULL, 0, -1, &t, NULL) && tok_encode(t, str_c(text), NULL, true, true, &ids, NULL));
    j.want = ids_hash(&ids);
    j.t = t;
    s = torture_all("encode", encode_one, &j, 1);
    assert_true(s.injected > 0 && s.refused > 0);
    free(ids.v);
    tok_free(t);
    free(b.p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_hf)};
  return cmocka_run_group_tests_name("test_tok_torture", tests, NULL, NULL);
}
