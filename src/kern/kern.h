/* kern.h - the arithmetic of a forward pass: packed weights, quantised activations, matrix products, attention, element-wise work.
 * Not the model (shapes come in as numbers), not the schedule (callers split the work over threads), nothing about files.
 * Ownership: kernels own nothing; every buffer is the caller's. A kern_mat's data is 64-byte aligned.
 * Threads: all functions are pure over their arguments; the caller gives each thread its own range of outputs.
 * Failure: none after kern_select / kern_packed_bytes said yes; shapes are the caller's promise and are asserted in debug builds only.
 *
 * THE OUTPUT CONTRACT (law 1), the same for every table below and bit for bit equal between them unless a kernel says otherwise:
 *  1. Activations for quantised weights are int8 in blocks of 32 along K: d = absmax/127 (F32), q = round-to-nearest-even(x * (127.0f/absmax)).
 *     absmax < 2^-100: d = 0, q = 0. A NaN or infinity in the block: d = NaN, q = 0, so it reaches every output. Whatever the number of rows.
 *     F32, F16 and BF16 weights multiply unrounded F32 activations.
 *  2. Integer dot products are exact; scaled block sums are added in F32, ascending along K, ONE accumulator per output, with FMA. The exact
 *     sequence per block and layout is written in kern/README.md and implemented by kern_ref with fmaf().
 *     Unquantised weights: acc = fmaf(w[k], x[k], acc), k ascending, one accumulator per output.
 *  3. Reductions over a row (norms, soft-max sums) use 16 virtual lanes: lane j takes elements i with i mod 16 == j, ascending;
 *     lanes are then added as a tree 8-4-2-1 (lane j += lane j+8, then +4, +2, +1).
 *  4. Attention works in splits of KERN_SPLIT absolute positions, whatever the page size, the rows of the call and the threads. Per query head of a
 *     row and per split: s = scale * (fma over head_dim ascending, from 0); m = largest s of the visible keys; p = exp(s - m); l = sum of p as in 3,
 *     the lane being the position mod 16; o[d] = fma(p, v[d], o[d]) over the visible keys ascending, from 0. Splits are folded ascending, the first
 *     taken as it is: t = max(m', m), f' = exp(m' - t), f = exp(m - t), l' = fma(l', f', l * f), o'[d] = fma(o'[d], f', o[d] * f), m' = t. The
 *     output is o' * (1 / l'). A key a row does not see takes no part at all: memory behind the last position may hold anything, NaN included.
 *  5. exp is kern_expf everywhere: n = nearest integer to x log2(e), two-part ln 2, a polynomial of degree 6, all fma; under 2^-126 it is 0.
 *     Element-wise kernels are one sequence of operations per element, written in vec_body.inc; where in the row it stands does not matter.
 *  No compiler may contract or reorder: the tree is built with -ffp-contract=off and without fast-math. */
#ifndef KERN_KERN_H
#define KERN_KERN_H
#include "base/err.h"
#include "base/wtype.h"
#include <stddef.h>
#include <stdint.h>

enum {
  KERN_PANEL = 16,       /* output rows interleaved in a packed weight matrix; one vector lane an output row */
  KERN_BLOCK = 32,       /* activation block along K */
  KERN_SPLIT = 256,      /* attention split, absolute positions */
  KERN_PEAK = 64,        /* logits under one maximum, and words of noise drawn at a time */
  KERN_SPLIT_MAX = 2048, /* what attention's fixed scratch holds: positions of a split, */
  KERN_HEAD_MAX = 512    /* and dimensions of a head */
};

/* ---- weights ---------------------------------------------------------------------------------------------------------------- */

/* A weight matrix [rows, cols] (y = W x: rows are outputs, cols is K), packed in panels of 16 rows. Rows are padded up to a panel with zeros. */
typedef struct kern_mat {
  wtype type; /* type in the file; selects the packed layout */
  int rows, cols;
  void *data; /* packed, kern_packed_bytes() long, 64-byte aligned. Borrowed. */
} kern_mat;

