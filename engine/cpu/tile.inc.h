/* tile.inc.h - register tiles: a few rows times panels of NR columns, for matrix products and fused networks; part of kernels.inc.h.
 *
 * A tile keeps rows × vectors sums in registers and walks k: one load per vector of b, one broadcast per row of a. Tiles of few rows
 * take several panels, and when that is not enough several sums per output (every second, every fourth k), so that there are always
 * about eight independent sums: the latency of a multiply-add times two a cycle. */

#define ACC_MAX (MR * NV > 12 ? MR * NV : 12) /* sums of the largest tile, below */

typedef struct tile_at {
    int k, cols; /* cols: of the last panel, when it is not whole; else V·VL */
    const float *a;
    ptrdiff_t ars, acs;
    const float *b;
    ptrdiff_t brs, bps;
    const int32_t *off;
    float *c;
    ptrdiff_t ldc;
} tile_at;

enum { IN_ORDER, A_SCATTERED, B_SCATTERED };

/* Sums of R rows × V vectors, S interleaved in k. b: vector v at b + (v / NV)·bps + (v % NV)·VL. The next k lies acs and brs further; of
 * the matrix that is scattered, k lies at a + off[k] or b + off[k]. */
INLINE void tile_sum(const int R, const int V, const int S, const int scattered, const tile_at *t, ptrdiff_t acs, ptrdiff_t brs, vf *acc)
{
    int k = t->k;
    const float *a = t->a, *b = t->b, *base = scattered == A_SCATTERED ? a : b;
    const int32_t *off = t->off;
    ptrdiff_t ars = t->ars, bps = t->bps;
    vf part[ACC_MAX];
    UNROLLED (i, 0, S * R * V)
        part[i] = i < R * V ? acc[i] : splat(0);
    int i = 0;
    UNROLLED_4 (; i + S <= k; i += S)
        UNROLLED (s, 0, S) {
            vf w[4 * NV];
            if (scattered)
                *(scattered == A_SCATTERED ? &a : &b) = base + *off++;
            UNROLLED (v, 0, V)
                if (R > 1)
                    w[v] = *(const vf *)(b + (v / NV) * bps + (v % NV) * VL);
            UNROLLED (r, 0, R) {
                vf x = splat(a[r * ars]);
                UNROLLED (v, 0, V)
                    if (R > 1)
                        FMA(part[(s * R + r) * V + v], x, w[v]);
                    else /* read once: no register for it */
                        FMA_MEM(part[s * V + v], x, (const vf *)(b + (v / NV) * bps + (v % NV) * VL));
            }
            a += scattered == A_SCATTERED ? 0 : acs;
            b += scattered == B_SCATTERED ? 0 : brs;
        }
    for (; S > 1 && i < k; i++) {
        if (scattered)
            *(scattered == A_SCATTERED ? &a : &b) = base + *off++;
        UNROLLED (r, 0, R)
            UNROLLED (v, 0, V)
                part[r * V + v] += a[r * ars] * *(const vf *)(b + (v / NV) * bps + (v % NV) * VL);
        a += scattered == A_SCATTERED ? 0 : acs;
        b += scattered == B_SCATTERED ? 0 : brs;
    }
    UNROLLED (j, 0, R * V) {
        vf sum = part[j];
        UNROLLED (s, 1, S)
            sum += part[s * R * V + j];
        acc[j] = sum;
    }
}

INLINE void tile_product(const int R, const int V, const int S, const tile_at *t, float alpha, bool add)
{
    vf acc[ACC_MAX];
    float *c = t->c;
    UNROLLED (i, 0, R * V) {
        acc[i] = splat(0);
        if (i % V * VBYTES % 64 == 0) /* c comes while the sums are made */
            __builtin_prefetch(c + i / V * t->ldc + i % V * VL, 1);
    }
    tile_sum(R, V, S, IN_ORDER, t, t->acs, t->brs, acc);
    if (t->cols == V * VL) {
        UNROLLED (r, 0, R)
            UNROLLED (v, 0, V) {
                vf *to = (vf *)(c + r * t->ldc + v * VL), x = acc[r * V + v] * alpha;
                if (add)
                    x += *to;
                *to = x;
            }
        return;
    }
    _Alignas(64) float part[ACC_MAX * VL];
    UNROLLED (i, 0, R * V)
        *(vf *)(part + i * VL) = acc[i] * alpha;
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V && t->cols > v * VL; v++) {
            int n = t->cols - v * VL;
            float *to = c + r * t->ldc + v * VL;
            vf x = *(const vf *)(part + (r * V + v) * VL);
            if (add)
                x += load_part(to, n);
            store_part(to, x, n);
        }
}

