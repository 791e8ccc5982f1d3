/* registry_log.h - the `_schemas` topic as an ordered log: a thread that reads it from its beginning and hands every record to the loop,
 * and a producer on the loop's thread. Inside the registry server only. */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_LOG_H
#define PST_DEPLOY_REGISTRY_REGISTRY_LOG_H

#include "common/bus/bus.h"
#include "common/loop/loop.h"

typedef struct rlog_record {
    int64_t offset;
    char *key, *value; /* value NULL = tombstone */
    size_t key_len, value_len;
    char mark[64]; /* header penstock-registry of NOOP records: "<instance> <word>"; "" = none */
} rlog_record;

typedef struct rlog_conf {
    const pst_bus_conf *bus;
    const char *topic;
    bool embedded; /* the topic has more partitions than one; 0 is used */
    pst_loop *loop;
    /* All on the loop's thread. */
    void (*on_ready)(void *arg);                                                    /* the topic exists: a producer may write */
    void (*on_records)(void *arg, const rlog_record *records, size_t n);            /* in order; borrowed */
    void (*on_ack)(void *arg, uint64_t token, int64_t offset, const char *failure); /* of rlog_write; failure NULL = stored */
    void (*on_trouble)(void *arg, const pst_err *err);                              /* class RETRY: goes on; FATAL: ended */
    void *arg;
} rlog_conf;

typedef struct rlog rlog;
int rlog_start(const rlog_conf *conf, rlog **ret_log, pst_err *err);
/* After on_ready. token > 0 comes back in on_ack; 0: nobody waits for it. mark NULL = none. */
int rlog_write(rlog *l, uint64_t token, const char *key, const char *value, const char *mark, pst_err *err);
void rlog_poll(rlog *l); /* serves on_ack; call it every few milliseconds while something is being written */
void rlog_stop(rlog *l); /* after the loop has ended: joins the thread, waits half a second for what is being written. NULL-safe */

#endif
