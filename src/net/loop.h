/* loop.h - one event loop on one thread, timers, signals, and a way for other threads to post to it.
 * Not a thread pool.
 * Ownership: the loop owns its timers; posted closures run exactly once (or are dropped with their free function at loop_free).
 * Threads: everything on the loop's thread except loop_post and loop_stop.
 * Failure: loop_new returns NULL. loop_post returns false when the queue (bounded, LOOP_POSTS) is full or the loop is gone. */
#ifndef NET_LOOP_H
#define NET_LOOP_H
#include <stdbool.h>
#include <stdint.h>

typedef struct loop loop;
typedef struct loop_timer loop_timer;
typedef void (*loop_fn)(void *arg);

loop *loop_new(void);
void loop_free(loop *l);
bool loop_run(loop *l);                             /* until loop_stop; false: the loop broke */
void loop_stop(loop *l);                            /* any thread */
bool loop_post(loop *l, loop_fn fn, void *arg);     /* any thread: runs fn(arg) on the loop's thread, in order of posting; bounded (65,536) */
loop_timer *loop_after(loop *l, int64_t ns, loop_fn fn, void *arg);  /* once; NULL: out of memory */
void loop_timer_cancel(loop_timer *t);              /* before it fires; a fired timer is gone */
bool loop_on_signal(loop *l, int signo, loop_fn fn, void *arg);
struct event_base *loop_base(loop *l);              /* for net/ itself */
#endif
