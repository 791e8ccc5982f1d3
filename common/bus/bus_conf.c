/* bus_conf.c - the list of properties a user set, checked against the client library that is loaded. */
#include "common/bus/bus_internal.h"
#include "common/base/array.h"
#include "common/base/secret.h"
#include "common/base/fs.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

static const bus_conf_ops *conf_ops(void)
{
    return bus_client_default()->conf;
}

bus_prop_scope bus_prop_find(const char *key)
{
    return conf_ops()->find(key);
}

/* ---- the list ----------------------------------------------------------------------------------------------------------------- */

/* librdkafka has two names for some: one is kept, so that later sets win. */
static const char *canonical(const char *key)
{
    static const bus_kv aliases[] = {{"metadata.broker.list", "bootstrap.servers"},
                                     {"sasl.mechanisms", "sasl.mechanism"},
                                     {"compression.codec", "compression.type"},
                                     {"request.required.acks", "acks"},
                                     {"queue.buffering.max.ms", "linger.ms"},
                                     {"delivery.timeout.ms", "message.timeout.ms"},
                                     {"max.in.flight", "max.in.flight.requests.per.connection"},
                                     {"fetch.message.max.bytes", "max.partition.fetch.bytes"},
                                     {"message.send.max.retries", "retries"}};
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (!strcmp(key, aliases[i].key))
            return aliases[i].value;
    }
    return key;
}

static void put(pst_bus_conf *conf, const char *key, const char *value, const char *origin)
{
    key = canonical(key);
    bus_prop *p = NULL;
    for (size_t i = 0; i < conf->n && !p; i++) {
        if (!strcmp(conf->props[i].key, key))
            p = &conf->props[i];
    }
    if (!p) {
        conf->props = pst_array_one_more(conf->props, conf->n, sizeof *conf->props);
        p = &conf->props[conf->n++];
        memset(p, 0, sizeof *p);
        p->key = pst_strdup(key);
    }
    char *v = pst_strdup(value), *o = pst_strdup(origin ? origin : "");
    free(p->value);
    free(p->origin);
    p->value = v;
    p->origin = o;
}

pst_bus_conf *pst_bus_conf_new(const char *bootstrap, const char *client_id)
{
    pst_bus_conf *conf = pst_alloc(sizeof *conf);
    if (bootstrap && *bootstrap)
        put(conf, "bootstrap.servers", bootstrap, "");
    put(conf, "client.id", client_id && *client_id ? client_id : "penstock", "");
    return conf;
}

pst_bus_conf *pst_bus_conf_copy(const pst_bus_conf *conf)
{
    pst_bus_conf *copy = pst_alloc(sizeof *copy);
    copy->client = conf->client;
    for (size_t i = 0; i < conf->n; i++)
        put(copy, conf->props[i].key, conf->props[i].value, conf->props[i].origin);
    return copy;
}

void pst_bus_conf_free(pst_bus_conf *conf)
{
    if (!conf)
        return;
    for (size_t i = 0; i < conf->n; i++) {
        free(conf->props[i].key);
        explicit_bzero(conf->props[i].value, strlen(conf->props[i].value)); /* may be a password */
        free(conf->props[i].value);
        free(conf->props[i].origin);
    }
    free(conf->props);
    free(conf);
}

const char *pst_bus_conf_get(const pst_bus_conf *conf, const char *key)
{
    key = canonical(key);
    for (size_t i = 0; i < conf->n; i++) {
        if (!strcmp(conf->props[i].key, key))
            return conf->props[i].value;
    }
    return NULL;
}

int64_t bus_conf_number(const pst_bus_conf *conf, const char *key, int64_t otherwise)
{
    const char *text = pst_bus_conf_get(conf, key);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

void pst_bus_conf_each(const pst_bus_conf *conf, void (*fn)(void *arg, const char *key, const char *value, const char *origin), void *arg)
{
    for (size_t i = 0; i < conf->n; i++) {
        const bus_prop *p = &conf->props[i];
        fn(arg, p->key, pst_secret_key(p->key) ? "********" : p->value, p->origin);
    }
}

/* Does the loaded library take this name and value? */
static int check(const char *key, const char *value, const char *origin, pst_err *err)
{
    const char *from = origin && *origin ? origin : "configuration";
    if (bus_prop_find(key) == BUS_PROP_UNKNOWN) {
        size_t n;
        const char *const *names = conf_ops()->names(&n);
        const char *near = pst_nearest(key, names, n);
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: %s has no property \"%.100s\"%s%s%s; -X list shows all",
                           from, pst_bus_version(), key, near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    char why[256] = "";
    if (conf_ops()->check(key, value, why, sizeof why) == 0)
        return 0;
    /* The library's text may quote the value: not for secrets. */
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: %s=%.100s: %s", from, key,
                       pst_secret_key(key) ? "********" : value, pst_secret_key(key) ? "not accepted" : why);
}

/* Of a Java property that becomes several, all are checked before one is set: a refused one leaves the configuration as it was. */
int pst_bus_conf_set(pst_bus_conf *conf, const char *key, const char *value, const char *origin, pst_err *err)
{
    bus_java java = {0};
    int there = pst_bus_open(err);
    if (there < 0)
        return there;
    if (!value)
        value = "";
    switch (bus_java_translate(key, value, &java, err)) {
    case BUS_JAVA_NONE: break;
    case BUS_JAVA_REGISTRY: return PST_EAGAIN;
    case BUS_JAVA_ERROR: pst_err_prefix(err, "%s", origin && *origin ? origin : "configuration"); return PST_EINVAL;
    case BUS_JAVA_IGNORE:
        pst_log(PST_LOG_DEBUG, "bus", "event=property_ignored key=%s origin=\"%s\" why=\"%s\"", key, origin ? origin : "", java.why);
        return 0;
    case BUS_JAVA_SET:
        for (size_t i = 0; i < 3 && java.set[i].key; i++) {
            int rc = check(java.set[i].key, java.set[i].value, origin, err);
            if (rc < 0)
                return rc;
        }
        for (size_t i = 0; i < 3 && java.set[i].key; i++)
            put(conf, java.set[i].key, java.set[i].value, origin);
        explicit_bzero(&java, sizeof java);
        return 0;
    }
    int rc = check(key, value, origin, err);
    if (rc < 0)
        return rc;
    put(conf, key, value, origin);
    return 0;
}

int pst_bus_open(pst_err *err)
{
    return conf_ops()->open(err);
}

int pst_bus_list_properties(void *file, pst_err *err)
{
    int rc = pst_bus_open(err);
    if (!rc)
        conf_ops()->list(file);
    return rc;
}

const char *pst_bus_version(void)
{
    return conf_ops()->version();
}

const char *pst_bus_conf_warning(const pst_bus_conf *conf)
{
    return conf_ops()->warning(conf);
}
