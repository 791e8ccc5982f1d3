/* gpu.c - what a GPU computes, and how quickly: tests/bench/gpu/run, for a bare computer with a driver and nothing else.
 *
 * First every kind of kernel is held against the CPU, at odd numbers of rows: a figure of a kernel that computes something else is none. Sums of trees
 * are to be equal bit for bit, results of networks within ENG_CUDA_NET_TOLERANCE of their largest. Then the shapes that others publish figures of, on the
 * device and on this computer's CPUs, by the plans that a scorer uses: gathering, copies and waiting are in every figure. The share of the copy
 * bandwidth is that of rows and results over the bus, against one large pinned copy each way.
 *
 * JSON goes to stdout, one object a line; a table to stderr. Exit status: 0; 1 the device computes something else; 2 usage; 77 there is no device. */
#include "common/base/clock.h"
#include "engine/cuda/context.h"
#include "engine/cuda/devices.h"
#include "engine/device_of.h"
#include "engine/onnx_export.h"
#include "engine/penstock_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNS_LEAST = 5, RUNS_MOST = 4000, LAYERS_MOST = 6, OUTPUTS_MOST = 4, FILES_MOST = 32 };

typedef struct shape {
    const char *name;
    int trees, depth, targets; /* trees 0: a network */
    bool wide;                 /* rows of doubles */
    int64_t cols, widths[LAYERS_MOST];
    const char *act, *last; /* operators; last NULL = none */
    int outputs;            /* 0 = 1 */
} shape;

static const shape to_prove[] = {
    {.name = "trees", .trees = 60, .depth = 6, .targets = 1, .cols = 11},
    {.name = "trees of 7 targets", .trees = 42, .depth = 4, .targets = 7, .cols = 19},
    {.name = "trees beyond a chunk", .trees = 2, .depth = 12, .targets = 1, .cols = 40},
    {.name = "a near network", .cols = 30, .widths = {16, 5, 16, 30}, .act = "Relu"},
    {.name = "a far network", .cols = 300, .widths = {350, 270, 3}, .act = "Tanh"},
    {.name = "a network with softmax", .cols = 13, .widths = {33, 10}, .act = "Sigmoid", .last = "Softmax"},
};
static const shape to_measure[] = {
    {.name = "gbdt-500x8", .trees = 500, .depth = 8, .targets = 1, .cols = 32},
    {.name = "gbdt-5000x5", .trees = 5000, .depth = 5, .targets = 1, .cols = 32},
    {.name = "autoencoder-30-64-16-64-30", .cols = 30, .widths = {64, 16, 64, 30}, .act = "Relu"},
    {.name = "mlp-1000-4096-4096-10", .cols = 1000, .widths = {4096, 4096, 10}, .act = "Relu"},
};
/* For a device that is simulated: the same in small. */
static const shape in_small[] = {
    {.name = "gbdt-20x4", .trees = 20, .depth = 4, .targets = 1, .cols = 8},
    {.name = "autoencoder-6-8-6", .cols = 6, .widths = {8, 6}, .act = "Relu"},
};

static double seconds = 0.5;
static bool quick;
static const char *files[FILES_MOST];
static int n_files;
static uint64_t seed = 88172645463325252u;

static _Noreturn void fail(const char *what, const pst_err *err)
{
    fprintf(stderr, "gpu: %s: %s\n", what, err->text);
    exit(1);
}

