/* A step walks the layers in phases with a barrier between them; every thread takes a static tile of each phase. Two ways to share the cheap phases
 * (norms, quantisation), with the same bits:
 *   few rows (decode): every thread does them all for itself, in private memory, because a barrier costs more than the work;
 *   many rows (prefill): rows are tiled over threads.
 * What is shared between threads: qkv, att, tmp, hid. What a thread has for itself with few rows: x and the activation buffers. */
#include "engine/forward.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  FEW_ROWS = 4,
  ATT_ROWS = 32,
  SPLIT_FROM = 2 * KERN_SPLIT,
  EMBED_ROWS = 256 /* embedding rows read before their pages are given back: a fault maps 64 KB, so a long prompt would map all of a big vocabulary */
};

struct forward {
  const model *m;
  const arch *a;
  const weights *w;
  const kern_ops *ops;
  pool *pool;
  kv_pool *kv;
  int max_rows, n_threads, ld_qkv;
  bool act_f32;
  /* the step */
  const fwd_seg *segs;
  int n_seg, n_rows, n_out, head_i0, head_n;
  const int *out_rows;
  int *row_seg; /* [max_rows] */
  int *seg_row; /* [max_segs] first batch row */
  /* scratch: [max_rows, ...] */
  float *x;         /* [max_rows, dim] residual stream; with few rows [threads][FEW_ROWS, dim] */
  float *qkv;       /* [max_rows, ld_qkv] q heads, k heads, v heads */
  float *att;       /* [max_rows, n_head*hd] */
  float *tmp;       /* [max_rows, dim] output of o and down, to be added */
  float *gate, *up; /* [max_rows, ffn] */
  float *norm;      /* [max_rows, dim] normed rows (F32 products read them) */
  float *logits;    /* [FWD_HEAD_ROWS, vocab] */
  kern_act *acts;   /* [threads]: private ones with few rows; [0] is the shared one with many */
  void *act_mem[FWD_MAX_THREADS];
  float *part; /* attention splits: [rows*n_head][n_split][hd+2] */
  size_t part_floats;
  float *cs[ARCH_TURNS]; /* [ctx][n_rot/2][cos, sin], filled up to cs_n */
  double *speed;         /* [n_turns][n_rot/2] angle of a pair per position */
  int ctx, cs_n;
  int embedded; /* rows since the embedding's pages were last given back */
  uint8_t *mem;
  size_t bytes;
};

/* ---- set-up ---- */

static size_t carve(size_t *off, size_t bytes) {
  size_t at = *off;
  *off += (bytes + 63) & ~(size_t)63;
  return at;
}

static int max_k(const arch *a) {
  int k = a->dim > a->ffn ? a->dim : a->ffn, o = a->n_head * a->head_dim;
  return k > o ? k : o;
}

/* The pairs' speeds, once: the stretching that the description asks for, and the factors that stand in tensors. */
static void turns_init(forward *f, bool far) {
  const arch *a = f->a;
  const float *factors = f->w->rope_factors ? f->w->rope_factors : far ? f->w->rope_long : f->w->rope_short;
  int half = a->n_rot / 2;
  for (int t = 0; t < a->n_turns; t++)
    for (int i = 0; i < half; i++)
      f->speed[t * half + i] = arch_speed(a, &a->turn[t], i) / (factors && a->turn[t].factors ? (double)factors[i] : 1.0);
}

