/* broker_opts.c - the table of broker_opts.h, apart from the in-memory cluster: penstock's own list of verbs holds it without that. */
#include "deploy/broker/broker_opts.h"

static const pst_opt broker_table[] = {
    {"port", 0, PST_OPT_INT, offsetof(broker_opts, port), "P 0..65535", "9092", "on 127.0.0.1; 0 = any free one"}};
const pst_usage pst_broker_usage = {
    "broker",
    "",
    "Run librdkafka's in-memory Kafka cluster on this computer.",
    "For a look without Java. It keeps nothing, drops the oldest records beyond 5 MiB a partition, and does not protect transactions:\n"
    "exactly-once holds on a real Kafka only.",
    "penstock broker --port 9092",
    broker_table,
    1,
    false};
