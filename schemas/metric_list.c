/* metric_list.c - the services' metrics as metrics.def lists them. Names of labels stand in the list, callers bring the values: the same metric cannot be made with other
 * labels in two places. */
#include "schemas/metric_list.h"

#include "common/base/err.h"

#include <stdarg.h>
#include <string.h>

enum { LABELS_MAX = 8, LABEL_BYTES_MAX = 32 };

static const pst_metric_def list[] = {
#define PST_METRIC(ID, kind, name, labels, help) {PST_METRIC_KIND_##kind, name, labels, help},
#include "schemas/metrics.def"
#undef PST_METRIC
};

const pst_metric_def *pst_metric_def_of(pst_metric_id id)
{
    PST_ASSERT((int)id >= 0 && id < PST_METRIC_COUNT);
    return &list[id];
}

pst_metric *pst_metric_of(pst_metrics *set, pst_metric_id id, ...)
{
    const pst_metric_def *d = pst_metric_def_of(id);
    char names[LABELS_MAX][LABEL_BYTES_MAX];
    const char *pairs[LABELS_MAX * 2 + 1] = {NULL};
    size_t n = 0;
    va_list ap;
    va_start(ap, id);
    for (const char *at = d->labels; *at; n++) {
        size_t len = strcspn(at, " ");
        PST_ASSERT(n < LABELS_MAX && len < LABEL_BYTES_MAX);
        memcpy(names[n], at, len);
        names[n][len] = 0;
        pairs[2 * n] = names[n];
        pairs[2 * n + 1] = va_arg(ap, const char *);
        PST_ASSERT(pairs[2 * n + 1]);
        at += len + (at[len] == ' ');
    }
    PST_ASSERT(!va_arg(ap, const char *));
    va_end(ap);
    return pst_metric_make(set, d->kind, d->name, d->help, pairs);
}
