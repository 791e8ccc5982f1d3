/* sink_group.h - sinks that have a consumer group: what a poll gave is settled, with as many tries as it takes, and then its offsets are committed. @thread one. */
#ifndef PST_CONSUMERS_SINK_GROUP_H
#define PST_CONSUMERS_SINK_GROUP_H

#include "consumers/sink/sink.h"

typedef struct sink_group_round {
    const sink_ops *ops;
    void *sink;
    pst_consumer *consumer;
    const pst_batch *batch;
    size_t upto; /* the first so many of its records were taken */
    bool lost;   /* told: the partitions were taken away; the rest of the batch is not to be taken */
} sink_group_round;

/* PST_ESTOPPED: told to stop while its target was away; nothing was committed. */
int sink_group_settle(sink_group_round *r, pst_err *err);
/* Before the consumer goes: what is settled and could not be committed yet. */
void sink_group_end(pst_consumer *consumer);

#endif
