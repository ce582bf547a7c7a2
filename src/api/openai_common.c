#include "api/openai_common.h"
#include <stdio.h>

/* ---- fields that are numbers or switches ---- */

typedef enum param_kind { P_DOUBLE, P_I64, P_INT, P_BOOL } param_kind;
typedef struct param {
  const char *name;
  param_kind kind;
  size_t off;
  double lo, hi;
} param;

#define AT(field) offsetof(api_request, field)
static const param params[] = {
    {"temperature", P_DOUBLE, AT(temperature), 0, 2},
    {"top_p", P_DOUBLE, AT(top_p), 0, 1},
    {"top_k", P_I64, AT(top_k), -1, INT32_MAX},
    {"min_p", P_DOUBLE, AT(min_p), 0, 1},
    {"typical_p", P_DOUBLE, AT(typical_p), 0, 1},
    {"presence_penalty", P_DOUBLE, AT(presence), -2, 2},
    {"frequency_penalty", P_DOUBLE, AT(frequency), -2, 2},
    {"repetition_penalty", P_DOUBLE, AT(repetition), 0.01, 10},
    {"dry_multiplier", P_DOUBLE, AT(dry_multiplier), 0, 100},
    {"dry_base", P_DOUBLE, AT(dry_base), 1, 100},
    {"dry_allowed_length", P_I64, AT(dry_allowed_length), 0, 1000000},
    {"dry_penalty_last_n", P_I64, AT(dry_last_n), -1, 1000000},
    {"n", P_INT, AT(n), 1, API_MAX_CHOICES},
    {"best_of", P_INT, AT(best_of), 1, API_MAX_CHOICES},
    {"min_tokens", P_I64, AT(min_tokens), 0, INT32_MAX},
    {"ignore_eos", P_BOOL, AT(ignore_eos), 0, 0},
    {"include_stop_str_in_output", P_BOOL, AT(include_stop), 0, 0},
    {"add_generation_prompt", P_BOOL, AT(add_generation_prompt), 0, 0},
    {"parse_special", P_BOOL, AT(parse_special), 0, 0},
    {"add_special_tokens", P_BOOL, AT(add_special), 0, 0},
    {"stream", P_BOOL, AT(stream), 0, 0},
};

static bool read_param(api_request *r, const param *p, err *e) {
  void *at = (char *)r + p->off;
  int64_t i = p->kind == P_INT ? *(int *)at : 0;
  switch (p->kind) {
  case P_DOUBLE: return json_get_f64(r->doc, "", p->name, p->lo, p->hi, at, e);
  case P_BOOL: return json_get_bool(r->doc, "", p->name, at, e);
  case P_I64: return json_get_i64(r->doc, "", p->name, (int64_t)p->lo, (int64_t)p->hi, at, e);
  case P_INT:
    if (!json_get_i64(r->doc, "", p->name, (int64_t)p->lo, (int64_t)p->hi, &i, e)) return false;
    *(int *)at = (int)i;
    return true;
  }
  return true;
}

/* ---- which names are known ---- */

static const char *const shared[] = {"model", "seed", "stop", "stop_token_ids", "logit_bias", "stream_options", "max_tokens", "max_completion_tokens",
    "skip_special_tokens", "user", NULL};
/* Part of the API, and no promise about the answer's text: nothing to report. */
static const char *const silent[] = {"metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prediction", NULL};

static const openai_refusal refused_everywhere[] = {
    {"response_format", "text", NAN, "only {\"type\": \"text\"} is offered"},
    {"structured_outputs", NULL, NAN, NULL},
    {"guided_json", NULL, NAN, NULL},
    {"guided_regex", NULL, NAN, NULL},
    {"guided_choice", NULL, NAN, NULL},
    {"guided_grammar", NULL, NAN, NULL},
    {"grammar", NULL, NAN, NULL},
    {"json_schema", NULL, NAN, NULL},
    {"logits_processors", NULL, NAN, NULL},
    {"logit_processors", NULL, NAN, NULL},
    {"use_beam_search", NULL, NAN, NULL},
    {"length_penalty", NULL, 1, NULL},
    {"truncate_prompt_tokens", NULL, NAN, "shorten the prompt before sending it"},
    {"allowed_token_ids", NULL, NAN, NULL},
    {"bad_words", NULL, NAN, "use 'logit_bias'"},
    {"prompt_logprobs", NULL, NAN, "use /v1/completions with 'echo' and 'logprobs'"},
    {"repeat_penalty", NULL, 1, "use 'repetition_penalty'"},
    {"n_predict", NULL, NAN, "use 'max_tokens'"},
    {"xtc_probability", NULL, NAN, NULL},
    {"mirostat", NULL, NAN, NULL},
    {"dynatemp_range", NULL, NAN, NULL},
    {"top_n_sigma", NULL, -1, NULL},
    {"top_a", NULL, NAN, NULL},
    {"lora_request", NULL, NAN, NULL},
    {"prompt_embeds", NULL, NAN, NULL},
    {NULL, NULL, 0, NULL},
};

