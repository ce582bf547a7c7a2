/* Every allocation in turn fails while a model is opened, a request parsed, a template compiled and rendered, text encoded: each time a refusal that
 * says so or the right result, and nothing left behind. The controls plant the three faults that this is to find. */
#include "../lib/torture.h"
#include "api/dialect.h"
#include "base/yaml.h"
#include "engine/engine.h"
#include "engine/weights.h"
#include "model/model.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TINY TEST_SRC "/tests/golden/tiny/tiny-llama-q.gguf"

static bool can(void) {
  if (!TORTURE_CAN) skip();
  return true;
}

/* ---- model ---- */

static bool open_file(void *ctx, err *e) {
  mfile *g = NULL;
  if (!model_file(ctx, &g, e)) return false;
  assert_true(g->n_tensors > 5 && mf_get(g, "general.architecture"));
  mf_close(g);
  return true;
}

static bool open_model(void *ctx, err *e) {
  model *m = NULL;
  if (!model_open(ctx, weights_type_ok, &m, e)) return false;
  bool ok = m->chat || m->chat_err.code != ERR_NOMEM;
  if (!ok) *e = m->chat_err; /* kept for the moment it is asked for: also a refusal that says so */
  assert_true(m->arch.n_layer > 0 && tok_count(m->tok) == m->arch.vocab);
  model_close(m);
  return ok;
}

static void test_model(void **st) {
  (void)st;
  can();
  torture_sum s = torture_all("gguf_open", open_file, (void *)TINY, 1);
  assert_true(s.injected > 10 && s.refused > 10);
  s = torture_all("gguf_open, in parts", open_file, (void *)(TEST_SRC "/tests/golden/hf/tiny-llama-q-00002-of-00003.gguf"), 1);
  assert_true(s.injected > 20 && s.refused > 20);
  s = torture_all("safetensors_open", open_file, (void *)(TEST_SRC "/tests/golden/hf/llama-f32-shards"), 1);
  assert_true(s.injected > 300 && s.refused > 300);
  s = torture_all("model_open", open_model, (void *)TINY, 1);
  assert_true(s.injected > 40 && s.refused > 40);
  s = torture_all("model_open, a folder", open_model, (void *)(TEST_SRC "/tests/golden/hf/gemma3"), 5);
  assert_true(s.injected > 40 && s.refused > 40);
}

/* Weights packed, pages mapped, threads started. */
static bool open_engine(void *ctx, err *e) {
  engine *en = NULL;
  eng_opts o = {.threads = 2, .max_seqs = 2, .ctx = 64};
  if (!engine_open(ctx, &o, &en, e)) return false;
  assert_int_equal(engine_ctx(en), 64);
  engine_close(en);
  return true;
}

static void test_engine(void **st) {
  (void)st;
  can();
  err e = {0};
  model *m = NULL;
  if (!model_open(TINY, weights_type_ok, &m, &e)) fail_msg("%s", e.msg);
  torture_sum s = torture_all("engine_open", open_engine, m, 1);
  assert_true(s.injected > 20 && s.refused > 20);
  model_close(m);
}

/* ---- template ---- */

static const char template[] =
    "{%- macro show(m, n=2) -%}<|{{ m.role }}|>{{ m['content']|trim }}{{ ' ' * n }}{%- endmacro -%}"
    "{% set ns = namespace(last='') %}{% for m in messages if m.role != 'x' %}{{ show(m) }}{% set ns.last = m.content %}"
    "{% if not loop.last %}, {% else %}.{% endif %}{% endfor %}{{ ns.last|upper|replace('B', 'bb') }} {{ messages|length }}"
    "{{ tools|tojson }}{{ messages|map(attribute='role')|join('+') }}{{ {'a': [1, 2.5, none]}|tojson(indent=2) }}"
    "{{ '%s-%d' % ('x', 3) }}{{ 'a b'.split(' ')[::-1] }}{{ [3, 1, 2]|sort }}";
static const char vars_text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \" ab \"}, {\"role\": \"assistant\", \"content\": \"\\u00e4\"}],"
                                "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}";

typedef struct rendering {
  json_t *doc;
  char *want;
} rendering;

static bool render(void *ctx, err *e) {
  rendering *r = ctx;
  chat_tmpl *t = NULL;
  chat_text out = {0};
  if (!chat_compile((str){template, sizeof template - 1}, &t, e)) return false;
  chat_vars v = {
      .messages = json_object_get(r->doc, "messages"), .tools = json_object_get(r->doc, "tools"), .bos = "<s>", .add_generation_prompt = true};
  bool ok = chat_render(t, &v, &out, e);
  if (ok) {
    str s = buf_view(&out.text);
    if (!r->want) {
      torture_exempt(true);
      r->want = strndup(s.p, s.n);
      torture_exempt(false);
    }
    assert_true(str_is(s, r->want));
    chat_text_fini(&out);
  }
  chat_free(t);
  return ok;
}

