/* onnx_export.h - writing an ONNX file: a small builder for graphs made in memory.
 *
 *     pst_onnx_builder *b = pst_onnx_new("autoencoder", 17, 8);
 *     pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 30}, "N");          // -1 = the dimension named "N"
 *     pst_onnx_floats(b, "w0", 2, (int64_t[]){64, 30}, w);
 *     pst_onnx_floats(b, "b0", 1, (int64_t[]){64}, bias);
 *     pst_onnx_node(b, "Gemm", (const char *[]){"x", "w0", "b0"}, 3, (const char *[]){"h0"}, 1);
 *     pst_onnx_attr_int(b, "transB", 1);                                     // of the node added last
 *     pst_onnx_node(b, "Relu", (const char *[]){"h0"}, 1, (const char *[]){"y"}, 1);
 *     pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 64}, "N");
 *     pst_onnx_meta(b, "training_id", id);
 *     pst_onnx_write(b, &buf);
 *     pst_onnx_free(b);
 *
 * Everything is copied. The bytes are the same for the same calls. @thread any, one owner. */
#ifndef PST_ENGINE_ONNX_EXPORT_H
#define PST_ENGINE_ONNX_EXPORT_H

#include "common/base/buf.h"
#include "engine/penstock_engine.h"

typedef struct pst_onnx_builder pst_onnx_builder;

pst_onnx_builder *pst_onnx_new(const char *graph_name, int64_t opset, int64_t ir_version);
void pst_onnx_free(pst_onnx_builder *b); /* NULL-safe */
/* free_name: the name of dimensions given as -1; NULL = "N". */
void pst_onnx_input(pst_onnx_builder *b, const char *name, pst_dtype dtype, int rank, const int64_t *dims, const char *free_name);
void pst_onnx_output(pst_onnx_builder *b, const char *name, pst_dtype dtype, int rank, const int64_t *dims, const char *free_name);
void pst_onnx_floats(pst_onnx_builder *b, const char *name, int rank, const int64_t *dims, const float *data);
void pst_onnx_ints(pst_onnx_builder *b, const char *name, int rank, const int64_t *dims, const int64_t *data);
/* Names "" stand for inputs and outputs left out. */
void pst_onnx_node(pst_onnx_builder *b, const char *op_type, const char *const *inputs, size_t n_inputs, const char *const *outputs,
                   size_t n_outputs);
/* Attributes of the node added last. */
void pst_onnx_attr_int(pst_onnx_builder *b, const char *name, int64_t value);
void pst_onnx_attr_float(pst_onnx_builder *b, const char *name, float value);
void pst_onnx_attr_ints(pst_onnx_builder *b, const char *name, const int64_t *values, size_t n);
void pst_onnx_attr_str(pst_onnx_builder *b, const char *name, const char *value);
void pst_onnx_attr_floats(pst_onnx_builder *b, const char *name, const float *values, size_t n);
void pst_onnx_attr_strs(pst_onnx_builder *b, const char *name, const char *const *values, size_t n);
/* The graph of another builder, copied; its opset, IR version and metadata do not count. */
void pst_onnx_attr_graph(pst_onnx_builder *b, const char *name, const pst_onnx_builder *body);
/* The node added last is of another domain than ONNX's own, imported at this version. */
void pst_onnx_domain(pst_onnx_builder *b, const char *domain, int64_t version);
void pst_onnx_meta(pst_onnx_builder *b, const char *key, const char *value);
/* Appends the serialized ModelProto to ret. */
void pst_onnx_write(const pst_onnx_builder *b, pst_buf *ret);

#endif
