#include "engine/sample.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool sampler_work_init(sampler_work *w, int vocab, int ctx) {
  *w = (sampler_work){.vocab = vocab, .dry_cap = ctx};
  w->logits = malloc((size_t)vocab * sizeof *w->logits);
  w->cand = malloc((size_t)vocab * sizeof *w->cand);
  w->prob = malloc((size_t)vocab * sizeof *w->prob);
  w->dry = malloc((size_t)ctx * sizeof *w->dry);
  if (w->logits && w->cand && w->prob && w->dry) return true;
  sampler_work_fini(w);
  return false;
}

void sampler_work_fini(sampler_work *w) {
  free(w->logits);
  free(w->cand);
  free(w->prob);
  free(w->dry);
  memset(w, 0, sizeof *w);
}

/* ---- bias and penalties: they change logits of few tokens ---- */

static bool changes_logits(const sample_in *in) {
  const eng_sampling *s = in->s;
  return s->n_bias || in->n_ban || s->presence != 0 || s->frequency != 0 || s->repetition != 1 || s->dry_multiplier > 0;
}

/* Presence and frequency count what was generated (OpenAI); repetition looks at prompt and output (Keskar et al. 2019, as HF transformers has it). Each
 * distinct token is changed once: history is walked with a table of counts in `cand` (its ids are not in use yet). */
static void penalties(sampler_work *w, const sample_in *in) {
  const eng_sampling *s = in->s;
  if (s->presence == 0 && s->frequency == 0 && s->repetition == 1) return;
  for (int i = 0; i < in->n_history; i++) w->cand[in->history[i]] = (sample_cand){-1, 0};
  for (int i = in->n_prompt; i < in->n_history; i++) w->cand[in->history[i]].v += 1;
  for (int i = 0; i < in->n_history; i++) {
    int32_t t = in->history[i];
    if (w->cand[t].id == 0) continue; /* done */
    float *l = &w->logits[t], n = w->cand[t].v;
    if (s->repetition != 1) *l = *l > 0 ? *l / s->repetition : *l * s->repetition;
    if (n > 0) *l -= s->presence + s->frequency * n;
    w->cand[t].id = 0;
  }
}

/* DRY ("don't repeat yourself", p-e-w 2024): a token that would prolong a repetition of length n >= allowed loses multiplier * base^(n - allowed).
 * Lengths of the matches between every earlier place and the end of the history by the Z-algorithm on the reversed history: linear. */
static void dry(sampler_work *w, const sample_in *in) {
  const eng_sampling *s = in->s;
  if (s->dry_multiplier <= 0) return;
  int last = s->dry_last_n < 0 || s->dry_last_n > in->n_history ? in->n_history : s->dry_last_n;
  if (last > w->dry_cap) last = w->dry_cap;
  if (last < 2) return;
  const int32_t *end = in->history + in->n_history - 1;    /* reversed sequence: end[-i] */
  int limit = 0;                                            /* a match may not reach over a breaker */
  while (limit < last && !(in->breaker && in->breaker[in->n_history - 1 - limit])) limit++;
  int32_t *z = w->dry;
  for (int i = 1, l = 0, r = 0; i < last; i++) {
    int k = i < r && z[i - l] < r - i ? z[i - l] : i < r ? r - i : 0;
    while (i + k < last && end[-k] == end[-(i + k)]) k++;
    z[i] = k;
    if (i + k > r) l = i, r = i + k;
  }
  /* Longest repetition each candidate would prolong: the token after the earlier occurrence. Longest wins, so apply only the largest per token. */
  for (int i = 1; i < last; i++) w->cand[end[-(i - 1)]].v = 0;
  for (int i = 1; i < last; i++) {
    float len = (float)(z[i] < limit ? z[i] : limit);
    if (len > w->cand[end[-(i - 1)]].v) w->cand[end[-(i - 1)]].v = len;
  }
  for (int i = 1; i < last; i++) {
    sample_cand *c = &w->cand[end[-(i - 1)]];
    if (c->v >= (float)s->dry_allowed_length && c->v > 0)
      w->logits[end[-(i - 1)]] -= s->dry_multiplier * powf(s->dry_base, fminf(c->v - (float)s->dry_allowed_length, 200));
    c->v = 0;
  }
}

static const float *changed(sampler_work *w, const sample_in *in) {
  if (!changes_logits(in)) return in->logits;
  memcpy(w->logits, in->logits, (size_t)in->vocab * sizeof *w->logits);
  for (int i = 0; i < in->s->n_bias; i++)
    if (in->s->bias[i].token >= 0 && in->s->bias[i].token < in->vocab) w->logits[in->s->bias[i].token] += in->s->bias[i].bias;
  penalties(w, in);
  dry(w, in);
  for (int i = 0; i < in->n_ban; i++) w->logits[in->ban[i]] = -INFINITY;
  return w->logits;
}

