/* device.c - see device.h. What is missing is told in the order in which somebody would put it right: the driver, its version, the device, the
 * plug-in. */
#include "inference/run/device.h"

#include "common/base/fs.h"
#include "common/base/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER_LEAST = 525 }; /* the first of CUDA 12 */
static const char cure[] = "or use device: cpu or device: auto";

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat …", or "… Open Kernel Module for x86_64  535…": the first number with a dot.
 * 0 = no driver. */
static double driver_version(const char *path)
{
    pst_buf b = {0};
    double version = 0;
    if (pst_fs_read(path, 65536, &b, NULL) < 0)
        return 0;
    for (char *p = b.data; p && *p && *p != '\n' && version == 0; p++) {
        char *end;
        bool begins = isdigit((unsigned char)*p) && (p == b.data || isspace((unsigned char)p[-1]));
        double x = begins ? strtod(p, &end) : 0;
        if (begins && memchr(p, '.', (size_t)(end - p)))
            version = x;
    }
    pst_buf_done(&b);
    return version > 0 ? version : DRIVER_LEAST; /* there, in a form that we do not know: the plug-in will see */
}

/* Device nodes "nvidia0", "nvidia1", …: how many, and is the wanted one (-1 = any) among them? */
static int count_devices(const char *folder, long wanted, bool *ret_there)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        char *end;
        if (strncmp(e->d_name, "nvidia", 6) != 0 || !isdigit((unsigned char)e->d_name[6]))
            continue;
        long number = strtol(e->d_name + 6, &end, 10);
        n += !*end;
        *ret_there |= !*end && number == wanted;
    }
    if (d)
        closedir(d);
    return n;
}

static char *find_plugin(void)
{
    static const char *const beside[] = {"libpenstock-cuda.so", "../libpenstock-cuda.so", "../lib/libpenstock-cuda.so"};
    char *self = pst_proc_self(), *slash = self ? strrchr(self, '/') : NULL, *found = NULL;
    for (size_t i = 0; slash && !found && i < sizeof beside / sizeof *beside; i++) {
        char *path = pst_sprintf("%.*s/%s", (int)(slash - self), self, beside[i]);
        if (pst_fs_exists(path))
            found = path;
        else
            free(path);
    }
    free(self);
    return found;
}

static int refuse(pst_err *err, const char *device, const char *what)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "device: %s cannot be had here: %s, %s", device, what, cure);
}

/* In the order in which one would mend it: driver, its version, a device, this one, the plug-in. The first that is missing is the message. */
int score_device_check_at(const char *device, const score_device_places *places, pst_err *err)
{
    if (strncmp(device, "cuda", 4) != 0)
        return 0;
    long wanted = device[4] == ':' ? strtol(device + 5, NULL, 10) : -1;
    bool there = false;
    char what[300];
    double version = driver_version(places->driver_version ? places->driver_version : "/proc/driver/nvidia/version");
    int n = count_devices(places->nodes ? places->nodes : "/dev", wanted, &there);
    if (version == 0 && n == 0)
        return refuse(err, device, "there is no NVIDIA driver on this host; install one and load its module (nvidia-smi shows it)");
    if (version > 0 && version < DRIVER_LEAST) {
        snprintf(what, sizeof what, "the NVIDIA driver %g is too old; install version %d or newer", version, DRIVER_LEAST);
        return refuse(err, device, what);
    }
    if (n == 0)
        return refuse(err, device,
                      "the driver is there, but no device (/dev/nvidia0 …); in a container grant one (docker run --gpus all), or load "
                      "nvidia-modprobe");
    if (wanted >= 0 && !there) {
        snprintf(what, sizeof what, "there is no device %ld, only %d of them; use one that penstock doctor and nvidia-smi -L show", wanted,
                 n);
        return refuse(err, device, what);
    }
    char *plugin = places->plugin ? pst_strdup(places->plugin) : find_plugin();
    bool have = plugin && pst_fs_exists(plugin);
    free(plugin);
    return refuse(
        err, device,
        have ? "the plug-in libpenstock-cuda.so is there, but this version of penstock has no use for it; install one of its own version"
             : "driver and device are there, but the plug-in libpenstock-cuda.so is not beside the program; install or build it");
}

int score_device_check(const char *device, pst_err *err)
{
    return score_device_check_at(device, &(score_device_places){0}, err);
}
