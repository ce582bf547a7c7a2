/* What a model says it is: two good descriptions, then each way in which one can be incomplete, impossible or more than is supported, with the
 * message that names key or tensor. Last, model_open on the tiny models: every part is there, and the fingerprint sees what differs. */
#include "gguf_build.h"
#include "base/rng.h"
#include "model/model.h"
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#define TINY(name) TEST_SRC "/tests/golden/tiny/" name ".gguf"

enum { LAYERS = 2, DIM = 64, HEADS = 4, KV = 2, HD = 16, FFN = 96, VOCAB = 40 };

/* A llama or qwen2 model with one thing about it changed by key or name: left out, or written otherwise by the row's own function. */
typedef struct recipe {
  const char *family;
  bool bias, own_output, freqs;
  const char *without; /* key (without the family) or tensor that is left out */
  void (*add)(gb *b);  /* written after everything else */
} recipe;

static void put_u32(gb *b, const recipe *r, const char *key, uint32_t v) {
  char k[64];
  if (r->without && strcmp(r->without, key) == 0) return;
  snprintf(k, sizeof k, "%s.%s", r->family, key);
  gb_u32(b, k, v);
}

static void put_tensor(gb *b, const recipe *r, const char *name, uint64_t ne0, uint64_t ne1, wtype t) {
  if (!r->without || strcmp(r->without, name) != 0) gb_tensor(b, name, ne0, ne1, t);
}

