/* isa.c - which kernels there are and which of them a plan gets.
 *
 * Without a wish it is the best of this CPU, or what PENSTOCK_ISA names: so a whole test suite or a whole program can be run on each
 * instruction set that a machine has. A wish that cannot be met gives nothing, and the plan says so. */
#include "engine/cpu/isa.h"

#include "engine/penstock_engine.h"

#include <stdlib.h>
#include <string.h>

/* NULL = the best. */
static const pst_cpu_kernels *named(const char *want)
{
    static const pst_cpu_kernels *const all[] = {
#if defined(__x86_64__)
        &pst_kernels_avx512,
        &pst_kernels_avx2,
#endif
        &pst_kernels_portable
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((!want || !strcmp(want, all[i]->isa)) && all[i]->supported())
            return all[i];
    return NULL;
}

const char *pst_isa_wish(void)
{
    const char *wish = secure_getenv("PENSTOCK_ISA");
    return wish && *wish ? wish : NULL;
}

const pst_cpu_kernels *pst_kernels_pick(const char *want)
{
    return named(want ? want : pst_isa_wish());
}

const char *pst_isa_pick(const char *want)
{
    const pst_cpu_kernels *k = pst_kernels_pick(want);
    return k ? k->isa : NULL;
}

bool pst_isa_is_best(const char *isa)
{
    return !strcmp(isa, named(NULL)->isa);
}

const pst_cpu_kernels *pst_kernels_default(void)
{
    const pst_cpu_kernels *k = pst_kernels_pick(NULL);
    return k ? k : named(NULL);
}

const char *pst_engine_isa(void)
{
    return pst_kernels_default()->isa;
}
