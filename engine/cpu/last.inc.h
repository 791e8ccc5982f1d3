/* last.inc.h - images with their channels in the lanes; part of kernels.inc.h.
 *
 * With the channels side by side a convolution of one position is a matrix product of the pixels as they lie, one of several is the same
 * of gathered pixels, a filter of one channel works on whole vectors whatever the stride and the width of the image, and nothing is
 * lost at the edges of small images. Bias, residual and activation are applied while the sums are in registers. */

#define LAST_ONE_MAX 12

INLINE vf last_end(const eng_last_end *e, vf alpha, vf beta, vf x)
{
    switch (e->act) {
    case ENG_ACT_RELU: return vrelu(x);
    case ENG_ACT_CLIP: return vclip(alpha, beta, x);
    case ENG_ACT_HARDSWISH: return x * vclip(splat(0), splat(1), x * (1.0f / 6) + 0.5f);
    case ENG_ACT_HARDSIGMOID: return vclip(splat(0), splat(1), alpha * x + beta);
    default: return x;
    }
}

/* R pixels × V vectors of filters. */
INLINE void tile_last(const int R, const int V, const tile_at *t, const float *bias, const float *add, const eng_last_end *e)
{
    vf acc[ACC_MAX], alpha = splat(e->alpha), beta = splat(e->beta);
    UNROLLED (i, 0, R * V)
        acc[i] = *(const vf *)(bias + i % V * VL);
    tile_sum(R, V, 1, IN_ORDER, t, 1, NR, acc);
    if (add) {
        UNROLLED (r, 0, R)
            UNROLLED (v, 0, V)
                acc[r * V + v] += *(const vf *)(add + r * t->ldc + v * VL);
    }
    if (e->act != ENG_ACT_NONE) {
        UNROLLED (i, 0, R * V)
            acc[i] = last_end(e, alpha, beta, acc[i]);
    }
    UNROLLED (r, 0, R)
        UNROLLED (v, 0, V)
            *(vf *)(t->c + r * t->ldc + v * VL) = acc[r * V + v];
}

#define LAST_PANEL(X)  FEW_ROWS(X) MANY_ROWS(X)
#define LAST_VECTOR(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define LAST_TILE(R, P, S)                                                                             \
    static void last_##R(const tile_at *t, const float *bias, const float *add, const eng_last_end *e) \
    {                                                                                                  \
        tile_last(R, NV, t, bias, add, e);                                                             \
    }
#define LAST_ONE_TILE(R)                                                                                   \
    static void last_one_##R(const tile_at *t, const float *bias, const float *add, const eng_last_end *e) \
    {                                                                                                      \
        tile_last(R, 1, t, bias, add, e);                                                                  \
    }
LAST_PANEL(LAST_TILE)
LAST_VECTOR(LAST_ONE_TILE)

/* Pixels that are so few take several panels, so that enough sums are under way. */
static void last_1x4(const tile_at *t, const float *bias, const float *add, const eng_last_end *e)
{
    tile_last(1, 4 * NV, t, bias, add, e);
}

static void last_2x2(const tile_at *t, const float *bias, const float *add, const eng_last_end *e)
{
    tile_last(2, 2 * NV, t, bias, add, e);
}

#define LAST_AT(R, P, S) [R] = last_##R,
#define LAST_ONE_AT(R)   [R] = last_one_##R,
typedef void (*last_tile)(const tile_at *t, const float *bias, const float *add, const eng_last_end *e);
static const last_tile last_of[MR + 1] = {LAST_PANEL(LAST_AT)}, last_one_of[LAST_ONE_MAX + 1] = {LAST_VECTOR(LAST_ONE_AT)};

static void last_layer(const eng_last_layer *l)
{
    tile_at t = {.k = l->k, .ars = l->lda, .acs = 1, .brs = NR, .bps = (ptrdiff_t)l->k * NR, .ldc = l->ldc};
    for (int f = 0, wide; f < l->n; f += wide) {
        int left = l->n - f;
        bool one = left <= VL;
        wide = NR; /* few rows: several panels at once, as in the products of bytes */
        if (l->m == 1 && left > 3 * NR + VL)
            wide = 4 * NR;
        else if (l->m == 2 && left > NR + VL)
            wide = 2 * NR;
        int most = one ? LAST_ONE_MAX : MR, tiles = (l->m + most - 1) / most;
        t.b = l->w + (ptrdiff_t)f / NR * t.bps;
        for (int i = 0, row = 0, rows; i < tiles; i++, row += rows) {
            rows = eng_tile_rows(l->m, tiles, i);
            last_tile tile = one ? last_one_of[rows] : last_of[rows];
            if (wide > NR)
                tile = wide == 4 * NR ? last_1x4 : last_2x2;
            t.a = l->a + row * l->lda;
            t.c = l->c + row * l->ldc + f;
            tile(&t, l->bias + f, l->add ? l->add + row * l->ldc + f : NULL, &l->end);
        }
    }
}

