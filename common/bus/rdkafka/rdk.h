/* rdk.h - librdkafka behind the bus: what the files of common/bus/rdkafka share, and what the bus calls of them. It calls nothing of the bus. */
#ifndef PST_BUS_RDK_H
#define PST_BUS_RDK_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

void pst_rdk_tsan(void);

/* Has the group given it an id? A member that was thrown out has none from the moment it hears of it. */
bool pst_rdk_is_member(rd_kafka_t *rk);
/* A static member leaves the group; bounded in time. For a consumer that is closed next. */
void pst_rdk_leave(rd_kafka_t *rk);

#endif
