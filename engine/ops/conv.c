/* conv.c - convolutions: their geometry and operands. Conv is computed by whichever backend of nodes costs the least (node_backend.h);
 * ConvTranspose by scattered products, integers by plain sums. */
#include "engine/node_backend.h"
#include "engine/ops/kernels.h"
#include "engine/ops/quant_conv.h"
#include "engine/ops/quant_matmul.h"

#include "engine/cpu/int8.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static int attr_list(eng_op_ctx *c, const char *name, int n, int64_t def, int64_t min, int64_t *ret)
{
    size_t got;
    const int64_t *v = eng_attr_ints(c->node, name, &got);
    for (int i = 0; i < n; i++)
        ret[i] = v && (size_t)i < got ? v[i] : def;
    for (int i = 0; i < n; i++)
        if (ret[i] < min || ret[i] > INT_MAX)
            return eng_op_fail(c, PST_EINVAL, "bad %s", name);
    return v && (int)got != n ? eng_op_fail(c, PST_EINVAL, "%s has %zu entries, %d are needed", name, got, n) : 0;
}

int eng_window_of(eng_op_ctx *c, const pst_tensor *x, const int64_t *kernel, eng_window *w)
{
    int n = x->rank - 2, rc;
    int64_t pads[2 * ENG_WINDOW_DIMS];
    const char *autop = eng_attr_str(c->node, "auto_pad", "NOTSET");
    bool ceil_mode = eng_attr_int(c->node, "ceil_mode", 0), same = !strncmp(autop, "SAME", 4);
    if (n < 1 || n > ENG_WINDOW_DIMS)
        return eng_op_fail(c, PST_EINVAL, "an input (N, C, D…) is needed");
    *w = (eng_window){.n = n, .in_count = 1, .out_count = 1, .k_count = 1};
    if ((rc = attr_list(c, "strides", n, 1, 1, w->stride)) < 0 || (rc = attr_list(c, "dilations", n, 1, 1, w->dil)) < 0 ||
        (rc = attr_list(c, "pads", 2 * n, 0, 0, pads)) < 0 || (!kernel && (rc = attr_list(c, "kernel_shape", n, 0, 1, w->k)) < 0))
        return rc;
    for (int i = 0; i < n; i++) {
        w->k[i] = kernel ? kernel[i] : w->k[i];
        w->in[i] = x->dims[i + 2];
        int64_t reach = (w->k[i] - 1) * w->dil[i] + 1;
        if (w->k[i] < 1 || w->k[i] > INT_MAX || w->in[i] > INT_MAX)
            return eng_op_fail(c, PST_EINVAL, "bad kernel shape");
        if (same) {
            w->out[i] = (w->in[i] + w->stride[i] - 1) / w->stride[i];
            int64_t total = (w->out[i] - 1) * w->stride[i] + reach - w->in[i];
            total = total > 0 ? total : 0;
            w->pad[i] = !strcmp(autop, "SAME_UPPER") ? total / 2 : total - total / 2;
            w->pad_end[i] = total - w->pad[i];
        } else {
            bool valid = !strcmp(autop, "VALID");
            w->pad[i] = valid ? 0 : pads[i];
            w->pad_end[i] = valid ? 0 : pads[i + n];
            int64_t room = w->in[i] + w->pad[i] + w->pad_end[i] - reach;
            if (room < 0)
                w->out[i] = 0;
            else
                w->out[i] = (ceil_mode ? room + w->stride[i] - 1 : room) / w->stride[i] + 1;
            if (ceil_mode && w->out[i] > 0 && (w->out[i] - 1) * w->stride[i] >= w->in[i] + w->pad[i])
                w->out[i]--; /* a window that would start in the end padding is none */
        }
        if (__builtin_mul_overflow(w->out_count, w->out[i], &w->out_count) || __builtin_mul_overflow(w->k_count, w->k[i], &w->k_count) ||
            __builtin_mul_overflow(w->in_count, w->in[i], &w->in_count))
            return eng_op_fail(c, PST_ELIMIT, "too large");
    }
    return 0;
}

int eng_prepare_conv(eng_op_ctx *c)
{
    return eng_node_prepare(c);
}

/* Multiplications of a convolution. */
static int conv_work(eng_op_ctx *c, const pst_tensor *x, const pst_tensor *wt, const eng_window *w)
{
    return eng_op_work(c, (double)x->dims[0] * (double)eng_count(wt) * (double)w->out_count);
}

