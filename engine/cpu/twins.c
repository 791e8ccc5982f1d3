/* twins.c - kernels of an instruction set run beside the portable ones, small enough to be done whenever a process starts to use the set.
 *
 * A family of kernels is a function that writes what they give, in an order that does not depend on the instruction set; it is called for
 * the set and for its twin. Every tile (rows × panels × interleave) has a shape of its own, and so has a part of a panel; no more than
 * that, because a process waits for it (test_engine_isa keeps it below two milliseconds).
 *
 * Numbers are sixteenths of at most 2, so that sums of products are exact in any order. What adds, moves, compares and counts must be the
 * same to the bit; exponentials and quotients may differ by what a fused multiply-add does not round. */
#include "engine/cpu/twins.h"

#include "engine/cpu/gemm.h"
#include "engine/cpu/int8.h"

#include <math.h>
#include <string.h>

enum {
    K = 11,          /* depth of products: no multiple of any interleave */
    N = 198,         /* columns: seven panels of AVX-512, the last one not whole; they are taken as 4, 2 and 1 */
    N_ROOM = N + 64, /* up to whole panels */
    M = 25,          /* rows: more than two tiles of any */
    UNITS = 32,      /* of cells: whole vectors */
    OUT_MAX = 2000 > 2 * M * 40 ? 2000 : 2 * M * 40
};

/* Rows and columns of a product. One and two rows have tiles of several panels, and of one panel with other interleaves beside several;
 * more rows have one tile each. 40 and 56 columns end in less and in more than a vector of AVX-512. */
typedef struct shape {
    int rows, cols;
} shape;

static const shape shapes[] = {{1, 5},  {1, 40}, {1, 70}, {1, N},  {2, 5},  {2, 70}, {2, N},   {3, 40},  {4, 56}, {5, 40},
                               {6, 56}, {7, 40}, {8, 56}, {9, 40}, {10, 5}, {11, 5}, {12, 56}, {13, 40}, {M, 56}};
enum { SHAPES = sizeof shapes / sizeof *shapes, HEIGHTS = 14 };

/* 1 to 13, and M. */
static int height(int i)
{
    return i < HEIGHTS - 1 ? i + 1 : M;
}

/* No division: half of all the time would go into it. */
static void fill(float *x, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((int)(((uint32_t)i + seed * 97) * 2654435761u >> 26) - 32) * 0.0625f;
}

/* Panels as they lie or packed, rows as they lie or packed, added or not. */
static int products(const eng_isa_set *s, int round, float *out)
{
    const eng_cpu_kernels *kn = s->cpu;
    int m = shapes[round / 2].rows, n = shapes[round / 2].cols, form = (round + round / 2) % 3, whole = n / kn->nr * kn->nr;
    float a[M * K], b[K * N + 64], rows[M * K];
    _Alignas(64) float panels[K * N_ROOM];
    eng_packed p;
    fill(a, m * K, 1);
    fill(b, K * n + 64, 2);
    fill(out, m * n, 3);
    eng_block g = {.m = m, .n = n, .k = K, .a = a, .ars = K, .acs = 1, .b = panels, .brs = kn->nr, .alpha = 0.5f, .c = out, .ldc = n};
    if (form == 1) { /* columns as they lie */
        eng_sgemm_pack(kn, false, n - whole, K, b + whole, n, panels, &p);
        g.b = b;
        g.tail = whole < n ? panels : NULL;
        g.brs = n;
        g.bps = kn->nr;
    } else {
        eng_sgemm_pack(kn, false, n, K, b, n, panels, &p);
        g.bps = p.stride;
        g.add = true;
    }
    if (form == 2) {
        eng_sgemm_pack_left(kn, m, K, a, K, rows);
        g.a = rows;
        g.a_packed = true;
    }
    kn->block(&g);
    return m * n;
}

