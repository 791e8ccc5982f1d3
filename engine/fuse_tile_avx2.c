/* fuse_tile_avx2.c - the tile loops with AVX2; compiled with its flags, empty elsewhere. */
#if defined __x86_64__
#define ISA_NAME "avx2"
#define KERNELS  eng_tile_avx2
#include "engine/fuse_tile.inc.h"
#else
typedef int eng_tile_avx2_is_empty;
#endif
