/* A model file is a stranger's: every way of lying that the format allows has a row here and a message that names it, and thousands of damaged files
 * must be refused or read without a byte outside them (run under the address sanitizer by script/sanitize). */
#include "gguf_build.h"
#include "base/half.h"
#include "base/rng.h"
#include "model/arch.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define TINY TEST_SRC "/tests/golden/tiny/tiny-llama-q.gguf"

/* ---- good files ------------------------------------------------------------------------------------------------------------- */

static void fill(gb *b) {
  gb_init(b);
  gb_u32(b, "a.u32", 7);
  gb_f32(b, "a.f32", 0.5f);
  gb_str(b, "a.str", "text");
  gb_strs(b, "a.strs", 3, "abc");
  gb_key(b, "a.bool", MF_BOOL), buf_putc(&b->vals, 1);
  gb_key(b, "a.i8", MF_I8), buf_putc(&b->vals, -5);
  gb_key(b, "a.u64", MF_U64), gb_64(&b->vals, UINT64_MAX);
  gb_key(b, "a.i64", MF_I64), gb_64(&b->vals, (uint64_t)-9);
  gb_key(b, "a.nan", MF_F32), gb_32(&b->vals, bits_of_f32(NAN));
  gb_key(b, "a.ints", MF_ARR), gb_32(&b->vals, MF_I32), gb_64(&b->vals, 2), gb_32(&b->vals, 1), gb_32(&b->vals, (uint32_t)-2);
  gb_key(b, "a.nested", MF_ARR), gb_32(&b->vals, MF_ARR), gb_64(&b->vals, 2);
  for (int i = 0; i < 2; i++) gb_32(&b->vals, MF_U8), gb_64(&b->vals, 3), buf_puts(&b->vals, "xyz");
  gb_str(b, "a.empty", "");
  gb_tensor(b, "one", 64, 2, WT_Q4_0);
  gb_tensor(b, "two", 5, 0, WT_F32);
}

static void check_values(const mfile *g) {
  err e = {0};
  uint64_t u = 1;
  int64_t i = 1;
  double f = 1;
  bool b = false;
  str s = {0};
  assert_true(mf_u64(g, "a.u32", &u, &e) && u == 7);
  assert_true(mf_i64(g, "a.i8", &i, &e) && i == -5);
  assert_true(mf_i64(g, "a.i64", &i, &e) && i == -9);
  assert_true(mf_u64(g, "a.u64", &u, &e) && u == UINT64_MAX);
  assert_true(mf_f64(g, "a.f32", &f, &e) && f == 0.5);
  assert_true(mf_f64(g, "a.u32", &f, &e) && f == 7);
  assert_true(mf_bool(g, "a.bool", &b, &e) && b);
  assert_true(mf_str(g, "a.str", &s, &e) && str_is(s, "text"));
  assert_true(mf_str(g, "a.empty", &s, &e) && s.n == 0 && s.p);
  const mf_val *v = mf_get(g, "a.strs");
  assert_true(v && v->count == 3 && str_is(v->strs[2], "abc"));
  v = mf_get(g, "a.ints");
  assert_true(mf_elem_i64(v, 1) == -2 && mf_elem_f64(v, 0) == 1 && mf_elem_i64(v, 2) == 0);
  v = mf_get(g, "a.nested");
  assert_true(v && v->count == 2 && !v->strs && v->raw.n == 2 * (4 + 8 + 3) && mf_elem_i64(v, 0) == 0);
  /* Absent: untouched and no error. */
  u = 42;
  assert_true(mf_u64(g, "a.absent", &u, &e) && u == 42 && !mf_get(g, "a.absent"));
}

static void check_refusals(const mfile *g) {
  err e = {0};
  uint64_t u = 42;
  int64_t i = 42;
  double f = 42;
  bool b = true;
  str s = STR("kept");
  assert_false(mf_u64(g, "a.i8", &u, &e));
  assert_string_equal(e.param, "a.i8");
  assert_non_null(strstr(e.msg, "a.i8 is -5"));
  assert_false(mf_i64(g, "a.u64", &i, &e));
  assert_false(mf_u64(g, "a.bool", &u, &e));
  assert_non_null(strstr(e.msg, "a.bool is of kind bool, expected a whole number"));
  assert_false(mf_u64(g, "a.str", &u, &e));
  assert_false(mf_u64(g, "a.f32", &u, &e));
  assert_false(mf_f64(g, "a.strs", &f, &e));
  assert_false(mf_f64(g, "a.nan", &f, &e));
  assert_false(mf_bool(g, "a.u32", &b, &e));
  assert_false(mf_str(g, "a.u32", &s, &e));
  assert_int_equal(e.code, ERR_INPUT);
  assert_true(u == 42 && i == 42 && f == 42 && b && str_is(s, "kept"));
}

