#include "api/request.h"
#include "api/dialect.h"

enum { REQUEST_MEM = 256 << 20 };  /* token ids of a 16 MiB body take four times their text at most */

static void defaults(api_request *r, const api_dialect *d) {
  *r = (api_request){.dialect = d, .model = {"", 0}, .add_generation_prompt = true, .parse_special = true, .add_special = true,
    .temperature = NAN, .top_p = NAN, .min_p = NAN, .typical_p = NAN, .presence = NAN, .frequency = NAN, .repetition = NAN, .top_k = API_UNSET,
    .dry_base = 1.75, .dry_allowed_length = 2, .dry_last_n = -1, .n = 1, .n_prompts = 1, .max_tokens = -1, .logprobs = -1};
  arena_init(&r->mem, REQUEST_MEM);
}

bool api_request_parse(const api_dialect *d, str body, api_request *r, err *e) {
  defaults(r, d);
  if (!str_trim(body).n) return err_set(e, ERR_INPUT, "the request body is empty: send a JSON object");
  if (!json_parse(body, &r->doc, e)) return err_prefix(e, "request body");
  bool ok = json_is_object(r->doc) ? d->parse(r, e)
                                   : err_set(e, ERR_INPUT, "the request body must be a JSON object, not %s", json_type_name(r->doc));
  if (!ok) api_request_fini(r);
  return ok;
}

void api_request_fini(api_request *r) {
  json_decref(r->messages);
  json_decref(r->doc);
  r->messages = r->doc = NULL;
  arena_fini(&r->mem);
}
