/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's API. Blocks in, blocks out. */
#include "api/dialect.h"
#include "api/emit.h"
#include "api/fields.h"
#include "api/messages.h"
#include "api/tools.h"
#include "api/turns.h"
#include <stdio.h>

/* Arguments that are no JSON object cannot be an input: they travel as text in an object of one key, both ways. */
#define NOT_JSON "INVALID_JSON"

static const field_row fields[] = {
    {"model", FIELD_READ, NULL, NULL},
    {"messages", FIELD_READ, NULL, NULL},
    {"system", FIELD_READ, NULL, NULL},
    {"max_tokens", FIELD_READ, NULL, NULL},
    {"stop_sequences", FIELD_READ, NULL, NULL},
    {"stream", FIELD_READ, NULL, NULL},
    {"temperature", FIELD_READ, NULL, NULL},
    {"top_k", FIELD_READ, NULL, NULL},
    {"top_p", FIELD_READ, NULL, NULL},
    {"metadata", FIELD_READ, NULL, NULL},
    {"tools", FIELD_READ, NULL, NULL},
    {"tool_choice", FIELD_READ, NULL, NULL},
    {"thinking", FIELD_READ, NULL, NULL},
    {"seed", FIELD_READ, NULL, NULL}, /* not Anthropic's */
    /* prefixes are cached without being asked to be; the others promise nothing about the answer */
    {"cache_control", FIELD_SILENT, NULL, NULL},
    {"service_tier", FIELD_SILENT, NULL, NULL},
    {"diagnostics", FIELD_SILENT, NULL, NULL},
    {"user_profile_id", FIELD_SILENT, NULL, NULL},
    {"workspace_id", FIELD_SILENT, NULL, NULL},
    {"container", FIELD_REFUSED, NULL, "nothing is run on this server"},
    {"mcp_servers", FIELD_REFUSED, NULL, "nothing is run on this server"},
    {"context_management", FIELD_REFUSED, NULL, NULL},
    {"inference_geo", FIELD_REFUSED, NULL, "the answer is computed where this server is"},
    {"speed", FIELD_REFUSED, "standard", NULL},
    {"output_config", FIELD_REFUSED, NULL, "only plain text is offered"},
    {"output_format", FIELD_REFUSED, NULL, "only plain text is offered"},
    {"fallbacks", FIELD_REFUSED, NULL, NULL},
    {"stop", FIELD_REFUSED, NULL, "use 'stop_sequences'"},
    {"n", FIELD_REFUSED, "1", NULL},
    {"max_completion_tokens", FIELD_REFUSED, NULL, "use 'max_tokens'"},
    {"max_tokens_to_sample", FIELD_REFUSED, NULL, "use 'max_tokens'"},
    {"prompt", FIELD_REFUSED, NULL, "use 'messages'"},
    {"response_format", FIELD_REFUSED, NULL, "only plain text is offered"},
    {NULL, FIELD_READ, NULL, NULL},
};

/* ---- options ---- */

static bool read_stops(api_request *r, err *e) {
  json_t *list = NULL;
  if (!json_get_array(r->doc, "", "stop_sequences", &list, e)) return false;
  size_t n = json_array_size(list);
  if (n > API_MAX_STOPS)
    return err_param(e, ERR_INPUT, "stop_sequences", "'stop_sequences' has %zu strings: at most %d are allowed", n, API_MAX_STOPS);
  if (n && !(r->stop = ARENA_ARRAY(&r->mem, str, n))) return err_set(e, ERR_NOMEM, "out of memory while reading the request");
  for (size_t i = 0; i < n; i++) {
    json_t *v = json_array_get(list, i);
    char at[40];
    snprintf(at, sizeof at, "stop_sequences[%zu]", i);
    if (!json_is_string(v)) return err_param(e, ERR_INPUT, at, "'%s' must be a string, not %s", at, json_type_name(v));
    size_t k = json_string_length(v);
    if (!k) return err_param(e, ERR_INPUT, at, "'%s' is empty: a stop sequence has at least one character", at);
    if (k > API_MAX_STOP) return err_param(e, ERR_INPUT, at, "'%s' is %zu bytes long: a stop sequence has at most %d", at, k, API_MAX_STOP);
    r->stop[r->n_stop++] = (str){json_string_value(v), k};
  }
  return true;
}

