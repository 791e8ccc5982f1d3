/* topics.c - /v1/topics: which topics there are, how far their readers are behind, and their newest records, decoded. All of it is asked of Kafka at the
 * moment of the request, with the gateway's own rights there. Not shown are records of topics that hold what is secret: requests as they came (with
 * passwords of data stores), and what the Trainer and its nodes tell each other (the marks by which they believe each other). */
#include "common/base/clock.h"
#include "common/base/settings.h"
#include "common/base/stop.h"
#include "common/bus/bus.h"
#include "producers/gateway/letters.h"
#include "producers/gateway/record_json.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/task.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIMIT = 20,
    LIMIT_MAX = 500,
    ADMIN_MS = 10000,
    READ_US = 15 * 1000000,
    READ_RECORDS_MAX = 5000, /* of all partitions, before the newest of them are chosen */
    READ_BYTES_MAX = 16 << 20
};

/* ---- names ----------------------------------------------------------------------------------------------------------------------- */

/* The platform's own topic of this full name; NULL: it is none. */
static const pst_topic_def *own(const pst_client *c, const char *topic)
{
    for (int t = 0; t < PST_TOPIC_COUNT; t++)
        if (!strcmp(c->topics[t], topic))
            return pst_topic_get((pst_topic)t);
    return NULL;
}

/* Names of the platform's topics may be said without their prefix, as in the addresses of event streams. */
static const char *full_name(const gw_task *t)
{
    const pst_client *c = t->g->client;
    const char *given = pst_http_param(t->req, "topic");
    for (int i = 0; i < PST_TOPIC_COUNT; i++)
        if (!strcmp(pst_topic_get((pst_topic)i)->suffix, given))
            return c->topics[i];
    return given;
}

static bool is_internal(const char *topic)
{
    return !strncmp(topic, "__", 2) || !strcmp(topic, "_schemas");
}

static bool is_withheld(const pst_client *c, const char *topic)
{
    const pst_topic_def *d = own(c, topic);
    return d && (!strcmp(d->suffix, "jobs.requests") || !strstr(d->readers, "gateway"));
}

static const char *kind_of(const pst_client *c, const char *topic)
{
    size_t n = strlen(topic);
    if (own(c, topic))
        return "platform";
    if (is_internal(topic))
        return "internal";
    return n > 4 && !strcmp(topic + n - 4, ".dlq") ? "dead_letters" : "user";
}

/* ---- all topics ------------------------------------------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pst_topic_info *)a)->name, ((const pst_topic_info *)b)->name);
}

static json_t *list_row(const pst_client *c, const pst_topic_info *info)
{
    const pst_topic_def *d = own(c, info->name);
    json_t *j = json_pack("{s:s, s:s, s:i}", "name", info->name, "kind", kind_of(c, info->name), "partitions", info->partitions);
    json_object_set_new(j, "event", d ? json_string(d->type_name) : json_null());
    json_object_set_new(j, "doc", d ? json_string(d->doc) : json_null());
    return j;
}

static int read_list(gw_task *t, pst_err *err)
{
    pst_topic_info *all = NULL;
    size_t n = 0;
    bool internal = pst_http_query_bool(t->req, "internal");
    int rc = pst_admin_list(t->g->client->bus, &all, &n, ADMIN_MS, err);
    json_t *list = json_array();
    if (!rc)
        qsort(all, n, sizeof *all, by_name);
    for (size_t i = 0; i < n; i++) {
        if (!rc && (internal || !is_internal(all[i].name)))
            json_array_append_new(list, list_row(t->g->client, &all[i]));
        pst_topic_info_done(&all[i]);
    }
    free(all);
    t->answer = json_pack("{s:o}", "topics", list);
    return rc;
}

/* ---- one topic -------------------------------------------------------------------------------------------------------------------- */

static json_t *known(int64_t n)
{
    return n >= 0 ? json_integer(n) : json_null();
}

static json_t *group_of(json_t *groups, const char *name)
{
    size_t i;
    json_t *g;
    json_array_foreach(groups, i, g) if (!strcmp(pst_json_str(g, "group", ""), name)) return g;
    g = json_pack("{s:s, s:i, s:[]}", "group", name, "lag", 0, "partitions");
    json_array_append_new(groups, g);
    return g;
}

