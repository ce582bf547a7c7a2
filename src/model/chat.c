/* The public face: compile once, render many times. Here JSON becomes values (untrusted, its strings borrowed), and messages are prepared as
 * transformers prepares them before a template sees them. */
#include "model/chat.h"
#include "model/jinja_ast.h"
#include <stdio.h>
#include <stdlib.h>

struct chat_tmpl {
  arena mem;
  jj_list body;
  jj_frame frame;
  int n_slots;
};

bool chat_compile(str source, chat_tmpl **ret, err *e) {
  chat_tmpl *t = calloc(1, sizeof *t);
  if (!t) return err_set(e, ERR_NOMEM, "out of memory compiling a chat template");
  arena_init(&t->mem, (size_t)256 << 20);
  jj_src s = {.mem = &t->mem, .e = e, .text = source};
  if (!jj_lex(&s) || !jj_parse(&s) || !jj_scope(&s)) {
    chat_free(t);
    return false;
  }
  t->body = s.body;
  t->frame = s.frame;
  t->n_slots = s.n_slots;
  *ret = t;
  return true;
}

void chat_free(chat_tmpl *t) {
  if (!t) return;
  arena_fini(&t->mem);
  free(t);
}

void chat_text_fini(chat_text *c) {
  buf_fini(&c->text);
  free(c->trust);
  c->trust = NULL;
}

/* ---- JSON to values ---- */

static bool any_json(jj_rt *rt, json_t *j, int depth, jj_val *ret);
static bool from_json(jj_rt *rt, json_t *j, int depth, jj_val *ret);

static bool from_object(jj_rt *rt, json_t *j, int depth, jj_val *ret) {
  const char *key;
  json_t *v;
  if (!jj_dict_new(rt, J_DICT, ret)) return false;
  json_object_foreach(j, key, v) {
    jj_val k, x;
    if (!jj_str_new(rt, str_c(key), JT_NO, &k) || !from_json(rt, v, depth + 1, &x) || !jj_dict_set(rt, ret->d, k, x)) return false;
  }
  return true;
}

/* Marks a value as written: the list is in the order in which values are met. */
static void mark_written(jj_rt *rt, const json_t *j, jj_val v) {
  if (!rt->n_written || rt->written->value != j) return;
  if (v.tag == J_DICT) v.d->written = rt->written->text;
  if (v.tag == J_STR) v.s->json = true;
  rt->written++;
  rt->n_written--;
}

static bool from_json(jj_rt *rt, json_t *j, int depth, jj_val *ret) {
  if (!any_json(rt, j, depth, ret)) return false;
  mark_written(rt, j, *ret);
  return true;
}

static bool any_json(jj_rt *rt, json_t *j, int depth, jj_val *ret) {
  if (depth > JJ_MAX_DATA_DEPTH)
    return err_set(rt->e, ERR_INPUT, "a value given to the chat template is nested deeper than %d levels", JJ_MAX_DATA_DEPTH);
  switch (j ? json_typeof(j) : JSON_NULL) {
  case JSON_OBJECT: return from_object(rt, j, depth, ret);
  case JSON_ARRAY:
    if (!jj_seq_new(rt, J_LIST, json_array_size(j), ret)) return false;
    for (size_t i = 0; i < json_array_size(j); i++) {
      jj_val x;
      if (!from_json(rt, json_array_get(j, i), depth + 1, &x) || !jj_seq_add(rt, ret->q, x)) return false;
    }
    return true;
  case JSON_STRING: return jj_str_new(rt, (str){json_string_value(j), json_string_length(j)}, JT_NO, ret);
  case JSON_INTEGER: *ret = jj_int(json_integer_value(j)); return true;
  case JSON_REAL: *ret = jj_float(json_real_value(j)); return true;
  case JSON_TRUE:
  case JSON_FALSE: *ret = jj_bool(json_is_true(j)); return true;
  default: *ret = jj_none(); return true;
  }
}

/* ---- variables ---- */

static bool set(jj_rt *rt, jj_dict *d, const char *name, jj_val v) {
  jj_val k;
  return jj_str_new(rt, str_c(name), JT_YES, &k) && jj_dict_set(rt, d, k, v);
}

/* The roles that servers accept are a closed set, so they are trusted: some templates make a control token of them, <|role|>. */
static bool role(jj_rt *rt, json_t *j, jj_val *ret) {
  static const char *const known[] = {"system", "developer", "user", "assistant", "tool"};
  const char *s = json_string_value(j);
  for (size_t i = 0; s && i < sizeof known / sizeof *known; i++)
    if (!strcmp(s, known[i])) return jj_str_new(rt, str_c(known[i]), JT_YES, ret);
  return from_json(rt, j, 0, ret);
}

/* One message as transformers hands it over: keys whose value is null are dropped, and reasoning, which clients name in three ways, is put under
 * `thinking` (in front, when it is not there) and `reasoning_content`. */
