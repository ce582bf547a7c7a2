/* torture.h - makes the n-th allocation of this process fail, for every n, and looks at what comes of it.
 * Not a leak checker with a place for each block: it counts blocks, and a count that does not come back names the n to look at.
 * Ownership: malloc and its kin, mmap and munmap are replaced in the whole program (torture.c), so the libraries' allocations are counted and fail
 * too. Threads: all are counted, but for one that has called torture_exempt. Failure: torture_all fails the cmocka test it runs in. Under a
 * sanitizer, which replaces malloc itself, TORTURE_CAN is 0 and tests skip. */
#ifndef TEST_TORTURE_H
#define TEST_TORTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/err.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define TORTURE_CAN 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TORTURE_CAN 0
#endif
#endif
#ifndef TORTURE_CAN
#define TORTURE_CAN 1
#endif

enum torture_mode { TORTURE_ONE, TORTURE_REST }; /* the n-th alone, or it and all that follow */
void torture_arm(long n, enum torture_mode m);   /* counting begins at 0; n < 0: counts only */
long torture_disarm(void);                       /* allocations since then */
long torture_live(void);                         /* blocks and maps that are taken and not given back */
void torture_exempt(bool on);                    /* this thread's are neither counted nor failed (but are live) */

/* What is tortured. True: it did what it should, and the result is right (it looks itself, and fails the test if not). False: it refused, and *e says
 * why. Everything that it took is given back either way. */
typedef bool (*torture_fn)(void *ctx, err *e);

typedef struct torture_sum {
  long injected, refused, survived;
} torture_sum;
/* Fails each allocation of fn in turn, in both modes. `step`: every step-th only, 1 for all. */
torture_sum torture_all(const char *name, torture_fn fn, void *ctx, long step);
#endif
