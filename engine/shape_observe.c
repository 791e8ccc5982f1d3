/* shape_observe.c - shapes, cost and memory of a plan, observed while it runs on made-up inputs.
 *
 * Why observed and not inferred by rules: a rule per operator (some 170, a dozen with rules as long as their kernels, and those whose
 * result depends on data) would be a second description of what kernels do, wrong wherever the two part. A run is right by
 * construction, costs milliseconds, serves every backend, and runs at batch 2 and 3 show which dimensions follow the batch. What it
 * cannot show is said: shapes that depend on the data are those of this data. Only `models explain` uses it; fusion decides by
 * sure types alone and checks shapes at run time. */
#include "engine/shape_observe.h"

#include "engine/heap.h"
#include "engine/native/native.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- cost ---- */

static double count_of(const pst_tensor *t)
{
    return t ? (double)eng_count(t) : 0;
}

static double bytes_of(const pst_tensor *t)
{
    return t ? count_of(t) * (double)pst_dtype_size(t->dtype) : 0;
}

static bool one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(name, *list))
            return true;
    return false;
}

static double window_of(const eng_node *n)
{
    size_t k;
    const int64_t *v = eng_attr_ints(n, "kernel_shape", &k);
    double w = 1;
    for (size_t i = 0; i < k; i++)
        w *= (double)v[i];
    return w;
}

/* Results of a convolution for each one of the pool that was taken into it: windows that do not overlap. */
static double pooled_by(const eng_node *n)
{
    double by = 1;
    for (int i = 0; i < n->n_parts; i++) {
        size_t k = 0;
        const int64_t *stride = !strcmp(n->parts[i]->op_type, "MaxPool") ? eng_attr_ints(n->parts[i], "strides", &k) : NULL;
        for (size_t d = 0; stride && d < k; d++)
            by *= (double)stride[d];
    }
    return by;
}

/* Comparisons on the way down, from the sizes in the file: trees times the depth of trees as full as these. */
static double tree_steps(const eng_node *n)
{
    size_t n_ids, n_roots, n_splits;
    const int64_t *ids = eng_attr_ints(n, "nodes_treeids", &n_ids);
    double trees = 0;
    for (size_t i = 0; i < n_ids; i++)
        trees += !i || ids[i] != ids[i - 1];
    if (!ids) {
        eng_attr_ints(n, "tree_roots", &n_roots);
        eng_attr_ints(n, "nodes_featureids", &n_splits);
        trees = (double)n_roots;
        n_ids = 2 * n_splits;
    }
    return trees > 0 ? trees * log2((double)n_ids / trees / 2 + 1) : 0;
}

static double rows_of(const pst_tensor *x)
{
    return x && x->rank > 0 && x->dims[x->rank - 1] ? count_of(x) / (double)x->dims[x->rank - 1] : 1;
}

/* A chain of layers: every layer's products, one operation per number for the rest. */
static double mlp_flops(const pst_plan *p, const eng_node *n, const pst_tensor *x)
{
    double rows = rows_of(x), width = x && x->rank ? (double)x->dims[x->rank - 1] : 1, sum = 0;
    for (int i = 0; i < n->n_parts; i++) {
        const eng_node *q = n->parts[i];
        bool dense = !strcmp(q->op_type, "Gemm") || !strcmp(q->op_type, "MatMul");
        if (dense && p->vals[q->in[1]].kind == ENG_VAL_TENSOR) {
            const pst_tensor *w = &p->vals[q->in[1]].t;
            sum += rows * 2 * count_of(w);
            width = width > 0 ? count_of(w) / width : 0;
        }
        if (!dense || q->n_in > 2)
            sum += rows * width;
    }
    return sum;
}

