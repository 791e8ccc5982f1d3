/* submit.c - the verbs that publish job requests: submit, halt, resume, terminate, delete, hold, release, reprioritise. The request is the event; the answer is read
 * from penstock.jobs.events, so a verb can say at once that the Trainer refused, and why. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/base/term.h"
#include "common/platform/queues.h"
#include "common/platform/stores.h"
#include "common/platform/verb.h"
#include "producers/answers.h"
#include "producers/bulk.h"
#include "schemas/manifest.h"
#include "verbs.h"
#include "schemas/training_id.h"
#include "common/bus/bus.h"
#include "common/objects/objects.h"
#include "common/platform/client.h"
#include "common/platform/code.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANSWER_US = 10 * 1000000 };

/* ---- the answer ---- */

/* Reads jobs.events from the end as it was before the request, and shows what concerns the request. */
typedef struct answer {
    pst_client *c;
    pst_consumer *consumer;
    const char *request_id, *training_id;
    bool talk; /* state changes on stderr */
    bool rejected, answered, ended;
    pst_job_public_state state;
    char *reason_code;
} answer;

static int answer_open(answer *a, pst_err *err)
{
    return jobs_answers_open(a->c, &a->consumer, err);
}

static void show_event(answer *a, const pst_job_event *e)
{
    static const int tints[] = {0, 32, 31};
    bool colour = isatty(2) && !getenv("NO_COLOR");
    int tint = !colour                                                                          ? 0
               : e->type == PST_JOB_EVENT_TYPE_COMPLETED                                        ? 1
               : e->type == PST_JOB_EVENT_TYPE_FAILED || e->type == PST_JOB_EVENT_TYPE_REJECTED ? 2
                                                                                                : 0;
    bool refused = e->type == PST_JOB_EVENT_TYPE_REJECTED;
    if (!a->talk && !refused) /* why something is refused is not talk */
        return;
    bool named = e->process && e->reason && !strncmp(e->reason, e->process, strlen(e->process)); /* "learner-1 exited …" says it itself */
    const char *who = e->process && !named ? e->process : "";
    fprintf(stderr, "  %s%-20s%s %s%s%s\n", tint ? pst_tint(tints[tint]) : "", pst_job_event_type_text(e->type), tint ? pst_tint(0) : "",
            who, *who && e->reason ? ": " : "", e->reason ? e->reason : "");
    if (refused)
        for (size_t i = 0; i < e->n_details; i++)
            fprintf(stderr, "    %s: %s\n", e->details[i].key, e->details[i].value);
}

static void take_event(answer *a, const pst_record *r)
{
    pst_job_event e;
    if (!r->value || pst_codec_decode(a->c->codec, &pst_job_event_type, r->value, r->value_len, r->timestamp_ms, &e, NULL) < 0)
        return;
    bool ours = e.request_id && !strcmp(e.request_id, a->request_id), job = !strcmp(e.training_id, a->training_id);
    if (ours || job) {
        show_event(a, &e);
        a->answered |= ours && e.type != PST_JOB_EVENT_TYPE_RECEIVED; /* its data stores may be asked still */
        if (ours && e.type == PST_JOB_EVENT_TYPE_REJECTED) {
            a->rejected = true;
            free(a->reason_code);
            a->reason_code = pst_strdup(e.reason_code ? e.reason_code : "");
        } else if (job) {
            a->state = e.state;
            a->ended = e.state == PST_JOB_PUBLIC_STATE_COMPLETED || e.state == PST_JOB_PUBLIC_STATE_FAILED ||
                       e.state == PST_JOB_PUBLIC_STATE_HALTED || e.state == PST_JOB_PUBLIC_STATE_TERMINATED ||
                       e.state == PST_JOB_PUBLIC_STATE_REJECTED || e.type == PST_JOB_EVENT_TYPE_DELETED;
            a->answered |= a->ended;
        }
    }
    pst_event_clear(&pst_job_event_type, &e);
}

