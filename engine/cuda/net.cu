/* net.cu - dense networks on a device: programs over rows, near (one kernel, what is between in shared memory) and far (a launch an operation);
 * net.h says what a program is and how numbers come about.
 *
 * Both ways share everything but products: an operation sees a tile of rows whose three places are views with a stride, wherever they lie.
 * A tile's threads share out its numbers for `each` and `dense`; a row is a warp's for what runs over the row. Every number of a slot is
 * written by one thread, and read by others only behind a barrier, or in the next launch. */
#include "engine/cuda/device.hpp"
#include "engine/cuda/net.h"

#include <math.h>

#define ALL_LANES 0xffffffffu
constexpr uint32_t LANES = 32, ROWS = ENG_CUDA_NET_AT_ONCE, BLOCKS = ENG_CUDA_NET_BLOCKS;

/* ---- single numbers ---- */

__device__ inline float sigmoid_of(float x)
{
    return x >= 0 ? 1 / (1 + expf(-x)) : expf(x) / (1 + expf(x));
}

__device__ inline float softplus_of(float x)
{
    return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
}

__device__ inline float clip_of(float x, float least, float most)
{
    float v = x < least ? least : x;
    return v > most ? most : v;
}

/* With an operand b. NaN goes through as on the CPU. */
__device__ inline float of_two(uint32_t code, float x, float b, float alpha)
{
    switch (code) {
    case ENG_TILE_ADD: return x + b;
    case ENG_TILE_SUB: return x - b;
    case ENG_TILE_MUL: return x * b;
    case ENG_TILE_DIV: return x / b;
    case ENG_TILE_MIN: return x < b || x != x ? x : b;
    case ENG_TILE_MAX: return x > b || x != x ? x : b;
    case ENG_TILE_PRELU: return x < 0 ? x * b : x;
    case ENG_TILE_POW: return b == 2 ? x * x : powf(x, b);
    case ENG_CUDA_NET_FROM: return b - x;
    case ENG_CUDA_NET_UNDER: return b / x;
    default: return x == alpha || (x != x && alpha != alpha) ? b : x; /* ENG_CUDA_NET_IMPUTE */
    }
}

__device__ inline float of_one(uint32_t code, float x, float alpha, float beta)
{
    switch (code) {
    case ENG_TILE_SQRT: return sqrtf(x);
    case ENG_TILE_EXP: return expf(x);
    case ENG_TILE_LOG: return logf(x);
    case ENG_TILE_ERF: return erff(x);
    case ENG_TILE_RECIPROCAL: return 1 / x;
    case ENG_TILE_FLOOR: return floorf(x);
    case ENG_TILE_CEIL: return ceilf(x);
    case ENG_TILE_ROUND: return rintf(x); /* halves to even */
    case ENG_TILE_NEG: return -x;
    case ENG_TILE_ABS: return fabsf(x);
    case ENG_TILE_RELU: return x < 0 ? 0 : x;
    case ENG_TILE_LEAKY: return x < 0 ? alpha * x : x;
    case ENG_TILE_ELU: return x < 0 ? alpha * expm1f(x) : x;
    case ENG_TILE_SIGMOID: return sigmoid_of(x);
    case ENG_TILE_TANH: return tanhf(x);
    case ENG_TILE_HARDSIGMOID: return clip_of(alpha * x + beta, 0, 1);
    case ENG_TILE_HARDSWISH: return x * clip_of(x / 6 + 0.5f, 0, 1);
    case ENG_TILE_SOFTSIGN: return x / (1 + fabsf(x));
    case ENG_TILE_SOFTPLUS: return softplus_of(x);
    case ENG_TILE_SWISH: return x * sigmoid_of(alpha * x);
    case ENG_TILE_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case ENG_TILE_GELU_TANH: return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ENG_TILE_CLIP: return clip_of(x, alpha, beta);
    case ENG_TILE_SQUARE: return x * x;
    case ENG_TILE_CUBE: return x * x * x;
    case ENG_CUDA_NET_SELU: return x > 0 ? beta * x : beta * (alpha * expm1f(x));
    case ENG_CUDA_NET_CELU: return x > 0 ? x : x < 0 ? alpha * expm1f(x / alpha) : x;
    case ENG_CUDA_NET_MISH: return x * tanhf(softplus_of(x));
    case ENG_CUDA_NET_THRESHOLD: return x > alpha ? x : 0;
    case ENG_CUDA_NET_SIGN: return static_cast<float>((x > 0) - (x < 0));
    default: return x;
    }
}

