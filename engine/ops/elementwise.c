/* elementwise.c - operators of two broadcast inputs: arithmetic, comparison, logic, bits; and the variadic ones built on them.
 * One inner loop per operator and type; the outer walk over broadcast dimensions is shared. */
#include "engine/ops/kernels.h"

#include <math.h>
#include <string.h>

typedef void (*loop_fn)(const void *a, int64_t sa, const void *b, int64_t sb, void *o, int64_t n);

/* ---- scalar meaning of each operator ---- */

#define U(T) __typeof__(_Generic((T)0, int64_t : (uint64_t)0, int32_t : (uint32_t)0, default : (uint32_t)0, uint64_t : (uint64_t)0))
#define DEF_LOOP(NAME, T, R, EXPR)                                                                \
    static void NAME(const void *va, int64_t sa, const void *vb, int64_t sb, void *vo, int64_t n) \
    {                                                                                             \
        const T *pa = va, *pb = vb;                                                               \
        R *o = vo;                                                                                \
        if (sa == 1 && sb == 1) {                                                                 \
            for (int64_t i = 0; i < n; i++) {                                                     \
                T a = pa[i], b = pb[i];                                                           \
                o[i] = (R)(EXPR);                                                                 \
            }                                                                                     \
            return;                                                                               \
        }                                                                                         \
        if (sa == 1 && sb == 0) {                                                                 \
            T b = *pb;                                                                            \
            for (int64_t i = 0; i < n; i++) {                                                     \
                T a = pa[i];                                                                      \
                o[i] = (R)(EXPR);                                                                 \
            }                                                                                     \
            return;                                                                               \
        }                                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                         \
            T a = pa[i * sa], b = pb[i * sb];                                                     \
            o[i] = (R)(EXPR);                                                                     \
        }                                                                                         \
    }

/* Integers wrap (computed unsigned), division by zero gives 0 and MIN / -1 gives MIN: a hostile model must not trap. */
#define IS_MIN(T, x) ((T)-1 < (T)0 && (x) == (T)((U(T))1 << (sizeof(T) * 8 - 1)))
#define INT_DIV(T)   (b == 0 ? 0 : (T)-1 < (T)0 && b == (T)-1 ? (T)(0 - (U(T))a) : (T)(a / b))
#define INT_REM(T)   (b == 0 || ((T)-1 < (T)0 && b == (T)-1) ? 0 : (T)(a % b))

