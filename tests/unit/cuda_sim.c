/* cuda_sim.c - see cuda_sim.h. Device k of CUDA is handle 100 + k, so that a number in the place of a handle is found out. */
#include "tests/unit/cuda_sim.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HANDLE = 100, FAILED = 999 };

cuda_sim cuda_sim_state;

static bool fails(void)
{
    int call = ++cuda_sim_state.calls, at = cuda_sim_state.fail_at;
    return at && (call == at || (cuda_sim_state.fail_on && call > at));
}

static const cuda_sim_device *of_handle(int handle)
{
    if (handle < HANDLE || handle >= HANDLE + cuda_sim_state.n)
        abort(); /* not what cuDeviceGet gave */
    return &cuda_sim_state.device[handle - HANDLE];
}

static int sim_version(int *ret)
{
    if (fails())
        return FAILED;
    *ret = cuda_sim_state.cuda;
    return 0;
}

static int sim_init(unsigned flags)
{
    if (flags)
        abort(); /* must be 0 */
    return fails() ? FAILED : cuda_sim_state.init_error;
}

static int sim_count(int *ret)
{
    if (fails())
        return FAILED;
    *ret = cuda_sim_state.n;
    return 0;
}

static int sim_device(int *ret, int ordinal)
{
    if (fails() || ordinal < 0 || ordinal >= cuda_sim_state.n)
        return FAILED;
    *ret = HANDLE + ordinal;
    return 0;
}

static int sim_name(char *ret, int cap, int device)
{
    if (fails())
        return FAILED;
    snprintf(ret, (size_t)cap, "%s", of_handle(device)->name);
    return 0;
}

static int sim_memory(size_t *ret, int device)
{
    if (fails())
        return FAILED;
    *ret = of_handle(device)->memory;
    return 0;
}

static int sim_attribute(int *ret, int attribute, int device)
{
    if (fails())
        return FAILED;
    const cuda_sim_device *d = of_handle(device);
    *ret = attribute == ENG_CUDA_MAJOR ? d->major : attribute == ENG_CUDA_MINOR ? d->minor : -1;
    return 0;
}

static int sim_bus_id(char *ret, int cap, int device)
{
    if (fails())
        return FAILED;
    of_handle(device);
    snprintf(ret, (size_t)cap, "0000:%02x:00.0", device);
    return 0;
}

static int sim_error_text(int error, const char **ret)
{
    if (fails())
        return FAILED;
    *ret = error == 803 ? "system has unsupported display driver / cuda driver combination" : "unknown error";
    return 0;
}

/* ---- contexts and memory ---- */

enum { PIECES_MAX = 64, OPS_MAX = 64, PATIENCE = 3 };

typedef struct piece {
    unsigned char *at;
    size_t bytes;
    bool pinned;
} piece;

static piece pieces[PIECES_MAX];
static char contexts[4];             /* one a device */
static _Thread_local int entered_at; /* 1 + that of the device; 0 = none */

/* Of what concerns one device: the one that this thread has entered. */
static bool fails_here(void)
{
    bool gone = cuda_sim_state.gone >> (entered_at - 1) & 1;
    return fails() || gone;
}

static int sim_context(void **ret, int device)
{
    of_handle(device);
    if (fails())
        return FAILED;
    *ret = &contexts[device - HANDLE];
    cuda_sim_state.contexts++;
    return 0;
}

static int sim_context_end(int device)
{
    of_handle(device);
    cuda_sim_state.contexts--;
    return fails() ? FAILED : 0;
}

static int sim_enter(void *context)
{
    char *c = context;
    if (c < contexts || c >= contexts + cuda_sim_state.n)
        abort();
    if (fails())
        return FAILED;
    entered_at = (int)(c - contexts) + 1;
    return 0;
}

/* What nothing can be done without. */
static void must_be_entered(void)
{
    if (!entered_at)
        abort();
}

static int sim_memory_free(size_t *ret_free, size_t *ret_total)
{
    must_be_entered();
    if (fails_here())
        return FAILED;
    *ret_free = cuda_sim_state.device[entered_at - 1].free;
    *ret_total = cuda_sim_state.device[entered_at - 1].memory;
    return 0;
}

