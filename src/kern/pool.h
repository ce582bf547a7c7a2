/* pool.h - the kernel threads: one parallel region at a time, barriers inside it.
 * Not a task queue: work is split by (thread, count) in the caller, in static tiles.
 * Ownership: the pool owns its threads; the caller of pool_run is thread 0.
 * Threads: pool_run from one owner thread at a time.
 * Failure: pool_new returns NULL when threads cannot be started. Idle threads sleep: after a short bounded spin they park on a futex. */
#ifndef KERN_POOL_H
#define KERN_POOL_H

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, int tid, int n_threads);
pool *pool_new(int n_threads); /* n_threads counts the caller; 1 starts none */
void pool_free(pool *p);
int pool_threads(const pool *p);
void pool_run(pool *p, pool_fn fn, void *arg); /* returns when all have */
void pool_barrier(pool *p);                    /* inside fn: all threads meet; full memory barrier */
/* Static tile: items [*i0, *i1) of n for thread tid. */
static inline void pool_tile(int n, int tid, int n_threads, int *i0, int *i1) {
  *i0 = (int)((long long)n * tid / n_threads);
  *i1 = (int)((long long)n * (tid + 1) / n_threads);
}
#endif
