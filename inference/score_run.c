/* score_run.c - the shell of the scorer: wires Kafka, the registry and the models to the core, and loops.
 *
 *     poll ─ batch ─ core ─ fates ─ send ─ … ─ commit (offsets, scores, dead letters: one transaction)
 *       │                             │            │
 *     lost: throw the round away   too large:   EAGAIN: the round did not happen, the consumer is back where it was
 *                                  dead letter  EFENCED: somebody has our id: take another one, or stand by
 *
 * A round is committed as soon as the worker has caught up, else after 100 ms: a transaction costs four round trips however many records it
 * holds. Nothing here exits because of an outage: whatever is away is waited for, with the consumer paused and polled meanwhile. */
#include "inference/score_run.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/client/client.h"
#include "inference/score_follow.h"
#include "inference/score_load.h"
#include "inference/score_round.h"
#include "inference/score_slot.h"
#include "inference/score_stats.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROUND_US = 100000,
    ROUND_RECORDS = 200000,
    ROUND_BYTES = 64 << 20,
    SCHEMA_TRIES = 3,
    SCHEMA_WAIT_MS = 2100, /* the registry client remembers a negative answer for 2 s */
    SCHEMA_FORGET_US = 60000000,
    SCHEMAS_UNKNOWN_MAX = 4096,
    HEADERS_MAX = 64
};

typedef struct unknown_schema {
    int32_t id;
    int tries;
    int64_t asked_us, verdict_us; /* verdict 0 = still open */
} unknown_schema;

typedef struct input_topic {
    const char *name;
    int partitions;
    char *dlq;
} input_topic;

typedef struct scorer {
    const pst_settings *settings;
    const pst_pipeline *p;
    const pst_score_run_opts *opts;
    pst_client *client;
    pst_bus_conf *conf;
    pst_core *core;
    pst_stats *stats;
    pst_follow *follow;
    pst_model_news held[3]; /* models that wait for an earlier change to be concluded */
    pst_slot slot;
    int next_slot;
    char *group, *txn_id, *instance_id;
    pst_consumer *consumer;
    pst_txn *txn;
    input_topic *inputs;
    int output_partitions;
    pst_round round;
    pst_fate *fates;
    pst_buf value, texts;
    unknown_schema *unknown;
    size_t n_unknown;
    uint64_t done; /* records committed */
    uint64_t dead; /* of them dead-lettered */
    int backoff_ms;
    int64_t told_waiting_us;
    const pst_binding *header_of;
    char model_header[300];
    pst_err err;
} scorer;

/* ---- what the core asks for ------------------------------------------------------------------------------------------------ */

static unknown_schema *find_unknown(scorer *s, int32_t id, bool add)
{
    for (size_t i = 0; i < s->n_unknown; i++)
        if (s->unknown[i].id == id)
            return &s->unknown[i];
    if (!add)
        return NULL;
    if (s->n_unknown == SCHEMAS_UNKNOWN_MAX) /* rubbish by the thousand: the oldest verdicts go */
        memmove(s->unknown, s->unknown + SCHEMAS_UNKNOWN_MAX / 2, (s->n_unknown = SCHEMAS_UNKNOWN_MAX / 2) * sizeof(*s->unknown));
    s->unknown[s->n_unknown] = (unknown_schema){.id = id};
    return &s->unknown[s->n_unknown++];
}

/* An id may be minutes younger than its first record's arrival here, so "not found" is believed only when it is said three times over
 * seconds; then for a minute without asking again. */
static int host_schema(void *arg, int32_t id, const pst_schema **ret_schema, pst_err *err)
{
    scorer *s = arg;
    int64_t now = pst_mono_us();
    unknown_schema *u = find_unknown(s, id, false);
    if (u && u->verdict_us && now - u->verdict_us > SCHEMA_FORGET_US)
        *u = (unknown_schema){.id = id};
    pst_err e = {0};
    int rc = u && u->verdict_us ? PST_ENOTFOUND : pst_codec_schema(s->client->codec, id, ret_schema, &e);
    if (rc == 0) {
        if (u)
            *u = s->unknown[--s->n_unknown];
        return 0;
    }
    if (rc != PST_ENOTFOUND) {
        if (err && !err->code)
            *err = e;
        return rc;
    }
    u = find_unknown(s, id, true);
    if (!u->verdict_us && now - u->asked_us >= (int64_t)(SCHEMA_WAIT_MS - 100) * 1000) {
        u->tries++;
        u->asked_us = now;
    }
    if (u->tries >= SCHEMA_TRIES && !u->verdict_us)
        u->verdict_us = now;
    if (u->verdict_us)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "registry", 404,
                           "schema id %d is unknown to the registry %s, asked %d times", id, pst_registry_url(s->client->registry),
                           SCHEMA_TRIES);
    return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "registry", 404, "schema id %d is not known to the registry yet", id);
}