static bool listed(const char *const *v, const char *name) {
  for (; *v; v++)
    if (!strcmp(*v, name)) return true;
  return false;
}

static bool in_words(const char *words, str w) {
  str rest = str_c(words), head;
  while (rest.n) {
    if (!str_cut(rest, ',', &head, &rest)) {
      head = rest;
      rest = (str){NULL, 0};
    }
    if (str_eq(head, w)) return true;
  }
  return false;
}

/* Does this value of a field we do not offer leave the answer as it is? */
static bool harmless(const openai_refusal *f, const json_t *v) {
  switch (json_typeof(v)) {
  case JSON_NULL:
  case JSON_FALSE: return true;
  case JSON_TRUE: return false;
  case JSON_INTEGER:
  case JSON_REAL: {
    double d = json_number_value(v);
    return d == 0 || d == f->harmless_number; /* equality with NAN never holds, as wanted */
  }
  case JSON_STRING: {
    str s = {json_string_value(v), json_string_length(v)};
    return !s.n || (f->harmless && in_words(f->harmless, s));
  }
  case JSON_ARRAY: {
    for (size_t i = 0; i < json_array_size(v); i++) {
      const json_t *x = json_array_get(v, i);
      if (!json_is_string(x) || !harmless(f, x)) return false;
    }
    return true;
  }
  case JSON_OBJECT: {
    if (!json_object_size(v)) return true;
    const json_t *type = json_object_get(v, "type");
    return f->harmless && json_is_string(type) && in_words(f->harmless, (str){json_string_value(type), json_string_length(type)});
  }
  }
  return false;
}

static bool refuse(const openai_refusal *f, const char *key, const json_t *v, err *e) {
  for (; f->name; f++) {
    if (strcmp(f->name, key)) continue;
    if (harmless(f, v)) return true;
    return err_param(e, ERR_UNSUPPORTED, key, "'%s' is not supported%s%s", key, f->hint ? ": " : "", f->hint ? f->hint : "");
  }
  return true;
}

static bool known_refusal(const openai_refusal *f, const char *key) {
  for (; f->name; f++)
    if (!strcmp(f->name, key)) return true;
  return false;
}

static bool is_param(const char *key) {
  for (size_t i = 0; i < sizeof params / sizeof *params; i++)
    if (!strcmp(params[i].name, key)) return true;
  return false;
}

bool openai_fields(api_request *r, const char *const *own, const openai_refusal *refused, err *e) {
  const char *key;
  json_t *v;
  json_object_foreach(r->doc, key, v) {
    if (listed(own, key) || listed(shared, key) || is_param(key) || listed(silent, key)) continue;
    if (!refuse(refused, key, v, e) || !refuse(refused_everywhere, key, v, e)) return false;
    if (!known_refusal(refused, key) && !known_refusal(refused_everywhere, key)) api_request_ignored(r, key);
  }
  return true;
}

/* ---- fields with a shape of their own ---- */

static bool no_memory(err *e) { return err_set(e, ERR_NOMEM, "out of memory while reading the request"); }

bool openai_ids(api_request *r, json_t *arr, const char *path, int32_t **ret, int *ret_n, err *e) {
  size_t n = json_array_size(arr);
  int32_t *v = ARENA_ARRAY(&r->mem, int32_t, n + 1);
  if (!v) return no_memory(e);
  for (size_t i = 0; i < n; i++) {
    json_t *x = json_array_get(arr, i);
    char at[96];
    snprintf(at, sizeof at, "%.64s[%zu]", path, i);
    if (!json_is_integer(x)) return err_param(e, ERR_INPUT, at, "'%s' must be a token id, not %s", at, json_type_name(x));
    json_int_t id = json_integer_value(x);
    if (id < 0 || id > INT32_MAX) return err_param(e, ERR_INPUT, at, "'%s' is not a token id: %lld", at, (long long)id);
    v[i] = (int32_t)id;
  }
  *ret = v;
  *ret_n = (int)n;
  return true;
}

