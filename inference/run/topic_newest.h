/* topic_newest.h - the newest records of a topic, without a group and without waiting for any to come: what a check looks at where no schema
 * tells what the records hold.
 *
 *     rc = score_topic_newest(c, "telemetry", 100, 10000, look, &mine, &err);     // 0 also when the topic is empty; PST_ENOTFOUND: there is none
 */
#ifndef PST_INFERENCE_RUN_TOPIC_NEWEST_H
#define PST_INFERENCE_RUN_TOPIC_NEWEST_H

#include "common/platform/client.h"
#include "common/bus/bus.h"

/* The last `most` records in all (a share of each partition, at least one), those of open transactions among them: a look, not a read that may
 * rest on what it saw. fn as of pst_client_scan, but without key. Waits at most timeout_ms for metadata, and as long again for the records;
 * PST_EUNREACH, PST_EAUTH, PST_ENOTFOUND, PST_ESTOPPED. @thread any. */
typedef int (*score_newest_fn)(void *arg, const pst_record *r, pst_err *err);
int score_topic_newest(pst_client *c, const char *topic, int most, int timeout_ms, score_newest_fn fn, void *arg, pst_err *err);

#endif
