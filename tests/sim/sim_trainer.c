/* sim_trainer.c - the Trainer's core in a seeded world: users who submit, halt, resume, delete and repeat themselves; an LCM that starts,
 * loses and stops processes; reports that are doubled and overtake each other; and a Trainer that crashes at any moment and goes on from what
 * it had published. After every committed round a core rebuilt from the published states must equal the live one; in the end every job has
 * ended, and what was published is checked event by event. The site has three nodes; each may die with what runs on it unseen, and come back; gangs that no
 * node holds are spread over several;
 * users use force, operators give nodes up, strangers publish reports.
 *
 *     sim_trainer [SEEDS] [FIRST]          default 1000 seeds from 1 (ctest runs 400); a failure names its seed
 *     sim_trainer 1 77 -v                  one seed, told event by event */
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/objects/members.h"
#include "common/platform/client.h"
#include "schemas/manifest.h"
#include "trainer/job_fsm.h"
#include "trainer/trainer_core.h"
#include "sim_jobs.h"
#include "sim_seed.h"
#include "schemas/training_id.h"
#include "schemas/avro.h"

#include <string.h>

enum {
    NODES = 3,
    SITE_CPUS = 4,
    SITE_GPUS = 1,
    REQUEST_PARTS = 2,
    REPORT_PARTS = 2,
    PARTS = REQUEST_PARTS + REPORT_PARTS,
    USER_STEPS = 160,
    DEADLINE_S = 20,
    LATE_US = 4000000,
    SILENT_US = 7000000
};

/* ---- the world --------------------------------------------------------------------------------------------------------------- */

typedef struct record { /* one of the inputs */
    bool is_report, bad, tombstone;
    pst_job_request request;
    pst_process_report report;
} record;

typedef struct partition {
    record **at;
    size_t n, position, committed;
} partition;

typedef struct pending { /* a report on its way */
    int64_t due_us;
    record *r;
} pending;

typedef struct process {
    char id[64];
    int generation, node;
    char nonce[40];
    char name[32];
    bool over, fenced; /* fenced: given up while its node was dead */
    int64_t next_us;
    int step, exit_code;
    bool will_be_lost, spread;
} process;

typedef struct history { /* of one job, checked as it is published */
    int64_t seq;
    pst_job_public_state state;
    int generation, live_generation;
    bool deleted;
    int64_t time_us;               /* of its last event */
    int64_t queued_us, running_us; /* when it came into these states, really */
    bool admitted;
} history;

typedef struct snode { /* a node of the site */
    char name[8];
    bool dead;
    int64_t back_us;
    pst_job_command *waiting; /* what it has not read yet */
    size_t n_waiting;
} snode;

static struct world {
    int64_t now_us;
    partition parts[PARTS];
    pending *pending;
    size_t n_pending;
    process *processes;
    size_t n_processes;
    pst_map states;    /* id → pst_job_state * as published */
    pst_map tombs;     /* ids with a tombstone */
    pst_map histories; /* id → history * */
    pst_map asked;     /* request ids that reached the log */
    pst_map answered;  /* request ids seen in events */
    pst_map done;      /* "HALTING id request": what was done for a request */
    pst_map ids;       /* training ids that were made */
    pst_map completed; /* … and were COMPLETED at some time */
    tcore *core;
    bool at_least_once;
    int64_t heartbeat_us, silent_until_us;
    snode nodes[NODES];
    bool back;              /* a node reads what it missed */
    int64_t ahead_us;       /* of the Trainer's clock: wrong after a restart, until it has heard others' */
    int64_t settled_us;     /* … at this moment */
    int64_t small_until_us; /* the LCM came back with less than it had */
    pst_map raced;          /* requests published right behind their submission, on any partition */
    bool calm;              /* no more users, crashes or silence: everything must come to its end */
    int n_requests;
    uint64_t events, crashes;
} w;

static void world_put(int part, record *r)
{
    partition *p = &w.parts[part];
    p->at = pst_realloc(p->at, (p->n + 1) * sizeof *p->at);
    p->at[p->n++] = r;
}

static const char *random_id(void)
{
    if (!w.ids.live || chance(5))
        return "training-nobody";
    int recent = w.ids.n < 6 || chance(20) ? (int)w.ids.n : 6; /* mostly the jobs of the moment */
    return w.ids.at[w.ids.n - 1 - (size_t)below(recent)].key;
}

/* ---- users ------------------------------------------------------------------------------------------------------------------- */

/* request_id moves in. Returns the record, whose options may be set before it is read. */
static record *asks(const char *user, char *request_id, pst_job_action action, const char *training_id)
{
    record *r = pst_alloc(sizeof *r);
    r->request = (pst_job_request){
        .request_id = request_id, .action = action, .training_id = pst_strdup(training_id), .user = pst_strdup(user), .time = w.now_us};
    pst_map_put(&w.asked, request_id, &w);
    world_put(below(REQUEST_PARTS), r);
    return r;
}

