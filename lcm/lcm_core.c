/* lcm_core.c - one rule decides nearly everything: older generations end first, then the newest starts, then what is to be removed goes
 * (advance()). Every event only changes what is known of a process and then lets the rule look again, so that duplicates, crashes and any order
 * of events come to the same end. Ended jobs leave the list that ticks walk; they cost memory alone. */
#include "lcm/lcm_core.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/map.h"
#include "lcm/process_fsm.h"
#include "schemas/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct proc {
    char name[32];
    lcm_state state; /* set by set_state() alone */
    pst_rundir_stop_reason stop_reason;
    int64_t deadline_us; /* STOPPING: when to use force; DRAINING: earliest restart of the publisher */
    int drains;          /* publishers started so far */
    bool abandoned;
    pst_lcm_devices devices;
    pst_rundir_exit exit; /* ENDED, DRAINING, KILLING (what will be said) */
} proc;

typedef struct gang {
    int generation;
    lcm_command spec;
    proc *processes;
    int n;
    bool intended; /* its intent is on disk */
} gang;

typedef struct job {
    char *training_id;
    gang **gangs; /* rising generations; all but the last are kept only while they live */
    size_t n, cap;
    bool clean; /* remove once nothing lives */
    int clean_generation;
    size_t busy_at; /* place in lcm_core.busy + 1; 0 = nothing of it is to be looked after */
} job;

struct lcm_core {
    pst_map jobs;
    job **busy; /* those of which something has not ended; the others cost nothing but their memory */
    size_t n_busy, cap_busy;
    int devices; /* of the node */
    bool recovering, stopping;
};

/* ---- small things ----------------------------------------------------------------------------------------------------------- */

lcm_core *lcm_new(int devices)
{
    lcm_core *l = pst_alloc(sizeof *l);
    l->devices = devices;
    l->recovering = true;
    return l;
}

static void gang_free(gang *g)
{
    free(g->processes);
    free(g);
}

static void job_free(void *p)
{
    job *j = p;
    for (size_t i = 0; i < j->n; i++)
        gang_free(j->gangs[i]);
    free(j->gangs);
    free(j->training_id);
    free(j);
}

void lcm_free(lcm_core *l)
{
    if (!l)
        return;
    pst_map_done(&l->jobs, job_free);
    free(l->busy);
    free(l);
}

void lcm_actions_done(lcm_actions *a)
{
    free(a->at);
    memset(a, 0, sizeof *a);
}

lcm_action *lcm_actions_add(lcm_actions *a)
{
    a->at = pst_array_room(a->at, a->n, &a->cap, sizeof *a->at);
    lcm_action *x = &a->at[a->n++];
    memset(x, 0, sizeof *x);
    return x;
}

static lcm_action *add(lcm_actions *a, lcm_action_type type, const job *j, int generation, const char *name)
{
    lcm_action *x = lcm_actions_add(a);
    x->type = type;
    x->id = pst_process_id_of(j->training_id, generation, name);
    return x;
}

static gang *find_gang(const job *j, int generation)
{
    for (size_t i = 0; i < j->n; i++)
        if (j->gangs[i]->generation == generation)
            return j->gangs[i];
    return NULL;
}

static lcm_action *report(lcm_actions *a, lcm_report_type what, const job *j, int generation, const char *name, const char *code,
                          const char *reason)
{
    lcm_action *x = add(a, PST_LCM_REPORT, j, generation, name);
    const gang *g = find_gang(j, generation);
    x->report = what;
    snprintf(x->nonce, sizeof x->nonce, "%s", g ? g->spec.nonce : "");
    snprintf(x->exit.reason_code, sizeof x->exit.reason_code, "%s", code ? code : "");
    snprintf(x->exit.reason, sizeof x->exit.reason, "%s", reason ? reason : "");
    return x;
}

/* It holds its devices, and its generation's successor has to wait. */
static bool lives(const proc *p)
{
    return p->state == LCM_STATE_ALIVE || p->state == LCM_STATE_STOPPING || p->state == LCM_STATE_KILLING;
}

