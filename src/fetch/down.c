#include "base/clock.h"
#include "fetch/job.h"
#include <curl/curl.h>
#include <stdlib.h>

/* Blocking downloads through libcurl's easy interface: a pull is one transfer at a time and has no loop to share. */

enum { CONNECT_MS = 5000, STALL_S = 30, RETRIES = 5, ERROR_BODY = 300 };

typedef struct transfer {
  job *j;
  CURL *h;
  part *p;    /* a file, or */
  char *text; /* a document of at most max bytes */
  size_t text_n, max;
  uint64_t from;       /* where the file stood when asked */
  int64_t range_start; /* of Content-Range, -1: none */
  char etag[256], linked[80];
  bool body; /* the first byte of a 2xx body has been seen */
  err *e;    /* filled by a callback that aborted the transfer */
  err own;
} transfer;

static bool header_is(const char *line, size_t n, const char *name, const char **ret, size_t *ret_n) {
  size_t k = strlen(name);
  if (n <= k || strncasecmp(line, name, k) != 0 || line[k] != ':') return false;
  str v = str_trim((str){line + k + 1, n - k - 1});
  *ret = v.p;
  *ret_n = v.n;
  return true;
}

static size_t on_header(char *line, size_t one, size_t n, void *arg) {
  transfer *t = arg;
  const char *v;
  size_t len;
  (void)one;
  if (n > 5 && strncmp(line, "HTTP/", 5) == 0) {
    t->range_start = -1;
    t->etag[0] = 0;
  } /* the next answer of a chain of redirects */
  if (header_is(line, n, "etag", &v, &len) && len < sizeof t->etag) snprintf(t->etag, sizeof t->etag, "%.*s", (int)len, v);
  if (header_is(line, n, "x-linked-etag", &v, &len) && len < sizeof t->linked) snprintf(t->linked, sizeof t->linked, "%.*s", (int)len, v);
  if (header_is(line, n, "content-range", &v, &len) && len > 6 && len < 100) {
    char b[104];
    snprintf(b, sizeof b, "%.*s", (int)len, v);
    long long start;
    if (sscanf(b, "bytes %lld-", &start) == 1) t->range_start = start;
  }
  return n;
}

/* The model hub tells the SHA-256 of a large file with the redirect that leads to it. */
static void learn_hash(transfer *t) {
  char *s = t->linked + (t->linked[0] == '"');
  size_t n = strcspn(s, "\"");
  if (t->p->sha256[0] || n != 64 || strspn(s, "0123456789abcdef") < 64) return;
  memcpy(t->p->sha256, s, 64);
  t->p->sha256[64] = 0;
}

static bool first_bytes(transfer *t, long status) {
  part *p = t->p;
  curl_off_t len = -1;
  curl_easy_getinfo(t->h, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &len);
  if (status == 206 && t->range_start != (int64_t)t->from) return err_set(t->e, ERR_NET, "it answered with another range than the one asked for");
  if (status != 206 && p->n && !part_cut(p, 0, t->e)) return false; /* it cannot resume, or the file changed: from the start */
  if (len >= 0) {
    uint64_t total = p->n + (uint64_t)len;
    if (p->expect && total != p->expect)
      return err_set(t->e, ERR_INPUT, "it offers %llu bytes where %llu are expected", (unsigned long long)total, (unsigned long long)p->expect);
    if (!p->expect) {
      p->expect = total;
      if (!part_room(p, t->e)) return false;
    }
  }
  learn_hash(t);
  return !t->etag[0] || strncmp(t->etag, "W/", 2) == 0 || part_note(p, "etag", json_string(t->etag), t->e);
}

static size_t on_body(char *b, size_t one, size_t n, void *arg) {
  transfer *t = arg;
  long status = 0;
  (void)one;
  curl_easy_getinfo(t->h, CURLINFO_RESPONSE_CODE, &status);
  if (status >= 300 || status < 200) return n; /* an error page: the status says enough */
  if (!t->p) {
    if (n > t->max - t->text_n) {
      err_set(t->e, ERR_TOO_LARGE, "the answer is larger than %zu bytes", t->max);
      return 0;
    }
    memcpy(t->text + t->text_n, b, n);
    t->text_n += n;
    return n;
  }
  if (!t->body && !first_bytes(t, status)) return 0;
  t->body = true;
  return part_write(t->p, b, n, t->e) ? n : 0;
}

static int on_tick(void *arg, curl_off_t total, curl_off_t now, curl_off_t ut, curl_off_t un) {
  transfer *t = arg;
  (void)total;
  (void)now;
  (void)ut;
  (void)un;
  if (t->p && t->body) job_progress(t->j, t->p->n, t->p->expect, false);
  return job_cancelled(t->j, t->e) ? 0 : 1;
}

