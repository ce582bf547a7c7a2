/* price.h - what a provider's usage costs: a table of unit prices with validity, and the one sum over tokens.
 * Not the cost of our own machine (that is device time) and not a search for prices: a model that is not in the table has an unknown cost, never 0.
 * Ownership: a table owns its rows and names; versions and names handed out are borrowed from it.
 * Threads: immutable after the last price_load_*; any thread may ask.
 * Failure: ERR_INPUT naming file, entry and field. Unit prices are whole femto-dollars (1e-15 USD) a unit, costs whole nano-dollars; each component
 * is rounded once, half to even. Source of the field names: LiteLLM's model_prices_and_context_window.json. A name is a kind with suffixes in any
 * order: "_above_200k_tokens" (the whole request is priced so when its input is larger), "_above_1hr" (cache writes kept for an hour), "_batches",
 * "_flex", "_priority" (service tiers). */
#ifndef LEDGER_PRICE_H
#define LEDGER_PRICE_H
#include "ledger/row.h"

typedef struct price_table price_table;
bool price_table_new(price_table **ret, err *e);
void price_table_free(price_table *t);
/* LiteLLM's JSON as it is: entries without prices and fields that are none are passed over; valid at any time. */
bool price_load_litellm(price_table *t, str json, const char *name, err *e);
/* Our YAML: a list `prices` of {provider, model, from, until, aliases, LiteLLM's cost fields}. An unknown field is refused; so are two rows of one
 * model whose dates overlap. A row here wins over LiteLLM's. */
bool price_load_yaml(price_table *t, str yaml, const char *name, err *e);
int price_count(const price_table *t);

typedef struct price_use {
  int64_t input_fresh, input_cached, cache_write_5m, cache_write_1h, output, reasoning; /* output includes reasoning */
  int64_t audio_in, audio_out;                                                          /* tokens; part of input_fresh and of output */
  int64_t images, requests;
  str tier; /* "batch", "flex", "priority"; "" or "default": none */
} price_use;
typedef struct price_cost {
  int64_t input, cached, cache_write, output, other, total; /* nano-dollars */
  const char *version;                                      /* "openai/gpt-x@2026-01-01 (prices.yaml)" */
} price_cost;

typedef enum price_answer { PRICE_KNOWN, PRICE_NO_MODEL, PRICE_NO_FIELD } price_answer;
/* provider may be "". ts: Unix nanoseconds. NO_FIELD: something was used that the row has no price for (*ret_field names it): the cost is unknown. */
price_answer price_ask(const price_table *t, str provider, str model, int64_t ts, const price_use *u, price_cost *ret, const char **ret_field);
/* Puts cost and version into a row from the row's own tokens, tier, provider, model and ts. False: unknown, the columns stay absent. */
bool price_row(const price_table *t, led_row *r);
#endif
