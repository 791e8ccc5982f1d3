/* sink.c - `penstock sink NAME`: the loop that all sinks share.
 *
 * Most sinks keep their own places (a folder its note, a scrape page nothing): no group is joined, and every partition is read from where the sink says. A
 * sink whose target has room for no places has a group (sink_group.c): what one poll gave is settled before the next.
 * A record's bytes reach the sink decoded; what does not decode is carried as its bytes with the reason, so that nothing is missing. While the registry is
 * away the record waits, and all behind it. Partitions that are added, and topics that are made later, are looked for every half minute. */
#include "consumers/sink/sink.h"
#include "consumers/sink/sink_group.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/platform/codec.h"
#include "common/platform/verb.h"
#include "verbs.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SETTLE_US = 1000000, /* between two settles */
    LOOK_US = 30000000,  /* between two looks for more partitions */
    GATHER_US = 200000,  /* with a group: how long a record waits for others to be sent with it */
    AWAY_MS = 1000,      /* between two tries while the registry is away */
    SAY_US = 10000000,   /* between two words about the same trouble */
    ASK_MS = 10000,      /* one question to the broker */
    WHY_MAX = 512,
    ROOM = 64 << 20, /* memory of one decoded value */
};

typedef struct sink_topic {
    char *name;
    const char *platform;
    int partitions; /* that are read; 0 = it is not there yet */
} sink_topic;

typedef struct run {
    const sink_ops *ops;
    void *sink;
    pst_verb_run *v;
    sink_topic *topics;
    size_t n_topics, cap_topics;
    pst_consumer *consumer;
    const char *group; /* NULL: the sink keeps its places */
    bool exit_on_eof;
    bool grown;  /* there are partitions that the consumer does not read */
    bool failed; /* a settle: what is in the sink is not to be settled */
    int64_t settled_us, looked_us, said_us;
    int64_t taken, left_out;
} run;

/* ---- what a record becomes ---- */

void sink_path_word(const char *text, char ret[101])
{
    size_t n = 0;
    for (; text[n] && n < 100; n++) {
        bool fine = isalnum((unsigned char)text[n]) || text[n] == '_' || text[n] == '-' || (text[n] == '.' && n);
        ret[n] = fine ? text[n] : '_';
    }
    if (!n)
        ret[n++] = '_';
    ret[n] = 0;
}

double sink_number(const json_t *v)
{
    const char *s = json_string_value(v);
    if (json_is_number(v))
        return json_number_value(v);
    if (s && !strcmp(s, "Infinity"))
        return (double)INFINITY;
    return s && !strcmp(s, "-Infinity") ? -(double)INFINITY : (double)NAN;
}

json_t *sink_document(const sink_doc *d)
{
    const pst_record *r = d->record;
    json_t *doc = json_is_object(d->value) ? json_copy(d->value) : json_object();
    if (d->value && !json_is_object(d->value))
        json_object_set(doc, "value", d->value);
    if (d->error) {
        char *bytes = pst_base64(r->value, r->value_len);
        json_object_set_new(doc, "value_base64", json_string(bytes));
        free(bytes);
    }
    json_t *from = json_pack("{s:s, s:i, s:I, s:I}", "topic", r->topic, "partition", (int)r->partition, "offset", (json_int_t)r->offset,
                             "timestamp", (json_int_t)r->timestamp_ms);
    json_t *key = r->key ? json_stringn(r->key, r->key_len) : json_null();
    if (!key) {
        char *bytes = pst_base64(r->key, r->key_len);
        json_object_set_new(from, "key_base64", json_string(bytes));
        free(bytes);
    } else {
        json_object_set_new(from, "key", key);
    }
    if (!r->value)
        json_object_set_new(from, "tombstone", json_true());
    if (d->error)
        json_object_set_new(from, "error", json_string(d->error));
    json_object_set_new(doc, "@kafka", from);
    return doc;
}

/* < 0: the registry does not answer, or refuses; the record has to wait. */
static int decode(const run *x, const pst_record *r, sink_doc *d, char why[WHY_MAX], pst_err *err)
{
    pst_err e = {0};
    d->schema_id = -1;
    if (!r->value)
        return 0;
    if (pst_codec_to_json_within(x->v->client->codec, r->value, r->value_len, ROOM, &d->value, &d->schema_id, &e) == 0)
        return 0;
    if (e.cls != PST_CLASS_DATA && (e.cls == PST_CLASS_RETRY || e.code == PST_EUNREACH || e.code == PST_EAUTH)) {
        *err = e;
        return e.code;
    }
    snprintf(why, WHY_MAX, "%s", e.text);
    d->error = why;
    d->schema_id = -1;
    return 0;
}

