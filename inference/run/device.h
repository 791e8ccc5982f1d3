/* device.h - can this host compute on the device that a pipeline asks for? Asked before anything runs, so that `device: cuda` never ends on
 * the CPU without a word. @thread any. */
#ifndef PST_INFERENCE_RUN_DEVICE_H
#define PST_INFERENCE_RUN_DEVICE_H

#include "common/base/err.h"

/* device: "auto", "cpu", "cuda", "cuda:N". PST_EINVAL (FATAL: exit status 2) says what is missing and what to do about it. */
int pst_score_device_check(const char *device, pst_err *err);

struct pst_metrics;
/* What the driver told of devices since it was asked last (engine/cuda/events.h): logged, counted in set; true, and the newest as text, where there was
 * something. @thread one */
bool score_device_events(struct pst_metrics *set, const char *pipeline, char *ret_newest, size_t cap);

struct pst_cuda_devices;
/* The same of these devices (engine/cuda/devices.h). */
int score_device_check_of(const char *device, const struct pst_cuda_devices *devices, pst_err *err);

#endif
