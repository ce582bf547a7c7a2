/* POST /v1/responses: items in, items out. A conversation may go on from an answer that the server has kept (serve/store.h). */
#include "api/emit.h"
#include "api/fields.h"
#include "api/messages.h"
#include "api/openai_common.h"
#include "api/tools.h"
#include "api/turns.h"
#include <stdio.h>

static const field_row fields[] = {
    {"model", FIELD_READ, NULL, NULL},
    {"input", FIELD_READ, NULL, NULL},
    {"instructions", FIELD_READ, NULL, NULL},
    {"previous_response_id", FIELD_READ, NULL, NULL},
    {"max_output_tokens", FIELD_READ, NULL, NULL},
    {"tools", FIELD_READ, NULL, NULL},
    {"tool_choice", FIELD_READ, NULL, NULL},
    {"parallel_tool_calls", FIELD_READ, NULL, NULL},
    {"stream", FIELD_READ, NULL, NULL},
    {"store", FIELD_READ, NULL, NULL},
    {"metadata", FIELD_READ, NULL, NULL},
    {"user", FIELD_READ, NULL, NULL},
    {"text", FIELD_READ, NULL, NULL},
    {"reasoning", FIELD_READ, NULL, NULL},
    {"temperature", FIELD_READ, NULL, NULL},
    {"top_p", FIELD_READ, NULL, NULL},
    /* not OpenAI's, but the same here as in a chat */
    {"seed", FIELD_READ, NULL, NULL},
    {"top_k", FIELD_READ, NULL, NULL},
    {"min_p", FIELD_READ, NULL, NULL},
    {"typical_p", FIELD_READ, NULL, NULL},
    {"presence_penalty", FIELD_READ, NULL, NULL},
    {"frequency_penalty", FIELD_READ, NULL, NULL},
    {"repetition_penalty", FIELD_READ, NULL, NULL},
    {"stop", FIELD_READ, NULL, NULL},
    {"stop_token_ids", FIELD_READ, NULL, NULL},
    {"logit_bias", FIELD_READ, NULL, NULL},
    {"ignore_eos", FIELD_READ, NULL, NULL},
    {"min_tokens", FIELD_READ, NULL, NULL},
    {"chat_template_kwargs", FIELD_READ, NULL, NULL},
    /* no promise about the answer; max_tool_calls counts calls of built-in tools, of which there are none */
    {"service_tier", FIELD_SILENT, NULL, NULL},
    {"safety_identifier", FIELD_SILENT, NULL, NULL},
    {"prompt_cache_key", FIELD_SILENT, NULL, NULL},
    {"prompt_cache_retention", FIELD_SILENT, NULL, NULL},
    {"prompt_cache_options", FIELD_SILENT, NULL, NULL},
    {"max_tool_calls", FIELD_SILENT, NULL, NULL},
    {"stream_options", FIELD_SILENT, NULL, NULL},
    {"include", FIELD_REFUSED,
        "reasoning.encrypted_content,file_search_call.results,web_search_call.results,web_search_call.action.sources,"
        "message.input_image.image_url,computer_call_output.output.image_url,code_interpreter_call.outputs",
        "log-probabilities are offered by /v1/chat/completions"},
    {"truncation", FIELD_REFUSED, "disabled", "only 'disabled' is offered: shorten the input before sending it"},
    {"background", FIELD_REFUSED, NULL, "use 'stream'"},
    {"conversation", FIELD_REFUSED, NULL, "use 'previous_response_id'"},
    {"prompt", FIELD_REFUSED, NULL, "use 'instructions' and 'input'"},
    {"context_management", FIELD_REFUSED, NULL, NULL},
    {"moderation", FIELD_REFUSED, NULL, NULL},
    {"top_logprobs", FIELD_REFUSED, NULL, "log-probabilities are offered by /v1/chat/completions"},
    {"logprobs", FIELD_REFUSED, NULL, "log-probabilities are offered by /v1/chat/completions"},
    {"messages", FIELD_REFUSED, NULL, "use 'input', or /v1/chat/completions"},
    {"max_tokens", FIELD_REFUSED, NULL, "use 'max_output_tokens'"},
    {"max_completion_tokens", FIELD_REFUSED, NULL, "use 'max_output_tokens'"},
    {"n", FIELD_REFUSED, "1", "send the request again for another answer"},
    {"best_of", FIELD_REFUSED, "1", NULL},
    {"response_format", FIELD_REFUSED, NULL, "only plain text is offered"},
    {"functions", FIELD_REFUSED, NULL, "use 'tools'"},
    {"echo", FIELD_REFUSED, NULL, "use /v1/completions"},
    {"documents", FIELD_REFUSED, NULL, "put their text into a message"},
    {"guided_json", FIELD_REFUSED, NULL, NULL},
    {"guided_regex", FIELD_REFUSED, NULL, NULL},
    {"guided_choice", FIELD_REFUSED, NULL, NULL},
    {"guided_grammar", FIELD_REFUSED, NULL, NULL},
    {"structured_outputs", FIELD_REFUSED, NULL, NULL},
    {NULL, FIELD_READ, NULL, NULL},
};