static int take(size_t bytes, bool pinned, void **ret)
{
    must_be_entered();
    if (!bytes)
        abort(); /* the driver's word for it: an invalid value */
    if (fails_here())
        return FAILED;
    if (cuda_sim_state.none_left)
        return ENG_CUDA_OUT_OF_MEMORY;
    for (int i = 0; i < PIECES_MAX; i++)
        if (!pieces[i].at) {
            pieces[i] = (piece){malloc(bytes), bytes, pinned};
            memset(pieces[i].at, 0xdb, bytes);
            *ret = pieces[i].at;
            ++*(pinned ? &cuda_sim_state.pinned : &cuda_sim_state.pieces);
            return 0;
        }
    abort();
}

static bool lies_in(const void *at, size_t bytes, bool pinned)
{
    const unsigned char *from = at;
    for (int i = 0; i < PIECES_MAX; i++)
        if (pieces[i].at && pieces[i].pinned == pinned && from >= pieces[i].at && from + bytes <= pieces[i].at + pieces[i].bytes)
            return true;
    return false;
}

static bool fills(eng_cuda_address at, size_t bytes)
{
    for (int i = 0; i < PIECES_MAX; i++)
        if (pieces[i].at == (unsigned char *)(uintptr_t)at && pieces[i].bytes == bytes)
            return true;
    return false;
}

static bool in_use(const unsigned char *at, size_t bytes);
static bool any_work(void);

/* What cannot be given back is gone with the device. */
static int give(void *at, bool pinned)
{
    for (int i = 0; i < PIECES_MAX; i++)
        if (pieces[i].at == at && pieces[i].pinned == pinned) {
            if (in_use(at, pieces[i].bytes))
                abort(); /* a stream still reads or writes it */
            if (cuda_sim_state.hung && any_work())
                abort(); /* the driver waits for all of the context's work */
            free(at);
            pieces[i] = (piece){0};
            --*(pinned ? &cuda_sim_state.pinned : &cuda_sim_state.pieces);
            return fails() ? FAILED : 0;
        }
    abort();
}

static int sim_alloc(eng_cuda_address *ret, size_t bytes)
{
    void *at;
    int rc = take(bytes, false, &at);
    if (rc == 0)
        *ret = (eng_cuda_address)(uintptr_t)at;
    return rc;
}

static int sim_release(eng_cuda_address at)
{
    return give((void *)(uintptr_t)at, false);
}

static int sim_pin(void **ret, size_t bytes, unsigned flags)
{
    if (flags)
        abort();
    return take(bytes, true, ret);
}

static int sim_unpin(void *at)
{
    return give(at, true);
}

/* ---- streams ---- */

typedef struct op {
    void *to;
    const void *from; /* NULL: a launch */
    size_t bytes;
    bool is_net;
    union {
        eng_cuda_forest forest;
        eng_cuda_net net;
    } head;
    const void *image, *x;
    void *between;
    int64_t rows, cols;
} op;

typedef struct queue_of {
    struct queue_of *next;
    int n, asked, device;
    op ops[OPS_MAX];
} queue_of;

static queue_of *streams;

static bool overlaps(const unsigned char *a, size_t n, const void *b, size_t m)
{
    const unsigned char *other = b;
    return m && a < other + m && other < a + n;
}

static bool in_use(const unsigned char *at, size_t bytes)
{
    for (const queue_of *s = streams; s; s = s->next)
        for (int i = 0; i < s->n; i++) {
            const op *o = &s->ops[i];
            if (overlaps(at, bytes, o->to, o->from ? o->bytes : 1) || overlaps(at, bytes, o->from, o->bytes) ||
                (!o->from && (overlaps(at, bytes, o->image, 1) || overlaps(at, bytes, o->x, 1))))
                return true;
        }
    return false;
}

static bool any_work(void)
{
    for (const queue_of *s = streams; s; s = s->next)
        if (s->n)
            return true;
    return false;
}

static int compute(const op *o)
{
    return o->is_net ? cuda_sim_state.net(&o->head.net, o->image, o->x, o->rows, o->between, o->to, NULL)
                     : cuda_sim_state.kernel(&o->head.forest, o->image, o->x, o->rows, o->cols, o->to, NULL);
}

