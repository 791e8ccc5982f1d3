/* tail.c - the verbs events, logs and metrics: one job's records, so far or as they come. */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/term.h"
#include "common/platform/verb.h"
#include "common/platform/follow.h"
#include "schemas/manifest.h"
#include "verbs.h"
#include "common/bus/bus.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/topics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOCKS_US (86400 * 1000000LL) /* clocks of computers differ, in bad cases by hours */

typedef struct tail_opts {
    bool follow, plot;
    const char *process, *group;
    int64_t from, generation;
} tail_opts;

typedef struct series { /* one metric's course, for --plot */
    char *name;
    double *y;
    size_t n, cap;
} series;

typedef struct tail {
    tail_opts o;
    pst_verb_run *v;
    const pst_type *type;
    bool many; /* several processes or generations: lines carry their name */
    int64_t seen;
    int64_t left_out; /* points of the group system, which nobody asked for */
    series *plots;
    size_t n_plots;
} tail;

/* --process must name one that the job has, as its manifest says. */
static int check_process(const tail *t, const pst_job_state *s, pst_err *err)
{
    pst_manifest m = {0};
    pst_complaints bad = {0}, remarks = {0};
    const char *wanted = t->o.process;
    bool there = !wanted;
    if (there)
        return 0;
    pst_manifest_parse(s->manifest, strlen(s->manifest), &m, &bad, &remarks);
    int index;
    there = pst_manifest_role(&m, wanted, &index);
    if (!there) {
        pst_buf all = {0};
        for (size_t i = 0; i < m.n_roles; i++) {
            const char *role = pst_manifest_prefix(&m, &m.roles[i]);
            pst_buf_printf(&all, m.roles[i].count > 1 ? "%s%s-1 to %s-%d" : "%s%s-1", i ? ", " : "", role, role, m.roles[i].count);
        }
        pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "jobs", 0, "%s has no process %s; there is %s", s->training_id, wanted, all.data);
        pst_buf_done(&all);
    }
    pst_manifest_done(&m);
    pst_complaints_done(&bad);
    pst_complaints_done(&remarks);
    return there ? 0 : PST_ENOTFOUND;
}

/* Existence and submission time of the job; a job that is only queued in jobs.requests is not known yet. */
static int begin(tail *t, const char *id, int64_t *ret_since, pst_err *err)
{
    pst_job_state s = {0};
    int rc = pst_client_job(t->v->client, id, &s, err);
    if (!rc) {
        *ret_since = s.submitted_at ? s.submitted_at - CLOCKS_US : 0; /* a record is dated by the clock of whoever wrote it */
        t->many = s.learners > 1 || s.generation > 1;
        rc = check_process(t, &s, err);
    }
    if (!rc && t->o.generation > s.generation)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "jobs", 0, "%s has no attempt %lld, its newest is %d", s.training_id,
                         (long long)t->o.generation, s.generation);
    pst_event_clear(&pst_job_state_type, &s);
    return rc;
}

static int run(tail *t, pst_topic topic, int (*fn)(void *, const pst_record *, pst_err *), pst_err *err)
{
    int64_t since = 0;
    int rc = begin(t, t->v->args[0], &since, err);
    pst_follow f = {.client = t->v->client,
                    .topic = topic,
                    .training_id = t->v->args[0],
                    .follow = t->o.follow,
                    .to_the_end_of_job = true,
                    .since_us = since,
                    .fn = fn,
                    .arg = t};
    return rc ? rc : pst_follow_run(&f, err);
}

/* ---- events ---- */

static const pst_opt events_table[] = {
    {"follow", 'f', PST_OPT_BOOL, offsetof(tail_opts, follow), NULL, NULL, "go on until the job has ended"}};
static const pst_usage events_usage = {"events",
                                       "ID",
                                       "Show what happened to a job: who did what, and why.",
                                       NULL,
                                       "penstock events training-…\npenstock events -f training-… --json",
                                       events_table,
                                       1,
                                       false};

static int one_event(void *arg, const pst_record *r, pst_err *err)
{
    tail *t = arg;
    pst_job_event e;
    int rc = pst_codec_decode(t->v->client->codec, &pst_job_event_type, r->value, r->value_len, r->timestamp_ms, &e, err);
    if (rc < 0)
        return rc;
    t->seen++;
    if (t->v->settings.json)
        pst_print_event(&pst_job_event_type, &e);
    else {
        char time[32];
        printf("%.23sZ %4lld gen %d %-20s %-12s %-12s %s%s%s%s\n", pst_time_text(e.time, time), (long long)e.seq, e.generation,
               pst_job_event_type_text(e.type), pst_job_public_state_text(e.state), e.process ? e.process : "", e.reason ? e.reason : "",
               e.reason_code ? " [" : "", e.reason_code ? e.reason_code : "", e.reason_code ? "]" : "");
    }
    fflush(stdout);
    pst_event_clear(&pst_job_event_type, &e);
    return 0;
}

