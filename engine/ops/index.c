/* index.c - operators that pick, place and order elements by index: for every type, by element size. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The index tensor as int64 with negatives counted from the end; each must lie in [0, d) of its axis (checked by the caller). */
static const int64_t *indices(eng_op_ctx *c, int i)
{
    const pst_tensor *t = eng_in(c, i);
    if (t->dtype == PST_I64)
        return t->data;
    if (t->dtype != PST_I32) {
        eng_op_type(c, t->dtype);
        return NULL;
    }
    int64_t n = eng_count(t), *v = eng_op_scratch(c, (size_t)n * 8);
    if (v)
        eng_convert(PST_I64, v, PST_I32, t->data, n, true);
    return v;
}

static int outside(eng_op_ctx *c, int64_t at, int64_t d)
{
    return eng_op_fail(c, PST_EINVAL, "index %lld is outside %lld", (long long)at, (long long)d);
}

/* ---- gather ---- */

/* The result has the shape of the indices: each element keeps its coordinates but that on the axis, which is its index. */
int eng_op_gather_elements(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), axis;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), ix = *eng_in(c, 1);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0)
        return rc;
    const int64_t *at = indices(c, 1);
    if (!at || ix.rank != x.rank)
        return eng_op_fail(c, PST_EINVAL, "indices must have the rank of the data");
    for (int k = 0; k < x.rank; k++)
        if (k != axis && ix.dims[k] > x.dims[k])
            return eng_op_fail(c, PST_EINVAL, "indices reach beyond the data");
    char *o = eng_out(c, 0, x.dtype, ix.rank, ix.dims);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    int64_t sx[PST_MAX_RANK], n = eng_count(&ix), d = x.dims[axis];
    eng_strides(x.dims, x.rank, sx);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0, rest = i, v = at[i] + (at[i] < 0 ? d : 0);
        if (v < 0 || v >= d)
            return outside(c, at[i], d);
        for (int k = x.rank - 1; k >= 0; k--) {
            from += (k == axis ? v : rest % ix.dims[k]) * sx[k];
            rest /= ix.dims[k];
        }
        memcpy(o + (size_t)i * size, (const char *)x.data + (size_t)from * size, size);
    }
    return 0;
}

/* The last axis of the indices holds coordinates; batch dimensions in front are walked in step with the data. */
int eng_op_gather_nd(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), rank = 0;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), ix = *eng_in(c, 1);
    int64_t batch = eng_attr_int(c->node, "batch_dims", 0), depth = ix.rank ? ix.dims[ix.rank - 1] : 0, dims[2 * PST_MAX_RANK], batches = 1,
            per = 1, inner = 1;
    const int64_t *at = indices(c, 1);
    if (!at || !ix.rank || batch < 0 || batch >= ix.rank || batch + depth > x.rank || depth < 1 ||
        ix.rank - 1 + x.rank - batch - depth > PST_MAX_RANK)
        return eng_op_fail(c, PST_EINVAL, "indices do not fit the data");
    for (int k = 0; k < batch; k++) {
        if (ix.dims[k] != x.dims[k])
            return eng_op_fail(c, PST_EINVAL, "batch dimensions differ");
        batches *= x.dims[k];
    }
    for (int k = 0; k < ix.rank - 1; k++) {
        dims[rank++] = ix.dims[k];
        per *= k >= batch ? ix.dims[k] : 1;
    }
    for (int k = (int)(batch + depth); k < x.rank; k++)
        inner *= dims[rank++] = x.dims[k];
    char *o = eng_out(c, 0, x.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    size_t bytes = (size_t)inner * pst_dtype_size(x.dtype);
    for (int64_t i = 0; i < batches * per; i++) {
        int64_t from = i / per;
        for (int64_t k = 0; k < depth; k++) {
            int64_t d = x.dims[batch + k], v = at[i * depth + k];
            v += v < 0 ? d : 0;
            if (v < 0 || v >= d)
                return outside(c, at[i * depth + k], d);
            from = from * d + v;
        }
        memcpy(o + (size_t)i * bytes, (const char *)x.data + (size_t)from * bytes, bytes);
    }
    return 0;
}

