/* waits.h - what a pipeline waits for. Several waits may stand at once: for the group's coordinator, and for the schemas of two partitions' next
 * records. Each is opened and ended by whoever waits, so the end of one says nothing of the others.
 *
 *     pst_waits_for(w, PST_WAIT_COORDINATOR, "kafka", why);     // what NULL = this wait has ended
 *     pst_waits_record(w, topic, partition, offset, "registry", why);
 *     pst_waits_passed(w, topic, partition, offset);            // that record was used: its partition waits no more
 *     pst_waits_text(w, "; and for ", &text);
 *
 * All say whether anything has changed. A partition has one wait at most, since it stands at one record; so their number is that of
 * partitions. @thread one owner, or a lock of the caller's. */
#ifndef PST_INFERENCE_STATE_WAITS_H
#define PST_INFERENCE_STATE_WAITS_H

#include "common/base/buf.h"
#include "common/bus/bus.h"

#define PST_WAIT_PAUSED "paused" /* the one that a person has to end; it is told first */

/* Who waits, apart from single partitions; in the order in which they are told. */
typedef enum {
    PST_WAIT_MODEL = 0,
    PST_WAIT_TOPICS,
    PST_WAIT_REOPENED,    /* consumer and producer were opened anew, and the group has not taken us in yet */
    PST_WAIT_COORDINATOR, /* Kafka lets the consumer we have wait */
    PST_WAIT_STATE,       /* the windows of a partition are read */
    PST_WAITERS
} pst_waiter;

typedef struct pst_waits pst_waits;

pst_waits *pst_waits_new(void);
void pst_waits_free(pst_waits *w); /* NULL-safe */
bool pst_waits_for(pst_waits *w, pst_waiter who, const char *what, const char *why);
/* The record at this offset cannot be used now. */
bool pst_waits_record(pst_waits *w, const char *topic, int32_t partition, int64_t offset, const char *what, const char *why);
/* This record has been used. */
bool pst_waits_passed(pst_waits *w, const char *topic, int32_t partition, int64_t offset);
/* Partitions that are not among these are somebody else's now; n = 0: none is ours. */
bool pst_waits_keep(pst_waits *w, const pst_range *ours, size_t n);
bool pst_waits_any(const pst_waits *w);
/* Of the wait that is told first; "" = none. */
const char *pst_waits_what(const pst_waits *w);
/* The reasons of all that stand, each once, a few at most: "why" of the first, then between + "what: why" of the others. Replaces ret_text. */
void pst_waits_text(const pst_waits *w, const char *between, pst_buf *ret_text);

#endif
