/* The numbers of a description, key by key. Absence means the family's default; keys that would change the answer and have no place are
 * in `refused`. */
#include "model/arch_impl.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { DIM_MAX = 1 << 16, HEADS_MAX = 1024, HEAD_DIM_MAX = 1024, FFN_MAX = 1 << 19, VOCAB_MAX = 1 << 22, CTX_MAX = 1 << 24, Q_DIM_MAX = 1 << 20 };

/* What reading a family's keys needs: "{family}.{key}" is spelled out in `key`, which errors then name. */
typedef struct reader {
  const mfile *g;
  const family *f;
  char key[96];
  err *e;
} reader;

static const char *spell(reader *r, const char *key) {
  snprintf(r->key, sizeof r->key, "%s.%s", r->f->name, key);
  return r->key;
}

static bool missing(reader *r) {
  return err_param(r->e, ERR_INPUT, r->key, "metadata key %s is missing: the file does not describe a whole %s model", r->key, r->f->name);
}

/* An integer in lo..hi. `otherwise` is what absence means; negative: it must be there. */
static bool read_int(reader *r, const char *key, int64_t lo, int64_t hi, int64_t otherwise, int *ret) {
  uint64_t v = 0;
  const char *k = spell(r, key);
  if (!mf_get(r->g, k)) {
    if (otherwise < 0) return missing(r);
    v = (uint64_t)otherwise;
  } else if (!mf_u64(r->g, k, &v, r->e)) return false;
  if (v < (uint64_t)lo || v > (uint64_t)hi)
    return err_param(r->e, ERR_INPUT, k, "metadata key %s is %llu, expected %lld to %lld", k, (unsigned long long)v, (long long)lo, (long long)hi);
  *ret = (int)v;
  return true;
}

/* The same for a real number; `otherwise` NAN: it must be there. */
static bool read_float(reader *r, const char *key, double lo, double hi, double otherwise, double *ret) {
  double v = otherwise;
  const char *k = spell(r, key);
  if (!mf_get(r->g, k) && isnan(otherwise)) return missing(r);
  if (!mf_f64(r->g, k, &v, r->e)) return false;
  if (!(v >= lo && v <= hi)) return err_param(r->e, ERR_INPUT, k, "metadata key %s is %g, expected %g to %g", k, v, lo, hi);
  *ret = v;
  return true;
}

/* Keys that change what a model computes and that the description has no place for, with the value at which they change nothing. */
static const struct {
  const char *key;
  double neutral;
  const char *what;
} refused[] = {
    {"expert_count", 0, "mixtures of experts are not supported"},
    {"attn_logit_softcapping", 0, "attention scores are not capped here"},
    {"final_logit_softcapping", 0, "logits are not capped here"},
    {"attention.clamp_kqv", 0, "queries and keys are not clipped here"},
    {"attention.temperature_scale", 0, "scores are not scaled by position here"},
    {"attention.max_alibi_bias", 0, "scores are not biased by distance here"},
    {"attention.output_scale", 1, "attention's output is not scaled here"},
    {"attention.value_scale", 1, "values are not scaled here"},
    {"rope.scaling.alpha", 0, "this way of scaling RoPE is not supported"},
    {"rope.scaling.yarn_log_multiplier", 0, "of YaRN only the plain form is supported"},
    {"rope.scaling.yarn_ext_factor", 1, "of YaRN only the plain form is supported"},
};

static bool check_refused(reader *r) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    double v = refused[i].neutral;
    if (!mf_f64(r->g, spell(r, refused[i].key), &v, r->e)) return false;
    if (v != refused[i].neutral && v >= 0) return err_param(r->e, ERR_UNSUPPORTED, r->key, "metadata key %s is %g: %s", r->key, v, refused[i].what);
  }
  bool flag = false;
  if (!mf_bool(r->g, spell(r, "use_parallel_residual"), &flag, r->e)) return false;
  if (flag)
    return err_param(r->e, ERR_UNSUPPORTED, r->key, "metadata key %s is true: attention and feed-forward are not run side by side here", r->key);
  flag = true;
  if (!mf_bool(r->g, spell(r, "attention.causal"), &flag, r->e)) return false;
  return flag || err_param(r->e, ERR_UNSUPPORTED, r->key, "metadata key %s is false: attention looks back only here", r->key);
}

