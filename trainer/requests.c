/* requests.c - what users ask: submit, halt, resume, terminate, delete, reprioritise. Every request is answered by an event, once; a
 * repeated one is counted and ignored. All that is wrong with a request is listed, not only the first. */
#include "common/platform/client.h"
#include "trainer/core_state.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

enum { ID_BYTES_MAX = 256, PRIORITY_ABS_MAX = 1000000 };

/* ---- answered once ----------------------------------------------------------------------------------------------------------- */

/* A job remembers "ACTION:request_id": a client that uses one id for its submission and its halt is understood too. */
static char *request_mark(const pst_job_request *r)
{
    return pst_sprintf("%s:%s", pst_job_action_text(r->action), r->request_id);
}

static bool is_answered(const trainer_job *j, const char *mark)
{
    for (size_t i = 0; i < j->s.n_requests; i++)
        if (!strcmp(j->s.requests[i], mark))
            return true;
    return false;
}

void tcore_remember(trainer_job *j, const char *mark)
{
    if (j->s.n_requests == PST_REQUESTS_KEPT) { /* the oldest goes */
        free(j->s.requests[0]);
        memmove(j->s.requests, j->s.requests + 1, (PST_REQUESTS_KEPT - 1) * sizeof *j->s.requests);
        j->s.n_requests--;
    }
    j->s.requests = pst_realloc(j->s.requests, (j->s.n_requests + 1) * sizeof *j->s.requests);
    j->s.requests[j->s.n_requests++] = pst_strdup(mark);
}

/* With what it asks for: who mends a request that was refused before it became a job's, or publishes an old one anew, is answered again. */
static char *orphan_key(const tcore *c, const pst_job_request *r)
{
    const pst_job_code *code = r->code;
    char asked[65];
    pst_submission_digest(r->manifest, code ? (code->sha256 ? code->sha256 : code->uri) : NULL, asked);
    return pst_sprintf("%s:%s %s %s %.16s%s", pst_job_action_text(r->action), r->request_id, r->user, r->training_id ? r->training_id : "",
                       asked, c->too_old ? " too old" : "");
}

/* Rejections that belong to no job are remembered in memory only: after a restart such a request, published again, is answered again. */
bool tcore_orphan_answered(const tcore *c, const pst_job_request *r)
{
    char *key = orphan_key(c, r);
    bool seen = *r->request_id && trainer_memory_has(&c->answered, key);
    free(key);
    return seen;
}

static void remember_orphan(tcore *c, const pst_job_request *r)
{
    char *key = orphan_key(c, r);
    trainer_memory_put(&c->answered, key, c->now_us);
    free(key);
}

void tcore_reject_orphan(tcore *c, const pst_job_request *r, const char *training_id, const trainer_say *say)
{
    remember_orphan(c, r);
    tcore_reject(c, NULL, training_id, r->request_id, say);
}

/* "user bar", "user bar: too slow" */
static char *asked_by(const pst_job_request *r)
{
    const char *why = pst_str_map_get(r->options, r->n_options, "reason");
    return why && *why ? pst_sprintf("user %.100s: %.200s", r->user, why) : pst_sprintf("user %.100s", r->user);
}

/* ---- SUBMIT ------------------------------------------------------------------------------------------------------------------ */

static void check_text(pst_complaints *bad, const char *field, const char *text, bool needed)
{
    if (needed && !*text)
        pst_complain(bad, field, 0, "is missing");
    if (strlen(text) > ID_BYTES_MAX)
        pst_complain(bad, field, 0, "is %zu bytes long, at most %d are allowed", strlen(text), ID_BYTES_MAX);
    for (const char *s = text; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            pst_complain(bad, field, 0, "must not contain control characters");
            break;
        }
}

