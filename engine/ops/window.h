/* window.h - the geometry that convolutions and pools share: any number of spatial dimensions. */
#ifndef PST_ENGINE_OPS_WINDOW_H
#define PST_ENGINE_OPS_WINDOW_H

#include "engine/ops/ops.h"

#define ENG_WINDOW_DIMS 6

typedef struct eng_window {
    int n;
    int64_t in[ENG_WINDOW_DIMS], out[ENG_WINDOW_DIMS], k[ENG_WINDOW_DIMS], stride[ENG_WINDOW_DIMS], dil[ENG_WINDOW_DIMS],
        pad[ENG_WINDOW_DIMS], pad_end[ENG_WINDOW_DIMS];
    int64_t in_count, out_count, k_count;
} eng_window;

/* From the attributes of the node: kernel_shape (or kernel), strides, dilations, pads, auto_pad, ceil_mode. x is (N, C, D1 …). */
int eng_window_of(eng_op_ctx *c, const pst_tensor *x, const int64_t *kernel, eng_window *w);
/* Input offset (within one channel) that output o and kernel position k touch; -1 in the padding. */
static inline int64_t eng_window_at(const eng_window *w, int64_t o, int64_t k)
{
    int64_t at = 0, step = 1;
    for (int i = w->n - 1; i >= 0; i--) {
        int64_t v = o % w->out[i] * w->stride[i] + k % w->k[i] * w->dil[i] - w->pad[i];
        if (v < 0 || v >= w->in[i])
            return -1;
        at += v * step;
        step *= w->in[i];
        o /= w->out[i];
        k /= w->k[i];
    }
    return at;
}

#endif
