/* inventory.c - see inventory.h. */
#include "lcm/local/inventory.h"

#include "common/base/fs.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "Model:  Tesla V100-SXM2-16GB" → "nvidia-TeslaV100-SXM2-16GB", FfDL's way of naming gpu_type. */
static void add_type(pst_inventory *v, const char *information)
{
    char type[64] = "nvidia-";
    size_t n = strlen(type);
    const char *model = strstr(information, "Model:");
    for (const char *p = model ? model + 6 : ""; *p && *p != '\n' && n < sizeof type - 1; p++)
        if (!isspace((unsigned char)*p))
            type[n++] = *p;
    type[n] = 0;
    for (int i = 0; i < v->n_gpu_types; i++)
        if (!strcmp(v->gpu_types[i], type))
            return;
    if (model && v->n_gpu_types < 16)
        snprintf(v->gpu_types[v->n_gpu_types++], sizeof v->gpu_types[0], "%s", type);
}

static void read_gpus(pst_inventory *v)
{
    static const char base[] = "/proc/driver/nvidia/gpus";
    DIR *d = opendir(base);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (*e->d_name == '.')
            continue;
        char *path = pst_sprintf("%s/%s/information", base, e->d_name);
        pst_buf b = {0};
        v->gpus++;
        if (pst_fs_read(path, 65536, &b, NULL) == 0)
            add_type(v, b.data);
        pst_buf_done(&b);
        free(path);
    }
    if (d)
        closedir(d);
    if (v->gpus)
        return;
    d = opendir("/dev"); /* in a container the device nodes are what was granted */
    for (struct dirent *e; d && (e = readdir(d));)
        v->gpus += !strncmp(e->d_name, "nvidia", 6) && isdigit((unsigned char)e->d_name[6]);
    if (d)
        closedir(d);
}

void host_inventory_read(pst_inventory *ret)
{
    memset(ret, 0, sizeof *ret);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    ret->cpus = cpus > 0 ? (double)cpus : 1;
    ret->memory_bytes = pages > 0 && page > 0 ? (int64_t)pages * page : 0;
    read_gpus(ret);
    if (ret->gpus > PST_LCM_GPUS_MAX)
        ret->gpus = PST_LCM_GPUS_MAX;
}