/* ---- noise ---- */

static void noise4(const sample_in *in, uint32_t group, uint32_t u[4]) {
  uint32_t c[4] = {group, (uint32_t)in->position, (uint32_t)in->choice, (uint32_t)((uint64_t)in->position >> 32)};
  uint32_t k[2] = {(uint32_t)in->s->seed, (uint32_t)(in->s->seed >> 32)};
  philox4x32(c, k, u);
}

static double gumbel(uint32_t x) { return -log(-log(rng_unit(x))); }

double sample_gumbel(uint64_t seed, int choice, int64_t position, int32_t token) {
  eng_sampling s = {.seed = seed};
  sample_in in = {.s = &s, .choice = choice, .position = position};
  uint32_t u[4];
  noise4(&in, (uint32_t)token / 4, u);
  return gumbel(u[token % 4]);
}

/* Largest noise there is: u = 1 - 2^-33. A token that is further than this behind the best so far cannot win. */
#define GUMBEL_MAX 22.874

/* argmax over v/T + noise, whole vocabulary. -log(u) >= 1 - u, so g <= -log(1 - u) < (leading ones of x + 1) * ln 2: one count of leading zeros rules
 * nearly every token out before a logarithm is taken, and changes no result. */
static int32_t argmax_all(const sample_in *in, const float *l, float inv_t, float max, int at) {
  uint32_t u[4];
  noise4(in, (uint32_t)at / 4, u);
  int32_t best = at;
  double score = (double)(max * inv_t) + gumbel(u[at % 4]);
  for (int i = 0; i < in->vocab; i += 4) {
    int n = in->vocab - i < 4 ? in->vocab - i : 4;
    float top = l[i];
    for (int j = 1; j < n; j++) top = l[i + j] > top ? l[i + j] : top;
    if (!((double)(top * inv_t) + GUMBEL_MAX >= score)) continue;
    noise4(in, (uint32_t)i / 4, u);
    for (int j = 0; j < n; j++) {
      double v = (double)(l[i + j] * inv_t);
      int lz = ~u[j] ? __builtin_clz(~u[j]) : 32;
      if (!(v + (lz + 2) * 0.6931472 >= score)) continue;
      double sc = v + gumbel(u[j]);
      if (sc > score || (sc == score && i + j < best)) score = sc, best = i + j;
    }
  }
  return best;
}

static int32_t argmax_cands(const sample_in *in, const sample_cand *c, int n) {
  int32_t best = c[0].id;
  double score = -INFINITY;
  for (int i = 0; i < n; i++) {
    uint32_t u[4];
    noise4(in, (uint32_t)c[i].id / 4, u);
    double sc = (double)c[i].v + gumbel(u[c[i].id % 4]);
    if (sc > score || (sc == score && c[i].id < best)) score = sc, best = c[i].id;
  }
  return best;
}

/* ---- truncation: candidates are (id, logit / T) ---- */

