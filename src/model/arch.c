/* A family is one row of `families`, a tensor one row of `roles`. Reading goes: family, which tensors there are, numbers (arch_num.c), shapes.
 * Whatever the one forward pass cannot honour is refused by name, so that a model either runs right or not at all. */
#include "model/arch_impl.h"
#include <stdio.h>
#include <string.h>
#include <threads.h>

#define HAS2(a, b) (ARCH_HAS(a) | ARCH_HAS(b))
#define HAS3(a, b, c) (HAS2(a, b) | ARCH_HAS(c))
#define EVERY_MODEL (HAS3(R_EMBED, R_OUT_NORM, R_ATTN_OUT) | HAS3(R_Q, R_K, R_V) | HAS3(R_GATE, R_UP, R_DOWN))
#define ANY_MODEL (HAS2(R_OUTPUT, R_ROPE_FREQS) | HAS2(R_ROPE_LONG, R_ROPE_SHORT))
#define PRE_NORMS HAS2(R_ATTN_NORM, R_FFN_NORM)
#define POST_NORMS HAS2(R_POST_ATTN_NORM, R_POST_FFN_NORM)
#define QK_NORMS HAS2(R_Q_NORM, R_K_NORM)
#define QKV_BIASES HAS3(R_Q_BIAS, R_K_BIAS, R_V_BIAS)
#define BIASES (QKV_BIASES | ARCH_HAS(R_ATTN_OUT_BIAS) | HAS3(R_GATE_BIAS, R_UP_BIAS, R_DOWN_BIAS))

