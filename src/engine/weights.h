/* weights.h - a model's tensors, packed for the kernels: one block of memory, one struct a layer.
 * Not file reading (model/) and not layouts (kern/).
 * Ownership: weights own the packed memory; the model file stays mapped for embedding rows, which are read where they lie.
 * Threads: weights_load uses the pool; immutable afterwards.
 * Failure: ERR_UNSUPPORTED naming a tensor whose type has no layout, ERR_NOMEM. */
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H
#include "kern/kern.h"
#include "kern/pool.h"
#include "model/model.h"

/* Vectors are NULL where the model has none. The description's norm_add is in the norms already. */
typedef struct layer_weights {
  const float *attn_norm, *post_attn, *ffn_norm, *post_ffn; /* [dim] */
  kern_mat q, k, v;                                         /* [n_head*hd, dim], [n_kv*hd, dim] x 2 */
  const float *bq, *bk, *bv;                                /* as wide as their matrices have rows */
  const float *q_norm, *k_norm;                             /* [hd], or [n_head*hd] and [n_kv*hd] (QK_ROW) */
  kern_mat o;                                               /* [dim, n_head*hd] */
  const float *bo;                                          /* [dim] */
  kern_mat gate, up, down;                                  /* [ffn, dim] x 2, [dim, ffn] */
  const float *b_gate, *b_up, *b_down;                      /* [ffn] x 2, [dim] */
} layer_weights;

typedef struct weights {
  layer_weights *layers;                              /* [n_layer] */
  const float *out_norm;                              /* [dim], with the scale of the logits in it */
  const float *rope_factors, *rope_long, *rope_short; /* [n_rot/2] */
  kern_mat head;                                      /* [vocab, dim] */
  const mf_tensor *embed;                             /* rows dequantised on use */
  size_t embed_row;                                   /* bytes of one row in the file */
  uint8_t *mem;
  size_t bytes; /* packed matrices */
  float *vecs;  /* norms, biases, factors */
} weights;

bool weights_type_ok(uint32_t wtype); /* has a packed layout */
bool weights_load(const model *m, pool *p, weights *ret, err *e);
void weights_free(weights *w);
void weights_embed(const weights *w, const arch *a, int32_t token, float *x); /* x [dim] */
#endif
