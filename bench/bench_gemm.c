/* bench_gemm - matrix products beside the limits of the machine they run on, measured in the same run.
 *
 *   bench_gemm [--isa NAME] [--threads N] [--type TYPE] [--columns N] [--seconds S]
 *
 * One column is what decoding does: the figure that counts is bytes of packed weights per second against the read bandwidth. Many columns are
 * prefill: multiply-adds against the peak of the integer dot product. Weights of a case are repeated until they exceed any cache, as the layers
 * of a model do. Everything is timed in windows of a few milliseconds and the best one counts, the limits too, so that a machine that is shared
 * gives the same figures as one that is not, as long as it is free for a moment now and then. */
#include "base/clock.h"
#include "base/half.h"
#include "base/rng.h"
#include "base/wtype.h"
#include "kern/kern.h"
#include "kern/pool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct shape {
  const char *model;
  wtype type;
  int rows, cols;
} shape;
static const shape shapes[] = {
    {"smollm2-135m", WT_Q4_1, 576, 576},
    {"smollm2-135m", WT_Q4_1, 1536, 576},
    {"smollm2-135m", WT_Q4_1, 576, 1536},
    {"smollm2-135m", WT_Q8_0, 49152, 576},
    {"qwen2.5-0.5b", WT_Q5_0, 896, 896},
    {"qwen2.5-0.5b", WT_Q5_0, 4864, 896},
    {"qwen2.5-0.5b", WT_Q4_K, 896, 4864},
    {"qwen2.5-0.5b", WT_Q6_K, 896, 4864},
    {"qwen2.5-0.5b", WT_Q8_0, 151936, 896},
    {"qwen2.5-1.5b", WT_Q4_K, 1536, 1536},
    {"qwen2.5-1.5b", WT_Q4_K, 8960, 1536},
    {"qwen2.5-1.5b", WT_Q6_K, 1536, 8960},
    {"qwen2.5-1.5b", WT_Q6_K, 151936, 1536},
    {"other types", WT_Q4_0, 1536, 1536},
    {"other types", WT_Q5_1, 1536, 1536},
    {"other types", WT_Q5_K, 1536, 1536},
    {"other types", WT_Q2_K, 1536, 1536},
    {"other types", WT_Q3_K, 1536, 1536},
    {"other types", WT_IQ4_NL, 1536, 1536},
    {"other types", WT_IQ4_XS, 1536, 1536},
    {"other types", WT_MXFP4, 1536, 1536},
    {"other types", WT_F16, 1536, 1536},
    {"other types", WT_BF16, 1536, 1536},
    {"other types", WT_F32, 1536, 1536},
};
static const int column_counts[] = {1, 4, 8, 16, 64, 256, 512};
enum { MAX_COLUMNS = 512, COLD_BYTES = 160 << 20, WINDOW_BYTES = 16 << 20 };

typedef struct options {
  const char *isa, *type;
  int threads, columns;
  double seconds;
} options;

static void *reserve(size_t n) {
  void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "bench_gemm: %zu bytes of memory are not to be had\n", n);
    exit(1);
  }
  madvise(p, n, MADV_HUGEPAGE);
  return p;
}

/* ---- limits ------------------------------------------------------------------------------------------------------------------------- */

typedef struct limit_job {
  const uint8_t *mem;
  size_t bytes;
  long rounds;
  int kind;
  volatile uint64_t sink[64];
} limit_job;
enum { LIMIT_READ, LIMIT_DOT };

#if defined(__x86_64__)
/* Four streams of a thread's share, two lines of each at a time. */
__attribute__((target("avx2"))) static uint64_t read_all(const uint8_t *p, size_t n) {
  size_t quarter = n / 4 / 128 * 128;
  __m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (size_t i = 0; i < quarter; i += 128)
    for (size_t j = 0; j < 4; j++) {
      const uint8_t *q = p + j * quarter + i;
      _mm_prefetch((const char *)q + 1024, _MM_HINT_T0);
      _mm_prefetch((const char *)q + 1088, _MM_HINT_T0);
      for (size_t k = 0; k < 128; k += 32) s[j] = _mm256_add_epi64(s[j], _mm256_load_si256((const __m256i *)(const void *)(q + k)));
    }
  __m256i t = _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3]));
  return (uint64_t)_mm256_extract_epi64(t, 0);
}

