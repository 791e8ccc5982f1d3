/* sink_opensearch.c - records as documents of OpenSearch or Elasticsearch, by the bulk API that both have.
 *
 *     poll ─► documents ─► POST /_bulk ─► a verdict each ─┬─ stored, or there already
 *                              ▲                          ├─ not now ──────► again, later (the loop waits and keeps the group served)
 *                              └──────────────────────────┘  never ────────► dead letter, with the original bytes
 *     all of a poll decided ─► offsets committed
 *
 * A consumer group, so that several share the work and `penstock lag` knows how far behind they are. What is sent twice, because an answer was cut or the sink was
 * killed, has the same id and is one document. An index template is put where there is none, before the first document: left to guesses, a
 * metric whose first value is 1 would be a whole number for ever, and one that is NaN would cost the whole document. */
#include "consumers/sink/sink.h"
#include "consumers/sink/sink_bulk.h"
#include "consumers/sink/sink_letters.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/map.h"
#include "common/base/secret.h"
#include "common/base/stop.h"
#include "common/http/fetch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_MAX = 64 << 20,
    CREDENTIALS_MAX = 16 << 10,
    STOP_US = 5000000, /* a request under way gets so long after a stop */
    TEMPLATE_PRIORITY = 150,
};
#define TIME_MAX_US     253402300799000000 /* the year 9999: later ones are no dates */
#define CREDENTIALS_ENV "PENSTOCK_OPENSEARCH_CREDENTIALS"

typedef struct os_opts {
    sink_opts all;
    const char *url, *index, *group, *credentials, *ca_file, *letters, *template;
    int64_t bulk_bytes, timeout_us;
} os_opts;
static const pst_opt os_options[] = {
    SINK_OPTS(os_opts, "jobs.events,logs,metrics,models"),
    {"url", 'u', PST_OPT_STR, offsetof(os_opts, url), "URL", NULL, "where OpenSearch or Elasticsearch answers; required"},
    {"index", 'i', PST_OPT_STR, offsetof(os_opts, index), "NAME", NULL, "all topics into this index [an index each, named as the topic]"},
    {"group", 'G', PST_OPT_STR, offsetof(os_opts, group), "G", NULL, "the consumer group [PREFIXsink.opensearch.HOST[.INDEX]]"},
    {"credentials", 0, PST_OPT_STR, offsetof(os_opts, credentials), "FILE", NULL,
     "a file with user:password, `ApiKey KEY` or `Bearer TOKEN` [" CREDENTIALS_ENV "]"},
    {"ca-file", 0, PST_OPT_STR, offsetof(os_opts, ca_file), "FILE", NULL, "trust this CA (PEM) in place of the system's"},
    {"dead-letters", 0, PST_OPT_STR, offsetof(os_opts, letters), "TOPIC|none", NULL,
     "where documents go that are refused for good [<topic>.dlq]; none: they are said on stderr and left out"},
    {"template", 0, PST_OPT_STR, offsetof(os_opts, template), "once|replace|none", "once",
     "the index template: put where there is none, put at every start, or left to you"},
    {"bulk-bytes", 0, PST_OPT_BYTES, offsetof(os_opts, bulk_bytes), "BYTES 1024..104857600", "5MiB", "of documents in one request"},
    {"timeout", 0, PST_OPT_SPAN, offsetof(os_opts, timeout_us), "T", "60s", "of one request; then it is sent again"},
};
extern const pst_usage sink_opensearch_usage;
const pst_usage sink_opensearch_usage = {
    "sink opensearch",
    "--url URL",
    "Index topics in OpenSearch or Elasticsearch.",
    "One document a record, id TOPIC-PARTITION-OFFSET: the record's fields, @timestamp, and @kafka (topic, partition, offset, timestamp, "
    "key). Offsets are committed when the "
    "documents are stored, so nothing is lost and nothing is there twice. What cannot be stored now (429, 5xx, no answer) is sent again, "
    "with "
    "growing waits; what never can (a field of another type) goes to the dead-letter topic (`penstock dlq ls TOPIC.dlq`).\n"
    "Credentials come from --credentials or " CREDENTIALS_ENV ", never from the address. Several with one group share the partitions.",
    "penstock sink opensearch --url http://localhost:9200\npenstock sink opensearch --url https://search.example.org --ca-file ca.pem "
    "--credentials /run/secrets/search\n"
    "penstock sink opensearch --url http://localhost:9200 --topics telemetry.scores --index scores",
    os_options,
    sizeof os_options / sizeof *os_options,
    false};

