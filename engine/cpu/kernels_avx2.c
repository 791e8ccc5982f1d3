/* kernels_avx2.c - kernels.inc.h for avx2; compiled with the flags CMakeLists.txt gives this file. */
#define VBYTES        32
#define MR            6
#define NV            2
#define ISA_NAME      "avx2"
#define ISA_SUPPORTED (__builtin_cpu_init(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define KERNELS       eng_kernels_avx2
#include "engine/cpu/kernels.inc.h"
