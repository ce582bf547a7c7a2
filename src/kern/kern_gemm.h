/* kern_gemm.h - inside kern/: the packed weight layouts, and the seam between the loop nest of a matrix product and its tiles.
 * Not for other rooms (kern.h is theirs); holds no arithmetic, which lives in gemm_ref.c and once per instruction set in gemm_*.c.
 * Ownership: everything is borrowed for the length of a call.
 * Threads: pure functions and constant tables.
 * Failure: none; a type without a layout has gemm_layout_of() == NULL and never gets here. */
#ifndef KERN_GEMM_H
#define KERN_GEMM_H
#include "kern/kern.h"

/* How quants are stored: bits in the low four, and above them the table a 4-bit quant is an index into. */
typedef enum gemm_code {
  CODE_NONE = 0,
  CODE_2 = 2,
  CODE_3 = 3,
  CODE_4 = 4,
  CODE_5 = 5,
  CODE_6 = 6,
  CODE_8 = 8,
  CODE_IQ4 = 4 | 1 << 4, /* 16 unequal steps, found by k-means */
  CODE_E2M1 = 4 | 2 << 4 /* the 4-bit float of OCP MX, doubled */
} gemm_code;
static inline int gemm_bits(gemm_code c) { return (int)c & 15; }

/* What stands behind the quants of a group of blocks, for the 16 rows of the panel (README.md draws it). */
typedef enum gemm_scale {
  SCALE_NONE, /* unquantised */
  SCALE_D,    /* group of 2 blocks: d f16 x16 of the first, of the second */
  SCALE_DM,   /* group of 1 block: d f16 x16, m f16 x16 */
  SCALE_E8,   /* group of 4 blocks: 4 x (exponent u8 x16), before the quants, so that a last group may end early */
  SCALE_XS,   /* group of 8 blocks: d f16 x16, then 8 x sc s8 x16, 32 bytes of padding */
  SCALE_K,    /* group of 8 blocks: d f16 x16, dmin f16 x16, then 8 x (sc u8 x16, m u8 x16) */
  SCALE_2K,   /* group of 8 blocks: d f16 x16, dmin f16 x16, then 16 x (sc + 16 m) u8 x16 */
  SCALE_3K,   /* group of 8 blocks: d f16 x16, then 16 x (sc + 32) of 6 bits: 8 x low nibbles x16, 4 x upper bits x16; 32 bytes of padding */
  SCALE_6K    /* group of 8 blocks: d f16 x16, then 16 x sc s8 x16, 32 bytes of padding */
} gemm_scale;

/* X(id, code, zero point, scale kind): the quantised types. Quants, after the table where there is one, are unsigned; `zero` is what stands for 0
 * (0 where a minimum is subtracted). */
#define GEMM_QUANTS(X)                                                                                                                               \
  X(Q2_K, CODE_2, 0, SCALE_2K)                                                                                                                       \
  X(Q3_K, CODE_3, 4, SCALE_3K)                                                                                                                       \
  X(Q4_0, CODE_4, 8, SCALE_D)                                                                                                                        \
  X(Q4_1, CODE_4, 0, SCALE_DM)                                                                                                                       \
  X(Q4_K, CODE_4, 0, SCALE_K)                                                                                                                        \
  X(Q5_0, CODE_5, 16, SCALE_D)                                                                                                                       \
  X(Q5_1, CODE_5, 0, SCALE_DM)                                                                                                                       \
  X(Q5_K, CODE_5, 0, SCALE_K)                                                                                                                        \
  X(Q6_K, CODE_6, 32, SCALE_6K)                                                                                                                      \
  X(Q8_0, CODE_8, 128, SCALE_D)                                                                                                                      \
  X(IQ4_NL, CODE_IQ4, 128, SCALE_D)                                                                                                                  \
  X(IQ4_XS, CODE_IQ4, 128, SCALE_XS)                                                                                                                 \
  X(MXFP4, CODE_E2M1, 12, SCALE_E8)
/* X(id, bytes of one weight): the unquantised types. */
#define GEMM_FLOATS(X) X(F32, 4) X(F16, 2) X(BF16, 2)

