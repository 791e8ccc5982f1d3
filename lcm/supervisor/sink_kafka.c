/* sink_kafka.c - a supervisor's output to its topics. Deliveries never time out by themselves: an outage of any length is waited through (the outlet bounds
 * what is in flight and spools the rest). What a producer sent and nobody acknowledged is looked for on the topic before it is sent again by
 * another producer: idempotence does not reach from one to the next. */
#include "lcm/supervisor/sink_kafka.h"
#include "common/bus/bus.h"
#include "common/platform/codec.h"
#include "common/registry/registry.h"
#include "schemas/avro.h"
#include "schemas/topics.h"

#include <stdlib.h>
#include <string.h>

typedef struct kafka_sink {
    pst_client *client;
    pst_bus_conf *conf;     /* NULL until the first producer */
    pst_producer *producer; /* NULL after a reset, until the next send */
    int32_t ids[3];         /* schema ids; 0 = not asked yet */
    pst_buf scratch;
    sup_outlet_done done; /* during pump */
    void *done_arg;
} kafka_sink;

static const pst_topic topic_of[] = {PST_TOPIC_JOBS_REPORTS, PST_TOPIC_LOGS, PST_TOPIC_METRICS};

static const pst_type *type_of(pst_outlet_kind kind)
{
    static const pst_type *const types[] = {[PST_OUTLET_REPORT] = &pst_process_report_type,
                                            [PST_OUTLET_LOG] = &pst_log_line_type,
                                            [PST_OUTLET_METRIC] = &pst_metric_point_type};
    return types[kind];
}

static void on_delivery(void *arg, const pst_delivery *d)
{
    kafka_sink *s = arg;
    if (s->done)
        s->done(s->done_arg, d->opaque, d->code);
}

/* The client's, and no end to a delivery unless somebody set one. */
static int configure(kafka_sink *s, pst_err *err)
{
    if (s->conf)
        return 0;
    pst_bus_conf *conf = pst_bus_conf_copy(s->client->bus);
    bool set = pst_bus_conf_get(conf, "message.timeout.ms") || pst_bus_conf_get(conf, "delivery.timeout.ms");
    int rc = set ? 0 : pst_bus_conf_set(conf, "message.timeout.ms", "0", "supervisor", err);
    if (rc < 0)
        pst_bus_conf_free(conf);
    else
        s->conf = conf;
    return rc;
}

static int ready(kafka_sink *s, pst_outlet_kind kind, pst_err *err)
{
    if (!s->ids[kind]) {
        char *subject = pst_sprintf("%s-value", pst_client_topic(s->client, topic_of[kind]));
        int rc = pst_registry_register(s->client->registry, subject, pst_type_schema(type_of(kind)), &s->ids[kind], err);
        free(subject);
        if (rc < 0)
            return rc;
    }
    if (s->producer)
        return 0;
    int rc = configure(s, err);
    if (!rc)
        rc = pst_producer_new(s->conf, &(pst_producer_opts){.linger_ms = 10, .on_delivery = on_delivery, .arg = s}, &s->producer, err);
    for (int i = 0; !rc && i < 3; i++)
        pst_producer_expect(s->producer, pst_client_topic(s->client, topic_of[i]));
    return rc;
}

static int kafka_send(void *arg, pst_outlet_kind kind, const char *key, const void *body, size_t len, void *token, pst_err *err)
{
    kafka_sink *s = arg;
    int rc = ready(s, kind, err);
    if (rc < 0) {
        if (err->cls == PST_CLASS_DATA) /* the registry refuses our schema: no reason to drop what the learner said */
            err->cls = PST_CLASS_RETRY;
        return rc;
    }
    pst_buf_clear(&s->scratch);
    pst_frame_put(&s->scratch, s->ids[kind]);
    pst_buf_add(&s->scratch, body, len);
    pst_trace trace = {0}; /* log lines and metrics carry none: they name the job, and a header would cost more than the line */
    pst_header header;
    pst_out out;
    if (kind == PST_OUTLET_REPORT && *s->client->trace.text)
        pst_trace_child(&s->client->trace, &trace);
    pst_trace_out(&trace, pst_client_topic(s->client, topic_of[kind]), key, &s->scratch, &header, &out);
    out.opaque = token;
    return pst_producer_send(s->producer, &out, err);
}

static void kafka_pump(void *arg, int timeout_ms, sup_outlet_done done, void *done_arg)
{
    kafka_sink *s = arg;
    if (!s->producer)
        return;
    s->done = done;
    s->done_arg = done_arg;
    pst_producer_poll(s->producer, timeout_ms);
    s->done = NULL;
}

static void kafka_reset(void *arg)
{
    kafka_sink *s = arg;
    pst_producer_free(s->producer);
    s->producer = NULL;
}

/* ---- what is stored already ---- */

enum { CLOCKS_MS = 600000 }; /* the host's clock may have been set since the run began */

typedef struct finding {
    kafka_sink *sink;
    pst_outlet_kind kind;
    const char *process;
    int generation;
    int64_t last;
} finding;

/* What does not decode is not ours: it is passed over. An outage of the registry is none of the record's fault. */
static int look(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    finding *f = arg;
    pst_err e = {0};
    union {
        pst_log_line line;
        pst_metric_point point;
    } got;
    memset(&got, 0, sizeof got);
    if (!r->value)
        return 0;
    int rc = pst_codec_decode(f->sink->client->codec, type_of(f->kind), r->value, r->value_len, r->timestamp_ms, &got, &e);
    if (rc < 0 && e.cls != PST_CLASS_DATA) {
        if (err && !err->code)
            *err = e;
        return rc;
    }
    bool log = f->kind == PST_OUTLET_LOG;
    const char *process = log ? got.line.process : got.point.process;
    int generation = log ? got.line.generation : got.point.generation;
    int64_t number = log ? got.line.rindex : got.point.rindex;
    if (rc == 0 && process && !strcmp(process, f->process) && generation == f->generation && number > f->last)
        f->last = number;
    pst_event_clear(type_of(f->kind), &got);
    return 0;
}

static int kafka_last(void *arg, pst_outlet_kind kind, const char *key, int generation, const char *process, int64_t since_ms,
                      int64_t *ret_rindex, pst_err *err)
{
    finding f = {.sink = arg, .kind = kind, .process = process, .generation = generation, .last = -1};
    int rc = pst_client_scan_since(f.sink->client, topic_of[kind], key, since_ms > CLOCKS_MS ? since_ms - CLOCKS_MS : 0, look, &f, err);
    if (!rc)
        *ret_rindex = f.last;
    return rc;
}

static void kafka_close(void *arg)
{
    kafka_sink *s = arg;
    kafka_reset(s);
    pst_bus_conf_free(s->conf);
    pst_buf_done(&s->scratch);
    free(s);
}

/* Touches neither the client's library nor a broker: both wait for the first record, on the outlet's thread. */
sup_sink sup_sink_kafka(pst_client *client)
{
    kafka_sink *s = pst_alloc(sizeof *s);
    s->client = client;
    return (sup_sink){.arg = s, .send = kafka_send, .pump = kafka_pump, .reset = kafka_reset, .last = kafka_last, .close = kafka_close};
}
