/* arch.h - what a model is, as numbers: the description that the one forward pass reads.
 * Not code per family: a family is a row of the table in arch.c (key prefix, tensors, defaults); docs/architectures.md shows how one is added.
 * Ownership: a plain struct; names point into constant tables.
 * Threads: immutable after arch_read.
 * Failure: ERR_INPUT naming the key or tensor (value, expected shape), ERR_UNSUPPORTED naming an unknown architecture and the known ones. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H
#include "model/mfile.h"

typedef enum arch_rope { ROPE_PAIRS, ROPE_NEOX } arch_rope; /* (2i, 2i+1) or (i, i + n/2) */
typedef enum arch_act { ACT_SILU, ACT_GELU } arch_act;
typedef enum arch_qk { QK_HEAD, QK_ROW } arch_qk; /* queries and keys are normed head by head, or all heads of a row as one */

/* Roles of tensors. A model has those whose bit is in arch.has; per layer it has a role in every layer or in none. */
typedef enum arch_role {
  /* Global. OUTPUT absent: tied to EMBED. Factors [n_rot/2]: the angle of pair i is divided by factor i; LONG instead of SHORT when sequences may be
   * longer than arch.turn_ctx. */
  R_EMBED,
  R_OUT_NORM,
  R_OUTPUT,
  R_ROPE_FREQS,
  R_ROPE_LONG,
  R_ROPE_SHORT,
  /* Of each layer, in the order in which they are used. A QKV in one tensor (R_QKV, rows of Q, K, V in turn) takes the place of three; a feed-forward
   * may hold gate and up in one (R_GATE_UP, in this order). */
  R_ATTN_NORM,
  R_QKV,
  R_Q,
  R_K,
  R_V,
  R_Q_BIAS,
  R_K_BIAS,
  R_V_BIAS,
  R_Q_NORM,
  R_K_NORM,
  R_ATTN_OUT,
  R_ATTN_OUT_BIAS,
  R_POST_ATTN_NORM, /* of what attention adds to the row */
  R_FFN_NORM,
  R_GATE_UP,
  R_GATE,
  R_UP,
  R_GATE_BIAS,
  R_UP_BIAS,
  R_DOWN,
  R_DOWN_BIAS,
  R_POST_FFN_NORM,
  R_COUNT
} arch_role;
#define ARCH_HAS(role) (UINT64_C(1) << (role))

enum { ARCH_LAYERS = 1024, ARCH_TURNS = 2, ARCH_UNTURNED = -1 };

/* One way for positions to turn. Pair i of n_rot/2 turns by position * base^(-2i/n_rot) * scale; with YaRN the scale is blended in: none for pairs up
 * to yarn_lo, whole from yarn_hi on. */
typedef struct arch_turn {
  double base, scale; /* scale 1: none, 1/4: "linear, factor 4" */
  bool yarn, factors; /* factors: the model's R_ROPE_* apply */
  double yarn_lo, yarn_hi;
  double magnitude; /* cosines and sines are multiplied by it */
} arch_turn;

typedef struct arch_layer {
  int window; /* keys a row sees, itself included; 0: all before it */
  int turn;   /* index into arch.turn, or ARCH_UNTURNED */
} arch_layer;

typedef struct arch {
  const char *family; /* "llama", "qwen2" */
  int n_layer, dim, n_head, n_kv, head_dim, ffn, vocab, ctx;
  uint64_t has; /* bits of roles */
  bool tied;    /* no output tensor: the head is the embedding */
  arch_act act;
  arch_qk qk_norm; /* where there is R_Q_NORM */
  float eps;
  float norm_add; /* added to every norm's weights: 1 where a file stores them without their one */
  /* Embedding rows, attention scores, what a layer adds to the row, and logits are multiplied by these. */
  float embed_scale, attn_scale, residual_scale, logit_scale;
  arch_rope rope;
  int n_rot, n_turns, turn_ctx;
  arch_turn turn[ARCH_TURNS];
  arch_layer layer[ARCH_LAYERS]; /* [n_layer] */
} arch;

/* Reads metadata, applies the family's defaults, then checks that every required tensor is there with the right shape and that every type in use is
 * in `type_ok` (NULL: any). Vectors (norms, biases, rope factors) are F32, F16 or BF16. A tensor or a key that would change the answer and that this
 * description has no place for (experts, soft caps) is refused by name. Bounds: every matrix has at most 2^31 - 1 elements, n_head * head_dim at
 * most 2^20. */
bool arch_read(const mfile *g, bool (*type_ok)(uint32_t wtype), arch *ret, err *e);
/* The tensor for a role (layer ignored for globals); NULL when the model has none. */
const mf_tensor *arch_tensor(const mfile *g, const arch *a, arch_role role, int layer);
/* Where a matrix lies: rows [row0, row0 + rows) of a tensor. R_Q, R_K, R_V, R_GATE and R_UP are found in the fused tensor where there is one. */
typedef struct arch_rows {
  const mf_tensor *t;
  int64_t row0, rows;
} arch_rows;
arch_rows arch_matrix(const mfile *g, const arch *a, arch_role role, int layer);
bool arch_is_norm(arch_role role);
/* How fast pair i turns, without factors: the angle of position p is p times this. */
double arch_speed(const arch *a, const arch_turn *t, int pair);

const char *arch_families(void); /* "llama, qwen2 ..." */
bool arch_known(str name);       /* is one of these */
/* Derived figures. KV bytes per token for 2-byte KV; weight bytes read per decoded token (embedding row only once, head once). */
uint64_t arch_kv_bytes(const arch *a, int elem_bytes);
uint64_t arch_read_bytes(const mfile *g, const arch *a);
uint64_t arch_params(const mfile *g);
#endif
