/* nodes.c - the computers that jobs run on. Every LCM is a node with an id of its own and a lease, its heartbeat; a site is a name that nodes
 * share. A generation is given to one node and charged there. A node that is silent keeps its jobs: missing information is no evidence of
 * death. Only a person gives them up, one job (terminate --force) or the whole node (nodes lost); the generation is fenced then, and what
 * is left of it is ended when the node comes back.
 *
 * Whom the Trainer believes: each generation has a nonce, known to its node and its supervisors. The state keeps the nonce's digest only. */
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/seal.h"
#include "schemas/deploy_digest.h"
#include "trainer/core_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ATTENTIVE_US = 5000000, CHECK_EVERY_US = 5000000, UNTAKEN_US = 60000000 };

/* ---- nodes and their leases ------------------------------------------------------------------------------------------------------ */

trainer_node *tcore_node(tcore *c, const char *site, const char *name)
{
    char *key = pst_sprintf("%s/%s", site, name);
    trainer_node *n = pst_map_get(&c->nodes, key);
    if (!n) {
        n = pst_alloc(sizeof *n);
        n->name = pst_strdup(name);
        n->site = tcore_site(c, site);
        pst_map_put(&c->nodes, key, n);
        trainer_site *s = n->site;
        s->nodes = pst_realloc(s->nodes, (s->n_nodes + 1) * sizeof(trainer_node *));
        size_t at = s->n_nodes++;
        for (; at && strcmp(s->nodes[at - 1]->name, name) > 0; at--)
            s->nodes[at] = s->nodes[at - 1];
        s->nodes[at] = n;
    }
    free(key);
    return n;
}

void trainer_node_free(void *node)
{
    trainer_node *n = node;
    if (!n)
        return;
    free(n->name);
    free(n);
}

/* An LCM of before nodes had ids is one node of its site. */
static const char *node_name(const pst_worker_state *w)
{
    if (w->node && *w->node)
        return w->node;
    return w->worker_id && *w->worker_id ? w->worker_id : "lcm";
}

