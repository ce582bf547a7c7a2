#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/clock.h"
#include "fetch/store.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/weir-store-XXXXXX", file[64];
static const char HELLO[] = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"; /* printf hello | sha256sum */

static void put(const char *text) {
  FILE *f = fopen(file, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static bool there(const char *suffix) {
  char p[128];
  snprintf(p, sizeof p, "%s%s", file, suffix);
  return access(p, F_OK) == 0;
}

static void test_part_to_file(void **state) {
  (void)state;
  part p;
  err e = {0};
  uint64_t n;
  assert_int_equal(store_look(file, 5, HELLO, &n), STORE_ABSENT);
  assert_true(part_open(&p, file, 5, HELLO, "key", &e));
  assert_true(part_write(&p, "hel", 3, &e));
  part_close(&p);
  assert_int_equal(store_look(file, 5, HELLO, &n), STORE_PARTIAL);
  assert_int_equal(n, 3);
  assert_true(part_open(&p, file, 5, HELLO, "key", &e)); /* the same key: the bytes count, and are hashed */
  assert_int_equal(p.n, 3);
  assert_true(p.resumed);
  assert_false(part_commit(&p, "test", &e));
  assert_non_null(strstr(e.msg, "3 bytes where 5 are expected"));
  assert_false(part_write(&p, "loo", 3, &e));
  assert_non_null(strstr(e.msg, "longer than the 5 bytes"));
  assert_true(part_write(&p, "lo", 2, &e));
  assert_true(part_commit(&p, "test", &e));
  assert_int_equal(store_look(file, 5, HELLO, &n), STORE_VERIFIED);
  assert_int_equal(store_look(file, 5, "", &n), STORE_VERIFIED);
  char other[65];
  memset(other, '0', 64);
  other[64] = 0;
  assert_int_equal(store_look(file, 5, other, &n), STORE_UNVERIFIED); /* another catalogue wants other bytes */
  assert_false(there(".part"));
}

static void test_changes_are_seen(void **state) {
  (void)state;
  uint64_t n;
  err e = {0};
  put("hello");
  assert_int_equal(store_look(file, 5, HELLO, &n), STORE_UNVERIFIED);
  assert_true(store_verify(file, 5, HELLO, &e)); /* reads it and writes the sidecar */
  assert_int_equal(store_look(file, 5, HELLO, &n), STORE_VERIFIED);
  struct stat st;
  assert_int_equal(stat(file, &st), 0);
  put("jello");
  struct timespec t[2] = {st.st_atim, {st.st_mtim.tv_sec + 1, 0}};
  assert_int_equal(utimensat(AT_FDCWD, file, t, 0), 0);
  assert_int_equal(store_look(file, 5, HELLO, &n), STORE_UNVERIFIED);
  assert_false(store_verify(file, 5, HELLO, &e));
  assert_non_null(strstr(e.msg, HELLO));
  put("hello!");
  assert_false(store_verify(file, 5, HELLO, &e));
  assert_non_null(strstr(e.msg, "6 bytes where 5"));
  put("hello");
  assert_false(store_verify(file, 0, "", &e)); /* nothing to compare with */
}

static void test_other_key_starts_anew(void **state) {
  (void)state;
  part p;
  err e = {0};
  assert_true(part_open(&p, file, 0, "", "one", &e));
  assert_true(part_write(&p, "abc", 3, &e));
  assert_true(part_note(&p, "etag", json_string("x"), &e));
  part_close(&p);
  assert_true(part_open(&p, file, 0, "", "one", &e));
  assert_int_equal(p.n, 3);
  assert_string_equal(json_string_value(json_object_get(p.note, "etag")), "x");
  part_close(&p);
  assert_true(part_open(&p, file, 0, "", "two", &e));
  assert_int_equal(p.n, 0);
  assert_null(json_object_get(p.note, "etag"));
  part_close(&p);
}

static void test_cut_and_wrong_hash(void **state) {
  (void)state;
  part p;
  err e = {0};
  assert_true(part_open(&p, file, 5, HELLO, "k", &e));
  assert_true(part_write(&p, "heXXX", 5, &e));
  assert_true(part_cut(&p, 2, &e));
  assert_true(part_write(&p, "llo", 3, &e));
  assert_true(part_commit(&p, "t", &e)); /* the hash follows the cut */
  remove(file);
  assert_true(part_open(&p, file, 5, HELLO, "k", &e));
  assert_true(part_write(&p, "jello", 5, &e));
  assert_false(part_commit(&p, "t", &e));
  assert_int_equal(e.code, ERR_INPUT);
  assert_false(there(""));
  assert_int_equal(p.n, 0);
  assert_true(part_write(&p, "hello", 5, &e)); /* another source may go on with it */
  assert_true(part_commit(&p, "t", &e));
}

static void test_broken_note_is_no_note(void **state) {
  (void)state;
  part p;
  err e = {0};
  char note[OS_PATH];
  assert_true(part_open(&p, file, 5, HELLO, "k", &e));
  assert_true(part_write(&p, "hel", 3, &e));
  snprintf(note, sizeof note, "%s", p.note_path);
  part_close(&p);
  FILE *f = fopen(note, "w");
  fputs("{\"key\":", f);
  fclose(f);
  assert_true(part_open(&p, file, 5, HELLO, "k", &e));
  assert_int_equal(p.n, 0);
  part_close(&p);
}

typedef struct turn {
  _Atomic int inside, most, done;
} turn;

static void *taker(void *arg) {
  turn *t = arg;
  for (int i = 0; i < 5; i++) {
    int fd;
    err e = {0};
    if (!store_lock(file, NULL, &fd, &e)) return NULL;
    int now = atomic_fetch_add(&t->inside, 1) + 1;
    if (now > atomic_load(&t->most)) atomic_store(&t->most, now);
    usleep(1000);
    atomic_fetch_sub(&t->inside, 1);
    store_unlock(file, fd);
  }
  atomic_fetch_add(&t->done, 1);
  return NULL;
}

static void test_lock_excludes(void **state) {
  (void)state;
  turn t = {0};
  pthread_t th[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&th[i], NULL, taker, &t), 0);
  for (int i = 0; i < 3; i++) pthread_join(th[i], NULL);
  assert_int_equal(atomic_load(&t.done), 3);
  assert_int_equal(atomic_load(&t.most), 1);
}

static bool stop_now(void *arg) {
  (void)arg;
  return true;
}
static void busy(void *arg) { ++*(int *)arg; }

static void test_lock_can_be_given_up(void **state) {
  (void)state;
  int a, b, told = 0;
  err e = {0};
  assert_true(store_lock(file, NULL, &a, &e));
  assert_false(store_lock(file, &(store_wait){busy, stop_now, &told}, &b, &e));
  assert_int_equal(e.code, ERR_CANCELLED);
  assert_int_equal(told, 1);
  store_unlock(file, a);
  assert_true(store_lock(file, &(store_wait){busy, stop_now, &told}, &b, &e));
  assert_int_equal(told, 1);
  store_unlock(file, b);
}

static int fresh(void **state) {
  (void)state;
  store_remove_tree(dir);
  return mkdir(dir, 0777);
}

int main(void) {
  if (!mkdtemp(dir)) return 1;
  snprintf(file, sizeof file, "%s/m.gguf", dir);
#define CASE(f) cmocka_unit_test_setup(f, fresh)
  const struct CMUnitTest t[] = {CASE(test_part_to_file), CASE(test_changes_are_seen), CASE(test_other_key_starts_anew),
      CASE(test_cut_and_wrong_hash), CASE(test_broken_note_is_no_note), CASE(test_lock_excludes), CASE(test_lock_can_be_given_up)};
  int rc = cmocka_run_group_tests(t, NULL, NULL);
  store_remove_tree(dir);
  return rc;
}
