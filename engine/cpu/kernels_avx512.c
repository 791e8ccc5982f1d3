/* kernels_avx512.c - kernels.inc.h for avx512; compiled with the flags CMakeLists.txt gives this file. */
#define VBYTES   64
#define MR       12
#define NV       2
#define ISA_NAME "avx512"
#define ISA_SUPPORTED                                                                                 \
    (__builtin_cpu_init(), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && \
                               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
#define KERNELS eng_kernels_avx512
#include "engine/cpu/kernels.inc.h"
