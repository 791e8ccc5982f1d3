/* nodes.c - the computers that jobs run on. Every LCM is a node with an id of its own and a lease, its heartbeat; a site is a name that nodes
 * share. A generation is given to one node and charged there. A node that is silent keeps its jobs: missing information is no evidence of
 * death. Only a person gives them up, one job (terminate --force) or the whole node (nodes lost); the generation is fenced then, and what
 * is left of it is ended when the node comes back. */
#include "common/base/address.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/seal.h"
#include "common/objects/members.h"
#include "schemas/deploy_digest.h"
#include "schemas/job_state.h"
#include "trainer/core_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ATTENTIVE_US = 5000000, UNTAKEN_US = 60000000 };

/* ---- leases ------------------------------------------------------------------------------------------------------ */

/* An LCM of before nodes had ids is one node of its site. */
static const char *node_name(const pst_worker_state *w)
{
    if (w->node && *w->node)
        return w->node;
    return w->worker_id && *w->worker_id ? w->worker_id : "lcm";
}

/* Whose loopback the node is on. An older LCM says its host's name only, and many are called localhost that are not one. */
static const char *computer_of(const pst_worker_state *w)
{
    const char *id = pst_str_map_get(w->details, w->n_details, PST_COMPUTER_DETAIL), *host = w->host ? w->host : "";
    if (id && *id)
        return id;
    return *host && strncmp(host, "localhost", 9) != 0 ? host : NULL;
}

static void take_gpu_types(trainer_node *n, const pst_worker_state *w)
{
    for (size_t i = 0; i < n->n_gpu_types; i++)
        free(n->gpu_types[i]);
    free(n->gpu_types);
    n->gpu_types = pst_alloc((w->n_gpu_types + 1) * sizeof *n->gpu_types);
    n->n_gpu_types = w->n_gpu_types;
    for (size_t i = 0; i < w->n_gpu_types; i++)
        n->gpu_types[i] = pst_strdup(w->gpu_types[i]);
}

void tcore_worker(tcore *c, const pst_worker_state *w, int64_t seen_us)
{
    if (strcmp(w->kind, "lcm"))
        return;
    trainer_node *n = tcore_node(c, w->site, node_name(w));
    n->capacity.cpu = llround((c->policy.cpus > 0 ? c->policy.cpus : w->cpus) * PST_CPU_UNIT);
    n->capacity.memory = c->policy.memory_bytes > 0 ? c->policy.memory_bytes : w->memory_bytes;
    n->capacity.gpus = c->policy.gpus >= 0 ? c->policy.gpus : w->gpus;
    take_gpu_types(n, w);
    n->epoch = w->epoch;
    n->proves = w->node && *w->node;
    n->site->had_old |= !n->proves;
    const char *seal_id = pst_str_map_get(w->details, w->n_details, PST_SEAL_DETAIL);
    n->opens = seal_id && c->policy.seal_id && !strcmp(seal_id, c->policy.seal_id);
    const char *floor = pst_str_map_get(w->details, w->n_details, PST_ISOLATION_DETAIL);
    if (!floor || pst_isolation_parse(floor, &n->floor) < 0)
        n->floor = PST_ISOLATION_DEFAULT;
    const char *address = pst_str_map_get(w->details, w->n_details, PST_ADDRESS_DETAIL);
    tcore_set_text(&n->address, n->proves && address && pst_address_is_numeric(address) ? address : NULL);
    const char *yields = pst_str_map_get(w->details, w->n_details, PST_YIELDS_DETAIL);
    n->yields = yields && !strcmp(yields, "yes");
    tcore_set_text(&n->computer, computer_of(w));
    n->known = true;
    n->lost = !strcmp(w->state, "lost"); /* our own word, read again; its next heartbeat takes it back */
    n->accepting = !strcmp(w->state, "running");
    n->stopped = !strcmp(w->state, "stopped");
    if (!n->lost)
        n->seen_us = seen_us > n->seen_us ? seen_us : n->seen_us;
}

void tcore_attend(tcore *c)
{
    if (!c->tick_us || c->now_us < c->tick_us || c->now_us - c->tick_us > ATTENTIVE_US)
        c->watch_us = c->now_us; /* we were away ourselves: others get their full time to be heard from now on */
    for (size_t i = 0; i < c->nodes.n && c->now_us < c->tick_us; i++) { /* the clock was set back: nobody was heard in the future */
        trainer_node *n = c->nodes.at[i].key ? c->nodes.at[i].value : NULL;
        if (n && n->seen_us > c->now_us)
            n->seen_us = c->now_us;
    }
    c->tick_us = c->now_us;
}