/* ---- topics ---- */

static int add_topic(run *x, const char *word, size_t len, pst_err *err)
{
    char *name = pst_strndup(word, len);
    sink_topic t = {0};
    for (int i = 0; i < PST_TOPIC_COUNT; i++)
        if (!strcmp(name, pst_topic_get((pst_topic)i)->suffix) || !strcmp(name, pst_client_topic(x->v->client, (pst_topic)i))) {
            t.platform = pst_topic_get((pst_topic)i)->suffix;
            t.name = pst_strdup(pst_client_topic(x->v->client, (pst_topic)i));
        }
    if (!t.name)
        t.name = pst_strdup(name);
    free(name);
    int rc = *t.name ? 0 : pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--topics: an empty name");
    for (size_t i = 0; !rc && i < x->n_topics; i++)
        if (!strcmp(x->topics[i].name, t.name))
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--topics: %s is named twice", t.name);
    if (rc < 0) {
        free(t.name);
        return rc;
    }
    x->topics = pst_array_room(x->topics, x->n_topics, &x->cap_topics, sizeof *x->topics);
    x->topics[x->n_topics++] = t;
    return 0;
}

static int read_topics(run *x, const char *list, pst_err *err)
{
    int rc = 0;
    for (const char *p = list; !rc; p += strcspn(p, ",") + 1) {
        rc = add_topic(x, p, strcspn(p, ","), err);
        if (!p[strcspn(p, ",")])
            break;
    }
    return rc;
}

/* Has anything grown, or come? That stays so until a consumer reads it. The counts are taken over. Topics that are not there (yet) are said, once in a while. */
static int look(run *x, pst_err *err)
{
    pst_topic_info *list = NULL;
    size_t n = 0;
    int rc = pst_admin_list(x->v->client->bus, &list, &n, ASK_MS, err);
    for (size_t t = 0; !rc && t < x->n_topics; t++) {
        int partitions = 0;
        for (size_t i = 0; i < n; i++)
            if (!strcmp(list[i].name, x->topics[t].name))
                partitions = list[i].partitions;
        if (!partitions && !x->looked_us)
            fprintf(stderr, "penstock sink: topic %s is not there yet%s\n", x->topics[t].name,
                    x->exit_on_eof ? "; it is left out" : "; it is read as soon as it is made");
        x->grown |= x->group ? partitions && !x->topics[t].partitions : partitions > x->topics[t].partitions;
        x->topics[t].partitions = partitions; /* fewer: it was deleted, or made anew */
    }
    for (size_t i = 0; i < n; i++)
        pst_topic_info_done(&list[i]);
    free(list);
    x->looked_us = pst_mono_us();
    return rc;
}

/* With an end: up to what is there now. Ranges that are empty already are left out: their end would never be reported. */
static int add_ranges(const run *x, const sink_topic *t, pst_range *ranges, size_t *n, pst_err *err)
{
    pst_topic_info info = {0};
    int rc = t->partitions ? pst_admin_topic(x->v->client->bus, t->name, &info, ASK_MS, err) : 0;
    if (rc == PST_ENOTFOUND) { /* deleted a moment ago, or not known to this broker yet: the others are read meanwhile */
        pst_err_clear(err);
        return 0;
    }
    for (int p = 0; !rc && p < t->partitions; p++) {
        int64_t at = x->ops->place(x->sink, t->name, p), low = p < info.partitions ? info.low[p] : 0,
                high = p < info.partitions ? info.high[p] : 0;
        if (at >= 0 && at < low)
            fprintf(stderr, "penstock sink: %s [%d]: the records %lld to %lld are gone from the topic before they could be read\n", t->name,
                    p, (long long)at, (long long)low - 1);
        if (at == INT64_MAX) {
            at = high;
        } else if (at > high) {
            fprintf(
                stderr,
                "penstock sink: %s [%d] ends at %lld and was read up to %lld before: it was made anew, and is read from its beginning\n",
                t->name, p, (long long)high, (long long)at);
            x->ops->forget(x->sink, t->name, p);
            at = low;
        }
        int64_t from = at >= low ? at : low;
        if (!x->exit_on_eof || from < high)
            ranges[(*n)++] = (pst_range){t->name, p, from, x->exit_on_eof ? high : -1};
    }
    pst_topic_info_done(&info);
    return rc;
}