static bool gang_lives(const gang *g)
{
    for (int i = 0; i < g->n; i++)
        if (lives(&g->processes[i]))
            return true;
    return false;
}

static bool gang_over(const gang *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->processes[i].state != LCM_STATE_ENDED)
            return false;
    return true;
}

static gang *last_gang(const job *j)
{
    return j->n ? j->gangs[j->n - 1] : NULL;
}

static proc *find_process(gang *g, const char *name)
{
    for (int i = 0; g && i < g->n; i++)
        if (!strcmp(g->processes[i].name, name))
            return &g->processes[i];
    return NULL;
}

static job *get_job(lcm_core *l, const char *training_id, bool make)
{
    job *j = pst_map_get(&l->jobs, training_id);
    if (!j && make) {
        j = pst_alloc(sizeof *j);
        j->training_id = pst_strdup(training_id);
        pst_map_put(&l->jobs, training_id, j);
    }
    return j;
}

static bool spec_ok(const lcm_command *c)
{
    bool ok = c->n_sets >= 1 && c->n_sets <= PST_PROCESS_SETS_MAX && c->grace_ms >= 0;
    for (size_t i = 0; ok && i < c->n_sets; i++) {
        const pst_process_set *s = &c->sets[i];
        ok = s->first >= 1 && s->count >= 1 && s->count <= PST_LCM_LEARNERS_MAX && s->gpus >= 0 && *s->prefix;
    }
    return ok && pst_process_sets_count(c->sets, c->n_sets) <= 2 * PST_LCM_LEARNERS_MAX;
}

/* Keeps rising order: after a crash intents are found in any. */
static gang *add_gang(job *j, int generation, const lcm_command *spec)
{
    PST_ASSERT(spec_ok(spec) && !find_gang(j, generation));
    gang *g = pst_alloc(sizeof *g);
    g->generation = generation;
    g->spec = *spec;
    g->n = pst_process_sets_count(spec->sets, spec->n_sets);
    g->processes = pst_alloc((size_t)g->n * sizeof *g->processes);
    for (int i = 0; i < g->n; i++)
        pst_process_sets_name(spec->sets, spec->n_sets, i, g->processes[i].name);
    j->gangs = pst_array_room(j->gangs, j->n, &j->cap, sizeof *j->gangs);
    size_t at = j->n++;
    for (; at && j->gangs[at - 1]->generation > generation; at--)
        j->gangs[at] = j->gangs[at - 1];
    j->gangs[at] = g;
    return g;
}

/* Marks the devices that live processes have; returns how many. */
static int mark_used(const lcm_core *l, bool *used)
{
    int n = 0;
    for (size_t i = 0; i < l->n_busy; i++)
        for (size_t k = 0; k < l->busy[i]->n; k++) {
            const gang *g = l->busy[i]->gangs[k];
            for (int p = 0; p < g->n; p++) {
                const pst_lcm_devices *d = &g->processes[p].devices;
                for (int x = 0; lives(&g->processes[p]) && x < d->n; x++) {
                    PST_ASSERT(d->at[x] >= 0 && d->at[x] < l->devices);
                    n += !used[d->at[x]];
                    used[d->at[x]] = true;
                }
            }
        }
    return n;
}

/* The lowest free devices; false when there are too few now. */
static bool take_devices(const lcm_core *l, int wanted, pst_lcm_devices *ret)
{
    PST_ASSERT(wanted <= PST_LCM_DEVICES_MAX);
    bool *used = pst_alloc((size_t)l->devices + 1);
    mark_used(l, used);
    ret->n = 0;
    for (int i = 0; i < l->devices && ret->n < wanted; i++)
        if (!used[i])
            ret->at[ret->n++] = i;
    free(used);
    return ret->n == wanted;
}

/* ---- one process ------------------------------------------------------------------------------------------------------------ */

/* The one place where a state changes. A cause that has no row is a bug: what comes late or twice is sorted out before. */
static void set_state(proc *p, lcm_cause cause, lcm_state to)
{
    PST_ASSERT(lcm_fsm_allows(p->state, cause, to));
    p->state = to;
}