/* Rows of a convolution: a packed, b scattered, c has room for whole panels. */
INLINE void tile_conv(const int R, const int V, const int S, const tile_at *t, bool add)
{
    vf acc[ACC_MAX];
    UNROLLED (r, 0, R)
        UNROLLED (v, 0, V)
            acc[r * V + v] = add ? *(const vf *)(t->c + r * t->ldc + v * VL) : splat(0);
    tile_sum(R, V, S, B_SCATTERED, t, R, 0, acc);
    UNROLLED (r, 0, R)
        UNROLLED (v, 0, V)
            *(vf *)(t->c + r * t->ldc + v * VL) = acc[r * V + v];
}

/* Rows of a dense layer: bias first, Relu in registers, everything else behind (it is a pass over what L1 holds). */
INLINE void tile_dense(const int R, const int V, const int S, const tile_at *t, const float *bias, bool relu)
{
    vf acc[ACC_MAX];
    UNROLLED (i, 0, R * V)
        acc[i] = *(const vf *)(bias + i % V * VL);
    tile_sum(R, V, S, IN_ORDER, t, 1, NR, acc);
    if (relu) {
        UNROLLED (i, 0, R * V)
            acc[i] = vrelu(acc[i]);
    }
    if (t->cols == V * VL) {
        UNROLLED (r, 0, R)
            UNROLLED (v, 0, V)
                *(vf *)(t->c + r * t->ldc + v * VL) = acc[r * V + v];
        return;
    }
    _Alignas(64) float part[ACC_MAX * VL];
    UNROLLED (i, 0, R * V)
        *(vf *)(part + i * VL) = acc[i];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V && t->cols > v * VL; v++)
            store_part(t->c + r * t->ldc + v * VL, *(const vf *)(part + (r * V + v) * VL), t->cols - v * VL);
}

/* X(rows, panels, interleave) */
#if MR >= 12
#define MANY_ROWS(X) X(5, 1, 1) X(6, 1, 1) X(7, 1, 1) X(8, 1, 1) X(9, 1, 1) X(10, 1, 1) X(11, 1, 1) X(12, 1, 1)
#elif MR >= 6
#define MANY_ROWS(X) X(5, 1, 1) X(6, 1, 1)
#else
#define MANY_ROWS(X)
#endif
#define FEW_ROWS(X)       X(1, 1, 4) X(2, 1, 2) X(3, 1, 2) X(4, 1, 1)
#define SEVERAL_PANELS(X) X(1, 4, 1) X(1, 2, 2) X(2, 2, 1)
#define WIDE_REST(X)      X(1, 2, 1) X(1, 1, 1) X(1, 1, 2) X(2, 1, 1)

#define TILE(R, P, S)                                                              \
    static void product_##R##x##P##x##S(const tile_at *t, float alpha, bool add)   \
    {                                                                              \
        tile_product(R, P *NV, S, t, alpha, add);                                  \
    }                                                                              \
    static void dense_##R##x##P##x##S(const tile_at *t, const float *b, bool relu) \
    {                                                                              \
        tile_dense(R, P *NV, S, t, b, relu);                                       \
    }
#define CONV_TILE(R, P, S)                                 \
    static void conv_##R##x##P(const tile_at *t, bool add) \
    {                                                      \
        tile_conv(R, P *NV, S, t, add);                    \
    }
FEW_ROWS(TILE)
MANY_ROWS(TILE)
SEVERAL_PANELS(TILE)
WIDE_REST(TILE)
FEW_ROWS(CONV_TILE)
MANY_ROWS(CONV_TILE)
SEVERAL_PANELS(CONV_TILE)

/* [interleave / 2][panels / 2][rows] */
#define PRODUCT_ONE(R, P, S) [S / 2][P / 2][R] = product_##R##x##P##x##S,
#define DENSE_ONE(R, P, S)   [S / 2][P / 2][R] = dense_##R##x##P##x##S,
#define CONV_ONE(R, P, S)    [R] = conv_##R##x##P,
static void (*const conv_of[MR + 1])(const tile_at *, bool) = {FEW_ROWS(CONV_ONE) MANY_ROWS(CONV_ONE)};
static void (*const product_of[3][3][MR + 1])(const tile_at *, float, bool) = {FEW_ROWS(PRODUCT_ONE) MANY_ROWS(PRODUCT_ONE)
                                                                                   SEVERAL_PANELS(PRODUCT_ONE) WIDE_REST(PRODUCT_ONE)};
