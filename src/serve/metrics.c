#include "serve/metrics.h"
#include "base/os.h"
#include <stdlib.h>

enum { BUCKETS = 24, ROUTES = 256 };

/* Bucket bounds are vLLM's own (its v1 Prometheus logger), so that dashboards made for it compute the same quantiles. A 0 ends a list. */
static const double latency[] = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680, 0};
static const double first[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560, 0};
static const double between[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 0};
static const double tokens[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 0};
static const double overhead[] = {1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 0};

static const struct hist_info {
  const char *name, *help;
  const double *bounds;
  bool by_context;
} infos[HIST_COUNT] = {
    [HIST_TTFT] = {"vllm:time_to_first_token_seconds", "Time from the request read to its first token, in seconds.", first, false},
    [HIST_ITL] = {"vllm:inter_token_latency_seconds", "Time between consecutive tokens, in seconds.", between, false},
    [HIST_TPOT] = {"vllm:request_time_per_output_token_seconds", "A request's mean time per output token after the first, in seconds.", between,
        false},
    [HIST_E2E] = {"vllm:e2e_request_latency_seconds", "Time from the request read to its end, in seconds.", latency, false},
    [HIST_QUEUE] = {"vllm:request_queue_time_seconds", "Time a request waited, in seconds.", latency, false},
    [HIST_PREFILL] = {"vllm:request_prefill_time_seconds", "Time from being scheduled to the first token, in seconds.", latency, false},
    [HIST_DECODE] = {"vllm:request_decode_time_seconds", "Time from the first token to the last, in seconds.", latency, false},
    [HIST_INFERENCE] = {"vllm:request_inference_time_seconds", "Time from being scheduled to the last token, in seconds.", latency, false},
    [HIST_PROMPT] = {"vllm:request_prompt_tokens", "Prompt tokens of a request.", tokens, true},
    [HIST_GENERATION] = {"vllm:request_generation_tokens", "Generated tokens of a request.", tokens, true},
    [HIST_OVERHEAD] = {"weir_overhead_seconds", "Time a request spent in the server outside the backend, in seconds.", overhead, false},
};

typedef struct hist {
  uint64_t bucket[BUCKETS], count;
  double sum;
} hist;
typedef struct route_count {
  const char *route, *backend;
  int code;
  uint64_t n;
} route_count;

struct metrics {
  hist h[HIST_COUNT];
  uint64_t reasons[REASON_COUNT];
  route_count routes[ROUTES];
  int n_routes;
  uint64_t other; /* requests that no row was left for */
};

metrics *metrics_new(void) { return calloc(1, sizeof(metrics)); }
void metrics_free(metrics *m) { free(m); }

void metrics_observe(metrics *m, metrics_hist h, double v) {
  if (!(v >= 0)) return;
  const double *b = infos[h].bounds;
  int i = 0;
  while (b[i] > 0 && v > b[i]) i++; /* i past the last bound: only +Inf holds it */
  if (b[i] > 0) m->h[h].bucket[i]++;
  m->h[h].count++;
  m->h[h].sum += v;
}

uint64_t metrics_count(const metrics *m, metrics_hist h) { return m->h[h].count; }
void metrics_finish(metrics *m, metrics_reason r) { m->reasons[r]++; }

void metrics_request(metrics *m, const char *route, const char *backend, int code) {
  for (int i = 0; i < m->n_routes; i++) {
    route_count *c = &m->routes[i];
    if (c->code == code && !strcmp(c->route, route) && !strcmp(c->backend, backend)) {
      c->n++;
      return;
    }
  }
  if (m->n_routes == ROUTES) {
    m->other++;
    return;
  }
  m->routes[m->n_routes++] = (route_count){route, backend, code, 1};
}

static void label(const char *name, const char *value, buf *out) {
  buf_printf(out, "%s=\"", name);
  for (; *value; value++) {
    if (*value == '\\' || *value == '"') buf_putc(out, '\\');
    if (*value == '\n') buf_puts(out, "\\n");
    else buf_putc(out, *value);
  }
  buf_putc(out, '"');
}

