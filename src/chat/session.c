#include "chat/session.h"
#include "api/openai_reply.h"
#include "api/openai_target.h"
#include "base/clock.h"
#include "net/http_client.h"
#include "net/sse.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_BODY = 16 << 20 };

struct chat_session {
  chat_opts o;
  openai_target to;
  char model[256];
  struct sigaction on_sigint; /* the loop's handler: set while an answer is under way */
  loop *loop;
  http_client *client;
  json_t *messages;
  chat_stats sum;
  int answers, timed;
  /* the answer under way */
  http_call *call;
  sse sse;
  buf text, raw; /* answer so far; body when it is not a stream */
  int status, chunks;
  int64_t sent, first, last;
  chat_stats st;
  char finish[32];
  bool complete; /* the stream said so */
  err e;
  void (*on_text)(void *ctx, str text);
  void *ctx;
};

/* ---- one call, start to end ---- */

static bool on_event(str event, str data, void *ctx) {
  chat_session *s = ctx;
  openai_reply p;
  (void)event;
  if (str_is(data, "[DONE]")) return s->complete = true;
  if (!openai_reply_parse(data, &p)) return err_set(&s->e, ERR_NET, "%s sent a chunk that is not JSON", s->to.shown);
  if (p.error) err_set(&s->e, ERR_NET, "%s", p.error);
  if (p.output) {
    s->last = clock_now();
    if (!s->first) s->first = s->last;
    s->chunks++;
    buf_str(&s->text, p.text);
    if (p.text.n) s->on_text(s->ctx, p.text);
  }
  if (p.finish) {
    snprintf(s->finish, sizeof s->finish, "%s", p.finish);
    s->complete = true;
  }
  if (p.has_usage) s->st.in = p.tokens_in, s->st.cached = p.tokens_cached, s->st.out = p.tokens_out;
  openai_reply_fini(&p);
  return !s->e.code;
}

static bool on_head(http_call *c, int status, void *ctx) {
  (void)c;
  ((chat_session *)ctx)->status = status;
  return true;
}

static bool on_data(http_call *c, str data, void *ctx) {
  chat_session *s = ctx;
  err e;
  (void)c;
  if (s->status != 200 || !s->on_text) return buf_str(&s->raw, data);
  if (sse_feed(&s->sse, data, &e)) return true;
  if (!s->e.code) s->e = e;
  return false;
}

static void on_done(http_call *c, const err *e, void *ctx) {
  chat_session *s = ctx;
  (void)c;
  s->call = NULL;
  if (e && !s->e.code) s->e = *e;
  loop_stop(s->loop);
}

static void on_int(void *arg) {
  chat_session *s = arg;
  if (!s->call) return;
  s->st.interrupted = true;
  http_call_cancel(s->call);
  s->call = NULL;
  loop_stop(s->loop);
}

/* The server's words about a status that is not 200. */
static bool refused(chat_session *s, const char *path, err *e) {
  openai_reply p = {0};
  bool words = openai_reply_parse(buf_view(&s->raw), &p) && p.error;
  if (words) err_set(e, openai_status_code(s->status), "%.400s", p.error);
  else err_set(e, openai_status_code(s->status), "%s%s answers HTTP %d without a message", s->to.shown, path, s->status);
  openai_target_scrub(&s->to, e->msg);
  openai_reply_fini(&p);
  return false;
}

static bool call(chat_session *s, const char *path, str body, err *e) {
  char url[TARGET_URL + 32];
  struct sigaction before;
  const char *headers[] = {"Content-Type: application/json", s->to.auth[0] ? s->to.auth : NULL, NULL};
  snprintf(url, sizeof url, "%s%s", s->to.base, path);
  http_call_opts co = {.url = url, .headers = headers, .body = body, .on_head = on_head, .on_data = on_data, .on_done = on_done, .ctx = s};
  buf_clear(&s->raw);
  s->status = 0;
  s->complete = false;
  err_clear(&s->e);
  s->sent = clock_now();
  if (!http_call_start(s->client, &co, &s->call, e)) return false;
  sigaction(SIGINT, &s->on_sigint, &before);
  loop_run(s->loop);
  sigaction(SIGINT, &before, NULL);
  if (s->st.interrupted) return true;
  if (s->e.code) {
    *e = s->e;
    return false;
  }
  return s->status == 200 || refused(s, path, e);
}

