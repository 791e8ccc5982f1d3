/* metrics.h - counters, gauges, histograms in Prometheus' text format 0.0.4 (and OpenMetrics by the same names), without a library.
 *
 *     pst_metric *m = pst_metric_counter(set, "penstock_records_scored_total", "Records scored.", "model", "telemetry-ae", NULL);
 *     pst_metric_add(m, 1);
 *     pst_metrics_text(set, &buf);
 *
 * The same name and labels give the same metric. @thread any: updates are atomic, creation and printing take the set's lock. */
#ifndef PST_BASE_METRICS_H
#define PST_BASE_METRICS_H

#include "common/base/buf.h"

typedef struct pst_metrics pst_metrics;
typedef struct pst_metric pst_metric;
/* HISTOGRAM: of seconds, 20 exponential buckets from 50 µs to 26 s. SPREAD: a histogram of numbers that are mostly between 0 and 1, as scores are: 24 buckets
 * from 0 to 1000, ten of them between 0.1 and 1; what is below 0 is in the first. */
typedef enum { PST_METRIC_KIND_COUNTER = 0, PST_METRIC_KIND_GAUGE, PST_METRIC_KIND_HISTOGRAM, PST_METRIC_KIND_SPREAD } pst_metric_kind;

pst_metrics *pst_metrics_new(void);
void pst_metrics_free(pst_metrics *s);
/* The services' metrics are listed in schemas/metrics.def and made by pst_metric_of. Labels: name, value, … NULL. At most 1,000 metrics a set: beyond that a shared overflow metric is returned. */
pst_metric *pst_metric_counter(pst_metrics *s, const char *name, const char *help, ...) __attribute__((sentinel));
pst_metric *pst_metric_gauge(pst_metrics *s, const char *name, const char *help, ...) __attribute__((sentinel));
pst_metric *pst_metric_histogram(pst_metrics *s, const char *name, const char *help, ...) __attribute__((sentinel));
/* The same from an array of label names and values, NULL-terminated. */
pst_metric *pst_metric_make(pst_metrics *s, pst_metric_kind kind, const char *name, const char *help, const char *const *labels);
const char *pst_metric_kind_name(pst_metric_kind kind); /* "counter" */
void pst_metric_add(pst_metric *m, double v);           /* counter, gauge */
void pst_metric_set(pst_metric *m, double v);           /* gauge */
void pst_metric_observe(pst_metric *m, double seconds);
/* Of SPREAD: counted apart and added in one step. NaN is in none. */
#define PST_METRIC_SPREAD 25
typedef struct pst_metric_spread {
    uint64_t n[PST_METRIC_SPREAD]; /* the last: above all edges */
    double sum;
} pst_metric_spread;
void pst_metric_spread_add(pst_metric_spread *s, double value);
double pst_metric_spread_quantile(const pst_metric_spread *s, double q); /* interpolated; 0 when empty */
void pst_metric_merge(pst_metric *m, const pst_metric_spread *s);
double pst_metric_get(const pst_metric *m);                /* counter, gauge; histogram: count */
double pst_metric_quantile(const pst_metric *m, double q); /* histogram: seconds, interpolated; 0 when empty */
void pst_metrics_text(pst_metrics *s, pst_buf *out);
void pst_metrics_open_text(pst_metrics *s, pst_buf *out); /* OpenMetrics 1.0 */

#endif
