/* engine_kit.h - models made in memory for tests of the engine: a short hand for the builder, loading, and comparing two plans. */
#ifndef PST_TESTS_ENGINE_KIT_H
#define PST_TESTS_ENGINE_KIT_H

#include "engine/onnx_export.h"
#include "engine/penstock_engine.h"
#include "tests/unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t kit_seed = 88172645463325252u;

static inline uint32_t kit_next(void)
{
    kit_seed ^= kit_seed << 13;
    kit_seed ^= kit_seed >> 7;
    kit_seed ^= kit_seed << 17;
    return (uint32_t)(kit_seed >> 32);
}

static inline float kit_float(void)
{
    return (float)(int32_t)kit_next() / 1073741824.0f;
}

/* n random floats in [-2, 2); free() them. */
static inline float *kit_floats(size_t n)
{
    float *p = malloc((n + 1) * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = kit_float();
    return p;
}

/* A random float32 initializer, times scale. dims ends with -1. */
static inline void kit_weights(pst_onnx_builder *b, const char *name, float scale, const int64_t *dims)
{
    size_t n = 1;
    int rank = 0;
    for (; dims[rank] >= 0; rank++)
        n *= (size_t)dims[rank];
    float *v = kit_floats(n);
    for (size_t i = 0; i < n; i++)
        v[i] *= scale;
    pst_onnx_floats(b, name, rank, dims, v);
    free(v);
}
#define KIT_WEIGHTS(B, NAME, SCALE, ...) kit_weights(B, NAME, SCALE, (const int64_t[]){__VA_ARGS__, -1})

static inline void kit_scalar(pst_onnx_builder *b, const char *name, float v)
{
    pst_onnx_floats(b, name, 0, NULL, &v);
}

/* "Op a b > y": inputs, then the output; '-' = an input left out. */
static inline void kit_node(pst_onnx_builder *b, const char *line)
{
    char text[200], *save = NULL;
    const char *in[12];
    size_t n = 0;
    snprintf(text, sizeof text, "%s", line);
    const char *op = strtok_r(text, " ", &save), *word;
    while ((word = strtok_r(NULL, " ", &save)) && strcmp(word, ">") != 0)
        in[n++] = strcmp(word, "-") != 0 ? word : "";
    const char *out[4];
    size_t n_out = 0;
    while (n_out < 4 && (word = strtok_r(NULL, " ", &save)))
        out[n_out++] = word;
    pst_onnx_node(b, op, in, n, out, n_out);
}

/* The model in a file that lies in memory; dir: where its weights outside of it are, NULL: it has none. */
static inline pst_model *kit_load_bytes(const pst_buf *file, const char *dir, const pst_model_limits *limits)
{
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load(file->data, file->len, dir, limits, &m, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

/* Takes the builder. */
static inline pst_model *kit_load(pst_onnx_builder *b, const pst_model_limits *limits)
{
    pst_buf file = {0};
    pst_onnx_write(b, &file);
    pst_onnx_free(b);
    pst_model *m = kit_load_bytes(&file, NULL, limits);
    pst_buf_done(&file);
    return m;
}

static inline pst_plan *kit_plan(pst_model *m, const char *isa, bool no_fusion)
{
    pst_plan *p = NULL;
    pst_err err = {0};
    pst_plan_opts opts = {.isa = isa, .no_fusion = no_fusion};
    if (pst_plan_new(m, &opts, &p, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

/* True for equal to within tol relative to 1 and the wanted number; NaN is NaN, an infinity itself. */
static inline bool kit_close(float got, float want, float tol)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want))
        return got == want;
    return fabsf(got - want) <= tol * (1 + fabsf(want));
}

/* Runs both plans on the same inputs; every output the same shape and type, floats within tol. */
static inline void kit_same(pst_plan *fused, pst_plan *plain, const pst_tensor *in, size_t n_in, size_t n_out, float tol, const char *what)
{
    pst_tensor got[8], want[8];
    pst_err err = {0}, err2 = {0};
    int rc = pst_plan_run(plain, in, n_in, want, n_out, &err), rc2 = pst_plan_run(fused, in, n_in, got, n_out, &err2);
    if (rc != rc2)
        fail_msg("%s: %d (%s), without fusion %d (%s)", what, rc2, err2.text, rc, err.text);
    for (size_t k = 0; rc == 0 && k < n_out; k++) {
        int64_t n = 1;
        if (got[k].rank != want[k].rank || got[k].dtype != want[k].dtype)
            fail_msg("%s: output %zu has rank %d, type %d; wanted %d, %d", what, k, got[k].rank, got[k].dtype, want[k].rank, want[k].dtype);
        for (int i = 0; i < want[k].rank; i++) {
            if (got[k].dims[i] != want[k].dims[i])
                fail_msg("%s: output %zu, dimension %d is %lld, wanted %lld", what, k, i, (long long)got[k].dims[i],
                         (long long)want[k].dims[i]);
            n *= want[k].dims[i];
        }
        if (want[k].dtype != PST_F32) {
            if (memcmp(got[k].data, want[k].data, (size_t)n * pst_dtype_size(want[k].dtype)) != 0)
                fail_msg("%s: output %zu differs", what, k);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            if (!kit_close(((float *)got[k].data)[i], ((float *)want[k].data)[i], tol))
                fail_msg("%s: output %zu[%lld] is %.9g, without fusion %.9g", what, k, (long long)i, (double)((float *)got[k].data)[i],
                         (double)((float *)want[k].data)[i]);
    }
}

#endif
