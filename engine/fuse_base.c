/* fuse_base.c - what all fusions share: who makes and reads a value, types that are sure, constants, replacing nodes by one; and their
 * order. Every fused node keeps the nodes it stands for: where what it assumed does not hold at run time (type, rank, broadcast),
 * it runs them, so that fusion never decides whether a model works. pst_plan_opts.no_fusion leaves all of it out. */
#include "engine/plan.h"

#include "engine/heap.h"

#include <string.h>

const pst_tensor *eng_fuse_konst(const eng_fuser *f, int id)
{
    const eng_val *v = id >= 0 && f->p->folded[id] ? &f->p->vals[id] : NULL;
    return v && v->kind == ENG_VAL_TENSOR && v->t.dtype == PST_F32 ? &v->t : NULL;
}

bool eng_fuse_scalar(const eng_fuser *f, int id, double *ret)
{
    const eng_val *v = id >= 0 && f->p->folded[id] ? &f->p->vals[id] : NULL;
    return v && v->kind == ENG_VAL_TENSOR && v->t.dtype != PST_STR && eng_count(&v->t) == 1 &&
           eng_convert(PST_F64, ret, v->t.dtype, v->t.data, 1, true) == 0;
}

bool eng_fuse_is(const eng_node *n, const char *op_type)
{
    if (*n->domain || n->n_out < 1 || n->out[0] < 0 || strcmp(n->op_type, op_type) != 0)
        return false;
    for (int i = 1; i < n->n_out; i++)
        if (n->out[i] >= 0)
            return false;
    return true;
}

const eng_node *eng_fuse_maker(const eng_fuser *f, int id, size_t *ret_at)
{
    if (id < 0 || f->maker[id] < 0 || f->nodes[f->maker[id]].dead)
        return NULL;
    *ret_at = (size_t)f->maker[id];
    return f->nodes[*ret_at].node;
}

void *eng_fuse_room(pst_plan *p, size_t bytes)
{
    if (bytes > p->pool.bytes_max - p->fused_bytes)
        return NULL;
    p->fused_bytes += bytes;
    return eng_zone_alloc(&p->zone, bytes ? bytes : 1);
}

eng_node *eng_fuse_replace(eng_fuser *f, const size_t *parts, int n, const eng_op *op, const void *state, const int *in, int n_in, int out,
                           const char *text)
{
    eng_zone *z = &f->p->zone;
    eng_node *fused = eng_zone_alloc(z, sizeof *fused);
    const eng_node **list = eng_zone_alloc(z, (size_t)(n + 1) * sizeof *list);
    size_t last = 0;
    for (int i = 0; i < n; i++) {
        list[i] = f->nodes[parts[i]].node;
        f->nodes[parts[i]].dead = true;
        last = parts[i] > last ? parts[i] : last;
    }
    *fused = (eng_node){.domain = "+",
                        .op_type = op->name,
                        .name = eng_zone_strdup(z, text, strlen(text)),
                        .op = op,
                        .n_in = n_in,
                        .n_out = 1,
                        .fused = state,
                        .parts = list,
                        .n_parts = n};
    fused->in = eng_zone_alloc(z, (size_t)(n_in + 2) * sizeof(int));
    for (int i = 0; i < n_in; i++)
        fused->in[i] = in[i];
    fused->out = fused->in + n_in;
    fused->out[0] = out;
    f->nodes[last] = (eng_node_ref){.node = fused};
    f->maker[out] = (int)last;
    return fused;
}

/* ---- what is known of values ---- */

static void count_reader(void *arg, int id)
{
    ((int *)arg)[id]++;
}