/* It ended; exit says how. */
static void report_end(const job *j, const gang *g, const proc *p, lcm_actions *a)
{
    PST_ASSERT(p->state == LCM_STATE_ENDED); /* nothing else is an end, whatever was asked for */
    lcm_action *x = add(a, PST_LCM_REPORT, j, g->generation, p->name);
    x->report = p->exit.lost ? PST_LCM_REPORT_LOST : PST_LCM_REPORT_EXITED;
    x->exit = p->exit;
    memcpy(x->nonce, g->spec.nonce, sizeof x->nonce);
}

static const char *stop_code(pst_rundir_stop_reason w)
{
    return w == PST_STOP_REASON_PLATFORM_DOWN ? "PLATFORM_DOWN" : NULL;
}

/* It ends without a supervisor that could report it: we do, and marked so that a restart does not do it again. */
static void end_unreported(const job *j, const gang *g, proc *p, lcm_cause cause, const char *code, const char *reason, lcm_actions *a)
{
    set_state(p, cause, LCM_STATE_ENDED);
    memset(&p->exit, 0, sizeof p->exit);
    p->exit.lost = true;
    p->exit.stop_reason = p->stop_reason;
    snprintf(p->exit.reason_code, sizeof p->exit.reason_code, "%s", code ? code : "");
    snprintf(p->exit.reason, sizeof p->exit.reason, "%s", reason);
    report_end(j, g, p, a);
    lcm_action *x = add(a, PST_LCM_MARK_ENDED, j, g->generation, p->name);
    x->exit = p->exit;
}

static void stop_process(const job *j, const gang *g, proc *p, pst_rundir_stop_reason stop_reason, int64_t now_us, lcm_actions *a)
{
    switch (p->state) {
    case LCM_STATE_WAITING:
        p->stop_reason = stop_reason;
        end_unreported(j, g, p, LCM_CAUSE_STOP, stop_code(stop_reason), "stopped before it was started", a);
        break;
    case LCM_STATE_ALIVE:
        set_state(p, LCM_CAUSE_STOP, LCM_STATE_STOPPING);
        p->stop_reason = stop_reason;
        p->deadline_us = now_us + (int64_t)g->spec.grace_ms * 1000 + PST_LCM_MARGIN_US;
        add(a, PST_LCM_STOP, j, g->generation, p->name)->stop_reason = stop_reason;
        break;
    case LCM_STATE_STOPPING: /* halt, then terminate: one SIGTERM is enough, the stronger reason goes on record */
        if (stop_reason > p->stop_reason) {
            p->stop_reason = stop_reason;
            add(a, PST_LCM_STOP, j, g->generation, p->name)->stop_reason = stop_reason;
        }
        break;
    case LCM_STATE_KILLING:
        if (stop_reason > p->stop_reason)
            p->stop_reason = stop_reason;
        break;
    case LCM_STATE_FLUSHING: /* it has ended; its results and its end are under way, and a job that is halted gets them too */
        if (!p->deadline_us && stop_reason == PST_STOP_REASON_PLATFORM_DOWN)
            p->deadline_us = now_us + PST_LCM_MARGIN_US;
        break;
    default: break;
    }
}

static void stop_gang(const job *j, gang *g, pst_rundir_stop_reason stop_reason, int64_t now_us, lcm_actions *a)
{
    for (int i = 0; i < g->n; i++)
        stop_process(j, g, &g->processes[i], stop_reason, now_us, a);
}

/* SIGKILL to all of it, again on every tick until the launcher is certain. */
static void kill_process(const job *j, const gang *g, proc *p, lcm_cause cause, lcm_actions *a)
{
    set_state(p, cause, LCM_STATE_KILLING);
    add(a, PST_LCM_END, j, g->generation, p->name);
}

