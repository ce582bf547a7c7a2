/* Reading order: hash tables, an mfile's life, adding to it, adding values of our own, look-ups. What is added was checked by the reader that adds
 * it; here stands what holds for every format: no name twice, no byte in two tensors, no size that overflows. */
#include "model/mfile_build.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/rng.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAPS_MAX = 4096, ROWS_MAX = 1 << 24, SHOWN = 64 /* bytes of a name in a message */ };

/* Open addressing; a slot is index + 1, 0 is free. At most half full. The seed keeps a crafted file from choosing names that collide. */
typedef struct table {
  uint32_t *slot;
  uint64_t n_slots, seed;
} table;

typedef struct mf_house {
  arena mem;
  table keys, names;
  uint64_t cap_vals, cap_tensors;
} mf_house;

static const char *const kind_names[] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
static const uint8_t kind_sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
_Static_assert(sizeof kind_sizes == MF_KINDS && sizeof kind_names / sizeof *kind_names == MF_KINDS, "a name and a size for every kind");

const char *mf_kind_name(mf_kind k) { return kind_names[k]; }
int mf_kind_size(mf_kind k) { return kind_sizes[k]; }

static int shown(str s) { return (int)(s.n < SHOWN ? s.n : SHOWN); }

/* ---- hash tables ------------------------------------------------------------------------------------------------------------ */

_Static_assert(offsetof(mf_val, key) == 0 && offsetof(mf_tensor, name) == 0, "both kinds of row begin with their name");
static str name_of(const void *rows, size_t row_size, uint32_t slot) { return *(const str *)((const char *)rows + (size_t)(slot - 1) * row_size); }

/* The slot that holds the name, or the free one where it would go. */
static uint32_t *table_slot(const table *t, const void *rows, size_t row_size, str name) {
  for (uint64_t h = hash64(name.p, name.n, t->seed);; h++) {
    uint32_t *s = &t->slot[h & (t->n_slots - 1)];
    if (!*s || str_eq(name_of(rows, row_size, *s), name)) return s;
  }
}

static bool table_grow(table *t, const void *rows, size_t row_size) {
  table old = *t;
  t->n_slots = old.n_slots ? old.n_slots * 2 : 64;
  t->slot = calloc(t->n_slots, sizeof *t->slot);
  if (!t->slot) {
    *t = old;
    return false;
  }
  for (uint64_t i = 0; i < old.n_slots; i++)
    if (old.slot[i]) *table_slot(t, rows, row_size, name_of(rows, row_size, old.slot[i])) = old.slot[i];
  free(old.slot);
  return true;
}

/* Makes room for one more row and for its slot. */
static bool room_for_row(table *t, void **rows, uint64_t n, uint64_t *cap, size_t row_size, err *e) {
  if (n >= ROWS_MAX) return err_set(e, ERR_TOO_LARGE, "the model has more than %d names", ROWS_MAX);
  if (n == *cap) {
    uint64_t more = *cap ? *cap * 2 : 64;
    void *grown = realloc(*rows, more * row_size);
    if (!grown) return err_set(e, ERR_NOMEM, "out of memory for %llu names of a model", (unsigned long long)more);
    *rows = grown;
    *cap = more;
  }
  if (2 * (n + 1) <= t->n_slots || table_grow(t, *rows, row_size)) return true;
  return err_set(e, ERR_NOMEM, "out of memory for a table of %llu names", (unsigned long long)n);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------- */

mfile *mf_new(err *e) {
  mfile *g = calloc(1, sizeof *g);
  mf_house *h = calloc(1, sizeof *h);
  if (!g || !h) {
    free(g);
    free(h);
    err_set(e, ERR_NOMEM, "out of memory");
    return NULL;
  }
  g->house = h;
  arena_init(&h->mem, 4096);
  h->keys.seed = h->names.seed = rng_seed();
  /* Look-ups in an empty file need a slot to find free. */
  if (table_grow(&h->keys, NULL, 0) && table_grow(&h->names, NULL, 0)) return g;
  err_set(e, ERR_NOMEM, "out of memory");
  mf_close(g);
  return NULL;
}

void mf_close(mfile *g) {
  if (!g) return;
  for (int i = 0; i < g->n_maps; i++)
    if (!g->maps[i].lent) munmap((void *)(uintptr_t)g->maps[i].p, g->maps[i].n);
  arena_fini(&g->house->mem);
  free(g->house->keys.slot);
  free(g->house->names.slot);
  free(g->house);
  free(g->maps);
  free(g->vals);
  free(g->tensors);
  free(g);
}

static bool add_map(mfile *g, mf_map m, int *ret_i, err *e) {
  if (g->n_maps >= MAPS_MAX) return err_set(e, ERR_TOO_LARGE, "the model has more than %d files", MAPS_MAX);
  mf_map *grown = realloc(g->maps, (size_t)(g->n_maps + 1) * sizeof *grown);
  if (!grown) return err_set(e, ERR_NOMEM, "out of memory");
  g->maps = grown;
  g->maps[g->n_maps] = m;
  *ret_i = g->n_maps++;
  g->size += m.n;
  g->house->mem.max += (size_t)m.n * 8;
  return true;
}

bool mf_map_lent(mfile *g, const void *p, size_t n, int *ret_i, err *e) { return add_map(g, (mf_map){.p = p, .n = n, .lent = true}, ret_i, e); }

static bool map_fd(mfile *g, int fd, const char *path, int *ret_i, err *e) {
  struct stat st;
  if (fstat(fd, &st)) return err_errno(e, errno, "cannot look at %s", path);
  if (S_ISDIR(st.st_mode)) return err_set(e, ERR_INPUT, "%s is a folder: give a file in it", path);
  if (!S_ISREG(st.st_mode)) return err_set(e, ERR_INPUT, "%s is not a regular file", path);
  if (st.st_size == 0) return err_set(e, ERR_INPUT, "%s: the file is empty: fetch it again", path);
  void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) return err_errno(e, errno, "cannot map %s", path);
  if (add_map(g, (mf_map){.p = p, .n = (uint64_t)st.st_size}, ret_i, e)) return true;
  munmap(p, (size_t)st.st_size);
  return false;
}