/* ---- the conversation ---- */

static json_t *message(const char *role, str text) { return json_pack("{s:s, s:s%}", "role", role, "content", text.p, text.n); }

static json_t *body_of(const chat_session *s) {
  json_t *b = json_pack("{s:s, s:O, s:b, s:{s:b}}", "model", s->model, "messages", s->messages, "stream", 1, "stream_options", "include_usage", 1);
  if (b && s->o.temperature >= 0) json_object_set_new(b, "temperature", json_real(s->o.temperature));
  if (b && s->o.top_p >= 0) json_object_set_new(b, "top_p", json_real(s->o.top_p));
  if (b && s->o.max_tokens >= 0) json_object_set_new(b, "max_tokens", json_integer(s->o.max_tokens));
  if (b && s->o.seed >= 0) json_object_set_new(b, "seed", json_integer(s->o.seed));
  return b;
}

static void add_up(chat_session *s, chat_stats *ret) {
  chat_stats *st = &s->st;
  if (!st->out) st->out = s->chunks; /* a server without usage, or an answer that was stopped: chunks are the best there is */
  st->ttft_ms = s->first ? clock_ms(s->first - s->sent) : 0;
  st->tps = st->out > 1 && s->last > s->first ? (double)(st->out - 1) / ((double)(s->last - s->first) / 1e9) : 0;
  st->finish = s->finish;
  s->answers++;
  s->timed += s->first != 0;
  s->sum.in += st->in, s->sum.cached += st->cached, s->sum.out += st->out, s->sum.ttft_ms += st->ttft_ms;
  *ret = *st;
}

static void begin_answer(chat_session *s) {
  s->st = (chat_stats){0};
  s->first = s->last = 0;
  s->chunks = 0;
  s->finish[0] = 0;
  buf_clear(&s->text);
  sse_fini(&s->sse);
  sse_init(&s->sse, 0, on_event, s);
}

bool chat_send(chat_session *s, str text, void (*on_text)(void *ctx, str text), void *ctx, chat_stats *ret, err *e) {
  if (!utf8_valid(text)) return err_set(e, ERR_INPUT, "the message is not valid UTF-8");
  size_t before = json_array_size(s->messages);
  json_t *b = NULL;
  char *dump = NULL;
  bool ok = json_array_append_new(s->messages, message("user", text)) == 0 && (b = body_of(s)) && (dump = json_dumps(b, JSON_COMPACT));
  if (!ok) err_set(e, ERR_NOMEM, "out of memory for the request");
  else {
    begin_answer(s);
    s->on_text = on_text;
    s->ctx = ctx;
    ok = call(s, "/chat/completions", str_c(dump), e);
    s->on_text = NULL;
    if (ok && !s->complete && !s->st.interrupted) ok = err_set(e, ERR_NET, "the answer of %s broke off", s->to.shown);
  }
  if (ok) add_up(s, ret);
  str answer = {buf_view(&s->text).p, utf8_valid_prefix(buf_view(&s->text), NULL)};
  if (ok && (answer.n || !s->st.interrupted)) json_array_append_new(s->messages, message("assistant", answer));
  else
    while (json_array_size(s->messages) > before) json_array_remove(s->messages, before);
  json_decref(b);
  free(dump);
  return ok;
}

static bool has_system(const chat_session *s) {
  const char *role = json_string_value(json_object_get(json_array_get(s->messages, 0), "role"));
  return role && str_is(str_c(role), "system");
}

void chat_system(chat_session *s, str text) {
  if (has_system(s)) json_array_remove(s->messages, 0);
  if (text.n) json_array_insert_new(s->messages, 0, message("system", text));
}

void chat_reset(chat_session *s) {
  size_t keep = has_system(s) ? 1 : 0;
  while (json_array_size(s->messages) > keep) json_array_remove(s->messages, json_array_size(s->messages) - 1);
}

int chat_turns(const chat_session *s) { return (int)(json_array_size(s->messages) - (has_system(s) ? 1 : 0)) / 2; }

