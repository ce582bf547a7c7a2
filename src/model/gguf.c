/* Reading order: cursor (bounds), values, tensors, layout checks, opening, look-ups.
 * Every byte comes from a stranger. The one rule: nothing is read or sized before `room` has said that the file holds it, and no count is turned into
 * an allocation before it has been divided into the bytes that are left. Strings are never copied; they point into the map.
 * Format: GGUF specification, versions 2 and 3 (they differ only in the byte orders allowed). */
#include "model/gguf.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/rng.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  HEADER = 24,        /* magic, version, two counts */
  VALS_MAX = 1 << 16, /* metadata pairs; real files hold 20 to 60 */
  TENSORS_MAX = 1 << 17,
  KEY_MAX = 1 << 10,  /* the format allows 65,535; real keys are under 64 */
  NAME_MAX_LEN = 256, /* the format says 64 */
  STRS_MAX = 1 << 24, /* elements of one array of strings */
  NEST_MAX = 8,       /* arrays in arrays */
  ALIGN_MIN = 8,
  ALIGN_MAX = 1 << 20,
  PAIR_MIN = 8 + 1 + 4 + 1,         /* least bytes of a metadata pair: key of one byte, kind, a byte */
  INFO_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* least bytes of a tensor's row: name of one byte, n_dims, one dim, type, offset */
};

/* Open addressing; a slot is index + 1, 0 is free. At most half full. The seed keeps a crafted file from choosing names that collide. */
typedef struct table {
  uint32_t *slot;
  uint64_t mask, seed;
} table;

typedef struct priv {
  arena mem;
  table keys, names;
} priv;

typedef struct cursor {
  const uint8_t *base;
  uint64_t pos, size;
  char what[96]; /* what is being read, for messages */
  err *e;
} cursor;

static const char *const kind_names[] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
static const uint8_t kind_sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
enum { KINDS = sizeof kind_sizes };

/* ---- cursor ----------------------------------------------------------------------------------------------------------------- */

static bool room(cursor *c, uint64_t n) {
  if (n <= c->size - c->pos) return true;
  return err_param(c->e, ERR_INPUT, c->what,
      "%s wants %llu bytes at byte %llu, but the file ends at byte %llu: it is cut off or damaged, fetch it again", c->what, (unsigned long long)n,
      (unsigned long long)c->pos, (unsigned long long)c->size);
}

static uint32_t peek32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}
static uint64_t peek64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

static bool take32(cursor *c, uint32_t *ret) {
  if (!room(c, 4)) return false;
  *ret = peek32(c->base + c->pos);
  c->pos += 4;
  return true;
}

static bool take64(cursor *c, uint64_t *ret) {
  if (!room(c, 8)) return false;
  *ret = peek64(c->base + c->pos);
  c->pos += 8;
  return true;
}

static bool take_str(cursor *c, str *ret) {
  uint64_t n;
  if (!take64(c, &n) || !room(c, n)) return false;
  *ret = (str){(const char *)c->base + c->pos, (size_t)n};
  c->pos += n;
  return true;
}

/* A key or a tensor's name: bounded, printable ASCII (so that a message can quote it), not empty. */
static bool take_name(cursor *c, const char *noun, uint64_t index, uint64_t max, str *ret) {
  snprintf(c->what, sizeof c->what, "%s %llu", noun, (unsigned long long)index);
  str s;
  if (!take_str(c, &s)) return false;
  if (s.n == 0 || s.n > max)
    return err_param(
        c->e, ERR_INPUT, c->what, "%s has a name of %zu bytes, expected 1 to %llu: the file is damaged", c->what, s.n, (unsigned long long)max);
  for (size_t i = 0; i < s.n; i++)
    if ((uint8_t)s.p[i] < 0x20 || (uint8_t)s.p[i] > 0x7e)
      return err_param(
          c->e, ERR_INPUT, c->what, "%s has byte 0x%02x in its name, expected printable ASCII: the file is damaged", c->what, (uint8_t)s.p[i]);
  snprintf(c->what, sizeof c->what, "%s %.*s", noun, (int)(s.n < 64 ? s.n : 64), s.p);
  *ret = s;
  return true;
}

/* ---- hash tables ------------------------------------------------------------------------------------------------------------ */

static bool table_init(table *t, arena *a, uint64_t n, err *e) {
  uint64_t cap = 8;
  while (cap < 2 * n) cap *= 2;
  t->slot = ARENA_ARRAY(a, uint32_t, cap);
  t->mask = cap - 1;
  return t->slot || err_set(e, ERR_NOMEM, "out of memory for a table of %llu names", (unsigned long long)n);
}

