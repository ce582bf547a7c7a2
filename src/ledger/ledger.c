#include "ledger/ledger.h"
#include "base/clock.h"
#include "base/log.h"
#include "ledger/journal.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH = 2000, PATH = 4096 };
#define TICK_NS INT64_C(100000000)     /* how long rows may wait for company, and dirty pages for the disk */
#define RETRY_NS INT64_C(1000000000)   /* after a store that failed */
#define PRUNE_NS INT64_C(600000000000) /* between two prunings */
#define DROPPED UINT64_MAX             /* the handle of a request that found the journal full */

struct ledger {
  char path[PATH];
  ledger_opts opts;
  const led_store_ops *ops;
  led_store *store; /* NULL: not open at the moment */
  journal *journal;
  pthread_t thread;
  bool started;
  pthread_mutex_t mu;
  pthread_cond_t wake, moved; /* wake: there is something to do, or stop; moved: a batch was stored */
  bool stop, hurry;           /* hurry: someone waits in ledger_flush */
  bool failing;
  char why[200];
  _Atomic uint64_t stored, dropped, lost;
  uint64_t pos; /* the writer's place in the journal */
  led_row *rows;
};

/* ---- the store, on the writer's thread ---- */

static void tell(ledger *l, const err *e) {
  pthread_mutex_lock(&l->mu);
  bool news = !l->failing || strcmp(l->why, e->msg) != 0;
  l->failing = true;
  snprintf(l->why, sizeof l->why, "%.199s", e->msg);
  pthread_mutex_unlock(&l->mu);
  if (news) log_warn("ledger waits", kv_s("path", l->path), kv_s("why", e->msg));
}

static void tell_good(ledger *l) {
  pthread_mutex_lock(&l->mu);
  bool news = l->failing;
  l->failing = false;
  l->why[0] = 0;
  pthread_mutex_unlock(&l->mu);
  if (news) log_info("ledger goes on", kv_s("path", l->path));
}

static void shut(ledger *l) {
  if (l->store) l->ops->close(l->store);
  l->store = NULL;
}

/* A damaged store is kept for whoever can mend it; a new one takes its place. */
static void move_aside(ledger *l, const err *why) {
  static const char *const parts[] = {"", "-wal", "-shm"};
  char from[PATH + 8], to[PATH + 64];
  int64_t now = clock_unix();
  for (int i = 0; i < 3; i++) {
    snprintf(from, sizeof from, "%s%s", l->path, parts[i]);
    snprintf(to, sizeof to, "%s.damaged-%lld%s", l->path, (long long)now, parts[i]);
    if (rename(from, to) != 0 && errno != ENOENT) log_error("ledger cannot be moved aside", kv_s("path", from), kv_s("error", strerror(errno)));
  }
  snprintf(to, sizeof to, "%s.damaged-%lld", l->path, (long long)now);
  log_error("ledger was damaged and is moved aside", kv_s("path", l->path), kv_s("to", to), kv_s("why", why->msg));
}

static bool ready(ledger *l, err *e) {
  if (l->store) return true;
  if (l->ops->open(l->path, true, &l->store, e)) return true;
  if (e->code != ERR_INPUT) return false;
  move_aside(l, e);
  return l->ops->open(l->path, true, &l->store, e);
}

/* The next rows of the journal, as rows. One that cannot be read is told and left behind. */
static int collect(ledger *l, uint64_t *pos) {
  journal_rec rec;
  int n = 0;
  while (n < BATCH && journal_next(l->journal, pos, &rec)) {
    err e = {0};
    if (!led_unpack(rec.payload, &l->rows[n], &e)) {
      log_error("ledger row cannot be read", kv_s("error", e.msg));
      continue;
    }
    l->rows[n++].rid = rec.seq;
  }
  return n;
}

