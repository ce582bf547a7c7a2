/* driver.h - sends requests to an OpenAI-compatible URL and takes the time of each: first form, a closed loop of N users.
 * Not a client library and not the report (report.h).
 * Ownership: load_run fills a load_result that the caller frees.
 * Threads: the caller's thread becomes the loop's for the length of the run. SIGINT ends the run early; what was measured is kept.
 * Failure: false when the measurement could not begin (bad URL, probe refused, SIGINT before it). Once it has, a failed request is counted by its
 * reason and never in the latencies, and load_run returns true even when all of them failed. */
#ifndef LOAD_DRIVER_H
#define LOAD_DRIVER_H
#include "api/openai_target.h"
#include "base/err.h"
#include "load/stats.h"
#include <stdint.h>

typedef struct load_opts {
  const char *url;   /* base URL, as openai_target.h reads it */
  const char *model; /* NULL: the first the server lists */
  const char *key;   /* bearer key or NULL; never printed */
  bool completions;  /* /v1/completions instead of chat */
  bool no_stream;
  bool ignore_eos;
  int concurrency, requests, warmup, input_tokens, output_tokens;
  double temperature;
  uint64_t seed;
  bool quiet; /* no progress line */
} load_opts;

enum { LOAD_ERR_KINDS = 8 };
typedef struct load_error {
  char what[160];
  int n;
} load_error;

typedef struct load_result {
  char url[TARGET_URL], model[256];                   /* url: for people, without user and password */
  stats ttft, itl, icl, tpot, e2e;                    /* ms; itl is (last - first)/(n - 1) of a request, icl each gap between chunks, tpot e2e/n */
  int sent, completed, failed, interrupted;           /* sent is the sum of the other three */
  int64_t input_tokens, cached_tokens, output_tokens; /* of completed requests */
  int without_usage; /* completed requests whose server told no token counts: input unknown, output counted in chunks */
  bool uncalibrated; /* the probes came without usage: prompts have as many words as tokens were asked for */
  double span_s;     /* first sent .. last done, completed or failed */
  load_error errors[LOAD_ERR_KINDS];
  int n_errors;
} load_result;

bool load_run(const load_opts *o, load_result *ret, err *e);
void load_result_fini(load_result *r);
#endif
