/* servers.c - the worker's side. It gives every server its part of the gradient and takes back its part of the values, all servers at once: each pushes
 * and pulls as its socket allows, so that none waits for another's. */
#include "trainer/learner/servers.h"

#include "common/base/clock.h"
#include "trainer/learner/link.h"
#include "trainer/learner/ring_inside.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 250, DIAL_MS = 20, ANSWER_MAX = INT32_MAX };

struct learn_servers {
    learn_ring_opts o;
    learn_place *places; /* of the servers */
    learn_run run;
    learn_link **at;
    bool *answered;
};

size_t learn_servers_part(size_t n, int servers, int k, size_t *ret_from)
{
    size_t each = n / (size_t)servers, rest = n % (size_t)servers;
    *ret_from = each * (size_t)k + rest * (size_t)k / (size_t)servers;
    return each * (size_t)(k + 1) + rest * (size_t)(k + 1) / (size_t)servers;
}

int learn_begin_check(const void *bytes, size_t len, int servers, int k, learn_begin *ret, size_t *ret_params, pst_err *err)
{
    learn_begin b;
    if (len < sizeof b)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "began with %zu bytes, which are no network", len);
    memcpy(&b, bytes, sizeof b);
    size_t n = 0, from, widest = PST_LEARN_COLUMNS_MAX > PST_LEARN_WIDTH_MAX ? PST_LEARN_COLUMNS_MAX : PST_LEARN_WIDTH_MAX;
    bool good = b.n_widths >= 2 && b.n_widths <= LEARN_BEGIN_WIDTHS && b.steps >= 0;
    for (uint32_t i = 0; good && i < b.n_widths; i++) {
        good = b.widths[i] >= 1 && b.widths[i] <= widest;
        n += good && i ? ((size_t)b.widths[i - 1] + 1) * b.widths[i] : 0;
    }
    if (!good || n > ANSWER_MAX / sizeof(float) / 3)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_FATAL, "ring", 0, "began with a network that cannot be");
    size_t part = learn_servers_part(n, servers, k, &from) - from;
    if (len - sizeof b != 3 * part * sizeof(float))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "ring", 0, "began with %zu bytes of parameters; its network has %zu here",
                           len - sizeof b, 3 * part * sizeof(float));
    *ret = b;
    *ret_params = n;
    return 0;
}

/* ---- connections --------------------------------------------------------------------------------------------------------------- */

static int about(const learn_servers *v, int k, const pst_err *why, pst_err *err)
{
    return pst_err_set(err, why->code, why->cls, "ring", 0, "parameter server %d (%s port %d) %s", k, v->places[k].address,
                       v->places[k].port, why->text);
}

static int connect_to(learn_servers *v, int k, pst_err *err)
{
    learn_met met;
    char span[32];
    pst_err why = {0};
    int64_t began_us = pst_mono_us();
    learn_dial *d = learn_dial_new(&v->places[k], &v->run, (uint32_t)v->o.rank, (uint32_t)(v->o.world + k));
    int rc = 0;
    while (!rc) {
        rc = learn_dial_look(d, DIAL_MS, &met, &why);
        if (!rc && v->o.stopped && v->o.stopped(v->o.arg))
            rc = PST_ESTOPPED;
        if (!rc && pst_mono_us() - began_us > learn_join_us(v->o.timeout_us))
            rc = pst_err_set(&why, PST_EUNREACH, PST_CLASS_RETRY, "ring", 0, "does not answer after %s: %s",
                             pst_span_text(pst_mono_us() - began_us, span), learn_dial_why(d));
    }
    learn_dial_free(d);
    if (rc > 0)
        v->at[k] = learn_link_new(&met, v->run.generation, ANSWER_MAX);
    else if (rc != PST_ESTOPPED)
        return about(v, k, &why, err);
    return rc > 0 ? 0 : rc;
}