/* A group's lag is null once that of one partition is not known: a part of a sum would look like all of it. */
static void add_lag(json_t *groups, const pst_group_lag *r)
{
    json_t *g = group_of(groups, r->group), *sum = json_object_get(g, "lag");
    json_array_append_new(json_object_get(g, "partitions"), json_pack("{s:i, s:o, s:o, s:o}", "partition", (int)r->partition, "committed",
                                                                      known(r->committed), "end", known(r->end), "lag", known(r->lag)));
    json_object_set_new(g, "lag", r->lag >= 0 && !json_is_null(sum) ? json_integer(json_integer_value(sum) + r->lag) : json_null());
}

/* Who reads it, and how far behind; NULL: could not be asked, and err says why. */
static json_t *groups_of(gw_task *t, const char *topic, pst_err *err)
{
    pst_group_lag *rows = NULL;
    size_t n = 0;
    if (pst_admin_lag(t->g->client->bus, NULL, &rows, &n, ADMIN_MS, err) < 0)
        return NULL;
    json_t *groups = json_array();
    for (size_t i = 0; i < n; i++)
        if (!strcmp(rows[i].topic, topic))
            add_lag(groups, &rows[i]);
    pst_group_lag_free(rows, n);
    return groups;
}

static int no_topic(const char *topic, pst_err *err)
{
    pst_err_clear(err);
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "kafka", 0, "there is no topic %.249s; GET /v1/topics has all", topic);
}

static bool can_be_topic(const char *name)
{
    size_t n = strlen(name);
    return n && n <= 249 && strcmp(name, ".") && strcmp(name, "..") &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* Its partitions with their ends. What is not there is looked for among all names first: a broker that makes topics by itself would else make it. */
static int open_topic(gw_task *t, const char *topic, pst_topic_info *ret, pst_err *err)
{
    pst_topic_info *all = NULL;
    size_t n = 0;
    bool there = false;
    if (!can_be_topic(topic))
        return no_topic(topic, err);
    int rc = pst_admin_list(t->g->client->bus, &all, &n, ADMIN_MS, err);
    for (size_t i = 0; i < n; i++) {
        there = there || !strcmp(all[i].name, topic);
        pst_topic_info_done(&all[i]);
    }
    free(all);
    if (!rc && !there)
        return no_topic(topic, err);
    if (!rc)
        rc = pst_admin_topic(t->g->client->bus, topic, ret, ADMIN_MS, err);
    return rc == PST_ENOTFOUND ? no_topic(topic, err) : rc;
}

static int read_one(gw_task *t, pst_err *err)
{
    const char *topic = full_name(t);
    pst_topic_info info = {0};
    pst_err unread = {0};
    int rc = open_topic(t, topic, &info, err);
    json_t *partitions = json_array();
    int64_t offsets = 0;
    for (int p = 0; !rc && p < info.partitions; p++) {
        json_array_append_new(
            partitions, json_pack("{s:i, s:I, s:I}", "partition", p, "low", (json_int_t)info.low[p], "high", (json_int_t)info.high[p]));
        offsets += info.high[p] - info.low[p];
    }
    if (!rc) {
        json_t *groups = groups_of(t, topic, &unread);
        t->answer = list_row(t->g->client, &info);
        json_object_set(t->answer, "partitions", partitions);
        json_object_set_new(t->answer, "offsets", json_integer(offsets));
        json_object_set_new(t->answer, "groups", groups ? groups : json_null());
        if (!groups)
            json_object_set_new(t->answer, "groups_not_read", json_string(unread.text));
    }
    json_decref(partitions);
    pst_topic_info_done(&info);
    return rc;
}

/* ---- the newest records ------------------------------------------------------------------------------------------------------------ */

typedef struct newest {
    json_t *records;
    size_t bytes;
    bool full; /* READ_BYTES_MAX */
    pst_header_room room;
} newest;

/* The last n records of each partition that is wanted; which of them are the newest of all is seen when they are read. */
static int place(gw_task *t, const pst_topic_info *info, int64_t only, size_t n, pst_range *ret_ranges, size_t *ret_n, pst_err *err)
{
    pst_tail *tails = pst_alloc((size_t)(info->partitions + 1) * sizeof *tails);
    size_t looked = 0;
    for (int p = 0; p < info->partitions; p++)
        if ((only < 0 || p == only) && info->low[p] < info->high[p])
            tails[looked++] = (pst_tail){.topic = info->name, .partition = p, .low = info->low[p], .end = info->high[p], .n = (int64_t)n};
    int rc = looked ? pst_admin_tail(t->g->client->bus, tails, looked, false, READ_US / 1000, err) : 0;
    for (size_t i = 0; !rc && i < looked; i++)
        if (tails[i].from < tails[i].end)
            ret_ranges[(*ret_n)++] = (pst_range){info->name, tails[i].partition, tails[i].from, tails[i].end};
    free(tails);
    return rc;
}

static void take(gw_task *t, newest *all, const pst_batch *b)
{
    for (size_t i = 0; i < b->n && !all->full; i++) {
        json_array_append_new(all->records, gw_record_json(t->g->client, &b->records[i], &all->room));
        all->bytes += b->records[i].value_len + b->records[i].key_len;
        all->full = all->bytes > READ_BYTES_MAX;
    }
}

static int read_ranges(gw_task *t, const pst_range *ranges, size_t n, newest *all, pst_err *err)
{
    pst_consumer *consumer = NULL;
    int64_t until = pst_mono_us() + READ_US;
    int rc = pst_consumer_new(t->g->client->bus, &(pst_consumer_opts){.ranges = ranges, .n_ranges = n, .report_eof = true}, &consumer, err);
    for (bool end = false; !rc && !end && !all->full;) {
        pst_batch b;
        pst_err e = {0};
        rc = pst_consumer_poll(consumer, &(pst_poll){.records_max = 1000, .bytes_max = 4 << 20, .timeout_ms = 100}, &b, &e);
        if (!rc)
            take(t, all, &b);
        end = !rc && b.eof;
        if (rc < 0)
            *err = e;
        else if (pst_stop_requested() || pst_mono_us() > until)
            rc = pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_RETRY, "kafka", 0, "reading took longer than %d s%s%s", READ_US / 1000000,
                             e.code ? ": " : "", e.text);
    }
    pst_consumer_free(consumer);
    return rc;
}

