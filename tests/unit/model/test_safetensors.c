/* A folder of safetensors is a stranger's too: what each lie in a header, a config or an index is answered with, that every family's names and
 * numbers arrive under GGUF's keys, that configs of transformers 4 and 5 mean the same, and thousands of damaged headers. The folders are of
 * tools/make_tiny_hf.py; that their logits are right is test_hf's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/buf.h"
#include "base/rng.h"
#include "model/arch.h"
#include "model/hf_config.h"
#include "model/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HF TEST_SRC "/tests/golden/hf/"

/* ---- pieces ----------------------------------------------------------------------------------------------------------------- */

static char *load(const char *path, size_t *ret_n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  char *p = malloc(1 << 20);
  assert_non_null(p);
  *ret_n = fread(p, 1, (1 << 20) - 1, f);
  p[*ret_n] = 0;
  fclose(f);
  return p;
}

/* A shard of this header, filled up with spaces as the format's writers do, and n bytes of data, in a block of exactly its size. */
static char *shard(const char *header, size_t n, size_t *ret_n) {
  uint64_t k = (strlen(header) + 7) / 8 * 8;
  *ret_n = 8 + k + n;
  char *p = malloc(*ret_n);
  assert_non_null(p);
  memcpy(p, &k, 8);
  memset(p + 8, ' ', k);
  memcpy(p + 8, header, strlen(header));
  memset(p + 8 + k, 1, n);
  return p;
}

