/* fuse_tile_portable.c - the tile loops for any CPU. */
#define ISA_NAME "portable"
#define KERNELS  eng_tile_portable
#include "engine/fuse_tile.inc.h"
