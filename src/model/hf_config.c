/* Reading order: families, fields, RoPE, windows, tokens, generation defaults, tensor names.
 * A family is a row, a field is a row, a tensor is a row. Defaults are those of transformers' configuration classes, for a config states only what
 * differs or what its writer wrote out. */
#include "model/hf_config.h"
#include "model/mfile_build.h"
#include <math.h>
#include <stdio.h>

enum { LAYERS_MAX = 1024, ENDS_MAX = 64, ROT_MAX = 1024 };

/* Where norms stand. PRE: before attention and feed-forward. SANDWICH: before and behind both. POST: behind both alone. */
enum { PRE = 1, SANDWICH = 2, POST = 4, ANY_NORMS = 7 };
/* Which layers a window is for when no list of layers says. */
typedef enum window { W_NONE, W_ALL, W_OFTEN /* all but each sixth */, W_LATE /* from max_window_layers on, if asked for */ } window;

typedef struct hf_family {
  const char *type, *arch; /* model_type; GGUF's name */
  const char *model_class; /* what `architectures` calls the whole language model */
  const char *act;
  int norms;
  window window;
  bool tied, qkv_bias;     /* qkv_bias: there without being asked for */
  int heads, kv, head_dim; /* when the config is silent; 0: kv as heads, head_dim from the width, heads must be stated */
  int ctx, width;          /* width: of the window; 0: none unless stated */
  double eps, theta;
} hf_family;

static const hf_family families[] = {
    {"llama", "llama", "LlamaForCausalLM", "silu", PRE, W_NONE, false, false, 0, 0, 0, 2048, 0, 1e-6, 1e4},
    {"mistral", "llama", "MistralForCausalLM", "silu", PRE, W_ALL, false, false, 0, 8, 0, 131072, 4096, 1e-6, 1e4},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", "silu", PRE, W_LATE, false, true, 0, 0, 0, 32768, 4096, 1e-6, 1e4},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", "silu", PRE, W_LATE, false, false, 0, 0, 128, 32768, 4096, 1e-6, 1e4},
    {"gemma3_text", "gemma3", "Gemma3ForCausalLM", "gelu_pytorch_tanh", SANDWICH, W_OFTEN, true, false, 8, 4, 256, 131072, 4096, 1e-6, 1e6},
    {"gemma3", "gemma3", "Gemma3ForConditionalGeneration", "gelu_pytorch_tanh", SANDWICH, W_OFTEN, true, false, 8, 4, 256, 131072, 4096, 1e-6, 1e6},
    {"phi3", "phi3", "Phi3ForCausalLM", "silu", PRE, W_ALL, false, false, 0, 0, 0, 4096, 0, 1e-5, 1e4},
    {"granite", "granite", "GraniteForCausalLM", "silu", PRE, W_NONE, false, false, 0, 0, 0, 2048, 0, 1e-6, 1e4},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", "silu", POST, W_NONE, false, false, 0, 0, 0, 2048, 0, 1e-5, 1e4},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", "silu", PRE, W_NONE, true, false, 0, 4, 0, 32768, 0, 1e-6, 2e6},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

typedef struct reader {
  mfile *g;
  const hf_family *f;
  json_t *o; /* the config, or the part of it that is about text */
  int64_t layers, dim, heads, head_dim, ctx;
  char key[96];
  err *e;
} reader;

static const char *spell(reader *r, const char *key) {
  snprintf(r->key, sizeof r->key, "%s.%s", r->f->arch, key);
  return r->key;
}

static bool is(const hf_family *f, const char *arch) { return strcmp(f->arch, arch) == 0; }
static json_t *stated(json_t *o, const char *key) { /* null is as good as absent */
  json_t *v = json_object_get(o, key);
  return json_is_null(v) ? NULL : v;
}

static bool missing(reader *r, const char *field) {
  return err_param(r->e, ERR_INPUT, field, "'%s' is missing: the config does not describe a whole %s model", field, r->f->type);
}

/* ---- fields ----------------------------------------------------------------------------------------------------------------- */

/* An integer as metadata. `otherwise` is what absence means; negative: it must be stated. */
static bool add_int(reader *r, const char *field, const char *key, int64_t otherwise, int64_t *ret) {
  int64_t v = otherwise;
  if (!json_get_i64(r->o, "", field, 1, INT32_MAX, &v, r->e)) return false;
  if (v < 0) return missing(r, field);
  *ret = v;
  return mf_add_u64(r->g, spell(r, key), (uint64_t)v, r->e);
}