void tcore_worker(tcore *c, const pst_worker_state *w, int64_t seen_us)
{
    if (strcmp(w->kind, "lcm"))
        return;
    trainer_node *n = tcore_node(c, w->site, node_name(w));
    n->capacity.cpu = llround((c->policy.cpus > 0 ? c->policy.cpus : w->cpus) * PST_CPU_UNIT);
    n->capacity.memory = c->policy.memory_bytes > 0 ? c->policy.memory_bytes : w->memory_bytes;
    n->capacity.gpus = c->policy.gpus >= 0 ? c->policy.gpus : w->gpus;
    n->epoch = w->epoch;
    n->proves = w->node && *w->node;
    const char *seal_id = pst_str_map_get(w->details, w->n_details, PST_SEAL_DETAIL);
    n->opens = seal_id && c->policy.seal_id && !strcmp(seal_id, c->policy.seal_id);
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

static bool has_lease(const tcore *c, const trainer_node *n)
{
    return n->known && !n->lost && c->now_us - n->seen_us <= c->policy.silent_us;
}

/* Silent for certain: we have listened for the whole time. */
static bool is_silent(const tcore *c, const trainer_node *n)
{
    int64_t since = n->seen_us > c->watch_us ? n->seen_us : c->watch_us;
    return n->lost || (c->watch_us && c->now_us - since > c->policy.silent_us);
}

/* ---- charges --------------------------------------------------------------------------------------------------------------------- */

void tcore_charge(tcore *c, trainer_job *j)
{
    PST_ASSERT(!j->charged);
    j->node = tcore_node(c, j->s.site, j->s.node);
    j->charged = true;
    j->node->used.cpu += j->needs.cpu;
    j->node->used.memory += j->needs.memory;
    j->node->used.gpus += j->needs.gpus;
}

void tcore_release(tcore *c, trainer_job *j)
{
    if (!j->charged)
        return;
    trainer_needs *used = &j->node->used;
    j->charged = false;
    used->cpu -= j->needs.cpu;
    used->memory -= j->needs.memory;
    used->gpus -= j->needs.gpus;
    PST_ASSERT(used->cpu >= 0 && used->memory >= 0 && used->gpus >= 0);
}

/* ---- where a job goes ------------------------------------------------------------------------------------------------------------ */

static char *gib(int64_t bytes)
{
    return pst_sprintf("%.4g GiB", (double)bytes / (double)((int64_t)1 << 30));
}

/* "2 CPUs: 1 of 4 free" for each thing of which there is not enough; NULL when it fits. */
static char *shortage(const trainer_needs *needs, const trainer_needs *capacity, const trainer_needs *used)
{
    pst_buf b = {0};
    trainer_needs f = {capacity->cpu - used->cpu, capacity->memory - used->memory, capacity->gpus - used->gpus};
    f = (trainer_needs){f.cpu > 0 ? f.cpu : 0, f.memory > 0 ? f.memory : 0, f.gpus > 0 ? f.gpus : 0};
    if (needs->cpu > f.cpu)
        pst_buf_printf(&b, "%.6g CPUs: %.6g of %.6g free", (double)needs->cpu / PST_CPU_UNIT, (double)f.cpu / PST_CPU_UNIT,
                       (double)capacity->cpu / PST_CPU_UNIT);
    if (needs->memory > f.memory) {
        char *n = gib(needs->memory), *o = gib(f.memory), *all = gib(capacity->memory);
        pst_buf_printf(&b, "%s%s of memory: %s of %s free", b.len ? ", " : "", n, o, all);
        free(n);
        free(o);
        free(all);
    }
    if (needs->gpus > f.gpus)
        pst_buf_printf(&b, "%s%lld GPUs: %lld of %lld free", b.len ? ", " : "", (long long)needs->gpus, (long long)f.gpus,
                       (long long)capacity->gpus);
    return b.len ? pst_buf_steal(&b) : NULL;
}

char *trainer_queue_never(const trainer_site *site, const trainer_needs *needs)
{
    static const trainer_needs nothing = {0};
    const trainer_node *widest = NULL;
    size_t n = 0;
    for (size_t i = 0; i < site->n_nodes; i++) {
        const trainer_node *x = site->nodes[i];
        char *text = x->known && !x->lost ? shortage(needs, &x->capacity, &nothing) : NULL;
        if (x->known && !x->lost && !text)
            return NULL;
        n += text != NULL;
        widest = text && (!widest || x->capacity.cpu > widest->capacity.cpu) ? x : widest;
        free(text);
    }
    if (!widest)
        return NULL;
    char *text = shortage(needs, &widest->capacity, &nothing);
    char *never = n == 1 ? pst_sprintf("site %s can never run it, even when empty: it needs %s", site->name, text)
                         : pst_sprintf("none of the %zu nodes of site %s can ever run it, even when empty: it needs %s on %s", n,
                                       site->name, text, widest->name);
    free(text);
    return never;
}

/* An LCM of before nodes had ids follows every DEPLOY of its site, whomever it is for: beside it nobody else may be given anything. */
static const trainer_node *takes_all(const tcore *c, const trainer_node *beside)
{
    for (size_t i = 0; i < beside->site->n_nodes; i++) {
        const trainer_node *n = beside->site->nodes[i];
        if (n != beside && !n->proves && !n->stopped && has_lease(c, n))
            return n;
    }
    return NULL;
}

/* Why the node takes nothing at the moment, or NULL. */
static char *node_closed(const tcore *c, const trainer_node *n)
{
    char when[32];
    if (n->lost)
        return pst_sprintf("node %s of site %s was declared lost and has not reported since", n->name, n->site->name);
    if (n->stopped)
        return pst_sprintf("the LCM of site %s (node %s) has stopped", n->site->name, n->name);
    if (!has_lease(c, n))
        return pst_sprintf("the LCM of site %s (node %s) is silent: it has not reported since %s", n->site->name, n->name,
                           pst_time_text(n->seen_us, when));
    if (!n->accepting)
        return pst_sprintf("the LCM of site %s (node %s) is stopping or draining and takes no new jobs", n->site->name, n->name);
    const trainer_node *old = takes_all(c, n);
    if (old)
        return pst_sprintf("the LCM %s of site %s is of an older version that starts every job of its site, also those for node %s, which "
                           "gets none until that one is stopped or upgraded",
                           old->name, n->site->name, n->name);
    return NULL;
}

/* What the closed nodes of a site say: of the one heard last. */
static char *site_closed(const tcore *c, const trainer_site *s)
{
    const trainer_node *last = NULL;
    for (size_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i]->known && (!last || s->nodes[i]->seen_us > last->seen_us))
            last = s->nodes[i];
    return last ? node_closed(c, last) : pst_sprintf("no LCM of site %s has reported yet", s->name);
}

static int64_t free_cpu(const trainer_node *n)
{
    return n->capacity.cpu - n->used.cpu;
}

/* A job with checkpoints goes where they lie, unless that node is lost. "" = anywhere. */
static const char *bound_to(const trainer_job *j)
{
    for (size_t i = 0; *j->s.checkpoint_node && i < j->site->n_nodes; i++) {
        const trainer_node *n = j->site->nodes[i];
        if (!strcmp(n->name, j->s.checkpoint_node) && n->known && !n->lost)
            return n->name;
    }
    return "";
}

