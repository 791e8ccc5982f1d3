/* boosted.c - XGBoost and LightGBM through their own C interfaces, one thread. XGBoost reads rows in place; LightGBM has a prepared call for one row. */
#include "tests/bench/engine/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- XGBoost ---- */

typedef struct xgb {
    void *booster, *proxy;
    int (*create_matrix)(void **);
    int (*predict)(void *, const char *, const char *, void *, const uint64_t **, uint64_t *, const float **);
    int (*free_booster)(void *);
    int (*free_matrix)(void *);
    bench_job job;
} xgb;

static void xgb_close(void *vs)
{
    xgb *s = vs;
    if (s->booster)
        s->free_booster(s->booster);
    if (s->proxy)
        s->free_matrix(s->proxy);
    free(s);
}

static void *xgb_open(const char *lib, const char *file, const bench_job *job, char *why)
{
    void *so = bench_library(lib, why);
    if (!so)
        return NULL;
    xgb *s = calloc(1, sizeof *s);
    s->job = *job;
    s->create_matrix = (int (*)(void **))bench_symbol(so, "XGProxyDMatrixCreate");
    s->predict = (int (*)(void *, const char *, const char *, void *, const uint64_t **, uint64_t *, const float **))bench_symbol(
        so, "XGBoosterPredictFromDense");
    s->free_booster = (int (*)(void *))bench_symbol(so, "XGBoosterFree");
    s->free_matrix = (int (*)(void *))bench_symbol(so, "XGDMatrixFree");
    int (*create)(const void *, uint64_t, void **) = (int (*)(const void *, uint64_t, void **))bench_symbol(so, "XGBoosterCreate");
    int (*load)(void *, const char *) = (int (*)(void *, const char *))bench_symbol(so, "XGBoosterLoadModel");
    int (*set)(void *, const char *, const char *) = (int (*)(void *, const char *, const char *))bench_symbol(so, "XGBoosterSetParam");
    const char *(*last)(void) = (const char *(*)(void))bench_symbol(so, "XGBGetLastError");
    if (create(NULL, 0, &s->booster) || load(s->booster, file) || set(s->booster, "nthread", "1") || s->create_matrix(&s->proxy)) {
        snprintf(why, BENCH_WHY, "%.190s", last());
        xgb_close(s);
        return NULL;
    }
    return s;
}

static bool nothing_to_prepare(void *s, const float *x, int64_t rows, int batch)
{
    return s && x && rows >= batch;
}

static bool xgb_run(void *vs, const float *x, int64_t at, int batch, bench_out *ret)
{
    static const char config[] =
        "{\"type\":0,\"training\":false,\"iteration_begin\":0,\"iteration_end\":0,\"strict_shape\":false,\"missing\":NaN,\"cache_id\":0}";
    xgb *s = vs;
    char rows[200];
    const uint64_t *shape;
    uint64_t rank;
    const float *y;
    snprintf(rows, sizeof rows, "{\"data\":[%zu,true],\"shape\":[%d,%lld],\"typestr\":\"<f4\",\"version\":3}",
             (size_t)(x + at * s->job.cols), batch, (long long)s->job.cols);
    if (s->predict(s->booster, rows, config, s->proxy, &shape, &rank, &y)) {
        fprintf(stderr, "bench_engine: XGBoost does not predict\n");
        return false;
    }
    *ret = (bench_out){.data = y, .stride = 1};
    return true;
}

const bench_side bench_xgboost = {"XGBoost", xgb_open, nothing_to_prepare, xgb_run, xgb_close};

/* ---- LightGBM ---- */

enum { FLOAT32 = 0, NORMAL = 0, ROW_MAJOR = 1 };

typedef struct lgbm {
    void *booster, *fast;
    int (*predict)(void *, const void *, int, int32_t, int32_t, int, int, int, int, const char *, int64_t *, double *);
    int (*predict_one)(void *, const void *, int64_t *, double *);
    int (*free_booster)(void *);
    int (*free_fast)(void *);
    double *y;
    bench_job job;
} lgbm;

static void lgbm_close(void *vs)
{
    lgbm *s = vs;
    if (s->fast)
        s->free_fast(s->fast);
    if (s->booster)
        s->free_booster(s->booster);
    free(s->y);
    free(s);
}

static void *lgbm_open(const char *lib, const char *file, const bench_job *job, char *why)
{
    void *so = bench_library(lib, why);
    if (!so)
        return NULL;
    lgbm *s = calloc(1, sizeof *s);
    int rounds;
    s->job = *job;
    s->predict = (int (*)(void *, const void *, int, int32_t, int32_t, int, int, int, int, const char *, int64_t *, double *))bench_symbol(
        so, "LGBM_BoosterPredictForMat");
    s->predict_one = (int (*)(void *, const void *, int64_t *, double *))bench_symbol(so, "LGBM_BoosterPredictForMatSingleRowFast");
    s->free_booster = (int (*)(void *))bench_symbol(so, "LGBM_BoosterFree");
    s->free_fast = (int (*)(void *))bench_symbol(so, "LGBM_FastConfigFree");
    int (*load)(const char *, int *, void **) = (int (*)(const char *, int *, void **))bench_symbol(so, "LGBM_BoosterCreateFromModelfile");
    int (*fast)(void *, int, int, int, int, int32_t, const char *, void **) =
        (int (*)(void *, int, int, int, int, int32_t, const char *, void **))bench_symbol(so, "LGBM_BoosterPredictForMatSingleRowFastInit");
    const char *(*last)(void) = (const char *(*)(void))bench_symbol(so, "LGBM_GetLastError");
    if (load(file, &rounds, &s->booster) ||
        fast(s->booster, NORMAL, 0, -1, FLOAT32, (int32_t)job->cols, "num_threads=1 verbosity=-1", &s->fast)) {
        snprintf(why, BENCH_WHY, "%.190s", last());
        lgbm_close(s);
        return NULL;
    }
    return s;
}

static bool lgbm_prepare(void *vs, const float *x, int64_t rows, int batch)
{
    lgbm *s = vs;
    s->y = realloc(s->y, (size_t)batch * sizeof *s->y);
    return s->y;
}

static bool lgbm_run(void *vs, const float *x, int64_t at, int batch, bench_out *ret)
{
    lgbm *s = vs;
    int64_t n;
    const float *row = x + at * s->job.cols;
    int rc = batch == 1 ? s->predict_one(s->fast, row, &n, s->y)
                        : s->predict(s->booster, row, FLOAT32, batch, (int32_t)s->job.cols, ROW_MAJOR, NORMAL, 0, -1,
                                     "num_threads=1 verbosity=-1", &n, s->y);
    *ret = (bench_out){.data = s->y, .wide = true, .stride = 1};
    return !rc;
}

const bench_side bench_lightgbm = {"LightGBM", lgbm_open, lgbm_prepare, lgbm_run, lgbm_close};