static uint32_t next_number(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static float next_float(void)
{
    return (float)(int32_t)next_number() / 1073741824.0f;
}

/* ---- models ---- */

typedef struct nodes {
    int64_t *tree, *node, *feature, *yes, *no, *w_tree, *w_node, *w_id;
    float *value, *weight;
    const char **mode;
    size_t n, n_w;
} nodes;

/* Full trees, level by level: the children of node k are 2k + 1 and 2k + 2. */
static void grow(nodes *f, const shape *s)
{
    int64_t inner = (1 << s->depth) - 1, all = 2 * inner + 1;
    for (int64_t t = 0; t < s->trees; t++)
        for (int64_t k = 0; k < all; k++, f->n++) {
            bool leaf = k >= inner;
            f->tree[f->n] = t;
            f->node[f->n] = k;
            f->mode[f->n] = leaf ? "LEAF" : "BRANCH_LEQ";
            f->feature[f->n] = leaf ? 0 : next_number() % s->cols;
            f->value[f->n] = leaf ? 0 : (float)(next_number() % 200) / 64 - 1.5f;
            f->yes[f->n] = leaf ? 0 : 2 * k + 1;
            f->no[f->n] = leaf ? 0 : 2 * k + 2;
            if (!leaf)
                continue;
            f->w_tree[f->n_w] = t;
            f->w_node[f->n_w] = k;
            f->w_id[f->n_w] = t % s->targets;
            f->weight[f->n_w++] = next_float() / 16;
        }
}

static void put_trees(pst_onnx_builder *o, const shape *s)
{
    size_t all = (size_t)s->trees * ((2u << s->depth) - 1);
    int64_t *ints = calloc(8 * all, sizeof *ints);
    float *floats = calloc(2 * all, sizeof *floats);
    nodes f = {.tree = ints, .node = ints + all, .feature = ints + 2 * all, .yes = ints + 3 * all, .no = ints + 4 * all};
    f.w_tree = ints + 5 * all;
    f.w_node = ints + 6 * all;
    f.w_id = ints + 7 * all;
    f.value = floats;
    f.weight = floats + all;
    f.mode = calloc(all, sizeof *f.mode);
    grow(&f, s);
    pst_onnx_node(o, "TreeEnsembleRegressor", (const char *[]){"x"}, 1, (const char *[]){"y"}, 1);
    pst_onnx_domain(o, "ai.onnx.ml", 3);
    pst_onnx_attr_ints(o, "nodes_treeids", f.tree, f.n);
    pst_onnx_attr_ints(o, "nodes_nodeids", f.node, f.n);
    pst_onnx_attr_ints(o, "nodes_featureids", f.feature, f.n);
    pst_onnx_attr_ints(o, "nodes_truenodeids", f.yes, f.n);
    pst_onnx_attr_ints(o, "nodes_falsenodeids", f.no, f.n);
    pst_onnx_attr_floats(o, "nodes_values", f.value, f.n);
    pst_onnx_attr_strs(o, "nodes_modes", f.mode, f.n);
    pst_onnx_attr_ints(o, "target_treeids", f.w_tree, f.n_w);
    pst_onnx_attr_ints(o, "target_nodeids", f.w_node, f.n_w);
    pst_onnx_attr_ints(o, "target_ids", f.w_id, f.n_w);
    pst_onnx_attr_floats(o, "target_weights", f.weight, f.n_w);
    pst_onnx_attr_int(o, "n_targets", s->targets);
    free(ints);
    free(floats);
    free(f.mode);
}

static void put_floats(pst_onnx_builder *o, const char *name, float scale, int64_t rows, int64_t cols)
{
    size_t n = (size_t)(rows ? rows * cols : cols);
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = next_float() * scale;
    pst_onnx_floats(o, name, rows ? 2 : 1, rows ? (int64_t[]){rows, cols} : (int64_t[]){cols}, v);
    free(v);
}

static int64_t put_layers(pst_onnx_builder *o, const shape *s)
{
    int64_t from = s->cols;
    char in[24] = "x";
    for (int i = 0; i < LAYERS_MOST && s->widths[i]; i++) {
        bool last = i + 1 == LAYERS_MOST || !s->widths[i + 1];
        const char *act = last ? s->last : s->act;
        char w[24], b[24], sum[24], out[24];
        snprintf(w, sizeof w, "w%d", i);
        snprintf(b, sizeof b, "b%d", i);
        snprintf(sum, sizeof sum, last && !act ? "y" : "sum%d", i);
        snprintf(out, sizeof out, last ? "y" : "out%d", i);
        put_floats(o, w, 1 / sqrtf((float)from), from, s->widths[i]);
        put_floats(o, b, 0.1f, 0, s->widths[i]);
        pst_onnx_node(o, "Gemm", (const char *[]){in, w, b}, 3, (const char *[]){sum}, 1);
        if (act)
            pst_onnx_node(o, act, (const char *[]){sum}, 1, (const char *[]){out}, 1);
        memcpy(in, act ? out : sum, sizeof in);
        from = s->widths[i];
    }
    return from;
}

static pst_model *make(const shape *s)
{
    pst_onnx_builder *o = pst_onnx_new("bench", 17, 8);
    pst_buf bytes = {0};
    pst_err err = {0};
    pst_model *m = NULL;
    int64_t out = s->targets;
    pst_onnx_input(o, "x", s->wide ? PST_F64 : PST_F32, 2, (int64_t[]){-1, s->cols}, "N");
    if (s->trees)
        put_trees(o, s);
    else
        out = put_layers(o, s);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, out}, "N");
    pst_onnx_write(o, &bytes);
    pst_onnx_free(o);
    if (pst_model_load(bytes.data, bytes.len, NULL, NULL, &m, &err) < 0)
        fail(s->name, &err);
    pst_buf_done(&bytes);
    return m;
}

