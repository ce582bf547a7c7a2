/* A running server whose allocations fail in turn, whoever makes them: loop, worker, engine. One client asks over a socket and takes no memory
 * itself. Each time the answer is right, or a refusal with a status and a sentence, or the connection ends before its answer is whole; never a whole
 * answer that is wrong, never silence; and once memory is back, the next request is answered as ever. */
#include "../lib/torture.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/weights.h"
#include "serve/local.h"
#include "serve/server.h"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MODEL TEST_SRC "/tests/golden/tiny/tiny-llama-q.gguf"
static const char template[] = "{% for t in tools or [] %}{{ t|tojson }}{% endfor %}{% if tools %}<tool_call>{% endif %}{% for m in messages %}<{{ "
                               "m.role }}>{{ m.content }}{% endfor %}";
enum { REPLY_MAX = 1 << 16, WAIT_MS = 20000 };

static struct {
  loop *loop;
  server *server;
  model *model;
  engine *engine;
  local *local;
  pthread_t thread;
  int port;
} g;

static void *serve(void *arg) {
  (void)arg;
  loop_run(g.loop);
  return NULL;
}

static int setup(void **st) {
  (void)st;
  err e = {0};
  if (!TORTURE_CAN) return 0;
  log_setup(LOG_OFF, false);
  json_setup();
  eng_opts o = {.threads = 2, .max_seqs = 4, .no_prefix_cache = true};
  server_opts s = {.port = 0, .keep_alive_ns = INT64_C(3600000000000)};
  g.loop = loop_new();
  if (!server_new(g.loop, &s, &g.server, &e) || !model_open(MODEL, weights_type_ok, &g.model, &e) || !engine_open(g.model, &o, &g.engine, &e))
    fail_msg("%s", e.msg);
  chat_free(g.model->chat); /* the tiny model's own knows no tools */
  g.model->chat_source = (str){template, sizeof template - 1};
  if (!chat_compile(g.model->chat_source, &g.model->chat, &e)) fail_msg("%s", e.msg);
  g.local = local_new(g.engine, g.model, g.loop, server_work(g.server), server_metrics(g.server), 0);
  server_parts p = {.backend = local_backend(g.local), .name = "tiny", .fingerprint = "fp_0", .model = g.model, .ctx = engine_ctx(g.engine)};
  server_ready(g.server, &p);
  g.port = server_port(g.server);
  return pthread_create(&g.thread, NULL, serve, NULL);
}

static int teardown(void **st) {
  (void)st;
  if (!TORTURE_CAN) return 0;
  loop_stop(g.loop);
  pthread_join(g.thread, NULL);
  server_stop(g.server);
  engine_close(g.engine);
  loop_free(g.loop);
  local_free(g.local);
  server_free(g.server);
  model_close(g.model);
  return 0;
}

/* ---- the client: system calls and its own stack ---- */

static int dial(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) fail_msg("cannot connect");
  return fd;
}

/* Bytes of the reply until the server closes; -1: it said nothing for WAIT_MS. */
static int hear(int fd, char reply[REPLY_MAX]) {
  int n = 0;
  while (n < REPLY_MAX - 1) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, WAIT_MS) != 1) return -1;
    ssize_t k = recv(fd, reply + n, (size_t)(REPLY_MAX - 1 - n), 0);
    if (k <= 0) break;
    n += (int)k;
  }
  reply[n] = 0;
  return n;
}

static int say(const char *path, const char *body, char reply[REPLY_MAX]) {
  char head[256];
  int fd = dial(),
      n = snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", path, strlen(body));
  /* The server may close before it has read all: then send fails, and what it answered still counts. */
  if (send(fd, head, (size_t)n, MSG_NOSIGNAL) == n && send(fd, body, strlen(body), MSG_NOSIGNAL) < 0) n = 0;
  n = hear(fd, reply);
  close(fd);
  return n;
}

/* The text of an answer: what is between this and the next quote, all of them joined. */
static int collect(const char *reply, const char *mark, char *out, int cap) {
  int n = 0;
  for (const char *p = reply; (p = strstr(p, mark));) {
    p += strlen(mark);
    while (*p && *p != '"' && n < cap - 1) {
      if (*p == '\\' && n < cap - 2) out[n++] = *p++;
      out[n++] = *p++;
    }
  }
  out[n] = 0;
  return n;
}

typedef struct ask {
  const char *name, *path, *body, *mark;
  const char *end; /* what only a whole stream has; NULL: no stream */
  char want[4096];
} ask;

