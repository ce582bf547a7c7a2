/* The sampler against a second one written in double without any of its short cuts: options alone and together, their order, the noise and what it
 * draws, log-probabilities. A case in which rounding may decide (two scores or a bound within 1e-5) is left out and counted; few may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/rng.h"
#include "engine/sample.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_MAX = 5003, HIST_MAX = 400 };

static rng dice;
static sampler_work work;

static double uniform(double lo, double hi) { return lo + (hi - lo) * rng_f64(&dice); }
static int below(int n) { return (int)rng_below(&dice, (uint64_t)n); }
static double normal(void) { return sqrt(-2 * log(rng_f64(&dice))) * cos(6.283185307179586 * rng_f64(&dice)); }

static void fill_normal(float *l, int n, double sd) {
  for (int i = 0; i < n; i++) l[i] = (float)(sd * normal());
}

/* ---- the second sampler ---- */

/* In which order the second sampler applies things: the product's, or one of the wrong ones that the tests must be able to tell from it. */
typedef enum turns { AS_STATED, BIAS_LAST, TEMPERATURE_LAST, TOP_P_BEFORE_TOP_K, TYPICAL_LAST, MIN_P_FIRST } turns;

typedef struct naive {
  int vocab;
  double v[VOCAB_MAX];
  bool out[VOCAB_MAX];
  bool close; /* rounding may decide */
} naive;

static const naive *sorting;
static double sort_key[VOCAB_MAX];
static int by_key(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  if (sort_key[x] != sort_key[y]) return sort_key[x] < sort_key[y] ? -1 : 1;
  if (sorting->v[x] != sorting->v[y]) return sorting->v[x] > sorting->v[y] ? -1 : 1;
  return x - y;
}

/* Probabilities among what is left. */
static void naive_probs(const naive *s, double *p) {
  double max = -INFINITY, sum = 0;
  for (int i = 0; i < s->vocab; i++)
    if (!s->out[i] && s->v[i] > max) max = s->v[i];
  for (int i = 0; i < s->vocab; i++) sum += p[i] = s->out[i] ? 0 : exp(s->v[i] - max);
  for (int i = 0; i < s->vocab; i++) p[i] /= sum;
}

/* What is left, by ascending key; returns how many. */
static int naive_sort(const naive *s, int *at) {
  int n = 0;
  for (int i = 0; i < s->vocab; i++)
    if (!s->out[i]) at[n++] = i;
  sorting = s;
  qsort(at, (size_t)n, sizeof *at, by_key);
  return n;
}

static void near(naive *s, double a, double b) {
  if (fabs(a - b) < 1e-5) s->close = true;
}

static void naive_top_k(naive *s, int k) {
  int at[VOCAB_MAX];
  if (k <= 0 || k >= s->vocab) return;
  for (int i = 0; i < s->vocab; i++) sort_key[i] = -s->v[i];
  int n = naive_sort(s, at);
  if (n > k && s->v[at[k]] != s->v[at[k - 1]]) near(s, s->v[at[k]], s->v[at[k - 1]]);
  for (int i = k; i < n; i++) s->out[at[i]] = true;
}

static void keep_mass(naive *s, const double *p, double most) {
  int at[VOCAB_MAX], n = naive_sort(s, at), i = 0;
  for (double cum = 0; i < n; i++) {
    cum += p[at[i]];
    near(s, cum, most);
    if (i + 1 < n && sort_key[at[i]] != sort_key[at[i + 1]]) near(s, sort_key[at[i]], sort_key[at[i + 1]]);
    if (cum >= most) break;
  }
  for (i++; i < n; i++) s->out[at[i]] = true;
}

static void naive_top_p(naive *s, double most) {
  double p[VOCAB_MAX];
  if (most >= 1) return;
  naive_probs(s, p);
  for (int i = 0; i < s->vocab; i++) sort_key[i] = -s->v[i];
  keep_mass(s, p, most);
}

static void naive_typical(naive *s, double most) {
  double p[VOCAB_MAX], h = 0;
  if (most <= 0 || most >= 1) return;
  naive_probs(s, p);
  for (int i = 0; i < s->vocab; i++) h -= p[i] > 0 ? p[i] * log(p[i]) : 0;
  for (int i = 0; i < s->vocab; i++) sort_key[i] = p[i] > 0 ? fabs(-log(p[i]) - h) : INFINITY;
  keep_mass(s, p, most);
}

