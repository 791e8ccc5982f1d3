/* wire_fake_net.h - wire_net.h without sockets: a cluster in memory that keeps producers to Kafka's rules (numbers, epochs, transactions), on a network
 * that loses requests and answers, and delivers some long after their connection was given up. What it wrote can be looked at. */
#ifndef WIRE_FAKE_NET_H
#define WIRE_FAKE_NET_H

#include "common/bus/wire/wire_producer.h"

enum { FAKE_TOPICS = 2, FAKE_PARTS = 4, FAKE_NODES = 2 };

typedef struct fake_record {
    int64_t pid;
    int16_t epoch;
    int32_t number; /* the first four bytes of its value */
    int fate;       /* 0 open, 1 committed (or of no transaction), 2 aborted */
    size_t headers;
    char key[16];
} fake_record;

typedef struct fake_log {
    fake_record *at;
    size_t n, cap;
} fake_log;

typedef struct fake_chances { /* in a thousand, of each request */
    int lose;                 /* the connection breaks before it is read */
    int mute;                 /* … after it was carried out */
    int late;                 /* of those that are lost: it arrives all the same, later */
    int refuse;               /* a passing error, nothing was written */
    int move;                 /* a leader goes to another node */
} fake_chances;

typedef struct fake_cluster {
    uint64_t seed;
    fake_chances chances;
    int level; /* transaction.version */
    bool down;
    fake_log logs[FAKE_TOPICS][FAKE_PARTS];
    int known_topics;  /* how many of them the metadata tell */
    int next_code;     /* of the next Produce: every partition gets it and nothing is written; 0 = none */
    int next_from;     /* after so many more requests */
    int next_end_code; /* the same of the next EndTxn */
    int produces, inits, joins, ends, offsets;
    int64_t offset_sum; /* of committed offsets: what the group would go on from */
    int batch_max;      /* records that lay in one batch */
} fake_cluster;

extern fake_cluster fake;

void fake_reset(uint64_t seed);
void fake_done(void);
/* The epoch of a transactional id rises, as if another had come. */
void fake_fence(void);

#endif
