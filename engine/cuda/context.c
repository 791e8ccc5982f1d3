/* context.c - contexts of this process, their budgets and their end; see context.h.
 *
 * The primary context is taken, which the CUDA runtime in the plug-in uses too: a kernel launched there finds the memory and the streams that
 * were made here. Whether a device can be used at all is devices.c's to say, with the words that `penstock devices` has. */
#include "engine/cuda/context.h"

#include "engine/cuda/devices.h"
#include "engine/heap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUDGET_TENTHS = 9 };
enum { LAST_ASKS = 20000, NAP_NS = 100000 }; /* of a stream that is given up: two seconds */

/* What a device may still use and nobody else does. */
typedef struct eng_cuda_left {
    struct eng_cuda_left *next;
    void *stream, *pinned;
    eng_cuda_address at;
    size_t bytes;
} eng_cuda_left;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, account = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t letting_go = PTHREAD_MUTEX_INITIALIZER; /* `left` of all contexts; `account` may be taken inside */
static eng_cuda_context contexts[PST_CUDA_DEVICES_MAX];
static int n_contexts;
static const eng_cuda_driver *pretended_driver; /* of tests */
static const eng_cuda_plugin *pretended_plugin;

void eng_cuda_pretend(const eng_cuda_driver *driver, const eng_cuda_plugin *plugin)
{
    pthread_mutex_lock(&lock);
    pretended_driver = driver;
    pretended_plugin = plugin;
    n_contexts = 0;
    memset(contexts, 0, sizeof contexts);
    pthread_mutex_unlock(&lock);
}

/* ---- what the driver says ---- */

/* The first who sees it writes why; the text is there before anybody else sees `lost`. */
static void lose(eng_cuda_context *on, const char *what, const char *text, int error)
{
    pthread_mutex_lock(&account);
    if (!__atomic_load_n(&on->lost, __ATOMIC_RELAXED)) {
        snprintf(on->why, sizeof on->why, "%.40s failed: %.90s (%d)", what, text, error);
        __atomic_store_n(&on->lost, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&account);
}

static int is_lost(const eng_cuda_context *on, pst_err *err)
{
    return pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "cuda", 0,
                       "the device %s is lost to this process: %s; nvidia-smi -q and the kernel's log (Xid) tell of the device, and a "
                       "process that is started anew may use it again",
                       on->name, on->why);
}

bool eng_cuda_is_lost(const eng_cuda_context *on)
{
    return __atomic_load_n(&on->lost, __ATOMIC_ACQUIRE);
}

int eng_cuda_said(eng_cuda_context *on, int error, const char *what, pst_err *err)
{
    const char *text = NULL;
    if (error == 0)
        return 0;
    if (error == ENG_CUDA_OUT_OF_MEMORY)
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "cuda", error,
                           "%s: %s failed: no memory is left; other processes may have it (nvidia-smi shows them)", on->name, what);
    if (on->driver->error_text(error, &text) != 0 || !text)
        text = "an error without a name";
    lose(on, what, text, error);
    return is_lost(on, err);
}

int eng_cuda_enter(eng_cuda_context *on, pst_err *err)
{
    if (eng_cuda_is_lost(on))
        return is_lost(on, err);
    return eng_cuda_said(on, on->driver->enter(on->context), "entering its context", err);
}

/* ---- opening ---- */

static int cannot(pst_err *err, const char *why, const char *cure)
{
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0, "%s%s%s", why, *cure ? "; " : "", cure);
}

/* -1: the first that is not lost. */
static eng_cuda_context *known(int number)
{
    for (int i = 0; i < n_contexts; i++)
        if (number < 0 ? !eng_cuda_is_lost(&contexts[i]) : contexts[i].number == number)
            return &contexts[i];
    return NULL;
}

/* Any that can be used and was not tried before, or the one of that number. */
static bool is_meant(const pst_cuda_device *d, int number)
{
    return number >= 0 ? d->number == number : d->state == PST_CUDA_USABLE && !known(d->number);
}

static int judge(const pst_cuda_devices *all, int number, const pst_cuda_device **ret, pst_err *err)
{
    char room[200];
    for (int i = 0; i < all->n; i++) {
        const pst_cuda_device *d = &all->list[i];
        if (!is_meant(d, number))
            continue;
        *ret = d;
        return d->state == PST_CUDA_USABLE ? 0 : cannot(err, pst_cuda_device_why(all, d, room, sizeof room), pst_cuda_device_cure(all, d));
    }
    if (number < 0 && n_contexts)
        return is_lost(&contexts[0], err);
    if (all->state != PST_CUDA_USABLE)
        return cannot(err, all->why, all->cure);
    snprintf(room, sizeof room, "there is no device cuda:%d, only %d of them", number, all->n);
    return cannot(err, room, "use one that penstock devices shows");
}

/* With the driver and the plug-in that *c is to have. */
static int usable(eng_cuda_context *c, int number, pst_err *err)
{
    char driver_why[256] = "", plugin_why[320] = "";
    pst_cuda_devices all;
    const pst_cuda_device *d = NULL;
    c->driver = pretended_driver ? pretended_driver : eng_cuda_driver_open(driver_why, sizeof driver_why);
    c->plugin = pretended_driver ? pretended_plugin : c->driver ? eng_cuda_plugin_open(NULL, plugin_why, sizeof plugin_why) : NULL;
    eng_cuda_devices(c->driver, driver_why, c->plugin, plugin_why, &all);
    int rc = judge(&all, number, &d, err);
    if (rc == 0) {
        c->number = d->number;
        snprintf(c->name, sizeof c->name, "cuda:%d (%s)", d->number, d->name);
    }
    return rc;
}

