/* int8_amx.c - the product of int8.inc.h by the tiles of AMX: 16 rows of 64 bytes by 16 columns at once, everything else as with AVX-512 VNNI, whose
 * order of panels is that of a tile. Depths that fill no tile and the last columns are computed by the vectors. The kernel of the system must
 * allow the tiles to a process once: where it does not, the vectors compute all. */
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#define VBYTES        64
#define MR            12
#define NV            2
#define DEPTH         4
#define DOT(S, A, B)  ((vi)_mm512_dpbusd_epi32((__m512i)(S), (__m512i)(A), (__m512i)(B)))
#define ISA_NAME      "int8 amx"
#define ISA_SUPPORTED tiles_allowed()
#define BLOCK         tiles_block
#define KERNELS       eng_int8_amx

#include <stdbool.h>

struct eng_int8_block;
static bool tiles_allowed(void);
static void tiles_block(const struct eng_int8_block *g);
#include "engine/cpu/int8.inc.h"

enum {
    TILE = 16, /* rows, columns, places of a tile */
    PERMIT = 0x1023,
    DATA = 18 /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
};

static bool allowed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void ask(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 24) || !(d & 1u << 25) || !eng_int8_vnni.supported())
        return;
    allowed = syscall(SYS_arch_prctl, PERMIT, DATA) == 0;
}

static bool tiles_allowed(void)
{
    pthread_once(&once, ask);
    return allowed;
}

typedef struct shapes {
    uint8_t palette, start, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} shapes;

/* Tiles 0 to 3 are sums (rows: 0 and 1 of the first 16, 2 and 3 of those after), 4 and 5 the left side, 6 and 7 the right one. */
__attribute__((target("amx-tile"))) static void set_shapes(int first, int second)
{
    _Alignas(64) shapes s = {.palette = 1};
    const int rows[8] = {first, first, second, second, first, second, TILE, TILE};
    for (int i = 0; i < 8; i++) {
        s.rows[i] = (uint8_t)rows[i];
        s.row_bytes[i] = rows[i] ? 64 : 0;
    }
    __asm__ volatile("" : : "r"(&s) : "memory"); /* all of it is read */
    _tile_loadconfig(&s);
}

/* Up to 16 rows by a panel of 32 columns, so many tiles deep. */
__attribute__((target("amx-tile,amx-int8"))) static void one_high(const eng_int8_block *g, int row, int col, int deep)
{
    const int32_t *a = g->a + row * g->lda, *b = g->b + col / NR * g->bps;
    int32_t *c = g->c + row * g->ldc + col;
    const int32_t *from = g->first ? g->first + col : c;
    const long la = 4 * g->lda, lc = 4 * g->ldc, lf = g->first ? 0 : lc;
    _tile_loadd(0, from, lf);
    _tile_loadd(1, from + TILE, lf);
    for (int p = 0; p < deep; p++, a += TILE, b += TILE * NR) {
        _tile_loadd(4, a, la);
        _tile_loadd(6, b, 4 * NR);
        _tile_loadd(7, b + TILE, 4 * NR);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
    }
    _tile_stored(0, c, lc);
    _tile_stored(1, c + TILE, lc);
}

/* 16 rows and up to 16 more. */
__attribute__((target("amx-tile,amx-int8"))) static void two_high(const eng_int8_block *g, int row, int col, int deep)
{
    const int32_t *a = g->a + row * g->lda, *b = g->b + col / NR * g->bps, *below = a + TILE * g->lda;
    int32_t *c = g->c + row * g->ldc + col, *c_below = c + TILE * g->ldc;
    const int32_t *from = g->first ? g->first + col : c, *from_below = g->first ? from : c_below;
    const long la = 4 * g->lda, lc = 4 * g->ldc, lf = g->first ? 0 : lc;
    _tile_loadd(0, from, lf);
    _tile_loadd(1, from + TILE, lf);
    _tile_loadd(2, from_below, lf);
    _tile_loadd(3, from_below + TILE, lf);
    for (int p = 0; p < deep; p++, a += TILE, below += TILE, b += TILE * NR) {
        _tile_loadd(4, a, la);
        _tile_loadd(6, b, 4 * NR);
        _tile_loadd(7, b + TILE, 4 * NR);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_loadd(5, below, la);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(0, c, lc);
    _tile_stored(1, c + TILE, lc);
    _tile_stored(2, c_below, lc);
    _tile_stored(3, c_below + TILE, lc);
}

/* Rows [row, g->m) of all whole panels, at most 32 of them. */
static void rows_out(const eng_int8_block *g, int row, int cols, int deep)
{
    for (int col = 0; col < cols; col += NR)
        (g->m - row > TILE ? two_high : one_high)(g, row, col, deep);
}

__attribute__((target("amx-tile"))) static void tiles_block(const eng_int8_block *g)
{
    int cols = g->n / NR * NR, deep = g->places / TILE;
    if (g->m < 4 || !cols || !deep) {
        block(g);
        return;
    }
    int row = 0, left = g->m % (2 * TILE);
    if (g->m >= 2 * TILE)
        set_shapes(TILE, TILE);
    for (int col = 0; col < cols && g->m >= 2 * TILE; col += NR) /* a panel stays in the cache for all rows */
        for (row = 0; row + 2 * TILE <= g->m; row += 2 * TILE)
            two_high(g, row, col, deep);
    if (left) {
        set_shapes(left < TILE ? left : TILE, left > TILE ? left - TILE : 0);
        rows_out(g, g->m - left, cols, deep);
    }
    _tile_release();
    eng_int8_block rest = *g;
    rest.n = cols;
    rest.places = g->places - deep * TILE;
    rest.a += deep * TILE;
    rest.b += (ptrdiff_t)deep * TILE * NR;
    rest.first = NULL;
    if (rest.places)
        block(&rest);
    rest = *g;
    rest.n -= cols;
    rest.b += cols / NR * g->bps;
    rest.c += cols;
    rest.first = g->first ? g->first + cols : NULL;
    if (rest.n)
        block(&rest);
}