/* The slot that holds the name, or the free one where it would go. Both kinds of row begin with their name. */
static uint32_t *table_slot(const table *t, const void *rows, size_t row_size, str name) {
  for (uint64_t h = hash64(name.p, name.n, t->seed);; h++) {
    uint32_t *s = &t->slot[h & t->mask];
    if (!*s) return s;
    if (str_eq(*(const str *)((const char *)rows + (size_t)(*s - 1) * row_size), name)) return s;
  }
}
_Static_assert(offsetof(mf_val, key) == 0 && offsetof(mf_tensor, name) == 0, "table_slot reads the name at the start of a row");

/* ---- metadata --------------------------------------------------------------------------------------------------------------- */

static bool skip_array(cursor *c, int depth);

static bool skip_value(cursor *c, uint32_t kind, int depth) {
  str s;
  if (kind == MF_STR) return take_str(c, &s);
  if (kind == MF_ARR) return skip_array(c, depth + 1);
  if (!room(c, kind_sizes[kind])) return false;
  c->pos += kind_sizes[kind];
  return true;
}

/* An array's head: kind of the elements and their count, which must fit in what is left of the file. */
static bool take_array_head(cursor *c, uint32_t *ret_kind, uint64_t *ret_n) {
  uint32_t k;
  uint64_t n;
  if (!take32(c, &k) || !take64(c, &n)) return false;
  if (k >= KINDS)
    return err_param(c->e, ERR_INPUT, c->what, "%s is an array of kind %u, known are 0 to %d: the file is damaged", c->what, k, KINDS - 1);
  uint64_t least = k == MF_STR ? 8 : k == MF_ARR ? 12 : kind_sizes[k];
  if (n > (c->size - c->pos) / least)
    return err_param(c->e, ERR_INPUT, c->what, "%s says it has %llu elements, but the file has only %llu bytes left: it is cut off or damaged",
        c->what, (unsigned long long)n, (unsigned long long)(c->size - c->pos));
  *ret_kind = k;
  *ret_n = n;
  return true;
}

static bool skip_array(cursor *c, int depth) {
  uint32_t k;
  uint64_t n;
  if (depth > NEST_MAX) return err_param(c->e, ERR_INPUT, c->what, "%s nests arrays more than %d deep", c->what, NEST_MAX);
  if (!take_array_head(c, &k, &n)) return false;
  if (kind_sizes[k]) {
    c->pos += n * kind_sizes[k];
    return true;
  }
  for (uint64_t i = 0; i < n; i++)
    if (!skip_value(c, k, depth)) return false;
  return true;
}

/* The elements of an array of strings. This loop is most of the time it takes to open a file (300,000 strings in a Qwen model), hence by hand. */
static bool take_strs(cursor *c, arena *mem, mf_val *v) {
  if (v->count > STRS_MAX)
    return err_param(c->e, ERR_INPUT, c->what, "%s has %llu strings, more than the bound of %d", c->what, (unsigned long long)v->count, STRS_MAX);
  str *out = ARENA_ARRAY(mem, str, v->count ? v->count : 1);
  if (!out) return err_param(c->e, ERR_NOMEM, c->what, "out of memory for the %llu strings of %s", (unsigned long long)v->count, c->what);
  const uint8_t *p = c->base + c->pos, *end = c->base + c->size;
  for (uint64_t i = 0; i < v->count; i++) {
    uint64_t left = (uint64_t)(end - p), n = left >= 8 ? peek64(p) : 0;
    if (left < 8 || n > left - 8) {
      return err_param(c->e, ERR_INPUT, c->what, "string %llu of %s does not end within the file: it is cut off or damaged, fetch it again",
          (unsigned long long)i, c->what);
    }
    out[i] = (str){(const char *)p + 8, (size_t)n};
    p += 8 + n;
  }
  c->pos = (uint64_t)(p - c->base);
  v->strs = out;
  return true;
}