/* Until the request was answered (to_the_end: until the job ended). 0; PST_ETIMEDOUT; PST_ESTOPPED. timeout_us 0 = none. */
static int answer_wait(answer *a, bool to_the_end, int64_t timeout_us, pst_err *err)
{
    int64_t begin = pst_mono_us();
    PST_ASSERT(a->consumer && a->request_id);
    while (!a->rejected && !(to_the_end ? a->ended : a->answered)) {
        pst_batch b;
        int rc = pst_consumer_poll(a->consumer, &(pst_poll){.records_max = 500, .timeout_ms = 50}, &b, err);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < b.n; i++)
            take_event(a, &b.records[i]);
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "kafka", 0, "stopped");
        if (timeout_us && pst_mono_us() - begin > timeout_us)
            return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", 0, "not ended within the time limit; it goes on");
        pst_err_clear(err); /* an outage that the poll reports is no failure of ours */
    }
    return 0;
}

static void answer_close(answer *a)
{
    pst_consumer_free(a->consumer);
    free(a->reason_code);
}

/* ---- submit ---- */

typedef struct submit_opts {
    bool wait, no_wait, dry_run;
    const char *request_id, *user;
    int64_t timeout_us;
} submit_opts;
#define AT(f) offsetof(submit_opts, f)
static const pst_opt submit_table[] = {
    {"no-wait", 0, PST_OPT_BOOL, AT(no_wait), NULL, NULL,
     "do not even wait for the Trainer's answer, only for Kafka's"}, /* before wait, whose negation it is not */
    {"wait", 'w', PST_OPT_BOOL, AT(wait), NULL, NULL, "follow until it has ended: 0 COMPLETED, 10 FAILED, 11 terminated or halted"},
    {"dry-run", 0, PST_OPT_BOOL, AT(dry_run), NULL, NULL,
     "print the request as it would be published, or every violation; publish nothing"},
    {"request-id", 0, PST_OPT_STR, AT(request_id), "R", NULL, "same user and request id: same job, however often it is submitted"},
    {"user", 0, PST_OPT_STR, AT(user), "U", NULL, "in whose name [PENSTOCK_USER, USER]"},
    {"timeout", 0, PST_OPT_SPAN, AT(timeout_us), "T", NULL, "with --wait: give up waiting (exit status 124); the job goes on"},
};
static const pst_usage submit_usage = {
    "submit",
    "MANIFEST [DIR|ZIP]",
    "Publish a job-request event; prints the training id.",
    "MANIFEST is FfDL's manifest.yml with our additions under `penstock:`; - reads it from stdin. DIR is packed and sent along as the "
    "model's\n"
    "code; the command runs in it. A manifest that cannot run is refused here with all its violations (exit status 2).\n"
    "The id is printed once the Trainer has admitted the job (exit status 0) or rejected it (10, every reason on stderr); without an "
    "answer "
    "within\n"
    "10 s the exit status is 124. A request id that was used before gives the job that it made, or, with another manifest or other code, "
    "exit "
    "status 2.",
    "penstock submit manifest.yml .\npenstock submit manifest.yml code.zip --wait\nid=$(penstock submit m.yml) && penstock logs -f "
    "$id\npenstock submit m.yml --dry-run",
    submit_table,
    sizeof submit_table / sizeof *submit_table,
    false};

enum { STORES_MS = 6000 }; /* as the Trainer's */

static bool stop_asked(void *arg)
{
    return pst_stop_requested();
}

