#include "api/fields.h"
#include <stdio.h>

static bool in_words(const char *words, str w) {
  str rest = str_c(words), head;
  while (rest.n) {
    if (!str_cut(rest, ',', &head, &rest)) {
      head = rest;
      rest.n = 0;
    }
    if (str_eq(head, w)) return true;
  }
  return false;
}

static bool harmless(const field_row *f, const json_t *v) {
  char number[40];
  switch (json_typeof(v)) {
  case JSON_NULL:
  case JSON_FALSE: return true;
  case JSON_TRUE: return false;
  case JSON_INTEGER:
  case JSON_REAL:
    snprintf(number, sizeof number, "%.17g", json_number_value(v));
    return json_number_value(v) == 0 || in_words(f->harmless, str_c(number));
  case JSON_STRING: return !json_string_length(v) || in_words(f->harmless, (str){json_string_value(v), json_string_length(v)});
  case JSON_ARRAY:
    for (size_t i = 0; i < json_array_size(v); i++) {
      const json_t *x = json_array_get(v, i);
      if (!json_is_string(x) || !harmless(f, x)) return false;
    }
    return true;
  case JSON_OBJECT: return !json_object_size(v);
  }
  return false;
}

static const field_row *find(const field_row *f, const char *name) {
  for (; f->name; f++)
    if (!strcmp(f->name, name)) return f;
  return NULL;
}

bool fields_check(api_request *r, const field_row *rows, err *e) {
  const char *key;
  json_t *v;
  json_object_foreach(r->doc, key, v) {
    const field_row *f = find(rows, key);
    if (!f) api_request_ignored(r, key);
    else if (f->use == FIELD_REFUSED && !harmless(f, v))
      return err_param(e, ERR_UNSUPPORTED, key, "'%s' is not supported%s%s", key, f->hint ? ": " : "", f->hint ? f->hint : "");
  }
  return true;
}

bool fields_need(json_t *obj, const char *path, const char *key, str *ret, err *e) {
  str s = {NULL, 0};
  char at[112];
  if (!json_get_str(obj, path, key, &s, e)) return false;
  if (s.n) {
    *ret = s;
    return true;
  }
  snprintf(at, sizeof at, "%s%s%s", path, *path ? "." : "", key);
  return err_param(e, ERR_INPUT, at, "'%s' is %s: a string is needed", at, s.p ? "empty" : "missing");
}

bool fields_thinking_off(api_request *r, err *e) {
  static const char key[] = "enable_thinking";
  bool ok = r->template_kwargs || json_object_set_new(r->doc, "chat_template_kwargs", json_object()) == 0;
  if (!r->template_kwargs) r->template_kwargs = json_object_get(r->doc, "chat_template_kwargs");
  if (ok && !json_object_get(r->template_kwargs, key)) ok = json_object_set_new(r->template_kwargs, key, json_false()) == 0;
  return ok || err_set(e, ERR_NOMEM, "out of memory while reading the request");
}
