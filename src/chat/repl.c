#include "chat/repl.h"
#include "base/buf.h"
#include "term/line.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_MESSAGE = 8 << 20 };

/* What a model says must not move the cursor, set the title or read the clipboard: control characters other than newline and tab are left out. */
static void put_safe(str t) {
  size_t from = 0;
  for (size_t i = 0; i < t.n; i++) {
    unsigned char c = (unsigned char)t.p[i], next = i + 1 < t.n ? (unsigned char)t.p[i + 1] : 0;
    bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0; /* U+0080..U+009F, the eight-bit forms of ESC sequences */
    if (!c1 && ((c >= ' ' && c != 0x7f) || c == '\n' || c == '\t')) continue;
    fwrite(t.p + from, 1, i - from, stdout);
    i += c1;
    from = i + 1;
  }
  if (from < t.n) fwrite(t.p + from, 1, t.n - from, stdout);
}

typedef struct printer {
  bool terminal, open;
} printer; /* open: the last line shown has no end yet */

static void print_text(void *ctx, str t) {
  printer *p = ctx;
  if (p->terminal) put_safe(t);
  else fwrite(t.p, 1, t.n, stdout);
  fflush(stdout);
  if (t.n) p->open = t.p[t.n - 1] != '\n';
}

static void print_stats(FILE *out, const chat_stats *st) {
  const char *dim = isatty(fileno(out)) ? "\x1b[2m" : "", *off = *dim ? "\x1b[0m" : "";
  fprintf(out, "%s[", dim);
  if (st->ttft_ms > 0) fprintf(out, "TTFT %.0f ms | ", st->ttft_ms);
  if (st->tps > 0) fprintf(out, "%.1f tok/s | ", st->tps);
  if (st->in) fprintf(out, "%lld in (%lld cached) | ", (long long)st->in, (long long)st->cached);
  fprintf(out, "%lld out", (long long)st->out);
  if (st->interrupted) fprintf(out, " | stopped");
  else if (strcmp(st->finish, "length") == 0) fprintf(out, " | cut at the length limit");
  fprintf(out, "]%s\n", off);
}

static bool ask(chat_session *s, str text, bool stats, chat_stats *st, err *e) {
  printer p = {.terminal = isatty(1)};
  bool ok = chat_send(s, text, print_text, &p, st, e);
  if (p.open) fputc('\n', stdout);
  fflush(stdout);
  if (ok && stats) print_stats(stderr, st);
  return ok;
}

