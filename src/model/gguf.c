/* Reading order: cursor (bounds), values, tensors, one file, a model in parts.
 * Every byte comes from a stranger. The one rule: nothing is read or sized before `room` has said that the file holds it, and no count is turned into
 * an allocation before it has been divided into the bytes that are left. Strings are never copied; they point into the map.
 * Format: GGUF specification, versions 2 and 3 (they differ only in the byte orders allowed). */
#include "model/gguf.h"
#include "base/os.h"
#include "model/mfile_build.h"
#include <stdio.h>
#include <stdlib.h>

enum {
  HEADER = 24,        /* magic, version, two counts */
  VALS_MAX = 1 << 16, /* metadata pairs; real files hold 20 to 60 */
  TENSORS_MAX = 1 << 17,
  KEY_MAX = 1 << 10,  /* the format allows 65,535; real keys are under 64 */
  STRS_MAX = 1 << 24, /* elements of one array of strings */
  NEST_MAX = 8,       /* arrays in arrays */
  ALIGN_MIN = 8,
  ALIGN_MAX = 1 << 20,
  PAIR_MIN = 8 + 1 + 4 + 1,         /* least bytes of a metadata pair: key of one byte, kind, a byte */
  INFO_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* least bytes of a tensor's row: name of one byte, n_dims, one dim, type, offset */
};

typedef struct cursor {
  const uint8_t *base;
  uint64_t pos, size;
  char what[96]; /* what is being read, for messages */
  err *e;
} cursor;

/* One file: the whole model, or the part of it that lies there. */
typedef struct part {
  mfile *g;
  int map; /* in g->maps */
  cursor c;
  mf_val *vals;
  uint64_t n_vals, n_tensors;
  uint32_t version;
  uint64_t align, data_off;
  uint64_t no, count, total; /* split.*: which of how many (0: not split), and the tensors of all together (0: not stated) */
} part;

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

/* ---- metadata --------------------------------------------------------------------------------------------------------------- */

static bool skip_array(cursor *c, int depth);

static bool skip_value(cursor *c, uint32_t kind, int depth) {
  str s;
  if (kind == MF_STR) return take_str(c, &s);
  if (kind == MF_ARR) return skip_array(c, depth + 1);
  uint64_t n = (uint64_t)mf_kind_size((mf_kind)kind);
  if (!room(c, n)) return false;
  c->pos += n;
  return true;
}

/* An array's head: kind of the elements and their count, which must fit in what is left of the file. */
static bool take_array_head(cursor *c, uint32_t *ret_kind, uint64_t *ret_n) {
  uint32_t k;
  uint64_t n;
  if (!take32(c, &k) || !take64(c, &n)) return false;
  if (k >= MF_KINDS)
    return err_param(c->e, ERR_INPUT, c->what, "%s is an array of kind %u, known are 0 to %d: the file is damaged", c->what, k, MF_KINDS - 1);
  uint64_t least = k == MF_STR ? 8 : k == MF_ARR ? 12 : (uint64_t)mf_kind_size((mf_kind)k);
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
  if (mf_kind_size((mf_kind)k)) {
    c->pos += n * (uint64_t)mf_kind_size((mf_kind)k);
    return true;
  }
  for (uint64_t i = 0; i < n; i++)
    if (!skip_value(c, k, depth)) return false;
  return true;
}

