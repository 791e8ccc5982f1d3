/* lcm_metrics.h - what an LCM tells Prometheus (--port): made of its dump once a second, by the thread that owns the shell. @thread one. */
#ifndef PST_LCM_METRICS_H
#define PST_LCM_METRICS_H

#include "common/base/dump.h"
#include "common/base/json.h"

typedef struct lcm_metrics lcm_metrics;

/* port 0: none is served, *ret_metrics is NULL. dump: for GET /state, to who shows the token of token_path; outlives the metrics. */
int lcm_metrics_open(int port, int64_t epoch, pst_dump *dump, const char *token_path, lcm_metrics **ret_metrics, pst_err *err);
/* fill: lcm_shell_dump or one like it. NULL-safe, cheap when a second has not passed. */
void lcm_metrics_show(lcm_metrics *m, void (*fill)(void *arg, json_t *to), void *arg);
void lcm_metrics_close(lcm_metrics *m); /* NULL-safe */

#endif