static void test_good(void **st) {
  (void)st;
  for (uint32_t version = 2; version <= 3; version++) {
    gb b;
    err e = {0};
    mfile *g = NULL;
    uint8_t *file;
    fill(&b);
    b.version = version;
    if (!gb_open(&b, &file, &g, &e)) fail_msg("%s", e.msg);
    assert_true(g->version == version && g->n_vals == b.n_vals && g->n_tensors == 2 && g->align == 32);
    check_values(g);
    check_refusals(g);
    const mf_tensor *one = mf_find(g, "one"), *two = mf_find(g, "two");
    assert_true(one && two && !mf_find(g, "three") && !mf_find(g, ""));
    assert_true(one->bytes == 4 * 18 && one->ne[0] == 64 && one->ne[1] == 2 && one->ne[3] == 1 && one->n_dims == 2);
    assert_true((const uint8_t *)two->data == (const uint8_t *)one->data + 96 && two->bytes == 20);
    mf_close(g);
    free(file);
    gb_fini(&b);
  }
}

/* ---- one lie at a time ------------------------------------------------------------------------------------------------------ */

static void raw_key_len(gb *b, uint64_t n) { gb_64(&b->vals, n), gb_64(&b->vals, 0), b->n_vals++; }
static void array_of(gb *b, uint32_t elem, uint64_t count) { gb_key(b, "k", MF_ARR), gb_32(&b->vals, elem), gb_64(&b->vals, count); }
static void info1(gb *b, uint64_t ne0, uint32_t type, uint64_t off) { gb_info(b, "t", 1, &ne0, type, off); }

