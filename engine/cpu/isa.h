/* isa.h - which vector kernels this CPU gets. @thread any. */
#ifndef PST_ENGINE_CPU_ISA_H
#define PST_ENGINE_CPU_ISA_H

#include "engine/cpu/last.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One dense layer or one elementwise step of a fused network; see tile.inc.h. */
typedef enum {
    ENG_ACT_NONE,
    ENG_ACT_RELU,
    ENG_ACT_LEAKY,
    ENG_ACT_ELU,
    ENG_ACT_SIGMOID,
    ENG_ACT_TANH,
    ENG_ACT_CLIP,        /* to [alpha, beta]; NaN stays */
    ENG_ACT_HARDSIGMOID, /* alpha · x + beta, to [0, 1] */
    ENG_ACT_HARDSWISH,   /* x times that of x / 6 + 1/2 */
    ENG_ACT_SWISH,       /* x · sigmoid(alpha · x); alpha 1: SiLU */
    ENG_ACT_LAST = ENG_ACT_SWISH
} eng_act;
typedef enum { ENG_FUSED_DENSE, ENG_FUSED_ADD, ENG_FUSED_SUB, ENG_FUSED_MUL, ENG_FUSED_DIV, ENG_FUSED_ACT } eng_fused_kind;

typedef struct eng_fused_step {
    eng_fused_kind kind;
    eng_act act;       /* applied last */
    float alpha, beta; /* of the activation */
    int in, out;       /* widths */
    const float *w;    /* DENSE: panels of nr columns, panel p at w + p·in·nr, row-major (in, nr), zero padded */
    const float *v;    /* DENSE: bias; others: the operand; padded to whole panels */
} eng_fused_step;

/* c (m, n) = alpha · a · b, or c += …. b: panels of nr columns, panel p at b + p·bps, the next k after brs; so packed panels (brs = nr) and
 * a matrix as it lies (brs = its row stride, bps = nr) are read alike. tail: the last panel when n is no multiple of nr and b ends there;
 * NULL when b is padded. a: strides ars and acs, or packed in the tiles of eng_tile_rows(), each (k, rows). */
typedef struct eng_block {
    int m, n, k;
    const float *a;
    ptrdiff_t ars, acs;
    bool a_packed;
    const float *b, *tail;
    ptrdiff_t brs, bps;
    float alpha;
    bool add;
    float *c;
    ptrdiff_t ldc;
    const int32_t *off; /* of conv: where each k of b lies */
} eng_block;

/* Rows of a convolution with the filters in the lanes. Pixel i of row r, filter f: y[r·ldy + i·m' + f] = bias[f] + Σ over k of
 * w[k][f] · x[r·ldx + i·step + off[k]], Relu if wanted; m' is m up to whole vectors, and so many numbers are written. w: panels of nr
 * filters (eng_sgemm_pack); bias: up to whole panels. */
typedef struct eng_conv_rows {
    int rows, n, m, k;
    const float *x;
    ptrdiff_t ldx, step;
    const int32_t *off;
    const float *w, *bias;
    bool relu;
    float *y;
    ptrdiff_t ldy;
} eng_conv_rows;

/* Rows of tile i when m rows are shared evenly among tiles: 8 rows are 4 + 4, not 6 + 2. */
static inline int eng_tile_rows(int m, int tiles, int i)
{
    return m / tiles + (i < m % tiles);
}

/* Rows of a fused network that go through all layers together: two blocks of activations take about half of L1. */
static inline int eng_mlp_rows(int mr, int ld)
{
    int n = 2048 / ld / mr;
    return mr * (n < 2 ? 2 : n > 16 ? 16 : n);
}

/* A loop that vanishes: only then do small arrays become registers. */
#if defined(__clang__)
#define ENG_UNROLLED(i, from, to) _Pragma("clang loop unroll(full)") for (int i = from; i < (to); i++)
#else
#define ENG_UNROLLED(i, from, to) _Pragma("GCC unroll 64") for (int i = from; i < (to); i++)
#endif