static int check_conv(eng_op_ctx *c, const pst_tensor *x, const pst_tensor *w)
{
    int64_t groups = eng_attr_int(c->node, "group", 1);
    if (x->rank < 3 || w->rank != x->rank || groups < 1 || x->dims[1] != w->dims[1] * groups || w->dims[0] % groups)
        return eng_op_fail(c, PST_EINVAL, "weights do not fit the input");
    return 0;
}

/* With the maximum pool of the epilogue; nothing is done where nobody takes it in. */
static int conv_pool(eng_op_ctx *c, eng_node_call *call)
{
    eng_op_ctx k = *c;
    eng_window pool;
    const eng_window *w = call->window;
    pst_tensor conv = {.dtype = PST_F32, .rank = call->x->rank, .dims = {call->x->dims[0], call->w->dims[0]}};
    memcpy(conv.dims + 2, w->out, (size_t)w->n * sizeof *w->out);
    k.node = c->epilogue->pool;
    int rc = eng_window_of(&k, &conv, NULL, &pool);
    if (rc == 0)
        rc = eng_op_work(&k, (double)(conv.dims[0] * conv.dims[1]) * (double)pool.out_count * (double)pool.k_count);
    if (rc < 0)
        return rc;
    memcpy(conv.dims + 2, pool.out, (size_t)pool.n * sizeof *pool.out);
    call->y = eng_out_like(c, 0, &conv);
    call->pool = &pool;
    rc = call->y ? eng_node_run(c, call) : PST_ELIMIT;
    return rc > 0 ? 0 : rc;
}

int eng_op_conv(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), wt = *eng_in(c, 1);
    const pst_tensor *b = eng_in(c, 2);
    eng_window w;
    if ((rc = check_conv(c, &x, &wt)) < 0 || (rc = eng_window_of(c, &x, wt.dims + 2, &w)) < 0 || (rc = conv_work(c, &x, &wt, &w)) < 0)
        return rc;
    if (x.dtype != PST_F32 || wt.dtype != PST_F32 || (b && (b->dtype != PST_F32 || eng_count(b) != wt.dims[0])))
        return b && eng_count(b) != wt.dims[0] ? eng_op_fail(c, PST_EINVAL, "bias does not fit") : eng_op_type(c, x.dtype);
    eng_node_call call = {.x = &x, .w = &wt, .bias = b ? b->data : NULL, .window = &w};
    if (c->epilogue && c->epilogue->pool)
        return conv_pool(c, &call);
    int64_t dims[PST_MAX_RANK] = {x.dims[0], wt.dims[0]};
    memcpy(dims + 2, w.out, (size_t)w.n * sizeof *dims);
    call.y = eng_out(c, 0, PST_F32, x.rank, dims);
    if (!call.y)
        return PST_ELIMIT;
    rc = eng_node_run(c, &call);
    PST_ASSERT(rc <= 0); /* columns take what nobody else does: the result would be what its buffer held before */
    return rc;
}