static void (*const dense_of[3][3][MR + 1])(const tile_at *, const float *, bool) = {FEW_ROWS(DENSE_ONE) MANY_ROWS(DENSE_ONE)
                                                                                         SEVERAL_PANELS(DENSE_ONE) WIDE_REST(DENSE_ONE)};

/* Panels a tile of so many rows takes at once while so many are left. */
INLINE int panels_at_once(int rows, int left)
{
    if (rows == 1 && left >= 4)
        return 4;
    return rows <= 2 && left >= 2 ? 2 : 1;
}

/* Sums per output: the same for all columns of a product, so that equal columns give equal results wherever they stand; `together` of
 * the panels can be taken several at once. */
INLINE int interleave(int rows, int panels, int together)
{
    switch (rows) {
    case 1: return together >= 4 ? 1 : panels >= 2 ? 2 : 4;
    case 2: return together >= 2 ? 1 : 2;
    case 3: return 2;
    default: return 1;
    }
}

static void block(const eng_block *g)
{
    int panels = (g->n + NR - 1) / NR, tiles = (g->m + MR - 1) / MR;
    tile_at t = {.k = g->k, .ars = g->a_packed ? 1 : g->ars, .acs = g->acs, .brs = g->brs, .bps = g->bps, .ldc = g->ldc};
    int together = g->tail ? g->n / NR : panels; /* the last panel of columns that lie apart from the others */
    for (int p = 0, at_once; p < panels; p += at_once) {
        bool apart = p >= together;
        at_once = tiles == 1 && !apart ? panels_at_once(g->m, together - p) : 1;
        t.cols = g->n - p * NR < at_once * NR ? g->n - p * NR : at_once * NR;
        t.b = apart ? g->tail : g->b + p * g->bps;
        t.brs = apart ? NR : g->brs;
        for (int i = 0, row = 0, rows; i < tiles; i++, row += rows) {
            rows = eng_tile_rows(g->m, tiles, i);
            t.a = g->a + row * (g->a_packed ? g->k : g->ars);
            t.acs = g->a_packed ? rows : g->acs;
            t.c = g->c + row * g->ldc + p * NR;
            int sums = interleave(rows, panels, tiles == 1 ? together : 1);
            product_of[sums / 2][at_once / 2][rows](&t, g->alpha, g->add);
        }
    }
}

/* k in parts whose columns stay in L1; then panels outside while the weights of a part fit L2, else tiles outside. */
static void conv(const eng_block *g)
{
    enum { K_PART = 384, L2_FLOATS = 64 << 10 };
    int panels = (g->n + NR - 1) / NR, tiles = (g->m + MR - 1) / MR, parts = (g->k + K_PART - 1) / K_PART,
        part = (g->k + parts - 1) / parts;
    tile_at t = {.cols = NR, .ars = 1, .bps = NR, .ldc = g->ldc};
    for (int k = 0; k < g->k; k += part) {
        t.k = g->k - k < part ? g->k - k : part;
        t.off = g->off + k;
        if (tiles == 1) {
            t.a = g->a + k * g->m;
            for (int p = 0, n; p < panels; p += n) {
                n = panels_at_once(g->m, panels - p);
                t.b = g->b + p * NR;
                t.c = g->c + p * NR;
                (n == 4 ? conv_1x4 : n == 1 ? conv_of[g->m] : g->m == 1 ? conv_1x2 : conv_2x2)(&t, k > 0);
            }
            continue;
        }
        bool by_panel = (int64_t)g->m * t.k <= L2_FLOATS;
        int base = g->m / tiles, more = g->m % tiles; /* as eng_tile_rows() shares them */
        if (by_panel) {
            for (int p = 0; p < panels; p++) {
                t.b = g->b + p * NR;
                t.c = g->c + p * NR;
                t.a = g->a + k * (base + 1);
                for (int i = 0; i < more; i++, t.a += (base + 1) * g->k, t.c += (base + 1) * g->ldc)
                    conv_of[base + 1](&t, k > 0);
                t.a -= k;
                for (int i = more; i < tiles; i++, t.a += base * g->k, t.c += base * g->ldc)
                    conv_of[base](&t, k > 0);
            }
            continue;
        }
        for (int i = 0, row = 0, rows; i < tiles; i++, row += rows) {
            rows = base + (i < more);
            t.a = g->a + (ptrdiff_t)row * g->k + k * rows;
            for (int p = 0; p < panels; p++) {
                t.b = g->b + p * NR;
                t.c = g->c + row * g->ldc + p * NR;
                conv_of[rows](&t, k > 0);
            }
        }
    }
}

