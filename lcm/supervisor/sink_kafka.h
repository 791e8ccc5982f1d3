/* sink_kafka.h - Kafka behind an outlet: one idempotent producer for reports, logs and metrics. */
#ifndef PST_LCM_SUPERVISOR_SINK_KAFKA_H
#define PST_LCM_SUPERVISOR_SINK_KAFKA_H

#include "common/platform/client.h"
#include "lcm/supervisor/outlet.h"

sup_sink sup_sink_kafka(pst_client *client); /* client borrowed */

#endif
