#include "load/stats.h"
#include <math.h>
#include <stdlib.h>

enum { EXACT = 20000 }; /* samples up to which the binomial's ranks are summed; beyond, the normal approximation is off by less than a rank */

void stats_fini(stats *s) {
  free(s->v);
  *s = (stats){0};
}

bool stats_add(stats *s, double x) {
  if (s->n == s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 256;
    double *v = realloc(s->v, cap * sizeof *v);
    if (!v) {
      s->lost++;
      return false;
    }
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

double stats_pct(stats *s, double p) {
  if (!s->n) return NAN;
  sort(s);
  double at = p / 100 * (double)(s->n - 1);
  size_t i = (size_t)at;
  double f = at - (double)i;
  return i + 1 < s->n ? s->v[i] + f * (s->v[i + 1] - s->v[i]) : s->v[s->n - 1];
}

bool stats_pct_ok(const stats *s, double p) { return s->n > 0 && (double)s->n * (100 - p) >= 100 - 1e-9; }

/* Ranks [lo, hi], 1-based, with P(lo <= B < hi) >= 95 % for B ~ Binomial(n, q): the number of samples below the true percentile. */
static void ranks_exact(size_t n, double q, size_t *lo, size_t *hi) {
  double below = 0, upto = 0, ln_n = lgamma((double)n + 1), ln_q = log(q), ln_r = log1p(-q);
  *lo = 0;
  *hi = n + 1;
  for (size_t k = 0; k <= n; k++) {
    below = upto; /* P(B < k) */
    upto += exp(ln_n - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) + (double)k * ln_q + (double)(n - k) * ln_r);
    if (below <= 0.025) *lo = k;
    if (upto >= 0.975) {
      *hi = k + 1;
      return;
    }
  }
}

static void ranks_normal(size_t n, double q, size_t *lo, size_t *hi) {
  double mid = (double)n * q, half = 1.959964 * sqrt((double)n * q * (1 - q));
  *lo = (size_t)floor(mid - half);
  *hi = (size_t)ceil(mid + half) + 1;
}

bool stats_pct_interval(stats *s, double p, double *lo, double *hi) {
  size_t l, h;
  if (!s->n) return false;
  if (s->n <= EXACT) ranks_exact(s->n, p / 100, &l, &h);
  else ranks_normal(s->n, p / 100, &l, &h);
  if (l < 1 || h > s->n) return false;
  sort(s);
  *lo = s->v[l - 1];
  *hi = s->v[h - 1];
  return true;
}