static bool take_val(cursor *c, arena *mem, uint64_t index, mf_val *v) {
  uint32_t kind;
  if (!take_name(c, "metadata key", index, KEY_MAX, &v->key) || !take32(c, &kind)) return false;
  if (kind >= KINDS) return err_param(c->e, ERR_INPUT, c->what, "%s is of kind %u, known are 0 to %d: the file is damaged", c->what, kind, KINDS - 1);
  v->kind = (mf_kind)kind;
  uint64_t start = c->pos;
  if (kind == MF_ARR) {
    uint32_t elem;
    if (!take_array_head(c, &elem, &v->count)) return false;
    v->elem = (mf_kind)elem;
    if (elem == MF_STR) {
      if (!take_strs(c, mem, v)) return false;
    } else if (elem == MF_ARR) {
      for (uint64_t i = 0; i < v->count; i++)
        if (!skip_array(c, 2)) return false;
    } else c->pos += v->count * kind_sizes[elem];
    start += 12; /* raw is the elements, without kind and count */
  } else if (kind == MF_STR) {
    if (!take_str(c, &v->raw)) return false;
    return true;
  } else if (!skip_value(c, kind, 0)) return false;
  v->raw = (str){(const char *)c->base + start, (size_t)(c->pos - start)};
  if (kind == MF_BOOL && (uint8_t)v->raw.p[0] > 1)
    return err_param(c->e, ERR_INPUT, c->what, "%s is a bool of value %u, expected 0 or 1: the file is damaged", c->what, (uint8_t)v->raw.p[0]);
  return true;
}

static bool read_vals(mfile *g, cursor *c, priv *pv) {
  g->vals = ARENA_ARRAY(&pv->mem, mf_val, g->n_vals ? g->n_vals : 1);
  if (!g->vals) return err_set(c->e, ERR_NOMEM, "out of memory for %llu metadata pairs", (unsigned long long)g->n_vals);
  if (!table_init(&pv->keys, &pv->mem, g->n_vals, c->e)) return false;
  for (uint64_t i = 0; i < g->n_vals; i++) {
    mf_val *v = &g->vals[i];
    if (!take_val(c, &pv->mem, i, v)) return false;
    uint32_t *slot = table_slot(&pv->keys, g->vals, sizeof *v, v->key);
    if (*slot) return err_param(c->e, ERR_INPUT, c->what, "%s is there twice: the file is damaged", c->what);
    *slot = (uint32_t)i + 1;
  }
  return true;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

/* Elements of the tensor, its bytes; both without overflow. */
static bool tensor_size(cursor *c, mf_tensor *t) {
  uint64_t n = 1;
  for (int d = 0; d < t->n_dims; d++)
    if (__builtin_mul_overflow(n, (uint64_t)t->ne[d], &n) || n > INT64_MAX)
      return err_param(c->e, ERR_INPUT, c->what, "%s is of %lld x %lld x %lld x %lld elements, more than can be counted: the file is damaged",
          c->what, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3]);
  if (t->ne[0] % t->type->block)
    return err_param(c->e, ERR_INPUT, c->what, "%s has rows of %lld elements, not a multiple of the %d a block of %s holds", c->what,
        (long long)t->ne[0], t->type->block, t->type->name);
  if (__builtin_mul_overflow(n / (uint64_t)t->type->block, (uint64_t)t->type->bytes, &t->bytes))
    return err_param(c->e, ERR_INPUT, c->what, "%s is larger than can be counted: the file is damaged", c->what);
  return true;
}

/* *ret_off is the offset as written, relative to the data section, which is only known after the last row. */
static bool take_tensor(cursor *c, uint64_t index, mf_tensor *t, uint64_t *ret_off) {
  uint32_t n_dims, type;
  if (!take_name(c, "tensor", index, NAME_MAX_LEN, &t->name) || !take32(c, &n_dims)) return false;
  if (n_dims < 1 || n_dims > 4)
    return err_param(c->e, ERR_INPUT, c->what, "%s has %u dimensions, expected 1 to 4: the file is damaged", c->what, n_dims);
  t->n_dims = (int)n_dims;
  for (int d = 0; d < 4; d++) t->ne[d] = 1;
  for (int d = 0; d < t->n_dims; d++) {
    uint64_t n;
    if (!take64(c, &n)) return false;
    if (n < 1 || n > INT64_MAX)
      return err_param(c->e, ERR_INPUT, c->what, "%s has %llu elements in dimension %d, expected 1 or more: the file is damaged", c->what,
          (unsigned long long)n, d);
    t->ne[d] = (int64_t)n;
  }
  if (!take32(c, &type)) return false;
  t->type = wtype_lookup(type);
  if (!t->type)
    return err_param(c->e, ERR_UNSUPPORTED, c->what,
        "%s is of type number %u, which this version does not know: convert the model to another quantization", c->what, type);
  return tensor_size(c, t) && take64(c, ret_off);
}

