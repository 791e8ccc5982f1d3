/* cat.c - `penstock cat`: kcat's flags and JSON envelope, with Avro decoded by the schema registry (Debian's kcat cannot).
 * Any topic, any writer's schema; values that are not Avro are shown as the text or bytes they are. */
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "consumers/cat_file.h"
#include "verbs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANGES_MAX = 4096,
    TAIL_MAX = 100000, /* of -o -N; more are counted in offsets */
    TAIL_MS = 60000,   /* for finding them, and for each: */
    TAIL_RECORD_MS = 1,
};

typedef struct cat_opts {
    const char *topic, *offset, *format, *group, *avro_file;
    int64_t partition, count, timeout_us;
    bool exit_at_end, envelope, consume, from_beginning, uncommitted, raw;
} cat_opts;
#define AT(f) offsetof(cat_opts, f)
static const pst_opt cat_table[] = {
    {"topic", 't', PST_OPT_STR, AT(topic), "TOPIC", NULL, "what to read"},
    {"partition", 'p', PST_OPT_INT, AT(partition), "P -1..100000", "-1", "only this one"},
    {"offset", 'o', PST_OPT_STR, AT(offset), "O", NULL,
     "beginning, end, stored, N, -N (the last N records of each partition; beyond 100000: offsets), s@MS or e@MS (from, until a time)"},
    {"from-beginning", 0, PST_OPT_BOOL, AT(from_beginning), NULL, NULL, "as -o beginning"},
    {"exit", 'e', PST_OPT_BOOL, AT(exit_at_end), NULL, NULL, "end at the topic's present end"},
    {"count", 'c', PST_OPT_INT, AT(count), "N 0..9000000000000000", "0", "end after N records; 0 = do not"},
    {"timeout", 0, PST_OPT_SPAN, AT(timeout_us), "T", NULL, "end after this time with nothing new"},
    {"envelope", 'J', PST_OPT_BOOL, AT(envelope), NULL, NULL, "one JSON object a record, kcat's field names"},
    {"format", 'f', PST_OPT_STR, AT(format), "FMT", NULL,
     "kcat's: %t topic %p partition %o offset %k key %s payload %T timestamp %h headers %S %K sizes %% \\n \\t"},
    {"group", 'G', PST_OPT_STR, AT(group), "GROUP", NULL, "as a member of this group (offsets are committed)"},
    {"consumer", 'C', PST_OPT_BOOL, AT(consume), NULL, NULL, "kcat's mode flag; cat only consumes"},
    {"uncommitted", 0, PST_OPT_BOOL, AT(uncommitted), NULL, NULL, "show open and aborted transactions too"},
    {"raw", 0, PST_OPT_BOOL, AT(raw), NULL, NULL, "do not decode Avro: print the bytes"},
    {"avro-file", 0, PST_OPT_STR, AT(avro_file), "FILE", NULL, "do not print: write the values into this Avro container file"},
};
static const pst_usage cat_usage = {
    "cat",
    "[TOPIC]",
    "Print the records of a topic, Avro decoded.",
    "Without -o: with -G from the group's offsets, else from the beginning with -e or -c, and from the end without.\nA record that does "
    "not decode is shown with its reason on stderr; reading goes on (exit status 3).",
    "penstock cat -t penstock.jobs.events -e\npenstock cat -t telemetry.scores -o -5 -e -J | jq .payload.score\npenstock cat -t "
    "penstock.logs -f '%k %s\\n'\npenstock cat -t orders -o s@1700000000000 -c 10\npenstock cat -t telemetry -e -c 1000 --avro-file "
    "sample.avro",
    cat_table,
    sizeof cat_table / sizeof *cat_table,
    false};

typedef struct cat {
    cat_opts o;
    pst_verb_run *v;
    pst_consumer *consumer;
    int64_t shown, undecoded, until_ms;
    cat_file file;
    pst_buf line;
    int64_t *back; /* -o -N: where the last N records of each partition begin; NULL = it is no such */
    pst_err gone;  /* the registry is away: what cannot be decoded now is no defect of the record */
} cat;