#define INT_LOOPS(D, T)                                                                                       \
    DEF_LOOP(add_##T, T, T, (U(T))a + (U(T))b)                                                                \
    DEF_LOOP(sub_##T, T, T, (U(T))a - (U(T))b)                                                                \
    DEF_LOOP(mul_##T, T, T, (U(T))a *(U(T))b)                                                                 \
    DEF_LOOP(div_##T, T, T, INT_DIV(T))                                                                       \
    DEF_LOOP(fmod_##T, T, T, INT_REM(T))                                                                      \
    DEF_LOOP(mod_##T, T, T, (INT_REM(T) != 0 && ((INT_REM(T) < 0) != (b < 0))) ? INT_REM(T) + b : INT_REM(T)) \
    DEF_LOOP(min_##T, T, T, a < b ? a : b)                                                                    \
    DEF_LOOP(max_##T, T, T, a > b ? a : b)                                                                    \
    DEF_LOOP(and_##T, T, T, a &b)                                                                             \
    DEF_LOOP(or_##T, T, T, a | b)                                                                             \
    DEF_LOOP(xor_##T, T, T, a ^ b)                                                                            \
    DEF_LOOP(shl_##T, T, T, (uint64_t)b >= sizeof(T) * 8 ? 0 : (U(T))a << b)                                  \
    DEF_LOOP(shr_##T, T, T, (uint64_t)b >= sizeof(T) * 8 ? 0 : a >> b)                                        \
    DEF_LOOP(eq_##T, T, uint8_t, a == b)                                                                      \
    DEF_LOOP(lt_##T, T, uint8_t, a < b)                                                                       \
    DEF_LOOP(le_##T, T, uint8_t, a <= b)                                                                      \
    DEF_LOOP(gt_##T, T, uint8_t, a > b)                                                                       \
    DEF_LOOP(ge_##T, T, uint8_t, a >= b)
ENG_FOR_INTS(INT_LOOPS)

static inline double floor_mod(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define FLOAT_LOOPS(D, T)                                    \
    DEF_LOOP(add_##T, T, T, a + b)                           \
    DEF_LOOP(sub_##T, T, T, a - b)                           \
    DEF_LOOP(mul_##T, T, T, a *b)                            \
    DEF_LOOP(div_##T, T, T, a / b)                           \
    DEF_LOOP(fmod_##T, T, T, fmod((double)a, (double)b))     \
    DEF_LOOP(mod_##T, T, T, floor_mod((double)a, (double)b)) \
    DEF_LOOP(min_##T, T, T, a < b || a != a ? a : b)         \
    DEF_LOOP(max_##T, T, T, a > b || a != a ? a : b)         \
    DEF_LOOP(eq_##T, T, uint8_t, a == b)                     \
    DEF_LOOP(lt_##T, T, uint8_t, a < b)                      \
    DEF_LOOP(le_##T, T, uint8_t, a <= b)                     \
    DEF_LOOP(gt_##T, T, uint8_t, a > b)                      \
    DEF_LOOP(ge_##T, T, uint8_t, a >= b)                     \
    DEF_LOOP(prelu_##T, T, T, a < 0 ? a * b : a)
ENG_FOR_FLOATS(FLOAT_LOOPS)

DEF_LOOP(pow_float, float, float, b == 2.0f ? a * a : powf(a, b))
DEF_LOOP(pow_double, double, double, pow(a, b))
DEF_LOOP(land_bool, uint8_t, uint8_t, a &&b)
DEF_LOOP(lor_bool, uint8_t, uint8_t, a || b)
DEF_LOOP(lxor_bool, uint8_t, uint8_t, (a != 0) != (b != 0))
DEF_LOOP(eq_bool, uint8_t, uint8_t, (a != 0) == (b != 0))

static void eq_text(const void *va, int64_t sa, const void *vb, int64_t sb, void *vo, int64_t n)
{
    const char *const *a = va, *const *b = vb;
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)vo)[i] = !strcmp(a[i * sa], b[i * sb]);
}

/* Integer powers exactly, by squaring; a negative exponent gives what 1/x truncates to. */
static int64_t int_pow(int64_t a, int64_t e)
{
    if (e < 0 && a == -1)
        return e & 1 ? -1 : 1;
    if (e < 0) /* a fraction, cut to a whole number */
        return a == 1;
    uint64_t r = 1, x = (uint64_t)a;
    for (; e; e >>= 1, x *= x)
        if (e & 1)
            r *= x;
    return (int64_t)r;
}

/* ---- the walk ---- */

/* Dimensions of equal behaviour are merged, the innermost goes to the loop, the others are counted. */
static void walk(loop_fn f, const pst_tensor *a, const pst_tensor *b, int rank, const int64_t *dims, void *out, size_t osize)
{
    size_t asize = pst_dtype_size(a->dtype), bsize = pst_dtype_size(b->dtype);
    int64_t sa[PST_MAX_RANK], sb[PST_MAX_RANK], d[PST_MAX_RANK + 1] = {1}, ca[PST_MAX_RANK + 1] = {0}, cb[PST_MAX_RANK + 1] = {0},
                                                                 at[PST_MAX_RANK] = {0};
    if (eng_dims_count(dims, rank) <= 0)
        return;
    eng_broadcast_strides(a, rank, sa);
    eng_broadcast_strides(b, rank, sb);
    int n = 0; /* merged dimensions, innermost first */
    for (int i = rank - 1; i >= 0; i--) {
        if (dims[i] == 1)
            continue;
        if (n && sa[i] == ca[n - 1] * d[n - 1] && sb[i] == cb[n - 1] * d[n - 1]) {
            d[n - 1] *= dims[i];
            continue;
        }
        d[n] = dims[i];
        ca[n] = sa[i];
        cb[n] = sb[i];
        n++;
    }
    if (!n)
        n = 1;
    const char *pa = a->data, *pb = b->data;
    char *o = out;
    for (;;) {
        f(pa, ca[0], pb, cb[0], o, d[0]);
        o += (size_t)d[0] * osize;
        int k = 1;
        for (; k < n; k++) {
            pa += ca[k] * (int64_t)asize;
            pb += cb[k] * (int64_t)bsize;
            if (++at[k - 1] < d[k])
                break;
            at[k - 1] = 0;
            pa -= ca[k] * d[k] * (int64_t)asize;
            pb -= cb[k] * d[k] * (int64_t)bsize;
        }
        if (k >= n)
            return;
    }
}

#define PICK_CASE(D, T) \
    case D:             \
        return OP(T);
#define NUMBER_LOOP(NAME)              \
    static loop_fn NAME##_loop(int t)  \
    {                                  \
        switch (t) {                   \
            ENG_FOR_NUMBERS(PICK_CASE) \
        default: return NULL;          \
        }                              \
    }
#define INT_LOOP(NAME)                \
    static loop_fn NAME##_loop(int t) \
    {                                 \
        switch (t) {                  \
            ENG_FOR_INTS(PICK_CASE)   \
        default: return NULL;         \
        }                             \
    }
#define OP(T) add_##T
NUMBER_LOOP(add)
#undef OP
#define OP(T) sub_##T
NUMBER_LOOP(sub)
#undef OP
#define OP(T) mul_##T
NUMBER_LOOP(mul)
#undef OP
#define OP(T) div_##T
NUMBER_LOOP(div)
#undef OP
#define OP(T) mod_##T
NUMBER_LOOP(mod)
#undef OP
#define OP(T) fmod_##T
NUMBER_LOOP(fmod)
#undef OP
#define OP(T) min_##T
NUMBER_LOOP(min)
#undef OP
#define OP(T) max_##T
NUMBER_LOOP(max)
#undef OP
#define OP(T) lt_##T
NUMBER_LOOP(lt)
#undef OP
#define OP(T) le_##T
NUMBER_LOOP(le)
#undef OP
#define OP(T) gt_##T
NUMBER_LOOP(gt)
#undef OP
#define OP(T) ge_##T
NUMBER_LOOP(ge)
#undef OP
#define OP(T) eq_##T
NUMBER_LOOP(eq_number)
#undef OP
#define OP(T) and_##T
INT_LOOP(and)
#undef OP
#define OP(T) or_##T
INT_LOOP(or)
#undef OP
#define OP(T) xor_##T
INT_LOOP(xor)
#undef OP
#define OP(T) shl_##T
INT_LOOP(shl)
#undef OP
#define OP(T) shr_##T
INT_LOOP(shr)
#undef OP

static loop_fn eq_loop(int t)
{
    return t == PST_BOOL ? eq_bool : t == PST_STR ? eq_text : eq_number_loop(t);
}

static loop_fn land_loop(int t)
{
    return t == PST_BOOL ? land_bool : NULL;
}

static loop_fn lor_loop(int t)
{
    return t == PST_BOOL ? lor_bool : NULL;
}

static loop_fn lxor_loop(int t)
{
    return t == PST_BOOL ? lxor_bool : NULL;
}

static loop_fn prelu_loop(int t)
{
    return t == PST_F32 ? prelu_float : t == PST_F64 ? prelu_double : NULL;
}

/* Before opset 7 broadcasting was asked for: B's dimensions start at `axis` of A. B is viewed with trailing ones. */
static int old_broadcast(eng_op_ctx *c, const pst_tensor *a, pst_tensor *b)
{
    if (!strcmp(c->node->op_type, "PRelu") && c->node->opset < 7 && b->rank == 1 && b->dims[0] != 1 &&
        a->rank > 2) { /* one slope per channel */
        for (int k = 1; k < a->rank - 1; k++)
            b->dims[k] = 1;
        b->rank = a->rank - 1;
        return 0;
    }
    if (*c->node->domain || c->node->opset >= 7 || !eng_attr_int(c->node, "broadcast", 0))
        return 0;
    const eng_attr *axis = eng_attr_find(c->node, "axis");
    int at;
    if (!axis || b->rank >= a->rank)
        return 0;
    int rc = eng_op_axis(c, axis->i, a->rank, &at);
    if (rc < 0 || at + b->rank > a->rank)
        return eng_op_fail(c, PST_EINVAL, "bad axis for its broadcast");
    for (int rank = b->rank; rank < a->rank - at; rank++)
        b->dims[rank] = 1;
    b->rank = a->rank - at;
    return 0;
}

static bool same_shape(const pst_tensor *t, int rank, const int64_t *dims)
{
    return t->rank == rank && !memcmp(t->dims, dims, (size_t)rank * sizeof *dims);
}

static int binary(eng_op_ctx *c, loop_fn (*loop_of)(int), bool to_bool)
{
    int rc = eng_op_need(c, 2), rank;
    if (rc < 0)
        return rc;
    const pst_tensor *a = eng_in(c, 0);
    pst_tensor b = *eng_in(c, 1);
    int64_t dims[PST_MAX_RANK];
    if (a->dtype != b.dtype)
        return eng_op_fail(c, PST_EINVAL, "inputs of different types %s and %s", pst_dtype_name(a->dtype), pst_dtype_name(b.dtype));
    loop_fn f = loop_of(a->dtype);
    if (!f)
        return eng_op_type(c, a->dtype);
    if ((rc = old_broadcast(c, a, &b)) < 0 || (rc = eng_broadcast(c, a, &b, &rank, dims)) < 0)
        return rc;
    pst_tensor av = *a, bv = *eng_in(c, 1);
    void *o = NULL;
    for (int i = 0; i < 2 && !o && !to_bool; i++) /* element by element: it may be written over an input of its own shape */
        if (same_shape(i ? &bv : &av, rank, dims) && c->dies && c->dies[i])
            o = eng_out_over(c, 0, i);
    if (!o)
        o = eng_out(c, 0, to_bool ? PST_BOOL : av.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    walk(f, &av, &b, rank, dims, o, to_bool ? 1 : pst_dtype_size(av.dtype));
    return 0;
}

#define BINARY(NAME, TO_BOOL)                   \
    int eng_op_##NAME(eng_op_ctx *c)            \
    {                                           \
        return binary(c, NAME##_loop, TO_BOOL); \
    }
BINARY(add, false)
BINARY(sub, false)
BINARY(mul, false)
BINARY(div, false)
BINARY(lt, true)
BINARY(le, true)
BINARY(gt, true)
BINARY(ge, true)
BINARY(eq, true)
BINARY(land, true)
BINARY(lor, true)
BINARY(lxor, true)
BINARY(and, false)
BINARY(or, false)
BINARY(xor, false)
BINARY(prelu, false)

int eng_op_mod(eng_op_ctx *c)
{
    const pst_tensor *a = eng_in(c, 0);
    bool f = eng_attr_int(c->node, "fmod", 0) != 0;
    if (a && eng_dtype_is_float(a->dtype) && !f)
        return eng_op_fail(c, PST_EINVAL, "fmod must be 1 for floats");
    return binary(c, f ? fmod_loop : mod_loop, false);
}

int eng_op_shift(eng_op_ctx *c)
{
    return binary(c, !strcmp(eng_attr_str(c->node, "direction", ""), "LEFT") ? shl_loop : shr_loop, false);
}

/* Base and exponent may differ in type; the result has the base's. */
int eng_op_pow(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2), rank;
    if (rc < 0)
        return rc;
    pst_tensor a = *eng_in(c, 0), b = *eng_in(c, 1);
    int64_t dims[PST_MAX_RANK];
    if ((rc = old_broadcast(c, &a, &b)) < 0 || (rc = eng_broadcast(c, &a, &b, &rank, dims)) < 0)
        return rc;
    void *o = eng_out(c, 0, a.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    if (a.dtype == PST_F32 && b.dtype == PST_F32) {
        walk(pow_float, &a, &b, rank, dims, o, 4);
        return 0;
    }
    bool ints = eng_dtype_is_int(a.dtype) && eng_dtype_is_int(b.dtype);
    pst_dtype wide = ints ? PST_I64 : PST_F64;
    int64_t na = eng_count(&a), nb = eng_count(&b), no = eng_dims_count(dims, rank);
    void *wa = eng_op_scratch(c, (size_t)na * 8), *wb = eng_op_scratch(c, (size_t)nb * 8), *wo = eng_op_scratch(c, (size_t)no * 8);
    if (!wa || !wb || !wo)
        return PST_ELIMIT;
    if (eng_convert(wide, wa, a.dtype, a.data, na, true) < 0 || eng_convert(wide, wb, b.dtype, b.data, nb, true) < 0)
        return eng_op_type(c, a.dtype);
    pst_dtype to = a.dtype;
    a.data = wa;
    b.data = wb;
    a.dtype = b.dtype = wide;
    if (!ints) {
        walk(pow_double, &a, &b, rank, dims, wo, 8);
    } else {
        int64_t sa[PST_MAX_RANK], sb[PST_MAX_RANK], so[PST_MAX_RANK];
        eng_broadcast_strides(&a, rank, sa);
        eng_broadcast_strides(&b, rank, sb);
        eng_strides(dims, rank, so);
        for (int64_t i = 0; i < no; i++) {
            int64_t ia = 0, ib = 0;
            for (int k = 0; k < rank; k++) {
                ia += i / so[k] % dims[k] * sa[k];
                ib += i / so[k] % dims[k] * sb[k];
            }
            ((int64_t *)wo)[i] = int_pow(((int64_t *)wa)[ia], ((int64_t *)wb)[ib]);
        }
    }
    eng_convert(to, o, wide, wo, no, true);
    return 0;
}

/* Sum, Mean, Min, Max of any number of inputs: folded from the left. */
static int variadic(eng_op_ctx *c, loop_fn (*loop_of)(int), bool mean)
{
    const pst_tensor *first = eng_in(c, 0);
    int rc = eng_op_need(c, c->n_in ? c->n_in : 1);
    if (rc < 0)
        return rc;
    loop_fn f = loop_of(first->dtype);
    if (!f)
        return eng_op_type(c, first->dtype);
    size_t size = pst_dtype_size(first->dtype);
    pst_tensor acc = *first;
    for (int i = 1; i < c->n_in; i++) {
        const pst_tensor *b = eng_in(c, i);
        pst_tensor next = {.dtype = first->dtype};
        if (b->dtype != first->dtype)
            return eng_op_fail(c, PST_EINVAL, "inputs of different types");
        if ((rc = eng_broadcast(c, &acc, b, &next.rank, next.dims)) < 0)
            return rc;
        int64_t n = eng_dims_count(next.dims, next.rank);
        if (n < 0 || (uint64_t)n * size > c->plan->m->limits.tensor_bytes_max)
            return eng_op_fail(c, PST_ELIMIT, "the result is too large");
        next.data = eng_op_scratch(c, (size_t)n * size);
        if (!next.data)
            return PST_ELIMIT;
        walk(f, &acc, b, next.rank, next.dims, next.data, size);
        acc = next;
    }
    void *o = eng_out_like(c, 0, &acc);
    if (!o)
        return PST_ELIMIT;
    int64_t n = eng_count(&acc);
    if (mean && acc.dtype == PST_F32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)o)[i] = ((const float *)acc.data)[i] / (float)c->n_in;
    } else if (mean && acc.dtype == PST_F64) {
        for (int64_t i = 0; i < n; i++)
            ((double *)o)[i] = ((const double *)acc.data)[i] / c->n_in;
    } else if (n) {
        memcpy(o, acc.data, (size_t)n * size);
    }
    return 0;
}

int eng_op_sum(eng_op_ctx *c)
{
    return variadic(c, add_loop, false);
}

int eng_op_mean(eng_op_ctx *c)
{
    return variadic(c, add_loop, true);
}

int eng_op_min(eng_op_ctx *c)
{
    return variadic(c, min_loop, false);
}

int eng_op_max(eng_op_ctx *c)
{
    return variadic(c, max_loop, false);
}

/* out = cond ? x : y, all three broadcast; by element size, so any type. */
int eng_op_where(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3), rank;
    if (rc < 0)
        return rc;
    const pst_tensor *k = eng_in(c, 0), *x = eng_in(c, 1), *y = eng_in(c, 2);
    pst_tensor xy = {0};
    int64_t dims[PST_MAX_RANK], sk[PST_MAX_RANK], sx[PST_MAX_RANK], sy[PST_MAX_RANK], at[PST_MAX_RANK] = {0};
    if (k->dtype != PST_BOOL || x->dtype != y->dtype)
        return eng_op_fail(c, PST_EINVAL, "the condition must be bool and both values of one type");
    if ((rc = eng_broadcast(c, x, y, &xy.rank, xy.dims)) < 0 || (rc = eng_broadcast(c, k, &xy, &rank, dims)) < 0)
        return rc;
    pst_tensor kv = *k, xv = *x, yv = *y;
    char *o = eng_out(c, 0, xv.dtype, rank, dims);
    if (!o)
        return PST_ELIMIT;
    eng_broadcast_strides(&kv, rank, sk);
    eng_broadcast_strides(&xv, rank, sx);
    eng_broadcast_strides(&yv, rank, sy);
    size_t size = pst_dtype_size(xv.dtype);
    int64_t n = eng_dims_count(dims, rank), ik = 0, ix = 0, iy = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *from =
            ((const uint8_t *)kv.data)[ik] ? (const char *)xv.data + (size_t)ix * size : (const char *)yv.data + (size_t)iy * size;
        memcpy(o + (size_t)i * size, from, size);
        for (int q = rank - 1; q >= 0; q--) {
            ik += sk[q];
            ix += sx[q];
            iy += sy[q];
            if (++at[q] < dims[q])
                break;
            at[q] = 0;
            ik -= sk[q] * dims[q];
            ix -= sx[q] * dims[q];
            iy -= sy[q] * dims[q];
        }
    }
    return 0;
}