static bool add_real(reader *r, const char *field, const char *key, double otherwise) {
  double v = otherwise;
  return json_get_f64(r->o, "", field, -1e30, 1e30, &v, r->e) && mf_add_f64(r->g, spell(r, key), v, r->e);
}

static bool add_numbers(reader *r) {
  const hf_family *f = r->f;
  int64_t kv, ffn;
  if (!add_int(r, "num_hidden_layers", "block_count", -1, &r->layers)) return false;
  if (r->layers > LAYERS_MAX)
    return err_param(r->e, ERR_INPUT, "num_hidden_layers", "'num_hidden_layers' is %lld, expected 1 to %d", (long long)r->layers, LAYERS_MAX);
  if (!add_int(r, "hidden_size", "embedding_length", -1, &r->dim) || !add_int(r, "intermediate_size", "feed_forward_length", -1, &ffn) ||
      !add_int(r, "max_position_embeddings", "context_length", f->ctx, &r->ctx) ||
      !add_int(r, "num_attention_heads", "attention.head_count", f->heads ? f->heads : -1, &r->heads) ||
      !add_int(r, "num_key_value_heads", "attention.head_count_kv", f->kv ? f->kv : r->heads, &kv))
    return false;
  if (!f->head_dim && !stated(r->o, "head_dim") && r->dim % r->heads)
    return err_param(r->e, ERR_INPUT, "hidden_size", "'head_dim' is missing, and a hidden_size of %lld does not divide over %lld heads",
        (long long)r->dim, (long long)r->heads);
  return add_int(r, "head_dim", "attention.key_length", f->head_dim ? f->head_dim : r->dim / r->heads, &r->head_dim) &&
         mf_add_u64(r->g, spell(r, "attention.value_length"), (uint64_t)r->head_dim, r->e) &&
         add_real(r, "rms_norm_eps", "attention.layer_norm_rms_epsilon", f->eps);
}

/* Scales that a family multiplies with. */
static bool add_scales(reader *r) {
  if (is(r->f, "granite"))
    return add_real(r, "embedding_multiplier", "embedding_scale", 1) && add_real(r, "residual_multiplier", "residual_scale", 1) &&
           add_real(r, "attention_multiplier", "attention.scale", 1) && add_real(r, "logits_scaling", "logit_scale", 1);
  if (!is(r->f, "gemma3")) return true;
  double scalar = 256;
  return json_get_f64(r->o, "", "query_pre_attn_scalar", 1e-3, 1e9, &scalar, r->e) &&
         mf_add_f64(r->g, spell(r, "attention.scale"), 1 / sqrt(scalar), r->e);
}

/* Fields that change what a model of these families computes and that have no place in its description. */
static const struct {
  const char *field, *why;
} refused[] = {
    {"quantization_config", "quantized safetensors are not read: take the unquantized model, or a GGUF file of it"},
    {"attn_logit_softcapping", "attention scores are not capped here"},
    {"final_logit_softcapping", "logits are not capped here"},
    {"use_bidirectional_attention", "attention looks back only here"},
    {"add_cross_attention", "there is no encoder here"},
    {"clip_qkv", "queries and keys are not clipped here"},
    {"num_experts", "mixtures of experts are not supported"},
    {"num_local_experts", "mixtures of experts are not supported"},
};

static bool off(const json_t *v) { return !v || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0); }

static bool check_refused(reader *r) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (!off(stated(r->o, refused[i].field)))
      return err_param(r->e, ERR_UNSUPPORTED, refused[i].field, "'%s' is set: %s", refused[i].field, refused[i].why);
  return true;
}

static bool check_act(reader *r) {
  const char *field = stated(r->o, "hidden_activation") ? "hidden_activation" : "hidden_act";
  str act = str_c(r->f->act);
  if (!json_get_str(r->o, "", field, &act, r->e)) return false;
  return str_is(act, r->f->act) || err_param(r->e, ERR_UNSUPPORTED, field, "'%s' is \"%.*s\"; a model of type %s is run with %s only", field,
                                       (int)(act.n < 32 ? act.n : 32), act.p, r->f->type, r->f->act);
}

/* ---- RoPE ------------------------------------------------------------------------------------------------------------------- */

/* transformers 5 writes rope_parameters: one object, or one for each kind of layer. Before it was rope_scaling, with the base beside it. */
typedef struct rope {
  json_t *full, *local; /* local: of windowed layers, when stated apart. Either may be NULL */
  double theta, local_theta;
} rope;

