/* bulk.c - one thing asked of many jobs. The jobs are those that the options choose from jobs.state now; each gets a request of its own, answered by the
 * Trainer like any other, so that nothing happens to a job that could not have been asked for it alone. At most IN_FLIGHT requests wait for their answer:
 * a Trainer that does not answer is noticed before a thousand jobs were asked. A job that ended by itself before it was to be ended is no failure.
 * What is chosen is said first; a person on a terminal is asked, a script is not: it has no way to answer. */
#include "producers/bulk.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/stop.h"
#include "common/platform/codec.h"
#include "common/platform/trace.h"
#include "producers/answers.h"
#include "schemas/events.h"
#include "schemas/job_state.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { IN_FLIGHT = 200, ANSWER_US = 10 * 1000000, SHOWN = 10, PUBLISH_MS = 30000 };

typedef enum { UNASKED, ASKED, ACCEPTED, ENDED_BEFORE, REFUSED } outcome;
static const char *const outcome_words[] = {"not asked", "unanswered", "accepted", "ended before", "refused"};

typedef struct target {
    const pst_job_state *s; /* as it was chosen */
    outcome outcome;
    bool over; /* --wait: what was asked for has come about */
    pst_job_public_state state;
    char *request_id, *type, *code, *reason; /* of the answer */
} target;

typedef struct bulk_run {
    pst_verb_run *v;
    const jobs_bulk *b;
    target *at;
    size_t n, next, in_flight, counts[REFUSED + 1], over;
    pst_map by_id;
    pst_consumer *answers;
    pst_producer *producer;
    pst_err undelivered;
    int64_t heard_us;
} bulk_run;

/* ---- which ----------------------------------------------------------------------------------------------------------------------- */

static const char *verb_of(pst_job_action a)
{
    switch (a) {
    case PST_JOB_ACTION_HALT: return "halt";
    case PST_JOB_ACTION_RESUME: return "resume";
    case PST_JOB_ACTION_TERMINATE: return "terminate";
    case PST_JOB_ACTION_DELETE: return "delete";
    case PST_JOB_ACTION_HOLD: return "hold";
    default: return "release";
    }
}

/* Where no state was named: the jobs of which it can be asked. */
static bool makes_sense(pst_job_action a, const pst_job_state *s)
{
    bool halted = s->state == PST_JOB_PUBLIC_STATE_HALTED, queued = s->state == PST_JOB_PUBLIC_STATE_QUEUED;
    switch (a) {
    case PST_JOB_ACTION_HALT: /* one that is being pre-empted would come back */
        return !pst_job_state_is_ended(s->state) &&
               (s->stop_action == PST_JOB_STOP_ACTION_NONE || s->stop_action == PST_JOB_STOP_ACTION_PREEMPT);
    case PST_JOB_ACTION_RESUME: return halted || s->state == PST_JOB_PUBLIC_STATE_FAILED;
    case PST_JOB_ACTION_TERMINATE: return !pst_job_state_is_ended(s->state) || halted;
    case PST_JOB_ACTION_HOLD: return queued && !s->held_by;
    case PST_JOB_ACTION_RELEASE: return s->held_by && (queued || halted);
    default: return true;
    }
}

static int read_states(const char *text, bool wanted[PST_JOB_PUBLIC_STATE_REJECTED + 1], pst_err *err)
{
    while (text && *text) {
        size_t len = strcspn(text, ",");
        char *word = pst_strndup(text, len);
        int state = pst_job_public_state_parse(word);
        if (state > PST_JOB_PUBLIC_STATE_UNKNOWN && state <= PST_JOB_PUBLIC_STATE_REJECTED)
            wanted[state] = true;
        else
            pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                        "--state %.40s: there is QUEUED PENDING DOWNLOADING PROCESSING STORING COMPLETED FAILED HALTED TERMINATED "
                        "REJECTED; several "
                        "with commas between them",
                        word);
        free(word);
        text += len + (text[len] == ',');
    }
    return err->code;
}

