/* prove.c - a plan's lane against the CPU, on rows that reach what may go wrong: of trees their own thresholds, where ranks change; of a network numbers
 * that its first operation scales to what it was trained on, since rows that drive every activation to its end show nothing. Missing
 * values are among both. */
#include "engine/cuda/prove.h"

#include "engine/backend.h"
#include "engine/made_up.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { ROWS = 33 }; /* more than a warp, no whole tile */

/* ---- trees ---- */

static void *rows_of_trees(const eng_forest *f)
{
    size_t cols = (size_t)f->n_features, n = ROWS * cols;
    float *narrow = f->wide ? NULL : eng_heap_array(n + 1, sizeof *narrow);
    double *wide = eng_heap_array(n + 1, sizeof *wide);
    for (size_t i = 0; i < n; i++)
        wide[i] = i % 7 == 6 ? (double)NAN : (double)(int)(i * 2654435761u >> 8 & 1023) / 64 - 8;
    for (int32_t i = 0; i < f->n_nodes; i++)
        if (i % 3)
            wide[(size_t)i * 31 % ROWS * cols + (size_t)f->nodes[i].feature] = f->nodes[i].split;
    for (size_t i = 0; i < n && narrow; i++)
        narrow[i] = fabs(wide[i]) > (double)FLT_MAX ? copysignf(INFINITY, wide[i] < 0 ? -1 : 1) : (float)wide[i];
    if (!narrow)
        return wide;
    eng_heap_free(wide);
    return narrow;
}

static int compare_sums(const eng_cuda_lane *l, const double *got, const double *want, size_t n, pst_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], sizeof *got) != 0 && !(isnan(want[i]) && isnan(got[i])))
            return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0,
                               "%s is not used for this model: of some rows it adds up %.17g where the CPU has %.17g", l->on->name, got[i],
                               want[i]);
    return 0;
}

static int run_lane(eng_cuda_lane *l, const void *x, void *ret, pst_err *err)
{
    int rc = eng_cuda_lane_begin(l, x, ROWS, l->task.cols, err);
    return rc == 0 ? eng_cuda_lane_end(l, x, ROWS, l->task.cols, ret, err) : rc;
}

static int prove_trees(eng_cuda_lane *l, pst_err *err)
{
    const eng_forest *f = l->task.of;
    size_t n = ROWS * (size_t)f->n_targets;
    void *x = rows_of_trees(f);
    double *want = eng_heap_array(n, sizeof *want), *got = eng_heap_array(n, sizeof *got);
    if (f->wide)
        eng_forest_eval_d(f, x, ROWS, f->n_features, want, NULL);
    else
        eng_forest_eval_f(f, x, ROWS, f->n_features, want, NULL);
    int rc = run_lane(l, x, got, err);
    if (rc == 0)
        rc = compare_sums(l, got, want, n, err);
    eng_heap_free(x);
    eng_heap_free(want);
    eng_heap_free(got);
    return rc;
}

/* ---- networks ---- */

/* As a table is where a model's scaling makes it one of mean 0 and deviation 1. In one row a value is missing, one is the mean itself;
 * none lies far out, where a result is so large that differences of the others do not count beside it. */
static float *rows_of_net(const eng_cuda_net_step *n)
{
    float *x = eng_heap_array((size_t)ROWS * n->n_in, sizeof *x);
    uint64_t state = ENG_MADE_UP_SEED;
    for (size_t i = 0; i < (size_t)ROWS * n->n_in; i++) {
        size_t column = i % n->n_in;
        x[i] = (float)((double)n->centre[column] + eng_made_up_number(&state) * (double)n->spread[column]);
    }
    memcpy(x + 3 * (size_t)n->n_in, n->centre, n->n_in * sizeof *x);
    x[7 * (size_t)n->n_in + n->n_in / 2] = NAN;
    return x;
}

/* By the steps that the network stands for; ret (ROWS, n_out). */
static int run_cpu(pst_plan *p, const eng_cuda_net_step *n, float *x, float *ret, pst_err *err)
{
    const eng_val in = {.kind = ENG_VAL_TENSOR, .t = {.dtype = PST_F32, .rank = 2, .dims = {ROWS, n->n_in}, .data = x}};
    eng_val *none = eng_heap_array(p->m->info.n_inputs + 1, sizeof *none);
    eng_cpu_begin(p, none);
    eng_val_set(p, &p->vals[n->in], &in);
    int rc = eng_prog_run_part(p, &n->inside, 0, n->inside.n_steps, err);
    for (uint32_t i = 0; i < n->n_results && rc == 0; i++) {
        const eng_cuda_net_result *v = &n->results[i];
        const pst_tensor *t = &p->vals[v->id].t;
        PST_ASSERT(p->vals[v->id].kind == ENG_VAL_TENSOR && t->dtype == PST_F32 && eng_count(t) == (int64_t)ROWS * v->width);
        for (size_t r = 0; r < ROWS; r++)
            memcpy(ret + r * n->n_out + v->at, (const float *)t->data + r * v->width, v->width * sizeof *ret);
    }
    for (uint32_t i = 0; i < n->n_results; i++)
        eng_val_clear(p, &p->vals[n->results[i].id]);
    eng_val_clear(p, &p->vals[n->in]);
    eng_prog_clear(p, &p->progs[0]);
    eng_heap_free(none);
    return rc;
}

/* Of one value's columns: its largest number is what differences are measured by. */
static int compare_value(const eng_cuda_lane *l, const eng_cuda_net_result *v, const float *got, const float *want, pst_err *err)
{
    size_t all = l->task.out / sizeof *got;
    double largest = 0;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = v->at; k < v->at + v->width; k++)
            if (isfinite(want[r * all + k]))
                largest = fmax(largest, fabs((double)want[r * all + k]));
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = v->at; k < v->at + v->width; k++) {
            double g = (double)got[r * all + k], w = (double)want[r * all + k];
            if (g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= ENG_CUDA_NET_TOLERANCE * largest)
                continue;
            return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0,
                               "%s is not used for this model: of some rows it computes %.9g where the CPU has %.9g, and the largest is "
                               "%.9g: more than %g of that",
                               l->on->name, g, w, largest, ENG_CUDA_NET_TOLERANCE);
        }
    return 0;
}

static int prove_net(pst_plan *p, eng_cuda_lane *l, pst_err *err)
{
    const eng_cuda_net_step *n = l->task.of;
    float *x = rows_of_net(n);
    float *want = eng_heap_array((size_t)ROWS * n->n_out, sizeof *want), *got = eng_heap_array((size_t)ROWS * n->n_out, sizeof *got);
    int rc = run_cpu(p, n, x, want, err);
    if (rc == 0)
        rc = run_lane(l, x, got, err);
    for (uint32_t i = 0; i < n->n_results && rc == 0; i++)
        rc = compare_value(l, &n->results[i], got, want, err);
    eng_heap_free(x);
    eng_heap_free(want);
    eng_heap_free(got);
    return rc;
}

int eng_cuda_prove(pst_plan *p, eng_cuda_lane *l, pst_err *err)
{
    return eng_cuda_task_is_net(&l->task) ? prove_net(p, l, err) : prove_trees(l, err);
}
