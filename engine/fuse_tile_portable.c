/* fuse_tile_portable.c - the tile loops for any CPU: what runs where there is neither AVX2 nor AVX-512. */
#define ISA_NAME "portable"
#define KERNELS  eng_tile_portable
#include "engine/fuse_tile.inc.h"
