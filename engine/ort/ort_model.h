/* ort_model.h - a loaded model written again for ONNX Runtime. */
#ifndef PST_ENGINE_ORT_MODEL_H
#define PST_ENGINE_ORT_MODEL_H

#include "engine/graph.h"

/* The bytes of m's ModelProto without unknown fields. ZipMap at an output becomes Identity: as in the engine, probabilities are one
 * (N, classes) tensor in the order of the class labels. free() ret_bytes. Not for two threads at once: it changes and restores the
 * proto. PST_EUNSUPPORTED: larger than protobuf can carry, or data outside of the file that the loader did not read. */
int ort_model_bytes(const pst_model *m, void **ret_bytes, size_t *ret_len, pst_err *err);

#endif
