/* device.c - which device a pipeline's model runs on. What there is and what is missing is engine/cuda/devices.h's to find; here it is held against what was asked for. */
#include "inference/run/device.h"

#include "common/base/log.h"
#include "engine/cuda/devices.h"
#include "engine/cuda/events.h"
#include "schemas/metric_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(pst_err *err, const char *device, const char *why, const char *cure)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                       "device: %s cannot be had here: %s; use device: cpu or device: auto%s%s", device, why, *cure ? "; or " : "", cure);
}

int score_device_check_of(const char *device, const pst_cuda_devices *devices, pst_err *err)
{
    long wanted = device[4] == ':' ? strtol(device + 5, NULL, 10) : -1;
    if (wanted < 0 || devices->n == 0)
        return devices->state == PST_CUDA_USABLE ? 0 : refuse(err, device, devices->why, devices->cure);
    for (int i = 0; i < devices->n; i++) {
        char room[200];
        const pst_cuda_device *d = &devices->list[i];
        if (d->number != wanted)
            continue;
        if (d->state == PST_CUDA_USABLE)
            return 0;
        return refuse(err, device, pst_cuda_device_why(devices, d, room, sizeof room), pst_cuda_device_cure(devices, d));
    }
    char why[100];
    snprintf(why, sizeof why, "there is no device %ld, only %d of them", wanted, devices->n);
    return refuse(err, device, why, devices->state == PST_CUDA_USABLE ? "use one that penstock devices shows" : "");
}

int pst_score_device_check(const char *device, pst_err *err)
{
    pst_cuda_devices devices;
    if (strncmp(device, "cuda", 4) != 0)
        return 0;
    pst_cuda_devices_find(&devices);
    return score_device_check_of(device, &devices, err);
}

bool score_device_events(pst_metrics *set, const char *pipeline, char *ret_newest, size_t cap)
{
    bool any = false;
    for (pst_cuda_event e; pst_cuda_events_next(&e); any = true) {
        const char *kind = pst_cuda_event_word(e.kind), *says = pst_cuda_event_says(&e);
        char device[24] = "another device";
        if (e.number >= 0)
            snprintf(device, sizeof device, "cuda:%d", e.number);
        pst_log(e.kind == PST_CUDA_ECC_CORRECTED ? PST_LOG_INFO : PST_LOG_WARN, "score",
                "event=device_event pipeline=%s device=\"%s\" kind=%s code=%llu why=\"%s\"", pipeline, device, kind,
                (unsigned long long)e.code, says);
        pst_metric_add(pst_metric_of(set, PST_METRIC_SCORER_DEVICE_EVENTS, pipeline, kind, NULL), 1);
        snprintf(ret_newest, cap, "%s: %s %llu: %s", device, kind, (unsigned long long)e.code, says);
    }
    return any;
}
