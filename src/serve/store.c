#include "serve/store.h"
#include "base/hash.h"
#include <stdlib.h>

enum { BUCKETS = 1024 };

struct store_entry {
  store_entry *before;        /* the turn it goes on from; holds a reference */
  store_entry *newer, *older; /* by last use */
  store_entry *chain;         /* of its bucket */
  uint64_t tenant;
  int refs;                    /* being listed is one */
  bool listed;                 /* can be found */
  str id, body, input, output; /* behind the struct */
};

struct store {
  store_entry *buckets[BUCKETS], *newest, *oldest;
  int count, max_count;
  uint64_t bytes, max_bytes;
};

static uint64_t size_of(const store_entry *e) { return sizeof *e + e->id.n + e->body.n + e->input.n + e->output.n; }

static store_entry **bucket(store *s, uint64_t tenant, str id) { return &s->buckets[hash64(id.p, id.n, tenant) % BUCKETS]; }

/* A long conversation is let go of turn by turn, not by recursion. */
static void drop(store *s, store_entry *e) {
  while (e && !--e->refs) {
    store_entry *before = e->before;
    s->bytes -= size_of(e);
    free(e);
    e = before;
  }
}

static void unlink_use(store *s, store_entry *e) {
  if (e->newer) e->newer->older = e->older;
  else s->newest = e->older;
  if (e->older) e->older->newer = e->newer;
  else s->oldest = e->newer;
}

static void link_use(store *s, store_entry *e) {
  e->newer = NULL;
  e->older = s->newest;
  if (s->newest) s->newest->newer = e;
  else s->oldest = e;
  s->newest = e;
}

static void unlist(store *s, store_entry *e) {
  store_entry **at = bucket(s, e->tenant, e->id);
  while (*at != e) at = &(*at)->chain;
  *at = e->chain;
  unlink_use(s, e);
  e->listed = false;
  s->count--;
  drop(s, e);
}

static store_entry *lookup(store *s, uint64_t tenant, str id) {
  for (store_entry *e = *bucket(s, tenant, id); e; e = e->chain)
    if (e->tenant == tenant && str_eq(e->id, id)) return e;
  return NULL;
}

store *store_new(int max_count, uint64_t max_bytes) {
  store *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->max_count = max_count ? max_count : STORE_COUNT;
  s->max_bytes = max_bytes ? max_bytes : STORE_BYTES;
  return s;
}

void store_free(store *s) {
  if (!s) return;
  while (s->oldest) unlist(s, s->oldest);
  free(s);
}

static str copy(char **at, str s) {
  char *p = *at;
  if (s.n) memcpy(p, s.p, s.n);
  *at += s.n;
  return (str){p, s.n};
}

bool store_put(store *s, uint64_t tenant, const store_turn *t, store_entry *before) {
  uint64_t n = (uint64_t)t->id.n + t->body.n + t->input.n + t->output.n;
  if (t->id.n >= STORE_ID || n + sizeof(store_entry) > s->max_bytes) return false;
  store_entry *e = malloc(sizeof *e + n), **b = bucket(s, tenant, t->id), *same = lookup(s, tenant, t->id);
  if (!e) return false;
  char *at = (char *)(e + 1);
  *e = (store_entry){.before = before, .tenant = tenant, .refs = 1, .listed = true};
  e->id = copy(&at, t->id);
  e->body = copy(&at, t->body);
  e->input = copy(&at, t->input);
  e->output = copy(&at, t->output);
  if (before) before->refs++;
  s->bytes += size_of(e);
  if (same) unlist(s, same);
  e->chain = *b;
  *b = e;
  link_use(s, e);
  s->count++;
  e->refs++; /* the caller's eye on it, while others go */
  while (s->oldest && (s->count > s->max_count || s->bytes > s->max_bytes)) unlist(s, s->oldest);
  bool kept = e->listed;
  drop(s, e);
  return kept;
}

store_entry *store_find(store *s, uint64_t tenant, str id) {
  store_entry *e = lookup(s, tenant, id);
  if (!e) return NULL;
  unlink_use(s, e);
  link_use(s, e);
  e->refs++;
  return e;
}

void store_release(store *s, store_entry *e) { drop(s, e); }

bool store_delete(store *s, uint64_t tenant, str id) {
  store_entry *e = lookup(s, tenant, id);
  if (e) unlist(s, e);
  return e != NULL;
}

str store_body(const store_entry *e) { return e->body; }
str store_input(const store_entry *e) { return e->input; }

/* "[a,b]" without its brackets, behind what is there. */
static void add_items(str array, buf *out) {
  if (array.n <= 2) return;
  if (out->n > 1) buf_putc(out, ',');
  buf_put(out, array.p + 1, array.n - 2);
}

bool store_history(const store_entry *e, buf *out, err *er) {
  size_t n = 0, i = 0;
  for (const store_entry *t = e; t; t = t->before) n++;
  const store_entry **turns = malloc(n * sizeof *turns);
  if (!turns) return err_set(er, ERR_NOMEM, "out of memory for the turns of a conversation");
  for (const store_entry *t = e; t; t = t->before) turns[i++] = t;
  buf_putc(out, '[');
  while (i-- > 0) {
    add_items(turns[i]->input, out);
    add_items(turns[i]->output, out);
  }
  buf_putc(out, ']');
  free(turns);
  return !out->failed || err_set(er, ERR_TOO_LARGE, "the conversation up to here is over %zu bytes: begin a new one", out->max);
}

int store_count(const store *s) { return s->count; }
uint64_t store_bytes(const store *s) { return s->bytes; }
