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
    {WT_F32, CODE_NONE, 0, SCALE_NONE, 1, 4},
    {WT_F16, CODE_NONE, 0, SCALE_NONE, 1, 2},
    {WT_BF16, CODE_NONE, 0, SCALE_NONE, 1, 2},
    {WT_Q4_0, CODE_4, 8, SCALE_D, 32, 18},
    {WT_Q4_1, CODE_4, 0, SCALE_DM, 32, 20},
    {WT_Q5_0, CODE_5, 16, SCALE_D, 32, 22},
    {WT_Q5_1, CODE_5, 0, SCALE_DM, 32, 24},
    {WT_Q8_0, CODE_8, 128, SCALE_D, 32, 34},
    {WT_IQ4_NL, CODE_IQ4, 128, SCALE_D, 32, 18},
    {WT_MXFP4, CODE_E2M1, 12, SCALE_E8, 32, 17},
    {WT_Q2_K, CODE_2, 0, SCALE_2K, 256, 84},
    {WT_Q3_K, CODE_3, 4, SCALE_3K, 256, 110},
    {WT_Q4_K, CODE_4, 0, SCALE_K, 256, 144},
    {WT_Q5_K, CODE_5, 0, SCALE_K, 256, 176},
    {WT_Q6_K, CODE_6, 32, SCALE_6K, 256, 210},
    {WT_IQ4_XS, CODE_IQ4, 128, SCALE_XS, 256, 136},
};

const gemm_layout *gemm_layout_of(wtype t) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    if (layouts[i].type == t) return &layouts[i];
  return NULL;
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Bytes from the start of a panel to the last group, and of that group: whole, but where scales stand first it ends with its last block. */
static size_t last_group(const gemm_layout *l, int cols, size_t *ret_at) {
  int group = gemm_group(l->scale), blocks = cols / KERN_BLOCK, last = (blocks - 1) / group;
  *ret_at = (size_t)last * gemm_group_bytes(l->code, l->scale);
  int missing = l->scale == SCALE_E8 ? (last + 1) * group - blocks : 0;
  return gemm_group_bytes(l->code, l->scale) - (size_t)(missing * 64 * gemm_bits(l->code));
}

