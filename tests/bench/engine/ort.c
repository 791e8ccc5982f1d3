/* ort.c - ONNX Runtime through its C interface, a table of functions by number (version 16 of it or later; numbers never change).
 * One thread, all optimisations, inputs and outputs as tensors made beforehand over the rows: what Run alone costs. */
#include "tests/bench/engine/bench.h"

#include "engine/penstock_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_OPTIONS = 10,
    SET_OPTIMISATION = 23,
    SET_INTRA_THREADS = 24,
    SET_INTER_THREADS = 25,
    CREATE_TENSOR = 49,
    CREATE_CPU_MEMORY = 69,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96,
    API_VERSION = 16,
    QUIET = 4,
    OPTIMISE_ALL = 99,
    ARENA_ALLOCATOR = 1,
    FLOAT_TENSOR = 1
};

typedef struct api_base {
    void *const *(*get_api)(uint32_t version);
    const char *(*version)(void);
} api_base;

typedef void *status; /* NULL = good */

typedef struct session {
    void *handle, *memory;
    void **in, *out; /* tensors over the rows, one a batch; over y */
    int64_t n_in;
    float *y;
    char *in_name, *out_name;
    bench_job job;
    int64_t stride;
} session;

static void *const *api;
static void *env;

#define CALL(number, type, ...) ((type)api[number])(__VA_ARGS__)

static bool good(status st, char *why)
{
    if (st)
        snprintf(why, BENCH_WHY, "%.190s", CALL(ERROR_MESSAGE, const char *(*)(status), st));
    return !st;
}

static void drop_tensors(session *s)
{
    for (int64_t i = 0; i < s->n_in; i++)
        CALL(RELEASE_VALUE, void (*)(void *), s->in[i]);
    if (s->out)
        CALL(RELEASE_VALUE, void (*)(void *), s->out);
    free(s->in);
    free(s->y);
    s->in = NULL;
    s->out = s->y = NULL;
    s->n_in = 0;
}

static void ort_close(void *vs)
{
    session *s = vs;
    drop_tensors(s);
    if (s->handle)
        CALL(RELEASE_SESSION, void (*)(void *), s->handle);
    free(s->in_name);
    free(s->out_name);
    free(s);
}

/* The names of the model's first input and last output, and how many numbers a row of that has: our own loader tells. */
static bool names(session *s, const char *file, char *why)
{
    pst_err err = {0};
    pst_model *m = NULL;
    if (pst_model_load_file(file, NULL, &m, &err) < 0) {
        snprintf(why, BENCH_WHY, "%.190s", err.text);
        return false;
    }
    const pst_model_info *info = pst_model_info_get(m);
    const pst_value_info *o = &info->outputs[info->n_outputs - 1];
    s->in_name = strdup(info->inputs[0].name);
    s->out_name = strdup(o->name);
    s->stride = 1;
    for (int i = 1; i < o->rank; i++)
        s->stride *= o->dims[i];
    pst_model_unref(m);
    return true;
}

static bool start(const char *lib, char *why)
{
    if (env)
        return true;
    void *so = bench_library(lib, why);
    if (!so)
        return false;
    const api_base *base = ((const api_base *(*)(void))bench_symbol(so, "OrtGetApiBase"))();
    api = base->get_api(API_VERSION);
    if (!api) {
        snprintf(why, BENCH_WHY, "ONNX Runtime %s does not offer version %d of its interface", base->version(), API_VERSION);
        return false;
    }
    return good(CALL(CREATE_ENV, status(*)(int, const char *, void **), QUIET, "bench", &env), why);
}

static void *ort_open(const char *lib, const char *file, const bench_job *job, char *why)
{
    session *s = calloc(1, sizeof *s);
    void *options = NULL;
    s->job = *job;
    if (!start(lib, why) || !names(s, file, why) || !good(CALL(CREATE_OPTIONS, status(*)(void **), &options), why) ||
        !good(CALL(SET_OPTIMISATION, status(*)(void *, int), options, OPTIMISE_ALL), why) ||
        !good(CALL(SET_INTRA_THREADS, status(*)(void *, int), options, 1), why) ||
        !good(CALL(SET_INTER_THREADS, status(*)(void *, int), options, 1), why) ||
        !good(CALL(CREATE_SESSION, status(*)(void *, const char *, void *, void **), env, file, options, &s->handle), why) ||
        !good(CALL(CREATE_CPU_MEMORY, status(*)(int, int, void **), ARENA_ALLOCATOR, 0, &s->memory), why)) {
        if (api)
            ort_close(s);
        return NULL;
    }
    return s;
}

static bool tensor(session *s, const float *data, const int64_t *dims, int rank, void **ret)
{
    char why[BENCH_WHY] = "";
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    bool ok = good(CALL(CREATE_TENSOR, status(*)(void *, const void *, size_t, const int64_t *, size_t, int, void **), s->memory, data,
                        n * sizeof *data, dims, (size_t)rank, FLOAT_TENSOR, ret),
                   why);
    if (!ok)
        fprintf(stderr, "bench_engine: %s\n", why);
    return ok;
}

static bool ort_prepare(void *vs, const float *x, int64_t rows, int batch)
{
    session *s = vs;
    int64_t in[5] = {batch}, out[2] = {batch, s->stride};
    drop_tensors(s);
    memcpy(in + 1, s->job.dims, (size_t)s->job.rank * sizeof *in);
    s->in = calloc((size_t)(rows / batch), sizeof *s->in);
    s->y = calloc((size_t)(batch * s->stride), sizeof *s->y);
    bool ok = tensor(s, s->y, out, 2, &s->out);
    for (; ok && s->n_in < rows / batch; s->n_in++)
        ok = tensor(s, x + s->n_in * batch * s->job.cols, in, s->job.rank + 1, &s->in[s->n_in]);
    return ok;
}

static bool ort_run(void *vs, const float *x, int64_t at, int batch, bench_out *ret)
{
    session *s = vs;
    char why[BENCH_WHY] = "";
    const char *in = s->in_name, *out = s->out_name;
    status st = CALL(RUN, status(*)(void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t, void **),
                     s->handle, NULL, &in, &s->in[at / batch], 1, &out, 1, &s->out);
    *ret = (bench_out){.data = s->y, .stride = s->stride};
    if (!good(st, why))
        fprintf(stderr, "bench_engine: ONNX Runtime: %s\n", why);
    return !st;
}

const bench_side bench_ort = {"ONNX Runtime", ort_open, ort_prepare, ort_run, ort_close};