static double flops_of(const pst_plan *p, const eng_node *n, const eng_seen *s, const pst_tensor *y)
{
    static const char *const moves[] = {"Reshape",
                                        "Flatten",
                                        "Squeeze",
                                        "Unsqueeze",
                                        "Identity",
                                        "Concat",
                                        "Slice",
                                        "Gather",
                                        "Shape",
                                        "Size",
                                        "Constant",
                                        "ConstantOfShape",
                                        "Cast",
                                        "CastLike",
                                        "Transpose",
                                        "Expand",
                                        "Split",
                                        "Tile",
                                        "Pad",
                                        "GatherElements",
                                        "GatherND",
                                        "ScatterElements",
                                        "ScatterND",
                                        "OneHot",
                                        "Range",
                                        "Trilu",
                                        "EyeLike",
                                        "DepthToSpace",
                                        "SpaceToDepth",
                                        "ReverseSequence",
                                        "ZipMap",
                                        "LabelEncoder",
                                        "If",
                                        "Loop",
                                        "Scan",
                                        "SequenceMap",
                                        "FeatureVectorizer",
                                        "ArrayFeatureExtractor",
                                        "Dropout",
                                        "Where",
                                        NULL};
    const pst_tensor *x = s->n_in > 0 ? &s->in[0] : NULL, *w = s->n_in > 1 ? &s->in[1] : NULL, *r = s->n_in > 2 ? &s->in[2] : NULL;
    const char *op = n->op_type;
    if (one_of(op, moves))
        return 0;
    if (!strcmp(op, "FusedMLP"))
        return mlp_flops(p, n, x);
    if (!strcmp(op, "Elementwise"))
        return count_of(y) * n->n_parts;
    if (!strcmp(op, "Gemm") || !strcmp(op, "MatMul") || !strcmp(op, "MatMulInteger") || !strcmp(op, "QLinearMatMul")) {
        double k = x && x->rank ? (double)x->dims[eng_attr_int(n, "transA", 0) ? 0 : x->rank - 1] : 0;
        return count_of(y) * (2 * k + (!strcmp(op, "Gemm") && r && r->rank >= 0));
    }
    if (!strcmp(op, "Conv") || !strcmp(op, "FusedConv") || !strcmp(op, "ConvInteger"))
        return w && w->rank > 1 && w->dims[0] ? 2 * count_of(y) * pooled_by(n) * count_of(w) / (double)w->dims[0] : 0;
    if (!strcmp(op, "ConvTranspose"))
        return w && w->rank > 1 && w->dims[0] ? 2 * count_of(x) * count_of(w) / (double)w->dims[0] : 0;
    if (!strcmp(op, "LSTM") || !strcmp(op, "GRU") || !strcmp(op, "RNN"))
        return x && x->rank == 3 ? 2 * (double)(x->dims[0] * x->dims[1]) * (count_of(w) + count_of(r)) : 0;
    if (!strcmp(op, "Attention"))
        return w && w->rank > 1 ? 4 * count_of(x) * (double)w->dims[w->rank - 2] : 0;
    if (!strcmp(n->domain, "native")) {
        const eng_native *m = n->fused;
        double trees = (double)m->forest.n_trees;
        return rows_of(x) * (m->weights  ? 2.0 * m->n_features * m->n_groups
                             : trees > 0 ? trees * log2((double)m->forest.n_nodes / trees + 1)
                                         : 0);
    }
    if (!strncmp(op, "TreeEnsemble", 12))
        return rows_of(x) * tree_steps(n);
    if (!strncmp(op, "Linear", 6)) {
        size_t coefs;
        eng_attr_floats(n, "coefficients", &coefs);
        return 2 * rows_of(x) * (double)coefs;
    }
    if (!strcmp(op, "MaxPool") || !strcmp(op, "AveragePool") || !strcmp(op, "LpPool"))
        return count_of(y) * window_of(n);
    if (!strncmp(op, "Global", 6) || !strncmp(op, "Reduce", 6) || !strncmp(op, "Arg", 3))
        return count_of(x);
    if (!strcmp(op, "LayerNorm") || !strcmp(op, "LayerNormalization"))
        return 8 * count_of(y);
    if (strstr(op, "Softmax"))
        return 5 * count_of(y);
    return count_of(y);
}

/* ---- around a step ---- */

void eng_seen_before(eng_step *s)
{
    eng_seen *e = s->seen;
    if (!e)
        return;
    e->n_in = 0;
    for (int i = 0; i < s->n_in && i < ENG_SEEN_INPUTS; i++) {
        bool tensor = s->in[i] && s->in[i]->kind == ENG_VAL_TENSOR;
        e->in[e->n_in++] = tensor ? s->in[i]->t : (pst_tensor){.rank = -1};
        if (!tensor)
            e->in[i].dims[0] = 0;
    }
    e->started_ns = now_ns();
}

/* A result in an input's buffer is either a view, or was written over an input that dies. */
static bool is_view(const eng_node *n)
{
    static const char *const views[] = {"Reshape", "Flatten", "Squeeze",  "Unsqueeze", "Identity",
                                        "Dropout", "Cast",    "CastLike", "If",        NULL};
    return one_of(n->op_type, views);
}

void eng_seen_after(const pst_plan *p, eng_step *s)
{
    eng_seen *e = s->seen;
    if (!e)
        return;
    e->ns += now_ns() - e->started_ns;
    e->runs++;
    const pst_tensor *y = NULL;
    bool views = true;
    for (int i = 0; i < s->n_out; i++) {
        const eng_val *v = s->out[i];
        if (v->kind != ENG_VAL_TENSOR)
            continue;
        y = y ? y : &v->t;
        bool view = false; /* the same bytes under another shape, or another name */
        for (int q = 0; q < e->n_in; q++)
            view |= e->in[q].rank >= 0 && e->in[q].data == v->t.data && is_view(s->node);
        views &= view;
        e->bytes += view ? 0 : bytes_of(&v->t);
        e->out_bytes += view ? 0 : bytes_of(&v->t);
    }
    for (int i = 0; i < e->n_in && !views; i++)
        e->bytes += e->in[i].rank >= 0 ? bytes_of(&e->in[i]) : 0;
    e->flops += flops_of(p, s->node, e, y);
    e->has_out = y != NULL;
    if (y)
        e->out = *y;
    e->is_seq = s->n_out && s->out[0]->kind == ENG_VAL_SEQ;
}

