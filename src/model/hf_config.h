/* hf_config.h - what transformers writes beside a model's weights, read as GGUF's metadata: config.json, generation_config.json, tensor names.
 * Not a reader of tensors (safetensors.h) and no judge of what can be run (arch.h): a family that is not known here passes with its own name, and
 *   arch_read refuses it. What a known family's config says and GGUF's metadata cannot, or would say otherwise, is refused by name.
 * Ownership: everything goes into the mfile; an hf_config borrows from constant tables.
 * Threads: any; no state.
 * Failure: ERR_INPUT or ERR_UNSUPPORTED naming the field or tensor and what was expected. */
#ifndef MODEL_HF_CONFIG_H
#define MODEL_HF_CONFIG_H
#include "base/json.h"
#include "model/mfile.h"

/* Metadata of ours in a folder; GGUF has no name for the last two. */
#define HF_KEY_TOKENIZER "tokenizer.huggingface.json"     /* tokenizer.json, whole */
#define HF_KEY_TOK_CONFIG "tokenizer.huggingface.config"  /* tokenizer_config.json, whole */
#define HF_KEY_ENDS "tokenizer.huggingface.eos_token_ids" /* i32 array: every token that ends an answer */

typedef struct hf_config {
  const struct hf_family *family; /* NULL: not known here */
  int n_layer;
  int64_t vocab;
  bool tied, attn_bias, mlp_bias;
} hf_config;

/* Adds metadata, and tensors that are computed from numbers (RoPE's factors). `generation` may be NULL. */
bool hf_config_read(mfile *g, json_t *config, json_t *generation, hf_config *ret, err *e);

const char *hf_arch(str model_type); /* GGUF's name of the architecture; NULL when the type is not known here */

typedef enum hf_fate { HF_TAKE, HF_SKIP, HF_TIED_HEAD /* an output matrix although the config ties it to the embedding */ } hf_fate;
/* GGUF's name of a tensor. A name that is not known stays as it is: arch_read will say that it has no place. */
bool hf_tensor_name(const hf_config *c, str name, char out[MF_NAME + 1], hf_fate *ret, err *e);
#endif