/* Twelve independent chains of the instruction a table multiplies with. */
#define CHAINS(insn, reg)                                                                                                                            \
  for (long r = 0; r < rounds; r++)                                                                                                                  \
  __asm__ volatile(insn(0) insn(1) insn(2) insn(3) insn(4) insn(5) insn(6) insn(7) insn(8) insn(9) insn(10) insn(11)::                               \
                       : reg "0", reg "1", reg "2", reg "3", reg "4", reg "5", reg "6", reg "7", reg "8", reg "9", reg "10", reg "11")
#define DOT_VNNI(i) "vpdpbusd %%zmm13,%%zmm14,%%zmm" #i "\n\t"
#define DOT_MADDUBS(i) "vpmaddubsw %%ymm13,%%ymm14,%%ymm" #i "\n\t"
static void dot_vnni(long rounds) { CHAINS(DOT_VNNI, "xmm"); }
static void dot_maddubs(long rounds) { CHAINS(DOT_MADDUBS, "xmm"); }
#else
static uint64_t read_all(const uint8_t *p, size_t n) {
  uint64_t s = 0, v;
  for (size_t i = 0; i + 8 <= n; i += 8) memcpy(&v, p + i, 8), s += v;
  return s;
}
#endif

static void limit_run(void *arg, int tid, int n_threads) {
  limit_job *j = arg;
  size_t share = j->bytes / (size_t)n_threads / 4096 * 4096;
  if (j->kind == LIMIT_READ) {
    j->sink[tid % 64] += read_all(j->mem + (size_t)tid * share, share);
    return;
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni")) dot_vnni(j->rounds);
  else dot_maddubs(j->rounds);
#endif
}

static double seconds_since(int64_t t0) { return (double)(clock_now() - t0) / 1e9; }

/* Bytes a second: the best window of WINDOW_BYTES while the whole of mem, which fits no cache, is read in turn. */
static double limit_read(pool *p, const uint8_t *mem, size_t bytes, double seconds) {
  double best = 0;
  int64_t start = clock_now();
  limit_job j = {.bytes = WINDOW_BYTES, .kind = LIMIT_READ};
  for (size_t at = 0; at < bytes || seconds_since(start) < seconds; at += WINDOW_BYTES) {
    int64_t t0 = clock_now();
    j.mem = mem + at % (bytes / WINDOW_BYTES * WINDOW_BYTES);
    pool_run(p, limit_run, &j);
    double v = (double)WINDOW_BYTES / seconds_since(t0);
    if (v > best) best = v;
  }
  return best;
}

/* Operations (a multiply and an add are two) a second of the widest integer dot product this CPU has; 0 when it has none we know. */
static double limit_dot(pool *p, double seconds) {
  double best = 0;
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) return 0;
  double per_round = __builtin_cpu_supports("avx512vnni") ? 12 * 128 : 12 * 64;
  limit_job j = {.rounds = 100000, .kind = LIMIT_DOT};
  for (int64_t start = clock_now(); seconds_since(start) < seconds;) {
    int64_t t0 = clock_now();
    pool_run(p, limit_run, &j);
    double v = per_round * (double)j.rounds * pool_threads(p) / seconds_since(t0);
    if (v > best) best = v;
  }
#else
  (void)p, (void)seconds;
#endif
  return best;
}

/* ---- a case --------------------------------------------------------------------------------------------------------------------------- */

typedef struct bench {
  const kern_ops *ops;
  kern_mat w;
  uint8_t *copies; /* n_copy packed weights side by side */
  const uint8_t *src;
  size_t bytes, src_bytes;
  int n_copy, n, next;
  kern_act act;
  float *x, *y;
} bench;

static void product_run(void *arg, int tid, int n_threads) {
  bench *b = arg;
  int p0, p1;
  pool_tile(kern_panels(b->w.rows), tid, n_threads, &p0, &p1);
  b->ops->gemm(&b->w, &b->act, b->n, p0, p1, b->y, b->w.rows);
}