typedef struct os {
    char *url, *index, *group, *ca_file;
    char *user, *password, *authorization; /* one of them, or none */
    bool template_once, template_never;
    int timeout_ms;
    size_t bulk_bytes_max;
    pst_fetch *fetch; /* NULL until the first request */
    pst_map ready;    /* indices whose template is there, or is not ours to put */
    pst_map indices;  /* of what waits */
    sink_bulk bulk;
    sink_bulk_item *refused;
    size_t n_refused, cap_refused;
    bool letters_sent; /* of all refused; not acknowledged yet */
    size_t accepted;   /* since the last settle that was done */
    sink_letters *letters;
    int64_t stop_us; /* when a stop was seen during the request; 0 */
} os;

/* ---- options ---- */

/* "user:password", "ApiKey …", "Bearer …" */
static int take_credentials(os *o, char *text, const char *from, pst_err *err)
{
    text[strcspn(text, "\r\n")] = 0;
    char *colon = strchr(text, ':');
    if (!strncmp(text, "ApiKey ", 7) || !strncmp(text, "Bearer ", 7)) {
        o->authorization = pst_sprintf("Authorization: %s", text);
        return 0;
    }
    if (!colon || colon == text)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "%s: expected one line: user:password, or ApiKey KEY, or Bearer TOKEN", from);
    o->user = pst_strndup(text, (size_t)(colon - text));
    o->password = pst_strdup(colon + 1);
    return 0;
}

static int read_credentials(os *o, const char *file, pst_err *err)
{
    const char *env = getenv(CREDENTIALS_ENV);
    pst_buf b = {0};
    int rc = 0;
    if (file && (rc = pst_fs_read(file, CREDENTIALS_MAX, &b, err)) < 0)
        pst_err_prefix(err, "--credentials");
    else if (file || (env && *env))
        pst_buf_adds(&b, file ? "" : env);
    if (!rc && b.data)
        rc = take_credentials(o, b.data, file ? file : CREDENTIALS_ENV, err);
    if (b.data)
        pst_secret_hide(b.data);
    pst_buf_done(&b);
    return rc;
}

static int check_url(const os_opts *o, pst_err *err)
{
    if (!o->url || !*o->url)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "where to? --url http://HOST:9200");
    const char *host = !strncmp(o->url, "http://", 7) ? o->url + 7 : !strncmp(o->url, "https://", 8) ? o->url + 8 : NULL;
    if (!host || strchr("/:", *host) || strpbrk(host, "?# "))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--url: expected http://HOST[:PORT][/PATH] or https://…");
    if (memchr(host, '@', strcspn(host, "/"))) {
        pst_secret_hide_url(o->url);
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "--url: no credentials in the address, where others can see them; put user:password into a file (--credentials "
                           "FILE) or into " CREDENTIALS_ENV);
    }
    return 0;
}

static int check_words(const os_opts *o, pst_err *err)
{
    if (strcmp(o->template, "once") != 0 && strcmp(o->template, "replace") != 0 && strcmp(o->template, "none") != 0)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--template %s: there is once, replace, none", o->template);
    if (o->timeout_us < 1000 || o->timeout_us > 3600 * 1000000LL)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--timeout: from 1ms to 1h");
    if (!o->index)
        return 0;
    char *fit = sink_bulk_index(o->index);
    int rc = *o->index && !strcmp(fit, o->index)
                 ? 0
                 : pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--index %s: no index can have that name; `%s` would do",
                               o->index, *o->index ? fit : "penstock");
    free(fit);
    return rc;
}

