/* What a model writes, parted into what a client sees: a scripted engine's text in, events out. */
#include "api/tools.h"
#include "base/buf.h"
#include "serve/split.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct seen {
  buf b; /* T:text R:thought C0:name A0:arguments, one line an event */
  char ids[4][TOOLS_ID];
} seen;

static void on_event(void *ctx, api_event *ev) {
  seen *s = ctx;
  if (ev->kind == API_TOOL && ev->tool.name.n) {
    buf_printf(&s->b, "C%d:%.*s\n", ev->tool.index, (int)ev->tool.name.n, ev->tool.name.p);
    assert_true(ev->tool.id.n < TOOLS_ID);
    snprintf(s->ids[ev->tool.index], TOOLS_ID, "%.*s", (int)ev->tool.id.n, ev->tool.id.p);
  } else if (ev->kind == API_TOOL) buf_printf(&s->b, "A%d:%.*s\n", ev->tool.index, (int)ev->tool.args.n, ev->tool.args.p);
  else buf_printf(&s->b, "%c:%.*s\n", ev->kind == API_TEXT ? 'T' : 'R', (int)ev->text.n, ev->text.p);
}

/* pieces: NULL-terminated, as an engine's events would bring them. */
static split *play(split_plan plan, const char *const *pieces, bool cut, seen *s) {
  err e = {0};
  split *p;
  *s = (seen){0};
  buf_init(&s->b, 1 << 16);
  plan.random = 7;
  assert_true(split_new(&plan, on_event, s, &p, &e));
  for (; *pieces; pieces++) assert_true(split_push(p, str_c(*pieces)));
  assert_true(split_end(p, cut));
  buf_putc(&s->b, 0);
  return p;
}

static void test_streams_as_it_comes(void **st) {
  (void)st;
  static const char *const pieces[] = {"<think>", "\n", "hm", "\n", "</think>", "\n\n", "Let", " me", "\n", "<tool_call>", "\n", "{\"name\"", ": \"f",
      "\",", " \"arguments\": {\"a\"", ": 1", "}}", "\n", "</tool_call>", NULL};
  seen s;
  split *p = play((split_plan){.think = true, .form = TOOL_FORM_HERMES, .parallel = true}, pieces, false, &s);
  assert_string_equal(s.b.p, "R:hm\nT:Let\nT: me\nC0:f\nA0:{\"a\"\nA0:: 1\nA0:}\n");
  assert_int_equal(split_calls(p), 1);
  split_free(p);
  buf_fini(&s.b);
}

/* Without the plan nothing is looked for: the same text passes through. */
static void test_plain(void **st) {
  (void)st;
  static const char *const pieces[] = {"<think>a</think>", "<tool_call>{\"name\": \"f\"}</tool_call>", NULL};
  seen s;
  split *p = play((split_plan){.parallel = true}, pieces, false, &s);
  assert_string_equal(s.b.p, "T:<think>a</think>\nT:<tool_call>{\"name\": \"f\"}</tool_call>\n");
  assert_int_equal(split_calls(p), 0);
  split_free(p);
  buf_fini(&s.b);
}

static void test_prompt_has_opened_the_thought(void **st) {
  (void)st;
  static const char *const pieces[] = {"so", "</think>", "Yes", NULL};
  seen s;
  split *p = play((split_plan){.think = true, .opened = true}, pieces, false, &s);
  assert_string_equal(s.b.p, "R:so\nT:Yes\n");
  split_free(p);
  buf_fini(&s.b);
}

static void test_one_call_only(void **st) {
  (void)st;
  static const char *const pieces[] = {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>", " and text", NULL};
  seen s;
  split *p = play((split_plan){.form = TOOL_FORM_HERMES, .parallel = false}, pieces, false, &s);
  assert_string_equal(s.b.p, "C0:f\nA0:{}\n");
  assert_true(split_full(p));
  assert_int_equal(split_calls(p), 1);
  split_free(p);
  buf_fini(&s.b);
  p = play((split_plan){.form = TOOL_FORM_HERMES, .parallel = true}, pieces, false, &s);
  assert_string_equal(s.b.p, "C0:f\nA0:{}\nC1:g\nA1:{}\nT: and text\n");
  assert_false(split_full(p));
  assert_string_not_equal(s.ids[0], s.ids[1]);
  split_free(p);
  buf_fini(&s.b);
}

static void test_cut(void **st) {
  (void)st;
  static const char *const pieces[] = {"So\n<tool_call>\n{\"name\": \"f", NULL};
  seen s;
  split_free(play((split_plan){.form = TOOL_FORM_HERMES}, pieces, true, &s));
  assert_string_equal(s.b.p, "T:So\n");
  buf_fini(&s.b);
  split_free(play((split_plan){.form = TOOL_FORM_HERMES}, pieces, false, &s));
  assert_string_equal(s.b.p, "T:So\nT:\n<tool_call>\n{\"name\": \"f\n");
  buf_fini(&s.b);
}

/* An id says whether the call can be replayed as it was written: not one in a form that the template does not have. */
static void test_ids(void **st) {
  (void)st;
  static const char *const own[] = {"<tool_call>{\"name\": \"f\"}</tool_call>", NULL},
                           *const loose[] = {"{\"name\": \"f\", \"arguments\": {}}", NULL},
                           *const mistral[] = {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", NULL};
  seen s;
  split_free(play((split_plan){.form = TOOL_FORM_HERMES}, own, false, &s));
  assert_int_equal(tools_id_origin(str_c(s.ids[0])), TOOLS_OWN);
  s.ids[0][9] ^= 1;
  assert_int_equal(tools_id_origin(str_c(s.ids[0])), TOOLS_FOREIGN);
  buf_fini(&s.b);
  split_free(play((split_plan){.form = TOOL_FORM_HERMES}, loose, false, &s));
  assert_int_equal(strlen(s.ids[0]), 24);
  assert_int_equal(tools_id_origin(str_c(s.ids[0])), TOOLS_FOREIGN);
  buf_fini(&s.b);
  split_free(play((split_plan){.form = TOOL_FORM_MISTRAL}, mistral, false, &s));
  assert_int_equal(strlen(s.ids[0]), 9);
  assert_int_equal(tools_id_origin(str_c(s.ids[0])), TOOLS_OWN);
  for (int i = 0; i < 9; i++) assert_true(tools_name_ok((str){s.ids[0] + i, 1}) && s.ids[0][i] != '_' && s.ids[0][i] != '-');
  buf_fini(&s.b);
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_streams_as_it_comes), cmocka_unit_test(test_plain),
      cmocka_unit_test(test_prompt_has_opened_the_thought), cmocka_unit_test(test_one_call_only), cmocka_unit_test(test_cut),
      cmocka_unit_test(test_ids)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
