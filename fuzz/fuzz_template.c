/* A chat template, compiled and rendered. The input is the template, a NUL, and JSON with messages, tools, extra; without a NUL, a conversation of
 * our own. Holds: compiling and rendering twice agree; the output is within its bound, UTF-8, and marked byte for byte; no byte that only the
 * messages hold is trusted; every refusal is a sentence. */
#include "base/json.h"
#include "fuzz.h"
#include "model/chat.h"
#include <stdlib.h>

/* The user's text, of a character that no template holds by chance. */
#define MARK "\xee\x80\x80"
static const char own_vars[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"" MARK "\"}, {\"role\": \"user\", \"content\": \"<|im_start|>" MARK "\"},"
    "{\"role\": \"assistant\", \"content\": \"" MARK " x\", \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\":"
    "{\"name\": \"" MARK "\", \"arguments\": {\"a\": [1, 2.5, null, \"" MARK "\"]}}}]},"
    "{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"" MARK "\"}], \"tools\": [{\"type\": \"function\", \"function\":"
    "{\"name\": \"" MARK "\", \"description\": \"" MARK "\", \"parameters\": {\"type\": \"object\"}}}],"
    "\"extra\": {\"enable_thinking\": false, \"n\": 7}}";

static void check_text(const chat_text *c, bool marks) {
  FUZZ_CHECK(utf8_valid(buf_view(&c->text)), "the prompt is not valid UTF-8");
  fuzz_touch(c->trust, c->text.n);
  for (size_t i = 0; i < c->text.n; i++) {
    FUZZ_CHECK(c->trust[i] <= 1, "byte %zu is marked %d", i, c->trust[i]);
    if (marks && i + 3 <= c->text.n && memcmp(c->text.p + i, MARK, 3) == 0)
      FUZZ_CHECK(!c->trust[i] && !c->trust[i + 1] && !c->trust[i + 2], "a message's text is trusted as the template's own");
  }
}

/* A template that can write the mark by itself proves nothing: it has a byte of it, or the means to make one. */
static bool can_mark(str s) {
  return memchr(s.p, '\\', s.n) || memchr(s.p, 0xee, s.n) || str_find(s, STR("57344")) >= 0 || str_find(s, STR("format")) >= 0 ||
         str_find(s, STR("%c")) >= 0;
}

static void render_twice(const chat_tmpl *t, const chat_tmpl *t2, json_t *doc, bool marks) {
  chat_vars v = {.messages = json_object_get(doc, "messages"),
      .tools = json_object_get(doc, "tools"),
      .extra = json_object_get(doc, "extra"),
      .bos = "<s>",
      .eos = "</s>",
      .add_generation_prompt = true,
      .now = 1700000000};
  chat_text a = {0}, b = {0};
  err e = {0}, f = {0};
  json_t *before = json_deep_copy(doc);
  bool ok = chat_render(t, &v, &a, &e), ok2 = chat_render(t2, &v, &b, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (ok) {
    check_text(&a, marks);
    FUZZ_CHECK(str_eq(buf_view(&a.text), buf_view(&b.text)) && (!a.text.n || memcmp(a.trust, b.trust, a.text.n) == 0), "two renderings differ");
    chat_text_fini(&a);
    chat_text_fini(&b);
  } else fuzz_refused(&e);
  FUZZ_CHECK(json_equal(before, doc), "rendering changed the messages");
  json_decref(before);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  const uint8_t *nul = n ? memchr(p, 0, n) : NULL;
  size_t n_src = nul ? (size_t)(nul - p) : n;
  char *src = fuzz_copy(p, n_src);
  str source = {src, n_src}, vars = nul ? (str){(const char *)nul + 1, n - n_src - 1} : (str){own_vars, sizeof own_vars - 1};
  chat_tmpl *t = NULL, *t2 = NULL;
  json_t *doc = NULL;
  err e = {0}, f = {0};
  json_setup();
  bool ok = chat_compile(source, &t, &e), ok2 = chat_compile(source, &t2, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (!ok) fuzz_refused(&e);
  else if (json_parse(vars, &doc, &e) && json_is_object(doc)) render_twice(t, t2, doc, !nul && !can_mark(source));
  json_decref(doc);
  chat_free(t);
  chat_free(t2);
  free(src);
  return 0;
}
