#include "load/report.h"
#include <math.h>
#include <string.h>
#include <time.h>

static const double pcts[] = {50, 90, 95, 99, 99.9};
enum { USUAL = 4, ALL = 5, TAIL_N = 1000, CELL = 32 }; /* P99.9 only where there are TAIL_N samples */

/* ---- for people ---- */

/* Four digits of it or the whole of it; what is not known is n/a. */
static void number(double v, char out[CELL]) {
  if (!isfinite(v)) snprintf(out, CELL, "n/a");
  else snprintf(out, CELL, "%.*f", fabs(v) < 10 ? 3 : fabs(v) < 100 ? 2 : fabs(v) < 1000 ? 1 : 0, v);
}

static double pct(stats *s, double p) { return stats_pct_ok(s, p) ? stats_pct(s, p) : NAN; }

typedef struct table {
  FILE *out;
  int cols;
  bool missing;
} table;

static void row(table *t, const char *name, stats *s) {
  char cell[CELL], lo_s[CELL], hi_s[CELL], range[2 * CELL + 4];
  double lo, hi;
  number(stats_mean(s), cell);
  fprintf(t->out, "%-11s%9s", name, cell);
  for (int i = 0; i < t->cols; i++) {
    number(pct(s, pcts[i]), cell);
    t->missing |= !stats_pct_ok(s, pcts[i]);
    fprintf(t->out, " %12s", cell);
  }
  fprintf(t->out, "%7zu\n", s->n);
  if (!stats_pct_interval(s, 50, &lo, &hi)) return;
  fprintf(t->out, "%-20s", "  95 % interval");
  for (int i = 0; i < t->cols; i++) {
    bool known = stats_pct_ok(s, pcts[i]) && stats_pct_interval(s, pcts[i], &lo, &hi);
    if (known) {
      number(lo, lo_s);
      number(hi, hi_s);
      snprintf(range, sizeof range, "%s..%s", lo_s, hi_s);
    }
    t->missing |= !known;
    fprintf(t->out, " %12s", known ? range : "n/a");
  }
  fputc('\n', t->out);
}

static void head(FILE *out, const load_opts *o, const load_result *r) {
  fprintf(out, "%s, model %s\n", r->url, r->model);
  fprintf(out, "%d user%s in a closed loop, %d tokens in, %d out, %s, seed %llu\n", o->concurrency, o->concurrency == 1 ? "" : "s", o->input_tokens,
      o->output_tokens, o->no_stream ? "whole answers" : "streamed", (unsigned long long)o->seed);
  fprintf(out, "%d completed, %d failed", r->completed, r->failed);
  if (r->interrupted) fprintf(out, ", %d interrupted", r->interrupted);
  fprintf(out, " in %.2f s\n", r->span_s);
  for (int i = 0; i < r->n_errors; i++) fprintf(out, "  %d x %s\n", r->errors[i].n, r->errors[i].what);
}

static void latencies(FILE *out, const load_opts *o, load_result *r) {
  table t = {out, r->icl.n >= TAIL_N || r->e2e.n >= TAIL_N ? ALL : USUAL, false};
  fprintf(out, "\n%-11s%9s", "latency, ms", "mean");
  for (int i = 0; i < t.cols; i++) {
    char name[CELL];
    snprintf(name, sizeof name, "P%g", pcts[i]);
    fprintf(out, " %12s", name);
  }
  fprintf(out, "%7s\n", "n");
  if (!o->no_stream) {
    row(&t, "TTFT", &r->ttft);
    row(&t, "ITL", &r->itl);
    row(&t, "ICL", &r->icl);
  }
  row(&t, "e2e", &r->e2e);
  row(&t, "e2e / token", &r->tpot);
  if (t.missing) fputs("n/a: too few samples (P50 needs 2, P90 10, P95 20, P99 100, P99.9 1000; an interval more)\n", out);
}

