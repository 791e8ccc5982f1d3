/* gemm_pack.c - matrices in the order in which the kernels read them. Apart from gemm.c because the kernels' comparison (twins.c) needs
 * them for kernels that nobody may choose yet. */
#include "engine/cpu/gemm_pack.h"

#include "engine/cpu/gemm.h"
#include "engine/cpu/isa.h"

#include <string.h>

typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float v2 __attribute__((vector_size(8), aligned(4), may_alias));

/* 4 runs of 4 floats, each rs apart, turned: to[p·ld + r] = from[r·rs + p] */
static inline void turn4(const float *from, size_t rs, float *to, size_t ld)
{
    v4 a = *(const v4 *)from, b = *(const v4 *)(from + rs), c = *(const v4 *)(from + 2 * rs), d = *(const v4 *)(from + 3 * rs);
    v4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    v4 ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(v4 *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(v4 *)(to + ld) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(v4 *)(to + 2 * ld) = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
    *(v4 *)(to + 3 * ld) = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
}

/* 2 runs of 4 floats likewise: what is left of six rows. */
static inline void turn2(const float *from, size_t rs, float *to, size_t ld)
{
    v4 a = *(const v4 *)from, b = *(const v4 *)(from + rs);
    *(v2 *)to = __builtin_shufflevector(a, b, 0, 4);
    *(v2 *)(to + ld) = __builtin_shufflevector(a, b, 1, 5);
    *(v2 *)(to + 2 * ld) = __builtin_shufflevector(a, b, 2, 6);
    *(v2 *)(to + 3 * ld) = __builtin_shufflevector(a, b, 3, 7);
}

/* n lines of length k, each ls apart, their elements es apart → (k, n), rows ld apart */
static void pack_lines(int n, int k, const float *from, size_t ls, size_t es, float *to, size_t ld)
{
    if (ls == 1) {
        for (int p = 0; p < k; p++) { /* memcpy would be a call for every row */
            const float *row = from + (size_t)p * es;
            float *at = to + (size_t)p * ld;
            int i = 0;
            for (; i + 4 <= n; i += 4)
                *(v4 *)(at + i) = *(const v4 *)(row + i);
            for (; i < n; i++)
                at[i] = row[i];
        }
        return;
    }
    for (int i = 0, some; i < n; i += some) {
        int p = 0;
        some = n - i < 4 ? 2 : 4;
        if (es != 1 || n - i < 2)
            some = 1;
        for (; some == 4 && p + 4 <= k; p += 4)
            turn4(from + (size_t)i * ls + p, ls, to + (size_t)p * ld + i, ld);
        for (; some == 2 && p + 4 <= k; p += 4)
            turn2(from + (size_t)i * ls + p, ls, to + (size_t)p * ld + i, ld);
        for (; p < k; p++)
            for (int r = i; r < i + some; r++)
                to[(size_t)p * ld + (size_t)r] = from[(size_t)r * ls + (size_t)p * es];
    }
}

/* a (mc,kc) with strides rs, cs → the tiles of eng_tile_rows(), each (kc, rows) */
void eng_pack_tiles(int mr, int mc, int kc, const float *a, size_t rs, size_t cs, float *to)
{
    int tiles = (mc + mr - 1) / mr;
    for (int i = 0, row = 0, rows; i < tiles; i++, row += rows) {
        rows = eng_tile_rows(mc, tiles, i);
        /* The next tile's rows: each is a short run far from the one before, which the hardware is slow to see. */
        for (int r = row + rows; cs == 1 && r < row + 2 * rows && r < mc; r++)
            for (int p = 0; p < kc; p += 16)
                __builtin_prefetch(a + (size_t)r * rs + p);
        pack_lines(rows, kc, a + (size_t)row * rs, rs, cs, to, (size_t)rows);
        to += (size_t)rows * (size_t)kc;
    }
}

/* b (kc,nc) with strides rs, cs → panels of nr columns, each (kc, nr), panels pstride floats apart, zero padded */
void eng_pack_panels(int nr, int kc, int nc, const float *b, size_t rs, size_t cs, float *to, size_t pstride)
{
    for (int j = 0; j < nc; j += nr, to += pstride) {
        int cols = nc - j < nr ? nc - j : nr;
        pack_lines(cols, kc, b + (size_t)j * cs, cs, rs, to, (size_t)nr);
        for (int p = 0; p < kc && cols < nr; p++)
            memset(to + p * nr + cols, 0, (size_t)(nr - cols) * sizeof *to);
    }
}

size_t eng_packed_floats(const eng_cpu_kernels *kn, int n, int k)
{
    return (size_t)((n + kn->nr - 1) / kn->nr) * (size_t)kn->nr * (size_t)(k > 0 ? k : 0);
}

void eng_sgemm_pack(const eng_cpu_kernels *kn, bool tb, int n, int k, const float *b, int ldb, float *room_for_it, eng_packed *ret)
{
    *ret = (eng_packed){.kernels = kn, .n = n, .k = k, .stride = (ptrdiff_t)k * kn->nr, .data = room_for_it};
    if (n > 0 && k > 0)
        eng_pack_panels(kn->nr, k, n, b, tb ? 1 : (size_t)ldb, tb ? (size_t)ldb : 1, room_for_it, (size_t)k * (size_t)kn->nr);
}

void eng_pack_turned(int n, int k, const float *from, size_t ld_from, float *to, size_t ld_to)
{
    pack_lines(n, k, from, ld_from, 1, to, ld_to);
}

void eng_sgemm_pack_left(const eng_cpu_kernels *kn, int m, int k, const float *a, int lda, float *to)
{
    eng_pack_tiles(kn->mr, m, k, a, (size_t)lda, 1, to);
}