/* Restarts the publisher, ever more rarely if it dies again and again: at once, after 1 s, 2 s … 32 s. deadline_us 0 = it runs. */
static void drain(const job *j, const gang *g, proc *p, int64_t now_us, lcm_actions *a)
{
    PST_ASSERT(p->state == LCM_STATE_DRAINING);
    int64_t wait_us = 1;
    if (p->drains)
        wait_us = 1000000ll << (p->drains > 6 ? 5 : p->drains - 1);
    p->deadline_us = now_us + wait_us;
    if (!p->drains && !p->abandoned) {
        p->drains++;
        p->deadline_us = 0;
        add(a, PST_LCM_START, j, g->generation, p->name);
    }
}

/* What the launcher sees, now or at the start. A process that is there is adopted, one that ended by itself is believed, and of one that is gone
 * without a word the rest is ended first: only then is its end told. Seen twice, or by a watch that was slower than an answer, it changes nothing. */
static void see(const lcm_core *l, const job *j, const gang *g, proc *p, const lcm_event *in, lcm_actions *a)
{
    bool living = p->state == LCM_STATE_ALIVE || p->state == LCM_STATE_STOPPING;
    if (p->state == LCM_STATE_ENDED)
        return;
    switch (in->seen) {
    case PST_LCM_SEEN_ABSENT: /* WAITING stays so: advance() starts it. Else its supervisor died before it had done anything. */
        if (living)
            kill_process(j, g, p, LCM_CAUSE_VANISHED, a);
        break;
    case PST_LCM_SEEN_ALIVE:
        if (p->state != LCM_STATE_WAITING)
            break;
        /* adopted; a stop on disk has reached, or will reach, its supervisor */
        set_state(p, LCM_CAUSE_ADOPT, in->stop_reason ? LCM_STATE_STOPPING : LCM_STATE_ALIVE);
        p->stop_reason = in->stop_reason;
        p->deadline_us = in->stop_reason ? in->now_us + (int64_t)g->spec.grace_ms * 1000 + PST_LCM_MARGIN_US : 0;
        break;
    case PST_LCM_SEEN_FLUSHING:
        if (p->state != LCM_STATE_FLUSHING)
            p->deadline_us = l->stopping ? in->now_us : 0;
        set_state(p, LCM_CAUSE_FLUSH, LCM_STATE_FLUSHING);
        break;
    case PST_LCM_SEEN_ENDED:
        if (in->exit)
            p->exit = *in->exit;
        if (in->published) {
            set_state(p, LCM_CAUSE_EXITED, LCM_STATE_ENDED);
        } else {
            set_state(p, LCM_CAUSE_UNPUBLISHED, LCM_STATE_DRAINING);
            drain(j, g, p, in->now_us, a);
        }
        break;
    case PST_LCM_SEEN_VANISHED:
        if (p->state != LCM_STATE_KILLING) {
            p->stop_reason = in->stop_reason > p->stop_reason ? in->stop_reason : p->stop_reason;
            kill_process(j, g, p, LCM_CAUSE_VANISHED, a);
        }
        break;
    }
}

/* The launcher is certain: what its end was is ours to say. Another state than KILLING: the answer was overtaken by an end of its own. */
static void emptied(const job *j, const gang *g, proc *p, const lcm_event *in, lcm_actions *a)
{
    if (p->state != LCM_STATE_KILLING)
        return;
    const char *code = stop_code(p->stop_reason), *reason = "its supervisor vanished; the processes that it left were ended";
    if (p->stop_reason == PST_STOP_REASON_NONE)
        code = "S104"; /* nobody asked for its end: a failure of the platform's */
    else if (p->stop_reason == PST_STOP_REASON_PLATFORM_DOWN)
        reason = "ended by force while the platform was stopped";
    else
        reason = "ended by force: its supervisor did not end it within the grace time";
    if (in->text && *in->text) /* the launcher knows more */
        reason = in->text;
    end_unreported(j, g, p, LCM_CAUSE_EMPTIED, code, reason, a);
    if (in->published)
        return;
    set_state(p, LCM_CAUSE_LEFT_OUTPUT, LCM_STATE_DRAINING);
    drain(j, g, p, in->now_us, a);
}

