#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/log.h"
#include "ledger/ledger.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLUSH INT64_C(10000000000)
static char dir[400], path[512];

static int fresh(void **state) {
  (void)state;
  const char *tmp = getenv("TMPDIR");
  snprintf(dir, sizeof dir, "%s/ledger-XXXXXX", tmp ? tmp : "/tmp");
  if (!mkdtemp(dir)) return -1;
  snprintf(path, sizeof path, "%s/ledger.db", dir);
  return 0;
}

static int clean(void **state) {
  (void)state;
  char p[1024];
  struct dirent *d;
  DIR *all = opendir(dir);
  while (all && (d = readdir(all))) {
    snprintf(p, sizeof p, "%s/%s", dir, d->d_name);
    if (d->d_name[0] != '.') unlink(p);
  }
  if (all) closedir(all);
  return rmdir(dir);
}

static ledger *opened(ledger_opts o) {
  ledger *l = NULL;
  err e = {0};
  o.path = path;
  if (!ledger_open(&o, &l, &e)) fail_msg("%s", e.msg);
  return l;
}

static led_row sample(int64_t i) {
  static char id[32];
  led_row r;
  led_row_init(&r);
  snprintf(id, sizeof id, "req-%lld", (long long)i);
  r.id = str_c(id);
  r.ts = i * 1000;
  r.feature = i % 3 ? STR("search") : STR("chat");
  r.user = i % 2 ? STR("ann") : STR("bob");
  r.outcome = STR("ok");
  r.output = i;
  r.cost_total = 1000000007 * i;
  r.score = 0.5;
  return r;
}

static void put(ledger *l, int64_t i) {
  led_row r = sample(i), open = r;
  uint64_t h;
  err e = {0};
  open.outcome = (str){NULL, 0};
  open.cost_total = 7;
  if (!ledger_begin(l, &open, &h, &e)) fail_msg("%s", e.msg);
  ledger_end(l, h, &r);
}

typedef struct sum {
  int64_t n, output, cost, first, last;
  uint64_t rid;
  char outcome[16];
} sum;

static bool add(void *ctx, const led_row *r) {
  sum *s = ctx;
  assert_true(r->rid > s->rid);
  s->rid = r->rid;
  if (!s->n++) s->first = r->ts;
  s->last = r->ts;
  s->output += led_given(r->output) ? r->output : 0;
  s->cost += r->cost_total;
  snprintf(s->outcome, sizeof s->outcome, "%.*s", (int)r->outcome.n, r->outcome.p);
  return true;
}

static sum all_of(led_filter f) {
  led_store *s = NULL;
  sum r = {0};
  err e = {0};
  if (!led_sqlite.open(path, false, &s, &e)) fail_msg("%s", e.msg);
  if (!led_sqlite.each(s, &f, add, &r, &e)) fail_msg("%s", e.msg);
  led_sqlite.close(s);
  return r;
}
static const led_filter everything = {LED_NULL, LED_NULL, NULL, 0, 0, -1, false};

static void test_rows_arrive(void **state) {
  (void)state;
  ledger *l = opened((ledger_opts){0});
  for (int64_t i = 1; i <= 5000; i++) put(l, i);
  assert_true(ledger_flush(l, FLUSH));
  sum s = all_of(everything);
  assert_int_equal(s.n, 5000);
  assert_int_equal(s.output, 5000 * 5001 / 2);
  assert_int_equal(s.cost, INT64_C(1000000007) * 5000 * 5001 / 2);
  led_where w[] = {{STR("feature"), STR("="), STR("chat")}, {STR("output"), STR("<="), STR("300")}};
  led_filter f = everything;
  f.where = w;
  f.n_where = 2;
  assert_int_equal(all_of(f).n, 100);
  f.n_where = 0;
  f.newest = true;
  f.limit = 10;
  s = all_of(f);
  assert_true(s.n == 10 && s.first == 4991 * 1000 && s.last == 5000 * 1000);
  ledger_close(l);
}

static void test_filter_refuses(void **state) {
  (void)state;
  ledger *l = opened((ledger_opts){0});
  put(l, 1);
  assert_true(ledger_flush(l, FLUSH));
  ledger_close(l);
  led_store *s = NULL;
  err e = {0};
  sum r = {0};
  led_filter f = everything;
  led_where bad[] = {{STR("1; DROP TABLE row"), STR("="), STR("x")}, {STR("output"), STR("OR 1"), STR("x")}};
  f.n_where = 1;
  assert_true(led_sqlite.open(path, false, &s, &e));
  for (int i = 0; i < 2; i++) {
    f.where = &bad[i];
    assert_false(led_sqlite.each(s, &f, add, &r, &e));
    assert_int_equal(e.code, ERR_USAGE);
  }
  led_sqlite.close(s);
}

static void test_killed_and_lost(void **state) {
  (void)state;
  pid_t pid = fork();
  if (pid == 0) {
    log_setup(LOG_OFF, false);
    ledger *l = opened((ledger_opts){0});
    uint64_t h;
    for (int64_t i = 1; i <= 100; i++) put(l, i);
    led_row r = sample(101);
    r.cost_total = 77;
    ledger_begin(l, &r, &h, NULL);
    kill(getpid(), SIGKILL);
  }
  int status;
  waitpid(pid, &status, 0);
  assert_true(WIFSIGNALED(status));
  ledger *l = opened((ledger_opts){0});
  ledger_stat st;
  ledger_stats(l, &st);
  assert_int_equal(st.lost, 1);
  assert_true(ledger_flush(l, FLUSH));
  sum s = all_of(everything);
  assert_int_equal(s.n, 101);
  assert_string_equal(s.outcome, "lost");
  assert_int_equal(s.cost, INT64_C(1000000007) * 100 * 101 / 2 + 77);
  ledger_close(l);
}