/* ---- heads and scales ------------------------------------------------------------------------------------------------------- */

static bool read_heads(reader *r, arch *a) {
  int value_dim;
  if (!read_int(r, "attention.head_count", 1, HEADS_MAX, -1, &a->n_head)) return false;
  if (!read_int(r, "attention.head_count_kv", 1, HEADS_MAX, a->n_head, &a->n_kv)) return false;
  if (a->n_head % a->n_kv)
    return err_param(r->e, ERR_INPUT, r->key, "%d query heads cannot be shared out over the %d of metadata key %s", a->n_head, a->n_kv, r->key);
  if (!mf_get(r->g, spell(r, "attention.key_length")) && a->dim % a->n_head)
    return err_param(r->e, ERR_INPUT, r->key, "metadata key %s is missing, and %d dimensions do not divide over %d heads", r->key, a->dim, a->n_head);
  if (!read_int(r, "attention.key_length", 2, HEAD_DIM_MAX, a->dim / a->n_head, &a->head_dim)) return false;
  if (!read_int(r, "attention.value_length", 1, HEAD_DIM_MAX, a->head_dim, &value_dim)) return false;
  if (value_dim != a->head_dim)
    return err_param(r->e, ERR_UNSUPPORTED, r->key, "metadata key %s is %d while keys are %d wide; only equal widths are supported", r->key,
        value_dim, a->head_dim);
  return true;
}

static bool read_scale(reader *r, const char *key, double otherwise, float *ret) {
  double v = otherwise;
  if (!read_float(r, key, 0, 1e6, otherwise, &v)) return false;
  *ret = (float)(v > 0 ? v : otherwise); /* 0 is how some writers say "none" */
  return true;
}

static bool read_scales(reader *r, arch *a) {
  const family *f = r->f;
  float logits;
  double width = a->n_layer == f->width_scale_at ? (double)a->dim / a->n_head : a->head_dim;
  if (!read_scale(r, "attention.scale", 1 / sqrt(width), &a->attn_scale) ||
      !read_scale(r, "embedding_scale", f->embed_by_width ? sqrt(a->dim) : 1, &a->embed_scale) ||
      !read_scale(r, "residual_scale", 1, &a->residual_scale) || !read_scale(r, "logit_scale", 1, &logits))
    return false;
  a->logit_scale = 1 / logits; /* the key says what logits are divided by */
  return true;
}

/* ---- RoPE ------------------------------------------------------------------------------------------------------------------- */

/* The pair that turns `rounds` times within the context a model was first trained on; Peng et al. 2023, section 3.2. */
static double yarn_pair(const arch *a, const arch_turn *t, double rounds) {
  return a->n_rot * log(a->turn_ctx / (rounds * 2 * M_PI)) / (2 * log(t->base));
}

static bool read_yarn(reader *r, arch *a, arch_turn *t) {
  double factor, fast, slow, magnitude;
  if (!read_float(r, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32, &fast) || !read_float(r, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1, &slow) ||
      !read_float(r, "rope.scaling.factor", 1e-3, 1e6, NAN, &factor))
    return false;
  if (t->base <= 1) return err_param(r->e, ERR_INPUT, r->key, "YaRN with a RoPE base of %g: expected more than 1", t->base);
  double whole = factor > 1 ? 1 + 0.1 * log(factor) : 1;
  if (!read_float(r, "rope.scaling.yarn_attn_factor", 1e-3, 1e3, whole, &magnitude)) return false;
  if (fabs(magnitude - whole) > 1e-4 * whole)
    return err_param(r->e, ERR_UNSUPPORTED, r->key, "metadata key %s is %g; of YaRN only the plain form is supported, which has %g here", r->key,
        magnitude, whole);
  t->yarn = true;
  t->scale = 1 / factor;
  t->magnitude *= whole;
  t->yarn_lo = fmax(floor(yarn_pair(a, t, fast)), 0);
  t->yarn_hi = fmin(ceil(yarn_pair(a, t, slow)), a->n_rot - 1);
  if (!(t->yarn_hi > t->yarn_lo)) t->yarn_hi = t->yarn_lo + 0.001; /* a step, then */
  return true;
}