bool mf_map_path(mfile *g, const char *path, int *ret_i, err *e) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO must be refused, not waited for */
  if (fd < 0) return err_errno(e, errno, "cannot open %s", path);
  bool ok = map_fd(g, fd, path, ret_i, e);
  close(fd); /* the map stays */
  return ok;
}

void *mf_mem(mfile *g, size_t count, size_t size, err *e) {
  void *p = arena_try_array(&g->house->mem, count ? count : 1, size);
  if (!p) err_set(e, ERR_NOMEM, "out of memory for %zu things of %zu bytes that the model's file speaks of", count, size);
  return p;
}

static const mf_map *map_of(const mfile *g, const void *p) {
  for (int i = 0; i < g->n_maps; i++)
    if ((uintptr_t)p - (uintptr_t)g->maps[i].p < g->maps[i].n) return &g->maps[i];
  return NULL;
}

void mf_drop_pages(const mfile *g, const void *p, uint64_t n) {
  const mf_map *m = map_of(g, p);
  if (!m || m->lent) return;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), a = (uint64_t)((const uint8_t *)p - m->p), b = a + n;
  /* Whole pages only, except at the file's end: a neighbour's bytes may still be wanted, and would be read again. */
  a = (a + page - 1) / page * page;
  b = b >= m->n ? m->n : b / page * page;
  if (a < b) madvise((void *)(uintptr_t)(m->p + a), b - a, MADV_DONTNEED);
}

/* ---- adding ----------------------------------------------------------------------------------------------------------------- */

bool mf_add_val(mfile *g, const mf_val *v, err *e) {
  mf_house *h = g->house;
  void *rows = g->vals;
  bool ok = room_for_row(&h->keys, &rows, g->n_vals, &h->cap_vals, sizeof *v, e);
  g->vals = rows;
  if (!ok) return false;
  uint32_t *slot = table_slot(&h->keys, g->vals, sizeof *v, v->key);
  if (*slot) return err_set(e, ERR_INPUT, "metadata key %.*s is there twice: the file is damaged", shown(v->key), v->key.p);
  g->vals[g->n_vals++] = *v;
  *slot = (uint32_t)g->n_vals;
  return true;
}

bool mf_add_tensor(mfile *g, const mf_tensor *t, err *e) {
  mf_house *h = g->house;
  void *rows = g->tensors;
  bool ok = room_for_row(&h->names, &rows, g->n_tensors, &h->cap_tensors, sizeof *t, e);
  g->tensors = rows;
  if (!ok) return false;
  uint32_t *slot = table_slot(&h->names, g->tensors, sizeof *t, t->name);
  if (*slot) return err_set(e, ERR_INPUT, "tensor %.*s is there twice: the file is damaged", shown(t->name), t->name.p);
  g->tensors[g->n_tensors++] = *t;
  *slot = (uint32_t)g->n_tensors;
  return true;
}

bool mf_tensor_size(mf_tensor *t, const char *what, err *e) {
  uint64_t n = 1;
  for (int d = 0; d < t->n_dims; d++)
    if (__builtin_mul_overflow(n, (uint64_t)t->ne[d], &n) || n > INT64_MAX)
      return err_param(e, ERR_INPUT, what, "%s is of %lld x %lld x %lld x %lld elements, more than can be counted: the file is damaged", what,
          (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3]);
  if (t->ne[0] % t->type->block)
    return err_param(e, ERR_INPUT, what, "%s has rows of %lld elements, not a multiple of the %d a block of %s holds", what, (long long)t->ne[0],
        t->type->block, t->type->name);
  if (__builtin_mul_overflow(n / (uint64_t)t->type->block, (uint64_t)t->type->bytes, &t->bytes))
    return err_param(e, ERR_INPUT, what, "%s is larger than can be counted: the file is damaged", what);
  return true;
}

