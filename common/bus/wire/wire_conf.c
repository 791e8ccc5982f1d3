/* wire_conf.c - the table of properties of our own client, and what is read by it. A row is all there is to a property: name, kind of client, range, default and
 * where it goes; listing, checking and reading go through the rows, so that none can be taken without being checked, or be listed and not taken.
 *
 * Three sorts of names are known: rows with a place; rows without one, whose meaning always holds here or is decided by the bus (their values are checked
 * all the same); and librdkafka's other names, which are refused with the cure. Defaults are librdkafka's, so that a file of properties means the same to both. */
#include "common/bus/wire/wire_conf.h"
#include "common/base/log.h"
#include "common/base/secret.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum { TEXT, NUMBER, TRUTH, WORDS } prop_type;

typedef struct prop {
    const char *name;
    bus_prop_scope scope;
    prop_type type;
    int min, max;          /* NUMBER; WORDS: min is the value of the first one */
    const char *otherwise; /* default; NULL = none: text NULL, words -1 */
    const char *words;     /* a|b/its synonym|c */
    int at;                /* in a wire_conf; -1 = nowhere */
} prop;

#define AT(field) ((int)offsetof(wire_conf, field))
#define BOTH      BUS_PROP_BOTH
#define CONS      BUS_PROP_CONSUMER
#define PROD      BUS_PROP_PRODUCER

