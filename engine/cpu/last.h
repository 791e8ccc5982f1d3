/* last.h - kernels of images whose channels lie side by side ("channels last"); see last.inc.h. @thread any, pure functions.
 *
 * A pixel is `ld` floats, whole vectors: channels, then anything. Numbers behind the channels are read and written like the others and never
 * reach them. Every result is one sum in one order, the same however pixels are shared among calls. */
#ifndef PST_ENGINE_CPU_LAST_H
#define PST_ENGINE_CPU_LAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Behind a sum. Sigmoids are left to whoever holds many results: several vectors side by side cost a third. */
typedef struct eng_last_end {
    int act; /* eng_act, of ENG_LAST_INSIDE */
    float alpha, beta;
} eng_last_end;

/* c (m, n) = act(a (m, k) · w + bias + add) */
typedef struct eng_last_layer {
    int m, n, k;
    const float *a;
    ptrdiff_t lda;
    const float *w;    /* panels of nr columns (eng_sgemm_pack) */
    const float *bias; /* up to whole panels */
    const float *add;  /* lies like c; NULL = none */
    float *c;
    ptrdiff_t ldc;
    eng_last_end end;
} eng_last_layer;

/* Pixels [from, to) of the results of a convolution of g: for each, what it reads, `depth` numbers (kh, kw, channels), zeros where that is padding.
 * Up to 16 numbers behind are written and read. */
typedef struct eng_last_gather {
    int64_t from, to;
    int out_count; /* pixels of an image */
    int channels;
    ptrdiff_t image; /* floats from one image to the next */
    float *y;
    ptrdiff_t ldy;
} eng_last_gather;

/* Windows over an image: one filter a channel, or a pool. */
typedef struct eng_last_window {
    int in_h, in_w, out_w, kh, kw, sh, sw, dh, dw, pt, pl;
    int from, to; /* rows of results */
    ptrdiff_t ld;
    const float *x, *w, *bias; /* w (kh · kw, ld) and bias (ld): of filters */
    float *y;                  /* row 0 of the results */
    bool max, whole;           /* of pools; whole: a mean counts the padding, but for what only ceil_mode reaches */
    int pb, pr;                /* padding behind, for that */
    eng_last_end end;          /* of filters */
} eng_last_window;

#endif