static void version1(gb *b) { b->version = 1; }
static void version4(gb *b) { b->version = 4; }
static void big_endian(gb *b) { b->version = 3u << 24; }
static void many_vals(gb *b) { b->n_vals = UINT64_MAX; }
static void some_vals(gb *b) { gb_u32(b, "k", 1), gb_tensor(b, "t", 64, 0, WT_F32), b->n_vals++; }
static void many_tensors(gb *b) { b->n_tensors = 1ull << 62; }
static void some_tensors(gb *b) { gb_tensor(b, "t", 64, 0, WT_F32), b->n_tensors++; }
static void key_empty(gb *b) { gb_u32(b, "", 1); }
static void key_huge(gb *b) { raw_key_len(b, UINT64_MAX - 3); }
static void key_long(gb *b) {
  char k[2001];
  memset(k, 'k', 2000);
  k[2000] = 0;
  gb_u32(b, k, 1);
}
static void key_control(gb *b) { gb_u32(b, "a\nb", 1); }
static void key_latin(gb *b) { gb_u32(b, "caf\xe9", 1); }
static void key_twice(gb *b) { gb_u32(b, "same", 1), gb_u32(b, "same", 2); }
static void kind_unknown(gb *b) { gb_key(b, "k", 13), gb_64(&b->vals, 0); }
static void bool_two(gb *b) { gb_key(b, "k", MF_BOOL), buf_putc(&b->vals, 2); }
static void str_huge(gb *b) { gb_key(b, "k", MF_STR), gb_64(&b->vals, 1ull << 63); }
static void arr_huge(gb *b) { array_of(b, MF_F64, 1ull << 61), gb_64(&b->vals, 0); }
static void arr_strs_huge(gb *b) { array_of(b, MF_STR, 1ull << 40), gb_64(&b->vals, 0); }
static void arr_kind(gb *b) { array_of(b, 99, 1), gb_64(&b->vals, 0); }
static void arr_str_end(gb *b) { array_of(b, MF_STR, 2), gb_text(&b->vals, "x"), gb_64(&b->vals, 1ull << 50); }
static void arr_deep(gb *b) {
  array_of(b, MF_ARR, 1);
  for (int i = 0; i < 40; i++) gb_32(&b->vals, MF_ARR), gb_64(&b->vals, 1);
}
static void align_odd(gb *b) { gb_u32(b, "general.alignment", 48); }
static void align_zero(gb *b) { gb_u32(b, "general.alignment", 0); }
static void align_small(gb *b) { gb_u32(b, "general.alignment", 4); }
static void align_kind(gb *b) { gb_str(b, "general.alignment", "32"); }
static void name_empty(gb *b) { gb_info(b, "", 1, (uint64_t[]){4}, WT_F32, 0); }
static void name_twice(gb *b) { gb_tensor(b, "t", 4, 0, WT_F32), gb_tensor(b, "t", 4, 0, WT_F32); }
static void dims_none(gb *b) { gb_info(b, "t", 0, NULL, WT_F32, 0); }
static void dims_five(gb *b) { gb_info(b, "t", 5, (uint64_t[]){1, 1, 1, 1, 1}, WT_F32, 0); }
static void dim_zero(gb *b) { info1(b, 0, WT_F32, 0); }
static void dim_huge(gb *b) { info1(b, UINT64_MAX, WT_F32, 0); }
static void dims_wrap(gb *b) { gb_info(b, "t", 4, (uint64_t[]){1ull << 32, 1ull << 32, 4, 1}, WT_F32, 0); }
static void bytes_wrap(gb *b) { info1(b, 1ull << 62, WT_F32, 0); }
static void block_part(gb *b) { info1(b, 33, WT_Q4_0, 0); }
static void type_gone(gb *b) { info1(b, 32, 4, 0); } /* Q4_2, withdrawn */
static void type_new(gb *b) { info1(b, 32, 1000, 0); }
static void off_odd(gb *b) { info1(b, 4, WT_F32, 8), b->data = 64; }
static void off_far(gb *b) { info1(b, 4, WT_F32, 1 << 20), b->data = 64; }
static void off_wrap(gb *b) { info1(b, 4, WT_F32, UINT64_MAX - 31), b->data = 64; }
static void data_short(gb *b) { info1(b, 1000, WT_F32, 0), b->data = 64; }
static void overlap(gb *b) { gb_info(b, "t", 1, (uint64_t[]){16}, WT_F32, 0), gb_info(b, "u", 1, (uint64_t[]){4}, WT_F32, 32), b->data = 64; }
static void same_place(gb *b) { gb_info(b, "t", 1, (uint64_t[]){4}, WT_F32, 0), gb_info(b, "u", 1, (uint64_t[]){4}, WT_F32, 0), b->data = 64; }