/* The two tables, moved up by z (values: ggml's kvalues_iq4nl; OCP Microscaling Formats 1.0, 5.3.3). */
#define GEMM_IQ4(z)                                                                                                                                  \
  -127 + (z), -104 + (z), -83 + (z), -65 + (z), -49 + (z), -35 + (z), -22 + (z), -10 + (z), 1 + (z), 13 + (z), 25 + (z), 38 + (z), 53 + (z),         \
      69 + (z), 89 + (z), 113 + (z)
#define GEMM_E2M1(z)                                                                                                                                 \
  (z), 1 + (z), 2 + (z), 3 + (z), 4 + (z), 6 + (z), 8 + (z), 12 + (z), (z), -1 + (z), -2 + (z), -3 + (z), -4 + (z), -6 + (z), -8 + (z), -12 + (z)

enum {
  GEMM_N_TYPES = 40, /* wtype values of the types above are smaller */
  GEMM_TILE = 32,    /* columns one tile call takes at most */
  GEMM_PANELS = 4
}; /* panels one tile call takes at most */

typedef struct gemm_layout {
  wtype type;
  gemm_code code; /* 0 for unquantised types */
  int zero;
  gemm_scale scale;
  int block, bytes; /* the file's block: elements, bytes */
} gemm_layout;

const gemm_layout *gemm_layout_of(wtype t);
size_t gemm_panel_bytes(const gemm_layout *l, int cols);

/* A quantised panel is a row of groups: the quants of its blocks, 64 * bits bytes each, then their scales. Everything a product needs next lies
 * next in memory and each group starts on a cache line: one stream, which the hardware's prefetchers and ours can follow. */
static inline int gemm_group(gemm_scale s) { return s == SCALE_D ? 2 : s == SCALE_DM ? 1 : s == SCALE_E8 ? 4 : 8; } /* blocks in it */
static inline size_t gemm_scale_bytes(gemm_scale s) {
  switch (s) {
  case SCALE_XS: return 192;
  case SCALE_3K: return 256;
  case SCALE_K:
  case SCALE_2K:
  case SCALE_6K: return 320;
  default: return 64;
  }
}
static inline size_t gemm_group_bytes(gemm_code c, gemm_scale s) { return (size_t)(gemm_group(s) * 64 * gemm_bits(c)) + gemm_scale_bytes(s); }
/* Offsets in the panel: the quants of block b; the scales of its group. */
static inline size_t gemm_quants_at(gemm_code c, gemm_scale s, int b) {
  return (size_t)(b / gemm_group(s)) * gemm_group_bytes(c, s) + (s == SCALE_E8 ? 64 : 0) + (size_t)(b % gemm_group(s) * 64 * gemm_bits(c));
}
static inline size_t gemm_scales_at(gemm_code c, gemm_scale s, int b) {
  return (size_t)(b / gemm_group(s)) * gemm_group_bytes(c, s) + (s == SCALE_E8 ? 0 : (size_t)(gemm_group(s) * 64 * gemm_bits(c)));
}
/* Two integer scales a block, one for each half of it. */
static inline bool gemm_halves(gemm_scale s) { return s == SCALE_2K || s == SCALE_3K || s == SCALE_6K; }

/* Asks for the lines that will be needed some blocks after b; the stream runs on into the next panel. Found by trial on Zen 4 (share of one
 * thread's read bandwidth, with and without): plain 8-bit blocks are best left to the hardware (100 / 80 %); the others, whose unpacking fills the
 * out-of-order window with fewer lines, need it (5 and 6 bits 45 / 75 %), and 5 bits want a far request to L2 beside a near one (85 %). */
static inline __attribute__((always_inline)) void gemm_prefetch(gemm_code c, gemm_scale s, const uint8_t *panel, int b) {
  const uint8_t *at = panel + (size_t)b * gemm_group_bytes(c, s) / (size_t)gemm_group(s);
  const int bits = gemm_bits(c);
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
#if defined(__aarch64__)
void act_quant_neon(kern_act *a, int row, const float *x);
void gemm_neon(const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy);
#endif

/* Activation blocks whose largest magnitude is below this count as zero: 127 / absmax must stay finite. */
#define ACT_TINY 0x1p-100f
#endif
