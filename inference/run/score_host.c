/* score_host.c - the scorer's surroundings: Kafka properties, topics, what it waits for, its place in the group. */
#include "inference/run/score_priv.h"

#include "common/base/retry.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A dead letter is its record with some headers more. Its producer takes whatever a consumer can have read (a record may be far larger than its
 * topic's limit, which is for what is left after compression); what the letters' topic takes, the broker says. */
enum { RECORD_BYTES_DEFAULT = 1048588, SCORE_BYTES_DEFAULT = 1000000, LETTER_HEADERS_BYTES = 64 << 10 };
#define LETTER_BYTES_MAX "1000000000"

/* ---- Kafka ----------------------------------------------------------------------------------------------------------------- */

static bool from_command_line(const pst_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->n_kafka; i++)
        if (!strcmp(settings->kafka[i].key, key) && !strncmp(settings->kafka[i].origin, "-X", 2))
            return true;
    return false;
}

int scorer_configure(scorer *s)
{
    static const char *const defaults[][2] = {{"linger.ms", "5"},
                                              {"queue.buffering.max.messages", "1000000"},
                                              {"socket.nagle.disable", "true"},
                                              /* By it a member learns of a rebalance; the others wait for the last one to hear of it. */
                                              {"heartbeat.interval.ms", "500"},
                                              /* How long a worker that was killed and does not come back holds up its partitions' heirs. */
                                              {"transaction.timeout.ms", "15000"}};
    s->conf = pst_bus_conf_copy(s->client->bus);
    int rc = s->settings->embedded && !pst_bus_conf_get(s->conf, "fetch.wait.max.ms") /* there an empty fetch sleeps it out */
                 ? pst_bus_conf_set(s->conf, "fetch.wait.max.ms", "10", "default of score", &s->err)
                 : 0;
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
    if (rc >= 0)
        rc = pst_bus_conf_client(s->conf, s->p->bus, &s->err);
    /* Bytes bound librdkafka's queue, not 100,000 records; our own client counts bytes alone, and says so of whoever sets it. */
    if (rc == 0 && !strcmp(pst_bus_conf_client_name(s->conf), "rdkafka") && !pst_bus_conf_get(s->conf, "queued.min.messages"))
        rc = pst_bus_conf_set(s->conf, "queued.min.messages", "1000000", "default of score", &s->err);
    return rc;
}

void scorer_waits(scorer *s, const pst_record *r, const pst_err *why)
{
    bool paused = why->code == PST_ESTATE && !strcmp(why->origin, "score");
    score_stats_wait_record(s->stats, r, paused ? PST_WAIT_PAUSED : why->origin, why->text);
}

/* Partitions were taken away: what those of them waited for that do not come back is their new owner's affair. */
void scorer_waits_settle(scorer *s)
{
    if (!s->waits_unsettled || !pst_consumer_joined(s->consumer))
        return;
    s->waits_unsettled = false;
    size_t n = pst_consumer_assignment(s->consumer, NULL, 0);
    pst_range *ours = pst_alloc((n + 1) * sizeof(*ours));
    score_stats_wait_keep(s->stats, ours, pst_consumer_assignment(s->consumer, ours, n));
    free(ours);
}

/* Sleeps, ready to stop. */
void scorer_idle_ms(int ms)
{
    pst_retry_pause(ms, NULL, NULL);
}

/* The largest batch that a topic takes; 0 = it does not say. */
static size_t topic_bytes_max(scorer *s, const char *topic)
{
    char *value = NULL;
    long long bytes = 0;
    if (pst_admin_topic_config(s->client->bus, topic, "max.message.bytes", &value, 10000, NULL) == 0)
        bytes = strtoll(value, NULL, 10);
    free(value);
    return bytes > 0 ? (size_t)bytes : 0;
}

/* bytes_max: of one record, when the broker's default is not to count; 0 = it is. */
static int make_topic(scorer *s, const char *name, int partitions, size_t bytes_max)
{
    pst_err e = {0};
    char bytes[24];
    snprintf(bytes, sizeof(bytes), "%zu", bytes_max);
    const char *const configs[] = {"max.message.bytes", bytes, NULL};
    pst_topic_spec spec = {.name = name, .partitions = partitions, .replication = -1, .configs = bytes_max ? configs : NULL};
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
    size_t bytes = 0;
    for (size_t i = 0; i < s->p->n_topics; i++) {
        pst_topic_info info = {0};
        if ((rc = pst_admin_topic(s->client->bus, s->inputs[i].name, &info, 10000, &s->err)) < 0)
            return rc;
        s->inputs[i].partitions = info.partitions;
        s->partitions_least = i && s->partitions_least < info.partitions ? s->partitions_least : info.partitions;
        most = info.partitions > most ? info.partitions : most;
        pst_topic_info_done(&info);
        size_t here = topic_bytes_max(s, s->inputs[i].name);
        bytes = here > bytes ? here : bytes;
    }
    rc = make_topic(s, s->p->output_topic, most, 0);
    if (rc >= 0 && s->p->shadow_topic)
        rc = make_topic(s, s->p->shadow_topic, most, 0);
    if (rc < 0)
        return rc;
    bytes = (bytes ? bytes : RECORD_BYTES_DEFAULT) + LETTER_HEADERS_BYTES;
    for (size_t i = 0; i < s->p->n_topics && !s->p->tolerance_none; i++)
        if ((rc = make_topic(s, s->inputs[i].dlq, 1, bytes)) < 0)
            return rc;
    if ((rc = scorer_state_topic(s)) < 0)
        return rc;
    const char *own = pst_bus_conf_get(s->conf, "message.max.bytes");
    size_t out = topic_bytes_max(s, s->p->output_topic), least = own ? (size_t)strtoll(own, NULL, 10) : SCORE_BYTES_DEFAULT;
    s->score_bytes_max = own || least > out ? least : out;
    pst_topic_info info = {0};
    pst_err e = {0};
    if (pst_admin_topic(s->client->bus, s->p->output_topic, &info, 10000, &e) == 0)
        s->output_partitions = info.partitions;
    pst_topic_info_done(&info);
    return scorer_may_report(s);
}