/* Asks the topic only where another queue is named than the one that is always there: a dry run of most manifests needs no broker. */
static int check_queue(pst_client *client, const pst_manifest *m, pst_complaints *errors)
{
    pst_queues q;
    pst_err e = {0};
    if (!m->queue || !strcmp(m->queue, PST_QUEUE_DEFAULT))
        return 0;
    if (pst_queues_read(client, &q, &e) < 0) {
        pst_complain(errors, "penstock.queue", m->queue_line, "whether there is a queue %.100s cannot be known now: %s", m->queue, e.text);
        return PST_EINVAL;
    }
    char *unknown = pst_queues_find(&q, m->queue) ? NULL : pst_queues_unknown(&q, m->queue);
    if (unknown)
        pst_complain(errors, "penstock.queue", m->queue_line, "%s", unknown);
    bool bad = unknown != NULL;
    free(unknown);
    pst_queues_done(&q);
    return bad ? PST_EINVAL : 0;
}

/* What is wrong beside a manifest that is wrong already, so that nobody mends a submission one message at a time: what only the Trainer would
 * refuse, and code that cannot be packed. */
static void check_the_rest(pst_client *client, const pst_manifest *m, const char *code, pst_complaints *errors)
{
    pst_buf archive = {0};
    pst_err e = {0};
    char media[32];
    pst_manifest_check_served(m, errors);
    check_queue(client, m, errors);
    if (code && pst_archive_pack(code, PST_CODE_BYTES_MAX, &archive, media, &e) < 0)
        pst_complain(errors, "code", 0, "%s", e.text);
    pst_buf_done(&archive);
}

/* A dry run asks the buckets from here, which may reach other places than the Trainer does. */
static int check_stores(const pst_manifest *m, pst_complaints *errors)
{
    char *refused = pst_stores_refused(m, NULL, STORES_MS, stop_asked, NULL);
    if (refused)
        pst_complain(errors, "data_stores", 0, "bad data store credentials/bucket: %s", refused);
    bool bad = refused != NULL;
    free(refused);
    return bad ? PST_EINVAL : 0;
}

/* code: its path, or NULL. dry_run: what only the Trainer would refuse is a violation, too, where nothing else is. */
static int check_manifest(pst_client *client, const char *file, const pst_buf *text, const char *code, bool dry_run, bool quiet,
                          pst_err *err)
{
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    int rc = pst_manifest_parse(text->data ? text->data : "", text->len, &m, &errors, &warnings);
    if (rc < 0)
        check_the_rest(client, &m, code, &errors);
    else if (dry_run) {
        rc = check_queue(client, &m, &errors);
        rc = pst_manifest_check_served(&m, &errors) || rc < 0 ? PST_EINVAL : check_stores(&m, &errors);
    }
    for (size_t i = 0; i < warnings.n && !quiet; i++)
        fprintf(stderr, "%s:%d: warning: %s: %s\n", file, warnings.at[i].line, warnings.at[i].field, warnings.at[i].text);
    for (size_t i = 0; i < errors.n; i++)
        if (errors.at[i].line)
            fprintf(stderr, "%s:%d: %s: %s\n", file, errors.at[i].line, errors.at[i].field, errors.at[i].text);
        else
            fprintf(stderr, "%s: %s: %s\n", file, errors.at[i].field, errors.at[i].text);
    if (rc < 0)
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "manifest", 0, "%s cannot run: %zu violation%s, listed above", file, errors.n,
                    errors.n == 1 ? "" : "s");
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    pst_manifest_done(&m);
    return rc < 0 ? PST_EINVAL : 0;
}

/* Packs code into the request. */
static int attach_code(pst_verb_run *v, const char *path, bool dry_run, pst_job_code *ret_code, pst_err *err)
{
    pst_buf zip = {0};
    char media[32];
    int rc = pst_archive_pack(path, PST_CODE_BYTES_MAX, &zip, media, err);
    if (!rc)
        rc = pst_code_attach(v->settings.objects.value, (pst_slice){zip.data, zip.len}, media, dry_run, ret_code, err);
    pst_buf_done(&zip);
    return rc;
}

