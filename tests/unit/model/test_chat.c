/* What the golden vectors cannot say of the chat template interpreter: which bytes are trusted, what bounds a hostile template, what errors name,
 * how messages are prepared, that one template serves several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include <pthread.h>
#include "base/clock.h"
#include "base/json.h"
#include "model/chat.h"

static json_t *json(const char *text) {
  json_t *j = NULL;
  err e = {0};
  if (!json_parse(str_c(text), &j, &e)) fail_msg("%s", e.msg);
  return j;
}

/* What a test renders with; any may be NULL. */
typedef struct given {
  const char *messages, *tools, *extra;
  bool generate;
  int64_t now;
} given;

static bool render(const char *source, const given *g, chat_text *ret, err *e) {
  chat_tmpl *t = NULL;
  if (!chat_compile(str_c(source), &t, e)) return false;
  json_t *m = json(g->messages ? g->messages : "[]"), *tools = g->tools ? json(g->tools) : NULL, *x = g->extra ? json(g->extra) : NULL;
  chat_vars v = {.messages = m, .tools = tools, .extra = x, .bos = "<s>", .eos = "</s>", .add_generation_prompt = g->generate, .now = g->now};
  bool ok = chat_render(t, &v, ret, e);
  json_decref(m);
  json_decref(tools);
  json_decref(x);
  chat_free(t);
  return ok;
}

static void expect_text(const char *source, const given *g, const char *want) {
  chat_text r = {0};
  err e = {0};
  if (!render(source, g, &r, &e)) fail_msg("%s: %s", source, e.msg);
  assert_string_equal(r.text.p, want);
  chat_text_fini(&r);
}

/* The template must fail with this code, and each of the words must be in the message. */
static void expect_error(const char *source, const given *g, err_code code, const char *word, const char *word2) {
  chat_text r = {0};
  err e = {0};
  if (render(source, g, &r, &e)) fail_msg("%.80s: rendered", source);
  if (e.code != code || !strstr(e.msg, word) || (word2 && !strstr(e.msg, word2))) fail_msg("%.80s: code %d, %s", source, e.code, e.msg);
}

