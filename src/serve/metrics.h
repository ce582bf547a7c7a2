/* metrics.h - what /metrics tells: counters and histograms under vLLM's names and buckets, and our own under weir_.
 * Not the ledger (one row per request) and not the engine's own counters, which come as a snapshot when the page is written.
 * Ownership: owns its arrays.
 * Threads: the loop's thread.
 * Failure: metrics_new returns NULL when memory is out; labels over the table's bound are counted under "other". */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H
#include "base/buf.h"
#include "engine/engine.h"

typedef enum metrics_hist {
  HIST_TTFT,
  HIST_ITL,
  HIST_TPOT,
  HIST_E2E,
  HIST_QUEUE,
  HIST_PREFILL,
  HIST_DECODE,
  HIST_INFERENCE,
  HIST_PROMPT,
  HIST_GENERATION,
  HIST_OVERHEAD,
  HIST_COUNT
} metrics_hist;

typedef enum metrics_reason { REASON_STOP, REASON_LENGTH, REASON_ABORT, REASON_ERROR, REASON_COUNT } metrics_reason;

typedef struct metrics metrics;
metrics *metrics_new(void);
void metrics_free(metrics *m);
void metrics_observe(metrics *m, metrics_hist h, double v);                         /* seconds or tokens */
void metrics_finish(metrics *m, metrics_reason r);                                  /* one sequence ended */
void metrics_request(metrics *m, const char *route, const char *backend, int code); /* one request was answered; strings live as long as m */
uint64_t metrics_count(const metrics *m, metrics_hist h);

/* What the page needs besides: the model's name, its context and the engine's snapshot (zeros while loading). */
typedef struct metrics_state {
  const char *model;
  int ctx;
  bool ready;
  eng_gauges g;
} metrics_state;
void metrics_write(const metrics *m, const metrics_state *s, buf *out);
#endif
