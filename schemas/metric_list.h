/* metric_list.h - the services' metrics, from metrics.def.
 *
 *     pst_metric *m = pst_metric_of(set, PST_METRIC_SCORER_COMMITS, pipeline, "ok", NULL);
 *
 * @thread any. */
#ifndef PST_SCHEMAS_METRIC_LIST_H
#define PST_SCHEMAS_METRIC_LIST_H

#include "common/base/metrics.h"

typedef enum {
#define PST_METRIC(ID, kind, name, labels, help) PST_METRIC_##ID,
#include "schemas/metrics.def"
#undef PST_METRIC
    PST_METRIC_COUNT
} pst_metric_id;

typedef struct pst_metric_def {
    pst_metric_kind kind;
    const char *name, *labels, *help; /* labels: with blanks between, "" = none */
} pst_metric_def;

const pst_metric_def *pst_metric_def_of(pst_metric_id id);
/* The metric of the set, made when it is not there yet. The values of its labels, in their order, then NULL. */
pst_metric *pst_metric_of(pst_metrics *set, pst_metric_id id, ...) __attribute__((sentinel));

#endif