static const struct lie {
  const char *name;
  void (*tell)(gb *b);
  err_code code;
  const char *part; /* of the message */
} lies[] = {
    {"version 1", version1, ERR_UNSUPPORTED, "version 1"},
    {"version 4", version4, ERR_UNSUPPORTED, "version 4; versions 2 and 3 are read"},
    {"big-endian", big_endian, ERR_UNSUPPORTED, "version 3 written big-endian"},
    {"metadata without end", many_vals, ERR_INPUT, "18446744073709551615 metadata pairs"},
    {"more metadata than there is", some_vals, ERR_INPUT, "tensor 0 has a name of 0 bytes"},
    {"tensors without end", many_tensors, ERR_INPUT, "4611686018427387904 tensors"},
    {"more tensors than there are", some_tensors, ERR_INPUT, "tensor 1 has"},
    {"empty key", key_empty, ERR_INPUT, "a name of 0 bytes"},
    {"key of endless length", key_huge, ERR_INPUT, "cut off or damaged"},
    {"key over the bound", key_long, ERR_INPUT, "a name of 2000 bytes, expected 1 to 1024"},
    {"control character in a key", key_control, ERR_INPUT, "byte 0x0a in its name"},
    {"key that is not ASCII", key_latin, ERR_INPUT, "byte 0xe9 in its name"},
    {"key twice", key_twice, ERR_INPUT, "metadata key same is there twice"},
    {"unknown kind", kind_unknown, ERR_INPUT, "metadata key k is of kind 13"},
    {"bool that is 2", bool_two, ERR_INPUT, "metadata key k is a bool of value 2"},
    {"string of endless length", str_huge, ERR_INPUT, "metadata key k wants 9223372036854775808 bytes"},
    {"array whose size wraps", arr_huge, ERR_INPUT, "metadata key k says it has 2305843009213693952 elements"},
    {"array of strings without end", arr_strs_huge, ERR_INPUT, "metadata key k says it has 1099511627776 elements"},
    {"array of unknown kind", arr_kind, ERR_INPUT, "metadata key k is an array of kind 99"},
    {"string in an array without end", arr_str_end, ERR_INPUT, "string 1 of metadata key k"},
    {"arrays in arrays in arrays", arr_deep, ERR_INPUT, "metadata key k nests arrays more than 8 deep"},
    {"alignment 48", align_odd, ERR_INPUT, "general.alignment is 48, expected a power of two"},
    {"alignment 0", align_zero, ERR_INPUT, "general.alignment is 0"},
    {"alignment 4", align_small, ERR_INPUT, "general.alignment is 4"},
    {"alignment as text", align_kind, ERR_INPUT, "general.alignment is of kind string"},
    {"tensor without a name", name_empty, ERR_INPUT, "tensor 0 has a name of 0 bytes"},
    {"tensor twice", name_twice, ERR_INPUT, "tensor t is there twice"},
    {"no dimensions", dims_none, ERR_INPUT, "tensor t has 0 dimensions"},
    {"five dimensions", dims_five, ERR_INPUT, "tensor t has 5 dimensions"},
    {"dimension 0", dim_zero, ERR_INPUT, "tensor t has 0 elements in dimension 0"},
    {"dimension without end", dim_huge, ERR_INPUT, "tensor t has 18446744073709551615 elements"},
    {"product that wraps", dims_wrap, ERR_INPUT, "more than can be counted"},
    {"bytes that wrap", bytes_wrap, ERR_INPUT, "tensor t is larger than can be counted"},
    {"part of a block", block_part, ERR_INPUT, "tensor t has rows of 33 elements, not a multiple of the 32 a block of Q4_0"},
    {"withdrawn type", type_gone, ERR_UNSUPPORTED, "tensor t is of type number 4"},
    {"type of the future", type_new, ERR_UNSUPPORTED, "tensor t is of type number 1000"},
    {"unaligned offset", off_odd, ERR_INPUT, "tensor t begins at offset 8, not a multiple of the alignment 32"},
    {"offset beyond the end", off_far, ERR_INPUT, "tensor t wants 16 bytes"},
    {"offset that wraps", off_wrap, ERR_INPUT, "tensor t wants 16 bytes"},
    {"data beyond the end", data_short, ERR_INPUT, "tensor t wants 4000 bytes"},
    {"overlap", overlap, ERR_INPUT, "tensors t and u share bytes"},
    {"same place", same_place, ERR_INPUT, "share bytes"},
};

static void test_lies(void **st) {
  (void)st;
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    const struct lie *l = &lies[i];
    gb b;
    err e = {0};
    mfile *g = NULL;
    uint8_t *file;
    gb_init(&b);
    l->tell(&b);
    if (gb_open(&b, &file, &g, &e)) fail_msg("%s: the file was read", l->name);
    if (e.code != l->code || !strstr(e.msg, l->part)) fail_msg("%s: expected \"%s\", saw code %d, \"%s\"", l->name, l->part, e.code, e.msg);
    assert_null(g);
    free(file);
    gb_fini(&b);
  }
}

/* ---- what a path can stand for ---------------------------------------------------------------------------------------------- */

static void refuse_path(const char *path, err_code code, const char *part) {
  err e = {0};
  mfile *g = NULL;
  assert_false(gguf_open(path, &g, &e));
  if (e.code != code || !strstr(e.msg, part) || !strstr(e.msg, path)) fail_msg("%s: expected \"%s\", saw code %d, \"%s\"", path, part, e.code, e.msg);
}

static void refuse_bytes(const char *bytes, size_t n, const char *part) {
  char path[] = "/tmp/weir-test-gguf-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
  close(fd);
  refuse_path(path, ERR_INPUT, part);
  unlink(path);
}

