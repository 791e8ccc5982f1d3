/* serve.c - the server's side: one loop over all workers' connections. What it holds is a network of which it moves its own part only; a worker's push is
 * kept until all have pushed (synchronous), or is a step at once (staleness). It times nothing but pushes that wait for others: workers that are busy
 * with something else are none of its business, and one that is gone is seen by its connection. */
#include "common/base/clock.h"
#include "trainer/learner/link.h"
#include "trainer/learner/ring_inside.h"
#include "trainer/learner/servers.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 250, MEET_MS = 20, MESSAGE_MAX = INT32_MAX };

typedef struct worker {
    learn_link *link;      /* NULL: not there yet, or gone */
    bool was_there, waits; /* waits: it has pushed, and is owed its values */
    int64_t pushes;
    int64_t since_us;
    float tail[LEARN_TAIL], *gradient; /* of its last push; kept until all have pushed */
} worker;

typedef struct serving {
    const learn_ring_opts *o;
    const pst_learn_settings *s;
    learn_run run;
    int index, world;
    worker *workers;
    learn_net *net;
    size_t from, to; /* its own parameters */
    float *sum;
    int64_t stop_at; /* 0: nobody was told to stop */
    bool ended;
} serving;

static bool told(const serving *v)
{
    return v->o->stopped && v->o->stopped(v->o->arg);
}

/* ---- answers -------------------------------------------------------------------------------------------------------------------- */

static void give(serving *v, worker *w, learn_frame_kind kind, const float *tail)
{
    learn_answer_head a = {.steps = learn_net_steps(v->net), .stop_at = v->stop_at};
    size_t n = v->to - v->from;
    pst_buf all = {0};
    if (tail)
        memcpy(a.tail, tail, sizeof a.tail);
    pst_buf_add(&all, learn_net_values(v->net) + v->from, n * sizeof(float));
    for (int i = 1; i <= 2 && kind == LEARN_FRAME_STATE; i++)
        pst_buf_add(&all, learn_net_moments(v->net, i) + v->from, n * sizeof(float));
    learn_link_put(w->link, kind, &a, sizeof a, all.data, all.len);
    pst_buf_done(&all);
    w->waits = kind == LEARN_FRAME_VALUES ? false : w->waits;
}

/* ---- steps ---------------------------------------------------------------------------------------------------------------------- */

static void step(serving *v, const float *gradient, const float *tail)
{
    if (isfinite(tail[LEARN_TAIL_LOSS])) /* else training has run away, which every worker sees and says */
        learn_net_adam_part(v->net, gradient, v->from, v->to, &(learn_adam){v->s->learning_rate, v->s->weight_decay});
}

/* All have pushed: one step of the sum, in the order of ranks. */
static void step_together(serving *v)
{
    float tail[LEARN_TAIL] = {0};
    size_t n = v->to - v->from;
    for (int k = 0; k < v->world; k++)
        if (!v->workers[k].waits)
            return;
    memset(v->sum, 0, n * sizeof *v->sum);
    for (int k = 0; k < v->world; k++) {
        for (size_t i = 0; i < n; i++)
            v->sum[i] += v->workers[k].gradient[i];
        for (int i = 0; i < LEARN_TAIL; i++)
            tail[i] += v->workers[k].tail[i];
    }
    step(v, v->sum, tail);
    if (tail[LEARN_TAIL_STOP] > 0 && !v->stop_at)
        v->stop_at = v->workers[0].pushes;
    for (int k = 0; k < v->world; k++)
        give(v, &v->workers[k], LEARN_FRAME_VALUES, tail);
}

/* Whose turn it is again: those who are no further ahead of the slowest than they may be. */
static void release(serving *v)
{
    int64_t least = INT64_MAX, most = 0;
    for (int k = 0; k < v->world; k++) {
        least = v->workers[k].pushes < least ? v->workers[k].pushes : least;
        most = v->workers[k].pushes > most ? v->workers[k].pushes : most;
    }
    for (int k = 0; k < v->world && !v->stop_at; k++)
        if (v->workers[k].tail[LEARN_TAIL_STOP] > 0)
            v->stop_at = most + 1; /* all come to hear of it by then, and nobody is further yet */
    for (int k = 0; k < v->world; k++)
        if (v->workers[k].waits && v->workers[k].link && v->workers[k].pushes - least <= v->s->staleness)
            give(v, &v->workers[k], LEARN_FRAME_VALUES, v->workers[k].tail);
}