static struct curl_slist *headers(transfer *t, const char *bearer) {
  struct curl_slist *l = NULL;
  char b[1200];
  if (bearer && snprintf(b, sizeof b, "Authorization: Bearer %s", bearer) < (int)sizeof b)
    l = curl_slist_append(l, b); /* libcurl keeps it off other hosts */
  str etag = {0};
  /* Where the hash is known it is the better judge: mirrors of one file have tags of their own. */
  if (t->p && t->p->n && !t->p->sha256[0] && json_get_str(t->p->note, "", "etag", &etag, NULL) && etag.n && etag.n < 256) {
    snprintf(b, sizeof b, "If-Range: %.*s", (int)etag.n, etag.p);
    l = curl_slist_append(l, b);
  }
  return l;
}

static void options(transfer *t, const char *url, char *curl_msg) {
  CURL *h = t->h;
  bool tls = strncasecmp(url, "https:", 6) == 0;
  curl_easy_setopt(h, CURLOPT_URL, url);
  curl_easy_setopt(h, CURLOPT_ERRORBUFFER, curl_msg);
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https"); /* never from TLS to plain text */
  curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(h, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
  curl_easy_setopt(h, CURLOPT_USERAGENT, "weir/" WEIR_VERSION);
  curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
  curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_tick);
  curl_easy_setopt(h, CURLOPT_XFERINFODATA, t);
  char range[32];
  snprintf(range, sizeof range, "%llu-", t->p ? (unsigned long long)t->p->n : 0ull);
  if (t->p && t->p->n) curl_easy_setopt(h, CURLOPT_RANGE, range); /* not RESUME_FROM, which makes a plain 200 an error */
}

static bool status_ok(long status, err *e) {
  if (status >= 200 && status < 300) return true;
  if (status == 401 || status == 403) return err_set(e, ERR_AUTH, "it answered %ld: access refused", status);
  if (status == 404 || status == 410) return err_set(e, ERR_NOT_FOUND, "it answered %ld: not there", status);
  return err_set(e, ERR_NET, "it answered %ld", status);
}

/* One request. False with *e; a transfer that broke off on the way is ERR_NET with status 200 or 206. */
static bool once(transfer *t, const char *url, const char *bearer, long *ret_status, err *e) {
  char msg[CURL_ERROR_SIZE] = "";
  t->h = curl_easy_init();
  if (!t->h) return err_set(e, ERR_INTERNAL, "libcurl cannot be used");
  t->own = (err){0};
  t->e = &t->own;
  t->body = false;
  t->range_start = -1;
  t->from = t->p ? t->p->n : 0;
  struct curl_slist *l = headers(t, bearer);
  options(t, url, msg);
  curl_easy_setopt(t->h, CURLOPT_HTTPHEADER, l);
  CURLcode rc = curl_easy_perform(t->h);
  *ret_status = 0;
  curl_easy_getinfo(t->h, CURLINFO_RESPONSE_CODE, ret_status);
  curl_slist_free_all(l);
  bool ok = false;
  if (t->own.code) {
    if (e) *e = t->own;
  } else if (rc != CURLE_OK && *ret_status != 416) err_set(e, ERR_NET, "%s", msg[0] ? msg : curl_easy_strerror(rc));
  else ok = status_ok(*ret_status, e);
  curl_easy_cleanup(t->h);
  return ok;
}

/* Whole already: an empty rest is answered 416 by servers that are strict about ranges. */
static bool nothing_left(part *p, long status) { return status == 416 && p->expect && p->n == p->expect; }

bool down_file(job *j, const char *url, const char *bearer, part *p, long *ret_status, err *e) {
  if (p->expect && p->n == p->expect && p->resumed) return true;
  str etag = {0};
  json_get_str(p->note, "", "etag", &etag, NULL);
  if (p->n && !p->sha256[0] && !etag.n && !part_cut(p, 0, e)) return false; /* nothing could tell whether the rest belongs to these bytes */
  for (int tries = 0;; tries++) {
    transfer t = {.j = j, .p = p};
    uint64_t before = p->n;
    if (once(&t, url, bearer, ret_status, e)) break;
    if (nothing_left(p, *ret_status)) break;
    if (*ret_status == 416 && p->n) { /* what is here is not a beginning of that file */
      if (!part_cut(p, 0, e) || tries >= RETRIES) return false;
      continue;
    }
    bool broke = e && e->code == ERR_NET && (*ret_status == 200 || *ret_status == 206);
    if (!broke || tries >= RETRIES || p->n <= before) return false;
    job_note(j, "the connection broke after %llu bytes (%s): going on from there", (unsigned long long)p->n, e->msg);
    err_clear(e);
  }
  job_progress(j, p->n, p->expect, false);
  return true;
}

bool down_text(job *j, const char *url, const char *bearer, size_t max, char **ret, size_t *ret_n, long *ret_status, err *e) {
  transfer t = {.j = j, .max = max, .text = malloc(max + 1)};
  if (!t.text) return err_set(e, ERR_NOMEM, "out of memory");
  if (!once(&t, url, bearer, ret_status, e)) {
    free(t.text);
    return false;
  }
  t.text[t.text_n] = 0;
  *ret = t.text;
  *ret_n = t.text_n;
  return true;
}