static const char small[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"intermediate_size\": 8, \"num_attention_heads\": 1, "
    "\"vocab_size\": 2, \"tie_word_embeddings\": true}";
#define EMBED "\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [2, 8], \"data_offsets\": [0, 64]}"

static bool open_pair(const char *config, const char *header, size_t data, mfile **ret, char **file, err *e) {
  size_t n;
  *file = shard(header, data, &n);
  return safetensors_open_mem(str_c(config), (str){*file, n}, ret, e);
}

/* ---- lies in a shard -------------------------------------------------------------------------------------------------------- */

static const struct lie {
  const char *what, *header;
  size_t data;
  err_code code;
  const char *part;
} lies[] = {
    {"not JSON", "{oops", 0, ERR_INPUT, "JSON cannot be parsed"},
    {"a list", "[]", 0, ERR_INPUT, "its header is an array"},
    {"a tensor that is a number", "{\"t\": 3}", 0, ERR_INPUT, "tensor t is not described"},
    {"a tensor twice", "{" EMBED ", " EMBED "}", 64, ERR_INPUT, "duplicate"},
    {"two names for one", "{" EMBED ", \"lm_head.weight\": {\"dtype\": \"F32\", \"shape\": [2, 8], \"data_offsets\": [0, 64]}}", 128, ERR_INPUT,
        "share bytes"},
    {"no offsets", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2]}}", 8, ERR_INPUT, "tensor t has no data_offsets"},
    {"offsets of text", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [\"0\", 8]}}", 8, ERR_INPUT, "tensor t has no data_offsets"},
    {"three offsets", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8, 16]}}", 8, ERR_INPUT, "tensor t has no data_offsets"},
    {"backwards", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [8, 0]}}", 8, ERR_INPUT, "tensor t has no data_offsets"},
    {"before the data", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [-8, 0]}}", 8, ERR_INPUT, "tensor t has no data_offsets"},
    {"behind the file", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}", 8, ERR_INPUT, "tensor t wants bytes 4 to 12"},
    {"far behind", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 9223372036854775807]}}", 8, ERR_INPUT, "tensor t wants bytes"},
    {"offset beyond 64 bits", "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 18446744073709551616]}}", 8, ERR_INPUT, "JSON"},
    {"fewer bytes than the shape", "{\"t\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 8]}}", 8, ERR_INPUT,
        "tensor t takes 16 bytes by shape and dtype, but its data_offsets hold 8"},
    {"more bytes than the dtype", "{\"t\": {\"dtype\": \"BF16\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 8, ERR_INPUT, "tensor t takes 4 bytes"},
    {"no dtype", "{\"t\": {\"shape\": [2], \"data_offsets\": [0, 8]}}", 8, ERR_INPUT, "tensor t has no dtype"},
    {"truths", "{\"t\": {\"dtype\": \"BOOL\", \"shape\": [8], \"data_offsets\": [0, 8]}}", 8, ERR_UNSUPPORTED,
        "tensor t is of dtype BOOL; F32, F16 and"},
    {"integers", "{\"t\": {\"dtype\": \"I64\", \"shape\": [], \"data_offsets\": [0, 8]}}", 8, ERR_NONE, ""},
    {"no shape", "{\"t\": {\"dtype\": \"F32\", \"data_offsets\": [0, 4]}}", 4, ERR_INPUT, "tensor t has 0 dimensions"},
    {"eight-bit floats", "{\"t\": {\"dtype\": \"F8_E4M3\", \"shape\": [8], \"data_offsets\": [0, 8]}}", 8, ERR_UNSUPPORTED, "dtype F8_E4M3"},
    {"five dimensions", "{\"t\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1], \"data_offsets\": [0, 4]}}", 4, ERR_INPUT, "tensor t has 5 dimensions"},
    {"a dimension of 0", "{\"t\": {\"dtype\": \"F32\", \"shape\": [0, 4], \"data_offsets\": [0, 0]}}", 0, ERR_INPUT, "tensor t has a shape with"},
    {"a dimension of 1.5", "{\"t\": {\"dtype\": \"F32\", \"shape\": [1.5], \"data_offsets\": [0, 4]}}", 4, ERR_INPUT, "tensor t has a shape with"},
    {"a product that wraps", "{\"t\": {\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296], \"data_offsets\": [0, 4]}}", 4, ERR_INPUT,
        "more than can be counted"},
    {"bytes that wrap", "{\"t\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904], \"data_offsets\": [0, 4]}}", 4, ERR_INPUT,
        "larger than can be"},
    {"numbers off their place",
        "{\"a\": {\"dtype\": \"BF16\", \"shape\": [1], \"data_offsets\": [0, 2]}, \"t\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [2, "
        "6]}}",
        6, ERR_INPUT, "not at a multiple of its 4-byte numbers"},
    {"a gap", "{\"t\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 8]}}", 8, ERR_INPUT, "bytes 0 to 4 of its data are no tensor's"},
    {"bytes left over", "{" EMBED "}", 68, ERR_INPUT, "bytes 64 to 68 of its data are no tensor's"},
    {"shared bytes",
        "{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, \"u\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, "
        "12]}, "
        "\"v\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [12, 16]}}",
        20, ERR_INPUT, "share bytes"},
    {"a name with a bell", "{\"t\\u0007\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4, ERR_INPUT, "printable ASCII"},
    {"no name", "{\"\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4, ERR_INPUT, "printable ASCII"},
    {"nothing", "{}", 0, ERR_NONE, ""},
    {"a layer's bias that the config denies",
        "{\"model.layers.0.self_attn.q_proj.bias\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}", 32, ERR_INPUT,
        "tensor model.layers.0.self_attn.q_proj.bias is there, but config.json says 'attention_bias' is false"},
    {"a vocabulary of another size", "{\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [3, 8], \"data_offsets\": [0, 96]}}", 96,
        ERR_INPUT, "'vocab_size' is 2, but the embedding has 3 rows"},
    {"a head that is not the embedding", "{" EMBED ", \"lm_head.weight\": {\"dtype\": \"F32\", \"shape\": [1, 8], \"data_offsets\": [64, 96]}}", 96,
        ERR_INPUT, "'tie_word_embeddings' is true, but there is a tensor lm_head.weight that differs"},
    {"a head that is", "{" EMBED ", \"lm_head.weight\": {\"dtype\": \"F32\", \"shape\": [2, 8], \"data_offsets\": [64, 128]}}", 128, ERR_NONE, ""},
    {"a tensor of no dtype that is not read",
        "{" EMBED ", \"model.layers.0.self_attn.rotary_emb.inv_freq\": {\"dtype\": \"I64\", \"shape\": [1], "
        "\"data_offsets\": [64, 72]}}",
        72, ERR_NONE, ""},
};

static void test_lies(void **st) {
  (void)st;
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    const struct lie *l = &lies[i];
    err e = {0};
    mfile *g = NULL;
    char *file;
    bool ok = open_pair(small, l->header, l->data, &g, &file, &e);
    if (ok != (l->code == ERR_NONE)) fail_msg("%s: %s", l->what, ok ? "the file was read" : e.msg);
    if (!ok && (e.code != l->code || !strstr(e.msg, l->part))) fail_msg("%s: expected \"%s\", saw code %d, \"%s\"", l->what, l->part, e.code, e.msg);
    if (!ok) assert_null(g);
    mf_close(g);
    free(file);
  }
}

static void refuse_bytes(const char *p, size_t n, const char *part) {
  err e = {0};
  mfile *g = NULL;
  char *exact = malloc(n ? n : 1);
  assert_non_null(exact);
  memcpy(exact, p, n);
  assert_false(safetensors_open_mem(str_c(small), (str){exact, n}, &g, &e));
  if (e.code != ERR_INPUT || !strstr(e.msg, part)) fail_msg("expected \"%s\", saw \"%s\"", part, e.msg);
  free(exact);
}

static void test_header_size(void **st) {
  (void)st;
  refuse_bytes("", 0, "0 bytes are no safetensors file");
  refuse_bytes("\2\0\0\0\0\0\0", 7, "7 bytes are no safetensors file");
  refuse_bytes("\0\0\0\0\0\0\0\0", 8, "says that its header has 0 bytes");
  refuse_bytes("\3\0\0\0\0\0\0\0{}", 10, "says that its header has 3 bytes");
  refuse_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "says that its header has 18446744073709551615 bytes");
  refuse_bytes("GGUF\3\0\0\0{}", 10, "says that its header has");
}