static void test_template(void **st) {
  (void)st;
  can();
  err e = {0};
  rendering r = {0};
  if (!json_parse(str_c(vars_text), &r.doc, &e)) fail_msg("%s", e.msg);
  torture_sum s = torture_all("template", render, &r, 1);
  assert_true(s.injected > 40 && s.refused > 40);
  json_decref(r.doc);
  free(r.want);
}

/* ---- tokenizer ---- */

typedef struct encoding {
  model *m;
  int want;
} encoding;

static bool encode(void *ctx, err *e) {
  encoding *x = ctx;
  tok_ids ids = {0};
  buf out;
  tok_stream s;
  bool ok =
      tok_encode(x->m->tok, STR("Hello there, \xc3\xa9\xff 12345 <|im_end|> and a word that is longer than most of them: incomprehensibilities"),
          NULL, true, true, &ids, e);
  if (ok) {
    if (!x->want) x->want = ids.n;
    assert_int_equal(ids.n, x->want);
    buf_init(&out, 1 << 20);
    tok_stream_init(&s, true);
    for (int i = 0; ok && i < ids.n; i++) ok = tok_stream_push(x->m->tok, &s, ids.v[i], &out);
    ok = (ok && tok_stream_end(&s, &out)) || err_set(e, ERR_NOMEM, "the text has no room");
    buf_fini(&out);
  }
  free(ids.v);
  return ok;
}

static void test_encode(void **st) {
  (void)st;
  can();
  err e = {0};
  encoding x = {0};
  if (!model_open(TINY, weights_type_ok, &x.m, &e)) fail_msg("%s", e.msg);
  torture_sum s = torture_all("encode", encode, &x, 1);
  assert_true(s.injected > 3 && s.refused > 3);
  model_close(x.m);
}

/* ---- request and answer ---- */

static void no_header(void *ctx, const char *n, const char *v) { (void)ctx, (void)n, (void)v; }
static void take_whole(void *ctx, int status, const char *type, str body) {
  (void)type;
  int *seen = ctx;
  seen[0] = status;
  seen[1] = str_find(body, STR("the text of the answer")) >= 0;
}
static void take_open(void *ctx, int status, const char *type) { (void)type, ((int *)ctx)[0] = status; }
static void take_write(void *ctx, str bytes) {
  int *seen = ctx;
  if (str_find(bytes, STR("the text of the answer")) >= 0) seen[1] = 1;
  if (str_find(bytes, STR("\"error\":{")) >= 0) seen[2] = 1;
}
static void take_close(void *ctx) { ((int *)ctx)[3] = 1; }

typedef struct ask {
  const api_dialect *d;
  const char *body;
} ask;

static bool parse_and_answer(void *ctx, err *e) {
  const ask *q = ctx;
  api_request *r = NULL;
  int seen[4] = {0};
  if (!api_request_parse(q->d, str_c(q->body), &r, e)) return false;
  api_info info = {.id = "1", .created = 1, .model = "m", .fingerprint = "fp_1", .unique = "2"};
  api_out out = {seen, no_header, take_whole, take_open, take_write, take_close};
  api_answer a;
  bool ok = answer_init(&a, r, &info, &out, e);
  if (ok) {
    api_top top = {5, STR("y"), -2};
    api_token t = {.id = 4, .bytes = STR("x"), .logprob = -1, .top = &top, .n_top = 1};
    bool lp = r->logprobs >= 0;
    const api_event ev[] = {{.kind = API_BEGIN}, {.kind = API_TEXT, .text = STR("the text of the answer"), .tokens = lp ? &t : NULL, .n_tokens = lp},
        {.kind = API_FINISH, .finish = API_STOP}, {.kind = API_USAGE, .usage = {3, 0, 4, 0}}};
    for (size_t i = 0; i < sizeof ev / sizeof *ev && !a.done; i++) answer_event(&a, &ev[i]);
    assert_true(a.done);
    ok = !a.error.code;
    if (!ok) *e = a.error;
    else assert_true(seen[0] == 200 && seen[1] && !seen[2]);
    answer_fini(&a);
  }
  api_request_unref(r);
  return ok;
}

