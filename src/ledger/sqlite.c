/* Tables: `row`, one column for each of row.h; `word`, the texts that WORD columns hold as numbers; a view `ledger` that shows both as one table, for
 * people with a SQL prompt. Statements are made from the list of columns, so a new column needs a line in row.h and nothing here: opening for writing
 * adds it. */
#include "ledger/store.h"
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

enum { SCHEMA = 1, BUSY_MS = 250, WORDS_MAX = 1 << 16 };

typedef struct word {
  struct word *next;
  int64_t id;
  size_t n;
  char text[];
} word;

struct led_store {
  sqlite3 *db;
  sqlite3_stmt *put, *word_put, *word_get;
  word *words[1024]; /* texts seen, by hash: a cache, dropped whole when it grows over WORDS_MAX */
  int n_words;
  bool doubtful; /* a transaction was rolled back: the cache may hold numbers that are not there */
};

static bool failed(sqlite3 *db, int rc, const char *what, err *e) {
  const char *why = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  switch (rc & 0xff) {
  case SQLITE_BUSY:
  case SQLITE_LOCKED: return err_set(e, ERR_BUSY, "%s: the ledger is locked by another program (%s)", what, why);
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB: return err_set(e, ERR_INPUT, "%s: the ledger is damaged (%s)", what, why);
  case SQLITE_NOMEM: return err_set(e, ERR_NOMEM, "%s: out of memory", what);
  case SQLITE_FULL: return err_set(e, ERR_IO, "%s: the ledger's disk is full", what);
  case SQLITE_READONLY: return err_set(e, ERR_IO, "%s: the ledger is read-only (%s)", what, why);
  default: return err_set(e, ERR_IO, "%s: %s", what, why);
  }
}

static bool run(led_store *s, const char *sql, const char *what, err *e) {
  int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
  return rc == SQLITE_OK || failed(s->db, rc, what, e);
}

static bool prepare(led_store *s, const char *sql, sqlite3_stmt **ret, err *e) {
  int rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL);
  return rc == SQLITE_OK || failed(s->db, rc, "preparing a query", e);
}

static bool number(led_store *s, const char *sql, int64_t *ret, err *e) {
  sqlite3_stmt *q = NULL;
  if (!prepare(s, sql, &q, e)) return false;
  int rc = sqlite3_step(q);
  if (rc == SQLITE_ROW) *ret = sqlite3_column_int64(q, 0);
  sqlite3_finalize(q);
  return rc == SQLITE_ROW || rc == SQLITE_DONE || failed(s->db, rc, "reading the ledger", e);
}

/* ---- schema ---- */

static const char *sql_type(const led_col *c) { return c->type == LED_TEXT ? "TEXT" : c->type == LED_REAL ? "REAL" : "INTEGER"; }

static void view_sql(buf *b) {
  int n;
  const led_col *c = led_cols(&n);
  buf_puts(b, "DROP VIEW IF EXISTS ledger; CREATE VIEW ledger AS SELECT rid");
  for (int i = 0; i < n; i++)
    if (c[i].type == LED_WORD) buf_printf(b, ", (SELECT text FROM word WHERE word.id = row.%s) AS %s", c[i].name, c[i].name);
    else buf_printf(b, ", row.%s", c[i].name);
  buf_puts(b, " FROM row;");
}

static bool has_column(led_store *s, const char *name, bool *ret, err *e) {
  sqlite3_stmt *q = NULL;
  if (!prepare(s, "SELECT 1 FROM pragma_table_info('row') WHERE name = ?", &q, e)) return false;
  sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
  int rc = sqlite3_step(q);
  sqlite3_finalize(q);
  *ret = rc == SQLITE_ROW;
  return rc == SQLITE_ROW || rc == SQLITE_DONE || failed(s->db, rc, "reading the ledger's columns", e);
}