static bool read_thinking(api_request *r, err *e) {
  json_t *o = NULL;
  str type = {NULL, 0};
  if (!json_get_object(r->doc, "", "thinking", &o, e)) return false;
  if (!o) return true;
  if (!fields_need(o, "thinking", "type", &type, e)) return false;
  if (str_is(type, "adaptive")) return true;
  if (str_is(type, "disabled")) return fields_thinking_off(r, e);
  return err_param(e, ERR_UNSUPPORTED, "thinking.type",
      "'thinking.type' is '%.40s', which is not supported: how much is thought is the model's own choice ('adaptive'), or nothing ('disabled')",
      type.p);
}

static bool read_options(api_request *r, err *e) {
  json_t *metadata = NULL;
  int64_t seed = API_UNSET;
  if (!json_get_str(r->doc, "", "model", &r->model, e) || !json_get_bool(r->doc, "", "stream", &r->stream, e)) return false;
  if (!json_get_f64(r->doc, "", "temperature", 0, 1, &r->temperature, e) || !json_get_f64(r->doc, "", "top_p", 0, 1, &r->top_p, e)) return false;
  if (!json_get_i64(r->doc, "", "top_k", 0, INT32_MAX, &r->top_k, e)) return false;
  if (!json_get_i64(r->doc, "", "max_tokens", 1, INT32_MAX, &r->max_tokens, e)) return false;
  if (!json_get_i64(r->doc, "", "seed", 0, INT64_MAX, &seed, e)) return false;
  r->has_seed = seed != API_UNSET;
  if (r->has_seed) r->seed = (uint64_t)seed;
  if (!json_get_object(r->doc, "", "metadata", &metadata, e)) return false;
  if (metadata && !json_get_str(metadata, "metadata", "user_id", &r->user, e)) return false;
  r->best_of = 1;
  return read_stops(r, e) && read_thinking(r, e);
}

/* ---- tools ---- */

static bool read_tool(json_t *t, const char *at, json_t *list, err *e) {
  str type = STR("custom"), name = {NULL, 0}, text = {NULL, 0};
  json_t *schema = NULL;
  char path[64];
  if (!json_is_object(t)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(t));
  if (!json_get_str(t, at, "type", &type, e)) return false;
  snprintf(path, sizeof path, "%s.type", at);
  if (!str_is(type, "custom"))
    return err_param(
        e, ERR_UNSUPPORTED, path, "'%s' is '%.40s': there are no tools of the server's own here, only 'custom' is offered", path, type.p);
  if (!fields_need(t, at, "name", &name, e) || !json_get_str(t, at, "description", &text, e)) return false;
  if (!json_get_object(t, at, "input_schema", &schema, e)) return false;
  snprintf(path, sizeof path, "%s.name", at);
  if (!tools_name_ok(name))
    return err_param(e, ERR_INPUT, path, "'%s' is '%.80s': it must be 1 to %d letters, digits, _ and -", path, name.p, TOOLS_NAME);
  snprintf(path, sizeof path, "%s.input_schema", at);
  if (!schema) return err_param(e, ERR_INPUT, path, "'%s' is missing: a JSON schema of the tool's input", path);
  json_t *fn = json_object(), *tool = json_object();
  bool ok = fn && tool && json_object_set(fn, "name", json_object_get(t, "name")) == 0;
  if (text.p) ok = json_object_set(fn, "description", json_object_get(t, "description")) == 0 && ok;
  ok = json_object_set(fn, "parameters", schema) == 0 && ok;
  ok = json_object_set_new(tool, "type", json_string("function")) == 0 && ok;
  ok = json_object_set_new(tool, "function", fn) == 0 && ok;
  ok = json_array_append_new(list, tool) == 0 && ok;
  return ok || err_set(e, ERR_NOMEM, "out of memory reading tools");
}

