/* letter.h - one dead letter as its headers tell it: Kafka Connect's names, which ours are, and Kafka Streams'.
 *
 *     dlq_letter l;
 *     dlq_letter_read(&record, &room, &l);
 *     if (l.dead) printf("%s [%d]\n", l.source, l.source_partition);
 *
 * Headers are a stranger's: a number that is none is "not known", a name that no topic can have makes it no dead letter, texts are views that may
 * hold anything. Where a header comes twice the last one counts, as whoever dead-lettered last wrote it. Views die with the record. @thread any. */
#ifndef PST_INFERENCE_DLQ_LETTER_H
#define PST_INFERENCE_DLQ_LETTER_H

#include "common/bus/bus.h"

#define DLQ_TOPIC_MAX 249 /* bytes of a topic's name, Kafka's own limit */

#define DLQ_HEADER_REPLAYS "x-dlq-replays"       /* how often this record was put back, in decimal */
#define DLQ_HEADER_FROM    "x-dlq-replayed-from" /* "topic:partition:offset" of the dead letter that was put back last */

typedef struct dlq_letter {
    const pst_record *record;
    bool dead; /* it names the topic that it comes from */
    char source[DLQ_TOPIC_MAX + 1];
    int32_t source_partition; /* -1 = not known */
    int64_t source_offset;    /* likewise */
    int64_t timestamp_ms;     /* the record's own: the letter may have that of its writing */
    int64_t replays;          /* how often its record had been put back before it became this dead letter */
    pst_slice component, stage, reason, error_class, message;
} dlq_letter;

void dlq_letter_read(const pst_record *r, pst_header_room *room, dlq_letter *ret);
/* Says why a record is dead, or that it was put back: no header of the record itself. */
bool dlq_header_is_error(const char *name);
/* May a topic be called so? */
bool dlq_topic_name(const char *name);

/* What `ls`, `replay` ask for; {.partition = -1, .to = INT64_MAX} is everything. */
typedef struct dlq_filter {
    const char *reason, *stage, *source; /* NULL = any; a reason is matched with the class, too */
    int32_t partition;                   /* of the topic of dead letters; -1 = all */
    int64_t from, to;                    /* offsets there, the last one included */
    int64_t since_ms, until_ms;          /* of the record's own time; 0 = no limit */
} dlq_filter;

/* By what the letter says itself; partition and offsets are the reader's (scan.h). */
bool dlq_filter_takes(const dlq_filter *f, const dlq_letter *l);
/* "P", "P:O" or "P:O-O". */
int dlq_filter_partition(dlq_filter *f, const char *text, pst_err *err);

#endif
