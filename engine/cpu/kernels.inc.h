/* kernels.inc.h - the vector kernels, written once with GCC vector types and compiled per instruction set.
 * The including file defines VBYTES (vector bytes), MR and NV (the register tile: MR rows × NV vectors), ISA_NAME, ISA_SUPPORTED
 * and KERNELS (the table's name). */
#include "engine/cpu/isa.h"

#include <stdint.h>
#include <string.h>
#if VBYTES > 16
#include <immintrin.h>
#endif

#define VL (VBYTES / 4)
#define NR (VL * NV)

#include "engine/cpu/vmath.inc.h"

#include "engine/cpu/tile.inc.h"

#include "engine/cpu/lanes.inc.h"

#include "engine/cpu/last.inc.h"

static float dot(const float *a, const float *b, int n)
{
    vf s0 = splat(0), s1 = s0, s2 = s0, s3 = s0;
    int i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        s0 += *(const vf *)(a + i) * *(const vf *)(b + i);
        s1 += *(const vf *)(a + i + VL) * *(const vf *)(b + i + VL);
        s2 += *(const vf *)(a + i + 2 * VL) * *(const vf *)(b + i + 2 * VL);
        s3 += *(const vf *)(a + i + 3 * VL) * *(const vf *)(b + i + 3 * VL);
    }
    for (; i + VL <= n; i += VL)
        s0 += *(const vf *)(a + i) * *(const vf *)(b + i);
    vf t = (s0 + s1) + (s2 + s3);
    float s = 0;
    for (int v = 0; v < VL; v++)
        s += t[v];
    for (; i < n; i++)
        s += a[i] * b[i];
    return s;
}

#include "engine/cpu/trees.inc.h"

static bool supported(void)
{
    return ISA_SUPPORTED;
}

const eng_cpu_kernels KERNELS = {.isa = ISA_NAME,
                                 .mr = MR,
                                 .nr = NR,
                                 .lanes = VL,
                                 .supported = supported,
                                 .block = block,
                                 .conv = conv,
                                 .conv_rows = conv_rows,
                                 .pool_rows = pool_rows,
                                 .turn = turn,
                                 .plane = plane,
                                 .lstm = lstm,
                                 .lstm_step = lstm_step,
                                 .gru = gru,
                                 .gather = gather,
                                 .mlp = mlp,
                                 .dot = dot,
                                 .tree = tree,
                                 .rank_f = rank_f,
                                 .rank_d = rank_d,
                                 .rank_bytes = rank_bytes,
                                 .act = act_array,
                                 .last_layer = last_layer,
                                 .last_gather = last_gather,
                                 .last_depth = last_depth,
                                 .last_pool = last_pool,
                                 .last_mean = last_mean,
                                 .last_mix = last_mix};
