/* serve_opts.h - the options of `weir serve` and `weir up`: one struct, one table of rows for both.
 * Not their meaning: run.h does what they say.
 * Ownership: as opt.h.
 * Threads: start-up only.
 * Failure: as opt.h. */
#ifndef SERVE_SERVE_OPTS_H
#define SERVE_SERVE_OPTS_H
#include "base/opt.h"

typedef struct serve_opts {
  const char *config;
  const char *model; /* up: --model; serve: its argument */
  const char *host;
  int64_t port;
  const char *served_name, *key_file;
  bool insecure, offline, accept_licence;
  int64_t threads, ctx, page, max_seqs, chunk, queue, max_conns, max_n;
  const char *isa;
  uint64_t kv_budget, max_body;
  int act, kv_type; /* indexes into "auto,f32" and "f16,f32" */
  bool prefix_cache;
  int log_level, log_format;
} serve_opts;

extern const opt_row serve_rows[]; /* weir serve */
extern const opt_row up_rows[];    /* weir up: the same and --model */
#endif
