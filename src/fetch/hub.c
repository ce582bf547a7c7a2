#include "fetch/job.h"
#include "model/gguf.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { LIST_MAX = 8 << 20 };

static bool name_ok(const char *s, size_t n) {
  if (n == 0 || n > 96 || s[0] == '.' || s[0] == '-') return false;
  for (size_t i = 0; i < n; i++)
    if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", s[i]) || !s[i]) return false;
  return true;
}

bool hub_parse(const char *spec, hub_spec *h, err *e) {
  memset(h, 0, sizeof *h);
  const char *at = strrchr(spec, '@');
  size_t n = at ? (size_t)(at - spec) : strlen(spec);
  const char *slash = memchr(spec, '/', n);
  const char *second = slash ? memchr(slash + 1, '/', n - (size_t)(slash + 1 - spec)) : NULL;
  size_t repo_n = second ? (size_t)(second - spec) : n;
  if (!slash || !name_ok(spec, (size_t)(slash - spec)) || !name_ok(slash + 1, repo_n - (size_t)(slash + 1 - spec)) ||
      snprintf(h->repo, sizeof h->repo, "%.*s", (int)repo_n, spec) >= (int)sizeof h->repo)
    return err_set(e, ERR_INPUT, "hf:%.200s: expected hf:owner/repo[/file][@revision]", spec);
  if (second) {
    size_t len = n - repo_n - 1;
    if (len >= sizeof h->file) return err_set(e, ERR_INPUT, "hf:%.100s...: the file name is too long", spec);
    memcpy(h->file, second + 1, len);
    if (!catalog_safe_path(h->file)) return err_set(e, ERR_INPUT, "hf:%.200s: '%.200s' is not a file name in a repository", spec, h->file);
  }
  if (at && (!at[1] || strlen(at + 1) >= sizeof h->rev || !catalog_safe_path(at + 1)))
    return err_set(e, ERR_INPUT, "hf:%.200s: the revision after @ is not a branch, tag or commit", spec);
  snprintf(h->rev, sizeof h->rev, "%s", at ? at + 1 : "main");
  return true;
}

/* Percent-encodes what a path segment may not hold; '/' stays only where it separates. */
static bool put_encoded(char *out, size_t *k, const char *s, bool keep_slash) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  for (; *s; s++) {
    if (*k + 4 >= OS_PATH) return false;
    if (strchr(plain, *s) || (keep_slash && *s == '/')) out[(*k)++] = *s;
    else *k += (size_t)snprintf(out + *k, 4, "%%%02X", (unsigned char)*s);
  }
  out[*k] = 0;
  return true;
}

static bool endpoint(char out[OS_PATH], size_t *k, err *e) {
  const char *v = getenv("HF_ENDPOINT");
  if (!v || !*v) v = "https://huggingface.co";
  if (strncasecmp(v, "http://", 7) != 0 && strncasecmp(v, "https://", 8) != 0)
    return err_set(e, ERR_INPUT, "HF_ENDPOINT is '%.100s': expected http://... or https://...", v);
  *k = strlen(v);
  if (*k > 1000) return err_set(e, ERR_INPUT, "HF_ENDPOINT is too long");
  memcpy(out, v, *k + 1);
  while (*k && out[*k - 1] == '/') out[--*k] = 0;
  return true;
}

static bool too_long(const hub_spec *h, err *e) { return err_set(e, ERR_INPUT, "hf:%.100s: the address is too long", h->repo); }

bool hub_url(const hub_spec *h, char out[OS_PATH], err *e) {
  size_t k;
  if (!endpoint(out, &k, e)) return false;
  k += (size_t)snprintf(out + k, OS_PATH - k, "/%s/resolve/", h->repo);
  if (!put_encoded(out, &k, h->rev, false)) return too_long(h, e);
  out[k++] = '/';
  return put_encoded(out, &k, h->file, true) ? true : too_long(h, e);
}

const char *hub_token(void) {
  const char *v = getenv("HF_TOKEN");
  return v && *v ? v : NULL;
}

