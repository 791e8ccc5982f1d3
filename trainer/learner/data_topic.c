/* data_topic.c - training data from ranges of Kafka topics, Avro (by the registry) or JSON values. See sources.h.
 *
 * One consumer reads all ranges; rows are brought into the order of (store, partition, offset) afterwards, so that a later generation that
 * reads the same ranges gets the same rows. What a range comes to ("beginning", "end", a limit of records) is decided once and kept. */
#include "common/base/array.h"
#include "common/base/retry.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "trainer/learner/ranges.h"
#include "trainer/learner/sources.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "schemas/avro.h"
#include "common/platform/client.h"

#include <stdlib.h>
#include <string.h>

enum { ADMIN_TIMEOUT_MS = 5000, RETRY_MS = 500, SAY_EVERY_US = 2000000, SCHEMAS_MAX = 1000, PARTITIONS_MAX = 100000, ABSENT_MAX = 10 };

#define WORDS_CURE " (for words: {field: NAME, one_hot: learn} under penstock.learner.features; or leave the field out)"

typedef struct plan { /* one writer schema → the features */
    int32_t id;
    pst_columns *columns;
    bool text_target; /* the target comes as text */
    char *why;        /* columns NULL: these records cannot be read */
} plan;

typedef struct topics {
    learn_data *d;
    pst_learn_settings *s;
    pst_client *client;
    const learn_source_hooks *hooks;
    pst_consumer *consumer;
    plan *plans;
    size_t n_plans;
    double *numbers;
    uint8_t *missing;
    pst_slice *texts;
    int64_t *limits; /* per range: how many records its store may still give; −1 = all (stores share by store_of) */
    size_t *store_of;
    int64_t *next; /* per range: the offset after the last record read */
    int64_t total, seen, said_us;
} topics;

static bool stopped(void *arg)
{
    const topics *t = arg;
    return t->hooks->stopped(t->hooks->arg);
}

/* Logs an outage and waits; PST_ESTOPPED when told to stop meanwhile. */
static int outage(topics *t, pst_err *e)
{
    pst_log_err("learner", e);
    pst_err_clear(e);
    return pst_retry_pause(RETRY_MS, stopped, t) ? 0 : PST_ESTOPPED;
}

/* ---- ranges -------------------------------------------------------------------------------------------------------------------- */

static int watermarks(topics *t, const char *topic, pst_topic_info *info, pst_err *err)
{
    for (int absent = 0;;) {
        pst_err e = {0};
        int rc = pst_admin_topic(t->client->bus, topic, info, ADMIN_TIMEOUT_MS, &e);
        if (rc == PST_ENOTFOUND && ++absent > ABSENT_MAX) /* a topic that was just made is not known to every broker at once */
            return pst_err_set(err, rc, PST_CLASS_FATAL, "learner", 0,
                               "there is no topic %s to learn from (data_stores: topic); is its name right, and does its source run?",
                               topic);
        if (rc == PST_ENOTFOUND || (rc < 0 && e.cls == PST_CLASS_RETRY)) {
            if (rc != PST_ENOTFOUND)
                absent = 0;
            if ((rc = outage(t, &e)) < 0)
                return rc;
            continue;
        }
        if (rc < 0 && err && !err->code)
            *err = e;
        return rc;
    }
}

/* A range may end at an offset that no record has reached yet: then its records are waited for. */
static int wait_for_end(topics *t, const pst_data_store *store, pst_topic_info *info, pst_err *err)
{
    int64_t said = 0;
    for (;;) {
        int64_t lacking = 0;
        for (int p = 0; p < info->partitions; p++)
            lacking += store->to >= 0 && info->high[p] < store->to ? store->to - info->high[p] : 0;
        if (!lacking)
            return 0;
        if (pst_mono_us() - said > 10 * SAY_EVERY_US) {
            t->hooks->say(t->hooks->arg, "waiting for %lld more records of %s: the range ends at offset %lld", (long long)lacking,
                          store->topic, (long long)store->to);
            said = pst_mono_us();
        }
        if (!pst_retry_pause(RETRY_MS, stopped, t))
            return PST_ESTOPPED;
        pst_topic_info_done(info);
        int rc = watermarks(t, store->topic, info, err);
        if (rc < 0)
            return rc;
    }
}