static void test_paths(void **st) {
  (void)st;
  char fifo[] = "/tmp/weir-test-gguf-XXXXXX";
  refuse_path("/nonexistent/model.gguf", ERR_NOT_FOUND, "No such file");
  refuse_path("/tmp", ERR_INPUT, "is a folder: give a file in it");
  refuse_path("/dev/null", ERR_INPUT, "is not a regular file");
  assert_non_null(mkdtemp(fifo));
  rmdir(fifo);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  refuse_path(fifo, ERR_INPUT, "is not a regular file"); /* and does not wait for a writer */
  unlink(fifo);
  refuse_bytes("", 0, "the file is empty");
  refuse_bytes("GG", 2, "starts with \"GG\", not \"GGUF\"");
  refuse_bytes("PK\x03\x04 and so on", 15, "starts with \"PK\\x03\\x04\", not \"GGUF\"");
  refuse_bytes("GGUF\x03\0\0\0", 8, "8 bytes long, a GGUF header alone is 24");
  refuse_bytes(
      "GGUF\x03\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 37, "do not allow that"); /* 37 bytes that promise a tensor */
}

/* ---- damage ----------------------------------------------------------------------------------------------------------------- */

/* Everything that is handed out is touched, so that a sanitizer sees a pointer that leads outside. */
static uint64_t touch(const mfile *g) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < g->n_vals; i++) {
    const mf_val *v = &g->vals[i];
    for (size_t k = 0; k < v->raw.n; k++) sum += (uint8_t)v->raw.p[k];
    for (uint64_t k = 0; v->strs && k < v->count; k++) sum += v->strs[k].n ? (uint8_t)v->strs[k].p[v->strs[k].n - 1] : 0;
    sum += (uint64_t)mf_elem_i64(v, 0) + (uint64_t)(v->kind == MF_ARR && v->count ? mf_elem_i64(v, v->count - 1) : 0);
  }
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    const uint8_t *p = g->tensors[i].data;
    sum += p[0] + p[g->tensors[i].bytes - 1];
  }
  return sum;
}

/* Opens n bytes and reads the description. A refusal must say something and keep its hands off the output. Returns whether it went through. */
static bool survive(const uint8_t *p, size_t n) {
  err e = {0};
  mfile *g = NULL;
  arch a;
  if (!gguf_open_mem(p, n, &g, &e)) {
    assert_true(e.code != ERR_NONE && e.code != ERR_INTERNAL && e.code != ERR_NOMEM && e.msg[0]);
    assert_null(g);
    return false;
  }
  volatile uint64_t sink = touch(g);
  (void)sink;
  bool ok = arch_read(g, NULL, &a, &e);
  assert_true(ok || e.msg[0]);
  if (ok) assert_true(arch_read_bytes(g, &a) > 0 && arch_kv_bytes(&a, 2) > 0);
  mf_close(g);
  return ok;
}

static uint8_t *load(const char *path, size_t *ret_n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  uint8_t *p = malloc(1 << 20);
  *ret_n = fread(p, 1, 1 << 20, f);
  fclose(f);
  return p;
}

/* Exactly the bytes that are allowed. */
static uint8_t *exact(const uint8_t *p, size_t n) {
  uint8_t *q = malloc(n ? n : 1);
  assert_non_null(q);
  memcpy(q, p, n);
  return q;
}

static uint64_t data_begin(const uint8_t *p, size_t n) {
  mfile *g;
  err e = {0};
  if (!gguf_open_mem(p, n, &g, &e)) fail_msg("%s", e.msg);
  uint64_t off = g->maps[0].head;
  mf_close(g);
  return off;
}

static void test_truncated(void **st) {
  (void)st;
  size_t n;
  uint8_t *file = load(TINY, &n);
  assert_true(survive(file, n));
  uint64_t head = data_begin(file, n);
  for (size_t k = 0; k < n; k += k < head ? 7 : 64) {
    uint8_t *cut = exact(file, k);
    if (survive(cut, k)) fail_msg("%zu of %zu bytes were taken for a whole model", k, n);
    free(cut);
  }
  free(file);
}