static void test_request(void **st) {
  (void)st;
  can();
  static const ask asks[] = {
      {&api_openai_chat,
          "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
          "{\"type\": \"text\","
          "\"text\": \"b\"}]}], \"stop\": [\"q\"], \"logit_bias\": {\"5\": 1}, \"logprobs\": true, \"top_logprobs\": 1, \"user\": \"u\"}"},
      {&api_openai_chat,
          "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"stream\": true, \"stream_options\": {\"include_usage\": true}}"},
      {&api_openai_responses,
          "{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": \"x\"}]}], \"instructions\": \"be brief\"}"},
      {&api_openai_responses, "{\"input\": \"hello\", \"stream\": true}"},
      {&api_anthropic_messages, "{\"max_tokens\": 9, \"system\": \"s\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": "
                                "\"assistant\", \"content\": [{\"type\":"
                                "\"tool_use\", \"id\": \"t\", \"name\": \"f\", \"input\": {}}]}, {\"role\": \"user\", \"content\": [{\"type\": "
                                "\"tool_result\", \"tool_use_id\": \"t\","
                                "\"content\": \"7\"}]}], \"tools\": [{\"name\": \"f\", \"input_schema\": {\"type\": \"object\"}}]}"},
      {&api_anthropic_messages, "{\"max_tokens\": 9, \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"stream\": true}"},
      {&api_openai_completions, "{\"prompt\": \"a\", \"logprobs\": 1, \"stop\": [\"x\", \"y\"]}"},
      {&api_openai_completions, "{\"prompt\": [1, 2], \"stream\": true}"},
  };
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
    torture_sum s = torture_all(asks[i].d->name, parse_and_answer, (void *)&asks[i], 1);
    assert_true(s.injected > 10 && s.refused > 10);
  }
}

/* ---- documents ---- */

static bool read_yaml(void *ctx, err *e) {
  json_t *j = NULL;
  if (!yaml_parse(str_c(ctx), "text", &j, e)) return false;
  assert_int_equal(json_object_size(j), 3);
  json_decref(j);
  return true;
}

static bool read_json(void *ctx, err *e) {
  json_t *j = NULL;
  if (!json_parse(str_c(ctx), &j, e)) return false;
  assert_int_equal(json_object_size(j), 2);
  json_decref(j);
  return true;
}

static void test_documents(void **st) {
  (void)st;
  can();
  torture_sum s = torture_all("yaml", read_yaml, (void *)"a: 1\nb: [x, 'y', 1.5]\nc:\n  d: |\n    text\n  e: {f: ~}\n", 1);
  assert_true(s.injected > 20 && s.refused > 20);
  s = torture_all("json", read_json, (void *)"{\"a\": [1, 2.5, \"s\", {\"k\": null}], \"b\": {\"c\": {\"d\": \"\\u00e4\"}}}", 1);
  assert_true(s.injected > 10 && s.refused > 10);
}

/* ---- controls: each planted fault must be found. In a child, for its test is to fail. ---- */

static bool planted_unchecked(void *ctx, err *e) {
  (void)ctx, (void)e;
  volatile char *volatile p = malloc(10);
  p[0] = 'x';
  free((void *)p);
  return true;
}
static bool planted_leak(void *ctx, err *e) {
  (void)ctx;
  void *volatile a = malloc(10), *volatile b = a ? malloc(10) : NULL;
  if (!b) return err_set(e, ERR_NOMEM, "out of memory"); /* and a is forgotten */
  free(a);
  free(b);
  return true;
}
static bool planted_wrong(void *ctx, err *e) {
  (void)ctx, (void)e;
  void *volatile a = malloc(10);
  int got = a ? 7 : 0;
  free(a);
  assert_int_equal(got, 7);
  return true;
}
static bool planted_silence(void *ctx, err *e) {
  (void)ctx;
  void *volatile a = malloc(10);
  bool ok = a || err_set(e, ERR_INPUT, "the file is damaged");
  free(a);
  return ok;
}

static torture_fn planted_now;
static void test_planted(void **st) {
  (void)st;
  torture_all("planted", planted_now, NULL, 1);
}

/* Exit status of a test run with the fault in it: 0 would be "nothing found". */
static int found(torture_fn fn) {
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    planted_now = fn;
    const struct CMUnitTest t[] = {cmocka_unit_test(test_planted)};
    _exit(cmocka_run_group_tests(t, NULL, NULL));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) continue;
  return status;
}

static void test_controls(void **st) {
  (void)st;
  can();
  static const torture_fn planted[] = {planted_unchecked, planted_leak, planted_wrong, planted_silence};
  for (size_t i = 0; i < sizeof planted / sizeof *planted; i++)
    if (!found(planted[i])) fail_msg("planted fault %zu was not found", i);
}

int main(void) {
  json_setup();
  const struct CMUnitTest t[] = {cmocka_unit_test(test_documents), cmocka_unit_test(test_model), cmocka_unit_test(test_engine),
      cmocka_unit_test(test_template), cmocka_unit_test(test_encode), cmocka_unit_test(test_request), cmocka_unit_test(test_controls)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
