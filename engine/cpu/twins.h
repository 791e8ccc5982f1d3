/* twins.h - the kernels of an instruction set beside their portable twins, on numbers of their own. @thread any. */
#ifndef PST_ENGINE_CPU_TWINS_H
#define PST_ENGINE_CPU_TWINS_H

#include "engine/cpu/isa.h"
#include "engine/fuse_tile.h"

typedef struct pst_isa_set {
    const pst_cpu_kernels *cpu;
    const pst_tile_kernels *tile;
} pst_isa_set;

/* The first kernel that gives something else than its twin; NULL = none does. Takes less than two milliseconds and no heap. */
const char *pst_twins_differ(const pst_isa_set *set);

#endif
