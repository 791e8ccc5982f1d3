/* queues.c - the topic `queues` read as a whole, which is short: a record a queue. JSON text is read by the reader of files, so that who publishes by
 * hand may write 64GiB and hears of unknown keys as a file's author does. */
#include "common/platform/queues.h"

#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "schemas/job_state.h"

#include <stdlib.h>
#include <string.h>

enum { PUBLISH_MS = 30000, LIVE_SHOWN = 3 };

/* ---- records --------------------------------------------------------------------------------------------------------------------- */

static int of_text(const pst_record *r, pst_queue_spec *ret, pst_err *err)
{
    pst_queue_spec *specs;
    size_t n;
    int rc = pst_queue_specs_parse(r->value, r->value_len, "the record's value", &specs, &n, err);
    if (rc < 0)
        return rc;
    *ret = specs[0];
    specs[0] = (pst_queue_spec){0};
    pst_queue_specs_free(specs, n);
    ret->time = ret->time ? ret->time : r->timestamp_ms * 1000;
    return n == 1 ? 0 : pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "queue", 0, "a record holds one queue, this one has %zu", n);
}

int pst_queue_of_record(pst_client *c, const char *key, const pst_record *r, pst_queue_spec *ret_spec, pst_err *err)
{
    PST_ASSERT(r->value);
    pst_queue_spec q = {0};
    const char *text = r->value;
    int rc = r->value_len && *text == '{'
                 ? of_text(r, &q, err)
                 : pst_codec_decode(c->codec, &pst_queue_spec_type, r->value, r->value_len, r->timestamp_ms, &q, err);
    if (!rc)
        rc = pst_queue_spec_check(&q, err);
    if (!rc && strcmp(q.name, key)) /* its tombstone would not find it */
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "queue", 0, "the record's key is not its name, %s", q.name);
    if (rc < 0)
        pst_event_clear(&pst_queue_spec_type, &q);
    else
        *ret_spec = q;
    return rc;
}

typedef struct gather {
    pst_client *client;
    pst_map queues; /* name → pst_queue_spec */
} gather;

static void spec_free(void *p)
{
    if (p)
        pst_event_clear(&pst_queue_spec_type, p);
    free(p);
}

static int gather_one(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    gather *g = arg;
    pst_queue_spec *q = r->value ? pst_alloc(sizeof *q) : NULL;
    pst_err e = {0};
    int rc = q ? pst_queue_of_record(g->client, key, r, q, &e) : 0;
    if (rc < 0) {
        free(q);
        if (e.cls == PST_CLASS_DATA) { /* as the Trainer, which goes on with the one before */
            pst_log_limited(PST_LOG_WARN, "client", "queue_ignored", "event=queue_ignored key=%.100s offset=%lld reason=\"%s\"", key,
                            (long long)r->offset, e.text);
            return 0;
        }
        *err = e;
        return rc;
    }
    spec_free(q ? pst_map_put(&g->queues, key, q) : pst_map_take(&g->queues, key));
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pst_queue_spec *)a)->name, ((const pst_queue_spec *)b)->name);
}

int pst_queues_read(pst_client *c, pst_queues *ret_queues, pst_err *err)
{
    gather g = {.client = c};
    pst_err e = {0};
    int rc = pst_client_scan(c, PST_TOPIC_QUEUES, NULL, gather_one, &g, &e);
    if (rc < 0 && rc != PST_ENOTFOUND) { /* no topic yet: no queue but the one that is always there */
        pst_map_done(&g.queues, spec_free);
        *err = e;
        return rc;
    }
    *ret_queues = (pst_queues){.at = pst_alloc((g.queues.live + 1) * sizeof *ret_queues->at)};
    for (size_t i = 0; i < g.queues.n; i++)
        if (g.queues.at[i].key) {
            pst_queue_spec *q = g.queues.at[i].value;
            ret_queues->at[ret_queues->n++] = *q;
            *q = (pst_queue_spec){0};
        }
    if (!pst_map_get(&g.queues, PST_QUEUE_DEFAULT))
        ret_queues->at[ret_queues->n++] = pst_queue_spec_default();
    qsort(ret_queues->at, ret_queues->n, sizeof *ret_queues->at, by_name);
    pst_map_done(&g.queues, spec_free);
    return 0;
}

void pst_queues_done(pst_queues *q)
{
    pst_queue_specs_free(q->at, q->n);
    *q = (pst_queues){0};
}

const pst_queue_spec *pst_queues_find(const pst_queues *q, const char *name)
{
    for (size_t i = 0; i < q->n; i++)
        if (!strcmp(q->at[i].name, name))
            return &q->at[i];
    return NULL;
}