static void naive_min_p(naive *s, double least) {
  double p[VOCAB_MAX], max = 0;
  if (least <= 0) return;
  naive_probs(s, p);
  for (int i = 0; i < s->vocab; i++) max = fmax(max, p[i]);
  for (int i = 0; i < s->vocab; i++) {
    if (s->out[i]) continue;
    if (p[i] > 0) near(s, log(p[i] / max), log(least));
    s->out[i] = p[i] < least * max;
  }
}

/* Longest repetition that each token would prolong, by looking at every earlier place. */
static void naive_dry(naive *s, const sample_in *in) {
  const eng_sampling *o = in->s;
  if (o->dry_multiplier <= 0) return;
  int n = in->n_history, first = o->dry_last_n < 0 || o->dry_last_n > n ? 0 : n - o->dry_last_n, longest[VOCAB_MAX] = {0};
  for (int i = first + 1; i < n; i++) {
    int len = 0;
    while (i - 1 - len >= first && in->history[i - 1 - len] == in->history[n - 1 - len] && !in->breaker[n - 1 - len]) len++;
    if (!in->breaker[i] && len > longest[in->history[i]]) longest[in->history[i]] = len;
  }
  for (int i = 0; i < s->vocab; i++)
    if (longest[i] && longest[i] >= o->dry_allowed_length)
      s->v[i] -= (double)o->dry_multiplier * pow((double)o->dry_base, longest[i] - o->dry_allowed_length);
}

static void naive_bias(naive *s, const eng_sampling *o) {
  for (int i = 0; i < o->n_bias; i++)
    if (o->bias[i].token >= 0 && o->bias[i].token < s->vocab) s->v[o->bias[i].token] += (double)o->bias[i].bias;
}

static void naive_penalties(naive *s, const sample_in *in) {
  for (int t = 0; t < s->vocab; t++) {
    int seen = 0, made = 0;
    for (int i = 0; i < in->n_history; i++) {
      seen += in->history[i] == t;
      made += in->history[i] == t && i >= in->n_prompt;
    }
    if (seen) s->v[t] = s->v[t] > 0 ? s->v[t] / (double)in->s->repetition : s->v[t] * (double)in->s->repetition;
    if (made) s->v[t] -= (double)in->s->presence + (double)in->s->frequency * made;
  }
}

static void naive_cut(naive *s, const eng_sampling *o, turns t) {
  if (t == MIN_P_FIRST) naive_min_p(s, (double)o->min_p);
  if (t == TOP_P_BEFORE_TOP_K) naive_top_p(s, (double)o->top_p);
  naive_top_k(s, o->top_k);
  if (t != TYPICAL_LAST) naive_typical(s, (double)o->typical_p);
  if (t != TOP_P_BEFORE_TOP_K) naive_top_p(s, (double)o->top_p);
  if (t != MIN_P_FIRST) naive_min_p(s, (double)o->min_p);
  if (t == TYPICAL_LAST) naive_typical(s, (double)o->typical_p);
}

static double naive_noise(const sample_in *in, int token) {
  uint32_t c[4] = {(uint32_t)token / 4, (uint32_t)in->position, (uint32_t)in->choice, (uint32_t)((uint64_t)in->position >> 32)}, u[4];
  uint32_t k[2] = {(uint32_t)in->s->seed, (uint32_t)(in->s->seed >> 32)};
  philox4x32(c, k, u);
  return -log(-log(((double)u[token % 4] + 0.5) / 4294967296.0));
}

