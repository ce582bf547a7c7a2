/* store.h - answers that are kept so that a conversation can go on from them (previous_response_id), within a bound of number and bytes.
 * Not a ledger and not a cache: nothing is written to disk, nothing outlives the process, and an answer that was never kept is simply unknown.
 * Ownership: owns copies of what is put in. An entry is handed out with a reference, which store_release gives back.
 * Threads: the loop's.
 * Failure: store_put returns false where an answer alone is over the bound or memory is short: it is then not kept, and that is all.
 *
 * An entry holds the items of its own turn and refers to the turn before, so that a long conversation is kept once. At the bound the entry used
 * longest ago goes; what later turns refer to stays in memory, and counts, until the last of them has gone. Every entry belongs to a tenant (the API
 * key it was made with), and others do not see it. */
#ifndef SERVE_STORE_H
#define SERVE_STORE_H
#include "base/buf.h"
#include "base/err.h"

enum { STORE_COUNT = 4096, STORE_BYTES = 64 << 20, STORE_ID = 80 };

typedef struct store store;
typedef struct store_entry store_entry;

typedef struct store_turn {
  str id;            /* "resp_...", shorter than STORE_ID */
  str body;          /* the answer as it was given */
  str input, output; /* JSON arrays of items */
} store_turn;

store *store_new(int max_count, uint64_t max_bytes); /* 0: the defaults above. NULL: out of memory */
void store_free(store *s);                           /* no entry may be out */
/* before: the entry it goes on from, or NULL. An entry of the same id and tenant is replaced. */
bool store_put(store *s, uint64_t tenant, const store_turn *t, store_entry *before);
store_entry *store_find(store *s, uint64_t tenant, str id); /* NULL: there is none */
void store_release(store *s, store_entry *e);               /* NULL is allowed */
bool store_delete(store *s, uint64_t tenant, str id);       /* false: there is none */
str store_body(const store_entry *e);
str store_input(const store_entry *e);
/* The items of all turns up to this one, oldest first, as a JSON array. */
bool store_history(const store_entry *e, buf *out, err *er);
int store_count(const store *s);      /* entries that can be found */
uint64_t store_bytes(const store *s); /* all that is held */
#endif
