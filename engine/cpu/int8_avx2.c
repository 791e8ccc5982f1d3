/* int8_avx2.c - int8.inc.h with vpmaddwd: two int16 a place. vpmaddubsw would take four bytes but cuts its sums of two products at 16 bits. */
#include <immintrin.h>
#include <stdint.h>
#define VBYTES        32
#define MR            4
#define NV            2
#define DEPTH         2
#define DOT(S, A, B)  ((vi)((vu)(S) + (vu)_mm256_madd_epi16((__m256i)(A), (__m256i)(B))))
#define ISA_NAME      "int8 avx2"
#define ISA_SUPPORTED (__builtin_cpu_init(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define KERNELS       eng_int8_avx2
#include "engine/cpu/int8.inc.h"
