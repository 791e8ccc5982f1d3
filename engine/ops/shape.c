/* shape.c - operators that rename or move elements without computing: by element size, so for every type. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int eng_op_identity(eng_op_ctx *c)
{
    if (c->n_in && c->in[0])
        eng_out_share(c, 0, c->in[0]);
    return 0;
}

/* No byte moves: the result is a view. 0 copies a dimension of the input, unless allowzero; -1, of which there may be one, takes what is
 * left. */
int eng_op_reshape(eng_op_ctx *c)
{
    int64_t want[PST_MAX_RANK], known = 1;
    int rank, hole = -1, rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    const pst_tensor *x = eng_in(c, 0);
    if (c->node->opset < 5) {
        size_t n;
        const int64_t *shape = eng_attr_ints(c->node, "shape", &n);
        if (n > PST_MAX_RANK)
            return eng_op_fail(c, PST_EINVAL, "shape of more than %d dimensions", PST_MAX_RANK);
        for (size_t i = 0; i < n; i++)
            want[i] = shape[i];
        rank = (int)n;
    } else if ((rank = eng_in_ints(c, 1, want, PST_MAX_RANK)) < 0) {
        return PST_EINVAL;
    }
    bool zero_is_zero = eng_attr_int(c->node, "allowzero", 0);
    for (int i = 0; i < rank; i++) {
        if (!want[i] && !zero_is_zero) {
            if (i >= x->rank)
                return eng_op_fail(c, PST_EINVAL, "0 in the shape copies dimension %d, which the input has not", i);
            want[i] = x->dims[i];
        }
        if (want[i] == -1 && hole < 0)
            hole = i;
        else if (want[i] < 0 || __builtin_mul_overflow(known, want[i], &known))
            return eng_op_fail(c, PST_EINVAL, "bad shape");
    }
    if (hole >= 0) {
        int64_t n = eng_count(x);
        if (!known ? n != 0 : n % known)
            return eng_op_fail(c, PST_EINVAL, "its elements do not divide into the shape");
        want[hole] = known ? n / known : 0;
    }
    return eng_out_view(c, 0, 0, rank, want);
}

int eng_op_flatten(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    const pst_tensor *x = eng_in(c, 0);
    int64_t axis = eng_attr_int(c->node, "axis", 1), dims[2] = {1, 1};
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis > x->rank)
        return eng_op_fail(c, PST_EINVAL, "bad axis");
    for (int i = 0; i < x->rank; i++)
        dims[i >= axis] *= x->dims[i];
    return eng_out_view(c, 0, 0, 2, dims);
}

/* axes come as an attribute (up to opset 12) or as input 1; -1 = neither. */
static int axes_of(eng_op_ctx *c, int rank, bool *ret_set)
{
    int64_t axes[PST_MAX_RANK];
    int n = -1;
    memset(ret_set, 0, PST_MAX_RANK * sizeof *ret_set);
    if (c->node->opset >= 13) {
        if (!eng_in(c, 1))
            return -1;
        if ((n = eng_in_ints(c, 1, axes, PST_MAX_RANK)) < 0)
            return -2;
    } else {
        size_t count;
        const int64_t *list = eng_attr_ints(c->node, "axes", &count);
        if (!eng_attr_find(c->node, "axes"))
            return -1;
        if (count > PST_MAX_RANK) {
            eng_op_fail(c, PST_EINVAL, "too many axes");
            return -2;
        }
        n = (int)count;
        for (int i = 0; i < n; i++)
            axes[i] = list[i];
    }
    for (int i = 0; i < n; i++) {
        int at;
        if (eng_op_axis(c, axes[i], rank, &at) < 0)
            return -2;
        if (ret_set[at]) {
            eng_op_fail(c, PST_EINVAL, "an axis is named twice");
            return -2;
        }
        ret_set[at] = true;
    }
    return n;
}

