/* dnnl_conv.h - large convolutions by oneDNN (libdnnl 2.x), where it is there and pays; our own kernel is the fallback and the twin.
 *
 * Built only with PST_WITH_DNNL and its header; the library is opened when the first convolution wants it (2 to 5 ms, 4 MB), so no process
 * pays that only links the engine. Debian's libdnnl computes with OpenMP: the calling thread is set to one OpenMP thread
 * while primitives are made and run, and then back, which touches no other thread and no environment. Source of the interface: oneDNN 2.6, the C API.
 * @thread the plan's */
#ifndef PST_ENGINE_DNNL_CONV_H
#define PST_ENGINE_DNNL_CONV_H

#include "engine/plan.h"

/* One image, one group. */
typedef struct eng_dnnl_shape {
    int64_t c, h, w, m, kh, kw, oh, ow, sh, sw, dh, dw, pad_top, pad_left, pad_bottom, pad_right;
    int64_t bias, relu; /* whether */
} eng_dnnl_shape;

typedef struct eng_dnnl_conv eng_dnnl_conv;

/* Shapes for which it was measured to be faster, with both copies into its own layouts counted (tests/bench/RESULTS.md). */
bool eng_dnnl_pays(const eng_dnnl_shape *s);
/* y (n, m, oh, ow) of x (n, c, h, w). *state: NULL at first, of the plan's life; the weights must stay the same. 0, an error, or
 * 1 = oneDNN is not there or has no kernel for it: nothing was done. */
int eng_dnnl_conv_run(eng_op_ctx *c, eng_dnnl_conv **state, const eng_dnnl_shape *s, const float *w, const float *bias, int64_t n,
                      const float *x, float *y);

#endif