/* ---- where to begin ---- */

/* What -o, -e and -c say of one partition, in kcat's words. Only without a group: a member of one begins where the group stands. */
static int range_of(cat *c, const char *topic, const pst_topic_info *info, int p, pst_range *r, pst_err *err)
{
    const char *o = c->o.offset;
    char *end;
    PST_ASSERT(p >= 0 && p < info->partitions && !c->o.group);
    *r = (pst_range){topic, p, PST_OFFSET_BEGINNING, c->o.exit_at_end ? info->high[p] : -1};
    if (c->o.from_beginning || (o && !strcmp(o, "beginning")))
        return 0;
    if (!o)
        r->from = c->o.exit_at_end || c->o.count > 0 ? PST_OFFSET_BEGINNING : PST_OFFSET_END;
    else if (!strcmp(o, "end"))
        r->from = info->high[p];
    else if (!strncmp(o, "s@", 2) || !strncmp(o, "e@", 2)) {
        int64_t ms = strtoll(o + 2, &end, 10), at;
        if (*end || end == o + 2)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "-o %s: wanted milliseconds since 1970 after the @", o);
        if (o[0] == 'e')
            c->until_ms = ms;
        else if (pst_admin_offset_at(c->v->client->bus, topic, p, ms, &at, err) < 0)
            return err->code;
        else
            r->from = at >= 0 ? at : info->high[p];
    } else {
        int64_t n = strtoll(o, &end, 10);
        if (*end || end == o)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "-o %s: wanted beginning, end, stored, N, -N, s@MS or e@MS",
                               o);
        r->from = n;
        if (n < 0)
            r->from = c->back[p];
    }
    return 0;
}

/* -o -N: N is said in records, and offsets are not records (kcat takes them for such, and waits where a marker of a transaction comes last). */
static int count_back(cat *c, const char *topic, const pst_topic_info *info, pst_err *err)
{
    char *end;
    int64_t n = c->o.offset ? strtoll(c->o.offset, &end, 10) : 0;
    if (n >= 0 || *end || c->o.from_beginning)
        return 0;
    int rc = 0;
    size_t looked = 0;
    pst_tail *tails = pst_alloc((size_t)info->partitions * sizeof *tails);
    c->back = pst_alloc((size_t)info->partitions * sizeof *c->back);
    for (int p = 0; p < info->partitions; p++) {
        int64_t there = info->high[p] - info->low[p];
        c->back[p] = n <= -there ? info->low[p] : info->high[p] + n;
        if (n >= -TAIL_MAX && n >= -there && (c->o.partition < 0 || p == c->o.partition))
            tails[looked++] = (pst_tail){.topic = topic, .partition = p, .low = info->low[p], .end = info->high[p], .n = -n};
    }
    if (looked)
        rc = pst_admin_tail(c->v->client->bus, tails, looked, c->o.uncommitted, (int)(TAIL_MS - n * TAIL_RECORD_MS), err);
    for (size_t i = 0; !rc && i < looked; i++)
        c->back[tails[i].partition] = tails[i].from;
    free(tails);
    return rc;
}

/* A group's offsets are Kafka's to give; without one the ranges are computed here. Ranges that are empty already are left out: their end would
 * never be reported, and -e would wait for it. */