/* The token, or -1 when rounding may decide. */
static int32_t naive_token(const sample_in *in, turns t) {
  static naive s;
  const eng_sampling *o = in->s;
  memset(&s, 0, sizeof s);
  s.vocab = in->vocab;
  for (int i = 0; i < s.vocab; i++) s.v[i] = (double)in->logits[i];
  if (t != BIAS_LAST) naive_bias(&s, o);
  naive_penalties(&s, in);
  naive_dry(&s, in);
  if (t == BIAS_LAST) naive_bias(&s, o);
  for (int i = 0; i < in->n_ban; i++) s.v[in->ban[i]] = -INFINITY;
  double temp = (double)o->temperature;
  bool draws = temp > 0;
  if (draws && t != TEMPERATURE_LAST)
    for (int i = 0; i < s.vocab; i++) s.v[i] /= temp;
  if (draws) naive_cut(&s, o, t);
  if (draws && t == TEMPERATURE_LAST)
    for (int i = 0; i < s.vocab; i++) s.v[i] /= temp;
  int32_t best = -1;
  double score = -INFINITY, second = -INFINITY;
  for (int i = 0; i < s.vocab; i++) {
    if (s.out[i]) continue;
    double sc = s.v[i] + (draws ? naive_noise(in, i) : 0);
    if (sc > score) second = score, score = sc, best = i;
    else if (sc > second) second = sc;
  }
  if (score != second) near(&s, score, second);
  return s.close ? -1 : best;
}

/* ---- random cases ---- */

typedef struct random_case {
  float logits[VOCAB_MAX];
  int32_t history[HIST_MAX];
  uint8_t breaker[HIST_MAX];
  eng_bias bias[8];
  eng_sampling s;
  sample_in in;
} random_case;

/* Logits, a history full of repetitions, and no option set. */
static void new_case(random_case *c, int vocab, int n_history) {
  memset(c, 0, sizeof *c);
  fill_normal(c->logits, vocab, uniform(0.3, 4));
  eng_sampling_default(&c->s, NULL);
  c->s.seed = rng_u64(&dice);
  c->s.temperature = (float)uniform(0.2, 2);
  int few = 2 + below(vocab < 12 ? vocab - 1 : 10);
  for (int i = 0; i < n_history; i++) {
    c->history[i] = i > 12 && below(3) ? c->history[i - 1 - below(12)] : below(few);
    if (i > 30 && !below(20)) memcpy(c->history + i - 10, c->history + i - 25, 10 * sizeof *c->history);
  }
  for (int i = 0; i < n_history; i++) c->breaker[i] = c->history[i] == few - 1;
  c->in = (sample_in){.logits = c->logits,
      .vocab = vocab,
      .s = &c->s,
      .history = c->history,
      .n_history = n_history,
      .n_prompt = n_history / 2,
      .breaker = c->breaker,
      .choice = below(4),
      .position = n_history};
}

typedef enum option { TEMP, BIAS, PRESENCE, FREQUENCY, REPETITION, DRY, BAN, TOP_K, TYPICAL, TOP_P, MIN_P, N_OPTIONS } option;
static const char *const option_names[N_OPTIONS] = {
    "temperature", "bias", "presence", "frequency", "repetition", "dry", "ban", "top_k", "typical", "top_p", "min_p"};

static const int32_t ban[] = {0, 1};

static void set_option(random_case *c, option o) {
  eng_sampling *s = &c->s;
  switch (o) {
  case TEMP: s->temperature = below(4) ? (float)exp(uniform(log(0.05), log(5))) : 0; break;
  case BIAS:
    s->bias = c->bias, s->n_bias = 1 + below(8);
    for (int i = 0; i < s->n_bias; i++) c->bias[i] = (eng_bias){below(c->in.vocab + 2) - 1, (float)uniform(-6, 6)};
    break;
  case PRESENCE: s->presence = (float)uniform(-2, 2); break;
  case FREQUENCY: s->frequency = (float)uniform(-0.5, 0.5); break;
  case REPETITION: s->repetition = (float)uniform(0.5, 2); break;
  case DRY:
    s->dry_multiplier = (float)uniform(0.1, 2), s->dry_base = (float)uniform(1, 2), s->dry_allowed_length = below(5);
    s->dry_last_n = below(2) ? -1 : below(c->in.n_history + 20);
    break;
  case BAN: c->in.ban = ban, c->in.n_ban = 2; break;
  case TOP_K: s->top_k = 1 + below(c->in.vocab + 2); break;
  case TYPICAL: s->typical_p = (float)uniform(0.05, 1); break;
  case TOP_P: s->top_p = (float)uniform(0.05, 1); break;
  case MIN_P: s->min_p = (float)uniform(0.001, 0.7); break;
  default: break;
  }
}