/* "https://host:9200/path" → "host_9200"; a group's name tells which server it is for, and its offsets stay apart from those of another. */
static char *group_of(const os_opts *o, const pst_settings *settings)
{
    const char *host = strstr(o->url, "://") + 3;
    char *place = pst_strndup(host, strcspn(host, "/"));
    for (char *p = place; *p; p++)
        *p = isalnum((unsigned char)*p) || strchr(".-_", *p) ? *p : '_';
    char *suffix = pst_sprintf("sink.opensearch.%s%s%s", place, o->index ? "." : "", o->index ? o->index : "");
    char *group = pst_settings_topic(settings, suffix);
    free(suffix);
    free(place);
    return group;
}

static void os_close(void *sink)
{
    os *o = sink;
    pst_fetch_close(o->fetch);
    pst_map_done(&o->ready, NULL);
    pst_map_done(&o->indices, NULL);
    sink_bulk_done(&o->bulk);
    sink_letters_free(o->letters);
    char *texts[] = {o->url, o->index, o->group, o->ca_file, o->user, o->password, o->authorization};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    free(o->refused);
    free(o);
}

static int os_open(const void *opts, pst_client *client, void **ret_sink, pst_err *err)
{
    const os_opts *all = opts;
    int rc = check_url(all, err);
    if (!rc)
        rc = check_words(all, err);
    if (!rc && all->ca_file && !pst_fs_exists(all->ca_file))
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_FATAL, "config", 0, "--ca-file %s: there is no such file", all->ca_file);
    if (rc < 0)
        return rc;
    os *o = pst_alloc(sizeof *o);
    o->url = pst_strdup(all->url);
    for (size_t n = strlen(o->url); n && o->url[n - 1] == '/'; n--)
        o->url[n - 1] = 0;
    o->index = pst_strdup(all->index);
    o->group = all->group ? pst_strdup(all->group) : group_of(all, client->settings);
    o->ca_file = pst_strdup(all->ca_file);
    o->template_once = !strcmp(all->template, "once");
    o->template_never = !strcmp(all->template, "none");
    o->timeout_ms = (int)(all->timeout_us / 1000);
    o->bulk_bytes_max = (size_t)all->bulk_bytes;
    o->letters = sink_letters_new(client, "sink opensearch", all->letters);
    rc = read_credentials(o, all->credentials, err);
    if (rc < 0)
        os_close(o);
    else
        *ret_sink = o;
    return rc;
}

static const char *os_group(const void *sink)
{
    return ((const os *)sink)->group;
}

/* ---- requests ---- */

static bool take_answer(void *arg, const void *data, size_t len)
{
    pst_buf *b = arg;
    if (b->len + len > ANSWER_MAX)
        return false;
    pst_buf_add(b, data, len);
    return true;
}

/* The fetch has one argument for its functions; this is it. */
typedef struct call {
    os *o;
    pst_buf *answer;
} call;

static bool call_take(void *arg, const void *data, size_t len)
{
    return take_answer(((call *)arg)->answer, data, len);
}

static bool call_stopped(void *arg)
{
    os *o = ((call *)arg)->o;
    if (!pst_stop_requested())
        return false;
    o->stop_us = o->stop_us ? o->stop_us : pst_mono_us();
    return pst_stop_forced() || pst_mono_us() - o->stop_us > STOP_US;
}

