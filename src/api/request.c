#include "api/request.h"
#include "api/dialect.h"
#include <stdio.h>
#include <stdlib.h>

enum { REQUEST_MEM = 256 << 20 }; /* token ids of a 16 MiB body take four times their text at most */

static void defaults(api_request *r, const api_dialect *d) {
  *r = (api_request){.refs = 1,
      .dialect = d,
      .model = {"", 0},
      .add_generation_prompt = true,
      .parse_special = true,
      .add_special = true,
      .parallel_tools = true,
      .temperature = NAN,
      .top_p = NAN,
      .min_p = NAN,
      .typical_p = NAN,
      .presence = NAN,
      .frequency = NAN,
      .repetition = NAN,
      .top_k = API_UNSET,
      .dry_base = 1.75,
      .dry_allowed_length = 2,
      .dry_last_n = -1,
      .n = 1,
      .n_prompts = 1,
      .max_tokens = -1,
      .logprobs = -1};
  arena_init(&r->mem, REQUEST_MEM);
}

static bool parse(api_request *r, str body, err *e) {
  if (!str_trim(body).n) return err_set(e, ERR_INPUT, "the request body is empty: send a JSON object");
  if (!json_parse(body, &r->doc, e)) return err_prefix(e, "request body");
  if (!json_is_object(r->doc)) return err_set(e, ERR_INPUT, "the request body must be a JSON object, not %s", json_type_name(r->doc));
  return r->dialect->parse(r, e);
}

bool api_request_parse(const api_dialect *d, str body, api_request **ret, err *e) {
  api_request *r = malloc(sizeof *r);
  if (!r) return err_set(e, ERR_NOMEM, "out of memory for a request");
  defaults(r, d);
  if (!parse(r, body, e)) {
    api_request_unref(r);
    return false;
  }
  *ret = r;
  return true;
}

/* Names go into a response header: only what cannot break one. */
void api_request_ignored(api_request *r, const char *key) {
  size_t n = strlen(r->ignored), k = strlen(key);
  if (!k || k > 64 || n + k + 3 > sizeof r->ignored) return;
  for (size_t i = 0; i < k; i++)
    if ((unsigned char)key[i] <= 0x20 || (unsigned char)key[i] >= 0x7f || key[i] == ',') return;
  snprintf(r->ignored + n, sizeof r->ignored - n, "%s%s", n ? ", " : "", key);
}

api_request *api_request_ref(api_request *r) {
  r->refs++;
  return r;
}

void api_request_unref(api_request *r) {
  if (!r || --r->refs) return;
  json_decref(r->messages);
  json_decref(r->tools);
  json_decref(r->doc);
  arena_fini(&r->mem);
  free(r);
}