static bool read_choice(api_request *r, err *e) {
  json_t *o = NULL;
  str type = {NULL, 0};
  bool single = false;
  if (!json_get_object(r->doc, "", "tool_choice", &o, e)) return false;
  if (!o) return true;
  if (!fields_need(o, "tool_choice", "type", &type, e)) return false;
  if (!json_get_bool(o, "tool_choice", "disable_parallel_tool_use", &single, e)) return false;
  r->parallel_tools = !single;
  if (str_is(type, "none")) r->tool_choice = API_TOOLS_NONE;
  else if (!str_is(type, "auto"))
    return err_param(e, ERR_UNSUPPORTED, "tool_choice.type", "'tool_choice.type' is '%.40s', which is not supported: use 'auto' or 'none'", type.p);
  return true;
}

static bool read_tools(api_request *r, err *e) {
  json_t *given = NULL, *list;
  if (!json_get_array(r->doc, "", "tools", &given, e) || !read_choice(r, e)) return false;
  if (json_array_size(given) > API_MAX_TOOLS)
    return err_param(e, ERR_INPUT, "tools", "'tools' has %zu entries: at most %d are allowed", json_array_size(given), API_MAX_TOOLS);
  if (!(list = json_array())) return err_set(e, ERR_NOMEM, "out of memory reading tools");
  bool ok = true;
  for (size_t i = 0; ok && i < json_array_size(given); i++) {
    char at[32];
    snprintf(at, sizeof at, "tools[%zu]", i);
    ok = read_tool(json_array_get(given, i), at, list, e);
  }
  ok = ok && tools_take(r, list, "tools", e);
  json_decref(list);
  return ok;
}

/* ---- messages: strings, or lists of blocks ---- */

static bool refuse_block(const char *at, str type, const char *known, err *e) {
  char path[96];
  snprintf(path, sizeof path, "%s.type", at);
  return err_param(e, ERR_UNSUPPORTED, path, "'%s' is '%.40s', which is not supported here: %s", path, type.p, known);
}

static bool block_type(json_t *b, const char *at, str *ret, err *e) {
  if (!json_is_object(b)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(b));
  return fields_need(b, at, "type", ret, e);
}

static bool block_text(json_t *b, const char *at, const char *key, str *ret, err *e) {
  char path[112];
  if (!json_get_str(b, at, key, ret, e)) return false;
  snprintf(path, sizeof path, "%s.%s", at, key);
  return ret->p || err_param(e, ERR_INPUT, path, "'%s' is missing", path);
}

/* A string, or blocks that are all text, joined by newlines. */
static bool read_text(json_t *v, const char *path, buf *out, err *e) {
  if (json_is_string(v)) buf_put(out, json_string_value(v), json_string_length(v));
  else if (!json_is_array(v)) return err_param(e, ERR_INPUT, path, "'%s' must be a string or a list of blocks, not %s", path, json_type_name(v));
  for (size_t i = 0; i < json_array_size(v); i++) {
    json_t *b = json_array_get(v, i);
    char at[80];
    str type = {NULL, 0}, text = {NULL, 0};
    snprintf(at, sizeof at, "%s[%zu]", path, i);
    if (!block_type(b, at, &type, e)) return false;
    if (!str_is(type, "text")) return refuse_block(at, type, "this model reads 'text' blocks only", e);
    if (!block_text(b, at, "text", &text, e)) return false;
    if (i) buf_putc(out, '\n');
    buf_str(out, text);
  }
  return !out->failed || err_set(e, ERR_NOMEM, "out of memory reading messages");
}

/* Models are shown that a result is an error by its text: there is no other place for it in a template. */
static bool result_block(turns *t, json_t *b, const char *at, err *e) {
  str id = {NULL, 0};
  bool bad = false, ok = true;
  json_t *content = json_object_get(b, "content");
  char path[80];
  buf text;
  if (!fields_need(b, at, "tool_use_id", &id, e) || !json_get_bool(b, at, "is_error", &bad, e)) return false;
  snprintf(path, sizeof path, "%s.content", at);
  buf_init(&text, SIZE_MAX / 4);
  if (bad) buf_puts(&text, "Error: ");
  if (content && !json_is_null(content)) ok = read_text(content, path, &text, e);
  if (ok) turns_result(t, id, buf_view(&text));
  buf_fini(&text);
  return ok;
}

