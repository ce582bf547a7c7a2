/* weir health [URL]: asks a server how it is, for container health checks and scripts: no curl is needed where weir is. */
#include "base/str.h"
#include "cmd/cmd.h"
#include "net/http_client.h"
#include <stdio.h>

typedef struct health_opts {
  bool ready;
  int64_t timeout;
} health_opts;

static const opt_row rows[] = {
    {"ready", 0, NULL, OPT_FLAG, offsetof(health_opts, ready), 0, 0, NULL, NULL, false, "Options", NULL,
        "ask whether it takes requests: a server that is loading its model or draining does not"},
    {"timeout", 0, NULL, OPT_INT, offsetof(health_opts, timeout), 1, 3600, NULL, "5", false, "Options", "SECONDS", "how long the answer may take"},
    {0},
};

const opt_cmd cmd_health_opts = {"health", "[URL]", "ask a running server whether it is alive",
    "Exit status 0 when it is, else not 0 and the reason on stderr. URL is http://127.0.0.1:8080 if not given.", rows, sizeof(health_opts), 0, 1};

typedef struct asking {
  loop *loop;
  const char *url;
  err *e;
} asking;

static void on_done(http_call *c, const err *e, void *ctx) {
  asking *a = ctx;
  int status = http_call_status(c);
  if (e) *a->e = *e;
  else if (status != 200) err_set(a->e, ERR_NET, "%.200s answered %d%s", a->url, status, status == 503 ? ": it is loading or draining" : "");
  loop_stop(a->loop);
}

static bool ask(const char *url, int64_t seconds, err *e) {
  asking a = {.loop = loop_new(), .url = url, .e = e};
  http_client *cl = a.loop ? http_client_new(a.loop, 1) : NULL;
  http_call *call;
  http_call_opts o = {.url = url, .connect_ms = (int)seconds * 1000, .total_ms = (int)seconds * 1000, .on_done = on_done, .ctx = &a};
  if (!cl) err_set(e, ERR_NOMEM, "out of memory");
  else if (http_call_start(cl, &o, &call, e) && !loop_run(a.loop)) err_set(e, ERR_IO, "the event loop broke");
  if (cl) http_client_free(cl);
  if (a.loop) loop_free(a.loop);
  return e->code == 0;
}

int cmd_health(int argc, char **argv) {
  health_opts o;
  err e = {0};
  char **pos, url[2048];
  int n_pos;
  bool helped;
  if (!opt_parse(&cmd_health_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("health", &e);
  if (helped) return 0;
  str base = str_c(n_pos ? pos[0] : "http://127.0.0.1:8080");
  while (base.n && base.p[base.n - 1] == '/') base.n--;
  if (snprintf(url, sizeof url, "%.*s/%s", (int)base.n, base.p, o.ready ? "ready" : "health") >= (int)sizeof url) {
    err_set(&e, ERR_USAGE, "the URL is too long");
    return cmd_fail("health", &e);
  }
  if (!ask(url, o.timeout, &e)) return cmd_fail("health", &e);
  puts(o.ready ? "ready" : "ok");
  return 0;
}