char *pst_queues_unknown(const pst_queues *q, const char *name)
{
    const char **names = pst_alloc((q->n + 1) * sizeof *names);
    pst_buf all = {0};
    for (size_t i = 0; i < q->n; i++) {
        names[i] = q->at[i].name;
        if (i < 20)
            pst_buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = pst_nearest(name, names, q->n);
    char *text = near ? pst_sprintf("there is no queue %.100s; did you mean %s?", name, near)
                      : pst_sprintf("there is no queue %.100s; there %s: %s", name, q->n == 1 ? "is" : "are", all.data ? all.data : "");
    pst_buf_done(&all);
    free(names);
    return text;
}

int pst_queue_publish(pst_client *c, const char *name, const pst_queue_spec *spec, pst_err *err)
{
    if (spec)
        return pst_client_publish(c, PST_TOPIC_QUEUES, &pst_queue_spec_type, name, spec, PUBLISH_MS, NULL, NULL, err);
    pst_out tombstone = {.topic = pst_client_topic(c, PST_TOPIC_QUEUES), .partition = -1, .key = name, .key_len = strlen(name)};
    return pst_publish(c->bus, &tombstone, PUBLISH_MS, NULL, NULL, err);
}

/* ---- use ------------------------------------------------------------------------------------------------------------------------- */

typedef struct counting {
    pst_client *client;
    pst_map jobs; /* training id → pst_job_state, of those that wait or run */
} counting;

static void state_free(void *p)
{
    if (p)
        pst_event_clear(&pst_job_state_type, p);
    free(p);
}

static int count_job(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    counting *k = arg;
    pst_job_state *s = r->value ? pst_alloc(sizeof *s) : NULL;
    int rc = s ? pst_client_state(k->client, key, r, s, err) : 0;
    if (rc) {
        free(s);
        return rc < 0 ? rc : 0;
    }
    if (s && s->state != PST_JOB_PUBLIC_STATE_QUEUED && !pst_job_state_is_live(s->state)) {
        state_free(s);
        s = NULL;
    }
    state_free(s ? pst_map_put(&k->jobs, key, s) : pst_map_take(&k->jobs, key));
    return 0;
}

static int read_jobs(pst_client *c, counting *k, pst_err *err)
{
    pst_err e = {0};
    *k = (counting){.client = c};
    int rc = pst_client_scan(c, PST_TOPIC_JOBS_STATE, NULL, count_job, k, &e);
    if (rc < 0 && rc != PST_ENOTFOUND) {
        *err = e;
        return rc;
    }
    return 0;
}

int pst_queues_in_use(pst_client *c, const pst_queues *q, const char *user, pst_queue_use **ret_uses, pst_err *err)
{
    counting k;
    int rc = read_jobs(c, &k, err);
    if (!rc) {
        *ret_uses = pst_alloc((q->n + 1) * sizeof **ret_uses);
        for (size_t i = 0; i < k.jobs.n; i++)
            for (size_t n = 0; k.jobs.at[i].key && n < q->n; n++)
                pst_queue_use_add(&(*ret_uses)[n], q->at[n].name, user, k.jobs.at[i].value);
    }
    pst_map_done(&k.jobs, state_free);
    return rc;
}

json_t *pst_queue_json(const pst_queue_spec *q, const pst_queue_use *use)
{
    json_t *j = pst_queue_spec_json(q);
    json_object_set_new(j, "running", json_integer(use->running));
    json_object_set_new(j, "waiting", json_integer(use->waiting));
    json_object_set_new(j, "held", json_integer(use->held));
    json_object_set_new(j, "used",
                        json_pack("{s:f, s:I, s:I}", "cpus", use->cpus, "memory", (json_int_t)use->memory, "gpus", (json_int_t)use->gpus));
    return j;
}

static int refuse_for(const counting *k, const char *name, pst_err *err)
{
    pst_buf ids = {0};
    size_t n = 0;
    for (size_t i = 0; i < k->jobs.n; i++) {
        const pst_job_state *s = k->jobs.at[i].key ? k->jobs.at[i].value : NULL;
        if (s && !strcmp(s->queue, name) && n++ < LIVE_SHOWN)
            pst_buf_printf(&ids, "%s%s", ids.len ? ", " : "", s->training_id);
    }
    int rc = n ? pst_err_set(err, PST_EEXIST, PST_CLASS_DATA, "queue", 0,
                             "queue %s has %zu job%s that wait%s or run%s: %s%s; end %s first, or let %s end", name, n, n == 1 ? "" : "s",
                             n == 1 ? "s" : "", n == 1 ? "s" : "", ids.data, n > LIVE_SHOWN ? ", …" : "", n == 1 ? "it" : "them",
                             n == 1 ? "it" : "them")
               : 0;
    pst_buf_done(&ids);
    return rc;
}

int pst_queue_deletable(pst_client *c, const char *name, pst_err *err)
{
    pst_queues q;
    counting k = {0};
    int rc = pst_queues_read(c, &q, err);
    if (rc < 0)
        return rc;
    if (!pst_queues_find(&q, name)) {
        char *text = pst_queues_unknown(&q, name);
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "queue", 0, "%s", text);
        free(text);
    } else if (!strcmp(name, PST_QUEUE_DEFAULT)) {
        rc = pst_err_set(err, PST_EEXIST, PST_CLASS_DATA, "queue", 0,
                         "queue default is always there; apply it with other limits instead of deleting it");
    }
    if (!rc)
        rc = read_jobs(c, &k, err);
    if (!rc)
        rc = refuse_for(&k, name, err);
    pst_map_done(&k.jobs, state_free);
    pst_queues_done(&q);
    return rc;
}
