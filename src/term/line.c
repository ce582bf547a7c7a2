#include "term/line.h"
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HISTORY = 1000 };

struct line_reader { EditLine *el; History *h; HistEvent ev; char *path; const char *prompt; char *plain; size_t cap; };

static volatile sig_atomic_t interrupted;
static void on_int(int sig) { (void)sig; interrupted = 1; }

static char *prompt_of(EditLine *el) {
  line_reader *l;
  el_get(el, EL_CLIENTDATA, &l);
  return (char *)l->prompt;
}

line_reader *line_new(const char *history_path) {
  line_reader *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  if (!isatty(0) || !isatty(1)) return l;
  setlocale(LC_CTYPE, "");
  l->el = el_init("weir", stdin, stdout, stderr);
  l->h = history_init();
  if (!l->el || !l->h) { line_free(l); return NULL; }
  history(l->h, &l->ev, H_SETSIZE, HISTORY);
  history(l->h, &l->ev, H_SETUNIQUE, 1);
  l->path = history_path ? strdup(history_path) : NULL;
  if (l->path) history(l->h, &l->ev, H_LOAD, l->path);
  el_set(l->el, EL_CLIENTDATA, l);
  el_set(l->el, EL_PROMPT, prompt_of);
  el_set(l->el, EL_EDITOR, "emacs");
  el_set(l->el, EL_HIST, history, l->h);
  el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
  el_source(l->el, NULL);
  return l;
}

void line_free(line_reader *l) {
  if (!l) return;
  if (l->h && l->path) history(l->h, &l->ev, H_SAVE, l->path);
  if (l->h) history_end(l->h);
  if (l->el) el_end(l->el);
  free(l->path);
  free(l->plain);
  free(l);
}

line_got line_read(line_reader *l, const char *prompt, str *ret) {
  int n;
  const char *p;
  if (!l->el) {
    ssize_t k = getline(&l->plain, &l->cap, stdin);
    n = (int)k;
    p = l->plain;
  } else {
    struct sigaction sa = {.sa_handler = on_int}, old;
    sigaction(SIGINT, &sa, &old);
    interrupted = 0;
    l->prompt = prompt;
    p = el_gets(l->el, &n);
    sigaction(SIGINT, &old, NULL);
    if (interrupted) {
      el_reset(l->el);
      fputs("\n", stdout);
      return LINE_INTERRUPT;
    }
  }
  if (!p || n <= 0) return LINE_END;
  if (p[n - 1] == '\n') n--;
  *ret = (str){p, (size_t)n};
  return LINE_TEXT;
}

void line_remember(line_reader *l, const char *text) {
  if (l->h && *text) history(l->h, &l->ev, H_ENTER, text);
}