bool forward_new(const model *m, const weights *w, const kern_ops *ops, pool *p, kv_pool *kv, int max_rows, int max_segs, int ctx, bool act_f32,
    bool far, forward **ret, err *e) {
  const arch *a = &m->arch;
  forward *f = calloc(1, sizeof *f);
  if (!f) return err_set(e, ERR_NOMEM, "out of memory");
  *f = (forward){
      .m = m, .a = a, .w = w, .ops = ops, .pool = p, .kv = kv, .max_rows = max_rows, .n_threads = pool_threads(p), .act_f32 = act_f32, .ctx = ctx};
  f->ld_qkv = (a->n_head + 2 * a->n_kv) * a->head_dim;
  size_t n = (size_t)max_rows, few = (size_t)f->n_threads * FEW_ROWS, nt = (size_t)f->n_threads;
  size_t rows_x = n > few ? n : few;
  int kmax = max_k(a), g = a->n_head / a->n_kv, n_split = (ctx + KERN_SPLIT - 1) / KERN_SPLIT;
  f->part_floats = (size_t)FEW_ROWS * (size_t)a->n_kv * (size_t)g * (size_t)n_split * (size_t)(a->head_dim + 2);
  size_t off = 0;
  size_t o_x = carve(&off, rows_x * (size_t)a->dim * 4), o_norm = carve(&off, rows_x * (size_t)a->dim * 4);
  size_t ld_out = (size_t)(f->ld_qkv > a->dim ? f->ld_qkv : a->dim);
  size_t o_qkv = carve(&off, n * ld_out * 4), o_att = carve(&off, n * (size_t)(a->n_head * a->head_dim) * 4);
  size_t o_tmp = carve(&off, n * (size_t)a->dim * 4), o_gate = carve(&off, n * (size_t)a->ffn * 4), o_up = carve(&off, n * (size_t)a->ffn * 4);
  size_t o_logits = carve(&off, (size_t)FWD_HEAD_ROWS * (size_t)a->vocab * 4), o_part = carve(&off, f->part_floats * 4);
  size_t o_speed = carve(&off, (size_t)a->n_turns * (size_t)(a->n_rot / 2) * sizeof(double)), o_cs[ARCH_TURNS];
  for (int t = 0; t < a->n_turns; t++) o_cs[t] = carve(&off, (size_t)ctx * (size_t)a->n_rot * 4);
  size_t o_seg = carve(&off, n * sizeof(int)), o_srow = carve(&off, (size_t)max_segs * sizeof(int)), o_acts = carve(&off, nt * sizeof(kern_act));
  size_t o_act0 = carve(&off, kern_act_bytes(kmax, (int)(n > FEW_ROWS ? n : FEW_ROWS))), o_act[FWD_MAX_THREADS];
  for (size_t t = 1; t < nt; t++) o_act[t] = carve(&off, kern_act_bytes(kmax, FEW_ROWS));
  f->mem = aligned_alloc(64, off);
  if (!f->mem) {
    free(f);
    return err_set(e, ERR_NOMEM, "cannot get %zu bytes of scratch for steps of %d rows", off, max_rows);
  }
  f->bytes = off;
  f->x = (float *)(f->mem + o_x), f->norm = (float *)(f->mem + o_norm), f->qkv = (float *)(f->mem + o_qkv), f->att = (float *)(f->mem + o_att);
  f->tmp = (float *)(f->mem + o_tmp), f->gate = (float *)(f->mem + o_gate), f->up = (float *)(f->mem + o_up),
  f->logits = (float *)(f->mem + o_logits);
  f->part = (float *)(f->mem + o_part), f->row_seg = (int *)(f->mem + o_seg), f->seg_row = (int *)(f->mem + o_srow);
  f->speed = (double *)(f->mem + o_speed);
  for (int t = 0; t < a->n_turns; t++) f->cs[t] = (float *)(f->mem + o_cs[t]);
  turns_init(f, far);
  f->acts = (kern_act *)(f->mem + o_acts);
  memset(f->acts, 0, nt * sizeof(kern_act));
  o_act[0] = o_act0;
  for (size_t t = 0; t < nt; t++) {
    f->act_mem[t] = f->mem + o_act[t];
    f->acts[t].cap = t == 0 && n > FEW_ROWS ? (int)n : FEW_ROWS;
  }
  *ret = f;
  return true;
}

