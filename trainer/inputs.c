/* inputs.c - one record → one step of the core. Bytes that are no event, archives that are none, content that does not match its digest: all
 * this becomes an answer by the core. What is only away for a moment (registry, object store) is PST_EAGAIN: the record comes again. */
#include "trainer/shell.h"

#include "trainer/asker.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/training_id.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_BYTES_MAX = 8 << 20 };

static int64_t record_time_us(const trainer_shell *s, const pst_record *r)
{
    return r->timestamp_ms > 0 ? r->timestamp_ms * 1000 : trainer_shell_now(s);
}

/* The record's trace goes on to what it leads to for the job that it is about. */
static void find_cause(const pst_record *r, const char *training_id, trainer_cause *ret)
{
    *ret = (trainer_cause){0};
    pst_trace_of_record(r, &ret->trace);
    snprintf(ret->training_id, sizeof ret->training_id, "%s", training_id ? training_id : "");
}

static int step(trainer_shell *s, const trainer_in *in, const trainer_cause *cause, pst_err *err)
{
    const char *before = pst_log_job(cause ? cause->training_id : NULL);
    int64_t begun = pst_mono_us();
    trainer_actions_clear(&s->actions);
    trainer_in with = *in;
    with.unsettled = trainer_times_unsettled(&s->times, pst_mono_us());
    with.nodes_unread = s->nodes_unread;
    with.more = true; /* the round's pass follows (shell.c) */
    tcore_step(s->core, &with, trainer_shell_now(s), &s->actions);
    pst_metric_observe(s->metrics.step_seconds, (double)(pst_mono_us() - begun) / 1e6);
    pst_log_job(before);
    return trainer_outbox_add(s->outbox, &s->actions, &s->traces, cause, err);
}

/* ---- submitted code ---------------------------------------------------------------------------------------------------------- */

/* A first look; the archive is unpacked, bounded, where it is used. */
const char *trainer_code_problem(const pst_job_code *code)
{
    const unsigned char *b = code->content.data;
    size_t n = code->content.len;
    if (n > CODE_BYTES_MAX)
        return "is larger than 8 MiB: put it into the object store and give its uri";
    if (!strcmp(code->media_type, "application/zip") && (n < 4 || b[0] != 'P' || b[1] != 'K'))
        return "is not a zip archive: it does not begin with PK";
    if (strstr(code->media_type, "gzip") && (n < 3 || b[0] != 0x1f || b[1] != 0x8b))
        return "is not a gzip file: it does not begin with 1f 8b";
    if (!strcmp(code->media_type, "application/x-tar") && (n < 512 || memcmp(b + 257, "ustar", 5) != 0))
        return "is not a tar archive: \"ustar\" is not at byte 257";
    return NULL;
}

/* Content is stored under its digest before the job is admitted: storing it twice is harmless, admitting without it is not. */
static int keep_code(trainer_shell *s, const pst_job_request *r, char sha256[65], char **ret_uri, pst_err *err)
{
    char key[80];
    pst_sha256_hex(r->code->content.data, r->code->content.len, sha256);
    bool matches = !r->code->sha256 || !strcasecmp(r->code->sha256, sha256);
    if (!matches || trainer_code_problem(r->code) || !tcore_is_new(s->core, r))
        return 0;
    snprintf(key, sizeof key, "code/%s", sha256);
    return pst_objects_put(s->objects, key, r->code->content.data, r->code->content.len, ret_uri, err);
}

/* Code that is named by its address is made new again, or it could be swept while it is being admitted. What this store
 * does not have, no learner would get: told now, not when the job's turn has come. */
static int renew_code(trainer_shell *s, const pst_job_request *r, char **ret_error, pst_err *err)
{
    pst_err e = {0};
    int rc = r->code->uri && *r->code->uri && tcore_is_new(s->core, r) ? pst_objects_touch(s->objects, r->code->uri, &e) : 0;
    if (rc < 0 && rc != PST_ENOTFOUND && e.cls == PST_CLASS_DATA)
        return 0; /* of a store that we do not know */
    if (rc == PST_ENOTFOUND) {
        *ret_error = pst_sprintf("%s; put the archive there (penstock submit does), or send it as content", e.text);
        return 0;
    }
    if (rc < 0)
        *err = e;
    return rc;
}