static int host_output_id(void *arg, const char *schema_text, bool shadow, int32_t *ret_id, pst_err *err)
{
    scorer *s = arg;
    char *subject = pst_sprintf("%s-value", shadow ? s->p->shadow_topic : s->p->output_topic);
    int rc = pst_registry_register(s->client->registry, subject, schema_text, ret_id, err);
    if (rc == PST_EINCOMPAT)
        pst_err_prefix(err, "the scores' schema does not fit what %s holds already", subject);
    free(subject);
    return rc;
}

/* ---- models ---------------------------------------------------------------------------------------------------------------- */

static const char *const variant_names[] = {"PRIMARY", "CANARY", "SHADOW"};

/* Between two batches: models that became ready go to work. */
static void take_models(scorer *s)
{
    if (!s->follow)
        return;
    for (int v = 0; v < 3; v++) {
        pst_model_news *n = &s->held[v];
        if (!n->binding || !s->consumer)
            continue;
        pst_range at[256]; /* a change that waits for offsets of partitions which are not ours waits for nothing */
        size_t have = pst_consumer_assignment(s->consumer, at, 256);
        pst_core_assigned(s->core, (pst_variant)v, at, have < 256 ? have : 256);
        if (pst_core_offer(s->core, n->variant, n->binding, n->from, n->n_from) == PST_EAGAIN)
            continue;
        n->binding = NULL;
        pst_model_news_done(n);
    }
    pst_model_news n;
    while (!s->held[0].binding && !s->held[1].binding && !s->held[2].binding && pst_follow_take(s->follow, &n)) {
        const pst_binding *b = n.binding;
        pst_log(PST_LOG_INFO, "score", "event=model_swap pipeline=%s variant=%s model=%s version=%d digest=%.12s at=%s", s->p->name,
                variant_names[n.variant], pst_binding_name(b), pst_binding_version(b), pst_binding_digest(b),
                n.n_from ? "offsets" : "once");
        pst_stats_model(s->stats, pst_binding_name(b), pst_binding_version(b), pst_binding_digest(b), variant_names[n.variant]);
        if (pst_core_offer(s->core, n.variant, n.binding, n.from, n.n_from) == PST_EAGAIN) {
            s->held[n.variant] = n;
            continue;
        }
        n.binding = NULL;
        pst_model_news_done(&n);
    }
}

static int await_model(scorer *s)
{
    if (s->p->model.file) {
        pst_binding *b = NULL;
        int rc = pst_score_load_file(s->p, s->p->model.file, &b, &s->err);
        if (rc < 0)
            return rc;
        pst_stats_model(s->stats, pst_binding_name(b), 0, pst_binding_digest(b), "PRIMARY");
        pst_core_offer(s->core, PST_VARIANT_PRIMARY, b, NULL, 0);
        return 0;
    }
    int rc = pst_follow_start(s->settings, s->p, s->stats, &s->follow, &s->err);
    int64_t told = 0;
    char said[480] = "";
    while (rc == 0 && !pst_stop_requested()) {
        take_models(s);
        if (pst_core_binding(s->core, PST_VARIANT_PRIMARY))
            return 0;
        char why[480];
        pst_follow_why(s->follow, why, sizeof(why));
        if (pst_mono_us() - told > 30000000 || (strcmp(why, said) && pst_mono_us() - told > 2000000)) {
            if (told || why[0] != 't') /* "the topic … is being read": only when it takes long */
                pst_log(PST_LOG_INFO, "score", "event=waiting pipeline=%s for=model why=\"%s\"", s->p->name, why);
            told = pst_mono_us();
            memcpy(said, why, sizeof(said));
        }
        pst_sleep_ms(50);
    }
    return rc < 0 ? rc : PST_ESTOPPED;
}

/* ---- Kafka ----------------------------------------------------------------------------------------------------------------- */

static bool from_command_line(const pst_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->n_kafka; i++)
        if (!strcmp(settings->kafka[i].key, key) && !strncmp(settings->kafka[i].origin, "-X", 2))
            return true;
    return false;
}

