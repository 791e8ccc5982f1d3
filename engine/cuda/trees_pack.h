/* trees_pack.h - from a forest of the CPU's to an image for a device (trees.h). Not installed. @thread a plan's, below a eng_heap_run. */
#ifndef PST_ENGINE_CUDA_TREES_PACK_H
#define PST_ENGINE_CUDA_TREES_PACK_H

#include "engine/cuda/trees.h"
#include "engine/ops/tree.h"

/* *ret_image: eng_heap_free() it. PST_EUNSUPPORTED: the kernel does not cover this forest, and why; it stays on the CPU. */
int eng_cuda_trees_pack(const eng_forest *f, eng_cuda_forest *ret, unsigned char **ret_image, pst_err *err);

#endif
