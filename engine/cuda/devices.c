/* devices.c - what a driver tells of its devices, and what of it is missing; see devices.h. A call that fails is an answer, too: what it would
 * have told stays unknown, and only what nothing can be computed without makes a device unusable. */
#include "engine/cuda/devices.h"

#include "engine/cuda/driver.h"
#include "engine/cuda/plugin.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAJOR_LEAST = 8 };                                       /* sm_80: what the kernels are compiled for */
enum { OWN_CUDA = 13, DRIVER_OF_13 = 580, DRIVER_OF_12 = 525 }; /* OWN_CUDA: of a plug-in that is built by deploy/cuda/toolkit */

/* Nobody is sent to install or build something without hearing what it is good for. */
static void missing(pst_cuda_devices *d, pst_cuda_state state, const char *cure)
{
    d->state = state;
    snprintf(d->cure, sizeof d->cure, "%s%s", cure,
             *cure ? "; in this version a GPU computes models of one tree ensemble or of dense layers, and no others" : "");
}

/* NVML tells the driver's version by the name that its packages have. */
static void tell_driver(const eng_cuda_driver *driver, bool nvml, pst_cuda_devices *d)
{
    char version[sizeof d->driver] = "";
    if (nvml && driver->nvml_version(version, sizeof version - 1) == 0 && *version)
        memcpy(d->driver, version, sizeof version);
    else if (d->cuda)
        snprintf(d->driver, sizeof d->driver, "CUDA %d.%d", d->cuda / 1000, d->cuda % 1000 / 10);
    else
        snprintf(d->driver, sizeof d->driver, "of an unknown version");
}

static void ask_nvml(const eng_cuda_driver *driver, int device, pst_cuda_device *d)
{
    char bus[32] = "";
    void *handle = NULL;
    eng_nvml_memory memory = {0};
    unsigned long long errors = 0;
    if (driver->bus_id(bus, sizeof bus - 1, device) != 0 || driver->nvml_device(bus, &handle) != 0)
        return;
    if (driver->nvml_memory(handle, &memory) == 0)
        d->free_bytes = (int64_t)memory.free;
    if (driver->nvml_ecc && driver->nvml_ecc(handle, ENG_NVML_UNCORRECTED, ENG_NVML_VOLATILE, &errors) == 0)
        d->ecc_errors = (int64_t)errors;
}

/* False: the driver does not have it. */
static bool one_device(const eng_cuda_driver *driver, bool nvml, int number, pst_cuda_device *ret)
{
    int device;
    size_t bytes;
    *ret = (pst_cuda_device){.number = number, .free_bytes = -1, .ecc_errors = -1};
    if (driver->device(&device, number) != 0)
        return false;
    if (driver->name(ret->name, sizeof ret->name - 1, device) != 0)
        snprintf(ret->name, sizeof ret->name, "NVIDIA device %d", number);
    if (driver->attribute(&ret->major, ENG_CUDA_MAJOR, device) != 0 || driver->attribute(&ret->minor, ENG_CUDA_MINOR, device) != 0)
        ret->major = ret->minor = 0;
    if (driver->memory(&bytes, device) == 0)
        ret->memory_bytes = (int64_t)bytes;
    if (nvml)
        ask_nvml(driver, device, ret);
    ret->state = ret->major < MAJOR_LEAST ? PST_CUDA_DEVICE_OLD : PST_CUDA_USABLE;
    return true;
}

/* What the driver says when it does not start. */
static void does_not_start(const eng_cuda_driver *driver, int error, pst_cuda_devices *d)
{
    const char *text = NULL;
    if (error == ENG_CUDA_NO_DEVICE) {
        snprintf(d->why, sizeof d->why, "the NVIDIA driver (%s) is there, but no device", d->driver);
        missing(d, PST_CUDA_NO_DEVICE,
                "look at nvidia-smi -L and CUDA_VISIBLE_DEVICES; in a container grant a device (docker run --gpus all)");
        return;
    }
    if (driver->error_text(error, &text) != 0 || !text)
        text = "an error without a name";
    snprintf(d->why, sizeof d->why, "the NVIDIA driver (%s) does not start: %.150s (%d)", d->driver, text, error);
    missing(d, PST_CUDA_NO_DRIVER,
            "load its module, or restart the computer after the driver was changed (nvidia-smi shows whether it works)");
}