static int configure(scorer *s)
{
    static const char *const defaults[][2] = {{"linger.ms", "5"},
                                              {"queue.buffering.max.messages", "1000000"},
                                              {"queued.min.messages", "1000000"}, /* bytes bound the queue, not 100,000 records */
                                              {"socket.nagle.disable", "true"},
                                              /* How long a worker that was killed and does not come back holds up its partitions' heirs. */
                                              {"transaction.timeout.ms", "15000"}};
    s->conf = pst_bus_conf_copy(s->client->bus);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(defaults) / sizeof(defaults[0]); i++)
        if (!pst_bus_conf_get(s->conf, defaults[i][0]))
            rc = pst_bus_conf_set(s->conf, defaults[i][0], defaults[i][1], "default of score", &s->err);
    for (size_t i = 0; rc == 0 && i < s->p->n_kafka; i++) {
        const struct pst_pipeline_property *k = &s->p->kafka[i];
        if (from_command_line(s->settings, k->key))
            continue;
        rc = pst_bus_conf_set(s->conf, k->key, k->value, k->origin, &s->err);
        if (rc == PST_EAGAIN)
            rc = pst_err_set(&s->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "%s: %s is for the registry client; give it by -F or --registry", k->origin, k->key);
    }
    return rc;
}

/* Sleeps, ready to stop. */
static void idle_ms(int ms)
{
    for (; ms > 0 && !pst_stop_requested(); ms -= 50)
        pst_sleep_ms(ms < 50 ? ms : 50);
}

static int make_topic(scorer *s, const char *name, int partitions)
{
    pst_err e = {0};
    pst_topic_spec spec = {.name = name, .partitions = partitions, .replication = -1};
    int rc = pst_admin_create_topics(s->client->bus, &spec, 1, 15000, &e);
    if (rc < 0 && e.cls != PST_CLASS_RETRY) { /* no right to create: it may well exist */
        pst_log(PST_LOG_WARN, "score", "event=topic_not_created topic=%s error=\"%s\"", name, e.text);
        return 0;
    }
    if (rc < 0 && !s->err.code)
        s->err = e;
    return rc;
}

/* Input topics are looked up, output and dead-letter topics made. */
static int ensure_topics(scorer *s)
{
    int most = 1, rc;
    for (size_t i = 0; i < s->p->n_topics; i++) {
        pst_topic_info info = {0};
        if ((rc = pst_admin_topic(s->client->bus, s->inputs[i].name, &info, 10000, &s->err)) < 0)
            return rc;
        s->inputs[i].partitions = info.partitions;
        most = info.partitions > most ? info.partitions : most;
        pst_topic_info_done(&info);
    }
    if ((rc = make_topic(s, s->p->output_topic, most)) < 0 || (s->p->shadow_topic && (rc = make_topic(s, s->p->shadow_topic, most)) < 0))
        return rc;
    for (size_t i = 0; i < s->p->n_topics && !s->p->tolerance_none; i++)
        if ((rc = make_topic(s, s->inputs[i].dlq, 1)) < 0)
            return rc;
    pst_topic_info info = {0};
    pst_err e = {0};
    if (pst_admin_topic(s->client->bus, s->p->output_topic, &info, 10000, &e) == 0)
        s->output_partitions = info.partitions;
    pst_topic_info_done(&info);
    return 0;
}

static int await_topics(scorer *s)
{
    int64_t told = 0;
    for (int ms = 500; !pst_stop_requested(); ms = ms < 5000 ? ms * 2 : 5000) {
        pst_err_clear(&s->err);
        int rc = ensure_topics(s);
        if (rc == 0)
            return 0;
        if (rc == PST_ENOTFOUND ? s->opts->exit_on_eof : s->err.cls == PST_CLASS_FATAL)
            return rc;
        if (pst_mono_us() - told > 30000000 || !told) {
            pst_log(PST_LOG_INFO, "score", "event=waiting pipeline=%s for=topics why=\"%s\"", s->p->name, s->err.text);
            told = pst_mono_us();
        }
        idle_ms(ms);
    }
    return PST_ESTOPPED;
}

static int open_kafka(scorer *s)
{
    int rc = pst_slot_take(s->settings->state_dir.value, s->p->name, s->opts->slot, s->next_slot, &s->slot, &s->err);
    if (rc < 0)
        return rc;
    free(s->txn_id);
    free(s->instance_id);
    s->txn_id = pst_sprintf("%sscore.%s", s->settings->prefix.value, s->slot.id);
    s->instance_id = pst_sprintf("score.%s", s->slot.id);
    pst_consumer_opts o = {.group = s->group,
                           .topics = (const char *const *)s->p->topics,
                           .n_topics = s->p->n_topics,
                           .start = s->p->start,
                           .start_ms = s->p->start_ms,
                           .report_eof = s->opts->exit_on_eof,
                           /* A run to the end leaves the group at once; a service keeps its place over a restart. */
                           .instance_id = s->opts->exit_on_eof || s->opts->records_max ? NULL : s->instance_id,
                           .inflight_bytes_max = s->p->inflight_bytes};
    if ((rc = pst_consumer_new(s->conf, &o, &s->consumer, &s->err)) < 0)
        return rc;
    pst_txn_mode mode = s->p->exactly_once && !s->settings->embedded ? PST_TXN_EXACTLY_ONCE : PST_TXN_AT_LEAST_ONCE;
    if (s->p->exactly_once && s->settings->embedded)
        pst_log(PST_LOG_WARN, "score",
                "event=guarantee pipeline=%s wanted=exactly_once is=at_least_once why=\"the in-memory broker has no transactions\"",
                s->p->name);
    rc = pst_txn_new(s->conf, s->txn_id, mode, s->consumer, &s->txn, &s->err);
    /* An empty transaction ends what a predecessor that was killed left open under this id. Left to the first record it would never end: the
     * consumer is not told where to start while the group has offsets in an open transaction, so there would be no first record. */
    if (rc == 0 && (rc = pst_txn_begin(s->txn, &s->err)) == 0)
        rc = pst_txn_commit(s->txn, &s->err);
    if (rc == PST_EAGAIN) {
        pst_err_clear(&s->err);
        rc = 0;
    }
    return rc;
}

