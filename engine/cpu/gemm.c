/* gemm.c - the product in blocks: parts of k and of the columns whose packed panels stay in L2, tiles of rows over them. Few rows, and
 * matrices that L1 holds, are read as they lie: packing would cost more than it gives. */
#include "engine/cpu/gemm.h"

#include "common/base/err.h"
#include "engine/cpu/gemm_pack.h"
#include "engine/cpu/isa.h"
#include "engine/heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KC       256
#define MC       144 /* a multiple of every mr */
#define NC       1536
#define NR_MAX   64
#define A_FLOATS (48 << 10) /* of a that stay in L2 while the panels of b pass */
#define THIN_M   4
#define IN_PLACE (24 << 10) /* bytes of b that L1 holds beside the rest: read as it lies, however many the rows */

static _Thread_local float *pack_room; /* MC·KC for a, KC·NC for b */
static pthread_key_t room_key;
static pthread_once_t room_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    PST_ASSERT(pthread_key_create(&room_key, free) == 0);
}

#define ROOM_BYTES (sizeof(float) * (MC * KC + KC * (NC + NR_MAX)))

bool eng_sgemm_room(void)
{
    if (!pack_room) {
        pthread_once(&room_once, make_key);
        pack_room = eng_heap_raw64(ROOM_BYTES);
        pthread_setspecific(room_key, pack_room);
    }
    return pack_room != NULL;
}

static float *room(void)
{
    if (!eng_sgemm_room())
        eng_heap_fail(ROOM_BYTES);
    return pack_room;
}

static void scale(int m, int n, float beta, float *c, int ldc)
{
    for (int i = 0; i < m && beta != 1; i++)
        for (int j = 0; j < n; j++)
            c[(size_t)i * (size_t)ldc + (size_t)j] = beta == 0 ? 0 : beta * c[(size_t)i * (size_t)ldc + (size_t)j];
}

/* k in equal parts of at most KC. */
static int part_of_k(int k)
{
    PST_ASSERT(k > 0);
    int parts = (k + KC - 1) / KC;
    return (k + parts - 1) / parts;
}

/* Products of few rows read b once: as it lies, a part of k at a time so that the rows of a stay in L1. */
static void in_place(const eng_cpu_kernels *kn, eng_block *g, size_t ldb)
{
    int whole = g->n / kn->nr * kn->nr, k = g->k, part = g->m <= kn->mr && k <= 4 * KC ? k : part_of_k(k);
    const float *a = g->a, *b = g->b;
    PST_ASSERT(kn->nr <= NR_MAX);
    float *tail = room();
    g->brs = (ptrdiff_t)ldb;
    g->bps = kn->nr;
    for (int p = 0; p < k; p += part, g->add = true) {
        g->k = k - p < part ? k - p : part;
        g->a = a + p * g->acs;
        g->b = b + (size_t)p * ldb;
        if (whole < g->n) {
            size_t most = (size_t)(MC * KC + KC * (NC + NR_MAX)) / (size_t)kn->nr;
            PST_ASSERT((size_t)g->k <= most);
            eng_pack_panels(kn->nr, g->k, g->n - whole, g->b + whole, ldb, 1, tail, 0);
            g->tail = tail;
        }
        kn->block(g);
    }
}

/* a is packed when every row is read many times over or its elements lie apart; rows read in place spare the copy. */
static bool wants_packed_a(const eng_block *g)
{
    if (g->m <= 16 && g->acs == 1)
        return false;
    return g->acs != 1 || (g->n >= ENG_PACKS_LEFT_FROM && g->ars >= 512);
}

static void blocks_of_m(const eng_cpu_kernels *kn, const eng_block *whole, float *pa)
{
    eng_block g = *whole;
    bool pack = wants_packed_a(whole);
    PST_ASSERT(!pack || (pa && whole->k <= KC)); /* its room is for MC·KC */
    int step = pack ? MC : A_FLOATS / whole->k / kn->mr * kn->mr;
    step = step > MC ? step : MC;
    for (int i = 0; i < whole->m; i += step) {
        g.m = whole->m - i < step ? whole->m - i : step;
        g.a = whole->a + i * whole->ars;
        g.c = whole->c + i * whole->ldc;
        if (pack) {
            eng_pack_tiles(kn->mr, g.m, g.k, g.a, (size_t)whole->ars, (size_t)whole->acs, pa);
            g.a = pa;
            g.a_packed = true;
        }
        kn->block(&g);
    }
}

