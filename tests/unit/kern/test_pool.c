/* test_pool.c - the kernel threads: everyone runs, barriers hold, more threads than cores work, and idle threads use no CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include "kern/pool.h"

enum { MAX_THREADS = 16 };

typedef struct counts {
  int ran[MAX_THREADS];
  int n_threads;
} counts;
static void count(void *arg, int tid, int n) {
  counts *c = arg;
  c->ran[tid]++; /* plain writes: the region's end orders them */
  if (tid == 0) c->n_threads = n;
}

static void every_thread_runs_once_a_region(void **s) {
  (void)s;
  for (int n = 1; n <= 8; n++) {
    pool *p = pool_new(n);
    assert_non_null(p);
    assert_int_equal(pool_threads(p), n);
    counts c = {0};
    for (int i = 0; i < 2000; i++) pool_run(p, count, &c);
    assert_int_equal(c.n_threads, n);
    for (int i = 0; i < MAX_THREADS; i++) assert_int_equal(c.ran[i], i < n ? 2000 : 0);
    pool_free(p);
  }
}

/* Each thread adds one to its own cell, all meet, each checks every other cell, all meet again: a barrier that lets one through early fails. */
typedef struct laps {
  pool *p;
  int laps, cell[MAX_THREADS], bad[MAX_THREADS];
} laps;
static void run_laps(void *arg, int tid, int n) {
  laps *l = arg;
  for (int i = 1; i <= l->laps; i++) {
    l->cell[tid] = i;
    pool_barrier(l->p);
    for (int k = 0; k < n; k++) l->bad[tid] += l->cell[k] != i;
    pool_barrier(l->p);
  }
}

static void barriers_hold(int n, int how_many) {
  laps l = {.p = pool_new(n), .laps = how_many / 2};
  assert_non_null(l.p);
  pool_run(l.p, run_laps, &l);
  for (int i = 0; i < n; i++) {
    assert_int_equal(l.bad[i], 0);
    assert_int_equal(l.cell[i], l.laps);
  }
  pool_free(l.p);
}
static void a_hundred_thousand_barriers(void **s) { (void)s, barriers_hold(2, 100000); }
static void more_threads_than_cores(void **s) { (void)s, barriers_hold(MAX_THREADS, 2000); }

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void idle_is_asleep(void **s) {
  (void)s;
  pool *p = pool_new(4);
  counts c = {0};
  pool_run(p, count, &c);
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* let the spins run out */
  double t0 = cpu_seconds();
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
  assert_true(cpu_seconds() - t0 < 0.003); /* 1 % of a core */
  pool_run(p, count, &c);                  /* and they wake up */
  for (int i = 0; i < 4; i++) assert_int_equal(c.ran[i], 2);
  pool_free(p);
}

/* A thread that comes late finds the others asleep at the barrier, and wakes them. */
static void late(void *arg, int tid, int n) {
  laps *l = arg;
  (void)n;
  for (int i = 0; i < 10; i++) {
    if (tid == i % 3) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    pool_barrier(l->p);
    l->cell[tid]++;
  }
}
static void a_late_thread_wakes_the_others(void **s) {
  (void)s;
  laps l = {.p = pool_new(3)};
  pool_run(l.p, late, &l);
  for (int i = 0; i < 3; i++) assert_int_equal(l.cell[i], 10);
  pool_free(l.p);
}

static void tiles_cover_everything_once(void **s) {
  (void)s;
  for (int n = 0; n < 40; n++)
    for (int threads = 1; threads < 9; threads++) {
      int next = 0;
      for (int tid = 0; tid < threads; tid++) {
        int i0, i1;
        pool_tile(n, tid, threads, &i0, &i1);
        assert_int_equal(i0, next);
        assert_true(i1 >= i0 && i1 - i0 <= n / threads + 1);
        next = i1;
      }
      assert_int_equal(next, n);
    }
}

static void made_and_freed_at_once(void **s) {
  (void)s;
  for (int i = 0; i < 200; i++) pool_free(pool_new(1 + i % 6)); /* before the threads have run at all */
  pool_free(NULL);
  pool *p = pool_new(0); /* none is one: the caller */
  assert_int_equal(pool_threads(p), 1);
  pool_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_thread_runs_once_a_region),
      cmocka_unit_test(a_hundred_thousand_barriers),
      cmocka_unit_test(more_threads_than_cores),
      cmocka_unit_test(idle_is_asleep),
      cmocka_unit_test(a_late_thread_wakes_the_others),
      cmocka_unit_test(tiles_cover_everything_once),
      cmocka_unit_test(made_and_freed_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
