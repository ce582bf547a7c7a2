/* Opening goes file, description, tokenizer, template, defaults, fingerprint: what refuses most comes first, so that an unknown architecture is
 * reported before time is spent on its vocabulary. */
#include "model/model.h"
#include "base/hash.h"
#include "base/os.h"
#include "model/gguf.h"
#include "model/hf_config.h"
#include "model/safetensors.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

enum { SAMPLES = 8, SAMPLE_BYTES = 256 }; /* of every tensor, evenly spread, both ends included */

/* ---- what a path stands for ------------------------------------------------------------------------------------------------- */

static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The folder of a file, when the file is only one of a model's. */
static bool folder_of(const char *path, char out[OS_PATH]) {
  str p = str_c(path);
  if (!str_ends(p, STR(".safetensors")) && !str_ends(p, STR(".safetensors.index.json"))) return false;
  const char *slash = strrchr(path, '/');
  int n = slash ? (int)(slash - path) + (slash == path) : 0;
  return snprintf(out, OS_PATH, "%.*s", n ? n : 1, n ? path : ".") < OS_PATH;
}

bool model_file(const char *path, mfile **ret, err *e) {
  char folder[OS_PATH];
  if (is_folder(path)) return safetensors_open(path, ret, e);
  return folder_of(path, folder) && is_folder(folder) ? safetensors_open(folder, ret, e) : gguf_open(path, ret, e);
}

/* The last segment; "." and the like by the name the folder really has. */
static str last_segment(const char *path, char real[PATH_MAX]) {
  str p = str_c(path);
  for (int tries = 0; tries < 2; tries++) {
    while (p.n > 1 && p.p[p.n - 1] == '/') p.n--;
    size_t from = p.n;
    while (from && p.p[from - 1] != '/') from--;
    str s = {p.p + from, p.n - from};
    if ((s.n && !str_is(s, ".") && !str_is(s, "..")) || tries || !realpath(path, real)) return s;
    p = str_c(real);
  }
  return p;
}

void model_stem(const char *path, char out[MODEL_NAME]) {
  static const char *const ext[] = {".gguf", ".safetensors", ".bin"};
  char folder[OS_PATH], real[PATH_MAX];
  int count;
  bool in_folder = folder_of(path, folder);
  str s = last_segment(in_folder ? folder : path, real);
  if (gguf_part_of(s, &count)) s.n -= sizeof "-00001-of-00002.gguf" - 1;
  for (int i = 0; !in_folder && i < 3; i++) {
    size_t n = strlen(ext[i]);
    if (s.n < n || strncasecmp(s.p + s.n - n, ext[i], n) != 0) continue;
    s.n -= n;
    break;
  }
  size_t n = s.n < MODEL_NAME ? s.n : utf8_valid_prefix((str){s.p, MODEL_NAME - 1}, NULL);
  if (n == 0 && s.n) n = s.n < MODEL_NAME ? s.n : MODEL_NAME - 1; /* a file name need not be UTF-8 */
  memcpy(out, s.p, n);
  out[n] = 0;
}

/* A path without a name of its own (".gguf"): what the model calls itself, as a name can be typed. */
static void name_from(model *m) {
  model_stem(m->path, m->name);
  if (*m->name) return;
  str s = STR("model");
  mf_str(m->file, "general.name", &s, NULL);
  size_t n = s.n < sizeof m->name - 1 ? s.n : utf8_valid_prefix((str){s.p, sizeof m->name - 1}, NULL);
  memcpy(m->name, s.p, n);
  m->name[n] = 0;
  for (char *p = m->name; *p; p++) {
    if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + ('a' - 'A'));
    else if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '.')) *p = '-';
  }
}

/* ---- parts ------------------------------------------------------------------------------------------------------------------ */

bool model_tok(const mfile *g, tok **ret, err *e) {
  str vocab = {0}, config = {"", 0};
  if (!g->hf_layout) return tok_from_gguf(g, ret, e);
  if (!mf_str(g, HF_KEY_TOKENIZER, &vocab, e) || !mf_str(g, HF_KEY_TOK_CONFIG, &config, e)) return false;
  if (!vocab.p)
    return err_set(e, ERR_INPUT, "there is no tokenizer.json: save the model's tokenizer with transformers (its fast form) into the same folder");
  const mf_val *v = mf_get(g, HF_KEY_ENDS);
  int32_t ends[64];
  int n = 0;
  int64_t bos = -1;
  for (uint64_t i = 0; v && i < v->count && n < 64; i++) ends[n++] = (int32_t)mf_elem_i64(v, i);
  if (!mf_i64(g, "tokenizer.ggml.bos_token_id", &bos, e)) return false;
  return tok_from_hf(vocab, config, ends, n, (int)bos, ret, e);
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
bool model_defaults(model *m, err *e) {
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
  if (!h) return err_set(e, ERR_NOMEM, "out of memory for the fingerprint");
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
  return arch_read(m->file, type_ok, &m->arch, e) && model_tok(m->file, &m->tok, e) && read_chat(m, e) && model_defaults(m, e) &&
         read_fingerprint(m, e);
}

bool model_open(const char *path, bool (*type_ok)(uint32_t wtype), model **ret, err *e) {
  model *m = calloc(1, sizeof *m);
  if (!m) return err_set(e, ERR_NOMEM, "out of memory");
  if ((size_t)snprintf(m->path, sizeof m->path, "%s", path) >= sizeof m->path) {
    free(m);
    return err_set(e, ERR_INPUT, "the path is too long: %.80s...", path);
  }
  if (!model_file(path, &m->file, e)) {
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
