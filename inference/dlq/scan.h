/* scan.h - a topic of dead letters read once, from its beginning to the end that it had when it was asked for: what comes later is left for the next
 * time, so that a record that is put back and dies again is no endless loop. Committed records only; memory for one batch, whatever the topic holds. */
#ifndef PST_INFERENCE_DLQ_SCAN_H
#define PST_INFERENCE_DLQ_SCAN_H

#include "common/bus/bus.h"
#include "common/platform/client.h"
#include "inference/dlq/letter.h"

/* 0 to go on, 1 to stop, < 0 to fail. Records die when it returns. */
typedef int (*dlq_batch_fn)(void *arg, const pst_record *records, size_t n, pst_err *err);

/* info: of the topic, with its ends; only the filter's partition and offsets count here. PST_ENOTFOUND: there is no such partition. */
int dlq_scan(const pst_client *c, const char *topic, const pst_topic_info *info, const dlq_filter *f, dlq_batch_fn fn, void *arg,
             pst_err *err);

#endif
