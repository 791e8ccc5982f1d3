/* fuse_tile_lowered.c - the loops of fused groups as the AVX-512 ones are compiled, for machines without it. */
#define ISA_NAME "lowered"
#define KERNELS  pst_tile_lowered
#include "engine/fuse_tile.inc.h"
