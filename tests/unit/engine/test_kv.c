/* Pages and the prefix index: each rule by name, then 100,000 random operations against a model that keeps prefixes as text and the free list as an
 * array, compared in every detail after every one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/rng.h"
#include "engine/kv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, LONGEST = 12 }; /* tokens a page, pages a table */

static const kern_kv shape = {.type = KERN_KV_F16, .n_layer = 1, .n_kv = 1, .head_dim = 2, .page = PAGE};
static const uint8_t root[32] = "a model's root", other_root[32] = "another model's root";

static kv_pool pool_of(int n_pages) {
  kv_pool k;
  err e;
  if (!kv_init(&k, &shape, (uint64_t)n_pages * kern_kv_page_bytes(&shape), root, false, &e)) fail_msg("%s", e.msg);
  assert_int_equal(k.n_pages, n_pages);
  return k;
}

static kv_table table_of(const kv_pool *k, const char *salt) {
  kv_table t;
  assert_true(kv_table_init(&t, LONGEST * PAGE, k, salt));
  return t;
}

/* Tokens of a prefix written as letters, a letter a page: pages of the same letter hold the same tokens. */
static int spell(const char *pages, int32_t *v) {
  int n = (int)strlen(pages) * PAGE;
  for (int i = 0; i < n; i++) v[i] = pages[i / PAGE] * 1000 + i % PAGE;
  return n;
}

/* Computes what `pages` spells, publishes and gives back. */
static void compute(kv_pool *k, const char *pages, const char *salt) {
  int32_t v[LONGEST * PAGE];
  kv_table t = table_of(k, salt);
  int n = spell(pages, v);
  kv_match(k, &t, v, n);
  assert_true(kv_grow(k, &t, n));
  kv_publish(k, &t, v, n);
  kv_release(k, &t);
  kv_table_fini(&t);
}

/* Tokens of `pages` that hit with `more` tokens behind them; the pages are looked at only, but become the most recently used. */
static int hits(kv_pool *k, const char *pages, const char *salt, int more) {
  int32_t v[LONGEST * PAGE + PAGE] = {0};
  kv_table t = table_of(k, salt);
  int n = kv_match(k, &t, v, spell(pages, v) + more);
  kv_release(k, &t);
  kv_table_fini(&t);
  return n;
}

static void test_hit(void **st) {
  (void)st;
  kv_pool k = pool_of(8);
  assert_int_equal(hits(&k, "abc", NULL, 1), 0);
  compute(&k, "abc", NULL);
  assert_int_equal(hits(&k, "abc", NULL, 1), 3 * PAGE);
  assert_int_equal(hits(&k, "abd", NULL, 1), 2 * PAGE);
  assert_int_equal(hits(&k, "b", NULL, 1), 0);   /* the same page elsewhere is another page: */
  assert_int_equal(hits(&k, "bac", NULL, 1), 0); /* its key is the whole way to it */
  assert_int_equal(hits(&k, "acb", NULL, 1), PAGE);
  kv_fini(&k);
}

/* At most n - 1 tokens hit: one is left to compute. */
static void test_cap(void **st) {
  (void)st;
  kv_pool k = pool_of(8);
  compute(&k, "abc", NULL);
  assert_int_equal(hits(&k, "abc", NULL, 0), 2 * PAGE);
  assert_int_equal(hits(&k, "abc", NULL, 1), 3 * PAGE);
  assert_int_equal(hits(&k, "abc", NULL, 1 - 3 * PAGE), 0);
  assert_int_equal(hits(&k, "abc", NULL, 1 - 2 * PAGE), PAGE);
  assert_int_equal(hits(&k, "abc", NULL, -2 * PAGE), 0);
  kv_fini(&k);
}

static void test_salt(void **st) {
  (void)st;
  kv_pool k = pool_of(8);
  compute(&k, "ab", "tenant one");
  assert_int_equal(hits(&k, "ab", NULL, 1), 0);
  assert_int_equal(hits(&k, "ab", "tenant two", 1), 0);
  assert_int_equal(hits(&k, "ab", "", 1), 0);
  assert_int_equal(hits(&k, "ab", "tenant one", 1), 2 * PAGE);
  compute(&k, "ab", NULL);
  assert_int_equal(hits(&k, "ab", "", 1), 2 * PAGE); /* an empty salt is the common one */
  memcpy(k.root, other_root, sizeof other_root);     /* another model, another page size: nothing of before is found */
  assert_int_equal(hits(&k, "ab", NULL, 1), 0);
  kv_fini(&k);
}

