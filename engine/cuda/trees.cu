/* trees.cu - forests on a device: each thread has a row, each block a few; the image's form is trees.h.
 *
 * A block ranks the features of its rows into bytes in shared memory, a column after another, the rows of a column side by side: threads of a
 * warp read 32 neighbouring bytes of a column when they ask for the same one, and no bank twice. Then it goes through the trees in their
 * order, chunk by chunk: all threads together bring a chunk's places to shared memory, and each walks its row down the chunk's trees. Every
 * row has one thread that adds up its leaves, so the sum has the order of the trees: no atomics, no tree of partial sums. */
#include "engine/cuda/device.hpp"
#include "engine/cuda/trees.h"

#define ALL_LANES 0xffffffffu

/* How many of the feature's thresholds lie below v; 0 for NaN. */
template <typename T> __device__ inline int32_t rank_of(eng_view<const T> thresholds, const eng_cuda_feature &f, T v)
{
    uint32_t k = 0;
    for (uint32_t half = f.steps ? 1u << (f.steps - 1) : 0; half; half >>= 1)
        k += thresholds[f.thresholds + k + half - 1] < v ? half : 0;
    return static_cast<int32_t>(k);
}

/* The place in the feature's sets of v's whole part; what no set can hold goes to the place behind the last. */
__device__ inline uint32_t set_place(const eng_cuda_feature &f, double v)
{
    bool in = (f.half_open ? v > -1 : v >= 0) && v < static_cast<double>(f.set_bits);
    return static_cast<uint32_t>(in ? static_cast<int32_t>(v) : f.set_bits);
}

/* One column's byte of one value. */
template <typename T>
__device__ inline uint8_t column_byte(const eng_cuda_column &c, eng_view<const uint32_t> sets, int32_t rank, uint32_t place, T v)
{
    const double zero = static_cast<double>(1e-35f); /* ENG_TREE_ZERO */
    double d = static_cast<double>(v);
    if (v != v || (c.zero_missing && d <= zero && d >= -zero))
        return c.missing_yes ? 0 : 255;
    if (c.set != ENG_CUDA_NO_SET)
        return sets[c.set + (place >> 5)] >> (place & 31) & 1 ? 0 : 255;
    int32_t k = rank - c.from;
    return static_cast<uint8_t>(k < 0 ? 0 : k > 255 ? 255 : k);
}

/* This thread's row into its byte of every column. */
template <typename T>
__device__ inline void rank_row(const eng_cuda_forest &f, const unsigned char *image, eng_view<const T> x, uint64_t row,
                                eng_view<uint8_t> ranks)
{
    eng_view<const eng_cuda_feature> features = eng_part_of<eng_cuda_feature>(image, f.features);
    eng_view<const eng_cuda_column> columns = eng_part_of<eng_cuda_column>(image, f.columns);
    eng_view<const uint32_t> sets = eng_part_of<uint32_t>(image, f.sets);
    eng_view<const T> thresholds = eng_part_of<T>(image, f.thresholds);
    for (uint32_t i = 0; i < f.features.n; i++) {
        const eng_cuda_feature &ft = features[i];
        T v = x[row + static_cast<uint32_t>(ft.feature)];
        int32_t rank = rank_of<T>(thresholds, ft, v);
        uint32_t place = ft.set_bits ? set_place(ft, static_cast<double>(v)) : 0;
        for (uint32_t k = ft.column; k < ft.column + ft.n_columns; k++)
            ranks[k * blockDim.x + threadIdx.x] = column_byte<T>(columns[k], sets, rank, place, v);
    }
}

/* Down one tree, whose places begin at `from` of `places`; all lanes of a warp together. Returns the place of the leaf, counted from the tree's. */
__device__ inline uint32_t walk(eng_view<const eng_cuda_place> places, uint32_t from, uint32_t depth, eng_view<uint8_t> ranks)
{
    uint32_t at = 0;
    for (uint32_t left = depth; left > 0;) {
        uint32_t steps = left < 8 ? left : 8;
        left -= steps;
        for (; steps > 0; steps--) {
            const eng_cuda_place &p = places[from + at];
            at = p.first + (ranks[p.column * blockDim.x + threadIdx.x] > p.rank);
        }
        /* A tree with a few deep leaves: now and then it is asked whether all have arrived. */
        if (left > 0 && __all_sync(ALL_LANES, places[from + at].first == at))
            break;
    }
    return at;
}

/* A thread's sum, where a leaf is one number for the one target, and the sums in `out`, which belong to its row alone, otherwise. */
struct sums {
    double one;
    uint64_t out; /* of its first target */
};

__device__ inline double add(const eng_cuda_forest &f, double sum, double value)
{
    return f.floats ? static_cast<double>(static_cast<float>(sum) + static_cast<float>(value)) : sum + value;
}

