/* dequant.c - the file formats' blocks as F32, value for value what the gguf Python package computes.
 *
 * This is the meaning of the stored bits; pack.c only moves them and the products are tested against it. Every formula keeps the reference's
 * roundings: a product with a 6- or 8-bit scale is exact in F32, "d * q + m" rounds twice (no FMA: the tree is built with -ffp-contract=off).
 * Block layouts: GGUF specification, ggml block types. */
#include "kern/kern_gemm.h"
#include "base/half.h"
#include <string.h>

static float f16_at(const uint8_t *p) {
  uint16_t h;
  memcpy(&h, p, 2);
  return f32_of_f16(h);
}

/* d, 16 bytes of nibbles: byte j holds element j low and element j + 16 high. */
static void block_q4_0(const uint8_t *p, float *y) {
  float d = f16_at(p);
  for (int j = 0; j < 16; j++) {
    y[j] = d * (float)((p[2 + j] & 15) - 8);
    y[j + 16] = d * (float)((p[2 + j] >> 4) - 8);
  }
}

static void block_q4_1(const uint8_t *p, float *y) {
  float d = f16_at(p), m = f16_at(p + 2);
  for (int j = 0; j < 16; j++) {
    y[j] = d * (float)(p[4 + j] & 15) + m;
    y[j + 16] = d * (float)(p[4 + j] >> 4) + m;
  }
}

/* Fifth bits: a 32-bit word, bit i for element i. */
static int q5_at(const uint8_t *high, const uint8_t *nib, int i) {
  int lo = i < 16 ? nib[i] & 15 : nib[i - 16] >> 4;
  return lo | (high[i / 8] >> (i % 8) & 1) << 4;
}

static void block_q5_0(const uint8_t *p, float *y) {
  float d = f16_at(p);
  for (int i = 0; i < 32; i++) y[i] = d * (float)(q5_at(p + 2, p + 6, i) - 16);
}

static void block_q5_1(const uint8_t *p, float *y) {
  float d = f16_at(p), m = f16_at(p + 2);
  for (int i = 0; i < 32; i++) y[i] = d * (float)q5_at(p + 4, p + 8, i) + m;
}

static void block_q8_0(const uint8_t *p, float *y) {
  float d = f16_at(p);
  for (int i = 0; i < 32; i++) y[i] = d * (float)(int8_t)p[2 + i];
}

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes: the low four of each as they are, the high four split 4 + 2 bits. */
static void k_scales(const uint8_t *s, uint8_t sc[8], uint8_t m[8]) {
  for (int j = 0; j < 4; j++) {
    sc[j] = s[j] & 63;
    m[j] = s[j + 4] & 63;
    sc[j + 4] = (uint8_t)((s[j + 8] & 15) | (s[j] >> 2 & 0x30));
    m[j + 4] = (uint8_t)(s[j + 8] >> 4 | (s[j + 4] >> 2 & 0x30));
  }
}

/* d, dmin, 12 bytes of scales, [32 bytes of fifth bits: bit b of byte l for element l of block b,] 128 bytes of nibbles: 32 bytes hold block 2c
 * low and block 2c + 1 high. */
static void block_qk(const uint8_t *p, const uint8_t *high, const uint8_t *nib, float *y) {
  float d = f16_at(p), dmin = f16_at(p + 2);
  uint8_t sc[8], m[8];
  k_scales(p + 4, sc, m);
  for (int b = 0; b < 8; b++) {
    float ds = d * (float)sc[b], ms = dmin * (float)m[b];
    for (int l = 0; l < 32; l++) {
      int q = nib[b / 2 * 32 + l] >> (b & 1) * 4 & 15;
      if (high) q |= (high[l] >> b & 1) << 4;
      y[32 * b + l] = ds * (float)q - ms;
    }
  }
}

static void block_q4_k(const uint8_t *p, float *y) { block_qk(p, NULL, p + 16, y); }
static void block_q5_k(const uint8_t *p, float *y) { block_qk(p, p + 16, p + 48, y); }

/* 128 bytes of nibbles, 64 bytes of 2-bit highs, 16 scales s8, d. Per half of 128 elements: 64 nibble bytes hold blocks 0, 1 low and 2, 3 high;
 * 32 high bytes hold block b in bits 2b, 2b + 1. */
static void block_q6_k(const uint8_t *p, float *y) {
  float d = f16_at(p + 208);
  for (int i = 0; i < 256; i++) {
    int h = i / 128, b = i % 128 / 32, l = i % 32;
    int q = p[64 * h + (b & 1) * 32 + l] >> b / 2 * 4 & 15;
    q |= (p[128 + 32 * h + l] >> 2 * b & 3) << 4;
    y[i] = d * (float)(int8_t)p[192 + i / 16] * (float)(q - 32);
  }
}

