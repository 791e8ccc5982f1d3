/* driver.h - what we call of NVIDIA's driver, as a table of functions, so that a simulated one can stand behind it. Not installed.
 *
 * libcuda.so.1 comes with the driver, is opened at run time and never linked: the same program runs where there is none. NVML
 * (libnvidia-ml.so.1, also the driver's) only adds the driver's own version and how much memory is free, which libcuda tells only to
 * whoever has made a context on the device, a few hundred megabytes of it. Types and numbers are those of cuda.h and nvml.h; no header of
 * CUDA is needed to build. @thread any. */
#ifndef PST_ENGINE_CUDA_DRIVER_H
#define PST_ENGINE_CUDA_DRIVER_H

#include <stddef.h>

/* What functions of libcuda return; 0 is success. */
enum { ENG_CUDA_OUT_OF_MEMORY = 2, ENG_CUDA_NO_DEVICE = 100, ENG_CUDA_NOT_READY = 600 };
/* Attributes of a device. */
enum { ENG_CUDA_MAJOR = 75, ENG_CUDA_MINOR = 76 };
/* Of a stream: it does not wait for work of the stream 0. */
enum { ENG_CUDA_STREAM_NON_BLOCKING = 1 };

/* What NVML returns when nothing happened; kinds of its events; which memory errors: uncorrected, since the driver was started. */
enum { ENG_NVML_TIMEOUT = 10 };
enum { ENG_NVML_ECC_SINGLE = 1, ENG_NVML_ECC_DOUBLE = 2, ENG_NVML_XID = 8 };
enum { ENG_NVML_UNCORRECTED = 1, ENG_NVML_VOLATILE = 0 };

typedef unsigned long long eng_cuda_address; /* of a device's memory; 0 = none */

typedef struct eng_nvml_memory {
    unsigned long long total, free, used;
} eng_nvml_memory;

typedef struct eng_nvml_event {
    void *device;
    unsigned long long type, data; /* data: an Xid's number */
    unsigned gpu_instance, compute_instance;
} eng_nvml_event;

/* X(member, symbol, parameters) of libcuda: all are there, or the library is none. */
#define ENG_CUDA_ENTRIES(X)                                                                                 \
    X(version, "cuDriverGetVersion", (int *ret))                                                            \
    X(init, "cuInit", (unsigned flags))                                                                     \
    X(count, "cuDeviceGetCount", (int *ret))                                                                \
    X(device, "cuDeviceGet", (int *ret, int ordinal))                                                       \
    X(name, "cuDeviceGetName", (char *ret, int cap, int device))                                            \
    X(memory, "cuDeviceTotalMem_v2", (size_t * ret, int device))                                            \
    X(attribute, "cuDeviceGetAttribute", (int *ret, int attribute, int device))                             \
    X(bus_id, "cuDeviceGetPCIBusId", (char *ret, int cap, int device))                                      \
    X(error_text, "cuGetErrorString", (int error, const char **ret))                                        \
    X(context, "cuDevicePrimaryCtxRetain", (void **ret, int device))                                        \
    X(context_end, "cuDevicePrimaryCtxRelease_v2", (int device))                                            \
    X(enter, "cuCtxSetCurrent", (void *context))                                                            \
    X(memory_free, "cuMemGetInfo_v2", (size_t * ret_free, size_t * ret_total))                              \
    X(alloc, "cuMemAlloc_v2", (eng_cuda_address * ret, size_t bytes))                                       \
    X(release, "cuMemFree_v2", (eng_cuda_address at))                                                       \
    X(pin, "cuMemHostAlloc", (void **ret, size_t bytes, unsigned flags))                                    \
    X(unpin, "cuMemFreeHost", (void *at))                                                                   \
    X(stream, "cuStreamCreate", (void **ret, unsigned flags))                                               \
    X(stream_end, "cuStreamDestroy_v2", (void *stream))                                                     \
    X(stream_query, "cuStreamQuery", (void *stream))                                                        \
    X(copy_in, "cuMemcpyHtoDAsync_v2", (eng_cuda_address to, const void *from, size_t bytes, void *stream)) \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *to, eng_cuda_address from, size_t bytes, void *stream))

/* Of NVML: all or none. */
#define ENG_NVML_ENTRIES(X)                                                              \
    X(nvml_init, "nvmlInit_v2", (void))                                                  \
    X(nvml_version, "nvmlSystemGetDriverVersion", (char *ret, unsigned cap))             \
    X(nvml_device, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus_id, void **ret)) \
    X(nvml_memory, "nvmlDeviceGetMemoryInfo", (void *device, eng_nvml_memory *ret))      \
    X(nvml_done, "nvmlShutdown", (void))

/* Of NVML, for what devices tell by themselves: all or none. */
#define ENG_NVML_EVENT_ENTRIES(X)                                                                           \
    X(nvml_event_set, "nvmlEventSetCreate", (void **ret))                                                   \
    X(nvml_event_types, "nvmlDeviceGetSupportedEventTypes", (void *device, unsigned long long *ret))        \
    X(nvml_event_register, "nvmlDeviceRegisterEvents", (void *device, unsigned long long types, void *set)) \
    X(nvml_event_wait, "nvmlEventSetWait_v2", (void *set, eng_nvml_event *ret, unsigned ms))                \
    X(nvml_event_free, "nvmlEventSetFree", (void *set))                                                     \
    X(nvml_ecc, "nvmlDeviceGetTotalEccErrors", (void *device, int which, int since, unsigned long long *ret))

typedef struct eng_cuda_driver {
#define X(member, symbol, parameters) int(*member) parameters;
    ENG_CUDA_ENTRIES(X)
    ENG_NVML_ENTRIES(X)       /* NULL, all of them: no NVML */
    ENG_NVML_EVENT_ENTRIES(X) /* likewise; never without NVML */
#undef X
} eng_cuda_driver;

/* This host's driver, opened at the first call and never closed. NULL: there is none; ret_why says what the loader said. */
const eng_cuda_driver *eng_cuda_driver_open(char *ret_why, size_t cap);

#endif
