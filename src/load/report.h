/* report.h - a load result for people (table) and for scripts (vLLM's flat benchmark JSON).
 * Not the measurement.
 * Ownership: borrows; report_json gives a new reference.
 * Threads: any, one at a time: percentiles sort the samples.
 * Failure: report_json gives NULL when memory is out. */
#ifndef LOAD_REPORT_H
#define LOAD_REPORT_H
#include "load/driver.h"
#include <jansson.h>
#include <stdio.h>

void report_table(FILE *out, const load_opts *o, load_result *r);
/* Keys as `vllm bench serve --save-result` names them: tpot is per request without the first token (weir's ITL), itl each gap (weir's ICL). What is
 * n/a for want of samples is null. What vLLM has no key for is in the object "weir" (docs/bench.md). */
json_t *report_json(const load_opts *o, load_result *r);
#endif
