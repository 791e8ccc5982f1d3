/* pour.c - the queue between a reading thread and the loop, and the life of both. Four may hold a pour: the thread, the loop's side, and the one call
 * of flow that is posted at any time; the last one frees it. The thread never touches the request or the stream, the loop never the source while it runs. */
#include "producers/gateway/pour.h"

#include "common/base/clock.h"
#include "common/base/stop.h"
#include "common/base/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUEUE_BYTES = 256 << 10, PIECE_BYTES = 64 << 10, WINDOW_BYTES = 64 << 10, LOOK_MS = 200 };

struct gw_pour {
    gw_state *g;
    gw_source source;
    pst_http_req *req;       /* until it is answered */
    pst_http_stream *stream; /* while it is open */
    bool ws, released;       /* released: the loop's side is over */
    atomic_int holders;
    _Atomic bool gone;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t room;
    pst_buf queue; /* pieces: a size_t, then so many bytes */
    size_t at;     /* begins here */
    bool posted, ended;
    int rc;
    pst_err err;
};

static void drop(gw_pour *p)
{
    if (atomic_fetch_sub(&p->holders, 1) > 1)
        return;
    PST_ASSERT(p->released && !p->stream && !p->req);
    p->source.done(p->source.arg);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->room);
    pst_buf_done(&p->queue);
    free(p);
}

/* ---- the loop's side ------------------------------------------------------------------------------------------------------- */

static void release(gw_pour *p)
{
    PST_ASSERT(!p->released);
    p->released = true;
    p->stream = NULL;
    atomic_store(&p->gone, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->room);
    pthread_mutex_unlock(&p->lock);
    drop(p);
}

static void on_close(void *arg)
{
    release(arg);
}

static void on_drained(void *arg);

static bool open_stream(gw_pour *p)
{
    pst_http_req *req = p->req;
    p->req = NULL;
    p->stream = p->ws ? pst_http_ws_open(req, "ws", on_close, p) : pst_http_stream_open(req, 200, p->source.type, on_close, p);
    if (!p->stream) {
        release(p);
        return false;
    }
    pst_http_stream_on_drained(p->stream, on_drained);
    if (p->source.whole && !p->ws)
        pst_http_stream_whole(p->stream);
    return true;
}

/* The next piece, copied out because writing it may end the stream, and that takes the lock. */
static bool next_piece(gw_pour *p, pst_buf *ret)
{
    size_t len;
    pthread_mutex_lock(&p->lock);
    bool any = p->at < p->queue.len;
    if (any) {
        memcpy(&len, p->queue.data + p->at, sizeof len);
        pst_buf_clear(ret);
        pst_buf_add(ret, p->queue.data + p->at + sizeof len, len);
        p->at += sizeof len + len;
        if (p->at == p->queue.len) {
            pst_buf_clear(&p->queue);
            p->at = 0;
        }
        pthread_cond_signal(&p->room);
    }
    pthread_mutex_unlock(&p->lock);
    return any;
}

/* Gives the client what there is, as much as its window takes. */
static void flow(gw_pour *p)
{
    pthread_mutex_lock(&p->lock);
    bool any = p->at < p->queue.len, ended = p->ended;
    pthread_mutex_unlock(&p->lock);
    if (p->released || (p->req && !any && !ended))
        return;
    if (p->req && !any && p->rc < 0) {
        pst_http_problem_err(p->req, &p->err);
        p->req = NULL;
        release(p);
        return;
    }
    if (p->req && !open_stream(p))
        return;
    pst_buf piece = {0};
    bool more = true;
    while (!p->released && pst_http_stream_backlog(p->stream) < WINDOW_BYTES && (more = next_piece(p, &piece)))
        if (pst_http_stream_write(p->stream, piece.data, piece.len) < 0)
            break; /* on its way out: on_close follows */
    pst_buf_done(&piece);
    if (p->released || more || !ended)
        return;
    (p->rc < 0 ? pst_http_stream_fail : pst_http_stream_close)(p->stream);
    release(p);
}

static void on_drained(void *arg)
{
    flow(arg);
}

static void flow_posted(void *arg)
{
    gw_pour *p = arg;
    pthread_mutex_lock(&p->lock);
    p->posted = false;
    pthread_mutex_unlock(&p->lock);
    flow(p);
    drop(p);
}

