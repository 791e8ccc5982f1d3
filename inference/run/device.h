/* device.h - can this host compute on the device that a pipeline asks for? Asked before anything runs, so that `device: cuda` never ends on
 * the CPU without a word. Looks at the driver's files, the device nodes and the plug-in's file only. @thread any. */
#ifndef PST_INFERENCE_RUN_DEVICE_H
#define PST_INFERENCE_RUN_DEVICE_H

#include "common/base/err.h"

/* device: "auto", "cpu", "cuda", "cuda:N". PST_EINVAL (FATAL: exit status 2) says what is missing and what to do about it. */
int score_device_check(const char *device, pst_err *err);

/* Where it looks; for tests. NULL members = this host's. */
typedef struct score_device_places {
    const char *driver_version; /* /proc/driver/nvidia/version */
    const char *nodes;          /* /dev */
    const char *plugin;         /* libpenstock-cuda.so, beside the program or in ../lib */
} score_device_places;
int score_device_check_at(const char *device, const score_device_places *places, pst_err *err);

#endif
