/* int8.c - 8-bit matrices in the order of the kernels, and the walk over a product. */
#include "engine/cpu/int8.h"

#include "common/base/err.h"

#include <string.h>

const eng_int8_kernels *eng_int8_pick(const char *isa)
{
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512") && eng_int8_amx.supported())
        return &eng_int8_amx;
    if (!strcmp(isa, "avx512") && eng_int8_vnni.supported())
        return &eng_int8_vnni;
    if (strcmp(isa, "portable") != 0 && eng_int8_avx2.supported())
        return &eng_int8_avx2;
#endif
    return &eng_int8_portable;
}

size_t eng_int8_right_bytes(const eng_int8_kernels *kn, int n, int k)
{
    return (size_t)eng_int8_columns(kn, n) * ((size_t)eng_int8_places(kn, k) + 1) * sizeof(int32_t);
}

/* Columns of one panel: four bytes, or two as int16, of each in a place; zeros beyond k and beyond the columns. */
static void pack_panel(const eng_int8_kernels *kn, int cols, int k, const uint8_t *b, size_t rs, size_t cs, uint8_t flip, int32_t *to,
                       int32_t *sums)
{
    int depth = kn->depth, nr = kn->nr;
    memset(to, 0, (size_t)eng_int8_places(kn, k) * (size_t)nr * sizeof *to);
    for (int p = 0; p < k; p++) {
        const uint8_t *row = b + (size_t)p * rs;
        int32_t *place = to + (size_t)(p / depth) * (size_t)nr;
        int8_t *fours = (int8_t *)place + p % depth;
        int16_t *twos = (int16_t *)place + p % depth;
        for (int j = 0; j < cols && depth == 4; j++)
            fours[4 * j] = (int8_t)(row[(size_t)j * cs] ^ flip);
        for (int j = 0; j < cols && depth == 2; j++)
            twos[2 * j] = (int8_t)(row[(size_t)j * cs] ^ flip);
        for (int j = 0; j < cols; j++)
            sums[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)(int8_t)(row[(size_t)j * cs] ^ flip));
    }
}

void eng_int8_pack(const eng_int8_kernels *kn, int n, int k, const uint8_t *b, size_t rs, size_t cs, bool is_signed, void *room,
                   eng_int8_right *ret)
{
    size_t places = (size_t)eng_int8_places(kn, k);
    int columns = eng_int8_columns(kn, n);
    int32_t *panels = room, *sums = panels + places * (size_t)columns;
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (int j = 0; j < n; j += kn->nr)
        pack_panel(kn, n - j < kn->nr ? n - j : kn->nr, k, b + (size_t)j * cs, rs, cs, is_signed ? 0 : 128, panels + (size_t)j * places,
                   sums + j);
    *ret = (eng_int8_right){.kernels = kn, .n = n, .k = k, .panels = panels, .sums = sums};
}

void eng_int8_left(const eng_int8_kernels *kn, int m, int k, const uint8_t *a, size_t rs, size_t cs, bool is_signed, int32_t *to,
                   int32_t *sums)
{
    uint8_t flip = is_signed ? 128 : 0;
    int places = eng_int8_places(kn, k);
    PST_ASSERT(k > 0);
    for (int i = 0; i < m; i++, to += places) {
        const uint8_t *row = a + (size_t)i * rs;
        uint8_t *fours = (uint8_t *)to;
        int16_t *twos = (int16_t *)to;
        to[places - 1] = 0;
        if (kn->depth == 4 && cs == 1 && !flip)
            memcpy(fours, row, (size_t)k);
        else
            for (int p = 0; p < k && kn->depth == 4; p++)
                fours[p] = row[(size_t)p * cs] ^ flip;
        for (int p = 0; p < k && kn->depth == 2; p++)
            twos[p] = row[(size_t)p * cs] ^ flip;
        uint32_t sum = 0;
        for (int p = 0; p < k && sums; p++)
            sum += row[(size_t)p * cs] ^ flip;
        if (sums)
            sums[i] = (int32_t)sum;
    }
}

/* k in parts whose panel stays in L1. */
void eng_int8_product(const eng_int8_right *b, int m, const int32_t *left, const int32_t *first, int32_t *c, ptrdiff_t ldc)
{
    enum { PART = 256 };
    int places = eng_int8_places(b->kernels, b->k);
    eng_int8_block g = {.m = m, .n = b->n, .lda = places, .ldc = ldc, .c = c, .first = first};
    g.bps = (ptrdiff_t)places * b->kernels->nr;
    for (int p = 0; p < places; p += PART) {
        g.places = places - p < PART ? places - p : PART;
        g.a = left + p;
        g.b = b->panels + (ptrdiff_t)p * b->kernels->nr;
        b->kernels->block(&g);
        g.first = NULL;
    }
}
