#include "api/messages.h"
#include "api/tools.h"
#include "base/buf.h"
#include <stdio.h>
#include <stdlib.h>

/* OpenAI renamed "system" for its newer models; templates know the old name. */
static bool check_role(json_t *m, const char *at, err *e) {
  static const char *const roles[] = {"system", "user", "assistant", "tool"};
  str role = {NULL, 0};
  char path[96];
  snprintf(path, sizeof path, "%s.role", at);
  if (!json_get_str(m, at, "role", &role, e)) return false;
  if (!role.p) return err_param(e, ERR_INPUT, path, "'%s' is missing", path);
  if (str_is(role, "developer"))
    return json_object_set_new(m, "role", json_string("system")) == 0 || err_set(e, ERR_NOMEM, "out of memory reading messages");
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (str_is(role, roles[i])) return true;
  return err_param(e, ERR_INPUT, path, "'%s' is '%.40s': it must be system, developer, user, assistant or tool", path, role.p);
}

/* Parts become one string, joined by newlines; a part that is not text is refused by name. */
static bool join_parts(json_t *parts, const char *at, json_t **ret, err *e) {
  buf text;
  buf_init(&text, SIZE_MAX / 4);
  bool ok = false;
  for (size_t i = 0; i < json_array_size(parts); i++) {
    json_t *p = json_array_get(parts, i);
    char path[96], field[128];
    str type = {NULL, 0}, s = {NULL, 0};
    snprintf(path, sizeof path, "%s.content[%zu]", at, i);
    if (!json_is_object(p)) {
      err_param(e, ERR_INPUT, path, "'%s' must be an object, not %s", path, json_type_name(p));
      goto out;
    }
    if (!json_get_str(p, path, "type", &type, e)) goto out;
    snprintf(field, sizeof field, "%s.type", path);
    if (!type.p) {
      err_param(e, ERR_INPUT, field, "'%s' is missing", field);
      goto out;
    }
    if (!str_is(type, "text")) {
      err_param(e, ERR_UNSUPPORTED, field, "'%s' is '%.40s', which is not supported: this model reads 'text' parts only", field, type.p);
      goto out;
    }
    if (!json_get_str(p, path, "text", &s, e)) goto out;
    snprintf(field, sizeof field, "%s.text", path);
    if (!s.p) {
      err_param(e, ERR_INPUT, field, "'%s' is missing", field);
      goto out;
    }
    if (i) buf_putc(&text, '\n');
    buf_str(&text, s);
  }
  *ret = text.failed ? NULL : json_stringn(text.p ? text.p : "", text.n);
  ok = *ret || err_set(e, ERR_NOMEM, "out of memory reading messages");
out:
  buf_fini(&text);
  return ok;
}

static bool check_content(json_t *m, const char *at, err *e) {
  json_t *c = json_object_get(m, "content"), *joined = NULL;
  char path[96];
  snprintf(path, sizeof path, "%s.content", at);
  if (json_is_string(c)) return true;
  if (json_is_array(c)) {
    if (!json_array_size(c)) return err_param(e, ERR_INPUT, path, "'%s' is an empty list", path);
    return join_parts(c, at, &joined, e) &&
           (json_object_set_new(m, "content", joined) == 0 || err_set(e, ERR_NOMEM, "out of memory reading messages"));
  }
  if (c && !json_is_null(c)) return err_param(e, ERR_INPUT, path, "'%s' must be a string or a list of parts, not %s", path, json_type_name(c));
  /* an assistant's turn that only calls tools has none */
  if (json_array_size(json_object_get(m, "tool_calls"))) return true;
  return err_param(e, ERR_INPUT, path, "'%s' is missing", path);
}

/* Insignificant white space is all that two spellings of the same JSON differ in as a rule. Text without any is what a client writes that parses and
 * prints arguments again; any other comes from the model. */
static bool is_compact(const json_t *doc, str text) {
  char *s = json_dumps(doc, JSON_COMPACT | JSON_ENCODE_ANY);
  bool same = s && str_is(text, s);
  free(s);
  return same;
}

static bool note_written(api_request *r, size_t room, const json_t *value, str text, err *e) {
  if (!r->written && !(r->written = ARENA_ARRAY(&r->mem, api_written, room))) return err_set(e, ERR_NOMEM, "out of memory reading messages");
  r->written[r->n_written++] = (api_written){value, text};
  return true;
}