/* The last shape once more with a depth that is taken in parts. */
static int convolutions(const eng_isa_set *s, int round, float *out)
{
    enum { DEEP = 400, SHALLOW = 3 };
    bool deep = round == SHAPES;
    int m = deep ? SHALLOW : shapes[round].rows, n = deep ? 40 : shapes[round].cols, k = deep ? DEEP : K;
    float a[DEEP * SHALLOW], rows[DEEP * SHALLOW], image[13 * K + DEEP + N_ROOM], c[M * N_ROOM];
    int32_t off[DEEP];
    fill(a, m * k, 1);
    fill(image, 13 * K + DEEP + N_ROOM, 2);
    for (int i = 0; i < k; i++)
        off[i] = deep ? i : 13 * i;
    eng_sgemm_pack_left(s->cpu, m, k, a, k, rows);
    s->cpu->conv(
        &(eng_block){.m = m, .n = n, .k = k, .a = rows, .a_packed = true, .b = image, .off = off, .alpha = 1, .c = c, .ldc = N_ROOM});
    for (int i = 0; i < m; i++)
        memcpy(out + i * n, c + i * N_ROOM, (size_t)n * sizeof *c);
    return m * n;
}

/* Filters in the lanes: 40 are whole panels and one vector, at every number of pixels; then less than a vector and less than a panel. */
static int filters(const eng_isa_set *s, int round, float *out)
{
    enum { ROWS = 2, PIXEL = 64 };
    const eng_cpu_kernels *kn = s->cpu;
    static const int fewer[] = {5, 13, 20};
    int n = height(round % HEIGHTS), m = round < HEIGHTS ? 40 : fewer[round - HEIGHTS], pixel = (m + kn->lanes - 1) / kn->lanes * kn->lanes,
        at = 0;
    float w[40 * K], bias[PIXEL], x[ROWS * (2 * M + 5 * K)], y[ROWS * M * PIXEL];
    _Alignas(64) float panels[K * PIXEL];
    int32_t off[K];
    eng_packed p;
    fill(w, 40 * K, 1);
    fill(bias, PIXEL, 2);
    fill(x, ROWS * (2 * M + 5 * K), 3);
    for (int i = 0; i < K; i++)
        off[i] = 5 * i;
    eng_sgemm_pack(kn, true, m, K, w, K, panels, &p);
    kn->conv_rows(&(eng_conv_rows){.rows = ROWS,
                                   .n = n,
                                   .m = m,
                                   .k = K,
                                   .x = x,
                                   .ldx = 2 * M + 5 * K,
                                   .step = 2,
                                   .off = off,
                                   .w = panels,
                                   .bias = bias,
                                   .relu = round % 2,
                                   .y = y,
                                   .ldy = n * pixel});
    for (int i = 0; i < ROWS * n; i++, at += m)
        memcpy(out + at, y + i * pixel, (size_t)m * sizeof *y);
    return at;
}

/* What follows filters in the lanes. */
static int windows(const eng_isa_set *s, int round, float *out)
{
    enum { FILTERS = 32, WIDE = 9 };
    float from[3 * WIDE * FILTERS];
    fill(from, 3 * WIDE * FILTERS, 1);
    from[WIDE * FILTERS + 70] = NAN;
    s->cpu->pool_rows(4, FILTERS, from, WIDE * FILTERS, round ? 3 : 2, 2, round ? 1 : 2, out);
    return 4 * FILTERS;
}

static int turns(const eng_isa_set *s, int round, float *out)
{
    enum { WIDE = 21, FILTERS = 6 };
    float from[(WIDE + 8) * 8], add[FILTERS * WIDE];
    int n = round & 1 ? 3 : WIDE;
    fill(from, (WIDE + 8) * 8, 1);
    fill(add, FILTERS * WIDE, 2);
    s->cpu->turn(n, FILTERS, from, 8, round & 2 ? add : NULL, round & 4, out, n);
    return n * FILTERS;
}

static int planes(const eng_isa_set *s, int round, float *out)
{
    enum { ROWS = 3, WIDE = 37, LD = 64 };
    float from[ROWS * LD], add[ROWS * WIDE];
    int n = round & 1 ? 3 : WIDE;
    fill(from, ROWS * LD, 1);
    fill(add, ROWS * WIDE, 2);
    s->cpu->plane(ROWS, n, from, LD, 0.5f, round & 2 ? add : NULL, round & 4, out, n);
    return ROWS * n;
}

