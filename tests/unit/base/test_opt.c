#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/opt.h"
#include "base/str.h"
#include <sys/stat.h>
#include <unistd.h>

typedef struct o_t {
  bool verbose, cache;
  int64_t threads;
  double rate;
  const char *host, *config;
  uint64_t budget;
  int isa;
  opt_list names;
} o_t;

static const opt_row rows[] = {
    {"verbose", 'v', NULL, OPT_FLAG, offsetof(o_t, verbose), 0, 0, NULL, NULL, false, "General", NULL, "say more"},
    {"cache", 0, "cache.on", OPT_FLAG, offsetof(o_t, cache), 0, 0, NULL, "true", true, "General", NULL, "keep answers"},
    {"threads", 't', "engine.threads", OPT_INT, offsetof(o_t, threads), 1, 64, NULL, "4", false, "Engine", "N", "how many threads compute"},
    {"rate", 0, "engine.rate", OPT_FLOAT, offsetof(o_t, rate), 0, 1, NULL, "0.5", false, "Engine", "R", "a rate"},
    {"host", 0, "server.host", OPT_STR, offsetof(o_t, host), 0, 0, NULL, "127.0.0.1", false, "Server", "ADDR", "where to listen"},
    {"budget", 0, "engine.kv.budget", OPT_BYTES, offsetof(o_t, budget), 0, 1e12, NULL, "64M", false, "Engine", "SIZE", "bytes of KV"},
    {"isa", 0, "engine.isa", OPT_ENUM, offsetof(o_t, isa), 0, 0, "auto,ref,avx2", "auto", false, "Engine", NULL, "instruction set"},
    {"name", 'n', "server.names", OPT_LIST, offsetof(o_t, names), 0, 0, NULL, NULL, false, "Server", "NAME", "served names"},
    {"config", 0, NULL, OPT_STR, offsetof(o_t, config), 0, 0, NULL, NULL, false, "General", "FILE", "configuration file"},
    {0},
};
static const opt_cmd cmd = {"serve", "MODEL", "serve a model", NULL, rows, sizeof(o_t), 0, 2};

static const opt_row one_rows[] = {
    {"level", 'l', NULL, OPT_INT, 0, 0, 9, NULL, "3", false, NULL, "N", "a level"},
    {0},
};
static const opt_cmd one = {"one", "FILE", "one option", NULL, one_rows, sizeof(int64_t), 1, 1};

typedef struct parsed {
  o_t o;
  opt_set *set;
  char **pos;
  int n;
  bool help;
  err e;
  char *argv[24];
} parsed;

static bool parse(parsed *p, const char *line) {
  static char text[1024];
  snprintf(text, sizeof text, "serve %s", line);
  memset(p, 0, sizeof *p);
  int argc = 0;
  for (char *w = strtok(text, " "); w; w = strtok(NULL, " ")) p->argv[argc++] = w;
  return opt_parse(&cmd, argc, p->argv, &p->o, &p->set, &p->pos, &p->n, &p->help, &p->e);
}

static void test_defaults(void **state) {
  (void)state;
  parsed p;
  assert_true(parse(&p, ""));
  assert_int_equal(p.o.threads, 4);
  assert_true(p.o.cache && !p.o.verbose);
  assert_true(p.o.rate == 0.5);
  assert_string_equal(p.o.host, "127.0.0.1");
  assert_int_equal(p.o.budget, 64 << 20);
  assert_int_equal(p.o.isa, 0);
  assert_int_equal(p.o.names.n, 0);
  assert_int_equal(p.n, 0);
  opt_set_free(p.set);
}

static void test_forms(void **state) {
  (void)state;
  parsed p;
  assert_true(parse(&p, "model -vt8 --no-cache --rate=0.25 --budget 1.5G --isa avx2 -n a --name b -- --x"));
  assert_true(p.o.verbose && !p.o.cache);
  assert_int_equal(p.o.threads, 8);
  assert_true(p.o.rate == 0.25);
  assert_int_equal(p.o.budget, 3ull << 29);
  assert_int_equal(p.o.isa, 2);
  assert_int_equal(p.o.names.n, 2);
  assert_string_equal(p.o.names.v[0], "a");
  assert_string_equal(p.o.names.v[1], "b");
  assert_int_equal(p.n, 2);
  assert_string_equal(p.pos[0], "model");
  assert_string_equal(p.pos[1], "--x");
  opt_set_free(p.set);
  assert_true(parse(&p, "- --verbose=false -t 2"));
  assert_string_equal(p.pos[0], "-");
  assert_int_equal(p.o.threads, 2);
  opt_set_free(p.set);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *line, *msg;
  } bad[] = {
      {"--thraeds 3", "unknown option --thraeds: did you mean --threads?"},
      {"--zzzzzz", "unknown option --zzzzzz"},
      {"--threads 0", "--threads: 0 is out of range: 1 to 64"},
      {"-t 65", "out of range"},
      {"--threads x", "--threads: 'x' is not a whole number"},
      {"--threads 4.5", "not a whole number"},
      {"--threads 99999999999999999999", "not a whole number"},
      {"--rate nan", "not a number"},
      {"--rate 1.01", "out of range: 0 to 1"},
      {"--budget lots", "not a size"},
      {"--isa sse", "'sse' is not one of auto,ref,avx2"},
      {"--isa", "--isa needs a value: auto,ref,avx2"},
      {"--host", "--host needs a value: ADDR"},
      {"--verbose=maybe", "neither true nor false"},
      {"--no-threads", "unknown option --no-threads: did you mean --threads?"},
      {"-q", "unknown option -q"},
      {"a b c", "one argument too many, 'c'"},
      {"--config /no/such/file.yaml", "/no/such/file.yaml"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    parsed p;
    bool ok = parse(&p, bad[i].line);
    if (ok || !strstr(p.e.msg, bad[i].msg)) print_error("%s: %s\n", bad[i].line, ok ? "accepted" : p.e.msg);
    assert_false(ok);
    assert_non_null(strstr(p.e.msg, bad[i].msg));
    assert_int_equal(err_lookup(p.e.code)->exit, strstr(bad[i].line, "/no/such") ? 3 : 2);
  }
}

