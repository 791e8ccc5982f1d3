/* pool.c - MaxPool, AveragePool, LpPool, their global forms, MaxUnpool. float32 stays float32, other types go through double. */
#include "engine/ops/kernels.h"
#include "engine/ops/window.h"

#include "engine/cpu/isa.h"

#include <math.h>
#include <string.h>

typedef enum { P_MAX, P_AVERAGE, P_LP } pool_kind;

typedef struct pool_args {
    pool_kind kind;
    bool include_pad, column_major;
    int64_t p;
} pool_args;

/* Kernel positions of window o that lie within the padded input: the divisor when padding counts. */
static int64_t padded_positions(const eng_window *w, int64_t o)
{
    int64_t n = 1;
    for (int i = w->n - 1; i >= 0; i--) {
        int64_t from = o % w->out[i] * w->stride[i] - w->pad[i], inside = 0;
        for (int64_t k = 0; k < w->k[i]; k++)
            inside += from + k * w->dil[i] < w->in[i] + w->pad_end[i];
        n *= inside;
        o /= w->out[i];
    }
    return n;
}

static int64_t column_major_index(const eng_window *w, int64_t at)
{
    int64_t pos[ENG_WINDOW_DIMS], r = 0;
    for (int i = w->n - 1; i >= 0; i--) {
        pos[i] = at % w->in[i];
        at /= w->in[i];
    }
    for (int i = w->n - 1; i >= 0; i--)
        r = r * w->in[i] + pos[i];
    return r;
}

#define POOL(NAME, T)                                                                                                                \
    static void NAME(const eng_window *w, const pool_args *a, const T *x, T *y, int64_t *index, int64_t images)                      \
    {                                                                                                                                \
        for (int64_t o = 0; o < w->out_count; o++) {                                                                                 \
            int64_t counted = a->include_pad ? padded_positions(w, o) : 0;                                                           \
            for (int64_t s = 0; s < images; s++) {                                                                                   \
                double acc = 0;                                                                                                      \
                T top = 0;                                                                                                           \
                int64_t n = 0, best = -1;                                                                                            \
                for (int64_t k = 0; k < w->k_count; k++) {                                                                           \
                    int64_t at = eng_window_at(w, o, k);                                                                             \
                    if (at < 0)                                                                                                      \
                        continue;                                                                                                    \
                    T v = x[s * w->in_count + at];                                                                                   \
                    n++;                                                                                                             \
                    if (a->kind == P_MAX) {                                                                                          \
                        if (best < 0 || v > top || v != v) {                                                                         \
                            top = v;                                                                                                 \
                            best = at;                                                                                               \
                        }                                                                                                            \
                    } else if (a->kind == P_AVERAGE) {                                                                               \
                        acc += (double)v;                                                                                            \
                    } else {                                                                                                         \
                        acc += a->p == 1 ? fabs((double)v) : a->p == 2 ? (double)v * (double)v : pow(fabs((double)v), (double)a->p); \
                    }                                                                                                                \
                }                                                                                                                    \
                int64_t to = s * w->out_count + o;                                                                                   \
                if (a->kind == P_MAX) {                                                                                              \
                    y[to] = best < 0 ? (T)-INFINITY : top;                                                                           \
                    if (index)                                                                                                       \
                        index[to] = s * w->in_count + (a->column_major ? column_major_index(w, best) : best);                        \
                } else if (a->kind == P_AVERAGE) {                                                                                   \
                    y[to] = (T)(acc / (double)(a->include_pad ? counted : n));                                                       \
                } else {                                                                                                             \
                    y[to] = (T)(a->p == 1 ? acc : a->p == 2 ? sqrt(acc) : pow(acc, 1 / (double)a->p));                               \
                }                                                                                                                    \
            }                                                                                                                        \
        }                                                                                                                            \
    }
POOL(pool_f32, float)
POOL(pool_f64, double)

/* ---- the fast way: one or two dimensions, float32, maximum or average ---- */

/* The larger, NaN above all. */
static inline float top_of(float top, float v)
{
    return v > top || v != v ? v : top;
}

/* Positions k of a window from `at` that lie in [0, n), as a range. */
static void inside(int64_t at, int64_t k, int64_t dil, int64_t n, int64_t *from, int64_t *to)
{
    *from = at < 0 ? (-at + dil - 1) / dil : 0;
    *to = n > at ? (n - 1 - at) / dil + 1 : 0;
    *to = *to < k ? *to : k;
    *from = *from < *to ? *from : *to;
}

typedef struct axis {
    int64_t in, out, k, stride, dil, pad, pad_end;
} axis;

static axis axis_of(const eng_window *w, int i)
{
    return i < 0 ? (axis){1, 1, 1, 1, 1, 0, 0} : (axis){w->in[i], w->out[i], w->k[i], w->stride[i], w->dil[i], w->pad[i], w->pad_end[i]};
}

/* Positions of window o along an axis that count for an average. */
static int64_t counted(const axis *a, int64_t o, bool include_pad)
{
    int64_t from, to;
    inside(o * a->stride - a->pad, a->k, a->dil, a->in, &from, &to);
    if (!include_pad)
        return to - from;
    inside(o * a->stride, a->k, a->dil, a->in + a->pad + a->pad_end, &from, &to);
    return to - from;
}

