/* replay.c - dead letters put back on the topics that they came from, each exactly once. Two passes: the first counts and names the targets, so that a
 * person can be asked; the second puts back, a batch a transaction.
 *
 *   begin ─► (a producer made anew? read the ledger on) ─► record, record, … ─► ledger entry ─► commit
 *     ▲                                                                                          │ aborted, fenced, not known
 *     └──────────────────────────────────────────────────────────────────────────────────────────┘
 *
 * Why it is never twice: the ledger is written in the transaction of the records, and read after a producer of the topic's one transactional id has begun. By
 * then whatever another replay, or one that was killed, had open is ended, and it can commit nothing more without making ours fail. So between
 * reading the ledger and our commit nobody else's entry can come, and each failed commit leads through the ledger again, which also tells
 * what became of it.
 *
 * A dead letter names its target itself, and anybody who may write to the topic may have written it. Left out are: the platform's own topics and Kafka's;
 * this topic of dead letters; ledgers, and other topics that have one beside them (else a letter could mark another pipeline's as replayed), unless
 * they are an input of the pipeline that was named; and what is no input of that pipeline. No topic is made.
 *
 * A topic may refuse a record for what it is (no key, its time), and then refuses the whole transaction. Which record it was is found by halving what
 * the transaction held; that one stays. */
#include "inference/dlq/ask.h"
#include "inference/dlq/ledger.h"
#include "inference/dlq/scan.h"

#include "common/base/json.h"
#include "common/base/map.h"
#include "common/base/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TARGETS_MAX = 200, LOOK_MS = 10000, OWN_HEADERS = 2, REFUSALS_MIN = 2 /* in a row, before a record is said to be the cause */ };

/* Where records go, or why they do not. */
typedef struct target {
    int partitions;
    char why[200]; /* "" = they go there */
    int64_t count, kept, by_key, too_large;
} target;

typedef struct replay {
    pst_verb_run *v;
    const pst_dlq_ask *ask;
    const char *topic;
    const dlq_filter *filter;
    dlq_ledger *ledger;
    pst_topic_info info;
    pst_txn *txn;
    uint64_t recycles; /* of txn, when the ledger was read last */
    pst_map targets;   /* topic → target */
    target strangers;  /* beyond TARGETS_MAX */
    int64_t records, dead, matching, before, done;
    size_t left;
    bool counting;
    pst_err refused; /* the first target that may not be looked at */
    pst_header_room room;
    pst_buf from, count, key, value;
} replay;

/* ---- targets ------------------------------------------------------------------------------------------------------------------ */

static bool is_input(const pst_dlq_ask *ask, const char *topic)
{
    for (size_t i = 0; i < ask->n_inputs; i++)
        if (!strcmp(ask->inputs[i], topic))
            return true;
    return !ask->n_inputs;
}

static bool is_platform(const replay *r, const char *topic)
{
    for (int t = 0; t < PST_TOPIC_COUNT; t++)
        if (!strcmp(pst_client_topic(r->v->client, (pst_topic)t), topic))
            return true;
    return !strncmp(topic, "__", 2) || !strcmp(topic, "_schemas");
}

/* Others' dead letters and ledgers. A pipeline that was named vouches for its own inputs. */
static int judge_name(const replay *r, const char *topic, target *t, pst_err *err)
{
    bool vouched = !r->ask->to && r->ask->n_inputs && is_input(r->ask, topic), beside = false;
    if (is_platform(r, topic))
        snprintf(t->why, sizeof t->why, "it is a topic of the platform or of Kafka itself");
    else if (!strcmp(topic, r->topic) || !strcmp(topic, dlq_ledger_topic(r->ledger)))
        snprintf(t->why, sizeof t->why, "that is the topic of dead letters itself, or its ledger");
    else if (!r->ask->to && !is_input(r->ask, topic))
        snprintf(t->why, sizeof t->why, "it is no input of pipeline %.100s", r->ask->pipeline);
    else if (!vouched && dlq_ledger_is(topic))
        snprintf(t->why, sizeof t->why, "by its name it is the ledger of another topic's replays");
    if (*t->why || vouched)
        return 0;
    int rc = dlq_ledger_beside(topic, r->v->client, &beside, err);
    if (!rc && beside)
        snprintf(t->why, sizeof t->why, "it is another topic of dead letters: %.100s.replays is beside it", topic);
    return rc;
}

