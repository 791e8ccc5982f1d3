/* cuda_sim_library.c - the simulated driver as libcuda.so.1 or, with SIM_NVML, as libnvidia-ml.so.1, for whole programs: they open it by
 * LD_LIBRARY_PATH. PENSTOCK_SIM_CUDA says what it has, "CUDA MAJOR.MINOR…": "13000 9.0 7.5". Streams do not queue: the plug-in beside the program
 * has kernels that run when they are launched. */
#include "tests/unit/cuda_sim.c" /* each symbol of the driver is another name for a function there */

static void __attribute__((constructor)) begin(void)
{
    const char *at = getenv("PENSTOCK_SIM_CUDA");
    int n = 0, used = 0, major, minor;
    cuda_sim_state = (cuda_sim){.version = "580.65.06", .at_once = true};
    if (at && sscanf(at, "%d%n", &cuda_sim_state.cuda, &used) == 1)
        for (at += used; n < 4 && sscanf(at, "%d.%d%n", &major, &minor, &used) == 2; at += used)
            cuda_sim_state.device[n++] = (cuda_sim_device){"NVIDIA Simulated", major, minor, (size_t)80 << 30, (size_t)79 << 30};
    cuda_sim_state.n = n;
    at = getenv("PENSTOCK_SIM_XID"); /* of cuda:0, told at once */
    if (at)
        cuda_sim_state.events[0] = (cuda_sim_event){0, ENG_NVML_XID, strtoull(at, NULL, 10)};
}

#define X(member, symbol, parameters) \
    extern int as_##member parameters __asm__(symbol) __attribute__((alias("sim_" #member), visibility("default")));
#ifdef SIM_NVML
ENG_NVML_ENTRIES(X)
ENG_NVML_EVENT_ENTRIES(X)
#else
ENG_CUDA_ENTRIES(X)
#endif
