/* schedule.h (not sched.h: that would hide the system header) - which rows the next step computes: decode rows first, then chunks of prompts, under
 * one token budget. Not the computation: it knows counts, pages and order, so that a fake model and a fake clock can drive it. Ownership: borrows
 * sequences while they wait or run; the caller frees them when they are done. Threads: the engine thread only. Failure: none; what does not fit
 * waits. Out of pages: the latest arrival is preempted (its pages go back, it is computed again later; law 1 makes that invisible but for time). The
 * caller guarantees that any one sequence fits the pool alone. */
#ifndef ENGINE_SCHEDULE_H
#define ENGINE_SCHEDULE_H
#include "engine/seq.h"

typedef struct sched_row {
  seq *s;
  int n;
} sched_row; /* compute positions s->n_comp .. + n - 1 */

typedef struct sched {
  kv_pool *kv;
  int max_seqs, chunk; /* bounds of a step: sequences, rows */
  int mixed_chunk;     /* rows of prompt beside running decodes: what keeps a long prompt from stalling them */
  seq *wait_head, *wait_tail;
  int n_wait;
  seq **run;
  int n_run;   /* in order of arrival */
  seq **order; /* scratch of one plan */
  int turn;    /* whose prompt comes first this step */
  sched_row *plan;
  int n_plan;
  uint64_t preemptions, queries, hits; /* prefix cache: tokens asked for, tokens found */
} sched;

bool sched_init(sched *s, kv_pool *kv, int max_seqs, int chunk);
void sched_fini(sched *s);
void sched_add(sched *s, seq *q);  /* to the end of the queue */
void sched_drop(sched *s, seq *q); /* out of queue or batch; its pages go back at once */
/* Fills plan; returns rows in all (0: nothing to do). */
int sched_plan(sched *s);
#endif