static int judge(replay *r, const char *topic, target *t, pst_err *err)
{
    pst_topic_info info = {0};
    pst_err e = {0};
    int rc = judge_name(r, topic, t, err);
    if (rc || *t->why)
        return rc;
    rc = pst_admin_topic(r->v->client->bus, topic, &info, LOOK_MS, &e);
    t->partitions = info.partitions;
    if (rc == PST_EAUTH && !r->refused.code)
        r->refused = e;
    pst_topic_info_done(&info);
    if (rc == PST_ENOTFOUND || rc == PST_EAUTH)
        snprintf(t->why, sizeof t->why, "%s", rc == PST_EAUTH ? "you may not look at it" : "there is no such topic, or you may not see it");
    else if (rc < 0)
        *err = e;
    return rc == PST_ENOTFOUND || rc == PST_EAUTH ? 0 : rc;
}

static int target_of(replay *r, const dlq_letter *d, target **ret, pst_err *err)
{
    const char *topic = r->ask->to ? r->ask->to : d->source;
    *ret = pst_map_get(&r->targets, topic);
    if (*ret)
        return 0;
    if (r->targets.live == TARGETS_MAX) {
        snprintf(r->strangers.why, sizeof r->strangers.why, "more than %d topics are named; --source TOPIC takes those of one",
                 TARGETS_MAX);
        *ret = &r->strangers;
        return 0;
    }
    *ret = pst_alloc(sizeof **ret);
    pst_map_put(&r->targets, topic, *ret);
    return judge(r, topic, *ret, err);
}

/* The partition that it came from, where there still is one of that number; -1 = by its key, as a producer would. */
static int32_t partition_of(const replay *r, const dlq_letter *d, const target *t)
{
    return !r->ask->to && d->source_partition >= 0 && d->source_partition < t->partitions ? d->source_partition : -1;
}

/* ---- one record ----------------------------------------------------------------------------------------------------------------- */

/* As it was, less what said that it was dead, and with the word that it was put back. */
static int send(replay *r, const dlq_letter *d, target *t, pst_err *err)
{
    const pst_record *rec = d->record;
    size_t n = 0, found = pst_record_headers_all(rec, &r->room, OWN_HEADERS);
    for (size_t i = 0; i < found; i++)
        if (!dlq_header_is_error(r->room.at[i].name))
            r->room.at[n++] = r->room.at[i];
    pst_buf_clear(&r->from);
    pst_buf_clear(&r->count);
    pst_buf_printf(&r->from, "%s:%d:%lld", rec->topic, (int)rec->partition, (long long)rec->offset);
    pst_buf_printf(&r->count, "%lld", (long long)d->replays + 1);
    r->room.at[n++] = (pst_header){DLQ_HEADER_REPLAYS, r->count.data, r->count.len};
    r->room.at[n++] = (pst_header){DLQ_HEADER_FROM, r->from.data, r->from.len};
    pst_out out = {.topic = r->ask->to ? r->ask->to : d->source,
                   .partition = partition_of(r, d, t),
                   .key = rec->key,
                   .key_len = rec->key_len,
                   .value = rec->value,
                   .value_len = rec->value_len,
                   .timestamp_ms = d->timestamp_ms > 0 ? d->timestamp_ms : 0,
                   .headers = r->room.at,
                   .n_headers = n};
    return pst_txn_send(r->txn, &out, err);
}