/* ---- scatter ---- */

typedef enum { S_NONE, S_ADD, S_MUL, S_MAX, S_MIN } scatter_how;

static scatter_how how_of(const eng_node *n)
{
    const char *s = eng_attr_str(n, "reduction", "none");
    static const char *const names[] = {[S_ADD] = "add", [S_MUL] = "mul", [S_MAX] = "max", [S_MIN] = "min"};
    for (int how = S_ADD; how <= S_MIN; how++)
        if (!strcmp(s, names[how]))
            return (scatter_how)how;
    return S_NONE;
}

#define SCATTER_CASE(D, T)                                                                                                       \
    case D: {                                                                                                                    \
        T a = ((T *)to)[0], b = ((const T *)from)[0];                                                                            \
        ((T *)to)[0] = how == S_ADD ? (T)(a + b) : how == S_MUL ? (T)(a * b) : how == S_MAX ? (a > b ? a : b) : (a < b ? a : b); \
        break;                                                                                                                   \
    }

static int64_t reduced(scatter_how how, int64_t a, int64_t b)
{
    switch (how) {
    case S_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case S_MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case S_MAX: return a > b ? a : b;
    default: return a < b ? a : b;
    }
}

/* Reductions are computed in the widest type of their kind and come back with one rounding: float for halves, int64 for integers. */
static int put(scatter_how how, pst_dtype t, void *to, const void *from)
{
    if (how == S_NONE) {
        memcpy(to, from, pst_dtype_size(t));
        return 0;
    }
    switch (t) {
        ENG_FOR_FLOATS(SCATTER_CASE)
    case PST_I64:
    case PST_I32:
    case PST_I16:
    case PST_I8:
    case PST_U8:
    case PST_U16:
    case PST_U32:
    case PST_U64: {
        int64_t a, b, v;
        eng_convert(PST_I64, &a, t, to, 1, true);
        eng_convert(PST_I64, &b, t, from, 1, true);
        v = reduced(how, a, b);
        return eng_convert(t, to, PST_I64, &v, 1, true);
    }
    case PST_F16:
    case PST_BF16: {
        float a, b;
        eng_convert(PST_F32, &a, t, to, 1, true);
        eng_convert(PST_F32, &b, t, from, 1, true);
        a = how == S_ADD ? a + b : how == S_MUL ? a * b : how == S_MAX ? fmaxf(a, b) : fminf(a, b);
        return eng_convert(t, to, PST_F32, &a, 1, true);
    }
    default: return PST_EUNSUPPORTED;
    }
    return 0;
}

static char *copy_in(eng_op_ctx *c, const pst_tensor *x)
{
    char *o = eng_out_like(c, 0, x);
    if (o && eng_count(x))
        memcpy(o, x->data, (size_t)eng_count(x) * pst_dtype_size(x->dtype));
    return o;
}

/* Updates are applied in the order of the list: of equal indices the last one stays, or all are reduced. */
int eng_op_scatter_elements(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3), axis;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), ix = *eng_in(c, 1), u = *eng_in(c, 2);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0)
        return rc;
    const int64_t *at = indices(c, 1);
    bool fits = at && ix.rank == x.rank && u.rank == x.rank && u.dtype == x.dtype;
    for (int k = 0; k < x.rank && fits; k++)
        fits = ix.dims[k] == u.dims[k] && (k == axis || ix.dims[k] <= x.dims[k]);
    if (!fits)
        return eng_op_fail(c, PST_EINVAL, "indices and updates must fit the data");
    char *o = copy_in(c, &x);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    int64_t sx[PST_MAX_RANK], n = eng_count(&ix), d = x.dims[axis];
    scatter_how how = how_of(c->node);
    eng_strides(x.dims, x.rank, sx);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = 0, rest = i, v = at[i] + (at[i] < 0 ? d : 0);
        if (v < 0 || v >= d)
            return outside(c, at[i], d);
        for (int k = x.rank - 1; k >= 0; k--) {
            to += (k == axis ? v : rest % ix.dims[k]) * sx[k];
            rest /= ix.dims[k];
        }
        if (put(how, x.dtype, o + (size_t)to * size, (const char *)u.data + (size_t)i * size) < 0)
            return eng_op_type(c, x.dtype);
    }
    return 0;
}

