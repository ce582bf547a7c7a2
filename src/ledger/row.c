/* Packed form: for each column that is there its number (a byte) and its value: a whole number as a zigzag varint, a double as 8 bytes, a text as
 * length (varint) and bytes. A column that a reader does not know ends its reading: columns are only ever added, so it was written by a newer
 * program. */
#include "ledger/row.h"
#include <stddef.h>

static const led_col cols[] = {
#define X(type, name, help) {#name, help, LED_##type, offsetof(led_row, name)},
    LED_COLUMNS(X)
#undef X
};
enum { N_COLS = sizeof cols / sizeof *cols };
_Static_assert(N_COLS < 256, "a column's number is a byte");

const led_col *led_cols(int *ret_n) {
  *ret_n = N_COLS;
  return cols;
}

const led_col *led_col_find(str name) {
  for (int i = 0; i < N_COLS; i++)
    if (str_is(name, cols[i].name)) return &cols[i];
  return NULL;
}

void led_row_init(led_row *r) {
  memset(r, 0, sizeof *r);
  for (int i = 0; i < N_COLS; i++) {
    if (cols[i].type == LED_INT) *(int64_t *)((char *)r + cols[i].off) = LED_NULL;
    if (cols[i].type == LED_REAL) *(double *)((char *)r + cols[i].off) = NAN;
  }
}

static void put_varint(buf *b, uint64_t v) {
  for (; v >= 0x80; v >>= 7) buf_putc(b, (char)(v | 0x80));
  buf_putc(b, (char)v);
}

static void put_text(buf *b, int col, str s) {
  size_t max = &cols[col] == led_col_find(STR("hash_ids")) ? LED_HASHES_MAX : LED_TEXT_MAX;
  if (s.n > max) s.n = utf8_valid_prefix((str){s.p, max}, NULL);
  if (b->n + s.n + 8 > LED_PACK_MAX - 64 * 12) return; /* room for every number stays */
  buf_putc(b, (char)col);
  put_varint(b, s.n);
  buf_str(b, s);
}

static void put_col(buf *b, int i, const void *at) {
  switch (cols[i].type) {
  case LED_WORD:
  case LED_TEXT:
    if (((const str *)at)->p) put_text(b, i, *(const str *)at);
    return;
  case LED_INT: {
    int64_t v = *(const int64_t *)at;
    if (v == LED_NULL) return;
    buf_putc(b, (char)i);
    put_varint(b, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
    return;
  }
  case LED_REAL:
    if (isnan(*(const double *)at)) return;
    buf_putc(b, (char)i);
    buf_put(b, at, 8);
  }
}

void led_pack(const led_row *r, buf *out) {
  size_t start = out->n;
  buf part;
  buf_init(&part, LED_PACK_MAX);
  for (int i = 0; i < N_COLS; i++) put_col(&part, i, led_at(r, &cols[i]));
  buf_str(out, buf_view(&part));
  if (part.failed) out->n = start, out->failed = true;
  buf_fini(&part);
}

typedef struct reader {
  const uint8_t *p, *end;
} reader;

static bool take_varint(reader *r, uint64_t *ret) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64 && r->p < r->end; shift += 7) {
    uint8_t c = *r->p++;
    v |= (uint64_t)(c & 0x7f) << shift;
    if (!(c & 0x80)) {
      *ret = v;
      return true;
    }
  }
  return false;
}

static bool take_col(reader *r, const led_col *c, void *at) {
  uint64_t v;
  if (c->type == LED_REAL) {
    if (r->end - r->p < 8) return false;
    memcpy(at, r->p, 8);
    r->p += 8;
    return true;
  }
  if (!take_varint(r, &v)) return false;
  if (c->type == LED_INT) {
    *(int64_t *)at = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
    return true;
  }
  if (v > (uint64_t)(r->end - r->p)) return false;
  *(str *)at = (str){(const char *)r->p, (size_t)v};
  r->p += v;
  return true;
}

bool led_unpack(str bytes, led_row *ret, err *e) {
  led_row row;
  reader r = {(const uint8_t *)bytes.p, (const uint8_t *)bytes.p + bytes.n};
  led_row_init(&row);
  while (r.p < r.end) {
    int i = *r.p++;
    if (i >= N_COLS)
      return err_set(e, ERR_INPUT, "a record of the journal has column %d, this version knows %d: it was written by a newer weir", i, N_COLS);
    if (!take_col(&r, &cols[i], (char *)&row + cols[i].off))
      return err_set(e, ERR_INPUT, "a record of the journal is cut off in column %s", cols[i].name);
  }
  *ret = row;
  return true;
}
