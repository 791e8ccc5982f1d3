/* source_file.c - `penstock source file`: lines of a file (JSON lines or CSV) as records, JSON text or Avro. One line is one record, and one bad line is
 * one line left out: it is named with its number, the rest goes on, and the exit status says that not all came through. A JSON line without a schema
 * travels byte for byte as it stands in the file, so that numbers keep their text. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "producers/sources/csv_columns.h"
#include "producers/sources/sources.h"
#include "common/registry/registry.h"
#include "schemas/avro.h"
#include "common/platform/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINE_MAX_BYTES = 1 << 20, FLUSH_MS = 60000, BAD_SAID_MAX = 10, EXIT_PARTIAL = 3 };

typedef struct file_opts {
    const char *topic, *format, *schema, *key;
    int64_t partitions;
    double rate;
    bool plain_names;
    pst_opt_list decimal_commas;
} file_opts;

static const pst_opt file_table[] = {
    {"topic", 't', PST_OPT_STR, offsetof(file_opts, topic), "T", NULL, "where the records go; created if missing"},
    {"format", 0, PST_OPT_STR, offsetof(file_opts, format), "F", NULL, "jsonl or csv; default: by the file's name"},
    {"schema", 0, PST_OPT_STR, offsetof(file_opts, schema), "FILE.avsc", NULL,
     "write Avro of this schema (registered as T-value); default: JSON text"},
    {"key", 'k', PST_OPT_STR, offsetof(file_opts, key), "FIELD", NULL, "this field becomes the record's key; null: a record without one"},
    {"plain-names", 0, PST_OPT_BOOL, offsetof(file_opts, plain_names), NULL, NULL,
     "CSV: columns are named as Avro takes them: `Basket Value (EUR)` is basket_value_eur"},
    {"decimal-comma", 0, PST_OPT_LIST, offsetof(file_opts, decimal_commas), "COLUMN", NULL,
     "CSV: this column's numbers are written 1.234,5; repeatable"},
    {"rate", 0, PST_OPT_DOUBLE, offsetof(file_opts, rate), "N 0..1000000000", NULL,
     "records per second; default: as fast as Kafka takes them"},
    {"partitions", 0, PST_OPT_INT, offsetof(file_opts, partitions), "N 1..10000", "1", "of the topic, if it is created"},
};
const pst_usage pst_source_file_usage = {
    "source file",
    "FILE",
    "Produce each line of a JSON-lines or CSV file as one record; - is standard input.",
    "A CSV line becomes an object: the header names its fields, numbers become numbers, empty fields null. What separates fields\n"
    "(comma, semicolon, tab) is found from the header. Where the schema wants a timestamp or a date, `2026-03-01 08:00:35` is one (UTC,\n"
    "unless it names its zone); where it wants a boolean, yes and no are, too. A header that does not fit the schema is refused at once.\n"
    "Lines that are no records are named on stderr and left out; then the exit status is 3.",
    "penstock source file data.jsonl --topic readings\npenstock source file data.csv --topic readings --key sensor --rate 100\n"
    "penstock source file data.csv --topic readings --schema reading.avsc\n"
    "penstock source file Orders.csv --topic orders --plain-names --decimal-comma basket_value_eur",
    file_table,
    sizeof file_table / sizeof *file_table,
    false};

typedef struct file_source {
    const file_opts *o;
    const char *path;
    source_feed feed;
    pst_schema *schema;
    pst_buf value, line;
    int64_t bad, began_us, tried;
    pst_buf schema_text;
    pst_csv *csv; /* NULL: JSON lines */
    source_columns *columns;
} file_source;

static void bad_line(file_source *s, int64_t line, const char *why)
{
    if (s->bad++ < BAD_SAID_MAX)
        fprintf(stderr, "%s:%lld: %s\n", s->path, (long long)line, why);
}

/* Waits for this record's turn: the n-th is due n/rate seconds after the first, so a pause is made up for and no error adds up. */
static int pace(file_source *s)
{
    if (s->o->rate > 0 && !source_feed_until(&s->feed, s->began_us + (int64_t)((double)s->tried * 1e6 / s->o->rate)))
        return PST_ESTOPPED;
    s->tried++;
    if (pst_stop_requested())
        return PST_ESTOPPED;
    pst_producer_poll(s->feed.producer, 0);
    return 0;
}

