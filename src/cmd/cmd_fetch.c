/* Bringing a model here with a bar on stderr, for every command that may have to. */
#include "cmd/cmd_fetch.h"
#include "term/progress.h"
#include <signal.h>

static volatile sig_atomic_t interrupted;
static void on_signal(int signo) {
  (void)signo;
  interrupted = 1;
}

static void show(void *arg, const fetch_progress *p) { progress_show(arg, p->what, p->done, p->total, p->part, p->parts, p->finished); }
static void note(void *arg, const char *line) { progress_line(arg, line); }

bool cmd_fetch(const char *what, const fetch_opts *o, bool quiet, char path[OS_PATH], char name[FETCH_NAME], err *e) {
  progress bar;
  struct sigaction sa = {.sa_handler = on_signal}, old_int, old_term, ign = {.sa_handler = SIG_IGN}, old_xfsz;
  progress_init(&bar);
  sigaction(SIGINT, &sa, &old_int);
  sigaction(SIGTERM, &sa, &old_term);
  sigaction(SIGXFSZ, &ign, &old_xfsz); /* a file size limit is then an error of one write, with a message */
  fetch_opts f = *o;
  f.progress = quiet ? NULL : show;
  f.note = note;
  f.arg = &bar;
  f.stop = &interrupted;
  bool ok = fetch_model(what, &f, path, name, e);
  progress_end(&bar);
  sigaction(SIGINT, &old_int, NULL);
  sigaction(SIGTERM, &old_term, NULL);
  sigaction(SIGXFSZ, &old_xfsz, NULL);
  return ok;
}
