/* POST /v1/completions: text or token ids in, text out; with echo and logprobs it scores a prompt. */
#include "api/openai_common.h"
#include <stdio.h>

static const char *const own[] = {"prompt", "echo", "logprobs", NULL};
static const openai_refusal refused[] = {
    {"suffix", NULL, NAN, NULL},
    {"prompt_cache", NULL, NAN, NULL},
    {"messages", NULL, NAN, "use /v1/chat/completions"},
    {NULL, NULL, 0, NULL},
};

/* ---- prompt: a string, a list of strings, ids, a list of lists of ids ---- */

static bool one_prompt(api_request *r, json_t *v, const char *at, api_prompt *ret, err *e) {
  if (json_is_string(v)) {
    *ret = (api_prompt){.text = {json_string_value(v), json_string_length(v)}};
    return true;
  }
  if (!json_is_array(v)) return err_param(e, ERR_INPUT, at, "'%s' must be a string or a list of token ids, not %s", at, json_type_name(v));
  if (!json_array_size(v)) return err_param(e, ERR_INPUT, at, "'%s' is an empty list: at least one token is needed", at);
  int32_t *ids;
  if (!openai_ids(r, v, at, &ids, &ret->n_ids, e)) return false;
  ret->ids = ids;
  return true;
}

static bool read_prompts(api_request *r, err *e) {
  json_t *v = json_object_get(r->doc, "prompt");
  if (!v || json_is_null(v))
    return err_param(e, ERR_INPUT, "prompt", "'prompt' is missing: a string, a list of strings, token ids or lists of token ids");
  bool list = json_is_array(v) && json_array_size(v) && !json_is_number(json_array_get(v, 0));
  size_t n = list ? json_array_size(v) : 1;
  if (n > API_MAX_PROMPTS) return err_param(e, ERR_INPUT, "prompt", "'prompt' has %zu entries: at most %d are allowed", n, API_MAX_PROMPTS);
  if (!(r->prompts = ARENA_ARRAY(&r->mem, api_prompt, n))) return err_set(e, ERR_NOMEM, "out of memory while reading the request");
  for (size_t i = 0; i < n; i++) {
    char at[48];
    snprintf(at, sizeof at, list ? "prompt[%zu]" : "prompt", i);
    if (!one_prompt(r, list ? json_array_get(v, i) : v, at, &r->prompts[i], e)) return false;
  }
  r->n_prompts = (int)n;
  return true;
}

static bool completions_parse(api_request *r, err *e) {
  int64_t logprobs = -1;
  if (!openai_fields(r, own, refused, e) || !openai_params(r, 0, e)) return false;
  if (!json_get_bool(r->doc, "", "echo", &r->echo, e)) return false;
  if (!json_get_i64(r->doc, "", "logprobs", 0, API_MAX_LOGPROBS, &logprobs, e)) return false;
  r->logprobs = (int)logprobs;
  return read_prompts(r, e);
}

/* ---- writing ---- */

/* Bytes that are no text of their own (a piece of a code point) are written as OpenAI does, "bytes:\xe2\x82", so that two tokens never
 * share a name. */
static void write_token(str s, buf *out) {
  if (utf8_valid(s)) {
    buf_json(out, s);
    return;
  }
  buf_puts(out, "bytes:");
  for (size_t i = 0; i < s.n; i++) buf_printf(out, "\\\\x%02x", (unsigned)(unsigned char)s.p[i]);
}

/* The k best, and the chosen token where it is not among them. */
static void write_top(const api_token *t, int k, buf *out) {
  if (isnan(t->logprob)) {
    buf_puts(out, "null");
    return;
  }
  bool seen = false;
  int n = t->n_top < k ? t->n_top : k;
  buf_putc(out, '{');
  for (int j = 0; j < n; j++) {
    seen |= t->top[j].id == t->id;
    buf_puts(out, j ? ",\"" : "\"");
    write_token(t->top[j].bytes, out);
    buf_puts(out, "\":");
    openai_lp(t->top[j].logprob, out);
  }
  if (!seen) {
    buf_puts(out, n ? ",\"" : "\"");
    write_token(t->bytes, out);
    buf_puts(out, "\":");
    openai_lp(t->logprob, out);
  }
  buf_putc(out, '}');
}

static void write_logprobs(const api_answer *a, const api_token *t, int n, int64_t offset, buf *out) {
  int k = a->req->logprobs;
  if (k < 0) {
    buf_puts(out, "null");
    return;
  }
  buf_puts(out, "{\"tokens\":[");
  for (int i = 0; i < n; i++) {
    buf_puts(out, i ? ",\"" : "\"");
    write_token(t[i].bytes, out);
    buf_putc(out, '"');
  }
  buf_puts(out, "],\"token_logprobs\":[");
  for (int i = 0; i < n; i++) {
    if (i) buf_putc(out, ',');
    openai_lp(t[i].logprob, out);
  }
  buf_puts(out, "],\"top_logprobs\":");
  if (!k) buf_puts(out, "null");
  else {
    buf_putc(out, '[');
    for (int i = 0; i < n; i++) {
      if (i) buf_putc(out, ',');
      write_top(&t[i], k, out);
    }
    buf_putc(out, ']');
  }
  buf_puts(out, ",\"text_offset\":[");
  for (int i = 0; i < n; i++) {
    buf_printf(out, "%s%lld", i ? "," : "", (long long)offset);
    for (size_t j = 0; j < t[i].bytes.n; j++) offset += ((unsigned char)t[i].bytes.p[j] & 0xc0) != 0x80;
  }
  buf_puts(out, "]}");
}

static void completions_chunk(const api_answer *a, const api_event *ev, buf *out) {
  if (ev->kind == API_USAGE) {
    openai_usage_chunk(a, "cmpl-", "text_completion", &ev->usage, out);
    return;
  }
  if (ev->kind != API_FINISH && (ev->kind != API_TEXT || (!ev->text.n && !ev->n_tokens))) return;
  const api_choice *c = &a->choices[ev->choice];
  buf_puts(out, "data: ");
  openai_head(a, "cmpl-", "text_completion", out);
  buf_puts(out, ",\"choices\":[{\"text\":\"");
  buf_json(out, ev->text);
  buf_printf(out, "\",\"index\":%d,\"logprobs\":", c->index);
  if (ev->kind == API_FINISH) buf_printf(out, "null,\"finish_reason\":\"%s\"}]", openai_finish(ev->finish));
  else {
    write_logprobs(a, ev->tokens, ev->n_tokens, c->chars, out);
    buf_puts(out, ",\"finish_reason\":null}]");
  }
  openai_chunk_usage(a, ev, out);
  buf_puts(out, "}\n\n");
}

static void completions_choice(const api_answer *a, const api_choice *c, buf *out) {
  buf_puts(out, "{\"text\":\"");
  buf_json(out, buf_view(&c->text));
  buf_printf(out, "\",\"index\":%d,\"logprobs\":", c->index);
  write_logprobs(a, c->tokens, c->n_tokens, 0, out);
  buf_printf(out, ",\"finish_reason\":\"%s\"}", openai_finish(c->finish));
}

static void completions_whole(const api_answer *a, buf *out) { openai_whole(a, "cmpl-", "text_completion", completions_choice, out); }

const api_dialect api_openai_completions = {.name = "openai-completions",
    .parse = completions_parse,
    .chunk = completions_chunk,
    .stream_end = openai_stream_end,
    .whole = completions_whole,
    .error = openai_error,
    .stream_error = openai_stream_error};
