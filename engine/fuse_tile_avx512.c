/* fuse_tile_avx512.c - the tile loops with AVX-512; compiled with its flags, empty elsewhere. */
#if defined __x86_64__
#define ISA_NAME "avx512"
#define KERNELS  eng_tile_avx512
#include "engine/fuse_tile.inc.h"
#else
typedef int eng_tile_avx512_is_empty;
#endif
