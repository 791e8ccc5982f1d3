/* cuda_sim.h - a simulated NVIDIA driver behind the table of engine/cuda/driver.h: what it has is set here, and any call of it can fail. */
#ifndef PST_TESTS_CUDA_SIM_H
#define PST_TESTS_CUDA_SIM_H

#include "engine/cuda/driver.h"

#include <stdbool.h>

typedef struct cuda_sim_device {
    const char *name;
    int major, minor;
    size_t memory, free;
} cuda_sim_device;

typedef struct cuda_sim {
    int cuda;            /* 13000 */
    const char *version; /* what NVML says */
    int init_error;      /* of cuInit */
    int n;
    cuda_sim_device device[4];
    int fail_at; /* this call, counted from 1, fails with 999; 0 = none */
    int calls;
    int open; /* nvmlInit without nvmlShutdown */
} cuda_sim;

extern cuda_sim cuda_sim_state;
extern const eng_cuda_driver cuda_sim_driver;         /* with NVML */
extern const eng_cuda_driver cuda_sim_driver_no_nvml; /* libcuda alone */

#endif