static int oldest_first(const void *a, const void *b)
{
    const pst_job_state *x = *(const pst_job_state *const *)a, *y = *(const pst_job_state *const *)b;
    if (x->submitted_at != y->submitted_at)
        return x->submitted_at < y->submitted_at ? -1 : 1;
    return strcmp(x->training_id, y->training_id);
}

/* By everything but its user. */
static bool is_meant(const jobs_bulk *b, const pst_job_state *s, const bool *wanted)
{
    return (b->state ? wanted[s->state] : makes_sense(b->action, s)) && (!b->queue || !strcmp(b->queue, s->queue)) &&
           (!b->name || !fnmatch(b->name, s->name, 0));
}

/* Arrays with a task, known or not admitted yet, of a state that was not named: asked for itself the array would take those along (`delete --state
 * FAILED` of one with 999 tasks that are COMPLETED). Keys are borrowed. */
static void find_mixed(const pst_map *jobs, const bool *wanted, pst_map *mixed)
{
    static int yes;
    for (size_t i = 0; i < jobs->n; i++) {
        const pst_job_state *s = jobs->at[i].key ? jobs->at[i].value : NULL;
        if (s && *s->array_of && !wanted[s->state])
            pst_map_put(mixed, s->array_of, &yes);
        else if (s && s->array && !wanted[PST_JOB_PUBLIC_STATE_QUEUED] && !pst_job_state_is_ended(s->state))
            pst_map_put(mixed, s->training_id, &yes);
    }
}

int jobs_bulk_choose(const jobs_bulk *b, const pst_map *jobs, const pst_job_state ***ret, size_t *ret_n, size_t *ret_others, pst_err *err)
{
    bool wanted[PST_JOB_PUBLIC_STATE_REJECTED + 1] = {0};
    const char *const options[][2] = {{"--user", b->user}, {"--state", b->state}, {"--queue", b->queue}, {"--name", b->name}};
    size_t given = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        given += options[i][1] != NULL;
        if (options[i][1] && !*options[i][1]) /* an empty variable of a script */
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s is empty: give a value, or leave it out", options[i][0]);
    }
    if (!given)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "which job? Give an ID, or choose with --user, --state, --queue, --name (--user '*': everybody's)");
    if (read_states(b->state, wanted, err) < 0)
        return err->code;
    const char *user = b->user ? b->user : pst_account_name(b->as);
    const pst_job_state **chosen = pst_alloc((jobs->live + 1) * sizeof *chosen);
    size_t n = 0, others = 0;
    pst_map mixed = {0};
    if (b->state)
        find_mixed(jobs, wanted, &mixed);
    for (size_t i = 0; i < jobs->n; i++) {
        const pst_job_state *s = jobs->at[i].key ? jobs->at[i].value : NULL;
        const pst_job_state *array = s && *s->array_of ? pst_map_get(jobs, s->array_of) : NULL;
        if (array && is_meant(b, array, wanted) && !pst_map_get(&mixed, s->array_of)) /* what is asked of the array reaches it */
            continue;
        bool like_that = s && is_meant(b, s, wanted) && !pst_map_get(&mixed, s->training_id);
        bool theirs = like_that && (b->user ? fnmatch(user, s->user, 0) != 0 : strcmp(user, s->user) != 0);
        others += theirs;
        if (like_that && !theirs)
            chosen[n++] = s;
    }
    pst_map_done(&mixed, NULL);
    PST_ASSERT(n <= jobs->live);
    qsort(chosen, n, sizeof *chosen, oldest_first);
    *ret = chosen;
    *ret_n = n;
    *ret_others = b->user ? 0 : others;
    return 0;
}

/* ---- what is going to be done ---------------------------------------------------------------------------------------------------- */