/* ---- the gang --------------------------------------------------------------------------------------------------------------- */

/* The one place where processes begin. Those that find no free device wait for the next tick; what can never be placed ends at once. */
static void start_waiting(lcm_core *l, const job *j, gang *g, int64_t now_us, lcm_actions *a)
{
    PST_ASSERT(g == last_gang(j) && g->intended && !l->recovering && !l->stopping);
    for (size_t i = 0; i + 1 < j->n; i++)
        PST_ASSERT(!gang_lives(j->gangs[i])); /* no generation beside its successor */
    for (int i = 0; i < g->n; i++) {
        proc *p = &g->processes[i];
        if (p->state != LCM_STATE_WAITING)
            continue;
        int at, most = l->devices < PST_LCM_DEVICES_MAX ? l->devices : PST_LCM_DEVICES_MAX;
        int gpus = pst_process_sets_find(g->spec.sets, g->spec.n_sets, p->name, &at)->gpus;
        if (gpus > most) {
            char text[128];
            snprintf(text, sizeof text, "needs %d GPUs, the site has %d", gpus, most);
            report(a, PST_LCM_REPORT_DEPLOY_FAILED, j, g->generation, p->name, "S100", text);
            end_unreported(j, g, p, LCM_CAUSE_NOT_PLACED, "S100", text, a);
            continue;
        }
        if (!take_devices(l, gpus, &p->devices))
            return; /* until another process gives some back */
        set_state(p, LCM_CAUSE_START, LCM_STATE_ALIVE);
        add(a, PST_LCM_START, j, g->generation, p->name)->devices = p->devices;
    }
}

/* What follows from the state of the whole job: older generations end first, then the newest starts, then cleaning. Repeated freely. */
static void advance(lcm_core *l, job *j, int64_t now_us, lcm_actions *a)
{
    if (l->recovering)
        return;
    bool older_live = false;
    for (size_t i = 0; i + 1 < j->n;) {
        gang *g = j->gangs[i];
        stop_gang(j, g, PST_STOP_REASON_KILL, now_us, a);
        older_live |= gang_lives(g);
        if (gang_over(g)) {
            gang_free(g);
            memmove(&j->gangs[i], &j->gangs[i + 1], (--j->n - i) * sizeof *j->gangs);
        } else {
            i++;
        }
    }
    gang *g = last_gang(j);
    if (g && g->intended && !older_live && !l->stopping && !j->clean)
        start_waiting(l, j, g, now_us, a);
}

static bool is_busy(const job *j)
{
    if (j->clean || j->n > 1)
        return true;
    return j->n && !gang_over(j->gangs[0]);
}

static void unbusy(lcm_core *l, job *j)
{
    if (!j->busy_at)
        return;
    PST_ASSERT(j->busy_at <= l->n_busy && l->busy[j->busy_at - 1] == j);
    PST_ASSERT(!j->n || gang_over(last_gang(j)) || j->clean);
    job *last = l->busy[--l->n_busy];
    l->busy[j->busy_at - 1] = last;
    last->busy_at = j->busy_at;
    j->busy_at = 0;
}

/* Keeps the list of those that have to be looked after. */
static void note_busy(lcm_core *l, job *j)
{
    bool busy = is_busy(j);
    if (busy && !j->busy_at) {
        l->busy = pst_array_room(l->busy, l->n_busy, &l->cap_busy, sizeof *l->busy);
        l->busy[l->n_busy++] = j;
        j->busy_at = l->n_busy;
    } else if (!busy) {
        unbusy(l, j);
    }
}

/* Frees the job when it was cleaned. */
static void finish_clean(lcm_core *l, job *j, lcm_actions *a)
{
    note_busy(l, j);
    if (!j->clean)
        return;
    for (size_t i = 0; i < j->n; i++)
        for (int p = 0; p < j->gangs[i]->n; p++) {
            lcm_state state = j->gangs[i]->processes[p].state;
            if (state != LCM_STATE_ENDED && state != LCM_STATE_DRAINING)
                return;
        }
    report(a, PST_LCM_REPORT_CLEANED, j, j->clean_generation, NULL, NULL, "its folders on this node are removed");
    add(a, PST_LCM_REMOVE, j, j->clean_generation, NULL);
    unbusy(l, j);
    job_free(pst_map_take(&l->jobs, j->training_id));
}