/* ---- a tile ---- */

/* Rows that go through operations together. Row r of a place begins at first + r * stride of its view. */
struct tile {
    eng_view<float> in, between, out;
    uint64_t in_first, between_first, out_first;
    uint32_t in_stride, between_stride, out_stride, rows;
    eng_view<const float> numbers;
    eng_view<const eng_cuda_net_stage> stages;
    eng_view<const eng_cuda_net_slot> slots;
};

/* A slot of it: number j of row r is at[first + r * stride + j]. */
struct vectors {
    eng_view<float> at;
    uint64_t first;
    uint32_t stride;
};

__device__ inline vectors slot_of(const tile &t, uint32_t slot)
{
    const eng_cuda_net_slot &s = t.slots[slot];
    if (s.place == ENG_CUDA_NET_IN)
        return {t.in, t.in_first + s.at, t.in_stride};
    if (s.place == ENG_CUDA_NET_OUT)
        return {t.out, t.out_first + s.at, t.out_stride};
    return {t.between, t.between_first + s.at, t.between_stride};
}

__device__ inline uint64_t place_of(const vectors &v, uint32_t row, uint32_t column)
{
    return v.first + static_cast<uint64_t>(row) * v.stride + column;
}

/* What operation o has for number j of row r, through its stages and into its slot. */
__device__ inline void give(const tile &t, const eng_cuda_net_op &o, const vectors &to, uint32_t r, uint32_t j, float v)
{
    for (uint32_t i = o.stage; i < o.stage + o.n_stages; i++) {
        const eng_cuda_net_stage &s = t.stages[i];
        if (s.operand == ENG_CUDA_NET_ALONE) {
            v = of_one(s.code, v, s.alpha, s.beta);
        } else if (s.operand == ENG_CUDA_NET_NUMBER) {
            v = of_two(s.code, v, t.numbers[s.at + static_cast<uint64_t>(s.step) * j], s.alpha);
        } else {
            vectors b = slot_of(t, static_cast<uint32_t>(s.at));
            v = of_two(s.code, v, b.at[place_of(b, r, s.step * j)], s.alpha);
        }
    }
    to.at[place_of(to, r, j)] = v;
}

__device__ inline void each(const tile &t, const eng_cuda_net_op &o)
{
    vectors from = slot_of(t, o.from), to = slot_of(t, o.to);
    uint32_t step = o.n_in == o.n_out;
    for (uint32_t i = threadIdx.x; i < t.rows * o.n_out; i += blockDim.x) {
        uint32_t r = i / o.n_out, j = i % o.n_out;
        give(t, o, to, r, j, from.at[place_of(from, r, step * j)]);
    }
}

/* A thread has column j of some rows; those beyond the tile are the tile's first row once more, and go nowhere. */
__device__ inline void dense(const tile &t, const eng_cuda_net_op &o)
{
    vectors from = slot_of(t, o.from), to = slot_of(t, o.to);
    uint32_t groups = (t.rows + ROWS - 1) / ROWS;
    for (uint32_t i = threadIdx.x; i < groups * o.n_out; i += blockDim.x) {
        uint32_t first = i / o.n_out * ROWS, j = i % o.n_out;
        float sum[ROWS] = {};
        for (uint32_t k = 0; k < o.n_in; k++) {
            float w = t.numbers[o.weights + static_cast<uint64_t>(k) * o.n_out + j];
            for (uint32_t r = 0; r < ROWS; r++)
                sum[r] = fmaf(from.at[place_of(from, first + r < t.rows ? first + r : 0, k)], w, sum[r]);
        }
        for (uint32_t r = 0; r < ROWS && first + r < t.rows; r++)
            give(t, o, to, first + r, j, sum[r]);
    }
}

/* ---- over a row: a warp ---- */

__device__ inline double all_lanes_sum(double v)
{
    for (uint32_t with = LANES / 2; with > 0; with /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, static_cast<int>(with));
    return v;
}

/* sign: 1 = the largest, -1 = the least. NaN wins. */
__device__ inline float larger(float a, float b, float sign)
{
    return sign * b > sign * a || b != b ? b : a;
}

__device__ inline float all_lanes_largest(float v, float sign)
{
    for (uint32_t with = LANES / 2; with > 0; with /= 2)
        v = larger(v, __shfl_xor_sync(ALL_LANES, v, static_cast<int>(with)), sign);
    return v;
}

