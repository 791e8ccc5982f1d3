/* show.c - one dead letter whole: where it came from, why it died, its key, headers and value. The bytes are shown as what they are known to be (Avro by
 * the registry, JSON, text), and as bytes where that is not known; a schema that is gone or a registry that is away is told beside them. */
#include "inference/dlq/ask.h"
#include "inference/dlq/ledger.h"
#include "inference/dlq/scan.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/term.h"
#include "common/platform/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 2048, TEXT_BYTES = 65536, DECODE_ROOM = 256 << 20, LINE_BYTES = 16 };

typedef struct show {
    pst_verb_run *v;
    const pst_dlq_ask *ask;
    dlq_ledger *ledger; /* NULL = not known what was replayed */
    bool found;
    pst_header_room room;
} show;

/* What some bytes are. */
typedef struct body {
    const char *format; /* "null", "avro", "json", "text", "bytes" */
    int32_t schema_id;  /* -1 = none */
    json_t *json;       /* avro, json */
    const char *data;
    size_t len;
    pst_err why; /* not decoded: why */
} body;

static bool is_text(const char *p, size_t n)
{
    json_t *s = memchr(p, 0, n) ? NULL : json_stringn(p, n); /* Jansson refuses what is not UTF-8 */
    json_decref(s);
    return s != NULL;
}

static body body_of(const show *s, const void *data, size_t len)
{
    body b = {.format = "bytes", .schema_id = -1, .data = data, .len = len};
    if (!data) {
        b.format = "null";
        return b;
    }
    bool framed = len >= 5 && !*b.data, braces = len && (*b.data == '{' || *b.data == '[');
    if ((framed || braces) && pst_codec_to_json_within(s->v->client->codec, data, len, DECODE_ROOM, &b.json, &b.schema_id, &b.why) == 0)
        b.format = framed ? "avro" : "json";
    else if (is_text(b.data, len))
        b.format = "text";
    if (framed && b.schema_id < 0) {
        const unsigned char *id = data;
        b.schema_id = (int32_t)((uint32_t)id[1] << 24 | (uint32_t)id[2] << 16 | (uint32_t)id[3] << 8 | id[4]);
    }
    return b;
}

static size_t shown_of(const show *s, size_t len, size_t most)
{
    return s->ask->full || len < most ? len : most;
}

/* ---- for programs ------------------------------------------------------------------------------------------------------------ */

static json_t *bytes_json(const char *data, size_t n)
{
    char *hex = pst_alloc(2 * n + 1);
    pst_hex((const uint8_t *)data, n, hex);
    json_t *j = json_string(hex);
    free(hex);
    return j;
}

static json_t *body_json(const show *s, body *b)
{
    json_t *j = json_pack("{s:s, s:I}", "format", b->format, "bytes", (json_int_t)b->len);
    if (b->schema_id >= 0)
        json_object_set_new(j, "schema_id", json_integer(b->schema_id));
    size_t n = shown_of(s, b->len, TEXT_BYTES);
    if (b->json)
        json_object_set(j, "data", b->json);
    else if (!strcmp(b->format, "text") && is_text(b->data, n))
        json_object_set_new(j, "data", json_stringn(b->data, n));
    else if (b->data)
        json_object_set_new(j, "hex", bytes_json(b->data, n));
    if (!b->json && n < b->len)
        json_object_set_new(j, "cut", json_true());
    if (b->why.code)
        json_object_set_new(j, "why", json_string(b->why.text));
    json_decref(b->json);
    return j;
}

/* What is no UTF-8 becomes U+FFFD; nothing is null. */
static json_t *text_json(pst_slice t)
{
    pst_buf b = {0};
    if (!t.len)
        return json_null();
    pst_json_quote(&b, t.data, t.len);
    json_t *j = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
    pst_buf_done(&b);
    return j ? j : json_null();
}

