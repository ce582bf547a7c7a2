/* sample.h - logits to a token: a pure function of (logits, options, history, seed, choice, position).
 * Not a state machine: no generator is advanced; the same call gives the same token whoever else is in the batch.
 * Ownership: sampler_work is one thread's scratch. Threads: one per work.
 * Failure: none. Logits that are all -inf or NaN give token 0 (which the engine takes for what it is: a damaged model). Nothing here takes memory but
 * sampler_work_init.
 *
 * Order: bias, penalties, temperature, top_k, typical, top_p, min_p, noise, argmax. Noise is Gumbel(0,1) per token (Gumbel-max: argmax of logit/T + g
 * is a draw from soft-max), g = -log(-log u), u from Philox4x32-10 with key (seed) and counter (token / 4, position, choice, position >> 32), word
 * token mod 4. */
#ifndef ENGINE_SAMPLE_H
#define ENGINE_SAMPLE_H
#include "engine/engine.h"

typedef struct sample_cand {
  int32_t id;
  float v;
} sample_cand;

typedef struct sampler_work {
  float *peak;       /* [vocab / KERN_PEAK] largest logit of each run */
  float *logits;     /* [vocab] changed copy */
  sample_cand *cand; /* [vocab] */
  int32_t *dry;      /* [max history] */
  int dry_cap;
} sampler_work;

bool sampler_work_init(sampler_work *w, int vocab, int ctx);
void sampler_work_fini(sampler_work *w);

typedef struct sample_in {
  const float *logits; /* [vocab], raw; not changed */
  int vocab;
  const eng_sampling *s;
  const int32_t *history;
  int n_history, n_prompt; /* prompt, then output */
  const uint8_t *breaker;  /* [n_history] 1: a repetition does not reach over this token, and DRY never penalises it; NULL without DRY */
  const int32_t *ban;
  int n_ban; /* tokens that may not come (end tokens before min_tokens) */
  int choice;
  int64_t position; /* absolute position of the token to be drawn */
} sample_in;

int32_t sample_token(const kern_ops *ops, sampler_work *w, const sample_in *in);

/* Log-probabilities of the raw distribution: of `token`, and of the n_top best (best first, lowest id on ties; NaN last).
 * n_top <= vocab. */
float sample_logprobs(const kern_ops *ops, sampler_work *w, const float *logits, int vocab, int32_t token, eng_lp *top, int n_top);
double sample_gumbel(uint64_t seed, int choice, int64_t position, int32_t token); /* for tests */
#endif
