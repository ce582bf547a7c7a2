#include "base/json.h"
#include "cmd/cmd.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Everything a person can type, in the order --help shows it. Nothing is initialised for a command that was not called: --help is a
 * matter of milliseconds and must stay so. */
const cmd cmd_table[] = {
    {&cmd_up_opts, cmd_up, "Serve and talk"},
    {&cmd_serve_opts, cmd_serve, "Serve and talk"},
    {&cmd_chat_opts, cmd_chat, "Serve and talk"},
    {&cmd_bench_opts, cmd_bench, "Measure"},
    {&cmd_pull_opts, cmd_pull, "Model files"},
    {&cmd_models_opts, cmd_models, "Model files"},
    {&cmd_inspect_opts, cmd_inspect, "Model files"},
    {&cmd_tokenize_opts, cmd_tokenize, "Model files"},
    {&cmd_template_opts, cmd_template, "Model files"},
    {&cmd_config_opts, cmd_config, "More"},
    {&cmd_health_opts, cmd_health, "More"},
    {&cmd_help_opts, cmd_help, "More"},
    {NULL, NULL, NULL},
};

enum { MAX_CMDS = 64 };

int cmd_fail(const char *name, const err *e) {
  fflush(stdout);
  fprintf(stderr, "weir%s%s: %s\n", *name ? " " : "", name, e->msg);
  if (e->code == ERR_USAGE) fprintf(stderr, "weir%s%s --help tells more\n", *name ? " " : "", name);
  return err_lookup(e->code)->exit;
}

static void help(FILE *out) {
  fputs("usage: weir COMMAND [options] [arguments]\n\n"
        "Runs open models on this machine behind the OpenAI API, and shows what each request cost in time.\n",
      out);
  const char *group = NULL;
  for (const cmd *c = cmd_table; c->opts; c++) {
    if (!group || strcmp(group, c->group) != 0) fprintf(out, "\n%s:\n", c->group);
    group = c->group;
    fprintf(out, "  %-10s %s\n", c->opts->name, c->opts->summary);
  }
  fputs("\n`weir COMMAND --help` lists a command's options, `weir --version` the version.\n"
        "Exit status: 0 done, 1 failed, 2 usage, 3 input refused, 4 network, 130 interrupted.\n",
      out);
}

static int unknown(const char *name) {
  const char *names[MAX_CMDS];
  int n = 0;
  for (const cmd *c = cmd_table; c->opts && n < MAX_CMDS; c++) names[n++] = c->opts->name;
  const char *near = opt_nearest(name, names, n);
  err e = {0};
  if (near) err_set(&e, ERR_USAGE, "no command '%.60s': did you mean `weir %s`?", name, near);
  else err_set(&e, ERR_USAGE, "no command '%.60s'", name);
  return cmd_fail("", &e);
}

static int dispatch(int argc, char **argv) {
  static const opt_cmd *opts[MAX_CMDS];
  int n = 0;
  for (const cmd *c = cmd_table; c->opts && n < MAX_CMDS; c++) opts[n++] = c->opts;
  opt_commands(opts, n);
  for (const cmd *c = cmd_table; c->opts; c++)
    if (strcmp(c->opts->name, argv[0]) == 0) return c->run(argc, argv);
  return unknown(argv[0]);
}

int cmd_show_help(const char *name) {
  char word[128], *ask[] = {word, (char[]){"--help"}, NULL};
  if (name) {
    snprintf(word, sizeof word, "%s", name);
    return dispatch(2, ask);
  }
  help(stdout);
  return 0;
}

/* A program started with a standard stream closed would get that number for the next file it opens: log lines would then go into a socket or a model
 * file. The place is taken by something that fails to be read or written as a closed stream does. */
static void hold_standard_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) _exit(1);
}

int main(int argc, char **argv) {
  hold_standard_streams();
  signal(SIGPIPE, SIG_IGN); /* a reader that left is an error of one write, not the end of a server */
  int status;
  if (argc < 2) {
    help(stderr);
    status = 2;
  } else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
    puts("weir " WEIR_VERSION);
    status = 0;
  } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
    help(stdout);
    status = 0;
  } else {
    json_setup();
    status = dispatch(argc - 1, argv + 1);
  }
  /* A result that did not reach its reader is not a result: a full disk behind `>` must not look like success. A reader that closed early is fine. */
  if ((fflush(stdout) != 0 || ferror(stdout)) && errno != EPIPE && status == 0) {
    fprintf(stderr, "weir: cannot write the result: %s\n", strerror(errno));
    status = 1;
  }
  return status;
}