/* Every input element is spread over the outputs its kernel covers. */
int eng_op_conv_transpose(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), wt = *eng_in(c, 1);
    const pst_tensor *b = eng_in(c, 2);
    int n = x.rank - 2;
    int64_t groups = eng_attr_int(c->node, "group", 1), stride[ENG_WINDOW_DIMS], dil[ENG_WINDOW_DIMS], pads[2 * ENG_WINDOW_DIMS],
            extra[ENG_WINDOW_DIMS];
    if (n < 1 || n > ENG_WINDOW_DIMS || wt.rank != x.rank || groups < 1 || x.dims[1] != wt.dims[0] || wt.dims[0] % groups)
        return eng_op_fail(c, PST_EINVAL, "weights do not fit the input");
    int64_t m = wt.dims[1] * groups, cg = wt.dims[0] / groups, in_count = 1, k_count = 1, out_count = 1,
            dims[PST_MAX_RANK] = {x.dims[0], m};
    if (x.dtype != PST_F32 || wt.dtype != PST_F32 || (b && (b->dtype != PST_F32 || eng_count(b) != m)))
        return eng_op_type(c, x.dtype);
    size_t n_shape;
    const int64_t *shape = eng_attr_ints(c->node, "output_shape", &n_shape);
    const char *autop = eng_attr_str(c->node, "auto_pad", "NOTSET");
    if ((rc = attr_list(c, "strides", n, 1, 1, stride)) < 0 || (rc = attr_list(c, "dilations", n, 1, 1, dil)) < 0 ||
        (rc = attr_list(c, "pads", 2 * n, 0, 0, pads)) < 0 || (rc = attr_list(c, "output_padding", n, 0, 0, extra)) < 0)
        return rc;
    for (int i = 0; i < n; i++) {
        int64_t full = stride[i] * (x.dims[i + 2] - 1) + extra[i] + (wt.dims[i + 2] - 1) * dil[i] + 1, out = full - pads[i] - pads[i + n];
        bool same = !strncmp(autop, "SAME", 4);
        if ((shape && (int)n_shape >= n) || same) { /* the padding follows from the wanted size */
            out = shape && (int)n_shape >= n ? shape[n_shape - (size_t)n + (size_t)i] : x.dims[i + 2] * stride[i];
            int64_t total = full - out > 0 ? full - out : 0;
            pads[i] = !strcmp(autop, "SAME_UPPER") || !same ? total / 2 : total - total / 2;
            if (!same)
                pads[i] = total - total / 2 == total / 2 ? total / 2 : total / 2;
        }
        if (out < 0 || __builtin_mul_overflow(out_count, out, &out_count))
            return eng_op_fail(c, PST_EINVAL, "bad output size");
        dims[i + 2] = out;
        in_count *= x.dims[i + 2];
        k_count *= wt.dims[i + 2];
    }
    if ((rc = eng_op_work(c, (double)in_count * (double)(eng_count(&wt) + k_count) * (double)(x.dims[0] + 1))) < 0)
        return rc;
    float *y = eng_out(c, 0, PST_F32, x.rank, dims);
    if (!y)
        return PST_ELIMIT;
    if (!x.dims[0] || !m) /* the loops below go over places first */
        return 0;
    for (int64_t i = 0, total = x.dims[0] * m * out_count; i < total; i++)
        y[i] = b ? ((const float *)b->data)[i / out_count % m] : 0;
    int64_t mg = wt.dims[1];
    for (int64_t p = 0; p < in_count; p++)
        for (int64_t k = 0; k < k_count; k++) {
            int64_t at = 0, step = 1, pi = p, ki = k;
            for (int i = n - 1; i >= 0 && at >= 0; i--) {
                int64_t v = pi % x.dims[i + 2] * stride[i] + ki % wt.dims[i + 2] * dil[i] - pads[i];
                at = v < 0 || v >= dims[i + 2] ? -1 : at + v * step;
                step *= dims[i + 2];
                pi /= x.dims[i + 2];
                ki /= wt.dims[i + 2];
            }
            if (at < 0)
                continue;
            for (int64_t s = 0; s < x.dims[0]; s++)
                for (int64_t ci = 0; ci < wt.dims[0]; ci++) {
                    float v = ((const float *)x.data)[(s * wt.dims[0] + ci) * in_count + p];
                    const float *wk = (const float *)wt.data + ci * mg * k_count + k;
                    float *to = y + (s * m + ci / cg * mg) * out_count + at;
                    for (int64_t mi = 0; mi < mg; mi++)
                        to[mi * out_count] += v * wk[mi * k_count];
                }
        }
    return 0;
}

/* ---- integers ---- */

/* Zero point of input i for channel k: scalar or one per channel; 0 when not given. */
static int32_t zero_of(const eng_op_ctx *c, int i, int64_t k)
{
    const pst_tensor *t = eng_in(c, i);
    int64_t v = 0, n = t ? eng_count(t) : 0;
    if (n)
        eng_convert(PST_I64, &v, t->dtype, (const char *)t->data + (n > 1 ? k % n : 0), 1, true);
    return (int32_t)v;
}

static bool is_byte(const pst_tensor *t)
{
    return t->dtype == PST_U8 || t->dtype == PST_I8;
}

static int64_t byte_at(const pst_tensor *t, int64_t i)
{
    return t->dtype == PST_U8 ? ((const uint8_t *)t->data)[i] : ((const int8_t *)t->data)[i];
}

