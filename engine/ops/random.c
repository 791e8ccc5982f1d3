/* random.c - operators that draw: Random*, Bernoulli, Multinomial.
 *
 * What is drawn follows from the model and the place in the run, from nothing else: not the clock, not the runs before, not the plan or the
 * thread. For a stream that is scored again must give the same scores, and ONNX leaves the generator to whoever runs the model. So each
 * run begins anew; number k that a node draws in a run is a function of k and the node's key, which is its attribute seed or, without one,
 * its place in the model. A node that runs several times in one run (in a Loop) goes on where it was. Two nodes of one seed draw the same, as
 * their file says. Who wants a row's numbers not to depend on the rows before it runs rows by themselves (pst_model_info.draws).
 *
 * The generator is SplitMix64 (Steele, Lea, Flood 2014): number k is reached without those before it. Normal numbers are Box and Muller's. */
#include "engine/ops/kernels.h"
#include "engine/plan.h"

#include <math.h>
#include <string.h>

typedef struct drawer {
    uint64_t key, run, drawn;
} drawer;

static uint64_t mixed(uint64_t v)
{
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

/* Number k of a key, uniform in [0, 1). */
static double uniform(uint64_t key, uint64_t k)
{
    return (double)(mixed(key + (k + 1) * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}

/* This node's, made when it first runs. */
static drawer *drawer_of(eng_op_ctx *c)
{
    const eng_attr *seed = eng_attr_find(c->node, "seed");
    bool seeded = seed && seed->type == ENG_ATTR_FLOAT;
    uint64_t place = (uint64_t)c->node->out[0] + 1;
    drawer *d = *c->state;
    if (!d) {
        d = *c->state = eng_op_keep(c, sizeof *d);
        uint32_t bits = 0;
        if (seeded)
            memcpy(&bits, &seed->f, sizeof bits);
        d->key = mixed(seeded ? (uint64_t)bits << 32 : place);
    }
    c->note = seeded ? "draws by its seed, anew in each run" : "draws by its place in the model, anew in each run";
    return d;
}

/* The first of n further numbers of this node in this run. */
static uint64_t draw(eng_op_ctx *c, int64_t n, uint64_t *ret_key)
{
    drawer *d = drawer_of(c);
    if (d->run != c->plan->runs) {
        d->run = c->plan->runs;
        d->drawn = 0;
    }
    uint64_t first = d->drawn;
    d->drawn += (uint64_t)n;
    *ret_key = d->key;
    return first;
}

typedef enum { UNIFORM, NORMAL } distribution;

static void fill(uint64_t key, uint64_t first, distribution how, double a, double b, double *o, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t k = first + (uint64_t)i;
        if (how == UNIFORM) {
            o[i] = a + uniform(key, k) * (b - a);
        } else {
            double far = sqrt(-2 * log(1 - uniform(key, 2 * k))), turn = 6.283185307179586 * uniform(key, 2 * k + 1);
            o[i] = a + b * far * cos(turn);
        }
    }
}

/* Output 0, of this shape, filled in pieces. */
static int drawn(eng_op_ctx *c, distribution how, pst_dtype t, int rank, const int64_t *dims)
{
    enum { PIECE = 4096 };
    bool normal = how == NORMAL;
    double a = (double)eng_attr_float(c->node, normal ? "mean" : "low", 0),
           b = (double)eng_attr_float(c->node, normal ? "scale" : "high", 1);
    if (!eng_dtype_is_float(t))
        return eng_op_type(c, t);
    char *o = eng_out(c, 0, t, rank, dims);
    double *piece = eng_op_scratch(c, PIECE * sizeof *piece);
    if (!o || !piece)
        return PST_ELIMIT;
    int64_t n = eng_dims_count(dims, rank);
    uint64_t key, first = draw(c, n, &key);
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        int rc = eng_op_pause(c);
        if (rc < 0)
            return rc;
        fill(key, first + (uint64_t)i, how, a, b, piece, m);
        eng_convert(t, o + (size_t)i * pst_dtype_size(t), PST_F64, piece, m, true);
    }
    return 0;
}

static int by_shape(eng_op_ctx *c, distribution how)
{
    size_t rank;
    const int64_t *dims = eng_attr_ints(c->node, "shape", &rank);
    const eng_attr *shape = eng_attr_find(c->node, "shape");
    if (!shape || rank > PST_MAX_RANK || eng_dims_count(dims, (int)rank) < 0)
        return eng_op_fail(c, PST_EINVAL, "its attribute shape is missing or no shape");
    return drawn(c, how, (pst_dtype)eng_attr_int(c->node, "dtype", PST_F32), (int)rank, dims);
}

static int like(eng_op_ctx *c, distribution how)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    return drawn(c, how, (pst_dtype)eng_attr_int(c->node, "dtype", x.dtype), x.rank, x.dims);
}