/* Nothing of it is kept when it fails: whoever asks next tries again. */
static int make(eng_cuda_context *c, pst_err *err)
{
    int device;
    size_t free_bytes = 0, total = 0;
    int rc = eng_cuda_said(c, c->driver->device(&device, c->number), "finding it", err);
    if (rc == 0)
        rc = eng_cuda_said(c, c->driver->context(&c->context, device), "making a context on it", err);
    if (rc < 0)
        return rc;
    rc = eng_cuda_enter(c, err);
    if (rc == 0)
        rc = eng_cuda_said(c, c->driver->memory_free(&free_bytes, &total), "asking for its free memory", err);
    if (rc < 0)
        c->driver->context_end(device);
    c->budget = free_bytes / 10 * BUDGET_TENTHS;
    return rc;
}

int eng_cuda_context_open(int number, eng_cuda_context **ret, pst_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&lock);
    eng_cuda_context *c = known(number);
    if (!c && n_contexts == PST_CUDA_DEVICES_MAX) {
        rc = is_lost(&contexts[0], err);
    } else if (!c) {
        c = &contexts[n_contexts];
        *c = (eng_cuda_context){0};
        rc = usable(c, number, err);
        if (rc == 0)
            rc = make(c, err);
        n_contexts += rc == 0;
    }
    pthread_mutex_unlock(&lock);
    if (rc == 0)
        *ret = c;
    return rc;
}

/* ---- memory ---- */

static int take(eng_cuda_context *on, size_t bytes, pst_err *err)
{
    pthread_mutex_lock(&account);
    size_t left = on->budget - on->used;
    if (bytes <= left)
        on->used += bytes;
    pthread_mutex_unlock(&account);
    if (bytes <= left)
        return 0;
    return pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "cuda", 0,
                       "%s: %zu more bytes are needed, and of %zu that models may use %zu are left; score fewer models there", on->name,
                       bytes, on->budget, left);
}

static void give(eng_cuda_context *on, size_t bytes)
{
    pthread_mutex_lock(&account);
    PST_ASSERT(on->used >= bytes);
    on->used -= bytes;
    pthread_mutex_unlock(&account);
}

/* ---- giving back ---- */

/* One that reports an error has stopped. */
static bool is_idle(eng_cuda_context *on, void *stream)
{
    int said = on->driver->stream_query(stream);
    if (said == ENG_CUDA_NOT_READY)
        return false;
    eng_cuda_said(on, said, "ending its work", &(pst_err){0});
    return true;
}

static bool becomes_idle(eng_cuda_context *on, void *stream)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    for (int asked = 0; asked < LAST_ASKS; asked++) {
        if (is_idle(on, stream))
            return true;
        nanosleep(&nap, NULL);
    }
    return false;
}

static void let_go(eng_cuda_context *on, const eng_cuda_left *what)
{
    if (what->stream)
        on->driver->stream_end(what->stream);
    if (what->pinned)
        on->driver->unpin(what->pinned);
    if (what->at) {
        on->driver->release(what->at);
        give(on, what->bytes);
    }
}

/* True: nothing is left behind any more. The thread has entered, and has letting_go. */
static bool sweep(eng_cuda_context *on)
{
    for (const eng_cuda_left *l = on->left; l; l = l->next)
        if (l->stream && !is_idle(on, l->stream))
            return false;
    for (eng_cuda_left *l = on->left, *next; l; l = next) {
        next = l->next;
        let_go(on, l);
        free(l);
    }
    on->left = NULL;
    return true;
}

/* Where no memory is left to remember it by, it stays the driver's. */
static void leave(eng_cuda_context *on, const eng_cuda_left *what)
{
    eng_cuda_left *l = eng_heap_raw(sizeof *l);
    if (!l)
        return;
    *l = *what;
    l->next = on->left;
    on->left = l;
}

static void give_back(eng_cuda_context *on, const eng_cuda_left *what)
{
    pthread_mutex_lock(&letting_go);
    on->driver->enter(on->context);
    if (sweep(on) && (!what->stream || becomes_idle(on, what->stream)))
        let_go(on, what);
    else
        leave(on, what);
    pthread_mutex_unlock(&letting_go);
}

void eng_cuda_stream_end(eng_cuda_context *on, void *stream)
{
    if (stream)
        give_back(on, &(eng_cuda_left){.stream = stream});
}

void eng_cuda_free(eng_cuda_context *on, eng_cuda_address at, size_t bytes)
{
    if (at)
        give_back(on, &(eng_cuda_left){.at = at, .bytes = bytes});
}

void eng_cuda_unpin(eng_cuda_context *on, void *at)
{
    if (at)
        give_back(on, &(eng_cuda_left){.pinned = at});
}

/* ---- taking ---- */

static void sweep_first(eng_cuda_context *on)
{
    pthread_mutex_lock(&letting_go);
    if (on->left)
        sweep(on);
    pthread_mutex_unlock(&letting_go);
}

int eng_cuda_alloc(eng_cuda_context *on, size_t bytes, eng_cuda_address *ret, pst_err *err)
{
    sweep_first(on);
    int rc = take(on, bytes, err);
    if (rc == 0 && (rc = eng_cuda_said(on, on->driver->alloc(ret, bytes), "taking memory of it", err)) < 0)
        give(on, bytes);
    return rc;
}

int eng_cuda_pin(eng_cuda_context *on, size_t bytes, void **ret, pst_err *err)
{
    return eng_cuda_said(on, on->driver->pin(ret, bytes, 0), "taking host memory for it", err);
}