static void find_readers(eng_fuser *f)
{
    int n_values = f->p->m->n_values;
    memset(f->readers, 0, (size_t)n_values * sizeof *f->readers);
    for (int i = 0; i < n_values; i++)
        f->maker[i] = -1;
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *n = f->nodes[i].node;
        if (f->nodes[i].dead)
            continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0)
                f->reader[n->in[k]] = (int)i;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0)
                f->maker[n->out[k]] = (int)i;
        eng_visit_uses(n, count_reader, f->readers);
        for (int k = 0; k < n->n_attrs; k++)
            if (n->attrs[k].graph) /* read from inside a graph: never a link of a chain */
                eng_visit_uses(n, count_reader, f->readers);
    }
    for (int i = 0; i < f->graph->n_out; i++)
        f->readers[f->graph->out[i]] += 2;
}

/* The type of a node's first result where it follows from the types of its inputs alone; 0 = not known. */
static int result_type(const eng_fuser *f, const eng_node *n)
{
    static const char *const bools[] = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And",
                                        "Or",   "Xor",         "Not",     "IsNaN",          "IsInf"};
    static const char *const longs[] = {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"};
    static const char *const sames[] = {"Add",
                                        "Sub",
                                        "Mul",
                                        "Div",
                                        "Pow",
                                        "Mod",
                                        "PRelu",
                                        "Sum",
                                        "Mean",
                                        "Min",
                                        "Max",
                                        "Sqrt",
                                        "Exp",
                                        "Log",
                                        "Erf",
                                        "Reciprocal",
                                        "Floor",
                                        "Ceil",
                                        "Round",
                                        "Sin",
                                        "Cos",
                                        "Relu",
                                        "LeakyRelu",
                                        "Elu",
                                        "Selu",
                                        "Celu",
                                        "Sigmoid",
                                        "HardSigmoid",
                                        "HardSwish",
                                        "Tanh",
                                        "Softplus",
                                        "Softsign",
                                        "Mish",
                                        "Swish",
                                        "Gelu",
                                        "Neg",
                                        "Abs",
                                        "Sign",
                                        "Clip",
                                        "Reshape",
                                        "Flatten",
                                        "Squeeze",
                                        "Unsqueeze",
                                        "Identity",
                                        "Concat",
                                        "Slice",
                                        "Gather",
                                        "Transpose",
                                        "Expand",
                                        "Split",
                                        "Gemm",
                                        "MatMul",
                                        "Softmax",
                                        "LogSoftmax",
                                        "BatchNormalization",
                                        "LayerNormalization",
                                        "InstanceNormalization",
                                        "GroupNormalization",
                                        "RMSNormalization",
                                        "Dropout",
                                        "ReduceSum",
                                        "ReduceMean",
                                        "ReduceMax",
                                        "ReduceMin",
                                        "ReduceProd",
                                        "ReduceL1",
                                        "ReduceL2",
                                        "Tile",
                                        "Pad",
                                        "Trilu",
                                        "Conv",
                                        "ConvTranspose",
                                        "MaxPool",
                                        "AveragePool",
                                        "GlobalMaxPool",
                                        "GlobalAveragePool",
                                        "Resize",
                                        "RNN",
                                        "GRU",
                                        "LSTM"};
    if (n->domain[0] == '+')
        return 0;
    if (*n->domain) {
        bool floats = !strcmp(n->op_type, "Scaler") || !strcmp(n->op_type, "Normalizer") || !strcmp(n->op_type, "LinearRegressor") ||
                      !strcmp(n->op_type, "TreeEnsembleRegressor");
        return floats && !strcmp(n->domain, "ai.onnx.ml") ? PST_F32 : 0;
    }
    if (!strcmp(n->op_type, "Cast"))
        return (int)eng_attr_int(n, "to", 0);
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        if (!strcmp(n->op_type, bools[i]))
            return PST_BOOL;
    for (size_t i = 0; i < sizeof longs / sizeof *longs; i++)
        if (!strcmp(n->op_type, longs[i]))
            return PST_I64;
    for (size_t i = 0; i < sizeof sames / sizeof *sames && n->n_in; i++)
        if (!strcmp(n->op_type, sames[i]))
            return n->in[0] >= 0 ? f->types[n->in[0]] : 0;
    return 0;
}