/* The vector form of a tree works on 64 rows at once, one byte a row. A split is x[col] <= rank ? yes : no, ranks offset by 128; col counts
 * 64 bytes into the ranks. Results stand in the work area, which starts with 256 leaf numbers (64 copies each). */
#define ENG_TREE_ROWS 64

/* A split of results: yes and no count 64 bytes into the work area. */
typedef struct eng_tree_code {
    int8_t rank;
    uint16_t col, yes, no;
} eng_tree_code;

/* A complete tree of one, two or three levels: its splits in level order, its leaves numbered from `leaf` on, yes before no. */
typedef struct eng_tree_bush {
    int8_t rank[7];
    uint8_t leaf;
    uint16_t col[7];
} eng_tree_bush;

/* First n_bushes[k] bushes of k + 1 levels each, then n splits, children before parents; each writes the next place behind the leaf
 * numbers, and the last one is the tree's leaf. */
typedef struct eng_tree_program {
    const eng_tree_bush *bushes;
    const eng_tree_code *code;
    int32_t n_bushes[3], n;
} eng_tree_program;

/* How many thresholds lie below a number: its bucket (a monotone function of it) says how many at least, then a search of few steps. */
typedef struct eng_rank_table {
    float from, scale; /* bucket = (x - from) · scale, cut to 0…last; of the number's bits in order where by_bits */
    bool by_bits;
    int32_t last, steps;   /* 2^steps - 1 thresholds at most lie in a bucket */
    const uint16_t *below; /* thresholds below those of a bucket */
    const float *tf;       /* one of the two: thresholds in order, 2^steps infinities behind them */
    const double *td;
} eng_rank_table;

/* One step of LSTM cells: the gates of rows as bias + x·w, then the cells from what is in L1. x (rows, k): input and state side by side;
 * w: panels of nr columns as in eng_block, panel p at w + p·k·nr, columns and signs as the lstm kernel has them; h may not be in x. */
typedef struct eng_lstm_step {
    int rows, units, k;
    const float *x, *w, *bias;
    ptrdiff_t ldx, ldc, ldh;
    float *c, *h;
} eng_lstm_step;

