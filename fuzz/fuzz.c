#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>

void fuzz_fail(const char *file, int line, const char *cond, const char *fmt, ...) {
  va_list ap;
  fprintf(stderr, "%s:%d: does not hold: %s\n  ", file, line, cond);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fprintf(stderr, "\n");
  fflush(stderr);
  abort();
}

static void one_line(const char *what, const char *s, size_t room) {
  size_t n = strnlen(s, room);
  FUZZ_CHECK(n < room, "%s does not end within its room", what);
  FUZZ_CHECK(utf8_valid((str){s, n}), "%s is not valid UTF-8: %s", what, s);
  for (size_t i = 0; i < n; i++) FUZZ_CHECK((uint8_t)s[i] >= 0x20 && s[i] != 0x7f, "%s holds byte 0x%02x: %s", what, (uint8_t)s[i], s);
}

void fuzz_refused(const err *e) {
  FUZZ_CHECK(e->code > ERR_NONE && e->code < ERR_COUNT, "a refusal with code %d", (int)e->code);
  FUZZ_CHECK(e->code != ERR_INTERNAL, "a fault of ours: %s", e->msg);
  FUZZ_CHECK(*e->msg, "a refusal says nothing");
  one_line("the message", e->msg, sizeof e->msg);
  one_line("the parameter", e->param, sizeof e->param);
}

void fuzz_same_end(bool ok_a, const err *a, bool ok_b, const err *b) {
  FUZZ_CHECK(ok_a == ok_b, "once %s, once %s", ok_a ? "accepted" : a->msg, ok_b ? "accepted" : b->msg);
  if (!ok_a) FUZZ_CHECK(a->code == b->code && strcmp(a->msg, b->msg) == 0 && strcmp(a->param, b->param) == 0, "\"%s\" and \"%s\"", a->msg, b->msg);
}

void *fuzz_copy(const void *p, size_t n) {
  void *c = malloc(n ? n : 1);
  if (!c) fuzz_fail(__FILE__, __LINE__, "memory", "no room for %zu bytes", n);
  if (n) memcpy(c, p, n);
  return c;
}

void fuzz_touch(const void *p, size_t n) {
  uint8_t x = 0;
  for (size_t i = 0; i < n; i++) x ^= ((const uint8_t *)p)[i];
  __asm__ volatile("" : : "r"(x)); /* so that it is not left out */
}

uint8_t fuzz_last(fuzz_bytes *b) { return b->n ? b->p[--b->n] : 0; }

size_t fuzz_piece(fuzz_bytes *steer, size_t left) {
  uint8_t k = fuzz_last(steer);
  size_t n = k < 0x80 ? (size_t)k % 16 + 1 : (size_t)(k & 0x7f) * 64 + 1; /* short pieces are the ones that find something */
  return n < left ? n : left;
}
