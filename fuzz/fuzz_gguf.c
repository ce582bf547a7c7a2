/* A GGUF file, and everything that is read out of one before the weights: metadata, tensor table, description, tokenizer, chat template.
 * Holds: two openings agree; what is handed out lies within the file; a tensor's bytes can be read; every refusal is a sentence. */
#include "fuzz.h"
#include "fuzz_tok.h"
#include "model/arch.h"
#include "model/chat.h"
#include "model/gguf.h"
#include "model/tok.h"
#include <stdlib.h>

static void inside(const mfile *g, const void *p, size_t n) {
  if (!n) return;
  uintptr_t a = (uintptr_t)p;
  for (int i = 0; i < g->n_maps; i++) {
    uintptr_t m = (uintptr_t)g->maps[i].p;
    if (a >= m && a - m <= g->maps[i].n && n <= g->maps[i].n - (a - m)) {
      fuzz_touch(p, n);
      return;
    }
  }
  FUZZ_CHECK(false, "%zu bytes are handed out that lie in no file", n);
}

static void walk_val(const mfile *g, const mf_val *v) {
  char key[2048];
  inside(g, v->raw.p, v->raw.n);
  if (v->kind == MF_ARR && v->elem == MF_STR)
    for (uint64_t i = 0; i < v->count; i++) inside(g, v->strs[i].p, v->strs[i].n);
  if (v->kind == MF_ARR && v->elem != MF_STR && v->elem != MF_ARR && v->count) {
    mf_elem_f64(v, 0);
    mf_elem_f64(v, v->count - 1);
    mf_elem_i64(v, v->count - 1);
    FUZZ_CHECK(mf_elem_i64(v, v->count) == 0, "an element behind the last");
  }
  FUZZ_CHECK(v->key.n < sizeof key, "a key of %zu bytes", v->key.n);
  memcpy(key, v->key.p, v->key.n);
  key[v->key.n] = 0;
  FUZZ_CHECK(mf_get(g, key) == v, "key %s is not found again", key);
  err e = {0};
  uint64_t u = 0;
  int64_t i = 0;
  double d = 0;
  bool b = false;
  str s = {0};
  if (!mf_u64(g, key, &u, &e)) fuzz_refused(&e);
  if (!mf_i64(g, key, &i, &e)) fuzz_refused(&e);
  if (!mf_f64(g, key, &d, &e)) fuzz_refused(&e);
  if (!mf_bool(g, key, &b, &e)) fuzz_refused(&e);
  if (!mf_str(g, key, &s, &e)) fuzz_refused(&e);
}

static void walk_tensor(const mfile *g, const mf_tensor *t) {
  FUZZ_CHECK(t->n_dims >= 1 && t->n_dims <= 4 && t->type, "a tensor of %d dimensions", t->n_dims);
  for (int d = 0; d < 4; d++) FUZZ_CHECK(t->ne[d] >= 1, "dimension %d is %lld", d, (long long)t->ne[d]);
  inside(g, t->data, t->bytes);
}

static void read_model(const mfile *g) {
  arch a = {0};
  err e = {0};
  tok *t = NULL;
  chat_tmpl *c = NULL;
  str source = {0};
  if (arch_read(g, NULL, &a, &e)) {
    FUZZ_CHECK(a.n_layer > 0 && a.dim > 0 && a.n_head > 0 && a.vocab > 0, "%d layers, %d wide", a.n_layer, a.dim);
    arch_kv_bytes(&a, 2);
    arch_read_bytes(g, &a);
    arch_params(g);
  } else fuzz_refused(&e);
  if (tok_from_gguf(g, &t, &e)) {
    use_tok(t, (str){(const char *)g->maps[0].p, g->maps[0].n < 600 ? g->maps[0].n : 600});
    tok_free(t);
  } else fuzz_refused(&e);
  if (mf_str(g, "tokenizer.chat_template", &source, &e) && source.n && !chat_compile(source, &c, &e)) fuzz_refused(&e);
  chat_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  void *copy = fuzz_copy(p, n);
  mfile *g = NULL, *again = NULL;
  err e = {0}, f = {0};
  bool ok = gguf_open_mem(copy, n, &g, &e), ok2 = gguf_open_mem(copy, n, &again, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (ok) {
    FUZZ_CHECK(g->n_vals == again->n_vals && g->n_tensors == again->n_tensors, "two readings of one file differ");
    for (uint64_t i = 0; i < g->n_vals; i++) walk_val(g, &g->vals[i]);
    for (uint64_t i = 0; i < g->n_tensors; i++) walk_tensor(g, &g->tensors[i]);
    read_model(g);
    mf_close(again);
    mf_close(g);
  } else fuzz_refused(&e);
  free(copy);
  return 0;
}