/* ---- channels last ---- */

static ptrdiff_t whole_vectors(const eng_isa_set *s, int n)
{
    return (n + s->cpu->lanes - 1) / s->cpu->lanes * s->cpu->lanes;
}

/* n rows of so many numbers, ld apart, to out; how many numbers. */
static int only(const float *from, int rows, int n, ptrdiff_t ld, float *out)
{
    for (int i = 0; i < rows; i++)
        memcpy(out + i * n, from + i * ld, (size_t)n * sizeof *out);
    return rows * n;
}

static eng_last_end an_end(int round)
{
    static const eng_act inside[] = {ENG_ACT_NONE, ENG_ACT_RELU, ENG_ACT_CLIP, ENG_ACT_HARDSWISH, ENG_ACT_HARDSIGMOID};
    return (eng_last_end){.act = inside[round % 5], .alpha = 0.25f, .beta = 0.75f};
}

static int layers(const eng_isa_set *s, int round, float *out)
{
    int m = shapes[round].rows, n = shapes[round].cols;
    ptrdiff_t ld = whole_vectors(s, n);
    float x[M * K], w[N * K], bias[N_ROOM], add[M * N_ROOM], y[M * N_ROOM];
    _Alignas(64) float panels[K * N_ROOM];
    eng_packed p;
    fill(x, m * K, 1);
    fill(w, n * K, 2);
    fill(bias, N_ROOM, 3);
    fill(add, m * (int)ld, 4);
    eng_sgemm_pack(s->cpu, true, n, K, w, K, panels, &p);
    for (int i = 0; i < m; i++) /* rows of whole vectors lie otherwise for each instruction set */
        fill(add + i * ld, n, (uint32_t)i);
    s->cpu->last_layer(&(eng_last_layer){.m = m,
                                         .n = n,
                                         .k = K,
                                         .a = x,
                                         .lda = K,
                                         .w = panels,
                                         .bias = bias,
                                         .add = round & 1 ? add : NULL,
                                         .c = y,
                                         .ldc = ld,
                                         .end = an_end(round)});
    return only(y, m, n, ld, out);
}

enum { IMAGE_H = 5, IMAGE_W = 11, CHANNELS = 20, IMAGE_LD = 32 };

/* Of an image with its channels last: kernels of 3 × 3 at strides and dilations, with padding. */
static eng_last_window a_window(const eng_isa_set *s, int round, float *x)
{
    int stride = 1 + (round & 1), dil = 1 + (round >> 1 & 1);
    ptrdiff_t ld = whole_vectors(s, CHANNELS);
    for (int i = 0; i < IMAGE_H * IMAGE_W; i++)
        fill(x + i * ld, CHANNELS, (uint32_t)i);
    return (eng_last_window){.in_h = IMAGE_H,
                             .in_w = IMAGE_W,
                             .out_w = (IMAGE_W + 1 - 2 * dil) / stride + 1,
                             .kh = 3,
                             .kw = 3,
                             .sh = stride,
                             .sw = stride,
                             .dh = dil,
                             .dw = dil,
                             .pt = 1,
                             .pl = 1,
                             .pb = 1,
                             .pr = 1,
                             .to = (IMAGE_H + 1 - 2 * dil) / stride + 1,
                             .ld = ld,
                             .x = x};
}

static int depths(const eng_isa_set *s, int round, float *out)
{
    float x[(IMAGE_H * IMAGE_W + 1) * IMAGE_LD], w[9 * IMAGE_LD] = {0}, bias[IMAGE_LD], y[IMAGE_H * IMAGE_W * IMAGE_LD];
    eng_last_window g = a_window(s, round, x);
    for (int i = 0; i < 9; i++)
        fill(w + i * g.ld, CHANNELS, 70 + (uint32_t)i);
    fill(bias, IMAGE_LD, 2);
    g.w = w;
    g.bias = bias;
    g.y = y;
    g.end = an_end(round);
    s->cpu->last_depth(&g);
    return only(y, g.to * g.out_w, CHANNELS, g.ld, out);
}

