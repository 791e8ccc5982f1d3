/* kernels_lowered.c - the text of the 512-bit kernels compiled for machines without them: the compiler splits each vector in two.
 * So their tiles, tails and packing are tested wherever the tests run; only the choice of instructions is not. */
#define VBYTES        64
#define MR            12
#define NV            2
#define ISA_NAME      "lowered"
#define ISA_SUPPORTED (__builtin_cpu_init(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define KERNELS       pst_kernels_lowered
#pragma GCC diagnostic ignored "-Wpsabi"
#include "engine/cpu/kernels.inc.h"
