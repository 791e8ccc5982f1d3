/* bus_err.c - a client's and the broker's error codes as PST_E… and class; the health of one client; bounded destruction.
 * The classes follow what was measured against Kafka 4.3 and 3.9 with librdkafka 2.0.2 and 2.16. */
#include "common/bus/bus_internal.h"
#include "common/bus/bus_hand.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A refusal after the client has worked may be passing (a broker that restarts and has not read its user database yet). */
#define REFUSED_PATIENCE_US (30 * 1000000LL)

bool bus_is_outage(int code)
{
    switch (code) {
    case BUS_ERR__TRANSPORT:
    case BUS_ERR__ALL_BROKERS_DOWN:
    case BUS_ERR__RESOLVE:
    case BUS_ERR__TIMED_OUT:
    case BUS_ERR__TIMED_OUT_QUEUE:
    case BUS_ERR__MSG_TIMED_OUT:
    case BUS_ERR__WAIT_COORD:
    case BUS_ERR__WAIT_CACHE:
    case BUS_ERR_REQUEST_TIMED_OUT:
    case BUS_ERR_BROKER_NOT_AVAILABLE:
    case BUS_ERR_LEADER_NOT_AVAILABLE:
    case BUS_ERR_NOT_LEADER_FOR_PARTITION:
    case BUS_ERR_REPLICA_NOT_AVAILABLE:
    case BUS_ERR_NETWORK_EXCEPTION:
    case BUS_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case BUS_ERR_COORDINATOR_NOT_AVAILABLE:
    case BUS_ERR_NOT_COORDINATOR:
    case BUS_ERR_NOT_ENOUGH_REPLICAS:
    case BUS_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case BUS_ERR_NOT_CONTROLLER:
    case BUS_ERR_KAFKA_STORAGE_ERROR:
    case BUS_ERR_UNSTABLE_OFFSET_COMMIT: return true;
    default: return false;
    }
}

bool pst_bus_reopens(int rc, const pst_err *err)
{
    if (rc == PST_EFENCED)
        return true;
    bool same_again = rc == PST_EAUTH || rc == PST_EINVAL || rc == PST_EUNSUPPORTED || rc == PST_ESTOPPED || err->cls == PST_CLASS_DATA;
    return rc < 0 && !same_again && !strcmp(err->origin, "kafka");
}

bool pst_bus_refuses_record(const pst_err *err)
{
    return !strcmp(err->origin, "kafka") && (err->native == BUS_ERR_INVALID_RECORD || err->native == BUS_ERR_INVALID_TIMESTAMP ||
                                             err->native == BUS_ERR_INVALID_MSG || err->native == BUS_ERR__INVALID_DIFFERENT_RECORD);
}

bool bus_is_purge(int code)
{
    return code == BUS_ERR__PURGE_QUEUE || code == BUS_ERR__PURGE_INFLIGHT;
}

