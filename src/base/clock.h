/* clock.h - the monotonic clock in nanoseconds, and the wall clock for stamps.
 * Not a timer: nothing fires.
 * Ownership: none.
 * Threads: any.
 * Failure: none. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline int64_t clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int64_t clock_unix(void) { return (int64_t)time(NULL); } /* seconds */
static inline int64_t clock_unix_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline double clock_ms(int64_t ns) { return (double)ns / 1e6; }
#endif