bool hub_offline(void) {
  const char *v = getenv("HF_HUB_OFFLINE");
  return v && (strcmp(v, "1") == 0 || strcasecmp(v, "true") == 0 || strcasecmp(v, "yes") == 0 || strcasecmp(v, "on") == 0);
}

/* ---- choosing a file of a repository ---- */

/* Small enough for any machine and close to the original comes first; then what is larger, then what is smaller. */
static int rank(const char *file) {
  static const char *const order[] = {"Q4_K_M", "Q4_K_S", "Q5_K_M", "Q4_1", "Q4_0", "IQ4_NL", "Q5_K_S", "Q6_K", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16",
      "FP16", "F32", "IQ4_XS", "MXFP4", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"};
  char up[1024];
  size_t n = strlen(file);
  if (n >= sizeof up) return 1000;
  for (size_t i = 0; i <= n; i++) up[i] = file[i] >= 'a' && file[i] <= 'z' ? (char)(file[i] - 32) : file[i];
  for (int i = 0; i < (int)(sizeof order / sizeof *order); i++)
    if (strstr(up, order[i])) return i;
  return 900;
}

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool is_gguf(const char *file) {
  size_t n = strlen(file);
  return n >= 6 && strcasecmp(file + n - 5, ".gguf") == 0;
}

/* A language model that is whole, or the first part of one. */
static bool candidate(const char *file) {
  int count;
  return is_gguf(file) && !strcasestr(file, "mmproj") && !strcasestr(file, "imatrix") && gguf_part_of(str_c(file), &count) <= 1;
}

static const char *path_of(const json_t *row) {
  const char *path = json_string_value(json_object_get(row, "path")), *type = json_string_value(json_object_get(row, "type"));
  return path && (!type || strcmp(type, "file") == 0) && catalog_safe_path(path) && strlen(path) < 900 ? path : NULL;
}

static json_t *row_named(json_t *list, const char *path) {
  size_t i;
  json_t *row;
  json_array_foreach(list, i, row) {
    const char *p = path_of(row);
    if (p && strcmp(p, path) == 0) return row;
  }
  return NULL;
}

/* Size and hash as far as the list tells them. */
static bool take(json_t *files, json_t *row) {
  json_int_t size = json_integer_value(json_object_get(row, "size"));
  const char *oid = json_string_value(json_object_get(json_object_get(row, "lfs"), "oid"));
  bool hash = oid && strlen(oid) == 64 && strspn(oid, "0123456789abcdef") == 64;
  return json_array_append_new(
             files, json_pack("{s:s, s:I, s:s}", "path", path_of(row), "bytes", size > 0 ? size : (json_int_t)0, "sha256", hash ? oid : "")) == 0;
}

/* All parts, or none when one is not in the repository. */
static bool take_parts(json_t *files, json_t *list, const char *first) {
  char other[1024];
  int count = 0;
  if (!gguf_part_of(str_c(first), &count)) return take(files, row_named(list, first));
  for (int no = 1; no <= count; no++) {
    json_t *row = gguf_part_path(first, no, other, sizeof other) ? row_named(list, other) : NULL;
    if (!row || !take(files, row)) {
      json_array_clear(files);
      return false;
    }
  }
  return true;
}

typedef struct found {
  int gguf, usable;  /* files that end in .gguf; of those, language models */
  bool lone_weights; /* safetensors without a config.json */
} found;

/* The best GGUF file; of two of the same kind the one that is whole. */
static const char *take_gguf(json_t *files, json_t *list, found *f) {
  const char *best = NULL;
  size_t i;
  json_t *row;
  json_array_foreach(list, i, row) {
    const char *path = path_of(row);
    int count, old;
    if (!path || !is_gguf(path)) continue;
    f->gguf++;
    if (!candidate(path)) continue;
    bool split = gguf_part_of(str_c(path), &count), better = !best || rank(path) < rank(best);
    if (!better && rank(path) == rank(best)) better = !split && gguf_part_of(str_c(best), &old);
    json_t *tried = better ? json_array() : NULL;
    if (tried && take_parts(tried, list, path)) {
      json_array_clear(files);
      json_array_extend(files, tried);
      best = path;
    }
    json_decref(tried);
  }
  return best;
}

/* What safetensors.h reads of a folder, the small things first: config.json tells whether the rest is worth fetching. */
static bool take_folder(json_t *files, json_t *list, found *f) {
  static const char *const texts[] = {
      "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors.index.json"};
  bool whole = row_named(list, "model.safetensors") != NULL, any = whole;
  size_t i;
  json_t *row;
  for (i = 0; i < sizeof texts / sizeof *texts; i++) {
    row = row_named(list, texts[i]);
    if (row && !(whole && i == 5) && !take(files, row)) return false;
  }
  json_array_foreach(list, i, row) {
    const char *path = path_of(row);
    if (!path || !str_ends(str_c(path), STR(".safetensors"))) continue;
    if (whole ? strcmp(path, "model.safetensors") != 0 : strncmp(path, "model-", 6) != 0 || strchr(path, '/') != NULL) continue;
    any = true;
    if (!take(files, row)) return false;
  }
  f->lone_weights = any && !row_named(list, "config.json");
  return any && !f->lone_weights;
}

static bool no_choice(const hub_spec *h, const found *f, err *e) {
  if (f->lone_weights) return err_set(e, ERR_UNSUPPORTED, "hf:%s holds safetensors but no config.json, which says what they are", h->repo);
  if (f->gguf) return err_set(e, ERR_UNSUPPORTED, "hf:%s holds no GGUF file of a language model, or not all parts of one", h->repo);
  return err_set(e, ERR_UNSUPPORTED,
      "hf:%s holds neither a GGUF file nor model.safetensors: look for a repository of the same model whose name ends in -GGUF", h->repo);
}

static bool choose(job *j, const hub_spec *h, json_t *list, json_t *files, err *e) {
  found f = {0};
  const char *gguf = take_gguf(files, list, &f);
  size_t n = json_array_size(files);
  if (gguf) {
    char parts[32] = "";
    if (n > 1) snprintf(parts, sizeof parts, " (%zu parts)", n);
    job_note(j, "hf:%s: chose %s%s of %d GGUF file%s", h->repo, base_of(gguf), parts, f.gguf, f.gguf == 1 ? "" : "s");
    return true;
  }
  json_array_clear(files);
  if (f.gguf || !take_folder(files, list, &f)) return no_choice(h, &f, e);
  job_note(j, "hf:%s: no GGUF file, taking its safetensors: %zu files", h->repo, json_array_size(files));
  return true;
}

bool hub_choose(job *j, const hub_spec *h, json_t **ret, err *e) {
  char url[OS_PATH];
  size_t k, n = 0;
  char *text = NULL;
  long status = 0;
  json_t *list = NULL;
  if (!endpoint(url, &k, e)) return false;
  k += (size_t)snprintf(url + k, OS_PATH - k, "/api/models/%s/tree/", h->repo);
  if (!put_encoded(url, &k, h->rev, false)) return too_long(h, e);
  snprintf(url + k, OS_PATH - k, "?recursive=true");
  if (!down_text(j, url, hub_token(), LIST_MAX, &text, &n, &status, e)) {
    if (status == 401) return err_set(e, ERR_AUTH, "hf:%s: no such repository, or it needs a token (HF_TOKEN)", h->repo);
    return err_prefix(e, "hf:%s", h->repo);
  }
  bool ok = json_parse((str){text, n}, &list, e);
  free(text);
  if (!ok) return err_prefix(e, "hf:%s: the list of files cannot be read", h->repo);
  json_t *files = json_array();
  ok = files ? choose(j, h, list, files, e) : err_set(e, ERR_NOMEM, "out of memory");
  if (ok && json_array_size(files) > HUB_FILES) ok = err_set(e, ERR_TOO_LARGE, "hf:%s: the model has more than %d files", h->repo, HUB_FILES);
  if (ok) *ret = json_incref(files);
  json_decref(files);
  json_decref(list);
  return ok;
}