/* A row of the indices names a slice of the data by its first depth coordinates; the slice of the updates at the same place goes there. */
int eng_op_scatter_nd(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), ix = *eng_in(c, 1), u = *eng_in(c, 2);
    int64_t depth = ix.rank ? ix.dims[ix.rank - 1] : 0, inner = 1, n = 1;
    const int64_t *at = indices(c, 1);
    if (!at || depth < 1 || depth > x.rank || u.dtype != x.dtype)
        return eng_op_fail(c, PST_EINVAL, "indices and updates must fit the data");
    for (int k = 0; k < ix.rank - 1; k++)
        n *= ix.dims[k];
    for (int k = (int)depth; k < x.rank; k++)
        inner *= x.dims[k];
    if (eng_count(&u) != n * inner)
        return eng_op_fail(c, PST_EINVAL, "updates do not fit the indices");
    char *o = copy_in(c, &x);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    scatter_how how = how_of(c->node);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = 0;
        for (int64_t k = 0; k < depth; k++) {
            int64_t d = x.dims[k], v = at[i * depth + k];
            v += v < 0 ? d : 0;
            if (v < 0 || v >= d)
                return outside(c, at[i * depth + k], d);
            to = to * d + v;
        }
        for (int64_t k = 0; k < inner; k++)
            if (put(how, x.dtype, o + (size_t)(to * inner + k) * size, (const char *)u.data + (size_t)(i * inner + k) * size) < 0)
                return eng_op_type(c, x.dtype);
    }
    return 0;
}

/* ---- making indices ---- */

/* Where row b's first position goes: 0 without indices. An update that would leave the cache is refused, or goes round. */
static int write_at(eng_op_ctx *c, const int64_t *at, int64_t b, int64_t length, int64_t room, int64_t *ret)
{
    bool round = !strcmp(eng_attr_str(c->node, "mode", "linear"), "circular");
    *ret = at ? at[b] : 0;
    if (*ret < 0 || length > room || (round ? *ret >= room : *ret > room - length))
        return eng_op_fail(c, PST_EINVAL, "%lld positions do not fit into %lld from %lld on", (long long)length, (long long)room,
                           (long long)*ret);
    return 0;
}

/* A cache (B, …, room, …) with an update (B, …, length, …) written over it, for each of the batch from its own position on. */
int eng_op_tensor_scatter(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), axis;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), u = *eng_in(c, 1);
    const pst_tensor *ix = eng_in(c, 2);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", -2), x.rank, &axis)) < 0)
        return rc;
    bool fits =
        axis > 0 && x.rank == u.rank && x.dtype == u.dtype && (!ix || (ix->dtype == PST_I64 && ix->rank == 1 && ix->dims[0] == x.dims[0]));
    for (int k = 0; fits && k < x.rank; k++)
        fits = k == axis || x.dims[k] == u.dims[k];
    if (!fits)
        return eng_op_fail(c, PST_EINVAL, "the update or its indices do not fit the cache");
    char *o = copy_in(c, &x);
    if (!o)
        return PST_ELIMIT;
    int64_t room = x.dims[axis], length = u.dims[axis], outer = 1, inner = 1, first = 0;
    for (int k = 1; k < axis; k++)
        outer *= x.dims[k];
    for (int k = axis + 1; k < x.rank; k++)
        inner *= x.dims[k];
    size_t bytes = (size_t)inner * pst_dtype_size(x.dtype);
    const char *from = u.data;
    for (int64_t b = 0; b < x.dims[0]; b++) {
        if ((rc = write_at(c, ix ? ix->data : NULL, b, length, room, &first)) < 0)
            return rc;
        for (int64_t i = 0; i < outer * length && bytes; i++, from += bytes)
            memcpy(o + (size_t)((b * outer + i / length) * room + (first + i % length) % room) * bytes, from, bytes);
    }
    return 0;
}