static const family families[] = {
    {.name = "llama", .needs = PRE_NORMS, .may = BIASES, .rope = ROPE_PAIRS, .rope_base = 1e4},
    {.name = "qwen2", .needs = PRE_NORMS | QKV_BIASES, .rope = ROPE_NEOX, .rope_base = 1e4, .slide_period = SLIDE_UNSAID},
    {.name = "qwen3", .needs = PRE_NORMS | QK_NORMS, .may = BIASES, .rope = ROPE_NEOX, .rope_base = 1e4, .slide_period = SLIDE_UNSAID},
    /* Of the released sizes only the 27B, told by its 62 layers, scales scores by something else than its heads' width. */
    {.name = "gemma3",
        .needs = PRE_NORMS | POST_NORMS | QK_NORMS,
        .rope = ROPE_NEOX,
        .act = ACT_GELU,
        .norm_less_one = true,
        .embed_by_width = true,
        .local_turn = true,
        .slide_period = 6,
        .width_scale_at = 62,
        .rope_base = 1e6,
        .local_base = 1e4},
    {.name = "phi3", .needs = PRE_NORMS, .rope = ROPE_NEOX, .fused = true, .rope_base = 1e4},
    {.name = "granite", .needs = PRE_NORMS, .may = BIASES, .rope = ROPE_PAIRS, .finetuned_turns = true, .rope_base = 1e4},
    /* OLMo 3 is told as olmo2 with windows. */
    {.name = "olmo2", .needs = POST_NORMS | QK_NORMS, .rope = ROPE_NEOX, .qk_norm = QK_ROW, .local_turn = true, .slide_period = 4, .rope_base = 1e4},
    {.name = "smollm3", .needs = PRE_NORMS, .may = BIASES, .rope = ROPE_PAIRS, .unturned_period = 4, .rope_base = 1e4},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Sizes a shape is written in. S_Q_NORM, S_K_NORM: a head's width, or all heads' where a row is normed as one. */
typedef enum size_of { S_NONE, S_DIM, S_Q, S_KV, S_QKV, S_FFN, S_FFN2, S_VOCAB, S_ROT2, S_Q_NORM, S_K_NORM } size_of;

typedef struct role_row {
  const char *name; /* with the layer's number where %d stands */
  size_of ne0, ne1; /* ne1 S_NONE: a vector */
} role_row;

static const role_row roles[R_COUNT] = {
    [R_EMBED] = {"token_embd.weight", S_DIM, S_VOCAB},
    [R_OUT_NORM] = {"output_norm.weight", S_DIM, S_NONE},
    [R_OUTPUT] = {"output.weight", S_DIM, S_VOCAB},
    [R_ROPE_FREQS] = {"rope_freqs.weight", S_ROT2, S_NONE},
    [R_ROPE_LONG] = {"rope_factors_long.weight", S_ROT2, S_NONE},
    [R_ROPE_SHORT] = {"rope_factors_short.weight", S_ROT2, S_NONE},
    [R_ATTN_NORM] = {"blk.%d.attn_norm.weight", S_DIM, S_NONE},
    [R_QKV] = {"blk.%d.attn_qkv.weight", S_DIM, S_QKV},
    [R_Q] = {"blk.%d.attn_q.weight", S_DIM, S_Q},
    [R_K] = {"blk.%d.attn_k.weight", S_DIM, S_KV},
    [R_V] = {"blk.%d.attn_v.weight", S_DIM, S_KV},
    [R_Q_BIAS] = {"blk.%d.attn_q.bias", S_Q, S_NONE},
    [R_K_BIAS] = {"blk.%d.attn_k.bias", S_KV, S_NONE},
    [R_V_BIAS] = {"blk.%d.attn_v.bias", S_KV, S_NONE},
    [R_Q_NORM] = {"blk.%d.attn_q_norm.weight", S_Q_NORM, S_NONE},
    [R_K_NORM] = {"blk.%d.attn_k_norm.weight", S_K_NORM, S_NONE},
    [R_ATTN_OUT] = {"blk.%d.attn_output.weight", S_Q, S_DIM},
    [R_ATTN_OUT_BIAS] = {"blk.%d.attn_output.bias", S_DIM, S_NONE},
    [R_POST_ATTN_NORM] = {"blk.%d.post_attention_norm.weight", S_DIM, S_NONE},
    [R_FFN_NORM] = {"blk.%d.ffn_norm.weight", S_DIM, S_NONE},
    [R_GATE_UP] = {"blk.%d.ffn_up.weight", S_DIM, S_FFN2},
    [R_GATE] = {"blk.%d.ffn_gate.weight", S_DIM, S_FFN},
    [R_UP] = {"blk.%d.ffn_up.weight", S_DIM, S_FFN},
    [R_GATE_BIAS] = {"blk.%d.ffn_gate.bias", S_FFN, S_NONE},
    [R_UP_BIAS] = {"blk.%d.ffn_up.bias", S_FFN, S_NONE},
    [R_DOWN] = {"blk.%d.ffn_down.weight", S_FFN, S_DIM},
    [R_DOWN_BIAS] = {"blk.%d.ffn_down.bias", S_DIM, S_NONE},
    [R_POST_FFN_NORM] = {"blk.%d.post_ffw_norm.weight", S_DIM, S_NONE},
};

static bool global(arch_role role) { return role < R_ATTN_NORM; }
static bool has(const arch *a, arch_role role) { return a->has & ARCH_HAS(role); }
bool arch_is_norm(arch_role role) { return (PRE_NORMS | POST_NORMS | QK_NORMS | ARCH_HAS(R_OUT_NORM)) & ARCH_HAS(role); }

static int64_t size_value(const arch *a, size_of s) {
  int64_t q = (int64_t)a->n_head * a->head_dim, kv = (int64_t)a->n_kv * a->head_dim;
  bool by_head = a->qk_norm == QK_HEAD;
  switch (s) {
  case S_DIM: return a->dim;
  case S_Q: return q;
  case S_KV: return kv;
  case S_QKV: return q + 2 * kv;
  case S_FFN: return a->ffn;
  case S_FFN2: return 2 * (int64_t)a->ffn;
  case S_VOCAB: return a->vocab;
  case S_ROT2: return a->n_rot / 2;
  case S_Q_NORM: return by_head ? a->head_dim : q;
  case S_K_NORM: return by_head ? a->head_dim : kv;
  case S_NONE: break;
  }
  return 1;
}

/* ---- families --------------------------------------------------------------------------------------------------------------- */

static char family_list[N_FAMILIES * 16];
static once_flag list_once = ONCE_FLAG_INIT;
static void list_families(void) {
  for (int i = 0, n = 0; i < N_FAMILIES && n < (int)sizeof family_list; i++)
    n += snprintf(family_list + n, sizeof family_list - (size_t)n, "%s%s", i ? ", " : "", families[i].name);
}
const char *arch_families(void) {
  call_once(&list_once, list_families);
  return family_list;
}

static const family *family_of(str name) {
  for (int i = 0; i < N_FAMILIES; i++)
    if (str_is(name, families[i].name)) return &families[i];
  return NULL;
}

bool arch_known(str name) { return family_of(name) != NULL; }

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

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

static const mf_tensor *find_role(const mfile *g, arch_role role, int layer) {
  char name[64];
  snprintf(name, sizeof name, roles[role].name, layer);
  return mf_find(g, global(role) ? roles[role].name : name);
}

const mf_tensor *arch_tensor(const mfile *g, const arch *a, arch_role role, int layer) {
  if (!has(a, role) || (!global(role) && (layer < 0 || layer >= a->n_layer))) return NULL;
  return find_role(g, role, layer);
}

arch_rows arch_matrix(const mfile *g, const arch *a, arch_role role, int layer) {
  int64_t row0 = 0;
  arch_role in = role;
  if (has(a, R_QKV) && (role == R_Q || role == R_K || role == R_V)) {
    in = R_QKV;
    if (role != R_Q) row0 = size_value(a, S_Q) + (role == R_V ? size_value(a, S_KV) : 0);
  } else if (has(a, R_GATE_UP) && (role == R_GATE || role == R_UP)) {
    in = R_GATE_UP;
    row0 = role == R_UP ? a->ffn : 0;
  }
  return (arch_rows){arch_tensor(g, a, in, layer), row0, size_value(a, roles[role].ne1)};
}

/* What the first layer has of what the family may have, every layer must have. */
static void find_roles(const mfile *g, const family *f, arch *a) {
  a->has = EVERY_MODEL | f->needs;
  if (f->fused && find_role(g, R_QKV, 0)) a->has = (a->has & ~HAS3(R_Q, R_K, R_V)) | ARCH_HAS(R_QKV);
  if (f->fused && !find_role(g, R_GATE, 0)) a->has = (a->has & ~HAS2(R_GATE, R_UP)) | ARCH_HAS(R_GATE_UP);
  for (int r = 0; r < R_COUNT; r++)
    if (((f->may | ANY_MODEL) & ARCH_HAS(r)) && find_role(g, (arch_role)r, 0)) a->has |= ARCH_HAS(r);
  a->tied = !has(a, R_OUTPUT);
}

static bool vector_type(wtype t) { return t == WT_F32 || t == WT_F16 || t == WT_BF16; }

/* The tensor of a role that the model has: it must be there with its role's shape and a type that can be computed with. */
static bool check_tensor(const mfile *g, const arch *a, arch_role role, int layer, bool (*type_ok)(uint32_t), err *e) {
  const role_row *row = &roles[role];
  char name[64];
  snprintf(name, sizeof name, row->name, layer);
  const mf_tensor *t = arch_tensor(g, a, role, layer);
  if (!t) return err_param(e, ERR_INPUT, name, "tensor %s is missing: the file does not hold a whole %s model", name, a->family);
  int dims = row->ne1 == S_NONE ? 1 : 2;
  int64_t ne0 = size_value(a, row->ne0), ne1 = size_value(a, row->ne1);
  if (t->n_dims != dims || t->ne[0] != ne0 || t->ne[1] != ne1)
    return err_param(e, ERR_INPUT, name, "tensor %s is %lld x %lld (%d dimensions), expected %lld x %lld (%d)", name, (long long)t->ne[0],
        (long long)t->ne[1], t->n_dims, (long long)ne0, (long long)ne1, dims);
  if (dims == 1 && !vector_type((wtype)t->type->id))
    return err_param(e, ERR_UNSUPPORTED, name, "tensor %s is of type %s; vectors are supported as F32, F16 and BF16 only", name, t->type->name);
  if (dims == 2 && type_ok && !type_ok((uint32_t)t->type->id))
    return err_param(e, ERR_UNSUPPORTED, name, "tensor %s is of type %s, which cannot be computed with here: use another quantization of the model",
        name, t->type->name);
  return true;
}

/* Left behind by old converters; recomputed from the numbers, so they may be there. */
static bool harmless(str name) { return str_ends(name, STR(".rotary_emb.inv_freq")) || str_ends(name, STR(".attn_rot_embd")); }

/* Is it the name of a role that the model has, in a layer that it has? */
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
    if (!has(a, (arch_role)i) || global((arch_role)i) == layered) continue;
    if (str_is(rest, roles[i].name + (layered ? sizeof "blk.%d." - 1 : 0))) return true;
  }
  return false;
}