static void deploy(lcm_core *l, const lcm_event *in, lcm_actions *a)
{
    job *j = get_job(l, in->id.training_id, true);
    gang *g = last_gang(j);
    if (g && g->generation > in->id.generation)
        return; /* fenced: a newer generation is known */
    if (g && g->generation == in->id.generation) {
        for (int i = 0; i < g->n; i++) /* again: whoever asks again may have missed it */
            if (g->processes[i].state == LCM_STATE_ENDED)
                report_end(j, g, &g->processes[i], a);
        return;
    }
    if (!spec_ok(&in->command)) {
        lcm_action *x = report(a, PST_LCM_REPORT_DEPLOY_FAILED, j, in->id.generation, NULL, "S101",
                               "the command names no possible number of learners, GPUs or grace time");
        memcpy(x->nonce, in->command.nonce, sizeof x->nonce);
        return;
    }
    g = add_gang(j, in->id.generation, &in->command);
    note_busy(l, j);
    add(a, PST_LCM_INTEND, j, g->generation, NULL)->command = in->command;
}

static void report_not_here(const lcm_event *in, const char *reason, lcm_actions *a)
{
    job here = {.training_id = (char *)in->id.training_id};
    lcm_action *x = report(a, PST_LCM_REPORT_LOST, &here, in->id.generation, NULL, "S104", reason);
    x->exit.lost = true;
    memcpy(x->nonce, in->command.nonce, sizeof x->nonce);
}

static void stop(lcm_core *l, const lcm_event *in, lcm_actions *a)
{
    job *j = get_job(l, in->id.training_id, false);
    gang *g = j ? last_gang(j) : NULL;
    if (!g || g->generation < in->id.generation) {
        report_not_here(in, "no such process on this node", a);
        return;
    }
    if (g->generation > in->id.generation)
        return;
    for (int i = 0; i < g->n; i++)
        if (g->processes[i].state == LCM_STATE_ENDED)
            report_end(j, g, &g->processes[i], a);
    stop_gang(j, g, in->command.kind == PST_LCM_HALT ? PST_STOP_REASON_HALT : PST_STOP_REASON_KILL, in->now_us, a);
}

static void clean(lcm_core *l, const lcm_event *in, lcm_actions *a)
{
    job *j = get_job(l, in->id.training_id, true);
    gang *g = last_gang(j);
    if (g && g->generation > in->id.generation && in->id.generation > 0)
        return;
    j->clean = true;
    j->clean_generation = in->id.generation;
    for (size_t i = 0; i < j->n; i++)
        stop_gang(j, j->gangs[i], PST_STOP_REASON_KILL, in->now_us, a);
    finish_clean(l, j, a);
}

/* The Trainer asks whether the generation is here; only "no" needs an answer. */
static void check(lcm_core *l, const lcm_event *in, lcm_actions *a)
{
    job *j = get_job(l, in->id.training_id, false);
    gang *g = j ? find_gang(j, in->id.generation) : NULL;
    for (int i = 0; g && i < g->n; i++)
        if (g->processes[i].state == LCM_STATE_ENDED)
            report_end(j, g, &g->processes[i], a);
    if (!g)
        report_not_here(in, "its run directory does not exist on this node", a);
}

static void expected(lcm_core *l, const lcm_event *in, lcm_actions *a)
{
    if (lcm_generation(l, in->id.training_id) >= in->id.generation)
        return;
    report_not_here(in, "its run directory does not exist on this node", a);
}

