/* POST /v1/chat/completions: messages in, a message out. The prompt itself is the model's chat template's business, not ours. */
#include "api/messages.h"
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

static bool read_messages(api_request *r, err *e) {
  json_t *list = NULL;
  return json_get_array(r->doc, "", "messages", &list, e) && messages_take(r, list, "messages", e);
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
