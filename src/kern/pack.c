/* pack.c - from the file's row-major blocks to panels of 16 rows, and the shape of the activation buffers.
 *
 * Only bits move here; nothing is rounded, so what dequant_row says of a file holds for the packed form too. The work is one row's block at a
 * time in plain 32- and 64-bit words: a row contributes one dword of each 64-byte vector, so a block of 16 rows fills a few cache lines while
 * 16 source streams advance together. That runs at memory speed without an instruction set of its own (bench_gemm prints it), hence there is
 * one version only; the unit test holds it to an element-by-element oracle. */
#include "kern/kern_gemm.h"
#include <assert.h>
#include <string.h>

static const gemm_layout layouts[] = {
    {WT_F32, 32, 0, SCALE_NONE, 1, 4},
    {WT_F16, 16, 0, SCALE_NONE, 1, 2},
    {WT_BF16, 16, 0, SCALE_NONE, 1, 2},
    {WT_Q4_0, 4, 8, SCALE_D, 32, 18},
    {WT_Q4_1, 4, 0, SCALE_DM, 32, 20},
    {WT_Q5_0, 5, 16, SCALE_D, 32, 22},
    {WT_Q5_1, 5, 0, SCALE_DM, 32, 24},
    {WT_Q8_0, 8, 128, SCALE_D, 32, 34},
    {WT_Q4_K, 4, 0, SCALE_K, 256, 144},
    {WT_Q5_K, 5, 0, SCALE_K, 256, 176},
    {WT_Q6_K, 6, 32, SCALE_6K, 256, 210},
};

const gemm_layout *gemm_layout_of(wtype t) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    if (layouts[i].type == t) return &layouts[i];
  return NULL;
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t gemm_panel_bytes(const gemm_layout *l, int cols) {
  if (l->scale == SCALE_NONE) return round_up((size_t)cols * KERN_PANEL * (size_t)l->bits / 8, 64);
  size_t group = (size_t)gemm_group(l->scale) * KERN_BLOCK;
  return ((size_t)cols + group - 1) / group * gemm_group_bytes(l->bits, l->scale);
}

size_t kern_packed_bytes(wtype t, int rows, int cols) {
  const gemm_layout *l = gemm_layout_of(t);
  if (!l || rows <= 0 || cols <= 0 || cols % l->block) return 0;
  size_t panels = ((size_t)rows + KERN_PANEL - 1) / KERN_PANEL, bytes;
  if (__builtin_mul_overflow(panels, gemm_panel_bytes(l, cols), &bytes)) return 0;
  return bytes;
}

/* ---- words ------------------------------------------------------------------------------------------------------------------------ */

static uint32_t get32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}
static uint64_t get64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}
/* Vector `vec` of a block, seen from one row's lane. */
static void put32(uint8_t *lane, int vec, uint32_t v) { memcpy(lane + 64 * vec, &v, 4); }

/* Exchanges the bits of x selected by m with those s places above. */
static uint32_t swap_bits(uint32_t x, uint32_t m, int s) {
  uint32_t t = (x ^ x >> s) & m;
  return x ^ t ^ t << s;
}

/* Bit 4g + b (element 4g + b) to bit g of byte b. As bits of the bit's index, (g2 g1 g0 b1 b0) -> (b1 b0 g2 g1 g0). */
static uint32_t high_plane(uint32_t h) {
  h = swap_bits(h, 0x0000ccccu, 14); /* b1 g1 g0 g2 b0 */
  h = swap_bits(h, 0x00aa00aau, 7);  /* b1 b0 g0 g2 g1 */
  h = swap_bits(h, 0x0c0c0c0cu, 2);  /* b1 b0 g2 g0 g1 */
  return swap_bits(h, 0x22222222u, 1);
}

/* Per byte column, exchanges bit j of word g with bit g of word j: from "bit = block, word = quad" to the other way round. */
static void transpose_8(uint32_t w[8]) {
  static const uint32_t mask[3] = {0x0f0f0f0fu, 0x33333333u, 0x55555555u};
  for (int i = 0, s = 4; s; i++, s >>= 1)
    for (int g = 0; g < 8; g++)
      if (!(g & s)) {
        uint32_t t = (w[g] >> s ^ w[g + s]) & mask[i];
        w[g] ^= t << s;
        w[g + s] ^= t;
      }
}

/* The same for four words of four 2-bit fields. */
static void transpose_4(uint64_t w[4]) {
  static const uint64_t mask[2] = {0x0f0f0f0f0f0f0f0fu, 0x3333333333333333u};
  for (int i = 0, s = 2; s; i++, s >>= 1)
    for (int g = 0; g < 4; g++)
      if (!(g & s)) {
        uint64_t t = (w[g] >> 2 * s ^ w[g + s]) & mask[i];
        w[g] ^= t << 2 * s;
        w[g + s] ^= t;
      }
}

/* ---- one row's file block into its lane: q points at dword r of the block's first vector, s at the block's scales ---------- */