static const prop props[] = {
    {"bootstrap.servers", BOTH, TEXT, 0, 0, NULL, NULL, AT(bootstrap)},
    {"client.id", BOTH, TEXT, 0, 0, "penstock", NULL, AT(client_id)},
    {"client.rack", BOTH, TEXT, 0, 0, NULL, NULL, AT(rack)},
    {"security.protocol", BOTH, WORDS, 0, 0, "plaintext", "plaintext|ssl|sasl_plaintext|sasl_ssl", AT(security)},
    {"message.max.bytes", BOTH, NUMBER, 1000, 1000000000, "1000000", NULL, AT(message_max_bytes)},
    {"receive.message.max.bytes", BOTH, NUMBER, 1000, INT_MAX, "100000000", NULL, AT(receive_max_bytes)},
    {"max.in.flight.requests.per.connection", BOTH, NUMBER, 1, 1000000, "1000000", NULL, AT(inflight_max)},
    {"socket.timeout.ms", BOTH, NUMBER, 10, 300000, "60000", NULL, AT(socket_timeout_ms)},
    {"socket.connection.setup.timeout.ms", BOTH, NUMBER, 1000, INT_MAX, "30000", NULL, AT(setup_timeout_ms)},
    {"connections.max.idle.ms", BOTH, NUMBER, 0, INT_MAX, "0", NULL, AT(idle_max_ms)},
    {"socket.send.buffer.bytes", BOTH, NUMBER, 0, 100000000, "0", NULL, AT(send_buffer_bytes)},
    {"socket.receive.buffer.bytes", BOTH, NUMBER, 0, 100000000, "0", NULL, AT(receive_buffer_bytes)},
    {"socket.keepalive.enable", BOTH, TRUTH, 0, 0, "true", NULL, AT(keepalive)},
    {"socket.nagle.disable", BOTH, TRUTH, 0, 0, "true", NULL, AT(no_nagle)},
    {"broker.address.family", BOTH, WORDS, 0, 0, "any", "any|v4|v6", AT(family)},
    {"reconnect.backoff.ms", BOTH, NUMBER, 0, 3600000, "100", NULL, AT(reconnect_backoff_ms)},
    {"reconnect.backoff.max.ms", BOTH, NUMBER, 0, 3600000, "1000", NULL, AT(reconnect_backoff_max_ms)},
    {"retry.backoff.ms", BOTH, NUMBER, 1, 300000, "100", NULL, AT(retry_backoff_ms)},
    {"retry.backoff.max.ms", BOTH, NUMBER, 1, 300000, "1000", NULL, AT(retry_backoff_max_ms)},
    {"topic.metadata.refresh.interval.ms", BOTH, NUMBER, -1, 3600000, "300000", NULL, AT(metadata_refresh_ms)},
    {"metadata.max.age.ms", BOTH, NUMBER, 1, 86400000, "900000", NULL, AT(metadata_max_age_ms)},
    {"topic.metadata.propagation.max.ms", BOTH, NUMBER, 0, 3600000, "30000", NULL, AT(metadata_propagation)},
    {"allow.auto.create.topics", BOTH, TRUTH, 0, 0, "false", NULL, AT(auto_create)},

    {"ssl.ca.location", BOTH, TEXT, 0, 0, NULL, NULL, AT(ca_location)},
    {"ssl.ca.pem", BOTH, TEXT, 0, 0, NULL, NULL, AT(ca_pem)},
    {"ssl.crl.location", BOTH, TEXT, 0, 0, NULL, NULL, AT(crl_location)},
    {"ssl.certificate.location", BOTH, TEXT, 0, 0, NULL, NULL, AT(certificate_location)},
    {"ssl.certificate.pem", BOTH, TEXT, 0, 0, NULL, NULL, AT(certificate_pem)},
    {"ssl.key.location", BOTH, TEXT, 0, 0, NULL, NULL, AT(key_location)},
    {"ssl.key.pem", BOTH, TEXT, 0, 0, NULL, NULL, AT(key_pem)},
    {"ssl.key.password", BOTH, TEXT, 0, 0, NULL, NULL, AT(key_password)},
    {"ssl.keystore.location", BOTH, TEXT, 0, 0, NULL, NULL, AT(keystore_location)},
    {"ssl.keystore.password", BOTH, TEXT, 0, 0, NULL, NULL, AT(keystore_password)},
    {"ssl.cipher.suites", BOTH, TEXT, 0, 0, NULL, NULL, AT(cipher_suites)},
    {"ssl.curves.list", BOTH, TEXT, 0, 0, NULL, NULL, AT(curves)},
    {"ssl.sigalgs.list", BOTH, TEXT, 0, 0, NULL, NULL, AT(sigalgs)},
    {"enable.ssl.certificate.verification", BOTH, TRUTH, 0, 0, "true", NULL, AT(verify_peer)},
    {"ssl.endpoint.identification.algorithm", BOTH, WORDS, 0, 0, "https", "none|https", AT(verify_host)},

    {"sasl.mechanism", BOTH, WORDS, 0, 0, NULL, "PLAIN|SCRAM-SHA-256|SCRAM-SHA-512|OAUTHBEARER", AT(mechanism)},
    {"sasl.username", BOTH, TEXT, 0, 0, NULL, NULL, AT(username)},
    {"sasl.password", BOTH, TEXT, 0, 0, NULL, NULL, AT(password)},
    {"sasl.oauthbearer.method", BOTH, WORDS, 0, 0, "default", "default|oidc", AT(oauth_method)},
    {"sasl.oauthbearer.config", BOTH, TEXT, 0, 0, NULL, NULL, AT(oauth_config)},
    {"sasl.oauthbearer.token.endpoint.url", BOTH, TEXT, 0, 0, NULL, NULL, AT(oauth_url)},
    {"sasl.oauthbearer.extensions", BOTH, TEXT, 0, 0, NULL, NULL, AT(oauth_extensions)},
    {"enable.sasl.oauthbearer.unsecure.jwt", BOTH, TRUTH, 0, 0, "false", NULL, AT(oauth_unsecured)},

    {"group.id", CONS, TEXT, 0, 0, NULL, NULL, AT(group)},
    {"group.instance.id", CONS, TEXT, 0, 0, NULL, NULL, AT(instance_id)},
    {"group.protocol", CONS, WORDS, 0, 0, "classic", "classic|consumer", AT(group_protocol)},
    {"group.remote.assignor", CONS, TEXT, 0, 0, NULL, NULL, AT(remote_assignor)},
    {"partition.assignment.strategy", CONS, WORDS, 0, 0, "range", "range|cooperative-sticky", AT(assignor)},
    {"session.timeout.ms", CONS, NUMBER, 1, 3600000, "45000", NULL, AT(session_timeout_ms)},
    {"heartbeat.interval.ms", CONS, NUMBER, 1, 3600000, "3000", NULL, AT(heartbeat_ms)},
    {"max.poll.interval.ms", CONS, NUMBER, 1, 86400000, "300000", NULL, AT(poll_interval_ms)},
    {"isolation.level", CONS, WORDS, 0, 0, "read_committed", "read_uncommitted|read_committed", AT(isolation)},
    {"auto.offset.reset", CONS, WORDS, 0, 0, "latest", "earliest/smallest/beginning|latest/largest/end|error", AT(offset_reset)},
    {"fetch.wait.max.ms", CONS, NUMBER, 0, 300000, "500", NULL, AT(fetch_wait_ms)},
    {"fetch.min.bytes", CONS, NUMBER, 1, 100000000, "1", NULL, AT(fetch_min_bytes)},
    {"fetch.max.bytes", CONS, NUMBER, 0, 2147483135, "52428800", NULL, AT(fetch_max_bytes)},
    {"max.partition.fetch.bytes", CONS, NUMBER, 1, 1000000000, "1048576", NULL, AT(partition_fetch_bytes)},
    {"fetch.error.backoff.ms", CONS, NUMBER, 0, 300000, "500", NULL, AT(fetch_error_backoff_ms)},
    {"queued.max.messages.kbytes", CONS, NUMBER, 1, 2097151, "65536", NULL, AT(queued_max_kbytes)},
    {"check.crcs", CONS, TRUTH, 0, 0, "true", NULL, AT(check_crcs)},

    {"transactional.id", PROD, TEXT, 0, 0, NULL, NULL, AT(transactional_id)},
    {"transaction.timeout.ms", PROD, NUMBER, 1000, INT_MAX, "60000", NULL, AT(transaction_timeout_ms)},
    {"enable.idempotence", PROD, TRUTH, 0, 0, "false", NULL, AT(idempotent)},
    {"acks", PROD, WORDS, -1, 0, "all", "all/-1|0|1", AT(acks)},
    {"linger.ms", PROD, NUMBER, 0, 900000, "5", NULL, AT(linger_ms)},
    {"batch.size", PROD, NUMBER, 1, INT_MAX, "1000000", NULL, AT(batch_bytes)},
    {"batch.num.messages", PROD, NUMBER, 1, 1000000, "10000", NULL, AT(batch_records)},
    {"queue.buffering.max.messages", PROD, NUMBER, 0, INT_MAX, "100000", NULL, AT(queue_max_records)},
    {"queue.buffering.max.kbytes", PROD, NUMBER, 1, INT_MAX, "1048576", NULL, AT(queue_max_kbytes)},
    {"compression.type", PROD, WORDS, 0, 0, "none", "none|gzip|snappy|lz4|zstd", AT(codec)},
    {"compression.level", PROD, NUMBER, -1, 12, "-1", NULL, AT(level)},
    {"partitioner", PROD, WORDS, 0, 0, "consistent_random", "murmur2|murmur2_random|consistent|consistent_random", AT(partitioner)},
    {"request.timeout.ms", PROD, NUMBER, 1, 900000, "30000", NULL, AT(request_timeout_ms)},
    {"message.timeout.ms", PROD, NUMBER, 0, INT_MAX, "300000", NULL, AT(message_timeout_ms)},

    /* What always holds here, or is the bus's to decide. */
    {"broker.address.ttl", BOTH, NUMBER, 0, 86400000, "0", NULL, -1}, /* asked anew at each connect */
    {"api.version.request", BOTH, WORDS, 0, 0, "true", "true", -1},   /* nothing is guessed */
    {"client.dns.lookup", BOTH, WORDS, 0, 0, "use_all_dns_ips", "use_all_dns_ips", -1},
    {"log.connection.close", BOTH, TRUTH, 0, 0, "false", NULL, -1},           /* at level debug, always */
    {"topic.metadata.refresh.sparse", BOTH, WORDS, 0, 0, "true", "true", -1}, /* only topics that are used */
    {"group.protocol.type", CONS, WORDS, 0, 0, "consumer", "consumer", -1},
    {"enable.auto.commit", CONS, TRUTH, 0, 0, "false", NULL, -1}, /* offsets are committed after the effect */
    {"auto.commit.interval.ms", CONS, NUMBER, 0, 86400000, "5000", NULL, -1},
    {"enable.auto.offset.store", CONS, TRUTH, 0, 0, "false", NULL, -1},
    {"enable.partition.eof", CONS, TRUTH, 0, 0, "true", NULL, -1},
    {"retries", PROD, WORDS, 0, 0, "2147483647", "2147483647", -1},     /* a record is sent again until message.timeout.ms */
    {"queued.min.messages", CONS, WORDS, 0, 0, "100000", "100000", -1}, /* bytes say how much is fetched ahead, not records */
    {"delivery.report.only.error", PROD, TRUTH, 0, 0, "false", NULL, -1},
    {"queuing.strategy", PROD, WORDS, 0, 0, "fifo", "fifo", -1},
};
#define N_PROPS (sizeof props / sizeof *props)

