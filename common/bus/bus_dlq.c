/* bus_dlq.c - dead letters: the original bytes and headers, and Kafka Connect's headers beside them, so that existing viewers show them. */
#include "common/bus/bus.h"

#include <string.h>

#define MESSAGE_MAX 1024
#define OWN_HEADERS 9
#define CONNECT     "__connect.errors."

/* A cut never leaves half a UTF-8 character. */
static size_t cut(const char *text, size_t max)
{
    size_t n = strlen(text);
    if (n <= max)
        return n;
    for (n = max; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
        ;
    return n;
}

/* Our names of an earlier round (a replayed dead letter that failed again) are replaced, not repeated. */
static bool ours(const char *name)
{
    return !strncmp(name, CONNECT, strlen(CONNECT)) || !strcmp(name, "x-dlq-reason") || !strcmp(name, "x-dlq-component") ||
           !strcmp(name, "x-dlq-timestamp");
}

void pst_dead_letter_out(const pst_dead_letter *d, const char *topic, pst_header_room *room, pst_buf *texts, pst_out *ret_out)
{
    const pst_record *r = d->record;
    size_t found = pst_record_headers_all(r, room, OWN_HEADERS), n = 0;
    for (size_t i = 0; i < found; i++)
        if (!ours(room->at[i].name))
            room->at[n++] = room->at[i];

    const char *reason = d->reason ? d->reason : "unknown", *component = d->component ? d->component : "",
               *message = d->message ? d->message : "";
    pst_buf_clear(texts);
    pst_buf_reserve(texts, 96); /* one growth, before pointers into it are taken */
    size_t partition_at = texts->len;
    pst_buf_printf(texts, "%d", (int)r->partition);
    size_t partition_len = texts->len - partition_at, offset_at = texts->len;
    pst_buf_printf(texts, "%lld", (long long)r->offset);
    size_t offset_len = texts->len - offset_at, time_at = texts->len;
    pst_buf_printf(texts, "%lld", (long long)r->timestamp_ms);
    size_t time_len = texts->len - time_at;

    const pst_header own[OWN_HEADERS] = {
        {CONNECT "topic", r->topic, strlen(r->topic)},
        {CONNECT "partition", texts->data + partition_at, partition_len},
        {CONNECT "offset", texts->data + offset_at, offset_len},
        {CONNECT "connector.name", component, strlen(component)},
        {CONNECT "stage", d->stage ? d->stage : "", d->stage ? strlen(d->stage) : 0},
        {CONNECT "exception.class.name", reason, strlen(reason)},
        {CONNECT "exception.message", message, cut(message, MESSAGE_MAX)},
        {"x-dlq-reason", reason, strlen(reason)},
        {"x-dlq-timestamp", texts->data + time_at, time_len},
    };
    size_t n_own = d->own_time ? OWN_HEADERS : OWN_HEADERS - 1;
    memcpy(room->at + n, own, n_own * sizeof *own);
    n += n_own;
    *ret_out = (pst_out){.topic = topic,
                         .partition = -1,
                         .key = r->key,
                         .key_len = r->key_len,
                         .value = r->value,
                         .value_len = r->value_len,
                         .timestamp_ms = r->timestamp_ms > 0 && !d->own_time ? r->timestamp_ms : 0,
                         .headers = room->at,
                         .n_headers = n};
}