/* The 16 nibble bytes of the 32-element types already pair element j with j + 16, as a packed block does. */
static void lane_nibbles(uint8_t *q, const uint8_t *nib) {
  for (int g = 0; g < 4; g++) put32(q, g, get32(nib + 4 * g));
}

/* 32 bytes whose low (shift 0) or high (shift 4) nibbles are the 32 elements in turn. */
static void lane_nibbles_k(uint8_t *q, const uint8_t *nib, int shift) {
  const uint64_t m = 0x0f0f0f0f0f0f0f0fu;
  for (int i = 0; i < 2; i++) {
    uint64_t v = (get64(nib + 8 * i) >> shift & m) | (get64(nib + 16 + 8 * i) >> shift & m) << 4;
    put32(q, 2 * i, (uint32_t)v);
    put32(q, 2 * i + 1, (uint32_t)(v >> 32));
  }
}

static void lane_d(uint8_t *s, int r, const uint8_t *d) { memcpy(s + 2 * r, d, 2); }
static void lane_dm(uint8_t *s, int r, const uint8_t *dm) {
  memcpy(s + 2 * r, dm, 2);
  memcpy(s + 2 * KERN_PANEL + 2 * r, dm + 2, 2);
}

static void lane_q4_0(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_d(s, r, p);
  lane_nibbles(q, p + 2);
}
static void lane_q4_1(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_dm(s, r, p);
  lane_nibbles(q, p + 4);
}
static void lane_q5_0(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_d(s, r, p);
  lane_nibbles(q, p + 6);
  put32(q, 4, high_plane(get32(p + 2)));
}
static void lane_q5_1(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_dm(s, r, p);
  lane_nibbles(q, p + 8);
  put32(q, 4, high_plane(get32(p + 4)));
}
static void lane_q8_0(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_d(s, r, p);
  for (int g = 0; g < 8; g++) put32(q, g, get32(p + 2 + 4 * g) ^ 0x80808080u);
}

/* Eight 6-bit scales and minima out of 12 bytes, each as one byte of a word: the low four as they stand, the high four split 4 + 2 bits. */
static void lane_k_scales(uint8_t *s, int r, const uint8_t *p) {
  uint32_t a = get32(p + 4), b = get32(p + 8), c = get32(p + 12);
  uint32_t word[4] = {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u), b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u)};
  lane_dm(s, r, p);
  uint8_t *t = s + 4 * KERN_PANEL + r;
  for (int i = 0; i < 8; i++) {
    t[2 * KERN_PANEL * i] = (uint8_t)(word[i / 4] >> 8 * (i % 4));
    t[2 * KERN_PANEL * i + KERN_PANEL] = (uint8_t)(word[2 + i / 4] >> 8 * (i % 4));
  }
}
static void lane_q4_k(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_k_scales(s, r, p);
  for (int b = 0; b < 8; b++) lane_nibbles_k(q + 256 * b, p + 16 + b / 2 * 32, (b & 1) * 4);
}
static void lane_q5_k(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  uint32_t h[8];
  lane_k_scales(s, r, p);
  for (int g = 0; g < 8; g++) h[g] = get32(p + 16 + 4 * g);
  transpose_8(h);
  for (int b = 0; b < 8; b++) {
    uint8_t *lane = q + 320 * b;
    lane_nibbles_k(lane, p + 48 + b / 2 * 32, (b & 1) * 4);
    put32(lane, 4, h[b]);
  }
}
static void lane_q6_k(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_d(s, r, p + 208);
  for (int i = 0; i < 16; i++) s[2 * KERN_PANEL + KERN_PANEL * i + r] = p[192 + i];
  for (int half = 0; half < 2; half++) {
    uint64_t h[4];
    for (int i = 0; i < 4; i++) h[i] = get64(p + 128 + 32 * half + 8 * i);
    transpose_4(h);
    for (int b = 0; b < 4; b++) {
      uint8_t *lane = q + 384 * (4 * half + b);
      lane_nibbles_k(lane, p + 64 * half + (b & 1) * 32, b / 2 * 4);
      put32(lane, 4, (uint32_t)h[b]);
      put32(lane, 5, (uint32_t)(h[b] >> 32));
    }
  }
}

/* ---- panels --------------------------------------------------------------------------------------------------------------------------- */

typedef void lane_fn(uint8_t *q, uint8_t *s, int r, const uint8_t *p);

static inline __attribute__((always_inline)) void pack_panel(
    uint8_t *panel, const uint8_t *src, int n_row, int cols, int bits, gemm_scale kind, int block, int bytes, lane_fn *lane) {
  int n_block = cols / block;
  size_t row_bytes = (size_t)n_block * (size_t)bytes;
  for (int i = 0; i < n_block; i++) {
    int b = i * (block / KERN_BLOCK);
    uint8_t *q = panel + gemm_quants_at(bits, kind, b), *s = panel + gemm_scales_at(bits, kind, b);
    if (kind == SCALE_D) s += 2 * KERN_PANEL * (b % 2);
    const uint8_t *p = src + (size_t)i * (size_t)bytes;
    for (int r = 0; r < n_row; r++, p += row_bytes) lane(q + 4 * r, s, r, p);
  }
}