/* Other names of rows. */
static const bus_kv aliases[] = {
    {"metadata.broker.list", "bootstrap.servers"},
    {"sasl.mechanisms", "sasl.mechanism"},
    {"compression.codec", "compression.type"},
    {"request.required.acks", "acks"},
    {"queue.buffering.max.ms", "linger.ms"},
    {"delivery.timeout.ms", "message.timeout.ms"},
    {"max.in.flight", "max.in.flight.requests.per.connection"},
    {"fetch.message.max.bytes", "max.partition.fetch.bytes"},
    {"message.send.max.retries", "retries"},
    {"auto.commit.enable", "enable.auto.commit"},
};

/* librdkafka's, which we do not have. */
static const char *const foreign[] = {
    "builtin.features",
    "message.copy.max.bytes",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.fast.cnt",
    "topic.blacklist",
    "debug",
    "socket.blocking.max.ms",
    "socket.max.fails",
    "reconnect.backoff.jitter.ms",
    "statistics.interval.ms",
    "enabled_events",
    "error_cb",
    "throttle_cb",
    "stats_cb",
    "log_cb",
    "log_level",
    "log.queue",
    "log.thread.name",
    "enable.random.seed",
    "background_event_cb",
    "socket_cb",
    "connect_cb",
    "closesocket_cb",
    "open_cb",
    "resolve_cb",
    "opaque",
    "default_topic_conf",
    "internal.termination.signal",
    "api.version.request.timeout.ms",
    "api.version.fallback.ms",
    "broker.version.fallback",
    "ssl_key",
    "ssl_certificate",
    "ssl_ca",
    "ssl.ca.certificate.stores",
    "ssl.providers",
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl_engine_callback_data",
    "ssl.certificate.verify_cb",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.keytab",
    "sasl.kerberos.min.time.before.relogin",
    "oauthbearer_token_refresh_cb",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "plugin.library.paths",
    "interceptors",
    "coordinator.query.interval.ms",
    "offset.store.method",
    "consume_cb",
    "rebalance_cb",
    "offset_commit_cb",
    "enable.gapless.guarantee",
    "queue.buffering.backpressure.threshold",
    "dr_cb",
    "dr_msg_cb",
    "sticky.partitioning.linger.ms",
    "produce.offset.report",
    "partitioner_cb",
    "msg_order_cmp",
    "offset.store.path",
    "offset.store.sync.interval.ms",
    "consume.callback.max.messages",
    "test.mock.num.brokers",
    "test.mock.broker.rtt",
    "fetch.queue.backoff.ms",
    "enable.metrics.push",
};