/* Something is asked of a job while its submission is still on its way, or a moment before it sets out. */
static void user_races(const record *submission)
{
    static const pst_job_action actions[] = {PST_JOB_ACTION_TERMINATE, PST_JOB_ACTION_TERMINATE, PST_JOB_ACTION_HALT,
                                             PST_JOB_ACTION_DELETE};
    char training_id[64], *id = pst_sprintf("%s-race", submission->request.request_id);
    pst_training_id(submission->request.user, submission->request.request_id, training_id);
    pst_map_put(&w.raced, id, &w);
    asks(submission->request.user, id, actions[below(4)], training_id);
}

static void user_acts(void)
{
    record *r = pst_alloc(sizeof *r);
    char *id = pst_sprintf("r%d", chance(10) && w.n_requests ? below(w.n_requests) : w.n_requests);
    static const pst_job_action actions[] = {
        PST_JOB_ACTION_HALT,      PST_JOB_ACTION_HALT,         PST_JOB_ACTION_HALT,   PST_JOB_ACTION_HALT,   PST_JOB_ACTION_RESUME,
        PST_JOB_ACTION_RESUME,    PST_JOB_ACTION_RESUME,       PST_JOB_ACTION_RESUME, PST_JOB_ACTION_RESUME, PST_JOB_ACTION_DELETE,
        PST_JOB_ACTION_TERMINATE, PST_JOB_ACTION_REPRIORITISE, PST_JOB_ACTION_HOLD,   PST_JOB_ACTION_HOLD,   PST_JOB_ACTION_RELEASE};
    w.n_requests++;
    r->request.request_id = id;
    r->request.user = pst_strdup(chance(50) ? "ann" : "bob");
    r->request.time = w.now_us;
    if (chance(2)) {
        r->bad = true;
    } else if (chance(1)) {
        r->tombstone = true;
    } else if (chance(55) || !w.ids.live) {
        char training_id[64];
        r->request.action = PST_JOB_ACTION_SUBMIT;
        r->request.manifest = random_manifest(random_id);
        pst_training_id(r->request.user, id, training_id);
        pst_map_put(&w.ids, training_id, &w);
    } else {
        r->request.action = actions[below(15)];
        r->request.training_id = pst_strdup(random_id());
        if (chance(20))
            pst_str_map_set(&r->request.options, &r->request.n_options, "force", "true");
        if (r->request.action == PST_JOB_ACTION_REPRIORITISE)
            pst_str_map_set(&r->request.options, &r->request.n_options, "priority", chance(90) ? "5" : "high");
    }
    if (!r->bad && !r->tombstone)
        pst_map_put(&w.asked, id, &w);
    if (r->request.action == PST_JOB_ACTION_SUBMIT && !r->bad && !r->tombstone && chance(20))
        user_races(r);
    int copies = chance(10) ? 2 : 1;
    for (int i = 0; i < copies; i++) {
        record *copy = i ? pst_alloc(sizeof *copy) : r;
        if (i) {
            copy->bad = r->bad;
            copy->tombstone = r->tombstone;
            pst_event_copy(&pst_job_request_type, &r->request, &copy->request);
        }
        world_put(below(REQUEST_PARTS), copy); /* keys differ: a halt may overtake its submission */
    }
}

/* ---- the LCM and its processes ----------------------------------------------------------------------------------------------- */

static void report_by(int node, const char *nonce, const char *id, int generation, const char *name, pst_report_type type, int exit_code,
                      int sig)
{
    history *h = pst_map_get(&w.histories, id);
    if (h && type == PST_REPORT_TYPE_RUNNING)
        h->running_us = w.now_us;
    int copies = chance(15) ? 2 : 1;
    for (int i = 0; i < copies; i++) {
        record *r = pst_alloc(sizeof *r);
        r->is_report = true;
        r->report = (pst_process_report){.training_id = pst_strdup(id),
                                         .generation = generation,
                                         .process = pst_strdup(name),
                                         .type = type,
                                         .time = w.now_us,
                                         .reporter = pst_strdup("lcm:local"),
                                         .node = pst_strdup(w.nodes[node].name),
                                         .nonce = pst_strdup(nonce),
                                         .host = pst_strdup("h")};
        if (type == PST_REPORT_TYPE_EXITED) {
            r->report.has_exit_code = !sig;
            r->report.exit_code = exit_code;
            r->report.has_signal = sig;
            r->report.signal = sig;
        }
        if (type == PST_REPORT_TYPE_REACHABLE) {
            static const char *const keys[] = {"address", "port", "master_port", "other_port"};
            for (int k = 0; k < 4; k++)
                pst_str_map_set(&r->report.details, &r->report.n_details, keys[k], k ? "4000" : "127.0.0.1");
        }
        if (type == PST_REPORT_TYPE_RESULT_STORED) {
            r->report.model = pst_alloc(sizeof *r->report.model);
            *r->report.model = (pst_produced_model){pst_strdup("m"), generation, pst_strdup("d")};
        }
        w.pending = pst_realloc(w.pending, (w.n_pending + 1) * sizeof *w.pending);
        /* Most arrive at once and in order; some are late and are overtaken. */
        w.pending[w.n_pending++] = (pending){w.now_us + (chance(10) ? below(3000000) : 0), r};
    }
}

