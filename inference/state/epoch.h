/* epoch.h - the reign of one model in one role: from which offset on it counts on which partition, and where its predecessor's last record has been
 * committed. A record's offset alone decides between two models, so that a replay gives the same scores.
 *
 *     pst_epoch *e = pst_epoch_new(from, n);          // n = 0: from the next record on, everywhere
 *     if (pst_epoch_covers(e, record)) …              // the new model's
 *     if (pst_epoch_committed(e, topic, partition, offset)) …   // nothing is left for the predecessor
 *
 * @thread one owner. */
#ifndef PST_INFERENCE_STATE_EPOCH_H
#define PST_INFERENCE_STATE_EPOCH_H

#include "common/bus/bus.h"

typedef struct pst_effective { /* from this offset on */
    char *topic;
    int32_t partition;
    int64_t offset;
} pst_effective;

typedef struct pst_epoch pst_epoch;

pst_epoch *pst_epoch_new(const pst_effective *from, size_t n); /* copied */
void pst_epoch_free(pst_epoch *e);                             /* NULL-safe */
/* Also where nothing is said of the record's partition. */
bool pst_epoch_covers(const pst_epoch *e, const pst_record *r);
int64_t pst_epoch_from(const pst_epoch *e, const char *topic, int32_t partition); /* -1 = nothing is said of it */
/* Everything before `offset` of this partition is committed. True: of all partitions it has been so as far as the epoch's begin. */
bool pst_epoch_committed(pst_epoch *e, const char *topic, int32_t partition, int64_t offset);
/* These partitions are ours now, and everything before `from` of each is committed (-1 = not known). True: the epoch has begun on all of them of
 * which it says something; an idle one begins there without a record. */
bool pst_epoch_assigned(const pst_epoch *e, const pst_range *ours, size_t n);

#endif
