/* jobs.c - the verbs list, show and why: jobs as penstock.jobs.state tells them, without a gateway or a store in between. */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/platform/client.h"
#include "common/platform/verb.h"
#include "common/platform/why.h"
#include "verbs.h"
#include "common/bus/bus.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- list ---- */

typedef struct list_opts {
    const char *state, *user, *array;
    int64_t limit;
    bool all;
} list_opts;
static const pst_opt list_table[] = {
    {"state", 0, PST_OPT_STR, offsetof(list_opts, state), "S", NULL,
     "only jobs in this state: QUEUED PENDING DOWNLOADING PROCESSING STORING COMPLETED FAILED HALTED TERMINATED REJECTED"},
    {"user", 0, PST_OPT_STR, offsetof(list_opts, user), "U", NULL, "only this user's"},
    {"array", 0, PST_OPT_STR, offsetof(list_opts, array), "ID", NULL, "the tasks of this job array, by their indices"},
    {"all", 'a', PST_OPT_BOOL, offsetof(list_opts, all), NULL, NULL, "tasks of arrays, too, each in a line; else an array is one line"},
    {"limit", 'n', PST_OPT_INT, offsetof(list_opts, limit), "N 1..1000000", "50", "the newest N"},
};
static const pst_usage list_usage = {"list",
                                     "",
                                     "List jobs, newest first.",
                                     NULL,
                                     "penstock list\npenstock list --state PROCESSING\npenstock list --array training-… --state "
                                     "FAILED\npenstock list --json --all -n 1000000",
                                     list_table,
                                     sizeof list_table / sizeof *list_table,
                                     false};

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

static int by_index(const void *a, const void *b)
{
    const pst_job_state *x = *(pst_job_state *const *)a, *y = *(pst_job_state *const *)b;
    return (x->array_index > y->array_index) - (x->array_index < y->array_index);
}

static bool is_listed(const list_opts *o, const pst_job_state *s, int wanted)
{
    bool is_task = *s->array_of, like_that = (wanted < 0 || (int)s->state == wanted) && (!o->user || !strcmp(o->user, s->user));
    if (o->array)
        return like_that && !strcmp(s->array_of, o->array);
    return like_that && (o->all || !is_task);
}

/* From the topic alone, so that it works without the Trainer's store: the newest state of each job, the youngest jobs first. */
static int list_run(int argc, char **argv)
{
    list_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &list_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    pst_map jobs = {0};
    int wanted = o.state ? pst_job_public_state_parse(o.state) : -1, rc = 0;
    if (o.state && wanted < 0)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "--state %s: there is QUEUED PENDING DOWNLOADING PROCESSING STORING COMPLETED FAILED HALTED TERMINATED REJECTED",
                         o.state);
    if (!rc)
        rc = pst_client_jobs(v.client, &jobs, &v.err);
    pst_job_state **sorted = pst_alloc((jobs.live + 1) * sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < jobs.n; i++) {
        pst_job_state *s = jobs.at[i].key ? jobs.at[i].value : NULL;
        if (s && is_listed(&o, s, wanted))
            sorted[n++] = s;
    }
    PST_ASSERT(n <= jobs.live); /* the room that was made */
    qsort(sorted, n, sizeof *sorted, o.array ? by_index : newest_first);
    size_t shown = (size_t)o.limit < n ? (size_t)o.limit : n;
    const pst_job_state *array = o.array ? pst_map_get(&jobs, o.array) : NULL;
    if (!rc && o.array && (!array || !array->array))
        rc = pst_err_set(&v.err, PST_ENOTFOUND, PST_CLASS_DATA, "jobs", 0, array ? "%.80s is no job array" : "there is no job array %.80s",
                         o.array);
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
    pst_client_jobs_done(&jobs);
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

/* Only what is known: a row without a value is left out, so that what is there can be believed. */
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
    if (s->array)
        printf("  %-12s %s: %d tasks, %d wait, %d run, %d COMPLETED, %d FAILED, %d HALTED, %d TERMINATED, %d to come\n", "array",
               s->array->indices, s->array->tasks, s->array->waiting, s->array->running, s->array->completed, s->array->failed,
               s->array->halted, s->array->terminated, s->array->tasks - s->array->admitted);
    if (*s->array_of)
        printf("  %-12s index %d of %s\n", "task", s->array_index, s->array_of);
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

static const pst_usage why_usage = {
    "why",
    "ID",
    "Say why a job is where it is, since when, and what would help.",
    "Computed when asked, from the states of all jobs, the queues and the heartbeats of all nodes: of a job that waits, its place, which "
    "jobs are ahead of it,\n"
    "what its queue's rules say, what it lacks on which node, for which jobs it waits and who holds it; of one that runs, whether its node "
    "is heard.\n"
    "An id may be shortened to what is unique; the beginning of an array's id means the array.",
    "penstock why training-…\npenstock why training-… --json",
    NULL,
    0,
    false};

static int why_run(int argc, char **argv)
{
    int none = 0;
    pst_verb_run v;
    int status = pst_verb_begin(&v, &why_usage, argc, argv, &none, 1, 1);
    if (status >= 0)
        return status;
    pst_why *w = NULL;
    json_t *told = NULL;
    int rc = pst_why_gather(v.client, &w, &v.err);
    if (!rc)
        rc = pst_why_tell(w, v.args[0], NULL, pst_now_us(), &told, &v.err);
    if (!rc && v.settings.json)
        pst_json_print(stdout, told);
    else if (!rc)
        fputs(json_string_value(json_object_get(told, "text")), stdout);
    json_decref(told);
    pst_why_free(w);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_list_verb = {"list", "list jobs, newest first", "jobs", list_run, PST_USAGES(&list_usage)};
const pst_verb pst_show_verb = {"show", "one job: state and why, processes, model", "jobs", show_run, PST_USAGES(&show_usage)};
const pst_verb pst_why_verb = {"why", "why a job is where it is", "jobs", why_run, PST_USAGES(&why_usage)};