/* ---- options with a shape of their own ---- */

static bool read_text(api_request *r, err *e) {
  json_t *text = NULL, *format = NULL;
  str type = {NULL, 0};
  if (!json_get_object(r->doc, "", "text", &text, e)) return false;
  if (!text) return true;
  if (!json_get_object(text, "text", "format", &format, e)) return false;
  if (format && !json_get_str(format, "text.format", "type", &type, e)) return false;
  if (type.p && !str_is(type, "text"))
    return err_param(e, ERR_UNSUPPORTED, "text.format.type", "'text.format.type' is '%.40s': only 'text' is offered", type.p);
  json_t *verbosity = json_object_get(text, "verbosity");
  if (verbosity && !json_is_null(verbosity)) api_request_ignored(r, "text.verbosity");
  return true;
}

/* Thinking is on or off where the template knows how; between the two there is nothing to turn. */
static bool read_reasoning(api_request *r, err *e) {
  json_t *o = NULL;
  str effort = {NULL, 0}, summary = {NULL, 0};
  if (!json_get_object(r->doc, "", "reasoning", &o, e)) return false;
  if (!o) return true;
  if (!json_get_str(o, "reasoning", "effort", &effort, e) || !json_get_str(o, "reasoning", "summary", &summary, e)) return false;
  if (summary.p && !str_is(summary, "auto"))
    return err_param(e, ERR_UNSUPPORTED, "reasoning.summary", "'reasoning.summary' is not supported: thoughts are given whole, as reasoning text");
  if (!effort.p) return true;
  if (!str_is(effort, "none"))
    return err_param(e, ERR_UNSUPPORTED, "reasoning.effort",
        "'reasoning.effort' is '%.40s', which is not supported: use 'none' to switch thinking off, or leave it away", effort.p);
  return fields_thinking_off(r, e);
}

