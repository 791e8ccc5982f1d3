/* driver.c - opening libcuda.so.1 and NVML; see driver.h. The libraries start threads and hold the driver's files: they stay open. */
#include "engine/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct entry {
    const char *symbol;
    size_t at;
} entry;

#define X(member, symbol, parameters) {symbol, offsetof(eng_cuda_driver, member)},
static const entry of_cuda[] = {ENG_CUDA_ENTRIES(X)}, of_nvml[] = {ENG_NVML_ENTRIES(X)}, of_events[] = {ENG_NVML_EVENT_ENTRIES(X)};
#undef X

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static eng_cuda_driver the_driver;
static bool ready;

/* All of them, or none is set. */
static bool take(void *library, const entry *entries, size_t n, eng_cuda_driver *to)
{
    for (size_t i = 0; i < n; i++)
        if (!dlsym(library, entries[i].symbol))
            return false;
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, entries[i].symbol);
        memcpy((char *)to + entries[i].at, &symbol, sizeof symbol);
    }
    return true;
}

static bool open_cuda(eng_cuda_driver *to, char *ret_why, size_t cap)
{
    void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        const char *e = dlerror();
        snprintf(ret_why, cap, "%s", e ? e : "libcuda.so.1 does not open");
        return false;
    }
    if (take(h, of_cuda, sizeof of_cuda / sizeof *of_cuda, to))
        return true;
    snprintf(ret_why, cap, "libcuda.so.1 lacks functions of CUDA 12");
    dlclose(h);
    return false;
}

static void open_nvml(eng_cuda_driver *to)
{
    void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (h && !take(h, of_nvml, sizeof of_nvml / sizeof *of_nvml, to))
        dlclose(h);
    else if (h)
        take(h, of_events, sizeof of_events / sizeof *of_events, to); /* older drivers have no _v2 of the wait */
}

const eng_cuda_driver *eng_cuda_driver_open(char *ret_why, size_t cap)
{
    pthread_mutex_lock(&lock);
    if (!ready && open_cuda(&the_driver, ret_why, cap)) {
        open_nvml(&the_driver);
        ready = true;
    }
    const eng_cuda_driver *found = ready ? &the_driver : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}