static void describe(const jobs_bulk *b, const target *at, size_t n, size_t others)
{
    size_t by_state[PST_JOB_PUBLIC_STATE_REJECTED + 1] = {0};
    for (size_t i = 0; i < n; i++)
        by_state[at[i].s->state]++;
    fprintf(stderr, "%s %zu job%s%s:", verb_of(b->action), n, n == 1 ? "" : "s", b->force ? ", by force" : "");
    const char *comma = "";
    for (int s = 0; s <= PST_JOB_PUBLIC_STATE_REJECTED; s++)
        if (by_state[s]) {
            fprintf(stderr, "%s %zu %s", comma, by_state[s], pst_job_public_state_text((pst_job_public_state)s));
            comma = ",";
        }
    fprintf(stderr, "\n");
    for (size_t i = 0; i < n && i < SHOWN; i++)
        fprintf(stderr, "  %-34s %-12s %-24.24s %s\n", at[i].s->training_id, pst_job_public_state_text(at[i].s->state), at[i].s->name,
                at[i].s->user);
    if (n > SHOWN)
        fprintf(stderr, "  and %zu more\n", n - SHOWN);
    if (others)
        fprintf(stderr, "  left out: %zu of other users (--user '*' takes them, too)\n", others);
}

/* Only a person at a terminal can answer. */
static int confirm(const bulk_run *r)
{
    char line[16] = "";
    if (r->b->yes || r->v->settings.no_input || !isatty(0) || !isatty(2))
        return 0;
    fprintf(stderr, "%s %s? [y/N] ", verb_of(r->b->action), r->n == 1 ? "it" : "them all");
    fflush(stderr);
    if (fgets(line, sizeof line, stdin) && (!strcasecmp(line, "y\n") || !strcasecmp(line, "yes\n")))
        return 0;
    return pst_err_set(&r->v->err, PST_ESTOPPED, PST_CLASS_FATAL, "jobs", 0, "nothing was asked of any job");
}

/* ---- answers --------------------------------------------------------------------------------------------------------------------- */

static void print_target(const bulk_run *r, const target *t)
{
    if (r->v->settings.json) {
        json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?, s:s?, s:s?}", "training_id", t->s->training_id, "name", t->s->name, "user",
                              t->s->user, "answer", outcome_words[t->outcome], "state", pst_job_public_state_text(t->state), "type",
                              t->type, "reason_code", t->code, "reason", t->reason);
        pst_json_print(stdout, j);
        json_decref(j);
    } else {
        printf("%-34s %-12s %s%s%s\n", t->s->training_id, outcome_words[t->outcome],
               t->code   ? t->code
               : t->type ? t->type
                         : "",
               t->reason ? ": " : "", t->reason ? t->reason : "");
    }
}

static void settle(bulk_run *r, target *t, outcome came)
{
    PST_ASSERT(t->outcome == ASKED && r->in_flight > 0);
    t->outcome = came;
    r->in_flight--;
    r->counts[came]++;
    if (came != ACCEPTED && !t->over) { /* nothing more will come of it */
        t->over = true;
        r->over++;
    }
    print_target(r, t);
}

static void take_answer(bulk_run *r, target *t, const pst_job_event *e)
{
    bool refused = e->type == PST_JOB_EVENT_TYPE_REJECTED;
    t->type = pst_strdup(pst_job_event_type_text(e->type));
    t->code = pst_strdup(e->reason_code);
    t->reason = pst_strdup(e->reason);
    if (e->state != PST_JOB_PUBLIC_STATE_UNKNOWN)
        t->state = e->state;
    bool stops = r->b->action == PST_JOB_ACTION_TERMINATE || r->b->action == PST_JOB_ACTION_HALT;
    bool had_ended = stops && refused && !pst_job_state_is_ended(t->s->state) && pst_job_state_is_ended(e->state);
    outcome came = refused ? REFUSED : ACCEPTED;
    if (had_ended)
        came = ENDED_BEFORE;
    settle(r, t, came);
}