void forward_free(forward *f) {
  if (!f) return;
  free(f->mem);
  free(f);
}

size_t forward_bytes(const forward *f) { return f->bytes; }

/* Angles by RoFormer (Su et al. 2021), kept in double until the last step. */
static void rope_fill(forward *f, int upto) {
  const arch *a = f->a;
  int half = a->n_rot / 2;
  for (int t = 0; t < a->n_turns; t++)
    for (int p = f->cs_n; p < upto; p++) {
      float *cs = f->cs[t] + (size_t)p * (size_t)a->n_rot;
      for (int i = 0; i < half; i++) {
        double th = f->speed[t * half + i] * p;
        cs[2 * i] = (float)(cos(th) * a->turn[t].magnitude);
        cs[2 * i + 1] = (float)(sin(th) * a->turn[t].magnitude);
      }
    }
  if (upto > f->cs_n) f->cs_n = upto;
}

/* ---- one thread's share of the phases ---- */

typedef struct lane {
  forward *f;
  int tid, nt;
  bool few;
  kern_act *act;
  float *x, *norm;
} lane;

/* Rows this thread prepares: all of them, privately, when there are few. */
static void my_rows(const lane *t, int n, int *r0, int *r1) {
  if (t->few) *r0 = 0, *r1 = n;
  else pool_tile(n, t->tid, t->nt, r0, r1);
}

static void meet(const lane *t) { pool_barrier(t->f->pool); }
static void meet_if_shared(const lane *t) {
  if (!t->few) pool_barrier(t->f->pool);
}

/* The shape of the next product's activations. Every thread does it for the act it uses; with many rows that one is shared and thread 0 does it
 * between two barriers. */
static void act_shape(const lane *t, int k, const float *x, int ldx) {
  if (!t->few && t->tid != 0) return;
  kern_act *act = t->act;
  kern_act_bind(act, t->f->act_mem[act - t->f->acts], k, act->cap);
  act->mode = t->f->act_f32 ? KERN_ACT_F32 : KERN_ACT_Q8;
  act->x = x;
  act->ldx = ldx;
}

static bool wants_q8(const lane *t, const kern_mat *w) { return !t->f->act_f32 && kern_wants(w->type) == KERN_ACT_Q8; }

/* Panels [p0, p1) of the matrices laid side by side are this thread's. */
static void gemm_tiled(const lane *t, int n, const kern_mat *const *mats, float *const *outs, const int *lds, int n_mat) {
  int total = 0, p0, p1;
  for (int i = 0; i < n_mat; i++) total += kern_panels(mats[i]->rows);
  pool_tile(total, t->tid, t->nt, &p0, &p1);
  for (int i = 0, base = 0; i < n_mat; i++) {
    int np = kern_panels(mats[i]->rows), a = p0 - base, b = p1 - base;
    if (a < 0) a = 0;
    if (b > np) b = np;
    if (a < b) t->f->ops->gemm(mats[i], t->act, n, a, b, outs[i], lds[i]);
    base += np;
  }
}

/* What attention or feed-forward adds to a row, on its way there. */
typedef struct addend {
  const float *y;           /* [n, dim], shared; NULL: nothing */
  const float *bias, *norm; /* or NULL */
} addend;

/* x += residual_scale * norm(y + bias), for row r; `tmp` [dim] is the thread's own. */
static void add_row(const forward *f, const addend *in, int r, float *x, float *tmp) {
  int dim = f->a->dim;
  const float *y = in->y + (size_t)r * (size_t)dim;
  if (in->bias) {
    memcpy(tmp, y, sizeof(float) * (size_t)dim);
    f->ops->add(tmp, in->bias, dim);
    y = tmp;
  }
  if (in->norm) {
    f->ops->rmsnorm(y, in->norm, f->a->eps, dim, tmp);
    y = tmp;
  }
  if (f->a->residual_scale == 1.0f) f->ops->add(x, y, dim);
  else f->ops->add_scaled(x, y, f->a->residual_scale, dim);
}

