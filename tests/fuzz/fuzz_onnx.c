/* fuzz_onnx.c - an ONNX file from a stranger: load, plan, one run with small inputs (limits: onnx_fuzz.h). */
#include "engine/onnx.pb-c.h"
#include "engine/onnx_read.h"
#include "engine/ops/ops.h"
#include "tests/fuzz/onnx_fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void run(pst_model *m, bool no_fusion)
{
    const pst_model_info *info = pst_model_info_get(m);
    pst_plan_opts opts = {.no_fusion = no_fusion};
    pst_plan *p = NULL;
    pst_tensor in[8] = {0}, out[8];
    static const char *texts[64];
    static double zeros[128]; /* 64 elements of the widest type */
    if (info->n_inputs > 8 || pst_plan_new(m, &opts, &p, NULL) < 0)
        return;
    for (size_t i = 0; i < 64; i++)
        texts[i] = "a";
    for (size_t i = 0; i < info->n_inputs; i++) {
        int64_t n = 1;
        in[i].dtype = info->inputs[i].dtype ? info->inputs[i].dtype : PST_F32;
        in[i].rank = info->inputs[i].rank < 0 ? 2 : info->inputs[i].rank;
        for (int k = 0; k < in[i].rank; k++) {
            int64_t d = info->inputs[i].rank < 0 || info->inputs[i].dims[k] < 0 ? 2 : info->inputs[i].dims[k];
            in[i].dims[k] = d;
            n *= d > 64 ? 65 : d;
            n = n > 64 ? 65 : n;
        }
        if (n > 64 || n < 0) /* too big for the constant input: not what is looked for */
            goto out;
        in[i].data = in[i].dtype == PST_STR ? (void *)texts : (void *)zeros;
    }
    pst_err err = {0};
    pst_plan_run(p, in, info->n_inputs, out, info->n_outputs < 8 ? info->n_outputs : 8, &err);
    free(pst_plan_explain(p));
out:
    pst_plan_free(p);
}

/* ---- mutation of the parsed model: keeps it a model, so that loads and kernels see more of it than the wire scan ---- */

#define MESSAGES_MAX 4000
#define TEXTS_MAX    512

typedef struct parts {
    ProtobufCMessage *at[MESSAGES_MAX];
    size_t n;
    char *texts[TEXTS_MAX];
    size_t n_texts;
} parts;

static uint64_t seed;
static uint64_t dice(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return n ? seed % n : 0;
}

static void collect(parts *p, ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    if (p->n < MESSAGES_MAX)
        p->at[p->n++] = m;
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        char *at = (char *)m + f->offset;
        bool many = f->label == PROTOBUF_C_LABEL_REPEATED;
        size_t n = many ? *(size_t *)((char *)m + f->quantifier_offset) : 1;
        void **list = many ? *(void ***)at : (void **)at;
        for (size_t k = 0; k < n; k++) {
            if (f->type == PROTOBUF_C_TYPE_MESSAGE && list[k])
                collect(p, list[k]);
            else if (f->type == PROTOBUF_C_TYPE_STRING && list[k] && p->n_texts < TEXTS_MAX)
                p->texts[p->n_texts++] = list[k];
        }
    }
}

static int64_t odd_number(int64_t old)
{
    static const int64_t odd[] = {0,  1,  -1, 2,   3,   4,       5,         7,         8,         9,        16,
                                  63, 64, 65, 127, 255, 1 << 20, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    switch (dice(4)) {
    case 0: return (int64_t)((uint64_t)old + 1);
    case 1: return (int64_t)((uint64_t)old - 1);
    case 2: return (int64_t)dice(28);
    default: return odd[dice(sizeof odd / sizeof *odd)];
    }
}

static float odd_float(void)
{
    static const float odd[] = {0, 1, -1, 0.5f, 1e30f, -1e30f, 1e-40f, INFINITY, -INFINITY, NAN, 3e9f, 65504};
    return odd[dice(sizeof odd / sizeof *odd)];
}

static void change_text(const parts *p, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, char **s)
{
    const char *with = m->descriptor == &pst_onnx__node_proto__descriptor && f->id == 4 ? eng_op_table[dice(eng_op_count)].name
                       : p->n_texts                                                     ? p->texts[dice(p->n_texts)]
                                                                                        : "";
    char *copy = strdup(dice(16) ? with : "");
    if (*s && *s != (const char *)f->default_value && *s != protobuf_c_empty_string)
        free(*s);
    *s = copy;
}

static void change_value(const parts *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, void *at)
{
    ProtobufCBinaryData *b = at;
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32: *(int32_t *)at = (int32_t)odd_number(*(int32_t *)at); break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64: *(int64_t *)at = odd_number(*(int64_t *)at); break;
    case PROTOBUF_C_TYPE_FLOAT: *(float *)at = odd_float(); break;
    case PROTOBUF_C_TYPE_DOUBLE: *(double *)at = (double)odd_float(); break;
    case PROTOBUF_C_TYPE_STRING: change_text(p, m, f, at); break;
    case PROTOBUF_C_TYPE_BYTES:
        if (b->len)
            b->data[dice(b->len)] = (uint8_t)dice(256);
        break;
    default: break;
    }
}

