/* kernels_portable.c - kernels.inc.h for portable; compiled with the flags CMakeLists.txt gives this file. */
#define VBYTES        16
#define MR            4
#define NV            2
#define ISA_NAME      "portable"
#define ISA_SUPPORTED true
#define KERNELS       eng_kernels_portable
#include "engine/cpu/kernels.inc.h"
