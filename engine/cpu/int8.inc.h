/* int8.inc.h - the kernels of int8.h, written once and compiled per instruction set. The including file defines VBYTES, MR and NV (the
 * register tile), DEPTH, DOT(acc, a, b) (acc + the products of each place), ISA_NAME, ISA_SUPPORTED and KERNELS; BLOCK where it has another way to do
 * blocks. */
#include "engine/cpu/int8.h"

#include "engine/cpu/isa.h"

#include <string.h>

#define INLINE        static inline __attribute__((always_inline))
#define VL            (VBYTES / 4)
#define NR            (VL * NV)
#define UNROLLED(...) ENG_UNROLLED (__VA_ARGS__)
#define SUMS_MAX      (MR * NV > 4 * NV ? MR * NV : 4 * NV)

typedef int32_t vi __attribute__((vector_size(VBYTES), aligned(4), may_alias));
typedef uint32_t vu __attribute__((vector_size(VBYTES), aligned(4), may_alias)); /* sums beyond 32 bits wrap */

/* R rows × P panels. */
INLINE void tile(const int R, const int P, const eng_int8_block *g, int row, int col)
{
    vi sum[SUMS_MAX];
    const int32_t *a = g->a + row * g->lda, *b = g->b + col / NR * g->bps;
    int32_t *c = g->c + row * g->ldc + col;
    int cols = g->n - col;
    UNROLLED (i, 0, R * P * NV)
        sum[i] = g->first ? *(const vi *)(g->first + col + i % (P * NV) * VL) : (vi){0};
    for (int p = 0; p < g->places; p++) {
        vi w[4 * NV];
        UNROLLED (v, 0, P * NV)
            w[v] = *(const vi *)(b + (v / NV) * g->bps + (v % NV) * VL);
        UNROLLED (r, 0, R) {
            vi x = (vi){0} + a[r * g->lda];
            UNROLLED (v, 0, P * NV)
                sum[r * P * NV + v] = DOT(sum[r * P * NV + v], x, w[v]);
        }
        a++;
        b += NR;
    }
    int32_t last[VL];
    UNROLLED (i, 0, R * P * NV) {
        int at = i % (P * NV) * VL, n = cols - at < VL ? cols - at : VL;
        int32_t *to = c + i / (P * NV) * g->ldc + at;
        if (n == VL) {
            if (!g->first)
                sum[i] = (vi)((vu)sum[i] + *(const vu *)to);
            *(vi *)to = sum[i];
        } else if (n > 0) {
            *(vi *)last = sum[i];
            for (int j = 0; j < n; j++)
                to[j] = (int32_t)((uint32_t)last[j] + (g->first ? 0 : (uint32_t)to[j]));
        }
    }
}

#define TILE(R, P)                                                        \
    static void tile_##R##x##P(const eng_int8_block *g, int row, int col) \
    {                                                                     \
        tile(R, P, g, row, col);                                          \
    }
#define ONE(R, P) [R] = tile_##R##x##P,
#if MR >= 12
#define HEIGHTS(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1) X(11, 1) X(12, 1)
#else
#define HEIGHTS(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#endif
HEIGHTS(TILE)
TILE(1, 4)
TILE(2, 2)
static void (*const tile_of[MR + 1])(const eng_int8_block *, int, int) = {HEIGHTS(ONE)};

static void block(const eng_int8_block *g)
{
    int tiles = (g->m + MR - 1) / MR;
    for (int col = 0, wide; col < g->n; col += wide) {
        wide = NR; /* few rows: several panels at once, so that there are sums enough to hide the latency of each */
        if (g->m == 1 && g->n - col > 3 * NR)
            wide = 4 * NR;
        else if (g->m == 2 && g->n - col > NR)
            wide = 2 * NR;
        for (int i = 0, row = 0, rows; i < tiles; i++, row += rows) {
            rows = eng_tile_rows(g->m, tiles, i);
            (wide == 4 * NR ? tile_1x4 : wide == 2 * NR ? tile_2x2 : tile_of[rows])(g, row, col);
        }
    }
}

static void floats(int64_t n, const int32_t *c, const float *scale, int step, const float *bias, float *y)
{
    for (int64_t i = 0; i < n && step; i++)
        y[i] = (float)c[i] * scale[i];
    for (int64_t i = 0; i < n && !step; i++)
        y[i] = (float)c[i] * *scale;
    for (int64_t i = 0; i < n && bias; i++)
        y[i] += bias[i];
}

/* The nearest even integer: added to 1.5 · 2^23, whose last bit counts ones; q is within ±2^22. */
INLINE int32_t nearest(float q)
{
    int32_t bits;
    q += 12582912.0f;
    memcpy(&bits, &q, 4);
    return bits - 0x4b400000;
}

/* Cut before it is rounded, so that it may be anything; NaN is the lowest. */
INLINE uint8_t to_byte(float q, float lo, float hi, int zero)
{
    q = q > lo ? q : lo;
    q = q < hi ? q : hi;
    return (uint8_t)(nearest(q) + zero);
}

