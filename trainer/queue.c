/* queue.c - who runs next, and why the others wait. One queue per site, by priority, then time of submission. The first that is ready runs
 * when the whole gang fits; one that does not fit blocks those behind it, or a wide job would starve behind narrow ones. Resources are
 * charged when a generation is deployed and released when its last process was observed to have ended. */
#include "common/base/clock.h"
#include "trainer/core_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_DELAY_US = 500000, RETRY_DELAY_MAX_US = 60000000, NEVER_S = 900, CLOCK_DIFFERS_US = 10000000 };

trainer_needs trainer_needs_of(int learners, int parameter_servers, double cpus, int64_t memory_bytes, int gpus)
{
    int64_t processes = (int64_t)learners + parameter_servers;
    int64_t devices = (int64_t)learners * pst_process_gpus("learner-1", gpus) + (int64_t)parameter_servers * pst_process_gpus("ps-1", gpus);
    return (trainer_needs){processes * (int64_t)llround(cpus * PST_CPU_UNIT), processes * memory_bytes, devices};
}

/* ---- sites ------------------------------------------------------------------------------------------------------------------- */

trainer_site *tcore_site(tcore *c, const char *name)
{
    trainer_site *s = pst_map_get(&c->sites, name);
    if (!s) {
        s = pst_alloc(sizeof *s);
        s->name = pst_strdup(name);
        pst_map_put(&c->sites, name, s);
    }
    return s;
}

void trainer_site_free(void *site)
{
    trainer_site *s = site;
    if (!s)
        return;
    free(s->name);
    free(s->nodes);
    free(s->queue);
    free(s);
}

/* ---- the queue of one site --------------------------------------------------------------------------------------------------- */

static int compare(const trainer_job *a, const trainer_job *b)
{
    if (a->s.priority != b->s.priority)
        return a->s.priority > b->s.priority ? -1 : 1;
    if (a->s.submitted_at != b->s.submitted_at)
        return a->s.submitted_at < b->s.submitted_at ? -1 : 1;
    return strcmp(a->s.training_id, b->s.training_id);
}

static size_t place_of(const trainer_site *s, const trainer_job *j)
{
    size_t low = 0, high = s->n_queue;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (compare(s->queue[mid], j) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void trainer_queue_add(tcore *c, trainer_job *j)
{
    trainer_site *s = j->site;
    PST_ASSERT(!j->queued && j->s.state == PST_JOB_PUBLIC_STATE_QUEUED);
    if (s->n_queue == s->cap_queue) {
        s->cap_queue = s->cap_queue ? s->cap_queue * 2 : 64;
        s->queue = pst_realloc(s->queue, s->cap_queue * sizeof(trainer_job *));
    }
    size_t at = place_of(s, j);
    memmove(s->queue + at + 1, s->queue + at, (s->n_queue - at) * sizeof(trainer_job *));
    s->queue[at] = j;
    s->n_queue++;
    s->n_unsaid++;
    j->queued = j->unsaid = true;
}

void trainer_queue_remove(tcore *c, trainer_job *j)
{
    if (!j->queued)
        return;
    trainer_site *s = j->site;
    size_t at = place_of(s, j);
    PST_ASSERT(at < s->n_queue && s->queue[at] == j);
    memmove(s->queue + at, s->queue + at + 1, (s->n_queue - at - 1) * sizeof(trainer_job *));
    s->n_queue--;
    s->n_unsaid -= j->unsaid;
    j->queued = j->unsaid = false;
}

/* ---- running it -------------------------------------------------------------------------------------------------------------- */

static void say_queued(tcore *c, trainer_job *j, const char *reason)
{
    if (!j->unsaid && j->s.reason && !strcmp(j->s.reason, reason))
        return;
    j->site->n_unsaid -= j->unsaid;
    j->unsaid = false;
    tcore_set_text(&j->s.reason, reason);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_QUEUED, j->s.state, &(trainer_say){.reason = reason});
}

static void make_processes(trainer_job *j)
{
    for (size_t i = 0; i < j->s.n_processes; i++)
        pst_event_clear(&pst_job_process_type, &j->s.processes[i]);
    free(j->s.processes);
    j->s.n_processes = (size_t)(j->s.learners + j->parameter_servers);
    j->s.processes = pst_alloc((j->s.n_processes + 1) * sizeof *j->s.processes);
    for (size_t i = 0; i < j->s.n_processes; i++) {
        bool learner = i < (size_t)j->s.learners;
        j->s.processes[i].name = pst_sprintf("%s-%zu", learner ? "learner" : "ps", learner ? i + 1 : i + 1 - (size_t)j->s.learners);
        j->s.processes[i].state = PST_JOB_PROCESS_STATE_WAITING;
    }
}

static void deploy(tcore *c, trainer_job *j, const trainer_node *node)
{
    if (j->unsaid) {
        char *reason = pst_sprintf("it is next, and site %s has room", j->site->name);
        say_queued(c, j, reason);
        free(reason);
    }
    trainer_queue_remove(c, j);
    tcore_set_text(&j->s.node, node->name);
    tcore_charge(c, j);
    make_processes(j);
    j->checkpoint_us = j->result_us = j->ready_us = j->done_us = 0;
    j->s.generation++;
    j->s.has_started_at = false;
    j->s.started_at = 0;
    tcore_set_text(&j->s.reason, NULL);
    tcore_set_text(&j->s.reason_code, NULL);
    c->counts.deployed++;
    char *reason = pst_sprintf("generation %d goes to node %s of site %s", j->s.generation, node->name, j->site->name);
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_DEPLOYING, PST_JOB_PUBLIC_STATE_PENDING, &(trainer_say){.reason = reason});
    tcore_command(c, j, PST_JOB_COMMAND_TYPE_DEPLOY, NULL, reason);
    free(reason);
}