/* What is the same for every plane: where each window's rows begin and end and how many count; which columns are in the middle. */
typedef struct pool_plan {
    axis v, x;
    bool max;
    int64_t *from, *to; /* (out rows) */
    float *rows, *cols; /* counts for averages */
    int64_t lo, hi;     /* windows [lo, hi) lie wholly in the row */
    float *row;
} pool_plan;

static bool plan_pool(eng_op_ctx *c, const eng_window *w, const pool_args *a, pool_plan *p)
{
    *p = (pool_plan){.v = axis_of(w, w->n - 2), .x = axis_of(w, w->n - 1), .max = a->kind == P_MAX};
    p->from = eng_op_scratch(c, (size_t)p->v.out * sizeof *p->from);
    p->to = eng_op_scratch(c, (size_t)p->v.out * sizeof *p->to);
    p->rows = eng_op_scratch(c, (size_t)p->v.out * sizeof *p->rows);
    p->cols = eng_op_scratch(c, (size_t)p->x.out * sizeof *p->cols);
    p->row = eng_op_scratch(c, (size_t)(p->x.in + 64) * sizeof *p->row);
    if (!p->from || !p->to || !p->rows || !p->cols || !p->row)
        return false;
    for (int64_t o = 0; o < p->v.out; o++) {
        inside(o * p->v.stride - p->v.pad, p->v.k, p->v.dil, p->v.in, &p->from[o], &p->to[o]);
        p->rows[o] = (float)counted(&p->v, o, a->include_pad);
    }
    for (int64_t o = 0; o < p->x.out; o++)
        p->cols[o] = (float)counted(&p->x, o, a->include_pad);
    const axis *x = &p->x;
    int64_t room = x->in - 1 - (x->k - 1) * x->dil + x->pad;
    p->lo = (x->pad + x->stride - 1) / x->stride;
    p->hi = room < 0 ? 0 : room / x->stride + 1;
    p->lo = p->lo < x->out ? p->lo : x->out;
    p->hi = p->hi < x->out ? p->hi : x->out;
    p->hi = p->hi < p->lo ? p->lo : p->hi;
    return true;
}

/* One row of outputs from the column-wise result of its window, p->row (in, and room for vectors behind). Windows in the middle together, those at the edges one by one. */
static void pool_row(const eng_cpu_kernels *kn, const pool_plan *p, float *to)
{
    const axis *x = &p->x;
    const float *row = p->row;
    for (int64_t o = 0; o < x->out; o++) {
        if (o == p->lo)
            o = p->hi;
        if (o >= x->out)
            break;
        int64_t from, end, at = o * x->stride - x->pad;
        to[o] = p->max ? -INFINITY : 0;
        inside(at, x->k, x->dil, x->in, &from, &end);
        for (int64_t k = from; k < end; k++)
            to[o] = p->max ? top_of(to[o], row[at + k * x->dil]) : to[o] + row[at + k * x->dil];
    }
    const float *at = row + p->lo * x->stride - x->pad;
    kn->gather(p->max, p->hi - p->lo, (int)x->k, at, x->dil, x->stride, to + p->lo, true);
}

/* Rows of the window are combined first, over the whole width, then columns. Returns 1 when this is no case for it. */
static int pool_fast(eng_op_ctx *c, const eng_window *w, const pool_args *a, const float *px, float *y, int64_t images)
{
    pool_plan p;
    if (c->plan->opts.no_fusion || w->n > 2 || a->kind == P_LP || !w->out_count || !w->in_count)
        return 1;
    if (!plan_pool(c, w, a, &p))
        return PST_ELIMIT;
    const eng_cpu_kernels *kn = eng_kernels_pick(c->plan->isa);
    int64_t in = p.x.in, out = p.x.out;
    for (int64_t s = 0; s < images; s++, px += w->in_count)
        for (int64_t oy = 0; oy < p.v.out; oy++, y += out) {
            const float *at = px + (oy * p.v.stride - p.v.pad) * in;
            int64_t from = p.from[oy], to = p.to[oy];
            for (int64_t i = 0; i < in && from >= to; i++)
                p.row[i] = p.max ? -INFINITY : 0;
            if (from < to)
                kn->gather(p.max, in, (int)(to - from), at + from * p.v.dil * in, p.v.dil * in, 1, p.row, false);
            pool_row(kn, &p, y);
            for (int64_t o = 0; o < out && !p.max; o++)
                y[o] /= p.rows[oy] * p.cols[o];
        }
    c->kernel = "rows, then columns";
    return 0;
}

