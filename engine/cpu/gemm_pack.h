/* gemm_pack.h - the two orders of packed matrices. @thread any; pure functions. */
#ifndef PST_ENGINE_CPU_GEMM_PACK_H
#define PST_ENGINE_CPU_GEMM_PACK_H

#include <stddef.h>

/* a (mc,kc) with strides rs, cs → the tiles of eng_tile_rows(), each (kc, rows) */
void eng_pack_tiles(int mr, int mc, int kc, const float *a, size_t rs, size_t cs, float *to);
/* b (kc,nc) with strides rs, cs → panels of nr columns, each (kc, nr), panels pstride floats apart, zero padded */
void eng_pack_panels(int nr, int kc, int nc, const float *b, size_t rs, size_t cs, float *to, size_t pstride);

#endif
