#include "serve/tokens.h"
#include "api/openai_common.h"
#include "base/clock.h"
#include "serve/prompt.h"
#include <stdio.h>
#include <stdlib.h>

enum { ANSWER_MAX = 64 << 20 };

typedef struct job {
  server *server;
  http_req *http; /* NULL: the client has gone */
  const char *route;
  char id[SERVER_ID];
  const model *model;
  int ctx;
  tokens_what what;
  json_t *doc;
  api_request *chat; /* messages, checked as for a chat; or NULL */
  str prompt;
  bool add_special, parse_special, strs;
  buf out;
  bool ok;
  err error;
} job;

/* ---- the work, off the loop ---- */

static bool chat_of(const job *j, prompt_chat *c) {
  if (!j->chat) return false;
  *c = prompt_chat_of(j->chat);
  return true;
}

static void write_tokens(job *j, const tok_ids *ids) {
  buf_printf(&j->out, "{\"count\":%d,\"max_model_len\":%d,\"tokens\":[", ids->n, j->ctx);
  for (int i = 0; i < ids->n; i++) buf_printf(&j->out, i ? ",%d" : "%d", ids->v[i]);
  buf_puts(&j->out, "],\"token_strs\":");
  if (!j->strs) {
    buf_puts(&j->out, "null}");
    return;
  }
  buf_putc(&j->out, '[');
  for (int i = 0; i < ids->n; i++) {
    char scratch[8];
    buf_puts(&j->out, i ? ",\"" : "\"");
    buf_json(&j->out, tok_piece(j->model->tok, ids->v[i], true, scratch));
    buf_putc(&j->out, '"');
  }
  buf_puts(&j->out, "]}");
}

static bool encode(job *j) {
  tok_ids ids = {0};
  prompt_chat c;
  bool ok = chat_of(j, &c) ? prompt_chat_ids(j->model, &c, &ids, &j->error)
                           : tok_encode(j->model->tok, j->prompt, NULL, j->parse_special, j->add_special, &ids, &j->error);
  if (ok) write_tokens(j, &ids);
  free(ids.v);
  return ok;
}

static bool count(job *j) {
  tok_ids ids = {0};
  prompt_chat c;
  bool ok = chat_of(j, &c) && prompt_chat_ids(j->model, &c, &ids, &j->error);
  if (ok) buf_printf(&j->out, "{\"input_tokens\":%d}", ids.n);
  free(ids.v);
  return ok;
}

static bool decode(job *j) {
  json_t *list = json_object_get(j->doc, "tokens");
  tok_stream s;
  buf text;
  buf_init(&text, ANSWER_MAX);
  tok_stream_init_whole(&s, true);
  for (size_t i = 0; i < json_array_size(list); i++) tok_stream_push(j->model->tok, &s, (int32_t)json_integer_value(json_array_get(list, i)), &text);
  tok_stream_end(&s, &text);
  buf_puts(&j->out, "{\"prompt\":\"");
  buf_json(&j->out, buf_view(&text));
  buf_puts(&j->out, "\"}");
  bool ok = !text.failed || err_set(&j->error, ERR_TOO_LARGE, "the text of these tokens is too long to send");
  buf_fini(&text);
  return ok;
}

static bool render(job *j) {
  chat_text t = {0};
  prompt_chat c;
  chat_of(j, &c);
  if (!prompt_render(j->model, &c, &t, &j->error)) return false;
  buf_puts(&j->out, "{\"prompt\":\"");
  buf_json(&j->out, buf_view(&t.text));
  buf_puts(&j->out, "\"}");
  chat_text_fini(&t);
  return true;
}

static void run(void *arg) {
  job *j = arg;
  if (j->what == TOKENS_ENCODE) j->ok = encode(j);
  else if (j->what == TOKENS_DECODE) j->ok = decode(j);
  else if (j->what == TOKENS_COUNT) j->ok = count(j);
  else j->ok = render(j);
  if (j->ok && j->out.failed) j->ok = err_set(&j->error, ERR_TOO_LARGE, "the answer is too long to send");
}

/* ---- the request, on the loop ---- */

static void job_free(job *j) {
  api_request_unref(j->chat);
  json_decref(j->doc);
  buf_fini(&j->out);
  free(j);
}