/* Is it one to put back now? ret_target only then. */
static int wanted(replay *r, const pst_record *rec, dlq_letter *d, target **ret_target, pst_err *err)
{
    target *t = NULL;
    *ret_target = NULL;
    dlq_letter_read(rec, &r->room, d);
    if (r->counting) {
        r->records++;
        r->dead += d->dead;
        if (dlq_ledger_check(r->ledger, rec, err) < 0)
            return err->code;
    }
    if (!d->dead || !dlq_filter_takes(r->filter, d))
        return 0;
    bool before = dlq_ledger_has(r->ledger, rec->partition, rec->offset);
    if (r->counting) {
        r->matching++;
        r->before += before;
    }
    if (before)
        return 0;
    int rc = target_of(r, d, &t, err);
    if (!rc && !*t->why)
        *ret_target = t;
    if (!rc && r->counting) {
        t->count++;
        r->left += *t->why != 0;
        t->kept += partition_of(r, d, t) >= 0;
        t->by_key += partition_of(r, d, t) < 0;
    }
    return rc;
}

static int count_batch(void *arg, const pst_record *records, size_t n, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        dlq_letter d;
        target *t;
        rc = wanted(arg, &records[i], &d, &t, err);
    }
    return rc;
}

/* ---- a round ---------------------------------------------------------------------------------------------------------------------- */

typedef struct sent {
    int64_t records, too_large;
} sent;

/* Sends what is to go of this batch, and its entry. What no topic would take is left out, counted and told. */
static int fill(replay *r, const pst_record *records, size_t n, sent *ret, pst_err *err)
{
    int rc = 0;
    *ret = (sent){0};
    dlq_ledger_begin(r->ledger);
    for (size_t i = 0; !rc && i < n; i++) {
        dlq_letter d;
        target *t;
        pst_err e = {0};
        rc = wanted(r, &records[i], &d, &t, err);
        if (rc || !t)
            continue;
        rc = send(r, &d, t, &e);
        if (rc == PST_ELIMIT) {
            fprintf(stderr, "%s [%d] offset %lld stays: %s; where the topic takes it, -X message.max.bytes=N lets it through\n", r->topic,
                    (int)records[i].partition, (long long)records[i].offset, e.text);
            ret->too_large++;
            rc = 0;
        } else if (rc < 0) {
            *err = e;
        } else {
            dlq_ledger_note(r->ledger, &records[i]);
            ret->records++;
        }
    }
    while (!rc && dlq_ledger_entry(r->ledger, r->ask->to, &r->key, &r->value))
        rc = pst_txn_send(r->txn,
                          &(pst_out){.topic = dlq_ledger_topic(r->ledger),
                                     .partition = 0,
                                     .key = r->key.data,
                                     .key_len = r->key.len,
                                     .value = r->value.data,
                                     .value_len = r->value.len},
                          err);
    return rc;
}

/* A transaction of this id is open now. If its producer is another one than when the ledger was read, somebody may have written there. */
static int begin(replay *r, pst_err *err)
{
    uint64_t counts[3];
    int rc = pst_txn_begin(r->txn, err);
    if (rc < 0)
        return rc;
    pst_txn_counts(r->txn, counts);
    if (counts[2] == r->recycles)
        return 0;
    rc = dlq_ledger_read(r->ledger, r->v->client, true, err);
    if (!rc)
        r->recycles = counts[2];
    return rc;
}

static bool any(replay *r, const pst_record *records, size_t n, int *ret_rc, pst_err *err)
{
    target *t = NULL;
    *ret_rc = 0;
    for (size_t i = 0; !*ret_rc && !t && i < n; i++) {
        dlq_letter d;
        *ret_rc = wanted(r, &records[i], &d, &t, err);
    }
    return t != NULL;
}

/* What of these is to go, in one transaction. As pst_txn_commit(). */
static int put_once(replay *r, const pst_record *records, size_t n, sent *ret, pst_err *err)
{
    int rc = begin(r, err);
    if (!rc)
        rc = fill(r, records, n, ret, err);
    if (!rc)
        return ret->records ? pst_txn_commit(r->txn, err) : pst_txn_abort(r->txn, err);
    pst_txn_abort(r->txn, NULL);
    return rc;
}

static void tell_again(const replay *r, const pst_record *records, size_t n, const pst_err *why)
{
    if (!r->v->settings.quiet)
        fprintf(stderr, "%s [%d] from offset %lld, %zu records: %s\n", r->topic, (int)records->partition, (long long)records->offset, n,
                why->text);
}