int bus_code(int code, pst_err_class *ret_class)
{
    pst_err_class ignored, *cls = ret_class ? ret_class : &ignored;
    *cls = PST_CLASS_RETRY;
    switch (code) {
    case BUS_ERR_NO_ERROR: *cls = PST_CLASS_NONE; return 0;
    case BUS_ERR__TIMED_OUT:
    case BUS_ERR__TIMED_OUT_QUEUE:
    case BUS_ERR__MSG_TIMED_OUT:
    case BUS_ERR_REQUEST_TIMED_OUT: return PST_ETIMEDOUT;
    case BUS_ERR__AUTHENTICATION:
    case BUS_ERR_SASL_AUTHENTICATION_FAILED:
    case BUS_ERR_UNSUPPORTED_SASL_MECHANISM:
    case BUS_ERR_ILLEGAL_SASL_STATE:
    case BUS_ERR_TOPIC_AUTHORIZATION_FAILED:
    case BUS_ERR_GROUP_AUTHORIZATION_FAILED:
    case BUS_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case BUS_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
    case BUS_ERR_SECURITY_DISABLED: *cls = PST_CLASS_FATAL; return PST_EAUTH;
    case BUS_ERR_UNKNOWN_TOPIC_OR_PART:
    case BUS_ERR__UNKNOWN_TOPIC:
    case BUS_ERR__UNKNOWN_PARTITION: return PST_ENOTFOUND;
    case BUS_ERR_MSG_SIZE_TOO_LARGE:
    case BUS_ERR_RECORD_LIST_TOO_LARGE: *cls = PST_CLASS_DATA; return PST_ELIMIT;
    case BUS_ERR_INVALID_RECORD:
    case BUS_ERR__INVALID_DIFFERENT_RECORD:
    case BUS_ERR_INVALID_MSG:
    case BUS_ERR_INVALID_TIMESTAMP: *cls = PST_CLASS_DATA; return PST_EINVAL;
    case BUS_ERR__FENCED:
    case BUS_ERR_PRODUCER_FENCED:
    case BUS_ERR_INVALID_PRODUCER_EPOCH:
    case BUS_ERR_ILLEGAL_GENERATION:
    case BUS_ERR_UNKNOWN_MEMBER_ID:
    case BUS_ERR_REBALANCE_IN_PROGRESS:
    case BUS_ERR__ASSIGNMENT_LOST: return PST_EFENCED;
    case BUS_ERR_FENCED_INSTANCE_ID: *cls = PST_CLASS_FATAL; return PST_EFENCED;
    case BUS_ERR__QUEUE_FULL: return PST_EAGAIN;
    case BUS_ERR__UNSUPPORTED_FEATURE:
    case BUS_ERR_UNSUPPORTED_VERSION:
    case BUS_ERR__NOT_IMPLEMENTED: *cls = PST_CLASS_FATAL; return PST_EUNSUPPORTED;
    case BUS_ERR__INVALID_ARG:
    case BUS_ERR_INVALID_CONFIG:
    case BUS_ERR_INVALID_PARTITIONS:
    case BUS_ERR_INVALID_REPLICATION_FACTOR:
    case BUS_ERR_INVALID_REPLICA_ASSIGNMENT:
    case BUS_ERR_TOPIC_EXCEPTION:
    case BUS_ERR_POLICY_VIOLATION:
    case BUS_ERR_INVALID_GROUP_ID:
    case BUS_ERR_INVALID_REQUEST:
    case BUS_ERR_INVALID_TRANSACTION_TIMEOUT:
    case BUS_ERR_INVALID_SESSION_TIMEOUT:
    case BUS_ERR_INCONSISTENT_GROUP_PROTOCOL: *cls = PST_CLASS_FATAL; return PST_EINVAL;
    case BUS_ERR_TOPIC_ALREADY_EXISTS: return PST_EEXIST;
    case BUS_ERR__AUTO_OFFSET_RESET: /* the user asked for auto.offset.reset=error */
    case BUS_ERR__FATAL:
    case BUS_ERR__STATE: *cls = PST_CLASS_FATAL; return PST_ESTATE;
    default: return bus_is_outage(code) ? PST_EUNREACH : PST_EIO;
    }
}

/* What a person can do about it; "" when the text says enough. */
static const char *cure(const pst_bus_conf *conf, int code, int pst_code, const char *reason)
{
    const char *warning = conf ? pst_bus_conf_warning(conf) : NULL;
    if (code == BUS_ERR__AUTHENTICATION || code == BUS_ERR_SASL_AUTHENTICATION_FAILED)
        return warning ? warning : "check sasl.mechanism, sasl.username and sasl.password";
    if (code == BUS_ERR__SSL && strstr(reason, "verif"))
        return "set ssl.ca.location to the certificate of the broker's authority";
    if (strstr(reason, "alert bad certificate") || strstr(reason, "alert certificate required"))
        return "the broker wants a client certificate: set ssl.certificate.location and ssl.key.location";
    if (pst_code == PST_EAUTH)
        return "ask for the permission (ACL), or use other credentials";
    if (code == BUS_ERR_INVALID_TRANSACTION_TIMEOUT)
        return "the broker's transaction.max.timeout.ms is smaller than transaction.timeout.ms";
    if (code == BUS_ERR_INCONSISTENT_GROUP_PROTOCOL)
        return "the group's other members use another partition.assignment.strategy";
    if (code == BUS_ERR__ALL_BROKERS_DOWN || code == BUS_ERR__RESOLVE)
        return "is it running, and is --bootstrap-server right?";
    return "";
}