/* Adds what is due to the rows, then prepares them for the next product: normed (w NULL: as they are), and quantised when a reader wants it. */
static void add_norm_quant(const lane *t, int n, const addend *in, const float *w, bool q8) {
  const forward *f = t->f;
  int dim = f->a->dim, r0, r1;
  act_shape(t, dim, w ? t->norm : t->x, dim);
  meet_if_shared(t);
  my_rows(t, n, &r0, &r1);
  for (int r = r0; r < r1; r++) {
    float *x = t->x + (size_t)r * (size_t)dim, *y = t->norm + (size_t)r * (size_t)dim;
    if (in->y) add_row(f, in, r, x, y);
    if (w) f->ops->rmsnorm(x, w, f->a->eps, dim, y);
    if (q8) f->ops->act_quant(t->act, r, w ? y : x);
  }
  meet_if_shared(t);
}

static void quant_rows(const lane *t, int n, int k, const float *x, int ldx, bool q8) {
  int r0, r1;
  act_shape(t, k, x, ldx);
  meet_if_shared(t);
  my_rows(t, n, &r0, &r1);
  for (int r = r0; q8 && r < r1; r++) t->f->ops->act_quant(t->act, r, x + (size_t)r * (size_t)ldx);
  meet_if_shared(t);
}

static void add_bias(const kern_ops *ops, float *y, const float *b, int n) {
  if (b) ops->add(y, b, n);
}

/* Where all heads of a row are normed as one: before the heads are shared out, row by row. */
static void norm_whole_rows(const lane *t, int layer) {
  const forward *f = t->f;
  const arch *a = f->a;
  const layer_weights *lw = &f->w->layers[layer];
  int nq = a->n_head * a->head_dim, nk = a->n_kv * a->head_dim, r0, r1;
  pool_tile(f->n_rows, t->tid, t->nt, &r0, &r1);
  for (int r = r0; r < r1; r++) {
    float *q = f->qkv + (size_t)r * (size_t)f->ld_qkv, *k = q + nq;
    f->ops->rmsnorm(q, lw->q_norm, a->eps, nq, q);
    f->ops->rmsnorm(k, lw->k_norm, a->eps, nk, k);
  }
  meet(t);
}

/* One head of queries or keys in place: its norm, its rotation (cs NULL: none). */
static void turn_head(const forward *f, float *x, const float *norm, const float *cs) {
  if (norm) f->ops->rmsnorm(x, norm, f->a->eps, f->a->head_dim, x);
  if (cs) f->ops->rope(x, f->a->n_rot, f->a->rope == ROPE_NEOX, cs);
}

/* Biases, norms, rotation, and K and V into their page, for kv heads [h0, h1) (with their query heads) of one row. */
static void place_row(const lane *t, int layer, int r, int h0, int h1) {
  const forward *f = t->f;
  const arch *a = f->a;
  const layer_weights *lw = &f->w->layers[layer];
  const fwd_seg *s = &f->segs[f->row_seg[r]];
  int hd = a->head_dim, g = a->n_head / a->n_kv, pos = s->pos0 + (r - f->seg_row[f->row_seg[r]]), page = f->kv->kern.page,
      turn = a->layer[layer].turn;
  float *q = f->qkv + (size_t)r * (size_t)f->ld_qkv, *k = q + a->n_head * hd, *v = k + a->n_kv * hd;
  const float *cs = turn == ARCH_UNTURNED ? NULL : f->cs[turn] + (size_t)pos * (size_t)a->n_rot;
  bool by_head = a->qk_norm == QK_HEAD;
  for (int h = h0; h < h1; h++) {
    add_bias(f->ops, q + h * g * hd, lw->bq ? lw->bq + h * g * hd : NULL, g * hd);
    add_bias(f->ops, k + h * hd, lw->bk ? lw->bk + h * hd : NULL, hd);
    add_bias(f->ops, v + h * hd, lw->bv ? lw->bv + h * hd : NULL, hd);
    for (int j = 0; j < g; j++) turn_head(f, q + (h * g + j) * hd, by_head ? lw->q_norm : NULL, cs);
    turn_head(f, k + h * hd, by_head ? lw->k_norm : NULL, cs);
  }
  f->ops->kv_store(&f->kv->kern, layer, s->pages[pos / page], pos % page, k, v, h0, h1);
}

