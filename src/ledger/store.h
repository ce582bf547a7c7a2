/* store.h - where rows lie for good and are searched: what every store must do, as a table of functions.
 * Not the journal (which holds rows until a store has them) and not the meaning of columns (row.h).
 * Ownership: a store owns its connection; rows handed to a callback are borrowed for its length.
 * Threads: a store belongs to one thread; several stores over the same database may be open at once.
 * Failure: ERR_BUSY (locked: try again), ERR_IO (full, read-only, gone: try again later), ERR_INPUT (damaged, or a filter that names no column). */
#ifndef LEDGER_STORE_H
#define LEDGER_STORE_H
#include "ledger/row.h"

typedef struct led_store led_store;
typedef bool (*led_row_fn)(void *ctx, const led_row *r); /* false: enough */

/* Which rows: all conditions hold. */
typedef struct led_where {
  str column, op, value; /* op: = != < <= > >= ~ (contains); value as text, NULL with = and != : absent */
} led_where;
typedef struct led_filter {
  int64_t from, until; /* ts in [from, until); LED_NULL: open */
  const led_where *where;
  int n_where;
  uint64_t after; /* rid above this: for a tail that goes on */
  int64_t limit;  /* rows at most; -1: all */
  bool newest;    /* the last `limit` rows; told in ascending order all the same */
} led_filter;

typedef struct led_store_info {
  uint64_t rows, bytes;
  int64_t first, last; /* ts */
  int schema;
} led_store_info;

typedef struct led_store_ops {
  const char *name;
  /* Opens, and with `write` makes it or brings an older schema up to date. Damaged: ERR_INPUT. */
  bool (*open)(const char *path, bool write, led_store **ret, err *e);
  void (*close)(led_store *s);
  /* One transaction. A row whose rid is there already is passed over, so that the same rows may be put twice. */
  bool (*put)(led_store *s, const led_row *rows, int n, err *e);
  bool (*each)(led_store *s, const led_filter *f, led_row_fn fn, void *ctx, err *e);
  /* Deletes rows older than `before` (LED_NULL: none), then the oldest until at most max_bytes are used (0: no bound). */
  bool (*prune)(led_store *s, int64_t before, uint64_t max_bytes, uint64_t *ret_rows, err *e);
  /* Takes the user out of their rows: name, tags and hashes; tokens and money stay. */
  bool (*erase_user)(led_store *s, str user, uint64_t *ret_rows, err *e);
  bool (*info)(led_store *s, led_store_info *ret, err *e);
} led_store_ops;

extern const led_store_ops led_sqlite;
#endif