static void check_code(pst_complaints *bad, const trainer_in *in)
{
    static const char *const media_types[] = {"application/zip", "application/x-tar", "application/gzip", "application/x-gzip"};
    const pst_job_code *code = in->request->code;
    if (!code)
        return;
    bool known = false;
    for (size_t i = 0; i < sizeof media_types / sizeof *media_types; i++)
        known = known || !strcmp(code->media_type, media_types[i]);
    if (!known)
        pst_complain(bad, "code.media_type", 0, "\"%.60s\" is none of application/zip, application/x-tar, application/gzip",
                     code->media_type);
    if (!code->content.data && (!code->uri || !*code->uri))
        pst_complain(bad, "code", 0, "has neither content nor uri");
    if (code->content.data && code->uri)
        pst_complain(bad, "code", 0, "has both content and uri: which one is meant?");
    if (in->code_error)
        pst_complain(bad, code->content.data ? "code.content" : "code.uri", 0, "%s", in->code_error);
    if (code->sha256 && strspn(code->sha256, "0123456789abcdefABCDEF") != 64)
        pst_complain(bad, "code.sha256", 0, "must be 64 hexadecimal digits");
    else if (code->sha256 && in->code_sha256 && strcasecmp(code->sha256, in->code_sha256))
        pst_complain(bad, "code.sha256", 0, "does not match: the content's is %s", in->code_sha256);
}

/* When it was submitted: the time of the request. Within one millisecond (the resolution of record timestamps)
 * the order of arrival is kept, since the queue goes by this time. */
static int64_t submission_time(tcore *c)
{
    int64_t t = c->said_us;
    if (t <= c->submitted_us && t / 1000 == c->submitted_us / 1000)
        t = c->submitted_us + 1;
    c->submitted_us = t;
    return t;
}

static pst_job_state new_state(tcore *c, const trainer_in *in, const pst_manifest *m, const char *training_id)
{
    const pst_job_request *r = in->request;
    pst_job_state s = {.learners = m->learners,
                       .cpus = m->cpus,
                       .gpus = m->gpus,
                       .memory_bytes = m->memory_bytes,
                       .priority = m->priority,
                       .submitted_at = submission_time(c),
                       .since = c->said_us};
    s.training_id = pst_strdup(training_id);
    s.request_id = pst_strdup(r->request_id);
    s.name = pst_strdup(m->name);
    s.description = pst_strdup(m->description ? m->description : "");
    s.user = pst_strdup(r->user);
    s.queue = pst_strdup(m->queue);
    s.site = pst_strdup(m->site);
    s.framework = pst_strdup(m->framework);
    s.manifest = pst_strdup(r->manifest ? r->manifest : "");
    s.wish_by = pst_strdup("");
    s.request_sha256 = pst_alloc(65);
    trainer_submit_digest(in, s.request_sha256);
    if (r->code) {
        s.code = pst_alloc(sizeof *s.code);
        const char *uri = r->code->content.data ? in->code_uri : r->code->uri; /* NULL: refused code is not stored */
        const char *sha256 = r->code->content.data ? in->code_sha256 : r->code->sha256;
        s.code->uri = pst_strdup(uri ? uri : "");
        s.code->sha256 = pst_strdup(sha256 ? sha256 : "");
        s.code->media_type = pst_strdup(r->code->media_type);
    }
    return s;
}

/* A submission that can be named is kept with its answer: found by list and show, and never run later under the same id. */
static void reject_submission(tcore *c, const trainer_in *in, const pst_manifest *m, const char *training_id, const char *mark,
                              const trainer_say *say)
{
    pst_manifest none = {.name = (char *)"", .queue = (char *)"default", .site = (char *)"local", .framework = (char *)""};
    pst_job_state s = new_state(c, in, m && m->name ? m : &none, training_id);
    tcore_set_text(&s.manifest, ""); /* what was refused need not be kept, only known again */
    trainer_job *j = tcore_adopt(c, &s);
    tcore_remember(j, mark);
    tcore_set_text(&j->s.reason_code, say->reason_code);
    tcore_set_text(&j->s.reason, say->reason);
    c->counts.rejected++;
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_REJECTED, PST_JOB_PUBLIC_STATE_REJECTED, say);
    trainer_memory_put(&c->rejected, training_id, c->now_us);
}