__device__ inline double row_sum(const vectors &from, const eng_cuda_net_op &o, uint32_t r, uint32_t lane, double less, uint32_t map)
{
    double sum = 0;
    for (uint32_t k = lane; k < o.n_in; k += LANES) {
        double v = static_cast<double>(from.at[place_of(from, r, k)]) - less;
        sum += map == ENG_TILE_ABS ? fabs(v) : map == ENG_TILE_SQUARE ? v * v : v;
    }
    return all_lanes_sum(sum);
}

__device__ inline float row_largest(const vectors &from, const eng_cuda_net_op &o, uint32_t r, uint32_t lane, float sign, uint32_t map)
{
    float most = -sign * INFINITY;
    for (uint32_t k = lane; k < o.n_in; k += LANES)
        most = larger(most, of_one(map, from.at[place_of(from, r, k)], 0, 0), sign);
    return all_lanes_largest(most, sign);
}

/* One number of the row. */
__device__ inline float reduced(const vectors &from, const eng_cuda_net_op &o, uint32_t r, uint32_t lane)
{
    if (o.kind == ENG_CUDA_NET_MAX || o.kind == ENG_CUDA_NET_MIN)
        return row_largest(from, o, r, lane, o.kind == ENG_CUDA_NET_MAX ? 1 : -1, o.map);
    double sum = row_sum(from, o, r, lane, 0, o.map);
    return static_cast<float>(o.kind == ENG_CUDA_NET_MEAN ? sum / o.n_in : sum);
}

__device__ inline void softmax(const tile &t, const eng_cuda_net_op &o, const vectors &from, const vectors &to, uint32_t r, uint32_t lane)
{
    float most = row_largest(from, o, r, lane, 1, ENG_CUDA_NET_CODES);
    double sum = 0;
    for (uint32_t k = lane; k < o.n_in; k += LANES)
        sum += static_cast<double>(expf(from.at[place_of(from, r, k)] - most));
    sum = all_lanes_sum(sum);
    float by = static_cast<float>(1 / sum), less = static_cast<float>(log(sum));
    for (uint32_t k = lane; k < o.n_in; k += LANES) {
        float v = from.at[place_of(from, r, k)] - most;
        give(t, o, to, r, k, o.kind == ENG_CUDA_NET_SOFTMAX ? expf(v) * by : v - less);
    }
}

__device__ inline void norm(const tile &t, const eng_cuda_net_op &o, const vectors &from, const vectors &to, uint32_t r, uint32_t lane)
{
    double mean = o.kind == ENG_CUDA_NET_NORM ? row_sum(from, o, r, lane, 0, ENG_CUDA_NET_CODES) / o.n_in : 0;
    double by = 1 / sqrt(row_sum(from, o, r, lane, mean, ENG_TILE_SQUARE) / o.n_in + o.epsilon);
    for (uint32_t k = lane; k < o.n_in; k += LANES)
        give(t, o, to, r, k, static_cast<float>((static_cast<double>(from.at[place_of(from, r, k)]) - mean) * by));
}

__device__ inline void over_rows(const tile &t, const eng_cuda_net_op &o)
{
    vectors from = slot_of(t, o.from), to = slot_of(t, o.to);
    uint32_t lane = threadIdx.x % LANES;
    for (uint32_t r = threadIdx.x / LANES; r < t.rows; r += blockDim.x / LANES) {
        if (o.kind == ENG_CUDA_NET_SOFTMAX || o.kind == ENG_CUDA_NET_LOGSOFTMAX) {
            softmax(t, o, from, to, r, lane);
        } else if (o.kind == ENG_CUDA_NET_NORM || o.kind == ENG_CUDA_NET_RMS) {
            norm(t, o, from, to, r, lane);
        } else {
            float v = reduced(from, o, r, lane);
            if (lane == 0)
                give(t, o, to, r, 0, v);
        }
    }
}

__device__ inline void operate(const tile &t, const eng_cuda_net_op &o)
{
    if (o.kind == ENG_CUDA_NET_EACH)
        each(t, o);
    else if (o.kind == ENG_CUDA_NET_DENSE)
        dense(t, o);
    else
        over_rows(t, o);
}

/* ---- kernels ---- */

/* What a kernel is given: the head without what only the host reads. */
struct program {
    const unsigned char *image;
    eng_cuda_part ops, stages, slots, numbers;
    uint32_t n_in, n_between, n_out, tile_rows, keeps;
    uint64_t rows;
};