static int pool(eng_op_ctx *c, pool_kind kind, bool global)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    eng_window w;
    pool_args a = {.kind = kind,
                   .include_pad = kind == P_AVERAGE && !global && eng_attr_int(c->node, "count_include_pad", 0),
                   .column_major = eng_attr_int(c->node, "storage_order", 0),
                   .p = eng_attr_int(c->node, "p", 2)};
    if (global) {
        if (x.rank < 3 || x.rank - 2 > ENG_WINDOW_DIMS)
            return eng_op_fail(c, PST_EINVAL, "an input (N, C, D…) is needed");
        w = (eng_window){.n = x.rank - 2, .in_count = 1, .out_count = 1, .k_count = 1};
        for (int i = 0; i < w.n; i++) {
            w.in[i] = w.k[i] = x.dims[i + 2];
            w.out[i] = w.stride[i] = w.dil[i] = 1;
            w.in_count *= w.in[i];
            w.k_count *= w.k[i];
        }
    } else if ((rc = eng_window_of(c, &x, NULL, &w)) < 0) {
        return rc;
    }
    int64_t dims[PST_MAX_RANK] = {x.dims[0], x.dims[1]}, images = x.dims[0] * x.dims[1], n = eng_count(&x);
    if ((rc = eng_op_work(c, (double)images * (double)w.out_count * (double)w.k_count)) < 0)
        return rc;
    memcpy(dims + 2, w.out, (size_t)w.n * sizeof *dims);
    void *y = eng_out(c, 0, x.dtype, x.rank, dims);
    int64_t *index = kind == P_MAX && c->n_out > 1 && eng_op_wanted(c, 1) ? eng_out(c, 1, PST_I64, x.rank, dims) : NULL;
    if (!y || (kind == P_MAX && c->n_out > 1 && eng_op_wanted(c, 1) && !index))
        return PST_ELIMIT;
    if (!images) /* the loops go over places first */
        return 0;
    if (x.dtype == PST_F32) {
        rc = index ? 1 : pool_fast(c, &w, &a, x.data, y, images);
        if (rc <= 0) /* done, or failed; 1: not by that way */
            return rc;
        pool_f32(&w, &a, x.data, y, index, images);
        return 0;
    }
    double *xd = eng_op_scratch(c, (size_t)n * 8), *yd = eng_op_scratch(c, (size_t)(images * w.out_count) * 8);
    if (!xd || !yd)
        return PST_ELIMIT;
    if (eng_convert(PST_F64, xd, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    pool_f64(&w, &a, xd, yd, index, images);
    return eng_convert(x.dtype, y, PST_F64, yd, images * w.out_count, true);
}

int eng_op_max_pool(eng_op_ctx *c)
{
    return pool(c, P_MAX, false);
}

int eng_op_average_pool(eng_op_ctx *c)
{
    return pool(c, P_AVERAGE, false);
}

int eng_op_lp_pool(eng_op_ctx *c)
{
    return pool(c, P_LP, false);
}

int eng_op_global_max_pool(eng_op_ctx *c)
{
    return pool(c, P_MAX, true);
}

int eng_op_global_average_pool(eng_op_ctx *c)
{
    return pool(c, P_AVERAGE, true);
}

int eng_op_global_lp_pool(eng_op_ctx *c)
{
    return pool(c, P_LP, true);
}

/* Values go back to where MaxPool found them; the size is given or follows from the window. */
int eng_op_max_unpool(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), n;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), ix = *eng_in(c, 1);
    int64_t dims[PST_MAX_RANK], inferred[PST_MAX_RANK];
    size_t nk, ns, np;
    const int64_t *k = eng_attr_ints(c->node, "kernel_shape", &nk), *s = eng_attr_ints(c->node, "strides", &ns),
                  *p = eng_attr_ints(c->node, "pads", &np);
    if (ix.dtype != PST_I64 || eng_count(&ix) != eng_count(&x) || x.rank < 3 || (int)nk != x.rank - 2 || (s && ns != nk) ||
        (p && np != 2 * nk))
        return eng_op_fail(c, PST_EINVAL, "indices or attributes do not fit the input");
    memcpy(inferred, x.dims, sizeof inferred);
    for (int i = 0; i < (int)nk; i++)
        inferred[i + 2] = (x.dims[i + 2] - 1) * (s ? s[i] : 1) + k[i] - (p ? p[i] + p[i + (int)nk] : 0);
    memcpy(dims, inferred, sizeof dims);
    if (eng_in(c, 2) && (n = eng_in_ints(c, 2, dims, PST_MAX_RANK)) != x.rank)
        return eng_op_fail(c, PST_EINVAL, "output_shape has another rank");
    char *y = eng_out(c, 0, x.dtype, x.rank, dims);
    if (!y)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    int64_t total = eng_dims_count(dims, x.rank), old = eng_dims_count(inferred, x.rank);
    memset(y, 0, (size_t)total * size);
    for (int64_t i = 0, cnt = eng_count(&x); i < cnt; i++) {
        int64_t at = ((const int64_t *)ix.data)[i], to = 0, step = 1;
        if (at < 0 || at >= old)
            return eng_op_fail(c, PST_EINVAL, "an index is outside the output");
        for (int q = x.rank - 1; q >= 0; q--) {
            int64_t v = at % inferred[q];
            if (v >= dims[q])
                return eng_op_fail(c, PST_EINVAL, "an index is outside the output");
            to += v * step;
            step *= dims[q];
            at /= inferred[q];
        }
        memcpy(y + (size_t)to * size, (const char *)x.data + (size_t)i * size, size);
    }
    return 0;
}