static void admit(tcore *c, const trainer_in *in, const pst_manifest *m, const char *training_id, const char *mark,
                  const pst_complaints *warnings)
{
    char *actor = pst_sprintf("user:%s", in->request->user);
    trainer_needs needs = trainer_needs_of(m->learners, m->parameter_servers, m->cpus, m->memory_bytes, m->gpus);
    const trainer_site *site = tcore_site(c, m->site);
    char *never = c->nodes_unread ? NULL : trainer_queue_never(site, &needs);
    const char *code = "INSUFFICIENT_RESOURCES";
    if (!never && site->n_queue >= PST_QUEUE_MAX) {
        never = pst_sprintf("the queue of site %s is full: %d jobs wait; submit it again, as a new request, when some have run", m->site,
                            PST_QUEUE_MAX);
        code = "QUEUE_FULL";
    }
    if (never) {
        pst_complaints details = {0};
        pst_complain(&details, "resources", 0, "%s", never);
        reject_submission(c, in, m, training_id, mark,
                          &(trainer_say){.actor = actor, .reason_code = code, .reason = never, .details = &details});
        pst_complaints_done(&details);
    } else {
        pst_job_state s = new_state(c, in, m, training_id);
        trainer_job *j = tcore_adopt(c, &s);
        tcore_remember(j, mark);
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_RECEIVED, PST_JOB_PUBLIC_STATE_QUEUED, &(trainer_say){.actor = actor});
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_ADMITTED, j->s.state,
                   &(trainer_say){.reason = warnings->n ? "admitted, with remarks on the manifest" : NULL, .details = warnings});
        trainer_queue_add(c, j);
    }
    free(never);
    free(actor);
}

/* A submission that is news: is anything wrong with it? What does not even say whose it is belongs to no job. */
static void submit_new(tcore *c, const trainer_in *in, const char *training_id, const char *mark)
{
    const pst_job_request *r = in->request;
    pst_manifest m = {0};
    pst_complaints bad = {0}, of_manifest = {0}, warnings = {0};
    check_text(&bad, "request_id", r->request_id, true);
    check_text(&bad, "user", r->user, true);
    if (r->training_id && *r->training_id && strcmp(r->training_id, training_id))
        pst_complain(&bad, "training_id", 0, "is made from user and request_id (%s); leave it out", training_id);
    if (trainer_memory_has(&c->deleted, training_id))
        pst_complain(&bad, "request_id", 0, "was the request of a job that has been deleted; use a new one");
    size_t of_request = bad.n;
    check_code(&bad, in);
    if (!r->manifest)
        pst_complain(&of_manifest, "manifest", 0, "is missing: the text of a manifest.yml");
    else
        pst_manifest_parse(r->manifest, strlen(r->manifest), &m, &of_manifest, &warnings);
    const char *code = of_manifest.n ? "C101" : of_request ? "BAD_REQUEST" : "C102"; /* FfDL's: invalid manifest, invalid archive */
    const char *unserved = pst_manifest_check_served(&m, &of_manifest);
    if (!bad.n && unserved && strcmp(code, "C101"))
        code = unserved;
    for (size_t i = 0; i < of_manifest.n; i++) {
        const pst_complaint *at = &of_manifest.at[i];
        if (at->line)
            pst_complain(&bad, at->field, at->line, "line %d: %s", at->line, at->text);
        else
            pst_complain(&bad, at->field, 0, "%s", at->text);
    }

    if (bad.n) {
        char *actor = pst_sprintf("user:%s", r->user);
        char *all = pst_complaints_text(&bad);
        char *reason = pst_sprintf("the request cannot be met: %.2000s", all);
        trainer_say answer = {.actor = actor, .reason_code = code, .reason = reason, .details = &bad};
        if (of_request)
            tcore_reject_orphan(c, r, training_id, &answer);
        else
            reject_submission(c, in, &m, training_id, mark, &answer);
        free(reason);
        free(all);
        free(actor);
    } else {
        admit(c, in, &m, training_id, mark, &warnings);
    }
    pst_manifest_done(&m);
    pst_complaints_done(&bad);
    pst_complaints_done(&of_manifest);
    pst_complaints_done(&warnings);
}

static void submit(tcore *c, const trainer_in *in, const char *mark)
{
    const pst_job_request *r = in->request;
    char training_id[64], digest[65];
    pst_training_id(r->user, r->request_id, training_id);
    trainer_submit_digest(in, digest);
    trainer_job *j = pst_map_get(&c->jobs, training_id);
    char *old = j ? NULL : trainer_request_too_old(c, in);
    if (j) {
        trainer_submit_again(c, j, in, digest);
    } else if (tcore_orphan_answered(c, r)) {
        c->counts.duplicates++;
    } else if (old) {
        pst_complaints details = {0};
        char *actor = pst_sprintf("user:%s", r->user);
        pst_complain(&details, "time", 0, "%s", old);
        tcore_reject_orphan(c, r, training_id,
                            &(trainer_say){.actor = actor, .reason_code = "TOO_OLD", .reason = old, .details = &details});
        free(actor);
        pst_complaints_done(&details);
    } else {
        submit_new(c, in, training_id, mark);
        if (pst_map_get(&c->jobs, training_id))
            trainer_early_apply(c, training_id);
    }
    free(old);
}

