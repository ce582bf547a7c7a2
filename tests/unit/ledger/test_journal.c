#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/rng.h"
#include "ledger/journal.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[512];

static void fresh(void) {
  const char *tmp = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/journal-%d", tmp ? tmp : "/tmp", (int)getpid());
  unlink(path);
}

static journal *opened(uint64_t bytes) {
  journal *j = NULL;
  err e = {0};
  if (!journal_open(path, bytes, &j, &e)) fail_msg("%s", e.msg);
  return j;
}

static str text(char out[64], const char *what, uint64_t n) { return (str){out, (size_t)snprintf(out, 64, "%s %llu", what, (unsigned long long)n)}; }

static void test_order_and_reopening(void **state) {
  (void)state;
  char t[64];
  err e = {0};
  uint64_t h[10], pos = 0;
  journal_rec r;
  fresh();
  journal *j = opened(0);
  for (uint64_t i = 0; i < 10; i++) assert_true(journal_begin(j, text(t, "open", i), &h[i], &e));
  for (uint64_t i = 0; i < 9; i++) journal_end(j, h[9 - i], text(t, "row", 9 - i)); /* request 0 stays open */
  journal_close(j);
  j = opened(0);
  journal_stat s;
  journal_stats(j, &s);
  assert_int_equal(s.rows, 9);
  assert_int_equal(s.open, 1);
  assert_int_equal(s.damaged, 0);
  for (uint64_t i = 0, last = 0; i < 9; i++) {
    assert_true(journal_next(j, &pos, &r));
    assert_true(str_eq(r.payload, text(t, "row", 9 - i)));
    assert_true(!last || r.seq < last); /* numbered by their beginning */
    last = r.seq;
  }
  assert_false(journal_next(j, &pos, &r));
  journal_done(j, pos);
  journal_stats(j, &s);
  assert_int_equal(s.rows, 0);
  journal_close(j);
  unlink(path);
}

static void on_lost(void *ctx, uint64_t handle, str payload) {
  char t[64];
  assert_true(str_eq(payload, text(t, "open", 0)));
  journal_end(ctx, handle, STR("lost"));
}

static void test_lost(void **state) {
  (void)state;
  char t[64];
  uint64_t h, pos = 0;
  journal_rec r;
  err e = {0};
  fresh();
  journal *j = opened(0);
  assert_true(journal_begin(j, text(t, "open", 0), &h, &e));
  journal_close(j);
  for (int again = 0; again < 2; again++) { /* told until it has ended, then never more */
    j = opened(0);
    journal_lost(j, again ? NULL : on_lost, j);
    if (!again) journal_close(j);
  }
  assert_true(journal_next(j, &pos, &r) && str_is(r.payload, "lost"));
  assert_false(journal_next(j, &pos, &r));
  journal_close(j);
  unlink(path);
}

/* One request stays open for ever while a thousand times the ring goes by; the bound holds, and says so. */
static void test_bound_and_an_old_request(void **state) {
  (void)state;
  char t[64];
  uint64_t old, h, pos = 0, n = 0;
  journal_rec r;
  err e = {0};
  fresh();
  journal *j = opened(JOURNAL_MIN);
  assert_true(journal_begin(j, STR("the old one"), &old, &e));
  for (uint64_t i = 0; i < 20000; i++) {
    if (!journal_begin(j, text(t, "open", i), &h, &e)) fail_msg("%llu: %s", (unsigned long long)i, e.msg);
    journal_end(j, h, text(t, "row", i));
    while (journal_next(j, &pos, &r)) assert_true(str_eq(r.payload, text(t, "row", n++)));
    journal_done(j, pos);
  }
  journal_end(j, old, STR("at last"));
  assert_true(journal_next(j, &pos, &r) && str_is(r.payload, "at last"));
  journal_done(j, pos);
  /* nobody reads: it fills, refuses, and every row whose beginning was taken still fits */
  static char big[JOURNAL_RECORD_MAX];
  uint64_t handles[64];
  int taken = 0;
  while (journal_begin(j, (str){big, sizeof big}, &handles[taken], &e)) taken++;
  assert_true(taken >= 4 && taken < 64 && e.code == ERR_BUSY);
  assert_false(journal_add(j, (str){big, sizeof big}, &e));
  for (int i = 0; i < taken; i++) journal_end(j, handles[i], (str){big, sizeof big});
  journal_stat s;
  journal_stats(j, &s);
  assert_true(s.rows == (uint64_t)taken && s.used <= s.bytes);
  for (n = 0; journal_next(j, &pos, &r); n++) assert_int_equal(r.payload.n, sizeof big);
  assert_int_equal(n, taken);
  journal_done(j, pos);
  assert_true(journal_begin(j, STR("room again"), &h, &e));
  journal_close(j);
  unlink(path);
}