static bool find_rope(reader *r, rope *p) {
  json_t *params = NULL;
  *p = (rope){.theta = r->f->theta, .local_theta = 1e4};
  if (!json_get_object(r->o, "", "rope_parameters", &params, r->e) || !json_get_f64(r->o, "", "rope_theta", 1, 1e12, &p->theta, r->e) ||
      !json_get_f64(r->o, "", "rope_local_base_freq", 1, 1e12, &p->local_theta, r->e))
    return false;
  if (!params && !json_get_object(r->o, "", "rope_scaling", &params, r->e)) return false;
  p->full = params;
  if (params && (stated(params, "full_attention") || stated(params, "sliding_attention"))) {
    p->full = NULL;
    if (!json_get_object(params, "rope_parameters", "full_attention", &p->full, r->e) ||
        !json_get_object(params, "rope_parameters", "sliding_attention", &p->local, r->e))
      return false;
  }
  return (!p->full || json_get_f64(p->full, "rope_parameters", "rope_theta", 1, 1e12, &p->theta, r->e)) &&
         (!p->local || json_get_f64(p->local, "rope_parameters", "rope_theta", 1, 1e12, &p->local_theta, r->e));
}

static bool rope_kind(json_t *params, str *ret, err *e) {
  *ret = STR("default");
  return !params || (json_get_str(params, "rope_parameters", "type", ret, e) && json_get_str(params, "rope_parameters", "rope_type", ret, e));
}

/* A number of RoPE's that may stand with its parameters or beside them. NAN in *ret: it must be there. */
static bool rope_num(reader *r, json_t *params, const char *field, double lo, double hi, double *ret) {
  if (!json_get_f64(r->o, "", field, lo, hi, ret, r->e)) return false;
  if (params && !json_get_f64(params, "rope_parameters", field, lo, hi, ret, r->e)) return false;
  return !isnan(*ret) || missing(r, field);
}

/* A vector that is computed, as a tensor. */
static float *add_vector(reader *r, const char *name, int n) {
  float *v = mf_mem(r->g, (size_t)n, sizeof *v, r->e);
  mf_tensor t = {.name = str_c(name), .type = wtype_lookup(WT_F32), .n_dims = 1, .ne = {n, 1, 1, 1}, .data = v, .bytes = (uint64_t)n * sizeof *v};
  return v && mf_add_tensor(r->g, &t, r->e) ? v : NULL;
}

/* Llama 3's rule (its model card's reference code): long waves are slowed by `factor`, short ones not, those between are blended. */
static bool add_llama3(reader *r, json_t *params, double theta, int n_rot) {
  double factor = NAN, lo = NAN, hi = NAN, old = NAN;
  if (!rope_num(r, params, "factor", 1e-3, 1e6, &factor) || !rope_num(r, params, "low_freq_factor", 1e-3, 1e6, &lo) ||
      !rope_num(r, params, "high_freq_factor", 1e-3, 1e6, &hi) || !rope_num(r, params, "original_max_position_embeddings", 1, 1e9, &old))
    return false;
  if (hi <= lo) return err_param(r->e, ERR_INPUT, "high_freq_factor", "'high_freq_factor' is %g, expected more than low_freq_factor, %g", hi, lo);
  float *v = add_vector(r, "rope_freqs.weight", n_rot / 2);
  if (!v) return false;
  for (int i = 0; i < n_rot / 2; i++) {
    double wave = 2 * M_PI * pow(theta, 2.0 * i / n_rot), smooth = (old / wave - lo) / (hi - lo);
    v[i] = (float)(wave < old / hi ? 1 : wave > old / lo ? factor : 1 / ((1 - smooth) / factor + smooth));
  }
  return true;
}

static bool add_factors(reader *r, json_t *params, const char *field, const char *tensor, int n) {
  json_t *list = NULL;
  if (!json_get_array(params, "rope_parameters", field, &list, r->e)) return false;
  if (!list || json_array_size(list) != (size_t)n)
    return err_param(r->e, ERR_INPUT, field, "'%s' has %zu numbers, expected %d", field, json_array_size(list), n);
  float *v = add_vector(r, tensor, n);
  if (!v) return false;
  for (int i = 0; i < n; i++) {
    double x = json_number_value(json_array_get(list, (size_t)i));
    if (!(x >= 1e-3 && x <= 1e6)) return err_param(r->e, ERR_INPUT, field, "'%s[%d]' is not a number from 0.001 to 1000000", field, i);
    v[i] = (float)x;
  }
  return true;
}