/* ---- what is asked of a job that is there ------------------------------------------------------------------------------------ */

typedef struct asked {
    tcore *c;
    trainer_job *j;
    const pst_job_request *r;
    char *actor, *by;
} asked;

static void refuse(const asked *a, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void refuse(const asked *a, const char *code, const char *fmt, ...)
{
    pst_buf reason = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&reason, fmt, ap);
    va_end(ap);
    pst_complaints details = {0};
    pst_complain(&details, "action", 0, "%s", reason.data);
    tcore_reject(a->c, a->j, a->r->training_id, a->r->request_id,
                 &(trainer_say){.actor = a->actor, .reason_code = code, .reason = reason.data, .details = &details});
    pst_complaints_done(&details);
    pst_buf_done(&reason);
}

static void say(const asked *a, enum pst_job_event_type type, pst_job_public_state to, const char *reason)
{
    tcore_set_text(&a->j->s.reason, reason);
    tcore_emit(a->c, a->j, type, to, &(trainer_say){.actor = a->actor, .request_id = a->r->request_id, .reason = reason});
}

/* A live generation is to stop; what follows is decided when nothing of it is left. */
static void stop(const asked *a, pst_job_wish wish, enum pst_job_event_type type, enum pst_job_command_type command, const char *verb)
{
    char *reason = pst_sprintf("%s by %s", verb, a->by);
    a->j->s.wish = wish;
    tcore_set_text(&a->j->s.wish_by, a->r->user);
    tcore_set_text(&a->j->s.wish_request, a->r->request_id);
    say(a, type, a->j->s.state, reason);
    tcore_command(a->c, a->j, command, a->r->request_id, reason);
    free(reason);
}

static void halt(const asked *a)
{
    trainer_job *j = a->j;
    if (pst_job_state_is_ended(j->s.state)) {
        refuse(a, "WRONG_STATE", "the job is %s already and cannot be halted", pst_job_public_state_text(j->s.state));
    } else if (j->s.wish != PST_JOB_WISH_NONE) {
        refuse(a, "WRONG_STATE", "the job is being stopped already: %s", j->s.reason ? j->s.reason : "asked before");
    } else if (j->s.state == PST_JOB_PUBLIC_STATE_QUEUED) {
        char *reason = pst_sprintf("halted by %s while it was queued", a->by);
        trainer_queue_remove(a->c, j);
        a->c->counts.halted++;
        say(a, PST_JOB_EVENT_TYPE_HALTED, PST_JOB_PUBLIC_STATE_HALTED, reason);
        free(reason);
    } else {
        stop(a, PST_JOB_WISH_HALT, PST_JOB_EVENT_TYPE_HALTING, PST_JOB_COMMAND_TYPE_HALT, "halted");
    }
}

static void resume(const asked *a)
{
    trainer_job *j = a->j;
    if (j->s.state != PST_JOB_PUBLIC_STATE_HALTED && j->s.state != PST_JOB_PUBLIC_STATE_FAILED) {
        refuse(a, "WRONG_STATE", "the job is %s%s; only a HALTED or FAILED one can be resumed", pst_job_public_state_text(j->s.state),
               j->s.wish == PST_JOB_WISH_HALT ? " and still being halted" : "");
        return;
    }
    tcore_read_manifest(j);
    char *never = a->c->nodes_unread ? NULL : trainer_queue_never(j->site, &j->needs);
    if (never) {
        refuse(a, "INSUFFICIENT_RESOURCES", "%s", never);
        free(never);
        return;
    }
    char *reason = pst_sprintf("resumed by %s", a->by);
    j->s.attempts = j->s.platform_attempts = 0;
    tcore_set_text(&j->s.reason_code, NULL);
    say(a, PST_JOB_EVENT_TYPE_RESUMED, PST_JOB_PUBLIC_STATE_QUEUED, reason);
    trainer_queue_add(a->c, j);
    free(reason);
}

