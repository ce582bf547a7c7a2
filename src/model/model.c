/* Opening goes file, description, tokenizer, template, defaults, fingerprint: what refuses most comes first, so that an unknown architecture is
 * reported before time is spent on its vocabulary. */
#include "model/model.h"
#include "base/hash.h"
#include "model/gguf.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 8, SAMPLE_BYTES = 256 }; /* of every tensor, evenly spread, both ends included */

static void name_from(model *m) {
  const char *base = strrchr(m->path, '/');
  str stem = str_c(base ? base + 1 : m->path);
  if (str_ends(stem, STR(".gguf"))) stem.n -= 5;
  bool slug = stem.n == 0;
  if (slug) {
    str s = STR("model");
    mf_str(m->file, "general.name", &s, NULL);
    stem = s;
  }
  size_t n = stem.n < sizeof m->name - 1 ? stem.n : utf8_valid_prefix((str){stem.p, sizeof m->name - 1}, NULL);
  if (n == 0 && stem.n) n = stem.n < sizeof m->name ? stem.n : sizeof m->name - 1; /* a file name need not be UTF-8 */
  memcpy(m->name, stem.p, n);
  m->name[n] = 0;
  if (!slug) return;
  for (char *p = m->name; *p; p++) {
    if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + ('a' - 'A'));
    else if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '.')) *p = '-';
  }
}

/* A template that does not parse spoils chats, not the model: completions still work. */
static bool read_chat(model *m, err *e) {
  if (!mf_str(m->file, "tokenizer.chat_template", &m->chat_source, e)) return false;
  if (!m->chat_source.n) {
    err_set(&m->chat_err, ERR_UNSUPPORTED, "model %s has no chat template (metadata key tokenizer.chat_template): use /v1/completions", m->name);
    return true;
  }
  if (!chat_compile(m->chat_source, &m->chat, &m->chat_err)) {
    m->chat = NULL;
    err_prefix(&m->chat_err, "the chat template of model %s", m->name);
  }
  return true;
}

static bool sampling(const mfile *g, const char *key, double lo, double hi, float *ret, err *e) {
  double v = NAN;
  if (!mf_f64(g, key, &v, e)) return false;
  if (!isnan(v) && !(v >= lo && v <= hi)) return err_param(e, ERR_INPUT, key, "metadata key %s is %g, expected %g to %g", key, v, lo, hi);
  *ret = (float)v;
  return true;
}

/* The model's generation config, as converters write it. */
static bool read_defaults(model *m, err *e) {
  const mfile *g = m->file;
  int64_t k = -1;
  if (!mf_i64(g, "general.sampling.top_k", &k, e)) return false;
  m->top_k = k < 0 ? -1 : k > INT32_MAX ? INT32_MAX : (int)k;
  return sampling(g, "general.sampling.temp", 0, 100, &m->temperature, e) && sampling(g, "general.sampling.top_p", 0, 1, &m->top_p, e) &&
         sampling(g, "general.sampling.min_p", 0, 1, &m->min_p, e) && sampling(g, "general.sampling.penalty_repeat", 0.01, 100, &m->repetition, e);
}

/* Metadata, tensor table and samples of every tensor: enough to tell two models or two quantizations of one apart, without reading the file whole. */
static bool read_fingerprint(model *m, err *e) {
  const mfile *g = m->file;
  sha256 *h = sha256_new();
  if (!h) return err_set(e, ERR_INTERNAL, "OpenSSL offers no SHA-256: mend the installation");
  for (int i = 0; i < g->n_maps; i++) {
    sha256_add(h, &g->maps[i].n, sizeof g->maps[i].n);
    sha256_add(h, g->maps[i].p, g->maps[i].head);
  }
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    const mf_tensor *t = &g->tensors[i];
    if (t->bytes <= SAMPLES * SAMPLE_BYTES) {
      sha256_add(h, t->data, t->bytes);
      continue;
    }
    for (uint64_t k = 0; k < SAMPLES; k++) {
      uint64_t off = (t->bytes - SAMPLE_BYTES) / (SAMPLES - 1) * k;
      if (k == SAMPLES - 1) off = t->bytes - SAMPLE_BYTES;
      sha256_add(h, (const uint8_t *)t->data + off, SAMPLE_BYTES);
    }
  }
  sha256_done(h, m->fingerprint);
  return true;
}

static bool read_parts(model *m, bool (*type_ok)(uint32_t wtype), err *e) {
  return arch_read(m->file, type_ok, &m->arch, e) && tok_from_gguf(m->file, &m->tok, e) && read_chat(m, e) && read_defaults(m, e) &&
         read_fingerprint(m, e);
}

bool model_open(const char *path, bool (*type_ok)(uint32_t wtype), model **ret, err *e) {
  model *m = calloc(1, sizeof *m);
  if (!m) return err_set(e, ERR_NOMEM, "out of memory");
  if ((size_t)snprintf(m->path, sizeof m->path, "%s", path) >= sizeof m->path) {
    free(m);
    return err_set(e, ERR_INPUT, "the path is too long: %.80s...", path);
  }
  if (!gguf_open(path, &m->file, e)) {
    free(m);
    return false;
  }
  name_from(m);
  if (!read_parts(m, type_ok, e)) {
    model_close(m);
    return err_prefix(e, "%s", path);
  }
  *ret = m;
  return true;
}

void model_close(model *m) {
  if (!m) return;
  chat_free(m->chat);
  tok_free(m->tok);
  mf_close(m->file);
  free(m);
}
