/* requests.c - what users ask: submissions, and the way of every other request to whoever answers it (control.c for jobs, nodes.c for nodes).
 * Every request is answered by an event, once; a repeated one is counted and ignored. All that is wrong with one is listed, not only the
 * first. */
#include "trainer/core_state.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

/* ---- SUBMIT ------------------------------------------------------------------------------------------------------------------ */

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
    s.stop_by = pst_strdup("");
    s.request_sha256 = pst_alloc(65);
    trainer_submit_digest(in, s.request_sha256);
    if (m->array) {
        s.array = pst_alloc(sizeof *s.array);
        s.array->indices = pst_strdup(m->array);
        s.array->tasks = m->tasks;
    }
    s.array_index = -1;
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
    trainer_job *j = tcore_adopt(c, &s, NULL);
    tcore_remember(j, mark);
    tcore_set_text(&j->s.reason_code, say->reason_code);
    tcore_set_text(&j->s.reason, say->reason);
    c->counts.rejected++;
    tcore_emit(c, j, PST_JOB_EVENT_TYPE_REJECTED, PST_JOB_PUBLIC_STATE_REJECTED, say);
    trainer_memory_put(&c->rejected, training_id, c->now_us);
}

/* What can never run, or would be one too many in its queue, is rejected and leaves no job; anything else exists from here on. */
static void admit(tcore *c, const trainer_in *in, pst_manifest *m, const char *training_id, const char *mark,
                  const pst_complaints *warnings)
{
    char *actor = pst_sprintf("user:%s", in->request->user);
    trainer_gang *gang = trainer_gang_of(m);
    const trainer_site *site = tcore_site(c, m->site);
    char *never = c->nodes_unread ? NULL : trainer_queue_never(site, gang);
    const char *code = "INSUFFICIENT_RESOURCES";
    if (!never)
        never = trainer_queue_exceeds(pst_map_get(&c->queues, m->queue), &gang->all);
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
        trainer_after_take(c, m, &s);
        s.held_by = pst_strdup(m->hold ? in->request->user : NULL);
        trainer_job *j = tcore_adopt(c, &s, m);
        tcore_remember(j, mark);
        tcore_emit(c, j, PST_JOB_EVENT_TYPE_RECEIVED, PST_JOB_PUBLIC_STATE_QUEUED, &(trainer_say){.actor = actor});
        if (trainer_stores_needed(m))
            trainer_stores_await(c, j);
        else
            tcore_emit(c, j, PST_JOB_EVENT_TYPE_ADMITTED, j->s.state,
                       &(trainer_say){.reason = warnings->n ? "admitted, with remarks on the manifest" : NULL, .details = warnings});
        trainer_queue_add(c, j);
    }
    free(gang);
    free(never);
    free(actor);
}

/* A submission that is news: is anything wrong with it? What does not even say whose it is belongs to no job. */
/* What every node of the job's site refuses, beside whatever else is wrong with the manifest. */
static void check_isolation(tcore *c, const pst_manifest *m, pst_complaints *of_manifest)
{
    const trainer_site *site = c->nodes_unread || !m->site ? NULL : pst_map_get(&c->sites, m->site);
    char *forbidden = site ? trainer_site_forbids(site, trainer_isolation_of(m)) : NULL;
    if (forbidden)
        pst_complain(of_manifest, "penstock.isolation", m->isolation_line, "%s", forbidden);
    free(forbidden);
}

static void submit_new(tcore *c, const trainer_in *in, const char *training_id, const char *mark)
{
    const pst_job_request *r = in->request;
    pst_manifest m = {0};
    pst_complaints bad = {0}, of_manifest = {0}, warnings = {0};
    trainer_check_text(&bad, "request_id", r->request_id, true);
    trainer_check_text(&bad, "user", r->user, true);
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
    check_isolation(c, &m, &of_manifest);
    trainer_after_check(c, &m, &of_manifest);
    const char *code = of_request ? "BAD_REQUEST" : "C102"; /* FfDL's: invalid archive */
    if (of_manifest.n)
        code = "C101"; /* invalid manifest */
    const char *unserved = pst_manifest_check_served(&m, &of_manifest);
    if (!trainer_queue_check(c, &m, &of_manifest) && !unserved)
        unserved = "C104";
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

/* A request of a job that is not known may have overtaken its submission, which has another key and so stands on another partition. Tasks of arrays
 * have none. */
static void control(tcore *c, const trainer_in *in, const char *mark)
{
    const pst_job_request *r = in->request;
    const char *id = r->training_id ? r->training_id : "";
    trainer_job *j = pst_map_get(&c->jobs, id);
    bool may_come = !j && *id && pst_task_index(id) < 0 && *r->request_id && r->action != PST_JOB_ACTION_UNKNOWN &&
                    !trainer_memory_has(&c->deleted, id) && !tcore_orphan_answered(c, r);
    bool news = j ? !trainer_is_answered(j, mark) : may_come;
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
    trainer_check_text(&bad, "request_id", r->request_id, true);
    trainer_check_text(&bad, "user", r->user, false);
    if (!trainer_request_of_operator(c, r))
        pst_complain(&bad, "user", 0, "%.100s is no operator: only those have a say about nodes", r->user);
    if (tcore_orphan_answered(c, r)) {
        c->counts.duplicates++;
    } else if (bad.n) {
        char *all = pst_complaints_text(&bad);
        tcore_reject_orphan(c, r, "", &(trainer_say){.reason_code = "BAD_REQUEST", .reason = all, .details = &bad});
        free(all);
    } else {
        char *by = trainer_asked_by(r);
        tcore_remember_orphan(c, r);
        tcore_node_request(c, r, by);
        free(by);
    }
    pst_complaints_done(&bad);
}

void tcore_request(tcore *c, const trainer_in *in)
{
    char *mark = trainer_request_mark(in->request);
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