static int resolve_store(topics *t, const pst_data_store *store, pst_err *err)
{
    pst_topic_info info = {0};
    int rc = watermarks(t, store->topic, &info, err);
    if (!rc)
        rc = wait_for_end(t, store, &info, err);
    int64_t gone = 0;
    for (int p = 0; !rc && p < info.partitions && p < PARTITIONS_MAX; p++) {
        int64_t from = store->from >= 0 ? store->from : info.low[p], to = store->to >= 0 ? store->to : info.high[p];
        if (from < info.low[p]) {
            gone += (to < info.low[p] ? to : info.low[p]) - from;
            from = info.low[p];
        }
        learn_data_add_range(t->d, store->topic, p, from, to > from ? to : from);
    }
    if (gone > 0)
        t->hooks->say(t->hooks->arg, "warning: %lld records of the range of %s are gone from Kafka (retention); learning from the rest",
                      (long long)gone, store->topic);
    pst_topic_info_done(&info);
    return rc;
}

static int nothing_there(const learn_data *d, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
                       "%s has no records in the range; start its source first, or widen from and to of the data store",
                       d->n_ranges ? d->ranges[0].topic : "the topic");
}

static int resolve(topics *t, const pst_data_store *stores, size_t n_stores, const learn_data_range *resume, size_t n_resume, pst_err *err)
{
    int rc = 0;
    size_t known = 0;
    for (size_t i = 0; i < n_resume; i++)
        learn_data_add_range(t->d, resume[i].topic, resume[i].partition, resume[i].from, resume[i].to);
    for (size_t i = 0; !rc && !resume && i < n_stores; i++) {
        if (strcmp(stores[i].type, "topic"))
            continue;
        rc = resolve_store(t, &stores[i], err);
        size_t n = t->d->n_ranges + 1;
        t->limits = pst_realloc(t->limits, n * sizeof *t->limits);
        t->store_of = pst_realloc(t->store_of, n * sizeof *t->store_of);
        for (size_t first = known; known < t->d->n_ranges; known++) {
            t->store_of[known] = first; /* the store's first range keeps the count */
            t->limits[known] = stores[i].records_max > 0 ? stores[i].records_max : -1;
        }
    }
    t->next = pst_alloc((t->d->n_ranges + 1) * sizeof *t->next);
    for (size_t i = 0; i < t->d->n_ranges; i++) {
        t->next[i] = t->d->ranges[i].from;
        t->total += t->d->ranges[i].to - t->d->ranges[i].from;
    }
    return rc ? rc : t->total ? 0 : nothing_there(t->d, err);
}

int learn_data_find_topics(learn_data *d, pst_client *client, const pst_data_store *stores, size_t n_stores,
                           const learn_source_hooks *hooks, pst_err *err)
{
    topics t = {.d = d, .client = client, .hooks = hooks};
    int rc = 0;
    int64_t total = 0;
    for (size_t i = 0; !rc && i < n_stores; i++) {
        size_t first = d->n_ranges;
        if (strcmp(stores[i].type, "topic"))
            continue;
        rc = resolve_store(&t, &stores[i], err);
        if (!rc)
            learn_ranges_limit(d->ranges + first, d->n_ranges - first, stores[i].records_max);
    }
    for (size_t i = 0; i < d->n_ranges; i++)
        total += d->ranges[i].to - d->ranges[i].from;
    return rc ? rc : total ? 0 : nothing_there(d, err);
}

/* ---- records ------------------------------------------------------------------------------------------------------------------- */

static int features_known(topics *t)
{
    size_t k = (size_t)t->s->n_features + 1;
    learn_data_set_columns(t->d);
    t->numbers = pst_alloc(((size_t)t->d->columns + 1) * sizeof *t->numbers);
    t->missing = pst_alloc(k);
    t->texts = pst_alloc(k * sizeof *t->texts);
    return 0;
}

static int take_fields(topics *t, char **fields, size_t n, const char *where, pst_err *err)
{
    int rc = learn_fields_take(t->s, fields, n, where, err);
    for (size_t i = 0; i < n; i++)
        free(fields[i]);
    free(fields);
    if (rc < 0)
        return rc;
    t->hooks->say(t->hooks->arg, "no features are listed: learning from all %d numbers of %s", t->s->n_features, where);
    return features_known(t);
}

static int make_columns(topics *t, const pst_schema *schema, bool text, pst_columns **ret, pst_err *err)
{
    size_t n = (size_t)t->s->n_features;
    pst_want *wants = pst_alloc((n + 1) * sizeof *wants);
    for (size_t i = 0; i < n; i++)
        wants[i] = t->s->features[i].one_hot ? (pst_want){t->s->features[i].field, PST_WANT_WORD, 1}
                                             : (pst_want){t->s->features[i].field, PST_WANT_NUMBER, (uint32_t)t->s->features[i].slots};
    if (t->s->target)
        wants[n++] = (pst_want){t->s->target, text ? PST_WANT_TEXT : PST_WANT_NUMBER, 1};
    int rc = pst_columns_new(schema, wants, n, ret, err);
    free(wants);
    return rc;
}