/* One to four bytes of the header, metadata or tensor table changed: a bit flipped, or a value that lengths and counts like to break at. */
static void test_flipped(void **st) {
  (void)st;
  static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff};
  size_t n;
  uint8_t *file = load(TINY, &n);
  uint64_t head = data_begin(file, n);
  rng r = rng_new(20240607);
  int passed = 0, refused = 0;
  for (int i = 0; i < 6000; i++) {
    uint8_t *bad = exact(file, n);
    /* Most of the table is the vocabulary; half the hits go where the structure is. */
    int hits = 1 + (int)rng_below(&r, 4);
    for (int k = 0; k < hits; k++) {
      uint64_t at = rng_below(&r, 2) ? rng_below(&r, head) : rng_below(&r, 2) ? rng_below(&r, 800) : head - 1 - rng_below(&r, 1200);
      if (rng_below(&r, 2)) bad[at] ^= (uint8_t)(1u << rng_below(&r, 8));
      else bad[at] = edges[rng_below(&r, sizeof edges)];
    }
    *(survive(bad, n) ? &passed : &refused) += 1;
    free(bad);
  }
  print_message("%d damaged files: %d read, %d refused\n", passed + refused, passed, refused);
  assert_true(passed > 100 && refused > 1000); /* the damage reached both */
  free(file);
}

/* Each 8-byte field that could be a length or a count, set to values around the wrap, one after the other. */
static void test_lengths(void **st) {
  (void)st;
  static const uint64_t values[] = {0, 1, 1ull << 31, 1ull << 32, (1ull << 63) - 1, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};
  size_t n;
  uint8_t *file = load(TINY, &n);
  uint64_t head = data_begin(file, n);
  uint8_t *bad = exact(file, n);
  for (uint64_t at = 4; at + 8 <= head; at += at < 1200 || at > head - 1500 ? 1 : 5)
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      memcpy(bad + at, &values[v], 8);
      survive(bad, n);
      memcpy(bad + at, file + at, 8);
    }
  free(bad);
  free(file);
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

static void test_many_names(void **st) {
  (void)st;
  gb b;
  err e = {0};
  mfile *g = NULL;
  uint8_t *file;
  char key[32];
  gb_init(&b);
  b.vals.max = 8 << 20;
  for (uint32_t i = 0; i < 60000; i++) {
    snprintf(key, sizeof key, "key.%u", i);
    gb_u32(&b, key, i);
  }
  if (!gb_open(&b, &file, &g, &e)) fail_msg("%s", e.msg);
  for (uint32_t i = 0; i < 60000; i++) {
    uint64_t v = 0;
    snprintf(key, sizeof key, "key.%u", i);
    assert_true(mf_u64(g, key, &v, &e) && v == i);
  }
  assert_null(mf_get(g, "key.60000"));
  mf_close(g);
  free(file);
  gb_fini(&b);
}

/* ---- a model in parts ------------------------------------------------------------------------------------------------------- */

/* tiny-llama-q.gguf, written in three parts by the format's own package (tools/make_tiny_hf.py). */
#define PARTS TEST_SRC "/tests/golden/hf/tiny-llama-q-0000%d-of-00003.gguf"

static bool same_model(const mfile *a, const mfile *b) {
  bool same = a->n_tensors == b->n_tensors && a->n_vals == b->n_vals;
  for (uint64_t i = 0; same && i < a->n_tensors; i++) {
    const mf_tensor *t = &a->tensors[i], *u = NULL;
    for (uint64_t k = 0; k < b->n_tensors && !u; k++)
      if (str_eq(b->tensors[k].name, t->name)) u = &b->tensors[k];
    same = u && u->type == t->type && u->bytes == t->bytes && memcmp(u->data, t->data, t->bytes) == 0;
  }
  for (uint64_t i = 0; same && i < a->n_vals; i++) {
    const mf_val *v = NULL;
    for (uint64_t k = 0; k < b->n_vals && !v; k++)
      if (str_eq(b->vals[k].key, a->vals[i].key)) v = &b->vals[k];
    same = v && v->kind == a->vals[i].kind && str_eq(v->raw, a->vals[i].raw);
  }
  return same;
}

static void test_parts(void **st) {
  (void)st;
  mfile *whole = NULL, *g = NULL;
  arch a;
  err e = {0};
  if (!gguf_open(TINY, &whole, &e)) fail_msg("%s", e.msg);
  for (int i = 1; i <= 3; i++) {
    char path[512];
    snprintf(path, sizeof path, PARTS, i);
    if (!gguf_open(path, &g, &e)) fail_msg("%s", e.msg);
    assert_int_equal(g->n_maps, 3);
    assert_true(same_model(whole, g) && same_model(g, whole));
    if (!arch_read(g, NULL, &a, &e)) fail_msg("%s", e.msg);
    mf_close(g);
  }
  mf_close(whole);
  /* One part as bytes alone is no model, and says why. */
  size_t n;
  char path[512];
  snprintf(path, sizeof path, PARTS, 1);
  uint8_t *one = load(path, &n);
  if (!gguf_open_mem(one, n, &g, &e)) fail_msg("%s", e.msg);
  assert_false(arch_read(g, NULL, &a, &e));
  assert_non_null(strstr(e.msg, "one of 3 parts"));
  mf_close(g);
  free(one);
}

