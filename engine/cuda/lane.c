/* lane.c - models on a device; see lane.h. Of each row only the features that the model reads go over, side by side. An image goes over piece by piece,
 * since pinned memory is the host's scarcest.
 *
 * A run that is given up (its time is over, an allocation failed behind it) leaves its work on the stream: the next one waits for that first, since the
 * device still reads and writes the buffers. CUDA graphs would save some microseconds of launching; they are left out until a device shows
 * what they are worth. */
#include "engine/cuda/lane.h"

#include "common/base/clock.h"
#include "engine/share.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROWS_MAX = 4096, ROWS_LEAST = 32, SPINS = 2000, NAP_NS = 20000, ALIGN = 256 };
enum { UNWATCHED_S = 30 };                   /* of a wait that nothing else ends */
#define ROWS_BYTES_MAX    ((size_t)8 << 20)  /* of the rows of a pass; as much again for the results */
#define BETWEEN_BYTES_MAX ((size_t)64 << 20) /* of what lies between its kernels, on the device alone */
#define IMAGE_PIECE       ((size_t)1 << 20)

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t row_bytes(const eng_cuda_lane *l)
{
    return (size_t)l->task.cols * l->task.number;
}

/* ---- waiting ---- */

static int no_answer(const eng_cuda_lane *l, pst_err *err)
{
    pst_err_clear(err);
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "cuda", 0, "%s does not answer in time; see `nvidia-smi` for who else uses it",
                       l->on->name);
}

/* 0 = the wait may go on. What the run's own limits say first: when its time is over, that is the device's fault and no record's. */
static int patience(const eng_cuda_lane *l, int64_t from_us, pst_err *err)
{
    int rc = l->watch ? eng_watch_check(l->watch, err) : 0;
    bool over = l->watch && l->watch->limits.ms_max ? rc == PST_ETIMEDOUT : pst_mono_us() - from_us > UNWATCHED_S * 1000000LL;
    return over ? no_answer(l, err) : rc;
}

/* Until the slot's stream is empty; by asking, so that the wait can end before. */
static int drain(const eng_cuda_lane *l, eng_cuda_slot *s, const char *what, pst_err *err)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    int64_t from_us = 0;
    for (int asked = 0;; asked++) {
        int said = l->on->driver->stream_query(s->stream);
        if (said == 0)
            s->under_way = 0;
        if (said != ENG_CUDA_NOT_READY)
            return eng_cuda_said(l->on, said, what, err);
        if (!from_us)
            from_us = pst_mono_us();
        int rc = patience(l, from_us, err);
        if (rc < 0)
            return rc;
        if (asked > SPINS)
            nanosleep(&nap, NULL);
    }
}

static int wait_for(const eng_cuda_lane *l, eng_cuda_slot *s, pst_err *err)
{
    return s->under_way ? drain(l, s, "waiting for its results", err) : 0;
}

/* ---- a model's image ---- */

static void image_gone(void *made)
{
    eng_cuda_image *i = made;
    PST_ASSERT(!i->users); /* whose plans have gone before the model */
    pthread_mutex_destroy(&i->lock);
}

static int make_image(void *arg, eng_zone *zone, void *made)
{
    eng_cuda_image *i = made;
    *i = (eng_cuda_image){.on = arg};
    pthread_mutex_init(&i->lock, NULL);
    return 0;
}

/* Each piece is waited for before the next is put into its place. */
static int copy_pieces(eng_cuda_lane *via, const unsigned char *bytes, void *pinned, pst_err *err)
{
    const eng_cuda_image *i = via->image;
    int rc = 0;
    for (size_t at = 0; at < i->bytes && rc == 0; at += IMAGE_PIECE) {
        size_t n = i->bytes - at < IMAGE_PIECE ? i->bytes - at : IMAGE_PIECE;
        memcpy(pinned, bytes + at, n);
        rc = eng_cuda_said(i->on, i->on->driver->copy_in(i->at + at, pinned, n, via->slots[0].stream), "copying a model to it", err);
        if (rc == 0)
            rc = drain(via, &via->slots[0], "copying a model to it", err);
    }
    return rc;
}

/* Through the lane's first stream, and waited for: other lanes do not know of this one's. From pinned memory, which is given back only when the device has let
 * go of it; the image's own bytes go as soon as we return. If it fails the stream goes first, since what is still on it uses both. */
