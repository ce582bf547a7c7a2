#include "base/opt.h"
#include <string.h>

/* The option table as completion scripts. A value is completed from the row's choices, as a file where the table calls it one, and else not at
 * all; an argument that is a model is completed from what `PROGRAM models` lists, and files. */

static bool row_end(const opt_row *r) { return !r->flag && !r->key; }
static bool is_file(const opt_row *r) { return r->type == OPT_STR && r->arg && (strstr(r->arg, "FILE") || strstr(r->arg, "DIR")); }
static bool wants_model(const opt_cmd *c) { return c->synopsis && (strstr(c->synopsis, "MODEL") || strstr(c->synopsis, "NAME")); }
static bool on(const opt_row *r) { return r->type == OPT_FLAG && r->def && strcmp(r->def, "true") == 0; }

/* Text inside single quotes of a shell; `also` are characters to escape with a backslash within them. */
static void quoted(const char *text, const char *also, bool fish, FILE *out) {
  for (const char *p = text; *p; p++) {
    if (*p == '\'') fputs(fish ? "\\'" : "'\\''", out);
    else if (strchr(also, *p)) fprintf(out, "\\%c", *p);
    else fputc(*p, out);
  }
}

static void choices(const opt_row *r, FILE *out) {
  for (const char *p = r->choices; *p; p++) fputc(*p == ',' ? ' ' : *p, out);
}

/* ---- bash ---- */

static void bash_cmd(const opt_cmd *c, const char *program, FILE *out) {
  fprintf(out, "  %s)\n    case $prev in\n", c->name);
  for (const opt_row *r = c->rows; !row_end(r); r++) {
    if (!r->flag || r->type == OPT_FLAG) continue;
    fprintf(out, "    --%s", r->flag);
    if (r->letter) fprintf(out, "|-%c", r->letter);
    fputs(") ", out);
    if (r->type == OPT_ENUM) {
      fputs("COMPREPLY=($(compgen -W '", out);
      choices(r, out);
      fputs("' -- \"$cur\"))", out);
    } else if (is_file(r)) fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", out);
    else fputs(":", out);
    fputs("; return ;;\n", out);
  }
  fputs("    esac\n    words='--help", out);
  for (const opt_row *r = c->rows; !row_end(r); r++) {
    if (!r->flag) continue;
    fprintf(out, " --%s", r->flag);
    if (on(r)) fprintf(out, " --no-%s", r->flag);
  }
  fputs("'\n", out);
  if (wants_model(c)) fprintf(out, "    [[ $cur == -* ]] || models=$(%s models 2>/dev/null | sed -n 's/^\\([a-z0-9][^ ]*\\) .*/\\1/p')\n", program);
  fputs("    ;;\n", out);
}

static void bash(const char *program, const opt_cmd *const *cmds, int n, FILE *out) {
  fprintf(out, "_%s() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= models=\n  COMPREPLY=()\n", program);
  fputs("  if [[ $COMP_CWORD -eq 1 ]]; then\n    COMPREPLY=($(compgen -W '--help --version", out);
  for (int i = 0; i < n; i++) fprintf(out, " %s", cmds[i]->name);
  fputs("' -- \"$cur\"))\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n", out);
  for (int i = 0; i < n; i++) bash_cmd(cmds[i], program, out);
  fputs("  esac\n  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
        "  else COMPREPLY=($(compgen -W \"$models\" -- \"$cur\") $(compgen -f -- \"$cur\")); fi\n}\n",
      out);
  fprintf(out, "complete -o filenames -F _%s %s\n", program, program);
}

/* ---- zsh ---- */

static void zsh_row(const opt_row *r, const char *prefix, FILE *out) {
  char text[512], arg[96];
  opt_describe(r, text, sizeof text);
  fprintf(out, "      '--%s%s[", prefix, r->flag);
  quoted(text, "[]\\:", false, out);
  fputs("]", out);
  if (r->type != OPT_FLAG) {
    fputs(":", out);
    quoted(opt_arg(r, arg, sizeof arg), "[]\\:", false, out);
    fputs(":", out);
    if (r->type == OPT_ENUM) {
      fputs("(", out);
      choices(r, out);
      fputs(")", out);
    } else if (is_file(r)) fputs("_files", out);
  }
  fputs("' \\\n", out);
}