static void report(const process *p, pst_report_type type, int exit_code, int sig)
{
    report_by(p->node, p->nonce, p->id, p->generation, p->name, type, exit_code, sig);
}

/* Somebody who may write reports, and has read the states, says that something has ended which lives. */
static void stranger_acts(void)
{
    static const pst_report_type types[] = {PST_REPORT_TYPE_EXITED, PST_REPORT_TYPE_LOST, PST_REPORT_TYPE_DEPLOY_FAILED};
    if (!w.n_processes)
        return;
    const process *p = &w.processes[below((int)w.n_processes)];
    const pst_job_state *s = pst_map_get(&w.states, p->id);
    const char *nonce = s && chance(50) ? s->nonce_sha256 : chance(50) ? "" : "guessed";
    report_by(p->node, nonce, p->id, s ? s->generation : p->generation, p->name, types[below(3)], 0, 0);
}

static void deliver_reports(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < w.n_pending; i++) {
        if (w.pending[i].due_us > w.now_us) {
            w.pending[kept++] = w.pending[i];
            continue;
        }
        uint32_t part = pst_murmur2(w.pending[i].r->report.training_id, strlen(w.pending[i].r->report.training_id)) % REPORT_PARTS;
        world_put(REQUEST_PARTS + (int)part, w.pending[i].r);
    }
    w.n_pending = kept;
}

static void lcm_deploys(int node, const pst_job_command *cmd)
{
    const pst_job_state *s = pst_map_get(&w.states, cmd->training_id);
    if (w.back && (!s || s->generation != cmd->generation || !pst_job_state_is_live(s->state)))
        return; /* given up meanwhile: an LCM follows no DEPLOY that no state asks for */
    for (size_t i = 0; i < w.n_processes; i++) {
        process *p = &w.processes[i];
        if (strcmp(p->id, cmd->training_id) || (p->over && p->node != node))
            continue;
        if (p->generation == cmd->generation && p->node != node)
            continue; /* the gang's part on another node */
        if (p->generation >= cmd->generation)
            return;                           /* the same command again, or a fenced one */
        if (p->over || w.nodes[p->node].dead) /* given up by a person: it ends when its node is back */
            continue;
        if (p->node == node) { /* the node ends what is older before it starts what is newer */
            p->over = true;
            continue;
        }
        if (p->fenced)
            continue;
        broken("%s: generation %d is deployed while %s of generation %d lives", cmd->training_id, cmd->generation, p->name, p->generation);
    }
    bool failed = chance(5);
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(cmd->spec->manifest, strlen(cmd->spec->manifest), &m, &errors, &warnings);
    int fate = chance(70) ? 0 : below(3);
    for (int i = 0; i < pst_manifest_processes(&m); i++) {
        process p = {.generation = cmd->generation, .node = node, .over = failed, .next_us = w.now_us + below(500000)};
        snprintf(p.nonce, sizeof p.nonce, "%s", cmd->nonce);
        snprintf(p.id, sizeof p.id, "%s", cmd->training_id);
        const pst_role *role = pst_manifest_process(&m, i, p.name);
        p.spread = cmd->spec->n_nodes;
        if (p.spread && strcmp(cmd->spec->nodes[i], w.nodes[node].name))
            continue;
        p.exit_code = fate == 1 && chance(60) ? 1 + below(3) : 0;
        p.will_be_lost = fate == 2 && chance(60);
        if (!pst_role_is_ranked(role->name))
            p.step = 100; /* serves until it is ended */
        w.processes = pst_realloc(w.processes, (w.n_processes + 1) * sizeof *w.processes);
        w.processes[w.n_processes++] = p;
    }
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    if (failed)
        report_by(node, cmd->nonce, cmd->training_id, cmd->generation, NULL, PST_REPORT_TYPE_DEPLOY_FAILED, 0, 0);
}

/* SIGTERM to all; also of a generation that was never seen: then it says so. */
static void lcm_stops(int node, const pst_job_command *cmd)
{
    bool found = false;
    for (size_t i = 0; i < w.n_processes; i++) {
        process *p = &w.processes[i];
        if (strcmp(p->id, cmd->training_id) || p->generation != cmd->generation || p->node != node)
            continue;
        found = true;
        if (p->over || cmd->command == PST_JOB_COMMAND_TYPE_CHECK)
            continue;
        p->over = true;
        report(p, PST_REPORT_TYPE_EXITED, 0, chance(50) ? 15 : 0);
    }
    if (!found)
        report_by(node, cmd->nonce, cmd->training_id, cmd->generation, NULL, PST_REPORT_TYPE_LOST, 0, 0);
}