/* Where a past call comes from. False: not from here. */
static bool note_origin(api_request *r, size_t room, const json_t *id) {
  tools_origin o = json_is_string(id) ? tools_id_origin((str){json_string_value(id), json_string_length(id)}) : TOOLS_FOREIGN;
  if (!r->calls) r->calls = ARENA_ARRAY(&r->mem, uint8_t, room);
  if (r->calls) r->calls[r->n_calls++] = (uint8_t)o; /* without it the marks are the template's, which is right but for the cache */
  return o != TOOLS_FOREIGN;
}

/* Templates want the arguments of a past call as an object; the API carries them as a string of JSON. One that is not JSON stays a string. Where a
 * model here wrote the call, its text is kept beside the object, so that the turn is replayed to the same tokens. */
static bool open_arguments(api_request *r, size_t room, json_t *call, json_t *fn, err *e) {
  json_t *args = json_object_get(fn, "arguments"), *id = json_object_get(call, "id"), *doc = NULL;
  bool own = note_origin(r, room, id);
  if (!json_is_string(args)) return true;
  str text = {json_string_value(args), json_string_length(args)};
  if (!text.n) doc = json_object();
  else if (!json_parse(text, &doc, NULL)) return !own || note_written(r, room, args, text, e);
  json_incref(args); /* the text below lies in it */
  bool ok = json_object_set_new(fn, "arguments", doc) == 0 || err_set(e, ERR_NOMEM, "out of memory reading messages");
  if (ok && own && text.n && !is_compact(doc, text)) {
    char *copy = arena_str(&r->mem, text);
    ok = copy ? note_written(r, room, doc, (str){copy, text.n}, e) : err_set(e, ERR_NOMEM, "out of memory reading messages");
  }
  json_decref(args);
  return ok;
}

static bool check_call(api_request *r, size_t room, json_t *call, const char *at, err *e) {
  str id = {NULL, 0}, type = {NULL, 0}, name = {NULL, 0};
  json_t *fn = json_object_get(call, "function"), *args;
  char path[112];
  if (!json_is_object(call)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(call));
  if (!json_get_str(call, at, "id", &id, e) || !json_get_str(call, at, "type", &type, e)) return false;
  if (type.p && !str_is(type, "function")) {
    snprintf(path, sizeof path, "%s.type", at);
    return err_param(e, ERR_UNSUPPORTED, path, "'%s' is '%.40s': only 'function' is offered", path, type.p);
  }
  snprintf(path, sizeof path, "%s.function", at);
  if (!json_is_object(fn)) return err_param(e, ERR_INPUT, path, "'%s' must be an object, not %s", path, json_type_name(fn));
  if (!json_get_str(fn, path, "name", &name, e)) return false;
  if (!name.n) return err_param(e, ERR_INPUT, path, "'%s.name' is missing", path);
  args = json_object_get(fn, "arguments");
  if (args && !json_is_string(args) && !json_is_object(args) && !json_is_null(args))
    return err_param(e, ERR_INPUT, path, "'%s.arguments' must be a string of JSON or an object, not %s", path, json_type_name(args));
  return open_arguments(r, room, call, fn, e);
}

static bool check_calls(api_request *r, size_t room, json_t *m, const char *at, err *e) {
  json_t *calls = NULL;
  str id = {NULL, 0};
  if (!json_get_array(m, at, "tool_calls", &calls, e) || !json_get_str(m, at, "tool_call_id", &id, e)) return false;
  for (size_t i = 0; i < json_array_size(calls); i++) {
    char path[96];
    snprintf(path, sizeof path, "%.48s.tool_calls[%zu]", at, i);
    if (!check_call(r, room, json_array_get(calls, i), path, e)) return false;
  }
  return true;
}

/* How many past calls there are: the most that note_written may be asked to keep. */
static size_t count_calls(json_t *list) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(list); i++) n += json_array_size(json_object_get(json_array_get(list, i), "tool_calls"));
  return n;
}

bool messages_take(api_request *r, json_t *list, const char *path, err *e) {
  if (!list) return err_param(e, ERR_INPUT, path, "'%s' is missing: a list of {\"role\", \"content\"} objects", path);
  if (!json_array_size(list)) return err_param(e, ERR_INPUT, path, "'%s' is empty: at least one message is needed", path);
  size_t room = count_calls(list);
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *m = json_array_get(list, i);
    char at[64];
    snprintf(at, sizeof at, "%.30s[%zu]", path, i);
    if (!json_is_object(m)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(m));
    if (!check_role(m, at, e) || !check_content(m, at, e) || !check_calls(r, room, m, at, e)) return false;
  }
  r->messages = json_incref(list);
  return true;
}