static void test_one(void **state) {
  (void)state;
  int64_t level = -1;
  char *a[] = {"one", "f", "-l5", NULL}, *none[] = {"one", NULL}, **pos;
  int n;
  bool help;
  err e = {0};
  assert_true(opt_parse(&one, 3, a, &level, NULL, &pos, &n, &help, &e));
  assert_int_equal(level, 5);
  assert_string_equal(pos[0], "f");
  assert_false(opt_parse(&one, 1, none, &level, NULL, &pos, &n, &help, &e));
  assert_non_null(strstr(e.msg, "usage: weir one [options] FILE"));
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void test_config(void **state) {
  (void)state;
  parsed p;
  write_file("c.yaml", "engine:\n  threads: 7\n  kv: {budget: 1M}\n  isa: ref\nserver:\n  names: [x, y]\n  host:\ncache: {on: false}\n");
  assert_true(parse(&p, "--config c.yaml -n z"));
  assert_int_equal(p.o.threads, 7);
  assert_int_equal(p.o.budget, 1 << 20);
  assert_int_equal(p.o.isa, 1);
  assert_false(p.o.cache);
  assert_string_equal(p.o.host, "127.0.0.1"); /* null leaves the default */
  assert_int_equal(p.o.names.n, 1);           /* the command line replaces a list */
  assert_string_equal(p.o.names.v[0], "z");
  assert_string_equal(opt_config_path(p.set), "c.yaml");
  opt_set_free(p.set);
  assert_true(parse(&p, "--threads 9 --config=c.yaml"));
  assert_int_equal(p.o.threads, 9);
  assert_int_equal(p.o.names.n, 2);
  opt_set_free(p.set);
  write_file("c.yaml", "engine: {threads: 100}\n");
  assert_false(parse(&p, "--config c.yaml"));
  assert_string_equal(p.e.msg, "c.yaml: engine.threads: 100 is out of range: 1 to 64");
  assert_int_equal(p.e.code, ERR_INPUT);
  write_file("c.yaml", "- 1\n");
  assert_false(parse(&p, "--config c.yaml"));
  assert_non_null(strstr(p.e.msg, "expected a mapping"));
}

static void test_search(void **state) {
  (void)state;
  parsed p;
  mkdir("xdg", 0777);
  mkdir("xdg/weir", 0777);
  char cwd[4000], xdg[4096];
  assert_non_null(getcwd(cwd, sizeof cwd));
  snprintf(xdg, sizeof xdg, "%s/xdg", cwd);
  setenv("XDG_CONFIG_HOME", xdg, 1);
  write_file("xdg/weir/weir.yaml", "engine: {threads: 3}\n");
  assert_true(parse(&p, ""));
  assert_int_equal(p.o.threads, 3);
  opt_set_free(p.set);
  write_file("weir.yaml", "engine: {threads: 2}\n");
  assert_true(parse(&p, ""));
  assert_int_equal(p.o.threads, 2);
  opt_set_free(p.set);
  remove("weir.yaml");
  remove("xdg/weir/weir.yaml");
  assert_true(parse(&p, ""));
  assert_int_equal(p.o.threads, 4);
  opt_set_free(p.set);
}

typedef struct seen {
  int n;
  char text[2048];
} seen;
static void count(void *arg, const err *e) {
  seen *s = arg;
  s->n++;
  strncat(s->text, e->msg, sizeof s->text - strlen(s->text) - 2);
  strcat(s->text, "\n");
}

static void test_check(void **state) {
  (void)state;
  const opt_cmd *cmds[] = {&one, &cmd};
  seen s = {0};
  err e = {0};
  write_file("c.yaml", "engine:\n  thread: 7\n  rate: \"x\"\n  isa: [1]\nserver: 5\nnonsense: {a: 1}\ncache:\n");
  assert_false(opt_check(cmds, 2, "c.yaml", count, &s, &e));
  assert_int_equal(s.n, 5);
  assert_non_null(strstr(s.text, "c.yaml: unknown key engine.thread: did you mean engine.threads?"));
  assert_non_null(strstr(s.text, "engine.rate: expected a number, found a string"));
  assert_non_null(strstr(s.text, "engine.isa: expected a word"));
  assert_non_null(strstr(s.text, "server: expected a mapping"));
  assert_non_null(strstr(s.text, "unknown key nonsense"));
  assert_string_equal(e.param, "engine.thread");
  opt_commands(cmds, 2); /* and a command that reads this file refuses it too */
  parsed p;
  assert_false(parse(&p, "--config c.yaml"));
  assert_non_null(strstr(p.e.msg, "engine.thread"));
  opt_commands(NULL, 0);
}

/* The sample is the manual: with every '#' taken off its keys it must pass the check and mean the defaults. */
static void test_sample(void **state) {
  (void)state;
  const opt_cmd *cmds[] = {&one, &cmd, &cmd};
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  opt_sample(cmds, 3, f);
  fclose(f);
  write_file("s.yaml", text);
  err e = {0};
  if (!opt_check(cmds, 3, "s.yaml", NULL, NULL, &e)) fail_msg("%s\n%s", e.msg, text);
  int live = 0;
  for (char *p = text; *p; p++)
    if (*p == '#' && p[1] != ' ') {
      *p = ' ';
      live++;
      memmove(p, p + 1, strlen(p));
    }
  assert_int_equal(live, 7);
  write_file("s.yaml", text);
  bool ok = opt_check(cmds, 3, "s.yaml", NULL, NULL, &e);
  if (!ok) print_error("%s\n%s", e.msg, text);
  assert_true(ok);
  parsed a, b;
  assert_true(parse(&a, ""));
  assert_true(parse(&b, "--config s.yaml"));
  assert_int_equal(a.o.threads, b.o.threads);
  assert_int_equal(a.o.budget, b.o.budget);
  assert_string_equal(a.o.host, b.o.host);
  assert_int_equal(a.o.cache, b.o.cache);
  assert_true(a.o.rate == b.o.rate);
  opt_set_free(a.set);
  opt_set_free(b.set);
  free(text);
}

/* A command without arguments says so, and its usage line ends where it ends. */
static void test_no_arguments(void **state) {
  (void)state;
  static const opt_cmd bare = {"bare", "", "no arguments", NULL, one_rows, sizeof(int64_t), 0, 0};
  char *argv[] = {"bare", "what", NULL}, **pos;
  int64_t o;
  int n_pos;
  bool helped;
  err e = {0};
  assert_false(opt_parse(&bare, 2, argv, &o, NULL, &pos, &n_pos, &helped, &e));
  assert_string_equal(e.msg, "takes no argument, but was given 'what': usage: weir bare [options]");
}

static void test_help(void **state) {
  (void)state;
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  opt_help(&cmd, f);
  fclose(f);
  assert_non_null(strstr(text, "usage: weir serve [options] MODEL"));
  assert_non_null(strstr(text, "  -t, --threads N             how many threads compute (default 4)\n"));
  assert_non_null(strstr(text, "--[no-]cache"));
  assert_non_null(strstr(text, "(default on)"));
  assert_non_null(strstr(text, "--isa auto|ref|avx2"));
  for (const opt_row *r = rows; r->flag || r->key; r++) assert_non_null(strstr(text, r->help));
  char *first = strstr(text, "Engine:\n");
  assert_non_null(first);
  assert_null(strstr(first + 1, "Engine:\n")); /* a group has one heading though its rows are apart */
  for (char *l = text; l && *l; l = strchr(l, '\n') ? strchr(l, '\n') + 1 : NULL) assert_true(strcspn(l, "\n") <= 100);
  free(text);
}

static void test_nearest(void **state) {
  (void)state;
  static const char *const names[] = {"up", "serve", "bench", "models", "inspect"};
  assert_string_equal(opt_nearest("sevre", names, 5), "serve");
  assert_string_equal(opt_nearest("model", names, 5), "models");
  assert_string_equal(opt_nearest("insp", names, 5), "inspect");
  assert_null(opt_nearest("zzzz", names, 5));
  assert_null(opt_nearest("", names, 5));
}

int main(void) {
  char dir[] = "/tmp/weir-opt-XXXXXX";
  if (!mkdtemp(dir) || chdir(dir)) return 1;
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  const struct CMUnitTest t[] = {cmocka_unit_test(test_defaults), cmocka_unit_test(test_forms), cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_one), cmocka_unit_test(test_config), cmocka_unit_test(test_search), cmocka_unit_test(test_check),
      cmocka_unit_test(test_sample), cmocka_unit_test(test_no_arguments), cmocka_unit_test(test_help), cmocka_unit_test(test_nearest)};
  int rc = cmocka_run_group_tests(t, NULL, NULL);
  remove("c.yaml");
  remove("s.yaml");
  rmdir("xdg/weir");
  rmdir("xdg");
  if (chdir("/") == 0) rmdir(dir);
  return rc;
}
