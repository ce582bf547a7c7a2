/* Prompts equal to the reference on every template of tests/golden/chat, errors where it has errors, and proof that the comparison can fail. Compiled
 * twice: for templates of our own, and (GOLDEN_MODELS) for those inside model files, whose text is not stored here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <zlib.h>
#include "base/hash.h"
#include "base/json.h"
#include "model/chat.h"
#include "model/gguf.h"

typedef struct golden {
  buf text;
  json_t *head;
  json_t **line;
  int n;
} golden;
typedef struct score {
  int templates, runs, texts, wrong, skipped;
} score;

static void load(golden *g, const char *name) {
  char path[4096];
  const char *src = getenv("WEIR_SRC");
  snprintf(path, sizeof path, "%s/tests/golden/chat/%s.jsonl.gz", src ? src : TEST_SRC, name);
  gzFile f = gzopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  char chunk[65536];
  *g = (golden){0};
  buf_init(&g->text, (size_t)64 << 20);
  for (int k; (k = gzread(f, chunk, sizeof chunk)) > 0;) buf_put(&g->text, chunk, (size_t)k);
  gzclose(f);
  str rest = buf_view(&g->text), line;
  g->line = calloc(100000, sizeof *g->line);
  err e = {0};
  while (str_cut(rest, '\n', &line, &rest)) {
    json_t *j = NULL;
    if (!json_parse(line, &j, &e)) fail_msg("%s: %s", path, e.msg);
    if (!g->head) g->head = j;
    else g->line[g->n++] = j;
  }
  assert_true(g->n > 0);
}

static void unload(golden *g) {
  for (int i = 0; i < g->n; i++) json_decref(g->line[i]);
  json_decref(g->head);
  free(g->line);
  buf_fini(&g->text);
}

static str text_of(json_t *o, const char *key) {
  json_t *v = json_object_get(o, key);
  return (str){json_string_value(v), json_string_length(v)};
}

static bool render(const chat_tmpl *t, json_t *in, int64_t now, chat_text *ret, err *e) {
  chat_vars v = {.messages = json_object_get(in, "messages"),
      .tools = json_object_get(in, "tools"),
      .extra = json_object_get(in, "extra"),
      .bos = json_string_value(json_object_get(in, "bos")),
      .eos = json_string_value(json_object_get(in, "eos")),
      .add_generation_prompt = json_is_true(json_object_get(in, "add_generation_prompt")),
      .now = now};
  return chat_render(t, &v, ret, e);
}

static void show(const char *what, str s) {
  printf("   %s ", what);
  for (size_t i = 0; i < s.n && i < 400; i++) printf((uint8_t)s.p[i] < 32 ? "\\x%02x" : "%c", (uint8_t)s.p[i]);
  printf("\n");
}

/* One run. `damage`: flips a bit of byte i of the expected text first, as the negative control. */
static bool same(const chat_tmpl *t, const err *compile_err, json_t *run, json_t *in, int64_t now, int damage, const char *name) {
  chat_text got = {0};
  err e = *compile_err;
  bool ok = t && render(t, in, now, &got, &e), want_ok = json_object_get(run, "out") != NULL, equal;
  str out = buf_view(&got.text), want = text_of(run, "out");
  if (want_ok && damage >= 0) {
    char *copy = malloc(want.n + 1);
    assert_non_null(copy);
    memcpy(copy, want.p, want.n);
    if ((size_t)damage < want.n) copy[damage] ^= 1;
    equal = ok && str_eq(out, (str){copy, want.n});
    free(copy);
  } else equal = ok == want_ok && (!ok || str_eq(out, want));
  if (!ok) assert_true(e.msg[0] && (e.code == ERR_INPUT || e.code == ERR_UNSUPPORTED));
  if (!equal && name) {
    printf("  %s, input %d:\n", name, (int)json_integer_value(json_object_get(run, "in")));
    show("got ", ok ? out : str_c(e.msg));
    show("want", want_ok ? want : text_of(run, "error"));
  }
  if (ok) chat_text_fini(&got);
  return equal;
}

static void compare_line(const golden *g, json_t *line, str source, bool loud, score *sc) {
  int64_t now = json_integer_value(json_object_get(g->head, "now"));
  json_t *inputs = json_object_get(json_object_get(g->head, "inputs"), json_string_value(json_object_get(line, "inputs"))), *run;
  const char *name = json_string_value(json_object_get(line, "name"));
  chat_tmpl *t = NULL;
  err e = {0};
  size_t i;
  sc->templates++;
  chat_compile(source, &t, &e);
  json_array_foreach(json_object_get(line, "runs"), i, run) {
    json_t *in = json_array_get(inputs, (size_t)json_integer_value(json_object_get(run, "in")));
    sc->runs++;
    sc->wrong += !same(t, &e, run, in, now, -1, loud ? name : NULL);
    size_t n = text_of(run, "out").n;
    if (!n) continue;
    sc->texts++;
    assert_false(same(t, &e, run, in, now, (int)(n / 2), NULL)); /* one flipped bit is noticed */
  }
  chat_free(t);
}

#ifdef GOLDEN_MODELS
static bool model_path(char *out, size_t cap, const char *file) {
  const char *dir = getenv("WEIR_TEST_MODELS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (dir) snprintf(out, cap, "%s/%s", dir, file);
  else if (cache && *cache) snprintf(out, cap, "%s/weir/models/%s", cache, file);
  else snprintf(out, cap, "%s/.cache/weir/models/%s", home ? home : "", file);
  return access(out, R_OK) == 0;
}

static score whole_set(bool loud) {
  golden g;
  score sc = {0};
  load(&g, "ladder");
  for (int i = 0; i < g.n; i++) {
    char path[4096], hex[65];
    const char *file = json_string_value(json_object_get(g.line[i], "name"));
    mfile *f = NULL;
    err e = {0};
    str source = {0};
    uint8_t digest[32];
    if (!model_path(path, sizeof path, file)) {
      printf("skip: %s is neither in $WEIR_TEST_MODELS nor in the models' cache folder\n", file);
      sc.skipped++;
      continue;
    }
    if (!gguf_open(path, &f, &e) || !mf_str(f, "tokenizer.chat_template", &source, &e)) fail_msg("%s", e.msg);
    sha256_once(source.p, source.n, digest);
    sha256_hex(digest, hex);
    if (!str_is(text_of(g.line[i], "sha256"), hex)) fail_msg("%s holds another template than the one the vectors were made with", path);
    compare_line(&g, g.line[i], source, loud, &sc);
    mf_close(f);
  }
  unload(&g);
  return sc;
}
#else
static score whole_set(bool loud) {
  golden g;
  score sc = {0};
  load(&g, "cases");
  for (int i = 0; i < g.n; i++) compare_line(&g, g.line[i], text_of(g.line[i], "template"), loud, &sc);
  unload(&g);
  return sc;
}
#endif

static int n_skipped, n_compared;

static void test_equal(void **state) {
  (void)state;
  score sc = whole_set(true);
  n_skipped = sc.skipped;
  n_compared = sc.templates;
  printf("%d templates, %d runs, %d of them texts (each also checked against a damaged copy), %d differ; %d model files missing\n", sc.templates,
      sc.runs, sc.texts, sc.wrong, sc.skipped);
  assert_int_equal(sc.wrong, 0);
#ifndef GOLDEN_MODELS
  assert_true(sc.templates >= 150 && sc.texts >= 1000 && sc.runs - sc.texts >= 300);
#endif
}

int main(void) {
  setenv("TZ", "UTC", 1);
  tzset();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed ? failed : n_skipped && !n_compared ? 77 : 0;
}
