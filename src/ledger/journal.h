/* journal.h - a bounded file that holds what was begun and what ended until a store has it: what survives kill -9.
 * Not a store: nothing is searched. A ring of records in a file mapped MAP_SHARED, allocated whole when it is made, so that writing it can neither
 * fail nor grow. Ownership: owns file and map; payloads of journal_next are borrowed until journal_done passes them. Threads: begin, end, add from
 * any; next and done from one reader; a mutex held for a copy. Failure: begin and add: ERR_BUSY when the bound is reached. end never fails: begin
 * kept its room. A record that was being written when the process died is not there; one that is damaged ends the reading at opening, and what lies
 * behind it is counted in `damaged`. */
#ifndef LEDGER_JOURNAL_H
#define LEDGER_JOURNAL_H
#include "base/err.h"
#include "base/str.h"

typedef struct journal journal;

enum { JOURNAL_RECORD_MAX = 16384, JOURNAL_MIN = 256 << 10 }; /* a payload; a file */

typedef enum journal_kind { JOURNAL_OPEN = 1, JOURNAL_ROW = 2 } journal_kind;

typedef struct journal_rec {
  journal_kind kind;
  uint64_t seq; /* of its beginning */
  str payload;
} journal_rec;

/* Opens or makes the file. bytes: its size when it is made; a file of another size keeps its own. Another process has it: ERR_BUSY. */
bool journal_open(const char *path, uint64_t bytes, journal **ret, err *e);
void journal_close(journal *j); /* what is in it stays for the next opening */

/* A request begins: its payload is in the file when this returns, and room for its row is kept. *ret is the handle for journal_end. */
bool journal_begin(journal *j, str payload, uint64_t *ret, err *e);
void journal_end(journal *j, uint64_t handle, str payload);
/* A row without a beginning: what a load generator measured. */
bool journal_add(journal *j, str payload, err *e);

/* The next row behind *pos (0: from the oldest), for the one reader. False: there is none yet. */
bool journal_next(journal *j, uint64_t *pos, journal_rec *ret);
/* Rows before pos are in the store: their room is given back. */
void journal_done(journal *j, uint64_t pos);
/* What the last process began and never ended: told right after opening, in order. fn ends each with journal_end(j, handle, its row). */
typedef void (*journal_lost_fn)(void *ctx, uint64_t handle, str payload);
void journal_lost(journal *j, journal_lost_fn fn, void *ctx);
bool journal_sync(journal *j, err *e); /* to the disk, against a power cut */

typedef struct journal_stat {
  uint64_t bytes, used, reserved, rows, open, damaged; /* rows: ended, not yet done */
} journal_stat;
void journal_stats(journal *j, journal_stat *ret);
#endif