/* A retry waits 0.5 s, 1 s, 2 s, …, a minute at most: a fault that repeats at once must not spin. */
static int64_t ready_at(const tcore *c, const trainer_job *j)
{
    int used = j->s.attempts + j->s.platform_attempts;
    if (!used || j->s.since > c->now_us + CLOCK_DIFFERS_US) /* another Trainer's clock said since when: it was waited long enough */
        return 0;
    int64_t delay = used > 10 ? RETRY_DELAY_MAX_US : (int64_t)RETRY_DELAY_US << (used - 1);
    return j->s.since + (delay < RETRY_DELAY_MAX_US ? delay : RETRY_DELAY_MAX_US);
}

static void fail_never(tcore *c, trainer_job *j, const char *reason)
{
    trainer_queue_remove(c, j);
    c->counts.failed++;
    tcore_set_text(&j->s.reason, reason);
    tcore_set_text(&j->s.reason_code, "INSUFFICIENT_RESOURCES");
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_FAILED, PST_JOB_PUBLIC_STATE_FAILED,
               &(trainer_say){.reason_code = "INSUFFICIENT_RESOURCES", .reason = reason});
}

static char *behind(const trainer_site *s, size_t place)
{
    return pst_sprintf("%zu job%s of site %s %s ahead; the first, %s, says: %s", place, place == 1 ? "" : "s", s->name,
                       place == 1 ? "is" : "are", s->queue[0]->s.training_id, s->queue[0]->s.reason ? s->queue[0]->s.reason : "it is next");
}

/* Deploys from the front until one that is ready does not fit; jobs that pause before a retry are passed over. */
static void deploy_what_fits(tcore *c, trainer_site *s)
{
    size_t at = 0;
    while (at < s->n_queue) {
        trainer_job *j = s->queue[at];
        char *never = trainer_queue_never(s, &j->needs);
        char *reason = NULL;
        bool bound = false;
        const trainer_node *node = never ? NULL : trainer_site_place(c, j, &reason, &bound);
        bool waits_for_retry = ready_at(c, j) > c->now_us;
        j->never_us = !never || c->unsettled ? 0 : j->never_us ? j->never_us : c->now_us;
        if (never && j->never_us && c->now_us - j->never_us >= NEVER_S * (int64_t)1000000) {
            fail_never(c, j, never);
        } else if (never) { /* an LCM may have come back with less than it had: others need not wait for what it lost */
            char *text = pst_sprintf("%s; it waits for the site to grow, and fails when that has lasted %d minutes", never, NEVER_S / 60);
            say_queued(c, j, text);
            free(text);
            at++;
        } else if (waits_for_retry) {
            char *text = pst_sprintf("it is tried again after a pause: %s", j->s.reason ? j->s.reason : "");
            if (j->unsaid)
                say_queued(c, j, text);
            free(text);
            at++;
        } else if (reason) {
            say_queued(c, j, reason);
            at += bound; /* those behind it may well run elsewhere */
        } else {
            deploy(c, j, node);
        }
        free(never);
        bool blocks = reason && !waits_for_retry && !bound;
        free(reason);
        if (blocks)
            return;
    }
}

static void run_site(tcore *c, trainer_site *s)
{
    deploy_what_fits(c, s);
    for (size_t i = s->n_queue; i-- > 0 && s->n_unsaid;) /* those that came now mostly stand at the end */
        if (s->queue[i]->unsaid) {
            char *reason = behind(s, i);
            say_queued(c, s->queue[i], reason);
            free(reason);
        }
}

void trainer_queue_run(tcore *c)
{
    for (size_t i = 0; i < c->sites.n; i++)
        if (c->sites.at[i].key && ((trainer_site *)c->sites.at[i].value)->n_queue)
            run_site(c, c->sites.at[i].value);
}
