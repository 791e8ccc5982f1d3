/* generate.c - operators that make, repeat, pad, accumulate or rearrange along axes. */
#include "engine/ops/kernels.h"

#include <inttypes.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

/* The span between the ends of int64 does not fit one. */
static int int_range(eng_op_ctx *c, pst_dtype t)
{
    int64_t s, e, d, n = 0;
    if (eng_in_ints(c, 0, &s, 1) != 1 || eng_in_ints(c, 1, &e, 1) != 1 || eng_in_ints(c, 2, &d, 1) != 1 || !d)
        return eng_op_fail(c, PST_EINVAL, "start, limit and delta must be numbers, delta not 0");
    __int128 span = (__int128)e - s;
    if ((d > 0) == (span > 0) && span)
        n = (int64_t)((span + d - (d > 0 ? 1 : -1)) / d);
    char *o = eng_out(c, 0, t, 1, &n);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n; i++) {
        int64_t v = (int64_t)((uint64_t)s + (uint64_t)i * (uint64_t)d);
        eng_convert(t, o + (size_t)i * pst_dtype_size(t), PST_I64, &v, 1, true);
    }
    return 0;
}

static int real_range(eng_op_ctx *c, pst_dtype t)
{
    double s, e, d;
    int rc;
    if ((rc = eng_in_scalar(c, 0, &s)) < 0 || (rc = eng_in_scalar(c, 1, &e)) < 0 || (rc = eng_in_scalar(c, 2, &d)) < 0)
        return rc;
    double count = ceil((e - s) / d);
    if (!(count < 1e9) || d == 0)
        return eng_op_fail(c, PST_EINVAL, "a range without end");
    int64_t n = count > 0 ? (int64_t)count : 0;
    char *o = eng_out(c, 0, t, 1, &n);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n; i++) {
        double v = s + (double)i * d;
        eng_convert(t, o + (size_t)i * pst_dtype_size(t), PST_F64, &v, 1, true);
    }
    return 0;
}

int eng_op_range(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    pst_dtype t = eng_in(c, 0)->dtype;
    return eng_dtype_is_int(t) ? int_range(c, t) : real_range(c, t);
}

