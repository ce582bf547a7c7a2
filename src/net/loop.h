/* loop.h - one event loop on one thread, timers, signals, and a way for other threads to post to it.
 * Not a thread pool.
 * Ownership: the loop owns its timers; posted closures run exactly once, in order of posting: loop_free runs those still queued before it tears down.
 * Threads: everything on the loop's thread except loop_post and loop_stop.
 * Failure: loop_new returns NULL. loop_post returns false when the queue (bounded, LOOP_POSTS) is full or memory is gone: the closure never runs. */
#ifndef NET_LOOP_H
#define NET_LOOP_H
#include <stdbool.h>
#include <stdint.h>

typedef struct loop loop;
typedef struct loop_timer loop_timer;
typedef void (*loop_fn)(void *arg);

enum { LOOP_POSTS = 65536 };

loop *loop_new(void);
void loop_free(loop *l);                                            /* cancels timers and signals; no thread may post any more */
bool loop_run(loop *l);                                             /* until loop_stop; false: the loop broke. May be called again */
void loop_stop(loop *l);                                            /* any thread, also before loop_run; ends one run */
bool loop_post(loop *l, loop_fn fn, void *arg);                     /* any thread: runs fn(arg) on the loop's thread, soon */
loop_timer *loop_after(loop *l, int64_t ns, loop_fn fn, void *arg); /* once; NULL: out of memory */
void loop_timer_cancel(loop_timer *t);                              /* before it fires; a fired timer is gone. NULL is allowed */
bool loop_on_signal(loop *l, int signo, loop_fn fn, void *arg);     /* every time it comes; one loop of a process takes signals */
struct event_base *loop_base(loop *l);                              /* for net/ itself */
#endif
