/* vmath.inc.h - vectors of float32 and the functions of activations on them; part of kernels.inc.h. */

typedef float vf __attribute__((vector_size(VBYTES), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VBYTES), aligned(4), may_alias));

#define INLINE   static inline __attribute__((always_inline))
#define UNROLLED ENG_UNROLLED
#if defined(__clang__)
#define UNROLLED_4 _Pragma("clang loop unroll_count(4)") for /* takes a for's head */
#else
#define UNROLLED_4 _Pragma("GCC unroll 4") for
#endif

INLINE vf splat(float f)
{
    return f - (vf){0};
}

INLINE vf pick(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* acc += a · b, or a · *p. By name where there is an instruction: GCC's choice among its three forms costs copies in the inner loop. */
#if VBYTES == 64 && defined(__AVX512F__)
#define FMA(acc, a, b)     __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b))
#define FMA_MEM(acc, a, p) __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "m"(*(p)))
#elif VBYTES == 32 && defined(__FMA__)
#define FMA(acc, a, b)     __asm__("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b))
#define FMA_MEM(acc, a, p) __asm__("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(a), "m"(*(p)))
#else
#define FMA(acc, a, b)     acc += (a) * (b)
#define FMA_MEM(acc, a, p) acc += (a) * *(p)
#endif

/* The larger and the smaller; when x is NaN, or they are equal, x. That is what the machine's instruction gives for its second operand. */
INLINE vf larger(vf than, vf x)
{
#if VBYTES == 64 && defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)than, (__m512)x);
#elif VBYTES == 32 && defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)than, (__m256)x);
#else
    return pick(x < than, than, x);
#endif
}

INLINE vf smaller(vf than, vf x)
{
#if VBYTES == 64 && defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)than, (__m512)x);
#elif VBYTES == 32 && defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)than, (__m256)x);
#else
    return pick(x > than, than, x);
#endif
}

/* Negative to 0; NaN and -0 stay. */
INLINE vf vrelu(vf x)
{
    return larger(splat(0), x);
}

/* e^x - 1 of several vectors, step by step side by side: one alone waits for its own results. x is clamped to ±most, which is at most 88.
 * With n the whole number next to x / ln 2 and r the rest, 2^n·(2^r - 1) + (2^n - 1): near 0, where n is 0, nothing cancels, so small
 * results are as good as large ones. (2^r - 1) / r on [-1/2, 1/2] by a polynomial through Chebyshev's points, within 3e-8 of itself. */
#define VEXP_MAX 8
INLINE void vexpm1s(const int many, const float *most, vf *x)
{
    const float log2e = 1.44269504088896341f;
    vf t[VEXP_MAX], r[VEXP_MAX], y[VEXP_MAX], magic = splat(12582912.0f + 127); /* the low bits: n + 127, the exponent of 2^n */
    UNROLLED (i, 0, many)
        x[i] = larger(splat(-most[i]), smaller(splat(most[i]), x[i]));
    UNROLLED (i, 0, many)
        t[i] = x[i] * log2e + magic;
    UNROLLED (i, 0, many)
        r[i] = x[i] * log2e - (t[i] - magic);
    UNROLLED (i, 0, many)
        y[i] = 1.54531634e-4f * r[i] + 1.33908633e-3f;
    UNROLLED (i, 0, many)
        y[i] = y[i] * r[i] + 9.61808302e-3f;
    UNROLLED (i, 0, many)
        y[i] = y[i] * r[i] + 5.55035695e-2f;
    UNROLLED (i, 0, many)
        y[i] = y[i] * r[i] + 2.40226507e-1f;
    UNROLLED (i, 0, many)
        y[i] = y[i] * r[i] + 6.93147182e-1f;
    UNROLLED (i, 0, many) {
        vf power = (vf)((vi)t[i] << 23);
        x[i] = y[i] * r[i] * power + (power - 1.0f);
    }
}

/* With m = e^(-x) - 1, sigmoid(x) = 1 / (m + 2); with m = e^(2x) - 1, tanh(x) = m / (m + 2), which is 1 from TANH_ONE on. */
#define EXP_MOST 88.0f
#define TANH_ONE 18.4f

INLINE void vsigmoids(const int many, vf *x)
{
    static const float most[VEXP_MAX] = {EXP_MOST, EXP_MOST, EXP_MOST, EXP_MOST, EXP_MOST, EXP_MOST, EXP_MOST, EXP_MOST};
    UNROLLED (i, 0, many)
        x[i] = -x[i];
    vexpm1s(many, most, x);
    UNROLLED (i, 0, many)
        x[i] = 1.0f / (x[i] + 2.0f);
}

INLINE void vtanhs(const int many, vf *x)
{
    static const float most[VEXP_MAX] = {TANH_ONE, TANH_ONE, TANH_ONE, TANH_ONE, TANH_ONE, TANH_ONE, TANH_ONE, TANH_ONE};
    UNROLLED (i, 0, many)
        x[i] = x[i] + x[i];
    vexpm1s(many, most, x);
    UNROLLED (i, 0, many)
        x[i] = x[i] / (x[i] + 2.0f);
}

/* To [from, to]; NaN stays. */
INLINE vf vclip(vf from, vf to, vf x)
{
    return smaller(to, larger(from, x));
}

/* x · s, s being the sigmoid of t, which stops above 0: times a large x that would not do. */
INLINE vf swish_of(vf x, vf t, vf s)
{
    return x * pick(t < splat(-EXP_MOST), splat(0), s);
}

INLINE vf activate(eng_act act, vf alpha, vf beta, vf x)
{
    vf zero = splat(0);
    switch (act) {
    case ENG_ACT_RELU: return vrelu(x);
    case ENG_ACT_LEAKY: return pick(x < zero, x * alpha, x);
    case ENG_ACT_ELU: {
        vf m = x;
        vexpm1s(1, (const float[]){EXP_MOST}, &m);
        return pick(x < zero, alpha * m, x);
    }
    case ENG_ACT_SIGMOID: vsigmoids(1, &x); return x;
    case ENG_ACT_TANH: vtanhs(1, &x); return x;
    case ENG_ACT_CLIP: return vclip(alpha, beta, x);
    case ENG_ACT_HARDSIGMOID: return vclip(zero, splat(1), alpha * x + beta);
    case ENG_ACT_HARDSWISH: return x * vclip(zero, splat(1), x * (1.0f / 6) + 0.5f);
    case ENG_ACT_SWISH: {
        vf t = alpha * x, s = t;
        vsigmoids(1, &s);
        return swish_of(x, t, s);
    }
    default: return x;
    }
}

/* The first n lanes; all when n is larger. */
INLINE vf load_part(const float *from, int n)
{
    float t[VL] = {0};
    for (int i = 0; i < n && i < VL; i++)
        t[i] = from[i];
    return *(const vf *)t;
}

INLINE void store_part(float *to, vf x, int n)
{
    float t[VL];
    int i = 0;
    if (n >= VL) {
        *(vf *)to = x;
        return;
    }
    *(vf *)t = x;
#if VL > 8
    if (n & 8) {
        memcpy(to, t, 32);
        i = 8;
    }
#endif
#if VL > 4
    if (n & 4) {
        memcpy(to + i, t + i, 16);
        i += 4;
    }
#endif
    if (n & 2) {
        memcpy(to + i, t + i, 8);
        i += 2;
    }
    if (n & 1)
        to[i] = t[i];
}

/* Those that are worth several vectors side by side. */
INLINE bool is_sigmoid(eng_act act)
{
    return act == ENG_ACT_SIGMOID || act == ENG_ACT_TANH || act == ENG_ACT_SWISH;
}

static void act_array(eng_act act, float alpha, float beta, const float *x, float *y, size_t n)
{
    enum { MANY = 4 };
    vf al = splat(alpha), be = splat(beta), by = splat(act == ENG_ACT_SWISH ? alpha : 1);
    size_t i = 0;
    for (; is_sigmoid(act) && i + MANY * VL <= n; i += MANY * VL) {
        vf t[MANY], from[MANY];
        UNROLLED (k, 0, MANY)
            from[k] = *(const vf *)(x + i + k * VL);
        UNROLLED (k, 0, MANY)
            t[k] = from[k] * by;
        if (act == ENG_ACT_TANH)
            vtanhs(MANY, t);
        else
            vsigmoids(MANY, t);
        UNROLLED (k, 0, MANY) {
            if (act == ENG_ACT_SWISH)
                t[k] = swish_of(from[k], al * from[k], t[k]);
            *(vf *)(y + i + k * VL) = t[k];
        }
    }
    for (; i + VL <= n; i += VL)
        *(vf *)(y + i) = activate(act, al, be, *(const vf *)(x + i));
    if (i < n)
        store_part(y + i, activate(act, al, be, load_part(x + i, (int)(n - i))), (int)(n - i));
}

/* Rows of a plane: to = from + bias + add, then Relu if wanted; add may be NULL and has the rows of to. */
static void plane(int rows, int n, const float *from, ptrdiff_t ldfrom, float bias, const float *add, bool relu, float *to, ptrdiff_t ldto)
{
    vf b = splat(bias);
    for (int r = 0; r < rows; r++, from += ldfrom, to += ldto, add = add ? add + ldto : NULL) {
        int i = 0;
        for (; i + VL <= n; i += VL) {
            vf x = *(const vf *)(from + i) + b;
            if (add)
                x += *(const vf *)(add + i);
            *(vf *)(to + i) = relu ? vrelu(x) : x;
        }
        if (i < n) { /* from has room for whole vectors */
            vf x = *(const vf *)(from + i) + b;
            if (add)
                x += load_part(add + i, n - i);
            store_part(to + i, relu ? vrelu(x) : x, n - i);
        }
    }
}
/* x of a row of n, or its first lanes */
INLINE vf load_up_to(const float *from, int left)
{
    return left >= VL ? *(const vf *)from : load_part(from, left);
}

/* LSTM cells with the usual activations: g (rows, units / VL, i o f c, VL), what i, o and f are negated and c doubled, → c, h (rows, units),
 * written to whole vectors; g is overwritten. Two passes: the chain from a gate to h is so long that a core sees too few of them at a time.
 * Divisors are multiplied where that spares a division; where the product overflows the quotient is 0 either way. */
static void lstm(int rows, int units, float *g, ptrdiff_t ldg, float *c, ptrdiff_t ldc, float *h, ptrdiff_t ldh)
{
    static const float most[] = {EXP_MOST, EXP_MOST, EXP_MOST, TANH_ONE};
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < units; i += VL) {
            float *at = g + r * ldg + 4 * i;
            vf m[4], *cell = (vf *)(c + r * ldc + i);
            UNROLLED (k, 0, 4)
                m[k] = *(const vf *)(at + k * VL);
            vexpm1s(4, most, m);
            *cell = *cell / (m[2] + 2.0f) + m[3] / ((m[0] + 2.0f) * (m[3] + 2.0f));
            *(vf *)(at + VL) = m[1] + 2.0f;
        }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < units; i += VL) {
            vf m = *(const vf *)(c + r * ldc + i) * 2.0f;
            vexpm1s(1, most + 3, &m);
            *(vf *)(h + r * ldh + i) = m / (*(const vf *)(g + r * ldg + 4 * i + VL) * (m + 2.0f));
        }
}