static void node_reads(int node, const pst_job_command *cmd)
{
    if (cmd->command == PST_JOB_COMMAND_TYPE_DEPLOY)
        lcm_deploys(node, cmd);
    else if (cmd->command == PST_JOB_COMMAND_TYPE_HALT || cmd->command == PST_JOB_COMMAND_TYPE_KILL ||
             cmd->command == PST_JOB_COMMAND_TYPE_CHECK)
        lcm_stops(node, cmd);
}

/* A command is read by the node that it names; a dead one reads it when it is back. */
static void command_goes(const pst_job_command *cmd)
{
    for (int i = 0; i < NODES; i++) {
        snode *n = &w.nodes[i];
        if (strcmp(n->name, cmd->node))
            continue;
        for (size_t k = 0; k < w.n_processes && cmd->command == PST_JOB_COMMAND_TYPE_KILL; k++)
            if (w.processes[k].node == i && !strcmp(w.processes[k].id, cmd->training_id) && w.processes[k].generation == cmd->generation)
                w.processes[k].fenced = n->dead;
        if (!n->dead) {
            node_reads(i, cmd);
            continue;
        }
        n->waiting = pst_realloc(n->waiting, (n->n_waiting + 1) * sizeof *n->waiting);
        pst_event_copy(&pst_job_command_type, cmd, &n->waiting[n->n_waiting++]);
    }
}

static void nodes_live_and_die(void)
{
    for (int i = 0; i < NODES; i++) {
        snode *n = &w.nodes[i];
        if (!n->dead && !w.calm && chance(1) && chance(30)) {
            n->dead = true;
            n->back_us = w.now_us + (chance(50) ? 10000000 : 90000000);
        } else if (n->dead && (w.calm || w.now_us >= n->back_us)) {
            n->dead = false;
            for (size_t k = 0; k < n->n_waiting; k++) {
                w.back = true;
                node_reads(i, &n->waiting[k]);
                w.back = false;
                pst_event_clear(&pst_job_command_type, &n->waiting[k]);
            }
            n->n_waiting = 0;
        }
    }
}

static void operator_acts(void)
{
    int i = below(NODES);
    pst_job_action action = w.nodes[i].dead ? PST_JOB_ACTION_NODE_LOST
                            : chance(50)    ? PST_JOB_ACTION_NODE_DRAIN
                                            : PST_JOB_ACTION_NODE_RESUME;
    record *r = asks("op", pst_sprintf("r%d", w.n_requests++), action, NULL);
    pst_str_map_set(&r->request.options, &r->request.n_options, "node", chance(90) ? w.nodes[i].name : "nobody");
}

/* What is held would wait for ever, and what waits for a job that was halted: in the end an operator sees to both. */
static void operator_tidies(void)
{
    for (size_t i = 0; i < w.states.n; i++) {
        const pst_job_state *s = w.states.at[i].key ? w.states.at[i].value : NULL;
        if (!s || s->state != PST_JOB_PUBLIC_STATE_QUEUED)
            continue;
        if (s->held_by)
            asks("op", pst_sprintf("r%d", w.n_requests++), PST_JOB_ACTION_RELEASE, s->training_id);
        for (size_t k = 0; k < s->n_after; k++) {
            const pst_job_state *before = pst_map_get(&w.states, s->after[k]);
            if (before && before->state == PST_JOB_PUBLIC_STATE_HALTED)
                asks("op", pst_sprintf("r%d", w.n_requests++), PST_JOB_ACTION_TERMINATE, before->training_id);
        }
    }
}

/* Over several nodes a command starts when the published state has every address. */
static bool has_met(const process *p)
{
    const pst_job_state *s = pst_map_get(&w.states, p->id);
    if (!s || s->generation != p->generation)
        return false;
    for (size_t i = 0; i < s->n_processes; i++)
        if (!*s->processes[i].address)
            return false;
    return true;
}

static void processes_go_on(void)
{
    for (size_t i = 0; i < w.n_processes; i++) {
        process *p = &w.processes[i];
        if (p->over || p->next_us > w.now_us || w.nodes[p->node].dead)
            continue;
        p->next_us = w.now_us + below(2000000);
        if (p->spread && (p->step == 2 || p->step == 101) && !has_met(p))
            continue;
        switch (p->step++) {
        case 0:
        case 100:
            report(p, PST_REPORT_TYPE_STARTED, 0, 0);
            report(p, PST_REPORT_TYPE_REACHABLE, 0, 0);
            break;
        case 1: report(p, PST_REPORT_TYPE_DOWNLOADING, 0, 0); break;
        case 2:
        case 101: report(p, PST_REPORT_TYPE_RUNNING, 0, 0); break;
        case 3:
            report(p, PST_REPORT_TYPE_CHECKPOINT, 0, 0);
            if (chance(10))
                p->next_us += 30000000; /* slow: may meet its deadline */
            break;
        case 4:
            if (p->will_be_lost || p->exit_code) {
                p->over = true;
                report(p, p->will_be_lost ? PST_REPORT_TYPE_LOST : PST_REPORT_TYPE_EXITED, p->exit_code, 0);
            } else {
                report(p, PST_REPORT_TYPE_STORING, 0, 0);
            }
            break;
        case 5:
            if (!strcmp(p->name, "learner-1"))
                report(p, PST_REPORT_TYPE_RESULT_STORED, 0, 0);
            report(p, PST_REPORT_TYPE_EXITED, 0, 0);
            p->over = true;
            break;
        default: p->step--; break; /* a parameter server */
        }
    }
}