static int open_consumer(cat *c, const char *topic, bool *ret_nothing, pst_err *err)
{
    const char *isolation = pst_bus_conf_get(c->v->client->bus, "isolation.level"); /* who only looks may say it in Kafka's words, too */
    c->o.uncommitted |= isolation && !strcmp(isolation, "read_uncommitted");
    pst_consumer_opts opts = {.read_uncommitted = c->o.uncommitted, .report_eof = true};
    if (c->o.group) {
        opts.group = c->o.group;
        opts.topics = &topic;
        opts.n_topics = 1;
        opts.start = c->o.offset && !strcmp(c->o.offset, "end") ? PST_START_LATEST : PST_START_EARLIEST;
        return pst_consumer_new(c->v->client->bus, &opts, &c->consumer, err);
    }
    if (c->o.offset && !strcmp(c->o.offset, "stored"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "-o stored needs a group: -G GROUP");
    pst_topic_info info = {0};
    int rc = pst_admin_topic(c->v->client->bus, topic, &info, 10000, err);
    if (!rc && c->o.partition >= info.partitions)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_FATAL, "kafka", 0, "%s has partitions 0 to %d, not %lld", topic, info.partitions - 1,
                         (long long)c->o.partition);
    if (!rc)
        rc = count_back(c, topic, &info, err);
    pst_range *ranges = rc ? NULL : pst_alloc((size_t)info.partitions * sizeof *ranges);
    size_t n = 0;
    for (int p = 0; !rc && p < info.partitions && n < RANGES_MAX; p++) {
        if (c->o.partition >= 0 && p != c->o.partition)
            continue;
        rc = range_of(c, topic, &info, p, &ranges[n], err);
        bool empty = c->o.exit_at_end && (info.high[p] <= info.low[p] || (ranges[n].from >= 0 && ranges[n].from >= info.high[p]));
        n += !empty;
    }
    *ret_nothing = !rc && !n;
    opts.ranges = ranges;
    opts.n_ranges = n;
    if (!rc && n)
        rc = pst_consumer_new(c->v->client->bus, &opts, &c->consumer, err);
    free(ranges);
    pst_topic_info_done(&info);
    return rc;
}

/* ---- one record ---- */

static bool is_text(const char *p, size_t n)
{
    json_t *s = json_stringn(p, n); /* Jansson refuses what is not UTF-8 */
    bool ok = s && !memchr(p, 0, n);
    json_decref(s);
    return ok;
}

/* JSON of a key or value; schema id in ret_id (-1 = none). NULL value gives null. Counts what cannot be decoded. */
static json_t *to_json(cat *c, const pst_record *r, const void *data, size_t len, const char *what, int32_t *ret_id)
{
    json_t *j = NULL;
    pst_err err = {0};
    *ret_id = -1;
    if (!data)
        return json_null();
    bool framed = len >= 5 && *(const char *)data == 0;
    if (framed && !c->o.raw && pst_codec_to_json(c->v->client->codec, data, len, &j, ret_id, &err) == 0)
        return j;
    if (framed && !c->o.raw && (err.code == PST_EUNREACH || err.code == PST_EAUTH)) {
        pst_err_set(&c->gone, err.code, err.cls, "registry", err.native, "%s of %s [%d] offset %lld: %s; --raw prints the bytes", what,
                    r->topic, r->partition, (long long)r->offset, err.text);
        return json_null();
    }
    if (framed && !c->o.raw) {
        fprintf(stderr, "penstock cat: %s of %s [%d] offset %lld: %s\n", what, r->topic, r->partition, (long long)r->offset, err.text);
        c->undecoded++;
    }
    if (is_text(data, len))
        return json_stringn(data, len);
    pst_buf b = {0};
    pst_json_quote(&b, data, len); /* bytes that are no text become U+FFFD, as kcat prints them */
    j = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
    pst_buf_done(&b);
    return j ? j : json_string("");
}

static json_t *headers_json(const pst_record *r)
{
    pst_header h[64];
    size_t n = pst_record_headers(r, h, 64);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_string(h[i].name));
        json_t *v = h[i].value ? json_stringn(h[i].value, h[i].len) : json_null();
        json_array_append_new(list, v ? v : json_string("(bytes)"));
    }
    return list;
}

