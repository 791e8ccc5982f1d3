/* after.c - read your own writes: `?after=TOPIC:PARTITION:OFFSET`, as the answer to a submission gave it. The request waits until what it reads, the store,
 * shows what became of that event:
 *
 *   a request   the Trainer has committed behind it ─► the last states that then stand on jobs.state ─► the store has read them
 *   a state     the store has read it
 *   a submission that this gateway has just published: the store has its job
 *
 * The Trainer commits a request's offset and the states that came of it in one transaction, so the states are there once the offset is. Offsets are
 * compared and nothing is guessed from the contents, so it holds for a halt of a job that had ended as well as for a submission. It has an end: an event that
 * is in Kafka is not lost, only its effect not seen yet, and that is what is answered then. */
#include "common/base/clock.h"
#include "common/base/settings.h"
#include "common/base/stop.h"
#include "common/base/thread.h"
#include "common/bus/bus.h"
#include "producers/gateway/after.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AWAIT_US = 8 * 1000000, LOOK_MS = 25, STORE_US = 20000, ADMIN_MS = 5000, WAITING_MAX = 64, PARTITIONS_MAX = 1000, RECENT = 1024 };

/* Submissions that this gateway published a moment ago: of them it knows the job, and need not ask Kafka how far the Trainer is, which takes a second. */
struct gw_recent {
    struct {
        int32_t partition;
        int64_t offset;
        char id[64], user[GW_NAME_MAX + 1];
    } at[RECENT];
    size_t n; /* ever noted; the oldest is the next to be overwritten */
};

void gw_after_note(gw_state *g, int32_t partition, int64_t offset, const char *training_id, const char *user)
{
    if (!g->recent)
        g->recent = pst_alloc(sizeof *g->recent);
    size_t i = g->recent->n++ % RECENT;
    g->recent->at[i].partition = partition;
    g->recent->at[i].offset = offset;
    snprintf(g->recent->at[i].id, sizeof g->recent->at[i].id, "%s", training_id);
    snprintf(g->recent->at[i].user, sizeof g->recent->at[i].user, "%s",
             strlen(user) > GW_NAME_MAX ? "" : user); /* a cut name is another's */
}

static const char *recent_job(const gw_state *g, const char *topic, int32_t partition, int64_t offset)
{
    if (!g->recent || strcmp(topic, pst_client_topic(g->client, PST_TOPIC_JOBS_REQUESTS)))
        return NULL;
    for (size_t i = 0; i < RECENT && i < g->recent->n; i++)
        if (g->recent->at[i].partition == partition && g->recent->at[i].offset == offset)
            return g->recent->at[i].id;
    return NULL;
}

const char *gw_after_owner(const gw_state *g, const char *training_id)
{
    for (size_t i = 0; g->recent && i < RECENT && i < g->recent->n; i++)
        if (!strcmp(g->recent->at[i].id, training_id))
            return g->recent->at[i].user;
    return NULL;
}

bool gw_after_knows(const gw_state *g, const char *training_id)
{
    return gw_after_owner(g, training_id) != NULL;
}

typedef struct waiting {
    gw_state *g;
    pst_http_req *req;
    pst_http_handler then;
    char *topic; /* as it was named */
    char *id;    /* of a submission of ours: the job that it made; NULL = not known */
    int32_t partition;
    int64_t offset, until_us;
    int64_t *next; /* per partition of jobs.state: the store must have read up to there; 0 = nothing */
    int n;
    pst_timer *timer;
    pst_err err;
    int rc;
} waiting;

static void waiting_free(waiting *w)
{
    pst_timer_free(w->timer);
    free(w->topic);
    free(w->id);
    free(w->next);
    free(w);
}

static int too_late(waiting *w, const char *who)
{
    return pst_err_set(&w->err, PST_ETIMEDOUT, PST_CLASS_RETRY, "gateway", 0,
                       "%s has not come to %s:%d:%lld within %d s; the event is not lost, ask again", who, w->topic, w->partition,
                       (long long)w->offset, AWAIT_US / 1000000);
}

