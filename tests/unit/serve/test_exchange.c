/* The server with a scripted backend: keep-alive in silence, cancellation when a client leaves, errors before and after the first event. */
#include "base/log.h"
#include "serve/server.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- a backend that does what the prompt says ---- */

typedef enum script { ANSWER, SILENT, FAIL_EARLY, FAIL_LATE, REFUSE } script;

typedef struct fake {
  api_backend api;
  loop *loop;
  script script;
  int started, cancelled;
} fake;

struct api_call {
  fake *f;
  api_request *req;
  api_sink *sink;
  loop_timer *timer;
};

static void call_end(api_call *c) {
  loop_timer_cancel(c->timer);
  api_request_unref(c->req);
  free(c);
}

static void play(void *arg) {
  api_call *c = arg;
  api_sink *k = c->sink;
  err e = {0};
  script s = c->f->script;
  c->timer = NULL;
  err_set(&e, ERR_INTERNAL, "broke");
  api_event ev = {.kind = s == FAIL_EARLY ? API_ERROR : API_BEGIN, .error = &e};
  k->event(k, &ev);
  if (s == FAIL_EARLY) {
    call_end(c);
    return;
  }
  ev = (api_event){.kind = API_TEXT, .text = STR("hello")};
  k->event(k, &ev);
  ev = (api_event){.kind = s == FAIL_LATE ? API_ERROR : API_FINISH, .error = &e};
  k->event(k, &ev);
  if (s != FAIL_LATE) {
    ev = (api_event){.kind = API_USAGE, .usage = {1, 0, 1, 0}};
    k->event(k, &ev);
  }
  call_end(c);
}

static bool fake_start(api_backend *b, api_request *r, api_sink *sink, api_call **ret, err *e) {
  fake *f = (fake *)b;
  f->started++;
  if (f->script == REFUSE) return err_set(e, ERR_BUSY, "no room");
  api_call *c = calloc(1, sizeof *c);
  *c = (api_call){f, api_request_ref(r), sink, NULL};
  if (f->script != SILENT) c->timer = loop_after(f->loop, 1000000, play, c);
  *ret = c;
  return true;
}

static void fake_cancel(api_backend *b, api_call *c) {
  ((fake *)b)->cancelled++;
  call_end(c);
}

/* ---- a client on its own thread; the loop runs until it is done ---- */

typedef struct rig {
  loop *loop;
  server *server;
  fake fake;
  const char *send;
  int leave_ms;      /* > 0: hang up this long after sending */
  const char *until; /* stop reading once this was seen; NULL: to the end */
  char got[65536];
} rig;

static void *client(void *arg) {
  rig *g = arg;
  int s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server_port(g->server)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  size_t n = 0;
  if (connect(s, (struct sockaddr *)&a, sizeof a) == 0 && send(s, g->send, strlen(g->send), 0) > 0) {
    if (g->leave_ms) usleep((useconds_t)g->leave_ms * 1000);
    for (ssize_t k; !g->leave_ms && n < sizeof g->got - 1 && (k = recv(s, g->got + n, sizeof g->got - 1 - n, 0)) > 0;) {
      n += (size_t)k;
      g->got[n] = 0;
      if (g->until && strstr(g->got, g->until)) break;
    }
  }
  close(s);
  usleep(30000); /* the server sees the hang-up before the loop is stopped */
  loop_stop(g->loop);
  return NULL;
}

static void rig_open(rig *g, script s, bool ready) {
  err e = {0};
  *g = (rig){.loop = loop_new()};
  server_opts o = {.host = "127.0.0.1", .port = 0, .keep_alive_ns = 20000000, .store_count = 1};
  if (!server_new(g->loop, &o, &g->server, &e)) fail_msg("%s", e.msg);
  g->fake = (fake){{"fake", fake_start, fake_cancel}, g->loop, s, 0, 0};
  server_parts p = {.backend = &g->fake.api, .name = "m", .fingerprint = "fp_0", .ctx = 100};
  if (ready) server_ready(g->server, &p);
}