static void rate(FILE *out, const char *name, double v, const char *unit, const char *what) {
  char cell[CELL];
  number(v, cell);
  fprintf(out, "%-11s%9s %-6s %s\n", name, cell, unit, what);
}

static void rates(FILE *out, const load_opts *o, load_result *r) {
  double s = r->span_s, itl = stats_mean(&r->itl);
  bool counted = r->output_tokens > 0, input = r->input_tokens > 0;
  fputs("\nthroughput\n", out);
  rate(out, "output TPS", counted ? (double)r->output_tokens / s : NAN, "tok/s", "output tokens / time from first sent to last done");
  rate(out, "total TPS", input ? (double)(r->input_tokens + r->output_tokens) / s : NAN, "tok/s", "the same with input tokens");
  rate(out, "RPS", r->completed / s, "1/s", "completed requests / the same time");
  if (!o->no_stream) rate(out, "TPS a user", itl > 0 ? 1000 / itl : NAN, "tok/s", "1 / mean ITL: what one reader sees after the first token");
  rate(out, "input", input ? (double)r->input_tokens / r->completed : NAN, "tok", "mean of a request, the server's count");
  rate(out, "output", counted ? (double)r->output_tokens / r->completed : NAN, "tok", "mean of a request");
  rate(out, "cached", input ? 100 * (double)r->cached_tokens / (double)r->input_tokens : NAN, "%", "of input tokens");
}

static void notes(FILE *out, const load_opts *o, load_result *r) {
  double off = r->completed ? (double)r->input_tokens / r->completed / o->input_tokens - 1 : 0;
  size_t lost = r->ttft.lost + r->itl.lost + r->icl.lost + r->e2e.lost + r->tpot.lost;
  if (r->without_usage) {
    fprintf(out, "note: %d answers came without usage: %s\n", r->without_usage,
        o->no_stream ? "their tokens are not known" : "their output is counted in chunks, their input is not known");
    if (r->uncalibrated) fprintf(out, "note: prompts have %d words, for the server does not count tokens\n", o->input_tokens);
  } else if (fabs(off) > 0.1)
    fprintf(out, "note: prompts have %.1f tokens, not the %d asked for%s\n", (double)r->input_tokens / r->completed, o->input_tokens,
        off > 0 ? ": the chat template adds its own" : "");
  if (lost) fprintf(out, "note: %zu samples were lost for want of memory\n", lost);
}

void report_table(FILE *out, const load_opts *o, load_result *r) {
  head(out, o, r);
  if (!r->completed) return;
  latencies(out, o, r);
  rates(out, o, r);
  notes(out, o, r);
  fputs(o->no_stream ? "\ne2e: request sent to answer whole\n"
                     : "\nTTFT: sent to first output. ITL: (last - first output) / (tokens - 1) of a request. ICL: each gap between chunks.\n"
                       "e2e: sent to done. Times are the client's, network included.\n",
      out);
}

/* ---- for scripts ---- */

