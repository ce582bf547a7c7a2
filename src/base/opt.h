/* opt.h - the option table: one row an option, from which come parsing, --help, the sample config and `weir config check`.
 * Not a place for secrets (environment) and not a general argument parser: rows, positionals, nothing else.
 * Ownership: strings written to the target struct are borrowed from argv, from the config document (kept by opt_set) or from the row.
 * Threads: start-up only.
 * Failure: ERR_USAGE naming the option, what it takes and the nearest known name. */
#ifndef BASE_OPT_H
#define BASE_OPT_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum opt_type {
  OPT_FLAG,  /* bool: --x, --no-x */
  OPT_INT,   /* int64_t */
  OPT_FLOAT, /* double */
  OPT_STR,   /* const char* */
  OPT_BYTES, /* uint64_t, "64M" */
  OPT_ENUM,  /* int: index into `choices` (comma separated) */
  OPT_LIST   /* opt_list: may be given several times */
} opt_type;

typedef struct opt_list {
  const char **v;
  int n;
} opt_list;

typedef struct opt_row {
  const char *flag; /* "threads" -> --threads; NULL: config only */
  char letter;      /* 't' -> -t; 0: none */
  const char *key;  /* "engine.threads" in weir.yaml; NULL: command line only */
  opt_type type;
  size_t off;          /* offsetof in the command's option struct */
  double lo, hi;       /* inclusive range for INT, FLOAT, BYTES; lo == hi: no bound */
  const char *choices; /* ENUM: "auto,ref,avx2" */
  const char *def;     /* default as written, parsed at start; NULL: zero / unset */
  bool reloadable;
  const char *group; /* heading in --help */
  const char *arg;   /* "N", "FILE" */
  const char *help;  /* one line */
} opt_row;

typedef struct opt_cmd {
  const char *name;     /* "serve" */
  const char *synopsis; /* "MODEL" */
  const char *summary;  /* one line */
  const char *details;  /* paragraph under the usage line; may be NULL */
  const opt_row *rows;  /* ends with a row whose type is OPT_FLAG and flag and key are NULL */
  size_t size;          /* of the option struct */
  int min_pos, max_pos; /* positional arguments; max -1: any number */
} opt_cmd;

typedef struct opt_set opt_set; /* keeps what a parse borrowed alive: config document, lists */

/* The file is shared by all commands, so a key that no command has is refused by name: main tells here, once, which commands there are. */
void opt_commands(const opt_cmd *const *cmds, int n);

/* Fills dst (zeroed, then defaults, then the config file, then argv). argv[0] is the command's name. The config file is read when a row has a key:
 * --config FILE when a row `config` exists (else ./weir.yaml, else $XDG_CONFIG_HOME/weir/weir.yaml, else none). *ret_pos points into argv, permuted
 * so that positionals come last. --help (and -h, unless a row has that letter) prints to stdout, sets *ret_help and leaves the rest alone.
 * ret_set may be NULL only when no row has a key and none is a list. */
bool opt_parse(const opt_cmd *cmd, int argc, char **argv, void *dst, opt_set **ret_set, char ***ret_pos, int *ret_n_pos, bool *ret_help, err *e);
void opt_set_free(opt_set *s);
const char *opt_config_path(const opt_set *s); /* the file that was read, or NULL */

void opt_help(const opt_cmd *cmd, FILE *out);
void opt_sample(const opt_cmd *const *cmds, int n, FILE *out); /* the sample weir.yaml: every key, its help and default */
/* weir config check: every key known, every value of its row's type and range. Each fault goes to report (may be NULL), the first to *e. */
bool opt_check(const opt_cmd *const *cmds, int n, const char *path, void (*report)(void *arg, const err *e), void *arg, err *e);
/* How the manual page and the completions call an option's value ("N", "auto|ref"; "" for a flag); b is where it may be written. */
const char *opt_arg(const opt_row *r, char *b, size_t n);
void opt_describe(const opt_row *r, char *b, size_t n); /* its help with choices and default, as --help shows them */
/* The manual page's section of one command, and a whole completion script (SHELL_*) for a program of these commands: opt_man.c, opt_complete.c. */
typedef enum opt_shell { SHELL_BASH, SHELL_ZSH, SHELL_FISH } opt_shell;
void opt_man_text(const char *text, FILE *out); /* text as roff: nothing of it is taken for a request or an escape */
void opt_man(const opt_cmd *cmd, FILE *out);
void opt_complete(opt_shell shell, const char *program, const opt_cmd *const *cmds, int n, FILE *out);
const char *opt_nearest(const char *word, const char *const *names, int n); /* for "did you mean"; NULL when nothing is close */
#endif