static bool make_tables(led_store *s, err *e) {
  int n;
  const led_col *c = led_cols(&n);
  if (!run(s,
          "CREATE TABLE IF NOT EXISTS word(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);"
          "CREATE TABLE IF NOT EXISTS row(rid INTEGER PRIMARY KEY);",
          "making the ledger's tables", e))
    return false;
  for (int i = 0; i < n; i++) {
    bool there = false;
    char sql[128];
    if (!has_column(s, c[i].name, &there, e)) return false;
    if (there) continue;
    sqlite3_snprintf(sizeof sql, sql, "ALTER TABLE row ADD COLUMN %s %s", c[i].name, sql_type(&c[i]));
    if (!run(s, sql, "adding a column to the ledger", e)) return false;
  }
  buf b;
  buf_init(&b, 1 << 20);
  /* the two narrow indexes queries need: by time, and of those who may ask to be forgotten */
  buf_puts(&b, "CREATE INDEX IF NOT EXISTS row_ts ON row(ts); CREATE INDEX IF NOT EXISTS row_user ON row(user) WHERE user IS NOT NULL;"
               "CREATE INDEX IF NOT EXISTS row_trace ON row(trace_id) WHERE trace_id IS NOT NULL;");
  view_sql(&b);
  buf_printf(&b, "PRAGMA user_version = %d;", SCHEMA);
  bool ok = !b.failed ? run(s, b.p, "making the ledger's tables", e) : err_set(e, ERR_NOMEM, "out of memory making the ledger's tables");
  buf_fini(&b);
  return ok;
}

static bool check_schema(led_store *s, bool write, err *e) {
  int64_t v = 0;
  if (!number(s, "PRAGMA user_version", &v, e)) return false;
  if (v > SCHEMA)
    return err_set(
        e, ERR_UNSUPPORTED, "the ledger's schema is version %lld, this weir knows %d: use the newer weir, or another --ledger", (long long)v, SCHEMA);
  if (!write) return v == SCHEMA || err_set(e, ERR_INPUT, "this is no ledger yet: nothing has been written to it");
  return run(s, "BEGIN IMMEDIATE", "locking the ledger", e) && make_tables(s, e) && run(s, "COMMIT", "making the ledger's tables", e);
}

static bool put_sql(led_store *s, err *e) {
  int n;
  const led_col *c = led_cols(&n);
  buf b;
  buf_init(&b, 1 << 16);
  buf_puts(&b, "INSERT OR IGNORE INTO row(rid");
  for (int i = 0; i < n; i++) buf_printf(&b, ",%s", c[i].name);
  buf_puts(&b, ") VALUES(?");
  for (int i = 0; i < n; i++) buf_puts(&b, ",?");
  buf_puts(&b, ")");
  bool ok = !b.failed ? prepare(s, b.p, &s->put, e) : err_set(e, ERR_NOMEM, "out of memory");
  buf_fini(&b);
  return ok && prepare(s, "INSERT OR IGNORE INTO word(text) VALUES(?)", &s->word_put, e) &&
         prepare(s, "SELECT id FROM word WHERE text = ?", &s->word_get, e);
}

static void store_close(led_store *s);

static bool store_open(const char *path, bool write, led_store **ret, err *e) {
  led_store *s = calloc(1, sizeof *s);
  if (!s) return err_set(e, ERR_NOMEM, "out of memory for the ledger");
  int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  int rc = sqlite3_open_v2(path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
  bool ok = rc == SQLITE_OK || failed(s->db, rc, "opening", e);
  if (ok) sqlite3_busy_timeout(s->db, BUSY_MS);
  if (ok && write) ok = run(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA auto_vacuum = INCREMENTAL;", "opening", e);
  ok = ok && check_schema(s, write, e) && (!write || put_sql(s, e));
  if (!ok) {
    store_close(s);
    return err_prefix(e, "ledger %s", path);
  }
  *ret = s;
  return true;
}

static void words_drop(led_store *s) {
  for (int i = 0; i < 1024; i++)
    for (word *w = s->words[i], *next; w; w = next) {
      next = w->next;
      free(w);
    }
  memset(s->words, 0, sizeof s->words);
  s->n_words = 0;
}

static void store_close(led_store *s) {
  if (!s) return;
  sqlite3_finalize(s->put);
  sqlite3_finalize(s->word_put);
  sqlite3_finalize(s->word_get);
  sqlite3_close(s->db);
  words_drop(s);
  free(s);
}

/* ---- writing ---- */

static uint64_t word_hash(str t) {
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < t.n; i++) h = (h ^ (uint8_t)t.p[i]) * 1099511628211u;
  return h ^ h >> 32;
}

static bool word_learn(led_store *s, str t, int64_t *ret, err *e) {
  sqlite3_stmt *steps[] = {s->word_put, s->word_get};
  for (int i = 0; i < 2; i++) {
    sqlite3_bind_text(steps[i], 1, t.p, (int)t.n, SQLITE_STATIC);
    int rc = sqlite3_step(steps[i]);
    if (rc == SQLITE_ROW) *ret = sqlite3_column_int64(steps[i], 0);
    sqlite3_reset(steps[i]);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) return failed(s->db, rc, "writing a word to the ledger", e);
  }
  return true;
}