int eng_op_one_hot(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3), axis, rank = 0;
    double depth;
    if (rc < 0 || (rc = eng_in_scalar(c, 1, &depth)) < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), v = *eng_in(c, 2);
    if (x.rank + 1 > PST_MAX_RANK || !(depth >= 0 && depth < 1e9) || eng_count(&v) != 2)
        return eng_op_fail(c, PST_EINVAL, "depth or values are bad");
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", -1), x.rank + 1, &axis)) < 0)
        return rc;
    int64_t d = (int64_t)depth, dims[PST_MAX_RANK], inner = 1, n = eng_count(&x), *at = eng_op_scratch(c, (size_t)n * 8);
    for (int k = 0; k <= x.rank; k++)
        dims[rank++] = k == axis ? d : x.dims[k - (k > axis)];
    for (int k = axis; k < x.rank; k++)
        inner *= x.dims[k];
    char *o = eng_out(c, 0, v.dtype, rank, dims);
    if (!o || !at)
        return PST_ELIMIT;
    if (eng_convert(PST_I64, at, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    size_t size = pst_dtype_size(v.dtype);
    for (int64_t i = 0; i < n * d; i++) {
        int64_t outer = i / (d * inner), k = i / inner % d, in = i % inner, want = at[outer * inner + in];
        want += want < 0 ? d : 0;
        memcpy(o + (size_t)i * size, (const char *)v.data + (want == k ? size : 0), size);
    }
    return 0;
}

int eng_op_nonzero(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    int64_t n = eng_count(&x), found = 0, st[PST_MAX_RANK];
    uint8_t *is = eng_op_scratch(c, (size_t)n);
    if (!is)
        return PST_ELIMIT;
    if (eng_convert(PST_BOOL, is, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    for (int64_t i = 0; i < n; i++)
        found += is[i] != 0;
    int64_t *o = eng_out(c, 0, PST_I64, 2, (int64_t[]){x.rank, found}), at = 0;
    if (!o)
        return PST_ELIMIT;
    eng_strides(x.dims, x.rank, st);
    for (int64_t i = 0; i < n; i++) {
        if (!is[i])
            continue;
        for (int k = 0; k < x.rank; k++)
            o[k * found + at] = i / st[k] % x.dims[k];
        at++;
    }
    return 0;
}

/* Without an axis the input is flat. A condition that is shorter than the axis drops the rest. */
int eng_op_compress(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), axis = 0;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), k = *eng_in(c, 1);
    if (k.dtype != PST_BOOL || k.rank != 1)
        return eng_op_fail(c, PST_EINVAL, "the condition must be a list of bool");
    if (!eng_attr_find(c->node, "axis")) {
        x.dims[0] = eng_count(&x);
        x.rank = 1;
    } else if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0) {
        return rc;
    }
    int64_t d = x.dims[axis], n = k.dims[0] < d ? k.dims[0] : d, found = 0, outer = 1;
    const uint8_t *is = k.data;
    for (int64_t i = 0; i < n; i++)
        found += is[i] != 0;
    pst_tensor y = x;
    y.dims[axis] = found;
    char *o = eng_out_like(c, 0, &y);
    if (!o)
        return PST_ELIMIT;
    size_t inner = pst_dtype_size(x.dtype);
    for (int i = 0; i < x.rank; i++) {
        if (i < axis)
            outer *= x.dims[i];
        else if (i > axis)
            inner *= (size_t)x.dims[i];
    }
    for (int64_t i = 0; i < outer; i++)
        for (int64_t q = 0; q < n; q++)
            if (is[q]) {
                memcpy(o, (const char *)x.data + (size_t)(i * d + q) * inner, inner);
                o += inner;
            }
    return 0;
}