/* ---- what is published is checked -------------------------------------------------------------------------------------------- */

/* What a user asked for once is done once, however often the request was published. */
static void check_once(const pst_job_event *e)
{
    if (e->type != PST_JOB_EVENT_TYPE_HALTING && e->type != PST_JOB_EVENT_TYPE_RESUMED && e->type != PST_JOB_EVENT_TYPE_TERMINATING &&
        e->type != PST_JOB_EVENT_TYPE_REPRIORITISED && e->type != PST_JOB_EVENT_TYPE_HELD && e->type != PST_JOB_EVENT_TYPE_RELEASED)
        return;
    bool deletes =
        e->reason && !strncmp(e->reason, "terminated and deleted", 22); /* DELETE and TERMINATE may have one id, and both say this */
    char *key = pst_sprintf("%s%s %s %s", pst_job_event_type_text(e->type), deletes ? " to delete" : "", e->training_id, e->request_id);
    if (pst_map_put(&w.done, key, &w))
        broken("%s twice", key);
    free(key);
}

/* Nothing is said to have ended that lives. */
static void check_over(const pst_job_event *e)
{
    for (size_t i = 0; i < w.n_processes; i++) {
        const process *p = &w.processes[i];
        if (!p->fenced && !strcmp(p->id, e->training_id) && p->generation == e->generation && !strcmp(p->name, e->process) && !p->over)
            broken("%s: %s of generation %d is said to have ended and lives", p->id, p->name, p->generation);
    }
}

/* Neither a clock that jumped nor an LCM that came back smaller ends a job before its time. */
static void check_patience(history *h, const pst_job_event *e)
{
    if (e->state != h->state && e->state == PST_JOB_PUBLIC_STATE_QUEUED)
        h->queued_us = w.now_us;
    const char *code = e->reason_code ? e->reason_code : "";
    if (e->type == PST_JOB_EVENT_TYPE_OTHER && !strcmp(code, "DEADLINE") && w.now_us - h->running_us < DEADLINE_S * 1000000LL - LATE_US)
        broken("%s: its deadline of %d s was exceeded after %lld us", e->training_id, DEADLINE_S, (long long)(w.now_us - h->running_us));
    if (e->type == PST_JOB_EVENT_TYPE_FAILED && !strcmp(code, "INSUFFICIENT_RESOURCES") &&
        w.now_us - h->queued_us < 900 * 1000000LL - LATE_US)
        broken("%s: failed for want of room after %lld us", e->training_id, (long long)(w.now_us - h->queued_us));
}

static void check_event(const pst_job_event *e)
{
    w.events++;
    if (verbose)
        printf("%12.6f %-12.12s g%d #%lld %-20s %-11s %s %s\n", (double)w.now_us / 1e6, e->training_id, e->generation, (long long)e->seq,
               pst_job_event_type_text(e->type), pst_job_public_state_text(e->state), e->process ? e->process : "-",
               e->reason ? e->reason : "");
    if (e->request_id)
        pst_map_put(&w.answered, e->request_id, &w);
    if (e->reason_code && !strcmp(e->reason_code, "UNKNOWN_JOB") && pst_map_get(&w.raced, e->request_id) && !strstr(e->reason, "deleted"))
        broken("%s: %s overtook its submission and was refused: %s", e->training_id, e->request_id, e->reason);
    if (e->seq == 0) {
        if (e->type == PST_JOB_EVENT_TYPE_OTHER && !*e->training_id && e->request_id && e->reason)
            return; /* the answer to an operator */
        if (e->type != PST_JOB_EVENT_TYPE_REJECTED || !e->reason_code || !e->reason)
            broken("an event without sequence that is no reasoned rejection: %s", pst_job_event_type_text(e->type));
        return;
    }
    history *h = pst_map_get(&w.histories, e->training_id);
    if (!h)
        pst_map_put(&w.histories, e->training_id, h = pst_alloc(sizeof *h));
    if (h->deleted)
        *h = (history){0};
    if (e->seq != h->seq + 1)
        broken("%s: event %lld follows %lld", e->training_id, (long long)e->seq, (long long)h->seq);
    if (e->time < h->time_us)
        broken("%s: the time of event %lld is before that of the one before", e->training_id, (long long)e->seq);
    h->time_us = e->time;
    check_patience(h, e);
    if (!job_fsm_allows(h->state, e->type, e->state))
        broken("%s: %s takes %s to %s", e->training_id, pst_job_event_type_text(e->type), pst_job_public_state_text(h->state),
               pst_job_public_state_text(e->state));
    h->admitted |= e->type == PST_JOB_EVENT_TYPE_ADMITTED || e->type == PST_JOB_EVENT_TYPE_RESUMED;
    if (e->type == PST_JOB_EVENT_TYPE_DEPLOYING && !h->admitted)
        broken("%s: is deployed before it was admitted", e->training_id);
    if (e->type == PST_JOB_EVENT_TYPE_DEPLOYING) {
        if (h->live_generation || e->generation != h->generation + 1)
            broken("%s: generation %d is deployed after %d, which %s", e->training_id, e->generation, h->generation,
                   h->live_generation ? "lives" : "has ended");
        h->live_generation = e->generation;
    } else if (e->generation != h->generation) {
        broken("%s: an event of generation %d in generation %d", e->training_id, e->generation, h->generation);
    }
    check_once(e);
    if (e->type == PST_JOB_EVENT_TYPE_PROCESS_EXITED)
        check_over(e);
    bool ends = pst_job_state_is_ended(e->state) || e->type == PST_JOB_EVENT_TYPE_RETRYING;
    if (ends && e->state != h->state)
        h->live_generation = 0;
    if (ends && e->state != h->state && !e->reason)
        broken("%s: an end without a reason", e->training_id);
    if (e->type == PST_JOB_EVENT_TYPE_QUEUED && !e->reason)
        broken("%s waits without a reason", e->training_id);
    if (e->type == PST_JOB_EVENT_TYPE_COMPLETED)
        pst_map_put(&w.completed, e->training_id, &w);
    h->seq = e->seq;
    h->state = e->state;
    h->generation = e->generation;
    h->deleted = e->type == PST_JOB_EVENT_TYPE_DELETED;
}

