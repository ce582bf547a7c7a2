/* cmd.h - the commands: each parses its options and calls one function of a room below.
 * Not where work is done: a command that grows past a few screens wants a room.
 * Ownership: argv is main's; a command frees what it opened.
 * Threads: the main thread.
 * Failure: a command returns the exit status of err.h's table; cmd_fail prints the one line and gives it. */
#ifndef CMD_CMD_H
#define CMD_CMD_H
#include "base/err.h"
#include "base/opt.h"

/* A new command: its file defines `const opt_cmd cmd_NAME_opts` and `int cmd_NAME(int argc, char **argv)` (argv[0] is the command's name);
 * add a line here, one in the table of main.c, and the file in meson.build. */
#define CMD_DECLARE(name)                                                                                                                            \
  extern const opt_cmd cmd_##name##_opts;                                                                                                            \
  int cmd_##name(int argc, char **argv)
CMD_DECLARE(up);
CMD_DECLARE(serve);
CMD_DECLARE(chat);
CMD_DECLARE(bench);
CMD_DECLARE(pull);
CMD_DECLARE(models);
CMD_DECLARE(inspect);
CMD_DECLARE(tokenize);
CMD_DECLARE(template);
CMD_DECLARE(config);
CMD_DECLARE(health);
CMD_DECLARE(help);

typedef struct cmd {
  const opt_cmd *opts;
  int (*run)(int argc, char **argv);
  const char *group;
} cmd;
extern const cmd cmd_table[]; /* ends with a row of NULLs */

/* The text of --help: of a command, or of the program (NULL). Returns the exit status. */
int cmd_show_help(const char *name);
/* "weir CMD: message" on stderr, and where to read on when the command line was at fault. Returns the exit status. */
int cmd_fail(const char *name, const err *e);
#endif