static void pack_floats(uint8_t *panel, const uint8_t *src, int n_row, int cols, size_t size) {
  for (int r = 0; r < n_row; r++)
    for (int k = 0; k < cols; k++)
      memcpy(panel + ((size_t)k * KERN_PANEL + (size_t)r) * size, src + ((size_t)r * (size_t)cols + (size_t)k) * size, size);
}

static void pack_one(wtype t, uint8_t *panel, const uint8_t *src, int n_row, int cols) {
  switch (t) {
  case WT_Q4_0: pack_panel(panel, src, n_row, cols, 4, SCALE_D, 32, 18, lane_q4_0); break;
  case WT_Q4_1: pack_panel(panel, src, n_row, cols, 4, SCALE_DM, 32, 20, lane_q4_1); break;
  case WT_Q5_0: pack_panel(panel, src, n_row, cols, 5, SCALE_D, 32, 22, lane_q5_0); break;
  case WT_Q5_1: pack_panel(panel, src, n_row, cols, 5, SCALE_DM, 32, 24, lane_q5_1); break;
  case WT_Q8_0: pack_panel(panel, src, n_row, cols, 8, SCALE_D, 32, 34, lane_q8_0); break;
  case WT_Q4_K: pack_panel(panel, src, n_row, cols, 4, SCALE_K, 256, 144, lane_q4_k); break;
  case WT_Q5_K: pack_panel(panel, src, n_row, cols, 5, SCALE_K, 256, 176, lane_q5_k); break;
  case WT_Q6_K: pack_panel(panel, src, n_row, cols, 6, SCALE_6K, 256, 210, lane_q6_k); break;
  case WT_F32: pack_floats(panel, src, n_row, cols, 4); break;
  default: pack_floats(panel, src, n_row, cols, 2); break;
  }
}

/* Bytes no lane writes must not stay what the memory held before: the rows that pad a panel, the second half of a last group, and a few bytes
 * of alignment. Wide panels clear only their last group and the 6-bit type its padding. */
static void clear_unwritten(const gemm_layout *l, uint8_t *panel, size_t panel_bytes, int n_row, int cols) {
  if (n_row < KERN_PANEL || l->scale == SCALE_NONE) {
    memset(panel, 0, panel_bytes);
    return;
  }
  size_t group = gemm_group_bytes(l->bits, l->scale);
  if (cols % (gemm_group(l->scale) * KERN_BLOCK)) memset(panel + panel_bytes - group, 0, group);
  if (l->scale == SCALE_6K)
    for (size_t end = group; end <= panel_bytes; end += group) memset(panel + end - 32, 0, 32);
}

void kern_pack(const kern_mat *w, const void *src, int p0, int p1) {
  const gemm_layout *l = gemm_layout_of(w->type);
  assert(l && w->cols % l->block == 0);
  size_t panel_bytes = gemm_panel_bytes(l, w->cols), row_bytes = (size_t)(w->cols / l->block) * (size_t)l->bytes;
  for (int p = p0; p < p1; p++) {
    uint8_t *panel = (uint8_t *)w->data + (size_t)p * panel_bytes;
    int row = p * KERN_PANEL, n_row = w->rows - row < KERN_PANEL ? w->rows - row : KERN_PANEL;
    clear_unwritten(l, panel, panel_bytes, n_row, w->cols);
    pack_one(w->type, panel, (const uint8_t *)src + (size_t)row * row_bytes, n_row, w->cols);
  }
}

/* ---- activations ------------------------------------------------------------------------------------------------------------------------ */

kern_act_mode kern_wants(wtype t) {
  const gemm_layout *l = gemm_layout_of(t);
  return l && l->scale != SCALE_NONE ? KERN_ACT_Q8 : KERN_ACT_F32;
}

typedef struct act_shape {
  size_t q, d, s, z, total;
} act_shape;

static act_shape act_shape_of(int k, int cap) {
  size_t n = (size_t)cap, blocks = ((size_t)k + KERN_BLOCK - 1) / KERN_BLOCK;
  act_shape a;
  a.q = 0;
  a.d = a.q + round_up(n * kern_act_ldq(k), 64);
  a.s = a.d + round_up(n * blocks * sizeof(float), 64);
  a.z = a.s + round_up(n * blocks * sizeof(float), 64);
  a.total = a.z + round_up(n * blocks * 2 * sizeof(int32_t), 64);
  return a;
}

size_t kern_act_bytes(int k, int cap) { return act_shape_of(k, cap).total; }

void kern_act_bind(kern_act *a, void *mem, int k, int cap) {
  act_shape s = act_shape_of(k, cap);
  uint8_t *p = mem;
  *a = (kern_act){.k = k, .cap = cap, .mode = KERN_ACT_Q8};
  a->q = (int8_t *)(p + s.q);
  a->d = (float *)(void *)(p + s.d);
  a->s = (float *)(void *)(p + s.s);
  a->z = (int32_t *)(void *)(p + s.z);
}
