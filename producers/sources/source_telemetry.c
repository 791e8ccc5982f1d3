/* source_telemetry.c - `penstock source telemetry`: this computer, once per interval, as Avro records (schemas/Telemetry.avsc). A stream that every
 * computer has, for first steps and the demonstration. Samples are taken more often than they can be told apart, so each record's rates are those of
 * a sliding window. Being on time counts for more than being complete: a record that cannot be sent now is counted as lost, not kept for later. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/proc.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "producers/sources/proc_stat.h"
#include "producers/sources/sources.h"
#include "common/platform/codec.h"
#include "schemas/events.h"
#include "common/platform/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FLUSH_MS = 5000,
    PLATFORM_CHECK_US = 1000000,
    PLATFORM_GONE_US = 3000000,
    INTERVAL_LEAST_US = 1000,
    PROMPT_US = 5000,
    PROMPT_TRIES = 3
};

typedef struct telemetry_opts {
    const char *topic;
    int64_t interval_us, window_us, count;
    bool with_platform;
} telemetry_opts;

static const pst_opt telemetry_table[] = {
    {"topic", 't', PST_OPT_STR, offsetof(telemetry_opts, topic), "T", "telemetry",
     "where the records go; created with one partition if missing"},
    {"interval", 'i', PST_OPT_SPAN, offsetof(telemetry_opts, interval_us), "SPAN", "100ms", "time from record to record"},
    {"window", 0, PST_OPT_SPAN, offsetof(telemetry_opts, window_us), "SPAN", "500ms", "rates and shares are taken over this while"},
    {"count", 'c', PST_OPT_INT, offsetof(telemetry_opts, count), "N 0..9000000000000000", NULL, "end after N records"},
    {"with-platform", 0, PST_OPT_BOOL, offsetof(telemetry_opts, with_platform), NULL, NULL,
     "end when the `penstock up` of this state dir has ended"},
};
const pst_usage pst_source_telemetry_usage = {
    "source telemetry",
    "",
    "Stream this computer's CPU, memory, disk and network figures into a topic, as Avro.",
    "Key: the host's name. Outages of the broker are waited out; Ctrl-C or SIGTERM flushes and ends.",
    "penstock source telemetry\npenstock source telemetry --interval 20ms --count 1000 --topic machine\npenstock cat -t telemetry -o end",
    telemetry_table,
    sizeof telemetry_table / sizeof *telemetry_table,
    false};

typedef struct telemetry {
    const telemetry_opts *o;
    pst_client *client;
    source_feed feed;
    source_proc_window window;
    char host[256];
    pst_buf value;
    int64_t seen_us, checked_us; /* the platform */
} telemetry;

/* Is the `penstock up` of this state dir there? It writes its pid and start time into up.json. */
static bool platform_there(const char *state_dir)
{
    char *path = pst_fs_join(state_dir, "up.json");
    pst_buf b = {0};
    json_t *j = NULL;
    bool there = pst_fs_read(path, 4 << 20, &b, NULL) == 0 && pst_json_parse(b.data, b.len, path, &j, NULL) == 0 &&
                 pst_proc_alive((pid_t)pst_json_int(j, "pid", 0), pst_json_int(j, "pid_start", 0));
    json_decref(j);
    pst_buf_done(&b);
    free(path);
    return there;
}

static bool platform_gone(telemetry *t)
{
    int64_t now = pst_mono_us();
    if (!t->o->with_platform || now - t->checked_us < PLATFORM_CHECK_US)
        return false;
    t->checked_us = now;
    if (platform_there(t->client->settings->state_dir.value))
        t->seen_us = now;
    return now - t->seen_us > PLATFORM_GONE_US;
}

static void fill(const telemetry *t, const source_proc_sample *s, const source_proc_rates *r, int64_t time_us, pst_telemetry *e,
                 pst_disk_telemetry *disk, pst_network_telemetry *network)
{
    double total = s->memory_total > 0 ? s->memory_total : 1;
    *disk = (pst_disk_telemetry){r->sectors_read, r->sectors_written};
    *network = (pst_network_telemetry){r->rx_bytes, r->tx_bytes};
    *e = (pst_telemetry){.host = (char *)t->host,
                         .time = time_us,
                         .cpu = {r->user, r->system, r->iowait, r->idle},
                         .load1 = s->load1,
                         .memory = {1 - s->memory_available / total, s->memory_cached / total},
                         .context_switches = r->context_switches,
                         .interrupts = r->interrupts,
                         .processes_running = s->running,
                         .processes_blocked = s->blocked,
                         .disk = s->has_disk ? disk : NULL,
                         .network = s->has_network ? network : NULL};
}

