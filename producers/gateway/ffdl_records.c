/* ffdl_records.c - log lines and evaluations in FfDL's shapes. FfDL counts a job's lines in one row and gives each a time of its own, and its client goes on
 * from page to page by "the last time and one millisecond more". Ours are numbered per process, and many share a millisecond. So they are counted here in
 * the order in which the topic has them, which is the same for every reader, and a time that was there already becomes the next millisecond. Numbers
 * and times of a job's records change only when retention has removed the first of them. */
#include "producers/gateway/ffdl.h"

#include "common/base/clock.h"
#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 8000, CLOCKS_US = 60 * 1000000 };

pst_topic gw_ffdl_topic(gw_ffdl_kind kind)
{
    return kind == GW_FFDL_LINES ? PST_TOPIC_LOGS : PST_TOPIC_METRICS;
}

/* An evaluation's time is what the learner wrote: one that lies ahead of its record's would push all that follow ahead of the clock. */
void gw_ffdl_count_in(gw_ffdl_count *c, int64_t event_us, int64_t record_ms)
{
    int64_t ms = event_us / 1000;
    if (ms <= 0 || (record_ms > 0 && ms > record_ms))
        ms = record_ms;
    c->n++;
    c->last_ms = ms > c->last_ms ? ms : c->last_ms + 1;
}

int64_t gw_ffdl_since_us(const json_t *doc)
{
    int64_t at = pst_json_int(doc, "submitted_at", 0);
    return at > CLOCKS_US ? at - CLOCKS_US : 0;
}

static json_t *meta_of(const char *id, const char *user, const gw_ffdl_count *c)
{
    return json_pack("{s:s, s:s, s:I, s:I}", "training_id", id, "user_id", user, "time", (json_int_t)c->last_ms, "rindex",
                     (json_int_t)c->n);
}

json_t *gw_ffdl_line(const pst_log_line *l, const char *user, const gw_ffdl_count *c)
{
    return json_pack("{s:o, s:s}", "meta", meta_of(l->training_id, user, c), "line", l->text);
}

/* The shortest text that is this number. */
static json_t *number_text(double v)
{
    char text[40];
    if (isnan(v))
        return json_string("NaN");
    if (isinf(v))
        return json_string(v > 0 ? "Infinity" : "-Infinity");
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return json_string(text);
}

static void set_any(json_t *to, const char *name, const char *type, json_t *value)
{
    json_object_set_new(to, name, json_pack("{s:s, s:o}", "type", type, "value", value));
}

json_t *gw_ffdl_emetric(const pst_metric_point *m, const char *user, const gw_ffdl_count *c)
{
    json_t *etimes = json_object(), *values = json_object();
    if (m->has_step)
        set_any(etimes, "iteration", "INT", json_sprintf("%lld", (long long)m->step));
    if (m->has_epoch)
        set_any(etimes, "epoch", "FLOAT", number_text(m->epoch));
    for (size_t i = 0; i < m->n_values; i++)
        set_any(values, m->values[i].key, "FLOAT", number_text(m->values[i].value));
    return json_pack("{s:o, s:s, s:o, s:o}", "meta", meta_of(m->training_id, user, c), "grouplabel", m->group, "etimes", etimes, "values",
                     values);
}

static json_t *metric_frame(const pst_metric_point *m)
{
    char time[32];
    return json_pack("{s:s, s:s, s:I, s:{}}", "type", m->group, "timestamp", pst_time_text(m->time, time), "iteration",
                     (json_int_t)(m->has_step ? m->step : 0), "Values");
}

static bool tell(json_t *frame, bool (*fn)(void *arg, const char *text, size_t len), void *arg)
{
    char *text = pst_json_text(frame);
    bool goes_on = fn(arg, text, strlen(text));
    free(text);
    return goes_on;
}

bool gw_ffdl_metric(const pst_metric_point *m, bool (*fn)(void *arg, const char *text, size_t len), void *arg)
{
    json_t *frame = metric_frame(m);
    size_t bytes = 200 + strlen(m->group) * 6;
    bool goes_on = true;
    for (size_t i = 0; i < m->n_values && goes_on; i++) {
        size_t more = strlen(m->values[i].key) * 6 + 32; /* at most: every character escaped */
        json_t *values = json_object_get(frame, "Values");
        if (json_object_size(values) && bytes + more > TEXT_MAX) {
            goes_on = tell(frame, fn, arg);
            json_decref(frame);
            frame = metric_frame(m);
            values = json_object_get(frame, "Values");
            bytes = 200 + strlen(m->group) * 6;
        }
        bytes += more;
        json_object_set_new(values, m->values[i].key, pst_json_real(m->values[i].value));
    }
    goes_on = goes_on && tell(frame, fn, arg);
    json_decref(frame);
    return goes_on;
}
