/* arch_impl.h - what arch.c and arch_num.c share: the row of a family.
 * Not for others: arch.h is.
 * Ownership: constants.
 * Threads: any.
 * Failure: as arch.h. */
#ifndef MODEL_ARCH_IMPL_H
#define MODEL_ARCH_IMPL_H
#include "model/arch.h"

/* Layers with a window, when the file's keys do not list them. */
enum { SLIDE_ALL = 0, SLIDE_UNSAID = -1 /* a window without a list is refused */ };

typedef struct family {
  const char *name;    /* general.architecture, and the prefix of its keys */
  uint64_t needs, may; /* roles beyond those of every model; what it may have, it has in every layer or in none */
  arch_rope rope;      /* of a GGUF file: llama's hold q and k with their rows permuted, so that pairs lie side by side */
  arch_act act;
  arch_qk qk_norm;
  bool fused;           /* QKV, and gate with up, may be one tensor each */
  bool norm_less_one;   /* transformers stores norm weights without their one */
  bool embed_by_width;  /* embedding rows are multiplied by sqrt(dim) */
  bool finetuned_turns; /* rope.scaling.finetuned = false: no layer is turned */
  bool local_turn;      /* windowed layers turn by a base of their own, unscaled */
  int slide_period;     /* n: all but each n-th layer have the window */
  int unturned_period;  /* n: each n-th layer is not turned */
  int width_scale_at;   /* a model of this many layers scales scores by 1/sqrt(dim / n_head) */
  double rope_base;     /* when the file states none */
  double local_base;    /* the same of windowed layers; 0: the model's own */
} family;

bool arch_numbers(const mfile *g, const family *f, arch *a, err *e); /* all but has and tied; has must say which factors there are */
#endif