/* The group finds further partitions of its topics by itself. */
static int join_group(run *x, pst_err *err)
{
    size_t n = 0;
    const char **topics = pst_alloc((x->n_topics + 1) * sizeof *topics);
    pst_consumer_free(x->consumer);
    x->consumer = NULL;
    for (size_t t = 0; t < x->n_topics; t++)
        if (x->topics[t].partitions)
            topics[n++] = x->topics[t].name;
    int rc = !n ? 0
                : pst_consumer_new(
                      x->v->client->bus,
                      &(pst_consumer_opts){
                          .group = x->group, .topics = topics, .n_topics = n, .start = PST_START_EARLIEST, .report_eof = x->exit_on_eof},
                      &x->consumer, err);
    free(topics);
    return rc;
}

static int open_consumer(run *x, pst_err *err)
{
    size_t n = 0, room = 0;
    if (x->group)
        return join_group(x, err);
    for (size_t t = 0; t < x->n_topics; t++)
        room += (size_t)x->topics[t].partitions;
    pst_range *ranges = pst_alloc((room + 1) * sizeof *ranges);
    int rc = 0;
    pst_consumer_free(x->consumer);
    x->consumer = NULL;
    for (size_t t = 0; !rc && t < x->n_topics; t++)
        rc = add_ranges(x, &x->topics[t], ranges, &n, err);
    if (!rc && n)
        rc = pst_consumer_new(x->v->client->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = n, .report_eof = x->exit_on_eof},
                              &x->consumer, err);
    free(ranges);
    return rc;
}

/* ---- the loop ---- */

static void say_begin(const run *x)
{
    int partitions = 0;
    for (size_t t = 0; t < x->n_topics; t++)
        partitions += x->topics[t].partitions;
    fprintf(stderr, "penstock sink: reading %d partitions of %zu topics%s\n", partitions, x->n_topics,
            x->exit_on_eof ? " to their present end" : "; Ctrl-C ends it");
}

static void say(run *x, const char *text)
{
    if (pst_mono_us() - x->said_us < SAY_US)
        return;
    x->said_us = pst_mono_us();
    fprintf(stderr, "penstock sink: %s\n", text);
}

static int settle(run *x, bool final, pst_err *err)
{
    x->settled_us = pst_mono_us();
    int rc = x->failed ? 0 : x->ops->settle(x->sink, final, err);
    x->failed |= rc < 0;
    return rc;
}

static int take(run *x, const pst_record *r, pst_err *err)
{
    char why[WHY_MAX];
    sink_doc d = {.record = r};
    int rc;
    while ((rc = decode(x, r, &d, why, err)) < 0) {
        say(x, err->text);
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "sink", 0, "stopped");
        pst_err_clear(err);
        pst_sleep_ms(AWAY_MS);
    }
    for (size_t i = 0; i < x->n_topics; i++)
        if (!strcmp(x->topics[i].name, r->topic))
            d.platform = x->topics[i].platform;
    pst_err e = {0};
    rc = x->ops->take(x->sink, &d, &e);
    json_decref(d.value);
    x->taken++;
    if (rc < 0 && e.cls == PST_CLASS_DATA) {
        fprintf(stderr, "penstock sink: %s [%d] offset %lld is left out: %s\n", r->topic, r->partition, (long long)r->offset, e.text);
        x->left_out++;
        return 0;
    }
    if (rc < 0)
        *err = e;
    return rc;
}

/* Opens the consumer anew where that is needed. A broker that is away is waited for; what it says for good ends the sink. */
static int refresh(run *x, bool first, pst_err *err)
{
    for (x->grown |= first; !pst_stop_requested(); pst_sleep_ms(AWAY_MS)) {
        pst_err e = {0};
        int rc = look(x, &e);
        if (!rc && x->grown) {
            rc = settle(x, false, err);
            if (rc < 0)
                return rc;
            rc = open_consumer(x, &e);
            x->grown = rc < 0;
        }
        if (!rc)
            return 0;
        if (e.cls != PST_CLASS_RETRY || first) {
            *err = e;
            return rc;
        }
        say(x, e.text);
    }
    return 0;
}

/* What a poll gave, each to the sink. */
static int take_all(run *x, const pst_batch *b, pst_err *err)
{
    sink_group_round round = {.ops = x->ops, .sink = x->sink, .consumer = x->consumer, .batch = b};
    int rc = 0;
    for (size_t i = 0; !rc && i < b->n && !round.lost; i++) {
        rc = take(x, &b->records[i], err);
        round.upto = i + 1;
        if (!rc && x->ops->full(x->sink))
            rc = x->group ? sink_group_settle(&round, err) : settle(x, false, err);
    }
    if (!rc && round.upto && x->group && !round.lost) /* nothing taken: there may be no consumer yet */
        rc = sink_group_settle(&round, err);
    x->failed |= x->group && rc < 0;
    return rc;
}