static int wait_for_end(pst_verb_run *v, answer *a, int64_t timeout_us, int *ret_status)
{
    int rc = answer_wait(a, true, timeout_us, &v->err);
    if (rc)
        return rc;
    *ret_status = 11; /* terminated or halted */
    if (a->state == PST_JOB_PUBLIC_STATE_COMPLETED)
        *ret_status = 0;
    else if (a->state == PST_JOB_PUBLIC_STATE_FAILED)
        *ret_status = 10;
    return 0;
}

static void print_id(const char *id)
{
    printf("%s\n", id);
    fflush(stdout);
}

static int reused(pst_verb_run *v, const pst_job_request *r, const char *id, pst_job_public_state state)
{
    return pst_err_set(
        &v->err, PST_EINVAL, PST_CLASS_DATA, "jobs", 0,
        "request id %.100s was used before with another manifest or other code, for %s, which is %s; a new submission needs a "
        "new id (leave --request-id out)",
        r->request_id, id, pst_job_public_state_text(state));
}

/* Was this request id answered before? 1: yes, *ret_status is what to exit with, or the job lives on and a knows its state. 0: no. */
static int known_before(pst_verb_run *v, answer *a, const pst_job_request *r, int *ret_status)
{
    pst_job_state s = {0};
    pst_err none = {0};
    char digest[65];
    int rc = pst_client_job(v->client, a->training_id, &s, &none);
    if (rc == PST_ENOTFOUND)
        return 0;
    if (rc < 0) {
        v->err = none;
        return rc;
    }
    const char *code = NULL; /* its digest; where there is none, its address */
    if (r->code)
        code = r->code->sha256 ? r->code->sha256 : r->code->uri;
    pst_submission_digest(r->manifest, code, digest);
    bool same = *s.request_sha256 ? !strcmp(s.request_sha256, digest) : !strcmp(s.manifest, r->manifest);
    rc = 1;
    if (!same) {
        rc = reused(v, r, a->training_id, s.state);
    } else if (s.state == PST_JOB_PUBLIC_STATE_REJECTED) {
        print_id(a->training_id);
        fprintf(stderr, "it was rejected before (%s): %s\n", s.reason_code ? s.reason_code : "", s.reason ? s.reason : "");
        *ret_status = 10;
        a->rejected = true;
    } else {
        a->state = s.state;
        a->ended = s.has_ended_at;
        print_id(a->training_id);
    }
    pst_event_clear(&pst_job_state_type, &s);
    return rc;
}

/* The Trainer's answer to what was published, within its time. Somebody else may have published the same: then its answer came before. */
static int first_answer(pst_verb_run *v, answer *a, const pst_job_request *r, int *ret_status)
{
    int rc = answer_wait(a, false, ANSWER_US, &v->err);
    if (rc == PST_ETIMEDOUT) {
        pst_err_clear(&v->err);
        rc = known_before(v, a, r, ret_status);
        if (rc == 0)
            rc = pst_err_set(&v->err, PST_ETIMEDOUT, PST_CLASS_RETRY, "jobs", 0,
                             "published as %s, but no Trainer has answered within %d s. It will when it runs: penstock show %s",
                             a->training_id, ANSWER_US / 1000000, a->training_id);
        return rc < 0 ? rc : 0;
    }
    if (!rc && a->rejected && !strcmp(a->reason_code, "REQUEST_ID_REUSED"))
        return reused(v, r, a->training_id, a->state);
    if (!rc)
        print_id(a->training_id);
    if (!rc && a->rejected)
        *ret_status = 10;
    return rc;
}

static int publish_and_wait(pst_verb_run *v, const submit_opts *o, const pst_job_request *r, int *ret_status)
{
    char id[64];
    pst_training_id(r->user, r->request_id, id);
    answer a = {.c = v->client, .request_id = r->request_id, .training_id = id, .talk = o->wait && !v->settings.quiet};
    int rc = answer_open(&a, &v->err); /* also where nothing is waited for: says at once that the broker is away */
    int known = !rc && o->request_id ? known_before(v, &a, r, ret_status) : 0;
    rc = known < 0 ? known : rc;
    if (!rc && !known)
        rc = pst_client_publish(v->client, PST_TOPIC_JOBS_REQUESTS, &pst_job_request_type, id, r, 30000, NULL, NULL, &v->err);
    if (!rc && !known && o->no_wait)
        print_id(id);
    else if (!rc && !known)
        rc = first_answer(v, &a, r, ret_status);
    if (!rc && o->wait && !a.rejected)
        rc = wait_for_end(v, &a, o->timeout_us, ret_status);
    answer_close(&a);
    return rc;
}

