/* Reading order: texts, one shard, the shards, what a whole model needs, opening.
 * A shard is a number N of eight bytes, N bytes of JSON ({"name": {"dtype", "shape", "data_offsets": [begin, end]}}) and the tensors' bytes, each of
 * them once: what is shared or left over is a lie. Nothing in the JSON sizes an allocation before it has been held against the file. */
#include "model/safetensors.h"
#include "base/os.h"
#include "model/hf_config.h"
#include "model/mfile_build.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20 /* the format's own bound */, SHARDS_MAX = 1024 };

typedef struct reader {
  mfile *g;
  hf_config config;
  const char *dir; /* NULL: from memory */
  mf_tensor head;  /* the output matrix that ought to be the embedding; bytes 0: none seen */
  err *e;
} reader;

/* ---- texts beside the weights ----------------------------------------------------------------------------------------------- */

static bool join(const reader *r, const char *file, char out[OS_PATH]) {
  return snprintf(out, OS_PATH, "%s/%s", r->dir, file) < OS_PATH || err_set(r->e, ERR_INPUT, "the path is too long: %.80s...", r->dir);
}

static bool have(const reader *r, const char *file) {
  char path[OS_PATH];
  return snprintf(path, sizeof path, "%s/%s", r->dir, file) < OS_PATH && access(path, F_OK) == 0;
}

/* A text, mapped. One that is not there is {NULL, 0}. */
static bool text_file(reader *r, const char *file, str *ret) {
  char path[OS_PATH];
  int i;
  *ret = (str){0};
  if (!have(r, file)) return true;
  if (!join(r, file, path) || !mf_map_path(r->g, path, &i, r->e)) return false;
  mf_map *m = &r->g->maps[i];
  m->head = m->n;
  *ret = (str){(const char *)m->p, (size_t)m->n};
  return true;
}

static bool json_file(reader *r, const char *file, json_t **ret) {
  str text;
  *ret = NULL;
  return text_file(r, file, &text) && (!text.p || json_parse(text, ret, r->e) || err_prefix(r->e, "%s", file));
}

/* A template is a text, or one of several by name, of which "default" is for plain chats. */
static bool template_in(reader *r, str config, str *ret) {
  json_t *o = NULL, *v;
  bool ok = json_parse_wide(config, &o, r->e);
  if (!ok) return err_prefix(r->e, "tokenizer_config.json");
  v = json_object_get(o, "chat_template");
  for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++) {
    json_t *one = json_array_get(v, i);
    const char *name = json_string_value(json_object_get(one, "name"));
    if (name && strcmp(name, "default") == 0) v = json_object_get(one, "template");
  }
  if (json_is_string(v)) {
    ok = mf_add_str(r->g, "tokenizer.chat_template", (str){json_string_value(v), json_string_length(v)}, r->e);
    *ret = (str){"", 1};
  }
  json_decref(o);
  return ok;
}

static bool add_tokenizer(reader *r) {
  str vocab, config, chat;
  if (!text_file(r, "tokenizer.json", &vocab) || !text_file(r, "tokenizer_config.json", &config) || !text_file(r, "chat_template.jinja", &chat))
    return false;
  if (vocab.p && !mf_add_text(r->g, HF_KEY_TOKENIZER, vocab, r->e)) return false;
  if (config.p && !mf_add_text(r->g, HF_KEY_TOK_CONFIG, config, r->e)) return false;
  if (chat.p) return mf_add_text(r->g, "tokenizer.chat_template", chat, r->e);
  return !config.p || template_in(r, config, &chat);
}

/* ---- one shard -------------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *dtype;
  wtype type;
} dtypes[] = {{"F32", WT_F32}, {"F16", WT_F16}, {"BF16", WT_BF16},
    /* Not computed with; there in models that are only looked at. */
    {"F64", WT_F64}, {"I64", WT_I64}, {"I32", WT_I32}, {"I16", WT_I16}, {"I8", WT_I8}};

typedef struct range {
  uint64_t from, to;
  str name;
} range;

typedef struct shard {
  const mf_map *map;
  uint64_t base, bytes; /* where its data begin, and how many there are */
  range *ranges;        /* of the tensors so far, those that are skipped too */
  size_t n;
} shard;

static bool read_type(reader *r, const char *what, json_t *row, mf_tensor *t) {
  const char *dtype = json_string_value(json_object_get(row, "dtype"));
  for (size_t i = 0; dtype && i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(dtype, dtypes[i].dtype) == 0) t->type = wtype_lookup(dtypes[i].type);
  if (t->type) return true;
  if (!dtype) return err_param(r->e, ERR_INPUT, what, "%s has no dtype: the file is damaged", what);
  return err_param(r->e, ERR_UNSUPPORTED, what, "%s is of dtype %.20s; F32, F16 and BF16 are read", what, dtype);
}

