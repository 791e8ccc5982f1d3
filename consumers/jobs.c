/* jobs.c - the verbs list, show and why: jobs as penstock.jobs.state tells them, without a gateway or a store in between. */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/seal.h"
#include "common/platform/client.h"
#include "common/platform/verb.h"
#include "verbs.h"
#include "common/bus/bus.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- list ---- */

typedef struct list_opts {
    const char *state, *user;
    int64_t limit;
} list_opts;
static const pst_opt list_table[] = {
    {"state", 0, PST_OPT_STR, offsetof(list_opts, state), "S", NULL,
     "only jobs in this state: QUEUED PENDING DOWNLOADING PROCESSING STORING COMPLETED FAILED HALTED TERMINATED REJECTED"},
    {"user", 0, PST_OPT_STR, offsetof(list_opts, user), "U", NULL, "only this user's"},
    {"limit", 'n', PST_OPT_INT, offsetof(list_opts, limit), "N 1..1000000", "50", "the newest N"},
};
static const pst_usage list_usage = {"list",
                                     "",
                                     "List jobs, newest first.",
                                     NULL,
                                     "penstock list\npenstock list --state PROCESSING\npenstock list --json -n 1000000",
                                     list_table,
                                     3,
                                     false};

typedef struct gather {
    pst_client *c;
    pst_map jobs; /* id → pst_job_state, latest */
} gather;

static void job_free(void *p)
{
    pst_event_clear(&pst_job_state_type, p);
    free(p);
}

static int gather_one(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gather *g = arg;
    pst_job_state *s = NULL;
    if (r->value) {
        s = pst_alloc(sizeof *s);
        int rc = pst_client_state(g->c, key, r, s, err);
        if (rc) {
            free(s);
            return rc < 0 ? rc : 0;
        }
        if (s->state == PST_JOB_PUBLIC_STATE_UNKNOWN) { /* requests that wait for their submission: no job yet */
            job_free(s);
            s = NULL;
        } else
            pst_sealed_mask(s->manifest);
    }
    pst_job_state *old = s ? pst_map_put(&g->jobs, key, s) : pst_map_take(&g->jobs, key);
    if (old)
        job_free(old);
    return 0;
}

/* How long ago by our clock; what a clock ahead of ours says has happened just now. */
static const char *ago(int64_t us, char span[32])
{
    int64_t now = pst_now_us();
    return pst_span_text(us < now ? now - us : 0, span);
}

static int newest_first(const void *a, const void *b)
{
    const pst_job_state *x = *(pst_job_state *const *)a, *y = *(pst_job_state *const *)b;
    if (x->submitted_at != y->submitted_at)
        return x->submitted_at < y->submitted_at ? 1 : -1;
    return strcmp(x->training_id, y->training_id);
}

static void print_job_line(const pst_job_state *s)
{
    char span[32];
    printf("%-34s %-12s %-24.24s %-12.12s %-9s %s\n", s->training_id, pst_job_public_state_text(s->state), s->name, s->user,
           ago(s->submitted_at, span), s->reason ? s->reason : "");
}

/* From the topic alone, so that it works without the Trainer's store: the newest state of each job, the youngest jobs first. */
static int list_run(int argc, char **argv)
{
    list_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &list_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    gather g = {.c = v.client};
    int wanted = o.state ? pst_job_public_state_parse(o.state) : -1, rc = 0;
    if (o.state && wanted < 0)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "--state %s: there is QUEUED PENDING DOWNLOADING PROCESSING STORING COMPLETED FAILED HALTED TERMINATED REJECTED",
                         o.state);
    if (!rc)
        rc = pst_client_scan(v.client, PST_TOPIC_JOBS_STATE, NULL, gather_one, &g, &v.err);
    pst_job_state **sorted = pst_alloc((g.jobs.live + 1) * sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < g.jobs.n; i++) {
        pst_job_state *s = g.jobs.at[i].key ? g.jobs.at[i].value : NULL;
        if (s && (wanted < 0 || (int)s->state == wanted) && (!o.user || !strcmp(o.user, s->user)))
            sorted[n++] = s;
    }
    PST_ASSERT(n <= g.jobs.live); /* the room that was made */
    qsort(sorted, n, sizeof *sorted, newest_first);
    size_t shown = (size_t)o.limit < n ? (size_t)o.limit : n;
    if (!rc && !v.settings.json && n)
        printf("%-34s %-12s %-24s %-12s %-9s %s\n", "ID", "STATE", "NAME", "USER", "AGE", "WHY");
    for (size_t i = 0; !rc && i < shown; i++)
        if (v.settings.json)
            pst_print_event(&pst_job_state_type, sorted[i]);
        else
            print_job_line(sorted[i]);
    if (!rc && !n && !v.settings.json && !v.settings.quiet)
        fprintf(stderr, "no jobs%s; penstock submit MANIFEST makes one\n", wanted >= 0 || o.user ? " like that" : " yet");
    free(sorted);
    pst_map_done(&g.jobs, job_free);
    return pst_verb_end(&v, rc);
}

/* ---- show ---- */

static const pst_usage show_usage = {"show",
                                     "ID",
                                     "Show one job: state and why, resources, processes, the model it made.",
                                     NULL,
                                     "penstock show training-…\npenstock show training-… --json",
                                     NULL,
                                     0,
                                     false};

