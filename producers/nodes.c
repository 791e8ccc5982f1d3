/* nodes.c - `penstock nodes`: the computers that jobs run on, as their heartbeats and the states of jobs tell; and what an operator says of
 * one: drain, resume, lost. What is said is a request like any other; the Trainer answers it on jobs.events. */
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/map.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "verbs.h"
#include "common/bus/bus.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT_US = 30 * 1000000, ANSWER_US = 10 * 1000000 };

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

/* ---- the list -------------------------------------------------------------------------------------------------------------------- */

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
        if (!s || strcmp(s->site, n->w.site) || strcmp(s->node, n->name))
            continue;
        n->cpus += (double)s->n_processes * s->cpus;
        n->memory_bytes += (int64_t)s->n_processes * s->memory_bytes;
        n->gpus += (int64_t)s->learners * s->gpus;
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

static void print_node(const node *n, bool json)
{
    const char *processes = pst_str_map_get(n->w.details, n->w.n_details, "processes");
    double cpus = n->w.cpus > n->cpus ? n->w.cpus - n->cpus : 0;
    int64_t memory = n->w.memory_bytes > n->memory_bytes ? n->w.memory_bytes - n->memory_bytes : 0;
    int64_t gpus = n->w.gpus > n->gpus ? n->w.gpus - n->gpus : 0;
    if (json) {
        json_t *j =
            json_pack("{s:s, s:s, s:s, s:s, s:f, s:I, s:i, s:{s:f, s:I, s:I}, s:i, s:I, s:I}", "node", n->name, "site", n->w.site, "state",
                      state_of(n), "host", n->w.host, "cpus", n->w.cpus, "memory_bytes", (json_int_t)n->w.memory_bytes, "gpus",
                      (int)n->w.gpus, "free", "cpus", cpus, "memory_bytes", (json_int_t)memory, "gpus", (json_int_t)gpus, "processes",
                      processes ? atoi(processes) : 0, "seen_at", (json_int_t)n->seen_us, "epoch", (json_int_t)n->w.epoch);
        pst_json_print(stdout, j);
        json_decref(j);
        return;
    }
    char span[32], room[128];
    snprintf(room, sizeof room, "%.3g of %.3g, %.1f of %.1f GiB, %lld of %d", cpus, n->w.cpus, (double)memory / (1 << 30),
             (double)n->w.memory_bytes / (1 << 30), (long long)gpus, n->w.gpus);
    printf("%-32s %-10s %-9s %-40s %9s  %s ago\n", n->name, n->w.site, state_of(n), room, processes ? processes : "0",
           pst_span_text(pst_now_us() > n->seen_us ? pst_now_us() - n->seen_us : 0, span));
}

static int list(pst_verb_run *v)
{
    gather g = {.client = v->client};
    size_t shown = 0;
    int rc = pst_client_scan(v->client, PST_TOPIC_WORKERS, NULL, take_worker, &g, &v->err);
    if (!rc)
        rc = pst_client_scan(v->client, PST_TOPIC_JOBS_STATE, NULL, take_job, &g, &v->err);
    for (size_t i = 0; !rc && i < g.workers.n; i++) {
        node *n = g.workers.at[i].key ? g.workers.at[i].value : NULL;
        if (!n)
            continue;
        if (!shown++ && !v->settings.json)
            printf("%-32s %-10s %-9s %-40s %9s  %s\n", "NODE", "SITE", "STATE", "FREE CPUS, MEMORY, GPUS", "PROCESSES", "SEEN");
        charge(&g, n);
        print_node(n, v->settings.json);
    }
    if (!rc && !shown && !v->settings.json && !v->settings.quiet)
        fprintf(stderr, "no LCM has reported yet; `penstock lcm` makes this computer a node\n");
    for (size_t i = 0; i < g.used.n; i++)
        if (g.used.at[i].key)
            pst_event_clear(&pst_job_state_type, g.used.at[i].value);
    pst_map_done(&g.used, free);
    pst_map_done(&g.workers, node_free);
    return rc;
}

/* ---- drain, resume, lost --------------------------------------------------------------------------------------------------------- */

typedef struct nodes_opts {
    const char *reason, *user;
} nodes_opts;

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

/* 1: it was the answer (and said); < 0: it was a refusal. */
static int look_at(pst_verb_run *v, const pst_record *r, const char *request_id)
{
    pst_job_event e;
    int rc = 0;
    if (!r->value || pst_codec_decode(v->client->codec, &pst_job_event_type, r->value, r->value_len, r->timestamp_ms, &e, NULL) < 0)
        return 0;
    if (e.request_id && !strcmp(e.request_id, request_id)) {
        bool refused = e.type == PST_JOB_EVENT_TYPE_REJECTED, unknown = e.reason_code && !strcmp(e.reason_code, "UNKNOWN_NODE");
        rc = 1;
        if (refused)
            rc = pst_err_set(&v->err, unknown ? PST_ENOTFOUND : PST_ESTATE, PST_CLASS_DATA, "nodes", 0, "%s",
                             e.reason ? e.reason : "refused");
        if (!refused && !v->settings.quiet)
            fprintf(stderr, "%s\n", e.reason ? e.reason : "done");
    }
    pst_event_clear(&pst_job_event_type, &e);
    return rc;
}

