/* kernels.inc.h - the vector kernels, written once with GCC vector types and compiled per instruction set.
 * The including file defines VBYTES (vector bytes), MR and NV (the register tile: MR rows × NV vectors), ISA_NAME, ISA_SUPPORTED
 * and KERNELS (the table's name).
 *
 * Fused networks: a tile of MR rows goes through all layers before the next tile starts, so that activations stay in L1 and
 * weights, packed in column panels, stream from L1/L2. One row alone takes several panels at a time: that many independent
 * sums hide the latency of the multiply-add. */
#include "engine/cpu/isa.h"

#include <stdint.h>
#include <string.h>
#if VBYTES > 16
#include <immintrin.h>
#endif

#define VL (VBYTES / 4)
#define NR (VL * NV)

typedef float vf __attribute__((vector_size(VBYTES), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VBYTES), aligned(4), may_alias));

static inline __attribute__((always_inline)) vf splat(float f)
{
    return f - (vf){0};
}

static inline __attribute__((always_inline)) vf pick(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* e^x: range reduction by ln 2 in two parts, polynomial of degree 6 on [-ln2/2, ln2/2] (Cephes' expf); within 2 ulp, clamped to finite. */
static inline __attribute__((always_inline)) vf vexp(vf x)
{
    vf lo = splat(-87.3f), hi = splat(88.7f);
    vi nan = x != x;
    vf in = x;
    x = pick(x < lo, lo, pick(x > hi, hi, x));
    vf magic = splat(12582912.0f), t = x * 1.44269504088896341f + magic, n = t - magic;
    x = x - n * 0.693359375f;
    x = x - n * -2.12194440e-4f;
    vf y = splat(1.9875691500e-4f);
    y = y * x + 1.3981999507e-3f;
    y = y * x + 8.3334519073e-3f;
    y = y * x + 4.1665795894e-2f;
    y = y * x + 1.6666665459e-1f;
    y = y * x + 5.0000001201e-1f;
    y = y * (x * x) + x + 1.0f;
    vi e = (__builtin_convertvector(n, vi) + 126) << 23; /* 2^(n-1), then twice: n may be 128 */
    return pick(nan, in, y * (vf)e * 2.0f);
}

static inline __attribute__((always_inline)) vf vsigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

static inline __attribute__((always_inline)) vf vtanh(vf x)
{
    vi sign = (vi)x & INT32_MIN;
    vf a = (vf)((vi)x & INT32_MAX), z = x * x;
    vf e = vexp(a * 2.0f), big = (vf)((vi)(1.0f - 2.0f / (e + 1.0f)) | sign);
    vf p = splat(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z + -5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z + -3.33332819422e-1f;
    return pick(a < splat(0.625f), p * z * x + x, big);
}

static inline __attribute__((always_inline)) vf activate(pst_act act, vf alpha, vf x)
{
    vf zero = splat(0);
    switch (act) {
    case PST_ACT_RELU: return pick(x < zero, zero, x); /* NaN stays */
    case PST_ACT_LEAKY: return pick(x < zero, x * alpha, x);
    case PST_ACT_ELU: return pick(x < zero, alpha * (vexp(x) - 1.0f), x);
    case PST_ACT_SIGMOID: return vsigmoid(x);
    case PST_ACT_TANH: return vtanh(x);
    default: return x;
    }
}

static void micro(int k, const float *a, const float *b, float *tile)
{
    vf acc[MR][NV];
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++)
            acc[r][v] = splat(0);
    for (int i = 0; i < k; i++) {
        vf w[NV];
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++)
            w[v] = *(const vf *)(b + v * VL);
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++)
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++)
                acc[r][v] += a[r] * w[v];
        a += MR;
        b += NR;
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++)
            *(vf *)(tile + r * NR + v * VL) = acc[r][v];
}

