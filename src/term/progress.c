#include "term/progress.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PLAIN_NS_S = 5 }; /* off a terminal: a line every 5 s or 10 % */

void progress_init(progress *p) {
  memset(p, 0, sizeof *p);
  const char *term = getenv("TERM");
  struct winsize w;
  p->tty = isatty(2) && term && strcmp(term, "dumb") != 0;
  p->width = ioctl(2, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : 80;
}

void progress_bytes(uint64_t n, char out[16]) {
  static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double v = (double)n;
  int u = 0;
  while (v >= 999.5 && u < 6) {
    v /= 1000;
    u++;
  }
  snprintf(out, 16, u && v < 99.95 ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

static void begin(progress *p, const char *what, uint64_t done) {
  snprintf(p->what, sizeof p->what, "%s", what);
  p->start_ns = clock_now();
  p->start = done;
  p->last_pct = 0;
  p->last_ns = 0;
}

/* "98.4 MB of 491 MB, 12.3 MB/s, 32 s left" */
static void numbers(const progress *p, uint64_t done, uint64_t total, int part, int parts, bool finished, char *b, size_t n) {
  char have[16], all[16], rate[16];
  double s = (double)(clock_now() - p->start_ns) / 1e9, per_s = s > 0.2 && done > p->start ? (double)(done - p->start) / s : 0;
  progress_bytes(done, have);
  progress_bytes(total, all);
  progress_bytes((uint64_t)per_s, rate);
  int k = finished || !total ? snprintf(b, n, "%s", have) : snprintf(b, n, "%s of %s", have, all);
  if (parts) k += snprintf(b + k, n - (size_t)k, ", part %d of %d", part, parts);
  if (per_s > 0) k += snprintf(b + k, n - (size_t)k, ", %s/s", rate);
  if (per_s > 0 && !finished && total > done) {
    double left = (double)(total - done) / per_s;
    if (left < 100) snprintf(b + k, n - (size_t)k, ", %.0f s left", left);
    else snprintf(b + k, n - (size_t)k, ", %.0f min left", left / 60);
  }
}

static void draw(progress *p, const char *text, uint64_t done, uint64_t total) {
  int room = p->width - 1 - (int)strlen(text) - 3, name = (int)strlen(p->what);
  if (name > 32) name = 32;
  int bar = room - name - 1;
  if (bar > 30) bar = 30;
  fprintf(stderr, "\r\033[K%.*s ", name, p->what);
  if (bar >= 8 && total) {
    int full = (int)((double)done / (double)total * bar);
    fputc('[', stderr);
    for (int i = 0; i < bar; i++) fputc(i < full ? '#' : '.', stderr);
    fputs("] ", stderr);
  }
  fprintf(stderr, "%.*s", p->width > name + 4 ? p->width - name - 2 : 1, text);
  p->drawn = true;
}

void progress_show(progress *p, const char *what, uint64_t done, uint64_t total, int part, int parts, bool finished) {
  char text[160];
  int64_t now = clock_now();
  if (strcmp(p->what, what) != 0) {
    progress_end(p);
    begin(p, what, done);
  }
  numbers(p, done, total, part, parts, finished, text, sizeof text);
  if (p->tty) {
    draw(p, text, done, total);
    if (finished) progress_end(p);
    return;
  }
  uint64_t pct = total ? (uint64_t)((double)done / (double)total * 10) : 0;
  if (!finished && pct <= p->last_pct && now - p->last_ns < (int64_t)PLAIN_NS_S * 1000000000) return;
  p->last_pct = pct;
  p->last_ns = now;
  fprintf(stderr, "%s: %s%s\n", p->what, text, finished ? ", done" : "");
}

void progress_line(progress *p, const char *text) {
  if (p->drawn) fputs("\r\033[K", stderr);
  p->drawn = false;
  fprintf(stderr, "%s\n", text);
}

void progress_end(progress *p) {
  if (p->drawn) fputc('\n', stderr);
  p->drawn = false;
}
