/* libcurl's multi interface driven by the loop: curl names the sockets and the timer it wants, the loop tells it when they are ready.
 * curl must not be called back into from its own callbacks (it refuses), so while one runs (in_curl) starting and cancelling only
 * set a mark, and settle() carries them out when curl has returned. */
#include "net/http_client.h"
#include "base/buf.h"
#include "base/clock.h"
#include <curl/curl.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { POOL = 64, MAX_HEAD = 64 * 1024, URL_SHOWN = 512 };

typedef struct sock {
  struct event *ev;
  struct sock *prev, *next;
  http_client *cl;
} sock;

struct http_call {
  http_client *cl;
  http_call *prev, *next;
  CURL *easy;
  struct curl_slist *headers;
  http_call_opts o; /* only the callbacks and max_head: the rest was borrowed for the start */
  buf head;
  int status;
  bool head_done, added, cancelled, stopped, over_head;
  http_moments at;
  char url[URL_SHOWN];
  char errbuf[CURL_ERROR_SIZE];
};

struct http_client {
  loop *l;
  CURLM *multi;
  struct event *timer, *settle_ev;
  sock *socks;
  http_call *calls;
  CURL *pool[POOL]; /* finished handles: their allocations serve again */
  int n_pool;
  int in_curl;
  bool unsettled;
};

/* ---- what is said about a URL and a failure ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void global_init(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

/* scheme://host[:port]/path for messages: no user, password, query or fragment. Refuses what is not http or https. */
static bool safe_url(const char *url, char out[URL_SHOWN], err *e) {
  CURLU *u = curl_url();
  char *scheme = NULL, *clean = NULL;
  bool ok = false;
  if (!u) return err_set(e, ERR_NOMEM, "out of memory for a URL");
  if (curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK || curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK) {
    err_param(e, ERR_INPUT, "url", "'%.200s' is not a URL: give http://HOST[:PORT]/PATH or https://...", url);
    goto out;
  }
  if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) {
    err_param(e, ERR_UNSUPPORTED, "url", "the URL begins with %.20s://: only http and https are spoken", scheme);
    goto out;
  }
  curl_url_set(u, CURLUPART_USER, NULL, 0);
  curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
  curl_url_set(u, CURLUPART_QUERY, NULL, 0);
  curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0);
  ok = curl_url_get(u, CURLUPART_URL, &clean, 0) == CURLUE_OK;
  if (ok) snprintf(out, URL_SHOWN, "%s", clean);
  else err_set(e, ERR_NOMEM, "out of memory for a URL");
out:
  curl_free(scheme);
  curl_free(clean);
  curl_url_cleanup(u);
  return ok;
}

/* A proxy from the environment cannot reach this machine's loopback as we mean it. */
static bool is_loopback(const char *url) {
  const char *h = strstr(url, "://");
  if (!h) return false;
  h += 3;
  return strncasecmp(h, "localhost", 9) == 0 || strncmp(h, "127.", 4) == 0 || strncmp(h, "[::1]", 5) == 0;
}

static void set_common(CURL *h, const char *url, int connect_ms, char *errbuf) {
  curl_easy_setopt(h, CURLOPT_URL, url);
  curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)(connect_ms > 0 ? connect_ms : 5000));
  curl_easy_setopt(h, CURLOPT_USERAGENT, "weir/" WEIR_VERSION);
  curl_easy_setopt(h, CURLOPT_ERRORBUFFER, errbuf);
  if (is_loopback(url)) curl_easy_setopt(h, CURLOPT_PROXY, "");
}

static bool say_failure(err *e, CURLcode rc, const char *url, const char *errbuf) {
  const char *why = *errbuf ? errbuf : curl_easy_strerror(rc);
  switch (rc) {
  case CURLE_COULDNT_CONNECT: return err_set(e, ERR_NET, "cannot connect to %.300s: %.200s: is the server running?", url, why);
  case CURLE_COULDNT_RESOLVE_HOST: return err_set(e, ERR_NET, "cannot find the host of %.300s: %.200s: check the name and the network", url, why);
  case CURLE_OPERATION_TIMEDOUT: return err_set(e, ERR_TIMEOUT, "no answer from %.300s in time: %.200s", url, why);
  case CURLE_PEER_FAILED_VERIFICATION: return err_set(e, ERR_NET, "the certificate of %.300s is not trusted: %.200s", url, why);
  case CURLE_OUT_OF_MEMORY: return err_set(e, ERR_NOMEM, "out of memory in a transfer from %.300s", url);
  case CURLE_PARTIAL_FILE:
  case CURLE_RECV_ERROR:
  case CURLE_SEND_ERROR:
  case CURLE_GOT_NOTHING: return err_set(e, ERR_NET, "the connection to %.300s broke before the answer was complete: %.200s", url, why);
  default: return err_set(e, ERR_NET, "%.300s: %.200s", url, why);
  }
}

