/* gpu_types.h - kinds of devices as people name them (penstock.gpu_preference: [h100, a100]) and as nodes report them ("nvidia-NVIDIAH100PCIe").
 * @thread any. */
#ifndef PST_SCHEMAS_GPU_TYPES_H
#define PST_SCHEMAS_GPU_TYPES_H

#include <stdbool.h>
#include <stddef.h>

enum { PST_GPU_PREFERENCE_MAX = 8, PST_GPU_TYPE_BYTES = 48 };

/* Is that what the short name means? Case is no matter; a number is meant as a whole: a10 is no a100. */
bool pst_gpu_type_is(const char *type, const char *name);
/* The best first; none is demanded. */
typedef struct pst_gpu_preference {
    char at[PST_GPU_PREFERENCE_MAX][PST_GPU_TYPE_BYTES];
    size_t n;
} pst_gpu_preference;

/* The place in it of the best of a node's types, from 0; p->n where it has none of them. */
size_t pst_gpu_rank(const pst_gpu_preference *p, char *const *types, size_t n_types);

#endif