static void rig_run(rig *g, const char *method, const char *path, const char *body) {
  size_t room = strlen(body) + 2048;
  char *req = malloc(room);
  pthread_t t;
  snprintf(req, room, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", method, path, strlen(body), body);
  g->send = req;
  g->got[0] = 0;
  pthread_create(&t, NULL, client, g);
  assert_true(loop_run(g->loop));
  pthread_join(t, NULL);
  free(req);
}

static void rig_close(rig *g) {
  server_stop(g->server);
  loop_free(g->loop);
  server_free(g->server);
}

#define ASK(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" more "}"
#define CHAT "POST", "/v1/chat/completions"
#define MESSAGES "POST", "/v1/messages"
#define SAY(more) "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" more "}"

static void has(const rig *g, const char *part) {
  if (!strstr(g->got, part)) fail_msg("no '%s' in '%s'", part, g->got);
}
static void lacks(const rig *g, const char *part) {
  if (strstr(g->got, part)) fail_msg("'%s' in '%s'", part, g->got);
}

static void test_answer(void **st) {
  (void)st;
  rig g;
  rig_open(&g, ANSWER, true);
  rig_run(&g, CHAT, ASK(",\"odd\":1,\"seed\":4"));
  has(&g, "HTTP/1.1 200");
  has(&g, "\"content\":\"hello\"");
  has(&g, "x-weir-ignored: odd");
  has(&g, "x-weir-seed: 4");
  rig_run(&g, CHAT, ASK(",\"stream\":true"));
  has(&g, "\"content\":\"hello\"");
  has(&g, "data: [DONE]");
  assert_int_equal(g.fake.cancelled, 0);
  rig_close(&g);
}

static void test_silence_is_filled(void **st) {
  (void)st;
  rig g;
  rig_open(&g, SILENT, true);
  g.until = ": keep-alive\n\n";
  rig_run(&g, CHAT, ASK(",\"stream\":true"));
  has(&g, "HTTP/1.1 200");
  has(&g, ": keep-alive\n\n");
  assert_int_equal(g.fake.cancelled, 1); /* it hung up afterwards */
  rig_close(&g);
}

/* A dialect that has an event for it says so in its own way. */
static void test_silence_is_pinged(void **st) {
  (void)st;
  rig g;
  rig_open(&g, SILENT, true);
  g.until = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  rig_run(&g, MESSAGES, SAY(",\"stream\":true"));
  has(&g, g.until);
  lacks(&g, ": keep-alive");
  rig_close(&g);
}

/* Bodies over 256 KiB are parsed on a worker: the answer is the same, a refusal too, and a client that leaves meanwhile harms nothing. */
static void test_big_bodies(void **st) {
  (void)st;
  enum { PAD = 400 << 10 };
  char *body = malloc(PAD + 200);
  for (int bad = 0; bad < 2; bad++) {
    rig g;
    rig_open(&g, ANSWER, true);
    char *p = body + sprintf(body, bad ? "{\"max_tokens\":0,\"odd\":\"" : "{\"max_tokens\":9,\"odd\":\"");
    memset(p, 'y', PAD);
    strcpy(p + PAD, "\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    rig_run(&g, MESSAGES, body);
    has(&g, bad ? "HTTP/1.1 400" : "HTTP/1.1 200");
    has(&g, bad ? "invalid_request_error" : "\"text\":\"hello\"");
    g.leave_ms = 1;
    for (int i = 0; i < 5; i++) rig_run(&g, MESSAGES, body);
    rig_close(&g);
  }
  free(body);
}

static void test_store_is_bounded(void **st) {
  (void)st;
  rig g;
  char id[2][80], path[128];
  rig_open(&g, ANSWER, true);
  for (int i = 0; i < 2; i++) {
    rig_run(&g, "POST", "/v1/responses", "{\"input\":\"x\"}");
    assert_int_equal(sscanf(strstr(g.got, "\"id\":\"") + 6, "%79[^\"]", id[i]), 1);
  }
  assert_string_not_equal(id[0], id[1]);
  snprintf(path, sizeof path, "/v1/responses/%s", id[0]);
  rig_run(&g, "GET", path, "");
  has(&g, "HTTP/1.1 404"); /* one is all this server keeps */
  snprintf(path, sizeof path, "/v1/responses/%s", id[1]);
  rig_run(&g, "GET", path, "");
  has(&g, "HTTP/1.1 200");
  rig_close(&g);
}

static void test_leaving_cancels(void **st) {
  (void)st;
  for (int stream = 0; stream < 2; stream++) {
    rig g;
    rig_open(&g, SILENT, true);
    g.leave_ms = 10;
    rig_run(&g, CHAT, stream ? ASK(",\"stream\":true") : ASK(""));
    assert_int_equal(g.fake.started, 1);
    assert_int_equal(g.fake.cancelled, 1);
    rig_close(&g);
  }
}

static void test_stopping_cancels(void **st) {
  (void)st;
  rig g;
  rig_open(&g, SILENT, true);
  g.until = "keep-alive";
  rig_run(&g, CHAT, ASK(",\"stream\":true"));
  rig_close(&g);
  assert_int_equal(g.fake.cancelled, 1);
}

static void test_failures(void **st) {
  (void)st;
  for (int stream = 0; stream < 2; stream++) {
    rig g;
    rig_open(&g, FAIL_EARLY, true);
    rig_run(&g, CHAT, stream ? ASK(",\"stream\":true") : ASK(""));
    has(&g, "HTTP/1.1 500");
    has(&g, "\"message\":\"broke\"");
    g.fake.script = FAIL_LATE;
    rig_run(&g, CHAT, stream ? ASK(",\"stream\":true") : ASK(""));
    has(&g, stream ? "HTTP/1.1 200" : "HTTP/1.1 500");
    has(&g, "\"message\":\"broke\"");
    lacks(&g, "[DONE]");
    g.fake.script = REFUSE;
    rig_run(&g, CHAT, stream ? ASK(",\"stream\":true") : ASK(""));
    has(&g, "HTTP/1.1 503");
    has(&g, "Retry-After: 1");
    assert_int_equal(g.fake.cancelled, 0);
    rig_close(&g);
  }
}

static void test_loading(void **st) {
  (void)st;
  rig g;
  rig_open(&g, ANSWER, false);
  rig_run(&g, "GET", "/ready", "");
  has(&g, "HTTP/1.1 503");
  has(&g, "loading");
  rig_run(&g, "GET", "/health", "");
  has(&g, "HTTP/1.1 200");
  rig_run(&g, CHAT, ASK(""));
  has(&g, "HTTP/1.1 503");
  has(&g, "{\"error\":{\"message\"");
  rig_run(&g, MESSAGES, SAY(""));
  has(&g, "HTTP/1.1 503");
  has(&g, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"");
  assert_int_equal(g.fake.started, 0);
  rig_close(&g);
}

static void test_no_tokenizer(void **st) {
  (void)st;
  rig g;
  rig_open(&g, ANSWER, true);
  rig_run(&g, "POST", "/tokenize", "{\"prompt\":\"x\"}");
  has(&g, "HTTP/1.1 400");
  has(&g, "'fake' offers no tokenizer");
  rig_close(&g);
}

int main(void) {
  log_setup(LOG_OFF, false);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_answer), cmocka_unit_test(test_silence_is_filled),
      cmocka_unit_test(test_silence_is_pinged), cmocka_unit_test(test_big_bodies), cmocka_unit_test(test_store_is_bounded),
      cmocka_unit_test(test_leaving_cancels), cmocka_unit_test(test_stopping_cancels), cmocka_unit_test(test_failures),
      cmocka_unit_test(test_loading), cmocka_unit_test(test_no_tokenizer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
