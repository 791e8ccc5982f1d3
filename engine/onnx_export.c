/* onnx_export.c - models written as ONNX files. Messages are written as wire bytes at once: each part grows its own buffer, nothing is
 * built twice. Protocol buffers encoding: developers.google.com/protocol-buffers/docs/encoding. */
#include "engine/onnx_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pst_onnx_builder {
    pst_buf nodes; /* finished node fields of GraphProto */
    pst_buf node;  /* the one being made: a NodeProto body */
    pst_buf inputs, outputs, initializers, meta, opsets;
    char *name, *domain; /* domain: the one other than ONNX's */
    int64_t opset, ir_version;
};

static void put_varint(pst_buf *b, uint64_t v)
{
    do
        pst_buf_addc(b, (char)((v & 127) | (v > 127 ? 128 : 0)));
    while (v >>= 7);
}

static void put_int(pst_buf *b, int field, int64_t v)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)v);
}

static void put_bytes(pst_buf *b, int field, const void *data, size_t len)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, len);
    if (len)
        pst_buf_add(b, data, len);
}

static void put_text(pst_buf *b, int field, const char *s)
{
    put_bytes(b, field, s, strlen(s));
}

/* A sub-message; its buffer is cleared for the next. */
static void put_message(pst_buf *b, int field, pst_buf *sub)
{
    put_bytes(b, field, sub->data, sub->len);
    pst_buf_done(sub);
}

static void put_float(pst_buf *b, int field, float f)
{
    put_varint(b, (uint64_t)field << 3 | 5);
    pst_buf_add(b, &f, 4); /* little endian */
}

pst_onnx_builder *pst_onnx_new(const char *graph_name, int64_t opset, int64_t ir_version)
{
    pst_onnx_builder *b = pst_alloc(sizeof *b);
    b->name = pst_strdup(graph_name);
    b->opset = opset;
    b->ir_version = ir_version;
    return b;
}

void pst_onnx_free(pst_onnx_builder *b)
{
    if (!b)
        return;
    pst_buf_done(&b->nodes);
    pst_buf_done(&b->node);
    pst_buf_done(&b->inputs);
    pst_buf_done(&b->outputs);
    pst_buf_done(&b->initializers);
    pst_buf_done(&b->meta);
    pst_buf_done(&b->opsets);
    free(b->domain);
    free(b->name);
    free(b);
}

static void put_value_info(pst_buf *to, int field, const char *name, pst_dtype dtype, int rank, const int64_t *dims, const char *free_name)
{
    pst_buf shape = {0}, tensor = {0}, type = {0}, info = {0};
    for (int i = 0; i < rank; i++) {
        pst_buf dim = {0};
        if (dims[i] < 0)
            put_text(&dim, 2, free_name ? free_name : "N");
        else
            put_int(&dim, 1, dims[i]);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, dtype);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(to, field, &info);
}

void pst_onnx_input(pst_onnx_builder *b, const char *name, pst_dtype dtype, int rank, const int64_t *dims, const char *free_name)
{
    put_value_info(&b->inputs, 11, name, dtype, rank, dims, free_name);
}

void pst_onnx_output(pst_onnx_builder *b, const char *name, pst_dtype dtype, int rank, const int64_t *dims, const char *free_name)
{
    put_value_info(&b->outputs, 12, name, dtype, rank, dims, free_name);
}

static void put_initializer(pst_onnx_builder *b, const char *name, pst_dtype dtype, int rank, const int64_t *dims, const void *data)
{
    pst_buf t = {0};
    size_t bytes = pst_dtype_size(dtype);
    for (int i = 0; i < rank; i++) {
        put_int(&t, 1, dims[i]);
        bytes *= (size_t)dims[i];
    }
    put_int(&t, 2, dtype);
    put_text(&t, 8, name);
    put_bytes(&t, 9, data, bytes);
    put_message(&b->initializers, 5, &t);
}

void pst_onnx_floats(pst_onnx_builder *b, const char *name, int rank, const int64_t *dims, const float *data)
{
    put_initializer(b, name, PST_F32, rank, dims, data);
}

void pst_onnx_ints(pst_onnx_builder *b, const char *name, int rank, const int64_t *dims, const int64_t *data)
{
    put_initializer(b, name, PST_I64, rank, dims, data);
}

static void finish_node(pst_onnx_builder *b)
{
    if (b->node.len)
        put_message(&b->nodes, 1, &b->node);
}