static int events_run(int argc, char **argv)
{
    tail t = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &events_usage, argc, argv, &t.o, 1, 1);
    if (status >= 0)
        return status;
    t.v = &v;
    int rc = run(&t, PST_TOPIC_JOBS_EVENTS, one_event, &v.err);
    if (rc == PST_ENOTFOUND) { /* its events outlive a job that was deleted */
        pst_err not_there = v.err;
        pst_err_clear(&v.err);
        pst_follow f = {.client = v.client, .topic = PST_TOPIC_JOBS_EVENTS, .training_id = v.args[0], .fn = one_event, .arg = &t};
        rc = pst_follow_run(&f, &v.err);
        if (!rc && !t.seen) {
            v.err = not_there;
            rc = PST_ENOTFOUND;
        }
    }
    return pst_verb_end(&v, rc);
}

/* ---- logs ---- */

static const pst_opt logs_table[] = {
    {"follow", 'f', PST_OPT_BOOL, offsetof(tail_opts, follow), NULL, NULL, "go on until the job has ended"},
    {"process", 0, PST_OPT_STR, offsetof(tail_opts, process), "P", NULL, "only this one: learner-1, ps-1, …"},
    {"generation", 0, PST_OPT_INT, offsetof(tail_opts, generation), "G", "0", "only this attempt; 0 = all"},
    {"from", 0, PST_OPT_INT, offsetof(tail_opts, from), "N 0..9000000000000000", "0", "from this rindex on"},
};
static const pst_usage logs_usage = {
    "logs",
    "ID",
    "Show a job's log lines.",
    "Lines that were left out stand as one line that says how many and why.",
    "penstock logs -f training-…\npenstock logs training-… --process learner-2 --from 1000\npenstock logs training-… --json | jq -r .text",
    logs_table,
    4,
    false};

static int one_line(void *arg, const pst_record *r, pst_err *err)
{
    tail *t = arg;
    pst_log_line l;
    int rc = pst_codec_decode(t->v->client->codec, &pst_log_line_type, r->value, r->value_len, r->timestamp_ms, &l, err);
    if (rc < 0)
        return rc;
    bool wanted = (!t->o.process || !strcmp(t->o.process, l.process)) && l.rindex >= t->o.from &&
                  (!t->o.generation || t->o.generation == l.generation);
    if (wanted && t->v->settings.json)
        pst_print_event(&pst_log_line_type, &l);
    else if (wanted) {
        const char *dim = "";
        if (t->v->settings.color && l.stream != PST_LOG_STREAM_STDOUT)
            dim = pst_tint(l.stream == PST_LOG_STREAM_STDERR ? 33 : 2);
        if (t->many)
            printf("[%d/%s] ", l.generation, l.process);
        if (l.gap)
            printf("%s… %lld lines (%lld bytes) left out: %s%s\n", dim, (long long)l.gap->lines, (long long)l.gap->bytes, l.gap->why,
                   *dim ? pst_tint(0) : "");
        else
            printf("%s%s%s\n", dim, l.text, *dim ? pst_tint(0) : "");
    }
    if (t->o.follow)
        fflush(stdout);
    pst_event_clear(&pst_log_line_type, &l);
    return 0;
}

static int logs_run(int argc, char **argv)
{
    tail t = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &logs_usage, argc, argv, &t.o, 1, 1);
    if (status >= 0)
        return status;
    t.v = &v;
    return pst_verb_end(&v, run(&t, PST_TOPIC_LOGS, one_line, &v.err));
}

/* ---- metrics ---- */

static const pst_opt metrics_table[] = {
    {"follow", 'f', PST_OPT_BOOL, offsetof(tail_opts, follow), NULL, NULL, "go on until the job has ended"},
    {"plot", 0, PST_OPT_BOOL, offsetof(tail_opts, plot), NULL, NULL, "draw each value's course in the terminal"},
    {"process", 0, PST_OPT_STR, offsetof(tail_opts, process), "P", NULL, "only this one"},
    {"group", 0, PST_OPT_STR, offsetof(tail_opts, group), "G", NULL,
     "only this one; system (what the platform measures) is shown only so; all = every one"},
};
static const pst_usage metrics_usage = {"metrics",
                                        "ID",
                                        "Show a job's evaluations.",
                                        "ID may also be pipeline:NAME, a scorer's own metrics.",
                                        "penstock metrics -f training-…\npenstock metrics training-… --plot\npenstock metrics training-… "
                                        "--json\npenstock metrics training-… --group system --plot",
                                        metrics_table,
                                        4,
                                        false};