static int last_pools(const eng_isa_set *s, int round, float *out)
{
    float x[(IMAGE_H * IMAGE_W + 1) * IMAGE_LD], y[IMAGE_H * IMAGE_W * IMAGE_LD];
    eng_last_window g = a_window(s, round & 1, x);
    x[7 * g.ld + 3] = NAN;
    g.max = round & 2;
    g.whole = round & 4;
    g.y = y;
    s->cpu->last_pool(&g);
    int n = only(y, g.to * g.out_w, CHANNELS, g.ld, out);
    s->cpu->last_mean(IMAGE_H * IMAGE_W, g.ld, x, y);
    return n + only(y, 1, CHANNELS, g.ld, out + n);
}

/* Pixels gathered for a product: of two images, from the middle of one to the middle of the other. */
static int gathered(const eng_isa_set *s, int round, float *out)
{
    enum { PIXELS = 6, DEPTH = 9 * CHANNELS, LD = DEPTH + 16 };
    float x[2 * (IMAGE_H * IMAGE_W + 1) * IMAGE_LD], y[PIXELS * LD + 16];
    eng_last_window g = a_window(s, round, x);
    ptrdiff_t image = IMAGE_H * IMAGE_W * g.ld;
    a_window(s, 0, x + image);
    int pixels = g.to * g.out_w;
    s->cpu->last_gather(
        &g, &(eng_last_gather){
                .from = pixels - 3, .to = pixels + 3, .out_count = pixels, .channels = CHANNELS, .image = image, .y = y, .ldy = LD});
    return only(y, PIXELS, DEPTH, LD, out);
}

static int mixes(const eng_isa_set *s, int round, float *out)
{
    enum { PIXELS = 7 };
    float a[PIXELS * IMAGE_LD], b[PIXELS * IMAGE_LD];
    ptrdiff_t ld = whole_vectors(s, CHANNELS);
    eng_last_end e = an_end(round);
    for (int i = 0; i < PIXELS; i++) {
        fill(a + i * ld, CHANNELS, (uint32_t)i);
        fill(b + i * ld, CHANNELS, 50 + (uint32_t)i);
    }
    s->cpu->last_mix(round & 1, PIXELS, ld, a, b, round & 2, &e, a);
    return only(a, PIXELS, CHANNELS, ld, out);
}

/* Every kind of step, every activation, every height and number of panels. */
static int networks(const eng_isa_set *s, int round, float *out)
{
    const eng_cpu_kernels *kn = s->cpu;
    int rows = shapes[round].rows, mid = shapes[round].cols, end = 7;
    float x[M * K], w[K * N], v[N_ROOM];
    _Alignas(64) float first[K * N_ROOM], second[N * 32], work[2 * 24 * 224];
    eng_packed p, q;
    fill(x, rows * K, 1);
    fill(w, (mid > K ? mid : K) * K, 2);
    fill(v, N_ROOM, 3);
    for (int i = 0; i < N_ROOM; i++)
        v[i] = v[i] / 2 + 2; /* a divisor, too */
    eng_sgemm_pack(kn, false, mid, K, w, mid, first, &p);
    eng_sgemm_pack(kn, false, end, mid, w, end, second, &q);
    eng_act act = (eng_act)(round % (ENG_ACT_LAST + 1));
    eng_fused_step steps[] = {
        {.kind = ENG_FUSED_SUB, .in = K, .out = K, .v = v},
        {.kind = ENG_FUSED_MUL, .in = K, .out = K, .v = v},
        {.kind = ENG_FUSED_DENSE, .act = ENG_ACT_RELU, .in = K, .out = mid, .w = first, .v = v},
        {.kind = ENG_FUSED_DIV, .in = mid, .out = mid, .v = v},
        {.kind = ENG_FUSED_ADD, .act = act, .alpha = 0.25f, .beta = 0.75f, .in = mid, .out = mid, .v = v},
        {.kind = ENG_FUSED_DENSE, .act = act, .alpha = 0.25f, .beta = 0.75f, .in = mid, .out = end, .w = second, .v = v}};
    kn->mlp(steps, 6, mid > K ? mid : K, x, (size_t)rows, out, work);
    return rows * end;
}