static bool word_id(led_store *s, str t, int64_t *ret, err *e) {
  word **at = &s->words[word_hash(t) % 1024];
  for (word *w = *at; w; w = w->next)
    if (str_eq((str){w->text, w->n}, t)) {
      *ret = w->id;
      return true;
    }
  if (!word_learn(s, t, ret, e)) return false;
  if (s->n_words >= WORDS_MAX) words_drop(s);
  word *w = malloc(sizeof *w + t.n);
  if (!w) return true;
  *w = (word){.next = s->words[word_hash(t) % 1024], .id = *ret, .n = t.n};
  memcpy(w->text, t.p, t.n);
  s->words[word_hash(t) % 1024] = w;
  s->n_words++;
  return true;
}

static bool bind(led_store *s, int at, const led_col *c, const void *v, err *e) {
  int64_t id = 0;
  const str *t = v;
  switch (c->type) {
  case LED_WORD:
    if (!t->p) return sqlite3_bind_null(s->put, at) == SQLITE_OK;
    return word_id(s, *t, &id, e) && sqlite3_bind_int64(s->put, at, id) == SQLITE_OK;
  case LED_TEXT: return sqlite3_bind_text(s->put, at, t->p, (int)t->n, SQLITE_STATIC) == SQLITE_OK; /* NULL binds as NULL */
  case LED_INT:
    return (*(const int64_t *)v == LED_NULL ? sqlite3_bind_null(s->put, at) : sqlite3_bind_int64(s->put, at, *(const int64_t *)v)) == SQLITE_OK;
  case LED_REAL: return sqlite3_bind_double(s->put, at, *(const double *)v) == SQLITE_OK; /* NaN binds as NULL */
  }
  return true;
}

static bool put_one(led_store *s, const led_row *r, err *e) {
  int n;
  const led_col *c = led_cols(&n);
  sqlite3_bind_int64(s->put, 1, (sqlite3_int64)r->rid);
  for (int i = 0; i < n; i++)
    if (!bind(s, i + 2, &c[i], led_at(r, &c[i]), e)) return e && e->code ? false : err_set(e, ERR_NOMEM, "out of memory writing to the ledger");
  int rc = sqlite3_step(s->put);
  sqlite3_reset(s->put);
  return rc == SQLITE_DONE || failed(s->db, rc, "writing to the ledger", e);
}

static bool store_put(led_store *s, const led_row *rows, int n, err *e) {
  err own = {0};
  if (s->doubtful) words_drop(s);
  s->doubtful = false;
  bool ok = run(s, "BEGIN IMMEDIATE", "writing to the ledger", &own);
  bool begun = ok;
  for (int i = 0; ok && i < n; i++) ok = put_one(s, &rows[i], &own);
  ok = ok && run(s, "COMMIT", "writing to the ledger", &own);
  if (ok) return true;
  if (begun) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
  s->doubtful = true;
  if (e) *e = own;
  return false;
}

/* ---- reading ---- */