/* Taking the head of the free list is eviction: the least recently used goes first, of one prefix its tail first. */
static void test_lru(void **st) {
  (void)st;
  kv_pool k = pool_of(6);
  compute(&k, "ab", NULL);
  compute(&k, "cd", NULL);
  compute(&k, "ef", NULL);
  assert_int_equal(hits(&k, "ab", NULL, 1), 2 * PAGE); /* used: now "cd" is the oldest */
  uint64_t before = k.evictions;
  compute(&k, "x", NULL);
  assert_int_equal(k.evictions - before, 1);
  assert_int_equal(hits(&k, "cd", NULL, 1), PAGE); /* its tail went */
  compute(&k, "yz", NULL);                         /* "ef", for "c" was just looked at */
  assert_int_equal(hits(&k, "ef", NULL, 1), 0);
  assert_int_equal(hits(&k, "ab", NULL, 1), 2 * PAGE);
  assert_int_equal(hits(&k, "yz", NULL, 1), 2 * PAGE);
  kv_fini(&k);
}

static void test_exhaustion(void **st) {
  (void)st;
  kv_pool k = pool_of(4);
  kv_table a = table_of(&k, NULL), b = table_of(&k, NULL);
  assert_true(kv_grow(&k, &a, 3 * PAGE));
  assert_false(kv_grow(&k, &b, 2 * PAGE));
  assert_int_equal(b.n, 1); /* what was added stays */
  assert_int_equal(k.n_free, 0);
  assert_true(kv_grow(&k, &b, PAGE)); /* nothing to add */
  kv_release(&k, &a);
  assert_int_equal(k.n_free, 3);
  assert_true(kv_grow(&k, &b, 2 * PAGE));
  assert_true(kv_grow(&k, &b, 3 * PAGE + 1));
  assert_int_equal(b.n, 4);
  kv_release(&k, &b);
  assert_int_equal(k.n_free, 4);
  kv_table_fini(&a), kv_table_fini(&b);
  kv_fini(&k);
}

/* A page two sequences read is free only when both have given it back. */
static void test_shared(void **st) {
  (void)st;
  kv_pool k = pool_of(4);
  int32_t v[LONGEST * PAGE];
  compute(&k, "ab", NULL);
  int n = spell("abc", v);
  kv_table a = table_of(&k, NULL), b = table_of(&k, NULL);
  assert_int_equal(kv_match(&k, &a, v, n), 2 * PAGE);
  assert_int_equal(kv_match(&k, &b, v, n), 2 * PAGE);
  assert_int_equal(k.n_free, 2);
  assert_int_equal(a.pages[0], b.pages[0]);
  assert_int_equal(k.pages[a.pages[0]].refs, 2);
  kv_release(&k, &a);
  assert_int_equal(k.n_free, 2);
  kv_release(&k, &b);
  assert_int_equal(k.n_free, 4);
  kv_table_fini(&a), kv_table_fini(&b);
  kv_fini(&k);
}

/* The same prefix computed twice at once: the first stays in the index. Computed again while an idle copy waits: the one in use takes its place. */
static void test_twins(void **st) {
  (void)st;
  kv_pool k = pool_of(6);
  int32_t v[LONGEST * PAGE];
  int n = spell("ab", v);
  kv_table a = table_of(&k, NULL), b = table_of(&k, NULL);
  assert_true(kv_grow(&k, &a, n) && kv_grow(&k, &b, n));
  kv_publish(&k, &a, v, n);
  kv_publish(&k, &b, v, n);
  assert_true(k.pages[a.pages[0]].hashed && !k.pages[b.pages[0]].hashed);
  kv_release(&k, &a);
  kv_publish(&k, &b, v, n); /* published once: nothing changes by itself */
  assert_false(k.pages[b.pages[0]].hashed);
  kv_table c = table_of(&k, NULL);
  assert_true(kv_grow(&k, &c, n)); /* fresh pages: 4 and 5 */
  kv_publish(&k, &c, v, n);
  assert_true(k.pages[c.pages[0]].hashed && k.pages[c.pages[1]].hashed);
  assert_int_equal(hits(&k, "ab", NULL, 1), 2 * PAGE);
  int idle = 0;
  for (int i = 0; i < k.n_pages; i++) idle += !k.pages[i].hashed;
  assert_int_equal(idle, 4);
  kv_release(&k, &b), kv_release(&k, &c);
  kv_table_fini(&a), kv_table_fini(&b), kv_table_fini(&c);
  kv_fini(&k);
}

