/* lowered.c - the lowered text of the 512-bit kernels in the place of AVX-512's own, in programs that are linked with it and asked to by
 * PENSTOCK_TEST_LOWERED. So whatever a test does with "avx512" is done by that text on machines that lack the instructions. What no
 * compiler lowers are the few lines that name an instruction (FMA, larger, smaller, the masks of trees.inc.h); those are compared with
 * the portable kernels wherever AVX-512 is used (engine/cpu/twins.h). */
#include "engine/cpu/isa.h"
#include "engine/fuse_tile.h"

#include <stdlib.h>

extern const eng_cpu_kernels pst_kernels_lowered;
extern const eng_tile_kernels pst_tile_lowered;

__attribute__((constructor)) static void put_lowered_in_place(void)
{
    static eng_cpu_kernels cpu;
    static eng_tile_kernels tile;
    if (!getenv("PENSTOCK_TEST_LOWERED"))
        return;
    cpu = pst_kernels_lowered;
    tile = pst_tile_lowered;
    cpu.isa = tile.isa = "avx512";
    eng_isa_replace(&cpu, &tile);
}