/* Why records of this schema cannot be read, said so that it can be mended: a target that is text wants its classes named. */
static char *why_unreadable(topics *t, const pst_schema *schema, const pst_err *e)
{
    pst_columns *columns = NULL;
    bool text = t->s->target && !t->s->classes && make_columns(t, schema, true, &columns, NULL) == 0;
    pst_columns_free(columns);
    if (text)
        return pst_sprintf("the target %s is text; list its words as penstock.learner.classes", t->s->target);
    bool word = e->code == PST_EINCOMPAT && strstr(e->text, "a number is wanted");
    return pst_sprintf("%s%s", e->text, word ? WORDS_CURE : "");
}

/* The plan of a schema id, made at first sight. A registry that is away is waited for. */
static int plan_of(topics *t, int32_t id, const plan **ret, pst_err *err)
{
    for (size_t i = 0; i < t->n_plans; i++)
        if (t->plans[i].id == id) {
            *ret = &t->plans[i];
            return 0;
        }
    const pst_schema *schema = NULL;
    pst_err e = {0};
    int rc;
    while ((rc = pst_codec_schema(t->client->codec, id, &schema, &e)) < 0 && e.cls == PST_CLASS_RETRY)
        if ((rc = outage(t, &e)) < 0)
            return rc;
    plan p = {.id = id};
    if (!rc && !t->s->n_features) {
        char **fields;
        size_t n = learn_fields_of_schema(pst_schema_text(schema), &fields);
        if ((rc = take_fields(t, fields, n, pst_schema_name(schema), err)) < 0)
            return rc;
    }
    if (!rc && t->s->classes && (rc = make_columns(t, schema, true, &p.columns, &e)) == 0)
        p.text_target = true;
    else if (!rc || (t->s->classes && rc == PST_EINCOMPAT)) { /* named classes may be numbers in the records */
        pst_err_clear(&e);
        rc = make_columns(t, schema, false, &p.columns, &e);
    }
    if (rc < 0)
        p.why = why_unreadable(t, schema, &e);
    if (t->n_plans >= SCHEMAS_MAX) {
        pst_columns_free(p.columns);
        free(p.why);
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "learner", 0, "the range has more than %d different schemas", SCHEMAS_MAX);
    }
    t->plans = pst_array_one_more(t->plans, t->n_plans, sizeof *t->plans);
    t->plans[t->n_plans] = p;
    *ret = &t->plans[t->n_plans++];
    return 0;
}