/* 0, or what a launch said. */
static int drain(queue_of *s)
{
    int rc = 0;
    for (int i = 0; i < s->n; i++) {
        const op *o = &s->ops[i];
        if (o->from)
            memcpy(o->to, o->from, o->bytes);
        else if (rc == 0)
            rc = compute(o);
    }
    s->n = s->asked = 0;
    return rc;
}

static bool others_work(const void *stream)
{
    for (const queue_of *s = streams; s; s = s->next)
        if (s != stream && s->device == entered_at && s->n)
            return true;
    return false;
}

static queue_of *of_stream(void *stream)
{
    must_be_entered();
    for (queue_of *s = streams; s; s = s->next)
        if (s == stream && s->device == entered_at)
            return s;
    abort(); /* not what cuStreamCreate gave, of another device, or gone */
}

static int queue(void *stream, const op *o)
{
    queue_of *s = of_stream(stream);
    if (s->n == OPS_MAX)
        abort();
    s->ops[s->n++] = *o;
    s->asked = 0;
    return cuda_sim_state.at_once ? drain(s) : 0;
}

static int sim_stream(void **ret, unsigned flags)
{
    must_be_entered();
    if (flags != ENG_CUDA_STREAM_NON_BLOCKING)
        abort();
    if (fails_here())
        return FAILED;
    queue_of *s = calloc(1, sizeof *s);
    s->next = streams;
    s->device = entered_at;
    *ret = streams = s;
    cuda_sim_state.streams++;
    return 0;
}

static int sim_stream_end(void *stream)
{
    queue_of *s = of_stream(stream), **at = &streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
    cuda_sim_state.streams--;
    return fails() ? FAILED : 0;
}

/* A device that is gone has stopped. */
static int sim_stream_query(void *stream)
{
    queue_of *s = of_stream(stream);
    if (fails_here()) {
        s->n = 0;
        return FAILED;
    }
    if (cuda_sim_state.hung && s->n)
        return ENG_CUDA_NOT_READY;
    return s->n && ++s->asked < PATIENCE ? ENG_CUDA_NOT_READY : drain(s);
}

static int sim_copy_in(eng_cuda_address to, const void *from, size_t bytes, void *stream)
{
    if (!lies_in((void *)(uintptr_t)to, bytes, false) || !bytes)
        abort();
    if (fails_here())
        return FAILED;
    cuda_sim_state.copies_in++;
    cuda_sim_state.overlaps += others_work(stream);
    cuda_sim_state.images += fills(to, bytes); /* rows leave room for sums behind them */
    if (!cuda_sim_state.at_once && !lies_in(from, bytes, true))
        abort(); /* nobody would know when the device has read it */
    return queue(stream, &(op){.to = (void *)(uintptr_t)to, .from = from, .bytes = bytes});
}

static int sim_copy_out(void *to, eng_cuda_address from, size_t bytes, void *stream)
{
    if (!lies_in((void *)(uintptr_t)from, bytes, false) || !lies_in(to, bytes, true))
        abort();
    if (fails_here())
        return FAILED;
    cuda_sim_state.copies_out++;
    return queue(stream, &(op){.to = to, .from = (void *)(uintptr_t)from, .bytes = bytes});
}

static int launch(const eng_cuda_forest *f, const void *image, const void *x, int64_t rows, int64_t cols, double *out, void *stream)
{
    if (fails_here())
        return FAILED;
    cuda_sim_state.launches++;
    return queue(stream, &(op){.to = out, .head.forest = *f, .image = image, .x = x, .rows = rows, .cols = cols});
}

/* What it is given must be the device's own; a net that needs nothing between its kernels is given the end of its buffers. */
static int launch_net(const eng_cuda_net *n, const void *image, const float *x, int64_t rows, float *between, float *out, void *stream)
{
    size_t r = (size_t)rows * sizeof(float);
    if (!lies_in(image, n->bytes, false) || !lies_in(x, r * n->n_in, false) || !lies_in(out, r * n->n_out, false) ||
        !lies_in(between, n->rows ? 0 : r * n->n_between, false))
        abort();
    if (fails_here())
        return FAILED;
    cuda_sim_state.launches++;
    return queue(stream, &(op){.to = out, .is_net = true, .head.net = *n, .image = image, .x = x, .rows = rows, .between = between});
}