#define CURE "use librdkafka for it: \"bus: rdkafka\""

static const prop *row_of(const char *key)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (!strcmp(aliases[i].key, key))
            key = aliases[i].value;
    }
    for (size_t i = 0; i < N_PROPS; i++) {
        if (!strcmp(props[i].name, key))
            return &props[i];
    }
    return NULL;
}

static bool is_foreign(const char *key)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (!strcmp(foreign[i], key))
            return true;
    }
    return false;
}

/* ---- values --------------------------------------------------------------------------------------------------------------------- */

static bool parse_truth(const char *v, int *ret)
{
    static const char *const yes[] = {"true", "t", "1"}, *const no[] = {"false", "f", "0"};
    for (size_t i = 0; i < 3; i++) {
        if (!strcasecmp(v, yes[i]) || !strcasecmp(v, no[i])) {
            *ret = !strcasecmp(v, yes[i]);
            return true;
        }
    }
    return false;
}

static bool parse_word(const prop *p, const char *v, int *ret)
{
    size_t len = strlen(v);
    int value = p->min;
    for (const char *w = p->words; *w;) {
        size_t n = strcspn(w, "|/");
        if (n == len && !strncasecmp(w, v, n)) {
            *ret = value;
            return true;
        }
        w += n;
        value += *w == '|';
        w += *w != 0;
    }
    return false;
}