static bool use_block(turns *t, json_t *b, const char *at, err *e) {
  str id = {NULL, 0}, name = {NULL, 0};
  json_t *in = NULL;
  char path[80];
  if (!fields_need(b, at, "id", &id, e) || !fields_need(b, at, "name", &name, e) || !json_get_object(b, at, "input", &in, e)) return false;
  snprintf(path, sizeof path, "%s.input", at);
  if (!in) return err_param(e, ERR_INPUT, path, "'%s' is missing: an object", path);
  json_t *text = json_object_size(in) == 1 ? json_object_get(in, NOT_JSON) : NULL;
  turns_call(t, id, name, json_is_string(text) ? text : in);
  return true;
}

static bool user_block(turns *t, json_t *b, const char *at, str type, err *e) {
  str text = {NULL, 0};
  if (str_is(type, "tool_result")) return result_block(t, b, at, e);
  if (!str_is(type, "text")) return refuse_block(at, type, "of a user 'text' and 'tool_result' blocks are read", e);
  if (!block_text(b, at, "text", &text, e)) return false;
  turns_more(t, "user", text);
  return true;
}

static bool assistant_block(turns *t, json_t *b, const char *at, str type, err *e) {
  str text = {NULL, 0};
  if (str_is(type, "tool_use")) return use_block(t, b, at, e);
  bool thought = str_is(type, "thinking");
  if (!thought && !str_is(type, "text")) return refuse_block(at, type, "of an assistant 'text', 'thinking' and 'tool_use' blocks are read", e);
  if (!block_text(b, at, thought ? "thinking" : "text", &text, e)) return false;
  if (thought) turns_think(t, text);
  else turns_more(t, "assistant", text);
  return true;
}

typedef struct speaker {
  const char *role;
  bool (*block)(turns *t, json_t *b, const char *at, str type, err *e);
} speaker;
static const speaker speakers[] = {{"user", user_block}, {"assistant", assistant_block}};

static bool read_message(turns *t, json_t *m, const char *at, err *e) {
  str role = {NULL, 0};
  const speaker *s = NULL;
  char path[64];
  if (!json_is_object(m)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(m));
  if (!fields_need(m, at, "role", &role, e)) return false;
  for (size_t i = 0; i < sizeof speakers / sizeof *speakers; i++)
    if (str_is(role, speakers[i].role)) s = &speakers[i];
  snprintf(path, sizeof path, "%s.role", at);
  if (!s)
    return err_param(e, ERR_INPUT, path, "'%s' is '%.40s': it must be user or assistant; what is the system's goes into 'system'", path, role.p);
  json_t *c = json_object_get(m, "content");
  snprintf(path, sizeof path, "%s.content", at);
  if (json_is_string(c)) {
    turns_more(t, s->role, (str){json_string_value(c), json_string_length(c)});
    return true;
  }
  if (!json_is_array(c))
    return err_param(e, ERR_INPUT, path, "'%s' %s: a string or a list of blocks is needed", path, c ? "is neither string nor list" : "is missing");
  if (!json_array_size(c)) return err_param(e, ERR_INPUT, path, "'%s' is an empty list", path);
  for (size_t i = 0; i < json_array_size(c); i++) {
    char block[96];
    str type = {NULL, 0};
    snprintf(block, sizeof block, "%s[%zu]", path, i);
    if (!block_type(json_array_get(c, i), block, &type, e) || !s->block(t, json_array_get(c, i), block, type, e)) return false;
  }
  return true;
}

static bool add_messages(turns *t, json_t *list, err *e) {
  size_t n = json_array_size(list);
  if (!list) return err_param(e, ERR_INPUT, "messages", "'messages' is missing: a list of {\"role\", \"content\"} objects");
  if (!n) return err_param(e, ERR_INPUT, "messages", "'messages' is empty: at least one message is needed");
  for (size_t i = 0; i < n; i++) {
    json_t *m = json_array_get(list, i);
    const char *role = json_string_value(json_object_get(m, "role"));
    char at[32];
    snprintf(at, sizeof at, "messages[%zu]", i);
    if (!read_message(t, m, at, e)) return false;
    if (i + 1 == n && !strcmp(role, "assistant"))
      return err_param(e, ERR_UNSUPPORTED, at, "'%s' is the assistant's and the last: going on with a begun answer is not supported", at);
  }
  return true;
}

