/* ring.c - the collectives. Everything is one exchange: so many bytes go to the next rank while so many come from the one before, in frames, both
 * non-blocking, so that a ring of full socket buffers cannot stand still. What comes is checked frame by frame against how much is due, never
 * against what it says of itself; memory for a blob grows with what has come. A rank that waits with nothing left to send says that it lives. */
#include "trainer/learner/ring_inside.h"

#include "common/base/clock.h"
#include "common/base/hash.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TICK_MS = 250 };

typedef void (*taker)(void *to, size_t at, const uint8_t *bytes, size_t len);

typedef struct exchange {
    learn_frame_kind kind;
    const uint8_t *out;
    size_t out_len, sent;
    size_t in_len, come;
    taker take;
    void *to;
} exchange;

/* ---- what went wrong ------------------------------------------------------------------------------------------------------------ */

static int lost(const learn_ring *r, const learn_line *l, const char *what, pst_err *err)
{
    const learn_place *p = &r->places[l->peer];
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "ring", 0, "rank %d (%s port %d) is gone: %s", l->peer, p->address, p->port,
                       what);
}

static int silent(const learn_ring *r, const learn_line *l, bool takes, pst_err *err)
{
    char span[32];
    const learn_place *p = &r->places[l->peer];
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "ring", 0,
                       "rank %d (%s port %d) %s nothing for %s (penstock.learner.peer_timeout)", l->peer, p->address, p->port,
                       takes ? "has taken" : "has said", pst_span_text(r->o.timeout_us, span));
}

static int not_ours(const learn_ring *r, const pst_err *why, pst_err *err)
{
    return pst_err_set(err, why->code, why->cls, "ring", 0, "rank %d (%s port %d): %s", r->in.peer, r->places[r->in.peer].address,
                       r->places[r->in.peer].port, why->text);
}

/* ---- one way ------------------------------------------------------------------------------------------------------------------- */

static void load(learn_ring *r, learn_frame_kind kind, const void *payload, size_t len)
{
    learn_line *l = &r->out;
    learn_frame f = {kind, l->session, l->sequence++, r->run.generation, (uint32_t)len, pst_crc32c(0, payload, len)};
    learn_frame_put(&f, l->bytes);
    if (len)
        memcpy(l->bytes + LEARN_FRAME_HEAD, payload, len);
    l->len = LEARN_FRAME_HEAD + len;
    l->at = 0;
}

static int push(learn_ring *r, pst_err *err)
{
    learn_line *l = &r->out;
    while (l->at < l->len) {
        ssize_t n = send(l->fd, l->bytes + l->at, l->len - l->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0)
            return lost(r, l, strerror(errno), err);
        l->at += (size_t)n;
        l->last_us = pst_mono_us();
    }
    return 0;
}

/* Frames of what is to go, one after the other, as far as the socket takes them. */
static int send_more(learn_ring *r, exchange *x, pst_err *err)
{
    int rc = push(r, err);
    while (!rc && r->out.at == r->out.len && x->sent < x->out_len) {
        size_t n = x->out_len - x->sent < LEARN_FRAME_MAX ? x->out_len - x->sent : LEARN_FRAME_MAX;
        load(r, x->kind, x->out + x->sent, n);
        x->sent += n;
        rc = push(r, err);
    }
    return rc;
}

/* A whole message is there. */
static int take_frame(learn_ring *r, exchange *x, const learn_frame *f, pst_err *err)
{
    const uint8_t *payload = r->in.bytes + LEARN_FRAME_HEAD;
    pst_err why = {0};
    r->in.sequence++;
    r->in.at = 0;
    if (pst_crc32c(0, payload, f->length) != f->crc)
        pst_err_set(&why, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "it sent a message that was damaged on its way");
    else if (f->kind == LEARN_FRAME_ALIVE)
        return 0;
    else if (f->kind != x->kind || f->length == 0 || f->length > x->in_len - x->come)
        pst_err_set(&why, PST_EINCOMPAT, PST_CLASS_FATAL, "ring", 0,
                    "it is elsewhere in the training than this rank (a message of kind %d and %u bytes, where %zu of kind %d were due)",
                    f->kind, f->length, x->in_len - x->come, x->kind);
    if (why.code)
        return not_ours(r, &why, err);
    x->take(x->to, x->come, payload, f->length);
    x->come += f->length;
    return 0;
}