/* Column of a unit's gate in the order that the LSTM kernels read. */
static int gate_at(const eng_cpu_kernels *kn, int unit, int gate)
{
    return unit / kn->lanes * 4 * kn->lanes + gate * kn->lanes + unit % kn->lanes;
}

/* The tiles are those of mlp: rows are here for what is around them. */
static const int cell_rows[] = {1, 2, 7, 13, M};

static int cells(const eng_isa_set *s, int round, float *out)
{
    enum { GATES = 4 * UNITS };
    const eng_cpu_kernels *kn = s->cpu;
    float x[M * K], plain[K * GATES], w[K * GATES], bias[GATES], *c = out, *h = out + M * UNITS;
    _Alignas(64) float panels[K * GATES];
    int rows = cell_rows[round];
    eng_packed p;
    fill(x, M * K, 1);
    fill(plain, K * GATES, 2);
    fill(out, 2 * M * UNITS, 3);
    for (int u = 0; u < UNITS; u++)
        for (int gate = 0; gate < 4; gate++) {
            for (int k = 0; k < K; k++)
                w[k * GATES + gate_at(kn, u, gate)] = plain[k * GATES + u * 4 + gate];
            bias[gate_at(kn, u, gate)] = plain[u * 4 + gate];
        }
    eng_sgemm_pack(kn, false, GATES, K, w, GATES, panels, &p);
    kn->lstm_step(&(eng_lstm_step){
        .rows = rows, .units = UNITS, .k = K, .x = x, .w = panels, .bias = bias, .ldx = K, .ldc = UNITS, .ldh = UNITS, .c = c, .h = h});
    return 2 * M * UNITS;
}

static int gates(const eng_isa_set *s, int round, float *out)
{
    enum { ROWS = 3, GATES = 4 * UNITS };
    float plain[ROWS * GATES], g[ROWS * GATES];
    (void)round;
    fill(plain, ROWS * GATES, 1);
    fill(out, 2 * ROWS * UNITS, 2);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < GATES; i++)
            g[r * GATES + gate_at(s->cpu, i / 4, i % 4)] = 4 * plain[r * GATES + i];
    s->cpu->lstm(ROWS, UNITS, g, GATES, out, UNITS, out + ROWS * UNITS, UNITS);
    return 2 * ROWS * UNITS;
}

static int grus(const eng_isa_set *s, int round, float *out)
{
    enum { WIDE = 37 };
    float x[4 * WIDE];
    fill(x, 4 * WIDE, 1);
    fill(out, WIDE, 2);
    s->cpu->gru(WIDE, x, x + WIDE, round ? x + 2 * WIDE : NULL, x + 3 * WIDE, out);
    return WIDE;
}

static int gathers(const eng_isa_set *s, int round, float *out)
{
    enum { WIDE = 37, APART = 150, TAKEN = 3 };
    float from[TAKEN * APART + 64];
    int n = round & 2 ? 3 : WIDE;
    fill(from, TAKEN * APART + 64, 1);
    if (round & 1)
        from[APART + 5] = NAN;
    s->cpu->gather(round & 1, n, TAKEN, from, APART, 1 + round / 8, out, round & 4);
    return n;
}

static int dots(const eng_isa_set *s, int round, float *out)
{
    float a[81], b[81];
    (void)round;
    fill(a, 81, 1);
    fill(b, 81, 2);
    for (int n = 0; n <= 81; n++)
        out[n] = s->cpu->dot(a, b, n);
    return 82;
}

/* Activations near 0, ordinary, large and beyond; whole groups of vectors and what is left. */
static int activations(const eng_isa_set *s, int round, float *out)
{
    enum { WIDE = 90 };
    float x[WIDE];
    fill(x, WIDE, 1);
    for (int i = 0; i < WIDE; i++)
        x[i] *= i % 5 == 0 ? 60.0f : i % 7 == 0 ? 1e-4f : 4.0f;
    x[3] = NAN;
    x[4] = 1000;
    x[85] = -1000;
    s->cpu->act((eng_act)round, 0.25f, 0.75f, x, out, WIDE);
    return WIDE;
}