const eng_cuda_plugin cuda_sim_plugin = {
    .abi = ENG_CUDA_PLUGIN_ABI, .cuda = 13000, .version = PST_VERSION, .targets = "simulated", .trees = launch, .net = launch_net};

/* ---- NVML ---- */

static int sim_nvml_init(void)
{
    if (fails())
        return FAILED;
    cuda_sim_state.open++;
    return 0;
}

static int sim_nvml_version(char *ret, unsigned cap)
{
    if (fails() || !cuda_sim_state.version)
        return FAILED;
    snprintf(ret, cap, "%s", cuda_sim_state.version);
    return 0;
}

static int sim_nvml_device(const char *bus_id, void **ret)
{
    unsigned handle;
    if (fails() || sscanf(bus_id, "0000:%02x:00.0", &handle) != 1)
        return FAILED;
    *ret = (void *)(uintptr_t)handle;
    return 0;
}

static int sim_nvml_memory(void *device, eng_nvml_memory *ret)
{
    if (fails())
        return FAILED;
    const cuda_sim_device *d = of_handle((int)(uintptr_t)device);
    *ret = (eng_nvml_memory){.total = d->memory, .free = d->free, .used = d->memory - d->free};
    return 0;
}

static int sim_nvml_ecc(void *device, int which, int since, unsigned long long *ret)
{
    if (which != ENG_NVML_UNCORRECTED || since != ENG_NVML_VOLATILE)
        abort();
    if (fails())
        return FAILED;
    *ret = device == (void *)(uintptr_t)HANDLE ? cuda_sim_state.ecc : 0;
    return 0;
}

static char the_event_set;
static unsigned long long registered[4]; /* by device */

static int sim_nvml_event_set(void **ret)
{
    if (fails())
        return FAILED;
    memset(registered, 0, sizeof registered);
    cuda_sim_state.event_sets++;
    *ret = &the_event_set;
    return 0;
}

/* A device without ECC tells Xids alone: 1 here. */
static int sim_nvml_event_types(void *device, unsigned long long *ret)
{
    if (fails())
        return FAILED;
    *ret = (uintptr_t)device == HANDLE + 1 ? ENG_NVML_XID | 4 : ENG_NVML_XID | ENG_NVML_ECC_SINGLE | ENG_NVML_ECC_DOUBLE | 4;
    return 0;
}

static int sim_nvml_event_register(void *device, unsigned long long types, void *set)
{
    unsigned long long can = 0;
    if (set != &the_event_set || cuda_sim_state.event_sets != 1)
        abort();
    if (fails() || sim_nvml_event_types(device, &can) != 0 || (types & ~can))
        return FAILED;
    registered[(uintptr_t)device - HANDLE] = types;
    return 0;
}

static int sim_nvml_event_wait(void *set, eng_nvml_event *ret, unsigned ms)
{
    if (set != &the_event_set || !cuda_sim_state.open)
        abort();
    if (fails())
        return FAILED;
    for (int i; (i = cuda_sim_state.told) < 4 && cuda_sim_state.events[i].type;) {
        const cuda_sim_event *e = &cuda_sim_state.events[i];
        cuda_sim_state.told++;
        if (!(registered[e->number] & e->type))
            continue;
        *ret = (eng_nvml_event){.device = (void *)(uintptr_t)(HANDLE + e->number), .type = e->type, .data = e->data};
        return 0;
    }
    if (cuda_sim_state.at_once) /* a program's thread waits here */
        nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
    return ENG_NVML_TIMEOUT;
}

static int sim_nvml_event_free(void *set)
{
    if (set != &the_event_set)
        abort();
    cuda_sim_state.event_sets--;
    return fails() ? FAILED : 0;
}

static int sim_nvml_done(void)
{
    cuda_sim_state.open--;
    return fails() ? FAILED : 0;
}

#define X(member, symbol, parameters) .member = sim_##member,
const eng_cuda_driver cuda_sim_driver = {ENG_CUDA_ENTRIES(X) ENG_NVML_ENTRIES(X) ENG_NVML_EVENT_ENTRIES(X)},
                      cuda_sim_driver_no_nvml = {ENG_CUDA_ENTRIES(X)};
#undef X
