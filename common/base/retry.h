/* retry.h - what is done about an outage, between two attempts: it is logged, forgotten, and waited for.
 *
 *     while ((rc = attempt(err)) < 0 && err->cls == PST_CLASS_RETRY && pst_retry("lcm", err, 500))
 *         ;
 *
 * @thread any. */
#ifndef PST_BASE_RETRY_H
#define PST_BASE_RETRY_H

#include "common/base/err.h"

#include <stdbool.h>

/* component: whose log line it is; NULL = whoever failed has said it. False, at once and with err as it was: the program is asked to stop. */
bool pst_retry(const char *component, pst_err *err, int wait_ms);
/* The pause alone, for whoever is stopped by a word of its own: stopped is asked before it and every 50 ms. NULL: as above. False: stopped. */
bool pst_retry_pause(int wait_ms, bool (*stopped)(void *arg), void *arg);

#endif
