/* page.h - the page to talk to, as GET / serves it: web/chat.html with its style and script inside, embedded at build.
 * Not a template and not a file server: one page, the same bytes for everyone.
 * Ownership: constants.
 * Threads: any.
 * Failure: none. */
#ifndef DASH_PAGE_H
#define DASH_PAGE_H
#include "base/str.h"

typedef struct page {
  str body;
  const char *type, *etag;
  const char *policy; /* Content-Security-Policy: its own script and style by hash, and requests to where it came from */
} page;

const page *page_chat(void);
/* Whether an If-None-Match header names the page: a list of tags, weak ones included, or "*". */
bool page_fresh(const page *p, str if_none_match);
#endif