static int32_t product(const random_case *c) {
  int32_t first = -1;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    int32_t k = sample_token(*t, &work, &c->in);
    if (first >= 0) assert_int_equal(k, first); /* every table, the same token */
    first = k;
  }
  return first;
}

/* n cases with these options (a bit each); fails on the first that differs. Returns how many differ under another order. */
static int compare(unsigned options, int n, turns wrong) {
  static random_case c;
  int left_out = 0, differ = 0;
  for (int i = 0; i < n; i++) {
    new_case(&c, 3 + below(i % 8 ? 40 : 300), 2 + below(i % 4 ? 30 : 200));
    for (int o = 0; o < N_OPTIONS; o++)
      if (options >> o & 1) set_option(&c, (option)o);
    int32_t want = naive_token(&c.in, AS_STATED), got = product(&c);
    if (want < 0) left_out++;
    else if (want != got)
      fail_msg(
          "case %d of options %x: token %d, %d expected (vocabulary %d, temperature %g)", i, options, got, want, c.in.vocab, (double)c.s.temperature);
    if (wrong != AS_STATED && want >= 0) {
      int32_t other = naive_token(&c.in, wrong);
      differ += other >= 0 && other != got;
    }
  }
  if (left_out > n / 20 + 3) fail_msg("options %x: %d of %d cases were too close to call", options, left_out, n);
  return differ;
}

static void test_options(void **st) {
  (void)st;
  for (int o = 0; o < N_OPTIONS; o++) {
    print_message("%s\n", option_names[o]);
    compare(1u << o, 2000, AS_STATED);
    compare(1u << o | 1u << TEMP, 1000, AS_STATED);
  }
}

static void test_together(void **st) {
  (void)st;
  for (int i = 0; i < 400; i++) compare((unsigned)rng_below(&dice, 1u << N_OPTIONS), 10, AS_STATED);
  compare((1u << N_OPTIONS) - 1, 1000, AS_STATED);
}

static void test_order(void **st) {
  (void)st;
  assert_true(compare(1u << BIAS | 1u << REPETITION, 2000, BIAS_LAST) > 20);
  assert_true(compare(1u << TOP_P, 2000, TEMPERATURE_LAST) > 20);
  assert_true(compare(1u << TOP_P | 1u << TOP_K, 2000, TOP_P_BEFORE_TOP_K) > 20);
  assert_true(compare(1u << TYPICAL | 1u << TOP_P, 2000, TYPICAL_LAST) > 20);
  assert_true(compare(1u << MIN_P | 1u << TYPICAL, 2000, MIN_P_FIRST) > 20);
}

/* Repetition, presence and frequency change a token once however often it stands in the history, and presence and frequency do not see the prompt. */
static void test_prompt_counts(void **st) {
  (void)st;
  static const float l[8] = {3, 3, 3, 2.9f, 0, 0, 0, 0};
  static const int32_t h[] = {0, 0, 0, 1, 1, 2};
  eng_sampling s;
  eng_sampling_default(&s, NULL);
  s.temperature = 0;
  sample_in in = {.logits = l, .vocab = 8, .s = &s, .history = h, .n_history = 6, .n_prompt = 3, .position = 6};
  const kern_ops *ref;
  assert_true(kern_select("ref", &ref, NULL));
  assert_int_equal(sample_token(ref, &work, &in), 0);
  s.presence = 1;
  assert_int_equal(sample_token(ref, &work, &in), 0); /* token 0 is in the prompt only */
  s.repetition = 1.5f;
  assert_int_equal(sample_token(ref, &work, &in), 3); /* now the prompt counts */
  s.presence = 0, s.repetition = 1, s.frequency = 0.05f;
  in.n_prompt = 0; /* three, two and one times: 2.85, 2.9, 2.95 */
  assert_int_equal(sample_token(ref, &work, &in), 2);
}

/* ---- noise ---- */

