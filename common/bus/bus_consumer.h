/* bus_consumer.h - the consumer's state, shared by bus_consumer.c (polling, committing) and bus_assign.c (partitions, positions). */
#ifndef PST_BUS_CONSUMER_H
#define PST_BUS_CONSUMER_H

#include "common/bus/bus_internal.h"

struct pst_consumer {
    bus_health health; /* first: see bus_internal.h */
    pst_bus_conf *conf;
    pst_consumer_opts opts; /* group, topics, ranges and instance_id are ours */
    char *group;            /* NULL = none; librdkafka is given a made-up one then, which it never joins */
    rd_kafka_t *rk;
    bus_part *parts;
    size_t n_parts, last_part;
    pst_record *records; /* of the last poll; native owns each */
    size_t n, cap, bytes;
    uint64_t epoch;
    int64_t check_us; /* when bus_check_ranges looks again */
    bool checked;     /* all ranges are of partitions that exist */
    unsigned resets;  /* health.resets when last looked at */
    bool assigned, paused, lost, closing;
};

bus_part *bus_part_find(pst_consumer *c, const char *topic, int32_t partition);
bus_part *bus_part_add(pst_consumer *c, const char *topic, int32_t partition);
void bus_part_remove(pst_consumer *c, const char *topic, int32_t partition);
void bus_parts_clear(pst_consumer *c);
void bus_rebalance_cb(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *opaque);
int bus_assign_all(pst_consumer *c, pst_err *err); /* without a group */
void bus_check_ranges(pst_consumer *c);            /* without a group, while nothing comes */

#endif
