/* export.h - a trained network as ONNX, with everything a scorer needs inside: standardisation in the graph, the mapping in the metadata.
 *
 *     autoencoder     input (N,k) → Sub mean → Div std → Gemm, activation, … → Mul std → Add mean → reconstruction (N,k)
 *                                                                            ↘ mean of (z − ẑ)² → error (N,1), the last output
 *     mlp, a number   input (N,k) → Sub → Div → Gemm, … → Mul std → Add mean → prediction (N,1)
 *     mlp, classes    input (N,k) → Sub → Div → Gemm, … → Softmax → probabilities (N,classes)
 *
 * The reconstruction error is taken in the standardised space: in the fields' own units the largest field would drown the others.
 * Metadata keys: common/platform/models.h. Opset 17, IR 8. @thread any. */
#ifndef PST_LEARNER_EXPORT_H
#define PST_LEARNER_EXPORT_H

#include "common/base/buf.h"
#include "trainer/learner/training.h"

typedef struct learn_result {
    const char *name; /* of the model */
    const char *training_id;
    int generation;
    const learn_data_range *ranges;
    size_t n_ranges;
    int64_t records;
    double threshold; /* NaN = none */
} learn_result;

/* Appends the ModelProto. */
void learn_export_onnx(learn_training *t, const learn_result *r, pst_buf *out);
/* model.json: fields of a ModelEvent (features, trained_on, metrics). */
char *learn_export_json(const learn_training *t, const learn_result *r);
/* Runs the exported bytes in the engine on the sample rows and compares with the network's own forward pass. ret_difference: the largest
 * one, relative to max(1, |value|). PST_EINVAL when it is more than float32 arithmetic explains. */
int learn_export_verify(learn_training *t, const void *onnx, size_t len, double *ret_difference, pst_err *err);

#endif