/* Elements of a repeated field change places, or the last goes. */
static void change_list(const parts *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    static const uint8_t sizes[] = {[PROTOBUF_C_TYPE_INT32] = 4,
                                    [PROTOBUF_C_TYPE_INT64] = 8,
                                    [PROTOBUF_C_TYPE_UINT64] = 8,
                                    [PROTOBUF_C_TYPE_FLOAT] = 4,
                                    [PROTOBUF_C_TYPE_DOUBLE] = 8};
    size_t *n = (size_t *)((char *)m + f->quantifier_offset);
    char *list = *(char **)((char *)m + f->offset);
    if (!*n)
        return;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE || f->type == PROTOBUF_C_TYPE_STRING) {
        void **items = (void **)list;
        size_t a = dice(*n), b = dice(*n);
        if (f->type == PROTOBUF_C_TYPE_STRING && dice(2)) {
            change_text(p, m, f, (char **)&items[a]);
        } else if (dice(8)) {
            void *swap = items[a];
            items[a] = items[b];
            items[b] = swap;
        } else {
            if (f->type == PROTOBUF_C_TYPE_MESSAGE)
                protobuf_c_message_free_unpacked(items[*n - 1], NULL);
            else
                free(items[*n - 1]);
            --*n;
        }
        return;
    }
    if (!dice(8)) {
        --*n;
        if (f->type == PROTOBUF_C_TYPE_BYTES)
            free(((ProtobufCBinaryData *)list)[*n].data);
    } else if (f->type == PROTOBUF_C_TYPE_BYTES)
        change_value(p, m, f, list + dice(*n) * sizeof(ProtobufCBinaryData));
    else if (f->type < sizeof sizes && sizes[f->type])
        change_value(p, m, f, list + dice(*n) * sizes[f->type]);
}

static void change_one(const parts *p, ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    const ProtobufCFieldDescriptor *f = &d->fields[dice(d->n_fields)];
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        change_list(p, m, f);
        return;
    }
    if (f->quantifier_offset)
        *(protobuf_c_boolean *)((char *)m + f->quantifier_offset) = dice(16) != 0;
    change_value(p, m, f, (char *)m + f->offset);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t max, unsigned int from);
size_t LLVMFuzzerMutate(uint8_t *data, size_t len, size_t max) __attribute__((weak));

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t max, unsigned int from)
{
    pst_model_limits limits = {0};
    eng_limits_default(&limits);
    seed = from | (uint64_t)from << 32 | 1;
    PstOnnx__ModelProto *m = NULL;
    if (dice(4) && eng_onnx_scan(&pst_onnx__model_proto__descriptor, data, len, &limits, NULL) == 0)
        m = pst_onnx__model_proto__unpack(NULL, len, data);
    if (!m)
        return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, len, max) : len;
    static parts p;
    for (uint64_t i = dice(3) + 1; i-- > 0;) {
        p.n = p.n_texts = 0; /* anew: a change may have freed what was found */
        collect(&p, &m->base);
        change_one(&p, p.at[dice(p.n)]);
    }
    size_t size = pst_onnx__model_proto__get_packed_size(m);
    if (size <= max)
        len = pst_onnx__model_proto__pack(m, data);
    pst_onnx__model_proto__free_unpacked(m, NULL);
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    pst_model_limits limits = onnx_fuzz_limits;
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load(data, len, NULL, &limits, &m, &err) < 0)
        return 0;
    run(m, false);
    run(m, true);
    pst_model_unref(m);
    return 0;
}
