/* mlflow_filter.h - the filters and orders of MLflow's searches: `metrics.loss < 0.5 AND params."batch size" = '32' AND tags.owner LIKE 'a%'`,
 * `metrics.loss DESC`. A filter is a list of comparisons joined by AND, as MLflow's own; there is no OR, and no bracket.
 *
 *     gw_filter *f;
 *     if (!gw_filter_parse(text, run_attributes, &f, &err) && gw_filter_matches(f, value_of, run)) …
 *
 * Source: MLflow's documentation of search syntax. @thread any. */
#ifndef PST_PRODUCERS_GATEWAY_MLFLOW_FILTER_H
#define PST_PRODUCERS_GATEWAY_MLFLOW_FILTER_H

#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { GW_FILTER_TEXT_MAX = 32 << 10, GW_FILTER_CLAUSES_MAX = 100, GW_FILTER_VALUES_MAX = 1000, GW_FILTER_PATTERN_MAX = 500 };

typedef enum { GW_ATTRIBUTE, GW_METRIC, GW_PARAM, GW_TAG } gw_filter_of;
typedef struct gw_attribute {
    const char *name; /* ends with NULL */
    bool number;
} gw_attribute;
/* What a thing has of it. */
typedef struct gw_value {
    bool there, is_number;
    double number;
    const char *text; /* borrowed */
} gw_value;
typedef gw_value (*gw_value_of)(const void *thing, gw_filter_of of, const char *key);

typedef struct gw_filter gw_filter;
/* text NULL or blank: matches everything. attributes: those that the things have; metrics are asked for only where takes_metrics. PST_EPARSE/DATA: where and why. */
int gw_filter_parse(const char *text, const gw_attribute *attributes, gw_filter **ret_filter, pst_err *err);
bool gw_filter_matches(const gw_filter *f, gw_value_of value_of, const void *thing);
void gw_filter_free(gw_filter *f);

typedef struct gw_order {
    gw_filter_of of;
    char *key;
    bool descending;
} gw_order;
int gw_order_parse(const char *text, const gw_attribute *attributes, gw_order *ret_order, pst_err *err);
void gw_order_done(gw_order *o);
/* < 0: a comes first. What has no such value comes last, whichever the direction. */
int gw_order_compare(const gw_order *o, gw_value_of value_of, const void *a, const void *b);

#endif