/* 0 with the status, whatever it is; < 0: nobody answered. */
static int request(os *o, const char *method, const char *path, const char *type, pst_slice body, pst_buf *answer, long *ret_status,
                   pst_err *err)
{
    if (!o->fetch) {
        int rc = pst_fetch_open(&o->fetch, err);
        if (rc < 0)
            return rc;
    }
    char *url = pst_sprintf("%s%s", o->url, path), *content = pst_sprintf("Content-Type: %s", type);
    const char *headers[] = {content, "Accept: application/json", "Expect:", o->authorization};
    call c = {o, answer};
    pst_fetch_answer got = {0};
    pst_buf_clear(answer);
    pst_fetch_do(o->fetch,
                 &(pst_fetch_request){.method = method,
                                      .url = url,
                                      .headers = headers,
                                      .n_headers = o->authorization ? 4 : 3,
                                      .body = body.data,
                                      .body_len = body.len,
                                      .take = call_take,
                                      .stopped = call_stopped,
                                      .arg = &c,
                                      .user = o->user,
                                      .password = o->password,
                                      .ca_file = o->ca_file,
                                      .timeout_ms = o->timeout_ms},
                 &got);
    free(content);
    free(url);
    switch (got.end) {
    case PST_FETCH_ANSWERED: *ret_status = got.status; return 0;
    case PST_FETCH_NOT_TRUSTED:
        return pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "opensearch", got.native,
                           "the certificate of %s is not trusted: %s; name its CA (--ca-file FILE)", o->url, got.why);
    case PST_FETCH_REFUSED:
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_RETRY, "opensearch", 0, "%s answered with more than %d MiB", o->url,
                           ANSWER_MAX >> 20);
    case PST_FETCH_STOPPED: return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "opensearch", 0, "stopped while %s was asked", o->url);
    case PST_FETCH_AWAY: break;
    }
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "opensearch", got.native, "%s does not answer: %s", o->url, got.why);
}

/* A status outside 2xx that says nothing about single documents. */
static int refuse_request(const os *o, const char *what, long status, const pst_buf *answer, pst_err *err)
{
    const char *said = answer->len ? answer->data : "(no body)";
    if (status == 401 || status == 403)
        return pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "opensearch", (int)status,
                           "%s refuses %s with %ld: %.160s; give it credentials (--credentials FILE or " CREDENTIALS_ENV
                           ") that may do that",
                           o->url, what, status, said);
    if (status == 408 || status == 429 || status >= 500)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "opensearch", (int)status, "%s answers %s with %ld: %.160s", o->url, what,
                           status, said);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "opensearch", (int)status,
                       "%s answers %s with %ld: %.160s; is that the address of OpenSearch or Elasticsearch?", o->url, what, status, said);
}

/* ---- the index template ---- */

static json_t *template_of(const char *index)
{
    json_t *values = json_pack("{s:{s:s, s:{s:s}}}", "values", "path_match", "values.*", "mapping", "type", "double");
    json_t *strings =
        json_pack("{s:{s:s, s:{s:s, s:i}}}", "strings", "match_mapping_type", "string", "mapping", "type", "keyword", "ignore_above", 8191);
    json_t *kafka = json_pack("{s:{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s, s:s}, s:{s:s, s:i}}}", "properties", "topic", "type", "keyword",
                              "partition", "type", "integer", "offset", "type", "long", "timestamp", "type", "date", "format",
                              "epoch_millis", "key", "type", "keyword", "ignore_above", 8191);
    json_t *text = json_pack("{s:s, s:{s:{s:s, s:i}}}", "type", "text", "fields", "keyword", "type", "keyword", "ignore_above", 256);
    json_t *mappings = json_pack("{s:[o, o], s:{s:{s:s}, s:o, s:o, s:{s:s}}}", "dynamic_templates", values, strings, "properties",
                                 "@timestamp", "type", "date", "@kafka", kafka, "text", text, "value_base64", "type", "binary");
    return json_pack("{s:[s], s:i, s:{s:o}, s:{s:s}}", "index_patterns", index, "priority", TEMPLATE_PRIORITY, "template", "mappings",
                     mappings, "_meta", "made_by", "penstock sink opensearch");
}

