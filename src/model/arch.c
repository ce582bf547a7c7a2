/* A family is one row of `families`, a tensor one row of `roles`. Reading goes: family, numbers, tensors. Whatever the one forward pass cannot honour
 * is refused here, by name, so that a model either runs right or not at all. */
#include "model/arch.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>

enum {
  LAYERS_MAX = 1024,
  DIM_MAX = 1 << 16,
  HEADS_MAX = 1024,
  HEAD_DIM_MAX = 1024,
  FFN_MAX = 1 << 19,
  VOCAB_MAX = 1 << 22,
  CTX_MAX = 1 << 24,
  Q_DIM_MAX = 1 << 20
};

/* NEEDED: must be there. BIASES: all of a layer's three or none, in every layer alike. EITHER: may be absent. */
typedef enum need { NEEDED, BIASES, EITHER } need;

typedef struct family {
  const char *name; /* general.architecture, and the prefix of its keys */
  arch_rope rope;   /* llama's files hold q and k with their rows permuted, so that pairs lie side by side */
  arch_act act;
  need qkv_bias;
  double rope_base; /* when the file states none */
} family;

static const family families[] = {
    {"llama", ROPE_PAIRS, ACT_SILU, BIASES, 10000.0},
    {"qwen2", ROPE_NEOX, ACT_SILU, NEEDED, 10000.0},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Sizes a shape is written in. */
typedef enum size_of { S_NONE, S_DIM, S_Q, S_KV, S_FFN, S_VOCAB, S_ROT2 } size_of;

typedef struct role_row {
  const char *name; /* with the layer's number where %d stands */
  bool global;
  need need;
  size_of ne0, ne1; /* ne1 S_NONE: a vector */
} role_row;

static const role_row roles[R_COUNT] = {
    [R_EMBED] = {"token_embd.weight", true, NEEDED, S_DIM, S_VOCAB},
    [R_OUT_NORM] = {"output_norm.weight", true, NEEDED, S_DIM, S_NONE},
    [R_OUTPUT] = {"output.weight", true, EITHER, S_DIM, S_VOCAB},
    [R_ROPE_FREQS] = {"rope_freqs.weight", true, EITHER, S_ROT2, S_NONE},
    [R_ATTN_NORM] = {"blk.%d.attn_norm.weight", false, NEEDED, S_DIM, S_NONE},
    [R_Q] = {"blk.%d.attn_q.weight", false, NEEDED, S_DIM, S_Q},
    [R_K] = {"blk.%d.attn_k.weight", false, NEEDED, S_DIM, S_KV},
    [R_V] = {"blk.%d.attn_v.weight", false, NEEDED, S_DIM, S_KV},
    [R_Q_BIAS] = {"blk.%d.attn_q.bias", false, BIASES, S_Q, S_NONE},
    [R_K_BIAS] = {"blk.%d.attn_k.bias", false, BIASES, S_KV, S_NONE},
    [R_V_BIAS] = {"blk.%d.attn_v.bias", false, BIASES, S_KV, S_NONE},
    [R_ATTN_OUT] = {"blk.%d.attn_output.weight", false, NEEDED, S_Q, S_DIM},
    [R_FFN_NORM] = {"blk.%d.ffn_norm.weight", false, NEEDED, S_DIM, S_NONE},
    [R_GATE] = {"blk.%d.ffn_gate.weight", false, NEEDED, S_DIM, S_FFN},
    [R_UP] = {"blk.%d.ffn_up.weight", false, NEEDED, S_DIM, S_FFN},
    [R_DOWN] = {"blk.%d.ffn_down.weight", false, NEEDED, S_FFN, S_DIM},
};

static int64_t size_value(const arch *a, size_of s) {
  switch (s) {
  case S_DIM: return a->dim;
  case S_Q: return (int64_t)a->n_head * a->head_dim;
  case S_KV: return (int64_t)a->n_kv * a->head_dim;
  case S_FFN: return a->ffn;
  case S_VOCAB: return a->vocab;
  case S_ROT2: return a->n_rot / 2;
  case S_NONE: break;
  }
  return 1;
}

const char *arch_families(void) { return "llama, qwen2"; }

static const family *family_of(str name) {
  for (int i = 0; i < N_FAMILIES; i++)
    if (str_is(name, families[i].name)) return &families[i];
  return NULL;
}

bool arch_known(str name) { return family_of(name) != NULL; }

const mf_tensor *arch_tensor(const mfile *g, const arch *a, arch_role role, int layer) {
  char name[64];
  if (roles[role].global) return mf_find(g, roles[role].name);
  if (layer < 0 || layer >= a->n_layer) return NULL;
  snprintf(name, sizeof name, roles[role].name, layer);
  return mf_find(g, name);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------------------- */

/* What reading a family's keys needs: "{family}.{key}" is spelled out in `key`, which errors then name. */
typedef struct reader {
  const mfile *g;
  const char *prefix;
  char key[96];
  err *e;
} reader;

static const char *spell(reader *r, const char *key) {
  snprintf(r->key, sizeof r->key, "%s.%s", r->prefix, key);
  return r->key;
}

/* An integer in lo..hi. `otherwise` is what absence means; negative: it must be there. */
static bool read_int(reader *r, const char *key, int64_t lo, int64_t hi, int64_t otherwise, int *ret) {
  uint64_t v = 0;
  const char *k = spell(r, key);
  if (!mf_get(r->g, k)) {
    if (otherwise < 0) return err_param(r->e, ERR_INPUT, k, "metadata key %s is missing: the file does not describe a whole %s model", k, r->prefix);
    v = (uint64_t)otherwise;
  } else if (!mf_u64(r->g, k, &v, r->e)) return false;
  if (v < (uint64_t)lo || v > (uint64_t)hi)
    return err_param(r->e, ERR_INPUT, k, "metadata key %s is %llu, expected %lld to %lld", k, (unsigned long long)v, (long long)lo, (long long)hi);
  *ret = (int)v;
  return true;
}

static bool read_float(reader *r, const char *key, double lo, double hi, double otherwise, double *ret) {
  double v = otherwise;
  const char *k = spell(r, key);
  if (!mf_get(r->g, k) && isnan(otherwise))
    return err_param(r->e, ERR_INPUT, k, "metadata key %s is missing: the file does not describe a whole %s model", k, r->prefix);
  if (!mf_f64(r->g, k, &v, r->e)) return false;
  if (!(v >= lo && v <= hi)) return err_param(r->e, ERR_INPUT, k, "metadata key %s is %g, expected %g to %g", k, v, lo, hi);
  *ret = v;
  return true;
}

static const family *find_family(const mfile *g, err *e) {
  str name = {0};
  if (!mf_str(g, "general.architecture", &name, e)) return NULL;
  if (!name.p) {
    err_param(e, ERR_INPUT, "general.architecture", "metadata key general.architecture is missing: the file does not say what model it is");
    return NULL;
  }
  const family *f = family_of(name);
  if (f) return f;
  err_param(e, ERR_UNSUPPORTED, "general.architecture", "the model's architecture is \"%.*s\"; supported are: %s", (int)(name.n < 64 ? name.n : 64),
      name.p, arch_families());
  return NULL;
}

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
  a->attn_scale = (float)(1.0 / sqrt(a->head_dim));
  return true;
}

/* Llama 3's stretching needs no key: its factors are the tensor rope_freqs.weight. */
static bool read_rope(reader *r, const family *f, arch *a) {
  if (!read_int(r, "rope.dimension_count", 2, a->head_dim, a->head_dim, &a->n_rot)) return false;
  if (a->n_rot % 2) return err_param(r->e, ERR_INPUT, r->key, "metadata key %s is %d, expected an even number", r->key, a->n_rot);
  if (!read_float(r, "rope.freq_base", 1.0, 1e12, f->rope_base, &a->rope_base)) return false;
  a->rope = f->rope;
  str kind = STR("none");
  double factor = 1.0;
  /* Files from before 2024 state only the factor, in a key of its own. */
  if (!read_float(r, "rope.scale_linear", 1e-3, 1e6, 1.0, &factor)) return false;
  if (mf_get(r->g, r->key)) kind = STR("linear");
  if (!mf_str(r->g, spell(r, "rope.scaling.type"), &kind, r->e)) return false;
  if (str_is(kind, "none")) factor = 1.0;
  else if (!str_is(kind, "linear"))
    return err_param(r->e, ERR_UNSUPPORTED, r->key, "metadata key %s is \"%.*s\"; supported are none and linear (Llama 3's factors come as a tensor)",
        r->key, (int)(kind.n < 32 ? kind.n : 32), kind.p);
  else if (!read_float(r, "rope.scaling.factor", 1e-3, 1e6, factor, &factor)) return false;
  a->rope_scale = 1.0 / factor;
  return true;
}

static bool read_vocab(const mfile *g, arch *a, err *e) {
  const mf_tensor *t = mf_find(g, roles[R_EMBED].name);
  if (!t) return err_param(e, ERR_INPUT, roles[R_EMBED].name, "tensor %s is missing: the file does not hold a whole model", roles[R_EMBED].name);
  if (t->n_dims != 2 || t->ne[1] > VOCAB_MAX)
    return err_param(e, ERR_INPUT, roles[R_EMBED].name, "tensor %s has %d dimensions and %lld rows, expected 2 and at most %d", roles[R_EMBED].name,
        t->n_dims, (long long)t->ne[1], VOCAB_MAX);
  a->vocab = (int)t->ne[1];
  const mf_val *v = mf_get(g, "tokenizer.ggml.tokens");
  if (v && v->kind == MF_ARR && v->count != (uint64_t)a->vocab)
    return err_param(e, ERR_INPUT, "tokenizer.ggml.tokens", "metadata key tokenizer.ggml.tokens has %llu tokens, but tensor %s has %d rows",
        (unsigned long long)v->count, roles[R_EMBED].name, a->vocab);
  return true;
}

static bool read_numbers(const mfile *g, const family *f, arch *a, err *e) {
  reader r = {.g = g, .prefix = f->name, .e = e};
  double eps;
  int experts;
  if (!read_int(&r, "expert_count", 0, INT_MAX, 0, &experts)) return false;
  if (experts) return err_param(e, ERR_UNSUPPORTED, r.key, "metadata key %s is %d: mixtures of experts are not supported", r.key, experts);
  if (!read_int(&r, "block_count", 1, LAYERS_MAX, -1, &a->n_layer)) return false;
  if (!read_int(&r, "embedding_length", 1, DIM_MAX, -1, &a->dim)) return false;
  if (!read_int(&r, "feed_forward_length", 1, FFN_MAX, -1, &a->ffn)) return false;
  if (!read_int(&r, "context_length", 1, CTX_MAX, -1, &a->ctx)) return false;
  if (!read_heads(&r, a) || !read_rope(&r, f, a)) return false;
  if (!read_float(&r, "attention.layer_norm_rms_epsilon", 0.0, 1.0, NAN, &eps)) return false;
  a->eps = (float)eps;
  a->act = f->act;
  a->embed_scale = 1.0f;
  if (!read_vocab(g, a, e)) return false;
  if ((int64_t)a->n_head * a->head_dim > Q_DIM_MAX)
    return err_set(e, ERR_INPUT, "%d heads of %d dimensions are more than the bound of %d", a->n_head, a->head_dim, Q_DIM_MAX);
  int64_t widest = a->vocab > a->ffn ? a->vocab : a->ffn, q = size_value(a, S_Q);
  if (q > widest) widest = q;
  if (widest * a->dim > INT32_MAX)
    return err_set(e, ERR_UNSUPPORTED, "a matrix of %lld x %d elements is more than the bound of %d", (long long)widest, a->dim, INT32_MAX);
  return true;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

/* Absence is fine where it is allowed; else the tensor must have its role's shape and a type that can be computed with. */
static bool check_tensor(const mfile *g, const arch *a, arch_role role, int layer, bool (*type_ok)(uint32_t), err *e) {
  const role_row *row = &roles[role];
  char name[64];
  snprintf(name, sizeof name, row->name, layer);
  const mf_tensor *t = arch_tensor(g, a, role, layer);
  if (!t) {
    if (row->need == EITHER || (row->need == BIASES && !a->qkv_bias)) return true;
    return err_param(e, ERR_INPUT, name, "tensor %s is missing: the file does not hold a whole %s model", name, a->family);
  }
  int dims = row->ne1 == S_NONE ? 1 : 2;
  int64_t ne0 = size_value(a, row->ne0), ne1 = size_value(a, row->ne1);
  if (t->n_dims != dims || t->ne[0] != ne0 || t->ne[1] != ne1)
    return err_param(e, ERR_INPUT, name, "tensor %s is %lld x %lld (%d dimensions), expected %lld x %lld (%d)", name, (long long)t->ne[0],
        (long long)t->ne[1], t->n_dims, (long long)ne0, (long long)ne1, dims);
  if (dims == 1 && t->type->id != WT_F32)
    return err_param(e, ERR_UNSUPPORTED, name, "tensor %s is of type %s; vectors are supported as F32 only", name, t->type->name);
  if (dims == 2 && type_ok && !type_ok((uint32_t)t->type->id))
    return err_param(e, ERR_UNSUPPORTED, name, "tensor %s is of type %s, which cannot be computed with here: use another quantization of the model",
        name, t->type->name);
  return true;
}

/* Left behind by old converters; recomputed from the numbers, so they may be there. */
static bool harmless(str name) { return str_ends(name, STR(".rotary_emb.inv_freq")) || str_ends(name, STR(".attn_rot_embd")); }

/* The layer written in a per-layer name and the role it has, or false. */
static bool known_name(const arch *a, str name) {
  if (harmless(name)) return true;
  str rest = name;
  bool layered = str_starts(name, STR("blk."));
  if (layered) {
    str number;
    int64_t layer;
    if (!str_cut((str){name.p + 4, name.n - 4}, '.', &number, &rest) || !str_i64(number, &layer) || layer < 0 || layer >= a->n_layer) return false;
    if (number.p[0] < '0' || (number.p[0] == '0' && number.n > 1)) return false; /* "+1", "01": never looked up, so never run */
  }
  for (int i = 0; i < R_COUNT; i++) {
    if (roles[i].global == layered) continue;
    if (str_is(rest, roles[i].name + (layered ? sizeof "blk.%d." - 1 : 0))) return true;
  }
  return false;
}

static bool check_tensors(const mfile *g, const family *f, arch *a, bool (*type_ok)(uint32_t), err *e) {
  a->tied = !arch_tensor(g, a, R_OUTPUT, 0);
  a->qkv_bias = f->qkv_bias == NEEDED || arch_tensor(g, a, R_Q_BIAS, 0);
  for (int role = 0; role < R_COUNT; role++)
    for (int layer = 0; layer < (roles[role].global ? 1 : a->n_layer); layer++)
      if (!check_tensor(g, a, (arch_role)role, layer, type_ok, e)) return false;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    str n = g->tensors[i].name;
    bool extra_bias = !a->qkv_bias && str_ends(n, STR(".bias")); /* a bias in some layers only */
    if (known_name(a, n) && !extra_bias) continue;
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)(n.n < 64 ? n.n : 64), n.p);
    return err_param(e, ERR_UNSUPPORTED, name, "tensor %s has no place in a %s model of %d layers as it is run here: the answers would be wrong",
        name, a->family, a->n_layer);
  }
  return true;
}

