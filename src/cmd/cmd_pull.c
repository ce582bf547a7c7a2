#include "cmd/cmd.h"
#include "cmd/cmd_fetch.h"
#include <stdlib.h>

typedef struct pull_opts {
  bool offline, accept_licence, force, quiet;
} pull_opts;

static const opt_row rows[] = {
    {"offline", 0, NULL, OPT_FLAG, offsetof(pull_opts, offline), 0, 0, NULL, NULL, false, "Options", NULL,
        "use what is here, never the network (as HF_HUB_OFFLINE=1 does)"},
    {"accept-licence", 0, NULL, OPT_FLAG, offsetof(pull_opts, accept_licence), 0, 0, NULL, NULL, false, "Options", NULL,
        "you have read and accept the licence of a model that asks for it"},
    {"force", 'f', NULL, OPT_FLAG, offsetof(pull_opts, force), 0, 0, NULL, NULL, false, "Options", NULL,
        "fetch again although a verified copy is here"},
    {"quiet", 'q', NULL, OPT_FLAG, offsetof(pull_opts, quiet), 0, 0, NULL, NULL, false, "Options", NULL, "no progress, only faults"},
    {0},
};

const opt_cmd cmd_pull_opts = {"pull", "NAME | hf:owner/repo[/file][@rev] | URL | PATH", "bring a model file here, verified, and print its path",
    "NAME is one of `weir models`. The path alone is the last line on stdout. A pull that was interrupted goes on where it stopped. Honoured: "
    "HF_ENDPOINT, "
    "HF_TOKEN, HF_HUB_OFFLINE, XDG_CACHE_HOME, the usual proxy variables, and pip's own configuration for pypi: sources.",
    rows, sizeof(pull_opts), 1, 1};

int cmd_pull(int argc, char **argv) {
  pull_opts o;
  err e = {0};
  char **pos, path[OS_PATH], name[FETCH_NAME];
  int n_pos;
  bool helped;
  if (!opt_parse(&cmd_pull_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("pull", &e);
  if (helped) return 0;
  fetch_opts f = {.offline = o.offline, .accept_licence = o.accept_licence, .force = o.force};
  bool ok = cmd_fetch(pos[0], &f, o.quiet, path, name, &e);
  if (!ok) return cmd_fail("pull", &e);
  char *full = realpath(path, NULL);
  puts(full ? full : path);
  free(full);
  return 0;
}