__device__ inline void add_leaf(const eng_cuda_forest &f, const unsigned char *image, uint32_t place, sums *s, eng_view<double> out,
                                bool mine)
{
    if (f.values.n) {
        s->one = add(f, s->one, eng_part_of<double>(image, f.values)[place]);
        return;
    }
    const eng_cuda_leaf &leaf = eng_part_of<eng_cuda_leaf>(image, f.leaves)[eng_part_of<uint32_t>(image, f.leaf_of)[place]];
    for (uint32_t i = leaf.at; mine && i < leaf.at + leaf.n; i++) {
        const eng_cuda_weight &w = eng_part_of<eng_cuda_weight>(image, f.weights)[i];
        double &sum = out[s->out + static_cast<uint64_t>(w.target)];
        sum = add(f, sum, w.value);
    }
}

/* All trees, in their order. chunk: room for ENG_CUDA_CHUNK_PLACES places. */
__device__ inline void walk_trees(const eng_cuda_forest &f, const unsigned char *image, eng_view<uint8_t> ranks,
                                  eng_view<eng_cuda_place> chunk, sums *s, eng_view<double> out, bool mine)
{
    eng_view<const eng_cuda_place> all = eng_part_of<eng_cuda_place>(image, f.places);
    eng_view<const eng_cuda_place> near = eng_view_of(static_cast<const eng_cuda_place *>(&chunk[0]), ENG_CUDA_CHUNK_PLACES);
    for (uint32_t i = 0; i < f.chunks.n; i++) {
        const eng_cuda_chunk &c = eng_part_of<eng_cuda_chunk>(image, f.chunks)[i];
        bool fits = c.n <= ENG_CUDA_CHUNK_PLACES;
        __syncthreads(); /* all are done with the chunk before */
        for (uint32_t k = threadIdx.x; fits && k < c.n; k += blockDim.x)
            chunk[k] = all[c.at + k];
        __syncthreads();
        for (uint32_t t = c.tree; t < c.tree + c.n_trees; t++) {
            const eng_cuda_tree &tree = eng_part_of<eng_cuda_tree>(image, f.trees)[t];
            uint32_t leaf = fits ? walk(near, tree.at - c.at, tree.depth, ranks) : walk(all, tree.at, tree.depth, ranks);
            add_leaf(f, image, tree.at + leaf, s, out, mine);
        }
    }
}

/* Threads beyond the last row walk the last one, so that warps are whole, and write nothing. */
template <typename T>
__global__ void trees_kernel(eng_cuda_forest f, const unsigned char *__restrict__ image, const T *__restrict__ x_first, int64_t rows,
                             int64_t cols, double *__restrict__ out_first)
{
    ENG_SHARED(shared);
    unsigned char *at = shared;
    eng_view<eng_cuda_place> chunk = eng_carve<eng_cuda_place>(at, ENG_CUDA_CHUNK_PLACES);
    eng_view<uint8_t> ranks = eng_carve<uint8_t>(at, static_cast<uint64_t>(f.n_columns) * blockDim.x);
    uint64_t targets = static_cast<uint64_t>(f.n_targets), row = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    bool mine = row < static_cast<uint64_t>(rows);
    row = mine ? row : static_cast<uint64_t>(rows) - 1;
    eng_view<const T> x = eng_view_of(x_first, static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols));
    eng_view<double> out = eng_view_of(out_first, static_cast<uint64_t>(rows) * targets);
    eng_view<const float> start = eng_part_of<float>(image, f.start);
    sums s = {f.floats && f.values.n ? static_cast<double>(start[0]) : 0, row * targets};
    for (uint64_t i = 0; mine && !f.values.n && i < targets; i++)
        out[s.out + i] = f.floats ? static_cast<double>(start[i]) : 0;
    rank_row<T>(f, image, x, row * static_cast<uint64_t>(cols), ranks);
    walk_trees(f, image, ranks, chunk, &s, out, mine);
    if (mine && f.values.n)
        out[s.out] = s.one;
    for (uint64_t i = 0; mine && f.average && i < targets; i++)
        out[s.out + i] /= f.n_trees;
}

int eng_cuda_trees_run(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream)
{
    if (rows <= 0)
        return 0;
    const unsigned char *bytes = static_cast<const unsigned char *>(image);
    unsigned block = static_cast<unsigned>(f->rows), grid = static_cast<unsigned>((rows + block - 1) / block);
    size_t ranks = static_cast<size_t>(f->n_columns) * block,
           shared = ENG_CUDA_CHUNK_PLACES * sizeof(eng_cuda_place) + (ranks + 15) / 16 * 16;
    if (f->wide)
        return ENG_LAUNCH(trees_kernel<double>, grid, block, shared, stream, *f, bytes, static_cast<const double *>(x), rows, cols, out);
    return ENG_LAUNCH(trees_kernel<float>, grid, block, shared, stream, *f, bytes, static_cast<const float *>(x), rows, cols, out);
}
