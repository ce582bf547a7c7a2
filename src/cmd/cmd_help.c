/* weir help: the text of --help for the program or a command, and from the same tables the manual page and the shells' completions. */
#include "cmd/cmd.h"
#include "base/str.h"
#include <stdio.h>

enum { MAX_CMDS = 64 };

typedef struct help_opts {
  bool man;
  int completion; /* index into "none,bash,zsh,fish" */
} help_opts;

static const opt_row rows[] = {
    {"man", 0, NULL, OPT_FLAG, offsetof(help_opts, man), 0, 0, NULL, NULL, false, "Output", NULL, "the manual page, as roff"},
    {"completion", 0, NULL, OPT_ENUM, offsetof(help_opts, completion), 0, 0, "none,bash,zsh,fish", "none", false, "Output", "SHELL",
        "what makes this shell complete commands and options"},
    {0},
};

const opt_cmd cmd_help_opts = {"help", "[COMMAND]", "help on a command; the manual page; completions for a shell",
    "An installed weir has brought both to where man and the shells look. Otherwise: `weir help --man | man -l -`, and "
    "`source <(weir help --completion bash)`.",
    rows, sizeof(help_opts), 0, 1};

static void section(const char *title, FILE *out) { fprintf(out, ".SH \"%s\"\n", title); }

static void entry(const char *name, const char *text, FILE *out) {
  fputs(".TP\n\\fB", out);
  opt_man_text(name, out);
  fputs("\\fR\n", out);
  opt_man_text(text, out);
  fputc('\n', out);
}

static void files_and_more(FILE *out) {
  section("FILES", out);
  entry("./weir.yaml, $XDG_CONFIG_HOME/weir/weir.yaml",
      "options; the first that is there is read, --config names another. `weir config sample` writes one.", out);
  entry("$XDG_CONFIG_HOME/weir/models.yaml", "models of your own, in the form of the built-in catalogue", out);
  entry("$XDG_CACHE_HOME/weir/models", "model files that were fetched", out);
  section("ENVIRONMENT", out);
  entry("HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE", "where the model hub is, who asks, and that it is not to be asked", out);
  entry("XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_DATA_HOME", "in place of ~/.config, ~/.cache, ~/.local/share", out);
  section("EXIT STATUS", out);
  opt_man_text("0 done, 1 failed, 2 usage, 3 input refused, 4 network, 130 interrupted.\n", out);
}

static void man(const opt_cmd *const *cmds, int n, FILE *out) {
  fputs(".TH WEIR 1 \"\" \"weir " WEIR_VERSION "\" \"User Commands\"\n", out);
  section("NAME", out);
  fputs("weir \\- run open language models behind the OpenAI API, and time every request\n", out);
  section("SYNOPSIS", out);
  fputs("\\fBweir\\fR \\fICOMMAND\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]\n", out);
  section("DESCRIPTION", out);
  opt_man_text(
      "Results go to stdout, the log to stderr. An option is the same row of one table on the command line and in the configuration file; a flag on "
      "the command line wins. Every command takes --help.\n",
      out);
  section("COMMANDS", out);
  for (int i = 0; i < n; i++) entry(cmds[i]->name, cmds[i]->summary, out);
  for (int i = 0; i < n; i++) opt_man(cmds[i], out);
  files_and_more(out);
}

int cmd_help(int argc, char **argv) {
  const opt_cmd *cmds[MAX_CMDS];
  help_opts o;
  err e = {0};
  char **pos;
  int n_pos, n = 0;
  bool helped;
  while (n < MAX_CMDS && cmd_table[n].opts) {
    cmds[n] = cmd_table[n].opts;
    n++;
  }
  if (!opt_parse(&cmd_help_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("help", &e);
  if (helped) return 0;
  if (o.man) man(cmds, n, stdout);
  else if (o.completion) opt_complete((opt_shell)(o.completion - 1), "weir", cmds, n, stdout);
  else return cmd_show_help(n_pos ? pos[0] : NULL);
  return 0;
}