int eng_op_tile(eng_op_ctx *c)
{
    int64_t rep[PST_MAX_RANK], dims[PST_MAX_RANK], st[PST_MAX_RANK];
    int rc = eng_op_need(c, 2), n_rep;
    if (rc < 0 || (n_rep = eng_in_ints(c, 1, rep, PST_MAX_RANK)) < 0)
        return PST_EINVAL;
    pst_tensor x = *eng_in(c, 0);
    if (n_rep != x.rank)
        return eng_op_fail(c, PST_EINVAL, "%d repeats for rank %d", n_rep, x.rank);
    for (int k = 0; k < x.rank; k++)
        if (rep[k] < 0 || __builtin_mul_overflow(x.dims[k], rep[k], &dims[k]))
            return eng_op_fail(c, PST_EINVAL, "bad repeats");
    char *o = eng_out(c, 0, x.dtype, x.rank, dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    eng_strides(x.dims, x.rank, st);
    for (int64_t i = 0, n = eng_dims_count(dims, x.rank); i < n; i++) {
        int64_t from = 0, rest = i;
        for (int k = x.rank - 1; k >= 0; k--) {
            from += rest % dims[k] % x.dims[k] * st[k];
            rest /= dims[k];
        }
        memcpy(o + (size_t)i * size, (const char *)x.data + (size_t)from * size, size);
    }
    return 0;
}

/* Where an output coordinate reads from, or -1 for the fill value. */
static int64_t pad_from(int64_t i, int64_t before, int64_t d, char mode)
{
    int64_t v = i - before;
    if (v >= 0 && v < d)
        return v;
    switch (mode) {
    case 'e': return v < 0 ? 0 : d - 1;
    case 'w': return (v % d + d) % d;
    case 'r': {
        if (d == 1)
            return 0;
        int64_t period = 2 * (d - 1);
        v = (v % period + period) % period;
        return v < d ? v : period - v;
    }
    default: return -1;
    }
}

/* All begins, then all ends; a negative one crops. Each element of the result looks for where it comes from (pad_from), and outside of that
 * it is the fill value. Attributes became inputs with opset 11, and axes may be named since 18. */
int eng_op_pad(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), n;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t pads[2 * PST_MAX_RANK], axes[PST_MAX_RANK], before[PST_MAX_RANK] = {0}, dims[PST_MAX_RANK], st[PST_MAX_RANK];
    size_t size = pst_dtype_size(x.dtype), n_attr;
    char fill[16] = {0};
    const char *mode = eng_attr_str(c->node, "mode", "constant"), *empty = "";
    if (x.dtype == PST_STR)
        memcpy(fill, &empty, sizeof empty);
    if (c->node->opset < 11) {
        const int64_t *a = eng_attr_ints(c->node, c->node->opset < 2 ? "paddings" : "pads", &n_attr);
        float value = eng_attr_float(c->node, "value", 0);
        n = (int)n_attr;
        if (n != 2 * x.rank)
            return eng_op_fail(c, PST_EINVAL, "%d pads for rank %d", n, x.rank);
        memcpy(pads, a, (size_t)n * 8);
        eng_convert(x.dtype, fill, PST_F32, &value, 1, true);
    } else {
        const pst_tensor *v = eng_in(c, 2);
        if ((n = eng_in_ints(c, 1, pads, 2 * PST_MAX_RANK)) < 0)
            return PST_EINVAL;
        if (v && eng_count(v) == 1 && v->dtype == x.dtype)
            memcpy(fill, v->data, size);
    }
    int n_axes = x.rank;
    for (int k = 0; k < x.rank; k++)
        axes[k] = k;
    if (c->node->opset >= 18 && eng_in(c, 3) && (n_axes = eng_in_ints(c, 3, axes, PST_MAX_RANK)) < 0)
        return PST_EINVAL;
    if (n != 2 * n_axes)
        return eng_op_fail(c, PST_EINVAL, "%d pads for %d axes", n, n_axes);
    memcpy(dims, x.dims, sizeof dims);
    for (int k = 0; k < n_axes; k++) {
        int at;
        if ((rc = eng_op_axis(c, axes[k], x.rank, &at)) < 0)
            return rc;
        before[at] = pads[k];
        bool ok = llabs(pads[k]) <= INT32_MAX && llabs(pads[k + n_axes]) <= INT32_MAX;
        if (ok)
            dims[at] += pads[k] + pads[k + n_axes];
        if (!ok || dims[at] < 0 || (!x.dims[at] && *mode != 'c' && dims[at]))
            return eng_op_fail(c, PST_EINVAL, "bad pads");
    }
    char *o = eng_out(c, 0, x.dtype, x.rank, dims);
    if (!o)
        return PST_ELIMIT;
    eng_strides(x.dims, x.rank, st);
    for (int64_t i = 0, total = eng_dims_count(dims, x.rank); i < total; i++) {
        int64_t from = 0, rest = i;
        for (int k = x.rank - 1; k >= 0; k--) {
            int64_t v = pad_from(rest % dims[k], before[k], x.dims[k], *mode);
            from = v < 0 || from < 0 ? -1 : from + v * st[k];
            rest /= dims[k];
        }
        memcpy(o + (size_t)i * size, from < 0 ? fill : (const char *)x.data + (size_t)from * size, size);
    }
    return 0;
}

int eng_op_trilu(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    double k = 0;
    bool upper = eng_attr_int(c->node, "upper", 1);
    if (x.rank < 2)
        return eng_op_fail(c, PST_EINVAL, "a matrix is needed");
    if (eng_in(c, 1) && (rc = eng_in_scalar(c, 1, &k)) < 0)
        return rc;
    char *o = eng_out_like(c, 0, &x);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    int64_t rows = x.dims[x.rank - 2], cols = x.dims[x.rank - 1];
    for (int64_t i = 0, n = eng_count(&x); i < n; i++) {
        double d = (double)(i % cols) - (double)(i / cols % rows);
        bool keep = upper ? d >= k : d <= k;
        if (keep)
            memcpy(o + (size_t)i * size, (const char *)x.data + (size_t)i * size, size);
        else
            memset(o + (size_t)i * size, 0, size);
    }
    return 0;
}

int eng_op_eye_like(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    pst_dtype t = (pst_dtype)eng_attr_int(c->node, "dtype", x.dtype);
    int64_t k = eng_attr_int(c->node, "k", 0);
    double one = 1;
    char unit[16] = {0};
    if (x.rank != 2 || eng_convert(t, unit, PST_F64, &one, 1, true) < 0)
        return eng_op_fail(c, PST_EINVAL, "a matrix of numbers is needed");
    size_t size = pst_dtype_size(t);
    char *o = eng_out_typed(c, 0, t, &x);
    if (!o)
        return PST_ELIMIT;
    memset(o, 0, (size_t)eng_count(&x) * size);
    for (int64_t i = 0; i < x.dims[0]; i++) {
        int64_t j;
        if (!__builtin_add_overflow(i, k, &j) && j >= 0 && j < x.dims[1])
            memcpy(o + (size_t)(i * x.dims[1] + j) * size, unit, size);
    }
    return 0;
}

