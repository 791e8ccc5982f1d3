/* sink_files.c - records as files by topic and hour: JSON lines that grow, or Avro container files that are put in place when they are complete.
 *
 *     DIR/<topic>/<YYYY-MM-DD>/<HH>.jsonl          the hour (UTC) of the record's timestamp; a late record goes to its own hour
 *     DIR/<topic>/<YYYY-MM-DD>/<HH>-<number>.avro  one schema each; ended when the sink settles for good or the file is old or large
 *
 * A container file has one schema and its records stand without offsets, so it shows nothing until it is complete. What is no Avro, or has a schema
 * that is gone, stands beside it as JSON lines (`<HH>.other.jsonl`): nothing is missing. */
#include "consumers/sink/sink.h"
#include "consumers/sink/sink_dir.h"

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/platform/codec.h"
#include "schemas/avro_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PENDING_MAX = 8 << 20,  /* bytes of lines that wait for a settle */
    OPEN_MAX = 64,          /* files of one round: each costs the disk some writes, and a stop waits for them */
    FILE_BYTES = 128 << 20, /* of records in one container file */
};

typedef struct files_opts {
    sink_opts all;
    const char *dir, *format;
    int64_t roll_us;
} files_opts;

static const pst_opt files_options[] = {
    SINK_OPTS(files_opts, "jobs.events,logs,metrics,models"),
    {"dir", 'd', PST_OPT_STR, offsetof(files_opts, dir), "DIR", NULL, "where the files go; required"},
    {"format", 0, PST_OPT_STR, offsetof(files_opts, format), "json|avro", "json", "JSON lines, or Avro container files"},
    {"roll", 0, PST_OPT_SPAN, offsetof(files_opts, roll_us), "T", "5m", "avro: a file is complete, and can be seen, after this time"},
};
extern const pst_usage sink_files_usage;
const pst_usage sink_files_usage = {
    "sink files",
    "--dir DIR",
    "Write topics into files, by hour.",
    "JSON: DIR/TOPIC/DATE/HOUR.jsonl, one object a line: the record's fields and `@kafka` (topic, partition, offset, timestamp, key). "
    "Avro: "
    "DIR/TOPIC/DATE/HOUR-N.avro, with the writer's schema; what is no Avro goes into HOUR.other.jsonl.\nHours are those of the records' "
    "timestamps, UTC. Each record is in the files once, also after a kill: the folder's note (.penstock-sink.json) says how far the topics "
    "were read.",
    "penstock sink files --dir /data/penstock\npenstock sink files --dir scores --topics telemetry.scores --format avro --exit-on-eof\n"
    "cat /data/penstock/penstock.metrics/*/*.jsonl | jq -c '[.training_id, .step, .values]'",
    files_options,
    sizeof files_options / sizeof *files_options,
    false};

typedef struct container {
    pst_avro_file *file;
    char *temporary, *place;
    int64_t bytes;
} container;

typedef struct files {
    sink_dir *dir;
    pst_client *client;
    bool avro, full;
    int64_t roll_us, since_us; /* since when the oldest container file is open; 0 = none is */
    pst_map open;              /* "topic/date/hour schema" → container */
} files;