/* Only full pages are published, each once it is computed. */
static void test_publish(void **st) {
  (void)st;
  kv_pool k = pool_of(6);
  int32_t v[LONGEST * PAGE];
  spell("abc", v);
  kv_table t = table_of(&k, NULL);
  assert_true(kv_grow(&k, &t, 3 * PAGE));
  kv_publish(&k, &t, v, PAGE - 1);
  assert_int_equal(hits(&k, "abc", NULL, 1), 0);
  kv_publish(&k, &t, v, PAGE);
  assert_int_equal(hits(&k, "abc", NULL, 1), PAGE);
  kv_publish(&k, &t, v, 3 * PAGE - 1);
  assert_int_equal(hits(&k, "abc", NULL, 1), 2 * PAGE);
  kv_release(&k, &t);
  kv_table_fini(&t);
  kv_fini(&k);
}

static void test_no_index(void **st) {
  (void)st;
  kv_pool k;
  err e;
  assert_true(kv_init(&k, &shape, 4 * kern_kv_page_bytes(&shape), root, true, &e));
  compute(&k, "ab", NULL);
  assert_int_equal(hits(&k, "ab", NULL, 1), 0);
  kv_fini(&k);
}

static void test_refused(void **st) {
  (void)st;
  kv_pool k;
  err e;
  assert_false(kv_init(&k, &shape, kern_kv_page_bytes(&shape) - 1, root, false, &e));
  assert_int_equal(e.code, ERR_INPUT);
  assert_string_equal(e.param, "kv-budget");
  assert_non_null(strstr(e.msg, "--kv-budget"));
  kern_kv odd = shape;
  odd.head_dim = 7;
  assert_false(kv_init(&k, &odd, 1 << 20, root, false, &e));
  assert_int_equal(e.code, ERR_UNSUPPORTED);
  assert_non_null(strstr(e.msg, "heads of 7"));
}

/* ---- random operations against a naive model ---- */

enum { TABLES = 6, PAGES_MAX = 40 };

typedef struct naive_page {
  int refs;
  char key[LONGEST + 2]; /* "" when not in the index, else the salt's letter and the prefix */
} naive_page;

typedef struct naive {
  int n_pages, n_free;
  int free[PAGES_MAX]; /* least recently used first */
  naive_page page[PAGES_MAX];
  struct {
    char salt, text[LONGEST + 1]; /* what it spells */
    int pages[LONGEST], n, published;
  } t[TABLES];
} naive;

static int naive_find(const naive *s, const char *key) {
  for (int i = 0; i < s->n_pages; i++)
    if (!strcmp(s->page[i].key, key)) return i;
  return -1;
}

static void key_of(const naive *s, int t, int n, char *key) { snprintf(key, LONGEST + 2, "%c%.*s", s->t[t].salt, n, s->t[t].text); }

static void free_remove(naive *s, int id) {
  int i = 0;
  while (s->free[i] != id) i++;
  memmove(s->free + i, s->free + i + 1, (size_t)(--s->n_free - i) * sizeof *s->free);
}

static void naive_match(naive *s, int t, int n_tokens) {
  char key[LONGEST + 2];
  for (int n = 1; n * PAGE <= n_tokens - 1; n++) {
    key_of(s, t, n, key);
    int id = naive_find(s, key);
    if (id < 0) break;
    if (!s->page[id].refs++) free_remove(s, id);
    s->t[t].pages[s->t[t].n++] = id;
    s->t[t].published = n;
  }
}

static bool naive_grow(naive *s, int t, int n_tokens) {
  while (s->t[t].n * PAGE < n_tokens) {
    if (!s->n_free) return false;
    int id = s->free[0];
    free_remove(s, id);
    s->page[id] = (naive_page){.refs = 1};
    s->t[t].pages[s->t[t].n++] = id;
  }
  return true;
}

static void naive_publish(naive *s, int t, int n_tokens) {
  char key[LONGEST + 2];
  for (int n = s->t[t].published + 1; n * PAGE <= n_tokens; n++) {
    key_of(s, t, n, key);
    s->t[t].published = n;
    int id = s->t[t].pages[n - 1], twin = naive_find(s, key);
    if (twin == id || (twin >= 0 && s->page[twin].refs)) continue;
    if (twin >= 0) {
      s->page[twin].key[0] = 0;
      free_remove(s, twin);
      memmove(s->free + 1, s->free, (size_t)s->n_free++ * sizeof *s->free);
      s->free[0] = twin;
    }
    memcpy(s->page[id].key, key, sizeof key);
  }
}

static void naive_release(naive *s, int t) {
  while (s->t[t].n) {
    int id = s->t[t].pages[--s->t[t].n];
    if (!--s->page[id].refs) s->free[s->n_free++] = id;
  }
  s->t[t].published = 0;
}

static uint32_t home_of(const kv_pool *k, int id) {
  uint32_t v;
  memcpy(&v, k->pages[id].hash, 4);
  return v & k->mask;
}