/* The last dimension is the contiguous one there, the first here. */
static bool read_shape(reader *r, const char *what, json_t *row, mf_tensor *t) {
  json_t *shape = json_object_get(row, "shape");
  size_t n = json_array_size(shape);
  if (!json_is_array(shape) || n > 4) return err_param(r->e, ERR_INPUT, what, "%s has %zu dimensions, expected up to 4", what, n);
  t->n_dims = n ? (int)n : 1; /* a number alone is a vector of one */
  for (size_t d = 0; d < 4; d++) t->ne[d] = 1;
  for (size_t d = 0; d < n; d++) {
    json_t *v = json_array_get(shape, n - 1 - d);
    if (!json_is_integer(v) || json_integer_value(v) < 1)
      return err_param(r->e, ERR_INPUT, what, "%s has a shape with something else than whole numbers of 1 or more: the file is damaged", what);
    t->ne[d] = json_integer_value(v);
  }
  return mf_tensor_size(t, what, r->e);
}

static bool read_offsets(reader *r, const shard *s, const char *what, json_t *row, uint64_t *ret_from, uint64_t *ret_n) {
  json_t *v = json_object_get(row, "data_offsets"), *a = json_array_get(v, 0), *b = json_array_get(v, 1);
  if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 ||
      json_integer_value(b) < json_integer_value(a))
    return err_param(r->e, ERR_INPUT, what, "%s has no data_offsets [begin, end]: the file is damaged", what);
  uint64_t from = (uint64_t)json_integer_value(a), to = (uint64_t)json_integer_value(b);
  if (to > s->bytes)
    return err_param(r->e, ERR_INPUT, what, "%s wants bytes %llu to %llu, but there are %llu: the file is cut off or damaged, fetch it again", what,
        (unsigned long long)from, (unsigned long long)to, (unsigned long long)s->bytes);
  *ret_from = from;
  *ret_n = to - from;
  return true;
}

/* Into the model, unless it is another copy of the embedding. */
static bool place(reader *r, const shard *s, const char *what, mf_tensor *t, hf_fate fate, uint64_t from, uint64_t n) {
  if (t->bytes != n)
    return err_param(r->e, ERR_INPUT, what, "%s takes %llu bytes by shape and dtype, but its data_offsets hold %llu: the file is damaged", what,
        (unsigned long long)t->bytes, (unsigned long long)n);
  t->data = s->map->p + s->base + from;
  if ((uintptr_t)t->data % (uintptr_t)t->type->bytes)
    return err_param(r->e, ERR_INPUT, what, "%s begins at byte %llu, not at a multiple of its %d-byte numbers: save the model again", what,
        (unsigned long long)(s->base + from), t->type->bytes);
  if (fate == HF_TAKE) return mf_add_tensor(r->g, t, r->e);
  if (r->head.bytes) return err_param(r->e, ERR_INPUT, what, "%s is there twice: the file is damaged", what);
  r->head = *t;
  return true;
}

static bool take_tensor(reader *r, shard *s, str name, json_t *row) {
  char what[96], gguf[MF_NAME + 1];
  mf_tensor t = {0};
  hf_fate fate;
  uint64_t from = 0, n = 0;
  snprintf(what, sizeof what, "tensor %.*s", (int)(name.n < 80 ? name.n : 80), name.p);
  bool plain = name.n > 0 && name.n <= MF_NAME;
  for (size_t i = 0; plain && i < name.n; i++) plain = (uint8_t)name.p[i] >= 0x20 && (uint8_t)name.p[i] <= 0x7e;
  if (!plain) return err_set(r->e, ERR_INPUT, "a tensor's name is not 1 to %d bytes of printable ASCII: the file is damaged", MF_NAME);
  if (!json_is_object(row)) return err_param(r->e, ERR_INPUT, what, "%s is not described: the file is damaged", what);
  if (!read_offsets(r, s, what, row, &from, &n) || !hf_tensor_name(&r->config, name, gguf, &fate, r->e)) return false;
  s->ranges[s->n++] = (range){from, from + n, name};
  if (fate == HF_SKIP) return true;
  if (!read_type(r, what, row, &t) || !read_shape(r, what, row, &t)) return false;
  size_t k = strlen(gguf);
  char *copy = mf_mem(r->g, k + 1, 1, r->e);
  if (!copy) return false;
  memcpy(copy, gguf, k);
  t.name = (str){copy, k};
  return place(r, s, what, &t, fate, from, n);
}

static int by_place(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return x->to < y->to ? -1 : x->to > y->to; /* one of no bytes first */
}