/* Something else holds the store: rows wait in the journal, at its bound requests are refused or dropped and counted; nothing else is lost. */
static void locked(ledger_full full) {
  err e = {0};
  ledger *l = opened((ledger_opts){.journal_bytes = 256 << 10, .full = full});
  put(l, 1);
  assert_true(ledger_flush(l, FLUSH));
  int told[2];
  char x;
  assert_int_equal(pipe(told), 0);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(told[1], 1);
    execlp("python3", "python3", "-c",
        "import sqlite3,sys,time\nd=sqlite3.connect(sys.argv[1],isolation_level=None);d.execute('BEGIN "
        "IMMEDIATE');print('x',flush=True);time.sleep(60)",
        path, (char *)NULL);
    _exit(127);
  }
  close(told[1]);
  assert_int_equal(read(told[0], &x, 1), 1); /* it has the lock */
  close(told[0]);
  int64_t taken = 1;
  uint64_t h;
  led_row r;
  for (int64_t i = 2; i < 20000; i++) {
    r = sample(i);
    if (!ledger_begin(l, &r, &h, &e)) break;
    ledger_end(l, h, &r);
    taken++;
    ledger_stat st;
    ledger_stats(l, &st);
    if (st.dropped) break;
  }
  ledger_stat st;
  ledger_stats(l, &st);
  if (full == LEDGER_REFUSE) assert_int_equal(e.code, ERR_BUSY);
  else {
    assert_true(st.dropped == 1);
    taken--;
  }
  assert_true(taken > 500);
  for (int i = 0; i < 500 && !st.failing; i++) {
    usleep(10000);
    ledger_stats(l, &st);
  }
  assert_true(st.failing && strstr(st.why, "locked"));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  assert_true(ledger_flush(l, FLUSH));
  ledger_stats(l, &st);
  assert_false(st.failing);
  assert_int_equal(all_of(everything).n, taken);
  ledger_close(l);
}
static void test_locked_refuses(void **state) {
  (void)state;
  locked(LEDGER_REFUSE);
}
static void test_locked_drops(void **state) {
  (void)state;
  locked(LEDGER_DROP);
}

static void test_damaged_is_moved_aside(void **state) {
  (void)state;
  int fd = open(path, O_CREAT | O_WRONLY, 0600), found = 0;
  for (int i = 0; i < 1000; i++) assert_int_equal(write(fd, "this is no database ", 20), 20);
  close(fd);
  ledger *l = opened((ledger_opts){0});
  put(l, 1);
  assert_true(ledger_flush(l, FLUSH));
  ledger_close(l);
  assert_int_equal(all_of(everything).n, 1);
  DIR *d = opendir(dir);
  for (struct dirent *x; (x = readdir(d));) found += strstr(x->d_name, ".damaged-") != NULL;
  closedir(d);
  assert_int_equal(found, 1);
}

static void test_prune_and_erase(void **state) {
  (void)state;
  ledger *l = opened((ledger_opts){0});
  led_store *s = NULL;
  err e = {0};
  uint64_t n = 0;
  for (int64_t i = 1; i <= 3000; i++) put(l, i);
  assert_true(ledger_flush(l, FLUSH));
  ledger_close(l);
  assert_true(led_sqlite.open(path, true, &s, &e));
  assert_true(led_sqlite.prune(s, 1001 * 1000, 0, &n, &e));
  assert_int_equal(n, 1000);
  assert_true(led_sqlite.erase_user(s, STR("ann"), &n, &e));
  assert_int_equal(n, 1000);
  led_store_info i;
  assert_true(led_sqlite.info(s, &i, &e));
  assert_true(i.rows == 2000 && i.first == 1001 * 1000 && i.last == 3000 * 1000);
  uint64_t half = i.bytes / 2;
  assert_true(led_sqlite.prune(s, LED_NULL, half, &n, &e));
  assert_true(led_sqlite.info(s, &i, &e));
  assert_true(i.bytes <= half && i.rows > 100 && i.rows < 1500 && i.last == 3000 * 1000);
  led_sqlite.close(s);
  sum left = all_of(everything);
  assert_int_equal(left.n, i.rows);
  /* a name that was erased is nowhere in the file; one that was not, is */
  char cmd[1200];
  snprintf(cmd, sizeof cmd, "grep -q ann %s", path);
  assert_int_not_equal(system(cmd), 0);
  snprintf(cmd, sizeof cmd, "grep -q bob %s", path);
  assert_int_equal(system(cmd), 0);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, fresh, clean)
  const struct CMUnitTest tests[] = {T(test_rows_arrive), T(test_filter_refuses), T(test_killed_and_lost), T(test_locked_refuses),
      T(test_locked_drops), T(test_damaged_is_moved_aside), T(test_prune_and_erase)};
  log_setup(LOG_OFF, false);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