static int parse(const prop *p, const char *v, int *ret, char *why, size_t size)
{
    char *end;
    errno = 0;
    long long n;
    switch (p->type) {
    case TEXT: return 0;
    case TRUTH:
        if (parse_truth(v, ret))
            return 0;
        snprintf(why, size, "is neither true nor false");
        return PST_EINVAL;
    case WORDS:
        if (parse_word(p, v, ret))
            return 0;
        snprintf(why, size, "penstock's own client has %s; for others " CURE, p->words);
        return PST_EINVAL;
    case NUMBER:
        n = strtoll(v, &end, 10);
        if (!errno && end != v && !*end && n >= p->min && n <= p->max) {
            *ret = (int)n;
            return 0;
        }
        snprintf(why, size, "is not a number from %d to %d", p->min, p->max);
        return PST_EINVAL;
    }
    return PST_EINVAL;
}

static int check_value(const char *key, const char *value, char *why, size_t size)
{
    const prop *p = row_of(key);
    int ignored = 0;
    if (p)
        return parse(p, value, &ignored, why, size);
    snprintf(why, size, is_foreign(key) ? "penstock's own client does not have it; " CURE : "no such property");
    return PST_EINVAL;
}

static bus_prop_scope find(const char *key)
{
    const prop *p = row_of(key);
    return p ? p->scope : is_foreign(key) ? BUS_PROP_BOTH : BUS_PROP_UNKNOWN;
}

static const char *const *names(size_t *ret_n)
{
    static const char *list[N_PROPS]; /* the same values whoever writes them first */
    for (size_t i = 0; i < N_PROPS; i++)
        __atomic_store_n(&list[i], props[i].name, __ATOMIC_RELAXED);
    *ret_n = N_PROPS;
    return list;
}

static void list_all(void *file)
{
    FILE *f = file;
    fprintf(f, "%-40s | C/P | %-45s | default\n", "Property of penstock's own client", "Range");
    for (size_t i = 0; i < N_PROPS; i++) {
        const prop *p = &props[i];
        char range[64] = "";
        if (p->type == NUMBER)
            snprintf(range, sizeof range, "%d .. %d", p->min, p->max);
        fprintf(f, "%-40s |  %s  | %-45s | %s\n", p->name,
                p->scope == BOTH   ? "*"
                : p->scope == CONS ? "C"
                                   : "P",
                p->type == TRUTH   ? "true, false"
                : p->type == WORDS ? p->words
                                   : range,
                p->otherwise ? p->otherwise : "");
    }
}

static int open_nothing(pst_err *err)
{
    return 0; /* what TLS and codecs need is opened by those who use them */
}

