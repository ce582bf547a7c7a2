/* OpenAI's dialects: what a body becomes, and the exact bytes a scripted run of events becomes, streamed and whole. */
#include "api/dialect.h"
#include "api/tools.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* ---- an api_out that writes down what it is told ---- */

static void rec_header(void *ctx, const char *n, const char *v) { buf_printf(ctx, "%s: %s\n", n, v); }
static void rec_whole(void *ctx, int status, const char *type, str body) { buf_printf(ctx, "%d %s\n%.*s\n", status, type, (int)body.n, body.p); }
static void rec_open(void *ctx, int status, const char *type) { buf_printf(ctx, "open %d %s\n", status, type); }
static void rec_write(void *ctx, str s) { buf_str(ctx, s); }
static void rec_close(void *ctx) { buf_puts(ctx, "close\n"); }

typedef struct rig {
  api_request *req;
  api_info info;
  api_out out;
  api_answer a;
  buf seen;
} rig;

static void rig_open(rig *g, const api_dialect *d, const char *body) {
  err e = {0};
  *g = (rig){.info = {"ID", 7, "m", "fp_x", 1000000}};
  buf_init(&g->seen, 1 << 20);
  g->out = (api_out){&g->seen, rec_header, rec_whole, rec_open, rec_write, rec_close};
  if (!api_request_parse(d, str_c(body), &g->req, &e)) fail_msg("%s", e.msg);
  assert_true(answer_init(&g->a, g->req, &g->info, &g->out, &e));
}

static void rig_close(rig *g) {
  answer_fini(&g->a);
  api_request_unref(g->req);
  buf_fini(&g->seen);
}

static void say(rig *g, api_event ev) { answer_event(&g->a, &ev); }
static void text(rig *g, int choice, const char *s) {
  say(g, (api_event){.kind = API_TEXT, .choice = choice, .text = str_c(s), .usage = {3, 1, 1, 0}});
}
static void finish(rig *g, int choice, api_finish f) { say(g, (api_event){.kind = API_FINISH, .choice = choice, .finish = f}); }
static const api_times known = {2000000, 3000000, 5000000, 9000000, 9500000};
static void usage(rig *g) { say(g, (api_event){.kind = API_USAGE, .usage = {3, 1, 2, 0}, .times = known}); }

#define CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define HEAD "\"id\":\"chatcmpl-ID\",\"object\":\"chat.completion"
#define REST "\"created\":7,\"model\":\"m\",\"system_fingerprint\":\"fp_x\""
#define USAGE                                                                                                                                        \
  "{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":1},\"completion_tokens_details\":{"  \
  "\"reasoning_tokens\":0}}"
#define TIMING "Server-Timing: queue;dur=1.000, prefill;dur=2.000, decode;dur=4.000, overhead;dur=1.000\n"

static void test_chat_whole(void **s) {
  (void)s;
  rig g;
  rig_open(&g, &api_openai_chat, CHAT "}");
  say(&g, (api_event){.kind = API_BEGIN});
  text(&g, 0, "Say \"hi\"\n");
  text(&g, 0, "\xc3\xa9");
  assert_int_equal(g.seen.n, 0); /* nothing leaves before the end */
  finish(&g, 0, API_STOP);
  usage(&g);
  assert_string_equal(g.seen.p,
      TIMING "200 application/json\n{" HEAD "\"," REST ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
             "\"Say \\\"hi\\\"\\n\xc3\xa9\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":" USAGE "}\n");
  assert_true(g.a.done);
  rig_close(&g);
}

static void test_chat_stream(void **s) {
  (void)s;
  rig g;
  rig_open(&g, &api_openai_chat, CHAT ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
  say(&g, (api_event){.kind = API_BEGIN, .times = {2000000, 3000000, 5000000, 0, 0}});
  text(&g, 0, "Hi");
  text(&g, 0, ""); /* an empty piece makes no chunk */
  finish(&g, 0, API_LENGTH);
  usage(&g);
#define CHUNK "data: {" HEAD ".chunk\"," REST ",\"choices\":["
  assert_string_equal(g.seen.p,
      "Server-Timing: queue;dur=1.000, prefill;dur=2.000\nCache-Control: no-cache\nX-Accel-Buffering: no\n"
      "open 200 text/event-stream; charset=utf-8\n" CHUNK
      "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n" CHUNK
      "{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n" CHUNK
      "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":null}\n\n" CHUNK "],\"usage\":" USAGE "}\n\n"
      "data: [DONE]\n\nclose\n");
  rig_close(&g);
}

