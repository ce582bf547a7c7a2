#include "torture.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool armed;
static atomic_long taken, live;
static long fail_at;
static enum torture_mode mode;
static void *_Atomic place; /* who asked for what was refused */
static _Thread_local bool exempt;

static bool refuse(void *from) {
  if (exempt || !atomic_load_explicit(&armed, memory_order_acquire)) return false;
  long n = atomic_fetch_add(&taken, 1);
  if (fail_at < 0 || (mode == TORTURE_ONE ? n != fail_at : n < fail_at)) return false;
  if (n == fail_at) atomic_store(&place, from);
  errno = ENOMEM;
  return true;
}

static void *kept(void *p) {
  if (p) atomic_fetch_add(&live, 1);
  return p;
}

#if TORTURE_CAN
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
#define SHOWN __attribute__((visibility("default")))
#define FROM __builtin_return_address(0)

SHOWN void *malloc(size_t n) { return refuse(FROM) ? NULL : kept(__libc_malloc(n)); }
SHOWN void *calloc(size_t n, size_t size) { return refuse(FROM) ? NULL : kept(__libc_calloc(n, size)); }
SHOWN void *memalign(size_t align, size_t n) { return refuse(FROM) ? NULL : kept(__libc_memalign(align, n)); }
SHOWN void *aligned_alloc(size_t align, size_t n) { return refuse(FROM) ? NULL : kept(__libc_memalign(align, n)); }

SHOWN int posix_memalign(void **ret, size_t align, size_t n) {
  void *p = refuse(FROM) ? NULL : kept(__libc_memalign(align, n));
  if (!p) return ENOMEM;
  *ret = p;
  return 0;
}

SHOWN void *realloc(void *p, size_t n) {
  if (refuse(FROM)) return NULL;
  void *q = __libc_realloc(p, n);
  if (!p) return kept(q);
  if (!q && !n) atomic_fetch_sub(&live, 1);
  return q;
}

SHOWN void free(void *p) {
  if (!p) return;
  atomic_fetch_sub(&live, 1);
  __libc_free(p);
}

SHOWN void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off) {
  if (refuse(FROM)) return MAP_FAILED;
  void *p = (void *)syscall(SYS_mmap, at, n, prot, flags, fd, off);
  if (p != MAP_FAILED) atomic_fetch_add(&live, 1);
  return p;
}

SHOWN int munmap(void *p, size_t n) {
  int rc = (int)syscall(SYS_munmap, p, n);
  if (!rc) atomic_fetch_sub(&live, 1);
  return rc;
}
#endif

void torture_arm(long n, enum torture_mode m) {
  fail_at = n;
  mode = m;
  atomic_store(&place, NULL);
  atomic_store(&taken, 0);
  atomic_store_explicit(&armed, true, memory_order_release);
}

long torture_disarm(void) {
  atomic_store(&armed, false);
  return atomic_load(&taken);
}

long torture_live(void) { return atomic_load(&live); }
void torture_exempt(bool on) { exempt = on; }

/* ---- the loop ---- */

static char now_doing[160];

/* Where the crash was is the debugger's to say; which allocation it was is known only here. */
static void on_death(int sig) {
  ssize_t k = write(2, now_doing, strlen(now_doing));
  (void)k;
  signal(sig, SIG_DFL);
  raise(sig);
}

static void note(const char *name, long n, enum torture_mode m) {
  snprintf(now_doing, sizeof now_doing, "\n%s: died with allocation %ld %s\n", name, n, m == TORTURE_ONE ? "failing" : "and all after it failing");
}

static void watch(void) {
  static const int deadly[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
  for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) signal(deadly[i], on_death);
}

static bool armed_run(torture_fn fn, void *ctx, long n, enum torture_mode m, err *e, long *ret_had) {
  torture_arm(n, m);
  bool ok = fn(ctx, e);
  *ret_had = torture_disarm();
  return ok;
}

/* One run with allocation n failing; false when there was no n-th. */
static bool one(const char *name, torture_fn fn, void *ctx, long n, enum torture_mode m, torture_sum *s) {
  err e = {0};
  long had = 0, base = torture_live();
  note(name, n, m);
  bool ok = armed_run(fn, ctx, n, m, &e, &had);
  if (torture_live() != base) { /* kept by a library that went this way for the first time? Then the same again leaves nothing more. */
    base = torture_live();
    ok = armed_run(fn, ctx, n, m, &e, &had);
  }
  bool hit = had > n;
  const char *how = m == TORTURE_ONE ? "failed" : "and all after it failed";
  if (torture_live() != base)
    fail_msg("%s: allocation %ld %s (asked for at %p): %ld blocks are left behind", name, n, how, place, torture_live() - base);
  if (!ok && !hit) fail_msg("%s: no allocation failed, and it says %s", name, e.msg);
  if (!ok && e.code != ERR_NOMEM)
    fail_msg("%s: allocation %ld %s (at %p), and it says (%s) %s", name, n, how, place, err_lookup(e.code)->name, e.msg);
  if (!ok && !*e.msg) fail_msg("%s: allocation %ld %s, and it says nothing", name, n, how);
  s->injected += hit;
  s->refused += !ok;
  s->survived += hit && ok;
  return hit;
}

torture_sum torture_all(const char *name, torture_fn fn, void *ctx, long step) {
  torture_sum s = {0};
  err e = {0};
  watch();
  for (int i = 0; i < 2; i++) /* what a library keeps after its first use is no leak */
    if (!fn(ctx, &e)) fail_msg("%s: fails with all the memory it wants: %s", name, e.msg);
  for (int m = TORTURE_ONE; m <= TORTURE_REST; m++)
    for (long n = 0; one(name, fn, ctx, n, (enum torture_mode)m, &s); n += step) continue;
  printf("%s: %ld allocations failed in turn: %ld refusals, %ld right results all the same\n", name, s.injected, s.refused, s.survived);
  return s;
}