static json_t *headers_json(show *s, const pst_record *r)
{
    json_t *list = json_array();
    size_t n = pst_record_headers_all(r, &s->room, 0);
    for (size_t i = 0; i < n; i++) {
        const pst_header *h = &s->room.at[i];
        json_t *name = text_json((pst_slice){h->name, strlen(h->name)}), *o = json_pack("{s:o}", "name", name);
        if (h->value && !is_text(h->value, h->len))
            json_object_set_new(o, "hex", bytes_json(h->value, shown_of(s, h->len, TEXT_BYTES)));
        else
            json_object_set_new(o, "value", h->value ? json_stringn(h->value, h->len) : json_null());
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *known(int64_t n)
{
    return n >= 0 ? json_integer(n) : json_null();
}

static void print_json(show *s, const dlq_letter *d, body *key, body *value)
{
    const pst_record *r = d->record;
    char when[32];
    json_t *j = json_pack("{s:s, s:i, s:I, s:{s:s, s:o, s:o}, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "topic", r->topic, "partition",
                          (int)r->partition, "offset", (json_int_t)r->offset, "source", "topic", d->source, "partition",
                          known(d->source_partition), "offset", known(d->source_offset), "time",
                          d->timestamp_ms >= 0 ? json_string(pst_time_text(d->timestamp_ms * 1000, when)) : json_null(), "component",
                          text_json(d->component), "stage", text_json(d->stage), "reason", text_json(d->reason), "class",
                          text_json(d->error_class), "message", text_json(d->message), "replays", (json_int_t)d->replays, "replayed",
                          s->ledger ? json_boolean(dlq_ledger_has(s->ledger, r->partition, r->offset)) : json_null());
    json_object_set_new(j, "headers", headers_json(s, r));
    json_object_set_new(j, "key", body_json(s, key));
    json_object_set_new(j, "value", body_json(s, value));
    dlq_ask_row(s->ask, j);
}

/* ---- for people --------------------------------------------------------------------------------------------------------------- */

static void print_hex(const char *data, size_t n)
{
    for (size_t at = 0; at < n; at += LINE_BYTES) {
        printf("  %08zx ", at);
        for (size_t i = at; i < at + LINE_BYTES; i++) {
            if (i < n)
                printf(" %02x", (unsigned char)data[i]);
            else
                fputs("   ", stdout);
        }
        fputs("  ", stdout);
        for (size_t i = at; i < at + LINE_BYTES && i < n; i++)
            putchar(data[i] >= 0x20 && data[i] < 0x7f ? data[i] : '.');
        putchar('\n');
    }
}

static void print_text(const char *label, pst_slice text)
{
    pst_buf b = {0};
    dlq_ask_quote(&b, text, TEXT_BYTES);
    printf("%-12s %s\n", label, b.data);
    pst_buf_done(&b);
}

static void print_body(const show *s, const char *label, body *b)
{
    bool hex = !strcmp(b->format, "bytes");
    size_t n = shown_of(s, b->len, hex ? SHOWN_BYTES : TEXT_BYTES);
    printf("%-12s ", label);
    if (!b->data) {
        printf("none (null)\n");
        return;
    }
    printf("%s, %zu bytes", hex ? "bytes" : !strcmp(b->format, "avro") ? "Avro" : !strcmp(b->format, "json") ? "JSON" : "text", b->len);
    if (b->schema_id >= 0)
        printf(", schema id %d", (int)b->schema_id);
    if (b->why.code)
        printf("; not decoded: %s", b->why.text);
    printf("\n");
    if (b->json) {
        char *text = json_dumps(b->json, JSON_INDENT(2) | JSON_ENCODE_ANY);
        printf("%s\n", text ? text : "");
        free(text);
    } else if (hex) {
        print_hex(b->data, n);
    } else {
        pst_buf shown = {0};
        dlq_ask_quote(&shown, (pst_slice){b->data, n}, s->ask->full ? SIZE_MAX / 2 : TEXT_BYTES);
        printf("  %s\n", shown.data);
        pst_buf_done(&shown);
    }
    if (!b->json && n < b->len)
        printf("  ... %zu more bytes; --full shows them\n", b->len - n);
    json_decref(b->json);
}

static void print_place(const show *s, const dlq_letter *d)
{
    const pst_record *r = d->record;
    char when[32];
    printf("%-12s %s [%d] offset %lld\n", "dead letter", r->topic, r->partition, (long long)r->offset);
    printf("%-12s %s", "came from", d->source);
    if (d->source_partition >= 0)
        printf(" [%d]", d->source_partition);
    if (d->source_offset >= 0)
        printf(" offset %lld", (long long)d->source_offset);
    printf("\n%-12s %s\n", "its time", d->timestamp_ms >= 0 ? pst_time_text(d->timestamp_ms * 1000, when) : "not known");
    print_text("component", d->component);
    print_text("stage", d->stage);
    print_text("reason", d->reason);
    if (d->error_class.len != d->reason.len || (d->reason.len && memcmp(d->error_class.data, d->reason.data, d->reason.len) != 0))
        print_text("class", d->error_class);
    print_text("message", d->message);
    printf("%-12s %s", "replayed", !s->ledger ? "not known" : dlq_ledger_has(s->ledger, r->partition, r->offset) ? "yes" : "no");
    if (d->replays)
        printf("; before that, %lld time%s", (long long)d->replays, d->replays == 1 ? "" : "s");
    printf("\n");
}

static void print_letter(show *s, const dlq_letter *d, body *key, body *value)
{
    print_place(s, d);
    size_t n = pst_record_headers_all(d->record, &s->room, 0);
    for (size_t i = 0; i < n; i++) {
        const pst_header *h = &s->room.at[i];
        if (dlq_header_is_error(h->name))
            continue;
        pst_buf b = {0};
        dlq_ask_quote(&b, (pst_slice){h->name, strlen(h->name)}, 200);
        pst_buf_adds(&b, " = ");
        dlq_ask_quote(&b, (pst_slice){h->value, h->value ? h->len : 0}, 1024);
        printf("%-12s %s\n", "header", b.data);
        pst_buf_done(&b);
    }
    print_body(s, "key", key);
    print_body(s, "value", value);
}

static int take_batch(void *arg, const pst_record *records, size_t n, pst_err *err)
{
    show *s = arg;
    dlq_letter d;
    pst_err e = {0};
    if (!n)
        return 0;
    if (s->ledger && dlq_ledger_check(s->ledger, records, &e) < 0)
        s->ledger = dlq_ask_distrust(s->ledger, &e);
    dlq_letter_read(records, &s->room, &d);
    s->found = true;
    if (!d.dead)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "config", 0,
                           "%s [%d] offset %lld is no dead letter: it has no header __connect.errors.topic that names a topic; "
                           "penstock cat -t %s -p %d -o %lld -c 1 -J shows it",
                           records->topic, records->partition, (long long)records->offset, records->topic, records->partition,
                           (long long)records->offset);
    body key = body_of(s, records->key, records->key_len), value = body_of(s, records->value, records->value_len);
    if (s->v->settings.json)
        print_json(s, &d, &key, &value);
    else
        print_letter(s, &d, &key, &value);
    return 1;
}

int pst_dlq_show(pst_verb_run *v, const pst_dlq_ask *ask, pst_err *err)
{
    show s = {.v = v, .ask = ask};
    dlq_filter f = {.partition = -1};
    pst_topic_info info = {0};
    pst_err e = {0};
    const char *topic = ask->topics[0];
    int rc = dlq_filter_partition(&f, ask->place, err);
    if (!rc && f.from != f.to)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%.80s is no place: wanted PARTITION:OFFSET, as dlq ls prints it",
                         ask->place);
    if (!rc)
        rc = dlq_ask_topic(v, topic, &info, err);
    s.ledger = rc ? NULL : dlq_ledger_new(topic);
    if (!rc && (dlq_ledger_read(s.ledger, v->client, false, &e) < 0 || dlq_ledger_check_ends(s.ledger, &info, &e) < 0))
        s.ledger = dlq_ask_distrust(s.ledger, &e);
    if (!rc)
        rc = dlq_scan(v->client, topic, &info, &f, take_batch, &s, err);
    if (!rc && !s.found)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "config", 0,
                         "%s [%d] has no record at offset %lld: it holds %lld to %lld, less what was compacted, aborted or is a marker",
                         topic, f.partition, (long long)f.from, (long long)info.low[f.partition], (long long)info.high[f.partition] - 1);
    dlq_ledger_free(s.ledger);
    pst_header_room_done(&s.room);
    pst_topic_info_done(&info);
    return rc;
}
