#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/json.h"
#include "ledger/price.h"
#include <stdlib.h>
#include <time.h>

static price_table *table(const char *yaml) {
  price_table *t;
  err e = {0};
  assert_true(price_table_new(&t, &e));
  if (yaml && !price_load_yaml(t, str_c(yaml), "prices.yaml", &e)) fail_msg("%s", e.msg);
  return t;
}

static char *golden(const char *file) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/golden/bill/%s", getenv("WEIR_SRC") ? getenv("WEIR_SRC") : WEIR_SRC_DIR, file);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  char *text = calloc(1, 1 << 20);
  assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
  fclose(f);
  return text;
}

static int64_t day(const char *date) {
  struct tm tm = {0};
  assert_non_null(strptime(date, "%Y-%m-%d", &tm));
  return (int64_t)timegm(&tm) * 1000000000;
}

/* Examples of the bill that come out otherwise; *ret_n of all. */
static int wrong(const char *yaml, char *bill, int *ret_n, char why[512]) {
  price_table *t = table(yaml);
  int n = 0, bad = 0;
  for (char *line; (line = strsep(&bill, "\n")) && *line;) {
    char model[64], date[16], tier[16];
    price_use u = {0};
    price_cost want, seen;
    if (*line == '#') continue;
    int fields = sscanf(line, "%63s %15s %15s %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", model, date, tier, &u.input_fresh, &u.input_cached,
        &u.cache_write_5m, &u.cache_write_1h, &u.output, &u.reasoning, &want.input, &want.cached, &want.cache_write, &want.output, &want.total);
    assert_int_equal(fields, 14);
    u.tier = str_c(*tier == '-' ? "" : tier);
    if (price_ask(t, STR(""), str_c(model), day(date), &u, &seen, NULL) != PRICE_KNOWN) fail_msg("no price: %s", line);
    bool same = seen.input == want.input && seen.cached == want.cached && seen.cache_write == want.cache_write && seen.output == want.output;
    if (!(same && seen.total == want.total) && !bad++) snprintf(why, 512, "%s: saw %ld in all", line, seen.total);
    n++;
  }
  price_table_free(t);
  *ret_n = n;
  return bad;
}

/* Every example of the golden bill (tools/make_bill_golden.py), each part to the nano-dollar; and one unit price off by ten cents a million tokens
 * is seen. */
static void test_golden_bill(void **state) {
  (void)state;
  char *yaml = golden("prices.yaml"), *bill = golden("bill.tsv"), *again = golden("bill.tsv"), why[512] = "";
  int n;
  if (wrong(yaml, bill, &n, why)) fail_msg("%s", why);
  assert_true(n >= 60);
  char *at = strstr(yaml, "input_cost_per_token: 2.5E-6");
  assert_non_null(at);
  memcpy(at + sizeof "input_cost_per_token: " - 1, "2.6E-6", 6);
  assert_true(wrong(yaml, again, &n, why) > 0);
  free(yaml);
  free(bill);
  free(again);
}

static void test_unknown_is_not_zero(void **state) {
  (void)state;
  price_table *t = table("prices:\n- {provider: p, model: m, input_cost_per_token: 1e-6, output_cost_per_token: 2e-6}\n");
  price_use u = {.input_fresh = 10, .output = 1};
  price_cost c;
  const char *field = NULL;
  assert_int_equal(price_ask(t, STR("p"), STR("other"), 0, &u, &c, NULL), PRICE_NO_MODEL);
  assert_int_equal(price_ask(t, STR("q"), STR("m"), 0, &u, &c, NULL), PRICE_NO_MODEL);
  assert_int_equal(price_ask(t, STR("p"), STR("m"), 0, &u, &c, NULL), PRICE_KNOWN);
  assert_int_equal(c.total, 12000);
  u.audio_in = 5;
  assert_int_equal(price_ask(t, STR("p"), STR("m"), 0, &u, &c, &field), PRICE_NO_FIELD);
  assert_string_equal(field, "input_cost_per_audio_token");
  u.audio_in = 0;
  u.tier = STR("batch");
  assert_int_equal(price_ask(t, STR("p"), STR("m"), 0, &u, &c, &field), PRICE_NO_FIELD);
  led_row r;
  led_row_init(&r);
  r.model = STR("other");
  r.input_fresh = 5;
  assert_false(price_row(t, &r));
  assert_false(led_given(r.cost_total));
  r.model = STR("m");
  assert_true(price_row(t, &r));
  assert_int_equal(r.cost_total, 5000);
  assert_true(str_is(r.price_version, "p/m (prices.yaml)"));
  price_table_free(t);
}

