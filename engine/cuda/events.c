/* events.c - devices' own events, by NVML; see events.h. The thread ends when the driver tells nothing any more, and else with the process: nobody could
 * wait for it, since a driver that hangs would not let it go. What nobody takes is dropped, the newest first: the first error of a row is the one
 * that tells what has happened. */
#include "engine/cuda/events.h"

#include "common/base/thread.h"
#include "engine/cuda/devices.h"
#include "engine/cuda/driver.h"
#include "engine/heap.h"

#include <pthread.h>
#include <stdlib.h>

enum { KEPT = 64, WAIT_MS = 1000 };

struct eng_cuda_watch {
    const eng_cuda_driver *driver;
    void *set;
    int n;
    struct {
        void *handle;
        int number;
    } devices[PST_CUDA_DEVICES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pst_cuda_event kept[KEPT];
static size_t n_kept, first;
static bool begun;

/* ---- words ---- */

const char *pst_cuda_event_word(pst_cuda_event_kind kind)
{
    static const char *const words[PST_CUDA_EVENT_KINDS] = {"xid", "ecc_corrected", "ecc_uncorrected"};
    return words[kind];
}

/* NVIDIA's list of Xid errors, as far as somebody can do something about them. */
const char *pst_cuda_event_says(const pst_cuda_event *e)
{
    static const struct {
        uint64_t code;
        const char *says;
    } xids[] = {{13, "a program's fault in a kernel"},
                {31, "a program reached for memory that it does not have"},
                {43, "a program's work was stopped"},
                {45, "a program was ended, its work with it"},
                {48, "a memory error that could not be corrected"},
                {63, "a row of memory is to be replaced at the next reset"},
                {64, "a row of memory could not be replaced"},
                {74, "an error of NVLink"},
                {79, "the device has fallen off the bus"},
                {92, "many memory errors that were corrected"},
                {94, "a memory error that hit one program only"},
                {95, "a memory error that hit all programs: the device is to be reset"},
                {119, "the device's own processor does not answer"}};
    if (e->kind == PST_CUDA_ECC_CORRECTED)
        return "a memory error that was corrected";
    if (e->kind == PST_CUDA_ECC_UNCORRECTED)
        return "a memory error that could not be corrected";
    for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
        if (xids[i].code == e->code)
            return xids[i].says;
    return "see NVIDIA's list of Xid errors";
}

/* ---- the driver ---- */

/* Where the driver tells nothing of it, it is left out. */
static void add_device(eng_cuda_watch *w, int number)
{
    const eng_cuda_driver *d = w->driver;
    char bus[32] = "";
    int device;
    void *handle = NULL;
    unsigned long long can = 0;
    if (d->device(&device, number) != 0 || d->bus_id(bus, sizeof bus - 1, device) != 0 || d->nvml_device(bus, &handle) != 0 ||
        d->nvml_event_types(handle, &can) != 0)
        return;
    can &= ENG_NVML_ECC_SINGLE | ENG_NVML_ECC_DOUBLE | ENG_NVML_XID;
    if (!can || d->nvml_event_register(handle, can, w->set) != 0)
        return;
    w->devices[w->n].handle = handle;
    w->devices[w->n++].number = number;
}

static bool add_devices(eng_cuda_watch *w)
{
    int n = 0;
    if (w->driver->init(0) != 0 || w->driver->count(&n) != 0)
        return false;
    for (int i = 0; i < n && w->n < PST_CUDA_DEVICES_MAX; i++)
        add_device(w, i);
    return w->n > 0;
}

eng_cuda_watch *eng_cuda_watch_open(const eng_cuda_driver *driver)
{
    if (!driver->nvml_event_set || driver->nvml_init() != 0)
        return NULL;
    eng_cuda_watch *w = eng_heap_raw(sizeof *w);
    void *set = NULL;
    bool made = w && driver->nvml_event_set(&set) == 0;
    if (made) {
        *w = (eng_cuda_watch){.driver = driver, .set = set};
        if (add_devices(w))
            return w;
        driver->nvml_event_free(set);
    }
    driver->nvml_done();
    free(w);
    return NULL;
}

void eng_cuda_watch_close(eng_cuda_watch *w)
{
    w->driver->nvml_event_free(w->set);
    w->driver->nvml_done();
    free(w);
}

int eng_cuda_watch_next(eng_cuda_watch *w, unsigned ms, pst_cuda_event *ret)
{
    eng_nvml_event e = {0};
    int said = w->driver->nvml_event_wait(w->set, &e, ms);
    if (said != 0)
        return said == ENG_NVML_TIMEOUT ? 0 : -1;
    *ret = (pst_cuda_event){.number = -1, .kind = PST_CUDA_XID, .code = e.data};
    if (e.type != ENG_NVML_XID) {
        ret->kind = e.type == ENG_NVML_ECC_SINGLE ? PST_CUDA_ECC_CORRECTED : PST_CUDA_ECC_UNCORRECTED;
        ret->code = 0;
    }
    for (int i = 0; i < w->n; i++)
        if (w->devices[i].handle == e.device)
            ret->number = w->devices[i].number;
    return 1;
}

/* ---- the process's own ---- */

static void keep(const pst_cuda_event *e)
{
    pthread_mutex_lock(&lock);
    if (n_kept < KEPT)
        kept[(first + n_kept++) % KEPT] = *e;
    pthread_mutex_unlock(&lock);
}

static void *watch(void *arg)
{
    eng_cuda_watch *w = arg;
    pst_cuda_event e;
    for (int rc; (rc = eng_cuda_watch_next(w, WAIT_MS, &e)) >= 0;)
        if (rc > 0)
            keep(&e);
    eng_cuda_watch_close(w);
    return NULL;
}

void pst_cuda_events_begin(void)
{
    char why[256];
    pthread_mutex_lock(&lock);
    bool first_time = !begun;
    begun = true;
    pthread_mutex_unlock(&lock);
    const eng_cuda_driver *driver = first_time ? eng_cuda_driver_open(why, sizeof why) : NULL;
    eng_cuda_watch *w = driver ? eng_cuda_watch_open(driver) : NULL;
    if (w && pst_thread_detached("device-events", watch, w) != 0)
        eng_cuda_watch_close(w);
}

bool pst_cuda_events_next(pst_cuda_event *ret)
{
    pthread_mutex_lock(&lock);
    bool any = n_kept > 0;
    if (any) {
        *ret = kept[first];
        first = (first + 1) % KEPT;
        n_kept--;
    }
    pthread_mutex_unlock(&lock);
    return any;
}