/* A child writes and is killed at a random moment; what it told us of through a pipe must be there. */
static void test_killed(void **state) {
  (void)state;
  rng g = rng_new(20261201);
  for (int round = 0; round < 60; round++) {
    int p[2];
    fresh();
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
      journal *j = NULL;
      err e = {0};
      char t[64];
      if (!journal_open(path, 1 << 20, &j, &e)) _exit(1);
      for (uint64_t i = 0, h;; i++) {
        if (!journal_begin(j, text(t, "open", i), &h, &e)) _exit(2);
        if (i % 7) journal_end(j, h, text(t, "row", i));
        if (write(p[1], &i, sizeof i) != sizeof i) _exit(3);
        if (j && i % 50 == 49) usleep(100);
      }
    }
    usleep((useconds_t)(1000 + rng_below(&g, 4000)));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(p[1]);
    uint64_t last = 0, told = 0;
    while (read(p[0], &last, sizeof last) == sizeof last) told++;
    close(p[0]);
    if (!told) continue;
    journal *j = opened(0);
    journal_stat s;
    journal_stats(j, &s);
    uint64_t open = last / 7 + 1, rows = told - open;
    assert_int_equal(s.damaged, 0);
    assert_true(s.rows >= rows && s.rows <= rows + 1);
    assert_true(s.open >= open && s.open <= open + 1);
    journal_close(j);
  }
  unlink(path);
}

static void test_damage_ends_the_reading(void **state) {
  (void)state;
  char t[64];
  uint64_t pos = 0, n = 0;
  journal_rec r;
  err e = {0};
  fresh();
  journal *j = opened(JOURNAL_MIN);
  for (uint64_t i = 0; i < 100; i++) assert_true(journal_add(j, text(t, "row", i), &e));
  journal_close(j);
  int fd = open(path, O_RDWR);
  assert_int_equal(pwrite(fd, "X", 1, 4096 + 48 * 60 + 41), 1); /* somewhere in the middle */
  close(fd);
  j = opened(0);
  journal_stat s;
  journal_stats(j, &s);
  assert_true(s.damaged > 0 && s.rows < 100 && s.rows > 20);
  while (journal_next(j, &pos, &r)) assert_true(str_eq(r.payload, text(t, "row", n++)));
  assert_int_equal(n, s.rows);
  assert_true(journal_add(j, STR("goes on"), &e));
  journal_close(j);
  fd = open(path, O_RDWR | O_TRUNC);
  assert_int_equal(write(fd, "not a journal", 13), 13);
  close(fd);
  assert_false(journal_open(path, 0, &j, &e));
  assert_int_equal(e.code, ERR_INPUT);
  unlink(path);
}

static void test_one_process(void **state) {
  (void)state;
  err e = {0};
  journal *second = NULL;
  fresh();
  journal *j = opened(0);
  assert_false(journal_open(path, 0, &second, &e));
  assert_int_equal(e.code, ERR_BUSY);
  journal_close(j);
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_order_and_reopening), cmocka_unit_test(test_lost),
      cmocka_unit_test(test_bound_and_an_old_request), cmocka_unit_test(test_killed), cmocka_unit_test(test_damage_ends_the_reading),
      cmocka_unit_test(test_one_process)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
