#include "load/stats.h"
#include <math.h>
#include <stdlib.h>

void stats_fini(stats *s) {
  free(s->v);
  *s = (stats){0};
}

bool stats_add(stats *s, double x) {
  if (s->n == s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 256;
    double *v = realloc(s->v, cap * sizeof *v);
    if (!v) { s->lost++; return false; }
    s->v = v;
    s->cap = cap;
  }
  s->v[s->n++] = x;
  s->sorted = false;
  return true;
}

double stats_mean(const stats *s) {
  if (!s->n) return NAN;
  double sum = 0;
  for (size_t i = 0; i < s->n; i++) sum += s->v[i];
  return sum / (double)s->n;
}

double stats_std(const stats *s) {
  if (!s->n) return NAN;
  double m = stats_mean(s), q = 0;
  for (size_t i = 0; i < s->n; i++) q += (s->v[i] - m) * (s->v[i] - m);
  return sqrt(q / (double)s->n);
}

static int cmp(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void sort(stats *s) {
  if (!s->sorted) qsort(s->v, s->n, sizeof *s->v, cmp);
  s->sorted = true;
}

double stats_max(stats *s) {
  if (!s->n) return NAN;
  sort(s);
  return s->v[s->n - 1];
}

double stats_pct(stats *s, double p) {
  if (!s->n) return NAN;
  sort(s);
  double at = p / 100 * (double)(s->n - 1);
  size_t i = (size_t)at;
  double f = at - (double)i;
  return i + 1 < s->n ? s->v[i] + f * (s->v[i + 1] - s->v[i]) : s->v[s->n - 1];
}

bool stats_pct_ok(const stats *s, double p) { return s->n > 0 && (p <= 50 || (double)s->n * (100 - p) >= 100 - 1e-9); }

bool stats_pct_interval(stats *s, double p, double *lo, double *hi) {
  double n = (double)s->n, q = p / 100, half = 1.959964 * sqrt(n * q * (1 - q));
  double l = floor(n * q - half), h = ceil(n * q + half) + 1;
  if (s->n == 0 || l < 1 || h > n) return false;
  sort(s);
  *lo = s->v[(size_t)l - 1];
  *hi = s->v[(size_t)h - 1];
  return true;
}
