/* nodes.c - nodes by their heartbeats (topic workers), less what the states of jobs say is given to jobs; and requests about one. What is said of a node is a
 * request like any other; the Trainer answers it on jobs.events, which is read from the end that it had before the request was published. */
#include "common/platform/nodes.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/stop.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/job_state.h"
#include "schemas/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT_US = 30 * 1000000, ANSWER_US = 10 * 1000000, PUBLISH_MS = 30000 };

typedef struct node {
    char *name;
    pst_worker_state w;
    int64_t seen_us;
    double cpus; /* given to jobs, like the next two */
    int64_t memory_bytes, gpus;
} node;

typedef struct gather {
    pst_client *client;
    pst_map workers; /* by key */
    pst_map used;    /* by "site/node" */
} gather;

static void node_free(void *p)
{
    node *n = p;
    if (!n)
        return;
    pst_event_clear(&pst_worker_state_type, &n->w);
    free(n->name);
    free(n);
}

static int take_worker(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gather *g = arg;
    node *n = r->value ? pst_alloc(sizeof *n) : NULL;
    int rc = n ? pst_codec_decode(g->client->codec, &pst_worker_state_type, r->value, r->value_len, r->timestamp_ms, &n->w, err) : 0;
    if (rc < 0 && err->cls != PST_CLASS_RETRY) { /* what others write there is no node */
        free(n);
        pst_err_clear(err);
        return 0;
    }
    if (rc < 0) {
        free(n);
        return rc;
    }
    if (n && strcmp(n->w.kind, "lcm")) {
        node_free(n);
        return 0;
    }
    if (n) {
        n->name = pst_strdup(*n->w.node ? n->w.node : n->w.worker_id);
        n->seen_us = !strcmp(n->w.state, "lost") ? n->w.time : r->timestamp_ms * 1000;
        node_free(pst_map_put(&g->workers, key, n));
    } else {
        node_free(pst_map_take(&g->workers, key));
    }
    return 0;
}

static int take_job(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gather *g = arg;
    pst_job_state *s = r->value ? pst_alloc(sizeof *s) : NULL;
    int rc = s ? pst_codec_decode(g->client->codec, &pst_job_state_type, r->value, r->value_len, r->timestamp_ms, s, err) : 0;
    if (rc < 0) {
        free(s);
        if (err->cls == PST_CLASS_RETRY)
            return rc;
        pst_err_clear(err);
        return 0;
    }
    bool live = s && (s->state == PST_JOB_PUBLIC_STATE_PENDING || s->state == PST_JOB_PUBLIC_STATE_DOWNLOADING ||
                      s->state == PST_JOB_PUBLIC_STATE_PROCESSING || s->state == PST_JOB_PUBLIC_STATE_STORING);
    pst_job_state *old = live ? pst_map_put(&g->used, key, s) : pst_map_take(&g->used, key);
    if (old)
        pst_event_clear(&pst_job_state_type, old);
    free(old);
    if (s && !live) {
        pst_event_clear(&pst_job_state_type, s);
        free(s);
    }
    return 0;
}

static void charge(gather *g, node *n)
{
    for (size_t i = 0; i < g->used.n; i++) {
        const pst_job_state *s = g->used.at[i].key ? g->used.at[i].value : NULL;
        for (size_t k = 0; s && !strcmp(s->site, n->w.site) && k < s->n_processes; k++) {
            const pst_job_process *p = &s->processes[k];
            if (strcmp(pst_job_process_node(s, p), n->name) != 0)
                continue;
            n->cpus += s->cpus;
            n->memory_bytes += s->memory_bytes;
            n->gpus += pst_process_is_ranked(p->name) ? s->gpus : 0;
        }
    }
}

/* ready draining silent lost; and stopped, for an LCM that said so itself */
static const char *state_of(const node *n)
{
    if (!strcmp(n->w.state, "lost") || !strcmp(n->w.state, "stopped"))
        return n->w.state;
    if (pst_now_us() - n->seen_us > SILENT_US)
        return "silent";
    return !strcmp(n->w.state, "running") ? "ready" : "draining";
}

static json_t *node_json(const node *n)
{
    const char *processes = pst_str_map_get(n->w.details, n->w.n_details, "processes");
    double cpus = n->w.cpus > n->cpus ? n->w.cpus - n->cpus : 0;
    int64_t memory = n->w.memory_bytes > n->memory_bytes ? n->w.memory_bytes - n->memory_bytes : 0;
    int64_t gpus = n->w.gpus > n->gpus ? n->w.gpus - n->gpus : 0;
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:I, s:i, s:{s:f, s:I, s:I}, s:i, s:I, s:I}", "node", n->name, "site", n->w.site, "state",
                     state_of(n), "host", n->w.host, "cpus", n->w.cpus, "memory_bytes", (json_int_t)n->w.memory_bytes, "gpus",
                     (int)n->w.gpus, "free", "cpus", cpus, "memory_bytes", (json_int_t)memory, "gpus", (json_int_t)gpus, "processes",
                     processes ? atoi(processes) : 0, "seen_at", (json_int_t)n->seen_us, "epoch", (json_int_t)n->w.epoch);
}

