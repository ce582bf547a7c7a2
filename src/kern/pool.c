/* pool.c - persistent threads that meet at a barrier.
 *
 * One word tells a sleeper everything: `turn`. Whoever waits remembers its value and goes on when it has changed, so a wake-up cannot be lost
 * and a spurious one does no harm. A region starts by advancing `start`; barriers inside it, and its end, advance `sense`, which is the
 * barrier's sense reversed by every meeting (a counter's lowest bit is the classic boolean sense; the counter also survives a thread that is
 * a whole meeting late).
 *
 * Waiting is in two steps: a spin of at most SPIN_NS, because a decode step has hundreds of barriers a few microseconds apart and a futex
 * sleep costs tens of them; then a futex sleep, because a server that waits for requests must not burn a core. With more threads than usable
 * cores there is no spin at all: the thread one waits for needs this very core.
 *
 * Threads are not pinned. Where weir shares its machine (a container's quota, a second server, a laptop) a pinned thread waits for its core
 * while another stands idle, and every other thread then waits for it at the barrier; two weirs that pin by one rule would fight over the same
 * cores. The scheduler leaves threads that rarely sleep where they are, which is all that pinning could have gained. */
#include "kern/pool.h"
#include "base/clock.h"
#include "base/os.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  SPIN_NS = 40000,      /* about one futex sleep and wake-up */
  SPIN_BATCH = 32,      /* pauses between looks at the clock */
  STACK_BYTES = 4 << 20 /* attention keeps its tiles on the stack; some C libraries give a thread 128 KiB only */
};

/* A word one waits on, alone on its cache lines (two: the neighbour is fetched along). */
typedef struct gate {
  _Alignas(128) atomic_uint turn;
  atomic_uint sleepers;
} gate;

typedef struct worker {
  pool *p;
  int tid;
  pthread_t thread;
} worker;

struct pool {
  gate start, sense;
  _Alignas(128) atomic_uint arrived;
  pool_fn fn; /* written before `start` advances, read after */
  void *arg;
  bool stop;
  int n, started;
  int64_t spin_ns;
  worker *w; /* [n - 1], tid 1 .. n-1 */
};

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static bool gate_spin(gate *g, unsigned seen, int64_t limit_ns) {
  if (limit_ns <= 0) return atomic_load_explicit(&g->turn, memory_order_acquire) != seen;
  for (int64_t t0 = clock_now();;) {
    for (int i = 0; i < SPIN_BATCH; i++) {
      if (atomic_load_explicit(&g->turn, memory_order_acquire) != seen) return true;
      cpu_pause();
    }
    if (clock_now() - t0 > limit_ns) return false;
  }
}

/* Returns when turn differs from `seen`. `sleepers` and `turn` are both sequentially consistent here and in gate_open: either the opener
 * sees the sleeper, or the sleeper sees the new turn (the kernel compares it once more under its own lock). */
static void gate_wait(gate *g, unsigned seen, int64_t spin_ns) {
  if (gate_spin(g, seen, spin_ns)) return;
  atomic_fetch_add(&g->sleepers, 1);
  while (atomic_load(&g->turn) == seen) syscall(SYS_futex, &g->turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  atomic_fetch_sub(&g->sleepers, 1);
}

static void gate_open(gate *g) {
  atomic_fetch_add(&g->turn, 1);
  if (atomic_load(&g->sleepers)) syscall(SYS_futex, &g->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pool_barrier(pool *p) {
  if (p->n == 1) return;
  unsigned seen = atomic_load_explicit(&p->sense.turn, memory_order_relaxed); /* cannot advance before this thread arrives */
  if (atomic_fetch_add(&p->arrived, 1) == (unsigned)p->n - 1) {
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed); /* published by the turn */
    gate_open(&p->sense);
  } else {
    gate_wait(&p->sense, seen, p->spin_ns);
  }
}

static void *worker_main(void *arg) {
  worker *w = arg;
  pool *p = w->p;
  unsigned seen = 0; /* a pool starts at turn 0, so a region opened before this thread ran is not missed */
  for (;;) {
    gate_wait(&p->start, seen, p->spin_ns);
    seen++;
    if (p->stop) return NULL;
    p->fn(p->arg, w->tid, p->n);
    pool_barrier(p);
  }
}

void pool_run(pool *p, pool_fn fn, void *arg) {
  if (p->n > 1) {
    p->fn = fn;
    p->arg = arg;
    gate_open(&p->start);
  }
  fn(arg, 0, p->n);
  pool_barrier(p);
}

/* All signals stay with the threads of the program's own making. */
static bool pool_start(pool *p) {
  pthread_attr_t at;
  if (pthread_attr_init(&at)) return false;
  static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
  sigset_t all, before;
  sigfillset(&all);
  /* What a thread does to itself cannot be left to another: blocked, it ends the process without a word. */
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool ok = !pthread_attr_setstacksize(&at, STACK_BYTES);
  for (int i = 1; ok && i < p->n; i++) {
    worker *w = &p->w[i - 1];
    *w = (worker){.p = p, .tid = i};
    ok = !pthread_create(&w->thread, &at, worker_main, w);
    if (!ok) break;
    p->started++;
    char name[16];
    snprintf(name, sizeof name, "kern-%d", i);
    pthread_setname_np(w->thread, name);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&at);
  return ok;
}

pool *pool_new(int n_threads) {
  if (n_threads < 1) n_threads = 1;
  pool *p = NULL;
  if (posix_memalign((void **)&p, _Alignof(struct pool), sizeof *p)) return NULL;
  *p = (pool){.n = n_threads, .spin_ns = n_threads > os_cores() ? 0 : SPIN_NS};
  p->w = calloc((size_t)n_threads, sizeof *p->w);
  if (!p->w || !pool_start(p)) {
    pool_free(p);
    return NULL;
  }
  return p;
}

void pool_free(pool *p) {
  if (!p) return;
  if (p->started) {
    p->stop = true;
    gate_open(&p->start);
    for (int i = 0; i < p->started; i++) pthread_join(p->w[i].thread, NULL);
  }
  free(p->w);
  free(p);
}

int pool_threads(const pool *p) { return p->n; }
