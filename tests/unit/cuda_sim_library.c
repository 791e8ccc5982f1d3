/* cuda_sim_library.c - the simulated driver as libcuda.so.1 or, with SIM_NVML, as libnvidia-ml.so.1, for whole programs: they open it by
 * LD_LIBRARY_PATH. PENSTOCK_SIM_CUDA says what it has, "CUDA MAJOR.MINOR…": "13000 9.0 7.5". */
#include "tests/unit/cuda_sim.h"

#include <stdio.h>
#include <stdlib.h>

static const eng_cuda_driver *sim(void)
{
    const char *at = getenv("PENSTOCK_SIM_CUDA");
    int n = 0, used = 0, major, minor;
    cuda_sim_state = (cuda_sim){.version = "580.65.06"};
    if (at && sscanf(at, "%d%n", &cuda_sim_state.cuda, &used) == 1)
        for (at += used; n < 4 && sscanf(at, "%d.%d%n", &major, &minor, &used) == 2; at += used)
            cuda_sim_state.device[n++] = (cuda_sim_device){"NVIDIA Simulated", major, minor, (size_t)80 << 30, (size_t)79 << 30};
    cuda_sim_state.n = n;
    return &cuda_sim_driver;
}

#ifdef SIM_NVML
int nvmlInit_v2(void);
int nvmlSystemGetDriverVersion(char *ret, unsigned cap);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **ret);
int nvmlDeviceGetMemoryInfo(void *device, eng_nvml_memory *ret);
int nvmlShutdown(void);
int nvmlInit_v2(void)
{
    return sim()->nvml_init();
}
int nvmlSystemGetDriverVersion(char *ret, unsigned cap)
{
    return sim()->nvml_version(ret, cap);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **ret)
{
    return sim()->nvml_device(bus_id, ret);
}
int nvmlDeviceGetMemoryInfo(void *device, eng_nvml_memory *ret)
{
    return sim()->nvml_memory(device, ret);
}
int nvmlShutdown(void)
{
    return sim()->nvml_done();
}
#else
int cuDriverGetVersion(int *ret);
int cuInit(unsigned flags);
int cuDeviceGetCount(int *ret);
int cuDeviceGet(int *ret, int ordinal);
int cuDeviceGetName(char *ret, int cap, int device);
int cuDeviceTotalMem_v2(size_t *ret, int device);
int cuDeviceGetAttribute(int *ret, int attribute, int device);
int cuDeviceGetPCIBusId(char *ret, int cap, int device);
int cuGetErrorString(int error, const char **ret);
int cuDriverGetVersion(int *ret)
{
    return sim()->version(ret);
}
int cuInit(unsigned flags)
{
    return sim()->init(flags);
}
int cuDeviceGetCount(int *ret)
{
    return sim()->count(ret);
}
int cuDeviceGet(int *ret, int ordinal)
{
    return sim()->device(ret, ordinal);
}
int cuDeviceGetName(char *ret, int cap, int device)
{
    return sim()->name(ret, cap, device);
}
int cuDeviceTotalMem_v2(size_t *ret, int device)
{
    return sim()->memory(ret, device);
}
int cuDeviceGetAttribute(int *ret, int attribute, int device)
{
    return sim()->attribute(ret, attribute, device);
}
int cuDeviceGetPCIBusId(char *ret, int cap, int device)
{
    return sim()->bus_id(ret, cap, device);
}
int cuGetErrorString(int error, const char **ret)
{
    return sim()->error_text(error, ret);
}
#endif