/* ---- lies in a config ------------------------------------------------------------------------------------------------------- */

static const struct bad {
  const char *field, *value; /* added to `small`; of two the last wins */
  err_code code;
  const char *part;
} bads[] = {
    {"model_type", "7", ERR_INPUT, "config.json: 'model_type' must be a string"},
    {"model_type", "null", ERR_INPUT, "'model_type' is missing"},
    {"hidden_size", "null", ERR_INPUT, "'hidden_size' is missing: the config does not describe a whole llama model"},
    {"hidden_size", "\"8\"", ERR_INPUT, "'hidden_size' must be an integer"},
    {"hidden_size", "-8", ERR_INPUT, "'hidden_size' must be between 1"},
    {"num_attention_heads", "3", ERR_INPUT, "a hidden_size of 8 does not divide over 3 heads"},
    {"num_attention_heads", "0", ERR_INPUT, "'num_attention_heads' must be between 1"},
    {"num_hidden_layers", "1000000", ERR_INPUT, "'num_hidden_layers' is 1000000, expected 1 to 1024"},
    {"head_dim", "7", ERR_INPUT, "expected an even number"},
    {"hidden_act", "\"relu\"", ERR_UNSUPPORTED, "'hidden_act' is \"relu\"; a model of type llama is run with silu only"},
    {"rms_norm_eps", "\"small\"", ERR_INPUT, "'rms_norm_eps' must be a number"},
    {"architectures", "[\"LlamaForSequenceClassification\"]", ERR_UNSUPPORTED, "'architectures' is LlamaForSequenceClassification"},
    {"quantization_config", "{\"quant_method\": \"gptq\"}", ERR_UNSUPPORTED, "'quantization_config' is set"},
    {"attn_logit_softcapping", "50.0", ERR_UNSUPPORTED, "'attn_logit_softcapping' is set"},
    {"num_local_experts", "8", ERR_UNSUPPORTED, "'num_local_experts' is set: mixtures of experts"},
    {"rope_theta", "0", ERR_INPUT, "'rope_theta' must be between 1"},
    {"rope_scaling", "[1]", ERR_INPUT, "'rope_scaling' must be an object"},
    {"rope_scaling", "{\"type\": \"dynamic\", \"factor\": 2}", ERR_UNSUPPORTED, "'rope_type' is \"dynamic\"; known are default, linear, llama3"},
    {"rope_scaling", "{\"type\": \"linear\"}", ERR_INPUT, "'factor' is missing"},
    {"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}", ERR_INPUT, "'low_freq_factor' is missing"},
    {"rope_parameters", "{\"rope_type\": \"longrope\", \"long_factor\": [1, 2], \"short_factor\": [1, 2, 3, 4]}", ERR_INPUT,
        "'long_factor' has 2 numbers, expected 4"},
    {"rope_parameters", "{\"rope_type\": \"longrope\", \"long_factor\": [1, 2, \"x\", 4], \"short_factor\": [1, 2, 3, 4]}", ERR_INPUT,
        "'long_factor[2]' is not a number"},
    {"rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 0.7}", ERR_UNSUPPORTED, "'mscale' is set for YaRN"},
    {"partial_rotary_factor", "0.5", ERR_UNSUPPORTED, "'partial_rotary_factor' is 0.5"},
    {"eos_token_id", "\"</s>\"", ERR_INPUT, "'eos_token_id' is neither"},
    {"eos_token_id", "[1, -2]", ERR_INPUT, "'eos_token_id' is neither"},
    {"tie_word_embeddings", "false", ERR_INPUT, "tensor lm_head.weight is missing, and config.json does not tie it"},
    {"model_type", "\"smollm3\"", ERR_NONE, ""},
    {"model_type", "\"smollm3\", \"no_rope_layers\": [0]", ERR_UNSUPPORTED, "'no_rope_layers[0]'"},
    {"model_type", "\"smollm3\", \"use_sliding_window\": true", ERR_UNSUPPORTED, "'use_sliding_window' is true"},
    {"model_type", "\"qwen3\", \"head_dim\": 8, \"layer_types\": [\"chunked_attention\"]", ERR_UNSUPPORTED,
        "'layer_types[0]' is \"chunked_attention\""},
    {"model_type", "\"qwen3\", \"head_dim\": 8, \"layer_types\": []", ERR_INPUT, "'layer_types' has 0 entries, expected one for each of 1 layers"},
    {"model_type", "\"qwen3\", \"head_dim\": 8, \"layer_types\": [\"sliding_attention\"]", ERR_INPUT, "there is no 'sliding_window' in use"},
};