static void done(void *arg) {
  job *j = arg;
  if (j->http && j->ok) server_answer(j->server, j->http, j->route, "application/json", buf_view(&j->out));
  else if (j->http) server_refuse(j->server, j->http, j->route, j->id, &j->error);
  job_free(j);
}

static void on_leave(http_req *r, void *arg) {
  (void)r;
  ((job *)arg)->http = NULL;
}

static bool read_tokens(job *j, err *e) {
  json_t *list = NULL;
  int vocab = tok_count(j->model->tok);
  if (!json_get_array(j->doc, "", "tokens", &list, e)) return false;
  if (!list) return err_param(e, ERR_INPUT, "tokens", "'tokens' is missing: a list of token ids");
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *x = json_array_get(list, i);
    char at[48];
    snprintf(at, sizeof at, "tokens[%zu]", i);
    if (!json_is_integer(x)) return err_param(e, ERR_INPUT, at, "'%s' must be a token id, not %s", at, json_type_name(x));
    json_int_t id = json_integer_value(x);
    if (id < 0 || id >= vocab) return err_param(e, ERR_INPUT, at, "'%s' is %lld: this model's token ids end at %d", at, (long long)id, vocab - 1);
  }
  return true;
}

/* Messages are read by the dialect they come in, so that what is counted here is what a chat would be. */
static bool read_chat(job *j, str body, err *e) {
  if (!api_request_parse(j->what == TOKENS_COUNT ? &api_anthropic_count : &api_openai_chat, body, &j->chat, e)) return false;
  j->chat->now = clock_unix();
  return true;
}

static bool read_encode(job *j, str body, err *e) {
  j->add_special = true;
  if (!json_get_bool(j->doc, "", "return_token_strs", &j->strs, e)) return false;
  if (json_object_get(j->doc, "messages")) return read_chat(j, body, e);
  if (!json_get_bool(j->doc, "", "add_special_tokens", &j->add_special, e)) return false;
  if (!json_get_bool(j->doc, "", "parse_special", &j->parse_special, e)) return false;
  if (!json_get_str(j->doc, "", "prompt", &j->prompt, e)) return false;
  return j->prompt.p || err_param(e, ERR_INPUT, "prompt", "'prompt' is missing: a string, or 'messages' for a chat");
}

static bool read_job(job *j, str body, err *e) {
  str name = {NULL, 0};
  if (!str_trim(body).n) return err_set(e, ERR_INPUT, "the request body is empty: send a JSON object");
  if (!json_parse(body, &j->doc, e)) return err_prefix(e, "request body");
  if (!json_is_object(j->doc)) return err_set(e, ERR_INPUT, "the request body must be a JSON object, not %s", json_type_name(j->doc));
  if (!json_get_str(j->doc, "", "model", &name, e) || !server_knows(j->server, name, e)) return false;
  if (j->what == TOKENS_ENCODE) return read_encode(j, body, e);
  if (j->what == TOKENS_DECODE) return read_tokens(j, e);
  return read_chat(j, body, e);
}

void tokens_start(server *s, http_req *r, const char *route, tokens_what what) {
  err e = {0};
  const server_parts *p = server_serving(s);
  job *j = p->model ? calloc(1, sizeof *j) : NULL;
  if (!j) {
    if (p->model) err_set(&e, ERR_NOMEM, "out of memory for a request");
    else err_set(&e, ERR_UNSUPPORTED, "the backend '%s' offers no tokenizer", p->backend->name);
    server_refuse(s, r, route, server_request_id(s), &e);
    return;
  }
  *j = (job){.server = s, .http = r, .route = route, .model = p->model, .ctx = p->ctx, .what = what};
  snprintf(j->id, sizeof j->id, "%s", server_request_id(s));
  buf_init(&j->out, ANSWER_MAX);
  bool ok = server_hold(r, &e) && read_job(j, http_body(r), &e);
  if (ok && !work_add(server_work(s), run, done, j))
    ok = err_set(&e, ERR_BUSY, "too many requests are waiting for the tokenizer: try again in a moment");
  if (ok) {
    http_on_close(r, on_leave, j);
    return;
  }
  job_free(j);
  server_refuse(s, r, route, server_request_id(s), &e);
}