/* Phi 3's: factors of its own for each pair, one list for short contexts and one for long ones, and what cosines are multiplied by. */
static bool add_longrope(reader *r, json_t *params, int n_rot) {
  double old = (double)r->ctx, attn = -1;
  if (!rope_num(r, params, "original_max_position_embeddings", 2, 1e9, &old) || !rope_num(r, params, "attention_factor", 0, 1e3, &attn)) return false;
  double stretch = (double)r->ctx / old;
  if (!json_get_f64(params, "rope_parameters", "factor", 1e-3, 1e6, &stretch, r->e)) return false;
  if (attn < 0) attn = stretch <= 1 ? 1 : sqrt(1 + log(stretch) / log(old));
  return add_factors(r, params, "long_factor", "rope_factors_long.weight", n_rot / 2) &&
         add_factors(r, params, "short_factor", "rope_factors_short.weight", n_rot / 2) &&
         mf_add_str(r->g, spell(r, "rope.scaling.type"), STR("longrope"), r->e) &&
         mf_add_u64(r->g, spell(r, "rope.scaling.original_context_length"), (uint64_t)old, r->e) &&
         mf_add_f64(r->g, spell(r, "rope.scaling.attn_factor"), attn, r->e);
}

static bool add_linear(reader *r, json_t *params) {
  double factor = NAN;
  return rope_num(r, params, "factor", 1e-3, 1e6, &factor) && mf_add_str(r->g, spell(r, "rope.scaling.type"), STR("linear"), r->e) &&
         mf_add_f64(r->g, spell(r, "rope.scaling.factor"), factor, r->e);
}

/* Its finer settings are GGUF's to state by keys that mean something else, so only the plain form is taken. */
static bool add_yarn(reader *r, json_t *params) {
  static const char *const fine[] = {"attention_factor", "mscale", "mscale_all_dim", "truncate"};
  double factor = NAN, old = (double)r->ctx, fast = 32, slow = 1;
  for (int i = 0; i < 4; i++)
    if (stated(params, fine[i]))
      return err_param(r->e, ERR_UNSUPPORTED, fine[i], "'%s' is set for YaRN, of which only the plain form is read", fine[i]);
  return rope_num(r, params, "factor", 1e-3, 1e6, &factor) && rope_num(r, params, "original_max_position_embeddings", 1, 1e9, &old) &&
         rope_num(r, params, "beta_fast", 0, 1e6, &fast) && rope_num(r, params, "beta_slow", 0, 1e6, &slow) &&
         mf_add_str(r->g, spell(r, "rope.scaling.type"), STR("yarn"), r->e) && mf_add_f64(r->g, spell(r, "rope.scaling.factor"), factor, r->e) &&
         mf_add_u64(r->g, spell(r, "rope.scaling.original_context_length"), (uint64_t)old, r->e) &&
         mf_add_f64(r->g, spell(r, "rope.scaling.yarn_beta_fast"), fast, r->e) &&
         mf_add_f64(r->g, spell(r, "rope.scaling.yarn_beta_slow"), slow, r->e);
}

static bool add_rope(reader *r) {
  rope p;
  str kind, local;
  double part = 1;
  if (!find_rope(r, &p) || !rope_kind(p.full, &kind, r->e) || !rope_kind(p.local, &local, r->e) ||
      !rope_num(r, p.full, "partial_rotary_factor", 1e-3, 1, &part))
    return false;
  int n_rot = (int)((double)r->head_dim * part);
  if (part < 1 && !is(r->f, "phi3"))
    return err_param(
        r->e, ERR_UNSUPPORTED, "partial_rotary_factor", "'partial_rotary_factor' is %g, which a model of type %s has no use for", part, r->f->type);
  if (n_rot < 2 || n_rot % 2 || n_rot > ROT_MAX)
    return err_param(
        r->e, ERR_INPUT, "head_dim", "%d of 'head_dim' %lld are turned, expected an even number up to %d", n_rot, (long long)r->head_dim, ROT_MAX);
  if (!str_is(local, "default"))
    return err_param(r->e, ERR_UNSUPPORTED, "rope_parameters.sliding_attention", "'rope_parameters.sliding_attention' is scaled (\"%.*s\")",
        (int)(local.n < 32 ? local.n : 32), local.p);
  if (!mf_add_u64(r->g, spell(r, "rope.dimension_count"), (uint64_t)n_rot, r->e) || !mf_add_f64(r->g, spell(r, "rope.freq_base"), p.theta, r->e))
    return false;
  if (r->f->window == W_OFTEN && !mf_add_f64(r->g, spell(r, "rope.freq_base_swa"), p.local_theta, r->e)) return false;
  if (str_is(kind, "default")) return true;
  if (str_is(kind, "llama3")) return add_llama3(r, p.full, p.theta, n_rot);
  if (str_is(kind, "linear")) return add_linear(r, p.full);
  if (str_is(kind, "yarn")) return add_yarn(r, p.full);
  if (str_is(kind, "longrope") || str_is(kind, "su")) return add_longrope(r, p.full, n_rot);
  return err_param(r->e, ERR_UNSUPPORTED, "rope_type", "'rope_type' is \"%.*s\"; known are default, linear, llama3, yarn and longrope",
      (int)(kind.n < 32 ? kind.n : 32), kind.p);
}

