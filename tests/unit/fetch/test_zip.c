#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/buf.h"
#include "base/rng.h"
#include "fetch/zip.h"
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

/* Archives are made here byte by byte, so that each lie is exactly the one meant. */

static char path[] = "/tmp/weir-zip-XXXXXX";

static void put16(buf *b, unsigned v) {
  buf_putc(b, (char)v);
  buf_putc(b, (char)(v >> 8));
}
static void put32(buf *b, uint32_t v) {
  put16(b, v & 0xffff);
  put16(b, v >> 16);
}
static void put64(buf *b, uint64_t v) {
  put32(b, (uint32_t)v);
  put32(b, (uint32_t)(v >> 32));
}

typedef struct made {
  const char *name;
  const char *data;
  size_t n;
  bool deflate, zip64;
} made;

static size_t packed(const made *m, char *out, size_t max) {
  if (!m->deflate) {
    memcpy(out, m->data, m->n);
    return m->n;
  }
  z_stream s = {0};
  assert_int_equal(deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  s.next_in = (unsigned char *)(uintptr_t)m->data;
  s.avail_in = (uInt)m->n;
  s.next_out = (unsigned char *)out;
  s.avail_out = (uInt)max;
  assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
  size_t n = s.total_out;
  deflateEnd(&s);
  return n;
}

static void make(buf *z, const made *m, int n, const char *comment) {
  buf dir;
  buf_init(&dir, 1 << 20);
  for (int i = 0; i < n; i++) {
    char *p = malloc(m[i].n + 1000);
    size_t k = packed(&m[i], p, m[i].n + 1000), at = z->n, len = strlen(m[i].name);
    uint32_t crc = (uint32_t)crc32(crc32(0, NULL, 0), (const unsigned char *)m[i].data, (uInt)m[i].n);
    put32(z, 0x04034b50);
    for (int k2 = 0; k2 < 2; k2++) put16(z, k2 ? 0 : 20);
    put16(z, m[i].deflate ? 8 : 0);
    for (int k2 = 0; k2 < 4; k2++) put32(z, 0); /* time, crc and sizes: left to the directory */
    put16(z, (unsigned)len);
    put16(z, 0);
    buf_puts(z, m[i].name);
    buf_put(z, p, k);
    free(p);
    put32(&dir, 0x02014b50);
    put16(&dir, 45), put16(&dir, 45), put16(&dir, 0), put16(&dir, m[i].deflate ? 8 : 0), put32(&dir, 0), put32(&dir, crc);
    put32(&dir, m[i].zip64 ? 0xffffffffu : (uint32_t)k);
    put32(&dir, m[i].zip64 ? 0xffffffffu : (uint32_t)m[i].n);
    put16(&dir, (unsigned)len), put16(&dir, m[i].zip64 ? 28 : 0), put16(&dir, 0), put16(&dir, 0), put16(&dir, 0), put32(&dir, 0);
    put32(&dir, m[i].zip64 ? 0xffffffffu : (uint32_t)at);
    buf_puts(&dir, m[i].name);
    if (m[i].zip64) put16(&dir, 1), put16(&dir, 24), put64(&dir, m[i].n), put64(&dir, k), put64(&dir, at);
  }
  size_t dir_at = z->n;
  bool z64 = n && m[0].zip64;
  buf_str(z, buf_view(&dir));
  if (z64) {
    size_t end64 = z->n;
    put32(z, 0x06064b50), put64(z, 44), put16(z, 45), put16(z, 45), put32(z, 0), put32(z, 0), put64(z, (uint64_t)n), put64(z, (uint64_t)n);
    put64(z, dir.n), put64(z, dir_at);
    put32(z, 0x07064b50), put32(z, 0), put64(z, end64), put32(z, 1);
  }
  put32(z, 0x06054b50), put32(z, 0);
  put16(z, z64 ? 0xffff : (unsigned)n), put16(z, z64 ? 0xffff : (unsigned)n);
  put32(z, z64 ? 0xffffffffu : (uint32_t)dir.n), put32(z, z64 ? 0xffffffffu : (uint32_t)dir_at);
  put16(z, (unsigned)strlen(comment));
  buf_puts(z, comment);
  buf_fini(&dir);
}

static void store(const char *p, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(p, 1, n, f), n);
  fclose(f);
}

