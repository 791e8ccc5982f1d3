/* bus_java.c - properties written for Java clients, as they are found in every client.properties, in librdkafka's words. */
#include "common/bus/bus_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Same meaning, other name. */
static const bus_kv renamed[] = {
    {"fetch.max.wait.ms", "fetch.wait.max.ms"},
    {"max.request.size", "message.max.bytes"},
    {"send.buffer.bytes", "socket.send.buffer.bytes"},
    {"receive.buffer.bytes", "socket.receive.buffer.bytes"},
    {"ssl.truststore.certificates", "ssl.ca.pem"},
    {"ssl.keystore.certificate.chain", "ssl.certificate.pem"},
    {"ssl.keystore.key", "ssl.key.pem"},
};

/* Java only: either librdkafka has no such thing or our code decides it. */
static const char *const ignored[] = {
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "max.poll.records",
    "default.api.timeout.ms",
    "interceptor.classes",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "buffer.memory",
    "max.block.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "client.dns.lookup",
    "exclude.internal.topics",
    "auto.include.jmx.reporter",
    "enable.metrics.push",
    "security.providers",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.type",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "ssl.engine.factory.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",

    "value.subject.name.strategy",
    "key.subject.name.strategy",
    "auto.register.schemas",
    "use.latest.version",
    "specific.avro.reader",
    "internal.leave.group.on.close",
    "throw.on.fetch.stable.offset.unsupported",
    "group.remote.assignor",
};