static void free_state(void *p)
{
    pst_event_clear(&pst_job_state_type, p);
    free(p);
}

/* No job runs before those are COMPLETED that its manifest names. */
static void check_after(const pst_job_state *s)
{
    if (!pst_job_state_is_live(s->state))
        return;
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(s->manifest, strlen(s->manifest), &m, &errors, &warnings);
    for (size_t i = 0; i < m.n_after; i++)
        if (!pst_map_get(&w.completed, m.after[i]))
            broken("%s runs, and %s was never COMPLETED", s->training_id, m.after[i]);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
}

/* What a round has produced becomes visible: commit. */
static void publish(trainer_actions *a, pst_job_state *states)
{
    for (size_t i = 0; i < a->n; i++) {
        trainer_action *x = &a->at[i];
        void *old;
        switch (x->kind) {
        case PST_DO_EVENT: check_event(&x->event); break;
        case PST_DO_COMMAND: command_goes(&x->command); break;
        case PST_DO_STATE:
            if (states[i].held_by && pst_job_state_is_live(states[i].state))
                broken("%s runs, and user %s holds it", x->key, states[i].held_by);
            check_after(&states[i]);
            old = pst_alloc(sizeof states[i]);
            memcpy(old, &states[i], sizeof states[i]);
            states[i] = (pst_job_state){0};
            pst_map_take(&w.tombs, x->key);
            if ((old = pst_map_put(&w.states, x->key, old)))
                free_state(old);
            break;
        case PST_DO_WORKER: break; /* read again from the topic: says nothing new */
        case PST_DO_TOMBSTONE:
            if (!x->expired)
                pst_map_put(&w.tombs, x->key, &w);
            if ((old = pst_map_take(&w.states, x->key)))
                free_state(old);
            break;
        }
    }
}

static void rebuild(tcore *core)
{
    tcore_reset(core);
    for (size_t i = 0; i < w.tombs.n; i++)
        if (w.tombs.at[i].key)
            tcore_drop(core, w.tombs.at[i].key, w.now_us);
    for (size_t i = 0; i < w.states.n; i++)
        if (w.states.at[i].key)
            tcore_load(core, w.states.at[i].value);
    tcore_loaded(core);
}

/* Keeps copies of the states, since actions only borrow them. */
static void step(const trainer_in *in, trainer_actions *all, pst_job_state **states)
{
    size_t before = all->n;
    trainer_in with = *in;
    if (w.now_us >= w.settled_us)
        w.ahead_us = 0; /* others were heard, and two of three agree */
    with.unsettled = w.now_us < w.settled_us;
    tcore_step(w.core, &with, w.now_us + w.ahead_us, all);
    *states = pst_realloc(*states, (all->n + 1) * sizeof **states);
    for (size_t i = before; i < all->n; i++) {
        (*states)[i] = (pst_job_state){0};
        if (all->at[i].kind == PST_DO_STATE)
            pst_event_copy(&pst_job_state_type, all->at[i].state, &(*states)[i]);
    }
}

static void note_awaited(void *ids, const pst_job_state *s)
{
    pst_map_put(ids, s->training_id, ids);
}