static str find_header(str raw, const char *name) {
  size_t n = strlen(name);
  str line;
  while (str_cut(raw, '\n', &line, &raw))
    if (line.n > n && line.p[n] == ':' && strncasecmp(line.p, name, n) == 0) return str_trim((str){line.p + n + 1, line.n - n - 1});
  return (str){NULL, 0};
}

/* ---- calls ---- */

static void call_free(http_call *c) {
  http_client *cl = c->cl;
  if (c->prev) c->prev->next = c->next;
  else cl->calls = c->next;
  if (c->next) c->next->prev = c->prev;
  if (c->added) curl_multi_remove_handle(cl->multi, c->easy);
  if (c->easy) {
    curl_easy_reset(c->easy);
    if (cl->n_pool < POOL) cl->pool[cl->n_pool++] = c->easy;
    else curl_easy_cleanup(c->easy);
  }
  curl_slist_free_all(c->headers);
  buf_fini(&c->head);
  free(c);
}

static int64_t since_start(http_call *c, CURLINFO what) {
  curl_off_t us = 0;
  curl_easy_getinfo(c->easy, what, &us);
  return us > 0 ? c->at.start + us * 1000 : 0;
}

static void call_done(http_call *c, CURLcode rc) {
  err e = {0};
  long connects = 0;
  c->at.done = clock_now();
  c->at.connected = since_start(c, CURLINFO_CONNECT_TIME_T);
  c->at.tls = since_start(c, CURLINFO_APPCONNECT_TIME_T);
  curl_easy_getinfo(c->easy, CURLINFO_NUM_CONNECTS, &connects);
  c->at.reused = connects == 0 && c->head_done;
  if (c->at.reused) c->at.connected = c->at.tls = 0;
  if (c->over_head) err_set(&e, ERR_TOO_LARGE, "the header of the answer from %s is larger than %zu bytes", c->url, c->o.max_head);
  else if (c->stopped) err_set(&e, ERR_CANCELLED, "the transfer from %s was stopped", c->url);
  else if (rc != CURLE_OK) say_failure(&e, rc, c->url, c->errbuf);
  else if (!c->head_done) err_set(&e, ERR_NET, "%s answered with something that is not HTTP", c->url);
  if (!c->cancelled && c->o.on_done) c->o.on_done(c, e.code ? &e : NULL, c->o.ctx);
  call_free(c);
}

static void call_add(http_call *c) {
  c->at.start = clock_now();
  CURLMcode rc = curl_multi_add_handle(c->cl->multi, c->easy);
  c->added = rc == CURLM_OK;
  if (!c->added) call_done(c, CURLE_OUT_OF_MEMORY);
}

/* Reports what has finished and does what callbacks could only ask for. */
static void settle(http_client *cl) {
  if (cl->in_curl) return;
  CURLMsg *m;
  int left;
  while ((m = curl_multi_info_read(cl->multi, &left))) {
    if (m->msg != CURLMSG_DONE) continue;
    http_call *c = NULL;
    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
    call_done(c, m->data.result);
  }
  while (cl->unsettled) {
    cl->unsettled = false;
    for (http_call *c = cl->calls, *next; c; c = next) {
      next = c->next;
      if (c->cancelled) call_free(c);
      else if (!c->added) call_add(c);
    }
  }
}

static void act(http_client *cl, curl_socket_t fd, int what) {
  int running;
  cl->in_curl++;
  curl_multi_socket_action(cl->multi, fd, what, &running);
  cl->in_curl--;
  settle(cl);
}

/* ---- what curl calls ---- */