/* A record was published just now: compares the clocks until it is known whose to believe. */
static void compare_clocks(trainer_shell *s, pst_times_who who, const pst_record *r)
{
    if (r->timestamp_ms > 0 && trainer_times_heard(&s->times, who, r->timestamp_ms * 1000, pst_mono_us()))
        pst_log(PST_LOG_WARN, "trainer",
                "event=clock_differs ahead_s=%.1f: this computer's clock agrees with neither the nodes' nor the clients'; theirs is taken",
                -(double)s->times.shift_us / 1e6);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------------- */

/* JSON text that is no valid request may still say which one it is. */
static char *find_request_id(const pst_record *r)
{
    json_t *j = NULL;
    if (!r->value_len || *(const char *)r->value != '{' || pst_json_parse(r->value, r->value_len, "request", &j, NULL) < 0)
        return NULL;
    const char *id = pst_json_str(j, "request_id", NULL);
    char *copy = id && *id ? pst_strndup(id, 256) : NULL;
    json_decref(j);
    return copy;
}

/* request: what could be read of it; NULL = nothing. */
static int bad_request(trainer_shell *s, const pst_record *r, const pst_job_request *request, const char *text, pst_err *err)
{
    trainer_cause cause;
    find_cause(r, NULL, &cause);
    bool known = request && *request->request_id && !pst_request_text_wrong(request->request_id);
    char *id = known ? pst_strdup(request->request_id) : find_request_id(r);
    char *reason = pst_sprintf("%s partition %d offset %lld is no job request: %s", r->topic, r->partition, (long long)r->offset, text);
    pst_metric_add(s->metrics.decode_errors, 1);
    int rc = step(s, &(trainer_in){.kind = PST_TRAINER_BAD_REQUEST, .bad_request_id = id, .bad_reason = reason}, &cause, err);
    free(reason);
    free(id);
    return rc;
}

/* A submission without a trace begins its job's. */
static void find_request_cause(const pst_record *r, const pst_job_request *request, trainer_cause *ret)
{
    char id[64];
    bool submits = request->action == PST_JOB_ACTION_SUBMIT;
    if (submits)
        pst_training_id(request->user, request->request_id, id);
    find_cause(r, submits ? id : request->training_id, ret);
    if (submits && !*ret->trace.text)
        pst_trace_child(NULL, &ret->trace);
}

int trainer_input_request(trainer_shell *s, const pst_record *r, pst_err *err)
{
    pst_job_request request = {0};
    pst_err e = {0};
    char sha256[65], *uri = NULL, *missing = NULL;
    if (!r->value)
        return step(s, &(trainer_in){.kind = PST_TRAINER_TOMBSTONE}, NULL, err);
    int rc = pst_codec_decode(s->client->codec, &pst_job_request_type, r->value, r->value_len, r->timestamp_ms, &request, &e);
    if (rc < 0 && e.cls == PST_CLASS_DATA)
        return bad_request(s, r, NULL, e.text, err);
    if (!rc &&
        pst_event_check_text(&pst_job_request_type, &request, &e) < 0) { /* else it would stand in events, where nobody could read it */
        rc = bad_request(s, r, &request, e.text, err);
        pst_event_clear(&pst_job_request_type, &request);
        return rc;
    }
    bool has_code = !rc && request.action == PST_JOB_ACTION_SUBMIT && request.code && request.code->content.data;
    if (has_code)
        rc = keep_code(s, &request, sha256, &uri, &e);
    else if (!rc && request.action == PST_JOB_ACTION_SUBMIT && request.code)
        rc = renew_code(s, &request, &missing, &e);
    if (!rc)
        rc = trainer_queues_for(s, &request, &e);
    if (rc < 0) { /* away for a moment */
        if (err && !err->code)
            *err = e;
        rc = e.cls == PST_CLASS_RETRY ? PST_EAGAIN : rc;
    } else {
        request.time = request.time > 0 ? request.time : record_time_us(s, r);
        if (s->live)
            compare_clocks(s, PST_TIMES_CLIENT, r);
        trainer_in in = {.kind = PST_TRAINER_REQUEST,
                         .request = &request,
                         .published_us = r->timestamp_ms > 0 ? r->timestamp_ms * 1000 : 0,
                         .live = s->live,
                         .code_uri = uri,
                         .code_sha256 = has_code ? sha256 : NULL,
                         .code_error = has_code ? trainer_code_problem(request.code) : missing};
        trainer_cause cause;
        find_request_cause(r, &request, &cause);
        rc = step(s, &in, &cause, err);
        if (request.action == PST_JOB_ACTION_SUBMIT && tcore_job(s->core, cause.training_id))
            trainer_traces_keep(&s->traces, cause.training_id, &cause.trace);
    }
    pst_event_clear(&pst_job_request_type, &request);
    free(missing);
    free(uri);
    return rc;
}

/* ---- reports and heartbeats: written by our own programs; what does not decode is logged and passed over ------------------------- */

static int decode_own(trainer_shell *s, const pst_record *r, const pst_type *type, void *ret_event, pst_err *err)
{
    pst_err e = {0};
    if (!r->value)
        return 1;
    int rc = pst_codec_decode(s->client->codec, type, r->value, r->value_len, r->timestamp_ms, ret_event, &e);
    if (rc < 0 && e.cls == PST_CLASS_DATA) {
        pst_metric_add(s->metrics.decode_errors, 1);
        pst_log_limited(PST_LOG_WARN, "trainer", "record_ignored", "event=record_ignored topic=%s partition=%d offset=%lld reason=\"%s\"",
                        r->topic, r->partition, (long long)r->offset, e.text);
        return 1;
    }
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc < 0 && e.cls == PST_CLASS_RETRY ? PST_EAGAIN : rc;
}

int trainer_input_report(trainer_shell *s, const pst_record *r, pst_err *err)
{
    pst_process_report report = {0};
    int rc = decode_own(s, r, &pst_process_report_type, &report, err);
    if (rc)
        return rc > 0 ? 0 : rc;
    trainer_cause cause;
    find_cause(r, report.training_id, &cause);
    uint64_t untrusted = tcore_counts(s->core)->reports_untrusted;
    rc = step(s,
              &(trainer_in){.kind = PST_TRAINER_REPORT,
                            .report = &report,
                            .published_us = r->timestamp_ms > 0 ? r->timestamp_ms * 1000 : 0,
                            .live = s->live},
              &cause, err);
    if (tcore_counts(s->core)->reports_untrusted > untrusted)
        pst_log_limited(
            PST_LOG_WARN, "trainer", "report_not_believed",
            "event=report_not_believed training_id=%.100s generation=%d type=%s reporter=%.100s partition=%d offset=%lld count=%llu "
            "reason=\"it does not have the nonce of the generation, or names another node\"",
            report.training_id, report.generation, pst_report_type_text(report.type), report.reporter, r->partition, (long long)r->offset,
            (unsigned long long)untrusted + 1);
    pst_event_clear(&pst_process_report_type, &report);
    return rc;
}

int trainer_input_worker(trainer_shell *s, const pst_record *r, bool live, pst_err *err)
{
    pst_worker_state worker = {0};
    int rc = decode_own(s, r, &pst_worker_state_type, &worker, err);
    if (rc)
        return rc > 0 ? 0 : rc;
    if (live)
        compare_clocks(s, PST_TIMES_NODE, r);
    int64_t now = trainer_shell_now(s), then = record_time_us(s, r);
    trainer_in in = {.kind = PST_TRAINER_WORKER, .worker = &worker, .seen_us = live || then > now ? now : then};
    rc = step(s, &in, NULL, err);
    pst_event_clear(&pst_worker_state_type, &worker);
    return rc;
}

/* ---- answers of data stores --------------------------------------------------------------------------------------------------- */

int trainer_input_stores(trainer_shell *s, size_t *ret_n, pst_err *err)
{
    const char *id, *refused;
    int rc = 0;
    *ret_n = 0;
    while (!rc && trainer_asker_answer(s->asker, *ret_n, &id, &refused)) {
        trainer_cause cause = {0};
        snprintf(cause.training_id, sizeof cause.training_id, "%s", id);
        rc = step(s, &(trainer_in){.kind = PST_TRAINER_STORES, .training_id = id, .stores_refused = refused}, &cause, err);
        ++*ret_n;
    }
    return rc;
}

/* ---- order ------------------------------------------------------------------------------------------------------------------- */

/* A partition of the batch, and the earliest time of those of its records that were looked at. */
typedef struct head {
    const char *topic;
    int partition;
    int64_t time_ms;
} head;

typedef struct place {
    int64_t time_ms;
    size_t at;
} place;

/* The partition's place in heads; one more when it is not there. last: the one before, which it mostly is. */
static size_t find_head(head *heads, size_t *n, size_t last, const pst_record *r)
{
    size_t at = last;
    if (at < *n && heads[at].partition == r->partition && !strcmp(heads[at].topic, r->topic))
        return at;
    for (at = 0; at < *n; at++)
        if (heads[at].partition == r->partition && !strcmp(heads[at].topic, r->topic))
            return at;
    heads[(*n)++] = (head){r->topic, r->partition, INT64_MAX};
    return at;
}

static int by_time(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->time_ms != y->time_ms)
        return x->time_ms < y->time_ms ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

void trainer_input_order(const pst_batch *b, size_t *ret_order)
{
    /* Sorted by time, where a record counts as no later than what follows it in its partition: so none passes another one of its own. Equal ones stay as
     * they were read. */
    place *places = pst_alloc((b->n + 1) * sizeof *places);
    head *heads = pst_alloc((b->n + 1) * sizeof *heads);
    size_t n_heads = 0, last = 0;
    for (size_t i = b->n; i-- > 0;) {
        const pst_record *r = &b->records[i];
        last = find_head(heads, &n_heads, last, r);
        if (r->timestamp_ms < heads[last].time_ms)
            heads[last].time_ms = r->timestamp_ms;
        places[i] = (place){heads[last].time_ms, i};
    }
    qsort(places, b->n, sizeof *places, by_time);
    for (size_t i = 0; i < b->n; i++)
        ret_order[i] = places[i].at;
    free(heads);
    free(places);
}
