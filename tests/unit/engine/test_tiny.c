/* The forward pass against an independent framework: tiny models of every family, logits of transformers in F32 (tools/make_tiny_models.py),
 * positions on both sides of the attention split and of windows' ends. Unrounded activations and KV must agree within 1e-4 everywhere; the product's
 * own settings within 1e-3 to 3e-3 where the weights are not quantized, for there only K and V are rounded. Then the same comparison with one thing
 * of the description bent, which must fail each time. */
#include "eng_golden.h"

static const float tolerance = 1e-4f;

static const struct tiny {
  const char *name;
  float own;          /* bound with the product's settings */
  int ctx;            /* 0: the model's */
  const char *logits; /* NULL: of the same name */
} tinies[] = {
    {"tiny-llama-f32", 1e-3f, 0, NULL},
    {"tiny-qwen2-f32", 1e-3f, 0, NULL},
    {"tiny-llama-f16", 1e-3f, 0, NULL},
    /* int8 activations against unrounded ones; llama.cpp is 0.037 and 0.138 away on the same tokens */
    {"tiny-llama-q", 0.06f, 0, NULL},
    {"tiny-qwen2-k", 0.15f, 0, NULL},
    {"tiny-qwen3-f16", 1e-3f, 0, NULL},
    {"tiny-gemma3-f16", 3e-3f, 0, NULL},
    {"tiny-mistral-f16", 1e-3f, 0, NULL},
    {"tiny-llama-b", 1e-3f, 0, NULL},
    {"tiny-phi3-f16", 2e-3f, 0, NULL},
    {"tiny-phi3-f16", 2e-3f, 128, "tiny-phi3-f16-short"}, /* not longer than the model was first made for */
    {"tiny-granite-f16", 1e-3f, 0, NULL},
    {"tiny-olmo2-f16", 1e-3f, 0, NULL},
    {"tiny-olmo3-f16", 3e-3f, 0, NULL},
    {"tiny-smollm3-f16", 1e-3f, 0, NULL},
};
enum { N_TINY = sizeof tinies / sizeof *tinies };

static model *open_tiny(const char *name) {
  char path[512];
  snprintf(path, sizeof path, TEST_SRC "/tests/golden/tiny/%s.gguf", name);
  return fix_model(path);
}

static void check_tiny(const struct tiny *t, bool exact) {
  model *m = open_tiny(t->name);
  const char *logits = t->logits ? t->logits : t->name;
  golden g = golden_load("tiny", logits);
  assert_int_equal(g.vocab, m->arch.vocab);
  for (const kern_ops *const *k = kern_tables(); *k; k++) {
    if (!(*k)->usable()) continue;
    float d = golden_worst(m, &g, (eng_opts){.ops = *k, .threads = 2, .act_f32 = exact, .kv_f32 = exact, .ctx = t->ctx});
    float bound = exact ? tolerance : t->own;
    print_message("%s, %s, %s: max |delta| %.2e\n", logits, (*k)->name, exact ? "unrounded" : "own settings", (double)d);
    if (!(d <= bound)) fail_msg("%s on %s: logits are %g from the reference, at most %g allowed", t->name, (*k)->name, (double)d, (double)bound);
  }
  golden_free(&g);
  model_close(m);
}

static void test_unrounded(void **st) {
  (void)st;
  for (int i = 0; i < N_TINY; i++) check_tiny(&tinies[i], true);
}

static void test_own_settings(void **st) {
  (void)st;
  for (int i = 0; i < N_TINY; i++) check_tiny(&tinies[i], false);
}

/* ---- negative controls ------------------------------------------------------------------------------------------------------ */

static void bend_rope(arch *a) { a->rope = a->rope == ROPE_PAIRS ? ROPE_NEOX : ROPE_PAIRS; }
static void bend_base(arch *a) { a->turn[0].base *= 1.1; }
static void bend_position(arch *a) { a->turn[0].scale *= 1.01; }
static void bend_scale(arch *a) { a->attn_scale *= 1.02f; }
static void bend_eps(arch *a) { a->eps += 0.01f; }
static void bend_act(arch *a) { a->act = ACT_GELU; }
static void bend_embed(arch *a) { a->embed_scale *= 1.01f; }

static void no_window(arch *a) {
  for (int i = 0; i < a->n_layer; i++) a->layer[i].window = 0;
}
static void wider_window(arch *a) {
  for (int i = 0; i < a->n_layer; i++) a->layer[i].window += a->layer[i].window > 0;
}
static void one_turn(arch *a) {
  for (int i = 0; i < a->n_layer; i++) a->layer[i].turn = 0;
}
static void local_stretched(arch *a) { a->turn[1].scale = a->turn[0].scale; }
static void no_yarn(arch *a) { a->turn[0].yarn = false; }
static void quiet(arch *a) { a->turn[0].magnitude = 1; }
static void no_factors(arch *a) { a->turn[0].factors = false; }
static void short_factors(arch *a) { a->turn_ctx = a->ctx; }
static void no_qk_norm(arch *a) { a->has &= ~(ARCH_HAS(R_Q_NORM) | ARCH_HAS(R_K_NORM)); }
static void no_post_attn(arch *a) { a->has &= ~ARCH_HAS(R_POST_ATTN_NORM); }
static void no_post_ffn(arch *a) { a->has &= ~ARCH_HAS(R_POST_FFN_NORM); }
static void no_out_bias(arch *a) { a->has &= ~ARCH_HAS(R_ATTN_OUT_BIAS); }
static void no_gate_bias(arch *a) { a->has &= ~ARCH_HAS(R_GATE_BIAS); }
static void no_up_bias(arch *a) { a->has &= ~ARCH_HAS(R_UP_BIAS); }
static void no_down_bias(arch *a) { a->has &= ~ARCH_HAS(R_DOWN_BIAS); }
static void no_embed(arch *a) { a->embed_scale = 1; }
static void bend_residual(arch *a) { a->residual_scale *= 1.05f; }
static void bend_logits(arch *a) { a->logit_scale *= 1.01f; }
static void bend_add(arch *a) { a->norm_add = 0.05f; }
static void silu(arch *a) { a->act = ACT_SILU; }