void chat_totals(const chat_session *s, chat_stats *sum, int *ret_answers) {
  *sum = s->sum;
  if (s->timed) sum->ttft_ms /= s->timed;
  *ret_answers = s->answers;
}

bool chat_save(const chat_session *s, const char *path, err *e) {
  json_t *doc = json_pack("{s:s, s:O}", "model", s->model, "messages", s->messages);
  FILE *f = fopen(path, "w");
  if (!f) {
    err_errno(e, errno, "cannot write %s", path);
    json_decref(doc);
    return false;
  }
  bool ok = doc && json_dumpf(doc, f, JSON_INDENT(2)) == 0 && fputc('\n', f) != EOF;
  ok = fclose(f) == 0 && ok;
  json_decref(doc);
  return ok ? true : err_errno(e, errno, "cannot write %s", path);
}

bool chat_load(chat_session *s, const char *path, err *e) {
  json_t *doc, *ms, *m;
  size_t i;
  if (!json_load_path(path, MAX_BODY, &doc, e)) return false;
  ms = json_is_array(doc) ? doc : json_object_get(doc, "messages");
  bool ok = json_is_array(ms) ? true : err_set(e, ERR_INPUT, "%s holds no list of messages", path);
  if (ok)
    json_array_foreach(ms, i, m) if (ok && (!json_is_string(json_object_get(m, "role")) || !json_object_get(m, "content"))) ok =
        err_set(e, ERR_INPUT, "%s: message %zu has no role or no content", path, i);
  if (ok) {
    json_decref(s->messages);
    s->messages = json_incref(ms);
  }
  json_decref(doc);
  return ok;
}

/* ---- opening ---- */

static bool find_model(chat_session *s, err *e) {
  json_t *doc = NULL;
  if (!call(s, "/models", (str){NULL, 0}, e)) return false;
  if (s->st.interrupted) return true;
  const char *id = NULL;
  if (json_parse(buf_view(&s->raw), &doc, NULL)) id = json_string_value(json_object_get(json_array_get(json_object_get(doc, "data"), 0), "id"));
  if (id) snprintf(s->model, sizeof s->model, "%s", id);
  json_decref(doc);
  return id ? true : err_set(e, ERR_INPUT, "%s/models lists no model: is this the base URL? If so, give --model", s->to.shown);
}

/* The loop takes SIGINT only while an answer is under way: what came at another time must not stop the next one. */
static bool own_sigint(chat_session *s) {
  struct sigaction before;
  sigaction(SIGINT, NULL, &before);
  bool ok = loop_on_signal(s->loop, SIGINT, on_int, s);
  sigaction(SIGINT, &before, &s->on_sigint);
  return ok;
}

bool chat_session_new(const chat_opts *o, chat_session **ret, err *e) {
  chat_session *s = calloc(1, sizeof *s);
  if (!s) return err_set(e, ERR_NOMEM, "out of memory");
  s->o = *o;
  buf_init(&s->text, MAX_BODY);
  buf_init(&s->raw, MAX_BODY);
  sse_init(&s->sse, 0, on_event, s);
  s->messages = json_array();
  s->loop = loop_new();
  s->client = s->loop ? http_client_new(s->loop, 2) : NULL;
  bool ok = s->client && s->messages && own_sigint(s);
  if (!ok) err_set(e, ERR_NOMEM, "out of memory for a connection");
  else ok = openai_target_set(&s->to, o->url, o->key, e);
  if (ok && o->model) snprintf(s->model, sizeof s->model, "%s", o->model);
  else if (ok) ok = find_model(s, e);
  if (ok && s->st.interrupted) ok = err_set(e, ERR_CANCELLED, "interrupted");
  if (ok) *ret = s;
  else chat_session_free(s);
  return ok;
}

void chat_session_free(chat_session *s) {
  if (!s) return;
  if (s->client) http_client_free(s->client);
  if (s->loop) loop_free(s->loop);
  json_decref(s->messages);
  buf_fini(&s->text);
  buf_fini(&s->raw);
  sse_fini(&s->sse);
  free(s);
}

const char *chat_session_model(const chat_session *s) { return s->model; }