int eng_op_squeeze(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), rank = 0;
    if (rc < 0)
        return rc;
    const pst_tensor *x = eng_in(c, 0);
    bool set[PST_MAX_RANK];
    int64_t dims[PST_MAX_RANK];
    int n = axes_of(c, x->rank, set);
    if (n < -1)
        return PST_EINVAL;
    for (int i = 0; i < x->rank; i++) {
        bool drop = n < 0 ? x->dims[i] == 1 : set[i];
        if (drop && x->dims[i] != 1)
            return eng_op_fail(c, PST_EINVAL, "axis %d is not 1", i);
        if (!drop)
            dims[rank++] = x->dims[i];
    }
    return eng_out_view(c, 0, 0, rank, dims);
}

int eng_op_unsqueeze(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    const pst_tensor *x = eng_in(c, 0);
    int64_t axes[PST_MAX_RANK], dims[PST_MAX_RANK];
    bool set[PST_MAX_RANK];
    size_t count = 0;
    int n;
    if (c->node->opset >= 13) {
        if ((n = eng_in_ints(c, 1, axes, PST_MAX_RANK)) < 0)
            return PST_EINVAL;
    } else {
        eng_attr_ints(c->node, "axes", &count);
        n = (int)(count > PST_MAX_RANK ? PST_MAX_RANK : count);
    }
    if (x->rank + n > PST_MAX_RANK)
        return eng_op_fail(c, PST_ELIMIT, "more than %d dimensions", PST_MAX_RANK);
    int rank = x->rank + n, got = axes_of(c, rank, set);
    if (got < 0)
        return got < -1 ? PST_EINVAL : eng_op_fail(c, PST_EINVAL, "axes are missing");
    for (int i = 0, k = 0; i < rank; i++)
        dims[i] = set[i] ? 1 : x->dims[k++];
    return eng_out_view(c, 0, 0, rank, dims);
}

/* Axes before the joined one are walked outside (outer), those behind it are one run of bytes (inner): each input gives a run in turn. */
int eng_op_concat(eng_op_ctx *c)
{
    int rc = eng_op_need(c, c->n_in ? c->n_in : 1), axis;
    if (rc < 0)
        return rc;
    pst_tensor t = *eng_in(c, 0);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", c->node->opset < 4 ? 1 : 0), t.rank, &axis)) < 0)
        return rc;
    for (int i = 1; i < c->n_in; i++) {
        const pst_tensor *x = eng_in(c, i);
        bool same = x->rank == t.rank && x->dtype == t.dtype;
        for (int k = 0; same && k < t.rank; k++)
            same = k == axis || x->dims[k] == t.dims[k];
        if (!same || __builtin_add_overflow(t.dims[axis], x->dims[axis], &t.dims[axis]))
            return eng_op_fail(c, PST_EINVAL, "input %d does not fit the first along axis %d", i, axis);
    }
    char *o = eng_out_like(c, 0, &t);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(t.dtype), inner = size;
    int64_t outer = 1;
    for (int k = 0; k < t.rank; k++) {
        if (k < axis)
            outer *= t.dims[k];
        else if (k > axis)
            inner *= (size_t)t.dims[k];
    }
    size_t row = (size_t)t.dims[axis] * inner, at = 0;
    for (int i = 0; i < c->n_in; i++) {
        const pst_tensor *x = eng_in(c, i);
        size_t part = (size_t)x->dims[axis] * inner;
        for (int64_t k = 0; k < outer && part; k++)
            memcpy(o + (size_t)k * row + at, (const char *)x->data + (size_t)k * part, part);
        at += part;
    }
    PST_ASSERT(at == row); /* every byte of the result was written */
    return 0;
}