static const char *warning(const pst_bus_conf *conf)
{
    return NULL;
}

static const char *version(void)
{
    return "penstock's own client";
}

const bus_conf_ops wire_conf_ops = {
    .open = open_nothing,
    .find = find,
    .names = names,
    .check = check_value,
    .list = list_all,
    .warning = warning,
    .version = version,
};

/* ---- reading ---------------------------------------------------------------------------------------------------------------------- */

static void put(wire_conf *c, const prop *p, const char *value)
{
    char *at = (char *)c + p->at, why[8];
    int n = -1;
    if (p->at < 0)
        return;
    if (p->type == TEXT) {
        char **text = (char **)(void *)at;
        if (*text)
            explicit_bzero(*text, strlen(*text));
        free(*text);
        *text = value && *value ? pst_strdup(value) : NULL; /* empty is not set, as librdkafka has it */
        return;
    }
    if (value)
        parse(p, value, &n, why, sizeof why);
    if (p->type == TRUTH)
        *(bool *)at = n > 0;
    else
        *(int *)(void *)at = n;
}

static int bad(pst_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(pst_err *err, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s", text);
}

static int take(wire_conf *c, const char *key, const char *value, const char *origin, pst_err *err)
{
    char why[256] = "";
    const char *from = origin && *origin ? origin : "configuration";
    if (check_value(key, value, why, sizeof why) < 0)
        return bad(err, "%s: %.100s=%.100s: %s", from, key, pst_secret_key(key) ? "********" : value, why);
    put(c, row_of(key), value);
    return 0;
}

/* The same meaning in other words is no conflict. */
static bool same(const char *key, const char *a, const char *b)
{
    const prop *p = row_of(key);
    int x = 0, y = 0;
    char why[8];
    if (!p || p->type == TEXT)
        return !strcmp(a, b);
    return !parse(p, a, &x, why, sizeof why) && !parse(p, b, &y, why, sizeof why) && x == y;
}

static const bus_kv *forced_row(const bus_kv *forced, const char *key)
{
    for (; forced && forced->key; forced++) {
        if (!strcmp(forced->key, key))
            return forced;
    }
    return NULL;
}

static int take_users(wire_conf *c, const pst_bus_conf *conf, bus_prop_scope kind, const bus_kv *forced, pst_err *err)
{
    for (size_t i = 0; i < conf->n; i++) {
        const bus_prop *b = &conf->props[i];
        const prop *p = row_of(b->key);
        if (p && !(p->scope & kind))
            continue; /* for the other kind of client: kept, applied there */
        const bus_kv *f = forced_row(forced, b->key);
        if (f) {
            if (!f->value || !same(b->key, b->value, f->value))
                pst_log(PST_LOG_WARN, "bus", "event=property_ignored key=%s value=%s origin=\"%s\" why=\"the guarantees rest on %s\"",
                        b->key, pst_secret_key(b->key) ? "********" : b->value, b->origin,
                        f->value ? f->value : "what the command sets itself");
            continue;
        }
        int rc = take(c, b->key, b->value, b->origin, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_login(const wire_conf *c, pst_err *err)
{
    bool tls = c->security == WIRE_TLS;
    if (c->security != WIRE_SASL_PLAINTEXT && c->security != WIRE_SASL_TLS)
        return c->username || c->password
                   ? bad(err, "sasl.username or sasl.password is set, and security.protocol=%s logs nobody in: set security.protocol=%s",
                         tls ? "ssl" : "plaintext", tls ? "sasl_ssl" : "sasl_ssl (or sasl_plaintext)")
                   : 0;
    if (c->mechanism < 0)
        return bad(err, "security.protocol asks for SASL, and sasl.mechanism is not set: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
                        "OAUTHBEARER; for GSSAPI " CURE);
    if (c->mechanism != WIRE_OAUTHBEARER)
        return c->username && c->password ? 0 : bad(err, "sasl.username and sasl.password are needed to log in");
    if (c->oauth_method == 1) {
        if (!c->oauth_url || strncmp(c->oauth_url, "file:///", 8))
            return bad(err, "sasl.oauthbearer.token.endpoint.url is not file:///…: penstock's own client reads a token from a file; for a "
                            "token that is "
                            "fetched " CURE);
        return 0;
    }
    if (!c->oauth_unsecured)
        return bad(
            err,
            "OAUTHBEARER needs a token: sasl.oauthbearer.method=oidc with sasl.oauthbearer.token.endpoint.url=file:///PATH, or, for tests, "
            "enable.sasl.oauthbearer.unsecure.jwt=true");
    return 0;
}

static int check_tls(const wire_conf *c, pst_err *err)
{
    bool cert = c->certificate_location || c->certificate_pem, key = c->key_location || c->key_pem;
    if ((cert || key || c->ca_location || c->ca_pem || c->keystore_location) && c->security != WIRE_TLS && c->security != WIRE_SASL_TLS)
        return bad(err, "ssl.* is set, and security.protocol=%s encrypts nothing: set security.protocol=%s",
                   c->security == WIRE_PLAINTEXT ? "plaintext" : "sasl_plaintext", c->security == WIRE_PLAINTEXT ? "ssl" : "sasl_ssl");
    if (cert != key)
        return bad(err, "%s is set without %s: a client's certificate needs both", cert ? "ssl.certificate.location" : "ssl.key.location",
                   cert ? "ssl.key.location" : "ssl.certificate.location");
    if (cert && c->keystore_location)
        return bad(err, "ssl.keystore.location and ssl.certificate.location are both set: which one is the client's certificate?");
    return 0;
}

static int check_whole(const wire_conf *c, bus_prop_scope kind, pst_err *err)
{
    if (!c->bootstrap)
        return bad(err, "no broker is named: use --bootstrap-server HOST:PORT");
    if (c->client_id && strlen(c->client_id) > 1000)
        return bad(err, "client.id is longer than 1000 bytes");
    if (c->reconnect_backoff_max_ms < c->reconnect_backoff_ms)
        return bad(err, "reconnect.backoff.max.ms=%d is below reconnect.backoff.ms=%d", c->reconnect_backoff_max_ms,
                   c->reconnect_backoff_ms);
    if (kind & CONS) {
        if (c->group_protocol == WIRE_CLASSIC && c->heartbeat_ms >= c->session_timeout_ms)
            return bad(err, "heartbeat.interval.ms=%d is not below session.timeout.ms=%d", c->heartbeat_ms, c->session_timeout_ms);
        if (c->receive_max_bytes - 512 < c->fetch_max_bytes)
            return bad(err, "receive.message.max.bytes=%d is not above fetch.max.bytes=%d by 512", c->receive_max_bytes,
                       c->fetch_max_bytes);
    }
    int rc = check_tls(c, err);
    return rc < 0 ? rc : check_login(c, err);
}

int wire_conf_read(const pst_bus_conf *conf, bus_prop_scope kind, const bus_kv *defaults, const bus_kv *forced, wire_conf **ret,
                   pst_err *err)
{
    wire_conf *c = pst_alloc(sizeof *c);
    int rc = 0;
    for (size_t i = 0; i < N_PROPS; i++)
        put(c, &props[i], props[i].otherwise);
    for (const bus_kv *kv = defaults; kv && kv->key && rc >= 0; kv++)
        rc = take(c, kv->key, kv->value, NULL, err);
    if (rc >= 0)
        rc = take_users(c, conf, kind, forced, err);
    for (const bus_kv *kv = forced; kv && kv->key && rc >= 0; kv++) {
        if (kv->value)
            rc = take(c, kv->key, kv->value, NULL, err);
    }
    if (rc >= 0)
        rc = check_whole(c, kind, err);
    if (rc < 0) {
        wire_conf_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void wire_conf_free(wire_conf *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < N_PROPS; i++) {
        if (props[i].type == TEXT)
            put(c, &props[i], NULL);
    }
    free(c);
}
