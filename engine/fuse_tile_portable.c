/* fuse_tile_portable.c - the tile loops for any CPU, and the choice among them. */
#define ISA_NAME "portable"
#define KERNELS  pst_tile_portable
#include "engine/fuse_tile.inc.h"

const pst_tile_kernels *pst_tile_pick(const char *isa)
{
#if defined __x86_64__
    if (!strcmp(isa, "avx512"))
        return &pst_tile_avx512;
    if (!strcmp(isa, "avx2"))
        return &pst_tile_avx2;
#endif
    (void)isa;
    return &pst_tile_portable;
}
