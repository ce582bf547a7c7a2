/* openai_common.h - what OpenAI's dialects share: fields of sampling and limits, refusals by name, ids, usage, errors, the end of a stream.
 * Not a dialect itself.
 * Ownership: writes into the request and its arena; writers append to the caller's buffer.
 * Threads: pure functions over their arguments.
 * Failure: as request.h says: every error names the field. */
#ifndef API_OPENAI_COMMON_H
#define API_OPENAI_COMMON_H
#include "api/dialect.h"

/* Fields are told apart by name: those a dialect reads, those that are part of the API and cannot change the answer, and those that
 * would change it and are not offered. All others are accepted and named in r->ignored. */
typedef struct openai_refusal {
  const char *name;
  const char *harmless;   /* strings that change nothing, comma separated; null, false, 0 and empty values never do */
  double harmless_number; /* a number that changes nothing; NAN: none but 0 */
  const char *hint;       /* what to do instead; may be NULL */
} openai_refusal;

/* Checks every key of r->doc: `own` lists the names this dialect reads besides the shared ones (NULL-terminated), `refused` what only
 * this dialect refuses (ends with a NULL name). */
bool openai_fields(api_request *r, const char *const *own, const openai_refusal *refused, err *e);
/* Reads model, sampling, penalties, n, best_of, stop, logit_bias, seed, stream, stream_options, ... and checks them against each other.
 * least_tokens: the smallest max_tokens this dialect allows. */
bool openai_params(api_request *r, int64_t least_tokens, err *e);
/* An array of token ids at `path`. */
bool openai_ids(api_request *r, json_t *arr, const char *path, int32_t **ret, int *ret_n, err *e);

const char *openai_finish(api_finish f);
/* {"id":"PREFIX...","object":"OBJECT","created":N,"model":"M","system_fingerprint":"F"   (no closing brace) */
void openai_head(const api_answer *a, const char *prefix, const char *object, buf *out);
void openai_usage(const api_usage *u, buf *out);
/* The last chunk of a stream: no choices, the usage; nothing when usage was not asked for. */
void openai_usage_chunk(const api_answer *a, const char *prefix, const char *object, const api_usage *u, buf *out);
/* A whole answer: head, the choices that are shown as `one` writes each, usage. */
void openai_whole(
    const api_answer *a, const char *prefix, const char *object, void (*one)(const api_answer *a, const api_choice *c, buf *out), buf *out);
/* ,"usage":...  as a chunk carries it: null unless usage in every chunk was asked for; nothing when usage was not asked for at all. */
void openai_chunk_usage(const api_answer *a, const api_event *ev, buf *out);
/* A number as JSON, null when it is not one. */
void openai_lp(float v, buf *out);

void openai_error(const err *e, buf *out);
void openai_stream_error(const api_answer *a, const err *e, buf *out);
void openai_stream_end(const api_answer *a, buf *out);
#endif