static int copy_image(eng_cuda_lane *via, const unsigned char *bytes, pst_err *err)
{
    eng_cuda_image *i = via->image;
    void *pinned = NULL;
    i->at = 0;
    int rc = eng_cuda_alloc(i->on, i->bytes, &i->at, err);
    if (rc == 0)
        rc = eng_cuda_pin(i->on, i->bytes < IMAGE_PIECE ? i->bytes : IMAGE_PIECE, &pinned, err);
    if (rc == 0)
        rc = copy_pieces(via, bytes, pinned, err);
    if (rc < 0) {
        eng_cuda_stream_end(i->on, via->slots[0].stream);
        via->slots[0].stream = NULL;
        eng_cuda_free(i->on, i->at, i->bytes);
    }
    eng_cuda_unpin(i->on, pinned);
    return rc;
}

/* bytes NULL: only if others use it. True: l is one of its users now, or *ret_rc says why it is not. */
static bool use_image(eng_cuda_lane *l, const eng_cuda_head *head, const unsigned char *bytes, int *ret_rc, pst_err *err)
{
    eng_cuda_image *i = l->image;
    *ret_rc = 0;
    pthread_mutex_lock(&i->lock);
    bool there = i->users > 0;
    if (!there && bytes) {
        i->head = *head;
        i->bytes = l->task.kind->bytes(head);
        *ret_rc = copy_image(l, bytes, err);
    }
    i->users += there || (bytes && *ret_rc == 0);
    l->uses = there || (bytes && *ret_rc == 0);
    pthread_mutex_unlock(&i->lock);
    return there || bytes;
}

/* The lane's streams have ended. */
static void leave_image(eng_cuda_lane *l)
{
    eng_cuda_image *i = l->image;
    if (!l->uses)
        return;
    pthread_mutex_lock(&i->lock);
    if (--i->users == 0)
        eng_cuda_free(i->on, i->at, i->bytes);
    pthread_mutex_unlock(&i->lock);
}

int eng_cuda_image_of(pst_plan *p, eng_cuda_lane *l, pst_err *err)
{
    const eng_cuda_task *t = &l->task;
    const eng_share_key key = {.what = t->kind->shared_as, .of = t->owner, .by = l->on, .variant = t->variant, .release = image_gone};
    const void *place = NULL;
    int rc = eng_share(p, &key, sizeof(eng_cuda_image), make_image, l->on, &place);
    if (rc < 0)
        return rc;
    l->image = (eng_cuda_image *)(uintptr_t)place; /* what is shared does not change, but for what its lock guards */
    if (use_image(l, NULL, NULL, &rc, err))
        return rc;
    eng_cuda_head *head = eng_heap_alloc(sizeof *head);
    unsigned char *bytes = NULL;
    rc = t->kind->pack(p, t, head, &bytes, err);
    if (rc == 0)
        use_image(l, head, bytes, &rc, err);
    eng_heap_free(bytes);
    eng_heap_free(head);
    return rc;
}

/* ---- a plan's lane ---- */

int eng_cuda_lane_streams(eng_cuda_lane *l, pst_err *err)
{
    int rc = 0;
    for (int i = 0; i < ENG_CUDA_SLOTS && rc == 0; i++)
        rc = eng_cuda_said(l->on, l->on->driver->stream(&l->slots[i].stream, ENG_CUDA_STREAM_NON_BLOCKING), "making a stream", err);
    return rc;
}

int eng_cuda_lane_buffers(eng_cuda_lane *l, pst_err *err)
{
    size_t between = l->task.kind->between(&l->image->head), widest = row_bytes(l) > l->task.out ? row_bytes(l) : l->task.out;
    l->rows_max = ROWS_MAX;
    while (l->rows_max > ROWS_LEAST && ((size_t)l->rows_max * widest > ROWS_BYTES_MAX || (size_t)l->rows_max * between > BETWEEN_BYTES_MAX))
        l->rows_max /= 2;
    l->out_at = rounded((size_t)l->rows_max * row_bytes(l));
    l->between_at = l->out_at + rounded((size_t)l->rows_max * l->task.out);
    l->slot_bytes = l->between_at + rounded((size_t)l->rows_max * between);
    size_t bytes = ENG_CUDA_SLOTS * l->slot_bytes;
    int rc = eng_cuda_alloc(l->on, bytes, &l->device, err);
    if (rc < 0)
        return rc;
    l->bytes = bytes;
    return eng_cuda_pin(l->on, ENG_CUDA_SLOTS * l->between_at, (void **)&l->pinned, err);
}

