/* POST /v1/chat/completions: messages in, a message out. The prompt itself is the model's chat template's business, not ours. */
#include "api/messages.h"
#include "api/openai_common.h"
#include "api/tools.h"
#include <stdio.h>

static const char *const own[] = {
    "messages", "logprobs", "top_logprobs", "chat_template_kwargs", "tools", "tool_choice", "parallel_tool_calls", NULL};
static const openai_refusal refused[] = {
    {"functions", NULL, NAN, "use 'tools'"},
    {"function_call", "none,auto", NAN, "use 'tool_choice'"},
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

static bool read_messages(api_request *r, err *e) {
  json_t *list = NULL;
  return json_get_array(r->doc, "", "messages", &list, e) && messages_take(r, list, "messages", e);
}

static bool read_tools(api_request *r, err *e) {
  json_t *list = NULL;
  return json_get_array(r->doc, "", "tools", &list, e) && tools_take(r, list, "tools", e) &&
         tools_choice(r, json_object_get(r->doc, "tool_choice"), "tool_choice", e) &&
         json_get_bool(r->doc, "", "parallel_tool_calls", &r->parallel_tools, e);
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
         json_get_object(r->doc, "", "chat_template_kwargs", &r->template_kwargs, e) && read_tools(r, e) && read_messages(r, e);
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

/* A piece of a call: the first names it, the others carry its arguments as they come. */
static void write_tool_piece(const api_tool *t, buf *out) {
  buf_printf(out, "\"tool_calls\":[{\"index\":%d,", t->index);
  if (t->name.n) {
    buf_puts(out, "\"id\":\"");
    buf_json(out, t->id);
    buf_puts(out, "\",\"type\":\"function\",");
  }
  buf_puts(out, "\"function\":{");
  if (t->name.n) {
    buf_puts(out, "\"name\":\"");
    buf_json(out, t->name);
    buf_puts(out, "\",");
  }
  buf_puts(out, "\"arguments\":\"");
  buf_json(out, t->args);
  buf_puts(out, "\"}}]");
}

static void write_delta(const api_event *ev, buf *out) {
  if (ev->kind == API_TOOL) {
    write_tool_piece(&ev->tool, out);
    return;
  }
  buf_puts(out, ev->kind == API_REASONING ? "\"reasoning_content\":\"" : "\"content\":\"");
  buf_json(out, ev->text);
  buf_putc(out, '"');
}

static void chat_chunk(const api_answer *a, const api_event *ev, buf *out) {
  if (ev->kind == API_USAGE) {
    openai_usage_chunk(a, "chatcmpl-", "chat.completion.chunk", &ev->usage, out);
    return;
  }
  if (ev->kind == API_BEGIN || ev->kind == API_ERROR) return;
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
    if (ev->kind != API_TOOL && !ev->text.n && !ev->n_tokens) return;
    chunk_head(a, c->index, out);
    write_delta(ev, out);
    buf_puts(out, "},\"logprobs\":");
    write_logprobs(a, ev->tokens, ev->n_tokens, out);
    buf_puts(out, ",\"finish_reason\":null");
  }
  chunk_tail(a, ev, out);
}

static void write_string(str s, buf *out) {
  buf_putc(out, '"');
  buf_json(out, s);
  buf_putc(out, '"');
}

static void write_calls(const api_choice *c, buf *out) {
  buf_puts(out, ",\"tool_calls\":[");
  for (int i = 0; i < c->n_calls; i++) {
    buf_puts(out, i ? ",{\"id\":" : "{\"id\":");
    write_string(c->calls[i].id, out);
    buf_puts(out, ",\"type\":\"function\",\"function\":{\"name\":");
    write_string(c->calls[i].name, out);
    buf_puts(out, ",\"arguments\":");
    write_string(buf_view(&c->calls[i].args), out);
    buf_puts(out, "}}");
  }
  buf_putc(out, ']');
}

static void chat_choice(const api_answer *a, const api_choice *c, buf *out) {
  buf_printf(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
  if (c->text.n || !c->n_calls) write_string(buf_view(&c->text), out);
  else buf_puts(out, "null");
  if (c->reasoning.n) {
    buf_puts(out, ",\"reasoning_content\":");
    write_string(buf_view(&c->reasoning), out);
  }
  buf_puts(out, ",\"refusal\":null");
  if (c->n_calls) write_calls(c, out);
  buf_puts(out, "},\"logprobs\":");
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
