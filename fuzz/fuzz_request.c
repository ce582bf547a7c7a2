/* A request's JSON in every dialect, and the answer to it. The first byte of the input names the dialect, the second how the answer goes; the rest is
 * the body. Holds: two parses agree; what was accepted is within request.h's bounds; a refusal is a document of the dialect; an accepted request gets
 * an answer that is JSON, or a stream whose every `data:` is JSON (or [DONE]), whatever text the model writes. */
#include "api/dialect.h"
#include "base/clock.h"
#include "fuzz.h"
#include "net/sse.h"
#include <stdlib.h>

static const struct {
  char letter;
  const api_dialect *d;
} dialects[] = {{'c', &api_openai_chat}, {'p', &api_openai_completions}, {'r', &api_openai_responses}, {'a', &api_anthropic_messages},
    {'n', &api_anthropic_count}};
enum { N_DIALECTS = sizeof dialects / sizeof *dialects };

static const api_dialect *dialect_of(uint8_t letter) {
  for (size_t i = 0; i < N_DIALECTS; i++)
    if (dialects[i].letter == letter) return dialects[i].d;
  return dialects[letter % N_DIALECTS].d;
}

static void expect_json(str text, const char *what) {
  json_t *j = NULL;
  err e = {0};
  FUZZ_CHECK(json_parse(text, &j, &e), "%s is no JSON: %s: %.*s", what, e.msg, (int)(text.n < 2000 ? text.n : 2000), text.p);
  json_decref(j);
}

/* ---- where the answer goes ---- */

typedef struct catch {
  sse reader;
  bool opened, closed, whole;
  int data;
}
catch;

static bool on_data(str event, str data, void *ctx) {
  catch *c = ctx;
  (void)event;
  c->data++;
  if (!str_is(data, "[DONE]")) expect_json(data, "a message of the stream");
  return true;
}

static void out_header(void *ctx, const char *name, const char *value) {
  catch *c = ctx;
  FUZZ_CHECK(!c->opened && !c->whole && *name && value, "a header behind the head");
}
static void out_whole(void *ctx, int status, const char *type, str body) {
  catch *c = ctx;
  FUZZ_CHECK(!c->opened && !c->whole && status >= 200 && status < 600 && type, "a second answer");
  c->whole = true;
  expect_json(body, "the answer");
}
static void out_open(void *ctx, int status, const char *type) {
  catch *c = ctx;
  FUZZ_CHECK(!c->opened && !c->whole && status == 200 && type, "a second answer");
  c->opened = true;
}
static void out_write(void *ctx, str bytes) {
  catch *c = ctx;
  err e = {0};
  FUZZ_CHECK(c->opened && !c->closed, "bytes outside a stream");
  FUZZ_CHECK(sse_feed(&c->reader, bytes, &e), "%s", e.msg);
}
static void out_close(void *ctx) {
  catch *c = ctx;
  FUZZ_CHECK(c->opened && !c->closed, "an end without a beginning");
  FUZZ_CHECK(c->reader.line.n == 0 && !c->reader.have_data, "the stream ends within a message");
  c->closed = true;
}

/* ---- an answer ---- */

#define LIT(s)                                                                                                                                       \
  { s, sizeof(s) - 1 } /* STR is no constant */

static void text_event(api_answer *a, const api_request *r, int choice, str text) {
  static const api_top top[] = {{5, LIT("\xff"), -0.5f}, {6, LIT("b\n"), -1e30f}};
  api_token t = {.id = 5, .bytes = text, .logprob = -0.25f, .top = top, .n_top = r->logprobs < 2 ? r->logprobs : 2};
  api_event ev = {.kind = API_TEXT, .choice = choice, .text = text};
  if (r->logprobs >= 0) ev.tokens = &t, ev.n_tokens = 1;
  if (!a->done) answer_event(a, &ev);
}

static void tool_events(api_answer *a, int choice) {
  static const api_tool pieces[] = {{0, LIT("call_1"), LIT("f\"n"), LIT("")}, {0, LIT(""), LIT(""), LIT("{\"a\": \"")},
      {0, LIT(""), LIT(""), LIT("\\u00e4\n")}, {1, LIT("call_2"), LIT("g"), LIT("not json \x01")}};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces && !a->done; i++)
    answer_event(a, &(api_event){.kind = API_TOOL, .choice = choice, .tool = pieces[i]});
}

static void play(api_answer *a, const api_request *r, unsigned how) {
  static const str said[] = {LIT("Hello"), LIT(""), LIT("\xe2\x82\xac \"quoted\" \\ \n\r\t\x01 </s>"), LIT("data: x\n\n")};
  err boom = {0};
  int n = api_n_choices(r);
  api_usage u = {7, 3, 4, 0};
  err_set(&boom, ERR_BUSY, "the queue is full: \"try\" again");
  if (how % 8 == 7) {
    answer_fail(a, &boom);
    return;
  }
  if (how & 1) answer_keep_alive(a);
  answer_event(a, &(api_event){.kind = API_BEGIN});
  for (int i = 0; i < n && !a->done; i++) {
    if (r->echo) answer_event(a, &(api_event){.kind = API_TEXT, .choice = i, .prompt = true, .text = STR("the prompt")});
    for (size_t k = 0; k < sizeof said / sizeof *said; k++) text_event(a, r, i, said[k]);
    if (how & 2) tool_events(a, i);
    if (how % 16 == 12) answer_fail(a, &boom);
    if (!a->done) answer_event(a, &(api_event){.kind = API_FINISH, .choice = i, .finish = how & 2 ? API_TOOL_CALLS : API_STOP, .usage = u});
  }
  if (!a->done) answer_event(a, &(api_event){.kind = API_USAGE, .usage = u});
}

