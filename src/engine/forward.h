/* forward.h - one forward pass over a batch of rows from any number of sequences, through the description in arch.h.
 * Not a schedule (it computes the rows it is given), not sampling, and no code per model family.
 * Ownership: forward owns its scratch, sized once for max_rows; it borrows weights, pool, KV pool and page tables.
 * Threads: the engine thread calls; inside, the kernel pool's threads share each phase by static tiles.
 * Failure: forward_init: ERR_NOMEM. A step cannot fail. The step path allocates nothing. */
#ifndef ENGINE_FORWARD_H
#define ENGINE_FORWARD_H
#include "engine/kv.h"
#include "engine/weights.h"

/* Rows of one sequence that follow each other: positions pos0 .. pos0 + n - 1, tokens tokens[0..n). */
typedef struct fwd_seg {
  const int32_t *tokens;
  const int32_t *pages; /* the sequence's page table; pages up to pos0 + n - 1 are there */
  int pos0, n;
} fwd_seg;

enum { FWD_MAX_THREADS = 256 }; /* a pool larger than that is the caller's mistake */
typedef struct forward forward;
/* far: RoPE by the factors for long contexts, where the model has them. */
bool forward_new(const model *m, const weights *w, const kern_ops *ops, pool *p, kv_pool *kv, int max_rows, int max_segs, int ctx, bool act_f32,
    bool far, forward **ret, err *e);
void forward_free(forward *f);
size_t forward_bytes(const forward *f);

/* Runs segs[0..n_seg) (at most max_rows rows in all). out_rows: ascending batch row numbers whose logits will be asked for. */
void forward_step(forward *f, const fwd_seg *segs, int n_seg, const int *out_rows, int n_out);
/* Logits of out rows [i0, i0 + n) of the last step, n <= FWD_HEAD_ROWS: [n, vocab], valid until the next call. */
enum { FWD_HEAD_ROWS = 16 };
float *forward_logits(forward *f, int i0, int n);
#endif