static bool read_tool(json_t *t, const char *at, json_t *list, err *e) {
  static const char *const copied[] = {"name", "description", "parameters", "strict"};
  str type = {NULL, 0}, name = {NULL, 0}, text = {NULL, 0};
  json_t *params = NULL;
  char path[96];
  if (!json_is_object(t)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(t));
  if (!fields_need(t, at, "type", &type, e)) return false;
  snprintf(path, sizeof path, "%s.type", at);
  if (!str_is(type, "function"))
    return err_param(e, ERR_UNSUPPORTED, path, "'%s' is '%.40s': there are no built-in tools here, only 'function' is offered", path, type.p);
  if (!fields_need(t, at, "name", &name, e) || !json_get_str(t, at, "description", &text, e)) return false;
  if (!json_get_object(t, at, "parameters", &params, e)) return false;
  snprintf(path, sizeof path, "%s.name", at);
  if (!tools_name_ok(name))
    return err_param(e, ERR_INPUT, path, "'%s' is '%.80s': it must be 1 to %d letters, digits, _ and -", path, name.p, TOOLS_NAME);
  json_t *fn = json_object(), *tool = json_object();
  bool ok = fn && tool;
  for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
    json_t *v = json_object_get(t, copied[i]);
    if (v && !json_is_null(v)) ok = json_object_set(fn, copied[i], v) == 0 && ok;
  }
  ok = json_object_set_new(tool, "type", json_string("function")) == 0 && ok;
  ok = json_object_set_new(tool, "function", fn) == 0 && ok;
  ok = json_array_append_new(list, tool) == 0 && ok;
  return ok || err_set(e, ERR_NOMEM, "out of memory reading tools");
}

static bool read_tools(api_request *r, err *e) {
  json_t *given = NULL, *list;
  if (!json_get_array(r->doc, "", "tools", &given, e)) return false;
  if (json_array_size(given) > API_MAX_TOOLS)
    return err_param(e, ERR_INPUT, "tools", "'tools' has %zu entries: at most %d are allowed", json_array_size(given), API_MAX_TOOLS);
  if (!(list = json_array())) return err_set(e, ERR_NOMEM, "out of memory reading tools");
  bool ok = true;
  for (size_t i = 0; ok && i < json_array_size(given); i++) {
    char at[32];
    snprintf(at, sizeof at, "tools[%zu]", i);
    ok = read_tool(json_array_get(given, i), at, list, e);
  }
  ok = ok && tools_take(r, list, "tools", e) && tools_choice(r, json_object_get(r->doc, "tool_choice"), "tool_choice", e) &&
       json_get_bool(r->doc, "", "parallel_tool_calls", &r->parallel_tools, e);
  json_decref(list);
  return ok;
}

/* ---- input: a string, or items ---- */

/* The text of a list of parts, or of a string; `kinds` are the types of parts that carry text. */
static bool read_parts(json_t *v, const char *path, const char *const *kinds, buf *out, err *e) {
  if (json_is_string(v)) return buf_put(out, json_string_value(v), json_string_length(v)) || err_set(e, ERR_NOMEM, "out of memory reading input");
  if (!json_is_array(v))
    return err_param(e, ERR_INPUT, path, "'%s' %s: a string or a list of parts is needed", path, v ? "is neither string nor list" : "is missing");
  for (size_t i = 0; i < json_array_size(v); i++) {
    json_t *p = json_array_get(v, i);
    char at[80], field[96];
    str type = {NULL, 0}, text = {NULL, 0};
    bool known = false;
    snprintf(at, sizeof at, "%s[%zu]", path, i);
    if (!json_is_object(p)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(p));
    if (!fields_need(p, at, "type", &type, e)) return false;
    for (const char *const *k = kinds; *k; k++) known |= str_is(type, *k);
    snprintf(field, sizeof field, "%s.type", at);
    if (!known)
      return err_param(e, ERR_UNSUPPORTED, field, "'%s' is '%.40s', which is not supported here: only '%s' parts are read", field, type.p, kinds[0]);
    if (!json_get_str(p, at, "text", &text, e)) return false;
    snprintf(field, sizeof field, "%s.text", at);
    if (!text.p) return err_param(e, ERR_INPUT, field, "'%s' is missing", field);
    if (i && !str_is(type, "output_text") && !str_is(type, "reasoning_text")) buf_putc(out, '\n');
    buf_str(out, text);
  }
  return !out->failed || err_set(e, ERR_NOMEM, "out of memory reading input");
}

