#include "engine/weights.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PACK_STEP = 8 }; /* panels a thread takes at a time */

typedef struct mat_job {
  kern_mat *mat;
  const mf_tensor *src;
  size_t off;
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
    if (p0 < p1) kern_pack(job->mat, job->src->data, p0, p1);
    pool_barrier(r->pool);
    if (tid == 0 && job->src != r->keep) mf_drop_pages(r->file, job->src->data, job->src->bytes);
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

static bool bind_mat(binder *b, kern_mat *mat, const mf_tensor *t) {
  size_t n = kern_packed_bytes((wtype)t->type->id, (int)t->ne[1], (int)t->ne[0]);
  if (!n)
    return err_param(b->e, ERR_UNSUPPORTED, "", "tensor '%.*s' has type %s with rows of %lld, for which there is no layout here", (int)t->name.n,
        t->name.p, t->type->name, (long long)t->ne[0]);
  *mat = (kern_mat){.type = (wtype)t->type->id, .rows = (int)t->ne[1], .cols = (int)t->ne[0]};
  b->jobs[b->n_jobs++] = (mat_job){mat, t, b->bytes};
  b->bytes += (n + 4095) & ~(size_t)4095;
  return true;
}

static bool bind_vec(binder *b, const float **vec, const mf_tensor *t) {
  if (!t) {
    *vec = NULL;
    return true;
  }
  int64_t n = t->ne[0];
  if (b->vecs) {
    float *p = b->vecs + b->n_floats;
    if (!dequant_row((wtype)t->type->id, t->data, n, p))
      return err_set(b->e, ERR_UNSUPPORTED, "tensor '%.*s' has type %s, which cannot be read as a vector", (int)t->name.n, t->name.p, t->type->name);
    *vec = p;
  }
  b->n_floats += (size_t)((n + 15) & ~(int64_t)15);
  return true;
}

static bool bind_vecs(binder *b, weights *w) {
  const arch *a = &b->m->arch;
  const mfile *g = b->m->file;
  b->n_floats = 0;
  for (int l = 0; l < a->n_layer; l++) {
    layer_weights *lw = &w->layers[l];
    if (!bind_vec(b, &lw->attn_norm, arch_tensor(g, a, R_ATTN_NORM, l)) || !bind_vec(b, &lw->ffn_norm, arch_tensor(g, a, R_FFN_NORM, l)) ||
        !bind_vec(b, &lw->bq, arch_tensor(g, a, R_Q_BIAS, l)) || !bind_vec(b, &lw->bk, arch_tensor(g, a, R_K_BIAS, l)) ||
        !bind_vec(b, &lw->bv, arch_tensor(g, a, R_V_BIAS, l)))
      return false;
  }
  return bind_vec(b, &w->out_norm, arch_tensor(g, a, R_OUT_NORM, 0)) && bind_vec(b, &w->rope_factors, arch_tensor(g, a, R_ROPE_FREQS, 0));
}

static bool bind_mats(binder *b, weights *w) {
  const arch *a = &b->m->arch;
  const mfile *g = b->m->file;
  static const struct {
    arch_role role;
    size_t off;
  } mats[] = {{R_Q, offsetof(layer_weights, q)}, {R_K, offsetof(layer_weights, k)}, {R_V, offsetof(layer_weights, v)},
      {R_ATTN_OUT, offsetof(layer_weights, o)}, {R_GATE, offsetof(layer_weights, gate)}, {R_UP, offsetof(layer_weights, up)},
      {R_DOWN, offsetof(layer_weights, down)}};
  for (int l = 0; l < a->n_layer; l++)
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++)
      if (!bind_mat(b, (kern_mat *)((char *)&w->layers[l] + mats[i].off), arch_tensor(g, a, mats[i].role, l))) return false;
  return bind_mat(b, &w->head, a->tied ? w->embed : arch_tensor(g, a, R_OUTPUT, 0));
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
