/* isa.c - which kernels there are and which of them a plan gets.
 *
 * By default it is the best of this CPU, or what PENSTOCK_ISA names: so a whole test suite or a whole program can be run on each
 * instruction set that a machine has. A set that cannot be had gives nothing, and the plan says so. AVX-512 is what few machines have,
 * so in each process its kernels are compared with the portable ones before they are first used (twins.h). Where they differ the next
 * narrower set takes their place, compared as well: vectors that were wrong once are not believed elsewhere. */
#include "engine/cpu/isa.h"

#include "common/base/err.h"
#include "engine/cpu/twins.h"
#include "engine/penstock_engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct known_isa {
    eng_isa_set set;
    atomic_int trusted; /* 0 = to be compared, -1 = no: why says it */
    char why[160];
} known_isa;

static known_isa all[] = {
#if defined(__x86_64__)
    {.set = {&eng_kernels_avx512, &eng_tile_avx512}},
    {.set = {&eng_kernels_avx2, &eng_tile_avx2}, .trusted = 1},
#endif
    {.set = {&eng_kernels_portable, &eng_tile_portable}, .trusted = 1}};
enum { KNOWN = sizeof all / sizeof *all };

static bool trusted(known_isa *k)
{
    static pthread_mutex_t comparing = PTHREAD_MUTEX_INITIALIZER;
    int is = atomic_load_explicit(&k->trusted, memory_order_acquire);
    if (is)
        return is > 0;
    pthread_mutex_lock(&comparing);
    if (!atomic_load(&k->trusted)) {
        const char *kernel = eng_twins_differ(&k->set);
        if (kernel) {
            snprintf(k->why, sizeof k->why, "%s is not used: its kernel \"%s\" does not give on this machine what the portable one gives",
                     k->set.cpu->isa, kernel);
            if (k + 1 < all + KNOWN - 1)
                atomic_store(&k[1].trusted, 0);
        }
        atomic_store_explicit(&k->trusted, kernel ? -1 : 1, memory_order_release);
    }
    pthread_mutex_unlock(&comparing);
    return atomic_load(&k->trusted) > 0;
}

/* NULL = the best. */
static const eng_cpu_kernels *named(const char *want)
{
    for (known_isa *k = all; k < all + KNOWN; k++)
        if ((!want || !strcmp(want, k->set.cpu->isa)) && k->set.cpu->supported() && trusted(k))
            return k->set.cpu;
    return NULL;
}

const char *eng_isa_asked(void)
{
    const char *name = secure_getenv("PENSTOCK_ISA");
    return name && *name ? name : NULL;
}

const eng_cpu_kernels *eng_kernels_pick(const char *want)
{
    return named(want ? want : eng_isa_asked());
}

const char *eng_isa_pick(const char *want)
{
    const eng_cpu_kernels *k = eng_kernels_pick(want);
    return k ? k->isa : NULL;
}

const char *eng_isa_why_not(const char *want)
{
    for (known_isa *k = all; k < all + KNOWN; k++)
        if (!strcmp(want, k->set.cpu->isa))
            return k->set.cpu->supported() && !trusted(k) ? k->why : "this CPU does not have it";
    return "not one of portable, avx2, avx512";
}

bool eng_isa_is_best(const char *isa)
{
    const known_isa *k = all;
    for (; !k->set.cpu->supported(); k++)
        PST_ASSERT(k < all + KNOWN - 1); /* every CPU has the last */
    return !strcmp(isa, k->set.cpu->isa);
}

const eng_cpu_kernels *eng_kernels_default(void)
{
    const eng_cpu_kernels *k = eng_kernels_pick(NULL);
    k = k ? k : named(NULL);
    PST_ASSERT(k); /* the portable ones are trusted as they are */
    return k;
}

const eng_tile_kernels *eng_tile_pick(const char *isa)
{
    for (const known_isa *k = all; k < all + KNOWN; k++)
        if (!strcmp(isa, k->set.cpu->isa))
            return k->set.tile;
    return &eng_tile_portable;
}

void eng_isa_replace(const eng_cpu_kernels *cpu, const eng_tile_kernels *tile)
{
    for (known_isa *k = all; k < all + KNOWN - 1; k++)
        if (!strcmp(cpu->isa, k->set.cpu->isa)) {
            k->set = (eng_isa_set){cpu, tile};
            atomic_store(&k->trusted, 0);
        }
}

const char *pst_engine_isa(void)
{
    return eng_kernels_default()->isa;
}

const char *pst_engine_warning(void)
{
    eng_kernels_default(); /* what it passes over has been compared */
    for (known_isa *k = all; k < all + KNOWN; k++)
        if (atomic_load_explicit(&k->trusted, memory_order_acquire) < 0)
            return k->why;
    return NULL;
}