/* Positions of a kernel that lie inside [0, in) from place `at` on. */
INLINE void last_inside(int at, int step, int k, int in, int *ret_from, int *ret_to)
{
    int from = at < 0 ? (-at + step - 1) / step : 0, to = in > at ? (in - 1 - at) / step + 1 : 0;
    *ret_from = from < k ? from : k;
    *ret_to = to < k ? to : k;
    if (*ret_to < *ret_from)
        *ret_to = *ret_from;
}

/* Whole vectors are moved: what is too much is written again, or lies behind the last row. */
INLINE float *last_move(float *to, const float *from, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += VL)
        *(vf *)(to + i) = *(const vf *)(from + i);
    return to + n;
}

INLINE float *last_zeros(float *to, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += VL)
        *(vf *)(to + i) = splat(0);
    return to + n;
}

static void last_gather(const eng_last_window *g, const eng_last_gather *s)
{
    bool close = g->ld == s->channels && g->dw == 1;
    ptrdiff_t channels = s->channels;
    float *row = s->y;
    for (int64_t i = s->from; i < s->to; i++, row += s->ldy) {
        const float *image = g->x + i / s->out_count * s->image;
        int at = (int)(i % s->out_count), top = at / g->out_w * g->sh - g->pt, left = at % g->out_w * g->sw - g->pl, y0, y1, x0, x1;
        float *to = row;
        last_inside(top, g->dh, g->kh, g->in_h, &y0, &y1);
        last_inside(left, g->dw, g->kw, g->in_w, &x0, &x1);
        to = last_zeros(to, (ptrdiff_t)y0 * g->kw * channels);
        for (int ky = y0; ky < y1; ky++) {
            const float *from = image + (((ptrdiff_t)top + (ptrdiff_t)ky * g->dh) * g->in_w + left + (ptrdiff_t)x0 * g->dw) * g->ld;
            to = last_zeros(to, x0 * channels);
            if (close)
                to = last_move(to, from, (x1 - x0) * channels);
            for (int kx = x0; kx < x1 && !close; kx++, from += g->dw * g->ld)
                to = last_move(to, from, channels);
            to = last_zeros(to, (g->kw - x1) * channels);
        }
        last_zeros(to, (ptrdiff_t)(g->kh - y1) * g->kw * channels);
    }
}

/* Where a tile reads: positions [y0, y1) × [x0, x1) of the kernel. */
typedef struct last_reach {
    int y0, y1, x0, x1;
    ptrdiff_t at; /* of position (0, 0) of the first pixel, which may lie in front of the image */
} last_reach;

/* P pixels × V vectors of channels, a filter for each. */
INLINE void tile_depth(const int P, const int V, const eng_last_window *g, const last_reach *r, ptrdiff_t ch, float *y)
{
    vf acc[8], alpha = splat(g->end.alpha), beta = splat(g->end.beta);
    ptrdiff_t pixel = g->sw * g->ld;
    UNROLLED (i, 0, P * V)
        acc[i] = *(const vf *)(g->bias + ch + i % V * VL);
    for (int ky = r->y0; ky < r->y1; ky++) {
        const float *x = g->x + (r->at + ch + ((ptrdiff_t)ky * g->dh * g->in_w + (ptrdiff_t)r->x0 * g->dw) * g->ld),
                    *w = g->w + ((ptrdiff_t)ky * g->kw + r->x0) * g->ld + ch;
        for (int kx = r->x0; kx < r->x1; kx++, x += g->dw * g->ld, w += g->ld) {
            vf f[4];
            UNROLLED (v, 0, V)
                f[v] = *(const vf *)(w + v * VL);
            UNROLLED (p, 0, P)
                UNROLLED (v, 0, V)
                    FMA_MEM(acc[p * V + v], f[v], (const vf *)(x + p * pixel + v * VL));
        }
    }
    UNROLLED (p, 0, P)
        UNROLLED (v, 0, V)
            *(vf *)(y + p * g->ld + ch + v * VL) = last_end(&g->end, alpha, beta, acc[p * V + v]);
}

INLINE void depth_pixels(const int P, const int V, const eng_last_window *g, const last_reach *r, float *y)
{
    ptrdiff_t ch = 0;
    for (; ch + V * VL <= g->ld; ch += V * VL)
        tile_depth(P, V, g, r, ch, y);
    for (; ch < g->ld; ch += VL)
        tile_depth(P, 1, g, r, ch, y);
}

static void depth_1(const eng_last_window *g, const last_reach *r, float *y)
{
    depth_pixels(1, 4, g, r, y);
}

static void depth_4(const eng_last_window *g, const last_reach *r, float *y)
{
    depth_pixels(4, 2, g, r, y);
}

