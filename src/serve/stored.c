#include "serve/stored.h"
#include "api/emit.h"
#include "base/json.h"

enum { PAGE_ITEMS = 100, PAGE_DEFAULT = 20 };

bool stored_unknown(str id, const char *param, err *e) {
  return err_param(e, ERR_NOT_FOUND, param,
      "'%s' is '%.*s', which is not here: it was never kept ('store'), was deleted, or has made room for newer ones; send the whole conversation as "
      "'input'",
      param, (int)(id.n < 80 ? id.n : 80), id.p);
}

static void refuse(server *s, http_req *r, const char *route, const err *e) { server_refuse(s, r, route, server_request_id(s), e); }

/* ---- a page of items ---- */

typedef struct page {
  bool newest_first;
  int64_t limit;
  str after;
} page;

static bool read_page(str query, page *p, err *e) {
  str pair, key, value;
  *p = (page){.newest_first = true, .limit = PAGE_DEFAULT};
  while (query.n) {
    if (!str_cut(query, '&', &pair, &query)) {
      pair = query;
      query.n = 0;
    }
    if (!str_cut(pair, '=', &key, &value)) continue;
    if (str_is(key, "limit") && (!str_i64(value, &p->limit) || p->limit < 1 || p->limit > PAGE_ITEMS))
      return err_param(e, ERR_INPUT, "limit", "'limit' must be a number from 1 to %d", PAGE_ITEMS);
    if (str_is(key, "order")) {
      p->newest_first = str_is(value, "desc");
      if (!p->newest_first && !str_is(value, "asc")) return err_param(e, ERR_INPUT, "order", "'order' must be asc or desc");
    }
    if (str_is(key, "after")) p->after = value;
  }
  return true;
}

static const char *id_of(const json_t *item) { return json_string_value(json_object_get(item, "id")); }

static bool write_page(json_t *list, const page *p, buf *out, err *e) {
  size_t n = json_array_size(list), from = 0, shown = 0;
  const char *first = NULL, *last = NULL;
#define ITEM(i) json_array_get(list, p->newest_first ? n - 1 - (i) : (i))
  if (p->after.n) {
    while (from < n && !(id_of(ITEM(from)) && str_is(p->after, id_of(ITEM(from))))) from++;
    if (from++ == n)
      return err_param(
          e, ERR_INPUT, "after", "'after' is '%.*s', which is no item of this response", (int)(p->after.n < 80 ? p->after.n : 80), p->after.p);
  }
  buf_puts(out, "{\"object\":\"list\",\"data\":[");
  for (size_t i = from; i < n && shown < (size_t)p->limit; i++, shown++) {
    if (shown) buf_putc(out, ',');
    emit_json(ITEM(i), out);
    last = id_of(ITEM(i));
    if (!shown) first = last;
  }
#undef ITEM
  buf_puts(out, "],\"first_id\":");
  if (first) emit_str(str_c(first), out);
  else buf_puts(out, "null");
  buf_puts(out, ",\"last_id\":");
  if (last) emit_str(str_c(last), out);
  else buf_puts(out, "null");
  buf_printf(out, ",\"has_more\":%s}", from + shown < n ? "true" : "false");
  return !out->failed || err_set(e, ERR_NOMEM, "out of memory for a page of items");
}

static void show_items(server *s, http_req *r, const char *route, const store_entry *x) {
  page p;
  err e = {0};
  json_t *list = NULL;
  buf out;
  buf_init(&out, SIZE_MAX / 4);
  if (read_page(http_query(r), &p, &e) && json_parse(store_input(x), &list, &e) && write_page(list, &p, &out, &e))
    server_answer(s, r, route, "application/json", buf_view(&out));
  else refuse(s, r, route, &e);
  json_decref(list);
  buf_fini(&out);
}

/* ---- the routes ---- */

void stored_get(server *s, http_req *r, const char *route, str rest) {
  err e = {0};
  str tail = STR("/input_items"), query = http_query(r);
  bool items = str_ends(rest, tail);
  if (items) rest.n -= tail.n;
  store_entry *x = store_find(server_store(s), server_tenant(s), rest);
  if (!x) stored_unknown(rest, "response_id", &e);
  else if (!items && str_find(query, STR("stream=true")) >= 0)
    err_param(&e, ERR_UNSUPPORTED, "stream", "'stream' is not supported for an answer that is over: leave it away");
  if (e.code) refuse(s, r, route, &e);
  else if (items) show_items(s, r, route, x);
  else server_answer(s, r, route, "application/json", store_body(x));
  store_release(server_store(s), x);
}

void stored_delete(server *s, http_req *r, const char *route, str rest) {
  err e = {0};
  buf out;
  if (!store_delete(server_store(s), server_tenant(s), rest)) {
    stored_unknown(rest, "response_id", &e);
    refuse(s, r, route, &e);
    return;
  }
  buf_init(&out, 1024);
  buf_puts(&out, "{\"object\":\"response.deleted\",\"deleted\":true,\"id\":");
  emit_str(rest, &out);
  buf_putc(&out, '}');
  server_answer(s, r, route, "application/json", buf_view(&out));
  buf_fini(&out);
}