/* The kind of scaling. Llama 3's and Phi 3's need no number: their factors are tensors. */
static bool read_scaling(reader *r, arch *a, arch_turn *t) {
  str kind = STR("none");
  double factor = 1.0;
  /* Files from before 2024 state only the factor, in a key of its own. */
  if (!read_float(r, "rope.scale_linear", 1e-3, 1e6, 1.0, &factor)) return false;
  if (mf_get(r->g, r->key)) kind = STR("linear");
  if (!mf_str(r->g, spell(r, "rope.scaling.type"), &kind, r->e)) return false;
  if (str_is(kind, "yarn")) return read_yarn(r, a, t);
  if (str_is(kind, "longrope")) {
    bool there = a->has & ARCH_HAS(R_ROPE_LONG);
    return there || err_param(r->e, ERR_INPUT, r->key, "metadata key %s is longrope, but there is no tensor rope_factors_long.weight", r->key);
  }
  if (str_is(kind, "none")) return true;
  if (!str_is(kind, "linear"))
    return err_param(r->e, ERR_UNSUPPORTED, r->key,
        "metadata key %s is \"%.*s\"; supported are none, linear, yarn and longrope (Llama 3's factors come as a tensor)", r->key,
        (int)(kind.n < 32 ? kind.n : 32), kind.p);
  if (!read_float(r, "rope.scaling.factor", 1e-3, 1e6, factor, &factor)) return false;
  t->scale = 1.0 / factor;
  return true;
}

static bool read_turns(reader *r, arch *a) {
  const family *f = r->f;
  arch_turn *t = a->turn;
  *t = (arch_turn){.scale = 1, .factors = true};
  if (!read_int(r, "rope.dimension_count", 2, a->head_dim, a->head_dim, &a->n_rot)) return false;
  if (a->n_rot % 2) return err_param(r->e, ERR_INPUT, r->key, "metadata key %s is %d, expected an even number", r->key, a->n_rot);
  if (!read_float(r, "rope.freq_base", 1.0, 1e12, f->rope_base, &t->base) ||
      !read_int(r, "rope.scaling.original_context_length", 1, CTX_MAX, a->ctx, &a->turn_ctx) ||
      !read_float(r, "rope.scaling.attn_factor", 1e-3, 1e3, 1, &t->magnitude) || !read_scaling(r, a, t))
    return false;
  a->n_turns = 1;
  a->rope = r->g->hf_layout ? ROPE_NEOX : f->rope;
  if (!f->local_turn) return true;
  a->turn[a->n_turns++] = (arch_turn){.scale = 1, .magnitude = 1};
  return read_float(r, "rope.freq_base_swa", 1.0, 1e12, f->local_base > 0 ? f->local_base : t->base, &a->turn[1].base);
}

double arch_speed(const arch *a, const arch_turn *t, int pair) {
  double full = pow(t->base, -2.0 * pair / a->n_rot);
  if (!t->yarn) return full * t->scale;
  double ramp = fmin(fmax((pair - t->yarn_lo) / (t->yarn_hi - t->yarn_lo), 0), 1);
  return full * (ramp * t->scale + (1 - ramp));
}

/* ---- layers ----------------------------------------------------------------------------------------------------------------- */

/* Which layers have the window: the file's list, else its period, else the family's. */
static bool slides(reader *r, const arch *a, int window, bool ret[ARCH_LAYERS]) {
  int period = r->f->slide_period;
  const char *k = spell(r, "attention.sliding_window_pattern");
  const mf_val *v = mf_get(r->g, k);
  bool list = v && v->kind == MF_ARR;
  if (list && v->count != (uint64_t)a->n_layer)
    return err_param(
        r->e, ERR_INPUT, k, "metadata key %s has %llu entries, expected one for each of %d layers", k, (unsigned long long)v->count, a->n_layer);
  if (v && !list && !read_int(r, "attention.sliding_window_pattern", 0, ARCH_LAYERS, 0, &period)) return false;
  if (!v && period == SLIDE_UNSAID && window >= a->ctx) return true; /* sees everything there can be */
  if (!v && period == SLIDE_UNSAID)
    return err_param(r->e, ERR_UNSUPPORTED, k, "metadata key %s is missing: %s does not say which layers have the window", k, r->f->name);
  for (int i = 0; i < a->n_layer; i++) ret[i] = list ? mf_elem_i64(v, (uint64_t)i) != 0 : period == SLIDE_ALL || (i + 1) % period != 0;
  return true;
}

