/* int8_vnni.c - int8.inc.h with AVX-512 VNNI: four bytes a place, one instruction for their products and the sum. */
#include <immintrin.h>
#include <stdint.h>
#define VBYTES       64
#define MR           12
#define NV           2
#define DEPTH        4
#define DOT(S, A, B) ((vi)_mm512_dpbusd_epi32((__m512i)(S), (__m512i)(A), (__m512i)(B)))
#define ISA_NAME     "int8 vnni"
#define ISA_SUPPORTED                                                                                      \
    (__builtin_cpu_init(), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&      \
                               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && \
                               __builtin_cpu_supports("avx512vnni"))
#define KERNELS eng_int8_vnni
#include "engine/cpu/int8.inc.h"