static bool add_system(turns *t, json_t *v, err *e) {
  buf text;
  if (!v || json_is_null(v)) return true;
  buf_init(&text, SIZE_MAX / 4);
  bool ok = read_text(v, "system", &text, e);
  if (ok && text.n) turns_say(t, "system", buf_view(&text));
  buf_fini(&text);
  return ok;
}

static bool read_messages(api_request *r, err *e) {
  turns t;
  json_t *list = NULL;
  if (!json_get_array(r->doc, "", "messages", &list, e)) return false;
  turns_init(&t);
  bool ok = add_system(&t, json_object_get(r->doc, "system"), e) && add_messages(&t, list, e);
  json_t *made = ok ? turns_end(&t, e) : NULL;
  ok = made && messages_take(r, made, "messages", e);
  json_decref(made);
  turns_fini(&t);
  return ok;
}

static bool parse_count(api_request *r, err *e) {
  return fields_check(r, fields, e) && read_options(r, e) && read_tools(r, e) && read_messages(r, e);
}

static bool parse(api_request *r, err *e) {
  if (!parse_count(r, e)) return false;
  if (r->max_tokens >= 0) return true;
  return err_param(e, ERR_INPUT, "max_tokens", "'max_tokens' is missing: the most tokens that the answer may have");
}

/* ---- writing ---- */

typedef struct wire {
  int opened; /* blocks that a stream has opened */
} wire;

/* Cached tokens are no part of input_tokens here, other than at OpenAI. */
static void usage(const api_usage *u, buf *out) {
  buf_printf(out, "{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%lld,\"output_tokens\":%lld}",
      (long long)(u->prompt - u->cached), (long long)u->cached, (long long)u->output);
}

/* Without a limit of the request's the context's end is what cut an answer. */
static void stop_reason(const api_answer *a, buf *out) {
  const api_choice *c = a->choices;
  const char *why = "end_turn";
  bool text = c->finish == API_STOP && c->stop > 0 && c->stop <= a->req->n_stop;
  if (c->finish == API_LENGTH) why = a->usage.output < a->req->max_tokens ? "model_context_window_exceeded" : "max_tokens";
  else if (c->finish == API_TOOL_CALLS) why = "tool_use";
  else if (c->finish == API_FILTER) why = "refusal";
  else if (text) why = "stop_sequence";
  buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", why);
  if (text) emit_str(a->req->stop[c->stop - 1], out);
  else buf_puts(out, "null");
}

static void call_input(str args, buf *out) {
  json_t *v = NULL;
  if (!str_trim(args).n) buf_puts(out, "{}");
  else if (json_parse(args, &v, NULL) && json_is_object(v)) buf_str(out, args);
  else {
    buf_puts(out, "{\"" NOT_JSON "\":");
    emit_str(args, out);
    buf_putc(out, '}');
  }
  json_decref(v);
}

