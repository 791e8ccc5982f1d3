/* lanes.inc.h - convolutions with the filters in the lanes, and what follows them while the filters lie there; part of kernels.inc.h.
 *
 * A tile is a few neighbouring pixels of a row times one or NV vectors of filters: a pixel is one broadcast whatever the stride, so rows
 * of any width fill the lanes and the image needs no rearranging. A maximum of pixels is then one of vectors. */

/* The same columns of all rows: R pixels × V vectors. */
INLINE void tile_pixels(const int R, const int V, const int S, const eng_conv_rows *g, tile_at t, const float *bias)
{
    for (int row = 0; row < g->rows; row++, t.a += g->ldx, t.c += g->ldy) {
        vf acc[ACC_MAX];
        UNROLLED (i, 0, R * V)
            acc[i] = *(const vf *)(bias + i % V * VL);
        tile_sum(R, V, S, A_SCATTERED, &t, 0, NR, acc);
        if (g->relu) {
            UNROLLED (i, 0, R * V)
                acc[i] = vrelu(acc[i]);
        }
        UNROLLED (r, 0, R)
            UNROLLED (v, 0, V)
                *(vf *)(t.c + r * t.ldc + v * VL) = acc[r * V + v];
    }
}

/* X(pixels, interleave): tiles of one vector, for the filters behind the last whole panel */
#if MR >= 6
#define ONE_MAX       12
#define ONE_VECTOR(X) X(1, 4) X(2, 4) X(3, 4) X(4, 2) X(5, 2) X(6, 2) X(7, 1) X(8, 1) X(9, 1) X(10, 1) X(11, 1) X(12, 1)
#else
#define ONE_MAX       8
#define ONE_VECTOR(X) X(1, 4) X(2, 4) X(3, 4) X(4, 2) X(5, 2) X(6, 2) X(7, 1) X(8, 1)
#endif

#define PIXELS(R, P, S)                                                              \
    static void pixels_##R(const eng_conv_rows *g, const tile_at *t, const float *b) \
    {                                                                                \
        tile_pixels(R, NV, S, g, *t, b);                                             \
    }
#define PIXELS_ONE(R, S)                                                                 \
    static void one_pixels_##R(const eng_conv_rows *g, const tile_at *t, const float *b) \
    {                                                                                    \
        tile_pixels(R, 1, S, g, *t, b);                                                  \
    }
FEW_ROWS(PIXELS)
MANY_ROWS(PIXELS)
ONE_VECTOR(PIXELS_ONE)

#define PIXELS_AT(R, P, S)  [R] = pixels_##R,
#define PIXELS_ONE_AT(R, S) [R] = one_pixels_##R,
static void (*const pixels_of[MR + 1])(const eng_conv_rows *, const tile_at *, const float *) = {FEW_ROWS(PIXELS_AT) MANY_ROWS(PIXELS_AT)};
static void (*const one_pixels_of[ONE_MAX + 1])(const eng_conv_rows *, const tile_at *, const float *) = {ONE_VECTOR(PIXELS_ONE_AT)};

static void conv_rows(const eng_conv_rows *g)
{
    ptrdiff_t pixel = (g->m + VL - 1) / VL * VL;
    tile_at t = {.k = g->k, .ars = g->step, .bps = NR, .off = g->off, .ldc = pixel, .b = g->w};
    for (int f = 0; f < g->m; f += NR, t.b += (ptrdiff_t)g->k * NR) {
        bool one = g->m - f <= VL;
        int most = one ? ONE_MAX : MR, tiles = (g->n + most - 1) / most, base = g->n / tiles, more = g->n % tiles;
        t.a = g->x;
        t.c = g->y + f;
        for (int i = 0; i < tiles; i++) {
            int n = base + (i < more);
            (one ? one_pixels_of : pixels_of)[n](g, &t, g->bias + f);
            t.a += n * g->step;
            t.c += n * pixel;
        }
    }
}