static void head(const char *name, const char *type, const char *help, buf *out) {
  buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The labels vLLM puts on everything: one engine, numbered 0. */
static void engine_labels(const metrics_state *s, buf *out) {
  label("model_name", s->model, out);
  buf_puts(out, ",engine=\"0\"");
}

static void write_hist(const metrics *m, metrics_hist id, const metrics_state *s, buf *out) {
  const struct hist_info *i = &infos[id];
  const hist *h = &m->h[id];
  uint64_t sum = 0;
  head(i->name, "histogram", i->help, out);
  for (int b = 0; i->bounds[b] > 0; b++) {
    sum += h->bucket[b];
    if (i->by_context && s->ctx && i->bounds[b] > s->ctx) continue; /* vLLM's series of these ends at the model's context */
    buf_printf(out, "%s_bucket{", i->name);
    engine_labels(s, out);
    buf_printf(out, ",le=\"%.10g\"} %llu\n", i->bounds[b], (unsigned long long)sum);
  }
  buf_printf(out, "%s_bucket{", i->name);
  engine_labels(s, out);
  buf_printf(out, ",le=\"+Inf\"} %llu\n%s_sum{", (unsigned long long)h->count, i->name);
  engine_labels(s, out);
  buf_printf(out, "} %.9g\n%s_count{", h->sum, i->name);
  engine_labels(s, out);
  buf_printf(out, "} %llu\n", (unsigned long long)h->count);
}

static void single(const char *name, const char *type, const char *help, const metrics_state *s, double v, buf *out) {
  head(name, type, help, out);
  buf_printf(out, "%s{", name);
  engine_labels(s, out);
  buf_printf(out, "} %.17g\n", v);
}

static void plain(const char *name, const char *type, const char *help, double v, buf *out) {
  head(name, type, help, out);
  buf_printf(out, "%s %.17g\n", name, v);
}

static void write_engine(const metrics *m, const metrics_state *s, buf *out) {
  const eng_gauges *g = &s->g;
  single("vllm:num_requests_running", "gauge", "Sequences in the running batch.", s, g->running, out);
  single("vllm:num_requests_waiting", "gauge", "Sequences waiting to run.", s, g->waiting, out);
  single("vllm:kv_cache_usage_perc", "gauge", "Share of KV pages in use, 1 is all.", s, g->pages_total ? (double)g->pages_used / g->pages_total : 0,
      out);
  single("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", s, (double)g->prompt_tokens, out);
  single("vllm:generation_tokens_total", "counter", "Tokens generated.", s, (double)g->output_tokens, out);
  single("vllm:num_preemptions_total", "counter", "Sequences put back because KV pages ran out.", s, (double)g->preemptions, out);
  single("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", s, (double)g->cached_queries, out);
  single("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", s, (double)g->cached_hits, out);
  static const char *const reasons[REASON_COUNT] = {"stop", "length", "abort", "error"};
  head("vllm:request_success_total", "counter", "Sequences ended, by reason.", out);
  for (int i = 0; i < REASON_COUNT; i++) {
    buf_puts(out, "vllm:request_success_total{");
    engine_labels(s, out);
    buf_printf(out, ",finished_reason=\"%s\"} %llu\n", reasons[i], (unsigned long long)m->reasons[i]);
  }
}

/* The engine counts its steps by size itself, in vLLM's buckets. */
static void write_steps(const metrics_state *s, buf *out) {
  uint64_t sum = 0;
  head("vllm:iteration_tokens_total", "histogram", "Tokens computed in one step.", out);
  for (int i = 0, most = 1; i < ENG_STEP_SIZES; i++, most = most == 1 ? 8 : most * 2) {
    sum += s->g.step_sizes[i];
    buf_puts(out, "vllm:iteration_tokens_total_bucket{");
    engine_labels(s, out);
    if (i < ENG_STEP_SIZES - 1) buf_printf(out, ",le=\"%d\"} %llu\n", most, (unsigned long long)sum);
    else buf_printf(out, ",le=\"+Inf\"} %llu\n", (unsigned long long)sum);
  }
  buf_puts(out, "vllm:iteration_tokens_total_sum{");
  engine_labels(s, out);
  buf_printf(out, "} %llu\nvllm:iteration_tokens_total_count{", (unsigned long long)s->g.step_tokens);
  engine_labels(s, out);
  buf_printf(out, "} %llu\n", (unsigned long long)s->g.steps);
}

static void write_own(const metrics *m, const metrics_state *s, buf *out) {
  head("weir_requests_total", "counter", "Requests answered.", out);
  for (int i = 0; i < m->n_routes; i++) {
    const route_count *c = &m->routes[i];
    buf_puts(out, "weir_requests_total{");
    label("route", c->route, out);
    buf_putc(out, ',');
    label("model", s->model, out);
    buf_putc(out, ',');
    label("backend", c->backend, out);
    buf_printf(out, ",code=\"%d\"} %llu\n", c->code, (unsigned long long)c->n);
  }
  if (m->other) buf_printf(out, "weir_requests_total{route=\"other\"} %llu\n", (unsigned long long)m->other);
  head("weir_backend_healthy", "gauge", "1 when the backend can take requests.", out);
  buf_printf(out, "weir_backend_healthy{backend=\"local\"} %d\n", s->ready);
  head("weir_bytes", "gauge", "Memory held, by subsystem.", out);
  buf_printf(out, "weir_bytes{subsystem=\"weights\"} %llu\nweir_bytes{subsystem=\"kv\"} %llu\nweir_bytes{subsystem=\"scratch\"} %llu\n",
      (unsigned long long)s->g.weight_bytes, (unsigned long long)s->g.kv_bytes, (unsigned long long)s->g.scratch_bytes);
  plain("weir_replicas_ready", "gauge", "Replicas that can take requests.", s->ready, out);
  plain("weir_replicas_desired", "gauge", "Replicas wanted.", 1, out);
  plain("process_resident_memory_max_bytes", "gauge", "Peak resident memory of the process.", (double)os_rss_peak(), out);
}

void metrics_write(const metrics *m, const metrics_state *s, buf *out) {
  write_engine(m, s, out);
  for (int h = 0; h < HIST_COUNT; h++) write_hist(m, h, s, out);
  write_steps(s, out);
  write_own(m, s, out);
}