/* Every byte is one tensor's. */
static bool check_ranges(reader *r, shard *s) {
  uint64_t at = 0;
  size_t i = 0;
  qsort(s->ranges, s->n, sizeof *s->ranges, by_place);
  for (; i < s->n && s->ranges[i].from == at; i++) at = s->ranges[i].to;
  if (i == s->n && at == s->bytes) return true;
  const range *p = &s->ranges[i];
  if (i < s->n && p->from < at)
    return err_set(r->e, ERR_INPUT, "tensors %.*s and %.*s share bytes: the file is damaged", (int)(p[-1].name.n < 80 ? p[-1].name.n : 80),
        p[-1].name.p, (int)(p->name.n < 80 ? p->name.n : 80), p->name.p);
  return err_set(r->e, ERR_INPUT, "bytes %llu to %llu of its data are no tensor's: the file is damaged, fetch it again", (unsigned long long)at,
      (unsigned long long)(i < s->n ? p->from : s->bytes));
}

static bool take_tensors(reader *r, shard *s, json_t *header) {
  const char *name;
  size_t n;
  json_t *row;
  if (!json_is_object(header)) return err_set(r->e, ERR_INPUT, "its header is %s, expected an object", json_type_name(header));
  s->ranges = calloc(json_object_size(header) + 1, sizeof *s->ranges);
  if (!s->ranges) return err_set(r->e, ERR_NOMEM, "out of memory for %zu tensors", json_object_size(header));
  json_object_keylen_foreach(header, name, n, row) {
    if (n == sizeof "__metadata__" - 1 && memcmp(name, "__metadata__", n) == 0) continue;
    if (!take_tensor(r, s, (str){name, n}, row)) return false;
  }
  return check_ranges(r, s);
}

/* The shard that is map i. */
static bool read_shard(reader *r, int i, const char *file) {
  mf_map *m = &r->g->maps[i];
  shard s = {.map = m};
  uint64_t n;
  json_t *header = NULL;
  if (m->n < 8) return err_set(r->e, ERR_INPUT, "%s: %llu bytes are no safetensors file: fetch it again", file, (unsigned long long)m->n);
  memcpy(&n, m->p, 8);
  if (n > m->n - 8 || n > HEADER_MAX || n < 2)
    return err_set(r->e, ERR_INPUT, "%s says that its header has %llu bytes; its %llu bytes and the bound of %d do not allow that: it is damaged",
        file, (unsigned long long)n, (unsigned long long)m->n, HEADER_MAX);
  s.base = m->head = 8 + n;
  s.bytes = m->n - s.base;
  bool ok = json_parse_once((str){(const char *)m->p + 8, (size_t)n}, &header, r->e) && take_tensors(r, &s, header);
  free(s.ranges);
  json_decref(header);
  return ok || err_prefix(r->e, "%s", file);
}

/* ---- the shards ------------------------------------------------------------------------------------------------------------- */

static bool open_shard(reader *r, const char *file, const char *tensor) {
  char path[OS_PATH];
  int i;
  if (!join(r, file, path)) return false;
  if (!have(r, file)) return err_set(r->e, ERR_INPUT, "shard %s is missing, which holds %.80s: fetch it again", file, tensor);
  return mf_map_path(r->g, path, &i, r->e) && read_shard(r, i, file);
}

static bool shard_name_ok(const char *s) {
  size_t n = strlen(s);
  return n > 12 && n < 256 && s[0] != '.' && !strchr(s, '/') && strcmp(s + n - 12, ".safetensors") == 0;
}

/* Each shard the index names, once, in the order of their first tensors. */
static bool open_indexed(reader *r, json_t *weights) {
  const char *seen[SHARDS_MAX], *tensor;
  int n = 0;
  json_t *v;
  json_object_foreach(weights, tensor, v) {
    const char *file = json_string_value(v);
    if (!file || !shard_name_ok(file))
      return err_set(r->e, ERR_INPUT, "model.safetensors.index.json: the file of %.80s is \"%.80s\", expected NAME.safetensors in this folder",
          tensor, file ? file : "");
    int k = 0;
    while (k < n && strcmp(seen[k], file) != 0) k++;
    if (k < n) continue;
    if (n == SHARDS_MAX) return err_set(r->e, ERR_TOO_LARGE, "model.safetensors.index.json names more than %d shards", SHARDS_MAX);
    seen[n++] = file;
    if (!open_shard(r, file, tensor)) return false;
  }
  return n || err_set(r->e, ERR_INPUT, "model.safetensors.index.json names no shard");
}