static bool one_stop(api_request *r, json_t *v, const char *path, err *e) {
  if (!json_is_string(v)) return err_param(e, ERR_INPUT, path, "'%s' must be a string, not %s", path, json_type_name(v));
  if (!json_string_length(v)) return err_param(e, ERR_INPUT, path, "'%s' is empty: a stop string has at least one character", path);
  if (json_string_length(v) > API_MAX_STOP)
    return err_param(e, ERR_INPUT, path, "'%s' is %zu bytes long: a stop string has at most %d", path, json_string_length(v), API_MAX_STOP);
  r->stop[r->n_stop++] = (str){json_string_value(v), json_string_length(v)};
  return true;
}

static bool read_stop(api_request *r, err *e) {
  json_t *v = json_object_get(r->doc, "stop");
  if (!v || json_is_null(v)) return true;
  if (!(r->stop = ARENA_ARRAY(&r->mem, str, API_MAX_STOPS))) return no_memory(e);
  if (json_is_string(v)) return one_stop(r, v, "stop", e);
  if (!json_is_array(v)) return err_param(e, ERR_INPUT, "stop", "'stop' must be a string or a list of strings, not %s", json_type_name(v));
  size_t n = json_array_size(v);
  if (n > API_MAX_STOPS) return err_param(e, ERR_INPUT, "stop", "'stop' has %zu strings: at most %d are allowed", n, API_MAX_STOPS);
  for (size_t i = 0; i < n; i++) {
    char at[32];
    snprintf(at, sizeof at, "stop[%zu]", i);
    if (!one_stop(r, json_array_get(v, i), at, e)) return false;
  }
  return true;
}

static bool read_bias(api_request *r, err *e) {
  json_t *o = NULL, *v;
  if (!json_get_object(r->doc, "", "logit_bias", &o, e)) return false;
  size_t n = json_object_size(o);
  if (n > API_MAX_BIAS) return err_param(e, ERR_INPUT, "logit_bias", "'logit_bias' has %zu entries: at most %d are allowed", n, API_MAX_BIAS);
  if (!n) return true;
  if (!(r->bias = ARENA_ARRAY(&r->mem, api_bias, n))) return no_memory(e);
  const char *key;
  json_object_foreach(o, key, v) {
    int64_t id;
    double b = 0;
    if (!str_i64(str_c(key), &id) || id < 0 || id > INT32_MAX)
      return err_param(e, ERR_INPUT, "logit_bias", "'logit_bias' has the key '%.40s', which is not a token id", key);
    if (!json_get_f64(o, "logit_bias", key, -100, 100, &b, e)) return false;
    r->bias[r->n_bias++] = (api_bias){(int32_t)id, (float)b};
  }
  return true;
}

static bool read_stream_options(api_request *r, err *e) {
  json_t *o = NULL;
  if (!json_get_object(r->doc, "", "stream_options", &o, e)) return false;
  if (!o) return true;
  return json_get_bool(o, "stream_options", "include_usage", &r->include_usage, e) &&
         json_get_bool(o, "stream_options", "continuous_usage_stats", &r->continuous_usage, e);
}

static bool read_seed(api_request *r, err *e) {
  int64_t seed = API_UNSET;
  json_t *v = json_object_get(r->doc, "seed");
  if (!v || json_is_null(v)) return true;
  if (!json_get_i64(r->doc, "", "seed", INT64_MIN, INT64_MAX, &seed, e)) return false;
  r->has_seed = true;
  r->seed = (uint64_t)seed;
  return true;
}

static bool consistent(api_request *r, err *e) {
  if (!r->best_of) r->best_of = r->n;
  if (r->best_of < r->n) return err_param(e, ERR_INPUT, "best_of", "'best_of' is %d, below 'n' (%d)", r->best_of, r->n);
  if (r->best_of > r->n && r->stream)
    return err_param(e, ERR_INPUT, "best_of", "'best_of' above 'n' cannot be streamed: which choice is best is known only at the end");
  if (r->max_tokens >= 0 && r->min_tokens > r->max_tokens)
    return err_param(
        e, ERR_INPUT, "min_tokens", "'min_tokens' is %lld, above 'max_tokens' (%lld)", (long long)r->min_tokens, (long long)r->max_tokens);
  return true;
}