static void pack_run(void *arg, int tid, int n_threads) {
  bench *b = arg;
  int p0, p1;
  pool_tile(kern_panels(b->w.rows), tid, n_threads, &p0, &p1);
  kern_pack(&b->w, b->src, p0, p1);
}

/* Random bits with scales of a plausible size, so that no product meets denormals or infinities. */
static void fill(wtype t, uint8_t *p, size_t n) {
  const wtype_info *info = wtype_lookup((uint32_t)t);
  rng r = rng_new(7);
  if (info->block == 1) {
    for (size_t i = 0; i < n; i += (size_t)info->bytes) {
      float f = (float)rng_f64(&r) - 0.5f;
      uint16_t h = t == WT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
      if (t == WT_F32) memcpy(p + i, &f, 4);
      else memcpy(p + i, &h, 2);
    }
    return;
  }
  for (size_t i = 0; i + 8 <= n; i += 8) {
    uint64_t v = rng_u64(&r);
    memcpy(p + i, &v, 8);
  }
  uint16_t d = f16_of_f32(0.01f);
  for (size_t i = 0; i < n; i += (size_t)info->bytes) {
    if (t == WT_Q6_K) memcpy(p + i + 208, &d, 2);
    else if (t == WT_Q3_K) memcpy(p + i + 108, &d, 2);
    else if (t == WT_Q2_K) memcpy(p + i + 80, &d, 2), memcpy(p + i + 82, &d, 2);
    else if (t == WT_MXFP4) p[i] = 120;
    else memcpy(p + i, &d, 2), memcpy(p + i + 2, &d, t == WT_Q4_1 || t == WT_Q5_1 || t == WT_Q4_K || t == WT_Q5_K ? 2 : 0);
  }
}

static double time_pack(pool *p, bench *b) {
  double best = 1e30;
  for (int i = 0; i < 3; i++) {
    int64_t t0 = clock_now();
    pool_run(p, pack_run, b);
    double t = seconds_since(t0);
    if (t < best) best = t;
  }
  return best;
}

static double time_product(pool *p, bench *b, double seconds) {
  double best = 1e30;
  int64_t start = clock_now();
  for (int round = 0; round < 3 || seconds_since(start) < seconds; round++) {
    int calls = b->n == 1 && b->bytes < WINDOW_BYTES ? (int)(WINDOW_BYTES / b->bytes) : 1;
    int64_t t0 = clock_now();
    for (int i = 0; i < calls; i++) {
      b->w.data = b->copies + (size_t)(b->next++ % b->n_copy) * b->bytes;
      pool_run(p, product_run, b);
    }
    double t = seconds_since(t0) / calls;
    if (t < best) best = t;
  }
  return best;
}

static double larger(double a, double b) { return a > b ? a : b; }

