/* POST /v1/chat/completions: messages in, a message out. The prompt itself is the model's chat template's business, not ours. */
#include "api/openai_common.h"
#include <stdio.h>

static const char *const own[] = {"messages", "logprobs", "top_logprobs", "chat_template_kwargs", NULL};
static const openai_refusal refused[] = {
    {"tools", NULL, NAN, NULL},
    {"tool_choice", "none,auto", NAN, NULL},
    {"functions", NULL, NAN, NULL},
    {"function_call", "none,auto", NAN, NULL},
    {"audio", NULL, NAN, NULL},
    {"modalities", "text", NAN, "only [\"text\"] is offered"},
    {"web_search_options", NULL, NAN, NULL},
    {"echo", NULL, NAN, "use /v1/completions"},
    {"chat_template", NULL, NAN, "the model's own template is used"},
    {"continue_final_message", NULL, NAN, NULL},
    {"documents", NULL, NAN, "put their text into a message"},
    {"suffix", NULL, NAN, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- messages ---- */

/* OpenAI renamed "system" for its newer models; templates know the old name. */
static bool check_role(json_t *m, const char *at, err *e) {
  static const char *const roles[] = {"system", "user", "assistant", "tool"};
  str role = {NULL, 0};
  char path[96];
  snprintf(path, sizeof path, "%s.role", at);
  if (!json_get_str(m, at, "role", &role, e)) return false;
  if (!role.p) return err_param(e, ERR_INPUT, path, "'%s' is missing", path);
  if (str_is(role, "developer"))
    return json_object_set_new(m, "role", json_string("system")) == 0 || err_set(e, ERR_NOMEM, "out of memory reading messages");
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (str_is(role, roles[i])) return true;
  return err_param(e, ERR_INPUT, path, "'%s' is '%.40s': it must be system, developer, user, assistant or tool", path, role.p);
}

/* Parts become one string, joined by newlines; a part that is not text is refused by name. */
static bool join_parts(json_t *parts, const char *at, json_t **ret, err *e) {
  buf text;
  buf_init(&text, SIZE_MAX / 4);
  bool ok = false;
  for (size_t i = 0; i < json_array_size(parts); i++) {
    json_t *p = json_array_get(parts, i);
    char path[96], field[128];
    str type = {NULL, 0}, s = {NULL, 0};
    snprintf(path, sizeof path, "%s.content[%zu]", at, i);
    if (!json_is_object(p)) {
      err_param(e, ERR_INPUT, path, "'%s' must be an object, not %s", path, json_type_name(p));
      goto out;
    }
    if (!json_get_str(p, path, "type", &type, e)) goto out;
    snprintf(field, sizeof field, "%s.type", path);
    if (!type.p) {
      err_param(e, ERR_INPUT, field, "'%s' is missing", field);
      goto out;
    }
    if (!str_is(type, "text")) {
      err_param(e, ERR_UNSUPPORTED, field, "'%s' is '%.40s', which is not supported: this model reads 'text' parts only", field, type.p);
      goto out;
    }
    if (!json_get_str(p, path, "text", &s, e)) goto out;
    snprintf(field, sizeof field, "%s.text", path);
    if (!s.p) {
      err_param(e, ERR_INPUT, field, "'%s' is missing", field);
      goto out;
    }
    if (i) buf_putc(&text, '\n');
    buf_str(&text, s);
  }
  *ret = text.failed ? NULL : json_stringn(text.p ? text.p : "", text.n);
  ok = *ret || err_set(e, ERR_NOMEM, "out of memory reading messages");
out:
  buf_fini(&text);
  return ok;
}

static bool check_content(json_t *m, const char *at, err *e) {
  json_t *c = json_object_get(m, "content"), *joined = NULL;
  char path[96];
  snprintf(path, sizeof path, "%s.content", at);
  if (json_is_string(c)) return true;
  if (json_is_array(c)) {
    if (!json_array_size(c)) return err_param(e, ERR_INPUT, path, "'%s' is an empty list", path);
    return join_parts(c, at, &joined, e) &&
           (json_object_set_new(m, "content", joined) == 0 || err_set(e, ERR_NOMEM, "out of memory reading messages"));
  }
  if (c && !json_is_null(c)) return err_param(e, ERR_INPUT, path, "'%s' must be a string or a list of parts, not %s", path, json_type_name(c));
  /* an assistant's turn that only calls tools has none */
  if (json_array_size(json_object_get(m, "tool_calls"))) return true;
  return err_param(e, ERR_INPUT, path, "'%s' is missing", path);
}

/* Templates want the arguments of a past call as an object; the API carries them as a string of JSON. One that is not JSON stays a string. */
static bool open_arguments(json_t *m, const char *at, err *e) {
  json_t *calls = NULL;
  if (!json_get_array(m, at, "tool_calls", &calls, e)) return false;
  for (size_t i = 0; i < json_array_size(calls); i++) {
    json_t *call = json_array_get(calls, i), *fn = json_object_get(call, "function"), *args = json_object_get(fn, "arguments"), *doc;
    char path[96];
    snprintf(path, sizeof path, "%s.tool_calls[%zu].function", at, i);
    if (!json_is_object(fn)) return err_param(e, ERR_INPUT, path, "'%s' must be an object, not %s", path, json_type_name(fn));
    if (!json_is_string(args)) continue;
    if (json_parse((str){json_string_value(args), json_string_length(args)}, &doc, NULL) && json_object_set_new(fn, "arguments", doc))
      return err_set(e, ERR_NOMEM, "out of memory reading messages");
  }
  return true;
}

static bool read_messages(api_request *r, err *e) {
  json_t *list = NULL;
  if (!json_get_array(r->doc, "", "messages", &list, e)) return false;
  if (!list) return err_param(e, ERR_INPUT, "messages", "'messages' is missing: a list of {\"role\", \"content\"} objects");
  if (!json_array_size(list)) return err_param(e, ERR_INPUT, "messages", "'messages' is empty: at least one message is needed");
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *m = json_array_get(list, i);
    char at[48];
    snprintf(at, sizeof at, "messages[%zu]", i);
    if (!json_is_object(m)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(m));
    if (!check_role(m, at, e) || !check_content(m, at, e) || !open_arguments(m, at, e)) return false;
  }
  r->messages = json_incref(list);
  return true;
}

static bool read_logprobs(api_request *r, err *e) {
  bool want = false;
  int64_t top = 0;
  if (!json_get_bool(r->doc, "", "logprobs", &want, e)) return false;
  if (!json_get_i64(r->doc, "", "top_logprobs", 0, API_MAX_LOGPROBS, &top, e)) return false;
  if (top && !want) return err_param(e, ERR_INPUT, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
  if (want) r->logprobs = (int)top;
  return true;
}

static bool chat_parse(api_request *r, err *e) {
  return openai_fields(r, own, refused, e) && openai_params(r, 1, e) && read_logprobs(r, e) &&
         json_get_object(r->doc, "", "chat_template_kwargs", &r->template_kwargs, e) && read_messages(r, e);
}

/* ---- writing ---- */

static void write_bytes(str s, buf *out) {
  buf_putc(out, '[');
  for (size_t i = 0; i < s.n; i++) buf_printf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)s.p[i]);
  buf_putc(out, ']');
}