static int put_template(os *o, const char *index, pst_err *err)
{
    char *path = pst_sprintf("/_index_template/penstock-sink-%s", index), *body = NULL;
    pst_buf answer = {0};
    long status = 0;
    int rc = 0;
    if (o->template_once)
        rc = request(o, "GET", path, "application/json", (pst_slice){0}, &answer, &status, err);
    /* Where the question cannot be asked, the answer to the template tells what is wrong. */
    if (!rc && status != 200) {
        json_t *template = template_of(index);
        body = pst_json_text(template);
        json_decref(template);
        rc = request(o, "PUT", path, "application/json", (pst_slice){body, strlen(body)}, &answer, &status, err);
    }
    if (!rc && (status < 200 || status > 299)) {
        rc = refuse_request(o, "the index template", status, &answer, err);
        if (err->cls == PST_CLASS_FATAL)
            pst_err_prefix(err, "index %s (--template none leaves its template to you)", index);
    }
    if (!rc)
        pst_map_put(&o->ready, index, o);
    free(body);
    free(path);
    pst_buf_done(&answer);
    return rc;
}

/* ---- documents ---- */

/* OpenSearch knows no NaN and no infinities; a text in their place would cost the whole document. They stand beside the values. */
static void part_numbers(json_t *doc)
{
    const json_t *values = json_object_get(doc, "values");
    if (!json_is_object(values))
        return;
    json_t *finite = json_object(), *others = json_object(), *v;
    const char *name;
    json_object_foreach((json_t *)values, name, v) json_object_set(json_is_number(v) ? finite : others, name, v);
    json_object_set_new(doc, "values", finite);
    if (json_object_size(others))
        json_object_set(doc, "not_finite", others);
    json_decref(others);
}

static void add_time(json_t *doc, const sink_doc *d)
{
    const json_t *own = d->platform ? json_object_get(doc, "time") : NULL;
    int64_t us = json_is_integer(own) ? json_integer_value(own) : d->record->timestamp_ms * 1000;
    char text[32];
    if (us > 0 && us < TIME_MAX_US && d->record->timestamp_ms < TIME_MAX_US / 1000 && !json_object_get(doc, "@timestamp"))
        json_object_set_new(doc, "@timestamp", json_string(pst_time_text(us, text)));
}

static int os_take(void *sink, const sink_doc *d, pst_err *err)
{
    os *o = sink;
    json_t *doc = sink_document(d);
    char *index = o->index ? pst_strdup(o->index) : sink_bulk_index(d->record->topic);
    if (d->platform && !strcmp(d->platform, "metrics"))
        part_numbers(doc);
    add_time(doc, d);
    sink_bulk_add(&o->bulk, index, d->record, doc);
    if (!pst_map_get(&o->indices, index))
        pst_map_put(&o->indices, index, o);
    free(index);
    json_decref(doc);
    return 0;
}

static bool os_full(const void *sink)
{
    const os *o = sink;
    return o->bulk.lines.len >= o->bulk_bytes_max;
}

/* ---- settling ---- */

static int send_items(os *o, size_t from, size_t to, pst_err *err);

/* A request that is too large, or that is refused as a whole, is cut in two until the document is found that is the cause. */
static int send_halves(os *o, size_t from, size_t to, pst_err *err)
{
    size_t middle = from + (to - from) / 2;
    int rc = send_items(o, from, middle, err);
    return rc < 0 ? rc : send_items(o, middle, to, err);
}

