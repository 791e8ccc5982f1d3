/* net.h - dense networks in the form that a device has: one block of bytes, the image, that goes over in one copy, and a head that says where
 * what is in it. Not installed. net_lower.c makes it of a graph, net.cu runs it.
 *
 * A network here is a program over rows: operations (eng_cuda_net_op) that read one vector of a row and write another, one behind the other.
 *
 *     x ─ each ─> scaled ─ dense ─> h ─ dense ─> y' ─ reduce ─> error        each:   stages alone, number by number
 *          └ stages: - mean, / scale  └ stages: + bias, relu   └ stages: …    dense:  y = x W
 *                                                                            reduce, softmax, norm: over the row
 *
 * What acts on single numbers is no operation of its own: whatever writes a number sends it through its stages first (bias, activation, a
 * vector of the model, or another vector of the same row: a residual, or the input that an autoencoder's result is taken from). So the scaling
 * of features is in the first operation, activations cost no pass over memory, and a reconstruction error never leaves the kernel.
 *
 * Vectors live in slots. Three places: the caller's rows (IN), the caller's results (OUT), and between them. There are two ways to run:
 *
 *   near   All operations in one kernel. A block takes a tile of 32, 16 or 8 rows through the whole program; what is between lies in shared
 *          memory, and so do the weights where there is room for them; blocks go on to further tiles with the weights that they have. A thread
 *          has a column and eight rows: a weight that was read is used eight times from a register, a row's number is read by all lanes at once.
 *          For nets that are narrow (a row's vectors fit shared memory eight times) and small (weights that a cache holds).
 *   far    A launch an operation; what is between lies in memory of the device. Products run tile by tile, 64 rows by 64 columns by 16 of the
 *          inner dimension, both sides through shared memory, 16 sums a thread; stages are their epilogue. For everything larger.
 *
 * Numbers. float32 throughout, no TF32. A product's sum is one chain of fused multiply-adds from 0 in the order of the inner dimension, in both
 * ways, whatever the tile: a row's result has the same bits alone and among others, in every order of threads, near and far. Sums over a row
 * (reduce, softmax, norm) are in double: 32 partial sums, lane by lane, then halves onto halves. So results differ from the CPU's by the
 * order of a product's sums and by the last places of exp, tanh, erf and log:
 *
 *     operation                              against the plain C of the CPU, of float32 input that is the same
 *     product of K terms                     K ε Σ|x w|, ε = 2^-24: at most one rounding a term on either side
 *     + - * / min max abs neg sqrt clip      0: each is one rounding, or none
 *     relu, leaky relu, prelu, square, floor 0
 *     exp log erf tanh sigmoid softplus …    4 units in the last place of the result, or of its largest term (1 + tanh)
 *     pow                                    16 units
 *     reduce, softmax, norm                  4 units: sums in double on both sides
 *
 * A network's result has no bound of its own: weights may make small differences large. A plan is held against the CPU on rows made up for it
 * when it is made, and not used where it differs by more than ENG_CUDA_NET_TOLERANCE of what its results' largest is.
 *
 * Not measured on any device so far: tile sizes and limits are estimates. Alternatives left out: cuBLASLt (half a gigabyte for what one
 * loop does), tensor cores in TF32 (three digits of the numbers are lost), a kernel compiled for each model (a compiler at run time). */
#ifndef PST_ENGINE_CUDA_NET_H
#define PST_ENGINE_CUDA_NET_H

#include "engine/cuda/part.h"
#include "engine/fuse_tile.h"

enum {
    ENG_CUDA_NET_OPS = 96,      /* at most */
    ENG_CUDA_NET_THREADS = 128, /* a block, near */
    ENG_CUDA_NET_ROWS = 32,     /* a tile, near: this, or half, or a quarter */
    ENG_CUDA_NET_AT_ONCE = 8,   /* rows of a thread, near: a tile has a multiple of it */
    ENG_CUDA_NET_BLOCKS = 528,  /* near, at most: each goes on to further tiles */
    ENG_CUDA_NET_SHARED = 48 << 10,
    ENG_CUDA_NET_NEAR_WEIGHTS = 256 << 10, /* bytes of all numbers of a near net */
};
#define ENG_CUDA_NET_TOLERANCE 1e-4