static int loop(run *x, pst_err *err)
{
    const pst_poll how = {.records_max = 1000, .bytes_max = 4 << 20, .age_max_us = x->group ? GATHER_US : 0, .timeout_ms = 200};
    int rc = refresh(x, true, err);
    if (!rc)
        say_begin(x);
    while (!rc && !pst_stop_requested()) {
        pst_batch b = {0};
        pst_err e = {0};
        if (x->consumer)
            rc = pst_consumer_poll(x->consumer, &how, &b, &e);
        else if (!x->exit_on_eof)
            pst_sleep_ms(200);
        if (rc < 0) {
            *err = e;
            return rc;
        }
        if (e.code)
            say(x, e.text);
        b.lost &= !x->group; /* all that a group's sink took before is settled */
        if (!b.lost)
            rc = take_all(x, &b, err);
        if (!rc && pst_mono_us() - x->settled_us > SETTLE_US)
            rc = settle(x, false, err);
        if (!rc && x->exit_on_eof && !b.lost && (b.eof || !x->consumer))
            return 0;
        /* Positions were reset: what lay between is gone from the topic. Opened from the sink's places, it is said. */
        x->grown |= b.lost;
        if (!rc && (b.lost || pst_mono_us() - x->looked_us > LOOK_US))
            rc = refresh(x, false, err);
    }
    return rc == PST_ESTOPPED ? 0 : rc;
}

static int sink_one(const sink_ops *ops, int argc, char **argv)
{
    pst_verb_run v;
    run x = {.ops = ops, .v = &v};
    void *opts = pst_alloc(ops->opts_size);
    int status = pst_verb_begin(&v, ops->usage, argc, argv, opts, 0, 0);
    if (status >= 0) {
        free(opts);
        return status;
    }
    const sink_opts *all = opts;
    x.exit_on_eof = all->exit_on_eof;
    int rc = read_topics(&x, all->topics, &v.err);
    if (!rc)
        rc = ops->open(opts, v.client, &x.sink, &v.err);
    if (!rc) {
        x.group = ops->group ? ops->group(x.sink) : NULL;
        rc = loop(&x, &v.err);
        int ended = settle(&x, true, rc < 0 ? NULL : &v.err);
        rc = rc < 0 ? rc : ended;
        fprintf(stderr, "penstock sink: %lld records taken%s\n", (long long)x.taken, rc < 0 ? ", then it failed" : "");
    }
    if (x.group && x.consumer)
        sink_group_end(x.consumer);
    pst_consumer_free(x.consumer);
    x.left_out += x.sink && ops->refused ? ops->refused(x.sink) : 0;
    if (x.sink)
        ops->close(x.sink);
    for (size_t i = 0; i < x.n_topics; i++)
        free(x.topics[i].name);
    free(x.topics);
    free(opts);
    status = pst_verb_end(&v, rc);
    return status || !x.left_out || !x.exit_on_eof ? status : 3; /* a service that is told to stop has not failed */
}

/* ---- the verb ---- */

static const sink_ops *const sinks[] = {&sink_files, &sink_tensorboard, &sink_prometheus, &sink_opensearch};
enum { N_SINKS = sizeof sinks / sizeof *sinks };

static const pst_usage sink_usage = {
    "sink",
    "files|tensorboard|prometheus|opensearch [options]",
    "Carry records out of Kafka: into files, TensorBoard's logs, a page that Prometheus reads, OpenSearch.",
    "penstock sink NAME --help tells more. Each runs until it is stopped; after a stop or a crash it goes on where it was.",
    "penstock sink files --dir /data/penstock\npenstock sink files --dir /data/scores --topics telemetry.scores --format avro\n"
    "penstock sink tensorboard --dir runs\npenstock sink prometheus --listen 127.0.0.1:9110\n"
    "penstock sink opensearch --url http://localhost:9200",
    NULL,
    0,
    false};

static int sink_run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < N_SINKS; i++)
        if (!strcmp(name, strchr(sinks[i]->usage->verb, ' ') + 1))
            return sink_one(sinks[i], argc - 1, argv + 1);
    bool help = !strcmp(name, "--help") || !strcmp(name, "-h");
    if (!help && *name)
        fprintf(stderr, "penstock sink: there is no sink `%s`; there are files, tensorboard, prometheus, opensearch\n", name);
    pst_opt_help(&sink_usage, help ? stdout : stderr);
    return help ? 0 : 2;
}

extern const pst_usage sink_files_usage, sink_tensorboard_usage, sink_prometheus_usage, sink_opensearch_usage;
const pst_verb pst_sink_verb = {
    "sink", "carry records into files, TensorBoard, Prometheus, OpenSearch", "streams", sink_run,
    PST_USAGES(&sink_usage, &sink_files_usage, &sink_tensorboard_usage, &sink_prometheus_usage, &sink_opensearch_usage)};
