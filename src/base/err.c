#include "base/err.h"
#include "base/str.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const err_info table[ERR_COUNT] = {
    [ERR_NONE] = {"none", 200, NULL, NULL, NULL, 0},
    [ERR_USAGE] = {"usage", 400, "invalid_request_error", NULL, "invalid_request_error", 2},
    [ERR_INPUT] = {"input", 400, "invalid_request_error", NULL, "invalid_request_error", 3},
    [ERR_CONTEXT] = {"context", 400, "invalid_request_error", "context_length_exceeded", "invalid_request_error", 3},
    [ERR_UNSUPPORTED] = {"unsupported", 400, "invalid_request_error", "unsupported_value", "invalid_request_error", 3},
    [ERR_AUTH] = {"auth", 401, "authentication_error", "invalid_api_key", "authentication_error", 1},
    [ERR_NOT_FOUND] = {"not_found", 404, "invalid_request_error", "not_found", "not_found_error", 3},
    [ERR_METHOD] = {"method", 405, "invalid_request_error", "method_not_allowed", "invalid_request_error", 1},
    [ERR_TOO_LARGE] = {"too_large", 413, "invalid_request_error", "too_large", "request_too_large", 3},
    [ERR_LIMIT] = {"limit", 429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", 1},
    [ERR_BUSY] = {"busy", 503, "server_error", "overloaded", "overloaded_error", 1},
    [ERR_TIMEOUT] = {"timeout", 408, "timeout_error", "timeout", "timeout_error", 4},
    [ERR_CANCELLED] = {"cancelled", 499, "cancelled", "cancelled", "api_error", 130},
    [ERR_IO] = {"io", 500, "server_error", NULL, "api_error", 1},
    [ERR_NET] = {"net", 502, "server_error", "upstream_error", "api_error", 4},
    [ERR_NOMEM] = {"nomem", 503, "server_error", "out_of_memory", "overloaded_error", 1},
    [ERR_INTERNAL] = {"internal", 500, "server_error", "internal_error", "api_error", 1},
};

const err_info *err_lookup(err_code code) { return &table[(unsigned)code < ERR_COUNT ? code : ERR_INTERNAL]; }

/* Messages quote what strangers wrote, cut where a format or the room says: what is left of a code point is no UTF-8 either. */
static void scrub(char *s) {
  uint32_t cp;
  for (size_t n = strlen(s), i = 0, k; i < n; i += k) {
    k = (unsigned char)s[i] < 0x80 ? 1 : (size_t)utf8_decode(s + i, n - i, &cp);
    bool odd = !k || (unsigned char)s[i] < 0x20 || s[i] == 0x7f;
    if (!k) k = 1;
    if (odd) s[i] = s[i] == '\n' || s[i] == '\t' ? ' ' : '?';
  }
}

static bool fill(err *e, err_code code, const char *param, const char *fmt, va_list ap) {
  if (!e) return false;
  e->code = code;
  snprintf(e->param, sizeof e->param, "%s", param ? param : "");
  vsnprintf(e->msg, sizeof e->msg, fmt, ap);
  scrub(e->param);
  scrub(e->msg);
  return false;
}

bool err_set(err *e, err_code code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fill(e, code, NULL, fmt, ap);
  va_end(ap);
  return false;
}

bool err_param(err *e, err_code code, const char *param, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fill(e, code, param, fmt, ap);
  va_end(ap);
  return false;
}

bool err_prefix(err *e, const char *fmt, ...) {
  if (!e) return false;
  char head[sizeof e->msg], tail[sizeof e->msg];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(head, sizeof head, fmt, ap);
  va_end(ap);
  memcpy(tail, e->msg, sizeof tail);
  int n = snprintf(e->msg, sizeof e->msg, "%.250s: ", head);
  snprintf(e->msg + n, sizeof e->msg - (size_t)n, "%s", tail);
  scrub(e->msg);
  return false;
}

bool err_errno(err *e, int errnum, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fill(e, errnum == ENOENT ? ERR_NOT_FOUND : errnum == ENOMEM ? ERR_NOMEM : ERR_IO, NULL, fmt, ap);
  va_end(ap);
  if (e) {
    size_t n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(errnum));
  }
  return false;
}

void err_clear(err *e) {
  if (e) {
    e->code = ERR_NONE;
    e->param[0] = e->msg[0] = 0;
  }
}