#define TOOL(idx, rest) "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":" #idx "," rest "}]},\"logprobs\":null,\"finish_reason\":null}]}\n\n"

static void play_calls(rig *g) {
  say(g, (api_event){.kind = API_REASONING, .text = STR("hm\n")});
  text(g, 0, "So");
  say(g, (api_event){.kind = API_TOOL, .tool = {.index = 0, .id = STR("call_1"), .name = STR("f")}});
  say(g, (api_event){.kind = API_TOOL, .tool = {.index = 0, .args = STR("{\"a\":")}});
  say(g, (api_event){.kind = API_TOOL, .tool = {.index = 0, .args = STR(" 1}")}});
  say(g, (api_event){.kind = API_TOOL, .tool = {.index = 1, .id = STR("call_2"), .name = STR("g"), .args = STR("{}")}});
  finish(g, 0, API_TOOL_CALLS);
  usage(g);
}

/* The id and the name come first and once, then the arguments as they are written. */
static void test_chat_calls_stream(void **s) {
  (void)s;
  rig g;
  rig_open(&g, &api_openai_chat, CHAT ",\"stream\":true}");
  play_calls(&g);
  const char *at = strstr(g.seen.p, "data: ");
  assert_non_null(at);
  assert_string_equal(at,
      CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHUNK
            "{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\\n\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHUNK
            "{\"index\":0,\"delta\":{\"content\":\"So\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHUNK TOOL(
                0, "\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}")
                CHUNK TOOL(0, "\"function\":{\"arguments\":\"{\\\"a\\\":\"}") CHUNK TOOL(0, "\"function\":{\"arguments\":\" 1}\"}")
                    CHUNK TOOL(1, "\"id\":\"call_2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}") CHUNK
      "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\nclose\n");
  rig_close(&g);
}

static void test_chat_calls_whole(void **s) {
  (void)s;
  rig g;
  rig_open(&g, &api_openai_chat, CHAT "}");
  play_calls(&g);
  assert_non_null(strstr(g.seen.p,
      "{\"role\":\"assistant\",\"content\":\"So\",\"reasoning_content\":\"hm\\n\",\"refusal\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":"
      "\"function\","
      "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}},{\"id\":\"call_2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
      "\"arguments\":\"{}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}"));
  rig_close(&g);
  rig_open(&g, &api_openai_chat, CHAT "}");
  say(&g, (api_event){.kind = API_TOOL, .tool = {.index = 0, .id = STR("i"), .name = STR("f")}});
  finish(&g, 0, API_LENGTH);
  usage(&g);
  assert_non_null(strstr(g.seen.p, "\"content\":null,\"refusal\":null,\"tool_calls\":[{"));
  rig_close(&g);
}

static void test_completions_stream(void **s) {
  (void)s;
  rig g;
  rig_open(&g, &api_openai_completions, "{\"prompt\":[\"a\",\"b\"],\"stream\":true}");
  text(&g, 1, "B");
  text(&g, 0, "A");
  finish(&g, 1, API_STOP);
  finish(&g, 0, API_STOP);
  usage(&g);
#define PIECE "data: {\"id\":\"cmpl-ID\",\"object\":\"text_completion\"," REST ",\"choices\":[{\"text\":"
  assert_string_equal(g.seen.p, "Cache-Control: no-cache\nX-Accel-Buffering: no\nopen 200 text/event-stream; charset=utf-8\n" PIECE
                                "\"B\",\"index\":1,\"logprobs\":null,\"finish_reason\":null}]}\n\n" PIECE
                                "\"A\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}]}\n\n" PIECE
                                "\"\",\"index\":1,\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n" PIECE
                                "\"\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n"
                                "data: [DONE]\n\nclose\n");
  rig_close(&g);
}