/* Checks everything that can be known here before anything is published: the manifest, the code, options that contradict each other. The id is
 * a digest of user and request id, so it is known before the Trainer has seen the request. */
static int submit_run(int argc, char **argv)
{
    submit_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &submit_usage, argc, argv, &o, 1, 2);
    if (status >= 0)
        return status;
    if (o.request_id && !*o.request_id) /* an empty variable of a script: all such jobs would be one */
        return pst_verb_end(
            &v, pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--request-id is empty; give one, or leave it out"));
    pst_buf text = {0};
    pst_job_code code = {0};
    char uuid[37];
    pst_uuid7(uuid);
    pst_job_request r = {.request_id = (char *)(o.request_id ? o.request_id : uuid),
                         .action = PST_JOB_ACTION_SUBMIT,
                         .user = (char *)pst_account_name(o.user),
                         .time = pst_now_us()};
    struct stat st;
    int rc = 0;
    if (!stat(v.args[0], &st) && S_ISDIR(st.st_mode))
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "%s is a folder; the manifest comes first: penstock submit %s/manifest.yml %s", v.args[0], v.args[0], v.args[0]);
    if (!rc)
        rc = pst_fs_read(v.args[0], 512 * 1024, &text, &v.err);
    if (!rc)
        rc = check_manifest(v.client, v.args[0], &text, v.n_args > 1 ? v.args[1] : NULL, o.dry_run, v.settings.quiet, &v.err);
    if (!rc && v.n_args > 1) {
        rc = attach_code(&v, v.args[1], o.dry_run, &code, &v.err);
        r.code = &code;
    }
    r.manifest = text.data;
    if (!rc && o.wait && o.no_wait)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--wait and --no-wait: which one is meant?");
    status = 0;
    char id[64];
    pst_training_id(r.user, r.request_id, id);
    r.training_id = o.dry_run ? id : NULL; /* a dry run shows it; otherwise the Trainer makes it itself */
    if (!rc && o.dry_run)
        pst_print_event(&pst_job_request_type, &r);
    else if (!rc)
        rc = publish_and_wait(&v, &o, &r, &status);
    pst_code_done(&code);
    pst_buf_done(&text);
    int failed = pst_verb_end(&v, rc);
    return failed ? failed : status;
}

/* ---- halt, resume, terminate, delete, hold, release, reprioritise ---- */

