/* recording.c - several topics become one history by their records' times. Within a partition the broker's order stands, as it does for the Trainer
 * itself (trainer_input_order): a client's clock that goes back must not move a halt before its submission. */
#include "trainer/recording.h"

#include "common/base/array.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/platform/queues.h"
#include "schemas/avro.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 30 };

/* In the order in which entries of the same millisecond are taken: what is known of the nodes comes before what is asked, causes before effects. */
static const pst_topic topics[] = {PST_TOPIC_QUEUES,        PST_TOPIC_WORKERS,      PST_TOPIC_JOBS_REQUESTS,
                                   PST_TOPIC_JOBS_COMMANDS, PST_TOPIC_JOBS_REPORTS, PST_TOPIC_JOBS_EVENTS};
enum { N_TOPICS = sizeof topics / sizeof *topics };

static const pst_type *type_of(pst_topic t)
{
    return pst_type_find(pst_topic_get(t)->type_name);
}

static int rank(pst_topic t)
{
    for (int i = 0; i < N_TOPICS; i++)
        if (topics[i] == t)
            return i;
    return N_TOPICS;
}

static trainer_entry *entry_add(trainer_recording *r, pst_topic t, int32_t partition, int64_t offset, int64_t time_ms)
{
    r->at = pst_array_room(r->at, r->n, &r->cap, sizeof *r->at);
    trainer_entry *e = &r->at[r->n++];
    *e = (trainer_entry){.topic = t, .partition = partition, .offset = offset, .time_us = time_ms > 0 ? time_ms * 1000 : 0};
    return e;
}

/* What could not be read: of requests the Trainer answers that, of the rest it takes no notice. */
static void entry_failed(trainer_recording *r, trainer_entry *e, const pst_err *err)
{
    if (e->topic == PST_TOPIC_JOBS_REQUESTS) {
        e->bad = pst_strdup(err->text);
    } else {
        r->n--;
        r->left_out++;
    }
}

/* ---- from topics ------------------------------------------------------------------------------------------------------------- */

typedef struct scan {
    trainer_recording *r;
    pst_client *client;
    pst_topic topic;
} scan;

static int take_record(void *arg, const char *key, const pst_record *rec, pst_err *err)
{
    scan *s = arg;
    pst_err e = {0};
    if (!rec->value) {
        s->r->left_out++;
        return 0;
    }
    trainer_entry *x = entry_add(s->r, s->topic, rec->partition, rec->offset, rec->timestamp_ms);
    int rc = s->topic == PST_TOPIC_QUEUES
                 ? pst_queue_of_record(s->client, key, rec, &x->queue, &e)
                 : pst_codec_decode(s->client->codec, type_of(s->topic), rec->value, rec->value_len, rec->timestamp_ms, &x->request, &e);
    if (rc < 0 && e.cls != PST_CLASS_DATA) {
        *err = e;
        return rc;
    }
    if (!rc && s->topic == PST_TOPIC_JOBS_REQUESTS && (rc = pst_event_check_text(&pst_job_request_type, &x->request, &e)) < 0)
        pst_event_clear(&pst_job_request_type, &x->request); /* as the Trainer does */
    if (rc < 0)
        entry_failed(s->r, x, &e);
    return 0;
}

/* ---- from lines -------------------------------------------------------------------------------------------------------------- */

/* "penstock.jobs.reports", or under another prefix. */
static bool topic_of(const char *name, pst_topic *ret)
{
    for (int i = 0; i < N_TOPICS; i++) {
        const char *suffix = pst_topic_get(topics[i])->suffix;
        size_t n = strlen(name), m = strlen(suffix);
        if (n >= m && !strcmp(name + n - m, suffix)) {
            *ret = topics[i];
            return true;
        }
    }
    return false;
}

static void take_line(trainer_recording *r, const json_t *j)
{
    pst_err e = {0};
    pst_topic t;
    json_t *payload = json_object_get(j, "payload");
    if (!topic_of(pst_json_str(j, "topic", ""), &t) || !payload || json_is_null(payload)) {
        r->left_out++;
        return;
    }
    trainer_entry *x = entry_add(r, t, (int32_t)pst_json_int(j, "partition", 0), pst_json_int(j, "offset", 0), pst_json_int(j, "ts", 0));
    json_t *parsed = NULL; /* JSON text that somebody published stands there as a string */
    if (json_is_string(payload))
        pst_json_parse(json_string_value(payload), strlen(json_string_value(payload)), "payload", &parsed, NULL);
    if (pst_event_from_json(type_of(t), parsed ? parsed : payload, &x->request, &e) < 0)
        entry_failed(r, x, &e);
    json_decref(parsed);
}

static int take_lines(trainer_recording *r, const char *path, const pst_buf *text, pst_err *err)
{
    size_t number = 0;
    for (const char *p = text->data, *end = p + text->len; p && p < end; number++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        json_t *j = NULL;
        if (len && (pst_json_parse(p, len, path, &j, err) < 0 || !json_is_object(j))) {
            json_decref(j);
            pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "trainer", 0, "it is no object");
            pst_err_prefix(err, "line %zu: wanted what `penstock cat -J` prints", number + 1);
            return PST_EPARSE;
        }
        if (len)
            take_line(r, j);
        json_decref(j);
        p += len + 1;
    }
    return 0;
}

/* ---- order ------------------------------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const trainer_entry *x = a, *y = b;
    int64_t d = rank(x->topic) - rank(y->topic);
    d = d ? d : x->partition - y->partition;
    d = d ? d : x->offset - y->offset;
    return (d > 0) - (d < 0);
}

static int by_time(const void *a, const void *b)
{
    const trainer_entry *x = a, *y = b;
    int64_t d = x->time_us - y->time_us;
    return d ? (d > 0) - (d < 0) : by_place(a, b);
}

static void put_in_order(trainer_recording *r)
{
    if (!r->n)
        return;
    qsort(r->at, r->n, sizeof *r->at, by_place);
    for (size_t i = 1; i < r->n; i++) {
        const trainer_entry *before = &r->at[i - 1];
        if (before->topic == r->at[i].topic && before->partition == r->at[i].partition && r->at[i].time_us < before->time_us)
            r->at[i].time_us = before->time_us;
    }
    qsort(r->at, r->n, sizeof *r->at, by_time);
}

int trainer_recording_of_topics(trainer_recording *r, pst_client *client, pst_err *err)
{
    int rc = 0;
    for (int i = 0; i < N_TOPICS && !rc; i++) {
        scan s = {r, client, topics[i]};
        rc = pst_client_scan(client, topics[i], NULL, take_record, &s, err);
        if (rc == PST_ENOTFOUND && topics[i] == PST_TOPIC_QUEUES) { /* a platform of before there were any */
            pst_err_clear(err);
            rc = 0;
        }
    }
    put_in_order(r);
    return rc;
}

int trainer_recording_of_file(trainer_recording *r, const char *path, pst_err *err)
{
    pst_buf text = {0};
    int rc = pst_fs_read(path, FILE_MAX, &text, err);
    if (!rc)
        rc = take_lines(r, path, &text, err);
    pst_buf_done(&text);
    put_in_order(r);
    return rc;
}

void trainer_recording_done(trainer_recording *r)
{
    for (size_t i = 0; i < r->n; i++) {
        pst_event_clear(type_of(r->at[i].topic), &r->at[i].request);
        free(r->at[i].bad);
    }
    free(r->at);
    *r = (trainer_recording){0};
}