static kern_attn attn_of(const forward *f, int layer, int seg) {
  const fwd_seg *s = &f->segs[seg];
  const arch *a = f->a;
  int r0 = f->seg_row[seg], lda = a->n_head * a->head_dim;
  return (kern_attn){.kv = &f->kv->kern,
      .layer = layer,
      .n_head = a->n_head,
      .scale = a->attn_scale,
      .window = a->layer[layer].window,
      .split = KERN_SPLIT,
      .pages = s->pages,
      .pos0 = s->pos0,
      .n_row = s->n,
      .q = f->qkv + (size_t)r0 * (size_t)f->ld_qkv,
      .ldq = f->ld_qkv,
      .out = f->att + (size_t)r0 * (size_t)lda,
      .ldo = lda};
}

/* Many rows: blocks of rows by head, dealt out in turn (later rows see more keys, so neighbours differ little). */
static void attend_blocks(const lane *t, int layer) {
  const forward *f = t->f;
  int task = 0;
  for (int s = 0; s < f->n_seg; s++) {
    kern_attn at = attn_of(f, layer, s);
    for (int r = 0; r < at.n_row; r += ATT_ROWS)
      for (int h = 0; h < f->a->n_kv; h++, task++)
        if (task % t->nt == t->tid) f->ops->attn(&at, h, r, r + ATT_ROWS < at.n_row ? r + ATT_ROWS : at.n_row);
  }
}

/* The first position that a row at `pos` sees. */
static int first_seen(const arch *a, int layer, int pos) {
  int window = a->layer[layer].window;
  return window > 0 && pos >= window ? pos - window + 1 : 0;
}

/* Few rows over long contexts: the splits themselves are dealt out, then merged in ascending order. Row by row, so that `part` stays small. */
static void attend_splits(const lane *t, int layer, int r, int seg) {
  const forward *f = t->f;
  const arch *a = f->a;
  kern_attn at = attn_of(f, layer, seg);
  int i = r - f->seg_row[seg], pos = at.pos0 + i, s0 = first_seen(a, layer, pos) / KERN_SPLIT, n_split = pos / KERN_SPLIT + 1 - s0;
  int g = a->n_head / a->n_kv;
  size_t one = (size_t)(a->head_dim + 2);
  float *part = f->part + (size_t)r * (f->part_floats / FEW_ROWS);
  for (int h = 0, task = 0; h < a->n_kv; h++)
    for (int s = 0; s < n_split; s++, task++)
      if (task % t->nt == t->tid) f->ops->attn_part(&at, h, i, i + 1, s0 + s, part + ((size_t)h * (size_t)n_split + (size_t)s) * (size_t)g * one);
  meet(t);
  for (int j = 0; j < a->n_head; j++)
    if (j % t->nt == t->tid) {
      int h = j / g;
      f->ops->attn_merge(part + ((size_t)h * (size_t)n_split * (size_t)g + (size_t)(j % g)) * one, n_split, (size_t)g * one, a->head_dim,
          at.out + (size_t)i * (size_t)at.ldo + j * a->head_dim);
    }
}

