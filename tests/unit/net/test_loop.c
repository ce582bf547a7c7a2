/* Posting from threads, timers, signals, stopping. */
#include "base/clock.h"
#include "net/loop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { THREADS = 4, POSTS = 20000 };

typedef struct item {
  int thread, seq;
} item;
static struct {
  loop *l;
  int next[THREADS], n;
} st;
static item items[THREADS][POSTS];

static void take_item(void *arg) {
  item *i = arg;
  assert_int_equal(i->seq, st.next[i->thread]); /* in order of posting, thread by thread */
  st.next[i->thread]++;
  if (++st.n == THREADS * POSTS) loop_stop(st.l);
}

static void *poster(void *arg) {
  int t = (int)(intptr_t)arg;
  for (int i = 0; i < POSTS; i++) {
    items[t][i] = (item){t, i};
    while (!loop_post(st.l, take_item, &items[t][i])) usleep(100); /* the bound was hit */
  }
  return NULL;
}

static void test_posts(void **state) {
  (void)state;
  st.l = loop_new();
  pthread_t th[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&th[i], NULL, poster, (void *)(intptr_t)i);
  assert_true(loop_run(st.l));
  for (int i = 0; i < THREADS; i++) pthread_join(th[i], NULL);
  assert_int_equal(st.n, THREADS * POSTS);
  loop_free(st.l);
}

static void count(void *arg) { ++*(int *)arg; }

static void test_bound(void **state) {
  (void)state;
  loop *l = loop_new();
  int n = 0;
  for (int i = 0; i < LOOP_POSTS; i++) assert_true(loop_post(l, count, &n));
  assert_false(loop_post(l, count, &n));
  loop_stop(l); /* before the run: what was posted first still runs */
  assert_true(loop_run(l));
  assert_int_equal(n, LOOP_POSTS);
  assert_true(loop_post(l, count, &n));
  loop_free(l); /* runs what is left */
  assert_int_equal(n, LOOP_POSTS + 1);
}

static int chain_left;
static void chain(void *arg) {
  if (chain_left-- > 0) loop_post(arg, chain, arg);
}
static void stop_it(void *arg) { loop_stop(arg); }

/* A closure that always posts again must not keep timers from firing. */
static void test_repost(void **state) {
  (void)state;
  loop *l = loop_new();
  chain_left = 1 << 30;
  loop_post(l, chain, l);
  assert_non_null(loop_after(l, 20 * 1000000, stop_it, l));
  assert_true(loop_run(l));
  assert_true(chain_left > 0);
  chain_left = 0;
  loop_free(l);
}

static struct {
  loop *l;
  int order[4], n;
  int64_t at[4];
  loop_timer *victim;
} tm;
static void note(int which) {
  tm.at[tm.n] = clock_now();
  tm.order[tm.n++] = which;
}
static void fire_10(void *arg) {
  (void)arg;
  note(10);
  loop_timer_cancel(tm.victim);
}
static void fire_20(void *arg) {
  (void)arg;
  note(20);
}
static void fire_30(void *arg) {
  (void)arg;
  note(30);
  usleep(15000); /* a timer that is set behind a long callback is not early for it */
  note(31);
  loop_after(tm.l, 10 * 1000000, stop_it, tm.l);
}

static void test_timers(void **state) {
  (void)state;
  tm.l = loop_new();
  int64_t t0 = clock_now();
  loop_after(tm.l, 30 * 1000000, fire_30, NULL);
  loop_after(tm.l, 10 * 1000000, fire_10, NULL);
  tm.victim = loop_after(tm.l, 20 * 1000000, fire_20, NULL);
  loop_after(tm.l, 3600 * INT64_C(1000000000), fire_20, NULL); /* freed with the loop */
  assert_true(loop_run(tm.l));
  int64_t end = clock_now();
  assert_int_equal(tm.n, 3);
  assert_int_equal(tm.order[0], 10);
  assert_int_equal(tm.order[1], 30);
  assert_true(tm.at[0] - t0 >= 10 * 1000000);
  assert_true(tm.at[1] - t0 >= 30 * 1000000);
  assert_true(end - tm.at[2] >= 10 * 1000000);
  loop_timer_cancel(NULL);
  loop_free(tm.l);
}

static void test_signal(void **state) {
  (void)state;
  loop *l = loop_new();
  int n = 0;
  assert_true(loop_on_signal(l, SIGUSR1, count, &n));
  assert_true(loop_on_signal(l, SIGUSR2, stop_it, l));
  raise(SIGUSR1);
  raise(SIGUSR2);
  assert_true(loop_run(l));
  assert_int_equal(n, 1);
  loop_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_posts), cmocka_unit_test(test_bound), cmocka_unit_test(test_repost),
      cmocka_unit_test(test_timers), cmocka_unit_test(test_signal)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