static void close_kafka(scorer *s)
{
    pst_txn_free(s->txn);
    s->txn = NULL;
    pst_consumer_free(s->consumer);
    s->consumer = NULL;
    pst_slot_release(&s->slot);
}

/* Somebody lives under our id. With a slot of our own choice we choose another; a given one is waited for. */
static int after_fencing(scorer *s)
{
    bool chosen = s->opts->slot < 0;
    pst_log(PST_LOG_WARN, "score", "event=fenced pipeline=%s transactional_id=%s then=\"%s\" why=\"%s\"", s->p->name, s->txn_id,
            chosen ? "another slot" : "standby; another worker runs with this --slot", s->err.text);
    pst_err_clear(&s->err);
    pst_round_clear(&s->round);
    s->stats->aborts++;
    s->stats->ready = false;
    s->next_slot = s->slot.number + 1;
    close_kafka(s);
    idle_ms(chosen ? 500 : 30000);
    if (pst_stop_requested())
        return PST_ESTOPPED;
    int rc = open_kafka(s);
    s->stats->ready = rc == 0;
    return rc == PST_EFENCED ? after_fencing(s) : rc;
}

/* ---- records out ----------------------------------------------------------------------------------------------------------- */

static const input_topic *input_of(const scorer *s, const char *topic)
{
    for (size_t i = 0; i < s->p->n_topics; i++)
        if (!strcmp(s->inputs[i].name, topic))
            return &s->inputs[i];
    return &s->inputs[0];
}

static char *put_number(char *to, int64_t v)
{
    char digits[24];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    while (n)
        *to++ = digits[--n];
    return to;
}

/* The input's headers; then, where the value does not say it itself (slim, tombstones), where the record comes from and which model scored
 * it: librdkafka pays five allocations for a record with two headers, so the full Score, which holds both, goes without. */
static size_t out_headers(scorer *s, const pst_record *r, const pst_binding *b, char *src, pst_header *ret)
{
    pst_header in[HEADERS_MAX];
    size_t n = 0, have = pst_record_headers(r, in, HEADERS_MAX);
    if (have > HEADERS_MAX - 2)
        have = HEADERS_MAX - 2;
    for (size_t i = 0; i < have; i++)
        if (strcmp(in[i].name, "x-src") != 0 && strcmp(in[i].name, "x-model") != 0)
            ret[n++] = in[i];
    if (b && !s->p->slim)
        return n;
    size_t topic = strlen(r->topic);
    memcpy(src, r->topic, topic);
    char *end = src + topic;
    *end++ = '/';
    end = put_number(end, r->partition);
    *end++ = '/';
    end = put_number(end, r->offset);
    ret[n++] = (pst_header){"x-src", src, (size_t)(end - src)};
    if (b) {
        if (s->header_of != b) {
            snprintf(s->model_header, sizeof(s->model_header), "%s@%d", pst_binding_name(b), pst_binding_version(b));
            s->header_of = b;
        }
        ret[n++] = (pst_header){"x-model", s->model_header, strlen(s->model_header)};
    }
    return n;
}

static int send_dead_letter(scorer *s, const pst_record *r, const char *stage, const char *reason, const char *message)
{
    pst_header headers[PST_DLQ_HEADERS_MAX + 1];
    pst_out out;
    pst_dead_letter d = {.record = r, .component = s->p->name, .stage = stage, .reason = reason, .message = message};
    pst_dead_letter_out(&d, input_of(s, r->topic)->dlq, headers, &s->texts, &out);
    pst_err e = {0};
    int rc = pst_txn_send(s->txn, &out, &e);
    if (rc == PST_ELIMIT && e.cls == PST_CLASS_DATA) { /* even the letter is too large: its place and size are kept */
        char size[48];
        snprintf(size, sizeof(size), "%zu", r->value_len);
        headers[out.n_headers++] = (pst_header){"x-dlq-value-bytes", size, strlen(size)};
        out.value = NULL;
        out.value_len = 0;
        pst_err_clear(&e);
        rc = pst_txn_send(s->txn, &out, &e);
    }
    if (rc < 0) {
        s->err = e;
        return rc;
    }
    pst_round_dead(&s->round, stage, reason);
    pst_log(PST_LOG_DEBUG, "score", "event=dead_letter pipeline=%s topic=%s partition=%d offset=%lld stage=%s reason=%s why=\"%s\"",
            s->p->name, r->topic, r->partition, (long long)r->offset, stage, reason, message);
    return 0;
}