/* Are splits dealt out rather than heads? Two meetings more buy it, so only for many keys, or where there are too few heads for all threads. */
static bool deal_splits(const lane *t, int layer) {
  const forward *f = t->f;
  int span = 0;
  for (int s = 0; s < f->n_seg; s++) {
    int last = f->segs[s].pos0 + f->segs[s].n - 1, seen = last + 1 - first_seen(f->a, layer, last);
    if (seen > span) span = seen;
  }
  return span > (f->a->n_kv < t->nt ? KERN_SPLIT : SPLIT_FROM);
}

static void attention(const lane *t, int layer) {
  const forward *f = t->f;
  const arch *a = f->a;
  int r0, r1;
  if ((a->has & ARCH_HAS(R_Q_NORM)) && a->qk_norm == QK_ROW) norm_whole_rows(t, layer);
  if (!t->few) {
    pool_tile(f->n_rows, t->tid, t->nt, &r0, &r1);
    for (int r = r0; r < r1; r++) place_row(t, layer, r, 0, a->n_kv);
    meet(t);
    attend_blocks(t, layer);
    return;
  }
  int h0, h1;
  pool_tile(a->n_kv, t->tid, t->nt, &h0, &h1);
  for (int r = 0; r < f->n_rows; r++) place_row(t, layer, r, h0, h1);
  if (!deal_splits(t, layer)) { /* a thread reads only the heads it wrote itself: no meeting needed */
    for (int s = 0; s < f->n_seg; s++) {
      kern_attn at = attn_of(f, layer, s);
      for (int h = h0; h < h1; h++) f->ops->attn(&at, h, 0, at.n_row);
    }
    return;
  }
  meet(t);
  for (int r = 0; r < f->n_rows; r++) attend_splits(t, layer, r, f->row_seg[r]);
}

static void ffn(const lane *t, int n, const layer_weights *lw) {
  const forward *f = t->f;
  int ffn = f->a->ffn, p0, p1;
  pool_tile(kern_panels(ffn), t->tid, t->nt, &p0, &p1);
  int c0 = p0 * KERN_PANEL, c1 = p1 * KERN_PANEL < ffn ? p1 * KERN_PANEL : ffn;
  if (p0 < p1) {
    f->ops->gemm(&lw->gate, t->act, n, p0, p1, f->gate, ffn);
    f->ops->gemm(&lw->up, t->act, n, p0, p1, f->up, ffn);
  }
  for (int r = 0; r < n && c0 < c1; r++) {
    float *g = f->gate + (size_t)r * (size_t)ffn + c0, *u = f->up + (size_t)r * (size_t)ffn + c0;
    add_bias(f->ops, g, lw->b_gate ? lw->b_gate + c0 : NULL, c1 - c0);
    add_bias(f->ops, u, lw->b_up ? lw->b_up + c0 : NULL, c1 - c0);
    if (f->a->act == ACT_SILU) f->ops->silu_mul(g, u, c1 - c0, g);
    else f->ops->gelu_mul(g, u, c1 - c0, g);
  }
}

/* `in` is what the layer before left to be added; on return, what this one leaves. */
static void layer_run(const lane *t, int l, addend *in) {
  const forward *f = t->f;
  const arch *a = f->a;
  const layer_weights *lw = &f->w->layers[l];
  int n = f->n_rows, nq = a->n_head * a->head_dim, nkv = a->n_kv * a->head_dim;
  add_norm_quant(t, n, in, lw->attn_norm, wants_q8(t, &lw->q) || wants_q8(t, &lw->k) || wants_q8(t, &lw->v));
  gemm_tiled(t, n, (const kern_mat *[]){&lw->q, &lw->k, &lw->v}, (float *[]){f->qkv, f->qkv + nq, f->qkv + nq + nkv},
      (int[]){f->ld_qkv, f->ld_qkv, f->ld_qkv}, 3);
  meet(t);
  attention(t, l);
  meet(t);
  quant_rows(t, n, nq, f->att, nq, wants_q8(t, &lw->o));
  gemm_tiled(t, n, (const kern_mat *[]){&lw->o}, (float *[]){f->tmp}, (int[]){a->dim}, 1);
  meet(t);
  *in = (addend){f->tmp, lw->bo, lw->post_attn};
  add_norm_quant(t, n, in, lw->ffn_norm, wants_q8(t, &lw->gate) || wants_q8(t, &lw->up));
  ffn(t, n, lw);
  meet(t);
  quant_rows(t, n, a->ffn, f->gate, a->ffn, wants_q8(t, &lw->down));
  gemm_tiled(t, n, (const kern_mat *[]){&lw->down}, (float *[]){f->tmp}, (int[]){a->dim}, 1);
  meet(t);
  *in = (addend){f->tmp, lw->b_down, lw->post_ffn};
}