static bool place_tensor(const mfile *g, mf_tensor *t, uint64_t off, err *e) {
  char what[96];
  snprintf(what, sizeof what, "tensor %.*s", (int)(t->name.n < 64 ? t->name.n : 64), t->name.p);
  if (off % g->align)
    return err_param(e, ERR_INPUT, what, "%s begins at offset %llu, not a multiple of the alignment %u: the file is damaged", what,
        (unsigned long long)off, g->align);
  uint64_t room_left = g->data_off <= g->size ? g->size - g->data_off : 0;
  if (off > room_left || t->bytes > room_left - off)
    return err_param(e, ERR_INPUT, what, "%s wants %llu bytes at byte %llu, but the file ends at byte %llu: it is cut off or damaged, fetch it again",
        what, (unsigned long long)t->bytes, (unsigned long long)(off > UINT64_MAX - g->data_off ? off : g->data_off + off),
        (unsigned long long)g->size);
  t->data = g->map + g->data_off + off;
  return true;
}

static int by_place(const void *a, const void *b) {
  const mf_tensor *x = *(const mf_tensor *const *)a, *y = *(const mf_tensor *const *)b;
  uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
  return p < q ? -1 : p > q;
}

static bool check_overlaps(const mfile *g, arena *mem, err *e) {
  const mf_tensor **order = ARENA_ARRAY(mem, const mf_tensor *, g->n_tensors ? g->n_tensors : 1);
  if (!order) return err_set(e, ERR_NOMEM, "out of memory for %llu tensors", (unsigned long long)g->n_tensors);
  for (uint64_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
  qsort(order, g->n_tensors, sizeof *order, by_place);
  for (uint64_t i = 1; i < g->n_tensors; i++) {
    const mf_tensor *a = order[i - 1], *b = order[i];
    if ((const uint8_t *)a->data + a->bytes > (const uint8_t *)b->data)
      return err_set(e, ERR_INPUT, "tensors %.*s and %.*s share bytes: the file is damaged", (int)(a->name.n < 64 ? a->name.n : 64), a->name.p,
          (int)(b->name.n < 64 ? b->name.n : 64), b->name.p);
  }
  return true;
}

static bool read_tensors(mfile *g, cursor *c, priv *pv) {
  g->tensors = ARENA_ARRAY(&pv->mem, mf_tensor, g->n_tensors ? g->n_tensors : 1);
  uint64_t *offs = ARENA_ARRAY(&pv->mem, uint64_t, g->n_tensors ? g->n_tensors : 1);
  if (!g->tensors || !offs) return err_set(c->e, ERR_NOMEM, "out of memory for %llu tensors", (unsigned long long)g->n_tensors);
  if (!table_init(&pv->names, &pv->mem, g->n_tensors, c->e)) return false;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    mf_tensor *t = &g->tensors[i];
    if (!take_tensor(c, i, t, &offs[i])) return false;
    uint32_t *slot = table_slot(&pv->names, g->tensors, sizeof *t, t->name);
    if (*slot) return err_param(c->e, ERR_INPUT, c->what, "%s is there twice: the file is damaged", c->what);
    *slot = (uint32_t)i + 1;
  }
  g->data_off = (c->pos + g->align - 1) / g->align * g->align;
  for (uint64_t i = 0; i < g->n_tensors; i++)
    if (!place_tensor(g, &g->tensors[i], offs[i], c->e)) return false;
  return check_overlaps(g, &pv->mem, c->e);
}

/* ---- opening ---------------------------------------------------------------------------------------------------------------- */

static bool read_magic(const uint8_t *p, uint64_t n, err *e) {
  if (n == 0) return err_set(e, ERR_INPUT, "the file is empty, expected a GGUF model: fetch it again");
  if (n < 4 || memcmp(p, "GGUF", 4) != 0) {
    char shown[20];
    int k = 0;
    for (uint64_t i = 0; i < 4 && i < n; i++)
      k += snprintf(shown + k, sizeof shown - (size_t)k, p[i] >= 0x20 && p[i] <= 0x7e ? "%c" : "\\x%02x", p[i]);
    return err_set(e, ERR_INPUT, "the file starts with \"%s\", not \"GGUF\": it is no GGUF model", shown);
  }
  if (n < HEADER)
    return err_set(
        e, ERR_INPUT, "the file is %llu bytes long, a GGUF header alone is %d: it is cut off, fetch it again", (unsigned long long)n, HEADER);
  return true;
}