/* Copies elements of x at start + i·step of each dimension; step may be negative. */
static int strided_copy(eng_op_ctx *c, const pst_tensor *x, const int64_t *start, const int64_t *step, const int64_t *dims)
{
    pst_tensor in = *x;
    char *o = eng_out(c, 0, in.dtype, in.rank, dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(in.dtype);
    int64_t stride[PST_MAX_RANK], at[PST_MAX_RANK] = {0}, from = 0, n = eng_dims_count(dims, in.rank);
    eng_strides(in.dims, in.rank, stride);
    for (int k = 0; k < in.rank; k++)
        from += start[k] * stride[k];
    int last = in.rank - 1;
    int64_t run = last >= 0 && step[last] == 1 ? dims[last] : 1; /* contiguous elements at a time */
    for (int64_t i = 0; i < n; i += run) {
        memcpy(o, (const char *)in.data + from * (int64_t)size, (size_t)run * size);
        o += (size_t)run * size;
        for (int k = run > 1 ? last - 1 : last; k >= 0; k--) {
            from += step[k] * stride[k];
            if (++at[k] < dims[k])
                break;
            at[k] = 0;
            from -= step[k] * stride[k] * dims[k];
        }
    }
    return 0;
}

/* -1: before the first. */
static int64_t from_end(int64_t at, int64_t d)
{
    if (at >= 0)
        return at;
    return at < -d ? -1 : at + d;
}

/* As in Python: what is negative counts from the end, then all is clamped to where a step in its direction can stand; -1 as an end of a
 * backward step is "before the first". An empty axis gets the harmless start 0, since its own may lie outside. */
static int slice(eng_op_ctx *c, const int64_t *starts, const int64_t *ends, const int64_t *axes, const int64_t *steps, int n)
{
    const pst_tensor *x = eng_in(c, 0);
    int64_t start[PST_MAX_RANK] = {0}, step[PST_MAX_RANK], dims[PST_MAX_RANK];
    for (int k = 0; k < x->rank; k++) {
        step[k] = 1;
        dims[k] = x->dims[k];
    }
    for (int i = 0; i < n; i++) {
        int at, rc = eng_op_axis(c, axes ? axes[i] : i, x->rank, &at);
        if (rc < 0)
            return rc;
        int64_t d = x->dims[at], s = starts[i], e = ends[i], by = steps ? steps[i] : 1;
        if (!by || by == INT64_MIN)
            return eng_op_fail(c, PST_EINVAL, "bad step");
        s = from_end(s, d);
        e = from_end(e, d);
        if (by > 0) {
            s = s < 0 ? 0 : s > d ? d : s;
            e = e < 0 ? 0 : e > d ? d : e;
        } else {
            s = s > d - 1 ? d - 1 : s;
            e = e < -1 ? -1 : e > d - 1 ? d - 1 : e;
        }
        start[at] = s;
        step[at] = by;
        if (by > 0)
            dims[at] = e > s ? (e - s - 1) / by + 1 : 0;
        else
            dims[at] = s > e ? (s - e - 1) / -by + 1 : 0;
        if (!dims[at])
            start[at] = 0, step[at] = 1;
    }
    return strided_copy(c, x, start, step, dims);
}

int eng_op_slice_1(eng_op_ctx *c)
{
    size_t ns, ne, na;
    const int64_t *s = eng_attr_ints(c->node, "starts", &ns), *e = eng_attr_ints(c->node, "ends", &ne),
                  *a = eng_attr_ints(c->node, "axes", &na);
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    if (ns != ne || (na && na != ns) || ns > PST_MAX_RANK || (!na && (int)ns > eng_in(c, 0)->rank))
        return eng_op_fail(c, PST_EINVAL, "starts, ends and axes differ in length");
    return slice(c, s, e, na ? a : NULL, NULL, (int)ns);
}

int eng_op_slice_10(eng_op_ctx *c)
{
    int64_t s[PST_MAX_RANK], e[PST_MAX_RANK], a[PST_MAX_RANK], st[PST_MAX_RANK];
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    int n = eng_in_ints(c, 1, s, PST_MAX_RANK), ne = eng_in_ints(c, 2, e, PST_MAX_RANK), na = n, nt = n;
    if (n < 0 || ne < 0 || (eng_in(c, 3) && (na = eng_in_ints(c, 3, a, PST_MAX_RANK)) < 0) ||
        (eng_in(c, 4) && (nt = eng_in_ints(c, 4, st, PST_MAX_RANK)) < 0))
        return PST_EINVAL;
    if (n != ne || n != na || n != nt || (!eng_in(c, 3) && n > eng_in(c, 0)->rank))
        return eng_op_fail(c, PST_EINVAL, "starts, ends, axes and steps differ in length");
    return slice(c, s, e, eng_in(c, 3) ? a : NULL, eng_in(c, 4) ? st : NULL, n);
}

/* The axis is replaced by the dimensions of the indices; what lies behind it is one run of bytes (inner). */
int eng_op_gather(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), axis, rank = 0;
    if (rc < 0)
        return rc;
    const pst_tensor x = *eng_in(c, 0), ix = *eng_in(c, 1);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0)
        return rc;
    if (ix.dtype != PST_I64 && ix.dtype != PST_I32)
        return eng_op_type(c, ix.dtype);
    if (x.rank - 1 + ix.rank > PST_MAX_RANK)
        return eng_op_fail(c, PST_ELIMIT, "more than %d dimensions", PST_MAX_RANK);
    int64_t dims[2 * PST_MAX_RANK], outer = 1, n = eng_count(&ix), d = x.dims[axis];
    size_t inner = pst_dtype_size(x.dtype);
    for (int k = 0; k < axis; k++)
        outer *= dims[rank++] = x.dims[k];
    for (int k = 0; k < ix.rank; k++)
        dims[rank++] = ix.dims[k];
    for (int k = axis + 1; k < x.rank; k++)
        inner *= (size_t)(dims[rank++] = x.dims[k]);
    char *o = eng_out(c, 0, x.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < n; k++) {
            int64_t at = ix.dtype == PST_I64 ? ((const int64_t *)ix.data)[k] : ((const int32_t *)ix.data)[k];
            at += at < 0 ? d : 0;
            if (at < 0 || at >= d)
                return eng_op_fail(c, PST_EINVAL, "an index is outside the axis of %lld", (long long)d);
            memcpy(o, (const char *)x.data + (size_t)(i * d + at) * inner, inner);
            o += inner;
        }
    return 0;
}