static int on_push(serving *v, worker *w, const pst_buf *m, pst_err *err)
{
    size_t bytes = (v->to - v->from) * sizeof(float);
    if (!v->net || w->waits || m->len != sizeof w->tail + bytes)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "ring", 0, "pushed %zu bytes %s", m->len,
                           !v->net    ? "before the training has begun"
                           : w->waits ? "twice for one minibatch"
                                      : "of another network");
    memcpy(w->tail, m->data, sizeof w->tail);
    memcpy(w->gradient, m->data + sizeof w->tail, bytes);
    w->waits = true;
    w->since_us = pst_mono_us();
    w->pushes++;
    if (!v->s->staleness) {
        step_together(v);
        return 0;
    }
    if (w->tail[LEARN_TAIL_ROWS] > 0)
        step(v, w->gradient, w->tail);
    release(v);
    return 0;
}

static int on_begin(serving *v, int rank, const pst_buf *m, pst_err *err)
{
    learn_begin b;
    size_t n = 0;
    if (rank || v->net)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "ring", 0, "began a training %s", v->net ? "twice" : "that rank 0 begins");
    int rc = learn_begin_check(m->data, m->len, v->o->servers, v->index, &b, &n, err);
    if (rc < 0)
        return rc;
    int widths[LEARN_BEGIN_WIDTHS];
    for (uint32_t i = 0; i < b.n_widths; i++)
        widths[i] = (int)b.widths[i];
    v->net = learn_net_new(widths, (int)b.n_widths, v->s->activation, v->s->loss, 1);
    v->to = learn_servers_part(n, v->o->servers, v->index, &v->from);
    size_t bytes = (v->to - v->from) * sizeof(float);
    const char *at = m->data + sizeof b;
    memcpy(learn_net_values(v->net) + v->from, at, bytes);
    memcpy(learn_net_moments(v->net, 1) + v->from, at + bytes, bytes);
    memcpy(learn_net_moments(v->net, 2) + v->from, at + 2 * bytes, bytes);
    learn_net_set_steps(v->net, b.steps);
    v->sum = pst_alloc(bytes + sizeof(float));
    for (int k = 0; k < v->world; k++)
        v->workers[k].gradient = pst_alloc(bytes + sizeof(float));
    learn_link_put(v->workers[0].link, LEARN_FRAME_READY, "", 0, "", 0);
    printf("parameter server %d of %d: parameters %zu to %zu of %zu, at step %lld\n", v->index, v->o->servers, v->from, v->to, n,
           (long long)b.steps);
    fflush(stdout);
    return 0;
}

static int on_message(serving *v, int rank, pst_err *err)
{
    worker *w = &v->workers[rank];
    switch (w->link->kind) {
    case LEARN_FRAME_BEGIN: return on_begin(v, rank, &w->link->message, err);
    case LEARN_FRAME_PUSH: return on_push(v, w, &w->link->message, err);
    case LEARN_FRAME_PULL:
        if (v->net)
            give(v, w, LEARN_FRAME_STATE, NULL);
        return v->net ? 0 : pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "ring", 0, "asked for a training that has not begun");
    case LEARN_FRAME_END:
        v->ended = v->ended || rank == 0;
        learn_link_put(w->link, LEARN_FRAME_READY, "", 0, "", 0);
        return 0;
    case LEARN_FRAME_SUM:
    case LEARN_FRAME_BLOB:
    case LEARN_FRAME_ALIVE:
    case LEARN_FRAME_READY:
    case LEARN_FRAME_VALUES:
    case LEARN_FRAME_STATE: break;
    }
    return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "ring", 0, "sent what no worker says to a parameter server");
}

/* ---- connections ------------------------------------------------------------------------------------------------------------------ */

static bool is_awaited(void *arg, uint32_t from)
{
    const serving *v = arg;
    return from < (uint32_t)v->world && !v->workers[from].was_there;
}

