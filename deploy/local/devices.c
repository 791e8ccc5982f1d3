/* devices.c - `penstock devices`: the GPUs of this computer, one a line, and whether penstock can use each. Where there is none the one line
 * says why, so that a script need not ask `doctor` as well. Talks to no broker. */
#include "common/base/json.h"
#include "common/platform/verb.h"
#include "deploy/local/local.h"
#include "engine/cuda/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_json(const pst_cuda_devices *all, const pst_cuda_device *d)
{
    char id[24] = "cuda", compute[24] = "", room[200];
    if (d) {
        snprintf(id, sizeof id, "cuda:%d", d->number);
        snprintf(compute, sizeof compute, "%d.%d", d->major, d->minor);
    }
    bool free_known = d && d->free_bytes >= 0;
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:o, s:s, s:b, s:s}", "device", id, "name", d ? d->name : "", "compute", compute, "memory_bytes",
        (json_int_t)(d ? d->memory_bytes : 0), "free_bytes", free_known ? json_integer((json_int_t)d->free_bytes) : json_null(),
        "ecc_errors", d && d->ecc_errors >= 0 ? json_integer((json_int_t)d->ecc_errors) : json_null(), "driver", all->driver, "usable",
        (d ? d->state : all->state) == PST_CUDA_USABLE, "why", d ? pst_cuda_device_why(all, d, room, sizeof room) : all->why);
    pst_json_print(stdout, o);
    json_decref(o);
}

static void print_line(const pst_cuda_devices *all, const pst_cuda_device *d)
{
    const double gib = 1024.0 * 1024 * 1024;
    char memory[64] = "", room[200];
    if (d->memory_bytes)
        snprintf(memory, sizeof memory, "%.1f GiB", (double)d->memory_bytes / gib);
    if (d->memory_bytes && d->free_bytes >= 0)
        snprintf(memory, sizeof memory, "%.1f of %.1f GiB free", (double)d->free_bytes / gib, (double)d->memory_bytes / gib);
    const char *why = pst_cuda_device_why(all, d, room, sizeof room);
    printf("cuda:%-3d %-28s compute %d.%d   %-24s driver %s   %s\n", d->number, d->name, d->major, d->minor, memory, all->driver,
           *why ? "not usable" : "usable");
    if (d->ecc_errors > 0)
        printf("         → %lld memory errors that could not be corrected since the driver started; nvidia-smi -q -d ECC,ROW_REMAPPER\n",
               (long long)d->ecc_errors);
    const char *cure = pst_cuda_device_cure(all, d);
    if (*why)
        printf("         → %s%s%s\n", why, *cure ? "; " : "", cure);
}

static const pst_usage devices_usage = {
    "devices",
    "",
    "List the GPUs of this computer, and say of each whether penstock can use it.",
    "A device is named as in `device:` of a pipeline file. What is missing is told apart: the driver, its version, a device, one that is "
    "new\n"
    "enough (compute capability 8.0), the plug-in libpenstock-cuda.so. A GPU computes models of one tree\n"
    "ensemble or of dense layers in this version; all others run on the CPU.",
    "penstock devices\npenstock devices --json",
    NULL,
    0,
    false};

static int devices_run(int argc, char **argv)
{
    pst_verb_run v;
    pst_cuda_devices all;
    int none = 0, status = pst_verb_parse(&v, &devices_usage, argc, argv, &none, 0, 0);
    if (status >= 0)
        return status;
    pst_cuda_devices_find(&all);
    for (int i = 0; i < all.n; i++)
        (v.settings.json ? print_json : print_line)(&all, &all.list[i]);
    if (!all.n && v.settings.json)
        print_json(&all, NULL);
    else if (!all.n)
        printf("no device: %s; %s\n", all.why, all.cure);
    return pst_verb_end(&v, 0);
}

const pst_verb pst_devices_verb = {"devices", "the GPUs of this computer, and which can be used", "this computer", devices_run,
                                   PST_USAGES(&devices_usage)};