/* The kernels of one instruction set. Tiles are mr × nr; a vector has so many lanes. */
typedef struct eng_cpu_kernels {
    const char *isa;
    int mr, nr, lanes;
    bool (*supported)(void);
    void (*block)(const eng_block *g);
    /* c (m, n) = a · b, a packed (eng_sgemm_pack_left), b[k][j] at b + off[k] + j, read and c written up to a multiple of nr */
    void (*conv)(const eng_block *g);
    void (*conv_rows)(const eng_conv_rows *g);
    /* What conv_rows has written. Windows of kh × kw pixels, rows ld apart, the next one `step` pixels on: n pixels, the largest of each
     * filter, NaN above all. m: numbers of a pixel, whole vectors. */
    void (*pool_rows)(int n, int m, const float *from, ptrdiff_t ld, int kh, int kw, int step, float *to);
    /* n pixels, ldfrom apart, to m planes, ldto apart: to = from + add, Relu if wanted; add (NULL = none) lies like to. 8 pixels may be read */
    void (*turn)(int n, int m, const float *from, ptrdiff_t ldfrom, const float *add, bool relu, float *to, ptrdiff_t ldto);
    /* to (rows, n) = from + bias + add, Relu if wanted; add (NULL = none) has to's stride; from is read up to whole vectors */
    void (*plane)(int rows, int n, const float *from, ptrdiff_t ldfrom, float bias, const float *add, bool relu, float *to, ptrdiff_t ldto);
    /* x (rows, in) → y (rows, out); work: eng_mlp_work_floats() floats, 64-byte aligned */
    void (*mlp)(const eng_fused_step *steps, int n_steps, int width, const float *x, size_t rows, float *y, float *work);
    /* LSTM cells with sigmoid and tanh, for whole vectors of units. g (rows, units / lanes, i o f c, lanes): the gates before their
     * activations, i, o and f negated, c doubled; c and h (rows, units) are updated, g is overwritten. */
    void (*lstm)(int rows, int units, float *g, ptrdiff_t ldg, float *c, ptrdiff_t ldc, float *h, ptrdiff_t ldh);
    void (*lstm_step)(const eng_lstm_step *s);
    /* h = (1 - z)·tanh(x + r·s) + z·h; r NULL: without the second term */
    void (*gru)(int n, const float *z, const float *x, const float *r, const float *s, float *h);
    /* For pools: to[i] = the largest (NaN above all) or the sum of from[i·step + j·apart], j < k; to is not from. roomy: two vectors behind
     * the last number may be read */
    void (*gather)(bool max, int64_t n, int k, const float *from, int64_t apart, int64_t step, float *to, bool roomy);
    float (*dot)(const float *a, const float *b, int n);
    /* Leaf numbers of 64 rows → leaf. */
    void (*tree)(const eng_tree_program *p, const int8_t *ranks, int8_t *work, uint8_t *leaf);
    /* Ranks of 64 numbers; true when one of them is NaN, whose rank says nothing. */
    bool (*rank_f)(const eng_rank_table *t, const float *x, int32_t *rank);
    bool (*rank_d)(const eng_rank_table *t, const double *x, int32_t *rank);
    /* Ranks from `from` on as bytes, cut to 0…255 and offset by 128. */
    void (*rank_bytes)(const int32_t *rank, int32_t from, int8_t *to);
    void (*act)(eng_act act, float alpha, float beta, const float *x, float *y, size_t n); /* y may be x */
    /* Images with their channels in the lanes (last.h). gather: see there. depth: rows of results of one filter a channel. mean: of n pixels. mix: n pixels, the
     * sum of two or their product, b being one pixel where `one`; y may be a. */
    void (*last_layer)(const eng_last_layer *l);
    void (*last_gather)(const eng_last_window *g, const eng_last_gather *to);
    void (*last_depth)(const eng_last_window *g);
    void (*last_pool)(const eng_last_window *g);
    void (*last_mean)(int64_t n, ptrdiff_t ld, const float *x, float *y);
    void (*last_mix)(bool mul, int64_t n, ptrdiff_t ld, const float *a, const float *b, bool one, const eng_last_end *e, float *y);
} eng_cpu_kernels;

static inline size_t eng_mlp_work_floats(const eng_cpu_kernels *k, int width)
{
    int ld = (width + k->nr - 1) / k->nr * k->nr;
    return 2 * (size_t)eng_mlp_rows(k->mr, ld) * (size_t)ld;
}

extern const eng_cpu_kernels eng_kernels_portable, eng_kernels_avx2, eng_kernels_avx512;

/* The wanted one; without one (NULL) what PENSTOCK_ISA names, else the best of this CPU. NULL when this CPU lacks it, the name is unknown, or
 * its kernels do not give what the portable ones give; they are compared once, before an instruction set is first used. */
const eng_cpu_kernels *eng_kernels_pick(const char *want);
const char *eng_isa_pick(const char *want);
/* Of a name for which there is nothing: the reason. */
const char *eng_isa_why_not(const char *want);
/* Never NULL: by default, and when what is wanted cannot be had, the best. */
const eng_cpu_kernels *eng_kernels_default(void);
/* What PENSTOCK_ISA names, known or not; NULL = nothing. */
const char *eng_isa_asked(void);
/* No other of this CPU is better, be it used or not. */
bool eng_isa_is_best(const char *isa);

struct eng_tile_kernels;
/* For tests, while nothing runs: other tables in the place of those of cpu->isa, to be compared again; not of portable. */
void eng_isa_replace(const eng_cpu_kernels *cpu, const struct eng_tile_kernels *tile);

#endif
