/* follow.h - reading one job's records from the topics, for events, logs, metrics, submit --wait and the job verbs.
 * Only the partition of the job's key is read, from the time of its submission on (found by timestamp), so that long topics cost little. */
#ifndef PST_COMMON_PLATFORM_FOLLOW_H
#define PST_COMMON_PLATFORM_FOLLOW_H

#include "common/platform/client.h"
#include "common/bus/bus.h"
#include "schemas/topics.h"

typedef struct pst_follow {
    pst_client *client;
    pst_topic topic; /* whose records go to fn */
    const char *training_id;
    bool follow;              /* go on after the present end, until the job has ended or fn says stop */
    bool to_the_end_of_job;   /* with follow: return 0 once the job has ended and its last records were seen */
    int64_t since_us;         /* records before this time are not wanted; 0 = all */
    int64_t timeout_us;       /* 0 = none */
    const _Atomic bool *stop; /* true ends it with 0; NULL = never */
    int (*fn)(void *arg, const pst_record *r, pst_err *err); /* 0 go on, 1 stop, < 0 fail */
    void *arg;
} pst_follow;

int pst_follow_run(const pst_follow *f, pst_err *err);
/* The partition that key goes to; -1 = all must be read (embedded broker). */
int pst_partition_of(const pst_client *c, const char *key, int partitions);

#endif