/* Silent for certain: we have listened for the whole time. */
static bool is_silent(const tcore *c, const trainer_node *n)
{
    int64_t since = n->seen_us > c->watch_us ? n->seen_us : c->watch_us;
    return n->lost || (c->watch_us && c->now_us - since > c->policy.silent_us);
}

/* ---- silence --------------------------------------------------------------------------------------------------------------------- */

/* Where the remark on silence stands in the job's reason, or NULL. */
static char *remark_in(const trainer_job *j, const char *node)
{
    char *head = pst_sprintf("node %s of site %s is silent", node, j->s.site);
    char *at = j->s.reason ? strstr(j->s.reason, head) : NULL;
    free(head);
    return at;
}

static void say_silent(tcore *c, trainer_job *j, const trainer_node *n)
{
    char when[32] = "the Trainer was started";
    if (n->seen_us)
        pst_time_text(n->seen_us, when);
    char *remark = pst_sprintf("node %s of site %s is silent: it has not been heard since %s, and nothing is known of what runs there; "
                               "`penstock terminate --force` ends the job without it, `penstock nodes lost %s` gives the node up",
                               n->name, j->s.site, when, n->name);
    char *reason = j->s.reason && *j->s.reason ? pst_sprintf("%s; %s", j->s.reason, remark) : pst_strdup(remark);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason_code = "NODE_SILENT", .reason = remark});
    free(reason);
    free(remark);
}

static void say_back(tcore *c, trainer_job *j, const trainer_node *n, const char *remark)
{
    size_t keep = (size_t)(remark - j->s.reason);
    char *base = pst_strndup(j->s.reason, keep > 2 ? keep - 2 : 0);
    char *reason = pst_sprintf("node %s of site %s reports again", n->name, j->s.site);
    tcore_set_text(&j->s.reason, *base ? base : NULL);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = reason});
    free(reason);
    free(base);
}

static bool lives_on(const trainer_job *j, const char *node)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (!pst_job_process_is_ended(j->s.processes[i].state) && !strcmp(pst_job_process_node(&j->s, &j->s.processes[i]), node))
            return true;
    return false;
}

/* Ends the generation without one of its nodes: what was not observed to have ended there counts as lost, and whatever still runs is fenced. On
 * other nodes it is ended as after any failure, and waited for. True: nothing of it was left, and j may be freed. */
static bool give_up(tcore *c, trainer_job *j, const char *node, const char *actor, const char *reason)
{
    tcore_command_to(c, j, node, PST_JOB_COMMAND_TYPE_KILL, NULL, reason);
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (!pst_job_process_is_ended(j->s.processes[i].state) && !strcmp(pst_job_process_node(&j->s, &j->s.processes[i]), node))
            j->s.processes[i].state = PST_JOB_PROCESS_STATE_LOST;
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.actor = actor, .reason_code = "S104", .reason = reason});
    if (j->s.stop_action == PST_JOB_STOP_ACTION_NONE)
        tcore_start_failing(c, j, NULL, "S104", reason);
    else
        tcore_set_text(&j->s.reason, reason);
    bool over = trainer_count_from(j, PST_JOB_PROCESS_STATE_EXITED, false) == (int)j->s.n_processes;
    tcore_conclude(c, j);
    return over;
}

static bool force_node(tcore *c, trainer_job *j, const char *node)
{
    char *actor = pst_sprintf("user:%s", j->s.stop_by);
    char *reason =
        pst_sprintf("ended by force by user %s: node %s of site %s is silent; what may still run there is fenced, and ended when "
                    "the node comes back",
                    j->s.stop_by, node, j->s.site);
    bool over = give_up(c, j, node, actor, reason);
    free(reason);
    free(actor);
    return over;
}

bool tcore_force(tcore *c, trainer_job *j)
{
    bool ends = j->s.stop_action == PST_JOB_STOP_ACTION_TERMINATE || j->s.stop_action == PST_JOB_STOP_ACTION_DELETE, over = false;
    if (!j->s.stop_force || !ends || !pst_job_state_is_live(j->s.state))
        return false;
    size_t n;
    const char **borrowed = trainer_job_nodes(j, &n);
    char **nodes = pst_alloc((n + 1) * sizeof *nodes); /* the job may end, and its names with it */
    for (size_t i = 0; i < n; i++)
        nodes[i] = pst_strdup(borrowed[i]);
    free(borrowed);
    for (size_t i = 0; i < n && !over; i++)
        if (is_silent(c, tcore_node(c, j->site->name, nodes[i])) && lives_on(j, nodes[i]))
            over = force_node(c, j, nodes[i]);
    for (size_t i = 0; i < n; i++)
        free(nodes[i]);
    free(nodes);
    return over;
}

/* Given to a site as a whole, by a Trainer of before nodes had ids, and nobody took it up: where several LCMs could have, none may. Now that
 * nodes can be told apart it is given to one. */
