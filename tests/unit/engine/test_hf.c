/* Folders as transformers saves them, run by the engine: the logits are those of transformers itself (tools/make_tiny_hf.py), whatever the family,
 * the type of the weights and the number of shards. Then the same with one number of the description bent, which must fail each time. And a GGUF
 * model in parts, whose logits are the whole file's to the bit. */
#include "eng_golden.h"

static const float tolerance = 1e-3f;
#define HF TEST_SRC "/tests/golden/hf/"

static void bend_rope(arch *a) { a->rope = ROPE_PAIRS; }
static void bend_window(arch *a) { a->layer[0].window = 0; }
static void bend_position(arch *a) { a->turn[0].scale *= 1.5; }
static void bend_norm(arch *a) { a->norm_add = 0; }
static void bend_residual(arch *a) { a->residual_scale = 1; }
static void bend_qk(arch *a) { a->eps += 0.05f; }
static void bend_turn(arch *a) { a->layer[3].turn = 0; }
static void bend_factors(arch *a) { a->turn[0].factors = false; }

static void bend_yarn(arch *a) { a->turn[0].yarn = false; }

static const struct row {
  const char *folder, *logits;
  const char *what; /* is bent */
  void (*bend)(arch *);
} rows[] = {
    {"llama-bf16", "llama-bf16", "RoPE's halves", bend_rope},
    {"llama-f16", "llama-bf16", "RoPE's halves", bend_rope},
    {"llama-f32-shards", "llama-bf16", "Llama 3's factors", bend_factors},
    {"llama-biases", "llama-biases", "RoPE's halves", bend_rope},
    {"mistral", "mistral", "the window", bend_window},
    {"qwen2", "qwen2", "the scale of positions", bend_position},
    {"qwen3", "qwen3", "the norm's epsilon", bend_qk},
    {"gemma3", "gemma3", "the one of the norms", bend_norm},
    {"gemma3", "gemma3", "the window", bend_window},
    {"phi3", "phi3", "RoPE's halves", bend_rope},
    {"phi3-longrope", "phi3-longrope", "the long factors", bend_factors},
    {"qwen2-yarn", "qwen2-yarn", "YaRN", bend_yarn},
    {"granite", "granite", "the residual's scale", bend_residual},
    {"olmo2", "olmo2", "the norm's epsilon", bend_qk},
    {"smollm3", "smollm3", "the layer that does not turn", bend_turn},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static model *open_folder(const char *name) {
  char path[512];
  snprintf(path, sizeof path, HF "%s", name);
  return fix_model(path);
}

static void test_logits(void **st) {
  (void)st;
  for (int i = 0; i < N_ROWS; i++)
    for (int bent = 0; bent < 2; bent++) {
      model *m = open_folder(rows[i].folder);
      golden g = golden_load("hf", rows[i].logits);
      assert_int_equal(g.vocab, m->arch.vocab);
      if (bent) rows[i].bend(&m->arch);
      float d = golden_worst(m, &g, (eng_opts){.threads = 1, .act_f32 = true, .kv_f32 = true});
      print_message("%s%s%s: max |delta| %.2e\n", rows[i].folder, bent ? " without " : "", bent ? rows[i].what : "", (double)d);
      if (!bent && !(d <= tolerance)) fail_msg("%s: logits are %g from the reference", rows[i].folder, (double)d);
      if (bent && d <= 3 * tolerance) fail_msg("%s: %s bent, and the logits moved by %g only", rows[i].folder, rows[i].what, (double)d);
      golden_free(&g);
      model_close(m);
    }
}

static float *logits_of(model *m, const int32_t *tokens, int n) {
  engine *en = fix_engine(m, (eng_opts){.threads = 2});
  float *got = calloc((size_t)n * (size_t)m->arch.vocab, sizeof *got);
  err e = {0};
  assert_non_null(got);
  if (!engine_logits(en, tokens, n, 0, got, &e)) fail_msg("%s", e.msg);
  engine_close(en);
  return got;
}

static bool same_logits(const char *a, const char *b) {
  enum { N = 40 };
  int32_t tokens[N];
  model *x = fix_model(a), *y = fix_model(b);
  assert_int_equal(x->arch.vocab, y->arch.vocab);
  fix_tokens(x, tokens, N, 5);
  float *p = logits_of(x, tokens, N), *q = logits_of(y, tokens, N);
  bool same = memcmp(p, q, (size_t)N * (size_t)x->arch.vocab * sizeof *p) == 0;
  free(p), free(q);
  model_close(x), model_close(y);
  return same;
}

/* One model in three types and two layouts, and in one file and three: with the product's own settings, to the bit. */
static void test_forms(void **st) {
  (void)st;
  assert_true(same_logits(HF "llama-bf16", HF "llama-f16"));
  assert_true(same_logits(HF "llama-bf16", HF "llama-f32-shards"));
  assert_true(same_logits(TINY("tiny-llama-q"), HF "tiny-llama-q-00002-of-00003.gguf"));
  assert_false(same_logits(HF "qwen2", HF "qwen3"));
}

/* What a folder says beside its weights, and that the fingerprint covers each of its files. */
static void test_model(void **st) {
  (void)st;
  model *a = open_folder("llama-bf16"), *b = open_folder("llama-f16"), *c = open_folder("llama-bf16");
  assert_string_equal(a->name, "llama-bf16");
  assert_true(fabsf(a->temperature - 0.7f) < 1e-6f && fabsf(a->top_p - 0.9f) < 1e-6f && a->top_k == 40);
  assert_non_null(a->chat);
  assert_true(tok_is_end(a->tok, 258) && tok_is_end(a->tok, 256) && !tok_is_end(a->tok, 255));
  assert_memory_equal(a->fingerprint, c->fingerprint, sizeof a->fingerprint);
  assert_memory_not_equal(a->fingerprint, b->fingerprint, sizeof a->fingerprint);
  model_close(a), model_close(b), model_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits), cmocka_unit_test(test_forms), cmocka_unit_test(test_model)};
  return cmocka_run_group_tests_name("test_hf", tests, NULL, NULL);
}