static bool head_line(http_call *c, str line) {
  if (str_starts(line, STR("HTTP/"))) { /* a new header block: what came before was an interim answer */
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    buf_clear(&c->head);
    c->status = (int)status;
    return true;
  }
  if (str_trim(line).n) {
    c->over_head = !buf_str(&c->head, line);
    return !c->over_head;
  }
  if (c->status < 200) return true;
  c->head_done = true;
  c->at.head = clock_now();
  if (!c->o.on_head || c->o.on_head(c, c->status, c->o.ctx)) return !c->cancelled;
  c->stopped = true;
  return false;
}

static size_t on_curl_header(char *p, size_t size, size_t n, void *arg) {
  http_call *c = arg;
  if (c->cancelled) return 0;
  if (c->head_done) return n * size; /* trailers */
  return head_line(c, (str){p, n * size}) ? n * size : 0;
}

static size_t on_curl_data(char *p, size_t size, size_t n, void *arg) {
  http_call *c = arg;
  if (c->cancelled) return 0;
  c->at.last = clock_now();
  if (!c->at.first) c->at.first = c->at.last;
  if (c->o.on_data && !c->o.on_data(c, (str){p, n * size}, c->o.ctx)) c->stopped = true;
  return c->stopped || c->cancelled ? 0 : n * size;
}

static void on_sock(evutil_socket_t fd, short what, void *arg) {
  sock *s = arg;
  act(s->cl, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void sock_free(sock *s) {
  if (s->prev) s->prev->next = s->next;
  else s->cl->socks = s->next;
  if (s->next) s->next->prev = s->prev;
  if (s->ev) event_free(s->ev);
  free(s);
}

static sock *sock_new(http_client *cl, curl_socket_t fd) {
  sock *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->cl = cl;
  s->next = cl->socks;
  if (s->next) s->next->prev = s;
  cl->socks = s;
  s->ev = event_new(loop_base(cl->l), fd, EV_READ | EV_PERSIST, on_sock, s);
  if (s->ev) return s;
  sock_free(s);
  return NULL;
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *sock_arg) {
  (void)easy;
  http_client *cl = arg;
  sock *s = sock_arg;
  if (what == CURL_POLL_REMOVE) {
    if (s) sock_free(s);
    curl_multi_assign(cl->multi, fd, NULL);
    return 0;
  }
  if (!s) {
    if (!(s = sock_new(cl, fd))) return -1;
    curl_multi_assign(cl->multi, fd, s);
  }
  event_del(s->ev);
  short want = (short)((what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0) | EV_PERSIST);
  event_assign(s->ev, loop_base(cl->l), fd, want, on_sock, s);
  return event_add(s->ev, NULL) == 0 ? 0 : -1;
}

static void on_settle(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  settle(arg);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long ms, void *arg) {
  (void)multi;
  http_client *cl = arg;
  if (ms < 0) return event_del(cl->timer);
  return event_add(cl->timer, &(struct timeval){ms / 1000, ms % 1000 * 1000});
}

/* ---- the face ---- */

http_client *http_client_new(loop *l, int max_idle) {
  pthread_once(&once, global_init);
  http_client *cl = calloc(1, sizeof *cl);
  if (!cl) return NULL;
  cl->l = l;
  cl->multi = curl_multi_init();
  cl->timer = event_new(loop_base(l), -1, 0, on_timer, cl);
  cl->settle_ev = event_new(loop_base(l), -1, 0, on_settle, cl);
  if (!cl->multi || !cl->timer || !cl->settle_ev) {
    http_client_free(cl);
    return NULL;
  }
  curl_multi_setopt(cl->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
  curl_multi_setopt(cl->multi, CURLMOPT_SOCKETDATA, cl);
  curl_multi_setopt(cl->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
  curl_multi_setopt(cl->multi, CURLMOPT_TIMERDATA, cl);
  curl_multi_setopt(cl->multi, CURLMOPT_MAXCONNECTS, (long)(max_idle > 0 ? max_idle : 256));
  return cl;
}

void http_client_free(http_client *cl) {
  if (!cl) return;
  while (cl->calls) call_free(cl->calls);
  for (int i = 0; i < cl->n_pool; i++) curl_easy_cleanup(cl->pool[i]);
  if (cl->multi) curl_multi_cleanup(cl->multi); /* closes what is kept, through on_curl_socket */
  while (cl->socks) sock_free(cl->socks);
  if (cl->timer) event_free(cl->timer);
  if (cl->settle_ev) event_free(cl->settle_ev);
  free(cl);
}

static bool add_headers(http_call *c, const http_call_opts *o) {
  bool typed = false;
  for (const char *const *h = o->headers; h && *h; h++) {
    /* A line break would smuggle in a header of somebody else's choosing. */
    if (strpbrk(*h, "\r\n")) return false;
    typed |= strncasecmp(*h, "content-type:", 13) == 0;
    struct curl_slist *l = curl_slist_append(c->headers, *h);
    if (!l) return false;
    c->headers = l;
  }
  /* Taken out: curl's wait for "100 Continue" on large bodies, and its guess that a body is a web form. */
  struct curl_slist *l = curl_slist_append(c->headers, "Expect:");
  if (l) c->headers = l;
  if (l && !typed && (l = curl_slist_append(c->headers, "Content-Type:"))) c->headers = l;
  return l != NULL;
}

static void set_options(http_call *c, const http_call_opts *o) {
  CURL *h = c->easy;
  set_common(h, o->url, o->connect_ms, c->errbuf);
  curl_easy_setopt(h, CURLOPT_PRIVATE, c);
  curl_easy_setopt(h, CURLOPT_HTTPHEADER, c->headers);
  curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_curl_header);
  curl_easy_setopt(h, CURLOPT_HEADERDATA, c);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_curl_data);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, c);
  if (o->total_ms > 0) curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)o->total_ms);
  if (o->idle_ms > 0) {
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)((o->idle_ms + 999) / 1000));
  }
  bool post = o->body.n > 0 || (o->method && strcmp(o->method, "POST") == 0);
  if (post) {
    curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)o->body.n);
    curl_easy_setopt(h, CURLOPT_COPYPOSTFIELDS, o->body.n ? o->body.p : "");
  }
  if (!o->method) return;
  if (strcmp(o->method, "HEAD") == 0) curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
  else if (strcmp(o->method, post ? "POST" : "GET") != 0) curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, o->method);
}