/* ---- made-up inputs ---- */

/* Like rows of a standardised table for floats; 0 for the rest, which is a valid index wherever one is wanted. */
static void fill(pst_tensor *t, int64_t n)
{
    uint64_t s = 88172645463325252u;
    for (int64_t i = 0; i < n && (t->dtype == PST_F32 || t->dtype == PST_F64); i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            sum += (double)(s >> 40) / 16777216.0 - 0.5;
        }
        if (t->dtype == PST_F32)
            ((float *)t->data)[i] = (float)(sum * 1.7320508);
        else
            ((double *)t->data)[i] = sum * 1.7320508;
    }
    for (int64_t i = 0; i < n && t->dtype == PST_STR; i++)
        ((const char **)t->data)[i] = "";
}

int eng_observe_inputs(const pst_model *m, int64_t batch, int64_t other, pst_tensor *ret, pst_err *err)
{
    for (size_t i = 0; i < m->info.n_inputs; i++) {
        const pst_value_info *v = &m->info.inputs[i];
        pst_tensor t = {.dtype = v->dtype, .rank = v->rank};
        size_t size = pst_dtype_size(v->dtype);
        bool first = true;
        if (m->in_kinds[i] != ENG_KIND_TENSOR || v->rank < 0 || !size)
            return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0,
                               "input %s is no tensor of a declared type and rank: its shape cannot be made up", v->name);
        for (int k = 0; k < v->rank; k++) {
            t.dims[k] = v->dims[k] >= 0 ? v->dims[k] : first ? batch : other;
            first = first && v->dims[k] >= 0;
        }
        int64_t n = eng_dims_count(t.dims, t.rank);
        if (n < 0 || (uint64_t)n > m->limits.tensor_bytes_max / size)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "input %s would be larger than %zu bytes (tensor_bytes_max)",
                               v->name, m->limits.tensor_bytes_max);
        t.data = eng_heap_alloc64((size_t)n * size + 64);
        memset(t.data, 0, (size_t)n * size + 64);
        fill(&t, n);
        ret[i] = t;
    }
    return 0;
}

void eng_observe_clear(pst_plan *p)
{
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t i = 0; i < p->progs[g].n_steps; i++) {
            eng_step *s = &p->progs[g].steps[i];
            if (!s->seen)
                s->seen = eng_zone_alloc(&p->zone, sizeof *s->seen);
            eng_seen fresh = {.probes = s->seen->probes, .best_ns = s->seen->best_ns};
            memcpy(fresh.probe, s->seen->probe, sizeof fresh.probe);
            *s->seen = fresh;
        }
}

int eng_observe_run(pst_plan *p, int64_t batch, int64_t other, size_t *ret_peak, pst_err *err)
{
    const pst_model *m = p->m;
    pst_tensor *in = eng_heap_array(m->info.n_inputs + 1, sizeof *in), *out = eng_heap_array(m->info.n_outputs + 1, sizeof *out);
    int rc = eng_observe_inputs(m, batch, other, in, err);
    if (rc == 0) {
        eng_observe_clear(p);
        p->observing = true;
        const eng_val **got = eng_heap_array(m->info.n_outputs + 1, sizeof *got);
        eng_val *vals = eng_heap_array(m->info.n_inputs + 1, sizeof *vals);
        for (size_t i = 0; i < m->info.n_inputs; i++)
            vals[i] = (eng_val){.kind = ENG_VAL_TENSOR, .t = in[i]};
        rc = eng_plan_run_vals(p, vals, m->info.n_inputs, got, m->info.n_outputs, err);
        p->observing = false;
        *ret_peak = p->pool.peak;
        eng_prog_clear(p, &p->progs[0]); /* the made-up inputs go away */
        eng_heap_free(vals);
        eng_heap_free(got);
    }
    for (size_t i = 0; i < m->info.n_inputs; i++)
        eng_heap_free(in[i].data);
    eng_heap_free(in);
    eng_heap_free(out);
    return rc;
}

void eng_observe_probe(pst_plan *p)
{
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t i = 0; i < p->progs[g].n_steps; i++) {
            eng_seen *e = p->progs[g].steps[i].seen;
            if (e && e->has_out && e->probes < 2)
                e->probe[e->probes++] = e->out;
        }
}

void eng_observe_time(pst_plan *p)
{
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t i = 0; i < p->progs[g].n_steps; i++) {
            eng_seen *e = p->progs[g].steps[i].seen;
            if (e && e->runs && (!e->best_ns || e->ns < e->best_ns))
                e->best_ns = e->ns ? e->ns : 1;
        }
}