/* By the kernels: g has what becomes of the sums. */
static int conv_int8(eng_op_ctx *c, const pst_tensor *x, const pst_tensor *wt, int zx_at, int zw_at, const eng_window *w, eng_int8_conv *g)
{
    const pst_tensor *tw = eng_in(c, zw_at);
    int64_t n_zw = tw && eng_count(tw) > 1 ? wt->dims[0] : 1;
    int32_t *zw = eng_op_scratch(c, (size_t)n_zw * sizeof *zw);
    if (!zw)
        return PST_ELIMIT;
    for (int64_t q = 0; q < n_zw; q++)
        zw[q] = zero_of(c, zw_at, q);
    g->x = x;
    g->w = wt;
    g->window = w;
    g->zx = zero_of(c, zx_at, 0);
    g->zw = zw;
    g->n_zw = n_zw;
    g->groups = eng_attr_int(c->node, "group", 1);
    return eng_int8_conv_run(c, g);
}

static bool for_kernels(const eng_op_ctx *c, const pst_tensor *x, const pst_tensor *wt, const eng_window *w)
{
    return !c->plan->opts.no_fusion && x->dims[0] && w->out_count && eng_count(wt) && eng_count(wt) <= INT_MAX / 4;
}

static int check_zeros(eng_op_ctx *c, const pst_tensor *x, int zx_at, const pst_tensor *w, int zw_at)
{
    const pst_tensor *tx = eng_in(c, zx_at), *tw = eng_in(c, zw_at);
    if ((tx && tx->dtype != x->dtype) || (tw && tw->dtype != w->dtype)) /* zero_of steps by bytes */
        return eng_op_fail(c, PST_EINVAL, "a zero point that is not of its input's type");
    return 0;
}

/* acc (N, M, out) = Σ (x - zx)(w - zw) + bias by loops; zx_at and zw_at name the zero point inputs. */
static void conv_int(eng_op_ctx *c, const pst_tensor *x, const pst_tensor *wt, int zx_at, int zw_at, const int32_t *bias,
                     const eng_window *w, int32_t *acc)
{
    int64_t groups = eng_attr_int(c->node, "group", 1), m = wt->dims[0], cg = wt->dims[1], mg = m / groups;
    int32_t zx = zero_of(c, zx_at, 0);
    for (int64_t n = 0; n < x->dims[0]; n++)
        for (int64_t q = 0; q < m; q++) {
            int32_t zw = zero_of(c, zw_at, q);
            for (int64_t o = 0; o < w->out_count; o++) {
                int64_t s = bias ? bias[q] : 0;
                for (int64_t k = 0; k < w->k_count; k++) {
                    int64_t at = eng_window_at(w, o, k);
                    for (int64_t ch = 0; ch < cg && at >= 0; ch++)
                        s += (byte_at(x, (n * x->dims[1] + q / mg * cg + ch) * w->in_count + at) - zx) *
                             (byte_at(wt, (q * cg + ch) * w->k_count + k) - zw);
                }
                acc[(n * m + q) * w->out_count + o] = (int32_t)s;
            }
        }
}

int eng_op_conv_integer(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 2);
    if (rc < 0)
        return rc;
    pst_tensor x = *eng_in(c, 0), wt = *eng_in(c, 1);
    eng_window w;
    if ((rc = check_conv(c, &x, &wt)) < 0 || (rc = eng_window_of(c, &x, wt.dims + 2, &w)) < 0 || (rc = conv_work(c, &x, &wt, &w)) < 0)
        return rc;
    if (!is_byte(&x) || !is_byte(&wt))
        return eng_op_type(c, x.dtype);
    int64_t dims[PST_MAX_RANK] = {x.dims[0], wt.dims[0]};
    memcpy(dims + 2, w.out, (size_t)w.n * sizeof *dims);
    if ((rc = check_zeros(c, &x, 2, &wt, 3)) < 0)
        return rc;
    int32_t *y = eng_out(c, 0, PST_I32, x.rank, dims);
    if (!y)
        return PST_ELIMIT;
    if (for_kernels(c, &x, &wt, &w))
        return conv_int8(c, &x, &wt, 2, 3, &w, &(eng_int8_conv){.y = y});
    conv_int(c, &x, &wt, 2, 3, NULL, &w, y);
    return 0;
}

int eng_prepare_conv_integer(eng_op_ctx *c)
{
    return eng_int8_conv_prepare(c, 1);
}

