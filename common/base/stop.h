/* stop.h - requests to stop. SIGTERM and SIGINT set the flag (a second one forces: graceful waits are skipped); loops look at it between steps.
 * @thread any; install once in main. */
#ifndef PST_BASE_STOP_H
#define PST_BASE_STOP_H

#include <stdbool.h>

void pst_stop_install(void); /* SIGTERM, SIGINT → flag; SIGPIPE ignored */
bool pst_stop_requested(void);
bool pst_stop_forced(void);  /* requested twice: skip graceful waits */
int pst_stop_signal(void);   /* the signal number, 0 = none */
void pst_stop_request(void); /* from inside the program */
int pst_stop_fd(void);       /* readable once stopping; for poll() and event loops; -1 before install */
/* While it is on, a first request waits: what is under way, and ends by itself, is brought to its end. A second one counts at once. */
void pst_stop_defer(bool on);
void pst_stop_reset(void); /* for tests */

#endif
