/* bus_client.c - the client libraries there are, by the tables of bus_client.h: librdkafka. */
#include "common/bus/bus_internal.h"
#include "common/bus/rdkafka/rdk.h"

const bus_client *bus_client_default(void)
{
    return &pst_rdk_client;
}