int eng_op_shape(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    const pst_tensor *x = eng_in(c, 0);
    int64_t from = eng_attr_int(c->node, "start", 0), to = eng_attr_int(c->node, "end", x->rank), dims[PST_MAX_RANK];
    from += from < 0 ? x->rank : 0;
    to += to < 0 ? x->rank : 0;
    from = from < 0 ? 0 : from > x->rank ? x->rank : from;
    to = to < from ? from : to > x->rank ? x->rank : to;
    memcpy(dims, x->dims, sizeof dims);
    int64_t n = to - from, *o = eng_out(c, 0, PST_I64, 1, &n);
    if (!o)
        return PST_ELIMIT;
    for (int64_t i = 0; i < n; i++)
        o[i] = dims[from + i];
    return 0;
}

int eng_op_size(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    int64_t n = eng_count(eng_in(c, 0)), *o = eng_out(c, 0, PST_I64, 0, NULL);
    if (!o)
        return PST_ELIMIT;
    *o = n;
    return 0;
}

int eng_op_constant(eng_op_ctx *c)
{
    const eng_attr *a = NULL;
    static const char *const names[] = {"value",      "value_float",  "value_int",     "value_floats",
                                        "value_ints", "value_string", "value_strings", "sparse_value"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !a; i++)
        a = eng_attr_find(c->node, names[i]);
    if (!a)
        return eng_op_fail(c, PST_EINVAL, "it has no value");
    eng_val v = {.kind = ENG_VAL_TENSOR};
    switch (a->type) {
    case ENG_ATTR_TENSOR: v.t = *a->t; break;
    case ENG_ATTR_FLOAT: v.t = (pst_tensor){.dtype = PST_F32, .data = (void *)&a->f}; break;
    case ENG_ATTR_INT: v.t = (pst_tensor){.dtype = PST_I64, .data = (void *)&a->i}; break;
    case ENG_ATTR_STRING: v.t = (pst_tensor){.dtype = PST_STR, .data = (void *)&a->s}; break;
    case ENG_ATTR_FLOATS: v.t = (pst_tensor){.dtype = PST_F32, .rank = 1, .dims = {(int64_t)a->n}, .data = (void *)a->floats}; break;
    case ENG_ATTR_INTS: v.t = (pst_tensor){.dtype = PST_I64, .rank = 1, .dims = {(int64_t)a->n}, .data = (void *)a->ints}; break;
    case ENG_ATTR_STRINGS: v.t = (pst_tensor){.dtype = PST_STR, .rank = 1, .dims = {(int64_t)a->n}, .data = (void *)a->strings}; break;
    default: return eng_op_fail(c, PST_EUNSUPPORTED, "a constant of this kind is not covered");
    }
    eng_out_share(c, 0, &v); /* attributes live as long as the model: nothing is copied */
    return 0;
}

