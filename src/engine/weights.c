#include "engine/weights.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PACK_STEP = 8 }; /* panels a thread takes at a time */

typedef struct mat_job {
  kern_mat *mat;
  const mf_tensor *src;
  const uint8_t *data; /* the matrix's own rows in it */
  size_t n, off;       /* bytes there; place in the packed memory */
} mat_job;
typedef struct pack_run {
  mat_job *jobs;
  int n;
  const mfile *file;
  const mf_tensor *keep; /* its pages stay: rows are read from the map */
  pool *pool;
} pack_run;

bool weights_type_ok(uint32_t t) { return wtype_lookup(t) && kern_packed_bytes((wtype)t, KERN_PANEL, 256) > 0; }

/* One tensor after the other, all threads on its panels; its file pages are given back before the next, so the peak is packed + one tensor. */
static void pack_all(void *arg, int tid, int nt) {
  pack_run *r = arg;
  for (int j = 0; j < r->n; j++) {
    const mat_job *job = &r->jobs[j];
    int panels = kern_panels(job->mat->rows), p0, p1;
    pool_tile((panels + PACK_STEP - 1) / PACK_STEP, tid, nt, &p0, &p1);
    p0 *= PACK_STEP;
    p1 = p1 * PACK_STEP < panels ? p1 * PACK_STEP : panels;
    if (p0 < p1) kern_pack(job->mat, job->data, p0, p1);
    pool_barrier(r->pool);
    if (tid == 0 && job->src != r->keep) mf_drop_pages(r->file, job->data, job->n);
  }
}

typedef struct binder {
  const model *m;
  mat_job *jobs;
  int n_jobs;
  size_t bytes;    /* packed bytes so far */
  size_t n_floats; /* in vecs so far */
  float *vecs;     /* NULL on the counting pass */
  err *e;
} binder;

static bool bind_mat(binder *b, kern_mat *mat, arch_rows r) {
  const mf_tensor *t = r.t;
  size_t n = kern_packed_bytes((wtype)t->type->id, (int)r.rows, (int)t->ne[0]), row = (size_t)(t->ne[0] / t->type->block) * (size_t)t->type->bytes;
  if (!n)
    return err_param(b->e, ERR_UNSUPPORTED, "", "tensor '%.*s' has type %s with rows of %lld, for which there is no layout here", (int)t->name.n,
        t->name.p, t->type->name, (long long)t->ne[0]);
  *mat = (kern_mat){.type = (wtype)t->type->id, .rows = (int)r.rows, .cols = (int)t->ne[0]};
  b->jobs[b->n_jobs++] = (mat_job){mat, t, (const uint8_t *)t->data + (size_t)r.row0 * row, (size_t)r.rows * row, b->bytes};
  b->bytes += (n + 4095) & ~(size_t)4095;
  return true;
}

/* A vector as F32, times `scale`. */
static bool bind_vec(binder *b, const float **vec, arch_role role, int layer, float scale) {
  const arch *a = &b->m->arch;
  const mf_tensor *t = arch_tensor(b->m->file, a, role, layer);
  *vec = NULL;
  if (!t) return true;
  int64_t n = t->ne[0];
  if (b->vecs) {
    float *p = b->vecs + b->n_floats, add = arch_is_norm(role) ? a->norm_add : 0.0f;
    if (!dequant_row((wtype)t->type->id, t->data, n, p))
      return err_set(b->e, ERR_UNSUPPORTED, "tensor '%.*s' has type %s, which cannot be read as a vector", (int)t->name.n, t->name.p, t->type->name);
    for (int64_t i = 0; i < n; i++) p[i] = (p[i] + add) * scale;
    *vec = p;
  }
  b->n_floats += (size_t)((n + 15) & ~(int64_t)15);
  return true;
}

/* Where a role's vector or matrix goes in layer_weights. */
typedef struct place {
  arch_role role;
  size_t off;
} place;
#define AT(role, field)                                                                                                                              \
  { role, offsetof(layer_weights, field) }