static void print_envelope(cat *c, const pst_record *r)
{
    int32_t key_id, value_id;
    json_t *o =
        json_pack("{s:s, s:i, s:I, s:s, s:I, s:i}", "topic", r->topic, "partition", (int)r->partition, "offset", (json_int_t)r->offset,
                  "tstype", r->timestamp_ms >= 0 ? "create" : "unknown", "ts", (json_int_t)r->timestamp_ms, "broker", -1);
    json_t *headers = headers_json(r);
    if (json_array_size(headers))
        json_object_set(o, "headers", headers);
    json_decref(headers);
    json_t *key = to_json(c, r, r->key, r->key_len, "key", &key_id), *value = to_json(c, r, r->value, r->value_len, "value", &value_id);
    if (key_id >= 0)
        json_object_set_new(o, "key_schema_id", json_integer(key_id));
    json_object_set_new(o, "key", key);
    if (value_id >= 0)
        json_object_set_new(o, "value_schema_id", json_integer(value_id));
    json_object_set_new(o, "payload", value);
    pst_json_add(&c->line, o);
    pst_buf_addc(&c->line, '\n');
    json_decref(o);
}

static void add_plain(cat *c, const pst_record *r, const void *data, size_t len, const char *what)
{
    int32_t id;
    if (!data) {
        pst_buf_adds(&c->line, !strcmp(what, "key") ? "" : "NULL");
        return;
    }
    if (c->o.raw || len < 5 || *(const char *)data != 0) {
        pst_buf_add(&c->line, data, len);
        return;
    }
    json_t *j = to_json(c, r, data, len, what, &id);
    if (id < 0 && json_is_string(j))
        pst_buf_adds(&c->line, json_string_value(j));
    else
        pst_json_add(&c->line, j);
    json_decref(j);
}

static void add_headers(cat *c, const pst_record *r)
{
    pst_header h[64];
    size_t n = pst_record_headers(r, h, 64);
    for (size_t i = 0; i < n; i++)
        pst_buf_printf(&c->line, "%s%s=%.*s", i ? "," : "", h[i].name, (int)h[i].len, h[i].value ? (const char *)h[i].value : "");
}

static void add_escape(cat *c, char e)
{
    switch (e) {
    case 'n': e = '\n'; break;
    case 't': e = '\t'; break;
    case 'r': e = '\r'; break;
    case '0': e = '\0'; break;
    default: break; /* stands for itself */
    }
    pst_buf_addc(&c->line, e);
}

static void print_formatted(cat *c, const pst_record *r)
{
    for (const char *p = c->o.format; *p; p++) {
        if (*p == '\\' && p[1])
            add_escape(c, *++p);
        else if (*p != '%' || !p[1])
            pst_buf_addc(&c->line, *p);
        else
            switch (*++p) {
            case 't': pst_buf_adds(&c->line, r->topic); break;
            case 'p': pst_buf_printf(&c->line, "%d", r->partition); break;
            case 'o': pst_buf_printf(&c->line, "%lld", (long long)r->offset); break;
            case 'k': add_plain(c, r, r->key, r->key_len, "key"); break;
            case 's': add_plain(c, r, r->value, r->value_len, "value"); break;
            case 'T': pst_buf_printf(&c->line, "%lld", (long long)r->timestamp_ms); break;
            case 'h': add_headers(c, r); break;
            case 'S': pst_buf_printf(&c->line, "%zd", r->value ? (ssize_t)r->value_len : -1); break;
            case 'K': pst_buf_printf(&c->line, "%zd", r->key ? (ssize_t)r->key_len : -1); break;
            default: pst_buf_addc(&c->line, *p); /* %% */
            }
    }
}

static void print_record(cat *c, const pst_record *r)
{
    pst_buf_clear(&c->line);
    if (c->o.envelope || c->v->settings.json)
        print_envelope(c, r);
    else if (c->o.format)
        print_formatted(c, r);
    else {
        add_plain(c, r, r->value, r->value_len, "value");
        pst_buf_addc(&c->line, '\n');
    }
    if (!c->gone.code)
        fwrite(c->line.data, 1, c->line.len, stdout);
}

/* What has no place in the file is reported and counted; an outage or a full disk ends the verb. */
static void write_record(cat *c, const pst_record *r)
{
    pst_err err = {0};
    int rc = cat_file_add(&c->file, c->o.avro_file, c->v->client->codec, r, &err);
    if (rc < 0 && err.cls != PST_CLASS_DATA) {
        c->gone = err;
    } else if (rc < 0) {
        fprintf(stderr, "penstock cat: %s [%d] offset %lld is left out: %s\n", r->topic, r->partition, (long long)r->offset, err.text);
        c->undecoded++;
    }
}