static void tick_process(const job *j, const gang *g, proc *p, int64_t now_us, lcm_actions *a)
{
    if (p->state == LCM_STATE_KILLING) {
        add(a, PST_LCM_END, j, g->generation, p->name);
    } else if (p->state == LCM_STATE_STOPPING && now_us >= p->deadline_us) {
        kill_process(j, g, p, LCM_CAUSE_GRACE_OVER, a);
    } else if (p->state == LCM_STATE_FLUSHING && p->deadline_us && now_us >= p->deadline_us) {
        add(a, p->abandoned ? PST_LCM_END : PST_LCM_ABANDON, j, g->generation, p->name)->force = p->abandoned;
        p->abandoned = true;
        p->deadline_us = now_us + PST_LCM_MARGIN_US;
    } else if (p->state == LCM_STATE_DRAINING && p->deadline_us && now_us >= p->deadline_us && !p->abandoned) {
        p->drains++;
        p->deadline_us = 0;
        add(a, PST_LCM_START, j, g->generation, p->name);
    }
}

static void stop_and_abandon(const job *j, gang *g, int64_t now_us, lcm_actions *a)
{
    stop_gang(j, g, PST_STOP_REASON_PLATFORM_DOWN, now_us, a);
    for (int p = 0; p < g->n; p++)
        if (g->processes[p].state == LCM_STATE_DRAINING && !g->processes[p].abandoned) {
            g->processes[p].abandoned = true;
            add(a, PST_LCM_ABANDON, j, g->generation, g->processes[p].name);
        }
}

static void whole_site(lcm_core *l, const lcm_event *in, lcm_actions *a)
{
    if (in->type == PST_LCM_RECOVERED)
        l->recovering = false;
    if (in->type == PST_LCM_STOP_SITE)
        l->stopping = true;
    for (size_t i = l->n_busy; i-- > 0;) { /* from the end: one that leaves the list is replaced by one seen already */
        job *j = l->busy[i];
        for (size_t k = 0; k < j->n; k++) {
            gang *g = j->gangs[k];
            if (in->type == PST_LCM_STOP_SITE)
                stop_and_abandon(j, g, in->now_us, a);
            for (int p = 0; in->type == PST_LCM_TICK && p < g->n; p++)
                tick_process(j, g, &g->processes[p], in->now_us, a);
        }
        advance(l, j, in->now_us, a);
        finish_clean(l, j, a);
    }
}

/* About one generation, or one process of it. What is not known here any more was cleaned or never was: nothing follows. */
static void about_generation(lcm_core *l, const lcm_event *in, lcm_actions *ret_actions)
{
    job *j = get_job(l, in->id.training_id, false);
    gang *g = j ? find_gang(j, in->id.generation) : NULL;
    proc *p = find_process(g, in->id.process);
    if (g && in->type == PST_LCM_INTENDED) {
        g->intended = true;
        report(ret_actions, PST_LCM_REPORT_DEPLOYING, j, g->generation, NULL, NULL, NULL);
    } else if (g && in->type == PST_LCM_INTENT_FAILED) {
        report(ret_actions, PST_LCM_REPORT_DEPLOY_FAILED, j, g->generation, NULL, "S101", in->text);
        for (int i = 0; i < g->n; i++)
            if (g->processes[i].state == LCM_STATE_WAITING) { /* else it was stopped before */
                set_state(&g->processes[i], LCM_CAUSE_NOT_INTENDED, LCM_STATE_ENDED);
                g->processes[i].exit.lost = true;
            }
    } else if (p && in->type == PST_LCM_START_FAILED && p->state == LCM_STATE_DRAINING) {
        drain(j, g, p, in->now_us, ret_actions);
    } else if (p && in->type == PST_LCM_START_FAILED && (p->state == LCM_STATE_ALIVE || p->state == LCM_STATE_STOPPING)) {
        report(ret_actions, PST_LCM_REPORT_DEPLOY_FAILED, j, g->generation, p->name, "S101", in->text);
        end_unreported(j, g, p, LCM_CAUSE_NOT_STARTED, "S101", in->text, ret_actions);
    } else if (p && in->type == PST_LCM_EMPTIED) {
        emptied(j, g, p, in, ret_actions);
    } else if (p && (in->type == PST_LCM_FOUND_PROCESS || in->type == PST_LCM_NOTICED)) {
        if (in->type == PST_LCM_FOUND_PROCESS && in->devices)
            p->devices = *in->devices;
        see(l, j, g, p, in, ret_actions);
    }
    if (j) {
        advance(l, j, in->now_us, ret_actions);
        finish_clean(l, j, ret_actions);
    }
}

