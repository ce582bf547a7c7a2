#include "engine/sample.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool sampler_work_init(sampler_work *w, int vocab, int ctx) {
  *w = (sampler_work){.dry_cap = ctx};
  w->logits = malloc((size_t)vocab * sizeof *w->logits);
  w->cand = malloc((size_t)vocab * sizeof *w->cand);
  w->dry = malloc((size_t)ctx * sizeof *w->dry);
  if (w->logits && w->cand && w->dry) return true;
  sampler_work_fini(w);
  return false;
}

void sampler_work_fini(sampler_work *w) {
  free(w->logits);
  free(w->cand);
  free(w->dry);
  memset(w, 0, sizeof *w);
}

/* ---- bias and penalties: they change logits of few tokens ---- */

static bool changes_logits(const sample_in *in) {
  const eng_sampling *s = in->s;
  return s->n_bias || in->n_ban || s->presence != 0 || s->frequency != 0 || s->repetition != 1 || s->dry_multiplier > 0;
}

/* Presence and frequency count what was generated (OpenAI); repetition looks at prompt and output (Keskar et al. 2019, as HF transformers has it).
 * Each distinct token is changed once: history is walked with a table of counts in `cand` (its ids are not in use yet). */
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
 * Lengths of the matches between every earlier place and the end of the history by the Z-algorithm on the reversed history: linear. A breaker ends a
 * match and is itself never penalised. */
