/* Tool calls and thinking in what a model writes. Every case is parsed whole, byte by byte and cut in two at every place: what comes out must be the
 * same each time. */
#include "base/buf.h"
#include "model/reason.h"
#include "model/toolcall.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* ---- what was seen, as one line: text, then {name|arguments} for each call, in order ---- */

typedef struct seen {
  buf b;
  int calls;
  bool open; /* a call's arguments are being written */
} seen;

static void close_call(seen *s) {
  if (s->open) buf_puts(&s->b, "}");
  s->open = false;
}

static void on_piece(void *ctx, const tool_piece *p) {
  seen *s = ctx;
  if (p->kind == TOOL_PIECE_ARGS) {
    assert_true(s->open);
    assert_int_equal(p->call, s->calls - 1);
  } else close_call(s);
  if (p->kind == TOOL_PIECE_CALL) {
    assert_int_equal(p->call, s->calls++);
    buf_puts(&s->b, "{");
    s->open = true;
  }
  assert_true(p->text.n > 0);
  buf_str(&s->b, p->text);
  if (p->kind == TOOL_PIECE_CALL) buf_puts(&s->b, "|");
}

static const str *offered;
static int n_offered;

/* Parses the parts text[0, a), text[a, b), text[b, n), or single bytes (step 1). */
static void parse(tool_form f, str text, size_t a, size_t b, bool bytes, bool cut, seen *ret) {
  err e = {0};
  tool_parser *p;
  *ret = (seen){0};
  buf_init(&ret->b, 1 << 20);
  assert_true(tool_parser_new(f, on_piece, ret, &p, &e));
  tool_parser_names(p, offered, n_offered);
  if (bytes)
    for (size_t i = 0; i < text.n; i++) assert_true(tool_parser_push(p, (str){text.p + i, 1}));
  else {
    assert_true(tool_parser_push(p, (str){text.p, a}));
    assert_true(tool_parser_push(p, (str){text.p + a, b - a}));
    assert_true(tool_parser_push(p, (str){text.p + b, text.n - b}));
  }
  assert_true(cut ? tool_parser_cut(p) : tool_parser_end(p));
  close_call(ret);
  assert_int_equal(tool_parser_calls(p), ret->calls);
  buf_putc(&ret->b, 0);
  tool_parser_free(p);
}

static void check(tool_form f, const char *text, const char *want, bool cut) {
  str t = str_c(text);
  seen s;
  for (size_t a = 0; a <= t.n; a++) {
    parse(f, t, a, a + (t.n - a) / 2, a == 0, cut, &s);
    if (strcmp(s.b.p, want)) fail_msg("%s cut at %zu:\n  %s\nexpected\n  %s\nsaw\n  %s", tool_form_name(f), a, text, want, s.b.p);
    buf_fini(&s.b);
  }
}

typedef struct row {
  const char *text, *want;
} row;

static void check_rows(tool_form f, const row *r, size_t n) {
  for (size_t i = 0; i < n; i++) check(f, r[i].text, r[i].want ? r[i].want : r[i].text, false);
}
#define CHECK_ROWS(f, rows) check_rows(f, rows, sizeof rows / sizeof *rows)