static int send_items(os *o, size_t from, size_t to, pst_err *err)
{
    pst_buf answer = {0};
    long status = 0;
    int rc = request(o, "POST", "/_bulk", "application/x-ndjson", sink_bulk_body(&o->bulk, from, to), &answer, &status, err);
    if (!rc && status >= 200 && status <= 299) {
        rc = sink_bulk_answer(&o->bulk, from, to, answer.data ? answer.data : "", answer.len, err);
    } else if (!rc && (status == 400 || status == 413) && to - from > 1) {
        rc = send_halves(o, from, to, err);
    } else if (!rc && status == 413) {
        sink_bulk_judge(&o->bulk, from, SINK_BULK_REFUSED, "too-large",
                        answer.len ? answer.data : "the server takes no request of its size");
    } else if (!rc && status == 400) {
        /* The document's fault, or ours, or the address's? Others that were taken meanwhile tell. */
        char why[200];
        snprintf(why, sizeof why, "%s", answer.len ? answer.data : "");
        sink_bulk_judge(&o->bulk, from, SINK_BULK_REFUSED, "request-refused", why);
    } else if (!rc) {
        rc = refuse_request(o, "the documents", status, &answer, err);
    }
    pst_buf_done(&answer);
    return rc;
}

static int part_verdicts(os *o, pst_err *err)
{
    o->accepted += sink_bulk_count(&o->bulk, SINK_BULK_DONE);
    for (size_t i = 0; i < o->bulk.n; i++) {
        const sink_bulk_item *item = &o->bulk.items[i];
        if (item->verdict != SINK_BULK_REFUSED)
            continue;
        if (!strcmp(item->reason, "request-refused") && !o->accepted)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "opensearch", 400, "%s refuses every request: %s", o->url, item->message);
        o->refused = pst_array_room(o->refused, o->n_refused, &o->cap_refused, sizeof *o->refused);
        o->refused[o->n_refused++] = *item;
    }
    sink_bulk_keep(&o->bulk, SINK_BULK_AGAIN);
    if (!o->bulk.n)
        return 0;
    const sink_bulk_item *first = &o->bulk.items[0];
    int rc = pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "opensearch", 0, "%s does not take %zu documents now (%s): %.200s", o->url,
                         o->bulk.n, first->reason, first->message);
    for (size_t i = 0; i < o->bulk.n; i++)
        o->bulk.items[i].verdict = SINK_BULK_WAITING;
    return rc;
}

/* Where a delivery failed, all are sent again: a letter twice is better than none. */
static int settle_letters(os *o, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && !o->letters_sent && i < o->n_refused; i++)
        rc = sink_letters_send(o->letters, o->refused[i].record, o->refused[i].reason, o->refused[i].message, err);
    o->letters_sent = !rc;
    if (!rc)
        rc = sink_letters_settle(o->letters, err);
    if (rc < 0 && rc != PST_ETIMEDOUT)
        o->letters_sent = false;
    return rc;
}

static void os_drop(void *sink)
{
    os *o = sink;
    sink_bulk_clear(&o->bulk);
    pst_map_done(&o->indices, NULL);
    o->indices = (pst_map){0};
    o->n_refused = o->accepted = 0;
    o->letters_sent = false;
}

static int os_settle(void *sink, bool final, pst_err *err)
{
    os *o = sink;
    int rc = 0;
    for (size_t i = 0; !rc && i < o->indices.n; i++)
        if (!o->template_never && o->indices.at[i].key && !pst_map_get(&o->ready, o->indices.at[i].key))
            rc = put_template(o, o->indices.at[i].key, err);
    if (!rc && o->bulk.n) {
        rc = send_items(o, 0, o->bulk.n, err);
        if (!rc)
            rc = part_verdicts(o, err);
    }
    if (!rc && o->n_refused)
        rc = settle_letters(o, err);
    if (!rc)
        os_drop(o);
    return rc;
}

static int64_t os_refused(const void *sink)
{
    return sink_letters_count(((const os *)sink)->letters);
}

const sink_ops sink_opensearch = {.usage = &sink_opensearch_usage,
                                  .opts_size = sizeof(os_opts),
                                  .open = os_open,
                                  .group = os_group,
                                  .drop = os_drop,
                                  .take = os_take,
                                  .full = os_full,
                                  .settle = os_settle,
                                  .refused = os_refused,
                                  .close = os_close};
