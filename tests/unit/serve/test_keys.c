/* Keys and metrics: small parts of the server that need no socket. */
#include "serve/keys.h"
#include "serve/metrics.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static bool load(const char *text, keys **k, err *e) {
  char path[] = "/tmp/weir-keys-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
  bool ok = keys_load(path, k, e);
  unlink(path);
  return ok;
}

static void test_keys(void **s) {
  (void)s;
  keys *k = NULL;
  err e = {0};
  assert_true(load("# a comment\n\n  first-key-1 \nsecond-key\r\n", &k, &e));
  assert_int_equal(keys_count(k), 2);
  str none = {NULL, 0};
  assert_true(keys_check(k, STR("Bearer first-key-1"), none, &e));
  assert_true(keys_check(k, STR("bearer  second-key"), none, &e));
  assert_true(keys_check(k, none, STR("second-key"), &e));
  static const char *const wrong[] = {"Bearer first-key-", "Bearer first-key-12", "Bearer # a comment", "first-key-1", "Bearer", "Basic first-key-1"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_false(keys_check(k, str_c(wrong[i]), none, &e));
    assert_int_equal(e.code, ERR_AUTH);
  }
  assert_false(keys_check(k, none, none, &e));
  keys_free(k);
}

static void test_key_files(void **s) {
  (void)s;
  keys *k = NULL;
  str none = {NULL, 0};
  err e = {0};
  static const struct {
    const char *text, *word;
  } bad[] = {{"", "no key"}, {"# x\n", "no key"}, {"good-key-1\nabc\n", "line 2"}, {"with blank\n", "line 1"},
      {"\xc3\xa9"
       "cccccccc\n",
          "line 1"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_false(load(bad[i].text, &k, &e));
    assert_non_null(strstr(e.msg, bad[i].word));
    assert_null(k);
  }
  assert_false(keys_load("/dev/zero", &k, &e));
  assert_non_null(strstr(e.msg, "larger than 8 MiB"));
  assert_false(keys_load("/tmp", &k, &e));
  assert_non_null(strstr(e.msg, "cannot read"));
  assert_true(load("no-newline-at-the-end", &k, &e));
  assert_true(keys_check(k, none, STR("no-newline-at-the-end"), &e));
  keys_free(k);
  k = NULL;
  assert_false(keys_load("/nonexistent/keys", &k, &e));
  assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void test_histograms(void **s) {
  (void)s;
  metrics *m = metrics_new();
  metrics_observe(m, HIST_TTFT, 0.001); /* a bound belongs to its bucket */
  metrics_observe(m, HIST_TTFT, 0.0011);
  metrics_observe(m, HIST_TTFT, 1e6); /* over the last bound: +Inf only */
  metrics_observe(m, HIST_TTFT, -1);  /* no such time: not counted */
  metrics_observe(m, HIST_TTFT, 0.0 / 0.0);
  metrics_request(m, "/a", "local", 200);
  metrics_request(m, "/a", "local", 200);
  metrics_finish(m, REASON_ABORT);
  metrics_state st = {.model = "q\"m\\\n", .ctx = 100, .ready = true, .g = {.steps = 3, .step_tokens = 40, .step_sizes = {1, 1, 0, 1}}};
  buf b;
  buf_init(&b, 1 << 20);
  metrics_write(m, &st, &b);
#define L "{model_name=\"q\\\"m\\\\\\n\",engine=\"0\""
  static const char *const want[] = {"vllm:time_to_first_token_seconds_bucket" L ",le=\"0.001\"} 1\n",
      "vllm:time_to_first_token_seconds_bucket" L ",le=\"0.005\"} 2\n", "vllm:time_to_first_token_seconds_bucket" L ",le=\"2560\"} 2\n",
      "vllm:time_to_first_token_seconds_bucket" L ",le=\"+Inf\"} 3\n", "vllm:time_to_first_token_seconds_count" L "} 3\n",
      "vllm:request_success_total" L ",finished_reason=\"abort\"} 1\n",
      "weir_requests_total{route=\"/a\",model=\"q\\\"m\\\\\\n\",backend=\"local\",code=\"200\"} 2\n",
      "vllm:iteration_tokens_total_bucket" L ",le=\"8\"} 2\n", "vllm:iteration_tokens_total_bucket" L ",le=\"32\"} 3\n",
      "vllm:request_prompt_tokens_bucket" L ",le=\"100\"} 0\n"};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    if (!strstr(b.p, want[i])) fail_msg("no %s in\n%s", want[i], b.p);
  assert_null(strstr(b.p, "vllm:request_prompt_tokens_bucket" L ",le=\"200\"}")); /* the series ends at the context */
  buf_fini(&b);
  metrics_free(m);
}

static void test_labels_are_bounded(void **s) {
  (void)s;
  metrics *m = metrics_new();
  for (int i = 0; i < 5000; i++) metrics_request(m, "/a", "local", i);
  buf b;
  buf_init(&b, 1 << 20);
  metrics_state st = {.model = "m"};
  metrics_write(m, &st, &b);
  assert_false(b.failed);
  assert_non_null(strstr(b.p, "weir_requests_total{route=\"other\"} 4744\n"));
  buf_fini(&b);
  metrics_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_keys), cmocka_unit_test(test_key_files), cmocka_unit_test(test_histograms), cmocka_unit_test(test_labels_are_bounded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
