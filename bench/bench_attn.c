/* bench_attn - attention beside the limits of the machine it runs on, measured in the same run.
 *
 *   bench_attn [--isa NAME] [--threads N] [--rows N] [--seconds S]
 *
 * Prefill is bound by multiply-adds: visible keys only are counted (two products, two operations each), against the peak of F32 FMA. Decode is
 * bound by reading K and V: their bytes, against the read bandwidth; layers are repeated until they exceed any cache. --rows is how many rows one
 * call takes in prefill, as the engine would cut them. The best window counts, of the limits too. */
#include "base/clock.h"
#include "base/rng.h"
#include "kern/kern.h"
#include "kern/pool.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct shape {
  const char *model;
  int d, n_kv, n_head;
} shape;
static const shape shapes[] = {{"smollm2-135m", 64, 3, 9}, {"qwen2.5-0.5b", 64, 2, 14}, {"qwen2.5-1.5b", 128, 2, 12}};
typedef struct kase {
  int pos0, rows;
} kase;
static const kase cases[] = {{0, 512}, {1024, 256}, {8000, 64}, {511, 1}, {2047, 1}, {8191, 1}, {8191, 4}};
enum { PAGE = 64, COLD_BYTES = 192 << 20 };

typedef struct options {
  const char *isa;
  int threads, rows;
  double seconds;
} options;

static void *reserve(size_t n) {
  void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "bench_attn: %zu bytes of memory are not to be had\n", n);
    exit(1);
  }
  madvise(p, n, MADV_HUGEPAGE);
  return p;
}
static double seconds_since(int64_t t0) { return (double)(clock_now() - t0) / 1e9; }

/* ---- limits ------------------------------------------------------------------------------------------------------------------- */

typedef struct limit_job {
  const uint8_t *mem;
  size_t bytes;
  long rounds;
  bool wide;
  volatile uint64_t sink[64];
} limit_job;

#if defined(__x86_64__)
#define FMA_ZMM(i) "vfmadd231ps %%zmm13,%%zmm14,%%zmm" #i "\n\t"
#define FMA_YMM(i) "vfmadd231ps %%ymm13,%%ymm14,%%ymm" #i "\n\t"
#define CHAINS(insn)                                                                                                                                 \
  for (long r = 0; r < rounds; r++)                                                                                                                  \
  __asm__ volatile(insn(0) insn(1) insn(2) insn(3) insn(4) insn(5) insn(6) insn(7) insn(8) insn(9) insn(10) insn(11)::                               \
                       : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11")
/* The factors are zero, so that no chain runs into slow numbers. */
#define CLEAR __asm__ volatile("vpxor %%xmm13,%%xmm13,%%xmm13\n\tvpxor %%xmm14,%%xmm14,%%xmm14" ::: "xmm13", "xmm14")
static void fma_wide(long rounds) {
  CLEAR;
  CHAINS(FMA_ZMM);
}
static void fma_narrow(long rounds) {
  CLEAR;
  CHAINS(FMA_YMM);
}
__attribute__((target("avx2"))) static uint64_t read_all(const uint8_t *p, size_t n) {
  __m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (size_t i = 0; i + 128 <= n; i += 128) {
    _mm_prefetch((const char *)p + i + 2048, _MM_HINT_T0);
    _mm_prefetch((const char *)p + i + 2112, _MM_HINT_T0);
    for (size_t k = 0; k < 4; k++) s[k] = _mm256_add_epi64(s[k], _mm256_loadu_si256((const __m256i *)(const void *)(p + i + 32 * k)));
  }
  return (uint64_t)_mm256_extract_epi64(_mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3])), 0);
}
#else
static void fma_wide(long rounds) { (void)rounds; }
static void fma_narrow(long rounds) { (void)rounds; }
static uint64_t read_all(const uint8_t *p, size_t n) {
  uint64_t s = 0, v;
  for (size_t i = 0; i + 8 <= n; i += 8) memcpy(&v, p + i, 8), s += v;
  return s;
}
#endif