static void bench_shape(const shape *s, const kern_ops *ops, pool *p, const options *o, double *read_limit, double *dot_limit) {
  const wtype_info *info = wtype_lookup((uint32_t)s->type);
  bench b = {.ops = ops, .w = {.type = s->type, .rows = s->rows, .cols = s->cols}};
  size_t x_bytes = (size_t)MAX_COLUMNS * (size_t)s->cols * 4, y_bytes = (size_t)MAX_COLUMNS * (size_t)s->rows * 4;
  b.bytes = kern_packed_bytes(s->type, s->rows, s->cols);
  b.src_bytes = (size_t)s->rows * (size_t)(s->cols / info->block) * (size_t)info->bytes;
  b.n_copy = (int)(COLD_BYTES / b.bytes) + 1;
  size_t total = (size_t)b.n_copy * b.bytes;
  uint8_t *src = reserve(b.src_bytes);
  fill(s->type, src, b.src_bytes);
  b.src = src;
  b.copies = reserve(total);
  b.w.data = b.copies;
  double pack = time_pack(p, &b);
  for (int i = 1; i < b.n_copy; i++) memcpy(b.copies + (size_t)i * b.bytes, b.copies, b.bytes);
  b.x = reserve(x_bytes);
  b.y = reserve(y_bytes);
  rng r = rng_new(11);
  for (size_t i = 0; i < (size_t)MAX_COLUMNS * (size_t)s->cols; i++) b.x[i] = (float)rng_f64(&r) - 0.5f;
  void *act_mem = reserve(kern_act_bytes(s->cols, MAX_COLUMNS));
  kern_act_bind(&b.act, act_mem, s->cols, MAX_COLUMNS);
  b.act.x = b.x;
  b.act.ldx = s->cols;
  if (kern_wants(s->type) == KERN_ACT_Q8)
    for (int i = 0; i < MAX_COLUMNS; i++) ops->act_quant(&b.act, i, b.x + (size_t)i * (size_t)s->cols);

  printf("%s %s %dx%d  %.1f MB, packed %.3f x the file's bytes at %.1f GB/s\n", s->model, info->name, s->rows, s->cols, (double)b.bytes / 1e6,
      (double)b.bytes / (double)b.src_bytes, (double)b.src_bytes / pack / 1e9);
  for (size_t i = 0; i < sizeof column_counts / sizeof *column_counts; i++) {
    b.n = column_counts[i];
    if (o->columns && o->columns != b.n) continue;
    if ((double)b.n * s->rows * s->cols * 2 > 80e9) continue; /* half a second a call: a head is never asked for that */
    double t = time_product(p, &b, o->seconds), gb = (double)b.bytes / t, ops_s = 2.0 * b.n * s->rows * s->cols / t;
    *read_limit = larger(*read_limit, limit_read(p, b.copies, total, o->seconds / 4));
    *dot_limit = larger(*dot_limit, limit_dot(p, o->seconds / 4));
    printf("  n %4d  %9.3f ms  %7.2f GB/s %5.1f %% of read  %8.1f GOP/s %5.1f %% of dot\n", b.n, t * 1e3, gb / 1e9, 100 * gb / *read_limit,
        ops_s / 1e9, *dot_limit > 0 ? 100 * ops_s / *dot_limit : 0.0);
    fflush(stdout);
  }
  munmap(src, b.src_bytes), munmap(b.copies, total), munmap(b.x, x_bytes), munmap(b.y, y_bytes),
      munmap(act_mem, kern_act_bytes(s->cols, MAX_COLUMNS));
}

static bool parse(int argc, char **argv, options *o) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *v = argv[i + 1];
    if (!strcmp(argv[i], "--isa")) o->isa = v;
    else if (!strcmp(argv[i], "--type")) o->type = v;
    else if (!strcmp(argv[i], "--threads")) o->threads = atoi(v);
    else if (!strcmp(argv[i], "--columns")) o->columns = atoi(v);
    else if (!strcmp(argv[i], "--seconds")) o->seconds = atof(v);
    else return false;
  }
  return argc % 2 == 1 && o->threads > 0 && o->threads <= 64;
}

int main(int argc, char **argv) {
  options o = {.threads = 2, .seconds = 0.2};
  const kern_ops *ops;
  err e;
  if (!parse(argc, argv, &o)) {
    fprintf(stderr, "usage: bench_gemm [--isa NAME] [--threads N] [--type TYPE] [--columns N] [--seconds S]\n");
    return 2;
  }
  if (!kern_select(o.isa, &ops, &e)) {
    fprintf(stderr, "bench_gemm: %s\n", e.msg);
    return 2;
  }
  pool *p = pool_new(o.threads);
  if (!p) {
    fprintf(stderr, "bench_gemm: %d threads cannot be started\n", o.threads);
    return 1;
  }
  uint8_t *mem = reserve(COLD_BYTES);
  memset(mem, 1, COLD_BYTES);
  double read_limit = limit_read(p, mem, COLD_BYTES, 2 * o.seconds), dot_limit = limit_dot(p, 2 * o.seconds);
  munmap(mem, COLD_BYTES);
  printf(
      "%s (%s), %d threads; read %.1f GB/s, integer dot product %.0f GOP/s\n", ops->name, ops->units, o.threads, read_limit / 1e9, dot_limit / 1e9);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (!o.type || !strcmp(o.type, wtype_lookup((uint32_t)shapes[i].type)->name)) bench_shape(&shapes[i], ops, p, &o, &read_limit, &dot_limit);
  printf("limits, best seen: read %.1f GB/s, integer dot product %.0f GOP/s\n", read_limit / 1e9, dot_limit / 1e9);
  pool_free(p);
  return 0;
}