/* Where it ran before, since its folders are there; else where most is free. */
static trainer_node *better(const trainer_job *j, trainer_node *best, trainer_node *n)
{
    if (!best || !strcmp(n->name, j->s.node))
        return n;
    return strcmp(best->name, j->s.node) && free_cpu(n) > free_cpu(best) ? n : best;
}

trainer_node *trainer_site_place(const tcore *c, const trainer_job *j, char **ret_why, bool *ret_bound)
{
    const char *bound = bound_to(j);
    trainer_node *best = NULL;
    size_t open = 0;
    char *closed = NULL, *lacks = NULL;
    for (size_t i = 0; i < j->site->n_nodes; i++) {
        trainer_node *n = j->site->nodes[i];
        if (!n->known || (*bound && strcmp(n->name, bound)))
            continue;
        char *why = node_closed(c, n);
        if (why) {
            if (*bound)
                closed = pst_sprintf("its checkpoints lie on node %s: %s", bound, why);
        } else if (++open && !(why = shortage(&j->needs, &n->capacity, &n->used))) {
            best = better(j, best, n);
        } else if (!lacks) {
            lacks = pst_sprintf("%s%s%s", n->name, ": ", why);
        }
        free(why);
    }
    *ret_bound = *bound;
    if (!best && lacks)
        *ret_why = open == 1 ? pst_sprintf("it waits for %s", strstr(lacks, ": ") + 2)
                             : pst_sprintf("it waits for room on one of the %zu nodes of site %s; on %s", open, j->site->name, lacks);
    else if (!best)
        *ret_why = closed ? pst_strdup(closed) : site_closed(c, j->site);
    free(closed);
    free(lacks);
    return best;
}

/* ---- nonces ---------------------------------------------------------------------------------------------------------------------- */

/* From a key that only this Trainer knows: the core stays a function of its inputs. */
static char *make_nonce(const tcore *c, const trainer_job *j, const char *kind)
{
    char hex[65];
    char *text = pst_sprintf("%s %s %d %lld %lld", kind, j->s.training_id, j->s.generation, (long long)j->s.seq, (long long)c->now_us);
    pst_buf b = {0};
    pst_buf_add(&b, c->policy.nonce_key, sizeof c->policy.nonce_key);
    pst_buf_adds(&b, text);
    pst_sha256_hex(b.data, b.len, hex);
    pst_buf_done(&b);
    free(text);
    return pst_strndup(hex, 32);
}

void tcore_sign(tcore *c, trainer_job *j, pst_job_command *cmd)
{
    char hex[65] = "";
    bool deploy = cmd->command == PST_JOB_COMMAND_TYPE_DEPLOY;
    const trainer_node *n = tcore_node(c, j->s.site, j->s.node);
    cmd->node = pst_strdup(cmd->command == PST_JOB_COMMAND_TYPE_CLEAN ? "" : j->s.node); /* each node may hold folders of it */
    cmd->epoch = n->epoch;
    if (cmd->command == PST_JOB_COMMAND_TYPE_CLEAN || (deploy ? !n->proves : !*j->s.nonce_sha256)) {
        cmd->nonce = pst_strdup("");
    } else {
        cmd->nonce = make_nonce(c, j, pst_job_command_type_text(cmd->command));
        pst_nonce_digest(cmd->nonce, hex);
    }
    if (deploy) {
        tcore_set_text(&j->s.nonce_sha256, hex);
        tcore_set_text(&j->s.claim_sha256, "");
        if (*hex)
            pst_deploy_digest(cmd, hex);
        tcore_set_text(&j->s.spec_sha256, hex);
    } else if (*hex) {
        tcore_set_text(&j->s.claim_sha256, hex);
    }
}

/* About processes that its node does not have: then it knows no nonce but that of the command it answers. */
static bool may_claim(const pst_process_report *r)
{
    return r->type == PST_REPORT_TYPE_LOST || r->type == PST_REPORT_TYPE_DEPLOY_FAILED;
}