/* The counters and the time of their reading belong together: on a busy computer this process may be put aside between the two, and rates
 * would be those of a shorter or longer while than is told. Such a reading is taken again; the third counts however it went. */
static int sample(source_proc_sample *ret, pst_err *err)
{
    int rc = 0;
    int64_t from = 0, took = PROMPT_US + 1;
    for (int i = 0; !rc && took > PROMPT_US && i < PROMPT_TRIES; i++) {
        from = pst_mono_us();
        rc = source_proc_read("/proc", from, ret, err);
        took = pst_mono_us() - from;
    }
    return rc;
}

/* One sample; one record once the window is full. A registry that is away costs this record, not the source. */
static int one(telemetry *t, pst_err *err)
{
    source_proc_sample now, from;
    source_proc_rates rates;
    pst_telemetry e;
    pst_disk_telemetry disk;
    pst_network_telemetry network;
    pst_err why = {0};
    int rc = sample(&now, err);
    if (rc < 0 || !source_proc_window_add(&t->window, &now, &from))
        return rc;
    int64_t time_us = pst_now_us();
    source_proc_rates_of(&from, &now, &rates);
    fill(t, &now, &rates, time_us, &e, &disk, &network);
    pst_buf_clear(&t->value);
    rc = pst_codec_encode(t->client->codec, &pst_telemetry_type, t->o->topic, &e, &t->value, &why);
    if (rc < 0 && why.cls == PST_CLASS_RETRY) {
        t->feed.lost++;
        snprintf(t->feed.why, sizeof t->feed.why, "%.190s", why.text);
        pst_log_err("source", &why);
        return 0;
    }
    if (rc < 0) {
        *err = why;
        return rc;
    }
    return source_feed_send(&t->feed, t->host, strlen(t->host), t->value.data, t->value.len, time_us / 1000, false, err);
}

static int stream(telemetry *t, pst_err *err)
{
    int rc = source_feed_open(&t->feed, t->client, t->o->topic, 1, err);
    int64_t next = pst_mono_us();
    t->seen_us = next;
    while (!rc && (!t->o->count || t->feed.sent < t->o->count) && !platform_gone(t)) {
        rc = one(t, err);
        next += t->o->interval_us;
        int64_t now = pst_mono_us();
        if (next < now) /* a slept or overloaded computer does not catch up in a burst */
            next = now;
        if (!source_feed_until(&t->feed, next))
            break;
    }
    pst_err last = {0};
    int flushed = source_feed_flush(&t->feed, FLUSH_MS, &last);
    if (!rc && flushed < 0 && !pst_stop_requested()) {
        *err = last;
        rc = flushed;
    }
    return rc == PST_ESTOPPED ? 0 : rc;
}

/* What was asked for is checked before the first record goes out. What was lost is said at the end, whatever ended it. */
int source_telemetry(int argc, char **argv)
{
    telemetry_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &pst_source_telemetry_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    telemetry *t = pst_alloc(sizeof *t);
    t->o = &o;
    t->client = v.client;
    t->window.window_us = o.window_us;
    if (gethostname(t->host, sizeof t->host - 1) || !*t->host)
        snprintf(t->host, sizeof t->host, "localhost");
    int rc = 0;
    if (o.interval_us < INTERVAL_LEAST_US || o.window_us < 0 || o.count < 0)
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "--interval must be 1ms or more, --window and --count not negative");
    else if (o.with_platform && !platform_there(v.settings.state_dir.value))
        rc = pst_err_set(&v.err, PST_ESTATE, PST_CLASS_FATAL, "config", 0, "--with-platform: no `penstock up` runs in %s",
                         v.settings.state_dir.value);
    if (!rc && !v.settings.quiet)
        fprintf(stderr, "telemetry of %s → %s at %s (Ctrl-C ends it)\n", t->host, o.topic, v.settings.bootstrap.value);
    if (!rc)
        rc = stream(t, &v.err);
    if (!rc && !v.settings.quiet)
        fprintf(stderr, "%lld records produced\n", (long long)t->feed.delivered);
    if (!rc && t->feed.lost)
        pst_log(PST_LOG_WARN, "source", "event=lost records=%lld why=\"%s\"", (long long)t->feed.lost, t->feed.why);
    source_feed_close(&t->feed);
    pst_buf_done(&t->value);
    free(t);
    return pst_verb_end(&v, rc);
}