static void stays(replay *r, const pst_record *record, const pst_err *why)
{
    fprintf(stderr, "%s [%d] offset %lld stays: %s\n", r->topic, (int)record->partition, (long long)record->offset, why->text);
    r->left++;
}

/* refusals: how often in a row a topic has refused transactions that held all of these. */
static int put(replay *r, const pst_record *records, size_t n, int refusals, pst_err *err)
{
    int rc = 0;
    while (any(r, records, n, &rc, err)) {
        sent s = {0};
        pst_err e = {0};
        rc = put_once(r, records, n, &s, &e);
        if (!rc) {
            r->done += s.records;
            r->left += (size_t)s.too_large;
            break;
        }
        if (rc != PST_EAGAIN) {
            *err = e;
            return rc;
        }
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "kafka", 0, "stopped");
        bool refused = pst_bus_refuses_record(&e);
        refusals = refused ? refusals + 1 : 0;
        if (refused && n == 1 && refusals >= REFUSALS_MIN) {
            stays(r, records, &e);
            return 0;
        }
        tell_again(r, records, n, &e); /* and through the ledger: it knows what became of it */
        if (refused && n > 1) {
            rc = put(r, records, n / 2, refusals, err);
            return rc ? rc : put(r, records + n / 2, n - n / 2, refusals, err);
        }
    }
    return rc;
}

static int replay_batch(void *arg, const pst_record *records, size_t n, pst_err *err)
{
    return put(arg, records, n, 0, err);
}

/* ---- what is told ----------------------------------------------------------------------------------------------------------------- */

static void print_targets(const replay *r, FILE *f)
{
    for (size_t i = 0; i <= r->targets.n; i++) {
        const target *t = i < r->targets.n ? r->targets.at[i].value : &r->strangers;
        const char *name = i < r->targets.n ? r->targets.at[i].key : "(others)";
        if (!name || !t->count)
            continue;
        if (*t->why)
            fprintf(f, "%10lld stay: they would go to %s, but %s\n", (long long)t->count, name, t->why);
        else
            fprintf(f, "%10lld to %s (partition kept for %lld, by key for %lld)\n", (long long)t->count, name, (long long)t->kept,
                    (long long)t->by_key);
    }
    if (r->before)
        fprintf(f, "%10lld stay: they were replayed before\n", (long long)r->before);
}

static void print_json(const replay *r)
{
    json_t *targets = json_array();
    for (size_t i = 0; i <= r->targets.n; i++) {
        const target *t = i < r->targets.n ? r->targets.at[i].value : &r->strangers;
        if ((i < r->targets.n && !r->targets.at[i].key) || !t->count)
            continue;
        json_t *j = json_pack("{s:s, s:I}", "topic", i < r->targets.n ? r->targets.at[i].key : "(others)", "count", (json_int_t)t->count);
        if (*t->why)
            json_object_set_new(j, "refused", json_string(t->why));
        json_object_set_new(j, "partition_kept", json_integer(*t->why ? 0 : t->kept));
        json_object_set_new(j, "partition_by_key", json_integer(*t->why ? 0 : t->by_key));
        json_array_append_new(targets, j);
    }
    json_t *j = json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:o}", "topic", r->topic, "dry_run", (int)r->ask->dry_run, "matching",
                          (json_int_t)r->matching, "replayed_before", (json_int_t)r->before, "replayed", (json_int_t)r->done, "left",
                          (json_int_t)r->left, "targets", targets);
    dlq_ask_row(r->ask, j);
}

/* Nobody is asked where nobody can answer; then --yes has to be said. */
static int ask_person(const replay *r, int64_t n, pst_err *err)
{
    char answer[16];
    if (r->ask->yes)
        return 0;
    if (r->v->settings.no_input || !isatty(STDIN_FILENO))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "%lld dead letters would be put back and nobody can be asked: --yes does it, --dry-run only tells",
                           (long long)n);
    fprintf(stderr, "Put %lld dead letters back? [y/N] ", (long long)n);
    fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return 0;
    return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "config", 0, "nothing was put back");
}

