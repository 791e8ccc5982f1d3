/* nodes.c - `penstock nodes`: the computers that jobs run on, as their heartbeats and the states of jobs tell; and what an operator says of
 * one: drain, resume, lost. What is said is a request like any other; the Trainer answers it on jobs.events. */
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/platform/nodes.h"
#include "common/platform/verb.h"
#include "verbs.h"

#include <stdio.h>
#include <string.h>

/* ---- the list -------------------------------------------------------------------------------------------------------------------- */

static void print_node(const json_t *n)
{
    char span[32], room[128];
    const json_t *free_ = json_object_get(n, "free");
    int64_t seen_us = pst_json_int(n, "seen_at", 0), now = pst_now_us();
    snprintf(room, sizeof room, "%.3g of %.3g, %.1f of %.1f GiB, %lld of %lld", pst_json_num(free_, "cpus", 0), pst_json_num(n, "cpus", 0),
             (double)pst_json_int(free_, "memory_bytes", 0) / (1 << 30), (double)pst_json_int(n, "memory_bytes", 0) / (1 << 30),
             (long long)pst_json_int(free_, "gpus", 0), (long long)pst_json_int(n, "gpus", 0));
    printf("%-32s %-10s %-9s %-40s %9lld  %s ago\n", pst_json_str(n, "node", ""), pst_json_str(n, "site", ""), pst_json_str(n, "state", ""),
           room, (long long)pst_json_int(n, "processes", 0), pst_span_text(now > seen_us ? now - seen_us : 0, span));
}

static int list(pst_verb_run *v)
{
    json_t *nodes = NULL, *n;
    size_t i;
    int rc = pst_nodes_read(v->client, &nodes, &v->err);
    if (json_array_size(nodes) && !v->settings.json)
        printf("%-32s %-10s %-9s %-40s %9s  %s\n", "NODE", "SITE", "STATE", "FREE CPUS, MEMORY, GPUS", "PROCESSES", "SEEN");
    json_array_foreach(nodes, i, n)
    {
        if (v->settings.json)
            pst_json_print(stdout, n);
        else
            print_node(n);
    }
    if (!rc && !json_array_size(nodes) && !v->settings.json && !v->settings.quiet)
        fprintf(stderr, "no LCM has reported yet; `penstock lcm` makes this computer a node\n");
    json_decref(nodes);
    return rc;
}

/* ---- drain, resume, lost --------------------------------------------------------------------------------------------------------- */

typedef struct nodes_opts {
    const char *reason, *user;
} nodes_opts;

static int tell(pst_verb_run *v, const nodes_opts *o, pst_job_action action, const char *name)
{
    pst_node_word word = {.action = action, .node = name, .user = pst_account_name(o->user), .reason = o->reason};
    pst_node_said said;
    int rc = pst_nodes_tell(v->client, &word, &said, &v->err);
    if (!rc && !v->settings.quiet)
        fprintf(stderr, "%s\n", said.text);
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