void eng_cuda_lane_done(void *lane)
{
    eng_cuda_lane *l = lane;
    if (!l->on)
        return;
    for (int i = 0; i < ENG_CUDA_SLOTS; i++)
        eng_cuda_stream_end(l->on, l->slots[i].stream); /* its work may still use the buffers */
    eng_cuda_free(l->on, l->device, l->bytes);
    eng_cuda_unpin(l->on, l->pinned);
    leave_image(l);
    *l = (eng_cuda_lane){0};
}

/* ---- runs ---- */

static void gather(const eng_cuda_lane *l, unsigned char *to, const void *x, int64_t from, int64_t n, int64_t cols)
{
    size_t mine = row_bytes(l), all = (size_t)cols * l->task.number;
    const unsigned char *rows = (const unsigned char *)x + (size_t)from * all;
    if (mine == all && mine) {
        memcpy(to, rows, (size_t)n * mine);
        return;
    }
    for (int64_t r = 0; r < n && mine; r++)
        memcpy(to + (size_t)r * mine, rows + (size_t)r * all, mine);
}

static void *on_device(eng_cuda_address at)
{
    return (void *)(uintptr_t)at; /* nobody here looks into it */
}

static unsigned char *pinned_of(const eng_cuda_lane *l, const eng_cuda_slot *s)
{
    return l->pinned + (size_t)(s - l->slots) * l->between_at;
}

/* Rows [begun, …) of x, as many as a slot holds. */
static int pass(eng_cuda_lane *l, eng_cuda_slot *s, const void *x, int64_t rows, int64_t cols, pst_err *err)
{
    const eng_cuda_driver *d = l->on->driver;
    unsigned char *pinned = pinned_of(l, s);
    eng_cuda_address device = l->device + (size_t)(s - l->slots) * l->slot_bytes;
    int64_t left = rows - l->begun, n = left < l->rows_max ? left : l->rows_max;
    PST_ASSERT(n > 0 && !s->under_way); /* the buffers are free */
    gather(l, pinned, x, l->begun, n, cols);
    l->begun += n;
    s->under_way = n;
    const eng_cuda_call call = {.head = &l->image->head,
                                .image = on_device(l->image->at),
                                .x = on_device(device),
                                .rows = n,
                                .cols = l->task.cols,
                                .between = on_device(device + l->between_at),
                                .out = on_device(device + l->out_at),
                                .stream = s->stream};
    int rc = call.cols ? d->copy_in(device, pinned, (size_t)n * row_bytes(l), s->stream) : 0;
    if (rc != 0)
        return eng_cuda_said(l->on, rc, "copying rows to it", err);
    rc = l->task.kind->launch(l->on->plugin, &call);
    if (rc != 0)
        return eng_cuda_said(l->on, rc, l->task.kind->launching, err);
    return eng_cuda_said(l->on, d->copy_out(pinned + l->out_at, device + l->out_at, (size_t)n * l->task.out, s->stream),
                         "copying results from it", err);
}

int eng_cuda_lane_begin(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, pst_err *err)
{
    PST_ASSERT(rows > 0 && cols >= l->task.cols);
    int rc = eng_cuda_enter(l->on, err);
    for (int i = 0; i < ENG_CUDA_SLOTS && rc == 0; i++)
        rc = wait_for(l, &l->slots[i], err); /* of a run that was given up */
    l->begun = 0;
    for (int i = 0; i < ENG_CUDA_SLOTS && rc == 0 && l->begun < rows; i++)
        rc = pass(l, &l->slots[i], x, rows, cols, err);
    return rc;
}

/* Passes come back in the order in which they went, by each slot in turn; what is free again takes the next. */
int eng_cuda_lane_end(eng_cuda_lane *l, const void *x, int64_t rows, int64_t cols, void *ret_results, pst_err *err)
{
    int rc = eng_cuda_enter(l->on, err);
    int64_t at = 0;
    for (int i = 0; rc == 0 && at < rows; i = (i + 1) % ENG_CUDA_SLOTS) {
        eng_cuda_slot *s = &l->slots[i];
        int64_t n = s->under_way;
        PST_ASSERT(n > 0 && at + n <= l->begun);
        rc = wait_for(l, s, err);
        if (rc < 0)
            break;
        memcpy((unsigned char *)ret_results + (size_t)at * l->task.out, pinned_of(l, s) + l->out_at, (size_t)n * l->task.out);
        at += n;
        if (l->begun < rows)
            rc = pass(l, s, x, rows, cols, err);
    }
    return rc;
}
