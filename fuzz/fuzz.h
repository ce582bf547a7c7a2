/* fuzz.h - what the fuzz targets share: a target is one function over bytes, and says with FUZZ_CHECK what must hold whatever the bytes are.
 * Not a test framework: crashes are the sanitizers' to find, the corpus and mutations are libFuzzer's, replaying is replay.c's.
 * Ownership: a target frees what it took, for libFuzzer looks for leaks after each input; tables that are built once stay until the end.
 * Threads: one.
 * Failure: FUZZ_CHECK ends the process with a sentence; the input is then what the fuzzer writes down as the finding. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H
#include "base/err.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n); /* one a target; the name is libFuzzer's */

#define FUZZ_CHECK(cond, ...) ((cond) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #cond, __VA_ARGS__))
void fuzz_fail(const char *file, int line, const char *cond, const char *fmt, ...) __attribute__((noreturn, format(printf, 4, 5)));

/* What every refusal owes: a code, a sentence that is not empty, in valid UTF-8 and on one line. */
void fuzz_refused(const err *e);
/* Two readings of the same bytes must end alike. */
void fuzz_same_end(bool ok_a, const err *a, bool ok_b, const err *b);

/* A copy of exactly n bytes, so that the address sanitizer sees the first byte behind it; 16-byte aligned. free() it. */
void *fuzz_copy(const void *p, size_t n);
void fuzz_touch(const void *p, size_t n); /* reads every byte */

/* Numbers that steer a target (where to split, what to ask for) are drawn from the input, so that the fuzzer can change them one at a time: taken off
 * the end, where they do not move the bytes of the format. 0 when nothing is left. */
typedef struct fuzz_bytes {
  const uint8_t *p;
  size_t n;
} fuzz_bytes;
uint8_t fuzz_last(fuzz_bytes *b);
/* The length of the next piece of `left` bytes: from `b`'s end, at least 1. */
size_t fuzz_piece(fuzz_bytes *steer, size_t left);
#endif
