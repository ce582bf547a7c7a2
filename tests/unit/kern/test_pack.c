/* Packed weights against an oracle that places every element by the formulas of kern/README.md, one bit field at a time. */
#include "gemm_check.h"

/* ---- the oracle ------------------------------------------------------------------------------------------------------------------------ */

typedef struct layout {
  int bits, block, group, scales;
  bool scales_first;
} layout; /* block: the file's; group: packed blocks of 32; scales: their bytes */

static layout layout_of(wtype t) {
  switch (t) {
  case WT_Q4_0: return (layout){4, 32, 2, 64};
  case WT_Q4_1: return (layout){4, 32, 1, 64};
  case WT_Q5_0: return (layout){5, 32, 2, 64};
  case WT_Q5_1: return (layout){5, 32, 1, 64};
  case WT_Q8_0: return (layout){8, 32, 2, 64};
  case WT_Q4_K: return (layout){4, 256, 8, 320};
  case WT_Q5_K: return (layout){5, 256, 8, 320};
  case WT_Q6_K: return (layout){6, 256, 8, 320};
  case WT_Q2_K: return (layout){2, 256, 8, 320};
  case WT_Q3_K: return (layout){3, 256, 8, 256};
  case WT_IQ4_NL: return (layout){4, 32, 2, 64};
  case WT_IQ4_XS: return (layout){4, 256, 8, 192};
  case WT_MXFP4: return (layout){4, 32, 4, 64, true};
  default: return (layout){0};
  }
}

/* Quant i of a file block, unsigned as it is packed. */
static int file_quant(wtype t, const uint8_t *p, int i) {
  int j = i % 32, b = i / 32;
  switch (t) {
  case WT_IQ4_NL:
  case WT_Q4_0: return p[2 + i % 16] >> (i < 16 ? 0 : 4) & 15;
  case WT_Q4_1: return p[4 + i % 16] >> (i < 16 ? 0 : 4) & 15;
  case WT_Q5_0: return (p[6 + i % 16] >> (i < 16 ? 0 : 4) & 15) | (p[2 + i / 8] >> i % 8 & 1) << 4;
  case WT_Q5_1: return (p[8 + i % 16] >> (i < 16 ? 0 : 4) & 15) | (p[4 + i / 8] >> i % 8 & 1) << 4;
  case WT_Q8_0: return (int8_t)p[2 + i] + 128;
  case WT_MXFP4: return p[1 + i % 16] >> (i < 16 ? 0 : 4) & 15;
  case WT_IQ4_XS: return p[8 + 16 * b + j % 16] >> (j < 16 ? 0 : 4) & 15;
  case WT_Q2_K: return p[16 + b / 4 * 32 + j] >> 2 * (b % 4) & 3;
  case WT_Q3_K: return (p[32 + b / 4 * 32 + j] >> 2 * (b % 4) & 3) | (p[j] >> b & 1) << 2;
  case WT_Q4_K: return p[16 + b / 2 * 32 + j] >> 4 * (b % 2) & 15;
  case WT_Q5_K: return (p[48 + b / 2 * 32 + j] >> 4 * (b % 2) & 15) | (p[16 + j] >> b & 1) << 4;
  default: return (p[b / 4 * 64 + b % 2 * 32 + j] >> b % 4 / 2 * 4 & 15) | (p[128 + b / 4 * 32 + j] >> 2 * (b % 4) & 3) << 4;
  }
}