/* True: something was stored and there may be more. */
static bool move_batch(ledger *l) {
  uint64_t pos = l->pos;
  err e = {0};
  int n = collect(l, &pos);
  if (!n) {
    l->pos = pos;
    journal_done(l->journal, pos);
    return false;
  }
  if (!ready(l, &e) || !l->ops->put(l->store, l->rows, n, &e)) {
    tell(l, &e);
    if (e.code != ERR_BUSY) shut(l);
    return false;
  }
  l->pos = pos;
  journal_done(l->journal, pos);
  atomic_fetch_add(&l->stored, (uint64_t)n);
  tell_good(l);
  return true;
}

static void prune(ledger *l) {
  uint64_t n = 0;
  err e = {0};
  if (!l->store || (!l->opts.keep_ns && !l->opts.max_bytes)) return;
  int64_t before = l->opts.keep_ns ? clock_unix_ns() - l->opts.keep_ns : LED_NULL;
  if (!l->ops->prune(l->store, before, l->opts.max_bytes, &n, &e)) log_warn("ledger cannot be pruned", kv_s("error", e.msg));
  else if (n) log_info("ledger pruned", kv_i("rows", (int64_t)n));
}

static void nap(ledger *l, int64_t ns) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  ns += t.tv_nsec;
  t.tv_sec += ns / 1000000000;
  t.tv_nsec = ns % 1000000000;
  pthread_mutex_lock(&l->mu);
  if (!l->stop && !l->hurry) pthread_cond_timedwait(&l->wake, &l->mu, &t);
  l->hurry = false;
  pthread_mutex_unlock(&l->mu);
}

static bool idle(ledger *l) {
  journal_stat s;
  journal_stats(l->journal, &s);
  return !s.rows;
}

/* Asleep without an end when there is nothing: the first row wakes it. */
static void wait_for_rows(ledger *l) {
  pthread_mutex_lock(&l->mu);
  while (!l->stop && !l->hurry && idle(l)) pthread_cond_wait(&l->wake, &l->mu);
  pthread_mutex_unlock(&l->mu);
}

static void *writer(void *arg) {
  ledger *l = arg;
  int64_t pruned = 0;
  for (bool stop = false; !stop;) {
    wait_for_rows(l);
    pthread_mutex_lock(&l->mu);
    stop = l->stop;
    pthread_mutex_unlock(&l->mu);
    while (move_batch(l)) continue;
    pthread_mutex_lock(&l->mu);
    bool failing = l->failing;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->mu);
    if (!failing && clock_now() - pruned > PRUNE_NS) {
      prune(l);
      pruned = clock_now();
    }
    if (!stop) nap(l, failing ? RETRY_NS : TICK_NS);
  }
  return NULL;
}

/* ---- life ---- */

static void on_lost(void *ctx, uint64_t handle, str payload) {
  ledger *l = ctx;
  led_row r;
  err e = {0};
  if (!led_unpack(payload, &r, &e)) led_row_init(&r);
  r.outcome = STR("lost");
  ledger_end(l, handle, &r);
  atomic_fetch_add(&l->lost, 1);
}

static bool start(ledger *l, err *e) {
  journal_stat s;
  char path[PATH + 16];
  snprintf(path, sizeof path, "%s.journal", l->path);
  if (!journal_open(path, l->opts.journal_bytes ? l->opts.journal_bytes : UINT64_C(64) << 20, &l->journal, e)) return false;
  journal_stats(l->journal, &s);
  if (s.damaged) log_error("ledger journal is damaged at its end", kv_s("path", path), kv_i("bytes_left_out", (int64_t)s.damaged));
  journal_lost(l->journal, on_lost, l);
  if (atomic_load(&l->lost)) log_warn("requests were open when the last process ended", kv_i("lost", (int64_t)atomic_load(&l->lost)));
  if (pthread_create(&l->thread, NULL, writer, l) != 0) return err_set(e, ERR_NOMEM, "cannot start the ledger's thread");
  l->started = true;
  return true;
}

