/* collectors.h - all that becomes metric points of a run besides its metrics lines: evaluation-metrics.txt in any case, and what the manifest's
 * evaluation_metrics asks for. Never in the learner's way, and never an error of the run: what cannot be read is said in the job's log.
 * @thread main. */
#ifndef PST_LCM_SUPERVISOR_COLLECTORS_H
#define PST_LCM_SUPERVISOR_COLLECTORS_H

#include "lcm/supervisor/run.h"

typedef struct sup_collectors sup_collectors;

/* Before the command starts: what files hold by then is an earlier run's. */
sup_collectors *sup_collectors_new(sup_run *r, void (*point)(void *arg, const pst_metric_point *point), void *arg);
/* A plain line of the output, valid UTF-8. */
void sup_collectors_line(sup_collectors *c, pst_log_stream stream, const char *text, size_t len);
void sup_collectors_poll(sup_collectors *c);
/* Nothing of the learner lives: all that is left is read, with bounds, and the collectors end. */
void sup_collectors_end(sup_collectors *c);

#endif
