#include "dash/page.h"
#include "dash/chat_page.h"

const page *page_chat(void) {
  static const page p = {
      .body = {(const char *)page_bytes, sizeof page_bytes}, .type = "text/html; charset=utf-8", .etag = page_etag, .policy = page_policy};
  return &p;
}

static bool tag_is(str t, const char *etag) {
  t = str_trim(t);
  if (str_starts(t, STR("W/"))) t = (str){t.p + 2, t.n - 2};
  return str_is(t, etag) || str_is(t, "*");
}

bool page_fresh(const page *p, str list) {
  str head, rest = list;
  while (str_cut(rest, ',', &head, &rest))
    if (tag_is(head, p->etag)) return true;
  return tag_is(rest, p->etag);
}