/* What is kept to go on from an answer is two lists. */
static void keep(const api_answer *a) {
  const api_dialect *d = a->req->dialect;
  if (!d->input || a->error.code) return;
  for (int i = 0; i < 2; i++) {
    buf out;
    buf_init(&out, 1 << 26);
    (i ? d->output : d->input)(a, &out);
    if (!out.failed) expect_json(buf_view(&out), i ? "what came out" : "what went in");
    buf_fini(&out);
  }
}

static void answer(api_request *r, unsigned how) {
  api_info info = {.id = "1234", .created = 1700000000, .model = "a \"model\"", .fingerprint = "fp_0", .accepted = clock_now(), .unique = "5678"};
  catch c = {0};
  api_out out = {&c, out_header, out_whole, out_open, out_write, out_close};
  api_answer a;
  err e = {0};
  if (api_n_choices(r) > 64 || !r->dialect->whole) return; /* shown often enough with fewer; a dialect that only counts has no answer */
  sse_init(&c.reader, 16 << 20, on_data, &c);
  if (answer_init(&a, r, &info, &out, &e)) {
    play(&a, r, how);
    FUZZ_CHECK(a.done && (c.whole || c.closed), "the answer has no end");
    FUZZ_CHECK(c.whole || c.data, "a stream that says nothing");
    keep(&a);
    answer_fini(&a);
  } else fuzz_refused(&e);
  sse_fini(&c.reader);
}

/* ---- a request ---- */

/* An answer that goes on from an earlier one gets that one's items first. */
static bool go_on(api_request *r, err *e) {
  static const char items[] = "[{\"type\": \"message\", \"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": \"before\"}]},"
                              "{\"type\": \"function_call\", \"call_id\": \"c0\", \"name\": \"f\", \"arguments\": \"{}\"},"
                              "{\"type\": \"function_call_output\", \"call_id\": \"c0\", \"output\": \"7\"}]";
  json_t *past = NULL;
  if (!r->dialect->resume || !r->previous.n) return true;
  FUZZ_CHECK(json_parse(str_c(items), &past, e), "%s", e->msg);
  bool ok = r->dialect->resume(r, past, e);
  json_decref(past);
  return ok;
}

static void check_bounds(const api_request *r) {
  FUZZ_CHECK(!r->messages != !r->prompts, "a request of both or neither");
  FUZZ_CHECK(r->n_prompts >= 1 && r->n_prompts <= API_MAX_PROMPTS, "%d prompts", r->n_prompts);
  FUZZ_CHECK(r->n >= 1 && r->n <= API_MAX_CHOICES && r->best_of >= r->n && r->best_of <= API_MAX_CHOICES, "n %d, best_of %d", r->n, r->best_of);
  FUZZ_CHECK(
      r->n_stop >= 0 && r->n_stop <= API_MAX_STOPS && r->n_bias >= 0 && r->n_bias <= API_MAX_BIAS, "%d stops, %d biases", r->n_stop, r->n_bias);
  for (int i = 0; i < r->n_stop; i++) FUZZ_CHECK(r->stop[i].n >= 1 && r->stop[i].n <= API_MAX_STOP && utf8_valid(r->stop[i]), "stop string %d", i);
  for (int i = 0; i < r->n_prompts && r->prompts; i++) fuzz_touch(r->prompts[i].text.p, r->prompts[i].ids ? 0 : r->prompts[i].text.n);
  FUZZ_CHECK(r->logprobs >= -1 && r->logprobs <= API_MAX_LOGPROBS, "%d log-probabilities", r->logprobs);
  FUZZ_CHECK(r->max_tokens >= -1 && r->min_tokens >= 0, "max_tokens %lld", (long long)r->max_tokens);
  FUZZ_CHECK(!r->tools || json_is_array(r->tools), "tools are no array");
  FUZZ_CHECK(!r->tools || json_array_size(r->tools) <= API_MAX_TOOLS, "%zu tools", json_array_size(r->tools));
  FUZZ_CHECK(memchr(r->ignored, 0, sizeof r->ignored), "the ignored fields have no end");
  size_t i;
  json_t *m;
  json_array_foreach(r->messages, i, m) {
    json_t *content = json_object_get(m, "content");
    FUZZ_CHECK(json_is_object(m) && json_is_string(json_object_get(m, "role")), "message %zu", i);
    FUZZ_CHECK(!content || json_is_string(content) || json_is_null(content), "content of message %zu", i);
  }
}

static void refusal(const api_dialect *d, const err *e) {
  buf out;
  fuzz_refused(e);
  buf_init(&out, 1 << 20);
  d->error(e, &out);
  expect_json(buf_view(&out), "the refusal");
  buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  if (n < 2) return 0;
  const api_dialect *d = dialect_of(p[0]);
  char *copy = fuzz_copy(p + 2, n - 2);
  str body = {copy, n - 2};
  api_request *a = NULL, *b = NULL;
  err e = {0}, f = {0};
  json_setup();
  bool ok = api_request_parse(d, body, &a, &e) && go_on(a, &e), ok2 = api_request_parse(d, body, &b, &f) && go_on(b, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (ok) {
    FUZZ_CHECK(api_n_choices(a) == api_n_choices(b) && a->n_stop == b->n_stop && a->max_tokens == b->max_tokens, "two parses differ");
    FUZZ_CHECK(!a->messages || json_equal(a->messages, b->messages), "two parses of one conversation differ");
    FUZZ_CHECK(strcmp(a->ignored, b->ignored) == 0, "two parses ignore other fields");
    check_bounds(a);
    answer(a, p[1]);
  } else refusal(d, &e);
  api_request_unref(a);
  api_request_unref(b);
  free(copy);
  return 0;
}