/* Half a code point has no text of its own: its name is its bytes. Offsets count code points. */
static void test_completions_logprobs(void **s) {
  (void)s;
  rig g;
  const api_top tops[] = {{5, STR("\xc3"), -0.5f}, {6, STR("z"), -1.25f}};
  const api_token toks[] = {{1, STR("a"), NAN, NULL, 0}, {5, STR("\xc3"), -0.5f, tops, 2}, {7, STR("\xa9"), -INFINITY, tops, 2}};
  rig_open(&g, &api_openai_completions, "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":2,\"max_tokens\":0}");
  say(&g, (api_event){.kind = API_TEXT, .prompt = true, .text = STR("a\xc3\xa9"), .tokens = toks, .n_tokens = 3});
  finish(&g, 0, API_LENGTH);
  usage(&g);
  assert_non_null(
      strstr(g.seen.p, "\"text\":\"a\xc3\xa9\",\"index\":0,\"logprobs\":{\"tokens\":[\"a\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\"],"
                       "\"token_logprobs\":[null,-0.5,-9999.0],\"top_logprobs\":[null,{\"bytes:\\\\xc3\":-0.5,\"z\":-1.25},"
                       "{\"bytes:\\\\xc3\":-0.5,\"z\":-1.25,\"bytes:\\\\xa9\":-9999.0}],\"text_offset\":[0,1,2]},\"finish_reason\":\"length\""));
  rig_close(&g);
}

static void test_chat_logprobs(void **s) {
  (void)s;
  rig g;
  const api_top tops[] = {{5, STR("h"), -0.5f}, {6, STR("\xff"), -1}};
  const api_token t = {5, STR("h"), -0.5f, tops, 2};
  rig_open(&g, &api_openai_chat, CHAT ",\"logprobs\":true,\"top_logprobs\":2}");
  say(&g, (api_event){.kind = API_TEXT, .text = STR("h"), .tokens = &t, .n_tokens = 1});
  finish(&g, 0, API_STOP);
  usage(&g);
  assert_non_null(strstr(g.seen.p,
      "\"logprobs\":{\"content\":[{\"token\":\"h\",\"logprob\":-0.5,\"bytes\":[104],\"top_logprobs\":["
      "{\"token\":\"h\",\"logprob\":-0.5,\"bytes\":[104]},{\"token\":\"\xef\xbf\xbd\",\"logprob\":-1,\"bytes\":[255]}]}],\"refusal\":null}"));
  rig_close(&g);
}

/* Before anything was sent an error is a status; afterwards it is the stream's last message. */
static void test_errors(void **s) {
  (void)s;
  rig g;
  err e = {0};
  err_param(&e, ERR_CONTEXT, "prompt", "too \"long\"");
  rig_open(&g, &api_openai_chat, CHAT ",\"stream\":true}");
  say(&g, (api_event){.kind = API_ERROR, .error = &e});
  const char *doc =
      "{\"error\":{\"message\":\"too \\\"long\\\"\",\"type\":\"invalid_request_error\",\"param\":\"prompt\",\"code\":\"context_length_exceeded\"}}";
  char want[512];
  snprintf(want, sizeof want, "400 application/json\n%s\n", doc);
  assert_string_equal(g.seen.p, want);
  assert_int_equal(g.a.status, 400);
  text(&g, 0, "late"); /* nothing follows the end */
  assert_string_equal(g.seen.p, want);
  rig_close(&g);

  rig_open(&g, &api_openai_chat, CHAT ",\"stream\":true}");
  text(&g, 0, "x");
  size_t before = g.seen.n;
  say(&g, (api_event){.kind = API_ERROR, .error = &e});
  snprintf(want, sizeof want, "data: %s\n\nclose\n", doc);
  assert_string_equal(g.seen.p + before, want);
  assert_null(strstr(g.seen.p, "[DONE]"));
  rig_close(&g);

  rig_open(&g, &api_openai_chat, CHAT "}");
  err_set(&e, ERR_BUSY, "full");
  say(&g, (api_event){.kind = API_ERROR, .error = &e});
  assert_string_equal(g.seen.p,
      "Retry-After: 1\n503 application/json\n{\"error\":{\"message\":\"full\",\"type\":\"server_error\",\"param\":null,\"code\":\"overloaded\"}}\n");
  rig_close(&g);
}

static void test_keep_alive(void **s) {
  (void)s;
  rig g;
  rig_open(&g, &api_openai_chat, CHAT ",\"stream\":true}");
  answer_keep_alive(&g.a);
  assert_non_null(strstr(g.seen.p, "open 200"));
  assert_non_null(strstr(g.seen.p, ": keep-alive\n\n"));
  text(&g, 0, "x");
  assert_null(strstr(strstr(g.seen.p, "open 200") + 1, "open 200")); /* it began once */
  rig_close(&g);
  rig_open(&g, &api_openai_chat, CHAT "}");
  answer_keep_alive(&g.a);
  assert_int_equal(g.seen.n, 0);
  rig_close(&g);
}