typedef struct job_opts {
    bool wait, force;
    const char *reason, *user, *request_id;
    int64_t timeout_us;
    jobs_bulk bulk;
} job_opts;
#undef AT
#define AT(f) offsetof(job_opts, f)
static const pst_opt job_table[] = {
    {"reason", 0, PST_OPT_STR, AT(reason), "TEXT", NULL, "kept with the event"},
    {"request-id", 0, PST_OPT_STR, AT(request_id), "R", NULL, "repeat a request without doing it twice"},
    {"user", 0, PST_OPT_STR, AT(user), "U", NULL,
     "with an ID: in whose name [PENSTOCK_USER, USER]; without: whose jobs, a GLOB ('*': everybody's) [your own]"},
    /* from here on: what can be asked of many jobs */
    {"state", 0, PST_OPT_STR, AT(bulk.state), "S,…", NULL, "without an ID: jobs in these states [all for which it makes sense]"},
    {"queue", 0, PST_OPT_STR, AT(bulk.queue), "Q", NULL, "without an ID: jobs of this queue"},
    {"name", 0, PST_OPT_STR, AT(bulk.name), "GLOB", NULL, "without an ID: jobs of such a name: 'night-*'"},
    {"as", 0, PST_OPT_STR, AT(bulk.as), "U", NULL, "without an ID: in whose name [PENSTOCK_USER, USER]"},
    {"yes", 'y', PST_OPT_BOOL, AT(bulk.yes), NULL, NULL, "without an ID: do not ask; nor is anything asked where there is no terminal"},
    {"dry-run", 0, PST_OPT_BOOL, AT(bulk.dry_run), NULL, NULL, "without an ID: list the jobs, ask nothing of them"},
    /* from here on: what ends or begins a generation only */
    {"wait", 'w', PST_OPT_BOOL, AT(wait), NULL, NULL, "until it is done, not only until the Trainer has answered"},
    {"timeout", 0, PST_OPT_SPAN, AT(timeout_us), "T", NULL, "with --wait: give up waiting (exit status 124)"},
    /* the last: terminate and delete only */
    {"force", 0, PST_OPT_BOOL, AT(force), NULL, NULL,
     "also when its node is silent: what may still run there is ended when the node is back"},
};
enum { N_END_OPTS = sizeof job_table / sizeof *job_table, N_JOB_OPTS = N_END_OPTS - 1, N_QUEUE_OPTS = N_JOB_OPTS - 2, N_ONE_OPTS = 3 };
enum { PRIORITY_ABS_MAX = 1000000 };
/* Of the help of every verb that takes many jobs. */
#define MANY                                                                                                                               \
    "Without an ID, of every job that the options choose, one request a job; your own jobs unless --user says otherwise. What is to be "   \
    "done is\n"                                                                                                                            \
    "said first, and asked on a terminal. Each job has its answer, one line (--json: one object); exit status 0: all were done, 3: some, " \
    "1: none,\n"                                                                                                                           \
    "4: no job is like that."
static const pst_usage halt_usage = {
    "halt",
    "[ID]",
    "Stop a job so that it can be resumed: SIGTERM, its grace time, SIGKILL.",
    MANY,
    "penstock halt training-…\npenstock halt --wait training-…\npenstock halt --queue night --state PROCESSING",
    job_table,
    N_JOB_OPTS,
    false};
static const pst_usage resume_usage = {"resume",
                                       "[ID]",
                                       "Go on with a halted or failed job: a new generation that sees its checkpoint.",
                                       MANY,
                                       "penstock resume training-…\npenstock resume --name 'night-*' --state HALTED",
                                       job_table,
                                       N_JOB_OPTS,
                                       false};
static const pst_usage terminate_usage = {"terminate",
                                          "[ID]",
                                          "End a job for good.",
                                          MANY,
                                          "penstock terminate training-… --reason 'wrong data'\npenstock terminate --queue night "
                                          "--yes\npenstock terminate --name 'try-*' --dry-run",
                                          job_table,
                                          N_END_OPTS,
                                          false};
static const pst_usage delete_usage = {"delete",
                                       "[ID]",
                                       "Remove a job and its folders; one that still runs is ended first.",
                                       "Its events, logs and metrics stay in their topics until retention removes them.\n" MANY,
                                       "penstock delete training-…\npenstock delete --state FAILED,TERMINATED",
                                       job_table,
                                       N_END_OPTS,
                                       false};

static const pst_usage hold_usage = {"hold",
                                     "[ID]",
                                     "Hold a waiting job back until it is released.",
                                     "A job that runs cannot be held; halt stops it so that it can be resumed. A job whose manifest says "
                                     "penstock.hold: true is held from the\n"
                                     "start. What an operator holds, its owner cannot release.\n" MANY,
                                     "penstock hold training-… --reason 'after the backup'\npenstock release training-…",
                                     job_table,
                                     N_QUEUE_OPTS,
                                     false};
