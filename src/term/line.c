#include "term/line.h"
#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY = 1000, CTRL_D = 4 };

struct line_reader {
  EditLine *el;
  History *h;
  HistEvent ev;
  char *path;
  const char *prompt;
  char *plain;
  size_t cap;
};

static volatile sig_atomic_t interrupted;
static void on_int(int sig) {
  (void)sig;
  interrupted = 1;
}

/* One letter from the keyboard. SIGINT is let in only while we wait, so that none comes between looking for it and waiting: it would wait for the
 * next key. libedit's own reader has that gap. -1: interrupted or failed, 0: end. */
static int read_letter(EditLine *el, wchar_t *ret) {
  mbstate_t state = {0};
  sigset_t during;
  (void)el;
  sigprocmask(SIG_SETMASK, NULL, &during);
  sigdelset(&during, SIGINT);
  for (;;) {
    struct pollfd p = {.fd = 0, .events = POLLIN};
    char c;
    int ready = ppoll(&p, 1, NULL, &during);
    if (interrupted) return -1;
    if (ready < 0 && errno == EINTR) continue;
    ssize_t n = ready < 0 ? -1 : read(0, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return (int)n;
    if (!c) c = CTRL_D; /* what the kernel makes of a Ctrl-D that was typed ahead, before the terminal was ours */
    size_t used = mbrtowc(ret, &c, 1, &state);
    if (used <= 1) return 1;
    if (used == (size_t)-1) state = (mbstate_t){0}; /* no letter: passed over */
  }
}

static char *prompt_of(EditLine *el) {
  line_reader *l;
  el_get(el, EL_CLIENTDATA, &l);
  return (char *)l->prompt;
}

line_reader *line_new(const char *history_path) {
  line_reader *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  if (!isatty(0) || !isatty(1)) return l;
  /* Without a UTF-8 locale libedit takes each byte of a letter for a letter. */
  if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
  l->el = el_init("weir", stdin, stdout, stderr);
  l->h = history_init();
  if (!l->el || !l->h) {
    line_free(l);
    return NULL;
  }
  history(l->h, &l->ev, H_SETSIZE, HISTORY);
  history(l->h, &l->ev, H_SETUNIQUE, 1);
  l->path = history_path ? strdup(history_path) : NULL;
  if (l->path) history(l->h, &l->ev, H_LOAD, l->path);
  el_set(l->el, EL_CLIENTDATA, l);
  el_set(l->el, EL_PROMPT, prompt_of);
  el_set(l->el, EL_GETCFN, read_letter);
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

/* NULL: the end, or interrupted. */
static const char *edit(line_reader *l, const char *prompt, int *n) {
  struct sigaction sa = {.sa_handler = on_int}, old;
  sigset_t block, mask;
  sigemptyset(&block);
  sigaddset(&block, SIGINT);
  interrupted = 0;
  l->prompt = prompt;
  sigprocmask(SIG_BLOCK, &block, &mask);
  sigaction(SIGINT, &sa, &old);
  el_set(l->el, EL_PREP_TERM, 1); /* before the prompt shows: what is typed at once is not echoed twice then */
  const char *p = el_gets(l->el, n);
  sigprocmask(SIG_SETMASK, &mask, NULL); /* what still waits comes now, to our handler */
  sigaction(SIGINT, &old, NULL);
  if (!interrupted) return p;
  el_reset(l->el);
  fputs("\n", stdout);
  return NULL;
}

line_got line_read(line_reader *l, const char *prompt, str *ret) {
  int n = 0;
  const char *p;
  if (l->el) p = edit(l, prompt, &n);
  else {
    if (isatty(0)) fputs(prompt, stderr); /* a person, whose answers go to a file */
    n = (int)getline(&l->plain, &l->cap, stdin);
    p = l->plain;
  }
  if (l->el && interrupted) return LINE_INTERRUPT;
  if (!p || n <= 0) return LINE_END;
  if (p[n - 1] == '\n') n--;
  *ret = (str){p, (size_t)n};
  return LINE_TEXT;
}

void line_remember(line_reader *l, const char *text) {
  if (l->h && *text) history(l->h, &l->ev, H_ENTER, text);
}
