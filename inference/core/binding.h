/* binding.h - a model version bound to a pipeline: which features feed which inputs, how outputs become score and label. Knows nothing of
 * Kafka or Avro.
 *
 *     pst_binding_new(pipeline, model, "telemetry-ae", 3, 512, &b, &err);
 *     score_layout_new(pst_binding_features(b), n, arrays, pst_binding_width(b), &layout, &err);   // once per kind of record
 *     pst_binding_set_width(b, score_layout_width(layout), &err);
 *     double *x = pst_binding_scratch(b);
 *     … score_layout_row(layout, numbers, missing, texts, x, &err); pst_binding_put(b, row, x); …     // and put_text for text features
 *     pst_binding_run(b, 0, rows, &err);
 *     pst_binding_score(b, row, &scores, &label);
 *
 * Score types: raw = the last output, flattened; reconstruction_error = mean of (input − output)² over the slots, input as the model saw it;
 * class = label output (or the name or number of the largest probability) and the last output as probabilities. A model that brings its
 * own error output or class names (metadata, common/platform/models.h) is taken at its word.
 * @thread one at a time (it owns a plan and its rows); may be created on one thread and used on another. */
#ifndef PST_INFERENCE_CORE_BINDING_H
#define PST_INFERENCE_CORE_BINDING_H

#include "engine/penstock_engine.h"
#include "inference/core/layout.h"

typedef struct pst_binding pst_binding;

#define PST_FEATURE_TEXT_MAX (64u << 10) /* bytes of one text */
#define PST_BACKEND_BYTES    16

/* What a pipeline lets its model's file and runs take: limits.model_bytes, limits.arena_bytes. */
pst_model_limits pst_binding_limits(const pst_pipeline *p);
/* m: referenced. name, version: of the registered model; a file has its base name and version 0. rows_max: rows of one run.
 * PST_EINVAL/DATA when features and model do not fit together, saying which. */
int pst_binding_new(const pst_pipeline *p, pst_model *m, const char *name, int version, size_t rows_max, pst_binding **ret_binding,
                    pst_err *err);
void pst_binding_free(pst_binding *b);

const char *pst_binding_name(const pst_binding *b);
int pst_binding_version(const pst_binding *b);
const char *pst_binding_digest(const pst_binding *b);
const char *pst_binding_remark(const pst_binding *b); /* what one should know about the model's numbers; NULL = nothing */
/* Threads of one run: fewer than the pipeline asks for where the process may not use so many CPUs. */
int pst_binding_threads(const pst_binding *b);
/* "cpu" or "cuda:N", which computes it now; *ret_why as pst_plan_device. */
const char *pst_binding_device(const pst_binding *b, const char **ret_why);
/* It is the CPU's since the device is lost, or does not answer. */
bool pst_binding_device_lost(const pst_binding *b);
pst_score_type pst_binding_score_type(const pst_binding *b);
bool pst_binding_threshold(const pst_binding *b, double *ret);
/* In slot order: grouped by model input. */
const pst_feature *pst_binding_features(const pst_binding *b, size_t *ret_n);
size_t pst_binding_width(const pst_binding *b); /* slots of a row; 0 = free, as wide as the features */
/* Says how wide rows are before the first put: PST_EINVAL/DATA if the model or earlier records say otherwise. */
int pst_binding_set_width(pst_binding *b, size_t width, pst_err *err);
double *pst_binding_scratch(pst_binding *b, size_t width); /* room for one row */

/* Row r < rows_max becomes x (width doubles, as set); slots of text inputs are given by pst_binding_put_text. Returns the slot of the first finite
 * number that the model's element type cannot hold (it is now infinite, or the type's nearest), or width: there is none. */
size_t pst_binding_put(pst_binding *b, size_t r, const double *x);
/* Slot `slot` of row r, which belongs to an input of strings: copied, cut at a NUL; data NULL = the empty text. No heap use once texts of that
 * length were seen there. PST_ELIMIT/DATA beyond PST_FEATURE_TEXT_MAX. */
int pst_binding_put_text(pst_binding *b, size_t r, size_t slot, pst_slice text, pst_err *err);
/* Runs rows [from, to); their scores replace those of earlier runs. No heap use in the steady state. */
int pst_binding_run(pst_binding *b, size_t from, size_t to, pst_err *err);
/* Other bounds for the runs to come. */
void pst_binding_limit(pst_binding *b, int ms_max);
/* Runs one row of zeros, where the model's width is known: PST_ELIMIT, class DATA, when it does not end. What else it says
 * against zeros says nothing of records. */
int pst_binding_probe(pst_binding *b, pst_err *err);
/* Borrowed until the next run of this row. ret_label NULL where there is none. Returns the number of scores. */
size_t pst_binding_score(const pst_binding *b, size_t r, const double **ret_scores, const char **ret_label);
/* What computed this row's scores, when it was run last: "cpu", "cuda:N". */
void pst_binding_backend(const pst_binding *b, size_t r, char ret[PST_BACKEND_BYTES]);
/* Inputs, outputs, features, score type and the model's plan, as text; free(). */
char *pst_binding_explain(const pst_binding *b);

#endif