static bool starts(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

typedef enum { FILE_ABSENT, FILE_PEM, FILE_JKS, FILE_PKCS12, FILE_OTHER } file_kind;

static file_kind look(const char *path)
{
    unsigned char head[4096];
    FILE *f = fopen(path, "rbe");
    if (!f)
        return FILE_ABSENT;
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    head[n] = 0;
    if (n >= 4 && !memcmp(head, "\xfe\xed\xfe\xed", 4))
        return FILE_JKS;
    if (memmem(head, n, "-----BEGIN ", 11))
        return FILE_PEM;
    return n >= 2 && head[0] == 0x30 ? FILE_PKCS12 : FILE_OTHER;
}

static int bad(pst_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(pst_err *err, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s", text);
    return BUS_JAVA_ERROR;
}

static bus_java_verdict truststore(const char *path, bus_java *ret, pst_err *err)
{
    switch (look(path)) {
    case FILE_ABSENT: return bad(err, "ssl.truststore.location=%.200s: no such file, or it cannot be read", path);
    case FILE_JKS:
        return bad(
            err,
            "ssl.truststore.location=%.100s is a Java key store; convert it: keytool -exportcert -rfc -keystore %.100s -alias ALIAS > "
            "ca.pem, then ssl.ca.location=ca.pem",
            path, path);
    case FILE_PKCS12:
        return bad(err,
                   "ssl.truststore.location=%.100s is PKCS#12; convert it: openssl pkcs12 -in %.100s -nokeys -out ca.pem, then "
                   "ssl.ca.location=ca.pem",
                   path, path);
    default: ret->set[0] = (bus_kv){"ssl.ca.location", path}; return BUS_JAVA_SET;
    }
}

static bus_java_verdict keystore(const char *path, bus_java *ret, pst_err *err)
{
    switch (look(path)) {
    case FILE_JKS:
        return bad(
            err,
            "ssl.keystore.location=%.100s is a Java key store; convert it: keytool -importkeystore -srckeystore %.100s -destkeystore "
            "client.p12 -deststoretype PKCS12",
            path, path);
    case FILE_PEM:
        ret->set[0] = (bus_kv){"ssl.key.location", path};
        ret->set[1] = (bus_kv){"ssl.certificate.location", path};
        return BUS_JAVA_SET;
    default: return BUS_JAVA_NONE; /* librdkafka reads PKCS#12 itself, and says what is wrong with anything else */
    }
}

/* name=value or name="va\"lue" out of a login module's options; false if absent or longer than the buffer. */
static bool jaas_option(const char *text, const char *name, char *ret, size_t cap)
{
    size_t n = strlen(name);
    for (const char *p = text; *p; p++) {
        if (*p == '"') { /* skip a quoted value: it may contain anything */
            for (p++; *p && *p != '"'; p++) {
                if (*p == '\\' && p[1])
                    p++;
            }
            if (!*p)
                return false;
            continue;
        }
        if (strncmp(p, name, n) || (p > text && !isspace((unsigned char)p[-1])))
            continue;
        const char *v = p + n + strspn(p + n, " \t");
        if (*v != '=')
            continue;
        v += 1 + strspn(v + 1, " \t");
        size_t len = 0;
        bool quoted = *v == '"';
        for (v += quoted; *v && (quoted ? *v != '"' : !isspace((unsigned char)*v) && *v != ';'); v++) {
            if (quoted && *v == '\\' && v[1])
                v++;
            if (len + 1 >= cap)
                return false;
            ret[len++] = *v;
        }
        ret[len] = 0;
        return !quoted || *v == '"';
    }
    return false;
}

static bus_java_verdict jaas(const char *value, bus_java *ret, pst_err *err)
{
    /* The text holds a password: it is never quoted in an error. */
    if (!strstr(value, "PlainLoginModule") && !strstr(value, "ScramLoginModule"))
        return bad(
            err,
            "sasl.jaas.config: only PlainLoginModule and ScramLoginModule are understood; for others use librdkafka's sasl.* properties");
    if (!jaas_option(value, "username", ret->a, sizeof ret->a) || !jaas_option(value, "password", ret->b, sizeof ret->b))
        return bad(err, "sasl.jaas.config: username=\"…\" and password=\"…\" are expected after the login module");
    ret->set[0] = (bus_kv){"sasl.username", ret->a};
    ret->set[1] = (bus_kv){"sasl.password", ret->b};
    return BUS_JAVA_SET;
}

static bus_java_verdict assignors(const char *value, bus_java *ret, pst_err *err)
{
    static const bus_kv names[] = {
        {"RangeAssignor", "range"}, {"RoundRobinAssignor", "roundrobin"}, {"CooperativeStickyAssignor", "cooperative-sticky"}};
    if (!strstr(value, "Assignor"))
        return BUS_JAVA_NONE;
    /* Java takes a list; the first one librdkafka has is the preferred one. Eager and cooperative ones do not mix, so one it is. */
    size_t best = SIZE_MAX;
    const char *pick = NULL;
    for (size_t i = 0; i < 3; i++) {
        const char *at = strstr(value, names[i].key);
        if (at && (size_t)(at - value) < best) {
            best = at - value;
            pick = names[i].value;
        }
    }
    if (!pick)
        return bad(err, "partition.assignment.strategy=%.200s: librdkafka has range, roundrobin and cooperative-sticky", value);
    ret->set[0] = (bus_kv){"partition.assignment.strategy", pick};
    return BUS_JAVA_SET;
}

bus_java_verdict bus_java_translate(const char *key, const char *value, bus_java *ret, pst_err *err)
{
    if (starts(key, "schema.registry.") || starts(key, "basic.auth.") || starts(key, "bearer.auth."))
        return BUS_JAVA_REGISTRY;
    if (!strcmp(key, "sasl.jaas.config"))
        return jaas(value, ret, err);
    if (!strcmp(key, "ssl.truststore.location"))
        return truststore(value, ret, err);
    if (!strcmp(key, "ssl.keystore.location"))
        return keystore(value, ret, err);
    if (!strcmp(key, "partition.assignment.strategy"))
        return assignors(value, ret, err);
    if (!strcmp(key, "ssl.endpoint.identification.algorithm") && !*value) {
        ret->set[0] = (bus_kv){key, "none"}; /* Java writes the empty text */
        return BUS_JAVA_SET;
    }
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (!strcmp(key, renamed[i].key)) {
            ret->set[0] = (bus_kv){renamed[i].value, value};
            return BUS_JAVA_SET;
        }
    }
    /* A newer library may know what an older one did not. (max.poll.records is for its share groups, which are not used here.) */
    if (bus_prop_find(key) != BUS_PROP_UNKNOWN && strcmp(key, "max.poll.records"))
        return BUS_JAVA_NONE;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        if (!strcmp(key, ignored[i])) {
            ret->why = "of Java clients only";
            return BUS_JAVA_IGNORE;
        }
    }
    return BUS_JAVA_NONE;
}