static int hear(learn_ring *r, exchange *x, pst_err *err)
{
    learn_line *l = &r->in;
    learn_frame f = {0};
    pst_err why = {0};
    while (x->come < x->in_len) {
        size_t wanted = LEARN_FRAME_HEAD;
        if (l->at >= LEARN_FRAME_HEAD) {
            if (learn_frame_get(l->bytes, r->run.generation, l->session, l->sequence, &f, &why) < 0)
                return not_ours(r, &why, err);
            wanted += f.length;
        }
        if (l->at == wanted && l->at >= LEARN_FRAME_HEAD) {
            int rc = take_frame(r, x, &f, err);
            if (rc < 0)
                return rc;
            continue;
        }
        ssize_t n = recv(l->fd, l->bytes + l->at, wanted - l->at, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return lost(r, l, n ? strerror(errno) : "it closed the connection", err);
        l->at += (size_t)n;
        l->last_us = pst_mono_us();
    }
    return 0;
}

/* ---- both ways ------------------------------------------------------------------------------------------------------------------ */

void learn_ring_alive(learn_ring *r)
{
    pst_err ignored = {0};
    if (r->out.at == r->out.len && pst_mono_us() - r->out.last_us > LEARN_ALIVE_US)
        load(r, LEARN_FRAME_ALIVE, "", 0);
    push(r, &ignored); /* also the rest of one that did not go whole */
}

static int wait_for_either(learn_ring *r, const exchange *x, pst_err *err)
{
    bool sends = r->out.at < r->out.len, hears = x->come < x->in_len;
    struct pollfd at[2] = {{.fd = sends ? r->out.fd : -1, .events = POLLOUT}, /* who has all it needs may be gone by now */
                           {.fd = hears ? r->in.fd : -1, .events = POLLIN}};
    int64_t now = pst_mono_us();
    if (hears && now - r->in.last_us > r->o.timeout_us)
        return silent(r, &r->in, false, err);
    if (sends && now - r->out.last_us > r->o.timeout_us)
        return silent(r, &r->out, true, err);
    if (poll(at, 2, TICK_MS) < 0 && errno != EINTR)
        return pst_err_sys(err, errno, "cannot wait for the other ranks");
    if (at[0].revents & (POLLERR | POLLHUP))
        return lost(r, &r->out, "it closed the connection", err);
    if (!sends)
        learn_ring_alive(r);
    return 0;
}

static int run_exchange(learn_ring *r, exchange *x, pst_err *err)
{
    r->in.last_us = r->out.last_us = pst_mono_us(); /* silence counts from here: this rank itself may have been away */
    for (;;) {
        int rc = send_more(r, x, err);
        if (!rc)
            rc = hear(r, x, err);
        if (rc < 0)
            return rc;
        if (x->sent == x->out_len && r->out.at == r->out.len && x->come == x->in_len)
            return 0;
        rc = wait_for_either(r, x, err);
        if (rc < 0)
            return rc;
    }
}

/* ---- collectives ---------------------------------------------------------------------------------------------------------------- */

/* Frames are cut at multiples of LEARN_FRAME_MAX from the part's beginning, so that no number is cut in two. */
static void add_numbers(void *to, size_t at, const uint8_t *bytes, size_t len)
{
    float *x = (float *)to + at / sizeof(float);
    for (size_t i = 0; i < len / sizeof(float); i++) {
        float v;
        memcpy(&v, bytes + i * sizeof v, sizeof v);
        x[i] = v + x[i]; /* what the ranks before have summed, then this one's */
    }
}

static void put_numbers(void *to, size_t at, const uint8_t *bytes, size_t len)
{
    memcpy((uint8_t *)to + at, bytes, len);
}

static void put_blob(void *to, size_t at, const uint8_t *bytes, size_t len)
{
    pst_buf_add(to, bytes, len);
}

_Static_assert(LEARN_FRAME_MAX % sizeof(float) == 0, "a frame holds whole numbers");

static size_t part(size_t n, int world, int k)
{
    return n / (size_t)world * (size_t)k + n % (size_t)world * (size_t)k / (size_t)world;
}

int learn_ring_sum(learn_ring *r, float *x, size_t n, pst_err *err)
{
    int w = r->o.world;
    for (int step = 0; step < 2 * (w - 1); step++) {
        bool sums = step < w - 1;
        int back = sums ? step : step - w; /* the second time around each begins with the part that it has whole */
        int gives = ((r->o.rank - back) % w + w) % w, takes = ((r->o.rank - back - 1) % w + w) % w;
        size_t from = part(n, w, gives), to = part(n, w, gives + 1), at = part(n, w, takes), end = part(n, w, takes + 1);
        exchange e = {.kind = LEARN_FRAME_SUM,
                      .out = (const uint8_t *)(x + from),
                      .out_len = (to - from) * sizeof *x,
                      .in_len = (end - at) * sizeof *x,
                      .take = sums ? add_numbers : put_numbers,
                      .to = x + at};
        int rc = run_exchange(r, &e, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int learn_ring_gather(learn_ring *r, const void *mine, size_t len, size_t bytes_max, pst_buf *ret_all, pst_err *err)
{
    int w = r->o.world;
    for (int k = 0; k < w; k++)
        ret_all[k] = (pst_buf){0};
    pst_buf_add(&ret_all[r->o.rank], len ? mine : "", len);
    for (int step = 0; step < w - 1; step++) {
        const pst_buf *gives = &ret_all[((r->o.rank - step) % w + w) % w];
        pst_buf *takes = &ret_all[((r->o.rank - step - 1) % w + w) % w];
        uint64_t out = gives->len, in = 0;
        exchange size = {LEARN_FRAME_BLOB, (const uint8_t *)&out, sizeof out, 0, sizeof in, 0, put_numbers, &in};
        int rc = run_exchange(r, &size, err);
        if (!rc && in > bytes_max)
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_FATAL, "ring", 0, "rank %d announces %llu bytes; at most %zu are allowed",
                             r->in.peer, (unsigned long long)in, bytes_max);
        exchange blob = {LEARN_FRAME_BLOB, (const uint8_t *)gives->data, gives->len, 0, (size_t)in, 0, put_blob, takes};
        if (!rc)
            rc = run_exchange(r, &blob, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- coming and going ----------------------------------------------------------------------------------------------------------- */

int learn_ring_join(const learn_ring_opts *o, learn_ring **ret, pst_err *err)
{
    PST_ASSERT(o->world >= 2 && o->world <= LEARN_WORLD_MAX && o->rank >= 0 && o->rank < o->world);
    learn_ring *r = pst_alloc(sizeof *r);
    r->o = *o;
    r->places = pst_alloc((size_t)o->world * sizeof *r->places);
    memcpy(r->places, o->at, (size_t)o->world * sizeof *r->places);
    learn_run_make(&r->run, o->training_id, o->generation, o->world + o->servers, o->secret);
    r->out.fd = r->in.fd = -1;
    r->out.peer = (o->rank + 1) % o->world;
    r->in.peer = (o->rank + o->world - 1) % o->world;
    int rc = learn_ring_connect_all(r, err);
    if (rc < 0) {
        learn_ring_leave(r);
        return rc;
    }
    r->out.last_us = r->in.last_us = pst_mono_us();
    *ret = r;
    return 0;
}

void learn_ring_leave(learn_ring *r)
{
    if (!r)
        return;
    if (r->out.fd >= 0)
        close(r->out.fd);
    if (r->in.fd >= 0)
        close(r->in.fd);
    free(r->places);
    free(r);
}