static bool read_all(int fd, buf *b, err *e) {
  char chunk[65536];
  for (ssize_t n; (n = read(fd, chunk, sizeof chunk)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno(e, errno, "cannot read the message from stdin");
    if (!buf_put(b, chunk, (size_t)n)) return err_set(e, ERR_TOO_LARGE, "the message on stdin is over %d bytes", MAX_MESSAGE);
  }
  return str_trim(buf_view(b)).n ? true : err_set(e, ERR_INPUT, "there is no message on stdin");
}

bool repl_piped(chat_session *s, bool stats, err *e) {
  buf b;
  chat_stats st;
  buf_init(&b, MAX_MESSAGE);
  bool ok = read_all(0, &b, e) && ask(s, str_trim(buf_view(&b)), stats, &st, e);
  if (ok && st.interrupted) ok = err_set(e, ERR_CANCELLED, "the answer was stopped");
  buf_fini(&b);
  return ok;
}

/* ---- commands ---- */

typedef struct repl {
  chat_session *s;
  line_reader *lines;
  bool stats, quit;
} repl;

static void complain(const err *e) { fprintf(stderr, "%s\n", e->msg); }

static void do_system(repl *r, str arg) {
  chat_system(r->s, arg);
  fputs(arg.n ? "system message set\n" : "system message removed\n", stderr);
}

static void do_reset(repl *r, str arg) {
  (void)arg;
  chat_reset(r->s);
  fputs("conversation cleared\n", stderr);
}

static void file_command(repl *r, str arg, bool save) {
  char path[4096];
  err e;
  const char *home = str_starts(arg, STR("~/")) ? getenv("HOME") : NULL; /* there is no shell between the person and us */
  int n = snprintf(path, sizeof path, "%s%.*s", home ? home : "", (int)(arg.n - (home != NULL)), arg.p + (home != NULL));
  if (!arg.n || n < 0 || (size_t)n >= sizeof path) fprintf(stderr, "/%s takes a file name\n", save ? "save" : "load");
  else if (save ? chat_save(r->s, path, &e) : chat_load(r->s, path, &e)) {
    int turns = chat_turns(r->s);
    fprintf(stderr, "%s %s: %d turn%s\n", save ? "saved to" : "loaded", path, turns, turns == 1 ? "" : "s");
  } else complain(&e);
}
static void do_save(repl *r, str arg) { file_command(r, arg, true); }
static void do_load(repl *r, str arg) { file_command(r, arg, false); }

static void do_stats(repl *r, str arg) {
  chat_stats t;
  int n;
  (void)arg;
  chat_totals(r->s, &t, &n);
  fprintf(stderr, "%s: %d answer%s, %lld tokens in (%lld cached), %lld out, mean TTFT %.0f ms\n", chat_session_model(r->s), n, n == 1 ? "" : "s",
      (long long)t.in, (long long)t.cached, (long long)t.out, t.ttft_ms);
}

static void do_quit(repl *r, str arg) {
  (void)arg;
  r->quit = true;
}
static void do_help(repl *r, str arg);

static const struct {
  const char *name, *arg, *help;
  void (*run)(repl *, str);
} commands[] = {
    {"/system", "[TEXT]", "set the system message, or remove it", do_system},
    {"/reset", "", "forget the conversation, keep the system message", do_reset},
    {"/save", "FILE", "write the conversation as JSON", do_save},
    {"/load", "FILE", "go on with a saved conversation", do_load},
    {"/stats", "", "totals of this session", do_stats},
    {"/help", "", "this list", do_help},
    {"/quit", "", "leave (Ctrl-D does too)", do_quit},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void do_help(repl *r, str arg) {
  (void)r, (void)arg;
  for (int i = 0; i < N_COMMANDS; i++) fprintf(stderr, "  %-8s %-8s %s\n", commands[i].name, commands[i].arg, commands[i].help);
  fputs("  A line that ends in \\ goes on; \"\"\" begins and ends a message of several lines. Ctrl-C stops an answer.\n", stderr);
}

static void command(repl *r, str line) {
  str name = line, arg = {"", 0};
  str_cut(line, ' ', &name, &arg);
  for (int i = 0; i < N_COMMANDS; i++)
    if (str_is(name, commands[i].name)) {
      commands[i].run(r, str_trim(arg));
      return;
    }
  fprintf(stderr, "no command '%.*s': /help lists them\n", (int)(name.n < 60 ? name.n : 60), name.p);
}

/* ---- messages of several lines ---- */

static const str FENCE = {"\"\"\"", 3};

/* Reads on until the message is whole. false: interrupted or at the end. */
static bool whole_message(repl *r, str first, buf *msg) {
  buf_clear(msg);
  str line = first;
  bool fence = str_starts(line, FENCE);
  if (fence) line = (str){line.p + FENCE.n, line.n - FENCE.n};
  for (;;) {
    bool more = fence;
    if (fence && str_ends(line, FENCE)) line.n -= FENCE.n, more = false;
    else if (!fence && str_ends(line, STR("\\"))) line.n--, more = true;
    buf_str(msg, line);
    if (!more) break;
    buf_putc(msg, '\n');
    line_got got = line_read(r->lines, "... ", &line);
    if (got == LINE_TEXT) continue;
    if (got == LINE_END) fputs("\nthe message was not finished and is dropped\n", stderr);
    return false;
  }
  if (msg->failed) fprintf(stderr, "that message is over %d bytes\n", MAX_MESSAGE);
  return !msg->failed;
}

static void one_turn(repl *r, str line, buf *msg) {
  chat_stats st;
  err e;
  if (!str_trim(line).n || !whole_message(r, line, msg)) return;
  str text = str_trim(buf_view(msg));
  line_remember(r->lines, msg->p);
  if (str_starts(text, STR("/"))) command(r, text);
  else if (text.n && !ask(r->s, text, r->stats, &st, &e)) complain(&e);
}

bool repl_run(chat_session *s, const char *history_path, bool stats, err *e) {
  repl r = {.s = s, .lines = line_new(history_path), .stats = stats};
  if (!r.lines) return err_set(e, ERR_NOMEM, "cannot set up the terminal");
  struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
  buf msg;
  str line;
  line_got got = LINE_TEXT;
  buf_init(&msg, MAX_MESSAGE);
  fprintf(stderr, "%s - /help lists commands, Ctrl-D leaves\n", chat_session_model(s));
  sigaction(SIGINT, &ignore, &before); /* but for the prompt and for answers, which have handlers of their own */
  while (!r.quit && got != LINE_END) {
    got = line_read(r.lines, "> ", &line);
    if (got == LINE_TEXT) one_turn(&r, line, &msg);
  }
  sigaction(SIGINT, &before, NULL);
  if (got == LINE_END) fputc('\n', stderr);
  buf_fini(&msg);
  line_free(r.lines);
  return true;
}
