/* onnx_read.h - from ONNX bytes to the engine's tensors and graph; not installed. */
#ifndef PST_ENGINE_ONNX_READ_H
#define PST_ENGINE_ONNX_READ_H

#include "engine/graph.h"

struct PstOnnx__TensorProto;
struct PstOnnx__SparseTensorProto;
struct ProtobufCMessageDescriptor;

/* Fills an empty model from a file's bytes. Called below eng_heap_run: what it allocates belongs to m->heap, also on failure. m borrows
 * nothing from data. base_dirfd < 0: external data is refused. */
int eng_onnx_load(pst_model *m, const void *data, size_t len, int base_dirfd, pst_err *err);

/* Walks the wire format before protobuf-c does, which recurses without a bound and allocates per field: refuses messages nested
 * deeper than depth_max, more than nodes_max nodes and field counts out of proportion. */
int eng_onnx_scan(const struct ProtobufCMessageDescriptor *root, const void *data, size_t len, const pst_model_limits *limits,
                  pst_err *err);

/* What the tensors and texts of one model may take beside its bytes: copies of typed lists, sparse tensors made dense, external data.
 * A few bytes of a file can ask for much of it - a function's constant once per call, a sparse tensor its whole shape. */
typedef struct eng_onnx_room {
    size_t left, max;
    int base_dirfd; /* where external data may lie; < 0: nowhere */
} eng_onnx_room;

/* PST_ELIMIT when there is no room for bytes more of what. */
int eng_onnx_take(eng_onnx_room *room, size_t bytes, const char *what, pst_err *err);

/* ret->data borrows from tp where the bytes can be used in place, else lies in zone. External data becomes tp's own raw data. */
int eng_onnx_tensor(eng_zone *zone, struct PstOnnx__TensorProto *tp, eng_onnx_room *room, const pst_model_limits *limits, pst_tensor *ret,
                    pst_err *err);
/* A sparse tensor as a dense one. */
int eng_onnx_sparse(eng_zone *zone, struct PstOnnx__SparseTensorProto *sp, eng_onnx_room *room, const pst_model_limits *limits,
                    pst_tensor *ret, pst_err *err);

/* Fills limits that are 0. */
void eng_limits_default(pst_model_limits *limits);

#endif