static lane lane_of(forward *f, int tid, int nt, int n) {
  lane t = {f, tid, nt, n <= FEW_ROWS, &f->acts[0], f->x, f->norm};
  if (t.few) {
    t.act = &f->acts[tid];
    t.x += (size_t)tid * FEW_ROWS * (size_t)f->a->dim;
    t.norm += (size_t)tid * FEW_ROWS * (size_t)f->a->dim;
  }
  return t;
}

static void step_run(void *arg, int tid, int nt) {
  forward *f = arg;
  lane t = lane_of(f, tid, nt, f->n_rows);
  int dim = f->a->dim, r0, r1;
  my_rows(&t, f->n_rows, &r0, &r1);
  for (int r = r0; r < r1; r++)
    weights_embed(f->w, f->a, f->segs[f->row_seg[r]].tokens[r - f->seg_row[f->row_seg[r]]], t.x + (size_t)r * (size_t)dim);
  addend in = {NULL, NULL, NULL};
  for (int l = 0; l < f->a->n_layer; l++) layer_run(&t, l, &in);
  /* The last addition and norm, for the rows whose logits are wanted only, gathered into qkv (at least dim wide, and free by now). */
  for (int i = 0; i < f->n_out; i++) {
    if (i % nt != tid) continue;
    int r = f->out_rows[i];
    float *x = t.x + (size_t)r * (size_t)dim;
    add_row(f, &in, r, x, t.norm + (size_t)r * (size_t)dim);
    f->ops->rmsnorm(x, f->w->out_norm, f->a->eps, dim, f->qkv + (size_t)i * (size_t)dim);
  }
}

void forward_step(forward *f, const fwd_seg *segs, int n_seg, const int *out_rows, int n_out) {
  f->segs = segs;
  f->n_seg = n_seg;
  f->n_rows = 0;
  f->out_rows = out_rows;
  f->n_out = n_out;
  for (int s = 0; s < n_seg; s++) {
    f->seg_row[s] = f->n_rows;
    for (int i = 0; i < segs[s].n; i++) f->row_seg[f->n_rows++] = s;
    rope_fill(f, segs[s].pos0 + segs[s].n);
  }
  pool_run(f->pool, step_run, f);
  f->embedded += f->n_rows;
  if (f->embedded < EMBED_ROWS) return;
  f->embedded = 0;
  mf_drop_pages(f->m->file, f->w->embed->data, f->w->embed->bytes);
}

static void head_run(void *arg, int tid, int nt) {
  forward *f = arg;
  int dim = f->a->dim, n = f->head_n;
  bool few = n <= FEW_ROWS;
  lane t = {f, tid, nt, few, few ? &f->acts[tid] : &f->acts[0], NULL, NULL};
  quant_rows(&t, n, dim, f->qkv + (size_t)f->head_i0 * (size_t)dim, dim, wants_q8(&t, &f->w->head));
  gemm_tiled(&t, n, (const kern_mat *[]){&f->w->head}, (float *[]){f->logits}, (int[]){f->a->vocab}, 1);
}

float *forward_logits(forward *f, int i0, int n) {
  f->head_i0 = i0;
  f->head_n = n;
  pool_run(f->pool, head_run, f);
  return f->logits;
}
