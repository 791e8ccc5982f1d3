/* rdk_group.c - membership in a group, where librdkafka has to be helped: whether it is one, and leaving.
 *
 * librdkafka's static members do not leave when they are closed (KIP-345), so that a restart costs no rebalance; those that unsubscribe do. The
 * partitions are given back by the rebalance callback, the request follows by itself, and closing waits for its answer. */
#include "common/bus/rdkafka/rdk.h"
#include "common/base/clock.h"

#define LEAVE_WAIT_MS 3000

bool pst_rdk_is_member(rd_kafka_t *rk)
{
    char *id = rd_kafka_memberid(rk);
    bool is = id && *id;
    if (id)
        rd_kafka_mem_free(rk, id);
    return is;
}

static bool has_partitions(rd_kafka_t *rk)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    bool has = rd_kafka_assignment(rk, &list) == RD_KAFKA_RESP_ERR_NO_ERROR && list->cnt > 0;
    if (list)
        rd_kafka_topic_partition_list_destroy(list);
    return has;
}

void pst_rdk_leave(rd_kafka_t *rk)
{
    if (rd_kafka_unsubscribe(rk))
        return;
    /* The id is given up when the request goes out. Closed before that, as in the middle of a rebalance, a static member would stay. */
    for (int64_t until = pst_mono_us() + LEAVE_WAIT_MS * 1000LL; (has_partitions(rk) || pst_rdk_is_member(rk)) && pst_mono_us() < until;) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 20);
        if (m)
            rd_kafka_message_destroy(m);
    }
}