static int64_t number(const json_t *j, const char *key)
{
    return pst_json_int(j, key, -1);
}

static int by_time(const void *a, const void *b)
{
    static const char *const keys[] = {"timestamp", "partition", "offset"};
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (number(x, keys[i]) != number(y, keys[i]))
            return number(x, keys[i]) < number(y, keys[i]) ? -1 : 1;
    return 0;
}

/* The last `limit` of them by time, oldest first; a partition's order is kept among equal times. */
static json_t *cut(const json_t *records, size_t limit)
{
    size_t n = json_array_size(records), i;
    json_t **sorted = pst_alloc((n + 1) * sizeof *sorted), *one, *list = json_array();
    json_array_foreach(records, i, one) sorted[i] = one;
    qsort(sorted, n, sizeof *sorted, by_time);
    for (i = n > limit ? n - limit : 0; i < n; i++)
        json_array_append(list, sorted[i]);
    free(sorted);
    return list;
}

static int read_newest(gw_task *t, pst_err *err)
{
    const char *topic = full_name(t);
    int64_t only = pst_http_query_int(t->req, "partition", -1);
    size_t limit = gw_limit(t->req, LIMIT, LIMIT_MAX), n = 0;
    newest all = {.records = json_array()};
    pst_topic_info info = {0};
    if (is_withheld(t->g->client, topic)) {
        json_decref(all.records);
        return pst_err_set(
            err, PST_EAUTH, PST_CLASS_DATA, "gateway", 0,
            "records of %.249s hold what is secret and are not shown here; `penstock cat` reads them with your own rights on "
            "the cluster",
            topic);
    }
    int rc = open_topic(t, topic, &info, err);
    if (!rc && only >= info.partitions)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "kafka", 0, "%.249s has partitions 0 to %d", topic, info.partitions - 1);
    pst_range *ranges = pst_alloc((size_t)(info.partitions + 1) * sizeof *ranges);
    size_t parts = only >= 0 || info.partitions < 1 ? 1 : (size_t)info.partitions, each = READ_RECORDS_MAX / parts;
    if (!rc)
        rc = place(t, &info, only, each < 1 ? 1 : each < limit ? each : limit, ranges, &n, err);
    if (!rc && n)
        rc = read_ranges(t, ranges, n, &all, err);
    if (!rc)
        t->answer = json_pack("{s:s, s:o, s:b}", "topic", topic, "records", cut(all.records, limit), "cut", (int)all.full);
    json_decref(all.records);
    pst_header_room_done(&all.room);
    free(ranges);
    pst_topic_info_done(&info);
    return rc;
}

static void list(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, read_list);
}

static void show(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, read_one);
}

static void records(void *arg, pst_http_req *req)
{
    gw_task_start(arg, req, read_newest);
}