static void write_lp(str bytes, float lp, buf *out) {
  buf_puts(out, "{\"token\":\"");
  buf_json(out, bytes);
  buf_puts(out, "\",\"logprob\":");
  openai_lp(lp, out);
  buf_puts(out, ",\"bytes\":");
  write_bytes(bytes, out);
}

static void write_logprobs(const api_answer *a, const api_token *t, int n, buf *out) {
  if (a->req->logprobs < 0) {
    buf_puts(out, "null");
    return;
  }
  buf_puts(out, "{\"content\":[");
  for (int i = 0; i < n; i++) {
    if (i) buf_putc(out, ',');
    write_lp(t[i].bytes, t[i].logprob, out);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int j = 0; j < t[i].n_top && j < a->req->logprobs; j++) {
      if (j) buf_putc(out, ',');
      write_lp(t[i].top[j].bytes, t[i].top[j].logprob, out);
      buf_putc(out, '}');
    }
    buf_puts(out, "]}");
  }
  buf_puts(out, "],\"refusal\":null}");
}

static void chunk_head(const api_answer *a, int index, buf *out) {
  buf_puts(out, "data: ");
  openai_head(a, "chatcmpl-", "chat.completion.chunk", out);
  buf_printf(out, ",\"choices\":[{\"index\":%d,\"delta\":{", index);
}

static void chunk_tail(const api_answer *a, const api_event *ev, buf *out) {
  buf_puts(out, "}]");
  openai_chunk_usage(a, ev, out);
  buf_puts(out, "}\n\n");
}

static void chat_chunk(const api_answer *a, const api_event *ev, buf *out) {
  if (ev->kind == API_USAGE) {
    openai_usage_chunk(a, "chatcmpl-", "chat.completion.chunk", &ev->usage, out);
    return;
  }
  if (ev->kind != API_TEXT && ev->kind != API_FINISH) return;
  const api_choice *c = &a->choices[ev->choice];
  if (!c->opened) {
    chunk_head(a, c->index, out);
    buf_puts(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null");
    chunk_tail(a, ev, out);
  }
  if (ev->kind == API_FINISH) {
    chunk_head(a, c->index, out);
    buf_printf(out, "},\"logprobs\":null,\"finish_reason\":\"%s\"", openai_finish(ev->finish));
  } else {
    if (!ev->text.n && !ev->n_tokens) return;
    chunk_head(a, c->index, out);
    buf_puts(out, "\"content\":\"");
    buf_json(out, ev->text);
    buf_puts(out, "\"},\"logprobs\":");
    write_logprobs(a, ev->tokens, ev->n_tokens, out);
    buf_puts(out, ",\"finish_reason\":null");
  }
  chunk_tail(a, ev, out);
}

static void chat_choice(const api_answer *a, const api_choice *c, buf *out) {
  buf_printf(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":\"", c->index);
  buf_json(out, buf_view(&c->text));
  buf_puts(out, "\",\"refusal\":null},\"logprobs\":");
  write_logprobs(a, c->tokens, c->n_tokens, out);
  buf_printf(out, ",\"finish_reason\":\"%s\"}", openai_finish(c->finish));
}

static void chat_whole(const api_answer *a, buf *out) { openai_whole(a, "chatcmpl-", "chat.completion", chat_choice, out); }

const api_dialect api_openai_chat = {.name = "openai-chat",
    .parse = chat_parse,
    .chunk = chat_chunk,
    .stream_end = openai_stream_end,
    .whole = chat_whole,
    .error = openai_error,
    .stream_error = openai_stream_error};