/* A block; open: as it begins, without what comes in deltas. */
static void block(const api_choice *c, const api_part *p, bool open, buf *out) {
  str text = {buf_view(p->kind == API_REASONING ? &c->reasoning : &c->text).p + p->from, p->to - p->from};
  if (open) text.n = 0;
  if (p->kind == API_TOOL) {
    const api_call_text *k = &c->calls[p->call];
    buf_puts(out, "{\"type\":\"tool_use\",\"id\":");
    emit_str(k->id, out);
    buf_puts(out, ",\"name\":");
    emit_str(k->name, out);
    buf_puts(out, ",\"input\":");
    if (open) buf_puts(out, "{}");
    else call_input(buf_view(&k->args), out);
    buf_putc(out, '}');
    return;
  }
  buf_puts(out, p->kind == API_REASONING ? "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":" : "{\"type\":\"text\",\"text\":");
  emit_str(text, out);
  buf_putc(out, '}');
}

static void head(const api_answer *a, buf *out) {
  buf_printf(out, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->info->unique);
  emit_str(str_c(a->info->model), out);
  buf_puts(out, ",\"content\":[");
}

static void whole(const api_answer *a, buf *out) {
  const api_choice *c = a->choices;
  head(a, out);
  for (int i = 0; i < c->n_parts; i++) {
    if (i) buf_putc(out, ',');
    block(c, &c->parts[i], false, out);
  }
  buf_puts(out, "],");
  stop_reason(a, out);
  buf_puts(out, ",\"usage\":");
  usage(&a->usage, out);
  buf_putc(out, '}');
}

static void event(const char *type, buf *out) { buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type); }
static void event_end(buf *out) { buf_puts(out, "}\n\n"); }

static void close_block(const api_answer *a, buf *out) {
  wire *w = a->state;
  if (!w->opened) return;
  event("content_block_stop", out);
  buf_printf(out, ",\"index\":%d", w->opened - 1);
  event_end(out);
}

static void delta(const api_answer *a, const api_event *ev, buf *out) {
  wire *w = a->state;
  const api_choice *c = a->choices;
  str text = ev->kind == API_TOOL ? ev->tool.args : ev->text;
  if (w->opened < c->n_parts) {
    close_block(a, out);
    event("content_block_start", out);
    buf_printf(out, ",\"index\":%d,\"content_block\":", w->opened);
    block(c, &c->parts[w->opened++], true, out);
    event_end(out);
  }
  if (!text.n) return;
  event("content_block_delta", out);
  buf_printf(out, ",\"index\":%d,\"delta\":", w->opened - 1);
  buf_puts(out, ev->kind == API_TOOL        ? "{\"type\":\"input_json_delta\",\"partial_json\":"
                : ev->kind == API_REASONING ? "{\"type\":\"thinking_delta\",\"thinking\":"
                                            : "{\"type\":\"text_delta\",\"text\":");
  emit_str(text, out);
  buf_putc(out, '}');
  event_end(out);
}

static void chunk(const api_answer *a, const api_event *ev, buf *out) {
  switch (ev->kind) {
  case API_BEGIN:
    event("message_start", out);
    buf_puts(out, ",\"message\":");
    head(a, out);
    buf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    usage(&ev->usage, out);
    buf_putc(out, '}');
    event_end(out);
    return;
  case API_TEXT:
  case API_REASONING:
  case API_TOOL: delta(a, ev, out); return;
  case API_USAGE:
    close_block(a, out);
    event("message_delta", out);
    buf_puts(out, ",\"delta\":{");
    stop_reason(a, out);
    buf_puts(out, "},\"usage\":");
    usage(&ev->usage, out);
    event_end(out);
    return;
  case API_FINISH:
  case API_ERROR: return;
  }
}

static void stream_end(const api_answer *a, buf *out) {
  (void)a;
  event("message_stop", out);
  event_end(out);
}

static void ping(const api_answer *a, buf *out) {
  (void)a;
  event("ping", out);
  event_end(out);
}

static void error(const err *e, buf *out) {
  const char *type = err_lookup(e->code)->anthropic;
  buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type ? type : "api_error");
  emit_str(str_c(e->msg), out);
  buf_puts(out, "}}");
}

static void stream_error(const api_answer *a, const err *e, buf *out) {
  (void)a;
  buf_puts(out, "event: error\ndata: ");
  error(e, out);
  buf_puts(out, "\n\n");
}

const api_dialect api_anthropic_messages = {.name = "anthropic-messages",
    .prefix = "msg_",
    .id_header = "Request-Id",
    .keeps = true,
    .state = sizeof(wire),
    .parse = parse,
    .chunk = chunk,
    .stream_end = stream_end,
    .whole = whole,
    .error = error,
    .stream_error = stream_error,
    .ping = ping};

const api_dialect api_anthropic_count = {.name = "anthropic-count", .parse = parse_count, .error = error, .stream_error = stream_error};
