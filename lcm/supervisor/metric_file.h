/* metric_file.h - follows a growing evaluation-metrics.txt (docs/learner.md) and hands out its points. @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_METRIC_FILE_H
#define PST_LCM_SUPERVISOR_METRIC_FILE_H

#include "schemas/events.h"

typedef struct sup_metric_file sup_metric_file;

/* The file need not exist yet. From its present end if it is there already: an earlier generation's lines were published. */
sup_metric_file *sup_metric_file_new(const char *path, void (*point)(void *arg, const pst_metric_point *point), void *arg);
void sup_metric_file_poll(sup_metric_file *f);  /* reads what was added, at most 1 MiB; NULL-safe */
void sup_metric_file_drain(sup_metric_file *f); /* at the end: all that is left, at most 256 MiB */
void sup_metric_file_free(sup_metric_file *f);

#endif
