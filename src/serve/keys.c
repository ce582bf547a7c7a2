#include "serve/keys.h"
#include "base/hash.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { KEYS_MAX = 10000, KEY_LEAST = 8, KEY_MOST = 512, FILE_MOST = 8 << 20 };

struct keys {
  int n, cap;
  uint8_t (*digest)[32];
};

static bool add_key(keys *k, str line, const char *path, int no, err *e) {
  if (line.n < KEY_LEAST || line.n > KEY_MOST)
    return err_param(e, ERR_INPUT, "api-key-file", "%s line %d: a key has %d to %d characters, this one %zu", path, no, KEY_LEAST, KEY_MOST, line.n);
  for (size_t i = 0; i < line.n; i++)
    if ((unsigned char)line.p[i] <= 0x20 || (unsigned char)line.p[i] >= 0x7f)
      return err_param(e, ERR_INPUT, "api-key-file", "%s line %d: a key has no blanks and only ASCII characters", path, no);
  if (k->n == KEYS_MAX) return err_param(e, ERR_INPUT, "api-key-file", "%s holds more than %d keys", path, KEYS_MAX);
  if (k->n == k->cap) {
    int cap = k->cap ? k->cap * 2 : 8;
    void *p = realloc(k->digest, sizeof *k->digest * (size_t)cap);
    if (!p) return err_set(e, ERR_NOMEM, "out of memory reading %s", path);
    k->digest = p;
    k->cap = cap;
  }
  sha256_once(line.p, line.n, k->digest[k->n++]);
  return true;
}

static bool add_lines(keys *k, str text, const char *path, err *e) {
  str line;
  for (int no = 1; text.n; no++) {
    if (!str_cut(text, '\n', &line, &text)) {
      line = text;
      text.n = 0;
    }
    line = str_trim(line);
    if (line.n && line.p[0] != '#' && !add_key(k, line, path, no, e)) return false;
  }
  return k->n || err_param(e, ERR_INPUT, "api-key-file", "the key file %s holds no key: write one per line", path);
}

/* Read in one piece, unbuffered: nothing but this copy, which is wiped, has held the keys. A pipe will do, so the size is found by reading. */
bool keys_load(const char *path, keys **ret, err *e) {
  FILE *f = fopen(path, "re");
  if (!f) return err_errno(e, errno, "cannot open the key file %s", path);
  setvbuf(f, NULL, _IONBF, 0);
  keys *k = calloc(1, sizeof *k);
  char *text = malloc(FILE_MOST + 1);
  size_t n = k && text ? fread(text, 1, FILE_MOST + 1, f) : 0;
  bool ok;
  if (!k || !text) ok = err_set(e, ERR_NOMEM, "out of memory reading %s", path);
  else if (ferror(f)) ok = err_errno(e, errno, "cannot read the key file %s", path);
  else if (n > FILE_MOST) ok = err_param(e, ERR_INPUT, "api-key-file", "the key file %s is larger than %d MiB", path, FILE_MOST >> 20);
  else ok = add_lines(k, (str){text, n}, path, e);
  if (n) explicit_bzero(text, n);
  free(text);
  fclose(f);
  if (ok) *ret = k;
  else keys_free(k);
  return ok;
}

void keys_free(keys *k) {
  if (!k) return;
  free(k->digest);
  free(k);
}

int keys_count(const keys *k) { return k->n; }

/* Digests are compared, all of them and to their ends, so that time tells nothing about how much of which key was right. */
static bool known(const keys *k, str key) {
  uint8_t d[32];
  unsigned any = 0;
  sha256_once(key.p, key.n, d);
  for (int i = 0; i < k->n; i++) {
    unsigned diff = 0;
    for (int j = 0; j < 32; j++) diff |= (unsigned)(d[j] ^ k->digest[i][j]);
    any |= (diff - 1) >> 31; /* 1 only when diff is 0 */
  }
  return any != 0;
}

static str shown(str authorization, str x_api_key) {
  if (authorization.n > 7 && !strncasecmp(authorization.p, "Bearer ", 7)) return str_trim((str){authorization.p + 7, authorization.n - 7});
  return str_trim(x_api_key);
}

uint64_t keys_tenant(str authorization, str x_api_key) {
  str key = shown(authorization, x_api_key);
  uint8_t d[32];
  uint64_t t;
  sha256_once(key.p, key.n, d);
  memcpy(&t, d, sizeof t);
  return t;
}

bool keys_check(const keys *k, str authorization, str x_api_key, err *e) {
  str key = shown(authorization, x_api_key);
  if (!key.n) return err_set(e, ERR_AUTH, "no API key was sent: use the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
  return known(k, key) || err_set(e, ERR_AUTH, "the API key is not known to this server");
}