/* Of a record that was decoded: words become their numbers. */
static int number_words(topics *t, pst_err *err)
{
    double *to = t->numbers;
    char text[40];
    for (int i = 0; i < t->s->n_features; to += t->s->features[i++].slots) {
        if (!t->s->features[i].one_hot || t->missing[i])
            continue;
        if (!t->texts[i].data && isnan(*to)) {
            t->missing[i] = 1;
            continue;
        }
        int rc = learn_words_number(t->d->words[i], t->texts[i].data ? t->texts[i] : learn_words_text(*to, text), to, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int one_avro(topics *t, const pst_record *r, pst_err *err)
{
    int32_t id;
    pst_slice body;
    pst_err e = {0};
    const plan *p = NULL;
    if (pst_frame_get(r->value, r->value_len, &id, &body, &e) < 0) {
        learn_data_bad(t->d, "%s[%d]@%lld: %s", r->topic, (int)r->partition, (long long)r->offset, e.text);
        return 0;
    }
    int rc = plan_of(t, id, &p, err);
    if (rc < 0)
        return rc;
    size_t n = (size_t)t->s->n_features;
    if (!p->columns || pst_columns_run(p->columns, body.data, body.len, t->numbers, t->missing, t->texts, &e) < 0) {
        learn_data_bad(t->d, "%s[%d]@%lld: %s", r->topic, (int)r->partition, (long long)r->offset, p->columns ? e.text : p->why);
        return 0;
    }
    if ((rc = number_words(t, err)) < 0)
        return rc;
    learn_target target = {.number = NAN};
    if (t->s->target && !t->missing[n]) {
        target.number = p->text_target ? NAN : t->numbers[t->d->columns];
        target.text = p->text_target ? t->texts[n] : (pst_slice){0};
    }
    return learn_data_add(t->d, t->numbers, t->missing, &target, err);
}

/* One feature of words from JSON, as the scorer takes it: a text, "true", "false", or a number as it is usually written. 1, 0: it is there, but none. */
static int json_word(topics *t, int i, const json_t *v, double *to, pst_err *err)
{
    char text[40];
    t->missing[i] = !v || json_is_null(v);
    if (t->missing[i])
        return 1;
    pst_slice word = json_is_string(v)   ? (pst_slice){json_string_value(v), json_string_length(v)}
                     : json_is_true(v)   ? (pst_slice){"true", 4}
                     : json_is_false(v)  ? (pst_slice){"false", 5}
                     : json_is_number(v) ? learn_words_text(json_number_value(v), text)
                                         : (pst_slice){0};
    if (!word.data)
        return 0;
    int rc = learn_words_number(t->d->words[i], word, to, err);
    return rc < 0 ? rc : 1;
}

/* One feature from JSON. false: it is there, but no number (or not as many as there are slots). */
static bool json_numbers(const json_t *v, int slots, double *to, uint8_t *missing)
{
    *missing = !v || json_is_null(v);
    if (*missing) {
        for (int k = 0; k < slots; k++)
            to[k] = NAN;
        return true;
    }
    if (json_is_array(v) ? json_array_size(v) != (size_t)slots : slots > 1)
        return false;
    for (int k = 0; k < slots; k++) {
        const json_t *x = json_is_array(v) ? json_array_get(v, (size_t)k) : v;
        if (json_is_array(v) && json_is_null(x)) { /* as in Avro: this slot is missing, the others are there */
            to[k] = NAN;
            continue;
        }
        if (!json_is_number(x) && !json_is_boolean(x))
            return false;
        to[k] = json_is_boolean(x) ? json_is_true(x) : json_number_value(x);
    }
    return true;
}

/* A field of the wrong kind makes its record a bad one, told with the place; what is missing is left to the policy of learn_data_add(). */
static int fill_json(topics *t, const pst_record *r, const json_t *j, pst_err *err)
{
    double *to = t->numbers;
    for (int i = 0; i < t->s->n_features; i++) {
        const pst_learn_feature *f = &t->s->features[i];
        const json_t *v = learn_json_at(j, f->field);
        int rc = f->one_hot ? json_word(t, i, v, to, err) : json_numbers(v, f->slots, to, &t->missing[i]);
        if (rc < 0)
            return rc;
        if (!rc) {
            learn_data_bad(t->d, "%s[%d]@%lld: %s is not %s", r->topic, (int)r->partition, (long long)r->offset, f->field,
                           f->one_hot      ? "a word: a text, a number or a boolean"
                           : f->slots == 1 ? "a number" WORDS_CURE
                                           : "an array of as many numbers as it has slots");
            return 0;
        }
        to += f->slots;
    }
    learn_target target = {.number = NAN};
    const json_t *v = t->s->target ? learn_json_at(j, t->s->target) : NULL;
    if (json_is_string(v))
        target.text = (pst_slice){json_string_value(v), json_string_length(v)};
    else if (json_is_number(v) || json_is_boolean(v))
        target.number = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
    if (target.text.data && !t->s->classes) {
        learn_data_bad(t->d, "%s[%d]@%lld: the target %s is a text; give the classes' names", r->topic, (int)r->partition,
                       (long long)r->offset, t->s->target);
        return 0;
    }
    return learn_data_add(t->d, t->numbers, t->missing, &target, err);
}

static int one_json(topics *t, const pst_record *r, pst_err *err)
{
    json_t *j = NULL;
    pst_err e = {0};
    int rc = pst_json_parse(r->value, r->value_len, "the value", &j, &e);
    if (rc < 0 || !json_is_object(j)) {
        learn_data_bad(t->d, "%s[%d]@%lld: %s", r->topic, (int)r->partition, (long long)r->offset, rc < 0 ? e.text : "not a JSON object");
        json_decref(j);
        return 0;
    }
    rc = 0;
    if (!t->s->n_features) {
        char **fields;
        size_t n = learn_fields_of_json(j, &fields);
        rc = take_fields(t, fields, n, r->topic, err);
    }
    if (!rc)
        rc = fill_json(t, r, j, err);
    json_decref(j);
    return rc;
}

static int one_record(topics *t, const pst_record *r, pst_err *err)
{
    size_t i = 0;
    while (i < t->d->n_ranges && (t->d->ranges[i].partition != r->partition || strcmp(t->d->ranges[i].topic, r->topic)))
        i++;
    if (i == t->d->n_ranges || r->offset < t->next[i])
        return 0;
    if (t->limits) {
        int64_t *left = &t->limits[t->store_of[i]];
        if (*left == 0)
            return 0;
        *left -= *left > 0;
    }
    t->seen += r->offset + 1 - t->next[i];
    t->next[i] = r->offset + 1;
    t->d->part_now = (uint32_t)i;
    if (!r->value || !r->value_len) {
        learn_data_bad(t->d, "%s[%d]@%lld has no value", r->topic, (int)r->partition, (long long)r->offset);
        return 0;
    }
    const char *text = r->value;
    if (!*text)
        return one_avro(t, r, err);
    if (*text == '{')
        return one_json(t, r, err);
    learn_data_bad(t->d, "%s[%d]@%lld is neither framed Avro nor a JSON object", r->topic, (int)r->partition, (long long)r->offset);
    return 0;
}

static bool enough(const topics *t)
{
    bool all = t->limits != NULL;
    for (size_t i = 0; all && i < t->d->n_ranges; i++)
        all = t->limits[t->store_of[i]] == 0 || t->next[i] >= t->d->ranges[i].to;
    return all;
}

/* Ranges have ends, so that the reading has one; an outage between is waited out and said. What a stop interrupts is read anew by the next
 * run. */
static int read_all(topics *t, pst_err *err)
{
    pst_range *ranges = pst_alloc((t->d->n_ranges + 1) * sizeof *ranges);
    for (size_t i = 0; i < t->d->n_ranges; i++)
        ranges[i] = (pst_range){t->d->ranges[i].topic, t->d->ranges[i].partition, t->d->ranges[i].from, t->d->ranges[i].to};
    int rc = pst_consumer_new(t->client->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = t->d->n_ranges, .report_eof = true},
                              &t->consumer, err);
    t->said_us = pst_mono_us();
    for (bool end = false; !rc && !end;) {
        pst_err e = {0};
        pst_batch b;
        if (stopped(t))
            rc = PST_ESTOPPED;
        else if ((rc = pst_consumer_poll(t->consumer, &(pst_poll){.records_max = 2000, .bytes_max = 4 << 20, .timeout_ms = 200}, &b, &e)) <
                 0)
            *err = e;
        else if (!b.n && e.code && e.cls == PST_CLASS_RETRY)
            pst_log_err("learner", &e);
        for (size_t i = 0; !rc && i < b.n; i++) {
            rc = one_record(t, &b.records[i], err);
            rc = rc > 0 ? 0 : rc;
        }
        end = !rc && (b.eof || enough(t));
        if (!rc && pst_mono_us() - t->said_us > SAY_EVERY_US) {
            t->said_us = pst_mono_us();
            t->hooks->say(t->hooks->arg, "read %lld of %lld records", (long long)t->seen, (long long)t->total);
        }
    }
    free(ranges);
    return rc;
}

/* What was really read: a limit, or a transaction that is still open, may have ended it before the range's end. */
static void settle_ranges(topics *t, bool resumed)
{
    size_t n = t->consumer ? t->d->n_ranges : 0;
    pst_range *at = pst_alloc((n + 1) * sizeof *at);
    size_t known = n ? pst_consumer_assignment(t->consumer, at, n) : 0;
    for (size_t i = 0; i < n; i++) {
        learn_data_range *r = &t->d->ranges[i];
        bool limited = !resumed && t->limits && t->limits[t->store_of[i]] == 0;
        int64_t position = t->next[i]; /* the position also passes over markers that are no records */
        for (size_t k = 0; k < known && !limited; k++)
            if (at[k].partition == r->partition && !strcmp(at[k].topic, r->topic) && at[k].from > position)
                position = at[k].from;
        if (position < r->to)
            r->to = position;
    }
    free(at);
}

int learn_data_read_topics(learn_data *d, pst_learn_settings *s, pst_client *client, const pst_data_store *stores, size_t n_stores,
                           const learn_data_range *resume, size_t n_resume, const learn_source_hooks *hooks, pst_err *err)
{
    topics t = {.d = d, .s = s, .client = client, .hooks = hooks};
    if (s->n_features)
        features_known(&t);
    int rc = resolve(&t, stores, n_stores, resume, n_resume, err);
    if (!rc)
        rc = read_all(&t, err);
    if (!rc) {
        settle_ranges(&t, resume != NULL);
        if (d->columns)
            learn_data_sort(d);
    }
    pst_consumer_free(t.consumer);
    for (size_t i = 0; i < t.n_plans; i++) {
        pst_columns_free(t.plans[i].columns);
        free(t.plans[i].why);
    }
    void *all[] = {t.plans, t.numbers, t.missing, t.texts, t.limits, t.store_of, t.next};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return rc;
}