static pst_plan *plan(pst_model *m, const shape *s, const char *backend, int threads)
{
    pst_plan *p = NULL;
    pst_err err = {0};
    if (pst_plan_new(m, &(pst_plan_opts){.backend = backend, .threads = (uint64_t)threads}, &p, &err) < 0)
        fail(s->name, &err);
    return p;
}

/* ---- runs ---- */

static pst_tensor rows_of(const shape *s, int64_t rows)
{
    size_t n = (size_t)(rows * s->cols);
    pst_tensor t = {.dtype = s->wide ? PST_F64 : PST_F32, .rank = 2, .dims = {rows, s->cols}, .data = malloc(n * sizeof(double))};
    for (size_t i = 0; i < n; i++) {
        float v = s->trees && i % 101 == 7 ? NAN : next_float();
        if (s->wide)
            ((double *)t.data)[i] = (double)v;
        else
            ((float *)t.data)[i] = v;
    }
    return t;
}

static int outputs_of(const shape *s)
{
    return s->outputs ? s->outputs : 1;
}

/* The last of the results: of a classifier the probabilities. */
static pst_tensor run(pst_plan *p, const shape *s, const pst_tensor *x)
{
    pst_tensor y[OUTPUTS_MOST] = {0};
    pst_err err = {0};
    if (pst_plan_run(p, x, 1, y, (size_t)outputs_of(s), &err) < 0)
        fail(s->name, &err);
    return y[outputs_of(s) - 1];
}

/* ---- first: is it right? ---- */

static double value(const pst_tensor *t, size_t i)
{
    return t->dtype == PST_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}

/* The largest difference, as a part of the largest number; of trees any is without end. */
static double worst_of(const shape *s, const pst_tensor *got, const pst_tensor *want)
{
    size_t n = 1;
    double largest = 0, worst = 0;
    bool alike = got->dtype == want->dtype && got->rank == want->rank && (want->dtype == PST_F32 || want->dtype == PST_F64);
    for (int d = 0; alike && d < want->rank; d++) {
        alike = got->dims[d] == want->dims[d];
        n *= (size_t)want->dims[d];
    }
    for (size_t i = 0; alike && i < n; i++)
        largest = fmax(largest, fabs(value(want, i)));
    for (size_t i = 0; alike && i < n; i++) {
        double g = value(got, i), w = value(want, i);
        if (g != w && !(isnan(g) && isnan(w)))
            worst = fmax(worst, s->trees || isnan(g - w) ? INFINITY : fabs(g - w) / largest);
    }
    return alike ? worst : INFINITY;
}