/* TERMINATE and DELETE with `force`: also without the job's node, once that is silent. */
static bool is_forced(const pst_job_request *r)
{
    const char *force = pst_str_map_get(r->options, r->n_options, "force");
    return force && !strcmp(force, "true");
}

/* Asked once more while it is being stopped: not wrong, and its node hears of it once more. */
static void stop_again(const asked *a, const char *verb)
{
    char *reason = pst_sprintf("%s by %s, as asked before", verb, a->by);
    tcore_emit(a->c, a->j, PST_JOB_EVENT_TYPE_TERMINATING, a->j->s.state,
               &(trainer_say){.actor = a->actor, .request_id = a->r->request_id, .reason = reason});
    tcore_command(a->c, a->j, PST_JOB_COMMAND_TYPE_KILL, a->r->request_id, reason);
    free(reason);
}

static void terminate(const asked *a)
{
    trainer_job *j = a->j;
    bool ended = pst_job_state_is_ended(j->s.state) && j->s.state != PST_JOB_PUBLIC_STATE_HALTED;
    if (ended) {
        refuse(a, "WRONG_STATE", "the job is %s already", pst_job_public_state_text(j->s.state));
    } else if (pst_job_state_is_live(j->s.state)) {
        if (j->s.wish == PST_JOB_WISH_TERMINATE || j->s.wish == PST_JOB_WISH_DELETE)
            stop_again(a, "terminated");
        else
            stop(a, PST_JOB_WISH_TERMINATE, PST_JOB_EVENT_TYPE_TERMINATING, PST_JOB_COMMAND_TYPE_KILL, "terminated");
        j->s.wish_force |= is_forced(a->r);
        tcore_force(a->c, j);
    } else {
        char *reason = pst_sprintf("terminated by %s", a->by);
        trainer_queue_remove(a->c, j);
        a->c->counts.terminated++;
        say(a, PST_JOB_EVENT_TYPE_TERMINATED, PST_JOB_PUBLIC_STATE_TERMINATED, reason);
        free(reason);
    }
}

static void delete_now(tcore *c, trainer_job *j, const char *actor, const char *request_id, const char *reason)
{
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_DELETED, j->s.state, &(trainer_say){.actor = actor, .request_id = request_id, .reason = reason});
    if (j->s.generation > 0)
        tcore_command(c, j, PST_JOB_COMMAND_TYPE_CLEAN, request_id, reason);
    tcore_remove(c, j);
}

static void delete_job(const asked *a)
{
    trainer_job *j = a->j;
    char *reason = pst_sprintf("deleted by %s", a->by);
    if (pst_job_state_is_live(j->s.state)) {
        if (j->s.wish == PST_JOB_WISH_DELETE)
            stop_again(a, "terminated and deleted");
        else
            stop(a, PST_JOB_WISH_DELETE, PST_JOB_EVENT_TYPE_TERMINATING, PST_JOB_COMMAND_TYPE_KILL, "terminated and deleted");
        j->s.wish_force |= is_forced(a->r);
        tcore_force(a->c, j);
    } else {
        if (j->s.state == PST_JOB_PUBLIC_STATE_QUEUED) { /* every accepted job has an end */
            trainer_queue_remove(a->c, j);
            a->c->counts.terminated++;
            say(a, PST_JOB_EVENT_TYPE_TERMINATED, PST_JOB_PUBLIC_STATE_TERMINATED, reason);
        }
        delete_now(a->c, j, a->actor, a->r->request_id, reason);
    }
    free(reason);
}

static void reprioritise(const asked *a)
{
    trainer_job *j = a->j;
    const char *text = pst_str_map_get(a->r->options, a->r->n_options, "priority");
    char *end = NULL;
    long v = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || v < -PRIORITY_ABS_MAX || v > PRIORITY_ABS_MAX) {
        refuse(a, "BAD_REQUEST", "options.priority must be a whole number from %d to %d, found %.40s", -PRIORITY_ABS_MAX, PRIORITY_ABS_MAX,
               text ? text : "nothing");
        return;
    }
    if (j->s.state == PST_JOB_PUBLIC_STATE_COMPLETED || j->s.state == PST_JOB_PUBLIC_STATE_TERMINATED ||
        j->s.state == PST_JOB_PUBLIC_STATE_REJECTED) {
        refuse(a, "WRONG_STATE", "the job is %s already", pst_job_public_state_text(j->s.state));
        return;
    }
    char *reason = pst_sprintf("priority %d, was %d, by %s", (int)v, j->s.priority, a->by);
    bool queued = j->queued;
    trainer_queue_remove(a->c, j); /* its place depends on the priority */
    j->s.priority = (int)v;
    tcore_emit(a->c, j, PST_JOB_EVENT_TYPE_REPRIORITISED, j->s.state,
               &(trainer_say){.actor = a->actor, .request_id = a->r->request_id, .reason = reason});
    if (queued)
        trainer_queue_add(a->c, j);
    free(reason);
}