/* Partitions are added while we run: the group is given the new ones, and from then on a record's partition decides whether output and input
 * still match. Output that has grown, too, is seen at the same time. */
static int count_partitions(scorer *s)
{
    int least = 0;
    for (size_t i = 0; i <= s->p->n_topics; i++) {
        const char *topic = i < s->p->n_topics ? s->inputs[i].name : s->p->output_topic;
        pst_topic_info info = {0};
        int rc = pst_admin_topic(s->client->bus, topic, &info, 10000, &s->err);
        if (rc == PST_ENOTFOUND) /* made anew, perhaps */
            s->err.cls = PST_CLASS_RETRY;
        if (rc < 0)
            return rc;
        int *count = i < s->p->n_topics ? &s->inputs[i].partitions : &s->output_partitions;
        if (info.partitions != *count)
            pst_log(PST_LOG_INFO, "score", "event=partitions_changed pipeline=%s topic=%s before=%d now=%d", s->p->name, topic, *count,
                    info.partitions);
        *count = info.partitions;
        if (i < s->p->n_topics && (!least || info.partitions < least))
            least = info.partitions;
        pst_topic_info_done(&info);
    }
    s->partitions_least = least;
    pst_txn_expect(s->txn, s->p->output_topic);
    return 0;
}

int scorer_meet(scorer *s, const pst_record *records, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (records[i].partition < s->partitions_least)
            continue;
        PST_ASSERT(records[i].topic_index < s->p->n_topics);
        if (records[i].partition >= s->inputs[records[i].topic_index].partitions)
            return count_partitions(s);
    }
    return 0;
}

int scorer_await_topics(scorer *s)
{
    int64_t logged_us = 0;
    for (int ms = 500; !pst_stop_requested(); ms = ms < 5000 ? ms * 2 : 5000) {
        pst_err_clear(&s->err);
        int rc = ensure_topics(s);
        score_stats_wait(s->stats, PST_WAIT_TOPICS, rc < 0 ? "topics" : NULL, s->err.text);
        if (rc == 0)
            return 0;
        if (rc == PST_ENOTFOUND ? s->opts->exit_on_eof : s->err.cls == PST_CLASS_FATAL)
            return rc;
        if (pst_mono_us() - logged_us > 30000000 || !logged_us) {
            pst_log(PST_LOG_INFO, "score", "event=waiting pipeline=%s for=topics why=\"%s\"", s->p->name, s->err.text);
            logged_us = pst_mono_us();
        }
        scorer_idle_ms(ms);
    }
    return PST_ESTOPPED;
}

int scorer_take_slot(scorer *s)
{
    return score_slot_take(s->settings->state_dir.value, s->p->name, s->opts->slot, s->next_slot, &s->slot, &s->err);
}

/* The group's coordinator keeps us waiting. */
static void on_wait(void *arg, const char *why)
{
    scorer *s = arg;
    score_stats_wait(s->stats, PST_WAIT_COORDINATOR, why ? "kafka" : NULL, why);
}

static void on_unreadable(void *arg, const char *topic, int32_t partition, int64_t offset, const char *why)
{
    scorer *s = arg;
    score_stats_wait_record(s->stats, &(pst_record){.topic = topic, .partition = partition, .offset = offset}, "kafka", why);
}

