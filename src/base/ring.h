/* ring.h - a bounded queue of pointers between threads, any number on either side.
 * Not a channel that grows: at its bound a push is refused and the caller says what happens.
 * Ownership: owns no items. What is left at ring_free is the caller's to drain first.
 * Threads: any; a mutex inside, held for a few instructions.
 * Failure: ring_push returns false when full or closed. */
#ifndef BASE_RING_H
#define BASE_RING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ring ring;
ring *ring_new(size_t cap); /* NULL: out of memory */
void ring_free(ring *r);
bool ring_push(ring *r, void *item);          /* false: full or closed */
void *ring_pop(ring *r);                      /* NULL: empty */
void *ring_wait(ring *r, int64_t timeout_ns); /* blocks; NULL: closed and empty, or time is up; < 0: no limit */
void ring_close(ring *r);                     /* wakes all waiters; pushes fail from now on */
size_t ring_len(ring *r);
#endif