/* Whether the server counts itself as idle again: what it took is given back some time after the client has gone. */
static void settle(long base) {
  for (int i = 0; i < 2000 && torture_live() != base; i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

typedef enum verdict { RIGHT, REFUSED, CUT, WRONG, BROKEN, SILENT } verdict;
typedef struct tally {
  long of[SILENT + 1];
} tally;

static verdict judge(const ask *a, int n, const char *reply) {
  char text[4096];
  if (n < 0) return SILENT;
  if (!n) return CUT;
  const char *body = strstr(reply, "\r\n\r\n");
  int status = n > 12 ? atoi(reply + 9) : 0;
  if (status == 503) return body && strstr(body, "\"message\":\"") ? REFUSED : CUT; /* CUT: no memory for its own words */
  if (status != 200) return BROKEN;
  bool whole = a->end ? strstr(reply, a->end) && n > 7 && !strcmp(reply + n - 7, "\r\n0\r\n\r\n") : strstr(reply, "\"usage\"") != NULL;
  if (!whole) return CUT; /* an error inside the stream, or a connection that ended */
  collect(reply, a->mark, text, sizeof text);
  return strcmp(text, a->want) == 0 ? RIGHT : WRONG;
}

static void note(const ask *a, int n, const char *reply, long at, tally *t) {
  verdict v = judge(a, n, reply);
  t->of[v]++;
  if (v >= WRONG) fail_msg("%s: allocation %ld failed: %s", a->name, at, v == SILENT ? "the server fell silent" : reply);
}

static void expect_right(ask *a, char *reply, long at) {
  int n = say(a->path, a->body, reply);
  if (judge(a, n, reply) != RIGHT)
    fail_msg("%s: with all the memory it wants (after %ld), the server answers: %s", a->name, at, n > 0 ? reply : "nothing");
}

static long torture_server(ask *a, enum torture_mode m, long step) {
  static char reply[REPLY_MAX];
  tally t = {0};
  torture_exempt(true);
  int n = say(a->path, a->body, reply);
  if (n <= 0 || !collect(reply, a->mark, a->want, sizeof a->want)) fail_msg("%s: no answer to begin with: %s", a->name, reply);
  for (int i = 0; i < 3; i++) expect_right(a, reply, -1);
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* whatever the first answers leave for good */
  long base = torture_live(), tries = 0, had;
  for (long at = 0;; at += step) {
    torture_arm(at, m);
    n = say(a->path, a->body, reply);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* what follows the answer is part of it */
    had = torture_disarm();
    if (had <= at) break;
    note(a, n, reply, at, &t);
    tries++;
    if (tries % 16 == 0) expect_right(a, reply, at);
    settle(base);
    if (torture_live() != base) { /* a library that went this way for the first time keeps something: then the same again keeps nothing more */
      base = torture_live();
      torture_arm(at, m);
      n = say(a->path, a->body, reply);
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
      torture_disarm();
      settle(base);
      if (torture_live() != base) fail_msg("%s: allocation %ld failed: %ld blocks are left behind", a->name, at, torture_live() - base);
    }
  }
  expect_right(a, reply, -1);
  torture_exempt(false);
  printf("%s, %s: %ld allocations failed in turn: %ld right answers, %ld refusals, %ld cut off\n", a->name,
      m == TORTURE_ONE ? "one at a time" : "each and all after it", tries, t.of[RIGHT], t.of[REFUSED], t.of[CUT]);
  assert_true(tries > 20 && t.of[REFUSED] + t.of[CUT] > 10);
  return tries;
}

/* The judge itself: each verdict can be had. */
static void test_judge(void **st) {
  (void)st;
  const ask whole = {"", "", "", "\"text\":\"", NULL, "abc"}, stream = {"", "", "", "\"text\":\"", "[DONE]", "abc"};
  const struct {
    const ask *a;
    const char *reply;
    verdict v;
  } rows[] = {
      {&whole, "HTTP/1.1 200 OK\r\n\r\n{\"text\":\"abc\",\"usage\":1}", RIGHT},
      {&whole, "HTTP/1.1 200 OK\r\n\r\n{\"text\":\"abd\",\"usage\":1}", WRONG},
      {&whole, "HTTP/1.1 200 OK\r\n\r\n{\"text\":\"ab", CUT},
      {&whole, "HTTP/1.1 400 Bad Request\r\n\r\n{\"message\":\"x\"}", BROKEN},
      {&whole, "HTTP/1.1 503 Service Unavailable\r\n\r\n{\"message\":\"x\"}", REFUSED},
      {&whole, "", CUT},
      {&stream, "HTTP/1.1 200 OK\r\n\r\n{\"text\":\"ab\"}{\"text\":\"c\"}data: [DONE]\r\n0\r\n\r\n", RIGHT},
      {&stream, "HTTP/1.1 200 OK\r\n\r\n{\"text\":\"ac\"}data: [DONE]\r\n0\r\n\r\n", WRONG},
      {&stream, "HTTP/1.1 200 OK\r\n\r\n{\"text\":\"ab\"}\r\n0\r\n\r\n", CUT},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(judge(rows[i].a, (int)strlen(rows[i].reply), rows[i].reply), rows[i].v);
  assert_int_equal(judge(&whole, -1, ""), SILENT);
}

#define SAMPLING "\"max_tokens\": 12, \"temperature\": 0.8, \"seed\": 7, \"ignore_eos\": true"
static ask asks[] = {
    {"completion", "/v1/completions", "{\"prompt\": \"Hello there\", \"logprobs\": 1, \"n\": 2, " SAMPLING "}", "\"text\":\"", NULL, ""},
    {"chat with tools", "/v1/chat/completions",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hi\"}]}], \"tools\": [{\"type\": \"function\", "
        "\"function\":"
        "{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}], \"stop\": [\"never said\"], \"logit_bias\": {\"5\": 1}, " SAMPLING "}",
        "\"content\":\"", NULL, ""},
    {"responses, streamed", "/v1/responses",
        "{\"input\": \"Hello\", \"store\": false, \"stream\": true, \"max_output_tokens\": 12, \"temperature\": 0}", "\"delta\":\"",
        "event: response.incomplete", ""},
    {"messages", "/v1/messages", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 12, \"temperature\": 0}",
        "\"text\":\"", NULL, ""},
    {"completion, streamed", "/v1/completions", "{\"prompt\": \"Hello there\", \"stream\": true, " SAMPLING "}", "\"text\":\"", "data: [DONE]", ""},
};

static void test_one(void **st) {
  (void)st;
  if (!TORTURE_CAN) skip();
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) torture_server(&asks[i], TORTURE_ONE, 1);
}

static void test_rest(void **st) {
  (void)st;
  if (!TORTURE_CAN) skip();
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) torture_server(&asks[i], TORTURE_REST, 3);
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_judge), cmocka_unit_test(test_one), cmocka_unit_test(test_rest)};
  return cmocka_run_group_tests(t, setup, teardown);
}