static void run_read(void *arg, int tid, int n) {
  limit_job *j = arg;
  size_t share = j->bytes / (size_t)n;
  j->sink[tid % 64] += read_all(j->mem + (size_t)tid * share, share - 4096);
}
static void run_fma(void *arg, int tid, int n) {
  limit_job *j = arg;
  (void)tid, (void)n;
  if (j->wide) fma_wide(j->rounds);
  else fma_narrow(j->rounds);
}

/* Bytes and operations a second; the latter 0 for a table that has no vector unit we know. */
static void limits(pool *p, const kern_ops *o, const uint8_t *mem, double seconds, double *read, double *fma) {
  limit_job j = {.bytes = 16 << 20, .rounds = 100000, .wide = !strcmp(o->name, "avx512")};
  for (int64_t start = clock_now(); seconds_since(start) < seconds;)
    for (size_t at = 0; at + j.bytes <= COLD_BYTES; at += j.bytes) {
      j.mem = mem + at;
      int64_t t0 = clock_now();
      pool_run(p, run_read, &j);
      *read = fmax(*read, (double)j.bytes / seconds_since(t0));
    }
  if (!strcmp(o->name, "ref")) return;
  for (int64_t start = clock_now(); seconds_since(start) < seconds;) {
    int64_t t0 = clock_now();
    pool_run(p, run_fma, &j);
    *fma = fmax(*fma, 2.0 * 12 * (j.wide ? 16 : 8) * (double)j.rounds * pool_threads(p) / seconds_since(t0));
  }
}

/* ---- a case --------------------------------------------------------------------------------------------------------------------- */

typedef struct bench {
  const kern_ops *ops;
  kern_kv kv;
  kern_attn a;
  int step, n_split;
  float *part;
} bench;

/* As the engine deals work out: blocks of rows by kv head for many rows, splits by kv head for few. */
static void run_attn(void *arg, int tid, int n) {
  bench *b = arg;
  const kern_attn *a = &b->a;
  int h_all = b->kv.n_kv;
  if (a->n_row > 8) {
    for (int r = 0, task = 0; r < a->n_row; r += b->step)
      for (int h = 0; h < h_all; h++, task++)
        if (task % n == tid) b->ops->attn(a, h, r, r + b->step < a->n_row ? r + b->step : a->n_row);
    return;
  }
  int per_head = a->n_row * (a->n_head / h_all) * (b->kv.head_dim + 2);
  for (int h = 0, task = 0; h < h_all; h++)
    for (int s = 0; s < b->n_split; s++, task++)
      if (task % n == tid) b->ops->attn_part(a, h, 0, a->n_row, s, b->part + (size_t)task * (size_t)per_head);
}

static double time_case(pool *p, bench *b, int layers, double seconds) {
  double best = 1e30;
  int64_t start = clock_now();
  for (int round = 0, layer = 0; round < 3 || seconds_since(start) < seconds; round++) {
    int64_t t0 = clock_now();
    int calls = b->a.n_row > 8 ? 1 : 16;
    for (int i = 0; i < calls; i++, layer++) {
      b->a.layer = layer % layers;
      pool_run(p, run_attn, b);
    }
    best = fmin(best, seconds_since(t0) / calls);
  }
  return best;
}