static bool bind_vecs(binder *b, weights *w) {
  static const place vecs[] = {AT(R_ATTN_NORM, attn_norm), AT(R_POST_ATTN_NORM, post_attn), AT(R_FFN_NORM, ffn_norm), AT(R_POST_FFN_NORM, post_ffn),
      AT(R_Q_BIAS, bq), AT(R_K_BIAS, bk), AT(R_V_BIAS, bv), AT(R_Q_NORM, q_norm), AT(R_K_NORM, k_norm), AT(R_ATTN_OUT_BIAS, bo),
      AT(R_GATE_BIAS, b_gate), AT(R_UP_BIAS, b_up), AT(R_DOWN_BIAS, b_down)};
  const arch *a = &b->m->arch;
  b->n_floats = 0;
  for (int l = 0; l < a->n_layer; l++)
    for (size_t i = 0; i < sizeof vecs / sizeof *vecs; i++)
      if (!bind_vec(b, (const float **)((char *)&w->layers[l] + vecs[i].off), vecs[i].role, l, 1)) return false;
  /* The product is linear: logits are scaled by scaling what goes into the head. */
  return bind_vec(b, &w->out_norm, R_OUT_NORM, 0, a->logit_scale) && bind_vec(b, &w->rope_factors, R_ROPE_FREQS, 0, 1) &&
         bind_vec(b, &w->rope_long, R_ROPE_LONG, 0, 1) && bind_vec(b, &w->rope_short, R_ROPE_SHORT, 0, 1);
}

static bool bind_mats(binder *b, weights *w) {
  static const place mats[] = {AT(R_Q, q), AT(R_K, k), AT(R_V, v), AT(R_ATTN_OUT, o), AT(R_GATE, gate), AT(R_UP, up), AT(R_DOWN, down)};
  const arch *a = &b->m->arch;
  const mfile *g = b->m->file;
  for (int l = 0; l < a->n_layer; l++)
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++)
      if (!bind_mat(b, (kern_mat *)((char *)&w->layers[l] + mats[i].off), arch_matrix(g, a, mats[i].role, l))) return false;
  return bind_mat(b, &w->head, arch_matrix(g, a, a->tied ? R_EMBED : R_OUTPUT, 0));
}

bool weights_load(const model *m, pool *p, weights *ret, err *e) {
  const arch *a = &m->arch;
  weights w = {0};
  binder b = {.m = m, .e = e};
  bool ok = false;
  w.embed = arch_tensor(m->file, a, R_EMBED, 0);
  w.embed_row = (size_t)(w.embed->ne[0] / w.embed->type->block) * (size_t)w.embed->type->bytes;
  w.layers = calloc((size_t)a->n_layer, sizeof *w.layers);
  b.jobs = calloc((size_t)a->n_layer * 7 + 1, sizeof *b.jobs);
  if (!w.layers || !b.jobs) {
    err_set(e, ERR_NOMEM, "out of memory for %d layers", a->n_layer);
    goto out;
  }
  if (!bind_vecs(&b, &w)) goto out;
  w.vecs = aligned_alloc(64, b.n_floats * sizeof(float));
  if (!w.vecs) {
    err_set(e, ERR_NOMEM, "out of memory for norms");
    goto out;
  }
  memset(w.vecs, 0, b.n_floats * sizeof(float));
  b.vecs = w.vecs;
  if (!bind_vecs(&b, &w) || !bind_mats(&b, &w)) goto out;
  w.bytes = b.bytes;
  void *mem = mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mem == MAP_FAILED) {
    err_set(e, ERR_NOMEM, "cannot get %zu bytes for the packed weights", w.bytes);
    goto out;
  }
  w.mem = mem;
  madvise(mem, w.bytes, MADV_HUGEPAGE); /* fewer faults while loading, fewer TLB misses for ever after */
  for (int i = 0; i < b.n_jobs; i++) b.jobs[i].mat->data = w.mem + b.jobs[i].off;
  pack_run run = {.jobs = b.jobs, .n = b.n_jobs, .file = m->file, .keep = w.embed, .pool = p};
  pool_run(p, pack_all, &run);
  if (a->tied) mf_drop_pages(m->file, w.embed->data, w.embed->bytes);
  *ret = w;
  memset(&w, 0, sizeof w);
  ok = true;
out:
  free(b.jobs);
  if (!ok) weights_free(&w);
  return ok;
}

void weights_free(weights *w) {
  if (w->mem) munmap(w->mem, w->bytes);
  free(w->vecs);
  free(w->layers);
  memset(w, 0, sizeof *w);
}

void weights_embed(const weights *w, const arch *a, int32_t token, float *x) {
  dequant_row((wtype)w->embed->type->id, (const uint8_t *)w->embed->data + (size_t)token * w->embed_row, a->dim, x);
  if (a->embed_scale != 1.0f)
    for (int i = 0; i < a->dim; i++) x[i] *= a->embed_scale;
}