/* A consumer in the group, and a producer under our slot's transactional id, which ends what a predecessor of that name left open. */
int scorer_open(scorer *s)
{
    int rc = s->slot.id[0] ? 0 : scorer_take_slot(s);
    if (rc < 0)
        return rc;
    free(s->txn_id);
    free(s->instance_id);
    s->txn_id = pst_sprintf("%sscore.%s", s->settings->prefix.value, s->slot.id);
    s->instance_id = pst_sprintf("score.%s", s->slot.id);
    char *peers = pst_sprintf("%sscore.%s.", s->settings->prefix.value, s->p->name);
    pst_consumer_opts o = {.group = s->group,
                           .topics = (const char *const *)s->p->topics,
                           .n_topics = s->p->n_topics,
                           .start = s->p->start,
                           .start_ms = s->p->start_ms,
                           .report_eof = s->opts->exit_on_eof,
                           /* A run to the end leaves the group at once; a service keeps its place over a restart. */
                           .instance_id = s->opts->exit_on_eof || s->opts->records_max ? NULL : s->instance_id,
                           .peers = peers,
                           .inflight_bytes_max = s->p->inflight_bytes,
                           .on_wait = on_wait,
                           .on_unreadable = on_unreadable,
                           .arg = s};
    rc = pst_consumer_new(s->conf, &o, &s->consumer, &s->err);
    free(peers);
    if (rc < 0)
        return rc;
    pst_txn_mode mode = s->p->exactly_once && !s->settings->embedded ? PST_TXN_EXACTLY_ONCE : PST_TXN_AT_LEAST_ONCE;
    if (s->p->exactly_once && s->settings->embedded)
        pst_log(PST_LOG_WARN, "score",
                "event=guarantee pipeline=%s wanted=exactly_once is=at_least_once why=\"the in-memory broker has no transactions\"",
                s->p->name);
    pst_bus_conf *conf = pst_bus_conf_copy(s->conf); /* of the producer alone: a consumer reserves what it may fetch */
    rc = pst_bus_conf_set(conf, "message.max.bytes", LETTER_BYTES_MAX, "score", &s->err);
    if (!rc)
        rc = pst_txn_new(conf, s->txn_id, mode, s->consumer, &s->txn, &s->err);
    pst_bus_conf_free(conf);
    if (!rc)
        pst_txn_expect(s->txn, s->p->output_topic);
    if (!rc && s->p->state.there)
        pst_txn_expect(s->txn, s->p->state.topic);
    return rc;
}

/* The slot stays ours: nobody else is to take our name while we are away for a moment. */
static void close_kafka(scorer *s)
{
    pst_txn_free(s->txn);
    s->txn = NULL;
    pst_consumer_free(s->consumer);
    s->consumer = NULL;
    score_stats_wait(s->stats, PST_WAIT_COORDINATOR, NULL, NULL); /* the next one will say what it waits for */
}

void scorer_close(scorer *s)
{
    close_kafka(s);
    score_slot_release(&s->slot);
    s->slot.id[0] = 0;
}

/* What is in hand is void, and whoever asks hears why until the group has taken us in again. */
static void begin_anew(scorer *s)
{
    pst_err why = s->err;
    s->stats->ready = false;
    s->reopened = true;
    score_stats_wait(s->stats, PST_WAIT_REOPENED, "kafka", why.text);
    s->waits_unsettled = true;
    pst_err_clear(&s->err);
    score_round_clear(&s->round);
    scorer_state_forget(s);
    s->again = 0;
    s->stats->aborts++;
}

void scorer_rejoined(scorer *s)
{
    if (!s->reopened || !pst_consumer_joined(s->consumer))
        return;
    s->reopened = false;
    s->stats->ready = true;
    pst_log(PST_LOG_INFO, "score", "event=rejoined pipeline=%s group=%s id=%s", s->p->name, s->group, s->txn_id);
    score_stats_wait(s->stats, PST_WAIT_REOPENED, NULL, NULL);
}

static int open_anew(scorer *s)
{
    int rc = pst_stop_requested() ? PST_ESTOPPED : scorer_open(s);
    return rc == PST_EFENCED ? scorer_after_fencing(s) : rc;
}

/* Told that somebody has our id. Often that is our own ghost: a join or a transaction that was on its way when a broker died. So the same id is
 * tried again first; told so twice within a minute, a slot of our own choice is left to the other, and a given one waited for. */
int scorer_after_fencing(scorer *s)
{
    int64_t now = pst_mono_us();
    bool ghost = !s->fenced_us || now - s->fenced_us > 60000000, chosen = s->opts->slot < 0;
    s->fenced_us = now;
    pst_log(PST_LOG_WARN, "score", "event=fenced pipeline=%s id=%s then=\"%s\" why=\"%s\"", s->p->name, s->txn_id,
            ghost    ? "the same id again"
            : chosen ? "another slot"
                     : "standby: another worker runs with this --slot",
            s->err.text);
    begin_anew(s);
    s->next_slot = ghost ? s->slot.number : s->slot.number + 1;
    if (ghost)
        close_kafka(s);
    else
        scorer_close(s);
    int turn = getpid() % 16; /* twins that wait equally long would meet, and fence each other, for ever */
    scorer_idle_ms(ghost || chosen ? 300 + 50 * turn : 20000 + 1000 * turn);
    return open_anew(s);
}

int scorer_reopen(scorer *s)
{
    pst_log(PST_LOG_WARN, "score", "event=reopened pipeline=%s id=%s why=\"%s\"", s->p->name, s->txn_id, s->err.text);
    begin_anew(s);
    close_kafka(s);
    scorer_idle_ms(300);
    return open_anew(s);
}