static void find_types(eng_fuser *f)
{
    const pst_model *m = f->p->m;
    for (int i = 0; i < m->n_values; i++)
        if (f->p->folded[i] && f->p->vals[i].kind == ENG_VAL_TENSOR)
            f->types[i] = (uint8_t)f->p->vals[i].t.dtype;
    for (int i = 0; f->graph == &m->graph && i < f->graph->n_in; i++)
        if (m->in_kinds[i] == ENG_KIND_TENSOR)
            f->types[f->graph->in[i]] = (uint8_t)m->info.inputs[i].dtype; /* every run checks it */
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *n = f->nodes[i].node;
        if (!f->nodes[i].dead && n->n_out && n->out[0] >= 0)
            f->types[n->out[0]] = (uint8_t)result_type(f, n);
    }
}

/* A Cast to the type a value has already, in front of a reader of this graph, is only a second name. */
static void drop_casts(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *n = f->nodes[i].node;
        if (f->nodes[i].dead || !eng_fuse_is(n, "Cast") || n->in[0] < 0 || !f->types[n->in[0]] ||
            f->types[n->in[0]] != eng_attr_int(n, "to", 0) || f->readers[n->out[0]] != 1)
            continue;
        size_t at = (size_t)f->reader[n->out[0]];
        eng_node *copy = eng_zone_alloc(&f->p->zone, sizeof *copy);
        *copy = *f->nodes[at].node;
        copy->in = eng_zone_alloc(&f->p->zone, (size_t)copy->n_in * sizeof(int));
        for (int k = 0; k < copy->n_in; k++) {
            int id = f->nodes[at].node->in[k];
            copy->in[k] = id == n->out[0] ? n->in[0] : id;
        }
        f->nodes[at].node = copy;
        f->nodes[i].dead = true;
    }
}

void eng_fuse_all(pst_plan *p, const eng_graph *g, eng_node_ref *nodes, size_t n)
{
    static void (*const passes[])(eng_fuser *) = {drop_casts, eng_fuse_conv, eng_fuse_norm, eng_fuse_mlp, eng_fuse_elts};
    size_t n_values = (size_t)p->m->n_values + 1;
    eng_fuser f = {.p = p,
                   .graph = g,
                   .nodes = nodes,
                   .n = n,
                   .readers = eng_heap_array(n_values, sizeof *f.readers),
                   .reader = eng_heap_array(n_values, sizeof *f.reader),
                   .maker = eng_heap_array(n_values, sizeof *f.maker),
                   .types = eng_heap_alloc(n_values)};
    find_types(&f);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        find_readers(&f);
        passes[i](&f);
    }
    eng_heap_free(f.readers);
    eng_heap_free(f.reader);
    eng_heap_free(f.maker);
    eng_heap_free(f.types);
}

/* ---- parts ---- */

/* Made at the first use: most plans never need them. */
static int parts_make(eng_op_ctx *c, eng_step **ret)
{
    const eng_node *n = c->node;
    eng_step *s = eng_op_keep(c, (size_t)(n->n_parts + 1) * sizeof *s);
    for (int i = 0; i < n->n_parts; i++) {
        int rc = eng_step_make(c->plan, n->parts[i], &s[i], c->err);
        if (rc < 0)
            return rc;
    }
    *ret = s;
    return 0;
}

int eng_parts_run(eng_op_ctx *c, eng_step **parts)
{
    int rc = *parts ? 0 : parts_make(c, parts), n = rc == 0 ? c->node->n_parts : 0;
    for (int i = 0; i < n; i++) /* a run that was unwound may have left something here: eng_plan_reset has freed it */
        for (int k = 0; k < (*parts)[i].n_out; k++)
            (*parts)[i].dummy[k] = (eng_val){.kind = ENG_VAL_NONE};
    for (int i = 0; i < n && rc == 0; i++)
        rc = eng_step_run(c->plan, &(*parts)[i], c->err);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < (*parts)[i].n_out; k++)
            if ((*parts)[i].out[k] != c->out[0])
                eng_val_clear(c->plan, (*parts)[i].out[k]);
    return rc;
}