static void test_configs(void **st) {
  (void)st;
  for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
    const struct bad *b = &bads[i];
    char config[1024], *file;
    err e = {0};
    mfile *g = NULL;
    snprintf(config, sizeof config, "%.*s, \"%s\": %s}", (int)(sizeof small - 2), small, b->field, b->value);
    bool ok = open_pair(config, "{" EMBED "}", 64, &g, &file, &e);
    if (ok != (b->code == ERR_NONE)) fail_msg("%s %s: %s", b->field, b->value, ok ? "the config was read" : e.msg);
    if (!ok && (e.code != b->code || !strstr(e.msg, b->part)))
      fail_msg("%s %s: expected \"%s\", saw code %d, \"%s\"", b->field, b->value, b->part, e.code, e.msg);
    mf_close(g);
    free(file);
  }
}

/* What no row knows is opened for whoever wants to look, and refused by name by whoever would run it. */
static void test_unknown_family(void **st) {
  (void)st;
  err e = {0};
  mfile *g = NULL;
  char *file;
  arch a;
  if (!open_pair("{\"model_type\": \"bert\"}", "{\"encoder.x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4, &g, &file, &e))
    fail_msg("%s", e.msg);
  assert_non_null(mf_find(g, "encoder.x"));
  assert_false(arch_read(g, NULL, &a, &e));
  assert_int_equal(e.code, ERR_UNSUPPORTED);
  assert_non_null(strstr(e.msg, "architecture is \"bert\""));
  mf_close(g);
  free(file);
}

/* ---- families --------------------------------------------------------------------------------------------------------------- */

static mfile *open_folder(const char *name) {
  char path[512];
  err e = {0};
  mfile *g = NULL;
  snprintf(path, sizeof path, HF "%s", name);
  if (!safetensors_open(path, &g, &e)) fail_msg("%s", e.msg);
  assert_true(g->hf_layout);
  return g;
}

/* Every tensor of a known family has a GGUF name, and its keys are there: what llama.cpp's converter writes for the same folder. */
static void test_families(void **st) {
  (void)st;
  static const struct {
    const char *folder, *arch, *tensor, *key;
    double value;
  } rows[] = {
      {"llama-bf16", "llama", "blk.1.ffn_norm.weight", "llama.rope.freq_base", 1e4},
      {"llama-f32-shards", "llama", "output.weight", "llama.feed_forward_length", 48},
      {"llama-biases", "llama", "blk.1.ffn_down.bias", "llama.attention.key_length", 16},
      {"mistral", "llama", "blk.0.attn_output.weight", "llama.attention.sliding_window", 12},
      {"qwen2", "qwen2", "blk.0.attn_k.bias", "qwen2.rope.scaling.factor", 2},
      {"qwen3", "qwen3", "blk.0.attn_q_norm.weight", "qwen3.attention.key_length", 16},
      {"gemma3", "gemma3", "blk.0.post_ffw_norm.weight", "gemma3.rope.freq_base_swa", 1e4},
      {"phi3", "phi3", "blk.0.attn_qkv.weight", "phi3.rope.dimension_count", 8},
      {"granite", "granite", "blk.0.ffn_up.weight", "granite.residual_scale", 0.5},
      {"olmo2", "olmo2", "blk.0.post_attention_norm.weight", "olmo2.attention.layer_norm_rms_epsilon", 1e-5},
      {"smollm3", "smollm3", "blk.3.ffn_down.weight", "smollm3.rope.freq_base", 2e6},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mfile *g = open_folder(rows[i].folder);
    err e = {0};
    str name = {0};
    double v = NAN;
    if (!mf_str(g, "general.architecture", &name, &e) || !str_is(name, rows[i].arch)) fail_msg("%s: architecture", rows[i].folder);
    if (!mf_find(g, rows[i].tensor)) fail_msg("%s: no tensor %s", rows[i].folder, rows[i].tensor);
    if (!mf_f64(g, rows[i].key, &v, &e) || fabs(v - rows[i].value) > 1e-9)
      fail_msg("%s: %s is %g, expected %g", rows[i].folder, rows[i].key, v, rows[i].value);
    for (uint64_t k = 0; k < g->n_tensors; k++) {
      str n = g->tensors[k].name;
      if (str_find(n, STR("model")) >= 0 || str_find(n, STR("layers")) >= 0) fail_msg("%s: %.*s was not renamed", rows[i].folder, (int)n.n, n.p);
    }
    assert_true((mf_find(g, "output.weight") != NULL) == (strstr("llama-bf16 llama-f32-shards phi3", rows[i].folder) != NULL));
    mf_close(g);
  }
}

/* What generation_config.json, tokenizer and template of a folder become. */
static void test_texts(void **st) {
  (void)st;
  mfile *g = open_folder("qwen3");
  err e = {0};
  double t = 0;
  uint64_t k = 0;
  str s = {0};
  assert_true(mf_f64(g, "general.sampling.temp", &t, &e) && fabs(t - 0.7) < 1e-9);
  assert_true(mf_u64(g, "general.sampling.top_k", &k, &e) && k == 40);
  assert_true(mf_u64(g, "tokenizer.ggml.eos_token_id", &k, &e) && k == 258);
  const mf_val *ends = mf_get(g, HF_KEY_ENDS);
  assert_true(ends && ends->count == 2 && mf_elem_i64(ends, 1) == 256);
  assert_true(mf_str(g, "tokenizer.chat_template", &s, &e) && str_find(s, STR("<|im_start|>")) >= 0);
  assert_true(mf_str(g, HF_KEY_TOKENIZER, &s, &e) && s.n > 1000 && s.p[0] == '{');
  assert_true(mf_str(g, HF_KEY_TOK_CONFIG, &s, &e) && s.n > 10);
  mf_close(g);
}

static bool same_vals(const mfile *a, const mfile *b, char differs[128]) {
  for (uint64_t i = 0; i < a->n_vals; i++) {
    const mf_val *v = &a->vals[i], *w = NULL;
    for (uint64_t k = 0; k < b->n_vals && !w; k++)
      if (str_eq(b->vals[k].key, v->key)) w = &b->vals[k];
    if (w && w->kind == v->kind && str_eq(w->raw, v->raw)) continue;
    snprintf(differs, 128, "%.*s", (int)v->key.n, v->key.p);
    return false;
  }
  return a->n_vals == b->n_vals;
}

/* One model, described by transformers 4 and 5. Then the same with one number of the old form changed, which must be seen. */
static void test_config_v4(void **st) {
  (void)st;
  size_t n5, n4, n;
  char *five = load(HF "llama-bf16/config.json", &n5), *four = load(HF "llama-bf16/config.v4.json", &n4), differs[128] = "";
  char *data = load(HF "llama-bf16/model.safetensors", &n);
  for (int bent = 0; bent < 2; bent++) {
    mfile *a = NULL, *b = NULL;
    err e = {0};
    char *factor = strstr(four, "\"low_freq_factor\": 1.0");
    assert_non_null(factor);
    if (bent) factor[19] = '2';
    if (!safetensors_open_mem((str){five, n5}, (str){data, n}, &a, &e) || !safetensors_open_mem((str){four, n4}, (str){data, n}, &b, &e))
      fail_msg("%s", e.msg);
    if (!same_vals(a, b, differs)) fail_msg("%s differs", differs);
    const mf_tensor *x = mf_find(a, "rope_freqs.weight"), *y = mf_find(b, "rope_freqs.weight");
    assert_true(x && y && x->bytes == y->bytes && a->n_tensors == b->n_tensors);
    assert_int_equal(memcmp(x->data, y->data, x->bytes) == 0, !bent);
    mf_close(a);
    mf_close(b);
  }
  free(five), free(four), free(data);
}

/* ---- folders ---------------------------------------------------------------------------------------------------------------- */

typedef struct tmp {
  char dir[64], path[128];
} tmp;

static tmp tmp_new(void) {
  tmp t = {.dir = "/tmp/weir-test-hf-XXXXXX"};
  assert_non_null(mkdtemp(t.dir));
  return t;
}
static void tmp_put(tmp *t, const char *name, const char *p, size_t n) {
  snprintf(t->path, sizeof t->path, "%s/%s", t->dir, name);
  unlink(t->path); /* it may be a link into the tree */
  FILE *f = fopen(t->path, "wb");
  assert_true(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}
static void tmp_link(tmp *t, const char *name, const char *from) {
  char to[512];
  snprintf(t->path, sizeof t->path, "%s/%s", t->dir, name);
  snprintf(to, sizeof to, HF "%s", from);
  unlink(t->path);
  assert_int_equal(symlink(to, t->path), 0);
}
static void tmp_drop(tmp *t, const char *name) {
  snprintf(t->path, sizeof t->path, "%s/%s", t->dir, name);
  unlink(t->path);
}
static void tmp_refuse(tmp *t, const char *part) {
  err e = {0};
  mfile *g = NULL;
  if (safetensors_open(t->dir, &g, &e)) fail_msg("a folder was read that lacks what \"%s\" speaks of", part);
  if (!strstr(e.msg, part) || !strstr(e.msg, t->dir)) fail_msg("expected \"%s\", saw \"%s\"", part, e.msg);
}

static void test_folders(void **st) {
  (void)st;
  static const char *const names[] = {"config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors",
      "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "tokenizer_config.json", "generation_config.json", "pytorch_model.bin",
      "model.safetensors"};
  char from[128];
  err e = {0};
  mfile *g = NULL;
  tmp t = tmp_new();
  tmp_refuse(&t, "there is no config.json");
  tmp_link(&t, names[0], "llama-f32-shards/config.json");
  tmp_refuse(&t, "there is neither model.safetensors nor model.safetensors.index.json");
  tmp_put(&t, names[7], "x", 1);
  tmp_refuse(&t, "pytorch_model.bin is not read");
  for (int i = 1; i < 5; i++) {
    snprintf(from, sizeof from, "llama-f32-shards/%s", names[i]);
    tmp_link(&t, names[i], from);
    if (i == 3) tmp_refuse(&t, "shard model-00003-of-00003.safetensors is missing");
  }
  if (!safetensors_open(t.dir, &g, &e)) fail_msg("%s", e.msg);
  assert_true(g->n_maps == 5 && mf_find(g, "blk.1.ffn_down.weight"));
  mf_close(g);
  /* A shard in another's place: its tensors come twice, or those that it should hold are nowhere. */
  tmp_link(&t, names[3], "llama-f32-shards/model-00002-of-00003.safetensors");
  tmp_link(&t, names[4], "llama-f32-shards/model-00002-of-00003.safetensors");
  tmp_refuse(&t, "is there twice");
  tmp_put(&t, names[4], "\2\0\0\0\0\0\0\0{}", 10);
  tmp_refuse(&t, "is in none of the shards, but model.safetensors.index.json says it is in model-0000");
  tmp_put(&t, names[4], "", 0);
  tmp_refuse(&t, "the file is empty");
  tmp_put(&t, names[1], "{\"weight_map\": {\"a\": \"../b.safetensors\"}}", 41);
  tmp_refuse(&t, "the file of a is \"../b.safetensors\"");
  tmp_put(&t, names[1], "{\"weight_map\": {}}", 18);
  tmp_refuse(&t, "names no shard");
  tmp_put(&t, names[1], "{}", 2);
  tmp_refuse(&t, "has no 'weight_map'");
  tmp_put(&t, names[5], "{", 1);
  tmp_refuse(&t, "tokenizer_config.json: JSON cannot be parsed");
  tmp_put(&t, names[6], "{\"temperature\": \"hot\"}", 22);
  tmp_refuse(&t, "generation_config.json: 'temperature' must be a number");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) tmp_drop(&t, names[i]);
  rmdir(t.dir);
}

/* The template is the file's, else the one by the name "default", else the text. */
static void test_templates(void **st) {
  (void)st;
  static const struct {
    const char *config, *want;
  } rows[] = {
      {"{\"model_max_length\": 1000000000000000019884624838656, \"chat_template\": \"one\"}", "one"},
      {"{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"two\"}, {\"name\": \"default\", \"template\": \"three\"}]}", "three"},
      {"{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"two\"}]}", NULL},
      {"{\"chat_template\": [3, {\"name\": 4}]}", NULL},
      {"{}", NULL},
      {"[]", NULL},
  };
  tmp t = tmp_new();
  tmp_link(&t, "config.json", "qwen2/config.json");
  tmp_link(&t, "model.safetensors", "qwen2/model.safetensors");
  for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
    bool file = i == sizeof rows / sizeof *rows;
    err e = {0};
    mfile *g = NULL;
    str s = {0};
    if (!file) tmp_put(&t, "tokenizer_config.json", rows[i].config, strlen(rows[i].config));
    else tmp_put(&t, "chat_template.jinja", "four", 4);
    if (!safetensors_open(t.dir, &g, &e)) fail_msg("%s", e.msg);
    assert_true(mf_str(g, "tokenizer.chat_template", &s, &e));
    const char *want = file ? "four" : rows[i].want;
    if (want ? !str_is(s, want) : s.p != NULL) fail_msg("row %zu: \"%.*s\"", i, (int)s.n, s.p);
    mf_close(g);
  }
  tmp_drop(&t, "config.json"), tmp_drop(&t, "model.safetensors"), tmp_drop(&t, "tokenizer_config.json"), tmp_drop(&t, "chat_template.jinja");
  rmdir(t.dir);
}

/* ---- damage ----------------------------------------------------------------------------------------------------------------- */

static bool survive(str config, const char *p, size_t n) {
  err e = {0};
  mfile *g = NULL;
  arch a;
  if (!safetensors_open_mem(config, (str){p, n}, &g, &e)) {
    assert_true(e.code != ERR_NONE && e.code != ERR_INTERNAL && e.code != ERR_NOMEM && e.msg[0]);
    assert_null(g);
    return false;
  }
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    const uint8_t *d = g->tensors[i].data;
    sum += d[0] + d[g->tensors[i].bytes - 1];
  }
  bool ok = arch_read(g, NULL, &a, &e);
  assert_true(ok || e.msg[0]);
  mf_close(g);
  return ok;
}

