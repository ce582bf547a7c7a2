#include "base/log.h"
#include "base/buf.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static _Atomic int min_level = LOG_INFO;
static _Atomic int as_json = 0;
static const char *const names[] = {"debug", "info", "warn", "error"};

void log_setup(log_level min, bool json) {
  atomic_store(&min_level, (int)min);
  atomic_store(&as_json, json);
}

bool log_on(log_level l) { return (int)l >= atomic_load(&min_level); }

static bool plain(str s) {
  if (s.n == 0) return false;
  for (size_t i = 0; i < s.n; i++)
    if ((unsigned char)s.p[i] <= ' ' || s.p[i] == '"' || s.p[i] == '=' || s.p[i] == '\\' || (unsigned char)s.p[i] >= 0x7f) return false;
  return true;
}

static void quoted(buf *b, str s) {
  buf_putc(b, '"');
  buf_json(b, s);
  buf_putc(b, '"');
}

void log_write(log_level l, const char *event, const log_kv *kv, int n_kv) {
  if (!log_on(l) || l >= LOG_OFF) return;
  bool json = atomic_load(&as_json);
  buf b;
  buf_init(&b, 16384);
  struct timespec ts;
  struct tm tm;
  clock_gettime(CLOCK_REALTIME, &ts);
  gmtime_r(&ts.tv_sec, &tm);
  char when[40];
  size_t w = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
  snprintf(when + w, sizeof when - w, ".%03ldZ", ts.tv_nsec / 1000000);
  if (json) buf_printf(&b, "{\"ts\":\"%s\",\"level\":\"%s\",\"msg\":", when, names[l]);
  else buf_printf(&b, "ts=%s level=%s msg=", when, names[l]);
  if (!json && plain(str_c(event))) buf_puts(&b, event);
  else quoted(&b, str_c(event));
  for (int i = 0; i < n_kv; i++) {
    if (!kv[i].k) continue;
    if (json) buf_printf(&b, ",\"%s\":", kv[i].k);
    else buf_printf(&b, " %s=", kv[i].k);
    if (kv[i].t == 'i') buf_printf(&b, "%lld", (long long)kv[i].v.i);
    else if (kv[i].t == 'f' && isfinite(kv[i].v.f)) buf_printf(&b, "%.6g", kv[i].v.f);
    else if (kv[i].t == 'f') buf_puts(&b, "null");
    else if (!json && plain(kv[i].v.s)) buf_str(&b, kv[i].v.s);
    else quoted(&b, kv[i].v.s);
  }
  buf_puts(&b, json ? "}\n" : "\n");
  if (b.n && !b.failed) {
    ssize_t r = write(2, b.p, b.n);
    (void)r;
  }
  buf_fini(&b);
}