static const pst_usage release_usage = {
    "release",    "[ID]", "Let a job go on that is held.", MANY, "penstock release training-…\npenstock release --queue night", job_table,
    N_QUEUE_OPTS, false};
static const pst_usage reprioritise_usage = {"reprioritise",
                                             "ID N",
                                             "Give a job another priority.",
                                             "N is a whole number from -1000000 to 1000000; higher runs first. A job that runs goes on; "
                                             "it counts when it is queued again.",
                                             "penstock reprioritise training-… 5\npenstock reprioritise training-… -5",
                                             job_table,
                                             N_ONE_OPTS,
                                             false};

static int refused(const answer *a, const char *id, pst_err *err)
{
    if (!strcmp(a->reason_code, "UNKNOWN_JOB"))
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "jobs", 0, "there is no job %s", id);
    if (!strcmp(a->reason_code, "NOT_YOURS"))
        return pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "jobs", 0, "refused: job %s is somebody else's", id);
    return pst_err_set(err, PST_ESTATE, PST_CLASS_DATA, "jobs", 0, "refused (%s); `penstock why %s` tells where it is", a->reason_code, id);
}

/* N as the Trainer takes it; what it would refuse need not be published. */
static int check_priority(const char *text, pst_err *err)
{
    char *end = NULL;
    long n = strtol(text, &end, 10);
    if (end != text && !*end && n >= -PRIORITY_ABS_MAX && n <= PRIORITY_ABS_MAX)
        return 0;
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "N must be a whole number from %d to %d, found \"%.40s\"",
                       -PRIORITY_ABS_MAX, PRIORITY_ABS_MAX, text);
}

/* Of the jobs that the options choose. */
static int ask_many(pst_verb_run *v, pst_job_action action, const job_opts *o)
{
    jobs_bulk b = o->bulk;
    b.action = action;
    b.user = o->user;
    b.reason = o->reason;
    b.request_id = o->request_id;
    b.force = o->force;
    b.wait = o->wait;
    b.timeout_us = o->timeout_us;
    int status = 0, rc = jobs_bulk_run(v, &b, &status);
    int failed = pst_verb_end(v, rc);
    return failed ? failed : status;
}

/* Publishes what is asked of one job and waits for the Trainer's answer on jobs.events. That none came within ANSWER_US is no failure: the
 * request stands in Kafka and is answered whenever a Trainer runs. With --wait it also waits for the job's end. */
static int ask(const pst_usage *usage, pst_job_action action, int argc, char **argv)
{
    job_opts o = {0};
    pst_verb_run v;
    int n_args = action == PST_JOB_ACTION_REPRIORITISE ? 2 : 1;
    int status = pst_verb_begin(&v, usage, argc, argv, &o, n_args == 1 ? 0 : n_args, n_args);
    if (status >= 0)
        return status;
    if (n_args == 1 && !v.n_args)
        return ask_many(&v, action, &o);
    if (o.bulk.state || o.bulk.queue || o.bulk.name || o.bulk.as || o.bulk.dry_run)
        return pst_verb_end(&v, pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                                            "an ID, or options that choose jobs (--state --queue --name --as --dry-run): not both"));
    if (n_args == 2 && check_priority(v.args[1], &v.err) < 0)
        return pst_verb_end(&v, v.err.code);
    char uuid[37];
    pst_uuid7(uuid);
    pst_job_request r = {.request_id = (char *)(o.request_id ? o.request_id : uuid),
                         .action = action,
                         .training_id = v.args[0],
                         .user = (char *)pst_account_name(o.user),
                         .time = pst_now_us()};
    if (o.reason)
        pst_str_map_set(&r.options, &r.n_options, "reason", o.reason);
    if (o.force)
        pst_str_map_set(&r.options, &r.n_options, "force", "true");
    if (n_args == 2)
        pst_str_map_set(&r.options, &r.n_options, "priority", v.args[1]);
    answer a = {.c = v.client, .request_id = r.request_id, .training_id = v.args[0], .talk = !v.settings.quiet};
    int rc = answer_open(&a, &v.err);
    if (!rc)
        rc = pst_client_publish(v.client, PST_TOPIC_JOBS_REQUESTS, &pst_job_request_type, v.args[0], &r, 30000, NULL, NULL, &v.err);
    bool published = !rc;
    if (published)
        rc = answer_wait(&a, false, ANSWER_US, &v.err);
    if (published && rc == PST_ETIMEDOUT) {
        if (!v.settings.quiet)
            fprintf(stderr, "published; no Trainer has answered within %d s. It will when it runs: penstock events %s\n",
                    ANSWER_US / 1000000, v.args[0]);
        pst_err_clear(&v.err);
        rc = 0;
    } else if (!rc && !a.rejected && o.wait && !a.ended)
        rc = answer_wait(&a, true, o.timeout_us, &v.err);
    if (!rc && a.rejected)
        rc = refused(&a, v.args[0], &v.err);
    answer_close(&a);
    for (size_t i = 0; i < r.n_options; i++) {
        free(r.options[i].key);
        free(r.options[i].value);
    }
    free(r.options);
    return pst_verb_end(&v, rc);
}