static int meet(serving *v, pst_err *err)
{
    learn_door *door = NULL;
    learn_met met;
    char span[32];
    int64_t began_us = pst_mono_us();
    int rc = learn_door_open(&v->o->at[v->o->rank], &v->run, (uint32_t)v->o->rank, &door, err), here = 0;
    while (rc >= 0 && here < v->world) {
        rc = learn_door_look(door, MEET_MS, is_awaited, v, &met, err);
        if (rc > 0) {
            v->workers[met.from].link = learn_link_new(&met, v->run.generation, MESSAGE_MAX);
            v->workers[met.from].was_there = true;
            here++;
        } else if (rc == 0 && told(v))
            rc = PST_ESTOPPED;
        else if (rc == 0 && pst_mono_us() - began_us > learn_join_us(v->o->timeout_us))
            rc = pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "ring", 0, "%d of %d workers have not called after %s", v->world - here,
                             v->world, pst_span_text(pst_mono_us() - began_us, span));
    }
    learn_door_close(door);
    return rc < 0 ? rc : 0;
}

static int look(serving *v, int rank, pst_err *err)
{
    worker *w = &v->workers[rank];
    pst_err why = {0};
    int rc = learn_link_flush(w->link, &why);
    while (!rc && (rc = learn_link_hear(w->link, &why)) > 0) {
        rc = on_message(v, rank, &why);
        if (!rc)
            rc = learn_link_flush(w->link, &why);
    }
    if (rc >= 0)
        return 0;
    if (rc == PST_EUNREACH && (v->ended || v->stop_at || told(v))) { /* it has gone as it should */
        learn_link_free(w->link);
        w->link = NULL;
        return 0;
    }
    const learn_place *p = &v->o->at[rank];
    return pst_err_set(err, why.code, why.cls, "ring", 0, "rank %d (%s port %d) %s", rank, p->address, p->port, why.text);
}

/* Some have pushed long ago, and wait for one that has not. */
static int look_for_silent(const serving *v, pst_err *err)
{
    char span[32];
    int slowest = 0;
    int64_t since = INT64_MAX;
    for (int k = 0; k < v->world; k++) {
        if (v->workers[k].waits && v->workers[k].link)
            since = v->workers[k].since_us < since ? v->workers[k].since_us : since;
        slowest = v->workers[k].pushes < v->workers[slowest].pushes ? k : slowest;
    }
    if (since == INT64_MAX || pst_mono_us() - since <= v->o->timeout_us)
        return 0;
    const learn_place *p = &v->o->at[slowest];
    return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "ring", 0,
                       "rank %d (%s port %d) has pushed nothing for %s (penstock.learner.peer_timeout)", slowest, p->address, p->port,
                       pst_span_text(v->o->timeout_us, span));
}

static int serve(serving *v, pst_err *err)
{
    struct pollfd *at = pst_alloc((size_t)v->world * sizeof *at);
    int rc = 0;
    for (bool any = true; !rc && any;) {
        any = false;
        for (int k = 0; k < v->world; k++) {
            const learn_link *l = v->workers[k].link;
            at[k] = (struct pollfd){.fd = l ? l->fd : -1, .events = (short)(POLLIN | (l && !learn_link_is_flushed(l) ? POLLOUT : 0))};
        }
        if (poll(at, (nfds_t)v->world, TICK_MS) < 0 && errno != EINTR)
            rc = pst_err_sys(err, errno, "cannot wait for the workers");
        for (int k = 0; !rc && k < v->world; k++) {
            if (v->workers[k].link && at[k].revents)
                rc = look(v, k, err);
        }
        for (int k = 0; !rc && k < v->world; k++) { /* what one's push has let go to the others */
            pst_err ignored = {0};
            if (v->workers[k].link)
                learn_link_flush(v->workers[k].link, &ignored); /* a failure shows when it is heard */
            any = any || v->workers[k].link;
        }
        if (!rc)
            rc = look_for_silent(v, err);
    }
    free(at);
    return rc ? rc : v->ended ? 0 : PST_ESTOPPED;
}

int learn_serve(const learn_ring_opts *o, const pst_learn_settings *s, pst_err *err)
{
    serving v = {.o = o, .s = s, .index = o->rank - o->world, .world = o->world};
    PST_ASSERT(o->world >= 1 && v.index >= 0 && v.index < o->servers);
    v.workers = pst_alloc((size_t)v.world * sizeof *v.workers);
    learn_run_make(&v.run, o->training_id, o->generation, o->world + o->servers, o->secret);
    int rc = meet(&v, err);
    if (!rc)
        rc = serve(&v, err);
    for (int k = 0; k < v.world; k++) {
        learn_link_free(v.workers[k].link);
        free(v.workers[k].gradient);
    }
    free(v.workers);
    free(v.sum);
    learn_net_free(v.net);
    return rc;
}
