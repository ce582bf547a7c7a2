#include "base/opt.h"
#include "base/str.h"
#include <stdlib.h>

/* The faces of the option table that only print: --help and the sample configuration. */

enum { COL_HELP = 30, WIDTH = 100 };

static bool row_end(const opt_row *r) { return !r->flag && !r->key; }

const char *opt_arg(const opt_row *r, char *b, size_t n) {
  if (r->type == OPT_FLAG) return "";
  if (r->arg) return r->arg;
  if (r->type == OPT_ENUM) {
    snprintf(b, n, "%s", r->choices);
    for (char *p = b; *p; p++)
      if (*p == ',') *p = '|';
    return b;
  }
  return r->type == OPT_STR || r->type == OPT_LIST ? "TEXT" : r->type == OPT_BYTES ? "SIZE" : "N";
}

/* Words of text from column `at` on, continued at column `indent`. */
static void wrap(FILE *out, const char *text, int at, int indent) {
  bool first = true;
  while (*text) {
    int n = (int)strcspn(text, " ");
    if (!first && at + 1 + n > WIDTH) {
      fprintf(out, "\n%*s", indent, "");
      at = indent;
      first = true;
    }
    if (!first) {
      fputc(' ', out);
      at++;
    }
    fwrite(text, 1, (size_t)n, out);
    at += n;
    first = false;
    text += n;
    while (*text == ' ') text++;
  }
  fputc('\n', out);
}

void opt_describe(const opt_row *r, char *b, size_t n) {
  int k = snprintf(b, n, "%s", r->help ? r->help : "");
  if (k < 0 || (size_t)k >= n) return;
  bool show_def = r->def && r->def[0] && !(r->type == OPT_FLAG && strcmp(r->def, "false") == 0);
  bool show_choices = r->type == OPT_ENUM && r->arg;
  if (show_choices) k += snprintf(b + k, n - (size_t)k, "%s%s", k ? ": " : "", r->choices);
  if ((size_t)k < n && show_def) snprintf(b + k, n - (size_t)k, "%s(default %s)", k ? " " : "", r->type == OPT_FLAG ? "on" : r->def);
}

static void help_row(const opt_row *r, FILE *out) {
  char left[160], arg[96], text[512];
  const char *a = opt_arg(r, arg, sizeof arg);
  bool no = r->type == OPT_FLAG && r->def &&
            strcmp(r->def, "true") == 0; /* on unless told otherwise: show how to turn it off, and that the help tells of it being on */
  int k = snprintf(left, sizeof left, "  %c%c%s--%s%s%s%s", r->letter ? '-' : ' ', r->letter ? r->letter : ' ', r->letter ? ", " : "  ",
      no ? "[no-]" : "", r->flag, *a ? " " : "", a);
  fputs(left, out);
  if (k > COL_HELP - 2) fprintf(out, "\n%*s", COL_HELP, "");
  else fprintf(out, "%*s", COL_HELP - k, "");
  opt_describe(r, text, sizeof text);
  wrap(out, text, COL_HELP, COL_HELP);
}

