/* bus_admin.h - the short-lived client of admin calls, shared by bus_admin.c, bus_lag.c and bus_peers.c. */
#ifndef PST_BUS_ADMIN_H
#define PST_BUS_ADMIN_H

#include "common/bus/bus_internal.h"

typedef struct bus_admin {
    bus_health health;
    bus_link link;
    int64_t until_us;
    bool leaving; /* asked because the program was told to stop: only a stop by force ends the wait for an answer */
} bus_admin;

/* group may be NULL. may_create: a broker may make the topics that it is asked about. */
int bus_admin_open(bus_admin *a, const pst_bus_conf *conf, bool may_create, const char *group, int timeout_ms, pst_err *err);
void bus_admin_close(bus_admin *a); /* also after a failed open */
int bus_admin_left_ms(const bus_admin *a, int most);
/* The answer of an admin call, 0 or a code with its text: 0 or PST_E…, err (may be NULL) is set. */
int bus_admin_said(bus_admin *a, int code, const char *text, const char *what, pst_err *err);
int bus_admin_watermarks(bus_admin *a, const char *topic, int32_t partition, int64_t *ret_low, int64_t *ret_high, pst_err *err);
/* librdkafka's in-memory cluster does not answer admin calls at all; it is known by its id. */
bool bus_admin_is_embedded(bus_admin *a);

#endif