static bool message_item(turns *t, json_t *item, const char *at, buf *text, err *e) {
  static const char *const kinds_in[] = {"input_text", "text", NULL}, *const kinds_out[] = {"output_text", "input_text", "text", NULL};
  static const char *const roles[] = {"user", "assistant", "system", "developer"};
  str role = {NULL, 0};
  char path[64];
  if (!fields_need(item, at, "role", &role, e)) return false;
  snprintf(path, sizeof path, "%s.content", at);
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    if (!str_is(role, roles[i])) continue;
    if (!read_parts(json_object_get(item, "content"), path, i == 1 ? kinds_out : kinds_in, text, e)) return false;
    turns_say(t, i == 3 ? "system" : roles[i], buf_view(text));
    return true;
  }
  snprintf(path, sizeof path, "%s.role", at);
  return err_param(e, ERR_INPUT, path, "'%s' is '%.40s': it must be user, assistant, system or developer", path, role.p);
}

static bool call_item(turns *t, json_t *item, const char *at, buf *text, err *e) {
  str id = {NULL, 0}, name = {NULL, 0}, args = {NULL, 0};
  char path[64];
  (void)text;
  if (!fields_need(item, at, "call_id", &id, e) || !fields_need(item, at, "name", &name, e)) return false;
  if (!json_get_str(item, at, "arguments", &args, e)) return false;
  snprintf(path, sizeof path, "%s.arguments", at);
  if (!args.p) return err_param(e, ERR_INPUT, path, "'%s' is missing: a string of JSON", path);
  turns_call(t, id, name, json_object_get(item, "arguments"));
  return true;
}

static bool result_item(turns *t, json_t *item, const char *at, buf *text, err *e) {
  static const char *const kinds[] = {"input_text", NULL};
  str id = {NULL, 0};
  char path[64];
  if (!fields_need(item, at, "call_id", &id, e)) return false;
  snprintf(path, sizeof path, "%s.output", at);
  if (!read_parts(json_object_get(item, "output"), path, kinds, text, e)) return false;
  turns_result(t, id, buf_view(text));
  return true;
}

/* A thought as it was, or what is left of it where only a summary is. One that is encrypted can be read by none but its maker. */
static bool reasoning_item(turns *t, json_t *item, const char *at, buf *text, err *e) {
  static const char *const kinds[] = {"reasoning_text", "summary_text", NULL};
  json_t *sealed = json_object_get(item, "encrypted_content"), *content = json_object_get(item, "content"), *summary;
  char path[64];
  snprintf(path, sizeof path, "%s.encrypted_content", at);
  if (sealed && !json_is_null(sealed)) return err_param(e, ERR_UNSUPPORTED, path, "'%s' cannot be read here: leave this reasoning item away", path);
  summary = json_object_get(item, "summary");
  bool whole = content && !json_is_null(content);
  snprintf(path, sizeof path, "%s.%s", at, whole ? "content" : "summary");
  if (!read_parts(whole ? content : summary, path, kinds, text, e)) return false;
  turns_think(t, buf_view(text));
  return true;
}

typedef struct item_kind {
  const char *type;
  bool (*read)(turns *t, json_t *item, const char *at, buf *text, err *e);
} item_kind;
static const item_kind items[] = {
    {"message", message_item}, {"function_call", call_item}, {"function_call_output", result_item}, {"reasoning", reasoning_item}};

static bool read_item(turns *t, json_t *item, const char *at, buf *text, err *e) {
  str type = STR("message");
  char path[64];
  if (!json_is_object(item)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(item));
  if (!json_get_str(item, at, "type", &type, e)) return false;
  buf_clear(text);
  for (size_t i = 0; i < sizeof items / sizeof *items; i++)
    if (str_is(type, items[i].type)) return items[i].read(t, item, at, text, e);
  snprintf(path, sizeof path, "%s.type", at);
  return err_param(e, ERR_UNSUPPORTED, path,
      "'%s' is '%.40s', which is not supported: message, function_call, function_call_output and reasoning are", path, type.p);
}

