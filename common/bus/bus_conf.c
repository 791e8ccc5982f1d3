/* bus_conf.c - the list of properties a user set, checked against the librdkafka that is loaded, and made into its configuration. */
#include "common/bus/bus_internal.h"
#include "common/base/secret.h"
#include "common/base/fs.h"
#include "common/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what librdkafka knows -------------------------------------------------------------------------------------------------- */

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
    size_t len = 0, cap = 0;
    FILE *f = open_memstream(&text, &len);
    PST_ASSERT(f);
    rd_kafka_conf_properties_show(f);
    fclose(f);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *bar = strchr(line, '|');
        size_t n = strcspn(line, " |");
        if (!bar || !n || strchr("#-", *line) || !strncmp(line, "Property ", 9))
            continue;
        if (known.n == cap) {
            cap = cap ? 2 * cap : 256;
            known.names = pst_realloc(known.names, cap * sizeof *known.names);
            known.scopes = pst_realloc(known.scopes, cap * sizeof *known.scopes);
        }
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

bus_prop_scope bus_prop_find(const char *key)
{
    pthread_once(&known_once, known_load);
    for (size_t i = 0; i < known.n; i++) {
        if (!strcmp(known.names[i], key))
            return known.scopes[i];
    }
    return BUS_PROP_UNKNOWN;
}

const char *const *bus_prop_names(size_t *ret_n)
{
    pthread_once(&known_once, known_load);
    *ret_n = known.n;
    return (const char *const *)known.names;
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
        conf->props = pst_realloc(conf->props, (conf->n + 1) * sizeof *conf->props);
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
        const char *const *names = bus_prop_names(&n);
        const char *near = pst_nearest(key, names, n);
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: %s has no property \"%.100s\"%s%s%s; -X list shows all",
                           from, pst_bus_version(), key, near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    char why[256] = "";
    rd_kafka_conf_t *scratch = rd_kafka_conf_new();
    rd_kafka_conf_res_t res = rd_kafka_conf_set(scratch, key, value, why, sizeof why);
    rd_kafka_conf_destroy(scratch);
    if (res == RD_KAFKA_CONF_OK)
        return 0;
    /* The library's text may quote the value: not for secrets. */
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: %s=%.100s: %s", from, key,
                       pst_secret_key(key) ? "********" : value, pst_secret_key(key) ? "not accepted" : why);
}

int pst_bus_conf_set(pst_bus_conf *conf, const char *key, const char *value, const char *origin, pst_err *err)
{
    bus_java java = {0};
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

void pst_bus_list_properties(void *file)
{
    rd_kafka_conf_properties_show(file);
}

const char *pst_bus_version(void)
{
    static char text[64];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!*text)
        snprintf(text, sizeof text, "librdkafka %s", rd_kafka_version_str());
    pthread_mutex_unlock(&lock);
    return text;
}

const char *pst_bus_conf_warning(const pst_bus_conf *conf)
{
    const char *mechanism = pst_bus_conf_get(conf, "sasl.mechanism");
    /* The client's nonce was sent twice (librdkafka PR 4895); brokers up to 3.9 did not look. */
    if (mechanism && !strncasecmp(mechanism, "SCRAM-", 6) && rd_kafka_version() < 0x020601ff)
        return "Kafka 4 refuses SCRAM of librdkafka < 2.6.1: load a newer one, e.g. LD_LIBRARY_PATH with the library of the "
               "confluent-kafka wheel, or use PLAIN over TLS";
    return NULL;
}

/* ---- building ------------------------------------------------------------------------------------------------------------------- */

static void log_cb(const rd_kafka_t *rk, int level, const char *fac, const char *buf)
{
    /* The only place where librdkafka says that it skipped records which retention deleted: they would be lost in silence. */
    bus_health *h = rk ? rd_kafka_opaque(rk) : NULL;
    if (h && !strcmp(fac, "OFFSET") && strstr(buf, "offset reset") && strstr(buf, "out of range")) {
        __atomic_add_fetch(&h->resets, 1, __ATOMIC_RELEASE);
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
    bus_health_note(opaque, err, reason);
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

rd_kafka_conf_t *bus_conf_build(const pst_bus_conf *conf, bus_kind kind, const bus_kv *defaults, const bus_kv *forced, void *opaque,
                                pst_err *err)
{
    static const bus_kv common[] = {{"reconnect.backoff.max.ms", "1000"}, /* librdkafka's 10 s cost 7 s after an outage */
                                    {"socket.nagle.disable", "true"},
                                    {"socket.keepalive.enable", "true"},
                                    {"broker.address.ttl", "10000"},
                                    {"log.connection.close", "false"},
                                    {NULL, NULL}};
    pst_rdk_tsan();
    rd_kafka_conf_t *k = rd_kafka_conf_new();
    for (const bus_kv *kv = common; kv->key; kv++) {
        if (set(k, kv->key, kv->value, NULL, err) < 0)
            goto fail;
    }
    for (const bus_kv *kv = defaults; kv && kv->key; kv++) {
        if (set(k, kv->key, kv->value, NULL, err) < 0)
            goto fail;
    }
    bus_prop_scope wanted = kind == BUS_CONSUMER ? BUS_PROP_CONSUMER : kind == BUS_PRODUCER ? BUS_PROP_PRODUCER : 0;
    for (size_t i = 0; i < conf->n; i++) {
        const bus_prop *p = &conf->props[i];
        bus_prop_scope scope = bus_prop_find(p->key);
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
    if (!pst_bus_conf_get(conf, "bootstrap.servers") && !pst_bus_conf_get(conf, "test.mock.num.brokers")) {
        pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "no broker is named: use --bootstrap-server HOST:PORT");
        goto fail;
    }
    rd_kafka_conf_set_log_cb(k, log_cb);
    rd_kafka_conf_set_error_cb(k, error_cb);
    rd_kafka_conf_set_opaque(k, opaque);
    return k;
fail:
    rd_kafka_conf_destroy(k);
    return NULL;
}

rd_kafka_t *bus_new(rd_kafka_type_t type, rd_kafka_conf_t *kconf, pst_err *err)
{
    char why[300] = "";
    rd_kafka_t *rk = rd_kafka_new(type, kconf, why, sizeof why);
    if (!rk) {
        rd_kafka_conf_destroy(kconf); /* taken only on success */
        pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "librdkafka refuses the configuration: %s", why);
    }
    return rk;
}