static bool message(jj_rt *rt, json_t *j, jj_val *ret) {
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  json_t *reasoning = NULL, *v;
  const char *key;
  jj_val k, x, r = {0};
  for (int i = 0; i < 3 && !reasoning; i++) {
    reasoning = json_object_get(j, names[i]);
    if (json_is_null(reasoning)) reasoning = NULL;
  }
  if (!jj_dict_new(rt, J_DICT, ret)) return false;
  if (reasoning && (!from_json(rt, reasoning, 0, &r) || !set(rt, ret->d, "thinking", r))) return false;
  json_object_foreach(j, key, v) {
    if (json_is_null(v)) continue;
    if (!jj_str_new(rt, str_c(key), JT_NO, &k) || !(str_is(str_c(key), "role") ? role(rt, v, &x) : from_json(rt, v, 0, &x)) ||
        !jj_dict_set(rt, ret->d, k, x))
      return false;
  }
  return !reasoning || set(rt, ret->d, "reasoning_content", r);
}

static bool objects(err *e, json_t *list, const char *what) {
  char where[64];
  if (!json_is_array(list)) return err_param(e, ERR_INPUT, what, "'%s' must be an array", what);
  for (size_t i = 0; i < json_array_size(list); i++) {
    if (json_is_object(json_array_get(list, i))) continue;
    snprintf(where, sizeof where, "%s[%zu]", what, i);
    return err_param(e, ERR_INPUT, where, "'%s' must be an object", where);
  }
  return true;
}

static bool special(jj_rt *rt, const char *name, const char *text) {
  jj_val v;
  if (!text || !*text) return true; /* a tokenizer without it leaves the variable undefined */
  return jj_str_new(rt, str_c(text), JT_YES, &v) && set(rt, rt->vars, name, v);
}

static bool add_extra(jj_rt *rt, json_t *extra) {
  const char *key;
  json_t *v;
  if (!extra || json_is_null(extra)) return true;
  if (!json_is_object(extra)) return err_param(rt->e, ERR_INPUT, "chat_template_kwargs", "'chat_template_kwargs' must be an object");
  json_object_foreach(extra, key, v) {
    jj_val k, x;
    str name = str_c(key);
    if (str_is(name, "messages") || str_is(name, "tools"))
      return err_param(rt->e, ERR_INPUT, "chat_template_kwargs", "'chat_template_kwargs' cannot set '%s': it is a field of the request", key);
    if (!jj_str_new(rt, name, JT_NO, &k) || !from_json(rt, v, 0, &x) || !jj_dict_set(rt, rt->vars, k, x)) return false;
  }
  return true;
}

static bool variables(jj_rt *rt, const chat_vars *v) {
  jj_val vars, list, m, tools = jj_none();
  if (!v->messages || !objects(rt->e, v->messages, "messages"))
    return v->messages ? false : err_param(rt->e, ERR_INPUT, "messages", "'messages' is missing");
  if (v->tools && !json_is_null(v->tools) && (!objects(rt->e, v->tools, "tools") || !from_json(rt, v->tools, 0, &tools))) return false;
  if (!jj_dict_new(rt, J_DICT, &vars)) return false;
  rt->vars = vars.d;
  const jj_func *f;
  for (int i = 0; (f = jj_global_find(i)); i++)
    if (!set(rt, rt->vars, f->name, (jj_val){.tag = J_FUNC, .fn = f})) return false;
  if (!jj_seq_new(rt, J_LIST, json_array_size(v->messages), &list)) return false;
  for (size_t i = 0; i < json_array_size(v->messages); i++)
    if (!message(rt, json_array_get(v->messages, i), &m) || !jj_seq_add(rt, list.q, m)) return false;
  return set(rt, rt->vars, "messages", list) && set(rt, rt->vars, "tools", tools) && set(rt, rt->vars, "documents", jj_none()) &&
         set(rt, rt->vars, "add_generation_prompt", jj_bool(v->add_generation_prompt)) && special(rt, "bos_token", v->bos) &&
         special(rt, "eos_token", v->eos) && add_extra(rt, v->extra);
}

bool chat_render(const chat_tmpl *t, const chat_vars *v, chat_text *ret, err *e) {
  jj_out out = {0};
  jj_rt rt = {.e = e, .line = 1, .steps = JJ_MAX_STEPS, .now = v->now, .out = &out, .written = v->written, .n_written = v->n_written};
  arena_init(&rt.mem, JJ_MAX_MEMORY);
  bool ok = variables(&rt, v) && jj_run(&rt, &t->body, &t->frame, t->n_slots);
  char *p = ok ? realloc(out.p, out.n + 1) : NULL; /* a buf ends with a NUL, and an empty prompt is a prompt too */
  if (p) out.p = p;
  uint8_t *trust = p ? realloc(out.t, out.n + 1) : NULL;
  if (trust) {
    p[out.n] = 0;
    ret->text = (buf){.p = p, .n = out.n, .cap = out.n + 1, .max = JJ_MAX_OUTPUT};
    ret->trust = trust;
  } else {
    if (ok) ok = err_set(e, ERR_NOMEM, "out of memory rendering a chat template");
    jj_out_fini(&out);
  }
  arena_fini(&rt.mem);
  return ok;
}
