/* buf.h - a growing byte buffer with a declared maximum.
 * Not a stream: no reading position, no encoding.
 * Ownership: owns its bytes; buf_fini frees, buf_take hands them over. Always NUL-terminated behind n.
 * Threads: one owner.
 * Failure: growth past max or a failed allocation sets `failed`, keeps what was there and drops the rest; check once at the end. */
#ifndef BASE_BUF_H
#define BASE_BUF_H
#include "base/str.h"
#include <stdarg.h>

typedef struct buf {
  char *p;
  size_t n, cap, max;
  bool failed, starved; /* starved: failed for want of memory, not at max */
} buf;

void buf_init(buf *b, size_t max); /* allocates nothing yet */
void buf_fini(buf *b);
void buf_clear(buf *b);                 /* n = 0, failed = false; keeps the memory */
bool buf_reserve(buf *b, size_t extra); /* room for `extra` more bytes */
bool buf_put(buf *b, const void *p, size_t n);
bool buf_puts(buf *b, const char *s);
bool buf_putc(buf *b, char c);
bool buf_str(buf *b, str s);
bool buf_printf(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool buf_vprintf(buf *b, const char *fmt, va_list ap);
void buf_drop(buf *b, size_t n); /* removes n bytes from the front */
/* JSON string body of s, without the quotes. Invalid UTF-8 becomes U+FFFD; bytes >= 0x80 otherwise pass as they are. */
bool buf_json(buf *b, str s);
static inline str buf_view(const buf *b) { return (str){b->p ? b->p : "", b->n}; }
/* malloc'd, NUL-terminated contents; the buffer is empty afterwards. NULL when failed or out of memory. */
char *buf_take(buf *b, size_t *ret_n);
#endif