static bool where_sql(const led_where *w, buf *b, err *e) {
  static const char *const ops[] = {"=", "!=", "<", "<=", ">", ">="};
  const led_col *c = led_col_find(w->column);
  bool contains = str_is(w->op, "~"), known = contains;
  char op[4];
  if (!c) return err_set(e, ERR_USAGE, "the ledger has no column '%.*s'", (int)(w->column.n < 40 ? w->column.n : 40), w->column.p);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) known |= str_is(w->op, ops[i]);
  if (!known) return err_set(e, ERR_USAGE, "'%.*s' is no comparison: use = != < <= > >= or ~", (int)(w->op.n < 10 ? w->op.n : 10), w->op.p);
  snprintf(op, sizeof op, "%.*s", (int)w->op.n, w->op.p);
  if (!w->value.p) buf_printf(b, " AND %s IS %sNULL", c->name, str_is(w->op, "!=") ? "NOT " : "");
  else if (c->type == LED_WORD)
    buf_printf(
        b, contains ? " AND %s IN (SELECT id FROM word WHERE instr(text, ?))" : " AND %s IN (SELECT id FROM word WHERE text %s ?)", c->name, op);
  else if (contains) buf_printf(b, " AND instr(%s, ?)", c->name);
  else buf_printf(b, " AND %s %s ?", c->name, op);
  return true;
}

static bool filter_sql(const led_filter *f, buf *b, err *e) {
  int n;
  const led_col *c = led_cols(&n);
  buf_puts(b, "SELECT rid");
  for (int i = 0; i < n; i++)
    if (c[i].type == LED_WORD) buf_printf(b, ",(SELECT text FROM word WHERE word.id=row.%s)", c[i].name);
    else buf_printf(b, ",%s", c[i].name);
  buf_puts(b, " FROM row WHERE rid > ?");
  if (f->from != LED_NULL) buf_puts(b, " AND ts >= ?");
  if (f->until != LED_NULL) buf_puts(b, " AND ts < ?");
  for (int i = 0; i < f->n_where; i++)
    if (!where_sql(&f->where[i], b, e)) return false;
  buf_printf(b, " ORDER BY rid %s LIMIT ?", f->newest ? "DESC" : "ASC");
  return !b->failed || err_set(e, ERR_NOMEM, "out of memory making a query");
}

static void bind_filter(sqlite3_stmt *q, const led_filter *f) {
  int at = 1;
  sqlite3_bind_int64(q, at++, (sqlite3_int64)f->after);
  if (f->from != LED_NULL) sqlite3_bind_int64(q, at++, f->from);
  if (f->until != LED_NULL) sqlite3_bind_int64(q, at++, f->until);
  for (int i = 0; i < f->n_where; i++) {
    const led_where *w = &f->where[i];
    const led_col *c = led_col_find(w->column);
    int64_t v;
    double d;
    if (!w->value.p) continue;
    if (c->type == LED_INT && str_i64(w->value, &v)) sqlite3_bind_int64(q, at++, v);
    else if ((c->type == LED_INT || c->type == LED_REAL) && str_f64(w->value, &d)) sqlite3_bind_double(q, at++, d);
    else sqlite3_bind_text(q, at++, w->value.p, (int)w->value.n, SQLITE_STATIC);
  }
  sqlite3_bind_int64(q, at, f->limit);
}

static void read_row(sqlite3_stmt *q, led_row *r) {
  int n;
  const led_col *c = led_cols(&n);
  led_row_init(r);
  r->rid = (uint64_t)sqlite3_column_int64(q, 0);
  for (int i = 0; i < n; i++) {
    void *at = (char *)r + c[i].off;
    if (sqlite3_column_type(q, i + 1) == SQLITE_NULL) continue;
    if (c[i].type == LED_INT) *(int64_t *)at = sqlite3_column_int64(q, i + 1);
    else if (c[i].type == LED_REAL) *(double *)at = sqlite3_column_double(q, i + 1);
    else *(str *)at = (str){(const char *)sqlite3_column_text(q, i + 1), (size_t)sqlite3_column_bytes(q, i + 1)};
  }
}

static bool store_each(led_store *s, const led_filter *f, led_row_fn fn, void *ctx, err *e) {
  sqlite3_stmt *q = NULL;
  led_row r;
  buf b;
  int rc = SQLITE_OK;
  buf_init(&b, 1 << 20);
  if (f->newest) buf_puts(&b, "SELECT * FROM (");
  bool ok = filter_sql(f, &b, e);
  if (f->newest) buf_puts(&b, ") ORDER BY rid");
  ok = ok && prepare(s, b.p, &q, e);
  if (ok) bind_filter(q, f);
  while (ok && (rc = sqlite3_step(q)) == SQLITE_ROW) {
    read_row(q, &r);
    if (!fn(ctx, &r)) break;
  }
  if (ok && rc != SQLITE_ROW && rc != SQLITE_DONE) ok = failed(s->db, rc, "reading the ledger", e);
  sqlite3_finalize(q);
  buf_fini(&b);
  return ok;
}

