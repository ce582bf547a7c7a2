#include "base/ring.h"
#include "base/clock.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct ring {
  pthread_mutex_t mu;
  pthread_cond_t cv;
  size_t cap, head, n;
  bool closed;
  void *v[];
};

ring *ring_new(size_t cap) {
  ring *r = calloc(1, sizeof *r + cap * sizeof(void *));
  if (!r) return NULL;
  r->cap = cap;
  pthread_condattr_t a;
  pthread_condattr_init(&a);
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
  pthread_mutex_init(&r->mu, NULL);
  pthread_cond_init(&r->cv, &a);
  pthread_condattr_destroy(&a);
  return r;
}

void ring_free(ring *r) {
  if (!r) return;
  pthread_mutex_destroy(&r->mu);
  pthread_cond_destroy(&r->cv);
  free(r);
}

bool ring_push(ring *r, void *item) {
  pthread_mutex_lock(&r->mu);
  bool ok = !r->closed && r->n < r->cap;
  if (ok) {
    r->v[(r->head + r->n++) % r->cap] = item;
    pthread_cond_signal(&r->cv);
  }
  pthread_mutex_unlock(&r->mu);
  return ok;
}

static void *take(ring *r) {
  if (!r->n) return NULL;
  void *p = r->v[r->head];
  r->head = (r->head + 1) % r->cap;
  r->n--;
  return p;
}

void *ring_pop(ring *r) {
  pthread_mutex_lock(&r->mu);
  void *p = take(r);
  pthread_mutex_unlock(&r->mu);
  return p;
}

void *ring_wait(ring *r, int64_t timeout_ns) {
  struct timespec ts;
  if (timeout_ns >= 0) {
    int64_t t = clock_now() + timeout_ns;
    ts = (struct timespec){t / 1000000000, t % 1000000000};
  }
  pthread_mutex_lock(&r->mu);
  while (!r->n && !r->closed) {
    int rc = timeout_ns < 0 ? pthread_cond_wait(&r->cv, &r->mu) : pthread_cond_timedwait(&r->cv, &r->mu, &ts);
    if (rc == ETIMEDOUT) break;
  }
  void *p = take(r);
  pthread_mutex_unlock(&r->mu);
  return p;
}

void ring_close(ring *r) {
  pthread_mutex_lock(&r->mu);
  r->closed = true;
  pthread_cond_broadcast(&r->cv);
  pthread_mutex_unlock(&r->mu);
}

size_t ring_len(ring *r) {
  pthread_mutex_lock(&r->mu);
  size_t n = r->n;
  pthread_mutex_unlock(&r->mu);
  return n;
}
