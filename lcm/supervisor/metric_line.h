/* metric_line.h - what a learner announces by lines of text: metrics → MetricPoint (lines of stdout with "penstock":"metrics",
 * and lines of FfDL's evaluation-metrics.txt; docs/learner.md), checkpoints → report (lines with "penstock":"checkpoint"). NaN and Infinity, as Python writes them, are taken. @thread any. */
#ifndef PST_LCM_SUPERVISOR_METRIC_LINE_H
#define PST_LCM_SUPERVISOR_METRIC_LINE_H

#include "schemas/events.h"

#define PST_METRIC_VALUES_MAX 1000 /* of one point; further ones are left out */

/* 1: it is a metrics line, the point holds time (now_us if the line has none), group, step, epoch, values; clear it.
 * 0: it is an ordinary line. */
int sup_metric_line(const char *text, size_t len, int64_t now_us, pst_metric_point *ret_point);
/* 1: the learner wrote a checkpoint; the report says when (now_us if the line does not), and has what the line says (step, epoch, file, …;
 * short texts and numbers, at most PST_CHECKPOINT_DETAILS_MAX) as details; clear it. 0: an ordinary line. */
#define PST_CHECKPOINT_DETAILS_MAX 16
int sup_checkpoint_line(const char *text, size_t len, int64_t now_us, pst_process_report *ret_report);
/* One line of evaluation-metrics.txt. 1, or 0 when it is none (the reason in ret_why, borrowed). */
int sup_emetrics_line(const char *text, size_t len, int64_t now_us, pst_metric_point *ret_point, const char **ret_why);

#endif
