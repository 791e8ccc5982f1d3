/* conv_columns.c - the general convolution: the columns that a group of an image needs are gathered (im2col) and multiplied by the weights. It takes any
 * number of dimensions and is the twin that the faster ones are compared with. */
#include "engine/ops/conv_columns.h"

#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"
#include "engine/ops/conv_fast.h"
#include "engine/plan.h"

#include <limits.h>
#include <string.h>

/* The columns one group of one image needs: (channels · k_count, out_count), zero in the padding. */
static void columns(const eng_window *w, const float *x, int64_t channels, float *col)
{
    int last = w->n - 1;
    int64_t ow = w->out[last], rows = ow ? w->out_count / ow : 0;
    for (int64_t k = 0; k < w->k_count; k++) {
        int64_t kx = k % w->k[last], x0 = kx * w->dil[last] - w->pad[last];
        for (int64_t r = 0; r < rows; r++) {
            /* where this row of outputs reads; -1: all padding */
            int64_t base = 0, step = w->in[last], o = r, kk = k / w->k[last];
            for (int i = last - 1; i >= 0; i--) {
                int64_t v = o % w->out[i] * w->stride[i] + kk % w->k[i] * w->dil[i] - w->pad[i];
                base = v < 0 || v >= w->in[i] || base < 0 ? -1 : base + v * step;
                step *= w->in[i];
                o /= w->out[i];
                kk /= w->k[i];
            }
            for (int64_t ch = 0; ch < channels; ch++) {
                float *to = col + (ch * w->k_count + k) * w->out_count + r * ow;
                const float *from = x + ch * w->in_count + base;
                if (base < 0) {
                    memset(to, 0, (size_t)ow * sizeof *to);
                    continue;
                }
                for (int64_t i = 0; i < ow; i++) {
                    int64_t v = x0 + i * w->stride[last];
                    to[i] = v >= 0 && v < w->in[last] ? from[v] : 0;
                }
            }
        }
    }
}

static int submit(eng_op_ctx *c, void *state, const eng_node_call *call)
{
    const pst_tensor *x = call->x, *wt = call->w;
    const float *bias = call->bias;
    const eng_window *w = call->window;
    const eng_cpu_kernels *kn = eng_kernels_pick(c->plan->isa);
    float *y = call->y;
    int64_t groups = eng_attr_int(c->node, "group", 1), m = wt->dims[0], cg = wt->dims[1], mg = m / groups, depth = cg * w->k_count;
    if (call->pool)
        return 1;
    bool direct = w->k_count == 1 && w->in_count == w->out_count; /* 1×1: the image is its own columns */
    for (int i = 0; i < w->n; i++)
        direct &= !w->pad[i] && w->stride[i] == 1;
    if (depth > INT_MAX || w->out_count > INT_MAX || mg > INT_MAX ||
        (uint64_t)depth * (uint64_t)w->out_count > c->plan->m->limits.tensor_bytes_max / 4)
        return eng_op_fail(c, PST_ELIMIT, "too large");
    float *col = direct ? NULL : eng_op_scratch(c, (size_t)(depth * w->out_count) * sizeof *col);
    if (!direct && !col)
        return PST_ELIMIT;
    for (int64_t n = 0; n < x->dims[0]; n++)
        for (int64_t g = 0; g < groups; g++) {
            int rc = eng_op_pause(c);
            if (rc < 0)
                return rc;
            const float *in = (const float *)x->data + (n * x->dims[1] + g * cg) * w->in_count;
            float *out = y + (n * m + g * mg) * w->out_count;
            if (!direct && cg) /* without channels a kernel may be as large as it likes */
                columns(w, in, cg, col);
            for (int64_t i = 0; i < mg * w->out_count; i++)
                out[i] = bias ? bias[g * mg + i / w->out_count] : 0;
            eng_sgemm_isa(kn, false, false, (int)mg, (int)w->out_count, (int)depth, 1, (const float *)wt->data + g * mg * depth, (int)depth,
                          direct ? in : col, (int)w->out_count, 1, out, (int)w->out_count);
        }
    return 0;
}

static bool supports(const eng_op_ctx *c)
{
    return true;
}

/* Columns are written and read once more, and their product is cut into blocks: measured 1.4 to 2 times the tiles' time. */
static eng_node_cost cost(const eng_op_ctx *c)
{
    return (eng_node_cost){.place_ns = 1.8 * eng_conv_fast_place_ns(c)};
}

const eng_node_backend eng_conv_columns_backend = {
    .name = "columns and gemm", .op = "Conv", .supports = supports, .cost = cost, .submit = submit};