/* A past call's arguments are printed as they were written, by a plain tojson, alone or inside what holds them; any other style prints them anew. */
static void test_written(void **s) {
  (void)s;
  static const struct {
    const char *source, *with, *without;
  } rows[] = {{"{{ messages[0].c.a | tojson }}", "{\"x\" :1.50}", "{\"x\": 1.5}"},
      {"{{ messages[0].c | tojson }}", "{\"a\": {\"x\" :1.50}}", "{\"a\": {\"x\": 1.5}}"},
      {"{{ messages[0].c.a | tojson(sort_keys=true) }}", "{\"x\": 1.5}", "{\"x\": 1.5}"},
      {"{{ messages[0].c.a | tojson(separators=(',',':')) }}", "{\"x\":1.5}", "{\"x\":1.5}"}, {"{{ messages[1].s | tojson }}", "{bad \"", "\"t\""},
      {"{{ messages[1].s }}", "t", "t"}, {"{{ messages[0].c.a.x }}", "1.5", "1.5"}, {"{% if messages[0].c.a is mapping %}y{% endif %}", "y", "y"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int kept = 0; kept < 2; kept++) {
      json_t *m = json("[{\"role\":\"user\",\"c\":{\"a\":{\"x\":1.5}}},{\"role\":\"user\",\"s\":\"t\"}]");
      json_t *a = json_object_get(json_object_get(json_array_get(m, 0), "c"), "a"), *t = json_object_get(json_array_get(m, 1), "s");
      const bool raw = rows[i].with[1] == 'b'; /* text that was no JSON is the value itself */
      if (raw && kept) {
        json_object_set_new(json_array_get(m, 1), "s", json_string("{bad \""));
        t = json_object_get(json_array_get(m, 1), "s");
      }
      const chat_written w[] = {{a, STR("{\"x\" :1.50}")}, {t, STR("{bad \"")}};
      chat_tmpl *c;
      chat_text r = {0};
      err e = {0};
      assert_true(chat_compile(str_c(rows[i].source), &c, &e));
      if (!chat_render(c, &(chat_vars){.messages = m, .written = kept ? w : NULL, .n_written = kept ? 2 : 0}, &r, &e)) fail_msg("%s", e.msg);
      assert_string_equal(r.text.p, kept ? rows[i].with : rows[i].without);
      if (strstr(rows[i].source, "tojson"))
        for (size_t k = 0; k < r.text.n; k++) assert_int_equal(r.trust[k] && (r.text.p[k] == 'x' || r.text.p[k] == 'b'), 0);
      chat_text_fini(&r);
      chat_free(c);
      json_decref(m);
    }
}

/* ---- trust ---- */

/* marks: one character a byte of the text, 'T' trusted, '.' not. u is untrusted text. */
static void expect_trust(const char *source, const char *text, const char *marks) {
  const given g = {.messages = "[{\"role\":\"user\",\"content\":\"  <|im_end|> \"}]",
      .extra = "{\"u\":\"<|x|>\",\"w\":\"a b\",\"l\":[\"p\",\"q\"],\"n\":12,\"k\":\"<s>\",\"h\":\"<\",\"low\":\"a\\u00e9\"}"};
  chat_text r = {0};
  err e = {0};
  char got[256] = "";
  if (!render(source, &g, &r, &e)) fail_msg("%s: %s", source, e.msg);
  if (strcmp(r.text.p, text)) fail_msg("%s: got text \"%s\", want \"%s\"", source, r.text.p, text);
  assert_true(r.text.n < sizeof got && strlen(marks) == r.text.n);
  for (size_t i = 0; i < r.text.n; i++) got[i] = r.trust[i] ? 'T' : '.';
  if (strcmp(got, marks)) fail_msg("%s:\n  text %s\n  got  %s\n  want %s", source, r.text.p, got, marks);
  chat_text_fini(&r);
}

static void test_trust_sources(void **state) {
  (void)state;
  expect_trust("<|a|>{{ u }}", "<|a|><|x|>", "TTTTT.....");
  expect_trust("{{ '<|a|>' }}{{ bos_token }}{{ k }}{{ eos_token }}", "<|a|><s><s></s>", "TTTTTTTT...TTTT");
  expect_trust(
      "{{ '<|im_start|>' + messages[0].role + '\\n' + messages[0].content }}", "<|im_start|>user\n  <|im_end|> ", "TTTTTTTTTTTTTTTTT.............");
  /* a role is trusted only where it is one of the closed set, and only as the role */
  expect_trust("{{ messages[0].role }}{{ (messages + [{'role': u}])[1].role }}{{ messages[0]['role'][:2] }}", "user<|x|>us", "TTTT.....TT");
  expect_trust("{% for m in messages %}[{{ m['content'] }}]{% endfor %}", "[  <|im_end|> ]", "T.............T");
  expect_trust("{{ n }}{{ 5 }}{{ true }}{{ none }}", "125TrueNone", "..........."); /* made, not written */
}

static void test_trust_text_filters(void **state) {
  (void)state;
  expect_trust("{{ messages[0].content | trim }}", "<|im_end|>", "..........");
  expect_trust("{{ (' ' ~ u ~ '<|e|> ') | trim }}", "<|x|><|e|>", ".....TTTTT");
  expect_trust("{{ ('<|' ~ u) | replace('x', 'y') }}", "<|<|y|>", "TT..T..");
  expect_trust("{{ 'a-b' | replace('-', u) }}", "a<|x|>b", "T.....T");
  expect_trust("{{ ('ab' ~ low) | upper }}", "ABA\xc3\x89", "TT...");
  expect_trust("{{ ('x' ~ w) | title }}", "Xa B", "T...");
  expect_trust("{{ ('ab' ~ w)[1:4] }}", "ba ", "T..");
  expect_trust("{{ ('xy' ~ w)[::-1] }}{{ ('xy' ~ w) | reverse }}", "b ayxb ayx", "...TT...TT");
}

static void test_trust_sequences(void **state) {
  (void)state;
  expect_trust("{{ ('<a>,' ~ u ~ ',z').split(',') | join('|') }}", "<a>|<|x|>|z", "TTTT.....TT");
  expect_trust("{{ l | join('<e>') }}", "p<e>q", ".TTT.");
  expect_trust("{{ ', '.join(l) }}{{ l | map('upper') | join }}", "p, qPQ", ".TT...");
  expect_trust("{{ [u, '<y>'] | first }}{{ [u, '<y>'] | last }}", "<|x|><y>", ".....TTT");
  expect_trust("{{ {'k': u, 'j': '<y>'}.values() | join }}{{ {'<k>': 1} | list | first }}", "<|x|><y><k>", ".....TTTTTT");
  expect_trust("{% for c in 'a' ~ u %}{{ c }}{% endfor %}", "a<|x|>", "T.....");
  expect_trust("{{ ('a' ~ u) * 2 }}", "a<|x|>a<|x|>", "T.....T.....");
  expect_trust("{{ ('q\n' ~ u) | indent(1) }}", "q\n <|x|>", "T......."); /* the line end is made again */
}

static void test_trust_made_text(void **state) {
  (void)state;
  expect_trust("{{ u | tojson }}", "\"<|x|>\"", ".......");
  expect_trust("{{ '<a>' | tojson }}", "\"<a>\"", ".TTT.");
  expect_trust("{{ {'<a>': u} | tojson }}", "{\"<a>\": \"<|x|>\"}", "..TTT...........");
  expect_trust("{{ [u] }}", "['<|x|>']", ".........");
  expect_trust("{{ '<%s>' % u }}{{ '<{}>'.format(u) }}", "<<|x|>><<|x|>>", "T.....TT.....T");
  expect_trust("{{ '%s%%%d' % ('<a>', 3) }}", "<a>%3", "TTT..");
  expect_trust("{{ h | e }}{{ '<a' | e }}", "&lt;&lt;a", "........T");
  expect_trust("{{ strftime_now('<%Y>') }}", "<1970>", "......");
}

static void test_trust_carriers(void **state) {
  (void)state;
  expect_trust("{% set a = '<a>' ~ u %}{% set b %}{{ a }}<b>{% endset %}{{ b }}", "<a><|x|><b>", "TTT.....TTT");
  expect_trust("{% macro m(t) %}<m>{{ t }}{% endmacro %}{{ m(u) }}{{ m('<c>') }}", "<m><|x|><m><c>", "TTT.....TTTTTT");
  expect_trust("{% filter upper %}<a>{{ u }}{% endfilter %}", "<A><|X|>", "TTT.....");
  expect_trust("{% set ns = namespace(t='') %}{% for i in range(3) %}{% set ns.t = ns.t + '<' + w[0] %}{% endfor %}{{ ns.t }}", "<a<a<a", "T.T.T.");
  expect_trust("{{ missing | default(u) }}{{ missing | default('<d>') }}{{ u if true else 'x' }}", "<|x|><d><|x|>", ".....TTT.....");
  expect_trust("{% generation %}<g>{{ u }}{% endgeneration %}", "<g><|x|>", "TTT.....");
  expect_trust("{% macro w2() %}<w>{{ caller() }}{% endmacro %}{% call w2() %}{{ u }}<e>{% endcall %}", "<w><|x|><e>", "TTT.....TTT");
}

/* ---- bounds ---- */

/* `head`, then `part` n times, then `tail`. */
static char *repeated(const char *head, const char *part, int n, const char *tail) {
  buf b;
  buf_init(&b, (size_t)8 << 20);
  buf_puts(&b, head);
  for (int i = 0; i < n; i++) buf_puts(&b, part);
  buf_puts(&b, tail);
  char *p = buf_take(&b, NULL);
  assert_non_null(p);
  return p;
}

static void test_bounds_of_rendering(void **state) {
  (void)state;
  const given g = {0};
  const char *const cases[][2] = {
      {"{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}{% endfor %}{% endfor %}", "steps"},
      {"{% for a in range(100000) %}{% for b in range(100000) %}{% set q = a %}{% endfor %}{% endfor %}", "steps"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper"},
      {"{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "nested deeper"},
      {"{% set ns = namespace(s='ab') %}{% for a in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "MiB"},
      {"{% set ns = namespace(s=[1]) %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "MiB"},
      {"{{ 'a' * 1000000000 }}", "MiB"},
      {"{{ [1] * 1000000000 }}", "steps"},
      {"{{ 'a' * 9223372036854775807 }}", "MiB"},
      {"{{ 'a' | center(2000000000) }}", "MiB"},
      {"{{ 'a'.ljust(2000000000) }}", "MiB"},
      {"{{ '%999999999d' % 1 }}", "width"},
      {"{{ '{:999999999}'.format(1) }}", "width"},
      {"{{ range(1000000000000000000) | list }}", "100000"},
      {"{{ range(-9223372036854775807, 9223372036854775807) }}", "100000"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"{{ 10 ** 100 }}", "64 bits"},
      {"{% set ns = namespace(x=[]) %}{% for a in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "deeper"},
      {"{% set ns = namespace(x=[]) %}{% for a in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}", "deeper"},
      {"{% set ns = namespace(x=[], y=[]) %}{% for a in range(5000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
          "deep"},
      {"{% set ns = namespace(x=()) %}{% for a in range(5000) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}", "dict key"},
      {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "deeper"},
      {"{% set ns = namespace(x=['a']) %}{% for a in range(5000) %}{% set ns.x = ns.x | map('string') %}{% endfor %}{{ ns.x | list }}", "deeper"},
      {"{% for a in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * 100 "
       "}}{% endfor %}",
          "MiB"},
      {"{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if s in {} or {s: 1}[s] and s < s ~ s %}{% endif %}{% endfor %}", "to render"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t t0 = clock_now();
    expect_error(cases[i][0], &g, ERR_INPUT, "line 1", cases[i][1]);
    double ms = clock_ms(clock_now() - t0);
    if (ms > 20000) fail_msg("%s: took %.0f ms", cases[i][0], ms); /* two orders above what it takes without sanitizers */
  }
}

static void test_bounds_of_compiling(void **state) {
  (void)state;
  const given g = {0};
  const struct {
    const char *head, *part;
    int n;
    const char *tail, *word;
  } cases[] = {
      {"{{ ", "(", 5000, "1", "brackets"},
      {"{{ ", "[", 5000, "1", "brackets"},
      {"{{ 1", " + 1", 5000, " }}", "deeper"},
      {"{{ ", "not ", 50000, "1 }}", "deeper"},
      {"{{ ", "-", 50000, "1 }}", "deeper"},
      {"{{ x", ".x", 50000, " }}", "deeper"},
      {"{{ x", "|upper", 50000, " }}", "deeper"},
      {"{{ 1", " if 1 else 1", 50000, " }}", "deeper"},
      {"", "{% if 1 %}", 50000, "", "deeper"},
      {"", "{% for a in b %}", 50000, "", "deeper"},
      {"{{ x", "[x", 5000, "", "brackets"},
      {"{{ x", " is defined", 2, " }}", "chained"},
      {"{{ x", "()", 50000, " }}", "deeper"},
      {"{{ ", "x(", 5000, "", "brackets"},
      {"", "x", 1100000, "", "bytes"},
      {"", "{% for a in b %}{% endfor %}", 30000, "", "variables"},
      {"{# ", "x", 1000, "", "never closed"},
      {"{{ '", "x", 1000, "", "never closed"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *source = repeated(cases[i].head, cases[i].part, cases[i].n, cases[i].tail);
    expect_error(source, &g, ERR_INPUT, "chat template", cases[i].word);
    free(source);
  }
  /* what is long but not deep is fine */
  char *chain = repeated("{% if false %}", "{% elif false %}", 20000, "{% else %}end{% endif %}");
  expect_text(chain, &g, "end");
  free(chain);
  char *list = repeated("{{ [", "1,", 50000, "] | length }}");
  expect_text(list, &g, "50000");
  free(list);
}

static void test_bad_source(void **state) {
  (void)state;
  chat_tmpl *t = NULL;
  err e = {0};
  assert_false(chat_compile(STR("a\xff"), &t, &e));
  assert_non_null(strstr(e.msg, "UTF-8"));
  assert_false(chat_compile(STR("{{ '\xc3\xa9"), &t, &e));
  assert_false(chat_compile((str){"{{ \0 }}", 7}, &t, &e));
  assert_non_null(strstr(e.msg, "U+0000"));
  assert_null(t);
}

/* ---- errors ---- */

static void test_errors_name_the_place(void **state) {
  (void)state;
  const given g = {.messages = "[{\"role\":\"user\",\"content\":\"hi\"}]"};
  expect_error("a\nb\n{{ x | nosuch }}", &g, ERR_INPUT, "line 3", "no filter named 'nosuch'");
  expect_error("\n{{ x is nosuch }}", &g, ERR_INPUT, "line 2", "no test named 'nosuch'");
  expect_error("a\n\n{{ raise_exception('Only user, not ' ~ messages[0].role) }}", &g, ERR_INPUT, "line 3", "Only user, not user");
  expect_error("{% macro m() %}\n{{ raise_exception('deep') }}{% endmacro %}\n\n{{ m() }}", &g, ERR_INPUT, "line 2", "deep");
  expect_error("\n\n{{ messages[0].nope.x }}", &g, ERR_INPUT, "line 3", "'dict' has no attribute 'nope'");
  expect_error("{{ nope.x }}", &g, ERR_INPUT, "line 1", "'nope' is undefined");
  expect_error("{{ 'a' + 1 }}", &g, ERR_INPUT, "line 1", "between a str and a int");
  expect_error("{{ messages.append(1) }}", &g, ERR_INPUT, "line 1", "append");
  expect_error("x\n{% if a %}\n", &g, ERR_INPUT, "line 2", "endif");
  expect_error("{{ 1 +\n\n}}", &g, ERR_INPUT, "line 3", "expected an expression");
  expect_error("{% for a b %}", &g, ERR_INPUT, "line 1", "expected 'in'");
  expect_error("{{ raise_exception('caf\\u00e9 \\n x') }}", &g, ERR_INPUT, "caf\xc3\xa9", NULL);
}

static void test_refused_by_name(void **state) {
  (void)state;
  const given g = {.extra = "{\"l\":[1],\"s\":\"a\"}"};
  const char *const cases[][2] = {{"{% for a in l recursive %}{% endfor %}", "recursive"}, {"{% block a %}{% endblock %}", "block"},
      {"{% extends 'a' %}", "extends"}, {"{% include 'a' %}", "include"}, {"{% import 'a' as b %}", "import"}, {"{% from 'a' import b %}", "from"},
      {"{% autoescape true %}{% endautoescape %}", "autoescape"}, {"{{ s | urlize }}", "urlize"}, {"{{ l | random }}", "random"},
      {"{{ l | map('pprint') | list }}", "pprint"}, {"{{ lipsum() }}", "lipsum"}, {"{{ s.encode() }}", "encode"}, {"{{ 1 .real }}", "real"},
      {"{{ l | map('string') }}", "generator"}, {"{{ range }}", "function"}, {"{{ '\\N{DASH}' }}", "\\N"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_error(cases[i][0], &g, ERR_UNSUPPORTED, "line 1", cases[i][1]);
}

/* ---- what templates see ---- */

static void test_messages_are_prepared(void **state) {
  (void)state;
  const given g = {
      .messages =
          "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":null}]},{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"r\"},"
          "{\"thinking\":\"t\",\"role\":\"x\",\"reasoning_content\":null}]"};
  expect_text("{% for m in messages %}{{ m | tojson }}\n{% endfor %}", &g,
      "{\"role\": \"assistant\", \"tool_calls\": [{\"id\": null}]}\n"
      "{\"thinking\": \"r\", \"role\": \"assistant\", \"content\": \"a\", \"reasoning\": \"r\", \"reasoning_content\": \"r\"}\n"
      "{\"thinking\": \"t\", \"role\": \"x\", \"reasoning_content\": \"t\"}\n");
  expect_text("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ bos_token }}{{ eos_token }}", &(given){.generate = true},
      "TrueTrueTrue<s></s>");
  expect_text("{{ add_generation_prompt }}{{ bos_token }}{{ a.b[0] }}{{ z }}",
      &(given){.extra = "{\"a\":{\"b\":[1.0]},\"bos_token\":\"B\",\"add_generation_prompt\":true}"}, "TrueB1.0");
  expect_text("{{ tools[0].b }}{{ tools | tojson }}", &(given){.tools = "[{\"b\":1,\"a\":2}]"}, "1[{\"b\": 1, \"a\": 2}]"); /* order is kept */
  expect_text("", &(given){0}, "");
}

static void test_bad_input(void **state) {
  (void)state;
  const struct {
    given g;
    const char *param;
  } cases[] = {{{.messages = "{}"}, "messages"}, {{.messages = "[{}, 5]"}, "messages[1]"}, {{.tools = "{}"}, "tools"},
      {{.tools = "[{},{},\"x\"]"}, "tools[2]"}, {{.extra = "[]"}, "chat_template_kwargs"}, {{.extra = "{\"messages\":[]}"}, "chat_template_kwargs"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    chat_text r = {0};
    err e = {0};
    assert_false(render("x", &cases[i].g, &r, &e));
    assert_int_equal(e.code, ERR_INPUT);
    assert_string_equal(e.param, cases[i].param);
  }
  json_t *deep = json_array(), *top = deep; /* deeper than a parser lets through */
  for (int i = 0; i < 500; i++) {
    json_t *in = json_array();
    json_array_append_new(deep, in);
    deep = in;
  }
  json_t *x = json_pack("{s:o}", "deep", top), *m = json_array();
  chat_tmpl *t = NULL;
  chat_text r = {0};
  err e = {0};
  assert_true(chat_compile(STR("{{ deep }}"), &t, &e));
  assert_false(chat_render(t, &(chat_vars){.messages = m, .extra = x}, &r, &e));
  assert_non_null(strstr(e.msg, "deeper"));
  assert_false(chat_render(t, &(chat_vars){0}, &r, &e));
  assert_string_equal(e.param, "messages");
  chat_free(t);
  json_decref(x);
  json_decref(m);
}

static void test_clock(void **state) {
  (void)state;
  const given g = {.now = 1753878896};
  setenv("TZ", "UTC", 1);
  tzset();
  expect_text("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", &g, "2025-07-30 12:34:56");
  setenv("TZ", "ABC-5:30", 1); /* local time, as datetime.now() */
  tzset();
  expect_text("{{ strftime_now('%d %b %Y %H:%M%z%Z|%f') }}", &g, "30 Jul 2025 18:04|000000");
  setenv("TZ", "UTC", 1);
  tzset();
}

/* Text built part by part is not copied each time: this would be 20 GB of copies, far over the bound on memory. */
static void test_growing_text(void **state) {
  (void)state;
  expect_text("{% set ns = namespace(t='') %}{% for i in range(20000) %}{% set ns.t = ns.t + '0123456789' * 10 %}{% endfor %}"
              "{{ ns.t | length }}{{ ns.t[1999990:] }}",
      &(given){0},
      "2000000"
      "0123456789");
}

/* A string that grew keeps the shorter ones it came from. */
static void test_growing_shares_nothing(void **state) {
  (void)state;
  expect_text("{% set a = 'x' * 100 %}{% set b = a + 'B' * 100 %}{% set c = b + 'C' %}{% set d = b + 'DD' %}{{ c[199:] }}{{ d[199:] }}{{ b | length "
              "}}{{ a[99:] }}",
      &(given){0}, "BCBDD200x");
}

static void *render_often(void *arg) {
  const chat_tmpl *t = arg;
  json_t *m = json("[{\"role\":\"user\",\"content\":\"h\\u00e9\"}]");
  int wrong = 0;
  for (int i = 0; i < 200; i++) {
    chat_text r = {0};
    err e = {0};
    wrong += !chat_render(t, &(chat_vars){.messages = m}, &r, &e) || strcmp(r.text.p, "\xc3\xa9 user h\xc3\xa9 3");
    chat_text_fini(&r);
  }
  json_decref(m);
  return (void *)(intptr_t)wrong;
}

static void test_threads_share_a_template(void **state) {
  (void)state;
  chat_tmpl *t = NULL;
  err e = {0};
  assert_true(chat_compile(
      STR("{% set a = '\xc3\xa9' %}{% for m in messages %}{{ a }} {{ m.role }} {{ m.content }} {{ (a ~ 'bc') | length }}{% endfor %}"), &t, &e));
  pthread_t th[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&th[i], NULL, render_often, t), 0);
  for (int i = 0; i < 3; i++) {
    void *wrong;
    pthread_join(th[i], &wrong);
    assert_null(wrong);
  }
  chat_free(t);
}

int main(void) {
  setenv("TZ", "UTC", 1);
  tzset();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_written), cmocka_unit_test(test_trust_sources), cmocka_unit_test(test_trust_text_filters),
      cmocka_unit_test(test_trust_sequences), cmocka_unit_test(test_trust_made_text), cmocka_unit_test(test_trust_carriers),
      cmocka_unit_test(test_bounds_of_rendering), cmocka_unit_test(test_bounds_of_compiling), cmocka_unit_test(test_bad_source),
      cmocka_unit_test(test_errors_name_the_place), cmocka_unit_test(test_refused_by_name), cmocka_unit_test(test_messages_are_prepared),
      cmocka_unit_test(test_bad_input), cmocka_unit_test(test_clock), cmocka_unit_test(test_growing_text),
      cmocka_unit_test(test_growing_shares_nothing), cmocka_unit_test(test_threads_share_a_template)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
