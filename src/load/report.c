#include "load/report.h"
#include <math.h>
#include <time.h>

static const double pcts[] = {50, 90, 95, 99};

static void row(FILE *out, const char *name, const char *unit, stats *s) {
  fprintf(out, "%-34s %-6s", name, unit);
  if (!s->n) { fprintf(out, "%10s\n", "n/a"); return; }
  fprintf(out, "%10.2f", stats_mean(s));
  for (int i = 0; i < 4; i++) {
    if (stats_pct_ok(s, pcts[i])) fprintf(out, "%10.2f", stats_pct(s, pcts[i]));
    else fprintf(out, "%10s", "n/a");
  }
  double lo, hi;
  fprintf(out, "%8zu", s->n);
  if (stats_pct_interval(s, 50, &lo, &hi)) fprintf(out, "  %.2f..%.2f", lo, hi);
  fprintf(out, "\n");
}

void report_table(FILE *out, const load_opts *o, load_result *r) {
  double s = r->span_s > 0 ? r->span_s : NAN;
  fprintf(out, "%s  %s  %s, closed loop of %d, %d tokens in, %d out, seed %llu\n", o->url, r->model, o->no_stream ? "whole answers" : "streams", o->concurrency,
    o->input_tokens, o->output_tokens, (unsigned long long)o->seed);
  fprintf(out, "requests: %d completed, %d failed", r->completed, r->failed);
  if (r->interrupted) fprintf(out, ", %d interrupted", r->interrupted);
  fprintf(out, " in %.2f s\n", r->span_s);
  for (int i = 0; i < r->n_errors; i++) fprintf(out, "  %d x %s\n", r->errors[i].n, r->errors[i].what);
  fprintf(out, "\n%-34s %-6s%10s%10s%10s%10s%10s%8s  %s\n", "", "", "mean", "P50", "P90", "P95", "P99", "n", "P50, 95 % interval");
  if (!o->no_stream) {
    row(out, "TTFT (first output - sent)", "ms", &r->ttft);
    row(out, "ITL (per request, after first)", "ms", &r->itl);
    row(out, "ICL (each gap between chunks)", "ms", &r->icl);
  }
  row(out, "TPOT incl. first (e2e / tokens)", "ms", &r->tpot);
  row(out, "e2e latency (done - sent)", "ms", &r->e2e);
  fprintf(out, "\n%-34s %-6s%10.2f\n", "output TPS, whole run", "tok/s", (double)r->output_tokens / s);
  fprintf(out, "%-34s %-6s%10.2f\n", "total TPS (input + output)", "tok/s", (double)(r->input_tokens + r->output_tokens) / s);
  fprintf(out, "%-34s %-6s%10.3f\n", "RPS, completed", "1/s", r->completed / s);
  fprintf(out, "%-34s %-6s%10.1f  (per request %.1f)\n", "input tokens, server's count", "tok", (double)r->input_tokens, (double)r->input_tokens / r->completed);
  fprintf(out, "%-34s %-6s%10.1f  (cached share of input)\n", "cache hits", "%", r->input_tokens ? 100.0 * (double)r->cached_tokens / (double)r->input_tokens : 0);
  if (r->counted_by_chunks) fprintf(out, "%d answers came without usage: their output is counted in chunks\n", r->counted_by_chunks);
  double off = o->input_tokens ? (double)r->input_tokens / r->completed / o->input_tokens - 1 : 0;
  if (r->input_tokens && fabs(off) > 0.1) fprintf(out, "note: the server counts %+.0f %% against the %d input tokens asked for\n", off * 100, o->input_tokens);
}

static json_t *num(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static void series(json_t *j, const char *name, stats *s) {
  char key[64];
  snprintf(key, sizeof key, "mean_%s_ms", name);
  json_object_set_new(j, key, num(stats_mean(s)));
  snprintf(key, sizeof key, "median_%s_ms", name);
  json_object_set_new(j, key, num(stats_pct(s, 50)));
  snprintf(key, sizeof key, "std_%s_ms", name);
  json_object_set_new(j, key, num(stats_std(s)));
  for (int i = 0; i < 4; i++) {
    snprintf(key, sizeof key, "p%.0f_%s_ms", pcts[i], name);
    json_object_set_new(j, key, stats_pct_ok(s, pcts[i]) ? num(stats_pct(s, pcts[i])) : json_null());
  }
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
  json_object_set_new(j, "total_cached_tokens", json_integer(r->cached_tokens));
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
  json_t *errors = json_array();
  for (int i = 0; i < r->n_errors; i++) json_array_append_new(errors, json_pack("{s:s, s:i}", "error", r->errors[i].what, "count", r->errors[i].n));
  json_object_set_new(j, "errors", errors);
  return j;
}