static bool read_header(mfile *g, cursor *c) {
  if (!read_magic(c->base, c->size, c->e)) return false;
  g->version = peek32(c->base + 4);
  uint32_t swapped = __builtin_bswap32(g->version);
  if (swapped >= 1 && swapped <= 3)
    return err_set(c->e, ERR_UNSUPPORTED, "the file is GGUF version %u written big-endian; little-endian files are read: convert it", swapped);
  if (g->version == 1)
    return err_set(
        c->e, ERR_UNSUPPORTED, "the file is GGUF version 1, which was withdrawn; versions 2 and 3 are read: convert it or fetch a newer file");
  if (g->version < 2 || g->version > 3) return err_set(c->e, ERR_UNSUPPORTED, "the file is GGUF version %u; versions 2 and 3 are read", g->version);
  g->n_tensors = peek64(c->base + 8);
  g->n_vals = peek64(c->base + 16);
  c->pos = HEADER;
  uint64_t left = c->size - HEADER;
  if (g->n_vals > VALS_MAX || g->n_vals > left / PAIR_MIN)
    return err_set(c->e, ERR_INPUT, "the file says it has %llu metadata pairs; its %llu bytes and the bound of %d do not allow that: it is damaged",
        (unsigned long long)g->n_vals, (unsigned long long)c->size, VALS_MAX);
  if (g->n_tensors > TENSORS_MAX || g->n_tensors > left / INFO_MIN)
    return err_set(c->e, ERR_INPUT, "the file says it has %llu tensors; its %llu bytes and the bound of %d do not allow that: it is damaged",
        (unsigned long long)g->n_tensors, (unsigned long long)c->size, TENSORS_MAX);
  return true;
}

static bool read_align(mfile *g, err *e) {
  uint64_t a = 32;
  if (!mf_u64(g, "general.alignment", &a, e)) return false;
  if (a < ALIGN_MIN || a > ALIGN_MAX || (a & (a - 1)))
    return err_param(e, ERR_INPUT, "general.alignment", "general.alignment is %llu, expected a power of two from %d to %d", (unsigned long long)a,
        ALIGN_MIN, ALIGN_MAX);
  g->align = (uint32_t)a;
  return true;
}

/* Takes nothing: on failure the caller closes g. */
static bool read_all(mfile *g, err *e) {
  priv *pv = g->priv;
  cursor c = {.base = g->map, .size = g->size, .e = e};
  /* The tables' bound: the least pair (14 bytes) becomes a row and its slots (under 90), a string's 8 bytes a str of 16, the least tensor's 33 under
   * 130. */
  arena_init(&pv->mem, (size_t)g->size * 8 + 4096);
  pv->keys.seed = pv->names.seed = rng_seed();
  return read_header(g, &c) && read_vals(g, &c, pv) && read_align(g, e) && read_tensors(g, &c, pv);
}

static mfile *mf_new(err *e) {
  mfile *g = calloc(1, sizeof *g);
  if (g) g->priv = calloc(1, sizeof(priv));
  if (g && g->priv) {
    g->fd = -1;
    return g;
  }
  free(g);
  err_set(e, ERR_NOMEM, "out of memory");
  return NULL;
}

bool gguf_open_mem(const void *p, size_t n, mfile **ret, err *e) {
  mfile *g = mf_new(e);
  if (!g) return false;
  g->map = p;
  g->size = n;
  if (!read_all(g, e)) {
    mf_close(g);
    return false;
  }
  *ret = g;
  return true;
}

static bool map_file(mfile *g, const char *path, err *e) {
  struct stat st;
  g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO must be refused, not waited for */
  if (g->fd < 0) return err_errno(e, errno, "cannot open %s", path);
  if (fstat(g->fd, &st)) return err_errno(e, errno, "cannot look at %s", path);
  if (S_ISDIR(st.st_mode)) return err_set(e, ERR_INPUT, "%s is a folder: give the .gguf file in it", path);
  if (!S_ISREG(st.st_mode)) return err_set(e, ERR_INPUT, "%s is not a regular file", path);
  if (st.st_size == 0) return err_set(e, ERR_INPUT, "%s: the file is empty, expected a GGUF model: fetch it again", path);
  void *m = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, g->fd, 0);
  if (m == MAP_FAILED) return err_errno(e, errno, "cannot map %s", path);
  g->map = m;
  g->size = (uint64_t)st.st_size;
  return true;
}