bool http_call_start(http_client *cl, const http_call_opts *o, http_call **ret, err *e) {
  http_call *c = calloc(1, sizeof *c);
  if (!c) return err_set(e, ERR_NOMEM, "out of memory for a request");
  c->cl = cl;
  c->o = (http_call_opts){
      .max_head = o->max_head ? o->max_head : MAX_HEAD, .on_head = o->on_head, .on_data = o->on_data, .on_done = o->on_done, .ctx = o->ctx};
  buf_init(&c->head, c->o.max_head);
  c->next = cl->calls;
  if (c->next) c->next->prev = c;
  cl->calls = c;
  if (!safe_url(o->url, c->url, e)) {
    call_free(c);
    return false;
  }
  c->easy = cl->n_pool ? cl->pool[--cl->n_pool] : curl_easy_init();
  if (!c->easy || !add_headers(c, o)) {
    bool have = c->easy != NULL;
    call_free(c);
    return have ? err_param(e, ERR_INPUT, "headers", "a request header holds a line break, or memory is out")
                : err_set(e, ERR_NOMEM, "out of memory for a request");
  }
  set_options(c, o);
  if (ret) *ret = c;
  if (cl->in_curl) {
    cl->unsettled = true;
    return true;
  }
  c->at.start = clock_now();
  c->added = curl_multi_add_handle(cl->multi, c->easy) == CURLM_OK;
  if (c->added) return true;
  if (ret) *ret = NULL;
  call_free(c);
  return err_set(e, ERR_NOMEM, "out of memory for a request");
}

/* Neither of the two acts on the spot: the caller may stand in a callback of curl, or in settle's walk over the calls. Activating the timer
 * instead of an event of its own would lose the time curl has asked for. */
void http_call_cancel(http_call *c) {
  c->cancelled = true;
  c->cl->unsettled = true;
  event_active(c->cl->settle_ev, EV_TIMEOUT, 0);
}

void http_call_pause(http_call *c, bool paused) {
  http_client *cl = c->cl;
  if (c->cancelled || !c->added) return;
  cl->in_curl++; /* unpausing delivers at once what curl had kept */
  curl_easy_pause(c->easy, paused ? CURLPAUSE_RECV : CURLPAUSE_CONT);
  cl->in_curl--;
  event_active(cl->settle_ev, EV_TIMEOUT, 0);
}

int http_call_status(const http_call *c) { return c->status; }
str http_call_header(const http_call *c, const char *name) { return find_header(buf_view(&c->head), name); }
http_moments http_call_moments(const http_call *c) { return c->at; }