/* ---- windows and layers without RoPE ---------------------------------------------------------------------------------------- */

/* slide[i]: layer i has a window. Without a list it is the family's rule. */
static bool which_slide(reader *r, uint8_t *slide, bool *ret_listed) {
  json_t *list = NULL;
  int64_t period = 6, late = 28;
  if (!json_get_array(r->o, "", "layer_types", &list, r->e) || !json_get_i64(r->o, "", "_sliding_window_pattern", 1, LAYERS_MAX, &period, r->e) ||
      !json_get_i64(r->o, "", "sliding_window_pattern", 1, LAYERS_MAX, &period, r->e) ||
      !json_get_i64(r->o, "", "max_window_layers", 0, INT32_MAX, &late, r->e))
    return false;
  if (list && json_array_size(list) != (size_t)r->layers)
    return err_param(r->e, ERR_INPUT, "layer_types", "'layer_types' has %zu entries, expected one for each of %lld layers", json_array_size(list),
        (long long)r->layers);
  *ret_listed = list != NULL;
  for (int64_t i = 0; i < r->layers; i++) {
    const char *type = list ? json_string_value(json_array_get(list, (size_t)i)) : NULL;
    if (!list) slide[i] = r->f->window == W_ALL || (r->f->window == W_OFTEN && (i + 1) % period) || (r->f->window == W_LATE && i >= late);
    else if (type && strcmp(type, "sliding_attention") == 0) slide[i] = 1;
    else if (!type || strcmp(type, "full_attention") != 0)
      return err_param(r->e, ERR_UNSUPPORTED, "layer_types", "'layer_types[%lld]' is \"%.40s\"; known are full_attention and sliding_attention",
          (long long)i, type ? type : "no string");
  }
  return true;
}

static bool add_window(reader *r) {
  uint8_t slide[LAYERS_MAX] = {0};
  int64_t width = r->f->width, n = 0;
  bool use = r->f->window == W_ALL || r->f->window == W_OFTEN, listed = false;
  if (!json_get_bool(r->o, "", "use_sliding_window", &use, r->e)) return false;
  if (r->f->window == W_NONE)
    return !use ||
           err_param(r->e, ERR_UNSUPPORTED, "use_sliding_window", "'use_sliding_window' is true, which is not supported for type %s", r->f->type);
  if (!json_get_i64(r->o, "", "sliding_window", 1, INT32_MAX, &width, r->e) || !which_slide(r, slide, &listed)) return false;
  for (int64_t i = 0; i < r->layers; i++) n += slide[i];
  if (json_is_null(json_object_get(r->o, "sliding_window"))) width = 0;
  if (!use || !width || !n) {
    if (listed && n)
      return err_param(r->e, ERR_INPUT, "layer_types", "'layer_types' names sliding_attention, but there is no 'sliding_window' in use");
    return true;
  }
  return mf_add_u64(r->g, spell(r, "attention.sliding_window"), (uint64_t)width, r->e) &&
         mf_add_bools(r->g, spell(r, "attention.sliding_window_pattern"), slide, (size_t)r->layers, r->e);
}