static void test_damaged(void **st) {
  (void)st;
  static const char edges[] = "0129-.,:[]{}\" \\\x80\xff";
  static const char *const folders[] = {"qwen2", "gemma3", "phi3"};
  rng r = rng_new(20240608);
  for (int f = 0; f < 3; f++) {
    char path[256];
    size_t n, n_config;
    snprintf(path, sizeof path, HF "%s/config.json", folders[f]);
    char *config = load(path, &n_config);
    snprintf(path, sizeof path, HF "%s/model.safetensors", folders[f]);
    char *file = load(path, &n);
    uint64_t head;
    memcpy(&head, file, 8);
    int passed = 0;
    for (int i = 0; i < 1500; i++) {
      char *bad = malloc(n), *bad_config = malloc(n_config);
      assert_true(bad && bad_config);
      memcpy(bad, file, n), memcpy(bad_config, config, n_config);
      size_t cut = rng_below(&r, 10) ? n : (size_t)rng_below(&r, n);
      for (uint64_t hits = 1 + rng_below(&r, 3); hits; hits--) {
        char c = edges[rng_below(&r, sizeof edges - 1)];
        if (rng_below(&r, 2)) bad[rng_below(&r, 8 + head)] = c;
        else bad_config[rng_below(&r, n_config)] = c;
      }
      passed += survive((str){bad_config, n_config}, bad, cut);
      free(bad), free(bad_config);
    }
    print_message("%s: 1500 damaged pairs, %d read\n", folders[f], passed);
    free(config), free(file);
  }
}

int main(void) {
  json_setup();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lies), cmocka_unit_test(test_header_size), cmocka_unit_test(test_configs),
      cmocka_unit_test(test_unknown_family), cmocka_unit_test(test_families), cmocka_unit_test(test_texts), cmocka_unit_test(test_config_v4),
      cmocka_unit_test(test_folders), cmocka_unit_test(test_templates), cmocka_unit_test(test_damaged)};
  return cmocka_run_group_tests_name("test_safetensors", tests, NULL, NULL);
}
