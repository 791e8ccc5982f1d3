/* signal.c - operators that prepare sound: windows, the discrete Fourier transform, frames of it, mel filters.
 * Sums run in double. Lengths that are powers of two take the radix-2 way, others the sum of the definition with a table of roots:
 * exact for every length, and quick enough for the few hundred points of a frame. */
#include "engine/ops/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- windows ---- */

/* a0 - a1 cos(2πi/n) + a2 cos(4πi/n) */
static int window(eng_op_ctx *c, double a0, double a1, double a2)
{
    int64_t size, dtype = eng_attr_int(c->node, "output_datatype", PST_F32);
    if (eng_in_ints(c, 0, &size, 1) != 1 || size < 0)
        return eng_op_fail(c, PST_EINVAL, "the size must be one number that is not negative");
    if (!eng_dtype_is_float((int)dtype) && !eng_dtype_is_int((int)dtype))
        return eng_op_type(c, (int)dtype);
    char *o = eng_out(c, 0, (pst_dtype)dtype, 1, &size);
    if (!o)
        return PST_ELIMIT;
    double n = eng_attr_int(c->node, "periodic", 1) ? (double)size : (double)size - 1;
    for (int64_t i = 0; i < size; i++) {
        double at = n > 0 ? 2 * M_PI * (double)i / n : 0, v = a0 - a1 * cos(at) + a2 * cos(2 * at);
        eng_convert((int)dtype, o + (size_t)i * pst_dtype_size((pst_dtype)dtype), PST_F64, &v, 1, true);
    }
    return 0;
}

int eng_op_hann_window(eng_op_ctx *c)
{
    return window(c, 0.5, 0.5, 0);
}

int eng_op_hamming_window(eng_op_ctx *c)
{
    return window(c, 25.0 / 46, 21.0 / 46, 0);
}

int eng_op_blackman_window(eng_op_ctx *c)
{
    return window(c, 0.42, 0.5, 0.08);
}

/* ---- the transform ---- */

typedef struct dft {
    int64_t n;
    bool inverse;
    double *roots;    /* cos, sin of ±2πk/n */
    double *in, *out; /* n complex numbers */
} dft;

static int dft_new(eng_op_ctx *c, int64_t n, bool inverse, int64_t times, dft *ret)
{
    bool direct = n & (n - 1);
    if (n < 1 || n > INT32_MAX)
        return eng_op_fail(c, PST_EINVAL, "a transform of %" PRId64 " points", n);
    int rc = eng_op_work(c, (double)times * (double)n * (direct ? (double)n : 64));
    if (rc < 0)
        return rc;
    double *room = eng_op_scratch(c, (size_t)n * 6 * sizeof *room);
    if (!room)
        return PST_ELIMIT;
    *ret = (dft){.n = n, .inverse = inverse, .roots = room, .in = room + 2 * n, .out = room + 4 * n};
    for (int64_t k = 0; k < n; k++) {
        double at = (inverse ? 2 : -2) * M_PI * (double)k / (double)n;
        room[2 * k] = cos(at);
        room[2 * k + 1] = sin(at);
    }
    return 0;
}

static void dft_direct(const dft *d)
{
    for (int64_t k = 0; k < d->n; k++) {
        double re = 0, im = 0;
        for (int64_t j = 0, at = 0; j < d->n; j++) {
            double a = d->in[2 * j], b = d->in[2 * j + 1], r = d->roots[2 * at], s = d->roots[2 * at + 1];
            re += a * r - b * s;
            im += a * s + b * r;
            at += k;
            at -= at >= d->n ? d->n : 0;
        }
        d->out[2 * k] = re;
        d->out[2 * k + 1] = im;
    }
}

/* Bit-reversed copy, then butterflies in place. */
static void dft_radix2(const dft *d)
{
    int64_t n = d->n;
    for (int64_t i = 0, rev = 0; i < n; i++) {
        d->out[2 * rev] = d->in[2 * i];
        d->out[2 * rev + 1] = d->in[2 * i + 1];
        int64_t bit = n >> 1;
        for (; bit && rev & bit; bit >>= 1)
            rev ^= bit;
        rev |= bit;
    }
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t i = 0; i < n; i += 2 * half)
            for (int64_t k = 0; k < half; k++) {
                double *a = d->out + 2 * (i + k), *b = a + 2 * half;
                const double *w = d->roots + 2 * (k * (n / (2 * half)));
                double re = b[0] * w[0] - b[1] * w[1], im = b[0] * w[1] + b[1] * w[0];
                b[0] = a[0] - re;
                b[1] = a[1] - im;
                a[0] += re;
                a[1] += im;
            }
}

