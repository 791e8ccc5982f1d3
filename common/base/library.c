/* library.c - shared libraries opened when they are first needed. Everything is bound at once (RTLD_NOW): a library that lacks a function is refused here, with a sentence, and
 * not in the middle of a job; it is not seen by others (RTLD_LOCAL). The pointers are written before the handle, which says that they are. */
#include "common/base/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pst_library *all; /* written before main() alone */

static int refuse(const pst_library *l, const char *why, pst_err *err)
{
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "library", 0,
                       "%s needs %s, which cannot be used (%.200s); install it: Debian's package %s", l->purpose, l->file, why, l->package);
}

static int open_locked(pst_library *l, pst_err *err)
{
    void *handle = dlopen(l->file, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return refuse(l, dlerror(), err);
    for (size_t i = 0; i < l->n; i++) {
        void *found = dlsym(handle, l->calls[i].name);
        if (!found) {
            int rc = refuse(l, dlerror(), err);
            dlclose(handle);
            return rc;
        }
        memcpy(l->calls[i].at, &found, sizeof found); /* ISO C has no cast from an object's pointer to a function's */
    }
    __atomic_store_n(&l->handle, handle, __ATOMIC_RELEASE);
    return 0;
}

int pst_library_open(pst_library *l, pst_err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (__atomic_load_n(&l->handle, __ATOMIC_ACQUIRE))
        return 0;
    pthread_mutex_lock(&lock);
    int rc = l->handle ? 0 : open_locked(l, err);
    pthread_mutex_unlock(&lock);
    return rc;
}

void pst_library_announce(pst_library *l)
{
    l->next = all;
    all = l;
}

void pst_library_open_all(void)
{
    for (pst_library *l = all; l; l = l->next)
        pst_library_open(l, NULL);
}
