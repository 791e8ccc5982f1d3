/* thread.h - threads that have names, and conditions that they wait for. The names are what `top -H`, gdb and a core dump show of a service whose
 * threads would all be called "penstock".
 *
 *     int failed = pst_thread_start(&v->thread, "view", run, v);
 *
 * librdkafka names its own ("rdk:main", "rdk:broker1"). The main thread keeps the program's name. @thread any. */
#ifndef PST_BASE_THREAD_H
#define PST_BASE_THREAD_H

#include <pthread.h>

enum { PST_THREAD_NAME_MAX = 15 }; /* Linux keeps no more */

/* 0, or an errno. The new thread has its name before run is called. */
int pst_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *arg), void *arg);
/* One that nobody joins. */
int pst_thread_detached(const char *name, void *(*run)(void *arg), void *arg);
/* pthread_cond_timedwait of it takes what pst_mono_at() gives: a wall clock that somebody sets makes nobody wait for longer. */
void pst_cond_init(pthread_cond_t *c);

#endif