/* ---- routes -------------------------------------------------------------------------------------------------------------------------- */

static const gw_schema schemas[] = {
    {"Topic", GW_JSON({
         "type" : "object",
         "required" : [ "name", "kind", "partitions", "event", "doc" ],
         "properties" : {
             "name" : {"type" : "string"},
             "kind" : {"enum" : [ "platform", "user", "dead_letters", "internal" ]},
             "partitions" : {"type" : "integer", "description" : "how many"},
             "event" : {"type" : [ "string", "null" ], "description" : "of the platform's topics: what their records are"},
             "doc" : {"type" : [ "string", "null" ]}
         }
     })},
    {"TopicList", GW_JSON({
         "type" : "object",
         "required" : ["topics"],
         "properties" : {"topics" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/Topic"}}}
     })},
    {"TopicDetails", GW_JSON({
         "type" : "object",
         "required" : [ "name", "kind", "partitions", "offsets", "groups" ],
         "properties" : {
             "name" : {"type" : "string"},
             "kind" : {"enum" : [ "platform", "user", "dead_letters", "internal" ]},
             "event" : {"type" : [ "string", "null" ]},
             "doc" : {"type" : [ "string", "null" ]},
             "partitions" : {
                 "type" : "array",
                 "items" : {
                     "type" : "object",
                     "required" : [ "partition", "low", "high" ],
                     "properties" : {
                         "partition" : {"type" : "integer"},
                         "low" : {"type" : "integer", "format" : "int64", "description" : "the first offset that there is"},
                         "high" : {"type" : "integer", "format" : "int64", "description" : "where the next record will stand"}
                     }
                 }
             },
             "offsets" :
                 {"type" : "integer", "format" : "int64", "description" : "high less low, of all partitions: no fewer than its records"},
             "groups" : {
                 "type" : [ "array", "null" ],
                 "description" : "who reads it; null: they could not be asked, `groups_not_read` says why",
                 "items" : {"$ref" : "#/components/schemas/GroupLag"}
             },
             "groups_not_read" : {"type" : "string"}
         }
     })},
    {"GroupLag", GW_JSON({
         "type" : "object",
         "description" : "What a consumer group has still to read of the topic. null: not known.",
         "required" : [ "group", "lag", "partitions" ],
         "properties" : {
             "group" : {"type" : "string"},
             "lag" : {"type" : [ "integer", "null" ], "format" : "int64"},
             "partitions" : {
                 "type" : "array",
                 "items" : {
                     "type" : "object",
                     "properties" : {
                         "partition" : {"type" : "integer"},
                         "committed" : {"type" : [ "integer", "null" ], "format" : "int64"},
                         "end" : {"type" : [ "integer", "null" ], "format" : "int64"},
                         "lag" : {"type" : [ "integer", "null" ], "format" : "int64"}
                     }
                 }
             }
         }
     })},
    {"RecordBody", GW_JSON({
         "type" : "object",
         "description" : "`data` where it is known what the bytes are, else `hex`; `why`: why they were not decoded.",
         "required" : [ "format", "bytes" ],
         "properties" : {
             "format" : {"enum" : [ "avro", "json", "text", "bytes", "null" ]},
             "bytes" : {"type" : "integer", "format" : "int64"},
             "schema_id" : {"type" : "integer"},
             "data" : {},
             "hex" : {"type" : "string"},
             "cut" : {"type" : "boolean"},
             "why" : {"type" : "string"}
         }
     })},
    {"TopicRecord", GW_JSON({
         "type" : "object",
         "required" : [ "topic", "partition", "offset", "timestamp", "key", "headers", "value" ],
         "properties" : {
             "topic" : {"type" : "string"},
             "partition" : {"type" : "integer"},
             "offset" : {"type" : "integer", "format" : "int64"},
             "timestamp" : {"type" : [ "integer", "null" ], "format" : "int64", "description" : "milliseconds since 1970"},
             "key" : {"$ref" : "#/components/schemas/RecordBody"},
             "headers" : {
                 "type" : "array",
                 "items" : {
                     "type" : "object",
                     "required" : ["name"],
                     "properties" :
                         {"name" : {"type" : "string"}, "value" : {"type" : [ "string", "null" ]}, "hex" : {"type" : "string"}}
                 }
             },
             "value" : {"$ref" : "#/components/schemas/RecordBody"}
         }
     })},
    {"TopicRecords", GW_JSON({
         "type" : "object",
         "required" : [ "topic", "records", "cut" ],
         "properties" : {
             "topic" : {"type" : "string"},
             "records" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/TopicRecord"}},
             "cut" : {"type" : "boolean", "description" : "they were too large to read all of them"}
         }
     })},
    GW_LETTER_SCHEMAS,
    {0}};
#define TOPIC                                                                                                                          \
    {                                                                                                                                  \
        "topic", "path", GW_JSON({"type" : "string", "maxLength" : 249}), "its name; one of the platform's may be said without prefix" \
    }
static const gw_param of_list[] = {{"internal", "query", GW_JSON({"type" : "boolean", "default" : false}), "Kafka's own topics, too"}, {0}},
                      of_topic[] = {TOPIC, {0}},
                      of_records[] = {
                          TOPIC,
                          {"limit", "query", GW_JSON({"type" : "integer", "minimum" : 1, "maximum" : 500, "default" : 20}), "how many"},
                          {"partition", "query", GW_JSON({"type" : "integer", "minimum" : 0, "maximum" : 2147483647}), "of this one alone"},
                          {0}};
#define NO_TOPIC                                  \
    {                                             \
        404, "there is no such topic", GW_PROBLEM \
    }
#define NO_RIGHT(what)        \
    {                         \
        403, what, GW_PROBLEM \
    }
static const gw_param of_letters[] = {TOPIC, GW_LETTER_FILTERS, GW_LETTER_BY, {0}},
                      of_letter[] = {TOPIC,
                                     {"partition", "path", GW_JSON({"type" : "integer", "minimum" : 0, "maximum" : 2147483647}),
                                      "of the topic of dead letters"},
                                     {"offset", "path", GW_JSON({"type" : "integer", "minimum" : 0, "maximum" : 9223372036854775807}),
                                      "the dead letter's"},
                                     {0}},
                      of_replay[] = {TOPIC, GW_LETTER_FILTERS, GW_LETTER_DRY, {0}};
static const gw_answer to_list[] = {{200, "by name", "application/json", "TopicList"}, GW_TASK_FAILED, {0}},
                       to_show[] = {{200, "the topic", "application/json", "TopicDetails"},
                                    NO_RIGHT("the gateway may not look at it"),
                                    NO_TOPIC,
                                    GW_TASK_FAILED,
                                    {0}},
                       to_records[] = {{200, "the newest ones by time, oldest first", "application/json", "TopicRecords"},
                                       NO_RIGHT("its records are secret, or the gateway may not read them"),
                                       NO_TOPIC,
                                       GW_TASK_FAILED,
                                       {0}},
                       to_letters[] = GW_LETTER_COUNTED, to_replay[] = GW_LETTER_REPLAYED,
                       to_letter[] = {{200, "the dead letter: where it came from, why it died, its key, headers and value",
                                       "application/json", GW_JSON({"type" : "object"})},
                                      GW_NO_LETTERS};

static const gw_route routes[] = {
    {{"GET", "/v1/topics", list, 0, GW_ALL, "The topics of the cluster that the gateway may see."}, "listTopics", of_list, NULL, to_list},
    {{"GET", "/v1/topics/{topic}", show, 0, GW_ALL, "Its partitions with their ends, and how far each consumer group is behind."},
     "showTopic",
     of_topic,
     NULL,
     to_show},
    {{"GET", "/v1/topics/{topic}/records", records, 0, GW_VIEWER,
      "Its newest records, decoded where they are Avro of the registry or JSON. Requests and what the Trainer and nodes tell each other "
      "are not shown."},
     "readRecords",
     of_records,
     NULL,
     to_records},
    {{"GET", "/v1/topics/{topic}/dead-letters", gw_letters_count, 0, GW_VIEWER,
      "Its dead letters, counted by kind, with the newest error of each."},
     "countLetters",
     of_letters,
     NULL,
     to_letters},
    {{"GET", "/v1/topics/{topic}/dead-letters/{partition}/{offset}", gw_letters_show, 0, GW_VIEWER,
      "One dead letter whole, as `penstock dlq show`."},
     "showLetter",
     of_letter,
     NULL,
     to_letter},
    {{"POST", "/v1/topics/{topic}/dead-letters/replay", gw_letters_replay, 0, 0,
      "Puts dead letters back on the topics that they came from, each once, as `penstock dlq replay`."},
     "replayLetters",
     of_replay,
     NULL,
     to_replay},
};

const gw_noun gw_topics_noun = {"topics", "Topics: ends, lag, records.", routes, sizeof routes / sizeof *routes, schemas};
