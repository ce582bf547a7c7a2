/* Anthropic messages: blocks become a conversation, a scripted run of events becomes blocks, streamed and whole; what does not map is named. */
#include "dialect_rig.h"

static const api_dialect *const D = &api_anthropic_messages;
#define ASK "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define USER(s) "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[" s "]}]}"
#define BOT(s) "{\"max_tokens\":9,\"messages\":[{\"role\":\"assistant\",\"content\":[" s "]},{\"role\":\"user\",\"content\":\"x\"}]}"

static void test_conversation(void **st) {
  (void)st;
  rig g;
  rig_open(&g, D,
      "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"A\",\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":\"text\",\"text\":\"B\"}"
      "],"
      "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"text\","
      "\"text\":\"c\"}]},"
      "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"Say\"},"
      "{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"add\",\"input\":{\"a\":1}},{\"type\":\"tool_use\",\"id\":\"c2\",\"name\":\"now\",\"input\":{}}"
      ","
      "{\"type\":\"tool_use\",\"id\":\"c3\",\"name\":\"odd\",\"input\":{\"INVALID_JSON\":\"{a\"}}]},"
      "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":\"2\"},"
      "{\"type\":\"tool_result\",\"tool_use_id\":\"c2\",\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"no clock\"}]},"
      "{\"type\":\"tool_result\",\"tool_use_id\":\"c3\"},{\"type\":\"text\",\"text\":\"go on\"}]}]}");
  json_is(g.req->messages,
      "[{\"role\":\"system\",\"content\":\"A\\nB\"},{\"role\":\"user\",\"content\":\"a\\nb\\nc\"},"
      "{\"role\":\"assistant\",\"content\":\"Say\",\"reasoning_content\":\"hm\",\"tool_calls\":["
      "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":{\"a\":1}}},"
      "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"now\",\"arguments\":{}}},"
      "{\"id\":\"c3\",\"type\":\"function\",\"function\":{\"name\":\"odd\",\"arguments\":\"{a\"}}]},"
      "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"2\"},{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"Error: no clock\"},"
      "{\"role\":\"tool\",\"tool_call_id\":\"c3\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"go on\"}]");
  rig_close(&g);
}

static void test_options(void **st) {
  (void)st;
  rig g;
  rig_open(&g, D,
      ASK
      ",\"stream\":true,\"temperature\":0.5,\"top_p\":0.5,\"top_k\":4,\"stop_sequences\":[\"a\",\"b\"],\"metadata\":{\"user_id\":\"u\"},\"seed\":3,"
      "\"thinking\":{\"type\":\"disabled\"},\"cache_control\":{\"type\":\"ephemeral\"},\"odd\":1,\"service_tier\":\"auto\","
      "\"tools\":[{\"name\":\"add\",\"description\":\"Adds\",\"input_schema\":{\"type\":\"object\"},\"cache_control\":{\"type\":\"ephemeral\"}}],"
      "\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}");
  const api_request *r = g.req;
  assert_true(r->stream && r->top_k == 4 && r->n_stop == 2 && r->max_tokens == 9 && r->has_seed && r->seed == 3 && !r->parallel_tools && !r->store);
  assert_string_equal(r->user.p, "u");
  assert_string_equal(r->ignored, "odd");
  json_is(r->template_kwargs, "{\"enable_thinking\":false}");
  json_is(r->tools, "[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"description\":\"Adds\",\"parameters\":{\"type\":\"object\"}}}]");
  rig_close(&g);
  rig_open(&g, D, ASK ",\"tool_choice\":{\"type\":\"none\"},\"thinking\":{\"type\":\"adaptive\"}}");
  assert_int_equal(g.req->tool_choice, API_TOOLS_NONE);
  rig_close(&g);
  api_request *c = NULL;
  err e = {0};
  assert_true(api_request_parse(&api_anthropic_count, STR("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"), &c, &e));
  api_request_unref(c);
}

static void test_refusals(void **st) {
  (void)st;
  static const refusal_case cases[] = {
      {"{\"max_tokens\":1}", "messages", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":[]}", "messages", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":{}}", "messages", ERR_INPUT},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "max_tokens", ERR_INPUT},
      {"{\"max_tokens\":0,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "max_tokens", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":[3]}", "messages[0]", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}", "messages[0].role", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":[{\"role\":\"user\"}]}", "messages[0].content", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content", ERR_INPUT},
      {"{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}]}", "messages[0]", ERR_UNSUPPORTED},
      {USER("3"), "messages[0].content[0]", ERR_INPUT},
      {USER("{}"), "messages[0].content[0].type", ERR_INPUT},
      {USER("{\"type\":\"text\"}"), "messages[0].content[0].text", ERR_INPUT},
      {USER("{\"type\":\"image\",\"source\":{}}"), "messages[0].content[0].type", ERR_UNSUPPORTED},
      {USER("{\"type\":\"document\",\"source\":{}}"), "messages[0].content[0].type", ERR_UNSUPPORTED},
      {USER("{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{}}"), "messages[0].content[0].type", ERR_UNSUPPORTED},
      {USER("{\"type\":\"tool_result\",\"content\":\"x\"}"), "messages[0].content[0].tool_use_id", ERR_INPUT},
      {USER("{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":3}"), "messages[0].content[0].content", ERR_INPUT},
      {USER("{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":[{\"type\":\"image\"}]}"), "messages[0].content[0].content[0].type",
          ERR_UNSUPPORTED},
      {USER("{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"is_error\":1}"), "messages[0].content[0].is_error", ERR_INPUT},
      {BOT("{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{}}"), "messages[0].content[0].id", ERR_INPUT},
      {BOT("{\"type\":\"tool_use\",\"id\":\"c\",\"input\":{}}"), "messages[0].content[0].name", ERR_INPUT},
      {BOT("{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\"}"), "messages[0].content[0].input", ERR_INPUT},
      {BOT("{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":\"{}\"}"), "messages[0].content[0].input", ERR_INPUT},
      {BOT("{\"type\":\"redacted_thinking\",\"data\":\"x\"}"), "messages[0].content[0].type", ERR_UNSUPPORTED},
      {BOT("{\"type\":\"server_tool_use\",\"id\":\"c\",\"name\":\"web_search\",\"input\":{}}"), "messages[0].content[0].type", ERR_UNSUPPORTED},
      {ASK ",\"system\":3}", "system", ERR_INPUT},
      {ASK ",\"system\":[{\"type\":\"image\"}]}", "system[0].type", ERR_UNSUPPORTED},
      {ASK ",\"stop_sequences\":\"a\"}", "stop_sequences", ERR_INPUT},
      {ASK ",\"stop_sequences\":[\"a\",\"\"]}", "stop_sequences[1]", ERR_INPUT},
      {ASK ",\"temperature\":1.5}", "temperature", ERR_INPUT},
      {ASK ",\"top_k\":-1}", "top_k", ERR_INPUT},
      {ASK ",\"metadata\":{\"user_id\":3}}", "metadata.user_id", ERR_INPUT},
      {ASK ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}", "thinking.type", ERR_UNSUPPORTED},
      {ASK ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}", "tools[0].type", ERR_UNSUPPORTED},
      {ASK ",\"tools\":[{\"name\":\"f\"}]}", "tools[0].input_schema", ERR_INPUT},
      {ASK ",\"tools\":[{\"name\":\"f g\",\"input_schema\":{}}]}", "tools[0].name", ERR_INPUT},
      {ASK ",\"tools\":[{\"input_schema\":{}}]}", "tools[0].name", ERR_INPUT},
      {ASK ",\"tool_choice\":{\"type\":\"any\"}}", "tool_choice.type", ERR_UNSUPPORTED},
      {ASK ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}", "tool_choice.type", ERR_UNSUPPORTED},
      {ASK ",\"tool_choice\":\"auto\"}", "tool_choice", ERR_INPUT},
      {ASK ",\"container\":\"c\"}", "container", ERR_UNSUPPORTED},
      {ASK ",\"mcp_servers\":[{}]}", "mcp_servers", ERR_UNSUPPORTED},
      {ASK ",\"output_config\":{\"effort\":\"low\"}}", "output_config", ERR_UNSUPPORTED},
      {ASK ",\"n\":2}", "n", ERR_UNSUPPORTED},
  };
  refused_all(D, cases, sizeof cases / sizeof *cases);
}

#define BLOCKS                                                                                                                                       \
  "[{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":\"hm\"},{\"type\":\"text\",\"text\":\"Say \\\"hi\\\"\"},"                                 \
  "{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"add\",\"input\":{\"a\":1}},{\"type\":\"tool_use\",\"id\":\"call_2\",\"name\":\"now\","        \
  "\"input\":{}}]"
#define USED "{\"input_tokens\":20,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":10,\"output_tokens\":8}"

static void test_whole(void **st) {
  (void)st;
  static const struct {
    api_finish finish;
    int stop;
    const char *max, *reason, *text;
  } cases[] = {{API_TOOL_CALLS, 0, "9", "\"tool_use\"", "null"}, {API_STOP, 0, "9", "\"end_turn\"", "null"},
      {API_STOP, 2, "9", "\"stop_sequence\"", "\"B\\\"\""}, {API_LENGTH, 0, "8", "\"max_tokens\"", "null"},
      {API_LENGTH, 0, "9", "\"model_context_window_exceeded\"", "null"}, {API_FILTER, 0, "9", "\"refusal\"", "null"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rig g;
    char body[256];
    snprintf(body, sizeof body, "{\"max_tokens\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stop_sequences\":[\"A\",\"B\\\"\"]}",
        cases[i].max);
    rig_open(&g, D, body);
    play(&g, cases[i].finish, cases[i].stop);
    json_t *v = json_loads(g.seen.p + 4, 0, NULL);
    json_is(json_object_get(v, "content"), BLOCKS);
    json_is(json_object_get(v, "usage"), USED);
    json_is(json_object_get(v, "stop_reason"), cases[i].reason);
    json_is(json_object_get(v, "stop_sequence"), cases[i].text);
    json_is(json_object_get(v, "id"), "\"msg_U\"");
    json_is(json_object_get(v, "model"), "\"m\"");
    json_decref(v);
    rig_close(&g);
  }
}

/* Arguments that are no object are handed on as text, in an object. */
static void test_odd_arguments(void **st) {
  (void)st;
  static const char *const args[] = {"{\"a\":", "[1]", "3"};
  for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
    rig g;
    rig_open(&g, D, ASK "}");
    say(&g, (api_event){.kind = API_TOOL, .tool = {0, STR("c"), STR("f"), str_c(args[i])}});
    say(&g, (api_event){.kind = API_FINISH, .finish = API_TOOL_CALLS});
    say(&g, (api_event){.kind = API_USAGE});
    json_t *v = json_loads(g.seen.p + 4, 0, NULL), *in = json_object_get(json_array_get(json_object_get(v, "content"), 0), "input");
    assert_string_equal(json_string_value(json_object_get(in, "INVALID_JSON")), args[i]);
    json_decref(v);
    rig_close(&g);
  }
}

static void test_stream(void **st) {
  (void)st;
  rig g;
  rig_open(&g, D, ASK ",\"stream\":true}");
  play(&g, API_TOOL_CALLS, 0);
  types_are(&g,
      "message_start\ncontent_block_start\ncontent_block_delta\ncontent_block_stop\ncontent_block_start\ncontent_block_delta\ncontent_block_delta\n"
      "content_block_stop\ncontent_block_start\ncontent_block_delta\ncontent_block_delta\ncontent_block_stop\ncontent_block_start\ncontent_block_"
      "stop\n"
      "message_delta\nmessage_stop\n");
  seen_has(&g, "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":30,");
  seen_has(&g, "\"index\":0,\"content_block\":{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":\"\"}}\n\n");
  seen_has(&g, "\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n");
  seen_has(&g, "\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Say \"}}\n\n");
  seen_has(&g, "\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"add\",\"input\":{}}}\n\n");
  seen_has(&g, "\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":\"}}\n\n");
  seen_has(&g, "\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":" USED "}\n\n");
  rig_close(&g);
}

static void test_failures(void **st) {
  (void)st;
  static const struct {
    err_code code;
    const char *want;
  } cases[] = {{ERR_INPUT, "400 {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"broke\"}}"},
      {ERR_BUSY, "503 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"broke\"}}"},
      {ERR_TOO_LARGE, "413 {\"type\":\"error\",\"error\":{\"type\":\"request_too_large\",\"message\":\"broke\"}}"},
      {ERR_INTERNAL, "500 {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"broke\"}}"}};
  rig g;
  err e;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    err_set(&e, cases[i].code, "broke");
    rig_open(&g, D, ASK ",\"stream\":true}");
    say(&g, (api_event){.kind = API_ERROR, .error = &e});
    assert_string_equal(g.seen.p, cases[i].want);
    rig_close(&g);
  }
  rig_open(&g, D, ASK ",\"stream\":true}");
  answer_keep_alive(&g.a);
  say(&g, (api_event){.kind = API_BEGIN});
  say(&g, (api_event){.kind = API_ERROR, .error = &e});
  types_are(&g, "ping\nmessage_start\nerror\n");
  rig_close(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_conversation), cmocka_unit_test(test_options), cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_whole), cmocka_unit_test(test_odd_arguments), cmocka_unit_test(test_stream), cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