static void do_it(asked *a)
{
    switch (a->r->action) {
    case PST_JOB_ACTION_HALT: halt(a); break;
    case PST_JOB_ACTION_RESUME: resume(a); break;
    case PST_JOB_ACTION_TERMINATE: terminate(a); break;
    case PST_JOB_ACTION_DELETE: delete_job(a); break;
    case PST_JOB_ACTION_REPRIORITISE: reprioritise(a); break;
    default: break; /* not here */
    }
}

void tcore_control(tcore *c, const pst_job_request *r)
{
    const char *id = r->training_id ? r->training_id : "";
    char *mark = request_mark(r);
    trainer_job *j = pst_map_get(&c->jobs, id);
    asked a = {c, j, r, pst_sprintf("user:%s", r->user), asked_by(r)};
    pst_complaints bad = {0};
    check_text(&bad, "request_id", r->request_id, true);
    check_text(&bad, "training_id", id, true);
    check_text(&bad, "user", r->user, false);
    if (r->action == PST_JOB_ACTION_UNKNOWN)
        pst_complain(&bad, "action", 0, "is none of SUBMIT HALT RESUME TERMINATE DELETE REPRIORITISE");
    bool answered = (j && *r->request_id && is_answered(j, mark)) || tcore_orphan_answered(c, r); /* the latter before it was submitted */
    if (answered) {
        c->counts.duplicates++;
    } else if (bad.n) {
        char *all = pst_complaints_text(&bad);
        trainer_say say_bad = {.actor = a.actor, .reason_code = "BAD_REQUEST", .reason = all, .details = &bad};
        if (j)
            tcore_reject(c, j, id, r->request_id, &say_bad);
        else
            tcore_reject_orphan(c, r, id, &say_bad);
        free(all);
    } else if (!j) {
        pst_complain(&bad, "training_id", 0, "no job has the id %s%s", id,
                     trainer_memory_has(&c->deleted, id) ? " any more: it was deleted" : "");
        tcore_reject_orphan(c, r, id,
                            &(trainer_say){.actor = a.actor, .reason_code = "UNKNOWN_JOB", .reason = bad.at[0].text, .details = &bad});
    } else {
        tcore_remember(j, mark);
        if (trainer_request_allowed(c, j, r))
            do_it(&a);
        else
            refuse(&a, "NOT_YOURS", "the job is not yours: it belongs to user %.100s, and user %.100s is no operator", j->s.user, r->user);
    }
    pst_complaints_done(&bad);
    free(a.actor);
    free(a.by);
    free(mark);
}

static void reject_old(tcore *c, trainer_job *j, const pst_job_request *r, const char *mark, const char *why)
{
    pst_complaints details = {0};
    char *actor = pst_sprintf("user:%s", r->user);
    pst_complain(&details, "time", 0, "%s", why);
    tcore_remember(j, mark);
    tcore_reject(c, j, j->s.training_id, r->request_id,
                 &(trainer_say){.actor = actor, .reason_code = "TOO_OLD", .reason = why, .details = &details});
    free(actor);
    pst_complaints_done(&details);
}

/* A request of a job that is not known may have overtaken its submission, which has another key and so stands on another partition. */
static void control(tcore *c, const trainer_in *in, const char *mark)
{
    const pst_job_request *r = in->request;
    const char *id = r->training_id ? r->training_id : "";
    trainer_job *j = pst_map_get(&c->jobs, id);
    bool may_come = !j && *id && *r->request_id && r->action != PST_JOB_ACTION_UNKNOWN && !trainer_memory_has(&c->deleted, id) &&
                    !tcore_orphan_answered(c, r);
    bool news = j ? !is_answered(j, mark) : may_come;
    char *old = news ? trainer_request_too_old(c, in) : NULL; /* a job remembers its last requests only */
    if (may_come && trainer_early_has(c, r))
        c->counts.duplicates++;
    else if (j && old)
        reject_old(c, j, r, mark, old);
    else if (!may_come || old || !trainer_early_keep(c, r))
        tcore_control(c, r);
    free(old);
}