static bool check_factors(const arch *a, err *e) {
  bool is_long = has(a, R_ROPE_LONG), is_short = has(a, R_ROPE_SHORT);
  arch_role one = is_long ? R_ROPE_LONG : R_ROPE_SHORT, other = is_long ? R_ROPE_SHORT : R_ROPE_LONG;
  if (is_long != is_short)
    return err_param(e, ERR_INPUT, roles[other].name, "tensor %s is missing beside %s: the file does not hold a whole %s model", roles[other].name,
        roles[one].name, a->family);
  return !is_long || !has(a, R_ROPE_FREQS) ||
         err_param(e, ERR_UNSUPPORTED, roles[R_ROPE_FREQS].name, "tensor %s has no place beside %s", roles[R_ROPE_FREQS].name, roles[one].name);
}

static bool check_tensors(const mfile *g, const arch *a, bool (*type_ok)(uint32_t), err *e) {
  for (int role = 0; role < R_COUNT; role++)
    for (int layer = 0; has(a, (arch_role)role) && layer < (global((arch_role)role) ? 1 : a->n_layer); layer++)
      if (!check_tensor(g, a, (arch_role)role, layer, type_ok, e)) return false;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    str n = g->tensors[i].name;
    if (known_name(a, n)) continue;
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)(n.n < 64 ? n.n : 64), n.p);
    return err_param(e, ERR_UNSUPPORTED, name, "tensor %s has no place in a %s model of %d layers as it is run here: the answers would be wrong",
        name, a->family, a->n_layer);
  }
  return check_factors(a, e);
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
  find_roles(g, f, &a);
  if (!arch_numbers(g, f, &a, e) || !check_tensors(g, &a, type_ok, e)) return false;
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