static void dft_run(const dft *d)
{
    if (d->n & (d->n - 1))
        dft_direct(d);
    else
        dft_radix2(d);
    for (int64_t k = 0; d->inverse && k < 2 * d->n; k++)
        d->out[k] /= (double)d->n;
}

static double real_at(const pst_tensor *t, int64_t i)
{
    return t->dtype == PST_F32 ? (double)((const float *)t->data)[i] : ((const double *)t->data)[i];
}

static void real_put(void *data, pst_dtype dtype, int64_t i, double v)
{
    if (dtype == PST_F32)
        ((float *)data)[i] = (float)v;
    else
        ((double *)data)[i] = v;
}

/* The transformed axis and where its lines lie. */
typedef struct lines {
    int axis;
    int64_t length, outer, inner, parts; /* parts: 1 = real, 2 = complex */
} lines;

static int find_lines(eng_op_ctx *c, const pst_tensor *x, lines *ret)
{
    int64_t axis = eng_attr_int(c->node, "axis", 1);
    if (c->node->opset >= 20) {
        axis = -2;
        if (eng_in(c, 2) && eng_in_ints(c, 2, &axis, 1) != 1)
            return PST_EINVAL;
    }
    *ret = (lines){.outer = 1, .inner = 1};
    int rc = eng_op_axis(c, axis, x->rank, &ret->axis);
    if (rc < 0)
        return rc;
    ret->parts = x->dims[x->rank - 1];
    if (x->rank < 2 || ret->axis == x->rank - 1 || (ret->parts != 1 && ret->parts != 2))
        return eng_op_fail(c, PST_EINVAL, "the last dimension holds real and imaginary part and is not transformed");
    ret->length = x->dims[ret->axis];
    for (int i = 0; i < ret->axis; i++)
        ret->outer *= x->dims[i];
    for (int i = ret->axis + 1; i < x->rank - 1; i++)
        ret->inner *= x->dims[i];
    return 0;
}

/* One line into d->in: cut or filled with zeros; half a spectrum is completed by its conjugate. */
static void gather(const dft *d, const pst_tensor *x, const lines *l, int64_t o, int64_t i, bool half)
{
    for (int64_t k = 0; k < d->n; k++) {
        bool mirrored = half && k > d->n / 2;
        int64_t from = mirrored ? d->n - k : k, at = ((o * l->length + from) * l->inner + i) * l->parts;
        bool there = from < l->length;
        d->in[2 * k] = there ? real_at(x, at) : 0;
        d->in[2 * k + 1] = 0;
        if (there && l->parts == 2)
            d->in[2 * k + 1] = mirrored ? -real_at(x, at + 1) : real_at(x, at + 1);
    }
}

/* A line along the axis is gathered into complex doubles, transformed, and put back. Its length may be another than the input's: gather
 * cuts it or fills it with zeros. Of a one-sided result the other half is its mirror, which the inverse has gather make. */
int eng_op_dft(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool inverse = eng_attr_int(c->node, "inverse", 0), onesided = eng_attr_int(c->node, "onesided", 0);
    lines l;
    dft d;
    if (x.dtype != PST_F32 && x.dtype != PST_F64)
        return eng_op_type(c, x.dtype);
    if ((rc = find_lines(c, &x, &l)) < 0)
        return rc;
    int64_t n = inverse && onesided ? 2 * (l.length - 1) : l.length, dims[PST_MAX_RANK];
    if (eng_in(c, 1) && eng_in_ints(c, 1, &n, 1) != 1)
        return PST_EINVAL;
    if ((rc = dft_new(c, n, inverse, l.outer * l.inner, &d)) < 0)
        return rc;
    int64_t out_n = onesided && !inverse ? n / 2 + 1 : n, parts = inverse && onesided ? 1 : 2;
    PST_ASSERT(out_n <= d.n);
    memcpy(dims, x.dims, sizeof dims);
    dims[l.axis] = out_n;
    dims[x.rank - 1] = parts;
    void *y = eng_out(c, 0, x.dtype, x.rank, dims);
    if (!y)
        return PST_ELIMIT;
    for (int64_t o = 0; o < l.outer && l.inner; o++)
        for (int64_t i = 0; i < l.inner; i++) {
            gather(&d, &x, &l, o, i, inverse && onesided);
            dft_run(&d);
            for (int64_t k = 0; k < out_n; k++)
                for (int64_t p = 0; p < parts; p++)
                    real_put(y, x.dtype, ((o * out_n + k) * l.inner + i) * parts + p, d.out[2 * k + p]);
        }
    return 0;
}