static int loop(cat *c, pst_err *err)
{
    int64_t last = pst_mono_us(), warned = last;
    PST_ASSERT(c->consumer);
    for (;;) {
        pst_batch b;
        pst_err e = {0};
        int rc = pst_consumer_poll(c->consumer, &(pst_poll){.records_max = 1000, .bytes_max = 4 << 20, .timeout_ms = 100}, &b, &e);
        if (rc < 0) {
            *err = e;
            return rc;
        }
        if (e.code && pst_mono_us() - warned > 3000000) { /* an outage: say so, go on */
            warned = pst_mono_us();
            fprintf(stderr, "penstock cat: %s\n", e.text);
        }
        for (size_t i = 0; i < b.n; i++) {
            const pst_record *r = &b.records[i];
            if ((c->o.partition >= 0 && r->partition != c->o.partition) || (c->until_ms && r->timestamp_ms >= c->until_ms))
                continue;
            if (c->o.avro_file)
                write_record(c, r);
            else
                print_record(c, r);
            if (c->gone.code) {
                *err = c->gone;
                return c->gone.code;
            }
            pst_consumer_mark(c->consumer, r->topic, r->partition, r->offset + 1);
            if (++c->shown == c->o.count)
                break;
        }
        if (b.n) {
            last = pst_mono_us();
            if (fflush(stdout)) /* the reader of our pipe is gone */
                return 0;
        }
        rc = c->o.group && b.n ? pst_consumer_commit_marked(c->consumer, &e) : 0;
        if (rc < 0 && e.cls == PST_CLASS_FATAL) { /* else the next commit takes these along */
            *err = e;
            return rc;
        }
        if ((c->o.count > 0 && c->shown >= c->o.count) || (c->o.exit_at_end && b.eof))
            return 0;
        if (pst_stop_requested())
            return pst_err_set(err, PST_ESTOPPED, PST_CLASS_FATAL, "kafka", 0, "stopped");
        if (c->o.timeout_us && pst_mono_us() - last > c->o.timeout_us)
            return 0;
    }
}

/* The format is checked as a whole before the first record; the container file is ended whatever happened, so that what is in it can be read. */
static int cat_run(int argc, char **argv)
{
    cat c = {0};
    pst_verb_run v;
    bool nothing = false;
    int status = pst_verb_begin(&v, &cat_usage, argc, argv, &c.o, 0, 1);
    if (status >= 0)
        return status;
    c.v = &v;
    const char *topic = c.o.topic;
    if (!topic && v.n_args)
        topic = v.args[0];
    int rc = topic ? 0 : pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "which topic? penstock cat -t TOPIC");
    for (const char *p = c.o.format; !rc && p && (p = strchr(p, '%')); p += 2)
        if (!p[1] || !strchr("tpoksThSK%", p[1]))
            rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "-f: there is no %.2s; there is %%t %%p %%o %%k %%s %%T %%h %%S %%K %%%%", p);
    if (!rc)
        rc = open_consumer(&c, topic, &nothing, &v.err);
    if (!rc && !nothing)
        rc = loop(&c, &v.err);
    fflush(stdout);
    int ended = pst_avro_file_end(c.file.file, rc < 0 ? NULL : &v.err);
    if (!rc)
        rc = ended;
    if (!rc && c.o.avro_file && !c.file.records)
        fprintf(stderr, "penstock cat: no Avro value was read: %s was not written\n", c.o.avro_file);
    pst_consumer_free(c.consumer);
    free(c.back);
    pst_buf_done(&c.line);
    status = pst_verb_end(&v, rc);
    if (status)
        return status;
    return c.undecoded ? 3 : 0;
}

const pst_verb pst_cat_verb = {"cat", "print a topic's records, Avro decoded (kcat's flags)", "streams", cat_run, PST_USAGES(&cat_usage)};
