/* stats.h - samples and what can honestly be said of them: mean, standard deviation, exact percentiles with their intervals.
 * Not a histogram: every sample is kept.
 * Ownership: owns its samples.
 * Threads: one owner.
 * Failure: stats_add returns false when memory is out; the sample is then counted as lost, never silently dropped. */
#ifndef LOAD_STATS_H
#define LOAD_STATS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct stats {
  double *v;
  size_t n, cap, lost;
  bool sorted;
} stats;

void stats_fini(stats *s);
bool stats_add(stats *s, double x);
double stats_mean(const stats *s); /* NAN when empty */
double stats_std(const stats *s);  /* population, as numpy.std and so vLLM's report; NAN when empty */
/* Percentile p in (0, 100): linear interpolation between order statistics (numpy's default). NAN when empty. */
double stats_pct(stats *s, double p);
/* May it be printed? A percentile needs at least 1 / (1 - p) samples: 2, 10, 20, 100 for P50, P90, P95, P99. */
bool stats_pct_ok(const stats *s, double p);
/* 95 % interval of the percentile: two of the samples, whose ranks follow from the binomial distribution whatever the samples' own is.
 * false: too few samples for one. */
bool stats_pct_interval(stats *s, double p, double *lo, double *hi);
#endif
