/* windowed.h - a pipeline's windows: its plan, and what is kept of the keys of each partition.
 *
 *     pst_windowed *w = pst_windowed_new(p);                 // NULL: the pipeline has none
 *     pst_windowed_add(w, partition);                        // before the first record of a partition: empty, to be restored by pst_keyed_restore
 *     pst_windowed_undo(w) … pst_windowed_settle(w);         // the round did not happen … it did
 *
 * @thread one at a time. */
#ifndef PST_INFERENCE_CORE_WINDOWED_H
#define PST_INFERENCE_CORE_WINDOWED_H

#include "inference/pipeline/pipeline.h"
#include "inference/state/keyed.h"

typedef struct pst_windowed pst_windowed;

pst_windowed *pst_windowed_new(const pst_pipeline *p);
void pst_windowed_free(pst_windowed *w);                              /* NULL-safe, as all below */
pst_keyed *pst_windowed_at(const pst_windowed *w, int32_t partition); /* NULL = none */
pst_keyed *pst_windowed_add(pst_windowed *w, int32_t partition);
void pst_windowed_drop(pst_windowed *w, int32_t partition);
void pst_windowed_drop_all(pst_windowed *w);
/* The i-th that is there; NULL = there are no more. */
pst_keyed *pst_windowed_each(const pst_windowed *w, size_t i, int32_t *ret_partition);
/* A place to come back to, of all partitions, and back. */
void pst_windowed_mark(pst_windowed *w);
void pst_windowed_back(pst_windowed *w);
void pst_windowed_undo(pst_windowed *w); /* to the last settle */
void pst_windowed_settle(pst_windowed *w);
pst_keyed_counts pst_windowed_count(const pst_windowed *w); /* of all partitions */
/* The windows as text, a line each; free(). */
char *pst_windowed_explain(const pst_pipeline *p);

#endif
