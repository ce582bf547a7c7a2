#include "chat/repl.h"
#include "base/buf.h"
#include "term/line.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_MESSAGE = 8 << 20 };

static void print_text(void *ctx, str t) {
  bool *newline = ctx;
  fwrite(t.p, 1, t.n, stdout);
  fflush(stdout);
  if (t.n) *newline = t.p[t.n - 1] == '\n';
}

static void print_stats(FILE *out, const chat_stats *st) {
  const char *dim = isatty(fileno(out)) ? "\x1b[2m" : "", *off = *dim ? "\x1b[0m" : "";
  fprintf(out, "%s[TTFT %.0f ms", dim, st->ttft_ms);
  if (st->tps > 0) fprintf(out, " | %.1f tok/s", st->tps);
  if (st->in) fprintf(out, " | %lld in (%lld cached)", (long long)st->in, (long long)st->cached);
  fprintf(out, " | %lld out", (long long)st->out);
  if (st->interrupted) fprintf(out, " | stopped");
  else if (strcmp(st->finish, "length") == 0) fprintf(out, " | cut at the length limit");
  fprintf(out, "]%s\n", off);
}

static bool ask(chat_session *s, str text, bool stats, err *e) {
  chat_stats st;
  bool newline = true;
  if (!chat_send(s, text, print_text, &newline, &st, e)) return false;
  if (!newline) fputc('\n', stdout);
  fflush(stdout);
  if (stats) print_stats(stderr, &st);
  return true;
}

bool repl_piped(chat_session *s, bool stats, err *e) {
  buf b;
  char chunk[65536];
  ssize_t n;
  buf_init(&b, MAX_MESSAGE);
  while ((n = read(0, chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) buf_put(&b, chunk, (size_t)n);
  str text = str_trim(buf_view(&b));
  bool ok;
  if (b.failed) ok = err_set(e, ERR_TOO_LARGE, "the message on stdin is over %d bytes", MAX_MESSAGE);
  else if (!text.n) ok = err_set(e, ERR_INPUT, "there is no message on stdin");
  else ok = ask(s, text, stats, e);
  buf_fini(&b);
  return ok;
}

/* ---- commands ---- */

typedef struct repl { chat_session *s; line_reader *lines; bool quit; } repl;

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
  if (!arg.n || arg.n >= sizeof path) { fprintf(stderr, "/%s takes a file name\n", save ? "save" : "load"); return; }
  memcpy(path, arg.p, arg.n);
  path[arg.n] = 0;
  if (save ? chat_save(r->s, path, &e) : chat_load(r->s, path, &e)) fprintf(stderr, "%s %s, %d turns\n", save ? "saved to" : "loaded", path, chat_turns(r->s));
  else complain(&e);
}
static void do_save(repl *r, str arg) { file_command(r, arg, true); }
static void do_load(repl *r, str arg) { file_command(r, arg, false); }

static void do_stats(repl *r, str arg) {
  chat_stats t;
  int n;
  (void)arg;
  chat_totals(r->s, &t, &n);
  fprintf(stderr, "%s: %d answers, %lld tokens in (%lld cached), %lld out, mean TTFT %.0f ms\n", chat_session_model(r->s), n, (long long)t.in,
    (long long)t.cached, (long long)t.out, n ? t.ttft_ms / n : 0);
}

static void do_quit(repl *r, str arg) { (void)arg; r->quit = true; }
static void do_help(repl *r, str arg);

static const struct { const char *name, *arg, *help; void (*run)(repl *, str); } commands[] = {
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
    if (str_is(name, commands[i].name)) { commands[i].run(r, str_trim(arg)); return; }
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
    if (!more) return !msg->failed;
    buf_putc(msg, '\n');
    if (line_read(r->lines, "... ", &line) != LINE_TEXT) return false;
  }
}

bool repl_run(chat_session *s, const char *history_path, err *e) {
  repl r = {.s = s, .lines = line_new(history_path)};
  if (!r.lines) return err_set(e, ERR_NOMEM, "cannot set up the terminal");
  buf msg;
  str line;
  buf_init(&msg, MAX_MESSAGE);
  fprintf(stderr, "%s - /help lists commands, Ctrl-D leaves\n", chat_session_model(s));
  while (!r.quit) {
    line_got got = line_read(r.lines, "> ", &line);
    if (got == LINE_END) break;
    if (got == LINE_INTERRUPT || !str_trim(line).n) continue;
    if (!whole_message(&r, line, &msg)) {
      if (msg.failed) fprintf(stderr, "that message is over %d bytes\n", MAX_MESSAGE);
      continue;
    }
    line_remember(r.lines, msg.p ? msg.p : "");
    err fault;
    str text = str_trim(buf_view(&msg));
    if (str_starts(text, STR("/"))) command(&r, text);
    else if (text.n && !ask(s, text, true, &fault)) complain(&fault);
  }
  fputc('\n', stderr);
  buf_fini(&msg);
  line_free(r.lines);
  return true;
}