/* ---- order ---- */

typedef struct item {
    double v;
    uint64_t whole; /* of 64-bit integers, in their order: more digits than v has */
    int64_t at;
} item;

static int in_order(const item *a, const item *b)
{
    if (a->v != b->v)
        return a->v < b->v ? -1 : a->v > b->v;
    return (a->whole > b->whole) - (a->whole < b->whole);
}

static int ascending(const void *va, const void *vb)
{
    const item *a = va, *b = vb;
    int order = in_order(a, b);
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

static int descending(const void *va, const void *vb)
{
    const item *a = va, *b = vb;
    int order = in_order(b, a);
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

/* Place `at` of x as a number whose order is that of 64-bit integers; 0 for other types. */
static uint64_t whole_of(const pst_tensor *x, int64_t at)
{
    if (x->dtype == PST_U64)
        return ((const uint64_t *)x->data)[at];
    return x->dtype == PST_I64 ? (uint64_t)((const int64_t *)x->data)[at] ^ (uint64_t)1 << 63 : 0;
}

/* A line along the axis is sorted as a whole, by value and then by place: of equal values the first comes first, as the operator wants. */
int eng_op_topk(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), axis;
    double kd = (double)eng_attr_int(c->node, "k", 1);
    if (rc < 0 || (c->node->opset >= 10 && (rc = eng_in_scalar(c, 1, &kd)) < 0))
        return rc;
    pst_tensor x = *eng_in(c, 0), y = x;
    bool largest = eng_attr_int(c->node, "largest", 1);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", -1), x.rank, &axis)) < 0)
        return rc;
    int64_t d = x.dims[axis], inner = 1, n = eng_count(&x);
    if (!(kd >= 0 && kd <= (double)d))
        return eng_op_fail(c, PST_EINVAL, "k %g of %lld", kd, (long long)d);
    int64_t k = y.dims[axis] = (int64_t)kd;
    for (int i = axis + 1; i < x.rank; i++)
        inner *= x.dims[i];
    char *o = eng_out_like(c, 0, &y);
    int64_t *oi = eng_out_typed(c, 1, PST_I64, &y);
    item *items = eng_op_scratch(c, (size_t)d * sizeof *items);
    double *v = eng_op_scratch(c, (size_t)n * 8);
    if (!o || !oi || !items || !v)
        return PST_ELIMIT;
    if (eng_convert(PST_F64, v, x.dtype, x.data, n, true) < 0)
        return eng_op_type(c, x.dtype);
    size_t size = pst_dtype_size(x.dtype);
    for (int64_t line = 0; d && line < n / d; line++) {
        int64_t from = line / inner * d * inner + line % inner, to = line / inner * k * inner + line % inner;
        for (int64_t i = 0; i < d; i++)
            items[i] = (item){v[from + i * inner], whole_of(&x, from + i * inner), i};
        qsort(items, (size_t)d, sizeof *items, largest ? descending : ascending);
        for (int64_t i = 0; i < k; i++) {
            memcpy(o + (size_t)(to + i * inner) * size, (const char *)x.data + (size_t)(from + items[i].at * inner) * size, size);
            oi[to + i * inner] = items[i].at;
        }
    }
    return 0;
}

/* Unique slices along an axis (or elements): compared as bytes of numbers widened to double, so that order is numeric. */
typedef struct slices {
    const double *v;
    int64_t len;
} slices;

static int by_slice(const void *va, const void *vb, void *arg)
{
    const slices *s = arg;
    int64_t a = *(const int64_t *)va, b = *(const int64_t *)vb;
    for (int64_t i = 0; i < s->len; i++) {
        double x = s->v[a * s->len + i], y = s->v[b * s->len + i];
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

static int by_slice_then_place(const void *va, const void *vb, void *arg)
{
    int cmp = by_slice(va, vb, arg);
    int64_t a = *(const int64_t *)va, b = *(const int64_t *)vb;
    return cmp ? cmp : (a > b) - (a < b);
}

static int by_place(const void *va, const void *vb)
{
    const int64_t *a = va, *b = vb; /* pairs: first place, group */
    return (*a > *b) - (*a < *b);
}

int eng_op_unique(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), axis = 0;
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0);
    bool flat = !eng_attr_find(c->node, "axis"), sorted = eng_attr_int(c->node, "sorted", 1);
    if (flat) {
        x.dims[0] = eng_count(&x);
        x.rank = 1;
    } else if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0) {
        return rc;
    }
    int64_t n = x.dims[axis], total = eng_count(&x), inner = 1;
    for (int k = axis + 1; k < x.rank; k++)
        inner *= x.dims[k];
    slices s = {.len = n ? total / n : 0};
    double *wide = eng_op_scratch(c, (size_t)total * 8), *v = eng_op_scratch(c, (size_t)total * 8);
    int64_t *order = eng_op_scratch(c, (size_t)n * 8), *group = eng_op_scratch(c, (size_t)n * 8),
            *firsts = eng_op_scratch(c, (size_t)n * 16), groups = 0;
    if (!wide || !v || !order || !group || !firsts)
        return PST_ELIMIT;
    if (eng_convert(PST_F64, wide, x.dtype, x.data, total, true) < 0)
        return eng_op_type(c, x.dtype);
    for (int64_t i = 0; i < n; i++)
        for (int64_t q = 0; q < s.len; q++)
            v[i * s.len + q] = wide[(q / inner * n + i) * inner + q % inner];
    s.v = v;
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, (size_t)n, sizeof *order, by_slice_then_place, &s);
    for (int64_t i = 0; i < n; i++) {
        if (!i || by_slice(&order[i - 1], &order[i], &s)) {
            firsts[2 * groups] = order[i];
            firsts[2 * groups + 1] = groups;
            groups++;
        }
        group[order[i]] = groups - 1;
    }
    int64_t *rank = eng_op_scratch(c, (size_t)groups * 8);
    if (!rank)
        return PST_ELIMIT;
    if (!sorted) /* in the order of first appearance */
        qsort(firsts, (size_t)groups, 2 * sizeof *firsts, by_place);
    for (int64_t g = 0; g < groups; g++)
        rank[firsts[2 * g + 1]] = g;
    pst_tensor y = x;
    y.dims[axis] = groups;
    char *o = eng_out_like(c, 0, &y);
    if (!o)
        return PST_ELIMIT;
    size_t size = pst_dtype_size(x.dtype);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t q = 0; q < s.len; q++)
            memcpy(o + (size_t)((q / inner * groups + g) * inner + q % inner) * size,
                   (const char *)x.data + (size_t)((q / inner * n + firsts[2 * g]) * inner + q % inner) * size, size);
    int64_t *o1 = c->n_out > 1 ? eng_out(c, 1, PST_I64, 1, &groups) : NULL, *o2 = c->n_out > 2 ? eng_out(c, 2, PST_I64, 1, &n) : NULL,
            *o3 = c->n_out > 3 ? eng_out(c, 3, PST_I64, 1, &groups) : NULL;
    for (int64_t g = 0; g < groups; g++) {
        if (o1)
            o1[g] = firsts[2 * g];
        if (o3)
            o3[g] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        if (o2)
            o2[i] = rank[group[i]];
        if (o3)
            o3[rank[group[i]]]++;
    }
    return 0;
}
