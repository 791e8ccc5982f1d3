/* bus_admin.h - the short-lived client of admin calls, shared by bus_admin.c and bus_lag.c. */
#ifndef PST_BUS_ADMIN_H
#define PST_BUS_ADMIN_H

#include "common/bus/bus_internal.h"

typedef struct bus_admin {
    bus_health health; /* first: see bus_internal.h */
    rd_kafka_t *rk;
    int64_t until_us;
} bus_admin;

/* group may be NULL. A consumer client does not make a broker create the topics it asks about; a producer client may. */
int bus_admin_open(bus_admin *a, const pst_bus_conf *conf, rd_kafka_type_t type, const char *group, int timeout_ms, pst_err *err);
void bus_admin_close(bus_admin *a); /* also after a failed open */
int bus_admin_left_ms(const bus_admin *a, int most);
/* Waits for the answer of an admin call on q, serving errors of the connection meanwhile. NULL: err (may be NULL) is set. */
rd_kafka_event_t *bus_admin_answer(bus_admin *a, rd_kafka_queue_t *q, const char *what, pst_err *err);
int bus_admin_watermarks(bus_admin *a, const char *topic, int32_t partition, int64_t *ret_low, int64_t *ret_high, pst_err *err);
/* librdkafka's in-memory cluster does not answer admin calls at all; it is known by its id. */
bool bus_admin_is_embedded(bus_admin *a);

#endif
