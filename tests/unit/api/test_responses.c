/* OpenAI responses: items become a conversation, a scripted run of events becomes items, streamed and whole; what does not map is named. */
#include "dialect_rig.h"

static const api_dialect *const D = &api_openai_responses;
#define IN "{\"input\":\"x\","
#define ITEM(s) "{\"input\":[" s "]}"

static void test_conversation(void **st) {
  (void)st;
  rig g;
  rig_open(&g, D,
      "{\"instructions\":\"Be brief.\",\"input\":["
      "{\"role\":\"developer\",\"content\":\"D\"},{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\","
      "\"text\":\"b\"}]},"
      "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]},"
      "{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"Say\",\"annotations\":"
      "[]}]},"
      "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"add\",\"arguments\":\"{\\\"a\\\":1}\"},"
      "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"now\",\"arguments\":\"\"},"
      "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"2\"},"
      "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":\"noon\"}]},"
      "{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"d\"}]}");
  json_is(g.req->messages,
      "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"system\",\"content\":\"D\"},{\"role\":\"user\",\"content\":\"a\\nb\"},"
      "{\"role\":\"assistant\",\"content\":\"Say\",\"reasoning_content\":\"hm\",\"tool_calls\":["
      "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":{\"a\":1}}},"
      "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"now\",\"arguments\":{}}}]},"
      "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"2\"},{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"noon\"},"
      "{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"d\"}]");
  rig_close(&g);
}

static void test_options(void **st) {
  (void)st;
  rig g;
  rig_open(&g, D,
      IN "\"max_output_tokens\":9,\"temperature\":0.5,\"top_p\":0.5,\"seed\":3,\"store\":false,\"stream\":true,\"truncation\":\"disabled\","
         "\"include\":[\"reasoning.encrypted_content\"],\"reasoning\":{\"effort\":\"none\"},\"text\":{\"format\":{\"type\":\"text\"}},\"odd\":1,"
         "\"tools\":[{\"type\":\"function\",\"name\":\"add\",\"parameters\":{\"type\":\"object\"},\"strict\":false}],\"tool_choice\":\"none\","
         "\"parallel_tool_calls\":false,\"metadata\":{\"k\":\"v\"},\"n\":1}");
  const api_request *r = g.req;
  assert_true(r->stream && !r->store && r->has_seed && r->seed == 3 && !r->parallel_tools);
  assert_int_equal(r->max_tokens, 9);
  assert_int_equal(r->tool_choice, API_TOOLS_NONE);
  assert_string_equal(r->ignored, "odd");
  json_is(r->template_kwargs, "{\"enable_thinking\":false}");
  json_is(r->tools, "[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\"},\"strict\":false}}]");
  rig_close(&g);
  rig_open(&g, D, "{\"input\":\"x\"}");
  assert_true(g.req->store && !g.req->template_kwargs && !g.req->tools);
  json_is(g.req->messages, "[{\"role\":\"user\",\"content\":\"x\"}]");
  rig_close(&g);
}

/* The turns before come between the instructions and the new input; without them there is nothing to run. */
static void test_resume(void **st) {
  (void)st;
  rig g;
  err e = {0};
  rig_open(&g, D, IN "\"instructions\":\"I\",\"previous_response_id\":\"resp_1\"}");
  assert_string_equal(g.req->previous.p, "resp_1");
  assert_null(g.req->messages);
  json_t *past = json_loads(
      "[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
      "\"b\"}]}]",
      0, NULL);
  assert_true(D->resume(g.req, past, &e));
  json_decref(past);
  json_is(g.req->messages,
      "[{\"role\":\"system\",\"content\":\"I\"},{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\","
      "\"content\":\"x\"}]");
  rig_close(&g);
}

static void test_refusals(void **st) {
  (void)st;
  static const refusal_case cases[] = {
      {"{}", "input", ERR_INPUT},
      {"{\"input\":[]}", "input", ERR_INPUT},
      {"{\"input\":3}", "input", ERR_INPUT},
      {ITEM("3"), "input[0]", ERR_INPUT},
      {ITEM("{}"), "input[0].role", ERR_INPUT},
      {ITEM("{\"role\":\"robot\",\"content\":\"x\"}"), "input[0].role", ERR_INPUT},
      {ITEM("{\"role\":\"user\"}"), "input[0].content", ERR_INPUT},
      {ITEM("{\"role\":\"user\",\"content\":[3]}"), "input[0].content[0]", ERR_INPUT},
      {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}"), "input[0].content[0].text", ERR_INPUT},
      {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"x\"}]}"), "input[0].content[0].type", ERR_UNSUPPORTED},
      {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}"), "input[0].content[0].type", ERR_UNSUPPORTED},
      {ITEM("{\"type\":\"item_reference\",\"id\":\"x\"}"), "input[0].type", ERR_UNSUPPORTED},
      {ITEM("{\"type\":\"web_search_call\"}"), "input[0].type", ERR_UNSUPPORTED},
      {ITEM("{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"\"}"), "input[0].call_id", ERR_INPUT},
      {ITEM("{\"type\":\"function_call\",\"call_id\":\"c\",\"arguments\":\"\"}"), "input[0].name", ERR_INPUT},
      {ITEM("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}"), "input[0].arguments", ERR_INPUT},
      {ITEM("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":{}}"), "input[0].arguments", ERR_INPUT},
      {ITEM("{\"type\":\"function_call_output\",\"call_id\":\"c\"}"), "input[0].output", ERR_INPUT},
      {ITEM("{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"x\"}"), "input[0].encrypted_content", ERR_UNSUPPORTED},
      {IN "\"instructions\":3}", "instructions", ERR_INPUT},
      {IN "\"background\":true}", "background", ERR_UNSUPPORTED},
      {IN "\"conversation\":\"c\"}", "conversation", ERR_UNSUPPORTED},
      {IN "\"prompt\":{\"id\":\"p\"}}", "prompt", ERR_UNSUPPORTED},
      {IN "\"truncation\":\"auto\"}", "truncation", ERR_UNSUPPORTED},
      {IN "\"include\":[\"message.output_text.logprobs\"]}", "include", ERR_UNSUPPORTED},
      {IN "\"top_logprobs\":2}", "top_logprobs", ERR_UNSUPPORTED},
      {IN "\"n\":2}", "n", ERR_UNSUPPORTED},
      {IN "\"max_tokens\":2}", "max_tokens", ERR_UNSUPPORTED},
      {IN "\"max_output_tokens\":0}", "max_output_tokens", ERR_INPUT},
      {IN "\"max_output_tokens\":\"9\"}", "max_output_tokens", ERR_INPUT},
      {IN "\"temperature\":3}", "temperature", ERR_INPUT},
      {IN "\"store\":1}", "store", ERR_INPUT},
      {IN "\"metadata\":[]}", "metadata", ERR_INPUT},
      {IN "\"previous_response_id\":3}", "previous_response_id", ERR_INPUT},
      {IN "\"text\":{\"format\":{\"type\":\"json_schema\"}}}", "text.format.type", ERR_UNSUPPORTED},
      {IN "\"reasoning\":{\"effort\":\"high\"}}", "reasoning.effort", ERR_UNSUPPORTED},
      {IN "\"tools\":[{\"type\":\"web_search\"}]}", "tools[0].type", ERR_UNSUPPORTED},
      {IN "\"tools\":[{\"type\":\"function\"}]}", "tools[0].name", ERR_INPUT},
      {IN "\"tools\":[{\"type\":\"function\",\"name\":\"a b\"}]}", "tools[0].name", ERR_INPUT},
      {IN "\"tools\":[{\"name\":\"f\"}]}", "tools[0].type", ERR_INPUT},
      {IN "\"tool_choice\":\"required\"}", "tool_choice", ERR_UNSUPPORTED},
      {IN "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}", "tool_choice", ERR_UNSUPPORTED},
  };
  refused_all(D, cases, sizeof cases / sizeof *cases);
}

#define THOUGHT                                                                                                                                      \
  "{\"id\":\"rs_U00\",\"status\":\"completed\",\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]}"
#define WORDS                                                                                                                                        \
  "{\"id\":\"msg_U01\",\"status\":\"completed\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"annotations\":" \
  "[],"                                                                                                                                              \
  "\"logprobs\":[],\"text\":\"Say \\\"hi\\\"\"}]}"
#define CALL                                                                                                                                         \
  "{\"id\":\"fc_U02\",\"status\":\"completed\",\"type\":\"function_call\",\"call_id\":\"call_1\",\"name\":\"add\",\"arguments\":\"{\\\"a\\\":1}\"}"
#define CALL2(status)                                                                                                                                \
  "{\"id\":\"fc_U03\",\"status\":\"" status "\",\"type\":\"function_call\",\"call_id\":\"call_2\",\"name\":\"now\",\"arguments\":\"\"}"

static json_t *response_of(const rig *g) {
  json_t *v = json_loads(strchr(g->seen.p, '{'), 0, NULL);
  assert_non_null(v);
  return v;
}

static void test_whole(void **st) {
  (void)st;
  for (int cut = 0; cut < 2; cut++) {
    rig g;
    rig_open(&g, D, IN "\"metadata\":{\"k\":\"v\"},\"instructions\":\"I\"}");
    play(&g, cut ? API_LENGTH : API_TOOL_CALLS, 0);
    json_t *v = response_of(&g);
    json_is(json_object_get(v, "output"),
        cut ? "[" THOUGHT "," WORDS "," CALL "," CALL2("incomplete") "]" : "[" THOUGHT "," WORDS "," CALL "," CALL2("completed") "]");
    json_is(json_object_get(v, "usage"),
        "{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":10,\"cache_write_tokens\":0},\"output_tokens\":8,"
        "\"output_tokens_details\":{\"reasoning_tokens\":2},\"total_tokens\":38}");
    json_is(json_object_get(v, "status"), cut ? "\"incomplete\"" : "\"completed\"");
    json_is(json_object_get(v, "incomplete_details"), cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_is(json_object_get(v, "id"), "\"resp_U\"");
    json_is(json_object_get(v, "metadata"), "{\"k\":\"v\"}");
    json_is(json_object_get(v, "instructions"), "\"I\"");
    json_decref(v);
    rig_close(&g);
  }
}

/* What a stream adds up to, in its deltas and in its last event, is the whole answer. */
static void test_stream(void **st) {
  (void)st;
  rig g, w;
  rig_open(&g, D, IN "\"stream\":true}");
  play(&g, API_TOOL_CALLS, 0);
  types_are(&g,
      "response.created 0\nresponse.in_progress 1\nresponse.output_item.added 2\nresponse.content_part.added 3\nresponse.reasoning_text.delta 4\n"
      "response.reasoning_text.done 5\nresponse.content_part.done 6\nresponse.output_item.done 7\nresponse.output_item.added 8\n"
      "response.content_part.added 9\nresponse.output_text.delta 10\nresponse.output_text.delta 11\nresponse.output_text.done 12\n"
      "response.content_part.done 13\nresponse.output_item.done 14\nresponse.output_item.added 15\nresponse.function_call_arguments.delta 16\n"
      "response.function_call_arguments.delta 17\nresponse.function_call_arguments.done 18\nresponse.output_item.done 19\n"
      "response.output_item.added 20\nresponse.function_call_arguments.done 21\nresponse.output_item.done 22\nresponse.completed 23\n");
  seen_has(&g, "\"item_id\":\"msg_U01\",\"output_index\":1,\"content_index\":0,\"logprobs\":[],\"delta\":\"Say \"}\n\n");
  seen_has(&g, "\"item_id\":\"fc_U02\",\"output_index\":2,\"delta\":\"{\\\"a\\\":\"}\n\n");
  seen_has(&g, "\"name\":\"add\",\"arguments\":\"{\\\"a\\\":1}\"}\n\n");
  rig_open(&w, D, "{\"input\":\"x\"}");
  play(&w, API_TOOL_CALLS, 0);
  seen_has(&g, w.seen.p + 4);
  rig_close(&w);
  rig_close(&g);
}

static void test_cut_and_empty(void **st) {
  (void)st;
  rig g;
  rig_open(&g, D, IN "\"stream\":true}");
  say(&g, (api_event){.kind = API_BEGIN});
  say(&g, (api_event){.kind = API_TEXT, .text = STR("a")});
  say(&g, (api_event){.kind = API_FINISH, .finish = API_LENGTH});
  say(&g, (api_event){.kind = API_USAGE});
  seen_has(&g, "event: response.incomplete\n");
  seen_has(&g, "\"item\":{\"id\":\"msg_U00\",\"status\":\"incomplete\"");
  rig_close(&g);
  rig_open(&g, D, "{\"input\":\"x\"}");
  say(&g, (api_event){.kind = API_FINISH, .finish = API_STOP});
  say(&g, (api_event){.kind = API_USAGE});
  seen_has(&g, "\"output\":[{\"id\":\"msg_U00\",\"status\":\"completed\",\"type\":\"message\"");
  rig_close(&g);
}

static void test_failures(void **st) {
  (void)st;
  rig g;
  err e;
  err_set(&e, ERR_INTERNAL, "broke");
  rig_open(&g, D, IN "\"stream\":true}");
  say(&g, (api_event){.kind = API_ERROR, .error = &e});
  assert_memory_equal(g.seen.p, "500 {\"error\":{\"message\":\"broke\"", 29);
  rig_close(&g);
  rig_open(&g, D, IN "\"stream\":true}");
  answer_keep_alive(&g.a);
  assert_string_equal(g.seen.p, ": keep-alive\n\n");
  say(&g, (api_event){.kind = API_BEGIN});
  say(&g, (api_event){.kind = API_ERROR, .error = &e});
  types_are(&g, "response.created 0\nresponse.in_progress 1\nresponse.failed 2\n");
  seen_has(&g, "\"status\":\"failed\"");
  seen_has(&g, "\"error\":{\"code\":\"server_error\",\"message\":\"broke\"}");
  rig_close(&g);
}

/* What is kept can be gone on from: items of both sides, each with an id. */
static void test_kept(void **st) {
  (void)st;
  rig g, h;
  err e = {0};
  buf b;
  rig_open(&g, D,
      "{\"input\":[{\"role\":\"user\",\"content\":\"x\"},{\"type\":\"function_call\",\"id\":null,\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}"
      "\"}]}");
  play(&g, API_TOOL_CALLS, 0);
  buf_init(&b, 1 << 16);
  D->input(&g.a, &b);
  json_t *in = json_loads(b.p, 0, NULL);
  json_is(in, "[{\"id\":\"in_U00\",\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"x\"}]},"
              "{\"id\":\"in_U01\",\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"}]");
  buf_clear(&b);
  D->output(&g.a, &b);
  json_t *out = json_loads(b.p, 0, NULL);
  json_is(out, "[" THOUGHT "," WORDS "," CALL "," CALL2("completed") "]");
  json_array_extend(in, out);
  rig_open(&h, D, IN "\"previous_response_id\":\"resp_U\"}");
  assert_true(D->resume(h.req, in, &e));
  assert_int_equal(json_array_size(h.req->messages), 4); /* user, the call, thought and words and calls, user */
  json_decref(in);
  json_decref(out);
  buf_fini(&b);
  rig_close(&h);
  rig_close(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_conversation), cmocka_unit_test(test_options), cmocka_unit_test(test_resume),
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_whole), cmocka_unit_test(test_stream), cmocka_unit_test(test_cut_and_empty),
      cmocka_unit_test(test_failures), cmocka_unit_test(test_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