static bool is_over(const waiting *w)
{
    return pst_stop_requested() || pst_mono_us() > w->until_us;
}

/* ---- the thread -------------------------------------------------------------------------------------------------------------------- */

/* Is there such a place? One that nothing stands at yet would be waited for in vain. */
static int check_place(waiting *w)
{
    pst_topic_info info = {0};
    int rc = pst_admin_topic(w->g->client->bus, w->topic, &info, ADMIN_MS, &w->err);
    bool there = !rc && w->partition < info.partitions && w->offset < info.high[w->partition];
    pst_topic_info_done(&info);
    if (!rc && !there)
        rc = pst_err_set(&w->err, PST_EINVAL, PST_CLASS_DATA, "gateway", 0, "nothing stands at %s:%d:%lld", w->topic, w->partition,
                         (long long)w->offset);
    return rc;
}

static int committed(waiting *w, const char *group, int64_t *ret, pst_err *err)
{
    pst_group_lag *rows = NULL;
    size_t n = 0;
    int rc = pst_admin_lag(w->g->client->bus, group, &rows, &n, ADMIN_MS, err);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(rows[i].topic, w->topic) && rows[i].partition == w->partition)
            *ret = rows[i].committed;
    pst_group_lag_free(rows, n);
    return rc;
}

static int await_trainer(waiting *w)
{
    char *group = pst_settings_topic(w->g->client->settings, "trainer"); /* trainer/shell.c */
    int64_t at = -1;
    int rc = 0;
    while (!rc && at <= w->offset) {
        rc = committed(w, group, &at, &w->err);
        if (!rc && at <= w->offset && is_over(w))
            rc = too_late(w, "the Trainer");
        else if (!rc && at <= w->offset)
            pst_sleep_ms(LOOK_MS);
    }
    free(group);
    return rc;
}

/* Where the last state of each partition stands: the store's position is behind that, and never behind the markers of transactions at a topic's end. */
static int find_ends(waiting *w)
{
    const char *topic = pst_client_topic(w->g->client, PST_TOPIC_JOBS_STATE);
    pst_topic_info info = {0};
    int rc = pst_admin_topic(w->g->client->bus, topic, &info, ADMIN_MS, &w->err);
    w->n = info.partitions;
    w->next = pst_alloc((size_t)(w->n + 1) * sizeof *w->next);
    pst_tail *tails = pst_alloc((size_t)(w->n + 1) * sizeof *tails);
    size_t looked = 0;
    for (int p = 0; !rc && p < w->n; p++)
        if (info.low[p] < info.high[p])
            tails[looked++] = (pst_tail){.topic = topic, .partition = p, .low = info.low[p], .end = info.high[p], .n = 1};
    if (!rc && looked)
        rc = pst_admin_tail(w->g->client->bus, tails, looked, false, ADMIN_MS, &w->err);
    for (size_t i = 0; !rc && i < looked; i++)
        w->next[tails[i].partition] = tails[i].from < tails[i].end ? tails[i].from + 1 : 0;
    free(tails);
    pst_topic_info_done(&info);
    return rc;
}

static void look(void *arg);

/* @thread loop */
static void read_on(void *arg)
{
    waiting *w = arg;
    if (!w->rc)
        w->timer = pst_timer_new(w->g->loop, 0, STORE_US, look, w);
    else
        look(w);
}