static int halt_run(int argc, char **argv)
{
    return ask(&halt_usage, PST_JOB_ACTION_HALT, argc, argv);
}

static int resume_run(int argc, char **argv)
{
    return ask(&resume_usage, PST_JOB_ACTION_RESUME, argc, argv);
}

static int terminate_run(int argc, char **argv)
{
    return ask(&terminate_usage, PST_JOB_ACTION_TERMINATE, argc, argv);
}

static int delete_run(int argc, char **argv)
{
    return ask(&delete_usage, PST_JOB_ACTION_DELETE, argc, argv);
}

static int hold_run(int argc, char **argv)
{
    return ask(&hold_usage, PST_JOB_ACTION_HOLD, argc, argv);
}

static int release_run(int argc, char **argv)
{
    return ask(&release_usage, PST_JOB_ACTION_RELEASE, argc, argv);
}

/* -5 is no option, but a number: it goes behind a --. */
static int reprioritise_run(int argc, char **argv)
{
    const char *last = argc > 1 ? argv[argc - 1] : "";
    bool is_negative = *last == '-' && last[1] && !last[1 + strspn(last + 1, "0123456789")];
    char **with = pst_alloc((size_t)(argc + 2) * sizeof *with);
    for (int i = 0; i < argc; i++)
        with[i] = argv[i];
    if (is_negative) {
        with[argc - 1] = (char *)"--";
        with[argc] = argv[argc - 1];
    }
    int status = ask(&reprioritise_usage, PST_JOB_ACTION_REPRIORITISE, argc + is_negative, with);
    free(with);
    return status;
}

const pst_verb pst_submit_verb = {"submit", "publish a job request", "jobs", submit_run, PST_USAGES(&submit_usage)};
const pst_verb pst_halt_verb = {"halt", "stop a job so that it can be resumed", "jobs", halt_run, PST_USAGES(&halt_usage)};
const pst_verb pst_resume_verb = {"resume", "go on with a halted or failed job", "jobs", resume_run, PST_USAGES(&resume_usage)};
const pst_verb pst_terminate_verb = {"terminate", "end a job for good", "jobs", terminate_run, PST_USAGES(&terminate_usage)};
const pst_verb pst_delete_verb = {"delete", "remove a job", "jobs", delete_run, PST_USAGES(&delete_usage)};
const pst_verb pst_hold_verb = {"hold", "hold a waiting job back", "jobs", hold_run, PST_USAGES(&hold_usage)};
const pst_verb pst_release_verb = {"release", "let a held job go on", "jobs", release_run, PST_USAGES(&release_usage)};
const pst_verb pst_reprioritise_verb = {"reprioritise", "give a job another priority", "jobs", reprioritise_run,
                                        PST_USAGES(&reprioritise_usage)};
