/* onnx_read.h - from ONNX bytes to the engine's tensors and graph; not installed. */
#ifndef PST_ENGINE_ONNX_READ_H
#define PST_ENGINE_ONNX_READ_H

#include "engine/graph.h"

struct PstOnnx__TensorProto;
struct PstOnnx__SparseTensorProto;
struct ProtobufCMessageDescriptor;

/* Fills an empty model from a file's bytes. Called below pst_heap_run: what it allocates belongs to m->heap, also on failure. m borrows
 * nothing from data. base_dirfd < 0: external data is refused. */
int pst_onnx_load(pst_model *m, const void *data, size_t len, int base_dirfd, pst_err *err);

/* Walks the wire format before protobuf-c does, which recurses without a bound and allocates per field: refuses messages nested
 * deeper than depth_max, more than nodes_max nodes and field counts out of proportion. */
int pst_onnx_scan(const struct ProtobufCMessageDescriptor *root, const void *data, size_t len, const pst_model_limits *limits,
                  pst_err *err);

/* ret->data borrows from tp where the bytes can be used in place, else lies in zone. base_dirfd < 0: external data is refused. */
int pst_onnx_tensor(pst_zone *zone, const struct PstOnnx__TensorProto *tp, int base_dirfd, const pst_model_limits *limits, pst_tensor *ret,
                    pst_err *err);
/* A sparse tensor as a dense one. */
int pst_onnx_sparse(pst_zone *zone, const struct PstOnnx__SparseTensorProto *sp, const pst_model_limits *limits, pst_tensor *ret,
                    pst_err *err);

/* Fills limits that are 0. */
void pst_limits_default(pst_model_limits *limits);

#endif