/* Random123's known answers (Salmon et al., SC'11; its file kat_vectors). */
static void test_philox(void **st) {
  (void)st;
  static const struct {
    uint32_t ctr[4], key[2], out[4];
  } kat[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
    uint32_t out[4];
    philox4x32(kat[i].ctr, kat[i].key, out);
    assert_memory_equal(out, kat[i].out, sizeof out);
  }
}

/* Every part of the key changes the noise, and sample_gumbel is what the header says. */
static void test_noise_key(void **st) {
  (void)st;
  eng_sampling s = {.seed = 0x123456789abcdef0ull};
  sample_in in = {.s = &s, .choice = 3, .position = 0x100000002ll};
  double g = sample_gumbel(s.seed, 3, in.position, 17);
  assert_true(g == naive_noise(&in, 17));
  assert_true(g != sample_gumbel(s.seed ^ 1, 3, in.position, 17));
  assert_true(g != sample_gumbel(s.seed ^ 1ull << 63, 3, in.position, 17));
  assert_true(g != sample_gumbel(s.seed, 2, in.position, 17));
  assert_true(g != sample_gumbel(s.seed, 3, in.position + 1, 17));
  assert_true(g != sample_gumbel(s.seed, 3, in.position & 0xffffffff, 17));
  assert_true(g != sample_gumbel(s.seed, 3, in.position, 16));
  assert_true(g != sample_gumbel(s.seed, 3, in.position, 21));
}

/* Ruling tokens out by a bound on their noise may change no result at all: exact equality with every token's noise taken. */
static void pruning_case(float *l, int vocab, int kind) {
  fill_normal(l, vocab, kind % 5 == 0 ? 0.01 : uniform(0.1, 8));
  if (kind % 5 == 1)
    for (int i = 0; i < vocab; i++) l[i] = roundf(l[i]); /* ties */
  if (kind % 5 == 2)
    for (int i = 0; i < vocab; i++) l[i] = 1.5f;
  if (kind % 5 == 3)
    for (int i = 0; i < vocab; i++)
      if (!below(3)) l[i] = below(2) ? -INFINITY : NAN;
}

static void test_pruning(void **st) {
  (void)st;
  static float l[VOCAB_MAX];
  for (int i = 0; i < 10000; i++) {
    int vocab = 1 + below(i % 50 ? 200 : VOCAB_MAX);
    pruning_case(l, vocab, i);
    eng_sampling s;
    eng_sampling_default(&s, NULL);
    s.seed = rng_u64(&dice);
    s.temperature = (float)exp(uniform(log(0.01), log(5)));
    sample_in in = {.logits = l, .vocab = vocab, .s = &s, .choice = below(3), .position = below(100000)};
    int32_t want = 0;
    double score = -INFINITY;
    float inv_t = 1.0f / s.temperature;
    for (int k = 0; k < vocab; k++) {
      double sc = (double)(l[k] * inv_t) + naive_noise(&in, k);
      if (sc > score) score = sc, want = k;
    }
    for (const kern_ops *const *t = kern_tables(); *t; t++)
      if ((*t)->usable()) {
        int32_t got = sample_token(*t, &work, &in);
        if (got != want)
          fail_msg("case %d, %s: token %d, %d expected (vocabulary %d, temperature %g)", i, (*t)->name, got, want, vocab, (double)s.temperature);
      }
  }
}

/* Pearson's statistic of n draws against soft-max at temperature `t`; draw i differs from the next in what `vary` says. */
static double chi_square(const float *l, int vocab, const eng_sampling *o, double t, int n, int vary) {
  int count[16] = {0};
  double p[16], sum = 0, chi = 0;
  const kern_ops *ops = *kern_tables();
  if (!kern_select(NULL, &ops, NULL)) fail();
  for (int i = 0; i < n; i++) {
    eng_sampling s = *o;
    sample_in in = {.logits = l, .vocab = vocab, .s = &s, .position = 7};
    if (vary == 0) s.seed = (uint64_t)i;
    if (vary == 1) in.position = i;
    if (vary == 2) in.choice = i;
    count[sample_token(ops, &work, &in)]++;
  }
  for (int i = 0; i < vocab; i++) sum += p[i] = exp((double)l[i] / t);
  for (int i = 0; i < vocab; i++) chi += (count[i] - n * p[i] / sum) * (count[i] - n * p[i] / sum) / (n * p[i] / sum);
  return chi;
}