int bus_err(pst_err *err, const pst_bus_conf *conf, int code, const char *reason, const char *fmt, ...)
{
    pst_err_class cls;
    int rc = bus_code(code, &cls);
    if (!reason || !*reason)
        reason = bus_code_text(code);
    if (code == BUS_ERR__SSL) {
        bool certain = strstr(reason, "verif") != NULL;
        rc = certain ? PST_EAUTH : PST_EUNREACH;
        cls = certain ? PST_CLASS_FATAL : PST_CLASS_RETRY;
    }
    if (!err || err->code)
        return rc;
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    const char *help = cure(conf, code, rc, reason);
    const char *at = conf ? pst_bus_conf_get(conf, "bootstrap.servers") : NULL;
    bool say_where = bus_is_outage(code) && at;
    return pst_err_set(err, rc, cls, "kafka", code, "%s%s%s%s%.220s%s%s", what, say_where ? " (brokers " : "", say_where ? at : "",
                       say_where ? "): " : ": ", reason, *help ? "; " : "", help);
}

const char *bus_code_text(int code)
{
    return bus_client_default()->common->code_text(code);
}

const char *bus_code_name(int code)
{
    return bus_client_default()->common->code_name(code);
}

/* ---- health --------------------------------------------------------------------------------------------------------------- */

void bus_health_ok(bus_health *h)
{
    h->worked = true;
    h->refused_since_us = 0;
}

void bus_health_note(bus_health *h, int code, const char *reason)
{
    if (!code)
        return;
    if (h->no_group && code == BUS_ERR_GROUP_AUTHORIZATION_FAILED)
        return;
    if (bus_is_outage(code))
        h->outages++;
    pst_err e = {0};
    bus_err(&e, h->conf, code, reason, "Kafka");
    if (e.cls != PST_CLASS_FATAL) {
        /* "All brokers are down" follows the error that says why: keep the one that says more. */
        if (code != BUS_ERR__ALL_BROKERS_DOWN || !h->last.code)
            h->last = e;
        return;
    }
    bool login = code == BUS_ERR__AUTHENTICATION || code == BUS_ERR__SSL;
    if (login && h->worked) {
        int64_t now = pst_mono_us();
        if (!h->refused_since_us)
            h->refused_since_us = now;
        if (now - h->refused_since_us < REFUSED_PATIENCE_US) {
            e.cls = PST_CLASS_RETRY;
            h->last = e;
            return;
        }
    }
    if (!h->fatal.code) {
        h->fatal = e;
        h->fatal_code = code;
    }
}

int bus_health_take(bus_health *h, pst_err *err)
{
    if (h->fatal.code) {
        if (err && !err->code)
            *err = h->fatal;
        return h->fatal.code;
    }
    if (h->last.code) {
        if (err && !err->code)
            *err = h->last;
        memset(&h->last, 0, sizeof h->last);
    }
    return 0;
}

/* ---- bounded ---------------------------------------------------------------------------------------------------------------- */

bool bus_bounded(void (*fn)(void *arg), void *arg, int timeout_ms, const char *what)
{
    bus_hand *h = bus_hand_new();
    if (!h) {
        fn(arg); /* no thread to be had: do it here, unbounded rather than not at all */
        return true;
    }
    bus_hand_start(h, fn, arg);
    bool done = bus_hand_wait(h, timeout_ms);
    bus_hand_free(h);
    if (!done)
        pst_log(PST_LOG_DEBUG, "bus", "event=left_running what=%s after_ms=%d", what, timeout_ms);
    return done;
}

static void destroy(void *arg)
{
    bus_link *l = arg;
    l->lib->common->free(l->h);
    free(l);
}

bool bus_destroy(bus_link l)
{
    if (!l.h)
        return true;
    bus_link *owned = pst_alloc(sizeof *owned);
    *owned = l;
    return bus_bounded(destroy, owned, 5000, "client_free");
}