/* Returns how many sizes are wrong. Takes m. */
static int prove(pst_model *m, const shape *s)
{
    static const int64_t sizes[] = {1, 31, 32, 33, 255, 257, 5000};
    pst_plan *there = plan(m, s, "cuda", 1), *here = plan(m, s, "engine", 1);
    int wrong = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes - (quick ? 1 : 0); i++) {
        pst_tensor x = rows_of(s, sizes[i]), got = run(there, s, &x);
        bool on_device = pst_plan_ran_on(there) >= 0;
        pst_tensor want = run(here, s, &x);
        if (!on_device || worst_of(s, &got, &want) > ENG_CUDA_NET_TOLERANCE) {
            fprintf(stderr, "gpu: %s, %lld rows: %s\n", s->name, (long long)sizes[i],
                    on_device ? "not what the CPU computes" : "not on the device");
            wrong++;
        }
        free(x.data);
    }
    pst_plan_free(there);
    pst_plan_free(here);
    pst_model_unref(m);
    printf("{\"check\": \"%s\", \"right\": %s}\n", s->name, wrong ? "false" : "true");
    return wrong;
}

static int prove_file(const char *path)
{
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load_file(path, NULL, &m, &err) < 0)
        fail(path, &err);
    const pst_model_info *info = pst_model_info_get(m);
    const char *slash = strrchr(path, '/');
    shape s = {.name = slash ? slash + 1 : path,
               .trees = 1,
               .wide = info->inputs[0].dtype == PST_F64,
               .cols = info->inputs[0].dims[1],
               .outputs = (int)info->n_outputs};
    if (info->n_inputs != 1 || info->inputs[0].rank != 2 || s.cols < 1 || s.outputs > OUTPUTS_MOST) {
        fprintf(stderr, "gpu: %s: rows of one input are what is known here\n", path);
        exit(2);
    }
    return prove(m, &s);
}

/* ---- then: how quick? ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the runs that fit the time, in ns; the first is not counted. */
static double median_ns(pst_plan *p, const shape *s, const pst_tensor *x)
{
    static double took[RUNS_MOST];
    size_t n = 0;
    run(p, s, x);
    int64_t end = pst_mono_ns() + (int64_t)(seconds * 1e9);
    while (n < RUNS_LEAST || (n < RUNS_MOST && pst_mono_ns() < end)) {
        int64_t from = pst_mono_ns();
        run(p, s, x);
        took[n++] = (double)(pst_mono_ns() - from);
    }
    qsort(took, n, sizeof *took, by_size);
    return took[n / 2];
}

static void copy(eng_cuda_context *on, bool in, eng_cuda_address device, void *pinned, size_t bytes, void *stream)
{
    pst_err err = {0};
    int said = in ? on->driver->copy_in(device, pinned, bytes, stream) : on->driver->copy_out(pinned, device, bytes, stream);
    while (said == 0 && (said = on->driver->stream_query(stream)) == ENG_CUDA_NOT_READY)
        said = 0;
    if (eng_cuda_said(on, said, "copying", &err) < 0)
        fail("copies", &err);
}

/* Bytes a second of one large pinned copy, in and out: the quickest of a few. */
static void bandwidth(eng_cuda_context *on, double ret[2])
{
    size_t bytes = quick ? 1 << 20 : 256 << 20;
    eng_cuda_address device = 0;
    void *pinned = NULL, *stream = NULL;
    pst_err err = {0};
    if (eng_cuda_enter(on, &err) < 0 || eng_cuda_alloc(on, bytes, &device, &err) < 0 || eng_cuda_pin(on, bytes, &pinned, &err) < 0 ||
        eng_cuda_said(on, on->driver->stream(&stream, ENG_CUDA_STREAM_NON_BLOCKING), "making a stream", &err) < 0)
        fail("copies", &err);
    memset(pinned, 1, bytes);
    for (int out = 0; out < 2; out++) {
        ret[out] = 0;
        for (int i = 0; i < RUNS_LEAST; i++) {
            int64_t from = pst_mono_ns();
            copy(on, !out, device, pinned, bytes, stream);
            ret[out] = fmax(ret[out], (double)bytes / ((double)(pst_mono_ns() - from) / 1e9));
        }
    }
    eng_cuda_stream_end(on, stream);
    eng_cuda_free(on, device, bytes);
    eng_cuda_unpin(on, pinned);
}

