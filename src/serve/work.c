#include "serve/work.h"
#include "base/ring.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORK_THREADS = 16 };

struct work {
  loop *loop;
  ring *queue;
  int n;
  pthread_t threads[WORK_THREADS];
};

typedef struct item {
  void (*run)(void *), (*done)(void *);
  void *arg;
} item;

static void finish(void *arg) {
  item *i = arg;
  i->done(i->arg);
  free(i);
}

static void *worker(void *arg) {
  work *w = arg;
  for (item *i; (i = ring_wait(w->queue, -1));) {
    i->run(i->arg);
    while (!loop_post(w->loop, finish, i)) usleep(1000); /* the loop's queue is full: it is being emptied */
  }
  return NULL;
}

work *work_new(loop *l, int threads, size_t cap) {
  work *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->loop = l;
  w->queue = ring_new(cap);
  while (w->queue && w->n < threads && w->n < WORK_THREADS && pthread_create(&w->threads[w->n], NULL, worker, w) == 0) w->n++;
  if (w->n) return w;
  ring_free(w->queue);
  free(w);
  return NULL;
}

bool work_add(work *w, void (*run)(void *), void (*done)(void *), void *arg) {
  item *i = malloc(sizeof *i);
  if (!i) return false;
  *i = (item){run, done, arg};
  if (ring_push(w->queue, i)) return true;
  free(i);
  return false;
}

void work_free(work *w) {
  if (!w) return;
  ring_close(w->queue);
  for (int t = 0; t < w->n; t++) pthread_join(w->threads[t], NULL);
  ring_free(w->queue);
  free(w);
}