static bool is_untaken(const tcore *c, const trainer_job *j)
{
    if (*j->s.node || j->s.state != PST_JOB_PUBLIC_STATE_PENDING || c->nodes_unread || c->unsettled || !c->watch_us ||
        c->now_us - c->watch_us < UNTAKEN_US || c->now_us - j->s.since < UNTAKEN_US)
        return false;
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (j->s.processes[i].state >= PST_JOB_PROCESS_STATE_STARTED)
            return false;
    bool there = false;
    for (size_t i = 0; i < j->site->n_nodes; i++) {
        const trainer_node *n = j->site->nodes[i];
        bool heard = trainer_node_has_lease(c, n) && !n->stopped;
        if (heard && !n->proves) /* may be at it */
            return false;
        there = there || heard;
    }
    return there;
}

static void silences_of(tcore *c, trainer_job *j)
{
    size_t n_nodes;
    const char **nodes = trainer_job_nodes(j, &n_nodes);
    for (size_t i = 0; i < n_nodes; i++) {
        const trainer_node *n = tcore_node(c, j->s.site, nodes[i]);
        const char *remark = remark_in(j, nodes[i]);
        if (is_silent(c, n) && !remark && lives_on(j, nodes[i]))
            say_silent(c, j, n);
        else if (remark && trainer_node_has_lease(c, n))
            say_back(c, j, n, remark);
    }
    free(nodes);
}

void tcore_silences(tcore *c)
{
    for (size_t i = c->n_live; i-- > 0;) { /* from the end: one that ends is replaced by one seen already */
        trainer_job *j = c->live[i];
        if (is_untaken(c, j)) {
            give_up(c, j, "", "trainer", "an older Trainer gave it to no node in particular, and none has started it");
            continue;
        }
        if (tcore_force(c, j) || !*j->s.node) /* given to a site of before nodes had ids: nobody in particular is silent */
            continue;
        silences_of(c, j);
    }
}

/* ---- what an operator says of a node --------------------------------------------------------------------------------------------- */

static trainer_node *find_node(const tcore *c, const char *name)
{
    for (size_t i = 0; i < c->nodes.n; i++) {
        trainer_node *n = c->nodes.at[i].key ? c->nodes.at[i].value : NULL;
        if (n && n->known && !strcmp(n->name, name))
            return n;
    }
    return NULL;
}

static void node_lost(tcore *c, trainer_node *n, const char *actor, const char *by)
{
    char *reason = pst_sprintf("node %s of site %s was declared lost by %s", n->name, n->site->name, by);
    n->lost = true;
    n->accepting = false;
    for (size_t i = c->n_live; i-- > 0;)
        if (!strcmp(c->live[i]->s.site, n->site->name) && lives_on(c->live[i], n->name))
            give_up(c, c->live[i], n->name, actor, reason);
    tcore_tell_node(c, n, "lost");
    free(reason);
}

/* About a node, not about a job: its answer carries the request's id only. LOST is concluded here; draining and accepting are commands to
 * the node. */
void tcore_node_request(tcore *c, const pst_job_request *r, const char *by)
{
    const char *name = pst_str_map_get(r->options, r->n_options, "node");
    trainer_node *n = name ? find_node(c, name) : NULL;
    char *actor = pst_sprintf("user:%s", r->user), *text;
    if (!n) {
        text = name ? pst_sprintf("no node %.100s is known; `penstock nodes` lists them", name)
                    : pst_strdup("options.node is missing: which node is meant?");
        pst_complaints details = {0};
        pst_complain(&details, "node", 0, "%s", text);
        tcore_reject(
            c, NULL, "", r->request_id,
            &(trainer_say){.actor = actor, .reason_code = name ? "UNKNOWN_NODE" : "BAD_REQUEST", .reason = text, .details = &details});
        pst_complaints_done(&details);
    } else {
        bool lost = r->action == PST_JOB_ACTION_NODE_LOST, drain = r->action == PST_JOB_ACTION_NODE_DRAIN;
        text = pst_sprintf("node %s of site %s %s, says %s", n->name, n->site->name,
                           lost    ? "is lost"
                           : drain ? "takes no new jobs"
                                   : "takes jobs again",
                           by);
        tcore_answer(c, r->request_id, &(trainer_say){.actor = actor, .reason = text});
        if (lost) {
            node_lost(c, n, actor, by);
        } else {
            n->accepting = n->accepting && !drain;
            tcore_command_node(c, n, drain ? PST_JOB_COMMAND_TYPE_DRAIN : PST_JOB_COMMAND_TYPE_ACCEPT, r->request_id, text);
        }
    }
    free(text);
    free(actor);
}