static int bad_record(scorer *s, const pst_record *r, const char *stage, const char *reason, const char *message)
{
    if (!s->p->tolerance_none)
        return send_dead_letter(s, r, stage, reason, message);
    return pst_err_set(&s->err, PST_EPARSE, PST_CLASS_DATA, "score", 0,
                       "%s[%d]@%lld: %s (%s): %s; errors.tolerance is none, so the pipeline stops here", r->topic, r->partition,
                       (long long)r->offset, reason, stage, message);
}

static void compare_shadow(scorer *s, const pst_fate *f)
{
    const double *a, *b;
    const char *la, *lb;
    double threshold;
    size_t na = pst_core_score(s->core, f, false, &a, &la), nb = pst_core_score(s->core, f, true, &b, &lb);
    s->round.shadowed++;
    if (la && lb)
        s->round.disagreed += strcmp(la, lb) != 0;
    else if (na && nb && pst_binding_threshold(pst_core_fate_binding(f, false), &threshold))
        s->round.disagreed += (a[0] > threshold) != (b[0] > threshold);
}

static int send_score(scorer *s, const pst_record *r, const pst_fate *f, bool shadow, int64_t now_us)
{
    pst_header headers[HEADERS_MAX + 2];
    char src[320];
    pst_buf_clear(&s->value);
    const pst_binding *b = pst_core_fate_binding(f, shadow);
    int rc = pst_core_encode(s->core, r, f, shadow, now_us, &s->value, &s->err);
    if (rc < 0)
        return rc;
    const input_topic *in = input_of(s, r->topic);
    pst_out out = {.topic = shadow ? s->p->shadow_topic : s->p->output_topic,
                   .partition = in->partitions == s->output_partitions && !shadow ? r->partition : -1,
                   .key = r->key,
                   .key_len = r->key_len,
                   .value = s->value.data,
                   .value_len = s->value.len,
                   .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0,
                   .headers = headers};
    out.n_headers = out_headers(s, r, b, src, headers);
    rc = pst_txn_send(s->txn, &out, &s->err);
    s->round.bytes += s->value.len;
    return rc;
}

static int send_tombstone(scorer *s, const pst_record *r)
{
    pst_header headers[HEADERS_MAX + 2];
    char src[320];
    const input_topic *in = input_of(s, r->topic);
    pst_out out = {.topic = s->p->output_topic,
                   .partition = in->partitions == s->output_partitions ? r->partition : -1,
                   .key = r->key,
                   .key_len = r->key_len,
                   .timestamp_ms = r->timestamp_ms > 0 ? r->timestamp_ms : 0,
                   .headers = headers};
    out.n_headers = out_headers(s, r, NULL, src, headers);
    return pst_txn_send(s->txn, &out, &s->err);
}

static int emit_score(scorer *s, const pst_record *r, const pst_fate *f, int64_t now_us)
{
    int rc = send_score(s, r, f, false, now_us);
    if (rc == PST_ELIMIT && s->err.cls == PST_CLASS_DATA) {
        pst_err why = s->err;
        pst_err_clear(&s->err);
        return bad_record(s, r, "PRODUCE", "too-large", why.text);
    }
    if (rc < 0)
        return rc;
    const double *scores;
    const char *label;
    const uint8_t *missing;
    size_t n;
    double threshold;
    s->round.scored++;
    if (pst_core_score(s->core, f, false, &scores, &label) && pst_binding_threshold(pst_core_fate_binding(f, false), &threshold))
        s->round.anomalies += scores[0] > threshold;
    pst_core_missing(s->core, f, &missing, &n);
    s->round.missing += memchr(missing, 1, n) != NULL;
    if (!f->shadow)
        return 0;
    compare_shadow(s, f);
    pst_err keep = {0};
    rc = send_score(s, r, f, true, now_us);
    if (rc == PST_ELIMIT && s->err.cls == PST_CLASS_DATA) { /* a shadow's score that is too large is nobody's loss */
        s->err = keep;
        rc = 0;
    }
    return rc;
}

