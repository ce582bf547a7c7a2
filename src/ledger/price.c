#include "ledger/price.h"
#include "base/arena.h"
#include "base/yaml.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TABLE_MEM = 64 << 20, UNITS_MAX = 64, ROWS_MAX = 1 << 17 };

typedef enum unit_kind {
  U_INPUT,
  U_CACHED,
  U_WRITE,
  U_WRITE_1H,
  U_OUTPUT,
  U_REASONING,
  U_AUDIO_IN,
  U_AUDIO_OUT,
  U_IMAGE,
  U_REQUEST,
  U_KINDS
} unit_kind;
typedef enum tier { TIER_NONE, TIER_BATCH, TIER_FLEX, TIER_PRIORITY } tier;

static const char *const kind_names[U_KINDS] = {"input_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr", "output_cost_per_token", "output_cost_per_reasoning_token", "input_cost_per_audio_token",
    "output_cost_per_audio_token", "input_cost_per_image", "input_cost_per_request"};
/* What is charged where the row has no price of a kind's own: -1: it is unknown. A provider that names no discount for cached input charges it as
 * input. */
static const int instead[U_KINDS] = {-1, U_INPUT, U_INPUT, U_WRITE, -1, U_OUTPUT, -1, -1, -1, -1};
static const struct {
  const char *suffix;
  tier tier;
} tier_names[] = {{"_batches", TIER_BATCH}, {"_flex", TIER_FLEX}, {"_priority", TIER_PRIORITY}};

typedef struct unit {
  unit_kind kind;
  tier tier;
  int64_t above; /* input tokens; the price holds for requests with more */
  int64_t femto; /* USD * 1e15 */
} unit;

typedef struct price {
  const char *provider, *model, *version;
  int64_t from, until; /* valid in [from, until), Unix ns */
  int rank;            /* ours before LiteLLM's */
  unit *units;         /* [n] */
  int n;
} price;

struct price_table {
  arena mem;
  price *rows; /* sorted by (model, provider, rank, from) once asked for */
  int n, cap;
};

bool price_table_new(price_table **ret, err *e) {
  price_table *t = calloc(1, sizeof *t);
  if (!t) return err_set(e, ERR_NOMEM, "out of memory for the price table");
  arena_init(&t->mem, TABLE_MEM);
  *ret = t;
  return true;
}

void price_table_free(price_table *t) {
  if (!t) return;
  arena_fini(&t->mem);
  free(t->rows);
  free(t);
}

int price_count(const price_table *t) { return t->n; }

/* ---- reading a row ---- */

/* Takes "_above_200k_tokens", "_above_1hr" and tiers off the end of a field's name until a kind is left. False: it is no price that is known. */
static bool read_name(const char *field, unit *ret) {
  str s = str_c(field);
  *ret = (unit){.kind = U_KINDS};
  bool hour = false;
  for (;;) {
    for (int k = 0; k < U_KINDS; k++)
      if (str_is(s, kind_names[k])) {
        if (hour && k != U_WRITE) return false;
        ret->kind = hour ? U_WRITE_1H : (unit_kind)k;
        return true;
      }
    size_t was = s.n;
    for (size_t i = 0; i < sizeof tier_names / sizeof *tier_names; i++)
      if (str_ends(s, str_c(tier_names[i].suffix))) {
        ret->tier = tier_names[i].tier;
        s.n -= strlen(tier_names[i].suffix);
      }
    if (str_ends(s, STR("_above_1hr"))) {
      hour = true;
      s.n -= sizeof "_above_1hr" - 1;
    }
    if (str_ends(s, STR("k_tokens"))) {
      size_t d = s.n - (sizeof "k_tokens" - 1), at = d;
      while (at > 0 && s.p[at - 1] >= '0' && s.p[at - 1] <= '9') at--;
      str above = STR("_above_");
      if (at < d && d - at < 8 && str_ends((str){s.p, at}, above) && str_i64((str){s.p + at, d - at}, &ret->above)) {
        ret->above *= 1000;
        s.n = at - above.n;
      }
    }
    if (s.n == was) return false;
  }
}

static bool read_unit(const char *name, json_t *v, unit *u, err *e) {
  if (!json_is_number(v)) return err_param(e, ERR_INPUT, name, "'%s' must be a number of dollars, not %s", name, json_type_name(v));
  double d = json_number_value(v);
  if (!(d >= 0 && d <= 1000)) return err_param(e, ERR_INPUT, name, "'%s' is %g: expected 0 to 1000 dollars a unit", name, d);
  u->femto = (int64_t)llround(d * 1e15);
  return true;
}

