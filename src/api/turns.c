#include "api/turns.h"
#include <stdint.h>

static const char ASSISTANT[] = "assistant";

void turns_init(turns *t) {
  *t = (turns){.list = json_array()};
  t->failed = !t->list;
  buf_init(&t->text, SIZE_MAX / 4);
  buf_init(&t->thought, SIZE_MAX / 4);
}

void turns_fini(turns *t) {
  json_decref(t->open);
  json_decref(t->list);
  buf_fini(&t->text);
  buf_fini(&t->thought);
  *t = (turns){0};
}

static void set(turns *t, json_t *obj, const char *key, json_t *v) { t->failed |= json_object_set_new(obj, key, v) != 0; }
static json_t *text_of(str s) { return json_stringn(s.p ? s.p : "", s.n); }

static void close_open(turns *t) {
  if (!t->open) return;
  set(t, t->open, "content", t->said || !t->called ? text_of(buf_view(&t->text)) : json_null());
  if (t->thought.n) set(t, t->open, "reasoning_content", text_of(buf_view(&t->thought)));
  t->failed |= json_array_append_new(t->list, t->open) != 0; /* takes it, also when it fails */
  t->failed |= t->text.failed || t->thought.failed;
  t->open = NULL;
  t->said = t->called = false;
  buf_clear(&t->text);
  buf_clear(&t->thought);
}

static json_t *open_message(turns *t, const char *role) {
  close_open(t);
  t->open = json_object();
  t->role = role;
  if (t->open) set(t, t->open, "role", json_string(role));
  else t->failed = true;
  return t->open;
}

static bool goes_on(const turns *t, const char *role) { return t->open && !strcmp(t->role, role); }

void turns_say(turns *t, const char *role, str text) {
  bool own = !strcmp(role, ASSISTANT);
  if (!own || !goes_on(t, role)) open_message(t, role);
  buf_str(&t->text, text);
  t->said = true;
}

void turns_more(turns *t, const char *role, str text) {
  if (!goes_on(t, role)) open_message(t, role);
  if (t->said && strcmp(role, ASSISTANT) != 0) buf_putc(&t->text, '\n');
  buf_str(&t->text, text);
  t->said = true;
}

/* A thought comes first in its turn: one behind words or calls belongs to the next. */
void turns_think(turns *t, str text) {
  if (!goes_on(t, ASSISTANT) || t->said || t->called) open_message(t, ASSISTANT);
  buf_str(&t->thought, text);
}

void turns_call(turns *t, str id, str name, json_t *args) {
  if (!goes_on(t, ASSISTANT)) open_message(t, ASSISTANT);
  json_t *calls = json_object_get(t->open, "tool_calls"), *call = json_object(), *fn = json_object();
  if (!calls && t->open) {
    set(t, t->open, "tool_calls", json_array());
    calls = json_object_get(t->open, "tool_calls");
  }
  set(t, fn, "name", text_of(name));
  set(t, fn, "arguments", json_incref(args));
  set(t, call, "id", text_of(id));
  set(t, call, "type", json_string("function"));
  set(t, call, "function", fn);
  t->failed |= json_array_append_new(calls, call) != 0;
  t->called = true;
}

void turns_result(turns *t, str id, str text) {
  json_t *m = open_message(t, "tool");
  if (m) set(t, m, "tool_call_id", text_of(id));
  buf_str(&t->text, text);
  close_open(t);
}

json_t *turns_end(turns *t, err *e) {
  close_open(t);
  json_t *list = t->list;
  t->list = NULL;
  if (!t->failed) return list;
  json_decref(list);
  err_set(e, ERR_NOMEM, "out of memory reading the conversation");
  return NULL;
}