static void bench_case(const shape *s, const kase *c, const kern_ops *o, pool *p, const options *opt, const uint8_t *mem, double *read, double *fma) {
  int len = c->pos0 + c->rows, n_pages = (len + PAGE - 1) / PAGE, ld = s->n_head * s->d;
  bench b = {.ops = o, .kv = {.type = KERN_KV_F16, .n_layer = 1, .n_kv = s->n_kv, .head_dim = s->d, .page = PAGE}, .step = opt->rows};
  size_t one = kern_kv_page_bytes(&b.kv) * (size_t)n_pages;
  b.kv.n_layer = c->rows > 8 ? 2 : (int)(COLD_BYTES / one) + 1;
  size_t bytes = kern_kv_page_bytes(&b.kv) * (size_t)n_pages;
  b.kv.pool = reserve(bytes);
  rng r = rng_new(3);
  size_t seed = bytes < 1 << 20 ? bytes : 1 << 20;
  for (size_t i = 0; i < seed / 2; i++) ((uint16_t *)(void *)b.kv.pool)[i] = (uint16_t)(0x3000 + (rng_u64(&r) & 0x8bff)); /* +-0.13 .. 0.5 */
  for (size_t at = seed; at < bytes; at += seed) memcpy(b.kv.pool + at, b.kv.pool, bytes - at < seed ? bytes - at : seed);
  int32_t *pages = malloc(sizeof *pages * (size_t)n_pages);
  for (int i = 0; i < n_pages; i++) pages[i] = i;
  float *q = malloc(sizeof(float) * (size_t)(c->rows * ld)), *out = malloc(sizeof(float) * (size_t)(c->rows * ld));
  for (int i = 0; i < c->rows * ld; i++) q[i] = (float)rng_f64(&r) - 0.5f;
  b.n_split = (len - 1) / KERN_SPLIT + 1;
  b.part = malloc(sizeof(float) * (size_t)(b.n_split * c->rows * s->n_head) * (size_t)(s->d + 2));
  b.a = (kern_attn){.kv = &b.kv,
      .n_head = s->n_head,
      .scale = 0.125f,
      .split = KERN_SPLIT,
      .pages = pages,
      .pos0 = c->pos0,
      .n_row = c->rows,
      .q = q,
      .out = out,
      .ldq = ld,
      .ldo = ld};
  double t = time_case(p, &b, b.kv.n_layer, opt->seconds), seen = 0;
  for (int i = 0; i < c->rows; i++) seen += c->pos0 + i + 1;
  double flops = 4.0 * seen * s->d * s->n_head / t, gb = 2.0 * 2 * len * s->d * s->n_kv / t;
  limits(p, o, mem, opt->seconds / 4, read, fma);
  printf("  %-14s at %5d rows %4d  %8.3f ms  %7.1f GFLOP/s", s->model, c->pos0, c->rows, t * 1e3, flops / 1e9);
  if (*fma > 0) printf(" %5.1f %% of FMA", 100 * flops / *fma);
  if (c->rows <= 8) printf("  %6.2f GB/s %5.1f %% of read", gb / 1e9, 100 * gb / *read);
  printf("\n");
  fflush(stdout);
  munmap(b.kv.pool, bytes);
  free(pages), free(q), free(out), free(b.part);
}

static bool parse(int argc, char **argv, options *o) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *v = argv[i + 1];
    if (!strcmp(argv[i], "--isa")) o->isa = v;
    else if (!strcmp(argv[i], "--threads")) o->threads = atoi(v);
    else if (!strcmp(argv[i], "--rows")) o->rows = atoi(v);
    else if (!strcmp(argv[i], "--seconds")) o->seconds = atof(v);
    else return false;
  }
  return argc % 2 == 1 && o->threads > 0 && o->threads <= 64 && o->rows > 0;
}

int main(int argc, char **argv) {
  options o = {.threads = 2, .rows = 32, .seconds = 0.2};
  const kern_ops *ops;
  err e;
  if (!parse(argc, argv, &o)) {
    fprintf(stderr, "usage: bench_attn [--isa NAME] [--threads N] [--rows N] [--seconds S]\n");
    return 2;
  }
  if (!kern_select(o.isa, &ops, &e)) {
    fprintf(stderr, "bench_attn: %s\n", e.msg);
    return 2;
  }
  pool *p = pool_new(o.threads);
  if (!p) {
    fprintf(stderr, "bench_attn: %d threads cannot be started\n", o.threads);
    return 1;
  }
  double read = 0, fma = 0;
  uint8_t *mem = reserve(COLD_BYTES);
  memset(mem, 1, COLD_BYTES);
  limits(p, ops, mem, o.seconds, &read, &fma);
  printf("%s (%s), %d threads, %d rows a call\n", ops->name, ops->units, o.threads, o.rows);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) bench_case(&shapes[i], &cases[k], ops, p, &o, mem, &read, &fma);
  printf("limits, best seen: read %.1f GB/s, FMA %.1f GFLOP/s\n", read / 1e9, fma / 1e9);
  munmap(mem, COLD_BYTES);
  pool_free(p);
  return 0;
}