/* One layer for a few rows: y (rows, out); pad: y has room for whole panels. */
static void dense(const eng_fused_step *s, const float *x, ptrdiff_t ldx, int rows, float *y, ptrdiff_t ldy, bool pad)
{
    int panels = (s->out + NR - 1) / NR, tiles = (rows + MR - 1) / MR;
    bool relu = s->act == ENG_ACT_RELU;
    tile_at t = {.k = s->in, .ars = ldx, .bps = (ptrdiff_t)s->in * NR, .ldc = ldy};
    for (int p = 0, at_once; p < panels; p += at_once) {
        at_once = tiles == 1 ? panels_at_once(rows, panels - p) : 1;
        t.cols = pad || s->out - p * NR > at_once * NR ? at_once * NR : s->out - p * NR;
        t.b = s->w + p * t.bps;
        for (int i = 0, row = 0, n; i < tiles; i++, row += n) {
            n = eng_tile_rows(rows, tiles, i);
            t.a = x + row * ldx;
            t.c = y + row * ldy + p * NR;
            dense_of[interleave(n, panels, tiles == 1 ? panels : 1) / 2][at_once / 2][n](&t, s->v + p * NR, relu);
        }
    }
    if (s->act <= ENG_ACT_RELU)
        return;
    for (int r = 0; r < rows; r++)
        act_array(s->act, s->alpha, s->beta, y + r * ldy, y + r * ldy, (size_t)s->out);
}

/* The gates of VL units are 4 / NV panels; rows of a tile take them all, and their cells follow while they are in L1. */
static void lstm_step(const eng_lstm_step *s)
{
    enum { GATES = 4 * VL, PANELS = GATES / NR };
    int tiles = (s->rows + MR - 1) / MR;
    _Alignas(64) float gates[MR * GATES];
    tile_at t = {.k = s->k, .cols = NR, .ars = s->ldx, .bps = (ptrdiff_t)s->k * NR, .ldc = GATES};
    for (int u = 0; u < s->units; u += VL)
        for (int i = 0, row = 0, n; i < tiles; i++, row += n) {
            n = eng_tile_rows(s->rows, tiles, i);
            t.a = s->x + row * s->ldx;
            for (int p = 0; p < PANELS; p++) {
                t.b = s->w + (u / VL * PANELS + p) * t.bps;
                t.c = gates + p * NR;
                dense_of[interleave(n, 1, 1) / 2][0][n](&t, s->bias + 4 * u + p * NR, false);
            }
            lstm(n, VL, gates, GATES, s->c + row * s->ldc + u, s->ldc, s->h + row * s->ldh + u, s->ldh);
        }
}

/* An elementwise step on rows padded to whole vectors; the divisor's padding is 1. */
static void elementwise(const eng_fused_step *s, float *x, int ldx, int rows)
{
    vf alpha = splat(s->alpha), beta = splat(s->beta);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < s->out; j += VL) {
            vf *at = (vf *)(x + (size_t)r * (size_t)ldx + j), a = *at, b = s->v ? *(const vf *)(s->v + j) : a;
            switch (s->kind) {
            case ENG_FUSED_ADD: a = a + b; break;
            case ENG_FUSED_SUB: a = a - b; break;
            case ENG_FUSED_MUL: a = a * b; break;
            case ENG_FUSED_DIV: a = a / b; break;
            default: break;
            }
            *at = activate(s->act, alpha, beta, a);
        }
}