static int emit(scorer *s, const pst_record *r, const pst_fate *f, int64_t now_us)
{
    switch (f->kind) {
    case PST_FATE_SCORED: return emit_score(s, r, f, now_us);
    case PST_FATE_TOMBSTONE: s->round.tombstones++; return send_tombstone(s, r);
    case PST_FATE_SKIP: s->round.skipped++; return 0;
    case PST_FATE_BAD: return bad_record(s, r, f->stage, f->reason, pst_core_message(s->core, f));
    }
    return 0;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------------- */

static int commit(scorer *s)
{
    if (!s->round.open)
        return 0;
    int64_t start = pst_mono_us();
    int rc = pst_txn_commit(s->txn, &s->err);
    int64_t end = pst_mono_us();
    if (rc == 0) {
        s->done += s->round.records;
        s->dead += s->round.dead;
        if (s->round.dead)
            pst_log(PST_LOG_INFO, "score", "event=dead_letters pipeline=%s count=%llu total=%llu first=%s/%s", s->p->name,
                    (unsigned long long)s->round.dead, (unsigned long long)s->dead, s->round.reasons[0].stage, s->round.reasons[0].reason);
        pst_metric_observe(s->stats->commit, (double)(end - start) / 1e6);
        pst_round_commit(&s->round, s->core, s->stats, pst_now_us());
        s->stats->lag = pst_consumer_lag(s->consumer);
        s->backoff_ms = 0;
        return 0;
    }
    pst_round_clear(&s->round);
    if (rc == PST_EFENCED)
        return after_fencing(s);
    if (rc == PST_EAGAIN || s->err.cls == PST_CLASS_RETRY) {
        pst_log(PST_LOG_INFO, "score", "event=round_again pipeline=%s why=\"%s\"", s->p->name, s->err.text);
        pst_metric_add(s->stats->aborts_total, 1);
        s->stats->aborts++;
        pst_err_clear(&s->err);
        return 0;
    }
    return rc;
}

static int throw_away(scorer *s, const char *why)
{
    pst_log(PST_LOG_INFO, "score", "event=round_again pipeline=%s why=\"%s\"", s->p->name, why);
    pst_round_clear(&s->round);
    pst_metric_add(s->stats->aborts_total, 1);
    s->stats->aborts++;
    pst_err_clear(&s->err);
    int rc = pst_txn_abort(s->txn, &s->err);
    if (rc == PST_EFENCED)
        return after_fencing(s);
    if (rc < 0 && (rc == PST_EAGAIN || s->err.cls == PST_CLASS_RETRY)) {
        pst_err_clear(&s->err);
        return 0;
    }
    return rc;
}

/* Puts the consumer back to the first record of each partition among those that were not used. */
static int put_back(scorer *s, const pst_record *records, size_t n)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        bool first = true;
        for (size_t k = i; k-- > 0 && first;)
            first = records[k].partition != records[i].partition || strcmp(records[k].topic, records[i].topic);
        if (first)
            rc = pst_consumer_seek(s->consumer, records[i].topic, records[i].partition, records[i].offset, &s->err);
    }
    if (rc < 0) {
        pst_err_clear(&s->err);
        rc = pst_consumer_rewind(s->consumer, &s->err);
    }
    return rc;
}

/* Something is away: the consumer is paused and goes on being polled, so that it keeps its place in the group. */
static int wait_paused(scorer *s, int ms, const char *why)
{
    if (pst_mono_us() - s->told_waiting_us > 10000000) {
        pst_log(PST_LOG_WARN, "score", "event=waiting pipeline=%s why=\"%s\"", s->p->name, why);
        s->told_waiting_us = pst_mono_us();
    }
    int rc = pst_consumer_pause(s->consumer, true);
    for (int64_t until = pst_mono_us() + ms * 1000LL; rc >= 0 && pst_mono_us() < until && !pst_stop_requested();) {
        pst_batch b = {0};
        pst_err e = {0};
        rc = pst_consumer_poll(s->consumer, &(pst_poll){.records_max = 1, .timeout_ms = 100}, &b, &e);
        if (rc < 0)
            s->err = e;
        else if (b.n)
            rc = put_back(s, b.records, b.n);
    }
    return rc < 0 ? rc : pst_consumer_pause(s->consumer, false);
}

static int backoff(scorer *s)
{
    s->backoff_ms = s->backoff_ms ? s->backoff_ms * 2 : 100;
    if (s->backoff_ms > 10000)
        s->backoff_ms = 10000;
    uint16_t noise;
    pst_random(&noise, sizeof(noise));
    return s->backoff_ms + (int)(noise % (unsigned)(s->backoff_ms / 2 + 1));
}

/* Records from `from` on cannot be handled now: what is before them is committed, they are read again later. */
static int hold(scorer *s, const pst_batch *b, size_t from, const pst_err *why)
{
    pst_err reason = *why;
    pst_err_clear(&s->err);
    int rc = put_back(s, b->records + from, b->n - from);
    if (rc == 0)
        rc = commit(s);
    if (rc < 0 || pst_stop_requested())
        return rc;
    return wait_paused(s, reason.code == PST_EAGAIN ? SCHEMA_WAIT_MS : backoff(s), reason.text);
}