void eng_sgemm_isa(const eng_cpu_kernels *kn, bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                   int ldb, float beta, float *c, int ldc)
{
    if (m <= 0 || n <= 0)
        return;
    if (k <= 0 || alpha == 0) {
        scale(m, n, beta, c, ldc);
        return;
    }
    if (beta != 0)
        scale(m, n, beta, c, ldc);
    size_t brs = tb ? 1 : (size_t)ldb, bcs = tb ? (size_t)ldb : 1;
    eng_block g = {.m = m,
                   .n = n,
                   .k = k,
                   .a = a,
                   .ars = ta ? 1 : lda,
                   .acs = ta ? lda : 1,
                   .b = b,
                   .alpha = alpha,
                   .add = beta != 0,
                   .c = c,
                   .ldc = ldc};
    if (!tb && (m <= 2 * kn->mr || (size_t)n * (size_t)k * sizeof *b <= IN_PLACE)) {
        in_place(kn, &g, (size_t)ldb);
        return;
    }
    if (m <= THIN_M && !ta) { /* b lies across: a product of two runs each */
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                float *to = c + (size_t)i * (size_t)ldc + (size_t)j,
                      s = alpha * kn->dot(a + (size_t)i * (size_t)lda, b + (size_t)j * (size_t)ldb, k);
                *to = beta != 0 ? *to + s : s;
            }
        return;
    }
    float *pa = room(), *pb = pa + MC * KC;
    int part = part_of_k(k);
    g.brs = kn->nr;
    for (int j = 0; j < n; j += NC)
        for (int p = 0; p < k; p += part) {
            g.n = n - j < NC ? n - j : NC;
            g.k = k - p < part ? k - p : part;
            g.bps = (ptrdiff_t)g.k * kn->nr;
            eng_pack_panels(kn->nr, g.k, g.n, b + (size_t)p * brs + (size_t)j * bcs, brs, bcs, pb, (size_t)g.bps);
            g.a = a + p * g.acs;
            g.b = pb;
            g.c = c + j;
            g.add = beta != 0 || p;
            blocks_of_m(kn, &g, pa);
        }
}

void eng_sgemm_packed(const eng_packed *b, int m, float alpha, const float *a, int lda, float beta, float *c, int ldc)
{
    const eng_cpu_kernels *kn = b->kernels;
    PST_ASSERT(kn && b->data && b->stride >= (ptrdiff_t)b->k * kn->nr); /* panels that overlap were packed for other kernels */
    if (m <= 0 || b->n <= 0)
        return;
    if (beta != 0 || b->k <= 0 || alpha == 0)
        scale(m, b->n, beta, c, ldc);
    if (b->k <= 0 || alpha == 0)
        return;
    int part = m <= kn->mr ? b->k : part_of_k(b->k);
    eng_block g = {.m = m, .n = b->n, .ars = lda, .acs = 1, .brs = kn->nr, .bps = b->stride, .alpha = alpha, .c = c, .ldc = ldc};
    for (int p = 0; p < b->k; p += part) {
        g.k = b->k - p < part ? b->k - p : part;
        g.a = a + p;
        g.b = b->data + (ptrdiff_t)p * kn->nr;
        g.add = beta != 0 || p;
        blocks_of_m(kn, &g, m > kn->mr ? room() : NULL);
    }
}

void pst_sgemm(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c,
               int ldc)
{
    static const eng_cpu_kernels *best;
    const eng_cpu_kernels *kn = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (!kn) {
        kn = eng_kernels_default();
        __atomic_store_n(&best, kn, __ATOMIC_RELAXED);
    }
    eng_sgemm_isa(kn, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void eng_sgemm_ref(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                   float *c, int ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int p = 0; p < k; p++)
                s += (double)(ta ? a[(size_t)p * (size_t)lda + (size_t)i] : a[(size_t)i * (size_t)lda + (size_t)p]) *
                     (double)(tb ? b[(size_t)j * (size_t)ldb + (size_t)p] : b[(size_t)p * (size_t)ldb + (size_t)j]);
            float *to = c + (size_t)i * (size_t)ldc + (size_t)j;
            *to = (float)((double)alpha * s + (beta == 0 ? 0 : (double)beta * (double)*to));
        }
}