static bool read_layers(reader *r, arch *a) {
  const family *f = r->f;
  int window;
  bool slide[ARCH_LAYERS] = {false}, turned = true;
  if (!read_int(r, "attention.sliding_window", 0, INT_MAX, 0, &window)) return false;
  if (window && !slides(r, a, window, slide)) return false;
  if (f->finetuned_turns && !mf_bool(r->g, spell(r, "rope.scaling.finetuned"), &turned, r->e)) return false;
  for (int i = 0; i < a->n_layer; i++) {
    a->layer[i] = (arch_layer){.window = slide[i] ? window : 0, .turn = slide[i] && f->local_turn ? 1 : 0};
    if (!turned || (f->unturned_period && (i + 1) % f->unturned_period == 0)) a->layer[i].turn = ARCH_UNTURNED;
  }
  return true;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------------ */

static bool read_vocab(const mfile *g, arch *a, err *e) {
  const char *name = "token_embd.weight";
  const mf_tensor *t = mf_find(g, name);
  if (!t) return err_param(e, ERR_INPUT, name, "tensor %s is missing: the file does not hold a whole model", name);
  if (t->n_dims != 2 || t->ne[1] > VOCAB_MAX)
    return err_param(
        e, ERR_INPUT, name, "tensor %s has %d dimensions and %lld rows, expected 2 and at most %d", name, t->n_dims, (long long)t->ne[1], VOCAB_MAX);
  a->vocab = (int)t->ne[1];
  const mf_val *v = mf_get(g, "tokenizer.ggml.tokens");
  if (v && v->kind == MF_ARR && v->count != (uint64_t)a->vocab)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "metadata key tokenizer.ggml.tokens has %llu tokens, but tensor %s has %d rows",
        (unsigned long long)v->count, name, a->vocab);
  return true;
}

static bool check_sizes(const arch *a, err *e) {
  int64_t q = (int64_t)a->n_head * a->head_dim, widest = a->vocab;
  if (q > Q_DIM_MAX) return err_set(e, ERR_INPUT, "%d heads of %d dimensions are more than the bound of %d", a->n_head, a->head_dim, Q_DIM_MAX);
  if (2 * (int64_t)a->ffn > widest) widest = 2 * (int64_t)a->ffn; /* gate and up may be one */
  if (3 * q > widest) widest = 3 * q;
  if (widest * a->dim > INT32_MAX)
    return err_set(e, ERR_UNSUPPORTED, "a matrix of %lld x %d elements is more than the bound of %d", (long long)widest, a->dim, INT32_MAX);
  return true;
}

bool arch_numbers(const mfile *g, const family *f, arch *a, err *e) {
  reader r = {.g = g, .f = f, .e = e};
  double eps;
  if (!check_refused(&r)) return false;
  if (!read_int(&r, "block_count", 1, ARCH_LAYERS, -1, &a->n_layer) || !read_int(&r, "embedding_length", 1, DIM_MAX, -1, &a->dim) ||
      !read_int(&r, "feed_forward_length", 1, FFN_MAX, -1, &a->ffn) || !read_int(&r, "context_length", 1, CTX_MAX, -1, &a->ctx) ||
      !read_heads(&r, a) || !read_scales(&r, a) || !read_turns(&r, a) || !read_layers(&r, a) ||
      !read_float(&r, "attention.layer_norm_rms_epsilon", 0.0, 1.0, NAN, &eps))
    return false;
  a->eps = (float)eps;
  a->act = f->act;
  a->qk_norm = f->qk_norm;
  a->norm_add = g->hf_layout && f->norm_less_one ? 1.0f : 0.0f;
  return read_vocab(g, a, e) && check_sizes(a, e);
}