/* CumSum and CumProd along an axis: inclusive or exclusive, forwards or backwards. */
static int cumulate(eng_op_ctx *c, bool product)
{
    int rc = eng_op_need(c, 2), axis;
    double at;
    if (rc < 0 || (rc = eng_in_scalar(c, 1, &at)) < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool exclusive = eng_attr_int(c->node, "exclusive", 0), reverse = eng_attr_int(c->node, "reverse", 0);
    if ((rc = eng_op_axis(c, fabs(at) < 100 ? (int64_t)at : 100, x.rank, &axis)) < 0)
        return rc;
    int64_t d = x.dims[axis], inner = 1, n = eng_count(&x);
    for (int k = axis + 1; k < x.rank; k++)
        inner *= x.dims[k];
    bool ints = eng_dtype_is_int(x.dtype);
    void *v = eng_op_scratch(c, (size_t)n * 8);
    void *o = eng_out_like(c, 0, &x);
    if (!v || !o)
        return PST_ELIMIT;
    if (eng_convert(ints ? PST_I64 : PST_F64, v, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    for (int64_t line = 0; d && line < n / d; line++) {
        int64_t from = line / inner * d * inner + line % inner;
        uint64_t si = product;
        double sd = product;
        for (int64_t k = 0; k < d; k++) {
            int64_t p = from + (reverse ? d - 1 - k : k) * inner;
            if (ints) {
                uint64_t e = ((uint64_t *)v)[p], next = product ? si * e : si + e;
                ((uint64_t *)v)[p] = exclusive ? si : next;
                si = next;
            } else {
                double e = ((double *)v)[p], next = product ? sd * e : sd + e;
                ((double *)v)[p] = exclusive ? sd : next;
                sd = next;
            }
        }
    }
    return eng_convert(x.dtype, o, ints ? PST_I64 : PST_F64, v, n, true);
}

int eng_op_cumsum(eng_op_ctx *c)
{
    return cumulate(c, false);
}

int eng_op_cumprod(eng_op_ctx *c)
{
    return cumulate(c, true);
}

int eng_op_reverse_sequence(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), l = *eng_in(c, 1);
    int64_t batch = eng_attr_int(c->node, "batch_axis", 1), time = eng_attr_int(c->node, "time_axis", 0);
    if (x.rank < 2 || !((batch == 0 && time == 1) || (batch == 1 && time == 0)) || l.dtype != PST_I64 || eng_count(&l) != x.dims[batch])
        return eng_op_fail(c, PST_EINVAL, "one length per batch row and axes 0 and 1 are needed");
    char *o = eng_out_like(c, 0, &x);
    if (!o)
        return PST_ELIMIT;
    size_t inner = pst_dtype_size(x.dtype);
    for (int k = 2; k < x.rank; k++)
        inner *= (size_t)x.dims[k];
    for (int64_t b = 0; b < x.dims[batch]; b++) {
        int64_t len = ((const int64_t *)l.data)[b];
        if (len < 0 || len > x.dims[time])
            return eng_op_fail(c, PST_EINVAL, "a length is outside the time axis");
        for (int64_t t = 0; t < x.dims[time]; t++) {
            int64_t s = t < len ? len - 1 - t : t;
            size_t to = (size_t)(batch ? t * x.dims[1] + b : b * x.dims[1] + t),
                   from = (size_t)(batch ? s * x.dims[1] + b : b * x.dims[1] + s);
            memcpy(o + to * inner, (const char *)x.data + from * inner, inner);
        }
    }
    return 0;
}

/* (N, C, H, W): blocks of pixels to channels and back. */
static int rearrange(eng_op_ctx *c, bool to_space)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t b = eng_attr_int(c->node, "blocksize", 0);
    bool crd = !strcmp(eng_attr_str(c->node, "mode", "DCR"), "CRD");
    if (x.rank != 4 || b < 1 || b > 1024 || (to_space ? x.dims[1] % (b * b) : x.dims[2] % b || x.dims[3] % b))
        return eng_op_fail(c, PST_EINVAL, "shape and block size do not fit");
    int64_t apart = to_space ? 1 : b; /* the deep side has ch · b · b channels of h · w pixels, the wide one ch of (h · b) · (w · b) */
    int64_t ch = to_space ? x.dims[1] / (b * b) : x.dims[1], h = x.dims[2] / apart, w = x.dims[3] / apart;
    const int64_t deep_dims[4] = {x.dims[0], ch * b * b, h, w}, wide_dims[4] = {x.dims[0], ch, h * b, w * b};
    char *o = eng_out(c, 0, x.dtype, 4, to_space ? wide_dims : deep_dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    for (int64_t n = 0; n < x.dims[0]; n++)
        for (int64_t k = 0; k < ch; k++)
            for (int64_t i = 0; i < b; i++)
                for (int64_t j = 0; j < b; j++)
                    for (int64_t y = 0; y < h; y++)
                        for (int64_t q = 0; q < w; q++) {
                            int64_t deep_ch = crd && to_space ? (k * b + i) * b + j : (i * b + j) * ch + k;
                            int64_t deep = ((n * ch * b * b + deep_ch) * h + y) * w + q,
                                    wide = ((n * ch + k) * h * b + y * b + i) * w * b + q * b + j;
                            memcpy(o + (size_t)(to_space ? wide : deep) * size,
                                   (const char *)x.data + (size_t)(to_space ? deep : wide) * size, size);
                        }
    return 0;
}

int eng_op_depth_to_space(eng_op_ctx *c)
{
    return rearrange(c, true);
}

int eng_op_space_to_depth(eng_op_ctx *c)
{
    return rearrange(c, false);
}

/* Same bits, another type of the same size. */
int eng_op_bit_cast(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t to = eng_attr_int(c->node, "to", 0);
    bool known = to > 0 && to < ENG_DTYPE_END && pst_dtype_size((pst_dtype)to) && to != PST_STR && x.dtype != PST_STR;
    if (!known || pst_dtype_size((pst_dtype)to) != pst_dtype_size(x.dtype) ||
        (eng_dtype_is_narrow((int)to) != eng_dtype_is_narrow(x.dtype) && (to >= ENG_U4 || x.dtype >= (pst_dtype)ENG_U4)))
        return eng_op_fail(c, PST_EUNSUPPORTED, "no bit cast between types of different sizes");
    eng_out_share(c, 0, c->in[0]);
    c->out[0]->t.dtype = (pst_dtype)to;
    return 0;
}

/* ---- einsum ---- */

typedef struct term {
    int n;
    char label[PST_MAX_RANK];
} term;

/* "ij,jk->ik" → terms; "..." becomes digits counted from the right. */
static int parse_terms(eng_op_ctx *c, const char *eq, term *in, int n_in, term *out, bool *ret_explicit)
{
    int at = 0;
    term *t = in;
    *ret_explicit = false;
    memset(in, 0, (size_t)n_in * sizeof *in);
    out->n = 0;
    for (const char *p = eq; *p; p++) {
        if (*p == ' ')
            continue;
        if (*p == ',' && !*ret_explicit) {
            if (++at >= n_in)
                return eng_op_fail(c, PST_EINVAL, "the equation has more terms than there are inputs");
            t = &in[at];
        } else if (p[0] == '-' && p[1] == '>' && !*ret_explicit) {
            *ret_explicit = true;
            t = out;
            p++;
        } else if (!strncmp(p, "...", 3)) {
            int used = 0, dims = 0;
            for (const char *q = p + 3; *q && *q != ',' && *q != '-'; q++)
                used += *q != ' ';
            for (int i = 0; i < n_in; i++) { /* the widest ellipsis among the inputs */
                int rank = eng_in(c, i)->rank;
                if (t != out && t == &in[i])
                    dims = rank - t->n - used;
            }
            for (int i = 0; t == out && i < n_in; i++)
                for (int k = 0; k < in[i].n; k++)
                    dims = in[i].label[k] < 32 && in[i].label[k] > dims ? in[i].label[k] : dims;
            for (int k = dims; k > 0; k--) {
                if (t->n >= PST_MAX_RANK)
                    return eng_op_fail(c, PST_ELIMIT, "more than %d labels", PST_MAX_RANK);
                t->label[t->n++] = (char)k;
            }
            p += 2;
        } else if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')) {
            if (t->n >= PST_MAX_RANK)
                return eng_op_fail(c, PST_ELIMIT, "more than %d labels", PST_MAX_RANK);
            t->label[t->n++] = *p;
        } else {
            return eng_op_fail(c, PST_EINVAL, "bad equation %s", eq);
        }
    }
    return at + 1 == n_in ? 0 : eng_op_fail(c, PST_EINVAL, "%d terms for %d inputs", at + 1, n_in);
}

int eng_op_einsum(eng_op_ctx *c)
{
    enum { IN_MAX = 8, LABELS = 64 };
    term in[IN_MAX], out;
    bool explicit_out;
    int rc = eng_op_need(c, c->n_in ? c->n_in : 1), n_labels = 0, uses[128] = {0};
    char labels[LABELS];
    int64_t size_of[128] = {0}, dims[PST_MAX_RANK], total = 1;
    if (rc < 0)
        return rc;
    if (c->n_in > IN_MAX)
        return eng_op_fail(c, PST_EUNSUPPORTED, "more than %d inputs are not covered", IN_MAX);
    if ((rc = parse_terms(c, eng_attr_str(c->node, "equation", ""), in, c->n_in, &out, &explicit_out)) < 0)
        return rc;
    pst_dtype t = eng_in(c, 0)->dtype;
    for (int i = 0; i < c->n_in; i++) {
        const pst_tensor *x = eng_in(c, i);
        if (x->rank != in[i].n || x->dtype != t)
            return eng_op_fail(c, PST_EINVAL, "input %d does not fit the equation", i);
        for (int k = 0; k < in[i].n; k++) {
            int l = in[i].label[k];
            uses[l]++;
            if (uses[l] > 1 && size_of[l] != x->dims[k] && size_of[l] != 1 && x->dims[k] != 1)
                return eng_op_fail(c, PST_EINVAL, "label sizes differ");
            if (uses[l] == 1 || size_of[l] == 1)
                size_of[l] = x->dims[k];
        }
    }
    for (int l = 0; l < 128 && !explicit_out; l++) /* implicit: labels seen once, in order, ellipsis first */
        if ((l < 32 && uses[l]) || uses[l] == 1) {
            if (out.n >= PST_MAX_RANK)
                return eng_op_fail(c, PST_ELIMIT, "more than %d labels", PST_MAX_RANK);
            out.label[out.n++] = (char)l;
        }
    bool in_out[128] = {0};
    for (int k = 0; k < out.n; k++) {
        int l = out.label[k];
        if (in_out[l] || (l >= 32 && !uses[l]))
            return eng_op_fail(c, PST_EINVAL, "label %c of the result is %s", l < 32 ? '.' : l, in_out[l] ? "there twice" : "in no input");
        dims[k] = size_of[l];
        in_out[l] = true;
        labels[n_labels++] = out.label[k];
    }
    for (int l = 0; l < 128; l++)
        if (uses[l] && !in_out[l] && n_labels < LABELS)
            labels[n_labels++] = (char)l;
    int64_t n_out = eng_dims_count(dims, out.n), inner = 1;
    for (int k = out.n; k < n_labels; k++)
        if (__builtin_mul_overflow(inner, size_of[(int)labels[k]], &inner))
            return eng_op_fail(c, PST_ELIMIT, "too much work");
    if (n_out < 0 || __builtin_mul_overflow(n_out, inner, &total) || total > INT64_C(20000000000))
        return eng_op_fail(c, PST_ELIMIT, "too much work");
    double *v[IN_MAX];
    for (int i = 0; i < c->n_in; i++) {
        int64_t n = eng_count(eng_in(c, i));
        v[i] = eng_op_scratch(c, (size_t)n * 8);
        if (!v[i])
            return PST_ELIMIT;
        if (eng_convert(PST_F64, v[i], t, eng_in(c, i)->data, n, true) < 0)
            return eng_op_type(c, t);
    }
    int64_t stride[IN_MAX][LABELS] = {{0}};
    for (int i = 0; i < c->n_in; i++) {
        int64_t st[PST_MAX_RANK];
        eng_strides(eng_in(c, i)->dims, in[i].n, st);
        for (int q = 0; q < n_labels; q++)
            for (int k = 0; k < in[i].n; k++)
                if (in[i].label[k] == labels[q] && eng_in(c, i)->dims[k] != 1)
                    stride[i][q] += st[k];
    }
    void *o = eng_out(c, 0, t, out.n, dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(t);
    for (int64_t i = 0; i < n_out; i++) {
        double sum = 0;
        for (int64_t j = 0; j < inner; j++) {
            double prod = 1;
            int64_t at[LABELS], rest = j;
            for (int q = n_labels - 1; q >= out.n; q--) {
                at[q] = rest % size_of[(int)labels[q]];
                rest /= size_of[(int)labels[q]];
            }
            rest = i;
            for (int q = out.n - 1; q >= 0; q--) {
                at[q] = rest % dims[q];
                rest /= dims[q];
            }
            for (int k = 0; k < c->n_in; k++) {
                int64_t from = 0;
                for (int q = 0; q < n_labels; q++)
                    from += at[q] * stride[k][q];
                prod *= v[k][from];
            }
            sum += prod;
        }
        eng_convert(t, (char *)o + (size_t)i * size, PST_F64, &sum, 1, true);
    }
    return 0;
}