/* The elements of an array of strings. This loop is most of the time it takes to open a file (300,000 strings in a Qwen model), hence by hand. */
static bool take_strs(cursor *c, mfile *g, mf_val *v) {
  if (v->count > STRS_MAX)
    return err_param(c->e, ERR_INPUT, c->what, "%s has %llu strings, more than the bound of %d", c->what, (unsigned long long)v->count, STRS_MAX);
  str *out = mf_mem(g, v->count, sizeof *out, c->e);
  if (!out) return err_prefix(c->e, "the strings of %s", c->what);
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

static bool take_val(cursor *c, mfile *g, uint64_t index, mf_val *v) {
  uint32_t kind;
  if (!take_name(c, "metadata key", index, KEY_MAX, &v->key) || !take32(c, &kind)) return false;
  if (kind >= MF_KINDS)
    return err_param(c->e, ERR_INPUT, c->what, "%s is of kind %u, known are 0 to %d: the file is damaged", c->what, kind, MF_KINDS - 1);
  v->kind = (mf_kind)kind;
  uint64_t start = c->pos;
  if (kind == MF_ARR) {
    uint32_t elem;
    if (!take_array_head(c, &elem, &v->count)) return false;
    v->elem = (mf_kind)elem;
    if (elem == MF_STR) {
      if (!take_strs(c, g, v)) return false;
    } else if (elem == MF_ARR) {
      for (uint64_t i = 0; i < v->count; i++)
        if (!skip_array(c, 2)) return false;
    } else c->pos += v->count * (uint64_t)mf_kind_size(v->elem);
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

static bool read_vals(part *p) {
  p->vals = mf_mem(p->g, p->n_vals, sizeof *p->vals, p->c.e);
  if (!p->vals) return false;
  for (uint64_t i = 0; i < p->n_vals; i++)
    if (!take_val(&p->c, p->g, i, &p->vals[i])) return false;
  return true;
}

/* A whole number of this part's own metadata; absent: *ret untouched. */
static bool own_u64(const part *p, const char *key, uint64_t *ret) {
  for (uint64_t i = 0; i < p->n_vals; i++)
    if (str_is(p->vals[i].key, key)) return mf_val_u64(&p->vals[i], ret, p->c.e);
  return true;
}

/* A model's metadata are those of its only or first part. How it was split is no property of the model: once the parts are together it is left out.
 */
static bool add_vals(const part *p, bool joined) {
  for (uint64_t i = 0; i < p->n_vals; i++)
    if (!(joined && str_starts(p->vals[i].key, STR("split."))) && !mf_add_val(p->g, &p->vals[i], p->c.e)) return false;
  return true;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

/* *ret_off is the offset as written, relative to the data section, which is only known after the last row. */
static bool take_tensor(cursor *c, uint64_t index, mf_tensor *t, uint64_t *ret_off) {
  uint32_t n_dims, type;
  if (!take_name(c, "tensor", index, MF_NAME, &t->name) || !take32(c, &n_dims)) return false;
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
  return mf_tensor_size(t, c->what, c->e) && take64(c, ret_off);
}

static bool place_tensor(const part *p, mf_tensor *t, uint64_t off) {
  const mf_map *m = &p->g->maps[p->map];
  char what[96];
  snprintf(what, sizeof what, "tensor %.*s", (int)(t->name.n < 64 ? t->name.n : 64), t->name.p);
  if (off % p->align)
    return err_param(p->c.e, ERR_INPUT, what, "%s begins at offset %llu, not a multiple of the alignment %llu: the file is damaged", what,
        (unsigned long long)off, (unsigned long long)p->align);
  uint64_t room_left = p->data_off <= m->n ? m->n - p->data_off : 0;
  if (off > room_left || t->bytes > room_left - off)
    return err_param(p->c.e, ERR_INPUT, what,
        "%s wants %llu bytes at byte %llu, but the file ends at byte %llu: it is cut off or damaged, fetch it again", what,
        (unsigned long long)t->bytes, (unsigned long long)(off > UINT64_MAX - p->data_off ? off : p->data_off + off), (unsigned long long)m->n);
  t->data = m->p + p->data_off + off;
  return true;
}

static bool read_tensors(part *p) {
  cursor *c = &p->c;
  mf_tensor *rows = mf_mem(p->g, p->n_tensors, sizeof *rows, c->e);
  uint64_t *offs = rows ? mf_mem(p->g, p->n_tensors, sizeof *offs, c->e) : NULL;
  if (!offs) return false;
  for (uint64_t i = 0; i < p->n_tensors; i++)
    if (!take_tensor(c, i, &rows[i], &offs[i])) return false;
  p->data_off = (c->pos + p->align - 1) / p->align * p->align;
  mf_map *m = &p->g->maps[p->map];
  m->head = p->data_off < m->n ? p->data_off : m->n;
  for (uint64_t i = 0; i < p->n_tensors; i++)
    if (!place_tensor(p, &rows[i], offs[i]) || !mf_add_tensor(p->g, &rows[i], c->e)) return false;
  return true;
}

/* ---- one file --------------------------------------------------------------------------------------------------------------- */

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

static bool read_header(part *p, cursor *c) {
  if (!read_magic(c->base, c->size, c->e)) return false;
  p->version = peek32(c->base + 4);
  uint32_t swapped = __builtin_bswap32(p->version);
  if (swapped >= 1 && swapped <= 3)
    return err_set(c->e, ERR_UNSUPPORTED, "the file is GGUF version %u written big-endian; little-endian files are read: convert it", swapped);
  if (p->version == 1)
    return err_set(
        c->e, ERR_UNSUPPORTED, "the file is GGUF version 1, which was withdrawn; versions 2 and 3 are read: convert it or fetch a newer file");
  if (p->version < 2 || p->version > 3) return err_set(c->e, ERR_UNSUPPORTED, "the file is GGUF version %u; versions 2 and 3 are read", p->version);
  p->n_tensors = peek64(c->base + 8);
  p->n_vals = peek64(c->base + 16);
  c->pos = HEADER;
  uint64_t left = c->size - HEADER;
  if (p->n_vals > VALS_MAX || p->n_vals > left / PAIR_MIN)
    return err_set(c->e, ERR_INPUT, "the file says it has %llu metadata pairs; its %llu bytes and the bound of %d do not allow that: it is damaged",
        (unsigned long long)p->n_vals, (unsigned long long)c->size, VALS_MAX);
  if (p->n_tensors > TENSORS_MAX || p->n_tensors > left / INFO_MIN)
    return err_set(c->e, ERR_INPUT, "the file says it has %llu tensors; its %llu bytes and the bound of %d do not allow that: it is damaged",
        (unsigned long long)p->n_tensors, (unsigned long long)c->size, TENSORS_MAX);
  return true;
}

static bool read_align(part *p) {
  p->align = 32;
  if (!own_u64(p, "general.alignment", &p->align)) return false;
  if (p->align < ALIGN_MIN || p->align > ALIGN_MAX || (p->align & (p->align - 1)))
    return err_param(p->c.e, ERR_INPUT, "general.alignment", "general.alignment is %llu, expected a power of two from %d to %d",
        (unsigned long long)p->align, ALIGN_MIN, ALIGN_MAX);
  return true;
}

/* Header and metadata of the file that is map `map`; nothing is added to the model yet. */
static bool begin_part(mfile *g, int map, part *p, err *e) {
  *p = (part){.g = g, .map = map, .c = {.base = g->maps[map].p, .size = g->maps[map].n, .e = e}};
  return read_header(p, &p->c) && read_vals(p) && read_align(p) && own_u64(p, "split.no", &p->no) && own_u64(p, "split.count", &p->count) &&
         own_u64(p, "split.tensors.count", &p->total);
}

/* The rest of the only or first part. */
static bool finish_first(part *p, bool joined) {
  p->g->version = p->version;
  p->g->align = (uint32_t)p->align;
  return add_vals(p, joined) && read_tensors(p);
}

bool gguf_open_mem(const void *p, size_t n, mfile **ret, err *e) {
  mfile *g = mf_new(e);
  part whole;
  int map;
  if (!g) return false;
  if (!mf_map_lent(g, p, n, &map, e) || !begin_part(g, map, &whole, e) || !finish_first(&whole, false) || !mf_check_overlaps(g, e)) {
    mf_close(g);
    return false;
  }
  *ret = g;
  return true;
}

/* ---- a model in parts ------------------------------------------------------------------------------------------------------- */

int gguf_part_of(str name, int *ret_count) {
  enum { TAIL = sizeof "-00001-of-00002.gguf" - 1 };
  if (name.n <= TAIL) return 0;
  const char *p = name.p + name.n - TAIL;
  int no = 0, count = 0;
  for (int i = 0; i < 5; i++) {
    if (p[1 + i] < '0' || p[1 + i] > '9' || p[10 + i] < '0' || p[10 + i] > '9') return 0;
    no = no * 10 + (p[1 + i] - '0');
    count = count * 10 + (p[10 + i] - '0');
  }
  if (p[0] != '-' || memcmp(p + 6, "-of-", 4) != 0 || !str_is((str){p + 15, 5}, ".gguf") || no < 1 || no > count) return 0;
  *ret_count = count;
  return no;
}

bool gguf_part_path(const char *path, int no, char *out, size_t n) {
  int count, len = snprintf(out, n, "%s", path);
  if (len < 0 || (size_t)len >= n || !gguf_part_of(str_c(path), &count)) return false;
  char digits[16];
  snprintf(digits, sizeof digits, "%05d", no % 100000);
  memcpy(out + len - 19, digits, 5);
  return true;
}

static bool open_part(mfile *g, const char *path, part *p, err *e) {
  int map;
  return mf_map_path(g, path, &map, e) && (begin_part(g, map, p, e) || err_prefix(e, "%s", path));
}

/* That the name of a file which says it is one of several tells where the others are. */
static bool check_name(const char *path, const part *p, err *e) {
  int count = 0;
  if (gguf_part_of(str_c(path), &count) && (uint64_t)count == p->count) return true;
  return err_param(e, ERR_INPUT, "split.count",
      "%s says that it is part %llu of %llu of a model, but its name does not end in -%05llu-of-%05llu.gguf: without that the other parts cannot be "
      "found",
      path, (unsigned long long)p->no + 1, (unsigned long long)p->count, (unsigned long long)p->no + 1, (unsigned long long)p->count);
}

/* Part `no` (from 1) of the model that `first` is the beginning of. */
static bool join(const part *first, const char *path, int no, err *e) {
  char other[OS_PATH];
  part p;
  err why = {0};
  if (!gguf_part_path(path, no, other, sizeof other)) return err_set(e, ERR_INPUT, "the path is too long: %.80s...", path);
  if (!open_part(first->g, other, &p, &why)) {
    if (why.code == ERR_NOT_FOUND)
      return err_param(
          e, ERR_INPUT, "split.count", "part %d of %llu is missing: there is no %s, fetch it again", no, (unsigned long long)first->count, other);
    if (e) *e = why;
    return false;
  }
  p.c.e = e;
  if (p.count < 2)
    return err_param(e, ERR_INPUT, "split.count", "%s is no part of a model, expected part %d of %llu", other, no, (unsigned long long)first->count);
  if (p.no != (uint64_t)no - 1 || p.count != first->count || p.total != first->total)
    return err_param(e, ERR_INPUT, "split.no",
        "%s says that it is part %llu of %llu with %llu tensors in all, expected part %d of %llu with %llu: it belongs to another model", other,
        (unsigned long long)p.no + 1, (unsigned long long)p.count, (unsigned long long)p.total, no, (unsigned long long)first->count,
        (unsigned long long)first->total);
  return read_tensors(&p) || err_prefix(e, "%s", other);
}

/* `path` is the only or the first part. */
static bool open_all(mfile *g, const char *path, part *first, err *e) {
  bool split = first->count > 1;
  if (split && !check_name(path, first, e)) return false;
  if (!finish_first(first, split)) return err_prefix(e, "%s", path);
  for (uint64_t no = 2; split && no <= first->count; no++)
    if (!join(first, path, (int)no, e)) return false;
  if (split && first->total && g->n_tensors != first->total)
    return err_param(e, ERR_INPUT, "split.tensors.count",
        "%s and its other parts hold %llu tensors, but split.tensors.count is %llu: fetch them again", path, (unsigned long long)g->n_tensors,
        (unsigned long long)first->total);
  return mf_check_overlaps(g, e) || err_prefix(e, "%s", path);
}

/* Any part may be named; the metadata are in the first. */
static bool open_first(const char *path, char first_path[OS_PATH], mfile **g, part *p, err *e) {
  if (snprintf(first_path, OS_PATH, "%s", path) >= OS_PATH) return err_set(e, ERR_INPUT, "the path is too long: %.80s...", path);
  if (!open_part(*g, path, p, e)) return false;
  if (p->count < 2 || p->no == 0) return true;
  if (!check_name(path, p, e) || !gguf_part_path(path, 1, first_path, OS_PATH)) return false;
  mf_close(*g);
  *g = mf_new(e);
  err why = {0};
  if (!*g) return false;
  if (!open_part(*g, first_path, p, &why)) {
    if (e) *e = why;
    return why.code == ERR_NOT_FOUND ? err_param(e, ERR_INPUT, "split.no", "part 1 is missing: there is no %s, fetch it again", first_path) : false;
  }
  p->c.e = e;
  if (p->no == 0 && p->count > 1) return true;
  return err_param(e, ERR_INPUT, "split.no", "%s does not say that it is part 1, as its name does: it belongs to another model", first_path);
}

bool gguf_open(const char *path, mfile **ret, err *e) {
  mfile *g = mf_new(e);
  part first;
  char first_path[OS_PATH];
  if (!g) return false;
  if (!open_first(path, first_path, &g, &first, e) || !open_all(g, first_path, &first, e)) {
    mf_close(g);
    return false;
  }
  *ret = g;
  return true;
}