/* Rows [row, row + rows) of all. near: shared memory for what is between, or the device's for all rows. */
__device__ inline tile tile_of(const program &p, eng_view<float> in, eng_view<float> between, eng_view<float> out, uint64_t row,
                               bool near_by)
{
    uint64_t left = p.rows - row;
    tile t;
    t.in = in;
    t.between = between;
    t.out = out;
    t.in_first = row * p.n_in;
    t.between_first = near_by ? 0 : row * p.n_between;
    t.out_first = row * p.n_out;
    t.in_stride = p.n_in;
    t.between_stride = p.n_between;
    t.out_stride = p.n_out;
    t.rows = static_cast<uint32_t>(left < p.tile_rows ? left : p.tile_rows);
    t.numbers = eng_part_of<float>(p.image, p.numbers);
    t.stages = eng_part_of<eng_cuda_net_stage>(p.image, p.stages);
    t.slots = eng_part_of<eng_cuda_net_slot>(p.image, p.slots);
    return t;
}

__global__ void near_kernel(program p, float *__restrict__ x, float *__restrict__ out_first)
{
    ENG_SHARED(shared);
    unsigned char *at = shared;
    eng_view<float> between = eng_carve<float>(at, static_cast<uint64_t>(p.tile_rows) * p.n_between),
                    kept = eng_carve<float>(at, p.keeps ? p.numbers.n : 0), in = eng_view_of(x, p.rows * p.n_in),
                    out = eng_view_of(out_first, p.rows * p.n_out);
    eng_view<const float> numbers = eng_part_of<float>(p.image, p.numbers);
    for (uint64_t i = threadIdx.x; p.keeps && i < p.numbers.n; i += blockDim.x)
        kept[i] = numbers[i];
    for (uint64_t row = static_cast<uint64_t>(blockIdx.x) * p.tile_rows; row < p.rows;
         row += static_cast<uint64_t>(gridDim.x) * p.tile_rows) {
        tile t = tile_of(p, in, between, out, row, true);
        if (p.keeps)
            t.numbers = eng_view_of(static_cast<const float *>(&kept[0]), p.numbers.n);
        for (uint32_t i = 0; i < p.ops.n; i++) {
            __syncthreads(); /* the operation before has written, and the tile before been read; the model's numbers are there */
            operate(t, eng_part_of<eng_cuda_net_op>(p.image, p.ops)[i]);
        }
    }
}

/* One operation, not a product, of a tile of rows a block. */
__global__ void far_kernel(program p, uint32_t op, float *__restrict__ x, float *__restrict__ between_first, float *__restrict__ out_first)
{
    eng_view<float> in = eng_view_of(x, p.rows * p.n_in), between = eng_view_of(between_first, p.rows * p.n_between),
                    out = eng_view_of(out_first, p.rows * p.n_out);
    operate(tile_of(p, in, between, out, static_cast<uint64_t>(blockIdx.x) * p.tile_rows, false),
            eng_part_of<eng_cuda_net_op>(p.image, p.ops)[op]);
}

/* A product's tile: SIDE rows by SIDE columns of the result, DEEP of the inner dimension at a time, SUMS x SUMS of them a thread. */
constexpr uint32_t SIDE = 64, DEEP = 16, SUMS = 4, ACROSS = SIDE / SUMS, THREADS = ACROSS * ACROSS, PAD = 1, FAR_ROWS = 8;

/* DEEP columns from k on of the tile's rows, turned, so that a row's neighbours lie side by side; and of the weights. Beyond the edge: 0. */
__device__ inline void fetch(const tile &t, const eng_cuda_net_op &o, const vectors &from, uint32_t k, uint32_t column, eng_view<float> a,
                             eng_view<float> w)
{
    for (uint32_t i = threadIdx.x; i < SIDE * DEEP; i += THREADS) {
        uint32_t deep = i % DEEP, r = i / DEEP;
        bool in = r < t.rows && k + deep < o.n_in;
        a[deep * (SIDE + PAD) + r] = in ? from.at[place_of(from, r, k + deep)] : 0;
    }
    for (uint32_t i = threadIdx.x; i < SIDE * DEEP; i += THREADS) {
        uint32_t deep = i / SIDE, j = i % SIDE;
        bool in = column + j < o.n_out && k + deep < o.n_in;
        w[i] = in ? t.numbers[o.weights + static_cast<uint64_t>(k + deep) * o.n_out + column + j] : 0;
    }
}

