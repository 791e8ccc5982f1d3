/* cuda_plugin.c - plug-ins as test_cuda_devices opens them: of this version, of an older one, of another table, and no plug-in at all. That of this
 * version has the emulated kernels where there is a C++ compiler, so that whole programs compute on the simulated device. */
#include "engine/cuda/plugin.h"

#ifdef PLUGIN_VERSION
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