int learn_servers_open(const learn_ring_opts *o, learn_servers **ret, pst_err *err)
{
    size_t n = (size_t)o->servers;
    learn_servers *v = pst_alloc(sizeof *v);
    *v = (learn_servers){.o = *o};
    v->places = pst_alloc(n * sizeof *v->places);
    memcpy(v->places, o->at + o->world, n * sizeof *v->places);
    v->at = pst_alloc(n * sizeof(learn_link *));
    v->answered = pst_alloc(n);
    learn_run_make(&v->run, o->training_id, o->generation, o->world + o->servers, o->secret);
    int rc = 0;
    for (int k = 0; !rc && k < o->servers; k++)
        rc = connect_to(v, k, err);
    if (rc < 0)
        learn_servers_close(v);
    else
        *ret = v;
    return rc;
}

void learn_servers_close(learn_servers *v)
{
    if (!v)
        return;
    for (int k = 0; k < v->o.servers; k++)
        learn_link_free(v->at[k]);
    free(v->at);
    free(v->answered);
    free(v->places);
    free(v);
}

/* ---- question and answer -------------------------------------------------------------------------------------------------------- */

typedef int (*taker)(void *arg, int k, const pst_buf *message, pst_err *err);

static int look(learn_servers *v, int k, learn_frame_kind kind, taker take, void *arg, pst_err *err)
{
    learn_link *l = v->at[k];
    pst_err why = {0};
    int rc = learn_link_flush(l, &why);
    if (!rc && !v->answered[k])
        rc = learn_link_hear(l, &why);
    if (rc > 0 && l->kind != kind)
        rc = pst_err_set(&why, PST_EINCOMPAT, PST_CLASS_FATAL, "ring", 0, "answered something else than was asked");
    if (rc > 0) {
        v->answered[k] = true;
        rc = take(arg, k, &l->message, &why);
    }
    return rc < 0 ? about(v, k, &why, err) : 0;
}

static int wait_for(learn_servers *v, int64_t began_us, pst_err *err)
{
    char span[32];
    struct pollfd *at = pst_alloc((size_t)v->o.servers * sizeof *at);
    int rc = 0;
    for (int k = 0; k < v->o.servers; k++) {
        short events = (short)((v->answered[k] ? 0 : POLLIN) | (learn_link_is_flushed(v->at[k]) ? 0 : POLLOUT));
        int64_t since = v->at[k]->moved_us > began_us ? v->at[k]->moved_us : began_us;
        at[k] = (struct pollfd){.fd = events ? v->at[k]->fd : -1, .events = events};
        if (events && pst_mono_us() - since > 2 * v->o.timeout_us && !rc) /* it gives up first when it is another worker that is silent */
            rc = pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "ring", 0,
                             "parameter server %d (%s port %d) has said nothing for %s (penstock.learner.peer_timeout, twice)", k,
                             v->places[k].address, v->places[k].port, pst_span_text(2 * v->o.timeout_us, span));
    }
    if (!rc && poll(at, (nfds_t)v->o.servers, TICK_MS) < 0 && errno != EINTR)
        rc = pst_err_sys(err, errno, "cannot wait for the parameter servers");
    free(at);
    return rc;
}

/* What was put is sent, and one answer of this kind from each is taken. */
static int ask(learn_servers *v, learn_frame_kind kind, taker take, void *arg, pst_err *err)
{
    int64_t began_us = pst_mono_us();
    memset(v->answered, 0, (size_t)v->o.servers);
    for (;;) {
        bool all = true;
        for (int k = 0; k < v->o.servers; k++) {
            int rc = look(v, k, kind, take, arg, err);
            if (rc < 0)
                return rc;
            all = all && v->answered[k];
        }
        if (all)
            return 0;
        int rc = wait_for(v, began_us, err);
        if (rc < 0)
            return rc;
    }
}

typedef struct into { /* where values go */
    learn_servers *v;
    learn_net *n;
    learn_answer_head first; /* server 0's */
    bool state;
} into;

