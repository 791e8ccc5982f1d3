/* plugin.cu - what libpenstock-cuda.so shows of itself (plugin.h). The CUDA runtime is linked statically and opens the driver by itself when it
 * is first called: the plug-in can be opened where there is none. */
#include "engine/cuda/plugin.h"

#include <cuda_runtime_api.h>

extern "C" __attribute__((visibility("default"))) const eng_cuda_plugin *penstock_cuda_plugin(void)
{
    static const eng_cuda_plugin plugin = {ENG_CUDA_PLUGIN_ABI, CUDART_VERSION,     PST_VERSION,
                                           PST_CUDA_TARGETS,    eng_cuda_trees_run, eng_cuda_net_run};
    return &plugin;
}
