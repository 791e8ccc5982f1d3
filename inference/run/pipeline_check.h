/* pipeline_check.h - everything that can be known about a pipeline before it runs, in one place: `score check`, `score dry-run` and
 * `pipelines apply` refuse the same things because they ask here, and so does `up` (through `score check`) before it lets a published
 * pipeline take the place of the one that runs.
 *
 *     pst_check_opts o = {.report = stderr};
 *     if (pst_pipeline_check(&settings, p, &o, NULL, &err) < 0) …    // "pipe.yml:4: model m: its input has 4 slots, the features fill 3"
 *
 * Registers nothing, makes no topic, joins no group. @thread any. */
#ifndef PST_INFERENCE_RUN_PIPELINE_CHECK_H
#define PST_INFERENCE_RUN_PIPELINE_CHECK_H

#include "common/base/settings.h"
#include "inference/core/binding.h"

#include <stdio.h>

/* What needs no network: names of topics, Kafka properties, the device. PST_EINVAL: a configuration error (exit status 2). */
int pst_pipeline_check_here(const pst_settings *settings, const pst_pipeline *p, pst_err *err);

typedef struct pst_check_opts {
    FILE *report;      /* what was looked at and found, a line each; NULL = nothing */
    bool verbose;      /* reported with the decode plans and the model's plan */
    bool may_be_alone; /* a registry that cannot be reached is told, and no failure: dry runs of a model file need no network */
} pst_check_opts;

/* All of it: check_here; the models of all variants are there and take the features; the newest schema of each input topic fits them; the
 * registry takes the scores' schema; of a JSON topic, some of the newest records fill the models' inputs. PST_ENOTFOUND no such model, PST_EINCOMPAT a schema does not fit, PST_EUNREACH, PST_EINVAL.
 * ret_binding: of the primary model, to be freed; NULL = not wanted. */
int pst_pipeline_check(const pst_settings *settings, const pst_pipeline *p, const pst_check_opts *opts, pst_binding **ret_binding,
                       pst_err *err);

#endif
