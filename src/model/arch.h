/* arch.h - what a model is, as numbers: the description that the one forward pass reads.
 * Not code per family: a family is a row of the table in arch.c (key prefix, defaults, kinds, tensor roles).
 * Ownership: a plain struct; names point into constant tables.
 * Threads: immutable after arch_read.
 * Failure: ERR_INPUT naming the key or tensor (value, expected shape), ERR_UNSUPPORTED naming an unknown architecture and the known ones. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H
#include "model/mfile.h"

typedef enum arch_rope { ROPE_PAIRS, ROPE_NEOX } arch_rope; /* (2i, 2i+1) or (i, i + n/2) */
typedef enum arch_act { ACT_SILU, ACT_GELU } arch_act;

/* Roles of tensors. */
typedef enum arch_role {
  /* Global. OUTPUT absent: tied to EMBED. ROPE_FREQS, optional: [n_rot/2], the angle of pair i is divided by factor i. */
  R_EMBED,
  R_OUT_NORM,
  R_OUTPUT,
  R_ROPE_FREQS,
  /* Of each layer. */
  R_ATTN_NORM,
  R_Q,
  R_K,
  R_V,
  R_Q_BIAS,
  R_K_BIAS,
  R_V_BIAS,
  R_ATTN_OUT,
  R_FFN_NORM,
  R_GATE,
  R_UP,
  R_DOWN,
  R_COUNT
} arch_role;

typedef struct arch {
  const char *family; /* "llama", "qwen2" */
  int n_layer, dim, n_head, n_kv, head_dim, ffn, vocab, ctx;
  int n_rot;
  arch_rope rope;
  double rope_base, rope_scale; /* positions are multiplied by rope_scale before they turn; 1 = none, 1/4 = "linear, factor 4" */
  float eps;
  arch_act act;
  bool tied; /* no output tensor: the head is the embedding */
  bool qkv_bias;
  float embed_scale, attn_scale; /* 1 and 1/sqrt(head_dim) unless the family says otherwise */
} arch;

/* Reads metadata, applies the family's defaults, then checks that every required tensor is there with the right shape and that every type in use is
 * in `type_ok` (NULL: any). Vectors (norms, biases, rope factors) are always F32. A tensor or a key that would change the answer and that this
 * description has no place for (experts, other biases, YaRN) is refused by name. Bounds: every matrix has at most 2^31 - 1 elements, n_head *
 * head_dim at most 2^20. */
bool arch_read(const mfile *g, bool (*type_ok)(uint32_t wtype), arch *ret, err *e);
/* The tensor for a role (layer ignored for globals); NULL when an optional one is absent. */
const mf_tensor *arch_tensor(const mfile *g, const arch *a, arch_role role, int layer);
const char *arch_families(void); /* "llama, qwen2" */
bool arch_known(str name);       /* is one of these */
/* Derived figures. KV bytes per token for 2-byte KV; weight bytes read per decoded token (embedding row only once, head once). */
uint64_t arch_kv_bytes(const arch *a, int elem_bytes);
uint64_t arch_read_bytes(const mfile *g, const arch *a);
uint64_t arch_params(const mfile *g);
#endif
