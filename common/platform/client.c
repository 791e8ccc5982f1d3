/* client.c - what every verb opens first: settings, bus, registry, codec. Opening connects to nothing, so that a verb which only prints its help or a wrong setting does not wait for a broker. */
#include "common/platform/client.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "schemas/avro.h"
#include "schemas/topics.h"
#include "common/base/settings.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* librdkafka takes a port modulo 65536, and says of an address that it does not understand that no broker is configured. */
static bool is_address(const char *at, size_t len)
{
    static const char *const protocols[] = {"PLAINTEXT://", "SSL://", "SASL_PLAINTEXT://", "SASL_SSL://"};
    char text[300], *end;
    if (len == 0 || len >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", (int)len, at);
    const char *host = text + strspn(text, " ");
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        if (!strncasecmp(host, protocols[i], strlen(protocols[i]))) {
            host += strlen(protocols[i]);
            break;
        }
    const char *from = *host == '[' ? strchr(host, ']') : host, *colon = from ? strchr(from, ':') : NULL;
    if (!from || colon == host || !*host || strpbrk(host, "/ \t@?#"))
        return false;
    long port = colon ? strtol(colon + 1, &end, 10) : 9092;
    return port >= 1 && port <= 65535 && (!colon || (end != colon + 1 && !*end));
}

static int check_addresses(const pst_setting *s, pst_err *err)
{
    const char *text = pst_setting_full(s);
    for (const char *at = text; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        size_t len = strcspn(at, ",");
        if (!is_address(at, len))
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                               "%s: bootstrap server \"%.*s\" is no address of a broker; expected HOST:PORT, port 1 to 65535",
                               s->origin ? s->origin : "default", (int)(len > 100 ? 100 : len), at);
    }
    return 0;
}

int pst_client_bus_conf(const pst_settings *settings, const char *client_id, pst_bus_conf **ret_conf, pst_err *err)
{
    int bad = settings->embedded ? 0 : check_addresses(&settings->bootstrap, err);
    if (bad < 0)
        return bad;
    pst_bus_conf *conf = pst_bus_conf_new(settings->bootstrap.value, client_id);
    if (settings->embedded) /* the in-memory cluster answers an empty fetch only when its wait is over */
        pst_bus_conf_set(conf, "fetch.wait.max.ms", "10", "embedded broker", NULL);
    for (size_t i = 0; i < settings->n_kafka; i++) {
        const pst_property *p = &settings->kafka[i];
        int rc = pst_bus_conf_set(conf, p->key, p->value, p->origin, err);
        if (rc < 0 && rc != PST_EAGAIN) {
            pst_bus_conf_free(conf);
            return rc;
        }
    }
    *ret_conf = conf;
    return 0;
}

int pst_client_open(const pst_settings *settings, const char *client_id, pst_client **ret_client, pst_err *err)
{
    pst_client *c = pst_alloc(sizeof *c);
    c->settings = settings;
    pst_trace_of_environment(&c->trace);
    for (int t = 0; t < PST_TOPIC_COUNT; t++)
        c->topics[t] = pst_topic_name(settings->prefix.value, (pst_topic)t);
    pst_registry_conf rc_conf = {
        .url = pst_setting_full(&settings->registry), .user = settings->registry_user, .password = settings->registry_password};
    int rc = pst_client_bus_conf(settings, client_id, &c->bus, err);
    if (!rc)
        rc = pst_registry_new(&rc_conf, &c->registry, err);
    if (rc < 0) {
        pst_client_close(c);
        return rc;
    }
    c->codec = pst_codec_new(c->registry);
    const char *warning = pst_bus_conf_warning(c->bus);
    if (warning)
        pst_log(PST_LOG_WARN, client_id, "event=kafka_client reason=\"%s\"", warning);
    *ret_client = c;
    return 0;
}

void pst_client_close(pst_client *c)
{
    if (!c)
        return;
    pst_codec_free(c->codec);
    pst_registry_free(c->registry);
    pst_bus_conf_free(c->bus);
    for (int t = 0; t < PST_TOPIC_COUNT; t++)
        free(c->topics[t]);
    free(c);
}

const char *pst_client_topic(const pst_client *c, pst_topic t)
{
    return c->topics[t];
}

int pst_client_publish(pst_client *c, pst_topic t, const pst_type *type, const char *key, const void *event, int timeout_ms,
                       int32_t *ret_partition, int64_t *ret_offset, pst_err *err)
{
    pst_buf value = {0};
    int rc = pst_codec_encode(c->codec, type, c->topics[t], event, &value, err);
    if (!rc) {
        pst_trace trace;
        pst_header header;
        pst_out out;
        pst_trace_child(&c->trace, &trace);
        pst_trace_out(&trace, c->topics[t], key, &value, &header, &out);
        rc = pst_publish(c->bus, &out, timeout_ms, ret_partition, ret_offset, err);
    }
    pst_buf_done(&value);
    return rc;
}

int pst_client_create_topics(pst_client *c, pst_err *err)
{
    pst_topic_spec specs[PST_TOPIC_COUNT];
    const char *configs[PST_TOPIC_COUNT][9];
    char retention[PST_TOPIC_COUNT][24];
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        const pst_topic_def *d = pst_topic_get((pst_topic)t);
        snprintf(retention[t], sizeof retention[t], "%lld", (long long)d->retention_ms);
        const char *pairs[] = {"cleanup.policy", d->cleanup, "retention.ms", retention[t], "max.message.bytes",
                               "1048588",        NULL,       NULL,           NULL};
        if (strstr(d->cleanup, "compact")) { /* what was deleted must be known for longer than old requests are taken (trainer_core.h) */
            pairs[6] = "delete.retention.ms";
            pairs[7] = "691200000";
        }
        memcpy(configs[t], pairs, sizeof pairs);
        specs[t] = (pst_topic_spec){c->topics[t], d->partitions, -1, configs[t]};
    }
    return pst_admin_create_topics(c->bus, specs, PST_TOPIC_COUNT, 30000, err);
}

int pst_client_register_schemas(pst_client *c, pst_err *err)
{
    int rc = 0;
    for (int t = 0; t < PST_TOPIC_COUNT && !rc; t++) {
        const pst_type *type = pst_type_find(pst_topic_get((pst_topic)t)->type_name);
        PST_ASSERT(type);
        char *subject = pst_sprintf("%s-value", c->topics[t]);
        int32_t id;
        rc = pst_registry_register(c->registry, subject, pst_type_schema(type), &id, err);
        if (rc < 0)
            pst_err_prefix(err, "cannot register %s", subject);
        free(subject);
    }
    return rc;
}
