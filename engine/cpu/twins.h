/* twins.h - the kernels of an instruction set beside their portable twins, on numbers of their own. @thread any. */
#ifndef PST_ENGINE_CPU_TWINS_H
#define PST_ENGINE_CPU_TWINS_H

#include "engine/cpu/isa.h"
#include "engine/fuse_tile.h"

typedef struct eng_isa_set {
    const eng_cpu_kernels *cpu;
    const eng_tile_kernels *tile;
} eng_isa_set;

/* The first kernel that gives something else than its twin; NULL = none does. Takes less than two milliseconds and no heap. */
const char *eng_twins_differ(const eng_isa_set *set);

#endif
