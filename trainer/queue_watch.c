/* queue_watch.c - the Trainer follows the topic `queues`. Its one partition is read without a group from the beginning, and again when a round begins.
 * That alone would be a race: who applies a queue and submits to it at once has published in this order, but on two topics. So where a submission
 * names a queue that is not known, the topic is read to its present end before the submission is judged: what was published before it is then known.
 * A record that is no queue changes nothing; what was said of it before stays. */
#include "trainer/shell.h"

#include "common/base/log.h"
#include "common/platform/queues.h"
#include "schemas/manifest.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 100, REOPEN_US = 5000000 };

static int take(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    trainer_shell *s = arg;
    pst_queue_spec spec = {0};
    pst_err e = {0};
    if (r->offset < s->queues_offset) /* an older one, read again */
        return 0;
    int rc = r->value ? pst_queue_of_record(s->client, key, r, &spec, &e) : 0;
    if (rc < 0 && e.cls == PST_CLASS_RETRY) {
        if (err && !err->code)
            *err = e;
        return PST_EAGAIN;
    }
    s->queues_offset = r->offset + 1;
    if (rc < 0) {
        pst_metric_add(s->metrics.decode_errors, 1);
        pst_log_limited(PST_LOG_WARN, "trainer", "queue_ignored", "event=queue_ignored queue=%.100s offset=%lld reason=\"%s\"", key,
                        (long long)r->offset, e.text);
        return 0;
    }
    trainer_in in = {.kind = PST_TRAINER_QUEUE,
                     .queue_name = key,
                     .queue = r->value ? &spec : NULL,
                     .unsettled = trainer_times_unsettled(&s->times, pst_mono_us()),
                     .nodes_unread = s->nodes_unread,
                     .more = true};
    trainer_actions none = {0};
    tcore_step(s->core, &in, trainer_shell_now(s), &none); /* who runs next is asked at the end of the round */
    trainer_actions_done(&none);
    s->queues_changed = true;
    pst_log(PST_LOG_INFO, "trainer", "event=queue queue=%.100s offset=%lld %s", key, (long long)r->offset,
            r->value ? "state=defined" : "state=deleted");
    pst_event_clear(&pst_queue_spec_type, &spec);
    return 0;
}

int trainer_queues_read(trainer_shell *s, pst_err *err)
{
    pst_err e = {0};
    int rc = pst_client_scan(s->client, PST_TOPIC_QUEUES, NULL, take, s, &e);
    if (rc < 0 && rc != PST_ENOTFOUND) { /* no topic yet: only the queue that is always there */
        if (err && !err->code)
            *err = e;
        return rc;
    }
    s->queues_fresh = true;
    return 0;
}

int trainer_queues_begin(trainer_shell *s, pst_err *err)
{
    tcore_queues_forget(s->core);
    s->queues_offset = 0;
    return trainer_queues_read(s, err);
}

static int open_consumer(trainer_shell *s, pst_err *err)
{
    pst_range all = {pst_client_topic(s->client, PST_TOPIC_QUEUES), 0, PST_OFFSET_BEGINNING, -1};
    return pst_consumer_new(s->client->bus, &(pst_consumer_opts){.ranges = &all, .n_ranges = 1}, &s->queues, err);
}

/* Nothing about queues stops the Trainer: what cannot be read now is read later. */
void trainer_queues_follow(trainer_shell *s)
{
    pst_batch b = {0};
    pst_err err = {0};
    int rc = 0;
    s->queues_fresh = false;
    if (!s->queues && pst_mono_us() < s->queues_due_us)
        return;
    if (!s->queues)
        rc = open_consumer(s, &err);
    if (!rc)
        rc = pst_consumer_poll(s->queues, &(pst_poll){.records_max = BATCH_MAX, .timeout_ms = 0}, &b, &err);
    for (size_t i = 0; !rc && i < b.n; i++) {
        char *key = pst_strndup(b.records[i].key ? b.records[i].key : "", b.records[i].key ? b.records[i].key_len : 0);
        rc = take(s, key, &b.records[i], &err);
        free(key);
    }
    if (rc < 0) { /* opened anew it begins at the beginning, and passes over what is known */
        pst_consumer_free(s->queues);
        s->queues = NULL;
        s->queues_due_us = pst_mono_us() + REOPEN_US;
    }
    if (rc < 0 || err.code)
        pst_log_limited(PST_LOG_WARN, "trainer", "queues_unread", "event=queues_unread reason=\"%s\"", err.text);
}

int trainer_queues_for(trainer_shell *s, const pst_job_request *r, pst_err *err)
{
    if (s->queues_fresh || r->action != PST_JOB_ACTION_SUBMIT || !r->manifest || !strstr(r->manifest, "queue"))
        return 0;
    pst_manifest m;
    pst_complaints errors = {0}, warnings = {0};
    pst_manifest_parse(r->manifest, strlen(r->manifest), &m, &errors, &warnings);
    bool unknown = m.queue && !tcore_has_queue(s->core, m.queue);
    pst_manifest_done(&m);
    pst_complaints_done(&errors);
    pst_complaints_done(&warnings);
    return unknown ? trainer_queues_read(s, err) : 0;
}
