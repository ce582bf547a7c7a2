/* dialect_rig.h - what tests of dialects share: a request parsed from a body, an answer that writes down what it would send, scripted events. */
#ifndef TEST_DIALECT_RIG_H
#define TEST_DIALECT_RIG_H
#include "api/dialect.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct rig {
  api_request *req;
  api_info info;
  api_out out;
  api_answer a;
  buf seen;
} rig;

static inline void rig_header(void *ctx, const char *n, const char *v) { (void)ctx, (void)n, (void)v; }
static inline void rig_whole(void *ctx, int status, const char *type, str body) {
  (void)type;
  buf_printf(ctx, "%d ", status);
  buf_str(ctx, body);
}
static inline void rig_begin(void *ctx, int status, const char *type) { (void)ctx, (void)status, (void)type; }
static inline void rig_write(void *ctx, str s) { buf_str(ctx, s); }
static inline void rig_end(void *ctx) { buf_puts(ctx, "close\n"); }

static inline void rig_open(rig *g, const api_dialect *d, const char *body) {
  err e = {0};
  *g = (rig){.info = {"ID", 7, "m", "fp_x", 1000000, "U"}};
  buf_init(&g->seen, 1 << 20);
  g->out = (api_out){&g->seen, rig_header, rig_whole, rig_begin, rig_write, rig_end};
  if (!api_request_parse(d, str_c(body), &g->req, &e)) fail_msg("%s: %s", body, e.msg);
  assert_true(answer_init(&g->a, g->req, &g->info, &g->out, &e));
}

static inline void rig_close(rig *g) {
  answer_fini(&g->a);
  api_request_unref(g->req);
  buf_fini(&g->seen);
}

static inline void say(rig *g, api_event ev) { answer_event(&g->a, &ev); }
static const api_usage rig_used = {30, 10, 8, 2};

/* The answer all dialects are shown: a thought, words in two pieces, a call in two pieces, another without arguments. */
static inline void play(rig *g, api_finish how, int stop) {
  say(g, (api_event){.kind = API_BEGIN, .usage = {30, 0, 0, 0}});
  say(g, (api_event){.kind = API_REASONING, .text = STR("hm")});
  say(g, (api_event){.kind = API_TEXT, .text = STR("Say ")});
  say(g, (api_event){.kind = API_TEXT, .text = STR("\"hi\"")});
  say(g, (api_event){.kind = API_TOOL, .tool = {0, STR("call_1"), STR("add"), STR("{\"a\":")}});
  say(g, (api_event){.kind = API_TOOL, .tool = {0, {NULL, 0}, {NULL, 0}, STR("1}")}});
  say(g, (api_event){.kind = API_TOOL, .tool = {1, STR("call_2"), STR("now"), {NULL, 0}}});
  say(g, (api_event){.kind = API_FINISH, .finish = how, .stop = stop});
  say(g, (api_event){.kind = API_USAGE, .usage = rig_used});
}

static inline void seen_has(const rig *g, const char *part) {
  if (!g->seen.p || !strstr(g->seen.p, part)) fail_msg("no\n%s\nin\n%s", part, g->seen.p ? g->seen.p : "");
}

/* The JSON of a value, keys sorted, against what is wanted. */
static inline void json_is(const json_t *v, const char *want) {
  json_t *w = json_loads(want, JSON_DECODE_ANY, NULL);
  char *s = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
  assert_non_null(w);
  if (!json_equal(w, (json_t *)v)) fail_msg("expected %s, saw %s", want, s);
  free(s);
  json_decref(w);
}

/* The types of a stream's events, one a line; and every event is JSON whose type is its event's name. */
static inline void types_are(const rig *g, const char *want) {
  buf types;
  buf_init(&types, 1 << 16);
  str rest = buf_view(&g->seen), line;
  char name[80] = "";
  while (str_cut(rest, '\n', &line, &rest)) {
    if (str_starts(line, STR("event: "))) snprintf(name, sizeof name, "%.*s", (int)line.n - 7, line.p + 7);
    if (!str_starts(line, STR("data: "))) continue;
    json_t *v = json_loadb(line.p + 6, line.n - 6, 0, NULL);
    assert_non_null(v);
    assert_string_equal(json_string_value(json_object_get(v, "type")), name);
    json_t *seq = json_object_get(v, "sequence_number");
    buf_printf(&types, seq ? "%s %d\n" : "%s\n", name, (int)json_integer_value(seq));
    json_decref(v);
  }
  assert_string_equal(types.p ? types.p : "", want);
  buf_fini(&types);
}

typedef struct refusal_case {
  const char *body, *param;
  err_code code;
} refusal_case;

static inline void refused_all(const api_dialect *d, const refusal_case *c, size_t n) {
  for (size_t i = 0; i < n; i++) {
    err e = {0};
    api_request *r = NULL;
    if (api_request_parse(d, str_c(c[i].body), &r, &e)) fail_msg("accepted: %s", c[i].body);
    if (strcmp(e.param, c[i].param) || e.code != c[i].code) fail_msg("%s: '%s' %s: %s", c[i].body, e.param, err_lookup(e.code)->name, e.msg);
    if (*e.param && !strstr(e.msg, e.param)) fail_msg("%s: the message does not name '%s': %s", c[i].body, e.param, e.msg);
  }
}
#endif
