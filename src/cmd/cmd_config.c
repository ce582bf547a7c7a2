#include "base/json.h"
#include "base/os.h"
#include "cmd/cmd.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct config_opts {
  bool json;
} config_opts;

static const opt_row rows[] = {
    {"json", 0, NULL, OPT_FLAG, offsetof(config_opts, json), 0, 0, NULL, NULL, false, "Output", NULL, "faults as JSON, one object a line"},
    {0},
};

const opt_cmd cmd_config_opts = {"config", "check [FILE] | sample", "check a configuration file, or print one with every key and its default",
    "`sample` writes the whole weir.yaml, commented out, to stdout. `check` reads FILE (or the file a command would find: ./weir.yaml, then the one "
    "in "
    "$XDG_CONFIG_HOME/weir) and names every key that is not known and every value that would be refused.",
    rows, sizeof(config_opts), 1, 2};

static int commands(const opt_cmd *out[], int max) {
  int n = 0;
  for (const cmd *c = cmd_table; c->opts && n < max; c++) out[n++] = c->opts;
  return n;
}

static void report(void *arg, const err *e) {
  if (!*(bool *)arg) {
    fprintf(stderr, "%s\n", e->msg);
    return;
  }
  json_t *o = json_pack("{s:s, s:s}", "key", e->param, "message", e->msg);
  if (o) json_dumpf(o, stdout, JSON_COMPACT);
  putchar('\n');
  json_decref(o);
}

static bool default_file(char out[OS_PATH], err *e) {
  char dir[OS_PATH];
  snprintf(out, OS_PATH, "weir.yaml");
  if (access(out, F_OK) == 0) return true;
  if (os_dir_config(dir, NULL) && (size_t)snprintf(out, OS_PATH, "%s/weir.yaml", dir) < OS_PATH && access(out, F_OK) == 0) return true;
  return err_set(e, ERR_NOT_FOUND, "no weir.yaml here or in $XDG_CONFIG_HOME/weir: name a file, or make one with `weir config sample > weir.yaml`");
}

static int check(const char *path, bool json, const opt_cmd *const *cmds, int n) {
  char found[OS_PATH];
  err e = {0};
  if (!path) {
    if (!default_file(found, &e)) return cmd_fail("config", &e);
    path = found;
  }
  if (!opt_check(cmds, n, path, report, &json, &e)) return err_lookup(e.code)->exit;
  if (!json) printf("%s: good\n", path);
  return 0;
}

int cmd_config(int argc, char **argv) {
  config_opts o;
  err e = {0};
  char **pos;
  int n_pos;
  bool helped;
  if (!opt_parse(&cmd_config_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("config", &e);
  if (helped) return 0;
  const opt_cmd *cmds[64];
  int n = commands(cmds, 64);
  if (strcmp(pos[0], "sample") == 0 && n_pos == 1) {
    opt_sample(cmds, n, stdout);
    return 0;
  }
  if (strcmp(pos[0], "check") == 0) return check(n_pos > 1 ? pos[1] : NULL, o.json, cmds, n);
  err_set(&e, ERR_USAGE, "'%.60s' is neither `check [FILE]` nor `sample`", pos[0]);
  return cmd_fail("config", &e);
}