/* ---- one batch ------------------------------------------------------------------------------------------------------------- */

static bool retriable(int rc, const pst_err *e)
{
    return rc == PST_EAGAIN || e->cls == PST_CLASS_RETRY;
}

/* ret_all: every record of the batch was used. */
static int score_batch(scorer *s, const pst_batch *b, size_t n, bool *ret_all)
{
    pst_err why = {0};
    size_t usable = 0;
    int64_t start = pst_mono_us();
    *ret_all = false;
    int rc = pst_core_run(s->core, b->records, n, s->fates, &usable, &why);
    if (rc < 0) { /* the model fails on everything */
        if (s->opts->exit_on_eof || s->opts->records_max || why.cls != PST_CLASS_RETRY) {
            s->err = why;
            return rc;
        }
        return hold(s, b, 0, &why);
    }
    if (usable < n && why.cls == PST_CLASS_FATAL) {
        s->err = why;
        return why.code;
    }
    if (!s->round.open && usable) {
        rc = pst_txn_begin(s->txn, &s->err);
        if (rc == PST_EFENCED)
            return after_fencing(s);
        if (rc < 0)
            return rc;
        s->round.open = true;
        s->round.begun_us = pst_mono_us();
    }
    int64_t scored = pst_mono_us(), now = pst_now_us();
    for (size_t i = 0; i < usable; i++) {
        const pst_record *r = &b->records[i];
        rc = emit(s, r, &s->fates[i], now);
        if (rc < 0 && rc != PST_EFENCED && retriable(rc, &s->err)) {
            if (rc == PST_EAGAIN) /* the producer's queue stays full: an outage */
                return throw_away(s, s->err.text);
            why = s->err;
            return hold(s, b, i, &why);
        }
        if (rc == PST_EFENCED)
            return after_fencing(s);
        if (rc < 0) {
            if (s->err.cls == PST_CLASS_DATA && s->p->tolerance_none) {
                pst_err bad = s->err;
                pst_err_clear(&s->err);
                commit(s); /* what was scored before it stays */
                s->err = bad;
            }
            return rc;
        }
        pst_round_record(&s->round, r);
        pst_consumer_mark(s->consumer, r->topic, r->partition, r->offset + 1);
    }
    s->stats->batches++;
    s->stats->batch_records += usable;
    pst_metric_observe(s->stats->decode, (double)(scored - start) / 1e6);
    pst_metric_observe(s->stats->emit, (double)(pst_mono_us() - scored) / 1e6);
    if (usable < n)
        return hold(s, b, usable, &why);
    *ret_all = true;
    return 0;
}

