/* devices.h - which NVIDIA devices this host has and whether penstock can compute on them; for `penstock doctor`, `penstock devices` and
 * `device: cuda`. Makes no context on a device and sets nothing there.
 *
 * What is missing is named in the order in which somebody would put it right: the driver, its version, a device, one that is new enough, the
 * plug-in.
 *
 *     pst_cuda_devices d;
 *     pst_cuda_devices_find(&d);
 *     if (d.state != PST_CUDA_USABLE) printf("%s; %s\n", d.why, d.cure);
 *
 * @thread any */
#ifndef PST_ENGINE_CUDA_DEVICES_H
#define PST_ENGINE_CUDA_DEVICES_H

#include <stdint.h>

enum { PST_CUDA_DEVICES_MAX = 64 };

typedef enum {
    PST_CUDA_USABLE,
    PST_CUDA_NO_DRIVER,
    PST_CUDA_DRIVER_OLD,
    PST_CUDA_NO_DEVICE,
    PST_CUDA_DEVICE_OLD,
    PST_CUDA_NO_PLUGIN,
} pst_cuda_state;

typedef struct pst_cuda_device {
    int number; /* cuda:N, as CUDA counts them: CUDA_VISIBLE_DEVICES has been heeded */
    char name[96];
    int major, minor;     /* compute capability */
    int64_t memory_bytes; /* 0 = not known */
    int64_t free_bytes;   /* -1 = not known */
    int64_t ecc_errors;   /* memory errors that were not corrected, since its driver started; -1 = not known, or it has no ECC */
    pst_cuda_state state;
} pst_cuda_device;

typedef struct pst_cuda_devices {
    pst_cuda_state state;     /* of the best device; without one, what is missing */
    char driver[48];          /* "580.65.06", or "CUDA 13.0" where NVML is not there; "" = none */
    int cuda;                 /* what the driver runs: 13000 = 13.0; 0 = not known */
    char why[320], cure[240]; /* "" where usable; no cure where nothing helps */
    int n;
    pst_cuda_device list[PST_CUDA_DEVICES_MAX];
} pst_cuda_devices;

/* This host's. */
void pst_cuda_devices_find(pst_cuda_devices *ret);
/* What is said of one device of these: why it cannot be used, or "". */
const char *pst_cuda_device_why(const pst_cuda_devices *all, const pst_cuda_device *d, char *room, int cap);
/* What to do about it; "" where nothing helps. */
const char *pst_cuda_device_cure(const pst_cuda_devices *all, const pst_cuda_device *d);

struct eng_cuda_driver;
struct eng_cuda_plugin;
/* The same of a driver and a plug-in, either NULL with what is to be said of it; for tests. */
void eng_cuda_devices(const struct eng_cuda_driver *driver, const char *driver_why, const struct eng_cuda_plugin *plugin,
                      const char *plugin_why, pst_cuda_devices *ret);

#endif
