/* vmath.inc.h - vectors of float32 and the functions of activations on them; part of kernels.inc.h. */

typedef float vf __attribute__((vector_size(VBYTES), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VBYTES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
/* Loops over the vectors of a tile must vanish: only then do arrays of vectors become registers. UNROLLED_4 takes a for's head. */
#if defined(__clang__)
#define UNROLLED(i, from, to) _Pragma("clang loop unroll(full)") for (int i = from; i < (to); i++)
#define UNROLLED_4            _Pragma("clang loop unroll_count(4)") for
#else
#define UNROLLED(i, from, to) _Pragma("GCC unroll 64") for (int i = from; i < (to); i++)
#define UNROLLED_4            _Pragma("GCC unroll 4") for
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

/* Negative to 0; NaN and -0 stay, which is what the machine's maximum does when x comes second. */
INLINE vf vrelu(vf x)
{
#if VBYTES == 64 && defined(__AVX512F__)
    return (vf)_mm512_max_ps(_mm512_setzero_ps(), (__m512)x);
#elif VBYTES == 32 && defined(__AVX2__)
    return (vf)_mm256_max_ps(_mm256_setzero_ps(), (__m256)x);
#else
    vf zero = splat(0);
    return pick(x < zero, zero, x);
#endif
}

/* e^x: range reduction by ln 2 in two parts, polynomial of degree 6 on [-ln2/2, ln2/2] (Cephes' expf); within 2 ulp, clamped to finite. */
INLINE vf vexp(vf x)
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

INLINE vf vsigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

INLINE vf vtanh(vf x)
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

INLINE vf activate(pst_act act, vf alpha, vf x)
{
    vf zero = splat(0);
    switch (act) {
    case PST_ACT_RELU: return vrelu(x);
    case PST_ACT_LEAKY: return pick(x < zero, x * alpha, x);
    case PST_ACT_ELU: return pick(x < zero, alpha * (vexp(x) - 1.0f), x);
    case PST_ACT_SIGMOID: return vsigmoid(x);
    case PST_ACT_TANH: return vtanh(x);
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
/* Rows of a plane: to = from + bias + add, then Relu if wanted; add may be NULL and has the rows of to. */
static void plane(int rows, int n, const float *from, ptrdiff_t ldfrom, float bias, const float *add, bool relu, float *to, ptrdiff_t ldto)
{
    vf b = splat(bias);
    for (int r = 0; r < rows; r++, from += ldfrom, to += ldto, add += add ? ldto : 0) {
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