static void requantise(int64_t n, const int32_t *c, const float *scale, int step, int zero, int lo, uint8_t *y)
{
    float least = (float)(lo - zero), most = (float)(lo + 255 - zero), one = *scale;
    for (int64_t i = 0; i < n && step; i++)
        y[i] = to_byte((float)c[i] * scale[i], least, most, zero);
    for (int64_t i = 0; i < n && !step; i++)
        y[i] = to_byte((float)c[i] * one, least, most, zero);
}

static void quantise(int64_t n, const float *x, float scale, int zero, int lo, uint8_t *y)
{
    float least = (float)(lo - zero), most = (float)(lo + 255 - zero);
    for (int64_t i = 0; i < n; i++)
        y[i] = to_byte(x[i] / scale, least, most, zero);
}

static void dequantise(int64_t n, const uint8_t *x, bool is_signed, float scale, int zero, float *y)
{
    int flip = is_signed ? 128 : 0, shift = zero + flip; /* signed bytes with their first bit turned count from -128 */
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((int)(x[i] ^ flip) - shift) * scale;
}

typedef uint8_t v16 __attribute__((vector_size(16), aligned(1), may_alias));
#define UNPACK(HALF, A, B)                                                                                                                 \
    __builtin_shufflevector(A, B, HALF + 0, HALF + 16, HALF + 1, HALF + 17, HALF + 2, HALF + 18, HALF + 3, HALF + 19, HALF + 4, HALF + 20, \
                            HALF + 5, HALF + 21, HALF + 6, HALF + 22, HALF + 7, HALF + 23)

/* Sixteen rows of sixteen bytes: rows i and i + 8 side by side, four times. */
INLINE void turn_block(const uint8_t *from, int64_t ld_from, uint8_t flip, uint8_t *to, int64_t ld_to)
{
    v16 a[16], b[16];
    UNROLLED (i, 0, 16)
        a[i] = *(const v16 *)(from + i * ld_from) ^ flip;
    for (int pass = 0; pass < 2; pass++) {
        UNROLLED (i, 0, 8) {
            b[2 * i] = UNPACK(0, a[i], a[i + 8]);
            b[2 * i + 1] = UNPACK(8, a[i], a[i + 8]);
        }
        UNROLLED (i, 0, 8) {
            a[2 * i] = UNPACK(0, b[i], b[i + 8]);
            a[2 * i + 1] = UNPACK(8, b[i], b[i + 8]);
        }
    }
    UNROLLED (i, 0, 16)
        *(v16 *)(to + i * ld_to) = a[i];
}

static void turn(int64_t rows, int64_t cols, const uint8_t *from, int64_t ld_from, uint8_t flip, uint8_t *to, int64_t ld_to)
{
    int64_t wide = rows / 16 * 16, long_ = cols / 16 * 16;
    for (int64_t j = 0; j < long_; j += 16)
        for (int64_t i = 0; i < wide; i += 16)
            turn_block(from + i * ld_from + j, ld_from, flip, to + j * ld_to + i, ld_to);
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = j < long_ ? wide : 0; i < rows; i++)
            to[j * ld_to + i] = from[i * ld_from + j] ^ flip;
}

static void add_products(int64_t n, const uint8_t *x, int zero, const int16_t *w, int32_t *sum)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)((x[i] - zero) * w[i]));
}

static void range(int64_t n, const float *x, float *lo, float *hi)
{
    enum { WIDE = 64 };
    float least[WIDE], most[WIDE];
    int64_t i = 0;
    for (int j = 0; j < WIDE; j++) {
        least[j] = *lo;
        most[j] = *hi;
    }
    for (; i + WIDE <= n; i += WIDE)
        for (int j = 0; j < WIDE; j++) {
            least[j] = x[i + j] < least[j] ? x[i + j] : least[j];
            most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
        }
    for (int j = 0; i < n; i++, j++) {
        least[j] = x[i] < least[j] ? x[i] : least[j];
        most[j] = x[i] > most[j] ? x[i] : most[j];
    }
    for (int j = 0; j < WIDE; j++) {
        *lo = least[j] < *lo ? least[j] : *lo;
        *hi = most[j] > *hi ? most[j] : *hi;
    }
}

#ifndef BLOCK
#define BLOCK block
#endif

static bool supported(void)
{
    return ISA_SUPPORTED;
}

const eng_int8_kernels KERNELS = {.name = ISA_NAME,
                                  .depth = DEPTH,
                                  .mr = MR,
                                  .nr = NR,
                                  .supported = supported,
                                  .block = BLOCK,
                                  .floats = floats,
                                  .requantise = requantise,
                                  .quantise = quantise,
                                  .dequantise = dequantise,
                                  .turn = turn,
                                  .add_products = add_products,
                                  .range = range};
