/* stub.h - a broker that costs its clients nothing: one topic of one partition, batches built beforehand, answers at once, what is produced thrown away
 * after its length and sequence were looked at. It isolates the client in a measurement, and lies where a test asks it to. A process or thread of its own. */
#ifndef PST_BENCH_STUB_H
#define PST_BENCH_STUB_H

#include "common/bus/wire/wire_batch.h"

typedef struct stub_conf {
    int port;        /* 0 = any */
    int64_t records; /* that the topic has */
    int in_batch;
    int value_bytes;
    wire_codec codec;
} stub_conf;

/* What was produced so far: records in the order of their sequences, none twice; and how many batches came again or out of order. @thread any */
typedef struct stub_log {
    int64_t records, again, out_of_order,
        wrong; /* wrong: a record's value is not its number, as eight digits (only of values of eight bytes) */
} stub_log;
stub_log stub_seen(void);
void stub_forget(void); /* a new log, of a producer whose sequences begin again */

/* Listens; the socket, and the port by ret_port. */
int stub_listen(const stub_conf *conf, int *ret_port);
/* Serves until its process ends; `port` is the one that clients are sent to. */
_Noreturn void stub_serve(int listener, int port, const stub_conf *conf);

#endif