int eng_op_random_normal(eng_op_ctx *c)
{
    return by_shape(c, NORMAL);
}

int eng_op_random_uniform(eng_op_ctx *c)
{
    return by_shape(c, UNIFORM);
}

int eng_op_random_normal_like(eng_op_ctx *c)
{
    return like(c, NORMAL);
}

int eng_op_random_uniform_like(eng_op_ctx *c)
{
    return like(c, UNIFORM);
}

int eng_op_bernoulli(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    pst_dtype t = (pst_dtype)eng_attr_int(c->node, "dtype", x.dtype);
    if (!eng_dtype_is_float(x.dtype))
        return eng_op_type(c, x.dtype);
    if (!eng_dtype_is_float(t) && !eng_dtype_is_int(t) && t != PST_BOOL)
        return eng_op_type(c, t);
    char *o = eng_out_typed(c, 0, t, &x);
    if (!o)
        return PST_ELIMIT;
    int64_t n = eng_count(&x);
    uint64_t key, first = draw(c, n, &key);
    size_t size = pst_dtype_size(x.dtype);
    for (int64_t i = 0; i < n; i++) {
        double p, v;
        eng_convert(PST_F64, &p, x.dtype, (const char *)x.data + (size_t)i * size, 1, true);
        if (!(p >= 0 && p <= 1))
            return eng_op_fail(c, PST_EINVAL, "element %lld is %g, which is no probability", (long long)i, p);
        v = uniform(key, first + (uint64_t)i) < p;
        eng_convert(t, o + (size_t)i * pst_dtype_size(t), PST_F64, &v, 1, true);
    }
    return 0;
}

/* sums[k]: of the probabilities up to class k, not scaled; infinities and NaN count as nothing, as in ONNX Runtime. The last class that has any, or -1. */
static int64_t sum_up(const double *logits, int64_t n, double *sums)
{
    int64_t last = -1;
    double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        top = isfinite(logits[k]) && logits[k] > top ? logits[k] : top;
    for (int64_t k = 0; k < n; k++) {
        double p = isfinite(logits[k]) ? exp(logits[k] - top) : 0;
        sum += p;
        sums[k] = sum;
        last = p > 0 ? k : last;
    }
    return last;
}

static int64_t class_at(const double *sums, int64_t last, double at)
{
    int64_t lo = 0, hi = last;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (sums[mid] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

int eng_op_multinomial(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t each = eng_attr_int(c->node, "sample_size", 1), dims[2] = {x.dims[0], each}, n = x.rank == 2 ? x.dims[1] : 0;
    pst_dtype t = (pst_dtype)eng_attr_int(c->node, "dtype", PST_I32);
    if (x.rank != 2 || !eng_dtype_is_float(x.dtype) || each < 1 || (t != PST_I32 && t != PST_I64))
        return eng_op_fail(c, PST_EINVAL, "rows of logarithms, a sample_size and a dtype of int32 or int64 are needed");
    char *o = eng_out(c, 0, t, 2, dims);
    double *sums = eng_op_scratch(c, 2 * (size_t)n * sizeof *sums + 8), *logits = sums + n;
    if (!o || !sums)
        return PST_ELIMIT;
    uint64_t key, first = draw(c, x.dims[0] * each, &key);
    for (int64_t r = 0; r < x.dims[0]; r++) {
        eng_convert(PST_F64, logits, x.dtype, (const char *)x.data + (size_t)(r * n) * pst_dtype_size(x.dtype), n, true);
        int64_t last = sum_up(logits, n, sums);
        if (last < 0)
            return eng_op_fail(c, PST_EINVAL, "row %lld has no class of any probability", (long long)r);
        if ((rc = eng_op_pause(c)) < 0)
            return rc;
        for (int64_t i = 0; i < each; i++) {
            uint64_t k = (uint64_t)(r * each + i);
            int64_t v = class_at(sums, last, uniform(key, first + k) * sums[last]);
            eng_convert(t, o + k * pst_dtype_size(t), PST_I64, &v, 1, true);
        }
    }
    return 0;
}