static int wait_for_answer(pst_verb_run *v, pst_consumer *answers, const char *request_id)
{
    int64_t begin = pst_mono_us();
    for (;;) {
        pst_batch b;
        int rc = pst_consumer_poll(answers, &(pst_poll){.records_max = 500, .timeout_ms = 50}, &b, &v->err);
        for (size_t i = 0; rc == 0 && i < b.n; i++)
            rc = look_at(v, &b.records[i], request_id);
        if (rc)
            return rc < 0 ? rc : 0;
        pst_err_clear(&v->err); /* an outage that the poll reports is no failure of ours */
        if (pst_stop_requested())
            return pst_err_set(&v->err, PST_ESTOPPED, PST_CLASS_FATAL, "nodes", 0, "stopped");
        if (pst_mono_us() - begin > ANSWER_US)
            return pst_err_set(&v->err, PST_ETIMEDOUT, PST_CLASS_RETRY, "nodes", 0,
                               "published; no Trainer has answered within %d s. It will when it runs", ANSWER_US / 1000000);
    }
}

static int tell(pst_verb_run *v, const nodes_opts *o, pst_job_action action, const char *name)
{
    char uuid[37];
    pst_uuid7(uuid);
    pst_job_request r = {.request_id = uuid, .action = action, .user = (char *)pst_account_name(o->user), .time = pst_now_us()};
    pst_str_map_set(&r.options, &r.n_options, "node", name);
    if (o->reason)
        pst_str_map_set(&r.options, &r.n_options, "reason", o->reason);
    pst_consumer *answers = NULL;
    int rc = open_answers(v->client, &answers, &v->err);
    if (!rc)
        rc = pst_client_publish(v->client, PST_TOPIC_JOBS_REQUESTS, &pst_job_request_type, name, &r, 30000, NULL, NULL, &v->err);
    if (!rc)
        rc = wait_for_answer(v, answers, uuid);
    pst_consumer_free(answers);
    for (size_t i = 0; i < r.n_options; i++) {
        free(r.options[i].key);
        free(r.options[i].value);
    }
    free(r.options);
    return rc;
}

static const pst_opt nodes_table[] = {
    {"reason", 0, PST_OPT_STR, offsetof(nodes_opts, reason), "TEXT", NULL, "kept with the event"},
    {"user", 0, PST_OPT_STR, offsetof(nodes_opts, user), "U", NULL, "in whose name [PENSTOCK_USER, USER]"},
};
static const pst_usage nodes_usage = {
    "nodes",
    "[drain|resume|lost NODE]",
    "List the nodes that jobs run on, or say what is to become of one.",
    "A node is an LCM; a site is a name that nodes share. States: ready, draining (takes no new jobs), silent (not heard for 30 s; its "
    "jobs\n"
    "stay where they are), stopped, lost.\n"
    "drain and resume: the node takes no new jobs, takes them again. lost: your word that a silent node will not come back with its\n"
    "processes: its jobs go on elsewhere or end; should it come back after all, what is left of them there is ended.",
    "penstock nodes\npenstock nodes --json\npenstock nodes drain gpu3-1f00a2b4\npenstock nodes lost gpu3-1f00a2b4 --reason 'power supply'",
    nodes_table,
    sizeof nodes_table / sizeof *nodes_table,
    false};

static int nodes_run(int argc, char **argv)
{
    static const struct {
        const char *word;
        pst_job_action action;
    } words[] = {{"drain", PST_JOB_ACTION_NODE_DRAIN}, {"resume", PST_JOB_ACTION_NODE_RESUME}, {"lost", PST_JOB_ACTION_NODE_LOST}};
    nodes_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &nodes_usage, argc, argv, &o, 0, 2), rc = PST_EINVAL;
    if (status >= 0)
        return status;
    if (!v.n_args || (v.n_args == 1 && !strcmp(v.args[0], "list")))
        return pst_verb_end(&v, list(&v));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(v.args[0], words[i].word) && v.n_args == 2)
            return pst_verb_end(&v, tell(&v, &o, words[i].action, v.args[1]));
    rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "usage: penstock nodes, or penstock nodes drain|resume|lost NODE");
    return pst_verb_end(&v, rc);
}

const pst_verb pst_nodes_verb = {"nodes", "the computers that jobs run on", "jobs", nodes_run, PST_USAGES(&nodes_usage)};