static void remember(tail *t, const char *group, const char *name, double y)
{
    char *full = pst_sprintf("%s %s", group, name);
    series *s = NULL;
    for (size_t i = 0; i < t->n_plots && !s; i++)
        if (!strcmp(t->plots[i].name, full))
            s = &t->plots[i];
    if (!s) {
        t->plots = pst_array_one_more(t->plots, t->n_plots, sizeof *t->plots);
        s = &t->plots[t->n_plots++];
        *s = (series){.name = pst_strdup(full)};
    }
    free(full);
    s->y = pst_array_room(s->y, s->n, &s->cap, sizeof *s->y);
    s->y[s->n++] = y;
}

/* Eight levels of block characters, 60 columns, each the mean of its share of the course. */
static void draw(const series *s)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->y[i])) {
            low = fmin(low, s->y[i]);
            high = fmax(high, s->y[i]);
        }
    PST_ASSERT(s->n); /* a series begins with its first point */
    printf("%-28s ", s->name);
    size_t columns = s->n < 60 ? s->n : 60;
    for (size_t c = 0; c < columns; c++) {
        double sum = 0;
        size_t a = c * s->n / columns, b = (c + 1) * s->n / columns;
        PST_ASSERT(a < b && b <= s->n); /* no column is empty: there are at most as many as points */
        for (size_t i = a; i < b; i++)
            sum += s->y[i];
        double mean = sum / (double)(b - a);
        int level = high > low ? (int)((mean - low) / (high - low) * 7.999) : 0;
        if (isfinite(mean))
            printf("\xe2\x96%c", 0x81 + (level < 0 ? 0 : level));
        else
            printf("!");
    }
    printf("  %.5g → %.5g (least %.5g, most %.5g)\n", s->y[0], s->y[s->n - 1], low, high);
}

/* What the platform measures stands by itself: among a learner's evaluations it would be most of what is shown. */
static bool wants_group(tail *t, const char *group)
{
    bool is_system = !strcmp(group, "system");
    if (t->o.group)
        return !strcmp(t->o.group, "all") || !strcmp(t->o.group, group);
    t->left_out += is_system;
    return !is_system;
}

/* One of three forms: collected for the plot, JSON, or a line. The event is cleared on every way. */
static int one_point(void *arg, const pst_record *r, pst_err *err)
{
    tail *t = arg;
    pst_metric_point m;
    int rc = pst_codec_decode(t->v->client->codec, &pst_metric_point_type, r->value, r->value_len, r->timestamp_ms, &m, err);
    if (rc < 0)
        return rc;
    bool wanted = (!t->o.process || !strcmp(t->o.process, m.process)) && wants_group(t, m.group);
    t->seen += wanted;
    if (wanted && t->o.plot)
        for (size_t i = 0; i < m.n_values; i++)
            remember(t, m.group, m.values[i].key, m.values[i].value);
    else if (wanted && t->v->settings.json)
        pst_print_event(&pst_metric_point_type, &m);
    else if (wanted) {
        char time[32];
        printf("%.23sZ %-10s", pst_time_text(m.time, time), m.group);
        if (t->many)
            printf(" [%d/%s]", m.generation, m.process);
        if (m.has_step)
            printf(" step=%lld", (long long)m.step);
        if (m.has_epoch)
            printf(" epoch=%g", m.epoch);
        for (size_t i = 0; i < m.n_values; i++)
            printf(" %s=%.6g", m.values[i].key, m.values[i].value);
        printf("\n");
    }
    if (t->o.follow)
        fflush(stdout);
    pst_event_clear(&pst_metric_point_type, &m);
    return 0;
}

static int metrics_run(int argc, char **argv)
{
    tail t = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &metrics_usage, argc, argv, &t.o, 1, 1), rc;
    if (status >= 0)
        return status;
    t.v = &v;
    if (!strncmp(v.args[0], "pipeline:", 9)) { /* no job stands behind it */
        pst_follow f = {
            .client = v.client, .topic = PST_TOPIC_METRICS, .training_id = v.args[0], .follow = t.o.follow, .fn = one_point, .arg = &t};
        rc = pst_follow_run(&f, &v.err);
    } else
        rc = run(&t, PST_TOPIC_METRICS, one_point, &v.err);
    for (size_t i = 0; i < t.n_plots; i++) {
        draw(&t.plots[i]);
        free(t.plots[i].name);
        free(t.plots[i].y);
    }
    free(t.plots);
    if (!rc && !t.seen && t.left_out)
        fprintf(stderr, "no evaluations; %lld points of the platform's own: --group system\n", (long long)t.left_out);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_events_verb = {"events", "what happened to a job, in order", "jobs", events_run, PST_USAGES(&events_usage)};
const pst_verb pst_logs_verb = {"logs", "a job's log lines", "jobs", logs_run, PST_USAGES(&logs_usage)};
const pst_verb pst_metrics_verb = {"metrics", "a job's evaluations, as text, JSON or curves", "jobs", metrics_run,
                                   PST_USAGES(&metrics_usage)};
