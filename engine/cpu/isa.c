/* isa.c - choosing the kernels once; see isa.h. */
#include "engine/cpu/isa.h"

#include "engine/penstock_engine.h"

#include <string.h>

const pst_cpu_kernels *pst_kernels_pick(const char *want)
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

const char *pst_isa_pick(const char *want)
{
    const pst_cpu_kernels *k = pst_kernels_pick(want);
    return k ? k->isa : NULL;
}

const char *pst_engine_isa(void)
{
    return pst_isa_pick(NULL);
}