static void test_litellm(void **state) {
  (void)state;
  price_table *t = table(NULL);
  price_cost c;
  err e = {0};
  assert_true(price_load_litellm(t,
      STR("{\"sample_spec\": {\"input_cost_per_token\": \"text\"}, \"gpt-x\": {\"litellm_provider\": \"openai\", \"mode\": \"chat\", \"max_tokens\": "
          "9,"
          "\"input_cost_per_token\": 2.5e-06, \"cache_read_input_token_cost\": 1.25e-06, \"output_cost_per_token\": 1e-05, \"supports_vision\": true,"
          "\"input_cost_per_token_above_200k_tokens_priority\": 7e-06, \"search_context_cost_per_query\": {\"low\": 0.03}},"
          "\"gemini/g\": {\"litellm_provider\": \"gemini\", \"input_cost_per_token\": 1e-06}, \"free\": {\"litellm_provider\": \"x\", \"mode\": "
          "\"chat\"}}"),
      "litellm.json", &e));
  assert_int_equal(price_count(t), 2);
  price_use u = {.input_fresh = 1000, .input_cached = 1000, .output = 100};
  assert_int_equal(price_ask(t, STR("openai"), STR("gpt-x"), 5, &u, &c, NULL), PRICE_KNOWN);
  assert_int_equal(c.total, 2500000 + 1250000 + 1000000);
  u = (price_use){.input_fresh = 200001, .tier = STR("priority")};
  assert_int_equal(price_ask(t, STR("openai"), STR("gpt-x"), 5, &u, &c, NULL), PRICE_KNOWN);
  assert_int_equal(c.total, 200001 * 7000);
  u = (price_use){.input_fresh = 3};
  assert_int_equal(price_ask(t, STR("gemini"), STR("g"), 5, &u, &c, NULL), PRICE_KNOWN);
  /* ours wins */
  assert_true(price_load_yaml(t, STR("prices:\n- {provider: openai, model: gpt-x, aliases: [gpt-x-2], input_cost_per_token: 1}\n"), "p.yaml", &e));
  assert_int_equal(price_ask(t, STR("openai"), STR("gpt-x-2"), 5, &u, &c, NULL), PRICE_KNOWN);
  assert_int_equal(price_ask(t, STR("openai"), STR("gpt-x"), 5, &u, &c, NULL), PRICE_KNOWN);
  assert_int_equal(c.total, INT64_C(3000000000));
  price_table_free(t);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *yaml, *says;
  } bad[] = {{"prices:\n- {model: m, input_cost_per_tokn: 1e-6}\n", "input_cost_per_tokn"},
      {"prices:\n- {input_cost_per_token: 1e-6}\n", "model is missing"}, {"prices:\n- {model: m}\n", "has no price"},
      {"prices:\n- {model: m, input_cost_per_token: -1}\n", "expected 0 to 1000"},
      {"prices:\n- {model: m, input_cost_per_token: cheap}\n", "must be a number"},
      {"prices:\n- {model: m, from: tomorrow, input_cost_per_token: 1}\n", "a date"},
      {"prices:\n- {model: m, from: 2026-02-01, until: 2026-01-01, input_cost_per_token: 1}\n", "not after"}, {"price: []\n", "'prices' is missing"},
      {"prices:\n- {model: m, until: 2026-02-02, input_cost_per_token: 1}\n- {model: m, from: 2026-02-01, input_cost_per_token: 1}\n",
          "at the same time"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    price_table *t = table(NULL);
    err e = {0};
    assert_false(price_load_yaml(t, str_c(bad[i].yaml), "p.yaml", &e));
    if (!strstr(e.msg, bad[i].says) || !strstr(e.msg, "p.yaml")) fail_msg("'%s' does not say '%s'", e.msg, bad[i].says);
    price_table_free(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_bill), cmocka_unit_test(test_unknown_is_not_zero), cmocka_unit_test(test_litellm),
      cmocka_unit_test(test_refusals)};
  json_setup();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