static void zsh(const char *program, const opt_cmd *const *cmds, int n, FILE *out) {
  fprintf(out, "#compdef %s\n_%s() {\n  local -a commands\n  commands=(\n", program, program);
  for (int i = 0; i < n; i++) {
    fprintf(out, "    '%s:", cmds[i]->name);
    quoted(cmds[i]->summary ? cmds[i]->summary : "", "\\:", false, out);
    fputs("'\n", out);
  }
  fputs("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  local command=$words[2]\n  shift words\n  (( "
        "CURRENT-- ))\n"
        "  case $command in\n",
      out);
  for (int i = 0; i < n; i++) {
    fprintf(out, "  %s)\n    _arguments \\\n", cmds[i]->name);
    for (const opt_row *r = cmds[i]->rows; !row_end(r); r++) {
      if (!r->flag) continue;
      zsh_row(r, "", out);
      if (on(r)) zsh_row(r, "no-", out);
    }
    if (wants_model(cmds[i]))
      fprintf(out, "      '*:model:{ compadd $(%s models 2>/dev/null | sed -n \"s/^\\\\([a-z0-9][^ ]*\\\\) .*/\\\\1/p\"); _files }' \\\n", program);
    else if (cmds[i]->max_pos) fputs("      '*:file:_files' \\\n", out);
    fputs("      '--help[this text]'\n    ;;\n", out);
  }
  fprintf(out, "  esac\n}\n_%s \"$@\"\n", program);
}

/* ---- fish ---- */

static void fish_row(const opt_row *r, const char *program, const char *cmd, const char *prefix, FILE *out) {
  char text[512];
  opt_describe(r, text, sizeof text);
  fprintf(out, "complete -c %s -n '__fish_seen_subcommand_from %s' -l %s%s", program, cmd, prefix, r->flag);
  if (r->letter && !*prefix) fprintf(out, " -s %c", r->letter);
  if (r->type == OPT_ENUM) {
    fputs(" -x -a '", out);
    choices(r, out);
    fputs("'", out);
  } else if (r->type != OPT_FLAG) fputs(is_file(r) ? " -r" : " -x", out);
  fputs(" -d '", out);
  quoted(text, "\\", true, out);
  fputs("'\n", out);
}

static void fish(const char *program, const opt_cmd *const *cmds, int n, FILE *out) {
  fprintf(out, "complete -c %s -n __fish_use_subcommand -f -l help -d 'the commands'\ncomplete -c %s -n __fish_use_subcommand -f -l version\n",
      program, program);
  for (int i = 0; i < n; i++) {
    fprintf(out, "complete -c %s -n __fish_use_subcommand -f -a %s -d '", program, cmds[i]->name);
    quoted(cmds[i]->summary ? cmds[i]->summary : "", "\\", true, out);
    fputs("'\n", out);
    for (const opt_row *r = cmds[i]->rows; !row_end(r); r++) {
      if (!r->flag) continue;
      fish_row(r, program, cmds[i]->name, "", out);
      if (on(r)) fish_row(r, program, cmds[i]->name, "no-", out);
    }
    if (wants_model(cmds[i]))
      fprintf(out, "complete -c %s -n '__fish_seen_subcommand_from %s' -a '(%s models 2>/dev/null | string match -r \"^[a-z0-9]\\S*\")'\n", program,
          cmds[i]->name, program);
  }
}

void opt_complete(opt_shell shell, const char *program, const opt_cmd *const *cmds, int n, FILE *out) {
  static void (*const write[])(const char *, const opt_cmd *const *, int, FILE *) = {bash, zsh, fish};
  write[shell](program, cmds, n, out);
}
