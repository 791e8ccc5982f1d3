/* bus_growth.c - partitions that no member of the group has. A static member that was killed and comes back within its session is given the place it had,
 * and no rebalance is held (KIP-345); and a client of librdkafka asks for one when it *sees* a topic grow. So what was added while all of a group's
 * members were away for a moment would be nobody's until the next rebalance, perhaps for ever. Whoever has joined counts once what the members have;
 * where that is less than there is, twice in a row, it leaves the group and is opened again: leaving and joining are two rebalances, over all there is. */
#include "common/bus/bus_admin.h"
#include "common/bus/bus_consumer.h"
#include "common/bus/bus_hand.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_US      (3 * 1000000LL) /* after joining: a rebalance that is under way ends first */
#define NEXT_US       (5 * 1000000LL)
#define LOOK_MS       2000
#define TIMES         2 /* it is believed */
#define UNDECIDED_MAX 6 /* so often a broker that does not say is asked */

typedef struct bus_count {
    atomic_int owners; /* the consumer, and the thread that counts */
    pst_bus_conf *conf;
    char *group;
    char **topics;
    size_t n_topics;
    long have, want; /* partitions; want 0 = not known */
} bus_count;

static void let_go(bus_count *x)
{
    if (!x || atomic_fetch_sub(&x->owners, 1) > 1)
        return;
    for (size_t i = 0; i < x->n_topics; i++)
        free(x->topics[i]);
    free(x->topics);
    free(x->group);
    pst_bus_conf_free(x->conf);
    free(x);
}

static void count(void *arg)
{
    bus_count *x = arg;
    bus_admin a;
    bus_members members = {0};
    char why[300];
    long want = 0;
    int rc = bus_admin_open(&a, x->conf, false, NULL, LOOK_MS, NULL);
    if (!rc)
        rc = a.link.lib->admin->group_members(a.link.h, x->group, bus_admin_left_ms(&a, LOOK_MS), &members, why, sizeof why);
    for (size_t i = 0; !rc && i < x->n_topics; i++) {
        int n = 0;
        rc = bus_partitions(a.link, &a.health, x->topics[i], bus_admin_left_ms(&a, LOOK_MS), &n, NULL);
        want += n;
    }
    if (!rc && members.stable) {
        x->have = (long)members.given.n;
        x->want = want;
    }
    bus_members_done(&members);
    bus_admin_close(&a);
    let_go(x);
}

static void begin(pst_consumer *c)
{
    bus_count *x = c->count = pst_alloc(sizeof *x);
    atomic_store(&x->owners, 2);
    x->conf = pst_bus_conf_copy(c->conf);
    x->group = pst_strdup(c->group);
    x->topics = pst_alloc((c->opts.n_topics + 1) * sizeof *x->topics);
    for (; x->n_topics < c->opts.n_topics; x->n_topics++)
        x->topics[x->n_topics] = pst_strdup(c->opts.topics[x->n_topics]);
    bus_hand_start(c->count_hand, count, x);
}

static void judge(pst_consumer *c, long have, long want)
{
    char why[300];
    bool in_hand = have >= (long)c->n_parts; /* else what the members have is not said in words that we read */
    c->short_times = in_hand && have && have < want ? c->short_times + 1 : 0;
    c->counted = !c->short_times && (want || ++c->undecided >= UNDECIDED_MAX);
    if (c->short_times < TIMES)
        return;
    snprintf(why, sizeof why, "its topics have %ld partitions, and its members only %ld of them: they were added while all were away", want,
             have);
    pst_log(PST_LOG_WARN, "bus", "event=partitions_of_nobody group=%s why=\"%s\"", c->group, why);
    pst_err e = {0};
    pst_err_set(&e, PST_ESTATE, PST_CLASS_RETRY, "kafka", 0, "%s", why);
    pst_consumer_leave(c);
    bus_consumer_astray(c, &e, NULL);
    c->counted = true;
}

void bus_check_growth(pst_consumer *c)
{
    int64_t now = pst_mono_us();
    if (c->counted || !c->signature || !c->assigned)
        return;
    if (!c->count_us)
        c->count_us = now + FIRST_US;
    if (c->count && bus_hand_wait(c->count_hand, 0)) {
        judge(c, c->count->have, c->count->want);
        let_go(c->count);
        c->count = NULL;
        c->count_us = now + NEXT_US;
    } else if (!c->count && now >= c->count_us && bus_hand_need(&c->count_hand)) {
        begin(c);
    }
}

void bus_growth_done(pst_consumer *c)
{
    let_go(c->count);
    bus_hand_free(c->count_hand);
}
