/* kern_gemm.h - inside kern/: the packed weight layouts, and the seam between the loop nest of a matrix product and its tiles.
 * Not for other rooms (kern.h is theirs); holds no arithmetic, which lives in gemm_ref.c and once per instruction set in gemm_*.c.
 * Ownership: everything is borrowed for the length of a call.
 * Threads: pure functions and constant tables.
 * Failure: none; a type without a layout has gemm_layout_of() == NULL and never gets here. */
#ifndef KERN_GEMM_H
#define KERN_GEMM_H
#include "kern/kern.h"

/* What stands behind the quants of a group of blocks, for the 16 rows of the panel (README.md draws it). */
typedef enum gemm_scale {
  SCALE_NONE, /* unquantised */
  SCALE_D,    /* group of 2 blocks: d f16 x16 of the first, of the second */
  SCALE_DM,   /* group of 1 block: d f16 x16, m f16 x16 */
  SCALE_K,    /* group of 8 blocks: d f16 x16, dmin f16 x16, then 8 x (sc u8 x16, m u8 x16) */
  SCALE_6K    /* group of 8 blocks: d f16 x16, then 16 x sc s8 x16, 32 bytes of padding */
} gemm_scale;

/* X(id, bits, zero point, scale kind): the quantised types. Quants are stored unsigned; `zero` is what stands for 0 (0 where a minimum is added). */
#define GEMM_QUANTS(X)                                                                                                                               \
  X(Q4_0, 4, 8, SCALE_D)                                                                                                                             \
  X(Q4_1, 4, 0, SCALE_DM)                                                                                                                            \
  X(Q4_K, 4, 0, SCALE_K)                                                                                                                             \
  X(Q5_0, 5, 16, SCALE_D)                                                                                                                            \
  X(Q5_1, 5, 0, SCALE_DM)                                                                                                                            \
  X(Q5_K, 5, 0, SCALE_K)                                                                                                                             \
  X(Q6_K, 6, 32, SCALE_6K)                                                                                                                           \
  X(Q8_0, 8, 128, SCALE_D)
/* X(id, bytes of one weight): the unquantised types. */
#define GEMM_FLOATS(X) X(F32, 4) X(F16, 2) X(BF16, 2)

enum {
  GEMM_N_TYPES = 32, /* wtype values of the types above are smaller */
  GEMM_TILE = 32,    /* columns one tile call takes at most */
  GEMM_PANELS = 4
}; /* panels one tile call takes at most */

typedef struct gemm_layout {
  wtype type;
  int bits, zero; /* 32 or 16 bits and no zero point for unquantised types */
  gemm_scale scale;
  int block, bytes; /* the file's block: elements, bytes */
} gemm_layout;

const gemm_layout *gemm_layout_of(wtype t);
size_t gemm_panel_bytes(const gemm_layout *l, int cols);

/* A quantised panel is a row of groups: the quants of its blocks, 64 * bits bytes each, then their scales. Everything a product needs next lies
 * next in memory and each group starts on a cache line: one stream, which the hardware's prefetchers and ours can follow. */
static inline int gemm_group(gemm_scale s) { return s == SCALE_D ? 2 : s == SCALE_DM ? 1 : 8; } /* blocks in it */
static inline size_t gemm_group_bytes(int bits, gemm_scale s) {
  return (size_t)gemm_group(s) * 64 * (size_t)bits + (s == SCALE_D || s == SCALE_DM ? 64 : 320);
}
/* Offsets in the panel: the quants of block b; the scales of its group. */
static inline size_t gemm_quants_at(int bits, gemm_scale s, int b) {
  return (size_t)(b / gemm_group(s)) * gemm_group_bytes(bits, s) + (size_t)(b % gemm_group(s)) * 64 * (size_t)bits;
}
static inline size_t gemm_scales_at(int bits, gemm_scale s, int b) {
  return (size_t)(b / gemm_group(s)) * gemm_group_bytes(bits, s) + (size_t)gemm_group(s) * 64 * (size_t)bits;
}

/* Asks for the lines that will be needed some blocks after b; the stream runs on into the next panel. Found by trial on Zen 4 (share of one
 * thread's read bandwidth, with and without): plain 8-bit blocks are best left to the hardware (100 / 80 %); the others, whose unpacking fills the
 * out-of-order window with fewer lines, need it (5 and 6 bits 45 / 75 %), and 5 bits want a far request to L2 beside a near one (85 %). */
static inline __attribute__((always_inline)) void gemm_prefetch(int bits, gemm_scale s, const uint8_t *panel, int b) {
  const uint8_t *at = panel + (size_t)b * gemm_group_bytes(bits, s) / (size_t)gemm_group(s);
  if (bits == 8) return;
#pragma GCC unroll 8
  for (int i = 0; i <= bits; i++) {
    __builtin_prefetch(at + 64 * i + (bits == 5 ? 1024 : 4096), 0, 3);
    if (bits == 5) __builtin_prefetch(at + 64 * i + 8192, 0, 2);
  }
}

/* The columns (rows of kern_act) of one tile. */
typedef struct gemm_cols {
  int n; /* 1 .. GEMM_TILE */
  const int8_t *q;
  size_t ldq; /* [n, ldq] */
  const float *d, *s;
  size_t ldd; /* [n, ldd] */
  const int32_t *z;
  size_t ldz; /* [n, ldz] */
  const float *x;
  size_t ldx; /* [n, ldx] */
} gemm_cols;

/* Computes [n_panel][cols->n][KERN_PANEL] complete outputs into out (64-byte aligned). n_panel is 1 unless cols->n is 1. */
typedef void gemm_tile_fn(const uint8_t *panel, size_t panel_bytes, int n_panel, int k, const gemm_cols *cols, float *out);

/* Tiles of one instruction set by weight type. q8 is NULL for unquantised types. */
typedef struct gemm_tiles {
  gemm_tile_fn *q8[GEMM_N_TYPES], *f32[GEMM_N_TYPES];
} gemm_tiles;

/* The loop nest, the same for every instruction set: cache blocks of columns, panels, tiles; writes y, cuts the tail rows. */
void gemm_run(const gemm_tiles *t, const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy);

/* What select.c puts into kern_ops. */
void act_quant_ref(kern_act *a, int row, const float *x);
void gemm_ref(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy);
#if defined(__x86_64__)
void act_quant_avx2(kern_act *a, int row, const float *x);
void gemm_avx2(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy);
void act_quant_avx512(kern_act *a, int row, const float *x);
void gemm_avx512(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy);
#endif

/* Activation blocks whose largest magnitude is below this count as zero: 127 / absmax must stay finite. */
#define ACT_TINY 0x1p-100f
#endif