static bool read_items(turns *t, json_t *list, const char *name, err *e) {
  buf text;
  bool ok = true;
  buf_init(&text, SIZE_MAX / 4);
  for (size_t i = 0; ok && i < json_array_size(list); i++) {
    char at[40];
    snprintf(at, sizeof at, "%s[%zu]", name, i);
    ok = read_item(t, json_array_get(list, i), at, &text, e);
  }
  buf_fini(&text);
  return ok;
}

static bool add_input(turns *t, json_t *in, err *e) {
  if (json_is_string(in)) {
    turns_say(t, "user", (str){json_string_value(in), json_string_length(in)});
    return true;
  }
  if (!in || json_is_null(in)) return err_param(e, ERR_INPUT, "input", "'input' is missing: a string, or a list of items");
  if (!json_is_array(in)) return err_param(e, ERR_INPUT, "input", "'input' must be a string or a list of items, not %s", json_type_name(in));
  if (!json_array_size(in)) return err_param(e, ERR_INPUT, "input", "'input' is an empty list: at least one item is needed");
  return read_items(t, in, "input", e);
}

/* Instructions hold for one answer: those of earlier turns are not part of what is gone on from. */
static bool resume(api_request *r, json_t *past, err *e) {
  turns t;
  str instructions = {NULL, 0};
  if (!json_get_str(r->doc, "", "instructions", &instructions, e)) return false;
  turns_init(&t);
  if (instructions.n) turns_say(&t, "system", instructions);
  bool ok = read_items(&t, past, "previous_response_id", e) && add_input(&t, json_object_get(r->doc, "input"), e);
  json_t *list = ok ? turns_end(&t, e) : NULL;
  ok = list && messages_take(r, list, "input", e);
  json_decref(list);
  turns_fini(&t);
  return ok;
}

static bool parse(api_request *r, err *e) {
  json_t *metadata = NULL;
  r->store = true;
  if (!fields_check(r, fields, e)) return false;
  if (!json_get_i64(r->doc, "", "max_output_tokens", 1, INT32_MAX, &r->max_tokens, e) || !openai_params(r, 1, e)) return false;
  if (!json_get_bool(r->doc, "", "store", &r->store, e) || !json_get_str(r->doc, "", "previous_response_id", &r->previous, e)) return false;
  if (!json_get_object(r->doc, "", "metadata", &metadata, e)) return false;
  if (!json_get_object(r->doc, "", "chat_template_kwargs", &r->template_kwargs, e)) return false;
  if (!read_text(r, e) || !read_reasoning(r, e) || !read_tools(r, e)) return false;
  return r->previous.n || resume(r, NULL, e);
}

/* ---- writing: items ---- */

typedef struct wire {
  int64_t seq; /* number of the next event */
  int opened;  /* parts that a stream has opened */
} wire;

static str bytes_of(const api_choice *c, const api_part *p) {
  const buf *b = p->kind == API_REASONING ? &c->reasoning : &c->text;
  return (str){buf_view(b).p + p->from, p->to - p->from};
}

static void item_id(const api_answer *a, int i, buf *out) {
  const api_choice *c = a->choices;
  api_event_kind kind = i < c->n_parts ? c->parts[i].kind : API_TEXT;
  buf_printf(out, "%s_%s%02d", kind == API_TOOL ? "fc" : kind == API_REASONING ? "rs" : "msg", a->info->unique, i);
}