void pst_onnx_node(pst_onnx_builder *b, const char *op_type, const char *const *inputs, size_t n_inputs, const char *const *outputs,
                   size_t n_outputs)
{
    finish_node(b);
    for (size_t i = 0; i < n_inputs; i++)
        put_text(&b->node, 1, inputs[i]);
    for (size_t i = 0; i < n_outputs; i++)
        put_text(&b->node, 2, outputs[i]);
    put_text(&b->node, 4, op_type);
}

void pst_onnx_attr_int(pst_onnx_builder *b, const char *name, int64_t value)
{
    pst_buf a = {0};
    put_text(&a, 1, name);
    put_int(&a, 3, value);
    put_int(&a, 20, 2);
    put_message(&b->node, 5, &a);
}

void pst_onnx_attr_float(pst_onnx_builder *b, const char *name, float value)
{
    pst_buf a = {0};
    put_text(&a, 1, name);
    put_float(&a, 2, value);
    put_int(&a, 20, 1);
    put_message(&b->node, 5, &a);
}

void pst_onnx_attr_ints(pst_onnx_builder *b, const char *name, const int64_t *values, size_t n)
{
    pst_buf a = {0};
    put_text(&a, 1, name);
    for (size_t i = 0; i < n; i++)
        put_int(&a, 8, values[i]);
    put_int(&a, 20, 7);
    put_message(&b->node, 5, &a);
}

void pst_onnx_attr_str(pst_onnx_builder *b, const char *name, const char *value)
{
    pst_buf a = {0};
    put_text(&a, 1, name);
    put_text(&a, 4, value);
    put_int(&a, 20, 3);
    put_message(&b->node, 5, &a);
}

void pst_onnx_attr_floats(pst_onnx_builder *b, const char *name, const float *values, size_t n)
{
    pst_buf a = {0};
    put_text(&a, 1, name);
    for (size_t i = 0; i < n; i++)
        put_float(&a, 7, values[i]);
    put_int(&a, 20, 6);
    put_message(&b->node, 5, &a);
}

void pst_onnx_attr_strs(pst_onnx_builder *b, const char *name, const char *const *values, size_t n)
{
    pst_buf a = {0};
    put_text(&a, 1, name);
    for (size_t i = 0; i < n; i++)
        put_text(&a, 9, values[i]);
    put_int(&a, 20, 8);
    put_message(&b->node, 5, &a);
}

void pst_onnx_domain(pst_onnx_builder *b, const char *domain, int64_t version)
{
    put_text(&b->node, 7, domain);
    if (b->domain && !strcmp(b->domain, domain))
        return;
    pst_buf o = {0};
    put_text(&o, 1, domain);
    put_int(&o, 2, version);
    put_message(&b->opsets, 8, &o);
    free(b->domain);
    b->domain = pst_strdup(domain);
}

void pst_onnx_meta(pst_onnx_builder *b, const char *key, const char *value)
{
    pst_buf e = {0};
    put_text(&e, 1, key);
    put_text(&e, 2, value);
    put_message(&b->meta, 14, &e);
}

static void put_graph(pst_buf *to, int field, const pst_onnx_builder *b)
{
    pst_buf graph = {0};
    pst_buf_add(&graph, b->nodes.data, b->nodes.len);
    if (b->node.len)
        put_bytes(&graph, 1, b->node.data, b->node.len);
    put_text(&graph, 2, b->name);
    pst_buf_add(&graph, b->initializers.data, b->initializers.len);
    pst_buf_add(&graph, b->inputs.data, b->inputs.len);
    pst_buf_add(&graph, b->outputs.data, b->outputs.len);
    put_message(to, field, &graph);
}

void pst_onnx_attr_graph(pst_onnx_builder *b, const char *name, const pst_onnx_builder *body)
{
    pst_buf a = {0};
    put_text(&a, 1, name);
    put_graph(&a, 6, body);
    put_int(&a, 20, 5);
    put_message(&b->node, 5, &a);
}

void pst_onnx_write(const pst_onnx_builder *b, pst_buf *ret)
{
    pst_buf opset = {0};
    put_int(ret, 1, b->ir_version);
    put_text(ret, 2, "penstock");
    put_text(ret, 3, PST_VERSION);
    put_graph(ret, 7, b);
    put_text(&opset, 1, "");
    put_int(&opset, 2, b->opset);
    put_message(ret, 8, &opset);
    pst_buf_add(ret, b->opsets.data, b->opsets.len);
    pst_buf_add(ret, b->meta.data, b->meta.len);
}