static bool add_row(price_table *t, const price *p, err *e) {
  if (t->n == t->cap) {
    int cap = t->cap ? t->cap * 2 : 64;
    price *v = cap <= ROWS_MAX ? realloc(t->rows, sizeof *v * (size_t)cap) : NULL;
    if (!v) return err_set(e, ERR_NOMEM, "no room for %d prices", cap);
    t->rows = v;
    t->cap = cap;
  }
  t->rows[t->n++] = *p;
  return true;
}

static bool keep(price_table *t, price *p, str provider, str model, const unit *units, const char *name, const char *date, err *e) {
  char version[400];
  snprintf(version, sizeof version, "%.*s%s%.*s%s%s (%s)", (int)(provider.n < 100 ? provider.n : 100), provider.p ? provider.p : "",
      provider.n ? "/" : "", (int)(model.n < 150 ? model.n : 150), model.p, date ? "@" : "", date ? date : "", name);
  p->provider = arena_str(&t->mem, provider.p ? provider : STR(""));
  p->model = arena_str(&t->mem, model);
  p->version = arena_str(&t->mem, str_c(version));
  p->units = ARENA_ARRAY(&t->mem, unit, (size_t)p->n + 1);
  if (!p->provider || !p->model || !p->version || !p->units) return err_set(e, ERR_NOMEM, "out of memory for the price table");
  memcpy(p->units, units, sizeof *units * (size_t)p->n);
  return add_row(t, p, e);
}

/* By model, provider, ours first, then date: what belongs together lies side by side. */
static int by_name(const void *a, const void *b) {
  const price *x = a, *y = b;
  int c = strcmp(x->model, y->model);
  if (!c) c = strcmp(x->provider, y->provider);
  if (!c) c = x->rank - y->rank;
  return c ? c : x->from < y->from ? -1 : x->from > y->from;
}

static bool finish(price_table *t, const char *name, err *e) {
  if (t->n) qsort(t->rows, (size_t)t->n, sizeof *t->rows, by_name);
  for (int i = 1; i < t->n; i++) {
    const price *a = &t->rows[i - 1], *b = &t->rows[i];
    if (strcmp(a->model, b->model) || strcmp(a->provider, b->provider) || a->rank != b->rank || b->from >= a->until) continue;
    if (a->rank) continue; /* LiteLLM's file has one row a model; a second file of its kind repeats them */
    return err_set(e, ERR_INPUT, "%s: the prices %s and %s are valid at the same time: end the first with 'until'", name, a->version, b->version);
  }
  return true;
}

/* ---- LiteLLM's file ---- */

bool price_load_litellm(price_table *t, str json, const char *name, err *e) {
  json_t *doc = NULL, *v, *field;
  const char *model, *key;
  if (!json_parse(json, &doc, e)) return err_prefix(e, "%s", name);
  bool ok = json_is_object(doc) || err_set(e, ERR_INPUT, "%s: expected an object of models, not %s", name, json_type_name(doc));
  if (ok) json_object_foreach(doc, model, v) {
      unit units[UNITS_MAX];
      price p = {.from = INT64_MIN, .until = INT64_MAX, .rank = 1};
      str provider = {NULL, 0};
      if (!json_is_object(v) || !strcmp(model, "sample_spec")) continue;
      if (!json_get_str(v, model, "litellm_provider", &provider, NULL)) continue;
      json_object_foreach(v, key,
          field) if (p.n < UNITS_MAX && json_is_number(field) && read_name(key, &units[p.n]) && read_unit(key, field, &units[p.n], NULL)) p.n++;
      if (p.n && !(ok = keep(t, &p, provider, str_c(model), units, name, NULL, e))) break;
    }
  json_decref(doc);
  return ok && finish(t, name, e);
}

/* ---- our file ---- */

/* "2026-01-31" -> Unix ns of its first moment in UTC. */
static bool read_date(json_t *row, const char *at, const char *key, int64_t *ret, char date[16], err *e) {
  str s = {NULL, 0};
  char text[16];
  struct tm tm = {0};
  if (!json_get_str(row, at, key, &s, e)) return false;
  if (!s.p) return true;
  snprintf(text, sizeof text, "%.*s", (int)(s.n < 15 ? s.n : 15), s.p);
  const char *end = strptime(text, "%Y-%m-%d", &tm);
  if (s.n != 10 || !end || *end) return err_param(e, ERR_INPUT, key, "%s.%s is '%s': expected a date as 2026-01-31", at, key, text);
  *ret = (int64_t)timegm(&tm) * 1000000000;
  if (date) memcpy(date, text, sizeof text);
  return true;
}