static bool to_buf(void *arg, const void *p, size_t n, err *e) { return buf_put(arg, p, n) ? true : err_set(e, ERR_TOO_LARGE, "sink is full"); }

static bool get(const char *name, buf *out, err *e) {
  zip *z;
  zip_member m;
  if (!zip_open(path, &z, e)) return false;
  bool ok = zip_find(z, name, &m, e) && zip_read(z, &m, to_buf, out, e);
  zip_close(z);
  return ok;
}

static char *text(size_t n) {
  char *p = malloc(n);
  for (size_t i = 0; i < n; i++) p[i] = (char)(i % 251 + (i >> 12));
  return p;
}

static void test_forms(void **state) {
  (void)state;
  size_t n = 700000;
  char *data = text(n);
  for (int form = 0; form < 4; form++) {
    made m[] = {{"a/first", data, n, (form & 1) != 0, (form & 2) != 0}, {"b", "xyz", 3, false, false}, {"empty", "", 0, true, false}};
    buf z, out;
    buf_init(&z, 4 << 20);
    buf_init(&out, 4 << 20);
    make(&z, m, 3, form ? "a comment" : "");
    store(z.p, z.n);
    for (int i = 0; i < 3; i++) {
      err e = {0};
      buf_clear(&out);
      bool ok = get(m[i].name, &out, &e);
      if (!ok) print_error("form %d, %s: %s\n", form, m[i].name, e.msg);
      assert_true(ok);
      assert_int_equal(out.n, m[i].n);
      assert_true(out.n == 0 || memcmp(out.p, m[i].data, out.n) == 0);
    }
    err e = {0};
    assert_false(get("a", &out, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    buf_fini(&z);
    buf_fini(&out);
  }
  free(data);
}

static void test_sink_refuses(void **state) {
  (void)state;
  made m = {"x", "hello hello hello", 17, true, false};
  buf z, out;
  err e = {0};
  buf_init(&z, 4096);
  buf_init(&out, 5);
  make(&z, &m, 1, "");
  store(z.p, z.n);
  assert_false(get("x", &out, &e));
  assert_string_equal(e.msg, "sink is full");
  buf_fini(&z);
  buf_fini(&out);
}

/* Whatever the bytes: an answer, never a crash, and never wrong data passed off as right. */
static void test_damage(void **state) {
  (void)state;
  char *data = text(3000);
  made m[] = {{"first", data, 3000, true, true}, {"second", data, 500, false, false}};
  buf z, out;
  buf_init(&z, 1 << 20);
  buf_init(&out, 1 << 20);
  make(&z, m, 2, "c");
  rng r = {7, 0};
  int good = 0, bad = 0;
  for (size_t cut = 0; cut < z.n; cut += 7) {
    err e = {0};
    store(z.p, cut);
    assert_false(get("first", &out, &e));
    assert_true(e.msg[0]);
  }
  for (int i = 0; i < 1200; i++) {
    char *p = malloc(z.n);
    memcpy(p, z.p, z.n);
    for (uint64_t k = 1 + rng_below(&r, 3); k; k--) p[rng_below(&r, z.n)] = (char)rng_u64(&r);
    store(p, z.n);
    free(p);
    err e = {0};
    buf_clear(&out);
    if (get("first", &out, &e)) {
      assert_true(out.n == 3000 && memcmp(out.p, data, 3000) == 0);
      good++;
    } else {
      assert_true(e.code != ERR_NONE && e.msg[0]);
      bad++;
    }
  }
  assert_true(good > 100 && bad > 100); /* both ways were really taken */
  buf_fini(&z);
  buf_fini(&out);
  free(data);
}

int main(void) {
  close(mkstemp(path));
  const struct CMUnitTest t[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_sink_refuses), cmocka_unit_test(test_damage)};
  int rc = cmocka_run_group_tests(t, NULL, NULL);
  remove(path);
  return rc;
}