/* The end of a GRU cell: h = (1 - z)·tanh(x + r·s) + z·h; r NULL: tanh(x) */
static void gru(int n, const float *z, const float *x, const float *r, const float *s, float *h)
{
    for (int i = 0; i < n; i += VL) {
        int left = n - i;
        vf sum = load_up_to(x + i, left), gate = load_up_to(z + i, left);
        if (r)
            sum += load_up_to(r + i, left) * load_up_to(s + i, left);
        vtanhs(1, &sum);
        store_part(h + i, (1.0f - gate) * sum + gate * load_up_to(h + i, left), left);
    }
}
/* Every second of 2·VL numbers. */
INLINE vf every_second(const float *from)
{
    vf a = *(const vf *)from, b = *(const vf *)(from + VL);
#if VL == 16
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif VL == 8
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
    return __builtin_shufflevector(a, b, 0, 2, 4, 6);
#endif
}

INLINE vf gather_vector(bool max, int k, const float *at, int64_t apart, const int64_t step)
{
    vf top = step == 1 ? *(const vf *)at : every_second(at);
    for (int j = 1; j < k; j++) {
        vf x = step == 1 ? *(const vf *)(at + j * apart) : every_second(at + j * apart);
        if (max)
            top = pick(x != x, x, larger(x, top));
        else
            top += x;
    }
    return top;
}

/* For pools: to[i] = the largest (NaN above all) or the sum of from[i·step + j·apart], j < k; to is not from. roomy: 2·VL numbers behind
 * the last may be read. */
static void gather(bool max, int64_t n, int k, const float *from, int64_t apart, int64_t step, float *to, bool roomy)
{
    int64_t i = 0, end = roomy ? n : n - (step == 2); /* a vector of every second number reads one beyond its last */
    if (step <= 2 && (end >= VL || roomy))
        for (; i < end; i += VL) {
            if (i + VL > end && end >= VL)
                i = end - VL; /* the last overlaps */
            vf x = step == 1 ? gather_vector(max, k, from + i, apart, 1) : gather_vector(max, k, from + 2 * i, apart, 2);
            store_part(to + i, x, n - i < VL ? (int)(n - i) : VL);
        }
    for (; i < n; i++) { /* as vectors of one: which is larger cannot be predicted */
        vf top = splat(from[i * step]);
        for (int j = 1; j < k; j++) {
            vf x = splat(from[i * step + j * apart]);
            if (max)
                top = pick(x != x, x, larger(x, top));
            else
                top += x;
        }
        to[i] = top[0];
    }
}