/* R rows × P panels: y[r][p·NR …] = act(x[r]·w + bias) */
#define DENSE_TILE(NAME, R, P)                                                                                                           \
    static void NAME(const pst_fused_step *s, const float *x, int ldx, const float *w, const float *bias, float *y, int ldy)             \
    {                                                                                                                                    \
        vf acc[R * P * NV];                                                                                                              \
        int k = s->in;                                                                                                                   \
        size_t step = (size_t)k * NR;                                                                                                    \
        _Pragma("GCC unroll 16") for (int r = 0; r < R; r++) _Pragma("GCC unroll 8") for (int v = 0; v < P * NV; v++)                    \
            acc[r * P * NV + v] = *(const vf *)(bias + v * VL);                                                                          \
        for (int i = 0; i < k; i++) {                                                                                                    \
            vf wv[P * NV];                                                                                                               \
            _Pragma("GCC unroll 8") for (int v = 0; v < P * NV; v++) wv[v] = *(const vf *)(w + (size_t)(v / NV) * step + (v % NV) * VL); \
            _Pragma("GCC unroll 16") for (int r = 0; r < R; r++)                                                                         \
            {                                                                                                                            \
                float xr = x[r * ldx + i];                                                                                               \
                _Pragma("GCC unroll 8") for (int v = 0; v < P * NV; v++) acc[r * P * NV + v] += xr * wv[v];                              \
            }                                                                                                                            \
            w += NR;                                                                                                                     \
        }                                                                                                                                \
        if (s->act == PST_ACT_RELU) { /* the usual one stays in registers */                                                             \
            vf zero = splat(0);                                                                                                          \
            _Pragma("GCC unroll 64") for (int r = 0; r < R * P * NV; r++) acc[r] = pick(acc[r] < zero, zero, acc[r]);                    \
        }                                                                                                                                \
        vf alpha = splat(s->alpha);                                                                                                      \
        _Pragma("GCC unroll 16") for (int r = 0; r < R; r++) _Pragma("GCC unroll 8") for (int v = 0; v < P * NV; v++) *                  \
            (vf *)(y + r * ldy + v * VL) = acc[r * P * NV + v];                                                                          \
        if (s->act <= PST_ACT_RELU)                                                                                                      \
            return;                                                                                                                      \
        for (int r = 0; r < R; r++)                                                                                                      \
            for (int v = 0; v < P * NV; v++) {                                                                                           \
                vf *at = (vf *)(y + r * ldy + v * VL);                                                                                   \
                *at = activate(s->act, alpha, *at);                                                                                      \
            }                                                                                                                            \
    }
DENSE_TILE(dense_1x4, 1, 4)
DENSE_TILE(dense_1x2, 1, 2)
DENSE_TILE(dense_2x2, 2, 2)
DENSE_TILE(dense_mrx1, MR, 1)
#if MR > 8
DENSE_TILE(dense_8x1, 8, 1)
#endif
#if MR > 4
DENSE_TILE(dense_4x1, 4, 1)
#endif
DENSE_TILE(dense_2x1, 2, 1)
DENSE_TILE(dense_1x1, 1, 1)

static void dense(const pst_fused_step *s, const float *x, int ldx, int rows, float *y, int ldy)
{
    int panels = (s->out + NR - 1) / NR, p = 0;
    size_t step = (size_t)s->in * NR;
    if (rows == 1) {
        for (; p + 4 <= panels; p += 4)
            dense_1x4(s, x, ldx, s->w + (size_t)p * step, s->v + p * NR, y + p * NR, ldy);
        for (; p + 2 <= panels; p += 2)
            dense_1x2(s, x, ldx, s->w + (size_t)p * step, s->v + p * NR, y + p * NR, ldy);
    }
    if (rows == 2)
        for (; p + 2 <= panels; p += 2)
            dense_2x2(s, x, ldx, s->w + (size_t)p * step, s->v + p * NR, y + p * NR, ldy);
    for (; p < panels; p++) {
        const float *w = s->w + (size_t)p * step, *b = s->v + p * NR;
        float *at = y + p * NR;
        int r = 0;
        for (; r + MR <= rows; r += MR)
            dense_mrx1(s, x + (size_t)r * (size_t)ldx, ldx, w, b, at + (size_t)r * (size_t)ldy, ldy);
#if MR > 8
        for (; r + 8 <= rows; r += 8)
            dense_8x1(s, x + (size_t)r * (size_t)ldx, ldx, w, b, at + (size_t)r * (size_t)ldy, ldy);
#endif
#if MR > 4
        for (; r + 4 <= rows; r += 4)
            dense_4x1(s, x + (size_t)r * (size_t)ldx, ldx, w, b, at + (size_t)r * (size_t)ldy, ldy);
#endif
        for (; r + 2 <= rows; r += 2)
            dense_2x1(s, x + (size_t)r * (size_t)ldx, ldx, w, b, at + (size_t)r * (size_t)ldy, ldy);
        for (; r < rows; r++)
            dense_1x1(s, x + (size_t)r * (size_t)ldx, ldx, w, b, at + (size_t)r * (size_t)ldy, ldy);
    }
}