/* A bush of each height, two splits behind them. */
static int trees(const eng_isa_set *s, int round, float *out)
{
    enum { COLS = 7, PLACES = 256 + 5 };
    static const eng_tree_bush bushes[] = {{.rank = {3}, .leaf = 0, .col = {1}},
                                           {.rank = {-9, 20, -50}, .leaf = 2, .col = {2, 3, 1}},
                                           {.rank = {5, -70, 90, 0, 30, -30, 11}, .leaf = 6, .col = {4, 5, 6, 0, 1, 2, 3}}};
    static const eng_tree_code code[] = {{.rank = -4, .col = 5, .yes = 256, .no = 257}, {.rank = 8, .col = 6, .yes = 259, .no = 258}};
    const eng_tree_program p = {.bushes = bushes, .code = code, .n_bushes = {1, 1, 1}, .n = round};
    _Alignas(64) int8_t ranks[COLS * ENG_TREE_ROWS], work[PLACES * ENG_TREE_ROWS];
    uint8_t leaf[ENG_TREE_ROWS];
    for (int i = 0; i < COLS * ENG_TREE_ROWS; i++)
        ranks[i] = (int8_t)((int)((uint32_t)i * 2654435761u >> 24) - 128);
    for (int i = 0; i < 256; i++)
        memset(work + i * ENG_TREE_ROWS, i, ENG_TREE_ROWS);
    s->cpu->tree(&p, ranks, work, leaf);
    for (int i = 0; i < ENG_TREE_ROWS; i++)
        out[i] = leaf[i];
    return ENG_TREE_ROWS;
}

/* Ranks among sixteen thresholds, a quarter apart from -2 on, four to a bucket; or all in one bucket of bits. */
static int ranks(const eng_isa_set *s, int round, float *out)
{
    enum { THRESHOLDS = 16, ROOM = THRESHOLDS + 32 };
    static const uint16_t fours[] = {0, 4, 8, 12}, none[] = {0, 0, 0, 0};
    bool by_bits = round & 1, nan = round & 2, doubles = round & 4;
    float t[ROOM], x[ENG_TREE_ROWS];
    double td[ROOM], xd[ENG_TREE_ROWS];
    int32_t rank[ENG_TREE_ROWS];
    int8_t bytes[ENG_TREE_ROWS];
    for (int i = 0; i < ROOM; i++)
        td[i] = t[i] = i < THRESHOLDS ? (float)i / 4 - 2 : INFINITY;
    fill(x, ENG_TREE_ROWS, 1);
    for (int i = 0; i < ENG_TREE_ROWS; i++)
        xd[i] = x[i] *= i % 3 ? 1.0f : i % 2 ? 1.3f : 4.0f;
    xd[40] = x[40] = nan ? NAN : x[40];
    eng_rank_table table = {.from = -2, .scale = 1, .last = 3, .steps = 3, .below = fours, .tf = t, .td = td};
    if (by_bits)
        table = (eng_rank_table){.from = -2e9f, .scale = 1e-9f, .by_bits = true, .last = 3, .steps = 5, .below = none, .tf = t, .td = td};
    out[0] = doubles ? s->cpu->rank_d(&table, xd, rank) : s->cpu->rank_f(&table, x, rank);
    rank[40] = nan ? 0 : rank[40];
    s->cpu->rank_bytes(rank, 5, bytes);
    for (int i = 0; i < ENG_TREE_ROWS; i++) {
        out[1 + i] = (float)rank[i];
        out[1 + ENG_TREE_ROWS + i] = bytes[i];
    }
    return 1 + 2 * ENG_TREE_ROWS;
}