/* Everything the pool holds, against the model. Counts entries that stand away from their home, and across the table's end. */
static void same_state(const kv_pool *k, const kv_table *t, const naive *s, long *ret_moved, long *ret_wrapped) {
  assert_int_equal(k->n_free, s->n_free);
  int32_t id = k->head, prev = -1;
  for (int i = 0; i < s->n_free; i++, prev = id, id = k->pages[id].next) {
    assert_int_equal(id, s->free[i]);
    assert_int_equal(k->pages[id].prev, prev);
  }
  assert_int_equal(id, -1);
  assert_int_equal(k->tail, prev);
  int in_index = 0;
  for (int i = 0; i < k->n_pages; i++) {
    assert_int_equal(k->pages[i].refs, s->page[i].refs);
    assert_int_equal(k->pages[i].hashed, s->page[i].key[0] != 0);
    in_index += k->pages[i].hashed;
  }
  for (uint32_t at = 0; at <= k->mask; at++) {
    int32_t p = k->index[at];
    if (p < 0) continue;
    in_index--;
    assert_true(k->pages[p].hashed);
    uint32_t home = home_of(k, p);
    *ret_moved += home != at;
    *ret_wrapped += home > at;
    for (uint32_t j = home; j != at; j = (j + 1) & k->mask) assert_true(k->index[j] >= 0); /* a probe gets there */
  }
  assert_int_equal(in_index, 0);
  for (int i = 0; i < TABLES; i++) {
    assert_int_equal(t[i].n, s->t[i].n);
    for (int j = 0; j < t[i].n; j++) assert_int_equal(t[i].pages[j], s->t[i].pages[j]);
  }
}

static void new_text(naive *s, int t, rng *r) {
  int n = 1 + (int)rng_below(r, LONGEST);
  for (int i = 0; i < n; i++) s->t[t].text[i] = (char)('a' + rng_below(r, i ? 2 : 3));
  s->t[t].text[n] = 0;
}

static void random_ops(int n_pages, int ops, long *ret_moved, long *ret_wrapped) {
  kv_pool k = pool_of(n_pages);
  static naive s;
  kv_table t[TABLES];
  int32_t v[LONGEST * PAGE];
  rng r = rng_new((uint64_t)n_pages);
  memset(&s, 0, sizeof s);
  s.n_pages = s.n_free = n_pages;
  for (int i = 0; i < n_pages; i++) s.free[i] = i;
  for (int i = 0; i < TABLES; i++) {
    s.t[i].salt = (char)('0' + i % 2);
    t[i] = table_of(&k, i % 2 ? "1" : NULL);
    new_text(&s, i, &r);
  }
  for (int op = 0; op < ops; op++) {
    int i = (int)rng_below(&r, TABLES), n = spell(s.t[i].text, v), some = (int)rng_below(&r, (uint64_t)n + 1), what = (int)rng_below(&r, 8);
    if (what == 0 || (!t[i].n && what < 4)) {
      kv_release(&k, &t[i]);
      naive_release(&s, i);
      new_text(&s, i, &r);
      n = spell(s.t[i].text, v);
      naive_match(&s, i, n);
      assert_int_equal(kv_match(&k, &t[i], v, n), s.t[i].n * PAGE);
    } else if (what < 5) {
      assert_int_equal(kv_grow(&k, &t[i], some), naive_grow(&s, i, some));
    } else if (what < 7) {
      int have = t[i].n * PAGE < some ? t[i].n * PAGE : some;
      kv_publish(&k, &t[i], v, have);
      naive_publish(&s, i, have);
    } else {
      kv_release(&k, &t[i]);
      naive_release(&s, i);
    }
    same_state(&k, t, &s, ret_moved, ret_wrapped);
  }
  for (int i = 0; i < TABLES; i++) {
    kv_release(&k, &t[i]);
    kv_table_fini(&t[i]);
  }
  assert_int_equal(k.n_free, n_pages);
  kv_fini(&k);
}

static void test_random(void **st) {
  (void)st;
  static const int pages[] = {1, 3, 8, 17, PAGES_MAX};
  long moved = 0, wrapped = 0;
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) random_ops(pages[i], 20000, &moved, &wrapped);
  assert_true(moved > 1000 && wrapped > 10); /* probes did collide, over the end too */
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_hit), cmocka_unit_test(test_cap), cmocka_unit_test(test_salt), cmocka_unit_test(test_lru),
      cmocka_unit_test(test_exhaustion), cmocka_unit_test(test_shared), cmocka_unit_test(test_twins), cmocka_unit_test(test_publish),
      cmocka_unit_test(test_no_index), cmocka_unit_test(test_refused), cmocka_unit_test(test_random)};
  return cmocka_run_group_tests(t, NULL, NULL);
}