static json_t *num(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static void series(json_t *j, const char *name, stats *s) {
  char key[64];
  snprintf(key, sizeof key, "mean_%s_ms", name);
  json_object_set_new(j, key, num(stats_mean(s)));
  snprintf(key, sizeof key, "median_%s_ms", name);
  json_object_set_new(j, key, num(pct(s, 50)));
  snprintf(key, sizeof key, "std_%s_ms", name);
  json_object_set_new(j, key, num(stats_std(s)));
  for (int i = 0; i < (s->n >= TAIL_N ? ALL : USUAL); i++) {
    snprintf(key, sizeof key, "p%g_%s_ms", pcts[i], name);
    json_object_set_new(j, key, num(pct(s, pcts[i])));
  }
}

/* What the flat format has no place for: sample sizes and intervals. */
static json_t *evidence(stats *s) {
  json_t *j = json_pack("{s:i}", "n", (int)s->n);
  for (int i = 0; i < (s->n >= TAIL_N ? ALL : USUAL); i++) {
    char key[32];
    double lo, hi;
    snprintf(key, sizeof key, "p%g_ci95_ms", pcts[i]);
    bool known = stats_pct_ok(s, pcts[i]) && stats_pct_interval(s, pcts[i], &lo, &hi);
    json_object_set_new(j, key, known ? json_pack("[f, f]", lo, hi) : json_null());
  }
  return j;
}

static json_t *ours(const load_opts *o, load_result *r) {
  json_t *j = json_object(), *errors = json_array(), *samples = json_object();
  json_object_set_new(j, "version", json_string(WEIR_VERSION));
  json_object_set_new(j, "url", json_string(r->url));
  json_object_set_new(j, "stream", json_boolean(!o->no_stream));
  json_object_set_new(j, "input_tokens", json_integer(o->input_tokens));
  json_object_set_new(j, "output_tokens", json_integer(o->output_tokens));
  json_object_set_new(j, "temperature", json_real(o->temperature));
  json_object_set_new(j, "ignore_eos", json_boolean(o->ignore_eos));
  json_object_set_new(j, "warmup", json_integer(o->warmup));
  json_object_set_new(j, "sent", json_integer(r->sent));
  json_object_set_new(j, "interrupted", json_integer(r->interrupted));
  json_object_set_new(j, "without_usage", json_integer(r->without_usage));
  json_object_set_new(j, "cached_input_tokens", json_integer(r->cached_tokens));
  series(j, "e2e_per_token", &r->tpot);
  for (int i = 0; i < r->n_errors; i++) json_array_append_new(errors, json_pack("{s:s, s:i}", "error", r->errors[i].what, "count", r->errors[i].n));
  json_object_set_new(j, "errors", errors);
  if (!o->no_stream) {
    json_object_set_new(samples, "ttft", evidence(&r->ttft));
    json_object_set_new(samples, "tpot", evidence(&r->itl));
    json_object_set_new(samples, "itl", evidence(&r->icl));
  }
  json_object_set_new(samples, "e2el", evidence(&r->e2e));
  json_object_set_new(j, "samples", samples);
  return j;
}

json_t *report_json(const load_opts *o, load_result *r) {
  json_t *j = json_object();
  if (!j) return NULL;
  char date[32];
  time_t now = time(NULL);
  struct tm tm;
  strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
  double s = r->span_s > 0 ? r->span_s : NAN;
  json_object_set_new(j, "date", json_string(date));
  json_object_set_new(j, "backend", json_string(o->completions ? "openai" : "openai-chat"));
  json_object_set_new(j, "model_id", json_string(r->model));
  json_object_set_new(j, "tokenizer_id", json_string("server"));
  json_object_set_new(j, "num_prompts", json_integer(o->requests));
  json_object_set_new(j, "request_rate", json_string("inf"));
  json_object_set_new(j, "burstiness", json_real(1));
  json_object_set_new(j, "max_concurrency", json_integer(o->concurrency));
  json_object_set_new(j, "seed", json_integer((json_int_t)(o->seed & INT64_MAX)));
  json_object_set_new(j, "duration", num(s));
  json_object_set_new(j, "completed", json_integer(r->completed));
  json_object_set_new(j, "failed", json_integer(r->failed));
  json_object_set_new(j, "total_input_tokens", json_integer(r->input_tokens));
  json_object_set_new(j, "total_output_tokens", json_integer(r->output_tokens));
  json_object_set_new(j, "request_throughput", num(r->completed / s));
  json_object_set_new(j, "request_goodput", json_null());
  json_object_set_new(j, "output_throughput", num((double)r->output_tokens / s));
  json_object_set_new(j, "total_token_throughput", num((double)(r->input_tokens + r->output_tokens) / s));
  if (!o->no_stream) {
    series(j, "ttft", &r->ttft);
    series(j, "tpot", &r->itl);
    series(j, "itl", &r->icl);
  }
  series(j, "e2el", &r->e2e);
  json_object_set_new(j, "weir", ours(o, r));
  return j;
}