static void take_event(bulk_run *r, const pst_record *record)
{
    pst_job_event e;
    if (!record->value ||
        pst_codec_decode(r->v->client->codec, &pst_job_event_type, record->value, record->value_len, record->timestamp_ms, &e, NULL) < 0)
        return;
    target *t = pst_map_get(&r->by_id, e.training_id);
    bool ours = t && t->request_id && e.request_id && !strcmp(e.request_id, t->request_id);
    if (ours && t->outcome == ASKED) {
        r->heard_us = pst_mono_us();
        take_answer(r, t, &e);
    }
    bool state_ends = pst_job_state_is_ended(e.state) && r->b->action != PST_JOB_ACTION_DELETE;
    bool ends = t && (e.type == PST_JOB_EVENT_TYPE_DELETED || state_ends);
    if (ends && r->b->action == PST_JOB_ACTION_RESUME) /* before it was resumed, it had ended already */
        ends = t->outcome == ACCEPTED;
    if (ends && !t->over) {
        r->over++;
        t->over = true;
        t->state = e.state;
    }
    pst_event_clear(&pst_job_event_type, &e);
}

/* ---- requests -------------------------------------------------------------------------------------------------------------------- */

static void on_delivery(void *arg, const pst_delivery *d)
{
    bulk_run *r = arg;
    if (d->code)
        pst_err_set(&r->undelivered, d->code, PST_CLASS_RETRY, "kafka", 0, "a request could not be published: %.200s",
                    d->text ? d->text : "");
}

/* --request-id names the whole command: each job's request gets its own id behind it, so that the command said twice asks each job once. */
static int publish(bulk_run *r, target *t)
{
    pst_client *c = r->v->client;
    char uuid[37];
    pst_uuid7(uuid);
    t->request_id = r->b->request_id ? pst_sprintf("%s/%s", r->b->request_id, t->s->training_id) : pst_strdup(uuid);
    pst_job_request q = {.request_id = t->request_id,
                         .action = r->b->action,
                         .training_id = t->s->training_id,
                         .user = (char *)pst_account_name(r->b->as),
                         .time = pst_now_us()};
    pst_str_pair options[2];
    q.options = options;
    if (r->b->reason)
        options[q.n_options++] = (pst_str_pair){(char *)"reason", (char *)r->b->reason};
    if (r->b->force)
        options[q.n_options++] = (pst_str_pair){(char *)"force", (char *)"true"};
    const char *topic = pst_client_topic(c, PST_TOPIC_JOBS_REQUESTS);
    pst_buf value = {0};
    pst_trace trace;
    pst_header header;
    pst_out out;
    int rc = pst_codec_encode(c->codec, &pst_job_request_type, topic, &q, &value, &r->v->err);
    if (!rc) {
        pst_trace_child(&c->trace, &trace);
        pst_trace_out(&trace, topic, t->s->training_id, &value, &header, &out);
        rc = pst_producer_send(r->producer, &out, &r->v->err);
    }
    pst_buf_done(&value);
    if (!rc) {
        t->outcome = ASKED;
        r->in_flight++;
    }
    return rc;
}

static bool is_done(const bulk_run *r)
{
    return r->next == r->n && !r->in_flight && (!r->b->wait || r->over == r->n);
}

/* Until every job has its answer (--wait: its end), or none comes any more. */
static int ask_all(bulk_run *r)
{
    int64_t begin = r->heard_us = pst_mono_us();
    while (!is_done(r)) {
        pst_batch batch;
        int rc = 0;
        while (!rc && r->next < r->n && r->in_flight < IN_FLIGHT)
            rc = publish(r, &r->at[r->next++]);
        pst_producer_poll(r->producer, 0);
        if (!rc && r->undelivered.code) {
            r->v->err = r->undelivered;
            rc = r->v->err.code;
        }
        if (!rc)
            rc = pst_consumer_poll(r->answers, &(pst_poll){.records_max = 2000, .timeout_ms = 20}, &batch, &r->v->err);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < batch.n; i++)
            take_event(r, &batch.records[i]);
        pst_err_clear(&r->v->err); /* an outage that the poll reports is no failure of ours */
        int64_t now_us = pst_mono_us();
        if (pst_stop_requested())
            return pst_err_set(&r->v->err, PST_ESTOPPED, PST_CLASS_FATAL, "jobs", 0, "stopped");
        if (r->in_flight && now_us - r->heard_us > ANSWER_US)
            return pst_err_set(
                &r->v->err, PST_ETIMEDOUT, PST_CLASS_RETRY, "jobs", 0,
                "no Trainer has answered within %d s; %zu jobs were asked and will be answered when one runs, %zu were not asked",
                ANSWER_US / 1000000, r->in_flight, r->n - r->next);
        if (r->b->timeout_us && now_us - begin > r->b->timeout_us)
            return pst_err_set(&r->v->err, PST_ETIMEDOUT, PST_CLASS_RETRY, "jobs", 0,
                               "%zu of %zu are not done within the time limit; they go on", r->n - r->over, r->n);
    }
    return 0;
}

