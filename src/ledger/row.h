/* row.h - the record of a request: every column with its type and meaning, in one list that struct, journal, stores and exports are made from.
 * Not a table in a database (store.h) and not arithmetic on money (price.h).
 * Ownership: a row's strings are borrowed; led_unpack points them into the packed bytes.
 * Threads: plain values.
 * Failure: led_unpack: ERR_INPUT on bytes that are no row. A string over its bound is cut at a code point when packed. */
#ifndef LEDGER_ROW_H
#define LEDGER_ROW_H
#include "base/buf.h"
#include "base/err.h"
#include <math.h>

/* Types: WORD is a text of few different values (stores number them), TEXT any other, INT a whole number, REAL a double.
 * Absent: p NULL, LED_NULL, NAN. Money is in nano-dollars, times in nanoseconds. New columns go to the end: packed rows know them by number. */
#define LED_COLUMNS(X)                                                                                                                               \
  X(TEXT, id, "the X-Request-Id")                                                                                                                    \
  X(TEXT, attempt_of, "id of the request that this one retries or hedges")                                                                           \
  X(TEXT, parent_id, "id of the request that led to this one (agent loop, cascade)")                                                                 \
  X(TEXT, trace_id, "the user's action that this request is part of")                                                                                \
  X(TEXT, task_id, "the task that succeeds or fails as a whole")                                                                                     \
  X(INT, ts, "wall clock at the opening, Unix nanoseconds")                                                                                          \
  X(WORD, observer, "who measured: gateway, server, client")                                                                                         \
  X(WORD, kind, "live, bench, eval, shadow")                                                                                                         \
  X(WORD, tenant, "who pays")                                                                                                                        \
  X(WORD, key_id, "the key that was used, by its name")                                                                                              \
  X(TEXT, user, "end user, as the client names it")                                                                                                  \
  X(WORD, feature, "part of the product")                                                                                                            \
  X(WORD, task, "kind of work: chat, search, ...")                                                                                                   \
  X(TEXT, tags, "other tags, a JSON object")                                                                                                         \
  X(WORD, route, "path that was asked")                                                                                                              \
  X(WORD, requested_model, "model the client named")                                                                                                 \
  X(WORD, model, "model that answered")                                                                                                              \
  X(WORD, backend, "which backend answered")                                                                                                         \
  X(WORD, provider, "whose it is")                                                                                                                   \
  X(WORD, region, "where it ran")                                                                                                                    \
  X(WORD, dialect, "openai-chat, anthropic-messages, ...")                                                                                           \
  X(INT, stream, "1: streamed")                                                                                                                      \
  X(INT, attempt, "1 for the first")                                                                                                                 \
  X(WORD, outcome, "ok, error, cancelled, rejected, cached, lost")                                                                                   \
  X(INT, http_status, "status sent; 499: the client left")                                                                                           \
  X(WORD, error_code, "kind of error")                                                                                                               \
  X(WORD, finish_reason, "of the first choice")                                                                                                      \
  X(INT, input_fresh, "input tokens computed, or billed at the full price")                                                                          \
  X(INT, input_cached, "input tokens from a cache")                                                                                                  \
  X(INT, cache_write_5m, "input tokens written to a cache of 5 minutes")                                                                             \
  X(INT, cache_write_1h, "input tokens written to a cache of an hour")                                                                               \
  X(INT, in_system, "input tokens of system messages and of the template")                                                                           \
  X(INT, in_tools, "input tokens of tools' schemas, calls and results")                                                                              \
  X(INT, in_context, "input tokens of documents given as context")                                                                                   \
  X(INT, in_history, "input tokens of earlier turns, sent again")                                                                                    \
  X(INT, in_user, "input tokens of the last user message")                                                                                           \
  X(INT, in_apportioned, "1: the five above are shares by length, not counts")                                                                       \
  X(INT, output, "output tokens, reasoning included")                                                                                                \
  X(INT, reasoning, "of these, reasoning")                                                                                                           \
  X(REAL, audio_s, "seconds of audio in and out")                                                                                                    \
  X(INT, images, "images in and out")                                                                                                                \
  X(WORD, service_tier, "batch, flex, priority, ...")                                                                                                \
  X(WORD, price_version, "price row that was used; absent: the cost is unknown")                                                                     \
  X(INT, cost_input, "nano-dollars for fresh input")                                                                                                 \
  X(INT, cost_cached, "nano-dollars for cached input")                                                                                               \
  X(INT, cost_cache_write, "nano-dollars for writing to a cache")                                                                                    \
  X(INT, cost_output, "nano-dollars for output, reasoning included")                                                                                 \
  X(INT, cost_other, "nano-dollars for audio, images, tools")                                                                                        \
  X(INT, cost_total, "nano-dollars in all; absent: unknown")                                                                                         \
  X(INT, t_device_ns, "device time of a local request")                                                                                              \
  X(INT, t_connect, "TCP connection")                                                                                                                \
  X(INT, t_tls, "TLS handshake")                                                                                                                     \
  X(INT, t_queue, "scheduled - accepted")                                                                                                            \
  X(INT, t_ttft, "first token")                                                                                                                      \
  X(INT, t_ttfo, "first token that is not reasoning")                                                                                                \
  X(INT, t_e2e, "whole request")                                                                                                                     \
  X(INT, t_prefill, "first - scheduled")                                                                                                             \
  X(INT, t_decode, "last - first")                                                                                                                   \
  X(INT, t_overhead, "e2e less what the backend took")                                                                                               \
  X(INT, itl_mean, "(last - first) / (output - 1)")                                                                                                  \
  X(INT, icl_p99, "99th percentile of the gaps between chunks")                                                                                      \
  X(INT, draft_tokens, "tokens a draft proposed")                                                                                                    \
  X(INT, accepted_tokens, "of these, accepted")                                                                                                      \
  X(REAL, batch_mean, "mean rows in the steps it was part of")                                                                                       \
  X(TEXT, prompt_hash, "salted hash of the prompt")                                                                                                  \
  X(TEXT, prefix_hash, "salted hash of its first tokens")                                                                                            \
  X(INT, success, "1: the task was done, 0: it was not")                                                                                             \
  X(WORD, success_source, "who says so")                                                                                                             \
  X(REAL, score, "of an eval or of feedback")                                                                                                        \
  X(WORD, prompt_version, "version of the prompt's text")                                                                                            \
  X(WORD, config_hash, "configuration it ran under")                                                                                                 \
  X(TEXT, hash_ids, "salted hashes of the prompt's blocks of 64 tokens, a JSON array")

typedef enum led_type { LED_WORD, LED_TEXT, LED_INT, LED_REAL } led_type;
#define LED_NULL INT64_MIN

typedef str led_WORD;
typedef str led_TEXT;
typedef int64_t led_INT;
typedef double led_REAL;
typedef struct led_row {
  uint64_t rid; /* unique and ascending in one store; the journal's number for the request */
#define X(type, name, help) led_##type name;
  LED_COLUMNS(X)
#undef X
} led_row;

typedef struct led_col {
  const char *name, *help;
  led_type type;
  size_t off;
} led_col;
const led_col *led_cols(int *ret_n);
const led_col *led_col_find(str name); /* NULL: there is none */

enum { LED_TEXT_MAX = 1024, LED_HASHES_MAX = 10240, LED_PACK_MAX = 16384 };
void led_row_init(led_row *r); /* everything absent */
/* Never over LED_PACK_MAX: texts are cut, and those beyond the bound left out. */
void led_pack(const led_row *r, buf *out);
bool led_unpack(str bytes, led_row *ret, err *e);

static inline bool led_given(int64_t v) { return v != LED_NULL; }
static inline const void *led_at(const led_row *r, const led_col *c) { return (const char *)r + c->off; }
#endif
