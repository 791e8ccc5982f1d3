/* rdk_conf.c - librdkafka's properties as the library that is loaded knows them, and a configuration made of those a user set. */
#include "common/bus/rdkafka/rdk.h"
#include "common/base/array.h"
#include "common/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what it knows -------------------------------------------------------------------------------------------------- */

/* Read once from the table it prints itself, so that a newer library's properties are known without a new build. */
static struct {
    char **names;
    bus_prop_scope *scopes;
    size_t n;
} known;
static pthread_once_t known_once = PTHREAD_ONCE_INIT;

static void known_load(void)
{
    char *text = NULL, *save = NULL;
    size_t len = 0, names_cap = 0, scopes_cap = 0;
    FILE *f = open_memstream(&text, &len);
    PST_ASSERT(f);
    rd_kafka_conf_properties_show(f);
    fclose(f);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *bar = strchr(line, '|');
        size_t n = strcspn(line, " |");
        if (!bar || !n || strchr("#-", *line) || !strncmp(line, "Property ", 9))
            continue;
        known.names = pst_array_room(known.names, known.n, &names_cap, sizeof *known.names);
        known.scopes = pst_array_room(known.scopes, known.n, &scopes_cap, sizeof *known.scopes);
        const char *scope = bar + 1 + strspn(bar + 1, " ");
        bus_prop_scope s = *scope == 'C' ? BUS_PROP_CONSUMER : *scope == 'P' ? BUS_PROP_PRODUCER : BUS_PROP_BOTH;
        char *name = pst_strndup(line, n);
        bool twice = false; /* compression.type and others are there globally and per topic */
        for (size_t i = 0; i < known.n && !twice; i++) {
            if (!strcmp(known.names[i], name)) {
                known.scopes[i] |= s;
                twice = true;
            }
        }
        if (twice) {
            free(name);
            continue;
        }
        known.names[known.n] = name;
        known.scopes[known.n++] = s;
    }
    free(text);
}

static bus_prop_scope prop_find(const char *key)
{
    pthread_once(&known_once, known_load);
    for (size_t i = 0; i < known.n; i++) {
        if (!strcmp(known.names[i], key))
            return known.scopes[i];
    }
    return BUS_PROP_UNKNOWN;
}

static const char *const *prop_names(size_t *ret_n)
{
    pthread_once(&known_once, known_load);
    *ret_n = known.n;
    return (const char *const *)known.names;
}

static int check(const char *key, const char *value, char *why, size_t size)
{
    rd_kafka_conf_t *scratch = rd_kafka_conf_new();
    rd_kafka_conf_res_t res = rd_kafka_conf_set(scratch, key, value, why, size);
    rd_kafka_conf_destroy(scratch);
    return res == RD_KAFKA_CONF_OK ? 0 : PST_EINVAL;
}

static void list_all(void *file)
{
    rd_kafka_conf_properties_show(file);
}

static const char *version(void)
{
    static char text[64];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (rdkafka_lib_open(NULL) < 0)
        return "no librdkafka";
    pthread_mutex_lock(&lock);
    if (!*text)
        snprintf(text, sizeof text, "librdkafka %s", rd_kafka_version_str());
    pthread_mutex_unlock(&lock);
    return text;
}

static const char *warning(const pst_bus_conf *conf)
{
    const char *mechanism = rdk_conf_get(conf, "sasl.mechanism");
    /* The client's nonce was sent twice (librdkafka PR 4895); brokers up to 3.9 did not look. */
    if (mechanism && !strncasecmp(mechanism, "SCRAM-", 6) && rdkafka_lib_open(NULL) == 0 && rd_kafka_version() < 0x020601ff)
        return "Kafka 4 refuses SCRAM of librdkafka < 2.6.1: load a newer one, e.g. LD_LIBRARY_PATH with the library of the "
               "confluent-kafka wheel, or use PLAIN over TLS";
    return NULL;
}

const char *rdk_conf_get(const pst_bus_conf *conf, const char *key)
{
    for (size_t i = 0; i < conf->n; i++) {
        if (!strcmp(conf->props[i].key, key))
            return conf->props[i].value;
    }
    return NULL;
}

const bus_conf_ops rdk_conf_ops = {
    .open = rdkafka_lib_open,
    .find = prop_find,
    .names = prop_names,
    .check = check,
    .list = list_all,
    .warning = warning,
    .version = version,
};

/* ---- building ------------------------------------------------------------------------------------------------------------------- */