typedef enum {
    ENG_CUDA_NET_EACH,  /* the stages alone; n_in is n_out, or 1: the same number for all */
    ENG_CUDA_NET_DENSE, /* x W */
    ENG_CUDA_NET_SUM,   /* over the row, of map(x): one number */
    ENG_CUDA_NET_MEAN,
    ENG_CUDA_NET_MAX,
    ENG_CUDA_NET_MIN,
    ENG_CUDA_NET_SOFTMAX,
    ENG_CUDA_NET_LOGSOFTMAX,
    ENG_CUDA_NET_NORM, /* (x - mean) / sqrt(variance + epsilon) */
    ENG_CUDA_NET_RMS,  /* x / sqrt(mean of squares + epsilon) */
} eng_cuda_net_kind;

/* Codes of stages besides those of fuse_tile.h. b: the operand. */
enum {
    ENG_CUDA_NET_FROM = ENG_TILE_CODES, /* b - x */
    ENG_CUDA_NET_UNDER,                 /* b / x */
    ENG_CUDA_NET_IMPUTE,                /* b where x is alpha, or both are NaN */
    ENG_CUDA_NET_SELU,                  /* alpha, beta: gamma */
    ENG_CUDA_NET_CELU,
    ENG_CUDA_NET_MISH,
    ENG_CUDA_NET_THRESHOLD, /* x > alpha ? x : 0 */
    ENG_CUDA_NET_SIGN,
    ENG_CUDA_NET_CODES,
};

typedef enum { ENG_CUDA_NET_IN, ENG_CUDA_NET_BETWEEN, ENG_CUDA_NET_OUT } eng_cuda_net_place;

typedef struct eng_cuda_net_slot {
    uint32_t place, at, width; /* at: of its first number in a row of that place */
} eng_cuda_net_slot;

typedef enum { ENG_CUDA_NET_ALONE, ENG_CUDA_NET_NUMBER, ENG_CUDA_NET_VECTOR } eng_cuda_net_operand;

/* Acts on a number on its way into its slot; those of an operation in their order. */
typedef struct eng_cuda_net_stage {
    uint32_t code;
    uint32_t operand; /* none; numbers of the model from `at` on; the vector of the same row in slot `at` */
    uint64_t at;
    uint32_t step; /* 1: one a column; 0: one for all */
    float alpha, beta;
} eng_cuda_net_stage;

typedef struct eng_cuda_net_op {
    uint32_t kind, from, to; /* slots */
    uint32_t n_in, n_out;    /* their widths */
    uint32_t stage, n_stages;
    uint32_t map;     /* sum, mean, max, min: ENG_TILE_ABS, ENG_TILE_SQUARE, or ENG_CUDA_NET_CODES: of x itself */
    uint64_t weights; /* dense: the first of (n_in, n_out) numbers */
    double epsilon;
} eng_cuda_net_op;

typedef struct eng_cuda_net {
    uint32_t n_ops, rows;            /* rows: of a tile, near; 0 = far */
    uint32_t n_in, n_between, n_out; /* numbers of a row in each place */
    uint32_t keeps;                  /* near: the model's numbers lie in shared memory */
    uint64_t bytes;                  /* of the image */
    eng_cuda_part ops, stages, slots, numbers;
    uint32_t kind[ENG_CUDA_NET_OPS], wide[ENG_CUDA_NET_OPS]; /* far: what is launched, and n_out; kind ENG_CUDA_NET_NOTHING: nothing */
} eng_cuda_net;
#define ENG_CUDA_NET_NOTHING UINT32_MAX

#ifdef __cplusplus
extern "C" {
#endif
/* x (rows, n_in), between (rows, n_between), far only, out (rows, n_out); all pointers but n are the device's, and so is image. Returns when the
 * work is queued on the stream: 0, or the runtime's error. */
int eng_cuda_net_run(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream);
#ifdef __cplusplus
}
#endif

#endif