bool arch_read(const mfile *g, bool (*type_ok)(uint32_t wtype), arch *ret, err *e) {
  uint64_t parts = 1;
  if (!mf_u64(g, "split.count", &parts, e)) return false;
  if (parts > 1)
    return err_param(
        e, ERR_UNSUPPORTED, "split.count", "the file is one of %llu parts of a model; join them into one file first", (unsigned long long)parts);
  const family *f = find_family(g, e);
  if (!f) return false;
  arch a = {.family = f->name};
  if (!read_numbers(g, f, &a, e) || !check_tensors(g, f, &a, type_ok, e)) return false;
  *ret = a;
  return true;
}

/* ---- derived figures -------------------------------------------------------------------------------------------------------- */

uint64_t arch_kv_bytes(const arch *a, int elem_bytes) {
  return 2ull * (uint64_t)a->n_layer * (uint64_t)a->n_kv * (uint64_t)a->head_dim * (uint64_t)elem_bytes;
}

uint64_t arch_read_bytes(const mfile *g, const arch *a) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < g->n_tensors; i++) sum += g->tensors[i].bytes;
  const mf_tensor *embed = arch_tensor(g, a, R_EMBED, 0);
  uint64_t row = embed->bytes / (uint64_t)a->vocab;
  /* A tied embedding is read whole as the head, and one row of it again; an embedding of its own only by the row. */
  return sum + row - (a->tied ? 0 : embed->bytes);
}

uint64_t arch_params(const mfile *g) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    const mf_tensor *t = &g->tensors[i];
    sum += t->bytes / (uint64_t)t->type->bytes * (uint64_t)t->type->block;
  }
  return sum;
}
