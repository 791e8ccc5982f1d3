/* dump.h - what a service holds at this moment, as JSON: at SIGUSR1 to its log, over HTTP as GET /state. For looking into one that is stuck.
 *
 *     static void fill(void *arg, json_t *to) { json_object_set_new(to, "waiting", json_integer(((svc *)arg)->waiting)); }
 *
 *     pst_dump_new("trainer", fill, svc, &dump, &err);
 *     while (!pst_stop_requested()) { pst_dump_serve(dump); … }       // or pst_loop_set_dump(loop, dump)
 *
 * fill runs on the thread that serves, between two steps of its loop, so it reads the service's state without locks and sees none half changed.
 * It names no secrets: dumps are sent along with reports of defects. A loop that is stuck answers nobody, and that is reported, too. */
#ifndef PST_BASE_DUMP_H
#define PST_BASE_DUMP_H

#include "common/base/err.h"
#include "common/base/json.h"

typedef struct pst_dump pst_dump;

/* SIGUSR1 does not end this process from now on; it is remembered until there is a dump that is served. Every program begins with it
 * (program.h), so that a service is not ended by the question while it still waits for a lock or a broker. */
void pst_dump_install(void);
/* One for each process at a time. */
int pst_dump_new(const char *component, void (*fill)(void *arg, json_t *to), void *arg, pst_dump **ret_dump, pst_err *err);
/* Whoever still waits in pst_dump_ask gets NULL. NULL-safe. */
void pst_dump_free(pst_dump *d);
/* Answers who has asked since; two loads where nobody has. NULL-safe. @thread the owner's */
void pst_dump_serve(pst_dump *d);
/* The dump at once: component, version, pid, time, seconds since pst_dump_new, and what fill adds. @thread the owner's */
json_t *pst_dump_now(pst_dump *d);
/* The dump as the owner's thread makes it; NULL when it did not come by within timeout_ms. @thread any but the owner's */
json_t *pst_dump_ask(pst_dump *d, int timeout_ms);
/* Readable while somebody waits to be served: for loops that sleep in poll(). */
int pst_dump_fd(void);

#endif