/* An elementwise step on rows padded to whole vectors; the divisor's padding is 1. */
static void elementwise(const pst_fused_step *s, float *x, int ldx, int rows)
{
    vf alpha = splat(s->alpha);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < s->out; j += VL) {
            vf *at = (vf *)(x + (size_t)r * (size_t)ldx + j), a = *at, b = s->v ? *(const vf *)(s->v + j) : a;
            switch (s->kind) {
            case PST_FUSED_ADD: a = a + b; break;
            case PST_FUSED_SUB: a = a - b; break;
            case PST_FUSED_MUL: a = a * b; break;
            case PST_FUSED_DIV: a = a / b; break;
            default: break;
            }
            *at = activate(s->act, alpha, a);
        }
}

static void mlp(const pst_fused_step *steps, int n_steps, int width, const float *x, size_t rows, float *y, float *work)
{
    enum { TILE = MR * 2 };
    int ld = (width + NR - 1) / NR * NR, n_in = steps[0].in, n_out = steps[n_steps - 1].out;
    float *bufs[2] = {work, work + (size_t)TILE * (size_t)ld};
    for (size_t at = 0; at < rows; at += TILE) {
        int r = rows - at < TILE ? (int)(rows - at) : TILE, which = 0;
        const float *in = x + at * (size_t)n_in;
        int ldin = n_in;
        if (steps[0].kind != PST_FUSED_DENSE) { /* elementwise steps work in place on padded rows */
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
            if (steps[k].kind != PST_FUSED_DENSE) {
                elementwise(&steps[k], bufs[which ^ 1], ld, r);
                continue;
            }
            dense(&steps[k], in, ldin, r, bufs[which], ld);
            in = bufs[which];
            ldin = ld;
            which ^= 1;
        }
        for (int i = 0; i < r; i++)
            memcpy(y + (at + (size_t)i) * (size_t)n_out, in + (size_t)i * (size_t)ld, (size_t)n_out * sizeof(float));
    }
}

static void thin(int m, int n, int k, float alpha, const float *a, int ras, int cas, const float *b, int ldb, float *c, int ldc)
{
    for (int i = 0; i < m; i++) {
        float *ci = c + (size_t)i * (size_t)ldc;
        int j = 0;
        for (; j + 4 * VL <= n; j += 4 * VL) { /* four independent sums, b read once per row of a */
            vf s0 = splat(0), s1 = s0, s2 = s0, s3 = s0;
            for (int p = 0; p < k; p++) {
                float ap = a[(size_t)i * (size_t)ras + (size_t)p * (size_t)cas];
                const float *bp = b + (size_t)p * (size_t)ldb + j;
                s0 += ap * *(const vf *)bp;
                s1 += ap * *(const vf *)(bp + VL);
                s2 += ap * *(const vf *)(bp + 2 * VL);
                s3 += ap * *(const vf *)(bp + 3 * VL);
            }
            *(vf *)(ci + j) += alpha * s0;
            *(vf *)(ci + j + VL) += alpha * s1;
            *(vf *)(ci + j + 2 * VL) += alpha * s2;
            *(vf *)(ci + j + 3 * VL) += alpha * s3;
        }
        for (; j + VL <= n; j += VL) {
            vf s0 = splat(0);
            for (int p = 0; p < k; p++)
                s0 += a[(size_t)i * (size_t)ras + (size_t)p * (size_t)cas] * *(const vf *)(b + (size_t)p * (size_t)ldb + j);
            *(vf *)(ci + j) += alpha * s0;
        }
        for (; j < n; j++) {
            float s = 0;
            for (int p = 0; p < k; p++)
                s += a[(size_t)i * (size_t)ras + (size_t)p * (size_t)cas] * b[(size_t)p * (size_t)ldb + j];
            ci[j] += alpha * s;
        }
    }
}