static void test_hermes(void **st) {
  (void)st;
  static const row rows[] = {
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "{f|{\"a\": 1}}"},
      {"Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}<\\\"{\"}}\n</tool_call>\n", "Let me see.{f|{\"a\": \"}<\\\"{\"}}"},
      {"a\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "a\n{f|{}}"},
      {"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": [1, [2]]}</tool_call>",
          "{f|{}}{g|[1, [2]]}"},
      {"<tool_call>{\"arguments\": {\"x\": \"y\"}, \"id\": 7, \"name\": \"f\"}</tool_call> done", "{f|{\"x\": \"y\"}} done"},
      {"<tool_call>{\"name\": \"f\"}</tool_call>", "{f|{}}"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": 12}</tool_call>", "{f|12}"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "{f|\"{\\\"a\\\": 1}\"}"},
      /* slips of small models: a bracket too many, one too few, no closing mark, arguments that are no JSON */
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}}\n</tool_call>", "{f|{\"a\": 1}}"},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>", "{f|{\"a\": 1}}"},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": {1</tool_call>x", "{f|{\"a\": {1}x"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {a: <b></tool_call>", "{f|{a: <b>}"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {<<</tool_call>", "{f|{<<}"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", \"arguments\": {}}", "{f|{}}{g|{}}"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\nSo", "{f|{}}\nSo"},
      /* what only looks like a call is text, unchanged */
      {"", NULL},
      {"plain < text <tool_ca", NULL},
      {"The <tool_call> mark", NULL},
      {"<tool_call>{\"name\": 5}</tool_call>", NULL},
      {"<tool_call>{\"name\": \"\"}", NULL},
      {"<tool_call>{\"foo\": {\"name\": \"f\"}}</tool_call>\n\nyes", NULL},
      {"<tool_call>{\"arguments\": {\"a\": 1</tool_call>", NULL},
      {"<tool_call>\n{\"name\": \"f", NULL},
      {" \n\n ", NULL},
      {"x\n<tool_call>\n<tool_call>{\"name\": \"f\"}</tool_call>", "x\n<tool_call>\n{f|{}}"},
      {"<tool<tool_call>{\"name\": \"f\"}</tool_call>", "<tool{f|{}}"},
      {"And {\"name\": \"f\", \"arguments\": {}}", NULL},
      /* marks forgotten, or a fence in their place */
      {"{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n", "{f|{\"a\": 1}}"},
      {"So:\n```json\n{\n  \"name\": \"f\",\n  \"arguments\": {}\n}\n{\"name\": \"g\", \"arguments\": {}}\n```\nok", "So:{f|{}}{g|{}}\nok"},
      {"{{\"name\": \"f\", \"arguments\": {\"a\": 1}}}\nok", "{f|{\"a\": 1}}\nok"},
      {"<tool_call>{{\"name\": \"f\", \"arguments\": {}}}</tool_call>", "{f|{}}"},
      {"{{{\"name\": \"f\", \"arguments\": {}}}}", NULL},
      {"{{ user }}", NULL},
      {"```json\n{\"name\": \"f\", \"age\": 3}\n```", NULL},
      {"```json\n{\"name\": \"f\"}\n```", NULL},
      {"```json\n[1]\n```", NULL},
  };
  CHECK_ROWS(TOOL_FORM_HERMES, rows);
}

static void test_llama3(void **st) {
  (void)st;
  static const row rows[] = {
      {"{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "{f|{\"a\": \"b\"}}"},
      {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "{f|{}}"},
      {"\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"x\": [1]}}\n",
          "\n{f|{}}{g|{\"x\": [1]}}"},
      {"{\"name\": \"f\", \"parameters\": {}};<|python_tag|>{\"name\": \"g\"}", "{f|{}}{g|{}}"},
      {"{\"name\": \"f\", \"parameters\": {}}; and so on", "{f|{}}; and so on"},
      /* an object with a name is not yet a call */
      {"{\"name\": \"Bob\", \"age\": 5}", NULL},
      {"{\"name\": \"Bob\"}", NULL},
      {"{\"name\": \"Bob\", \"parameters\": 5}", NULL},
      {"{\"city\": {\"name\": \"f\", \"parameters\": {}}}", NULL},
      {"See {\"name\": \"f\", \"parameters\": {}}", NULL},
      {"<|python_tag|>print(1)", NULL},
  };
  CHECK_ROWS(TOOL_FORM_LLAMA3, rows);
}

static void test_mistral(void **st) {
  (void)st;
  static const row rows[] = {
      {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1]}}]", "{f|{\"a\": [1]}}"},
      {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}, {\"name\": \"g\", \"arguments\": {}}]", "{f|{}}{g|{}}"},
      {"Well.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g_2[CALL_ID]abc123def[ARGS]{}", "Well.{f|{\"a\": 1}}{g_2|{}}"},
      {"[TOOL_CALLS] {\"name\": \"f\"}", NULL},
      {"[TOOL_CALLS]f[ARG]{}", NULL},
      {"[TOOL_CALLS]f{}", NULL},
      {"a [list] of [TOOL", NULL},
  };
  CHECK_ROWS(TOOL_FORM_MISTRAL, rows);
}

static void test_gemma(void **st) {
  (void)st;
  static const row rows[] = {
      {"<start_function_call>call:get_weather{city:<escape>Paris \"x\"<escape>,n:2,deep:{a:[1,true,<escape><b<escape>]}}<end_function_call>",
          "{get_weather|{\"city\": \"Paris \\\"x\\\"\", \"n\": 2, \"deep\": {\"a\": [1, true, \"<b\"]}}}"},
      {"<start_function_call>call:f{}<end_function_call><start_function_call>call:g{a:null}<end_function_call>", "{f|{}}{g|{\"a\": null}}"},
      {"<|tool_call>call:f{city:<|\"|>New\nYork<|\"|>,unit:celsius}<tool_call|>", "{f|{\"city\": \"New\\nYork\", \"unit\": \"celsius\"}}"},
      {"Sure.\n```tool_code\nprint(get_weather(city='It\\'s', days=-1.5, raw=True, tags=[\"a\", 'b'], o={'k': None}))\n```",
          "Sure.\n{get_weather|{\"city\": \"It's\", \"days\": -1.5, \"raw\": true, \"tags\": [\"a\", \"b\"], \"o\": {\"k\": null}}}"},
      {"```tool_code\nf(a=1)\ng(b=2)\n```\n", "{f|{\"a\": 1}}{g|{\"b\": 2}}"},
      {"```tool_code\n[f(a=1), g()]\n```", "{f|{\"a\": 1}}{g|{}}"},
      {"<start_function_call>call:f{city}<end_function_call>x", "{f|{}}x"},
      {"<start_function_call>call:{}<end_function_call>", NULL},
      {"<start_function_call>f{}", NULL},
      {"````tool_code", NULL},
      {"```python\nprint(1)\n```", NULL},
  };
  CHECK_ROWS(TOOL_FORM_GEMMA, rows);
}

/* A limit ends the text: the head of a call is no text, and what was told of a call stays as it is. */
static void test_cut(void **st) {
  (void)st;
  check(TOOL_FORM_HERMES, "a\n<tool_call>\n{\"name\": \"f", "a", true);
  check(TOOL_FORM_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b</too", "{f|{\"a\": \"b</too}", true);
  check(TOOL_FORM_HERMES, "<tool_call>\n{\"name\": \"f\",", "{f|}", true);
  check(TOOL_FORM_HERMES, "a <tool", "a <tool", true);
  check(TOOL_FORM_LLAMA3, "{\"name\": \"Bo", "{\"name\": \"Bo", true);
  check(TOOL_FORM_MISTRAL, "[TOOL_CALLS] [{\"na", "", true);
}

/* Where nothing but its name makes an object a call, the name must be one that was offered. */
static void test_names(void **st) {
  (void)st;
  static const str names[] = {STR("g"), STR("get")};
  static const row rows[] = {{"{\"name\": \"get\", \"arguments\": {}}", "{get|{}}"}, {"{\"name\": \"ge\", \"arguments\": {}}", NULL},
      {"```json{\"name\": \"x\", \"arguments\": {}}```", NULL}, {"<tool_call>{\"name\": \"x\"}</tool_call>", "{x|{}}"}};
  offered = names;
  n_offered = 2;
  CHECK_ROWS(TOOL_FORM_HERMES, rows);
  n_offered = 0;
}

/* What is held back has a bound; past it the text is text, and a later call is still found. */
static void test_held_is_bounded(void **st) {
  (void)st;
  static const char head[] = "<tool_call>{\"x\": \"", tail[] = "<tool_call>{\"name\": \"f\"}</tool_call>";
  buf b;
  seen s;
  buf_init(&b, 1 << 20);
  buf_puts(&b, head);
  for (int i = 0; i < TOOL_HELD; i++) buf_putc(&b, 'a');
  buf_puts(&b, tail);
  parse(TOOL_FORM_HERMES, buf_view(&b), 100, 60000, false, false, &s);
  assert_int_equal(s.calls, 1);
  assert_int_equal(s.b.n, strlen(head) + TOOL_HELD + strlen("{f|{}}") + 1);
  buf_fini(&s.b);
  buf_fini(&b);
}

/* Random strings of the pieces that forms are made of: the way they are cut does not matter. The comparison must be able to fail: text with one byte
 * changed is told apart. */
static void test_cuts_do_not_matter(void **st) {
  (void)st;
  static const char *const bits[] = {"<tool_call>", "</tool_call>", "{", "}", "[", "]", "\"name\"", "\"arguments\"", "\"parameters\"", ": ", ", ",
      "\"f\"", "\\", "\"", "\n", " ", ";", "x", "1", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<start_function_call>",
      "call:", "<escape>", "=", "```tool_code", "```", "(", ")", "print", "'", "<end_function_call>", "{\"name\": \"g\", \"arguments\": {",
      "{\"name\": \"g\", \"parameters\": {", "[{\"name\": \"h\"", "\xc3\xa9", "<"};
  unsigned rnd = 12345;
  int differ = 0;
  for (int round = 0; round < 3000; round++) {
    tool_form f = (tool_form)(TOOL_FORM_HERMES + round % 4);
    char text[512] = "";
    for (int i = 0; i < 12; i++) {
      rnd = rnd * 1664525 + 1013904223;
      strcat(text, bits[(rnd >> 8) % (sizeof bits / sizeof *bits)]);
    }
    seen whole, other;
    str t = str_c(text);
    parse(f, t, t.n, t.n, false, false, &whole);
    for (size_t a = 0; a <= t.n; a += 1 + (size_t)round % 3) {
      parse(f, t, a, a + (t.n - a) / 3, a == 0, false, &other);
      if (strcmp(whole.b.p, other.b.p)) fail_msg("%s: '%s' cut at %zu: '%s' and '%s'", tool_form_name(f), text, a, whole.b.p, other.b.p);
      buf_fini(&other.b);
    }
    text[t.n / 2] = '~';
    parse(f, t, t.n, t.n, false, false, &other);
    differ += strcmp(whole.b.p, other.b.p) != 0;
    buf_fini(&other.b);
    buf_fini(&whole.b);
  }
  assert_true(differ > 2500);
}

static void test_forms_of_templates(void **st) {
  (void)st;
  static const struct {
    const char *t;
    tool_form f;
  } rows[] = {{"{% if tools %}<tool_call>\n{\"name\": {% endif %}", TOOL_FORM_HERMES}, {"{{ tools }}[TOOL_CALLS]", TOOL_FORM_MISTRAL},
      {"{{ tools }}<|python_tag|>", TOOL_FORM_LLAMA3}, {"{{ tools }}<start_function_call>call:", TOOL_FORM_GEMMA}, {"{{ tools }}", TOOL_FORM_NONE},
      {"{{ tools }}<tool_call><function=x>", TOOL_FORM_NONE}, {"<tool_call>", TOOL_FORM_NONE}, {"", TOOL_FORM_NONE}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(tool_form_of(str_c(rows[i].t)), rows[i].f);
}

/* ---- thinking ---- */

static void on_thought(void *ctx, bool thought, str text) {
  buf *b = ctx;
  for (size_t i = 0; i < text.n; i++) { /* (a thought) in brackets, byte by byte, so that cuts do not show */
    if (thought) buf_puts(b, "~");
    buf_putc(b, text.p[i]);
  }
}

static void check_thought(const char *text, bool opened, const char *want) {
  str t = str_c(text);
  for (size_t a = 0; a <= t.n; a++) {
    reason r;
    buf b;
    buf_init(&b, 1 << 16);
    reason_init(&r, opened, on_thought, &b);
    reason_push(&r, (str){t.p, a});
    for (size_t i = a; i < t.n; i++) reason_push(&r, (str){t.p + i, a % 2 ? 1 : t.n - i}), i = a % 2 ? i : t.n;
    reason_end(&r);
    buf_putc(&b, 0);
    if (strcmp(b.p, want)) fail_msg("'%s' cut at %zu: expected '%s', saw '%s'", text, a, want, b.p);
    buf_fini(&b);
  }
}

static void test_thinking(void **st) {
  (void)st;
  check_thought("<think>\na\n\nb\n</think>\n\nHi\n", false, "~a~\n~\n~bHi\n");
  check_thought("\n<think>a</think>x<think>b</think>", false, "~ax<think>b</think>");
  check_thought("<think>\n\n</think>\n\nHi", false, "Hi");
  check_thought("a\n</think>\nHi", true, "~aHi");
  check_thought("<<think>", false, "<<think>");
  check_thought("\n\n<thin", false, "\n\n<thin");
  check_thought("Hi <think>a</think>", false, "Hi <think>a</think>");
  check_thought("<think>a <</think>b", false, "~a~ ~<b");
  check_thought("<think>a\n</thi", false, "~a~\n~<~/~t~h~i");
  check_thought("", true, "");
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_hermes), cmocka_unit_test(test_llama3), cmocka_unit_test(test_mistral),
      cmocka_unit_test(test_gemma), cmocka_unit_test(test_cut), cmocka_unit_test(test_names), cmocka_unit_test(test_held_is_bounded),
      cmocka_unit_test(test_cuts_do_not_matter), cmocka_unit_test(test_forms_of_templates), cmocka_unit_test(test_thinking)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