static int take_values(void *arg, int k, const pst_buf *m, pst_err *err)
{
    into *t = arg;
    learn_answer_head a;
    size_t from, to = learn_servers_part(learn_net_parameters(t->n), t->v->o.servers, k, &from), bytes = (to - from) * sizeof(float);
    if (m->len != sizeof a + (t->state ? 3 : 1) * bytes)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_FATAL, "ring", 0, "answered %zu bytes where %zu were due", m->len,
                           sizeof a + (t->state ? 3 : 1) * bytes);
    memcpy(&a, m->data, sizeof a);
    memcpy(learn_net_values(t->n) + from, m->data + sizeof a, bytes);
    if (t->state) {
        memcpy(learn_net_moments(t->n, 1) + from, m->data + sizeof a + bytes, bytes);
        memcpy(learn_net_moments(t->n, 2) + from, m->data + sizeof a + 2 * bytes, bytes);
    }
    if (!k)
        t->first = a;
    return 0;
}

static int take_ready(void *arg, int k, const pst_buf *m, pst_err *err)
{
    return 0;
}

int learn_servers_begin(learn_servers *v, learn_net *n, pst_err *err)
{
    learn_begin b = {.n_widths = (uint32_t)learn_net_layers(n) + 1, .steps = learn_net_steps(n)};
    for (uint32_t i = 0; i < b.n_widths; i++)
        b.widths[i] = (uint32_t)learn_net_width(n, (int)i);
    for (int k = 0; k < v->o.servers; k++) {
        size_t from, to = learn_servers_part(learn_net_parameters(n), v->o.servers, k, &from), bytes = (to - from) * sizeof(float);
        pst_buf all = {0};
        pst_buf_add(&all, learn_net_values(n) + from, bytes);
        pst_buf_add(&all, learn_net_moments(n, 1) + from, bytes);
        pst_buf_add(&all, learn_net_moments(n, 2) + from, bytes);
        learn_link_put(v->at[k], LEARN_FRAME_BEGIN, &b, sizeof b, all.data, all.len);
        pst_buf_done(&all);
    }
    return ask(v, LEARN_FRAME_READY, take_ready, NULL, err);
}

int learn_servers_step(learn_servers *v, learn_net *n, const float *gradient, float io_tail[LEARN_TAIL], int64_t *ret_stop_at, pst_err *err)
{
    into t = {.v = v, .n = n};
    for (int k = 0; k < v->o.servers; k++) {
        size_t from, to = learn_servers_part(learn_net_parameters(n), v->o.servers, k, &from);
        learn_link_put(v->at[k], LEARN_FRAME_PUSH, io_tail, LEARN_TAIL * sizeof *io_tail, gradient + from, (to - from) * sizeof *gradient);
    }
    int rc = ask(v, LEARN_FRAME_VALUES, take_values, &t, err);
    if (rc < 0)
        return rc;
    memcpy(io_tail, t.first.tail, LEARN_TAIL * sizeof *io_tail);
    learn_net_set_steps(n, t.first.steps);
    *ret_stop_at = t.first.stop_at;
    return 0;
}

int learn_servers_pull(learn_servers *v, learn_net *n, pst_err *err)
{
    into t = {.v = v, .n = n, .state = true};
    for (int k = 0; k < v->o.servers; k++)
        learn_link_put(v->at[k], LEARN_FRAME_PULL, "", 0, "", 0);
    int rc = ask(v, LEARN_FRAME_STATE, take_values, &t, err);
    if (!rc)
        learn_net_set_steps(n, t.first.steps);
    return rc;
}

int learn_servers_end(learn_servers *v, pst_err *err)
{
    for (int k = 0; k < v->o.servers; k++)
        learn_link_put(v->at[k], LEARN_FRAME_END, "", 0, "", 0);
    return ask(v, LEARN_FRAME_READY, take_ready, NULL, err);
}