int eng_op_constant_of_shape(eng_op_ctx *c)
{
    int64_t dims[PST_MAX_RANK];
    int rank = eng_in_ints(c, 0, dims, PST_MAX_RANK);
    if (rank < 0)
        return PST_EINVAL;
    const eng_attr *a = eng_attr_find(c->node, "value");
    float zero = 0;
    pst_tensor v = {.dtype = PST_F32, .data = &zero};
    if (a && a->type == ENG_ATTR_TENSOR)
        v = *a->t;
    if (eng_count(&v) != 1)
        return eng_op_fail(c, PST_EINVAL, "value must hold one element");
    char *o = eng_out(c, 0, v.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(v.dtype);
    for (int64_t i = 0, n = eng_dims_count(dims, rank); i < n; i++)
        memcpy(o + (size_t)i * size, v.data, size);
    return 0;
}

/* Numbers from texts: the whole text must be one, spaces at the ends aside; "nan", "inf" as strtod reads them. */
static int from_texts(eng_op_ctx *c, int to, void *o, const pst_tensor *x)
{
    int64_t n = eng_count(x);
    double *d = eng_op_scratch(c, (size_t)n * 8);
    if (!d)
        return PST_ELIMIT;
    bool ints = eng_dtype_is_int(to);
    for (int64_t i = 0; i < n; i++) {
        const char *s = ((const char *const *)x->data)[i];
        char *end;
        if (ints && !strpbrk(s, ".eEnN")) {
            ((int64_t *)d)[i] = to == PST_U64 ? (int64_t)strtoull(s, &end, 10) : strtoll(s, &end, 10);
        } else {
            double v = strtod(s, &end);
            if (ints)
                eng_convert(PST_I64, &d[i], PST_F64, &v, 1, true);
            else
                d[i] = v;
        }
        if (end == s)
            return eng_op_fail(c, PST_EINVAL, "a text is not a number");
    }
    return eng_convert(to, o, ints ? PST_I64 : PST_F64, d, n, true);
}

static int to_texts(eng_op_ctx *c, const char **o, const pst_tensor *x)
{
    char text[64];
    for (int64_t i = 0, n = eng_count(x); i < n; i++) {
        const char *at = (const char *)x->data + (size_t)i * pst_dtype_size(x->dtype);
        if (eng_dtype_is_float(x->dtype)) {
            double d;
            eng_convert(PST_F64, &d, x->dtype, at, 1, true);
            if (isnan(d) || isinf(d)) {
                snprintf(text, sizeof text, "%s", isnan(d) ? "NaN" : d < 0 ? "-INF" : "INF");
            } else { /* the shortest text that reads back the same */
                int digits = 1;
                for (; digits < 17; digits++) {
                    snprintf(text, sizeof text, "%.*g", digits, d);
                    if (x->dtype == PST_F64 ? strtod(text, NULL) == d : strtof(text, NULL) == (float)d)
                        break;
                }
                snprintf(text, sizeof text, "%.*g", digits, d);
            }
        } else if (x->dtype == PST_U64) {
            snprintf(text, sizeof text, "%llu", *(const unsigned long long *)at);
        } else {
            int64_t v;
            if (eng_convert(PST_I64, &v, x->dtype, at, 1, true) < 0)
                return eng_op_type(c, x->dtype);
            snprintf(text, sizeof text, "%lld", (long long)v);
        }
        o[i] = eng_op_text(c, text, strlen(text));
    }
    return 0;
}

/* float → float8e8m0 rounds the exponent: up (default), down, or nearest (half up). */
static void to_e8m0(eng_op_ctx *c, uint8_t *o, const float *f, int64_t n, bool saturate)
{
    const char *mode = eng_attr_str(c->node, "round_mode", "up");
    for (int64_t i = 0; i < n; i++) {
        uint8_t e = eng_float_to_narrow(ENG_F8E8M0, f[i], saturate);
        uint32_t u;
        float a = fabsf(f[i]);
        memcpy(&u, &a, 4);
        uint32_t man = u & 0x7fffff;
        if (isfinite(f[i]) && man && e < 255 && (*mode == 'u' || (*mode == 'n' && man >= 0x400000)))
            e = saturate && e == 254 ? 254 : (uint8_t)(e + 1); /* 255 is NaN */
        o[i] = e;
    }
}

/* To its own type a value is shared, not copied. Texts and E8M0 have ways of their own, the rest is eng_convert's. */
static int cast_to(eng_op_ctx *c, int to)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool saturate = eng_attr_int(c->node, "saturate", 1);
    if (x.dtype == (pst_dtype)to) {
        eng_out_share(c, 0, c->in[0]);
        return 0;
    }
    void *o = to > 0 && to < ENG_DTYPE_END ? eng_out_typed(c, 0, (pst_dtype)to, &x) : NULL;
    if (!o)
        return eng_op_fail(c, PST_EUNSUPPORTED, "cannot cast to type %d", to);
    int64_t n = eng_count(&x);
    if (x.dtype == PST_STR)
        rc = from_texts(c, to, o, &x);
    else if (to == PST_STR)
        rc = to_texts(c, o, &x);
    else if (to == ENG_F8E8M0) {
        float *f = eng_op_scratch(c, (size_t)n * 4);
        if (!f)
            return PST_ELIMIT;
        rc = eng_convert(PST_F32, f, x.dtype, x.data, n, true);
        to_e8m0(c, o, f, n, saturate);
    } else {
        rc = eng_convert(to, o, x.dtype, x.data, n, saturate);
    }
    return rc == PST_EUNSUPPORTED ? eng_op_fail(c, rc, "no cast from %s to %s", pst_dtype_name(x.dtype), pst_dtype_name((pst_dtype)to))
                                  : rc;
}

