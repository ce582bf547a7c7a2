#include "api/openai_reply.h"

static str text_of(json_t *o, const char *key) {
  json_t *v = json_object_get(o, key);
  return json_is_string(v) ? (str){json_string_value(v), json_string_length(v)} : (str){"", 0};
}

static str first_of(str a, str b) { return a.n ? a : b; }

bool openai_reply_parse(str json, openai_reply *ret) {
  json_t *doc;
  if (!json_parse(json, &doc, NULL)) return false;
  openai_reply r = {.doc = doc};
  json_t *c = json_array_get(json_object_get(doc, "choices"), 0), *d = json_object_get(c, "delta");
  if (!d) d = json_object_get(c, "message");
  r.text = first_of(text_of(d, "content"), text_of(c, "text"));
  r.reasoning = first_of(text_of(d, "reasoning_content"), text_of(d, "reasoning"));
  r.output = r.text.n || r.reasoning.n || json_array_size(json_object_get(d, "tool_calls")) > 0;
  r.finish = json_string_value(json_object_get(c, "finish_reason"));
  json_t *e = json_object_get(doc, "error"), *u = json_object_get(doc, "usage");
  if (e && !json_is_null(e)) {
    r.error = json_string_value(json_is_string(e) ? e : json_object_get(e, "message"));
    if (!r.error) r.error = "the server reports an error without a message";
  }
  if (json_is_object(u)) {
    r.has_usage = true;
    r.tokens_in = json_integer_value(json_object_get(u, "prompt_tokens"));
    r.tokens_out = json_integer_value(json_object_get(u, "completion_tokens"));
    r.tokens_cached = json_integer_value(json_object_get(json_object_get(u, "prompt_tokens_details"), "cached_tokens"));
  }
  *ret = r;
  return true;
}

void openai_reply_fini(openai_reply *r) {
  json_decref(r->doc);
  *r = (openai_reply){0};
}