static void *await(void *arg)
{
    waiting *w = arg;
    bool state = !strcmp(w->topic, pst_client_topic(w->g->client, PST_TOPIC_JOBS_STATE));
    w->rc = check_place(w);
    if (!w->rc && !state)
        w->rc = await_trainer(w);
    if (!w->rc && !state)
        w->rc = find_ends(w);
    else if (!w->rc) {
        w->n = w->partition + 1;
        w->next = pst_alloc((size_t)w->n * sizeof *w->next);
        w->next[w->partition] = w->offset + 1;
    }
    gw_post(w->g, read_on, w, NULL);
    return NULL;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------------- */

static bool store_has_read(waiting *w)
{
    const char *topic = pst_client_topic(w->g->client, PST_TOPIC_JOBS_STATE);
    pst_err err = {0};
    pst_store *s = gw_store_lock(w->g, &err);
    bool has = s != NULL;
    json_t *doc = NULL;
    if (has && w->id)
        has = pst_store_get(s, "jobs", w->id, &doc, &err) == 0;
    json_decref(doc);
    for (int p = 0; has && p < w->n; p++) {
        int64_t next = 0;
        has = !w->next[p] || (pst_store_position_get(s, topic, p, &next, &err) == 0 && next >= w->next[p]);
    }
    gw_store_unlock(w->g);
    return has;
}

static void look(void *arg)
{
    waiting *w = arg;
    bool has = !w->rc && store_has_read(w);
    if (!w->rc && !has && !is_over(w) && !pst_http_gone(w->req))
        return;
    if (!w->rc && !has)
        w->rc = too_late(w, "the store");
    if (w->rc)
        pst_http_problem_err(w->req, &w->err);
    else
        w->then(w->g, w->req);
    PST_ASSERT(w->g->afters > 0);
    w->g->afters--;
    waiting_free(w);
}

/* "topic:partition:offset"; the platform's topic with or without its prefix. */
static bool parse(const gw_state *g, const char *text, waiting *to)
{
    const char *last = strrchr(text, ':'), *first = last;
    while (first && first > text && *--first != ':')
        ;
    char *end = NULL;
    if (!last || first == text || first == last || strspn(last + 1, "0123456789") != strlen(last + 1) || !last[1] || strlen(last + 1) > 18)
        return false;
    long long partition = strtoll(first + 1, &end, 10);
    bool whole = end == last && end > first + 1 && strspn(first + 1, "0123456789") == (size_t)(last - first - 1);
    if (!whole || partition >= PARTITIONS_MAX)
        return false;
    char *given = pst_strndup(text, (size_t)(first - text));
    static const pst_topic topics[] = {PST_TOPIC_JOBS_REQUESTS, PST_TOPIC_JOBS_STATE};
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        if (!strcmp(given, g->client->topics[topics[i]]) || !strcmp(given, pst_topic_get(topics[i])->suffix))
            to->topic = pst_strdup(g->client->topics[topics[i]]);
    free(given);
    to->partition = (int32_t)partition;
    to->offset = strtoll(last + 1, NULL, 10);
    return to->topic != NULL;
}

bool gw_after(gw_state *g, pst_http_req *req, pst_http_handler then)
{
    const char *text = gw_query(req, "after");
    waiting w = {.g = g, .req = req, .then = then, .until_us = pst_mono_us() + AWAIT_US};
    if (!text)
        return false;
    if (!parse(g, text, &w)) {
        pst_http_problem(req, 400, "no-position", NULL,
                         "`after` is TOPIC:PARTITION:OFFSET as the answer to a submission has them; TOPIC is jobs.requests or jobs.state");
        return true;
    }
    if (g->afters >= WAITING_MAX) {
        free(w.topic);
        pst_http_add_header(req, "Retry-After", "1");
        pst_http_problem(req, 503, "busy", NULL, "so many requests wait for their events already as there may be; ask again in a moment");
        return true;
    }
    waiting *mine = pst_alloc(sizeof *mine);
    *mine = w;
    g->afters++;
    const char *id = recent_job(g, w.topic, w.partition, w.offset);
    if (id) {
        mine->id = pst_strdup(id);
        mine->timer = pst_timer_new(g->loop, 0, STORE_US, look, mine);
    } else if (pst_thread_detached("gateway-after", await, mine)) {
        mine->rc = pst_err_set(&mine->err, PST_EAGAIN, PST_CLASS_RETRY, "sys", 0, "no thread to be had; ask again later");
        look(mine);
    }
    return true;
}
