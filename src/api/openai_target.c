#include "api/openai_target.h"
#include "base/str.h"
#include <stdio.h>
#include <stdlib.h>

static const char BEARER[] = "Authorization: Bearer ";

static bool set_url(openai_target *t, const char *url, err *e) {
  str u = str_trim(str_c(url));
  const char *p = str_starts(u, STR("http://")) ? u.p + 7 : str_starts(u, STR("https://")) ? u.p + 8 : NULL;
  if (!p || p == u.p + u.n) return err_param(e, ERR_USAGE, "url", "'%.200s' is not a base URL: give http://HOST[:PORT][/PATH] or https://...", url);
  for (const char *c = u.p; c < u.p + u.n; c++) {
    if ((unsigned char)*c <= ' ' || *c == 0x7f) return err_param(e, ERR_USAGE, "url", "the URL holds white space or a control character");
    if (*c == '?' || *c == '#') return err_param(e, ERR_USAGE, "url", "a base URL has no '%c': paths such as /chat/completions are added to it", *c);
  }
  while (u.n && u.p[u.n - 1] == '/') u.n--;
  /* The whole address of the endpoint is what documentation shows and what people paste. */
  if (str_ends(u, STR("/chat/completions"))) u.n -= strlen("/chat/completions");
  else if (str_ends(u, STR("/completions"))) u.n -= strlen("/completions");
  str rest = {p, (size_t)(u.p + u.n - p)};
  ptrdiff_t path = str_find(rest, STR("/")), at = -1;
  size_t host = path < 0 ? rest.n : (size_t)path;
  for (size_t i = 0; i < host; i++)
    if (rest.p[i] == '@') at = (ptrdiff_t)i;
  const char *v1 = path < 0 ? "/v1" : "";
  int n = snprintf(t->base, sizeof t->base, "%.*s%s", (int)u.n, u.p, v1);
  if (n < 0 || (size_t)n >= sizeof t->base) return err_param(e, ERR_USAGE, "url", "the URL is longer than %d bytes", TARGET_URL - 1);
  snprintf(t->shown, sizeof t->shown, "%.*s%.*s%s", (int)(p - u.p), u.p, (int)(rest.n - (size_t)(at + 1)), rest.p + at + 1, v1);
  return true;
}

bool openai_target_set(openai_target *ret, const char *url, const char *key, err *e) {
  openai_target t = {.auth = ""};
  if (!set_url(&t, url, e)) return false;
  str k = str_trim(str_c(key));
  for (size_t i = 0; i < k.n; i++)
    if ((unsigned char)k.p[i] < ' ' || k.p[i] == 0x7f)
      return err_param(e, ERR_USAGE, "key-env", "the API key holds a control character or a line break");
  if (k.n > TARGET_KEY) return err_param(e, ERR_USAGE, "key-env", "the API key is longer than %d bytes", TARGET_KEY);
  if (k.n) snprintf(t.auth, sizeof t.auth, "%s%.*s", BEARER, (int)k.n, k.p);
  *ret = t;
  return true;
}

bool openai_target_key(const char *var, const char **ret, err *e) {
  const char *v = getenv(var ? var : "OPENAI_API_KEY");
  if (!v && var) return err_param(e, ERR_USAGE, "key-env", "--key-env: the environment has no variable %.100s", var);
  *ret = v;
  return true;
}

void openai_target_scrub(const openai_target *t, char *msg) {
  str key = str_c(t->auth);
  size_t head = sizeof BEARER - 1;
  if (key.n < head + 4) return; /* a word of three letters is no secret, and would blot out half the message */
  key.p += head;
  key.n -= head;
  for (ptrdiff_t at; (at = str_find(str_c(msg), key)) >= 0;) {
    char *p = msg + at;
    memmove(p + 3, p + key.n, strlen(p + key.n) + 1);
    memcpy(p, "***", 3);
  }
}

err_code openai_status_code(int http) {
  switch (http) {
  case 401:
  case 403: return ERR_AUTH;
  case 404: return ERR_NOT_FOUND;
  case 413: return ERR_TOO_LARGE;
  case 429: return ERR_LIMIT;
  case 503: return ERR_BUSY;
  default: return http >= 400 && http < 500 ? ERR_INPUT : ERR_NET;
  }
}
