/* The loop is libevent's, used without its locks: the only things other threads touch are the post queue (a mutex) and an eventfd
 * that wakes the loop. The queue is an array that the loop swaps for an empty one, so a closure that posts again waits for the
 * next turn and cannot starve the sockets, and a burst of posts costs one wake-up. */
#include "net/loop.h"
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct post {
  loop_fn fn;
  void *arg;
} post;
typedef struct post_list {
  post *v;
  size_t n, cap;
} post_list;

struct loop_timer {
  loop *l;
  struct event *ev;
  loop_fn fn;
  void *arg;
  loop_timer *prev, *next;
};
typedef struct loop_signal {
  struct event *ev;
  loop_fn fn;
  void *arg;
  struct loop_signal *next;
} loop_signal;

struct loop {
  struct event_base *base;
  struct event *wake_ev;
  int wake_fd;
  loop_timer *timers;
  loop_signal *signals;
  post_list out;      /* being run; the loop's thread only */
  pthread_mutex_t mu; /* guards what is below */
  post_list in;
  bool stop;
};

struct event_base *loop_base(loop *l) {
  return l->base;
}

static void wake(loop *l) {
  uint64_t one = 1;
  /* EAGAIN means the counter is full, and then the loop is awake already. */
  while (write(l->wake_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

/* Takes the whole queue; returns whether loop_stop was called since the last time. */
static bool take_posts(loop *l) {
  pthread_mutex_lock(&l->mu);
  post_list t = l->in;
  l->in = l->out;
  l->out = t;
  bool stop = l->stop;
  l->stop = false;
  pthread_mutex_unlock(&l->mu);
  return stop;
}

static void run_posts(loop *l) {
  for (size_t i = 0; i < l->out.n; i++) l->out.v[i].fn(l->out.v[i].arg);
  l->out.n = 0;
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
  (void)what;
  loop *l = arg;
  uint64_t count;
  while (read(fd, &count, sizeof count) < 0 && errno == EINTR) continue;
  /* What was posted before the stop still runs before it. */
  if (take_posts(l)) event_base_loopbreak(l->base);
  run_posts(l);
}

loop *loop_new(void) {
  loop *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  struct event_config *cfg = event_config_new();
  if (cfg) {
    /* Without these two libevent reads a coarse clock once a turn, and a timer set late in a long callback would fire early. */
    event_config_set_flag(cfg, EVENT_BASE_FLAG_PRECISE_TIMER);
    event_config_set_flag(cfg, EVENT_BASE_FLAG_NO_CACHE_TIME);
    event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK);
    /* Servers rely on hearing at once that a peer has shut down its side. */
    event_config_require_features(cfg, EV_FEATURE_ET | EV_FEATURE_EARLY_CLOSE);
    l->base = event_base_new_with_config(cfg);
    event_config_free(cfg);
  }
  pthread_mutex_init(&l->mu, NULL);
  if (l->base && l->wake_fd >= 0) l->wake_ev = event_new(l->base, l->wake_fd, EV_READ | EV_PERSIST, on_wake, l);
  if (!l->wake_ev || event_add(l->wake_ev, NULL) != 0) {
    loop_free(l);
    return NULL;
  }
  return l;
}

void loop_free(loop *l) {
  if (!l) return;
  do {
    take_posts(l);
    run_posts(l);
  } while (l->in.n);
  while (l->timers) loop_timer_cancel(l->timers);
  for (loop_signal *s = l->signals, *next; s; s = next) {
    next = s->next;
    event_free(s->ev);
    free(s);
  }
  if (l->wake_ev) event_free(l->wake_ev);
  if (l->base) event_base_free(l->base);
  if (l->wake_fd >= 0) close(l->wake_fd);
  pthread_mutex_destroy(&l->mu);
  free(l->in.v);
  free(l->out.v);
  free(l);
}

bool loop_run(loop *l) { return event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY) >= 0; }

void loop_stop(loop *l) {
  pthread_mutex_lock(&l->mu);
  l->stop = true;
  pthread_mutex_unlock(&l->mu);
  wake(l);
}

bool loop_post(loop *l, loop_fn fn, void *arg) {
  pthread_mutex_lock(&l->mu);
  post_list *q = &l->in;
  bool ok = q->n < LOOP_POSTS, first = q->n == 0;
  if (ok && q->n == q->cap) {
    size_t cap = q->cap ? q->cap * 2 : 64;
    post *v = realloc(q->v, cap * sizeof *v);
    if (v) {
      q->v = v;
      q->cap = cap;
    } else {
      ok = false;
    }
  }
  if (ok) q->v[q->n++] = (post){fn, arg};
  pthread_mutex_unlock(&l->mu);
  if (ok && first) wake(l);
  return ok;
}

static void timer_free(loop_timer *t) {
  if (t->prev) t->prev->next = t->next;
  else t->l->timers = t->next;
  if (t->next) t->next->prev = t->prev;
  event_free(t->ev);
  free(t);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  loop_timer *t = arg;
  loop_fn fn = t->fn;
  void *fn_arg = t->arg;
  timer_free(t); /* first: fn may set the next one, and must not be able to cancel this one */
  fn(fn_arg);
}

loop_timer *loop_after(loop *l, int64_t ns, loop_fn fn, void *arg) {
  loop_timer *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  *t = (loop_timer){.l = l, .fn = fn, .arg = arg};
  t->ev = event_new(l->base, -1, 0, on_timer, t);
  if (ns < 0) ns = 0;
  int64_t us = (ns + 999) / 1000; /* up: never early */
  if (!t->ev || event_add(t->ev, &(struct timeval){us / 1000000, us % 1000000}) != 0) {
    if (t->ev) event_free(t->ev);
    free(t);
    return NULL;
  }
  t->next = l->timers;
  if (t->next) t->next->prev = t;
  l->timers = t;
  return t;
}

void loop_timer_cancel(loop_timer *t) {
  if (t) timer_free(t);
}

static void on_signal(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  loop_signal *s = arg;
  s->fn(s->arg);
}

bool loop_on_signal(loop *l, int signo, loop_fn fn, void *arg) {
  loop_signal *s = calloc(1, sizeof *s);
  if (!s) return false;
  *s = (loop_signal){.fn = fn, .arg = arg};
  s->ev = evsignal_new(l->base, signo, on_signal, s);
  if (!s->ev || event_add(s->ev, NULL) != 0) {
    if (s->ev) event_free(s->ev);
    free(s);
    return false;
  }
  s->next = l->signals;
  l->signals = s;
  return true;
}
