/* Logits of an independent framework (the form is told in tools/make_tiny_models.py) and how far the engine's are from them. */
#ifndef ENG_GOLDEN_H
#define ENG_GOLDEN_H
#include "eng_fixture.h"
#include <math.h>

typedef struct golden {
  uint32_t n_tokens, n_pos, vocab;
  int32_t *tokens, *pos;
  float *logits; /* [n_pos, vocab] */
} golden;

static inline void golden_read(FILE *f, void *p, size_t n) {
  if (fread(p, 1, n, f) != n) fail_msg("a golden file is cut off");
}

static inline golden golden_load(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, TEST_SRC "/tests/golden/%s/%s.logits", folder, name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  char magic[4];
  uint32_t head[4];
  golden_read(f, magic, 4);
  golden_read(f, head, sizeof head);
  assert_memory_equal(magic, "WLOG", 4);
  assert_int_equal(head[0], 1);
  golden g = {.n_tokens = head[1], .n_pos = head[2], .vocab = head[3]};
  assert_true(g.n_tokens <= 4096 && g.n_pos <= g.n_tokens && g.vocab <= 4096);
  g.tokens = calloc(g.n_tokens, sizeof *g.tokens);
  g.pos = calloc(g.n_pos, sizeof *g.pos);
  g.logits = calloc((size_t)g.n_pos * g.vocab, sizeof *g.logits);
  golden_read(f, g.tokens, g.n_tokens * sizeof *g.tokens);
  golden_read(f, g.pos, g.n_pos * sizeof *g.pos);
  golden_read(f, g.logits, (size_t)g.n_pos * g.vocab * sizeof *g.logits);
  fclose(f);
  return g;
}

static inline void golden_free(golden *g) {
  free(g->tokens);
  free(g->pos);
  free(g->logits);
}

/* Largest |delta| over all golden positions; infinite when anything is not a number, so that it can never pass. */
static inline float golden_worst(const model *m, const golden *g, eng_opts o) {
  engine *en = fix_engine(m, o);
  err e = {0};
  float *got = calloc((size_t)g->n_tokens * g->vocab, sizeof *got), max = 0;
  if (!engine_logits(en, g->tokens, (int)g->n_tokens, 0, got, &e)) fail_msg("%s", e.msg);
  for (uint32_t i = 0; i < g->n_pos; i++)
    for (uint32_t v = 0; v < g->vocab; v++) {
      float d = fabsf(got[(size_t)g->pos[i] * g->vocab + v] - g->logits[(size_t)i * g->vocab + v]);
      if (!(d <= max)) max = isnan(d) ? INFINITY : d;
    }
  free(got);
  engine_close(en);
  return max;
}
#endif