/* 16 bytes of scale (low) and minimum (high) per 16 elements, 64 bytes of quants, d, dmin. Per half of 128 elements: 32 bytes hold block b in
 * bits 2b, 2b + 1. */
static void block_q2_k(const uint8_t *p, float *y) {
  float d = f16_at(p + 80), dmin = f16_at(p + 82);
  for (int i = 0; i < 256; i++) {
    int q = p[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3, s = p[i / 16];
    y[i] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
  }
}

/* 32 bytes of third bits (bit b of byte l: element l of block b; set means 4 are not taken away), 64 bytes as in Q2_K, 16 scales of 6 bits, d.
 * Scale i: low half in byte i mod 8, low for i < 8; upper two bits in byte 8 + i mod 4, bits 2 (i div 4). */
static void block_q3_k(const uint8_t *p, float *y) {
  float d = f16_at(p + 108);
  const uint8_t *s = p + 96;
  for (int i = 0; i < 256; i++) {
    int q = (p[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) | (p[i % 32] >> i / 32 & 1) << 2, j = i / 16;
    int sc = (s[j % 8] >> j / 8 * 4 & 15) | (s[8 + j % 4] >> j / 4 * 2 & 3) << 4;
    y[i] = d * (float)(sc - 32) * (float)(q - 4);
  }
}

static const int8_t iq4_values[16] = {GEMM_IQ4(0)}, e2m1_values[16] = {GEMM_E2M1(0)};

static void block_nibbles(const int8_t *values, const uint8_t *nib, float d, float *y) {
  for (int j = 0; j < 16; j++) {
    y[j] = d * (float)values[nib[j] & 15];
    y[j + 16] = d * (float)values[nib[j] >> 4];
  }
}

static void block_iq4_nl(const uint8_t *p, float *y) { block_nibbles(iq4_values, p + 2, f16_at(p), y); }

/* d, upper two bits of eight scales, lower four of them, 16 bytes of nibbles a block of 32. */
static void block_iq4_xs(const uint8_t *p, float *y) {
  float d = f16_at(p);
  for (int b = 0; b < 8; b++) {
    int sc = (p[4 + b / 2] >> b % 2 * 4 & 15) | (p[2 + b / 4] >> b % 4 * 2 & 3) << 4;
    block_nibbles(iq4_values, p + 8 + 16 * b, d * (float)(sc - 32), y + 32 * b);
  }
}

/* An exponent and 16 bytes of nibbles. The table is doubled, so the exponent counts from 2^-128; 0 and 1 give subnormals. The format's NaN, 255,
 * is 2^127 here as in the reference. */
static void block_mxfp4(const uint8_t *p, float *y) {
  float d = f32_of_bits(p[0] < 2 ? 0x00200000u << p[0] : (uint32_t)(p[0] - 1) << 23);
  block_nibbles(e2m1_values, p + 1, d, y);
}

static void block_f32(const uint8_t *p, float *y) { memcpy(y, p, 4); }
static void block_f16(const uint8_t *p, float *y) { *y = f16_at(p); }
static void block_bf16(const uint8_t *p, float *y) {
  uint16_t h;
  memcpy(&h, p, 2);
  *y = f32_of_bf16(h);
}

bool dequant_row(wtype t, const void *src, int64_t n, float *y) {
  void (*block)(const uint8_t *, float *);
  switch (t) {
  case WT_F32: block = block_f32; break;
  case WT_F16: block = block_f16; break;
  case WT_BF16: block = block_bf16; break;
  case WT_Q4_0: block = block_q4_0; break;
  case WT_Q4_1: block = block_q4_1; break;
  case WT_Q5_0: block = block_q5_0; break;
  case WT_Q5_1: block = block_q5_1; break;
  case WT_Q8_0: block = block_q8_0; break;
  case WT_Q4_K: block = block_q4_k; break;
  case WT_Q5_K: block = block_q5_k; break;
  case WT_Q6_K: block = block_q6_k; break;
  case WT_Q2_K: block = block_q2_k; break;
  case WT_Q3_K: block = block_q3_k; break;
  case WT_IQ4_NL: block = block_iq4_nl; break;
  case WT_IQ4_XS: block = block_iq4_xs; break;
  case WT_MXFP4: block = block_mxfp4; break;
  default: return false;
  }
  const wtype_info *w = wtype_lookup((uint32_t)t);
  const uint8_t *p = src;
  for (int64_t i = 0; i < n; i += w->block, p += w->bytes) block(p, y + i);
  return true;
}