/* Whatever the index promises was in the shards; where exactly does not matter. */
static bool check_indexed(reader *r, json_t *weights) {
  const char *tensor;
  json_t *v;
  json_object_foreach(weights, tensor, v) {
    char gguf[MF_NAME + 1];
    hf_fate fate;
    if (strlen(tensor) > MF_NAME || !hf_tensor_name(&r->config, str_c(tensor), gguf, &fate, r->e)) return false;
    if (fate == HF_TAKE ? mf_find(r->g, gguf) != NULL : fate == HF_SKIP || r->head.bytes) continue;
    return err_set(r->e, ERR_INPUT, "tensor %.80s is in none of the shards, but model.safetensors.index.json says it is in %.80s: fetch that again",
        tensor, json_string_value(v));
  }
  return true;
}

static bool open_shards(reader *r) {
  json_t *index = NULL;
  if (have(r, "model.safetensors")) return open_shard(r, "model.safetensors", "the model");
  if (!have(r, "model.safetensors.index.json"))
    return err_set(r->e, ERR_INPUT, "there is neither model.safetensors nor model.safetensors.index.json%s",
        have(r, "pytorch_model.bin") || have(r, "pytorch_model.bin.index.json") ? ": pytorch_model.bin is not read, save the model as safetensors"
                                                                                : "");
  bool ok = json_file(r, "model.safetensors.index.json", &index);
  json_t *weights = ok ? json_object_get(index, "weight_map") : NULL;
  if (ok && !json_is_object(weights)) ok = err_set(r->e, ERR_INPUT, "model.safetensors.index.json has no 'weight_map'");
  ok = ok && open_indexed(r, weights) && check_indexed(r, weights);
  json_decref(index);
  return ok;
}

/* ---- what a whole model needs ----------------------------------------------------------------------------------------------- */

/* A missing output matrix means "tied" in GGUF, so here it has to be settled what the config says. */
static bool check_head(reader *r) {
  const mf_tensor *embed = mf_find(r->g, "token_embd.weight"), *head = &r->head;
  if (!r->config.family || !embed) return true; /* arch_read says so */
  if (r->config.vocab && embed->ne[1] != r->config.vocab)
    return err_param(r->e, ERR_INPUT, "vocab_size", "config.json: 'vocab_size' is %lld, but the embedding has %lld rows", (long long)r->config.vocab,
        (long long)embed->ne[1]);
  if (!r->config.tied && !mf_find(r->g, "output.weight"))
    return err_param(r->e, ERR_INPUT, "lm_head.weight", "tensor lm_head.weight is missing, and config.json does not tie it to the embedding");
  if (!head->bytes) return true;
  bool same = head->type == embed->type && head->bytes == embed->bytes && memcmp(head->data, embed->data, head->bytes) == 0;
  mf_drop_pages(r->g, head->data, head->bytes);
  return same ||
         err_param(r->e, ERR_INPUT, "tie_word_embeddings",
             "config.json: 'tie_word_embeddings' is true, but there is a tensor lm_head.weight that differs from the embedding: say false, or "
             "leave the tensor out");
}

/* ---- opening ---------------------------------------------------------------------------------------------------------------- */

static bool open_folder(reader *r) {
  json_t *config = NULL, *generation = NULL;
  bool ok = json_file(r, "config.json", &config) && json_file(r, "generation_config.json", &generation);
  if (ok && !config) ok = err_set(r->e, ERR_INPUT, "there is no config.json");
  ok = ok && hf_config_read(r->g, config, generation, &r->config, r->e);
  json_decref(config);
  json_decref(generation);
  return ok && add_tokenizer(r) && open_shards(r) && check_head(r) && mf_check_overlaps(r->g, r->e);
}

bool safetensors_open(const char *folder, mfile **ret, err *e) {
  reader r = {.g = mf_new(e), .dir = folder, .e = e};
  if (!r.g) return false;
  r.g->hf_layout = true;
  if (!open_folder(&r)) {
    mf_close(r.g);
    return err_prefix(e, "%s", folder);
  }
  *ret = r.g;
  return true;
}

static bool open_mem(reader *r, str config, str data) {
  json_t *o = NULL;
  int at, i;
  bool ok = mf_map_lent(r->g, config.p, config.n, &at, r->e) && mf_map_lent(r->g, data.p, data.n, &i, r->e);
  if (ok) r->g->maps[at].head = config.n;
  ok = ok && json_parse(config, &o, r->e) && hf_config_read(r->g, o, NULL, &r->config, r->e) && read_shard(r, i, "the shard");
  json_decref(o);
  return ok && check_head(r) && mf_check_overlaps(r->g, r->e);
}

bool safetensors_open_mem(str config, str data, mfile **ret, err *e) {
  reader r = {.g = mf_new(e), .e = e};
  if (!r.g) return false;
  r.g->hf_layout = true;
  if (!open_mem(&r, config, data)) {
    mf_close(r.g);
    return false;
  }
  *ret = r.g;
  return true;
}
