/* bus_quiet.c - a member of a group that is given nothing: is there nothing, is the broker mute, or has librdkafka lost its thread?
 *
 * A consumer of librdkafka that waits looks the same in all three. A broker that is frozen keeps its connections, and nothing is said of it before
 * socket.timeout.ms; what librdkafka knows of a partition's end is as old as its last fetch. So whoever has heard nothing of a partition for a while,
 * with nothing left in its queue, asks for the end itself, on another thread, since librdkafka 2.0.2 waits for the answer as long as for any other
 * (socket.timeout.ms), whatever time-out it is given. No answer is said aloud; records that are there and do not come, too, and after a minute
 * of them a new consumer begins where the committed offset says. */
#include "common/bus/bus_consumer.h"
#include "common/bus/bus_hand.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>

#define ASK_MS     2000
#define MUTE_US    (3 * 1000000LL) /* an answer that takes longer is waited for aloud */
#define LOST_TIMES 12              /* behind for so many times quiet_ms */
#define AGAIN_US   (30 * 1000000LL)
#define MOMENT_MS  200
#define CLOSE_MS   70000 /* beyond socket.timeout.ms */

typedef struct bus_look { /* the thread's while it is asked */
    bus_link link;
    bus_places *ends;
    int code;
    int64_t begun_us;
} bus_look;

static bool is_quiet(const pst_consumer *c, const bus_part *p, int64_t now)
{
    return !p->done && !p->held_until_us && !p->unreadable_us && p->next >= -1 && now - p->heard_us > c->quiet_ms * 1000LL;
}

static bus_places *quiet_parts(const pst_consumer *c, int64_t now)
{
    bus_places *list = bus_places_new();
    for (size_t i = 0; i < c->n_parts; i++)
        if (is_quiet(c, &c->parts[i], now))
            bus_places_add(list, c->parts[i].topic, c->parts[i].partition)->offset = PST_OFFSET_END;
    if (!c->n_parts && c->opts.n_topics) /* it has lost them, or there are more members than partitions: is anybody there? */
        bus_places_add(list, c->opts.topics[0], 0)->offset = PST_OFFSET_END;
    return list;
}

void bus_quiet_tell(pst_consumer *c, const char *why)
{
    int64_t now = pst_mono_us();
    if (!c->quiet_reported_us || now - c->quiet_reported_us > AGAIN_US) {
        pst_log(PST_LOG_WARN, "bus", "event=nothing_comes group=%s why=\"%s\"", c->group, why);
        c->quiet_reported_us = now;
    }
    if (c->opts.on_wait)
        c->opts.on_wait(c->opts.arg, why);
}

void bus_quiet_over(pst_consumer *c)
{
    if (!c->quiet_reported_us)
        return;
    c->quiet_reported_us = 0;
    pst_log(PST_LOG_INFO, "bus", "event=it_goes_on group=%s", c->group);
    if (c->opts.on_wait)
        c->opts.on_wait(c->opts.arg, NULL);
}

/* The partition that has been behind for longest; NULL = none is. */
static const bus_part *find_behind(pst_consumer *c, const bus_places *ends, int64_t now, int64_t *ret_end)
{
    const bus_part *worst = NULL;
    for (size_t i = 0; i < ends->n; i++) {
        const bus_place *end = &ends->at[i];
        bus_part *p = bus_part_find(c, end->topic, end->partition);
        if (!p || end->code || end->offset < 0)
            continue;
        if (p->next >= 0 && end->offset <= p->next) {
            p->behind_us = 0;
            continue;
        }
        if (!p->behind_us)
            p->behind_us = now; /* one that has given neither a record nor its end is behind, too */
        if (!worst || p->behind_us < worst->behind_us) {
            worst = p;
            *ret_end = end->offset;
        }
    }
    return worst;
}

static void judge(pst_consumer *c, const bus_part *p, int64_t end, int64_t now)
{
    char why[400];
    int64_t behind_us = now - p->behind_us;
    snprintf(why, sizeof why, "%.200s[%d] has records up to %lld, and after %lld none has come for %lld s", p->topic, p->partition,
             (long long)end - 1, (long long)(p->next > 0 ? p->next : p->committed) - 1, (long long)((now - p->heard_us) / 1000000));
    if (behind_us > c->quiet_ms * 1000LL)
        bus_quiet_tell(c, why);
    if (behind_us <= LOST_TIMES * c->quiet_ms * 1000LL)
        return;
    pst_err e = {0};
    pst_err_set(&e, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", BUS_ERR__TIMED_OUT, "%s", why);
    bus_consumer_astray(c, &e, NULL);
}

/* ---- asking -------------------------------------------------------------------------------------------------------------------------- */

static void ask(void *arg)
{
    bus_look *look = arg;
    look->code = look->link.lib->common->offsets_at(look->link.h, look->ends, ASK_MS);
}

static void forget(pst_consumer *c)
{
    bus_places_free(c->look->ends);
    free(c->look);
    c->look = NULL;
}

static void begin_look(pst_consumer *c, int64_t now)
{
    PST_ASSERT(!c->look);
    bus_places *ends = quiet_parts(c, now);
    if (!ends->n || !bus_hand_need(&c->look_hand)) {
        bus_places_free(ends);
        return;
    }
    c->look = pst_alloc(sizeof *c->look);
    *c->look = (bus_look){.link = c->link, .ends = ends, .begun_us = now};
    bus_hand_start(c->look_hand, ask, c->look);
}

static void tell_mute(pst_consumer *c, int code)
{
    pst_err e = {0};
    bus_err(&e, c->conf, code, NULL, "nothing is known of group %s's partitions", c->group);
    bus_quiet_tell(c, e.text);
}

static void take_answer(pst_consumer *c, int64_t now)
{
    int64_t end = 0;
    int code = c->look->code;
    const bus_part *p = code ? NULL : find_behind(c, c->look->ends, now, &end);
    if (p)
        judge(c, p, end, now);
    else if (bus_is_outage(code))
        tell_mute(c, code);
    else if (!code)
        bus_quiet_over(c);
    forget(c);
}

void bus_check_quiet(pst_consumer *c)
{
    int64_t now = pst_mono_us();
    if (c->look && bus_hand_wait(c->look_hand, 0)) {
        take_answer(c, now);
    } else if (c->look && now - c->look->begun_us > MUTE_US) {
        tell_mute(c, BUS_ERR__TIMED_OUT);
    } else if (!c->look && now >= c->quiet_check_us && !c->start_wait.begun_us) { /* else it is known what holds them up */
        begin_look(c, now);
        c->quiet_check_us = now + c->quiet_ms * (c->look && !c->quiet_reported_us ? 1000LL : 200LL);
    }
}

bool bus_quiet_is_mute(pst_consumer *c)
{
    return c->look && !bus_hand_wait(c->look_hand, MOMENT_MS);
}

bool bus_quiet_done(pst_consumer *c)
{
    if (c->look && !bus_hand_wait(c->look_hand, CLOSE_MS))
        return false;
    if (c->look)
        forget(c);
    bus_hand_free(c->look_hand);
    return true;
}