static bool read_row(price_table *t, json_t *row, const char *at, const char *name, err *e) {
  static const char *const own[] = {"provider", "model", "from", "until", "aliases", "note", "source"};
  unit units[UNITS_MAX];
  price p = {.from = INT64_MIN, .until = INT64_MAX};
  str provider = {NULL, 0}, model = {NULL, 0};
  json_t *aliases = NULL, *v;
  char date[16] = "";
  const char *key;
  if (!json_is_object(row)) return err_set(e, ERR_INPUT, "%s must be a mapping, not %s", at, json_type_name(row));
  if (!json_get_str(row, at, "provider", &provider, e) || !json_get_str(row, at, "model", &model, e) ||
      !json_get_array(row, at, "aliases", &aliases, e))
    return false;
  if (!model.n) return err_param(e, ERR_INPUT, "model", "%s.model is missing", at);
  if (!read_date(row, at, "from", &p.from, date, e) || !read_date(row, at, "until", &p.until, NULL, e)) return false;
  if (p.until <= p.from) return err_param(e, ERR_INPUT, "until", "%s.until is not after 'from'", at);
  json_object_foreach(row, key, v) {
    bool known = false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) known |= !strcmp(key, own[i]);
    if (known) continue;
    if (p.n == UNITS_MAX) return err_set(e, ERR_INPUT, "%s has more than %d prices", at, UNITS_MAX);
    if (!read_name(key, &units[p.n])) return err_param(e, ERR_INPUT, key, "%s has the field '%s', which is no price that is known", at, key);
    if (!read_unit(key, v, &units[p.n++], e)) return err_prefix(e, "%s", at);
  }
  if (!p.n) return err_set(e, ERR_INPUT, "%s has no price", at);
  price one = p;
  if (!keep(t, &one, provider, model, units, name, *date ? date : NULL, e)) return false;
  for (size_t i = 0; i < json_array_size(aliases); i++) {
    json_t *a = json_array_get(aliases, i);
    if (!json_is_string(a)) return err_param(e, ERR_INPUT, "aliases", "%s.aliases[%zu] must be a string, not %s", at, i, json_type_name(a));
    one = p;
    if (!keep(t, &one, provider, str_c(json_string_value(a)), units, name, *date ? date : NULL, e)) return false;
  }
  return true;
}

bool price_load_yaml(price_table *t, str yaml, const char *name, err *e) {
  json_t *doc = NULL, *rows = NULL;
  if (!yaml_parse(yaml, name, &doc, e)) return false;
  bool ok = json_is_object(doc) || err_set(e, ERR_INPUT, "%s: expected a mapping with 'prices', not %s", name, json_type_name(doc));
  ok = ok && json_get_array(doc, name, "prices", &rows, e);
  ok = ok && (rows || err_param(e, ERR_INPUT, "prices", "%s: 'prices' is missing: a list of prices", name));
  for (size_t i = 0; ok && i < json_array_size(rows); i++) {
    char at[32];
    snprintf(at, sizeof at, "prices[%zu]", i);
    ok = read_row(t, json_array_get(rows, i), at, name, e) || err_prefix(e, "%s", name);
  }
  json_decref(doc);
  return ok && finish(t, name, e);
}

/* ---- asking ---- */

static const price *find(const price_table *t, str provider, str model, int64_t ts) {
  int lo = 0, hi = t->n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    str m = str_c(t->rows[mid].model);
    size_t k = m.n < model.n ? m.n : model.n;
    int c = memcmp(m.p, model.p, k);
    if (c < 0 || (!c && m.n < model.n)) lo = mid + 1;
    else hi = mid;
  }
  const price *best = NULL;
  for (; lo < t->n && str_is(model, t->rows[lo].model); lo++) {
    const price *p = &t->rows[lo];
    if (provider.n && *p->provider && !str_is(provider, p->provider)) continue;
    if (ts < p->from || ts >= p->until) continue;
    if (!best || p->rank < best->rank) best = p;
  }
  return best;
}

/* LiteLLM names some models with their provider in front, some without. */
static const price *find_either(const price_table *t, str provider, str model, int64_t ts) {
  const price *p = find(t, provider, model, ts);
  char both[300];
  if (p || !provider.n || provider.n + model.n + 2 > sizeof both) return p;
  snprintf(both, sizeof both, "%.*s/%.*s", (int)provider.n, provider.p, (int)model.n, model.p);
  return find(t, provider, str_c(both), ts);
}

