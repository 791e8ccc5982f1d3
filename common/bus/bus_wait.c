/* bus_wait.c - waiting for the group's coordinator: every such wait ends, says what it waits for, and looks whether anybody still asks.
 *
 * librdkafka never connects again once its consumer has a fatal error (a static member that was fenced), yet goes on answering "timed out"; and
 * it hides UNSTABLE_OFFSET_COMMIT, which a broker gives while offsets of the group lie in an open transaction, behind the same time-out. So a
 * loop that believes the code alone may wait for ever. */
#include "common/bus/bus_consumer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MAX_US     (BUS_WAIT_MAX_MS * 1000LL) /* then a new consumer asks anew */
#define FIRST_US        (3 * 1000000LL)            /* an election takes less */
#define AGAIN_US        (10 * 1000000LL)
#define HANGING_US      (90 * 1000000LL) /* beyond any transaction.timeout.ms that is usual here, and the coordinator's look at it */
#define LOOK_MS         2000
#define STEP_BACK_MS    100
#define OWN_FAULT_TIMES 2 /* others were answered meanwhile, so often in a row */

/* Of which partitions? They have to be named: asked for all, a coordinator leaves out those of which nothing is committed, pending or not. */
static bus_places *asked_for(const pst_consumer *c, const bus_wait *w)
{
    if (w->about)
        return bus_places_copy(w->about);
    bus_places *list = bus_places_new();
    for (size_t i = 0; i < c->n_parts; i++)
        bus_places_add(list, c->parts[i].topic, c->parts[i].partition);
    return list;
}

/* Why does the coordinator not tell this consumer the committed offsets? True: it tells others, so the consumer itself is at fault. */
static bool find_reason(pst_consumer *c, const bus_wait *w, int code, char *ret, size_t size)
{
    pst_err e = {0}, ignored = {0};
    bus_places *of = asked_for(c, w);
    bool answered = of->n && bus_group_offsets(c->conf, c->group, of, false, NULL, &e) == 0,
         stable = answered && bus_group_offsets(c->conf, c->group, of, true, NULL, &ignored) == 0;
    if (answered && !stable)
        bus_peers_end(c, of);
    bus_places_free(of);
    if (stable)
        snprintf(ret, size, "the coordinator of group %s answers others, but not this consumer (%s)", c->group, bus_code_text(code));
    else if (answered)
        snprintf(ret, size, "offsets of group %.150s are pending in an open transaction (UNSTABLE_OFFSET_COMMIT): %s", c->group,
                 pst_mono_us() - w->begun_us > HANGING_US
                     ? "its coordinator should have ended it long ago; kafka-transactions.sh find-hanging names it, abort ends it"
                     : "another producer has not ended it, or was killed and its transaction.timeout.ms is not over");
    else
        snprintf(ret, size, "%.300s", e.code ? e.text : bus_code_text(code));
    return stable;
}

/* True: this consumer is at fault, a new one would be answered. */
static bool tell(pst_consumer *c, bus_wait *w, int code, int64_t now)
{
    char why[400];
    w->own_fault = find_reason(c, w, code, why, sizeof why) ? w->own_fault + 1 : 0;
    pst_log(PST_LOG_WARN, "bus", "event=waiting_for_%s group=%s seconds=%lld why=\"%s\"", w->what, c->group,
            (long long)((now - w->begun_us) / 1000000), why);
    w->reported_us = now;
    if (c->opts.on_wait)
        c->opts.on_wait(c->opts.arg, why);
    return w->own_fault >= OWN_FAULT_TIMES;
}

int bus_wait_more(pst_consumer *c, bus_wait *w, int code, pst_err *err)
{
    char text[300];
    int fatal = bus_fatal(c->link, text, sizeof text);
    if (fatal)
        return bus_err(err, c->conf, fatal, text, "the consumer of group %s is dead", c->group);
    pst_err_class cls;
    int rc = bus_code(code, &cls);
    if (cls == PST_CLASS_FATAL)
        return bus_err(err, c->conf, code, NULL, "cannot read the committed offsets of group %s", c->group);
    if (pst_stop_requested())
        return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "kafka", rc, "told to stop while the broker is away");
    int64_t now = pst_mono_us();
    if (!w->begun_us)
        w->begun_us = now;
    if (now - w->begun_us > WAIT_MAX_US)
        return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_FATAL, "kafka", code,
                           "the committed offsets of group %s did not come within %lld s: %s", c->group, WAIT_MAX_US / 1000000,
                           bus_code_text(code));
    if (now - w->begun_us > FIRST_US && now - w->reported_us > (w->own_fault ? FIRST_US : AGAIN_US) && tell(c, w, code, now))
        return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_FATAL, "kafka", code,
                           "the coordinator of group %s answers others, but not this consumer: %s", c->group, bus_code_text(code));
    bus_consumer_stay(c);
    pst_sleep_ms(STEP_BACK_MS);
    return 0;
}

void bus_wait_over(pst_consumer *c, bus_wait *w)
{
    if (w->reported_us && c->opts.on_wait)
        c->opts.on_wait(c->opts.arg, NULL);
    *w = (bus_wait){.what = w->what, .about = w->about};
}

bus_places *bus_consumer_unbegun(const pst_consumer *c, int64_t before_us)
{
    bus_places *list = bus_places_new();
    for (size_t i = 0; i < c->n_parts; i++) {
        const bus_part *p = &c->parts[i];
        if (p->base < 0 && p->next == -1 && !p->done && p->assigned_us < before_us)
            bus_places_add(list, p->topic, p->partition);
    }
    return list;
}

/* A partition that was assigned gives a record or its end at once; one that gives neither waits, inside librdkafka, for its committed offset. While
 * others flow the coordinator is not asked, since its answer would hold them up; that none waits any more is seen without it. */
void bus_check_start(pst_consumer *c)
{
    int64_t now = pst_mono_us();
    if (now < c->start_check_us)
        return;
    c->start_check_us = now + FIRST_US;
    bus_places *list = bus_consumer_unbegun(c, now - FIRST_US);
    bool unknown = list->n && c->n;
    int code = list->n && !c->n ? bus_committed(c->link, list, LOOK_MS) : 0;
    bus_places_free(list);
    if (unknown)
        return;
    if (!code) {
        bus_wait_over(c, &c->start_wait);
        return;
    }
    pst_err e = {0};
    c->start_wait.what = "start_offsets";
    if (!c->start_wait.begun_us)
        c->start_wait.begun_us = now - FIRST_US;
    bool own_fault = now - c->start_wait.reported_us > AGAIN_US && tell(c, &c->start_wait, code, now);
    if (own_fault)
        bus_err(&e, c->conf, code, NULL, "the coordinator of group %s answers others, but not this consumer", c->group);
    if (own_fault || (bus_fatal(c->link, NULL, 0) && bus_wait_more(c, &c->start_wait, code, &e) < 0))
        bus_consumer_astray(c, &e, NULL);
}