typedef struct parts {
  char dir[64], path[4][128];
} parts;

static void put_part(parts *p, int as, int from) {
  char src[512];
  snprintf(src, sizeof src, PARTS, from);
  snprintf(p->path[as], sizeof p->path[as], "%s/m-0000%d-of-00003.gguf", p->dir, as);
  unlink(p->path[as]);
  assert_int_equal(symlink(src, p->path[as]), 0);
}

static void refuse_parts(const char *path, const char *part) {
  err e = {0};
  mfile *g = NULL;
  if (gguf_open(path, &g, &e)) fail_msg("%s: was read, but not all of it is there", path);
  if (e.code != ERR_INPUT || !strstr(e.msg, part)) fail_msg("%s: expected \"%s\", saw code %d, \"%s\"", path, part, e.code, e.msg);
}

static void test_bad_parts(void **st) {
  (void)st;
  parts p = {.dir = "/tmp/weir-test-parts-XXXXXX"};
  char odd[128];
  assert_non_null(mkdtemp(p.dir));
  put_part(&p, 2, 2);
  refuse_parts(p.path[2], "part 1 is missing: there is no /tmp/weir-test-parts-");
  put_part(&p, 1, 1);
  refuse_parts(p.path[1], "part 3 of 3 is missing: there is no /tmp/weir-test-parts-");
  put_part(&p, 3, 2);
  refuse_parts(
      p.path[1], "m-00003-of-00003.gguf says that it is part 2 of 3 with 20 tensors in all, expected part 3 of 3 with 20: it belongs to another");
  put_part(&p, 3, 3);
  put_part(&p, 1, 3);
  refuse_parts(p.path[2], "m-00001-of-00003.gguf does not say that it is part 1");
  unlink(p.path[3]);
  assert_int_equal(symlink(TINY, p.path[3]), 0);
  put_part(&p, 1, 1);
  refuse_parts(p.path[1], "m-00003-of-00003.gguf is no part of a model, expected part 3 of 3");
  snprintf(odd, sizeof odd, "%s/model.gguf", p.dir);
  assert_int_equal(rename(p.path[1], odd), 0);
  refuse_parts(odd, "its name does not end in -00001-of-00003.gguf");
  for (int i = 2; i <= 3; i++) unlink(p.path[i]);
  unlink(odd);
  rmdir(p.dir);
}

static void test_part_names(void **st) {
  (void)st;
  static const struct {
    const char *name;
    int no, count;
  } rows[] = {{"a-00002-of-00010.gguf", 2, 10}, {"/x/y-00001-of-00001.gguf", 1, 1}, {"-00001-of-00002.gguf", 0, 0}, {"a-00000-of-00002.gguf", 0, 0},
      {"a-00003-of-00002.gguf", 0, 0}, {"a-0001-of-0002.gguf", 0, 0}, {"a-00001-of-00002.bin", 0, 0}, {"a-0000x-of-00002.gguf", 0, 0}, {"", 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int count = 0;
    assert_int_equal(gguf_part_of(str_c(rows[i].name), &count), rows[i].no);
    assert_int_equal(count, rows[i].count);
  }
  char out[32], small[20];
  assert_true(gguf_part_path("a-00002-of-00010.gguf", 10, out, sizeof out));
  assert_string_equal(out, "a-00010-of-00010.gguf");
  assert_false(gguf_part_path("a-00002-of-00010.gguf", 10, small, sizeof small));
  assert_false(gguf_part_path("a.gguf", 1, out, sizeof out));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_lies), cmocka_unit_test(test_paths),
      cmocka_unit_test(test_truncated), cmocka_unit_test(test_flipped), cmocka_unit_test(test_lengths), cmocka_unit_test(test_many_names),
      cmocka_unit_test(test_parts), cmocka_unit_test(test_bad_parts), cmocka_unit_test(test_part_names)};
  return cmocka_run_group_tests_name("test_gguf", tests, NULL, NULL);
}
