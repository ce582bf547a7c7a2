/* seq.h - one request inside the engine: its tokens, its KV table, how far it is, and the text it has yet to give out.
 * Not the schedule (schedule.h) and not the arithmetic.
 * Ownership: a seq owns a copy of all that the request said, and a reference on its ticket.
 * Threads: made on the submitter's thread, then the engine thread's alone; the ticket's flag is the only thing shared.
 * Failure: seq_new: ERR_NOMEM. */
#ifndef ENGINE_SEQ_H
#define ENGINE_SEQ_H
#include "base/arena.h"
#include "base/buf.h"
#include "engine/engine.h"
#include "engine/kv.h"
#include <stdatomic.h>

struct eng_ticket {
  atomic_int refs;
  atomic_bool cancel;
};

typedef struct seq {
  struct seq *next; /* waiting list */
  arena mem;
  eng_req req; /* pointers into mem */
  eng_ticket *ticket;
  int32_t *tok;
  int n_tok, n_prompt, max_tok; /* prompt, then output; the end is at max_tok */
  uint8_t *breaker;             /* [max_tok] DRY breakers, or NULL */
  int n_comp;                   /* positions whose K and V lie in pages */
  kv_table kv;
  bool admitted_once, prompt_given, counted, done; /* counted: no longer among the waiting */
  eng_stats st;
  uint64_t order; /* arrival */
  /* text on its way out (output.c) */
  tok_stream det;
  buf pend;     /* text not given out yet: it may be the head of a stop string */
  size_t given; /* bytes of text given out or cut, before pend */
  struct out_tok {
    eng_token t;
    size_t end;
  } * outq;
  int n_outq, cap_outq; /* tokens not reported yet; end: where their text ends */
  eng_lp *lp;
  int n_lp, cap_lp; /* their alternatives */
  eng_token *report;
  /* prompt log-probabilities */
  eng_token *prompt_lp;
  eng_lp *prompt_top;
  /* raw logits for tests: rows from `logits_from` on, [n_prompt, vocab]; chunk overrides the step's */
  float *logits;
  int logits_from, chunk;
  void (*on_logits)(void *ctx);
} seq;

bool seq_new(const eng_req *r, const model *m, const kv_pool *kv, int ctx, seq **ret, err *e);
void seq_free(seq *s);
bool seq_wants_all_rows(const seq *s); /* no cached prefix: every prompt row's logits are needed */

/* output.c: takes a sampled token; gives text out; returns true when a stop string or an end token finished the sequence (*ret_finish). */
typedef struct out_lp {
  float logprob;
  const eng_lp *top;
  int n_top;
} out_lp;
bool out_token(seq *s, const model *m, int32_t token, const out_lp *lp, eng_finish *ret_finish);
void out_prompt(seq *s); /* the ENG_PROMPT event */
void out_done(seq *s, eng_finish f, const err *e);
#endif