static int ask(bulk_run *r, int *ret_status)
{
    int rc = jobs_answers_open(r->v->client, &r->answers, &r->v->err);
    if (!rc)
        rc = pst_producer_new(r->v->client->bus, &(pst_producer_opts){.linger_ms = 2, .on_delivery = on_delivery, .arg = r}, &r->producer,
                              &r->v->err);
    if (!rc)
        rc = ask_all(r);
    if (r->producer && rc < 0 && rc != PST_ESTOPPED) /* what was handed over is published, whatever else failed */
        pst_producer_flush(r->producer, PUBLISH_MS, NULL);
    pst_producer_free(r->producer);
    pst_consumer_free(r->answers);
    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].outcome <= ASKED)
            print_target(r, &r->at[i]);
    size_t done = r->counts[ACCEPTED] + r->counts[ENDED_BEFORE];
    if (!r->v->settings.quiet)
        fprintf(stderr, "%zu of %zu done, %zu refused\n", done, r->n, r->counts[REFUSED]);
    *ret_status = 0;
    if (done < r->n)
        *ret_status = done ? 3 : 1;
    return rc;
}

int jobs_bulk_run(pst_verb_run *v, const jobs_bulk *b, int *ret_status)
{
    bulk_run r = {.v = v, .b = b};
    pst_map jobs = {0};
    const pst_job_state **chosen = NULL;
    size_t others = 0;
    int rc = jobs_bulk_choose(b, &jobs, &chosen, &r.n, &others, &v->err); /* what is wrong with the options, before Kafka is asked */
    free(chosen);
    chosen = NULL;
    if (!rc)
        rc = pst_client_jobs(v->client, &jobs, &v->err);
    if (!rc)
        rc = jobs_bulk_choose(b, &jobs, &chosen, &r.n, &others, &v->err);
    if (!rc && !r.n)
        rc = pst_err_set(&v->err, PST_ENOTFOUND, PST_CLASS_DATA, "jobs", 0, "no job is like that%s",
                         others ? "; other users have some: --user '*'" : "");
    r.at = pst_alloc((r.n + 1) * sizeof *r.at);
    for (size_t i = 0; !rc && i < r.n; i++) {
        r.at[i] = (target){.s = chosen[i], .state = chosen[i]->state};
        pst_map_put(&r.by_id, chosen[i]->training_id, &r.at[i]);
    }
    if (!rc && (!v->settings.quiet || b->dry_run))
        describe(b, r.at, r.n, others);
    if (!rc && b->dry_run)
        for (size_t i = 0; i < r.n; i++)
            print_target(&r, &r.at[i]);
    else if (!rc)
        rc = confirm(&r);
    if (!rc && !b->dry_run)
        rc = ask(&r, ret_status);
    for (size_t i = 0; i < r.n; i++) {
        free(r.at[i].request_id);
        free(r.at[i].type);
        free(r.at[i].code);
        free(r.at[i].reason);
    }
    free(r.at);
    free(chosen);
    pst_map_done(&r.by_id, NULL);
    pst_client_jobs_done(&jobs);
    return rc;
}
