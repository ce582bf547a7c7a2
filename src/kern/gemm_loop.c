/* gemm_loop.c - the loop nest around the tiles of a matrix product, one for every instruction set.
 *
 * Three levels: a cache block of columns whose activations stay in L2, the panels of the caller's range, tiles of up to GEMM_TILE columns. A
 * tile computes whole outputs (all of K), so none of these splits touches the order of a sum: law 1 holds by construction, and the loop may be
 * tuned freely. With one column an unquantised product takes several panels at once, for its sums are one FMA chain each. */
#include "kern/kern_gemm.h"
#include <assert.h>
#include <string.h>

/* Bytes of activations a cache block may have: half of a small L2, the other half is the panel's. */
enum { CACHE_BYTES = 512 << 10 };

static int cache_columns(int k, bool quantised) {
  size_t per_column = quantised ? (size_t)k + (size_t)k / 2 : (size_t)k * sizeof(float);
  size_t n = CACHE_BYTES / per_column / GEMM_TILE * GEMM_TILE;
  return n < GEMM_TILE ? GEMM_TILE : n > 4096 ? 4096 : (int)n;
}

static gemm_cols columns(const kern_act *a, int i, int n) {
  size_t k = (size_t)a->k, at = (size_t)i;
  gemm_cols c = {.n = n, .ldq = kern_act_ldq(a->k), .ldd = k / KERN_BLOCK, .ldz = k / (KERN_BLOCK / 2), .ldx = (size_t)a->ldx};
  c.q = a->q + at * c.ldq;
  c.d = a->d + at * c.ldd;
  c.s = a->s + at * c.ldd;
  c.z = a->z + at * c.ldz;
  c.x = a->x ? a->x + at * c.ldx : NULL;
  return c;
}

/* Copies a tile's outputs into y, leaving out the rows that only pad the last panel. */
static void store(const float *out, const kern_mat *w, int p, int n_panel, int n, float *y, int ldy) {
  for (int j = 0; j < n_panel; j++) {
    int row = (p + j) * KERN_PANEL, n_row = w->rows - row < KERN_PANEL ? w->rows - row : KERN_PANEL;
    for (int i = 0; i < n; i++, out += KERN_PANEL) {
      float *to = y + (size_t)i * (size_t)ldy + row;
      if (n_row == KERN_PANEL) memcpy(to, out, KERN_PANEL * sizeof(float));
      else memcpy(to, out, (size_t)n_row * sizeof(float));
    }
  }
}

void gemm_run(const gemm_tiles *t, const kern_mat *w, const kern_act *a, int n, int p0, int p1, float *y, int ldy) {
  const gemm_layout *l = gemm_layout_of(w->type);
  assert(l && w->cols == a->k && p0 >= 0 && p1 <= kern_panels(w->rows) && n <= a->cap);
  bool quantised = l->scale != SCALE_NONE && a->mode == KERN_ACT_Q8;
  assert(quantised || a->x);
  gemm_tile_fn *tile = quantised ? t->q8[w->type] : t->f32[w->type];
  size_t panel_bytes = gemm_panel_bytes(l, w->cols);
  int block = cache_columns(w->cols, quantised), step = n == 1 && !quantised ? GEMM_PANELS : 1;
  float out[GEMM_TILE * KERN_PANEL] __attribute__((aligned(64)));

  for (int i0 = 0; i0 < n; i0 += block) {
    int i1 = n - i0 < block ? n : i0 + block;
    for (int p = p0; p < p1; p += step) {
      const uint8_t *panel = (const uint8_t *)w->data + (size_t)p * panel_bytes;
      int n_panel = p1 - p < step ? p1 - p : step;
      for (int i = i0; i < i1; i += GEMM_TILE) {
        gemm_cols c = columns(a, i, i1 - i < GEMM_TILE ? i1 - i : GEMM_TILE);
        tile(panel, panel_bytes, n_panel, w->cols, &c, out);
        store(out, w, p, n_panel, c.n, y + (size_t)i * (size_t)ldy, ldy);
      }
    }
  }
}
