/* sink_bulk.h - documents that wait to be indexed by OpenSearch or Elasticsearch, and what its bulk API said about each. No I/O.
 *
 *     sink_bulk_add(&b, "penstock.logs", record, document);   // document: the caller's still
 *     body = sink_bulk_body(&b, 0, b.n);                      // POST URL/_bulk
 *     sink_bulk_answer(&b, 0, b.n, text, len, &err);          // each item: DONE, AGAIN or REFUSED
 *     sink_bulk_keep(&b, SINK_BULK_AGAIN);                    // what is left
 *
 * A document's id is topic-partition-offset: however often a record is sent, there is one document of it. @thread one. */
#ifndef PST_CONSUMERS_SINK_BULK_H
#define PST_CONSUMERS_SINK_BULK_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/json.h"
#include "common/bus/bus.h"

typedef enum {
    SINK_BULK_WAITING, /* not answered yet */
    SINK_BULK_DONE,    /* it is in the index */
    SINK_BULK_AGAIN,   /* not now: too many requests, a shard away, a full disk, a right that is missing */
    SINK_BULK_REFUSED  /* never: the document does not fit */
} sink_bulk_verdict;

typedef struct sink_bulk_item {
    size_t at, len; /* in lines: the action and the document */
    const pst_record *record;
    sink_bulk_verdict verdict;
    char reason[64], message[256]; /* of AGAIN and REFUSED */
} sink_bulk_item;

typedef struct sink_bulk {
    pst_buf lines;
    sink_bulk_item *items;
    size_t n, cap;
} sink_bulk;

/* record: borrowed until the item is gone. */
void sink_bulk_add(sink_bulk *b, const char *index, const pst_record *record, const json_t *document);
pst_slice sink_bulk_body(const sink_bulk *b, size_t from, size_t to);
/* The answer with status 200 to items [from, to). PST_EPARSE/RETRY: it is no answer to that (a proxy's page, one that was cut): nothing is known. */
int sink_bulk_answer(sink_bulk *b, size_t from, size_t to, const char *text, size_t len, pst_err *err);
void sink_bulk_judge(sink_bulk *b, size_t item, sink_bulk_verdict verdict, const char *reason, const char *message);
size_t sink_bulk_count(const sink_bulk *b, sink_bulk_verdict verdict);
/* All others go. */
void sink_bulk_keep(sink_bulk *b, sink_bulk_verdict verdict);
void sink_bulk_clear(sink_bulk *b);
void sink_bulk_done(sink_bulk *b);

/* The name of an index for a topic: lower case, without the characters that no index may have. free() */
char *sink_bulk_index(const char *topic);

#endif
