/* arena.h - many small allocations freed together: one per request, one per loaded model.
 * Not a general allocator: nothing is freed alone.
 * Ownership: owns every byte handed out until arena_fini / arena_reset.
 * Threads: one owner.
 * Failure: over `max` or out of memory returns NULL; for sizes from input check it, everything else is small and bounded. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include "base/str.h"

typedef struct arena_block arena_block;
typedef struct arena {
  arena_block *head;
  size_t used, max;
  bool starved; /* a NULL was for want of memory, not for the bound */
} arena;

void arena_init(arena *a, size_t max);
void arena_fini(arena *a);
void *arena_try(arena *a, size_t n);                        /* 16-byte aligned, zeroed; NULL at the bound */
void *arena_try_array(arena *a, size_t count, size_t size); /* checks the product */
char *arena_str(arena *a, str s);                           /* NUL-terminated copy, or NULL */
#define ARENA_NEW(a, T) ((T *)arena_try((a), sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_try_array((a), (n), sizeof(T)))
#endif
