/* engine.c - ns per row of one ONNX model at several batch sizes, on 50,000 distinct random rows. engine_bench.py compares it
 * with ONNX Runtime.
 *
 *     bench_engine MODEL [isa] [reference]        prints: batch ns_per_row, one line per batch size
 *     bench_engine MODEL dump ROWS > out.f32      reads ROWS·features floats from stdin, writes the last output as floats */
#include "engine/penstock_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DISTINCT = 50000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* what the thread used: other programs on the machine do not count */
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int fail(const pst_err *err)
{
    fprintf(stderr, "bench_engine: %s\n", err->text);
    return 1;
}

/* Rows like those of a standardised table. */
static void fill(float *x, size_t n)
{
    uint64_t s = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            sum += (float)(s >> 40) / 16777216.0f - 0.5f;
        }
        x[i] = sum * 1.7320508f;
    }
}

static int dump(pst_plan *p, const pst_model_info *info, int64_t rows, int64_t cols)
{
    pst_err err = {0};
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {rows, cols}, .data = x}, out[16];
    if (info->n_outputs > 16 || fread(x, sizeof *x, (size_t)(rows * cols), stdin) != (size_t)(rows * cols))
        return 1;
    if (pst_plan_run(p, &in, 1, out, info->n_outputs, &err) < 0)
        return fail(&err);
    const pst_tensor *o = &out[info->n_outputs - 1];
    size_t n = 1;
    for (int i = 0; i < o->rank; i++)
        n *= (size_t)o->dims[i];
    bool ok = fwrite(o->data, sizeof(float), n, stdout) == n;
    free(x);
    return !ok;
}

int main(int argc, char **argv)
{
    static const int batches[] = {1, 8, 64, 512, 4096};
    pst_err err = {0};
    pst_model *m = NULL;
    pst_plan *p = NULL;
    pst_plan_opts opts = {.isa = argc > 2 && strcmp(argv[2], "dump") ? argv[2] : NULL,
                          .no_fusion = argc > 3 && !strcmp(argv[3], "reference")};
    if (argc < 2 || pst_model_load_file(argv[1], NULL, &m, &err) < 0 || pst_plan_new(m, &opts, &p, &err) < 0)
        return argc < 2 ? 2 : fail(&err);
    const pst_model_info *info = pst_model_info_get(m);
    int64_t cols = info->inputs[0].rank == 2 ? info->inputs[0].dims[1] : 1;
    if (argc > 3 && !strcmp(argv[2], "dump"))
        return dump(p, info, atoll(argv[3]), cols);
    float *x = malloc((size_t)DISTINCT * (size_t)cols * sizeof *x);
    fill(x, (size_t)(DISTINCT * cols));
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        double best = 1e18;
        pst_tensor out[16];
        for (int rep = 0; rep < 5; rep++) {
            size_t rows = 0, calls = 0;
            double t0 = now(), t1 = t0;
            for (size_t at = 0; t1 - t0<1e8; at = at + 2 * (size_t)batches[b]> DISTINCT ? 0 : at + (size_t)batches[b]) {
                pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {batches[b], cols}, .data = x + at * (size_t)cols};
                if (pst_plan_run(p, &in, 1, out, info->n_outputs, &err) < 0)
                    return fail(&err);
                rows += (size_t)batches[b];
                if (!(++calls & (batches[b] < 64 ? 255 : 0))) /* reading the clock costs as much as a small run */
                    t1 = now();
            }
            double ns = (t1 - t0) / (double)rows;
            best = ns < best ? ns : best;
        }
        printf("%d %.1f\n", batches[b], best);
    }
    free(x);
    pst_plan_free(p);
    pst_model_unref(m);
    return 0;
}