size_t gemm_panel_bytes(const gemm_layout *l, int cols) {
  if (l->scale == SCALE_NONE) return round_up((size_t)cols * KERN_PANEL * (size_t)l->bytes, 64);
  size_t at, last = last_group(l, cols, &at);
  return at + last;
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
/* 32 bytes whose 2-bit fields b (0..3) are the 32 elements of block b: two vectors, `vec` the first of them, in each of four blocks `step` apart. */
static void lane_pairs_k(uint8_t *q, int vec, size_t step, const uint8_t *p) {
  uint64_t h[4];
  for (int i = 0; i < 4; i++) h[i] = get64(p + 8 * i);
  transpose_4(h);
  for (size_t b = 0; b < 4; b++) {
    put32(q + step * b, vec, (uint32_t)h[b]);
    put32(q + step * b, vec + 1, (uint32_t)(h[b] >> 32));
  }
}

static void lane_q6_k(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_d(s, r, p + 208);
  for (int i = 0; i < 16; i++) s[2 * KERN_PANEL + KERN_PANEL * i + r] = p[192 + i];
  for (int half = 0; half < 2; half++) {
    for (int b = 0; b < 4; b++) lane_nibbles_k(q + 384 * (4 * half + b), p + 64 * half + (b & 1) * 32, b / 2 * 4);
    lane_pairs_k(q + 384 * 4 * half, 4, 384, p + 128 + 32 * half);
  }
}

/* 16 bytes of (scale, minimum), 64 bytes of 2-bit quants, d, dmin. */
static void lane_q2_k(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  lane_dm(s, r, p + 80);
  for (int i = 0; i < 16; i++) s[4 * KERN_PANEL + KERN_PANEL * i + r] = p[i];
  for (int half = 0; half < 2; half++) lane_pairs_k(q + 128 * 4 * half, 0, 128, p + 16 + 32 * half);
}

/* 32 bytes of third bits (bit b: block b), 64 bytes of 2-bit quants, 16 scales of 6 bits in 12 bytes, d. The scales' low halves: byte i holds
 * scale i low and scale i + 8 high; packed, byte i holds 2 i low and 2 i + 1 high. Their upper bits: byte j holds scales j, j + 4, j + 8, j + 12;
 * packed, 4 j to 4 j + 3. */
static void lane_q3_k(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  uint32_t h[8];
  lane_d(s, r, p + 108);
  uint8_t *lo = s + 2 * KERN_PANEL + r, *hi = lo + 8 * KERN_PANEL;
  for (int i = 0; i < 8; i++) {
    int even = p[96 + 2 * i % 8] >> i / 4 * 4 & 15, odd = p[96 + (2 * i + 1) % 8] >> i / 4 * 4 & 15;
    lo[KERN_PANEL * i] = (uint8_t)(even | odd << 4);
  }
  for (int j = 0; j < 4; j++) {
    int v = 0;
    for (int i = 0; i < 4; i++) v |= (p[104 + i] >> 2 * j & 3) << 2 * i;
    hi[KERN_PANEL * j] = (uint8_t)v;
  }
  for (int half = 0; half < 2; half++) lane_pairs_k(q + 192 * 4 * half, 0, 192, p + 32 + 32 * half);
  for (int g = 0; g < 8; g++) h[g] = get32(p + 4 * g);
  transpose_8(h);
  for (int b = 0; b < 8; b++) put32(q + 192 * b, 2, h[b]);
}

/* d, the upper two bits of eight scales, their lower four, then blocks as IQ4_NL has them. Scales lose their offset of 32 here. */
static void lane_iq4_xs(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  uint32_t hi = (uint32_t)p[2] | (uint32_t)p[3] << 8;
  lane_d(s, r, p);
  for (int b = 0; b < 8; b++) {
    int v = (p[4 + b / 2] >> b % 2 * 4 & 15) | (int)(hi >> 2 * b & 3) << 4;
    s[2 * KERN_PANEL + KERN_PANEL * b + r] = (uint8_t)(v - 32);
    lane_nibbles(q + 256 * b, p + 8 + 16 * b);
  }
}
static void lane_mxfp4(uint8_t *q, uint8_t *s, int r, const uint8_t *p) {
  s[r] = p[0];
  lane_nibbles(q, p + 1);
}

/* ---- panels --------------------------------------------------------------------------------------------------------------------------- */

typedef void lane_fn(uint8_t *q, uint8_t *s, int r, const uint8_t *p);

static inline __attribute__((always_inline)) void pack_panel(
    uint8_t *panel, const uint8_t *src, int n_row, int cols, gemm_code code, gemm_scale kind, int block, int bytes, lane_fn *lane) {
  int n_block = cols / block;
  size_t row_bytes = (size_t)n_block * (size_t)bytes;
  for (int i = 0; i < n_block; i++) {
    int b = i * (block / KERN_BLOCK);
    uint8_t *q = panel + gemm_quants_at(code, kind, b), *s = panel + gemm_scales_at(code, kind, b);
    if (kind == SCALE_D) s += 2 * KERN_PANEL * (b % 2);
    if (kind == SCALE_E8) s += KERN_PANEL * (b % 4);
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
  case WT_Q4_0: pack_panel(panel, src, n_row, cols, CODE_4, SCALE_D, 32, 18, lane_q4_0); break;
  case WT_Q4_1: pack_panel(panel, src, n_row, cols, CODE_4, SCALE_DM, 32, 20, lane_q4_1); break;
  case WT_Q5_0: pack_panel(panel, src, n_row, cols, CODE_5, SCALE_D, 32, 22, lane_q5_0); break;
  case WT_Q5_1: pack_panel(panel, src, n_row, cols, CODE_5, SCALE_DM, 32, 24, lane_q5_1); break;
  case WT_Q8_0: pack_panel(panel, src, n_row, cols, CODE_8, SCALE_D, 32, 34, lane_q8_0); break;
  case WT_IQ4_NL: pack_panel(panel, src, n_row, cols, CODE_IQ4, SCALE_D, 32, 18, lane_q4_0); break;
  case WT_MXFP4: pack_panel(panel, src, n_row, cols, CODE_E2M1, SCALE_E8, 32, 17, lane_mxfp4); break;
  case WT_Q2_K: pack_panel(panel, src, n_row, cols, CODE_2, SCALE_2K, 256, 84, lane_q2_k); break;
  case WT_Q3_K: pack_panel(panel, src, n_row, cols, CODE_3, SCALE_3K, 256, 110, lane_q3_k); break;
  case WT_Q4_K: pack_panel(panel, src, n_row, cols, CODE_4, SCALE_K, 256, 144, lane_q4_k); break;
  case WT_Q5_K: pack_panel(panel, src, n_row, cols, CODE_5, SCALE_K, 256, 176, lane_q5_k); break;
  case WT_Q6_K: pack_panel(panel, src, n_row, cols, CODE_6, SCALE_6K, 256, 210, lane_q6_k); break;
  case WT_IQ4_XS: pack_panel(panel, src, n_row, cols, CODE_IQ4, SCALE_XS, 256, 136, lane_iq4_xs); break;
  case WT_F32: pack_floats(panel, src, n_row, cols, 4); break;
  default: pack_floats(panel, src, n_row, cols, 2); break;
  }
}

/* Bytes no lane writes must not stay what the memory held before: the rows that pad a panel, the second half of a last group, and a few bytes
 * of alignment. Wide panels clear only their last group, and the padding of types that have some. */
static void clear_unwritten(const gemm_layout *l, uint8_t *panel, size_t panel_bytes, int n_row, int cols) {
  if (n_row < KERN_PANEL || l->scale == SCALE_NONE) {
    memset(panel, 0, panel_bytes);
    return;
  }
  size_t at, last = last_group(l, cols, &at);
  if (cols % (gemm_group(l->scale) * KERN_BLOCK)) memset(panel + at, 0, last);
  if (l->scale == SCALE_XS || l->scale == SCALE_3K || l->scale == SCALE_6K)
    for (size_t end = last; end <= panel_bytes; end += last) memset(panel + end - 32, 0, 32);
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