/* One operation of a fused group: both operands many, and each of them one. */
static int operations(const eng_isa_set *s, int round, float *out)
{
    enum { WIDE = 77 };
    float a[WIDE], b[WIDE];
    fill(a, WIDE, 1);
    fill(b, WIDE, 2);
    for (int i = 0; i < WIDE; i += 5)
        a[i] *= 20;
    a[3] = b[70] = NAN;
    a[4] = INFINITY;
    a[6] = -1000;
    for (int way = 0; way < 3; way++)
        s->tile->op((eng_tile_code)round, way == 1 ? a + 9 : a, way != 1, way == 2 ? b + 9 : b, way != 2, out + way * WIDE, WIDE, -0.25f,
                    0.75f);
    return 3 * WIDE;
}

/* Row normalisations. */
static int norms(const eng_isa_set *s, int round, float *out)
{
    enum { WIDE = 77, SHORT = 5, ROWS = 15 };
    float x[WIDE], scale[WIDE], bias[WIDE];
    fill(x, WIDE, 1);
    fill(scale, WIDE, 2);
    fill(bias, WIDE, 3);
    if (round == 0)
        s->tile->layer_norm(x, scale, bias, 1e-5, out, WIDE);
    else if (round == 1)
        s->tile->softmax(x, out, WIDE);
    else
        s->tile->softmax_rows(x, out, ROWS, SHORT);
    return round == 2 ? ROWS * SHORT : WIDE;
}

/* Every height of 8-bit tiles, several panels, parts of one, a depth that fills no place and one in parts; both kinds of bytes. */
static int byte_products(const eng_isa_set *s, int round, float *out)
{
    enum { DEEP = 13, COLS = 134, COLS_ROOM = 160 };
    const eng_int8_kernels *kn = eng_int8_pick(s->cpu->isa);
    int m = height(round % HEIGHTS), n = m <= 2 ? COLS : 37, k = round == 3 ? 1030 : DEEP, wide = k == DEEP ? n : 5;
    uint8_t a[4 * 1030], b[1030 * 5];
    _Alignas(64) int32_t left[4 * 515], room[32 * 516], first[COLS_ROOM], c[M * 37];
    eng_int8_right right;
    for (int i = 0; i < m * k; i++)
        a[i] = (uint8_t)(((uint32_t)i + 97) * 2654435761u >> 24);
    for (int i = 0; i < wide * k; i++)
        b[i] = (uint8_t)(((uint32_t)i + 194) * 2654435761u >> 24);
    for (int i = 0; i < COLS_ROOM; i++)
        first[i] = i - 50;
    eng_int8_pack(kn, wide, k, b, (size_t)wide, 1, round & 1, room, &right);
    eng_int8_left(kn, m, k, a, (size_t)k, 1, round & 2, left, NULL);
    eng_int8_product(&right, m, left, first, c, wide);
    for (int i = 0; i < m * wide; i++) /* halves, that no bit is lost */
        out[i] = (float)(c[i] & 0xffff) + (float)(c[i] >> 16) / 65536;
    for (int i = 0; i < wide; i++)
        out[m * wide + i] = (float)right.sums[i];
    return m * wide + wide;
}

