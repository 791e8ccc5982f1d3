/* native_fuzz.h - what the three targets of native model files share: load, then run by the vector form and by the reference walk, which
 * must agree on rows of every kind. Limits are small, so that size is not the finding. */
#ifndef PST_TESTS_NATIVE_FUZZ_H
#define PST_TESTS_NATIVE_FUZZ_H

#include "engine/penstock_engine.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { FUZZ_ROWS = 70, FUZZ_FEATURES = 64, FUZZ_OUTPUTS = 64 };

static inline void native_fuzz_fill(const pst_model_info *info, void *to)
{
    static const double values[] = {0,  1,    -1,    0.5,          -0.5,  2,   3.7,      1e-36,     -1e-36, 100, -100, 16777216,
                                    31, 1e30, -1e30, 4294967296.0, 1e-35, NAN, INFINITY, -INFINITY, 0.1,    7,   12.25};
    int64_t f = info->inputs[0].dims[1];
    for (int64_t i = 0; i < FUZZ_ROWS * f; i++) {
        double v = values[(uint64_t)(i * 7 + i / f) % (sizeof values / sizeof *values)];
        if (info->inputs[0].dtype == PST_F64)
            ((double *)to)[i] = v;
        else
            ((float *)to)[i] = (float)v;
    }
}

static inline void native_fuzz_run(pst_model *m)
{
    static double rows[FUZZ_ROWS * FUZZ_FEATURES];
    static float first[FUZZ_ROWS * FUZZ_OUTPUTS];
    const pst_model_info *info = pst_model_info_get(m);
    int64_t f = info->inputs[0].dims[1], k = info->outputs[0].dims[1];
    if (f > FUZZ_FEATURES || k > FUZZ_OUTPUTS)
        return;
    native_fuzz_fill(info, rows);
    for (int way = 0; way < 3; way++) { /* blocks, the reference walk, single rows */
        pst_plan_opts opts = {.no_fusion = way == 1};
        pst_tensor in = {.dtype = info->inputs[0].dtype, .rank = 2, .dims = {way == 2 ? 3 : FUZZ_ROWS, f}, .data = rows}, out;
        pst_plan *p = NULL;
        pst_err err = {0};
        if (pst_plan_new(m, &opts, &p, &err) < 0)
            return;
        if (pst_plan_run(p, &in, 1, &out, 1, &err) == 0) {
            const float *y = out.data;
            for (int64_t i = 0; i < in.dims[0] * k; i++) {
                if (!way)
                    first[i] = y[i];
                else if (memcmp(&first[i], &y[i], sizeof *y) && !(isnan(first[i]) && isnan(y[i]))) {
                    fprintf(stderr, "way %d, element %lld: %.9g and %.9g\n", way, (long long)i, (double)first[i], (double)y[i]);
                    abort();
                }
            }
        }
        pst_plan_free(p);
    }
}

static inline int native_fuzz(const uint8_t *data, size_t len, const char *format)
{
    pst_model_limits limits = {
        .file_bytes_max = 1 << 20, .nodes_max = 200, .tensor_bytes_max = 1 << 20, .arena_bytes_max = 4 << 20, .depth_max = 16};
    pst_model *m = NULL;
    pst_err err = {0};
    if (pst_model_load(data, len, NULL, &limits, &m, &err) < 0)
        return 0;
    if (!strcmp(pst_model_info_get(m)->format, format)) /* other formats are other targets' matter */
        native_fuzz_run(m);
    pst_model_unref(m);
    return 0;
}

#endif