static void measure(const shape *s, const double copies[2], int cpus)
{
    static const int64_t batches[] = {32, 1024, 4096, 32768};
    pst_model *m = make(s);
    pst_plan *there = plan(m, s, "cuda", 1), *here = plan(m, s, "engine", cpus);
    for (size_t i = 0; i < sizeof batches / sizeof *batches - (quick ? 2 : 0); i++) {
        int64_t rows = batches[i];
        pst_tensor x = rows_of(s, rows);
        double device_ns = median_ns(there, s, &x), cpu_ns = median_ns(here, s, &x);
        pst_tensor y = run(here, s, &x);
        double bytes_in = (double)(rows * s->cols * 4), bytes_out = (double)(rows * y.dims[1]) * (s->trees ? 8 : 4);
        double copying_ns = (bytes_in / copies[0] + bytes_out / copies[1]) * 1e9;
        printf("{\"model\": \"%s\", \"rows\": %lld, \"device_us\": %.2f, \"device_records_s\": %.0f, \"copy_share\": %.4f, "
               "\"cpu_threads\": %d, \"cpu_us\": %.2f, \"cpu_records_s\": %.0f}\n",
               s->name, (long long)rows, device_ns / 1e3, (double)rows / device_ns * 1e9, copying_ns / device_ns, cpus, cpu_ns / 1e3,
               (double)rows / cpu_ns * 1e9);
        fprintf(stderr, "%-28s %8lld %12.1f %14.0f %10.1f%% %12.1f %14.0f\n", s->name, (long long)rows, device_ns / 1e3,
                (double)rows / device_ns * 1e9, 100 * copying_ns / device_ns, cpu_ns / 1e3, (double)rows / cpu_ns * 1e9);
        fflush(stdout);
        free(x.data);
    }
    pst_plan_free(there);
    pst_plan_free(here);
    pst_model_unref(m);
}

static int read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) {
            quick = true;
            seconds = 0.01;
        } else if (!strcmp(argv[i], "--seconds") && i + 1 < argc && (seconds = atof(argv[i + 1])) > 0) {
            i++;
        } else if (argv[i][0] != '-' && n_files < FILES_MOST) {
            files[n_files++] = argv[i];
        } else {
            bool help = !strcmp(argv[i], "--help");
            fprintf(help ? stdout : stderr, "usage: gpu [--quick] [--seconds S] [MODEL...]\n\nHolds the kernels of this computer's first "
                                            "GPU against the CPU, then measures them "
                                            "beside it.\n--quick: small models and few runs, to try the program itself. --seconds: of each "
                                            "measurement (0.5). MODEL: tree models to be held against the CPU, too.\n");
            return help ? 0 : 2;
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    pst_cuda_devices all;
    eng_cuda_context *on;
    pst_err err = {0};
    double copies[2];
    int status = read_options(argc, argv), wrong = 0, cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (status >= 0)
        return status;
    pst_cuda_devices_find(&all);
    if (all.state != PST_CUDA_USABLE) {
        fprintf(stderr, "gpu: %s; %s\n", all.why, all.cure);
        return 77;
    }
    if (eng_cuda_context_open(-1, &on, &err) < 0)
        fail("opening a device", &err);
    for (size_t i = 0; i < sizeof to_prove / sizeof *to_prove; i++)
        wrong += prove(make(&to_prove[i]), &to_prove[i]);
    for (int i = 0; i < n_files; i++)
        wrong += prove_file(files[i]);
    if (wrong)
        return 1;
    bandwidth(on, copies);
    printf("{\"device\": \"%s\", \"driver\": \"%s\", \"targets\": \"%s\", \"copy_in_bytes_s\": %.0f, \"copy_out_bytes_s\": %.0f, \"cpus\": "
           "%d}\n",
           on->name, all.driver, on->plugin->targets, copies[0], copies[1], cpus);
    fprintf(stderr, "%s, driver %s; %d CPUs\n%-28s %8s %12s %14s %11s %12s %14s\n", on->name, all.driver, cpus, "model", "rows",
            "device µs", "records/s", "copies", "CPU µs", "records/s");
    const shape *list = quick ? in_small : to_measure;
    for (size_t i = 0; i < (quick ? sizeof in_small / sizeof *in_small : sizeof to_measure / sizeof *to_measure); i++)
        measure(&list[i], copies, cpus);
    return 0;
}
