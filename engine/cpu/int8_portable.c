/* int8_portable.c - int8.inc.h for every CPU: places of two int16, multiplied apart. */
#include <stdint.h>
#define VBYTES        16
#define MR            4
#define NV            2
#define DEPTH         2
#define LOW(X)        ((vi)((vu)(X) << 16) >> 16)
#define DOT(S, A, B)  ((vi)((vu)(S) + (vu)(LOW(A) * LOW(B)) + (vu)(((A) >> 16) * ((B) >> 16))))
#define ISA_NAME      "int8 portable"
#define ISA_SUPPORTED true
#define KERNELS       eng_int8_portable
#include "engine/cpu/int8.inc.h"