static bool same(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool group_seen(const opt_cmd *c, const opt_row *upto) {
  for (const opt_row *r = c->rows; r != upto; r++)
    if (r->flag && same(r->group, upto->group)) return true;
  return false;
}

void opt_help(const opt_cmd *c, FILE *out) {
  fprintf(out, "usage: weir %s [options]%s%s\n\n", c->name, c->synopsis && *c->synopsis ? " " : "", c->synopsis ? c->synopsis : "");
  if (c->summary) wrap(out, c->summary, 0, 0);
  if (c->details) {
    fputc('\n', out);
    wrap(out, c->details, 0, 0);
  }
  for (const opt_row *g = c->rows; !row_end(g); g++) {
    if (!g->flag || group_seen(c, g)) continue;
    fprintf(out, "\n%s:\n", g->group ? g->group : "Options");
    for (const opt_row *r = g; !row_end(r); r++)
      if (r->flag && same(r->group, g->group)) help_row(r, out);
  }
  fputs("\n  -h, --help                  this text\n", out);
}

/* ---- the sample configuration ---- */

enum { MAX_KEYS = 1024, MAX_SECTIONS = 256 };

typedef struct sample {
  const opt_row *rows[MAX_KEYS];
  int n;
  FILE *out;
} sample; /* every key once, in order of first mention */

static void indent(FILE *out, int depth) { fprintf(out, "%*s", 2 * depth, ""); }

static void collect(sample *s, const opt_cmd *c) {
  for (const opt_row *r = c->rows; !row_end(r); r++) {
    bool skip = !r->key || s->n == MAX_KEYS;
    for (int i = 0; i < s->n && !skip; i++) skip = strcmp(s->rows[i]->key, r->key) == 0;
    if (!skip) s->rows[s->n++] = r;
  }
}

static void sample_row(const opt_row *r, int depth, FILE *out) {
  indent(out, depth);
  fprintf(out, "# %s", r->help ? r->help : r->key);
  if (r->type == OPT_ENUM) fprintf(out, ": %s", r->choices);
  else if (r->lo != r->hi && r->type == OPT_BYTES) fprintf(out, " (%.0f to %.0f bytes)", r->lo, r->hi);
  else if (r->lo != r->hi) fprintf(out, " (%.15g to %.15g)", r->lo, r->hi);
  fputs(r->reloadable ? "; reloadable\n" : "\n", out);
  const char *last = strrchr(r->key, '.'), *leaf = last ? last + 1 : r->key;
  bool quote = r->def && (r->type == OPT_STR || r->type == OPT_ENUM || r->type == OPT_BYTES);
  indent(out, depth);
  if (r->type == OPT_LIST) fprintf(out, "#%s: []\n", leaf);
  else if (!r->def) fprintf(out, "#%s:%s\n", leaf, r->type == OPT_FLAG ? " false" : "");
  else fprintf(out, quote ? "#%s: \"%s\"\n" : "#%s: %s\n", leaf, r->def);
}

static bool within(const char *key, str prefix) { return str_starts(str_c(key), prefix); }

/* The keys below prefix ("", "engine.", "engine.kv."): its own first, then one mapping for each section inside it. */
static void sample_section(sample *s, str prefix, int depth) {
  for (int i = 0; i < s->n; i++)
    if (within(s->rows[i]->key, prefix) && !strchr(s->rows[i]->key + prefix.n, '.')) sample_row(s->rows[i], depth, s->out);
  str done[MAX_SECTIONS];
  int n_done = 0;
  for (int i = 0; i < s->n && n_done < MAX_SECTIONS; i++) {
    const char *key = s->rows[i]->key, *dot = within(key, prefix) ? strchr(key + prefix.n, '.') : NULL;
    if (!dot) continue;
    str inner = {key, (size_t)(dot - key) + 1};
    bool seen = false;
    for (int k = 0; k < n_done; k++) seen |= str_eq(done[k], inner);
    if (seen) continue;
    done[n_done++] = inner;
    if (depth == 0) fputc('\n', s->out);
    indent(s->out, depth);
    fprintf(s->out, "%.*s:\n", (int)(inner.n - prefix.n - 1), key + prefix.n);
    sample_section(s, inner, depth + 1);
  }
}

void opt_sample(const opt_cmd *const *cmds, int n, FILE *out) {
  sample *s = calloc(1, sizeof *s);
  if (!s) return;
  s->out = out;
  for (int i = 0; i < n; i++) collect(s, cmds[i]);
  fputs("# weir.yaml: every key, with its default. Take the # off a line to change it; `weir config check` reads it over.\n"
        "# Searched: --config FILE, ./weir.yaml, $XDG_CONFIG_HOME/weir/weir.yaml. A flag on the command line wins.\n",
      out);
  sample_section(s, (str){"", 0}, 0);
  free(s);
}