/* SmolLM 3 leaves each fourth layer unturned; its GGUF metadata have no key for another rule. */
static bool check_unturned(reader *r) {
  json_t *list = NULL;
  int64_t step = 4;
  if (!is(r->f, "smollm3")) return true;
  if (!json_get_array(r->o, "", "no_rope_layers", &list, r->e) || !json_get_i64(r->o, "", "no_rope_layer_interval", 1, LAYERS_MAX, &step, r->e))
    return false;
  if (!list && step != 4)
    return err_param(r->e, ERR_UNSUPPORTED, "no_rope_layer_interval", "'no_rope_layer_interval' is %lld, supported is 4", (long long)step);
  if (list && json_array_size(list) != (size_t)r->layers)
    return err_param(
        r->e, ERR_INPUT, "no_rope_layers", "'no_rope_layers' has %zu entries, expected %lld", json_array_size(list), (long long)r->layers);
  for (int64_t i = 0; list && i < r->layers; i++) {
    json_t *v = json_array_get(list, (size_t)i);
    if (!json_is_integer(v) || json_integer_value(v) != ((i + 1) % 4 != 0))
      return err_param(r->e, ERR_UNSUPPORTED, "no_rope_layers",
          "'no_rope_layers[%lld]' is not as in each fourth layer without RoPE, which alone is supported", (long long)i);
  }
  return true;
}

/* ---- tokens and generation defaults ----------------------------------------------------------------------------------------- */

/* eos_token_id is a number or a list of them. */
static bool take_ends(json_t *o, int32_t *ends, int *n, err *e) {
  json_t *v = o ? stated(o, "eos_token_id") : NULL;
  size_t count = json_is_array(v) ? json_array_size(v) : v ? 1 : 0;
  for (size_t i = 0; i < count; i++) {
    json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
    json_int_t id = json_integer_value(one);
    if (!json_is_integer(one) || id < 0 || id > INT32_MAX)
      return err_param(e, ERR_INPUT, "eos_token_id", "'eos_token_id' is neither a token's number nor a list of them");
    int k = 0;
    while (k < *n && ends[k] != (int32_t)id) k++;
    if (k < *n) continue;
    if (*n == ENDS_MAX) return err_param(e, ERR_INPUT, "eos_token_id", "'eos_token_id' has more than %d tokens", ENDS_MAX);
    ends[(*n)++] = (int32_t)id;
  }
  return true;
}

/* What generation_config.json says comes first; the config's own are added. */
static bool add_tokens(mfile *g, json_t *config, json_t *text, json_t *generation, err *e) {
  int32_t ends[ENDS_MAX];
  int n = 0;
  int64_t bos = -1;
  if (!take_ends(generation, ends, &n, e) || !take_ends(text, ends, &n, e) || (config != text && !take_ends(config, ends, &n, e))) return false;
  if (!json_get_i64(text, "", "bos_token_id", 0, INT32_MAX, &bos, e)) return false;
  if (bos >= 0 && !mf_add_u64(g, "tokenizer.ggml.bos_token_id", (uint64_t)bos, e)) return false;
  return !n || (mf_add_u64(g, "tokenizer.ggml.eos_token_id", (uint64_t)ends[0], e) && mf_add_i32s(g, HF_KEY_ENDS, ends, (size_t)n, e));
}