/* Of four choices the two with the best mean log-probability stay, best first; a long unlikely one does not win by its length. */
static void test_best_of(void **s) {
  (void)s;
  rig g;
  rig_open(&g, &api_openai_completions, "{\"prompt\":\"a\",\"n\":2,\"best_of\":4}");
  static const float lps[] = {-3, -1, -2, -1};
  for (int c = 0; c < 4; c++) {
    const api_token t[2] = {{1, STR("t"), lps[c], NULL, 0}, {2, STR("t"), lps[c], NULL, 0}};
    char name[2] = {(char)('A' + c), 0};
    say(&g, (api_event){.kind = API_TEXT, .choice = c, .text = str_c(name), .tokens = t, .n_tokens = c == 1 ? 1 : 2});
    finish(&g, c, API_STOP);
  }
  usage(&g);
  assert_non_null(
      strstr(g.seen.p, "\"choices\":[{\"text\":\"B\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"},{\"text\":\"D\",\"index\":1"));
  assert_null(strstr(g.seen.p, "\"text\":\"A\""));
  rig_close(&g);
}

/* ---- parsing ---- */

static void refused(const api_dialect *d, const char *body, err_code code, const char *param, const char *word) {
  api_request *r = NULL;
  err e = {0};
  if (api_request_parse(d, str_c(body), &r, &e)) fail_msg("accepted: %s", body);
  assert_null(r);
  assert_int_equal(e.code, code);
  assert_string_equal(e.param, param);
  if (!strstr(e.msg, word)) fail_msg("'%s' does not say '%s'", e.msg, word);
}