static float dot(const float *a, const float *b, int n)
{
    vf s0 = splat(0), s1 = s0, s2 = s0, s3 = s0;
    int i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        s0 += *(const vf *)(a + i) * *(const vf *)(b + i);
        s1 += *(const vf *)(a + i + VL) * *(const vf *)(b + i + VL);
        s2 += *(const vf *)(a + i + 2 * VL) * *(const vf *)(b + i + 2 * VL);
        s3 += *(const vf *)(a + i + 3 * VL) * *(const vf *)(b + i + 3 * VL);
    }
    for (; i + VL <= n; i += VL)
        s0 += *(const vf *)(a + i) * *(const vf *)(b + i);
    vf t = (s0 + s1) + (s2 + s3);
    float s = 0;
    for (int v = 0; v < VL; v++)
        s += t[v];
    for (; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static void act_array(pst_act act, float alpha, const float *x, float *y, size_t n)
{
    vf al = splat(alpha);
    size_t i = 0;
    for (; i + VL <= n; i += VL)
        *(vf *)(y + i) = activate(act, al, *(const vf *)(x + i));
    if (i < n) {
        float tail[VL] = {0};
        memcpy(tail, x + i, (n - i) * sizeof(float));
        vf t = activate(act, al, *(const vf *)tail);
        memcpy(y + i, &t, (n - i) * sizeof(float));
    }
}

typedef int8_t vb __attribute__((vector_size(VBYTES), aligned(16), may_alias));

/* x <= rank ? yes : no on bytes */
static inline __attribute__((always_inline)) vb tree_pick(vb x, int8_t rank, vb yes, vb no)
{
#if VBYTES == 64
    return (vb)_mm512_mask_blend_epi8(_mm512_cmpgt_epi8_mask((__m512i)x, _mm512_set1_epi8(rank)), (__m512i)yes, (__m512i)no);
#elif VBYTES == 32
    return (vb)_mm256_blendv_epi8((__m256i)yes, (__m256i)no, _mm256_cmpgt_epi8((__m256i)x, _mm256_set1_epi8(rank)));
#else
    vb gt = x > (rank - (vb){0});
    return (gt & no) | (~gt & yes);
#endif
}

static void tree(const pst_tree_code *code, int n, const int8_t *ranks, int8_t *work, uint8_t *leaf)
{
    int8_t *to = work + 256 * PST_TREE_ROWS;
    for (int i = 0; i < n; i++, code++, to += PST_TREE_ROWS) {
        const int8_t *x = ranks + (size_t)code->col * PST_TREE_ROWS, *yes = work + (size_t)code->yes * PST_TREE_ROWS,
                     *no = work + (size_t)code->no * PST_TREE_ROWS;
#pragma GCC unroll 4
        for (int v = 0; v < PST_TREE_ROWS; v += VBYTES)
            *(vb *)(to + v) = tree_pick(*(const vb *)(x + v), code->rank, *(const vb *)(yes + v), *(const vb *)(no + v));
    }
    memcpy(leaf, to - PST_TREE_ROWS, PST_TREE_ROWS);
}

static bool supported(void)
{
    return ISA_SUPPORTED;
}

const pst_cpu_kernels KERNELS = {.isa = ISA_NAME,
                                 .mr = MR,
                                 .nr = NR,
                                 .supported = supported,
                                 .micro = micro,
                                 .mlp = mlp,
                                 .thin = thin,
                                 .dot = dot,
                                 .tree = tree,
                                 .act = act_array};
