#include "fetch/job.h"
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
  static const char *const order[] = {"Q4_K_M", "Q4_K_S", "Q5_K_M", "Q4_1", "Q4_0", "Q5_K_S", "Q6_K", "Q5_0", "Q8_0", "BF16", "F16", "FP16", "F32"};
  char up[1024];
  size_t n = strlen(file);
  if (n >= sizeof up) return 1000;
  for (size_t i = 0; i <= n; i++) up[i] = file[i] >= 'a' && file[i] <= 'z' ? (char)(file[i] - 32) : file[i];
  for (int i = 0; i < (int)(sizeof order / sizeof *order); i++)
    if (strstr(up, order[i])) return i;
  return 900;
}

static bool candidate(const char *file) {
  str f = str_c(file);
  if (f.n < 6 || strcasecmp(file + f.n - 5, ".gguf") != 0) return false;
  return !strcasestr(file, "mmproj") && !strcasestr(file, "imatrix") && !strstr(file, "-of-000") && catalog_safe_path(file);
}

typedef struct choice {
  const char *file;
  json_t *row;
  int gguf, split;
} choice;

static choice best_of(json_t *list) {
  choice c = {0};
  size_t i;
  json_t *row;
  json_array_foreach(list, i, row) {
    const char *path = json_string_value(json_object_get(row, "path")), *type = json_string_value(json_object_get(row, "type"));
    if (!path || (type && strcmp(type, "file") != 0)) continue;
    if (strcasestr(path, ".gguf")) c.gguf++;
    if (strcasestr(path, ".gguf") && strstr(path, "-of-000")) c.split++;
    if (!candidate(path) || (c.file && rank(path) >= rank(c.file))) continue;
    c.file = path;
    c.row = row;
  }
  return c;
}

static bool no_choice(const hub_spec *h, const choice *c, err *e) {
  if (c->split)
    return err_set(e, ERR_UNSUPPORTED, "hf:%s holds only GGUF files cut into several (-00001-of-...): name a repository with a whole file", h->repo);
  if (c->gguf) return err_set(e, ERR_UNSUPPORTED, "hf:%s holds no GGUF file of a language model", h->repo);
  return err_set(e, ERR_UNSUPPORTED, "hf:%s holds no GGUF file: look for a repository of the same model whose name ends in -GGUF", h->repo);
}

bool hub_choose(job *j, hub_spec *h, uint64_t *ret_bytes, char sha[65], err *e) {
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
  choice c = best_of(list);
  if (!c.file || strlen(c.file) >= sizeof h->file) ok = no_choice(h, &c, e);
  if (ok) {
    snprintf(h->file, sizeof h->file, "%s", c.file);
    json_int_t size = json_integer_value(json_object_get(c.row, "size"));
    const char *oid = json_string_value(json_object_get(json_object_get(c.row, "lfs"), "oid"));
    *ret_bytes = size > 0 ? (uint64_t)size : 0;
    if (oid && strlen(oid) == 64 && strspn(oid, "0123456789abcdef") == 64) memcpy(sha, oid, 65);
    job_note(j, "hf:%s: chose %s of %d GGUF file%s", h->repo, h->file, c.gguf, c.gguf == 1 ? "" : "s");
  }
  json_decref(list);
  return ok;
}