/* Thread (y, x) of the tile has rows y + ACROSS i and columns x + ACROSS j: neighbours read neighbouring weights and the same row. */
__device__ inline void multiply(eng_view<float> a, eng_view<float> w, uint32_t deep, float (&sum)[SUMS][SUMS])
{
    uint32_t x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
    for (uint32_t k = 0; k < deep; k++) {
        float row[SUMS], column[SUMS];
        for (uint32_t i = 0; i < SUMS; i++) {
            row[i] = a[k * (SIDE + PAD) + y + ACROSS * i];
            column[i] = w[k * SIDE + x + ACROSS * i];
        }
        for (uint32_t i = 0; i < SUMS; i++)
            for (uint32_t j = 0; j < SUMS; j++)
                sum[i][j] = fmaf(row[i], column[j], sum[i][j]);
    }
}

__global__ void product_kernel(program p, uint32_t op, float *__restrict__ x, float *__restrict__ between_first,
                               float *__restrict__ out_first)
{
    ENG_SHARED(shared);
    unsigned char *at = shared;
    eng_view<float> a = eng_carve<float>(at, DEEP * (SIDE + PAD)), w = eng_carve<float>(at, DEEP * SIDE);
    eng_view<float> in = eng_view_of(x, p.rows * p.n_in), between = eng_view_of(between_first, p.rows * p.n_between),
                    out = eng_view_of(out_first, p.rows * p.n_out);
    const eng_cuda_net_op &o = eng_part_of<eng_cuda_net_op>(p.image, p.ops)[op];
    uint32_t across = (o.n_out + SIDE - 1) / SIDE, column = blockIdx.x % across * SIDE;
    tile t = tile_of(p, in, between, out, static_cast<uint64_t>(blockIdx.x / across) * SIDE, false);
    vectors from = slot_of(t, o.from), to = slot_of(t, o.to);
    float sum[SUMS][SUMS] = {};
    for (uint32_t k = 0; k < o.n_in; k += DEEP) {
        __syncthreads(); /* the part before has been read */
        fetch(t, o, from, k, column, a, w);
        __syncthreads();
        multiply(a, w, o.n_in - k < DEEP ? o.n_in - k : DEEP, sum);
    }
    for (uint32_t i = 0; i < SUMS; i++)
        for (uint32_t j = 0; j < SUMS; j++) {
            uint32_t r = threadIdx.x / ACROSS + ACROSS * i, c = column + threadIdx.x % ACROSS + ACROSS * j;
            if (r < t.rows && c < o.n_out)
                give(t, o, to, r, c, sum[i][j]);
        }
}

/* ---- launches ---- */

static unsigned tiles(uint64_t n, uint64_t of)
{
    return static_cast<unsigned>((n + of - 1) / of);
}

static int run_far(const eng_cuda_net *n, program p, float *x, float *between, float *out, void *stream)
{
    int rc = 0;
    for (uint32_t i = 0; i < n->n_ops && rc == 0; i++) {
        bool product = n->kind[i] == ENG_CUDA_NET_DENSE;
        p.tile_rows = product ? SIDE : FAR_ROWS;
        if (product)
            rc = ENG_LAUNCH(product_kernel, tiles(p.rows, SIDE) * tiles(n->wide[i], SIDE), THREADS,
                            sizeof(float) * (DEEP * (SIDE + PAD) + DEEP * SIDE), stream, p, i, x, between, out);
        else
            rc = ENG_LAUNCH(far_kernel, tiles(p.rows, FAR_ROWS), ENG_CUDA_NET_THREADS, 0, stream, p, i, x, between, out);
    }
    return rc;
}

int eng_cuda_net_run(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream)
{
    program p = {static_cast<const unsigned char *>(image),
                 n->ops,
                 n->stages,
                 n->slots,
                 n->numbers,
                 n->n_in,
                 n->n_between,
                 n->n_out,
                 n->rows,
                 n->keeps,
                 static_cast<uint64_t>(rows)};
    float *in = const_cast<float *>(x); /* read only: no operation has a slot of IN to write to */
    if (rows <= 0)
        return 0;
    if (!n->rows)
        return run_far(n, p, in, between, out, stream);
    size_t shared = (static_cast<size_t>(n->rows) * n->n_between * sizeof(float) + 15) / 16 * 16 +
                    (n->keeps ? (n->numbers.n * sizeof(float) + 15) / 16 * 16 : 0);
    unsigned grid = tiles(p.rows, n->rows);
    return ENG_LAUNCH(near_kernel, grid < BLOCKS ? grid : BLOCKS, ENG_CUDA_NET_THREADS, shared, stream, p, in, out);
}