static void log_cb(const rd_kafka_t *rk, int level, const char *fac, const char *buf)
{
    /* The only place where librdkafka says that it skipped records which retention deleted: they would be lost in silence. */
    rdk *h = rk ? rd_kafka_opaque(rk) : NULL;
    if (h && h->to.moved && !strcmp(fac, "OFFSET") && strstr(buf, "offset reset") && strstr(buf, "out of range")) {
        h->to.moved(h->to.owner);
        pst_log(PST_LOG_WARN, "bus", "event=position_reset client=%s text=\"%s\"", rd_kafka_name(rk), buf);
        return;
    }
    pst_log(PST_LOG_DEBUG, "kafka", "event=%s client=%s level=%d text=\"%s\"", fac, rk ? rd_kafka_name(rk) : "", level, buf);
}

static void error_cb(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    char text[512];
    if (err == RD_KAFKA_RESP_ERR__FATAL) {
        err = rd_kafka_fatal_error(rk, text, sizeof text);
        reason = text;
    }
    rdk *h = opaque;
    if (h->to.fault)
        h->to.fault(h->to.owner, err, reason);
}

static bool truth(const char *v)
{
    return !strcasecmp(v, "true") || !strcmp(v, "1") || !strcasecmp(v, "t");
}

/* The same meaning in other words is no conflict. */
static bool same_value(const char *key, const char *a, const char *b)
{
    if (!strcasecmp(a, b) || (!strcmp(key, "acks") && (!strcmp(a, "-1") || !strcmp(a, "all"))))
        return true;
    return (!strcasecmp(b, "true") || !strcasecmp(b, "false")) && truth(a) == truth(b);
}

static int set(rd_kafka_conf_t *k, const char *key, const char *value, const char *origin, pst_err *err)
{
    char why[256];
    if (rd_kafka_conf_set(k, key, value, why, sizeof why) == RD_KAFKA_CONF_OK)
        return 0;
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s%s%s: %s", origin && *origin ? origin : "",
                       origin && *origin ? ": " : "", key, why);
}

rd_kafka_conf_t *rdk_conf_build(const pst_bus_conf *conf, rdk_kind kind, const bus_kv *defaults, const bus_kv *forced, rdk *h, pst_err *err)
{
    static const bus_kv common[] = {{"reconnect.backoff.max.ms", "1000"}, /* librdkafka's 10 s cost 7 s after an outage */
                                    {"socket.nagle.disable", "true"},
                                    {"socket.keepalive.enable", "true"},
                                    {"broker.address.ttl", "10000"},
                                    {"log.connection.close", "false"},
                                    {NULL, NULL}};
    rdk_tsan();
    if (rdkafka_lib_open(err) < 0)
        return NULL;
    rd_kafka_conf_t *k = rd_kafka_conf_new();
    for (const bus_kv *kv = common; kv->key; kv++) {
        if (set(k, kv->key, kv->value, NULL, err) < 0)
            goto fail;
    }
    for (const bus_kv *kv = defaults; kv && kv->key; kv++) {
        if (set(k, kv->key, kv->value, NULL, err) < 0)
            goto fail;
    }
    bus_prop_scope wanted = kind == RDK_CONSUMER ? BUS_PROP_CONSUMER : kind == RDK_PRODUCER ? BUS_PROP_PRODUCER : 0;
    for (size_t i = 0; i < conf->n; i++) {
        const bus_prop *p = &conf->props[i];
        bus_prop_scope scope = prop_find(p->key);
        if (scope != BUS_PROP_BOTH && scope != wanted)
            continue; /* for the other kind of client: kept, applied there */
        const bus_kv *f = forced;
        while (f && f->key && strcmp(f->key, p->key))
            f++;
        if (f && f->key) {
            if (!f->value || !same_value(p->key, p->value, f->value))
                pst_log(PST_LOG_WARN, "bus", "event=property_ignored key=%s value=%s origin=\"%s\" why=\"the guarantees rest on %s\"",
                        p->key, p->value, p->origin, f->value ? f->value : "what the command sets itself");
            continue;
        }
        if (set(k, p->key, p->value, p->origin, err) < 0)
            goto fail;
    }
    for (const bus_kv *kv = forced; kv && kv->key; kv++) {
        if (kv->value && set(k, kv->key, kv->value, NULL, err) < 0)
            goto fail;
    }
    if (!rdk_conf_get(conf, "bootstrap.servers") && !rdk_conf_get(conf, "test.mock.num.brokers")) {
        pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "no broker is named: use --bootstrap-server HOST:PORT");
        goto fail;
    }
    rd_kafka_conf_set_log_cb(k, log_cb);
    rd_kafka_conf_set_error_cb(k, error_cb);
    rd_kafka_conf_set_opaque(k, h);
    return k;
fail:
    rd_kafka_conf_destroy(k);
    return NULL;
}

int rdk_new(rd_kafka_type_t type, rd_kafka_conf_t *kconf, rdk *h, pst_err *err)
{
    char why[300] = "";
    h->rk = rd_kafka_new(type, kconf, why, sizeof why);
    if (h->rk)
        return 0;
    rd_kafka_conf_destroy(kconf); /* taken only on success */
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "librdkafka refuses the configuration: %s", why);
}