/* Blocks that are turned, and what is left of them; products of channels. */
static int byte_moves(const eng_isa_set *s, int round, float *out)
{
    enum { ROWS = 35, COLS = 50 };
    const eng_int8_kernels *kn = eng_int8_pick(s->cpu->isa);
    int rows = round & 1 ? ROWS : 16, cols = round & 2 ? COLS : 16;
    uint8_t from[ROWS * COLS], to[ROWS * COLS];
    int16_t w[COLS];
    int32_t sums[COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        from[i] = (uint8_t)(((uint32_t)i + 31) * 2654435761u >> 24);
    for (int i = 0; i < COLS; i++) {
        w[i] = (int16_t)(i % 2 ? 255 - i : i - 255);
        sums[i] = i * 1000;
    }
    kn->turn(rows, cols, from, cols, round & 1 ? 128 : 0, to, rows);
    kn->add_products(COLS, from, 117, w, sums);
    for (int i = 0; i < rows * cols; i++)
        out[i] = to[i];
    for (int i = 0; i < COLS; i++)
        out[rows * cols + i] = (float)sums[i];
    return rows * cols + COLS;
}

/* Ties, what lies outside, NaN; and back. */
static int byte_rounding(const eng_isa_set *s, int round, float *out)
{
    enum { WIDE = 150 };
    const eng_int8_kernels *kn = eng_int8_pick(s->cpu->isa);
    float x[WIDE], lo = 0, hi = 0;
    int32_t sums[WIDE];
    uint8_t y[2 * WIDE];
    int zero = round & 1 ? 7 : -3, low = round & 1 ? 0 : -128;
    const float part = 1.0f / 32;
    fill(x, WIDE, 1);
    for (int i = 0; i < WIDE; i++) {
        sums[i] = (int32_t)(x[i] * 800);
        x[i] *= i % 3 ? 8.0f : 100.0f;
    }
    x[3] = x[WIDE - 1] = NAN;
    x[4] = INFINITY;
    kn->range(WIDE, x, &lo, &hi);
    kn->quantise(WIDE, x, 1.0f, zero, low, y); /* halves among them */
    kn->requantise(WIDE, sums, &part, 0, zero, low, y + WIDE);
    kn->dequantise(WIDE, y, round & 1, 0.5f, zero, out + 2 * WIDE);
    kn->floats(WIDE, sums, out + 2 * WIDE, round & 2 ? 1 : 0, NULL, out + 3 * WIDE);
    for (int i = 0; i < 2 * WIDE; i++)
        out[i] = y[i];
    out[4 * WIDE] = lo;
    out[4 * WIDE + 1] = hi == INFINITY;
    return 4 * WIDE + 2;
}

static const struct family {
    const char *name;
    int rounds;
    float tol; /* of what stands in both, and of 1 */
    int (*run)(const eng_isa_set *s, int round, float *out);
} families[] = {{"block", 2 * SHAPES, 0, products},
                {"conv", SHAPES + 1, 0, convolutions},
                {"conv_rows", HEIGHTS + 3, 0, filters},
                {"pool_rows", 2, 0, windows},
                {"turn", 8, 0, turns},
                {"plane", 8, 0, planes},
                {"mlp", SHAPES, 2e-5f, networks},
                {"last_layer", SHAPES, 5e-6f, layers},
                {"last_depth", 4, 5e-6f, depths},
                {"last_pool", 8, 5e-6f, last_pools},
                {"last_gather", 4, 0, gathered},
                {"last_mix", 5, 5e-6f, mixes},
                {"lstm_step", sizeof cell_rows / sizeof *cell_rows, 5e-6f, cells},
                {"lstm", 1, 5e-6f, gates},
                {"gru", 2, 5e-6f, grus},
                {"gather", 24, 0, gathers},
                {"dot", 1, 0, dots},
                {"act", ENG_ACT_LAST + 1, 5e-6f, activations},
                {"tree", 3, 0, trees},
                {"rank", 8, 0, ranks},
                {"int8 product", HEIGHTS, 0, byte_products},
                {"int8 rounding", 4, 0, byte_rounding},
                {"int8 moves", 4, 0, byte_moves},
                {"operation of fused groups", ENG_TILE_CODES, 5e-6f, operations},
                {"normalisation", 3, 5e-6f, norms}};

static bool same(const float *got, const float *want, int n, float tol)
{
    for (int i = 0; i < n; i++)
        if (got[i] != want[i] && !(fabsf(got[i] - want[i]) <= tol * (1 + fabsf(want[i]))) && !(got[i] != got[i] && want[i] != want[i]))
            return false;
    return true;
}

const char *eng_twins_differ(const eng_isa_set *set)
{
    static const eng_isa_set twin = {&eng_kernels_portable, &eng_tile_portable};
    float got[OUT_MAX], want[OUT_MAX];
    for (const struct family *f = families; f < families + sizeof families / sizeof *families; f++)
        for (int round = 0; round < f->rounds; round++) {
            int n = f->run(set, round, got);
            if (n != f->run(&twin, round, want) || !same(got, want, n, f->tol))
                return f->name;
        }
    return NULL;
}
