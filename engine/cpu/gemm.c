/* gemm.c - see gemm.h. */
#include "engine/cpu/gemm.h"

#include "common/base/err.h"
#include "engine/cpu/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KC     256
#define MC     144 /* a multiple of every mr */
#define NC     1024
#define THIN_M 4

static _Thread_local float *pack_room; /* MC·KC for a, KC·NC for b, one tile */
static pthread_key_t room_key;
static pthread_once_t room_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    PST_ASSERT(pthread_key_create(&room_key, free) == 0);
}

static float *room(void)
{
    if (!pack_room) {
        pthread_once(&room_once, make_key);
        pack_room = aligned_alloc(64, sizeof(float) * (MC * KC + KC * (NC + 64) + 32 * 64));
        PST_ASSERT(pack_room);
        pthread_setspecific(room_key, pack_room);
    }
    return pack_room;
}

/* a (mc,kc) with strides rs, cs → panels of mr rows, each (kc, mr), zero padded */
static void pack_a(int mr, int mc, int kc, const float *a, size_t rs, size_t cs, float *to)
{
    for (int i = 0; i < mc; i += mr) {
        int rows = mc - i < mr ? mc - i : mr;
        for (int p = 0; p < kc; p++, to += mr) {
            const float *at = a + (size_t)i * rs + (size_t)p * cs;
            for (int r = 0; r < rows; r++)
                to[r] = at[(size_t)r * rs];
            for (int r = rows; r < mr; r++)
                to[r] = 0;
        }
    }
}

static void pack_b(int nr, int kc, int nc, const float *b, size_t rs, size_t cs, float *to)
{
    for (int j = 0; j < nc; j += nr) {
        int cols = nc - j < nr ? nc - j : nr;
        for (int p = 0; p < kc; p++, to += nr) {
            const float *at = b + (size_t)p * rs + (size_t)j * cs;
            if (cs == 1) {
                memcpy(to, at, (size_t)cols * sizeof *to);
            } else {
                for (int q = 0; q < cols; q++)
                    to[q] = at[(size_t)q * cs];
            }
            for (int q = cols; q < nr; q++)
                to[q] = 0;
        }
    }
}

static void scale(int m, int n, float beta, float *c, int ldc)
{
    for (int i = 0; i < m && beta != 1; i++)
        for (int j = 0; j < n; j++)
            c[(size_t)i * (size_t)ldc + (size_t)j] = beta == 0 ? 0 : beta * c[(size_t)i * (size_t)ldc + (size_t)j];
}

/* The packed blocks against each other, tile by tile; c += alpha · tile. */
static void block(const pst_cpu_kernels *k, int mc, int nc, int kc, float alpha, const float *pa, const float *pb, float *tile, float *c,
                  int ldc)
{
    for (int j = 0; j < nc; j += k->nr)
        for (int i = 0; i < mc; i += k->mr) {
            k->micro(kc, pa + (size_t)i * (size_t)kc, pb + (size_t)j * (size_t)kc, tile);
            int rows = mc - i < k->mr ? mc - i : k->mr, cols = nc - j < k->nr ? nc - j : k->nr;
            for (int r = 0; r < rows; r++) {
                float *to = c + (size_t)(i + r) * (size_t)ldc + j;
                const float *from = tile + (size_t)r * (size_t)k->nr;
                for (int q = 0; q < cols; q++)
                    to[q] += alpha * from[q];
            }
        }
}

void pst_sgemm_isa(const pst_cpu_kernels *kn, bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                   int ldb, float beta, float *c, int ldc)
{
    if (m <= 0 || n <= 0)
        return;
    scale(m, n, beta, c, ldc);
    if (k <= 0 || alpha == 0)
        return;
    size_t ars = ta ? 1 : (size_t)lda, acs = ta ? (size_t)lda : 1, brs = tb ? 1 : (size_t)ldb, bcs = tb ? (size_t)ldb : 1;
    if (m <= THIN_M && !tb) { /* packing b would cost more than the product */
        kn->thin(m, n, k, alpha, a, (int)ars, (int)acs, b, ldb, c, ldc);
        return;
    }
    if (m <= THIN_M && !ta) {
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++)
                c[(size_t)i * (size_t)ldc + (size_t)j] += alpha * kn->dot(a + (size_t)i * (size_t)lda, b + (size_t)j * (size_t)ldb, k);
        return;
    }
    float *pa = room(), *pb = pa + MC * KC, *tile = pb + KC * (NC + 64);
    for (int j = 0; j < n; j += NC) {
        int nc = n - j < NC ? n - j : NC;
        for (int p = 0; p < k; p += KC) {
            int kc = k - p < KC ? k - p : KC;
            pack_b(kn->nr, kc, nc, b + (size_t)p * brs + (size_t)j * bcs, brs, bcs, pb);
            for (int i = 0; i < m; i += MC) {
                int mc = m - i < MC ? m - i : MC;
                pack_a(kn->mr, mc, kc, a + (size_t)i * ars + (size_t)p * acs, ars, acs, pa);
                block(kn, mc, nc, kc, alpha, pa, pb, tile, c + (size_t)i * (size_t)ldc + j, ldc);
            }
        }
    }
}

void pst_sgemm(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c,
               int ldc)
{
    static const pst_cpu_kernels *best;
    const pst_cpu_kernels *kn = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (!kn) {
        kn = pst_kernels_pick(NULL);
        __atomic_store_n(&best, kn, __ATOMIC_RELAXED);
    }
    pst_sgemm_isa(kn, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void pst_sgemm_ref(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
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