/* Servers answer late, and some refuse; one answer in ten comes of a job that nobody waits for. */
static void stores_answer(trainer_actions *all, pst_job_state **states)
{
    pst_map ids = {0};
    tcore_stores_awaited(w.core, note_awaited, &ids);
    for (size_t i = 0; i < ids.n; i++)
        if (chance(30))
            step(&(trainer_in){.kind = PST_TRAINER_STORES, .training_id = ids.at[i].key, .stores_refused = chance(30) ? "no bucket" : NULL},
                 all, states);
    pst_map_done(&ids, NULL);
    if (chance(10))
        step(&(trainer_in){.kind = PST_TRAINER_STORES, .training_id = random_id(), .stores_refused = chance(50) ? "late" : NULL}, all,
             states);
}

static bool requests_are_read(void)
{
    for (int i = 0; i < REQUEST_PARTS; i++)
        if (w.parts[i].position < w.parts[i].n)
            return false;
    return true;
}

/* One round: some inputs, then commit, or a crash. */
static void trainer_round(void)
{
    trainer_actions actions = {0};
    pst_job_state *states = NULL;
    int n = 1 + below(6);
    for (int i = 0; i < n; i++) {
        partition *p = &w.parts[below(PARTS)];
        if (p->position == p->n)
            continue;
        record *r = p->at[p->position++];
        if (verbose && !r->is_report)
            printf("%12.6f reads %s %s of %s\n", (double)w.now_us / 1e6, pst_job_action_text(r->request.action), r->request.request_id,
                   r->request.user);
        trainer_in in = {.kind = r->is_report   ? PST_TRAINER_REPORT
                                 : r->bad       ? PST_TRAINER_BAD_REQUEST
                                 : r->tombstone ? PST_TRAINER_TOMBSTONE
                                                : PST_TRAINER_REQUEST,
                         .request = &r->request,
                         .report = &r->report,
                         .published_us = r->is_report ? r->report.time : 0,
                         .bad_reason = "no event"};
        step(&in, &actions, &states);
    }
    if (w.now_us >= w.heartbeat_us && w.now_us >= w.silent_until_us) {
        for (int i = 0; i < NODES; i++) {
            char address[16], host[8];
            snprintf(address, sizeof address, "10.0.0.%d", i + 1);
            snprintf(host, sizeof host, "h%d", i + 1);
            pst_str_pair details[] = {{(char *)PST_ADDRESS_DETAIL, address}};
            pst_worker_state ws = {.worker_id = w.nodes[i].name,
                                   .host = host,
                                   .details = details,
                                   .n_details = 1,
                                   .node = w.nodes[i].name,
                                   .kind = (char *)"lcm",
                                   .site = (char *)"local",
                                   .state = (char *)(chance(3) && !w.calm ? "draining" : "running"),
                                   .cpus = w.now_us < w.small_until_us ? 1 : SITE_CPUS,
                                   .memory_bytes = (int64_t)4 << 30,
                                   .gpus = i ? 0 : SITE_GPUS,
                                   .time = w.now_us};
            if (!w.nodes[i].dead)
                step(&(trainer_in){.kind = PST_TRAINER_WORKER,
                                   .worker = &ws,
                                   .seen_us = w.now_us + (w.now_us < w.settled_us ? w.ahead_us : 0)},
                     &actions, &states);
        }
        w.heartbeat_us = w.now_us + 5000000;
    }
    stores_answer(&actions, &states);
    if (chance(40))
        step(&(trainer_in){.kind = PST_TRAINER_TICK, .caught_up = requests_are_read()}, &actions, &states);

    bool crash = !w.calm && chance(6);
    if (!crash || w.at_least_once)
        publish(&actions, states);
    if (crash) { /* offsets are not committed; with at-least-once the outputs are there all the same */
        w.crashes++;
        for (int i = 0; i < PARTS; i++)
            w.parts[i].position = w.parts[i].committed;
        rebuild(w.core);
        static const int jumps_s[] = {0, 0, 600, -600, 86400, -86400};
        w.ahead_us = jumps_s[below(6)] * 1000000LL;
        w.settled_us = w.now_us + below(8000000);
    } else {
        for (int i = 0; i < PARTS; i++)
            w.parts[i].committed = w.parts[i].position;
    }
    for (size_t i = 0; i < actions.n; i++)
        pst_event_clear(&pst_job_state_type, &states[i]);
    free(states);
    trainer_actions_done(&actions);
}

static void check_rebuilt_equals_live(void)
{
    const char *names[NODES];
    for (int i = 0; i < NODES; i++)
        names[i] = w.nodes[i].name;
    check_rooms(&w.states, names, NODES, SITE_CPUS);
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    policy.operators = "ann,op";
    policy.silent_us = SILENT_US;
    tcore *other = tcore_new(&policy);
    rebuild(other);
    if (!tcore_equal(w.core, other))
        broken("a rebuilt core differs from the live one:\nlive:\n%s\nrebuilt:\n%s", tcore_dump(w.core), tcore_dump(other));
    int64_t used[3] = {0}, again[3] = {0};
    tcore_used(w.core, "local", used);
    tcore_used(other, "local", again);
    if (memcmp(used, again, sizeof used))
        broken("charges differ: %lld CPUs/1000 live, %lld rebuilt", (long long)used[0], (long long)again[0]);
    if (used[0] < 0 || used[0] > NODES * SITE_CPUS * 1000 || used[2] > SITE_GPUS)
        broken("charged %lld CPUs/1000 and %lld GPUs on a site of %d and %d", (long long)used[0], (long long)used[2], NODES * SITE_CPUS,
               SITE_GPUS);
    tcore_free(other);
}

