/* plugin.c - finding and opening libpenstock-cuda.so (plugin.h). It is looked for where the program itself lies, and nowhere that a path of the
 * environment names: who decides what is loaded is who installed the program. */
#include "engine/cuda/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Beside the program, and where an installed one lies. In no other folder: who may write there could have the program run code of theirs. */
static const char *find(char *to)
{
    static const char *const places[] = {ENG_CUDA_PLUGIN, "../lib/" ENG_CUDA_PLUGIN};
    char self[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++)
        if (snprintf(to, PATH_BYTES, "%.*s/%s", (int)(slash - self), self, places[i]) < PATH_BYTES && access(to, R_OK) == 0)
            return to;
    return NULL;
}

static const eng_cuda_plugin *read_table(void *library, char *ret_why, size_t cap)
{
    eng_cuda_plugin_fn entry = NULL;
    void *symbol = dlsym(library, ENG_CUDA_PLUGIN_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    const eng_cuda_plugin *p = entry ? entry() : NULL;
    if (p && p->abi == ENG_CUDA_PLUGIN_ABI && !strcmp(p->version, PST_VERSION))
        return p;
    if (!p || p->abi != ENG_CUDA_PLUGIN_ABI)
        snprintf(ret_why, cap, "the plug-in " ENG_CUDA_PLUGIN " belongs to another version of penstock than this one, %s", PST_VERSION);
    else
        snprintf(ret_why, cap, "the plug-in " ENG_CUDA_PLUGIN " belongs to penstock %.40s, this is %s", p->version, PST_VERSION);
    return NULL;
}

const eng_cuda_plugin *eng_cuda_plugin_open(const char *path, char *ret_why, size_t cap)
{
    char found[PATH_BYTES];
    if (!path)
        path = find(found);
    if (!path || access(path, R_OK) < 0) {
        snprintf(ret_why, cap, "the plug-in " ENG_CUDA_PLUGIN " is not beside the program");
        return NULL;
    }
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        const char *e = dlerror();
        snprintf(ret_why, cap, "the plug-in does not open: %.200s", e ? e : path);
        return NULL;
    }
    const eng_cuda_plugin *p = read_table(h, ret_why, cap);
    if (!p)
        dlclose(h);
    return p;
}