int eng_op_cast(eng_op_ctx *c)
{
    return cast_to(c, (int)eng_attr_int(c->node, "to", 0));
}

int eng_op_cast_like(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    return rc < 0 ? rc : cast_to(c, eng_in(c, 1)->dtype);
}

/* at becomes the next place of a result, in order; returns by how much an input moves with it whose elements lie by[k] apart along dimension k.
 * Behind the last place both are at the first again. */
static inline int64_t step_on(int rank, const int64_t *dims, const int64_t *by, int64_t *at)
{
    int64_t moved = 0;
    for (int k = rank - 1; k >= 0; k--) {
        moved += by[k];
        if (++at[k] < dims[k])
            break;
        at[k] = 0;
        moved -= by[k] * dims[k];
    }
    return moved;
}

/* The result is written in order; from, where its element lies in the input, is moved on by strides, without a division per element. Four
 * bytes have a loop of their own: memcpy of a constant size is one move. */
int eng_op_transpose(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    size_t n_perm, size = pst_dtype_size(x.dtype);
    const int64_t *perm = eng_attr_ints(c->node, "perm", &n_perm);
    int64_t dims[PST_MAX_RANK], stride[PST_MAX_RANK], by[PST_MAX_RANK], at[PST_MAX_RANK] = {0}, from = 0;
    bool seen[PST_MAX_RANK] = {0};
    if (perm && (int)n_perm != x.rank)
        return eng_op_fail(c, PST_EINVAL, "perm has %zu entries for rank %d", n_perm, x.rank);
    eng_strides(x.dims, x.rank, stride);
    for (int k = 0; k < x.rank; k++) {
        int p;
        if ((rc = eng_op_axis(c, perm ? perm[k] : x.rank - 1 - k, x.rank, &p)) < 0)
            return rc;
        if (seen[p])
            return eng_op_fail(c, PST_EINVAL, "perm names a dimension twice");
        seen[p] = true;
        dims[k] = x.dims[p];
        by[k] = stride[p];
    }
    char *o = eng_out(c, 0, x.dtype, x.rank, dims);
    if (!o)
        return PST_ELIMIT;
    int last = x.rank - 1;
    int64_t n = eng_count(&x), run = last >= 0 ? dims[last] : 1;
    for (int64_t i = 0; i < n; i += run) {
        int64_t step = last >= 0 ? by[last] : 0;
        const char *p = (const char *)x.data + (size_t)from * size;
        if (step == 1 || run == 1) {
            memcpy(o, p, (size_t)run * size);
        } else if (size == 4) {
            for (int64_t q = 0; q < run; q++)
                memcpy(o + q * 4, p + q * step * 4, 4);
        } else {
            for (int64_t q = 0; q < run; q++)
                memcpy(o + (size_t)q * size, p + (size_t)(q * step) * size, size);
        }
        o += (size_t)run * size;
        from += step_on(last, dims, by, at);
    }
    return 0;
}