static void test_distribution(void **st) {
  (void)st;
  static const float l[11] = {1, 0, -1, 2, 0.5f, 0.25f, -2, 1.5f, 0, 1, -0.5f};
  enum { DRAWS = 200000 };
  const double bound = 46; /* 10 degrees of freedom: more than this once in 700,000 runs */
  eng_sampling s;
  eng_sampling_default(&s, NULL);
  s.temperature = 0.7f;
  for (int vary = 0; vary < 3; vary++) {
    double chi = chi_square(l, 11, &s, 0.7, DRAWS, vary);
    if (chi > bound) fail_msg("chi-square %g when draws differ in their %s", chi, (const char *[]){"seed", "position", "choice"}[vary]);
  }
  assert_true(chi_square(l, 11, &s, 0.75, DRAWS, 0) > bound); /* it can tell 0.7 from 0.75 */
  s.top_k = 11, s.min_p = 1e-6f;                              /* the other path, which cuts nothing here */
  assert_true(chi_square(l, 11, &s, 0.7, DRAWS, 1) < bound);
}

/* ---- greedy, odd logits ---- */

static void test_greedy(void **st) {
  (void)st;
  static float l[2003];
  eng_sampling s;
  eng_sampling_default(&s, NULL);
  s.temperature = 0;
  for (int i = 0; i < 3000; i++) {
    int vocab = 1 + below(2003), want = 0;
    for (int k = 0; k < vocab; k++) l[k] = (float)(below(9) - 4) * 0.5f;
    for (int k = 0; k < vocab; k++)
      if (l[k] > l[want]) want = k;
    sample_in in = {.logits = l, .vocab = vocab, .s = &s, .position = i};
    for (const kern_ops *const *t = kern_tables(); *t; t++)
      if ((*t)->usable()) assert_int_equal(sample_token(*t, &work, &in), want);
  }
}

static int32_t with_all_tables(const float *l, int vocab, const eng_sampling *s) {
  sample_in in = {.logits = l, .vocab = vocab, .s = s, .position = 5};
  int32_t first = -1;
  for (const kern_ops *const *t = kern_tables(); *t; t++)
    if ((*t)->usable()) {
      int32_t k = sample_token(*t, &work, &in);
      if (first >= 0) assert_int_equal(first, k);
      first = k;
    }
  return first;
}

static void test_odd_logits(void **st) {
  (void)st;
  eng_sampling o[7];
  for (int i = 0; i < 7; i++) eng_sampling_default(&o[i], NULL);
  o[0].temperature = 0, o[2].top_k = 3, o[3].top_p = 0.9f, o[4].min_p = 0.1f, o[5].typical_p = 0.5f, o[6].temperature = 0.5f, o[6].top_p = 0.5f;
  float l[37];
  for (int i = 0; i < 7; i++) {
    for (int k = 0; k < 37; k++) l[k] = NAN;
    assert_int_equal(with_all_tables(l, 37, &o[i]), 0);
    for (int k = 0; k < 37; k++) l[k] = -INFINITY;
    assert_int_equal(with_all_tables(l, 37, &o[i]), 0);
    l[0] = NAN;
    assert_int_equal(with_all_tables(l, 37, &o[i]), 0);
    for (int k = 0; k < 37; k++) l[k] = k % 2 ? NAN : -INFINITY;
    l[21] = 3;
    assert_int_equal(with_all_tables(l, 37, &o[i]), 21); /* the only one that can come */
    l[20] = NAN, l[30] = INFINITY;
    assert_int_equal(with_all_tables(l, 37, &o[i]), 30);
    for (int k = 0; k < 37; k++) l[k] = -3e38f;
    int32_t any = with_all_tables(l, 37, &o[i]);
    assert_true(any >= 0 && any < 37);
  }
}