/* Bytes of the packed form, 0 when this type has no packed layout (or cols does not divide into its blocks). <= 1.05 x the file's bytes for
 * large quantised tensors. */
size_t kern_packed_bytes(wtype t, int rows, int cols);
/* Repacks panels [p0, p1) of w from `src`, the file's raw row-major blocks (unaligned is fine). Different panel ranges may run in parallel. */
void kern_pack(const kern_mat *w, const void *src, int p0, int p1);
static inline int kern_panels(int rows) { return (rows + KERN_PANEL - 1) / KERN_PANEL; }
/* Raw file blocks -> F32, exactly as the reference gguf Python package does. n is a multiple of the block. false: type not supported. */
bool dequant_row(wtype t, const void *src, int64_t n, float *y);

/* ---- activations ------------------------------------------------------------------------------------------------------------ */

typedef enum kern_act_mode { KERN_ACT_Q8, KERN_ACT_F32 } kern_act_mode;
/* n rows of K activations. Both forms may be filled; gemm reads what the weight wants (kern_wants), F32 whenever mode is F32. */
typedef struct kern_act {
  int k, cap;         /* K, rows there is room for */
  kern_act_mode mode; /* KERN_ACT_F32: --act f32, every product uses unrounded activations */
  int8_t *q;          /* [cap, kern_act_ldq(k)] bytes past K are neither written nor read */
  float *d;           /* [cap, K/32] block scale */
  float *s;           /* [cap, K/32] d * sum of q in the block (one rounding) */
  int32_t *z;         /* [cap, K/16] sum of q per 16, exact */
  const float *x;     /* [n, ldx] unrounded, borrowed; set by the caller before an F32 product */
  int ldx;
} kern_act;
/* Row stride of q: whole cache lines, an odd number of them, so that 32 rows read side by side do not fall into the same cache sets. */
static inline size_t kern_act_ldq(int k) { return ((((size_t)k + 63) / 64) | 1) * 64; }
size_t kern_act_bytes(int k, int cap);
void kern_act_bind(kern_act *a, void *mem, int k, int cap); /* mem: kern_act_bytes(), 64-byte aligned */
kern_act_mode kern_wants(wtype t);                          /* what products with this type read when mode is Q8 */

/* ---- KV pages and attention ------------------------------------------------------------------------------------------------- */

typedef enum kern_kv_type { KERN_KV_F16, KERN_KV_F32 } kern_kv_type; /* F32 is for checking */
/* One page holds `page` tokens (a multiple of 16) of every layer. Inside a page, for layer l:
 *   K: [n_kv][page/16][head_dim][16]   16 tokens side by side, so that a lane is a key
 *   V: [n_kv][page][head_dim]
 * Values are rounded to the KV type when written; every reader, the same chunk included, reads the rounded value. */
typedef struct kern_kv {
  kern_kv_type type;
  int n_layer, n_kv, head_dim, page;
  uint8_t *pool; /* [n_pages] of kern_kv_page_bytes() */
} kern_kv;
size_t kern_kv_page_bytes(const kern_kv *kv); /* 0: no kernel takes this shape (head_dim odd or over KERN_HEAD_MAX, page not a multiple of 16) */

/* Attention of rows that follow each other in one sequence: row i is the query at absolute position pos0 + i and sees keys
 * max(0, pos - window + 1) .. pos (window 0: all). GQA: query heads [h*g, (h+1)*g) read kv head h, g = n_head / n_kv.
 * A call keeps its tiles on the stack, under 300 KB (a pool's threads have room for it). Fast are head_dim a multiple of 16 and pages of 64 and more;
 * a call with 32 and more rows shares each piece of K and V among all of them. */
typedef struct kern_attn {
  const kern_kv *kv;
  int layer, n_head;
  float scale;
  int window;
  int split;            /* KERN_SPLIT; a parameter only so that a test can plant a fault (a multiple of 16, <= KERN_SPLIT_MAX) */
  const int32_t *pages; /* page table of the sequence: pages[p / page] holds position p */
  int pos0, n_row;
  const float *q; /* [n_row, ldq], heads side by side */
  float *out;     /* [n_row, ldo] */
  int ldq, ldo;
} kern_attn;