/* Results [*ret_from, *ret_to) of a row whose windows lie inside the image altogether. */
INLINE void last_whole(const eng_last_window *g, int *ret_from, int *ret_to)
{
    int reach = (g->kw - 1) * g->dw, from = (g->pl + g->sw - 1) / g->sw, room = g->in_w - 1 - reach + g->pl,
        to = room < 0 ? 0 : room / g->sw + 1;
    to = to < g->out_w ? to : g->out_w;
    *ret_from = from < to ? from : to;
    *ret_to = to;
}

static void last_depth(const eng_last_window *g)
{
    enum { P = 4 };
    int whole, end;
    last_whole(g, &whole, &end);
    for (int oy = g->from; oy < g->to; oy++) {
        last_reach r;
        int top = oy * g->sh - g->pt;
        last_inside(top, g->dh, g->kh, g->in_h, &r.y0, &r.y1);
        for (int ox = 0, n; ox < g->out_w; ox += n) {
            bool many = ox >= whole && ox < end && end - whole >= P;
            n = many ? P : 1;
            if (many && ox > end - P) { /* the last four of the row again, as far as they are known */
                n = end - ox;
                ox = end - P;
            }
            int left = ox * g->sw - g->pl;
            last_inside(left, g->dw, g->kw, g->in_w, &r.x0, &r.x1);
            r.at = ((ptrdiff_t)top * g->in_w + left) * g->ld;
            (many ? depth_4 : depth_1)(g, &r, g->y + ((ptrdiff_t)oy * g->out_w + ox) * g->ld);
            if (many && n < P)
                ox = end - n;
        }
    }
}

/* Numbers that a mean counts: those of the window inside the image, or inside the image and its padding. */
INLINE int last_counted(int at, int k, int dil, int in, int before, int behind)
{
    int n = 0;
    for (int i = 0; i < k; i++)
        n += at + i * dil >= -before && at + i * dil < in + behind;
    return n;
}

static void last_pool(const eng_last_window *g)
{
    for (int oy = g->from; oy < g->to; oy++)
        for (int ox = 0; ox < g->out_w; ox++) {
            int y0, y1, x0, x1, top = oy * g->sh - g->pt, left = ox * g->sw - g->pl, some = g->whole ? 1 : 0;
            last_inside(top, g->dh, g->kh, g->in_h, &y0, &y1);
            last_inside(left, g->dw, g->kw, g->in_w, &x0, &x1);
            int count = last_counted(top, g->kh, g->dh, g->in_h, some * g->pt, some * g->pb) *
                        last_counted(left, g->kw, g->dw, g->in_w, some * g->pl, some * g->pr);
            vf by = splat(!g->max && count > 0 ? 1.0f / (float)count : 1);
            float *y = g->y + ((ptrdiff_t)oy * g->out_w + ox) * g->ld;
            for (ptrdiff_t ch = 0; ch < g->ld; ch += VL) {
                vf top_of = splat(g->max ? -__builtin_inff() : 0);
                for (int ky = y0; ky < y1; ky++)
                    for (int kx = x0; kx < x1; kx++) {
                        vf v = *(const vf *)(g->x + (((ptrdiff_t)top + ky * g->dh) * g->in_w + left + kx * g->dw) * g->ld + ch);
                        if (g->max)
                            top_of = (vf)((vi)larger(v, top_of) | (v != v)); /* NaN above all */
                        else
                            top_of += v;
                    }
                *(vf *)(y + ch) = top_of * by;
            }
        }
}

/* Means over n pixels. */
static void last_mean(int64_t n, ptrdiff_t ld, const float *x, float *y)
{
    vf by = splat(1.0f / (float)n);
    for (ptrdiff_t ch = 0; ch < ld; ch += VL) {
        vf s[4] = {splat(0), splat(0), splat(0), splat(0)};
        const float *at = x + ch;
        for (int64_t i = 0; i < n; i++, at += ld)
            s[i & 3] += *(const vf *)at;
        *(vf *)(y + ch) = ((s[0] + s[1]) + (s[2] + s[3])) * by;
    }
}

/* y = a + b or a · b; b: as many pixels, or one for all. */
static void last_mix(bool mul, int64_t n, ptrdiff_t ld, const float *a, const float *b, bool one, const eng_last_end *e, float *y)
{
    vf alpha = splat(e->alpha), beta = splat(e->beta);
    for (int64_t i = 0; i < n; i++, a += ld, y += ld, b += one ? 0 : ld)
        for (ptrdiff_t ch = 0; ch < ld; ch += VL) {
            vf x = *(const vf *)(a + ch), z = *(const vf *)(b + ch);
            if (mul)
                x *= z;
            else
                x += z;
            *(vf *)(y + ch) = last_end(e, alpha, beta, x);
        }
}