INLINE void pool_windows(int n, int m, const float *from, ptrdiff_t ld, const int kh, const int kw, int step, float *to)
{
    for (int i = 0; i < n; i++, from += (ptrdiff_t)step * m, to += m)
        for (int f = 0; f < m; f += VL) {
            vf top = *(const vf *)(from + f);
            for (int y = 0; y < kh; y++)
                for (int x = !y; x < kw; x++) {
                    vf v = *(const vf *)(from + f + y * ld + (ptrdiff_t)x * m);
                    top = (vf)((vi)larger(v, top) | (v != v)); /* larger() keeps a NaN of top, not of v */
                }
            *(vf *)(to + f) = top;
        }
}

static void pool_rows(int n, int m, const float *from, ptrdiff_t ld, int kh, int kw, int step, float *to)
{
    if (kh == 2 && kw == 2)
        pool_windows(n, m, from, ld, 2, 2, step, to);
    else
        pool_windows(n, m, from, ld, kh, kw, step, to);
}

/* Blocks of T × T numbers are turned in registers: quarters of four by four, which AVX2's shuffles take two at once. */
#define T (VL < 8 ? 4 : 8)
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
#if VL < 8
typedef v4 vt;
#define EVERY_HALF(a, b, i, j) __builtin_shufflevector(a, b, i, (i) + 4, j, (j) + 4)
#define PAIRS(a, b, i)         __builtin_shufflevector(a, b, i, (i) + 1, (i) + 4, (i) + 5)
#else
typedef float vt __attribute__((vector_size(32), aligned(4), may_alias));
#define EVERY_HALF(a, b, i, j) __builtin_shufflevector(a, b, i, (i) + 8, j, (j) + 8, (i) + 4, (i) + 12, (j) + 4, (j) + 12)
#define PAIRS(a, b, i)         __builtin_shufflevector(a, b, i, (i) + 1, (i) + 8, (i) + 9, (i) + 4, (i) + 5, (i) + 12, (i) + 13)
#endif

/* Four numbers of T pixels: of each, one vector. */
INLINE void turn_4(const float *from, ptrdiff_t ld, vt *o)
{
    vt r[4];
    UNROLLED (i, 0, 4)
#if VL < 8
        r[i] = *(const vt *)(from + i * ld);
#else
        r[i] = __builtin_shufflevector(*(const v4 *)(from + i * ld), *(const v4 *)(from + (i + 4) * ld), 0, 1, 2, 3, 4, 5, 6, 7);
#endif
    vt a = EVERY_HALF(r[0], r[1], 0, 1), b = EVERY_HALF(r[2], r[3], 0, 1), c = EVERY_HALF(r[0], r[1], 2, 3),
       d = EVERY_HALF(r[2], r[3], 2, 3);
    o[0] = PAIRS(a, b, 0);
    o[1] = PAIRS(a, b, 2);
    o[2] = PAIRS(c, d, 0);
    o[3] = PAIRS(c, d, 2);
}

INLINE vt turn_end(vt x, const float *add, bool relu)
{
    if (add)
        x += *(const vt *)add;
    return relu ? (vt)(~(x < (vt){0}) & (__typeof__(x < x))x) : x;
}

static void turn(int n, int m, const float *from, ptrdiff_t ldfrom, const float *add, bool relu, float *to, ptrdiff_t ldto)
{
    for (int f = 0; f < m; f += 4, from += 4, to += 4 * ldto, add = add ? add + 4 * ldto : NULL) {
        int planes = m - f < 4 ? m - f : 4;
        for (int i = 0; i < n; i += T) {
            vt o[4];
            i = n - i < T && n >= T ? n - T : i; /* the last block overlaps */
            turn_4(from + i * ldfrom, ldfrom, o);
            if (n >= T && planes == 4) {
                UNROLLED (k, 0, 4)
                    *(vt *)(to + k * ldto + i) = turn_end(o[k], add ? add + k * ldto + i : NULL, relu);
                continue;
            }
            for (int k = 0; k < planes; k++) {
                float more[T] = {0};
                size_t bytes = (size_t)(n < T ? n : T) * sizeof *to;
                if (add)
                    memcpy(more, add + k * ldto + i, bytes);
                vt x = turn_end(o[k], add ? more : NULL, relu);
                memcpy(to + k * ldto + i, &x, bytes);
            }
        }
    }
}