bool ledger_open(const ledger_opts *o, ledger **ret, err *e) {
  ledger *l = calloc(1, sizeof *l);
  pthread_condattr_t mono;
  if (!l || !(l->rows = malloc(sizeof *l->rows * BATCH))) {
    free(l);
    return err_set(e, ERR_NOMEM, "out of memory for the ledger");
  }
  l->opts = *o;
  l->ops = &led_sqlite;
  pthread_condattr_init(&mono);
  pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
  pthread_mutex_init(&l->mu, NULL);
  pthread_cond_init(&l->wake, &mono);
  pthread_cond_init(&l->moved, &mono);
  pthread_condattr_destroy(&mono);
  bool ok = (size_t)snprintf(l->path, sizeof l->path, "%s", o->path) < sizeof l->path || err_set(e, ERR_USAGE, "the ledger's path is too long");
  if (ok && start(l, e)) {
    *ret = l;
    return true;
  }
  ledger_close(l);
  return false;
}

void ledger_close(ledger *l) {
  if (!l) return;
  if (l->started) {
    pthread_mutex_lock(&l->mu);
    l->stop = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mu);
    pthread_join(l->thread, NULL);
  }
  shut(l);
  journal_close(l->journal);
  pthread_cond_destroy(&l->wake);
  pthread_cond_destroy(&l->moved);
  pthread_mutex_destroy(&l->mu);
  free(l->rows);
  free(l);
}

/* ---- rows in, from any thread ---- */

static void wake(ledger *l) {
  pthread_mutex_lock(&l->mu);
  pthread_cond_signal(&l->wake);
  pthread_mutex_unlock(&l->mu);
}

bool ledger_begin(ledger *l, const led_row *r, uint64_t *ret_handle, err *e) {
  buf b;
  err why = {0};
  buf_init(&b, LED_PACK_MAX);
  led_pack(r, &b);
  bool ok = !b.failed ? journal_begin(l->journal, buf_view(&b), ret_handle, &why) : err_set(&why, ERR_NOMEM, "out of memory for the ledger");
  buf_fini(&b);
  if (ok) return true;
  if (l->opts.full == LEDGER_DROP) {
    *ret_handle = DROPPED;
    return true;
  }
  if (e) *e = why;
  return false;
}

void ledger_end(ledger *l, uint64_t handle, const led_row *r) {
  buf b;
  if (handle == DROPPED) {
    atomic_fetch_add(&l->dropped, 1);
    return;
  }
  buf_init(&b, LED_PACK_MAX);
  led_pack(r, &b);
  journal_end(l->journal, handle, buf_view(&b));
  buf_fini(&b);
  wake(l);
}

bool ledger_add(ledger *l, const led_row *r, err *e) {
  buf b;
  err why = {0};
  buf_init(&b, LED_PACK_MAX);
  led_pack(r, &b);
  bool ok = !b.failed ? journal_add(l->journal, buf_view(&b), &why) : err_set(&why, ERR_NOMEM, "out of memory for the ledger");
  buf_fini(&b);
  if (ok) wake(l);
  else if (l->opts.full == LEDGER_DROP) atomic_fetch_add(&l->dropped, 1);
  else if (e) *e = why;
  return ok || l->opts.full == LEDGER_DROP;
}

void ledger_stats(ledger *l, ledger_stat *ret) {
  journal_stat s;
  journal_stats(l->journal, &s);
  *ret = (ledger_stat){
      .queued = s.rows, .stored = atomic_load(&l->stored), .dropped = atomic_load(&l->dropped), .lost = atomic_load(&l->lost), .open = s.open};
  pthread_mutex_lock(&l->mu);
  ret->failing = l->failing;
  snprintf(ret->why, sizeof ret->why, "%s", l->why);
  pthread_mutex_unlock(&l->mu);
}

bool ledger_flush(ledger *l, int64_t timeout_ns) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  timeout_ns += t.tv_nsec;
  t.tv_sec += timeout_ns / 1000000000;
  t.tv_nsec = timeout_ns % 1000000000;
  bool done = false;
  pthread_mutex_lock(&l->mu);
  for (int rc = 0; !(done = idle(l)) && rc == 0;) {
    l->hurry = true;
    pthread_cond_signal(&l->wake);
    rc = pthread_cond_timedwait(&l->moved, &l->mu, &t);
  }
  pthread_mutex_unlock(&l->mu);
  return done;
}
