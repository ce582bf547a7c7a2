/* ledger.h - the ledger of a running program: a request is opened before it is paid for, its row follows, a thread brings rows to the store.
 * Not the columns (row.h), not a search (store.h).
 * Ownership: owns journal, store and its thread until ledger_close; rows given in are copied.
 * Threads: begin, end, add, stats from any; the store belongs to the writer's thread.
 * Failure: ledger_begin: ERR_BUSY when the journal is full and the ledger refuses then; with LEDGER_DROP it succeeds and the row is counted as
 * dropped. A store that fails delays rows and is tried again; one that is damaged is moved aside under a name that is logged, never deleted. */
#ifndef LEDGER_LEDGER_H
#define LEDGER_LEDGER_H
#include "ledger/store.h"

typedef struct ledger ledger;
typedef enum ledger_full { LEDGER_REFUSE, LEDGER_DROP } ledger_full;

typedef struct ledger_opts {
  const char *path;       /* of the store; the journal lies beside it, PATH.journal */
  uint64_t journal_bytes; /* 0: 64 MiB */
  ledger_full full;
  int64_t keep_ns;    /* rows older than this are pruned; 0: kept */
  uint64_t max_bytes; /* of the store; 0: no bound */
} ledger_opts;

typedef struct ledger_stat {
  uint64_t queued;                /* rows in the journal that the store does not have */
  uint64_t stored, dropped, lost; /* since opening; lost: found open at start */
  uint64_t open;
  bool failing; /* the store did not take the last batch */
  char why[200];
} ledger_stat;

bool ledger_open(const ledger_opts *o, ledger **ret, err *e);
void ledger_close(ledger *l); /* brings what it can to the store; the rest stays in the journal */
/* The opening record: what is known, and in cost_total what it may cost at most. Call before the first byte goes to a backend. */
bool ledger_begin(ledger *l, const led_row *r, uint64_t *ret_handle, err *e);
void ledger_end(ledger *l, uint64_t handle, const led_row *r);
bool ledger_add(ledger *l, const led_row *r, err *e); /* a row that needs no opening: what a client measured */
void ledger_stats(ledger *l, ledger_stat *ret);
bool ledger_flush(ledger *l, int64_t timeout_ns); /* true: every row ended so far is in the store */
#endif
