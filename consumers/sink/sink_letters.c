/* sink_letters.c - dead letters of sinks. A producer is opened by the first one: most sinks never have any. The topic is made as large as the record's own
 * allows and a little more, or the letter of a record that just fits would not. */
#include "consumers/sink/sink_letters.h"

#include "common/base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_MS = 10000, FLUSH_MS = 15000, HEADERS_BYTES = 4096 };

struct sink_letters {
    pst_client *client;
    char *component, *topic;
    pst_producer *producer;
    pst_map made; /* topics that are known to be there */
    pst_header_room headers;
    pst_buf texts;
    int64_t count;
};

sink_letters *sink_letters_new(pst_client *client, const char *component, const char *topic)
{
    sink_letters *l = pst_alloc(sizeof *l);
    l->client = client;
    l->component = pst_strdup(component);
    l->topic = pst_strdup(topic);
    return l;
}

void sink_letters_free(sink_letters *l)
{
    if (!l)
        return;
    pst_producer_free(l->producer);
    pst_map_done(&l->made, NULL);
    pst_header_room_done(&l->headers);
    pst_buf_done(&l->texts);
    free(l->component);
    free(l->topic);
    free(l);
}

static int make_topic(sink_letters *l, const char *name, const char *of, pst_err *err)
{
    if (pst_map_get(&l->made, name))
        return 0;
    char *most = NULL, bytes[24];
    bool known = pst_admin_topic_config(l->client->bus, of, "max.message.bytes", &most, ASK_MS, NULL) == 0;
    snprintf(bytes, sizeof bytes, "%lld", (known ? strtoll(most, NULL, 10) : 0) + HEADERS_BYTES);
    free(most);
    /* Kept for as long as letters are kept from now on: by the time of an old record it would be deleted within minutes. */
    const char *const configs[] = {"message.timestamp.type", "LogAppendTime", known ? "max.message.bytes" : NULL, bytes, NULL};
    pst_err e = {0};
    int rc = pst_admin_create_topics(l->client->bus, &(pst_topic_spec){name, 1, -1, configs}, 1, ASK_MS, &e);
    if (rc < 0 && e.cls == PST_CLASS_RETRY) {
        *err = e;
        return rc;
    }
    if (rc < 0) /* no right to make it: it may well be there; if it is not, the letter's delivery says so */
        fprintf(stderr, "penstock sink: %s\n", e.text);
    pst_map_put(&l->made, name, l);
    return 0;
}

int sink_letters_send(sink_letters *l, const pst_record *r, const char *reason, const char *message, pst_err *err)
{
    fprintf(stderr, "penstock sink: %s [%d] offset %lld is refused for good (%s): %s\n", r->topic, r->partition, (long long)r->offset,
            reason, message);
    if (l->topic && !strcmp(l->topic, "none")) {
        l->count++;
        return 0;
    }
    char *name = l->topic ? pst_strdup(l->topic) : pst_sprintf("%s.dlq", r->topic);
    int rc = make_topic(l, name, r->topic, err);
    if (!rc && !l->producer)
        rc = pst_producer_new(l->client->bus, &(pst_producer_opts){.linger_ms = -1}, &l->producer, err);
    if (!rc) {
        pst_dead_letter d = {.record = r, .component = l->component, .stage = "PRODUCE", .reason = reason, .message = message};
        pst_out out;
        pst_dead_letter_out(&d, name, &l->headers, &l->texts, &out);
        rc = pst_producer_send(l->producer, &out, err);
        if (rc < 0 && err->cls == PST_CLASS_DATA) { /* it is not left out behind anybody's back */
            err->cls = PST_CLASS_FATAL;
            pst_err_prefix(
                err, "the dead letter of %s [%d] offset %lld does not fit into %s; raise its max.message.bytes, or --dead-letters none",
                r->topic, (int)r->partition, (long long)r->offset, name);
        }
    }
    l->count += !rc;
    free(name);
    return rc;
}

int sink_letters_settle(sink_letters *l, pst_err *err)
{
    int rc = l->producer ? pst_producer_flush(l->producer, FLUSH_MS, err) : 0;
    if (rc < 0 && err->cls != PST_CLASS_RETRY)
        pst_err_prefix(
            err, "a dead letter could not be written (a right, or max.message.bytes of its topic? --dead-letters none leaves it out)");
    return rc;
}

int64_t sink_letters_count(const sink_letters *l)
{
    return l->count;
}