/* text: the record as it stands in the file; NULL = print j. */
static int send_object(file_source *s, const json_t *j, const char *text, size_t len, int64_t line, pst_err *err)
{
    pst_err e = {0};
    pst_buf key = {0};
    const json_t *k = s->o->key ? json_object_get(j, s->o->key) : NULL;
    if (json_is_string(k))
        pst_buf_adds(&key, json_string_value(k));
    else if (k && !json_is_null(k))
        pst_json_add(&key, k);
    pst_buf_clear(&s->value);
    int rc = 0;
    if (s->schema) {
        pst_frame_put(&s->value, s->feed.schema_id);
        rc = pst_avro_from_json(s->schema, j, &s->value, &e);
    } else if (text)
        pst_buf_add(&s->value, text, len);
    else
        pst_json_add(&s->value, j);
    if (!rc)
        rc = source_feed_send(&s->feed, key.data, key.len, s->value.data, s->value.len, 0, true, &e);
    if (rc < 0 && e.cls == PST_CLASS_DATA) { /* does not fit the schema, or is larger than a record may be */
        bad_line(s, line, e.text);
        rc = 0;
    } else if (rc < 0)
        *err = e;
    pst_buf_done(&key);
    return rc;
}

/* ---- JSON lines ---------------------------------------------------------------------------------------------------------------- */

/* 1 a line (without its end), 0 the end of the file; a line that is too long is cut, and *ret_long says so. */
static int read_line(FILE *f, pst_buf *line, bool *ret_long)
{
    int c;
    pst_buf_clear(line);
    *ret_long = false;
    while ((c = getc_unlocked(f)) != EOF && c != '\n')
        if (line->len < LINE_MAX_BYTES)
            pst_buf_addc(line, (char)c);
        else
            *ret_long = true;
    return c != EOF || line->len > 0;
}

static int read_lines(file_source *s, FILE *f, pst_err *err)
{
    int rc = 0;
    bool too_long;
    for (int64_t n = 1; !rc && read_line(f, &s->line, &too_long); n++) {
        json_t *j = NULL;
        pst_err e = {0};
        size_t blank = s->line.len ? strspn(s->line.data, " \t\r") : 0;
        if (blank == s->line.len)
            continue;
        rc = pace(s);
        if (rc < 0)
            break;
        if (too_long)
            bad_line(s, n, "is longer than 1 MiB");
        else if (pst_json_parse(s->line.data, s->line.len, "the line", &j, &e) < 0)
            bad_line(s, n, e.text);
        else if (!json_is_object(j))
            bad_line(s, n, "is no JSON object");
        else if (s->o->key && !s->schema && !json_object_get(j, s->o->key))
            bad_line(s, n, "has no field of the name that --key gives");
        else
            rc = send_object(s, j, s->line.data, s->line.len, n, err);
        json_decref(j);
    }
    if (!rc && ferror(f))
        rc = pst_err_sys(err, EIO, "cannot read %s", s->path);
    return rc;
}

/* ---- CSV ----------------------------------------------------------------------------------------------------------------------- */

/* Before the topic is made: the names of the columns, and whether they fit the schema. Takes f over. */
static int open_csv(file_source *s, FILE *f, pst_err *err)
{
    const file_opts *o = s->o;
    int rc = pst_csv_open(f, s->path, &s->csv, err);
    if (rc < 0)
        return rc;
    const source_columns_want want = {.schema = s->schema ? pst_schema_text(s->schema) : NULL,
                                      .schema_name = s->schema ? pst_schema_name(s->schema) : NULL,
                                      .key = o->key,
                                      .plain_names = o->plain_names,
                                      .decimal_commas = o->decimal_commas.items,
                                      .n_decimal_commas = o->decimal_commas.n};
    return source_columns_new(s->csv, s->path, &want, &s->columns, err);
}

static int read_csv(file_source *s, pst_err *err)
{
    int rc = 0;
    while (rc >= 0) {
        rc = pst_csv_next(s->csv, err);
        if (rc != 1)
            break;
        rc = pace(s);
        if (rc < 0)
            break;
        bool whole = pst_csv_fields(s->csv) == pst_csv_columns(s->csv);
        json_t *o = whole ? source_columns_record(s->columns, s->csv) : NULL;
        if (!whole)
            bad_line(s, pst_csv_line(s->csv), "has not as many fields as the header");
        else if (!o)
            bad_line(s, pst_csv_line(s->csv), "is not UTF-8");
        else
            rc = send_object(s, o, NULL, 0, pst_csv_line(s->csv), err);
        json_decref(o);
    }
    return rc < 0 ? rc : 0;
}

/* ---- the verb ------------------------------------------------------------------------------------------------------------------ */

static int read_schema(file_source *s, pst_err *err)
{
    int rc = pst_fs_read(s->o->schema, PST_AVRO_SCHEMA_MAX, &s->schema_text, err);
    if (rc < 0)
        return rc;
    rc = pst_schema_parse(s->schema_text.data ? s->schema_text.data : "", s->schema_text.len, &s->schema, err);
    if (rc < 0)
        pst_err_prefix(err, "%s", s->o->schema);
    return rc;
}