static void test_refusals(void **s) {
  (void)s;
  const api_dialect *c = &api_openai_chat, *t = &api_openai_completions;
  refused(c, "", ERR_INPUT, "", "empty");
  refused(c, "[]", ERR_INPUT, "", "object");
  refused(c, "{}", ERR_INPUT, "messages", "missing");
  refused(c, CHAT ",\"temperature\":3}", ERR_INPUT, "temperature", "between 0 and 2");
  refused(c, CHAT ",\"max_tokens\":0}", ERR_INPUT, "max_tokens", "between 1");
  refused(c, CHAT ",\"stop\":[\"a\",\"\"]}", ERR_INPUT, "stop[1]", "empty");
  refused(
      c, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", ERR_UNSUPPORTED, "messages[0].content[0].type", "image_url");
  refused(t, "{\"prompt\":[1,\"a\"]}", ERR_INPUT, "prompt[1]", "token id");
  refused(t, "{\"prompt\":\"a\",\"suffix\":\"b\"}", ERR_UNSUPPORTED, "suffix", "suffix");
  refused(t, "{\"prompt\":\"a\",\"best_of\":3,\"n\":2,\"stream\":true}", ERR_INPUT, "best_of", "streamed");
}

#define FN(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

static void test_tools(void **s) {
  (void)s;
  const api_dialect *c = &api_openai_chat;
  api_request *r;
  err e = {0};
  assert_true(
      api_request_parse(c, STR(CHAT ",\"tools\":[" FN("a-B_9") "," FN("g") "],\"tool_choice\":\"none\",\"parallel_tool_calls\":false}"), &r, &e));
  assert_int_equal(json_array_size(r->tools), 2);
  assert_true(str_is(r->tool_names[1], "g") && r->tool_choice == API_TOOLS_NONE && !r->parallel_tools);
  api_request_unref(r);
  assert_true(api_request_parse(c, STR(CHAT ",\"tools\":[],\"tool_choice\":null}"), &r, &e));
  assert_true(!r->tools && r->tool_choice == API_TOOLS_AUTO && r->parallel_tools);
  api_request_unref(r);
  refused(c, CHAT ",\"tools\":[1]}", ERR_INPUT, "tools[0]", "object");
  refused(c, CHAT ",\"tools\":[" FN("a") ",{\"type\":\"function\"}]}", ERR_INPUT, "tools[1].function", "missing");
  refused(c, CHAT ",\"tools\":[{\"type\":\"custom\"}]}", ERR_UNSUPPORTED, "tools[0].type", "custom");
  refused(c, CHAT ",\"tools\":[" FN("a b") "]}", ERR_INPUT, "tools[0].function.name", "letters");
  refused(c, CHAT ",\"tools\":[" FN("") "]}", ERR_INPUT, "tools[0].function.name", "letters");
  refused(
      c, CHAT ",\"tools\":[" FN("a2345678901234567890123456789012345678901234567890123456789012345") "]}", ERR_INPUT, "tools[0].function.name", "64");
  refused(c, CHAT ",\"tools\":[" FN("a") "],\"tool_choice\":\"required\"}", ERR_UNSUPPORTED, "tool_choice", "'auto'");
  refused(c, CHAT ",\"tools\":[" FN("a") "],\"tool_choice\":" FN("a") "}", ERR_UNSUPPORTED, "tool_choice", "function");
  refused(c, CHAT ",\"tool_choice\":5}", ERR_INPUT, "tool_choice", "'auto'");
}

/* At the bound and one past it, in number and in bytes. */
static void test_tools_bounds(void **s) {
  (void)s;
  api_request *r;
  err e = {0};
  for (int n = API_MAX_TOOLS; n <= API_MAX_TOOLS + 1; n++) {
    buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, CHAT ",\"tools\":[");
    for (int i = 0; i < n; i++) buf_printf(&b, "%s" FN("f%d"), i ? "," : "", i);
    buf_puts(&b, "]}");
    assert_int_equal(api_request_parse(&api_openai_chat, buf_view(&b), &r, &e), n == API_MAX_TOOLS);
    if (n == API_MAX_TOOLS) api_request_unref(r);
    else assert_non_null(strstr(e.msg, "at most 512"));
    buf_fini(&b);
  }
  for (int mib = 1; mib <= 4; mib += 3) {
    buf b;
    buf_init(&b, 8 << 20);
    buf_puts(&b, CHAT ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"");
    for (int i = 0; i < mib << 20; i++) buf_putc(&b, 'x');
    buf_puts(&b, "\"}}]}");
    assert_int_equal(api_request_parse(&api_openai_chat, buf_view(&b), &r, &e), mib == 1);
    if (mib == 1) api_request_unref(r);
    else assert_non_null(strstr(e.msg, "at most 4194304"));
    buf_fini(&b);
  }
}