static int loop(scorer *s)
{
    const pst_pipeline *p = s->p;
    int64_t told = 0;
    while (!pst_stop_requested()) {
        take_models(s);
        pst_batch b = {0};
        pst_err e = {0};
        bool busy = s->round.open;
        pst_poll how = {.records_max = p->batch_count,
                        .bytes_max = p->batch_bytes,
                        .age_max_us = busy ? 0 : p->batch_age_us,
                        .timeout_ms = busy ? 0 : 100};
        int rc = pst_consumer_poll(s->consumer, &how, &b, &e);
        if (rc < 0) {
            s->err = e;
            return rc;
        }
        if (e.code && pst_mono_us() - told > 10000000) {
            pst_log_err("score", &e);
            told = pst_mono_us();
        }
        if (b.lost && s->round.open) { /* the round's records come again, here or elsewhere, and this batch's with them */
            if ((rc = throw_away(s, "partitions were given or taken")) < 0)
                return rc;
            continue;
        }
        size_t n = b.n;
        uint64_t taken = s->done + s->round.records;
        if (s->opts->records_max && taken + n > (uint64_t)s->opts->records_max)
            n = (size_t)((uint64_t)s->opts->records_max - taken);
        bool all = true;
        if (n && (rc = score_batch(s, &b, n, &all)) < 0)
            return rc;
        bool full = s->opts->records_max && s->done + s->round.records >= (uint64_t)s->opts->records_max;
        bool long_enough =
            pst_mono_us() - s->round.begun_us >= ROUND_US || s->round.records >= ROUND_RECORDS || s->round.bytes >= ROUND_BYTES;
        if (s->round.open && (b.n < p->batch_count || long_enough || full || b.eof) && (rc = commit(s)) < 0)
            return rc;
        if (!b.n)
            s->stats->lag = pst_consumer_lag(s->consumer);
        bool settled = all && !s->round.open;
        if (settled && ((full && s->done >= (uint64_t)s->opts->records_max) || (b.eof && s->opts->exit_on_eof)))
            return 0;
    }
    return commit(s); /* told to stop: what is in hand is finished */
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static int set_up(scorer *s)
{
    const pst_pipeline *p = s->p;
    if (!p->n_topics)
        return pst_err_set(&s->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: input.topics is missing; write input: {topics: [NAME]}",
                           p->file);
    if (!p->output_topic)
        return pst_err_set(&s->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: output.topic is missing; write output: {topic: NAME}",
                           p->file);
    int rc = pst_client_open(s->settings, "penstock-score", &s->client, &s->err);
    if (rc < 0 || (rc = configure(s)) < 0)
        return rc;
    s->group = p->group ? pst_strdup(p->group) : pst_sprintf("%sscore.%s", s->settings->prefix.value, p->name);
    s->inputs = pst_alloc((p->n_topics + 1) * sizeof(*s->inputs));
    for (size_t i = 0; i < p->n_topics; i++)
        s->inputs[i] = (input_topic){p->topics[i], 0, p->dlq_topic ? pst_strdup(p->dlq_topic) : pst_sprintf("%s.dlq", p->topics[i])};
    s->fates = pst_alloc(p->batch_count * sizeof(*s->fates));
    s->unknown = pst_alloc(SCHEMAS_UNKNOWN_MAX * sizeof(*s->unknown));
    pst_core_host host = {.arg = s, .schema = host_schema, .output_id = host_output_id};
    s->core = pst_core_new(p, &host);
    const char *warning = pst_bus_conf_warning(s->conf);
    if (warning)
        pst_log(PST_LOG_WARN, "score", "event=kafka_warning why=\"%s\"", warning);
    char *worker = pst_sprintf("scorer-%s-%d", p->name, s->opts->slot < 0 ? 0 : s->opts->slot);
    rc = pst_stats_start(s->stats, s->settings, worker, s->opts->metrics_listen, &s->err);
    free(worker);
    if (rc == 0 && pst_stats_port(s->stats))
        pst_log(PST_LOG_INFO, "score", "event=metrics pipeline=%s port=%d path=/metrics", p->name, pst_stats_port(s->stats));
    return rc;
}

static void tear_down(scorer *s)
{
    pst_follow_stop(s->follow);
    close_kafka(s);
    s->stats->ready = false;
    pst_stats_stop(s->stats);
    for (int v = 0; v < 3; v++)
        pst_model_news_done(&s->held[v]);
    pst_core_free(s->core);
    for (size_t i = 0; s->inputs && i < s->p->n_topics; i++)
        free(s->inputs[i].dlq);
    free(s->inputs);
    pst_round_done(&s->round);
    free(s->fates);
    free(s->unknown);
    free(s->group);
    free(s->txn_id);
    free(s->instance_id);
    pst_buf_done(&s->value);
    pst_buf_done(&s->texts);
    pst_bus_conf_free(s->conf);
    pst_client_close(s->client);
    pst_stats_free(s->stats);
}

int pst_score_run(const pst_settings *settings, const pst_pipeline *p, const pst_score_run_opts *opts)
{
    scorer s = {.settings = settings, .p = p, .opts = opts, .slot = {.fd = -1}};
    s.stats = pst_stats_new(p->name);
    int rc = set_up(&s);
    if (rc == 0 && (rc = await_model(&s)) == 0 && (rc = await_topics(&s)) == 0 &&
        ((rc = open_kafka(&s)) == 0 || (rc == PST_EFENCED && (rc = after_fencing(&s)) == 0))) {
        const pst_binding *b = pst_core_binding(s.core, PST_VARIANT_PRIMARY);
        s.stats->ready = true;
        pst_log(PST_LOG_INFO, "score", "event=running pipeline=%s model=%s version=%d group=%s guarantee=%s id=%s", p->name,
                pst_binding_name(b), pst_binding_version(b), s.group, p->exactly_once ? "exactly_once" : "at_least_once", s.txn_id);
        rc = loop(&s);
    }
    bool stopped = rc == PST_ESTOPPED || (rc < 0 && pst_stop_requested() && s.err.cls == PST_CLASS_RETRY);
    if (stopped)
        rc = 0;
    if (rc < 0)
        pst_say_err("score run", &s.err);
    uint64_t done = s.done, dead = s.dead;
    tear_down(&s);
    pst_log(PST_LOG_INFO, "score", "event=stopped pipeline=%s records=%llu dead_letters=%llu", p->name, (unsigned long long)done,
            (unsigned long long)dead);
    if (rc < 0)
        return s.err.code ? pst_err_exit(&s.err) : 1;
    return dead && (opts->exit_on_eof || opts->records_max) ? 3 : 0;
}
