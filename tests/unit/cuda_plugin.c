/* cuda_plugin.c - plug-ins as test_cuda_devices opens them: of this version, of an older one, of another table, and no plug-in at all. No kernels. */
#include "engine/cuda/plugin.h"

#ifdef PLUGIN_VERSION
const eng_cuda_plugin *penstock_cuda_plugin(void);
const eng_cuda_plugin *penstock_cuda_plugin(void)
{
    static const eng_cuda_plugin plugin = {.abi = PLUGIN_ABI, .cuda = 13000, .version = PLUGIN_VERSION, .targets = ""};
    return &plugin;
}
#else
extern const int no_entry;
const int no_entry = 1;
#endif
