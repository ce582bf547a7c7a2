/* engine.h - runs one model: token ids in, text and tokens out, many requests at a time over paged KV.
 * Not a server (no sockets, no JSON, no templates) and not a gateway.
 * Ownership: engine_submit copies what it needs; a ticket is owned by the caller until eng_ticket_free. The engine borrows the model.
 * Threads: submit, cancel and stats from any thread. Event callbacks run on the engine thread: return quickly, never call back into
 *   the engine except engine_cancel.
 * Failure: engine_submit refuses what cannot run (too long: ERR_CONTEXT with both numbers; queue full: ERR_BUSY). After a true return exactly
 *   one ENG_DONE event follows, whatever happens. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H
#include "base/err.h"
#include "base/str.h"
#include "kern/kern.h"
#include "model/model.h"

typedef struct engine engine;
typedef struct eng_ticket eng_ticket;

typedef struct eng_opts {
  int threads;        /* 0: usable cores */
  const char *isa;    /* NULL: auto */
  int ctx;            /* 0: the model's, capped at 8192 */
  uint64_t kv_budget; /* bytes; 0: the smaller of four contexts and 25 % of the memory allowed */
  int page;           /* tokens a KV page, multiple of 16; 0: 16 */
  int max_seqs;       /* sequences in a batch; 0: 16 */
  int chunk;          /* token budget of a step; 0: 256 */
  int queue;          /* waiting requests; 0: 256 */
  bool act_f32;       /* unrounded activations everywhere, for checking */
  bool kv_f32;        /* F32 KV, for checking */
  bool no_prefix_cache;
  const kern_ops *ops; /* NULL: by isa. Tests plant faulty tables here. */
} eng_opts;

typedef struct eng_bias {
  int32_t token;
  float bias;
} eng_bias;

typedef struct eng_sampling {
  float temperature; /* 0: greedy, lowest id on ties */
  int top_k;         /* <= 0: off */
  float top_p;       /* 1: off */
  float min_p;       /* 0: off */
  float typical_p;   /* 1: off */
  float presence, frequency;
  float repetition; /* 1: off; over prompt and output, as in HF transformers */
  float dry_multiplier, dry_base;
  int dry_allowed_length, dry_last_n; /* multiplier 0: off; last_n -1: whole context */
  uint64_t seed;
  const eng_bias *bias;
  int n_bias;
} eng_sampling;
void eng_sampling_default(eng_sampling *s, const model *m); /* the model's generation defaults, else temperature 1, top_p 1 */

typedef struct eng_lp {
  int32_t token;
  float logprob;
} eng_lp;

typedef struct eng_token {
  int32_t token;
  float logprob; /* natural log, of the model's raw distribution (temperature 1, before any sampling option); NAN: not asked for */
  const eng_lp *top;
  int n_top; /* best first */
} eng_token;

typedef enum eng_finish { ENG_STOP, ENG_LENGTH, ENG_CANCELLED, ENG_ERROR } eng_finish;

typedef struct eng_stats {
  int prompt_tokens, cached_tokens, output_tokens;
  int64_t t_accepted, t_scheduled, t_first, t_last, t_done; /* clock_now(); 0: never happened */
  int64_t t_device;                                         /* ns in running steps, summed */
  const char *stop_text;                                    /* stop string that ended it, or NULL */
  int stop;                                                 /* 1 + its number; 0: none */
} eng_stats;

typedef enum eng_event_kind {
  ENG_PROMPT, /* once, when prompt_logprobs was asked for: tokens = every prompt token; the first has logprob NAN */
  ENG_TEXT,   /* some text became certain; tokens are those whose text is in it or before it and not yet reported;
               * the token that ends an answer (its end, a stop id) is reported too, without text */
  ENG_DONE
} eng_event_kind;

typedef struct eng_event {
  eng_event_kind kind;
  str text; /* whole code points, stop strings never leak; may be empty when tokens is not */
  const eng_token *tokens;
  int n_tokens;
  eng_finish finish;      /* DONE */
  const eng_stats *stats; /* what is known so far; DONE: whole */
  const err *error;       /* DONE with ENG_ERROR */
} eng_event;

typedef struct eng_req {
  const int32_t *tokens;
  int n_tokens;   /* >= 1 */
  int max_tokens; /* -1: to the context's end; 0: score the prompt only */
  int min_tokens;
  eng_sampling s;
  int choice; /* part of the noise key, so that n choices of one seed differ */
  const str *stop;
  int n_stop;
  bool include_stop; /* keep the stop string in the text */
  const int32_t *stop_ids;
  int n_stop_ids;
  bool ignore_eos;
  int top_logprobs;    /* -1: no logprobs; 0: of the chosen token; n: with the n best */
  int prompt_logprobs; /* the same for the prompt; anything but -1 takes no cached prefix for those positions */
  bool keep_special;   /* control tokens appear in text */
  const int32_t *show; /* [n_show] control tokens that appear in text even so */
  int n_show;
  const char *salt; /* tenants never share a prefix by accident; NULL: the common one */
  void (*on_event)(void *ctx, const eng_event *ev);
  void *ctx;
} eng_req;

bool engine_open(const model *m, const eng_opts *o, engine **ret, err *e);
void engine_close(engine *en); /* cancels what runs, waits for the engine thread */
bool engine_submit(engine *en, const eng_req *r, eng_ticket **ret, err *e);
void engine_cancel(eng_ticket *t);   /* any thread, any number of times; work stops within one step */
void eng_ticket_free(eng_ticket *t); /* does not cancel */

enum { ENG_STEP_SIZES = 14 };
typedef struct eng_gauges { /* a snapshot; counters since the start */
  int running, waiting;
  int pages_total, pages_used; /* used: referenced by a running sequence */
  uint64_t prompt_tokens, output_tokens, cached_queries, cached_hits, preemptions, steps, step_tokens;
  uint64_t weight_bytes, kv_bytes, scratch_bytes;
  uint64_t step_sizes[ENG_STEP_SIZES]; /* steps by tokens computed: at most 1, 8, 16, 32, ... 16,384, more */
} eng_gauges;
void engine_gauges(engine *en, eng_gauges *g);
int engine_ctx(const engine *en);
const kern_ops *engine_ops(const engine *en);
void engine_fingerprint(const engine *en, char out[17]); /* hex of hash(weights, kernel table, KV type): system_fingerprint is "fp_" + this */

/* For tests of law 1: raw logits [n, vocab] of every position of one sequence, through the same queue and the same steps as any request, in chunks of
 * at most `chunk` rows (0: the step's own). Blocks. engine_logits_from takes up to `from` tokens (a multiple of the page) from the prefix cache and
 * leaves rows before them untouched; *ret_cached tells how many it found. */
bool engine_logits(engine *en, const int32_t *tokens, int n, int chunk, float *logits, err *e);
bool engine_logits_from(engine *en, const int32_t *tokens, int n, int chunk, int from, float *logits, int *ret_cached, err *e);
#endif
