/* neighbours.c - asks the topic of heartbeats itself, and rarely: following it all the time would cost every LCM for a question that only an old
 * Trainer raises. Two that start at once each wait until the other's first heartbeat can be read, so that at most one of them
 * finds itself alone. */
#include "lcm/neighbours.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <string.h>

#define YOUNG_US 2500000
#define AGAIN_US 5000000
#define HEARD_US 60000000

typedef struct look {
    lcm_neighbours *n;
    int64_t now_us;
    pst_map others; /* worker id → heard and not stopped */
} look;

static int take(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    look *l = arg;
    pst_worker_state w;
    pst_err none = {0};
    if (!r->value)
        return 0;
    if (pst_codec_decode(l->n->client->codec, &pst_worker_state_type, r->value, r->value_len, r->timestamp_ms, &w, &none) < 0) {
        if (none.cls != PST_CLASS_RETRY) /* somebody else wrote there */
            return 0;
        *err = none;
        return none.code;
    }
    bool other = !strcmp(w.kind, "lcm") && !strcmp(w.site, l->n->site) && strcmp(w.node ? w.node : "", l->n->node) != 0;
    bool gone = !strcmp(w.state, "stopped") || !strcmp(w.state, "lost") || l->now_us - w.time > HEARD_US;
    if (other)
        pst_map_put(&l->others, key ? key : "", gone ? NULL : l->n);
    pst_event_clear(&pst_worker_state_type, &w);
    return 0;
}

int lcm_neighbours_alone(lcm_neighbours *n)
{
    int64_t now = pst_mono_us();
    if (!n->since_us || now - n->since_us < YOUNG_US)
        return -1;
    if (n->asked_us && now - n->asked_us < AGAIN_US)
        return n->alone;
    look l = {.n = n, .now_us = pst_now_us()};
    pst_err err = {0};
    if (pst_client_scan_since(n->client, PST_TOPIC_WORKERS, NULL, (l.now_us - HEARD_US) / 1000, take, &l, &err) < 0) {
        pst_log_err("lcm", &err);
        pst_map_done(&l.others, NULL);
        return -1;
    }
    n->alone = true;
    for (size_t i = 0; i < l.others.n; i++)
        n->alone = n->alone && !(l.others.at[i].key && l.others.at[i].value);
    n->asked_us = now;
    pst_map_done(&l.others, NULL);
    return n->alone;
}
