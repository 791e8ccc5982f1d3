/* rdk_client.c - what every client of librdkafka has: codes, lists, questions; and the table of all that it brings.
 *
 * Its codes are ours: the protocol's numbers, and its own below zero, which bus_client.h has taken over. The assertions here hold the two together,
 * so that nothing is translated on the way. */
#include "common/bus/rdkafka/rdk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name, number) _Static_assert((number) == RD_KAFKA_RESP_ERR_##name, "librdkafka's number of " #name);
BUS_CODES(X)
#undef X
_Static_assert(PST_OFFSET_BEGINNING == RD_KAFKA_OFFSET_BEGINNING && PST_OFFSET_END == RD_KAFKA_OFFSET_END &&
                   PST_OFFSET_TAIL(3) == RD_KAFKA_OFFSET_TAIL(3) && BUS_OFFSET_NONE == RD_KAFKA_OFFSET_INVALID,
               "librdkafka's logical offsets");

/* ---- lists --------------------------------------------------------------------------------------------------------------------- */

rd_kafka_topic_partition_list_t *rdk_list(const bus_places *places)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)places->n + 1);
    for (size_t i = 0; i < places->n; i++) {
        const bus_place *p = &places->at[i];
        rd_kafka_topic_partition_t *tp = rd_kafka_topic_partition_list_add(list, p->topic, p->partition);
        tp->offset = p->offset;
        if (p->note) {
            tp->metadata = pst_strdup(p->note); /* librdkafka frees it by free() */
            tp->metadata_size = strlen(p->note);
        }
    }
    return list;
}

void rdk_place_set(bus_place *place, const rd_kafka_topic_partition_t *tp)
{
    place->offset = tp->offset;
    place->code = tp->err;
    free(place->note);
    place->note = tp->metadata ? pst_strndup(tp->metadata, tp->metadata_size) : NULL;
}

void rdk_list_back(rd_kafka_topic_partition_list_t *list, bus_places *places)
{
    PST_ASSERT((size_t)list->cnt == places->n); /* its calls answer in the list they were given, in its order */
    for (size_t i = 0; i < places->n; i++)
        rdk_place_set(&places->at[i], &list->elems[i]);
    rd_kafka_topic_partition_list_destroy(list);
}

/* ---- every client -------------------------------------------------------------------------------------------------------------- */

/* Of a consumer the news come with its records, on one queue, and rd_kafka_poll() ends the process when it meets a record there ("assert: res !=
 * RD_KAFKA_OP_RES_PASS", 2.0.2): once there may be any, news wait for its own poll. */
static int serve(bus_handle *b, int timeout_ms)
{
    rdk *h = rdk_of(b);
    return h->gives_records ? 0 : rd_kafka_poll(h->rk, timeout_ms);
}

int rdk_fatal(bus_handle *h, char *text, size_t size)
{
    return rd_kafka_fatal_error(rdk_of(h)->rk, text, size);
}

int rdk_error(rd_kafka_error_t *e, char *text, size_t size)
{
    int code = e ? rd_kafka_error_code(e) : 0;
    if (e)
        snprintf(text, size, "%s", rd_kafka_error_string(e));
    rd_kafka_error_destroy(e); /* takes NULL */
    return code;
}

static int topic(bus_handle *h, const char *name, int timeout_ms, bus_topic *ret)
{
    const rd_kafka_metadata_t *m;
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rdk_of(h)->rk, name, NULL);
    rd_kafka_resp_err_t code = rd_kafka_metadata(rdk_of(h)->rk, 0, rkt, &m, timeout_ms);
    if (rkt)
        rd_kafka_topic_destroy(rkt);
    if (code)
        return code;
    *ret = (bus_topic){.code = m->topic_cnt ? m->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
                       .partitions = m->topic_cnt ? m->topics[0].partition_cnt : 0};
    for (int i = 0; i < ret->partitions; i++)
        ret->lacks_leader |= m->topics[0].partitions[i].leader < 0;
    rd_kafka_metadata_destroy(m);
    return 0;
}

static int offsets_at(bus_handle *h, bus_places *places, int timeout_ms)
{
    rd_kafka_topic_partition_list_t *list = rdk_list(places);
    int code = rd_kafka_offsets_for_times(rdk_of(h)->rk, list, timeout_ms);
    rdk_list_back(list, places);
    return code;
}

static int watermarks(bus_handle *h, const char *name, int32_t partition, int timeout_ms, int64_t *ret_low, int64_t *ret_high)
{
    return rd_kafka_query_watermark_offsets(rdk_of(h)->rk, name, partition, ret_low, ret_high, timeout_ms);
}

static int committed(bus_handle *h, bus_places *places, int timeout_ms)
{
    rd_kafka_topic_partition_list_t *list = rdk_list(places);
    int code = rd_kafka_committed(rdk_of(h)->rk, list, timeout_ms);
    rdk_list_back(list, places);
    return code;
}

static char *cluster_id(bus_handle *h, int timeout_ms)
{
    return rd_kafka_clusterid(rdk_of(h)->rk, timeout_ms);
}

/* A consumer with a fatal error never speaks to its group again: closing it would wait for an answer in vain. */
void rdk_free(bus_handle *b)
{
    rdk *h = rdk_of(b);
    if (h->news)
        rd_kafka_message_destroy(h->news); /* one that is kept would make rd_kafka_destroy wait for ever */
    rdk_kept_free(h);
    if (h->topic)
        rd_kafka_topic_destroy(h->topic);
    bool dead_member = rd_kafka_type(h->rk) == RD_KAFKA_CONSUMER && rd_kafka_fatal_error(h->rk, NULL, 0);
    if (dead_member)
        rd_kafka_destroy_flags(h->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    else
        rd_kafka_destroy(h->rk);
    rdk_tickets_free(h);
    pst_buf_done(&h->room);
    free(h);
}

/* There are none before there is a client; but a text may be asked for without one. */
static const char *code_text(int code)
{
    if (rdkafka_lib_open(NULL) < 0)
        return "no librdkafka";
    return rd_kafka_err2str((rd_kafka_resp_err_t)code);
}

static const char *code_name(int code)
{
    if (rdkafka_lib_open(NULL) < 0)
        return "no librdkafka";
    return rd_kafka_err2name((rd_kafka_resp_err_t)code);
}

static const bus_common_ops common_ops = {
    .serve = serve,
    .fatal = rdk_fatal,
    .topic = topic,
    .offsets_at = offsets_at,
    .watermarks = watermarks,
    .committed = committed,
    .cluster_id = cluster_id,
    .free = rdk_free,
    .code_text = code_text,
    .code_name = code_name,
};

const bus_client pst_rdk_client = {
    .name = "librdkafka",
    .conf = &rdk_conf_ops,
    .common = &common_ops,
    .consumer = &rdk_consumer_ops,
    .producer = &rdk_producer_ops,
    .admin = &rdk_admin_ops,
};
