/* sink_bulk.c - the lines of a bulk request and the verdict on each item of its answer.
 *
 * The status of the whole says nothing about a document: HTTP 200 may hold items that were stored, that come too fast and that fit no mapping. An item is
 * refused for good only where its own status is a 4xx that no operator, and no time, can cure; some 4xx are the cluster's state, though, and are
 * told by their type. Rather send a document for ever, with the reason said, than lose one to a full disk. */
#include "consumers/sink/sink_bulk.h"

#include "common/base/array.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_MAX = 255, ANSWER_MAX = 64 << 20 };

void sink_bulk_add(sink_bulk *b, const char *index, const pst_record *record, const json_t *document)
{
    b->items = pst_array_room(b->items, b->n, &b->cap, sizeof *b->items);
    sink_bulk_item *item = &b->items[b->n++];
    *item = (sink_bulk_item){.at = b->lines.len, .record = record};
    pst_buf_adds(&b->lines, "{\"index\":{\"_index\":");
    pst_json_quote(&b->lines, index, strlen(index));
    pst_buf_printf(&b->lines, ",\"_id\":\"%s-%d-%lld\"}}\n", record->topic, (int)record->partition, (long long)record->offset);
    pst_json_add(&b->lines, document);
    pst_buf_addc(&b->lines, '\n');
    item->len = b->lines.len - item->at;
}

pst_slice sink_bulk_body(const sink_bulk *b, size_t from, size_t to)
{
    PST_ASSERT(from < to && to <= b->n);
    const sink_bulk_item *last = &b->items[to - 1];
    return (pst_slice){b->lines.data + b->items[from].at, last->at + last->len - b->items[from].at};
}

void sink_bulk_judge(sink_bulk *b, size_t item, sink_bulk_verdict verdict, const char *reason, const char *message)
{
    PST_ASSERT(item < b->n);
    sink_bulk_item *i = &b->items[item];
    i->verdict = verdict;
    snprintf(i->reason, sizeof i->reason, "%s", reason ? reason : "");
    snprintf(i->message, sizeof i->message, "%s", message ? message : "");
}

/* Answers with a 4xx that are no word about the document. */
static bool is_of_the_cluster(int64_t status, const char *type)
{
    static const int64_t statuses[] = {401, 403, 404, 408, 429};
    static const char *const types[] = {"cluster_block_exception", "index_closed_exception", "security_exception", "validation_exception",
                                        "process_cluster_event_timeout_exception"};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (status == statuses[i])
            return true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i]))
            return true;
    return false;
}

static void judge(sink_bulk *b, size_t at, const json_t *result)
{
    int64_t status = pst_json_int(result, "status", 0);
    const json_t *error = json_object_get(result, "error"), *cause = json_object_get(error, "caused_by");
    const char *type = pst_json_str(error, "type", "unknown"), *why = pst_json_str(error, "reason", json_string_value(error));
    char message[512];
    snprintf(message, sizeof message, "%s%s%s", why ? why : "", json_is_object(cause) ? ": " : "", pst_json_str(cause, "reason", ""));
    /* 409: an id that is there already, from a request whose answer never came. */
    if ((status >= 200 && status < 300) || status == 409)
        sink_bulk_judge(b, at, SINK_BULK_DONE, NULL, NULL);
    else if (status >= 400 && status < 500 && !is_of_the_cluster(status, type))
        sink_bulk_judge(b, at, SINK_BULK_REFUSED, type, message);
    else
        sink_bulk_judge(b, at, SINK_BULK_AGAIN, type, message);
}

int sink_bulk_answer(sink_bulk *b, size_t from, size_t to, const char *text, size_t len, pst_err *err)
{
    json_t *root = NULL;
    pst_err e = {0};
    int rc = len > ANSWER_MAX ? PST_EPARSE : pst_json_parse(text, len, "the answer", &root, &e);
    const json_t *items = json_object_get(root, "items");
    if (!rc && json_array_size(items) != to - from)
        rc = PST_EPARSE;
    for (size_t i = 0; !rc && i < to - from; i++) {
        /* {"index": {"_id": …, "status": …}}; items come in the order of the request. */
        const json_t *item = json_array_get(items, i), *result = json_object_get(item, "index");
        if (!json_is_integer(json_object_get(result, "status")))
            rc = PST_EPARSE;
    }
    if (rc)
        pst_err_set(err, rc = PST_EPARSE, PST_CLASS_RETRY, "opensearch", 0, "what answers is no bulk API: %.80s", len ? text : "(nothing)");
    for (size_t i = 0; !rc && i < to - from; i++)
        judge(b, from + i, json_object_get(json_array_get(items, i), "index"));
    json_decref(root);
    return rc;
}

size_t sink_bulk_count(const sink_bulk *b, sink_bulk_verdict verdict)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += b->items[i].verdict == verdict;
    return n;
}

void sink_bulk_keep(sink_bulk *b, sink_bulk_verdict verdict)
{
    size_t n = 0, len = 0;
    for (size_t i = 0; i < b->n; i++) {
        sink_bulk_item item = b->items[i];
        if (item.verdict != verdict)
            continue;
        memmove(b->lines.data + len, b->lines.data + item.at, item.len);
        item.at = len;
        len += item.len;
        b->items[n++] = item;
    }
    b->n = n;
    b->lines.len = len;
}

void sink_bulk_clear(sink_bulk *b)
{
    b->n = 0;
    pst_buf_clear(&b->lines);
}

void sink_bulk_done(sink_bulk *b)
{
    pst_buf_done(&b->lines);
    free(b->items);
    *b = (sink_bulk){0};
}

char *sink_bulk_index(const char *topic)
{
    /* A leading _ - or + is refused. */
    char *index = pst_sprintf("%s%s", strchr("_-+", *topic) ? "topic" : "", topic);
    if (strlen(index) > INDEX_MAX)
        index[INDEX_MAX] = 0;
    for (char *p = index; *p; p++)
        *p = strchr("\\/*?\"<>| ,#:", *p) || (unsigned char)*p <= ' ' ? '_' : (char)tolower((unsigned char)*p);
    return index;
}
