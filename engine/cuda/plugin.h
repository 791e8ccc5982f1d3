/* plugin.h - between the program and libpenstock-cuda.so, which has the kernels and the CUDA runtime in it. Not installed.
 *
 * The plug-in lies beside the program or in ../lib, and exports one function. It belongs to one version of the program: another one's is
 * not used. It is C on both sides; the plug-in is compiled by nvcc. @thread any. */
#ifndef PST_ENGINE_CUDA_PLUGIN_H
#define PST_ENGINE_CUDA_PLUGIN_H

#include "engine/cuda/net.h"
#include "engine/cuda/trees.h"

#include <stddef.h>

#define ENG_CUDA_PLUGIN       "libpenstock-cuda.so"
#define ENG_CUDA_PLUGIN_ENTRY "penstock_cuda_plugin"
#define ENG_CUDA_PLUGIN_ABI   2 /* of the struct below */

typedef struct eng_cuda_plugin {
    int32_t abi, cuda;   /* cuda: of the runtime in it, 13000 = 13.0; its drivers are those of the same major version and newer */
    const char *version; /* penstock's */
    const char *targets; /* "sm_80 sm_90 compute_90" */
    /* Kernels; task.c calls them. */
    int (*trees)(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream);
    int (*net)(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream);
} eng_cuda_plugin;

typedef const eng_cuda_plugin *(*eng_cuda_plugin_fn)(void);

/* The file at `path` (NULL: where it belongs). NULL: ret_why says whether it is missing or another version's. Stays open. */
const eng_cuda_plugin *eng_cuda_plugin_open(const char *path, char *ret_why, size_t cap);

#endif
