/* keys.h - the keys a client may show: one per line of a file, compared in constant time.
 * Not tenants, limits or budgets: those are the gateway's; not a password store.
 * Ownership: keys owns digests only; the texts are forgotten after reading.
 * Threads: immutable after keys_load; any thread may check.
 * Failure: ERR_INPUT naming file and line (empty file, key too short or with blanks inside), ERR_NOT_FOUND or ERR_IO when it cannot be read. */
#ifndef SERVE_KEYS_H
#define SERVE_KEYS_H
#include "base/err.h"
#include "base/str.h"

typedef struct keys keys;
bool keys_load(const char *path, keys **ret, err *e); /* blank lines and lines that begin with # are skipped */
void keys_free(keys *k);
int keys_count(const keys *k);
/* The value of an Authorization header ("Bearer KEY") or of x-api-key; either may be absent. */
bool keys_check(const keys *k, str authorization, str x_api_key, err *e);
/* A number for the key that was shown, the same for the same key and no other's; it does not tell the key. */
uint64_t keys_tenant(str authorization, str x_api_key);
#endif