int pst_nodes_read(pst_client *c, json_t **ret_nodes, pst_err *err)
{
    gather g = {.client = c};
    json_t *list = json_array();
    int rc = pst_client_scan(c, PST_TOPIC_WORKERS, NULL, take_worker, &g, err);
    if (!rc)
        rc = pst_client_scan(c, PST_TOPIC_JOBS_STATE, NULL, take_job, &g, err);
    for (size_t i = 0; !rc && i < g.workers.n; i++) {
        node *n = g.workers.at[i].key ? g.workers.at[i].value : NULL;
        if (!n)
            continue;
        charge(&g, n);
        json_array_append_new(list, node_json(n));
    }
    for (size_t i = 0; i < g.used.n; i++)
        if (g.used.at[i].key)
            pst_event_clear(&pst_job_state_type, g.used.at[i].value);
    pst_map_done(&g.used, free);
    pst_map_done(&g.workers, node_free);
    if (rc < 0)
        json_decref(list);
    else
        *ret_nodes = list;
    return rc;
}

/* ---- drain, resume, lost --------------------------------------------------------------------------------------------------------- */

static int open_answers(pst_client *c, pst_consumer **ret, pst_err *err)
{
    const char *topic = pst_client_topic(c, PST_TOPIC_JOBS_EVENTS);
    pst_topic_info info = {0};
    int rc = pst_admin_topic(c->bus, topic, &info, 10000, err);
    pst_range *ranges = pst_alloc((size_t)(info.partitions + 1) * sizeof *ranges);
    for (int i = 0; !rc && i < info.partitions; i++)
        ranges[i] = (pst_range){topic, i, info.high[i], -1};
    if (!rc)
        rc = pst_consumer_new(c->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = (size_t)info.partitions}, ret, err);
    free(ranges);
    pst_topic_info_done(&info);
    return rc;
}

/* 1: it was the answer; < 0: it was a refusal. */
static int look_at(pst_client *c, const pst_record *r, pst_node_said *said, pst_err *err)
{
    pst_job_event e;
    int rc = 0;
    if (!r->value || pst_codec_decode(c->codec, &pst_job_event_type, r->value, r->value_len, r->timestamp_ms, &e, NULL) < 0)
        return 0;
    if (e.request_id && !strcmp(e.request_id, said->request_id)) {
        bool refused = e.type == PST_JOB_EVENT_TYPE_REJECTED, unknown = e.reason_code && !strcmp(e.reason_code, "UNKNOWN_NODE");
        rc = 1;
        if (refused)
            rc = pst_err_set(err, unknown ? PST_ENOTFOUND : PST_ESTATE, PST_CLASS_DATA, "nodes", 0, "%s", e.reason ? e.reason : "refused");
        snprintf(said->text, sizeof said->text, "%s", e.reason ? e.reason : "done");
    }
    pst_event_clear(&pst_job_event_type, &e);
    return rc;
}

static int wait_for_answer(pst_client *c, pst_consumer *answers, pst_node_said *said, pst_err *err)
{
    int64_t begin = pst_mono_us();
    for (;;) {
        pst_batch b;
        int rc = pst_consumer_poll(answers, &(pst_poll){.records_max = 500, .timeout_ms = 50}, &b, err);
        for (size_t i = 0; rc == 0 && i < b.n; i++)
            rc = look_at(c, &b.records[i], said, err);
        if (rc)
            return rc < 0 ? rc : 0;
        pst_err_clear(err); /* an outage that the poll reports is no failure of ours */
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "nodes", 0, "stopped");
        if (pst_mono_us() - begin > ANSWER_US)
            return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "nodes", 0,
                               "published; no Trainer has answered within %d s. It will when it runs", ANSWER_US / 1000000);
    }
}

int pst_nodes_tell(pst_client *c, const pst_node_word *word, pst_node_said *ret_said, pst_err *err)
{
    pst_node_said said = {0};
    pst_consumer *answers = NULL;
    pst_uuid7(said.request_id);
    pst_job_request r = {
        .request_id = said.request_id, .action = word->action, .user = (char *)(uintptr_t)word->user, .time = pst_now_us()};
    pst_str_map_set(&r.options, &r.n_options, "node", word->node);
    if (word->reason)
        pst_str_map_set(&r.options, &r.n_options, "reason", word->reason);
    if (word->is_operator)
        pst_str_map_set(&r.options, &r.n_options, PST_REQUEST_ROLE, "operator");
    int rc = open_answers(c, &answers, err);
    if (!rc)
        rc = pst_client_publish(c, PST_TOPIC_JOBS_REQUESTS, &pst_job_request_type, word->node, &r, PUBLISH_MS, &said.partition,
                                &said.offset, err);
    if (!rc)
        rc = wait_for_answer(c, answers, &said, err);
    pst_consumer_free(answers);
    for (size_t i = 0; i < r.n_options; i++) {
        free(r.options[i].key);
        free(r.options[i].value);
    }
    free(r.options);
    if (!rc)
        *ret_said = said;
    return rc;
}