/* ---- keeping ---- */

static bool store_info(led_store *s, led_store_info *ret, err *e) {
  int64_t rows = 0, pages = 0, free_pages = 0, size = 0, first = LED_NULL, last = LED_NULL, v = 0;
  if (!number(s, "SELECT count(*) FROM row", &rows, e) || !number(s, "PRAGMA page_count", &pages, e) ||
      !number(s, "PRAGMA freelist_count", &free_pages, e) || !number(s, "PRAGMA page_size", &size, e) || !number(s, "PRAGMA user_version", &v, e))
    return false;
  if (rows && (!number(s, "SELECT min(ts) FROM row", &first, e) || !number(s, "SELECT max(ts) FROM row", &last, e))) return false;
  *ret = (led_store_info){(uint64_t)rows, (uint64_t)((pages - free_pages) * size), first, last, (int)v};
  return true;
}

static bool delete_some(led_store *s, const char *cond, int64_t arg, uint64_t *sum, err *e) {
  sqlite3_stmt *q = NULL;
  char sql[160];
  sqlite3_snprintf(sizeof sql, sql, "DELETE FROM row WHERE rid IN (SELECT rid FROM row WHERE %s)", cond);
  if (!prepare(s, sql, &q, e)) return false;
  sqlite3_bind_int64(q, 1, arg);
  int rc = sqlite3_step(q);
  *sum += rc == SQLITE_DONE ? (uint64_t)sqlite3_changes(s->db) : 0;
  sqlite3_finalize(q);
  return rc == SQLITE_DONE || failed(s->db, rc, "deleting old rows", e);
}

/* In bites, so that a writer beside gets its turn. */
static bool store_prune(led_store *s, int64_t before, uint64_t max_bytes, uint64_t *ret_rows, err *e) {
  enum { BITE = 10000 };
  uint64_t sum = 0, was;
  do {
    was = sum;
    if (before != LED_NULL && !delete_some(s, "ts < ?1 ORDER BY ts LIMIT 10000", before, &sum, e)) return false;
  } while (sum - was == BITE);
  for (led_store_info i; max_bytes;) {
    if (!store_info(s, &i, e)) return false;
    if (i.bytes <= max_bytes || !i.rows) break;
    int64_t share = (int64_t)((double)i.rows * (double)(i.bytes - max_bytes) / (double)i.bytes) + 1;
    if (!delete_some(s, "1 ORDER BY ts LIMIT ?1", share < BITE ? share : BITE, &sum, e)) return false;
  }
  *ret_rows = sum;
  return run(s, "PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);", "giving the ledger's room back", e);
}

static bool store_erase(led_store *s, str user, uint64_t *ret_rows, err *e) {
  sqlite3_stmt *q = NULL;
  if (!run(s, "PRAGMA secure_delete = ON", "erasing a user", e)) return false;
  if (!prepare(s, "UPDATE row SET user = NULL, tags = NULL, prompt_hash = NULL, prefix_hash = NULL, hash_ids = NULL WHERE user = ?", &q, e))
    return false;
  sqlite3_bind_text(q, 1, user.p, (int)user.n, SQLITE_STATIC);
  int rc = sqlite3_step(q);
  *ret_rows = rc == SQLITE_DONE ? (uint64_t)sqlite3_changes(s->db) : 0;
  sqlite3_finalize(q);
  if (rc != SQLITE_DONE) return failed(s->db, rc, "erasing a user", e);
  return run(s, "PRAGMA wal_checkpoint(TRUNCATE)", "erasing a user", e); /* the old pages leave the WAL too */
}

const led_store_ops led_sqlite = {"sqlite", store_open, store_close, store_put, store_each, store_prune, store_erase, store_info};
