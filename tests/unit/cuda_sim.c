/* cuda_sim.c - see cuda_sim.h. Device k of CUDA is handle 100 + k, so that a number in the place of a handle is found out. */
#include "tests/unit/cuda_sim.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLE = 100, FAILED = 999 };

cuda_sim cuda_sim_state;

static bool fails(void)
{
    return ++cuda_sim_state.calls == cuda_sim_state.fail_at;
}

static const cuda_sim_device *of_handle(int handle)
{
    if (handle < HANDLE || handle >= HANDLE + cuda_sim_state.n)
        abort(); /* not what cuDeviceGet gave */
    return &cuda_sim_state.device[handle - HANDLE];
}

static int sim_version(int *ret)
{
    if (fails())
        return FAILED;
    *ret = cuda_sim_state.cuda;
    return 0;
}

static int sim_init(unsigned flags)
{
    if (flags)
        abort(); /* must be 0 */
    return fails() ? FAILED : cuda_sim_state.init_error;
}

static int sim_count(int *ret)
{
    if (fails())
        return FAILED;
    *ret = cuda_sim_state.n;
    return 0;
}

static int sim_device(int *ret, int ordinal)
{
    if (fails() || ordinal < 0 || ordinal >= cuda_sim_state.n)
        return FAILED;
    *ret = HANDLE + ordinal;
    return 0;
}

static int sim_name(char *ret, int cap, int device)
{
    if (fails())
        return FAILED;
    snprintf(ret, (size_t)cap, "%s", of_handle(device)->name);
    return 0;
}

static int sim_memory(size_t *ret, int device)
{
    if (fails())
        return FAILED;
    *ret = of_handle(device)->memory;
    return 0;
}

static int sim_attribute(int *ret, int attribute, int device)
{
    if (fails())
        return FAILED;
    const cuda_sim_device *d = of_handle(device);
    *ret = attribute == ENG_CUDA_MAJOR ? d->major : attribute == ENG_CUDA_MINOR ? d->minor : -1;
    return 0;
}

static int sim_bus_id(char *ret, int cap, int device)
{
    if (fails())
        return FAILED;
    of_handle(device);
    snprintf(ret, (size_t)cap, "0000:%02x:00.0", device);
    return 0;
}

static int sim_error_text(int error, const char **ret)
{
    if (fails())
        return FAILED;
    *ret = error == 803 ? "system has unsupported display driver / cuda driver combination" : "unknown error";
    return 0;
}

static int sim_nvml_init(void)
{
    if (fails())
        return FAILED;
    cuda_sim_state.open++;
    return 0;
}

static int sim_nvml_version(char *ret, unsigned cap)
{
    if (fails() || !cuda_sim_state.version)
        return FAILED;
    snprintf(ret, cap, "%s", cuda_sim_state.version);
    return 0;
}

static int sim_nvml_device(const char *bus_id, void **ret)
{
    unsigned handle;
    if (fails() || sscanf(bus_id, "0000:%02x:00.0", &handle) != 1)
        return FAILED;
    *ret = (void *)(uintptr_t)handle;
    return 0;
}

static int sim_nvml_memory(void *device, eng_nvml_memory *ret)
{
    if (fails())
        return FAILED;
    const cuda_sim_device *d = of_handle((int)(uintptr_t)device);
    *ret = (eng_nvml_memory){.total = d->memory, .free = d->free, .used = d->memory - d->free};
    return 0;
}

static int sim_nvml_done(void)
{
    cuda_sim_state.open--;
    return fails() ? FAILED : 0;
}

#define X(member, symbol, parameters) .member = sim_##member,
const eng_cuda_driver cuda_sim_driver = {ENG_CUDA_ENTRIES(X) ENG_NVML_ENTRIES(X)}, cuda_sim_driver_no_nvml = {ENG_CUDA_ENTRIES(X)};
#undef X