bool tcore_believes(tcore *c, trainer_job *j, const pst_process_report *r)
{
    char hex[65] = "";
    const char *nonce = r->nonce ? r->nonce : "", *node = r->node ? r->node : "";
    if (*nonce)
        pst_nonce_digest(nonce, hex);
    bool here = !*node || !*j->s.node || !strcmp(node, j->s.node);
    if (here &&
        (!*j->s.nonce_sha256 || !strcmp(hex, j->s.nonce_sha256) || (may_claim(r) && *j->s.claim_sha256 && !strcmp(hex, j->s.claim_sha256))))
        return true;
    c->counts.reports_untrusted++;
    /* Its node may have lost its disk, nonce and all: it is asked, and answers with what the question carries. A stranger cannot. */
    if (may_claim(r) && *node && here && c->now_us - j->checked_us >= CHECK_EVERY_US) {
        char *reason = pst_sprintf("node %s is asked whether it has generation %d: a report without its nonce says that it has not", node,
                                   j->s.generation);
        j->checked_us = c->now_us;
        tcore_command(c, j, PST_JOB_COMMAND_TYPE_CHECK, NULL, reason);
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = reason});
        free(reason);
    }
    return false;
}

/* ---- silence --------------------------------------------------------------------------------------------------------------------- */

/* Where the remark on silence stands in the job's reason, or NULL. */
static char *remark_in(const trainer_job *j)
{
    char *head = pst_sprintf("node %s of site %s is silent", j->s.node, j->s.site);
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
                               j->s.node, j->s.site, when, j->s.node);
    char *reason = j->s.reason && *j->s.reason ? pst_sprintf("%s; %s", j->s.reason, remark) : pst_strdup(remark);
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason_code = "NODE_SILENT", .reason = remark});
    free(reason);
    free(remark);
}

static void say_back(tcore *c, trainer_job *j, const char *remark)
{
    size_t keep = (size_t)(remark - j->s.reason);
    char *base = pst_strndup(j->s.reason, keep > 2 ? keep - 2 : 0);
    char *reason = pst_sprintf("node %s of site %s reports again", j->s.node, j->s.site);
    tcore_set_text(&j->s.reason, *base ? base : NULL);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.reason = reason});
    free(reason);
    free(base);
}

/* Ends the generation without its node: what was not observed to have ended counts as lost, and whatever still runs is fenced. */
static void give_up(tcore *c, trainer_job *j, const char *actor, const char *reason)
{
    tcore_command(c, j, PST_JOB_COMMAND_TYPE_KILL, NULL, reason);
    for (size_t i = 0; i < j->s.n_processes; i++)
        if (j->s.processes[i].state < PST_JOB_PROCESS_STATE_EXITED)
            j->s.processes[i].state = PST_JOB_PROCESS_STATE_LOST;
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_OTHER, j->s.state, &(trainer_say){.actor = actor, .reason_code = "S104", .reason = reason});
    if (j->s.wish == PST_JOB_WISH_NONE)
        tcore_start_failing(c, j, "S104", reason);
    else
        tcore_set_text(&j->s.reason, reason);
    tcore_conclude(c, j);
}

bool tcore_force(tcore *c, trainer_job *j)
{
    bool ends = j->s.wish == PST_JOB_WISH_TERMINATE || j->s.wish == PST_JOB_WISH_DELETE;
    const trainer_node *n = tcore_node(c, j->s.site, j->s.node);
    if (!j->s.wish_force || !ends || !pst_job_state_is_live(j->s.state) || !is_silent(c, n))
        return false;
    char *actor = pst_sprintf("user:%s", j->s.wish_by);
    char *reason =
        pst_sprintf("ended by force by user %s: node %s of site %s is silent; what may still run there is fenced, and ended when "
                    "the node comes back",
                    j->s.wish_by, j->s.node, j->s.site);
    give_up(c, j, actor, reason);
    free(reason);
    free(actor);
    return true;
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
        bool heard = has_lease(c, n) && !n->stopped;
        if (heard && !n->proves) /* may be at it */
            return false;
        there = there || heard;
    }
    return there;
}

void tcore_silences(tcore *c)
{
    for (size_t i = c->n_live; i-- > 0;) { /* from the end: one that ends is replaced by one seen already */
        trainer_job *j = c->live[i];
        const trainer_node *n = tcore_node(c, j->s.site, j->s.node);
        if (is_untaken(c, j)) {
            give_up(c, j, "trainer", "an older Trainer gave it to no node in particular, and none has started it");
            continue;
        }
        if (tcore_force(c, j) || !*j->s.node) /* given to a site of before nodes had ids: nobody in particular is silent */
            continue;
        const char *remark = remark_in(j);
        if (is_silent(c, n) && !remark)
            say_silent(c, j, n);
        else if (remark && has_lease(c, n))
            say_back(c, j, remark);
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
        if (c->live[i]->node == n)
            give_up(c, c->live[i], actor, reason);
    tcore_tell_node(c, n, "lost");
    free(reason);
}

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
