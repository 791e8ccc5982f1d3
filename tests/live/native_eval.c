/* native_eval.c - runs a model over rows in a file, every way the engine has, and writes what it gave: the engine's side of
 * test_engine_native.py.
 *
 *     native_eval MODEL ROWS N OUT       ROWS: N rows of doubles, row-major; OUT: float32 (N, outputs)
 *
 * All rows at once on every instruction set of this machine, in batches of 1, 7 and 70 rows and by the reference walk: all must agree bit
 * for bit, or the exit status is 1. What the plan says of itself goes to standard output. */
#include "engine/cpu/isa.h"
#include "engine/penstock_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const pst_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err ? err->text : "");
    exit(2);
}

/* batch rows at a time → out (n, width) */
static void run(pst_model *m, const pst_plan_opts *opts, const void *rows, size_t elem, int64_t n, int64_t batch, double *out)
{
    const pst_model_info *info = pst_model_info_get(m);
    int64_t f = info->inputs[0].dims[1], width = info->outputs[0].dims[1];
    pst_plan *p = NULL;
    pst_err err = {0};
    if (pst_plan_new(m, opts, &p, &err) < 0)
        die("plan", &err);
    for (int64_t at = 0; at < n; at += batch) {
        int64_t k = n - at < batch ? n - at : batch;
        pst_tensor in = {
            .dtype = info->inputs[0].dtype, .rank = 2, .dims = {k, f}, .data = (char *)(uintptr_t)rows + (size_t)(at * f) * elem};
        pst_tensor y;
        if (pst_plan_run(p, &in, 1, &y, 1, &err) < 0)
            die("run", &err);
        for (int64_t i = 0; i < k * width; i++)
            out[at * width + i] = y.dtype == PST_F64 ? ((const double *)y.data)[i] : (double)((const float *)y.data)[i];
    }
    if (batch >= n && !opts->isa && !opts->no_fusion) {
        char *text = pst_plan_explain(p);
        fputs(text, stdout);
        free(text);
    }
    pst_plan_free(p);
}

int main(int argc, char **argv)
{
    pst_err err = {0};
    pst_model *m = NULL;
    if (argc != 5)
        die("usage: native_eval MODEL ROWS N OUT", NULL);
    if (pst_model_load_file(argv[1], NULL, &m, &err) < 0)
        die("load", &err);
    const pst_model_info *info = pst_model_info_get(m);
    int64_t n = strtoll(argv[3], NULL, 10), f = info->inputs[0].dims[1], width = info->outputs[0].dims[1];
    size_t cells = (size_t)(n * f), results = (size_t)(n * width);
    double *rows = malloc(cells * sizeof *rows), *want = malloc(results * sizeof *want), *got = malloc(results * sizeof *got);
    float *narrow = malloc(cells * sizeof *narrow);
    FILE *in = fopen(argv[2], "rb");
    if (!in || fread(rows, sizeof *rows, cells, in) != cells)
        die("rows are too few for the model's features", NULL);
    fclose(in);
    for (size_t i = 0; i < cells; i++)
        narrow[i] = (float)rows[i];
    bool wide = info->inputs[0].dtype == PST_F64;
    const void *x = wide ? (const void *)rows : narrow;
    size_t elem = wide ? sizeof(double) : sizeof(float);
    printf("%s, %s, %s\n", info->producer, info->format, pst_model_meta(m, "native.objective"));
    const pst_plan_opts ways[] = {{0}, {.isa = "portable"}, {.isa = "avx2"}, {.isa = "avx512"}, {.no_fusion = true}, {0}, {0}, {0}};
    const int64_t batches[] = {n, n, n, n, n, 1, 7, 70};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].isa && !eng_kernels_pick(ways[i].isa))
            continue;
        run(m, &ways[i], x, elem, n, batches[i], i ? got : want);
        for (size_t k = 0; i && k < results; k++)
            if (memcmp(&want[k], &got[k], sizeof *got)) {
                fprintf(stderr, "way %zu differs from the first in row %zu: %.9g, %.9g\n", i, k / (size_t)width, got[k], want[k]);
                return 1;
            }
    }
    FILE *out = fopen(argv[4], "wb");
    if (!out || fwrite(want, sizeof *want, results, out) != results || fclose(out))
        die("cannot write the results", NULL);
    pst_model_unref(m);
    free(rows);
    free(narrow);
    free(want);
    free(got);
    return 0;
}
