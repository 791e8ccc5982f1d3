/* peak.c - see peak.h. The chains are written once and compiled per instruction set by target attributes; an empty asm keeps the
 * compiler from folding them. */
#include "tests/bench/peak.h"

#include "engine/cpu/isa.h"

#include <string.h>
#include <time.h>

double pst_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { ROUNDS = 20000, TILE_K = 128, TILES = 1500 };
#if defined(__x86_64__)
#define VECTOR "v"
#else
#define VECTOR "w"
#endif

/* Chains in registers: 12 hide a latency of 4 to 5 at two a cycle. Named variables: an array would go through memory. */
#define EACH_CHAIN(X) X(x0) X(x1) X(x2) X(x3) X(x4) X(x5) X(x6) X(x7) X(x8) X(x9) X(x10) X(x11)
#define DECLARE(x)    v x = a;
#define FMA(x)        __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(x) : "v"(a));
#define MUL_ADD(x)    x = x * a + a;
#define HOLD(x)       __asm__ volatile("" : "+" VECTOR(x));
#define REGISTERS(NAME, TARGET, BYTES, STEP)                            \
    TARGET static double NAME(void)                                     \
    {                                                                   \
        typedef float v __attribute__((vector_size(BYTES), may_alias)); \
        v a = 0.5f - (v){0};                                            \
        EACH_CHAIN(DECLARE)                                             \
        double t = pst_cpu_ns();                                        \
        for (int r = 0; r < ROUNDS; r++) {                              \
            EACH_CHAIN(STEP)                                            \
        }                                                               \
        t = pst_cpu_ns() - t;                                           \
        EACH_CHAIN(HOLD)                                                \
        return 2.0 * (BYTES / 4) * 12 * ROUNDS / t;                     \
    }

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
/* The tile of a matrix product, ROWS × 2 vectors, operands in L1: TILE_K·(ROWS·4 + 2·BYTES) bytes. */
#define L1_TILE(NAME, TARGET, BYTES, ROWS)                                                                    \
    TARGET static double NAME(void)                                                                           \
    {                                                                                                         \
        typedef float v __attribute__((vector_size(BYTES), may_alias));                                       \
        _Alignas(64) float a[TILE_K * ROWS], b[TILE_K * BYTES / 2];                                           \
        v acc[ROWS * 2];                                                                                      \
        memset(acc, 0, sizeof acc);                                                                           \
        memset(a, 0, sizeof a);                                                                               \
        memset(b, 0, sizeof b);                                                                               \
        __asm__ volatile("" : : "r"(a), "r"(b) : "memory"); /* nobody knows what is in them */                \
        double t = pst_cpu_ns();                                                                              \
        for (int q = 0; q < TILES; q++) {                                                                     \
            for (int k = 0; k < TILE_K; k++) {                                                                \
                v b0 = *(const v *)(b + k * (BYTES / 2)), b1 = *(const v *)(b + k * (BYTES / 2) + BYTES / 4); \
                UNROLL for (int r = 0; r < ROWS; r++)                                                         \
                {                                                                                             \
                    acc[2 * r] += a[k * ROWS + r] * b0;                                                       \
                    acc[2 * r + 1] += a[k * ROWS + r] * b1;                                                   \
                }                                                                                             \
            }                                                                                                 \
            UNROLL for (int i = 0; i < ROWS * 2; i++) __asm__ volatile("" : "+" VECTOR(acc[i]) : : "memory"); \
        }                                                                                                     \
        return 2.0 * (BYTES / 4) * 2 * ROWS * (double)TILE_K * TILES / (pst_cpu_ns() - t);                    \
    }

#define MUL_ADD_HELD(x) MUL_ADD(x) HOLD(x)
REGISTERS(reg_portable, , 16, MUL_ADD_HELD)
L1_TILE(l1_portable, , 16, 4)
#if defined(__x86_64__)
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,fma")))
REGISTERS(reg_avx2, AVX2, 32, FMA)
L1_TILE(l1_avx2, AVX2, 32, 6)
REGISTERS(reg_avx512, AVX512, 64, FMA)
L1_TILE(l1_avx512, AVX512, 64, 12)
#endif

double pst_peak_sample(const char *isa)
{
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512"))
        return reg_avx512();
    if (!strcmp(isa, "avx2"))
        return reg_avx2();
#endif
    return reg_portable();
}

static double best(double (*f)(void))
{
    double top = 0;
    for (int i = 0; i < 40; i++) {
        double g = f();
        top = g > top ? g : top;
    }
    return top;
}

pst_peak pst_peak_measure(const char *isa)
{
    if (!eng_kernels_pick(isa))
        return (pst_peak){0, 0};
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512"))
        return (pst_peak){best(reg_avx512), best(l1_avx512)};
    if (!strcmp(isa, "avx2"))
        return (pst_peak){best(reg_avx2), best(l1_avx2)};
#endif
    return (pst_peak){best(reg_portable), best(l1_portable)};
}