static void list_devices(const eng_cuda_driver *driver, bool nvml, pst_cuda_devices *d)
{
    int n = 0, error = driver->init(0);
    if (error == 0)
        error = driver->count(&n);
    for (int i = 0; error == 0 && i < n && d->n < PST_CUDA_DEVICES_MAX; i++)
        d->n += one_device(driver, nvml, i, &d->list[d->n]);
    if (d->n == 0)
        does_not_start(driver, error ? error : ENG_CUDA_NO_DEVICE, d);
}

/* Runtimes of one major version run on every driver of it, so the major version is what counts. */
static bool driver_serves(pst_cuda_devices *d, const eng_cuda_plugin *plugin)
{
    int major = plugin ? plugin->cuda / 1000 : OWN_CUDA;
    if (d->cuda == 0 || d->cuda / 1000 >= major) /* unknown: the devices will tell */
        return true;
    snprintf(d->why, sizeof d->why, "the NVIDIA driver (%s, CUDA %d.%d) is too old: CUDA %d is needed", d->driver, d->cuda / 1000,
             d->cuda % 1000 / 10, major);
    char cure[80];
    snprintf(cure, sizeof cure, "install driver %d or newer", major >= OWN_CUDA ? DRIVER_OF_13 : DRIVER_OF_12);
    missing(d, PST_CUDA_DRIVER_OLD, cure);
    return false;
}

static void judge_devices(const eng_cuda_plugin *plugin, const char *plugin_why, pst_cuda_devices *d)
{
    bool new_enough = false;
    for (int i = 0; i < d->n; i++)
        if (d->list[i].state == PST_CUDA_USABLE) {
            d->list[i].state = plugin ? PST_CUDA_USABLE : PST_CUDA_NO_PLUGIN;
            new_enough = true;
        }
    if (!new_enough) {
        char room[200];
        missing(d, PST_CUDA_DEVICE_OLD, "use a device of compute capability 8.0 or newer (A100, RTX 30 and later)");
        snprintf(d->why, sizeof d->why, "%s", pst_cuda_device_why(d, &d->list[0], room, sizeof room));
    } else if (!plugin) {
        snprintf(d->why, sizeof d->why, "driver and device are there, but %s", plugin_why);
        missing(d, PST_CUDA_NO_PLUGIN, "build it (./quickstart build --cuda) or install it beside the program");
    }
}

const char *pst_cuda_device_why(const pst_cuda_devices *all, const pst_cuda_device *d, char *room, int cap)
{
    if (d->state == PST_CUDA_USABLE)
        return "";
    if (d->state != PST_CUDA_DEVICE_OLD)
        return all->why;
    snprintf(room, (size_t)cap, "the device is too old: cuda:%d, %.90s, has compute capability %d.%d, and %d.0 is the least", d->number,
             d->name, d->major, d->minor, MAJOR_LEAST);
    return room;
}

const char *pst_cuda_device_cure(const pst_cuda_devices *all, const pst_cuda_device *d)
{
    if (d->state == all->state)
        return all->cure;
    return all->state == PST_CUDA_USABLE ? "use another" : "";
}

void eng_cuda_devices(const eng_cuda_driver *driver, const char *driver_why, const eng_cuda_plugin *plugin, const char *plugin_why,
                      pst_cuda_devices *ret)
{
    *ret = (pst_cuda_devices){.state = PST_CUDA_USABLE};
    if (!driver) {
        snprintf(ret->why, sizeof ret->why, "there is no NVIDIA driver (%.200s)", driver_why);
        missing(ret, PST_CUDA_NO_DRIVER, "install NVIDIA's driver and load its module (nvidia-smi shows whether it works)");
        return;
    }
    bool nvml = driver->nvml_init && driver->nvml_init() == 0;
    if (driver->version(&ret->cuda) != 0)
        ret->cuda = 0;
    tell_driver(driver, nvml, ret);
    if (driver_serves(ret, plugin)) {
        list_devices(driver, nvml, ret);
        if (ret->n)
            judge_devices(plugin, plugin_why, ret);
    }
    if (nvml)
        driver->nvml_done();
}

void pst_cuda_devices_find(pst_cuda_devices *ret)
{
    char driver_why[256] = "", plugin_why[320] = "";
    const eng_cuda_driver *driver = eng_cuda_driver_open(driver_why, sizeof driver_why);
    const eng_cuda_plugin *plugin = driver ? eng_cuda_plugin_open(NULL, plugin_why, sizeof plugin_why) : NULL;
    eng_cuda_devices(driver, driver_why, plugin, plugin_why, ret);
}