/* Temperatures, bounds and factors nobody should send: a token of the vocabulary comes out whatever they are. */
static void test_odd_options(void **st) {
  (void)st;
  static random_case c;
  static const float odd[] = {0, -1, 1e-30f, 1e30f, -INFINITY, INFINITY, NAN, 1, 1.0000001f, 2};
  for (int i = 0; i < 20000; i++) {
    new_case(&c, 3 + below(50), 2 + below(40));
    for (int o = 0; o < N_OPTIONS; o++)
      if (below(2)) set_option(&c, (option)o);
    float *const f[] = {&c.s.temperature, &c.s.top_p, &c.s.min_p, &c.s.typical_p, &c.s.presence, &c.s.frequency, &c.s.repetition, &c.s.dry_multiplier,
        &c.s.dry_base, &c.bias[0].bias};
    for (int k = 0; k < 3; k++) *f[below(10)] = odd[below(10)];
    int32_t t = sample_token(*kern_tables(), &work, &c.in);
    assert_true(t >= 0 && t < c.in.vocab);
  }
}

/* ---- log-probabilities ---- */

static double naive_logprob(const float *l, int vocab, int token) {
  double max = -INFINITY, sum = 0;
  for (int i = 0; i < vocab; i++) max = fmax(max, (double)l[i]);
  for (int i = 0; i < vocab; i++) sum += exp((double)l[i] - max);
  return (double)l[token] - max - log(sum);
}

static void test_logprobs(void **st) {
  (void)st;
  static float l[VOCAB_MAX];
  eng_lp top[128];
  for (int i = 0; i < 1500; i++) {
    int vocab = 128 + below(i % 20 ? 500 : VOCAB_MAX - 128), n = below(129), token = below(vocab);
    fill_normal(l, vocab, uniform(0.1, 8));
    if (i % 3 == 0)
      for (int k = 0; k < vocab; k++) l[k] = roundf(l[k]);
    for (const kern_ops *const *t = kern_tables(); *t; t++) {
      if (!(*t)->usable()) continue;
      double got = (double)sample_logprobs(*t, &work, l, vocab, token, top, n);
      double want = naive_logprob(l, vocab, token);
      if (fabs(got - want) > 1e-6 * (2 + fabs(want))) fail_msg("%s: log-probability %.9g, %.9g expected", (*t)->name, got, want);
      for (int k = 0; k < n; k++) {
        assert_true(fabs((double)top[k].logprob - naive_logprob(l, vocab, top[k].token)) <= 1e-5);
        if (k) assert_true(l[top[k - 1].token] > l[top[k].token] || (l[top[k - 1].token] == l[top[k].token] && top[k - 1].token < top[k].token));
      }
      for (int k = 0, better = 0; n && k < vocab; k++) { /* nobody better was left out */
        better += l[k] > l[top[n - 1].token];
        assert_true(better < n);
      }
    }
  }
}

static void test_logprobs_odd(void **st) {
  (void)st;
  float l[9] = {NAN, 1, -INFINITY, 2, NAN, 0, -INFINITY, 3, NAN};
  eng_lp top[9];
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!(*t)->usable()) continue;
    sample_logprobs(*t, &work, l, 9, 1, top, 9);
    static const int32_t want[] = {7, 3, 1, 5}; /* numbers first, best first; each token once */
    for (int k = 0; k < 4; k++) assert_int_equal(top[k].token, want[k]);
    unsigned seen = 0;
    for (int k = 0; k < 9; k++) seen |= 1u << top[k].token;
    assert_int_equal(seen, 0x1ff);
  }
}

static int setup(void **st) {
  (void)st;
  dice = rng_new(20240229);
  return sampler_work_init(&work, VOCAB_MAX, HIST_MAX) ? 0 : -1;
}
static int teardown(void **st) {
  (void)st;
  sampler_work_fini(&work);
  return 0;
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_philox), cmocka_unit_test(test_noise_key), cmocka_unit_test(test_greedy),
      cmocka_unit_test(test_options), cmocka_unit_test(test_together), cmocka_unit_test(test_order), cmocka_unit_test(test_prompt_counts),
      cmocka_unit_test(test_pruning), cmocka_unit_test(test_distribution), cmocka_unit_test(test_odd_logits), cmocka_unit_test(test_odd_options),
      cmocka_unit_test(test_logprobs), cmocka_unit_test(test_logprobs_odd)};
  return cmocka_run_group_tests(t, setup, teardown);
}