static void dry(sampler_work *w, const sample_in *in) {
  const eng_sampling *s = in->s;
  if (s->dry_multiplier <= 0) return;
  int last = s->dry_last_n < 0 || s->dry_last_n > in->n_history ? in->n_history : s->dry_last_n;
  if (last > w->dry_cap) last = w->dry_cap;
  if (last < 2) return;
  const int32_t *end = in->history + in->n_history - 1; /* reversed sequence: end[-i] */
  int limit = 0;                                        /* a match may not reach over a breaker */
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
    if (in->breaker && in->breaker[in->n_history - i]) continue;
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
    float top = -INFINITY; /* not l[0], which may be NaN */
    for (int j = 0; j < n; j++) top = l[i + j] > top ? l[i + j] : top;
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

static bool better(sample_cand a, sample_cand b) { return a.v > b.v || (a.v == b.v && a.id < b.id); }

/* Candidates as a heap, the best at c[0]: a step may take no memory (qsort does), and few candidates are ever asked for in order. */
static void sift_down(sample_cand *c, int n, int i) {
  sample_cand x = c[i];
  for (int k; (k = 2 * i + 1) < n; i = k) {
    if (k + 1 < n && better(c[k + 1], c[k])) k++;
    if (!better(c[k], x)) break;
    c[i] = c[k];
  }
  c[i] = x;
}

static void heap_make(sample_cand *c, int n) {
  for (int i = n / 2 - 1; i >= 0; i--) sift_down(c, n, i);
}

/* Moves the best of a heap of n to c[n - 1]: after k pops the k best stand at the end of the array, the very best last. */
static void heap_pop(sample_cand *c, int n) {
  sample_cand best = c[0];
  c[0] = c[n - 1];
  sift_down(c, n - 1, 0);
  c[n - 1] = best;
}

/* c[from..to) to the front, turned round: best first. */
static int to_front(sample_cand *c, int from, int to) {
  int n = to - from;
  memmove(c, c + from, (size_t)n * sizeof *c);
  for (int i = 0, j = n - 1; i < j; i++, j--) {
    sample_cand x = c[i];
    c[i] = c[j];
    c[j] = x;
  }
  return n;
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

static double mass(const sample_cand *c, int n, float max) {
  double t = 0;
  for (int i = 0; i < n; i++) t += exp((double)c[i].v - (double)max);
  return t;
}

/* A band below the maximum is gathered and widened until it holds what is looked for; past the last width it is the whole vocabulary. */
enum { BAND_FIRST = 8, BAND_LAST = 1000 };
static float band_floor(float max, float band) { return band > BAND_LAST ? -INFINITY : max - band; }

static int keep_top_k(sampler_work *w, const float *l, int vocab, float inv_t, float max, int k) {
  int n = 0;
  for (float band = BAND_FIRST;; band *= 2) {
    n = gather(w, l, vocab, inv_t, band_floor(max, band));
    if (n >= k || band > BAND_LAST) break;
  }
  if (k > n) k = n;
  heap_make(w->cand, n);
  for (int i = 0; i < k; i++) heap_pop(w->cand, n - i);
  return to_front(w->cand, n - k, n);
}

/* The fewest of the best whose mass reaches p * total (nucleus sampling, Holtzman et al. 2020). */
static int keep_top_p(sample_cand *c, int n, float max, double total, double p) {
  double cum = 0;
  int left = n;
  heap_make(c, n);
  while (left > 0) {
    heap_pop(c, left--);
    cum += exp((double)c[left].v - (double)max);
    if (cum >= p * total) break;
  }
  return to_front(c, left, n);
}

/* top_p over the whole vocabulary: its mass once, then only as wide a band as the nucleus needs. */
static int nucleus(const kern_ops *ops, sampler_work *w, const float *l, int vocab, float inv_t, float max, double p) {
  double total = inv_t == 1.0f ? ops->sum_exp(l, vocab, max) : NAN;
  if (isnan(total)) { /* scaled, or a NaN among the logits, which has no mass */
    total = 0;
    for (int i = 0; i < vocab; i++) {
      float d = l[i] * inv_t - max;
      if (d > -40) total += (double)kern_expf(d);
    }
  }
  int n = 0;
  for (float band = BAND_FIRST;; band *= 2) {
    n = gather(w, l, vocab, inv_t, band_floor(max, band));
    if (band > BAND_LAST || mass(w->cand, n, max) >= p * total) break;
  }
  return keep_top_p(w->cand, n, max, total, p);
}

/* Locally typical sampling (Meister et al. 2022): those whose surprise is nearest to the entropy, until their mass reaches p. Surprise rises as value
 * falls, so what is kept is one run [lo, hi) of the order by value, grown both ways from the value whose surprise is the entropy; of two equally near
 * the likelier comes first. The i-th best lies at c[n - 1 - i] once it was popped. */
static int keep_typical(sample_cand *c, int n, float max, double p) {
  double total = mass(c, n, max), zero = (double)max + log(total), entropy = 0, cum = 0; /* zero: the value of a token that is certain */
  for (int i = 0; i < n; i++) {
    double q = exp((double)c[i].v - (double)max) / total;
    if (q > 0) entropy += q * (zero - (double)c[i].v);
  }
  double level = zero - entropy;
  int popped = 0;
  heap_make(c, n);
  while (popped < n && (double)c[0].v > level) heap_pop(c, n - popped++);
  int lo = popped, hi = popped;
  while (cum < p) {
    if (hi == popped && popped < n) heap_pop(c, n - popped++);
    double up = lo > 0 ? (double)c[n - lo].v - level : INFINITY, down = hi < popped ? level - (double)c[n - 1 - hi].v : INFINITY;
    if (up == INFINITY && down == INFINITY) break;
    int i = up <= down ? --lo : hi++;
    cum += exp((double)c[n - 1 - i].v - (double)max) / total;
  }
  return to_front(c, n - hi, n - lo);
}

/* Those at least min_p times as likely as the likeliest that is left. */
static int keep_min_p(sample_cand *c, int n, float log_min_p) {
  float top = -INFINITY;
  int k = 0;
  for (int i = 0; i < n; i++) top = c[i].v > top ? c[i].v : top;
  for (int i = 0; i < n; i++)
    if (c[i].v >= top + log_min_p) c[k++] = c[i];
  return k;
}

/* What sample_token may have to cut; a bound that cuts nothing is off. */
static bool has_top_k(const sample_in *in) { return in->s->top_k > 0 && in->s->top_k < in->vocab; }
static bool has_top_p(const sample_in *in) { return in->s->top_p < 1; }
static bool has_typical(const sample_in *in) { return in->s->typical_p > 0 && in->s->typical_p < 1; }
static bool has_min_p(const sample_in *in) { return in->s->min_p > 0; }

/* Candidates that are left, at least one. */
static int truncate(const kern_ops *ops, sampler_work *w, const sample_in *in, const float *l, float inv_t, float max) {
  const eng_sampling *s = in->s;
  bool top_k = has_top_k(in), typical = has_typical(in), top_p = has_top_p(in);
  float log_min_p = has_min_p(in) ? logf(fminf(s->min_p, 1)) : -INFINITY;
  int n;
  if (top_k) n = keep_top_k(w, l, in->vocab, inv_t, max, s->top_k);
  else if (top_p && !typical) n = nucleus(ops, w, l, in->vocab, inv_t, max, (double)s->top_p);
  else n = gather(w, l, in->vocab, inv_t, typical ? -INFINITY : max + log_min_p);
  if (typical) n = keep_typical(w->cand, n, max, (double)s->typical_p);
  if (top_p && (typical || top_k)) n = keep_top_p(w->cand, n, max, mass(w->cand, n, max), (double)s->top_p);
  return has_min_p(in) ? keep_min_p(w->cand, n, log_min_p) : n;
}

int32_t sample_token(const kern_ops *ops, sampler_work *w, const sample_in *in) {
  const eng_sampling *s = in->s;
  const float *l = changed(w, in);
  float max;
  int at;
  ops->max_at(l, in->vocab, &max, &at);
  if (!isfinite(max)) return max > 0 ? at : 0;
  if (s->temperature <= 0) return at;
  float inv_t = 1.0f / s->temperature;
  if (!isfinite(inv_t) || !isfinite(max * inv_t)) return at;
  if (!has_top_k(in) && !has_typical(in) && !has_top_p(in) && !has_min_p(in)) return argmax_all(in, l, inv_t, max, at);
  return argmax_cands(in, w->cand, truncate(ops, w, in, l, inv_t, max * inv_t));
}

float sample_logprobs(const kern_ops *ops, const float *logits, int vocab, int32_t token, eng_lp *top, int n_top) {
  float max;
  int at;
  ops->max_at(logits, vocab, &max, &at);
  double lse = log(ops->sum_exp(logits, vocab, max));
  int n = 0;
  for (int i = 0; i < vocab && n_top > 0; i++) {
    float v = isnan(logits[i]) ? -INFINITY : logits[i]; /* comes last */
    if (n == n_top && !(v > top[n - 1].logprob)) continue;
    int j = n < n_top ? n++ : n - 1;
    while (j > 0 && top[j - 1].logprob < v) top[j] = top[j - 1], j--;
    top[j] = (eng_lp){i, v};
  }
  for (int i = 0; i < n; i++) top[i].logprob = (float)((double)top[i].logprob - (double)max - lse);
  return (float)((double)logits[token] - (double)max - lse);
}