int eng_op_expand(eng_op_ctx *c)
{
    pst_tensor want = {0};
    int rank, rc = eng_op_need(c, 2);
    if (rc < 0 || (want.rank = eng_in_ints(c, 1, want.dims, PST_MAX_RANK)) < 0)
        return PST_EINVAL;
    pst_tensor x = *eng_in(c, 0);
    int64_t dims[PST_MAX_RANK], by[PST_MAX_RANK], at[PST_MAX_RANK] = {0}, from = 0;
    if ((rc = eng_broadcast(c, &x, &want, &rank, dims)) < 0)
        return rc;
    char *o = eng_out(c, 0, x.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    eng_broadcast_strides(&x, rank, by);
    size_t size = pst_dtype_size(x.dtype);
    for (int64_t i = 0, n = eng_dims_count(dims, rank); i < n; i++) {
        memcpy(o + (size_t)i * size, (const char *)x.data + (size_t)from * size, size);
        from += step_on(rank, dims, by, at);
    }
    return 0;
}

/* Sizes come from an input (opset 13), an attribute, or the number of outputs: equal parts, the last one smaller. */
int eng_op_split(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), axis;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0)
        return rc;
    int64_t d = x.dims[axis], n = c->n_out, at = 0, outer = 1, *sizes = eng_op_scratch(c, (size_t)n * 8 + 8);
    if (!sizes)
        return PST_ELIMIT;
    size_t n_attr;
    const int64_t *attr = eng_attr_ints(c->node, "split", &n_attr);
    if (c->node->opset >= 13 && eng_in(c, 1)) {
        if (eng_count(eng_in(c, 1)) != n || eng_in_ints(c, 1, sizes, (int)n) < 0)
            return eng_op_fail(c, PST_EINVAL, "split must have one size per output");
    } else if (attr) {
        if ((int64_t)n_attr != n)
            return eng_op_fail(c, PST_EINVAL, "split must have one size per output");
        memcpy(sizes, attr, (size_t)n * 8);
    } else {
        int64_t each = (d + n - 1) / n;
        for (int64_t i = 0; i < n; i++) {
            sizes[i] = at + each <= d ? each : d - at;
            at += sizes[i];
        }
        at = 0;
    }
    size_t inner = pst_dtype_size(x.dtype);
    for (int k = 0; k < x.rank; k++) {
        if (k < axis)
            outer *= x.dims[k];
        else if (k > axis)
            inner *= (size_t)x.dims[k];
    }
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || sizes[i] > d - at)
            return eng_op_fail(c, PST_EINVAL, "sizes do not add up to %lld", (long long)d);
        pst_tensor t = x;
        t.dims[axis] = sizes[i];
        char *o = eng_out_like(c, i, &t);
        if (!o)
            return PST_ELIMIT;
        size_t part = (size_t)sizes[i] * inner;
        for (int64_t k = 0; k < outer && part; k++)
            memcpy(o + (size_t)k * part, (const char *)x.data + (size_t)(k * d + at) * inner, part);
        at += sizes[i];
    }
    return at == d ? 0 : eng_op_fail(c, PST_EINVAL, "sizes do not add up to %lld", (long long)d);
}