/* One row: panels in fours, twos, ones, with nothing between them that the tiles of many rows need. y has room for whole panels. */
INLINE void dense_row(const eng_fused_step *s, const float *x, float *y)
{
    int panels = (s->out + NR - 1) / NR, p = 0;
    bool relu = s->act == ENG_ACT_RELU;
    tile_at t = {.k = s->in, .cols = 4 * NR, .a = x, .b = s->w, .bps = (ptrdiff_t)s->in * NR, .c = y};
    const int sums = interleave(1, panels, panels);
    for (; p + 4 <= panels; p += 4, t.b += 4 * t.bps, t.c += 4 * NR)
        tile_dense(1, 4 * NV, 1, &t, s->v + p * NR, relu);
    t.cols = 2 * NR;
    for (; p + 2 <= panels; p += 2, t.b += 2 * t.bps, t.c += 2 * NR)
        if (sums == 1)
            tile_dense(1, 2 * NV, 1, &t, s->v + p * NR, relu);
        else
            tile_dense(1, 2 * NV, 2, &t, s->v + p * NR, relu);
    t.cols = NR;
    if (p < panels && sums == 4)
        tile_dense(1, NV, 4, &t, s->v + p * NR, relu);
    else if (p < panels && sums == 2)
        tile_dense(1, NV, 2, &t, s->v + p * NR, relu);
    else if (p < panels)
        tile_dense(1, NV, 1, &t, s->v + p * NR, relu);
    if (s->act > ENG_ACT_RELU)
        act_array(s->act, s->alpha, s->beta, y, y, (size_t)s->out);
}

static void mlp_row(const eng_fused_step *steps, int n_steps, int ld, const float *x, float *y, float *work)
{
    int n_in = steps[0].in, which = 0;
    if (steps[0].kind != ENG_FUSED_DENSE) {
        memcpy(work, x, (size_t)n_in * sizeof *x);
        memset(work + n_in, 0, (size_t)(ld - n_in) * sizeof *x);
        x = work;
        which = ld;
    }
    for (const eng_fused_step *s = steps; s < steps + n_steps; s++) {
        if (s->kind != ENG_FUSED_DENSE) {
            elementwise(s, (float *)x, ld, 1);
            continue;
        }
        dense_row(s, x, work + which);
        x = work + which;
        which = ld - which;
    }
    memcpy(y, x, (size_t)steps[n_steps - 1].out * sizeof *y);
}

/* A block of rows goes through all layers before the next starts: activations stay in L1, each panel of weights comes once per block.
 * work: two blocks of activations, rows padded to whole panels. */
static void mlp(const eng_fused_step *steps, int n_steps, int width, const float *x, size_t rows, float *y, float *work)
{
    int ld = (width + NR - 1) / NR * NR, n_in = steps[0].in, n_out = steps[n_steps - 1].out;
    size_t many = (size_t)eng_mlp_rows(MR, ld);
    if (rows == 1) {
        mlp_row(steps, n_steps, ld, x, y, work);
        return;
    }
    float *bufs[2] = {work, work + many * (size_t)ld};
    bool to_end = steps[n_steps - 1].kind == ENG_FUSED_DENSE;
    for (size_t at = 0; at < rows; at += many) {
        int r = rows - at < many ? (int)(rows - at) : (int)many, which = 0;
        const float *in = x + at * (size_t)n_in;
        ptrdiff_t ldin = n_in;
        if (steps[0].kind != ENG_FUSED_DENSE) { /* elementwise steps work in place on padded rows */
            for (int i = 0; i < r; i++) {
                float *row = bufs[0] + (size_t)i * (size_t)ld;
                memcpy(row, in + (size_t)i * (size_t)n_in, (size_t)n_in * sizeof(float));
                memset(row + n_in, 0, (size_t)(ld - n_in) * sizeof(float));
            }
            in = bufs[0];
            ldin = ld;
            which = 1;
        }
        for (int k = 0; k < n_steps; k++) {
            if (steps[k].kind != ENG_FUSED_DENSE) {
                elementwise(&steps[k], bufs[which ^ 1], ld, r);
            } else if (to_end && k == n_steps - 1) {
                dense(&steps[k], in, ldin, r, y + at * (size_t)n_out, n_out, false);
            } else {
                dense(&steps[k], in, ldin, r, bufs[which], ld, true);
                in = bufs[which];
                ldin = ld;
                which ^= 1;
            }
        }
        for (int i = 0; i < r && !to_end; i++)
            memcpy(y + (at + (size_t)i) * (size_t)n_out, in + (size_t)i * (size_t)ld, (size_t)n_out * sizeof(float));
    }
}