static bool add_sampling(mfile *g, json_t *o, err *e) {
  static const struct {
    const char *field, *key;
  } rows[] = {{"temperature", "general.sampling.temp"}, {"top_p", "general.sampling.top_p"}, {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  bool sample = true;
  int64_t top_k = -1;
  if (!json_get_bool(o, "", "do_sample", &sample, e) || !json_get_i64(o, "", "top_k", 0, INT32_MAX, &top_k, e)) return false;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double v = NAN;
    if (!json_get_f64(o, "", rows[i].field, 0, 1e6, &v, e)) return false;
    if (i == 0 && !sample) v = 0; /* the best token always: a temperature beside it has no effect */
    if (!isnan(v) && !mf_add_f64(g, rows[i].key, v, e)) return false;
  }
  return top_k < 0 || mf_add_u64(g, "general.sampling.top_k", (uint64_t)top_k, e);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------- */

static const hf_family *family_of(str type) {
  for (int i = 0; i < N_FAMILIES; i++)
    if (str_is(type, families[i].type)) return &families[i];
  return NULL;
}

const char *hf_arch(str model_type) {
  const hf_family *f = family_of(model_type);
  return f ? f->arch : NULL;
}

/* A model with another head (a classifier, an embedder) has the same config but for this. */
static bool check_class(reader *r, json_t *config) {
  json_t *list = NULL;
  if (!json_get_array(config, "", "architectures", &list, r->e)) return false;
  const char *first = json_string_value(json_array_get(list, 0));
  if (!first) return true;
  for (int i = 0; i < N_FAMILIES; i++)
    if (is(&families[i], r->f->arch) && strcmp(first, families[i].model_class) == 0) return true;
  return err_param(
      r->e, ERR_UNSUPPORTED, "architectures", "'architectures' is %.60s; of a model of type %s only %s is run", first, r->f->type, r->f->model_class);
}

static bool read_family(reader *r, hf_config *c) {
  if (!check_refused(r) || !check_act(r) || !add_numbers(r) || !add_scales(r) || !add_rope(r) || !add_window(r) || !check_unturned(r)) return false;
  c->n_layer = (int)r->layers;
  c->tied = r->f->tied;
  return json_get_i64(r->o, "", "vocab_size", 1, INT32_MAX, &c->vocab, r->e) && json_get_bool(r->o, "", "tie_word_embeddings", &c->tied, r->e) &&
         json_get_bool(r->o, "", "attention_bias", &c->attn_bias, r->e) && json_get_bool(r->o, "", "mlp_bias", &c->mlp_bias, r->e);
}

bool hf_config_read(mfile *g, json_t *config, json_t *generation, hf_config *ret, err *e) {
  str type = {0};
  hf_config c = {0};
  if (!json_is_object(config)) return err_set(e, ERR_INPUT, "config.json: expected an object, found %s", json_type_name(config));
  if (!json_get_str(config, "", "model_type", &type, e)) return err_prefix(e, "config.json");
  if (!type.n) return err_param(e, ERR_INPUT, "model_type", "config.json: 'model_type' is missing: it does not say what model it is");
  reader r = {.g = g, .f = family_of(type), .o = config, .e = e};
  /* A model for images and text keeps what is about text in an object of its own. */
  if (!json_get_object(config, "", "text_config", &r.o, e)) return err_prefix(e, "config.json");
  c.family = r.f;
  if (!mf_add_str(g, "general.architecture", r.f ? str_c(r.f->arch) : type, e)) return false;
  if (r.f && !(check_class(&r, config) && read_family(&r, &c))) return err_prefix(e, "config.json");
  if (r.o != config && !json_get_bool(config, "", "tie_word_embeddings", &c.tied, e)) return err_prefix(e, "config.json");
  if (!add_tokens(g, config, r.o, generation, e)) return false;
  if (generation && !(json_is_object(generation) && add_sampling(g, generation, e)))
    return json_is_object(generation) ? err_prefix(e, "generation_config.json") : err_set(e, ERR_INPUT, "generation_config.json: expected an object");
  *ret = c;
  return true;
}

/* ---- tensor names ----------------------------------------------------------------------------------------------------------- */

/* The flag of the config that a bias belongs to. */
typedef enum owner { ALWAYS, ATTN_BIAS, QKV_BIAS /* or the family's own */, MLP_BIAS } owner;

typedef struct name_row {
  const char *hf, *gguf;
  int norms; /* families with norms of these places */
  owner owner;
} name_row;

static const name_row globals[] = {
    {"embed_tokens.weight", "token_embd.weight", ANY_NORMS, ALWAYS},
    {"norm.weight", "output_norm.weight", ANY_NORMS, ALWAYS},
};

/* Behind "layers.N." and "blk.N.". */
static const name_row layered[] = {
    {"input_layernorm.weight", "attn_norm.weight", PRE | SANDWICH, ALWAYS},
    {"post_attention_layernorm.weight", "ffn_norm.weight", PRE, ALWAYS},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", SANDWICH | POST, ALWAYS},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", SANDWICH, ALWAYS},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", SANDWICH | POST, ALWAYS},
    {"self_attn.q_proj.weight", "attn_q.weight", ANY_NORMS, ALWAYS},
    {"self_attn.k_proj.weight", "attn_k.weight", ANY_NORMS, ALWAYS},
    {"self_attn.v_proj.weight", "attn_v.weight", ANY_NORMS, ALWAYS},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", ANY_NORMS, ALWAYS},
    {"self_attn.o_proj.weight", "attn_output.weight", ANY_NORMS, ALWAYS},
    {"self_attn.q_proj.bias", "attn_q.bias", ANY_NORMS, QKV_BIAS},
    {"self_attn.k_proj.bias", "attn_k.bias", ANY_NORMS, QKV_BIAS},
    {"self_attn.v_proj.bias", "attn_v.bias", ANY_NORMS, QKV_BIAS},
    {"self_attn.o_proj.bias", "attn_output.bias", ANY_NORMS, ATTN_BIAS},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", ANY_NORMS, ALWAYS},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", ANY_NORMS, ALWAYS},
    {"mlp.gate_proj.weight", "ffn_gate.weight", ANY_NORMS, ALWAYS},
    {"mlp.up_proj.weight", "ffn_up.weight", ANY_NORMS, ALWAYS},
    {"mlp.gate_up_proj.weight", "ffn_up.weight", ANY_NORMS, ALWAYS}, /* GGUF has no other name for the two in one */
    {"mlp.down_proj.weight", "ffn_down.weight", ANY_NORMS, ALWAYS},
    {"mlp.gate_proj.bias", "ffn_gate.bias", ANY_NORMS, MLP_BIAS},
    {"mlp.up_proj.bias", "ffn_up.bias", ANY_NORMS, MLP_BIAS},
    {"mlp.down_proj.bias", "ffn_down.bias", ANY_NORMS, MLP_BIAS},
};

