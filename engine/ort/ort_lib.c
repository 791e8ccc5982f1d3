/* ort_lib.c - finding and opening ONNX Runtime (ort.h says where). Opened once and never closed, also when its set-up fails: it may have started
 * threads. Only the entries of its table that ort_api.h lists are copied; a library too old to have them is none. */
#include "engine/ort/ort_lib.h"

#include "common/base/log.h"
#include "engine/ort/ort_find.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LINES_MAX 50 /* of the library's own warnings, in a process's life: they may come with every record */
#define CURE                                                                                                                               \
    "install it (Python package onnxruntime, Maven com.microsoft.onnxruntime:onnxruntime, or your distribution's libonnxruntime) and set " \
    "PENSTOCK_ONNXRUNTIME to its libonnxruntime.so"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ort_lib the_lib;
static bool ready;

/* Errors are returned to the caller as well, who decides what they mean: they are no news here. */
static void on_log(void *arg, int severity, const char *category, const char *id, const char *where, const char *text)
{
    static int lines;
    if (severity != 2 || __atomic_fetch_add(&lines, 1, __ATOMIC_RELAXED) >= LOG_LINES_MAX) {
        pst_log(PST_LOG_DEBUG, "onnxruntime", "event=log severity=%d \"%.300s\"", severity, text ? text : "");
        return;
    }
    pst_log(PST_LOG_WARN, "onnxruntime", "event=warning \"%.300s\"", text ? text : "");
}

static int none(pst_err *err, const char *why)
{
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "onnx", 0, "ONNX Runtime: %s; " CURE, why);
}

static int is_library(const struct dirent *d)
{
    return !strncmp(d->d_name, "libonnxruntime.so", 17);
}

/* A folder stands for the library in it; the plain name comes first, then the highest version. */
static void *open_in(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct dirent **list = NULL;
    void *h = NULL;
    int n = scandir(path, &list, is_library, versionsort);
    for (int i = n - 1; i >= 0; i--) {
        char file[4096];
        if (!h && snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name) < (int)sizeof file)
            h = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        free(list[i]);
    }
    free(list);
    return h;
}

static void *open_any(const char *want)
{
    if (want && *want)
        return open_in(want);
    void *h = dlopen("libonnxruntime.so.1", RTLD_NOW | RTLD_LOCAL);
    return h ? h : dlopen("libonnxruntime.so", RTLD_NOW | RTLD_LOCAL);
}

int ort_check(const ort_lib *lib, ort_status *s, int code, const char *what, pst_err *err)
{
    if (!s)
        return PST_OK;
    const char *text = lib->api.error_text(s);
    size_t n = strcspn(text, "\n"); /* a stack trace may follow */
    int rc =
        pst_err_set(err, code, PST_CLASS_DATA, "onnx", 0, "ONNX Runtime %s: %s: %.*s", lib->version, what, n > 250 ? 250 : (int)n, text);
    lib->api.status_free(s);
    return rc;
}

/* One arena for all sessions: half the machine's memory, 8 GiB at most. Beyond it an evaluation fails; the process lives on. */
static size_t arena_bytes(void)
{
    size_t pages = (size_t)sysconf(_SC_PHYS_PAGES), max = (size_t)8 << 30;
    size_t half = pages * (size_t)sysconf(_SC_PAGESIZE) / 2;
    return half < max ? half : max;
}

static int set_up(ort_lib *lib, pst_err *err)
{
    const ort_api *a = &lib->api;
    const char *const keys[] = {"max_mem", "arena_extend_strategy"};
    const size_t values[] = {arena_bytes(), 1}; /* 1: grows by what is asked for, not by doubling */
    ort_arena *arena = NULL;
    ort_memory *pooled = NULL;
    int rc = ort_check(lib, a->env_new(on_log, NULL, 2, "penstock", &lib->env), PST_EINVAL, "its environment", err);
    if (rc == 0)
        rc = ort_check(lib, a->telemetry_off(lib->env), PST_EINVAL, "telemetry off", err);
    if (rc == 0)
        rc = ort_check(lib, a->memory_cpu(0, 0, &lib->memory), PST_EINVAL, "memory", err);
    if (rc == 0)
        rc = ort_check(lib, a->allocator_get(&lib->allocator), PST_EINVAL, "allocator", err);
    if (rc == 0)
        rc = ort_check(lib, a->memory_cpu(1, 0, &pooled), PST_EINVAL, "memory", err);
    if (rc == 0)
        rc = ort_check(lib, a->arena_new(keys, values, 2, &arena), PST_EINVAL, "arena", err);
    if (rc == 0)
        rc = ort_check(lib, a->env_allocator(lib->env, pooled, arena), PST_EINVAL, "arena", err);
    if (arena)
        a->arena_free(arena);
    if (pooled)
        a->memory_free(pooled);
    if (rc < 0 && lib->memory)
        a->memory_free(lib->memory);
    if (rc < 0 && lib->env)
        a->env_free(lib->env);
    return rc;
}

static int open_lib(ort_lib *lib, const char *want, pst_err *err)
{
    char why[300];
    void *h = open_any(want);
    if (!h) {
        const char *e = dlerror();
        snprintf(why, sizeof why, "%s%.150s", want && *want ? "PENSTOCK_ONNXRUNTIME: " : "not found: ", e ? e : want);
        return none(err, want && *want ? why : "not found");
    }
    const ort_base *(*get)(void) = NULL;
    void *sym = dlsym(h, "OrtGetApiBase");
    memcpy(&get, &sym, sizeof get);
    const ort_base *base = get ? get() : NULL;
    void *const *table = base ? base->table(ORT_API_WANTED) : NULL;
    if (!table) {
        snprintf(why, sizeof why, "%.150s %s", want && *want ? want : "the library found",
                 base ? "is older than 1.11" : "is another library");
        dlclose(h);
        return none(err, why);
    }
    Dl_info where = {0};
    snprintf(lib->version, sizeof lib->version, "%s", base->version());
    snprintf(lib->path, sizeof lib->path, "%s", dladdr(sym, &where) && where.dli_fname ? where.dli_fname : want);
#define X(index, name, result, parameters) memcpy(&lib->api.name, &table[index], sizeof(void *));
    ORT_ENTRIES(X)
#undef X
    return set_up(lib, err); /* the library stays open whatever comes: it may have started threads */
}

int ort_lib_get(const ort_lib **ret, pst_err *err)
{
    const char *want = getenv("PENSTOCK_ONNXRUNTIME");
    if (want && !strcmp(want, "off"))
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "onnx", 0, "ONNX Runtime is switched off (PENSTOCK_ONNXRUNTIME=off)");
    int rc = 0;
    pthread_mutex_lock(&lock);
    if (!ready) {
        memset(&the_lib, 0, sizeof the_lib);
        rc = open_lib(&the_lib, want, err);
        ready = rc == 0;
    }
    pthread_mutex_unlock(&lock);
    if (rc == 0)
        *ret = &the_lib;
    return rc;
}

int pst_ort_find(char *ret_found, size_t cap, pst_err *err)
{
    const ort_lib *lib = NULL;
    int rc = ort_lib_get(&lib, err);
    if (rc == 0 && ret_found)
        snprintf(ret_found, cap, "%s from %s", lib->version, lib->path);
    return rc;
}
