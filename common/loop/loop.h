/* loop.h - one thread's event loop: timers, file descriptors, functions posted by other threads. The one adapter of libevent
 * (with http.h); event2 headers appear in common/loop and nowhere else.
 *
 *     pst_loop *l;
 *     pst_loop_new(&l, &err);
 *     pst_timer_new(l, 0, 1000000, on_tick, svc);          // now, then every second
 *     pst_loop_on_stop(l, begin_drain, svc);               // begin_drain calls pst_loop_stop(l) once all is done
 *     pst_loop_run(l);                                     // returns after SIGTERM (pst_stop_install) or pst_loop_stop
 *     pst_loop_free(l);
 *
 * Threads: everything here belongs to the thread that runs the loop (before run: to the creator), except pst_loop_post and pst_loop_stop.
 * Callbacks may create and free timers, watches and servers, their own included. */
#ifndef PST_LOOP_LOOP_H
#define PST_LOOP_LOOP_H

#include "common/base/dump.h"
#include "common/base/err.h"

typedef struct pst_loop pst_loop;
typedef struct pst_timer pst_timer;
typedef struct pst_watch pst_watch;

int pst_loop_new(pst_loop **ret_loop, pst_err *err);
/* Functions that were posted and not yet run are dropped. Free timers, watches and servers first. */
void pst_loop_free(pst_loop *l);
/* Runs until pst_loop_stop, or until pst_stop_fd() is readable and no on_stop is set. A second signal (pst_stop_forced) ends it in any case.
 * May be called again after it returned. */
void pst_loop_run(pst_loop *l);
/* Runs at most for timeout_ms, for tests and programs with a loop of their own; true while it was not stopped. */
bool pst_loop_run_for(pst_loop *l, int timeout_ms);
void pst_loop_stop(pst_loop *l); /* @thread any */
/* fn is called once, on the loop's thread, when the process is told to stop; it then decides when to call pst_loop_stop. */
void pst_loop_on_stop(pst_loop *l, void (*fn)(void *arg), void *arg);
/* This loop does not look at pst_stop_fd(): for helpers that must outlive the drain of the program (metrics). */
void pst_loop_ignore_stop(pst_loop *l);
/* The loop serves d (dump.h) whenever somebody asks for it; NULL = none any more. d outlives the loop, or is taken away before. */
void pst_loop_set_dump(pst_loop *l, pst_dump *d);
/* Calls fn(arg) on the loop's thread, in order of posting. PST_ELIMIT when 65,536 are waiting (the caller pauses), else 0. @thread any */
int pst_loop_post(pst_loop *l, void (*fn)(void *arg), void *arg);
bool pst_loop_is_current(const pst_loop *l); /* are we on its thread? @thread any */

/* First call after first_us (0 = at the next turn), then every every_us; every_us 0 = once (free it all the same, any time). */
pst_timer *pst_timer_new(pst_loop *l, int64_t first_us, int64_t every_us, void (*fn)(void *arg), void *arg);
void pst_timer_again(pst_timer *t, int64_t first_us); /* restarts the wait */
void pst_timer_stop(pst_timer *t);
void pst_timer_free(pst_timer *t); /* NULL-safe */

enum { PST_WATCH_READ = 1, PST_WATCH_WRITE = 2 };
/* Level-triggered; fd stays the caller's and must be open until pst_watch_free. */
pst_watch *pst_watch_new(pst_loop *l, int fd, int events, void (*fn)(void *arg, int fd, int events), void *arg);
void pst_watch_events(pst_watch *w, int events); /* 0 = pause */
void pst_watch_free(pst_watch *w);               /* NULL-safe */

#endif