static const name_row *find_row(const name_row *rows, size_t n, str name, int norms) {
  for (size_t i = 0; i < n; i++)
    if ((rows[i].norms & norms) && str_is(name, rows[i].hf)) return &rows[i];
  return NULL;
}

static bool cut(str *s, str prefix) {
  if (!str_starts(*s, prefix)) return false;
  *s = (str){s->p + prefix.n, s->n - prefix.n};
  return true;
}

/* A bias that the config says is not there would be left out by the model's own code. */
static bool bias_ok(const hf_config *c, const name_row *row, str name, err *e) {
  bool on = row->owner == ALWAYS || (row->owner == MLP_BIAS ? c->mlp_bias : c->attn_bias || (row->owner == QKV_BIAS && c->family->qkv_bias));
  return on || err_param(e, ERR_INPUT, row->hf, "tensor %.*s is there, but config.json says '%s' is false", (int)name.n, name.p,
                   row->owner == MLP_BIAS ? "mlp_bias" : "attention_bias");
}

static bool layer_name(const hf_config *c, str rest, str name, char out[MF_NAME + 1], err *e) {
  str number, tail;
  int64_t layer;
  if (!str_cut(rest, '.', &number, &tail) || !str_i64(number, &layer) || layer < 0 || layer >= c->n_layer) return true;
  const name_row *row = find_row(layered, sizeof layered / sizeof *layered, tail, c->family->norms);
  if (!row) return true;
  if (!bias_ok(c, row, name, e)) return false;
  snprintf(out, MF_NAME + 1, "blk.%.*s.%s", (int)(number.n < 8 ? number.n : 8), number.p, row->gguf);
  return true;
}

bool hf_tensor_name(const hf_config *c, str name, char out[MF_NAME + 1], hf_fate *ret, err *e) {
  str rest = name;
  snprintf(out, MF_NAME + 1, "%.*s", (int)name.n, name.p);
  *ret = HF_TAKE;
  if (!c->family) return true;
  if (str_ends(name, STR("rotary_emb.inv_freq"))) *ret = HF_SKIP; /* computed from the config by all that read it */
  bool inside = false;
  if (strcmp(c->family->type, "gemma3") == 0) {
    /* Sees images too: that half does not touch what text gives. Two layouts are about, of before and after transformers 4.52. */
    if (str_starts(name, STR("vision_tower.")) || str_starts(name, STR("multi_modal_projector.")) || str_starts(name, STR("model.vision_tower.")) ||
        str_starts(name, STR("model.multi_modal_projector.")))
      *ret = HF_SKIP;
    inside = cut(&rest, STR("model.language_model."));
    if (!inside) cut(&rest, STR("language_model."));
  }
  if (*ret == HF_SKIP) return true;
  if (str_is(rest, "lm_head.weight")) {
    snprintf(out, MF_NAME + 1, "output.weight");
    if (c->tied) *ret = HF_TIED_HEAD;
    return true;
  }
  if (!inside && !cut(&rest, STR("model."))) return true;
  if (cut(&rest, STR("layers."))) return layer_name(c, rest, name, out, e);
  const name_row *row = find_row(globals, sizeof globals / sizeof *globals, rest, c->family->norms);
  if (row) snprintf(out, MF_NAME + 1, "%s", row->gguf);
  return true;
}