static bool is_quiet(void)
{
    for (int i = 0; i < PARTS; i++)
        if (w.parts[i].position < w.parts[i].n)
            return false;
    if (w.n_pending)
        return false;
    for (size_t i = 0; i < w.n_processes; i++)
        if (!w.processes[i].over)
            return false; /* of a generation that was given up: its node has to come back first */
    for (size_t i = 0; i < w.states.n; i++)
        if (w.states.at[i].key && ((pst_job_state *)w.states.at[i].value)->state == PST_JOB_PUBLIC_STATE_UNKNOWN)
            return false; /* requests that wait for their submission */
    for (size_t i = 0; i < w.histories.n; i++) {
        const history *h = w.histories.at[i].key ? w.histories.at[i].value : NULL;
        if (h && !h->deleted && !pst_job_state_is_ended(h->state))
            return false;
    }
    return true;
}

static void check_end(void)
{
    int64_t used[3] = {0};
    tcore_used(w.core, "local", used);
    if (used[0] || used[1] || used[2])
        broken("all jobs have ended, but %lld CPUs/1000 are still charged", (long long)used[0]);
    for (size_t i = 0; i < w.n_processes; i++)
        if (!w.processes[i].over)
            broken("%s %s lives on", w.processes[i].id, w.processes[i].name);
    for (size_t i = 0; i < w.asked.n; i++)
        if (w.asked.at[i].key && !pst_map_get(&w.answered, w.asked.at[i].key))
            broken("request %s was never answered", w.asked.at[i].key);
}

static void world_done(void)
{
    for (int i = 0; i < PARTS; i++) {
        for (size_t k = 0; k < w.parts[i].n; k++) {
            pst_event_clear(&pst_job_request_type, &w.parts[i].at[k]->request);
            pst_event_clear(&pst_process_report_type, &w.parts[i].at[k]->report);
            free(w.parts[i].at[k]);
        }
        free(w.parts[i].at);
    }
    free(w.pending);
    free(w.processes);
    pst_map_done(&w.states, free_state);
    pst_map_done(&w.histories, free);
    pst_map_done(&w.tombs, NULL);
    pst_map_done(&w.asked, NULL);
    pst_map_done(&w.raced, NULL);
    pst_map_done(&w.answered, NULL);
    pst_map_done(&w.ids, NULL);
    pst_map_done(&w.completed, NULL);
    pst_map_done(&w.done, NULL);
    for (int i = 0; i < NODES; i++)
        free(w.nodes[i].waiting);
    tcore_free(w.core);
}

static void run(uint64_t seed)
{
    trainer_policy policy = PST_TRAINER_POLICY_DEFAULT;
    policy.operators = "ann,op";
    policy.silent_us = SILENT_US;
    memset(&w, 0, sizeof w);
    seed_now = rng_state = seed;
    w.now_us = 1700000000000000;
    w.heartbeat_us = w.now_us + (chance(30) ? 20000000 : 0);
    w.at_least_once = chance(30);
    w.core = tcore_new(&policy);
    for (int i = 0; i < NODES; i++)
        snprintf(w.nodes[i].name, sizeof w.nodes[i].name, "n%d", i + 1);
    for (int i = 0; i < USER_STEPS + 20000; i++) {
        w.calm = i >= USER_STEPS;
        if (w.calm && is_quiet())
            break;
        if (i == USER_STEPS + 19999) {
            char *dump = tcore_dump(w.core);
            broken("jobs do not come to their end:\n%s", dump);
        }
        if (!w.calm && chance(25))
            user_acts();
        if (!w.calm && chance(1))
            w.silent_until_us = w.now_us + 60000000;
        if (!w.calm && chance(1))
            w.small_until_us = w.now_us + 20000000;
        if (!w.calm && chance(3))
            operator_acts();
        if (!w.calm && chance(5))
            stranger_acts();
        if (w.calm && i % 50 == 0)
            operator_tidies();
        nodes_live_and_die();
        w.now_us += below(w.calm ? 1500000 : 400000);
        processes_go_on();
        deliver_reports();
        trainer_round();
        if (chance(3))
            check_rebuilt_equals_live();
    }
    check_rebuilt_equals_live();
    check_end();
}

int main(int argc, char **argv)
{
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t events = 0, crashes = 0;
    verbose = argc > 3 && !strcmp(argv[3], "-v");
    for (uint64_t s = first; s < first + seeds; s++) {
        run(s);
        events += w.events;
        crashes += w.crashes;
        world_done();
    }
    printf("%llu seeds from %llu: %llu events, %llu crashes, every job ended, nothing broken\n", (unsigned long long)seeds,
           (unsigned long long)first, (unsigned long long)events, (unsigned long long)crashes);
    return 0;
}
