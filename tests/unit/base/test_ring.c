#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/ring.h"
#include <pthread.h>
#include <stdatomic.h>

static int item[8];

static void test_bound_and_order(void **state) {
  (void)state;
  ring *r = ring_new(3);
  assert_null(ring_pop(r));
  for (int round = 0; round < 5; round++) { /* past the wrap */
    for (int i = 0; i < 3; i++) assert_true(ring_push(r, &item[i]));
    assert_false(ring_push(r, &item[3]));
    assert_int_equal(ring_len(r), 3);
    for (int i = 0; i < 3; i++) assert_ptr_equal(ring_pop(r), &item[i]);
  }
  assert_true(ring_push(r, &item[0]));
  ring_close(r);
  assert_false(ring_push(r, &item[1]));
  assert_ptr_equal(ring_wait(r, -1), &item[0]); /* what was in it still comes out */
  assert_null(ring_wait(r, -1));
  ring_free(r);
}

static void test_wait_times_out(void **state) {
  (void)state;
  ring *r = ring_new(1);
  int64_t t = clock_now();
  assert_null(ring_wait(r, 20000000));
  assert_true(clock_now() - t >= 20000000);
  ring_free(r);
}

enum { EACH = 20000 };
typedef struct shared {
  ring *r;
  _Atomic long sum, n;
} shared;

static void *producer(void *arg) {
  shared *s = arg;
  for (intptr_t i = 1; i <= EACH; i++)
    while (!ring_push(s->r, (void *)i)) {}
  return NULL;
}

static void *consumer(void *arg) {
  shared *s = arg;
  for (void *p; (p = ring_wait(s->r, -1));) {
    atomic_fetch_add(&s->sum, (long)(intptr_t)p);
    atomic_fetch_add(&s->n, 1);
  }
  return NULL;
}

static void test_many_threads(void **state) {
  (void)state;
  shared s = {.r = ring_new(64)};
  pthread_t p[2], c[2];
  for (int i = 0; i < 2; i++) pthread_create(&c[i], NULL, consumer, &s);
  for (int i = 0; i < 2; i++) pthread_create(&p[i], NULL, producer, &s);
  for (int i = 0; i < 2; i++) pthread_join(p[i], NULL);
  ring_close(s.r);
  for (int i = 0; i < 2; i++) pthread_join(c[i], NULL);
  assert_int_equal(atomic_load(&s.n), 2 * EACH);
  assert_int_equal(atomic_load(&s.sum), 2L * EACH * (EACH + 1) / 2);
  ring_free(s.r);
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_bound_and_order), cmocka_unit_test(test_wait_times_out), cmocka_unit_test(test_many_threads)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