static void tell_plan(const replay *r, int64_t going)
{
    if (r->v->settings.json || r->v->settings.quiet)
        return;
    FILE *f = r->ask->dry_run ? stdout : stderr;
    fprintf(f, "%s: %lld of %lld dead letters%s\n", r->topic, (long long)going, (long long)r->dead, going ? " go back" : " to put back");
    print_targets(r, f);
    fflush(f);
}

static int put_back(replay *r, pst_err *err)
{
    int rc = dlq_ledger_make(r->ledger, r->v->client, err);
    if (!rc) /* one id for all who replay this topic, whatever their prefix: a later one ends an earlier one's transaction */
        rc = pst_txn_new(r->v->client->bus, dlq_ledger_topic(r->ledger), PST_TXN_EXACTLY_ONCE, NULL, &r->txn, err);
    if (rc)
        return rc;
    r->counting = false;
    r->recycles = UINT64_MAX; /* the first begin reads the ledger */
    rc = dlq_scan(r->v->client, r->topic, &r->info, r->filter, replay_batch, r, err);
    pst_txn_free(r->txn);
    if (rc == PST_EFENCED)
        pst_err_prefix(err, "another replay of %s has taken over", r->topic);
    if (rc < 0 && !r->v->settings.quiet)
        fprintf(stderr, "%lld dead letters of %s were put back; the same command goes on where it ended\n", (long long)r->done, r->topic);
    return rc;
}

static int replay_topic(replay *r, pst_err *err)
{
    int rc = dlq_ask_topic(r->v, r->topic, &r->info, err);
    if (!rc)
        rc = dlq_ledger_read(r->ledger, r->v->client, false, err);
    if (!rc)
        rc = dlq_ledger_check_ends(r->ledger, &r->info, err);
    r->counting = true;
    if (!rc)
        rc = dlq_scan(r->v->client, r->topic, &r->info, r->filter, count_batch, r, err);
    if (!rc && r->records && !r->dead)
        rc = dlq_ask_none(r->topic, r->records, err);
    if (rc)
        return rc;
    int64_t going = r->matching - r->before - (int64_t)r->left;
    tell_plan(r, going);
    if (going && !r->ask->dry_run) {
        rc = ask_person(r, going, err);
        if (!rc)
            rc = put_back(r, err);
        if (!rc && !r->v->settings.quiet)
            fprintf(stderr, "%lld dead letters put back\n", (long long)r->done);
    }
    if (!rc && r->v->settings.json)
        print_json(r);
    if (!rc && !going && r->refused.code) { /* not a few letters of many: nothing may be put back by this user */
        *err = r->refused;
        rc = err->code;
    }
    return rc;
}

static int check_target(const pst_dlq_ask *ask, pst_err *err)
{
    if (!ask->to || dlq_topic_name(ask->to))
        return 0;
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--to %.80s: no topic can be called so", ask->to);
}

int pst_dlq_replay(pst_verb_run *v, const pst_dlq_ask *ask, size_t *ret_left, pst_err *err)
{
    dlq_filter f;
    size_t left = 0;
    int rc = dlq_ask_filter(ask, &f, err);
    if (!rc)
        rc = check_target(ask, err);
    for (size_t i = 0; !rc && i < ask->n_topics; i++) {
        replay r = {.v = v, .ask = ask, .topic = ask->topics[i], .filter = &f, .ledger = dlq_ledger_new(ask->topics[i])};
        pst_err e = {0};
        rc = replay_topic(&r, &e);
        if (rc == PST_ENOTFOUND && ask->pipeline && !r.info.name && !strcmp(e.origin, "kafka")) {
            if (!v->settings.quiet)
                fprintf(stderr, "%s is not there yet: no dead letters\n", r.topic);
            rc = 0;
        } else if (rc < 0)
            *err = e;
        left += r.left;
        pst_map_done(&r.targets, free);
        dlq_ledger_free(r.ledger);
        pst_topic_info_done(&r.info);
        pst_header_room_done(&r.room);
        pst_buf_done(&r.from);
        pst_buf_done(&r.count);
        pst_buf_done(&r.key);
        pst_buf_done(&r.value);
    }
    *ret_left = left;
    return rc;
}