static void text_part(str text, buf *out) {
  buf_puts(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
  emit_str(text, out);
  buf_putc(out, '}');
}

static void thought_part(str text, buf *out) {
  buf_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
  emit_str(text, out);
  buf_putc(out, '}');
}

static void part_object(const api_part *p, str text, buf *out) {
  if (p->kind == API_REASONING) thought_part(text, out);
  else text_part(text, out);
}

/* An item; open: as it begins, without content. */
static void item(const api_answer *a, int i, bool open, const char *status, buf *out) {
  const api_choice *c = a->choices;
  const api_part *p = &c->parts[i];
  buf_puts(out, "{\"id\":\"");
  item_id(a, i, out);
  buf_printf(out, "\",\"status\":\"%s\",", status);
  if (p->kind == API_TOOL) {
    const api_call_text *k = &c->calls[p->call];
    buf_puts(out, "\"type\":\"function_call\",\"call_id\":");
    emit_str(k->id, out);
    buf_puts(out, ",\"name\":");
    emit_str(k->name, out);
    buf_puts(out, ",\"arguments\":");
    emit_str(open ? STR("") : buf_view(&k->args), out);
    buf_putc(out, '}');
    return;
  }
  buf_puts(out,
      p->kind == API_REASONING ? "\"type\":\"reasoning\",\"summary\":[],\"content\":[" : "\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
  if (!open) part_object(p, bytes_of(c, p), out);
  buf_puts(out, "]}");
}

static const char *item_status(const api_answer *a, int i) {
  const api_choice *c = a->choices;
  return i + 1 == c->n_parts && c->finish == API_LENGTH ? "incomplete" : "completed";
}

/* An answer of nothing is a message without words. */
static void output(const api_answer *a, buf *out) {
  const api_choice *c = a->choices;
  buf_putc(out, '[');
  for (int i = 0; i < c->n_parts; i++) {
    if (i) buf_putc(out, ',');
    item(a, i, false, item_status(a, i), out);
  }
  if (!c->n_parts) {
    buf_puts(out, "{\"id\":\"");
    item_id(a, 0, out);
    buf_puts(out, "\",\"status\":\"completed\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    text_part(STR(""), out);
    buf_puts(out, "]}");
  }
  buf_putc(out, ']');
}

/* What went in, as items: each with an id and a type, a message's content as parts. */
static void input_item(const api_answer *a, size_t i, json_t *v, buf *out) {
  json_t *role = json_object_get(v, "role"), *x;
  const char *key;
  bool own = json_is_string(role) && !strcmp(json_string_value(role), "assistant");
  bool id = json_is_string(json_object_get(v, "id")), type = json_is_string(json_object_get(v, "type"));
  char sep = '{';
  if (!id) buf_printf(out, "%c\"id\":\"in_%s%02zu\"", sep, a->info->unique, i), sep = ',';
  if (!type) buf_printf(out, "%c\"type\":\"message\"", sep), sep = ',';
  json_object_foreach(v, key, x) {
    if ((!id && !strcmp(key, "id")) || (!type && !strcmp(key, "type"))) continue;
    buf_putc(out, sep);
    sep = ',';
    emit_str(str_c(key), out);
    buf_putc(out, ':');
    if (json_is_string(x) && !strcmp(key, "content")) {
      buf_puts(out, own ? "[{\"type\":\"output_text\",\"annotations\":[],\"text\":" : "[{\"type\":\"input_text\",\"text\":");
      emit_json(x, out);
      buf_puts(out, "}]");
    } else emit_json(x, out);
  }
  buf_putc(out, '}');
}

static void input(const api_answer *a, buf *out) {
  json_t *in = json_object_get(a->req->doc, "input");
  buf_putc(out, '[');
  if (json_is_string(in)) {
    buf_printf(out, "{\"id\":\"in_%s00\",\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":", a->info->unique);
    emit_json(in, out);
    buf_puts(out, "}]}");
  }
  for (size_t i = 0; i < json_array_size(in); i++) {
    if (i) buf_putc(out, ',');
    input_item(a, i, json_array_get(in, i), out);
  }
  buf_putc(out, ']');
}

/* ---- writing: the response ---- */

static void usage(const api_usage *u, buf *out) {
  buf_printf(out,
      "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld,\"cache_write_tokens\":0},\"output_tokens\":%lld,"
      "\"output_tokens_details\":{\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
      (long long)u->prompt, (long long)u->cached, (long long)u->output, (long long)u->reasoning, (long long)(u->prompt + u->output));
}

static const char *status_of(const api_answer *a) {
  api_finish f = a->choices->finish;
  return f == API_LENGTH || f == API_FILTER ? "incomplete" : "completed";
}

static void given(const json_t *doc, const char *key, const char *otherwise, buf *out) {
  const json_t *v = json_object_get(doc, key);
  buf_printf(out, ",\"%s\":", key);
  if (v && !json_is_null(v)) emit_json(v, out);
  else buf_puts(out, otherwise);
}

/* What of the request a response repeats. */
static void settings(const api_answer *a, buf *out) {
  const api_request *r = a->req;
  given(r->doc, "instructions", "null", out);
  given(r->doc, "max_output_tokens", "null", out);
  given(r->doc, "metadata", "{}", out);
  given(r->doc, "previous_response_id", "null", out);
  given(r->doc, "reasoning", "{\"effort\":null,\"summary\":null}", out);
  given(r->doc, "temperature", "null", out);
  given(r->doc, "top_p", "null", out);
  given(r->doc, "tools", "[]", out);
  given(r->doc, "user", "null", out);
  buf_printf(out, ",\"parallel_tool_calls\":%s,\"store\":%s,\"tool_choice\":\"%s\"", r->parallel_tools ? "true" : "false",
      r->store ? "true" : "false", r->tool_choice == API_TOOLS_NONE ? "none" : "auto");
  buf_puts(out, ",\"text\":{\"format\":{\"type\":\"text\"}},\"truncation\":\"disabled\",\"background\":false");
}

static void response(const api_answer *a, const char *status, const err *why, buf *out) {
  bool over = !strcmp(status, "completed") || !strcmp(status, "incomplete");
  buf_printf(out, "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":", a->info->unique,
      (long long)a->info->created, status);
  emit_str(str_c(a->info->model), out);
  buf_puts(out, ",\"error\":");
  if (why) {
    buf_printf(out, "{\"code\":\"%s\",\"message\":",
        why->code == ERR_LIMIT              ? "rate_limit_exceeded"
        : err_lookup(why->code)->http < 500 ? "invalid_prompt"
                                            : "server_error");
    emit_str(str_c(why->msg), out);
    buf_putc(out, '}');
  } else buf_puts(out, "null");
  buf_puts(out, ",\"incomplete_details\":");
  if (!strcmp(status, "incomplete"))
    buf_printf(out, "{\"reason\":\"%s\"}", a->choices->finish == API_FILTER ? "content_filter" : "max_output_tokens");
  else buf_puts(out, "null");
  buf_puts(out, ",\"output\":");
  if (over) output(a, out);
  else buf_puts(out, "[]");
  settings(a, out);
  buf_puts(out, ",\"usage\":");
  if (over) usage(&a->usage, out);
  else buf_puts(out, "null");
  buf_putc(out, '}');
}

static void whole(const api_answer *a, buf *out) { response(a, status_of(a), NULL, out); }

/* ---- writing: the stream ---- */

static void event(const api_answer *a, const char *type, buf *out) {
  wire *w = a->state;
  buf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", type, type, (long long)w->seq++);
}

static void event_end(buf *out) { buf_puts(out, "}\n\n"); }

static void response_event(const api_answer *a, const char *type, const char *status, const err *why, buf *out) {
  event(a, type, out);
  buf_puts(out, ",\"response\":");
  response(a, status, why, out);
  event_end(out);
}

/* An event of item i that says where it belongs; content: and to which part of it. */
static void item_event(const api_answer *a, const char *type, int i, bool content, buf *out) {
  event(a, type, out);
  buf_puts(out, ",\"item_id\":\"");
  item_id(a, i, out);
  buf_printf(out, "\",\"output_index\":%d", i);
  if (content) buf_puts(out, ",\"content_index\":0");
}

static void whole_item_event(const api_answer *a, const char *type, int i, bool open, const char *status, buf *out) {
  event(a, type, out);
  buf_printf(out, ",\"output_index\":%d,\"item\":", i);
  item(a, i, open, status, out);
  event_end(out);
}

static void open_item(const api_answer *a, int i, buf *out) {
  const api_part *p = &a->choices->parts[i];
  whole_item_event(a, "response.output_item.added", i, true, "in_progress", out);
  if (p->kind == API_TOOL) return;
  item_event(a, "response.content_part.added", i, true, out);
  buf_puts(out, ",\"part\":");
  part_object(p, STR(""), out);
  event_end(out);
}

static void close_item(const api_answer *a, int i, buf *out) {
  const api_choice *c = a->choices;
  const api_part *p = &c->parts[i];
  if (p->kind == API_TOOL) {
    item_event(a, "response.function_call_arguments.done", i, false, out);
    buf_puts(out, ",\"name\":");
    emit_str(c->calls[p->call].name, out);
    buf_puts(out, ",\"arguments\":");
    emit_str(buf_view(&c->calls[p->call].args), out);
    event_end(out);
  } else {
    bool thought = p->kind == API_REASONING;
    item_event(a, thought ? "response.reasoning_text.done" : "response.output_text.done", i, true, out);
    buf_puts(out, thought ? ",\"text\":" : ",\"logprobs\":[],\"text\":");
    emit_str(bytes_of(c, p), out);
    event_end(out);
    item_event(a, "response.content_part.done", i, true, out);
    buf_puts(out, ",\"part\":");
    part_object(p, bytes_of(c, p), out);
    event_end(out);
  }
  whole_item_event(a, "response.output_item.done", i, false, item_status(a, i), out);
}

static void delta(const api_answer *a, const api_event *ev, int i, buf *out) {
  str text = ev->kind == API_TOOL ? ev->tool.args : ev->text;
  if (!text.n) return;
  const char *type = ev->kind == API_TOOL        ? "response.function_call_arguments.delta"
                     : ev->kind == API_REASONING ? "response.reasoning_text.delta"
                                                 : "response.output_text.delta";
  item_event(a, type, i, ev->kind != API_TOOL, out);
  buf_puts(out, ev->kind == API_TEXT ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":");
  emit_str(text, out);
  event_end(out);
}

/* Items are closed with the answer at the latest: only then is it known whether the last one was cut. */
static void chunk(const api_answer *a, const api_event *ev, buf *out) {
  wire *w = a->state;
  const api_choice *c = a->choices;
  switch (ev->kind) {
  case API_BEGIN:
    response_event(a, "response.created", "in_progress", NULL, out);
    response_event(a, "response.in_progress", "in_progress", NULL, out);
    return;
  case API_TEXT:
  case API_REASONING:
  case API_TOOL:
    if (w->opened < c->n_parts) {
      if (w->opened) close_item(a, w->opened - 1, out);
      open_item(a, w->opened++, out);
    }
    delta(a, ev, w->opened - 1, out);
    return;
  case API_USAGE:
    if (w->opened) close_item(a, w->opened - 1, out);
    response_event(a, !strcmp(status_of(a), "completed") ? "response.completed" : "response.incomplete", status_of(a), NULL, out);
    return;
  case API_FINISH:
  case API_ERROR: return;
  }
}

static void stream_end(const api_answer *a, buf *out) {
  (void)a;
  (void)out; /* response.completed is the end */
}

static void stream_error(const api_answer *a, const err *e, buf *out) { response_event(a, "response.failed", "failed", e, out); }

const api_dialect api_openai_responses = {.name = "openai-responses",
    .prefix = "resp_",
    .keeps = true,
    .state = sizeof(wire),
    .parse = parse,
    .resume = resume,
    .input = input,
    .output = output,
    .chunk = chunk,
    .stream_end = stream_end,
    .whole = whole,
    .error = openai_error,
    .stream_error = stream_error};
