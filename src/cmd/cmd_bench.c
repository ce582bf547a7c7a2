/* weir bench: the load generator, first form: a closed loop against any OpenAI-compatible URL. */
#include "base/json.h"
#include "base/os.h"
#include "base/rng.h"
#include "cmd/cmd.h"
#include "load/report.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef struct bench_opts {
  const char *url, *model, *json, *key_env;
  int64_t concurrency, requests, warmup, input, output, seed;
  double temperature;
  bool no_stream, completions, allow_eos, quiet;
} bench_opts;

#define AT(f) offsetof(bench_opts, f)
static const opt_row rows[] = {
    {"url", 0, NULL, OPT_STR, AT(url), 0, 0, NULL, "http://127.0.0.1:8080", false, "Target", "URL", "base URL; /v1 is added when it has no path"},
    {"model", 'm', NULL, OPT_STR, AT(model), 0, 0, NULL, NULL, false, "Target", "NAME", "model to ask for (default: the first the server lists)"},
    {"key-env", 0, NULL, OPT_STR, AT(key_env), 0, 0, NULL, NULL, false, "Target", "VAR",
        "environment variable that holds the API key (default OPENAI_API_KEY, if set)"},
    {"completions", 0, NULL, OPT_FLAG, AT(completions), 0, 0, NULL, NULL, false, "Target", NULL, "use /v1/completions instead of chat"},
    {"concurrency", 'c', NULL, OPT_INT, AT(concurrency), 1, 20000, NULL, "1", false, "Load", "N", "users in the closed loop"},
    {"requests", 'n', NULL, OPT_INT, AT(requests), 1, 1e8, NULL, "20", false, "Load", "R", "requests to measure"},
    {"warmup", 0, NULL, OPT_INT, AT(warmup), 0, 1e6, NULL, "1", false, "Load", "R", "requests before that, not measured, prompts of their own"},
    {"input-tokens", 'i', NULL, OPT_INT, AT(input), 1, 1e7, NULL, "128", false, "Load", "I",
        "prompt length; calibrated against the server's own count"},
    {"output-tokens", 'o', NULL, OPT_INT, AT(output), 1, 1e7, NULL, "64", false, "Load", "O", "answer length (max_tokens, with ignore_eos)"},
    {"allow-eos", 0, NULL, OPT_FLAG, AT(allow_eos), 0, 0, NULL, NULL, false, "Load", NULL,
        "let answers end early: no ignore_eos is sent (for servers that refuse it)"},
    {"temperature", 0, NULL, OPT_FLOAT, AT(temperature), 0, 2, NULL, "0", false, "Load", "T", "sampling temperature"},
    {"no-stream", 0, NULL, OPT_FLAG, AT(no_stream), 0, 0, NULL, NULL, false, "Load", NULL, "whole answers: no TTFT, ITL and ICL then"},
    {"seed", 0, NULL, OPT_INT, AT(seed), -1, 9e15, NULL, "-1", false, "Load", "N", "of the prompts; -1 draws one and prints it"},
    {"json", 0, NULL, OPT_STR, AT(json), 0, 0, NULL, NULL, false, "Output", "FILE",
        "also write the result as JSON (vLLM's field names); - is stdout"},
    {"quiet", 'q', NULL, OPT_FLAG, AT(quiet), 0, 0, NULL, NULL, false, "Output", NULL, "no progress line"},
    {0},
};

const opt_cmd cmd_bench_opts = {"bench", "", "measure a server's latency and throughput",
    "A closed loop of N users: each sends its next request when the last one has ended. Prompts are random words, no two alike, so that no cache is "
    "hit by "
    "accident; two small probes tell how many words make a token. Ctrl-C ends the run and reports what was measured. Exit status 1 when a request "
    "failed.",
    rows, sizeof(bench_opts), 0, 0};

/* Before a run of perhaps an hour, not after it. */
static bool can_write(const char *path, err *e) {
  char dir[OS_PATH];
  if (strcmp(path, "-") == 0 || access(path, W_OK) == 0) return true;
  if (errno == ENOENT) {
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    if (access(dir, W_OK) == 0) return true;
  }
  return err_errno(e, errno, "cannot write %s", path);
}

static bool write_json(const char *path, const load_opts *o, load_result *r, err *e) {
  json_t *j = report_json(o, r);
  errno = 0;
  FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
  bool ok = f && j && json_dumpf(j, f, JSON_INDENT(2)) == 0 && fputc('\n', f) != EOF;
  if (f && f != stdout) ok = fclose(f) == 0 && ok;
  json_decref(j);
  return ok ? true : err_errno(e, errno ? errno : ENOMEM, "cannot write %s", path);
}

static int bench(const load_opts *l, const char *json, err *e) {
  load_result r;
  bool only_json = json && strcmp(json, "-") == 0, ok;
  if (json && !can_write(json, e)) return cmd_fail("bench", e);
  ok = load_run(l, &r, e);
  if (ok && !only_json) report_table(stdout, l, &r);
  if (ok && json) ok = write_json(json, l, &r, e);
  int status = !ok ? cmd_fail("bench", e) : r.interrupted ? 130 : r.failed ? 1 : 0;
  load_result_fini(&r);
  return status;
}

int cmd_bench(int argc, char **argv) {
  bench_opts o;
  char **pos;
  const char *key;
  int n_pos;
  bool helped = false;
  err e = {0};
  if (!opt_parse(&cmd_bench_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e) || (!helped && !openai_target_key(o.key_env, &key, &e)))
    return cmd_fail("bench", &e);
  if (helped) return 0;
  load_opts l = {.url = o.url,
      .model = o.model,
      .key = key,
      .completions = o.completions,
      .no_stream = o.no_stream,
      .ignore_eos = !o.allow_eos,
      .concurrency = (int)o.concurrency,
      .requests = (int)o.requests,
      .warmup = (int)o.warmup,
      .input_tokens = (int)o.input,
      .output_tokens = (int)o.output,
      .temperature = o.temperature,
      .seed = o.seed < 0 ? rng_seed() >> 11 : (uint64_t)o.seed,
      .quiet = o.quiet};
  return bench(&l, o.json, &e);
}
