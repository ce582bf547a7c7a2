/* str.h - a borrowed run of bytes (not NUL-terminated) and the few things done with it.
 * Not a string class: it never allocates and never owns.
 * Ownership: borrows. The memory must outlive the str.
 * Threads: plain values.
 * Failure: the parsers return false and leave the output untouched. */
#ifndef BASE_STR_H
#define BASE_STR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct str {
  const char *p;
  size_t n;
} str;

#define STR(lit) ((str){"" lit, sizeof(lit) - 1})
static inline str str_c(const char *s) { return (str){s, s ? strlen(s) : 0}; }
static inline bool str_eq(str a, str b) { return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0); }
static inline bool str_is(str a, const char *b) { return str_eq(a, str_c(b)); }
static inline bool str_starts(str a, str b) { return a.n >= b.n && memcmp(a.p, b.p, b.n) == 0; }
static inline bool str_ends(str a, str b) { return a.n >= b.n && memcmp(a.p + a.n - b.n, b.p, b.n) == 0; }

str str_trim(str s);                                 /* ASCII white space off both ends */
bool str_cut(str s, char sep, str *head, str *tail); /* splits at the first sep; false (outputs untouched) when absent */
ptrdiff_t str_find(str hay, str needle);             /* offset of the first occurrence, or -1 */
bool str_i64(str s, int64_t *ret);                   /* whole string, base 10 */
bool str_f64(str s, double *ret);                    /* whole string, finite */
bool str_bytes(str s, uint64_t *ret);                /* "64M", "1.5GiB", "4096": binary multiples */

/* UTF-8. Length in bytes of the longest prefix of s that holds only whole, valid code points, and (in *ret_need, may be NULL) how many
 * more bytes an incomplete but so far valid last code point would want (0 when what follows is invalid or nothing follows). */
size_t utf8_valid_prefix(str s, int *ret_need);
bool utf8_valid(str s);
/* Decodes one code point at p (n > 0 bytes): returns its length, or 0 when invalid or cut off. Surrogates and overlong forms are invalid. */
int utf8_decode(const char *p, size_t n, uint32_t *ret_cp);
int utf8_encode(uint32_t cp, char out[4]); /* returns length; cp > 0x10FFFF or a surrogate encodes U+FFFD */
#endif