/* Of a node, not of a job. Asked again with the same id: counted, as long as we remember; doing it twice does no harm. */
static void of_node(tcore *c, const pst_job_request *r)
{
    pst_complaints bad = {0};
    check_text(&bad, "request_id", r->request_id, true);
    check_text(&bad, "user", r->user, false);
    if (!trainer_request_of_operator(c, r))
        pst_complain(&bad, "user", 0, "%.100s is no operator: only those have a say about nodes", r->user);
    if (tcore_orphan_answered(c, r)) {
        c->counts.duplicates++;
    } else if (bad.n) {
        char *all = pst_complaints_text(&bad);
        tcore_reject_orphan(c, r, "", &(trainer_say){.reason_code = "BAD_REQUEST", .reason = all, .details = &bad});
        free(all);
    } else {
        char *by = asked_by(r);
        remember_orphan(c, r);
        tcore_node_request(c, r, by);
        free(by);
    }
    pst_complaints_done(&bad);
}

void tcore_request(tcore *c, const trainer_in *in)
{
    char *mark = request_mark(in->request);
    pst_job_action action = in->request->action;
    c->counts.requests++;
    if (action == PST_JOB_ACTION_SUBMIT)
        submit(c, in, mark);
    else if (action == PST_JOB_ACTION_NODE_DRAIN || action == PST_JOB_ACTION_NODE_RESUME || action == PST_JOB_ACTION_NODE_LOST)
        of_node(c, in->request);
    else
        control(c, in, mark);
    free(mark);
}

void tcore_bad_request(tcore *c, const trainer_in *in)
{
    pst_complaints details = {0};
    c->counts.requests++;
    pst_complain(&details, "value", 0, "%s", in->bad_reason);
    tcore_reject(c, NULL, "", in->bad_request_id,
                 &(trainer_say){.reason_code = "BAD_EVENT", .reason = in->bad_reason, .details = &details});
    pst_complaints_done(&details);
}

void tcore_fulfil_wish(tcore *c, trainer_job *j)
{
    pst_job_wish wish = j->s.wish;
    char *actor = pst_sprintf("user:%s", j->s.wish_by);
    char *request_id = pst_strdup(j->s.wish_request), *reason = pst_strdup(j->s.reason);
    j->s.wish = PST_JOB_WISH_NONE;
    j->s.wish_force = false;
    tcore_set_text(&j->s.wish_by, "");
    tcore_set_text(&j->s.wish_request, NULL);
    tcore_set_text(&j->s.reason_code, NULL);
    bool halted = wish == PST_JOB_WISH_HALT;
    *(halted ? &c->counts.halted : &c->counts.terminated) += 1;
    tcore_emit(c, j, halted ? PST_JOB_EVENT_TYPE_HALTED : PST_JOB_EVENT_TYPE_TERMINATED,
               halted ? PST_JOB_PUBLIC_STATE_HALTED : PST_JOB_PUBLIC_STATE_TERMINATED,
               &(trainer_say){.actor = actor, .request_id = request_id, .reason = reason});
    if (wish == PST_JOB_WISH_DELETE)
        delete_now(c, j, actor, request_id, reason);
    free(actor);
    free(request_id);
    free(reason);
}

void tcore_drop_wish(tcore *c, trainer_job *j)
{
    pst_job_wish wish = j->s.wish;
    char *actor = pst_sprintf("user:%s", j->s.wish_by);
    char *request_id = pst_strdup(j->s.wish_request);
    j->s.wish = PST_JOB_WISH_NONE;
    j->s.wish_force = false;
    tcore_set_text(&j->s.wish_by, "");
    tcore_set_text(&j->s.wish_request, NULL);
    if (wish == PST_JOB_WISH_DELETE) {
        char *reason = pst_sprintf("deleted by %s", actor);
        delete_now(c, j, actor, request_id, reason);
        free(reason);
    }
    free(actor);
    free(request_id);
}
