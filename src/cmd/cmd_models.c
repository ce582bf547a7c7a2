#include "base/json.h"
#include "cmd/cmd.h"
#include "fetch/fetch.h"
#include "term/progress.h"

typedef struct models_opts {
  bool json, here;
} models_opts;

static const opt_row rows[] = {
    {"json", 0, NULL, OPT_FLAG, offsetof(models_opts, json), 0, 0, NULL, NULL, false, "Output", NULL, "a JSON array instead of the table"},
    {"here", 0, NULL, OPT_FLAG, offsetof(models_opts, here), 0, 0, NULL, NULL, false, "Output", NULL, "only what is on this machine"},
    {0},
};

const opt_cmd cmd_models_opts = {"models", "", "list the models known by name, and what is on this machine",
    "State: verified (complete, its SHA-256 was checked), partial (a pull was interrupted), unverified (a file of that name whose hash was not "
    "checked: `weir pull` does), "
    "- (not here). In brackets: the sampling used where neither a request nor the model's file says, as its makers recommend. Fetch only: this "
    "version can bring the model here but not run it. Models of your own go into $XDG_CONFIG_HOME/weir/models.yaml.",
    rows, sizeof(models_opts), 0, 0};

static const char *text(const json_t *o, const char *key) {
  const char *s = json_string_value(json_object_get(o, key));
  return s && *s ? s : "-";
}

static void state(const json_t *o, char out[32]) {
  const char *s = text(o, "state");
  double have = (double)json_integer_value(json_object_get(o, "have_bytes")), all = (double)json_integer_value(json_object_get(o, "bytes"));
  if (strcmp(s, "partial") == 0 && all > 0) snprintf(out, 32, "partial %.0f %%", 100 * have / all);
  else snprintf(out, 32, "%s", strcmp(s, "absent") == 0 ? "-" : s);
}

/* " (temperature 0.2, top_p 0.9)": what holds where a request does not say. */
static void advice(const json_t *o, char *out, size_t n) {
  const char *name;
  json_t *v;
  size_t k = 0;
  out[0] = 0;
  json_t *all = json_object_get(o, "sampling");
  json_object_foreach(all, name, v) {
    int w = snprintf(out + k, n - k, "%s%s %g", k ? ", " : " (", name, json_number_value(v));
    if (w > 0 && k + (size_t)w < n) k += (size_t)w;
  }
  if (k && k + 1 < n) memcpy(out + k, ")", 2);
}

static void table(const json_t *list) {
  size_t i, width = 20;
  json_t *o;
  const char *def = fetch_default();
  json_array_foreach(list, i, o) if (strlen(text(o, "name")) > width) width = strlen(text(o, "name"));
  if (width > 60) width = 60;
  printf("%-*s %9s  %-12s %-12s %-8s %-12s %s\n", (int)width, "NAME", "SIZE", "STATE", "ARCHITECTURE", "WEIGHTS", "LICENCE", "WHAT");
  json_array_foreach(list, i, o) {
    char size[16], st[32], sampling[160];
    progress_bytes((uint64_t)json_integer_value(json_object_get(o, "bytes")), size);
    state(o, st);
    advice(o, sampling, sizeof sampling);
    printf("%-*s %9s  %-12s %-12s %-8s %-12s %s%s%s%s\n", (int)width, text(o, "name"), size, st, text(o, "architecture"), text(o, "weights"),
        text(o, "licence"), text(o, "what"), sampling, json_is_false(json_object_get(o, "runs")) ? " (fetch only)" : "",
        strcmp(text(o, "name"), def) == 0 ? " (default)" : "");
  }
}

static void only_here(json_t *list) {
  for (size_t i = json_array_size(list); i-- > 0;)
    if (strcmp(text(json_array_get(list, i), "state"), "absent") == 0) json_array_remove(list, i);
}

int cmd_models(int argc, char **argv) {
  models_opts o;
  err e = {0};
  char **pos;
  int n_pos;
  bool helped;
  json_t *list = NULL;
  if (!opt_parse(&cmd_models_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("models", &e);
  if (helped) return 0;
  if (!fetch_list(&list, &e)) return cmd_fail("models", &e);
  if (o.here) only_here(list);
  if (o.json) {
    json_dumpf(list, stdout, JSON_INDENT(2));
    putchar('\n');
  } else table(list);
  json_decref(list);
  return 0;
}
