/* drift.h - what a model is given and says, counted over the bins of its training data (metadata penstock.statistics and penstock.score_statistics,
 * common/platform/models.h), until a window is full; then how far the two populations lie apart.
 *
 *     pst_drift *d = pst_drift_new(binding);              // NULL: the model has no training statistics
 *     pst_drift_row(d, binding, row);                      // of a row that was scored
 *     if (pst_drift_records(d) >= over)
 *         for (i = 0; i < pst_drift_columns(d); i++)
 *             … pst_drift_name(d, i), pst_drift_psi(d, i) …
 *     pst_drift_clear(d);
 *
 * @thread one owner. */
#ifndef PST_INFERENCE_CORE_DRIFT_H
#define PST_INFERENCE_CORE_DRIFT_H

#include "inference/core/binding.h"

enum { PST_DRIFT_COLUMNS_MAX = 200 }; /* beside the score */

typedef struct pst_drift pst_drift;

/* Of models with one input of float32 or float64 columns. */
pst_drift *pst_drift_new(const pst_binding *b);
void pst_drift_free(pst_drift *d); /* NULL-safe */
void pst_drift_row(pst_drift *d, const pst_binding *b, size_t row);
void pst_drift_clear(pst_drift *d);
uint64_t pst_drift_records(const pst_drift *d);
size_t pst_drift_columns(const pst_drift *d);
/* The field; of a field of several slots with the slot: "spectrum[3]"; "(score)". */
const char *pst_drift_name(const pst_drift *d, size_t i);
double pst_drift_psi(const pst_drift *d, size_t i);

#endif