/* Only frames that lie in the signal as a whole. A window that is shorter than a frame counts as zeros behind its end. */
int eng_op_stft(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    const pst_tensor *w = eng_in(c, 2);
    int64_t step, n = 0;
    dft d;
    if (x.dtype != PST_F32 && x.dtype != PST_F64)
        return eng_op_type(c, x.dtype);
    if (x.rank != 3 || (x.dims[2] != 1 && x.dims[2] != 2) || (w && (w->dtype != x.dtype || w->rank != 1)))
        return eng_op_fail(c, PST_EINVAL, "a signal (batch, length, 1 or 2) and a window of its type are needed");
    n = w ? w->dims[0] : x.dims[1];
    if (eng_in_ints(c, 1, &step, 1) != 1 || (eng_in(c, 3) && eng_in_ints(c, 3, &n, 1) != 1))
        return PST_EINVAL;
    if (step < 1 || n < 1 || n > x.dims[1] || (w && w->dims[0] > n))
        return eng_op_fail(c, PST_EINVAL, "frames of %" PRId64 " at steps of %" PRId64 " do not fit the signal", n, step);
    int64_t frames = 1 + (x.dims[1] - n) / step, bins = eng_attr_int(c->node, "onesided", 1) ? n / 2 + 1 : n, parts = x.dims[2];
    if ((rc = dft_new(c, n, false, x.dims[0] * frames, &d)) < 0)
        return rc;
    void *y = eng_out(c, 0, x.dtype, 4, (int64_t[]){x.dims[0], frames, bins, 2});
    if (!y)
        return PST_ELIMIT;
    for (int64_t f = 0; f < x.dims[0] * frames; f++) {
        int64_t begin = f / frames * x.dims[1] + f % frames * step;
        for (int64_t k = 0; k < n; k++) {
            double weight = 1; /* without a window; behind the end of a short one nothing counts */
            if (w)
                weight = k < w->dims[0] ? real_at(w, k) : 0;
            d.in[2 * k] = weight * real_at(&x, (begin + k) * parts);
            d.in[2 * k + 1] = parts == 2 ? weight * real_at(&x, (begin + k) * parts + 1) : 0;
        }
        dft_run(&d);
        for (int64_t k = 0; k < 2 * bins; k++)
            real_put(y, x.dtype, f * 2 * bins + k, d.out[k]);
    }
    return 0;
}

/* ---- mel filters ---- */

/* Triangles between neighbours of n + 2 places that are equally far apart on the mel scale. */
int eng_op_mel_weight_matrix(eng_op_ctx *c)
{
    int64_t mels, length, rate, dtype = eng_attr_int(c->node, "output_datatype", PST_F32);
    double low, high;
    int rc;
    if (eng_in_ints(c, 0, &mels, 1) != 1 || eng_in_ints(c, 1, &length, 1) != 1 || eng_in_ints(c, 2, &rate, 1) != 1)
        return PST_EINVAL;
    if ((rc = eng_in_scalar(c, 3, &low)) < 0 || (rc = eng_in_scalar(c, 4, &high)) < 0)
        return rc;
    if (mels < 1 || mels > INT32_MAX || length < 1 || length > INT32_MAX || rate < 1 || !(low >= 0) || !(high >= low) || high > 1e9)
        return eng_op_fail(c, PST_EINVAL, "bins, length, rate and edges make no filters");
    if (!eng_dtype_is_float((int)dtype) && !eng_dtype_is_int((int)dtype))
        return eng_op_type(c, (int)dtype);
    int64_t bins = length / 2 + 1;
    size_t size = pst_dtype_size((pst_dtype)dtype);
    char *y = eng_out(c, 0, (pst_dtype)dtype, 2, (int64_t[]){bins, mels});
    int64_t *at = eng_op_scratch(c, (size_t)(mels + 2) * sizeof *at);
    if (!y || !at)
        return PST_ELIMIT;
    memset(y, 0, (size_t)(bins * mels) * size);
    double from = 2595 * log10(1 + low / 700), step = (2595 * log10(1 + high / 700) - from) / (double)(mels + 2);
    for (int64_t i = 0; i < mels + 2; i++)
        at[i] = (int64_t)floor((double)(length + 1) * (700 * (pow(10, (from + (double)i * step) / 2595) - 1)) / (double)rate);
    for (int64_t i = 0; i < mels; i++)
        for (int64_t j = at[i]; j <= at[i + 2] && j < bins; j++) {
            int64_t up = at[i + 1] - at[i], down = at[i + 2] - at[i + 1];
            double v = 1; /* the triangle's top; its sides may have no width */
            if (j < at[i + 1])
                v = (double)(j - at[i]) / (double)up;
            else if (j > at[i + 1])
                v = (double)(at[i + 2] - j) / (double)down;
            eng_convert((int)dtype, y + (size_t)(j * mels + i) * size, PST_F64, &v, 1, true);
        }
    return 0;
}