/* ---- one table per instruction set ------------------------------------------------------------------------------------------- */

typedef struct kern_ops {
  const char *name;     /* "ref", "avx2", "avx512", "neon", as --isa takes it */
  const char *units;    /* what it multiplies with, for reports: "AVX-512 VNNI" */
  int arith;            /* version of the output contract's arithmetic; part of the fingerprint */
  bool (*usable)(void); /* CPU and kernel allow it */

  void (*act_quant)(kern_act *a, int row, const float *x); /* fills q, d, s, z of one row from x [K] */
  /* y[i*ldy + r] for rows i in [0, n) of a, outputs r of panels [p0, p1) (r < w->rows only). */
  void (*gemm)(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy);

  void (*rmsnorm)(const float *x, const float *w, float eps, int n, float *y); /* y = x / sqrt(mean(x^2) + eps) * w; n % 16 == 0 not required */
  void (*add)(float *y, const float *x, int n);                                /* y += x */
  void (*add_scaled)(float *y, const float *x, float s, int n);                /* y = fma(x, s, y) */
  void (*silu_mul)(const float *g, const float *u, int n, float *y);           /* y = g * sigmoid(g) * u; y may be g */
  void (*gelu_mul)(const float *g, const float *u, int n, float *y);           /* tanh form */
  /* Rotates n_rot dims of one head in place. cs: [n_rot/2] pairs (cos, sin). neox: pairs (i, i + n_rot/2); else (2i, 2i+1). */
  void (*rope)(float *x, int n_rot, bool neox, const float *cs);
  /* Writes K and V of one position ([n_kv, head_dim] each, heads [h0, h1) only) into the page. slot = position within the page. */
  void (*kv_store)(const kern_kv *kv, int layer, int32_t page, int slot, const float *k, const float *v, int h0, int h1);
  /* Rows [r0, r1) of a, kv head h (its g query heads), all splits in ascending order, merged online in that order. */
  void (*attn)(const kern_attn *a, int h, int r0, int r1);
  /* The same, one split only, unmerged: part[(r - r0)*g + j][head_dim + 2] = (o, max, sum). For long contexts with few rows. */
  void (*attn_part)(const kern_attn *a, int h, int r0, int r1, int split_index, float *part);
  /* Merges n_split partial results of one head row, `stride` floats apart, ascending, exactly as attn does. Splits that see no key are skipped. */
  void (*attn_merge)(const float *part, int n_split, size_t stride, int head_dim, float *out);

  /* For the sampler and log-probabilities, over a row of n logits. */
  void (*max_at)(const float *x, int n, float *ret_max, int *ret_at); /* lowest index on ties; NaN never wins */
  void (*peaks)(const float *x, int n, float *m);                     /* m[i]: largest of x[KERN_PEAK * i ..]; NaN never wins */
  /* Sum of exp(d), d = scale * x - max; with `ret_moment` of d * exp(d) too. 16 lanes in F32 per 4,096 elements, blocks summed in double. */
  double (*sum_exp)(const float *x, int n, float scale, float max, double *ret_moment);
  /* Philox4x32-10 of 16 counters (group + g, at[0..3)): word w of counter g is u[16 w + g]. Returns the largest word. */
  uint32_t (*noise)(const uint32_t key[2], const uint32_t at[3], uint32_t group, uint32_t u[KERN_PEAK]);
} kern_ops;

/* name NULL or "auto": the best usable table. Unknown or unusable name: ERR_USAGE that lists the names. */
bool kern_select(const char *name, const kern_ops **ret, err *e);
const kern_ops *const *kern_tables(void); /* all built tables, best first, NULL at the end; the last is ref, always usable */

/* exp as the kernels compute it (same bits in every table): for the sampler's scalar parts and for tests. */
float kern_expf(float x);
#endif
