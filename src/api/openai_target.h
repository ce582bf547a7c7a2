/* openai_target.h - an OpenAI-compatible server as a client of ours names it: base URL, key, and what its refusals mean.
 * Not a transport (net/http_client.h) and not an answer (openai_reply.h).
 * Ownership: a plain value; what is given in is copied. It holds the key: never print `auth`, print `shown`.
 * Threads: any.
 * Failure: ERR_USAGE with the option to change. */
#ifndef API_OPENAI_TARGET_H
#define API_OPENAI_TARGET_H
#include "base/err.h"

enum { TARGET_URL = 1024, TARGET_KEY = 4096 };

typedef struct openai_target {
  char base[TARGET_URL];      /* what paths are added to: no slash at the end */
  char shown[TARGET_URL];     /* base without user and password, for people */
  char auth[TARGET_KEY + 32]; /* "Authorization: Bearer KEY", or "" */
} openai_target;

/* url with a path is taken as it is (…/v1, …/v1beta/openai); without one, /v1 is added. key may be NULL. */
bool openai_target_set(openai_target *ret, const char *url, const char *key, err *e);
/* The key in that environment variable; var NULL: OPENAI_API_KEY, which may be unset (*ret is then NULL). */
bool openai_target_key(const char *var, const char **ret, err *e);
/* Servers quote the key they refuse: replaces it by *** in a message of theirs. */
void openai_target_scrub(const openai_target *t, char *msg);
err_code openai_status_code(int http); /* 401 is ERR_AUTH, 404 ERR_NOT_FOUND, other 4xx ERR_INPUT ...: gives the exit status */
#endif
