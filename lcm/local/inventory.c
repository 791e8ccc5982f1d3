/* inventory.c - asks the kernel, not a vendor's library: an LCM must come up where no CUDA is installed, and a driver that hangs must not hang it.
 * A device's id is its number, as CUDA_VISIBLE_DEVICES counts; its type is the model's name in FfDL's spelling. */
#include "lcm/local/inventory.h"

#include "common/base/array.h"
#include "common/base/fs.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pst_device *add_device(pst_inventory *v)
{
    v->devices = pst_array_one_more(v->devices, v->n_devices, sizeof *v->devices);
    pst_device *d = &v->devices[v->n_devices];
    memset(d, 0, sizeof *d);
    snprintf(d->id, sizeof d->id, "%d", v->n_devices++);
    return d;
}

/* "Model:  Tesla V100-SXM2-16GB" → "nvidia-TeslaV100-SXM2-16GB", FfDL's way of naming gpu_type. */
static void set_type(pst_device *d, const char *information)
{
    const char *model = strstr(information, "Model:");
    size_t n = (size_t)snprintf(d->type, sizeof d->type, "%s", model ? "nvidia-" : "");
    for (const char *p = model ? model + 6 : ""; *p && *p != '\n' && n < sizeof d->type - 1; p++)
        if (!isspace((unsigned char)*p))
            d->type[n++] = *p;
    PST_ASSERT(n < sizeof d->type);
    d->type[n] = 0;
}

static void read_driver(pst_inventory *v)
{
    static const char base[] = "/proc/driver/nvidia/gpus";
    DIR *d = opendir(base);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (*e->d_name == '.')
            continue;
        char *path = pst_sprintf("%s/%s/information", base, e->d_name);
        pst_buf b = {0};
        pst_device *device = add_device(v);
        if (pst_fs_read(path, 65536, &b, NULL) == 0 && b.len)
            set_type(device, b.data);
        pst_buf_done(&b);
        free(path);
    }
    if (d)
        closedir(d);
}

/* In a container the device nodes are what was granted. */
static void read_nodes(pst_inventory *v)
{
    DIR *d = opendir("/dev");
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, "nvidia", 6) && isdigit((unsigned char)e->d_name[6]))
            add_device(v);
    if (d)
        closedir(d);
}

void host_inventory_read(pst_inventory *ret)
{
    memset(ret, 0, sizeof *ret);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    ret->cpus = cpus > 0 ? (double)cpus : 1;
    ret->memory_bytes = pages > 0 && page > 0 ? (int64_t)pages * page : 0;
    read_driver(ret);
    if (!ret->n_devices)
        read_nodes(ret);
}
