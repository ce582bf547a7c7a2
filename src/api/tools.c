#include "api/tools.h"
#include "base/hash.h"
#include <stdio.h>

bool tools_name_ok(str s) {
  if (!s.n || s.n > TOOLS_NAME) return false;
  for (size_t i = 0; i < s.n; i++) {
    char c = s.p[i];
    bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!ok) return false;
  }
  return true;
}

static bool check_function(api_request *r, json_t *f, const char *at, err *e) {
  str name = {NULL, 0}, text = {NULL, 0};
  json_t *params = NULL;
  bool strict = false;
  char path[128];
  if (!json_get_str(f, at, "name", &name, e) || !json_get_str(f, at, "description", &text, e)) return false;
  if (!json_get_object(f, at, "parameters", &params, e) || !json_get_bool(f, at, "strict", &strict, e)) return false;
  snprintf(path, sizeof path, "%s.name", at);
  if (!name.p) return err_param(e, ERR_INPUT, path, "'%s' is missing", path);
  if (!tools_name_ok(name))
    return err_param(e, ERR_INPUT, path, "'%s' is '%.80s': it must be 1 to %d letters, digits, _ and -", path, name.p, TOOLS_NAME);
  static const char note[] = "tools.function.strict"; /* arguments are not forced into the schema */
  if (strict && !strstr(r->ignored, note)) api_request_ignored(r, note);
  return true;
}

static bool check_tool(api_request *r, json_t *t, const char *at, err *e) {
  str type = {NULL, 0};
  json_t *f = NULL;
  char path[96];
  if (!json_is_object(t)) return err_param(e, ERR_INPUT, at, "'%s' must be an object, not %s", at, json_type_name(t));
  if (!json_get_str(t, at, "type", &type, e) || !json_get_object(t, at, "function", &f, e)) return false;
  snprintf(path, sizeof path, "%s.type", at);
  if (!type.p) return err_param(e, ERR_INPUT, path, "'%s' is missing: it must be 'function'", path);
  if (!str_is(type, "function")) return err_param(e, ERR_UNSUPPORTED, path, "'%s' is '%.40s': only 'function' is offered", path, type.p);
  snprintf(path, sizeof path, "%s.function", at);
  if (!f) return err_param(e, ERR_INPUT, path, "'%s' is missing: an object with 'name', 'description' and 'parameters'", path);
  return check_function(r, f, path, e);
}

bool tools_take(api_request *r, json_t *list, const char *path, err *e) {
  size_t n = json_array_size(list);
  if (!n) return true;
  if (n > API_MAX_TOOLS) return err_param(e, ERR_INPUT, path, "'%s' has %zu entries: at most %d are allowed", path, n, API_MAX_TOOLS);
  for (size_t i = 0; i < n; i++) {
    char at[64];
    snprintf(at, sizeof at, "%.30s[%zu]", path, i);
    if (!check_tool(r, json_array_get(list, i), at, e)) return false;
  }
  size_t bytes = json_dumpb(list, NULL, 0, JSON_COMPACT);
  if (bytes > TOOLS_BYTES) return err_param(e, ERR_INPUT, path, "'%s' is %zu bytes of JSON: at most %d are allowed", path, bytes, (int)TOOLS_BYTES);
  if (!(r->tool_names = ARENA_ARRAY(&r->mem, str, n))) return err_set(e, ERR_NOMEM, "out of memory reading '%s'", path);
  for (size_t i = 0; i < n; i++)
    r->tool_names[i] = str_c(json_string_value(json_object_get(json_object_get(json_array_get(list, i), "function"), "name")));
  r->tools = json_incref(list);
  return true;
}

bool tools_choice(api_request *r, json_t *c, const char *path, err *e) {
  if (!c || json_is_null(c)) return true;
  const char *s = json_string_value(c), *type = json_string_value(json_object_get(c, "type"));
  if (s && !strcmp(s, "auto")) return true;
  if (s && !strcmp(s, "none")) {
    r->tool_choice = API_TOOLS_NONE;
    return true;
  }
  if (s && !strcmp(s, "required")) return err_param(e, ERR_UNSUPPORTED, path, "'%s' is not supported as 'required': use 'auto' or 'none'", path);
  if (type) return err_param(e, ERR_UNSUPPORTED, path, "'%s' is not supported with type '%.40s': use 'auto' or 'none'", path, type);
  return err_param(e, ERR_INPUT, path, "'%s' must be 'auto' or 'none'", path);
}

/* ---- ids: random characters and three that follow from them ---- */

enum { ID_PLAIN = 9, ID_LONG = 19, ID_CHECK = 3 };
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

static void put_digits(char *out, int n, uint64_t v) {
  for (int i = 0; i < n; i++, v /= 62) out[i] = digits[v % 62];
}

static void put_check(char *id, int n, tools_origin o) {
  put_digits(id + n - ID_CHECK, ID_CHECK, hash64(id, (size_t)(n - ID_CHECK), 0x77656972 + (uint64_t)o));
}

void tools_new_id(char out[TOOLS_ID], uint64_t random, bool plain, tools_origin o) {
  int n = plain ? ID_PLAIN : ID_LONG;
  char *id = out + (plain ? 0 : 5);
  memcpy(out, "call_", 5);
  for (int i = 0; i < n - ID_CHECK; i += 8, random = hash64(&random, sizeof random, 1)) {
    int left = n - ID_CHECK - i;
    put_digits(id + i, left < 8 ? left : 8, random);
  }
  put_check(id, n, o); /* a check of its own for TOOLS_FOREIGN, which nobody looks for */
  id[n] = 0;
}

tools_origin tools_id_origin(str id) {
  char check[ID_LONG];
  str s = str_starts(id, STR("call_")) ? (str){id.p + 5, id.n - 5} : id;
  if (s.n != ID_PLAIN && s.n != ID_LONG) return TOOLS_FOREIGN;
  memcpy(check, s.p, s.n);
  for (tools_origin o = TOOLS_OWN; o <= TOOLS_SPELT; o++) {
    put_check(check, (int)s.n, o);
    if (!memcmp(check, s.p, s.n)) return o;
  }
  return TOOLS_FOREIGN;
}
