/* suspect.h - which records of a round their topic refuses (no key for a compacted topic, a timestamp that it does not take, a broker's own
 * validation). A broker answers for a whole batch, so rounds become smaller, down to one record, until each is found; behind it they grow again.
 *
 *     round refused ─► half as many records ─► … ─► one record, refused twice ─► without its shadow's score ─► a dead letter instead
 *        passed     ─► twice as many                                                 ─► the letter with the time of its writing ─► waits, and again
 *
 * Every partition may have one: which of them comes first in the next round nobody knows. What the topic itself says it does not take (takes.h) needs no
 * search. @thread one owner. */
#ifndef PST_INFERENCE_STATE_SUSPECT_H
#define PST_INFERENCE_STATE_SUSPECT_H

#include "common/bus/bus.h"

typedef enum {
    PST_SUSPECT_NONE,
    PST_SUSPECT_NO_SHADOW,  /* only if it has one */
    PST_SUSPECT_LETTER,     /* a dead letter instead of what it was to become */
    PST_SUSPECT_LETTER_NOW, /* the same, without the record's own timestamp */
    PST_SUSPECT_WAITS       /* its dead-letter topic takes neither */
} pst_suspect_stage;

typedef struct pst_suspect {
    char *topic;
    int32_t partition;
    int64_t offset;
    int refusals; /* of rounds of this one record, in this stage */
    pst_suspect_stage stage;
    char why[512]; /* what the topic said first */
} pst_suspect;

typedef struct pst_suspects {
    uint64_t most; /* records of a round; 0 = no limit */
    pst_suspect *at;
    size_t n;
} pst_suspects;

void pst_suspects_done(pst_suspects *x);
/* A topic refused a round of so many records. topic, partition, offset: its last record; shadowed: it was sent with a shadow's score. */
void pst_suspects_refused(pst_suspects *x, uint64_t records, const char *topic, int32_t partition, int64_t offset, bool shadowed,
                          const char *why);
/* A round of so many records was committed; and to where in a partition (next: the offset behind). */
void pst_suspects_passed(pst_suspects *x, uint64_t records);
void pst_suspects_passed_to(pst_suspects *x, const char *topic, int32_t partition, int64_t next);
/* How this record is to go out: NULL = as any other. Valid until the next call. */
const pst_suspect *pst_suspects_find(const pst_suspects *x, const pst_record *r);
/* The partition's, whatever its stage. */
const pst_suspect *pst_suspects_of_partition(const pst_suspects *x, const char *topic, int32_t partition);
/* It waited; next time both letters are tried again. */
void pst_suspects_waited(pst_suspects *x, const pst_record *r);

#endif
