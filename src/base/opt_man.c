#include "base/opt.h"
#include <string.h>

/* The option table as the roff of a manual page. Only macros of man(7) that every formatter knows are used. */

static bool row_end(const opt_row *r) { return !r->flag && !r->key; }

void opt_man_text(const char *text, FILE *out) {
  bool start = true;
  for (const char *p = text; *p; p++) {
    if (start && (*p == '.' || *p == '\'')) fputs("\\&", out); /* a line that begins so would be a request */
    start = *p == '\n';
    if (*p == '\\') fputs("\\e", out);
    else if (*p == '-') fputs("\\-", out); /* else a formatter may print a hyphen, which cannot be pasted */
    else fputc(*p, out);
  }
}

static void heading(const char *word, FILE *out) {
  for (const char *p = word; *p; p++) fputc(*p >= 'a' && *p <= 'z' ? *p - 32 : *p, out);
}

static void man_row(const opt_row *r, FILE *out) {
  char arg[96], text[512];
  const char *a = opt_arg(r, arg, sizeof arg);
  fputs(".TP\n\\fB", out);
  if (r->letter) fprintf(out, "\\-%c\\fR, \\fB", r->letter);
  fputs("\\-\\-", out);
  if (r->type == OPT_FLAG && r->def && strcmp(r->def, "true") == 0) fputs("\\fR[\\fBno\\-\\fR]\\fB", out);
  opt_man_text(r->flag, out);
  fputs("\\fR", out);
  if (*a) {
    fputs(" \\fI", out);
    opt_man_text(a, out);
    fputs("\\fR", out);
  }
  fputc('\n', out);
  opt_describe(r, text, sizeof text);
  opt_man_text(text, out);
  if (r->key) {
    fputs("; in the configuration: \\fB", out);
    opt_man_text(r->key, out);
    fputs("\\fR", out);
  }
  fputc('\n', out);
}

static bool same(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

void opt_man(const opt_cmd *c, FILE *out) {
  fputs(".SH \"WEIR ", out);
  heading(c->name, out);
  fprintf(out, "\"\n\\fBweir %s\\fR [\\fIoptions\\fR]", c->name);
  if (c->synopsis && *c->synopsis) {
    fputs(" \\fI", out);
    opt_man_text(c->synopsis, out);
    fputs("\\fR", out);
  }
  fputs("\n.PP\n", out);
  opt_man_text(c->summary ? c->summary : "", out);
  fputs("\n", out);
  if (c->details) {
    fputs(".PP\n", out);
    opt_man_text(c->details, out);
    fputs("\n", out);
  }
  for (const opt_row *g = c->rows; !row_end(g); g++) {
    bool seen = !g->flag;
    for (const opt_row *r = c->rows; r != g && !seen; r++) seen = r->flag && same(r->group, g->group);
    if (seen) continue;
    fputs(".SS \"", out);
    opt_man_text(g->group ? g->group : "Options", out);
    fputs("\"\n", out);
    for (const opt_row *r = g; !row_end(r); r++)
      if (r->flag && same(r->group, g->group)) man_row(r, out);
  }
}