/* Element k (of a block of 32) of row r into the block's vectors. */
static void place(int bits, uint8_t *q, int r, int k, int u) {
  int g = k / 4, lane = 4 * r + k % 4;
  if (bits == 8) {
    q[64 * g + lane] = (uint8_t)u;
    return;
  }
  if (bits < 4) {
    q[64 * (g % 2) + lane] = (uint8_t)(q[64 * (g % 2) + lane] | (u & 3) << g / 2 * 2);
    if (bits == 3) q[128 + lane] = (uint8_t)(q[128 + lane] | (u >> 2) << g);
    return;
  }
  q[64 * (g % 4) + lane] = (uint8_t)(q[64 * (g % 4) + lane] | (u & 15) << (g < 4 ? 0 : 4));
  if (bits == 5) q[256 + lane] = (uint8_t)(q[256 + lane] | (u >> 4) << g);
  if (bits == 6) q[256 + 64 * (g % 2) + lane] = (uint8_t)(q[256 + 64 * (g % 2) + lane] | (u >> 4) << g / 2 * 2);
}

static void k_scale(const uint8_t *s, int j, int *sc, int *m) {
  *sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
  *m = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/* The 6-bit scale i of a Q3_K block. */
static int k3_scale(const uint8_t *s, int i) { return (i < 8 ? s[i] & 15 : s[i - 8] >> 4) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4; }

/* The scales of file block p, which is block `of` of its group, for row r. */
static void place_scales(wtype t, uint8_t *s, int of, int r, const uint8_t *p) {
  switch (t) {
  case WT_Q4_0:
  case WT_Q5_0:
  case WT_IQ4_NL:
  case WT_Q8_0: memcpy(s + 32 * of + 2 * r, p, 2); break;
  case WT_Q6_K:
    memcpy(s + 2 * r, p + 208, 2);
    for (int i = 0; i < 16; i++) s[32 + 16 * i + r] = p[192 + i];
    break;
  case WT_MXFP4: s[16 * of + r] = p[0]; break;
  case WT_IQ4_XS:
    memcpy(s + 2 * r, p, 2);
    for (int i = 0; i < 8; i++) s[32 + 16 * i + r] = (uint8_t)((p[4 + i / 2] >> i % 2 * 4 & 15) + (p[2 + i / 4] >> i % 4 * 2 & 3) * 16 - 32);
    break;
  case WT_Q2_K:
    memcpy(s + 2 * r, p + 80, 2);
    memcpy(s + 32 + 2 * r, p + 82, 2);
    for (int i = 0; i < 16; i++) s[64 + 16 * i + r] = p[i];
    break;
  case WT_Q3_K:
    memcpy(s + 2 * r, p + 108, 2);
    for (int i = 0; i < 16; i++) {
      uint8_t *low = s + 32 + i / 2 * 16 + r, *high = s + 160 + i / 4 * 16 + r;
      *low = (uint8_t)(*low | (k3_scale(p + 96, i) & 15) << i % 2 * 4);
      *high = (uint8_t)(*high | (k3_scale(p + 96, i) >> 4) << i % 4 * 2);
    }
    break;
  default:
    memcpy(s + 2 * r, p, 2);
    memcpy(s + 32 + 2 * r, p + 2, 2);
    if (t == WT_Q4_1 || t == WT_Q5_1) break;
    for (int j = 0; j < 8; j++) {
      int sc, m;
      k_scale(p + 4, j, &sc, &m);
      s[64 + 32 * j + r] = (uint8_t)sc;
      s[80 + 32 * j + r] = (uint8_t)m;
    }
  }
}

static void oracle(const gemm_case *c, uint8_t *out) {
  const wtype_info *info = wtype_lookup((uint32_t)c->w.type);
  layout l = layout_of(c->w.type);
  size_t panel_bytes = kern_packed_bytes(c->w.type, 16, c->w.cols), size = (size_t)info->bytes;
  memset(out, 0, kern_packed_bytes(c->w.type, c->w.rows, c->w.cols));
  for (int row = 0; row < c->w.rows; row++)
    for (int k = 0; k < c->w.cols; k++) {
      uint8_t *panel = out + (size_t)(row / 16) * panel_bytes;
      const uint8_t *p = c->src + (size_t)row * c->row_bytes + (size_t)(k / info->block) * size;
      int r = row % 16, b = k / 32;
      if (!l.bits) {
        memcpy(panel + ((size_t)k * 16 + (size_t)r) * size, p, size);
        continue;
      }
      uint8_t *group = panel + (size_t)(b / l.group) * (size_t)(64 * l.bits * l.group + l.scales);
      uint8_t *quants = l.scales_first ? group + l.scales : group, *scales = l.scales_first ? group : group + 64 * l.bits * l.group;
      place(l.bits, quants + 64 * l.bits * (b % l.group), r, k % 32, file_quant(c->w.type, p, k % l.block));
      if (k % l.block == 0) place_scales(c->w.type, scales, b % l.group, r, p);
    }
}

/* ---- tests --------------------------------------------------------------------------------------------------------------------------------- */

static const int shapes[][2] = {{16, 256}, {17, 512}, {9, 1536}, {48, 256}, {1, 768}, {16, 32}, {33, 96}, {9, 576}, {5, 64}, {3, 1}, {20, 37}};

static void test_against_oracle(void **state) {
  (void)state;
  rng r = rng_new(1);
  for (int t = 0; t < N_ALL; t++)
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
      int rows = shapes[s][0], cols = shapes[s][1];
      if (cols % wtype_lookup((uint32_t)all_types[t])->block) continue;
      gemm_case c;
      case_init(&c, &r, all_types[t], rows, cols, 1, FILL_RANDOM);
      size_t n = kern_packed_bytes(all_types[t], rows, cols);
      uint8_t *want = malloc(n), *unaligned = malloc(c.src_bytes + 1);
      assert_true(want && unaligned);
      oracle(&c, want);
      assert_memory_equal(c.w.data, want, n);

      /* Again, one panel at a time from the last, from an odd address, over memory full of something else: no byte is left as it was. */
      memcpy(unaligned + 1, c.src, c.src_bytes);
      memset(c.w.data, 0xa5, n);
      for (int p = kern_panels(rows) - 1; p >= 0; p--) kern_pack(&c.w, unaligned + 1, p, p + 1);
      assert_memory_equal(c.w.data, want, n);

      unaligned[1 + rng_below(&r, c.src_bytes)] ^= 0x40; /* the comparison can fail */
      kern_pack(&c.w, unaligned + 1, 0, kern_panels(rows));
      assert_memory_not_equal(c.w.data, want, n);
      free(want), free(unaligned);
      case_fini(&c);
    }
}