static int files_open(const void *opts, pst_client *client, void **ret_sink, pst_err *err)
{
    const files_opts *o = opts;
    if (!o->dir || !*o->dir)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "where to? --dir DIR");
    bool avro = !strcmp(o->format, "avro");
    if (!avro && strcmp(o->format, "json"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--format %s: there is json and avro", o->format);
    files *f = pst_alloc(sizeof *f);
    f->avro = avro;
    f->client = client;
    f->roll_us = o->roll_us;
    int rc = sink_dir_open(o->dir, avro ? "files, avro" : "files, json", &f->dir, err);
    if (rc < 0)
        free(f);
    else
        *ret_sink = f;
    return rc;
}

static int64_t files_place(void *sink, const char *topic, int32_t partition)
{
    return sink_dir_place(((files *)sink)->dir, topic, partition);
}

static void files_forget(void *sink, const char *topic, int32_t partition)
{
    sink_dir_forget_place(((files *)sink)->dir, topic, partition);
}

static void container_free(void *p)
{
    container *c = p;
    pst_avro_file_end(c->file, NULL);
    free(c->temporary);
    free(c->place);
    free(c);
}

static int container_new(files *f, const char *hour, int32_t schema_id, container **ret, pst_err *err)
{
    const pst_schema *schema;
    int rc = pst_codec_schema(f->client->codec, schema_id, &schema, err);
    if (rc < 0)
        return rc;
    container *c = pst_alloc(sizeof *c);
    int64_t number = sink_dir_number(f->dir);
    c->temporary = pst_sprintf(".tmp-%lld.avro", (long long)number);
    c->place = pst_sprintf("%s-%06lld.avro", hour, (long long)number);
    char *path = sink_dir_path(f->dir, c->temporary);
    rc = pst_avro_file_new(path, pst_schema_text(schema), &c->file, err);
    free(path);
    if (rc < 0)
        container_free(c);
    else
        *ret = c;
    return rc;
}

static int add_to_container(files *f, const sink_doc *d, const char *hour, pst_err *err)
{
    int32_t id;
    pst_slice body;
    char *name = pst_sprintf("%s %d", hour, d->schema_id);
    container *c = pst_map_get(&f->open, name);
    int rc = pst_frame_get(d->record->value, d->record->value_len, &id, &body, err);
    if (!rc && !c) {
        rc = container_new(f, hour, id, &c, err);
        if (!rc)
            pst_map_put(&f->open, name, c);
    }
    if (!rc)
        rc = pst_avro_file_add(c->file, body.data, body.len, err);
    if (!rc) {
        c->bytes += (int64_t)body.len;
        f->since_us = f->since_us ? f->since_us : pst_mono_us();
        f->full |= c->bytes > FILE_BYTES || f->open.live >= OPEN_MAX;
    }
    free(name);
    return rc;
}

static void add_line(files *f, const sink_doc *d, const char *file)
{
    pst_buf line = {0};
    json_t *doc = sink_document(d);
    pst_json_add(&line, doc);
    pst_buf_addc(&line, '\n');
    sink_dir_append(f->dir, file, NULL, 0, line.data, line.len);
    json_decref(doc);
    pst_buf_done(&line);
}

static int files_take(void *sink, const sink_doc *d, pst_err *err)
{
    files *f = sink;
    char topic[101], hour[160], file[180];
    struct tm tm = {0};
    time_t at = d->record->timestamp_ms > 0 ? (time_t)(d->record->timestamp_ms / 1000) : 0;
    if (!gmtime_r(&at, &tm) || tm.tm_year > 8000) /* a producer's timestamp may be any number */
        memset(&tm, 0, sizeof tm), tm.tm_year = 70, tm.tm_mday = 1;
    sink_path_word(d->record->topic, topic);
    snprintf(hour, sizeof hour, "%s/%04d-%02d-%02d/%02d", topic, tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour);
    int rc = 0;
    bool fits = f->avro && d->value && d->schema_id >= 0;
    if (fits && (rc = add_to_container(f, d, hour, err)) < 0 && err->cls == PST_CLASS_DATA) { /* too large for a block */
        pst_err_clear(err);
        rc = 0;
        fits = false;
    }
    if (!fits) {
        snprintf(file, sizeof file, "%s%s.jsonl", hour, f->avro ? ".other" : "");
        add_line(f, d, file);
    }
    if (!rc)
        sink_dir_set_place(f->dir, d->record->topic, d->record->partition, d->record->offset + 1);
    return rc;
}

static bool files_full(const void *sink)
{
    const files *f = sink;
    return f->full || sink_dir_pending(f->dir) > PENDING_MAX || sink_dir_files(f->dir) >= OPEN_MAX;
}

/* Lines and containers share one note: while a container file is open nothing settles, or the places of its records would move without it. */
static int files_settle(void *sink, bool final, pst_err *err)
{
    files *f = sink;
    int rc = 0;
    if (f->open.live && !final && !files_full(f) && pst_mono_us() - f->since_us < f->roll_us)
        return 0;
    for (size_t i = 0; i < f->open.n; i++) {
        container *c = f->open.at[i].key ? f->open.at[i].value : NULL;
        if (!c || rc)
            continue;
        rc = pst_avro_file_end(c->file, err);
        c->file = NULL;
        if (!rc)
            rc = sink_dir_place_file(f->dir, c->temporary, c->place, err);
    }
    pst_map_done(&f->open, container_free);
    f->open = (pst_map){0};
    f->since_us = 0;
    f->full = false;
    if (rc < 0)
        sink_dir_break(f->dir);
    return rc ? rc : sink_dir_settle(f->dir, err);
}

static void files_close(void *sink)
{
    files *f = sink;
    pst_map_done(&f->open, container_free);
    sink_dir_close(f->dir);
    free(f);
}

const sink_ops sink_files = {.usage = &sink_files_usage,
                             .opts_size = sizeof(files_opts),
                             .open = files_open,
                             .place = files_place,
                             .forget = files_forget,
                             .take = files_take,
                             .full = files_full,
                             .settle = files_settle,
                             .close = files_close};