static tier tier_of(str name) {
  if (str_is(name, "batch") || str_is(name, "batches")) return TIER_BATCH;
  return str_is(name, "flex") ? TIER_FLEX : str_is(name, "priority") ? TIER_PRIORITY : TIER_NONE;
}

static bool has_tier(const price *p, tier want) {
  for (int i = 0; i < p->n; i++)
    if (p->units[i].tier == want) return true;
  return false;
}

/* The unit price: of the tier where there is one, of the highest threshold that the input is over. */
static const unit *pick(const price *p, unit_kind k, int64_t input, tier want) {
  const unit *best = NULL;
  for (int i = 0; i < p->n; i++) {
    const unit *u = &p->units[i];
    if (u->kind != k || (u->tier != want && u->tier != TIER_NONE) || (u->above && input <= u->above)) continue;
    if (!best || (u->tier != best->tier ? u->tier == want : u->above > best->above)) best = u;
  }
  return best || instead[k] < 0 ? best : pick(p, (unit_kind)instead[k], input, want);
}

typedef struct bill {
  const price *p;
  int64_t input;
  tier tier;
  const char *missing;
} bill;

static __int128 charge(bill *b, unit_kind k, int64_t n) {
  if (n <= 0) return 0;
  const unit *u = pick(b->p, k, b->input, b->tier);
  if (!u) {
    if (!b->missing) b->missing = kind_names[k];
    return 0;
  }
  return (__int128)u->femto * n;
}

static int64_t nano(__int128 femto) {
  const int64_t per = 1000000;
  __int128 whole = femto / per, rest = femto % per * 2;
  if (rest > per || (rest == per && (whole & 1))) whole++;
  return (int64_t)whole;
}

price_answer price_ask(const price_table *t, str provider, str model, int64_t ts, const price_use *u, price_cost *ret, const char **ret_field) {
  bill b = {.p = find_either(t, provider, model, ts), .tier = tier_of(u->tier)};
  price_cost c = {0};
  if (!b.p) return PRICE_NO_MODEL;
  b.input = u->input_fresh + u->input_cached + u->cache_write_5m + u->cache_write_1h;
  if (b.tier != TIER_NONE && !has_tier(b.p, b.tier)) b.missing = "service_tier";
  c.input = nano(charge(&b, U_INPUT, u->input_fresh - u->audio_in));
  c.cached = nano(charge(&b, U_CACHED, u->input_cached));
  c.cache_write = nano(charge(&b, U_WRITE, u->cache_write_5m) + charge(&b, U_WRITE_1H, u->cache_write_1h));
  c.output = nano(charge(&b, U_OUTPUT, u->output - u->reasoning - u->audio_out) + charge(&b, U_REASONING, u->reasoning));
  __int128 request = pick(b.p, U_REQUEST, b.input, b.tier) ? charge(&b, U_REQUEST, u->requests) : 0;
  c.other = nano(charge(&b, U_AUDIO_IN, u->audio_in) + charge(&b, U_AUDIO_OUT, u->audio_out) + charge(&b, U_IMAGE, u->images) + request);
  c.total = c.input + c.cached + c.cache_write + c.output + c.other;
  c.version = b.p->version;
  if (b.missing) {
    if (ret_field) *ret_field = b.missing;
    return PRICE_NO_FIELD;
  }
  *ret = c;
  return PRICE_KNOWN;
}

static int64_t zero(int64_t v) { return led_given(v) ? v : 0; }

bool price_row(const price_table *t, led_row *r) {
  price_use u = {.input_fresh = zero(r->input_fresh),
      .input_cached = zero(r->input_cached),
      .cache_write_5m = zero(r->cache_write_5m),
      .cache_write_1h = zero(r->cache_write_1h),
      .output = zero(r->output),
      .reasoning = zero(r->reasoning),
      .images = zero(r->images),
      .requests = 1,
      .tier = r->service_tier};
  price_cost c;
  if (price_ask(t, r->provider, r->model, r->ts, &u, &c, NULL) != PRICE_KNOWN) return false;
  r->cost_input = c.input;
  r->cost_cached = c.cached;
  r->cost_cache_write = c.cache_write;
  r->cost_output = c.output;
  r->cost_other = c.other;
  r->cost_total = c.total;
  r->price_version = str_c(c.version);
  return true;
}