static int by_value(const void *a, const void *b) {
  const sample_cand *x = a, *y = b;
  if (x->v != y->v) return x->v < y->v ? 1 : -1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* Candidates whose scaled logit is at least `floor`; NaN never is. */
static int gather(sampler_work *w, const float *l, int vocab, float inv_t, float floor) {
  int n = 0;
  for (int i = 0; i < vocab; i++) {
    float v = l[i] * inv_t;
    if (v >= floor) w->cand[n++] = (sample_cand){i, v};
  }
  return n;
}

/* The k best, sorted: the gathering band below the maximum is widened until it holds k. */
static int keep_top_k(sampler_work *w, const float *l, int vocab, float inv_t, float max, int k) {
  int n = 0;
  for (float band = 8;; band *= 2) {
    n = gather(w, l, vocab, inv_t, band > 1000 ? -INFINITY : max - band);
    if (n >= k || band > 1000) break;
  }
  qsort(w->cand, (size_t)n, sizeof *w->cand, by_value);
  return n < k ? n : k;
}

/* The smallest head of the sorted distribution whose mass reaches p (nucleus sampling, Holtzman et al. 2020). */
static int keep_top_p(const sample_cand *c, int n, float max, double total, double p) {
  double cum = 0;
  for (int i = 0; i < n; i++) {
    cum += exp((double)c[i].v - (double)max);
    if (cum >= p * total) return i + 1;
  }
  return n;
}

static double mass(const sample_cand *c, int n, float max) {
  double t = 0;
  for (int i = 0; i < n; i++) t += exp((double)c[i].v - (double)max);
  return t;
}

/* Locally typical sampling (Meister et al. 2022): nearest to the entropy first, until their mass reaches p. Result sorted by value again. */
typedef struct typ { double d, p; sample_cand c; } typ;
static int by_distance(const void *a, const void *b) {
  const typ *x = a, *y = b;
  if (x->d != y->d) return x->d < y->d ? -1 : 1;
  return x->c.id < y->c.id ? -1 : x->c.id > y->c.id;
}

static int keep_typical(sample_cand *c, int n, float max, double p) {
  typ *t = malloc((size_t)n * sizeof *t);   /* rare option: paid for only when asked */
  if (!t) return n;
  double total = mass(c, n, max), h = 0, cum = 0;
  for (int i = 0; i < n; i++) {
    t[i].c = c[i];
    t[i].p = exp((double)c[i].v - (double)max) / total;
    if (t[i].p > 0) h -= t[i].p * log(t[i].p);
  }
  for (int i = 0; i < n; i++) t[i].d = t[i].p > 0 ? fabs(-log(t[i].p) - h) : INFINITY;
  qsort(t, (size_t)n, sizeof *t, by_distance);
  int k = 0;
  while (k < n) {
    cum += t[k].p;
    c[k] = t[k].c;
    k++;
    if (cum >= p) break;
  }
  free(t);
  qsort(c, (size_t)k, sizeof *c, by_value);
  return k;
}

/* Truncated candidates, sorted; never empty. */
static int truncate(const kern_ops *ops, sampler_work *w, const sample_in *in, const float *l, float inv_t, float max) {
  const eng_sampling *s = in->s;
  int n;
  bool typical = s->typical_p > 0 && s->typical_p < 1;
  if (s->top_k > 0 && s->top_k < in->vocab) n = keep_top_k(w, l, in->vocab, inv_t, max, s->top_k);
  else if (typical) n = keep_top_k(w, l, in->vocab, inv_t, max, in->vocab);
  else if (s->top_p < 1) {
    /* Mass of the whole vocabulary once, then only as wide a band as the nucleus needs. */
    double total = 0;
    if (inv_t == 1.0f) total = ops->sum_exp(l, in->vocab, max);
    else
      for (int i = 0; i < in->vocab; i++) {
        float d = l[i] * inv_t - max;
        if (d > -40) total += (double)kern_expf(d);
      }
    for (float band = 8;; band *= 2) {
      n = gather(w, l, in->vocab, inv_t, band > 1000 ? -INFINITY : max - band);
      if (band > 1000 || mass(w->cand, n, max) >= (double)s->top_p * total) break;
    }
    qsort(w->cand, (size_t)n, sizeof *w->cand, by_value);
    n = keep_top_p(w->cand, n, max, total, (double)s->top_p);
  } else {
    n = gather(w, l, in->vocab, inv_t, max + logf(s->min_p));
    qsort(w->cand, (size_t)n, sizeof *w->cand, by_value);
  }
  if (typical) n = keep_typical(w->cand, n, max, (double)s->typical_p);
  if (s->top_p < 1 && (typical || s->top_k > 0)) n = keep_top_p(w->cand, n, max, mass(w->cand, n, max), (double)s->top_p);
  if (s->min_p > 0) {
    float floor = w->cand[0].v + logf(s->min_p);
    while (n > 1 && w->cand[n - 1].v < floor) n--;
  }
  return n;
}

int32_t sample_token(const kern_ops *ops, sampler_work *w, const sample_in *in) {
  const eng_sampling *s = in->s;
  const float *l = changed(w, in);
  float max;
  int at;
  ops->max_at(l, in->vocab, &max, &at);
  if (at < 0 || !isfinite(max)) return at < 0 ? 0 : at;
  if (s->temperature <= 0) return at;
  float inv_t = 1.0f / s->temperature;
  if (!isfinite(inv_t) || !isfinite(max * inv_t)) return at;
  bool cut = (s->top_k > 0 && s->top_k < in->vocab) || s->top_p < 1 || s->min_p > 0 || (s->typical_p > 0 && s->typical_p < 1);
  if (!cut) return argmax_all(in, l, inv_t, max, at);
  int n = truncate(ops, w, in, l, inv_t, max * inv_t);
  return n > 0 ? argmax_cands(in, w->cand, n) : at;
}

float sample_logprobs(const kern_ops *ops, const float *logits, int vocab, int32_t token, eng_lp *top, int n_top) {
  float max;
  int at;
  ops->max_at(logits, vocab, &max, &at);
  double lse = log(ops->sum_exp(logits, vocab, max));
  int n = 0;
  for (int i = 0; i < vocab && n_top > 0; i++) {
    if (n == n_top && !(logits[i] > top[n - 1].logprob)) continue;
    int j = n < n_top ? n++ : n - 1;
    while (j > 0 && top[j - 1].logprob < logits[i]) top[j] = top[j - 1], j--;
    top[j] = (eng_lp){i, logits[i]};
  }
  for (int i = 0; i < n; i++) top[i].logprob = (float)((double)top[i].logprob - (double)max - lse);
  return (float)((double)logits[token] - (double)max - lse);
}