/* ---- the thread's side ----------------------------------------------------------------------------------------------------- */

/* With the lock; true: flow is to be posted. */
static bool must_post(gw_pour *p)
{
    bool must = !p->posted;
    p->posted = true;
    if (must)
        atomic_fetch_add(&p->holders, 1);
    return must;
}

static bool is_over(const gw_pour *p)
{
    return atomic_load(&p->gone) || pst_stop_requested();
}

bool gw_pour_put(gw_pour *p, const char *data, size_t len)
{
    pthread_mutex_lock(&p->lock);
    while (p->queue.len - p->at > QUEUE_BYTES && !is_over(p)) {
        struct timespec until = pst_mono_at(pst_mono_us() + LOOK_MS * 1000);
        pthread_cond_timedwait(&p->room, &p->lock, &until);
    }
    bool takes = !is_over(p), post = false;
    if (takes && p->at > QUEUE_BYTES) { /* what was taken makes room */
        memmove(p->queue.data, p->queue.data + p->at, p->queue.len - p->at);
        p->queue.len -= p->at;
        p->at = 0;
    }
    if (takes) {
        pst_buf_add(&p->queue, &len, sizeof len);
        pst_buf_add(&p->queue, data, len);
        post = must_post(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (post)
        gw_post(p->g, flow_posted, p, NULL);
    return takes;
}

int gw_pour_file(gw_pour *p, int fd, pst_err *err)
{
    char *piece = pst_alloc(PIECE_BYTES);
    ssize_t n = 1;
    int rc = 0;
    while (n > 0 && !rc) {
        n = read(fd, piece, PIECE_BYTES);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            rc = pst_err_sys(err, errno, "cannot read what is to be sent");
        else if (n > 0 && !gw_pour_put(p, piece, (size_t)n))
            rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "gateway", 0, "the client has gone, or the gateway ends");
    }
    free(piece);
    close(fd);
    return rc;
}

const _Atomic bool *gw_pour_gone(const gw_pour *p)
{
    return &p->gone;
}

bool gw_pour_pause(gw_pour *p, int ms)
{
    struct timespec until = pst_mono_at(pst_mono_us() + (int64_t)ms * 1000);
    int rc = 0;
    pthread_mutex_lock(&p->lock);
    while (!rc && !is_over(p))
        rc = pthread_cond_timedwait(&p->room, &p->lock, &until);
    pthread_mutex_unlock(&p->lock);
    return !is_over(p);
}

bool gw_pour_is_ws(const gw_pour *p)
{
    return p->ws;
}

static void *run(void *arg)
{
    gw_pour *p = arg;
    pst_err err = {0};
    int rc = p->source.run(p->source.arg, p, &err);
    pthread_mutex_lock(&p->lock);
    p->rc = rc;
    p->err = err;
    p->ended = true;
    bool post = must_post(p);
    pthread_mutex_unlock(&p->lock);
    gw_state *g = p->g;
    if (post)
        gw_post(g, flow_posted, p, NULL);
    drop(p);
    g->pours--; /* the last touch of g: the gateway waits for it */
    return NULL;
}

/* ---- start ----------------------------------------------------------------------------------------------------------------- */

void gw_pour_start(gw_state *g, pst_http_req *req, const gw_source *source)
{
    if (g->pours >= GW_POURS_MAX) {
        pst_http_add_header(req, "Retry-After", "5");
        pst_http_problem(req, 503, "busy", NULL, "so many logs and metrics are being followed already as there may be; ask again later");
        source->done(source->arg);
        return;
    }
    gw_pour *p = pst_alloc(sizeof *p);
    p->g = g;
    p->source = *source;
    p->req = req;
    p->ws = pst_http_ws_wanted(req);
    p->holders = 1;
    pthread_mutex_init(&p->lock, NULL);
    pst_cond_init(&p->room);
    if ((p->ws || source->at_once) && !open_stream(p))
        return;
    p->holders++;
    g->pours++;
    if (pst_thread_detached(source->name, run, p)) {
        g->pours--;
        p->holders--;
        p->ended = true;
        p->rc = pst_err_set(&p->err, PST_EAGAIN, PST_CLASS_RETRY, "sys", 0, "no thread to be had; ask again later");
        flow(p);
    }
}
