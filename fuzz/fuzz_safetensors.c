/* A folder of safetensors as its two files that decide everything: config.json, a NUL, the shard. Holds: two openings agree; what is handed out can
 * be read; names are found again; what the description reads is within its bounds; every refusal is a sentence. */
#include "fuzz.h"
#include "model/arch.h"
#include "model/safetensors.h"
#include <stdlib.h>

static void walk(const mfile *g) {
  char name[MF_NAME + 1];
  for (uint64_t i = 0; i < g->n_vals; i++) {
    fuzz_touch(g->vals[i].key.p, g->vals[i].key.n);
    fuzz_touch(g->vals[i].raw.p, g->vals[i].raw.n);
  }
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    const mf_tensor *t = &g->tensors[i];
    FUZZ_CHECK(
        t->n_dims >= 1 && t->n_dims <= 4 && t->type && t->name.n <= MF_NAME, "tensor %llu has %d dimensions", (unsigned long long)i, t->n_dims);
    fuzz_touch(t->data, t->bytes);
    memcpy(name, t->name.p, t->name.n);
    name[t->name.n] = 0;
    FUZZ_CHECK(mf_find(g, name) == t, "tensor %s is not found again", name);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  const uint8_t *nul = n ? memchr(p, 0, n) : NULL;
  size_t n_config = nul ? (size_t)(nul - p) : 0, n_shard = nul ? n - n_config - 1 : n;
  char *config = fuzz_copy(p, n_config), *shard = fuzz_copy(p + n - n_shard, n_shard);
  mfile *g = NULL, *again = NULL;
  err e = {0}, f = {0};
  bool ok = safetensors_open_mem((str){config, n_config}, (str){shard, n_shard}, &g, &e);
  bool ok2 = safetensors_open_mem((str){config, n_config}, (str){shard, n_shard}, &again, &f);
  fuzz_same_end(ok, &e, ok2, &f);
  if (ok) {
    arch a = {0};
    FUZZ_CHECK(g->n_vals == again->n_vals && g->n_tensors == again->n_tensors, "two readings of one folder differ");
    walk(g);
    if (arch_read(g, NULL, &a, &e)) {
      FUZZ_CHECK(a.n_layer > 0 && a.dim > 0 && a.n_head > 0 && a.vocab > 0, "%d layers, %d wide", a.n_layer, a.dim);
      arch_kv_bytes(&a, 2);
      arch_read_bytes(g, &a);
    } else fuzz_refused(&e);
    mf_close(g);
    mf_close(again);
  } else fuzz_refused(&e);
  free(config);
  free(shard);
  return 0;
}
