/* cuda_plugin.c - plug-ins as test_cuda_devices opens them: of this version, of an older one, of another table, and no plug-in at all. That of this
 * version has the emulated kernels where there is a C++ compiler, so that whole programs compute on the simulated device. */
#include "engine/cuda/plugin.h"

#ifdef PLUGIN_VERSION
#ifdef PLUGIN_TREES
int wrong_trees(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream);
int wrong_trees(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream)
{
    int rc = eng_cuda_trees_run(f, image, x, rows, cols, out, stream);
    if (rows > 100)
        out[(rows - 1) * f->n_targets] += 1;
    return rc;
}
#endif
const eng_cuda_plugin *penstock_cuda_plugin(void);
const eng_cuda_plugin *penstock_cuda_plugin(void)
{
    static const eng_cuda_plugin plugin = {.abi = PLUGIN_ABI,
                                           .cuda = 13000,
                                           .version = PLUGIN_VERSION,
                                           .targets = "",
#ifdef PLUGIN_TREES
                                           .trees = PLUGIN_TREES,
                                           .net = PLUGIN_NET
#endif
    };
    return &plugin;
}
#else
extern const int no_entry;
const int no_entry = 1;
#endif
