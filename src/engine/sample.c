#include "engine/sample.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool sampler_work_init(sampler_work *w, int vocab, int ctx) {
  *w = (sampler_work){.dry_cap = ctx};
  w->peak = malloc(((size_t)vocab / KERN_PEAK + 1) * sizeof *w->peak);
  w->logits = malloc((size_t)vocab * sizeof *w->logits);
  w->cand = malloc((size_t)vocab * sizeof *w->cand);
  w->dry = malloc((size_t)ctx * sizeof *w->dry);
  if (w->peak && w->logits && w->cand && w->dry) return true;
  sampler_work_fini(w);
  return false;
}

void sampler_work_fini(sampler_work *w) {
  free(w->peak);
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

typedef struct noise_key {
  uint32_t key[2], at[3];
} noise_key;

static noise_key noise_of(const sample_in *in) {
  return (noise_key){{(uint32_t)in->s->seed, (uint32_t)(in->s->seed >> 32)},
      {(uint32_t)in->position, (uint32_t)in->choice, (uint32_t)((uint64_t)in->position >> 32)}};
}

static uint32_t noise_word(const noise_key *k, int32_t token) {
  uint32_t c[4] = {(uint32_t)token / 4, k->at[0], k->at[1], k->at[2]}, u[4];
  philox4x32(c, k->key, u);
  return u[token % 4];
}

static double gumbel(uint32_t x) { return -log(-log(rng_unit(x))); }

double sample_gumbel(uint64_t seed, int choice, int64_t position, int32_t token) {
  eng_sampling s = {.seed = seed};
  sample_in in = {.s = &s, .choice = choice, .position = position};
  noise_key k = noise_of(&in);
  return gumbel(noise_word(&k, token));
}

/* Largest noise there is: u = 1 - 2^-33. A token that is further than this behind the best so far cannot win. */
#define GUMBEL_MAX 22.874

/* -log(u) >= 1 - u, so g <= -log(1 - u) < (leading ones of x + 1) * ln 2, and a little more for rounding: one count of leading zeros bounds the noise
 * before a logarithm is taken. */
static double gumbel_bound(uint32_t x) { return ((~x ? __builtin_clz(~x) : 32) + 2) * 0.6931472; }

typedef struct winner {
  int32_t id;
  double score;
} winner;

static void contest(winner *w, int32_t id, double v, uint32_t x) {
  if (!(v + gumbel_bound(x) >= w->score)) return;
  double sc = v + gumbel(x);
  if (sc > w->score || (sc == w->score && id < w->id)) *w = (winner){id, sc};
}

/* argmax over v/T + noise, whole vocabulary. The likeliest token has a score at once; what cannot reach the best score so far is left out a run at a
 * time, by the run's largest logit alone, then with the largest of its noise. That changes no result. */
static int32_t argmax_all(const kern_ops *ops, const sampler_work *w, const sample_in *in, const float *l, float inv_t, float max, int at) {
  noise_key k = noise_of(in);
  winner best = {at, (double)(max * inv_t) + gumbel(noise_word(&k, at))};
  uint32_t u[KERN_PEAK];
  for (int b = 0; b < in->vocab; b += KERN_PEAK) {
    double top = (double)(w->peak[b / KERN_PEAK] * inv_t);
    if (!(top + GUMBEL_MAX >= best.score)) continue;
    if (!(top + gumbel_bound(ops->noise(k.key, k.at, (uint32_t)b / 4, u)) >= best.score)) continue;
    int n = in->vocab - b < KERN_PEAK ? in->vocab - b : KERN_PEAK;
    for (int j = 0; j < n; j++) contest(&best, b + j, (double)(l[b + j] * inv_t), u[16 * (j % 4) + j / 4]);
  }
  return best.id;
}

static int32_t argmax_cands(const sample_in *in, const sample_cand *c, int n) {
  noise_key k = noise_of(in);
  int top = 0;
  for (int i = 1; i < n; i++)
    if (c[i].v > c[top].v) top = i;
  winner best = {c[top].id, (double)c[top].v + gumbel(noise_word(&k, c[top].id))};
  for (int i = 0; i < n; i++)
    if ((double)c[i].v + GUMBEL_MAX >= best.score) contest(&best, c[i].id, (double)c[i].v, noise_word(&k, c[i].id));
  return best.id;
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

/* Candidates whose scaled logit is from `floor` to `ceiling`; NaN never is. Runs that have none are known by their peak. */
static int gather(const sampler_work *w, const float *l, int vocab, float inv_t, float floor, float ceiling) {
  int n = 0;
  for (int b = 0; b < vocab; b += KERN_PEAK) {
    if (!(w->peak[b / KERN_PEAK] * inv_t >= floor)) continue;
    int end = vocab - b < KERN_PEAK ? vocab : b + KERN_PEAK;
    for (int i = b; i < end; i++) {
      float v = l[i] * inv_t;
      if (v >= floor && v <= ceiling) w->cand[n++] = (sample_cand){i, v};
    }
  }
  return n;
}

static double mass(const sample_cand *c, int n, float max) {
  double t = 0;
  for (int i = 0; i < n; i++) t += exp((double)c[i].v - (double)max);
  return t;
}

/* A band is gathered and widened until it holds what is looked for; past the last width it is the whole vocabulary. */
enum { BAND_FIRST = 8, BAND_LAST = 1000 };
static float band_floor(float max, float band) { return band > BAND_LAST ? -INFINITY : max - band; }

static int keep_top_k(sampler_work *w, const float *l, int vocab, float inv_t, float max, int k) {
  int n = 0;
  for (float band = BAND_FIRST;; band *= 2) {
    n = gather(w, l, vocab, inv_t, band_floor(max, band), INFINITY);
    if (n >= k || band > BAND_LAST) break;
  }
  if (k > n) k = n;
  heap_make(w->cand, n);
  for (int i = 0; i < k; i++) heap_pop(w->cand, n - i);
  return to_front(w->cand, n - k, n);
}

/* Which of two candidates is taken first: the likelier (nucleus sampling), or the one whose surprise is nearer to the entropy, which is the value
 * `level` (typical sampling). Of two equally near the likelier comes first; of equal ones below the level the lowest id, above it the highest. */
typedef struct order {
  bool typical;
  float level;
} order;

static bool before(const order *o, sample_cand a, sample_cand b) {
  if (!o->typical) return better(a, b);
  double x = fabs((double)a.v - (double)o->level), y = fabs((double)b.v - (double)o->level);
  if (x != y) return x < y;
  return a.v != b.v ? a.v > b.v : (a.id < b.id) == !(a.v > o->level);
}

static void swap_cands(sample_cand *c, int i, int j) {
  sample_cand x = c[i];
  c[i] = c[j];
  c[j] = x;
}

/* Moves a pivot to its place in c[lo..hi) and returns the place; those before it are before it. The pivot is the middle of three from places that no
 * one can choose, so that no order of logits makes this slow. */
static int part(const order *o, sample_cand *c, int lo, int hi, uint32_t *state) {
  int p[3];
  for (int i = 0; i < 3; i++) {
    *state = *state * 1664525u + 1013904223u;
    p[i] = lo + (int)((uint64_t)*state * (uint32_t)(hi - lo) >> 32);
  }
  int mid = before(o, c[p[0]], c[p[1]]) ? (before(o, c[p[1]], c[p[2]])      ? p[1]
                                              : before(o, c[p[0]], c[p[2]]) ? p[2]
                                                                            : p[0])
                                        : (before(o, c[p[0]], c[p[2]])      ? p[0]
                                              : before(o, c[p[1]], c[p[2]]) ? p[2]
                                                                            : p[1]);
  swap_cands(c, lo, mid);
  int at = lo;
  for (int i = lo + 1; i < hi; i++)
    if (before(o, c[i], c[lo])) swap_cands(c, ++at, i);
  swap_cands(c, lo, at);
  return at;
}

/* The fewest of the first whose mass reaches `wanted` (Holtzman et al. 2020), to the front; how many. Parted by mass as quickselect parts by count:
 * sorting all would cost more than the step when the distribution is flat. */
static int keep_mass(const order *o, sample_cand *c, int n, float max, double wanted) {
  int lo = 0, hi = n;
  double cum = 0;
  uint32_t state = (uint32_t)n;
  while (hi - lo > 16) {
    int at = part(o, c, lo, hi, &state);
    double left = mass(c + lo, at - lo, max), pivot = exp((double)c[at].v - (double)max);
    if (cum + left >= wanted && at > lo) hi = at;
    else if (cum + left + pivot >= wanted) return at + 1;
    else cum += left + pivot, lo = at + 1;
  }
  for (int i = lo + 1; i < hi; i++)
    for (int j = i; j > lo && before(o, c[j], c[j - 1]); j--) swap_cands(c, j, j - 1);
  while (lo < hi) {
    cum += exp((double)c[lo++].v - (double)max);
    if (cum >= wanted) break;
  }
  return lo;
}

static int keep_top_p(sample_cand *c, int n, float max, double total, double p) { return keep_mass(&(order){false, 0}, c, n, max, p * total); }

/* Mass of the whole vocabulary and the mean of what each value lies below the maximum (weighted). A NaN among the logits has no mass. */
static double whole_mass(const kern_ops *ops, const float *l, int vocab, float inv_t, float max, double *ret_mean) {
  double moment, total = ops->sum_exp(l, vocab, inv_t, max, &moment);
  if (isnan(total)) {
    total = moment = 0;
    for (int i = 0; i < vocab; i++) {
      float d = l[i] * inv_t - max;
      if (d > -80) total += (double)kern_expf(d), moment += (double)(d * kern_expf(d));
    }
  }
  *ret_mean = moment / total;
  return total;
}

/* top_p over the whole vocabulary: its mass once, then only as wide a band as the nucleus needs. */
static int nucleus(const kern_ops *ops, sampler_work *w, const float *l, int vocab, float inv_t, float max, double p) {
  double mean, total = whole_mass(ops, l, vocab, inv_t, max, &mean);
  int n = 0;
  for (float band = BAND_FIRST;; band *= 2) {
    n = gather(w, l, vocab, inv_t, band_floor(max, band), INFINITY);
    if (band > BAND_LAST || mass(w->cand, n, max) >= p * total) break;
  }
  return keep_top_p(w->cand, n, max, total, p);
}

/* Locally typical sampling (Meister et al. 2022): those whose surprise is nearest to the entropy, until their mass reaches p. With mean = sum q (v -
 * max), the value whose surprise is the entropy is max + mean. */
static int typical_of_all(const kern_ops *ops, sampler_work *w, const float *l, int vocab, float inv_t, float max, double p) {
  double mean, total = whole_mass(ops, l, vocab, inv_t, max, &mean);
  order o = {true, (float)((double)max + mean)};
  int n = 0;
  for (float band = 1;; band *= 2) {
    bool all = band > BAND_LAST;
    n = gather(w, l, vocab, inv_t, all ? -INFINITY : o.level - band, all ? INFINITY : o.level + band);
    if (all || mass(w->cand, n, max) >= p * total) break;
  }
  return keep_mass(&o, w->cand, n, max, p * total);
}

/* The same among candidates. */
static int keep_typical(sample_cand *c, int n, float max, double p) {
  double total = mass(c, n, max), moment = 0;
  for (int i = 0; i < n; i++) {
    double d = (double)c[i].v - (double)max, q = exp(d);
    if (q > 0) moment += q * d;
  }
  return keep_mass(&(order){true, (float)((double)max + moment / total)}, c, n, max, p * total);
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
  else if (typical) n = typical_of_all(ops, w, l, in->vocab, inv_t, max, (double)s->typical_p);
  else if (top_p) n = nucleus(ops, w, l, in->vocab, inv_t, max, (double)s->top_p);
  else n = gather(w, l, in->vocab, inv_t, max + log_min_p, INFINITY);
  if (typical && top_k) n = keep_typical(w->cand, n, max, (double)s->typical_p);
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
  ops->peaks(l, in->vocab, w->peak);
  if (!has_top_k(in) && !has_typical(in) && !has_top_p(in) && !has_min_p(in)) return argmax_all(ops, w, in, l, inv_t, max, at);
  return argmax_cands(in, w->cand, truncate(ops, w, in, l, inv_t, max * inv_t));
}

float sample_logprobs(const kern_ops *ops, sampler_work *w, const float *logits, int vocab, int32_t token, eng_lp *top, int n_top) {
  float max;
  int at, n = 0;
  ops->max_at(logits, vocab, &max, &at);
  double lse = log(ops->sum_exp(logits, vocab, 1, max, NULL));
  if (n_top > 0) ops->peaks(logits, vocab, w->peak);
  for (int i = 0; i < vocab && n_top > 0; i++) {
    if (i % KERN_PEAK == 0 && n == n_top && !(w->peak[i / KERN_PEAK] > top[n - 1].logprob)) {
      i += KERN_PEAK - 1;
      continue;
    }
    float v = isnan(logits[i]) ? -INFINITY : logits[i]; /* comes last */
    if (n == n_top && !(v > top[n - 1].logprob)) continue;
    int j = n < n_top ? n++ : n - 1;
    while (j > 0 && top[j - 1].logprob < v) top[j] = top[j - 1], j--;
    top[j] = (eng_lp){i, v};
  }
  for (int i = 0; i < n; i++) top[i].logprob = (float)((double)top[i].logprob - (double)max - lse);
  return (float)((double)logits[token] - (double)max - lse);
}