/* Arguments of past calls: opened where they are JSON; the text is kept where a model here wrote it and no client has printed it again. */
static void test_past_calls(void **s) {
  (void)s;
  char own[TOOLS_ID];
  tools_new_id(own, 5, false, TOOLS_OWN);
  static const struct {
    const char *id, *args; /* id NULL: our own */
    bool object, written;
  } rows[] = {{NULL, "{\\\"a\\\": 1}", true, true}, {NULL, "{\\\"a\\\":1}", true, false}, {NULL, "{\\\"a\\\": ", false, true},
      {NULL, "", true, false}, {"call_abc", "{\\\"a\\\": 1}", true, false}, {"call_abc", "{a", false, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    api_request *r;
    err e = {0};
    char body[512];
    snprintf(body, sizeof body,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"%s\",\"type\":"
        "\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"%s\"}}]}]}",
        rows[i].id ? rows[i].id : own, rows[i].args);
    if (!api_request_parse(&api_openai_chat, str_c(body), &r, &e)) fail_msg("%s", e.msg);
    json_t *call = json_array_get(json_object_get(json_array_get(r->messages, 1), "tool_calls"), 0);
    json_t *args = json_object_get(json_object_get(call, "function"), "arguments");
    assert_int_equal(json_is_object(args), rows[i].object);
    assert_int_equal(r->n_written, rows[i].written);
    if (rows[i].written) assert_ptr_equal(r->written[0].value, args);
    api_request_unref(r);
  }
#define CALLS(calls) "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}]}"
  refused(&api_openai_chat, CALLS("5"), ERR_INPUT, "messages[0].tool_calls[0]", "object");
  refused(&api_openai_chat, CALLS("{\"id\":1}"), ERR_INPUT, "messages[0].tool_calls[0].id", "string");
  refused(&api_openai_chat, CALLS("{\"type\":\"custom\"}"), ERR_UNSUPPORTED, "messages[0].tool_calls[0].type", "custom");
  refused(&api_openai_chat, CALLS("{}"), ERR_INPUT, "messages[0].tool_calls[0].function", "object");
  refused(&api_openai_chat, CALLS("{\"function\":{}}"), ERR_INPUT, "messages[0].tool_calls[0].function", "name' is missing");
  refused(
      &api_openai_chat, CALLS("{\"function\":{\"name\":\"f\",\"arguments\":[]}}"), ERR_INPUT, "messages[0].tool_calls[0].function", "string of JSON");
  refused(&api_openai_chat, "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"a\xff\"}]}", ERR_INPUT, "", "UTF-8");
}

static void test_fields(void **s) {
  (void)s;
  api_request *r;
  err e = {0};
  assert_true(api_request_parse(&api_openai_chat,
      STR(CHAT ",\"temperature\":0.5,\"top_k\":7,\"seed\":-1,\"n\":3,\"stop\":\"END\",\"max_tokens\":9,"
               "\"max_completion_tokens\":8,\"logit_bias\":{\"5\":-2},\"skip_special_tokens\":false,\"zzz\":1,\"user\":\"u\",\"top_p\":null}"),
      &r, &e));
  assert_true(r->temperature == 0.5 && r->top_k == 7 && r->n == 3 && r->best_of == 3 && r->max_tokens == 8 && r->keep_special);
  assert_true(r->has_seed && r->seed == UINT64_MAX);
  assert_false(api_given(r->top_p)); /* null is not given */
  assert_true(r->n_stop == 1 && str_is(r->stop[0], "END"));
  assert_true(r->n_bias == 1 && r->bias[0].token == 5 && r->bias[0].bias == -2);
  assert_string_equal(r->ignored, "zzz");
  assert_int_equal(r->logprobs, -1);
  api_request_unref(r);

  assert_true(api_request_parse(&api_openai_completions, STR("{\"prompt\":[[1,2],[3]],\"echo\":true,\"logprobs\":1,\"max_tokens\":0}"), &r, &e));
  assert_true(r->n_prompts == 2 && r->prompts[0].n_ids == 2 && r->prompts[1].ids[0] == 3 && r->echo && r->logprobs == 1 && r->max_tokens == 0);
  assert_int_equal(api_n_choices(r), 2);
  api_request_unref(r);
}

static void test_messages(void **s) {
  (void)s;
  api_request *r;
  err e = {0};
  assert_true(api_request_parse(&api_openai_chat,
      STR("{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
          "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}"
          "\"}}]},"
          "{\"role\":\"tool\",\"content\":\"\"}]}"),
      &r, &e));
  char *m = json_dumps(r->messages, JSON_COMPACT);
  assert_string_equal(m, "[{\"role\":\"system\",\"content\":\"a\\nb\"},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                         "\"arguments\":{\"x\":1}}}]},"
                         "{\"role\":\"tool\",\"content\":\"\"}]");
  free(m);
  api_request_unref(r);
}

/* Every cut of a valid body is refused or understood, never worse. */
static void test_cut_bodies(void **s) {
  (void)s;
  const char *body = CHAT ",\"stop\":[\"a\"],\"logit_bias\":{\"1\":2},\"stream_options\":{\"include_usage\":true},\"stop_token_ids\":[1,2]}";
  for (size_t n = 0; n < strlen(body); n++) {
    char *cut = malloc(n + 1);
    memcpy(cut, body, n);
    cut[n] = 0;
    refused(&api_openai_chat, cut, ERR_INPUT, "", "");
    free(cut);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_chat_whole), cmocka_unit_test(test_chat_stream), cmocka_unit_test(test_completions_stream),
      cmocka_unit_test(test_completions_logprobs), cmocka_unit_test(test_chat_logprobs), cmocka_unit_test(test_errors),
      cmocka_unit_test(test_keep_alive), cmocka_unit_test(test_best_of), cmocka_unit_test(test_refusals), cmocka_unit_test(test_fields),
      cmocka_unit_test(test_tools), cmocka_unit_test(test_tools_bounds), cmocka_unit_test(test_past_calls), cmocka_unit_test(test_chat_calls_stream),
      cmocka_unit_test(test_chat_calls_whole), cmocka_unit_test(test_messages), cmocka_unit_test(test_cut_bodies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
