/* sides.c - penstock, and trees compiled to machine code by tl2cgen and by lleaves. Peers' libraries come by dlopen: see bench.h. */
#include "tests/bench/engine/bench.h"

#include "engine/penstock_engine.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *bench_library(const char *path, char *why)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        snprintf(why, BENCH_WHY, "%.190s", dlerror());
    return lib;
}

void *bench_symbol(void *lib, const char *name)
{
    void *at = dlsym(lib, name);
    if (!at) {
        fprintf(stderr, "bench_engine: the library has no %s\n", name);
        exit(1);
    }
    return at;
}

/* The first n numbers as doubles, made when there are not as many yet. */
typedef struct wide_rows {
    double *data;
    int64_t n;
} wide_rows;

static bool widen(wide_rows *w, const float *x, int64_t n)
{
    if (w->n >= n)
        return true;
    free(w->data);
    w->data = malloc((size_t)n * sizeof *w->data);
    w->n = w->data ? n : 0;
    for (int64_t i = 0; i < w->n; i++)
        w->data[i] = (double)x[i];
    return w->data;
}

/* ---- penstock ---- */

typedef struct ours {
    pst_model *m;
    pst_plan *p;
    size_t n_out;
    bench_job job;
    wide_rows wide; /* for a model of LightGBM's own file: it reads doubles; made beforehand */
} ours;

static void ours_close(void *vs)
{
    ours *s = vs;
    pst_plan_free(s->p);
    pst_model_unref(s->m);
    free(s->wide.data);
    free(s);
}

/* lib: "best", or an instruction set to hold it to. */
static void *ours_open(const char *lib, const char *file, const bench_job *job, char *why)
{
    pst_err err = {0};
    ours *s = calloc(1, sizeof *s);
    pst_plan_opts opts = {.isa = strcmp(lib, "best") ? lib : NULL};
    s->job = *job;
    if (pst_model_load_file(file, NULL, &s->m, &err) < 0 || pst_plan_new(s->m, &opts, &s->p, &err) < 0) {
        snprintf(why, BENCH_WHY, "%.190s", err.text);
        ours_close(s);
        return NULL;
    }
    s->n_out = pst_model_info_get(s->m)->n_outputs;
    return s;
}

static bool ours_prepare(void *vs, const float *x, int64_t rows, int batch)
{
    ours *s = vs;
    bool wide = pst_model_info_get(s->m)->inputs[0].dtype == PST_F64;
    return rows >= batch && (!wide || widen(&s->wide, x, rows * s->job.cols));
}

static bool ours_run(void *vs, const float *x, int64_t at, int batch, bench_out *ret)
{
    ours *s = vs;
    pst_err err = {0};
    pst_tensor in = {.dtype = PST_F32, .rank = s->job.rank + 1, .dims = {batch}, .data = (void *)(x + at * s->job.cols)}, out[8];
    if (s->wide.n) {
        in.dtype = PST_F64;
        in.data = s->wide.data + at * s->job.cols;
    }
    memcpy(in.dims + 1, s->job.dims, (size_t)s->job.rank * sizeof *in.dims);
    if (s->n_out > 8 || pst_plan_run(s->p, &in, 1, out, s->n_out, &err) < 0) {
        fprintf(stderr, "bench_engine: %s\n", err.text);
        return false;
    }
    const pst_tensor *o = &out[s->n_out - 1];
    int64_t n = 1;
    for (int i = 1; i < o->rank; i++)
        n *= o->dims[i];
    *ret = (bench_out){.data = o->data, .wide = o->dtype == PST_F64, .stride = n};
    return true;
}

const bench_side bench_penstock = {"penstock", ours_open, ours_prepare, ours_run, ours_close};
const bench_side bench_native = {"penstock native", ours_open, ours_prepare, ours_run, ours_close}; /* the library's own file */

/* ---- tl2cgen: predict(entries, 0, result) for one row; an entry is a float, or -1 in its bits where the value is missing ---- */

typedef union entry {
    int missing;
    float value;
} entry;

typedef struct compiled {
    void (*predict)(entry *row, int margin, float *result);
    void (*root)(const double *x, double *y, int from, int to);
    bench_job job;
    entry *row;
    float *y;
    wide_rows wide_x;
    double *wide_y;
} compiled;

static void compiled_close(void *vs)
{
    compiled *s = vs;
    free(s->row);
    free(s->y);
    free(s->wide_x.data);
    free(s->wide_y);
    free(s);
}

static void *tl2cgen_open(const char *lib, const char *file, const bench_job *job, char *why)
{
    void *so = bench_library(file, why);
    if (!so)
        return NULL;
    compiled *s = calloc(1, sizeof *s);
    s->job = *job;
    s->predict = (void (*)(entry *, int, float *))bench_symbol(so, "predict");
    s->row = calloc((size_t)job->cols, sizeof *s->row);
    return s;
}

static bool compiled_prepare(void *vs, const float *x, int64_t rows, int batch)
{
    compiled *s = vs;
    s->y = realloc(s->y, (size_t)batch * sizeof *s->y);
    s->wide_y = realloc(s->wide_y, (size_t)batch * sizeof *s->wide_y);
    return s->y && s->wide_y && (!s->root || widen(&s->wide_x, x, rows * s->job.cols)); /* lleaves reads doubles: made beforehand */
}

static bool tl2cgen_run(void *vs, const float *x, int64_t at, int batch, bench_out *ret)
{
    compiled *s = vs;
    for (int r = 0; r < batch; r++) {
        const float *v = x + (at + r) * s->job.cols;
        for (int64_t k = 0; k < s->job.cols; k++) {
            if (isnan(v[k]))
                s->row[k].missing = -1;
            else
                s->row[k].value = v[k];
        }
        s->y[r] = 0; /* it adds */
        s->predict(s->row, 0, s->y + r);
    }
    *ret = (bench_out){.data = s->y, .stride = 1};
    return true;
}

const bench_side bench_tl2cgen = {"tl2cgen", tl2cgen_open, compiled_prepare, tl2cgen_run, compiled_close};

/* ---- lleaves: forest_root(x, y, from, to) over rows of doubles ---- */

static void *lleaves_open(const char *lib, const char *file, const bench_job *job, char *why)
{
    void *so = bench_library(file, why);
    if (!so)
        return NULL;
    compiled *s = calloc(1, sizeof *s);
    s->job = *job;
    s->root = (void (*)(const double *, double *, int, int))bench_symbol(so, "forest_root");
    return s;
}

static bool lleaves_run(void *vs, const float *x, int64_t at, int batch, bench_out *ret)
{
    compiled *s = vs;
    s->root(s->wide_x.data + at * s->job.cols, s->wide_y, 0, batch);
    *ret = (bench_out){.data = s->wide_y, .wide = true, .stride = 1};
    return true;
}

const bench_side bench_lleaves = {"lleaves", lleaves_open, compiled_prepare, lleaves_run, compiled_close};