static void put_layer(gb *b, const recipe *r, int layer) {
  static const struct {
    const char *name;
    uint64_t ne0, ne1;
    wtype t;
    bool bias;
  } rows[] = {{"attn_norm.weight", DIM, 0, WT_F32, false}, {"attn_q.weight", DIM, HEADS * HD, WT_Q4_0, false},
      {"attn_k.weight", DIM, KV * HD, WT_Q8_0, false}, {"attn_v.weight", DIM, KV * HD, WT_F16, false},
      {"attn_output.weight", HEADS * HD, DIM, WT_Q4_0, false}, {"ffn_norm.weight", DIM, 0, WT_F32, false},
      {"ffn_gate.weight", DIM, FFN, WT_Q4_0, false}, {"ffn_up.weight", DIM, FFN, WT_Q4_0, false}, {"ffn_down.weight", FFN, DIM, WT_Q4_0, false},
      {"attn_q.bias", HEADS * HD, 0, WT_F32, true}, {"attn_k.bias", KV * HD, 0, WT_F32, true}, {"attn_v.bias", KV * HD, 0, WT_F32, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char name[64];
    if (rows[i].bias && !r->bias) continue;
    snprintf(name, sizeof name, "blk.%d.%s", layer, rows[i].name);
    put_tensor(b, r, name, rows[i].ne0, rows[i].ne1, rows[i].t);
  }
}

static void cook(gb *b, const recipe *r) {
  gb_init(b);
  if (r->family[0]) gb_str(b, "general.architecture", r->family);
  put_u32(b, r, "block_count", LAYERS);
  put_u32(b, r, "context_length", 128);
  put_u32(b, r, "embedding_length", DIM);
  put_u32(b, r, "feed_forward_length", FFN);
  put_u32(b, r, "attention.head_count", HEADS);
  put_u32(b, r, "attention.head_count_kv", KV);
  char eps[64];
  snprintf(eps, sizeof eps, "%s.attention.layer_norm_rms_epsilon", r->family);
  if (!r->without || strcmp(r->without, "eps") != 0) gb_f32(b, eps, 1e-5f);
  put_tensor(b, r, "token_embd.weight", DIM, VOCAB, WT_Q8_0);
  put_tensor(b, r, "output_norm.weight", DIM, 0, WT_F32);
  if (r->own_output) put_tensor(b, r, "output.weight", DIM, VOCAB, WT_F16);
  if (r->freqs) put_tensor(b, r, "rope_freqs.weight", HD / 2, 0, WT_F32);
  for (int i = 0; i < LAYERS; i++) put_layer(b, r, i);
  if (r->add) r->add(b);
}

static bool no_f16(uint32_t t) { return t != WT_F16; }

static bool describe(const recipe *r, bool (*type_ok)(uint32_t), arch *ret, err *e) {
  gb b;
  mfile *g = NULL;
  uint8_t *file;
  cook(&b, r);
  if (!gb_open(&b, &file, &g, e)) fail_msg("the test's own file: %s", e->msg);
  bool ok = arch_read(g, type_ok, ret, e);
  mf_close(g);
  free(file);
  gb_fini(&b);
  return ok;
}

/* ---- good ------------------------------------------------------------------------------------------------------------------- */

static void test_llama(void **st) {
  (void)st;
  arch a;
  err e = {0};
  if (!describe(&(recipe){.family = "llama"}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_string_equal(a.family, "llama");
  assert_true(a.n_layer == LAYERS && a.dim == DIM && a.n_head == HEADS && a.n_kv == KV && a.head_dim == HD && a.ffn == FFN && a.vocab == VOCAB &&
              a.ctx == 128);
  assert_true(a.rope == ROPE_PAIRS && a.n_rot == HD && a.turn[0].base == 10000 && a.turn[0].scale == 1 && a.act == ACT_SILU);
  assert_true(a.tied && !(a.has & ARCH_HAS(R_Q_BIAS)) && a.embed_scale == 1 && a.attn_scale == 0.25f && a.eps == 1e-5f);
}

static void test_qwen2(void **st) {
  (void)st;
  arch a;
  err e = {0};
  if (!describe(&(recipe){.family = "qwen2", .bias = true, .own_output = true, .freqs = true}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.rope == ROPE_NEOX && (a.has & ARCH_HAS(R_Q_BIAS)) && !a.tied);
  /* A llama may have the three biases too. */
  if (!describe(&(recipe){.family = "llama", .bias = true}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true((a.has & ARCH_HAS(R_Q_BIAS)));
}

static void linear(gb *b) { gb_str(b, "llama.rope.scaling.type", "linear"), gb_f32(b, "llama.rope.scaling.factor", 4); }
static void linear_old(gb *b) { gb_f32(b, "llama.rope.scale_linear", 2); }
static void named_none(gb *b) { gb_str(b, "llama.rope.scaling.type", "none"), gb_f32(b, "llama.rope.scaling.factor", 4); }

static void test_rope_scale(void **st) {
  (void)st;
  arch a;
  err e = {0};
  if (!describe(&(recipe){.family = "llama", .add = linear}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.turn[0].scale == 0.25);
  if (!describe(&(recipe){.family = "llama", .add = linear_old}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.turn[0].scale == 0.5);
  if (!describe(&(recipe){.family = "llama", .add = named_none}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.turn[0].scale == 1);
}

static void norm_f16(gb *b) { gb_tensor(b, "output_norm.weight", DIM, 0, WT_F16); }
static void norm_bf16(gb *b) { gb_tensor(b, "output_norm.weight", DIM, 0, WT_BF16); }
static void yarn_full(gb *b) {
  gb_str(b, "llama.rope.scaling.type", "yarn"), gb_f32(b, "llama.rope.scaling.factor", 4);
  gb_u32(b, "llama.rope.scaling.original_context_length", 32);
}
static void window_all(gb *b) { gb_u32(b, "llama.attention.sliding_window", 50); }
static void window_second(gb *b) { window_all(b), gb_u32(b, "llama.attention.sliding_window_pattern", 2); }
static void scales(gb *b) {
  gb_f32(b, "llama.embedding_scale", 12), gb_f32(b, "llama.residual_scale", 0.25f), gb_f32(b, "llama.attention.scale", 0.5f);
  gb_f32(b, "llama.logit_scale", 8);
}

/* Golden logits of the tiny models hold these together with the forward pass; here is that the keys are what is read. */
static void test_keys(void **st) {
  (void)st;
  arch a;
  err e = {0};
  if (!describe(&(recipe){.family = "llama", .add = yarn_full}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.turn[0].yarn && a.turn[0].scale == 0.25 && a.turn_ctx == 32 && fabs(a.turn[0].magnitude - (1 + 0.1 * log(4))) < 1e-12);
  assert_true(arch_speed(&a, &a.turn[0], 0) == 1 && fabs(arch_speed(&a, &a.turn[0], 7) - pow(10000, -14.0 / HD) / 4) < 1e-12);
  if (!describe(&(recipe){.family = "llama", .add = window_all}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.layer[0].window == 50 && a.layer[1].window == 50 && a.n_turns == 1 && a.layer[1].turn == 0);
  if (!describe(&(recipe){.family = "llama", .add = window_second}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.layer[0].window == 50 && a.layer[1].window == 0);
  if (!describe(&(recipe){.family = "llama", .add = scales}, NULL, &a, &e)) fail_msg("%s", e.msg);
  assert_true(a.embed_scale == 12 && a.residual_scale == 0.25f && a.attn_scale == 0.5f && a.logit_scale == 0.125f);
  if (!describe(&(recipe){.family = "llama", .without = "output_norm.weight", .add = norm_f16}, NULL, &a, &e)) fail_msg("%s", e.msg);
  if (!describe(&(recipe){.family = "llama", .without = "output_norm.weight", .add = norm_bf16}, NULL, &a, &e)) fail_msg("%s", e.msg);
}

static void leftovers(gb *b) { gb_tensor(b, "blk.0.attn.rotary_emb.inv_freq", 8, 0, WT_F32); }

static void test_leftovers(void **st) {
  (void)st;
  arch a;
  err e = {0};
  if (!describe(&(recipe){.family = "llama", .add = leftovers}, NULL, &a, &e)) fail_msg("%s", e.msg);
}

static void test_figures(void **st) {
  (void)st;
  gb b;
  mfile *g = NULL;
  uint8_t *file;
  arch a;
  err e = {0};
  uint64_t whole[2];
  for (int own = 0; own < 2; own++) {
    cook(&b, &(recipe){.family = "llama", .own_output = own});
    if (!gb_open(&b, &file, &g, &e) || !arch_read(g, NULL, &a, &e)) fail_msg("%s", e.msg);
    uint64_t sum = 0, embed = VOCAB * 2 * 34, row = 2 * 34;
    for (uint64_t i = 0; i < g->n_tensors; i++) sum += g->tensors[i].bytes;
    whole[own] = arch_read_bytes(g, &a);
    assert_int_equal(whole[own], sum + row - (own ? embed : 0));
    assert_int_equal(arch_kv_bytes(&a, 2), 2 * LAYERS * KV * HD * 2);
    uint64_t layer = 2 * DIM + 2 * DIM * HEADS * HD + 2 * DIM * KV * HD + 3 * DIM * FFN;
    assert_int_equal(arch_params(g), LAYERS * layer + DIM + VOCAB * DIM * (own ? 2 : 1));
    assert_non_null(arch_tensor(g, &a, R_Q, 1));
    assert_null(arch_tensor(g, &a, R_Q, 2));
    assert_null(arch_tensor(g, &a, R_Q, -1));
    assert_true((arch_tensor(g, &a, R_OUTPUT, 0) != NULL) == (own == 1));
    mf_close(g);
    free(file);
    gb_fini(&b);
  }
}

/* ---- refused ---------------------------------------------------------------------------------------------------------------- */

static void experts(gb *b) { gb_u32(b, "llama.expert_count", 8); }
static void dynamic(gb *b) { gb_str(b, "llama.rope.scaling.type", "dynamic"); }
static void yarn_bare(gb *b) { gb_str(b, "llama.rope.scaling.type", "yarn"); }
static void yarn_loud(gb *b) { yarn_bare(b), gb_f32(b, "llama.rope.scaling.factor", 4), gb_f32(b, "llama.rope.scaling.yarn_attn_factor", 1); }
static void yarn_log(gb *b) { yarn_bare(b), gb_f32(b, "llama.rope.scaling.factor", 4), gb_f32(b, "llama.rope.scaling.yarn_log_multiplier", 0.1f); }
static void longrope_bare(gb *b) { gb_str(b, "llama.rope.scaling.type", "longrope"); }
static void factors_long(gb *b) { gb_tensor(b, "rope_factors_long.weight", HD / 2, 0, WT_F32); }
static void factors_all(gb *b) { factors_long(b), gb_tensor(b, "rope_factors_short.weight", HD / 2, 0, WT_F32); }
static void factors_short_long(gb *b) { factors_long(b), gb_tensor(b, "rope_factors_short.weight", HD / 2 - 1, 0, WT_F32); }
static void soft_cap(gb *b) { gb_f32(b, "llama.final_logit_softcapping", 30); }
static void both_ways(gb *b) { gb_key(b, "llama.attention.causal", MF_BOOL), buf_put(&b->vals, "\0", 1); }
static void window_unsaid(gb *b) { gb_u32(b, "qwen2.attention.sliding_window", 64); }
static void window_short_list(gb *b) {
  gb_u32(b, "llama.attention.sliding_window", 64);
  gb_key(b, "llama.attention.sliding_window_pattern", MF_ARR), gb_32(&b->vals, MF_BOOL), gb_64(&b->vals, 1), buf_put(&b->vals, "\1", 1);
}
static void rot_odd(gb *b) { gb_u32(b, "llama.rope.dimension_count", 7); }
static void rot_wide(gb *b) { gb_u32(b, "llama.rope.dimension_count", HD + 2); }
static void value_wide(gb *b) { gb_u32(b, "llama.attention.value_length", 32); }
static void key_wide(gb *b) { gb_u32(b, "llama.attention.key_length", 32), gb_u32(b, "llama.attention.value_length", 32); }
static void base_nan(gb *b) { gb_f32(b, "llama.rope.freq_base", NAN); }
static void base_small(gb *b) { gb_f32(b, "llama.rope.freq_base", 0); }
static void base_text(gb *b) { gb_str(b, "llama.rope.freq_base", "10000"); }
static void heads_none(gb *b) { gb_u32(b, "llama.attention.head_count", 0); }
static void heads_many(gb *b) { gb_u32(b, "llama.attention.head_count", UINT32_MAX); }
static void heads_list(gb *b) { gb_key(b, "llama.attention.head_count_kv", MF_ARR), gb_32(&b->vals, MF_U32), gb_64(&b->vals, 1), gb_32(&b->vals, 2); }
static void kv_three(gb *b) { gb_u32(b, "llama.attention.head_count_kv", 3); }
static void layers_negative(gb *b) { gb_key(b, "llama.block_count", MF_I32), gb_32(&b->vals, (uint32_t)-2); }
static void layers_three(gb *b) { gb_u32(b, "llama.block_count", 3); }
static void layers_one(gb *b) { gb_u32(b, "llama.block_count", 1); }
static void layers_huge(gb *b) { gb_u32(b, "llama.block_count", 1u << 31); }
static void split(gb *b) { gb_u32(b, "split.count", 3); }
static void tokens_few(gb *b) { gb_strs(b, "tokenizer.ggml.tokens", VOCAB - 1, "x"); }
static void q_turned(gb *b) { gb_tensor(b, "blk.1.attn_q.weight", HEADS * HD, DIM * 2, WT_Q4_0); }
static void norm_q8(gb *b) { gb_tensor(b, "output_norm.weight", DIM, 0, WT_Q8_0); }
static void norm_matrix(gb *b) { gb_tensor(b, "output_norm.weight", DIM, 2, WT_F32); }
static void embed_vector(gb *b) { gb_tensor(b, "token_embd.weight", DIM, 0, WT_F32); }
static void embed_narrow(gb *b) { gb_tensor(b, "token_embd.weight", 32, VOCAB, WT_F32); }
static void out_bias(gb *b) { gb_tensor(b, "blk.0.attn_output.bias", DIM, 0, WT_F32); }
static void q_norm(gb *b) { gb_tensor(b, "blk.1.attn_q_norm.weight", HD, 0, WT_F32); }
static void layer_beyond(gb *b) { gb_tensor(b, "blk.2.attn_q.weight", DIM, HEADS * HD, WT_Q4_0); }
static void layer_padded(gb *b) { gb_tensor(b, "blk.01.attn_q.weight", DIM, HEADS * HD, WT_Q4_0); }
static void one_bias(gb *b) { gb_tensor(b, "blk.0.attn_q.bias", HEADS * HD, 0, WT_F32); }
static void late_bias(gb *b) { gb_tensor(b, "blk.1.attn_v.bias", KV * HD, 0, WT_F32); }

static const struct refusal {
  recipe r;
  err_code code;
  const char *param, *part;
} refusals[] = {
    {{.family = ""}, ERR_INPUT, "general.architecture", "general.architecture is missing"},
    {{.family = "mamba"}, ERR_UNSUPPORTED, "general.architecture", "architecture is \"mamba\"; supported are: llama, qwen2"},
    {{.family = "llama", .without = "block_count"}, ERR_INPUT, "llama.block_count", "llama.block_count is missing"},
    {{.family = "llama", .without = "context_length"}, ERR_INPUT, "llama.context_length", "is missing"},
    {{.family = "llama", .without = "attention.head_count"}, ERR_INPUT, "llama.attention.head_count", "is missing"},
    {{.family = "qwen2", .bias = true, .without = "eps"}, ERR_INPUT, "qwen2.attention.layer_norm_rms_epsilon", "is missing"},
    {{.family = "llama", .without = "block_count", .add = layers_negative}, ERR_INPUT, "llama.block_count", "is -2, expected 0 or more"},
    {{.family = "llama", .without = "block_count", .add = layers_huge}, ERR_INPUT, "llama.block_count", "is 2147483648, expected 1 to 1024"},
    {{.family = "llama", .without = "block_count", .add = layers_three}, ERR_INPUT, "blk.2.attn_norm.weight", "is missing"},
    {{.family = "llama", .without = "block_count", .add = layers_one}, ERR_UNSUPPORTED, "blk.1.attn_norm.weight", "has no place"},
    {{.family = "llama", .without = "attention.head_count", .add = heads_none}, ERR_INPUT, "llama.attention.head_count", "is 0, expected 1 to 1024"},
    {{.family = "llama", .without = "attention.head_count", .add = heads_many}, ERR_INPUT, "llama.attention.head_count", "is 4294967295"},
    {{.family = "llama", .without = "attention.head_count_kv", .add = heads_list}, ERR_INPUT, "llama.attention.head_count_kv",
        "of kind array, expected a whole number"},
    {{.family = "llama", .without = "attention.head_count_kv", .add = kv_three}, ERR_INPUT, "llama.attention.head_count_kv",
        "4 query heads cannot be shared out over the 3"},
    {{.family = "llama", .add = experts}, ERR_UNSUPPORTED, "llama.expert_count", "mixtures of experts"},
    {{.family = "llama", .add = dynamic}, ERR_UNSUPPORTED, "llama.rope.scaling.type", "is \"dynamic\"; supported are none, linear, yarn"},
    {{.family = "llama", .add = yarn_bare}, ERR_INPUT, "llama.rope.scaling.factor", "is missing"},
    {{.family = "llama", .add = yarn_loud}, ERR_UNSUPPORTED, "llama.rope.scaling.yarn_attn_factor", "is 1; of YaRN only the plain form"},
    {{.family = "llama", .add = yarn_log}, ERR_UNSUPPORTED, "llama.rope.scaling.yarn_log_multiplier", "of YaRN only the plain form"},
    {{.family = "llama", .add = longrope_bare}, ERR_INPUT, "llama.rope.scaling.type", "no tensor rope_factors_long.weight"},
    {{.family = "llama", .add = factors_long}, ERR_INPUT, "rope_factors_short.weight", "is missing beside rope_factors_long.weight"},
    {{.family = "llama", .add = factors_short_long}, ERR_INPUT, "rope_factors_short.weight", "is 7 x 1"},
    {{.family = "llama", .freqs = true, .add = factors_all}, ERR_UNSUPPORTED, "rope_freqs.weight", "has no place beside"},
    {{.family = "llama", .add = soft_cap}, ERR_UNSUPPORTED, "llama.final_logit_softcapping", "is 30: logits are not capped"},
    {{.family = "llama", .add = both_ways}, ERR_UNSUPPORTED, "llama.attention.causal", "looks back only"},
    {{.family = "qwen2", .bias = true, .add = window_unsaid}, ERR_UNSUPPORTED, "qwen2.attention.sliding_window_pattern",
        "does not say which layers have the window"},
    {{.family = "llama", .add = window_short_list}, ERR_INPUT, "llama.attention.sliding_window_pattern", "has 1 entries, expected one for each of 2"},
    {{.family = "llama", .add = rot_odd}, ERR_INPUT, "llama.rope.dimension_count", "is 7, expected an even number"},
    {{.family = "llama", .add = rot_wide}, ERR_INPUT, "llama.rope.dimension_count", "is 18, expected 2 to 16"},
    {{.family = "llama", .add = value_wide}, ERR_UNSUPPORTED, "llama.attention.value_length", "is 32 while keys are 16 wide"},
    {{.family = "llama", .add = key_wide}, ERR_INPUT, "blk.0.attn_q.weight", "is 64 x 64 (2 dimensions), expected 64 x 128 (2)"},
    {{.family = "llama", .add = base_nan}, ERR_INPUT, "llama.rope.freq_base", "is not a finite number"},
    {{.family = "llama", .add = base_small}, ERR_INPUT, "llama.rope.freq_base", "is 0, expected 1 to"},
    {{.family = "llama", .add = base_text}, ERR_INPUT, "llama.rope.freq_base", "of kind string, expected a number"},
    {{.family = "llama", .add = split}, ERR_UNSUPPORTED, "split.count", "one of 3 parts"},
    {{.family = "llama", .add = tokens_few}, ERR_INPUT, "tokenizer.ggml.tokens", "has 39 tokens, but tensor token_embd.weight has 40 rows"},
    {{.family = "llama", .without = "token_embd.weight"}, ERR_INPUT, "token_embd.weight", "is missing"},
    {{.family = "llama", .without = "token_embd.weight", .add = embed_vector}, ERR_INPUT, "token_embd.weight", "has 1 dimensions"},
    {{.family = "llama", .without = "token_embd.weight", .add = embed_narrow}, ERR_INPUT, "token_embd.weight", "is 32 x 40"},
    {{.family = "llama", .without = "blk.1.ffn_up.weight"}, ERR_INPUT, "blk.1.ffn_up.weight", "is missing"},
    {{.family = "llama", .without = "blk.1.attn_q.weight", .add = q_turned}, ERR_INPUT, "blk.1.attn_q.weight",
        "is 64 x 128 (2 dimensions), expected 64 x 64 (2)"},
    {{.family = "llama", .without = "output_norm.weight", .add = norm_q8}, ERR_UNSUPPORTED, "output_norm.weight",
        "of type Q8_0; vectors are supported as F32, F16 and BF16 only"},
    {{.family = "llama", .without = "output_norm.weight", .add = norm_matrix}, ERR_INPUT, "output_norm.weight",
        "(2 dimensions), expected 64 x 1 (1)"},
    {{.family = "qwen2", .bias = true, .add = out_bias}, ERR_UNSUPPORTED, "blk.0.attn_output.bias", "has no place in a qwen2 model of 2 layers"},
    {{.family = "llama", .add = out_bias}, ERR_INPUT, "blk.1.attn_output.bias", "is missing"},
    {{.family = "olmo2"}, ERR_INPUT, "blk.0.attn_q_norm.weight", "is missing"},
    {{.family = "gemma3"}, ERR_INPUT, "blk.0.attn_q_norm.weight", "is missing"},
    {{.family = "llama", .add = q_norm}, ERR_UNSUPPORTED, "blk.1.attn_q_norm.weight", "has no place"},
    {{.family = "llama", .add = layer_beyond}, ERR_UNSUPPORTED, "blk.2.attn_q.weight", "has no place"},
    {{.family = "llama", .add = layer_padded}, ERR_UNSUPPORTED, "blk.01.attn_q.weight", "has no place"},
    {{.family = "llama", .add = one_bias}, ERR_INPUT, "blk.1.attn_q.bias", "is missing"},
    {{.family = "llama", .add = late_bias}, ERR_UNSUPPORTED, "blk.1.attn_v.bias", "has no place"},
    {{.family = "qwen2"}, ERR_INPUT, "blk.0.attn_q.bias", "is missing"},
};

static void test_refused(void **st) {
  (void)st;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    const struct refusal *f = &refusals[i];
    arch a = {.dim = 4711};
    err e = {0};
    if (describe(&f->r, NULL, &a, &e)) fail_msg("row %zu (%s): it was read", i, f->part);
    if (e.code != f->code || !strstr(e.msg, f->part) || strcmp(e.param, f->param) != 0)
      fail_msg("row %zu: expected %s, \"%s\"; saw code %d, %s, \"%s\"", i, f->param, f->part, e.code, e.param, e.msg);
    assert_int_equal(a.dim, 4711); /* untouched on failure */
  }
}

static void test_type(void **st) {
  (void)st;
  arch a;
  err e = {0};
  assert_false(describe(&(recipe){.family = "llama"}, no_f16, &a, &e));
  assert_int_equal(e.code, ERR_UNSUPPORTED);
  assert_string_equal(e.param, "blk.0.attn_v.weight");
  assert_non_null(strstr(e.msg, "of type F16"));
}

/* ---- a whole model ---------------------------------------------------------------------------------------------------------- */

static model *opened(const char *path) {
  model *m = NULL;
  err e = {0};
  if (!model_open(path, NULL, &m, &e)) fail_msg("%s", e.msg);
  return m;
}

static void test_model(void **st) {
  (void)st;
  static const char *const paths[] = {
      TINY("tiny-llama-f32"), TINY("tiny-qwen2-f32"), TINY("tiny-llama-f16"), TINY("tiny-llama-q"), TINY("tiny-qwen2-k")};
  uint8_t prints[5][32];
  for (int i = 0; i < 5; i++) {
    model *m = opened(paths[i]);
    assert_int_equal(tok_count(m->tok), m->arch.vocab);
    assert_true(m->name[0] == 't' && !strstr(m->name, ".gguf") && strcmp(m->path, paths[i]) == 0);
    if (!m->chat) fail_msg("%s: %s", m->name, m->chat_err.msg);
    assert_true(m->chat_source.n > 50 && isnan(m->temperature) && isnan(m->top_p) && m->top_k == -1);
    memcpy(prints[i], m->fingerprint, 32);
    model_close(m);
    m = opened(paths[i]);
    assert_memory_equal(prints[i], m->fingerprint, 32);
    model_close(m);
    for (int k = 0; k < i; k++) assert_memory_not_equal(prints[i], prints[k], 32);
  }
}

/* A file that is a model but for one byte of a weight, or for its name. */
static void write_copy(const char *to, const char *from, long at, unsigned char flip) {
  static uint8_t bytes[1 << 20];
  FILE *f = fopen(from, "rb");
  assert_non_null(f);
  size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  if (at < 0) at += (long)n;
  bytes[at] ^= flip;
  f = fopen(to, "wb");
  assert_true(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void test_fingerprint(void **st) {
  (void)st;
  char dir[] = "/tmp/weir-test-arch-XXXXXX", path[64];
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/.gguf", dir);
  model *a = opened(TINY("tiny-llama-q"));
  write_copy(path, TINY("tiny-llama-q"), -40, 0); /* the same bytes under a name that is no name */
  model *b = opened(path);
  assert_memory_equal(a->fingerprint, b->fingerprint, 32);
  assert_string_equal(b->name, "tiny-llama-q"); /* from general.name, then */
  model_close(b);
  write_copy(path, TINY("tiny-llama-q"), -40, 1);
  b = opened(path);
  assert_memory_not_equal(a->fingerprint, b->fingerprint, 32);
  model_close(b);
  model_close(a);
  unlink(path);
  rmdir(dir);
}

static void test_not_a_model(void **st) {
  (void)st;
  model *m = NULL;
  err e = {0};
  assert_false(model_open(TEST_SRC "/meson.build", NULL, &m, &e));
  assert_non_null(strstr(e.msg, "meson.build: the file starts with \"proj\", not \"GGUF\""));
  if (!model_open(TINY("tiny-llama-q"), no_f16, &m, &e)) fail_msg("%s", e.msg); /* holds no F16 */
  model_close(m);
  m = NULL;
  assert_false(model_open(TINY("tiny-llama-f16"), no_f16, &m, &e));
  assert_int_equal(e.code, ERR_UNSUPPORTED);
  assert_non_null(strstr(e.msg, "tiny-llama-f16.gguf: tensor "));
  assert_null(m);
}

/* Damage anywhere in metadata and tensor table, all the way through tokenizer and chat template: refused with a message, or a model. */
static void test_damaged(void **st) {
  (void)st;
  static uint8_t whole[1 << 20], bad[1 << 20];
  FILE *f = fopen(TINY("tiny-llama-q"), "rb");
  assert_non_null(f);
  size_t n = fread(whole, 1, sizeof whole, f);
  fclose(f);
  int fd = memfd_create("damaged", 0), passed = 0, refused = 0;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  rng r = rng_new(7);
  for (int i = 0; i < 1500; i++) {
    memcpy(bad, whole, n);
    for (int k = 1 + (int)rng_below(&r, 3); k > 0; k--)
      bad[rng_below(&r, 7000)] ^= (uint8_t)(1u << rng_below(&r, 8)); /* tensor data begins at 7,040 */
    assert_true(pwrite(fd, bad, n, 0) == (ssize_t)n);
    model *m = NULL;
    err e = {0};
    if (model_open(path, NULL, &m, &e)) {
      passed++;
      model_close(m);
    } else {
      refused++;
      assert_true(e.code != ERR_NONE && e.code != ERR_INTERNAL && strstr(e.msg, path));
    }
  }
  close(fd);
  print_message("%d damaged files: %d opened, %d refused\n", passed + refused, passed, refused);
  assert_true(passed > 20 && refused > 200);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama), cmocka_unit_test(test_qwen2), cmocka_unit_test(test_rope_scale),
      cmocka_unit_test(test_keys), cmocka_unit_test(test_leftovers), cmocka_unit_test(test_figures), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_type), cmocka_unit_test(test_model), cmocka_unit_test(test_fingerprint), cmocka_unit_test(test_not_a_model),
      cmocka_unit_test(test_damaged)};
  return cmocka_run_group_tests_name("test_arch", tests, NULL, NULL);
}