typedef struct bend {
  const char *model, *what;
  void (*bend)(arch *);
} bend;

static const bend bends[] = {
    {"tiny-gemma3-f16", "the windows", no_window},
    {"tiny-gemma3-f16", "the windows' width", wider_window},
    {"tiny-gemma3-f16", "the local RoPE", one_turn},
    {"tiny-gemma3-f16", "the local RoPE's stretch", local_stretched},
    {"tiny-gemma3-f16", "the QK-norm", no_qk_norm},
    {"tiny-gemma3-f16", "the norm behind attention", no_post_attn},
    {"tiny-gemma3-f16", "the norm behind the feed-forward", no_post_ffn},
    {"tiny-gemma3-f16", "the embedding's scale", bend_embed},
    {"tiny-gemma3-f16", "what is added to norms", bend_add},
    {"tiny-gemma3-f16", "the activation", silu},
    {"tiny-qwen3-f16", "the QK-norm", no_qk_norm},
    {"tiny-mistral-f16", "the window", no_window},
    {"tiny-mistral-f16", "the window's width", wider_window},
    {"tiny-llama-b", "attention's output bias", no_out_bias},
    {"tiny-llama-b", "the gate's bias", no_gate_bias},
    {"tiny-llama-b", "the bias of up", no_up_bias},
    {"tiny-llama-b", "the bias of down", no_down_bias},
    {"tiny-phi3-f16", "the window", no_window},
    {"tiny-phi3-f16", "RoPE's factors", no_factors},
    {"tiny-phi3-f16", "the choice of factors", short_factors},
    {"tiny-phi3-f16", "RoPE's magnitude", quiet},
    {"tiny-granite-f16", "the embedding's scale", no_embed},
    {"tiny-granite-f16", "the residual's scale", bend_residual},
    {"tiny-granite-f16", "attention's scale", bend_scale},
    {"tiny-granite-f16", "the logits' scale", bend_logits},
    {"tiny-olmo2-f16", "the QK-norm", no_qk_norm},
    {"tiny-olmo2-f16", "the norm behind attention", no_post_attn},
    {"tiny-olmo3-f16", "YaRN", no_yarn},
    {"tiny-olmo3-f16", "YaRN's magnitude", quiet},
    {"tiny-olmo3-f16", "the windows", no_window},
    {"tiny-olmo3-f16", "the unscaled RoPE of windows", one_turn},
    {"tiny-smollm3-f16", "the unturned layer", one_turn},
};

/* What every model has, bent in three of them. */
static const bend common[] = {{NULL, "RoPE's pairs", bend_rope}, {NULL, "RoPE's base", bend_base}, {NULL, "positions", bend_position},
    {NULL, "attention's scale", bend_scale}, {NULL, "the norm's epsilon", bend_eps}, {NULL, "the activation", bend_act},
    {NULL, "the embedding's scale", bend_embed}};

static void check_bent(const char *name, const bend *b) {
  model *m = open_tiny(name);
  golden g = golden_load("tiny", name);
  b->bend(&m->arch);
  float d = golden_worst(m, &g, (eng_opts){.threads = 2, .act_f32 = true, .kv_f32 = true});
  if (!(d > 10 * tolerance)) fail_msg("%s: %s bent, and the logits moved by %g only: the comparison would not see it", name, b->what, (double)d);
  golden_free(&g);
  model_close(m);
}

static void test_bent(void **st) {
  (void)st;
  for (int i = 0; i < 3; i++)
    for (size_t k = 0; k < sizeof common / sizeof *common; k++) check_bent(tinies[i].name, &common[k]);
  for (size_t k = 0; k < sizeof bends / sizeof *bends; k++) check_bent(bends[k].model, &bends[k]);
}

/* One token of 300 changed: every later position must notice. */
static void test_other_token(void **st) {
  (void)st;
  model *m = open_tiny(tinies[0].name);
  golden g = golden_load("tiny", tinies[0].name);
  g.tokens[0] = (g.tokens[0] + 1) % (int32_t)g.vocab;
  assert_true(golden_worst(m, &g, (eng_opts){.threads = 2, .act_f32 = true, .kv_f32 = true}) > 0.1f);
  golden_free(&g);
  model_close(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_unrounded), cmocka_unit_test(test_own_settings), cmocka_unit_test(test_bent), cmocka_unit_test(test_other_token)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
