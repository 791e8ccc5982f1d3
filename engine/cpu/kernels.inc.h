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

typedef int8_t vb __attribute__((vector_size(VBYTES), aligned(16), may_alias));

/* x <= rank ? yes : no on bytes */
static inline __attribute__((always_inline)) vb tree_pick(vb x, int8_t rank, vb yes, vb no)
{
#if VBYTES == 64 && defined(__AVX512BW__)
    return (vb)_mm512_mask_blend_epi8(_mm512_cmpgt_epi8_mask((__m512i)x, _mm512_set1_epi8(rank)), (__m512i)yes, (__m512i)no);
#elif VBYTES == 32
    return (vb)_mm256_blendv_epi8((__m256i)yes, (__m256i)no, _mm256_cmpgt_epi8((__m256i)x, _mm256_set1_epi8(rank)));
#else
    vb gt = x > (rank - (vb){0});
    return (gt & no) | (~gt & yes);
#endif
}

static void tree(const pst_tree_code *code, int n, const int8_t *ranks, int8_t *work, uint8_t *leaf)
{
    int8_t *to = work + 256 * PST_TREE_ROWS;
    for (int i = 0; i < n; i++, code++, to += PST_TREE_ROWS) {
        const int8_t *x = ranks + (size_t)code->col * PST_TREE_ROWS, *yes = work + (size_t)code->yes * PST_TREE_ROWS,
                     *no = work + (size_t)code->no * PST_TREE_ROWS;
        UNROLLED (v, 0, PST_TREE_ROWS / VBYTES)
            *(vb *)(to + v * VBYTES) =
                tree_pick(*(const vb *)(x + v * VBYTES), code->rank, *(const vb *)(yes + v * VBYTES), *(const vb *)(no + v * VBYTES));
    }
    memcpy(leaf, to - PST_TREE_ROWS, PST_TREE_ROWS);
}

static bool supported(void)
{
    return ISA_SUPPORTED;
}

const pst_cpu_kernels KERNELS = {.isa = ISA_NAME,
                                 .mr = MR,
                                 .nr = NR,
                                 .supported = supported,
                                 .block = block,
                                 .conv = conv,
                                 .plane = plane,
                                 .lstm = lstm,
                                 .gru = gru,
                                 .gather = gather,
                                 .mlp = mlp,
                                 .dot = dot,
                                 .tree = tree,
                                 .act = act_array};
