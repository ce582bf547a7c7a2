#include "chat/child.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGS = 32, PATIENCE = 200 }; /* centiseconds that a server has to end */

static void become(const char *model, const char *const *args, int out, int errs, pid_t parent) {
  const char *argv[MAX_ARGS + 10] = {"weir", "serve", "--port", "0", "--log-level", "error"};
  int n = 6;
  for (int i = 0; args[i] && i < MAX_ARGS; i++) argv[n++] = args[i];
  argv[n++] = "--";
  argv[n++] = model;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0); /* Ctrl-C is for the chat: it ends an answer, not the server */
  int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, 0); /* what is on stdin is the chat's message */
  dup2(out, 1);
  dup2(errs, 2);
  execv("/proc/self/exe", (char *const *)argv);
  _exit(127);
}

/* The first line on stdout that holds a URL. false: the child closed stdout before. */
static bool read_url(int fd, char out[128]) {
  char line[512];
  size_t n = 0;
  for (char c;;) {
    ssize_t k = read(fd, &c, 1);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    if (c != '\n') {
      if (n < sizeof line - 1) line[n++] = c;
      continue;
    }
    line[n] = 0;
    const char *u = strstr(line, "http://");
    if (u) {
      snprintf(out, 128, "%.*s", (int)strcspn(u, " \t"), u);
      return true;
    }
    n = 0;
  }
}

static void last_words(int fd, err *e) {
  char all[4096];
  ssize_t n, have = 0;
  while (have < (ssize_t)sizeof all - 1 && (n = read(fd, all + have, sizeof all - 1 - (size_t)have)) > 0) have += n;
  while (have > 0 && all[have - 1] == '\n') have--;
  all[have] = 0;
  char *nl = strrchr(all, '\n');
  const char *line = nl ? nl + 1 : all;
  const char *head = "weir serve: ";
  if (strncmp(line, head, strlen(head)) == 0) line += strlen(head);
  err_set(e, ERR_INPUT, "%s", *line ? line : "the model server ended before it was ready");
}

bool child_start(const char *model, const char *const *args, child *ret, err *e) {
  int out[2], errs[2];
  *ret = (child){0};
  if (pipe2(out, O_CLOEXEC)) return err_errno(e, errno, "cannot make a pipe");
  if (pipe2(errs, O_CLOEXEC)) {
    close(out[0]), close(out[1]);
    return err_errno(e, errno, "cannot make a pipe");
  }
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) become(model, args, out[1], errs[1], parent);
  close(out[1]);
  close(errs[1]);
  bool ok = pid > 0;
  if (!ok) err_errno(e, errno, "cannot start the model server");
  else if (!(ok = read_url(out[0], ret->url))) last_words(errs[0], e);
  close(out[0]);
  ret->pid = pid;
  close(errs[0]); /* what it logs later goes nowhere: SIGPIPE is ignored there */
  if (!ok && pid > 0) child_stop(ret);
  return ok;
}

void child_stop(child *c) {
  if (c->pid <= 0) return;
  for (int i = 0; i < PATIENCE; i++) {
    if (i == 0 || i == PATIENCE / 2) kill(c->pid, SIGTERM); /* the second one ends its draining */
    if (waitpid(c->pid, NULL, WNOHANG) == c->pid) {
      c->pid = 0;
      return;
    }
    usleep(10000);
  }
  kill(c->pid, SIGKILL);
  waitpid(c->pid, NULL, 0);
  c->pid = 0;
}
