/* bus_client.c - the client libraries there are, by the tables of bus_client.h: librdkafka, and our own for a data path that asks for it.
 *
 * librdkafka's is everybody's, and administration is its alone: its table goes with its handles. Our own (wire/) carries what a pipeline reads and writes
 * where the pipeline says so; `auto` is librdkafka until ours has been proven over time. PENSTOCK_BUS says what `auto` is, so that one set of tests
 * can be run on both. */
#include "common/bus/bus_internal.h"
#include "common/bus/rdkafka/rdk.h"
#include "common/bus/wire/wire.h"

#include <stdlib.h>
#include <string.h>

const bus_client *bus_client_default(void)
{
    return &pst_rdk_client;
}

const bus_client *bus_client_of(const pst_bus_conf *conf)
{
    return conf->client ? conf->client : bus_client_default();
}

static const bus_client *client_named(const char *name)
{
    if (!strcmp(name, "rdkafka"))
        return &pst_rdk_client;
    return !strcmp(name, "wire") ? &pst_wire_client : NULL;
}

/* What was set was checked by librdkafka's rules when it was set: here by those of the other one. */
static int check_all(const pst_bus_conf *conf, const bus_client *client, pst_err *err)
{
    for (size_t i = 0; i < conf->n; i++) {
        const bus_prop *p = &conf->props[i];
        char why[300] = "";
        if (client->conf->check(p->key, p->value, why, sizeof why) < 0)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s%s%s: %s", p->origin, *p->origin ? ": " : "", p->key, why);
    }
    return 0;
}

int pst_bus_conf_client(pst_bus_conf *conf, const char *name, pst_err *err)
{
    const char *said = getenv("PENSTOCK_BUS");
    bool automatic = !strcmp(name, "auto");
    if (automatic)
        name = said && *said && strcmp(said, "auto") != 0 ? said : "rdkafka";
    const bus_client *client = client_named(name);
    if (!client)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s%.40s: no such client; it is one of auto, rdkafka, wire",
                           automatic ? "PENSTOCK_BUS=" : "bus: ", name);
    int rc = client == bus_client_default() ? 0 : check_all(conf, client, err);
    if (rc == 0)
        conf->client = client;
    return rc;
}

const char *pst_bus_conf_client_name(const pst_bus_conf *conf)
{
    return bus_client_of(conf)->name;
}
