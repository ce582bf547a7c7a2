/* Writes GGUF files into memory, for tests that need a good one or one that is bad in a chosen way. Nothing is checked: that is the point. */
#ifndef GGUF_BUILD_H
#define GGUF_BUILD_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/buf.h"
#include "model/gguf.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct gb {
  buf vals, infos;
  uint64_t n_vals, n_tensors, data; /* data: bytes of tensor data so far, padded */
  uint32_t version, align;
} gb;

static inline void gb_init(gb *b) {
  *b = (gb){.version = 3, .align = 32};
  buf_init(&b->vals, 1 << 20);
  buf_init(&b->infos, 1 << 20);
}
static inline void gb_fini(gb *b) {
  buf_fini(&b->vals);
  buf_fini(&b->infos);
}
static inline void gb_32(buf *b, uint32_t v) { buf_put(b, &v, 4); }
static inline void gb_64(buf *b, uint64_t v) { buf_put(b, &v, 8); }
static inline void gb_text(buf *b, const char *s) {
  gb_64(b, strlen(s));
  buf_puts(b, s);
}

static inline void gb_key(gb *b, const char *key, uint32_t kind) {
  gb_text(&b->vals, key);
  gb_32(&b->vals, kind);
  b->n_vals++;
}
static inline void gb_u32(gb *b, const char *key, uint32_t v) {
  gb_key(b, key, MF_U32);
  gb_32(&b->vals, v);
}
static inline void gb_f32(gb *b, const char *key, float v) {
  gb_key(b, key, MF_F32);
  buf_put(&b->vals, &v, 4);
}
static inline void gb_str(gb *b, const char *key, const char *v) {
  gb_key(b, key, MF_STR);
  gb_text(&b->vals, v);
}
static inline void gb_strs(gb *b, const char *key, int n, const char *each) {
  gb_key(b, key, MF_ARR);
  gb_32(&b->vals, MF_STR);
  gb_64(&b->vals, (uint64_t)n);
  for (int i = 0; i < n; i++) gb_text(&b->vals, each);
}

/* A row of the tensor table with everything spelled out. */
static inline void gb_info(gb *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t off) {
  gb_text(&b->infos, name);
  gb_32(&b->infos, n_dims);
  for (uint32_t i = 0; i < n_dims && i < 8; i++) gb_64(&b->infos, ne[i]);
  gb_32(&b->infos, type);
  gb_64(&b->infos, off);
  b->n_tensors++;
}
/* The same, laid out behind what is there. ne1 0: a vector. */
static inline void gb_tensor(gb *b, const char *name, uint64_t ne0, uint64_t ne1, wtype type) {
  const wtype_info *w = wtype_lookup(type);
  uint64_t ne[2] = {ne0, ne1}, bytes = ne0 * (ne1 ? ne1 : 1) / (uint64_t)w->block * (uint64_t)w->bytes;
  gb_info(b, name, ne1 ? 2 : 1, ne, type, b->data);
  b->data += (bytes + b->align - 1) / b->align * b->align;
}

/* The whole file in a block of exactly its size, so that a sanitizer sees the first byte read beyond it. */
static inline uint8_t *gb_file(const gb *b, size_t *ret_n) {
  buf f;
  buf_init(&f, SIZE_MAX / 2);
  buf_puts(&f, "GGUF");
  gb_32(&f, b->version);
  gb_64(&f, b->n_tensors);
  gb_64(&f, b->n_vals);
  buf_str(&f, buf_view(&b->vals));
  buf_str(&f, buf_view(&b->infos));
  while (f.n % b->align) buf_putc(&f, 0);
  for (uint64_t i = 0; i < b->data; i++) buf_putc(&f, (char)i);
  assert_false(f.failed);
  uint8_t *p = malloc(f.n ? f.n : 1);
  assert_non_null(p);
  memcpy(p, f.p, f.n);
  *ret_n = f.n;
  buf_fini(&f);
  return p;
}

/* Opens what was built. The file's bytes are the caller's to free, after mf_close. */
static inline bool gb_open(const gb *b, uint8_t **ret_file, mfile **ret, err *e) {
  size_t n;
  *ret_file = gb_file(b, &n);
  return gguf_open_mem(*ret_file, n, ret, e);
}
#endif
