/* conv_image.h - the padded image that convolutions by register tiles read. @thread the plan's */
#ifndef PST_ENGINE_OPS_CONV_IMAGE_H
#define PST_ENGINE_OPS_CONV_IMAGE_H

#include "engine/ops/window.h"

/* One or two dimensions. The image may be split into phases: of stride 2, even and odd columns (and rows) lie apart. */
typedef struct eng_conv_image {
    int64_t in_h, in_w, out_h, out_w, kh, kw, dh, dw, pt, pl;
    int64_t sh, sw;         /* phases; 1 = not split */
    int64_t qh, qw;         /* of one phase of the padded image */
    int64_t channel, image; /* floats */
} eng_conv_image;

/* False for what is left to the general way: more dimensions, or sizes beyond 32-bit offsets. */
bool eng_conv_image_plan(const eng_window *w, int64_t channels, bool split, eng_conv_image *ret);
/* Where each kernel position lies for output 0, in the order of the weights: channel, ky, kx. */
void eng_conv_image_offsets(const eng_conv_image *g, int64_t channels, int32_t *off);
/* x (channels, in…) into `to`, where all padding is 0 already. */
void eng_conv_image_fill(const eng_conv_image *g, const float *x, int64_t channels, float *to);
/* Whether what follows can be applied while the result (images, m, out…) is written: a residual must have its shape. */
bool eng_conv_takes(const eng_epilogue *e, int64_t images, int64_t m, const eng_window *w);

#endif