static void test_sizes(void **state) {
  (void)state;
  static const int big[][2] = {{49152, 576}, {576, 1536}, {576, 576}, {151936, 896}, {896, 4864}, {151936, 1536}, {1536, 8960}, {2048, 640}};
  for (int t = 0; t < N_ALL; t++) {
    const wtype_info *info = wtype_lookup((uint32_t)all_types[t]);
    for (size_t s = 0; s < sizeof big / sizeof *big; s++) {
      int rows = big[s][0], cols = big[s][1];
      size_t packed = kern_packed_bytes(all_types[t], rows, cols);
      if (cols % info->block) {
        assert_int_equal(packed, 0);
        continue;
      }
      double file = (double)rows * cols / info->block * info->bytes;
      assert_true((double)packed >= file && (double)packed <= 1.031 * file);
      assert_int_equal(packed % 64, 0);
    }
  }
  assert_int_equal(kern_packed_bytes(WT_Q4_0, 16, 48), 0);
  assert_int_equal(kern_packed_bytes(WT_Q4_K, 16, 128), 0);
  assert_int_equal(kern_packed_bytes(WT_IQ2_XS, 16, 256), 0);
  assert_int_equal(kern_packed_bytes(WT_F32, 0, 256), 0);
  assert_int_equal(kern_packed_bytes(WT_F32, 16, -1), 0);
}

static void test_wants(void **state) {
  (void)state;
  for (int t = 0; t < N_ALL; t++) assert_int_equal(kern_wants(all_types[t]), t < 3 ? KERN_ACT_F32 : KERN_ACT_Q8);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_oracle), cmocka_unit_test(test_sizes), cmocka_unit_test(test_wants)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