void lcm_step(lcm_core *l, const lcm_event *in, lcm_actions *ret_actions)
{
    switch (in->type) {
    case PST_LCM_RECOVERED:
    case PST_LCM_TICK:
    case PST_LCM_STOP_SITE: whole_site(l, in, ret_actions); return;
    case PST_LCM_EXPECTED: expected(l, in, ret_actions); return;
    case PST_LCM_FOUND_GANG:
        if (spec_ok(&in->command) && !find_gang(get_job(l, in->id.training_id, true), in->id.generation)) {
            job *found = get_job(l, in->id.training_id, true);
            add_gang(found, in->id.generation, &in->command)->intended = true;
            note_busy(l, found);
        }
        return;
    case PST_LCM_COMMAND:
        switch (in->command.kind) {
        case PST_LCM_DEPLOY: deploy(l, in, ret_actions); return;
        case PST_LCM_HALT:
        case PST_LCM_KILL: stop(l, in, ret_actions); return;
        case PST_LCM_CLEAN: clean(l, in, ret_actions); return;
        case PST_LCM_CHECK: check(l, in, ret_actions); return;
        }
        return;
    default: break;
    }
    about_generation(l, in, ret_actions);
}

/* ---- questions -------------------------------------------------------------------------------------------------------------- */

bool lcm_idle(const lcm_core *l)
{
    for (size_t i = 0; i < l->n_busy; i++)
        for (size_t k = 0; k < l->busy[i]->n; k++) {
            const gang *g = l->busy[i]->gangs[k];
            for (int p = 0; p < g->n; p++) {
                const proc *x = &g->processes[p];
                if (x->state != LCM_STATE_ENDED && x->state != LCM_STATE_WAITING &&
                    !(x->state == LCM_STATE_DRAINING && x->abandoned && x->deadline_us))
                    return false;
            }
        }
    return true;
}

void lcm_counts(const lcm_core *l, int ret_counts[3])
{
    ret_counts[0] = (int)l->jobs.live;
    ret_counts[1] = 0;
    bool *used = pst_alloc((size_t)l->devices + 1);
    ret_counts[2] = mark_used(l, used);
    free(used);
    for (size_t i = 0; i < l->n_busy; i++)
        for (size_t k = 0; k < l->busy[i]->n; k++) {
            const gang *g = l->busy[i]->gangs[k];
            for (int p = 0; p < g->n; p++)
                ret_counts[1] += lives(&g->processes[p]);
        }
}

void lcm_each_living(const lcm_core *l, void (*fn)(void *arg, const char *training_id, int generation), void *arg)
{
    for (size_t i = 0; i < l->n_busy; i++)
        for (size_t k = 0; k < l->busy[i]->n; k++)
            if (gang_lives(l->busy[i]->gangs[k]))
                fn(arg, l->busy[i]->training_id, l->busy[i]->gangs[k]->generation);
}

int lcm_generation(const lcm_core *l, const char *training_id)
{
    const job *j = pst_map_get(&l->jobs, training_id);
    return j && j->n ? last_gang(j)->generation : 0;
}

bool lcm_is_busy(const lcm_core *l, const char *training_id)
{
    const job *j = pst_map_get(&l->jobs, training_id);
    return j && j->busy_at;
}

void lcm_forget(lcm_core *l, const char *training_id, int generation)
{
    job *j = pst_map_get(&l->jobs, training_id);
    if (j && !j->busy_at && j->n == 1 && j->gangs[0]->generation == generation)
        job_free(pst_map_take(&l->jobs, training_id));
}
