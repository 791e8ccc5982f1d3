/* ort_model.c - the model as it was loaded, packed again. Unknown fields go, since they may hold anything; ZipMap becomes Identity for the
 * moment of packing and is put back, because a copy of the proto would double the weights in memory. */
#include "engine/ort/ort_model.h"

#include "engine/heap.h"
#include "engine/onnx.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define PROTO_BYTES_MAX ((size_t)INT32_MAX)

/* Nesting was bounded when the bytes were scanned. */
static int strip(ProtobufCMessage *msg, pst_err *err)
{
    const ProtobufCMessageDescriptor *d = msg->descriptor;
    msg->n_unknown_fields = 0; /* their bytes belong to the model's heap */
    if (d == &pst_onnx__tensor_proto__descriptor && ((PstOnnx__TensorProto *)msg)->data_location == 1)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0,
                           "a tensor that no node reads keeps its data outside the file; save the model as one file");
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        if (f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        char *at = (char *)msg + f->offset;
        ProtobufCMessage **list = f->label == PROTOBUF_C_LABEL_REPEATED ? *(ProtobufCMessage ***)at : (ProtobufCMessage **)at;
        size_t n = f->label == PROTOBUF_C_LABEL_REPEATED ? *(size_t *)((char *)msg + f->quantifier_offset) : 1;
        for (size_t k = 0; k < n; k++) {
            int rc = list[k] ? strip(list[k], err) : 0;
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

typedef struct zipmap {
    PstOnnx__NodeProto *node, saved_node;
    PstOnnx__ValueInfoProto *out;
    PstOnnx__TypeProto *saved_type;
} zipmap;

static bool find_zipmap(PstOnnx__GraphProto *g, PstOnnx__ValueInfoProto *out, zipmap *ret)
{
    if (!out->name)
        return false;
    for (size_t i = 0; i < g->n_node; i++) {
        PstOnnx__NodeProto *n = g->node[i];
        if (n->n_output && !strcmp(n->output[0], out->name)) {
            *ret = (zipmap){.node = n, .saved_node = *n, .out = out, .saved_type = out->type};
            return n->op_type && !strcmp(n->op_type, "ZipMap");
        }
    }
    return false;
}

static int pack(PstOnnx__ModelProto *mp, void **ret_bytes, size_t *ret_len, pst_err *err)
{
    size_t len = pst_onnx__model_proto__get_packed_size(mp);
    if (len > PROTO_BYTES_MAX)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "the model is too large for ONNX Runtime (%zu bytes)", len);
    *ret_bytes = eng_heap_raw(len + 1);
    if (!*ret_bytes)
        return eng_heap_none(len, err);
    *ret_len = pst_onnx__model_proto__pack(mp, *ret_bytes);
    return 0;
}

int ort_model_bytes(const pst_model *m, void **ret_bytes, size_t *ret_len, pst_err *err)
{
    PstOnnx__ModelProto *mp = m->proto;
    PstOnnx__GraphProto *g = mp->graph;
    PstOnnx__TypeProto__Tensor floats = PST_ONNX__TYPE_PROTO__TENSOR__INIT;
    PstOnnx__TypeProto type = PST_ONNX__TYPE_PROTO__INIT;
    PstOnnx__OperatorSetIdProto own = PST_ONNX__OPERATOR_SET_ID_PROTO__INIT, **imports = NULL, **saved_imports = mp->opset_import;
    size_t n_imports = mp->n_opset_import, n = 0;
    int rc = strip(&mp->base, err);
    if (rc < 0)
        return rc;
    floats.has_elem_type = 1;
    floats.elem_type = PST_F32;
    type.tensor_type = &floats;
    zipmap *zs = eng_heap_raw((g->n_output + 1) * sizeof *zs);
    imports = eng_heap_raw((n_imports + 1) * sizeof *imports);
    if (!zs || !imports) {
        rc = eng_heap_none((g->n_output + 1) * sizeof *zs, err);
        goto out;
    }
    for (size_t i = 0; i < g->n_output; i++)
        n += find_zipmap(g, g->output[i], &zs[n]);
    for (size_t i = 0; i < n; i++) {
        zs[i].node->op_type = (char *)"Identity";
        zs[i].node->domain = NULL;
        zs[i].node->n_attribute = 0;
        zs[i].out->type = &type;
    }
    if (n && !m->info.opset) { /* a model of ML operators alone need not import ONNX's own */
        if (n_imports)
            memcpy(imports, saved_imports, n_imports * sizeof *imports);
        own.has_version = 1;
        own.version = 13;
        imports[n_imports] = &own;
        mp->opset_import = imports;
        mp->n_opset_import = n_imports + 1;
    }
    rc = pack(mp, ret_bytes, ret_len, err);
    mp->opset_import = saved_imports;
    mp->n_opset_import = n_imports;
    for (size_t i = n; i-- > 0;) { /* in reverse: two outputs may name one node */
        *zs[i].node = zs[i].saved_node;
        zs[i].out->type = zs[i].saved_type;
    }
out:
    free(zs);
    free(imports);
    return rc;
}
