/* targets.h - where the services of `penstock up` serve /metrics, as a file that Prometheus follows (file_sd): <state-dir>/metrics-targets.json. @thread one. */
#ifndef PST_DEPLOY_TARGETS_H
#define PST_DEPLOY_TARGETS_H

#include "deploy/local/services.h"

/* Best effort: one that cannot be written is logged. */
void local_targets_write(const local_services *s);
void local_targets_remove(const local_services *s);

#endif