int eng_prepare_qlinear_conv(eng_op_ctx *c)
{
    return eng_int8_conv_prepare(c, 3);
}

/* By loops, through the sums of the whole result. */
static int conv_by_loops(eng_op_ctx *c, const pst_tensor *x, const pst_tensor *wt, const eng_window *w, const eng_int8_conv *g, int64_t n)
{
    if (n < 0 || (uint64_t)n > c->plan->m->limits.tensor_bytes_max / 4)
        return eng_op_fail(c, PST_ELIMIT, "too large");
    int32_t *acc = eng_op_scratch(c, (size_t)n * sizeof *acc);
    if (!acc)
        return PST_ELIMIT;
    conv_int(c, x, wt, 2, 5, g->bias, w, acc);
    for (int64_t q = 0, planes = w->out_count ? n / w->out_count : 0; q < planes; q++)
        eng_int8_portable.requantise(w->out_count, acc + q * w->out_count, g->scale + q % wt->dims[0], 0, g->zero, g->lo,
                                     g->bytes + q * w->out_count);
    if (g->fused)
        eng_int8_cut(g->fused, g->lo, n, g->bytes);
    return 0;
}

/* (x, scale, zero, w, scale, zero, the result's scale, zero); fused: what else becomes of it, NULL = a node of the file. */
static int conv_bytes(eng_op_ctx *c, const pst_tensor *bias, const eng_int8_fused *fused)
{
    static const int needed[] = {0, 1, 3, 4, 6, 7};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!eng_in(c, needed[i]))
            return eng_op_fail(c, PST_EINVAL, "input %d is missing", needed[i]);
    pst_tensor x = *eng_in(c, 0), wt = *eng_in(c, 3), zy = *eng_in(c, 7);
    const pst_tensor *sw = eng_in(c, 4);
    double sx, sy;
    eng_window w;
    int rc;
    if ((rc = check_conv(c, &x, &wt)) < 0 || (rc = eng_window_of(c, &x, wt.dims + 2, &w)) < 0 || (rc = conv_work(c, &x, &wt, &w)) < 0 ||
        (rc = eng_in_scalar(c, 1, &sx)) < 0 || (rc = eng_in_scalar(c, 6, &sy)) < 0 || (rc = check_zeros(c, &x, 2, &wt, 5)) < 0)
        return rc;
    int64_t dims[PST_MAX_RANK] = {x.dims[0], wt.dims[0]}, m = wt.dims[0], n_sw = eng_count(sw);
    if (!is_byte(&x) || !is_byte(&wt) || !is_byte(&zy) || (bias && (bias->dtype != PST_I32 || eng_count(bias) != m)) ||
        sw->dtype != PST_F32 || (n_sw != 1 && n_sw != m))
        return eng_op_fail(c, PST_EINVAL, "types or scales do not fit");
    memcpy(dims + 2, w.out, (size_t)w.n * sizeof *dims);
    float *scale = eng_op_scratch(c, (size_t)(m + 1) * sizeof *scale);
    uint8_t *y = eng_out(c, 0, zy.dtype, x.rank, dims);
    if (!scale || !y)
        return PST_ELIMIT;
    for (int64_t q = 0; q < m; q++) /* in float32, as ONNX Runtime has it */
        scale[q] = (float)sx * ((const float *)sw->data)[n_sw == 1 ? 0 : q] / (float)sy;
    eng_int8_conv g = {.bias = fused  ? fused->sums_bias
                               : bias ? bias->data
                                      : NULL,
                       .bytes = y,
                       .scale = scale,
                       .zero = zero_of(c, 7, 0),
                       .lo = zy.dtype == PST_U8 ? 0 : -128,
                       .fused = fused};
    if (for_kernels(c, &x, &wt, &w))
        return conv_int8(c, &x, &wt, 2, 5, &w, &g);
    return conv_by_loops(c, &x, &wt, &w, &g, eng_dims_count(dims, x.rank));
}

int eng_op_qlinear_conv(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 8);
    return rc < 0 ? rc : conv_bytes(c, eng_in(c, 8), NULL);
}

int eng_prepare_quantised_conv(eng_op_ctx *c)
{
    return eng_int8_conv_prepare(c, 3);
}

int eng_op_quantised_conv(eng_op_ctx *c)
{
    return conv_bytes(c, NULL, c->node->fused);
}