static void row(const char *name, const char *value)
{
    if (value && *value)
        printf("  %-12s %s\n", name, value);
}

static void row_time(const char *name, int64_t us)
{
    char text[32], span[32];
    if (us)
        printf("  %-12s %s  (%s ago)\n", name, pst_time_text(us, text), ago(us, span));
}

static void print_job(const pst_job_state *s)
{
    printf("%s\n", s->training_id);
    row("name", s->name);
    row("description", s->description);
    row("user", s->user);
    printf("  %-12s %s%s%s\n", "state", pst_job_public_state_text(s->state), s->reason ? ": " : "", s->reason ? s->reason : "");
    row("code", s->reason_code);
    row("framework", s->framework);
    printf("  %-12s %d, learners %d, each %.3g cpus, %d gpus, %.0f MiB\n", "generation", s->generation, s->learners, s->cpus, s->gpus,
           (double)s->memory_bytes / 1048576);
    printf("  %-12s %s, priority %d, site %s\n", "queue", s->queue, s->priority, s->site);
    row("held by", s->held_by);
    for (size_t i = 0; i < s->n_after; i++)
        row(i ? "" : "after", s->after[i]);
    row_time("submitted", s->submitted_at);
    row_time("since", s->since);
    row_time("started", s->has_started_at ? s->started_at : 0);
    row_time("ended", s->has_ended_at ? s->ended_at : 0);
    for (size_t i = 0; i < s->n_processes; i++) {
        const pst_job_process *p = &s->processes[i];
        printf("  %-12s %s", p->name, pst_job_process_state_text(p->state));
        if (p->has_exit_code)
            printf(", exit status %d", p->exit_code);
        if (p->has_signal)
            printf(", signal %d", p->signal);
        printf("\n");
    }
    if (s->model)
        printf("  %-12s %s:%d  sha256:%s\n", "model", s->model->name, s->model->version, s->model->digest);
}

static int show_run(int argc, char **argv)
{
    int none = 0;
    pst_verb_run v;
    int status = pst_verb_begin(&v, &show_usage, argc, argv, &none, 1, 1);
    if (status >= 0)
        return status;
    pst_job_state s = {0};
    int rc = pst_client_job(v.client, v.args[0], &s, &v.err);
    if (!rc && v.settings.json)
        pst_print_event(&pst_job_state_type, &s);
    else if (!rc)
        print_job(&s);
    pst_event_clear(&pst_job_state_type, &s);
    return pst_verb_end(&v, rc);
}

/* ---- why ---- */

static const pst_usage why_usage = {"why",
                                    "ID",
                                    "Say in one or two sentences why a job is where it is, since when, and what would help.",
                                    NULL,
                                    "penstock why training-…",
                                    NULL,
                                    0,
                                    false};

static const char *advice(const pst_job_state *s)
{
    switch (s->state) {
    case PST_JOB_PUBLIC_STATE_QUEUED:
        if (s->n_after && !s->held_by)
            return "It starts once they are COMPLETED and there is room, and fails when one of them ends otherwise.";
        if (s->held_by)
            return "`penstock release` lets it start.";
        return "It starts by itself once there is room; `penstock list --state PROCESSING` shows what runs.";
    case PST_JOB_PUBLIC_STATE_PENDING: return "Its processes are being started; `penstock events -f` follows.";
    case PST_JOB_PUBLIC_STATE_FAILED: return "`penstock logs` shows what it said last; `penstock resume` tries again from its checkpoint.";
    case PST_JOB_PUBLIC_STATE_REJECTED: return "It was never a job. Correct it and submit it again, under another request id.";
    case PST_JOB_PUBLIC_STATE_HALTED: return "`penstock resume` goes on from its checkpoint.";
    default: return NULL;
    }
}

static int why_run(int argc, char **argv)
{
    int none = 0;
    pst_verb_run v;
    int status = pst_verb_begin(&v, &why_usage, argc, argv, &none, 1, 1);
    if (status >= 0)
        return status;
    pst_job_state s = {0};
    int rc = pst_client_job(v.client, v.args[0], &s, &v.err);
    if (!rc && v.settings.json) {
        json_t *j = json_pack("{s:s, s:s, s:s?, s:s?, s:I}", "training_id", s.training_id, "state", pst_job_public_state_text(s.state),
                              "reason_code", s.reason_code, "reason", s.reason, "since", (json_int_t)s.since);
        pst_json_print(stdout, j);
        json_decref(j);
    } else if (!rc) {
        char span[32];
        printf("%s is %s for %s", s.training_id, pst_job_public_state_text(s.state), ago(s.since ? s.since : s.updated_at, span));
        printf("%s%s%s%s%s\n", s.reason ? ": " : ".", s.reason ? s.reason : "", s.reason_code ? " [" : "",
               s.reason_code ? s.reason_code : "", s.reason_code ? "]" : "");
        if (advice(&s))
            printf("%s\n", advice(&s));
    }
    pst_event_clear(&pst_job_state_type, &s);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_list_verb = {"list", "list jobs, newest first", "jobs", list_run, PST_USAGES(&list_usage)};
const pst_verb pst_show_verb = {"show", "one job: state and why, processes, model", "jobs", show_run, PST_USAGES(&show_usage)};
const pst_verb pst_why_verb = {"why", "why a job is where it is", "jobs", why_run, PST_USAGES(&why_usage)};