bool gguf_open(const char *path, mfile **ret, err *e) {
  mfile *g = mf_new(e);
  if (!g) return false;
  if (!map_file(g, path, e)) {
    mf_close(g);
    return false;
  }
  if (!read_all(g, e)) {
    mf_close(g);
    return err_prefix(e, "%s", path);
  }
  *ret = g;
  return true;
}

void mf_close(mfile *g) {
  if (!g) return;
  if (g->fd >= 0) {
    if (g->map) munmap((void *)(uintptr_t)g->map, g->size);
    close(g->fd);
  }
  arena_fini(&((priv *)g->priv)->mem);
  free(g->priv);
  free(g);
}

void mf_drop_pages(const mfile *g, const void *p, uint64_t n) {
  if (g->fd < 0) return;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), a = (uint64_t)((const uint8_t *)p - g->map), b = a + n;
  /* Whole pages only, except at the file's end: a neighbour's bytes may still be wanted, and would be read again. */
  a = (a + page - 1) / page * page;
  b = b >= g->size ? g->size : b / page * page;
  if (a < b) madvise((void *)(uintptr_t)(g->map + a), b - a, MADV_DONTNEED);
}

/* ---- look-ups --------------------------------------------------------------------------------------------------------------- */

const mf_val *mf_get(const mfile *g, const char *key) {
  const priv *pv = g->priv;
  uint32_t s = *table_slot(&pv->keys, g->vals, sizeof *g->vals, str_c(key));
  return s ? &g->vals[s - 1] : NULL;
}

const mf_tensor *mf_find(const mfile *g, const char *name) {
  const priv *pv = g->priv;
  uint32_t s = *table_slot(&pv->names, g->tensors, sizeof *g->tensors, str_c(name));
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

static bool wrong_kind(const mf_val *v, const char *key, const char *want, err *e) {
  return err_param(e, ERR_INPUT, key, "metadata key %s is of kind %s, expected %s", key, kind_names[v->kind], want);
}

/* A whole number for the key; bool and the floats are refused. *ret_v NULL: absent. */
static bool whole(const mfile *g, const char *key, const mf_val **ret_v, number *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  *ret_v = v;
  if (!v) return true;
  *ret = read_number(v->kind, v->raw.p);
  if (v->kind == MF_BOOL || (ret->form != NUM_U && ret->form != NUM_I)) return wrong_kind(v, key, "a whole number", e);
  return true;
}

bool mf_u64(const mfile *g, const char *key, uint64_t *ret, err *e) {
  const mf_val *v;
  number n = {0};
  if (!whole(g, key, &v, &n, e)) return false;
  if (!v) return true;
  if (n.form == NUM_I) return err_param(e, ERR_INPUT, key, "metadata key %s is %lld, expected 0 or more", key, (long long)n.i);
  *ret = n.u;
  return true;
}

bool mf_i64(const mfile *g, const char *key, int64_t *ret, err *e) {
  const mf_val *v;
  number n = {0};
  if (!whole(g, key, &v, &n, e)) return false;
  if (!v) return true;
  if (n.form == NUM_U && n.u > INT64_MAX) return err_param(e, ERR_INPUT, key, "metadata key %s is %llu, too large", key, (unsigned long long)n.u);
  *ret = n.form == NUM_U ? (int64_t)n.u : n.i;
  return true;
}

static double number_f64(number n) { return n.form == NUM_U ? (double)n.u : n.form == NUM_I ? (double)n.i : n.form == NUM_F ? n.f : 0.0; }

bool mf_f64(const mfile *g, const char *key, double *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  number n = read_number(v->kind, v->raw.p);
  if (v->kind == MF_BOOL || n.form == NUM_NONE) return wrong_kind(v, key, "a number", e);
  double f = number_f64(n);
  if (!isfinite(f)) return err_param(e, ERR_INPUT, key, "metadata key %s is not a finite number", key);
  *ret = f;
  return true;
}

bool mf_bool(const mfile *g, const char *key, bool *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  if (v->kind != MF_BOOL) return wrong_kind(v, key, "bool", e);
  *ret = v->raw.p[0] != 0;
  return true;
}

bool mf_str(const mfile *g, const char *key, str *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  if (v->kind != MF_STR) return wrong_kind(v, key, "string", e);
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

const char *mf_kind_name(mf_kind k) { return kind_names[k]; }