bool openai_params(api_request *r, int64_t least_tokens, err *e) {
  for (size_t i = 0; i < sizeof params / sizeof *params; i++)
    if (!read_param(r, &params[i], e)) return false;
  bool skip = true;
  json_t *ids = NULL;
  if (!json_get_str(r->doc, "", "model", &r->model, e) || !json_get_str(r->doc, "", "user", &r->user, e)) return false;
  if (!read_seed(r, e) || !read_stop(r, e) || !read_bias(r, e) || !read_stream_options(r, e)) return false;
  if (!json_get_bool(r->doc, "", "skip_special_tokens", &skip, e)) return false;
  r->keep_special = !skip;
  if (!json_get_i64(r->doc, "", "max_tokens", least_tokens, INT32_MAX, &r->max_tokens, e)) return false;
  if (!json_get_i64(r->doc, "", "max_completion_tokens", least_tokens, INT32_MAX, &r->max_tokens, e)) return false;
  if (!json_get_array(r->doc, "", "stop_token_ids", &ids, e)) return false;
  if (ids && !openai_ids(r, ids, "stop_token_ids", &r->stop_ids, &r->n_stop_ids, e)) return false;
  return consistent(r, e);
}

/* ---- writing ---- */

const char *openai_finish(api_finish f) {
  static const char *const names[] = {"stop", "length", "tool_calls", "content_filter"};
  return names[f];
}

void openai_head(const api_answer *a, const char *prefix, const char *object, buf *out) {
  buf_printf(out, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":\"", prefix, a->info->id, object, (long long)a->info->created);
  buf_json(out, str_c(a->info->model));
  buf_printf(out, "\",\"system_fingerprint\":\"%s\"", a->info->fingerprint);
}

void openai_usage(const api_usage *u, buf *out) {
  buf_printf(out,
      "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
      "\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
      (long long)u->prompt, (long long)u->output, (long long)(u->prompt + u->output), (long long)u->cached, (long long)u->reasoning);
}

void openai_usage_chunk(const api_answer *a, const char *prefix, const char *object, const api_usage *u, buf *out) {
  if (!a->req->include_usage) return;
  buf_puts(out, "data: ");
  openai_head(a, prefix, object, out);
  buf_puts(out, ",\"choices\":[],\"usage\":");
  openai_usage(u, out);
  buf_puts(out, "}\n\n");
}

void openai_whole(
    const api_answer *a, const char *prefix, const char *object, void (*one)(const api_answer *a, const api_choice *c, buf *out), buf *out) {
  openai_head(a, prefix, object, out);
  buf_puts(out, ",\"choices\":[");
  int shown = 0;
  for (int i = 0; i < a->n_choices; i++) {
    if (a->choices[i].index < 0) continue;
    if (shown++) buf_putc(out, ',');
    one(a, &a->choices[i], out);
  }
  buf_puts(out, "],\"usage\":");
  openai_usage(&a->usage, out);
  buf_putc(out, '}');
}

void openai_chunk_usage(const api_answer *a, const api_event *ev, buf *out) {
  if (a->req->continuous_usage) {
    buf_puts(out, ",\"usage\":");
    openai_usage(&ev->usage, out);
  } else if (a->req->include_usage) buf_puts(out, ",\"usage\":null");
}

void openai_lp(float v, buf *out) {
  if (isnan(v)) buf_puts(out, "null");
  else if (isinf(v)) buf_puts(out, "-9999.0"); /* what OpenAI sends for "impossible"; JSON has no infinity */
  else buf_printf(out, "%.9g", (double)v);
}

void openai_error(const err *e, buf *out) {
  const err_info *i = err_lookup(e->code);
  const char *code = e->code == ERR_NOT_FOUND && !strcmp(e->param, "model") ? "model_not_found" : i->openai_code;
  buf_puts(out, "{\"error\":{\"message\":\"");
  buf_json(out, str_c(e->msg));
  buf_printf(out, "\",\"type\":\"%s\",\"param\":", i->openai ? i->openai : "server_error");
  if (*e->param) {
    buf_putc(out, '"');
    buf_json(out, str_c(e->param));
    buf_putc(out, '"');
  } else buf_puts(out, "null");
  if (code) buf_printf(out, ",\"code\":\"%s\"}}", code);
  else buf_puts(out, ",\"code\":null}}");
}

void openai_stream_error(const api_answer *a, const err *e, buf *out) {
  (void)a;
  buf_puts(out, "data: ");
  openai_error(e, out);
  buf_puts(out, "\n\n");
}

void openai_stream_end(const api_answer *a, buf *out) {
  (void)a;
  buf_puts(out, "data: [DONE]\n\n");
}