static int register_schema(file_source *s, pst_client *c, pst_err *err)
{
    int rc = 0;
    char *subject = pst_sprintf("%s-value", s->o->topic);
    for (bool again = true; again;) {
        pst_err e = {0};
        rc = pst_registry_register(c->registry, subject, s->schema_text.data, &s->feed.schema_id, &e);
        again = rc < 0 && e.cls == PST_CLASS_RETRY && source_feed_wait(&e);
        if (rc < 0 && !again)
            *err = e;
    }
    free(subject);
    return rc;
}

/* JSON records say one by one whether they have the key; a schema says it for all. */
static int check_key(const file_source *s, pst_err *err)
{
    json_t *schema = NULL, *field;
    size_t i;
    bool there = false;
    if (!s->schema || !s->o->key)
        return 0;
    int rc = pst_json_parse(s->schema_text.data, s->schema_text.len, "schema", &schema, err);
    json_array_foreach(json_object_get(schema, "fields"), i, field) there = there || !strcmp(pst_json_str(field, "name", ""), s->o->key);
    json_decref(schema);
    if (!rc && !there)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--key %s: the schema %s has no such field", s->o->key,
                         pst_schema_name(s->schema));
    return rc;
}

static const char *format_of(const file_source *s)
{
    size_t len = strlen(s->path);
    if (s->o->format)
        return s->o->format;
    return len > 4 && !strcasecmp(s->path + len - 4, ".csv") ? "csv" : "jsonl";
}

/* Everything is checked before the topic is made; what was read is flushed whatever ended the reading. */
static int run(file_source *s, pst_client *c, pst_err *err)
{
    const file_opts *o = s->o;
    const char *format = format_of(s);
    if (!o->topic || !*o->topic)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--topic is missing: where shall the records go?");
    if (strcmp(format, "csv") && strcmp(format, "jsonl"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--format %s: wanted jsonl or csv", format);
    if (o->rate < 0 || o->partitions < 1 || o->partitions > 10000)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--rate must not be negative, --partitions from 1 to 10000");
    if ((o->plain_names || o->decimal_commas.n) && strcmp(format, "csv"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--plain-names and --decimal-comma are for CSV (--format csv)");
    FILE *f = strcmp(s->path, "-") ? fopen(s->path, "re") : stdin;
    if (!f)
        return pst_err_sys(err, errno, "cannot read %s", s->path);
    bool csv = !strcmp(format, "csv");
    int rc = o->schema ? read_schema(s, err) : 0;
    if (!rc && csv) {
        rc = open_csv(s, f, err);
        f = NULL;
    } else if (!rc)
        rc = check_key(s, err);
    if (!rc)
        rc = source_feed_open(&s->feed, c, o->topic, (int)o->partitions, err);
    if (!rc && o->schema)
        rc = register_schema(s, c, err);
    s->began_us = pst_mono_us();
    if (!rc)
        rc = csv ? read_csv(s, err) : read_lines(s, f, err);
    if (f)
        fclose(f);
    pst_err late = {0};
    int flushed = source_feed_flush(&s->feed, FLUSH_MS, &late);
    if (!rc && flushed < 0) {
        *err = late;
        rc = flushed;
    }
    return rc == PST_ESTOPPED ? 0 : rc;
}

int source_file(int argc, char **argv)
{
    file_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &pst_source_file_usage, argc, argv, &o, 1, 1);
    if (status >= 0)
        return status;
    file_source s = {.o = &o, .path = v.args[0]};
    int rc = run(&s, v.client, &v.err);
    int64_t bad = s.bad, lost = s.feed.lost;
    if (!v.settings.quiet && (!rc || s.feed.sent))
        fprintf(stderr, "%lld records produced to %s%s", (long long)s.feed.delivered, o.topic, bad ? "" : "\n");
    if (bad)
        fprintf(stderr, "%s%lld lines left out%s\n", v.settings.quiet ? "" : ", ", (long long)bad,
                bad > BAD_SAID_MAX ? " (the first 10 are named above)" : "");
    if (!rc && lost)
        rc = pst_err_set(&v.err, PST_EUNREACH, PST_CLASS_RETRY, "kafka", 0, "%lld records were not acknowledged: %s", (long long)lost,
                         s.feed.why);
    source_feed_close(&s.feed);
    pst_schema_free(s.schema);
    pst_buf_done(&s.value);
    pst_buf_done(&s.line);
    pst_buf_done(&s.schema_text);
    pst_csv_close(s.csv);
    source_columns_free(s.columns);
    free(o.decimal_commas.items);
    status = pst_verb_end(&v, rc);
    return !status && bad ? EXIT_PARTIAL : status;
}