static int by_place(const void *a, const void *b) {
  const mf_tensor *x = *(const mf_tensor *const *)a, *y = *(const mf_tensor *const *)b;
  uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
  return p < q ? -1 : p > q;
}

bool mf_check_overlaps(const mfile *g, err *e) {
  const mf_tensor **order = calloc(g->n_tensors ? g->n_tensors : 1, sizeof(*order));
  bool ok = true;
  if (!order) return err_set(e, ERR_NOMEM, "out of memory for %llu tensors", (unsigned long long)g->n_tensors);
  for (uint64_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
  qsort(order, g->n_tensors, sizeof(*order), by_place);
  for (uint64_t i = 1; ok && i < g->n_tensors; i++) {
    const mf_tensor *a = order[i - 1], *b = order[i];
    if ((const uint8_t *)a->data + a->bytes > (const uint8_t *)b->data)
      ok = err_set(e, ERR_INPUT, "tensors %.*s and %.*s share bytes: the file is damaged", shown(a->name), a->name.p, shown(b->name), b->name.p);
  }
  free(order);
  return ok;
}

/* ---- values of our own ------------------------------------------------------------------------------------------------------ */

/* The key and n bytes of value, copied. */
static bool add_copy(mfile *g, const char *key, mf_val v, const void *p, size_t n, err *e) {
  size_t k = strlen(key);
  char *mem = mf_mem(g, k + n + 1, 1, e);
  if (!mem) return false;
  memcpy(mem, key, k);
  if (n) memcpy(mem + k, p, n);
  v.key = (str){mem, k};
  v.raw = (str){mem + k, n};
  return mf_add_val(g, &v, e);
}

bool mf_add_u64(mfile *g, const char *key, uint64_t v, err *e) { return add_copy(g, key, (mf_val){.kind = MF_U64}, &v, sizeof v, e); }
bool mf_add_f64(mfile *g, const char *key, double v, err *e) { return add_copy(g, key, (mf_val){.kind = MF_F64}, &v, sizeof v, e); }
bool mf_add_bool(mfile *g, const char *key, bool v, err *e) { return add_copy(g, key, (mf_val){.kind = MF_BOOL}, &(uint8_t){v}, 1, e); }
bool mf_add_str(mfile *g, const char *key, str v, err *e) { return add_copy(g, key, (mf_val){.kind = MF_STR}, v.p, v.n, e); }

bool mf_add_text(mfile *g, const char *key, str v, err *e) {
  size_t k = strlen(key);
  char *mem = mf_mem(g, k + 1, 1, e);
  if (!mem) return false;
  memcpy(mem, key, k);
  return mf_add_val(g, &(mf_val){.key = {mem, k}, .kind = MF_STR, .raw = v}, e);
}

bool mf_add_i32s(mfile *g, const char *key, const int32_t *v, size_t n, err *e) {
  return add_copy(g, key, (mf_val){.kind = MF_ARR, .elem = MF_I32, .count = n}, v, n * sizeof *v, e);
}

bool mf_add_bools(mfile *g, const char *key, const uint8_t *v, size_t n, err *e) {
  return add_copy(g, key, (mf_val){.kind = MF_ARR, .elem = MF_BOOL, .count = n}, v, n, e);
}

/* ---- look-ups --------------------------------------------------------------------------------------------------------------- */

const mf_val *mf_get(const mfile *g, const char *key) {
  uint32_t s = *table_slot(&g->house->keys, g->vals, sizeof *g->vals, str_c(key));
  return s ? &g->vals[s - 1] : NULL;
}

const mf_tensor *mf_find(const mfile *g, const char *name) {
  uint32_t s = *table_slot(&g->house->names, g->tensors, sizeof *g->tensors, str_c(name));
  return s ? &g->tensors[s - 1] : NULL;
}

typedef struct number {
  enum { NUM_U, NUM_I, NUM_F, NUM_NONE } form;
  uint64_t u;
  int64_t i;
  double f;
} number;

/* A number of any kind. NUM_I only when negative, so that a comparison needs no second look. */
static number read_number(mf_kind kind, const char *p) {
  int64_t i;
  switch (kind) {
  case MF_U8:
  case MF_BOOL: return (number){.form = NUM_U, .u = (uint8_t)p[0]};
  case MF_U16: {
    uint16_t v;
    memcpy(&v, p, 2);
    return (number){.form = NUM_U, .u = v};
  }
  case MF_U32: {
    uint32_t v;
    memcpy(&v, p, 4);
    return (number){.form = NUM_U, .u = v};
  }
  case MF_U64: {
    uint64_t v;
    memcpy(&v, p, 8);
    return (number){.form = NUM_U, .u = v};
  }
  case MF_I8: i = (int8_t)p[0]; break;
  case MF_I16: {
    int16_t v;
    memcpy(&v, p, 2);
    i = v;
    break;
  }
  case MF_I32: {
    int32_t v;
    memcpy(&v, p, 4);
    i = v;
    break;
  }
  case MF_I64: {
    int64_t v;
    memcpy(&v, p, 8);
    i = v;
    break;
  }
  case MF_F32: {
    float v;
    memcpy(&v, p, 4);
    return (number){.form = NUM_F, .f = (double)v};
  }
  case MF_F64: {
    double v;
    memcpy(&v, p, 8);
    return (number){.form = NUM_F, .f = v};
  }
  default: return (number){.form = NUM_NONE};
  }
  return i < 0 ? (number){.form = NUM_I, .i = i} : (number){.form = NUM_U, .u = (uint64_t)i};
}

/* As much of the key as a message shows. */
typedef struct key_text {
  char s[96];
} key_text;
static key_text key_of(const mf_val *v) {
  key_text k;
  snprintf(k.s, sizeof k.s, "%.*s", (int)(v->key.n < sizeof k.s ? v->key.n : sizeof k.s - 1), v->key.p);
  return k;
}

static bool wrong_kind(const mf_val *v, const char *want, err *e) {
  key_text k = key_of(v);
  return err_param(e, ERR_INPUT, k.s, "metadata key %s is of kind %s, expected %s", k.s, kind_names[v->kind], want);
}

/* A whole number; bool and the floats are refused. */
static bool whole(const mf_val *v, number *ret, err *e) {
  *ret = read_number(v->kind, v->raw.p);
  return (v->kind != MF_BOOL && (ret->form == NUM_U || ret->form == NUM_I)) || wrong_kind(v, "a whole number", e);
}

bool mf_val_u64(const mf_val *v, uint64_t *ret, err *e) {
  number n;
  if (!whole(v, &n, e)) return false;
  key_text k = key_of(v);
  if (n.form == NUM_I) return err_param(e, ERR_INPUT, k.s, "metadata key %s is %lld, expected 0 or more", k.s, (long long)n.i);
  *ret = n.u;
  return true;
}

bool mf_u64(const mfile *g, const char *key, uint64_t *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  return !v || mf_val_u64(v, ret, e);
}

bool mf_i64(const mfile *g, const char *key, int64_t *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  number n;
  if (!v) return true;
  if (!whole(v, &n, e)) return false;
  if (n.form == NUM_U && n.u > INT64_MAX) return err_param(e, ERR_INPUT, key, "metadata key %s is %llu, too large", key, (unsigned long long)n.u);
  *ret = n.form == NUM_U ? (int64_t)n.u : n.i;
  return true;
}

static double number_f64(number n) { return n.form == NUM_U ? (double)n.u : n.form == NUM_I ? (double)n.i : n.form == NUM_F ? n.f : 0.0; }

bool mf_f64(const mfile *g, const char *key, double *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  number n = read_number(v->kind, v->raw.p);
  if (v->kind == MF_BOOL || n.form == NUM_NONE) return wrong_kind(v, "a number", e);
  double f = number_f64(n);
  if (!isfinite(f)) return err_param(e, ERR_INPUT, key, "metadata key %s is not a finite number", key);
  *ret = f;
  return true;
}

bool mf_bool(const mfile *g, const char *key, bool *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  if (v->kind != MF_BOOL) return wrong_kind(v, "bool", e);
  *ret = v->raw.p[0] != 0;
  return true;
}

bool mf_str(const mfile *g, const char *key, str *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  if (v->kind != MF_STR) return wrong_kind(v, "string", e);
  *ret = v->raw;
  return true;
}

static number element(const mf_val *v, uint64_t i) {
  if (v->kind != MF_ARR || i >= v->count || !kind_sizes[v->elem]) return (number){.form = NUM_NONE};
  return read_number(v->elem, v->raw.p + i * kind_sizes[v->elem]);
}

double mf_elem_f64(const mf_val *v, uint64_t i) { return number_f64(element(v, i)); }

int64_t mf_elem_i64(const mf_val *v, uint64_t i) {
  number n = element(v, i);
  switch (n.form) {
  case NUM_U: return n.u > INT64_MAX ? INT64_MAX : (int64_t)n.u;
  case NUM_I: return n.i;
  case NUM_F: return n.f >= 0x1p63 ? INT64_MAX : n.f <= -0x1p63 ? INT64_MIN : isnan(n.f) ? 0 : (int64_t)n.f;
  default: return 0;
  }
}
