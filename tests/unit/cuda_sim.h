/* cuda_sim.h - a simulated NVIDIA driver behind the table of engine/cuda/driver.h: what it has is set here, and any call of it can fail.
 *
 * Streams are queues: nothing happens before somebody waits for one or asks it often enough, so whoever reads results too early, or lets go of a buffer that
 * is still in use, is found out. Memory of the device is the host's own, each piece as large as it was asked for; copies must lie within one piece.
 * Kernels run on the CPU: those of the plug-in here, which are `kernel` and `net` below. */
#ifndef PST_TESTS_CUDA_SIM_H
#define PST_TESTS_CUDA_SIM_H

#include "engine/cuda/driver.h"
#include "engine/cuda/plugin.h"

#include <stdbool.h>

typedef struct cuda_sim_device {
    const char *name;
    int major, minor;
    size_t memory, free;
} cuda_sim_device;

typedef int (*cuda_sim_kernel)(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out,
                               void *stream);
typedef int (*cuda_sim_net_kernel)(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out,
                                   void *stream);

typedef struct cuda_sim_event {
    int number; /* of cuda:N */
    unsigned long long type, data;
} cuda_sim_event;

typedef struct cuda_sim {
    int cuda;            /* 13000 */
    const char *version; /* what NVML says */
    int init_error;      /* of cuInit */
    int n;
    cuda_sim_device device[4];
    int fail_at;              /* this call, counted from 1, fails with 999; 0 = none */
    bool fail_on;             /* and so do all behind it: the device is gone */
    bool none_left;           /* memory is asked for in vain: 2 */
    bool at_once;             /* streams do not queue: for a plug-in that knows nothing of them */
    bool hung;                /* streams that have work never end it, and whoever waits for all of it would wait for ever */
    unsigned gone;            /* a bit a device: whatever is asked of it fails, by 999 */
    cuda_sim_event events[4]; /* what NVML has to tell; type 0 = no more */
    unsigned long long ecc;   /* memory errors of device 0 */
    cuda_sim_kernel kernel;
    cuda_sim_net_kernel net;
    int calls;
    int open;                    /* nvmlInit without nvmlShutdown */
    int event_sets, told;        /* not given back; of events, how many were told */
    int contexts;                /* taken and not given back: one stays for each device that was used */
    int pieces, pinned, streams; /* taken and not given back */
    int copies_in, copies_out, launches, images;
    int overlaps; /* rows that were given to a stream while another one of the device had work */
} cuda_sim;

extern cuda_sim cuda_sim_state;
extern const eng_cuda_driver cuda_sim_driver;         /* with NVML */
extern const eng_cuda_driver cuda_sim_driver_no_nvml; /* libcuda alone */
extern const eng_cuda_plugin cuda_sim_plugin;         /* its kernels are those of cuda_sim_state, on a stream of the driver's */

#endif
